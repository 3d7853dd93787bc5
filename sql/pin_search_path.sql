-- The last file: every function looks names up in pg_catalog alone, and this session as it did before. Otherwise a role that may create
-- functions in a schema on somebody's search_path could have them called, with that caller's rights:
-- a better match than pg_catalog's format(text, VARIADIC "any") is easily made.

DO $$
DECLARE
    signature text;
BEGIN
    FOR signature IN
        SELECT p.oid::regprocedure::text FROM pg_proc AS p
         WHERE p.pronamespace = 'simsql'::regnamespace
           AND p.prokind = 'f'  -- a procedure with settings could not commit: these name everything in full
           AND p.prosqlbody IS NULL  -- else its names were looked up when it was created, and it stays inlinable
    LOOP
        EXECUTE format('ALTER FUNCTION %s SET search_path = pg_catalog, pg_temp', signature);
    END LOOP;
    PERFORM set_config('search_path', current_setting('simsql.search_path'), true);
END
$$;
