-- near_many: many searches in a few statements.

-- A table expression of the ranges in a key table that searches for the fingerprints $1 read: fp, its key as the center, low
-- and high. Ranges come in the order of keys, so that neighbours are read one after another. For OFFSET 0 see
-- _search_statement.
CREATE OR REPLACE FUNCTION simsql._ranges(lead_mask bigint, prefix integer, radius integer) RETURNS text
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$
    SELECT format('(SELECT q.fp, q.center, (q.center # flip) & %3$L::bigint AS low, (q.center # flip) | %4$L::bigint AS high '
                  'FROM (SELECT fp, %1$s AS center FROM unnest($1) AS u (fp)) AS q '
                  'CROSS JOIN unnest(%2$L::bigint[]) AS f (flip) ORDER BY 3 OFFSET 0)',
                  simsql._permute('fp', lead_mask),
                  ARRAY(SELECT f << (64 - prefix) FROM unnest(simsql._flips(prefix, radius)) AS f),
                  -1::bigint << (64 - prefix), ~(-1::bigint << (64 - prefix)))
$$;

-- Returns the matches of each fingerprint in one key table, whether or not a row has them. It skips equal keys.
CREATE OR REPLACE FUNCTION simsql._skip_many(index_id integer, number integer, fingerprints bigint[], distance integer, scope jsonb)
RETURNS SETOF simsql.query_match
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    index constant simsql.registry := (SELECT r FROM simsql.registry AS r WHERE r.id = _skip_many.index_id);
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
                      index.id, _skip_many.number, simsql._in_scope(index, scope, 'k'),
                      simsql._ranges(p.lead_mask, p.prefix,
                                     simsql._radius(index.blocks, index.lead, index.inner_blocks, _skip_many.number, distance)),
                      simsql._unpermute('k.key', p.lead_mask))
          FROM simsql._permutations(index.blocks, index.lead, index.inner_blocks) AS p
         WHERE p.number = _skip_many.number)
      USING fingerprints, distance;
END
$$;

-- Returns statements that together find every match of the distinct fingerprints $1 within the distance $2.
--   probes  one statement per permutation: range scans of the index, in the order of keys
--   join    one statement per permutation of a join design: a hash join of the queries with the rows, on prefixes
--   scan    one statement that compares all queries with all rows
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
            'FROM unnest($1) AS q (fp) JOIN %2$s AS t ON bit_count((t.%1$I # q.fp)::bit(64)) <= $2%3$s WHERE %4$s',
            index.column_name, simsql._rows_of(index), rows_in_scope, simsql._guard(index))];
    WHEN 'join' THEN
        statements := ARRAY(
            SELECT format(
                'SELECT DISTINCT q.fp, t.%1$I, bit_count((t.%1$I # q.fp)::bit(64))::integer '
                'FROM (SELECT fp, (fp & %3$L::bigint) # flip AS prefix '
                'FROM unnest($1) AS u (fp) CROSS JOIN unnest(%4$L::bigint[]) AS f (flip)) AS q '
                'JOIN %2$s AS t ON (t.%1$I & %3$L::bigint) = q.prefix '
                'WHERE bit_count((t.%1$I # q.fp)::bit(64)) <= $2%5$s%6$s AND %7$s',
                index.column_name, simsql._rows_of(index), t.lead_mask, t.flips, t.not_earlier, rows_in_scope, simsql._guard(index))
              FROM simsql._join_tables(design.blocks, design.lead, 0, distance, 'q.fp', format('t.%I', index.column_name)) AS t);
    ELSE
        IF index.storage = 'expression' THEN
            statements := ARRAY(
                SELECT format(
                    'SELECT DISTINCT q.fp, r.fingerprint, bit_count((r.fingerprint # q.fp)::bit(64))::integer '
                    'FROM (SELECT fp, (fp & %3$L::bigint) # flip AS prefix '
                    'FROM unnest($1) AS u (fp) CROSS JOIN unnest(%4$L::bigint[]) AS f (flip) ORDER BY 2 OFFSET 0) AS q '
                    'CROSS JOIN LATERAL (SELECT t.%1$I AS fingerprint FROM %2$s AS t WHERE (t.%1$I & %3$L::bigint) = q.prefix '
                    'AND bit_count((t.%1$I # q.fp)::bit(64)) <= $2%5$s%6$s OFFSET 0) AS r WHERE %7$s',
                    index.column_name, simsql._rows_of(index), t.lead_mask, t.flips, t.not_earlier, rows_in_scope,
                    simsql._guard(index))
                  FROM simsql._join_tables(index.blocks, index.lead, index.inner_blocks, distance, 'q.fp',
                                           format('t.%I', index.column_name)) AS t);
            RETURN;
        END IF;
        -- As in a single search (see _search_statement), a statement that meets too many candidates skips equal keys.
        statements := ARRAY(
            SELECT format(
                'WITH found AS MATERIALIZED ('
                'SELECT p.fp AS query, %1$s AS fingerprint, bit_count((k.key # p.center)::bit(64))::integer AS distance FROM %2$s AS p '
                -- LATERAL and OFFSET 0 keep the planner from comparing all ranges with each key in turn, which it estimates to
                -- be cheaper for about ten thousand queries.
                'CROSS JOIN LATERAL (SELECT r.key FROM simsql.keys_%3$s_%4$s AS r '
                'WHERE r.key >= p.low AND r.key <= p.high AND bit_count((r.key # p.center)::bit(64)) <= %5$s%6$s OFFSET 0) AS k '
                'LIMIT %7$s) '
                'SELECT m.query, m.fingerprint, m.distance '
                'FROM (SELECT DISTINCT c.query, c.fingerprint, c.distance '
                'FROM (SELECT f.* FROM found AS f UNION ALL SELECT s.* FROM simsql._skip_many(%3$s, %4$s, $1, $2, %8$L) AS s '
                'WHERE (SELECT count(*) FROM found) = %7$s) AS c '
                'WHERE c.distance <= $2%9$s) AS m '
                'CROSS JOIN LATERAL (SELECT FROM ONLY %10$s AS t WHERE t.%11$I = m.fingerprint%12$s LIMIT 1) AS live WHERE %13$s',
                simsql._unpermute('k.key', t.lead_mask),
                simsql._ranges(t.lead_mask, t.prefix,
                               simsql._radius(index.blocks, index.lead, index.inner_blocks, t.number, distance)),
                index.id, t.number,
                greatest(distance + 4, 12), simsql._in_scope(index, scope, 'r'), simsql._candidates() + 50 * queries, scope, t.not_earlier,
                index.table_name, index.column_name, rows_in_scope, simsql._guard(index))
              FROM simsql._join_tables(index.blocks, index.lead, index.inner_blocks, distance, 'c.query', 'c.fingerprint') AS t);
    END CASE;
