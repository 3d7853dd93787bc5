-- The inventory of an index: everything that create_index makes, with each property as it should be and as it is.
--
-- verify lists what differs. The expected values come from the functions that create the objects.

-- What others have put on a key table, which could keep keys from it or run with the rights of its owner, and the
-- statement that drops it.
CREATE OR REPLACE FUNCTION simsql._foreign_objects(keys regclass)
RETURNS TABLE (kind text, name text, statement text)
LANGUAGE sql STABLE
AS $$
    SELECT 'trigger', t.tgname::text, format('DROP TRIGGER %I ON %s', t.tgname, keys) FROM pg_trigger AS t
     WHERE t.tgrelid = keys AND NOT t.tgisinternal AND t.tgname <> 'simsql_keep_own'
     UNION ALL
    SELECT 'rule', w.rulename::text, format('DROP RULE %I ON %s', w.rulename, keys) FROM pg_rewrite AS w
     WHERE w.ev_class = keys
     UNION ALL
    -- PostgreSQL 18 has constraints for NOT NULL.
    SELECT 'constraint', k.conname::text, format('ALTER TABLE %s DROP CONSTRAINT %I CASCADE', keys, k.conname)
      FROM pg_constraint AS k WHERE k.conrelid = keys AND k.contype NOT IN ('n', 't')
     UNION ALL
    SELECT 'B-tree', i.indexrelid::regclass::text, format('DROP INDEX %s', i.indexrelid::regclass) FROM pg_index AS i
     WHERE i.indrelid = keys AND (i.indisunique OR i.indexprs IS NOT NULL OR i.indpred IS NOT NULL)
       AND NOT EXISTS (SELECT FROM pg_constraint AS k WHERE k.conindid = i.indexrelid)
$$;

-- The owner of an index: that of most key tables or, without key tables, of the search function; else that of the
-- table.
CREATE OR REPLACE FUNCTION simsql._owner(index simsql.registry) RETURNS oid
LANGUAGE sql STABLE
AS $$
    SELECT coalesce(
        (SELECT mode() WITHIN GROUP (ORDER BY c.relowner) FROM pg_class AS c
          WHERE c.relnamespace = 'simsql'::regnamespace AND c.relname ~ format('^keys_%s_\d+$', index.id)),
        (SELECT p.proowner FROM pg_proc AS p
          WHERE p.pronamespace = 'simsql'::regnamespace AND p.proname = 'search_' || index.id LIMIT 1),
        (SELECT c.relowner FROM pg_class AS c WHERE c.oid = index.table_id))
$$;

-- With `keys_only`, those properties of key tables without which they have to be made anew. Then this locks nothing.
CREATE OR REPLACE FUNCTION simsql._inventory(
    index simsql.registry, actual simsql.registry, keys_only boolean DEFAULT false)
