-- The sources of an index: the columns whose texts its fingerprints come from, with their weights. They are known
-- if create_index or alter_index was told. Then the index has the trigger of clear_on_change on its column, and
-- drop_index drops it: PostgreSQL refuses to change the type of a column that a trigger names, or to drop it.

-- Raises an error unless a trigger can clear the column when one of these texts changes.
CREATE OR REPLACE FUNCTION simsql._check_clearing(
    table_name regclass, column_name text, sources text[], caller text)
RETURNS void
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    name text;
    generated "char";
BEGIN
    FOREACH name IN ARRAY column_name || sources LOOP
        SELECT a.attgenerated INTO generated FROM pg_attribute AS a
         WHERE a.attrelid = table_name AND a.attname = name AND a.attnum > 0 AND NOT a.attisdropped;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'simsql.%: % has no column %', caller, table_name, quote_ident(name)
                USING ERRCODE = 'undefined_column';
        ELSIF generated <> '' THEN
            RAISE EXCEPTION 'simsql.%: column % of % is generated', caller, quote_ident(name), table_name
                USING ERRCODE = 'feature_not_supported', HINT = 'Name the columns that it is generated from.';
        END IF;
    END LOOP;
    IF column_name = ANY (sources) THEN
        RAISE EXCEPTION 'simsql.%: column % of % cannot be its own source', caller, quote_ident(column_name),
                        table_name
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Name the columns that hold the text.';
    END IF;
END
$$;

-- Raises an error unless these can be the sources of an index. Null stands for unknown ones, and {} for none.
CREATE OR REPLACE FUNCTION simsql._check_sources(
    table_name regclass, column_name text, sources jsonb, caller text)
RETURNS void
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    IF (CASE jsonb_typeof(sources)
       WHEN 'object' THEN EXISTS (SELECT FROM jsonb_each_text(sources) AS s
                                   WHERE s.value IS NULL OR s.value !~ '^([1-9]\d{0,5}|1000000)$')
       ELSE sources IS NOT NULL END)
    THEN
        RAISE EXCEPTION 'simsql.%: sources must be a JSON object of columns and their weights, from 1 to '
                        '1000000, not %', caller, sources
            USING ERRCODE = 'invalid_parameter_value',
                  HINT = 'For example: sources => ''{"title": 3, "body": 1}''';
    END IF;
    IF sources <> '{}' THEN
        PERFORM simsql._check_clearing(table_name, column_name, simsql._source_names(sources), caller);
    END IF;
END
$$;

-- The columns of sources, in the order of jsonb: shorter names come first.
CREATE OR REPLACE FUNCTION simsql._source_names(sources jsonb) RETURNS text[]
LANGUAGE sql IMMUTABLE
AS $$
    SELECT coalesce(array_agg(s.name ORDER BY octet_length(s.name), s.name COLLATE "C"), '{}')
      FROM jsonb_object_keys(sources) AS s (name)
$$;

-- The sources of an index with the current names of the columns, which the companion of its trigger tells. The
-- index has its current names.
CREATE OR REPLACE FUNCTION simsql._current_sources(index simsql.registry) RETURNS jsonb
LANGUAGE sql STABLE
AS $$
    SELECT jsonb_object_agg(coalesce(simsql._column_name(index.table_id, t.tgattr[s.place]), s.name),
                            index.sources -> s.name)
      FROM unnest(simsql._source_names(index.sources)) WITH ORDINALITY AS s (name, place)
      LEFT JOIN pg_trigger AS t ON t.tgrelid = index.table_id AND t.tgname = (
           SELECT c.name FROM simsql._clearing_triggers(index.table_id, index.column_name) AS c (name)
            WHERE c.name LIKE '%\_column')
$$;

-- The triggers that clear a column when one of its sources changes: the one that fires, and its companion, which
-- never does. They are as PostgreSQL prints them. By its name the first is one of the last to fire before the
-- update, so it sees what other triggers make of the text. It compares texts byte by byte, even if their type or
-- collation considers them equal. The second tells the column and then the sources by number, as the catalogue and
-- pg_dump carry them along.
CREATE OR REPLACE FUNCTION simsql._clearing(
    table_id regclass, column_name text, sources text[], number text)
RETURNS TABLE (name text, definition text)
LANGUAGE sql STABLE
AS $$
    SELECT format('zz_simsql_clear_%s%s', number, d.suffix),
           simsql._render('CREATE TRIGGER zz_simsql_clear_{number}' || d.suffix || d.event
                          || ' EXECUTE FUNCTION simsql._clear_fingerprint()', '{}', jsonb_build_object(
               'number', number, 'table', simsql._full_name(table_id), 'column', column_name,
               'columns', simsql._name_list(column_name || sources), 'changed', c.changed))
      FROM (SELECT CASE count(*) WHEN 1 THEN min(e.changed)
                   ELSE format('(%s)', string_agg(e.changed, ' OR ' ORDER BY s.place)) END
              FROM unnest(sources) WITH ORDINALITY AS s (name, place)
              JOIN pg_attribute AS a ON a.attrelid = table_id AND a.attname = s.name
             CROSS JOIN LATERAL format(
                   CASE a.atttypid WHEN 'text'::regtype
                   THEN '((old.%1$I COLLATE "C") IS DISTINCT FROM (new.%1$I COLLATE "C"))'
                   ELSE '(((old.%1$I)::text COLLATE "C") IS DISTINCT FROM ((new.%1$I)::text COLLATE "C"))' END,
                   s.name) AS e (changed)) AS c (changed)
     CROSS JOIN (VALUES
           ('', ' BEFORE UPDATE ON {table} FOR EACH ROW WHEN (((new.{"column"} IS NOT NULL) AND '
                '(NOT (old.{"column"} IS DISTINCT FROM new.{"column"})) AND {changed}))'),
           ('_column', ' AFTER UPDATE OF {columns} ON {table} FOR EACH STATEMENT WHEN (false)'))
           AS d (suffix, event)
