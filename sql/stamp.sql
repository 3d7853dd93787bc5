-- The stamp of an index: that its keys were complete, and how the catalogue looked at that time.
--
-- Keys are missing if rows were written while something kept the triggers from adding keys, or if something has
-- removed keys since. Whoever did that may have undone it, so comparing the catalogue with what it should be proves
-- nothing. The stamp therefore holds marks that never come back: where the rows of the catalogue are that describe
-- the triggers, policies and expressions, and which transaction wrote them. It is written whenever the keys are
-- known to be complete, and a search compares it with the catalogue after it has searched, when it has its locks.
--
-- Names, types and files do come back. They are in the stamp so that one comparison tells that nothing has changed.
-- If they differ, _faults looks closer.

-- The files of the catalogues that marks and policies are about: VACUUM FULL writes new ones. PostgreSQL inlines it.
CREATE OR REPLACE FUNCTION simsql._catalog_files() RETURNS oid[]
LANGUAGE sql STABLE
RETURN ARRAY[pg_relation_filenode('pg_class'), pg_relation_filenode('pg_attribute'), pg_relation_filenode('pg_trigger'),
             pg_relation_filenode('pg_proc'), pg_relation_filenode('pg_policy')];

-- Whether an index certainly has all keys that a search needs, which has seen this stamp in its snapshot: its stamp is
-- still the same, and so is the catalogue. It is VOLATILE, and so has a snapshot of its own, which is later than the
-- locks of the search. In a transaction with one snapshot, _check_snapshot knows more. It takes as long as many
-- searches do, and most of that is starting the query: so rows of the catalogue are read where they were, without B-trees.
CREATE OR REPLACE FUNCTION simsql._is_complete(index_id integer, stamp_id uuid) RETURNS boolean
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
DECLARE
    is_unchanged boolean;
BEGIN
    -- PostgreSQL would compare the types of all operators named "=" first. A restore may put other rows in these places: IS
    -- TRUE keeps the planner from their B-trees.
    SELECT array_eq((r.marks).files, simsql._catalog_files())
           AND array_eq((r.marks).versions, ARRAY(
               SELECT c.xmin FROM pg_class AS c
                WHERE c.ctid = ANY ((r.marks).relations) AND (c.oid = ANY ((r.stamp).ids)) IS TRUE
                UNION ALL
               SELECT a.xmin FROM pg_attribute AS a
                WHERE a.ctid = ANY ((r.marks).attributes) AND (a.attrelid = r.table_id) IS TRUE
                UNION ALL
               SELECT t.xmin FROM pg_trigger AS t
                WHERE t.ctid = ANY ((r.marks).triggers) AND (t.tgrelid = r.table_id) IS TRUE
                UNION ALL
               SELECT f.xmin FROM pg_proc AS f
                WHERE f.ctid = ANY ((r.marks).functions) AND (f.oid = ANY ((r.stamp).functions)) IS TRUE))
           -- A policy may also have been added. The rows come in the order of the B-tree.
           AND CASE WHEN row_security_active((r.stamp).ids[1]) THEN (r.stamp).policies = ARRAY(
                   SELECT (p.ctid, p.xmin)::simsql._mark FROM pg_policy AS p WHERE p.polrelid = ANY ((r.stamp).ids))
               ELSE true END
           AND array_eq(ARRAY[(r.stamp).has_children], ARRAY(
               -- A snapshot that is older than another session's change may show two rows.
               SELECT c.relhassubclass FROM pg_class AS c WHERE c.oid = r.table_id))
           AND coalesce((r.stamp).file = pg_relation_filenode(r.table_id), true)
           AND to_regclass(r.table_name) = r.table_id AND current_setting('citus.version', true) IS NULL
      INTO is_unchanged
      FROM simsql.registry AS r
     WHERE r.id = index_id AND r.stamp_id = _is_complete.stamp_id AND r.ready;
    RETURN is_unchanged IS TRUE OR FOUND AND simsql._is_complete_otherwise(index_id);
END
$$;

