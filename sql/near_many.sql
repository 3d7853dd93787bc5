-- near_many: many searches in a few statements.

-- Returns statements that together find every match of the distinct fingerprints $1 within the distance $2.
--   probes  one statement per permutation: range scans of the index, in the order of keys
--   join    one statement per permutation of a join design: a hash join of queries and rows on prefixes
--   scan    one statement that compares all queries with all rows
CREATE OR REPLACE FUNCTION simsql._near_many_statements(
    index simsql.registry, queries bigint, rows bigint, distance integer, scope jsonb DEFAULT NULL,
    OUT strategy text, OUT statements text[])
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    design record;
    search_cost double precision;
    template text;
    shared constant jsonb := simsql._parts(index, scope)
                            || jsonb_build_object('batch_limit', simsql._candidates() + 50 * queries);
BEGIN
    SELECT d.* INTO design FROM simsql._join_designs(queries, rows, distance, 1) AS d LIMIT 1;
    SELECT queries * (c.probe * s.probes + c.candidate * s.share * rows) INTO search_cost
      FROM simsql._costs() AS c
     CROSS JOIN simsql._searches(index.blocks, index.lead, index.inner_blocks, ARRAY[distance]) AS s;
    strategy := CASE WHEN least(design.cost, search_cost) >= 0.025 * queries * rows THEN 'scan'
                     WHEN design.cost < search_cost THEN 'join' ELSE 'probes' END;
    CASE strategy
    WHEN 'scan' THEN
        statements := ARRAY[simsql._render($sql$
            SELECT DISTINCT q.fp, t.{"column"}, bit_count((t.{"column"} # q.fp)::bit(64))::integer
              FROM unnest($1) AS q (fp)
              JOIN {rows} AS t ON bit_count((t.{"column"} # q.fp)::bit(64)) <= $2{scope_of_rows}
             WHERE {guard}$sql$, '{}', shared)];
    WHEN 'join' THEN
        statements := ARRAY(
            SELECT simsql._render($sql$
                SELECT DISTINCT q.fp, t.{"column"}, bit_count((t.{"column"} # q.fp)::bit(64))::integer
                  FROM (SELECT fp, (fp & {'lead_mask'}::bigint) # flip AS prefix
                          FROM unnest($1) AS u (fp) CROSS JOIN unnest({'flips'}::bigint[]) AS f (flip)) AS q
                  JOIN {rows} AS t ON {joined}
                 WHERE bit_count((t.{"column"} # q.fp)::bit(64)) <= $2{not_earlier}{scope_of_rows}
                   AND {guard}$sql$,
                jsonb_build_object('lead_mask', t.lead_mask, 'flips', t.flips::text,
                                   'joined', t.joined, 'not_earlier', t.not_earlier), shared)
              FROM simsql._join_tables(design.blocks, design.lead, 0, distance, 'q',
                                       format('t.%I', index.column_name)) AS t);
    ELSE
        template := simsql._storage_reads(index) ->> 'batch';
        statements := ARRAY(
            SELECT simsql._render(template,
                                  jsonb_build_object(
                                      'flips', format('%L::bigint[]', simsql._flips(b.flipped, t.radius)),
                                      'not_earlier', t.not_earlier), shared || b.parts)
              FROM simsql._storage_branches(index) AS b
              JOIN simsql._join_tables(index.blocks, index.lead, index.inner_blocks, distance, 'r',
                                       'r.fingerprint') AS t USING (number));
    END CASE;
END
$$;

-- Estimates how many keys the searches have to deal with. Where that takes counting, they are counted only up
-- to the number from which index searches are the cheapest strategy anyway. Counting a key takes 1/25 of the
-- time of a probe.
CREATE OR REPLACE FUNCTION simsql._expected_keys(
    index simsql.registry, queries bigint, distance integer, scope jsonb)
RETURNS bigint
LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET max_parallel_workers_per_gather = 0
AS $$
DECLARE
    reads constant jsonb := simsql._storage_reads(index);
    keys bigint;
BEGIN
    EXECUTE simsql._render(
        coalesce(CASE WHEN index.scope_columns <> '{}' THEN reads ->> 'size_of_scope' END, reads ->> 'size'),
        '{}', simsql._parts(index, scope))
       INTO keys
      USING (SELECT least(25 * s.probes * (queries + 1), 1e15)::bigint
               FROM simsql._searches(index.blocks, index.lead, index.inner_blocks, ARRAY[distance]) AS s);
    RETURN keys;
END
$$;

-- Parallel workers share the rows of a hash join. Probes need the settings of near. Within a scope, the table
-- is always read through its B-tree, whatever the planner estimates.
CREATE OR REPLACE FUNCTION simsql.near_many(
    table_name regclass, fingerprints bigint[], distance integer DEFAULT NULL, column_name text DEFAULT NULL,
    scope jsonb DEFAULT NULL)
RETURNS SETOF simsql.query_match
LANGUAGE plpgsql STABLE
SET jit = off SET enable_mergejoin = off SET enable_seqscan = on SET enable_bitmapscan = off
SET enable_hashjoin = on SET enable_hashagg = off SET parallel_tuple_cost = 0 SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    is_coordinator constant boolean := simsql._is_coordinator('near_many');
    index record;
    asked integer;
    queries constant bigint[] := ARRAY(SELECT DISTINCT q FROM unnest(fingerprints) AS q WHERE q IS NOT NULL);
    plan record;
    statement text;
    of_statement bigint;
    found_matches bigint := 0;
BEGIN
    IF NOT simsql._sees_rows(table_name) THEN
        RETURN QUERY
        SELECT m.* FROM simsql._again(table_name, format('near_many(%L, %L::bigint[], %L::integer, %L, %L)', table_name::oid,
                                                         fingerprints, distance, column_name, scope))
                            AS m (query bigint, fingerprint bigint, distance integer);
        RETURN;
    END IF;
    index := simsql._searched_index(table_name, column_name, scope);
    asked := simsql._distance(distance, index.distance);
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
    BEGIN
        plan := simsql._near_many_statements(
            index, cardinality(queries), simsql._expected_keys(index, cardinality(queries), asked, scope), asked,
            scope);
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
    EXCEPTION
        WHEN undefined_table OR undefined_function THEN
            PERFORM simsql._check_now(index.id, table_name);
            PERFORM simsql._refuse_changed(table_name, sqlerrm);
    END;
    PERFORM simsql._check_searched(index.id, table_name, index.stamp_id);
END
$$;

COMMENT ON TYPE simsql.query_match IS
    'one of the fingerprints that were searched for, a fingerprint of a row, and their distance in bits';
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
    column_type constant text := (
        SELECT format_type(a.atttypid, a.atttypmod) FROM pg_attribute AS a
         WHERE a.attrelid = query_table AND a.attname = query_column AND a.attnum > 0 AND NOT a.attisdropped);
    recipe_of_queries constant text := (SELECT r.recipe FROM simsql.registry AS r
                                         WHERE r.table_id = query_table AND r.column_name = query_column);
    index record;
    queries bigint[];
BEGIN
    IF NOT simsql._sees_rows(table_name)
       OR (SELECT c.relkind FROM pg_class AS c WHERE c.oid = query_table) IN ('r', 'p')
          AND NOT simsql._sees_rows(query_table)
    THEN
        PERFORM simsql._wait_for(table_name);
        RETURN QUERY
        SELECT m.* FROM simsql._again(query_table, format('near_many(%L, %L::regclass, %L, %L, %L, %L)', table_name::oid,
                                                          query_table::oid, query_column, distance, column_name, scope))
                            AS m (query bigint, fingerprint bigint, distance integer);
        RETURN;
    END IF;
    IF column_type IS NULL THEN
        RAISE EXCEPTION 'simsql.near_many: % has no column %', coalesce(query_table::text, 'NULL'),
                        coalesce(quote_ident(query_column), 'NULL')
            USING ERRCODE = 'undefined_column', HINT = 'Name the query table and its fingerprint column.';
    ELSIF column_type NOT IN ('bigint', 'integer', 'smallint') THEN
        RAISE EXCEPTION 'simsql.near_many: column % of % is %, not bigint',
                        quote_ident(query_column), query_table, column_type
            USING ERRCODE = 'datatype_mismatch', HINT = 'simsql.fp converts an unsigned decimal to bigint.';
    END IF;
    IF recipe_of_queries IS NOT NULL THEN
        index := simsql._searched_index(table_name, column_name, scope);
        IF split_part(recipe_of_queries, ' of ', 1) <> split_part(index.recipe, ' of ', 1) THEN
            RAISE EXCEPTION
                'simsql.near_many: %(%) has fingerprints of recipe %, but %(%) has fingerprints of recipe %',
                table_name, quote_ident(index.column_name), index.recipe,
                query_table, quote_ident(query_column), recipe_of_queries
                USING ERRCODE = 'object_not_in_prerequisite_state',
                      HINT = 'Distances between recipes mean nothing: '
                             'recompute one column with the recipe of the other.';
        END IF;
    END IF;
    EXECUTE format('SELECT array_agg(DISTINCT q.%I::bigint) FROM %s AS q', query_column, query_table)
       INTO queries;
    RETURN QUERY
    SELECT * FROM simsql.near_many(table_name, coalesce(queries, '{}'), distance, column_name, scope);
END
$$;

COMMENT ON FUNCTION simsql.near_many(regclass, regclass, text, integer, text, jsonb) IS
    'the matches of simsql.near for each fingerprint in a column of another table or view';
