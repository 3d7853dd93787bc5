-- claim: a search before an insert that takes other writers into account.
--
-- Two transactions that search for near-duplicates and then insert do not see each other's rows. So claim
-- first locks the blocks of the fingerprint. Fingerprints that differ in up to k bits agree in at least one
-- of k + 1 blocks. Of two such claims, the second therefore waits for the first transaction to end, and then
-- searches.

-- The statement that makes a hash of a scope. Scopes that the columns compare as equal have equal hashes.
CREATE OR REPLACE FUNCTION simsql._scope_statement(index_id integer, scope jsonb) RETURNS text
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN format('SELECT hash_record_extended(ROW(%s), 0)',
                  string_agg(format('CAST(%L AS %s)%s', scope ->> s.column_name, format_type(s.type, -1),
                                    ' COLLATE ' || nullif(a.attcollation, 0)::regcollation), ', ' ORDER BY s.number))
      FROM simsql.registry AS r
     CROSS JOIN LATERAL unnest(r.scope_columns, r.scope_types) WITH ORDINALITY AS s (column_name, type, number)
      JOIN pg_attribute AS a ON a.attrelid = r.table_id AND a.attname = s.column_name
     WHERE r.id = index_id;
END
$$;

-- Any role can see the held advisory locks in pg_locks. A block has so few bits that a hash which anyone can
-- compute would reveal it. So a lock is a hash under a key, and the key is derived from a secret of this
-- database.
--
-- The secret is in a materialized view because pg_dump does not read materialized views. So a role that
-- cannot read the secret can still dump the database, and a restore creates a new secret.
CREATE MATERIALIZED VIEW IF NOT EXISTS simsql._claim_secret AS
SELECT pg_catalog.sha256(pg_catalog.uuid_send(pg_catalog.gen_random_uuid())
                         || pg_catalog.uuid_send(pg_catalog.gen_random_uuid())) AS secret;

COMMENT ON MATERIALIZED VIEW simsql._claim_secret IS
    'the secret behind the locks of simsql.claim, readable only by its owner; '
    'REFRESH MATERIALIZED VIEW replaces it';

-- Creates the secret if there is none, as after a restore without data. It returns nothing, so any role may
-- call it. REFRESH waits for transactions that have read the old secret, so two secrets are never in use at
-- once.
CREATE OR REPLACE FUNCTION simsql._make_claim_secret() RETURNS void
LANGUAGE plpgsql SECURITY DEFINER
AS $$
BEGIN
    IF NOT (SELECT c.relispopulated FROM pg_catalog.pg_class AS c
             WHERE c.oid OPERATOR(pg_catalog.=) 'simsql._claim_secret'::pg_catalog.regclass)
    THEN
        REFRESH MATERIALIZED VIEW simsql._claim_secret;
    END IF;
END
$$;

-- Keeps the default index of a table the same until the end of the transaction. Claims in two indexes take
-- different locks, so set_default_index waits for the claims in one before others begin in the other.
CREATE OR REPLACE FUNCTION simsql._hold_default(table_name regclass) RETURNS void
LANGUAGE sql VOLATILE
RETURN pg_advisory_xact_lock_shared(hashtextextended('simsql.default', table_name::oid::bigint));

-- The index in which a claim will be, for a caller who makes the fingerprint for it.
CREATE OR REPLACE FUNCTION simsql._claimed_index(table_name regclass, column_name text)
RETURNS simsql.registry
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
    IF column_name IS NULL THEN
        PERFORM simsql._hold_default(table_name);
    END IF;
    RETURN simsql._index(table_name, column_name);
END
$$;

-- Whether the caller can read all columns of these names: few indexes need the query, and starting it takes time.
CREATE OR REPLACE FUNCTION simsql._reads_columns(table_id regclass, names text[]) RETURNS boolean
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN bool_and(has_column_privilege(a.attrelid, a.attnum, 'SELECT')) AND count(*) = cardinality(names)
      FROM pg_attribute AS a WHERE a.attrelid = table_id AND a.attname = ANY (names);
END
$$;

