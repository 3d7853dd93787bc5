-- NULL meant the default recipe. From now on it means that nobody has named the recipe.
UPDATE simsql.registry SET recipe = 'words12-log-1' WHERE recipe IS NULL;

ALTER TABLE simsql.registry ADD COLUMN sources jsonb;

-- create_index and build get a parameter. after_upgrade.sql gives the new functions the privileges of the old ones.
DO $$
BEGIN
    PERFORM set_config('simsql.privileges_on_' || p.proname, p.proacl::text, true)
       FROM pg_proc AS p
      WHERE p.pronamespace = 'simsql'::regnamespace AND p.proname IN ('create_index', 'build') AND p.proacl IS NOT NULL;
END
$$;
DROP FUNCTION simsql.create_index(regclass, text, integer, integer, integer, integer, text, text[], text);
DROP PROCEDURE simsql.build(regclass, text, integer, integer, integer, integer, text, text[], text);
DROP FUNCTION simsql._begin_build(regclass, text, integer, integer, integer, integer, text, text[], text),
              simsql._register(regclass, text, integer, integer, integer, integer, text, text[], text, boolean);
DROP FUNCTION simsql._other_callers(regprocedure);

DROP FUNCTION simsql._files(regclass);
