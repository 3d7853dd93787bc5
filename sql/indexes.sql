-- create_index and drop_index: key tables, triggers and search functions of one column.
--
-- All objects are named by the registry's id: the name of the user's table may be 63 bytes long, may
-- stand in two schemas and may change. No function here depends on the user's table or its row type,
-- so DROP TABLE stays possible.

CREATE OR REPLACE VIEW simsql.indexes AS
SELECT r.id,
       r.table_name,
       r.column_name,
       r.scope_columns AS scope,
       r.distance,
       r.blocks,
       r.lead,
       r.inner_blocks,
       r.recipe,
       CASE WHEN c.oid IS NULL THEN 'table dropped'
            WHEN format('%I.%I', n.nspname, c.relname) <> r.table_name THEN 'table renamed'
            WHEN t.column_names <> r.column_name || r.scope_columns THEN 'column renamed'
            WHEN EXISTS (SELECT FROM unnest(r.column_name || r.scope_columns) AS n (name)
                          WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_attribute AS a
                                             WHERE a.attrelid = r.table_id AND a.attname = n.name)) THEN 'column dropped'
            WHEN t.column_names IS NULL OR t.firing < 3 THEN 'triggers disabled'
            WHEN NOT r.ready THEN 'building'
            ELSE 'ready'
       END AS state
  FROM simsql.registry AS r
  LEFT JOIN pg_catalog.pg_class AS c ON c.oid = r.table_id
  LEFT JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
  LEFT JOIN LATERAL (
       SELECT count(*) FILTER (WHERE (g.tgname, g.tgenabled) IN ((format('simsql_%s_insert', r.id), 'A'),
                                                                 (format('simsql_%s_update', r.id), 'A'),
                                                                 (format('simsql_%s_replica', r.id), 'R'))) AS firing,
              max(ARRAY(SELECT a.attname::text
                          FROM unnest(g.tgattr) WITH ORDINALITY AS k (attnum, place)
                          JOIN pg_catalog.pg_attribute AS a ON a.attrelid = g.tgrelid AND a.attnum = k.attnum
                         ORDER BY k.place)) FILTER (WHERE g.tgname = format('simsql_%s_column', r.id)) AS column_names
         FROM pg_catalog.pg_trigger AS g
        WHERE g.tgrelid = r.table_id) AS t ON true;

COMMENT ON VIEW simsql.indexes IS 'one row per simhash index, with its state as far as the catalogue tells: see simsql.verify';

GRANT SELECT ON simsql.indexes TO PUBLIC;

-- Raises unless this column of a table can be indexed exactly, within this scope.
CREATE OR REPLACE FUNCTION simsql._check_indexable(table_name regclass, column_name text, scope text[], caller text) RETURNS void
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    class pg_class;
    attribute pg_attribute;
    reason text;
