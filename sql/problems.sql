-- simsql.problems: one row for each problem of simsql in this database, for monitors.
--
-- The names of problems and objects are labels: they hold no figures, so a problem stays one row as long as it lasts. It
-- reads the catalogue and statistics, and connects to the other nodes of Citus.

-- Key tables that TRUNCATE has emptied, or DELETE and VACUUM. Each has a row, and those of unlogged tables are empty
-- after a crash. Null while another session locks one exclusively.
CREATE OR REPLACE FUNCTION simsql._empty_key_tables(index simsql.registry) RETURNS SETOF text
LANGUAGE plpgsql STABLE
SET lock_timeout = '100ms'
AS $$
BEGIN
    RETURN QUERY
    SELECT k.name
      FROM simsql._permutations(index.blocks, index.lead, index.inner_blocks) AS n
     CROSS JOIN LATERAL format('simsql.keys_%s_%s', index.id, n.number) AS k (name)
      JOIN pg_class AS c ON c.oid = to_regclass(k.name) AND c.relkind = 'r' AND c.relpersistence = 'p'
     WHERE index.storage = 'tables' AND pg_relation_size(c.oid) = 0;
EXCEPTION
    WHEN lock_not_available THEN NULL;
END
$$;

-- The nodes of Citus that this one cannot reach.
CREATE OR REPLACE FUNCTION simsql._unreachable_nodes() RETURNS SETOF text
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    IF to_regclass('pg_catalog.pg_dist_node') IS NOT NULL
       AND EXISTS (SELECT FROM simsql.registry AS r WHERE simsql._is_distributed(r.table_id))
    THEN
        RETURN QUERY SELECT format('%s:%s', n.nodename, n.nodeport)
                       FROM pg_catalog.run_command_on_workers('SELECT 1') AS n WHERE NOT n.success;
    END IF;
END
$$;

CREATE OR REPLACE FUNCTION simsql._problems()
RETURNS TABLE (table_name text, column_name text, problem text, object text, remedy text)
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM simsql.schema_version) AND NOT row_security_active('simsql.schema_version') THEN
        RETURN QUERY SELECT NULL, NULL, 'restored without its data', 'schema simsql', 'simsql install';
    ELSE
        RETURN QUERY SELECT NULL, NULL, 'unknown index', 'simsql.search_' || u.id, 'simsql install'
                       FROM simsql._unknown_indexes() AS u;
    END IF;
    RETURN QUERY
    SELECT NULL, NULL, 'row-level security', 'simsql.' || t, format('ALTER TABLE simsql.%s DISABLE ROW LEVEL SECURITY;', t)
      FROM unnest('{registry,schema_version}'::text[]) AS t JOIN pg_class AS c ON c.oid = ('simsql.' || t)::regclass
     WHERE c.relrowsecurity
     UNION ALL
    SELECT NULL, NULL, f.problem, f.object, f.remedy FROM simsql._installation_faults() AS f
     UNION ALL
    SELECT NULL, NULL, 'node unreachable', n, 'start it, or remove it from Citus' FROM simsql._unreachable_nodes() AS n
     UNION ALL
    -- The statement itself would mark the functions of the index as altered, and searches would refuse it.
    SELECT NULL, NULL, o.problem, o.object, simsql._call('repair', ARRAY[r.table_id::text])
      FROM simsql._other_privileges() AS o JOIN simsql.registry AS r ON r.id = o.index_id
     UNION ALL
    SELECT r.table_name, r.column_name,
           CASE WHEN h.state <> 'ready' THEN h.state
                ELSE CASE (simsql._storage_advice(r)).need WHEN 'locks' THEN 'too few locks'
                     WHEN 'analyze' THEN 'rows not counted' ELSE 'vacuum due' END END,
           format('%s(%I)', r.table_name, r.column_name),
           CASE h.state WHEN 'ready' THEN regexp_replace(h.hint, '^[^:]*: ', '') ELSE h.hint END
      FROM simsql.registry AS r CROSS JOIN LATERAL simsql._health(r) AS h
     WHERE h.hint IS NOT NULL AND h.hint NOT LIKE '%simsql.registry%'
     UNION ALL
    SELECT r.table_name, r.column_name, 'REINDEX unfinished', b::text, format('DROP INDEX CONCURRENTLY %s;', b)
      FROM simsql.registry AS r CROSS JOIN LATERAL simsql._leftovers_of_reindex(simsql._as_named(r)) AS b
     UNION ALL
    -- Its B-trees or key tables slow down writers and serve no search.
    SELECT r.table_name, r.column_name, 'change of storage unfinished', format('%s(%I)', r.table_name, r.column_name),
           'Wait for the change to finish, or run it again. To drop what it has created: '
           || simsql._call('change_storage', ARRAY[r.table_id::text, r.storage, r.column_name])
      FROM simsql.registry AS r
     WHERE CASE r.storage
           WHEN 'tables' THEN EXISTS (
               SELECT FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid
                WHERE i.indrelid = r.table_id AND c.relname ~ ('^simsql_' || r.id || '_\d+$'))
           ELSE to_regclass(format('simsql.keys_%s_0', r.id)) IS NOT NULL END
     UNION ALL
    -- Those of indexes without another fault: a role that may read the table also learns it from the state.
    SELECT r.table_name, r.column_name, 'key table empty', k, simsql._call('repair', ARRAY[r.table_id::text])
      FROM simsql.registry AS r CROSS JOIN LATERAL simsql._empty_key_tables(r) AS k
     WHERE (simsql._health(r)).state = 'ready';
END
$$;

CREATE OR REPLACE VIEW simsql.problems AS SELECT p.* FROM simsql._problems() AS p;

COMMENT ON VIEW simsql.problems IS
    'what is wrong with simsql in this database, one row per problem, for monitors; simsql.verify checks more';
COMMENT ON COLUMN simsql.problems.table_name IS 'the table of the index, or null';
COMMENT ON COLUMN simsql.problems.column_name IS 'the column of the index, or null';
COMMENT ON COLUMN simsql.problems.problem IS 'what is wrong, without figures, so that it can be a label';
COMMENT ON COLUMN simsql.problems.object IS 'the table, function, role or node with the problem';
COMMENT ON COLUMN simsql.problems.remedy IS 'the statement or command that mends it';
