-- Searching: near, near_rows, explain_near, and the functions that create_index generates for them.

-- Raises unless the columns of an index, fingerprints and then the scope, still have the names that the index's functions
-- use: columns swapped by rename would be taken for one another in silence. The index's trigger knows its columns
-- by number, as the catalogue and pg_dump carry it along; the names are those of this moment, whatever
-- the snapshot.
CREATE FUNCTION simsql._check_columns(table_id regclass, index_id integer, column_names text[], writes boolean)
RETURNS void
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    found_names text[] := (
        SELECT ARRAY(SELECT (pg_identify_object_as_address('pg_class'::regclass, $1, n)).object_names[3]
                       FROM unnest(t.tgattr) AS n)
          FROM pg_trigger AS t
         WHERE t.tgrelid = $1 AND t.tgname = 'simsql_' || $2 || '_column');
    is_known constant boolean := found_names IS NOT NULL;
    wanted text;
    found_name text;
BEGIN
    IF NOT is_known THEN
        -- A column was dropped. Or the snapshot may be older than the index, which is no error for a writer.
        found_names := ARRAY(SELECT a.attname::text
                               FROM unnest($3) WITH ORDINALITY AS n (name, number)
                               LEFT JOIN pg_attribute AS a
                                 ON a.attrelid = $1 AND a.attname = n.name AND NOT a.attisdropped
                              ORDER BY n.number);
    END IF;
    IF found_names IS DISTINCT FROM $3 OR NOT (is_known OR writes) THEN
        SELECT n.wanted, n.found INTO wanted, found_name
          FROM unnest($3, found_names) AS n (wanted, found) WHERE n.wanted IS DISTINCT FROM n.found LIMIT 1;
        RAISE EXCEPTION 'simsql: column % of % was renamed or dropped after its simhash index was created',
                        quote_ident(coalesce(wanted, $3[1])), $1
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = CASE WHEN found_name IS NULL
                         THEN format('If it was dropped: SELECT simsql.drop_index(%L, %L);', $1, $3[1])
                         ELSE format('Rename it back, or let the index follow the column: '
                                     'SELECT * FROM simsql.repair(%L);', $1) END;
    END IF;
END
$$;

-- Raises unless an index fits its table, and the table has been written under its triggers ever since.
CREATE FUNCTION simsql._check_sound(index simsql.registry) RETURNS void
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    keys constant regclass := to_regclass(format('simsql.keys_%s_0', index.id));
BEGIN
    IF to_regclass(index.table_name) IS DISTINCT FROM index.table_id THEN
        RAISE EXCEPTION 'simsql: table % was called % when its simhash index was created', index.table_id, index.table_name
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = format('Rename it back, or let the index follow the table: SELECT * FROM simsql.repair(%L);',
                                index.table_id);
    END IF;
    PERFORM simsql._check_columns(index.table_id, index.id, index.column_name || index.scope_columns, writes => false);
    -- DISABLE TRIGGER ALL silences even triggers that are ENABLE ALWAYS, and ENABLE TRIGGER ALL, which
    -- follows it in a restore, leaves them otherwise than they were: so this tells what had happened.
    IF (SELECT count(*) FROM pg_trigger AS t
         WHERE t.tgrelid = index.table_id AND t.tgenabled = 'A'
           AND t.tgname IN ('simsql_' || index.id || '_insert', 'simsql_' || index.id || '_update')) < 2
    THEN
        RAISE EXCEPTION 'simsql: triggers of the simhash index on %(%) have been disabled or dropped', index.table_id,
                        quote_ident(index.column_name)
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = format('Rows written meanwhile are not in it: SELECT * FROM simsql.repair(%L);', index.table_id);
    END IF;
    IF keys IS NULL THEN
        RAISE EXCEPTION 'simsql: the simhash index on %(%) was dropped after this transaction took its snapshot',
                        index.table_id, quote_ident(index.column_name)
            USING ERRCODE = 'undefined_object', HINT = 'Begin a new transaction.';
    END IF;
    -- ALTER TABLE SET LOGGED leaves the keys unlogged: a crash would empty them, and keep the rows.
    IF (SELECT c.relpersistence FROM pg_class AS c WHERE c.oid = keys) = 'u'
       AND (SELECT c.relpersistence FROM pg_class AS c WHERE c.oid = index.table_id) <> 'u'
    THEN
        RAISE EXCEPTION 'simsql: table % was set logged after its simhash index was created', index.table_id
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = format('Let its keys be logged too: SELECT * FROM simsql.repair(%L);', index.table_id);
    END IF;
    -- Writes that go through a parent table fire the parent's triggers only.
    IF EXISTS (SELECT FROM pg_inherits WHERE inhrelid = index.table_id)
       OR EXISTS (SELECT FROM pg_inherits WHERE inhparent = index.table_id)
    THEN
        RAISE EXCEPTION 'simsql: table % takes part in inheritance or partitioning since its index was created',
                        index.table_id
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = format('Rows written through another table are not indexed: detach the table, then '
                                'SELECT * FROM simsql.repair(%L);', index.table_id);
    END IF;
