-- The faults of an index. They are found here alone: searches raise them, simsql.indexes shows them, verify
-- lists them, and repair removes them.
--
-- It comes from the catalogue, needs no privileges, and reads no rows. Keys that are missing are not here:
-- verify compares keys with rows. Keys without rows are not faults: see superfluous_keys.

-- The current names of the columns of an index, whatever the snapshot: the fingerprint column and then the
-- scope. Null stands for a dropped one. Columns whose numbers are unknown are those with the registered
-- names: without the B-tree that tells the numbers, and to a writer whose snapshot is older than the index.
CREATE OR REPLACE FUNCTION simsql._current_columns(table_id regclass, index_id integer, registered text[])
RETURNS text[]
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    numbers constant smallint[] := simsql._column_numbers(table_id, index_id);
BEGIN
    IF numbers IS NULL THEN
        RETURN ARRAY(SELECT a.attname::text
                       FROM unnest(registered) WITH ORDINALITY AS n (name, place)
                       LEFT JOIN pg_attribute AS a
                         ON a.attrelid = table_id AND a.attname = n.name AND NOT a.attisdropped
                      ORDER BY n.place);
    END IF;
    RETURN ARRAY(SELECT simsql._column_name(table_id, n.number)
                   FROM unnest(numbers) WITH ORDINALITY AS n (number, place) ORDER BY n.place);
END
$$;

-- An index with the current names of its table and columns.
CREATE OR REPLACE FUNCTION simsql._as_named(index simsql.registry) RETURNS simsql.registry
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    columns constant text[] := simsql._current_columns(
        index.table_id, index.id, index.column_name || index.scope_columns);
BEGIN
    index.table_name := simsql._full_name(index.table_id);
    index.column_name := columns[1];
    index.scope_columns := columns[2:];
    RETURN index;
END
$$;

-- The columns that do not have their registered names any more: those that swapped names would silently be
-- mixed up. And those that were replaced by a virtual one, whose values PostgreSQL does not pass to triggers.
CREATE OR REPLACE FUNCTION simsql._column_faults(table_id regclass, registered text[], columns text[])
RETURNS simsql._fault[]
LANGUAGE sql STABLE
AS $$
    SELECT ARRAY(
        SELECT (f.problem, quote_ident(coalesce(c.name, c.was)), f.state, 'refuses',
                format('column %I of %s was ',
                       CASE f.what WHEN 'renamed or dropped' THEN c.was ELSE c.name END, table_id)
                || f.what || ' after its simhash index was created',
                f.advice,
                CASE f.state WHEN 'column renamed' THEN simsql._call('repair', ARRAY[table_id::text])
                     ELSE simsql._call('drop_index', ARRAY[table_id::text, registered[1]]) END
               )::simsql._fault
          FROM unnest(registered, columns) WITH ORDINALITY AS c (was, name, place)
          LEFT JOIN pg_attribute AS a ON a.attrelid = table_id AND a.attname = c.name
         CROSS JOIN LATERAL (VALUES
               ('column dropped', 'column dropped', 'renamed or dropped',
                'If it was dropped:', c.name IS NULL),
               ('column renamed', 'column renamed', 'renamed or dropped',
                'Rename it back, or let the index follow the column:', c.name <> c.was),
               ('column is no longer a stored bigint', 'column type changed',
                'replaced by a virtual generated column', 'Drop the index:', a.attgenerated = 'v'))
               AS f (problem, state, what, advice, is_so)
         WHERE f.is_so
         ORDER BY f.state = 'column type changed', c.place)
$$;

-- The fault of the registry. The policies of key tables read it with the privileges of the role that searches.
CREATE OR REPLACE FUNCTION simsql._registry_faults() RETURNS simsql._fault[]
LANGUAGE sql STABLE
AS $$
    SELECT ARRAY(
        SELECT ('row-level security', 'simsql.registry', 'damaged',
                CASE WHEN row_security_active(c.oid) THEN 'refuses' ELSE 'may miss rows' END,
                format('row-level security hides simsql.registry from role %s', current_user),
                'Turn it off:', 'ALTER TABLE simsql.registry DISABLE ROW LEVEL SECURITY;')::simsql._fault
          FROM pg_class AS c WHERE c.oid = 'simsql.registry'::regclass AND c.relrowsecurity)
$$;

