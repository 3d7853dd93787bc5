-- Single searches: near, near_rows and explain_near.

-- Calls the function of an index for similar texts.
CREATE OR REPLACE FUNCTION simsql._search_similar(
    index_id integer, fingerprint bigint, distance integer, scope jsonb, query jsonb)
RETURNS SETOF simsql.match
LANGUAGE plpgsql STABLE ROWS 20
AS $$
BEGIN
    RETURN QUERY EXECUTE format('SELECT fingerprint, distance FROM simsql.similar_%s($1, $2, $3, $4)', index_id)
                   USING fingerprint, distance, scope, query;
END
$$;

-- near and similar_candidates differ in what they are given, and in the function of the index that they call. That of the
-- first 32 ids is called by static statements, which are planned once per session. Parsing and planning a dynamic one
-- takes a fifth of the time that a client waits for near.
DO $do$
DECLARE
    with_cost constant text := 'SELECT s.fingerprint, s.distance, (' || simsql._cost(
        '{"x": "(s.fingerprint # similar_candidates.fingerprint)", "plane_1": "planes[1]", "plane_2": "planes[2]",
          "plane_4": "planes[3]", "plane_8": "planes[4]"}')
        || ')::integer FROM simsql.';
    parts jsonb;
    calls text[];
    span integer;