-- The rest: for rows of the catalogue that have changed where nothing depends on them, and for Citus.
CREATE OR REPLACE FUNCTION simsql._is_complete_otherwise(index_id integer) RETURNS boolean
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    index constant simsql.registry := (SELECT r FROM simsql.registry AS r WHERE r.id = index_id);
BEGIN
    RETURN to_regclass(index.table_name) IS NOT DISTINCT FROM index.table_id
           AND simsql._current_stamp(index, (index.stamp).ids) IS NOT DISTINCT FROM index.stamp
           AND simsql._changed_catalogs(index, index.stamp, simsql._stamped_on(index)) = '{}'
           AND (NOT simsql._is_distributed(index.table_id)
                OR NOT simsql._is_distributed_since(index) AND NOT row_security_active(index.table_id));
END
$$;

-- The stamp that an index with these key tables would get now. It sorts: under some settings PostgreSQL reads no B-tree.
CREATE OR REPLACE FUNCTION simsql._current_stamp(index simsql.registry, ids oid[]) RETURNS simsql._stamp
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    stamp simsql._stamp;
    columns constant text[] := index.column_name || index.scope_columns;
    prefix constant text := 'simsql_' || index.id || '_';
BEGIN
    SELECT max(CASE c.relpersistence WHEN 'u' THEN c.relfilenode END), bool_or(c.relhassubclass)
      INTO stamp.file, stamp.has_children
      FROM pg_class AS c WHERE c.oid = index.table_id;
    stamp.ids := ids;
    stamp.numbers := ARRAY(SELECT a.attnum FROM pg_attribute AS a
                            WHERE a.attrelid = index.table_id AND a.attname = ANY (columns) ORDER BY a.attnum);
    stamp.keys := ARRAY(SELECT (c.relname, c.relfilenode)::simsql._keys_mark
                          FROM pg_class AS c WHERE c.oid = ANY (ids) ORDER BY c.oid);
    stamp.columns := ARRAY(SELECT (a.attname, a.atttypid, a.attgenerated)::simsql._column_mark
                             FROM pg_attribute AS a
                            WHERE a.attrelid = index.table_id AND a.attnum = ANY (stamp.numbers)
                            ORDER BY a.attnum);
    stamp.triggers := ARRAY(SELECT (t.ctid, t.xmin)::simsql._mark
                              FROM pg_trigger AS t
                             WHERE t.tgrelid = index.table_id AND starts_with(t.tgname::text, prefix)
                             ORDER BY t.tgname);
    stamp.functions := ARRAY(SELECT DISTINCT t.tgfoid FROM pg_trigger AS t
                              WHERE t.tgrelid = index.table_id AND starts_with(t.tgname::text, prefix) ORDER BY 1);
    stamp.bodies := ARRAY(SELECT (p.ctid, p.xmin)::simsql._mark
                            FROM pg_proc AS p WHERE p.oid = ANY (stamp.functions) ORDER BY p.oid);
    stamp.policies := ARRAY(SELECT (p.ctid, p.xmin)::simsql._mark
                              FROM pg_policy AS p WHERE p.polrelid = ANY (ids) ORDER BY p.polrelid, p.polname);
    stamp.expressions := nullif(ARRAY(
        SELECT (d.ctid, d.xmin)::simsql._mark
          FROM pg_attribute AS a JOIN pg_attrdef AS d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
         WHERE a.attrelid = index.table_id AND a.attgenerated <> '' AND a.attname = ANY (columns)
         ORDER BY a.attnum), '{}');
    RETURN stamp;
END
$$;

