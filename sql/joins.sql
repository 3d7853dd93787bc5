-- Many searches in one statement, and all pairs: near_many and pairs.
--
-- Both work table by table: a match is reported by the first permutation that can find it, one whose prefix
-- differs in no more bits than its radius. So nothing has to be compared across permutations, and the
-- memory of one is free again when the next begins.

-- What a candidate of a hash join costs, in microseconds.
CREATE OR REPLACE FUNCTION simsql._candidate_cost() RETURNS double precision
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN 0.2;

-- The designs of a hash join on prefixes, cheapest first, and what they are expected to cost in microseconds. Its rows are read
-- as they are, so its permutations need not be those of an index: more tables make longer prefixes. A row
-- and a candidate cost what it costs to look them up in a hash table that does not fit the processor's cache; a
-- way to flip the prefix of a query makes that table larger, and costs more; and each statement takes its time to
-- be planned.
CREATE OR REPLACE FUNCTION simsql._join_designs(queries bigint, rows bigint, distance integer)
RETURNS TABLE (blocks integer, lead integer, cost double precision, candidates double precision)
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$
    SELECT m, c, 200 * tables + tables * row_cost * (rows + queries) + greatest(probes - tables, 0) * flip_cost * queries
                 + candidate_cost * expected, expected
      FROM generate_series(2, 16) AS m
     CROSS JOIN LATERAL generate_series(1, m - 1) AS c
     CROSS JOIN LATERAL CAST(simsql._table_count(m, c, 0) AS double precision) AS tables
     CROSS JOIN LATERAL CAST(64 * c / m AS integer) AS prefix
     CROSS JOIN LATERAL (
           SELECT sum(simsql._ways(prefix, simsql._radius(m, c, 0, number, distance)) * share) AS probes
             -- Permutations with several lead blocks all have the same radius.
             FROM generate_series(0, CASE c WHEN 1 THEN m - 1 ELSE 0 END) AS number
            CROSS JOIN CAST(CASE c WHEN 1 THEN 1 ELSE tables END AS double precision) AS share) AS p
     CROSS JOIN LATERAL (SELECT queries * rows * probes * 2::double precision ^ -prefix) AS e (expected)
     CROSS JOIN (VALUES (0.55, 2.0, simsql._candidate_cost())) AS costs (row_cost, flip_cost, candidate_cost)
     -- Flips are written out in the statement.
     WHERE tables <= 128 AND probes <= 5000
     ORDER BY 3, tables, m, c
$$;

CREATE OR REPLACE FUNCTION simsql._join_design(queries bigint, rows bigint, distance integer,
                                    OUT blocks integer, OUT lead integer, OUT cost double precision)
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$ SELECT d.blocks, d.lead, d.cost FROM simsql._join_designs($1, $2, $3) AS d LIMIT 1 $$;

-- What a join on the prefix of each permutation needs: the lead bits where they stand in a fingerprint, the ways
-- to flip them, one of the flipped bits of each way, and the condition that no earlier permutation finds the
-- match. `a` and `b` are the expressions of the two fingerprints.
CREATE OR REPLACE FUNCTION simsql._join_tables(blocks integer, lead integer, inner_blocks integer, distance integer, a text, b text)
RETURNS TABLE (number integer, lead_mask bigint, prefix integer, flips bigint[], pivots bigint[], not_earlier text)
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    radius integer;
    found_before text := '';
BEGIN
    FOR number, lead_mask, prefix IN
        SELECT p.* FROM simsql._permutations(blocks, lead, inner_blocks) AS p ORDER BY p.number
    LOOP
        radius := simsql._radius(blocks, lead, inner_blocks, number, distance);
        CONTINUE WHEN radius < 0;
        EXECUTE format('SELECT array_agg(%s), array_agg(%s) FROM (SELECT f, f & -f AS pivot FROM unnest($1) AS f) AS s',
                       simsql._unpermute(format('(f << %s)', 64 - prefix), lead_mask),
                       simsql._unpermute(format('(pivot << %s)', 64 - prefix), lead_mask))
           INTO flips, pivots
          USING simsql._flips(prefix, radius);
        not_earlier := found_before;
        found_before := found_before
            || format(' AND bit_count(((%s # %s) & %L::bigint)::bit(64)) > %s', a, b, lead_mask, radius);
        RETURN NEXT;
    END LOOP;
