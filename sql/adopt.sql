-- adopt: what an installation does about a schema that was restored without its data, as by pg_dump --schema-only, a
-- structure.sql, or with --exclude-table-data.
--
-- Such a schema has the objects of indexes, but the registry does not know them: the triggers add keys that nobody finds.

-- The ids of such indexes, and their owners.
CREATE OR REPLACE FUNCTION simsql._unknown_indexes() RETURNS TABLE (id integer, owner oid)
LANGUAGE sql STABLE
AS $$
    SELECT o.index_id, mode() WITHIN GROUP (ORDER BY o.owner)
      FROM simsql._objects() AS o
     WHERE o.index_id IS NOT NULL AND NOT EXISTS (SELECT FROM simsql.registry AS r WHERE r.id = o.index_id)
       AND NOT row_security_active('simsql.registry')  -- which would hide all of them
     GROUP BY o.index_id
$$;

-- What the comment of the search function tells of such an index, which is text of its owner, and the table that has its
-- triggers or, without triggers, that the comment names.
CREATE OR REPLACE FUNCTION simsql._unknown_index(index_id integer) RETURNS simsql.registry
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    index simsql.registry;
BEGIN
    BEGIN
        index := jsonb_populate_record(index, (
            SELECT obj_description(p.oid, 'pg_proc')::jsonb FROM pg_proc AS p
             WHERE p.pronamespace = 'simsql'::regnamespace AND p.proname = 'search_' || index_id LIMIT 1));
    EXCEPTION WHEN data_exception THEN NULL;
    END;
    index.id := index_id;
    index.table_id := coalesce((
        SELECT t.tgrelid FROM pg_trigger AS t JOIN pg_proc AS p ON p.oid = t.tgfoid
         WHERE p.pronamespace = 'simsql'::regnamespace AND p.proname ~ format('^add_on_[a-z]+_%s$', index_id) LIMIT 1),
        to_regclass(index.table_name));
    RETURN index;
END
$$;

-- Notes the revision, if none is noted, and creates these indexes again or, if nothing tells how, drops what they have.
-- Returns a line about each.
CREATE OR REPLACE FUNCTION simsql._adopt(revision text) RETURNS SETOF text
LANGUAGE plpgsql
AS $$
DECLARE
    unknown record;
    index simsql.registry;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('simsql.install', 0));  -- installations take turns
    INSERT INTO simsql.schema_version (version_num)
    SELECT revision WHERE NOT EXISTS (SELECT FROM simsql.schema_version);
    FOR unknown IN SELECT u.* FROM simsql._unknown_indexes() AS u ORDER BY u.id LOOP
        index := simsql._unknown_index(unknown.id);
        IF index.table_id IS NOT NULL THEN
            PERFORM simsql._lock(index.table_id, 'ACCESS EXCLUSIVE', 'create_index');
        END IF;
        PERFORM simsql._drop_objects(index);
        -- A comment may name the table of somebody else, whose keys its owner must not get.
        IF index.table_name IS NULL OR NOT EXISTS (
            SELECT FROM pg_class AS c WHERE c.oid = index.table_id AND pg_has_role(unknown.owner, c.relowner, 'USAGE'))
        THEN
            RETURN NEXT format('simhash index on %s: its remains are dropped, create it again',
                               coalesce(index.table_id::text, index.table_name, 'an unknown table'));
            CONTINUE;
        END IF;
        index.id := simsql.create_index(
            index.table_id, index.column_name, index.distance, index.blocks, index.lead, index.inner_blocks, index.recipe,
            index.scope_columns, index.storage, index.sources);
        UPDATE simsql.registry AS r SET is_default = r.id = index.id WHERE r.table_id = index.table_id AND index.is_default;
        SELECT r.* INTO index FROM simsql.registry AS r WHERE r.id = index.id;
        PERFORM simsql._describe(index);
        PERFORM simsql._give(index, unknown.owner);
        PERFORM simsql._stamp(index.id);
        RETURN NEXT format('simhash index on %s(%I): created again', index.table_id, index.column_name);
    END LOOP;
END
$$;
