-- build: creates an index while others read and write.
--
-- Tables, B-trees and triggers come first, and are committed. From then on every writer adds keys, and all that
-- is missing are those of rows that were committed before. They are filled in in ranges of the fingerprint, not of
-- the row's place: a row that is updated moves, and where its fingerprint stays the same, that adds no key. Each
-- batch commits how far it has come, so a build that was interrupted goes on there. `ready` is committed with
-- the last batch, and a snapshot that does not see it does not search.

-- Registers an index and creates its objects, or finds the unfinished index that was begun with these arguments.
-- Returns its id.
CREATE FUNCTION simsql._begin_build(
    table_name regclass, column_name text, distance integer, blocks integer, lead integer, inner_blocks integer,
    recipe text)
RETURNS integer
LANGUAGE plpgsql
AS $$
DECLARE
    index simsql.registry;
BEGIN
    SELECT r.* INTO index FROM simsql.registry AS r WHERE r.table_id = $1 AND r.column_name = $2 AND NOT r.ready;
    IF NOT FOUND THEN
        index := simsql._register($1, $2, $3, $4, $5, $6, $7, online => true);
        PERFORM simsql._create_keys(index, filled => false);
        PERFORM simsql._create_functions(index);
        PERFORM simsql._create_triggers(index);
    ELSIF $3 <> index.distance OR $4 <> index.blocks OR $5 <> index.lead OR $6 <> index.inner_blocks
          OR $7 <> index.recipe
    THEN
        RAISE EXCEPTION 'simsql.build: an unfinished build of the index on %(%) has other arguments', $1, quote_ident($2)
            USING ERRCODE = 'duplicate_object',
                  HINT = format('Go on with it: %s Or drop it first: SELECT simsql.drop_index(%L, %L);',
                                simsql._build_call(index), $1, $2);
    END IF;
    RETURN index.id;
END
$$;

-- Fills in the keys of the next fingerprints, in a transaction of its own, and tells which share of all possible
-- fingerprints is done.
CREATE FUNCTION simsql._build_batch(
    table_name regclass, column_name text, OUT ready boolean, OUT share double precision)
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashagg = off
SET max_parallel_workers_per_gather = 0 SET jit = off
AS $$
DECLARE
    index simsql.registry;
    permutation record;
    fingerprints bigint[];
    last bigint;
BEGIN
    PERFORM simsql._take_turn($1, 'build');
    PERFORM simsql._hold($1);
    SELECT r.* INTO index FROM simsql.registry AS r WHERE r.table_id = $1 AND r.column_name = $2;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'simsql.build: the simhash index on %(%) was dropped meanwhile', $1, quote_ident($2)
            USING ERRCODE = 'undefined_object';
    END IF;
    ready := index.ready;
    share := 1;
    IF ready THEN
        RETURN;
    END IF;
    PERFORM simsql._check_sound(index);
    PERFORM simsql._check_upkeep(index, 'build');
    PERFORM simsql._check_btree(index.table_id, index.column_name, 'build');
    -- What is committed after this snapshot was written under the triggers.
    EXECUTE format('SELECT ARRAY(SELECT DISTINCT t.%1$I FROM ONLY %2$s AS t WHERE t.%1$I %3$s ORDER BY 1 LIMIT $1)',
                   index.column_name, index.table_name,
                   CASE WHEN index.built_to IS NULL THEN 'IS NOT NULL' ELSE format('> %L::bigint', index.built_to) END)
       INTO fingerprints
      USING simsql._batch_size();
    FOR permutation IN SELECT * FROM simsql._permutations(index.blocks, index.lead, index.inner_blocks) LOOP
        EXECUTE format('INSERT INTO simsql.%I SELECT %s AS key FROM unnest($1) AS f ORDER BY key',
                       format('keys_%s_%s', index.id, permutation.number), simsql._permute('f', permutation.lead_mask))
          USING fingerprints;
    END LOOP;
    last := fingerprints[simsql._batch_size()];
    ready := last IS NULL;
    UPDATE simsql.registry AS r SET ready = _build_batch.ready, built_to = last WHERE r.id = index.id;
    IF NOT ready THEN
        share := simsql._share(last);
        IF floor(20 * share) > floor(20 * coalesce(simsql._share(index.built_to), 0)) THEN
            RAISE NOTICE 'simsql.build: % %% done', round(100 * share);
        END IF;
    END IF;
END
$$;

CREATE PROCEDURE simsql.build(
    table_name regclass, column_name text, distance integer DEFAULT 3,
    blocks integer DEFAULT NULL, lead integer DEFAULT NULL, inner_blocks integer DEFAULT NULL, recipe text DEFAULT NULL)
LANGUAGE plpgsql
AS $$
DECLARE
    batch record;
BEGIN
    CALL simsql._leave_transaction('build');
    COMMIT;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    PERFORM simsql._begin_build($1, $2, $3, $4, $5, $6, $7);
    LOOP
        COMMIT;
        SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
        batch := simsql._build_batch($1, $2);
        EXIT WHEN batch.ready;
    END LOOP;
END
$$;

COMMENT ON PROCEDURE simsql.build(regclass, text, integer, integer, integer, integer, text) IS
    'create a simhash index while others read and write, or go on with a build that was interrupted';
