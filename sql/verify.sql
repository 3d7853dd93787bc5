-- verify: says what is wrong with indexes. repair: mends it.
--
-- A fault is what makes searches miss rows, fail or be slow, or may do so after a crash, and what gives rights to others.
-- Superfluous keys are not faults, and verify does not list them: see superfluous_keys.

-- An index with the names that its table and its columns have now; those are null where there is none. The
-- columns are those that the index's trigger knows by number, or else those of the registered names.
CREATE OR REPLACE FUNCTION simsql._as_named(index simsql.registry) RETURNS simsql.registry
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    columns text[] := (
        SELECT ARRAY(SELECT a.attname::text
                       FROM unnest(t.tgattr) WITH ORDINALITY AS k (attnum, place)
                       JOIN pg_attribute AS a ON a.attrelid = t.tgrelid AND a.attnum = k.attnum
                      ORDER BY k.place)
          FROM pg_trigger AS t
         WHERE t.tgrelid = index.table_id AND t.tgname = format('simsql_%s_column', index.id));
BEGIN
    index.table_name := (SELECT format('%I.%I', n.nspname, c.relname)
                           FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
                          WHERE c.oid = index.table_id);
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

-- What the catalogue tells: tables, columns, B-trees, triggers, functions and policies that are not as
-- create_index made them. What repair cannot mend comes with another hint than to call it.
CREATE OR REPLACE FUNCTION simsql._verify_objects(index simsql.registry) RETURNS SETOF simsql.finding
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    actual constant simsql.registry := simsql._as_named(index);
    complete constant boolean := array_position(actual.column_name || actual.scope_columns, NULL) IS NULL;
    repair constant text := format('SELECT * FROM simsql.repair(%L);', index.table_id);
    drop_it constant text := format('SELECT simsql.drop_index(%L, %L);', index.table_id, index.column_name);
BEGIN
    RETURN QUERY
    SELECT index.table_name, index.column_name, p.problem, p.object, NULL::bigint, true, p.hint
      FROM (
        SELECT 'table dropped' AS problem, index.table_name AS object, drop_it AS hint
         WHERE actual.table_name IS NULL
        UNION ALL
        SELECT 'table renamed', actual.table_name, repair
         WHERE actual.table_name <> index.table_name
        UNION ALL
        SELECT 'table has a parent or a child', actual.table_name, format('Detach it, then: %s', repair)
         WHERE EXISTS (SELECT FROM pg_inherits AS i WHERE index.table_id IN (i.inhrelid, i.inhparent))
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
        SELECT 'not ready', actual.table_name, simsql._build_call(actual)
         WHERE actual.table_name IS NOT NULL AND NOT index.ready
        UNION ALL
        SELECT CASE WHEN t.oid IS NULL THEN 'trigger missing'
                    WHEN pg_get_triggerdef(t.oid) <> d.definition THEN 'trigger altered'
                    WHEN d.fires = 'A' THEN 'trigger not enabled always'
                    ELSE 'trigger not enabled for replication' END,
               d.name, repair
          FROM simsql._index_triggers(actual) AS d
          LEFT JOIN pg_trigger AS t ON t.tgrelid = index.table_id AND t.tgname = d.name
         WHERE complete
           AND (t.oid IS NULL OR pg_get_triggerdef(t.oid) <> d.definition OR t.tgenabled <> d.fires)
        UNION ALL
        SELECT CASE WHEN p.oid IS NULL THEN 'function missing' ELSE 'function altered' END, 'simsql.' || d.name, repair
          FROM simsql._functions(index) AS d
          LEFT JOIN pg_proc AS p ON p.oid = to_regprocedure(format('simsql.%I%s', d.name, d.arguments))
         WHERE complete
           AND (p.oid IS NULL OR p.prosrc <> d.body OR p.proconfig IS DISTINCT FROM d.settings
                OR p.prosecdef <> (d.head LIKE '%SECURITY DEFINER%')
                OR p.provolatile <> CASE WHEN d.head LIKE '%STABLE%' THEN 's' ELSE 'v' END)
        UNION ALL
        -- As after a restore by pg_restore --no-acl.
        SELECT 'function can be called by others', 'simsql.' || d.name, repair
          FROM simsql._functions(index) AS d
         WHERE d.head LIKE '%SECURITY DEFINER%'
           AND EXISTS (SELECT simsql._other_callers(to_regprocedure(format('simsql.%I%s', d.name, d.arguments))))
        UNION ALL
        SELECT k.problem, k.object, repair
          FROM simsql._permutations(index.blocks, index.lead, index.inner_blocks) AS p
         CROSS JOIN LATERAL simsql._verify_key_table(actual, format('simsql.keys_%s_%s', index.id, p.number)) AS k
         WHERE actual.table_name IS NOT NULL
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
    -- Values are compared as what they are in the user's table.
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
    -- Under another policy readers would miss keys in silence, or see what they may not.
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
           coalesce(b.index::text, format('%s (%s)', $1, simsql._name_list($2)))
      FROM (VALUES (1)) AS one
      LEFT JOIN simsql._btrees($1, $2) AS b ON true
     WHERE NOT EXISTS (SELECT FROM simsql._btrees($1, $2) AS any_of WHERE any_of.valid)
$$;

-- Compares the keys of one table with the rows, in one pass over both in the order of keys: hashing more
-- than fits into work_mem takes three times as long. Superfluous are keys without a row, and equal keys but for one.
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
            simsql._for_scope(index, 't.%2$I AS %1$s, '), simsql._for_scope(index, ' AND t.%2$I IS NOT NULL'), p.number)
          FROM simsql._permutations(index.blocks, index.lead, index.inner_blocks) AS p WHERE p.number = $2)
       INTO missing, superfluous;
