-- simsql.indexes: one row for each index.

-- To add a column, append it and its comment here. `simsql index list` prints those that simsql/cli/index.py names.
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
       h.hint,
       r.sources
  FROM simsql.registry AS r
 CROSS JOIN LATERAL simsql._health(r) AS h;

COMMENT ON VIEW simsql.indexes IS
    'one row per simhash index, with its state according to the catalogue; simsql.verify checks more';
COMMENT ON COLUMN simsql.indexes.id IS 'the number in the names of its objects';
COMMENT ON COLUMN simsql.indexes.table_name IS 'the table when the index was created or repaired, with its schema';
COMMENT ON COLUMN simsql.indexes.column_name IS 'the column of the fingerprints';
COMMENT ON COLUMN simsql.indexes.scope IS 'the columns whose values restrict each search';
COMMENT ON COLUMN simsql.indexes.distance IS 'the default distance of searches, from 0 to 64 bits';
COMMENT ON COLUMN simsql.indexes.blocks IS 'of the design: into how many blocks a fingerprint is cut';
COMMENT ON COLUMN simsql.indexes.lead IS 'of the design: how many blocks lead each key';
COMMENT ON COLUMN simsql.indexes.inner_blocks IS 'of the design: into how many blocks the other bits are cut, or 0';
COMMENT ON COLUMN simsql.indexes.recipe IS 'the id of the recipe of the fingerprints, or null if it is unknown';
COMMENT ON COLUMN simsql.indexes.state IS 'ready, or the worst fault that the catalogue shows';
COMMENT ON COLUMN simsql.indexes.storage IS 'tables: key tables; expression: B-trees on the table itself';
COMMENT ON COLUMN simsql.indexes.is_default IS 'whether searches that name no column use it';
COMMENT ON COLUMN simsql.indexes.bytes IS 'the size of the key tables, or of the B-trees on prefixes';
COMMENT ON COLUMN simsql.indexes.unvacuumed IS
    'the share, from 0 to 1, of what searches read that a vacuum would clean up';
COMMENT ON COLUMN simsql.indexes.last_vacuum IS 'when the last vacuum ended';
COMMENT ON COLUMN simsql.indexes.hint IS 'what to do, or null if there is nothing to do';
COMMENT ON COLUMN simsql.indexes.sources IS
    'the columns that the fingerprints come from, with their weights, or null if they are unknown';

-- Searches of 0.2.0 that an upgrade has overtaken read this. A function looks at the faults: see _health.
CREATE OR REPLACE FUNCTION simsql._is_searchable(index simsql.registry) RETURNS boolean
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN NOT EXISTS (SELECT FROM unnest(simsql._faults(index)) AS f
                        WHERE f.effect IN ('refuses', 'refuses this role'));
END
$$;

CREATE OR REPLACE VIEW simsql._searchable AS
SELECT r.id, r.table_id, r.column_name, r.is_default, r.distance, r.scope_columns,
       simsql._is_searchable(r) AS sound
  FROM simsql.registry AS r;

GRANT SELECT ON simsql._searchable TO PUBLIC;

-- So do these claims, and searches of partitioned tables, which call:
CREATE OR REPLACE FUNCTION simsql._files(table_name regclass) RETURNS oid[]
LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM simsql._refuse_changed(table_name, 'simsql was upgraded');
END
$$;

CREATE OR REPLACE FUNCTION simsql._check_rewritten(table_id regclass) RETURNS void
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    PERFORM simsql._refuse_changed(table_id, 'simsql was upgraded');
END
$$;