BEGIN
    FOREACH parts IN ARRAY ARRAY[
        jsonb_build_object(
            'name', 'near', 'parameters', 'fingerprint bigint, distance integer DEFAULT NULL',
            'given', 'fingerprint, distance', 'again', 'near(%L, %L, %L, %L, %L)', 'result', 'SETOF simsql.match',
            'columns', 'fingerprint bigint, distance integer', 'rows', 10, 'variables', NULL,
            'prepare', $sql$    asked := coalesce(distance, asked);
    IF NOT asked BETWEEN 0 AND 64 THEN
        PERFORM simsql._distance(asked, NULL);
    END IF;$sql$,
            'any_call', $sql$EXECUTE format('SELECT fingerprint, distance FROM simsql.search_%s($1, $2%s)', index_id,
                                    CASE WHEN scope IS NOT NULL THEN ', $3' END)
                       USING fingerprint, asked, scope$sql$,
            'calls', $sql$
        IF scope IS NULL THEN
            RETURN QUERY
            SELECT s.fingerprint, s.distance FROM simsql.search_{id}(fingerprint, asked) AS s;
        ELSE
            RETURN QUERY
            SELECT s.fingerprint, s.distance FROM simsql.search_{id}(fingerprint, asked, scope) AS s;
        END IF;$sql$),
        jsonb_build_object(
            'name', 'similar_candidates', 'parameters', 'query jsonb',
            'given', 'query', 'again', 'similar_candidates(%L, %L, %L, %L)',
            'result', 'TABLE (fingerprint bigint, distance integer, cost integer)',
            'columns', 'fingerprint bigint, distance integer, cost integer', 'rows', 20,
            'variables', E'\n    planes bigint[];',
            'prepare', $sql$    IF query IS NULL THEN
        RETURN;
    END IF;
    SELECT q.query, q.fingerprint, q.distance, q.planes INTO query, fingerprint, asked, planes
      FROM simsql._read_query(index_id, query) AS q;$sql$,
            'any_call', with_cost || '_search_similar(index_id, fingerprint, asked, scope, query) AS s ORDER BY 3, 2, 1',
            'calls', E'\n        RETURN QUERY ' || with_cost
                     || 'similar_{id}(fingerprint, asked, scope, query) AS s ORDER BY 3, 2, 1;')]
    LOOP
        calls := ARRAY(SELECT simsql._render(parts ->> 'calls', jsonb_build_object('id', id))
                         FROM generate_series(1, 32) AS id ORDER BY id);
        span := 1;
        -- A binary search for the id.
        WHILE cardinality(calls) > 1 LOOP
            calls := ARRAY(SELECT format(E'\n        IF index_id <= %s THEN%s\n        ELSE%s\n        END IF;',
                                         (n - 1) * span + span, calls[n], calls[n + 1])
                             FROM generate_series(1, cardinality(calls), 2) AS n ORDER BY n);
            span := span * 2;
        END LOOP;
        EXECUTE simsql._render($create$
CREATE OR REPLACE FUNCTION simsql.{name}(
    table_name regclass, {parameters}, column_name text DEFAULT NULL, scope jsonb DEFAULT NULL)
RETURNS {result}
LANGUAGE plpgsql STABLE ROWS {rows}
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    index_id integer;
    indexed_table text;
    indexed_column text;
    scope_columns text[];
    stamp_id uuid;
    file oid;
    asked integer;{variables}
    fits boolean;
    is_locked boolean;
    must_wait boolean := false;
    is_current constant boolean := simsql._is_current();
BEGIN
    BEGIN
        SELECT r.id, r.table_name, r.column_name, r.distance, r.scope_columns, r.stamp_id, (r.marks).file
          INTO STRICT index_id, indexed_table, indexed_column, asked, scope_columns, stamp_id, file
          FROM simsql.registry AS r
         WHERE r.table_id = {name}.table_name
           AND simsql._is_meant(r.column_name, r.is_default, {name}.column_name);
        is_locked := simsql._lock_at_once(indexed_table) IS NOT NULL;  -- faster than PERFORM
    EXCEPTION
        WHEN no_data_found OR too_many_rows THEN PERFORM simsql._index(table_name, column_name);
        WHEN lock_not_available OR insufficient_privilege THEN
            must_wait := NOT simsql._locks_at_once(table_name);
        WHEN undefined_table OR invalid_schema_name THEN
            IF index_id IS NULL THEN
                PERFORM simsql._refuse_worker({'name'});
            END IF;
            PERFORM simsql._index(table_name, indexed_column);  -- the table was dropped or renamed
    END;
    IF (file = pg_relation_filenode(table_name)) IS NOT TRUE AND NOT must_wait THEN
        must_wait := simsql._takes_snapshots() AND simsql._is_rewritten(table_name);
    END IF;
    IF must_wait THEN
        RETURN QUERY
        SELECT n.* FROM simsql._again(table_name, format({'again'}, table_name::oid, {given}, column_name, scope))
                            AS n ({columns});
        RETURN;
    END IF;
    IF scope IS NOT NULL OR cardinality(scope_columns) > 0 THEN
        fits := jsonb_typeof(scope) = 'object' AND scope - scope_columns = '{}' AND scope_columns <> '{}';
        FOR place IN 1 .. cardinality(scope_columns) LOOP
            fits := fits AND jsonb_typeof(scope -> scope_columns[place]) IN ('string', 'number', 'boolean');
        END LOOP;
        IF fits IS NOT TRUE THEN
            PERFORM simsql._index_in_scope(table_name, column_name, scope);
        END IF;
    END IF;
{prepare}
    -- Citus would set a savepoint on each worker for the block below. There, faults are looked for before.
    IF current_setting('citus.version', true) IS NOT NULL THEN
        PERFORM simsql._index(table_name, indexed_column);
        RETURN QUERY {any_call};
    ELSE
        BEGIN
            IF index_id > 32 THEN
                RETURN QUERY {any_call};
            ELSE{calls}
            END IF;
        EXCEPTION
            WHEN OTHERS THEN
                PERFORM simsql._check_now(index_id, table_name);
                IF sqlstate IN ('42P01', '42883') THEN  -- a table or a function is missing
                    PERFORM simsql._refuse_changed(table_name, sqlerrm);
                END IF;
                RAISE;
        END;
    END IF;
    IF NOT simsql._is_complete(index_id, stamp_id) OR NOT simsql._takes_snapshots() THEN
        PERFORM simsql._check_searched(index_id, table_name, stamp_id);
    END IF;
END
$$
$create$, parts || jsonb_build_object('calls', calls[1]));
    END LOOP;
END
$do$;

COMMENT ON TYPE simsql.match IS 'a fingerprint of a row, and its distance in bits from the one that was searched for';
COMMENT ON FUNCTION simsql.near(regclass, bigint, integer, text, jsonb) IS
    'every fingerprint within the distance, once each, nearest first; '
    'only fingerprints of rows in the table or the scope';

-- The statement that returns the rows with the fingerprints $1, nearest to $2 first; `list` is the select
-- list, in which the table is called t. With a column of sketches, a row also needs a sketch within $4 bits
-- of $3, or none. `variables` replaces values of the scope: see _for_scope.
CREATE OR REPLACE FUNCTION simsql._rows_statement(
    index simsql.registry, scope jsonb, list text, sketch_column text DEFAULT NULL, variables jsonb DEFAULT '{}')
RETURNS text
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    fingerprint constant text := 't.' || quote_ident(index.column_name);
    sketch constant text := 't.' || quote_ident(sketch_column);
BEGIN
    RETURN 'SELECT ' || list || ' FROM ' || simsql._rows_of(index) || ' AS t'
           || ' WHERE ' || fingerprint || ' = ANY ($1)'
           || simsql._for_scope(index, ' AND t.%2$I = %3$s', scope, variables)
           || ' AND ' || simsql._guard(index)
           || coalesce(' AND (' || sketch || ' IS NULL'
                       || ' OR bit_count((' || sketch || ' # $3)::bit(64)) <= $4)', '')
           || ' ORDER BY bit_count((' || fingerprint || ' # $2)::bit(64)), ' || fingerprint;
