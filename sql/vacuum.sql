-- vacuum: removes keys without a row, and all but one of equal keys.
--
-- A vacuum removes only keys that its own snapshot proves superfluous. A writer's new key is invisible to it, so it needs no
-- lock on the user's table and blocks nobody. Two vacuums of one index with snapshots of the same time could each remove the
-- key that the other keeps. So they take turns, batch by batch: each batch waits for its turn, and only then takes its
-- snapshot.

-- How many keys or fingerprints a batch of vacuum or build handles: it lasts about a second. Smaller batches would visit the
-- same pages more often.
CREATE OR REPLACE FUNCTION simsql._batch_size() RETURNS integer
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN 200000;

-- Raises an error inside a transaction, where a procedure cannot commit.
--
-- Procedures that commit cannot set a search_path. So they qualify types, functions and operators, and leave the work to
-- functions.
CREATE OR REPLACE PROCEDURE simsql._leave_transaction(caller text)
LANGUAGE plpgsql
AS $$
DECLARE
    at_commit pg_catalog.text;
    at_rollback pg_catalog.text;
BEGIN
    -- In a block with an exception clause neither is allowed, and only the messages, in any language, tell why. Inside a
    -- transaction they are equal. Otherwise one speaks of committing and the other of rolling back.
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
                  HINT = 'Call it on its own: outside BEGIN and COMMIT, not from a function, with the driver in autocommit mode.';
    END IF;
END
$$;

-- Waits until nobody else maintains the indexes of this table: vacuum and build take turns by batch, repair takes one turn.
-- What the caller reads afterwards must be read with a later snapshot than that of this call.
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

-- Keeps others from dropping or renaming the table, its columns and its indexes until the end of the transaction. drop_index
-- locks the table first, so whoever uses its keys must do so too.
-- Should the name belong to a view by now, PostgreSQL must not even plan it: hence TABLESAMPLE.
CREATE OR REPLACE FUNCTION simsql._hold(table_name regclass) RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    IF (SELECT c.relkind FROM pg_class AS c WHERE c.oid = table_name) IN ('r', 'p') THEN
        EXECUTE format('SELECT FROM ONLY %s AS t TABLESAMPLE system (0) LIMIT 0', table_name);
    END IF;
END
$$;

-- Raises an error unless this role owns all objects of an index and sees all rows.
CREATE OR REPLACE FUNCTION simsql._check_upkeep(index simsql.registry, caller text) RETURNS void
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    IF EXISTS (SELECT FROM pg_class AS c
                WHERE c.relnamespace = 'simsql'::regnamespace AND c.relname ~ format('^keys_%s_\d+$', index.id)
                  AND NOT pg_has_role(c.relowner, 'USAGE'))
       OR NOT pg_has_role(simsql._owner(index), 'USAGE')
    THEN
        RAISE EXCEPTION 'simsql.%: must be owner of the simhash index on %', caller, index.table_name
            USING ERRCODE = 'insufficient_privilege';
    END IF;
    PERFORM simsql._check_sees_all(index.table_id, caller);
END
$$;

-- The superfluous keys in one batch of a key table: of $2 keys from key $1 of this scope on, or from the first key on. LIMIT
-- makes the planner look up each key once, whatever it estimates. Equal keys may continue in the next batch, which begins where
-- this one ends.
CREATE OR REPLACE FUNCTION simsql._superfluous(index simsql.registry, number integer, scope text[]) RETURNS text
LANGUAGE sql STABLE
AS $$
    SELECT format(
        'seen AS MATERIALIZED ('
        'SELECT k.*, row_number() OVER (PARTITION BY %6$s) AS nth '
        'FROM (SELECT ctid AS place, %6$s FROM simsql.keys_%1$s_%2$s WHERE %7$s ORDER BY %6$s LIMIT $2) AS k), '
        'superfluous AS MATERIALIZED ('
        'SELECT s.place, %8$sf.fp, live.found IS NOT NULL AS alive '
        'FROM seen AS s CROSS JOIN LATERAL (SELECT %3$s AS fp) AS f '
        'LEFT JOIN LATERAL (SELECT true AS found FROM ONLY %4$s AS t WHERE t.%5$I = f.fp%9$s LIMIT 1) AS live ON true '
        'WHERE (s.nth > 1 OR live.found IS NULL) AND %10$s), '
        'removed_%2$s AS (DELETE FROM simsql.keys_%1$s_%2$s '
        'WHERE ctid = ANY (ARRAY(SELECT place FROM superfluous)) RETURNING 1)',
        index.id, p.number, simsql._unpermute('s.key', p.lead_mask), index.table_name, index.column_name,
        simsql._name_list(simsql._key_columns(index)),
        coalesce(simsql._from_place(index, scope, '%1$s', 'key', '>=', '$1'), 'true'),
        simsql._for_scope(index, 's.%1$s, '), simsql._for_scope(index, ' AND t.%2$I = s.%1$s'), simsql._guard(index))
      FROM simsql._permutations(index.blocks, index.lead, index.inner_blocks) AS p
     WHERE p.number = _superfluous.number
