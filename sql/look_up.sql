-- Finds the index that a statement refers to, or raises an error that tells what is wrong with it.

-- The numbers of the columns of an index, the fingerprint column and then the scope: those in its trigger or,
-- without triggers, in the first of its B-trees that exists; null if there is neither. The catalogue and
-- pg_dump carry both along when columns are renamed. A B-tree with such a name on something else does not
-- count.
CREATE OR REPLACE FUNCTION simsql._column_numbers(table_id regclass, index_id integer) RETURNS smallint[]
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    numbers smallint[] := (
        SELECT ARRAY(SELECT n FROM unnest(t.tgattr) AS n)
          FROM pg_trigger AS t WHERE t.tgrelid = table_id AND t.tgname = 'simsql_' || index_id || '_column');
    name constant text := '^simsql_' || index_id || '_\d+$';
    btree pg_index;
BEGIN
    IF numbers IS NOT NULL THEN
        RETURN numbers;
    END IF;
    FOR btree IN
        SELECT i.* FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid
         WHERE i.indrelid = table_id AND c.relname ~ name
         ORDER BY length(c.relname), c.relname
    LOOP
        IF starts_with(pg_get_indexdef(btree.indexrelid, btree.indnkeyatts - 1, false),
                       '((' || pg_get_indexdef(btree.indexrelid, btree.indnkeyatts, false) || ' & ')
        THEN
            RETURN ARRAY(SELECT k.number FROM unnest(btree.indkey) WITH ORDINALITY AS k (number, place)
                          WHERE k.number <> 0 AND k.place <= btree.indnkeyatts
                          ORDER BY k.place = btree.indnkeyatts DESC, k.place);
        END IF;
    END LOOP;
    RETURN NULL;
END
$$;

-- The table that has replaced that of an index, with its name, B-trees and triggers; null if there is none.
-- Citus re-creates a table whose distribution changes. (B-trees in a schema have different names, so no other
-- table can have this one.) It reads the catalogue: to_regclass fails for a role that may not use the schema,
-- and roles see all indexes in simsql.indexes.
CREATE OR REPLACE FUNCTION simsql._recreated(index simsql.registry) RETURNS regclass
LANGUAGE sql STABLE
AS $$
    SELECT c.oid::regclass
      FROM parse_ident(index.table_name) AS names
      JOIN pg_namespace AS n ON n.nspname = names[1]::name
      JOIN pg_class AS c ON c.relnamespace = n.oid AND c.relname = names[2]::name
     WHERE c.oid <> index.table_id AND simsql._column_numbers(c.oid, index.id) IS NOT NULL
       AND simsql._column_numbers(index.table_id, index.id) IS NULL
$$;

-- Registers a re-created table instead of the one that it has replaced. Its indexes may have faults. It may
-- belong to another role, whose readers must not see the keys of the old rows. DROP is not replicated; TRUNCATE
-- would be, and subscribers still have their rows.
CREATE OR REPLACE FUNCTION simsql._follow_table(table_name regclass) RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    index_id integer;
BEGIN
    FOR index_id IN
        SELECT r.id FROM simsql.registry AS r WHERE simsql._recreated(r) = _follow_table.table_name
    LOOP
        PERFORM simsql._drop_key_tables(index_id);
        UPDATE simsql.registry AS r SET table_id = _follow_table.table_name WHERE r.id = index_id;
    END LOOP;
END
$$;

-- Makes this session see what other sessions have committed: new names, and functions that repair has
-- replaced. A transaction learns of it when it takes a lock that it does not hold, so one that has searched
-- may never learn of it, and would search a table that has taken over the name. This takes a lock on a
-- relation that nothing else locks in this mode, and releases it. PostgreSQL inlines it.
CREATE OR REPLACE FUNCTION simsql._is_current() RETURNS boolean
LANGUAGE sql VOLATILE
RETURN pg_relation_is_updatable('simsql.registry_id_seq'::regclass, false) IS NOT NULL;

-- Whether a call means an index of its table: the one on the column that it names, or else the default index.
-- PostgreSQL inlines it.
CREATE OR REPLACE FUNCTION simsql._is_meant(column_name text, is_default boolean, named text) RETURNS boolean
LANGUAGE sql IMMUTABLE
RETURN CASE WHEN named IS NULL THEN is_default IS NOT false ELSE column_name = named END;

