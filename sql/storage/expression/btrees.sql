-- The storage `expression`: instead of key tables and triggers, one B-tree per permutation on the user's
-- table.
--
-- Such a B-tree holds the scope columns, the lead bits of the fingerprint where they stand, and the
-- fingerprint, so a search reads nothing else. PostgreSQL maintains it for every writer, and creates it on
-- every partition that is added or attached. So no search misses a row: without a B-tree, it is only slow.

-- The B-trees that an index should have: their names, in the schema of the table, and their columns, as
-- pg_get_indexdef shows them.
CREATE OR REPLACE FUNCTION simsql._expected_btrees(index simsql.registry)
RETURNS TABLE (number integer, name text, columns text[])
LANGUAGE sql STABLE
AS $$
    SELECT p.number, format('simsql_%s_%s', index.id, p.number),
           ARRAY(SELECT quote_ident(s.name)
                   FROM unnest(index.scope_columns) WITH ORDINALITY AS s (name, place) ORDER BY s.place)
           || format('((%I & %L::bigint))', index.column_name, p.lead_mask) || quote_ident(index.column_name)
      FROM simsql._permutations(index.blocks, index.lead, index.inner_blocks) AS p
     WHERE index.storage = 'expression'
$$;

CREATE OR REPLACE FUNCTION simsql._index_named(table_id regclass, name text) RETURNS regclass
LANGUAGE sql STABLE
AS $$
    SELECT i.indexrelid::regclass
      FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid
     WHERE i.indrelid = table_id AND c.relname = name
$$;

-- Whether an index, valid or not, is a B-tree on these columns and covers all rows.
CREATE OR REPLACE FUNCTION simsql._is_btree_on(btree regclass, columns text[]) RETURNS boolean
LANGUAGE sql STABLE
AS $$
    SELECT m.amname = 'btree' AND i.indpred IS NULL
           AND columns = ARRAY(SELECT pg_get_indexdef(i.indexrelid, place, false)
                                 FROM generate_series(1, i.indnkeyatts) AS place
                                ORDER BY place)
           AND NOT EXISTS (
               SELECT FROM unnest(i.indkey, i.indcollation, i.indclass) AS k (attnum, collation_id, class_id)
                 JOIN pg_opclass AS o ON o.oid = k.class_id
                 LEFT JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
                WHERE NOT o.opcdefault OR k.collation_id <> a.attcollation)
      FROM pg_index AS i
      JOIN pg_class AS c ON c.oid = i.indexrelid
      JOIN pg_am AS m ON m.oid = c.relam
     WHERE i.indexrelid = btree
$$;

-- A table or index, and everything below it if it is partitioned. pg_partition_tree would lock all
-- partitions.
CREATE OR REPLACE FUNCTION simsql._with_partitions(root regclass) RETURNS SETOF regclass
LANGUAGE sql STABLE
AS $$
    WITH RECURSIVE tree (relid) AS (
        SELECT root::oid WHERE root IS NOT NULL
         UNION ALL
        SELECT i.inhrelid
          FROM tree
          JOIN pg_class AS c ON c.oid = tree.relid AND c.relkind IN ('p', 'I')
          JOIN pg_inherits AS i ON i.inhparent = tree.relid AND NOT i.inhdetachpending)
    SELECT relid::regclass FROM tree
$$;

-- Reports the B-trees that differ from what create_index made. That of a partitioned table is invalid until
-- each partition has one. A foreign table has none. Those of shards include the plain B-tree, which has no
-- number.
CREATE OR REPLACE FUNCTION simsql._verify_btrees(index simsql.registry, on_shards boolean DEFAULT true)
RETURNS TABLE (number integer, problem text, object text)
LANGUAGE plpgsql STABLE
AS $$
#variable_conflict use_column
DECLARE
    expected record;
    btree regclass;
