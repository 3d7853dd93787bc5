-- Functions for bulk work in Python: they return fingerprints in a few large pieces, and tell whether a load
-- may write keys itself.

-- The fingerprints of rows, eight bytes each, one after another: of those in `pages` pages from the first
-- on, or to the end if `pages` is null. The statement contains the page numbers, so that each piece is
-- planned for what it is: a scan of these pages. If `first` is null, it reads everything at once and returns
-- pieces of `pages` * 200 fingerprints: for one scope, for partitions, and for a role that can read only
-- columns, and so not ctid.
CREATE OR REPLACE FUNCTION simsql._packed(index simsql.registry, scope jsonb, first bigint, pages bigint)
RETURNS SETOF bytea
LANGUAGE plpgsql STABLE
SET enable_tidscan = on
AS $$
BEGIN
    RETURN QUERY EXECUTE simsql._render($sql$
        SELECT string_agg(int8send(n.f), '')
          FROM (SELECT t.{"column"} AS f, {piece} AS piece
                  FROM {rows_of} AS t
                 WHERE t.{"column"} IS NOT NULL{in_scope}{of_pages} AND {guard}) AS n
         GROUP BY n.piece$sql$,
        jsonb_build_object(
            'column', index.column_name,
            'piece', CASE WHEN first IS NULL THEN '(row_number() OVER () - 1) / ' || pages * 200 ELSE '0' END,
            'rows_of', simsql._rows_of(index),
            'in_scope', simsql._for_scope(index, ' AND t.%2$I = %3$s', scope),
            'of_pages', ' AND t.ctid >= ''(' || first || ',0)''::tid'
                        || coalesce(' AND t.ctid < ''(' || first + pages || ',0)''::tid', ''),
            'guard', simsql._guard(index)));
END
$$;

-- The fingerprints of all rows of an indexed table, or of a scope, in pieces of `pages` pages. Called in a
-- select list, not in FROM, it makes one piece at a time. The last piece is open-ended: the table may have
-- grown between measuring it and the first scan, which locks it.
CREATE OR REPLACE FUNCTION simsql._packed_pieces(
    table_name regclass, column_name text, pages bigint, scope jsonb DEFAULT NULL)
RETURNS SETOF bytea
LANGUAGE sql STABLE
AS $$
    WITH asked AS MATERIALIZED (
        SELECT i AS index,
               CASE WHEN scope IS NULL AND has_table_privilege(c.oid, 'SELECT')
                         AND c.relkind = 'r' AND NOT c.relhassubclass
                    THEN pg_relation_size(c.oid) / current_setting('block_size')::bigint END AS size
          FROM simsql._searched_index(table_name, column_name, scope) AS i
          JOIN pg_class AS c ON c.oid = i.table_id)
    SELECT f.packed
      FROM asked AS i
     CROSS JOIN LATERAL generate_series(0, coalesce(i.size, 0), pages) AS first
     CROSS JOIN LATERAL simsql._packed(
                            i.index, scope, CASE WHEN i.size IS NOT NULL THEN first END,
                            CASE WHEN i.size IS NULL OR first + pages <= i.size THEN pages END) AS f (packed)
     WHERE f.packed IS NOT NULL
$$;
