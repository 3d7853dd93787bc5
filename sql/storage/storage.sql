-- What a storage is, and the one file that chooses between them.
--
-- A storage keeps what the searches of an index read. Each has a folder here, and does the operations below
-- in functions called simsql._<storage>_<operation>, all with the same parameters and results. The functions
-- of this file, _storage_<operation>, choose the storage. An operation that only one storage needs is one
-- function, in the folder of this storage, that does nothing for other indexes. Nothing outside sql/storage/
-- asks which storage an index has, and only a backfill, which needs no index, asks whether Citus manages a
-- table.
--
-- To add a storage, add
--   * a folder with these operations, and its files to install.sql;
--   * a branch to each choice of this file: without one, it is null and nothing happens;
--   * to change_storage.sql, how an index comes to it;
--   * its name to simsql.registry (schema.sql, and a revision in migrations/).
-- Everything else, such as the triggers of key tables, is the storage's own business. So is Citus: only
-- `expression` knows it.

-- The storage of a new index: the given one or, by default, the one that suits the table.
CREATE OR REPLACE FUNCTION simsql._storage(table_name regclass, storage text, caller text) RETURNS text
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    IF storage NOT IN ('tables', 'expression') THEN
        RAISE EXCEPTION 'simsql.%: storage must be tables or expression, not %', caller,
                        quote_literal(storage)
            USING ERRCODE = 'invalid_parameter_value',
                  HINT = 'Leave it out: the default is tables, and expression for a partitioned or '
                         'distributed table.';
    END IF;
    RETURN coalesce(storage, CASE WHEN simsql._is_distributed(table_name)
                                       OR (SELECT c.relkind FROM pg_class AS c WHERE c.oid = table_name) = 'p'
                                  THEN 'expression' ELSE 'tables' END);
END
$$;

-- refusal: why a table cannot have this storage, after its name, and what to do; null if it can.
CREATE OR REPLACE FUNCTION simsql._storage_refusal(
    storage text, table_name regclass, caller text, OUT reason text, OUT hint text)
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    CASE storage
        WHEN 'tables' THEN SELECT r.* INTO reason, hint FROM simsql._tables_refusal(table_name, caller) AS r;
        WHEN 'expression' THEN
            SELECT r.* INTO reason, hint FROM simsql._expression_refusal(table_name, caller) AS r;
    END CASE;
END
$$;

-- lock: the mode in which a table is locked while an index on it is created. CREATE INDEX CONCURRENTLY, which
-- fills B-trees `online`, keeps no writer waiting.
CREATE OR REPLACE FUNCTION simsql._storage_lock(storage text, online boolean) RETURNS text
LANGUAGE sql IMMUTABLE
RETURN CASE WHEN storage = 'expression' AND online THEN 'SHARE UPDATE EXCLUSIVE'
            ELSE 'SHARE ROW EXCLUSIVE' END;

-- create: creates what holds the keys of an index: filled, or for `build` to fill. Functions and triggers
-- come later.
CREATE OR REPLACE FUNCTION simsql._storage_create(index simsql.registry, filled boolean) RETURNS void
LANGUAGE sql
AS $$
    SELECT CASE index.storage WHEN 'tables' THEN simsql._tables_create(index, filled)
                              WHEN 'expression' THEN simsql._expression_create(index, filled) END
$$;

-- functions: all that are generated for an index: its searches, and those that its triggers call. Only key
-- tables need triggers.
CREATE OR REPLACE FUNCTION simsql._functions(index simsql.registry)
RETURNS TABLE (name text, arguments text, head text, settings text[], body text)
LANGUAGE sql STABLE
AS $$
    SELECT f.* FROM simsql._search_functions(index) AS f
     UNION ALL
    SELECT f.* FROM simsql._trigger_functions(index) AS f WHERE index.storage = 'tables'
$$;

-- build: does the next part of a build in this transaction, and returns whether nothing is left.
CREATE OR REPLACE FUNCTION simsql._storage_build(index simsql.registry) RETURNS boolean
LANGUAGE sql
AS $$
    SELECT CASE index.storage WHEN 'tables' THEN simsql._tables_build(index)
                              WHEN 'expression' THEN simsql._expression_build(index) END
