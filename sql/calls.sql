-- The calls that hints advise.

-- SQL that a hint advises; in a transaction of the command line, a code from which it makes one of its commands. The code
-- is JSON between two characters that no other text has: a function or an argument, its values, options and the SQL.
-- The setting is that of the transaction: through a pooler, another client may get the session next.
CREATE OR REPLACE FUNCTION simsql._advised(what text, "values" text[], options jsonb, statement text) RETURNS text
LANGUAGE sql STABLE
AS $$
    SELECT CASE WHEN current_setting('simsql.hints', true) = 'codes'
                THEN chr(1) || jsonb_build_array(what, "values", options, statement) || chr(1) ELSE statement END
$$;

-- A call of a public function that a hint advises.
CREATE OR REPLACE FUNCTION simsql._call(function text, arguments text[], options jsonb DEFAULT '{}') RETURNS text
LANGUAGE sql STABLE
AS $$
    SELECT simsql._advised(function, arguments, jsonb_strip_nulls(options), format('%s simsql.%s(%s);',
               CASE WHEN function IN ('build', 'maintain') THEN 'CALL'
                    WHEN function IN ('repair', 'verify') THEN 'SELECT * FROM' ELSE 'SELECT' END,
               function, string_agg(a.argument, ', ' ORDER BY a.place)))
      FROM (SELECT quote_literal(p.value), p.place
              FROM unnest(arguments) WITH ORDINALITY AS p (value, place) WHERE p.value IS NOT NULL
             UNION ALL
            SELECT format('%s => %s', o.name, CASE jsonb_typeof(o.value)
                       WHEN 'array' THEN quote_literal(ARRAY(SELECT jsonb_array_elements_text(o.value)))
                       WHEN 'object' THEN quote_literal(o.value)
                       WHEN 'string' THEN quote_literal(o.value #>> '{}')
                       ELSE o.value::text END),
                   100 + array_position('{distance,blocks,lead,inner_blocks,recipe,scope,storage}', o.name)
              FROM jsonb_each(jsonb_strip_nulls(options)) AS o (name, value)) AS a (argument, place)
$$;

-- The options that create an index like this one. They leave out the storage of an ordinary table.
CREATE OR REPLACE FUNCTION simsql._options(index simsql.registry) RETURNS jsonb
LANGUAGE sql STABLE
AS $$
    SELECT jsonb_build_object(
        'distance', index.distance, 'blocks', index.blocks, 'lead', index.lead, 'inner_blocks', index.inner_blocks,
        'recipe', index.recipe, 'scope', nullif(index.scope_columns, '{}'),
        'storage', nullif(index.storage, 'tables'), 'sources', index.sources)
$$;

-- The statement that resumes a build.
CREATE OR REPLACE FUNCTION simsql._build_call(index simsql.registry) RETURNS text
LANGUAGE sql STABLE STRICT
AS $$
    SELECT simsql._call('build', ARRAY[index.table_id::text, index.column_name], simsql._options(index))
$$;

-- The statements that drop an index and create it again.
CREATE OR REPLACE FUNCTION simsql._create_again(index simsql.registry) RETURNS text
LANGUAGE sql STABLE
AS $$
    SELECT simsql._call('drop_index', named) || ' ' || simsql._call('create_index', named, simsql._options(index))
      FROM (SELECT ARRAY[index.table_id::text, index.column_name]) AS n (named)
$$;