END
$$;

-- The distinct fingerprints of an index, or of this scope, that are not null, in ascending order.
CREATE OR REPLACE FUNCTION simsql._fingerprints(index simsql.registry, scope jsonb) RETURNS bigint[]
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    fingerprints bigint[];
BEGIN
    EXECUTE format('SELECT ARRAY(SELECT DISTINCT t.%1$I FROM ONLY %2$s AS t WHERE t.%1$I IS NOT NULL%3$s ORDER BY 1)',
                   index.column_name, index.table_name, simsql._in_scope(index, scope, 't'))
       INTO fingerprints;
    RETURN fingerprints;
END
$$;

-- At most so many elements of an array, at equal distances.
CREATE OR REPLACE FUNCTION simsql._sample(fingerprints bigint[], size bigint) RETURNS bigint[]
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT CASE WHEN cardinality($1) <= size THEN $1
                ELSE ARRAY(SELECT $1[1 + (n * cardinality($1)) / size] FROM generate_series(0, size - 1) AS n) END
$$;

-- How many candidates a join of these distinct, sorted fingerprints with themselves meets, by a sample of both sides. Groups of equal
-- prefixes are multiplied, not joined, so a crowded prefix costs no more than others.
CREATE OR REPLACE FUNCTION simsql._measured_candidates(fingerprints bigint[], distance integer, blocks integer, lead integer)
RETURNS double precision
LANGUAGE plpgsql STABLE
SET enable_mergejoin = off SET jit = off
AS $$
DECLARE
    rows constant bigint := cardinality(fingerprints);
    rights constant bigint[] := simsql._sample(fingerprints, 2000);
    lefts bigint[];
    in_both bigint;
    size bigint;
    join_table record;
    met double precision;
    candidates double precision := 0;
BEGIN
    FOR join_table IN SELECT * FROM simsql._join_tables(blocks, lead, 0, distance, 'a.fp', 'b.fp') LOOP
        IF size IS DISTINCT FROM greatest(50, 4000 / cardinality(join_table.flips)) THEN
            size := greatest(50, 4000 / cardinality(join_table.flips));
            lefts := simsql._sample(fingerprints, size);
            in_both := (SELECT count(*) FROM unnest(lefts) AS l JOIN unnest(rights) AS r ON l = r);
        END IF;
        SELECT sum(a.n * b.n) INTO met
          FROM (SELECT (fp & join_table.lead_mask) # flip AS prefix, count(*)::double precision AS n
                  FROM unnest(lefts) AS fp CROSS JOIN unnest(join_table.flips, join_table.pivots) AS f (flip, pivot)
                 WHERE fp & pivot = 0 GROUP BY 1) AS a
          JOIN (SELECT fp & join_table.lead_mask AS prefix, count(*)::double precision AS n FROM unnest(rights) AS fp GROUP BY 1) AS b
         USING (prefix);
        -- A fingerprint that is in both samples has met itself.
        candidates := candidates + (coalesce(met, 0) - in_both) * rows / cardinality(lefts) * rows / cardinality(rights);
    END LOOP;
    RETURN candidates;
END
$$;

-- One statement for each permutation of a design: together they give every pair within the distance $2 of the distinct
-- fingerprints $1 once. One side is looked up under each flip of its prefix; of two that differ
-- in it, the one in which the lowest differing bit is not set.
CREATE OR REPLACE FUNCTION simsql._pairs_by_prefix(distance integer, blocks integer, lead integer) RETURNS SETOF text
LANGUAGE sql STABLE
AS $$
    SELECT format('SELECT least(a.fp, b.fp), greatest(a.fp, b.fp), bit_count((a.fp # b.fp)::bit(64))::integer '
                  'FROM (SELECT fp, flip, (fp & %1$L::bigint) # flip AS prefix '
                  'FROM unnest($1) AS u (fp) CROSS JOIN unnest(%2$L::bigint[], %3$L::bigint[]) AS f (flip, pivot) '
                  'WHERE fp & pivot = 0) AS a '
                  'JOIN unnest($1) AS b (fp) ON a.prefix = (b.fp & %1$L::bigint) AND (a.flip <> 0 OR a.fp < b.fp) '
                  'WHERE bit_count((a.fp # b.fp)::bit(64)) <= $2%4$s',
                  t.lead_mask, t.flips, t.pivots, t.not_earlier)
      FROM simsql._join_tables($2, $3, 0, $1, 'a.fp', 'b.fp') AS t