END
$$;

-- Estimates how many keys the searches have to deal with. For a whole table, the size of the first key table tells: a key takes
-- 36 bytes, and the planner's own estimate may be old. For a scope, and without key tables, keys are counted, but only up to
-- the number from which index searches are the cheapest strategy anyway. Counting a key takes 1/25 of the time of a probe.
-- Each shard of a distributed table compares all queries with its own rows, so the rows of one shard count. It is enough to
-- count a sample of them: a LIMIT would apply to each shard, and all these rows would come here.
CREATE OR REPLACE FUNCTION simsql._expected_keys(index simsql.registry, queries bigint, distance integer, scope jsonb) RETURNS bigint
LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET max_parallel_workers_per_gather = 0
AS $$
DECLARE
    shards constant bigint := simsql._shards_read(index);
    percent numeric;
    keys bigint;
BEGIN
    IF index.storage = 'tables' AND cardinality(index.scope_columns) = 0 THEN
        RETURN pg_relation_size(format('simsql.keys_%s_0', index.id)) / 36;
    ELSIF shards > 1 AND scope IS NULL THEN
        FOREACH percent IN ARRAY ARRAY[0.01, 1, 100] LOOP
            EXECUTE format('SELECT count(t.%I) FROM %s AS t TABLESAMPLE system (%s) WHERE %s',
                           index.column_name, simsql._rows_of(index), percent, simsql._guard(index))
               INTO keys;
            EXIT WHEN keys >= 1000;
        END LOOP;
        RETURN keys * 100 / percent / shards;
    END IF;
    EXECUTE CASE index.storage
            WHEN 'tables' THEN format('SELECT count(*) FROM (SELECT FROM simsql.keys_%s_0 AS k WHERE true%s LIMIT $1) AS c', index.id,
                                      simsql._in_scope(index, scope, 'k'))
            -- Citus takes no empty select list.
            ELSE format('SELECT count(*) FROM (SELECT 1 FROM %s AS t WHERE t.%I IS NOT NULL%s AND %s LIMIT $1) AS c',
                        simsql._rows_of(index), index.column_name, simsql._in_scope(index, scope, 't'), simsql._guard(index)) END
       INTO keys
      USING (SELECT least(25 * s.probes * (queries + 1), 1e15)::bigint
               FROM simsql._searches(index.blocks, index.lead, index.inner_blocks, ARRAY[distance]) AS s);
    RETURN keys / shards;
END
$$;

