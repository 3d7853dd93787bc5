-- The layout of an index: blocks, permutations, radius and cost, as in simsql/hamming.
--
-- 64 bits are split into blocks (block 0 holds the most significant bits; larger blocks first). A
-- permutation moves its lead blocks to the front and leaves the others behind in order. Permutations
-- are numbered from 0 in lexicographic order of their lead blocks.

CREATE FUNCTION simsql._permutations(blocks integer, lead integer)
RETURNS TABLE (number integer, lead_blocks integer[], prefix integer)
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$
    WITH RECURSIVE choice (lead_blocks) AS (
        SELECT '{}'::integer[]
        UNION ALL
        SELECT c.lead_blocks || b
          FROM choice AS c
         CROSS JOIN generate_series(0, blocks - 1) AS b
         WHERE cardinality(c.lead_blocks) < lead
           AND b > coalesce(c.lead_blocks[cardinality(c.lead_blocks)], -1)
    )
    SELECT (row_number() OVER (ORDER BY c.lead_blocks) - 1)::integer,
           c.lead_blocks,
           (SELECT sum(64 / blocks + (b < 64 % blocks)::integer)::integer FROM unnest(c.lead_blocks) AS b)
      FROM choice AS c
     WHERE cardinality(c.lead_blocks) = lead
$$;

-- Which bits a permutation shifts by how much: a positive shift goes to the left, and the mask
-- selects the bits where they arrive. Blocks that move together are one row.
CREATE FUNCTION simsql._moves(blocks integer, lead_blocks integer[])
RETURNS TABLE (shift integer, mask bigint)
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$
    WITH block AS (
        SELECT b AS number, 64 / blocks + (b < 64 % blocks)::integer AS width
          FROM generate_series(0, blocks - 1) AS b
    ), placed AS (
        SELECT width,
               64 - sum(width) OVER (ORDER BY number) AS source,
               64 - sum(width) OVER (ORDER BY number <> ALL (lead_blocks), number) AS target
          FROM block
    )
    SELECT (target - source)::integer, bit_or(((1::bigint << width) - 1) << target::integer)
      FROM placed
     GROUP BY target - source
     ORDER BY 1
$$;

-- The SQL expression that permutes a fingerprint into a key, or a key back into a fingerprint.
CREATE FUNCTION simsql._permute(operand text, blocks integer, lead_blocks integer[])
RETURNS text
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$
    SELECT '(' || string_agg(
               CASE WHEN m.mask = -1 THEN operand
                    WHEN m.shift = 0 THEN format('(%s & %L::bigint)', operand, m.mask)
                    WHEN m.shift > 0 THEN format('((%s << %s) & %L::bigint)', operand, m.shift, m.mask)
                    ELSE format('((%s >> %s) & %L::bigint)', operand, -m.shift, m.mask)
               END, ' | ' ORDER BY m.shift) || ')'
      FROM simsql._moves(blocks, lead_blocks) AS m
$$;

CREATE FUNCTION simsql._unpermute(operand text, blocks integer, lead_blocks integer[])
RETURNS text
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$
    SELECT '(' || string_agg(
               CASE WHEN m.mask = -1 THEN operand
                    WHEN m.shift = 0 THEN format('(%s & %L::bigint)', operand, m.mask)
                    WHEN m.shift > 0 THEN format('((%s & %L::bigint) >> %s & %L::bigint)', operand, m.mask,
                                                 m.shift, ~(-1::bigint << (64 - m.shift)))
                    ELSE format('((%s & %L::bigint) << %s)', operand, m.mask, -m.shift)
               END, ' | ' ORDER BY m.shift) || ')'
      FROM simsql._moves(blocks, lead_blocks) AS m
$$;

-- How many bits of a prefix a search at this distance has to flip: spread the differing bits as
-- evenly as an adversary can, then take the emptiest lead blocks.
CREATE FUNCTION simsql._radius(blocks integer, lead integer, distance integer) RETURNS integer
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$ SELECT lead * (distance / blocks) + greatest(0, lead - (blocks - distance % blocks)) $$;

-- All ways to flip up to radius bits of a prefix, as numbers of prefix bits.
CREATE FUNCTION simsql._flips(prefix integer, radius integer) RETURNS bigint[]
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
AS $$
DECLARE
    level bigint[] := '{0}';
    flips bigint[] := '{0}';
BEGIN
    FOR flipped IN 1 .. least(radius, prefix) LOOP
        -- Each flip once: only bits below the lowest one that is flipped already.
        level := ARRAY(SELECT f | (1::bigint << b)
                         FROM unnest(level) AS f
                        CROSS JOIN generate_series(0, prefix - 1) AS b
                        WHERE f = 0 OR (1::bigint << b) < (f & -f));
        flips := flips || level;
    END LOOP;
    RETURN flips;
END
$$;

-- Sum of the binomial coefficients (prefix choose i) for i up to radius.
CREATE FUNCTION simsql._ways(prefix integer, radius integer) RETURNS double precision
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
AS $$
DECLARE
    level double precision := 1;
    ways double precision := 1;
BEGIN
    FOR flipped IN 1 .. least(radius, prefix) LOOP
        level := level * (prefix - flipped + 1) / flipped;
        ways := ways + level;
    END LOOP;
    RETURN ways;
END
$$;

-- How many ranges a search with this radius scans, and which share of all keys it expects to meet in
-- them (which may exceed 1).
CREATE FUNCTION simsql._cost(blocks integer, lead integer, radius integer,
                             OUT probes double precision, OUT share double precision)
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$
    SELECT sum(ways), sum(ways * 2::double precision ^ -prefix)
      FROM (SELECT p.prefix, simsql._ways(p.prefix, radius) AS ways
              FROM simsql._permutations(blocks, lead) AS p) AS tables
$$;

-- From how many rows on probing with radius 1, 2, ... is expected to beat a sequential scan; the
-- array ends where it never does. Cost in microseconds, measured on PostgreSQL 18: 1.6 a probe,
-- 0.055 a candidate, 0.0426 a row of a sequential scan.
CREATE FUNCTION simsql._scan_below(blocks integer, lead integer) RETURNS bigint[]
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$
    SELECT coalesce(array_agg(ceil(1.6 * c.probes / (0.0426 - 0.055 * c.share))::bigint ORDER BY radius), '{}')
      FROM generate_series(1, 63) AS radius
     CROSS JOIN LATERAL simsql._cost(blocks, lead, radius) AS c
     WHERE 0.055 * c.share < 0.0426 AND 1.6 * c.probes / (0.0426 - 0.055 * c.share) < 1e15
$$;
