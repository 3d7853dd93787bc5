-- Locks that readers or writers would queue behind. Whoever waits for one tries so briefly that nobody fails with a
-- deadlock or waits behind it for long, releases everything, and tries again a little later: for lock_timeout in all,
-- or a minute if that is 0, as it is by default.
--
-- An upgrade runs this file before it locks the indexes, so the file uses nothing of simsql but its own functions.

-- The sessions and prepared transactions that keep others from locking relations. Those of simsql are locked exclusively.
CREATE OR REPLACE FUNCTION simsql._holders(relations oid[], mode text)
RETURNS TABLE (pid integer, virtualtransaction text, mode text)
LANGUAGE sql STABLE
AS $$
    SELECT l.pid, l.virtualtransaction, l.mode
      FROM pg_locks AS l JOIN pg_class AS c ON c.oid = l.relation
     WHERE l.relation = ANY (relations) AND l.granted AND l.pid IS DISTINCT FROM pg_backend_pid()
       AND l.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database())
       AND (l.mode NOT IN ('AccessShareLock', 'RowShareLock') OR _holders.mode = 'ACCESS EXCLUSIVE'
            OR c.relnamespace = to_regnamespace('simsql'))
$$;

-- What keeps relations from being locked, and how to end it, for a hint.
CREATE OR REPLACE FUNCTION simsql._describe_holders(relations oid[], mode text) RETURNS text
LANGUAGE sql STABLE
AS $$
    SELECT coalesce(format('In use by %s. Wait for the end of these transactions, or end them: %s ',
                           string_agg(h.description, ', ' ORDER BY h.description),
                           string_agg(h.remedy, ' ' ORDER BY h.description)), '')
           || 'To wait for longer, set lock_timeout.'
      FROM (SELECT DISTINCT
                   CASE WHEN l.pid IS NULL THEN 'the prepared transaction ' || quote_literal(x.gid)
                   ELSE format('process %s (%s)', l.pid, concat_ws(', ',
                        coalesce(a.usename, 'an autovacuum or the like'),
                        'in a transaction since ' || a.xact_start::timestamptz(0),
                        'its last query since ' || a.query_start::timestamptz(0))) END,
                   CASE WHEN l.pid IS NULL THEN format('ROLLBACK PREPARED %L;', x.gid)
                   ELSE format('SELECT pg_terminate_backend(%s);', l.pid) END
              FROM simsql._holders(relations, mode) AS l
              LEFT JOIN pg_stat_activity AS a ON a.pid = l.pid
              LEFT JOIN (pg_locks AS t JOIN pg_prepared_xacts AS x ON x.transaction = t.transactionid)
                ON t.virtualtransaction = l.virtualtransaction AND t.pid IS NULL AND l.pid IS NULL) AS h (description, remedy)
$$;

-- Runs a statement that locks these relations and may do more, until it gets all locks.
--
-- If this transaction already locks out others, another one that has read and now waits to write would keep it waiting
-- forever, and PostgreSQL may not notice. Each attempt therefore checks for such a transaction and raises an error. The
-- first attempts do not wait, as the setting simsql.nowait tells LOCK: while this waits, PostgreSQL ends the other
-- transaction at once, although this one should give way. PostgreSQL ends an autovacuum for those who wait for longer than deadlock_timeout: once, that is tried, too.
CREATE OR REPLACE FUNCTION simsql._patiently(statement text, relations oid[], mode text, caller text, what text)
RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    lock_timeout constant text := current_setting('lock_timeout');
    total constant text := coalesce(nullif(lock_timeout, '0'), '1min');
    deadline constant timestamptz := clock_timestamp() + total::interval;
    deadlock_timeout constant double precision := 1000 * extract(epoch FROM current_setting('deadlock_timeout')::interval);
    attempt integer := 0;
    wait integer;
    is_deadlock boolean;
BEGIN
    LOOP
        attempt := attempt + 1;
        WITH RECURSIVE waiting AS (
            SELECT h.pid FROM simsql._holders(relations, mode) AS h WHERE attempt > 1
             UNION
            SELECT b.pid FROM waiting AS w CROSS JOIN LATERAL unnest(pg_blocking_pids(w.pid)) AS b (pid))
        SELECT EXISTS (SELECT FROM waiting AS w WHERE w.pid = pg_backend_pid()) INTO is_deadlock;
        IF is_deadlock THEN
            RAISE EXCEPTION '%: a transaction that has searched % is waiting to write to it', caller, what
                USING ERRCODE = 'deadlock_detected',
                      HINT = CASE WHEN caller LIKE '%.change_storage'
                                  THEN 'Use the command simsql index change-storage, for which writers do not wait. Or try '
                                  ELSE 'Try ' END || 'again later.';
        END IF;
        wait := least(100, deadlock_timeout / 2);
        IF attempt = 21 AND NOT EXISTS (SELECT FROM simsql._holders(relations, mode) AS h
                                         WHERE h.mode <> 'ShareUpdateExclusiveLock') THEN
            wait := deadlock_timeout + 100;
        END IF;
        BEGIN
            PERFORM set_config('lock_timeout', CASE WHEN attempt <= 20 THEN 1 ELSE wait END || 'ms', true),
                    set_config('simsql.nowait', CASE WHEN attempt <= 20 THEN 'NOWAIT' ELSE '' END, true);
            EXECUTE statement;
            EXIT;
        EXCEPTION WHEN lock_not_available THEN
            IF clock_timestamp() > deadline THEN
                RAISE EXCEPTION '%: % could not be locked within %, because of other transactions', caller, what, total
                    USING ERRCODE = 'lock_not_available',
                          HINT = simsql._describe_holders(relations, mode)
                                 || CASE WHEN caller LIKE '%.change_storage' THEN ' The command simsql index '
                                    'change-storage keeps what it has created, and goes on if you run it again.'
                                    ELSE '' END;
            ELSIF attempt % 50 = 30 THEN  -- after 2 s, and then every 10 s
                RAISE NOTICE '%: waiting for other transactions to release %', caller, what
                    USING ERRCODE = 'lock_not_available', HINT = simsql._describe_holders(relations, mode);
            END IF;
        END;
        PERFORM pg_sleep(CASE WHEN attempt <= 20 THEN 0.02 ELSE 0.1 END);
    END LOOP;
    PERFORM set_config('lock_timeout', lock_timeout, true), set_config('simsql.nowait', '', true);