-- The key of each index whose columns the caller can read. The view reads the secret with the privileges of
-- its owner, but has_column_privilege checks those of the caller, which a SECURITY DEFINER function would not
-- know. A role that can read the column learns no more from the key than which fingerprints are being
-- claimed. The input hashed with the secret always has the same length, and only a part of each hash under
-- the key is visible. So a plain hash of both, one after the other, is as safe as HMAC.
--
-- Copies of a database have other keys: the file of a relation is in a folder with the OID of its database, and reading
-- pg_database takes longer than asking for that.
--
-- Whoever reads a key keeps loaders (see unique.sql) from the table until the end of the transaction. It is here because
-- a claim of 0.2.0 that runs on during an upgrade reads this view as the upgrade has replaced it: the upgrade waits for
-- transactions that have read it before.
CREATE OR REPLACE VIEW simsql._claim_keys WITH (security_barrier) AS
SELECT r.id AS index_id,
       CASE WHEN pg_catalog.pg_advisory_xact_lock_shared(simsql._loader_lock(r.table_id)) IS NOT NULL
            THEN pg_catalog.sha256(s.secret || pg_catalog.oidsend(pg_catalog.split_part(
                     pg_catalog.pg_relation_filepath(1259), '/', -2)::pg_catalog.oid) || pg_catalog.int4send(r.id)) END AS key,
       r.table_id, r.column_name, r.distance, r.scope_columns, r.is_default
  FROM simsql.registry AS r
 CROSS JOIN simsql._claim_secret AS s
 -- The companion trigger has the numbers of the fingerprint column and of up to four scope columns, as the policy of
 -- key tables uses them: another column may take over a name. Without key tables there is no such trigger, and the
 -- search itself reads the columns by name.
 WHERE pg_catalog.has_schema_privilege(
           (pg_catalog.pg_identify_object_as_address(1259, r.table_id, 0)).object_names[1], 'USAGE')
   AND CASE r.storage WHEN 'tables' THEN
       (SELECT pg_catalog.has_column_privilege(t.tgrelid, t.tgattr[0], 'SELECT')
               AND (t.tgattr[1] IS NULL OR pg_catalog.has_column_privilege(t.tgrelid, t.tgattr[1], 'SELECT'))
               AND (t.tgattr[2] IS NULL OR pg_catalog.has_column_privilege(t.tgrelid, t.tgattr[2], 'SELECT'))
               AND (t.tgattr[3] IS NULL OR pg_catalog.has_column_privilege(t.tgrelid, t.tgattr[3], 'SELECT'))
               AND (t.tgattr[4] IS NULL OR pg_catalog.has_column_privilege(t.tgrelid, t.tgattr[4], 'SELECT'))
          FROM pg_catalog.pg_trigger AS t
         WHERE t.tgrelid = r.table_id AND t.tgname::pg_catalog.text = 'simsql_' || r.id || '_column')
       ELSE simsql._reads_columns(r.table_id, r.column_name || r.scope_columns) END;

COMMENT ON VIEW simsql._claim_keys IS
    'the keys behind the locks of simsql.claim, readable by roles that can read the columns of the index';

-- The advisory locks of a claim. A lock is a hash of the scope, the number of blocks, the number of the block
-- and its bits, under the key of the index. If two hashes are equal by chance, a claim waits needlessly.
-- Every claim takes its locks in the same order, by the number of blocks and then by the number of the block,
-- so claims cannot deadlock with each other. Claims at different distances have to meet too, whenever the one
-- with the lower distance would find the other. So lower distances use the k of the index. For higher
-- distances the number of blocks is doubled until it suffices, and the blocks of every step are locked,
-- because other claims may have stopped there. If there are more blocks than bits, a single lock covers the
-- whole index.
CREATE OR REPLACE FUNCTION simsql._claim_locks(
    key bytea, scope_hash bigint, fingerprint bigint, of_index integer, distance integer)
RETURNS bigint[]
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
AS $$
DECLARE
    salted constant bytea := key || int8send(scope_hash);
    blocks integer := of_index + 1;
    block bigint;
    locks bigint[] := '{}';