$$;

-- The statement of a batch. As one statement it has one snapshot. With two, a key that is proved superfluous in the first could
-- belong to another writer by the time of the second. Writers add the same keys to all tables, so superfluous keys of the first
-- table are removed from the others too, as many copies as there, and one copy stays for each fingerprint that a row has. In a
-- batch of another table, keys are removed from that table alone.
CREATE OR REPLACE FUNCTION simsql._vacuum_statement(index simsql.registry, number integer, scope text[] DEFAULT NULL) RETURNS text
LANGUAGE sql STABLE
AS $$
    SELECT format('WITH %s%s '
                  'SELECT (SELECT count(*) FROM seen) AS seen, last.key AS last, last.scope, %s AS removed '
                  'FROM (VALUES (1)) AS one LEFT JOIN (SELECT key, ARRAY[%s]::text[] AS scope FROM seen '
                  'ORDER BY %skey DESC LIMIT 1) AS last ON true',
                  simsql._superfluous(index, _vacuum_statement.number, scope),
                  string_agg(format(
                      ', removed_%2$s AS (DELETE FROM simsql.keys_%1$s_%2$s WHERE ctid = ANY (ARRAY('
                      'SELECT k.place '
                      'FROM (SELECT %4$s%3$s AS key, alive, count(*) AS copies '
                      'FROM superfluous GROUP BY %5$s, alive ORDER BY %5$s) AS s '
                      'CROSS JOIN LATERAL (SELECT c.place, row_number() OVER () AS nth '
                      'FROM (SELECT r.ctid AS place FROM simsql.keys_%1$s_%2$s AS r WHERE r.key = s.key%6$s '
                      'LIMIT s.copies + s.alive::integer) AS c) AS k '
                      'WHERE k.nth > s.alive::integer)) RETURNING 1)',
                      index.id, p.number, simsql._permute('fp', p.lead_mask), simsql._for_scope(index, '%1$s, '),
                      simsql._name_list(simsql._key_columns(index)), simsql._for_scope(index, ' AND r.%1$s = s.%1$s')),
                      '' ORDER BY p.number)
                      FILTER (WHERE p.number <> _vacuum_statement.number),
                  string_agg(format('(SELECT count(*) FROM removed_%s)', p.number), ' + ' ORDER BY p.number),
                  (SELECT string_agg(c.name || '::text', ', ' ORDER BY c.number) FROM simsql._scope_columns(index) AS c),
                  simsql._for_scope(index, '%1$s DESC, '))
      FROM simsql._permutations(index.blocks, index.lead, index.inner_blocks) AS p
     WHERE p.number = _vacuum_statement.number OR _vacuum_statement.number = 0
$$;

-- The key tables whose number of keys differs from that of the first: their superfluous keys may be others.
CREATE OR REPLACE FUNCTION simsql._uneven_tables(index simsql.registry) RETURNS integer[]
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    counts bigint[];
BEGIN
    EXECUTE (SELECT format('SELECT ARRAY[%s]',
                           string_agg(format('(SELECT count(*) FROM simsql.keys_%s_%s)', index.id, p.number), ', '
                                      ORDER BY p.number))
               FROM simsql._permutations(index.blocks, index.lead, index.inner_blocks) AS p)
       INTO counts;
    RETURN ARRAY(SELECT c.ordinal - 1 FROM unnest(counts) WITH ORDINALITY AS c (keys, ordinal)
                  WHERE c.keys <> counts[1] ORDER BY 1);
END
$$;

