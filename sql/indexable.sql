-- What create_index and build require of a table, its columns, the caller and the design.

-- Raises an error unless a search in this column and scope would be exact and the caller may create the
-- index.
CREATE OR REPLACE FUNCTION simsql._check_indexable(
    table_name regclass, column_name text, scope text[], storage text, caller text)
RETURNS void
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    class pg_class;
    attribute pg_attribute;
    reason text;
    hint text := 'Only ordinary and partitioned tables can be indexed.';
BEGIN
    SELECT c.* INTO class FROM pg_class AS c WHERE c.oid = table_name;
    reason := CASE
        WHEN class.relkind = 'f' THEN 'is a foreign table: rows written on the other server would be missed'
        WHEN class.relkind IN ('v', 'm') THEN 'is a view: index the table below it'
        WHEN class.relkind NOT IN ('r', 'p') THEN 'is not a table'
        WHEN class.relpersistence = 't' THEN 'is temporary: no other session could search it'
        WHEN class.relnamespace = 'simsql'::regnamespace THEN 'belongs to simsql itself'
    END;
    IF reason IS NULL THEN
        SELECT r.* INTO reason, hint FROM simsql._storage_refusal(storage, table_name, caller) AS r;
    END IF;
    IF reason IS NOT NULL THEN
        RAISE EXCEPTION 'simsql.%: % %', caller, table_name, reason
            USING ERRCODE = 'feature_not_supported', HINT = hint;
    END IF;
    SELECT a.* INTO attribute FROM pg_attribute AS a
     WHERE a.attrelid = table_name AND a.attname = column_name AND a.attnum > 0 AND NOT a.attisdropped;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'simsql.%: % has no column %', caller, table_name, quote_ident(column_name)
            USING ERRCODE = 'undefined_column',
                  HINT = format('Add it: ALTER TABLE %s ADD COLUMN %I bigint;', table_name, column_name);
    END IF;
    IF attribute.atttypid <> 'bigint'::regtype THEN
        RAISE EXCEPTION 'simsql.%: column % of % is %, not bigint', caller, quote_ident(column_name),
                        table_name, format_type(attribute.atttypid, attribute.atttypmod)
            USING ERRCODE = 'datatype_mismatch',
                  HINT = 'Store fingerprints as bigint: simsql.fp converts an unsigned decimal to the bigint '
                         'with the same 64 bits.';
    END IF;
    IF attribute.attgenerated = 'v' THEN
        RAISE EXCEPTION 'simsql.%: column % of % is a virtual generated column', caller,
                        quote_ident(column_name), table_name
            USING ERRCODE = 'feature_not_supported', HINT = 'Make it a stored column: it needs a B-tree.';
    END IF;
    PERFORM simsql._check_scope_columns(table_name, column_name, scope, caller);
    IF NOT pg_has_role(class.relowner, 'USAGE') THEN
        RAISE EXCEPTION 'simsql.%: must be owner of table %', caller, table_name
            USING ERRCODE = 'insufficient_privilege';
    END IF;
    IF NOT (has_schema_privilege('simsql', 'CREATE') AND has_table_privilege('simsql.registry', 'INSERT')
            AND has_table_privilege('simsql.registry', 'UPDATE')
            AND has_table_privilege('simsql.registry', 'DELETE'))
    THEN
        RAISE EXCEPTION 'simsql.%: role % may not create objects in schema simsql', caller, current_user
            USING ERRCODE = 'insufficient_privilege',
                  HINT = format('If you trust this role as much as the owner of the schema: '
                                'GRANT CREATE ON SCHEMA simsql TO %1$I; '
                                'GRANT INSERT, UPDATE, DELETE ON simsql.registry TO %1$I;', current_user);
    END IF;
    PERFORM simsql._check_sees_all(table_name, caller);
END
$$;

-- Raises an error unless this role sees all rows.
CREATE OR REPLACE FUNCTION simsql._check_sees_all(table_id regclass, caller text) RETURNS void
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    IF row_security_active(table_id) THEN
        RAISE EXCEPTION 'simsql.%: row-level security hides rows of % from %', caller, table_id, current_user
            USING ERRCODE = 'insufficient_privilege', HINT = 'Call it as a role that sees all rows.';
    END IF;
