-- vacuum: removes keys that no row has any more, and all but one of equal keys.
--
-- A vacuum removes only what its own snapshot proves superfluous. A writer's new key is invisible to it, and so
-- it needs no lock on the user's table and stops nobody. Two vacuums of one index that proved things at once
-- could each remove the key that the other kept: so each batch first waits for the index's turn, and only then
-- takes its snapshot. Two vacuums of one index take turns, batch by batch.

-- How many keys or fingerprints one transaction of vacuum or build takes: a fraction of a second.
CREATE FUNCTION simsql._batch_size() RETURNS integer
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN 50000;

-- Raises inside a transaction, where a procedure cannot commit.
--
-- Procedures that commit may not have a search_path of their own: they name schemas and operators in full, call
-- functions, and leave the work to those.
CREATE PROCEDURE simsql._leave_transaction(caller text)
LANGUAGE plpgsql
AS $$
DECLARE
    at_commit text;
    at_rollback text;
BEGIN
    -- In a block with an exception clause neither is allowed. Only the messages, in any language, tell why:
    -- inside a transaction they are the same, and otherwise they speak of committing and of rolling back.
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
        RAISE EXCEPTION 'simsql.%: it commits as it goes, and cannot run inside a transaction', caller
            USING ERRCODE = 'active_sql_transaction',
                  HINT = 'Call it alone: outside BEGIN and COMMIT, in no function, from a driver in autocommit mode.';
    END IF;
END
$$;

-- Waits until nobody else does upkeep of the table's indexes: vacuum and build for a batch, repair as a whole. What
-- the caller then reads must be read with a later snapshot than this call's.
CREATE FUNCTION simsql._take_turn(table_name regclass, caller text) RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM simsql._check_read_committed(caller);
    PERFORM pg_advisory_xact_lock(hashtextextended('simsql.upkeep', $1::oid::bigint));
    IF NOT EXISTS (SELECT FROM pg_class AS c WHERE c.oid = $1) THEN
        RAISE EXCEPTION 'simsql.%: the table was dropped meanwhile', caller USING ERRCODE = 'undefined_table';
    END IF;
END
$$;

-- Until the end of the transaction nobody drops or renames the table, a column or an index of it. drop_index needs
-- the table first, and so must whoever uses its keys.
CREATE FUNCTION simsql._hold(table_name regclass) RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    EXECUTE format('SELECT FROM ONLY %s LIMIT 0', $1);
END
$$;

-- Raises unless this role may take all keys in hand, and sees all rows.
CREATE FUNCTION simsql._check_upkeep(index simsql.registry, caller text) RETURNS void
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    IF EXISTS (SELECT FROM pg_class AS c
                WHERE c.relnamespace = 'simsql'::regnamespace AND c.relname ~ format('^keys_%s_\d+$', index.id)
                  AND NOT pg_has_role(c.relowner, 'USAGE'))
    THEN
        RAISE EXCEPTION 'simsql.%: must be owner of the simhash index on %', caller, index.table_name
            USING ERRCODE = 'insufficient_privilege';
    END IF;
    IF row_security_active(index.table_id) THEN
        RAISE EXCEPTION 'simsql.%: row-level security hides rows of % from %', caller, index.table_name, current_user
            USING ERRCODE = 'insufficient_privilege', HINT = 'Call it as a role that sees all rows.';
    END IF;
END
$$;

-- What a vacuum has done so far.
CREATE TYPE simsql._vacuum_state AS (
    index_id integer,
    number   integer,           -- the key table that is next ...
    key      bigint,            -- ... and its first key that is
    seen     bigint,            -- keys
    removed  bigint,            -- keys
    share    double precision,  -- of the work, from 0 to 1
    finished boolean
);

