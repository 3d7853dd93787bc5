-- clusters: the connected components of the pairs within a distance.
--
-- It searches with the caller's privileges and snapshot, and reports only fingerprints of live rows.

-- Union-find takes time linear in the pairs and needs no temporary tables, so it also works in read-only
-- transactions. The root of a cluster is its smallest fingerprint.
CREATE OR REPLACE FUNCTION simsql.clusters(
    table_name regclass, distance integer DEFAULT NULL, column_name text DEFAULT NULL,
    scope jsonb DEFAULT NULL)
RETURNS SETOF simsql.member
LANGUAGE plpgsql STABLE
SET enable_mergejoin = off SET jit = off
AS $$
DECLARE
    is_coordinator constant boolean := simsql._is_coordinator('clusters');
    index record;
    asked integer;
    vertices bigint[];
    parents integer[];
    statement text;
    found_pairs bigint := 0;
    edge record;
    x integer;
    y integer;
BEGIN
    IF NOT simsql._sees_rows(table_name) THEN
        RETURN QUERY
        SELECT m.* FROM simsql._again(table_name, format('clusters(%L, %L, %L, %L)', table_name::oid, distance, column_name,
                                                         scope)) AS m (cluster bigint, fingerprint bigint);
        RETURN;
    END IF;
    index := simsql._searched_index(table_name, column_name, scope);
    asked := simsql._distance(distance, index.distance);
    vertices := simsql._fingerprints(index, scope);
    parents := ARRAY(SELECT generate_series(1, cardinality(vertices)));
    FOR statement IN SELECT s FROM simsql._statements_for_pairs(vertices, asked) AS s LOOP
        FOR edge IN EXECUTE format(
            'SELECT a.number::integer AS head, b.number::integer AS tail FROM (%s) AS e (a, b) '
            'JOIN unnest($1) WITH ORDINALITY AS a (fp, number) ON a.fp = e.a '
            'JOIN unnest($1) WITH ORDINALITY AS b (fp, number) ON b.fp = e.b', statement)
            USING vertices, asked
        LOOP
            found_pairs := found_pairs + 1;
            IF found_pairs % 1000000 = 0 THEN
                PERFORM simsql._refuse_more(found_pairs, 'pairs', asked);
            END IF;
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
    END LOOP;
    -- A parent never comes after its child, so one pass in ascending order finds every root.
    FOR number IN 1 .. cardinality(vertices) LOOP
        parents[number] := parents[parents[number]];
    END LOOP;
    RETURN QUERY EXECUTE simsql._render($sql$
        SELECT r.fp, c.fp
          FROM (SELECT v.fp, v.root, count(*) OVER (PARTITION BY v.root) AS size
                  FROM unnest($1, $2) AS v (fp, root)) AS c
          JOIN unnest($1) WITH ORDINALITY AS r (fp, number) ON r.number = c.root
         WHERE c.size > 1
            OR c.fp IN (SELECT t.{"column"} FROM {rows} AS t WHERE {guard}{scope_of_rows}
                         GROUP BY t.{"column"} HAVING count(*) > 1)
         ORDER BY 1, 2$sql$, '{}', simsql._parts(index, scope))
        USING vertices, parents;
END
$$;

COMMENT ON TYPE simsql.member IS 'a fingerprint of a row, and the smallest fingerprint of its cluster';
COMMENT ON FUNCTION simsql.clusters(regclass, integer, text, jsonb) IS
    'connected components of the pairs: each fingerprint that has a neighbour or that two rows share, '
    'with the smallest fingerprint of its cluster; '
    'the command simsql clusters is many times faster on many rows';
