-- The schema, its registry of indexes and the row types that searches return.
-- Everything of simsql lives in the schema "simsql"; searching needs no grant on it beyond these.

DO $$
BEGIN
    IF current_setting('server_version_num')::integer < 140000 THEN
        RAISE EXCEPTION 'PostgreSQL % is too old for simsql', current_setting('server_version')
            USING HINT = 'simsql needs PostgreSQL 14 or newer (bit_count on bit strings).';
    END IF;
END
$$;

CREATE SCHEMA IF NOT EXISTS simsql;

GRANT USAGE ON SCHEMA simsql TO PUBLIC;

-- Which revision of migrations/ this is; Alembic creates it before the first, where Alembic's commands are used.
CREATE TABLE IF NOT EXISTS simsql.schema_version (
    version_num varchar(32) NOT NULL CONSTRAINT schema_version_pkc PRIMARY KEY
);

COMMENT ON TABLE simsql.schema_version IS 'the revision of the schema simsql: see simsql status';

GRANT SELECT ON simsql.schema_version TO PUBLIC;

CREATE FUNCTION simsql.version() RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN '0.1.0'::text;

COMMENT ON FUNCTION simsql.version() IS 'version of the simsql schema in this database';

CREATE TYPE simsql.match AS (fingerprint bigint, distance integer);
CREATE TYPE simsql.query_match AS (query bigint, fingerprint bigint, distance integer);
CREATE TYPE simsql.pair AS (a bigint, b bigint, distance integer);
CREATE TYPE simsql.member AS (cluster bigint, fingerprint bigint);
CREATE TYPE simsql.finding AS (
    table_name text, column_name text, problem text, object text, keys bigint, fault boolean, hint text);

-- The table is held twice, by OID and by name: near compares the two, so that a table swapped by
-- rename is never read in silence. regclass survives pg_dump and pg_upgrade, which restore it by name.
CREATE TABLE simsql.registry (
    id          integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    table_id    regclass NOT NULL,
    table_name  text NOT NULL,
    column_name text NOT NULL,
    distance    integer NOT NULL CHECK (distance BETWEEN 0 AND 64),
    blocks      integer NOT NULL CHECK (blocks BETWEEN 2 AND 64),
    lead        integer NOT NULL CHECK (lead >= 1 AND lead < blocks),
    inner_blocks integer NOT NULL CHECK (inner_blocks = 0 OR inner_blocks BETWEEN 2 AND 63),
    recipe      text,
    ready       boolean NOT NULL,
    built_to    bigint,  -- the last fingerprint that an unfinished build has filled in, and its scope
    built_scope text[],
    scope_columns text[] NOT NULL DEFAULT '{}',
    UNIQUE (table_id, column_name)
);

COMMENT ON TABLE simsql.registry IS
    'simhash indexes: written by the functions of simsql alone; read simsql.indexes';

CREATE VIEW simsql.indexes AS
SELECT r.id,
       r.table_name,
       r.column_name,
       r.scope_columns AS scope,
       r.distance,
       r.blocks,
       r.lead,
       r.inner_blocks,
       r.recipe,
       CASE WHEN c.oid IS NULL THEN 'table dropped'
            WHEN format('%I.%I', n.nspname, c.relname) <> r.table_name THEN 'table renamed'
            WHEN t.column_names <> r.column_name || r.scope_columns THEN 'column renamed'
            WHEN EXISTS (SELECT FROM unnest(r.column_name || r.scope_columns) AS n (name)
                          WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_attribute AS a
                                             WHERE a.attrelid = r.table_id AND a.attname = n.name)) THEN 'column dropped'
            WHEN t.column_names IS NULL OR t.enabled < 2 THEN 'triggers disabled'
            WHEN NOT r.ready THEN 'building'
            ELSE 'ready'
       END AS state
  FROM simsql.registry AS r
  LEFT JOIN pg_catalog.pg_class AS c ON c.oid = r.table_id
  LEFT JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
  LEFT JOIN LATERAL (
       SELECT count(*) FILTER (WHERE g.tgenabled = 'A'
                                 AND g.tgname IN (format('simsql_%s_insert', r.id), format('simsql_%s_update', r.id))) AS enabled,
              max(ARRAY(SELECT a.attname::text
                          FROM unnest(g.tgattr) WITH ORDINALITY AS k (attnum, place)
                          JOIN pg_catalog.pg_attribute AS a ON a.attrelid = g.tgrelid AND a.attnum = k.attnum
                         ORDER BY k.place)) FILTER (WHERE g.tgname = format('simsql_%s_column', r.id)) AS column_names
         FROM pg_catalog.pg_trigger AS g
        WHERE g.tgrelid = r.table_id) AS t ON true;

COMMENT ON VIEW simsql.indexes IS 'one row per simhash index, with its state as far as the catalogue tells: see simsql.verify';

GRANT SELECT ON simsql.registry, simsql.indexes TO PUBLIC;
