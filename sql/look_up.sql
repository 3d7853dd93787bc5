-- Finds the index that a statement refers to, or raises an error that tells what is wrong with it.

-- The numbers of the columns of an index, the fingerprint column and then the scope, in its trigger or, without triggers, in the
-- first of its B-trees that there is; null if there is neither. The catalogue and pg_dump carry both along when columns are
-- renamed. An index that has the name of such a B-tree, and is on something else, tells nothing.
CREATE OR REPLACE FUNCTION simsql._column_numbers(table_id regclass, index_id integer) RETURNS smallint[]
LANGUAGE sql STABLE
AS $$
    SELECT coalesce(
        (SELECT ARRAY(SELECT n FROM unnest(t.tgattr) AS n)
           FROM pg_trigger AS t WHERE t.tgrelid = table_id AND t.tgname = 'simsql_' || index_id || '_column'),
        (SELECT ARRAY(SELECT k.number FROM unnest(i.indkey) WITH ORDINALITY AS k (number, place)
                       WHERE k.number <> 0 AND k.place <= i.indnkeyatts ORDER BY k.place = i.indnkeyatts DESC, k.place)
           FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid
          WHERE i.indrelid = table_id
            AND CASE WHEN c.relname ~ ('^simsql_' || index_id || '_\d+$')
                     THEN starts_with(pg_get_indexdef(i.indexrelid, i.indnkeyatts - 1, false),
                                      '((' || pg_get_indexdef(i.indexrelid, i.indnkeyatts, false) || ' & ') END
          ORDER BY length(c.relname), c.relname LIMIT 1))
$$;

-- The table that has replaced that of an index, with its name, B-trees and triggers; null if there is none. Citus re-creates
-- a table whose distribution changes. (B-trees in a schema have different names, so no other table can have this one.)
-- It reads the catalogue: to_regclass fails for a role that may not use the schema, and roles see all indexes in simsql.indexes.
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

-- Registers a re-created table instead of the one that it has replaced. Its indexes may have faults. It may belong to another role,
-- whose readers must not see the keys of the old rows.
CREATE OR REPLACE FUNCTION simsql._follow_table(table_name regclass) RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    index_id integer;
    keys text;
BEGIN
    FOR index_id IN SELECT r.id FROM simsql.registry AS r WHERE simsql._recreated(r) = _follow_table.table_name LOOP
        SELECT string_agg(c.oid::regclass::text, ', ') INTO keys FROM pg_class AS c
         WHERE c.relnamespace = 'simsql'::regnamespace AND c.relname ~ format('^(keys_%1$s_\d+|built_%1$s)$', index_id)
           AND c.relkind = 'r';
        IF keys IS NOT NULL THEN
            EXECUTE 'TRUNCATE ' || keys;
        END IF;
        UPDATE simsql.registry AS r SET table_id = _follow_table.table_name WHERE r.id = index_id;
    END LOOP;
END
$$;

-- Raises an error unless the columns of an index, the fingerprint column and then the scope, still have the names that the
-- index's functions use. Otherwise columns that swapped names would silently be mixed up. The names are the current ones,
-- whatever the snapshot. `writes` tells that the numbers of the columns may be unknown: to a writer with an older snapshot, or
-- because the B-tree is missing.
CREATE OR REPLACE FUNCTION simsql._check_columns(table_id regclass, index_id integer, column_names text[], writes boolean)
RETURNS void
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    numbers constant smallint[] := simsql._column_numbers(table_id, index_id);
    found_names text[] := CASE WHEN numbers IS NOT NULL THEN ARRAY(
        SELECT (pg_identify_object_as_address('pg_class'::regclass, table_id, n)).object_names[3] FROM unnest(numbers) AS n) END;
    is_known constant boolean := found_names IS NOT NULL;
    wanted text;
    found_name text;
