-- The functions that create_index generates for the searches of an index.

-- After this many candidates a search starts over and skips equal keys, which takes twice as long if all keys
-- are different. Most searches have fewer candidates, and these are read in less than a millisecond.
CREATE OR REPLACE FUNCTION simsql._candidates() RETURNS integer
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN 2000;

-- What the templates of an index refer to, as `shared` of _render. Values of the scope are those of `scope`,
-- or SQL expressions in `variables`: scope_1, scope_2 and so on.
CREATE OR REPLACE FUNCTION simsql._parts(index simsql.registry, scope jsonb, variables jsonb DEFAULT '{}')
RETURNS jsonb
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    scoped constant boolean := index.scope_columns <> '{}';
BEGIN
    RETURN jsonb_build_object(
        'id', index.id,
        'table', index.table_name,
        'rows', simsql._rows_of(index),
        'column', index.column_name,
        'scope', scope::text,
        'scope_of_keys', CASE WHEN scoped THEN simsql._for_scope(
            index, ' AND k.%1$s = %3$s', scope, variables) END,
        'scope_of_rows', CASE WHEN scoped THEN simsql._for_scope(
            index, ' AND t.%2$I = %3$s', scope, variables) END,
        'no_scope', CASE WHEN scoped THEN simsql._for_scope(index, ' AND t.%2$I IS NULL') END,
        'guard', simsql._guard(index),
        'candidate_limit', simsql._candidates());
END
$$;

-- The variables of a search: the keys of the fingerprint, the flips of their bits, the distance of candidates
-- and the scope. Each has a name, a type, the expression of its value for the fingerprint $1, the distance $2
-- and the scope $3, and the strategies that use it. If a permutation need not be read at this distance, its
-- key is null, so none of its ranges are looked up.
--
-- A `directed` search flips what the query $4 says, and knows the planes of its weights: see similar.sql.
CREATE OR REPLACE FUNCTION simsql._search_variables(index simsql.registry, directed boolean DEFAULT false)
RETURNS TABLE (place integer, name text, type text, value text, strategies text[])
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    reads constant jsonb := simsql._storage_reads(index);
    -- Keys are compared with planes in the order of their bits.
    probes constant text[] := CASE WHEN reads ? 'candidates' THEN '{}' ELSE '{probes}' END;
    branch record;
    radius text;