END
$$;

CREATE OR REPLACE FUNCTION simsql.near_rows(
    row_type anyelement, fingerprint bigint, distance integer DEFAULT NULL, column_name text DEFAULT NULL,
    scope jsonb DEFAULT NULL)
RETURNS SETOF anyelement
LANGUAGE plpgsql STABLE ROWS 10
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    is_coordinator constant boolean := simsql._is_coordinator('near_rows');
    searched regclass;
    index_id integer;
    found_fingerprints bigint[];
BEGIN
    SELECT y.typrelid, r.id INTO searched, index_id
      FROM pg_type AS y
      LEFT JOIN simsql.registry AS r
        ON r.table_id = y.typrelid AND simsql._is_meant(r.column_name, r.is_default, near_rows.column_name)
     WHERE y.oid = pg_typeof(row_type);
    IF index_id IS NULL AND NOT EXISTS (SELECT FROM pg_class AS c WHERE c.oid = searched AND c.relkind <> 'c') THEN
        RAISE EXCEPTION 'simsql.near_rows: % is not the row type of a table', pg_typeof(row_type)
            USING ERRCODE = 'wrong_object_type', HINT = 'Pass NULL::article to search the table article.';
    END IF;
    IF NOT simsql._sees_rows(searched) THEN
        BEGIN
            -- Planning the next statement needs the table, so it must not be what waits.
            PERFORM simsql._wait_for(searched);
            RETURN QUERY
            SELECT n.* FROM simsql._near_rows_again(row_type, fingerprint, distance, column_name, scope) AS n;
        EXCEPTION
            -- The table was dropped, or a column has changed.
            WHEN internal_error OR undefined_table OR undefined_object OR datatype_mismatch THEN
                PERFORM simsql._check_now(index_id, searched) WHERE index_id IS NOT NULL;
                PERFORM simsql._refuse_changed(searched, sqlerrm);
        END;
        RETURN;
    END IF;
    -- Before the rows: Citus would send a search function to a shard.
    found_fingerprints := ARRAY(
        SELECT n.fingerprint
          FROM simsql.near(searched, near_rows.fingerprint, distance, column_name, scope) AS n);
    -- A static statement would keep the columns that the table has now.
    RETURN QUERY EXECUTE format('SELECT r.* FROM simsql.rows_%s($1, $2, $3, $4) AS r', index_id)
                   USING found_fingerprints, fingerprint, row_type, scope;
END
$$;

-- The same with a snapshot that is later than the lock.
CREATE OR REPLACE FUNCTION simsql._near_rows_again(
    row_type anyelement, fingerprint bigint, distance integer, column_name text, scope jsonb)
RETURNS SETOF anyelement
LANGUAGE plpgsql VOLATILE ROWS 10
AS $$
BEGIN
    RETURN QUERY SELECT n.* FROM simsql.near_rows(row_type, fingerprint, distance, column_name, scope) AS n;
END
$$;

COMMENT ON FUNCTION simsql.near_rows(anyelement, bigint, integer, text, jsonb) IS
    'every row whose fingerprint is within the distance, nearest first: simsql.near_rows(NULL::article, ...)';

-- An expression for each column of a table `t` that can become JSON. Converting a value to JSON calls the
-- cast that the owner of its type may have created, so values of types that are not built in become text.
CREATE OR REPLACE FUNCTION simsql._json_columns(table_id regclass)
RETURNS TABLE (number smallint, name name, expression text)
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN QUERY
    SELECT a.attnum, a.attname,
           format(CASE WHEN y.typnamespace = 'pg_catalog'::regnamespace THEN 't.%1$I'
                       ELSE 'CASE WHEN num_nulls(t.%1$I) = 0 THEN format(''%%s'', t.%1$I) END' END, a.attname)
      FROM pg_attribute AS a
      JOIN pg_type AS y ON y.oid = simsql._base_type(a.atttypid)
     WHERE a.attrelid = table_id AND a.attnum > 0 AND NOT a.attisdropped;
END
$$;

-- The same for callers without a row type. It returns the distances too. The parameters are the table, the
-- fingerprint, the distance, the column and the scope; then, to return only rows with a near sketch or none,
-- the column of the sketches, a sketch, and the number of bits in which they may differ.
CREATE OR REPLACE FUNCTION simsql._near_documents(
    regclass, bigint, integer, text, jsonb, text DEFAULT NULL, bigint DEFAULT NULL, integer DEFAULT NULL)
