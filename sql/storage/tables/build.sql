-- build and vacuum of key tables, in batches.

-- Adds the keys of the next fingerprints. Rows that are committed after this snapshot were written under the triggers.
CREATE OR REPLACE FUNCTION simsql._tables_build(index simsql.registry) RETURNS boolean
LANGUAGE plpgsql
AS $$
DECLARE
    last record;
BEGIN
    PERFORM simsql._check_btree(index.table_id, simsql._btree_columns(index), 'build');
    EXECUTE simsql._build_statement(index) INTO last USING simsql._batch_size();
    IF last.fp IS NULL THEN
        EXECUTE format('DROP TABLE simsql.built_%s', index.id);
        RETURN true;
    END IF;
    EXECUTE format('DELETE FROM simsql.built_%1$s; INSERT INTO simsql.built_%1$s VALUES (%2$L, %3$L)',
                   index.id, last.fp, last.scope);
    RETURN false;
END
$$;

-- A share of all possible fingerprints or, within scopes, of the estimated number of rows.
CREATE OR REPLACE FUNCTION simsql._tables_progress(index simsql.registry) RETURNS double precision
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    fp constant bigint := (simsql._built_to(index)).fp;
BEGIN
    RETURN CASE WHEN fp IS NULL THEN 0
                WHEN cardinality(index.scope_columns) = 0 THEN simsql._share(fp)
                ELSE (SELECT least(0.99, simsql._tables_keys(index) / greatest(1, c.reltuples))
                        FROM pg_class AS c WHERE c.oid = index.table_id) END;
END
$$;

-- The last fingerprint whose keys a build has added, and its scope; null before its first batch.
CREATE OR REPLACE FUNCTION simsql._built_to(index simsql.registry, OUT fp bigint, OUT scope text[])
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    EXECUTE format('SELECT b.fp, b.scope FROM simsql.built_%s AS b', index.id) INTO fp, scope;
END
$$;

-- The statement of a batch. It adds the keys of the next $1 fingerprints to every table and returns the last of these
-- fingerprints and its scope, unless there were fewer than $1.
CREATE OR REPLACE FUNCTION simsql._build_statement(index simsql.registry) RETURNS text
LANGUAGE sql STABLE
AS $$
    SELECT format('WITH batch AS MATERIALIZED (SELECT DISTINCT %st.%I AS fp FROM ONLY %s AS t WHERE t.%I IS NOT NULL%s%s '
                  'ORDER BY %sfp LIMIT $1), %s '
                  'SELECT b.fp, ARRAY[%s]::text[] AS scope FROM batch AS b ORDER BY %sb.fp OFFSET $1 - 1',
                  simsql._for_scope(index, 't.%2$I AS %1$s, '), index.column_name, index.table_name, index.column_name,
                  simsql._for_scope(index, ' AND t.%2$I IS NOT NULL') || ' AND ' || simsql._guard(index),
                  (SELECT ' AND ' || simsql._from_place(index, b.scope, 't.%2$I', format('t.%I', index.column_name), '>',
                                                        format('%L::bigint', b.fp))
                     FROM simsql._built_to(index) AS b WHERE b.fp IS NOT NULL),
                  simsql._for_scope(index, '%1$s, '),
                  string_agg(format('keys_%1$s AS (INSERT INTO simsql.keys_%2$s_%1$s (%3$s) SELECT %4$s%5$s AS key FROM batch AS b '
                                    'ORDER BY %3$s)', p.number, index.id, simsql._name_list(simsql._key_columns(index)),
                                    simsql._for_scope(index, 'b.%1$s, '), simsql._permute('b.fp', p.lead_mask)),
                             ', ' ORDER BY p.number),
                  (SELECT string_agg(format('b.%s::text', c.name), ', ' ORDER BY c.number) FROM simsql._scope_columns(index) AS c),
                  simsql._for_scope(index, 'b.%1$s, '))
      FROM simsql._permutations(index.blocks, index.lead, index.inner_blocks) AS p
$$;
