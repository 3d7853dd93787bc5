-- pairs: every pair of fingerprints within a distance.

-- The distinct fingerprints of an index, or of a scope, in ascending order, without nulls.
CREATE OR REPLACE FUNCTION simsql._fingerprints(index simsql.registry, scope jsonb) RETURNS bigint[]
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    fingerprints bigint[];
BEGIN
    EXECUTE simsql._render(simsql._storage_reads(index) ->> 'fingerprints', '{}', simsql._parts(index, scope))
       INTO fingerprints;
    PERFORM simsql._check_searched(index.id, index.table_id, index.stamp_id);
    RETURN fingerprints;
END
$$;

-- Estimates from evenly spaced samples how many candidates a self-join of these distinct, sorted fingerprints
-- meets. Groups of equal prefixes are multiplied, not joined, so a crowded prefix costs no more than any
-- other.
CREATE OR REPLACE FUNCTION simsql._measured_candidates(
    fingerprints bigint[], distance integer, blocks integer, lead integer)
RETURNS double precision
LANGUAGE plpgsql STABLE
SET enable_mergejoin = off SET jit = off
AS $$
DECLARE
    rows constant bigint := cardinality(fingerprints);
    rights constant bigint[] := ARRAY(SELECT fingerprints[1 + n * rows / least(2000, rows)]
                                        FROM generate_series(0, least(2000, rows) - 1) AS n);
    lefts bigint[];
    in_both bigint;
    size bigint;
    join_table record;
    met double precision;
    candidates double precision := 0;
BEGIN
    FOR join_table IN SELECT * FROM simsql._join_tables(blocks, lead, 0, distance, 'a', 'b.fp') LOOP
        IF size IS DISTINCT FROM least(rows, greatest(50, 4000 / cardinality(join_table.flips))) THEN
            size := least(rows, greatest(50, 4000 / cardinality(join_table.flips)));
            lefts := ARRAY(SELECT fingerprints[1 + n * rows / size] FROM generate_series(0, size - 1) AS n);
            in_both := (SELECT count(*) FROM unnest(lefts) AS l JOIN unnest(rights) AS r ON l = r);
        END IF;
        SELECT sum(a.n * b.n) INTO met
          FROM (SELECT (fp & join_table.lead_mask) # flip AS prefix, count(*)::double precision AS n
                  FROM unnest(lefts) AS fp
                 CROSS JOIN unnest(join_table.flips, join_table.pivots) AS f (flip, pivot)
                 WHERE fp & pivot = 0 GROUP BY 1) AS a
          JOIN (SELECT fp & join_table.lead_mask AS prefix, count(*)::double precision AS n
                  FROM unnest(rights) AS fp GROUP BY 1) AS b
         USING (prefix);
        -- A fingerprint that is in both samples has met itself.
        candidates := candidates
                      + (coalesce(met, 0) - in_both) * rows / cardinality(lefts) * rows / cardinality(rights);
    END LOOP;
    RETURN candidates;
END
$$;

