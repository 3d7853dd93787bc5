-- Designs of a hash join on prefixes, which near_many and pairs share.
--
-- Both work table by table. A match is reported by the first permutation that can find it: the first whose
-- prefix differs in no more bits than its radius. So no matches are compared across permutations, and the
-- memory for one permutation is free again before the next begins.

-- The designs of a hash join on prefixes and their estimated costs in microseconds, cheapest first. The join
-- reads rows, not keys, so its permutations need not be those of an index, and more tables allow longer
-- prefixes. A row, a flip of a query's prefix and a candidate each cost a look-up in a hash table, as measured
-- with 100,000 rows. `flipped` is the share of the queries that are looked up under each flip. Each statement
-- also takes time to plan.
CREATE OR REPLACE FUNCTION simsql._join_designs(
    queries bigint, rows bigint, distance integer, flipped double precision)
RETURNS TABLE (blocks integer, lead integer, cost double precision, candidates double precision)
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$
    SELECT m, c,
           200 * tables + tables * row_cost * (rows + queries)
           + (probes - tables) * flip_cost * queries + joined_candidate * expected,
           expected
      FROM generate_series(2, 16) AS m
     CROSS JOIN LATERAL generate_series(1, m - 1) AS c
     CROSS JOIN LATERAL CAST(simsql._table_count(m, c, 0) AS double precision) AS permutations
     CROSS JOIN LATERAL CAST(64 * c / m AS integer) AS prefix
     CROSS JOIN LATERAL (
           SELECT sum(share) AS tables, sum((1 + flipped * (ways - 1)) * share) AS probes
             -- With several lead blocks, all permutations have the same radius.
             FROM generate_series(0, CASE c WHEN 1 THEN m - 1 ELSE 0 END) AS number
            CROSS JOIN CAST(CASE c WHEN 1 THEN 1 ELSE permutations END AS double precision) AS share
            CROSS JOIN simsql._ways(prefix, simsql._radius(m, c, 0, number, distance)) AS ways WHERE ways > 0) AS p
     CROSS JOIN LATERAL (SELECT queries * rows * probes * 2::double precision ^ -prefix) AS e (expected)
     CROSS JOIN (VALUES (0.35, 0.4)) AS costs (row_cost, flip_cost)
     CROSS JOIN simsql._costs()
     -- The statement contains the flips as constants.
     WHERE permutations <= 128 AND probes <= 5000
     ORDER BY 3, tables, m, c
$$;

-- What a join on prefixes needs, for each permutation: the mask of the lead bits, their flips, the lowest
-- flipped bit of each flip (the pivot), the condition that joins, and the one that no earlier permutation finds
-- the match. `a` has the columns fp and prefix, and `b` is the expression of the other fingerprint.
--
-- A hash of a bigint begins with the exclusive or of its halves. Where lead bits lie 32 bits apart, thousands of
-- prefixes would have the same hash, so the upper half is joined on once more.
CREATE OR REPLACE FUNCTION simsql._join_tables(
    blocks integer, lead integer, inner_blocks integer, distance integer, a text, b text)
RETURNS TABLE (number integer, lead_mask bigint, prefix integer, radius integer, flips bigint[],
               pivots bigint[], joined text, not_earlier text)
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    found_before text := '';
BEGIN
    FOR number, lead_mask, prefix IN
        SELECT p.* FROM simsql._permutations(blocks, lead, inner_blocks) AS p ORDER BY p.number
    LOOP
        radius := simsql._radius(blocks, lead, inner_blocks, number, distance);
        CONTINUE WHEN radius < 0;
        flips := simsql._flips(lead_mask, radius);
        -- The highest bit alone has no negative.
        pivots := ARRAY(SELECT CASE f WHEN 1::bigint << 63 THEN f ELSE f & -f END FROM unnest(flips) AS f);
        joined := format('%s.prefix = (%s & %L::bigint)', a, b, lead_mask);
        IF (lead_mask >> 32) & lead_mask & 4294967295 <> 0 THEN
            joined := format('%s AND %s.prefix >> 32 = (%s & %L::bigint) >> 32', joined, a, b, lead_mask);
        END IF;
        not_earlier := found_before;
        found_before := format('%s AND bit_count(((%s.fp # %s) & %L::bigint)::bit(64)) > %s',
                               found_before, a, b, lead_mask, radius);
        RETURN NEXT;
    END LOOP;
END
$$;

-- Raises an error after more than a hundred million results, which would fill the disk.
CREATE OR REPLACE FUNCTION simsql._refuse_more(results bigint, what text, distance integer) RETURNS void
LANGUAGE plpgsql IMMUTABLE
AS $$
BEGIN
    IF results > 100000000 THEN
        RAISE EXCEPTION 'simsql: more than 100000000 % within distance %', what, distance
            USING ERRCODE = 'program_limit_exceeded',
                  HINT = 'Use a lower distance, or '
                         || CASE what WHEN 'pairs' THEN 'simsql pairs or simsql clusters on the command line'
                                 ELSE 'SearchIndex.near_many of more than 50,000 queries' END
                         || ', which is many times faster and stores no results.';
    END IF;
END
$$;