-- Where the rows of the catalogue are now that a stamp describes, and who wrote them. A row that GRANT or ALTER changes,
-- such as that of the table, is not among them if the stamp tells all that matters.
CREATE OR REPLACE FUNCTION simsql._current_marks(table_id oid, index_id integer, stamp simsql._stamp) RETURNS simsql._marks
LANGUAGE sql STABLE
AS $$
    SELECT ((SELECT c.relfilenode FROM pg_class AS c WHERE c.oid = _current_marks.table_id AND NOT c.relhassubclass),
            simsql._catalog_files(),
            array_agg(m.place ORDER BY m.place) FILTER (WHERE m.catalog = 1),
            array_agg(m.place ORDER BY m.place) FILTER (WHERE m.catalog = 2),
            array_agg(m.place ORDER BY m.place) FILTER (WHERE m.catalog = 3),
            array_agg(m.place ORDER BY m.place) FILTER (WHERE m.catalog = 4),
            array_agg(m.version ORDER BY m.catalog, m.place))::simsql._marks
      FROM (SELECT 1, c.ctid, c.xmin FROM pg_class AS c WHERE c.oid = ANY (stamp.ids)
             UNION ALL
            SELECT 2, a.ctid, a.xmin FROM pg_attribute AS a
             WHERE a.attrelid = _current_marks.table_id AND a.attnum = ANY (stamp.numbers)
             UNION ALL
            SELECT 3, t.ctid, t.xmin FROM pg_trigger AS t
             WHERE t.tgrelid = _current_marks.table_id AND starts_with(t.tgname::text, 'simsql_' || index_id || '_')
             UNION ALL
            SELECT 4, p.ctid, p.xmin FROM pg_proc AS p WHERE p.oid = ANY (stamp.functions)) AS m (catalog, place, version)
$$;

-- The OIDs of the key tables of an index. Null stands for a missing one.
CREATE OR REPLACE FUNCTION simsql._key_table_ids(index simsql.registry) RETURNS oid[]
LANGUAGE sql STABLE
AS $$
    SELECT ARRAY(
        SELECT to_regclass(format('simsql.keys_%s_%s', index.id, p.number))::oid
          FROM simsql._permutations(index.blocks, index.lead, index.inner_blocks) AS p
         WHERE index.storage = 'tables' ORDER BY p.number)
$$;

-- What else identifies the rows of the catalogue: for each catalogue its file and the commands that wrote them, and the
-- version of the server. Null stands for no rows.
CREATE OR REPLACE FUNCTION simsql._stamped_on(index simsql.registry) RETURNS jsonb
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    ids constant oid[] := simsql._key_table_ids(index);
BEGIN
    RETURN jsonb_object_agg(s.name, s.value) FROM (
        SELECT 'server', to_jsonb(current_setting('server_version_num')::integer / 10000)
         UNION ALL
        SELECT f.catalog, jsonb_build_object('file', pg_relation_filenode(f.catalog), 'commands',
                                             md5(string_agg(c.command, ',' ORDER BY c.relation, c.name)))
          FROM unnest('{pg_trigger, pg_proc, pg_policy, pg_attrdef}'::text[]) AS f (catalog)
          LEFT JOIN (SELECT 'pg_trigger', t.tgrelid, t.tgname, t.xmin || ' ' || t.cmin FROM pg_trigger AS t
                      WHERE t.tgrelid = index.table_id
                        AND starts_with(t.tgname::text, 'simsql_' || index.id || '_')
                      UNION ALL
                     SELECT 'pg_proc', p.pronamespace, p.proname, p.xmin || ' ' || p.cmin FROM pg_proc AS p
                      WHERE p.oid = ANY ((index.stamp).functions)
                      UNION ALL
                     SELECT 'pg_policy', p.polrelid, p.polname, p.xmin || ' ' || p.cmin FROM pg_policy AS p
                      WHERE p.polrelid = ANY (ids)
                      UNION ALL
                     SELECT 'pg_attrdef', d.adrelid, a.attname, d.xmin || ' ' || d.cmin
                       FROM pg_attrdef AS d JOIN pg_attribute AS a ON a.attrelid = d.adrelid AND a.attnum = d.adnum
                      WHERE d.adrelid = index.table_id AND a.attgenerated <> ''
                        AND a.attname = ANY (index.column_name || index.scope_columns)
                    ) AS c (catalog, relation, name, command) USING (catalog)
         GROUP BY f.catalog) AS s (name, value);
