-- Templates of SQL: statements and functions that are made from the names and the design of an index.
--
-- A template is the SQL that it makes, in dollar quotes. A placeholder stands for a part, and says by its
-- quotes how the part is quoted, as in SQL itself:
--   {"column"}  a name
--   {'mask'}    a literal, of any type: an array has to be given as text
--   {rows}      SQL as it is; nothing for null
-- Braces around anything else stay: '{}', '{0}'. A part that contains a placeholder is not a template.
--
-- A part of `own` that the template does not use is an error. `shared` has parts for many templates.
CREATE OR REPLACE FUNCTION simsql._render(template text, own jsonb, shared jsonb DEFAULT '{}') RETURNS text
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
AS $$
DECLARE
    placeholder constant text := '^([a-z][a-z0-9_]*|"[a-z][a-z0-9_]*"|''[a-z][a-z0-9_]*'')$';
    parts constant jsonb := shared || own;
    rendered text;
    piece text;
    found text;
    name text;
    value text;
    used text[] := '{}';
BEGIN
    -- One pass: a table may be called "a{column}b". Each piece but the first comes after an opening brace.
    FOREACH piece IN ARRAY string_to_array(template, '{') LOOP
        found := split_part(piece, '}', 1);
        IF rendered IS NULL OR found = piece OR found !~ placeholder THEN
            rendered := coalesce(rendered || '{', '') || piece;
            CONTINUE;
        END IF;
        name := trim('"''' FROM found);
        value := parts ->> name;
        IF parts -> name IS NULL OR jsonb_typeof(parts -> name) IN ('array', 'object')
           OR value IS NULL AND found LIKE '"%'
        THEN
            RAISE EXCEPTION 'simsql: the placeholder {%} stands for %',
                            found, coalesce(parts -> name, '"nothing"')
                USING ERRCODE = 'internal_error',
                      HINT = 'Give it a text, a number or a boolean: an array::text.';
        END IF;
        used := used || name;
        rendered := rendered || CASE left(found, 1) WHEN '"' THEN quote_ident(value)
                                                    WHEN '''' THEN quote_nullable(value)
                                                    ELSE coalesce(value, '') END
                    || substr(piece, length(found) + 2);
    END LOOP;
    IF own - used <> '{}' THEN
        RAISE EXCEPTION 'simsql: the template does not use %',
                        (SELECT string_agg(k, ', ') FROM jsonb_object_keys(own - used) AS k)
            USING ERRCODE = 'internal_error', HINT = template;
    END IF;
    RETURN coalesce(rendered, '');
END
$$;