$$;

-- The statements that give every pair of distinct, sorted fingerprints: those of the design that is the cheapest for them. Real
-- ones crowd some prefixes, and then meet more candidates than expected, but never fewer: so a design whose expected cost is above
-- the measured cost of another one need not be measured. If every design costs more, one statement compares all with all.
CREATE OR REPLACE FUNCTION simsql._statements_for_pairs(fingerprints bigint[], distance integer) RETURNS SETOF text
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
    FOR design IN SELECT * FROM simsql._join_designs(rows, rows, distance) LIMIT 12 LOOP
        EXIT WHEN design.cost >= cheapest;
        cost := design.cost;
        IF worth_measuring THEN
            cost := cost + simsql._candidate_cost()
                           * greatest(0, simsql._measured_candidates(fingerprints, distance, design.blocks, design.lead)
                                         - design.candidates);
        END IF;
        IF cost < cheapest THEN
            cheapest := cost;
            chosen := design;
        END IF;
    END LOOP;
    IF chosen IS NULL THEN
        -- A thousand at a time, with those from there on: half as many comparisons as a plain self-join makes.
        RETURN NEXT 'SELECT p.* FROM generate_series(1, cardinality($1), 1000) AS c (start) CROSS JOIN LATERAL ('
                    'SELECT a.fp, b.fp, bit_count((a.fp # b.fp)::bit(64))::integer '
                    'FROM unnest($1[c.start : c.start + 999]) AS a (fp) JOIN unnest($1[c.start :]) AS b (fp) '
                    'ON a.fp < b.fp AND bit_count((a.fp # b.fp)::bit(64)) <= $2 OFFSET 0) AS p';
    ELSE
        RETURN QUERY SELECT s FROM simsql._pairs_by_prefix(distance, chosen.blocks, chosen.lead) AS s;
    END IF;
END
$$;

-- Raises where a search or a join has found more than a hundred million: they would fill the disk.
CREATE OR REPLACE FUNCTION simsql._refuse_more(results bigint, what text, distance integer) RETURNS void
LANGUAGE plpgsql IMMUTABLE
AS $$
BEGIN
    IF results > 100000000 THEN
        RAISE EXCEPTION 'simsql: there are more than 100000000 % within distance %', what, distance
            USING ERRCODE = 'program_limit_exceeded',
                  HINT = 'Take a lower distance, or simsql clusters on the command line, which keeps no pairs.';
    END IF;
END
$$;

-- The planner knows nothing about prefixes and would sort both sides of each join: it hashes.
CREATE OR REPLACE FUNCTION simsql.pairs(
    table_name regclass, distance integer DEFAULT NULL, column_name text DEFAULT NULL, scope jsonb DEFAULT NULL)
RETURNS SETOF simsql.pair
LANGUAGE plpgsql STABLE
SET enable_mergejoin = off SET jit = off
AS $$
DECLARE
    index constant simsql.registry := simsql._searched_index($1, $3, $4);
    asked constant integer := simsql._distance($2, index.distance);
    fingerprints constant bigint[] := simsql._fingerprints(index, $4);
    statement text;
    of_statement bigint;
    found_pairs bigint := 0;
BEGIN
    FOR statement IN SELECT s FROM simsql._statements_for_pairs(fingerprints, asked) AS s LOOP
        RETURN QUERY EXECUTE statement || ' LIMIT 100000001' USING fingerprints, asked;
        GET DIAGNOSTICS of_statement := ROW_COUNT;
        found_pairs := found_pairs + of_statement;
        PERFORM simsql._refuse_more(found_pairs, 'pairs', asked);
    END LOOP;
END
$$;

COMMENT ON FUNCTION simsql.pairs(regclass, integer, text, jsonb) IS
    'every pair of different fingerprints within the distance that rows of the table, or of the scope, have, a < b, once each';