BEGIN
    -- PostgreSQL does not pass values of such a column to a trigger.
    IF writes AND NOT is_known
       AND EXISTS (SELECT FROM pg_attribute AS a
                    WHERE a.attrelid = table_id AND a.attname = ANY (column_names) AND a.attgenerated = 'v')
    THEN
        RAISE EXCEPTION 'simsql: column % of % was replaced by a virtual generated column after its simhash index was created',
                        quote_ident(column_names[1]), table_id
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = format('Drop the index: SELECT simsql.drop_index(%L, %L);', table_id, column_names[1]);
    END IF;
    IF NOT is_known THEN
        -- Either a column was dropped, or the snapshot is older than the index, which is not an error for a writer.
        found_names := ARRAY(SELECT a.attname::text
                               FROM unnest(column_names) WITH ORDINALITY AS n (name, number)
                               LEFT JOIN pg_attribute AS a
                                 ON a.attrelid = table_id AND a.attname = n.name AND NOT a.attisdropped
                              ORDER BY n.number);
    END IF;
    IF found_names IS DISTINCT FROM column_names OR NOT (is_known OR writes) THEN
        SELECT n.wanted, n.found INTO wanted, found_name
          FROM unnest(column_names, found_names) AS n (wanted, found) WHERE n.wanted IS DISTINCT FROM n.found LIMIT 1;
        RAISE EXCEPTION 'simsql: column % of % was renamed or dropped after its simhash index was created',
                        quote_ident(coalesce(wanted, column_names[1])), table_id
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = CASE WHEN found_name IS NULL
                         THEN format('If it was dropped: SELECT simsql.drop_index(%L, %L);', table_id, column_names[1])
                         ELSE format('Rename it back, or let the index follow the column: '
                                     'SELECT * FROM simsql.repair(%L);', table_id) END;
    END IF;
END
$$;

-- Raises an error unless an index fits its table and its triggers have been enabled ever since it was created.
CREATE OR REPLACE FUNCTION simsql._check_sound(index simsql.registry) RETURNS void
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    keys constant regclass := to_regclass(format('simsql.keys_%s_0', index.id));
    altered record;
    refusal record;
BEGIN
    IF to_regclass(index.table_name) IS DISTINCT FROM index.table_id THEN
        RAISE EXCEPTION 'simsql: table % was called % when its simhash index was created', index.table_id, index.table_name
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = format('Rename it back, or let the index follow the table: SELECT * FROM simsql.repair(%L);',
                                index.table_id);
    END IF;
    PERFORM simsql._check_columns(index.table_id, index.id, index.column_name || index.scope_columns,
                                  writes => index.storage = 'expression');
    SELECT a.* INTO altered FROM simsql._altered_columns(index) AS a ORDER BY a.can_follow LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'simsql: column % of % changed its type after its simhash index was created', quote_ident(altered.name),
                        index.table_id
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = CASE WHEN altered.can_follow
                         THEN format('Let the index follow: SELECT * FROM simsql.repair(%L);', index.table_id)
                         ELSE format('Drop the index: SELECT simsql.drop_index(%L, %L);', index.table_id, index.column_name) END;
    END IF;
    SELECT r.* INTO refusal FROM simsql._citus_refusal(index) AS r;
    IF refusal.reason IS NOT NULL THEN
        RAISE EXCEPTION 'simsql: %', refusal.reason
            USING ERRCODE = 'object_not_in_prerequisite_state', HINT = refusal.hint;
    ELSIF index.storage = 'expression' AND to_regproc('simsql.search_' || index.id) IS NOT NULL THEN
        RETURN;  -- a search reads the rows themselves
    END IF;
    -- DISABLE TRIGGER ALL disables even ENABLE ALWAYS triggers, and the ENABLE TRIGGER ALL that follows it in a restore does
    -- not make them ENABLE ALWAYS again. So this detects it.
    IF index.storage = 'tables'
       AND (SELECT count(*) FROM simsql._storage_triggers(index) AS d
              JOIN pg_trigger AS t ON t.tgrelid = index.table_id AND t.tgname = d.name AND t.tgenabled = d.fires) < 3
    THEN
        RAISE EXCEPTION 'simsql: triggers of the simhash index on %(%) have been disabled or dropped', index.table_id,
                        quote_ident(index.column_name)
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = format('It lacks rows that were written in the meantime: SELECT * FROM simsql.repair(%L);', index.table_id);
    END IF;
    IF keys IS NULL THEN
        RAISE EXCEPTION 'simsql: the simhash index on %(%) was dropped after this transaction took its snapshot',
                        index.table_id, quote_ident(index.column_name)
            USING ERRCODE = 'undefined_object', HINT = 'Start a new transaction.';
    END IF;
    -- ALTER TABLE SET LOGGED leaves the key tables unlogged: a crash would empty them but keep the rows.
    IF (SELECT c.relpersistence FROM pg_class AS c WHERE c.oid = keys) = 'u'
       AND (SELECT c.relpersistence FROM pg_class AS c WHERE c.oid = index.table_id) <> 'u'
    THEN
        RAISE EXCEPTION 'simsql: table % was set logged after its simhash index was created', index.table_id
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = format('Make its key tables logged too: SELECT * FROM simsql.repair(%L);', index.table_id);
    END IF;
    -- Writes through a parent table fire only the statement triggers of the parent.
    IF EXISTS (SELECT FROM pg_inherits WHERE inhrelid = index.table_id)
       OR EXISTS (SELECT FROM pg_inherits WHERE inhparent = index.table_id)
    THEN
        RAISE EXCEPTION 'simsql: table % became part of an inheritance tree after its simhash index was created',
                        index.table_id
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = format('Rows written through another table are not indexed: detach the table, then '
                                'SELECT * FROM simsql.repair(%L);', index.table_id);
    END IF;