-- Runs the next batch of a vacuum, in its own transaction. `state` is null for the first batch and otherwise what the last
-- batch returned.
CREATE OR REPLACE FUNCTION simsql._vacuum_batch(table_name regclass, column_name text, state simsql._vacuum_state)
RETURNS simsql._vacuum_state
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET max_parallel_workers_per_gather = 0 SET jit = off
-- So that a scope survives its conversion to text:
SET datestyle = 'ISO' SET intervalstyle = 'postgres' SET extra_float_digits = 1
AS $$
DECLARE
    smallest constant bigint := '-9223372036854775808';
    index simsql.registry;
    batch record;
    before double precision;
BEGIN
    PERFORM simsql._take_turn(table_name, 'vacuum');
    PERFORM simsql._hold(table_name);
    index := simsql._index(table_name, column_name);
    IF state IS NULL THEN
        state := (index.id, '{0}', smallest, NULL, 0, 0, 0, false);
    ELSIF state.index_id <> index.id THEN
        RAISE EXCEPTION 'simsql.vacuum: the simhash index on %(%) was re-created during the vacuum', table_name, index.column_name
            USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'A new index has no superfluous keys.';
    END IF;
    PERFORM simsql._check_upkeep(index, 'vacuum');
    IF index.storage = 'expression' THEN
        PERFORM simsql._relearn_skew(index);
        RAISE NOTICE 'simsql.vacuum: the index on %(%) has no keys to remove', table_name, quote_ident(index.column_name);
        state.share := 1;
        state.finished := true;
        RETURN state;
    END IF;
    PERFORM simsql._check_btree(index.table_id, simsql._btree_columns(index), 'vacuum');
    PERFORM simsql._check_btree(format('simsql.keys_%s_%s', index.id, p.number)::regclass, simsql._key_columns(index), 'vacuum')
       FROM simsql._permutations(index.blocks, index.lead, index.inner_blocks) AS p;
    before := state.share;
    EXECUTE simsql._vacuum_statement(index, state.tables[1], state.scope) INTO batch USING state.key, simsql._batch_size();
    state.removed := state.removed + batch.removed;
    IF batch.seen = simsql._batch_size() THEN
        state.key := batch.last;
        state.scope := batch.scope;
        state.seen := state.seen + batch.seen;
        state.share := greatest(before, CASE WHEN cardinality(state.scope) = 0 THEN simsql._share(state.key)
                                             ELSE least(0.99, state.seen / greatest(1, simsql._keys_by_size(index))) END);
        IF floor(20 * state.share) > floor(20 * before) THEN
            RAISE NOTICE 'simsql.vacuum: % %% done, % keys removed', round(100 * state.share), state.removed;
        END IF;
    ELSE
        state.key := smallest;
        state.scope := NULL;
        state.share := 1;
        state.tables := CASE state.tables[1] WHEN 0 THEN simsql._uneven_tables(index) ELSE state.tables[2:] END;
        state.finished := cardinality(state.tables) = 0;
        IF state.finished THEN
            PERFORM simsql._relearn_skew(index);
            RAISE NOTICE 'simsql.vacuum: removed % keys of %(%)', state.removed, table_name, quote_ident(index.column_name);
        END IF;
    END IF;
    RETURN state;
END
$$;

-- The share of all keys or fingerprints that are not greater than this one, from 0 to almost 1, on the assumption that they are
-- evenly distributed.
CREATE OR REPLACE FUNCTION simsql._share(key bigint) RETURNS double precision
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN key / 18446744073709551616.0::double precision + 0.5;

-- The number of keys in the first table, or in the first B-tree on the user's table, estimated from its size.
CREATE OR REPLACE FUNCTION simsql._keys_by_size(index simsql.registry) RETURNS double precision
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    keys double precision;
BEGIN
    IF simsql._is_distributed(index.table_id) THEN
        EXECUTE format('SELECT count(t.%I) FROM %s AS t WHERE %s', index.column_name, simsql._rows_of(index), simsql._guard(index))
           INTO keys;
        RETURN keys;
    END IF;
    RETURN CASE index.storage
           WHEN 'tables' THEN pg_relation_size(format('simsql.keys_%s_0', index.id))
           ELSE (SELECT sum(pg_relation_size(b))
                   FROM simsql._with_partitions(simsql._index_named(index.table_id, format('simsql_%s_0', index.id))) AS b)
           END / (36.0 + 8 * cardinality(index.scope_columns));
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