RETURNS TABLE (kind text, object text, property text, problem text, expected text, found text)
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    expected_owner constant text := simsql._owner(index)::regrole;
BEGIN
    IF index.storage = 'tables' THEN
        RETURN QUERY
        SELECT 'key table', k.name, p.*
          FROM simsql._permutations(index.blocks, index.lead, index.inner_blocks) AS n
         CROSS JOIN LATERAL format('simsql.keys_%s_%s', index.id, n.number) AS k (name)
          LEFT JOIN pg_class AS c ON c.oid = to_regclass(k.name)
         CROSS JOIN LATERAL (
               SELECT string_agg(concat_ws(' ', a.attname, a.atttypid::regtype, nullif(a.attcollation, 0)::regcollation,
                                           nullif(concat(a.attgenerated, a.attidentity), ''),
                                           CASE WHEN a.atthasdef THEN 'DEFAULT' END), ', ' ORDER BY a.attnum)
                 FROM pg_attribute AS a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped)
               AS columns (found)
         CROSS JOIN LATERAL (VALUES
               ('existence', CASE WHEN c.oid IS NULL THEN 'key table missing' ELSE 'key table altered' END,
                'r', c.relkind::text),
               -- Scope values are compared by the type and collation that they have in the user's table.
               ('columns', 'key table altered',
                CASE WHEN array_position(actual.scope_columns, NULL) IS NULL THEN (
                    SELECT coalesce(string_agg(concat_ws(' ', s.name, simsql._base_type(u.atttypid),
                                                         nullif(u.attcollation, 0)::regcollation) || ', ', ''
                                               ORDER BY s.number), '')
                      FROM simsql._scope_columns(actual) AS s
                      JOIN pg_attribute AS u ON u.attrelid = actual.table_id AND u.attname = s.column_name)
                    || 'key bigint' ELSE columns.found END,
                columns.found),
               ('inheritance', 'key table altered', NULL,
                (SELECT string_agg(CASE i.inhrelid WHEN c.oid THEN i.inhparent ELSE i.inhrelid END::regclass::text, ', ')
                   FROM pg_inherits AS i WHERE c.oid IN (i.inhrelid, i.inhparent))),
               -- ALTER TABLE SET LOGGED leaves it unlogged: a crash would empty it but keep the rows.
               ('persistence', 'key table unlogged',
                CASE WHEN (SELECT t.relpersistence FROM pg_class AS t WHERE t.oid = index.table_id) = 'p' THEN 'p'
                     ELSE c.relpersistence::text END,
                c.relpersistence::text),
               ('row-level security', 'policy altered', 'enabled',
                CASE WHEN c.relforcerowsecurity THEN 'forced' WHEN c.relrowsecurity THEN 'enabled' ELSE 'disabled' END),
               ('policies', 'policy altered', '(readers,r,t,{0}) ' || simsql._policy(index),
                -- PostgreSQL locks a table to write an expression.
                CASE WHEN NOT keys_only THEN (
                    SELECT string_agg(concat_ws(' ', (p.polname, p.polcmd, p.polpermissive, p.polroles)::text,
                                                simsql._on_one_line(pg_get_expr(p.polqual, p.polrelid)),
                                                pg_get_expr(p.polwithcheck, p.polrelid)), '; ')
                      FROM pg_policy AS p WHERE p.polrelid = c.oid) END),
               ('own trigger', 'replication can delete keys', 'simsql._ignore_applied 11 R conditional',
                (SELECT concat_ws(' ', t.tgfoid::regproc, t.tgtype, t.tgenabled,
                                  CASE WHEN t.tgqual IS NOT NULL THEN 'conditional' END)
                   FROM pg_trigger AS t WHERE t.tgrelid = c.oid AND t.tgname = 'simsql_keep_own')),
               ('replica identity', 'replica identity altered', 'f', c.relreplident::text),
               ('comment', 'comment altered', simsql._key_comment(index, n.number, n.lead_mask),
                obj_description(c.oid, 'pg_class'))
                UNION ALL
               SELECT 'foreign ' || f.kind, 'foreign ' || f.kind, NULL,
                      (SELECT string_agg(o.name, ', ') FROM simsql._foreign_objects(c.oid) AS o WHERE o.kind = f.kind)
                 FROM unnest('{trigger,rule,constraint,B-tree}'::text[]) AS f (kind))
               AS p (property, problem, expected, found)
         WHERE (c.oid IS NOT NULL OR p.property = 'existence')
           AND NOT (keys_only AND p.problem NOT IN ('key table missing', 'key table altered'));
    END IF;
    IF keys_only THEN
        RETURN;
    END IF;
    RETURN QUERY
    SELECT 'progress', c.oid::regclass::text, 'row-level security', 'policy altered', 'enabled',
           concat_ws(' ', CASE WHEN c.relrowsecurity THEN 'enabled' ELSE 'disabled' END,
                     (SELECT string_agg(p.polname, ', ') FROM pg_policy AS p WHERE p.polrelid = c.oid))
      FROM pg_class AS c WHERE c.oid = to_regclass('simsql.built_' || index.id) AND index.storage = 'tables';
    RETURN QUERY
    WITH object AS MATERIALIZED (SELECT o.* FROM simsql._objects() AS o WHERE o.index_id = index.id)
    SELECT lower(o.kind), o.name, 'owner', 'owner altered', expected_owner, o.owner::regrole::text FROM object AS o
     UNION ALL
    SELECT lower(o.kind), o.name, 'privileges', coalesce(p.problem, 'privilege granted to others'), NULL, p.statement
      FROM object AS o LEFT JOIN simsql._other_privileges() AS p ON p.object = o.name AND p.index_id = o.index_id;
    IF array_position(actual.column_name || actual.scope_columns, NULL) IS NOT NULL THEN
        RETURN;
    END IF;
    RETURN QUERY
    SELECT 'function', 'simsql.' || d.name, f.*
      FROM simsql._functions(index) AS d
      LEFT JOIN pg_proc AS p ON p.oid = to_regprocedure(format('simsql.%I%s', d.name, d.arguments))
      LEFT JOIN pg_language AS l ON l.oid = p.prolang
     CROSS JOIN LATERAL (VALUES
           ('existence', 'function missing', 'f', p.prokind::text),
           ('attributes', 'function altered',
            concat_ws(' ', 'RETURNS', substring(d.head FROM '^RETURNS (.*) LANGUAGE'),
                      'LANGUAGE', substring(d.head FROM 'LANGUAGE (\w+)'),
                      CASE WHEN d.head LIKE '%STABLE%' THEN 's' ELSE 'v' END,
                      CASE WHEN d.head LIKE '%PARALLEL SAFE%' THEN 's' ELSE 'u' END,
                      d.head LIKE '%SECURITY DEFINER%', d.head LIKE '%STRICT%', false),
            concat_ws(' ', 'RETURNS', CASE WHEN p.proretset THEN 'SETOF' END, p.prorettype::regtype, 'LANGUAGE', l.lanname,
                      p.provolatile, p.proparallel, p.prosecdef, p.proisstrict, p.proleakproof)),
           ('settings', 'function altered', d.settings::text, p.proconfig::text),
           ('body', 'function altered', d.body, p.prosrc)) AS f (property, problem, expected, found)
     WHERE p.oid IS NOT NULL OR f.property = 'existence';
    RETURN QUERY
    SELECT 'trigger', d.name, f.*
      FROM simsql._triggers(actual) AS d
      LEFT JOIN pg_trigger AS t ON t.tgrelid = index.table_id AND t.tgname = d.name
     CROSS JOIN LATERAL (VALUES
           ('existence', 'trigger missing', 'trigger', CASE WHEN t.oid IS NOT NULL THEN 'trigger' END),
           ('definition', 'trigger altered', d.definition, pg_get_triggerdef(t.oid)),
           ('firing', 'trigger not enabled ' || CASE d.fires WHEN 'A' THEN 'always' ELSE 'for replication' END,
            coalesce(d.fires, t.tgenabled)::text, t.tgenabled::text)) AS f (property, problem, expected, found)
     WHERE t.oid IS NOT NULL OR f.property = 'existence';
    RETURN QUERY
    SELECT 'B-tree', b.object, 'validity', b.problem, 'valid', b.found
      FROM (SELECT index.table_id, simsql._btree_columns(actual)
             UNION ALL
            SELECT to_regclass(format('simsql.keys_%s_%s', index.id, n.number)), simsql._key_columns(index)
              FROM simsql._permutations(index.blocks, index.lead, index.inner_blocks) AS n
             WHERE index.storage = 'tables') AS t (id, columns)
     CROSS JOIN LATERAL (
           SELECT coalesce(min(i.index::text), format('%s (%s)', t.id, simsql._name_list(t.columns))),
                  CASE WHEN count(i.index) = 0 THEN 'B-tree missing' ELSE 'B-tree invalid' END,
                  CASE WHEN bool_or(i.valid) THEN 'valid' WHEN count(i.index) > 0 THEN 'invalid' END
             FROM simsql._btrees(t.id, t.columns) AS i) AS b (object, problem, found)
     WHERE t.id IS NOT NULL;
