-- create_index and drop_index: the key tables, triggers and search functions of one column.
--
-- All objects are named by the id in the registry: the name of the user's table may be 63 bytes long, occur
-- in two schemas, or change. No function depends on the user's table or its row type, so DROP TABLE keeps
-- working.

-- Citus would create it on every node, which it refuses after it has created B-trees in the same transaction.
CREATE OR REPLACE FUNCTION simsql._create_function(
    name text, arguments text, head text, settings text[], body text)
RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM simsql._execute_here(simsql._render(
        'CREATE OR REPLACE FUNCTION simsql.{"name"}{arguments} {head} {settings} AS {''body''}',
        jsonb_build_object('name', name, 'arguments', arguments, 'head', head, 'body', body,
                           'settings', (SELECT string_agg('SET ' || s, ' ') FROM unnest(settings) AS s))));
END
$$;

-- Creates or replaces all generated functions of an index. They may have another owner: see _give.
CREATE OR REPLACE FUNCTION simsql._create_functions(index simsql.registry) RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM simsql._create_function(f.name, f.arguments, f.head, f.settings, f.body)
       FROM simsql._functions(index) AS f;
    PERFORM simsql._describe(index);
END
$$;

-- Notes beside the search function what create_index was told, for _adopt: a schema-only dump has no registry.
CREATE OR REPLACE FUNCTION simsql._describe(index simsql.registry) RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM simsql._execute_here(format('COMMENT ON FUNCTION simsql.search_%s IS %L', index.id, (
        SELECT jsonb_object_agg(c.key, c.value) FROM jsonb_each(jsonb_strip_nulls(to_jsonb(index))) AS c
         WHERE c.key IN ('table_name', 'column_name', 'distance', 'blocks', 'lead', 'inner_blocks', 'recipe', 'scope_columns',
                         'storage', 'sources', 'is_default'))));
END
$$;

-- Adds an index to the registry and locks its table until the end of the transaction. Writers wait, as for
-- CREATE INDEX. Everything that follows reads with a snapshot that is later than the lock.
CREATE OR REPLACE FUNCTION simsql._register(
    table_name regclass, column_name text, distance integer, blocks integer, lead integer,
    inner_blocks integer, recipe text, scope text[], storage text, sources jsonb, online boolean)
RETURNS simsql.registry
LANGUAGE plpgsql
AS $$
DECLARE
    index simsql.registry;
    existing simsql.registry;
    caller constant text := CASE WHEN online THEN 'build' ELSE 'create_index' END;
    drop_it constant text := simsql._call('drop_index', ARRAY[table_name::text, column_name]);
    rows bigint;
