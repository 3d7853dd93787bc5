-- The schema, its registry of indexes and the row types that searches return.
-- Everything of simsql lives in the schema "simsql"; searching needs no grant on it beyond these.

DO $$
BEGIN
    IF current_setting('server_version_num')::integer < 140000 THEN
        RAISE EXCEPTION 'PostgreSQL % is too old for simsql', current_setting('server_version')
            USING HINT = 'simsql needs PostgreSQL 14 or newer (bit_count on bit strings).';
    END IF;
    -- The other files replace functions, and so would leave those of somebody else to their owner.
    IF EXISTS (SELECT FROM pg_proc WHERE pronamespace = to_regnamespace('simsql')) THEN
        RAISE EXCEPTION 'there is a schema simsql with functions already'
            USING HINT = 'If it is an older simsql, upgrade it: simsql status shows its revision, and '
                         'simsql sql --from REVISION prints the upgrade. Otherwise rename or drop it.';
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

CREATE TYPE simsql.match AS (fingerprint bigint, distance integer);
CREATE TYPE simsql.query_match AS (query bigint, fingerprint bigint, distance integer);
CREATE TYPE simsql.pair AS (a bigint, b bigint, distance integer);
CREATE TYPE simsql.member AS (cluster bigint, fingerprint bigint);
CREATE TYPE simsql.finding AS (
    table_name text, column_name text, problem text, object text, keys bigint, fault boolean, hint text);

-- What a vacuum has done so far.
CREATE TYPE simsql._vacuum_state AS (
    index_id integer,
    tables   integer[],         -- the numbers of the key tables that are still to be read, the first one now ...
    key      bigint,            -- ... and its next key
    scope    text[],            -- ... in this scope
    seen     bigint,            -- keys of the first table
    removed  bigint,            -- keys
    share    double precision,  -- of the work, from 0 to 1
    finished boolean
);

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
    -- No secret. The triggers hand it to their functions: those of an index of another database may have the same id.
    nonce       text NOT NULL DEFAULT gen_random_uuid(),
    UNIQUE (table_id, column_name)
);

COMMENT ON TABLE simsql.registry IS
    'simhash indexes: written by the functions of simsql alone; read simsql.indexes';

GRANT SELECT ON simsql.registry TO PUBLIC;
