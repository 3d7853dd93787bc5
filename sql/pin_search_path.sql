-- The last file. It makes every function look up names in pg_catalog alone, quote them only where that is
-- necessary, because names are compared as text, and read strings as the standard does. It resets settings of
-- this session. Otherwise a role that may create functions in a schema on a caller's search_path could have
-- them called with that caller's privileges: it is easy to create a better match than pg_catalog's
-- format(text, VARIADIC "any").

DO $$
DECLARE
    -- Functions that an upgrade has replaced, or dropped to create them with other parameters, keep their privileges.
    existing constant text[] := coalesce(nullif(current_setting('simsql.routines', true), ''), '{}')::text[] || ARRAY(
        SELECT p.oid::regprocedure::text FROM pg_proc AS p
         WHERE p.pronamespace = 'simsql'::regnamespace
           AND current_setting('simsql.privileges_on_' || p.proname, true) <> '');
    signature text;
BEGIN
    FOR signature IN
        SELECT p.oid::regprocedure::text FROM pg_proc AS p
         WHERE p.pronamespace = 'simsql'::regnamespace
           AND p.prokind = 'f'  -- a procedure with settings cannot commit: ours qualify every name
           -- Other functions looked up names when they were created, and stay inlinable.
           AND p.prosqlbody IS NULL
           -- Those of an index have settings of their own.
           AND p.proname !~ '^(search|scan|similar|rows|add_on_[a-z]+)_\d+$'
    LOOP
        EXECUTE format('ALTER FUNCTION %s SET search_path = pg_catalog, pg_temp', signature);
        -- Every search calls these, and each setting takes time. They neither make names into text nor contain backslashes.
        CONTINUE WHEN signature ~ '^simsql\.(near|near_rows|claim|_claim_locks|_reads_columns|_sees_rows|_locks?_at_once|_is_complete)\(';
        EXECUTE format('ALTER FUNCTION %s SET quote_all_identifiers = off', signature);
        EXECUTE format('ALTER FUNCTION %s SET standard_conforming_strings = on', signature);
    END LOOP;
    -- What has been installed, to compare it later.
    EXECUTE format('CREATE OR REPLACE FUNCTION simsql._installed() RETURNS jsonb LANGUAGE sql IMMUTABLE PARALLEL SAFE '
                   'RETURN %L::jsonb', (SELECT jsonb_agg(jsonb_build_object('kind', d.kind, 'name', d.name,
                                                                            'definition', d.definition)
                                                         ORDER BY d.kind, d.name)
                                          FROM simsql._definitions() AS d));
    PERFORM simsql._set_privileges(existing => existing);
    PERFORM set_config(s.name, current_setting('simsql.' || s.name), true)
       FROM unnest('{quote_all_identifiers,standard_conforming_strings,plpgsql.extra_errors,search_path}'::text[]) AS s (name);
END
$$;
