-- Searches for similar texts: similar_candidates and explain_similar.
--
-- A query is made in Python from a text, see simsql/database/similar.py: its fingerprint, the likeliest prefixes of
-- similar texts for each permutation, and the planes of a weighted distance, in which a bit that hardly ever flips costs
-- more. A search reads these prefixes in the tables or B-trees of near.

-- The distance up to which no prefix has to be flipped: see _radius. A search for similar texts finds all within it.
CREATE OR REPLACE FUNCTION simsql._exact_distance(index simsql.registry) RETURNS integer
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN least(index.blocks - index.lead, nullif(index.inner_blocks, 0) - 1);

-- Returns a query, or that one of an array that was made for the design of an index. Raises an error if it was made for
-- another design or recipe.
CREATE OR REPLACE FUNCTION simsql._query_for_index(index simsql.registry, query jsonb) RETURNS jsonb
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    design constant jsonb := jsonb_build_array(index.blocks, index.lead, index.inner_blocks);
    queries constant jsonb := jsonb_path_query_array(query, '$[*] ? (@.simsql_query == 1)');
    found constant jsonb := (SELECT q FROM jsonb_array_elements(queries) AS q WHERE q -> 'design' = design LIMIT 1);
    make_one constant text := 'Make it with SearchIndex.query in Python, or with simsql fingerprint --query.';
    tables constant integer := simsql._table_count(index.blocks, index.lead, index.inner_blocks);
BEGIN
    IF queries = '[]' THEN
        RAISE EXCEPTION 'simsql: this is not a query for similar texts, or one of another version of simsql'
            USING ERRCODE = 'invalid_parameter_value', HINT = make_one;
    ELSIF found IS NULL THEN
        RAISE EXCEPTION 'simsql: %(%): the simhash index has the design %, but the query was made for %',
                        index.table_id, quote_ident(index.column_name), design,
                        (SELECT string_agg(q ->> 'design', ' or ') FROM jsonb_array_elements(queries) AS q)
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = rtrim(make_one, '.') || ', or name the design in the model.';
    ELSIF (found ->> 'recipe' = index.recipe OR found -> 'recipe_names' ? index.recipe) IS NOT TRUE THEN
        RAISE EXCEPTION 'simsql: %(%): the simhash index has the recipe %, but the query was made with %',
                        index.table_id, quote_ident(index.column_name), coalesce(index.recipe, 'that nobody has named'), found ->> 'recipe'
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = CASE WHEN index.recipe IS NOT NULL THEN make_one
                              ELSE format('Name it: SELECT simsql.alter_index(%L, %L, recipe => %L);',
                                          index.table_id::text, index.column_name, found ->> 'recipe') END;
    ELSIF (jsonb_path_match(found, '$.fingerprint.type() == "number" && $.cost.type() == "number"
                                    && $.screen.type() == "number" && $.planes.size() == 4 && $.flips.size() == $tables
                                    && !exists($.planes[*] ? (@.type() != "number"))',
                            jsonb_build_object('tables', tables))
           AND NOT EXISTS (SELECT FROM jsonb_array_elements_text(found -> 'flips') AS f
                            WHERE (f ~ '^\{0(,[0-9]{1,19})*\}$') IS NOT TRUE)) IS NOT TRUE
    THEN
        RAISE EXCEPTION 'simsql: this query for similar texts is damaged'
            USING ERRCODE = 'invalid_parameter_value', HINT = make_one;
    ELSIF length((found -> 'flips')::text) > 2000000 THEN
        RAISE EXCEPTION 'simsql: this query reads too many ranges'
            USING ERRCODE = 'program_limit_exceeded', HINT = make_one;
    END IF;
    RETURN found;
END
$$;

CREATE OR REPLACE FUNCTION simsql.similar_candidates(
    table_name regclass, query jsonb, column_name text DEFAULT NULL, scope jsonb DEFAULT NULL)
RETURNS TABLE (fingerprint bigint, distance integer, cost integer)
LANGUAGE plpgsql STABLE ROWS 20
AS $$
DECLARE
    is_coordinator constant boolean := simsql._is_coordinator('similar_candidates');
BEGIN
    IF NOT simsql._sees_rows(table_name) THEN
        RETURN QUERY
        SELECT s.* FROM simsql._again(table_name, format('similar_candidates(%L, %L, %L, %L)', table_name::oid, query,
                                                         column_name, scope))
                            AS s (fingerprint bigint, distance integer, cost integer);
        RETURN;
    END IF;
    RETURN QUERY SELECT d.* FROM simsql._directed_search(table_name, query, column_name, scope) AS d;
END
$$;

COMMENT ON FUNCTION simsql.similar_candidates(regclass, jsonb, text, jsonb) IS
    'fingerprints of rows whose texts are probably similar to that of a query, most likely first: compare the texts';

-- The same in a table that is locked, and not rewritten after the snapshot.
CREATE OR REPLACE FUNCTION simsql._directed_search(
    table_name regclass, query jsonb, column_name text, scope jsonb)
RETURNS TABLE (fingerprint bigint, distance integer, cost integer)
LANGUAGE plpgsql STABLE ROWS 20
AS $$
DECLARE
    index constant simsql.registry := simsql._index_in_scope(table_name, column_name, scope);
BEGIN
    IF query IS NULL THEN
        RETURN;
    END IF;
    query := simsql._query_for_index(index, query);
    BEGIN
        RETURN QUERY EXECUTE format(
            'SELECT m.fingerprint, m.distance, (%s)::integer FROM simsql.similar_%s($1, $2, $3, $4) AS m ORDER BY 3, 2, 1',
            simsql._cost('{"x": "(m.fingerprint # $1)", "plane_1": "$5", "plane_2": "$6", "plane_4": "$7", "plane_8": "$8"}'),
            index.id)
            USING (query ->> 'fingerprint')::bigint, simsql._exact_distance(index), scope, query,
                  (query -> 'planes' ->> 0)::bigint, (query -> 'planes' ->> 1)::bigint,
                  (query -> 'planes' ->> 2)::bigint, (query -> 'planes' ->> 3)::bigint;
    EXCEPTION
        WHEN OTHERS THEN
            PERFORM simsql._check_now(index.id, table_name);
            IF sqlstate IN ('42P01', '42883') THEN  -- a table or a function is missing
                PERFORM simsql._refuse_changed(table_name, sqlerrm);
            END IF;
            RAISE;
    END;
    PERFORM simsql._check_searched(index.id, table_name, index.stamp_id);
END
$$;

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
        $1, ARRAY(SELECT d.fingerprint FROM simsql._directed_search($1, $2, $3, $4) AS d),
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
    query := simsql._query_for_index(index, query);
    RETURN QUERY SELECT simsql._explain_search(index, (query ->> 'fingerprint')::bigint, simsql._exact_distance(index),
                                               scope, query);
END
$$;

COMMENT ON FUNCTION simsql.explain_similar(regclass, jsonb, text, jsonb) IS
    'EXPLAIN ANALYZE of the statements that simsql.similar_candidates runs for the same arguments';