-- A table expression of the ranges in a key table that a search for each of the fingerprints $1 reads: fp, its key as the
-- center, low and high. In the order of keys, so that neighbours are read one after another. OFFSET 0: see _search_statement.
CREATE OR REPLACE FUNCTION simsql._ranges(lead_mask bigint, prefix integer, radius integer) RETURNS text
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$
    SELECT format('(SELECT q.fp, q.center, (q.center # flip) & %3$L::bigint AS low, (q.center # flip) | %4$L::bigint AS high '
                  'FROM (SELECT fp, %1$s AS center FROM unnest($1) AS u (fp)) AS q '
                  'CROSS JOIN unnest(%2$L::bigint[]) AS f (flip) ORDER BY 3 OFFSET 0)',
                  simsql._permute('fp', $1), ARRAY(SELECT f << (64 - $2) FROM unnest(simsql._flips($2, $3)) AS f),
                  -1::bigint << (64 - $2), ~(-1::bigint << (64 - $2)))
$$;

-- What a search in one key table finds for each of these fingerprints, within the distance, rows or not. It skips equal keys.
CREATE OR REPLACE FUNCTION simsql._skip_many(index_id integer, number integer, fingerprints bigint[], distance integer, scope jsonb)
RETURNS SETOF simsql.query_match
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    index constant simsql.registry := (SELECT r FROM simsql.registry AS r WHERE r.id = $1);
BEGIN
    RETURN QUERY EXECUTE (
        SELECT format('WITH RECURSIVE piece AS ('
                      'SELECT p.fp, p.center, p.high, ARRAY(SELECT k.key FROM simsql.keys_%1$s_%2$s AS k '
                      'WHERE k.key >= p.low AND k.key <= p.high%3$s ORDER BY k.key LIMIT 100) AS keys FROM %4$s AS p '
                      'UNION ALL '
                      'SELECT p.fp, p.center, p.high, ARRAY(SELECT k.key FROM simsql.keys_%1$s_%2$s AS k '
                      'WHERE k.key > p.last AND k.key <= p.high%3$s ORDER BY k.key LIMIT 100) '
                      'FROM (SELECT q.*, q.keys[100] AS last FROM piece AS q WHERE cardinality(q.keys) = 100 OFFSET 0) AS p) '
                      'SELECT DISTINCT piece.fp, %5$s, bit_count((k.key # piece.center)::bit(64))::integer '
                      'FROM piece CROSS JOIN LATERAL unnest(piece.keys) AS k (key) '
                      'WHERE bit_count((k.key # piece.center)::bit(64)) <= $2',
                      index.id, $2, simsql._in_scope(index, $5, 'k'),
                      simsql._ranges(p.lead_mask, p.prefix,
                                     simsql._radius(index.blocks, index.lead, index.inner_blocks, $2, $4)),
                      simsql._unpermute('k.key', p.lead_mask))
          FROM simsql._permutations(index.blocks, index.lead, index.inner_blocks) AS p
         WHERE p.number = $2)
      USING $3, $4;
END
$$;

-- One statement for each permutation that gives every match of the distinct fingerprints $1 within the distance $2.
--   probes  range scans of the index, in the order of keys, so that neighbours are read one after another
--   join    a hash join of the queries with the rows, on prefixes
CREATE OR REPLACE FUNCTION simsql._near_many_statements(index simsql.registry, queries bigint, rows bigint, distance integer,
                                             scope jsonb DEFAULT NULL, OUT strategy text, OUT statements text[])
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    design record;
    search_cost double precision;
    rows_in_scope constant text := simsql._in_scope(index, scope, 't');
