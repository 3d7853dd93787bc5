-- What a storage is, and the one file that chooses between them.
--
-- A storage keeps what the searches of an index read. Each is a folder here and offers the same operations,
-- as functions called simsql._<storage>_<operation>. Nothing outside this folder asks which storage an index
-- has, or whether Citus manages its table.

-- faults: those of what the storage keeps. `actual` is the index with the current names of its table and
-- columns, `index` with the registered ones. A quick look has to tell everything that makes searches refuse
-- the index.
CREATE OR REPLACE FUNCTION simsql._storage_faults(
    index simsql.registry, actual simsql.registry, thorough boolean)
RETURNS simsql._fault[]
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    CASE index.storage
        WHEN 'tables' THEN RETURN simsql._tables_faults(index, actual, thorough);
        WHEN 'expression' THEN RETURN simsql._expression_faults(index, actual, thorough);
    END CASE;
END
$$;

-- mend: mends these faults and returns the index, which may be another one by then.
CREATE OR REPLACE FUNCTION simsql._storage_mend(index simsql.registry, faults simsql._fault[])
RETURNS simsql.registry
LANGUAGE plpgsql
AS $$
BEGIN
    CASE index.storage
        WHEN 'tables' THEN RETURN simsql._tables_mend(index, faults);
        WHEN 'expression' THEN RETURN simsql._expression_mend(index, faults);
    END CASE;
END
$$;

-- missing_keys: compares what the storage keeps with the rows, and reports what rows lack.
CREATE OR REPLACE FUNCTION simsql._storage_missing_keys(index simsql.registry) RETURNS SETOF simsql.finding
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    CASE index.storage
        WHEN 'tables' THEN RETURN QUERY SELECT f.* FROM simsql._tables_missing_keys(index) AS f;
        WHEN 'expression' THEN NULL;  -- PostgreSQL maintains B-trees
    END CASE;
END
$$;

-- add_keys: adds what rows lack, and reports it in the same way.
CREATE OR REPLACE FUNCTION simsql._storage_add_keys(index simsql.registry) RETURNS SETOF simsql.finding
LANGUAGE plpgsql
AS $$
BEGIN
    CASE index.storage
        WHEN 'tables' THEN RETURN QUERY SELECT f.* FROM simsql._tables_add_keys(index) AS f;
        WHEN 'expression' THEN NULL;
    END CASE;
END
$$;

-- superfluous_keys: the number of keys that a vacuum would remove.
CREATE OR REPLACE FUNCTION simsql._storage_superfluous_keys(index simsql.registry) RETURNS bigint
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    CASE index.storage
        WHEN 'tables' THEN RETURN simsql._tables_superfluous_keys(index);
        WHEN 'expression' THEN RETURN 0;
    END CASE;
END
$$;

-- Every index, and whether searches accept it. A search reads this in one statement: it takes a tenth of the
-- time of _faults, which is only called if the index is not certainly sound.
--
-- With key tables, the index is certainly sound if all of this is so: it is ready; the table has its name and
-- no child; its triggers fire as they should; the trigger that runs never names the columns; the first key
-- table exists, and is logged if the table is. (A publishable table is a logged one.) The triggers are read
-- in one scan: reading one takes as long as reading all. Each is compared as its name and a suffix: how it
-- fires, the names of its columns, or "!" for a trigger that never runs. Every trigger has a suffix, so no
-- other trigger can match.
CREATE OR REPLACE VIEW simsql._searchable AS
SELECT r.id, r.table_id, r.column_name, r.distance, r.scope_columns,
       (CASE r.storage WHEN 'tables' THEN
        r.ready
        AND NOT (SELECT c.relhassubclass FROM pg_class AS c WHERE c.oid = r.table_id)
        AND to_regclass(r.table_name) = r.table_id
        AND to_regproc('simsql.search_' || r.id) IS NOT NULL
        AND ARRAY(SELECT t.tgname || CASE
                         WHEN t.tgqual IS NULL THEN t.tgenabled::text
                         WHEN t.tgattr[0] IS NOT NULL THEN ARRAY[
                              simsql._column_name(t.tgrelid, t.tgattr[0]),
                              simsql._column_name(t.tgrelid, t.tgattr[1]),
                              simsql._column_name(t.tgrelid, t.tgattr[2]),
                              simsql._column_name(t.tgrelid, t.tgattr[3]),
                              simsql._column_name(t.tgrelid, t.tgattr[4])]::text
                         ELSE '!' END
                    FROM pg_trigger AS t WHERE t.tgrelid = r.table_id)
            @> ARRAY['simsql_' || r.id || '_insertA',
                     'simsql_' || r.id || '_updateA',
                     'simsql_' || r.id || '_replicaR',
                     'simsql_' || r.id || '_column'
                     || ARRAY[r.column_name, r.scope_columns[1], r.scope_columns[2],
                              r.scope_columns[3], r.scope_columns[4]]::text,
                     'simsql_' || r.id || '_no_parent!']
        AND (pg_relation_is_publishable(to_regclass('simsql.keys_' || r.id || '_0'))
             OR to_regclass('simsql.keys_' || r.id || '_0') IS NOT NULL
                AND NOT pg_relation_is_publishable(r.table_id))
        ELSE simsql._expression_is_sound(r)
        END) IS TRUE OR simsql._is_searchable(r) AS sound
  FROM simsql.registry AS r;

GRANT SELECT ON simsql._searchable TO PUBLIC;