END
$$;

-- The catalogues in which other rows describe an index than its stamp tells. VACUUM FULL writes a new file, in which the
-- same rows have other places, and others may have theirs: then the command of the transaction that wrote a row
-- identifies it.
CREATE OR REPLACE FUNCTION simsql._changed_catalogs(index simsql.registry, now simsql._stamp, stamped_on jsonb)
RETURNS text[]
LANGUAGE sql STABLE
AS $$
    SELECT ARRAY(
        SELECT c.name
          FROM (VALUES ('pg_attrdef', now.expressions IS DISTINCT FROM (index.stamp).expressions),
                       ('pg_trigger', now.triggers <> (index.stamp).triggers),
                       ('pg_proc', now.bodies <> (index.stamp).bodies),
                       ('pg_policy', now.policies <> (index.stamp).policies)) AS c (name, is_elsewhere)
         CROSS JOIN LATERAL (SELECT stamped_on -> c.name, index.stamped_on -> c.name) AS f (now, stamped)
         WHERE CASE WHEN f.now -> 'file' = f.stamped -> 'file' THEN c.is_elsewhere
                    ELSE f.now -> 'commands' <> f.stamped -> 'commands' END)
$$;

-- An index with the stamp that it would get now.
CREATE OR REPLACE FUNCTION simsql._stamped(index simsql.registry) RETURNS simsql.registry
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    index.stamp := simsql._current_stamp(index, simsql._key_table_ids(index));
    index.marks := simsql._current_marks(index.table_id, index.id, index.stamp);
    index.stamped_on := simsql._stamped_on(index);
    RETURN index;
END
$$;

-- Stamps an index with what _stamped returned, unless somebody else has stamped it since. The caller knows that its keys
-- were complete then: nobody had written to the table since it was locked, or the triggers had added the keys of all that
-- was written.
CREATE OR REPLACE FUNCTION simsql._stamp(stamped simsql.registry) RETURNS void
LANGUAGE sql
AS $$
    UPDATE simsql.registry AS r
       SET (stamp, marks, stamped_on, stamp_id) = (stamped.stamp, stamped.marks, stamped.stamped_on, gen_random_uuid())
     WHERE r.id = stamped.id AND r.stamp_id IS NOT DISTINCT FROM stamped.stamp_id
$$;

CREATE OR REPLACE FUNCTION simsql._stamp(index_id integer) RETURNS void
LANGUAGE sql
AS $$
    SELECT simsql._stamp(simsql._stamped(r)) FROM simsql.registry AS r WHERE r.id = index_id
$$;

-- Whether no key of an index is missing. A fault, or a table that this role may not read, means no.
CREATE OR REPLACE FUNCTION simsql._has_all_keys(index simsql.registry) RETURNS boolean
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN NOT EXISTS (SELECT FROM unnest(simsql._faults(index)) AS f
                        WHERE f.effect = 'refuses' AND f.problem <> 'keys not compared')
           AND NOT EXISTS (SELECT FROM simsql._storage_compare(index) AS c WHERE c.missing > 0);
EXCEPTION
    WHEN OTHERS THEN
        RAISE WARNING 'simsql: the keys of the simhash index on % were not compared: %', index.table_name, sqlerrm;
        RETURN false;
END
$$;

-- The key tables of an index that lack the row that they are created with, as this snapshot sees them: they have been
-- emptied, or rewritten after the snapshot.
CREATE OR REPLACE FUNCTION simsql._emptied_tables(index simsql.registry) RETURNS text[]
LANGUAGE plpgsql STABLE
SET enable_seqscan = off
AS $$
DECLARE
    tables text[];
BEGIN
    EXECUTE 'SELECT array_remove(ARRAY[' || simsql._for_key_tables(
                index, 'CASE WHEN NOT EXISTS (SELECT FROM {keys} WHERE key IS NULL) THEN {''keys''} END', 'key', ', ')
            || '], NULL)'
       INTO tables;
    RETURN tables;
END
$$;

