-- Functions that time searches and writes in the server, one call at a time, in microseconds.
--
-- They are not part of the schema: simsql.database.calibrate creates them for one transaction.

-- The times of searches for fingerprints of the table.
CREATE OR REPLACE FUNCTION pg_temp.time_searches(table_name regclass, distance integer, calls integer)
RETURNS double precision[]
LANGUAGE plpgsql
AS $$
DECLARE
    query bigint;
    started timestamptz;
    found_rows bigint;
    times double precision[] := '{}';
BEGIN
    FOR query IN EXECUTE format('SELECT fingerprint FROM %s LIMIT %s', table_name, calls) LOOP
        started := clock_timestamp();
        SELECT count(*) INTO found_rows FROM simsql.near(table_name, query, distance);
        times := times || extract(epoch FROM clock_timestamp() - started)::double precision * 1000000;
    END LOOP;
    RETURN times;
END
$$;

CREATE OR REPLACE FUNCTION pg_temp.time_inserts(table_name regclass, calls integer) RETURNS double precision[]
LANGUAGE plpgsql
AS $$
DECLARE
    insertion constant text := format('INSERT INTO %s VALUES ($1)', table_name);
    fingerprint bigint;
    started timestamptz;
    times double precision[] := '{}';
BEGIN
    FOR number IN 1 .. calls LOOP
        fingerprint := floor(random() * 2 ^ 32)::bigint << 32 | floor(random() * 2 ^ 32)::bigint;
        started := clock_timestamp();
        EXECUTE insertion USING fingerprint;
        times := times || extract(epoch FROM clock_timestamp() - started)::double precision * 1000000;
    END LOOP;
    RETURN times;
END
$$;
