-- What is wrong with an index. This is the one answer: searches raise it, simsql.indexes shows it, verify lists it, and repair
-- mends it.
--
-- It comes from the catalogue, needs no privileges, and reads no rows. Keys that are missing are not here: verify compares
-- keys with rows. Keys without rows are not faults: see superfluous_keys.

-- The current names of the columns of an index, whatever the snapshot: the fingerprint column and then the scope. Null stands for
-- a dropped one. Columns whose numbers are unknown are those with the registered names: without the B-tree that tells the
-- numbers, and to a writer whose snapshot is older than the index.
CREATE OR REPLACE FUNCTION simsql._current_columns(table_id regclass, index_id integer, registered text[]) RETURNS text[]
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    numbers constant smallint[] := simsql._column_numbers(table_id, index_id);
    names text[] := '{}';
BEGIN
    IF numbers IS NULL THEN
        RETURN ARRAY(SELECT a.attname::text
                       FROM unnest(registered) WITH ORDINALITY AS n (name, place)
                       LEFT JOIN pg_attribute AS a ON a.attrelid = table_id AND a.attname = n.name AND NOT a.attisdropped
                      ORDER BY n.place);
    END IF;
    FOR place IN 1 .. cardinality(numbers) LOOP
        names := names || simsql._column_name(table_id, numbers[place]);
    END LOOP;
    RETURN names;
END
$$;

-- An index with the current names of its table and columns.
CREATE OR REPLACE FUNCTION simsql._as_named(index simsql.registry) RETURNS simsql.registry
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    columns constant text[] := simsql._current_columns(index.table_id, index.id, index.column_name || index.scope_columns);
BEGIN
    index.table_name := simsql._full_name(index.table_id);
    index.column_name := columns[1];
    index.scope_columns := columns[2:];
    RETURN index;
END
$$;

-- The columns that do not have their registered names any more. Otherwise columns that swapped names would silently be mixed up.
-- And those that were replaced by a virtual one, whose values PostgreSQL does not pass to triggers.
CREATE OR REPLACE FUNCTION simsql._column_faults(table_id regclass, registered text[], columns text[]) RETURNS SETOF simsql._fault
LANGUAGE sql STABLE
AS $$
    SELECT CASE s.change WHEN 'virtual' THEN 'column is no longer a stored bigint' ELSE 'column ' || s.change END,
           quote_ident(coalesce(c.name, c.wanted)),
           CASE s.change WHEN 'virtual' THEN 'column type changed' ELSE 'column ' || s.change END, 'refuses',
           format('column %I of %s was %s after its simhash index was created', c.wanted, table_id,
                  CASE s.change WHEN 'virtual' THEN 'replaced by a virtual generated column' ELSE 'renamed or dropped' END),
           CASE s.change WHEN 'renamed' THEN 'Rename it back, or let the index follow the column:'
                         WHEN 'dropped' THEN 'If it was dropped:' ELSE 'Drop the index:' END,
           CASE s.change WHEN 'renamed' THEN format('SELECT * FROM simsql.repair(%L);', table_id)
                         ELSE format('SELECT simsql.drop_index(%L, %L);', table_id, registered[1]) END
      FROM unnest(columns, registered) WITH ORDINALITY AS c (name, wanted, place)
     CROSS JOIN LATERAL (
           SELECT CASE WHEN c.name IS NULL THEN 'dropped'
                       WHEN c.name IS DISTINCT FROM c.wanted THEN 'renamed'
                       WHEN EXISTS (SELECT FROM pg_attribute AS a WHERE a.attrelid = table_id AND a.attname = c.name
                                       AND a.attgenerated = 'v') THEN 'virtual' END) AS s (change)
     WHERE s.change IS NOT NULL
     ORDER BY c.place
$$;

