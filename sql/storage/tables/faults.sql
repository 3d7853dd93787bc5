-- The faults of triggers and key tables, and their repair.

-- A search reads the triggers, and whether the first key table is there and lasts as long as the table. The
-- inventory has the rest.
CREATE OR REPLACE FUNCTION simsql._tables_faults(
    index simsql.registry, actual simsql.registry, thorough boolean)
RETURNS simsql._fault[]
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    at constant text := format('%s(%I)', index.table_id, index.column_name);
    repair constant text := simsql._call('repair', ARRAY[index.table_id::text]);
    -- Its triggers and how they fire, in order; "!" stands for a trigger that never runs.
    prefix constant text := 'simsql_' || index.id || '_';
    firing constant text[] := ARRAY[prefix || 'column!', prefix || 'insertA', prefix || 'no_parent!',
                                    prefix || 'replicaR', prefix || 'updateA'];
    keys constant text := format('simsql.keys_%s_0', index.id);
    class constant regclass := to_regclass(keys);
    -- Than the one that create_index makes.
    has_other_policies constant boolean := class IS NOT NULL AND (
        SELECT array_agg((p.polname, p.polcmd, p.polpermissive, p.polroles)::text)
          FROM pg_policy AS p WHERE p.polrelid = class) IS DISTINCT FROM ARRAY['(readers,r,t,{0})'];
    faults simsql._fault[] := '{}';
BEGIN
    IF simsql._is_distributed(index.table_id) THEN
        faults := faults || ('table distributed', actual.table_name, 'table distributed', 'refuses',
                             format('table %s was distributed after its simhash index was created',
                                    index.table_id),
                             'Create it again:', simsql._create_again(index))::simsql._fault;
    END IF;
    -- DISABLE TRIGGER ALL disables even ENABLE ALWAYS triggers, and the ENABLE TRIGGER ALL that follows it in
    -- a restore does not make them ENABLE ALWAYS again. So this detects it. A trigger with a condition never
    -- runs, enabled or not.
    IF array_position(actual.column_name || actual.scope_columns, NULL) IS NULL
       AND firing <> ARRAY(
           SELECT t.tgname || CASE WHEN t.tgqual IS NULL THEN t.tgenabled::text ELSE '!' END
             FROM pg_trigger AS t
            WHERE t.tgrelid = index.table_id AND starts_with(t.tgname, prefix) ORDER BY t.tgname)
    THEN
        faults := faults || ARRAY(
            SELECT (CASE WHEN t.oid IS NULL THEN 'trigger missing'
                         WHEN s.has_other_condition THEN 'trigger altered'
                         WHEN d.fires = 'A' THEN 'trigger not enabled always'
                         ELSE 'trigger not enabled for replication' END,
                    d.name, 'triggers disabled',
                    'refuses',
                    format('triggers of the simhash index on %s have been disabled or dropped', at),
                    'It lacks rows that were written in the meantime:', repair)::simsql._fault
              FROM simsql._triggers(actual) AS d
              LEFT JOIN pg_trigger AS t ON t.tgrelid = index.table_id AND t.tgname = d.name
             CROSS JOIN LATERAL (SELECT (t.tgqual IS NULL) <> (d.fires IS NOT NULL)) AS s (has_other_condition)
             WHERE t.oid IS NULL OR s.has_other_condition OR t.tgenabled <> d.fires);
    END IF;
    -- The first key table stands for all.
    IF class IS NULL THEN
        faults := faults || ('key table missing', keys, 'damaged', 'refuses',
                             format('the table %s of the simhash index on %s is missing', keys, at),
                             'Build the index again:', repair)::simsql._fault;
    END IF;
    -- ALTER TABLE SET LOGGED leaves it unlogged: a crash would empty it but keep the rows.
    IF EXISTS (SELECT FROM pg_class AS k
                 JOIN pg_class AS t ON t.oid = index.table_id AND t.relpersistence <> 'u'
                WHERE k.oid = class AND k.relpersistence = 'u')
    THEN
        faults := faults || ('key table unlogged', keys, 'damaged', 'refuses',
                             format('table %s was set logged after its simhash index was created',
                                    index.table_id),
                             'Make its key tables logged too:', repair)::simsql._fault;
    END IF;
    -- Under other policies, readers would miss keys, or see keys that they may not.
    IF has_other_policies OR NOT (SELECT c.relrowsecurity FROM pg_class AS c WHERE c.oid = class)
       OR NOT has_table_privilege('public', class, 'SELECT')
    THEN
        faults := faults || ('policy altered', keys, 'damaged',
                             CASE WHEN row_security_active(class) AND has_other_policies
                                  THEN 'refuses' ELSE 'may miss rows' END,
                             format('the row-level security of %s has been altered', keys),
                             'Restore it:', repair)::simsql._fault;
    END IF;
    -- Writes through a parent table fire only the statement triggers of the parent.
    IF EXISTS (SELECT FROM pg_inherits AS i WHERE i.inhrelid = index.table_id)
       OR EXISTS (SELECT FROM pg_inherits AS i WHERE i.inhparent = index.table_id)
    THEN
        faults := faults || ('table has a parent or a child', actual.table_name,
                             'table has a parent or a child', 'refuses',
                             format('table %s became part of an inheritance tree after its simhash index was '
                                    'created', index.table_id),
                             'Rows written through another table are not indexed:',
                             'detach the table, then ' || repair)::simsql._fault;
    END IF;
    RETURN faults;
