-- verify: tells what is wrong with indexes.
--
-- A fault makes searches miss rows, fail or be slow, or may do so after a crash, or grants privileges to others. Superfluous
-- keys are not faults, and verify does not list them: see superfluous_keys.

-- An index with the current names of its table and columns; null replaces the name of a dropped one. If the numbers of the columns
-- are unknown, they are those with the registered names.
CREATE OR REPLACE FUNCTION simsql._as_named(index simsql.registry) RETURNS simsql.registry
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    numbers constant smallint[] := simsql._column_numbers(index.table_id, index.id);
    columns text[] := CASE WHEN numbers IS NOT NULL THEN ARRAY(
        SELECT a.attname::text
          FROM unnest(numbers) WITH ORDINALITY AS k (attnum, place)
          JOIN pg_attribute AS a ON a.attrelid = index.table_id AND a.attnum = k.attnum
         ORDER BY k.place) END;
BEGIN
    index.table_name := simsql._full_name(index.table_id);
    IF columns IS NULL THEN
        columns := ARRAY(SELECT a.attname::text
                           FROM unnest(index.column_name || index.scope_columns) WITH ORDINALITY AS n (name, place)
                           LEFT JOIN pg_attribute AS a
                             ON a.attrelid = index.table_id AND a.attname = n.name AND NOT a.attisdropped
                          ORDER BY n.place);
    END IF;
    index.column_name := columns[1];
    index.scope_columns := columns[2:];
    RETURN index;
END
$$;

-- Reports tables, columns, B-trees, triggers, functions and policies that differ from what create_index made, according to the
-- catalogue. If repair cannot mend a fault, its hint names another remedy.
CREATE OR REPLACE FUNCTION simsql._verify_objects(index simsql.registry) RETURNS SETOF simsql.finding
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    actual constant simsql.registry := simsql._as_named(index);
    complete constant boolean := array_position(actual.column_name || actual.scope_columns, NULL) IS NULL;
    repair constant text := format('SELECT * FROM simsql.repair(%L);', index.table_id);
    drop_it constant text := format('SELECT simsql.drop_index(%L, %L);', index.table_id, index.column_name);
    recreated constant regclass := simsql._recreated(index);
BEGIN
    IF recreated IS NOT NULL THEN
        RETURN NEXT (index.table_name, index.column_name, 'table re-created', index.table_name, NULL::bigint, true,
                     format('SELECT * FROM simsql.repair(%L);', recreated))::simsql.finding;
        RETURN;
    END IF;
    RETURN QUERY
    WITH generated AS MATERIALIZED (SELECT f.* FROM simsql._functions(index) AS f)
    SELECT index.table_name, index.column_name, p.problem, p.object, NULL::bigint, true, p.hint
      FROM (
        SELECT 'table dropped' AS problem, index.table_name AS object, drop_it AS hint
         WHERE actual.table_name IS NULL
        UNION ALL
        SELECT 'table renamed', actual.table_name, repair
         WHERE actual.table_name <> index.table_name
        UNION ALL
        SELECT 'table has a parent or a child', actual.table_name, format('Detach it, then: %s', repair)
         WHERE index.storage = 'tables'
           AND EXISTS (SELECT FROM pg_inherits AS i WHERE index.table_id IN (i.inhrelid, i.inhparent))
        UNION ALL
        SELECT CASE WHEN c.name IS NULL THEN 'column dropped' ELSE 'column renamed' END,
               quote_ident(coalesce(c.name, c.registered)),
               CASE WHEN c.name IS NULL THEN drop_it ELSE repair END
          FROM unnest(actual.column_name || actual.scope_columns, index.column_name || index.scope_columns)
               AS c (name, registered)
         WHERE actual.table_name IS NOT NULL AND c.name IS DISTINCT FROM c.registered
        UNION ALL
        SELECT 'column is no longer a stored bigint', quote_ident(actual.column_name), drop_it
          FROM pg_attribute AS a
         WHERE a.attrelid = index.table_id AND a.attname = actual.column_name
           AND (a.atttypid <> 'bigint'::regtype OR a.attgenerated = 'v')
        UNION ALL
        SELECT 'column type changed', quote_ident(a.name), CASE WHEN a.can_follow THEN repair ELSE drop_it END
          FROM simsql._altered_columns(actual) AS a
         WHERE a.name <> actual.column_name
        UNION ALL
        SELECT 'not ready', actual.table_name, simsql._build_call(actual)
         WHERE actual.table_name IS NOT NULL AND NOT index.ready
        UNION ALL
        SELECT CASE WHEN t.oid IS NULL THEN 'trigger missing'
                    WHEN pg_get_triggerdef(t.oid) <> d.definition THEN 'trigger altered'
                    WHEN d.fires = 'A' THEN 'trigger not enabled always'
                    ELSE 'trigger not enabled for replication' END,
               d.name, repair
          FROM simsql._storage_triggers(actual) AS d
          LEFT JOIN pg_trigger AS t ON t.tgrelid = index.table_id AND t.tgname = d.name
         WHERE complete
           AND (t.oid IS NULL OR pg_get_triggerdef(t.oid) <> d.definition OR t.tgenabled <> d.fires)
        UNION ALL
        SELECT CASE WHEN p.oid IS NULL THEN 'function missing' ELSE 'function altered' END, 'simsql.' || d.name, repair
          FROM generated AS d
          LEFT JOIN pg_proc AS p ON p.oid = to_regprocedure(format('simsql.%I%s', d.name, d.arguments))
         WHERE complete
           AND (p.oid IS NULL OR p.prosrc <> d.body OR p.proconfig IS DISTINCT FROM d.settings
                OR p.prosecdef <> (d.head LIKE '%SECURITY DEFINER%')
                OR p.provolatile <> CASE WHEN d.head LIKE '%STABLE%' THEN 's' ELSE 'v' END)
        UNION ALL
        -- pg_restore --no-acl leaves it like this.
        SELECT 'function can be called by others', 'simsql.' || d.name, repair
          FROM generated AS d
         WHERE d.head LIKE '%SECURITY DEFINER%'
           AND EXISTS (SELECT simsql._other_callers(to_regprocedure(format('simsql.%I%s', d.name, d.arguments))))
        UNION ALL
        SELECT k.problem, k.object, repair
          FROM simsql._permutations(index.blocks, index.lead, index.inner_blocks) AS p
         CROSS JOIN LATERAL simsql._verify_key_table(actual, format('simsql.keys_%s_%s', index.id, p.number)) AS k
         WHERE actual.table_name IS NOT NULL AND index.storage = 'tables'
        UNION ALL
        SELECT b.problem, b.object, repair FROM simsql._verify_btrees(actual) AS b WHERE complete AND index.ready
        UNION ALL
        SELECT b.problem, b.object, repair
          FROM simsql._verify_btree(index.table_id, simsql._btree_columns(actual)) AS b
         WHERE complete) AS p;
