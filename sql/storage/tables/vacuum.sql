-- vacuum of key tables.

-- Removes the superfluous keys of the next batch.
CREATE OR REPLACE FUNCTION simsql._tables_vacuum(index simsql.registry, state simsql._vacuum_state) RETURNS simsql._vacuum_state
LANGUAGE plpgsql
AS $$
DECLARE
    smallest constant bigint := '-9223372036854775808';
    before double precision;
    batch record;
BEGIN
    IF state.tables IS NULL THEN
        state := (index.id, '{0}', smallest, NULL, 0, 0, 0, false);
    END IF;
    before := state.share;
    PERFORM simsql._check_btree(index.table_id, simsql._btree_columns(index), 'vacuum');
    PERFORM simsql._check_btree(format('simsql.keys_%s_%s', index.id, p.number)::regclass, simsql._key_columns(index), 'vacuum')
       FROM simsql._permutations(index.blocks, index.lead, index.inner_blocks) AS p;
    EXECUTE simsql._vacuum_statement(index, state.tables[1], state.scope) INTO batch USING state.key, simsql._batch_size();
    state.removed := state.removed + batch.removed;
    IF batch.seen = simsql._batch_size() THEN
        state.key := batch.last;
        state.scope := batch.scope;
        state.seen := state.seen + batch.seen;
        state.share := greatest(before, CASE WHEN cardinality(state.scope) = 0 THEN simsql._share(state.key)
                                             ELSE least(0.99, state.seen / greatest(1, simsql._tables_keys(index))) END);
        IF floor(20 * state.share) > floor(20 * before) THEN
            RAISE NOTICE 'simsql.vacuum: % %% done, % keys removed', round(100 * state.share), state.removed;
        END IF;
        RETURN state;
    END IF;
    state.key := smallest;
    state.scope := NULL;
    state.share := 1;
    state.tables := CASE state.tables[1] WHEN 0 THEN simsql._uneven_tables(index) ELSE state.tables[2:] END;
    state.finished := cardinality(state.tables) = 0;
    IF state.finished THEN
        RAISE NOTICE 'simsql.vacuum: removed % keys of %(%)', state.removed, index.table_id, quote_ident(index.column_name);
    END IF;
    RETURN state;
END
$$;

-- The superfluous keys in one batch of a key table: of $2 keys from key $1 of this scope on, or from the first key on. LIMIT
-- makes the planner look up each key once, whatever it estimates. Equal keys may continue in the next batch, which begins where
-- this one ends.
CREATE OR REPLACE FUNCTION simsql._superfluous(index simsql.registry, number integer, scope text[]) RETURNS text
LANGUAGE sql STABLE
AS $$
    SELECT format(
        'seen AS MATERIALIZED ('
        'SELECT k.*, row_number() OVER (PARTITION BY %6$s) AS nth '
        'FROM (SELECT ctid AS place, %6$s FROM simsql.keys_%1$s_%2$s WHERE %7$s ORDER BY %6$s LIMIT $2) AS k), '
        'superfluous AS MATERIALIZED ('
        'SELECT s.place, %8$sf.fp, live.found IS NOT NULL AS alive '
        'FROM seen AS s CROSS JOIN LATERAL (SELECT %3$s AS fp) AS f '
        'LEFT JOIN LATERAL (SELECT true AS found FROM ONLY %4$s AS t WHERE t.%5$I = f.fp%9$s LIMIT 1) AS live ON true '
        'WHERE (s.nth > 1 OR live.found IS NULL) AND %10$s), '
        'removed_%2$s AS (DELETE FROM simsql.keys_%1$s_%2$s '
        'WHERE ctid = ANY (ARRAY(SELECT place FROM superfluous)) RETURNING 1)',
        index.id, p.number, simsql._unpermute('s.key', p.lead_mask), index.table_name, index.column_name,
        simsql._name_list(simsql._key_columns(index)),
        coalesce(simsql._from_place(index, scope, '%1$s', 'key', '>=', '$1'), 'true'),
        simsql._for_scope(index, 's.%1$s, '), simsql._for_scope(index, ' AND t.%2$I = s.%1$s'), simsql._guard(index))
      FROM simsql._permutations(index.blocks, index.lead, index.inner_blocks) AS p
     WHERE p.number = _superfluous.number