END
$$;

-- Keeps the caller's next statements from reading rows in the order of a B-tree if a collation of the scope has
-- changed. The caller has its own settings.
CREATE OR REPLACE FUNCTION simsql._avoid_changed_order(index simsql.registry) RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    IF EXISTS (SELECT FROM simsql._changed_collations(index.table_id, index.scope_columns)) THEN
        PERFORM set_config('enable_indexscan', 'off', true), set_config('enable_indexonlyscan', 'off', true);
    END IF;
END
$$;

-- Adds the keys that rows lack, and returns how many were missing in each table, and how many it has stored: something may
-- keep them away. The table is locked, or its triggers add the keys of all later rows. An unfinished build has already passed
-- some of them, so it starts over.
CREATE OR REPLACE FUNCTION simsql._add_missing_keys(index simsql.registry)
RETURNS TABLE (keys text, missing bigint, stored bigint)
LANGUAGE plpgsql
SET enable_hashjoin = off SET enable_nestloop = off SET enable_hashagg = off SET jit = off  -- as for _storage_compare
SET enable_indexscan = on SET enable_indexonlyscan = on
AS $$
BEGIN
    IF index.storage <> 'tables' THEN
        RETURN;
    ELSIF NOT index.ready THEN
        EXECUTE format('DELETE FROM simsql.built_%s', index.id);
        RETURN;
    END IF;
    PERFORM simsql._avoid_changed_order(index);
    RETURN QUERY EXECUTE 'WITH ' || simsql._for_key_tables(index, $sql$
        missing_{number} AS MATERIALIZED (
            SELECT {key_columns}
              FROM (SELECT DISTINCT {t_scope}{key} AS key FROM ONLY {table} AS t
                     WHERE t.{"column"} IS NOT NULL{in_a_scope} AND {guard}) AS live
             WHERE NOT EXISTS (SELECT FROM {keys} AS k WHERE k.key = live.key{in_scope})),
        stored_{number} AS (INSERT INTO {keys} ({key_columns}) SELECT {key_columns} FROM missing_{number} RETURNING 1)
        $sql$, format('t.%I', index.column_name), ', ',
        simsql._tables_parts(index) || jsonb_build_object('in_scope', simsql._for_scope(index, ' AND k.%1$s = live.%1$s')))
        || simsql._for_key_tables(
            index, $sql$SELECT {'keys'}, (SELECT count(*) FROM missing_{number}), (SELECT count(*) FROM stored_{number}) $sql$,
            'key', 'UNION ALL ');
END
$$;

-- Repairs them, and returns the index. If a key table is lost, this is another one, with new key tables.
CREATE OR REPLACE FUNCTION simsql._tables_mend(index simsql.registry, faults simsql._fault[])
RETURNS simsql.registry
LANGUAGE plpgsql
AS $$
DECLARE
    fault simsql._fault;
    statement text;