BEGIN
    design := simsql._join_design(queries, rows, distance);
    SELECT queries * (c.probe * s.probes + c.candidate * s.share * rows) INTO search_cost
      FROM simsql._costs() AS c
     CROSS JOIN simsql._searches(index.blocks, index.lead, index.inner_blocks, ARRAY[distance]) AS s;
    strategy := CASE WHEN least(design.cost, search_cost) >= 0.025 * queries * rows THEN 'scan'
                     WHEN design.cost < search_cost THEN 'join' ELSE 'probes' END;
    CASE strategy
    WHEN 'scan' THEN
        statements := ARRAY[format(
            'SELECT DISTINCT q.fp, t.%1$I, bit_count((t.%1$I # q.fp)::bit(64))::integer '
            'FROM unnest($1) AS q (fp) JOIN ONLY %2$s AS t ON bit_count((t.%1$I # q.fp)::bit(64)) <= $2%3$s',
            index.column_name, index.table_name, rows_in_scope)];
    WHEN 'join' THEN
        statements := ARRAY(
            SELECT format(
                'SELECT DISTINCT q.fp, t.%1$I, bit_count((t.%1$I # q.fp)::bit(64))::integer '
                'FROM (SELECT fp, (fp & %3$L::bigint) # flip AS prefix '
                'FROM unnest($1) AS u (fp) CROSS JOIN unnest(%4$L::bigint[]) AS f (flip)) AS q '
                'JOIN ONLY %2$s AS t ON (t.%1$I & %3$L::bigint) = q.prefix '
                'WHERE bit_count((t.%1$I # q.fp)::bit(64)) <= $2%5$s%6$s',
                index.column_name, index.table_name, t.lead_mask, t.flips, t.not_earlier, rows_in_scope)
              FROM simsql._join_tables(design.blocks, design.lead, 0, distance, 'q.fp', format('t.%I', index.column_name)) AS t);
    ELSE
        -- As in a search (see _search_statement): where a statement meets too many candidates, equal keys are skipped.
        statements := ARRAY(
            SELECT format(
                'WITH found AS MATERIALIZED ('
                'SELECT p.fp AS query, %1$s AS fingerprint, bit_count((k.key # p.center)::bit(64))::integer AS distance FROM %2$s AS p '
                -- LATERAL and OFFSET 0: the planner may not compare all ranges with each key in turn, which it takes
                -- to be cheaper for some ten thousand queries.
                'CROSS JOIN LATERAL (SELECT r.key FROM simsql.keys_%3$s_%4$s AS r '
                'WHERE r.key >= p.low AND r.key <= p.high AND bit_count((r.key # p.center)::bit(64)) <= %5$s%6$s OFFSET 0) AS k '
                'LIMIT %7$s) '
                'SELECT m.query, m.fingerprint, m.distance '
                'FROM (SELECT DISTINCT c.query, c.fingerprint, c.distance '
                'FROM (SELECT f.* FROM found AS f UNION ALL SELECT s.* FROM simsql._skip_many(%3$s, %4$s, $1, $2, %8$L) AS s '
                'WHERE (SELECT count(*) FROM found) = %7$s) AS c '
                'WHERE c.distance <= $2%9$s) AS m '
                'CROSS JOIN LATERAL (SELECT FROM ONLY %10$s AS t WHERE t.%11$I = m.fingerprint%12$s LIMIT 1) AS live',
                simsql._unpermute('k.key', t.lead_mask),
                simsql._ranges(t.lead_mask, t.prefix,
                               simsql._radius(index.blocks, index.lead, index.inner_blocks, t.number, distance)),
                index.id, t.number,
                greatest(distance + 4, 12), simsql._in_scope(index, scope, 'r'), simsql._candidates() + 50 * queries, scope, t.not_earlier,
                index.table_name, index.column_name, rows_in_scope)
              FROM simsql._join_tables(index.blocks, index.lead, index.inner_blocks, distance, 'c.query', 'c.fingerprint') AS t);
    END CASE;
END
$$;

-- How many keys a search for so many fingerprints has to reckon with. A table is measured: a key takes 36 bytes of it, and
-- the planner's own estimate may be old. A scope is counted, but no further than to where searches in the index are the
-- cheapest way however many there are; counting a key takes a 25th of the time of a probe.
CREATE OR REPLACE FUNCTION simsql._expected_keys(index simsql.registry, queries bigint, distance integer, scope jsonb) RETURNS bigint
LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET max_parallel_workers_per_gather = 0
AS $$
DECLARE
    keys bigint;
BEGIN
    IF cardinality(index.scope_columns) = 0 THEN
        RETURN pg_relation_size(format('simsql.keys_%s_0', index.id)) / 36;
    END IF;
    EXECUTE format('SELECT count(*) FROM (SELECT FROM simsql.keys_%s_0 AS k WHERE true%s LIMIT $1) AS c', index.id,
                   simsql._in_scope(index, scope, 'k'))
       INTO keys
      USING (SELECT least(25 * s.probes * (queries + 1), 1e15)::bigint
               FROM simsql._searches(index.blocks, index.lead, index.inner_blocks, ARRAY[distance]) AS s);
    RETURN keys;
END
$$;

-- Parallel workers share the rows of a hash join; a search table by table needs the settings of near. Within a scope
-- the table is read by its B-tree, whatever the planner thinks of that.
CREATE OR REPLACE FUNCTION simsql.near_many(
    table_name regclass, fingerprints bigint[], distance integer DEFAULT NULL, column_name text DEFAULT NULL,
    scope jsonb DEFAULT NULL)