END
$$;

-- Makes this session see what other sessions have committed: new names, and functions that repair has replaced. A transaction
-- learns of it when it takes a lock that it does not hold, so one that has searched may never learn of it, and would search a
-- table that has taken over the name. This takes a lock on a relation that nothing else locks in this mode, and releases it.
-- PostgreSQL inlines it.
CREATE OR REPLACE FUNCTION simsql._is_current() RETURNS boolean
LANGUAGE sql VOLATILE
RETURN pg_relation_is_updatable('simsql.registry_id_seq'::regclass, false) IS NOT NULL;

-- Returns the index of a column, as the caller's snapshot sees it, or raises an error that tells what is wrong with it.
CREATE OR REPLACE FUNCTION simsql._index(table_name regclass, column_name text) RETURNS simsql.registry
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    found_index simsql.registry;
    columns text[];
    is_current constant boolean := simsql._is_current();
BEGIN
    BEGIN
        SELECT r.* INTO STRICT found_index
          FROM simsql.registry AS r
         WHERE r.table_id = _index.table_name AND (_index.column_name IS NULL OR r.column_name = _index.column_name);
    EXCEPTION
        WHEN no_data_found THEN
            IF EXISTS (SELECT FROM simsql.registry AS r WHERE simsql._recreated(r) = _index.table_name) THEN
                RAISE EXCEPTION 'simsql: table % was re-created after its simhash index was created', table_name
                    USING ERRCODE = 'object_not_in_prerequisite_state',
                          HINT = format('Let the index follow: SELECT * FROM simsql.repair(%L);', table_name);
            END IF;
            RAISE EXCEPTION 'simsql: % has no simhash index%', table_name,
                            coalesce(' on column ' || quote_ident(column_name), '')
                USING ERRCODE = 'undefined_object',
                      HINT = format('Create it with SELECT simsql.create_index(%L, %L). An index that was '
                                    'created after this transaction took its snapshot is not visible to it.',
                                    table_name, coalesce(column_name, 'fingerprint'));
        WHEN too_many_rows THEN
            columns := ARRAY(SELECT r.column_name FROM simsql.registry AS r WHERE r.table_id = _index.table_name ORDER BY r.id);
            RAISE EXCEPTION 'simsql: % has % simhash indexes', table_name, cardinality(columns)
                USING ERRCODE = 'ambiguous_column',
                      HINT = format('Name the column: column_name => one of %s.', array_to_string(columns, ', '));
    END;
    PERFORM simsql._check_sound(found_index);
    IF NOT found_index.ready THEN
        RAISE EXCEPTION 'simsql: the simhash index on %(%) is still being built', table_name, quote_ident(found_index.column_name)
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = format('Wait for the build to finish. If it was interrupted: %s', simsql._build_call(found_index));
    END IF;
    RETURN found_index;