BEGIN
    -- Only the transaction that follows a table knows it by this index, so no older snapshot misses keys, and the
    -- key tables can keep their names, which subscribers know.
    IF 'table re-created' = ANY (ARRAY(SELECT f.problem FROM unnest(faults) AS f)) THEN
        PERFORM simsql._tables_create(index, filled => index.ready);
        PERFORM simsql._create_triggers(index);
        RETURN index;
    ELSIF EXISTS (SELECT FROM unnest(faults) AS f
                   WHERE f.problem IN ('key table missing', 'key table altered'))
    THEN
        RETURN simsql._renew(index);
    END IF;
    -- An unfinished build has already passed rows that were written without triggers, so it starts over.
    IF NOT index.ready AND simsql._stamp_problem(index) IS NOT NULL THEN
        EXECUTE format('DELETE FROM simsql.built_%s', index.id);
    END IF;
    -- First, since they may keep keys away.
    FOREACH statement IN ARRAY ARRAY(
        SELECT DISTINCT o.statement FROM unnest(faults) AS f
         CROSS JOIN LATERAL simsql._foreign_objects(CASE WHEN f.problem LIKE 'foreign %' THEN f.object::regclass END) AS o)
    LOOP
        EXECUTE statement;
    END LOOP;
    EXECUTE simsql._for_key_tables(index, $sql$
        INSERT INTO {keys} (key) SELECT NULL WHERE NOT EXISTS (SELECT FROM {keys} WHERE key IS NULL);
        $sql$, 'key', '');
    FOREACH fault IN ARRAY faults LOOP
        CASE fault.problem
        WHEN 'key table unlogged' THEN
            EXECUTE format('ALTER TABLE %s SET LOGGED', fault.object);
        WHEN 'policy altered' THEN
            PERFORM simsql._guard_keys(fault.object, index);
        WHEN 'policies changed' THEN
            PERFORM simsql._tables_mend(index, ARRAY(
                SELECT ('policy altered', format('simsql.keys_%s_%s', index.id, p.number),
                        NULL, NULL, NULL, NULL, NULL)::simsql._fault
                  FROM simsql._permutations(index.blocks, index.lead, index.inner_blocks) AS p));
        WHEN 'replica identity altered' THEN
            EXECUTE format('ALTER TABLE %s REPLICA IDENTITY FULL', fault.object);
        WHEN 'comment altered' THEN
            PERFORM simsql._comment_keys(index);
        WHEN 'replication can delete keys' THEN
            PERFORM simsql._keep_own(fault.object, 'DELETE');
        ELSE NULL;
        END CASE;
    END LOOP;
    IF EXISTS (SELECT FROM unnest(faults) AS f WHERE f.problem LIKE 'trigger %') THEN
        PERFORM simsql._create_triggers(index);
    END IF;
    RETURN index;
END
$$;

-- Gives an index new key tables, under a new id, and returns it. To a snapshot that is older than they are,
-- they are empty; but such a snapshot only knows the old id. An index in B-trees already has them. Drops what the old id
-- has. The table is locked exclusively.
CREATE OR REPLACE FUNCTION simsql._renew(index simsql.registry) RETURNS simsql.registry
LANGUAGE plpgsql
AS $$
DECLARE
    former constant simsql.registry := index;
    name text;
BEGIN
    WHILE index.id = former.id LOOP
        BEGIN
            UPDATE simsql.registry AS r SET id = DEFAULT, nonce = DEFAULT, storage = 'tables' WHERE r.id = former.id
            RETURNING r.* INTO index;
        EXCEPTION WHEN unique_violation THEN NULL;  -- as in _register
        END;
    END LOOP;
    PERFORM simsql._drop_key_tables(index.id);
    IF former.storage = 'tables' THEN
        PERFORM simsql._tables_create(index, filled => index.ready);
    ELSE
        FOR name IN SELECT c.relname FROM pg_class AS c
                     WHERE c.relnamespace = 'simsql'::regnamespace AND c.relkind IN ('r', 'i')
                       AND starts_with(c.relname::text, format('keys_%s_', former.id))
        LOOP
            EXECUTE format('ALTER TABLE simsql.%I RENAME TO %I', name,
                           regexp_replace(name, '^keys_\d+', 'keys_' || index.id));
        END LOOP;
        PERFORM simsql._guard_keys(format('simsql.keys_%s_%s', index.id, p.number), index)
           FROM simsql._permutations(index.blocks, index.lead, index.inner_blocks) AS p;
        PERFORM simsql._comment_keys(index);
    END IF;
    PERFORM simsql._drop_objects(former);
    PERFORM simsql._create_functions(index);
    PERFORM simsql._create_triggers(index);
    PERFORM simsql._stamp(index.id);
    RETURN index;
