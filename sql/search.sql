-- The functions that create_index generates for the searches of an index.

-- The statement of a search in an index. $2 is the distance. The fingerprint permuted for each table, the flips of its prefix
-- and the scope are in the variables that _search_variables lists, or under the names in `variables`. The generated search
-- function and explain_near both run exactly this statement.
-- With key tables, it reads:
--   exact   one range per permutation: the prefix has to be equal
--   probes  one range per permutation and flip of its prefix
--   skip    the same ranges, in pieces, without the copies of equal keys
--   scan    all keys of the first permutation, or those of the scope
-- A scan returns matches. The others return candidates for _check_statement: fingerprints of keys. A key may be stored many
-- times, so exact and probes stop after _candidates() of them, and skip starts over. They also count keys as candidates that
-- are a few bits farther away than a match, so that this also happens for a key with many copies that is just outside the
-- distance.
CREATE OR REPLACE FUNCTION simsql._search_statement(index simsql.registry, strategy text, variables text[] DEFAULT NULL)
RETURNS text
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    names constant text[] := coalesce(
        variables, ARRAY(SELECT v.name FROM simsql._search_variables(index, strategy) AS v ORDER BY v.number));
    tables constant integer := simsql._table_count(index.blocks, index.lead, index.inner_blocks);
    in_scope text;
    branches text;
BEGIN
    -- The names of the scope come last.
    SELECT coalesce(string_agg(format('k.%I = %s AND ', s.name, names[cardinality(names) - cardinality(index.scope_columns) + s.number]),
                               '' ORDER BY s.number), '')
      INTO in_scope
      FROM simsql._scope_columns(index) AS s;
    IF index.storage = 'expression' THEN
        RETURN simsql._match_statement(index, strategy, names);
    END IF;
    IF strategy = 'scan' THEN
        -- The keys of the first permutation are the fingerprints themselves.
        RETURN simsql._check_statement(
            index, format('(SELECT k.key FROM simsql.keys_%s_0 AS k WHERE %strue)', index.id, in_scope), names);
    END IF;
    SELECT string_agg(
               format(CASE strategy
                      WHEN 'exact' THEN
                          'SELECT %1$s AS fingerprint FROM simsql.%2$I AS k '
                          'WHERE %3$sk.key >= %4$s & %5$L::bigint AND k.key <= %4$s | %6$L::bigint '
                          'AND bit_count((k.key # %4$s)::bit(64)) <= %8$s'
                      WHEN 'probes' THEN
                          'SELECT %1$s AS fingerprint FROM %7$s AS p '
                          'CROSS JOIN LATERAL (SELECT k.key FROM simsql.%2$I AS k WHERE %3$sk.key >= p.low AND k.key <= p.high '
                          'AND bit_count((k.key # %4$s)::bit(64)) <= %8$s OFFSET 0) AS k'
                      WHEN 'skip' THEN
                          'SELECT %1$s AS fingerprint FROM (WITH RECURSIVE piece AS ('
                          'SELECT p.high, ARRAY(SELECT k.key FROM simsql.%2$I AS k WHERE %3$sk.key >= p.low AND k.key <= p.high '
                          'ORDER BY k.key LIMIT 100) AS keys FROM %7$s AS p '
                          'UNION ALL '
                          'SELECT p.high, ARRAY(SELECT k.key FROM simsql.%2$I AS k WHERE %3$sk.key > p.last AND k.key <= p.high '
                          'ORDER BY k.key LIMIT 100) '
                          'FROM (SELECT q.high, q.keys[100] AS last FROM piece AS q WHERE cardinality(q.keys) = 100 OFFSET 0) AS p) '
                          'SELECT u.key FROM piece CROSS JOIN LATERAL unnest(piece.keys) AS u (key)) AS k '
                          'WHERE bit_count((k.key # %4$s)::bit(64)) <= $2' END,
                      simsql._unpermute('k.key', p.lead_mask), format('keys_%s_%s', index.id, p.number), in_scope, center,
                      outside, inside,
                      -- OFFSET 0, here and in probes, keeps the bounds bare columns. Comparisons with bare columns are index
                      -- conditions even under row-level security; operators such as & are not, because they are not leakproof.
                      -- It also keeps the planner from joining all ranges with all keys of a scope, which it estimates to be
                      -- few until they are analyzed, and from moving the condition elsewhere.
                      format('(SELECT (%1$s # (f << %2$s)) & %3$L::bigint AS low, (%1$s # (f << %2$s)) | %4$L::bigint AS high '
                             'FROM unnest(%5$s) AS f OFFSET 0)',
                             center, 64 - p.prefix, outside, inside, names[tables + p.number + 1]),
                      names[cardinality(names) - cardinality(index.scope_columns)]),
               E'\n UNION ALL ' ORDER BY p.number)
      INTO branches
      FROM simsql._permutations(index.blocks, index.lead, index.inner_blocks) AS p
     CROSS JOIN LATERAL (
           SELECT names[p.number + 1] AS center,
                  -1::bigint << (64 - p.prefix) AS outside,
                  ~(-1::bigint << (64 - p.prefix)) AS inside) AS expression;
    IF strategy <> 'skip' THEN
        -- The last branch reads nothing. It makes a search without candidates fail for a role that cannot read the columns.
        branches := format(E'SELECT c.fingerprint FROM (\n %s\n UNION ALL SELECT t.%I FROM ONLY %s AS t TABLESAMPLE system (0) WHERE false%s\n) AS c LIMIT %s',
                           branches, index.column_name, index.table_name, simsql._for_scope(index, ' AND t.%2$I IS NULL'),
                           simsql._candidates());
    END IF;
    RETURN branches;
