-- Single searches: near, near_rows and explain_near.

-- Statements that call the search function of an index by its id. Static calls are planned once per session. Parsing and planning
-- a dynamic one takes a fifth of the time that a client waits for near.
CREATE OR REPLACE FUNCTION simsql._calls(first integer, last integer) RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
AS $$
DECLARE
    middle constant integer := (first + last) / 2;
BEGIN
    IF first = last THEN
        RETURN format(E'IF scope IS NULL THEN\n'
                      'RETURN QUERY SELECT s.fingerprint, s.distance FROM simsql.search_%1$s(fingerprint, asked) AS s;\n'
                      'ELSE\n'
                      'RETURN QUERY SELECT s.fingerprint, s.distance FROM simsql.search_%1$s(fingerprint, asked, scope) AS s;\n'
                      'END IF;', first);
    END IF;
    RETURN format(E'IF index_id <= %s THEN\n%s\nELSE\n%s\nEND IF;', middle,
                  simsql._calls(first, middle), simsql._calls(middle + 1, last));
END
$$;

-- near calls the search functions of the first 32 ids by static statements.
DO $do$
BEGIN
    EXECUTE format($create$
CREATE OR REPLACE FUNCTION simsql.near(
    table_name regclass, fingerprint bigint, distance integer DEFAULT NULL, column_name text DEFAULT NULL,
    scope jsonb DEFAULT NULL)
RETURNS SETOF simsql.match
LANGUAGE plpgsql STABLE ROWS 10
AS $$
DECLARE
    index_id integer;
    of_index integer;
    scope_columns text[];
    is_sound boolean;
    asked integer := distance;
    fits boolean;
    is_current constant boolean := simsql._is_current();
BEGIN
    BEGIN
        SELECT s.id, s.distance, s.scope_columns, s.sound
          INTO STRICT index_id, of_index, scope_columns, is_sound
          FROM simsql._searchable AS s
         WHERE s.table_id = near.table_name AND (near.column_name IS NULL OR s.column_name = near.column_name);
    EXCEPTION
        WHEN no_data_found OR too_many_rows THEN PERFORM simsql._index(table_name, column_name);
        WHEN undefined_table THEN PERFORM simsql._refuse_worker('near');
    END;
    IF NOT is_sound THEN
        PERFORM simsql._index(table_name, column_name);
    END IF;
    IF scope IS NOT NULL OR scope_columns <> '{}' THEN
        fits := jsonb_typeof(scope) = 'object' AND scope - scope_columns = '{}' AND scope_columns <> '{}';
        FOR place IN 1 .. cardinality(scope_columns) LOOP
            fits := fits AND jsonb_typeof(scope -> scope_columns[place]) IN ('string', 'number', 'boolean');
        END LOOP;
        IF fits IS NOT TRUE THEN
            PERFORM simsql._searched_index(table_name, column_name, scope);
        END IF;
    END IF;
    IF (asked BETWEEN 0 AND 64) IS NOT TRUE THEN
        asked := simsql._distance(distance, of_index);
    END IF;
    IF index_id <= 32 THEN
%s
    ELSIF scope IS NULL THEN
        RETURN QUERY EXECUTE 'SELECT fingerprint, distance FROM simsql.search_' || index_id || '($1, $2)' USING fingerprint, asked;
    ELSE
        RETURN QUERY EXECUTE 'SELECT fingerprint, distance FROM simsql.search_' || index_id || '($1, $2, $3)'
                       USING fingerprint, asked, scope;
    END IF;
END
$$
$create$, simsql._calls(1, 32));
END
$do$;

COMMENT ON FUNCTION simsql.near(regclass, bigint, integer, text, jsonb) IS
    'every fingerprint within the distance, once each, nearest first; only fingerprints of rows in the table or the scope';

