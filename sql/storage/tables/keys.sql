-- The storage `tables`: one key table per permutation, and triggers that add keys.
--
-- A key table holds the permuted keys, preceded by the scope, and nothing else: any primary key works, and
-- deleting a row of the user's table changes nothing here.

-- Rows that are written anywhere but in the table itself would be missed.
CREATE OR REPLACE FUNCTION simsql._tables_refusal(
    table_name regclass, caller text, OUT reason text, OUT hint text)
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    class pg_class;
    is_distributed constant boolean := simsql._is_distributed(table_name);
    other constant text := simsql._advised('storage', '{expression}', '{}', 'storage => ''expression''');
BEGIN
    SELECT c.* INTO class FROM pg_class AS c WHERE c.oid = table_name;
    reason := CASE
        WHEN class.relkind = 'p' THEN 'is partitioned: rows written directly to a partition would be missed'
        WHEN class.relispartition THEN 'is a partition: rows written through its parent would be missed'
        WHEN EXISTS (SELECT FROM pg_inherits WHERE inhrelid = table_name OR inhparent = table_name)
        THEN 'takes part in inheritance: rows written through another table would be missed'
        WHEN is_distributed
        THEN 'is managed by Citus: rows are written to its shards, so key tables would miss them'
    END;
    hint := CASE WHEN is_distributed AND caller = 'repair'
                 THEN format('Create it again: SELECT simsql.drop_index(%1$L, ...); '
                             'SELECT simsql.create_index(%1$L, ...);', table_name)
                 WHEN caller = 'repair' AND reason LIKE 'takes part in inheritance%'
                 THEN format('Detach the table, then repair it again. Or drop the index, and create one with %s.', other)
                 ELSE format('Use %s, which covers rows however they were written.', other) END;
END
$$;

-- The parts that the templates of this folder share. t is a row of the user's table.
CREATE OR REPLACE FUNCTION simsql._tables_parts(index simsql.registry) RETURNS jsonb
LANGUAGE sql STABLE
AS $$
    SELECT jsonb_build_object(
        'id', index.id,
        'table', index.table_name,
        'column', index.column_name,
        'guard', simsql._guard(index),
        'key_columns', simsql._name_list(simsql._key_columns(index)),
        'scope', simsql._for_scope(index, '%1$s, '),
        't_scope', simsql._for_scope(index, 't.%2$I AS %1$s, '),
        'in_a_scope', simsql._for_scope(index, ' AND t.%2$I IS NOT NULL'))
$$;

-- Renders a template for each key table but the `omitted`: {number} and {keys}, its name, and {key}, the
-- expression of the key of a fingerprint.
CREATE OR REPLACE FUNCTION simsql._for_key_tables(
    index simsql.registry, template text, fingerprint text, separator text, shared jsonb DEFAULT '{}',
    omitted text[] DEFAULT '{}')
RETURNS text
LANGUAGE sql STABLE
AS $$
    SELECT string_agg(
               simsql._render(template, '{}', shared || jsonb_build_object(
                   'number', p.number,
                   'keys', k.name,
                   'key', simsql._permute(fingerprint, p.lead_mask))),
               separator ORDER BY p.number)
      FROM simsql._permutations(index.blocks, index.lead, index.inner_blocks) AS p
     CROSS JOIN LATERAL format('simsql.keys_%s_%s', index.id, p.number) AS k (name)
     WHERE k.name <> ALL (omitted)
$$;