RETURNS TABLE (fingerprint bigint, distance integer, document jsonb)
LANGUAGE plpgsql STABLE ROWS 10
AS $$
BEGIN
    IF NOT simsql._sees_rows($1) THEN
        RETURN QUERY
        SELECT d.* FROM simsql._again($1, format('_near_documents(%L, %L, %L, %L, %L, %L, %L, %L)', $1::oid, $2, $3, $4, $5,
                                                 $6, $7, $8)) AS d (fingerprint bigint, distance integer, document jsonb);
        RETURN;
    END IF;
    RETURN QUERY
    SELECT d.* FROM simsql._documents(
        $1, ARRAY(SELECT n.fingerprint FROM simsql.near($1, $2, $3, $4, $5) AS n), $2, $4, $5, $6, $7, $8) AS d;
END
$$;

-- The rows with these fingerprints, with their distances from another one; then as above from the column on.
CREATE OR REPLACE FUNCTION simsql._documents(
    table_name regclass, fingerprints bigint[], center bigint, column_name text, scope jsonb, sketch_column text,
    sketch bigint, differing integer)
RETURNS TABLE (fingerprint bigint, distance integer, document jsonb)
LANGUAGE plpgsql STABLE ROWS 10
AS $$
DECLARE
    index constant simsql.registry := (
        SELECT r FROM simsql.registry AS r
         WHERE r.table_id = _documents.table_name
           AND simsql._is_meant(r.column_name, r.is_default, _documents.column_name));
    columns constant text := (SELECT string_agg(format('%s AS %I', c.expression, c.name), ', ' ORDER BY c.number)
                                FROM simsql._json_columns(table_name) AS c);
BEGIN
    RETURN QUERY EXECUTE simsql._rows_statement(index, scope, format(
                             't.%1$I, bit_count((t.%1$I # $2)::bit(64))::integer, '
                             '(SELECT to_jsonb(r) FROM (SELECT %2$s) AS r)', index.column_name, columns),
                             CASE WHEN sketch IS NOT NULL THEN sketch_column END)
                   USING fingerprints, center, sketch, differing;
END
$$;

-- The key, as a JSON array, of each row that has one of these fingerprints, in the order of the keys.
CREATE OR REPLACE FUNCTION simsql._keys_of_rows(
    table_name regclass, fingerprints bigint[], column_name text, scope jsonb)
RETURNS TABLE (fingerprint bigint, key jsonb)
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    index constant simsql.registry := simsql._searched_index(table_name, column_name, scope);
BEGIN
    RETURN QUERY EXECUTE (
        SELECT simsql._render($sql$
            SELECT t.{"column"}, jsonb_build_array({values})
              FROM {rows} AS t
             WHERE t.{"column"} = ANY ($1){scope_of_rows} AND {guard}
             ORDER BY {names}$sql$,
            jsonb_build_object('values', string_agg(c.expression, ', ' ORDER BY k.place),
                               'names', string_agg(format('t.%I', k.name), ', ' ORDER BY k.place)),
            simsql._parts(index, scope))
          FROM simsql._primary_key(table_name) AS k
          JOIN simsql._json_columns(table_name) AS c ON c.name = k.name)
      USING fingerprints;
END
$$;

CREATE OR REPLACE FUNCTION simsql.explain_near(
    table_name regclass, fingerprint bigint, distance integer DEFAULT NULL, column_name text DEFAULT NULL,
    scope jsonb DEFAULT NULL)
RETURNS SETOF text
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    index constant simsql.registry := simsql._searched_index(table_name, column_name, scope);
BEGIN
    RETURN QUERY SELECT simsql._explain_search(index, fingerprint, simsql._distance(distance, index.distance), scope);
END
$$;

-- Runs the statements of one search one after another, as the generated function does, and shows the plan of
-- each. With a query, the search is directed.
CREATE OR REPLACE FUNCTION simsql._explain_search(
    index simsql.registry, fingerprint bigint, asked integer, scope jsonb, query jsonb DEFAULT NULL)
RETURNS SETOF text
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    directed constant boolean := query IS NOT NULL;
    settings text[];
    -- The variables of the generated function are parameters here.
    names jsonb := '{"candidates": "$3"}';
    values_of_scope jsonb := '{}';
    types text[] := '{bigint,integer,bigint[]}';
    expressions text[];
    variable record;
    value text;
    decision record;
    probing_pays boolean := true;
    ranges integer;
    strategy text;
    statement text;
    execution text;
    line text;
    has_candidates boolean;
    candidates bigint[];
