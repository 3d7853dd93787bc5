-- repair: mends what verify finds.

-- Updates the registered names of a table and its indexed columns. Columns may have swapped names, so the old names are
-- replaced first, by names of 64 characters, which no column can have.
CREATE OR REPLACE FUNCTION simsql._follow_names(table_name regclass) RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    renamed constant simsql.registry[] := ARRAY(
        SELECT a FROM simsql.registry AS r CROSS JOIN LATERAL simsql._as_named(r) AS a
         WHERE r.table_id = _follow_names.table_name AND array_position(a.column_name || a.scope_columns, NULL) IS NULL
           AND a IS DISTINCT FROM r);
BEGIN
    UPDATE simsql.registry AS r SET column_name = lpad(r.id::text, 64)
      FROM unnest(renamed) AS a WHERE r.id = a.id;
    UPDATE simsql.registry AS r SET table_name = a.table_name, column_name = a.column_name, scope_columns = a.scope_columns
      FROM unnest(renamed) AS a WHERE r.id = a.id;
END
$$;

-- Drops the remains of an index and creates it under a new id. A snapshot that is older than the new key tables would see them
-- as empty, but it finds the old id's tables gone.
CREATE OR REPLACE FUNCTION simsql._renew(index simsql.registry) RETURNS simsql.registry
LANGUAGE plpgsql
AS $$
DECLARE
    renewed simsql.registry;
BEGIN
    PERFORM simsql._drop_objects(index);
    INSERT INTO simsql.registry AS r (table_id, table_name, column_name, distance, blocks, lead, inner_blocks,
                                      recipe, scope_columns, scope_types, ready, candidate_shares)
    VALUES (index.table_id, index.table_name, index.column_name, index.distance, index.blocks, index.lead,
            index.inner_blocks, index.recipe, index.scope_columns, index.scope_types, index.ready, index.candidate_shares)
    RETURNING r.* INTO renewed;
    PERFORM simsql._create_keys(renewed, filled => renewed.ready);
    PERFORM simsql._create_functions(renewed);
    PERFORM simsql._create_triggers(renewed);
    RETURN renewed;
END
$$;

-- Mends what _verify_objects finds, except for names and lost key tables.
CREATE OR REPLACE FUNCTION simsql._mend_objects(index simsql.registry, findings simsql.finding[]) RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    finding simsql.finding;
    policy name;
    btree record;
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
            -- That of a partitioned table cannot be reindexed inside a transaction.
            IF (SELECT c.relkind FROM pg_class AS c WHERE c.oid = finding.object::regclass) = 'i' THEN
                EXECUTE format('REINDEX INDEX %s', finding.object);
            ELSE
                PERFORM simsql._create_plain_btree(index);
            END IF;
        WHEN 'B-tree missing' THEN
            EXECUTE format('CREATE INDEX ON %s', finding.object);
        ELSE NULL;
        END CASE;
    END LOOP;
    IF EXISTS (SELECT FROM unnest(findings) AS f WHERE f.problem IN ('B-tree missing on a shard', 'B-tree invalid on a shard')) THEN
        -- It may be the user's, and serve a constraint.
        EXECUTE format('CREATE INDEX ON %s (%s)', index.table_name, simsql._name_list(simsql._btree_columns(index)));
    END IF;
    IF EXISTS (SELECT FROM unnest(findings) AS f WHERE f.problem LIKE '%search B-tree%') THEN
        -- Citus drops what its shards have kept of a B-tree only if it exists here.
        FOR btree IN
            SELECT f.* FROM simsql._faulty_btrees(index) AS f WHERE f.btree IS NULL AND simsql._is_distributed(index.table_id)
        LOOP
            PERFORM simsql._execute_here(simsql._create_btree(index.table_name, btree.name, btree.columns));
            EXECUTE format('DROP INDEX IF EXISTS %s', simsql._index_named(index.table_id, btree.name));
        END LOOP;
        PERFORM simsql._create_btrees(index);
    END IF;
    IF EXISTS (SELECT FROM unnest(findings) AS f WHERE f.problem LIKE 'function %') THEN
        PERFORM simsql._create_functions(index);
    END IF;
    IF EXISTS (SELECT FROM unnest(findings) AS f WHERE f.problem LIKE 'trigger %') THEN
        PERFORM simsql._create_triggers(index);
        -- An unfinished build has already passed rows that were written without triggers, so it starts over.
        IF to_regclass('simsql.built_' || index.id) IS NOT NULL THEN
            EXECUTE format('DELETE FROM simsql.built_%s', index.id);
        END IF;
    END IF;
END
$$;

-- Adds missing keys and reports how many there were.
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
            simsql._for_scope(index, ' AND t.%2$I IS NOT NULL') || ' AND ' || simsql._guard(index),
            simsql._for_scope(index, ' AND k.%1$s = live.%1$s'));
        GET DIAGNOSTICS added := ROW_COUNT;
        IF added > 0 THEN
            RETURN NEXT (index.table_name, index.column_name, 'keys missing', keys, added, true, NULL)::simsql.finding;
        END IF;
    END LOOP;
END
$$;