-- Creates the key tables of an index. For a table that has not been analyzed, the planner expects few
-- distinct fingerprints and would hash them all. So it sorts. The batches of a build read the table in the
-- order of a B-tree.
CREATE OR REPLACE FUNCTION simsql._tables_create(index simsql.registry, filled boolean) RETURNS void
LANGUAGE plpgsql
SET enable_hashagg = off
AS $$
DECLARE
    permutation record;
    keys text;
    shared constant jsonb := simsql._tables_parts(index);
    -- The table is locked: the types of the scope are those that the index has just registered.
    guard constant text := simsql._guard(index.table_name, index.column_name);
    typed_scope constant text := (
        SELECT string_agg(format('t.%I::%s AS %s, ', s.column_name, s.type, s.name), '' ORDER BY s.number)
          FROM simsql._scope_columns(index) AS s);
    unlogged constant text := (
        SELECT 'UNLOGGED' FROM pg_class AS c WHERE c.oid = index.table_id AND c.relpersistence = 'u');
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
        -- CREATE TABLE AS is a fifth faster than INSERT. A B-tree that is created after a sorted fill is
        -- packed, and takes a quarter less time. Equal keys are allowed, so no unique index can identify a
        -- row. The row without a key is there as long as nobody empties the table: see _emptied_tables.
        EXECUTE simsql._render($sql$
            CREATE {unlogged} TABLE {keys} AS
            SELECT DISTINCT {typed_scope}{key} AS key
              FROM ONLY {table} AS t
             WHERE t.{"column"} IS NOT NULL{in_a_scope} AND {guard}
             ORDER BY {key_columns}
              {with_data};
            ALTER TABLE {keys} REPLICA IDENTITY FULL, NO FORCE ROW LEVEL SECURITY;
            CREATE INDEX ON {keys} ({key_columns});
            INSERT INTO {keys} (key) VALUES (NULL)
            $sql$,
            jsonb_build_object(
                'unlogged', unlogged,
                'keys', keys,
                'typed_scope', typed_scope,
                'key', simsql._permute(format('t.%I', index.column_name), permutation.lead_mask),
                'guard', guard,
                'with_data', CASE WHEN NOT filled THEN 'WITH NO DATA' END),
            shared);
        PERFORM simsql._guard_keys(keys, index);
    END LOOP;
    PERFORM simsql._comment_keys(index);
    PERFORM set_config('work_mem', work_mem, true);
    IF filled THEN
        PERFORM simsql._record_vacuum(index);
    END IF;
    -- The progress of a build is the last fingerprint whose keys it has added, and its scope. Everybody can
    -- read the registry, so these values are in a table of the owner. Row-level security without a policy
    -- admits nobody else, even if default privileges grant more. An unlogged table is in no publication, and
    -- is empty after a crash: then the build starts over.
    IF NOT filled THEN
        EXECUTE format('CREATE UNLOGGED TABLE simsql.built_%s (fp bigint, scope text[])', index.id);
        PERFORM simsql._guard_keys('simsql.built_' || index.id, index);
    END IF;
END
$$;

-- The comment of a key table.
CREATE OR REPLACE FUNCTION simsql._key_comment(index simsql.registry, number integer, lead_mask bigint) RETURNS text
LANGUAGE sql STABLE
AS $$
    SELECT format('keys of the simhash index on %s(%I), permutation %s, lead bits %s', index.table_name,
                  index.column_name, number, to_hex(lead_mask))
$$;

CREATE OR REPLACE FUNCTION simsql._comment_keys(index simsql.registry) RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    EXECUTE (SELECT string_agg(format('COMMENT ON TABLE simsql.keys_%s_%s IS %L', index.id, p.number,
                                      simsql._key_comment(index, p.number, p.lead_mask)), ';')
               FROM simsql._permutations(index.blocks, index.lead, index.inner_blocks) AS p);
END
$$;

CREATE OR REPLACE FUNCTION simsql._on_one_line(expression text) RETURNS text
LANGUAGE sql IMMUTABLE
AS $$ SELECT replace(regexp_replace(expression, '\s+', ' ', 'g'), '( ', '(') $$;

