-- The first step of an upgrade: it locks all indexes.
--
-- Trigger functions and triggers change together, so nobody may write to an indexed table in the meantime.
-- Users' tables stay readable, since no trigger is dropped. Searches wait, since the policies of the key
-- tables change. The upgrade waits for each lock so briefly that a transaction waiting for the upgrade does
-- not fail with a deadlock, and other transactions do not queue behind it for long. Then it releases all
-- locks and tries again a little later.

DO $$
DECLARE
    deadline constant timestamptz := clock_timestamp() + interval '1 minute';
    lock_timeout constant text := current_setting('lock_timeout');
    deadlock_timeout constant interval := current_setting('deadlock_timeout');
    wait constant integer := least(100, extract(epoch FROM deadlock_timeout) * 500);
    user_tables text;
    statement text;
    key_tables text;
    foreign_table text;
    sessions text;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'simsql: the transaction of an upgrade must be read committed, not %',
                        current_setting('transaction_isolation')
            USING ERRCODE = 'active_sql_transaction';
    END IF;
    PERFORM pg_advisory_xact_lock(hashtextextended('simsql.install', 0));
    LOOP
        BEGIN
            PERFORM set_config('lock_timeout', wait || 'ms', true);
            SELECT c.oid::regclass::text INTO foreign_table
              FROM simsql.registry AS r
              JOIN pg_class AS c ON c.oid IN (r.table_id, to_regclass(format('simsql.keys_%s_0', r.id)))
             WHERE NOT pg_has_role(c.relowner, 'USAGE') LIMIT 1;
            IF FOUND THEN
                RAISE EXCEPTION 'simsql: role % may not upgrade the simhash index that uses the table %',
                                current_user, foreign_table
                    USING ERRCODE = 'insufficient_privilege',
                          HINT = 'Upgrade as a superuser, or as a role that is a member of the owners of all '
                                 'indexed tables.';
            END IF;
            SELECT string_agg(DISTINCT 'ONLY ' || r.table_id, ', ') INTO user_tables
              FROM simsql.registry AS r JOIN pg_class AS c ON c.oid = r.table_id;
            IF user_tables IS NOT NULL THEN
                EXECUTE format('LOCK TABLE %s IN SHARE ROW EXCLUSIVE MODE', user_tables);
            END IF;
            -- Some functions lock the registry before a view, others after it, and CREATE OR REPLACE VIEW would
            -- deadlock with one that waits for the registry. By one order or another this gets ahead of all
            -- transactions. LOCK would lock the tables below the views, too, even catalogs. RESET locks the view
            -- alone, and changes nothing.
            FOR statement IN
                SELECT CASE c.relkind WHEN 'v' THEN format('ALTER VIEW %s RESET (check_option)', c.oid::regclass)
                       ELSE 'LOCK TABLE simsql.registry IN ACCESS EXCLUSIVE MODE' END
                  FROM pg_class AS c
                 WHERE c.relnamespace = 'simsql'::regnamespace
                   AND (c.relkind = 'v' AND pg_has_role(c.relowner, 'USAGE')
                        OR c.oid = 'simsql.registry'::regclass)
                 ORDER BY random()
            LOOP
                EXECUTE statement;
            END LOOP;
            SELECT string_agg(c.oid::regclass::text, ', ') INTO key_tables
              FROM pg_class AS c
             WHERE c.relnamespace = 'simsql'::regnamespace AND c.relkind = 'r'
               AND c.relname ~ '^keys_\d+_\d+$';
            IF key_tables IS NOT NULL THEN
                EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', key_tables);
            END IF;
            -- Start over if an index was created before the registry was locked.
            EXIT WHEN NOT EXISTS (
                SELECT FROM simsql.registry AS r JOIN pg_class AS c ON c.oid = r.table_id
                 WHERE NOT EXISTS (SELECT FROM pg_locks AS l
                                    WHERE l.relation = r.table_id AND l.pid = pg_backend_pid() AND l.granted
                                      AND l.mode = 'ShareRowExclusiveLock'));
        EXCEPTION WHEN lock_not_available THEN
            IF clock_timestamp() > deadline THEN
                -- A prepared transaction has no session.
                SELECT string_agg(DISTINCT coalesce(l.pid::text, (
                           SELECT quote_literal(x.gid)
                             FROM pg_locks AS t JOIN pg_prepared_xacts AS x ON x.transaction = t.transactionid
                            WHERE t.virtualtransaction = l.virtualtransaction AND t.pid IS NULL LIMIT 1)), ', ')
                  INTO sessions FROM pg_locks AS l
                  LEFT JOIN simsql.registry AS r ON r.table_id = l.relation
                  LEFT JOIN pg_class AS c ON c.oid = l.relation AND c.relnamespace = 'simsql'::regnamespace
                 WHERE l.granted AND l.pid IS DISTINCT FROM pg_backend_pid() AND (r.id IS NOT NULL OR c.oid IS NOT NULL)
                   AND l.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database());
                RAISE EXCEPTION 'simsql: indexed tables are in use and could not be locked within a minute'
                    USING ERRCODE = 'lock_not_available',
                          HINT = format('Upgrade again after the transactions of these sessions, or prepared '
                                        'transactions, have ended: %s.', sessions);
            END IF;
        END;
        PERFORM pg_sleep(0.1);
    END LOOP;
    PERFORM set_config('lock_timeout', lock_timeout, true),
            set_config('simsql.routines', ARRAY(SELECT p.oid::regprocedure FROM pg_proc AS p
                                                 WHERE p.pronamespace = 'simsql'::regnamespace)::text, true),
            -- For after_upgrade.sql, which changes what tells it.
            set_config('simsql.sound', (
                SELECT coalesce(array_agg(r.id), '{}') FROM simsql.registry AS r
                 WHERE NOT EXISTS (SELECT FROM unnest(simsql._faults(r)) AS f
                                    WHERE f.effect = 'refuses' AND f.problem <> 'not ready'))::text, true);
END
$$;