-- The statement that joins the matches of a search with the rows of the table, nearest first. $1 is the fingerprint, $2 the
-- distance and $3 the scope; `list` is the select list, in which the table is called t. Citus would send the search function to
-- a shard, so there the fingerprints of the matches are $4.
CREATE OR REPLACE FUNCTION simsql._rows_statement(index simsql.registry, scope jsonb, list text) RETURNS text
LANGUAGE sql STABLE
AS $$
    SELECT CASE WHEN simsql._is_distributed(index.table_id)
                THEN format('SELECT %1$s FROM %2$s AS t WHERE t.%3$I = ANY ($4)%4$s AND %5$s '
                            'ORDER BY bit_count((t.%3$I # $1)::bit(64)), t.%3$I',
                            list, simsql._rows_of(index), index.column_name, simsql._in_scope(index, scope, 't'),
                            simsql._guard(index))
                ELSE format('SELECT %s FROM simsql.search_%s($1, $2%s) AS m JOIN %s AS t ON t.%I = m.fingerprint%s '
                            'WHERE %s ORDER BY m.distance, m.fingerprint',
                            list, index.id, CASE WHEN cardinality(index.scope_columns) > 0 THEN ', $3' END,
                            simsql._rows_of(index), index.column_name, simsql._in_scope(index, scope, 't'), simsql._guard(index)) END
$$;

-- The fingerprints that a search finds, where the statement above needs them.
CREATE OR REPLACE FUNCTION simsql._matches_in_shards(index simsql.registry, fingerprint bigint, distance integer, scope jsonb)
RETURNS bigint[]
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    matches bigint[];
BEGIN
    IF simsql._is_distributed(index.table_id) THEN
        EXECUTE format('SELECT ARRAY(SELECT s.fingerprint FROM simsql.search_%s($1, $2%s) AS s)', index.id,
                       CASE WHEN cardinality(index.scope_columns) > 0 THEN ', $3' END)
           INTO matches USING fingerprint, distance, scope;
    END IF;
    RETURN matches;
END
$$;

CREATE OR REPLACE FUNCTION simsql.near_rows(
    row_type anyelement, fingerprint bigint, distance integer DEFAULT NULL, column_name text DEFAULT NULL,
    scope jsonb DEFAULT NULL)
RETURNS SETOF anyelement
LANGUAGE plpgsql STABLE ROWS 10
AS $$
DECLARE
    is_coordinator constant boolean := simsql._is_coordinator('near_rows');
    table_id constant regclass := (
        SELECT c.oid FROM pg_type AS y JOIN pg_class AS c ON c.oid = y.typrelid
         WHERE y.oid = pg_typeof(row_type) AND c.relkind <> 'c');
    index record;
    within integer;
BEGIN
    IF table_id IS NULL THEN
        RAISE EXCEPTION 'simsql.near_rows: % is not the row type of a table', pg_typeof(row_type)
            USING ERRCODE = 'wrong_object_type', HINT = 'Pass NULL::article to search the table article.';
    END IF;
    index := simsql._searched_index(table_id, column_name, scope);
    within := simsql._distance(distance, index.distance);
    RETURN QUERY EXECUTE simsql._rows_statement(index, scope, 't.*')
                   USING fingerprint, within, scope, simsql._matches_in_shards(index, fingerprint, within, scope);
END
$$;

COMMENT ON FUNCTION simsql.near_rows(anyelement, bigint, integer, text, jsonb) IS
    'every row whose fingerprint is within the distance, nearest first: simsql.near_rows(NULL::article, ...)';

-- An expression for each column of a table `t` that can become JSON. Converting a value to JSON calls the cast that the owner of its
-- type may have created, so values of types that are not built in become text.
CREATE OR REPLACE FUNCTION simsql._json_columns(table_id regclass) RETURNS TABLE (number smallint, name name, expression text)
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

