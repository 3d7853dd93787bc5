-- vacuum for key tables, batch by batch.

-- The number of keys in the first table, estimated from its size.
CREATE OR REPLACE FUNCTION simsql._tables_keys(index simsql.registry) RETURNS double precision
LANGUAGE sql STABLE
AS $$
    SELECT pg_relation_size(format('simsql.keys_%s_0', index.id))
           / (36.0 + 8 * cardinality(index.scope_columns))
$$;

-- The share of all keys or fingerprints that are not greater than this one, from 0 to almost 1, on the
-- assumption that they are evenly distributed.
CREATE OR REPLACE FUNCTION simsql._share(key bigint) RETURNS double precision
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN key / 18446744073709551616.0::double precision + 0.5;

-- The scope columns of a key table as text, as a vacuum remembers a place.
CREATE OR REPLACE FUNCTION simsql._scope_as_text(index simsql.registry) RETURNS text
LANGUAGE sql STABLE
AS $$
    SELECT string_agg(c.name || '::text', ', ' ORDER BY c.number) FROM simsql._scope_columns(index) AS c
$$;

-- The statement of a batch: of $2 keys of one table, from key $1 of this scope on, or from the first key on.
-- As one statement it has one snapshot. With two, a key that is proved superfluous in the first could belong
-- to another writer by the time of the second. LIMIT makes the planner look up each key once, whatever it
-- estimates. Equal keys may continue in the next batch, which begins where this one ends.
--
-- Writers add the same keys to all tables, so superfluous keys of the first table are removed from the others
-- too, as many copies as there, and one copy stays for each fingerprint that a row has. In a batch of another
-- table, keys are removed from that table alone.
CREATE OR REPLACE FUNCTION simsql._vacuum_statement(
    index simsql.registry, number integer, scope text[] DEFAULT NULL)
RETURNS text
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    shared constant jsonb := simsql._tables_parts(index) || jsonb_build_object(
        'same_scope_of_keys', simsql._for_scope(index, ' AND r.%1$s = s.%1$s'));
    removed constant text := '(SELECT count(*) FROM removed_{number})';
BEGIN
    RETURN simsql._render($sql$
        WITH seen AS MATERIALIZED (
            SELECT k.*, row_number() OVER (PARTITION BY {key_columns}) AS nth
              FROM (SELECT ctid AS place, {key_columns} FROM simsql.keys_{id}_{number}
                     WHERE key IS NOT NULL AND {from_place} ORDER BY {key_columns} LIMIT $2) AS k
        ), superfluous AS MATERIALIZED (
            SELECT s.place, {s_scope}f.fp, live.found IS NOT NULL AS alive
              FROM seen AS s
             CROSS JOIN LATERAL (SELECT {fp} AS fp) AS f
              LEFT JOIN LATERAL (
                   SELECT true AS found
                     FROM ONLY {table} AS t WHERE t.{"column"} = f.fp{same_scope} LIMIT 1) AS live ON true
             WHERE (s.nth > 1 OR live.found IS NULL) AND {guard}
        ), removed_{number} AS (
            DELETE FROM simsql.keys_{id}_{number}
             WHERE ctid = ANY (ARRAY(SELECT place FROM superfluous)) RETURNING 1
        ){in_other_tables}
        SELECT (SELECT count(*) FROM seen) AS seen, last.key AS last, last.scope, {removed} AS removed
          FROM (VALUES (1)) AS one
          LEFT JOIN (SELECT key, ARRAY[{scope_as_text}]::text[] AS scope
                       FROM seen ORDER BY {scope_desc}key DESC LIMIT 1) AS last ON true
        $sql$,
        jsonb_build_object(
            'number', number,
            'from_place', coalesce(simsql._from_place(index, scope, '%1$s', 'key', '>=', '$1'), 'true'),
            's_scope', simsql._for_scope(index, 's.%1$s, '),
            'fp', (SELECT simsql._permute('s.key', p.lead_mask, back => true)
                     FROM simsql._permutations(index.blocks, index.lead, index.inner_blocks) AS p
                    WHERE p.number = _vacuum_statement.number),
            'same_scope', simsql._for_scope(index, ' AND t.%2$I = s.%1$s'),
            'in_other_tables', CASE number WHEN 0 THEN simsql._for_key_tables(index, $sql$,
        removed_{number} AS (
            DELETE FROM {keys} WHERE ctid = ANY (ARRAY(
                SELECT k.place
                  FROM (SELECT {scope}{key} AS key, alive, count(*) AS copies
                          FROM superfluous GROUP BY {key_columns}, alive ORDER BY {key_columns}) AS s
                 CROSS JOIN LATERAL (
                       SELECT c.place, row_number() OVER () AS nth
                         FROM (SELECT r.ctid AS place FROM {keys} AS r
                                WHERE r.key = s.key{same_scope_of_keys}
                                LIMIT s.copies + s.alive::integer) AS c) AS k
                 WHERE k.nth > s.alive::integer)) RETURNING 1)$sql$, 'fp', '', shared,
                ARRAY[format('simsql.keys_%s_0', index.id)]) END,
            'removed', CASE number WHEN 0 THEN simsql._for_key_tables(index, removed, 'fp', ' + ')
                                   ELSE format('(SELECT count(*) FROM removed_%s)', number) END,
            'scope_as_text', simsql._scope_as_text(index),
            'scope_desc', simsql._for_scope(index, '%1$s DESC, ')),
        shared);
