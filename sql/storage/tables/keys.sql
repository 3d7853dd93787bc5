-- The storage `tables`: one key table per permutation, and triggers that add keys.

-- Rows that are written anywhere but in the table itself would be missed.
CREATE OR REPLACE FUNCTION simsql._tables_refusal(table_name regclass, caller text, OUT reason text, OUT hint text)
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    class pg_class;
BEGIN
    SELECT c.* INTO class FROM pg_class AS c WHERE c.oid = table_name;
    reason := CASE
        WHEN class.relkind = 'p' THEN 'is partitioned: rows written directly to a partition would be missed'
        WHEN class.relispartition THEN 'is a partition: rows written through its parent would be missed'
        WHEN EXISTS (SELECT FROM pg_inherits WHERE inhrelid = table_name OR inhparent = table_name)
        THEN 'takes part in inheritance: rows written through another table would be missed'
        WHEN simsql._is_distributed(table_name)
        THEN 'is managed by Citus: rows are written to its shards, so key tables would miss them'
    END;
    hint := CASE WHEN caller = 'repair' AND simsql._is_distributed(table_name)
                 THEN format('Create it again: SELECT simsql.drop_index(%1$L, ...); SELECT simsql.create_index(%1$L, ...);', table_name)
                 ELSE 'Use storage => ''expression'', which covers rows however they were written.' END;
END
$$;

CREATE OR REPLACE FUNCTION simsql._tables_lock(online boolean) RETURNS text
LANGUAGE sql IMMUTABLE
RETURN 'SHARE ROW EXCLUSIVE';

-- One table per permutation. It holds the permuted keys, preceded by the scope, and nothing else: any primary key works, and
-- deleting a row of the user's table changes nothing here.
-- For a table that has not been analyzed, the planner expects few distinct fingerprints and would hash them all. So it sorts.
CREATE OR REPLACE FUNCTION simsql._tables_create(index simsql.registry, filled boolean) RETURNS void
LANGUAGE plpgsql
SET enable_hashagg = off
AS $$
DECLARE
    permutation record;
    keys text;
    scope constant text := coalesce(
        (SELECT string_agg(format('t.%I::%s AS %s, ', s.column_name, s.type, s.name), '' ORDER BY s.number)
           FROM simsql._scope_columns(index) AS s), '');
    unlogged constant text := CASE (SELECT relpersistence FROM pg_class WHERE oid = index.table_id)
                                   WHEN 'u' THEN 'UNLOGGED' ELSE '' END;
    work_mem constant text := current_setting('work_mem');
BEGIN
    IF NOT filled THEN
        PERFORM simsql._check_btree(index.table_id, simsql._btree_columns(index), 'build');
    END IF;
    -- This sorts as CREATE INDEX does, so it gets the same memory.
    IF pg_size_bytes(work_mem) < pg_size_bytes(current_setting('maintenance_work_mem')) THEN
        PERFORM set_config('work_mem', current_setting('maintenance_work_mem'), true);
    END IF;
    FOR permutation IN SELECT * FROM simsql._permutations(index.blocks, index.lead, index.inner_blocks) LOOP
        keys := format('simsql.keys_%s_%s', index.id, permutation.number);
        -- CREATE TABLE AS is a fifth faster than INSERT.
        EXECUTE format('CREATE %s TABLE %s AS SELECT DISTINCT %s%s AS key FROM ONLY %s AS t WHERE t.%I IS NOT NULL%s '
                       'ORDER BY %s %s',
                       unlogged, keys, scope, simsql._permute(format('t.%I', index.column_name), permutation.lead_mask),
                       index.table_name, index.column_name, simsql._for_scope(index, ' AND t.%2$I IS NOT NULL') || ' AND ' || simsql._guard(index.table_name, index.column_name),
                       simsql._name_list(simsql._key_columns(index)), CASE WHEN NOT filled THEN 'WITH NO DATA' END);
        -- Equal keys are allowed, so no unique index can identify a row.
        EXECUTE format('ALTER TABLE %s %s ALTER key SET NOT NULL, REPLICA IDENTITY FULL', keys,
                       simsql._for_scope(index, 'ALTER %1$s SET NOT NULL, '));
        EXECUTE format('COMMENT ON TABLE %s IS %L', keys,
                       format('keys of the simhash index on %s(%I), permutation %s, lead bits %s',
                              index.table_name, index.column_name, permutation.number,
                              to_hex(permutation.lead_mask)));
        -- A B-tree that is created after a sorted fill is packed, and takes a quarter less time.
        EXECUTE format('CREATE INDEX ON %s (%s)', keys, simsql._name_list(simsql._key_columns(index)));
        PERFORM simsql._guard_keys(keys, index);
    END LOOP;
    PERFORM set_config('work_mem', work_mem, true);
    -- The progress of a build is the last fingerprint whose keys it has added, and its scope. Everybody can read the registry, so
    -- these values are in a table of the owner. Row-level security without a policy admits nobody else, even if default
    -- privileges grant more.
    IF NOT filled THEN
        EXECUTE format('CREATE TABLE simsql.built_%1$s (fp bigint, scope text[]); '
                       'ALTER TABLE simsql.built_%1$s ENABLE ROW LEVEL SECURITY', index.id);
    END IF;