BEGIN
    place := 0;
    IF directed THEN
        RETURN QUERY
        SELECT p.number, 'plane_' || p.number, 'bigint', p.value, '{scan,check}'::text[] || probes
          FROM simsql._planes() AS p
         UNION ALL
        VALUES (9, 'max_cost', 'integer', '($4 ->> ''cost'')::integer', '{probes,skip,scan,check}'::text[]),
               (10, 'max_screened', 'integer', 'greatest(($4 ->> ''screen'')::integer, $2)', '{probes,skip,scan,check}');
        place := 10;
    END IF;
    FOR branch IN SELECT b.* FROM simsql._storage_branches(index) AS b ORDER BY b.number LOOP
        IF directed THEN
            RETURN QUERY
            SELECT _search_variables.place + v.number, v.name || '_' || branch.number, v.type, v.value, v.strategies
              FROM (VALUES
                   (1, 'key', 'bigint', branch.key, '{probes,skip}'::text[]),
                   (2, 'flips', 'bigint[]', simsql._render(
                       reads ->> 'flips', '{}', jsonb_build_object('key', branch.key, 'flips', format(
                           'ARRAY(SELECT %s FROM unnest(($4 -> ''flips'' ->> %s)::bigint[]) AS f (prefix))',
                           simsql._permute(format('(f.prefix << %s)', 64 - bit_count(branch.flipped::bit(64))),
                                           branch.flipped, back => true), branch.number))), '{probes,skip}')) AS v (number, name, type, value, strategies)
             UNION ALL
            SELECT _search_variables.place + 2 + p.number, format('plane_%s_%s', p.number, branch.number), 'bigint',
                   replace(branch.key, '$1', p.value), '{probes,skip}'
              FROM simsql._planes() AS p WHERE reads ? 'candidates';
            place := place + 10;
            CONTINUE;
        END IF;
        place := place + 1;
        radius := format('simsql._radius(%s, $2)',
                         concat_ws(', ', index.blocks, index.lead, index.inner_blocks, branch.number));
        name := 'key_' || branch.number;
        type := 'bigint';
        value := CASE WHEN simsql._radius(index.blocks, index.lead, index.inner_blocks, branch.number, 0) < 0
                      THEN format('CASE WHEN %s >= 0 THEN %s END', radius, branch.key) ELSE branch.key END;
        strategies := '{exact,probes,skip}';
        RETURN NEXT;
        -- A few flips are constants: a search at radius 1 takes about as long as computing them would.
        name := 'flips_' || branch.number;
        type := 'bigint[]';
        value := simsql._render($sql$CASE {radius} WHEN 0 THEN '{0}' WHEN 1 THEN {'one'}::bigint[]{two}
            ELSE simsql._flips({'flipped'}, {radius}) END$sql$, jsonb_build_object(
                'radius', radius, 'flipped', branch.flipped, 'one', simsql._flips(branch.flipped, 1)::text,
                'two', CASE WHEN simsql._ways(bit_count(branch.flipped::bit(64))::integer, 2) <= 600
                            THEN format(' WHEN 2 THEN %L::bigint[]', simsql._flips(branch.flipped, 2)) END));
        value := simsql._render(reads ->> 'flips', '{}',
                                jsonb_build_object('key', branch.key, 'flips', value));
        strategies := '{probes,skip}';
        RETURN NEXT;
    END LOOP;
    IF reads ? 'candidates' AND NOT directed THEN
        place := place + 1;
        name := 'max_distance';
        type := 'integer';
        value := 'greatest($2 + 4, 12)';
        strategies := '{exact,probes}';
        RETURN NEXT;
    END IF;
    RETURN QUERY
    SELECT _search_variables.place + s.number, s.name, s.type,
           format('($3 ->> %L)::%s', s.column_name, s.type), '{exact,probes,skip,scan,check}'::text[]
      FROM simsql._scope_columns(index) AS s;
END
$$;

-- The planes of a query $4: the weight of a bit that is in each, and its value.
CREATE OR REPLACE FUNCTION simsql._planes() RETURNS TABLE (number integer, value text)
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT 1 << n, format('($4 -> ''planes'' ->> %s)::bigint', n) FROM generate_series(0, 3) AS n
$$;

-- What the differing bits {x} cost, as the planes of a query weigh them.
CREATE OR REPLACE FUNCTION simsql._cost(parts jsonb) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN simsql._render(
    $sql$bit_count(({x} & {plane_1})::bit(64)) + 2 * bit_count(({x} & {plane_2})::bit(64))
              + 4 * bit_count(({x} & {plane_4})::bit(64)) + 8 * bit_count(({x} & {plane_8})::bit(64))$sql$, '{}', parts);

-- The condition under which the bits that differ are near enough. A directed search compares keys of permutation `number`
-- with planes in the same order. Few flips of heavy bits tell most others apart.
CREATE OR REPLACE FUNCTION simsql._is_near(
    differing text, within text, names jsonb, directed boolean, number integer DEFAULT NULL)
RETURNS text
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
AS $$
DECLARE
    parts jsonb;
BEGIN
    IF NOT directed THEN
        RETURN format('bit_count((%s)::bit(64)) <= %s', differing, within);
    END IF;
    parts := names || jsonb_build_object('x', differing)
             || (SELECT jsonb_object_agg('plane_' || p.number, coalesce(
                            names ->> concat_ws('_', 'plane', p.number, _is_near.number), names ->> ('plane_' || p.number)))
                   FROM simsql._planes() AS p);
    RETURN simsql._render(
        $sql$(bit_count(({x} & ({plane_4} | {plane_8}))::bit(64)) <= {max_screened}
           AND ({cost} <= {max_cost} OR bit_count(({x})::bit(64)) <= $2))$sql$,
        '{}', parts || jsonb_build_object('cost', simsql._cost(parts)));
END
$$;

