-- The functions that create_index generates for the searches of an index, and their text.

-- The text of a search over an index. $2 is the distance; the fingerprint permuted for each table, the
-- flips of its prefix and the scope stand in the variables that _search_variables lists, or under the names given here.
-- The generated search function and explain_near both run exactly this text.
--   exact   one range per permutation: the prefix has to be equal
--   probes  one range per permutation and flip of its prefix
--   scan    all keys of the first permutation, or those of the scope
-- Keys may be stored twice and may outlive their rows: sort, keep one of each, and keep those that a
-- live row has.
CREATE FUNCTION simsql._search_statement(index simsql.registry, strategy text, variables text[] DEFAULT NULL)
RETURNS text
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    names constant text[] := coalesce(
        variables, ARRAY(SELECT v.name FROM simsql._search_variables(index, strategy) AS v ORDER BY v.number));
    tables constant integer := simsql._table_count(index.blocks, index.lead, index.inner_blocks);
    keys_in_scope text;
    rows_in_scope text;
    branches text;
BEGIN
    -- Names come last of all, those of the scope.
    SELECT coalesce(string_agg(format('k.%I = %s AND ', s.name, variable), '' ORDER BY s.number), ''),
           coalesce(string_agg(format(' AND t.%I = %s', s.column_name, variable), '' ORDER BY s.number), '')
      INTO keys_in_scope, rows_in_scope
      FROM simsql._scope_columns(index) AS s
     CROSS JOIN LATERAL CAST(names[cardinality(names) - cardinality(index.scope_columns) + s.number] AS text) AS variable;
    SELECT string_agg(
               format('SELECT bit_count((k.key # %1$s)::bit(64))::integer AS distance, %2$s AS fingerprint '
                      'FROM %3$s WHERE %5$s%4$sbit_count((k.key # %1$s)::bit(64)) <= $2',
                      center, simsql._unpermute('k.key', p.lead_mask),
                      CASE strategy WHEN 'probes' THEN
                          -- OFFSET 0 keeps the bounds bare columns: under row-level security nothing else may be
                          -- compared in an index condition, since operators such as & are not leakproof.
                          format('(SELECT (%1$s # (f << %2$s)) & %3$L::bigint AS low, '
                                 '(%1$s # (f << %2$s)) | %4$L::bigint AS high '
                                 'FROM unnest(%5$s) AS f OFFSET 0) AS p CROSS JOIN simsql.%6$I AS k',
                                 center, 64 - p.prefix, outside, inside,
                                 names[tables + p.number + 1], keys)
                      ELSE format('simsql.%I AS k', keys) END,
                      CASE strategy WHEN 'probes' THEN 'k.key >= p.low AND k.key <= p.high AND '
                                    WHEN 'exact' THEN format('k.key >= %1$s & %2$L::bigint AND '
                                                             'k.key <= %1$s | %3$L::bigint AND ',
                                                             center, outside, inside)
                      END, keys_in_scope),
               E'\n UNION ALL ' ORDER BY p.number)
      INTO branches
      FROM simsql._permutations(index.blocks, index.lead, index.inner_blocks) AS p
     CROSS JOIN LATERAL (
           SELECT format('keys_%s_%s', index.id, p.number) AS keys,
                  names[p.number + 1] AS center,
                  -1::bigint << (64 - p.prefix) AS outside,
                  ~(-1::bigint << (64 - p.prefix)) AS inside) AS expression
     WHERE strategy <> 'scan' OR p.number = 0;
    RETURN format(
        E'SELECT m.fingerprint, m.distance\n'
        '  FROM (SELECT DISTINCT c.distance, c.fingerprint FROM (\n %s\n) AS c) AS m\n'
        ' WHERE EXISTS (SELECT FROM ONLY %s AS t WHERE t.%I = m.fingerprint%s)\n'
        ' ORDER BY m.distance, m.fingerprint',
        branches, index.table_name, index.column_name, rows_in_scope);
END
$$;

-- simsql._radius for the distance $2, written out with the layout as constants.
CREATE FUNCTION simsql._radius_of_parameter(blocks integer, lead integer, inner_blocks integer, number integer) RETURNS text
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$
    SELECT CASE WHEN inner_blocks > 0 THEN format('(%1$s + ($2 - %1$s) / %2$s)', outer_radius, inner_blocks)
                WHEN lead > 1 THEN outer_radius
                -- Rounded down, also below 0.
                ELSE format('(($2 - %s) / %s - 1)', number - blocks, blocks)
           END
      FROM format('(%1$s * ($2 / %2$s) + greatest(0, %1$s - (%2$s - $2 %% %2$s)))', lead, blocks)
           AS f (outer_radius)