-- A role can read the keys if, and only if, it can read the fingerprint column and the scope columns, and use the
-- schema of the table. The policy checks the role that searches, at the time of the search, and identifies columns by
-- number: another table or column may take over the name. As a subquery it is evaluated once per scan. This is the
-- text that PostgreSQL shows, on one line, so that it can be compared.
CREATE OR REPLACE FUNCTION simsql._policy(index simsql.registry) RETURNS text
LANGUAGE sql STABLE
AS $$
    SELECT simsql._on_one_line(simsql._render($sql$(
        SELECT COALESCE(bool_and((has_column_privilege(t.tgrelid, a.number, 'SELECT'::text)
                                  AND has_schema_privilege(c.relnamespace, 'USAGE'::text))), false) AS "coalesce"
          FROM ((pg_trigger t JOIN pg_class c ON ((c.oid = t.tgrelid)))
                CROSS JOIN LATERAL unnest(t.tgattr) a(number))
         WHERE ((t.tgrelid = ((SELECT r.table_id FROM simsql.registry r WHERE (r.id = {id})))::oid)
                AND (t.tgname = 'simsql_{id}_column'::name)))$sql$, jsonb_build_object('id', index.id)))
$$;

-- Lets only such roles read a key table. Nobody but its owner reads the progress of a build.
CREATE OR REPLACE FUNCTION simsql._guard_keys(keys text, index simsql.registry) RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    policy name;
BEGIN
    FOR policy IN SELECT p.polname FROM pg_policy AS p WHERE p.polrelid = keys::regclass LOOP
        EXECUTE format('DROP POLICY %I ON %s', policy, keys);
    END LOOP;
    EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY, NO FORCE ROW LEVEL SECURITY', keys);
    IF keys NOT LIKE 'simsql.built%' THEN
        EXECUTE format('CREATE POLICY readers ON %s FOR SELECT USING (%s)', keys, simsql._policy(index));
        PERFORM simsql._keep_own(keys, 'DELETE');
    END IF;
END
$$;

-- Drops the key tables of an index, the triggers and their functions.
CREATE OR REPLACE FUNCTION simsql._tables_drop(index simsql.registry) RETURNS void
LANGUAGE plpgsql
SET client_min_messages = warning  -- no notice for each object that the storage expression lacks
AS $$
BEGIN
    PERFORM simsql._drop_triggers(index.table_id, index.id);
    EXECUTE format('DROP FUNCTION IF EXISTS simsql.add_on_insert_%1$s(), simsql.add_on_update_%1$s(), '
                   'simsql.add_on_replica_%1$s()', index.id);
    PERFORM simsql._drop_key_tables(index.id);
END
$$;

-- A new index calls this too: a schema-only dump contains the key tables of an index but not its row in the
-- registry, and a restored registry starts ids from 1 again.
CREATE OR REPLACE FUNCTION simsql._drop_key_tables(index_id integer) RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    keys text;
    others text;
BEGIN
    FOR keys IN
        SELECT c.relname FROM pg_class AS c
         WHERE c.relnamespace = 'simsql'::regnamespace
           AND c.relname ~ format('^(keys_%1$s_\d+|built_%1$s)$', index_id)
           AND c.relkind = 'r'
    LOOP
        BEGIN
            -- A build may have ended after this transaction took its snapshot.
            EXECUTE format('DROP TABLE IF EXISTS simsql.%I', keys);
        EXCEPTION WHEN dependent_objects_still_exist THEN
            GET STACKED DIAGNOSTICS others = PG_EXCEPTION_DETAIL;
            RAISE EXCEPTION 'simsql: something of yours needs table simsql.%', keys
                USING ERRCODE = 'dependent_objects_still_exist', DETAIL = others,
                      HINT = 'Drop it' || coalesce((
                          SELECT ', or take tables out: ' || string_agg(format('ALTER TABLE %s NO INHERIT simsql.%s;',
                                                                               i.inhrelid::regclass, keys), ' ')
                            FROM pg_inherits AS i WHERE i.inhparent = to_regclass('simsql.' || keys)), '.');
        END;
    END LOOP;
END
$$;