-- The same for callers without a row type. It returns the distances too. The parameters are the table, the fingerprint, the
-- distance, the column and the scope.
CREATE OR REPLACE FUNCTION simsql._near_documents(regclass, bigint, integer, text, jsonb)
RETURNS TABLE (fingerprint bigint, distance integer, document jsonb)
LANGUAGE plpgsql STABLE ROWS 10
AS $$
DECLARE
    table_name ALIAS FOR $1;
    query ALIAS FOR $2;
    asked ALIAS FOR $3;
    column_name ALIAS FOR $4;
    scope ALIAS FOR $5;
    index constant simsql.registry := simsql._searched_index(table_name, column_name, scope);
    within constant integer := simsql._distance(asked, index.distance);
    columns constant text := (SELECT string_agg(format('%s AS %I', c.expression, c.name), ', ' ORDER BY c.number)
                                FROM simsql._json_columns(table_name) AS c);
BEGIN
    RETURN QUERY EXECUTE simsql._rows_statement(
                             index, scope, format('t.%1$I, bit_count((t.%1$I # $1)::bit(64))::integer, '
                                                  '(SELECT to_jsonb(r) FROM (SELECT %2$s) AS r)', index.column_name, columns))
                   USING query, within, scope, simsql._matches_in_shards(index, query, within, scope);
END
$$;

-- The primary key, as a JSON array, of each row that has one of these fingerprints, in the order of the keys.
CREATE OR REPLACE FUNCTION simsql._keys_of_rows(table_name regclass, fingerprints bigint[], column_name text, scope jsonb)
RETURNS TABLE (fingerprint bigint, key jsonb)
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    index constant simsql.registry := simsql._searched_index(table_name, column_name, scope);
BEGIN
    RETURN QUERY EXECUTE (
        SELECT format('SELECT t.%1$I, jsonb_build_array(%2$s) FROM %3$s AS t WHERE t.%1$I = ANY ($1)%4$s AND %5$s ORDER BY %6$s',
                      index.column_name, string_agg(c.expression, ', ' ORDER BY k.place), simsql._rows_of(index),
                      simsql._in_scope(index, scope, 't'), simsql._guard(index),
                      string_agg(format('t.%I', k.name), ', ' ORDER BY k.place))
          FROM simsql._primary_key(table_name) AS k
          JOIN simsql._json_columns(table_name) AS c ON c.name = k.name)
      USING fingerprints;
END
$$;

-- Returns the EXPLAIN ANALYZE output of a statement and, if it returns an array, that array. `types` and `expressions` are the
-- types and values of its parameters.
CREATE OR REPLACE FUNCTION simsql._explain(statement text, types text[], expressions text[], OUT plan text[], OUT candidates bigint[])
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    execution constant text := format('EXECUTE simsql_explain(%s)', array_to_string(expressions, ', '));
    line text;
BEGIN
    -- An error in an earlier call leaves its prepared statement behind.
    IF EXISTS (SELECT FROM pg_prepared_statements AS s WHERE s.name = 'simsql_explain') THEN
        DEALLOCATE simsql_explain;
    END IF;
    EXECUTE format('PREPARE simsql_explain (%s) AS %s', array_to_string(types, ', '), statement);
    FOR line IN EXECUTE 'EXPLAIN (ANALYZE, BUFFERS) ' || execution LOOP
        plan := plan || line;
    END LOOP;
    IF statement LIKE 'SELECT ARRAY(%' THEN
        EXECUTE execution INTO candidates;
    END IF;
    DEALLOCATE simsql_explain;
END
$$;

-- Runs the statements of one search one after another, as the generated function does, and shows the plan of each.
CREATE OR REPLACE FUNCTION simsql.explain_near(
    table_name regclass, fingerprint bigint, distance integer DEFAULT NULL, column_name text DEFAULT NULL,
    scope jsonb DEFAULT NULL)
RETURNS SETOF text
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    index constant simsql.registry := simsql._searched_index(table_name, column_name, scope);
    asked constant integer := simsql._distance(distance, index.distance);
    strategy text;
    settings text[];
    statement text;
    types text[];
    expressions text[];
    explained record;
    scopes constant integer := cardinality(index.scope_columns);
    finds_matches boolean;