END
$$;

-- The invalid B-trees that REINDEX CONCURRENTLY leaves if it fails, beside valid ones. It locks those that it works on.
CREATE OR REPLACE FUNCTION simsql._leftovers_of_reindex(index simsql.registry) RETURNS SETOF regclass
LANGUAGE sql STABLE
AS $$
    SELECT i.indexrelid::regclass
      FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid
     WHERE NOT i.indisvalid AND c.relname ~ '_cc(new|old)\d*$'
       AND CASE index.storage
           WHEN 'tables' THEN i.indrelid = ANY (simsql._key_table_ids(index))
           ELSE i.indrelid IN (SELECT t::oid FROM simsql._with_partitions(index.table_id) AS t)
                AND EXISTS (SELECT FROM simsql._expected_btrees(index) AS e WHERE simsql._is_btree_on(i.indexrelid, e.columns))
           END
       AND NOT EXISTS (SELECT FROM pg_locks AS l WHERE l.relation = i.indexrelid AND l.mode = 'ShareUpdateExclusiveLock'
                          AND l.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database()))
$$;

-- What differs from the inventory. Of a key table that is missing or altered, nothing else is of interest.
CREATE OR REPLACE FUNCTION simsql._inventory_faults(index simsql.registry, actual simsql.registry)
RETURNS simsql._fault[]
LANGUAGE sql STABLE
AS $$
    SELECT ARRAY(
        SELECT (f.problem, f.object, CASE WHEN f.kind = 'B-tree' THEN 'B-trees missing' ELSE 'damaged' END,
                CASE WHEN f.kind = 'B-tree' THEN 'slows' WHEN f.property = 'privileges' THEN 'grants to others'
                     ELSE 'may miss rows' END,
                NULL, NULL, simsql._call('repair', ARRAY[index.table_id::text]))::simsql._fault
          FROM (SELECT DISTINCT ON (d.problem, d.object) d.*
                  FROM (SELECT i.*, row_number() OVER () AS number,
                               bool_or(i.problem = 'key table altered') OVER (PARTITION BY i.object) AS is_lost
                          FROM simsql._inventory(index, actual) AS i
                         WHERE i.expected IS DISTINCT FROM i.found) AS d
                 WHERE NOT d.is_lost OR d.problem = 'key table altered'
                 ORDER BY d.problem, d.object, d.number) AS f
         ORDER BY f.number)
        || ARRAY(
        SELECT ('REINDEX unfinished', b::text, 'ready', 'slows', NULL, NULL,
                format('DROP INDEX CONCURRENTLY %s;', b))::simsql._fault
          FROM simsql._leftovers_of_reindex(actual) AS b ORDER BY b::text)
