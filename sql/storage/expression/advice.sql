-- What a database administrator should do for the indexes in the storage `expression`: vacuum their tables,
-- and make room for locks.

-- What to do about the locks of searches; null if there is room for them. The first search of a session locks
-- relations until its transaction ends: to plan it, PostgreSQL opens every partition with all its indexes.
-- About 20 more belong to simsql and to the catalogue.
--
-- PostgreSQL reserves room for max_locks_per_transaction locked relations for each connection, and for two
-- sessions that lock each. So if that is half the locks of a search, all connections can search at once.
-- Measured with 100 and 200 partitions, a quarter is enough, because there is some room to spare.
CREATE OR REPLACE FUNCTION simsql._lock_advice(table_id regclass) RETURNS text
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN (
        SELECT format('a search takes up to %s locks: set max_locks_per_transaction to %s or more, '
                      'or have fewer partitions', s.locks, (s.locks + 1) / 2)
          FROM (SELECT 24 + count(*) + sum((SELECT count(*) FROM pg_index AS i WHERE i.indrelid = t))::bigint
                  FROM simsql._with_partitions(table_id) AS t) AS s (locks)
         WHERE s.locks > 4 * current_setting('max_locks_per_transaction')::integer);
END
$$;

CREATE OR REPLACE FUNCTION simsql._expression_size(index simsql.registry) RETURNS bigint
LANGUAGE sql STABLE
AS $$
    SELECT sum(pg_relation_size(b))
      FROM pg_index AS i
      JOIN pg_class AS c ON c.oid = i.indexrelid AND c.relname ~ format('^simsql_%s_\d+$', index.id)
     CROSS JOIN LATERAL simsql._with_partitions(c.oid) AS b
     WHERE i.indrelid = index.table_id AND NOT simsql._is_distributed(index.table_id)
$$;

CREATE OR REPLACE FUNCTION simsql._warn_of_locks(table_id regclass, caller text) RETURNS void
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    advice constant text := simsql._lock_advice(table_id);
BEGIN
    IF advice IS NOT NULL THEN
        RAISE WARNING 'simsql.%: many open transactions that have searched % may exceed the room for locks',
                      caller, table_id
            USING HINT = upper(left(advice, 1)) || substr(advice, 2) || '.';
    END IF;
END
$$;

-- unvacuumed: the share of the pages of a table with its partitions that are not all-visible: of these, a search
-- reads the rows. It matters for tables of 8 MB and more, from a tenth on. Null without rows, and on Citus.
--
-- PostgreSQL counts these pages, but only in VACUUM and ANALYZE. Each row updated or deleted since takes one
-- of them away, and new rows come on new pages; the statistics know their numbers. Changed rows are expected
-- anywhere in the table. Dead rows may have been pruned, but the changes since ANALYZE are complete, if it
-- was later than VACUUM. Of a table that neither has seen, the number of pages is unknown, so that its rows
-- count.
CREATE OR REPLACE FUNCTION simsql._expression_advice(
    index simsql.registry, OUT unvacuumed double precision, OUT last_vacuum timestamptz, OUT hint text,
    OUT need text)
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    locks constant text := simsql._lock_advice(index.table_id);
BEGIN
    WITH visible AS (
        SELECT sum(p.pages) AS pages,
               CASE WHEN bool_and(n.vacuumed IS NOT NULL) THEN min(n.vacuumed) END AS last_vacuum,
               -- exp fails if its result is too small.
               sum(c.relallvisible * exp(-least(p.changed / greatest(c.relpages, 1), 99)))
               / nullif(sum(p.pages), 0) AS share
          FROM simsql._with_partitions(index.table_id) AS t
          JOIN pg_class AS c ON c.oid = t AND c.relkind = 'r'
         CROSS JOIN LATERAL (
               SELECT pg_stat_get_dead_tuples(c.oid) AS dead,
                      pg_stat_get_mod_since_analyze(c.oid) AS modified,
                      pg_stat_get_ins_since_vacuum(c.oid) AS inserted,
                      greatest(pg_stat_get_last_vacuum_time(c.oid),
                               pg_stat_get_last_autovacuum_time(c.oid)) AS vacuumed,
                      greatest(pg_stat_get_last_analyze_time(c.oid),
                               pg_stat_get_last_autoanalyze_time(c.oid)) AS analyzed) AS n
         CROSS JOIN LATERAL (
               SELECT CASE c.relpages
                      WHEN 0 THEN pg_stat_get_live_tuples(c.oid)
                      ELSE c.relpages * (1 + least(n.inserted, n.modified) / greatest(c.reltuples, 1)) END
                      AS pages,
                      greatest(least(n.dead, n.modified),
                               CASE WHEN n.analyzed >= n.vacuumed THEN n.modified - n.inserted END
                              )::double precision AS changed) AS p
         WHERE NOT simsql._is_distributed(index.table_id))
    SELECT 1 - v.share, v.last_vacuum,
           nullif(concat_ws('; ', CASE WHEN v.pages >= 1024 AND v.share < 0.9
                                       THEN format('%s%% of the pages are not all-visible: VACUUM (ANALYZE) %s',
                                                   round(100 * (1 - v.share)), index.table_id) END, locks), '')
      INTO unvacuumed, last_vacuum, hint
      FROM visible AS v;
    need := CASE WHEN locks IS NOT NULL THEN 'locks' WHEN hint IS NOT NULL THEN 'visibility' END;
END
$$;