BEGIN
    SELECT c.* INTO class FROM pg_class AS c WHERE c.oid = $1;
    reason := CASE
        WHEN class.relkind = 'p' THEN 'is partitioned: rows written straight into a partition would be missed'
        WHEN class.relkind = 'f' THEN 'is a foreign table: rows written on the other server would be missed'
        WHEN class.relkind IN ('v', 'm') THEN 'is a view: index the table below it'
        WHEN class.relkind <> 'r' THEN 'is not a table'
        WHEN class.relpersistence = 't' THEN 'is temporary: no other session could search it'
        WHEN class.relispartition THEN 'is a partition: rows written through its parent would be missed'
        WHEN EXISTS (SELECT FROM pg_inherits WHERE inhrelid = $1 OR inhparent = $1)
        THEN 'takes part in inheritance: rows written through another table would be missed'
        WHEN class.relnamespace = 'simsql'::regnamespace THEN 'belongs to simsql itself'
    END;
    IF reason IS NOT NULL THEN
        RAISE EXCEPTION 'simsql.%: % %', caller, $1, reason
            USING ERRCODE = 'feature_not_supported', HINT = 'An ordinary table can be indexed.';
    END IF;
    SELECT a.* INTO attribute FROM pg_attribute AS a
     WHERE a.attrelid = $1 AND a.attname = $2 AND a.attnum > 0 AND NOT a.attisdropped;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'simsql.%: % has no column %', caller, $1, quote_ident($2)
            USING ERRCODE = 'undefined_column',
                  HINT = format('Add it: ALTER TABLE %s ADD COLUMN %I bigint;', $1, $2);
    END IF;
    IF attribute.atttypid <> 'bigint'::regtype THEN
        RAISE EXCEPTION 'simsql.%: column % of % is %, not bigint', caller, quote_ident($2), $1,
                        format_type(attribute.atttypid, attribute.atttypmod)
            USING ERRCODE = 'datatype_mismatch',
                  HINT = 'A fingerprint is kept as bigint with the same 64 bits: simsql.fp converts an unsigned decimal.';
    END IF;
    IF attribute.attgenerated = 'v' THEN
        RAISE EXCEPTION 'simsql.%: column % of % is a virtual generated column', caller, quote_ident($2), $1
            USING ERRCODE = 'feature_not_supported', HINT = 'Make it a stored column: it has to have a B-tree.';
    END IF;
    PERFORM simsql._check_scope_columns($1, $2, scope, caller);
    IF NOT pg_has_role(class.relowner, 'USAGE') THEN
        RAISE EXCEPTION 'simsql.%: must be owner of table %', caller, $1
            USING ERRCODE = 'insufficient_privilege';
    END IF;
    IF NOT (has_schema_privilege('simsql', 'CREATE') AND has_table_privilege('simsql.registry', 'INSERT')
            AND has_table_privilege('simsql.registry', 'UPDATE') AND has_table_privilege('simsql.registry', 'DELETE'))
    THEN
        RAISE EXCEPTION 'simsql.%: % may not create objects in schema simsql', caller, current_user
            USING ERRCODE = 'insufficient_privilege',
                  HINT = format('To a role that you trust as you trust its owner: GRANT CREATE ON SCHEMA simsql TO %1$I; '
                                'GRANT INSERT, UPDATE, DELETE ON simsql.registry TO %1$I;', current_user);
    END IF;
    PERFORM simsql._check_sees_all($1, caller);
END
$$;

-- Raises unless this role sees all rows.
CREATE OR REPLACE FUNCTION simsql._check_sees_all(table_id regclass, caller text) RETURNS void
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    IF row_security_active($1) THEN
        RAISE EXCEPTION 'simsql.%: row-level security hides rows of % from %', caller, $1, current_user
            USING ERRCODE = 'insufficient_privilege', HINT = 'Call it as a role that sees all rows.';
    END IF;
END
$$;

-- An older snapshot than a lock misses rows that were committed in between. Under read committed every
-- statement has a new one.
CREATE OR REPLACE FUNCTION simsql._check_read_committed(caller text) RETURNS void
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'simsql.%: the transaction is %, and has to be read committed', caller,
                        current_setting('transaction_isolation')
            USING ERRCODE = 'active_sql_transaction',
                  HINT = 'Begin it with BEGIN ISOLATION LEVEL READ COMMITTED.';
    END IF;
END
$$;

-- Raises unless a design can be laid out; without blocks it is chosen.
CREATE OR REPLACE FUNCTION simsql._check_design(blocks integer, lead integer, inner_blocks integer, caller text) RETURNS void
LANGUAGE plpgsql IMMUTABLE
AS $$
DECLARE
    front constant integer := coalesce(lead, 1);
    inner_count constant integer := coalesce(inner_blocks, 0);
    tables numeric;
BEGIN
    IF blocks IS NULL AND (lead IS NOT NULL OR inner_blocks IS NOT NULL) THEN
        RAISE EXCEPTION 'simsql.%: a lead or inner blocks without blocks', caller
            USING ERRCODE = 'invalid_parameter_value',
                  HINT = 'Name the blocks too, or none of them: then the design is chosen by the number of rows.';
    END IF;
    IF NOT (blocks BETWEEN 2 AND 64 AND front BETWEEN 1 AND blocks - 1) THEN
        RAISE EXCEPTION 'simsql.%: no layout has % blocks with % in the lead', caller, blocks, front
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Take 2 to 64 blocks, and a lead of at least 1 and less than the blocks.';
    END IF;
    -- The first lead blocks are the largest: the fewest bits that are left.
    IF inner_count <> 0 AND NOT inner_count BETWEEN 2 AND 64 - front * (64 / blocks) - least(front, 64 % blocks) THEN
        RAISE EXCEPTION 'simsql.%: the bits behind % of % blocks cannot be split into % inner blocks', caller, front, blocks, inner_count
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Take 2 inner blocks or more, at most one for each bit, or 0 for none.';
    END IF;
    tables := simsql._table_count(blocks, front, inner_count);
    IF tables > 128 THEN
        RAISE EXCEPTION 'simsql.%: % blocks with % in the lead and % inner blocks need % tables', caller, blocks, front,
                        inner_count, tables
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Take a layout of at most 128 tables.';
    END IF;
