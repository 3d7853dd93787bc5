-- build for B-trees: creates them one by one, each on one table or partition.

-- The next statement that makes the plain B-tree of a partitioned table valid, and the table or partition
-- that it locks; null if there is none. CREATE INDEX attaches an invalid B-tree of a partition as it is, such
-- as that of a failed CREATE INDEX CONCURRENTLY, and then its own is invalid too. PostgreSQL checks again
-- whether it is valid at every ATTACH PARTITION, even of a B-tree that is attached already. It never is if a
-- partition is a foreign table or has no such B-tree. Before 14.9 and 15.4 PostgreSQL did not check: there
-- the index gets another B-tree.
CREATE OR REPLACE FUNCTION simsql._validating_statement(
    index simsql.registry, online boolean, OUT statement text, OUT target regclass)
LANGUAGE plpgsql STABLE
AS $$
#variable_conflict use_variable
DECLARE
    version constant integer := current_setting('server_version_num')::integer;
    root regclass;
BEGIN
    FOR root IN
        SELECT b.index FROM simsql._btrees(index.table_id, simsql._btree_columns(index)) AS b
          JOIN pg_index AS i ON i.indexrelid = b.index
          JOIN pg_class AS c ON c.oid = b.index
         WHERE c.relkind = 'I' AND NOT b.valid AND NOT i.indisunique
           AND (SELECT count(*) FROM pg_partition_tree(b.index))
               = (SELECT count(*) FROM pg_partition_tree(index.table_id))
    LOOP
        SELECT format('REINDEX INDEX%s %s', CASE WHEN online THEN ' CONCURRENTLY' END, t.relid), i.indrelid
          INTO statement, target
          FROM pg_partition_tree(root) AS t JOIN pg_index AS i ON i.indexrelid = t.relid
         WHERE t.isleaf AND NOT i.indisvalid LIMIT 1;
        IF statement IS NULL AND (version >= 150004 OR version BETWEEN 140009 AND 149999) THEN
            SELECT format('ALTER INDEX %s ATTACH PARTITION %s', t.parentrelid, t.relid), index.table_id
              INTO statement, target
              FROM pg_partition_tree(root) AS t
              JOIN pg_index AS child ON child.indexrelid = t.relid
              JOIN pg_index AS parent ON parent.indexrelid = t.parentrelid
             WHERE child.indisvalid AND NOT parent.indisvalid ORDER BY t.level DESC LIMIT 1;
        END IF;
        EXIT WHEN statement IS NOT NULL;
    END LOOP;
END
$$;

-- The next statement of a build and the table or partition that it locks, or null if there is nothing left to
-- do. A build creates the B-tree on the fingerprint column first and then those of the permutations; those of
-- a partitioned table on one partition after another. Then CREATE INDEX on the partitioned table itself finds
-- an equal B-tree on each partition, and only attaches them. An invalid B-tree on the fingerprint column
-- stays: it may be the user's, or another session may be building it.
CREATE OR REPLACE FUNCTION simsql._next_statement(
    index simsql.registry, online boolean, OUT statement text, OUT target regclass)
LANGUAGE plpgsql STABLE
AS $$
#variable_conflict use_variable
DECLARE
    plain constant text[] := simsql._btree_columns(index);
    quoted constant text[] := ARRAY(
        SELECT quote_ident(c.name) FROM unnest(plain) WITH ORDINALITY AS c (name, place) ORDER BY c.place);
    partitions constant regclass[] := ARRAY(
        SELECT p.relid FROM pg_partition_tree(index.table_id) AS p JOIN pg_class AS c ON c.oid = p.relid
         WHERE p.isleaf AND c.relkind = 'r' ORDER BY p.relid);
    is_partitioned constant boolean := (
        SELECT c.relkind = 'p' FROM pg_class AS c WHERE c.oid = index.table_id);
    drop_it constant text := CASE WHEN online THEN 'DROP INDEX CONCURRENTLY IF EXISTS %s'
                                  ELSE 'DROP INDEX IF EXISTS %s' END;
    expected record;
    btree regclass;
BEGIN
    IF NOT EXISTS (SELECT FROM simsql._btrees(index.table_id, plain) AS b WHERE b.valid) THEN
        SELECT v.statement, v.target INTO statement, target
          FROM simsql._validating_statement(index, online) AS v;
        IF statement IS NOT NULL THEN
            RETURN;
        END IF;
        FOREACH target IN ARRAY CASE WHEN is_partitioned THEN partitions ELSE ARRAY[index.table_id] END LOOP
            CONTINUE WHEN EXISTS (SELECT FROM simsql._btrees(target, plain) AS b WHERE b.valid);
            statement := simsql._create_btree(target::text, NULL, quoted, online);
            RETURN;
        END LOOP;
        target := index.table_id;
        statement := simsql._create_btree(index.table_name, NULL, quoted);
        RETURN;
    END IF;
    FOR expected IN SELECT * FROM simsql._faulty_btrees(index) LOOP
        target := index.table_id;
        IF expected.btree IS NOT NULL THEN
            statement := format(CASE WHEN is_partitioned THEN 'DROP INDEX IF EXISTS %s' ELSE drop_it END,
                                expected.btree);
            RETURN;
        END IF;
        IF NOT is_partitioned THEN
            statement := simsql._create_btree(index.table_name, expected.name, expected.columns, online);
            RETURN;
        END IF;
        FOREACH target IN ARRAY partitions LOOP
            btree := simsql._index_named(target, expected.name || '_' || target::oid);
            IF btree IS NULL THEN
                statement := simsql._create_btree(target::text, expected.name || '_' || target::oid,
                                                  expected.columns, online);
                RETURN;
            ELSIF NOT (SELECT i.indisvalid FROM pg_index AS i WHERE i.indexrelid = btree)
                  OR NOT simsql._is_btree_on(btree, expected.columns)
            THEN
                statement := format(drop_it, btree);
                RETURN;
            END IF;
        END LOOP;
        SELECT format(CASE l.kind WHEN 'i' THEN drop_it ELSE 'DROP INDEX %s' END, l.btree), l.target
          INTO statement, target
          FROM simsql._leftover_btrees(index.table_id, expected.columns) AS l LIMIT 1;
        IF NOT FOUND THEN
            target := index.table_id;
            statement := simsql._create_btree(index.table_name, expected.name, expected.columns);
        END IF;
        RETURN;
    END LOOP;
END
$$;

CREATE OR REPLACE FUNCTION simsql._expression_progress(index simsql.registry) RETURNS double precision
LANGUAGE sql STABLE
AS $$
    SELECT 1 - (SELECT count(DISTINCT v.number) FROM simsql._verify_btrees(index) AS v)
               / simsql._table_count(index.blocks, index.lead, index.inner_blocks)::double precision
$$;

-- Creates the next B-tree, on one table or partition, whose writers wait.
CREATE OR REPLACE FUNCTION simsql._expression_build(index simsql.registry) RETURNS boolean
LANGUAGE plpgsql
AS $$
DECLARE
    following constant record := simsql._next_statement(index, online => false);
BEGIN
    IF following.statement IS NULL THEN
        PERFORM simsql._warn_of_locks(index.table_id, 'build');
        RETURN true;
    END IF;
    PERFORM simsql._check_no_other_build(index.table_id);
    PERFORM simsql._check_no_concurrent_change(following.target, 'build');
    EXECUTE following.statement;
    RETURN false;
END
$$;
