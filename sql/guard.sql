-- Keeps a table's owner from running code as a role that searches or maintains its index.
--
-- The checks of a function read the catalogue by the OID of a table, and as of their snapshot. The statement
-- that reads the table names it, and is parsed later: by then the name may belong to a view, and the column
-- may have a type with a cast of its owner's to bigint. PostgreSQL would call the view's functions, or the
-- cast, with the caller's privileges. So such a statement carries a condition that is always true, and that
-- PostgreSQL refuses to parse in these cases: TABLESAMPLE takes no view, and a UNION no types of different
-- categories. Only superusers create types of a given category.

-- The condition. Without types, as before an index exists, nothing may compare the scope's columns by
-- operators. It is a WITH query that nothing refers to: PostgreSQL and Citus parse it, but neither plans nor
-- runs it.
CREATE OR REPLACE FUNCTION simsql._guard(
    table_name text, column_name text, scope text[] DEFAULT '{}', types text[] DEFAULT '{}')
RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT format('(WITH guard AS (SELECT g.%I%s FROM ONLY %s AS g ', column_name,
                  string_agg(', g.' || quote_ident(s.name), '' ORDER BY s.number), table_name)
           || 'TABLESAMPLE pg_catalog.system (0) UNION ALL SELECT NULL::pg_catalog.int8'
           || coalesce(string_agg(', NULL::' || s.type, '' ORDER BY s.number), '') || ') SELECT true)'
      FROM unnest(scope, types) WITH ORDINALITY AS s (name, type, number)
     WHERE s.type IS NOT NULL
$$;

CREATE OR REPLACE FUNCTION simsql._guard(index simsql.registry) RETURNS text
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN simsql._guard(index.table_name, index.column_name, index.scope_columns,
                         ARRAY(SELECT s.type FROM simsql._scope_columns(index) AS s ORDER BY s.number));
END
$$;

-- Raises an error if another session is creating, rebuilding or dropping an index concurrently, or detaching
-- a partition: on this table or one of its partitions. Such a session locks the table and waits for the
-- snapshots and locks of others. A function has a snapshot, so the two would deadlock if it waited for the
-- table.
CREATE OR REPLACE FUNCTION simsql._check_no_concurrent_change(table_id regclass, caller text) RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    busy regclass;
BEGIN
    WITH locks AS MATERIALIZED (
        SELECT l.pid, l.locktype, l.relation, l.mode, l.granted FROM pg_locks AS l
         WHERE l.pid <> pg_backend_pid()
           AND (l.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database())
                OR l.locktype = 'virtualxid'))
    SELECT l.relation::regclass INTO busy
      FROM locks AS l JOIN simsql._with_partitions(table_id) AS t ON t = l.relation
     WHERE l.granted AND l.mode = 'ShareUpdateExclusiveLock'
       AND (EXISTS (SELECT FROM pg_stat_progress_create_index AS p WHERE p.pid = l.pid)
            OR EXISTS (SELECT FROM locks AS w
                        WHERE w.pid = l.pid AND w.locktype = 'virtualxid' AND NOT w.granted))
     LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'simsql.%: another session is changing an index or a partition of % concurrently',
                        caller, busy
            USING ERRCODE = 'object_in_use', HINT = 'Try again when it has finished.';
    END IF;
END
$$;

-- Raises an error on a standby. It grants advisory locks, which mean nothing to those who write on the primary.
CREATE OR REPLACE FUNCTION simsql._check_primary(caller text) RETURNS void
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    IF pg_is_in_recovery() THEN
        RAISE EXCEPTION 'simsql.%: this server is a standby, which accepts no writes', caller
            USING ERRCODE = 'read_only_sql_transaction', HINT = 'Connect to the primary.';
    END IF;
END
$$;

-- The key tables of the indexes of a table that this role owns.
CREATE OR REPLACE FUNCTION simsql._own_keys(table_id regclass) RETURNS SETOF regclass
LANGUAGE sql STABLE
AS $$
    SELECT c.oid::regclass
      FROM simsql.registry AS r
      JOIN pg_class AS c ON c.relname ~ format('^(keys_%1$s_\d+|built_%1$s)$', r.id)
     WHERE r.table_id = _own_keys.table_id AND c.relnamespace = 'simsql'::regnamespace AND c.relkind = 'r'
       AND pg_has_role(c.relowner, 'USAGE')
$$;

-- Locks a table and its partitions until the end of the transaction, exclusively with its key tables, and raises if its
-- name has come to belong to another one meanwhile. SHARE UPDATE EXCLUSIVE keeps nobody from reading and writing.
CREATE OR REPLACE FUNCTION simsql._lock(table_id regclass, mode text, caller text) RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    attempt constant text := format('SELECT simsql._lock_now(%s, %L, %L, %L)', table_id::oid, table_id, mode, caller);
BEGIN
    PERFORM simsql._check_primary(caller);
    IF mode = 'SHARE UPDATE EXCLUSIVE' THEN
        EXECUTE attempt;
    ELSE
        PERFORM simsql._patiently(
            attempt, ARRAY(SELECT t::oid FROM simsql._with_partitions(table_id) AS t
                            UNION ALL SELECT k::oid FROM simsql._own_keys(table_id) AS k),
            mode, 'simsql.' || caller, simsql._full_name(table_id));
    END IF;
END
$$;

-- One attempt. CREATE INDEX locks the partitions of a table one by one; here all are locked before anything else is done.
CREATE OR REPLACE FUNCTION simsql._lock_now(table_id regclass, name text, mode text, caller text) RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    nowait constant text := CASE current_setting('simsql.nowait', true) WHEN 'NOWAIT' THEN 'NOWAIT' ELSE '' END;
    keys text;
BEGIN
    PERFORM simsql._check_no_concurrent_change(table_id, caller);
    EXECUTE format('LOCK TABLE ONLY %s IN %s MODE %s', name, mode, nowait);
    IF to_regclass(name) IS DISTINCT FROM table_id THEN
        RAISE EXCEPTION 'simsql.%: table % was renamed while this statement waited for it', caller, name
            USING ERRCODE = 'undefined_table',
                  HINT = 'Run it again, and name the table that you mean.';
    END IF;
    IF mode <> 'SHARE UPDATE EXCLUSIVE'
       AND (SELECT c.relkind FROM pg_class AS c WHERE c.oid = table_id) = 'p'
    THEN
        PERFORM simsql._check_no_concurrent_change(table_id, caller);
        EXECUTE format('LOCK TABLE %s IN %s MODE %s', name, mode, nowait);
    END IF;
    -- From now on, nobody drops them or creates others.
    SELECT string_agg(k::text, ', ' ORDER BY k) INTO keys FROM simsql._own_keys(table_id) AS k WHERE mode = 'ACCESS EXCLUSIVE';
    IF keys IS NOT NULL THEN
        EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE %s', keys, nowait);
    END IF;
END
$$;