END
$$;

-- The current name of a column, whatever the snapshot; null without a number. PostgreSQL inlines it.
CREATE OR REPLACE FUNCTION simsql._column_name(table_id oid, number smallint) RETURNS text
LANGUAGE sql STABLE
RETURN (pg_identify_object_as_address('pg_class'::regclass, table_id, number)).object_names[3];

-- Whether a search in an index without triggers finds its table and its columns under their names; whoever wrote, it is exact.
-- If its first B-tree differs from what create_index made, _index looks at more. It is a function because subqueries in the view
-- below cost time even where they are not evaluated.
CREATE OR REPLACE FUNCTION simsql._is_sound(index simsql.registry) RETURNS boolean
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN index.ready
           AND to_regclass(index.table_name) = index.table_id
           AND to_regproc('simsql.search_' || index.id) IS NOT NULL
           AND (SELECT ARRAY(SELECT simsql._column_name(i.indrelid, k.number)
                               FROM unnest(i.indkey) WITH ORDINALITY AS k (number, place) WHERE k.number <> 0 ORDER BY k.place)
                  FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid
                 WHERE i.indrelid = index.table_id AND starts_with(c.relname, 'simsql_' || index.id || '_') AND 0 = ANY (i.indkey)
                 ORDER BY length(c.relname), c.relname LIMIT 1)
               = index.scope_columns || index.column_name
           -- As in _altered_columns, which takes longer.
           AND EXISTS (SELECT FROM pg_attribute AS a WHERE a.attrelid = index.table_id AND a.attname = index.column_name
                          AND a.atttypid = 'bigint'::regtype)
           AND (index.scope_columns = '{}'
                OR NOT EXISTS (SELECT FROM unnest(index.scope_columns, index.scope_types) AS s (name, type)
                                 JOIN pg_attribute AS a ON a.attrelid = index.table_id AND a.attname = s.name
                                WHERE a.atttypid IS DISTINCT FROM s.type
                                  AND simsql._base_type(a.atttypid) IS DISTINCT FROM s.type))
           AND (simsql._citus_refusal(index)).reason IS NULL;
END
$$;

-- Every index, and whether it is sound: a search reads this in one statement, instead of everything that _index checks. `sound`
-- is never true if _index would raise an error. If it is false, _index tells why, or that the index can be searched after all.
-- The triggers are read in one scan: reading one of them takes as long as reading all triggers of a table. A trigger with a
-- condition never runs, enabled or not (see _tables_triggers); one of the two tells the columns, fingerprint first. What follows
-- a name is never empty, so no other name can pass for one of these.
-- (A publishable table is a logged one.)
CREATE OR REPLACE VIEW simsql._searchable AS
SELECT r.id, r.table_id, r.column_name, r.distance, r.scope_columns,
       (CASE r.storage WHEN 'tables' THEN
        r.ready
        AND NOT (SELECT c.relhassubclass FROM pg_class AS c WHERE c.oid = r.table_id)
        AND to_regclass(r.table_name) = r.table_id
        AND ARRAY(SELECT t.tgname || CASE WHEN t.tgqual IS NULL THEN t.tgenabled::text
                                          WHEN t.tgattr[0] IS NOT NULL THEN ARRAY[
                                               simsql._column_name(t.tgrelid, t.tgattr[0]), simsql._column_name(t.tgrelid, t.tgattr[1]),
                                               simsql._column_name(t.tgrelid, t.tgattr[2]), simsql._column_name(t.tgrelid, t.tgattr[3]),
                                               simsql._column_name(t.tgrelid, t.tgattr[4])]::text
                                          ELSE '!' END
                    FROM pg_trigger AS t WHERE t.tgrelid = r.table_id)
            @> ARRAY['simsql_' || r.id || '_insertA', 'simsql_' || r.id || '_updateA', 'simsql_' || r.id || '_replicaR',
                     'simsql_' || r.id || '_column' || ARRAY[r.column_name, r.scope_columns[1], r.scope_columns[2],
                                                             r.scope_columns[3], r.scope_columns[4]]::text,
                     'simsql_' || r.id || '_no_parent!']
        AND (pg_relation_is_publishable(to_regclass('simsql.keys_' || r.id || '_0'))
             OR to_regclass('simsql.keys_' || r.id || '_0') IS NOT NULL AND NOT pg_relation_is_publishable(r.table_id))
        ELSE simsql._is_sound(r)
        END) IS TRUE AS sound
  FROM simsql.registry AS r;

