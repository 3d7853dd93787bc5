-- claim: a search before an insert that holds beside other writers.
--
-- Two transactions that look for near-duplicates and then insert do not see each other's rows. So whoever is about
-- to insert locks the blocks of the fingerprint first. Fingerprints that differ in up to k bits agree in at least one of
-- k + 1 blocks: of two such claims, the second waits until the first transaction has ended, and then searches.

-- A hash that all values of a scope have in common which its columns take for equal.
CREATE FUNCTION simsql._scope_hash(index simsql.registry, scope jsonb) RETURNS bigint
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    hash bigint := 0;
BEGIN
    IF cardinality(index.scope_columns) > 0 THEN
        EXECUTE (SELECT format('SELECT hash_record_extended(ROW(%s), 0)',
                               string_agg(format('CAST(%L AS %s)%s', $2 ->> s.column_name, s.type,
                                                 ' COLLATE ' || nullif(a.attcollation, 0)::regcollation), ', ' ORDER BY s.number))
                   FROM simsql._scope_columns(index) AS s
                   JOIN pg_attribute AS a
                     ON a.attrelid = to_regclass(format('simsql.keys_%s_0', index.id)) AND a.attname = s.name)
           INTO hash;
    END IF;
    RETURN hash;
END
$$;

-- The advisory locks of a claim, in the order in which every claim takes them: so no two claims wait for one
-- another. A lock is a hash of the index, the scope, the number of blocks, the number of the block and its bits; where
-- two hashes are equal by chance, a claim waits in vain.
-- Claims at different distances have to meet too, where the nearer of them would find the other. So k is that of the index
-- for lower distances too, and for higher ones the number of blocks is doubled until it suffices; of each number
-- on the way all blocks are locked, because others may have stopped there. More blocks than bits are one lock for the index.
CREATE FUNCTION simsql._claim_locks(
    index_id integer, scope_hash bigint, fingerprint bigint, of_index integer, distance integer)
RETURNS SETOF bigint
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$
    SELECT hashtextextended(format('simsql.claim %s %s %s %s %s', $1, $2, blocks, number,
                                   substring($3::bit(64) FROM first + 1 FOR next - first)), 0) AS lock
      FROM generate_series(0, 7) AS doubled
     CROSS JOIN LATERAL CAST(least(($4 + 1) << doubled, 65) AS integer) AS blocks
     CROSS JOIN LATERAL generate_series(0, CASE WHEN blocks > 64 THEN 0 ELSE blocks - 1 END) AS number
     CROSS JOIN LATERAL (SELECT number * 64 / blocks AS first, (number + 1) * 64 / blocks AS next) AS bits
     WHERE doubled = 0 OR ($4 + 1) << (doubled - 1) <= least($5, 64)
     ORDER BY lock
$$;

CREATE FUNCTION simsql.claim(
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
    -- The search below is a statement of its own, with a snapshot from after the locks, because this function is
    -- VOLATILE and the transaction READ COMMITTED. With an older one it would not see what it has waited for.
    PERFORM simsql._check_read_committed('claim');
    index := simsql._searched_index($1, $4, $5);
    asked := simsql._distance($3, index.distance);
    FOR lock IN SELECT l FROM simsql._claim_locks(index.id, simsql._scope_hash(index, $5), $2, index.distance, asked) AS l LOOP
        PERFORM pg_advisory_xact_lock(lock);
    END LOOP;
    RETURN QUERY SELECT n.fingerprint, n.distance
                   FROM simsql.near($1, $2, asked, index.column_name, $5) AS n
                  ORDER BY n.distance, n.fingerprint LIMIT 1;
END
$$;

COMMENT ON FUNCTION simsql.claim(regclass, bigint, integer, text, jsonb) IS
    'before an insert: waits for other claims of near fingerprints to end, then gives the nearest one that a row has, or no row';
