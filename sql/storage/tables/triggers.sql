-- The triggers of an index and the functions that they call.
--
-- Writers always add keys and never check whether a key exists. The design is a constant in the trigger functions, and they
-- read no table of simsql: a writer with an older snapshot would not see the row in the registry, and would add nothing.
--
-- Statement triggers add the keys of all new rows at once. They are ENABLE ALWAYS, so that disabling and enabling them leaves a
-- trace. Logical replication applies rows without firing statement triggers, so an ENABLE REPLICA row trigger adds the keys
-- there. Statement triggers that do fire in a replica session leave the keys to it.
--
-- The functions run with the privileges of the index's owner, so a writer needs no privileges other than those on the table.
-- Nothing that the owner of the table controls may therefore be evaluated in them:
--   * pg_typeof of a transition row tells the type of a column. The catalogue would tell it as of the transaction's snapshot,
--     which may be older than the column. The INSERT is planned only if all types are right: planning a cast may already
--     call a function.
--   * Transition tables have the names of relations in pg_catalog. If a trigger without transition tables calls the function,
--     on whatever table, the function reads the catalogue, and not a temporary table or view of that name.
--   * Until the types are checked, columns are named without a table: PostgreSQL reads n.name as name(n) if n has no such column.
--   * Relations of the catalogue are qualified, because a transition table may have the name of any of them. So are variables
--     that are used beside its columns.

-- The beginning of all trigger functions of an index. They refuse triggers of other indexes, which pg_dump may have carried to
-- a table here, and renamed columns. The nonce is not secret; it distinguishes indexes with the same id.
CREATE OR REPLACE FUNCTION simsql._trigger_checks(index simsql.registry) RETURNS text
LANGUAGE sql STABLE
AS $$
    SELECT format($body$    IF TG_ARGV[0] IS DISTINCT FROM %1$L THEN
        RAISE EXCEPTION 'simsql: trigger %% of %% does not belong to a simhash index of this database', TG_NAME, TG_RELID::regclass
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = format('The table was restored without its index. Create the index again, which drops such triggers: '
                                'SELECT simsql.create_index(%%L, %%L); or drop them: DROP TRIGGER %%I ON %%s;',
                                TG_RELID::regclass, %2$L, TG_NAME, TG_RELID::regclass);
    END IF;
    IF (SELECT ARRAY[%5$s]
          FROM pg_catalog.pg_trigger AS t
         WHERE t.tgrelid = TG_RELID AND t.tgname = 'simsql_%3$s_column') IS DISTINCT FROM %4$L::text[]
    THEN
        PERFORM simsql._check_columns(TG_RELID::regclass, %3$s, %4$L::text[]);
    END IF;
$body$, index.nonce, index.column_name, index.id, index.column_name || index.scope_columns,
                  (SELECT string_agg(format('(pg_identify_object_as_address(1259, TG_RELID, t.tgattr[%s])).object_names[3]', place), ', '
                                     ORDER BY place)
                     FROM generate_series(0, cardinality(index.scope_columns)) AS place))
$$;

-- The condition that the columns have the types for which the index was created. %s in the pattern stands for the name of a
-- column.
CREATE OR REPLACE FUNCTION simsql._types_are_right(index simsql.registry, pattern text) RETURNS text
LANGUAGE sql STABLE
AS $$
    SELECT string_agg(format(CASE c.number WHEN 0 THEN 'pg_typeof(%1$s) = %2$L::regtype'
                             ELSE '(pg_typeof(%1$s) = %2$L::regtype OR simsql._base_type(pg_typeof(%1$s)) = %2$L::regtype)' END,
                             format(pattern, quote_ident(c.name)), c.type), E'\n           AND ' ORDER BY c.number)
      FROM (SELECT 0, index.column_name, 'bigint'
             UNION ALL
            SELECT s.number, s.column_name, s.type FROM simsql._scope_columns(index) AS s) AS c (number, name, type)
$$;

-- The statement that raises an error for any other types.
CREATE OR REPLACE FUNCTION simsql._type_refusal(index simsql.registry) RETURNS text
LANGUAGE sql STABLE
AS $$
    SELECT format($body$RAISE EXCEPTION 'simsql: column %% of %% changed its type after its simhash index was created', %1$L, TG_RELID::regclass
            USING ERRCODE = 'datatype_mismatch',
                  HINT = format('Drop the index: SELECT simsql.drop_index(%%L, %%L);', TG_RELID::regclass, %2$L);$body$,
                  (SELECT string_agg(quote_ident(c.name), ' or ' ORDER BY c.number)
                     FROM unnest(index.column_name || index.scope_columns) WITH ORDINALITY AS c (name, number)),
                  index.column_name)
$$;

-- The statements that add the keys of new fingerprints to all tables of an index. `pattern` selects the scope and the key; %s
-- in it stands for the expression of the key.
CREATE OR REPLACE FUNCTION simsql._key_inserts(index simsql.registry, pattern text, fingerprint text) RETURNS text
LANGUAGE sql STABLE
AS $$
    SELECT string_agg(format('    INSERT INTO simsql.keys_%s_%s (%s) ', index.id, p.number, simsql._name_list(simsql._key_columns(index)))
                      || format(pattern, simsql._permute(fingerprint, p.lead_mask)) || ';', E'\n' ORDER BY p.number)
      FROM simsql._permutations(index.blocks, index.lead, index.inner_blocks) AS p
