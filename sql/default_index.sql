-- set_default_index: which index of a table is searched if a search names no column.
--
-- A table has two indexes while its fingerprints change to another recipe: each recipe has a column of its
-- own, so that no writer can mix them. This function is the step between: one committed update, which takes
-- no lock that searches or writers wait for, and which the same function reverts. Claims that name no column
-- wait for it, and it for them.

CREATE OR REPLACE FUNCTION simsql.set_default_index(
    table_name regclass, column_name text, missing bigint DEFAULT 0)
RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    index simsql.registry;
    before simsql.registry;
    rows bigint;
BEGIN
    IF table_name IS NULL OR column_name IS NULL OR missing IS NULL THEN
        RAISE EXCEPTION 'simsql.set_default_index: the table, the column and the number of missing '
                        'fingerprints must not be null'
            USING ERRCODE = 'null_value_not_allowed',
                  HINT = 'For example: ' || simsql._call('set_default_index', '{article,fingerprint}');
    END IF;
    IF missing < 0 THEN
        RAISE EXCEPTION 'simsql.set_default_index: missing must be at least 0, not %', missing
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    -- An older snapshot would not show indexes that others have created, nor all rows.
    PERFORM simsql._check_read_committed('set_default_index');
    index := simsql._index(table_name, column_name);
    PERFORM simsql._check_indexable(table_name, column_name, index.scope_columns, index.storage,
                                    'set_default_index');
    PERFORM simsql._lock(table_name, 'SHARE UPDATE EXCLUSIVE', 'set_default_index');
    PERFORM pg_advisory_xact_lock(hashtextextended('simsql.default', table_name::oid::bigint));
    -- Meanwhile the index may have been dropped, or got another id with another storage.
    index := simsql._index(table_name, column_name);
    -- The default before may be unfit for searches, as after a rename. Without its column, no row is counted.
    SELECT a.* INTO before FROM simsql.registry AS r CROSS JOIN LATERAL simsql._as_named(r) AS a
     WHERE r.table_id = index.table_id AND r.is_default;
    IF before.id <> index.id AND before.column_name IS NOT NULL THEN
        EXECUTE simsql._render(
            'SELECT count(*) FROM {rows_of} AS t WHERE t.{"before"} IS NOT NULL AND t.{"column"} IS NULL '
            'AND {guard_before} AND {guard}',
            jsonb_build_object('rows_of', simsql._rows_of(index), 'before', before.column_name,
                               'column', column_name, 'guard', simsql._guard(index),
                               'guard_before', simsql._guard(before.table_name, before.column_name)))
           INTO rows;
        IF rows > missing THEN
            RAISE EXCEPTION 'simsql.set_default_index: % of % with a fingerprint in % % none in %',
                            CASE rows WHEN 1 THEN '1 row' ELSE rows || ' rows' END, table_name,
                            quote_ident(before.column_name), CASE rows WHEN 1 THEN 'has' ELSE 'have' END,
                            quote_ident(column_name)
                USING ERRCODE = 'object_not_in_prerequisite_state',
                      HINT = format('Backfill the column, or let searches miss %s: %s',
                                    CASE rows WHEN 1 THEN 'it' ELSE 'them' END,
                                    simsql._call('set_default_index', ARRAY[table_name::text, column_name],
                                                 jsonb_build_object('missing', rows)));
        END IF;
    END IF;
    UPDATE simsql.registry AS r SET is_default = r.id = index.id WHERE r.table_id = index.table_id;
    PERFORM simsql._describe(r) FROM simsql.registry AS r WHERE r.table_id = index.table_id AND simsql._owns(r);
END
$$;

COMMENT ON FUNCTION simsql.set_default_index(regclass, text, bigint) IS
    'let searches that name no column use the index of this one, if the table has several; missing: how many '
    'rows may have a fingerprint for the default index before and none for this one';
