-- build: creates an index while others read and write.
--
-- Tables, B-trees and triggers come first and are committed. From then on, every writer adds keys, so only the keys of rows
-- that were committed before are missing. Batches add them in order of scope and fingerprint, not in the physical order of
-- rows: an update moves a row, but if it changes neither scope nor fingerprint, it adds no key. Each batch commits its
-- progress, so an interrupted build resumes there. `ready` is committed with the last batch, and a snapshot that does not see
-- it does not search.
--
-- With the storage `expression`, a batch creates one B-tree, on one table or partition, and its writers wait. PostgreSQL does not
-- run CREATE INDEX CONCURRENTLY in a procedure, so clients run the statements of _next_statement themselves, until there is none.

-- Raises an error if a client is creating B-trees on this table, and keeps clients from it until the end of the transaction.
-- CREATE INDEX CONCURRENTLY waits for our snapshot, so we would deadlock if we waited for its lock on the table.
CREATE OR REPLACE FUNCTION simsql._check_no_other_build(table_name regclass) RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    IF NOT pg_try_advisory_xact_lock(hashtextextended('simsql.build', table_name::oid::bigint)) THEN
        RAISE EXCEPTION 'simsql.build: another build is creating indexes on %', table_name
            USING ERRCODE = 'object_in_use', HINT = 'Wait for it to finish, then call simsql.build again.';
    END IF;
END
$$;

-- Registers an index and creates its objects, or finds the one that an earlier build has started with these arguments. Returns
-- its id. Builds take turns here, as they do for batches: otherwise two builds that start together would both find no index. If
-- the other build has finished in the meantime, there is nothing left to do.
CREATE OR REPLACE FUNCTION simsql._begin_build(
    table_name regclass, column_name text, distance integer, blocks integer, lead integer, inner_blocks integer,
    recipe text, scope text[] DEFAULT '{}', storage text DEFAULT NULL)
RETURNS integer
LANGUAGE plpgsql
AS $$
DECLARE
    was_ready constant boolean := EXISTS (SELECT FROM simsql.registry AS r
                                           WHERE r.table_id = _begin_build.table_name
                                             AND r.column_name = _begin_build.column_name AND r.ready);
    index simsql.registry;
    has_other_arguments boolean;
BEGIN
    IF table_name IS NOT NULL THEN
        PERFORM simsql._take_turn(table_name, 'build');
    END IF;
    SELECT r.* INTO index
      FROM simsql.registry AS r
     WHERE r.table_id = _begin_build.table_name AND r.column_name = _begin_build.column_name;
    has_other_arguments := distance <> index.distance OR blocks <> index.blocks OR lead <> index.lead
                           OR inner_blocks <> index.inner_blocks OR recipe <> index.recipe
                           OR coalesce(scope, '{}') <> index.scope_columns OR storage <> index.storage;
    IF index.id IS NULL OR index.ready AND (was_ready OR has_other_arguments) THEN
        IF table_name IS NOT NULL THEN
            PERFORM simsql._check_no_other_build(table_name);
        END IF;
        index := simsql._register(table_name, column_name, distance, blocks, lead, inner_blocks, recipe, scope, storage,
                                  online => true);
        IF index.storage = 'tables' THEN
            PERFORM simsql._create_keys(index, filled => false);
        END IF;
        PERFORM simsql._create_functions(index);
        PERFORM simsql._create_triggers(index);
    ELSIF has_other_arguments THEN
        RAISE EXCEPTION 'simsql.build: an unfinished build of the simhash index on %(%) has other arguments', table_name,
                        quote_ident(column_name)
            USING ERRCODE = 'duplicate_object',
                  HINT = format('Finish it: %s Or drop it first: SELECT simsql.drop_index(%L, %L);',
                                simsql._build_call(index), table_name, column_name);
    END IF;
    RETURN index.id;
END
$$;

-- The last fingerprint whose keys a build has added, and its scope; null before its first batch.
CREATE OR REPLACE FUNCTION simsql._built_to(index simsql.registry, OUT fp bigint, OUT scope text[])
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    EXECUTE format('SELECT b.fp, b.scope FROM simsql.built_%s AS b', index.id) INTO fp, scope;
END
$$;

-- The statement of a batch. It adds the keys of the next $1 fingerprints to every table and returns the last of these
-- fingerprints and its scope, unless there were fewer than $1.
CREATE OR REPLACE FUNCTION simsql._build_statement(index simsql.registry) RETURNS text
LANGUAGE sql STABLE
AS $$
    SELECT format('WITH batch AS MATERIALIZED (SELECT DISTINCT %st.%I AS fp FROM ONLY %s AS t WHERE t.%I IS NOT NULL%s%s '
                  'ORDER BY %sfp LIMIT $1), %s '
                  'SELECT b.fp, ARRAY[%s]::text[] AS scope FROM batch AS b ORDER BY %sb.fp OFFSET $1 - 1',
                  simsql._for_scope(index, 't.%2$I AS %1$s, '), index.column_name, index.table_name, index.column_name,
                  simsql._for_scope(index, ' AND t.%2$I IS NOT NULL') || ' AND ' || simsql._guard(index),
                  (SELECT ' AND ' || simsql._from_place(index, b.scope, 't.%2$I', format('t.%I', index.column_name), '>',
                                                        format('%L::bigint', b.fp))
                     FROM simsql._built_to(index) AS b WHERE b.fp IS NOT NULL),
                  simsql._for_scope(index, '%1$s, '),
                  string_agg(format('keys_%1$s AS (INSERT INTO simsql.keys_%2$s_%1$s (%3$s) SELECT %4$s%5$s AS key FROM batch AS b '
                                    'ORDER BY %3$s)', p.number, index.id, simsql._name_list(simsql._key_columns(index)),
                                    simsql._for_scope(index, 'b.%1$s, '), simsql._permute('b.fp', p.lead_mask)),
                             ', ' ORDER BY p.number),
                  (SELECT string_agg(format('b.%s::text', c.name), ', ' ORDER BY c.number) FROM simsql._scope_columns(index) AS c),
                  simsql._for_scope(index, 'b.%1$s, '))
      FROM simsql._permutations(index.blocks, index.lead, index.inner_blocks) AS p
