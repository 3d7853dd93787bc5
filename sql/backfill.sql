-- The parts from which a backfill in Python composes its statements: see simsql/database/backfill.py.

-- The columns of the primary key or, without one, of a unique index on NOT NULL columns, the last one first, and the
-- schemas of the operators that sort them: the index of the replica identity, else the one with the fewest columns.
-- Its equality has to be that of the columns, as of a primary key.
CREATE OR REPLACE FUNCTION simsql._primary_key(table_name regclass)
RETURNS TABLE (place bigint, name text, type text, operators text)
LANGUAGE sql STABLE
AS $$
    SELECT k.place, a.attname, format_type(a.atttypid, a.atttypmod), n.nspname
      FROM pg_index AS i
     CROSS JOIN LATERAL unnest(i.indkey, i.indclass) WITH ORDINALITY AS k (attribute, class, place)
      JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = k.attribute
      JOIN pg_opclass AS c ON c.oid = k.class
      JOIN pg_am AS m ON m.oid = c.opcmethod AND m.amname = 'btree'
      JOIN pg_amop AS p ON p.amopfamily = c.opcfamily AND p.amoplefttype = c.opcintype
                       AND p.amoprighttype = c.opcintype AND p.amopstrategy = 5  -- greater
      JOIN pg_operator AS o ON o.oid = p.amopopr
      JOIN pg_namespace AS n ON n.oid = o.oprnamespace
     WHERE k.place <= i.indnkeyatts AND i.indexrelid = (
        SELECT u.indexrelid
          FROM pg_index AS u
         WHERE u.indrelid = table_name AND u.indisunique AND u.indisvalid AND u.indpred IS NULL
           AND (u.indimmediate OR u.indisprimary)
           AND u.indnkeyatts = (
               SELECT count(*)
                 FROM unnest(u.indkey, u.indclass, u.indcollation) AS k (attribute, class, collation_id)
                 JOIN pg_attribute AS a ON a.attrelid = u.indrelid AND a.attnum = k.attribute AND a.attnotnull
                                       AND a.attcollation = k.collation_id
                 JOIN pg_opclass AS c ON c.oid = k.class AND c.opcdefault
                WHERE NOT EXISTS (SELECT FROM pg_constraint AS n
                                   WHERE n.conrelid = u.indrelid AND n.contype = 'n' AND NOT n.convalidated
                                     AND a.attnum = ANY (n.conkey)))
         ORDER BY u.indisprimary DESC, u.indisreplident DESC, u.indnkeyatts, u.indexrelid
         LIMIT 1)
     ORDER BY k.place DESC
$$;

-- Expressions about the rows `t` of a table and about keys `v.key`, JSON arrays with the values of a
-- key as text. They qualify the operators that sort the key: if those of citext, for example, are not on the
-- search_path, PostgreSQL would compare text. Raises an error unless the columns can hold fingerprints and
-- sketches, the others hold text, and a key identifies the rows.
--   rows_of       the table, without its inheritance children
--   texts         the texts of a row or, if they are decoded for a function, the values of any type as JSON
--   needs_one     whether a row needs a value in one of the columns: it has a text but no value or, with
--                 all_rows, either of them
--   key           the key of a row
--   key_order     the ORDER BY expressions of the key
--   same_key      whether a row has the key
--   later_key     whether a row comes after the key
--   only_free     joins the keys with their rows, which it locks, and leaves out those that others have
--                 locked; empty for a distributed table, whose rows Citus does not lock from here, so that an
--                 update waits for others
CREATE OR REPLACE FUNCTION simsql._backfill_parts(
    table_name regclass, columns text[], text_columns text[], all_rows boolean, decoded boolean,
    OUT rows_of text, OUT texts text, OUT needs_one text,
    OUT key text, OUT key_order text, OUT same_key text, OUT later_key text, OUT only_free text)
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    attribute pg_attribute;
    named text;
    part record;
    value text;
    given text;
    schemas text[] := '{}';
    as_bytes text;