END
$$;

-- The tables that an upgrade of simsql changes, or its removal, and everything in its schema. A removal also drops
-- triggers of clear_on_change.
CREATE OR REPLACE FUNCTION simsql._relations_of_all(mode text) RETURNS SETOF oid
LANGUAGE sql STABLE
AS $$
    SELECT c.oid
      FROM pg_class AS c
     WHERE c.relnamespace = 'simsql'::regnamespace AND c.relkind IN ('r', 'v')
        OR c.oid IN (SELECT r.table_id FROM simsql.registry AS r
                      UNION ALL
                     SELECT t.tgrelid FROM pg_trigger AS t JOIN pg_proc AS p ON p.oid = t.tgfoid
                      WHERE p.pronamespace = 'simsql'::regnamespace AND mode = 'ACCESS EXCLUSIVE')
$$;

-- Locks all indexes and simsql itself, their tables in this mode: the work of one attempt. The rest is locked
-- exclusively. DROP SCHEMA drops what others own, although this role may not lock it.
CREATE OR REPLACE FUNCTION simsql._lock_all(mode text) RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    nowait constant text := CASE current_setting('simsql.nowait', true) WHEN 'NOWAIT' THEN 'NOWAIT' ELSE '' END;
    statement text;
    names text;
BEGIN
    SELECT string_agg(CASE WHEN o.relkind = 'p' AND mode = 'ACCESS EXCLUSIVE' THEN '' ELSE 'ONLY ' END || c.id::regclass, ', ')
      INTO names
      FROM simsql._relations_of_all(mode) AS c (id) JOIN pg_class AS o ON o.oid = c.id
     WHERE o.relnamespace <> 'simsql'::regnamespace AND o.relkind IN ('r', 'p')
       AND (mode <> 'ACCESS EXCLUSIVE' OR pg_has_role(o.relowner, 'USAGE'));
    IF names IS NOT NULL THEN
        EXECUTE format('LOCK TABLE %s IN %s MODE %s', names, mode, nowait);
    END IF;
    -- Some functions lock the registry before a view, others after it, and CREATE OR REPLACE VIEW would deadlock with
    -- one that waits for the registry. By one order or another this gets ahead of all transactions. LOCK would lock
    -- the tables below the views, too, even catalogs. RESET locks the view alone, and changes nothing.
    FOR statement IN
        SELECT CASE c.relkind WHEN 'v' THEN format('ALTER VIEW %s RESET (check_option)', c.oid::regclass)
               ELSE 'LOCK TABLE simsql.registry IN ACCESS EXCLUSIVE MODE ' || nowait END
          FROM pg_class AS c
         WHERE c.relnamespace = 'simsql'::regnamespace
           AND (c.relkind = 'v' AND pg_has_role(c.relowner, 'USAGE') OR c.oid = 'simsql.registry'::regclass)
         ORDER BY random()
    LOOP
        EXECUTE statement;
    END LOOP;
    SELECT string_agg(c.oid::regclass::text, ', ') INTO names
      FROM pg_class AS c
     WHERE c.relnamespace = 'simsql'::regnamespace AND c.relkind = 'r' AND c.relname ~ '^(keys_\d+_\d+|built_\d+)$'
       AND (mode <> 'ACCESS EXCLUSIVE' OR pg_has_role(c.relowner, 'USAGE'));
    IF names IS NOT NULL THEN
        EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE %s', names, nowait);
    END IF;
    -- An index was created before the registry was locked: start over.
    IF EXISTS (SELECT FROM simsql.registry AS r JOIN pg_class AS c ON c.oid = r.table_id
                WHERE (mode <> 'ACCESS EXCLUSIVE' OR pg_has_role(c.relowner, 'USAGE'))
                  AND NOT EXISTS (SELECT FROM pg_locks AS l
                                   WHERE l.relation = r.table_id AND l.pid = pg_backend_pid() AND l.granted
                                     AND l.mode = replace(initcap(_lock_all.mode), ' ', '') || 'Lock'))
    THEN
        RAISE lock_not_available;
    END IF;
END
$$;
