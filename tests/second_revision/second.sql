-- What the second revision changes, of each kind one.

ALTER TABLE simsql.registry ADD COLUMN remark text NOT NULL DEFAULT 'none';

CREATE FUNCTION simsql.remark(table_name regclass, column_name text) RETURNS text
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN (SELECT r.remark FROM simsql.registry AS r WHERE r.table_id = $1 AND r.column_name = $2);
END
$$;

COMMENT ON FUNCTION simsql.remark(regclass, text) IS 'what has been noted about an index';

CREATE OR REPLACE FUNCTION simsql._functions(index simsql.registry)
RETURNS TABLE (name text, arguments text, head text, settings text[], body text)
LANGUAGE sql STABLE
AS $$
    SELECT f.name, f.arguments, f.head, f.settings, E'-- made by the second revision\n' || f.body
      FROM (SELECT * FROM simsql._search_functions(index)
             UNION ALL
            SELECT * FROM simsql._trigger_functions(index)) AS f
$$;