$$;

-- The faults of the sources of an index, which has its current names, and of the trigger.
CREATE OR REPLACE FUNCTION simsql._source_faults(index simsql.registry) RETURNS simsql._fault[]
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    current constant jsonb := simsql._current_sources(index);
    problem text;
    object text := quote_ident(index.column_name);
    remedy text := simsql._call('repair', ARRAY[index.table_id::text]);
    number constant text := (
        SELECT min(substring(c.name FROM '^zz_simsql_clear_(\d+)_column$'))
          FROM simsql._clearing_triggers(index.table_id, index.column_name) AS c (name));
BEGIN
    SELECT quote_ident(s.name) INTO object FROM jsonb_object_keys(current) AS s (name)
     WHERE NOT EXISTS (SELECT FROM pg_attribute AS a WHERE a.attrelid = index.table_id AND a.attname = s.name);
    IF FOUND THEN
        problem := 'source dropped';
        -- Nobody but the owner knows what the texts are now.
        remedy := simsql._call('alter_index', ARRAY[index.table_id::text, index.column_name], '{"sources": {}}');
    ELSIF current <> index.sources THEN
        problem := 'source renamed';
        object := simsql._name_list(simsql._source_names(current));
    ELSIF index.sources IS NOT NULL AND NOT simsql._is_distributed(index.table_id) THEN
        SELECT CASE WHEN t.oid IS NULL THEN 'clearing trigger missing' ELSE 'clearing trigger altered' END, d.name
          INTO problem, object
          FROM simsql._clearing(index.table_id, index.column_name, simsql._source_names(index.sources),
                                coalesce(number, '1')) AS d
          LEFT JOIN pg_trigger AS t ON t.tgrelid = index.table_id AND t.tgname = d.name
         WHERE t.oid IS NULL OR pg_get_triggerdef(t.oid) <> d.definition OR t.tgenabled NOT IN ('O', 'A')
         ORDER BY t.oid IS NOT NULL, d.name LIMIT 1;
    END IF;
    RETURN CASE WHEN problem IS NULL THEN '{}'
           ELSE ARRAY[(problem, object, 'ready', 'keeps stale fingerprints', NULL, NULL, remedy)::simsql._fault] END;
END
$$;

-- Creates the trigger that clears stale fingerprints of an index with sources. Citus has no triggers on the tables
-- that it distributes.
CREATE OR REPLACE FUNCTION simsql._clear_stale(index simsql.registry) RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    IF index.sources IS NOT NULL AND NOT simsql._is_distributed(index.table_id) THEN
        PERFORM simsql.clear_on_change(index.table_id, index.column_name, simsql._source_names(index.sources));
    END IF;
END
$$;

CREATE OR REPLACE FUNCTION simsql.alter_index(
    table_name regclass, column_name text DEFAULT NULL, recipe text DEFAULT NULL, sources jsonb DEFAULT NULL)
RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    index simsql.registry := simsql._index(table_name, column_name);
    had_sources constant boolean := index.sources IS NOT NULL;
BEGIN
    PERFORM simsql._check_read_committed('alter_index');
    PERFORM simsql._check_upkeep(index, 'alter_index');
    PERFORM simsql._check_sources(table_name, index.column_name, sources, 'alter_index');
    PERFORM simsql._lock(table_name, CASE WHEN sources = '{}' THEN 'ACCESS EXCLUSIVE'
                                          WHEN sources IS NULL THEN 'SHARE UPDATE EXCLUSIVE'
                                          ELSE 'SHARE ROW EXCLUSIVE' END, 'alter_index');
    -- Meanwhile the index may have been dropped, or got another id with another storage.
    index := simsql._index(table_name, index.column_name);
    UPDATE simsql.registry AS r
       SET recipe = coalesce(alter_index.recipe, r.recipe),
           sources = nullif(coalesce(alter_index.sources, r.sources), '{}')
     WHERE r.id = index.id RETURNING r.* INTO index;
    PERFORM simsql._describe(index);
    IF had_sources AND index.sources IS NULL THEN
        PERFORM simsql._drop_clearing(table_name, index.column_name);
    END IF;
    PERFORM simsql._clear_stale(index);
END
$$;

COMMENT ON FUNCTION simsql.alter_index(regclass, text, text, jsonb) IS
    'say what the fingerprints of an index are: the recipe, and the sources, the columns of their texts with '
    'weights, {} for unknown ones. Changes no fingerprint; NULL leaves it as it is';