-- What the stamp of an index with key tables says against its keys, in this snapshot; null if nothing.
--
-- A restore and pg_upgrade write all rows of the catalogue anew. The former gives relations other OIDs, and has compared
-- the keys: see _restored. The latter keeps OIDs and rows, and nobody writes meanwhile.
CREATE OR REPLACE FUNCTION simsql._stamp_problem(index simsql.registry) RETURNS text
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    ids constant oid[] := simsql._key_table_ids(index);
    stamped constant simsql._stamp := index.stamp;
    now simsql._stamp;
    stamped_on jsonb;
    changed text[];
BEGIN
    IF index.storage <> 'tables' OR array_position(ids, NULL) IS NOT NULL THEN
        RETURN NULL;  -- B-trees are never incomplete; of a missing key table others tell
    END IF;
    now := simsql._current_stamp(index, ids);
    IF stamped.ids IS DISTINCT FROM ids THEN
        IF stamped IS DISTINCT FROM NULL
           AND (SELECT c.relispopulated FROM pg_class AS c WHERE c.oid = to_regclass('simsql._restored'))
        THEN
            IF EXISTS (SELECT FROM simsql._restored AS r WHERE r.id = index.id AND r.stamp = now) THEN
                RETURN NULL;
            END IF;
        END IF;
        RETURN 'keys not compared';
    END IF;
    stamped_on := simsql._stamped_on(index);
    IF stamped_on -> 'server' <> index.stamped_on -> 'server' THEN
        RETURN NULL;  -- pg_upgrade writes all rows anew
    END IF;
    changed := simsql._changed_catalogs(index, now, stamped_on);
    IF 'pg_attrdef' = ANY (changed) THEN
        RETURN 'expression changed';
    ELSIF 'pg_trigger' = ANY (changed) THEN
        RETURN 'triggers changed';
    -- Privileges on a function are in its row, too: granting them is a fault of its own, and loses no key.
    ELSIF 'pg_proc' = ANY (changed) AND NOT EXISTS (
        SELECT FROM pg_proc AS p CROSS JOIN LATERAL aclexplode(p.proacl) AS a
         WHERE p.oid = ANY (now.functions) AND a.grantee <> p.proowner)
    THEN
        RETURN 'trigger functions changed';
    ELSIF 'pg_policy' = ANY (changed) THEN
        RETURN 'policies changed';
    END IF;
    IF (now.file IS DISTINCT FROM stamped.file
        OR ARRAY(SELECT k.file FROM unnest(now.keys) AS k) <> ARRAY(SELECT k.file FROM unnest(stamped.keys) AS k))
       AND has_table_privilege(index.table_id, 'SELECT')
       AND simsql._emptied_tables(index) <> '{}'
    THEN
        RETURN 'keys lost';
    END IF;
    RETURN NULL;
END
$$;

-- The same as a fault.
CREATE OR REPLACE FUNCTION simsql._stamp_faults(index simsql.registry, actual simsql.registry) RETURNS simsql._fault[]
LANGUAGE sql STABLE
AS $$
    SELECT ARRAY(
        SELECT (p.problem, actual.table_name, k.state,
                -- Policies hide keys only from the roles to which they apply.
                CASE WHEN p.problem <> 'policies changed' OR row_security_active((index.stamp).ids[1])
                     THEN 'refuses' ELSE 'may miss rows' END,
                format(k.message, at.name), k.advice,
                simsql._call('repair', ARRAY[index.table_id::text]))::simsql._fault
          FROM simsql._stamp_problem(actual) AS p (problem)
         CROSS JOIN LATERAL format('%s(%I)', index.table_id, index.column_name) AS at (name)
          JOIN (VALUES
               ('keys not compared', 'keys not compared',
                'the keys of the simhash index on %s have not been compared with the rows since they were restored',
                'Compare them:'),
               ('expression changed', 'expression changed',
                'the expression of a generated column changed after the simhash index on %s was created',
                'It lacks rows whose values have changed:'),
               ('triggers changed', 'triggers disabled',
                'triggers of the simhash index on %s have been disabled or dropped',
                'It lacks rows that were written in the meantime:'),
               ('trigger functions changed', 'keys not compared',
                'trigger functions of the simhash index on %s have been replaced, or GRANT or REVOKE has named them',
                'It lacks rows that were written while they added no keys:'),
               ('policies changed', 'damaged', 'the row-level security of the keys of %s has been altered',
                'Restore it:'),
               ('keys lost', 'damaged', 'key tables of the simhash index on %s have been emptied or rewritten',
                'Add the keys again:')) AS k (problem, state, message, advice) USING (problem))
