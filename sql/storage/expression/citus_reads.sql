-- What searches, batches and counts of the storage `expression` read differently in a table that Citus
-- manages.

-- A search is a single SELECT, which Citus sends to the shards as it is: a UNION would be computed from
-- intermediate results. So each permutation contributes a condition, and flips are the values that it
-- compares with. Counting rows to decide whether probing pays would take another round trip, so a table
-- counts as a million rows.
--
-- The planners of the shards choose; settings of a function do not reach them. By default, Citus opens
-- another connection to a worker after 10 ms, which takes longer than most searches and slows down all
-- others.
--
-- Citus sends a join to the shards, but not a LATERAL query that counts. Each shard might choose to read all
-- its rows instead of ranges, so ranges of rare keys are not counted. An aggregate gathers fingerprints:
-- Citus writes the result of a subquery to a file, and for DISTINCT it hashes rows whose number it does not
-- know.
CREATE OR REPLACE FUNCTION simsql._citus_reads() RETURNS jsonb
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT jsonb_build_object(
    'settings', ARRAY['plan_cache_mode=force_custom_plan', 'citus.executor_slow_start_interval=1000'],
    'flips', 'ARRAY(SELECT {key} # f FROM unnest({flips}) AS f)',
    'exact', $sql$(t.{"column"} & {'lead_mask'}::bigint) = {key}$sql$,
    'probes', $sql$(t.{"column"} & {'lead_mask'}::bigint) = ANY ({flips})$sql$,
    'between', E'\n        OR ',
    'all', 'true',
    'matches', $sql$SELECT DISTINCT t.{"column"} AS fingerprint,
       bit_count((t.{"column"} # $1)::bit(64))::integer AS distance
  FROM {rows} AS t
 WHERE {is_match}{scope_of_rows}
   AND ({source}) AND {guard}
 ORDER BY distance, fingerprint$sql$,
    'probing_pays', '{least_rows} <= 1000000',
    'size', $sql$SELECT simsql._citus_size({id}, {'scope'}, $1)$sql$,
    'count', $sql$
        SELECT count(*)
          FROM (SELECT fp, (fp & {'lead_mask'}::bigint) # f AS prefix
                  FROM unnest($1) AS fp CROSS JOIN unnest($2) AS f OFFSET 0) AS q
          JOIN {rows} AS t ON (t.{"column"} & {'lead_mask'}::bigint) = q.prefix
         WHERE t.{"column"} <> q.fp{scope_of_rows} AND {guard}$sql$,
    'counts_rare_keys', false,
    'fingerprints', $sql$
        SELECT coalesce(array_agg(DISTINCT t.{"column"} ORDER BY t.{"column"}), '{}')
          FROM {rows} AS t WHERE t.{"column"} IS NOT NULL{scope_of_rows} AND {guard}$sql$)
$$;

-- How many rows of an index or of a scope are in one shard, counting up to a limit: each shard compares all
-- queries with its own rows. Of a whole index it counts a sample: a LIMIT would apply to each shard, and all
-- these rows would come here. If the scope contains the distribution column, all rows of a scope are in one
-- shard.
CREATE OR REPLACE FUNCTION simsql._citus_size(index_id integer, scope jsonb, up_to bigint) RETURNS bigint
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    index constant simsql.registry := (SELECT r FROM simsql.registry AS r WHERE r.id = _citus_size.index_id);
    shared constant jsonb := simsql._parts(index, scope);
    shards bigint := 1;
    percent numeric;
    rows bigint;
BEGIN
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_dist_partition AS d
                    WHERE d.logicalrelid = index.table_id
                      AND column_to_column_name(d.logicalrelid, d.partkey) = ANY (index.scope_columns))
    THEN
        shards := (SELECT count(*) FROM pg_catalog.pg_dist_shard AS s WHERE s.logicalrelid = index.table_id);
    END IF;
    IF shards > 1 AND scope IS NULL THEN
        FOREACH percent IN ARRAY ARRAY[0.01, 1, 100] LOOP
            EXECUTE simsql._render($sql$
                SELECT count(t.{"column"}) FROM {rows} AS t TABLESAMPLE system ({percent}) WHERE {guard}$sql$,
                jsonb_build_object('percent', percent), shared)
               INTO rows;
            EXIT WHEN rows >= 1000;
        END LOOP;
        RETURN rows * 100 / percent / shards;
    END IF;
    -- Citus takes no empty select list.
    EXECUTE simsql._render($sql$
        SELECT count(*) FROM (
            SELECT 1 FROM {rows} AS t
             WHERE t.{"column"} IS NOT NULL{scope_of_rows} AND {guard} LIMIT $1) AS c$sql$, '{}', shared)
       INTO rows USING up_to;
    RETURN rows / shards;
END
$$;
