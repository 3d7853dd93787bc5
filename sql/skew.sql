-- Skew: how many keys a search really reads.
--
-- Fingerprints of texts are not random bits. Some prefixes are a hundred times as frequent as others, and a
-- search for a text is likely to meet those. So create_index, build and vacuum measure the keys that searches
-- for some of the stored fingerprints read, and keep one number for each distance in the registry. These
-- numbers are averages over the whole table and tell nothing about single rows. They decide only whether near
-- probes or scans; results do not depend on them.

-- The number of keys in the ranges of these fingerprints whose prefixes differ in `fewest` to `most` bits,
-- without keys equal to that of the fingerprint itself.
CREATE OR REPLACE FUNCTION simsql._count_keys(
    index simsql.registry, number integer, fingerprints bigint[], fewest integer, most integer)
RETURNS bigint
LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET enable_bitmapscan = off SET max_parallel_workers_per_gather = 0 SET jit = off
AS $$
DECLARE
    flips bigint[];
    parts jsonb;
    keys bigint;
BEGIN
    SELECT ARRAY(SELECT f FROM unnest(simsql._flips(b.flipped, most)) AS f
                  WHERE bit_count(f::bit(64)) >= fewest), b.parts
      INTO flips, parts
      FROM simsql._storage_branches(index) AS b WHERE b.number = _count_keys.number;
    EXECUTE simsql._render(simsql._storage_reads(index) ->> 'count', '{}',
                           simsql._parts(index, NULL) || parts)
       INTO keys USING fingerprints, flips;
    RETURN keys;
END
$$;

-- Measures an index and returns it with what was measured: for each distance from 0 to 64, the expected keys
-- in the ranges of a search for a stored fingerprint, as a share of all keys; it may exceed 1. Null if there
-- are fewer than a thousand keys. For each number of differing bits of a prefix, the share of other keys
-- follows from pairs of sampled keys. Where few such pairs are expected and found, the ranges of the B-tree are
-- counted instead: they hold few keys, even in a large table. Rare keys count as if they were random if the index has
-- a scope, since no range holds the keys of all scopes, or if the storage reads more than the ranges to count
-- them.
CREATE OR REPLACE FUNCTION simsql._learn_skew(index simsql.registry) RETURNS simsql.registry
LANGUAGE plpgsql
SET enable_hashagg = on SET max_parallel_workers_per_gather = 0 SET jit = off
AS $$
DECLARE
    percent double precision := least(100, 100 * 4000 / greatest(1, simsql._storage_keys(index)));
    sampled bigint[];
    queries bigint[];
    counted bigint[];
    others bigint[];
    keys double precision;
    permutation record;
    hits bigint[];
    pairs double precision;
    ways double precision;
    reached double precision[];
    common boolean;
    countable boolean;
    share double precision;
    shares double precision[] := array_fill(0::double precision, ARRAY[65]);
    reads constant jsonb := simsql._storage_reads(index);
    counts_rare_keys constant boolean := index.scope_columns = '{}'
                                         AND (reads -> 'counts_rare_keys')::boolean;
