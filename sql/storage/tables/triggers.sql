-- The triggers of an index and the functions that they call.
--
-- Writers always add keys and never check whether a key exists. The design is a constant in the trigger
-- functions, and they read no table of simsql: a writer with an older snapshot would not see the row in the
-- registry, and would add nothing.
--
-- Statement triggers add the keys of all new rows at once. They are ENABLE ALWAYS, so that disabling and
-- enabling them leaves a trace. Logical replication applies rows without firing statement triggers, so an
-- ENABLE REPLICA row trigger adds the keys there. Statement triggers that do fire in a replica session leave
-- the keys to it, if it has counted all rows: a function of the table's owner may have changed the session in
-- the middle of a statement.
--
-- The functions run with the privileges of the index's owner, so a writer needs no privileges other than
-- those on the table. Nothing that the owner of the table controls may therefore be evaluated in them:
--   * pg_typeof of a transition row tells the type of a column. The catalogue would tell it as of the
--     transaction's snapshot, which may be older than the column. The INSERT is planned only if all types are
--     right: planning a cast may already call a function.
--   * Transition tables have the names of relations in pg_catalog. If a trigger without transition tables
--     calls the function, on whatever table, the function reads the catalogue, and not a temporary table or
--     view of that name.
--   * Until the types are checked, columns are named without a table: PostgreSQL reads n.name as name(n) if n
--     has no such column.
--   * Relations of the catalogue are qualified, because a transition table may have the name of any of them.
--     So are variables that are used beside its columns.

-- The condition that the columns have the types for which the index was created. `row` qualifies the columns:
-- 'NEW.' or nothing.
CREATE OR REPLACE FUNCTION simsql._types_are_right(index simsql.registry, "row" text) RETURNS text
LANGUAGE sql STABLE
AS $$
    SELECT string_agg(simsql._render(CASE c.number
               WHEN 0 THEN $sql$pg_typeof({row}{"column"}) = {'type'}::regtype$sql$
               ELSE $sql$(pg_typeof({row}{"column"}) = {'type'}::regtype
                          OR simsql._base_type(pg_typeof({row}{"column"})) = {'type'}::regtype)$sql$ END,
               jsonb_build_object('row', "row", 'column', c.name, 'type', c.type)), ' AND ' ORDER BY c.number)
      FROM (SELECT 0, index.column_name, 'bigint'
             UNION ALL
            SELECT s.number, s.column_name, s.type FROM simsql._scope_columns(index) AS s
           ) AS c (number, name, type)
$$;

-- Raises an error if key tables have stored different numbers of keys of one statement: a trigger or a rule has
-- kept some away, and would leave no trace once it is gone.
CREATE OR REPLACE FUNCTION simsql._refuse_lost_keys(table_name text) RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    RAISE EXCEPTION 'simsql: keys of rows of % were not stored', table_name
        USING ERRCODE = 'object_not_in_prerequisite_state',
              HINT = 'A trigger or a rule on a key table in the schema simsql keeps them away: '
                     || simsql._call('verify', '{}');
END
$$;

-- A table, by name, if its trigger has a definition that begins so, and otherwise null. It reads the catalogue, but is
-- IMMUTABLE, so that PostgreSQL calls it when it plans a statement: one that reads a transition table is planned anew
-- after every change of the table. Another table may have taken over the name, and be locked.
CREATE OR REPLACE FUNCTION simsql._table_of_trigger(table_name text, trigger_name text, definition text) RETURNS oid
LANGUAGE plpgsql IMMUTABLE
SET lock_timeout = '1ms'
AS $$
BEGIN
    RETURN CASE WHEN starts_with(pg_get_triggerdef((pg_get_object_address(
                                     'trigger', parse_ident(table_name) || trigger_name, '{}')).objid), definition)
                THEN to_regclass(table_name) END;
EXCEPTION
    WHEN undefined_object OR undefined_table OR invalid_schema_name OR wrong_object_type OR lock_not_available THEN
        RETURN NULL;
END
$$;