$$;

-- The objects of the installation, without those of indexes, and what each of them is. PostgreSQL writes views
-- differently from version to version.
CREATE OR REPLACE FUNCTION simsql._definitions() RETURNS TABLE (kind text, name text, owner oid, definition text)
LANGUAGE sql STABLE
AS $$
    SELECT o.kind, o.name, o.owner, md5(CASE o.kind
        WHEN 'ROUTINE' THEN (
            SELECT concat_ws(' ', p.prosrc, p.prosqlbody IS NULL, p.proconfig, p.prosecdef, p.provolatile, p.proparallel,
                             p.proisstrict, p.proleakproof, p.prorettype::regtype, p.proretset, p.prorows::bigint,
                             obj_description(p.oid, 'pg_proc'))
              FROM pg_proc AS p WHERE p.oid = to_regprocedure(o.name))
        WHEN 'TABLE' THEN (
            SELECT concat_ws(' ', c.relkind, c.relpersistence, obj_description(c.oid, 'pg_class'),
                             (SELECT string_agg(concat_ws(' ', a.attname, a.atttypid::regtype, a.attnotnull, a.attidentity,
                                                          a.attgenerated, pg_get_expr(d.adbin, d.adrelid)), ', '
                                                ORDER BY a.attname)
                                FROM pg_attribute AS a
                                LEFT JOIN pg_attrdef AS d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
                               WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped),
                             (SELECT string_agg(concat_ws(' ', t.tgname, t.tgfoid::regproc, t.tgtype), ', '
                                                ORDER BY t.tgname)
                                FROM pg_trigger AS t WHERE t.tgrelid = c.oid AND NOT t.tgisinternal),
                             (SELECT string_agg(w.rulename, ', ' ORDER BY w.rulename) FROM pg_rewrite AS w
                               WHERE w.ev_class = c.oid),
                             (SELECT string_agg(concat_ws(' ', k.conname, k.contype), ', ' ORDER BY k.conname)
                                FROM pg_constraint AS k WHERE k.conrelid = c.oid AND k.contype <> 'n'))
              FROM pg_class AS c WHERE c.oid = to_regclass(o.name))
        ELSE '' END)
      FROM simsql._objects() AS o WHERE o.index_id IS NULL AND o.name <> 'simsql._installed()'
$$;

-- What differs from the installation: see pin_search_path.sql, which creates simsql._installed.
CREATE OR REPLACE FUNCTION simsql._installation_faults() RETURNS TABLE (object text, problem text, remedy text)
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    expected_owner constant oid := (SELECT c.relowner FROM pg_class AS c WHERE c.oid = 'simsql.registry'::regclass);
BEGIN
    RETURN QUERY SELECT o.object, o.problem, o.statement FROM simsql._other_privileges() AS o WHERE o.index_id IS NULL;
    RETURN QUERY
    SELECT d.name, 'owner altered', format('ALTER %s %s OWNER TO %s;', d.kind, d.name, expected_owner::regrole)
      FROM simsql._objects() AS d
     WHERE d.index_id IS NULL AND d.name <> 'simsql._installed()' AND d.owner <> expected_owner
       -- An administrator may have created the schema for the role that installed the rest.
       AND NOT (d.kind = 'SCHEMA' AND d.owner IN (
           SELECT b.datdba FROM pg_database AS b WHERE b.datname = current_database()
            UNION ALL SELECT r.oid FROM pg_roles AS r WHERE r.rolsuper));
    -- A restore with --disable-triggers leaves it like this.
    RETURN QUERY
    SELECT t.tgrelid::regclass::text, 'trigger not enabled for replication',
           format('ALTER TABLE %s ENABLE REPLICA TRIGGER %I;', t.tgrelid::regclass, t.tgname)
      FROM pg_trigger AS t
     WHERE t.tgrelid IN ('simsql.registry'::regclass, to_regclass('simsql.schema_version'))
       AND t.tgname = 'simsql_keep_own' AND t.tgenabled <> 'R';
    RETURN QUERY
    SELECT coalesce(i.name, d.name),
           CASE WHEN d.name IS NULL THEN 'object missing' WHEN i.name IS NULL THEN 'foreign object'
                ELSE 'object altered' END,
           CASE WHEN i.name IS NULL THEN format('DROP %s %s;', d.kind, d.name)
                ELSE 'Create it again as simsql install --sql prints it.' END
      FROM jsonb_to_recordset(simsql._installed()) AS i (kind text, name text, definition text)
      FULL JOIN simsql._definitions() AS d USING (kind, name)
     WHERE i.definition IS DISTINCT FROM d.definition;
END
$$;