$$;

-- Whether an index has a stamp now, whatever the snapshot of the caller.
CREATE OR REPLACE FUNCTION simsql._is_stamped(index_id integer) RETURNS boolean
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
    RETURN (SELECT r.stamp_id IS NOT NULL FROM simsql.registry AS r WHERE r.id = index_id) IS TRUE;
END
$$;

-- Raises an error if the current catalogue shows a fault of an index, whatever the snapshot of the caller.
CREATE OR REPLACE FUNCTION simsql._check_now(index_id integer, table_name regclass) RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    index simsql.registry;
BEGIN
    SELECT r.* INTO index FROM simsql.registry AS r WHERE r.id = index_id;
    IF index.id IS NULL THEN
        PERFORM simsql._refuse_changed(table_name, 'it was dropped or created again');
    END IF;
    PERFORM simsql._check_sound(index);
END
$$;

-- Raises an error unless a search that has just ended has seen every key. If its stamp is no longer that of the catalogue,
-- the index has to be sound now and in the snapshot of the search, and the snapshot has to see the keys.
CREATE OR REPLACE FUNCTION simsql._check_searched(index_id integer, table_name regclass, stamp_id uuid)
RETURNS void
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    index simsql.registry;
BEGIN
    IF NOT simsql._is_complete(index_id, stamp_id) THEN
        PERFORM simsql._check_now(index_id, table_name);
        SELECT r.* INTO index FROM simsql.registry AS r WHERE r.id = index_id;
        PERFORM simsql._check_sound(index);
        IF EXISTS (SELECT FROM pg_attribute AS a
                    WHERE a.attrelid = index.table_id AND a.attname = ANY (index.column_name || index.scope_columns)
                      AND simsql._column_name(a.attrelid, a.attnum) IS DISTINCT FROM a.attname)
        THEN
            PERFORM simsql._refuse_changed(table_name, 'its columns were renamed');
        END IF;
        IF index.storage = 'tables' AND simsql._emptied_tables(index) <> '{}' THEN
            PERFORM simsql._refuse_changed(table_name, 'its key tables were rewritten');
        END IF;
        -- near has compared the file of a table that had no children when it was stamped.
        IF simsql._takes_snapshots() AND simsql._is_rewritten(table_name) THEN
            PERFORM simsql._refuse_changed(table_name, 'a child of its table was emptied or rewritten');
        END IF;
    END IF;
    IF NOT simsql._takes_snapshots() THEN
        PERFORM simsql._check_snapshot(index_id);
    END IF;
END
$$;

-- The indexes whose keys a restore has found complete, with the stamps that they would get. pg_restore fills a materialized
-- view after everything else, so this compares the keys with the rows: those that were dumped without the others, or
-- written before the triggers existed. Otherwise nobody reads or refreshes it. An upgrade of 0.2.0 finds no stamps.
CREATE MATERIALIZED VIEW IF NOT EXISTS simsql._restored AS
SELECT r.id, simsql._current_stamp(r, simsql._key_table_ids(r)) AS stamp
  FROM simsql.registry AS r
 WHERE CASE WHEN r.ready AND r.storage = 'tables' AND r.stamp_id IS NOT NULL THEN simsql._has_all_keys(r) END;

COMMENT ON MATERIALIZED VIEW simsql._restored IS
    'the indexes whose keys were complete when this database was restored: pg_restore fills it';

GRANT SELECT ON simsql._restored TO PUBLIC;