END
$$;

-- A snapshot that is older than a lock misses rows that were committed in between. In a read committed
-- transaction, every statement takes a new snapshot.
CREATE OR REPLACE FUNCTION simsql._check_read_committed(caller text) RETURNS void
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    PERFORM simsql._check_primary(caller);
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'simsql.%: the transaction must be read committed, not %', caller,
                        current_setting('transaction_isolation')
            USING ERRCODE = 'active_sql_transaction',
                  HINT = 'Start it with BEGIN ISOLATION LEVEL READ COMMITTED.';
    END IF;
END
$$;

-- The B-trees on these columns, in this order, that cover all rows. Only a valid one can be used.
CREATE OR REPLACE FUNCTION simsql._btrees(table_id regclass, column_names text[])
RETURNS TABLE (index regclass, valid boolean)
LANGUAGE sql STABLE
AS $$
    SELECT i.indexrelid::regclass, i.indisvalid
      FROM pg_index AS i
      JOIN pg_class AS c ON c.oid = i.indexrelid
      JOIN pg_am AS m ON m.oid = c.relam
     WHERE i.indrelid = table_id AND m.amname = 'btree' AND i.indpred IS NULL
       AND i.indnkeyatts >= cardinality(column_names)
       AND column_names = ARRAY(
           SELECT a.attname::text
             FROM unnest(i.indkey, i.indcollation) WITH ORDINALITY AS k (attnum, collation_id, place)
             JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
                                   AND a.attcollation = k.collation_id
            WHERE k.place <= cardinality(column_names)
            ORDER BY k.place)
$$;

-- The collations of these columns that have another version than PostgreSQL has recorded, as after an upgrade of the
-- operating system, and what to do. B-trees were sorted by the old one, so a look-up may not find a row. PostgreSQL 14
-- records no version for the default collation of a database, but one for the collation of the system by that name.
CREATE OR REPLACE FUNCTION simsql._changed_collations(table_id regclass, column_names text[])
RETURNS TABLE (name text, remedy text)
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    used constant oid[] := ARRAY(
        SELECT a.attcollation FROM pg_attribute AS a
         WHERE a.attrelid = table_id AND a.attname = ANY (column_names) AND a.attcollation <> 0);
    reindex constant text := format('REINDEX DATABASE CONCURRENTLY %I; ', current_database());
    refresh text;
BEGIN
    RETURN QUERY
    SELECT c.oid::regcollation::text, format('%sALTER COLLATION %s REFRESH VERSION;', reindex, c.oid::regcollation)
      FROM pg_collation AS c
     WHERE c.oid = ANY (used) AND c.collversion <> pg_collation_actual_version(c.oid)
     ORDER BY 1;
    IF 'pg_catalog."default"'::regcollation <> ALL (used) THEN
        RETURN;
    ELSIF current_setting('server_version_num')::integer >= 150000 THEN
        SELECT format('ALTER DATABASE %I REFRESH COLLATION VERSION;', d.datname) INTO refresh
          FROM pg_database AS d
         WHERE d.datname = current_database()
           AND d.datcollversion <> pg_database_collation_actual_version(d.oid);
    ELSE
        SELECT string_agg(format('ALTER COLLATION %s REFRESH VERSION;', c.oid::regcollation), ' ') INTO refresh
          FROM pg_database AS d
          JOIN pg_collation AS c ON c.collprovider = 'c' AND c.collcollate = d.datcollate
         WHERE d.datname = current_database() AND c.collversion <> pg_collation_actual_version(c.oid);
    END IF;
    IF refresh IS NOT NULL THEN
        name := '"default"';
        remedy := reindex || refresh;
        RETURN NEXT;
    END IF;
END
$$;

-- Raises an error if a collation of these columns has changed.
CREATE OR REPLACE FUNCTION simsql._check_collations(table_id regclass, column_names text[], caller text)
RETURNS void
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    changed record;
BEGIN
    FOR changed IN SELECT c.* FROM simsql._changed_collations(table_id, column_names) AS c LOOP
        RAISE EXCEPTION 'simsql.%: collation % has changed since B-trees of % were sorted by it', caller,
                        changed.name, table_id
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = 'They may lack rows. Sort all B-trees with this collation anew: ' || changed.remedy;
    END LOOP;