-- Parallel workers share the rows of a hash join. Probes need the settings of near. Within a scope, the table is always read
-- through its B-tree, whatever the planner estimates.
CREATE OR REPLACE FUNCTION simsql.near_many(
    table_name regclass, fingerprints bigint[], distance integer DEFAULT NULL, column_name text DEFAULT NULL,
    scope jsonb DEFAULT NULL)
RETURNS SETOF simsql.query_match
LANGUAGE plpgsql STABLE
SET jit = off SET enable_mergejoin = off SET enable_seqscan = on SET enable_bitmapscan = off
SET enable_hashjoin = on SET enable_hashagg = off SET parallel_tuple_cost = 0
AS $$
DECLARE
    is_coordinator constant boolean := simsql._is_coordinator('near_many');
    index constant record := simsql._searched_index(table_name, column_name, scope);
    asked constant integer := simsql._distance(distance, index.distance);
    queries constant bigint[] := ARRAY(SELECT DISTINCT q FROM unnest(fingerprints) AS q WHERE q IS NOT NULL);
    plan record;
    statement text;
    of_statement bigint;
    found_matches bigint := 0;
BEGIN
    -- Choosing and planning the statements below takes as long as this many searches.
    IF cardinality(queries) <= 16 THEN
        RETURN QUERY SELECT q, n.fingerprint, n.distance
                       FROM unnest(queries) AS q
                      CROSS JOIN LATERAL simsql.near(table_name, q, asked, index.column_name, scope) AS n
                      LIMIT 100000001;
        GET DIAGNOSTICS found_matches := ROW_COUNT;
        PERFORM simsql._refuse_more(found_matches, 'matches', asked);
        RETURN;
    END IF;
    plan := simsql._near_many_statements(
        index, cardinality(queries), simsql._expected_keys(index, cardinality(queries), asked, scope), asked, scope);
    IF plan.strategy = 'probes' THEN
        PERFORM set_config('enable_seqscan', 'off', true), set_config('enable_hashjoin', 'off', true);
    ELSIF scope IS NOT NULL THEN
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
    'the matches of simsql.near for each of these fingerprints; duplicates are searched for once';

CREATE OR REPLACE FUNCTION simsql.near_many(
    table_name regclass, query_table regclass, query_column text, distance integer DEFAULT NULL,
    column_name text DEFAULT NULL, scope jsonb DEFAULT NULL)
RETURNS SETOF simsql.query_match
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    is_coordinator constant boolean := simsql._is_coordinator('near_many');
    column_type text := (SELECT format_type(a.atttypid, a.atttypmod) FROM pg_attribute AS a
                          WHERE a.attrelid = query_table AND a.attname = query_column AND a.attnum > 0 AND NOT a.attisdropped);
    recipe_of_queries constant text := (SELECT r.recipe FROM simsql.registry AS r
                                         WHERE r.table_id = query_table AND r.column_name = query_column);
    index record;
    queries bigint[];
BEGIN
    IF column_type IS NULL THEN
        RAISE EXCEPTION 'simsql.near_many: % has no column %', coalesce(query_table::text, 'NULL'),
                        coalesce(quote_ident(query_column), 'NULL')
            USING ERRCODE = 'undefined_column', HINT = 'Name the query table and its fingerprint column.';
    ELSIF column_type NOT IN ('bigint', 'integer', 'smallint') THEN
        RAISE EXCEPTION 'simsql.near_many: column % of % is %, not bigint', quote_ident(query_column), query_table, column_type
            USING ERRCODE = 'datatype_mismatch', HINT = 'simsql.fp converts an unsigned decimal to bigint.';
    END IF;
    IF recipe_of_queries IS NOT NULL THEN
        index := simsql._searched_index(table_name, column_name, scope);
        IF recipe_of_queries <> index.recipe THEN
            RAISE EXCEPTION 'simsql.near_many: %(%) has fingerprints of recipe %, but %(%) has fingerprints of recipe %', table_name,
                            quote_ident(index.column_name), index.recipe, query_table, quote_ident(query_column), recipe_of_queries
                USING ERRCODE = 'object_not_in_prerequisite_state',
                      HINT = 'Distances between recipes mean nothing: recompute one column with the recipe of the other.';
        END IF;
    END IF;
    EXECUTE format('SELECT array_agg(DISTINCT q.%I::bigint) FROM %s AS q', query_column, query_table) INTO queries;
    RETURN QUERY SELECT * FROM simsql.near_many(table_name, coalesce(queries, '{}'), distance, column_name, scope);
END
$$;

COMMENT ON FUNCTION simsql.near_many(regclass, regclass, text, integer, text, jsonb) IS
    'the matches of simsql.near for each fingerprint in a column of another table or view';
