-- change_storage: keeps an index in the other storage, with the same design, recipe and scope.
--
-- Creates the new objects beside the old ones, which serve searches until the last step: it replaces the
-- search functions and updates the registry. An interrupted change, or one that does not get the lock for its last
-- step, leaves both, and the next one goes on: B-trees are never incomplete, and key tables have a stamp.
--
-- B-trees keep the id of the index: every snapshot, however old, finds the rows that it sees in them. Key
-- tables are empty for a snapshot that is older than they are, so they get a new id with the last step, whose
-- functions such a snapshot does not call.
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

-- Whether an index in B-trees has key tables, too, in which searches would find every key.
CREATE OR REPLACE FUNCTION simsql._has_key_tables(index simsql.registry) RETURNS boolean
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    index.storage := 'tables';
    RETURN array_position(simsql._key_table_ids(index), NULL) IS NULL
           AND NOT EXISTS (SELECT FROM unnest(simsql._faults(index)) AS f WHERE f.effect = 'refuses');
END
$$;

-- Gives an index in B-trees key tables and the triggers that add keys, instead of those of an interrupted change.
CREATE OR REPLACE FUNCTION simsql._add_key_tables(index simsql.registry) RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM simsql._tables_drop(index);
    index.storage := 'tables';
    PERFORM simsql._tables_create(index, filled => true);
    PERFORM simsql._create_function(f.name, f.arguments, f.head, f.settings, f.body)
       FROM simsql._trigger_functions(index) AS f;
    PERFORM simsql._create_triggers(index);
END
$$;

-- Writers wait, and searches go on until the end. With key tables, if transactions that have searched wait to
-- write, it starts over, and everybody waits. If there is nothing left to create, it keeps everybody waiting
-- from the start. With `keep`, it leaves out the last step: triggers and key tables keep every key, and searches use
-- the B-trees.
CREATE OR REPLACE FUNCTION simsql._change_storage(
    table_name regclass, storage text, column_name text, keep boolean)
RETURNS integer
LANGUAGE plpgsql
AS $$
DECLARE
    index simsql.registry := simsql._check_storage_change(table_name, storage, column_name);
    is_alone boolean := NOT keep AND (index.storage = storage OR storage = 'tables' AND simsql._has_key_tables(index));
    owner oid;
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
            owner := simsql._owner(index);
            IF index.storage = storage AND keep THEN
                RETURN index.id;
            ELSIF index.storage = storage AND storage = 'tables' THEN
                PERFORM simsql._expression_drop(index);  -- B-trees of an interrupted change
            ELSIF storage = 'tables' AND NOT simsql._has_key_tables(index) THEN
                PERFORM simsql._add_key_tables(index);
            ELSIF index.storage <> storage AND storage = 'expression' THEN
                index.storage := storage;
                PERFORM simsql._create_btrees(index);
                UPDATE simsql.registry AS r SET storage = index.storage WHERE r.id = index.id;
                PERFORM simsql._create_functions(index);
            END IF;
            PERFORM simsql._give(index, owner);
            IF keep THEN
                index.storage := 'tables';
                PERFORM simsql._stamp(simsql._stamped(index));
                RETURN index.id;
            END IF;
            IF storage = 'tables' AND index.storage <> storage THEN
                PERFORM simsql._lock(table_name, 'ACCESS EXCLUSIVE', 'change_storage');
                index := simsql._renew(index);
                PERFORM simsql._give(index, owner);
            ELSIF to_regclass(format('simsql.keys_%s_0', index.id)) IS NOT NULL AND storage = 'expression' THEN
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
