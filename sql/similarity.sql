-- The similarity of two texts: the same answer as simsql.similarity in Python, which has the same tokens.
--
-- Everything that is done to each character of a text is done by functions of PostgreSQL that take a whole text. SQL sees the
-- different characters of a text, and its tokens.

-- The different characters beyond ASCII in a text.
CREATE OR REPLACE FUNCTION simsql._distinct_characters(p_text text) RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
AS $$
BEGIN
    IF octet_length(p_text) = length(p_text) THEN
        RETURN '';
    END IF;
    RETURN (SELECT string_agg(d.character, '')
              FROM (SELECT DISTINCT s.character FROM string_to_table(p_text, NULL) AS s (character)) AS d
             WHERE d.character > E'\x7f' COLLATE "C");
END
$$;

-- The rules of characters.sql for these characters. Those that do not change have none.
CREATE OR REPLACE FUNCTION simsql._rules(characters text)
RETURNS TABLE (point integer, start integer, kind integer, number integer)
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
AS $$
BEGIN
    RETURN QUERY
    SELECT f.point, (simsql._character_starts())[f.range], f.rule & 7, f.rule >> 3
      FROM (SELECT c.point, c.range, (simsql._character_rules())[c.range] AS rule
              FROM (SELECT ascii(s.character) AS point,
                           width_bucket(ascii(s.character), simsql._character_starts()) AS range
                      FROM string_to_table(characters, NULL) AS s (character)) AS c) AS f
     WHERE f.rule <> 0;
END
$$;

-- A text after these rules: case is folded, wide and joined forms are replaced, and separators become spaces. `omit` says
-- whether characters are omitted, too.
CREATE OR REPLACE FUNCTION simsql._apply_rules(p_text text, omit boolean) RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
AS $$
DECLARE
    result text := lower(p_text COLLATE "C");  -- A to Z
    characters text := simsql._distinct_characters(p_text);
    character text;
    expansion text;
    replaced text;
    replacements text;
    omitted text;
BEGIN
    IF characters = '' THEN
        RETURN result;
    END IF;
    FOR character, expansion IN
        SELECT chr(r.point),
               (SELECT string_agg(chr((simsql._expansions())[r.number % 4096 + place]), '' ORDER BY place)
                  FROM generate_series(1, r.number / 4096) AS place)
          FROM simsql._rules(characters) AS r WHERE r.kind = 5
    LOOP
        result := replace(result, character, expansion);
        characters := characters || expansion;
    END LOOP;
    SELECT string_agg(chr(r.point), '') FILTER (WHERE r.replacement IS NOT NULL),
           string_agg(chr(r.replacement), ''),
           string_agg(chr(r.point), '') FILTER (WHERE r.kind = 2 AND omit)
      INTO replaced, replacements, omitted
      FROM (SELECT s.point, s.kind,
                   CASE WHEN s.kind = 1 THEN 32
                        WHEN s.kind = 3 OR s.kind = 4 AND (s.point - s.start) % 2 = 0
                        THEN s.point + s.number END AS replacement
              FROM simsql._rules(characters) AS s) AS r;
    -- Characters without a counterpart are removed.
    RETURN translate(result, concat(replaced, omitted), concat(replacements));
END
$$;

-- A text as words with spaces in between: its characters in their normal forms, without those that are omitted.
CREATE OR REPLACE FUNCTION simsql._spaced_words(p_text text) RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
AS $$
DECLARE
    result text COLLATE "C" := p_text;
BEGIN
    -- NFKC, case folding, and NFKC again, as in Python. Only texts with characters that their neighbours can change need
    -- PostgreSQL's own tables, which may be of another version of Unicode.
    IF octet_length(result) > length(result) AND result ~ ('[' || simsql._characters_of('context') || ']')
    THEN
        -- normalize takes U+11A7 for a final of Hangul and drops it. A control character, which separates words, stands in.
        result := translate(result, chr(1) || chr(4519), ' ' || chr(1));
        result := normalize(simsql._apply_rules(normalize(result, NFKC), false), NFKC);
        result := replace(result, chr(1), chr(4519));
    END IF;
    RETURN regexp_replace(simsql._apply_rules(result, true), '[\u0001-\u001f!-/:-@[-`{-\u007f]+', ' ', 'g');
END
$$;

-- Puts spaces around emoji and runs of characters of scripts without spaces. A run that is longer than a token becomes units of
-- a character and its marks: each begins with E'\x02' or E'\x04', the number of units in a token, and E'\x01' separates them.
CREATE OR REPLACE FUNCTION simsql._marked_runs(p_text text) RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
AS $$
DECLARE
    result text COLLATE "C" := p_text;
    mark constant text := '[' || simsql._characters_of('mark') || ']';
    pair constant text := '[' || simsql._characters_of('pairs') || ']' || mark || '*';
    four constant text := '[' || simsql._characters_of('fours') || ']' || mark || '*';