$$;

-- With many keys, inserting them into a B-tree in their order takes a third less time; a single row takes a tenth
-- less time without the sort. An update of other columns adds no keys, because the old rows have theirs. Two kinds of old rows do
-- not: those of inheritance children, and the intermediate states of rows that PostgreSQL updates twice in one statement to
-- enforce foreign keys.
CREATE OR REPLACE FUNCTION simsql._trigger_functions(index simsql.registry)
RETURNS TABLE (name text, arguments text, head text, settings text[], body text)
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    source text;
    inserts text[];
BEGIN
    arguments := '()';
    head := 'RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER';
    settings := ARRAY['search_path=pg_catalog, pg_temp'];
    FOR name, source IN VALUES
        ('insert', 'SELECT %5$s%2$sn.%1$I AS fp FROM pg_am AS n WHERE n.%1$I IS NOT NULL%3$s'),
        ('update', 'SELECT %2$sn.%1$I AS fp FROM pg_am AS n WHERE n.%1$I IS NOT NULL%3$s '
                   'EXCEPT SELECT %4$so.%1$I FROM pg_amop AS o WHERE simsql.alone')
    LOOP
        name := format('add_on_%s_%s', name, index.id);
        inserts := ARRAY(
            SELECT simsql._key_inserts(
                       index,
                       format('SELECT %s%%s FROM (%s) AS f%s', simsql._for_scope(index, 'f.%1$s, '),
                              replace(format(source, index.column_name, simsql._for_scope(index, 'n.%2$I AS %1$s, '),
                                             simsql._for_scope(index, ' AND n.%2$I IS NOT NULL'),
                                             simsql._for_scope(index, 'o.%2$I, '), r.distinct_rows), '%', '%%'),
                              r.in_order),
                       'f.fp')
              FROM (VALUES (1, 'DISTINCT ', (SELECT ' ORDER BY ' || string_agg(place::text, ', ' ORDER BY place)
                                               FROM generate_series(1, cardinality(index.scope_columns) + 1) AS place)),
                           (2, '', '')) AS r (number, distinct_rows, in_order)
             ORDER BY r.number);
        body := format(E'#variable_conflict use_column\n'
                       '<<simsql>>\n'
                       'DECLARE\n'
                       '%5$s'
                       '    types_are_right boolean;\n'
                       '    several boolean;\n'
                       'BEGIN\n'
                       '%1$s'
                       '    IF current_setting(''session_replication_role'') = ''replica'' THEN\n'
                       '        RETURN NULL;\n'
                       '    END IF;\n'
                       '    SELECT %2$s, EXISTS (SELECT FROM pg_am OFFSET 1) INTO types_are_right, several FROM pg_am LIMIT 1;\n'
                       '    IF types_are_right IS NULL THEN\n'
                       '        RETURN NULL;  -- there is no row\n'
                       '    ELSIF NOT types_are_right THEN\n'
                       '        %3$s\n'
                       '    END IF;\n'
                       '    IF several THEN\n'
                       '%4$s\n'
                       '    ELSE\n'
                       '%6$s\n'
                       '    END IF;\n'
                       '    RETURN NULL;\n'
                       'END',
                       simsql._trigger_checks(index), simsql._types_are_right(index, '%s'), simsql._type_refusal(index), inserts[1],
                       CASE WHEN source LIKE '%simsql.alone' THEN
                            format(E'    alone constant boolean := NOT c.relhassubclass AND NOT EXISTS (\n'
                                   '        SELECT FROM pg_catalog.pg_constraint AS f\n'
                                   '          JOIN pg_catalog.pg_trigger AS t ON t.tgrelid = f.conrelid AND t.tgname = ''simsql_%s_column''\n'
                                   '         WHERE f.conrelid = TG_RELID AND f.contype = ''f'' AND f.conkey && t.tgattr::pg_catalog.int2[]\n'
                                   '           AND (f.confupdtype IN (''c'', ''n'', ''d'') OR f.confdeltype IN (''n'', ''d'')))\n'
                                   '        FROM pg_catalog.pg_class AS c WHERE c.oid = TG_RELID;\n', index.id) END,
                       inserts[2]);
        RETURN NEXT;
    END LOOP;
    name := 'add_on_replica_' || index.id;
    body := format(E'BEGIN\n'
                   '%1$s'
                   '    IF NOT (%2$s) THEN\n'
                   '        %3$s\n'
                   '    END IF;\n'
                   '    IF NEW.%4$I IS NULL%5$s THEN\n'
                   '        RETURN NULL;\n'
                   '    END IF;\n'
                   '    IF TG_OP = ''UPDATE'' THEN\n'
                   '        IF OLD.%4$I = NEW.%4$I%6$s THEN\n'
                   '            RETURN NULL;\n'
                   '        END IF;\n'
                   '    END IF;\n'
                   '%7$s\n'
                   '    RETURN NULL;\n'
                   'END',
                   simsql._trigger_checks(index), simsql._types_are_right(index, 'NEW.%s'), simsql._type_refusal(index),
                   index.column_name, simsql._for_scope(index, ' OR NEW.%2$I IS NULL'),
                   simsql._for_scope(index, ' AND OLD.%2$I = NEW.%2$I'),
                   simsql._key_inserts(index, format('VALUES (%s%%s)', replace(simsql._for_scope(index, 'NEW.%2$I, '), '%', '%%')),
                                       format('NEW.%I', index.column_name)));
    RETURN NEXT;
