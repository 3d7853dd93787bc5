-- What simsql needs of a server and of the role that installs it: a row for each requirement, with the problem and its
-- remedy if it is not met. Run it in the database, as that role: psql -f requirements.sql. It changes nothing.
--
-- simsql install and simsql status --check run it, too. Everything else that simsql does, any role may do with what it
-- owns: functions with SECURITY DEFINER and settings of their own, none of which only a superuser may change; triggers
-- with ENABLE ALWAYS and ENABLE REPLICA; policies; a materialized view. It needs no extension and no event trigger, and
-- never sets session_replication_role. docs/reference/permissions.md says which privileges on tables an index needs.

WITH
database (name, role, version, is_standby, is_read_only) AS (
    SELECT pg_catalog.current_database()::text, current_user::text,
           pg_catalog.current_setting('server_version_num')::integer / 10000,
           pg_catalog.pg_is_in_recovery(), pg_catalog.current_setting('transaction_read_only')::boolean
),
installed (id, owner, is_ours, installer, is_empty) AS (
    SELECT n.oid, n.nspowner, v.oid IS NOT NULL AND r.oid IS NOT NULL, r.relowner,
           NOT EXISTS (SELECT FROM pg_class AS c WHERE c.relnamespace = n.oid)
      FROM pg_namespace AS n
      LEFT JOIN pg_class AS v ON v.relnamespace = n.oid AND v.relname = 'schema_version'
      LEFT JOIN pg_class AS r ON r.relnamespace = n.oid AND r.relname = 'registry'
     WHERE n.nspname = 'simsql'
),
found (number, requirement, met, problem, remedy) AS (
    SELECT r.*
      FROM database
      LEFT JOIN installed ON true
     CROSS JOIN LATERAL (VALUES
           (1, 'PostgreSQL 14 or newer', version >= 14,
            pg_catalog.format('PostgreSQL %s is too old: simsql needs 14 or newer (bit_count on bit strings)', version),
            'upgrade the server or use another one'),
           (2, 'a server that accepts writes', NOT is_standby,
            'the server is a standby, which accepts no writes', 'connect to the primary'),
           (3, 'transactions that may write', is_standby OR NOT is_read_only,
            'transactions are read-only',
            pg_catalog.format('ALTER ROLE %I IN DATABASE %I SET default_transaction_read_only = off', role, name)),
           -- An upgrade creates no schema.
           (4, 'CREATE on the database',
            pg_catalog.has_database_privilege(name, 'CREATE') OR owner IS NOT NULL,
            pg_catalog.format('role %s may not create the schema simsql in database %s', role, name),
            pg_catalog.format('as its owner, GRANT CREATE ON DATABASE %I TO %I', name, role)),
           (5, 'no other schema named simsql', coalesce(is_ours OR is_empty, true),
            pg_catalog.format('database %s has a schema simsql (of %s) that simsql did not install', name,
                              owner::regrole),
            'rename or drop it, then install again'),
           -- An administrator may have created it beforehand.
           (6, 'CREATE on a schema simsql that is there, and USAGE for all roles',
            coalesce(is_ours OR NOT is_empty, true) OR pg_catalog.pg_has_role(owner, 'USAGE')
            OR pg_catalog.has_schema_privilege(id, 'CREATE') AND pg_catalog.has_schema_privilege('public', id, 'USAGE'),
            pg_catalog.format('role %s may not install simsql in the schema simsql of %s', role, owner::regrole),
            pg_catalog.format('as its owner, GRANT CREATE ON SCHEMA simsql TO %I; GRANT USAGE ON SCHEMA simsql TO PUBLIC',
                              role)),
           (7, 'for an upgrade: the role owns simsql',
            is_ours IS NOT TRUE OR pg_catalog.pg_has_role(installer, 'USAGE'),
            pg_catalog.format('role %s does not own simsql', role),
            pg_catalog.format('upgrade as %s', installer::regrole)))
           AS r (number, requirement, met, problem, remedy)
    UNION ALL
    SELECT 8, pg_catalog.format('USAGE on the language %s', wanted),
           coalesce(pg_catalog.has_language_privilege(l.oid, 'USAGE'), false),
           CASE WHEN l.oid IS NULL THEN pg_catalog.format('database %s lacks the language %s', name, wanted)
                ELSE pg_catalog.format('role %s may not use the language %s', role, wanted) END,
           CASE WHEN l.oid IS NULL THEN pg_catalog.format('CREATE EXTENSION %I', wanted)
                ELSE pg_catalog.format('as its owner, GRANT USAGE ON LANGUAGE %I TO %I', wanted, role) END
      FROM database
     CROSS JOIN (VALUES ('plpgsql'), ('sql')) AS w (wanted)
      LEFT JOIN pg_language AS l ON l.lanname = wanted
    UNION ALL
    -- PostgreSQL grants what follows to every role, and some servers revoke it.
    SELECT number, pg_catalog.format('%s on %s %s', wanted_right, pg_catalog.cardinality(wanted), kind), missing IS NULL,
           pg_catalog.format('role %s may not %s %s', role, verb, missing),
           pg_catalog.format('as a superuser, GRANT %s %s TO %I', grantable, missing, role)
      FROM database
     CROSS JOIN (VALUES
           (9, 'EXECUTE', 'functions', 'call', 'EXECUTE ON FUNCTION', '{
               "gen_random_uuid()", "pg_advisory_xact_lock(bigint)", "pg_advisory_xact_lock_shared(bigint)",
               "pg_backend_pid()", "pg_blocking_pids(integer)", "pg_collation_actual_version(oid)",
               "pg_current_snapshot()", "pg_database_collation_actual_version(oid)",
               "pg_describe_object(oid, oid, integer)", "pg_get_expr(pg_node_tree, oid)",
               "pg_get_indexdef(oid, integer, boolean)", "pg_get_object_address(text, text[], text[])", "pg_get_triggerdef(oid)",
               "pg_identify_object_as_address(oid, oid, integer)", "pg_partition_ancestors(regclass)",
               "pg_partition_root(regclass)", "pg_partition_tree(regclass)",
               "pg_relation_filenode(regclass)", "pg_relation_filepath(regclass)", "pg_relation_is_updatable(regclass, boolean)",
               "pg_relation_size(regclass)", "pg_size_bytes(text)", "pg_sleep(double precision)",
               "pg_snapshot_xip(pg_snapshot)", "pg_snapshot_xmax(pg_snapshot)",
               "pg_snapshot_xmin(pg_snapshot)", "pg_stat_get_dead_tuples(oid)",
               "pg_stat_get_ins_since_vacuum(oid)", "pg_stat_get_last_analyze_time(oid)",
               "pg_stat_get_last_autoanalyze_time(oid)", "pg_stat_get_last_autovacuum_time(oid)",
               "pg_stat_get_last_vacuum_time(oid)", "pg_stat_get_live_tuples(oid)",
               "pg_stat_get_mod_since_analyze(oid)", "pg_try_advisory_xact_lock(bigint)",
               "pg_typeof(pg_catalog.any)", "pg_visible_in_snapshot(xid8, pg_snapshot)",
               "set_config(text, text, boolean)"
           }'::text[]),
           (10, 'SELECT', 'catalogs', 'read', 'SELECT ON', '{
               pg_am, pg_amop, pg_attrdef, pg_attribute, pg_collation, pg_constraint, pg_database,
               pg_default_acl, pg_depend, pg_index, pg_inherits, pg_language, pg_locks, pg_opclass,
               pg_operator, pg_policy, pg_prepared_statements, pg_prepared_xacts, pg_proc, pg_rewrite,
               pg_roles, pg_settings, pg_stat_activity, pg_stat_progress_create_index, pg_stats, pg_trigger, pg_type
           }'::text[])) AS w (number, wanted_right, kind, verb, grantable, wanted)
     CROSS JOIN LATERAL (
           SELECT pg_catalog.string_agg(one, ', ') FROM pg_catalog.unnest(wanted) AS one
            WHERE NOT CASE kind
                  WHEN 'functions' THEN pg_catalog.has_function_privilege(pg_catalog.to_regprocedure(one), 'EXECUTE')
                  ELSE pg_catalog.has_table_privilege(pg_catalog.to_regclass('pg_catalog.' || one), 'SELECT') END
           ) AS m (missing)
)
SELECT requirement, met, CASE WHEN NOT met THEN problem END AS problem, CASE WHEN NOT met THEN remedy END AS remedy
  FROM found ORDER BY number;
