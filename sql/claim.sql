-- claim: a search before an insert that takes other writers into account.
--
-- Two transactions that search for near-duplicates and then insert do not see each other's rows. So claim first locks the
-- blocks of the fingerprint. Fingerprints that differ in up to k bits agree in at least one of k + 1 blocks. Of two such
-- claims, the second therefore waits for the first transaction to end, and then searches.

-- A hash of a scope. Scopes that the columns compare as equal have equal hashes.
CREATE OR REPLACE FUNCTION simsql._scope_hash(index simsql.registry, scope jsonb) RETURNS bigint
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    hash bigint := 0;
BEGIN
    IF cardinality(index.scope_columns) > 0 THEN
        EXECUTE (SELECT format('SELECT hash_record_extended(ROW(%s), 0)',
                               string_agg(format('CAST(%L AS %s)%s', scope ->> s.column_name, s.type,
                                                 ' COLLATE ' || nullif(a.attcollation, 0)::regcollation), ', ' ORDER BY s.number))
                   FROM simsql._scope_columns(index) AS s
                   JOIN pg_attribute AS a
                     ON a.attrelid = to_regclass(format('simsql.keys_%s_0', index.id)) AND a.attname = s.name)
           INTO hash;
    END IF;
    RETURN hash;
END
$$;

-- Any role can see the held advisory locks in pg_locks. A block has so few bits that a hash which anyone can compute would
-- reveal it. So a lock is a hash under a key, and the key is derived from a secret of this database.
--
-- The secret is in a materialized view because pg_dump does not read materialized views. So a role that cannot read the secret
-- can still dump the database, and a restore creates a new secret.
CREATE MATERIALIZED VIEW IF NOT EXISTS simsql._claim_secret AS
SELECT pg_catalog.sha256(pg_catalog.uuid_send(pg_catalog.gen_random_uuid())
                         || pg_catalog.uuid_send(pg_catalog.gen_random_uuid())) AS secret;

COMMENT ON MATERIALIZED VIEW simsql._claim_secret IS
    'the secret behind the locks of simsql.claim, readable only by its owner; REFRESH MATERIALIZED VIEW replaces it';

-- Default privileges may have granted SELECT on it to other roles.
DO $$
DECLARE
    grantee text;
BEGIN
    FOR grantee IN
        SELECT DISTINCT CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END
          FROM pg_class AS c CROSS JOIN LATERAL aclexplode(c.relacl) AS a
         WHERE c.oid = 'simsql._claim_secret'::regclass AND a.grantee <> c.relowner
    LOOP
        EXECUTE format('REVOKE ALL ON simsql._claim_secret FROM %s', grantee);
    END LOOP;
END
$$;

-- Creates the secret if there is none, as after a restore without data. It returns nothing, so any role may call it. REFRESH
-- waits for transactions that have read the old secret, so two secrets are never in use at once.
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

-- The key of each index whose columns the caller can read. The view reads the secret with the privileges of its owner, but
-- has_column_privilege checks those of the caller, which a SECURITY DEFINER function would not know. A role that can read the
-- column learns no more from the key than which fingerprints are being claimed. The input hashed with the secret always has the
-- same length, and only a part of each hash under the key is visible. So a plain hash of both, one after the other, is as safe
-- as HMAC.
CREATE OR REPLACE VIEW simsql._claim_keys WITH (security_barrier) AS
SELECT r.id AS index_id, pg_catalog.sha256(s.secret || pg_catalog.oidsend(d.oid) || pg_catalog.int4send(r.id)) AS key
  FROM simsql.registry AS r
  JOIN pg_catalog.pg_database AS d ON d.datname = pg_catalog.current_database()
 CROSS JOIN simsql._claim_secret AS s
 -- Columns are identified by number, as in the policy of the key tables: another column may take over the name.
 WHERE (SELECT pg_catalog.bool_and(pg_catalog.has_column_privilege(t.tgrelid, a.number, 'SELECT'))
          FROM pg_catalog.pg_trigger AS t
         CROSS JOIN pg_catalog.unnest(t.tgattr) AS a (number)
         WHERE t.tgrelid = r.table_id AND t.tgname = pg_catalog.format('simsql_%s_column', r.id));

COMMENT ON VIEW simsql._claim_keys IS
    'the keys behind the locks of simsql.claim, readable by roles that can read the columns of the index';

