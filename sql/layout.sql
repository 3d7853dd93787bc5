-- The layout of an index: blocks, permutations, radii and costs, as in simsql/hamming.
--
-- 64 bits are split into blocks. Block 0 holds the most significant bits, and larger blocks come first. A
-- permutation moves its lead blocks to the front, followed by the other bits, all in their original order.
-- With inner blocks, the remaining bits are split again, and one of these blocks joins the lead: the nested
-- design of Manku, Jain and Das Sarma. So the bits that lead identify a permutation. Permutations are
-- numbered from 0 in lexicographic order of their lead blocks, then of the inner block.

-- Splits bits, the most significant first, into this number of blocks, and returns the mask of each.
CREATE OR REPLACE FUNCTION simsql._block_masks(bits integer[], blocks integer) RETURNS bigint[]
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
AS $$
DECLARE
    size constant integer := cardinality(bits) / blocks;
    larger constant integer := cardinality(bits) % blocks;
    masks bigint[] := '{}';
    mask bigint;
    place integer := 1;
BEGIN
    FOR block IN 1 .. blocks LOOP
        mask := 0;
        FOR step IN 1 .. size + (block <= larger)::integer LOOP
            mask := mask | (1::bigint << bits[place]);
            place := place + 1;
        END LOOP;
        masks := masks || mask;
    END LOOP;
    RETURN masks;
END
$$;

-- As a loop: a query of this size takes longer to start than to run, and most statements about an index need
-- it.
CREATE OR REPLACE FUNCTION simsql._permutations(blocks integer, lead integer, inner_blocks integer)
RETURNS TABLE (number integer, lead_mask bigint, prefix integer)
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
AS $$
DECLARE
    masks constant bigint[] := simsql._block_masks(ARRAY(SELECT generate_series(63, 0, -1)), blocks);
    chosen integer[] := ARRAY(SELECT generate_series(1, lead));
    place integer;
    outer_mask bigint;
    inner_mask bigint;
BEGIN
    number := 0;
    LOOP
        outer_mask := 0;
        FOREACH place IN ARRAY chosen LOOP
            outer_mask := outer_mask | masks[place];
        END LOOP;
        FOREACH inner_mask IN ARRAY CASE inner_blocks WHEN 0 THEN '{0}' ELSE simsql._block_masks(
            ARRAY(SELECT b FROM generate_series(63, 0, -1) AS b WHERE (outer_mask >> b) & 1 = 0),
            inner_blocks) END
        LOOP
            lead_mask := outer_mask | inner_mask;
            prefix := bit_count(lead_mask::bit(64));
            RETURN NEXT;
            number := number + 1;
        END LOOP;
        -- Move on the last lead block that can move, and put the ones after it right behind it.
        place := lead;
        WHILE place > 0 AND chosen[place] = blocks - lead + place LOOP
            place := place - 1;
        END LOOP;
        EXIT WHEN place = 0;
        chosen := chosen[1:place - 1]
                  || ARRAY(SELECT generate_series(chosen[place] + 1, chosen[place] + 1 + lead - place));
    END LOOP;
END
$$;

-- The SQL expression that permutes a fingerprint into a key, or a key `back` into its fingerprint. Bits that
-- move together are one term: shifted, to the left if the shift is positive, and then selected where they
-- arrive.
CREATE OR REPLACE FUNCTION simsql._permute(operand text, lead_mask bigint, back boolean DEFAULT false)
RETURNS text
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$
    SELECT '(' || string_agg(
               CASE WHEN m.mask = -1 THEN operand
                    WHEN m.shift = 0 THEN format('(%s & %L::bigint)', operand, m.mask)
                    WHEN m.shift > 0 THEN format('((%s << %s) & %L::bigint)', operand, m.shift, m.mask)
                    ELSE format('((%s >> %s) & %L::bigint)', operand, -m.shift, m.mask)
               END, ' | ' ORDER BY m.shift) || ')'
      FROM (SELECT (d.target - d.source)::integer AS shift, bit_or(1::bigint << d.target::integer) AS mask
              FROM (SELECT bit, 64 - row_number() OVER (ORDER BY (lead_mask >> bit) & 1 DESC, bit DESC)
                      FROM generate_series(0, 63) AS bit) AS p (bit, place)
             CROSS JOIN LATERAL (SELECT CASE WHEN back THEN p.place ELSE p.bit END AS source,
                                        CASE WHEN back THEN p.bit ELSE p.place END AS target) AS d
             GROUP BY d.target - d.source) AS m
$$;

-- The number of permutations of a design.
CREATE OR REPLACE FUNCTION simsql._table_count(blocks integer, lead integer, inner_blocks integer)
RETURNS numeric
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$
    SELECT div(factorial(blocks), factorial(lead) * factorial(blocks - lead)) * greatest(inner_blocks, 1)
$$;

-- How many bits of its prefix a search at this distance has to flip in this permutation's table; -1 if the
-- table need not be read. With one lead block: if every block had more differing bits than this, there would
-- be more of them than the distance (Norouzi, Punjani, Fleet, section 3.1). Otherwise the radius is the same
-- for every table: an adversary spreads the differing bits evenly, and the search picks the blocks with the
-- fewest. PostgreSQL inlines it: searches compute it from their distance.
CREATE OR REPLACE FUNCTION simsql._radius(
    blocks integer, lead integer, inner_blocks integer, number integer, distance integer)
