-- clear_on_change: sets a fingerprint to NULL when its text is changed by a writer that does not update the
-- fingerprint.

-- Sets the fingerprint of the new row to NULL. The trigger's companion identifies the column by number, as
-- the catalogue and pg_dump carry it along, so the column may be renamed.
CREATE OR REPLACE FUNCTION simsql._clear_fingerprint() RETURNS trigger
LANGUAGE plpgsql
AS $$
DECLARE
    column_name constant text := (
        SELECT (pg_identify_object_as_address('pg_class'::regclass, t.tgrelid, t.tgattr[0])).object_names[3]
          FROM pg_trigger AS t
         WHERE t.tgrelid IN (SELECT TG_RELID UNION ALL SELECT pg_partition_ancestors(TG_RELID))
           AND t.tgname = TG_NAME || '_column' LIMIT 1);
BEGIN
    IF column_name IS NULL THEN
        RAISE EXCEPTION 'simsql: trigger %_column of % is missing, or newer than the snapshot of this '
                        'transaction', TG_NAME, TG_RELID::regclass
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = 'Start a new transaction. If that does not help, call simsql.clear_on_change for '
                         'the column again.';
    END IF;
    RETURN jsonb_populate_record(NEW, jsonb_build_object(column_name, NULL));
END
$$;

-- The triggers of clear_on_change on a column: the one that fires and its companion, which never does.
CREATE OR REPLACE FUNCTION simsql._clearing_triggers(table_name regclass, column_name text) RETURNS SETOF text
LANGUAGE sql STABLE
AS $$
    SELECT n.name
      FROM pg_trigger AS t
      JOIN pg_attribute AS a ON a.attrelid = t.tgrelid AND a.attnum = t.tgattr[0]
     CROSS JOIN LATERAL (VALUES (t.tgname::text), (substring(t.tgname FROM '^(.*)_column$'))) AS n (name)
     WHERE t.tgrelid = table_name AND t.tgname ~ '^zz_simsql_clear_\d+_column$' AND a.attname = column_name
$$;

-- By its name the trigger is one of the last to fire before the update, so it sees what other triggers make
-- of the text. Texts are compared byte by byte, even if their type or collation considers them equal.
CREATE OR REPLACE FUNCTION simsql.clear_on_change(table_name regclass, column_name text, sources text[])
RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    name text;
    generated "char";
    number integer;
    changed text;
BEGIN
    IF table_name IS NULL OR column_name IS NULL OR coalesce(cardinality(sources), 0) = 0
       OR array_position(ARRAY(SELECT unnest(sources)), NULL) IS NOT NULL  -- of any dimensions
    THEN
        RAISE EXCEPTION 'simsql.clear_on_change: the table, the column and its sources must not be null '
                        'or empty'
            USING ERRCODE = 'null_value_not_allowed',
                  HINT = 'For example: '
                         'SELECT simsql.clear_on_change(''article'', ''fingerprint'', ARRAY[''body'']);';
    END IF;
    FOREACH name IN ARRAY column_name || ARRAY(SELECT unnest(sources)) LOOP
        SELECT a.attgenerated INTO generated FROM pg_attribute AS a
         WHERE a.attrelid = table_name AND a.attname = name AND a.attnum > 0 AND NOT a.attisdropped;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'simsql.clear_on_change: % has no column %', table_name, quote_ident(name)
                USING ERRCODE = 'undefined_column';
        ELSIF generated <> '' THEN
            RAISE EXCEPTION 'simsql.clear_on_change: column % of % is generated', quote_ident(name),
                            table_name
                USING ERRCODE = 'feature_not_supported', HINT = 'Name the columns that it is generated from.';
        END IF;
    END LOOP;
    IF column_name = ANY (sources) THEN
        RAISE EXCEPTION 'simsql.clear_on_change: column % of % cannot be its own source',
                        quote_ident(column_name), table_name
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Name the columns that hold the text.';
    END IF;
    FOR name IN SELECT simsql._clearing_triggers(table_name, column_name) LOOP
        EXECUTE format('DROP TRIGGER IF EXISTS %I ON %s', name, table_name);
    END LOOP;
    SELECT coalesce(max(substring(t.tgname FROM '^zz_simsql_clear_(\d+)')::integer), 0) + 1 INTO number
      FROM pg_trigger AS t WHERE t.tgrelid = table_name AND t.tgname ~ '^zz_simsql_clear_\d+';
    SELECT string_agg(format('OLD.%1$I::text COLLATE "C" IS DISTINCT FROM NEW.%1$I::text COLLATE "C"', s),
                      ' OR ')
      INTO changed
      FROM unnest(sources) AS s;
    EXECUTE simsql._render($sql$
        CREATE TRIGGER zz_simsql_clear_{number} BEFORE UPDATE ON {table} FOR EACH ROW
            WHEN (NEW.{"column"} IS NOT NULL AND OLD.{"column"} IS NOT DISTINCT FROM NEW.{"column"}
                  AND ({changed}))
            EXECUTE FUNCTION simsql._clear_fingerprint();
        CREATE TRIGGER zz_simsql_clear_{number}_column AFTER UPDATE OF {"column"} ON {table}
            FOR EACH STATEMENT WHEN (false)
            EXECUTE FUNCTION simsql._clear_fingerprint()
        $sql$,
        jsonb_build_object('number', number, 'table', table_name, 'column', column_name, 'changed', changed));
END
$$;

COMMENT ON FUNCTION simsql.clear_on_change(regclass, text, text[]) IS
    'create a trigger that sets the fingerprint to NULL when an UPDATE changes a source but not the '
    'fingerprint';

CREATE OR REPLACE FUNCTION simsql.drop_clear_on_change(table_name regclass, column_name text) RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    name text;
BEGIN
    FOR name IN SELECT simsql._clearing_triggers(table_name, column_name) LOOP
        EXECUTE format('DROP TRIGGER IF EXISTS %I ON %s', name, table_name);
    END LOOP;
    IF name IS NULL THEN
        RAISE EXCEPTION 'simsql.drop_clear_on_change: nothing clears column % of %',
                        coalesce(quote_ident(column_name), 'NULL'), coalesce(table_name::text, 'NULL')
            USING ERRCODE = 'undefined_object',
                  HINT = 'simsql.clear_on_change creates the trigger that this drops.';
    END IF;
END
$$;

COMMENT ON FUNCTION simsql.drop_clear_on_change(regclass, text) IS
    'drop the trigger that simsql.clear_on_change created';
