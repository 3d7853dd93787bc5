CREATE TYPE simsql._fault AS (
    problem text, object text, state text, effect text, message text, advice text, remedy text);
CREATE TYPE simsql.wide_match AS (fingerprint bigint[], distance integer);

ALTER TABLE simsql.registry ADD COLUMN nonce text NOT NULL DEFAULT gen_random_uuid();
-- Until an index is vacuumed, its searches expect random fingerprints.
ALTER TABLE simsql.registry ADD COLUMN candidate_shares double precision[];
ALTER TABLE simsql.registry ADD COLUMN storage text NOT NULL DEFAULT 'tables' CHECK (storage IN ('tables', 'expression'));
ALTER TABLE simsql.registry ADD COLUMN scope_types regtype[] NOT NULL DEFAULT '{}';
ALTER TABLE simsql.registry ADD COLUMN is_default boolean;
-- Null until the next vacuum.
ALTER TABLE simsql.registry ADD COLUMN vacuumed_at timestamptz, ADD COLUMN vacuumed_keys bigint,
    ADD COLUMN vacuumed_rows double precision;

-- Under quote_all_identifiers = on, 0.1.0 quoted the names of tables.
UPDATE simsql.registry AS r SET table_name = format('%I.%I', n.nspname, c.relname)
  FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
 WHERE c.oid = r.table_id AND parse_ident(r.table_name) = ARRAY[n.nspname, c.relname]::text[];

-- The types for which an index was created are those of its keys.
UPDATE simsql.registry AS r
   SET scope_types = ARRAY(
       SELECT coalesce(k.atttypid, simsql._scope_type(r.table_id, s.name))::regtype
         FROM unnest(r.scope_columns) WITH ORDINALITY AS s (name, number)
         LEFT JOIN pg_attribute AS k
           ON k.attrelid = to_regclass(format('simsql.keys_%s_0', r.id)) AND k.attname = 'scope_' || s.number
        ORDER BY s.number);

-- The progress of a build moves to a table that after_upgrade.sql gives to the owner of the index: see _tables_create.
DO $$
DECLARE
    index simsql.registry;
BEGIN
    FOR index IN SELECT r.* FROM simsql.registry AS r WHERE NOT r.ready ORDER BY r.id LOOP
        EXECUTE format('CREATE UNLOGGED TABLE simsql.built_%1$s (fp bigint, scope text[]); '
                       'ALTER TABLE simsql.built_%1$s ENABLE ROW LEVEL SECURITY', index.id);
        IF index.built_to IS NOT NULL THEN
            EXECUTE format('INSERT INTO simsql.built_%s VALUES (%L, %L)', index.id, index.built_to, index.built_scope);
        END IF;
    END LOOP;
END
$$;

ALTER TABLE simsql.registry DROP COLUMN built_to, DROP COLUMN built_scope;

-- create_index and build get a parameter. after_upgrade.sql gives the new functions the privileges of the old ones.
DO $$
BEGIN
    PERFORM set_config('simsql.privileges_on_' || p.proname, p.proacl::text, true)
       FROM pg_proc AS p
      WHERE p.pronamespace = 'simsql'::regnamespace AND p.proname IN ('create_index', 'build') AND p.proacl IS NOT NULL;
END
$$;

DROP FUNCTION simsql._check_sound(simsql.registry),
              simsql._check_columns(regclass, integer, text[], boolean),
              simsql._verify_objects(simsql.registry), simsql._verify_key_table(simsql.registry, text),
              simsql._verify_keys(simsql.registry), simsql._mend_keys(simsql.registry),
              simsql._verify_btree(regclass, text[]), simsql._mend_objects(simsql.registry, simsql.finding[]);
