-- Repairs what verify finds.

-- Updates the registered names of a table, its indexed columns and their sources. Columns may have swapped names, so the old
-- names are replaced first, by names of 64 characters, which no column can have.
CREATE OR REPLACE FUNCTION simsql._follow_names(table_name regclass) RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    twice text;
    index simsql.registry;
    renamed constant simsql.registry[] := ARRAY(
        SELECT a FROM simsql.registry AS r CROSS JOIN LATERAL simsql._as_named(r) AS a
         WHERE r.table_id = _follow_names.table_name AND a IS DISTINCT FROM r
           AND array_position(a.column_name || a.scope_columns, NULL) IS NULL);
BEGIN
    SELECT c.name INTO twice
      FROM (SELECT a.column_name FROM unnest(renamed) AS a
             UNION ALL
            SELECT r.column_name FROM simsql.registry AS r
             WHERE r.table_id = _follow_names.table_name
               AND r.id <> ALL (ARRAY(SELECT a.id FROM unnest(renamed) AS a))) AS c (name)
     GROUP BY c.name HAVING count(*) > 1 LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'simsql.repair: two simhash indexes would be on column % of %', quote_ident(twice),
                        table_name
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = 'Drop the one that has lost its column: '
                         || simsql._call('drop_index', ARRAY[table_name::text, twice]);
    END IF;
    -- Triggers of an unfinished change of the storage know the old names.
    PERFORM simsql._tables_drop(a) FROM unnest(renamed) AS a WHERE a.storage = 'expression';
    UPDATE simsql.registry AS r SET column_name = lpad(r.id::text, 64)
      FROM unnest(renamed) AS a WHERE r.id = a.id;
    UPDATE simsql.registry AS r
       SET table_name = a.table_name, column_name = a.column_name, scope_columns = a.scope_columns
      FROM unnest(renamed) AS a WHERE r.id = a.id;
    FOR index IN SELECT r.* FROM simsql.registry AS r
                  WHERE r.table_id = _follow_names.table_name AND r.sources <> simsql._current_sources(r) LOOP
        UPDATE simsql.registry AS r SET sources = simsql._current_sources(r) WHERE r.id = index.id
        RETURNING r.* INTO index;
        PERFORM simsql._clear_stale(index);
    END LOOP;
END
$$;

-- Repairs the faults that have nothing to do with the storage. The names have been followed.
CREATE OR REPLACE FUNCTION simsql._mend(index simsql.registry, faults simsql._fault[]) RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    fault simsql._fault;
    -- Then the index gets new key tables.
    is_damaged constant boolean := EXISTS (SELECT FROM unnest(faults) AS f
                                            WHERE f.problem IN ('key table missing', 'key table altered'));
BEGIN
    FOREACH fault IN ARRAY faults LOOP
        IF is_damaged AND fault.object LIKE 'simsql.%' THEN
            CONTINUE;
        ELSIF fault.problem = 'REINDEX unfinished' THEN
            EXECUTE format('DROP INDEX %s', fault.object);
        ELSIF fault.problem = 'B-tree missing' THEN
            EXECUTE format('CREATE INDEX ON %s', fault.object);
        ELSIF fault.problem = 'B-tree invalid' THEN
            -- That of a partitioned table cannot be reindexed inside a transaction.
            IF (SELECT c.relkind FROM pg_class AS c WHERE c.oid = to_regclass(fault.object)) = 'i' THEN
                EXECUTE format('REINDEX INDEX %s', fault.object);
            ELSE
                PERFORM simsql._create_plain_btree(index);
            END IF;
        END IF;
    END LOOP;
    IF EXISTS (SELECT FROM unnest(faults) AS f WHERE f.problem LIKE 'function %') THEN
        PERFORM simsql._create_functions(index);
    END IF;
    IF EXISTS (SELECT FROM unnest(faults) AS f WHERE f.problem LIKE 'clearing trigger %') THEN
        PERFORM simsql._clear_stale(index);
    END IF;
END
$$;

-- Gives all objects of an index to one owner, and takes them from everybody else: the role that repairs need not be
-- the owner, default privileges grant what they are told to, and functions that remained of another index have its
-- owner.
CREATE OR REPLACE FUNCTION simsql._give(index simsql.registry, owner oid) RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    statement text;
BEGIN
    FOREACH statement IN ARRAY ARRAY(
        SELECT format('ALTER %s %s OWNER TO %s', o.kind, o.name, _give.owner::regrole) FROM simsql._objects() AS o
         WHERE o.index_id = index.id AND o.owner <> _give.owner)
    LOOP
        PERFORM simsql._execute_here(statement);
    END LOOP;
    PERFORM simsql._set_privileges(index.id);
END
$$;

CREATE OR REPLACE FUNCTION simsql.repair(table_name regclass) RETURNS SETOF simsql.finding
LANGUAGE plpgsql ROWS 10
SET plan_cache_mode = force_generic_plan  -- as in verify
AS $$
DECLARE
    index simsql.registry;
    owner oid;
    recreated integer[];
    lost boolean;
    finding simsql.finding;
    added record;
    fault simsql._fault;
    faults simsql._fault[];