-- The columns whose type is not the one for which the index was created. Triggers make PostgreSQL refuse to change it; B-trees do
-- not.
CREATE OR REPLACE FUNCTION simsql._type_faults(index simsql.registry, columns text[]) RETURNS SETOF simsql._fault
LANGUAGE sql STABLE
AS $$
    SELECT CASE c.place WHEN 1 THEN 'column is no longer a stored bigint' ELSE 'column type changed' END,
           quote_ident(c.name), 'column type changed', 'refuses',
           format('column %I of %s changed its type after its simhash index was created', c.name, index.table_id),
           CASE WHEN m.can_follow THEN 'Let the index follow:' ELSE 'Drop the index:' END,
           CASE WHEN m.can_follow THEN format('SELECT * FROM simsql.repair(%L);', index.table_id)
                ELSE format('SELECT simsql.drop_index(%L, %L);', index.table_id, index.column_name) END
      FROM unnest(columns, 'bigint'::regtype || index.scope_types) WITH ORDINALITY AS c (name, type, place)
      JOIN pg_attribute AS a ON a.attrelid = index.table_id AND a.attname = c.name AND a.attgenerated <> 'v'
     CROSS JOIN LATERAL (SELECT c.place > 1 AND simsql._fits_scope(simsql._base_type(a.atttypid))) AS m (can_follow)
     WHERE a.atttypid IS DISTINCT FROM c.type
       AND (c.place = 1 OR simsql._base_type(a.atttypid) IS DISTINCT FROM c.type)
     ORDER BY m.can_follow, c.place
$$;

-- The faults of an index. Those that make searches refuse it come in the order in which a search looks for them. The state of
-- an index in simsql.indexes, and the error of a search, come from a quick look; `thorough` also compares all functions and key
-- tables with what create_index makes, and asks shards.
CREATE OR REPLACE FUNCTION simsql._faults(index simsql.registry, thorough boolean DEFAULT false) RETURNS SETOF simsql._fault
LANGUAGE plpgsql STABLE ROWS 10
AS $$
DECLARE
    actual constant simsql.registry := simsql._as_named(index);
    registered constant text[] := index.column_name || index.scope_columns;
    columns constant text[] := actual.column_name || actual.scope_columns;
    search constant text := 'search_' || index.id;
    repair constant text := format('SELECT * FROM simsql.repair(%L);', index.table_id);
    drop_it constant text := format('SELECT simsql.drop_index(%L, %L);', index.table_id, index.column_name);
    recreated regclass;
    fault simsql._fault;
BEGIN
    IF actual.table_name IS DISTINCT FROM index.table_name THEN
        recreated := simsql._recreated(index);
    END IF;
    fault.effect := 'refuses';
    fault.remedy := repair;
    IF recreated IS NOT NULL THEN
        fault.problem := 'table re-created';
        fault.object := index.table_name;
        fault.message := format('table %s was re-created after its simhash index was created', recreated);
        fault.advice := 'Let the index follow:';
        fault.remedy := format('SELECT * FROM simsql.repair(%L);', recreated);
    ELSIF actual.table_name IS NULL THEN
        fault.problem := 'table dropped';
        fault.object := index.table_name;
        fault.message := format('table %s was dropped', index.table_name);
        fault.advice := 'Drop the index:';
        fault.remedy := drop_it;
    ELSIF to_regproc('simsql.' || search) IS NULL
          AND EXISTS (SELECT FROM pg_proc AS p WHERE p.pronamespace = 'simsql'::regnamespace AND p.proname = search)
    THEN
        fault.problem := 'index dropped';
        fault.object := actual.table_name;
        fault.message := format('the simhash index on %s(%I) was dropped after this transaction took its snapshot',
                                index.table_id, index.column_name);
        fault.advice := 'Start a new transaction.';
        fault.remedy := NULL;
    END IF;
    IF fault.problem IS NOT NULL THEN
        fault.state := fault.problem;
        RETURN NEXT fault;
        RETURN;
    END IF;
    IF actual.table_name <> index.table_name THEN
        fault.problem := 'table renamed';
        fault.object := actual.table_name;
        fault.state := fault.problem;
        fault.message := format('table %s was called %s when its simhash index was created', index.table_id, index.table_name);
        fault.advice := 'Rename it back, or let the index follow the table:';
        RETURN NEXT fault;
    END IF;
    RETURN QUERY SELECT c.* FROM simsql._column_faults(index.table_id, registered, columns) AS c;
    RETURN QUERY SELECT t.* FROM simsql._type_faults(index, columns) AS t;
    RETURN QUERY SELECT s.* FROM simsql._storage_faults(index, actual, thorough) AS s;
    IF to_regproc('simsql.' || search) IS NULL THEN
        RETURN NEXT ('function missing', 'simsql.' || search, 'damaged', 'refuses',
                     format('the search function of the simhash index on %s(%I) is missing', index.table_id, index.column_name),
                     'Create it again:', repair)::simsql._fault;
    END IF;
    IF NOT index.ready THEN
        RETURN NEXT ('not ready', actual.table_name, 'building', 'refuses',
                     format('the simhash index on %s(%I) is still being built', index.table_id, index.column_name),
                     'Wait for the build to finish. If it was interrupted:', simsql._build_call(actual))::simsql._fault;
    END IF;
    IF thorough AND array_position(columns, NULL) IS NULL THEN
        RETURN QUERY
        SELECT f.problem, 'simsql.' || d.name, 'damaged', f.effect, NULL, NULL, repair
          FROM simsql._functions(index) AS d
          LEFT JOIN pg_proc AS p ON p.oid = to_regprocedure(format('simsql.%I%s', d.name, d.arguments))
         CROSS JOIN LATERAL (VALUES
               ('function missing', 'may miss rows', p.oid IS NULL AND d.name <> search),
               ('function altered', 'may miss rows',
                p.oid IS NOT NULL
                AND (p.prosrc <> d.body OR p.proconfig IS DISTINCT FROM d.settings
                     OR p.prosecdef <> (d.head LIKE '%SECURITY DEFINER%')
                     OR p.provolatile <> CASE WHEN d.head LIKE '%STABLE%' THEN 's' ELSE 'v' END)),
               -- pg_restore --no-acl leaves it like this.
               ('function can be called by others', 'grants to others',
                d.head LIKE '%SECURITY DEFINER%' AND EXISTS (SELECT simsql._other_callers(p.oid))))
               AS f (problem, effect, is_so)
         WHERE f.is_so;
        RETURN QUERY
        SELECT b.problem, b.object, 'B-trees missing', 'slows', NULL, NULL, repair
          FROM simsql._verify_btree(index.table_id, simsql._btree_columns(actual)) AS b;
    END IF;
