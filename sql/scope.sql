-- Scopes: columns of the user's table, such as a tenant or a language, whose values restrict a search.
--
-- They lead the keys, as scope_1, scope_2 and so on. With names of its own, a key table does not have to
-- follow renamed columns. All keys of a scope stand side by side, in the order of keys, so a search reads
-- ranges of its own scope only. A row with a null in a scope column belongs to no scope and has no keys.

-- The base type of a domain, or the type itself.
CREATE OR REPLACE FUNCTION simsql._base_type(type regtype) RETURNS regtype
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    below oid;
BEGIN
    LOOP
        SELECT t.typbasetype INTO below FROM pg_type AS t WHERE t.oid = type AND t.typtype = 'd';
        EXIT WHEN NOT FOUND;
        type := below;
    END LOOP;
    RETURN type;
END
$$;

-- The types by which the values of these columns are compared: for a domain, its base type. Length and
-- precision are left out, since a cast to them would change values that do not fit. Null for a column that
-- does not exist.
CREATE OR REPLACE FUNCTION simsql._scope_types(table_id regclass, scope text[]) RETURNS regtype[]
LANGUAGE sql STABLE
AS $$
    SELECT ARRAY(SELECT simsql._base_type(a.atttypid)
                   FROM unnest(scope) WITH ORDINALITY AS s (name, number)
                   LEFT JOIN pg_attribute AS a
                     ON a.attrelid = table_id AND a.attname = s.name AND a.attnum > 0 AND NOT a.attisdropped
                  ORDER BY s.number)
$$;

-- Whether columns of a type can be in a scope. Its equality has to be what `=` means under the search_path of
-- simsql's functions. It also has to be leakproof: otherwise it cannot be an index condition under row-level
-- security, which is active on key tables.
CREATE OR REPLACE FUNCTION simsql._fits_scope(type oid) RETURNS boolean
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM pg_opclass AS o
          JOIN pg_am AS m ON m.oid = o.opcmethod AND m.amname = 'btree'
          JOIN pg_amop AS a ON a.amopfamily = o.opcfamily AND a.amopstrategy = 3
                           AND a.amoplefttype = o.opcintype AND a.amoprighttype = o.opcintype
          JOIN pg_operator AS e ON e.oid = a.amopopr
          JOIN pg_proc AS f ON f.oid = e.oprcode
         WHERE o.opcdefault AND o.opcnamespace = 'pg_catalog'::regnamespace AND f.proleakproof
           AND o.opcintype = CASE WHEN type = 'varchar'::regtype THEN 'text'::regtype ELSE type END
           -- A claim hashes its scope.
           AND EXISTS (SELECT FROM pg_opclass AS h
                         JOIN pg_am AS m ON m.oid = h.opcmethod AND m.amname = 'hash'
                        WHERE h.opcdefault AND h.opcintype = o.opcintype));
END
$$;

-- Raises an error unless these columns can be a scope.
CREATE OR REPLACE FUNCTION simsql._check_scope_columns(
    table_id regclass, column_name text, scope text[], caller text)
RETURNS void
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    scope_column text;
    attribute pg_attribute;
BEGIN
    IF cardinality(scope) > 4 THEN
        RAISE EXCEPTION 'simsql.%: a scope has at most 4 columns, not %', caller, cardinality(scope)
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Name 1 to 4 columns.';
    ELSIF array_ndims(scope) > 1 OR cardinality(scope) <> (SELECT count(DISTINCT c) FROM unnest(scope) AS c)
          OR column_name = ANY (scope)
    THEN
        RAISE EXCEPTION 'simsql.%: %(%) cannot have the scope %', caller, table_id, quote_ident(column_name),
                        scope
            USING ERRCODE = 'invalid_parameter_value',
                  HINT = 'Name each column once, and leave out the fingerprint column.';
    END IF;
    FOREACH scope_column IN ARRAY coalesce(scope, '{}') LOOP
        SELECT a.* INTO attribute FROM pg_attribute AS a
         WHERE a.attrelid = table_id AND a.attname = scope_column AND a.attnum > 0 AND NOT a.attisdropped;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'simsql.%: % has no column %', caller, table_id, quote_ident(scope_column)
                USING ERRCODE = 'undefined_column',
                      HINT = 'Name scope columns as they are in the table, without quotes.';
        ELSIF attribute.attgenerated = 'v' THEN
            RAISE EXCEPTION 'simsql.%: column % of % is a virtual generated column', caller,
                            quote_ident(scope_column), table_id
                USING ERRCODE = 'feature_not_supported', HINT = 'Make it a stored column: it needs a B-tree.';
        END IF;
        IF NOT simsql._fits_scope(simsql._base_type(attribute.atttypid)) THEN
            RAISE EXCEPTION 'simsql.%: column % of % is %, which cannot be in a scope', caller,
                            quote_ident(scope_column), table_id,
                            format_type(attribute.atttypid, attribute.atttypmod)
                USING ERRCODE = 'datatype_mismatch',
                      HINT = 'Use a column of type integer, text, uuid, date, timestamp or boolean.';
        END IF;
    END LOOP;
