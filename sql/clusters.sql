-- All pairs within a distance, and the clusters that they form. Both read the fingerprints of live
-- rows, with the caller's rights and snapshot, and take the layout from the index.

-- The text that finds all pairs: $1 is the distance. Instead of probing key tables once per row, the
-- distinct fingerprints are joined with themselves on the prefix bits of each permutation, left where
-- they are in the fingerprint. A pair is reported by the first permutation that can find it: one
-- whose prefix differs in no more bits than the radius.
CREATE FUNCTION simsql._pairs_statement(index simsql.registry, distance integer) RETURNS text
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    radius constant integer := simsql._radius(index.blocks, index.lead, distance);
    join_pays boolean;
    permutation record;
    prefix_mask bigint;   -- the prefix bits of the permutation
    flips bigint[];       -- what two prefixes may differ in ...
    pivots bigint[];      -- ... and one of its bits, by which the two sides are told apart
    not_earlier text := '';
    branches text[] := '{}';
BEGIN
    -- A row that is looked up under each flip of its prefixes costs as much as one that is compared
    -- with that many rows.
    SELECT radius = 0 OR c.probes < pg_relation_size(format('simsql.keys_%s_0', index.id)) / 36
      INTO join_pays
      FROM simsql._cost(index.blocks, index.lead, radius) AS c;
    FOR permutation IN SELECT p.* FROM simsql._permutations(index.blocks, index.lead) AS p ORDER BY p.number LOOP
        EXIT WHEN NOT join_pays;
        EXECUTE format(
            'SELECT %1$s, array_agg(%2$s), array_agg(%3$s) FROM (SELECT f, f & -f AS pivot FROM unnest($2) AS f) AS s',
            simsql._unpermute('$1', index.blocks, permutation.lead_blocks),
            simsql._unpermute(format('(f << %s)', 64 - permutation.prefix), index.blocks, permutation.lead_blocks),
            simsql._unpermute(format('(pivot << %s)', 64 - permutation.prefix), index.blocks, permutation.lead_blocks))
           INTO prefix_mask, flips, pivots
          USING -1::bigint << (64 - permutation.prefix), simsql._flips(permutation.prefix, radius);
        branches := branches || format(
            'SELECT least(a.fp, b.fp) AS a, greatest(a.fp, b.fp) AS b '
            'FROM (SELECT fp, flip, (fp & %1$L::bigint) # flip AS prefix '
            'FROM live CROSS JOIN unnest(%2$L::bigint[], %3$L::bigint[]) AS f (flip, pivot) '
            'WHERE fp & pivot = 0) AS a '
            'JOIN live AS b ON a.prefix = (b.fp & %1$L::bigint) AND (a.flip <> 0 OR a.fp < b.fp) '
            'WHERE bit_count((a.fp # b.fp)::bit(64)) <= $1%4$s',
            prefix_mask, flips, pivots, not_earlier);
        not_earlier := not_earlier
            || format(' AND bit_count(((a.fp # b.fp) & %L::bigint)::bit(64)) > %s', prefix_mask, radius);
    END LOOP;
    IF NOT join_pays THEN
        branches := ARRAY['SELECT a.fp AS a, b.fp AS b FROM live AS a JOIN live AS b '
                          'ON a.fp < b.fp AND bit_count((a.fp # b.fp)::bit(64)) <= $1'];
    END IF;
    RETURN format(
        E'WITH live AS MATERIALIZED (SELECT DISTINCT t.%I AS fp FROM ONLY %s AS t WHERE t.%I IS NOT NULL)\n'
        'SELECT p.a, p.b, bit_count((p.a # p.b)::bit(64))::integer FROM (%s) AS p',
        index.column_name, index.table_name, index.column_name, array_to_string(branches, E'\n UNION ALL '));
END
$$;

-- The planner knows nothing about prefixes and would sort both sides of each join: it hashes.
CREATE FUNCTION simsql.pairs(table_name regclass, distance integer DEFAULT NULL, column_name text DEFAULT NULL)
RETURNS SETOF simsql.pair
LANGUAGE plpgsql STABLE
SET enable_mergejoin = off SET jit = off
AS $$
DECLARE
    index constant simsql.registry := simsql._index($1, $3);
    asked constant integer := simsql._distance($2, index.distance);
BEGIN
    RETURN QUERY EXECUTE simsql._pairs_statement(index, asked) USING asked;
END
$$;

COMMENT ON FUNCTION simsql.pairs(regclass, integer, text) IS
    'every pair of different fingerprints within the distance that rows of the table have, a < b, once each';

-- Connected components by union-find: linear in the pairs, without temporary tables, so that it also
-- runs in a read-only transaction. The root of a cluster is its smallest fingerprint.
CREATE FUNCTION simsql.clusters(table_name regclass, distance integer DEFAULT NULL, column_name text DEFAULT NULL)
RETURNS SETOF simsql.member
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    index constant simsql.registry := simsql._index($1, $3);
    vertices bigint[];   -- all fingerprints, ascending
    parents integer[];
    edge record;
    x integer;
    y integer;
BEGIN
    EXECUTE format('SELECT ARRAY(SELECT DISTINCT t.%1$I FROM ONLY %2$s AS t WHERE t.%1$I IS NOT NULL ORDER BY 1)',
                   index.column_name, index.table_name)
       INTO vertices;
    parents := ARRAY(SELECT generate_series(1, cardinality(vertices)));
    FOR edge IN
        SELECT a.number::integer AS head, b.number::integer AS tail
          FROM simsql.pairs($1, $2, index.column_name) AS e
          JOIN unnest(vertices) WITH ORDINALITY AS a (fp, number) ON a.fp = e.a
          JOIN unnest(vertices) WITH ORDINALITY AS b (fp, number) ON b.fp = e.b
    LOOP
        x := edge.head;
        WHILE parents[x] <> x LOOP
            parents[x] := parents[parents[x]];
            x := parents[x];
        END LOOP;
        y := edge.tail;
        WHILE parents[y] <> y LOOP
            parents[y] := parents[parents[y]];
            y := parents[y];
        END LOOP;
        IF x < y THEN
            parents[y] := x;
        ELSE
            parents[x] := y;
        END IF;
    END LOOP;
    -- A parent never stands behind its child: one pass upwards finds every root.
    FOR number IN 1 .. cardinality(vertices) LOOP
        parents[number] := parents[parents[number]];
    END LOOP;
    RETURN QUERY EXECUTE format(
        'SELECT r.fp, c.fp'
        '  FROM (SELECT v.fp, v.root, count(*) OVER (PARTITION BY v.root) AS size'
        '          FROM unnest($1, $2) AS v (fp, root)) AS c'
        '  JOIN unnest($1) WITH ORDINALITY AS r (fp, number) ON r.number = c.root'
        ' WHERE c.size > 1'
        '    OR c.fp IN (SELECT t.%1$I FROM ONLY %2$s AS t GROUP BY t.%1$I HAVING count(*) > 1)'
        ' ORDER BY 1, 2', index.column_name, index.table_name)
        USING vertices, parents;
END
$$;

COMMENT ON FUNCTION simsql.clusters(regclass, integer, text) IS
    'connected components of the pairs: every fingerprint that two rows share or that has a neighbour, '
    'with the smallest fingerprint of its cluster';
