-- Scopes: columns of the user's table that a search is confined to, such as a tenant or a language.
--
-- They lead the keys, as scope_1, scope_2 and so on: under names of its own a table of keys has nothing to follow when
-- columns are renamed. All keys of a scope stand side by side, in the order of keys, so that a search reads ranges
-- of its own scope and nothing else. A row with a null in a scope column is in no scope and has no keys.

-- The type as which the values of a column are compared: of a domain, the one below it. Its length or precision is
-- left out, since a cast to it would make other values of those that do not fit.
CREATE OR REPLACE FUNCTION simsql._scope_type(table_id regclass, column_name text) RETURNS oid
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    type_id oid := (SELECT a.atttypid FROM pg_attribute AS a
                     WHERE a.attrelid = table_id AND a.attname = column_name AND a.attnum > 0 AND NOT a.attisdropped);
    below oid;
BEGIN
    LOOP
        SELECT t.typbasetype INTO below FROM pg_type AS t WHERE t.oid = type_id AND t.typtype = 'd';
        EXIT WHEN NOT FOUND;
        type_id := below;
    END LOOP;
    RETURN type_id;
END
$$;

-- Raises unless these columns can be a scope. Their equality has to be the one that `=` means under the search_path of
-- simsql's functions, and leakproof: else it would be no index condition where row-level security is active, as
-- it is on the tables of keys.
CREATE OR REPLACE FUNCTION simsql._check_scope_columns(table_id regclass, column_name text, scope text[], caller text) RETURNS void
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    scope_column text;
    attribute pg_attribute;
    type_id oid;
BEGIN
    IF cardinality(scope) > 4 THEN
        RAISE EXCEPTION 'simsql.%: a scope of % columns', caller, cardinality(scope)
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Take at most four.';
    ELSIF array_ndims(scope) > 1 OR cardinality(scope) <> (SELECT count(DISTINCT c) FROM unnest(scope) AS c)
          OR column_name = ANY (scope)
    THEN
        RAISE EXCEPTION 'simsql.%: %(%) cannot have the scope %', caller, table_id, quote_ident(column_name), scope
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Name each column once, and not the column of fingerprints.';
    END IF;
    FOREACH scope_column IN ARRAY coalesce(scope, '{}') LOOP
        SELECT a.* INTO attribute FROM pg_attribute AS a
         WHERE a.attrelid = table_id AND a.attname = scope_column AND a.attnum > 0 AND NOT a.attisdropped;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'simsql.%: % has no column %', caller, table_id, quote_ident(scope_column)
                USING ERRCODE = 'undefined_column', HINT = 'A scope names columns as the table has them, without quotes.';
        ELSIF attribute.attgenerated = 'v' THEN
            RAISE EXCEPTION 'simsql.%: column % of % is a virtual generated column', caller, quote_ident(scope_column), table_id
                USING ERRCODE = 'feature_not_supported', HINT = 'Make it a stored column: it has to have a B-tree.';
        END IF;
        type_id := simsql._scope_type(table_id, scope_column);
        IF NOT EXISTS (
            SELECT FROM pg_opclass AS o
              JOIN pg_am AS m ON m.oid = o.opcmethod AND m.amname = 'btree'
              JOIN pg_amop AS a ON a.amopfamily = o.opcfamily AND a.amopstrategy = 3
                               AND a.amoplefttype = o.opcintype AND a.amoprighttype = o.opcintype
              JOIN pg_operator AS e ON e.oid = a.amopopr
              JOIN pg_proc AS f ON f.oid = e.oprcode
             WHERE o.opcdefault AND o.opcnamespace = 'pg_catalog'::regnamespace AND f.proleakproof
               AND o.opcintype = CASE WHEN type_id = 'varchar'::regtype THEN 'text'::regtype ELSE type_id END
               -- A claim hashes its scope.
               AND EXISTS (SELECT FROM pg_opclass AS h JOIN pg_am AS m ON m.oid = h.opcmethod AND m.amname = 'hash'
                            WHERE h.opcdefault AND h.opcintype = o.opcintype))
        THEN
            RAISE EXCEPTION 'simsql.%: column % of % is %, which cannot be a scope', caller, quote_ident(scope_column), table_id,
                            format_type(attribute.atttypid, attribute.atttypmod)
                USING ERRCODE = 'datatype_mismatch',
                      HINT = 'Take a column of integers, text, uuid, date, timestamp or boolean.';
        END IF;
    END LOOP;
END
$$;

-- The scope columns of an index: what they are called in its tables of keys and in the user's table, and their types,
-- which are null where there is no such table.
CREATE OR REPLACE FUNCTION simsql._scope_columns(index simsql.registry)
RETURNS TABLE (number integer, name text, column_name text, type text)
LANGUAGE plpgsql STABLE
AS $$
#variable_conflict use_column
BEGIN
    IF cardinality(index.scope_columns) = 0 THEN
        RETURN;
    END IF;
    RETURN QUERY
    SELECT s.number::integer, 'scope_' || s.number, s.column_name, format_type(a.atttypid, -1)
      FROM unnest(index.scope_columns) WITH ORDINALITY AS s (column_name, number)
      LEFT JOIN pg_attribute AS a
        ON a.attrelid = to_regclass(format('simsql.keys_%s_0', index.id)) AND a.attname = 'scope_' || s.number;