END
$$;

-- One table per permutation: permuted keys, with the scope before them, and nothing else, so that any primary key
-- works and deleting a document touches nothing.
-- Of a table that was not analyzed yet the planner expects few distinct fingerprints, and would hash them all.
CREATE OR REPLACE FUNCTION simsql._create_keys(index simsql.registry, filled boolean) RETURNS void
LANGUAGE plpgsql
SET enable_hashagg = off
AS $$
DECLARE
    permutation record;
    keys text;
    scope constant text := coalesce(
        (SELECT string_agg(format('t.%I::%s AS scope_%s, ', s.name, format_type(simsql._scope_type(index.table_id, s.name), -1),
                                  s.number), '' ORDER BY s.number)
           FROM unnest(index.scope_columns) WITH ORDINALITY AS s (name, number)), '');
    unlogged constant text := CASE (SELECT relpersistence FROM pg_class WHERE oid = index.table_id)
                                   WHEN 'u' THEN 'UNLOGGED' ELSE '' END;
    work_mem constant text := current_setting('work_mem');
BEGIN
    -- This sorts as CREATE INDEX does, with the memory for it.
    IF pg_size_bytes(work_mem) < pg_size_bytes(current_setting('maintenance_work_mem')) THEN
        PERFORM set_config('work_mem', current_setting('maintenance_work_mem'), true);
    END IF;
    FOR permutation IN SELECT * FROM simsql._permutations(index.blocks, index.lead, index.inner_blocks) LOOP
        keys := format('simsql.keys_%s_%s', index.id, permutation.number);
        -- Created with its rows, a table is filled a fifth faster than by INSERT.
        EXECUTE format('CREATE %s TABLE %s AS SELECT DISTINCT %s%s AS key FROM ONLY %s AS t WHERE t.%I IS NOT NULL%s '
                       'ORDER BY %s %s',
                       unlogged, keys, scope, simsql._permute(format('t.%I', index.column_name), permutation.lead_mask),
                       index.table_name, index.column_name, simsql._for_scope(index, ' AND t.%2$I IS NOT NULL'),
                       simsql._name_list(simsql._key_columns(index)), CASE WHEN NOT filled THEN 'WITH NO DATA' END);
        EXECUTE format('ALTER TABLE %s %s ALTER key SET NOT NULL', keys,
                       simsql._for_scope(index, 'ALTER %1$s SET NOT NULL, '));
        EXECUTE format('COMMENT ON TABLE %s IS %L', keys,
                       format('keys of the simhash index on %s(%I), permutation %s, lead bits %s',
                              index.table_name, index.column_name, permutation.number,
                              to_hex(permutation.lead_mask)));
        -- The B-tree comes after a sorted fill: a quarter faster, and packed.
        EXECUTE format('CREATE INDEX ON %s (%s)', keys, simsql._name_list(simsql._key_columns(index)));
        -- Equal keys are allowed, so there is no unique index to identify a row by.
        EXECUTE format('ALTER TABLE %s REPLICA IDENTITY FULL', keys);
        PERFORM simsql._guard_keys(keys, index);
    END LOOP;
    PERFORM set_config('work_mem', work_mem, true);
END
$$;

-- Any role that can read the column, and those of the scope, can read its keys, and nobody else. It is asked for the role that
-- searches, at the time of the search, and by number: another table or column may get the name. The subquery makes
-- it one question per scan.
CREATE OR REPLACE FUNCTION simsql._policy(index simsql.registry) RETURNS text
LANGUAGE sql STABLE
AS $$
    SELECT format('((SELECT coalesce(bool_and(has_column_privilege(t.tgrelid, a.number, ''SELECT'')), false) '
                  'FROM pg_trigger AS t CROSS JOIN unnest(t.tgattr) AS a (number) '
                  'WHERE t.tgrelid = (SELECT r.table_id FROM simsql.registry AS r WHERE r.id = %s) AND t.tgname = %L))',
                  index.id, format('simsql_%s_column', index.id))
$$;

CREATE OR REPLACE FUNCTION simsql._guard_keys(keys text, index simsql.registry) RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY', keys);
    EXECUTE format('CREATE POLICY readers ON %s FOR SELECT USING %s', keys, simsql._policy(index));
    EXECUTE format('GRANT SELECT ON %s TO PUBLIC', keys);