BEGIN
    <<measured>>
    BEGIN
        LOOP
            -- The share is part of the statement: Citus infers a wrong type for a parameter of TABLESAMPLE.
            EXECUTE simsql._render(reads ->> 'sample', jsonb_build_object('percent', percent),
                                   simsql._parts(index, NULL))
               INTO sampled;
            EXIT WHEN cardinality(sampled) >= 1000 OR percent = 100;
            percent := least(100, 10 * percent);  -- most of the table is free space
        END LOOP;
        keys := cardinality(sampled) * 100 / percent;
        IF keys < 1000 THEN
            shares := NULL;
            EXIT measured;
        END IF;
        queries := ARRAY(SELECT sampled[1 + n * cardinality(sampled) / 300]
                           FROM generate_series(0, 299) AS n ORDER BY n * 7 % 300);
        others := ARRAY(SELECT sampled[1 + n * cardinality(sampled) / 500] FROM generate_series(0, 499) AS n);
        FOR permutation IN
            SELECT p.* FROM simsql._permutations(index.blocks, index.lead, index.inner_blocks) AS p
        LOOP
            SELECT array_agg(coalesce(h.hits, 0) ORDER BY bits), sum(h.hits) INTO hits, pairs
              FROM generate_series(0, permutation.prefix) AS bits
              LEFT JOIN (SELECT bit_count(((q # o) & permutation.lead_mask)::bit(64)) AS bits,
                                count(*) AS hits
                           FROM unnest(queries) AS q CROSS JOIN unnest(others) AS o
                          WHERE q <> o
                          GROUP BY 1) AS h USING (bits);
            IF pairs IS NULL THEN  -- all keys are equal
                shares := NULL;
                EXIT measured;
            END IF;
            reached := '{}';
            common := false;
            countable := counts_rare_keys;
            FOR bits IN 0 .. permutation.prefix LOOP
                ways := CASE bits WHEN 0 THEN 1 ELSE ways * (permutation.prefix - bits + 1) / bits END;
                common := common OR greatest(hits[bits + 1],
                                             pairs * ways / 2::double precision ^ permutation.prefix) >= 50;
                -- Almost all bits can be flipped in few ways again, but flips of fewer bits are computed first.
                countable := countable AND ways <= 600;
                counted := queries[1:least(300, 30000 / ways)::integer];  -- at most 30,000 ranges
                share := CASE WHEN common THEN hits[bits + 1] / pairs
                              WHEN countable
                              THEN simsql._count_keys(index, permutation.number, counted, bits, bits)
                                   / (cardinality(counted) * keys)
                              ELSE greatest(hits[bits + 1] / pairs,
                                            ways / 2::double precision ^ permutation.prefix) END;
                reached := reached || coalesce(reached[bits], 0) + share;
            END LOOP;
            SELECT array_agg(shares[d + 1] + coalesce(reached[least(r.radius, permutation.prefix) + 1], 0)
                             ORDER BY d)
              INTO shares
              FROM generate_series(0, 64) AS d
             CROSS JOIN LATERAL simsql._radius(
                   index.blocks, index.lead, index.inner_blocks, permutation.number, d) AS r (radius);
        END LOOP;
    END;
    UPDATE simsql.registry AS r SET candidate_shares = shares
     WHERE r.id = index.id
    RETURNING r.* INTO index;
    RETURN index;
END
$$;

-- Measures an existing index again and replaces its search functions, if this role may.
CREATE OR REPLACE FUNCTION simsql._relearn_skew(index simsql.registry) RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    function record;
BEGIN
    IF NOT (has_table_privilege('simsql.registry', 'UPDATE') AND has_schema_privilege('simsql', 'CREATE'))
    THEN
        RETURN;
    END IF;
    index := simsql._learn_skew(index);
    FOR function IN
        SELECT f.* FROM simsql._search_functions(index) AS f
         WHERE to_regprocedure(format('simsql.%I%s', f.name, f.arguments)) IS NOT NULL
    LOOP
        PERFORM simsql._create_function(
            function.name, function.arguments, function.head, function.settings, function.body);
    END LOOP;
END
$$;

-- The number of fingerprints in a table, and a random sample of about `size` of them. The table needs no
-- index if the column is given.
CREATE OR REPLACE FUNCTION simsql._sampled_fingerprints(
    table_name regclass, column_name text, size integer, OUT rows bigint, OUT fingerprints bigint[])
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    sampled constant text := coalesce(column_name, (simsql._index(table_name, NULL)).column_name);
    shared constant jsonb := jsonb_build_object(
        'column', sampled, 'guard', simsql._guard(table_name::text, sampled),
        'rows', CASE WHEN EXISTS (SELECT FROM pg_class AS c WHERE c.oid = table_name AND c.relkind = 'r')
                     THEN 'ONLY ' ELSE '' END || table_name);
BEGIN
    EXECUTE simsql._render($sql$SELECT count(t.{"column"}) FROM {rows} AS t WHERE {guard}$sql$, '{}', shared)
       INTO rows;
    EXECUTE simsql._render($sql$SELECT ARRAY(
        SELECT t.{"column"} FROM {rows} AS t TABLESAMPLE bernoulli ({percent}) REPEATABLE (0)
         WHERE t.{"column"} IS NOT NULL AND {guard})$sql$,
        jsonb_build_object('percent', least(100, 100 * size / greatest(1, rows)::double precision)), shared)
       INTO fingerprints;
END
$$;