END
$$;

-- The scope columns of an index: their names in its key tables and in the user's table, and the types by
-- which their values are compared.
CREATE OR REPLACE FUNCTION simsql._scope_columns(index simsql.registry)
RETURNS TABLE (number integer, name text, column_name text, type text)
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN QUERY
    SELECT s.number::integer, 'scope_' || s.number, s.column_name, format_type(s.type, -1)
      FROM unnest(index.scope_columns, index.scope_types) WITH ORDINALITY AS s (column_name, type, number);
END
$$;

-- Repeats a pattern for each scope column; the result is empty for an index without a scope. In the pattern,
-- %1$s is the name in the key tables, %2$I the name in the user's table, and %3$s the value in `scope`.
-- `variables` replaces these values by SQL expressions.
CREATE OR REPLACE FUNCTION simsql._for_scope(
    index simsql.registry, pattern text, scope jsonb DEFAULT NULL, variables jsonb DEFAULT '{}')
RETURNS text
LANGUAGE sql STABLE
AS $$
    SELECT coalesce(string_agg(
               format(pattern, s.name, s.column_name,
                      coalesce(variables ->> s.name, format('%L::%s', scope ->> s.column_name, s.type))),
               '' ORDER BY s.number), '')
      FROM simsql._scope_columns(index) AS s
$$;

-- The current name of a table, whatever the snapshot, as in the registry; null if there is no such table.
CREATE OR REPLACE FUNCTION simsql._full_name(table_id oid) RETURNS text
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    names constant text[] := (pg_identify_object_as_address('pg_class'::regclass, table_id, 0)).object_names;
BEGIN
    RETURN quote_ident(names[1]) || '.' || quote_ident(names[2]);
END
$$;

-- The columns of a key table.
CREATE OR REPLACE FUNCTION simsql._key_columns(index simsql.registry) RETURNS text[]
LANGUAGE sql STABLE
AS $$ SELECT ARRAY(SELECT s.name FROM simsql._scope_columns(index) AS s ORDER BY s.number) || 'key'::text $$;

-- The columns of the user's table that need a B-tree.
CREATE OR REPLACE FUNCTION simsql._btree_columns(index simsql.registry) RETURNS text[]
LANGUAGE sql STABLE
AS $$ SELECT index.scope_columns || index.column_name $$;

-- Quoted names, separated by commas.
CREATE OR REPLACE FUNCTION simsql._name_list(names text[]) RETURNS text
LANGUAGE sql STABLE
AS $$
    SELECT string_agg(quote_ident(n.name), ', ' ORDER BY n.number)
      FROM unnest(names) WITH ORDINALITY AS n (name, number)
$$;

-- The condition that a row comes after the last row of a batch, in the order of the scope and then of the
-- last column. `scope` and `value` are the values of that row, as text and as an expression. `pattern` names
-- the scope columns, as in _for_scope. Null before the first batch.
CREATE OR REPLACE FUNCTION simsql._from_place(
    index simsql.registry, scope text[], pattern text, last_column text, operator text, value text)
RETURNS text
LANGUAGE sql STABLE
AS $$
    SELECT CASE WHEN scope IS NOT NULL OR index.scope_columns = '{}'
                THEN '(' || simsql._for_scope(index, pattern || ', ') || last_column || ') ' || operator
                     || ' (' || simsql._for_scope(index, '%3$s, ', jsonb_object(index.scope_columns, scope))
                     || value || ')' END
$$;