END
$$;

-- The same for the storage `expression`: exact and probes read the B-tree of each permutation, and scan reads all rows. Every
-- strategy returns matches, since what it reads are rows. On a table that Citus manages, it is a single SELECT, which Citus sends
-- to the shards as it is: a UNION would be computed from intermediate results.
CREATE OR REPLACE FUNCTION simsql._match_statement(index simsql.registry, strategy text, names text[]) RETURNS text
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    tables constant integer := simsql._table_count(index.blocks, index.lead, index.inner_blocks);
    -- The names of the scope come last.
    in_scope constant text := (
        SELECT coalesce(string_agg(format('t.%I = %s AND ', s.column_name,
                                          names[cardinality(names) - cardinality(index.scope_columns) + s.number]),
                                   '' ORDER BY s.number), '')
          FROM simsql._scope_columns(index) AS s);
    branch constant text := format('SELECT t.%1$I AS fingerprint FROM %2$s AS t WHERE %3$s%%sbit_count((t.%1$I # $1)::bit(64)) <= $2',
                                   replace(index.column_name, '%', '%%'), replace(simsql._rows_of(index), '%', '%%'),
                                   replace(in_scope, '%', '%%'));
    branches text;
BEGIN
    IF simsql._is_distributed(index.table_id) THEN
        SELECT string_agg(format('(t.%I & %L::bigint) = %s', index.column_name, p.lead_mask,
                                 CASE strategy WHEN 'exact' THEN names[p.number + 1]
                                 ELSE format('ANY (%s)', names[tables + p.number + 1]) END), ' OR ' ORDER BY p.number)
          INTO branches
          FROM simsql._permutations(index.blocks, index.lead, index.inner_blocks) AS p
         WHERE strategy <> 'scan';
        RETURN format(E'SELECT DISTINCT t.%1$I AS fingerprint, bit_count((t.%1$I # $1)::bit(64))::integer AS distance\n'
                      '  FROM %2$s AS t\n'
                      ' WHERE %3$sbit_count((t.%1$I # $1)::bit(64)) <= $2%4$s AND %5$s\n'
                      ' ORDER BY distance, fingerprint',
                      index.column_name, simsql._rows_of(index), in_scope, E'\n       AND (' || branches || ')', simsql._guard(index));
    END IF;
    IF strategy = 'scan' THEN
        branches := format(branch, '');
    ELSE
        SELECT string_agg(format(branch, format('(t.%I & %L::bigint) = %s AND ', index.column_name, p.lead_mask,
                                                CASE strategy WHEN 'exact' THEN names[p.number + 1]
                                                ELSE format('ANY (ARRAY(SELECT %s # f FROM unnest(%s) AS f))', names[p.number + 1],
                                                            names[tables + p.number + 1]) END)),
                          E'\n UNION ALL ' ORDER BY p.number)
          INTO branches
          FROM simsql._permutations(index.blocks, index.lead, index.inner_blocks) AS p;
    END IF;
    RETURN format(E'SELECT m.fingerprint, m.distance\n'
                  '  FROM (SELECT DISTINCT bit_count((c.fingerprint # $1)::bit(64))::integer AS distance, c.fingerprint\n'
                  '          FROM (%s) AS c) AS m\n'
                  ' WHERE %s\n'
                  ' ORDER BY m.distance, m.fingerprint', branches, simsql._guard(index));