-- Returns one statement per permutation of a design. Together they find every pair of the distinct
-- fingerprints $1 within the distance $2 once. One side is looked up under each flip of its prefix: of two
-- fingerprints whose prefixes differ, the one in which the lowest differing bit is 0.
CREATE OR REPLACE FUNCTION simsql._pairs_by_prefix(distance integer, blocks integer, lead integer)
RETURNS SETOF text
LANGUAGE sql STABLE
AS $$
    SELECT simsql._render($sql$
        SELECT least(a.fp, b.fp), greatest(a.fp, b.fp), bit_count((a.fp # b.fp)::bit(64))::integer
          FROM (SELECT fp, flip, (fp & {'lead_mask'}::bigint) # flip AS prefix
                  FROM unnest($1) AS u (fp)
                 CROSS JOIN unnest({'flips'}::bigint[], {'pivots'}::bigint[]) AS f (flip, pivot)
                 WHERE fp & pivot = 0) AS a
          JOIN unnest($1) AS b (fp)
            ON {joined} AND (a.flip <> 0 OR a.fp < b.fp)
         WHERE bit_count((a.fp # b.fp)::bit(64)) <= $2{not_earlier}$sql$,
        jsonb_build_object('lead_mask', t.lead_mask, 'flips', t.flips::text, 'pivots', t.pivots::text,
                           'joined', t.joined, 'not_earlier', t.not_earlier))
      FROM simsql._join_tables(blocks, lead, 0, distance, 'a', 'b.fp') AS t
$$;

-- Returns the statements that find every pair of distinct, sorted fingerprints, by the cheapest design. Real
-- fingerprints crowd some prefixes and meet more candidates than expected, never fewer. So a design whose
-- expected cost exceeds the measured cost of another need not be measured. If every design costs more than a
-- comparison of all with all, one statement does that.
CREATE OR REPLACE FUNCTION simsql._statements_for_pairs(fingerprints bigint[], distance integer)
RETURNS SETOF text
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    rows constant bigint := cardinality(fingerprints);
    cheapest double precision := 0.025 * rows * rows;
    worth_measuring constant boolean := cheapest > 50000;
    design record;
    cost double precision;
    chosen record;
BEGIN
    chosen := NULL;
    FOR design IN SELECT * FROM simsql._join_designs(rows, rows, distance, 0.5) LIMIT 12 LOOP
        EXIT WHEN design.cost >= cheapest;
        cost := design.cost;
        IF worth_measuring THEN
            cost := cost + (simsql._costs()).joined_candidate
                           * greatest(0, simsql._measured_candidates(
                                             fingerprints, distance, design.blocks, design.lead)
                                         - design.candidates);
        END IF;
        IF cost < cheapest THEN
            cheapest := cost;
            chosen := design;
        END IF;
    END LOOP;
    IF chosen IS NULL THEN
        -- Each thousand is compared with itself and what follows: half as many comparisons as a plain
        -- self-join.
        RETURN NEXT $sql$
            SELECT p.*
              FROM generate_series(1, cardinality($1), 1000) AS c (start)
             CROSS JOIN LATERAL (
                   SELECT a.fp, b.fp, bit_count((a.fp # b.fp)::bit(64))::integer
                     FROM unnest($1[c.start : c.start + 999]) AS a (fp)
                     JOIN unnest($1[c.start :]) AS b (fp)
                       ON a.fp < b.fp AND bit_count((a.fp # b.fp)::bit(64)) <= $2 OFFSET 0) AS p$sql$;
    ELSE
        RETURN QUERY SELECT s FROM simsql._pairs_by_prefix(distance, chosen.blocks, chosen.lead) AS s;
    END IF;
END
$$;

-- The planner knows nothing about prefixes and would sort both sides of each join. Without merge joins it
-- hashes them.
CREATE OR REPLACE FUNCTION simsql.pairs(
    table_name regclass, distance integer DEFAULT NULL, column_name text DEFAULT NULL,
    scope jsonb DEFAULT NULL)
RETURNS SETOF simsql.pair
LANGUAGE plpgsql STABLE
SET enable_mergejoin = off SET jit = off
AS $$
DECLARE
    is_coordinator constant boolean := simsql._is_coordinator('pairs');
    index record;
    asked integer;
    fingerprints bigint[];
    statement text;
    of_statement bigint;
    found_pairs bigint := 0;
BEGIN
    IF NOT simsql._sees_rows(table_name) THEN
        RETURN QUERY
        SELECT p.* FROM simsql._again(table_name, format('pairs(%L, %L, %L, %L)', table_name::oid, distance, column_name,
                                                     scope))
                            AS p (a bigint, b bigint, distance integer);
        RETURN;
    END IF;
    index := simsql._searched_index(table_name, column_name, scope);
    asked := simsql._distance(distance, index.distance);
    fingerprints := simsql._fingerprints(index, scope);
    FOR statement IN SELECT s FROM simsql._statements_for_pairs(fingerprints, asked) AS s LOOP
        RETURN QUERY EXECUTE statement || ' LIMIT 100000001' USING fingerprints, asked;
        GET DIAGNOSTICS of_statement := ROW_COUNT;
        found_pairs := found_pairs + of_statement;
        PERFORM simsql._refuse_more(found_pairs, 'pairs', asked);
    END LOOP;
END
$$;

COMMENT ON TYPE simsql.pair IS 'two fingerprints of rows, a < b, and their distance in bits';
COMMENT ON FUNCTION simsql.pairs(regclass, integer, text, jsonb) IS
    'every pair of different fingerprints (a < b) within the distance, once each, '
    'of rows in the table or the scope; '
    'the command simsql pairs is many times faster on many rows';