-- The statement of a search in an index: search functions and the explanations run exactly this one. `variables`
-- tells how it names those above, and `candidates`.
--   exact   one range per permutation: the prefix has to be equal
--   probes  one range per permutation and flip of its prefix
--   skip    the same ranges, without the copies of equal keys
--   scan    everything, or everything in the scope
--   check   the candidates that the first three return instead of matches, if the storage has copies
CREATE OR REPLACE FUNCTION simsql._search_statement(
    index simsql.registry, strategy text, variables jsonb DEFAULT NULL, directed boolean DEFAULT false)
RETURNS text
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    reads constant jsonb := simsql._storage_reads(index);
    names constant jsonb := coalesce(
        variables, (SELECT jsonb_object_agg(v.name, v.name) || '{"candidates": "candidates"}'
                      FROM simsql._search_variables(index, directed) AS v));
    fingerprint constant text := CASE WHEN reads ? 'candidates' THEN 'c.fingerprint'
                                      ELSE format('t.%I', index.column_name) END;
    shared constant jsonb := simsql._parts(index, NULL, names) || jsonb_build_object(
        'is_match', simsql._is_near(format('(%s # $1)', fingerprint), '$2', names, directed));
    template text := 'matches';
    source text;
BEGIN
    source := CASE strategy
        WHEN 'check' THEN format('unnest(%s)', names ->> 'candidates')
        WHEN 'scan' THEN simsql._render(reads ->> 'all', '{}', shared)
        ELSE (SELECT string_agg(
                         simsql._render(reads ->> strategy, '{}', shared || b.parts || jsonb_build_object(
                             'key', k.key,
                             'flips', names ->> ('flips_' || b.number),
                             'key_is_near', simsql._is_near(format('(k.key # %s)', k.key), names ->> 'max_distance', names,
                                                            directed, b.number),
                             'copy_is_near', simsql._is_near('(k.key # piece.center)', '$2', names, directed,
                                                             b.number))),
                         reads ->> 'between' ORDER BY b.number)
                FROM simsql._storage_branches(index) AS b
               CROSS JOIN LATERAL (SELECT names ->> ('key_' || b.number)) AS k (key)) END;
    IF strategy = 'skip' THEN
        RETURN source;
    ELSIF strategy IN ('exact', 'probes') AND reads ? 'candidates' THEN
        template := 'candidates';
    END IF;
    RETURN simsql._render(reads ->> template, jsonb_build_object('source', source), shared);
END
$$;

-- What decides between the strategies: the greatest distance at which no prefix is flipped; the greatest one
-- at which probing pays from at most a thousand rows on; and beyond that, the condition under which probing
-- at the distance $2 is expected to be cheaper than a scan. Where only counting tells the number of rows, it
-- stops as soon as probing begins to pay. So it costs less than the scan that it saves, and neither old
-- statistics nor uneven keys can mislead it.
CREATE OR REPLACE FUNCTION simsql._search_decision(
    index simsql.registry, variables jsonb, OUT exact_up_to integer, OUT probed_up_to integer,
    OUT probing_pays text)
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    scan_below constant bigint[] := simsql._scan_below(
        index.blocks, index.lead, index.inner_blocks, index.candidate_shares);
BEGIN
    SELECT max(d) INTO exact_up_to FROM generate_series(0, 64) AS d
     WHERE simsql._radius(index.blocks, index.lead, index.inner_blocks, 0, d) <= 0;
    SELECT min(d) - 1 INTO probed_up_to FROM generate_series(0, 64) AS d
     WHERE coalesce(scan_below[d + 1] > 1000, true);
    probing_pays := simsql._probing_pays(index, variables, format('(%L::bigint[])[$2 + 1]', scan_below));
END
$$;

CREATE OR REPLACE FUNCTION simsql._probing_pays(index simsql.registry, variables jsonb, least_rows text) RETURNS text
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    reads constant jsonb := simsql._storage_reads(index);
BEGIN
    RETURN simsql._render(
        coalesce(CASE WHEN index.scope_columns <> '{}' THEN reads ->> 'probing_pays_in_scope' END,
                 reads ->> 'probing_pays'),
        '{}', simsql._parts(index, NULL, variables) || jsonb_build_object('least_rows', least_rows));
END
$$;