BEGIN
    result := regexp_replace(result, '[' || simsql._characters_of('emoji') || ']' || mark || '*', ' \& ',
                             'g');
    result := regexp_replace(result, '(?:' || pair || ')+', E' \x02\\& ', 'g');
    result := regexp_replace(result, E'\x02(' || pair || ') ', '\1 ', 'g');
    result := regexp_replace(result, '(?:' || four || ')+', E' \x04\\& ', 'g');
    result := regexp_replace(result, E'\x04((?:' || four || '){1,3}) ', '\1 ', 'g');
    -- The spaces after a run become empty elements of a list, so that the next three of a unit are empty or in its run.
    result := (SELECT string_agg(CASE WHEN r.run < E'\x05' AND r.run <> ''
                                      THEN left(r.run, 1) || array_to_string(
                                               string_to_array(substr(r.run, 2), NULL),
                                               E'\x01' || left(r.run, 1)) || '   '
                                      ELSE r.run END, ' ')
                 FROM string_to_table(result, ' ') AS r (run));
    IF result ~ mark THEN
        result := regexp_replace(result, E'\x01[\x02\x04](' || mark || ')', '\1', 'g');
    END IF;
    RETURN result;
END
$$;

-- The tokens of a text, in order. Those of several units keep the numbers before the units.
CREATE OR REPLACE FUNCTION simsql._tokens(p_text text) RETURNS text[]
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
AS $$
DECLARE
    words text COLLATE "C" := simsql._spaced_words(p_text);
    units text[] COLLATE "C";
BEGIN
    IF words !~ ('[' || simsql._characters_of('emoji') || simsql._characters_of('pairs')
                 || simsql._characters_of('fours') || ']')
    THEN
        RETURN array_remove(string_to_array(words, ' '), '');
    END IF;
    units := string_to_array(replace(simsql._marked_runs(words), ' ', E'\x01'), E'\x01');
    -- The rows come from one function, in order, and so do the tokens.
    RETURN ARRAY(
        SELECT t.token
          FROM (SELECT CASE ascii(u.own)
                           WHEN 0 THEN NULL
                           WHEN 2 THEN u.own || nullif(u.second, '')
                           WHEN 4 THEN u.own || u.second || u.third || nullif(u.fourth, '')
                           ELSE u.own END AS token
                  FROM unnest(units, units[2:], units[3:], units[4:]) AS u (own, second, third, fourth)
                OFFSET 0) AS t
         WHERE t.token IS NOT NULL);
END
$$;

CREATE OR REPLACE FUNCTION simsql.similarity(a text, b text) RETURNS double precision
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE COST 5000
AS $$
DECLARE
    tokens_of_a text[] COLLATE "C";
    tokens_of_b text[] COLLATE "C";
    fewest integer;
    step integer;
BEGIN
    IF getdatabaseencoding() <> 'UTF8' AND concat(a, b) ~ '[^\u0001-\u007f]' THEN
        RAISE EXCEPTION 'simsql.similarity: the encoding of this database is %, and the texts are not ASCII',
                        getdatabaseencoding()
            USING ERRCODE = 'feature_not_supported',
                  HINT = 'Use a database with the encoding UTF8, or compare the texts in Python: '
                         'simsql.similarity(a, b).';
    END IF;
    tokens_of_a := simsql._tokens(a);
    tokens_of_b := simsql._tokens(b);
    fewest := least(cardinality(tokens_of_a), cardinality(tokens_of_b));
    step := CASE WHEN fewest < 20 THEN 0 ELSE 1 END;  -- without a step, a word stands for a trigram
    IF fewest = 0 THEN
        RETURN 0;
    END IF;
    RETURN (
        SELECT count(*) FILTER (WHERE f.in_a AND f.in_b) / count(*)::double precision
          FROM (SELECT bool_or(t.in_a) AS in_a, bool_or(NOT t.in_a) AS in_b
                  FROM (SELECT true AS in_a, u.*
                          FROM unnest(tokens_of_a, tokens_of_a[1 + step:], tokens_of_a[1 + 2 * step:])
                               AS u (first, second, third)
                         UNION ALL
                        SELECT false, u.*
                          FROM unnest(tokens_of_b, tokens_of_b[1 + step:], tokens_of_b[1 + 2 * step:])
                               AS u (first, second, third)
                       ) AS t
                 WHERE t.third IS NOT NULL
                 GROUP BY t.first, t.second, t.third) AS f);
END
$$;

COMMENT ON FUNCTION simsql.similarity(text, text) IS
    'Jaccard index of the word trigrams of two texts, or of their words if one has fewer than 20: '
    'from 0 to 1';
