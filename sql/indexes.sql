-- create_index and drop_index: the key tables, triggers and search functions of one column.
--
-- All objects are named by the id in the registry: the name of the user's table may be 63 bytes long, occur in two schemas, or
-- change. No function depends on the user's table or its row type, so DROP TABLE keeps working.

-- One table per permutation. It holds the permuted keys, preceded by the scope, and nothing else: any primary key works, and
-- deleting a row of the user's table changes nothing here.
-- For a table that has not been analyzed, the planner expects few distinct fingerprints and would hash them all. So it sorts.
CREATE OR REPLACE FUNCTION simsql._create_keys(index simsql.registry, filled boolean) RETURNS void
LANGUAGE plpgsql
SET enable_hashagg = off
AS $$
DECLARE
    permutation record;
    keys text;
    scope constant text := coalesce(
        (SELECT string_agg(format('t.%I::%s AS %s, ', s.column_name, s.type, s.name), '' ORDER BY s.number)
           FROM simsql._scope_columns(index) AS s), '');
    unlogged constant text := CASE (SELECT relpersistence FROM pg_class WHERE oid = index.table_id)
                                   WHEN 'u' THEN 'UNLOGGED' ELSE '' END;
    work_mem constant text := current_setting('work_mem');
BEGIN
    -- This sorts as CREATE INDEX does, so it gets the same memory.
    IF pg_size_bytes(work_mem) < pg_size_bytes(current_setting('maintenance_work_mem')) THEN
        PERFORM set_config('work_mem', current_setting('maintenance_work_mem'), true);
    END IF;
    FOR permutation IN SELECT * FROM simsql._permutations(index.blocks, index.lead, index.inner_blocks) LOOP
        keys := format('simsql.keys_%s_%s', index.id, permutation.number);
        -- CREATE TABLE AS is a fifth faster than INSERT.
        EXECUTE format('CREATE %s TABLE %s AS SELECT DISTINCT %s%s AS key FROM ONLY %s AS t WHERE t.%I IS NOT NULL%s '
                       'ORDER BY %s %s',
                       unlogged, keys, scope, simsql._permute(format('t.%I', index.column_name), permutation.lead_mask),
                       index.table_name, index.column_name, simsql._for_scope(index, ' AND t.%2$I IS NOT NULL') || ' AND ' || simsql._guard(index.table_name, index.column_name),
                       simsql._name_list(simsql._key_columns(index)), CASE WHEN NOT filled THEN 'WITH NO DATA' END);
        -- Equal keys are allowed, so no unique index can identify a row.
        EXECUTE format('ALTER TABLE %s %s ALTER key SET NOT NULL, REPLICA IDENTITY FULL', keys,
                       simsql._for_scope(index, 'ALTER %1$s SET NOT NULL, '));
        EXECUTE format('COMMENT ON TABLE %s IS %L', keys,
                       format('keys of the simhash index on %s(%I), permutation %s, lead bits %s',
                              index.table_name, index.column_name, permutation.number,
                              to_hex(permutation.lead_mask)));
        -- A B-tree that is created after a sorted fill is packed, and takes a quarter less time.
        EXECUTE format('CREATE INDEX ON %s (%s)', keys, simsql._name_list(simsql._key_columns(index)));
        PERFORM simsql._guard_keys(keys, index);
    END LOOP;
    PERFORM set_config('work_mem', work_mem, true);
    -- The progress of a build is the last fingerprint whose keys it has added, and its scope. Everybody can read the registry, so
    -- these values are in a table of the owner. Row-level security without a policy admits nobody else, even if default
    -- privileges grant more.
    IF NOT filled THEN
        EXECUTE format('CREATE TABLE simsql.built_%1$s (fp bigint, scope text[]); '
                       'ALTER TABLE simsql.built_%1$s ENABLE ROW LEVEL SECURITY', index.id);
    END IF;
END
$$;

-- A role can read the keys if, and only if, it can read the fingerprint column and the scope columns. The policy checks the
-- role that searches, at the time of the search, and identifies columns by number: another table or column may take over the
-- name. As a subquery it is evaluated once per scan.
CREATE OR REPLACE FUNCTION simsql._policy(index simsql.registry) RETURNS text
LANGUAGE sql STABLE
AS $$
    SELECT format('((SELECT coalesce(bool_and(has_column_privilege(t.tgrelid, a.number, ''SELECT'')), false) '
                  'FROM pg_trigger AS t CROSS JOIN unnest(t.tgattr) AS a (number) '
                  'WHERE t.tgrelid = (SELECT r.table_id FROM simsql.registry AS r WHERE r.id = %s) AND t.tgname = %L))',
                  index.id, format('simsql_%s_column', index.id))