END
$$;

-- A text made of this pattern once for each scope column, and so empty for an index without a scope. In the pattern
-- %1$s is the name in the tables of keys, and %2$I the name in the user's table.
CREATE OR REPLACE FUNCTION simsql._for_scope(index simsql.registry, pattern text) RETURNS text
LANGUAGE sql STABLE
AS $$
    SELECT coalesce(string_agg(format(pattern, s.name, s.column_name), '' ORDER BY s.number), '')
      FROM simsql._scope_columns(index) AS s
$$;

-- The columns of a table of keys, and those of the user's table for which there has to be a B-tree.
CREATE OR REPLACE FUNCTION simsql._key_columns(index simsql.registry) RETURNS text[]
LANGUAGE sql STABLE
AS $$ SELECT ARRAY(SELECT s.name FROM simsql._scope_columns(index) AS s ORDER BY s.number) || 'key'::text $$;

CREATE OR REPLACE FUNCTION simsql._btree_columns(index simsql.registry) RETURNS text[]
LANGUAGE sql STABLE
AS $$ SELECT index.scope_columns || index.column_name $$;

-- Names as a list in SQL.
CREATE OR REPLACE FUNCTION simsql._name_list(names text[]) RETURNS text
LANGUAGE sql STABLE
AS $$ SELECT string_agg(quote_ident(n.name), ', ' ORDER BY n.number) FROM unnest(names) WITH ORDINALITY AS n (name, number) $$;

-- The condition that a row of the user's table, called t, or else a key, called otherwise, is in this scope. It begins with
-- AND, and is empty for an index without a scope.
CREATE OR REPLACE FUNCTION simsql._in_scope(index simsql.registry, scope jsonb, alias text) RETURNS text
LANGUAGE sql STABLE
AS $$
    SELECT coalesce(string_agg(format(' AND %s.%I = %L::%s', alias, CASE alias WHEN 't' THEN s.column_name ELSE s.name END,
                                      scope ->> s.column_name, s.type), '' ORDER BY s.number), '')
      FROM simsql._scope_columns(index) AS s
$$;

-- The condition that rows stand behind the place at which a batch has ended, in the order of the scope and then of this
-- column: the place is a scope, as text, and a value of the column. Scope columns are named by a pattern, as for
-- _for_scope. Null where there is no place, before the first batch.
CREATE OR REPLACE FUNCTION simsql._from_place(
    index simsql.registry, scope text[], pattern text, last_column text, operator text, value text)
RETURNS text
LANGUAGE sql STABLE
AS $$
    SELECT CASE WHEN scope IS NOT NULL OR cardinality(index.scope_columns) = 0
                THEN format('(%s%s) %s (%s%s)', simsql._for_scope(index, pattern || ', '), last_column, operator,
                            string_agg(format('%L::%s, ', scope[s.number], s.type), '' ORDER BY s.number), value) END
      FROM simsql._scope_columns(index) AS s
$$;

-- Raises unless a search names a value for each scope column of its index, and nothing else.
CREATE OR REPLACE FUNCTION simsql._check_scope(table_id regclass, column_name text, scope_columns text[], scope jsonb) RETURNS void
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    wrong text;
    how constant text := (SELECT format('Give a value of each column: scope => jsonb_build_object(%s)',
                                        string_agg(format('%L, ...', c.name), ', ' ORDER BY c.number))
                            FROM unnest(scope_columns) WITH ORDINALITY AS c (name, number));
BEGIN
    IF cardinality(scope_columns) = 0 THEN
        IF scope IS NOT NULL THEN
            RAISE EXCEPTION 'simsql: the simhash index on %(%) has no scope', table_id, quote_ident(column_name)
                USING ERRCODE = 'invalid_parameter_value',
                      HINT = 'Search without one, or drop the index and create it anew with a scope.';
        END IF;
        RETURN;
    END IF;
    IF scope IS NULL THEN
        RAISE EXCEPTION 'simsql: the simhash index on %(%) is searched within a scope, and none is given', table_id, quote_ident(column_name)
            USING ERRCODE = 'invalid_parameter_value', HINT = how;
    ELSIF jsonb_typeof(scope) <> 'object' THEN
        RAISE EXCEPTION 'simsql: a scope is a JSON object, not %', scope
            USING ERRCODE = 'invalid_parameter_value', HINT = how;
    END IF;
    SELECT string_agg(CASE WHEN s.value IS NULL THEN 'no value of ' || quote_ident(s.wanted)
                           WHEN s.wanted IS NULL THEN 'no such column: ' || quote_ident(s.key)
                           ELSE quote_ident(s.key) || ' is ' || s.value::text END, ', ' ORDER BY s.wanted, s.key)
      INTO wrong
      FROM (jsonb_each(scope) AS e FULL JOIN unnest(scope_columns) AS c (wanted) ON c.wanted = e.key) AS s
     WHERE s.value IS NULL OR s.wanted IS NULL OR jsonb_typeof(s.value) NOT IN ('string', 'number', 'boolean');
    IF wrong IS NOT NULL THEN
        RAISE EXCEPTION 'simsql: that is no scope of the simhash index on %(%): %', table_id, quote_ident(column_name), wrong
            USING ERRCODE = 'invalid_parameter_value', HINT = how || ', a string, a number or a boolean.';
    END IF;
END
$$;
