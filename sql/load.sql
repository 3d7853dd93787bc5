-- Functions for bulk work in Python: they return fingerprints in a few large pieces, and tell whether a load
-- may write keys itself.

-- The fingerprints of the rows in these pages of a table, eight bytes each, one after another; null if there
-- are none. Without a number of pages, it reads from the first page to the end. The statement contains the
-- page numbers, so that each piece is planned for what it is: a scan of these pages.
CREATE OR REPLACE FUNCTION simsql._packed_fingerprints(
    table_id regclass, column_name text, first bigint, pages bigint)
RETURNS bytea
LANGUAGE plpgsql STABLE
SET enable_tidscan = on
AS $$
DECLARE
    packed bytea;
BEGIN
    EXECUTE simsql._render($sql$
        SELECT string_agg(int8send(t.{"column"}), '')
          FROM ONLY {table} AS t
         WHERE t.ctid >= '({first},0)'::tid{before} AND {guard}$sql$,
        jsonb_build_object(
            'column', column_name,
            'table', table_id,
            'first', first,
            'before', ' AND t.ctid < ''(' || first + pages || ',0)''::tid',
            'guard', simsql._guard(table_id::text, column_name)))
       INTO packed;
    RETURN packed;
END
$$;

-- The same for one scope, for partitions, and for a role that can read only columns, and so not ctid. It
-- reads everything at once and returns pieces of `size` fingerprints.
CREATE OR REPLACE FUNCTION simsql._packed_column(index simsql.registry, scope jsonb, size bigint)
RETURNS SETOF bytea
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN QUERY EXECUTE simsql._render($sql$
        SELECT string_agg(int8send(n.f), '')
          FROM (SELECT t.{"column"} AS f, (row_number() OVER () - 1) / $1 AS piece
                  FROM {rows_of} AS t
                 WHERE t.{"column"} IS NOT NULL{in_scope} AND {guard}) AS n
         GROUP BY n.piece$sql$,
        jsonb_build_object(
            'column', index.column_name,
            'rows_of', simsql._rows_of(index),
            'in_scope', simsql._for_scope(index, ' AND t.%2$I = %3$s', scope),
            'guard', simsql._guard(index)))
     USING size;
END
$$;

-- The fingerprints of all rows of an indexed table, or of a scope, in pieces of so many pages. Called in a
-- select list, not in FROM, it makes one piece at a time. The last piece is open-ended: the table may have
-- grown between measuring it and the first scan, which locks it.
CREATE OR REPLACE FUNCTION simsql._packed_pieces(
    table_name regclass, column_name text, pages bigint, scope jsonb DEFAULT NULL)
RETURNS SETOF bytea
LANGUAGE sql STABLE
AS $$
    -- Checked once: a grant in between could leave out both branches.
    WITH asked AS MATERIALIZED (
        SELECT i AS index, i.table_id, i.column_name,
               scope IS NULL AND has_table_privilege(i.table_id, 'SELECT')
               AND (SELECT c.relkind = 'r' AND NOT c.relhassubclass FROM pg_class AS c
                     WHERE c.oid = i.table_id) AS by_pages
          FROM simsql._searched_index(table_name, column_name, scope) AS i)
    SELECT f.packed
      FROM asked AS i
     CROSS JOIN LATERAL (
           SELECT pg_relation_size(i.table_id) / current_setting('block_size')::bigint) AS s (size)
     CROSS JOIN LATERAL generate_series(0, size, pages) AS first
     CROSS JOIN LATERAL simsql._packed_fingerprints(
                            i.table_id, i.column_name, first, CASE WHEN first + pages <= size
                                                                   THEN pages END) AS f (packed)
     WHERE f.packed IS NOT NULL AND i.by_pages
     UNION ALL
    SELECT f.packed
      FROM asked AS i
     CROSS JOIN LATERAL simsql._packed_column(i.index, scope, pages * 200) AS f (packed)
     WHERE NOT i.by_pages
$$;