BEGIN
    index.table_id := table_name;
    index.table_name := simsql._full_name(table_name);
    index.column_name := column_name;
    index.distance := distance;
    index.blocks := blocks;
    index.lead := coalesce(lead, 1);
    index.inner_blocks := coalesce(inner_blocks, 0);
    index.recipe := recipe;
    index.scope_columns := coalesce(scope, '{}');
    PERFORM simsql._check_new(table_name, column_name, distance, blocks, lead, inner_blocks,
                              index.scope_columns, storage, caller);
    PERFORM simsql._check_sources(table_name, column_name, sources, caller);
    index.storage := simsql._storage(table_name, storage, caller);
    IF blocks IS NULL THEN
        -- A search meets the keys of one scope only, so the largest scope counts.
        EXECUTE simsql._render($sql$
            SELECT coalesce(max(rows), 0)
              FROM (SELECT count(t.{"column"}) AS rows FROM {rows_of} AS t WHERE {guard} {group}) AS s$sql$,
            jsonb_build_object(
                'column', column_name,
                'rows_of', simsql._rows_of(index),
                'guard', simsql._guard(index.table_name, column_name),
                'group', 'GROUP BY ' || simsql._name_list(index.scope_columns)))
           INTO rows;
        SELECT d.blocks, d.lead INTO index.blocks, index.lead FROM simsql._design(rows, distance) AS d;
    END IF;
    PERFORM simsql._lock(table_name, simsql._storage_lock(index.storage, online), caller);
    PERFORM simsql._check_indexable(table_name, column_name, index.scope_columns, index.storage, caller);
    -- In this order: the keys of an index are of no use to a table that was restored with its triggers, so it
    -- gets a new one. And such a trigger may use a function of an index whose table is gone.
    PERFORM simsql._drop_triggers(table_name);
    PERFORM simsql._follow_table(table_name);
    SELECT r.* INTO existing
      FROM simsql.registry AS r
     WHERE r.table_id = _register.table_name AND r.column_name = _register.column_name;
    IF FOUND THEN
        RAISE EXCEPTION 'simsql.%: column % of % already has %', caller, quote_ident(column_name), table_name,
                        CASE WHEN existing.ready THEN 'a simhash index' ELSE 'an unfinished simhash index' END
            USING ERRCODE = 'duplicate_object',
                  HINT = CASE
                      WHEN NOT existing.ready
                      THEN format('Finish its build: %s Or drop it first: %s', simsql._build_call(existing), drop_it)
                      WHEN existing.storage IS DISTINCT FROM index.storage
                      THEN 'To change its storage: ' || simsql._call(
                          'change_storage', ARRAY[table_name::text, index.storage, column_name])
                      ELSE 'To change its design, drop it first: ' || drop_it END;
    END IF;
    PERFORM simsql._drop_orphans();
    -- Logical replication copies the rows of the registry, and leaves its sequence behind: such ids are passed over.
    WHILE index.id IS NULL LOOP
        INSERT INTO simsql.registry AS r (table_id, table_name, column_name, distance, blocks, lead, inner_blocks,
                                          recipe, scope_columns, scope_types, ready, storage, sources, is_default)
        VALUES (index.table_id, simsql._full_name(table_name), index.column_name, index.distance, index.blocks,
                index.lead, index.inner_blocks, index.recipe, index.scope_columns,
                simsql._scope_types(table_name, index.scope_columns), NOT online, index.storage,
                nullif(sources, '{}'),
                CASE WHEN EXISTS (SELECT FROM simsql.registry AS d
                                   WHERE d.table_id = index.table_id AND d.is_default) THEN false END)
            ON CONFLICT (id) DO NOTHING
        RETURNING r.id INTO index.id;
    END LOOP;
    SELECT r.* INTO index FROM simsql.registry AS r WHERE r.id = index.id;
    PERFORM simsql._check_remains(index.id, caller);
    PERFORM simsql._drop_key_tables(index.id);
    PERFORM simsql._drop_searches(index.id);
    RETURN index;
END
$$;

-- Raises an error if this role may not replace what has the names of a new index. A restore that failed, or left out
-- the registry, leaves objects behind, and ids start from 1 again.
CREATE OR REPLACE FUNCTION simsql._check_remains(index_id integer, caller text) RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    foreign_object record;
BEGIN
    SELECT o.kind, o.name, o.owner::regrole AS owner INTO foreign_object
      FROM simsql._objects() AS o
     WHERE o.index_id = _check_remains.index_id AND NOT pg_has_role(o.owner, 'USAGE') LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'simsql.%: % of role % is in the way of a new simhash index', caller, foreign_object.name,
                        foreign_object.owner
            USING ERRCODE = 'insufficient_privilege',
                  HINT = format('It remains of another index. As %s or a superuser: DROP %s %s CASCADE;',
                                foreign_object.owner, foreign_object.kind, foreign_object.name);
    END IF;
END
$$;

-- Drops the functions of searches. A schema-only dump contains those of an index too, and the new index with
-- its id may have others: they have another parameter if there is a scope.
CREATE OR REPLACE FUNCTION simsql._drop_searches(index_id integer) RETURNS void
LANGUAGE plpgsql
SET client_min_messages = warning  -- no notice for those that there are not
AS $$
BEGIN
    EXECUTE format('DROP FUNCTION IF EXISTS '
                   'simsql.search_%1$s(bigint, integer), simsql.search_%1$s(bigint, integer, jsonb), '
                   'simsql.scan_%1$s(bigint, integer), simsql.scan_%1$s(bigint, integer, jsonb), '
                   'simsql.similar_%1$s(bigint, integer, jsonb, jsonb), '
                   'simsql.rows_%1$s(bigint[], bigint, anyelement, jsonb)', index_id);
END
$$;

CREATE OR REPLACE FUNCTION simsql.create_index(
    table_name regclass, column_name text, distance integer DEFAULT 3,
    blocks integer DEFAULT NULL, lead integer DEFAULT NULL, inner_blocks integer DEFAULT NULL,
    recipe text DEFAULT NULL, scope text[] DEFAULT '{}', storage text DEFAULT NULL,
    sources jsonb DEFAULT NULL)
RETURNS integer
LANGUAGE plpgsql
AS $$
DECLARE
    index simsql.registry := simsql._register(
        table_name, column_name, distance, blocks, lead, inner_blocks, recipe, scope, storage,
        sources, online => false);
