-- Searches for similar texts: similar_candidates and explain_similar.
--
-- A query is made in Python from a text, see simsql/database/similar.py: its fingerprint, the likeliest prefixes of
-- similar texts for each permutation, and the planes of a weighted distance, in which a bit that hardly ever flips costs
-- more. A search reads these prefixes in the tables or B-trees of near.

-- The distance up to which no prefix has to be flipped: see _radius. A search for similar texts finds all within it.
CREATE OR REPLACE FUNCTION simsql._exact_distance(index simsql.registry) RETURNS integer
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN least(index.blocks - index.lead, nullif(index.inner_blocks, 0) - 1);

-- Reads a query, or that one of an array that was made for the design of an index. Raises an error if it was made for
-- another design or recipe.
CREATE OR REPLACE FUNCTION simsql._read_query(
    index_id integer, INOUT query jsonb, OUT fingerprint bigint, OUT distance integer, OUT planes bigint[], OUT ranges bigint)
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    index constant simsql.registry := (SELECT r FROM simsql.registry AS r WHERE r.id = index_id);
    design constant jsonb := jsonb_build_array(index.blocks, index.lead, index.inner_blocks);
    queries constant jsonb := jsonb_path_query_array(query, '$[*] ? (@.simsql_query == 1)');
    make_one constant text := 'Make it with SearchIndex.query in Python, or with simsql fingerprint --query.';
    -- As _table_count, which PostgreSQL would plan at each call.
    table_count constant numeric := greatest(index.inner_blocks, 1) * div(
        factorial(index.blocks), factorial(index.lead) * factorial(index.blocks - index.lead));
    is_whole boolean;
BEGIN
    query := (SELECT q FROM jsonb_array_elements(queries) AS q WHERE q -> 'design' = design LIMIT 1);
    distance := simsql._exact_distance(index);
    IF queries = '[]' THEN
        RAISE EXCEPTION 'simsql: this is not a query for similar texts, or one of another version of simsql'
            USING ERRCODE = 'invalid_parameter_value', HINT = make_one;
    ELSIF query IS NULL THEN
        RAISE EXCEPTION 'simsql: %(%): the simhash index has the design %, but the query was made for %',
                        index.table_id, quote_ident(index.column_name), design,
                        (SELECT string_agg(coalesce(q ->> 'design', 'none'), ' or ') FROM jsonb_array_elements(queries) AS q)
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = rtrim(make_one, '.') || ', or name the design in the model.';
    ELSIF query ->> 'recipe' IS DISTINCT FROM split_part(index.recipe, ' of ', 1)
          AND (query -> 'recipe_names' ? split_part(index.recipe, ' of ', 1)) IS NOT TRUE
    THEN
        RAISE EXCEPTION 'simsql: %(%): the simhash index has the recipe %, but the query was made with %',
                        index.table_id, quote_ident(index.column_name), coalesce(index.recipe, 'that nobody has named'),
                        coalesce(query ->> 'recipe', 'none')
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = CASE WHEN index.recipe IS NOT NULL
                              THEN format('%s --recipe %s, or name the recipe in the model.', rtrim(make_one, '.'), index.recipe)
                              ELSE format('Name it: SELECT simsql.alter_index(%L, %L, recipe => %L);',
                                          index.table_id::text, index.column_name, query ->> 'recipe') END;
    END IF;
    BEGIN
        SELECT q.fingerprint, q.planes, f.ranges,
               num_nulls(q.fingerprint, q.cost, q.screen, q.planes[1], q.planes[2], q.planes[3], q.planes[4]) = 0
               AND cardinality(q.planes) = 4
               AND f.exact = table_count AND f.exact = f.tables
          INTO fingerprint, planes, ranges, is_whole
          FROM jsonb_to_record(query) AS q (fingerprint bigint, cost integer, screen integer, planes bigint[], flips jsonb)
         CROSS JOIN LATERAL (SELECT sum(cardinality(f::bigint[])), count(*), count(*) FILTER (WHERE (f::bigint[])[1] = 0)
                               FROM jsonb_array_elements_text(q.flips) AS f) AS f (ranges, tables, exact);
    EXCEPTION
        WHEN data_exception OR program_limit_exceeded THEN is_whole := false;  -- as of nested arrays
    END;
    IF is_whole IS NOT TRUE THEN
        RAISE EXCEPTION 'simsql: this query for similar texts is damaged'
            USING ERRCODE = 'invalid_parameter_value', HINT = make_one;
    ELSIF ranges > 100000 THEN
        RAISE EXCEPTION 'simsql: this query reads too many ranges: %, where the limit is 100000', ranges
            USING ERRCODE = 'program_limit_exceeded', HINT = make_one;
    END IF;
END
$$;

COMMENT ON FUNCTION simsql.similar_candidates(regclass, jsonb, text, jsonb) IS
    'fingerprints of rows whose texts are probably similar to that of a query, most likely first: compare the texts';

-- The rows with these fingerprints: see _near_documents.
CREATE OR REPLACE FUNCTION simsql._similar_documents(
    regclass, jsonb, text, jsonb, text DEFAULT NULL, bigint DEFAULT NULL, integer DEFAULT NULL)
RETURNS TABLE (fingerprint bigint, distance integer, document jsonb)
LANGUAGE plpgsql STABLE ROWS 20
AS $$
BEGIN
    IF NOT simsql._sees_rows($1) THEN
        RETURN QUERY
        SELECT d.* FROM simsql._again($1, format('_similar_documents(%L, %L, %L, %L, %L, %L, %L)', $1::oid, $2, $3, $4, $5,
                                                 $6, $7)) AS d (fingerprint bigint, distance integer, document jsonb);
        RETURN;
    END IF;
    RETURN QUERY
    SELECT d.* FROM simsql._documents(
        $1, ARRAY(SELECT d.fingerprint FROM simsql.similar_candidates($1, $2, $3, $4) AS d),
        ($2 ->> 'fingerprint')::bigint, $3, $4, $5, $6, $7) AS d;
END
$$;

CREATE OR REPLACE FUNCTION simsql.explain_similar(
    table_name regclass, query jsonb, column_name text DEFAULT NULL, scope jsonb DEFAULT NULL)
RETURNS SETOF text
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    index constant simsql.registry := simsql._searched_index(table_name, column_name, scope);
BEGIN
    RETURN QUERY SELECT e.* FROM simsql._read_query(index.id, query) AS q
                  CROSS JOIN LATERAL simsql._explain_search(index, q.fingerprint, q.distance, scope, q.query) AS e;
END
$$;

COMMENT ON FUNCTION simsql.explain_similar(regclass, jsonb, text, jsonb) IS
    'EXPLAIN ANALYZE of the statements that simsql.similar_candidates runs for the same arguments';
