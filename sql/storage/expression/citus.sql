-- Tables that Citus manages: distributed, reference and local ones in its metadata. They exist on this node
-- and hold no rows here; their rows are in shards. The storage of their indexes is `expression`: Citus
-- creates each B-tree on every shard.
--
-- Indexes exist on the coordinator alone, and so do the locks of simsql.claim. A statement that reads such a
-- table consists of built-in functions, because Citus sends it to the shards. It has its own plan for each
-- call, because Citus accepts no parameters in a plan that is used again.

-- Whether Citus manages a table. The catalogue pg_dist_partition exists only in a database with Citus, and
-- PL/pgSQL does not look at the second statement before it runs.
CREATE OR REPLACE FUNCTION simsql._is_distributed(table_id oid) RETURNS boolean
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    IF to_regclass('pg_catalog.pg_dist_partition') IS NULL THEN
        RETURN false;
    END IF;
    RETURN EXISTS (SELECT FROM pg_catalog.pg_dist_partition AS d WHERE d.logicalrelid = table_id);
END
$$;

-- Any table that can be indexed, but on the coordinator of Citus alone.
CREATE OR REPLACE FUNCTION simsql._expression_refusal(
    table_name regclass, caller text, OUT reason text, OUT hint text)
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    IF NOT simsql._is_distributed(table_name) THEN
        RETURN;
    ELSIF (SELECT g.groupid FROM pg_catalog.pg_dist_local_group AS g) <> 0 THEN
        PERFORM simsql._refuse_worker(caller);
    END IF;
END
$$;

-- Citus creates most functions of simsql on the workers too, for queries that use them on shards, but no
-- table of simsql. It sends a query that reads one shard to its worker as a whole, with the searches in it.
CREATE OR REPLACE FUNCTION simsql._refuse_worker(caller text) RETURNS void
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RAISE EXCEPTION 'simsql.%: this is a worker node of Citus, which has no simhash indexes', caller
        USING ERRCODE = 'feature_not_supported',
              HINT = 'Connect to the coordinator. If you have, Citus sent it your whole query, which reads '
                     'one shard: search in a subquery that also reads a local table, (SELECT n.* FROM simsql.'
                     || caller || '(...) AS n LEFT JOIN simsql.registry AS r ON r.id = 0).';
END
$$;

-- Returns true, or raises an error on a worker. Functions that workers have, too, call it before they read
-- the registry, and declare the row of the registry as record: its type does not exist there, so PL/pgSQL
-- could not compile them.
CREATE OR REPLACE FUNCTION simsql._is_coordinator(caller text) RETURNS boolean
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    IF to_regclass('simsql.registry') IS NULL THEN
        PERFORM simsql._refuse_worker(caller);
    END IF;
    RETURN true;
END
$$;

-- Whether a table was distributed after its index was created in the storage `expression`. Its rows are no
-- longer where the index looks for them.
CREATE OR REPLACE FUNCTION simsql._is_distributed_since(index simsql.registry) RETURNS boolean
LANGUAGE sql STABLE
AS $$
    SELECT simsql._is_distributed(index.table_id)
           AND NOT EXISTS (SELECT FROM pg_proc AS p
                            WHERE p.pronamespace = 'simsql'::regnamespace
                              AND p.proname = 'search_' || index.id
                              AND 'plan_cache_mode=force_custom_plan' = ANY (p.proconfig))
$$;

-- Runs a statement on this node alone.
CREATE OR REPLACE FUNCTION simsql._execute_here(statement text) RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    propagation constant text := current_setting('citus.enable_ddl_propagation', true);
BEGIN
    IF propagation IS NOT NULL THEN
        PERFORM set_config('citus.enable_ddl_propagation', 'off', true);
    END IF;
    EXECUTE statement;
    IF propagation IS NOT NULL THEN
        PERFORM set_config('citus.enable_ddl_propagation', propagation, true);
    END IF;
END
$$;

-- Reports the B-trees that a shard lacks or has left invalid although they exist here: those of the
-- permutations, and the plain one, which has no number. Citus asks the nodes in other transactions. So the
-- statement locks no shard, which this transaction may have locked, and B-trees that this transaction has
-- created are left out.
CREATE OR REPLACE FUNCTION simsql._verify_shards(index simsql.registry)
RETURNS TABLE (number integer, problem text, object text)
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    expected text;
    answer record;