END
$$;

-- The key tables that lack keys of rows.
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

-- One snapshot: whoever calls it, it only reads.
CREATE OR REPLACE FUNCTION simsql.verify(table_name regclass DEFAULT NULL, column_name text DEFAULT NULL)
RETURNS SETOF simsql.finding
LANGUAGE plpgsql STABLE ROWS 10
AS $$
DECLARE
    index simsql.registry;
    full_name constant text := (SELECT format('%I.%I', n.nspname, c.relname)
                                  FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
                                 WHERE c.oid = $1);
    findings simsql.finding[];
BEGIN
    FOR index IN
        SELECT r.* FROM simsql.registry AS r
         -- By name too: the index of a table whose name another one has got.
         WHERE ($1 IS NULL OR r.table_id = $1 OR r.table_name = full_name) AND ($2 IS NULL OR r.column_name = $2)
         ORDER BY r.id
    LOOP
        findings := ARRAY(SELECT v FROM simsql._verify_objects(index) AS v);
        RETURN QUERY SELECT * FROM unnest(findings);
        IF index.ready AND NOT EXISTS (
            SELECT FROM unnest(findings) AS f
             WHERE f.problem IN ('table dropped', 'column dropped', 'column is no longer a stored bigint'))
        THEN
            RETURN QUERY SELECT * FROM simsql._verify_keys(index);
        END IF;
    END LOOP;
    IF NOT FOUND AND $1 IS NOT NULL THEN
        PERFORM simsql._index($1, $2);
    END IF;
END
$$;

COMMENT ON FUNCTION simsql.verify(regclass, text) IS
    'what is wrong with the indexes of a table, or with all; no row if nothing is';

CREATE OR REPLACE FUNCTION simsql.superfluous_keys(table_name regclass, column_name text DEFAULT NULL) RETURNS bigint
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    index constant simsql.registry := simsql._index($1, $2);
BEGIN
    PERFORM simsql._check_sees_all($1, 'superfluous_keys');
    RETURN (SELECT sum(c.superfluous)
              FROM simsql._permutations(index.blocks, index.lead, index.inner_blocks) AS p
             CROSS JOIN LATERAL simsql._compare_keys(index, p.number) AS c);
END
$$;

COMMENT ON FUNCTION simsql.superfluous_keys(regclass, text) IS
    'how many keys simsql.vacuum would remove: those without a row, and those stored again. Reads the table and all keys';

-- Lets the registered names of all indexes of a table follow the table and their columns. Columns may have
-- swapped names, so the old ones are taken away first; no column has 64 characters.
CREATE OR REPLACE FUNCTION simsql._follow_names(table_name regclass) RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    renamed constant simsql.registry[] := ARRAY(
        SELECT a FROM simsql.registry AS r CROSS JOIN LATERAL simsql._as_named(r) AS a
         WHERE r.table_id = $1 AND array_position(a.column_name || a.scope_columns, NULL) IS NULL AND a IS DISTINCT FROM r);
BEGIN
    UPDATE simsql.registry AS r SET column_name = lpad(r.id::text, 64)
      FROM unnest(renamed) AS a WHERE r.id = a.id;
    UPDATE simsql.registry AS r SET table_name = a.table_name, column_name = a.column_name, scope_columns = a.scope_columns
      FROM unnest(renamed) AS a WHERE r.id = a.id;
END
$$;

