-- change_storage: keeps an index in the other storage, with the same design, recipe and scope.
--
-- Creates the new objects beside the old ones, which serve searches until the last step: it replaces the
-- search functions and updates the registry.
--
-- B-trees keep the id of the index: every snapshot, however old, finds the rows that it sees in them. Key
-- tables are empty for a snapshot that is older than they are, so they get a new id, whose functions such a
-- snapshot does not call.
--
-- Claims before and after the change meet. They take the same locks as long as the id stays. If it changes,
-- the claims before it have locked the table, so the change waits for their transactions.

-- Returns the index whose storage is to be changed, or raises an error.
CREATE OR REPLACE FUNCTION simsql._check_storage_change(table_name regclass, storage text, column_name text)
RETURNS simsql.registry
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    index constant simsql.registry := simsql._index(table_name, column_name);
BEGIN
    IF storage IS NULL THEN
        RAISE EXCEPTION 'simsql.change_storage: the storage must not be null'
            USING ERRCODE = 'null_value_not_allowed',
                  HINT = 'For example: '
                         || simsql._call('change_storage', ARRAY[table_name::text, 'expression']);
    END IF;
    PERFORM simsql._storage(table_name, storage, 'change_storage');
    PERFORM simsql._check_indexable(table_name, index.column_name, index.scope_columns, storage,
                                    'change_storage');
    PERFORM simsql._check_upkeep(index, 'change_storage');
    RETURN index;
END
$$;

-- Writers wait, and searches go on until the end. With key tables, if transactions that have searched wait to
-- write, it starts over, and everybody waits. If there is nothing left to create, it keeps everybody waiting
-- from the start. With `keep`, triggers and key tables that B-trees replace stay, and keep every key.
CREATE OR REPLACE FUNCTION simsql._change_storage(
    table_name regclass, storage text, column_name text, keep boolean)
RETURNS integer
LANGUAGE plpgsql
AS $$
DECLARE
    index simsql.registry := simsql._check_storage_change(table_name, storage, column_name);
    renewed simsql.registry;
    is_alone boolean := index.storage = storage AND NOT keep;
BEGIN
    PERFORM simsql._take_turn(table_name, 'change_storage');
    LOOP
        BEGIN
            IF is_alone THEN
                PERFORM simsql._lock(table_name, 'ACCESS EXCLUSIVE', 'change_storage');
            END IF;
            PERFORM simsql._lock(table_name, 'SHARE ROW EXCLUSIVE', 'change_storage');
            -- With a column: the default index may have changed.
            index := simsql._check_storage_change(table_name, storage, index.column_name);
            IF index.storage = storage THEN
                IF storage = 'tables' THEN
                    PERFORM simsql._expression_drop(index);  -- B-trees of an interrupted change
                END IF;
            ELSIF storage = 'tables' THEN
                renewed := simsql._renew(index);
                PERFORM simsql._give(renewed, simsql._owner(index));
                PERFORM simsql._lock(table_name, 'ACCESS EXCLUSIVE', 'change_storage');
                PERFORM simsql._drop_objects(index);
                PERFORM simsql._stamp(renewed.id);
                RETURN renewed.id;
            ELSE
                index.storage := storage;
                PERFORM simsql._create_btrees(index);
                UPDATE simsql.registry AS r SET storage = index.storage WHERE r.id = index.id;
                PERFORM simsql._create_functions(index);
                PERFORM simsql._give(index, simsql._owner(index));
            END IF;
            IF storage = 'expression' AND NOT keep
               AND to_regclass(format('simsql.keys_%s_0', index.id)) IS NOT NULL
            THEN
                PERFORM simsql._lock(table_name, 'ACCESS EXCLUSIVE', 'change_storage');
                PERFORM simsql._tables_drop(index);
            END IF;
            PERFORM simsql._stamp(index.id);
            RETURN index.id;
        EXCEPTION WHEN deadlock_detected THEN
            IF is_alone OR storage <> 'tables' THEN
                RAISE;
            END IF;
            is_alone := true;
        END;
    END LOOP;
END
$$;

CREATE OR REPLACE FUNCTION simsql.change_storage(
    table_name regclass, storage text, column_name text DEFAULT NULL)
RETURNS integer
LANGUAGE plpgsql
AS $$
BEGIN
    RETURN simsql._change_storage(table_name, storage, column_name, keep => false);
END
$$;

COMMENT ON FUNCTION simsql.change_storage(regclass, text, text) IS
    'keep a simhash index in key tables or in B-trees on the table (tables, expression), in this '
    'transaction, and return its id; writers wait, and searches go on until it is done';