-- Returns the index of a column, as the caller's snapshot sees it, or raises an error that tells what is
-- wrong with it.
CREATE OR REPLACE FUNCTION simsql._index(table_name regclass, column_name text) RETURNS simsql.registry
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    index simsql.registry;
    columns text[];
    is_current constant boolean := simsql._is_current();
BEGIN
    BEGIN
        SELECT r.* INTO STRICT index
          FROM simsql.registry AS r
         WHERE r.table_id = _index.table_name
           AND simsql._is_meant(r.column_name, r.is_default, _index.column_name);
    EXCEPTION
        WHEN no_data_found THEN
            PERFORM simsql._raise(f) FROM unnest(simsql._registry_faults()) AS f;
            PERFORM simsql._check_sound(r)
               FROM simsql.registry AS r WHERE simsql._recreated(r) = _index.table_name;
            RAISE EXCEPTION 'simsql: % has no simhash index%', table_name,
                            coalesce(' on column ' || quote_ident(column_name), '')
                USING ERRCODE = 'undefined_object',
                      HINT = 'Create it: '
                             || simsql._call('create_index',
                                             ARRAY[table_name::text, coalesce(column_name, 'fingerprint')])
                             || CASE WHEN simsql._takes_snapshots() THEN '' ELSE simsql._advised('snapshot', '{}', '{}',
                                    ' An index that was created after this transaction took its snapshot is not '
                                    'visible to it.') END;
        WHEN too_many_rows THEN
            columns := ARRAY(SELECT r.column_name FROM simsql.registry AS r
                              WHERE r.table_id = _index.table_name ORDER BY r.id);
            RAISE EXCEPTION 'simsql: % has % simhash indexes', table_name, cardinality(columns)
                USING ERRCODE = 'ambiguous_column',
                      HINT = format('Name the column: one of %s. Or make one the default: %s',
                                    array_to_string(columns, ', '),
                                    simsql._call('set_default_index', ARRAY[table_name::text, columns[1]]));
    END;
    IF NOT simsql._is_complete(index.id, index.stamp_id)
       OR to_regprocedure('simsql.search_' || index.id || CASE index.scope_columns WHEN '{}' THEN '(bigint,integer)'
                          ELSE '(bigint,integer,jsonb)' END) IS NULL
    THEN
        PERFORM simsql._check_sound(index);
    END IF;
    RETURN index;
END
$$;

-- Raises an error in a transaction with one snapshot if the table has got a child since, a scope column another type, or
-- a key table new rows. The catalogue looks as it did then, but PostgreSQL reads children that have joined the table,
-- compares values of the new type, which need not have been rewritten, reads the current files, and applies the current
-- policies.
CREATE OR REPLACE FUNCTION simsql._check_snapshot(index_id integer) RETURNS void
LANGUAGE plpgsql VOLATILE  -- as EXPLAIN demands
SET max_parallel_workers_per_gather = 0  -- which could put other nodes on top
AS $$
DECLARE
    index constant simsql.registry := (SELECT r FROM simsql.registry AS r WHERE r.id = index_id);
    types regtype[];
    is_rewritten boolean;
    has_policies boolean;
    keys regclass;
    plan json;
    keys_plan json;