-- Drops what is left of an index and creates it anew under another id: a snapshot that is older than its new key
-- tables would see them as empty, and finds the old id's gone.
CREATE OR REPLACE FUNCTION simsql._renew(index simsql.registry) RETURNS simsql.registry
LANGUAGE plpgsql
AS $$
DECLARE
    renewed simsql.registry;
BEGIN
    PERFORM simsql._drop_objects(index);
    INSERT INTO simsql.registry AS r (table_id, table_name, column_name, distance, blocks, lead, inner_blocks,
                                      recipe, scope_columns, ready)
    VALUES (index.table_id, index.table_name, index.column_name, index.distance, index.blocks, index.lead,
            index.inner_blocks, index.recipe, index.scope_columns, index.ready)
    RETURNING r.* INTO renewed;
    PERFORM simsql._create_keys(renewed, filled => renewed.ready);
    PERFORM simsql._create_functions(renewed);
    PERFORM simsql._create_triggers(renewed);
    RETURN renewed;
END
$$;

-- Mends what _verify_objects has found, but for names and lost key tables.
CREATE OR REPLACE FUNCTION simsql._mend_objects(index simsql.registry, findings simsql.finding[]) RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    finding simsql.finding;
    policy name;
BEGIN
    FOREACH finding IN ARRAY findings LOOP
        CASE finding.problem
        WHEN 'key table unlogged' THEN
            EXECUTE format('ALTER TABLE %s SET LOGGED', finding.object);
        WHEN 'policy altered' THEN
            FOR policy IN SELECT p.polname FROM pg_policy AS p WHERE p.polrelid = finding.object::regclass LOOP
                EXECUTE format('DROP POLICY %I ON %s', policy, finding.object);
            END LOOP;
            PERFORM simsql._guard_keys(finding.object, index);
        WHEN 'B-tree invalid' THEN
            EXECUTE format('REINDEX INDEX %s', finding.object);
        WHEN 'B-tree missing' THEN
            EXECUTE format('CREATE INDEX ON %s', finding.object);
        ELSE NULL;
        END CASE;
    END LOOP;
    IF EXISTS (SELECT FROM unnest(findings) AS f WHERE f.problem LIKE 'function %') THEN
        PERFORM simsql._create_functions(index);
    END IF;
    IF EXISTS (SELECT FROM unnest(findings) AS f WHERE f.problem LIKE 'trigger %') THEN
        PERFORM simsql._create_triggers(index);
        -- An unfinished build has passed rows that were written meanwhile: it begins again.
        UPDATE simsql.registry AS r SET built_to = NULL, built_scope = NULL WHERE r.id = index.id;
    END IF;
END
$$;

-- Adds the keys that rows lack, and tells how many they were.
CREATE OR REPLACE FUNCTION simsql._mend_keys(index simsql.registry) RETURNS SETOF simsql.finding
LANGUAGE plpgsql
SET enable_hashjoin = off SET enable_hashagg = off SET jit = off
AS $$
DECLARE
    permutation record;
    keys text;
    added bigint;
BEGIN
    FOR permutation IN SELECT * FROM simsql._permutations(index.blocks, index.lead, index.inner_blocks) LOOP
        keys := format('simsql.keys_%s_%s', index.id, permutation.number);
        EXECUTE format(
            'INSERT INTO %1$s (%5$s) SELECT %5$s '
            'FROM (SELECT DISTINCT %6$s%2$s AS key FROM ONLY %3$s AS t WHERE t.%4$I IS NOT NULL%7$s) AS live '
            'WHERE NOT EXISTS (SELECT FROM %1$s AS k WHERE k.key = live.key%8$s)',
            keys, simsql._permute(format('t.%I', index.column_name), permutation.lead_mask), index.table_name,
            index.column_name, simsql._name_list(simsql._key_columns(index)), simsql._for_scope(index, 't.%2$I AS %1$s, '),
            simsql._for_scope(index, ' AND t.%2$I IS NOT NULL'), simsql._for_scope(index, ' AND k.%1$s = live.%1$s'));
        GET DIAGNOSTICS added := ROW_COUNT;
        IF added > 0 THEN
            RETURN NEXT (index.table_name, index.column_name, 'keys missing', keys, added, true, NULL)::simsql.finding;
        END IF;
    END LOOP;
END
$$;