END
$$;

-- All functions of an index.
CREATE OR REPLACE FUNCTION simsql._functions(index simsql.registry)
RETURNS TABLE (name text, arguments text, head text, settings text[], body text)
LANGUAGE sql STABLE
AS $$
    SELECT * FROM simsql._search_functions(index)
    UNION ALL
    SELECT * FROM simsql._trigger_functions(index)
$$;

CREATE OR REPLACE FUNCTION simsql._create_functions(index simsql.registry) RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    function record;
    grantee oid;
BEGIN
    FOR function IN SELECT * FROM simsql._functions(index) LOOP
        EXECUTE format('CREATE OR REPLACE FUNCTION simsql.%I%s %s %s AS %L', function.name, function.arguments, function.head,
                       (SELECT string_agg('SET ' || s, ' ') FROM unnest(function.settings) AS s), function.body);
        IF function.head LIKE '%SECURITY DEFINER%' THEN
            FOR grantee IN SELECT simsql._other_callers(format('simsql.%I%s', function.name, function.arguments)::regprocedure) LOOP
                EXECUTE format('REVOKE ALL ON FUNCTION simsql.%I%s FROM %s CASCADE', function.name, function.arguments,
                               CASE grantee WHEN 0 THEN 'PUBLIC' ELSE grantee::regrole::text END);
            END LOOP;
        END IF;
    END LOOP;
END
$$;

-- The roles that may call a function, but for its owner; 0 is PUBLIC.
CREATE OR REPLACE FUNCTION simsql._other_callers(function regprocedure) RETURNS SETOF oid
LANGUAGE sql STABLE
AS $$
    SELECT DISTINCT a.grantee
      FROM pg_proc AS p
     CROSS JOIN LATERAL aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) AS a
     WHERE p.oid = function AND a.grantee <> p.proowner
$$;

-- The B-trees that lead from values of these columns, in this order, to all rows with them; a valid one may be used.
CREATE OR REPLACE FUNCTION simsql._btrees(table_id regclass, column_names text[]) RETURNS TABLE (index regclass, valid boolean)
LANGUAGE sql STABLE
AS $$
    SELECT i.indexrelid::regclass, i.indisvalid
      FROM pg_index AS i
      JOIN pg_class AS c ON c.oid = i.indexrelid
      JOIN pg_am AS m ON m.oid = c.relam
     WHERE i.indrelid = table_id AND m.amname = 'btree' AND i.indpred IS NULL AND i.indnkeyatts >= cardinality(column_names)
       AND column_names = ARRAY(SELECT a.attname::text
                                  FROM unnest(i.indkey, i.indcollation) WITH ORDINALITY AS k (attnum, collation_id, place)
                                  JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
                                                        AND a.attcollation = k.collation_id
                                 WHERE k.place <= cardinality(column_names)
                                 ORDER BY k.place)
$$;

CREATE OR REPLACE FUNCTION simsql._check_btree(table_id regclass, column_names text[], caller text) RETURNS void
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM simsql._btrees($1, $2) AS b WHERE b.valid) THEN
        RAISE EXCEPTION 'simsql.%: % of % no B-tree', caller,
                        CASE cardinality($2) WHEN 1 THEN 'column ' ELSE 'columns ' END || simsql._name_list($2),
                        $1::text || CASE cardinality($2) WHEN 1 THEN ' has' ELSE ' have' END
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = coalesce((SELECT format('An attempt to create it has failed: REINDEX INDEX CONCURRENTLY %s;', b.index)
                                     FROM simsql._btrees($1, $2) AS b LIMIT 1),
                                  format('CREATE INDEX CONCURRENTLY ON %s (%s);', $1, simsql._name_list($2)));
    END IF;
END
$$;

-- Raises unless these arguments make an index.
CREATE OR REPLACE FUNCTION simsql._check_new(
    table_name regclass, column_name text, distance integer, blocks integer, lead integer, inner_blocks integer, scope text[],
    caller text)
RETURNS void
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    IF $1 IS NULL OR $2 IS NULL OR simsql._distance($3, NULL) IS NULL THEN
        RAISE EXCEPTION 'simsql.%: the table, the column and the distance have to be named', caller
            USING ERRCODE = 'null_value_not_allowed',
                  HINT = format('As in %s simsql.%s(''article'', ''fingerprint'', distance => 3);',
                                CASE caller WHEN 'build' THEN 'CALL' ELSE 'SELECT' END, caller);
    END IF;
    PERFORM simsql._check_design(blocks, lead, inner_blocks, caller);
    PERFORM simsql._check_read_committed(caller);
    PERFORM simsql._check_indexable($1, $2, scope, caller);