-- The trigger functions. They refuse triggers of other indexes, which pg_dump may have carried to a table
-- here, and renamed columns. The nonce is not secret; it distinguishes indexes with the same id.
--
-- With many keys, inserting them into a B-tree in their order takes a third less time. An update of other columns
-- adds no keys, because the old rows have theirs: one test finds that out for all key tables. A foreign key may
-- update a row twice in one statement: its state in between is in both transition tables, once for each time, so
-- versions are counted and not compared as sets. The old rows of inheritance children have no keys: they do not
-- count if the table has or had a child, or if a snapshot that is older than the last change of the table's row in
-- the catalogue may not show a child.
CREATE OR REPLACE FUNCTION simsql._trigger_functions(index simsql.registry)
RETURNS TABLE (name text, arguments text, head text, settings text[], body text)
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    columns constant text[] := index.column_name || index.scope_columns;
    shared jsonb := simsql._tables_parts(index) || jsonb_build_object(
        'nonce', index.nonce,
        'columns', columns::text,
        'names', (SELECT string_agg(quote_ident(c.name), ' or ' ORDER BY c.number)
                    FROM unnest(columns) WITH ORDINALITY AS c (name, number)),
        'found', (SELECT string_agg('(pg_identify_object_as_address(1259, TG_RELID, t.tgattr[' || place
                                    || '])).object_names[3]', ', ' ORDER BY place)
                    FROM generate_series(0, cardinality(index.scope_columns)) AS place),
        'f_scope', simsql._for_scope(index, 'f.%1$s, '),
        'n_scope', simsql._for_scope(index, 'n.%2$I AS %1$s, '),
        'n_in_a_scope', simsql._for_scope(index, ' AND n.%2$I IS NOT NULL'),
        'o_scope', simsql._for_scope(index, 'o.%2$I, '),
        'order', (SELECT string_agg(place::text, ', ' ORDER BY place)
                    FROM generate_series(1, cardinality(index.scope_columns) + 1) AS place),
        'new_scope', simsql._for_scope(index, 'NEW.%2$I, '),
        'new_in_no_scope', simsql._for_scope(index, ' OR NEW.%2$I IS NULL'),
        'same_scope', simsql._for_scope(index, ' AND OLD.%2$I = NEW.%2$I'),
        'scope_values', simsql._for_scope(index, ', %2$I AS %1$s'),
        'one_in_no_scope', simsql._for_scope(index, ' OR simsql.one.%1$s IS NULL'),
        'one_scope', simsql._for_scope(index, 'simsql.one.%1$s, '));
    inserts constant text := $sql$
    INSERT INTO {keys} ({key_columns}) VALUES ({values}{key});
    IF NOT FOUND THEN
        PERFORM simsql._refuse_lost_keys(TG_TABLE_NAME);
    END IF;$sql$;
    event text;
    added text;
