-- Until the end of the last file, names are looked up in pg_catalog alone: the role that runs the files may
-- have another schema before it, with a type called text. And names are quoted only where that is necessary,
-- as in what is compared with them; strings are read as the standard does; and PL/pgSQL creates functions that its
-- optional checks complain about. Installations and upgrades take turns.

DO $$
BEGIN
    PERFORM pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended('simsql.install', 0));
    PERFORM pg_catalog.set_config(pg_catalog.concat('simsql.', s.name), pg_catalog.current_setting(s.name), true),
            pg_catalog.set_config(s.name, s.value, true)
       FROM (VALUES ('quote_all_identifiers', 'off'), ('standard_conforming_strings', 'on'),
                    ('plpgsql.extra_errors', 'none'), ('search_path', 'pg_catalog, pg_temp')) AS s (name, value);
    -- An upgrade keeps the privileges on the functions that there are.
    PERFORM set_config('simsql.routines', ARRAY(SELECT p.oid::regprocedure FROM pg_proc AS p
                                                 WHERE p.pronamespace = to_regnamespace('simsql'))::text, true);
END
$$;