DROP FUNCTION simsql._backfill_parts(regclass, text, text[], boolean),
              simsql._triggers(simsql.registry), simsql._pairs_statements(bigint, integer),
              simsql._claim_locks(integer, bigint, bigint, integer, integer),
              simsql._scan_below(integer, integer, integer),
              simsql._probed_up_to(simsql.registry), simsql._probing_pays(simsql.registry, text),
              simsql._check_indexable(regclass, text, text[], text),
              simsql._check_new(regclass, text, integer, integer, integer, integer, text[], text),
              simsql._register(regclass, text, integer, integer, integer, integer, text, text[], boolean),
              simsql.create_index(regclass, text, integer, integer, integer, integer, text, text[]),
              simsql._begin_build(regclass, text, integer, integer, integer, integer, text, text[]);
-- What they did is an operation of a storage now, or part of one: see storage/storage.sql.
DROP FUNCTION simsql._built_share(simsql.registry), simsql._keys_by_size(simsql.registry),
              simsql._superfluous(simsql.registry, integer, text[]), simsql._trigger_functions(simsql.registry),
              simsql._uneven_tables(simsql.registry);
-- These are part of the function that called them.
DROP FUNCTION simsql._build_statement(simsql.registry), simsql._create_keys(simsql.registry, boolean),
              simsql._end_load(regclass, integer),
              simsql._packed_fingerprints(regclass, text, bigint, bigint),
              simsql._packed_column(simsql.registry, jsonb, bigint),
              simsql._check_backfill(regclass, text, text[]), simsql._dependents(),
              simsql._check_design(integer, integer, integer, text);
DROP FUNCTION simsql._exact_up_to(simsql.registry), simsql._flips(integer, integer),
              simsql._in_scope(simsql.registry, jsonb, text), simsql._search_statement(simsql.registry, text, text[]),
              simsql._search_variables(simsql.registry, text), simsql._join_design(bigint, bigint, integer),
              simsql._join_tables(integer, integer, integer, integer, text, text);
DROP FUNCTION simsql._permute(text, bigint), simsql._unpermute(text, bigint), simsql._moves(bigint),
              simsql._radius_of_parameter(integer, integer, integer, integer),
              simsql._near_documents(regclass, bigint, integer, text, jsonb),
              simsql._rows_statement(simsql.registry, jsonb, text),
              simsql._for_scope(simsql.registry, text), simsql._scope_type(regclass, text),
              simsql._check_scope(regclass, text, text[], jsonb), simsql._costs();
DROP PROCEDURE simsql.build(regclass, text, integer, integer, integer, integer, text, text[]);

-- Every index gets a trigger for logical replication. It calls nothing yet: after_upgrade.sql makes its function.
-- Rows that were applied to a table before are missing in its index. So searches refuse it until it is repaired.
DO $$
DECLARE
    index simsql.registry;
    indexed_table text;
BEGIN
    FOR index IN SELECT r.* FROM simsql.registry AS r JOIN pg_class AS c ON c.oid = r.table_id ORDER BY r.id LOOP
        indexed_table := index.table_id;
        EXECUTE format('CREATE FUNCTION simsql.add_on_replica_%s() RETURNS trigger LANGUAGE plpgsql AS ''BEGIN RETURN NULL; END''',
                       index.id);
        EXECUTE format('CREATE TRIGGER simsql_%1$s_replica AFTER INSERT OR UPDATE ON %2$s FOR EACH ROW '
                       'EXECUTE FUNCTION simsql.add_on_replica_%1$s()', index.id, indexed_table);
        IF EXISTS (SELECT FROM pg_subscription_rel AS s WHERE s.srrelid = index.table_id) THEN
            RAISE WARNING 'simsql: rows that logical replication has applied to % are not in its simhash index', indexed_table
                USING HINT = format('Searches are refused until you call: SELECT * FROM simsql.repair(%L);', indexed_table);
        ELSE
            EXECUTE format('ALTER TABLE %s ENABLE REPLICA TRIGGER simsql_%s_replica', indexed_table, index.id);
        END IF;
    END LOOP;
END
$$;