END
$$;

CREATE OR REPLACE FUNCTION simsql._verify_key_table(index simsql.registry, keys text) RETURNS TABLE (problem text, object text)
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    class pg_class;
BEGIN
    SELECT c.* INTO class FROM pg_class AS c WHERE c.oid = to_regclass(keys);
    IF NOT FOUND THEN
        RETURN QUERY SELECT 'key table missing', keys;
        RETURN;
    END IF;
    -- Scope values are compared by the type and collation that they have in the user's table.
    IF class.relkind <> 'r' OR EXISTS (
        SELECT FROM (SELECT 'key' AS name, 'bigint'::regtype::oid AS type_id, 0::oid AS collation_id
                      UNION ALL
                     SELECT s.name, coalesce(simsql._scope_type(index.table_id, s.column_name), a.atttypid), u.attcollation
                       FROM simsql._scope_columns(index) AS s
                       LEFT JOIN pg_attribute AS u ON u.attrelid = index.table_id AND u.attname = s.column_name
                       LEFT JOIN pg_attribute AS a ON a.attrelid = class.oid AND a.attname = s.name) AS c
         WHERE NOT EXISTS (
               SELECT FROM pg_attribute AS a
                WHERE a.attrelid = class.oid AND a.attname = c.name AND a.atttypid = c.type_id AND a.attgenerated = ''
                  AND a.attcollation = coalesce(c.collation_id, a.attcollation)))
    THEN
        RETURN QUERY SELECT 'key table altered', keys;
        RETURN;
    END IF;
    IF class.relpersistence = 'u'
       AND (SELECT c.relpersistence FROM pg_class AS c WHERE c.oid = index.table_id) <> 'u'
    THEN
        RETURN QUERY SELECT 'key table unlogged', keys;
    END IF;
    -- Under another policy, readers would silently miss keys, or see keys that they may not.
    IF NOT class.relrowsecurity OR NOT has_table_privilege('public', class.oid, 'SELECT')
       OR (SELECT array_agg(format('%s %s %s %s', p.polname, p.polcmd, p.polpermissive, p.polroles))
             FROM pg_policy AS p WHERE p.polrelid = class.oid) IS DISTINCT FROM ARRAY['readers r t {0}']
    THEN
        RETURN QUERY SELECT 'policy altered', keys;
    END IF;
    RETURN QUERY SELECT b.* FROM simsql._verify_btree(class.oid, simsql._key_columns(index)) AS b;
END
$$;

CREATE OR REPLACE FUNCTION simsql._verify_btree(table_id regclass, column_names text[]) RETURNS TABLE (problem text, object text)
LANGUAGE sql STABLE
AS $$
    SELECT CASE WHEN b.index IS NULL THEN 'B-tree missing' ELSE 'B-tree invalid' END,
           coalesce(b.index::text, format('%s (%s)', table_id, simsql._name_list(column_names)))
      FROM (VALUES (1)) AS one
      LEFT JOIN simsql._btrees(table_id, column_names) AS b ON true
     WHERE NOT EXISTS (SELECT FROM simsql._btrees(table_id, column_names) AS any_of WHERE any_of.valid)
$$;

