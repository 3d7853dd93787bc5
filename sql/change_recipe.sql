-- change_recipe: gives an index another recipe while others read and write. simsql/database/change_recipe.py
-- computes the fingerprints, and calls these functions, each in a transaction of its own.
--
-- The new fingerprints go into a second column, simsql_N_next for the index N, with an index of its own. No
-- search sees that one. A trigger clears what an update of the text makes stale, whoever writes, and rows that
-- others insert have no new fingerprint: so what has to be computed is always what is null. The last
-- transaction drops the old column with its index, and gives its name to the second one.
--
-- The index gets the id of the second one, whose functions no search calls that has begun with the old one.

CREATE OR REPLACE FUNCTION simsql._next_column(index simsql.registry) RETURNS text
LANGUAGE sql IMMUTABLE
RETURN format('simsql_%s_next', index.id);

-- What the end of the change would drop or leave behind: everything that depends on the column, apart from
-- what belongs to its index, and what the second column does not have.
CREATE OR REPLACE FUNCTION simsql._column_obstacles(index simsql.registry) RETURNS SETOF text
LANGUAGE sql STABLE
AS $$
    SELECT pg_describe_object(d.classid, d.objid, d.objsubid)
      FROM pg_attribute AS a
      JOIN pg_depend AS d ON d.refclassid = 'pg_class'::regclass AND d.refobjid = a.attrelid
                         AND d.refobjsubid = a.attnum
     WHERE a.attrelid = index.table_id AND a.attname = index.column_name
       AND NOT (d.classid = 'pg_trigger'::regclass
                AND (SELECT t.tgname ~ '^(simsql_\d+|zz_simsql_clear_\d+)(_|$)' FROM pg_trigger AS t
                      WHERE t.oid = d.objid))
       AND NOT (d.classid = 'pg_class'::regclass
                AND (d.objid IN (SELECT b.index
                                   FROM simsql._btrees(a.attrelid,
                                                       index.scope_columns || index.column_name) AS b
                                   JOIN pg_index AS i ON i.indexrelid = b.index
                                  WHERE i.indnatts = 1 + cardinality(index.scope_columns)
                                    AND NOT i.indisunique)
                     OR (SELECT c.relname FROM pg_class AS c WHERE c.oid = d.objid) ~ '^simsql_\d+_\d+$'))
     UNION ALL
    SELECT 'NOT NULL' FROM pg_attribute AS a
     WHERE a.attrelid = index.table_id AND a.attname = index.column_name AND a.attnotnull
$$;

-- The recipe of the fingerprints in the second column, its comment; null if there is no such column.
CREATE OR REPLACE FUNCTION simsql._next_recipe(index simsql.registry) RETURNS text
LANGUAGE sql STABLE
AS $$
    SELECT col_description(a.attrelid, a.attnum) FROM pg_attribute AS a
     WHERE a.attrelid = index.table_id AND a.attname = simsql._next_column(index) AND NOT a.attisdropped
$$;

-- Adds the second column and its trigger, unless they are there or the index has this recipe.
CREATE OR REPLACE FUNCTION simsql._begin_recipe_change(
    table_name regclass, column_name text, recipe text, sources text[])
RETURNS simsql.registry
LANGUAGE plpgsql
AS $$
DECLARE
    index simsql.registry;
    next_column text;
    trigger text;
    obstacles text;
    privileges text;