END
$$;

-- The index of a column, as the caller's snapshot sees it, or an error that says what is wrong with it.
CREATE FUNCTION simsql._index(table_name regclass, column_name text) RETURNS simsql.registry
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    found_index simsql.registry;
    columns text[];
BEGIN
    BEGIN
        SELECT r.* INTO STRICT found_index
          FROM simsql.registry AS r
         WHERE r.table_id = $1 AND ($2 IS NULL OR r.column_name = $2);
    EXCEPTION
        WHEN no_data_found THEN
            RAISE EXCEPTION 'simsql: % has no simhash index%', $1,
                            coalesce(' on column ' || quote_ident($2), '')
                USING ERRCODE = 'undefined_object',
                      HINT = format('Create it with SELECT simsql.create_index(%L, %L). An index that was '
                                    'created after this transaction took its snapshot is not visible to it.',
                                    $1, coalesce($2, 'fingerprint'));
        WHEN too_many_rows THEN
            columns := ARRAY(SELECT r.column_name FROM simsql.registry AS r WHERE r.table_id = $1 ORDER BY r.id);
            RAISE EXCEPTION 'simsql: % has % simhash indexes', $1, cardinality(columns)
                USING ERRCODE = 'ambiguous_column',
                      HINT = format('Name the column: column_name => one of %s.', array_to_string(columns, ', '));
    END;
    PERFORM simsql._check_sound(found_index);
    IF NOT found_index.ready THEN
        RAISE EXCEPTION 'simsql: the simhash index on %(%) is still being built', $1, quote_ident(found_index.column_name)
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = format('Wait until its build has finished. If it was interrupted: %s', simsql._build_call(found_index));
    END IF;
    RETURN found_index;
END
$$;

-- The index of a column for a search within a scope, or an error that says what is wrong with either.
CREATE FUNCTION simsql._searched_index(table_name regclass, column_name text, scope jsonb) RETURNS simsql.registry
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    index constant simsql.registry := simsql._index($1, $2);
BEGIN
    PERFORM simsql._check_scope($1, index.column_name, index.scope_columns, $3);
    RETURN index;
END
$$;

-- How to go on with a build.
CREATE FUNCTION simsql._build_call(index simsql.registry) RETURNS text
LANGUAGE sql STABLE STRICT
AS $$
    SELECT format('CALL simsql.build(%L, %L, %s, %s, %s, %s, %L%s);', index.table_id, index.column_name, index.distance,
                  index.blocks, index.lead, index.inner_blocks, index.recipe,
                  CASE WHEN cardinality(index.scope_columns) > 0 THEN format(', %L', index.scope_columns) END)
$$;

-- The distance of a search: the one asked for, or the index's own.
CREATE FUNCTION simsql._distance(asked integer, of_index integer) RETURNS integer
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
AS $$
BEGIN
    IF asked < 0 OR asked > 64 THEN
        RAISE EXCEPTION 'simsql: a distance is a number of bits from 0 to 64, not %', asked
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    RETURN coalesce(asked, of_index);
END
$$;

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

-- Everything that _index checks is looked at here in a fifth of the time; where it is not as it should be,
-- _index says what is wrong. (Publishable is a table that is logged.)
CREATE FUNCTION simsql.near(
    table_name regclass, fingerprint bigint, distance integer DEFAULT NULL, column_name text DEFAULT NULL,
    scope jsonb DEFAULT NULL)
RETURNS SETOF simsql.match
LANGUAGE plpgsql STABLE ROWS 10
AS $$
DECLARE
    index_id integer;
    of_index integer;
    indexed_table text;
    indexed_column text;
    scope_columns text[];
    is_ready boolean;
    trigger_names text[];
    triggers integer;
    attribute integer;
    attributes int2vector;
    has_children boolean;
    keys regclass;
    in_order boolean;