-- Gives the objects of an index to the owner that its others have: whoever repairs need not be its owner.
CREATE OR REPLACE FUNCTION simsql._give(index simsql.registry, owner oid) RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    object text;
BEGIN
    FOR object IN
        SELECT 'TABLE ' || c.oid::regclass FROM pg_class AS c
         WHERE c.relnamespace = 'simsql'::regnamespace AND c.relname ~ format('^keys_%s_\d+$', index.id)
           AND c.relkind = 'r' AND c.relowner <> owner
        UNION ALL
        SELECT 'FUNCTION ' || p.oid::regprocedure FROM simsql._functions(index) AS f
          JOIN pg_proc AS p ON p.oid = to_regprocedure(format('simsql.%I%s', f.name, f.arguments))
         WHERE p.proowner <> owner
    LOOP
        EXECUTE format('ALTER %s OWNER TO %s', object, owner::regrole);
    END LOOP;
END
$$;

CREATE OR REPLACE FUNCTION simsql.repair(table_name regclass) RETURNS SETOF simsql.finding
LANGUAGE plpgsql ROWS 10
AS $$
DECLARE
    index simsql.registry;
    owner oid;
    lost boolean;
    finding simsql.finding;
    findings simsql.finding[];
BEGIN
    PERFORM simsql._take_turn($1, 'repair');
    IF NOT EXISTS (SELECT FROM simsql.registry AS r WHERE r.table_id = $1) THEN
        PERFORM simsql._index($1, NULL);
    END IF;
    -- Writers wait, as for create_index; where an index has to be made anew, drop_index keeps readers out too.
    lost := EXISTS (
        SELECT FROM simsql.registry AS r
         CROSS JOIN LATERAL simsql._permutations(r.blocks, r.lead, r.inner_blocks) AS p
         CROSS JOIN LATERAL simsql._verify_key_table(simsql._as_named(r), format('simsql.keys_%s_%s', r.id, p.number)) AS k
         WHERE r.table_id = $1 AND k.problem IN ('key table missing', 'key table altered'));
    EXECUTE format('LOCK TABLE ONLY %s IN %s MODE', $1,
                   CASE WHEN lost THEN 'ACCESS EXCLUSIVE' ELSE 'SHARE ROW EXCLUSIVE' END);
    FOR index IN SELECT r.* FROM simsql.registry AS r WHERE r.table_id = $1 ORDER BY r.id LOOP
        FOR finding IN SELECT v.* FROM simsql._verify_objects(index) AS v LOOP
            IF finding.problem IN ('column dropped', 'column is no longer a stored bigint') THEN
                RAISE EXCEPTION 'simsql.repair: column % of %: %', finding.object, $1, finding.problem
                    USING ERRCODE = 'object_not_in_prerequisite_state', HINT = finding.hint;
            ELSIF finding.problem <> 'not ready' THEN
                finding.hint := NULL;
                RETURN NEXT finding;
            END IF;
        END LOOP;
    END LOOP;
    PERFORM simsql._follow_names($1);
    FOR index IN SELECT r.* FROM simsql.registry AS r WHERE r.table_id = $1 ORDER BY r.id LOOP
        PERFORM simsql._check_indexable($1, index.column_name, index.scope_columns, 'repair');
        PERFORM simsql._check_upkeep(index, 'repair');
        owner := coalesce(
            (SELECT c.relowner FROM pg_class AS c
              WHERE c.relnamespace = 'simsql'::regnamespace AND c.relname ~ format('^keys_%s_\d+$', index.id) LIMIT 1),
            (SELECT c.relowner FROM pg_class AS c WHERE c.oid = $1));
        findings := ARRAY(SELECT v FROM simsql._verify_objects(index) AS v);
        IF EXISTS (SELECT FROM unnest(findings) AS f WHERE f.problem IN ('key table missing', 'key table altered')) THEN
            index := simsql._renew(index);
            findings := ARRAY(SELECT v FROM simsql._verify_objects(index) AS v);
        END IF;
        PERFORM simsql._mend_objects(index, findings);
        IF index.ready THEN
            RETURN QUERY SELECT * FROM simsql._mend_keys(index);
        END IF;
        PERFORM simsql._give(index, owner);
        SELECT v.* INTO finding FROM simsql._verify_objects(index) AS v WHERE v.problem <> 'not ready';
        IF FOUND THEN
            RAISE EXCEPTION 'simsql.repair: % is beyond repair: %', finding.object, finding.problem
                USING ERRCODE = 'object_not_in_prerequisite_state',
                      HINT = format('Create the index anew: SELECT simsql.drop_index(%1$L, %2$L); '
                                    'SELECT simsql.create_index(%1$L, %2$L);', $1, index.column_name);
        END IF;
    END LOOP;
END
$$;

COMMENT ON FUNCTION simsql.repair(regclass) IS
    'mend what simsql.verify finds, in this transaction; writers wait. Returns what was mended.';