BEGIN
    FOR expected IN SELECT * FROM simsql._expected_btrees(index) AS e ORDER BY e.number LOOP
        btree := simsql._index_named(index.table_id, expected.name);
        IF btree IS NULL OR NOT simsql._is_btree_on(btree, expected.columns) THEN
            RETURN QUERY
            SELECT expected.number,
                   CASE WHEN btree IS NULL THEN 'search B-tree missing' ELSE 'search B-tree altered' END,
                   coalesce(btree::text, expected.name);
            CONTINUE;
        END IF;
        RETURN QUERY
        SELECT expected.number, 'search B-tree invalid', b::text
          FROM simsql._with_partitions(btree) AS b JOIN pg_index AS i ON i.indexrelid = b
         WHERE NOT i.indisvalid
         UNION ALL
        SELECT expected.number, 'partition without search B-tree', t::text
          FROM simsql._with_partitions(index.table_id) AS t JOIN pg_class AS c ON c.oid = t
         WHERE c.relkind IN ('r', 'p')
           AND NOT EXISTS (SELECT FROM simsql._with_partitions(btree) AS b
                             JOIN pg_index AS i ON i.indexrelid = b
                            WHERE i.indrelid = t);
    END LOOP;
    IF on_shards THEN
        RETURN QUERY SELECT * FROM simsql._verify_shards(index);
    END IF;
END
$$;

-- Clients run the statement with their own search path, where another operator & may come first.
CREATE OR REPLACE FUNCTION simsql._create_btree(
    table_name text, name text, columns text[], online boolean DEFAULT false)
RETURNS text
LANGUAGE sql IMMUTABLE
AS $$
    SELECT concat_ws(' ', 'CREATE INDEX', CASE WHEN online THEN 'CONCURRENTLY' END, name, 'ON', table_name,
                     '(' || string_agg(regexp_replace(c.definition, ' & (''-?\d+''::bigint\)\))$',
                                                      ' OPERATOR(pg_catalog.&) \1'),
                                       ', ' ORDER BY c.place) || ')')
      FROM unnest(columns) WITH ORDINALITY AS c (definition, place)
$$;

-- The B-trees that are missing or differ from what they should be, and the indexes that have their names.
CREATE OR REPLACE FUNCTION simsql._faulty_btrees(index simsql.registry)
RETURNS TABLE (name text, columns text[], btree regclass)
LANGUAGE sql STABLE
AS $$
    SELECT e.name, e.columns, simsql._index_named(index.table_id, e.name)
      FROM simsql._expected_btrees(index) AS e
     WHERE e.number IN (SELECT v.number FROM simsql._verify_btrees(index) AS v)
     ORDER BY e.number
$$;

-- The invalid B-trees on partitions, such as those of a failed CREATE INDEX CONCURRENTLY, that CREATE INDEX
-- on the partitioned table would attach to its own, which would then be invalid too.
CREATE OR REPLACE FUNCTION simsql._leftover_btrees(table_id regclass, columns text[])
RETURNS TABLE (btree regclass, target regclass, kind "char")
LANGUAGE sql STABLE
AS $$
    SELECT i.indexrelid::regclass, t, c.relkind
      FROM simsql._with_partitions(table_id) AS t
      JOIN pg_index AS i ON i.indrelid = t AND NOT i.indisvalid AND NOT i.indisunique
       AND i.indnatts = i.indnkeyatts
      JOIN pg_class AS c ON c.oid = i.indexrelid AND NOT c.relispartition
     WHERE t <> table_id AND simsql._is_btree_on(i.indexrelid, columns)
$$;

-- Creates the B-trees of an index, and replaces those that differ from what they should be.
CREATE OR REPLACE FUNCTION simsql._create_btrees(index simsql.registry) RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    expected record;
    leftover regclass;