BEGIN
    BEGIN
        SELECT r.id, r.distance, r.table_name, r.column_name, r.scope_columns, r.ready
          INTO STRICT index_id, of_index, indexed_table, indexed_column, scope_columns, is_ready
          FROM simsql.registry AS r
         WHERE r.table_id = $1 AND ($4 IS NULL OR r.column_name = $4);
    EXCEPTION
        WHEN no_data_found OR too_many_rows THEN PERFORM simsql._index($1, $4);
    END;
    trigger_names := ARRAY['simsql_' || index_id || '_insert', 'simsql_' || index_id || '_update',
                           'simsql_' || index_id || '_column', 'simsql_' || index_id || '_no_parent'];
    -- Those with a condition never run, enabled or not (see _triggers). Compared as text, the names are no condition for
    -- the catalogue's index: four descents of it take longer than a look at all triggers of the table.
    SELECT count(*) FILTER (WHERE t.tgenabled = 'A' OR t.tgqual IS NOT NULL), min(t.tgattr[0])
      INTO triggers, attribute
      FROM pg_trigger AS t
     WHERE t.tgrelid = $1 AND t.tgname::text = ANY (trigger_names);
    SELECT c.relhassubclass INTO has_children FROM pg_class AS c WHERE c.oid = $1;
    keys := to_regclass('simsql.keys_' || index_id || '_0');
    IF (is_ready AND triggers = 4 AND NOT has_children AND keys IS NOT NULL
        AND to_regclass(indexed_table) = $1
        AND (pg_identify_object_as_address('pg_class'::regclass, $1, attribute)).object_names[3] = indexed_column
        AND (pg_relation_is_publishable(keys) OR NOT pg_relation_is_publishable($1))) IS NOT TRUE
    THEN
        PERFORM simsql._index($1, $4);
    END IF;
    IF $5 IS NOT NULL OR scope_columns <> '{}' THEN
        SELECT t.tgattr INTO attributes FROM pg_trigger AS t WHERE t.tgrelid = $1 AND t.tgname = trigger_names[3];
        in_order := jsonb_typeof($5) = 'object' AND $5 - scope_columns = '{}' AND scope_columns <> '{}';
        FOR place IN 1 .. cardinality(scope_columns) LOOP
            in_order := in_order AND jsonb_typeof($5 -> scope_columns[place]) IN ('string', 'number', 'boolean')
                AND (pg_identify_object_as_address('pg_class'::regclass, $1, attributes[place])).object_names[3]
                    = scope_columns[place];
        END LOOP;
        IF in_order IS NOT TRUE THEN
            PERFORM simsql._searched_index($1, $4, $5);
        END IF;
        RETURN QUERY EXECUTE 'SELECT fingerprint, distance FROM simsql.search_' || index_id || '($1, $2, $3)'
                       USING $2, CASE WHEN $3 BETWEEN 0 AND 64 THEN $3 ELSE simsql._distance($3, of_index) END, $5;
        RETURN;
    END IF;
    RETURN QUERY EXECUTE 'SELECT fingerprint, distance FROM simsql.search_' || index_id || '($1, $2)'
                   USING $2, CASE WHEN $3 BETWEEN 0 AND 64 THEN $3 ELSE simsql._distance($3, of_index) END;
END
$$;

COMMENT ON FUNCTION simsql.near(regclass, bigint, integer, text, jsonb) IS
    'every fingerprint within the distance that a row of the table, or of the scope, has; once each, nearest first';

-- The rows of the table, called t, that a search $1, $2 and $3 finds within this scope: what of them to list, nearest first.
CREATE FUNCTION simsql._rows_statement(index simsql.registry, scope jsonb, list text) RETURNS text
LANGUAGE sql STABLE
AS $$
    SELECT format('SELECT %s FROM simsql.search_%s($1, $2%s) AS m JOIN ONLY %s AS t ON t.%I = m.fingerprint%s '
                  'ORDER BY m.distance, m.fingerprint',
                  list, index.id, CASE WHEN cardinality(index.scope_columns) > 0 THEN ', $3' END, index.table_name,
                  index.column_name, simsql._in_scope(index, scope, 't'))
$$;

CREATE FUNCTION simsql.near_rows(
    row_type anyelement, fingerprint bigint, distance integer DEFAULT NULL, column_name text DEFAULT NULL,
    scope jsonb DEFAULT NULL)
RETURNS SETOF anyelement
LANGUAGE plpgsql STABLE ROWS 10
AS $$
DECLARE
    table_id constant regclass := (
        SELECT c.oid FROM pg_type AS y JOIN pg_class AS c ON c.oid = y.typrelid
         WHERE y.oid = pg_typeof($1) AND c.relkind <> 'c');
    index simsql.registry;
