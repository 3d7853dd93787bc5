-- simsql.indexes: one row for each index.

-- To add a column, append it here and describe it in docs/sql.md. `simsql index list` prints those that
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
       simsql._state(r) AS state,
       r.storage,
       a.all_visible,
       a.hint,
       coalesce(r.is_default, count(*) OVER (PARTITION BY r.table_id) = 1) AS is_default
  FROM simsql.registry AS r
  LEFT JOIN LATERAL simsql._storage_advice(r) AS a ON true;

COMMENT ON VIEW simsql.indexes IS
    'one row per simhash index, with its state according to the catalogue; simsql.verify checks more';

GRANT SELECT ON simsql.indexes TO PUBLIC;