-- How many rows a directed search scans in the time of this number of probes: it reads them in the order of an index.
CREATE OR REPLACE FUNCTION simsql._scan_below(probes text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN format('(%s * (%s))', (SELECT ceil(c.probe / c.scan_row / 2)::integer FROM simsql._costs() AS c), probes);

-- Four generated functions per index, with the design and the names as constants. They run with the caller's
-- privileges: the policy of the key tables and the privileges on the user's table decide who may search.
-- Values to compare with are computed once, in variables; within the statement, each occurrence would be
-- compiled at every call. Candidates are collected first: most searches have none, and then no row has to be
-- looked up.
--
-- A generic plan cannot know how narrow a range is. With the settings below it is a nested loop of index
-- scans, whatever the estimates, and it is planned once per session. A scan runs within the search function,
-- under its settings except for those that it resets; a hash join would read the user's whole table for the
-- few matching rows. Within a scope, the scan is an index-only scan like the others: a sequential scan would
-- read the keys of all scopes.
CREATE OR REPLACE FUNCTION simsql._search_functions(index simsql.registry)
RETURNS TABLE (name text, arguments text, head text, settings text[], body text)
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    scoped constant boolean := cardinality(index.scope_columns) > 0;
    reads constant jsonb := simsql._storage_reads(index);
    variables jsonb;
    declared jsonb;
    decision jsonb;
BEGIN
    SELECT jsonb_object_agg(v.name, v.name) || '{"candidates": "candidates"}',
           jsonb_build_object(
               'scope', string_agg(d.constant, '' ORDER BY v.place)
                        FILTER (WHERE 'scan' = ANY (v.strategies)),
               'constants', string_agg(d.constant, '' ORDER BY v.place)
                            FILTER (WHERE 'exact' = ANY (v.strategies)),
               'flips', string_agg(format(E'\n    %s %s;', v.name, v.type), '' ORDER BY v.place)
                        FILTER (WHERE 'exact' <> ALL (v.strategies)),
               'flip', string_agg(format(E'\n        %s := %s;', v.name, v.value), '' ORDER BY v.place)
                       FILTER (WHERE 'exact' <> ALL (v.strategies)))
      INTO variables, declared
      FROM simsql._search_variables(index) AS v
     CROSS JOIN LATERAL format(E'\n    %s constant %s := %s;', v.name, v.type, v.value) AS d (constant);
    arguments := CASE WHEN scoped THEN '(bigint, integer, jsonb)' ELSE '(bigint, integer)' END;
    head := 'RETURNS SETOF simsql.match LANGUAGE plpgsql STABLE ROWS 10';
    name := 'scan_' || index.id;
    settings := ARRAY['search_path=pg_catalog, pg_temp', 'enable_hashagg=on']
                || CASE WHEN NOT scoped THEN ARRAY['enable_seqscan=on'] END;
    body := simsql._render($body$#variable_conflict use_variable
DECLARE{scope}
BEGIN
    RETURN QUERY
{scan};
END$body$, jsonb_build_object(
        'scope', declared ->> 'scope', 'scan', simsql._search_statement(index, 'scan', variables)));
    RETURN NEXT;
    name := 'search_' || index.id;
    settings := 'search_path=pg_catalog, pg_temp'::text || CASE WHEN reads ? 'settings'
        THEN ARRAY(SELECT jsonb_array_elements_text(reads -> 'settings'))
        ELSE ARRAY['plan_cache_mode=force_generic_plan', 'jit=off', 'enable_seqscan=off',
                   'enable_bitmapscan=off', 'enable_hashagg=off', 'enable_hashjoin=off',
                   'enable_mergejoin=off', 'enable_material=off', 'max_parallel_workers_per_gather=0'] END;
    SELECT to_jsonb(d) INTO decision FROM simsql._search_decision(index, variables) AS d;
    -- A variable of the scope has the same name as the key column that it is compared with.
    body := simsql._render($body$#variable_conflict use_variable
DECLARE{constants}{flips}{candidates}
    probing boolean := true;
BEGIN
    IF $2 > {probed_up_to} THEN
        probing := {probing_pays};
    END IF;
    IF NOT coalesce(probing, false) THEN
        RETURN QUERY SELECT * FROM simsql.scan_{id}($1, $2{scope});
        RETURN;
    END IF;
{search}
END$body$, jsonb_build_object(
        'constants', declared ->> 'constants', 'flips', declared ->> 'flips', 'id', index.id,
        'candidates', CASE WHEN reads ? 'candidates' THEN E'\n    candidates bigint[];' END,
        'scope', CASE WHEN scoped THEN ', $3' END,
        'probed_up_to', decision -> 'probed_up_to', 'probing_pays', decision ->> 'probing_pays',
        'search', simsql._render(CASE WHEN reads ? 'candidates' THEN $body$    IF $2 <= {exact_up_to} THEN
        candidates := ARRAY({exact});
    END IF;
    IF $2 > {exact_up_to} OR cardinality(candidates) = {limit} THEN{flip}
        IF $2 > {exact_up_to} THEN
            candidates := ARRAY({probes});
        END IF;
        IF cardinality(candidates) = {limit} THEN
            candidates := ARRAY({skip});
        END IF;
    END IF;
    IF cardinality(candidates) > 0 THEN
        RETURN QUERY
{check};
    END IF;$body$ ELSE $body$    IF $2 <= {exact_up_to} THEN
        RETURN QUERY
{exact};
    ELSE{flip}
        RETURN QUERY
{probes};
    END IF;$body$ END, '{}', jsonb_build_object(
            'exact_up_to', decision -> 'exact_up_to', 'limit', simsql._candidates(),
            'flip', declared ->> 'flip')
            || (SELECT jsonb_object_agg(s, simsql._search_statement(index, s, variables))
                  FROM unnest(ARRAY['exact', 'probes', 'skip', 'check']) AS s
                 WHERE reads ? s OR s = 'check' AND reads ? 'candidates'))));
    RETURN NEXT;

    SELECT jsonb_object_agg(v.name, v.name) || '{"candidates": "candidates"}',
           jsonb_build_object('constants', string_agg(
               format(E'\n    %s constant %s := %s;', v.name, v.type, v.value), '' ORDER BY v.place))
      INTO variables, declared
      FROM simsql._search_variables(index, directed => true) AS v;
    name := 'similar_' || index.id;
    arguments := '(bigint, integer, jsonb, jsonb)';
    body := simsql._render($body$#variable_conflict use_variable
DECLARE{constants}{candidates}
BEGIN
    IF NOT coalesce({probing_pays}, false) THEN
        RETURN QUERY
{scan};
        RETURN;
    END IF;
{search}
END$body$, jsonb_build_object(
        'constants', declared ->> 'constants',
        'candidates', CASE WHEN reads ? 'candidates' THEN E'\n    candidates bigint[];' END,
        'probing_pays', simsql._probing_pays(index, variables, simsql._scan_below((
            SELECT string_agg(format('cardinality(flips_%s)', b.number), ' + ')
              FROM simsql._storage_branches(index) AS b))),
        'scan', simsql._search_statement(index, 'scan', variables, directed => true),
        'search', simsql._render(CASE WHEN reads ? 'candidates' THEN $body$    candidates := ARRAY({probes});
    IF cardinality(candidates) = {limit} THEN
        candidates := ARRAY({skip});
    END IF;
    IF cardinality(candidates) > 0 THEN
        RETURN QUERY
{check};
    END IF;$body$ ELSE $body$    RETURN QUERY
{probes};$body$ END, '{}', jsonb_build_object('limit', simsql._candidates())
            || (SELECT jsonb_object_agg(s, simsql._search_statement(index, s, variables, directed => true))
                  FROM unnest(ARRAY['probes', 'skip', 'check']) AS s
                 WHERE reads ? s OR s = 'check' AND reads ? 'candidates'))));
    RETURN NEXT;
    name := 'rows_' || index.id;
    arguments := '(bigint[], bigint, anyelement, jsonb)';
    settings := settings[1:5];  -- the others are about joins and sets
    head := 'RETURNS SETOF anyelement LANGUAGE plpgsql STABLE ROWS 10';
    body := format(E'BEGIN\n    RETURN QUERY %s;\nEND', simsql._rows_statement(index, NULL, 't.*', variables => (
        SELECT jsonb_object_agg(s.name, format('($4 ->> %L)::%s', s.column_name, s.type))
          FROM simsql._scope_columns(index) AS s)));
    RETURN NEXT;
END
$$;