$$;

CREATE OR REPLACE FUNCTION simsql._guard_keys(keys text, index simsql.registry) RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY', keys);
    EXECUTE format('CREATE POLICY readers ON %s FOR SELECT USING %s', keys, simsql._policy(index));
    EXECUTE format('GRANT SELECT ON %s TO PUBLIC', keys);
END
$$;

-- All generated functions of an index.
CREATE OR REPLACE FUNCTION simsql._functions(index simsql.registry)
RETURNS TABLE (name text, arguments text, head text, settings text[], body text)
LANGUAGE sql STABLE
AS $$
    SELECT * FROM simsql._search_functions(index)
    UNION ALL
    SELECT * FROM simsql._trigger_functions(index) WHERE index.storage = 'tables'
$$;

-- Citus would create it on every node, which it refuses after it has created B-trees in the same transaction.
CREATE OR REPLACE FUNCTION simsql._create_function(name text, arguments text, head text, settings text[], body text)
RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM simsql._execute_here(format('CREATE OR REPLACE FUNCTION simsql.%I%s %s %s AS %L', name, arguments, head,
                                        (SELECT string_agg('SET ' || s, ' ') FROM unnest(settings) AS s), body));
END
$$;

CREATE OR REPLACE FUNCTION simsql._create_functions(index simsql.registry) RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    function record;
    grantee oid;
BEGIN
    FOR function IN SELECT * FROM simsql._functions(index) LOOP
        PERFORM simsql._create_function(function.name, function.arguments, function.head, function.settings, function.body);
        IF function.head LIKE '%SECURITY DEFINER%' THEN
            FOR grantee IN SELECT simsql._other_callers(format('simsql.%I%s', function.name, function.arguments)::regprocedure) LOOP
                EXECUTE format('REVOKE ALL ON FUNCTION simsql.%I%s FROM %s CASCADE', function.name, function.arguments,
                               CASE grantee WHEN 0 THEN 'PUBLIC' ELSE grantee::regrole::text END);
            END LOOP;
        END IF;
    END LOOP;
END
$$;

-- The roles other than the owner that may call a function; 0 is PUBLIC.
CREATE OR REPLACE FUNCTION simsql._other_callers(function regprocedure) RETURNS SETOF oid
LANGUAGE sql STABLE
AS $$
    SELECT DISTINCT a.grantee
      FROM pg_proc AS p
     CROSS JOIN LATERAL aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) AS a
     WHERE p.oid = function AND a.grantee <> p.proowner
$$;

-- Adds an index to the registry and locks its table until the end of the transaction. Writers wait, as for CREATE INDEX.
-- Everything that follows reads with a snapshot that is later than the lock.
CREATE OR REPLACE FUNCTION simsql._register(
    table_name regclass, column_name text, distance integer, blocks integer, lead integer, inner_blocks integer,
    recipe text, scope text[], storage text, online boolean)
RETURNS simsql.registry
LANGUAGE plpgsql
AS $$
DECLARE
    index simsql.registry;
    caller constant text := CASE WHEN online THEN 'build' ELSE 'create_index' END;
    rows bigint;
