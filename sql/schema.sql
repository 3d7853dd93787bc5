-- The schema, the registry of indexes, and the row types that searches return. Everything of simsql lives in
-- the schema "simsql", and searching needs no privileges on it beyond those granted here.

DO $$
BEGIN
    IF current_setting('server_version_num')::integer < 140000 THEN
        RAISE EXCEPTION 'PostgreSQL % is too old for simsql', current_setting('server_version')
            USING HINT = 'simsql needs PostgreSQL 14 or newer (bit_count on bit strings).';
    END IF;
    -- The other files replace functions: those of somebody else would keep their owner.
    IF EXISTS (SELECT FROM pg_proc WHERE pronamespace = to_regnamespace('simsql')) THEN
        RAISE EXCEPTION 'a schema simsql with functions already exists'
            USING HINT = 'If it is an older simsql, upgrade it: simsql status shows its revision, and '
                         'simsql install --sql --from REVISION prints the upgrade. Otherwise rename or '
                         'drop it.';
    END IF;
    -- An administrator may have created it. IF NOT EXISTS would need CREATE on the database.
    IF to_regnamespace('simsql') IS NULL THEN
        CREATE SCHEMA simsql;
    END IF;
END
$$;

GRANT USAGE ON SCHEMA simsql TO PUBLIC;

-- The revision of migrations/ that is installed. Alembic has already created this table if its commands
-- install simsql.
CREATE TABLE IF NOT EXISTS simsql.schema_version (
    version_num varchar(32) NOT NULL CONSTRAINT schema_version_pkc PRIMARY KEY
);

COMMENT ON TABLE simsql.schema_version IS 'the revision of the schema simsql: see simsql status';

CREATE TYPE simsql.match AS (fingerprint bigint, distance integer);
CREATE TYPE simsql.query_match AS (query bigint, fingerprint bigint, distance integer);
CREATE TYPE simsql.wide_match AS (fingerprint bigint[], distance integer);
CREATE TYPE simsql.pair AS (a bigint, b bigint, distance integer);
CREATE TYPE simsql.member AS (cluster bigint, fingerprint bigint);
CREATE TYPE simsql.finding AS (
    table_name text, column_name text, problem text, object text, keys bigint, fault boolean, hint text);

-- A fault of an index: see _faults.
CREATE TYPE simsql._fault AS (
    problem text,  -- as verify names it
    object  text,
    state   text,  -- of the index, in simsql.indexes
    effect  text,  -- on searches: refuses, refuses this role, may miss rows, slows; or
                   -- grants to others, keeps stale fingerprints
    message text,  -- of the error, if searches refuse the index
    advice  text,  -- what to do, in words ...
    remedy  text   -- ... and SQL that does it
);

-- The progress of a vacuum.
CREATE TYPE simsql._vacuum_state AS (
    index_id integer,
    tables   integer[],         -- the numbers of the key tables that remain; the first is being read ...
    key      bigint,            -- ... from this key on
    scope    text[],            -- ... in this scope
    seen     bigint,            -- keys read in the first table
    removed  bigint,            -- keys removed
    share    double precision,  -- of the work that is done, from 0 to 1
    finished boolean
);

-- What a stamp holds: see stamp.sql. A mark is a version of a row of the catalogue: where it is, and who wrote it.
CREATE TYPE simsql._mark AS (place tid, version xid);
CREATE TYPE simsql._keys_mark AS (name name, file oid);
CREATE TYPE simsql._column_mark AS (name name, type oid, generated "char");
CREATE TYPE simsql._stamp AS (
    file         oid,         -- of the table, if it is unlogged
    has_children boolean,     -- as pg_class has it
    ids          oid[],       -- of the key tables, ...
    keys         simsql._keys_mark[],    -- ... and what they were like
    numbers      smallint[],  -- of the columns of the fingerprint and the scope, ...
    columns      simsql._column_mark[],  -- ... and what they were like
    triggers     simsql._mark[],
    functions    oid[],       -- of the triggers, ...
    bodies       simsql._mark[],  -- ... and the rows that hold them
    policies     simsql._mark[],
    expressions  simsql._mark[]   -- of generated columns; null if there are none
);
-- The file of a table without children and of the catalogues, where these rows are in each of them, and who wrote them.
CREATE TYPE simsql._marks AS (
    file oid, files oid[], relations tid[], attributes tid[], triggers tid[], functions tid[], versions xid[]);

-- The table is recorded twice, by OID and by name. near compares the two, so it never silently reads a table
-- that has taken over the name. regclass survives pg_dump and pg_upgrade, which restore it by name.
CREATE TABLE simsql.registry (
    id          integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    table_id    regclass NOT NULL,
    table_name  text NOT NULL,
    column_name text NOT NULL,
    distance    integer NOT NULL CHECK (distance BETWEEN 0 AND 64),
    blocks      integer NOT NULL CHECK (blocks BETWEEN 2 AND 64),
    lead        integer NOT NULL CHECK (lead >= 1 AND lead < blocks),
    inner_blocks integer NOT NULL CHECK (inner_blocks = 0 OR inner_blocks BETWEEN 2 AND 63),
    -- Null if nobody has named it: it is not the default recipe then.
    recipe      text,
    ready       boolean NOT NULL,
    scope_columns text[] NOT NULL DEFAULT '{}',
    -- Not a secret. The triggers pass it to their functions, because an index of another database may have
    -- the same id.
    nonce       text NOT NULL DEFAULT gen_random_uuid(),
    -- By distance: the share of all keys that a search reads, see skew.sql.
    candidate_shares double precision[],
    -- What holds the keys: see storage/storage.sql.
    storage     text NOT NULL DEFAULT 'tables' CHECK (storage IN ('tables', 'expression')),
    -- Those that the scope columns had when the index was created.
    scope_types regtype[] NOT NULL DEFAULT '{}',
    -- Whether it is the default index of its table; null if the table has none.
    is_default  boolean,
    -- When the key tables were last created, built or vacuumed, and the keys of the first one at that time. The
    -- rows are estimated, as later ones are.
    vacuumed_at timestamptz,
    vacuumed_keys bigint,
    vacuumed_rows double precision,
    -- The columns that the fingerprints come from, with their weights; null if nobody has named them.
    sources     jsonb,
    -- Written when the keys are complete, with an id that no other stamp has, and on what server: see stamp.sql.
    stamp       simsql._stamp,
    stamp_id    uuid,
    stamped_on  jsonb,
    marks       simsql._marks,
    UNIQUE (table_id, column_name)
) WITH (toast_tuple_target = 8160);  -- every search reads a row, so it is not compressed

COMMENT ON TABLE simsql.registry IS
    'simhash indexes: written by the functions of simsql alone; read simsql.indexes';

-- An event trigger may turn it on for every new table.
ALTER TABLE simsql.registry NO FORCE ROW LEVEL SECURITY, DISABLE ROW LEVEL SECURITY;
ALTER TABLE simsql.schema_version NO FORCE ROW LEVEL SECURITY, DISABLE ROW LEVEL SECURITY;
