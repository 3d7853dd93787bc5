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
DROP FUNCTION simsql._lock_out(simsql.registry), simsql._backfill_parts(regclass, text[], text[], boolean), simsql._other_callers(regprocedure), simsql._btree_faults(simsql.registry, regclass, text[]),
              simsql._measured_candidates(regclass, bigint[], integer, text, jsonb),
              simsql._count_keys(simsql.registry, integer, bigint[], integer, integer, jsonb),
              simsql._key_table_faults(simsql.registry, simsql.registry, integer, boolean),
              simsql._scope_hash(simsql.registry, jsonb),
              simsql._join_designs(bigint, bigint, integer),
              simsql._join_tables(integer, integer, integer, integer, text, text);

-- What a stamp holds: see stamp.sql. after_upgrade.sql stamps the indexes that searches accepted.
CREATE TYPE simsql._mark AS (place tid, version xid);
CREATE TYPE simsql._keys_mark AS (name name, file oid);
CREATE TYPE simsql._column_mark AS (name name, type oid, generated "char");
CREATE TYPE simsql._stamp AS (
    file oid, has_children boolean, ids oid[], keys simsql._keys_mark[], numbers smallint[],
    columns simsql._column_mark[], triggers simsql._mark[], functions oid[], bodies simsql._mark[],
    policies simsql._mark[], expressions simsql._mark[]);
CREATE TYPE simsql._marks AS (
    file oid, files oid[], relations tid[], attributes tid[], triggers tid[], functions tid[], versions xid[]);
ALTER TABLE simsql.registry ADD COLUMN stamp simsql._stamp, ADD COLUMN stamp_id uuid, ADD COLUMN stamped_on jsonb,
                            ADD COLUMN marks simsql._marks;
ALTER TABLE simsql.registry SET (toast_tuple_target = 8160);

-- Version 0.2.0 has lost keys in rare cases, so after_upgrade.sql compares all keys with the rows.
SELECT set_config('simsql.compare', 'on', true);

-- Key tables get a row without a key: see _emptied_tables. It comes first: whoever finds its table empty has lost keys.
-- One that others have altered may refuse it, or run their code. It is dropped, and repair creates it again.
DO $$
DECLARE
    keys record;
BEGIN
    FOR keys IN
        SELECT c.oid::regclass::text AS name, (
               SELECT string_agg(format('ALTER %I DROP NOT NULL', a.attname), ', ')
                 FROM pg_attribute AS a WHERE a.attrelid = c.oid AND a.attnum > 0 AND a.attnotnull) AS changes,
               c.relhasrules
               OR EXISTS (SELECT FROM pg_trigger AS t
                           WHERE t.tgrelid = c.oid AND t.tgfoid <> 'simsql._ignore_applied'::regproc)
               OR EXISTS (SELECT FROM pg_constraint AS k WHERE k.conrelid = c.oid AND k.contype <> 'n')
               OR EXISTS (SELECT FROM pg_index AS i WHERE i.indrelid = c.oid
                             AND (i.indisunique OR i.indexprs IS NOT NULL OR i.indpred IS NOT NULL))
               OR EXISTS (SELECT FROM pg_attribute AS a
                           WHERE a.attrelid = c.oid AND (a.atthasdef OR a.attidentity <> ''))
               OR NOT EXISTS (SELECT FROM pg_attribute AS a WHERE a.attrelid = c.oid AND a.attname = 'key') AS is_altered
          FROM pg_class AS c
          JOIN simsql.registry AS r ON c.relname ~ format('^keys_%s_\d+$', r.id)
         WHERE c.relnamespace = 'simsql'::regnamespace AND c.relkind = 'r'
    LOOP
        IF keys.is_altered THEN
            RAISE WARNING 'simsql: the upgrade drops %, which was altered', keys.name
                USING HINT = 'simsql.repair creates it again.';
            EXECUTE 'DROP TABLE ' || keys.name;
            CONTINUE;
        ELSIF keys.changes IS NOT NULL THEN
            EXECUTE format('ALTER TABLE %s %s', keys.name, keys.changes);
        END IF;
        EXECUTE format('INSERT INTO %s (key) VALUES (NULL)', keys.name);
    END LOOP;
END
$$;

-- What an index is like comes from its stamp.
-- Others may have views on these two.
CREATE OR REPLACE VIEW simsql.indexes AS
SELECT r.id, r.table_name, r.column_name, r.scope_columns AS scope, r.distance, r.blocks, r.lead, r.inner_blocks,
       r.recipe, NULL::text AS state, r.storage, r.is_default, NULL::bigint AS bytes,
       NULL::double precision AS unvacuumed, NULL::timestamptz AS last_vacuum, NULL::text AS hint
  FROM simsql.registry AS r;
CREATE OR REPLACE VIEW simsql._searchable AS
SELECT r.id, r.table_id, r.column_name, r.is_default, r.distance, r.scope_columns, false AS sound
  FROM simsql.registry AS r;
DROP FUNCTION simsql._health(simsql.registry, boolean), simsql._expression_is_sound(simsql.registry),
              simsql._expression_advice(simsql.registry),
              simsql._expressions(simsql.registry), simsql._estimated_rows(regclass),
              simsql._is_counted(regclass), simsql._has_other_policies(regclass),
              simsql._search_decision(simsql.registry, jsonb), simsql._search_variables(simsql.registry),
              simsql._search_statement(simsql.registry, text, jsonb),
              simsql._rows_statement(simsql.registry, jsonb, text, text);