BEGIN
    PERFORM simsql._take_turn(table_name, 'repair');
    recreated := ARRAY(
        SELECT r.id FROM simsql.registry AS r WHERE simsql._recreated(r) = repair.table_name ORDER BY r.id);
    IF recreated <> '{}' THEN
        PERFORM simsql._lock(table_name, 'ACCESS EXCLUSIVE', 'repair');
        PERFORM simsql._follow_table(table_name);
    END IF;
    IF NOT EXISTS (SELECT FROM simsql.registry AS r WHERE r.table_id = repair.table_name) THEN
        PERFORM simsql._index(table_name, NULL);
    END IF;
    -- Writers wait, as for create_index. If an index has to be re-created, readers wait too, because its
    -- objects are dropped.
    lost := EXISTS (
        SELECT FROM simsql.registry AS r
         CROSS JOIN LATERAL simsql._inventory(r, simsql._as_named(r), keys_only => true) AS i
         WHERE r.table_id = repair.table_name AND i.expected IS DISTINCT FROM i.found);
    PERFORM simsql._lock(table_name, CASE WHEN lost THEN 'ACCESS EXCLUSIVE' ELSE 'SHARE ROW EXCLUSIVE' END,
                         'repair');
    FOR index IN SELECT r.* FROM simsql.registry AS r WHERE r.table_id = repair.table_name ORDER BY r.id LOOP
        IF index.id = ANY (recreated) THEN
            RETURN NEXT (index.table_name, index.column_name, 'table re-created', index.table_name, NULL::bigint,
                         true, NULL)::simsql.finding;
        END IF;
        FOR finding IN SELECT f.* FROM simsql._findings(index) AS f LOOP
            CONTINUE WHEN index.id = ANY (recreated) AND finding.problem = 'key table missing';
            IF finding.problem IN ('column dropped', 'column is no longer a stored bigint') THEN
                RAISE EXCEPTION 'simsql.repair: cannot repair column % of %: %', finding.object, table_name,
                                finding.problem
                    USING ERRCODE = 'object_not_in_prerequisite_state', HINT = finding.hint;
            ELSIF finding.problem NOT IN ('not ready', 'row-level security', 'source dropped', 'collation changed') THEN
                finding.hint := NULL;
                RETURN NEXT finding;
            END IF;
        END LOOP;
    END LOOP;
    -- Privileges on what all indexes share are not among the faults of a table, but whoever may correct them does.
    IF NOT EXISTS (SELECT FROM simsql._objects() AS o WHERE o.index_id IS NULL AND NOT pg_has_role(o.owner, 'USAGE'))
    THEN
        PERFORM simsql._set_privileges();
    END IF;
    PERFORM simsql._follow_names(table_name);
    FOR index IN SELECT r.* FROM simsql.registry AS r WHERE r.table_id = repair.table_name ORDER BY r.id LOOP
        PERFORM simsql._check_indexable(table_name, index.column_name, index.scope_columns, index.storage,
                                        'repair');
        PERFORM simsql._check_upkeep(index, 'repair');
        UPDATE simsql.registry AS r SET scope_types = simsql._scope_types(r.table_id, r.scope_columns)
         WHERE r.id = index.id RETURNING r.* INTO index;
        owner := simsql._owner(index);
        faults := simsql._faults(index, thorough => true);
        IF index.id = ANY (recreated) THEN
            fault.problem := 'table re-created';
            faults := fault || faults;
        END IF;
        -- Searches hold key tables and B-trees, and would wait behind this.
        IF EXISTS (SELECT FROM unnest(faults) AS f
                    WHERE f.object ~ '^simsql\.(keys|built)_' OR f.problem ~ 'B-tree|REINDEX|polic|owner|table re-created')
        THEN
            PERFORM simsql._lock(table_name, 'ACCESS EXCLUSIVE', 'repair');
        END IF;
        PERFORM simsql._mend(index, faults);  -- first, since triggers need functions
        index := simsql._storage_mend(index, faults);
        FOR added IN SELECT a.* FROM simsql._add_missing_keys(index) AS a WHERE index.ready AND a.missing > 0 LOOP
            IF added.stored < added.missing THEN
                RAISE EXCEPTION 'simsql.repair: % takes no keys', added.keys
                    USING ERRCODE = 'object_not_in_prerequisite_state',
                          HINT = 'Re-create the index: ' || simsql._create_again(index);
            END IF;
            RETURN NEXT (index.table_name, index.column_name, 'keys missing', added.keys, added.missing, true,
                         NULL)::simsql.finding;
        END LOOP;
        PERFORM simsql._give(index, owner);
        PERFORM simsql._stamp(index.id);
        SELECT r.* INTO index FROM simsql.registry AS r WHERE r.id = index.id;
        SELECT f.* INTO finding FROM simsql._findings(index) AS f
         WHERE f.problem NOT IN ('not ready', 'row-level security', 'source dropped', 'collation changed') LIMIT 1;
        IF FOUND THEN
            RAISE EXCEPTION 'simsql.repair: % is beyond repair: %', finding.object, finding.problem
                USING ERRCODE = 'object_not_in_prerequisite_state',
                      HINT = 'Re-create the index: ' || simsql._create_again(index);
        END IF;
    END LOOP;
END
$$;

COMMENT ON FUNCTION simsql.repair(regclass) IS
    'repair the faults that simsql.verify finds, in this transaction, and return them; writers wait';