END
$$;

-- After this many candidates a search starts over and skips equal keys, which takes twice as long if all keys are different.
-- Most searches have fewer candidates, and these are read in less than a millisecond.
CREATE OR REPLACE FUNCTION simsql._candidates() RETURNS integer
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN 2000;

-- The statement that selects the matches of the fingerprint $1 within the distance $2 from a table expression of candidates.
-- Keys may be stored twice and may outlive their rows. So it keeps one of each, if a live row has it. `scope` names the
-- variables of the scope. LIMIT makes the planner look up each candidate once, whatever it estimates.
CREATE OR REPLACE FUNCTION simsql._check_statement(index simsql.registry, candidates text, scope text[]) RETURNS text
LANGUAGE sql STABLE
AS $$
    SELECT format(
        E'SELECT m.fingerprint, m.distance\n'
        '  FROM (SELECT DISTINCT bit_count((c.fingerprint # $1)::bit(64))::integer AS distance, c.fingerprint\n'
        '          FROM %s AS c (fingerprint)\n'
        '         WHERE bit_count((c.fingerprint # $1)::bit(64)) <= $2) AS m\n'
        ' CROSS JOIN LATERAL (SELECT FROM ONLY %s AS t WHERE t.%I = m.fingerprint%s LIMIT 1) AS live\n'
        ' WHERE %s\n'
        ' ORDER BY m.distance, m.fingerprint',
        candidates, index.table_name, index.column_name,
        (SELECT string_agg(format(' AND t.%I = %s', s.column_name, scope[s.number]), '' ORDER BY s.number)
           FROM simsql._scope_columns(index) AS s), simsql._guard(index))
$$;

-- The expression of simsql._radius for the distance $2, with the design as constants.
CREATE OR REPLACE FUNCTION simsql._radius_of_parameter(blocks integer, lead integer, inner_blocks integer, number integer) RETURNS text
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$
    SELECT CASE WHEN inner_blocks > 0 THEN format('(%1$s + ($2 - %1$s) / %2$s)', outer_radius, inner_blocks)
                WHEN lead > 1 THEN outer_radius
                -- This rounds down, also below 0.
                ELSE format('(($2 - %s) / %s - 1)', number - blocks, blocks)
           END
      FROM format('(%1$s * ($2 / %2$s) + greatest(0, %1$s - (%2$s - $2 %% %2$s)))', lead, blocks)
           AS f (outer_radius)
$$;

-- All ways to flip up to `radius` lead bits, where they stand in the fingerprint.
CREATE OR REPLACE FUNCTION simsql._lead_flips(lead_mask bigint, prefix integer, radius integer) RETURNS bigint[]
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
AS $$
DECLARE
    flips bigint[];
BEGIN
    EXECUTE format('SELECT ARRAY(SELECT %s FROM unnest($1) AS f)', simsql._unpermute(format('(f << %s)', 64 - prefix), lead_mask))
       INTO flips USING simsql._flips(prefix, radius);
    RETURN flips;
END
$$;