BEGIN
    IF simsql._rows_of(index) <> index.table_name THEN
        EXECUTE 'EXPLAIN (FORMAT JSON, COSTS OFF) SELECT FROM ' || index.table_name INTO plan;
    END IF;
    IF index.scope_columns <> '{}' AND NOT simsql._is_distributed(index.table_id) THEN
        EXECUTE (SELECT 'SELECT ARRAY[' || string_agg(
                            format('simsql._base_type(pg_typeof((SELECT t.%I FROM %s AS t LIMIT 0)))',
                                   s.name, index.table_name), ', ' ORDER BY s.number) || ']'
                   FROM unnest(index.scope_columns) WITH ORDINALITY AS s (name, number))
           INTO types;
    END IF;
    IF EXISTS (SELECT FROM unnest((index.stamp).ids) AS k JOIN pg_class AS c ON c.oid = k
                WHERE c.relfilenode <> pg_relation_filenode(c.oid)) AND index.storage = 'tables'
    THEN
        is_rewritten := simsql._emptied_tables(index) <> '{}';
    END IF;
    IF index.storage = 'tables' AND row_security_active((index.stamp).ids[1]) THEN
        has_policies := EXISTS (SELECT FROM pg_policy AS p WHERE p.polrelid = ANY ((index.stamp).ids) AND p.xmax <> '0');
        FOREACH keys IN ARRAY (index.stamp).ids LOOP
            EXECUTE 'EXPLAIN (FORMAT JSON, COSTS OFF) SELECT FROM ' || keys INTO keys_plan;
            -- Our only policy is a subquery, whose result is the whole condition.
            has_policies := has_policies
                            OR (keys_plan #>> '{0,Plan,Filter}' ~ '^(\(InitPlan \d+\)\.col1|\$\d+)$') IS NOT TRUE;
        END LOOP;
    END IF;
    -- COPY FREEZE fills a new file with rows that every snapshot sees, unlike their keys.
    IF types <> index.scope_types OR is_rewritten OR has_policies
       OR index.storage = 'tables' AND EXISTS (
           SELECT FROM pg_class AS c WHERE c.oid = index.table_id AND c.relfilenode <> pg_relation_filenode(c.oid))
       OR EXISTS (SELECT FROM unnest((index.stamp).numbers) WITH ORDINALITY AS n (number, place)
                   WHERE simsql._column_name(index.table_id, n.number)
                         IS DISTINCT FROM ((index.stamp).columns[n.place]).name)
       OR 'Append' IN (plan #>> '{0,Plan,Node Type}', plan #>> '{0,Plan,Plans,0,Node Type}')
    THEN
        RAISE EXCEPTION 'simsql: table % has changed since this transaction took its snapshot', index.table_id
            USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'Start a new transaction.';
    END IF;
END
$$;

-- Whether each statement of this transaction has a snapshot of its own. PostgreSQL takes READ UNCOMMITTED for READ
-- COMMITTED.
CREATE OR REPLACE FUNCTION simsql._takes_snapshots() RETURNS boolean
LANGUAGE sql STABLE
RETURN current_setting('transaction_isolation') IN ('read committed', 'read uncommitted');

-- Whether a table, or a part of it, was emptied, rewritten, dropped or detached after the snapshot of the caller, which
-- sees neither the rows of before nor those of now. VACUUM FULL and CLUSTER count, too, which keep all rows visible.
-- Some catalogues always have 0 here, as partitioned tables do.
CREATE OR REPLACE FUNCTION simsql._is_rewritten(table_id regclass) RETURNS boolean
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN EXISTS (
        WITH RECURSIVE tree (id) AS (
            SELECT table_id::oid
             UNION
            -- Nobody reads a partition that DETACH CONCURRENTLY has not finished to detach, for whatever reason.
            SELECT i.inhrelid FROM tree AS t JOIN pg_inherits AS i ON i.inhparent = t.id AND NOT i.inhdetachpending)
        SELECT FROM tree AS t JOIN pg_class AS c ON c.oid = t.id
         WHERE nullif(c.relfilenode, 0) <> coalesce(pg_relation_filenode(c.oid), 0)
            OR c.relispartition AND pg_partition_root(c.oid) IS DISTINCT FROM pg_partition_root(table_id));
END
$$;

-- Locks the table of a search, as reading it will, and returns whether the snapshot of the caller sees its rows. Another
-- session may have emptied, replaced or filled it while this waited for the lock, or since the statement began: a plain
-- SELECT locks all its tables first, and takes its snapshot afterwards.
CREATE OR REPLACE FUNCTION simsql._sees_rows(table_name regclass) RETURNS boolean
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    file constant oid := (SELECT c.relfilenode FROM pg_class AS c WHERE c.oid = table_name AND NOT c.relhassubclass);
BEGIN
    RETURN simsql._locks_at_once(table_name)
           AND ((file = pg_relation_filenode(table_name)) IS TRUE
                OR NOT simsql._takes_snapshots() OR NOT simsql._is_rewritten(table_name));
END
$$;

-- Locks a table, and returns whether that was possible without waiting. Whoever may read columns alone cannot call LOCK, so
-- a wait of less than a millisecond goes unnoticed. Citus would lock the table on every node.
CREATE OR REPLACE FUNCTION simsql._lock_at_once(table_name text) RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
    IF current_setting('citus.version', true) IS NULL THEN
        EXECUTE 'LOCK TABLE ' || table_name || ' IN ACCESS SHARE MODE NOWAIT';
    END IF;
END
$$;

CREATE OR REPLACE FUNCTION simsql._locks_at_once(table_name regclass) RETURNS boolean
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
    IF table_name IS NOT NULL THEN
        PERFORM simsql._lock_at_once(table_name::text);
    END IF;
    RETURN true;
EXCEPTION
    WHEN lock_not_available THEN
        RETURN false;
    WHEN insufficient_privilege THEN
        RETURN simsql._reads_at_once(table_name);
    WHEN undefined_table OR invalid_schema_name OR wrong_object_type OR syntax_error THEN
        RETURN true;  -- it was dropped: the search will tell
END
$$;

-- Waits for a table and its partitions, and locks them as reading will. Should the name belong to a view by now, PostgreSQL
-- must not even plan it: hence TABLESAMPLE.
CREATE OR REPLACE FUNCTION simsql._wait_for(table_name regclass) RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
    EXECUTE format('SELECT FROM %s AS t TABLESAMPLE system (0) LIMIT 0', table_name);
EXCEPTION
    -- It was dropped, or another relation has taken over its name: the search will tell.
    WHEN undefined_table OR invalid_schema_name OR wrong_object_type OR syntax_error OR feature_not_supported
         OR insufficient_privilege THEN NULL;
END
$$;

CREATE OR REPLACE FUNCTION simsql._reads_at_once(table_name regclass) RETURNS boolean
LANGUAGE plpgsql VOLATILE
SET lock_timeout = '1ms'
AS $$
BEGIN
    PERFORM simsql._wait_for(table_name);
    RETURN true;
EXCEPTION
    WHEN lock_not_available THEN
        RETURN false;
    WHEN insufficient_privilege THEN
        RETURN true;  -- the search will tell
END
$$;

-- Makes a search again that has to wait for its table, with a snapshot that is later than the lock: it is VOLATILE. `call`
-- is the call of the function in the schema simsql.
CREATE OR REPLACE FUNCTION simsql._again(table_name regclass, call text) RETURNS SETOF record
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
    PERFORM simsql._wait_for(table_name);
    IF simsql._takes_snapshots() AND simsql._is_rewritten(table_name) THEN  -- or this would go on for ever
        PERFORM simsql._refuse_changed(table_name, 'a part of its table is not where the catalogue says');
    END IF;
    RETURN QUERY EXECUTE 'SELECT * FROM simsql.' || call;
END
$$;

-- Raises an error for a search that could not read an index: another session has changed its storage or dropped it
-- while the search waited for a lock, or it is damaged.
CREATE OR REPLACE FUNCTION simsql._refuse_changed(table_name regclass, reason text) RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    RAISE EXCEPTION 'simsql: the simhash index on % has changed since this search began: %', table_name, reason
        USING ERRCODE = 'object_not_in_prerequisite_state',
              HINT = 'Search again. If that fails, too: ' || simsql._call('repair', ARRAY[table_name::text]);
END
$$;

-- The current name of a column, whatever the snapshot; null without a number. PostgreSQL inlines it.
CREATE OR REPLACE FUNCTION simsql._column_name(table_id oid, number smallint) RETURNS text
LANGUAGE sql STABLE
RETURN (pg_identify_object_as_address('pg_class'::regclass, table_id, number)).object_names[3];

-- Locks the table of a search, and returns the index of a column. Raises an error, also if the snapshot of the caller does
-- not see the rows.
CREATE OR REPLACE FUNCTION simsql._searched_index(table_name regclass, column_name text, scope jsonb)
RETURNS simsql.registry
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    name constant text := table_name;  -- before somebody else drops it
BEGIN
    IF NOT simsql._sees_rows(table_name) THEN
        PERFORM simsql._wait_for(table_name);
        IF simsql._takes_snapshots() THEN
            RAISE EXCEPTION 'simsql: table % was locked or rewritten after this search began', name
                USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'Search again.';
        END IF;
    END IF;
    RETURN simsql._index_in_scope(table_name, column_name, scope);
END
$$;

-- Returns the index of a column, or raises an error that tells what is wrong with it or with the scope: a search gives a
-- value for each scope column of the index, and no others.
CREATE OR REPLACE FUNCTION simsql._index_in_scope(table_name regclass, column_name text, scope jsonb)
RETURNS simsql.registry
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    index constant simsql.registry := simsql._index(table_name, column_name);
    wrong text;
    how text;
BEGIN
    IF NOT simsql._takes_snapshots() THEN
        PERFORM simsql._check_snapshot(index.id);
    END IF;
    IF index.scope_columns = '{}' THEN
        IF scope IS NOT NULL THEN
            RAISE EXCEPTION 'simsql: the simhash index on %(%) has no scope',
                            table_name, quote_ident(index.column_name)
                USING ERRCODE = 'invalid_parameter_value',
                      HINT = 'Search without a scope, or drop the index and create it again with a scope.';
        END IF;
        RETURN index;
    END IF;
    how := 'Give a value for each column: ' || simsql._advised(
        'scope', index.scope_columns, '{}', (
            SELECT format('scope => jsonb_build_object(%s)',
                          string_agg(format('%L, ...', c.name), ', ' ORDER BY c.number))
              FROM unnest(index.scope_columns) WITH ORDINALITY AS c (name, number)));
    IF scope IS NULL THEN
        RAISE EXCEPTION 'simsql: a search in the simhash index on %(%) needs a scope',
                        table_name, quote_ident(index.column_name)
            USING ERRCODE = 'invalid_parameter_value', HINT = how;
    ELSIF jsonb_typeof(scope) <> 'object' THEN
        RAISE EXCEPTION 'simsql: scope must be a JSON object, not %', scope
            USING ERRCODE = 'invalid_parameter_value', HINT = how;
    END IF;
    SELECT string_agg(CASE WHEN s.value IS NULL THEN 'no value for ' || quote_ident(s.wanted)
                           WHEN s.wanted IS NULL THEN 'no such column: ' || quote_ident(s.key)
                           ELSE quote_ident(s.key) || ' is ' || s.value::text END, ', '
                      ORDER BY s.wanted, s.key)
      INTO wrong
      FROM (jsonb_each(scope) AS e
            FULL JOIN unnest(index.scope_columns) AS c (wanted) ON c.wanted = e.key) AS s
     WHERE s.value IS NULL OR s.wanted IS NULL
        OR jsonb_typeof(s.value) NOT IN ('string', 'number', 'boolean');
    IF wrong IS NOT NULL THEN
        RAISE EXCEPTION 'simsql: this scope does not fit the simhash index on %(%): %',
                        table_name, quote_ident(index.column_name), wrong
            USING ERRCODE = 'invalid_parameter_value',
                  HINT = how || ', where each value is a string, a number or a boolean.';
    END IF;
    RETURN index;
END
$$;

-- The distance of a search: the requested one or, by default, that of the index.
CREATE OR REPLACE FUNCTION simsql._distance(asked integer, of_index integer) RETURNS integer
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
AS $$
BEGIN
    IF asked < 0 OR asked > 64 THEN
        RAISE EXCEPTION 'simsql: distance must be between 0 and 64, not %', asked
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    RETURN coalesce(asked, of_index);
END
$$;

-- Returns a fingerprint that a client has computed from a text, or raises an error if the index certainly has
-- another recipe. `others` is a regular expression of the recipes that cannot mean the client's, and of an empty
-- text if an unknown one cannot: see other_recipes in Python.
CREATE OR REPLACE FUNCTION simsql._of_recipe(
    fingerprint bigint, table_name regclass, column_name text, recipe text, others text)
RETURNS bigint
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    -- Without an index, the search says so.
    of_index constant text := (SELECT coalesce(r.recipe, '') FROM simsql.registry AS r
                                WHERE r.table_id = _of_recipe.table_name
                                  AND r.column_name = _of_recipe.column_name);
BEGIN
    IF of_index = '' AND of_index ~ others THEN
        RAISE EXCEPTION 'simsql: %(%): nobody has named the recipe of the simhash index, and texts need it',
                        table_name, quote_ident(column_name)
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = format('If %s made its fingerprints: SELECT simsql.alter_index(%L, %L, recipe => %L);',
                                recipe, table_name, column_name, recipe);
    ELSIF of_index ~ others THEN
        RAISE EXCEPTION 'simsql: %(%): the simhash index has recipe %, but the model fingerprints texts with '
                        '%, and these cannot be compared',
                        table_name, quote_ident(column_name), of_index, recipe
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = 'Give the column of the model the recipe of the index, or change the index in a '
                         'migration.';
    END IF;
    RETURN fingerprint;
END
$$;