RETURNS integer
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN lead = 1 AND inner_blocks = 0 THEN (distance - number + blocks) / blocks - 1
            WHEN inner_blocks = 0
            THEN lead * (distance / blocks) + greatest(0, lead - (blocks - distance % blocks))
            -- The same, and an inner block's share of the other differing bits.
            ELSE (distance + (inner_blocks - 1) * (lead * (distance / blocks)
                                                   + greatest(0, lead - (blocks - distance % blocks))))
                 / inner_blocks
       END;

-- All ways to flip up to `radius` of these bits; none for a negative radius.
CREATE OR REPLACE FUNCTION simsql._flips(bits bigint, radius integer) RETURNS bigint[]
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
AS $$
DECLARE
    single constant bigint[] := ARRAY(
        SELECT 1::bigint << b FROM generate_series(0, 63) AS b WHERE (bits >> b) & 1 = 1 ORDER BY b);
    level bigint[] := '{0}';
    lowest integer[] := ARRAY[cardinality(single) + 1];
    flips bigint[] := '{0}';
BEGIN
    IF radius < 0 THEN
        RETURN '{}';
    END IF;
    FOR flipped IN 1 .. least(radius, cardinality(single)) LOOP
        -- Each flip once: add only bits below the lowest one that is already flipped.
        SELECT array_agg(f.flip | b.bit), array_agg(b.place) INTO level, lowest
          FROM unnest(level, lowest) AS f (flip, lowest)
          JOIN unnest(single) WITH ORDINALITY AS b (bit, place) ON b.place < f.lowest;
        flips := flips || level;
    END LOOP;
    RETURN flips;
END
$$;

-- The sum of the binomial coefficients (prefix choose i) for i up to the radius; 0 for a negative radius.
CREATE OR REPLACE FUNCTION simsql._ways(prefix integer, radius integer) RETURNS double precision
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
AS $$
DECLARE
    level double precision := 1;
    ways double precision := CASE WHEN radius < 0 THEN 0 ELSE 1 END;
BEGIN
    FOR flipped IN 1 .. least(radius, prefix) LOOP
        level := level * (prefix - flipped + 1) / flipped;
        ways := ways + level;
    END LOOP;
    RETURN ways;
END
$$;

-- Costs in microseconds, as in simsql/hamming/design.py, which explains them.
CREATE OR REPLACE FUNCTION simsql._costs(
    OUT probe double precision, OUT candidate double precision, OUT scan_row double precision,
    OUT write_table double precision, OUT joined_candidate double precision)
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$ SELECT 1.1, 0.1, 0.06, 12.0, 0.2 $$;

-- For each distance, how many ranges a search scans, and the share of all keys that it expects in them, which
-- may exceed 1.
CREATE OR REPLACE FUNCTION simsql._searches(
    blocks integer, lead integer, inner_blocks integer, distances integer[])
RETURNS TABLE (distance integer, probes double precision, share double precision)
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$
    SELECT w.distance, sum(w.ways), sum(w.ways * 2::double precision ^ -w.prefix)
      FROM (SELECT d AS distance, p.prefix,
                   simsql._ways(p.prefix, simsql._radius(blocks, lead, inner_blocks, p.number, d)) AS ways
              FROM simsql._permutations(blocks, lead, inner_blocks) AS p
             CROSS JOIN unnest(distances) AS d
            OFFSET 0) AS w  -- so that it computes them once for both sums
     GROUP BY w.distance
$$;

-- The number of rows from which probing is expected to beat a sequential scan, for each distance from 0 to
-- the last at which it ever does: functions contain this array, and under array_nulls = off PostgreSQL reads
-- no nulls. `shares` are the measured shares of _searches, by distance; without them, fingerprints count as
-- random.
CREATE OR REPLACE FUNCTION simsql._scan_below(
    blocks integer, lead integer, inner_blocks integer, shares double precision[] DEFAULT NULL)
RETURNS bigint[]
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT array_agg(ceil(c.probe * s.probes / saved)::bigint ORDER BY s.distance)
               FILTER (WHERE saved > 0 AND c.probe * s.probes < 1e15 * saved)
      FROM simsql._searches(blocks, lead, inner_blocks, ARRAY(SELECT generate_series(0, 64))) AS s
     CROSS JOIN simsql._costs() AS c
     CROSS JOIN LATERAL (
           SELECT c.scan_row - c.candidate * coalesce(shares[s.distance + 1], s.share) AS saved) AS row
$$;

-- The design that simsql.plan recommends for this number of rows and this distance: the cheapest for one
-- search and one row written. Tables grow, so fewer than a million rows count as a million.
CREATE OR REPLACE FUNCTION simsql._design(rows bigint, distance integer, OUT blocks integer, OUT lead integer)
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE SET jit = off
AS $$
    SELECT m, c
      FROM generate_series(2, 20) AS m
     CROSS JOIN LATERAL generate_series(1, m - 1) AS c
     CROSS JOIN LATERAL simsql._table_count(m, c, 0) AS tables
     CROSS JOIN LATERAL simsql._searches(m, c, 0, ARRAY[_design.distance]) AS search
     CROSS JOIN simsql._costs() AS cost
     WHERE tables <= 20
     ORDER BY least(cost.probe * search.probes + cost.candidate * search.share * greatest(rows, 1000000),
                    cost.scan_row * greatest(rows, 1000000)) + cost.write_table * tables,
              tables, m, c
     LIMIT 1
$$;