BEGIN
    IF table_id IS NULL THEN
        RAISE EXCEPTION 'simsql.near_rows: % is not the row type of a table', pg_typeof($1)
            USING ERRCODE = 'wrong_object_type', HINT = 'Pass NULL::article to search the table article.';
    END IF;
    index := simsql._searched_index(table_id, $4, $5);
    RETURN QUERY EXECUTE simsql._rows_statement(index, $5, 't.*') USING $2, simsql._distance($3, index.distance), $5;
END
$$;

COMMENT ON FUNCTION simsql.near_rows(anyelement, bigint, integer, text, jsonb) IS
    'rows of a table whose fingerprint is within the distance, nearest first: simsql.near_rows(NULL::article, ...)';

-- The same for a caller who has no row type, with the distances: table, fingerprint, distance, column and scope.
CREATE FUNCTION simsql._near_documents(regclass, bigint, integer, text, jsonb)
RETURNS TABLE (fingerprint bigint, distance integer, document jsonb)
LANGUAGE plpgsql STABLE ROWS 10
AS $$
DECLARE
    index constant simsql.registry := simsql._searched_index($1, $4, $5);
BEGIN
    RETURN QUERY EXECUTE simsql._rows_statement(index, $5, 'm.fingerprint, m.distance, to_jsonb(t)')
                   USING $2, simsql._distance($3, index.distance), $5;
END
$$;

CREATE FUNCTION simsql.explain_near(
    table_name regclass, fingerprint bigint, distance integer DEFAULT NULL, column_name text DEFAULT NULL,
    scope jsonb DEFAULT NULL)
RETURNS SETOF text
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    index constant simsql.registry := simsql._searched_index($1, $4, $5);
    asked constant integer := simsql._distance($3, index.distance);
    strategy text;
    settings text[];
    statement text;
    types text[];
    expressions text[];
    line text;
BEGIN
    EXECUTE format('SELECT CASE WHEN NOT coalesce(%s, false) THEN ''scan'' WHEN $2 <= %s THEN ''exact'' ELSE ''probes'' END',
                   simsql._probing_pays(index, simsql._in_scope(index, $5, 'k')), simsql._exact_up_to(index))
       INTO strategy USING $2, asked;
    RETURN NEXT format('strategy: %s, radius: %s', strategy,
                       simsql._radius(index.blocks, index.lead, index.inner_blocks, 0, asked));
    -- What are variables in the function are parameters here.
    SELECT array_agg(v.type ORDER BY v.number),
           -- The name of a scope column may look like a parameter: ($3 ->> 'a$1')::text.
           array_agg(CASE WHEN v.name LIKE 'scope%' THEN overlay(v.value PLACING format('%L::jsonb', $5) FROM 2 FOR 2)
                          ELSE replace(replace(v.value, '$1', quote_literal($2) || '::bigint'), '$2', asked::text) END
                     ORDER BY v.number),
           simsql._search_statement(index, strategy, array_agg('$' || v.number + 3 ORDER BY v.number))
      INTO types, expressions, statement
      FROM simsql._search_variables(index, strategy) AS v;
    -- The settings under which this text runs, for this call only; the later ones win.
    settings := ARRAY(SELECT unnest(p.proconfig) FROM pg_proc AS p
                       WHERE p.pronamespace = 'simsql'::regnamespace
                         AND (p.proname = 'search_' || index.id
                              OR strategy = 'scan' AND p.proname = 'scan_' || index.id)
                       ORDER BY p.proname LIKE 'scan%');
    -- An error leaves a prepared statement behind: this one's, the last time.
    IF EXISTS (SELECT FROM pg_prepared_statements AS s WHERE s.name = 'simsql_explain') THEN
        DEALLOCATE simsql_explain;
    END IF;
    BEGIN
        PERFORM set_config(split_part(s, '=', 1), split_part(s, '=', 2), true) FROM unnest(settings) AS s;
        EXECUTE format('PREPARE simsql_explain (bigint, integer, %s) AS %s', array_to_string(types, ', '), statement);
        FOR line IN EXECUTE format('EXPLAIN (ANALYZE, BUFFERS) EXECUTE simsql_explain(%L, %L, %s)', $2, asked,
                                   array_to_string(expressions, ', ')) LOOP
            RETURN NEXT line;
        END LOOP;
        DEALLOCATE simsql_explain;
        -- Leaving the block through an error undoes its settings.
        RAISE EXCEPTION USING ERRCODE = 'SIM00';
    EXCEPTION
        WHEN SQLSTATE 'SIM00' THEN NULL;
    END;
END
$$;

COMMENT ON FUNCTION simsql.explain_near(regclass, bigint, integer, text, jsonb) IS
    'EXPLAIN ANALYZE of exactly what simsql.near runs for the same arguments';