END
$$;

-- A role can read the keys if, and only if, it can read the fingerprint column and the scope columns. The policy checks the
-- role that searches, at the time of the search, and identifies columns by number: another table or column may take over the
-- name. As a subquery it is evaluated once per scan.
CREATE OR REPLACE FUNCTION simsql._policy(index simsql.registry) RETURNS text
LANGUAGE sql STABLE
AS $$
    SELECT format('((SELECT coalesce(bool_and(has_column_privilege(t.tgrelid, a.number, ''SELECT'')), false) '
                  'FROM pg_trigger AS t CROSS JOIN unnest(t.tgattr) AS a (number) '
                  'WHERE t.tgrelid = (SELECT r.table_id FROM simsql.registry AS r WHERE r.id = %s) AND t.tgname = %L))',
                  index.id, format('simsql_%s_column', index.id))
$$;

CREATE OR REPLACE FUNCTION simsql._guard_keys(keys text, index simsql.registry) RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY', keys);
    EXECUTE format('CREATE POLICY readers ON %s FOR SELECT USING %s', keys, simsql._policy(index));
    EXECUTE format('GRANT SELECT ON %s TO PUBLIC', keys);
END
$$;

-- Drops the key tables of an index, the triggers and their functions.
CREATE OR REPLACE FUNCTION simsql._tables_drop(index simsql.registry) RETURNS void
LANGUAGE plpgsql
SET client_min_messages = warning  -- no notice for each object that the storage expression lacks
AS $$
DECLARE
    number integer;
    name text;
BEGIN
    IF EXISTS (SELECT FROM pg_class WHERE oid = index.table_id) THEN
        -- By their functions: somebody may have renamed a trigger.
        FOR name IN
            SELECT t.tgname FROM pg_trigger AS t JOIN pg_proc AS p ON p.oid = t.tgfoid
             WHERE t.tgrelid = index.table_id AND p.pronamespace = 'simsql'::regnamespace
               AND p.proname ~ format('^add_on_(insert|update|replica)_%s$', index.id)
        LOOP
            EXECUTE format('DROP TRIGGER %I ON %s', name, index.table_id);
        END LOOP;
    END IF;
    EXECUTE format('DROP FUNCTION IF EXISTS simsql.add_on_insert_%1$s(), simsql.add_on_update_%1$s(), simsql.add_on_replica_%1$s()',
                   index.id);
    FOR number IN SELECT p.number FROM simsql._permutations(index.blocks, index.lead, index.inner_blocks) AS p LOOP
        EXECUTE format('DROP TABLE IF EXISTS simsql.keys_%s_%s', index.id, number);
    END LOOP;
    EXECUTE format('DROP TABLE IF EXISTS simsql.built_%s', index.id);
END
$$;

-- A schema-only dump contains the key tables of an index but not its row in the registry, and a restored registry starts ids
-- from 1 again.
CREATE OR REPLACE FUNCTION simsql._drop_leftover_keys(index_id integer) RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    keys regclass;
BEGIN
    FOR keys IN
        SELECT c.oid FROM pg_class AS c
         WHERE c.relnamespace = 'simsql'::regnamespace AND c.relname ~ format('^(keys_%1$s_\d+|built_%1$s)$', index_id)
           AND c.relkind = 'r'
    LOOP
        EXECUTE format('DROP TABLE %s', keys);
    END LOOP;
END
$$;

-- Replaces B-trees by key tables and triggers, under a new id.
CREATE OR REPLACE FUNCTION simsql._tables_take_over(index simsql.registry, keep boolean) RETURNS integer
LANGUAGE plpgsql
AS $$
DECLARE
    changed simsql.registry;
BEGIN
    IF index.storage = 'tables' THEN
        PERFORM simsql._expression_drop(index);  -- those of an interrupted change
        RETURN index.id;
    END IF;
    UPDATE simsql.registry AS r SET id = DEFAULT, nonce = DEFAULT, storage = 'tables' WHERE r.id = index.id
    RETURNING r.* INTO changed;
    PERFORM simsql._drop_leftover_keys(changed.id);
    PERFORM simsql._tables_create(changed, filled => true);
    PERFORM simsql._create_functions(changed);
    PERFORM simsql._create_triggers(changed);
    PERFORM simsql._give(changed, simsql._owner(index));
    PERFORM simsql._lock_out(index);
    PERFORM simsql._drop_objects(index);
    RETURN changed.id;
END
$$;