BEGIN
    scope := coalesce(scope, '{}');
    PERFORM simsql._check_new(table_name, column_name, distance, blocks, lead, inner_blocks, scope, storage, caller);
    storage := simsql._storage(table_name, storage, caller);
    IF blocks IS NULL THEN
        -- A search meets the keys of one scope only, so the largest scope counts.
        EXECUTE format('SELECT coalesce(max(rows), 0) FROM (SELECT count(t.%I) AS rows FROM %s%s AS t WHERE %s%s) AS s',
                       column_name, CASE storage WHEN 'tables' THEN 'ONLY ' ELSE '' END, table_name,
                       simsql._guard(table_name::text, column_name),
                       CASE WHEN cardinality(scope) > 0 THEN ' GROUP BY ' || simsql._name_list(scope) END) INTO rows;
        SELECT d.blocks, d.lead INTO blocks, lead FROM simsql._design(rows, distance) AS d;
    END IF;
    -- CREATE INDEX CONCURRENTLY takes this lock too. It keeps no writer waiting.
    PERFORM simsql._lock(table_name, CASE WHEN online AND storage = 'expression' THEN 'SHARE UPDATE EXCLUSIVE'
                                          ELSE 'SHARE ROW EXCLUSIVE' END, caller);
    PERFORM simsql._check_indexable(table_name, column_name, scope, storage, caller);
    IF online AND storage = 'tables' THEN
        PERFORM simsql._check_btree(table_name, scope || column_name, caller);
    END IF;
    -- In this order: the keys of an index are of no use to a table that was restored with its triggers, so it gets a new one. And
    -- such a trigger may use a function of an index whose table is gone.
    PERFORM simsql._drop_foreign_triggers(table_name);
    PERFORM simsql._follow_table(table_name);
    SELECT r.* INTO index
      FROM simsql.registry AS r
     WHERE r.table_id = _register.table_name AND r.column_name = _register.column_name;
    IF FOUND THEN
        RAISE EXCEPTION 'simsql.%: column % of % already has %', caller, quote_ident(column_name), table_name,
                        CASE WHEN index.ready THEN 'a simhash index' ELSE 'an unfinished simhash index' END
            USING ERRCODE = 'duplicate_object',
                  HINT = CASE WHEN index.ready AND index.storage <> _register.storage
                         THEN format('To change its storage: SELECT simsql.change_storage(%L, %L, %L);',
                                     table_name, _register.storage, column_name)
                         WHEN index.ready
                         THEN format('To change its design, drop it first: SELECT simsql.drop_index(%L, %L);',
                                     table_name, column_name)
                         ELSE format('Finish its build: %s Or drop it first: SELECT simsql.drop_index(%L, %L);',
                                     simsql._build_call(index), table_name, column_name) END;
    END IF;
    PERFORM simsql._drop_orphans();
    INSERT INTO simsql.registry AS r (table_id, table_name, column_name, distance, blocks, lead, inner_blocks, recipe,
                                      scope_columns, scope_types, ready, storage)
    VALUES (_register.table_name, simsql._full_name(_register.table_name), _register.column_name, _register.distance,
            _register.blocks, coalesce(_register.lead, 1), coalesce(_register.inner_blocks, 0), _register.recipe, scope,
            simsql._scope_types(_register.table_name, scope), NOT online, _register.storage)
    RETURNING r.* INTO index;
    PERFORM simsql._drop_leftover_keys(index.id);
    RETURN index;
END
$$;

CREATE OR REPLACE FUNCTION simsql.create_index(
    table_name regclass, column_name text, distance integer DEFAULT 3,
    blocks integer DEFAULT NULL, lead integer DEFAULT NULL, inner_blocks integer DEFAULT NULL, recipe text DEFAULT NULL,
    scope text[] DEFAULT '{}', storage text DEFAULT NULL)
RETURNS integer
LANGUAGE plpgsql
AS $$
DECLARE
    index simsql.registry := simsql._register(
        table_name, column_name, distance, blocks, lead, inner_blocks, recipe, scope, storage, online => false);
BEGIN
    PERFORM simsql._create_plain_btree(index);
    IF index.storage = 'tables' THEN
        PERFORM simsql._create_keys(index, filled => true);
    ELSE
        PERFORM simsql._create_btrees(index);
    END IF;
    index := simsql._learn_skew(index);
    PERFORM simsql._create_functions(index);
    PERFORM simsql._create_triggers(index);
    PERFORM simsql._warn_of_locks(index, 'create_index');
    RETURN index.id;
END
$$;

COMMENT ON FUNCTION simsql.create_index(regclass, text, integer, integer, integer, integer, text, text[], text) IS
    'create a simhash index on a bigint column, in this transaction, and return its id; writers wait. '
    'scope: the columns whose values restrict each search. storage: tables, the default, or expression, '
    'that of partitioned and distributed tables';

-- Drops the key tables of an index, the triggers and their functions.
CREATE OR REPLACE FUNCTION simsql._drop_keys(index simsql.registry) RETURNS void
LANGUAGE plpgsql
SET client_min_messages = warning  -- no notice for each object that the storage expression lacks
AS $$
DECLARE
    number integer;
    name text;
