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

-- A trigger that is there is replaced, not dropped, so that nobody who reads the table waits.
CREATE OR REPLACE FUNCTION simsql.clear_on_change(table_name regclass, column_name text, sources text[])
RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    name text;
    names constant text[] := simsql._source_names(
        (SELECT jsonb_object_agg(s.name, 1) FROM unnest(sources) AS s (name) WHERE s.name IS NOT NULL));
    number text;
BEGIN
    IF table_name IS NULL OR column_name IS NULL OR names = '{}'
       OR array_position(ARRAY(SELECT unnest(sources)), NULL) IS NOT NULL  -- of any dimensions
    THEN
        RAISE EXCEPTION 'simsql.clear_on_change: the table, the column and its sources must not be null '
                        'or empty'
            USING ERRCODE = 'null_value_not_allowed',
                  HINT = 'For example: '
                         'SELECT simsql.clear_on_change(''article'', ''fingerprint'', ARRAY[''body'']);';
    END IF;
    PERFORM simsql._check_clearing(table_name, column_name, names, 'clear_on_change');
    IF names <> (SELECT simsql._source_names(r.sources) FROM simsql.registry AS r
                  WHERE r.table_id = clear_on_change.table_name AND r.sources IS NOT NULL
                    AND r.column_name = clear_on_change.column_name)
    THEN
        RAISE EXCEPTION 'simsql.clear_on_change: the simhash index on %(%) has other sources than %', table_name,
                        quote_ident(column_name), simsql._name_list(names)
            USING ERRCODE = 'invalid_parameter_value',
                  HINT = format('Change them: SELECT simsql.alter_index(%L, %L, sources => ...);', table_name,
                                column_name);
    END IF;
    SELECT coalesce(min(substring(c.name FROM '^zz_simsql_clear_(\d+)_column$')),
                    (SELECT (coalesce(max(substring(t.tgname FROM '^zz_simsql_clear_(\d+)')::integer), 0) + 1)::text
                       FROM pg_trigger AS t
                      WHERE t.tgrelid = table_name AND t.tgname ~ '^zz_simsql_clear_\d+'))
      INTO number FROM simsql._clearing_triggers(table_name, column_name) AS c (name);
    -- A role with the privilege TRIGGER alone cannot lock the table.
    PERFORM simsql._patiently(
                string_agg(overlay(d.definition PLACING 'CREATE OR REPLACE' FROM 1 FOR length('CREATE')), '; '),
                ARRAY(SELECT t::oid FROM simsql._with_partitions(table_name) AS t), 'SHARE ROW EXCLUSIVE',
                'simsql.clear_on_change', simsql._full_name(table_name))
       FROM simsql._clearing(table_name, column_name, names, number) AS d;
    -- Without its companion, a trigger fails.
    FOR name IN
        SELECT t.tgname FROM pg_trigger AS t
         WHERE t.tgrelid = table_name AND t.tgname ~ '^zz_simsql_clear_\d+$'
           AND NOT EXISTS (SELECT FROM pg_trigger AS c
                            WHERE c.tgrelid = t.tgrelid AND c.tgname = t.tgname || '_column')
    LOOP
        PERFORM simsql._lock(table_name, 'ACCESS EXCLUSIVE', 'clear_on_change');
        EXECUTE format('DROP TRIGGER %I ON %s', name, table_name);
    END LOOP;
END
$$;

COMMENT ON FUNCTION simsql.clear_on_change(regclass, text, text[]) IS
    'create a trigger that sets the fingerprint to NULL when an UPDATE changes a source but not the '
    'fingerprint';

-- Drops the triggers; false if there are none.
CREATE OR REPLACE FUNCTION simsql._drop_clearing(table_name regclass, column_name text) RETURNS boolean
LANGUAGE plpgsql
AS $$
DECLARE
    name text;
BEGIN
    FOR name IN SELECT simsql._clearing_triggers(table_name, column_name) LOOP
        PERFORM simsql._lock(table_name, 'ACCESS EXCLUSIVE', 'drop_clear_on_change');
        EXECUTE format('DROP TRIGGER IF EXISTS %I ON %s', name, table_name);
    END LOOP;
    RETURN name IS NOT NULL;
END
$$;

CREATE OR REPLACE FUNCTION simsql.drop_clear_on_change(table_name regclass, column_name text) RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    IF NOT simsql._drop_clearing(table_name, column_name) THEN
        RAISE EXCEPTION 'simsql.drop_clear_on_change: nothing clears column % of %',
                        coalesce(quote_ident(column_name), 'NULL'), coalesce(table_name::text, 'NULL')
            USING ERRCODE = 'undefined_object',
                  HINT = 'simsql.clear_on_change creates the trigger that this drops.';
    END IF;
END
$$;

COMMENT ON FUNCTION simsql.drop_clear_on_change(regclass, text) IS
    'drop the trigger that simsql.clear_on_change created';