BEGIN
    PERFORM simsql._create_plain_btree(index);
    PERFORM simsql._storage_create(index, filled => true);
    index := simsql._learn_skew(index);
    PERFORM simsql._create_functions(index);
    PERFORM simsql._create_triggers(index);
    PERFORM simsql._clear_stale(index);
    PERFORM simsql._give(index, current_user::regrole);
    PERFORM simsql._stamp(index.id);
    RETURN index.id;
END
$$;

COMMENT ON FUNCTION simsql.create_index(regclass, text, integer, integer, integer, integer, text, text[],
                                        text, jsonb) IS
    'create a simhash index on a bigint column, in this transaction, and return its id; writers wait. '
    'scope: the columns whose values restrict each search. storage: tables, the default, or expression, '
    'that of partitioned and distributed tables. recipe: the id of the recipe of the fingerprints. sources: the '
    'columns of their texts with weights, such as {"title": 3, "body": 1}; a trigger then clears a fingerprint '
    'whose text alone changes';

-- DROP TABLE leaves the keys of its indexes behind. Whoever creates the next index drops those that this role
-- owns.
CREATE OR REPLACE FUNCTION simsql._drop_orphans() RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    index simsql.registry;
BEGIN
    FOR index IN
        SELECT r.* FROM simsql.registry AS r
         WHERE NOT EXISTS (SELECT FROM pg_class AS c WHERE c.oid = r.table_id)
           AND simsql._recreated(r) IS NULL
           AND pg_has_role(simsql._owner(r), 'USAGE')
    LOOP
        RAISE NOTICE 'simsql: table % was dropped; dropping the remains of its simhash index',
                     index.table_name;
        -- Another role's trigger may use one of its functions, or pg_dump be reading. This call need neither fail nor wait.
        BEGIN
            EXECUTE coalesce((SELECT 'LOCK TABLE ' || string_agg(k::text, ', ') || ' IN ACCESS EXCLUSIVE MODE NOWAIT'
                                FROM simsql._own_keys(index.table_id) AS k), 'SELECT');
            PERFORM simsql._drop_objects(index);
        EXCEPTION WHEN OTHERS THEN
            RAISE WARNING 'simsql: cannot drop the remains of the simhash index on %: %', index.table_name,
                          sqlerrm;
        END;
    END LOOP;
END
$$;

CREATE OR REPLACE FUNCTION simsql.drop_index(table_name regclass, column_name text DEFAULT NULL) RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    found simsql.registry[];
    cleared text;
    is_locked boolean := NOT EXISTS (SELECT FROM pg_class AS c WHERE c.oid = drop_index.table_name);
BEGIN
    PERFORM simsql._follow_table(table_name);
    LOOP
        found := ARRAY(SELECT r FROM simsql.registry AS r
                        WHERE r.table_id = drop_index.table_name
                          AND (drop_index.column_name IS NULL OR r.column_name = drop_index.column_name)
                        ORDER BY r.id);
        IF cardinality(found) = 0 THEN
            RAISE EXCEPTION 'simsql.drop_index: % has no simhash index%', table_name,
                            coalesce(' on column ' || quote_ident(column_name), '')
                USING ERRCODE = 'undefined_object',
                      HINT = simsql._advised('indexes', '{}', '{}', 'SELECT * FROM simsql.indexes') || ' lists them.';
        ELSIF cardinality(found) > 1 THEN
            RAISE EXCEPTION 'simsql.drop_index: % has % simhash indexes', table_name, cardinality(found)
                USING ERRCODE = 'ambiguous_column',
                      HINT = (SELECT format('Name the column: one of %s.',
                                            string_agg(f.column_name, ', ' ORDER BY f.id))
                                FROM unnest(found) AS f);
        END IF;
        EXIT WHEN is_locked;
        -- Until it has the lock, others may drop the index or change its storage, and so its id.
        PERFORM simsql._lock(table_name, 'ACCESS EXCLUSIVE', 'drop_index');
        is_locked := true;
    END LOOP;
    cleared := (simsql._as_named(found[1])).column_name;
    PERFORM simsql._drop_objects(found[1]);
    IF found[1].sources IS NOT NULL THEN
        PERFORM simsql._drop_clearing(table_name, cleared);
    END IF;
END
$$;

COMMENT ON FUNCTION simsql.drop_index(regclass, text) IS
    'drop a simhash index, but not the column and its B-tree';
