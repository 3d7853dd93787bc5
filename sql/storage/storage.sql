-- What a storage is, and the one file that chooses between them.
--
-- A storage keeps what the searches of an index read. Each is a folder here and offers the same operations, as functions called
-- simsql._<storage>_<operation>. Nothing outside this folder asks which storage an index has, or whether Citus manages its table.

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
-- fingerprints of a batch, and $2 the distance. Besides the parts of the branch, they may use those of _parts.
--   exact, probes     one branch of a search: the lead bits are equal, or differ by one of {flips}
--   between           what stands between two branches
--   all               what a scan reads instead
--   matches           the statement of a search, from {source}: its branches or `all`
--   candidates, skip  only if the storage may hold copies, or fingerprints without rows: the statement that
--                     collects up to {candidate_limit} candidates from {source}, for `matches` to check, and
--                     a branch that skips copies
--   pays              whether the index, or its scope, has {least_rows}; `pays_in_scope` if that differs
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
    CASE index.storage
        WHEN 'tables' THEN RETURN usual || simsql._tables_reads(index);
        WHEN 'expression' THEN RETURN usual || simsql._expression_reads(index);
    END CASE;
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