-- The faults of an index. Those that make searches refuse it come in the order in which a search looks for
-- them. The state of an index in simsql.indexes, and the error of a search, come from a quick look;
-- `thorough` also compares everything with the inventory, and asks shards.
CREATE OR REPLACE FUNCTION simsql._faults(index simsql.registry, thorough boolean DEFAULT false)
RETURNS simsql._fault[]
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    actual constant simsql.registry := simsql._as_named(index);
    registered constant text[] := index.column_name || index.scope_columns;
    columns constant text[] := actual.column_name || actual.scope_columns;
    at constant text := format('%s(%I)', index.table_id, index.column_name);
    search constant text := 'simsql.search_' || index.id;
    has_search constant boolean := to_regprocedure(search || CASE index.scope_columns WHEN '{}' THEN '(bigint,integer)'
                                                            ELSE '(bigint,integer,jsonb)' END) IS NOT NULL;
    repair constant text := simsql._call('repair', ARRAY[index.table_id::text]);
    drop_it constant text := simsql._call('drop_index', ARRAY[index.table_id::text, index.column_name]);
    faults simsql._fault[] := simsql._registry_faults();
    recreated regclass;
BEGIN
    IF actual.table_name IS DISTINCT FROM index.table_name THEN
        recreated := simsql._recreated(index);
        IF recreated IS NOT NULL THEN
            RETURN ARRAY[('table re-created', index.table_name, 'table re-created', 'refuses',
                          format('table %s was re-created after its simhash index was created', recreated),
                          'Let the index follow:',
                          simsql._call('repair', ARRAY[recreated::text]))::simsql._fault];
        ELSIF actual.table_name IS NULL THEN
            RETURN ARRAY[('table dropped', index.table_name, 'table dropped', 'refuses',
                          format('table %s was dropped', index.table_name),
                          'Drop the index:', drop_it)::simsql._fault];
        END IF;
        faults := faults || ('table renamed', actual.table_name, 'table renamed', 'refuses',
                             format('table %s was called %s when its simhash index was created',
                                    index.table_id, index.table_name),
                             'Rename it back, or let the index follow the table:', repair)::simsql._fault;
    END IF;
    IF NOT has_search AND EXISTS (
        SELECT FROM pg_proc AS p
         WHERE p.pronamespace = 'simsql'::regnamespace AND p.proname = 'search_' || index.id
           AND p.pronargs = CASE index.scope_columns WHEN '{}' THEN 2 ELSE 3 END)
       -- As a change of the storage drops them.
       OR index.storage = 'tables' AND EXISTS (
           SELECT FROM pg_class AS c
            WHERE c.oid = ANY ((index.stamp).ids) AND c.relkind = 'r' AND pg_relation_filenode(c.oid) IS NULL)
    THEN
        RETURN faults || ('index dropped', actual.table_name, 'index dropped', 'refuses',
                          format('the simhash index on %s was dropped after this transaction took its snapshot', at),
                          NULL, 'Start a new transaction.')::simsql._fault;
    END IF;
    IF NOT has_search THEN
        faults := faults || ('function missing', search, 'damaged', 'refuses',
                             format('the search function of the simhash index on %s is missing', at),
                             'Create it again:', repair)::simsql._fault;
    END IF;
    faults := faults || simsql._column_faults(index.table_id, registered, columns);
    -- Triggers make PostgreSQL refuse to change a type; B-trees do not.
    faults := faults || ARRAY(
        SELECT (CASE c.place WHEN 1 THEN 'column is no longer a stored bigint' ELSE 'column type changed' END,
                quote_ident(c.name), 'column type changed', 'refuses',
                format('column %I of %s changed its type after its simhash index was created',
                       c.name, index.table_id),
                CASE WHEN m.can_follow THEN 'Let the index follow:' ELSE 'Drop the index:' END,
                CASE WHEN m.can_follow THEN repair ELSE drop_it END)::simsql._fault
          FROM unnest(columns, 'bigint'::regtype || index.scope_types)
               WITH ORDINALITY AS c (name, type, place)
          JOIN pg_attribute AS a
            ON a.attrelid = index.table_id AND a.attname = c.name AND a.attgenerated <> 'v'
         CROSS JOIN LATERAL (
               SELECT c.place > 1 AND simsql._fits_scope(simsql._base_type(a.atttypid))) AS m (can_follow)
         WHERE a.atttypid IS DISTINCT FROM c.type
           AND (c.place = 1 OR simsql._base_type(a.atttypid) IS DISTINCT FROM c.type)
         ORDER BY m.can_follow, c.place);
    -- Searches in a scope use B-trees, as plain SQL does.
    faults := faults || simsql._storage_faults(index, actual, thorough) || ARRAY(
        SELECT ('collation changed', c.name, 'collation changed', 'may miss rows', NULL,
                'B-trees sorted by the old one may lack rows. Sort them anew:', c.remedy)::simsql._fault
          FROM simsql._changed_collations(actual.table_id, actual.scope_columns) AS c);
    -- What is wrong now tells more than that something has changed.
    IF NOT EXISTS (SELECT FROM unnest(faults) AS f WHERE f.effect = 'refuses') THEN
        faults := faults || simsql._stamp_faults(index, actual);
    END IF;
    IF NOT index.ready THEN
        faults := faults || ('not ready', actual.table_name, 'building', 'refuses',
                             format('the simhash index on %s is still being built', at),
                             'Wait for the build to finish. If it was interrupted:',
                             simsql._build_call(actual))::simsql._fault;
    END IF;
    IF thorough THEN
        faults := faults || ARRAY(
            SELECT i FROM unnest(simsql._inventory_faults(index, actual)) AS i
             WHERE NOT EXISTS (SELECT FROM unnest(faults) AS f WHERE f.problem = i.problem AND f.object = i.object));
        IF array_position(columns, NULL) IS NULL THEN
            faults := faults || simsql._source_faults(actual);
        END IF;
    END IF;
    RETURN faults;
