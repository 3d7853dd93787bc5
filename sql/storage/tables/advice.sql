-- What a database administrator should do for the indexes in the storage `tables`: vacuum them.

CREATE OR REPLACE FUNCTION simsql._tables_size(index simsql.registry) RETURNS bigint
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN (SELECT sum(pg_relation_size(c.oid))
              FROM pg_class AS c
             WHERE c.relnamespace = 'simsql'::regnamespace
               -- The key tables and their B-trees, one range of names: the backtick follows the underscore.
               AND c.relname > format('keys_%s_', index.id)::name
               AND c.relname < format('keys_%s`', index.id)::name);
END
$$;

-- The number of rows of a table, from what PostgreSQL has counted, null if that is nothing; and whether it has counted them
-- all. Statistics are complete from the first VACUUM or ANALYZE that they know of. After a crash or a reset they begin
-- again at zero and know the changes since alone; nobody vacuums or analyzes the table because of those before, but the
-- catalogue remembers the last VACUUM, ANALYZE or CREATE INDEX. A standby counts nothing.
CREATE OR REPLACE FUNCTION simsql._counted_rows(table_id regclass, OUT rows double precision, OUT are_all boolean)
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    SELECT CASE WHEN s.are_complete THEN s.live
                WHEN c.reltuples >= 0 OR s.live + s.dead > 0 THEN greatest(0, c.reltuples - s.dead, s.live) END,
           CASE WHEN c.reltuples < 0 THEN s.live + s.dead > 0
                ELSE s.live >= c.reltuples / 2 OR pg_is_in_recovery() OR s.are_complete END
      INTO rows, are_all
      FROM pg_class AS c
     CROSS JOIN LATERAL (
           SELECT pg_stat_get_live_tuples(c.oid) AS live, pg_stat_get_dead_tuples(c.oid) AS dead,
                  coalesce(pg_stat_get_last_vacuum_time(c.oid), pg_stat_get_last_autovacuum_time(c.oid),
                           pg_stat_get_last_analyze_time(c.oid),
                           pg_stat_get_last_autoanalyze_time(c.oid)) IS NOT NULL AS are_complete) AS s
     WHERE c.oid = table_id;
END
$$;

-- Records, if this role may, that the keys of an index are those that its rows need.
CREATE OR REPLACE FUNCTION simsql._record_vacuum(index simsql.registry) RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    keys bigint;
BEGIN
    IF has_table_privilege('simsql.registry', 'UPDATE') THEN
        EXECUTE format('SELECT count(key) FROM simsql.keys_%s_0', index.id) INTO keys;
        UPDATE simsql.registry AS r
           SET vacuumed_at = now(), vacuumed_keys = keys, vacuumed_rows = (simsql._counted_rows(r.table_id)).rows
         WHERE r.id = index.id;
    END IF;
END
$$;

-- unvacuumed: the share of superfluous keys. The number of keys is known. How many of them the rows need is
-- expected from the rows: as many for each row as at the last vacuum. Rows that share a fingerprint, or have
-- none, need fewer than one. Once most keys are younger than that, or if it is unknown, each row is taken to
-- need one, so that the share is rather too small. Where ANALYZE has found more fingerprints, as in a column that
-- has been filled since, that many are needed.
--
-- A vacuum of less than one batch takes a second, and searches do not notice whether it has been done.
CREATE OR REPLACE FUNCTION simsql._tables_advice(
    index simsql.registry, OUT unvacuumed double precision, OUT last_vacuum timestamptz, OUT hint text,
    OUT need text)
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    key_table constant regclass := to_regclass(format('simsql.keys_%s_0', index.id));
    of_keys constant record := simsql._counted_rows(key_table);
    of_rows constant record := simsql._counted_rows(index.table_id);
    -- The statistics of a new key table come after seconds.
    is_counted constant boolean := of_keys.are_all AND of_rows.are_all
                                   OR index.vacuumed_at > now() - interval '1 minute';
    keys constant double precision := greatest(0, of_keys.rows - 1);  -- one row has no key
    rows constant double precision := of_rows.rows;
    is_grown constant boolean := keys >= 4 * coalesce(index.vacuumed_keys, 0);
    names constant text[] := parse_ident(index.table_name);
    found constant double precision := (
        SELECT least(rows, CASE WHEN s.n_distinct < 0 THEN -s.n_distinct * rows ELSE s.n_distinct END)
          FROM pg_stats AS s
         WHERE rows > 0 AND s.schemaname = names[1]::name AND s.tablename = names[2]::name
           AND s.attname = index.column_name::name AND NOT s.inherited);
    needed constant double precision := greatest(found, rows * CASE
        WHEN is_grown THEN 1 ELSE coalesce(least(1, index.vacuumed_keys / nullif(index.vacuumed_rows, 0)), 1) END);
    reason text;
BEGIN
    unvacuumed := CASE WHEN keys > 0 AND needed IS NOT NULL THEN greatest(0, 1 - needed / keys) END;
    last_vacuum := index.vacuumed_at;
    IF key_table IS NULL
       OR (CASE WHEN is_counted THEN keys ELSE simsql._tables_keys(index) END) < simsql._batch_size()
    THEN
        RETURN;
    ELSIF NOT is_counted THEN
        need := 'analyze';
        reason := 'PostgreSQL has not counted the rows';
    ELSIF unvacuumed >= 0.2 THEN
        need := 'vacuum';
        reason := format('%s%% of the keys are superfluous', round(100 * unvacuumed));
    ELSIF is_grown THEN
        need := 'vacuum';
        reason := format('there are about %s keys, and %s at the last vacuum', round(keys),
                         coalesce(index.vacuumed_keys::text, 'an unknown number'));
    END IF;
    hint := reason || ': ' || simsql._call('maintain', '{}');
END
$$;