BEGIN
    IF EXISTS (SELECT FROM pg_class WHERE oid = index.table_id) THEN
        -- By their functions: somebody may have renamed a trigger.
        FOR name IN
            SELECT t.tgname FROM pg_trigger AS t JOIN pg_proc AS p ON p.oid = t.tgfoid
             WHERE t.tgrelid = index.table_id AND p.pronamespace = 'simsql'::regnamespace
               AND p.proname ~ format('^add_on_(insert|update|replica)_%s$', index.id)
        LOOP
            EXECUTE format('DROP TRIGGER %I ON %s', name, index.table_id);
        END LOOP;
    END IF;
    EXECUTE format('DROP FUNCTION IF EXISTS simsql.add_on_insert_%1$s(), simsql.add_on_update_%1$s(), simsql.add_on_replica_%1$s()',
                   index.id);
    FOR number IN SELECT p.number FROM simsql._permutations(index.blocks, index.lead, index.inner_blocks) AS p LOOP
        EXECUTE format('DROP TABLE IF EXISTS simsql.keys_%s_%s', index.id, number);
    END LOOP;
    EXECUTE format('DROP TABLE IF EXISTS simsql.built_%s', index.id);
END
$$;

-- Drops everything that create_index creates, except for the B-tree on the user's column.
CREATE OR REPLACE FUNCTION simsql._drop_objects(index simsql.registry) RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM simsql._drop_btrees(index);
    PERFORM simsql._drop_keys(index);
    EXECUTE format('DROP FUNCTION IF EXISTS simsql.search_%1$s, simsql.scan_%1$s', index.id);
    DELETE FROM simsql.registry AS r WHERE r.id = index.id;
END
$$;

-- DROP TABLE leaves the keys of its indexes behind. Whoever creates the next index drops those that this role owns.
CREATE OR REPLACE FUNCTION simsql._drop_orphans() RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    index simsql.registry;
BEGIN
    FOR index IN
        SELECT r.* FROM simsql.registry AS r
         WHERE NOT EXISTS (SELECT FROM pg_class AS c WHERE c.oid = r.table_id) AND simsql._recreated(r) IS NULL
           AND pg_has_role(simsql._owner(r), 'USAGE')
    LOOP
        RAISE NOTICE 'simsql: table % was dropped; dropping the remains of its simhash index', index.table_name;
        -- Another role's trigger may use one of its functions. Its owner has to drop that, and this call need not fail.
        BEGIN
            PERFORM simsql._drop_objects(index);
        EXCEPTION WHEN OTHERS THEN
            RAISE WARNING 'simsql: cannot drop the remains of the simhash index on %: %', index.table_name, sqlerrm;
        END;
    END LOOP;
END
$$;

-- A schema-only dump contains the key tables of an index but not its row in the registry, and a restored registry starts ids
-- from 1 again.
CREATE OR REPLACE FUNCTION simsql._drop_leftover_keys(index_id integer) RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    keys regclass;
BEGIN
    FOR keys IN
        SELECT c.oid FROM pg_class AS c
         WHERE c.relnamespace = 'simsql'::regnamespace AND c.relname ~ format('^(keys_%1$s_\d+|built_%1$s)$', index_id)
           AND c.relkind = 'r'
    LOOP
        EXECUTE format('DROP TABLE %s', keys);
    END LOOP;
END
$$;

CREATE OR REPLACE FUNCTION simsql.drop_index(table_name regclass, column_name text DEFAULT NULL) RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    columns text[];
    index simsql.registry;
BEGIN
    PERFORM simsql._follow_table(table_name);
    columns := ARRAY(SELECT r.column_name FROM simsql.registry AS r
                      WHERE r.table_id = drop_index.table_name
                        AND (drop_index.column_name IS NULL OR r.column_name = drop_index.column_name)
                      ORDER BY r.id);
    IF cardinality(columns) <> 1 THEN
        RAISE EXCEPTION 'simsql.drop_index: % has %', table_name,
                        CASE cardinality(columns) WHEN 0 THEN 'no simhash index' ELSE cardinality(columns) || ' simhash indexes' END
                        || coalesce(' on column ' || quote_ident(column_name), '')
            USING ERRCODE = CASE cardinality(columns) WHEN 0 THEN 'undefined_object' ELSE 'ambiguous_column' END,
                  HINT = CASE cardinality(columns) WHEN 0 THEN 'SELECT * FROM simsql.indexes lists them.'
                         ELSE format('Name the column: one of %s.', array_to_string(columns, ', ')) END;
    END IF;
    SELECT r.* INTO index
      FROM simsql.registry AS r
     WHERE r.table_id = drop_index.table_name AND r.column_name = columns[1];
    IF EXISTS (SELECT FROM pg_class AS c WHERE c.oid = drop_index.table_name) THEN
        PERFORM simsql._lock(table_name, 'ACCESS EXCLUSIVE', 'drop_index');
    END IF;
    PERFORM simsql._drop_objects(index);
END
$$;

COMMENT ON FUNCTION simsql.drop_index(regclass, text) IS
    'drop a simhash index, but not the column and its B-tree';