$$;

-- progress: the share of a build that is done, from 0 to 1.
CREATE OR REPLACE FUNCTION simsql._storage_progress(index simsql.registry) RETURNS double precision
LANGUAGE sql STABLE
AS $$
    SELECT CASE index.storage WHEN 'tables' THEN simsql._tables_progress(index)
                              WHEN 'expression' THEN simsql._expression_progress(index) END
$$;

-- keys: the number of keys in the first table or B-tree, estimated from its size.
CREATE OR REPLACE FUNCTION simsql._storage_keys(index simsql.registry) RETURNS double precision
LANGUAGE sql STABLE
AS $$
    SELECT CASE index.storage WHEN 'tables' THEN simsql._tables_keys(index)
                              WHEN 'expression' THEN simsql._expression_keys(index) END
$$;

-- vacuum: does the next batch of a vacuum and returns its progress.
CREATE OR REPLACE FUNCTION simsql._storage_vacuum(index simsql.registry, state simsql._vacuum_state)
RETURNS simsql._vacuum_state
LANGUAGE sql
AS $$
    SELECT CASE index.storage WHEN 'tables' THEN simsql._tables_vacuum(index, state)
                              WHEN 'expression' THEN simsql._expression_vacuum(index, state) END
$$;

-- size: the bytes that the key tables, or the B-trees on prefixes, take on disk. Null on Citus, and while another
-- session locks one of them exclusively, such as ALTER TABLE or REINDEX: a monitor must not wait for that.
CREATE OR REPLACE FUNCTION simsql._storage_size(index simsql.registry) RETURNS bigint
LANGUAGE plpgsql STABLE
SET lock_timeout = '100ms'
AS $$
BEGIN
    RETURN CASE index.storage WHEN 'tables' THEN simsql._tables_size(index)
                              WHEN 'expression' THEN simsql._expression_size(index) END;
EXCEPTION
    WHEN lock_not_available THEN RETURN NULL;
END
$$;

-- advice: the share of what searches read that a vacuum would clean up, when the last one was, and what an
-- administrator should do; null if nothing. `need` names that: `vacuum` of the index, or `analyze` of its tables,
-- which `maintain` does, `visibility` of the pages of its table, or room for `locks`. It reads the catalogue and
-- the statistics alone, and no role needs privileges for that. Null while another session locks exclusively what
-- has to be measured.
CREATE OR REPLACE FUNCTION simsql._storage_advice(
    index simsql.registry, OUT unvacuumed double precision, OUT last_vacuum timestamptz, OUT hint text,
    OUT need text)
LANGUAGE plpgsql STABLE
SET lock_timeout = '100ms'
AS $$
BEGIN
    CASE index.storage
        WHEN 'tables' THEN
            SELECT a.* INTO unvacuumed, last_vacuum, hint, need FROM simsql._tables_advice(index) AS a;
        WHEN 'expression' THEN
            SELECT a.* INTO unvacuumed, last_vacuum, hint, need FROM simsql._expression_advice(index) AS a;
    END CASE;
EXCEPTION
    WHEN lock_not_available THEN NULL;
END
$$;

-- drop: drops everything that create_index creates, except for the B-tree on the user's column. An
-- interrupted change of the storage leaves some of each.
CREATE OR REPLACE FUNCTION simsql._drop_objects(index simsql.registry) RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    was_default boolean;
BEGIN
    PERFORM simsql._expression_drop(index);
    PERFORM simsql._tables_drop(index);
    PERFORM simsql._drop_searches(index.id);
    -- A former id is not registered.
    DELETE FROM simsql.registry AS r WHERE r.id = index.id RETURNING r.is_default INTO was_default;
    IF was_default THEN
        UPDATE simsql.registry AS r SET is_default = NULL WHERE r.table_id = index.table_id;
    END IF;
END
$$;

