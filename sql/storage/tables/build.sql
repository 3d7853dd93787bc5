-- build for key tables: adds the keys of the rows that were there before the triggers, batch by batch.

-- Adds the keys of the next fingerprints to every table, and notes the last of them and its scope. Rows that
-- are committed after this snapshot were written under the triggers.
CREATE OR REPLACE FUNCTION simsql._tables_build(index simsql.registry) RETURNS boolean
LANGUAGE plpgsql
AS $$
DECLARE
    fp bigint;
    scope text[];
    shared constant jsonb := simsql._tables_parts(index)
                             || jsonb_build_object('b_scope', simsql._for_scope(index, 'b.%1$s, '));
BEGIN
    PERFORM simsql._check_btree(index.table_id, simsql._btree_columns(index), 'build');
    EXECUTE format('SELECT b.fp, b.scope FROM simsql.built_%s AS b', index.id) INTO fp, scope;
    EXECUTE simsql._render($sql$
        WITH batch AS MATERIALIZED (
            SELECT DISTINCT {t_scope}t.{"column"} AS fp
              FROM ONLY {table} AS t
             WHERE t.{"column"} IS NOT NULL{in_a_scope} AND {guard}{after_the_last}
             ORDER BY {scope}fp LIMIT $1), {inserts}
        SELECT b.fp, ARRAY[{scope_as_text}]::text[] AS scope
          FROM batch AS b ORDER BY {b_scope}b.fp OFFSET $1 - 1
        $sql$,
        jsonb_build_object(
            'after_the_last', CASE WHEN fp IS NOT NULL THEN
                ' AND ' || simsql._from_place(index, scope, 't.%2$I', format('t.%I', index.column_name),
                                              '>', format('%L::bigint', fp)) END,
            'inserts', simsql._for_key_tables(index, $sql$
            keys_{number} AS (
                INSERT INTO {keys} ({key_columns})
                SELECT {b_scope}{key} AS key FROM batch AS b ORDER BY {key_columns})
                $sql$, 'b.fp', ', ', shared),
            'scope_as_text', (SELECT string_agg(format('b.%s::text', c.name), ', ' ORDER BY c.number)
                                FROM simsql._scope_columns(index) AS c)),
        shared)
       INTO fp, scope USING simsql._batch_size();
    IF fp IS NULL THEN  -- there were fewer
        EXECUTE format('DROP TABLE simsql.built_%s', index.id);
        PERFORM simsql._record_vacuum(index);
        RETURN true;
    END IF;
    EXECUTE format('DELETE FROM simsql.built_%1$s; INSERT INTO simsql.built_%1$s VALUES (%2$L, %3$L)',
                   index.id, fp, scope);
    RETURN false;
END
$$;

-- A share of all possible fingerprints or, within scopes, of the estimated number of rows.
CREATE OR REPLACE FUNCTION simsql._tables_progress(index simsql.registry) RETURNS double precision
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    fp bigint;
BEGIN
    EXECUTE format('SELECT b.fp FROM simsql.built_%s AS b', index.id) INTO fp;
    RETURN CASE WHEN fp IS NULL THEN 0
                WHEN cardinality(index.scope_columns) = 0 THEN simsql._share(fp)
                ELSE (SELECT least(0.99, simsql._tables_keys(index) / greatest(1, c.reltuples))
                        FROM pg_class AS c WHERE c.oid = index.table_id) END;
END
$$;
