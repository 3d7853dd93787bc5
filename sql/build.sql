-- build: creates an index while others read and write.
--
-- Tables, B-trees and triggers come first and are committed. From then on, every writer adds keys, so only
-- the keys of rows that were committed before are missing. Batches add them in order of scope and
-- fingerprint, not in the physical order of rows: an update moves a row, but if it changes neither scope nor
-- fingerprint, it adds no key. Each batch commits its progress, so an interrupted build resumes there.
-- `ready` is committed with the last batch, and a snapshot that does not see it does not search.
--
-- With the storage `expression`, a batch creates one B-tree, on one table or partition, and its writers wait.
-- PostgreSQL does not run CREATE INDEX CONCURRENTLY in a procedure, so clients run the statements of
-- _next_statement themselves, until there is none.

-- Raises an error if a client is creating B-trees on this table, and keeps clients from it until the end of
-- the transaction. CREATE INDEX CONCURRENTLY waits for our snapshot, so we would deadlock if we waited for
-- its lock on the table.
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

-- Registers an index and creates its objects, or finds the one that an earlier build has started with these
-- arguments. Returns its id. Builds take turns here, as they do for batches: otherwise two builds that start
-- together would both find no index. If the other build has finished in the meantime, there is nothing left
-- to do.
CREATE OR REPLACE FUNCTION simsql._begin_build(
    table_name regclass, column_name text, distance integer, blocks integer, lead integer,
    inner_blocks integer, recipe text, scope text[] DEFAULT '{}', storage text DEFAULT NULL,
    sources jsonb DEFAULT NULL)
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
                           OR inner_blocks <> index.inner_blocks
                           OR recipe IS NOT NULL AND recipe IS DISTINCT FROM index.recipe
                           OR coalesce(scope, '{}') <> index.scope_columns OR storage <> index.storage
                           OR sources IS NOT NULL
                              AND nullif(sources, '{}') IS DISTINCT FROM index.sources;
    IF index.id IS NULL OR index.ready AND (was_ready OR has_other_arguments) THEN
        IF table_name IS NOT NULL THEN
            PERFORM simsql._check_no_other_build(table_name);
        END IF;
        index := simsql._register(table_name, column_name, distance, blocks, lead, inner_blocks, recipe,
                                  scope, storage, sources, online => true);
        PERFORM simsql._storage_create(index, filled => false);
        PERFORM simsql._create_functions(index);
        PERFORM simsql._create_triggers(index);
        PERFORM simsql._clear_stale(index);
        PERFORM simsql._give(index, current_user::regrole);
        PERFORM simsql._stamp(index.id);
    ELSIF has_other_arguments THEN
        RAISE EXCEPTION 'simsql.build: an unfinished build of the simhash index on %(%) has other arguments',
                        table_name, quote_ident(column_name)
            USING ERRCODE = 'duplicate_object',
                  HINT = format('Finish it: %s Or drop it first: %s', simsql._build_call(index),
                                simsql._call('drop_index', ARRAY[table_name::text, column_name]));
    END IF;
    RETURN index.id;
END
$$;

-- Adds the keys of the next fingerprints, in its own transaction, and returns the share of the work that is
-- done. This is a share of all possible fingerprints or, within scopes, of the estimated number of rows.
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
    stamped simsql.registry;
    before double precision;
BEGIN
    PERFORM simsql._take_turn(table_name, 'build');
    PERFORM simsql._hold(table_name);
    SELECT r.* INTO index
      FROM simsql.registry AS r
     WHERE r.table_id = _build_batch.table_name AND r.column_name = _build_batch.column_name;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'simsql.build: the simhash index on %(%) was dropped during the build', table_name,
                        quote_ident(column_name)
            USING ERRCODE = 'undefined_object';
    END IF;
    ready := index.ready;
    share := 1;
    IF ready THEN
        RETURN;
    END IF;
    stamped := simsql._stamped(index);  -- first: this batch may miss rows if somebody disables triggers meanwhile
    PERFORM simsql._check_sound(index, is_building => true);
    PERFORM simsql._check_upkeep(index, 'build');
    before := simsql._storage_progress(index);
    ready := simsql._storage_build(index);
    IF ready THEN
        UPDATE simsql.registry AS r SET ready = true WHERE r.id = index.id RETURNING r.* INTO index;
        PERFORM simsql._stamp(stamped);
        PERFORM simsql._relearn_skew(index);
    ELSE
        share := simsql._storage_progress(index);
        IF floor(20 * share) > floor(20 * before) THEN
            RAISE NOTICE 'simsql.build: % %% done', round(100 * share);
        END IF;
    END IF;
END
$$;

CREATE OR REPLACE PROCEDURE simsql.build(
    table_name regclass, column_name text, distance integer DEFAULT 3,
    blocks integer DEFAULT NULL, lead integer DEFAULT NULL, inner_blocks integer DEFAULT NULL,
    recipe text DEFAULT NULL, scope text[] DEFAULT '{}', storage text DEFAULT NULL,
    sources jsonb DEFAULT NULL)
LANGUAGE plpgsql
AS $$
DECLARE
    batch pg_catalog.record;
BEGIN
    CALL simsql._leave_transaction('build');
    COMMIT;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    PERFORM simsql._begin_build(build.table_name, build.column_name, build.distance, build.blocks, build.lead,
                                build.inner_blocks, build.recipe, build.scope, build.storage,
                                build.sources);
    LOOP
        COMMIT;
        SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
        batch := simsql._build_batch(build.table_name, build.column_name);
        EXIT WHEN batch.ready;
    END LOOP;
END
$$;

COMMENT ON PROCEDURE simsql.build(regclass, text, integer, integer, integer, integer, text, text[], text,
                                  jsonb) IS
    'create a simhash index while others read and write, or resume an interrupted build';