-- The text of a batch over one key table: from key $1 on, $2 keys. It is one statement, and so has one snapshot:
-- a key that was proved superfluous in one and deleted in the next may be another writer's by then. Equal keys
-- may go on in the next batch, which begins where this one ends.
CREATE FUNCTION simsql._vacuum_statement(index simsql.registry, number integer) RETURNS text
LANGUAGE sql STABLE
AS $$
    SELECT format(
        -- LIMIT makes the proof one lookup per key, whatever the planner expects.
        'WITH seen AS MATERIALIZED ('
        'SELECT k.place, k.key, row_number() OVER (PARTITION BY k.key) AS nth '
        'FROM (SELECT ctid AS place, key FROM simsql.%1$I WHERE key >= $1 ORDER BY key LIMIT $2) AS k), '
        'removed AS (DELETE FROM simsql.%1$I WHERE ctid = ANY (ARRAY('
        'SELECT s.place FROM seen AS s '
        'LEFT JOIN LATERAL (SELECT true AS found FROM ONLY %2$s AS t WHERE t.%3$I = %4$s LIMIT 1) AS live ON true '
        'WHERE s.nth > 1 OR live.found IS NULL)) RETURNING 1) '
        'SELECT (SELECT count(*) FROM seen) AS seen, (SELECT max(key) FROM seen) AS last, '
        '(SELECT count(*) FROM removed) AS removed',
        format('keys_%s_%s', index.id, p.number), index.table_name, index.column_name,
        simsql._unpermute('s.key', p.lead_mask))
      FROM simsql._permutations(index.blocks, index.lead, index.inner_blocks) AS p
     WHERE p.number = $2
$$;

-- The next batch of a vacuum, in a transaction of its own; `state` is null at first, then what the last one
-- returned.
CREATE FUNCTION simsql._vacuum_batch(table_name regclass, column_name text, state simsql._vacuum_state)
RETURNS simsql._vacuum_state
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET max_parallel_workers_per_gather = 0 SET jit = off
AS $$
DECLARE
    index simsql.registry;
    batch record;
    before double precision;
    more boolean;
BEGIN
    PERFORM simsql._take_turn($1, 'vacuum');
    PERFORM simsql._hold($1);
    index := simsql._index($1, $2);
    IF state IS NULL THEN
        state := (index.id, 0, '-9223372036854775808', 0, 0, 0, false);
    ELSIF state.index_id <> index.id THEN
        RAISE EXCEPTION 'simsql.vacuum: the simhash index on %(%) was created anew meanwhile', $1, index.column_name
            USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'Call it again, if there are superfluous keys.';
    END IF;
    PERFORM simsql._check_upkeep(index, 'vacuum');
    PERFORM simsql._check_btree(index.table_id, index.column_name, 'vacuum');
    PERFORM simsql._check_btree(format('simsql.keys_%s_%s', index.id, state.number)::regclass, 'key', 'vacuum');
    before := state.share;
    EXECUTE simsql._vacuum_statement(index, state.number) INTO batch USING state.key, simsql._batch_size();
    state.seen := state.seen + batch.seen;
    state.removed := state.removed + batch.removed;
    more := batch.seen = simsql._batch_size();
    state.key := CASE WHEN more THEN batch.last ELSE '-9223372036854775808' END;
    state.number := state.number + (NOT more)::integer;
    state.share := (state.number + simsql._share(state.key))
                   / simsql._table_count(index.blocks, index.lead, index.inner_blocks);
    state.finished := state.number = simsql._table_count(index.blocks, index.lead, index.inner_blocks);
    IF state.finished THEN
        RAISE NOTICE 'simsql.vacuum: % of % keys of %(%) removed', state.removed, state.seen, $1,
                     quote_ident(index.column_name);
    ELSIF more AND floor(20 * state.share) > floor(20 * before) THEN
        RAISE NOTICE 'simsql.vacuum: % %% done, % of % keys removed', round(100 * state.share), state.removed, state.seen;
    END IF;
    RETURN state;
END
$$;

-- Which share of all keys or fingerprints is not greater, from 0 to almost 1: they fill the range evenly enough.
CREATE FUNCTION simsql._share(key bigint) RETURNS double precision
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN key / 18446744073709551616.0::double precision + 0.5;

CREATE PROCEDURE simsql.vacuum(table_name regclass, column_name text DEFAULT NULL)
LANGUAGE plpgsql
AS $$
DECLARE
    state simsql._vacuum_state;
BEGIN
    CALL simsql._leave_transaction('vacuum');
    LOOP
        COMMIT;
        SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
        state := simsql._vacuum_batch($1, $2, state);
        EXIT WHEN state.finished;
    END LOOP;
END
$$;

COMMENT ON PROCEDURE simsql.vacuum(regclass, text) IS
    'remove the keys that no row has any more, and all but one of equal keys, while others read and write';