$$;

-- The share of the work that is done.
CREATE OR REPLACE FUNCTION simsql._built_share(index simsql.registry) RETURNS double precision
LANGUAGE sql STABLE
AS $$
    SELECT CASE WHEN index.storage = 'expression' THEN simsql._created_share(index)
                WHEN (simsql._built_to(index)).fp IS NULL THEN 0
                WHEN cardinality(index.scope_columns) = 0 THEN simsql._share((simsql._built_to(index)).fp)
                ELSE (SELECT least(0.99, simsql._keys_by_size(index) / greatest(1, c.reltuples))
                        FROM pg_class AS c WHERE c.oid = index.table_id) END
$$;

-- Adds the keys of the next fingerprints, in its own transaction, and returns the share of the work that is done. This is a
-- share of all possible fingerprints or, within scopes, of the estimated number of rows.
CREATE OR REPLACE FUNCTION simsql._build_batch(
    table_name regclass, column_name text, OUT ready boolean, OUT share double precision)
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashagg = off
SET max_parallel_workers_per_gather = 0 SET jit = off
-- So that a scope survives its conversion to text:
SET datestyle = 'ISO' SET intervalstyle = 'postgres' SET extra_float_digits = 1
AS $$
DECLARE
    index simsql.registry;
    last record;
    before double precision;
    following record;
BEGIN
    PERFORM simsql._take_turn(table_name, 'build');
    PERFORM simsql._hold(table_name);
    SELECT r.* INTO index
      FROM simsql.registry AS r
     WHERE r.table_id = _build_batch.table_name AND r.column_name = _build_batch.column_name;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'simsql.build: the simhash index on %(%) was dropped during the build', table_name, quote_ident(column_name)
            USING ERRCODE = 'undefined_object';
    END IF;
    ready := index.ready;
    share := 1;
    IF ready THEN
        RETURN;
    END IF;
    PERFORM simsql._check_sound(index, is_building => true);
    PERFORM simsql._check_upkeep(index, 'build');
    before := simsql._built_share(index);
    IF index.storage = 'expression' THEN
        following := simsql._next_statement(index, online => false);
        ready := following.statement IS NULL;
        IF NOT ready THEN
            PERFORM simsql._check_no_other_build(table_name);
            PERFORM simsql._check_no_concurrent_change(following.target, 'build');
            EXECUTE following.statement;
        END IF;
    ELSE
        PERFORM simsql._check_btree(index.table_id, simsql._btree_columns(index), 'build');
        -- Rows that are committed after this snapshot were written under the triggers.
        EXECUTE simsql._build_statement(index) INTO last USING simsql._batch_size();
        ready := last.fp IS NULL;
        IF ready THEN
            EXECUTE format('DROP TABLE simsql.built_%s', index.id);
        ELSE
            EXECUTE format('DELETE FROM simsql.built_%1$s; INSERT INTO simsql.built_%1$s VALUES (%2$L, %3$L)',
                           index.id, last.fp, last.scope);
        END IF;
    END IF;
    IF ready THEN
        UPDATE simsql.registry AS r SET ready = true WHERE r.id = index.id RETURNING r.* INTO index;
        PERFORM simsql._relearn_skew(index);
        PERFORM simsql._warn_of_locks(index, 'build');
    ELSE
        share := simsql._built_share(index);
        IF floor(20 * share) > floor(20 * before) THEN
            RAISE NOTICE 'simsql.build: % %% done', round(100 * share);
        END IF;
    END IF;
END
$$;

CREATE OR REPLACE PROCEDURE simsql.build(
    table_name regclass, column_name text, distance integer DEFAULT 3,
    blocks integer DEFAULT NULL, lead integer DEFAULT NULL, inner_blocks integer DEFAULT NULL, recipe text DEFAULT NULL,
    scope text[] DEFAULT '{}', storage text DEFAULT NULL)
LANGUAGE plpgsql
AS $$
DECLARE
    batch pg_catalog.record;
BEGIN
    CALL simsql._leave_transaction('build');
    COMMIT;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    PERFORM simsql._begin_build(build.table_name, build.column_name, build.distance, build.blocks, build.lead,
                                build.inner_blocks, build.recipe, build.scope, build.storage);
    LOOP
        COMMIT;
        SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
        batch := simsql._build_batch(build.table_name, build.column_name);
        EXIT WHEN batch.ready;
    END LOOP;
END
$$;

COMMENT ON PROCEDURE simsql.build(regclass, text, integer, integer, integer, integer, text, text[], text) IS
    'create a simhash index while others read and write, or resume an interrupted build';