-- branches: a row for each permutation: its number, the SQL expression of its key for the fingerprint $1, the
-- bits of the key that a search flips, and the parts that the templates below use for it.
CREATE OR REPLACE FUNCTION simsql._storage_branches(index simsql.registry)
RETURNS TABLE (number integer, key text, flipped bigint, parts jsonb)
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    CASE index.storage
        WHEN 'tables' THEN RETURN QUERY SELECT b.* FROM simsql._tables_branches(index) AS b;
        WHEN 'expression' THEN RETURN QUERY SELECT b.* FROM simsql._expression_branches(index) AS b;
    END CASE;
END
$$;

-- reads: templates of what a search, a batch and a count read. In all of them $1 is a fingerprint, or the
-- fingerprints of a batch, and $2 the distance. Besides the parts of the branch, they may use those of _parts, and in
-- those of a search {is_match}, the condition of a match on a fingerprint, and {key_is_near} and {copy_is_near}, which
-- hold for the keys that may be matches.
--   exact, probes     one branch of a search: the lead bits are equal, or differ by one of {flips}
--   between           what stands between two branches
--   all               what a scan reads instead
--   matches           the statement of a search, from {source}: its branches or `all`
--   candidates, skip  only if the storage may hold copies, or fingerprints without rows: the statement that
--                     collects up to {candidate_limit} candidates from {source}, for `matches` to check, and
--                     a branch that skips copies
--   probing_pays      whether the index, or its scope, has {least_rows}; `probing_pays_in_scope` if that differs
--   flips             what stands for {flips} in a branch with the key {key}
--   settings          the settings of a search function, if they differ
--   batch             the statement of one permutation of a batch; r.fp is a query and r.fingerprint its match
--   size              counts keys up to the limit $1, or estimates them; `size_of_scope` if that differs
--   sample            returns a sample of fingerprints, with duplicates, in ascending order
--   count             counts, for the fingerprints $1, the other keys in the ranges of the flips $2
--   counts_rare_keys  whether `count` reads only these keys
--   fingerprints      returns all distinct fingerprints, in ascending order
CREATE OR REPLACE FUNCTION simsql._storage_reads(index simsql.registry) RETURNS jsonb
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    usual constant jsonb := jsonb_build_object(
        'flips', '{flips}',
        'counts_rare_keys', true,
        'fingerprints', $sql$
            SELECT ARRAY(SELECT DISTINCT t.{"column"} FROM {rows} AS t
                          WHERE t.{"column"} IS NOT NULL{scope_of_rows} AND {guard} ORDER BY 1)$sql$);
BEGIN
    RETURN usual || CASE index.storage WHEN 'tables' THEN simsql._tables_reads(index)
                                       WHEN 'expression' THEN simsql._expression_reads(index) END;
END
$$;

-- rows: what a search in the rows of an index reads, as FROM names it. Key tables hold the keys of one table
-- alone. Without them, a search reads partitions and inheritance children as plain SQL does.
CREATE OR REPLACE FUNCTION simsql._rows_of(index simsql.registry) RETURNS text
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN CASE index.storage WHEN 'tables' THEN 'ONLY ' ELSE '' END || index.table_name;
END
$$;

-- faults: those of what the storage keeps. `actual` is the index with the current names of its table and
-- columns, `index` with the registered ones. A quick look has to tell everything that makes searches refuse
-- the index.
CREATE OR REPLACE FUNCTION simsql._storage_faults(
    index simsql.registry, actual simsql.registry, thorough boolean)
RETURNS simsql._fault[]
LANGUAGE sql STABLE
AS $$
    SELECT CASE index.storage WHEN 'tables' THEN simsql._tables_faults(index, actual, thorough)
                              WHEN 'expression' THEN simsql._expression_faults(index, actual, thorough) END
$$;

-- compare: compares each key table with the rows: how many keys are missing, and how many a vacuum would
-- remove. PostgreSQL maintains B-trees, so _storage_compare is a function of `tables`, like _storage_sample.

-- mend: repairs these faults, `keys missing` among them, and returns the index, which may be another one by
-- then.
CREATE OR REPLACE FUNCTION simsql._storage_mend(index simsql.registry, faults simsql._fault[])
RETURNS simsql.registry
LANGUAGE sql
AS $$
    SELECT CASE index.storage WHEN 'tables' THEN simsql._tables_mend(index, faults)
                              WHEN 'expression' THEN simsql._expression_mend(index, faults) END
$$;
