-- The storage `expression`: what a search, a batch and a count read in the B-trees of the user's table.

-- The keys of a permutation are its lead bits, where they stand in the fingerprint.
CREATE OR REPLACE FUNCTION simsql._expression_branches(index simsql.registry)
RETURNS TABLE (number integer, key text, flipped bigint, parts jsonb)
LANGUAGE sql STABLE
AS $$
    SELECT p.number, format('($1 & %L::bigint)', p.lead_mask), p.lead_mask,
           jsonb_build_object('number', p.number, 'lead_mask', p.lead_mask)
      FROM simsql._permutations(index.blocks, index.lead, index.inner_blocks) AS p
$$;

-- What a search reads are rows, so every strategy returns matches.
CREATE OR REPLACE FUNCTION simsql._expression_reads(index simsql.registry) RETURNS jsonb
LANGUAGE sql STABLE
AS $$
    SELECT jsonb_build_object(
    'exact', $sql$
        SELECT t.{"column"} AS fingerprint
          FROM {rows} AS t
         WHERE (t.{"column"} & {'lead_mask'}::bigint) = {key}
           AND {is_match}{scope_of_rows}$sql$,
    'probes', $sql$
        SELECT t.{"column"} AS fingerprint
          FROM {rows} AS t
         WHERE (t.{"column"} & {'lead_mask'}::bigint)
               = ANY (ARRAY(SELECT {key} # f FROM unnest({flips}) AS f))
           AND {is_match}{scope_of_rows}$sql$,
    'between', E'\n         UNION ALL',
    'all', $sql$
        SELECT t.{"column"} AS fingerprint
          FROM {rows} AS t
         WHERE {is_match}{scope_of_rows}$sql$,
    'matches', $sql$SELECT m.fingerprint, m.distance
  FROM (SELECT DISTINCT bit_count((c.fingerprint # $1)::bit(64))::integer AS distance, c.fingerprint
          FROM ({source}) AS c) AS m
 WHERE {guard}
 ORDER BY m.distance, m.fingerprint$sql$,
    -- The table may be partitioned, so only counting tells its rows.
    'probing_pays', $sql${least_rows} IS NOT NULL
        AND EXISTS (SELECT FROM {rows} AS t
                     WHERE t.{"column"} IS NOT NULL{scope_of_rows} AND {guard} OFFSET {least_rows} - 1)$sql$,

    'batch', $sql$
        SELECT DISTINCT r.fp, r.fingerprint, bit_count((r.fingerprint # r.fp)::bit(64))::integer
          FROM (SELECT fp, (fp & {'lead_mask'}::bigint) # flip AS prefix
                  FROM unnest($1) AS u (fp)
                 CROSS JOIN unnest({flips}) AS f (flip) ORDER BY 2 OFFSET 0) AS q
         CROSS JOIN LATERAL (
               SELECT q.fp, t.{"column"} AS fingerprint FROM {rows} AS t
                WHERE (t.{"column"} & {'lead_mask'}::bigint) = q.prefix
                  AND bit_count((t.{"column"} # q.fp)::bit(64)) <= $2{scope_of_rows} OFFSET 0) AS r
         WHERE {guard}{not_earlier}$sql$,

    'size', $sql$SELECT count(*) FROM (
        SELECT FROM {rows} AS t WHERE t.{"column"} IS NOT NULL{scope_of_rows} AND {guard} LIMIT $1) AS c$sql$,
    'sample', $sql$SELECT ARRAY(
        SELECT t.{"column"} FROM {rows} AS t TABLESAMPLE bernoulli ({percent}) REPEATABLE (0)
         WHERE t.{"column"} IS NOT NULL AND {guard} ORDER BY 1)$sql$,
    'count', $sql$
        SELECT coalesce(sum(k.keys), 0)
          FROM (SELECT fp, (fp & {'lead_mask'}::bigint) # f AS prefix
                  FROM unnest($1) AS fp CROSS JOIN unnest($2) AS f OFFSET 0) AS q
         CROSS JOIN LATERAL (
               SELECT count(*) AS keys FROM {rows} AS t
                WHERE (t.{"column"} & {'lead_mask'}::bigint) = q.prefix
                  AND t.{"column"} <> q.fp{scope_of_rows} AND {guard}) AS k$sql$)
    || CASE WHEN simsql._is_distributed(index.table_id) THEN simsql._citus_reads() ELSE '{}' END
$$;