BEGIN
    EXECUTE format('SELECT CASE WHEN NOT coalesce(%s, false) THEN ''scan'' WHEN $2 <= %s THEN ''exact'' ELSE ''probes'' END',
                   simsql._probing_pays(index, simsql._scan_below(index.blocks, index.lead, index.inner_blocks, index.candidate_shares),
                                        simsql._in_scope(index, scope, CASE index.storage WHEN 'tables' THEN 'k' ELSE 't' END)),
                   simsql._exact_up_to(index))
       INTO strategy USING fingerprint, asked;
    finds_matches := strategy = 'scan' OR index.storage = 'expression';
    RETURN NEXT format('strategy: %s, radius: %s', strategy,
                       simsql._radius(index.blocks, index.lead, index.inner_blocks, 0, asked));
    -- The settings under which this statement runs in near, for this call only. Later settings win.
    settings := ARRAY(SELECT unnest(p.proconfig) FROM pg_proc AS p
                       WHERE p.pronamespace = 'simsql'::regnamespace
                         AND (p.proname = 'search_' || index.id
                              OR strategy = 'scan' AND p.proname = 'scan_' || index.id)
                       ORDER BY p.proname LIKE 'scan%');
    BEGIN
        PERFORM set_config(split_part(s, '=', 1), split_part(s, '=', 2), true) FROM unnest(settings) AS s;
        LOOP
            -- Variables of the generated function are parameters here.
            SELECT ARRAY['bigint', 'integer'] || array_agg(v.type ORDER BY v.number),
                   ARRAY[quote_nullable(fingerprint), asked::text] || array_agg(
                       -- Replace only the leading $3, since the name of a scope column may look like a parameter: ($3 ->>
                       -- 'a$1')::text.
                       CASE WHEN v.name LIKE 'scope%' THEN overlay(v.value PLACING format('%L::jsonb', scope) FROM 2 FOR 2)
                            ELSE replace(replace(v.value, '$1', quote_nullable(fingerprint) || '::bigint'), '$2', asked::text) END
                       ORDER BY v.number),
                   simsql._search_statement(index, strategy, array_agg('$' || v.number + 3 ORDER BY v.number))
              INTO types, expressions, statement
              FROM simsql._search_variables(index, strategy) AS v;
            explained := simsql._explain(CASE WHEN finds_matches THEN statement ELSE format('SELECT ARRAY(%s)', statement) END,
                                         types, expressions);
            RETURN QUERY SELECT unnest(explained.plan);
            EXIT WHEN finds_matches OR strategy = 'skip' OR cardinality(explained.candidates) < simsql._candidates();
            RETURN NEXT format('more than %s candidates: equal keys are skipped', simsql._candidates() - 1);
            strategy := 'skip';
        END LOOP;
        IF cardinality(explained.candidates) > 0 THEN
            -- The scope comes last, followed by the candidates.
            explained := simsql._explain(
                simsql._check_statement(index, format('unnest($%s)', scopes + 3),
                                        ARRAY(SELECT '$' || number + 2 FROM generate_series(1, scopes) AS number)),
                types[:2] || types[cardinality(types) - scopes + 1:] || 'bigint[]'::text,
                expressions[:2] || expressions[cardinality(expressions) - scopes + 1:] || quote_literal(explained.candidates));
            RETURN QUERY SELECT unnest(explained.plan);
        END IF;
        -- Leaving the block through an error resets the settings.
        RAISE EXCEPTION USING ERRCODE = 'SIM00';
    EXCEPTION
        WHEN SQLSTATE 'SIM00' THEN NULL;
    END;
END
$$;

COMMENT ON FUNCTION simsql.explain_near(regclass, bigint, integer, text, jsonb) IS
    'EXPLAIN ANALYZE of the statements that simsql.near runs for the same arguments';