GRANT SELECT ON simsql._searchable TO PUBLIC;

-- Returns the index of a column for a search within a scope, or raises an error that tells what is wrong with either.
CREATE OR REPLACE FUNCTION simsql._searched_index(table_name regclass, column_name text, scope jsonb) RETURNS simsql.registry
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    index_id integer;
    is_sound boolean;
    index simsql.registry;
    is_current constant boolean := simsql._is_current();
BEGIN
    BEGIN
        SELECT s.id, s.sound INTO STRICT index_id, is_sound
          FROM simsql._searchable AS s
         WHERE s.table_id = _searched_index.table_name
           AND (_searched_index.column_name IS NULL OR s.column_name = _searched_index.column_name);
    EXCEPTION
        WHEN no_data_found OR too_many_rows THEN PERFORM simsql._index(table_name, column_name);
    END;
    IF NOT is_sound THEN
        PERFORM simsql._index(table_name, column_name);
    END IF;
    SELECT r.* INTO index FROM simsql.registry AS r WHERE r.id = index_id;
    IF scope IS NOT NULL OR index.scope_columns <> '{}' THEN
        PERFORM simsql._check_scope(table_name, index.column_name, index.scope_columns, scope);
    END IF;
    RETURN index;
END
$$;

-- The statement that resumes a build.
CREATE OR REPLACE FUNCTION simsql._build_call(index simsql.registry) RETURNS text
LANGUAGE sql STABLE STRICT
AS $$
    SELECT format('CALL simsql.build(%L, %L, %s, %s, %s, %s, %L%s%s);', index.table_id, index.column_name, index.distance,
                  index.blocks, index.lead, index.inner_blocks, index.recipe,
                  CASE WHEN cardinality(index.scope_columns) > 0 THEN format(', %L', index.scope_columns) END,
                  CASE WHEN index.storage <> 'tables' THEN format(', storage => %L', index.storage) END)
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

-- Returns a fingerprint that a client has computed from a text, or raises an error if the index certainly has another recipe.
-- `others` is a regular expression of the recipes that cannot mean the client's: see other_recipes in Python.
CREATE OR REPLACE FUNCTION simsql._of_recipe(
    fingerprint bigint, table_name regclass, column_name text, recipe text, others text)
RETURNS bigint
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    of_index constant text := (SELECT r.recipe FROM simsql.registry AS r
                                WHERE r.table_id = _of_recipe.table_name AND r.column_name = _of_recipe.column_name);
BEGIN
    IF of_index ~ others THEN
        RAISE EXCEPTION 'simsql: %(%): the simhash index has recipe %, but the model fingerprints texts with %, and these cannot be '
                        'compared', table_name, quote_ident(column_name), of_index, recipe
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = 'Pass the recipe of the index to Fingerprint, or change the index in a migration '
                         '(alembic revision --autogenerate).';
    END IF;
    RETURN fingerprint;
END
$$;
