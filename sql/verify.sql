-- verify: lists what is wrong with indexes.

-- The faults of an index as verify and repair list them. Another role may be able to search the index.
CREATE OR REPLACE FUNCTION simsql._findings(index simsql.registry) RETURNS SETOF simsql.finding
LANGUAGE sql STABLE
AS $$
    SELECT index.table_name, index.column_name, f.problem, f.object, NULL::bigint, true, f.remedy
      FROM unnest(simsql._faults(index, thorough => true)) AS f
     WHERE f.effect <> 'refuses this role'
$$;

-- All faults of an index. With `sampled`, missing keys are those of a sample of its rows.
CREATE OR REPLACE FUNCTION simsql._verify_index(index simsql.registry, sampled boolean)
RETURNS SETOF simsql.finding
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    findings constant simsql.finding[] := ARRAY(SELECT v FROM simsql._findings(index) AS v);
    damaged constant text[] := ARRAY(
        SELECT f.object FROM unnest(findings) AS f
         WHERE f.problem IN ('key table missing', 'key table altered'));
    named simsql.registry;
BEGIN
    RETURN QUERY SELECT * FROM unnest(findings);
    IF index.ready AND NOT EXISTS (
        SELECT FROM unnest(findings) AS f
         WHERE f.problem IN ('index dropped', 'table dropped', 'table re-created', 'column dropped',
                             'column is no longer a stored bigint'))
    THEN
        named := simsql._as_named(index);
        RETURN QUERY
        SELECT index.table_name, index.column_name, 'keys missing', c.keys, c.missing, true,
               simsql._call('repair', ARRAY[index.table_id::text])
          FROM (SELECT s.keys, s.missing FROM simsql._storage_sample(named, damaged) AS s WHERE sampled
                 UNION ALL
                SELECT a.keys, a.missing FROM simsql._storage_compare(named, damaged) AS a WHERE NOT sampled) AS c
         WHERE c.missing > 0;
    END IF;
END
$$;

-- STABLE: all its reads share one snapshot.
CREATE OR REPLACE FUNCTION simsql.verify(table_name regclass DEFAULT NULL, column_name text DEFAULT NULL)
RETURNS SETOF simsql.finding
LANGUAGE plpgsql STABLE ROWS 10
SET plan_cache_mode = force_generic_plan  -- else each session plans long queries of the catalogue five times
AS $$
DECLARE
    index simsql.registry;
    full_name constant text := simsql._full_name(table_name);
    changed constant regclass := (
        SELECT r.table_id FROM simsql.registry AS r
         WHERE coalesce(r.table_id = verify.table_name, true) AND NOT simsql._sees_rows(r.table_id) LIMIT 1);
BEGIN
    IF changed IS NOT NULL AND simsql._takes_snapshots() THEN
        RETURN QUERY
        SELECT v.* FROM simsql._again(changed, format('verify(%L, %L)', table_name::oid, column_name))
                            AS v (table_name text, column_name text, problem text, object text, keys bigint, fault boolean,
                                  hint text);
        RETURN;
    END IF;
    IF table_name IS NULL THEN
        RETURN QUERY
        SELECT NULL, NULL, f.problem, f.object, NULL::bigint, true, f.remedy FROM simsql._installation_faults() AS f;
    END IF;
    FOR index IN
        SELECT r.* FROM simsql.registry AS r
         -- By name too: this finds the index of a table whose name another table has taken over.
         WHERE (verify.table_name IS NULL OR r.table_id = verify.table_name OR r.table_name = full_name)
           AND (verify.column_name IS NULL OR r.column_name = verify.column_name)
         ORDER BY r.id
    LOOP
        RETURN QUERY SELECT * FROM simsql._verify_index(index, sampled => false);
    END LOOP;
    IF NOT FOUND AND table_name IS NOT NULL THEN
        PERFORM simsql._index(table_name, column_name);
    ELSIF NOT FOUND THEN
        PERFORM simsql._raise(f) FROM unnest(simsql._registry_faults()) AS f;
        RAISE NOTICE 'simsql.verify: there are no simhash indexes';
    END IF;
END
$$;

COMMENT ON TYPE simsql.finding IS
    'a fault of an index: what is wrong with which object, how many keys it concerns, and what to do';
COMMENT ON FUNCTION simsql.verify(regclass, text) IS
    'list the faults of the indexes of one table or of all tables; no row means no fault';

CREATE OR REPLACE FUNCTION simsql.superfluous_keys(table_name regclass, column_name text DEFAULT NULL)
RETURNS bigint
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    index simsql.registry;
BEGIN
    IF NOT simsql._sees_rows(table_name) THEN
        RETURN (SELECT a.keys FROM simsql._again(table_name, format('superfluous_keys(%L, %L)', table_name::oid, column_name))
                                       AS a (keys bigint));
    END IF;
    index := simsql._index(table_name, column_name);
    PERFORM simsql._check_sees_all(table_name, 'superfluous_keys');
    RETURN (SELECT coalesce(sum(c.superfluous), 0) FROM simsql._storage_compare(index) AS c);
END
$$;

COMMENT ON FUNCTION simsql.superfluous_keys(regclass, text) IS
    'number of keys that simsql.vacuum would remove: keys without a row, and all but one of equal keys. '
    'Reads the table and all keys';