END
$$;

-- The columns of simsql.indexes that tell how an index is: the state and the remedy of its worst fault, and
-- otherwise the advice of its storage. It is a function because Citus copies a view that names the columns of a composite type to new
-- nodes, with the functions that it calls and without the registry.
CREATE OR REPLACE FUNCTION simsql._health(
    index simsql.registry, OUT state text, OUT unvacuumed double precision,
    OUT last_vacuum timestamptz, OUT hint text)
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    faults constant simsql._fault[] := simsql._faults(index);
    advice text;
BEGIN
    SELECT f.state, concat_ws(' ', f.advice, f.remedy) INTO state, hint
      FROM unnest(faults) WITH ORDINALITY AS f
     WHERE f.effect <> 'refuses this role'
     ORDER BY array_position('{refuses,may miss rows,slows}', f.effect), f.ordinality
     LIMIT 1;
    state := coalesce(state, 'ready');
    SELECT a.unvacuumed, a.last_vacuum, a.hint INTO unvacuumed, last_vacuum, advice
      FROM simsql._storage_advice(index) AS a;
    hint := coalesce(hint, advice);
END
$$;

-- Raises the error of a fault that makes searches refuse an index.
CREATE OR REPLACE FUNCTION simsql._raise(fault simsql._fault) RETURNS void
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RAISE EXCEPTION 'simsql: %', fault.message
        USING ERRCODE = CASE fault.problem WHEN 'index dropped' THEN 'undefined_object'
                        ELSE 'object_not_in_prerequisite_state' END,
              HINT = concat_ws(' ', fault.advice, fault.remedy);
END
$$;

-- Raises the first fault that makes searches refuse an index. To a build, it is not one that the index is not
-- ready.
CREATE OR REPLACE FUNCTION simsql._check_sound(index simsql.registry, is_building boolean DEFAULT false)
RETURNS void
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    -- The snapshot may be older than the upgrade that has stamped it.
    IF index.storage = 'tables' AND index.stamp_id IS NULL
       AND (simsql._is_stamped(index.id) OR NOT simsql._takes_snapshots())
    THEN
        PERFORM simsql._refuse_changed(index.table_id, 'simsql was upgraded');
    END IF;
    PERFORM simsql._raise(f)
       FROM unnest(simsql._faults(index)) AS f
      WHERE f.effect IN ('refuses', 'refuses this role') AND NOT (is_building AND f.problem = 'not ready');
END
$$;

-- Raises an error if the columns of an index do not have the names that its triggers use. They read no table
-- of simsql.
CREATE OR REPLACE FUNCTION simsql._check_columns(table_id regclass, index_id integer, column_names text[])
RETURNS void
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    PERFORM simsql._raise(f)
       FROM unnest(simsql._column_faults(
                table_id, column_names, simsql._current_columns(table_id, index_id, column_names))) AS f;
END
$$;