END
$$;

-- Reports that a table has no valid B-tree on these columns.
CREATE OR REPLACE FUNCTION simsql._verify_btree(table_id regclass, column_names text[]) RETURNS TABLE (problem text, object text)
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    btrees constant regclass[] := ARRAY(SELECT b.index FROM simsql._btrees(table_id, column_names) AS b WHERE NOT b.valid);
BEGIN
    IF EXISTS (SELECT FROM simsql._btrees(table_id, column_names) AS b WHERE b.valid) THEN
        RETURN;
    ELSIF btrees = '{}' THEN
        RETURN QUERY SELECT 'B-tree missing', format('%s (%s)', table_id, simsql._name_list(column_names));
    END IF;
    RETURN QUERY SELECT 'B-tree invalid', b::text FROM unnest(btrees) AS b;
END
$$;

-- Whether searches accept an index.
CREATE OR REPLACE FUNCTION simsql._is_searchable(index simsql.registry) RETURNS boolean
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN NOT EXISTS (SELECT FROM simsql._faults(index) AS f WHERE f.effect IN ('refuses', 'refuses this role'));
END
$$;

CREATE OR REPLACE FUNCTION simsql._raise(fault simsql._fault) RETURNS void
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RAISE EXCEPTION 'simsql: %', fault.message
        USING ERRCODE = CASE fault.problem WHEN 'index dropped' THEN 'undefined_object' ELSE 'object_not_in_prerequisite_state' END,
              HINT = concat_ws(' ', fault.advice, fault.remedy);
END
$$;

-- Raises the first fault that makes searches refuse an index. To a build, it is not one that the index is not ready.
CREATE OR REPLACE FUNCTION simsql._check_sound(index simsql.registry, is_building boolean DEFAULT false) RETURNS void
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    PERFORM simsql._raise(f)
       FROM simsql._faults(index) AS f
      WHERE f.effect IN ('refuses', 'refuses this role') AND NOT (is_building AND f.problem = 'not ready');
END
$$;

-- Raises an error if the columns of an index do not have the names that its triggers use. They read no table of simsql.
CREATE OR REPLACE FUNCTION simsql._check_columns(table_id regclass, index_id integer, column_names text[]) RETURNS void
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    PERFORM simsql._raise(f)
       FROM simsql._column_faults(table_id, column_names, simsql._current_columns(table_id, index_id, column_names)) AS f;
END
$$;