BEGIN
    PERFORM simsql._take_turn(table_name, 'change_recipe');
    index := simsql._index(table_name, column_name);
    next_column := simsql._next_column(index);
    IF simsql._next_recipe(index) IS NOT NULL OR index.recipe = _begin_recipe_change.recipe THEN
        RETURN index;
    END IF;
    PERFORM simsql._check_indexable(table_name, index.column_name, index.scope_columns, index.storage,
                                    'change_recipe');
    PERFORM simsql._check_upkeep(index, 'change_recipe');
    PERFORM simsql._backfill_parts(table_name, ARRAY[index.column_name], sources, false);
    SELECT string_agg(o, ', ') INTO obstacles FROM simsql._column_obstacles(index) AS o;
    IF simsql._is_distributed(table_name) THEN
        RAISE EXCEPTION 'simsql.change_recipe: table % is managed by Citus', table_name
            USING ERRCODE = 'feature_not_supported',
                  HINT = 'Drop the index, fill the column with the new fingerprints, and create it again.';
    ELSIF obstacles IS NOT NULL THEN
        RAISE EXCEPTION 'simsql.change_recipe: column % of % will be replaced, but it has: %',
                        quote_ident(index.column_name), table_name, obstacles
            USING ERRCODE = 'dependent_objects_still_exist',
                  HINT = 'Drop them first, and create them again afterwards.';
    END IF;
    PERFORM simsql._lock(table_name, 'ACCESS EXCLUSIVE', 'change_recipe');
    EXECUTE format('ALTER TABLE %1$s ADD COLUMN %2$I bigint; COMMENT ON COLUMN %1$s.%2$I IS %3$L', table_name,
                   next_column, recipe);
    FOR privileges IN
        SELECT simsql._render('GRANT {privilege} ({"column"}) ON {table} TO {grantee} {option}',
                   jsonb_build_object(
                       'privilege', p.privilege_type, 'column', next_column, 'table', table_name::text,
                       'grantee', CASE p.grantee WHEN 0 THEN 'PUBLIC' ELSE p.grantee::regrole::text END,
                       'option', CASE WHEN p.is_grantable THEN 'WITH GRANT OPTION' END))
          FROM pg_attribute AS a CROSS JOIN LATERAL aclexplode(a.attacl) AS p
         WHERE a.attrelid = table_name AND a.attname = index.column_name
    LOOP
        EXECUTE privileges;
    END LOOP;
    PERFORM simsql.clear_on_change(table_name, next_column, sources);
    -- It fires when logical replication applies a change, too.
    FOR trigger IN SELECT c.name FROM simsql._clearing_triggers(table_name, next_column) AS c (name)
                    WHERE c.name NOT LIKE '%column' LOOP
        PERFORM simsql._set_firing(table_name, trigger, 'A');
    END LOOP;
    RETURN index;
END
$$;

-- Stops all writers of a table and its partitions until the end of the transaction, also those that have
-- locked rows; searches go on.
CREATE OR REPLACE FUNCTION simsql._stop_writers(table_name regclass) RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM simsql._take_turn(table_name, 'change_recipe');
    PERFORM simsql._lock(table_name, 'EXCLUSIVE', 'change_recipe');
END
$$;

-- Replaces the column of an index by the second one, whose fingerprints are complete, and returns the id of the
-- index. The caller has stopped the writers.
CREATE OR REPLACE FUNCTION simsql._end_recipe_change(table_name regclass, column_name text) RETURNS integer
LANGUAGE plpgsql
AS $$
DECLARE
    index constant simsql.registry := simsql._index(table_name, column_name);
    next_column constant text := simsql._next_column(index);
    comment constant text := (SELECT col_description(a.attrelid, a.attnum) FROM pg_attribute AS a
                               WHERE a.attrelid = table_name AND a.attname = index.column_name);
    clears constant boolean := EXISTS (SELECT FROM simsql._clearing_triggers(table_name, index.column_name));
    btrees constant name[] := ARRAY(
        SELECT c.relname FROM simsql._btrees(table_name, simsql._btree_columns(index)) AS b
          JOIN pg_class AS c ON c.oid = b.index ORDER BY b.valid DESC, c.relname);
    next simsql.registry;
    btree regclass;
BEGIN
    SELECT r.* INTO next FROM simsql.registry AS r
     WHERE r.table_id = index.table_id AND r.column_name = next_column;
    PERFORM simsql._check_sound(next);
    PERFORM simsql._lock_out(index, 'change_recipe');
    PERFORM simsql._drop_objects(index);
    IF clears THEN
        PERFORM simsql.drop_clear_on_change(table_name, index.column_name);
    ELSE
        PERFORM simsql.drop_clear_on_change(table_name, next_column);
    END IF;
    EXECUTE simsql._render($sql$
        ALTER TABLE {table} DROP COLUMN {"column"};
        ALTER TABLE {table} RENAME COLUMN {"next"} TO {"column"};
        COMMENT ON COLUMN {table}.{"column"} IS {comment}$sql$,
        jsonb_build_object('table', table_name, 'column', index.column_name, 'next', next_column,
                           'comment', quote_nullable(comment)));
    PERFORM simsql._follow_names(table_name);
    SELECT r.* INTO next FROM simsql.registry AS r WHERE r.id = next.id;
    SELECT b.index INTO btree FROM simsql._btrees(next.table_id, simsql._btree_columns(next)) AS b
     WHERE b.valid LIMIT 1;
    IF cardinality(btrees) > 0 THEN
        EXECUTE format('ALTER INDEX %s RENAME TO %I', btree, btrees[1]);
    END IF;
    PERFORM simsql._create_functions(next);
    PERFORM simsql._create_triggers(next);
    PERFORM simsql._check_sound(next);
    RETURN next.id;
END
$$;