END
$$;

-- The start of a vacuum from any key of the first table on, to its end, and then up to this key. If vacuums of a
-- large index are always stopped before their end, they come to all keys in time. The rest of such a vacuum is
-- known by the number of its keys: `seen` is less than 0 until it has read them, and a batch more, because each
-- batch reads the last key again. Null stands for the first key: every ninth vacuum begins there, or it would have
-- no chance.
CREATE OR REPLACE FUNCTION simsql._vacuum_anywhere(index simsql.registry) RETURNS simsql._vacuum_state
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_sort = off
SET datestyle = 'ISO' SET intervalstyle = 'postgres' SET extra_float_digits = 1  -- as for _vacuum_batch
AS $$
DECLARE
    skipped constant bigint := coalesce(
        (1.125 * random() - 0.125) * (simsql._counted_rows(to_regclass(format('simsql.keys_%s_0', index.id)))).rows, 0);
    state simsql._vacuum_state;
BEGIN
    IF skipped > 0 THEN
        EXECUTE simsql._render($sql$
            SELECT {id}, ARRAY[0, 0], k.key, ARRAY[{scope_as_text}]::text[], -$1 - $2, 0, 0, false
              FROM simsql.keys_{id}_0 AS k WHERE k.key IS NOT NULL ORDER BY {key_columns} OFFSET $1 LIMIT 1
            $sql$,
            jsonb_build_object('scope_as_text', simsql._scope_as_text(index)), simsql._tables_parts(index))
           INTO state USING skipped, simsql._batch_size();
    END IF;
    RETURN state;
END
$$;

-- Removes the superfluous keys of the next batch. After the first table, it reads those whose number of keys
-- differs: their superfluous keys may be others.
CREATE OR REPLACE FUNCTION simsql._tables_vacuum(index simsql.registry, state simsql._vacuum_state)
RETURNS simsql._vacuum_state
LANGUAGE plpgsql
AS $$
DECLARE
    smallest constant bigint := '-9223372036854775808';
    begins_anywhere boolean;  -- and comes back for the keys before that one
    ends_here boolean;  -- with this batch, whether or not it is full
    is_full boolean;
    before double precision;
    batch record;
    counts bigint[];
BEGIN
    IF state.tables IS NULL THEN
        state := (index.id, '{0}', smallest, NULL, 0, 0, 0, false);
    END IF;
    begins_anywhere := state.tables[1:2] = '{0,0}';
    ends_here := NOT begins_anywhere AND state.seen < 0 AND simsql._batch_size() >= -state.seen;
    before := state.share;
    PERFORM simsql._check_btree(index.table_id, simsql._btree_columns(index), 'vacuum');
    PERFORM simsql._check_btree(format('simsql.keys_%s_%s', index.id, p.number)::regclass,
                                simsql._key_columns(index),
                                'vacuum')
       FROM simsql._permutations(index.blocks, index.lead, index.inner_blocks) AS p;
    EXECUTE simsql._vacuum_statement(index, state.tables[1], state.scope)
       INTO batch USING state.key, simsql._batch_size();
    state.removed := state.removed + batch.removed;
    is_full := batch.seen = simsql._batch_size();
    IF is_full AND NOT ends_here THEN
        state.key := batch.last;
        state.scope := batch.scope;
        IF begins_anywhere THEN
            RETURN state;
        END IF;
        state.seen := state.seen + batch.seen;
        state.share := greatest(before, CASE
            WHEN cardinality(state.scope) = 0 THEN simsql._share(state.key)
            ELSE least(0.99, state.seen / greatest(1, simsql._tables_keys(index))) END);
        IF floor(20 * state.share) > floor(20 * before) THEN
            RAISE NOTICE 'simsql.vacuum: % %% done, % keys removed', round(100 * state.share), state.removed;
        END IF;
        RETURN state;
    END IF;
    IF state.tables[1] = 0 AND NOT begins_anywhere THEN
        EXECUTE format('SELECT ARRAY[%s]',
                       simsql._for_key_tables(index, '(SELECT count(*) FROM {keys})', 'fp', ', '))
           INTO counts;
        state.tables := '{0}' || ARRAY(
            SELECT c.ordinal - 1 FROM unnest(counts) WITH ORDINALITY AS c (keys, ordinal)
             WHERE c.keys <> counts[1] ORDER BY 1)::integer[];
    END IF;
    state.key := smallest;
    state.scope := NULL;
    state.tables := state.tables[2:];
    IF begins_anywhere THEN
        RETURN state;
    END IF;
    state.seen := 0;
    state.share := 1;
    state.finished := cardinality(state.tables) = 0;
    IF state.finished THEN
        PERFORM simsql._record_vacuum(index);
        RAISE NOTICE 'simsql.vacuum: removed % keys of %(%)', state.removed, index.table_id,
                     quote_ident(index.column_name);
    END IF;
    RETURN state;
END
$$;
