-- simsql.indexes: one row for each index.

-- To add a column, append it here and describe it in docs/reference/sql.md. `simsql index list` prints those that
-- simsql/cli/index.py names.
CREATE OR REPLACE VIEW simsql.indexes AS
SELECT r.id,
       r.table_name,
       r.column_name,
       r.scope_columns AS scope,
       r.distance,
       r.blocks,
       r.lead,
       r.inner_blocks,
       r.recipe,
       h.state,
       r.storage,
       coalesce(r.is_default, count(*) OVER (PARTITION BY r.table_id) = 1) AS is_default,
       simsql._storage_size(r) AS bytes,
       h.unvacuumed,
       h.last_vacuum,
       h.hint
  FROM simsql.registry AS r
  JOIN simsql._searchable AS s ON s.id = r.id
  LEFT JOIN pg_class AS c ON c.oid = r.table_id
  LEFT JOIN pg_namespace AS n ON n.oid = c.relnamespace
 -- `sound` looks the table up by its name, which a role may not do in a schema that is closed to it.
 CROSS JOIN LATERAL simsql._health(
       r, CASE WHEN quote_ident(n.nspname) || '.' || quote_ident(c.relname) = r.table_name
                    AND has_schema_privilege(n.oid, 'USAGE') THEN s.sound END) AS h;

COMMENT ON VIEW simsql.indexes IS
    'one row per simhash index, with its state according to the catalogue; simsql.verify checks more';

GRANT SELECT ON simsql.indexes TO PUBLIC;