$$;

-- The variables of a search, keys first and the scope last: a name, a type, and the expression that gives the value, for
-- the fingerprint $1, the distance $2 and the scope $3. A table that need not be read at this distance has no key, and no
-- range of it is looked up.
CREATE FUNCTION simsql._search_variables(index simsql.registry, strategy text)
RETURNS TABLE (number integer, name text, type text, value text)
LANGUAGE sql STABLE
AS $$
    SELECT p.number, 'key_' || p.number, 'bigint',
           CASE WHEN simsql._radius(index.blocks, index.lead, index.inner_blocks, p.number, 0) < 0
                THEN format('CASE WHEN %s >= 0 THEN %s END', radius.text, permuted.text)
                ELSE permuted.text END
      FROM simsql._permutations(index.blocks, index.lead, index.inner_blocks) AS p
     CROSS JOIN LATERAL simsql._radius_of_parameter(index.blocks, index.lead, index.inner_blocks, p.number) AS radius (text)
     CROSS JOIN LATERAL simsql._permute('$1', p.lead_mask) AS permuted (text)
     WHERE strategy <> 'scan' OR p.number = 0
    UNION ALL
    -- Flips are written out where they are few, since a search at radius 1 takes about as long as computing them.
    SELECT p.number + simsql._table_count(index.blocks, index.lead, index.inner_blocks)::integer,
           'flips_' || p.number, 'bigint[]',
           format('CASE %1$s WHEN 0 THEN ''{0}'' WHEN 1 THEN %2$L::bigint[]%3$s ELSE simsql._flips(%4$s, %1$s) END',
                  radius.text, simsql._flips(p.prefix, 1),
                  CASE WHEN simsql._ways(p.prefix, 2) <= 600
                       THEN format(' WHEN 2 THEN %L::bigint[]', simsql._flips(p.prefix, 2)) END,
                  p.prefix)
      FROM simsql._permutations(index.blocks, index.lead, index.inner_blocks) AS p
     CROSS JOIN LATERAL simsql._radius_of_parameter(index.blocks, index.lead, index.inner_blocks, p.number) AS radius (text)
     WHERE strategy = 'probes'
    UNION ALL
    SELECT CASE strategy WHEN 'scan' THEN 0 WHEN 'exact' THEN t.tables - 1 ELSE 2 * t.tables - 1 END + s.number,
           s.name, s.type, format('($3 ->> %L)::%s', s.column_name, s.type)
      FROM simsql._scope_columns(index) AS s
     CROSS JOIN LATERAL CAST(simsql._table_count(index.blocks, index.lead, index.inner_blocks) AS integer) AS t (tables)
$$;

-- Two functions per index, with the layout and the names baked in. They run with the caller's
-- rights: the policy on the key tables and the table's own grants decide who may search. What a search
-- compares with is computed once, in variables: written into the statement it would be compiled at each of the
-- places where it stands, at every call.
-- A generic plan cannot know how narrow a range is; with the settings below it is a nested loop of
-- index scans whatever it estimates, and it is planned once per session. The scan runs inside the search
-- function, under its settings but for those that it takes back; a hash join would read the whole table of
-- the user for the few rows that are near. Within a scope it is an index-only scan like the others: a sequential one
-- would read the keys of all scopes.
CREATE FUNCTION simsql._search_functions(index simsql.registry)
RETURNS TABLE (name text, arguments text, head text, settings text[], body text)
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    scoped constant boolean := cardinality(index.scope_columns) > 0;
    -- A variable of the scope is called like the column of the keys that it is compared with.
    beginning constant text := CASE WHEN scoped THEN E'#variable_conflict use_variable\n' ELSE '' END || 'DECLARE';
    declared text := (SELECT string_agg(format('    %s constant %s := %s;', v.name, v.type, v.value), E'\n' ORDER BY v.number)
                        FROM simsql._search_variables(index, 'exact') AS v);
    flips text := (SELECT string_agg(format('    %s %s;', v.name, v.type), E'\n' ORDER BY v.number)
                     FROM simsql._search_variables(index, 'probes') AS v WHERE v.type = 'bigint[]');
    pays constant text := simsql._probing_pays(index, simsql._for_scope(index, ' AND k.%1$s = %1$s'));
    assigned text := (SELECT string_agg(format('    %s := %s;', v.name, v.value), E'\n' ORDER BY v.number)
                        FROM simsql._search_variables(index, 'probes') AS v WHERE v.type = 'bigint[]');