BEGIN
    FOREACH named IN ARRAY columns || text_columns LOOP
        SELECT a.* INTO attribute FROM pg_attribute AS a
         WHERE a.attrelid = table_name AND a.attname = named AND a.attnum > 0 AND NOT a.attisdropped;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'simsql: % has no column %', table_name, quote_ident(named)
                USING ERRCODE = 'undefined_column';
        ELSIF named = ANY (columns) AND attribute.attgenerated <> '' THEN
            RAISE EXCEPTION 'simsql: column % of % is generated: PostgreSQL computes it', quote_ident(named),
                            table_name
                USING ERRCODE = 'feature_not_supported';
        ELSIF named = ANY (columns) AND attribute.atttypid <> 'bigint'::regtype
              OR named <> ALL (columns) AND NOT decoded
                 AND (SELECT y.typcategory FROM pg_type AS y WHERE y.oid = attribute.atttypid) <> 'S'
        THEN
            RAISE EXCEPTION 'simsql: column % of % is %, not %', quote_ident(named), table_name,
                            format_type(attribute.atttypid, attribute.atttypmod),
                            CASE WHEN named = ANY (columns) THEN 'bigint' ELSE 'text' END
                USING ERRCODE = 'datatype_mismatch';
        ELSIF named = ANY (columns) AND named = ANY (text_columns) THEN
            RAISE EXCEPTION 'simsql: column % of % cannot hold the texts and what is computed from them',
                            quote_ident(named), table_name
                USING ERRCODE = 'invalid_parameter_value', HINT = 'Name the column that holds the texts.';
        END IF;
    END LOOP;
    IF NOT EXISTS (SELECT FROM simsql._primary_key(table_name)) THEN
        IF (SELECT c.relkind FROM pg_class AS c WHERE c.oid = table_name) IN ('v', 'm') THEN
            RAISE EXCEPTION 'simsql: % is a view: fill the table below it', table_name
                USING ERRCODE = 'object_not_in_prerequisite_state';
        END IF;
        RAISE EXCEPTION 'simsql: % has neither a primary key nor a unique index on NOT NULL columns', table_name
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = 'A backfill reads a table in the order of such a key: create one.';
    END IF;
    PERFORM simsql._check_collations(
        table_name, ARRAY(SELECT p.name::text FROM simsql._primary_key(table_name) AS p), 'backfill');
    SELECT format('%s%I.%I', CASE c.relkind WHEN 'r' THEN 'ONLY ' END, n.nspname, c.relname)
      INTO rows_of
      FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
     WHERE c.oid = table_name;
    -- PostgreSQL would not send a text that is not UTF-8, which a database without an encoding may have: as bytes.
    as_bytes := CASE WHEN getdatabaseencoding() = 'SQL_ASCII'
                     THEN 'pg_catalog.convert_to(CAST(%s AS pg_catalog.text), ''SQL_ASCII'')'
                     ELSE CASE WHEN decoded THEN '%s' ELSE 'CAST(%s AS pg_catalog.text)' END END;
    SELECT format(CASE WHEN decoded THEN as_bytes ELSE 'ARRAY[%s]' END,
                  format(CASE WHEN decoded THEN 'pg_catalog.json_build_array(%s)' ELSE '%s' END,
                         string_agg(format(CASE WHEN decoded THEN '%s' ELSE as_bytes END, format('t.%I', u.name)),
                                    ', ' ORDER BY u.place))),
           string_agg(format('t.%I IS NOT NULL', u.name), ' OR ' ORDER BY u.place)
      INTO texts, needs_one
      FROM unnest(text_columns) WITH ORDINALITY AS u (name, place);
    SELECT format(CASE WHEN all_rows THEN '(%s OR %s)' ELSE '((%s) AND (%s))' END, needs_one,
                  string_agg(format(CASE WHEN all_rows THEN 't.%I IS NOT NULL' ELSE 't.%I IS NULL' END,
                                    u.name), ' OR '))
      INTO needs_one
      FROM unnest(columns) AS u (name);
    FOR part IN SELECT * FROM simsql._primary_key(table_name) LOOP
        value := format('CAST(v.key OPERATOR(pg_catalog.->>) %s AS %s)', part.place - 1, part.type);
        key := concat_ws(', ', format('CAST(t.%I AS pg_catalog.text)', part.name), key);
        key_order := concat_ws(', ', format('t.%I', part.name), key_order);
        given := concat_ws(', ', value, given);
        same_key := concat_ws(' AND ', format('t.%I OPERATOR(%I.=) %s', part.name, part.operators, value),
                              same_key);
        later_key := simsql._render(
            '(t.{"name"} OPERATOR({"operators"}.>) {value}'
            ' OR t.{"name"} OPERATOR({"operators"}.=) {value} AND {later})',
            jsonb_build_object('name', part.name, 'operators', part.operators, 'value', value,
                               'later', coalesce(later_key, 'false')));
        schemas := schemas || part.operators;
    END LOOP;
    -- A single row comparison, where possible, is a range of the B-tree of the primary key.
    IF schemas[1] = ALL (schemas) THEN
        later_key := format('ROW(%s) OPERATOR(%I.>) ROW(%s)', key_order, schemas[1], given);
    END IF;
    key := format('CAST(pg_catalog.jsonb_build_array(%s) AS pg_catalog.text)', key);
    only_free := CASE WHEN simsql._is_distributed(table_name) THEN ''
                      ELSE format('JOIN %s AS t ON %s WHERE t.xmin OPERATOR(pg_catalog.=) v.version '
                                  'FOR NO KEY UPDATE OF t SKIP LOCKED', rows_of, same_key) END;
END
$$;