$$;

-- The statement of a batch. As one statement it has one snapshot. With two, a key that is proved superfluous in the first could
-- belong to another writer by the time of the second. Writers add the same keys to all tables, so superfluous keys of the first
-- table are removed from the others too, as many copies as there, and one copy stays for each fingerprint that a row has. In a
-- batch of another table, keys are removed from that table alone.
CREATE OR REPLACE FUNCTION simsql._vacuum_statement(index simsql.registry, number integer, scope text[] DEFAULT NULL) RETURNS text
LANGUAGE sql STABLE
AS $$
    SELECT format('WITH %s%s '
                  'SELECT (SELECT count(*) FROM seen) AS seen, last.key AS last, last.scope, %s AS removed '
                  'FROM (VALUES (1)) AS one LEFT JOIN (SELECT key, ARRAY[%s]::text[] AS scope FROM seen '
                  'ORDER BY %skey DESC LIMIT 1) AS last ON true',
                  simsql._superfluous(index, _vacuum_statement.number, scope),
                  string_agg(format(
                      ', removed_%2$s AS (DELETE FROM simsql.keys_%1$s_%2$s WHERE ctid = ANY (ARRAY('
                      'SELECT k.place '
                      'FROM (SELECT %4$s%3$s AS key, alive, count(*) AS copies '
                      'FROM superfluous GROUP BY %5$s, alive ORDER BY %5$s) AS s '
                      'CROSS JOIN LATERAL (SELECT c.place, row_number() OVER () AS nth '
                      'FROM (SELECT r.ctid AS place FROM simsql.keys_%1$s_%2$s AS r WHERE r.key = s.key%6$s '
                      'LIMIT s.copies + s.alive::integer) AS c) AS k '
                      'WHERE k.nth > s.alive::integer)) RETURNING 1)',
                      index.id, p.number, simsql._permute('fp', p.lead_mask), simsql._for_scope(index, '%1$s, '),
                      simsql._name_list(simsql._key_columns(index)), simsql._for_scope(index, ' AND r.%1$s = s.%1$s')),
                      '' ORDER BY p.number)
                      FILTER (WHERE p.number <> _vacuum_statement.number),
                  string_agg(format('(SELECT count(*) FROM removed_%s)', p.number), ' + ' ORDER BY p.number),
                  (SELECT string_agg(c.name || '::text', ', ' ORDER BY c.number) FROM simsql._scope_columns(index) AS c),
                  simsql._for_scope(index, '%1$s DESC, '))
      FROM simsql._permutations(index.blocks, index.lead, index.inner_blocks) AS p
     WHERE p.number = _vacuum_statement.number OR _vacuum_statement.number = 0
$$;

-- The key tables whose number of keys differs from that of the first: their superfluous keys may be others.
CREATE OR REPLACE FUNCTION simsql._uneven_tables(index simsql.registry) RETURNS integer[]
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    counts bigint[];
BEGIN
    EXECUTE (SELECT format('SELECT ARRAY[%s]',
                           string_agg(format('(SELECT count(*) FROM simsql.keys_%s_%s)', index.id, p.number), ', '
                                      ORDER BY p.number))
               FROM simsql._permutations(index.blocks, index.lead, index.inner_blocks) AS p)
       INTO counts;
    RETURN ARRAY(SELECT c.ordinal - 1 FROM unnest(counts) WITH ORDINALITY AS c (keys, ordinal)
                  WHERE c.keys <> counts[1] ORDER BY 1);
END
$$;

-- The share of all keys or fingerprints that are not greater than this one, from 0 to almost 1, on the assumption that they are
-- evenly distributed.
CREATE OR REPLACE FUNCTION simsql._share(key bigint) RETURNS double precision
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN key / 18446744073709551616.0::double precision + 0.5;

-- The number of keys in the first table, estimated from its size.
CREATE OR REPLACE FUNCTION simsql._tables_keys(index simsql.registry) RETURNS double precision
LANGUAGE sql STABLE
AS $$
    SELECT pg_relation_size(format('simsql.keys_%s_0', index.id)) / (36.0 + 8 * cardinality(index.scope_columns))
$$;
