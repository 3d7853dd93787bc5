-- load --unique: what a loader needs that lets no near-duplicate of a row in. The rest is simsql/database/unique.py.
--
-- A claim waits for claims of near fingerprints. A loader compares at greater distances than most claims, so it keeps
-- all claims in the table waiting, and other loaders, while it looks for rows that were added since its search.

-- The lock of a table that claims share and that a loader has alone. pg_locks shows any role that somebody claims in
-- a table, but not what.
CREATE OR REPLACE FUNCTION simsql._loader_lock(table_id oid) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN hashtextextended('simsql.load', table_id::bigint);

-- The type of the ids of a table, what a search reads in it, and its lock. Raises an error for a table that cannot be
-- loaded in this way.
CREATE OR REPLACE FUNCTION simsql._loaded_table(
    table_name regclass, column_name text, scope jsonb, id_column text,
    OUT type text, OUT rows text, OUT lock bigint)
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    number smallint;
BEGIN
    IF simsql._is_distributed(table_name) THEN
        RAISE EXCEPTION 'simsql: % is distributed by Citus, and unique documents are loaded on one node', table_name
            USING ERRCODE = 'feature_not_supported', HINT = 'Claim each document before you insert it.';
    END IF;
    SELECT format_type(a.atttypid, a.atttypmod), simsql._rows_of(i), simsql._loader_lock(i.table_id), a.attnum
      INTO type, rows, lock, number
      FROM simsql._searched_index(table_name, column_name, scope) AS i
      LEFT JOIN pg_attribute AS a ON a.attrelid = i.table_id AND a.attname = id_column AND NOT a.attisdropped;
    IF NOT EXISTS (
        SELECT FROM pg_index AS u
         WHERE u.indrelid = table_name AND u.indisunique AND u.indimmediate AND u.indisvalid AND u.indpred IS NULL
           AND u.indnkeyatts = 1 AND u.indkey[0] = number)
    THEN
        RAISE EXCEPTION 'simsql: % has no unique index on % alone', table_name, quote_ident(id_column)
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = format('CREATE UNIQUE INDEX CONCURRENTLY ON %s (%I);', table_name, id_column);
    END IF;
END
$$;

-- The fingerprints of an index in pieces, eight bytes each, some of them of rows that are gone; or only those that
-- transactions which a snapshot does not see have added, and a few more. Key tables are smaller than most tables, and
-- the keys of the first permutation are the fingerprints themselves.
CREATE OR REPLACE FUNCTION simsql._added_fingerprints(
    table_name regclass, column_name text, scope jsonb, since pg_snapshot)
RETURNS SETOF bytea
LANGUAGE plpgsql STABLE
SET jit = off
AS $$
DECLARE
    index constant simsql.registry := simsql._searched_index(table_name, column_name, scope);
    has_keys constant boolean := index.storage = 'tables';
BEGIN
    RETURN QUERY EXECUTE simsql._render($sql$
        SELECT string_agg(int8send(k.{"fingerprint"}), '')
          FROM {source} AS k
         WHERE k.{"fingerprint"} IS NOT NULL{in_scope} AND ($1 IS NULL OR age(k.xmin) <= $1) AND {guard}
         GROUP BY k.{"fingerprint"} & 3$sql$, jsonb_build_object(
            'fingerprint', CASE WHEN has_keys THEN 'key' ELSE index.column_name END,
            'source', CASE WHEN has_keys THEN format('simsql.keys_%s_0', index.id) ELSE simsql._rows_of(index) END,
            'in_scope', simsql._for_scope(index, CASE WHEN has_keys THEN ' AND k.%1$s = %3$s'
                                                      ELSE ' AND k.%2$I = %3$s' END, scope),
            'guard', simsql._guard(index)))
    USING age(pg_snapshot_xmin(since)::xid);
    PERFORM simsql._check_searched(index.id, table_name, index.stamp_id);
END
$$;

-- Whether this statement sees transactions that a snapshot does not see, other than the caller's own.
CREATE OR REPLACE FUNCTION simsql._others_committed(before pg_snapshot, own text[]) RETURNS boolean
LANGUAGE sql STABLE
AS $$
    SELECT EXISTS (
        SELECT FROM pg_current_snapshot() AS now
         CROSS JOIN LATERAL (
               SELECT running::text FROM pg_snapshot_xip(before) AS running
                UNION ALL
               SELECT later::text FROM generate_series(pg_snapshot_xmax(before)::text::bigint,
                                                       pg_snapshot_xmax(now)::text::bigint - 1) AS later) AS t (id)
         WHERE pg_visible_in_snapshot(t.id::xid8, now) AND t.id <> ALL (own))
$$;

-- The sessions that a loader may be waiting for: those that claim in the table or have locked it or rows of it.
CREATE OR REPLACE FUNCTION simsql._blockers_of_load(table_name regclass) RETURNS text
LANGUAGE sql STABLE
AS $$
    SELECT string_agg(DISTINCT l.pid::text, ', ') FROM pg_locks AS l
     WHERE l.granted AND l.pid <> pg_backend_pid()
       AND l.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database())
       AND (l.relation = table_name AND l.mode <> 'AccessShareLock'
            OR l.locktype = 'advisory' AND l.objsubid = 1
               AND l.classid::bigint << 32 | l.objid::bigint = simsql._loader_lock(table_name))
$$;

-- The lock_timeout in seconds, 0 without one.
CREATE OR REPLACE FUNCTION simsql._lock_timeout() RETURNS double precision
LANGUAGE sql STABLE
RETURN (SELECT s.setting::double precision / 1000 FROM pg_settings AS s WHERE s.name = 'lock_timeout');