GRANT SELECT ON simsql._claim_keys TO PUBLIC;

-- The advisory locks of a claim. Every claim takes them in the same order, so claims cannot deadlock with each other. A lock is
-- a hash of the index, the scope, the number of blocks, the number of the block and its bits. If two hashes are equal by
-- chance, a claim waits needlessly.
-- Claims at different distances have to meet too, whenever the one with the lower distance would find the other. So lower
-- distances use the k of the index. For higher distances the number of blocks is doubled until it suffices, and the blocks of
-- every step are locked, because other claims may have stopped there. If there are more blocks than bits, a single lock covers
-- the whole index.
CREATE OR REPLACE FUNCTION simsql._claim_locks(
    index_id integer, scope_hash bigint, fingerprint bigint, of_index integer, distance integer)
RETURNS SETOF bigint
LANGUAGE plpgsql STRICT
AS $$
DECLARE
    secret_key bytea;
BEGIN
    IF NOT (SELECT c.relispopulated FROM pg_class AS c WHERE c.oid = 'simsql._claim_secret'::regclass) THEN
        PERFORM simsql._make_claim_secret();
    END IF;
    SELECT k.key INTO secret_key FROM simsql._claim_keys AS k WHERE k.index_id = _claim_locks.index_id;
    IF secret_key IS NULL THEN
        RAISE EXCEPTION 'simsql.claim: role % cannot read the columns of the simhash index %', current_user, index_id
            USING ERRCODE = 'insufficient_privilege', HINT = 'Grant SELECT on the fingerprint column and on the scope columns.';
    END IF;
    RETURN QUERY
    SELECT ('x' || encode(substring(sha256(secret_key || convert_to(format('%s %s %s %s', scope_hash, blocks, number, block),
                                                                    'UTF8')) FOR 8), 'hex'))::bit(64)::bigint AS lock
      FROM generate_series(0, 7) AS doubled
     CROSS JOIN LATERAL CAST(least((of_index + 1) << doubled, 65) AS integer) AS blocks
     CROSS JOIN LATERAL generate_series(0, CASE WHEN blocks > 64 THEN 0 ELSE blocks - 1 END) AS number
     CROSS JOIN LATERAL (SELECT number * 64 / blocks AS first, (number + 1) * 64 / blocks AS next) AS bits
     CROSS JOIN LATERAL substring(fingerprint::bit(64) FROM first + 1 FOR next - first) AS block
     WHERE doubled = 0 OR (of_index + 1) << (doubled - 1) <= least(distance, 64)
     ORDER BY lock;
END
$$;

CREATE OR REPLACE FUNCTION simsql.claim(
    table_name regclass, fingerprint bigint, distance integer DEFAULT NULL, column_name text DEFAULT NULL,
    scope jsonb DEFAULT NULL)
RETURNS SETOF simsql.match
LANGUAGE plpgsql VOLATILE ROWS 1
AS $$
DECLARE
    index simsql.registry;
    asked integer;
    lock bigint;
BEGIN
    -- The search below is a statement of its own. Its snapshot is taken after the locks, because this function is VOLATILE and
    -- the transaction is READ COMMITTED. An older snapshot would not show the rows that this call has waited for.
    PERFORM simsql._check_read_committed('claim');
    -- From here on the index cannot be dropped. If it were dropped and re-created while this call waits, claims on the new index
    -- would take different locks.
    PERFORM simsql._hold(table_name);
    index := simsql._searched_index(table_name, column_name, scope);
    asked := simsql._distance(distance, index.distance);
    FOR lock IN
        SELECT l
          FROM simsql._claim_locks(index.id, simsql._scope_hash(index, scope), fingerprint, index.distance, asked) AS l
    LOOP
        PERFORM pg_advisory_xact_lock(lock);
    END LOOP;
    RETURN QUERY SELECT n.fingerprint, n.distance
                   FROM simsql.near(table_name, claim.fingerprint, asked, index.column_name, scope) AS n
                  ORDER BY n.distance, n.fingerprint LIMIT 1;
END
$$;

COMMENT ON FUNCTION simsql.claim(regclass, bigint, integer, text, jsonb) IS
    'call it before an insert: waits for other claims of near fingerprints, then returns the nearest match, or no row';
