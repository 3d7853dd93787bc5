-- Until the end of the last file, names are looked up in pg_catalog alone: the role that runs the files may
-- have another schema before it, with a type called text. And names are quoted only where that is necessary,
-- as in what is compared with them.

DO $$
BEGIN
    PERFORM pg_catalog.set_config('simsql.search_path', pg_catalog.current_setting('search_path'), true),
            pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true),
            pg_catalog.set_config('simsql.quote_all_identifiers',
                                  pg_catalog.current_setting('quote_all_identifiers'), true),
            pg_catalog.set_config('quote_all_identifiers', 'off', true);
END
$$;