RETURNS SETOF simsql.query_match
LANGUAGE plpgsql STABLE
SET jit = off SET enable_mergejoin = off SET enable_seqscan = on SET enable_bitmapscan = off
SET enable_hashjoin = on SET enable_hashagg = off SET parallel_tuple_cost = 0
AS $$
DECLARE
    index constant simsql.registry := simsql._searched_index($1, $4, $5);
    asked constant integer := simsql._distance($3, index.distance);
    queries constant bigint[] := ARRAY(SELECT DISTINCT q FROM unnest($2) AS q WHERE q IS NOT NULL);
    plan record;
    statement text;
    of_statement bigint;
    found_matches bigint := 0;
BEGIN
    plan := simsql._near_many_statements(
        index, cardinality(queries), simsql._expected_keys(index, cardinality(queries), asked, $5), asked, $5);
    IF plan.strategy = 'probes' THEN
        PERFORM set_config('enable_seqscan', 'off', true), set_config('enable_hashjoin', 'off', true);
    ELSIF $5 IS NOT NULL THEN
        PERFORM set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'on', true);
    END IF;
    FOREACH statement IN ARRAY plan.statements LOOP
        RETURN QUERY EXECUTE statement || ' LIMIT 100000001' USING queries, asked;
        GET DIAGNOSTICS of_statement := ROW_COUNT;
        found_matches := found_matches + of_statement;
        PERFORM simsql._refuse_more(found_matches, 'matches', asked);
    END LOOP;
END
$$;

COMMENT ON FUNCTION simsql.near_many(regclass, bigint[], integer, text, jsonb) IS
    'what simsql.near finds for each of these fingerprints; one that is given twice is searched for once';

CREATE OR REPLACE FUNCTION simsql.near_many(
    table_name regclass, query_table regclass, query_column text, distance integer DEFAULT NULL,
    column_name text DEFAULT NULL, scope jsonb DEFAULT NULL)
RETURNS SETOF simsql.query_match
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    column_type text := (SELECT format_type(a.atttypid, a.atttypmod) FROM pg_attribute AS a
                          WHERE a.attrelid = $2 AND a.attname = $3 AND a.attnum > 0 AND NOT a.attisdropped);
    recipe_of_queries constant text := (SELECT r.recipe FROM simsql.registry AS r WHERE r.table_id = $2 AND r.column_name = $3);
    index simsql.registry;
    queries bigint[];
BEGIN
    IF column_type IS NULL THEN
        RAISE EXCEPTION 'simsql.near_many: % has no column %', coalesce($2::text, 'NULL'), coalesce(quote_ident($3), 'NULL')
            USING ERRCODE = 'undefined_column', HINT = 'Name the table of the queries and its column of fingerprints.';
    ELSIF column_type NOT IN ('bigint', 'integer', 'smallint') THEN
        RAISE EXCEPTION 'simsql.near_many: column % of % is %, not bigint', quote_ident($3), $2, column_type
            USING ERRCODE = 'datatype_mismatch', HINT = 'simsql.fp makes the bigint of an unsigned decimal.';
    END IF;
    IF recipe_of_queries IS NOT NULL THEN
        index := simsql._searched_index($1, $5, $6);
        IF recipe_of_queries <> index.recipe THEN
            RAISE EXCEPTION 'simsql.near_many: fingerprints of %(%) are of the recipe %, and those of %(%) of %', $1,
                            quote_ident(index.column_name), index.recipe, $2, quote_ident($3), recipe_of_queries
                USING ERRCODE = 'object_not_in_prerequisite_state',
                      HINT = 'Between them a distance means nothing: make those of one anew by the recipe of the other.';
        END IF;
    END IF;
    EXECUTE format('SELECT array_agg(DISTINCT q.%I::bigint) FROM %s AS q', $3, $2) INTO queries;
    RETURN QUERY SELECT * FROM simsql.near_many($1, coalesce(queries, '{}'), $4, $5, $6);
END
$$;

COMMENT ON FUNCTION simsql.near_many(regclass, regclass, text, integer, text, jsonb) IS
    'what simsql.near finds for each fingerprint in a column of another table or view';