-- Some bits, flipped in each of these ways.
CREATE OR REPLACE FUNCTION simsql._flipped(bits bigint, flips bigint[]) RETURNS bigint[]
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN ARRAY(SELECT bits # f FROM unnest(flips) AS f);

-- The flips in the form in which a search needs them.
CREATE OR REPLACE FUNCTION simsql._stored_flips(index simsql.registry, lead_mask bigint, prefix integer, radius integer)
RETURNS bigint[]
LANGUAGE sql STABLE
AS $$
    SELECT CASE index.storage WHEN 'tables' THEN simsql._flips(prefix, radius) ELSE simsql._lead_flips(lead_mask, prefix, radius) END
$$;

-- The variables of a search: keys first, then flips, the reach and the scope. Each has a name, a type, and the expression of
-- its value for the fingerprint $1, the distance $2 and the scope $3. If a table need not be read at this distance, its key is
-- null, so none of its ranges are looked up. Without key tables, a key is the lead bits of the fingerprint, flips are of these
-- bits, and there is no reach. If Citus manages the table, flips are the flipped lead bits themselves.
CREATE OR REPLACE FUNCTION simsql._search_variables(index simsql.registry, strategy text)
RETURNS TABLE (number integer, name text, type text, value text)
LANGUAGE sql STABLE
AS $$
    -- `flipped` is a pattern: an array of flips becomes the values that a search compares with.
    WITH form AS MATERIALIZED (
        SELECT CASE WHEN simsql._is_distributed(index.table_id)
                    THEN 'simsql._flipped($1 & %2$L::bigint, %1$s)' ELSE '%1$s' END AS flipped)
    SELECT p.number, 'key_' || p.number, 'bigint',
           CASE WHEN simsql._radius(index.blocks, index.lead, index.inner_blocks, p.number, 0) < 0
                THEN format('CASE WHEN %s >= 0 THEN %s END', radius.text, permuted.text)
                ELSE permuted.text END
      FROM simsql._permutations(index.blocks, index.lead, index.inner_blocks) AS p
     CROSS JOIN LATERAL simsql._radius_of_parameter(index.blocks, index.lead, index.inner_blocks, p.number) AS radius (text)
     CROSS JOIN LATERAL CAST(CASE index.storage WHEN 'tables' THEN simsql._permute('$1', p.lead_mask)
                                  ELSE format('($1 & %L::bigint)', p.lead_mask) END AS text) AS permuted (text)
     WHERE strategy <> 'scan'
    UNION ALL
    -- A few flips are constants: a search at radius 1 takes about as long as computing them would.
    SELECT p.number + simsql._table_count(index.blocks, index.lead, index.inner_blocks)::integer,
           'flips_' || p.number, 'bigint[]',
           format(form.flipped,
                  format('CASE %1$s WHEN 0 THEN ''{0}'' WHEN 1 THEN %2$L::bigint[]%3$s ELSE %4$s END',
                         radius.text, simsql._stored_flips(index, p.lead_mask, p.prefix, 1),
                         CASE WHEN simsql._ways(p.prefix, 2) <= 600
                              THEN format(' WHEN 2 THEN %L::bigint[]', simsql._stored_flips(index, p.lead_mask, p.prefix, 2)) END,
                         format(CASE index.storage WHEN 'tables' THEN 'simsql._flips(%2$s, %3$s)'
                                ELSE 'simsql._lead_flips(%1$L, %2$s, %3$s)' END, p.lead_mask, p.prefix, radius.text)),
                  p.lead_mask)
      FROM form
     CROSS JOIN simsql._permutations(index.blocks, index.lead, index.inner_blocks) AS p
     CROSS JOIN LATERAL simsql._radius_of_parameter(index.blocks, index.lead, index.inner_blocks, p.number) AS radius (text)
     WHERE strategy IN ('probes', 'skip')
    UNION ALL
    -- The distance up to which a key is a candidate.
    SELECT CASE strategy WHEN 'exact' THEN t.tables ELSE 2 * t.tables END, 'reach', 'integer', 'greatest($2 + 4, 12)'
      FROM CAST(simsql._table_count(index.blocks, index.lead, index.inner_blocks) AS integer) AS t (tables)
     WHERE strategy <> 'scan' AND index.storage = 'tables'
    UNION ALL
    SELECT CASE WHEN strategy = 'scan' THEN 0 ELSE (index.storage = 'tables')::integer
                     + CASE strategy WHEN 'exact' THEN t.tables ELSE 2 * t.tables END END + s.number - 1,
           s.name, s.type, format('($3 ->> %L)::%s', s.column_name, s.type)
      FROM simsql._scope_columns(index) AS s
     CROSS JOIN LATERAL CAST(simsql._table_count(index.blocks, index.lead, index.inner_blocks) AS integer) AS t (tables)
$$;

-- Two generated functions per index, with the design and the names as constants. They run with the caller's privileges: the
-- policy of the key tables and the privileges on the user's table decide who may search. Values to compare with are computed
-- once, in variables; within the statement, each occurrence would be compiled at every call. Candidates are collected first:
-- most searches have none, and then no row has to be looked up.
-- A generic plan cannot know how narrow a range is. With the settings below it is a nested loop of index scans, whatever the
-- estimates, and it is planned once per session. A scan runs within the search function, under its settings except for those
-- that it resets; a hash join would read the user's whole table for the few matching rows. Within a scope, the scan is an
-- index-only scan like the others: a sequential scan would read the keys of all scopes.
CREATE OR REPLACE FUNCTION simsql._search_functions(index simsql.registry)
RETURNS TABLE (name text, arguments text, head text, settings text[], body text)
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    scoped constant boolean := cardinality(index.scope_columns) > 0;
    -- A variable of the scope has the same name as the key column that it is compared with.
    beginning constant text := CASE WHEN scoped OR index.storage = 'expression' THEN E'#variable_conflict use_variable\n'
                                    ELSE '' END || 'DECLARE';
    scan record;
    exact record;
    probes record;
    scan_below constant bigint[] := simsql._scan_below(index.blocks, index.lead, index.inner_blocks, index.candidate_shares);
    pays constant text := simsql._probing_pays(
        index, scan_below, simsql._for_scope(index, CASE index.storage WHEN 'tables' THEN ' AND k.%1$s = %1$s' ELSE ' AND t.%2$I = %1$s' END));
BEGIN
    SELECT coalesce(array_agg(v.name ORDER BY v.number), '{}') AS names,
           string_agg(format('    %s constant %s := %s;', v.name, v.type, v.value), E'\n' ORDER BY v.number) AS declared
      INTO scan
      FROM simsql._search_variables(index, 'scan') AS v;
    SELECT array_agg(v.name ORDER BY v.number) AS names,
           string_agg(format('    %s constant %s := %s;', v.name, v.type, v.value), E'\n' ORDER BY v.number) AS declared
      INTO exact
      FROM simsql._search_variables(index, 'exact') AS v;
    -- Skip has the same variables.
    SELECT array_agg(v.name ORDER BY v.number) AS names,
           string_agg(format('    %s %s;', v.name, v.type), E'\n' ORDER BY v.number) FILTER (WHERE v.type = 'bigint[]') AS declared,
           string_agg(format('    %s := %s;', v.name, v.value), E'\n' ORDER BY v.number) FILTER (WHERE v.type = 'bigint[]') AS assigned
      INTO probes
      FROM simsql._search_variables(index, 'probes') AS v;
    arguments := CASE WHEN scoped THEN '(bigint, integer, jsonb)' ELSE '(bigint, integer)' END;
    head := 'RETURNS SETOF simsql.match LANGUAGE plpgsql STABLE ROWS 10';
    name := 'scan_' || index.id;
    settings := ARRAY['search_path=pg_catalog, pg_temp', 'enable_hashagg=on']
                || CASE WHEN NOT scoped THEN ARRAY['enable_seqscan=on'] END;
    body := format(E'%s\n%s\nBEGIN\nRETURN QUERY\n%s;\nEND', beginning, scan.declared,
                   simsql._search_statement(index, 'scan', scan.names));
    RETURN NEXT;
    name := 'search_' || index.id;
    settings := ARRAY['search_path=pg_catalog, pg_temp', 'plan_cache_mode=force_generic_plan', 'jit=off',
                      'enable_seqscan=off', 'enable_bitmapscan=off', 'enable_hashagg=off', 'enable_hashjoin=off',
                      'enable_mergejoin=off', 'enable_material=off', 'max_parallel_workers_per_gather=0'];
    IF index.storage = 'expression' THEN
        -- The planners of the shards choose; settings of this function do not reach them. By default, Citus opens another
        -- connection to a worker after 10 ms, which takes longer than most searches and slows down all others.
        IF simsql._is_distributed(index.table_id) THEN
            settings := ARRAY['search_path=pg_catalog, pg_temp', 'plan_cache_mode=force_custom_plan',
                              'citus.executor_slow_start_interval=1000'];
        END IF;
        body := format(E'%1$s\n%2$s\n%3$s\n    probing boolean := true;\nBEGIN\n'
                       'IF $2 > %4$s THEN\n    probing := %5$s;\nEND IF;\n'
                       'IF NOT coalesce(probing, false) THEN\nRETURN QUERY SELECT * FROM simsql.%6$I($1, $2%7$s);\n'
                       'ELSIF $2 <= %8$s THEN\nRETURN QUERY\n%9$s;\n'
                       'ELSE\n%10$s\nRETURN QUERY\n%11$s;\nEND IF;\nEND',
                       beginning, exact.declared, probes.declared, simsql._probed_up_to(scan_below), pays, 'scan_' || index.id,
                       CASE WHEN scoped THEN ', $3' END, simsql._exact_up_to(index), simsql._search_statement(index, 'exact', exact.names),
                       probes.assigned, simsql._search_statement(index, 'probes', probes.names));
        RETURN NEXT;
        RETURN;
    END IF;
    body := format(E'%1$s\n%2$s\n%3$s\n    candidates bigint[];\n%4$sBEGIN\n%5$s'
                   'IF NOT coalesce(%6$s, false) THEN\nRETURN QUERY SELECT * FROM simsql.%7$I($1, $2%8$s);\nRETURN;\nEND IF;\n'
                   'IF $2 <= %9$s THEN\ncandidates := ARRAY(%10$s);\nEND IF;\n'
                   'IF $2 > %9$s OR cardinality(candidates) = %11$s THEN\n%12$s\n'
                   'IF $2 > %9$s THEN\ncandidates := ARRAY(%13$s);\nEND IF;\n'
                   'IF cardinality(candidates) = %11$s THEN\ncandidates := ARRAY(%14$s);\nEND IF;\nEND IF;\n'
                   'IF cardinality(candidates) > 0 THEN\nRETURN QUERY\n%15$s;\nEND IF;\nEND',
                   beginning, exact.declared, probes.declared,
                   CASE WHEN scoped THEN E'    probing boolean := true;\n' END,
                   -- Reading a table takes longer than comparing variables.
                   CASE WHEN scoped THEN format(E'IF $2 > %s THEN\n    probing := %s;\nEND IF;\n',
                                                simsql._probed_up_to(scan_below), pays) END,
                   CASE WHEN scoped THEN 'probing' ELSE pays END,
                   'scan_' || index.id,
                   CASE WHEN scoped THEN ', $3' END,
                   simsql._exact_up_to(index),
                   simsql._search_statement(index, 'exact', exact.names),
                   simsql._candidates(),
                   probes.assigned,
                   simsql._search_statement(index, 'probes', probes.names),
                   simsql._search_statement(index, 'skip', probes.names),
                   simsql._check_statement(
                       index, 'unnest(candidates)', ARRAY(SELECT c.name FROM simsql._scope_columns(index) AS c ORDER BY c.number)));
    RETURN NEXT;
END
$$;

-- The greatest distance at which no prefix is flipped.
CREATE OR REPLACE FUNCTION simsql._exact_up_to(index simsql.registry) RETURNS integer
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$
    SELECT max(d) FROM generate_series(0, 64) AS d
     WHERE simsql._radius(index.blocks, index.lead, index.inner_blocks, 0, d) <= 0
$$;

-- The greatest distance at which probing pays from at most a thousand rows on, of the result of _scan_below.
CREATE OR REPLACE FUNCTION simsql._probed_up_to(scan_below bigint[]) RETURNS integer
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$ SELECT min(d) - 1 FROM generate_series(0, 64) AS d WHERE coalesce(scan_below[d + 1] > 1000, true) $$;

-- The condition under which probing at the distance $2 is expected to be cheaper than a scan. If that is so from a thousand
-- rows on, it does not check the size. For a whole table, the size tells the number of keys: a key takes 36 bytes. For a scope,
-- and for the rows of a table that may be partitioned, only counting tells. It stops where probing begins to pay, so it costs
-- less than the scan that it saves, and neither old statistics nor uneven keys can mislead it. For a table that Citus manages,
-- counting would take another round trip to the shards, so it counts as a million rows.
CREATE OR REPLACE FUNCTION simsql._probing_pays(index simsql.registry, scan_below bigint[], in_scope text) RETURNS text
LANGUAGE sql STABLE
AS $$
    SELECT format(CASE WHEN simsql._is_distributed(index.table_id) THEN '(coalesce((%3$L::bigint[])[$2 + 1] <= 1000000, false))'
                       WHEN index.storage = 'expression'
                       THEN '($2 <= %1$s OR (%3$L::bigint[])[$2 + 1] IS NOT NULL AND EXISTS (SELECT FROM %5$s AS t '
                            'WHERE t.%6$I IS NOT NULL%4$s AND %7$s OFFSET (%3$L::bigint[])[$2 + 1] - 1))'
                       WHEN cardinality(index.scope_columns) = 0
                       THEN '($2 <= %s OR pg_relation_size(%L) / 36 >= (%L::bigint[])[$2 + 1])'
                       ELSE '($2 <= %1$s OR (%3$L::bigint[])[$2 + 1] IS NOT NULL AND '
                            'EXISTS (SELECT FROM %2$s AS k WHERE true%4$s OFFSET (%3$L::bigint[])[$2 + 1] - 1))' END,
                  simsql._probed_up_to(scan_below),
                  format('simsql.keys_%s_0', index.id), scan_below, in_scope, simsql._rows_of(index), index.column_name,
                  simsql._guard(index))
$$;