BEGIN
    arguments := '()';
    head := 'RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER';
    settings := ARRAY['search_path=pg_catalog, pg_temp'];
    shared := shared || jsonb_build_object('stored', $sql$
        GET DIAGNOSTICS stored = ROW_COUNT;
        IF simsql.stored <> simsql.stored_before THEN
            PERFORM simsql._refuse_lost_keys(TG_TABLE_NAME);
        END IF;
        stored_before := simsql.stored;$sql$, 'its_trigger', simsql._render($sql$
    IF TG_ARGV[0] IS DISTINCT FROM {'nonce'} THEN
        RAISE EXCEPTION 'simsql: trigger % of % does not belong to a simhash index of this database', TG_NAME,
                        TG_RELID::regclass
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = 'The table was restored without its index. Create the index again, which drops such '
                         'triggers: '
                         || simsql._call('create_index', ARRAY[TG_RELID::regclass::text, {'column'}])
                         || format(' or drop them: DROP TRIGGER %I ON %s;', TG_NAME, TG_RELID::regclass);
    END IF;$sql$, '{}', shared), 'its_columns', simsql._render($sql$
    IF (SELECT ARRAY[{found}]
          FROM pg_catalog.pg_trigger AS t
         WHERE t.tgrelid = TG_RELID AND t.tgname = 'simsql_{id}_column') IS DISTINCT FROM {'columns'}::text[]
    THEN
        PERFORM simsql._check_columns(TG_RELID::regclass, {id}, {'columns'}::text[]);
    END IF;$sql$, '{}', shared), 'refusal', simsql._render($sql$
        RAISE EXCEPTION 'simsql: column % of % changed its type after its simhash index was created',
                        {'names'}, TG_RELID::regclass
            USING ERRCODE = 'datatype_mismatch',
                  HINT = 'Drop the index: '
                         || simsql._call('drop_index', ARRAY[TG_RELID::regclass::text, {'column'}]);
        $sql$, '{}', shared));
    FOREACH event IN ARRAY '{insert,update}'::text[] LOOP
        name := format('add_on_%s_%s', event, index.id);
        added := CASE event  -- pg_am has the new rows, pg_amop the old ones: see the top of this file
            WHEN 'insert' THEN $sql$
                SELECT {distinct}{n_scope}n.{"column"} AS fp
                  FROM pg_am AS n WHERE n.{"column"} IS NOT NULL{n_in_a_scope}$sql$
            ELSE $sql$
                SELECT {distinct}d.* FROM (
                    SELECT {n_scope}n.{"column"} AS fp
                      FROM pg_am AS n WHERE n.{"column"} IS NOT NULL{n_in_a_scope}
                    EXCEPT ALL SELECT {o_scope}o.{"column"} FROM pg_amop AS o WHERE simsql.alone) AS d$sql$ END;
        body := simsql._render($sql$#variable_conflict use_column
<<simsql>>
DECLARE
    one record;
    all_added boolean;{alone}
    stored bigint;
    stored_before bigint;
BEGIN
    IF current_setting('session_replication_role') = 'replica' THEN
        all_added := current_setting('simsql.added_{id}', true) = (SELECT count(*)::text FROM pg_am);
        PERFORM set_config('simsql.added_{id}', '0', true);
        IF all_added THEN
            RETURN NULL;
        END IF;
    END IF;
    {its_trigger}
    SELECT simsql._table_of_trigger({'table'}, 'simsql_{id}_column', {'definition'}) AS its_table
      INTO one FROM pg_am LIMIT 1;
    IF NOT FOUND THEN
        RETURN NULL;
    ELSIF simsql.one.its_table IS DISTINCT FROM TG_RELID THEN
        {its_columns}
    END IF;
    SELECT {types_are_right} AS types_are_right, EXISTS (SELECT FROM pg_am OFFSET 1) AS several,
           {unchanged} AS unchanged, {"column"} AS fp{scope_values}
      INTO one FROM pg_am LIMIT 1;
    IF NOT simsql.one.types_are_right THEN
        {refusal}
    ELSIF NOT simsql.one.several THEN
        IF simsql.one.unchanged OR simsql.one.fp IS NULL{one_in_no_scope} THEN
            RETURN NULL;
        END IF;
        {inserts_of_one}
        RETURN NULL;
    END IF;
    {unless_changed}
    {inserts_of_several}
    RETURN NULL;
END$sql$,
            jsonb_build_object(
                'types_are_right', simsql._types_are_right(index, NULL),
                -- Bytes are compared, so that no type or collation has a say.
                'unchanged', CASE event WHEN 'insert' THEN 'false' ELSE format(
                    'record_image_eq(ROW(%1$s), (SELECT ROW(%1$s) FROM pg_amop LIMIT 1))', simsql._name_list(columns)) END,
                'definition', format('CREATE TRIGGER simsql_%s_column AFTER UPDATE OF %s ON ', index.id,
                                     simsql._name_list(columns)),
                'inserts_of_one', simsql._for_key_tables(index, inserts, 'simsql.one.fp', '',
                    shared || jsonb_build_object('values', shared ->> 'one_scope')),
                'alone', CASE event WHEN 'update' THEN E'\n    alone boolean;' END,
                'unless_changed', CASE event WHEN 'update' THEN simsql._render($sql$
    alone := pg_catalog.bool_and(
        NOT c.relhassubclass
        AND (c.xmax = '0'::pg_catalog.xid
             OR pg_catalog.current_setting('transaction_isolation') IN ('read committed', 'read uncommitted')))
        FROM pg_catalog.pg_class AS c WHERE c.oid = TG_RELID;
    IF NOT EXISTS ({added}) THEN
        RETURN NULL;
    END IF;$sql$, jsonb_build_object('added', simsql._render(added, '{"distinct": ""}', shared))) END,
                'inserts_of_several', simsql._for_key_tables(index, $sql$
    INSERT INTO {keys} ({key_columns})
    SELECT {f_scope}{key} FROM ({added}) AS f ORDER BY {order};{stored}$sql$, 'f.fp', '',
                    shared || jsonb_build_object(
                        'added', simsql._render(added, '{}', shared || '{"distinct": "DISTINCT "}')))),
            shared);
        RETURN NEXT;
    END LOOP;
    name := 'add_on_replica_' || index.id;
    body := simsql._render($sql$
BEGIN
    {its_trigger}
    {its_columns}
    IF NOT ({types_are_right}) THEN
        {refusal}
    END IF;
    PERFORM set_config('simsql.added_{id}',
                       (1 + coalesce(nullif(current_setting('simsql.added_{id}', true), ''), '0')::bigint)::text,
                       true);
    IF NEW.{"column"} IS NULL{new_in_no_scope} THEN
        RETURN NULL;
    END IF;
    IF TG_OP = 'UPDATE' THEN
        IF OLD.{"column"} = NEW.{"column"}{same_scope} THEN
            RETURN NULL;
        END IF;
    END IF;
    {inserts}
    RETURN NULL;
END$sql$,
        jsonb_build_object(
            'types_are_right', simsql._types_are_right(index, 'NEW.'),
            'inserts', simsql._for_key_tables(index, inserts, format('NEW.%I', index.column_name), '',
                                              shared || jsonb_build_object('values', shared ->> 'new_scope'))),
        shared);
    RETURN NEXT;
END
$$;