END
$$;

-- Compares the key tables with the rows, each in one pass over both in the order of keys: hashing more than
-- fits into work_mem takes three times as long. A key is superfluous if it has no row, and so are all but one
-- of equal keys. It leaves out the `damaged` tables. B-trees give rows in a wrong order once a collation has changed.
CREATE OR REPLACE FUNCTION simsql._storage_compare(index simsql.registry, damaged text[] DEFAULT '{}')
RETURNS TABLE (keys text, missing bigint, superfluous bigint)
LANGUAGE plpgsql STABLE
SET enable_hashjoin = off SET enable_hashagg = off SET jit = off
SET enable_indexscan = on SET enable_indexonlyscan = on
AS $$
DECLARE
    statement constant text := simsql._for_key_tables(index, $sql$
        SELECT {'keys'}, count(*) FILTER (WHERE k.key IS NULL),
               coalesce(sum(k.copies - (live.key IS NOT NULL)::integer), 0)::bigint
          FROM (SELECT {key_columns}, count(*) AS copies FROM {keys} WHERE key IS NOT NULL
                 GROUP BY {key_columns}) AS k
          FULL JOIN (SELECT DISTINCT {t_scope}{key} AS key FROM ONLY {table} AS t
                      WHERE t.{"column"} IS NOT NULL{in_a_scope} AND {guard}) AS live USING ({key_columns})
        $sql$, format('t.%I', index.column_name), 'UNION ALL', simsql._tables_parts(index), damaged);
BEGIN
    IF index.storage = 'tables' AND statement IS NOT NULL THEN
        PERFORM simsql._check_sees_all(index.table_id, 'verify');
        PERFORM simsql._avoid_changed_order(index);
        RETURN QUERY EXECUTE statement;
    END IF;
END
$$;

-- The keys that are missing for a sample of the rows: those on about a thousand pages, which are all pages of a
-- table of 8 MB. Each key table has a sample of its own.
CREATE OR REPLACE FUNCTION simsql._storage_sample(index simsql.registry, damaged text[])
RETURNS TABLE (keys text, missing bigint)
LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET jit = off
AS $$
DECLARE
    pages constant double precision :=
        pg_relation_size(index.table_id) / current_setting('block_size')::double precision;
    statement constant text := simsql._for_key_tables(index, $sql$
        SELECT {'keys'}, count(*)
          FROM (SELECT DISTINCT {t_scope}{key} AS key FROM ONLY {table} AS t TABLESAMPLE system ({percent})
                 WHERE t.{"column"} IS NOT NULL{in_a_scope} AND {guard}) AS live
         WHERE NOT EXISTS (SELECT FROM {keys} AS k WHERE k.key = live.key{in_scope})
        $sql$, format('t.%I', index.column_name), 'UNION ALL',
        simsql._tables_parts(index) || jsonb_build_object(
            'percent', least(100, 100 * 1000 / greatest(pages, 1)),
            'in_scope', simsql._for_scope(index, ' AND k.%1$s = live.%1$s')), damaged);
BEGIN
    -- It looks keys up in B-trees.
    IF index.storage = 'tables' AND statement IS NOT NULL
       AND NOT EXISTS (SELECT FROM simsql._changed_collations(index.table_id, index.scope_columns))
    THEN
        PERFORM simsql._check_sees_all(index.table_id, 'verify');
        RETURN QUERY EXECUTE statement;
    END IF;
END
$$;