END
$$;

-- The triggers of an index: their definitions as pg_get_triggerdef shows them, and when they fire, as in pg_trigger.tgenabled.
-- Null marks those that never fire.
--
-- Two of them never run, but they record in the catalogue what a name cannot. The first identifies the columns, the fingerprint
-- column and then the scope, by number, whatever their names are (see _check_columns). It also makes PostgreSQL refuse ALTER
-- COLUMN TYPE, which rewrites values without firing triggers. The second makes PostgreSQL refuse to turn the table into a
-- partition or an inheritance child, whose rows can be written through a parent.
CREATE OR REPLACE FUNCTION simsql._index_triggers(index simsql.registry)
RETURNS TABLE (name text, definition text, fires "char")
LANGUAGE sql STABLE
AS $$
    SELECT format('simsql_%s_%s', index.id, t.suffix),
           format('CREATE TRIGGER simsql_%1$s_%2$s ' || t.event || ' EXECUTE FUNCTION simsql.add_on_%3$s_%1$s(%6$s)',
                  index.id, t.suffix, t.function, index.table_name,
                  simsql._name_list(index.column_name || index.scope_columns),
                  CASE WHEN t.fires IS NOT NULL THEN quote_literal(index.nonce) END),
           t.fires::"char"
      FROM (VALUES
           ('insert', 'insert', 'A', 'AFTER INSERT ON %4$s REFERENCING NEW TABLE AS pg_am FOR EACH STATEMENT'),
           ('update', 'update', 'A',
            'AFTER UPDATE ON %4$s REFERENCING OLD TABLE AS pg_amop NEW TABLE AS pg_am FOR EACH STATEMENT'),
           ('replica', 'replica', 'R', 'AFTER INSERT OR UPDATE ON %4$s FOR EACH ROW'),
           ('column', 'update', NULL, 'AFTER UPDATE OF %5$s ON %4$s FOR EACH STATEMENT WHEN (false)'),
           ('no_parent', 'insert', NULL,
            'AFTER INSERT ON %4$s REFERENCING NEW TABLE AS new_rows FOR EACH ROW WHEN (false)'))
           AS t (suffix, function, fires, event)
     WHERE index.storage = 'tables'
$$;

-- Sets when a trigger fires, as in pg_trigger.tgenabled.
CREATE OR REPLACE FUNCTION simsql._set_firing(table_name text, trigger_name text, fires "char") RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    EXECUTE format('ALTER TABLE %s %s TRIGGER %I', table_name,
                   CASE fires WHEN 'A' THEN 'ENABLE ALWAYS' WHEN 'R' THEN 'ENABLE REPLICA' WHEN 'D' THEN 'DISABLE' ELSE 'ENABLE' END,
                   trigger_name);
END
$$;

CREATE OR REPLACE FUNCTION simsql._create_triggers(index simsql.registry) RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    trigger record;
BEGIN
    FOR trigger IN SELECT * FROM simsql._index_triggers(index) LOOP
        EXECUTE overlay(trigger.definition PLACING 'CREATE OR REPLACE' FROM 1 FOR length('CREATE'));
        IF trigger.fires IS NOT NULL THEN
            PERFORM simsql._set_firing(index.table_name, trigger.name, trigger.fires);
        END IF;
    END LOOP;
END
$$;

-- Drops the triggers of indexes that are not this table's. A restored copy of another table has such triggers, and they refuse
-- every write.
CREATE OR REPLACE FUNCTION simsql._drop_foreign_triggers(table_id regclass) RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    trigger name;
BEGIN
    FOR trigger IN
        SELECT t.tgname FROM pg_trigger AS t
          JOIN pg_proc AS p ON p.oid = t.tgfoid AND p.pronamespace = 'simsql'::regnamespace AND p.proname LIKE 'add\_on\_%'
         WHERE t.tgrelid = _drop_foreign_triggers.table_id AND t.tgname ~ '^simsql_\d+_(insert|update|replica|column|no_parent)$'
           AND NOT EXISTS (SELECT FROM simsql.registry AS r
                            WHERE r.table_id = _drop_foreign_triggers.table_id
                              AND r.id::text = substring(t.tgname FROM '^simsql_(\d+)_'))
    LOOP
        EXECUTE format('DROP TRIGGER %I ON %s', trigger, table_id);
    END LOOP;
END
$$;