BEGIN
    FOR variable IN SELECT v.* FROM simsql._search_variables(index, directed) AS v ORDER BY v.place LOOP
        types := types || variable.type;
        names := names || jsonb_build_object(variable.name, '$' || cardinality(types));
        IF 'scan' = ANY (variable.strategies) THEN
            values_of_scope := values_of_scope || jsonb_build_object(variable.name, variable.value);
        END IF;
    END LOOP;
    decision := simsql._search_decision(index, values_of_scope);
    IF directed THEN
        ranges := (SELECT sum(cardinality(f::bigint[])) FROM jsonb_array_elements_text(query -> 'flips') AS f);
        decision.probing_pays := simsql._probing_pays(index, values_of_scope, simsql._scan_below(ranges::text));
    END IF;
    IF directed OR asked > decision.probed_up_to THEN
        EXECUTE format('SELECT coalesce(%s, false)', decision.probing_pays)
           INTO probing_pays USING fingerprint, asked, scope;
    END IF;
    strategy := CASE WHEN NOT probing_pays THEN 'scan'
                     WHEN NOT directed AND asked <= decision.exact_up_to THEN 'exact' ELSE 'probes' END;
    RETURN NEXT format('strategy: %s, ', strategy)
                || CASE WHEN directed THEN format('ranges: %s, expected recall: %s', ranges, query ->> 'recall')
                        ELSE format('radius: %s', simsql._radius(index.blocks, index.lead, index.inner_blocks, 0,
                                                                 asked)) END;
    -- The settings under which this statement runs in near, for this call only. Later settings win.
    settings := ARRAY(SELECT unnest(p.proconfig) FROM pg_proc AS p
                       WHERE p.pronamespace = 'simsql'::regnamespace
                         AND (p.proname = CASE WHEN directed THEN 'similar_' ELSE 'search_' END || index.id
                              OR strategy = 'scan' AND NOT directed AND p.proname = 'scan_' || index.id)
                       ORDER BY p.proname LIKE 'scan%');
    BEGIN
        PERFORM set_config(split_part(s, '=', 1), split_part(s, '=', 2), true) FROM unnest(settings) AS s;
        LOOP
            expressions := ARRAY[quote_nullable(fingerprint), asked::text, quote_nullable(candidates)];
            FOR variable IN SELECT v.* FROM simsql._search_variables(index, directed) AS v ORDER BY v.place LOOP
                value := NULL;
                IF strategy = ANY (variable.strategies) THEN
                    EXECUTE 'SELECT (' || variable.value || ')::text'
                       INTO value USING fingerprint, asked, scope, query;
                END IF;
                expressions := expressions || quote_nullable(value);
            END LOOP;
            statement := simsql._search_statement(index, strategy, names, directed);
            has_candidates := simsql._storage_reads(index) ? 'candidates'
                              AND strategy IN ('exact', 'probes', 'skip');
            IF has_candidates THEN
                statement := 'SELECT ARRAY(' || statement || ')';
            END IF;
            -- An error in an earlier call leaves its prepared statement behind.
            IF EXISTS (SELECT FROM pg_prepared_statements AS s WHERE s.name = 'simsql_explain') THEN
                DEALLOCATE simsql_explain;
            END IF;
            EXECUTE format('PREPARE simsql_explain (%s) AS %s', array_to_string(types, ', '), statement);
            execution := format('EXECUTE simsql_explain (%s)', array_to_string(expressions, ', '));
            FOR line IN EXECUTE 'EXPLAIN (ANALYZE, BUFFERS) ' || execution LOOP
                RETURN NEXT line;
            END LOOP;
            IF has_candidates THEN
                EXECUTE execution INTO candidates;
            END IF;
            DEALLOCATE simsql_explain;
            EXIT WHEN NOT has_candidates OR cardinality(candidates) = 0;
            IF strategy <> 'skip' AND cardinality(candidates) = simsql._candidates() THEN
                RETURN NEXT format('more than %s candidates: equal keys are skipped',
                                   simsql._candidates() - 1);
                strategy := 'skip';
            ELSE
                strategy := 'check';
            END IF;
        END LOOP;
        -- Leaving the block through an error resets the settings.
        RAISE EXCEPTION USING ERRCODE = 'SIM00';
    EXCEPTION
        WHEN SQLSTATE 'SIM00' THEN NULL;
    END;
END
$$;

COMMENT ON FUNCTION simsql.explain_near(regclass, bigint, integer, text, jsonb) IS
    'EXPLAIN ANALYZE of the statements that simsql.near runs for the same arguments';
