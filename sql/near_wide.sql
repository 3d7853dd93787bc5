-- near_wide: fingerprints of several words of 64 bits, each in a column with an index of its own.
--
-- If two fingerprints differ in at most k bits, some word p of u (from 0) differs in at most (k - p) / u:
-- otherwise they would differ in more than k. So every match has a word that near finds within this distance.
-- This also holds for any u of the words. So words that many rows share are left out, unless the distance
-- becomes too great for the others.
CREATE OR REPLACE FUNCTION simsql.near_wide(
    table_name regclass, fingerprint bigint[], distance integer, column_names text[],
    scope jsonb DEFAULT NULL)
RETURNS SETOF simsql.wide_match
LANGUAGE plpgsql STABLE ROWS 10
SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
DECLARE
    is_coordinator constant boolean := simsql._is_coordinator('near_wide');
    words constant bigint[] := ARRAY(SELECT unnest(fingerprint));  -- numbered from 1
    indexes simsql.registry[];
    list text;  -- of the columns
    bits text;  -- the distance of a row
    rows_of_table text;
    many bigint;
    searched integer[];
    rare integer[];  -- those of them that fewer than `many` rows share with the fingerprint
    number integer;
    near_words bigint[];
    conditions text[];
    are_many boolean;
BEGIN
    IF NOT simsql._sees_rows(table_name) THEN
        RETURN QUERY
        SELECT w.* FROM simsql._again(table_name, format('near_wide(%L, %L, %L, %L, %L)', table_name::oid, fingerprint, distance,
                                                         column_names, scope)) AS w (fingerprint bigint[], distance integer);
        RETURN;
    END IF;
    indexes := ARRAY(SELECT simsql._searched_index(table_name, c.name, scope)
                       FROM unnest(column_names) WITH ORDINALITY AS c (name, number) ORDER BY c.number);
    searched := ARRAY(SELECT generate_subscripts(indexes, 1));
    IF cardinality(indexes) = 0 OR cardinality(words) <> cardinality(indexes) AND fingerprint IS NOT NULL THEN
        RAISE EXCEPTION 'simsql.near_wide: the fingerprint has % words, but there are % columns',
                        cardinality(words), cardinality(indexes)
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Name the column of each word, in their order.';
    ELSIF (distance BETWEEN 0 AND 64 * cardinality(indexes)) IS NOT TRUE THEN
        RAISE EXCEPTION 'simsql.near_wide: distance must be between 0 and %, not %',
                        64 * cardinality(indexes), coalesce(distance::text, 'NULL')
            USING ERRCODE = 'invalid_parameter_value';
    ELSIF fingerprint IS NULL OR array_position(words, NULL) IS NOT NULL THEN
        RETURN;
    END IF;
    many := greatest(simsql._candidates(), simsql._storage_keys(indexes[1]) / 50);
    SELECT string_agg(format('t.%I', indexes[n].column_name), ', ' ORDER BY n),
           string_agg(format('bit_count((t.%I # $1[%s])::bit(64))', indexes[n].column_name, n), ' + '),
           format(' FROM %s AS t WHERE %s', simsql._rows_of(indexes[1]),
                  string_agg(simsql._guard(indexes[n]), ' AND '))
           || simsql._for_scope(indexes[1], ' AND t.%2$I = %3$s', scope)
      INTO list, bits, rows_of_table
      FROM unnest(searched) AS n;
    LOOP
        -- Beyond this distance, near takes as long for a word as reading the table takes for all.
        IF distance / cardinality(searched) > 16 THEN
            conditions := '{true}';
            are_many := true;
            EXIT;
        END IF;
        rare := searched;
        conditions := '{}';
        FOR place IN 0 .. least(cardinality(searched) - 1, distance) LOOP
            number := searched[place + 1];
            near_words := ARRAY(
                SELECT n.fingerprint
                  FROM simsql.near(table_name, words[number], (distance - place) / cardinality(searched),
                                   indexes[number].column_name, scope) AS n);
            CONTINUE WHEN near_words = '{}';
            conditions := conditions || format('t.%I = ANY (%L)', indexes[number].column_name, near_words);
            EXECUTE format('SELECT count(*) = %1$s FROM (SELECT 1%2$s AND %3$s LIMIT %1$s) AS r',
                           many, rows_of_table, conditions[cardinality(conditions)])
               INTO are_many;
            IF are_many THEN
                rare := array_remove(rare, number);
            END IF;
        END LOOP;
        are_many := rare <> searched;
        EXIT WHEN NOT are_many OR rare = '{}';
        searched := rare;
    END LOOP;
    IF conditions = '{}' THEN
        RETURN;
    END IF;
    -- Unless there are many rows, statistics must not mislead PostgreSQL into reading the table.
    PERFORM set_config('enable_bitmapscan', 'on', true),
            set_config('enable_seqscan', CASE WHEN are_many THEN 'on' ELSE 'off' END, true);
    RETURN QUERY EXECUTE format(
        'SELECT DISTINCT ARRAY[%s], (%s)::integer%s AND (%s) AND %2$s <= $2 ORDER BY 2, 1',
        list, bits, rows_of_table, array_to_string(conditions, ' OR ')) USING words, distance;
    PERFORM simsql._check_searched(i.id, near_wide.table_name, i.stamp_id) FROM unnest(indexes) AS i;
END
$$;

COMMENT ON TYPE simsql.wide_match IS
    'the words of a row, and their distance in bits, all words together, from those that were searched for';
COMMENT ON FUNCTION simsql.near_wide(regclass, bigint[], integer, text[], jsonb) IS
    'every fingerprint of several words within the distance, once each, nearest first';
