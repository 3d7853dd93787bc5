-- A load that writes keys itself: see simsql/database/load.py.

-- The indexes on these columns, without a scope, whose keys this session may write itself with the insert
-- trigger disabled. It has to own the table and the keys. No trigger of the user may change or add rows, and
-- none may be deferrable: while its events are pending, PostgreSQL refuses to disable triggers. PostgreSQL
-- has to count inserted rows, so that the load can tell whether there were more than its own.
CREATE OR REPLACE FUNCTION simsql._loadable_indexes(table_name regclass, columns text[])
RETURNS SETOF simsql.registry
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    index simsql.registry;
BEGIN
    IF NOT current_setting('track_counts')::boolean
       OR NOT has_table_privilege('simsql.registry', 'UPDATE')  -- for the stamp
       OR EXISTS (SELECT FROM pg_class AS c WHERE c.oid = table_name AND NOT pg_has_role(c.relowner, 'USAGE'))
       OR EXISTS (SELECT FROM pg_trigger AS t
                    JOIN pg_proc AS p ON p.oid = t.tgfoid
                   WHERE t.tgrelid = table_name
                     AND (t.tgdeferrable
                          OR NOT t.tgisinternal AND t.tgenabled <> 'D' AND t.tgtype & 4 <> 0  -- INSERT
                             AND p.pronamespace <> 'simsql'::regnamespace))
    THEN
        RETURN;
    END IF;
    FOR index IN
        SELECT r.* FROM simsql.registry AS r
         WHERE r.table_id = _loadable_indexes.table_name AND r.column_name = ANY (columns)
           AND r.scope_columns = '{}'
           AND r.storage = 'tables'
         ORDER BY r.id
    LOOP
        -- The trigger reports what is wrong with an index, if it concerns writers.
        BEGIN
            index := simsql._index(table_name, index.column_name);
        EXCEPTION
            WHEN object_not_in_prerequisite_state OR undefined_object THEN CONTINUE;
        END;
        CONTINUE WHEN EXISTS (SELECT FROM pg_class AS k
                               WHERE k.relnamespace = 'simsql'::regnamespace
                                 AND k.relname ~ format('^keys_%s_\d+$', index.id)
                                 AND NOT pg_has_role(k.relowner, 'USAGE'));
        RETURN NEXT index;
    END LOOP;
END
$$;

-- Locks out other writers until the end of the transaction, and disables the insert triggers of the indexes
-- whose keys this session may write itself. The session then has to add the keys of everything that it
-- inserts, to make the triggers fire always again, and to stamp the indexes.
CREATE OR REPLACE FUNCTION simsql._begin_direct_load(table_name regclass, columns text[])
RETURNS SETOF simsql.registry
LANGUAGE plpgsql
AS $$
DECLARE
    index simsql.registry;
BEGIN
    -- A snapshot that is older than the lock may not show a trigger that fires.
    IF current_setting('transaction_isolation') <> 'read committed'
       OR NOT EXISTS (SELECT FROM simsql._loadable_indexes(table_name, columns))
    THEN
        RETURN;
    END IF;
    PERFORM simsql._lock(table_name, 'SHARE ROW EXCLUSIVE', 'load_rows');
    FOR index IN SELECT * FROM simsql._loadable_indexes(table_name, columns) LOOP
        PERFORM simsql._set_firing(table_name, format('simsql_%s_insert', index.id), 'D');
        RETURN NEXT index;
    END LOOP;
EXCEPTION
    -- A cursor of this session is reading the table, or another session is changing an index of it
    -- concurrently, or goes on writing.
    WHEN object_in_use OR lock_not_available THEN RETURN;
END
$$;

-- Clients of 0.2.0 call this, and would not stamp the indexes: they load through the triggers.
CREATE OR REPLACE FUNCTION simsql._begin_load(table_name regclass, columns text[]) RETURNS SETOF simsql.registry
LANGUAGE sql STABLE
AS $$ SELECT r.* FROM simsql.registry AS r WHERE false $$;
