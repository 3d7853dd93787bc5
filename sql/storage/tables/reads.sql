-- The storage `tables`: what a search, a batch and a count read in the key tables.

-- The ranges of a permutation are bounded by the bits of its prefix, which come first in a key.
CREATE OR REPLACE FUNCTION simsql._tables_branches(index simsql.registry)
RETURNS TABLE (number integer, key text, flipped bigint, parts jsonb)
LANGUAGE sql STABLE
AS $$
    SELECT p.number, e.key, e.outside,
           jsonb_build_object('number', p.number,
                              'keys', format('simsql.keys_%s_%s', index.id, p.number),
                              'fingerprint', simsql._permute('k.key', p.lead_mask, back => true),
                              'key_of_fp', replace(e.key, '$1', 'fp'),
                              'outside', e.outside,
                              'inside', ~e.outside)
      FROM simsql._permutations(index.blocks, index.lead, index.inner_blocks) AS p
     CROSS JOIN LATERAL (SELECT simsql._permute('$1', p.lead_mask), -1::bigint << (64 - p.prefix) OFFSET 0)
           AS e (key, outside)
$$;

-- A key may be stored many times and may outlive its row. So a search collects candidates, which are
-- fingerprints of keys, and then keeps one of each if a live row has it. It stops after _candidates() of
-- them, and starts over with `skip`, which reads the same ranges in pieces without the copies of equal keys.
-- Keys within `max_distance`, a few bits farther away than a match, count as candidates too, so that this also
-- happens for a key with many copies that is just outside the distance.
--
-- OFFSET 0 keeps the bounds of ranges bare columns. Comparisons with bare columns are index conditions even
-- under row-level security; operators such as & are not, because they are not leakproof. It also keeps the
-- planner from joining all ranges with all keys of a scope, which it estimates to be few until they are
-- analyzed, and from moving the condition elsewhere.
CREATE OR REPLACE FUNCTION simsql._tables_reads(index simsql.registry) RETURNS jsonb
LANGUAGE sql STABLE
AS $$
    SELECT jsonb_build_object(
    'exact', $sql$
        SELECT {fingerprint} AS fingerprint
          FROM {keys} AS k
         WHERE k.key >= {key} & {'outside'}::bigint AND k.key <= {key} | {'inside'}::bigint{scope_of_keys}
           AND {key_is_near}$sql$,
    'probes', $sql$
        SELECT {fingerprint} AS fingerprint
          FROM (SELECT ({key} # f) & {'outside'}::bigint AS low, ({key} # f) | {'inside'}::bigint AS high
                  FROM unnest({flips}) AS f OFFSET 0) AS p
         CROSS JOIN LATERAL (
               SELECT k.key FROM {keys} AS k
                WHERE k.key >= p.low AND k.key <= p.high{scope_of_keys}
                  AND {key_is_near} OFFSET 0) AS k$sql$,
    'skip', '
        SELECT s.fingerprint
          FROM ' || replace(pieces, '{queries}', '(SELECT $1 AS fp, {key} AS center)') || ' AS s',
    'skip_many', 'SELECT s.* FROM ' || replace(
        pieces, '{queries}', '(SELECT fp, {key_of_fp} AS center FROM unnest($1) AS u (fp))') || ' AS s',
    'between', E'\n         UNION ALL',
    -- The keys of the first permutation are the fingerprints themselves.
    'all', $sql$(SELECT k.key FROM simsql.keys_{id}_0 AS k WHERE k.key IS NOT NULL{scope_of_keys})$sql$,
    -- The last branch reads nothing. It makes a search without candidates fail for a role that cannot read
    -- the columns.
    'candidates', $sql$SELECT c.fingerprint
  FROM ({source}
         UNION ALL
        SELECT t.{"column"} FROM ONLY {table} AS t TABLESAMPLE system (0) WHERE false{no_scope}) AS c
 LIMIT {candidate_limit}$sql$,
    -- LIMIT 1 makes the planner look up each candidate once, whatever it estimates.
    'matches', $sql$SELECT m.fingerprint, m.distance
  FROM (SELECT DISTINCT bit_count((c.fingerprint # $1)::bit(64))::integer AS distance, c.fingerprint
          FROM {source} AS c (fingerprint)
         WHERE {is_match}) AS m
 CROSS JOIN LATERAL (SELECT FROM ONLY {table} AS t
                      WHERE t.{"column"} = m.fingerprint{scope_of_rows} LIMIT 1) AS live
 WHERE {guard}
 ORDER BY m.distance, m.fingerprint$sql$,
    -- A key takes 36 bytes.
    'probing_pays', $sql$pg_relation_size('simsql.keys_{id}_0') / 36 >= {least_rows}$sql$,
    'probing_pays_in_scope', $sql${least_rows} IS NOT NULL
        AND EXISTS (SELECT FROM simsql.keys_{id}_0 AS k
                     WHERE true{scope_of_keys} OFFSET {least_rows} - 1)$sql$,

    -- As a single search, a statement that meets too many candidates skips equal keys. Ranges come in the
    -- order of keys, so that neighbours are read one after another.
    'batch', $sql$
        WITH found AS MATERIALIZED (
            SELECT p.fp, {fingerprint} AS fingerprint,
                   bit_count((k.key # p.center)::bit(64))::integer AS distance
              FROM (SELECT q.fp, q.center, (q.center # flip) & {'outside'}::bigint AS low,
                           (q.center # flip) | {'inside'}::bigint AS high
                      FROM (SELECT fp, {key_of_fp} AS center FROM unnest($1) AS u (fp)) AS q
                     CROSS JOIN unnest({flips}) AS f (flip) ORDER BY 3 OFFSET 0) AS p
             CROSS JOIN LATERAL (
                   SELECT k.key FROM {keys} AS k
                    WHERE k.key >= p.low AND k.key <= p.high{scope_of_keys}
                      AND bit_count((k.key # p.center)::bit(64)) <= greatest($2 + 4, 12) OFFSET 0) AS k
             LIMIT {batch_limit})
        SELECT m.fp, m.fingerprint, m.distance
          FROM (SELECT DISTINCT r.fp, r.fingerprint, r.distance
                  FROM (SELECT f.* FROM found AS f
                         UNION ALL
                        SELECT s.* FROM simsql._tables_skip({id}, {number}, $1, $2, {'scope'}) AS s
                         WHERE (SELECT count(*) FROM found) = {batch_limit}) AS r (fp, fingerprint, distance)
                 WHERE r.distance <= $2{not_earlier}) AS m
         CROSS JOIN LATERAL (SELECT FROM ONLY {table} AS t
                              WHERE t.{"column"} = m.fingerprint{scope_of_rows} LIMIT 1) AS live
         WHERE {guard}$sql$,

    'size', $sql$SELECT pg_relation_size('simsql.keys_{id}_0') / 36$sql$,
    'size_of_scope', $sql$SELECT count(*) FROM (
        SELECT FROM simsql.keys_{id}_0 AS k WHERE true{scope_of_keys} LIMIT $1) AS c$sql$,
    'sample', $sql$SELECT ARRAY(
        SELECT k.key FROM simsql.keys_{id}_0 AS k TABLESAMPLE bernoulli ({percent}) REPEATABLE (0)
         WHERE k.key IS NOT NULL ORDER BY k.key)$sql$,
    'count', $sql$
        SELECT coalesce(sum(k.keys), 0)
          FROM (SELECT r.key, (r.key # f) & {'outside'}::bigint AS low,
                       (r.key # f) | {'inside'}::bigint AS high
                  FROM (SELECT {key_of_fp} AS key FROM unnest($1) AS fp) AS r
                 CROSS JOIN unnest($2) AS f OFFSET 0) AS q
         CROSS JOIN LATERAL (
               SELECT count(*) AS keys FROM {keys} AS k
                WHERE k.key >= q.low AND k.key <= q.high AND k.key <> q.key{scope_of_keys}) AS k$sql$)
      -- The matches in the ranges of {queries}, read in pieces without the copies of equal keys.
      FROM (VALUES ($sql$(
            WITH RECURSIVE piece AS (
                SELECT p.fp, p.center, p.high, ARRAY(SELECT k.key FROM {keys} AS k
                                                      WHERE k.key >= p.low AND k.key <= p.high{scope_of_keys}
                                                      ORDER BY k.key LIMIT 100) AS keys
                  FROM (SELECT q.fp, q.center, (q.center # flip) & {'outside'}::bigint AS low,
                               (q.center # flip) | {'inside'}::bigint AS high
                          FROM {queries} AS q
                         CROSS JOIN unnest({flips}) AS f (flip) ORDER BY 3 OFFSET 0) AS p
                 UNION ALL
                SELECT p.fp, p.center, p.high, ARRAY(SELECT k.key FROM {keys} AS k
                                                      WHERE k.key > p.last AND k.key <= p.high{scope_of_keys}
                                                      ORDER BY k.key LIMIT 100)
                  FROM (SELECT q.*, q.keys[100] AS last FROM piece AS q
                         WHERE cardinality(q.keys) = 100 OFFSET 0) AS p)
            SELECT piece.fp, {fingerprint} AS fingerprint,
                   bit_count((k.key # piece.center)::bit(64))::integer AS distance
              FROM piece CROSS JOIN LATERAL unnest(piece.keys) AS k (key)
             WHERE {copy_is_near})$sql$)) AS t (pieces)
$$;

-- The matches of each fingerprint in one key table, whether or not a row has them, without reading copies of
-- equal keys. A function, because few batches need it, and planning it takes a while.
CREATE OR REPLACE FUNCTION simsql._tables_skip(
    index_id integer, number integer, fingerprints bigint[], distance integer, scope jsonb)
RETURNS SETOF simsql.query_match
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    index constant simsql.registry := (SELECT r FROM simsql.registry AS r WHERE r.id = _tables_skip.index_id);
BEGIN
    RETURN QUERY EXECUTE (
        SELECT simsql._render(simsql._tables_reads(index) ->> 'skip_many',
                              jsonb_build_object('copy_is_near', 'bit_count((k.key # piece.center)::bit(64)) <= $2',
                                                 'flips', format('%L::bigint[]', simsql._flips(
                                  b.flipped, simsql._radius(index.blocks, index.lead, index.inner_blocks,
                                                            b.number, distance)))),
                              simsql._parts(index, scope) || b.parts)
          FROM simsql._tables_branches(index) AS b WHERE b.number = _tables_skip.number)
      USING fingerprints, distance;
END
$$;