BEGIN
    arguments := CASE WHEN scoped THEN '(bigint, integer, jsonb)' ELSE '(bigint, integer)' END;
    head := 'RETURNS SETOF simsql.match LANGUAGE plpgsql STABLE ROWS 10';
    name := 'scan_' || index.id;
    settings := ARRAY['search_path=pg_catalog, pg_temp', 'enable_hashagg=on']
                || CASE WHEN NOT scoped THEN ARRAY['enable_seqscan=on'] END;
    body := format(E'%s\n%s\nBEGIN\nRETURN QUERY\n%s;\nEND', beginning,
                   (SELECT string_agg(format('    %s constant %s := %s;', v.name, v.type, v.value), E'\n' ORDER BY v.number)
                      FROM simsql._search_variables(index, 'scan') AS v),
                   simsql._search_statement(index, 'scan'));
    RETURN NEXT;
    name := 'search_' || index.id;
    settings := ARRAY['search_path=pg_catalog, pg_temp', 'plan_cache_mode=force_generic_plan', 'jit=off',
                      'enable_seqscan=off', 'enable_bitmapscan=off', 'enable_hashagg=off', 'enable_hashjoin=off',
                      'enable_mergejoin=off', 'enable_material=off', 'max_parallel_workers_per_gather=0'];
    body := format(E'%9$s\n%1$s\n%2$s\n%11$sBEGIN\n%12$s'
                   'IF NOT coalesce(%3$s, false) THEN\nRETURN QUERY SELECT * FROM simsql.%4$I($1, $2%10$s);\n'
                   'ELSIF $2 <= %5$s THEN\nRETURN QUERY\n%6$s;\n'
                   'ELSE\n%7$s\nRETURN QUERY\n%8$s;\nEND IF;\nEND',
                   declared, flips,
                   CASE WHEN scoped THEN 'probing' ELSE pays END,
                   'scan_' || index.id,
                   simsql._exact_up_to(index),
                   simsql._search_statement(index, 'exact'),
                   assigned,
                   simsql._search_statement(index, 'probes'),
                   beginning,
                   CASE WHEN scoped THEN ', $3' END,
                   CASE WHEN scoped THEN E'    probing boolean := true;\n' END,
                   -- A question to a table takes longer than one to variables.
                   CASE WHEN scoped THEN format(E'IF $2 > %s THEN\n    probing := %s;\nEND IF;\n',
                                                simsql._probed_up_to(index), pays) END);
    RETURN NEXT;
END
$$;

-- The greatest distance for which no prefix is flipped.
CREATE FUNCTION simsql._exact_up_to(index simsql.registry) RETURNS integer
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$
    SELECT max(d) FROM generate_series(0, 64) AS d
     WHERE simsql._radius(index.blocks, index.lead, index.inner_blocks, 0, d) <= 0
$$;

-- The greatest distance for which probing pays from at most a thousand rows on.
CREATE FUNCTION simsql._probed_up_to(index simsql.registry) RETURNS integer
LANGUAGE sql STABLE
AS $$
    SELECT min(d) - 1
      FROM simsql._scan_below(index.blocks, index.lead, index.inner_blocks) AS scan_below
     CROSS JOIN generate_series(0, 64) AS d
     WHERE coalesce(scan_below[d + 1] > 1000, true)
$$;

-- The condition under which probing for the distance $2 is expected to be cheaper than a scan. Where it is so from a
-- thousand rows on, the size is not asked for. A key takes 36 bytes of its table. What a scope takes, only counting
-- tells: it stops where probing begins to pay, so it costs less than the scan that it saves, and nothing that is
-- taken for larger or smaller than it is, by old statistics or uneven keys, is ever read in vain.
CREATE FUNCTION simsql._probing_pays(index simsql.registry, in_scope text) RETURNS text
LANGUAGE sql STABLE
AS $$
    SELECT format(CASE WHEN cardinality(index.scope_columns) = 0
                       THEN '($2 <= %s OR pg_relation_size(%L) / 36 >= (%L::bigint[])[$2 + 1])'
                       ELSE '($2 <= %1$s OR (%3$L::bigint[])[$2 + 1] IS NOT NULL AND '
                            'EXISTS (SELECT FROM %2$s AS k WHERE true%4$s OFFSET (%3$L::bigint[])[$2 + 1] - 1))' END,
                  simsql._probed_up_to(index),
                  format('simsql.keys_%s_0', index.id), scan_below, in_scope)
      FROM simsql._scan_below(index.blocks, index.lead, index.inner_blocks) AS scan_below
$$;