END
$$;

-- Enters an index into the registry, under a lock on its table that is kept. Writers wait, as for CREATE INDEX;
-- all that follows reads with a later snapshot than this lock.
CREATE OR REPLACE FUNCTION simsql._register(
    table_name regclass, column_name text, distance integer, blocks integer, lead integer, inner_blocks integer,
    recipe text, scope text[], online boolean)
RETURNS simsql.registry
LANGUAGE plpgsql
AS $$
DECLARE
    index simsql.registry;
    caller constant text := CASE WHEN online THEN 'build' ELSE 'create_index' END;
    rows bigint;
BEGIN
    scope := coalesce(scope, '{}');
    PERFORM simsql._check_new($1, $2, $3, $4, $5, $6, scope, caller);
    IF blocks IS NULL THEN
        -- A search meets the keys of one scope: the largest one counts.
        EXECUTE format('SELECT coalesce(max(rows), 0) FROM (SELECT count(t.%I) AS rows FROM ONLY %s AS t%s) AS s', $2, $1,
                       CASE WHEN cardinality(scope) > 0 THEN ' GROUP BY ' || simsql._name_list(scope) END) INTO rows;
        SELECT d.blocks, d.lead INTO blocks, lead FROM simsql._design(rows, $3) AS d;
    END IF;
    EXECUTE format('LOCK TABLE ONLY %s IN SHARE ROW EXCLUSIVE MODE', $1);
    PERFORM simsql._check_indexable($1, $2, scope, caller);
    IF online THEN
        PERFORM simsql._check_btree($1, scope || $2, caller);
    END IF;
    SELECT r.* INTO index FROM simsql.registry AS r WHERE r.table_id = $1 AND r.column_name = $2;
    IF FOUND THEN
        RAISE EXCEPTION 'simsql.%: column % of % has % already', caller, quote_ident($2), $1,
                        CASE WHEN index.ready THEN 'a simhash index' ELSE 'an unfinished simhash index' END
            USING ERRCODE = 'duplicate_object',
                  HINT = CASE WHEN index.ready THEN format('To lay it out anew, drop it first: SELECT simsql.drop_index(%L, %L);', $1, $2)
                         ELSE format('Go on with its build: %s Or drop it first: SELECT simsql.drop_index(%L, %L);',
                                     simsql._build_call(index), $1, $2) END;
    END IF;
    PERFORM simsql._drop_orphans();
    PERFORM simsql._drop_foreign_triggers($1);
    INSERT INTO simsql.registry AS r (table_id, table_name, column_name, distance, blocks, lead, inner_blocks, recipe,
                                      scope_columns, ready)
    SELECT $1, format('%I.%I', n.nspname, c.relname), $2, $3, $4, coalesce($5, 1), coalesce($6, 0), $7, $8, NOT online
      FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
     WHERE c.oid = $1
    RETURNING r.* INTO index;
    PERFORM simsql._drop_leftover_keys(index.id);
    RETURN index;
END
$$;

CREATE OR REPLACE FUNCTION simsql.create_index(
    table_name regclass, column_name text, distance integer DEFAULT 3,
    blocks integer DEFAULT NULL, lead integer DEFAULT NULL, inner_blocks integer DEFAULT NULL, recipe text DEFAULT NULL,
    scope text[] DEFAULT '{}')
RETURNS integer
LANGUAGE plpgsql
AS $$
DECLARE
    index constant simsql.registry := simsql._register($1, $2, $3, $4, $5, $6, $7, $8, online => false);
BEGIN
    IF NOT EXISTS (SELECT FROM simsql._btrees(index.table_id, simsql._btree_columns(index)) AS b WHERE b.valid) THEN
        EXECUTE format('CREATE INDEX ON %s (%s)', index.table_name, simsql._name_list(simsql._btree_columns(index)));
    END IF;
    PERFORM simsql._create_keys(index, filled => true);
    PERFORM simsql._create_functions(index);
    PERFORM simsql._create_triggers(index);
    RETURN index.id;
END
$$;