-- Compares the keys of one table with the rows, in one pass over both in the order of keys: hashing more than fits into
-- work_mem takes three times as long. A key is superfluous if it has no row, and so are all but one of equal keys.
CREATE OR REPLACE FUNCTION simsql._compare_keys(
    index simsql.registry, number integer, OUT missing bigint, OUT superfluous bigint)
LANGUAGE plpgsql STABLE
SET enable_hashjoin = off SET enable_hashagg = off SET jit = off
AS $$
BEGIN
    EXECUTE (
        SELECT format(
            'SELECT count(*) FILTER (WHERE k.key IS NULL), '
            'coalesce(sum(k.copies - (live.key IS NOT NULL)::integer), 0) '
            'FROM (SELECT %5$s, count(*) AS copies FROM simsql.keys_%1$s_%8$s GROUP BY %5$s) AS k FULL JOIN '
            '(SELECT DISTINCT %6$s%2$s AS key FROM ONLY %3$s AS t WHERE t.%4$I IS NOT NULL%7$s) AS live '
            'USING (%5$s)', index.id, simsql._permute(format('t.%I', index.column_name), p.lead_mask),
            index.table_name, index.column_name, simsql._name_list(simsql._key_columns(index)),
            simsql._for_scope(index, 't.%2$I AS %1$s, '), simsql._for_scope(index, ' AND t.%2$I IS NOT NULL') || ' AND ' || simsql._guard(index), p.number)
          FROM simsql._permutations(index.blocks, index.lead, index.inner_blocks) AS p WHERE p.number = _compare_keys.number)
       INTO missing, superfluous;
END
$$;

-- Reports the key tables that lack keys of rows.
CREATE OR REPLACE FUNCTION simsql._verify_keys(index simsql.registry) RETURNS SETOF simsql.finding
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    actual constant simsql.registry := simsql._as_named(index);
    permutation integer;
    keys text;
    missing bigint;
BEGIN
    PERFORM simsql._check_sees_all(index.table_id, 'verify');
    FOR permutation IN
        SELECT p.number FROM simsql._permutations(index.blocks, index.lead, index.inner_blocks) AS p ORDER BY p.number
    LOOP
        keys := format('simsql.keys_%s_%s', index.id, permutation);
        CONTINUE WHEN EXISTS (SELECT FROM simsql._verify_key_table(index, keys) AS k
                               WHERE k.problem IN ('key table missing', 'key table altered'));
        missing := (simsql._compare_keys(actual, permutation)).missing;
        IF missing > 0 THEN
            RETURN NEXT (index.table_name, index.column_name, 'keys missing', keys, missing, true,
                         format('SELECT * FROM simsql.repair(%L);', index.table_id))::simsql.finding;
        END IF;
    END LOOP;
END
$$;

-- STABLE: all its reads share one snapshot.
CREATE OR REPLACE FUNCTION simsql.verify(table_name regclass DEFAULT NULL, column_name text DEFAULT NULL)
RETURNS SETOF simsql.finding
LANGUAGE plpgsql STABLE ROWS 10
AS $$
DECLARE
    index simsql.registry;
    full_name constant text := simsql._full_name(table_name);
    findings simsql.finding[];
BEGIN
    FOR index IN
        SELECT r.* FROM simsql.registry AS r
         -- By name too: this finds the index of a table whose name another table has taken over.
         WHERE (verify.table_name IS NULL OR r.table_id = verify.table_name OR r.table_name = full_name)
           AND (verify.column_name IS NULL OR r.column_name = verify.column_name)
         ORDER BY r.id
    LOOP
        findings := ARRAY(SELECT v FROM simsql._verify_objects(index) AS v);
        RETURN QUERY SELECT * FROM unnest(findings);
        IF index.ready AND index.storage = 'tables' AND NOT EXISTS (
            SELECT FROM unnest(findings) AS f
             WHERE f.problem IN ('table dropped', 'table re-created', 'column dropped', 'column is no longer a stored bigint'))
        THEN
            RETURN QUERY SELECT * FROM simsql._verify_keys(index);
        END IF;
    END LOOP;
    IF NOT FOUND AND table_name IS NOT NULL THEN
        PERFORM simsql._index(table_name, column_name);
    END IF;
END
$$;

COMMENT ON FUNCTION simsql.verify(regclass, text) IS
    'list the faults of the indexes of one table or of all tables; no row means no fault';

CREATE OR REPLACE FUNCTION simsql.superfluous_keys(table_name regclass, column_name text DEFAULT NULL) RETURNS bigint
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    index constant simsql.registry := simsql._index(table_name, column_name);
BEGIN
    PERFORM simsql._check_sees_all(table_name, 'superfluous_keys');
    IF index.storage = 'expression' THEN
        RETURN 0;
    END IF;
    RETURN (SELECT sum(c.superfluous)
              FROM simsql._permutations(index.blocks, index.lead, index.inner_blocks) AS p
             CROSS JOIN LATERAL simsql._compare_keys(index, p.number) AS c);
END
$$;

COMMENT ON FUNCTION simsql.superfluous_keys(regclass, text) IS
    'number of keys that simsql.vacuum would remove: keys without a row, and all but one of equal keys. Reads the table and all keys';
