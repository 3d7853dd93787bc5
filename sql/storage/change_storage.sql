-- change_storage: keeps an index in the other storage, with the same design, recipe and scope.
--
-- Creates the new objects beside the old ones, which serve searches until the last step: it replaces the
-- search functions and updates the registry.
--
-- B-trees keep the id of the index: every snapshot, however old, finds the rows that it sees in them. Key
-- tables are empty for a snapshot that is older than they are, so they get a new id, whose functions such a
-- snapshot does not call.
--
-- Claims before and after the change meet. They take the same locks as long as the id stays. If it changes,
-- the claims before it have locked the table, so the change waits for their transactions.

-- Returns the index whose storage is to be changed, or raises an error.
CREATE OR REPLACE FUNCTION simsql._check_storage_change(table_name regclass, storage text, column_name text)
RETURNS simsql.registry
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    index constant simsql.registry := simsql._index(table_name, column_name);
BEGIN
    IF storage IS NULL THEN
        RAISE EXCEPTION 'simsql.change_storage: the storage must not be null'
            USING ERRCODE = 'null_value_not_allowed',
                  HINT = 'For example: '
                         || simsql._call('change_storage', ARRAY[table_name::text, 'expression']);
    END IF;
    PERFORM simsql._storage(table_name, storage, 'change_storage');
    PERFORM simsql._check_indexable(table_name, index.column_name, index.scope_columns, storage,
                                    'change_storage');
    PERFORM simsql._check_upkeep(index, 'change_storage');
    RETURN index;
END
$$;

-- Keeps everybody from a table and the key tables of its index until the end of the transaction. Some
-- transactions lock the table first, and searches lock the keys first. So each attempt waits so briefly that
-- nobody fails with a deadlock, releases the locks, and is repeated a little later, for as long as
-- lock_timeout allows.
--
-- If this transaction already locks out writers, another one that has searched and now waits to write would
-- keep it waiting forever, and PostgreSQL may not notice. Each attempt therefore checks for such a
-- transaction and raises an error. The first attempts do not wait: while this waits, PostgreSQL ends the
-- other transaction at once, although this one should give way.
CREATE OR REPLACE FUNCTION simsql._lock_out(index simsql.registry) RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    lock_timeout constant text := current_setting('lock_timeout');
    deadlock_timeout constant interval := current_setting('deadlock_timeout');
    wait constant integer := least(100, extract(epoch FROM deadlock_timeout) * 500);
    deadline constant timestamptz := clock_timestamp() + nullif(lock_timeout::interval, '0');
    relations constant text := (
        SELECT string_agg('ONLY ' || c.oid::regclass, ', ' ORDER BY c.oid = index.table_id DESC, c.oid)
          FROM pg_class AS c
         WHERE c.oid = index.table_id
            OR c.relnamespace = 'simsql'::regnamespace AND c.relkind = 'r'
               AND c.relname ~ format('^keys_%s_\d+$', index.id));
    attempt integer := 1;
    is_deadlock boolean;
BEGIN
    LOOP
        PERFORM simsql._check_no_concurrent_change(index.table_id, 'change_storage');
        WITH RECURSIVE waiting AS (
            SELECT l.pid FROM pg_locks AS l
             WHERE l.relation = index.table_id AND l.granted AND l.pid <> pg_backend_pid()
               AND l.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database())
             UNION
            SELECT b.pid FROM waiting AS w CROSS JOIN LATERAL unnest(pg_blocking_pids(w.pid)) AS b (pid))
        SELECT EXISTS (SELECT FROM waiting AS w WHERE w.pid = pg_backend_pid()) INTO is_deadlock;
        IF is_deadlock THEN
            RAISE EXCEPTION 'simsql.change_storage: a transaction that has searched % is waiting to write to it',
                            index.table_name
                USING ERRCODE = 'deadlock_detected',
                      HINT = 'Use the command simsql index change-storage, for which writers do not wait. '
                             'Or try again later.';
        END IF;
        BEGIN
            PERFORM set_config('lock_timeout', wait || 'ms', true);
            EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE%s', relations,
                           CASE WHEN attempt <= 20 THEN ' NOWAIT' END);
            EXIT;
        EXCEPTION WHEN lock_not_available THEN
            IF clock_timestamp() > deadline THEN
                RAISE EXCEPTION 'simsql.change_storage: % is in use and could not be locked within %',
                                index.table_name, lock_timeout
                    USING ERRCODE = 'lock_not_available',
                          HINT = 'Try again later, or with a longer lock_timeout.';
            END IF;
        END;
        PERFORM pg_sleep(CASE WHEN attempt <= 20 THEN 0.02 ELSE 0.1 END);
        attempt := attempt + 1;
    END LOOP;
    PERFORM set_config('lock_timeout', lock_timeout, true);