COMMENT ON FUNCTION simsql.create_index(regclass, text, integer, integer, integer, integer, text, text[]) IS
    'create a simhash index on a bigint column, in this transaction; writers wait. Returns its id. '
    'scope: the columns to whose values searches are confined';

-- Drops what create_index made, apart from the B-tree on the user's column.
CREATE OR REPLACE FUNCTION simsql._drop_objects(index simsql.registry) RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    number integer;
    name text;
BEGIN
    IF EXISTS (SELECT FROM pg_class WHERE oid = index.table_id) THEN
        FOREACH name IN ARRAY ARRAY['insert', 'update', 'replica', 'column', 'no_parent'] LOOP
            EXECUTE format('DROP TRIGGER IF EXISTS simsql_%s_%s ON %s', index.id, name, index.table_id);
        END LOOP;
    END IF;
    EXECUTE format('DROP FUNCTION IF EXISTS simsql.add_on_insert_%1$s(), simsql.add_on_update_%1$s(), simsql.add_on_replica_%1$s()',
                   index.id);
    EXECUTE format('DROP FUNCTION IF EXISTS simsql.search_%1$s, simsql.scan_%1$s', index.id);
    FOR number IN SELECT p.number FROM simsql._permutations(index.blocks, index.lead, index.inner_blocks) AS p LOOP
        EXECUTE format('DROP TABLE IF EXISTS simsql.keys_%s_%s', index.id, number);
    END LOOP;
    DELETE FROM simsql.registry AS r WHERE r.id = index.id;
END
$$;

-- DROP TABLE leaves the keys of its index behind; whoever creates the next index clears away those
-- that this role owns.
CREATE OR REPLACE FUNCTION simsql._drop_orphans() RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    index simsql.registry;
BEGIN
    FOR index IN
        SELECT r.* FROM simsql.registry AS r
          JOIN pg_class AS keys ON keys.oid = to_regclass(format('simsql.keys_%s_0', r.id))
         WHERE NOT EXISTS (SELECT FROM pg_class AS c WHERE c.oid = r.table_id)
           AND pg_has_role(keys.relowner, 'USAGE')
    LOOP
        RAISE NOTICE 'simsql: table % is gone; dropping what is left of its simhash index', index.table_name;
        -- Another role's trigger may use a function of it. That is for its owner to mend, and no reason to fail here.
        BEGIN
            PERFORM simsql._drop_objects(index);
        EXCEPTION WHEN OTHERS THEN
            RAISE WARNING 'simsql: what is left of the simhash index on % stays: %', index.table_name, sqlerrm;
        END;
    END LOOP;
END
$$;

-- A dump of the schema alone holds the key tables of an index but not its row in the registry, and ids start from 1 again.
CREATE OR REPLACE FUNCTION simsql._drop_leftover_keys(index_id integer) RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    keys regclass;
BEGIN
    FOR keys IN
        SELECT c.oid FROM pg_class AS c
         WHERE c.relnamespace = 'simsql'::regnamespace AND c.relname ~ format('^keys_%s_\d+$', $1) AND c.relkind = 'r'
    LOOP
        EXECUTE format('DROP TABLE %s', keys);
    END LOOP;
END
$$;

CREATE OR REPLACE FUNCTION simsql.drop_index(table_name regclass, column_name text DEFAULT NULL) RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    columns constant text[] := ARRAY(SELECT r.column_name FROM simsql.registry AS r
                                      WHERE r.table_id = $1 AND ($2 IS NULL OR r.column_name = $2) ORDER BY r.id);
    index simsql.registry;
BEGIN
    IF cardinality(columns) <> 1 THEN
        RAISE EXCEPTION 'simsql.drop_index: % has % simhash indexes%', $1, cardinality(columns),
                        coalesce(' on column ' || quote_ident($2), '')
            USING ERRCODE = CASE cardinality(columns) WHEN 0 THEN 'undefined_object' ELSE 'ambiguous_column' END,
                  HINT = CASE cardinality(columns) WHEN 0 THEN 'SELECT * FROM simsql.indexes lists them.'
                         ELSE format('Name the column: one of %s.', array_to_string(columns, ', ')) END;
    END IF;
    SELECT r.* INTO index FROM simsql.registry AS r WHERE r.table_id = $1 AND r.column_name = columns[1];
    PERFORM simsql._drop_objects(index);
END
$$;

COMMENT ON FUNCTION simsql.drop_index(regclass, text) IS
    'drop a simhash index; the column and its B-tree stay';
