-- The faults of B-trees and of tables that Citus manages, and their repair.

-- A quick look counts the valid B-trees here; a thorough one also reads their definitions, and asks all
-- shards.
CREATE OR REPLACE FUNCTION simsql._expression_faults(
    index simsql.registry, actual simsql.registry, thorough boolean)
RETURNS simsql._fault[]
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    repair constant text := simsql._call('repair', ARRAY[index.table_id::text]);
    tables constant integer := simsql._table_count(index.blocks, index.lead, index.inner_blocks);
    name constant text := '^simsql_' || index.id || '_\d+$';
    faults simsql._fault[] := '{}';
BEGIN
    IF simsql._is_distributed_since(index) THEN
        faults := faults || ('table distributed', actual.table_name, 'table distributed', 'refuses',
                             format('table %s was distributed after its simhash index was created',
                                    index.table_id),
                             'Let the index follow:', repair)::simsql._fault;
    -- It would hide the B-trees from searches: & is not leakproof.
    ELSIF simsql._is_distributed(index.table_id) AND row_security_active(index.table_id) THEN
        faults := faults || ('row-level security', actual.table_name, 'ready', 'refuses this role',
                             format('row-level security on %s, which Citus manages, applies to role %s',
                                    index.table_id, current_user),
                             'Search as a role to which it does not apply, and filter the rows.',
                             NULL)::simsql._fault;
    END IF;
    IF index.ready AND array_position(actual.column_name || actual.scope_columns, NULL) IS NULL
       AND (thorough OR tables > (
           SELECT count(*) FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid
            WHERE i.indrelid = index.table_id AND i.indisvalid AND c.relname ~ name))
    THEN
        faults := faults || ARRAY(
            SELECT (b.problem, b.object, 'B-trees missing', 'slows', NULL, NULL, repair)::simsql._fault
              FROM simsql._verify_btrees(actual, on_shards => thorough) AS b);
    END IF;
    RETURN faults;
END
$$;

CREATE OR REPLACE FUNCTION simsql._expression_mend(index simsql.registry, faults simsql._fault[])
RETURNS simsql.registry
LANGUAGE plpgsql
AS $$
DECLARE
    btree record;
BEGIN
    IF EXISTS (SELECT FROM unnest(faults) AS f
                WHERE f.problem IN ('B-tree missing on a shard', 'B-tree invalid on a shard'))
    THEN
        -- It may be the user's, and serve a constraint.
        EXECUTE format('CREATE INDEX ON %s (%s)', index.table_name,
                       simsql._name_list(simsql._btree_columns(index)));
    END IF;
    IF EXISTS (SELECT FROM unnest(faults) AS f WHERE f.problem LIKE '%search B-tree%') THEN
        -- Citus drops what its shards have kept of a B-tree only if it exists here.
        FOR btree IN
            SELECT f.* FROM simsql._faulty_btrees(index) AS f
             WHERE f.btree IS NULL AND simsql._is_distributed(index.table_id)
        LOOP
            PERFORM simsql._execute_here(simsql._create_btree(index.table_name, btree.name, btree.columns));
            EXECUTE format('DROP INDEX IF EXISTS %s', simsql._index_named(index.table_id, btree.name));
        END LOOP;
        PERFORM simsql._create_btrees(index);
    END IF;
    RETURN index;
END
$$;