BEGIN
    IF NOT simsql._is_distributed(index.table_id) THEN
        RETURN;
    END IF;
    SELECT string_agg(format('(%L::integer, %L, %L::name[])', b.number, b.name, b.columns), ', ')
      INTO expected
      FROM (SELECT e.number, e.name, NULL AS columns,
                   ARRAY[simsql._index_named(index.table_id, e.name)] AS here
              FROM simsql._expected_btrees(index) AS e
             UNION ALL
            SELECT NULL, format('(%s)', simsql._name_list(p.columns)), p.columns,
                   ARRAY(SELECT f.index FROM simsql._btrees(index.table_id, p.columns) AS f WHERE f.valid)
              FROM (SELECT simsql._btree_columns(index) AS columns) AS p) AS b
     WHERE EXISTS (SELECT FROM pg_class AS c WHERE c.oid = ANY (b.here))
       AND NOT EXISTS (SELECT FROM pg_class AS c WHERE c.oid = ANY (b.here) AND age(c.xmin) <= 0);
    IF expected IS NULL THEN
        RETURN;
    END IF;
    FOR answer IN
        SELECT r.nodename, r.nodeport, r.shardid, r.success, r.result
          FROM pg_catalog.run_command_on_placements(index.table_id, simsql._render($sql$
            WITH RECURSIVE shard (table_id) AS (
                SELECT to_regclass({'schema'} || %1$L)::oid
                 UNION ALL
                SELECT p.inhrelid FROM shard JOIN pg_inherits AS p ON p.inhparent = shard.table_id
            ), expected (number, name, columns) AS (VALUES {expected}
            ), btree (number, index_id) AS (
                SELECT e.number, c.oid
                  FROM expected AS e
                  JOIN pg_index AS i ON i.indrelid = to_regclass({'schema'} || %1$L)
                  JOIN pg_class AS t ON t.oid = i.indrelid
                  JOIN pg_class AS c ON c.oid = i.indexrelid
                                    AND c.relname = e.name || substring(t.relname FROM '_[0-9]+$')
                 UNION ALL
                SELECT b.number, p.inhrelid FROM btree AS b JOIN pg_inherits AS p ON p.inhparent = b.index_id
            )
            SELECT coalesce(json_agg(json_build_array(e.number, e.name, s.table_id::regclass, found.valid)
                                     ORDER BY e.number, s.table_id::regclass::text), '[]')
              FROM shard AS s
              JOIN pg_class AS t ON t.oid = s.table_id AND t.relkind IN ('r', 'p')
             CROSS JOIN expected AS e
             CROSS JOIN LATERAL (
                   SELECT bool_or(i.indisvalid) AS valid
                     FROM pg_index AS i
                    WHERE i.indrelid = s.table_id
                      AND CASE WHEN e.number IS NOT NULL
                          THEN i.indexrelid IN (SELECT b.index_id FROM btree AS b WHERE b.number = e.number)
                          ELSE i.indpred IS NULL AND e.columns = ARRAY(
                               SELECT a.attname
                                 FROM unnest(i.indkey) WITH ORDINALITY AS k (attnum, place)
                                 JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
                                WHERE k.place <= cardinality(e.columns)
                                ORDER BY k.place) END) AS found
             WHERE found.valid IS NOT TRUE$sql$,
            jsonb_build_object(
                -- The names that Citus puts in for %1$L lack this schema.
                'schema', (SELECT CASE n.nspname WHEN 'public' THEN 'public.' ELSE '' END
                             FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
                            WHERE c.oid = index.table_id),
                'expected', replace(expected, '%', '%%')))) AS r
         ORDER BY r.shardid, r.nodename, r.nodeport
    LOOP
        IF NOT answer.success THEN
            RAISE EXCEPTION 'simsql: cannot verify shard % of % on %:%: %', answer.shardid, index.table_id,
                            answer.nodename, answer.nodeport, answer.result
                USING ERRCODE = 'connection_failure', HINT = 'Try again when the node can be reached.';
        END IF;
        RETURN QUERY
        SELECT (f ->> 0)::integer,
               CASE WHEN f ->> 0 IS NOT NULL THEN 'search ' ELSE '' END
               || CASE WHEN f ->> 3 IS NULL THEN 'B-tree missing on a shard'
                       ELSE 'B-tree invalid on a shard' END,
               format('%s of %s on ', f ->> 1, f ->> 2) || format('%s:%s', answer.nodename, answer.nodeport)
          FROM json_array_elements(answer.result::json) AS f;
    END LOOP;
END
$$;