-- Two of them never fire, but they record in the catalogue what a name cannot. The first identifies the
-- columns, the fingerprint column and then the scope, by number, whatever their names are (see
-- _check_columns). It also makes PostgreSQL refuse ALTER COLUMN TYPE, which rewrites values without firing
-- triggers. The second makes PostgreSQL refuse to turn the table into a partition or an inheritance child,
-- whose rows can be written through a parent.
CREATE OR REPLACE FUNCTION simsql._triggers(index simsql.registry)
RETURNS TABLE (name text, definition text, fires "char")
LANGUAGE sql STABLE
AS $$
    SELECT format('simsql_%s_%s', index.id, t.suffix),
           simsql._render('CREATE TRIGGER simsql_{id}_{suffix} ' || t.event
                          || ' EXECUTE FUNCTION simsql.add_on_{function}_{id}({nonce})',
                          jsonb_build_object('suffix', t.suffix, 'function', t.function,
                                             'nonce', CASE WHEN t.fires IS NOT NULL
                                                           THEN quote_literal(index.nonce) END),
                          jsonb_build_object('id', index.id, 'table', index.table_name, 'columns',
                                             simsql._name_list(index.column_name || index.scope_columns))),
           t.fires::"char"
      FROM (VALUES
           ('insert', 'insert', 'A',
            -- Names of the catalogue, so that no relation of others can take their place: see the top of this file.
            'AFTER INSERT ON {table} REFERENCING NEW TABLE AS pg_am FOR EACH STATEMENT'),
           ('update', 'update', 'A',
            'AFTER UPDATE ON {table} REFERENCING OLD TABLE AS pg_amop NEW TABLE AS pg_am FOR EACH STATEMENT'),
           ('replica', 'replica', 'R', 'AFTER INSERT OR UPDATE ON {table} FOR EACH ROW'),
           ('column', 'update', NULL, 'AFTER UPDATE OF {columns} ON {table} FOR EACH STATEMENT WHEN (false)'),
           ('no_parent', 'insert', NULL,
            'AFTER INSERT ON {table} REFERENCING NEW TABLE AS new_rows FOR EACH ROW WHEN (false)'))
           AS t (suffix, function, fires, event)
     WHERE index.storage = 'tables'
$$;

-- Sets when a trigger fires, as in pg_trigger.tgenabled.
CREATE OR REPLACE FUNCTION simsql._set_firing(table_id regclass, trigger_name text, fires "char") RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    EXECUTE format('ALTER TABLE %s %s TRIGGER %I', table_id,
                   CASE fires WHEN 'A' THEN 'ENABLE ALWAYS' WHEN 'R' THEN 'ENABLE REPLICA'
                              WHEN 'D' THEN 'DISABLE' ELSE 'ENABLE' END,
                   trigger_name);
END
$$;

CREATE OR REPLACE FUNCTION simsql._create_triggers(index simsql.registry) RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    trigger record;
BEGIN
    FOR trigger IN SELECT * FROM simsql._triggers(index) LOOP
        EXECUTE overlay(trigger.definition PLACING 'CREATE OR REPLACE' FROM 1 FOR length('CREATE'));
        IF trigger.fires IS NOT NULL THEN
            PERFORM simsql._set_firing(index.table_id, trigger.name, trigger.fires);
        END IF;
    END LOOP;
END
$$;

-- Drops the triggers of an index or, without its id, those of indexes that are not this table's. A restored
-- copy of another table has such triggers, and they refuse every write. It finds triggers by their functions,
-- because somebody may have renamed them. Those of simsql.clear_on_change belong to no index.
CREATE OR REPLACE FUNCTION simsql._drop_triggers(table_id regclass, index_id integer DEFAULT NULL)
RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    trigger name;
BEGIN
    FOR trigger IN
        SELECT t.tgname
          FROM pg_trigger AS t
          JOIN pg_proc AS p ON p.oid = t.tgfoid AND p.pronamespace = 'simsql'::regnamespace
         -- No row for other functions: a null would count as an index that there is not.
         CROSS JOIN LATERAL regexp_matches(p.proname, '^add_on_(insert|update|replica)_(\d+)$') AS f (id)
         WHERE t.tgrelid = _drop_triggers.table_id
           AND CASE WHEN index_id IS NULL
                    THEN NOT EXISTS (SELECT FROM simsql.registry AS r
                                      WHERE r.table_id = _drop_triggers.table_id AND r.id::text = f.id[2])
                    ELSE f.id[2] = index_id::text END
    LOOP
        PERFORM simsql._lock(table_id, 'ACCESS EXCLUSIVE', 'create_index');  -- drop_index already has
        EXECUTE format('DROP TRIGGER %I ON %s', trigger, table_id);
    END LOOP;
END
$$;