END
$$;

-- Raises an error unless a B-tree finds every row.
CREATE OR REPLACE FUNCTION simsql._check_btree(table_id regclass, column_names text[], caller text)
RETURNS void
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM simsql._btrees(table_id, column_names) AS b WHERE b.valid) THEN
        RAISE EXCEPTION 'simsql.%: % of % no B-tree', caller,
                        CASE cardinality(column_names) WHEN 1 THEN 'column ' ELSE 'columns ' END
                        || simsql._name_list(column_names),
                        table_id::text || CASE cardinality(column_names) WHEN 1 THEN ' has' ELSE ' have' END
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = coalesce(
                      (SELECT format('An attempt to create it failed: REINDEX INDEX CONCURRENTLY %s;',
                                     b.index)
                         FROM simsql._btrees(table_id, column_names) AS b LIMIT 1),
                      format('CREATE INDEX CONCURRENTLY ON %s (%s);', table_id,
                             simsql._name_list(column_names)));
    END IF;
    PERFORM simsql._check_collations(table_id, column_names, caller);
END
$$;

-- Raises an error unless an index can be created with these arguments. Without blocks, create_index and build
-- choose a design.
CREATE OR REPLACE FUNCTION simsql._check_new(
    table_name regclass, column_name text, distance integer, blocks integer, lead integer,
    inner_blocks integer, scope text[], storage text, caller text)
RETURNS void
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    front constant integer := coalesce(lead, 1);
    inner_count constant integer := coalesce(inner_blocks, 0);
    tables numeric;
BEGIN
    IF table_name IS NULL OR column_name IS NULL OR simsql._distance(distance, NULL) IS NULL THEN
        RAISE EXCEPTION 'simsql.%: the table, the column and the distance must not be null', caller
            USING ERRCODE = 'null_value_not_allowed',
                  HINT = format('For example: %s simsql.%s(''article'', ''fingerprint'', distance => 3);',
                                CASE caller WHEN 'build' THEN 'CALL' ELSE 'SELECT' END, caller);
    ELSIF blocks IS NULL AND (lead IS NOT NULL OR inner_blocks IS NOT NULL) THEN
        RAISE EXCEPTION 'simsql.%: lead and inner_blocks need blocks', caller
            USING ERRCODE = 'invalid_parameter_value',
                  HINT = 'Set blocks too, or leave out all three: the design is then chosen by the number of '
                         'rows.';
    ELSIF NOT blocks BETWEEN 2 AND 64 THEN
        RAISE EXCEPTION 'simsql.%: blocks must be between 2 and 64, not %', caller, blocks
            USING ERRCODE = 'invalid_parameter_value';
    ELSIF NOT front BETWEEN 1 AND blocks - 1 THEN
        RAISE EXCEPTION 'simsql.%: lead must be between 1 and %, not %', caller, blocks - 1, front
            USING ERRCODE = 'invalid_parameter_value';
    -- The first blocks are the largest. If they lead, the fewest bits are left.
    ELSIF inner_count <> 0
          AND NOT inner_count BETWEEN 2 AND 64 - front * (64 / blocks) - least(front, 64 % blocks)
    THEN
        RAISE EXCEPTION 'simsql.%: inner_blocks cannot be % with % of % blocks in the lead', caller,
                        inner_count, front, blocks
            USING ERRCODE = 'invalid_parameter_value',
                  HINT = 'Use 0 for none, or a number from 2 to the number of bits that do not lead.';
    END IF;
    tables := simsql._table_count(blocks, front, inner_count);
    IF tables > 128 THEN
        RAISE EXCEPTION 'simsql.%: % blocks with % in the lead and % inner blocks need % tables', caller,
                        blocks, front, inner_count, tables
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Use a design with at most 128 tables.';
    END IF;
    PERFORM simsql._check_read_committed(caller);
    PERFORM simsql._check_indexable(table_name, column_name, scope,
                                    simsql._storage(table_name, storage, caller), caller);
END
$$;