END
$$;

-- Writers wait, and searches go on until the end. With key tables, if transactions that have searched wait to
-- write, it starts over, and everybody waits. If there is nothing left to create, it keeps everybody waiting
-- from the start. With `keep`, triggers and key tables that B-trees replace stay, and keep every key.
CREATE OR REPLACE FUNCTION simsql._change_storage(
    table_name regclass, storage text, column_name text, keep boolean)
RETURNS integer
LANGUAGE plpgsql
AS $$
DECLARE
    index simsql.registry := simsql._check_storage_change(table_name, storage, column_name);
    renewed simsql.registry;
    is_alone boolean := index.storage = storage AND NOT keep;
BEGIN
    PERFORM simsql._take_turn(table_name, 'change_storage');
    LOOP
        BEGIN
            IF is_alone THEN
                PERFORM simsql._lock_out(index);
            END IF;
            PERFORM simsql._lock(table_name, 'SHARE ROW EXCLUSIVE', 'change_storage');
            -- With a column: the default index may have changed.
            index := simsql._check_storage_change(table_name, storage, index.column_name);
            IF index.storage = storage THEN
                IF storage = 'tables' THEN
                    PERFORM simsql._expression_drop(index);  -- B-trees of an interrupted change
                END IF;
            ELSIF storage = 'tables' THEN
                renewed := simsql._renew(index);
                PERFORM simsql._give(renewed, simsql._owner(index));
                PERFORM simsql._lock_out(index);
                PERFORM simsql._drop_objects(index);
                PERFORM simsql._stamp(renewed.id);
                RETURN renewed.id;
            ELSE
                index.storage := storage;
                PERFORM simsql._create_btrees(index);
                UPDATE simsql.registry AS r SET storage = index.storage WHERE r.id = index.id;
                PERFORM simsql._create_functions(index);
                PERFORM simsql._give(index, simsql._owner(index));
            END IF;
            IF storage = 'expression' AND NOT keep
               AND to_regclass(format('simsql.keys_%s_0', index.id)) IS NOT NULL
            THEN
                PERFORM simsql._lock_out(index);
                PERFORM simsql._tables_drop(index);
            END IF;
            PERFORM simsql._stamp(index.id);
            RETURN index.id;
        EXCEPTION WHEN deadlock_detected THEN
            IF is_alone OR storage <> 'tables' THEN
                RAISE;
            END IF;
            is_alone := true;
        END;
    END LOOP;
END
$$;

CREATE OR REPLACE FUNCTION simsql.change_storage(
    table_name regclass, storage text, column_name text DEFAULT NULL)
RETURNS integer
LANGUAGE plpgsql
AS $$
BEGIN
    RETURN simsql._change_storage(table_name, storage, column_name, keep => false);
END
$$;

COMMENT ON FUNCTION simsql.change_storage(regclass, text, text) IS
    'keep a simhash index in key tables or in B-trees on the table (tables, expression), in this '
    'transaction, and return its id; writers wait, and searches go on until it is done';