-- The owner of an index: that of a key table or, without key tables, of the search function; else that of the table.
CREATE OR REPLACE FUNCTION simsql._owner(index simsql.registry) RETURNS oid
LANGUAGE sql STABLE
AS $$
    SELECT coalesce(
        (SELECT c.relowner FROM pg_class AS c
          WHERE c.relnamespace = 'simsql'::regnamespace AND c.relname ~ format('^keys_%s_\d+$', index.id) LIMIT 1),
        (SELECT p.proowner FROM pg_proc AS p
          WHERE p.pronamespace = 'simsql'::regnamespace AND p.proname = 'search_' || index.id LIMIT 1),
        (SELECT c.relowner FROM pg_class AS c WHERE c.oid = index.table_id))
$$;

-- Gives all objects of an index to one owner: the role that repairs need not be the owner.
CREATE OR REPLACE FUNCTION simsql._give(index simsql.registry, owner oid) RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    object text;
BEGIN
    FOR object IN
        SELECT 'TABLE ' || c.oid::regclass FROM pg_class AS c
         WHERE c.relnamespace = 'simsql'::regnamespace AND c.relname ~ format('^(keys_%1$s_\d+|built_%1$s)$', index.id)
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
    PERFORM simsql._take_turn(table_name, 'repair');
    RETURN QUERY
    SELECT r.table_name, r.column_name, 'table re-created', r.table_name, NULL::bigint, true, NULL
      FROM simsql.registry AS r WHERE simsql._recreated(r) = repair.table_name;
    PERFORM simsql._follow_table(table_name);
    IF NOT EXISTS (SELECT FROM simsql.registry AS r WHERE r.table_id = repair.table_name) THEN
        PERFORM simsql._index(table_name, NULL);
    END IF;
    -- Writers wait, as for create_index. If an index has to be re-created, readers wait too, because its objects are dropped.
    lost := EXISTS (
        SELECT FROM simsql.registry AS r
         CROSS JOIN LATERAL simsql._permutations(r.blocks, r.lead, r.inner_blocks) AS p
         CROSS JOIN LATERAL simsql._verify_key_table(simsql._as_named(r), format('simsql.keys_%s_%s', r.id, p.number)) AS k
         WHERE r.table_id = repair.table_name AND r.storage = 'tables' AND k.problem IN ('key table missing', 'key table altered'));
    PERFORM simsql._lock(table_name, CASE WHEN lost THEN 'ACCESS EXCLUSIVE' ELSE 'SHARE ROW EXCLUSIVE' END, 'repair');
    FOR index IN SELECT r.* FROM simsql.registry AS r WHERE r.table_id = repair.table_name ORDER BY r.id LOOP
        FOR finding IN SELECT v.* FROM simsql._verify_objects(index) AS v LOOP
            IF finding.problem IN ('column dropped', 'column is no longer a stored bigint') THEN
                RAISE EXCEPTION 'simsql.repair: cannot repair column % of %: %', finding.object, table_name, finding.problem
                    USING ERRCODE = 'object_not_in_prerequisite_state', HINT = finding.hint;
            ELSIF finding.problem <> 'not ready' THEN
                finding.hint := NULL;
                RETURN NEXT finding;
            END IF;
        END LOOP;
    END LOOP;
    PERFORM simsql._follow_names(table_name);
    FOR index IN SELECT r.* FROM simsql.registry AS r WHERE r.table_id = repair.table_name ORDER BY r.id LOOP
        PERFORM simsql._check_indexable(table_name, index.column_name, index.scope_columns, index.storage, 'repair');
        PERFORM simsql._check_upkeep(index, 'repair');
        UPDATE simsql.registry AS r SET scope_types = simsql._scope_types(r.table_id, r.scope_columns)
         WHERE r.id = index.id RETURNING r.* INTO index;
        owner := simsql._owner(index);
        findings := ARRAY(SELECT v FROM simsql._verify_objects(index) AS v);
        IF EXISTS (SELECT FROM unnest(findings) AS f WHERE f.problem IN ('key table missing', 'key table altered')) THEN
            index := simsql._renew(index);
            findings := ARRAY(SELECT v FROM simsql._verify_objects(index) AS v);
        END IF;
        PERFORM simsql._mend_objects(index, findings);
        IF index.ready AND index.storage = 'tables' THEN
            RETURN QUERY SELECT * FROM simsql._mend_keys(index);
        END IF;
        PERFORM simsql._give(index, owner);
        CONTINUE WHEN NOT EXISTS (SELECT FROM unnest(findings) AS f WHERE f.problem <> 'not ready');
        SELECT v.* INTO finding FROM simsql._verify_objects(index) AS v WHERE v.problem <> 'not ready';
        IF FOUND THEN
            RAISE EXCEPTION 'simsql.repair: % is beyond repair: %', finding.object, finding.problem
                USING ERRCODE = 'object_not_in_prerequisite_state',
                      HINT = format('Re-create the index: SELECT simsql.drop_index(%1$L, %2$L); '
                                    'SELECT simsql.create_index(%1$L, %2$L);', table_name, index.column_name);
        END IF;
    END LOOP;
END
$$;

COMMENT ON FUNCTION simsql.repair(regclass) IS
    'mend the faults that simsql.verify finds, in this transaction, and return them; writers wait';