BEGIN
    FOR expected IN SELECT * FROM simsql._faulty_btrees(index) LOOP
        IF expected.btree IS NOT NULL THEN
            EXECUTE format('DROP INDEX IF EXISTS %s', expected.btree);  -- a shard may lack it
        END IF;
        FOR leftover IN SELECT l.btree FROM simsql._leftover_btrees(index.table_id, expected.columns) AS l
        LOOP
            EXECUTE format('DROP INDEX %s', leftover);
        END LOOP;
        EXECUTE simsql._create_btree(index.table_name, expected.name, expected.columns);
    END LOOP;
END
$$;

-- Creates the plain B-tree of an index, unless there is a valid one.
CREATE OR REPLACE FUNCTION simsql._create_plain_btree(index simsql.registry) RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    columns constant text[] := simsql._btree_columns(index);
    statement text;
BEGIN
    WHILE NOT EXISTS (SELECT FROM simsql._btrees(index.table_id, columns) AS b WHERE b.valid) LOOP
        statement := (simsql._validating_statement(index, online => false)).statement;
        EXECUTE coalesce(statement,
                         format('CREATE INDEX ON %s (%s)', index.table_name, simsql._name_list(columns)));
    END LOOP;
END
$$;

CREATE OR REPLACE FUNCTION simsql._expression_create(index simsql.registry, filled boolean) RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    IF filled THEN
        PERFORM simsql._create_btrees(index);
        PERFORM simsql._warn_of_locks(index.table_id, 'create_index');
    END IF;
END
$$;

-- PostgreSQL removes entries of B-trees itself.
CREATE OR REPLACE FUNCTION simsql._expression_vacuum(index simsql.registry, state simsql._vacuum_state)
RETURNS simsql._vacuum_state
LANGUAGE plpgsql
AS $$
BEGIN
    RAISE NOTICE 'simsql.vacuum: the index on %(%) has no keys to remove', index.table_id,
                 quote_ident(index.column_name);
    state.share := 1;
    state.removed := 0;
    state.finished := true;
    RETURN state;
END
$$;

CREATE OR REPLACE FUNCTION simsql._expression_keys(index simsql.registry) RETURNS double precision
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    keys double precision;
BEGIN
    IF simsql._is_distributed(index.table_id) THEN
        EXECUTE format('SELECT count(t.%I) FROM %s AS t WHERE %s', index.column_name, simsql._rows_of(index),
                       simsql._guard(index))
           INTO keys;
        RETURN keys;
    END IF;
    RETURN (SELECT sum(pg_relation_size(b))
              FROM simsql._index_named(index.table_id, format('simsql_%s_0', index.id)) AS root
             CROSS JOIN LATERAL simsql._with_partitions(root) AS b)
           / (36.0 + 8 * cardinality(index.scope_columns));
END
$$;

CREATE OR REPLACE FUNCTION simsql._expression_drop(index simsql.registry) RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    btree regclass;
BEGIN
    IF simsql._is_distributed(index.table_id) THEN
        -- Citus can drop the schema on the workers in the same transaction, but not after it has dropped
        -- B-trees of several shards at once.
        PERFORM set_config('citus.multi_shard_modify_mode', 'sequential', true);
    END IF;
    -- Those on partitions too, which an interrupted build has not attached, and those of an interrupted
    -- change of the storage or REINDEX CONCURRENTLY. A constraint belongs to the table's owner, whatever its name.
    FOR btree IN
        SELECT i.indexrelid
          FROM simsql._with_partitions(index.table_id) AS t
          JOIN pg_index AS i ON i.indrelid = t
          JOIN pg_class AS c ON c.oid = i.indexrelid
         WHERE c.relname ~ format('^simsql_%s_\d+(_\d+)?(_cc(new|old)\d*)?$', index.id) AND NOT c.relispartition
           AND NOT EXISTS (SELECT FROM pg_constraint AS k WHERE k.conindid = i.indexrelid)
    LOOP
        EXECUTE format('DROP INDEX IF EXISTS %s', btree);  -- a shard may lack it
    END LOOP;
END
$$;
