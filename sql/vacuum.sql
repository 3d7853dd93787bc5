-- vacuum: removes keys without a row, and all but one of equal keys.
--
-- A vacuum removes only keys that its own snapshot proves superfluous. A writer's new key is invisible to it,
-- so it needs no lock on the user's table and blocks nobody. Two vacuums of one index with snapshots of the
-- same time could each remove the key that the other keeps. So they take turns, batch by batch: each batch
-- waits for its turn, and only then takes its snapshot.

-- How many keys or fingerprints a batch of vacuum or build handles: it lasts about a second. Smaller batches
-- would visit the same pages more often.
CREATE OR REPLACE FUNCTION simsql._batch_size() RETURNS integer
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN 200000;

-- Raises an error inside a transaction, where a procedure cannot commit.
--
-- Procedures that commit cannot set a search_path. So they qualify types, functions and operators, and leave
-- the work to functions.
CREATE OR REPLACE PROCEDURE simsql._leave_transaction(caller text)
LANGUAGE plpgsql
AS $$
DECLARE
    at_commit pg_catalog.text;
    at_rollback pg_catalog.text;
BEGIN
    -- In a block with an exception clause neither is allowed, and only the messages, in any language, tell
    -- why. Inside a transaction they are equal. Otherwise one speaks of committing and the other of rolling
    -- back.
    BEGIN
        COMMIT;
    EXCEPTION WHEN invalid_transaction_termination THEN
        at_commit := sqlerrm;
    END;
    BEGIN
        ROLLBACK;
    EXCEPTION WHEN invalid_transaction_termination THEN
        at_rollback := sqlerrm;
    END;
    IF at_commit OPERATOR(pg_catalog.=) at_rollback THEN
        RAISE EXCEPTION 'simsql.%: it commits each batch and cannot run inside a transaction', caller
            USING ERRCODE = 'active_sql_transaction',
                  HINT = 'Call it on its own: outside BEGIN and COMMIT, not from a function, with the driver '
                         'in autocommit mode.';
    END IF;
END
$$;

-- Waits until nobody else maintains the indexes of this table: vacuum and build take turns by batch, repair
-- takes one turn. What the caller reads afterwards must be read with a later snapshot than that of this call.
CREATE OR REPLACE FUNCTION simsql._take_turn(table_name regclass, caller text) RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM simsql._check_read_committed(caller);
    PERFORM pg_advisory_xact_lock(hashtextextended('simsql.upkeep', table_name::oid::bigint));
    IF NOT EXISTS (SELECT FROM pg_class AS c WHERE c.oid = table_name) THEN
        RAISE EXCEPTION 'simsql.%: the table no longer exists', caller USING ERRCODE = 'undefined_table';
    END IF;
END
$$;

-- Keeps others from dropping or renaming the table, its columns and its indexes until the end of the
-- transaction. drop_index locks the table first, so whoever uses its keys must do so too. Should the name
-- belong to a view by now, PostgreSQL must not even plan it: hence TABLESAMPLE. Whoever renames the table between
-- two batches makes this wait, and fail by the old name: then it looks again.
CREATE OR REPLACE FUNCTION simsql._hold(table_name regclass) RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    FOR look IN 1 .. 3 LOOP
        BEGIN
            IF (SELECT c.relkind FROM pg_class AS c WHERE c.oid = table_name) IN ('r', 'p') THEN
                EXECUTE format('SELECT FROM ONLY %s AS t TABLESAMPLE system (0) LIMIT 0', table_name);
            END IF;
            RETURN;
        EXCEPTION WHEN undefined_table THEN
            IF look = 3 THEN
                RAISE;
            END IF;
        END;
    END LOOP;
END
$$;

-- Whether this role owns all objects of an index; null if it has none.
CREATE OR REPLACE FUNCTION simsql._owns(index simsql.registry) RETURNS boolean
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN pg_has_role(simsql._owner(index), 'USAGE')
           AND NOT EXISTS (SELECT FROM pg_class AS c
                            WHERE c.relnamespace = 'simsql'::regnamespace
                              AND c.relname ~ format('^keys_%s_\d+$', index.id)
                              AND NOT pg_has_role(c.relowner, 'USAGE'));
END
$$;

-- Raises an error unless this role owns all objects of an index and sees all rows.
CREATE OR REPLACE FUNCTION simsql._check_upkeep(index simsql.registry, caller text) RETURNS void
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    IF NOT simsql._owns(index) THEN
        RAISE EXCEPTION 'simsql.%: must be owner of the simhash index on %', caller, index.table_name
            USING ERRCODE = 'insufficient_privilege';
    END IF;
    PERFORM simsql._check_sees_all(index.table_id, caller);
END
$$;

-- Runs the next batch of a vacuum, in its own transaction. `state` is null for the first batch and otherwise
-- what the last batch returned.
CREATE OR REPLACE FUNCTION simsql._vacuum_batch(
    table_name regclass, column_name text, state simsql._vacuum_state)
RETURNS simsql._vacuum_state
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET max_parallel_workers_per_gather = 0 SET jit = off
-- So that a scope survives its conversion to text:
SET datestyle = 'ISO' SET intervalstyle = 'postgres' SET extra_float_digits = 1
AS $$
DECLARE
    index simsql.registry;
BEGIN
    PERFORM simsql._take_turn(table_name, 'vacuum');
    PERFORM simsql._hold(table_name);
    -- The default index may change between two batches.
    index := simsql._index(table_name, coalesce(
        (SELECT r.column_name FROM simsql.registry AS r WHERE r.id = state.index_id), column_name));
    IF state IS NULL THEN
        state.index_id := index.id;
    ELSIF state.index_id <> index.id THEN
        RAISE EXCEPTION 'simsql.vacuum: the simhash index on %(%) was re-created during the vacuum',
                        table_name, index.column_name
            USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'A new index has no superfluous keys.';
    END IF;
    PERFORM simsql._check_upkeep(index, 'vacuum');
    state := simsql._storage_vacuum(index, state);
    IF state.finished THEN
        PERFORM simsql._relearn_skew(index);
    END IF;
    RETURN state;
END
$$;

CREATE OR REPLACE PROCEDURE simsql.vacuum(table_name regclass, column_name text DEFAULT NULL)
LANGUAGE plpgsql
AS $$
DECLARE
    state simsql._vacuum_state;
BEGIN
    CALL simsql._leave_transaction('vacuum');
    LOOP
        COMMIT;
        SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
        state := simsql._vacuum_batch(vacuum.table_name, vacuum.column_name, state);
        EXIT WHEN state.finished;
    END LOOP;
END
$$;

COMMENT ON PROCEDURE simsql.vacuum(regclass, text) IS
    'remove keys without a row, and all but one of equal keys, while others read and write';