BEGIN
    LOOP
        IF blocks > 64 THEN
            blocks := 65;
        END IF;
        FOR number IN 0 .. CASE blocks WHEN 65 THEN 0 ELSE blocks - 1 END LOOP
            -- The block moves to the front, and the bits behind it are cleared.
            block := CASE WHEN blocks < 65 THEN
                (fingerprint << (number * 64 / blocks))
                & (-1::bigint << (64 + number * 64 / blocks - (number + 1) * 64 / blocks)) ELSE 0 END;
            locks := locks || ('x' || left(encode(sha256(
                salted || int4send((blocks << 8) | number) || int8send(block)), 'hex'), 16))::bit(64)::bigint;
        END LOOP;
        IF blocks > distance THEN
            RETURN locks;
        END IF;
        blocks := 2 * blocks;
    END LOOP;
END
$$;

-- A claim that has found nothing, for later claims of the same statement: {time, tag, fingerprint}. A setting keeps
-- it, which any role can read that runs in the same transaction. So the fingerprint is encrypted, and the tag, which
-- only this index and scope have, is a hash. Of such an entry, it makes the original.
CREATE OR REPLACE FUNCTION simsql._claimed(salted bytea, at bigint, fingerprint bigint) RETURNS bigint[]
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN ARRAY[at, ('x' || right(encode(sha256(salted || int8send(at)), 'hex'), 16))::bit(64)::bigint,
             fingerprint # ('x' || left(encode(sha256(salted || int8send(at)), 'hex'), 16))::bit(64)::bigint];

CREATE OR REPLACE FUNCTION simsql.claim(
    table_name regclass, fingerprint bigint, distance integer DEFAULT NULL, column_name text DEFAULT NULL,
    scope jsonb DEFAULT NULL)
RETURNS SETOF simsql.match
LANGUAGE plpgsql VOLATILE ROWS 1
SET plan_cache_mode = force_generic_plan
AS $$
<<locals>>
DECLARE
    index_id integer;
    key bytea;
    indexed_column text;
    of_index integer;
    scope_columns text[];
    scope_statement text;
    scope_hash bigint := 0;
    salted bytea;
    asked integer;
    lock bigint;
    is_taken boolean;
    nearest simsql.match;
    statement constant bigint := 1000000 * extract(epoch FROM statement_timestamp());
    -- Anybody may set it to anything.
    claimed bigint[] := CASE WHEN current_setting('simsql.claimed', true) LIKE '{' || statement || ',%'
                             THEN current_setting('simsql.claimed') END;
    earlier bigint[];
    inserted simsql.match;
    at bigint;
    is_kept boolean;
BEGIN
    -- The search below is a statement of its own. Its snapshot is taken after the locks, because this
    -- function is VOLATILE and the transaction is READ COMMITTED. An older snapshot would not show the rows
    -- that this call has waited for.
    IF current_setting('transaction_isolation') <> 'read committed' OR pg_is_in_recovery() THEN
        PERFORM simsql._check_read_committed('claim');
    END IF;
    -- A SELECT for each lock would take twice as long as these expressions.
    is_taken := column_name IS NOT NULL OR simsql._hold_default(table_name) IS NOT NULL;
    LOOP
        BEGIN
            SELECT k.index_id, k.key, k.column_name, k.distance, k.scope_columns
              INTO STRICT index_id, key, indexed_column, of_index, scope_columns
              FROM simsql._claim_keys AS k
             WHERE k.table_id = claim.table_name
               AND simsql._is_meant(k.column_name, k.is_default, claim.column_name);
        EXCEPTION
            -- The last one: there is no secret. _index tells what is wrong with the index.
            WHEN no_data_found OR too_many_rows OR object_not_in_prerequisite_state THEN
                SELECT i.id INTO index_id FROM simsql._index(table_name, column_name) AS i;
                PERFORM simsql._make_claim_secret();
                SELECT k.key, k.column_name, k.distance, k.scope_columns
                  INTO key, indexed_column, of_index, scope_columns
                  FROM simsql._claim_keys AS k
                 WHERE k.index_id = locals.index_id;
                IF NOT FOUND THEN
                    RAISE EXCEPTION 'simsql.claim: role % cannot read the columns of the simhash index %',
                                    current_user, index_id
                        USING ERRCODE = 'insufficient_privilege',
                              HINT = 'Grant USAGE on the schema of the table, and SELECT on the fingerprint '
                                     'column and on the scope columns.';
                END IF;
            WHEN undefined_table THEN PERFORM simsql._refuse_worker('claim');
        END;
        IF scope IS NOT NULL OR scope_columns <> '{}' THEN
            IF (jsonb_typeof(scope) = 'object' AND scope_columns <> '{}' AND scope - scope_columns = '{}' AND scope ?& scope_columns
                AND NOT scope @? 'strict $.* ? (@ == null || @.type() == "array" || @.type() == "object")') IS NOT TRUE
            THEN
                PERFORM simsql._index_in_scope(table_name, indexed_column, scope);
            END IF;
            BEGIN
                scope_statement := simsql._scope_statement(index_id, scope);
                EXECUTE scope_statement INTO scope_hash;
            EXCEPTION WHEN OTHERS THEN
                PERFORM simsql._check_now(index_id, table_name);  -- another column may have taken over a name
                RAISE;
            END;
        END IF;
        asked := CASE WHEN distance BETWEEN 0 AND 64 THEN distance
                      ELSE simsql._distance(distance, of_index) END;
        FOREACH lock IN ARRAY coalesce(
            simsql._claim_locks(key, scope_hash, fingerprint, of_index, asked), '{}')
        LOOP
            is_taken := pg_advisory_xact_lock(lock) IS NOT NULL;
        END LOOP;
        -- A search that has to wait for the table starts again, with a snapshot that is later than the lock. Not so on
        -- Citus.
        IF current_setting('citus.version', true) IS NOT NULL THEN
            PERFORM simsql._wait_for(table_name);
        END IF;
        SELECT n.fingerprint, n.distance INTO nearest
          FROM simsql.near(table_name, claim.fingerprint, asked, indexed_column, scope) AS n LIMIT 1;
        -- It has locked the table: from here on nobody can drop the index or change the type of a scope column. If that
        -- happened before, other claims take different locks.
        EXIT WHEN EXISTS (
            SELECT FROM simsql.registry AS r
             WHERE r.id = index_id AND r.table_id = claim.table_name AND r.column_name = indexed_column
               AND (scope_statement IS NULL OR simsql._scope_statement(r.id, claim.scope) = scope_statement));
    END LOOP;
    -- What the caller's own statement inserts gets its keys at the end of that statement. So this looks in the table
    -- for the fingerprints that it has claimed. One without a row may be inserted later, after all claims.
    salted := key || int8send(scope_hash);
    IF claimed IS NOT NULL THEN
        earlier := ARRAY(
            SELECT c.claimed[3]
              FROM generate_series(2, cardinality(locals.claimed), 3) AS place
             CROSS JOIN LATERAL simsql._claimed(salted, locals.claimed[place], locals.claimed[place + 2])
                     AS c (claimed)
             WHERE c.claimed[2] = locals.claimed[place + 1]
               AND bit_count((c.claimed[3] # claim.fingerprint)::bit(64))
                   <= coalesce(nearest.distance - 1, asked));
        IF earlier <> '{}' THEN
            EXECUTE simsql._rows_statement(
                        (SELECT r FROM simsql.registry AS r WHERE r.id = locals.index_id), scope,
                        format('t.%1$I, bit_count((t.%1$I # $2)::bit(64))::integer', indexed_column)) || ' LIMIT 1'
               INTO inserted USING earlier, fingerprint;
            IF inserted.fingerprint IS NOT NULL THEN
                nearest := inserted;
            ELSIF nearest.fingerprint IS NULL THEN
                RAISE EXCEPTION 'simsql.claim: the same statement has claimed a near-duplicate and not inserted it'
                    USING ERRCODE = 'feature_not_supported',
                          HINT = 'Insert the row of each claim before the next claim: in one statement for each row, or in '
                                 'one that does not sort, so without ORDER BY.';
            END IF;
        END IF;
    ELSE
        claimed := ARRAY[statement];
    END IF;
    IF nearest.fingerprint IS NOT NULL THEN
        RETURN NEXT nearest;
    ELSIF fingerprint IS NOT NULL THEN
        at := 1000000 * extract(epoch FROM clock_timestamp());
        claimed := claimed || simsql._claimed(salted, at, fingerprint);
        is_kept := set_config('simsql.claimed', claimed::text, true) IS NOT NULL;  -- faster than PERFORM
    END IF;
END
$$;

COMMENT ON FUNCTION simsql.claim(regclass, bigint, integer, text, jsonb) IS
    'call it before an insert: waits for other claims of near fingerprints, '
    'then returns the nearest match, or no row';
