-- simsql: the schema, to revision 0002
DO $simsql_run$ BEGIN EXECUTE $simsql_script$
-- Until the end of the last file, names are looked up in pg_catalog alone: the role that runs the files may
-- have another schema before it, with a type called text. And names are quoted only where that is necessary,
-- as in what is compared with them.

DO $$
BEGIN
    PERFORM pg_catalog.set_config('simsql.search_path', pg_catalog.current_setting('search_path'), true),
            pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true),
            pg_catalog.set_config('simsql.quote_all_identifiers',
                                  pg_catalog.current_setting('quote_all_identifiers'), true),
            pg_catalog.set_config('quote_all_identifiers', 'off', true);
END
$$;


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
END
$$;

CREATE SCHEMA IF NOT EXISTS simsql;

GRANT USAGE ON SCHEMA simsql TO PUBLIC;

-- The revision of migrations/ that is installed. Alembic has already created this table if its commands
-- install simsql.
CREATE TABLE IF NOT EXISTS simsql.schema_version (
    version_num varchar(32) NOT NULL CONSTRAINT schema_version_pkc PRIMARY KEY
);

COMMENT ON TABLE simsql.schema_version IS 'the revision of the schema simsql: see simsql status';

GRANT SELECT ON simsql.schema_version TO PUBLIC;

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
    effect  text,  -- on searches: refuses, refuses this role, may miss rows, slows; or grants to others
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
    UNIQUE (table_id, column_name)
);

COMMENT ON TABLE simsql.registry IS
    'simhash indexes: written by the functions of simsql alone; read simsql.indexes';

GRANT SELECT ON simsql.registry TO PUBLIC;


-- The version tells a client what it can call.

CREATE OR REPLACE FUNCTION simsql.version() RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN '0.2.0'::text;

COMMENT ON FUNCTION simsql.version() IS 'version of the simsql schema in this database';


-- Logical replication and the tables of simsql: a publication of all tables publishes them, too.
--
-- Each database keeps its own indexes. An index has the same id on both sides by chance at most, its keys are
-- counted differently, and what is superfluous here may be the last key there: a vacuum of the publisher would
-- remove keys of rows that the subscriber has. So changes of these tables that a replication worker applies are
-- ignored, except for indexes that have their objects here but no row: a schema that was restored without its
-- data gets that by the initial copy.

CREATE OR REPLACE FUNCTION simsql._ignore_applied() RETURNS trigger
LANGUAGE plpgsql
AS $$
DECLARE
    is_new boolean := false;
BEGIN
    IF TG_OP = 'INSERT' THEN
        IF TG_RELID = 'simsql.registry'::regclass THEN
            is_new := NOT EXISTS (
                SELECT FROM simsql.registry AS r
                 WHERE r.id = NEW.id OR r.table_id = NEW.table_id AND r.column_name = NEW.column_name)
                AND EXISTS (SELECT FROM pg_proc AS p
                             WHERE p.pronamespace = 'simsql'::regnamespace AND p.proname = 'search_' || NEW.id);
        ELSE
            is_new := NOT EXISTS (SELECT FROM simsql.schema_version);
        END IF;
    END IF;
    IF is_new THEN
        RETURN NEW;
    END IF;
    RETURN NULL;
END
$$;

-- Lets a table ignore these changes. Sessions of clients have a query, also those that restore as a replica; a
-- worker that applies changes has none.
CREATE OR REPLACE FUNCTION simsql._keep_own(relation regclass, changes text) RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    EXECUTE format('CREATE OR REPLACE TRIGGER simsql_keep_own BEFORE %s ON %s FOR EACH ROW '
                   'WHEN (pg_catalog.current_query() IS NULL) EXECUTE FUNCTION simsql._ignore_applied()',
                   changes, relation);
    EXECUTE format('ALTER TABLE %s ENABLE REPLICA TRIGGER simsql_keep_own', relation);
END
$$;

DO $$
BEGIN
    PERFORM simsql._keep_own('simsql.registry', 'INSERT OR UPDATE OR DELETE'),
            simsql._keep_own('simsql.schema_version', 'INSERT OR UPDATE OR DELETE');
END
$$;


-- Fingerprints and sketches are unsigned in Python, and bigint with the same 64 bits here.

CREATE OR REPLACE FUNCTION simsql.fp(fingerprint numeric) RETURNS bigint
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
AS $$
BEGIN
    IF fingerprint < 0 OR fingerprint > 18446744073709551615 OR fingerprint <> trunc(fingerprint) THEN
        RAISE EXCEPTION 'simsql.fp: % is not an unsigned 64-bit fingerprint', fingerprint
            USING ERRCODE = 'numeric_value_out_of_range',
                  HINT = 'Pass a whole number from 0 to 18446744073709551615. A negative number is '
                         'already the bigint that the column holds: use it unchanged.';
    END IF;
    IF fingerprint > 9223372036854775807 THEN
        RETURN (fingerprint - 18446744073709551616)::bigint;
    END IF;
    RETURN fingerprint::bigint;
END
$$;

COMMENT ON FUNCTION simsql.fp(numeric) IS
    'convert an unsigned decimal fingerprint to the bigint with the same bits: '
    'simsql.fp(13835058055282163712)';

CREATE OR REPLACE FUNCTION simsql.hamming_distance(a bigint, b bigint) RETURNS integer
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN bit_count((a # b)::bit(64))::integer;

COMMENT ON FUNCTION simsql.hamming_distance(bigint, bigint) IS
    'number of bits in which two fingerprints differ, from 0 to 64';

-- One expression, which PostgreSQL puts into the statement in place of the call. It would not do so for a
-- STRICT function with greatest(), which ignores nulls; float8larger returns null for null.
CREATE OR REPLACE FUNCTION simsql.similarity(a bigint, b bigint) RETURNS double precision
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN float8larger(0, 1 - bit_count((a # b)::bit(64)) / 32::double precision);

COMMENT ON FUNCTION simsql.similarity(bigint, bigint) IS
    'estimate the similarity of two texts from their sketches, from 0 to 1';


-- Templates of SQL: statements and functions that are made from the names and the design of an index.
--
-- A template is the SQL that it makes, in dollar quotes. A placeholder stands for a part, and says by its
-- quotes how the part is quoted, as in SQL itself:
--   {"column"}  a name
--   {'mask'}    a literal, of any type: an array has to be given as text
--   {rows}      SQL as it is; nothing for null
-- Braces around anything else stay: '{}', '{0}'. A part that contains a placeholder is not a template.
--
-- A part of `own` that the template does not use is an error. `shared` has parts for many templates.
CREATE OR REPLACE FUNCTION simsql._render(template text, own jsonb, shared jsonb DEFAULT '{}') RETURNS text
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
AS $$
DECLARE
    placeholder constant text := '^([a-z][a-z0-9_]*|"[a-z][a-z0-9_]*"|''[a-z][a-z0-9_]*'')$';
    parts constant jsonb := shared || own;
    rendered text;
    piece text;
    found text;
    name text;
    value text;
    used text[] := '{}';
BEGIN
    -- One pass: a table may be called "a{column}b". Each piece but the first comes after an opening brace.
    FOREACH piece IN ARRAY string_to_array(template, '{') LOOP
        found := split_part(piece, '}', 1);
        IF rendered IS NULL OR found = piece OR found !~ placeholder THEN
            rendered := coalesce(rendered || '{', '') || piece;
            CONTINUE;
        END IF;
        name := trim('"''' FROM found);
        value := parts ->> name;
        IF parts -> name IS NULL OR jsonb_typeof(parts -> name) IN ('array', 'object')
           OR value IS NULL AND found LIKE '"%'
        THEN
            RAISE EXCEPTION 'simsql: the placeholder {%} stands for %',
                            found, coalesce(parts -> name, '"nothing"')
                USING ERRCODE = 'internal_error',
                      HINT = 'Give it a text, a number or a boolean: an array::text.';
        END IF;
        used := used || name;
        rendered := rendered || CASE left(found, 1) WHEN '"' THEN quote_ident(value)
                                                    WHEN '''' THEN quote_nullable(value)
                                                    ELSE coalesce(value, '') END
                    || substr(piece, length(found) + 2);
    END LOOP;
    IF own - used <> '{}' THEN
        RAISE EXCEPTION 'simsql: the template does not use %',
                        (SELECT string_agg(k, ', ') FROM jsonb_object_keys(own - used) AS k)
            USING ERRCODE = 'internal_error', HINT = template;
    END IF;
    RETURN coalesce(rendered, '');
END
$$;


-- The layout of an index: blocks, permutations, radii and costs, as in simsql/hamming.
--
-- 64 bits are split into blocks. Block 0 holds the most significant bits, and larger blocks come first. A
-- permutation moves its lead blocks to the front, followed by the other bits, all in their original order.
-- With inner blocks, the remaining bits are split again, and one of these blocks joins the lead: the nested
-- design of Manku, Jain and Das Sarma. So the bits that lead identify a permutation. Permutations are
-- numbered from 0 in lexicographic order of their lead blocks, then of the inner block.

-- Splits bits, the most significant first, into this number of blocks, and returns the mask of each.
CREATE OR REPLACE FUNCTION simsql._block_masks(bits integer[], blocks integer) RETURNS bigint[]
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
AS $$
DECLARE
    size constant integer := cardinality(bits) / blocks;
    larger constant integer := cardinality(bits) % blocks;
    masks bigint[] := '{}';
    mask bigint;
    place integer := 1;
BEGIN
    FOR block IN 1 .. blocks LOOP
        mask := 0;
        FOR step IN 1 .. size + (block <= larger)::integer LOOP
            mask := mask | (1::bigint << bits[place]);
            place := place + 1;
        END LOOP;
        masks := masks || mask;
    END LOOP;
    RETURN masks;
END
$$;

-- As a loop: a query of this size takes longer to start than to run, and most statements about an index need
-- it.
CREATE OR REPLACE FUNCTION simsql._permutations(blocks integer, lead integer, inner_blocks integer)
RETURNS TABLE (number integer, lead_mask bigint, prefix integer)
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
AS $$
DECLARE
    masks constant bigint[] := simsql._block_masks(ARRAY(SELECT generate_series(63, 0, -1)), blocks);
    chosen integer[] := ARRAY(SELECT generate_series(1, lead));
    place integer;
    outer_mask bigint;
    inner_mask bigint;
BEGIN
    number := 0;
    LOOP
        outer_mask := 0;
        FOREACH place IN ARRAY chosen LOOP
            outer_mask := outer_mask | masks[place];
        END LOOP;
        FOREACH inner_mask IN ARRAY CASE inner_blocks WHEN 0 THEN '{0}' ELSE simsql._block_masks(
            ARRAY(SELECT b FROM generate_series(63, 0, -1) AS b WHERE (outer_mask >> b) & 1 = 0),
            inner_blocks) END
        LOOP
            lead_mask := outer_mask | inner_mask;
            prefix := bit_count(lead_mask::bit(64));
            RETURN NEXT;
            number := number + 1;
        END LOOP;
        -- Move on the last lead block that can move, and put the ones after it right behind it.
        place := lead;
        WHILE place > 0 AND chosen[place] = blocks - lead + place LOOP
            place := place - 1;
        END LOOP;
        EXIT WHEN place = 0;
        chosen := chosen[:place - 1]
                  || ARRAY(SELECT generate_series(chosen[place] + 1, chosen[place] + 1 + lead - place));
    END LOOP;
END
$$;

-- The SQL expression that permutes a fingerprint into a key, or a key `back` into its fingerprint. Bits that
-- move together are one term: shifted, to the left if the shift is positive, and then selected where they
-- arrive.
CREATE OR REPLACE FUNCTION simsql._permute(operand text, lead_mask bigint, back boolean DEFAULT false)
RETURNS text
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$
    SELECT '(' || string_agg(
               CASE WHEN m.mask = -1 THEN operand
                    WHEN m.shift = 0 THEN format('(%s & %L::bigint)', operand, m.mask)
                    WHEN m.shift > 0 THEN format('((%s << %s) & %L::bigint)', operand, m.shift, m.mask)
                    ELSE format('((%s >> %s) & %L::bigint)', operand, -m.shift, m.mask)
               END, ' | ' ORDER BY m.shift) || ')'
      FROM (SELECT (d.target - d.source)::integer AS shift, bit_or(1::bigint << d.target::integer) AS mask
              FROM (SELECT bit, 64 - row_number() OVER (ORDER BY (lead_mask >> bit) & 1 DESC, bit DESC)
                      FROM generate_series(0, 63) AS bit) AS p (bit, place)
             CROSS JOIN LATERAL (SELECT CASE WHEN back THEN p.place ELSE p.bit END AS source,
                                        CASE WHEN back THEN p.bit ELSE p.place END AS target) AS d
             GROUP BY d.target - d.source) AS m
$$;

-- The number of permutations of a design.
CREATE OR REPLACE FUNCTION simsql._table_count(blocks integer, lead integer, inner_blocks integer)
RETURNS numeric
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$
    SELECT div(factorial(blocks), factorial(lead) * factorial(blocks - lead)) * greatest(inner_blocks, 1)
$$;

-- How many bits of its prefix a search at this distance has to flip in this permutation's table; -1 if the
-- table need not be read. With one lead block: if every block had more differing bits than this, there would
-- be more of them than the distance (Norouzi, Punjani, Fleet, section 3.1). Otherwise the radius is the same
-- for every table: an adversary spreads the differing bits evenly, and the search picks the blocks with the
-- fewest. PostgreSQL inlines it: searches compute it from their distance.
CREATE OR REPLACE FUNCTION simsql._radius(
    blocks integer, lead integer, inner_blocks integer, number integer, distance integer)
RETURNS integer
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN lead = 1 AND inner_blocks = 0 THEN (distance - number + blocks) / blocks - 1
            WHEN inner_blocks = 0
            THEN lead * (distance / blocks) + greatest(0, lead - (blocks - distance % blocks))
            -- The same, and an inner block's share of the other differing bits.
            ELSE (distance + (inner_blocks - 1) * (lead * (distance / blocks)
                                                   + greatest(0, lead - (blocks - distance % blocks))))
                 / inner_blocks
       END;

-- All ways to flip up to `radius` of these bits; none for a negative radius.
CREATE OR REPLACE FUNCTION simsql._flips(bits bigint, radius integer) RETURNS bigint[]
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
AS $$
DECLARE
    single constant bigint[] := ARRAY(
        SELECT 1::bigint << b FROM generate_series(0, 63) AS b WHERE (bits >> b) & 1 = 1 ORDER BY b);
    level bigint[] := '{0}';
    lowest integer[] := ARRAY[cardinality(single) + 1];
    flips bigint[] := '{0}';
BEGIN
    IF radius < 0 THEN
        RETURN '{}';
    END IF;
    FOR flipped IN 1 .. least(radius, cardinality(single)) LOOP
        -- Each flip once: add only bits below the lowest one that is already flipped.
        SELECT array_agg(f.flip | b.bit), array_agg(b.place) INTO level, lowest
          FROM unnest(level, lowest) AS f (flip, lowest)
          JOIN unnest(single) WITH ORDINALITY AS b (bit, place) ON b.place < f.lowest;
        flips := flips || level;
    END LOOP;
    RETURN flips;
END
$$;

-- The sum of the binomial coefficients (prefix choose i) for i up to the radius; 0 for a negative radius.
CREATE OR REPLACE FUNCTION simsql._ways(prefix integer, radius integer) RETURNS double precision
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
AS $$
DECLARE
    level double precision := 1;
    ways double precision := CASE WHEN radius < 0 THEN 0 ELSE 1 END;
BEGIN
    FOR flipped IN 1 .. least(radius, prefix) LOOP
        level := level * (prefix - flipped + 1) / flipped;
        ways := ways + level;
    END LOOP;
    RETURN ways;
END
$$;

-- Costs in microseconds, as in simsql/hamming/design.py, which explains them.
CREATE OR REPLACE FUNCTION simsql._costs(
    OUT probe double precision, OUT candidate double precision, OUT scan_row double precision,
    OUT write_table double precision, OUT joined_candidate double precision)
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$ SELECT 1.1, 0.1, 0.06, 12.0, 0.2 $$;

-- For each distance, how many ranges a search scans, and the share of all keys that it expects in them, which
-- may exceed 1.
CREATE OR REPLACE FUNCTION simsql._searches(
    blocks integer, lead integer, inner_blocks integer, distances integer[])
RETURNS TABLE (distance integer, probes double precision, share double precision)
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$
    SELECT w.distance, sum(w.ways), sum(w.ways * 2::double precision ^ -w.prefix)
      FROM (SELECT d AS distance, p.prefix,
                   simsql._ways(p.prefix, simsql._radius(blocks, lead, inner_blocks, p.number, d)) AS ways
              FROM simsql._permutations(blocks, lead, inner_blocks) AS p
             CROSS JOIN unnest(distances) AS d
            OFFSET 0) AS w  -- so that it computes them once for both sums
     GROUP BY w.distance
$$;

-- The number of rows from which probing is expected to beat a sequential scan, for each distance from 0 to
-- the last at which it ever does: functions contain this array, and under array_nulls = off PostgreSQL reads
-- no nulls. `shares` are the measured shares of _searches, by distance; without them, fingerprints count as
-- random.
CREATE OR REPLACE FUNCTION simsql._scan_below(
    blocks integer, lead integer, inner_blocks integer, shares double precision[] DEFAULT NULL)
RETURNS bigint[]
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT array_agg(ceil(c.probe * s.probes / saved)::bigint ORDER BY s.distance)
               FILTER (WHERE saved > 0 AND c.probe * s.probes < 1e15 * saved)
      FROM simsql._searches(blocks, lead, inner_blocks, ARRAY(SELECT generate_series(0, 64))) AS s
     CROSS JOIN simsql._costs() AS c
     CROSS JOIN LATERAL (
           SELECT c.scan_row - c.candidate * coalesce(shares[s.distance + 1], s.share) AS saved) AS row
$$;

-- The design that simsql.plan recommends for this number of rows and this distance: the cheapest for one
-- search and one row written. Tables grow, so fewer than a million rows count as a million.
CREATE OR REPLACE FUNCTION simsql._design(rows bigint, distance integer, OUT blocks integer, OUT lead integer)
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE SET jit = off
AS $$
    SELECT m, c
      FROM generate_series(2, 20) AS m
     CROSS JOIN LATERAL generate_series(1, m - 1) AS c
     CROSS JOIN LATERAL simsql._table_count(m, c, 0) AS tables
     CROSS JOIN LATERAL simsql._searches(m, c, 0, ARRAY[_design.distance]) AS search
     CROSS JOIN simsql._costs() AS cost
     WHERE tables <= 20
     ORDER BY least(cost.probe * search.probes + cost.candidate * search.share * greatest(rows, 1000000),
                    cost.scan_row * greatest(rows, 1000000)) + cost.write_table * tables,
              tables, m, c
     LIMIT 1
$$;


-- Scopes: columns of the user's table, such as a tenant or a language, whose values restrict a search.
--
-- They lead the keys, as scope_1, scope_2 and so on. With names of its own, a key table does not have to
-- follow renamed columns. All keys of a scope stand side by side, in the order of keys, so a search reads
-- ranges of its own scope only. A row with a null in a scope column belongs to no scope and has no keys.

-- The base type of a domain, or the type itself.
CREATE OR REPLACE FUNCTION simsql._base_type(type regtype) RETURNS regtype
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    below oid;
BEGIN
    LOOP
        SELECT t.typbasetype INTO below FROM pg_type AS t WHERE t.oid = type AND t.typtype = 'd';
        EXIT WHEN NOT FOUND;
        type := below;
    END LOOP;
    RETURN type;
END
$$;

-- The types by which the values of these columns are compared: for a domain, its base type. Length and
-- precision are left out, since a cast to them would change values that do not fit. Null for a column that
-- does not exist.
CREATE OR REPLACE FUNCTION simsql._scope_types(table_id regclass, scope text[]) RETURNS regtype[]
LANGUAGE sql STABLE
AS $$
    SELECT ARRAY(SELECT simsql._base_type(a.atttypid)
                   FROM unnest(scope) WITH ORDINALITY AS s (name, number)
                   LEFT JOIN pg_attribute AS a
                     ON a.attrelid = table_id AND a.attname = s.name AND a.attnum > 0 AND NOT a.attisdropped
                  ORDER BY s.number)
$$;

-- Whether columns of a type can be in a scope. Its equality has to be what `=` means under the search_path of
-- simsql's functions. It also has to be leakproof: otherwise it cannot be an index condition under row-level
-- security, which is active on key tables.
CREATE OR REPLACE FUNCTION simsql._fits_scope(type oid) RETURNS boolean
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM pg_opclass AS o
          JOIN pg_am AS m ON m.oid = o.opcmethod AND m.amname = 'btree'
          JOIN pg_amop AS a ON a.amopfamily = o.opcfamily AND a.amopstrategy = 3
                           AND a.amoplefttype = o.opcintype AND a.amoprighttype = o.opcintype
          JOIN pg_operator AS e ON e.oid = a.amopopr
          JOIN pg_proc AS f ON f.oid = e.oprcode
         WHERE o.opcdefault AND o.opcnamespace = 'pg_catalog'::regnamespace AND f.proleakproof
           AND o.opcintype = CASE WHEN type = 'varchar'::regtype THEN 'text'::regtype ELSE type END
           -- A claim hashes its scope.
           AND EXISTS (SELECT FROM pg_opclass AS h
                         JOIN pg_am AS m ON m.oid = h.opcmethod AND m.amname = 'hash'
                        WHERE h.opcdefault AND h.opcintype = o.opcintype));
END
$$;

-- Raises an error unless these columns can be a scope.
CREATE OR REPLACE FUNCTION simsql._check_scope_columns(
    table_id regclass, column_name text, scope text[], caller text)
RETURNS void
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    scope_column text;
    attribute pg_attribute;
BEGIN
    IF cardinality(scope) > 4 THEN
        RAISE EXCEPTION 'simsql.%: a scope has at most 4 columns, not %', caller, cardinality(scope)
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Name 1 to 4 columns.';
    ELSIF array_ndims(scope) > 1 OR cardinality(scope) <> (SELECT count(DISTINCT c) FROM unnest(scope) AS c)
          OR column_name = ANY (scope)
    THEN
        RAISE EXCEPTION 'simsql.%: %(%) cannot have the scope %', caller, table_id, quote_ident(column_name),
                        scope
            USING ERRCODE = 'invalid_parameter_value',
                  HINT = 'Name each column once, and leave out the fingerprint column.';
    END IF;
    FOREACH scope_column IN ARRAY coalesce(scope, '{}') LOOP
        SELECT a.* INTO attribute FROM pg_attribute AS a
         WHERE a.attrelid = table_id AND a.attname = scope_column AND a.attnum > 0 AND NOT a.attisdropped;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'simsql.%: % has no column %', caller, table_id, quote_ident(scope_column)
                USING ERRCODE = 'undefined_column',
                      HINT = 'Name scope columns as they are in the table, without quotes.';
        ELSIF attribute.attgenerated = 'v' THEN
            RAISE EXCEPTION 'simsql.%: column % of % is a virtual generated column', caller,
                            quote_ident(scope_column), table_id
                USING ERRCODE = 'feature_not_supported', HINT = 'Make it a stored column: it needs a B-tree.';
        END IF;
        IF NOT simsql._fits_scope(simsql._base_type(attribute.atttypid)) THEN
            RAISE EXCEPTION 'simsql.%: column % of % is %, which cannot be in a scope', caller,
                            quote_ident(scope_column), table_id,
                            format_type(attribute.atttypid, attribute.atttypmod)
                USING ERRCODE = 'datatype_mismatch',
                      HINT = 'Use a column of type integer, text, uuid, date, timestamp or boolean.';
        END IF;
    END LOOP;
END
$$;

-- The scope columns of an index: their names in its key tables and in the user's table, and the types by
-- which their values are compared.
CREATE OR REPLACE FUNCTION simsql._scope_columns(index simsql.registry)
RETURNS TABLE (number integer, name text, column_name text, type text)
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN QUERY
    SELECT s.number::integer, 'scope_' || s.number, s.column_name, format_type(s.type, -1)
      FROM unnest(index.scope_columns, index.scope_types) WITH ORDINALITY AS s (column_name, type, number);
END
$$;

-- Repeats a pattern for each scope column; the result is empty for an index without a scope. In the pattern,
-- %1$s is the name in the key tables, %2$I the name in the user's table, and %3$s the value in `scope`.
-- `variables` replaces these values by SQL expressions.
CREATE OR REPLACE FUNCTION simsql._for_scope(
    index simsql.registry, pattern text, scope jsonb DEFAULT NULL, variables jsonb DEFAULT '{}')
RETURNS text
LANGUAGE sql STABLE
AS $$
    SELECT coalesce(string_agg(
               format(pattern, s.name, s.column_name,
                      coalesce(variables ->> s.name, format('%L::%s', scope ->> s.column_name, s.type))),
               '' ORDER BY s.number), '')
      FROM simsql._scope_columns(index) AS s
$$;

-- The current name of a table, whatever the snapshot, as in the registry; null if there is no such table.
CREATE OR REPLACE FUNCTION simsql._full_name(table_id oid) RETURNS text
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    names constant text[] := (pg_identify_object_as_address('pg_class'::regclass, table_id, 0)).object_names;
BEGIN
    RETURN quote_ident(names[1]) || '.' || quote_ident(names[2]);
END
$$;

-- The columns of a key table.
CREATE OR REPLACE FUNCTION simsql._key_columns(index simsql.registry) RETURNS text[]
LANGUAGE sql STABLE
AS $$ SELECT ARRAY(SELECT s.name FROM simsql._scope_columns(index) AS s ORDER BY s.number) || 'key'::text $$;

-- The columns of the user's table that need a B-tree.
CREATE OR REPLACE FUNCTION simsql._btree_columns(index simsql.registry) RETURNS text[]
LANGUAGE sql STABLE
AS $$ SELECT index.scope_columns || index.column_name $$;

-- Quoted names, separated by commas.
CREATE OR REPLACE FUNCTION simsql._name_list(names text[]) RETURNS text
LANGUAGE sql STABLE
AS $$
    SELECT string_agg(quote_ident(n.name), ', ' ORDER BY n.number)
      FROM unnest(names) WITH ORDINALITY AS n (name, number)
$$;

-- The condition that a row comes after the last row of a batch, in the order of the scope and then of the
-- last column. `scope` and `value` are the values of that row, as text and as an expression. `pattern` names
-- the scope columns, as in _for_scope. Null before the first batch.
CREATE OR REPLACE FUNCTION simsql._from_place(
    index simsql.registry, scope text[], pattern text, last_column text, operator text, value text)
RETURNS text
LANGUAGE sql STABLE
AS $$
    SELECT CASE WHEN scope IS NOT NULL OR index.scope_columns = '{}'
                THEN '(' || simsql._for_scope(index, pattern || ', ') || last_column || ') ' || operator
                     || ' (' || simsql._for_scope(index, '%3$s, ', jsonb_object(index.scope_columns, scope))
                     || value || ')' END
$$;


-- Keeps a table's owner from running code as a role that searches or maintains its index.
--
-- The checks of a function read the catalogue by the OID of a table, and as of their snapshot. The statement
-- that reads the table names it, and is parsed later: by then the name may belong to a view, and the column
-- may have a type with a cast of its owner's to bigint. PostgreSQL would call the view's functions, or the
-- cast, with the caller's privileges. So such a statement carries a condition that is always true, and that
-- PostgreSQL refuses to parse in these cases: TABLESAMPLE takes no view, and a UNION no types of different
-- categories. Only superusers create types of a given category.

-- The condition. Without types, as before an index exists, nothing may compare the scope's columns by
-- operators. It is a WITH query that nothing refers to: PostgreSQL and Citus parse it, but neither plans nor
-- runs it.
CREATE OR REPLACE FUNCTION simsql._guard(
    table_name text, column_name text, scope text[] DEFAULT '{}', types text[] DEFAULT '{}')
RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT format('(WITH guard AS (SELECT g.%I%s FROM ONLY %s AS g ', column_name,
                  string_agg(', g.' || quote_ident(s.name), '' ORDER BY s.number), table_name)
           || 'TABLESAMPLE pg_catalog.system (0) UNION ALL SELECT NULL::pg_catalog.int8'
           || coalesce(string_agg(', NULL::' || s.type, '' ORDER BY s.number), '') || ') SELECT true)'
      FROM unnest(scope, types) WITH ORDINALITY AS s (name, type, number)
     WHERE s.type IS NOT NULL
$$;

CREATE OR REPLACE FUNCTION simsql._guard(index simsql.registry) RETURNS text
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN simsql._guard(index.table_name, index.column_name, index.scope_columns,
                         ARRAY(SELECT s.type FROM simsql._scope_columns(index) AS s ORDER BY s.number));
END
$$;

-- Raises an error if another session is creating, rebuilding or dropping an index concurrently, or detaching
-- a partition: on this table or one of its partitions. Such a session locks the table and waits for the
-- snapshots and locks of others. A function has a snapshot, so the two would deadlock if it waited for the
-- table.
CREATE OR REPLACE FUNCTION simsql._check_no_concurrent_change(table_id regclass, caller text) RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    busy regclass;
BEGIN
    WITH locks AS MATERIALIZED (
        SELECT l.pid, l.locktype, l.relation, l.mode, l.granted FROM pg_locks AS l
         WHERE l.pid <> pg_backend_pid()
           AND (l.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database())
                OR l.locktype = 'virtualxid'))
    SELECT l.relation::regclass INTO busy
      FROM locks AS l JOIN simsql._with_partitions(table_id) AS t ON t = l.relation
     WHERE l.granted AND l.mode = 'ShareUpdateExclusiveLock'
       AND (EXISTS (SELECT FROM pg_stat_progress_create_index AS p WHERE p.pid = l.pid)
            OR EXISTS (SELECT FROM locks AS w
                        WHERE w.pid = l.pid AND w.locktype = 'virtualxid' AND NOT w.granted))
     LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'simsql.%: another session is changing an index or a partition of % concurrently',
                        caller, busy
            USING ERRCODE = 'object_in_use', HINT = 'Try again when it has finished.';
    END IF;
END
$$;

-- Raises an error on a standby. It grants advisory locks, which mean nothing to those who write on the primary.
CREATE OR REPLACE FUNCTION simsql._check_primary(caller text) RETURNS void
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    IF pg_is_in_recovery() THEN
        RAISE EXCEPTION 'simsql.%: this server is a standby, which accepts no writes', caller
            USING ERRCODE = 'read_only_sql_transaction', HINT = 'Connect to the primary.';
    END IF;
END
$$;

-- Locks a table until the end of the transaction, and raises if its name has come to belong to another one
-- meanwhile. CREATE INDEX locks the partitions of a table one by one; here all are locked before anything
-- else is done.
CREATE OR REPLACE FUNCTION simsql._lock(table_id regclass, mode text, caller text) RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    name constant text := table_id::text;
BEGIN
    PERFORM simsql._check_primary(caller);
    PERFORM simsql._check_no_concurrent_change(table_id, caller);
    EXECUTE format('LOCK TABLE ONLY %s IN %s MODE', name, mode);
    IF to_regclass(name) IS DISTINCT FROM table_id THEN
        RAISE EXCEPTION 'simsql.%: table % was renamed while this statement waited for it', caller, name
            USING ERRCODE = 'undefined_table',
                  HINT = 'Run it again, and name the table that you mean.';
    END IF;
    IF mode <> 'SHARE UPDATE EXCLUSIVE'
       AND (SELECT c.relkind FROM pg_class AS c WHERE c.oid = table_id) = 'p'
    THEN
        PERFORM simsql._check_no_concurrent_change(table_id, caller);
        EXECUTE format('LOCK TABLE %s IN %s MODE', name, mode);
    END IF;
END
$$;


-- What create_index and build require of a table, its columns, the caller and the design.

-- Raises an error unless a search in this column and scope would be exact and the caller may create the
-- index.
CREATE OR REPLACE FUNCTION simsql._check_indexable(
    table_name regclass, column_name text, scope text[], storage text, caller text)
RETURNS void
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    class pg_class;
    attribute pg_attribute;
    reason text;
    hint text := 'Only ordinary and partitioned tables can be indexed.';
BEGIN
    SELECT c.* INTO class FROM pg_class AS c WHERE c.oid = table_name;
    reason := CASE
        WHEN class.relkind = 'f' THEN 'is a foreign table: rows written on the other server would be missed'
        WHEN class.relkind IN ('v', 'm') THEN 'is a view: index the table below it'
        WHEN class.relkind NOT IN ('r', 'p') THEN 'is not a table'
        WHEN class.relpersistence = 't' THEN 'is temporary: no other session could search it'
        WHEN class.relnamespace = 'simsql'::regnamespace THEN 'belongs to simsql itself'
    END;
    IF reason IS NULL THEN
        SELECT r.* INTO reason, hint FROM simsql._storage_refusal(storage, table_name, caller) AS r;
    END IF;
    IF reason IS NOT NULL THEN
        RAISE EXCEPTION 'simsql.%: % %', caller, table_name, reason
            USING ERRCODE = 'feature_not_supported', HINT = hint;
    END IF;
    SELECT a.* INTO attribute FROM pg_attribute AS a
     WHERE a.attrelid = table_name AND a.attname = column_name AND a.attnum > 0 AND NOT a.attisdropped;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'simsql.%: % has no column %', caller, table_name, quote_ident(column_name)
            USING ERRCODE = 'undefined_column',
                  HINT = format('Add it: ALTER TABLE %s ADD COLUMN %I bigint;', table_name, column_name);
    END IF;
    IF attribute.atttypid <> 'bigint'::regtype THEN
        RAISE EXCEPTION 'simsql.%: column % of % is %, not bigint', caller, quote_ident(column_name),
                        table_name, format_type(attribute.atttypid, attribute.atttypmod)
            USING ERRCODE = 'datatype_mismatch',
                  HINT = 'Store fingerprints as bigint: simsql.fp converts an unsigned decimal to the bigint '
                         'with the same 64 bits.';
    END IF;
    IF attribute.attgenerated = 'v' THEN
        RAISE EXCEPTION 'simsql.%: column % of % is a virtual generated column', caller,
                        quote_ident(column_name), table_name
            USING ERRCODE = 'feature_not_supported', HINT = 'Make it a stored column: it needs a B-tree.';
    END IF;
    PERFORM simsql._check_scope_columns(table_name, column_name, scope, caller);
    IF NOT pg_has_role(class.relowner, 'USAGE') THEN
        RAISE EXCEPTION 'simsql.%: must be owner of table %', caller, table_name
            USING ERRCODE = 'insufficient_privilege';
    END IF;
    IF NOT (has_schema_privilege('simsql', 'CREATE') AND has_table_privilege('simsql.registry', 'INSERT')
            AND has_table_privilege('simsql.registry', 'UPDATE')
            AND has_table_privilege('simsql.registry', 'DELETE'))
    THEN
        RAISE EXCEPTION 'simsql.%: role % may not create objects in schema simsql', caller, current_user
            USING ERRCODE = 'insufficient_privilege',
                  HINT = format('If you trust this role as much as the owner of the schema: '
                                'GRANT CREATE ON SCHEMA simsql TO %1$I; '
                                'GRANT INSERT, UPDATE, DELETE ON simsql.registry TO %1$I;', current_user);
    END IF;
    PERFORM simsql._check_sees_all(table_name, caller);
END
$$;

-- Raises an error unless this role sees all rows.
CREATE OR REPLACE FUNCTION simsql._check_sees_all(table_id regclass, caller text) RETURNS void
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    IF row_security_active(table_id) THEN
        RAISE EXCEPTION 'simsql.%: row-level security hides rows of % from %', caller, table_id, current_user
            USING ERRCODE = 'insufficient_privilege', HINT = 'Call it as a role that sees all rows.';
    END IF;
END
$$;

-- A snapshot that is older than a lock misses rows that were committed in between. In a read committed
-- transaction, every statement takes a new snapshot.
CREATE OR REPLACE FUNCTION simsql._check_read_committed(caller text) RETURNS void
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    PERFORM simsql._check_primary(caller);
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'simsql.%: the transaction must be read committed, not %', caller,
                        current_setting('transaction_isolation')
            USING ERRCODE = 'active_sql_transaction',
                  HINT = 'Start it with BEGIN ISOLATION LEVEL READ COMMITTED.';
    END IF;
END
$$;

-- The B-trees on these columns, in this order, that cover all rows. Only a valid one can be used.
CREATE OR REPLACE FUNCTION simsql._btrees(table_id regclass, column_names text[])
RETURNS TABLE (index regclass, valid boolean)
LANGUAGE sql STABLE
AS $$
    SELECT i.indexrelid::regclass, i.indisvalid
      FROM pg_index AS i
      JOIN pg_class AS c ON c.oid = i.indexrelid
      JOIN pg_am AS m ON m.oid = c.relam
     WHERE i.indrelid = table_id AND m.amname = 'btree' AND i.indpred IS NULL
       AND i.indnkeyatts >= cardinality(column_names)
       AND column_names = ARRAY(
           SELECT a.attname::text
             FROM unnest(i.indkey, i.indcollation) WITH ORDINALITY AS k (attnum, collation_id, place)
             JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
                                   AND a.attcollation = k.collation_id
            WHERE k.place <= cardinality(column_names)
            ORDER BY k.place)
$$;

CREATE OR REPLACE FUNCTION simsql._check_btree(table_id regclass, column_names text[], caller text)
RETURNS void
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM simsql._btrees(table_id, column_names) AS b WHERE b.valid) THEN
        RAISE EXCEPTION 'simsql.%: % of % no B-tree', caller,
                        CASE cardinality(column_names) WHEN 1 THEN 'column ' ELSE 'columns ' END
                        || simsql._name_list(column_names),
                        table_id::text || CASE cardinality(column_names) WHEN 1 THEN ' has' ELSE ' have' END
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = coalesce(
                      (SELECT format('An attempt to create it failed: REINDEX INDEX CONCURRENTLY %s;',
                                     b.index)
                         FROM simsql._btrees(table_id, column_names) AS b LIMIT 1),
                      format('CREATE INDEX CONCURRENTLY ON %s (%s);', table_id,
                             simsql._name_list(column_names)));
    END IF;
END
$$;

-- Raises an error unless an index can be created with these arguments. Without blocks, create_index and build
-- choose a design.
CREATE OR REPLACE FUNCTION simsql._check_new(
    table_name regclass, column_name text, distance integer, blocks integer, lead integer,
    inner_blocks integer, scope text[], storage text, caller text)
RETURNS void
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    front constant integer := coalesce(lead, 1);
    inner_count constant integer := coalesce(inner_blocks, 0);
    tables numeric;
BEGIN
    IF table_name IS NULL OR column_name IS NULL OR simsql._distance(distance, NULL) IS NULL THEN
        RAISE EXCEPTION 'simsql.%: the table, the column and the distance must not be null', caller
            USING ERRCODE = 'null_value_not_allowed',
                  HINT = format('For example: %s simsql.%s(''article'', ''fingerprint'', distance => 3);',
                                CASE caller WHEN 'build' THEN 'CALL' ELSE 'SELECT' END, caller);
    ELSIF blocks IS NULL AND (lead IS NOT NULL OR inner_blocks IS NOT NULL) THEN
        RAISE EXCEPTION 'simsql.%: lead and inner_blocks need blocks', caller
            USING ERRCODE = 'invalid_parameter_value',
                  HINT = 'Set blocks too, or leave out all three: the design is then chosen by the number of '
                         'rows.';
    ELSIF NOT blocks BETWEEN 2 AND 64 THEN
        RAISE EXCEPTION 'simsql.%: blocks must be between 2 and 64, not %', caller, blocks
            USING ERRCODE = 'invalid_parameter_value';
    ELSIF NOT front BETWEEN 1 AND blocks - 1 THEN
        RAISE EXCEPTION 'simsql.%: lead must be between 1 and %, not %', caller, blocks - 1, front
            USING ERRCODE = 'invalid_parameter_value';
    -- The first blocks are the largest. If they lead, the fewest bits are left.
    ELSIF inner_count <> 0
          AND NOT inner_count BETWEEN 2 AND 64 - front * (64 / blocks) - least(front, 64 % blocks)
    THEN
        RAISE EXCEPTION 'simsql.%: inner_blocks cannot be % with % of % blocks in the lead', caller,
                        inner_count, front, blocks
            USING ERRCODE = 'invalid_parameter_value',
                  HINT = 'Use 0 for none, or a number from 2 to the number of bits that do not lead.';
    END IF;
    tables := simsql._table_count(blocks, front, inner_count);
    IF tables > 128 THEN
        RAISE EXCEPTION 'simsql.%: % blocks with % in the lead and % inner blocks need % tables', caller,
                        blocks, front, inner_count, tables
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Use a design with at most 128 tables.';
    END IF;
    PERFORM simsql._check_read_committed(caller);
    PERFORM simsql._check_indexable(table_name, column_name, scope,
                                    simsql._storage(table_name, storage, caller), caller);
END
$$;


-- Tables that Citus manages: distributed, reference and local ones in its metadata. They exist on this node
-- and hold no rows here; their rows are in shards. The storage of their indexes is `expression`: Citus
-- creates each B-tree on every shard.
--
-- Indexes exist on the coordinator alone, and so do the locks of simsql.claim. A statement that reads such a
-- table consists of built-in functions, because Citus sends it to the shards. It has its own plan for each
-- call, because Citus accepts no parameters in a plan that is used again.

-- Whether Citus manages a table. The catalogue pg_dist_partition exists only in a database with Citus, and
-- PL/pgSQL does not look at the second statement before it runs.
CREATE OR REPLACE FUNCTION simsql._is_distributed(table_id oid) RETURNS boolean
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    IF to_regclass('pg_catalog.pg_dist_partition') IS NULL THEN
        RETURN false;
    END IF;
    RETURN EXISTS (SELECT FROM pg_catalog.pg_dist_partition AS d WHERE d.logicalrelid = table_id);
END
$$;

-- Any table that can be indexed, but on the coordinator of Citus alone.
CREATE OR REPLACE FUNCTION simsql._expression_refusal(
    table_name regclass, caller text, OUT reason text, OUT hint text)
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    IF NOT simsql._is_distributed(table_name) THEN
        RETURN;
    ELSIF (SELECT g.groupid FROM pg_catalog.pg_dist_local_group AS g) <> 0 THEN
        PERFORM simsql._refuse_worker(caller);
    END IF;
END
$$;

-- Citus creates most functions of simsql on the workers too, for queries that use them on shards, but no
-- table of simsql. It sends a query that reads one shard to its worker as a whole, with the searches in it.
CREATE OR REPLACE FUNCTION simsql._refuse_worker(caller text) RETURNS void
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RAISE EXCEPTION 'simsql.%: this is a worker node of Citus, which has no simhash indexes', caller
        USING ERRCODE = 'feature_not_supported',
              HINT = 'Connect to the coordinator. If you have, Citus sent it your whole query, which reads '
                     'one shard: search in a subquery that also reads a local table, (SELECT n.* FROM simsql.'
                     || caller || '(...) AS n LEFT JOIN simsql.registry AS r ON r.id = 0).';
END
$$;

-- Returns true, or raises an error on a worker. Functions that workers have, too, call it before they read
-- the registry, and declare the row of the registry as record: its type does not exist there, so PL/pgSQL
-- could not compile them.
CREATE OR REPLACE FUNCTION simsql._is_coordinator(caller text) RETURNS boolean
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    IF to_regclass('simsql.registry') IS NULL THEN
        PERFORM simsql._refuse_worker(caller);
    END IF;
    RETURN true;
END
$$;

-- Whether a table was distributed after its index was created in the storage `expression`. Its rows are no
-- longer where the index looks for them.
CREATE OR REPLACE FUNCTION simsql._is_distributed_since(index simsql.registry) RETURNS boolean
LANGUAGE sql STABLE
AS $$
    SELECT simsql._is_distributed(index.table_id)
           AND NOT EXISTS (SELECT FROM pg_proc AS p
                            WHERE p.pronamespace = 'simsql'::regnamespace
                              AND p.proname = 'search_' || index.id
                              AND 'plan_cache_mode=force_custom_plan' = ANY (p.proconfig))
$$;

-- Runs a statement on this node alone.
CREATE OR REPLACE FUNCTION simsql._execute_here(statement text) RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    propagation constant text := current_setting('citus.enable_ddl_propagation', true);
BEGIN
    IF propagation IS NOT NULL THEN
        PERFORM set_config('citus.enable_ddl_propagation', 'off', true);
    END IF;
    EXECUTE statement;
    IF propagation IS NOT NULL THEN
        PERFORM set_config('citus.enable_ddl_propagation', propagation, true);
    END IF;
END
$$;

-- Reports the B-trees that a shard lacks or has left invalid although they exist here: those of the
-- permutations, and the plain one, which has no number. Citus asks the nodes in other transactions. So the
-- statement locks no shard, which this transaction may have locked, and B-trees that this transaction has
-- created are left out.
CREATE OR REPLACE FUNCTION simsql._verify_shards(index simsql.registry)
RETURNS TABLE (number integer, problem text, object text)
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    expected text;
    answer record;
BEGIN
    IF NOT simsql._is_distributed(index.table_id) THEN
        RETURN;
    END IF;
    SELECT string_agg(format('(%L::integer, %L, %L::name[])', b.number, b.name, b.columns), ', ')
      INTO expected
      FROM (SELECT e.number, e.name, NULL AS columns,
                   ARRAY[simsql._index_named(index.table_id, e.name)] AS here
              FROM simsql._expected_btrees(index) AS e
             UNION ALL
            SELECT NULL, format('(%s)', simsql._name_list(p.columns)), p.columns,
                   ARRAY(SELECT f.index FROM simsql._btrees(index.table_id, p.columns) AS f WHERE f.valid)
              FROM (SELECT simsql._btree_columns(index) AS columns) AS p) AS b
     WHERE EXISTS (SELECT FROM pg_class AS c WHERE c.oid = ANY (b.here))
       AND NOT EXISTS (SELECT FROM pg_class AS c WHERE c.oid = ANY (b.here) AND age(c.xmin) <= 0);
    IF expected IS NULL THEN
        RETURN;
    END IF;
    FOR answer IN
        SELECT r.nodename, r.nodeport, r.shardid, r.success, r.result
          FROM pg_catalog.run_command_on_placements(index.table_id, simsql._render($sql$
            WITH RECURSIVE shard (table_id) AS (
                SELECT to_regclass({'schema'} || %1$L)::oid
                 UNION ALL
                SELECT p.inhrelid FROM shard JOIN pg_inherits AS p ON p.inhparent = shard.table_id
            ), expected (number, name, columns) AS (VALUES {expected}
            ), btree (number, index_id) AS (
                SELECT e.number, c.oid
                  FROM expected AS e
                  JOIN pg_index AS i ON i.indrelid = to_regclass({'schema'} || %1$L)
                  JOIN pg_class AS t ON t.oid = i.indrelid
                  JOIN pg_class AS c ON c.oid = i.indexrelid
                                    AND c.relname = e.name || substring(t.relname FROM '_[0-9]+$')
                 UNION ALL
                SELECT b.number, p.inhrelid FROM btree AS b JOIN pg_inherits AS p ON p.inhparent = b.index_id
            )
            SELECT coalesce(json_agg(json_build_array(e.number, e.name, s.table_id::regclass, found.valid)
                                     ORDER BY e.number, s.table_id::regclass::text), '[]')
              FROM shard AS s
              JOIN pg_class AS t ON t.oid = s.table_id AND t.relkind IN ('r', 'p')
             CROSS JOIN expected AS e
             CROSS JOIN LATERAL (
                   SELECT bool_or(i.indisvalid) AS valid
                     FROM pg_index AS i
                    WHERE i.indrelid = s.table_id
                      AND CASE WHEN e.number IS NOT NULL
                          THEN i.indexrelid IN (SELECT b.index_id FROM btree AS b WHERE b.number = e.number)
                          ELSE i.indpred IS NULL AND e.columns = ARRAY(
                               SELECT a.attname
                                 FROM unnest(i.indkey) WITH ORDINALITY AS k (attnum, place)
                                 JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
                                WHERE k.place <= cardinality(e.columns)
                                ORDER BY k.place) END) AS found
             WHERE found.valid IS NOT TRUE$sql$,
            jsonb_build_object(
                -- The names that Citus puts in for %1$L lack this schema.
                'schema', (SELECT CASE n.nspname WHEN 'public' THEN 'public.' ELSE '' END
                             FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
                            WHERE c.oid = index.table_id),
                'expected', replace(expected, '%', '%%')))) AS r
         ORDER BY r.shardid, r.nodename, r.nodeport
    LOOP
        IF NOT answer.success THEN
            RAISE EXCEPTION 'simsql: cannot verify shard % of % on %:%: %', answer.shardid, index.table_id,
                            answer.nodename, answer.nodeport, answer.result
                USING ERRCODE = 'connection_failure', HINT = 'Try again when the node can be reached.';
        END IF;
        RETURN QUERY
        SELECT (f ->> 0)::integer,
               CASE WHEN f ->> 0 IS NOT NULL THEN 'search ' ELSE '' END
               || CASE WHEN f ->> 3 IS NULL THEN 'B-tree missing on a shard'
                       ELSE 'B-tree invalid on a shard' END,
               format('%s of %s on ', f ->> 1, f ->> 2) || format('%s:%s', answer.nodename, answer.nodeport)
          FROM json_array_elements(answer.result::json) AS f;
    END LOOP;
END
$$;


-- The storage `expression`: instead of key tables and triggers, one B-tree per permutation on the user's
-- table.
--
-- Such a B-tree holds the scope columns, the lead bits of the fingerprint where they stand, and the
-- fingerprint, so a search reads nothing else. PostgreSQL maintains it for every writer, and creates it on
-- every partition that is added or attached. So no search misses a row: without a B-tree, it is only slow.

-- The B-trees that an index should have: their names, in the schema of the table, and their columns, as
-- pg_get_indexdef shows them.
CREATE OR REPLACE FUNCTION simsql._expected_btrees(index simsql.registry)
RETURNS TABLE (number integer, name text, columns text[])
LANGUAGE sql STABLE
AS $$
    SELECT p.number, format('simsql_%s_%s', index.id, p.number),
           ARRAY(SELECT quote_ident(s.name)
                   FROM unnest(index.scope_columns) WITH ORDINALITY AS s (name, place) ORDER BY s.place)
           || format('((%I & %L::bigint))', index.column_name, p.lead_mask) || quote_ident(index.column_name)
      FROM simsql._permutations(index.blocks, index.lead, index.inner_blocks) AS p
     WHERE index.storage = 'expression'
$$;

CREATE OR REPLACE FUNCTION simsql._index_named(table_id regclass, name text) RETURNS regclass
LANGUAGE sql STABLE
AS $$
    SELECT i.indexrelid::regclass
      FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid
     WHERE i.indrelid = table_id AND c.relname = name
$$;

-- Whether an index, valid or not, is a B-tree on these columns and covers all rows.
CREATE OR REPLACE FUNCTION simsql._is_btree_on(btree regclass, columns text[]) RETURNS boolean
LANGUAGE sql STABLE
AS $$
    SELECT m.amname = 'btree' AND i.indpred IS NULL
           AND columns = ARRAY(SELECT pg_get_indexdef(i.indexrelid, place, false)
                                 FROM generate_series(1, i.indnkeyatts) AS place
                                ORDER BY place)
           AND NOT EXISTS (
               SELECT FROM unnest(i.indkey, i.indcollation, i.indclass) AS k (attnum, collation_id, class_id)
                 JOIN pg_opclass AS o ON o.oid = k.class_id
                 LEFT JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
                WHERE NOT o.opcdefault OR k.collation_id <> a.attcollation)
      FROM pg_index AS i
      JOIN pg_class AS c ON c.oid = i.indexrelid
      JOIN pg_am AS m ON m.oid = c.relam
     WHERE i.indexrelid = btree
$$;

-- A table or index, and everything below it if it is partitioned. pg_partition_tree would lock all
-- partitions.
CREATE OR REPLACE FUNCTION simsql._with_partitions(root regclass) RETURNS SETOF regclass
LANGUAGE sql STABLE
AS $$
    WITH RECURSIVE tree (relid) AS (
        SELECT root::oid WHERE root IS NOT NULL
         UNION ALL
        SELECT i.inhrelid
          FROM tree
          JOIN pg_class AS c ON c.oid = tree.relid AND c.relkind IN ('p', 'I')
          JOIN pg_inherits AS i ON i.inhparent = tree.relid AND NOT i.inhdetachpending)
    SELECT relid::regclass FROM tree
$$;

-- Reports the B-trees that differ from what create_index made. That of a partitioned table is invalid until
-- each partition has one. A foreign table has none. Those of shards include the plain B-tree, which has no
-- number.
CREATE OR REPLACE FUNCTION simsql._verify_btrees(index simsql.registry, on_shards boolean DEFAULT true)
RETURNS TABLE (number integer, problem text, object text)
LANGUAGE plpgsql STABLE
AS $$
#variable_conflict use_column
DECLARE
    expected record;
    btree regclass;
BEGIN
    FOR expected IN SELECT * FROM simsql._expected_btrees(index) AS e ORDER BY e.number LOOP
        btree := simsql._index_named(index.table_id, expected.name);
        IF btree IS NULL OR NOT simsql._is_btree_on(btree, expected.columns) THEN
            RETURN QUERY
            SELECT expected.number,
                   CASE WHEN btree IS NULL THEN 'search B-tree missing' ELSE 'search B-tree altered' END,
                   coalesce(btree::text, expected.name);
            CONTINUE;
        END IF;
        RETURN QUERY
        SELECT expected.number, 'search B-tree invalid', b::text
          FROM simsql._with_partitions(btree) AS b JOIN pg_index AS i ON i.indexrelid = b
         WHERE NOT i.indisvalid
         UNION ALL
        SELECT expected.number, 'partition without search B-tree', t::text
          FROM simsql._with_partitions(index.table_id) AS t JOIN pg_class AS c ON c.oid = t
         WHERE c.relkind IN ('r', 'p')
           AND NOT EXISTS (SELECT FROM simsql._with_partitions(btree) AS b
                             JOIN pg_index AS i ON i.indexrelid = b
                            WHERE i.indrelid = t);
    END LOOP;
    IF on_shards THEN
        RETURN QUERY SELECT * FROM simsql._verify_shards(index);
    END IF;
END
$$;

-- Clients run the statement with their own search path, where another operator & may come first.
CREATE OR REPLACE FUNCTION simsql._create_btree(
    table_name text, name text, columns text[], online boolean DEFAULT false)
RETURNS text
LANGUAGE sql IMMUTABLE
AS $$
    SELECT concat_ws(' ', 'CREATE INDEX', CASE WHEN online THEN 'CONCURRENTLY' END, name, 'ON', table_name,
                     '(' || string_agg(regexp_replace(c.definition, ' & (''-?\d+''::bigint\)\))$',
                                                      ' OPERATOR(pg_catalog.&) \1'),
                                       ', ' ORDER BY c.place) || ')')
      FROM unnest(columns) WITH ORDINALITY AS c (definition, place)
$$;

-- The B-trees that are missing or differ from what they should be, and the indexes that have their names.
CREATE OR REPLACE FUNCTION simsql._faulty_btrees(index simsql.registry)
RETURNS TABLE (name text, columns text[], btree regclass)
LANGUAGE sql STABLE
AS $$
    SELECT e.name, e.columns, simsql._index_named(index.table_id, e.name)
      FROM simsql._expected_btrees(index) AS e
     WHERE e.number IN (SELECT v.number FROM simsql._verify_btrees(index) AS v)
     ORDER BY e.number
$$;

-- The invalid B-trees on partitions, such as those of a failed CREATE INDEX CONCURRENTLY, that CREATE INDEX
-- on the partitioned table would attach to its own, which would then be invalid too.
CREATE OR REPLACE FUNCTION simsql._leftover_btrees(table_id regclass, columns text[])
RETURNS TABLE (btree regclass, target regclass, kind "char")
LANGUAGE sql STABLE
AS $$
    SELECT i.indexrelid::regclass, t, c.relkind
      FROM simsql._with_partitions(table_id) AS t
      JOIN pg_index AS i ON i.indrelid = t AND NOT i.indisvalid AND NOT i.indisunique
       AND i.indnatts = i.indnkeyatts
      JOIN pg_class AS c ON c.oid = i.indexrelid AND NOT c.relispartition
     WHERE t <> table_id AND simsql._is_btree_on(i.indexrelid, columns)
$$;

-- Creates the B-trees of an index, and replaces those that differ from what they should be.
CREATE OR REPLACE FUNCTION simsql._create_btrees(index simsql.registry) RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    expected record;
    leftover regclass;
BEGIN
    FOR expected IN SELECT * FROM simsql._faulty_btrees(index) LOOP
        IF expected.btree IS NOT NULL THEN
            EXECUTE format('DROP INDEX IF EXISTS %s', expected.btree);  -- a shard may lack it
        END IF;
        FOR leftover IN SELECT l.btree FROM simsql._leftover_btrees(index.table_id, expected.columns) AS l
        LOOP
            EXECUTE format('DROP INDEX %s', leftover);
        END LOOP;
        EXECUTE simsql._create_btree(index.table_name, expected.name, expected.columns);
    END LOOP;
END
$$;

-- Creates the plain B-tree of an index, unless there is a valid one.
CREATE OR REPLACE FUNCTION simsql._create_plain_btree(index simsql.registry) RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    columns constant text[] := simsql._btree_columns(index);
    statement text;
BEGIN
    WHILE NOT EXISTS (SELECT FROM simsql._btrees(index.table_id, columns) AS b WHERE b.valid) LOOP
        statement := (simsql._validating_statement(index, online => false)).statement;
        EXECUTE coalesce(statement,
                         format('CREATE INDEX ON %s (%s)', index.table_name, simsql._name_list(columns)));
    END LOOP;
END
$$;

CREATE OR REPLACE FUNCTION simsql._expression_create(index simsql.registry, filled boolean) RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    IF filled THEN
        PERFORM simsql._create_btrees(index);
        PERFORM simsql._warn_of_locks(index.table_id, 'create_index');
    END IF;
END
$$;

-- PostgreSQL removes entries of B-trees itself.
CREATE OR REPLACE FUNCTION simsql._expression_vacuum(index simsql.registry, state simsql._vacuum_state)
RETURNS simsql._vacuum_state
LANGUAGE plpgsql
AS $$
BEGIN
    RAISE NOTICE 'simsql.vacuum: the index on %(%) has no keys to remove', index.table_id,
                 quote_ident(index.column_name);
    state.share := 1;
    state.removed := 0;
    state.finished := true;
    RETURN state;
END
$$;

CREATE OR REPLACE FUNCTION simsql._expression_keys(index simsql.registry) RETURNS double precision
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    keys double precision;
BEGIN
    IF simsql._is_distributed(index.table_id) THEN
        EXECUTE format('SELECT count(t.%I) FROM %s AS t WHERE %s', index.column_name, simsql._rows_of(index),
                       simsql._guard(index))
           INTO keys;
        RETURN keys;
    END IF;
    RETURN (SELECT sum(pg_relation_size(b))
              FROM simsql._index_named(index.table_id, format('simsql_%s_0', index.id)) AS root
             CROSS JOIN LATERAL simsql._with_partitions(root) AS b)
           / (36.0 + 8 * cardinality(index.scope_columns));
END
$$;

CREATE OR REPLACE FUNCTION simsql._expression_drop(index simsql.registry) RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    btree regclass;
BEGIN
    IF simsql._is_distributed(index.table_id) THEN
        -- Citus can drop the schema on the workers in the same transaction, but not after it has dropped
        -- B-trees of several shards at once.
        PERFORM set_config('citus.multi_shard_modify_mode', 'sequential', true);
    END IF;
    -- Those on partitions too, which an interrupted build has not attached, and those of an interrupted
    -- change of the storage. A constraint belongs to the table's owner, whatever its name.
    FOR btree IN
        SELECT i.indexrelid
          FROM simsql._with_partitions(index.table_id) AS t
          JOIN pg_index AS i ON i.indrelid = t
          JOIN pg_class AS c ON c.oid = i.indexrelid
         WHERE c.relname ~ format('^simsql_%s_\d+(_\d+)?$', index.id) AND NOT c.relispartition
           AND NOT EXISTS (SELECT FROM pg_constraint AS k WHERE k.conindid = i.indexrelid)
    LOOP
        EXECUTE format('DROP INDEX IF EXISTS %s', btree);  -- a shard may lack it
    END LOOP;
END
$$;


-- build for B-trees: creates them one by one, each on one table or partition.

-- The next statement that makes the plain B-tree of a partitioned table valid, and the table or partition
-- that it locks; null if there is none. CREATE INDEX attaches an invalid B-tree of a partition as it is, such
-- as that of a failed CREATE INDEX CONCURRENTLY, and then its own is invalid too. PostgreSQL checks again
-- whether it is valid at every ATTACH PARTITION, even of a B-tree that is attached already. It never is if a
-- partition is a foreign table or has no such B-tree. Before 14.9 and 15.4 PostgreSQL did not check: there
-- the index gets another B-tree.
CREATE OR REPLACE FUNCTION simsql._validating_statement(
    index simsql.registry, online boolean, OUT statement text, OUT target regclass)
LANGUAGE plpgsql STABLE
AS $$
#variable_conflict use_variable
DECLARE
    version constant integer := current_setting('server_version_num')::integer;
    root regclass;
BEGIN
    FOR root IN
        SELECT b.index FROM simsql._btrees(index.table_id, simsql._btree_columns(index)) AS b
          JOIN pg_index AS i ON i.indexrelid = b.index
          JOIN pg_class AS c ON c.oid = b.index
         WHERE c.relkind = 'I' AND NOT b.valid AND NOT i.indisunique
           AND (SELECT count(*) FROM pg_partition_tree(b.index))
               = (SELECT count(*) FROM pg_partition_tree(index.table_id))
    LOOP
        SELECT format('REINDEX INDEX%s %s', CASE WHEN online THEN ' CONCURRENTLY' END, t.relid), i.indrelid
          INTO statement, target
          FROM pg_partition_tree(root) AS t JOIN pg_index AS i ON i.indexrelid = t.relid
         WHERE t.isleaf AND NOT i.indisvalid LIMIT 1;
        IF statement IS NULL AND (version >= 150004 OR version BETWEEN 140009 AND 149999) THEN
            SELECT format('ALTER INDEX %s ATTACH PARTITION %s', t.parentrelid, t.relid), index.table_id
              INTO statement, target
              FROM pg_partition_tree(root) AS t
              JOIN pg_index AS child ON child.indexrelid = t.relid
              JOIN pg_index AS parent ON parent.indexrelid = t.parentrelid
             WHERE child.indisvalid AND NOT parent.indisvalid ORDER BY t.level DESC LIMIT 1;
        END IF;
        EXIT WHEN statement IS NOT NULL;
    END LOOP;
END
$$;

-- The next statement of a build and the table or partition that it locks, or null if there is nothing left to
-- do. A build creates the B-tree on the fingerprint column first and then those of the permutations; those of
-- a partitioned table on one partition after another. Then CREATE INDEX on the partitioned table itself finds
-- an equal B-tree on each partition, and only attaches them. An invalid B-tree on the fingerprint column
-- stays: it may be the user's, or another session may be building it.
CREATE OR REPLACE FUNCTION simsql._next_statement(
    index simsql.registry, online boolean, OUT statement text, OUT target regclass)
LANGUAGE plpgsql STABLE
AS $$
#variable_conflict use_variable
DECLARE
    plain constant text[] := simsql._btree_columns(index);
    quoted constant text[] := ARRAY(
        SELECT quote_ident(c.name) FROM unnest(plain) WITH ORDINALITY AS c (name, place) ORDER BY c.place);
    partitions constant regclass[] := ARRAY(
        SELECT p.relid FROM pg_partition_tree(index.table_id) AS p JOIN pg_class AS c ON c.oid = p.relid
         WHERE p.isleaf AND c.relkind = 'r' ORDER BY p.relid);
    is_partitioned constant boolean := (
        SELECT c.relkind = 'p' FROM pg_class AS c WHERE c.oid = index.table_id);
    drop_it constant text := CASE WHEN online THEN 'DROP INDEX CONCURRENTLY IF EXISTS %s'
                                  ELSE 'DROP INDEX IF EXISTS %s' END;
    expected record;
    btree regclass;
BEGIN
    IF NOT EXISTS (SELECT FROM simsql._btrees(index.table_id, plain) AS b WHERE b.valid) THEN
        SELECT v.statement, v.target INTO statement, target
          FROM simsql._validating_statement(index, online) AS v;
        IF statement IS NOT NULL THEN
            RETURN;
        END IF;
        FOREACH target IN ARRAY CASE WHEN is_partitioned THEN partitions ELSE ARRAY[index.table_id] END LOOP
            CONTINUE WHEN EXISTS (SELECT FROM simsql._btrees(target, plain) AS b WHERE b.valid);
            statement := simsql._create_btree(target::text, NULL, quoted, online);
            RETURN;
        END LOOP;
        target := index.table_id;
        statement := simsql._create_btree(index.table_name, NULL, quoted);
        RETURN;
    END IF;
    FOR expected IN SELECT * FROM simsql._faulty_btrees(index) LOOP
        target := index.table_id;
        IF expected.btree IS NOT NULL THEN
            statement := format(CASE WHEN is_partitioned THEN 'DROP INDEX IF EXISTS %s' ELSE drop_it END,
                                expected.btree);
            RETURN;
        END IF;
        IF NOT is_partitioned THEN
            statement := simsql._create_btree(index.table_name, expected.name, expected.columns, online);
            RETURN;
        END IF;
        FOREACH target IN ARRAY partitions LOOP
            btree := simsql._index_named(target, expected.name || '_' || target::oid);
            IF btree IS NULL THEN
                statement := simsql._create_btree(target::text, expected.name || '_' || target::oid,
                                                  expected.columns, online);
                RETURN;
            ELSIF NOT (SELECT i.indisvalid FROM pg_index AS i WHERE i.indexrelid = btree)
                  OR NOT simsql._is_btree_on(btree, expected.columns)
            THEN
                statement := format(drop_it, btree);
                RETURN;
            END IF;
        END LOOP;
        SELECT format(CASE l.kind WHEN 'i' THEN drop_it ELSE 'DROP INDEX %s' END, l.btree), l.target
          INTO statement, target
          FROM simsql._leftover_btrees(index.table_id, expected.columns) AS l LIMIT 1;
        IF NOT FOUND THEN
            target := index.table_id;
            statement := simsql._create_btree(index.table_name, expected.name, expected.columns);
        END IF;
        RETURN;
    END LOOP;
END
$$;

CREATE OR REPLACE FUNCTION simsql._expression_progress(index simsql.registry) RETURNS double precision
LANGUAGE sql STABLE
AS $$
    SELECT 1 - (SELECT count(DISTINCT v.number) FROM simsql._verify_btrees(index) AS v)
               / simsql._table_count(index.blocks, index.lead, index.inner_blocks)::double precision
$$;

-- Creates the next B-tree, on one table or partition, whose writers wait.
CREATE OR REPLACE FUNCTION simsql._expression_build(index simsql.registry) RETURNS boolean
LANGUAGE plpgsql
AS $$
DECLARE
    following constant record := simsql._next_statement(index, online => false);
BEGIN
    IF following.statement IS NULL THEN
        PERFORM simsql._warn_of_locks(index.table_id, 'build');
        RETURN true;
    END IF;
    PERFORM simsql._check_no_other_build(index.table_id);
    PERFORM simsql._check_no_concurrent_change(following.target, 'build');
    EXECUTE following.statement;
    RETURN false;
END
$$;


-- What searches, batches and counts of the storage `expression` read differently in a table that Citus
-- manages.

-- A search is a single SELECT, which Citus sends to the shards as it is: a UNION would be computed from
-- intermediate results. So each permutation contributes a condition, and flips are the values that it
-- compares with. Counting rows to decide whether probing pays would take another round trip, so a table
-- counts as a million rows.
--
-- The planners of the shards choose; settings of a function do not reach them. By default, Citus opens
-- another connection to a worker after 10 ms, which takes longer than most searches and slows down all
-- others.
--
-- Citus sends a join to the shards, but not a LATERAL query that counts. Each shard might choose to read all
-- its rows instead of ranges, so ranges of rare keys are not counted. An aggregate gathers fingerprints:
-- Citus writes the result of a subquery to a file, and for DISTINCT it hashes rows whose number it does not
-- know.
CREATE OR REPLACE FUNCTION simsql._citus_reads() RETURNS jsonb
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT jsonb_build_object(
    'settings', ARRAY['plan_cache_mode=force_custom_plan', 'citus.executor_slow_start_interval=1000'],
    'flips', 'ARRAY(SELECT {key} # f FROM unnest({flips}) AS f)',
    'exact', $sql$(t.{"column"} & {'lead_mask'}::bigint) = {key}$sql$,
    'probes', $sql$(t.{"column"} & {'lead_mask'}::bigint) = ANY ({flips})$sql$,
    'between', E'\n        OR ',
    'all', 'true',
    'matches', $sql$SELECT DISTINCT t.{"column"} AS fingerprint,
       bit_count((t.{"column"} # $1)::bit(64))::integer AS distance
  FROM {rows} AS t
 WHERE bit_count((t.{"column"} # $1)::bit(64)) <= $2{scope_of_rows}
   AND ({source}) AND {guard}
 ORDER BY distance, fingerprint$sql$,
    'pays', '{least_rows} <= 1000000',
    'size', $sql$SELECT simsql._citus_size({id}, {'scope'}, $1)$sql$,
    'count', $sql$
        SELECT count(*)
          FROM (SELECT fp, (fp & {'lead_mask'}::bigint) # f AS prefix
                  FROM unnest($1) AS fp CROSS JOIN unnest($2) AS f OFFSET 0) AS q
          JOIN {rows} AS t ON (t.{"column"} & {'lead_mask'}::bigint) = q.prefix
         WHERE t.{"column"} <> q.fp{scope_of_rows} AND {guard}$sql$,
    'counts_rare_keys', false,
    'fingerprints', $sql$
        SELECT coalesce(array_agg(DISTINCT t.{"column"} ORDER BY t.{"column"}), '{}')
          FROM {rows} AS t WHERE t.{"column"} IS NOT NULL{scope_of_rows} AND {guard}$sql$)
$$;

-- How many rows of an index or of a scope are in one shard, counting up to a limit: each shard compares all
-- queries with its own rows. Of a whole index it counts a sample: a LIMIT would apply to each shard, and all
-- these rows would come here. If the scope contains the distribution column, all rows of a scope are in one
-- shard.
CREATE OR REPLACE FUNCTION simsql._citus_size(index_id integer, scope jsonb, up_to bigint) RETURNS bigint
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    index constant simsql.registry := (SELECT r FROM simsql.registry AS r WHERE r.id = _citus_size.index_id);
    shared constant jsonb := simsql._parts(index, scope);
    shards bigint := 1;
    percent numeric;
    rows bigint;
BEGIN
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_dist_partition AS d
                    WHERE d.logicalrelid = index.table_id
                      AND column_to_column_name(d.logicalrelid, d.partkey) = ANY (index.scope_columns))
    THEN
        shards := (SELECT count(*) FROM pg_catalog.pg_dist_shard AS s WHERE s.logicalrelid = index.table_id);
    END IF;
    IF shards > 1 AND scope IS NULL THEN
        FOREACH percent IN ARRAY ARRAY[0.01, 1, 100] LOOP
            EXECUTE simsql._render($sql$
                SELECT count(t.{"column"}) FROM {rows} AS t TABLESAMPLE system ({percent}) WHERE {guard}$sql$,
                jsonb_build_object('percent', percent), shared)
               INTO rows;
            EXIT WHEN rows >= 1000;
        END LOOP;
        RETURN rows * 100 / percent / shards;
    END IF;
    -- Citus takes no empty select list.
    EXECUTE simsql._render($sql$
        SELECT count(*) FROM (
            SELECT 1 FROM {rows} AS t
             WHERE t.{"column"} IS NOT NULL{scope_of_rows} AND {guard} LIMIT $1) AS c$sql$, '{}', shared)
       INTO rows USING up_to;
    RETURN rows / shards;
END
$$;


-- The storage `expression`: what a search, a batch and a count read in the B-trees of the user's table.

-- The keys of a permutation are its lead bits, where they stand in the fingerprint.
CREATE OR REPLACE FUNCTION simsql._expression_branches(index simsql.registry)
RETURNS TABLE (number integer, key text, flipped bigint, parts jsonb)
LANGUAGE sql STABLE
AS $$
    SELECT p.number, format('($1 & %L::bigint)', p.lead_mask), p.lead_mask,
           jsonb_build_object('number', p.number, 'lead_mask', p.lead_mask)
      FROM simsql._permutations(index.blocks, index.lead, index.inner_blocks) AS p
$$;

-- What a search reads are rows, so every strategy returns matches.
CREATE OR REPLACE FUNCTION simsql._expression_reads(index simsql.registry) RETURNS jsonb
LANGUAGE sql STABLE
AS $$
    SELECT jsonb_build_object(
    'exact', $sql$
        SELECT t.{"column"} AS fingerprint
          FROM {rows} AS t
         WHERE (t.{"column"} & {'lead_mask'}::bigint) = {key}
           AND bit_count((t.{"column"} # $1)::bit(64)) <= $2{scope_of_rows}$sql$,
    'probes', $sql$
        SELECT t.{"column"} AS fingerprint
          FROM {rows} AS t
         WHERE (t.{"column"} & {'lead_mask'}::bigint)
               = ANY (ARRAY(SELECT {key} # f FROM unnest({flips}) AS f))
           AND bit_count((t.{"column"} # $1)::bit(64)) <= $2{scope_of_rows}$sql$,
    'between', E'\n         UNION ALL',
    'all', $sql$
        SELECT t.{"column"} AS fingerprint
          FROM {rows} AS t
         WHERE bit_count((t.{"column"} # $1)::bit(64)) <= $2{scope_of_rows}$sql$,
    'matches', $sql$SELECT m.fingerprint, m.distance
  FROM (SELECT DISTINCT bit_count((c.fingerprint # $1)::bit(64))::integer AS distance, c.fingerprint
          FROM ({source}) AS c) AS m
 WHERE {guard}
 ORDER BY m.distance, m.fingerprint$sql$,
    -- The table may be partitioned, so only counting tells its rows.
    'pays', $sql${least_rows} IS NOT NULL
        AND EXISTS (SELECT FROM {rows} AS t
                     WHERE t.{"column"} IS NOT NULL{scope_of_rows} AND {guard} OFFSET {least_rows} - 1)$sql$,

    'batch', $sql$
        SELECT DISTINCT r.fp, r.fingerprint, bit_count((r.fingerprint # r.fp)::bit(64))::integer
          FROM (SELECT fp, (fp & {'lead_mask'}::bigint) # flip AS prefix
                  FROM unnest($1) AS u (fp)
                 CROSS JOIN unnest({flips}) AS f (flip) ORDER BY 2 OFFSET 0) AS q
         CROSS JOIN LATERAL (
               SELECT q.fp, t.{"column"} AS fingerprint FROM {rows} AS t
                WHERE (t.{"column"} & {'lead_mask'}::bigint) = q.prefix
                  AND bit_count((t.{"column"} # q.fp)::bit(64)) <= $2{scope_of_rows} OFFSET 0) AS r
         WHERE {guard}{not_earlier}$sql$,

    'size', $sql$SELECT count(*) FROM (
        SELECT FROM {rows} AS t WHERE t.{"column"} IS NOT NULL{scope_of_rows} AND {guard} LIMIT $1) AS c$sql$,
    'sample', $sql$SELECT ARRAY(
        SELECT t.{"column"} FROM {rows} AS t TABLESAMPLE bernoulli ({percent}) REPEATABLE (0)
         WHERE t.{"column"} IS NOT NULL AND {guard} ORDER BY 1)$sql$,
    'count', $sql$
        SELECT coalesce(sum(k.keys), 0)
          FROM (SELECT fp, (fp & {'lead_mask'}::bigint) # f AS prefix
                  FROM unnest($1) AS fp CROSS JOIN unnest($2) AS f OFFSET 0) AS q
         CROSS JOIN LATERAL (
               SELECT count(*) AS keys FROM {rows} AS t
                WHERE (t.{"column"} & {'lead_mask'}::bigint) = q.prefix
                  AND t.{"column"} <> q.fp{scope_of_rows} AND {guard}) AS k$sql$)
    || CASE WHEN simsql._is_distributed(index.table_id) THEN simsql._citus_reads() ELSE '{}' END
$$;


-- The storage `tables`: what a search, a batch and a count read in the key tables.

-- The ranges of a permutation are bounded by the bits of its prefix, which come first in a key.
CREATE OR REPLACE FUNCTION simsql._tables_branches(index simsql.registry)
RETURNS TABLE (number integer, key text, flipped bigint, parts jsonb)
LANGUAGE sql STABLE
AS $$
    SELECT p.number, e.key, e.outside,
           jsonb_build_object('number', p.number,
                              'keys', format('simsql.keys_%s_%s', index.id, p.number),
                              'fingerprint', simsql._permute('k.key', p.lead_mask, back => true),
                              'key_of_fp', replace(e.key, '$1', 'fp'),
                              'outside', e.outside,
                              'inside', ~e.outside)
      FROM simsql._permutations(index.blocks, index.lead, index.inner_blocks) AS p
     CROSS JOIN LATERAL (SELECT simsql._permute('$1', p.lead_mask), -1::bigint << (64 - p.prefix) OFFSET 0)
           AS e (key, outside)
$$;

-- A key may be stored many times and may outlive its row. So a search collects candidates, which are
-- fingerprints of keys, and then keeps one of each if a live row has it. It stops after _candidates() of
-- them, and starts over with `skip`, which reads the same ranges in pieces without the copies of equal keys.
-- Keys within `reach`, a few bits farther away than a match, count as candidates too, so that this also
-- happens for a key with many copies that is just outside the distance.
--
-- OFFSET 0 keeps the bounds of ranges bare columns. Comparisons with bare columns are index conditions even
-- under row-level security; operators such as & are not, because they are not leakproof. It also keeps the
-- planner from joining all ranges with all keys of a scope, which it estimates to be few until they are
-- analyzed, and from moving the condition elsewhere.
CREATE OR REPLACE FUNCTION simsql._tables_reads(index simsql.registry) RETURNS jsonb
LANGUAGE sql STABLE
AS $$
    SELECT jsonb_build_object(
    'exact', $sql$
        SELECT {fingerprint} AS fingerprint
          FROM {keys} AS k
         WHERE k.key >= {key} & {'outside'}::bigint AND k.key <= {key} | {'inside'}::bigint{scope_of_keys}
           AND bit_count((k.key # {key})::bit(64)) <= {reach}$sql$,
    'probes', $sql$
        SELECT {fingerprint} AS fingerprint
          FROM (SELECT ({key} # f) & {'outside'}::bigint AS low, ({key} # f) | {'inside'}::bigint AS high
                  FROM unnest({flips}) AS f OFFSET 0) AS p
         CROSS JOIN LATERAL (
               SELECT k.key FROM {keys} AS k
                WHERE k.key >= p.low AND k.key <= p.high{scope_of_keys}
                  AND bit_count((k.key # {key})::bit(64)) <= {reach} OFFSET 0) AS k$sql$,
    'skip', '
        SELECT s.fingerprint
          FROM ' || replace(pieces, '{queries}', '(SELECT $1 AS fp, {key} AS center)') || ' AS s',
    'skip_many', 'SELECT s.* FROM ' || replace(
        pieces, '{queries}', '(SELECT fp, {key_of_fp} AS center FROM unnest($1) AS u (fp))') || ' AS s',
    'between', E'\n         UNION ALL',
    -- The keys of the first permutation are the fingerprints themselves.
    'all', $sql$(SELECT k.key FROM simsql.keys_{id}_0 AS k WHERE true{scope_of_keys})$sql$,
    -- The last branch reads nothing. It makes a search without candidates fail for a role that cannot read
    -- the columns.
    'candidates', $sql$SELECT c.fingerprint
  FROM ({source}
         UNION ALL
        SELECT t.{"column"} FROM ONLY {table} AS t TABLESAMPLE system (0) WHERE false{no_scope}) AS c
 LIMIT {candidate_limit}$sql$,
    -- LIMIT 1 makes the planner look up each candidate once, whatever it estimates.
    'matches', $sql$SELECT m.fingerprint, m.distance
  FROM (SELECT DISTINCT bit_count((c.fingerprint # $1)::bit(64))::integer AS distance, c.fingerprint
          FROM {source} AS c (fingerprint)
         WHERE bit_count((c.fingerprint # $1)::bit(64)) <= $2) AS m
 CROSS JOIN LATERAL (SELECT FROM ONLY {table} AS t
                      WHERE t.{"column"} = m.fingerprint{scope_of_rows} LIMIT 1) AS live
 WHERE {guard}
 ORDER BY m.distance, m.fingerprint$sql$,
    -- A key takes 36 bytes.
    'pays', $sql$pg_relation_size('simsql.keys_{id}_0') / 36 >= {least_rows}$sql$,
    'pays_in_scope', $sql${least_rows} IS NOT NULL
        AND EXISTS (SELECT FROM simsql.keys_{id}_0 AS k
                     WHERE true{scope_of_keys} OFFSET {least_rows} - 1)$sql$,

    -- As a single search, a statement that meets too many candidates skips equal keys. Ranges come in the
    -- order of keys, so that neighbours are read one after another.
    'batch', $sql$
        WITH found AS MATERIALIZED (
            SELECT p.fp, {fingerprint} AS fingerprint,
                   bit_count((k.key # p.center)::bit(64))::integer AS distance
              FROM (SELECT q.fp, q.center, (q.center # flip) & {'outside'}::bigint AS low,
                           (q.center # flip) | {'inside'}::bigint AS high
                      FROM (SELECT fp, {key_of_fp} AS center FROM unnest($1) AS u (fp)) AS q
                     CROSS JOIN unnest({flips}) AS f (flip) ORDER BY 3 OFFSET 0) AS p
             CROSS JOIN LATERAL (
                   SELECT k.key FROM {keys} AS k
                    WHERE k.key >= p.low AND k.key <= p.high{scope_of_keys}
                      AND bit_count((k.key # p.center)::bit(64)) <= greatest($2 + 4, 12) OFFSET 0) AS k
             LIMIT {batch_limit})
        SELECT m.fp, m.fingerprint, m.distance
          FROM (SELECT DISTINCT r.fp, r.fingerprint, r.distance
                  FROM (SELECT f.* FROM found AS f
                         UNION ALL
                        SELECT s.* FROM simsql._tables_skip({id}, {number}, $1, $2, {'scope'}) AS s
                         WHERE (SELECT count(*) FROM found) = {batch_limit}) AS r (fp, fingerprint, distance)
                 WHERE r.distance <= $2{not_earlier}) AS m
         CROSS JOIN LATERAL (SELECT FROM ONLY {table} AS t
                              WHERE t.{"column"} = m.fingerprint{scope_of_rows} LIMIT 1) AS live
         WHERE {guard}$sql$,

    'size', $sql$SELECT pg_relation_size('simsql.keys_{id}_0') / 36$sql$,
    'size_of_scope', $sql$SELECT count(*) FROM (
        SELECT FROM simsql.keys_{id}_0 AS k WHERE true{scope_of_keys} LIMIT $1) AS c$sql$,
    'sample', $sql$SELECT ARRAY(
        SELECT k.key FROM simsql.keys_{id}_0 AS k TABLESAMPLE bernoulli ({percent}) REPEATABLE (0)
         ORDER BY k.key)$sql$,
    'count', $sql$
        SELECT coalesce(sum(k.keys), 0)
          FROM (SELECT r.key, (r.key # f) & {'outside'}::bigint AS low,
                       (r.key # f) | {'inside'}::bigint AS high
                  FROM (SELECT {key_of_fp} AS key FROM unnest($1) AS fp) AS r
                 CROSS JOIN unnest($2) AS f OFFSET 0) AS q
         CROSS JOIN LATERAL (
               SELECT count(*) AS keys FROM {keys} AS k
                WHERE k.key >= q.low AND k.key <= q.high AND k.key <> q.key{scope_of_keys}) AS k$sql$)
      -- The matches in the ranges of {queries}, read in pieces without the copies of equal keys.
      FROM (VALUES ($sql$(
            WITH RECURSIVE piece AS (
                SELECT p.fp, p.center, p.high, ARRAY(SELECT k.key FROM {keys} AS k
                                                      WHERE k.key >= p.low AND k.key <= p.high{scope_of_keys}
                                                      ORDER BY k.key LIMIT 100) AS keys
                  FROM (SELECT q.fp, q.center, (q.center # flip) & {'outside'}::bigint AS low,
                               (q.center # flip) | {'inside'}::bigint AS high
                          FROM {queries} AS q
                         CROSS JOIN unnest({flips}) AS f (flip) ORDER BY 3 OFFSET 0) AS p
                 UNION ALL
                SELECT p.fp, p.center, p.high, ARRAY(SELECT k.key FROM {keys} AS k
                                                      WHERE k.key > p.last AND k.key <= p.high{scope_of_keys}
                                                      ORDER BY k.key LIMIT 100)
                  FROM (SELECT q.*, q.keys[100] AS last FROM piece AS q
                         WHERE cardinality(q.keys) = 100 OFFSET 0) AS p)
            SELECT piece.fp, {fingerprint} AS fingerprint,
                   bit_count((k.key # piece.center)::bit(64))::integer AS distance
              FROM piece CROSS JOIN LATERAL unnest(piece.keys) AS k (key)
             WHERE bit_count((k.key # piece.center)::bit(64)) <= $2)$sql$)) AS t (pieces)
$$;

-- The matches of each fingerprint in one key table, whether or not a row has them, without reading copies of
-- equal keys. A function, because few batches need it, and planning it takes a while.
CREATE OR REPLACE FUNCTION simsql._tables_skip(
    index_id integer, number integer, fingerprints bigint[], distance integer, scope jsonb)
RETURNS SETOF simsql.query_match
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    index constant simsql.registry := (SELECT r FROM simsql.registry AS r WHERE r.id = _tables_skip.index_id);
BEGIN
    RETURN QUERY EXECUTE (
        SELECT simsql._render(simsql._tables_reads(index) ->> 'skip_many',
                              jsonb_build_object('flips', format('%L::bigint[]', simsql._flips(
                                  b.flipped, simsql._radius(index.blocks, index.lead, index.inner_blocks,
                                                            b.number, distance)))),
                              simsql._parts(index, scope) || b.parts)
          FROM simsql._tables_branches(index) AS b WHERE b.number = _tables_skip.number)
      USING fingerprints, distance;
END
$$;


-- The faults of B-trees and of tables that Citus manages, and their repair.

-- A quick look counts the valid B-trees here; a thorough one also reads their definitions, and asks all
-- shards.
CREATE OR REPLACE FUNCTION simsql._expression_faults(
    index simsql.registry, actual simsql.registry, thorough boolean)
RETURNS simsql._fault[]
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    repair constant text := format('SELECT * FROM simsql.repair(%L);', index.table_id);
    tables constant integer := simsql._table_count(index.blocks, index.lead, index.inner_blocks);
    name constant text := '^simsql_' || index.id || '_\d+$';
    faults simsql._fault[] := '{}';
BEGIN
    IF simsql._is_distributed_since(index) THEN
        faults := faults || ('table distributed', actual.table_name, 'table distributed', 'refuses',
                             format('table %s was distributed after its simhash index was created',
                                    index.table_id),
                             'Let the index follow:', repair)::simsql._fault;
    -- It would hide the B-trees from searches: & is not leakproof.
    ELSIF simsql._is_distributed(index.table_id) AND row_security_active(index.table_id) THEN
        faults := faults || ('row-level security', actual.table_name, 'ready', 'refuses this role',
                             format('row-level security on %s, which Citus manages, applies to role %s',
                                    index.table_id, current_user),
                             'Search as a role to which it does not apply, and filter the rows.',
                             NULL)::simsql._fault;
    END IF;
    IF index.ready AND array_position(actual.column_name || actual.scope_columns, NULL) IS NULL
       AND (thorough OR tables > (
           SELECT count(*) FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid
            WHERE i.indrelid = index.table_id AND i.indisvalid AND c.relname ~ name))
    THEN
        faults := faults || ARRAY(
            SELECT (b.problem, b.object, 'B-trees missing', 'slows', NULL, NULL, repair)::simsql._fault
              FROM simsql._verify_btrees(actual, on_shards => thorough) AS b);
    END IF;
    RETURN faults;
END
$$;

-- Whether searches certainly accept an index: a look at its first B-tree alone. By itself, PostgreSQL would plan
-- this at every search, which takes longer than the search.
CREATE OR REPLACE FUNCTION simsql._expression_is_sound(index simsql.registry) RETURNS boolean
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    RETURN index.ready
           AND to_regclass(index.table_name) = index.table_id
           AND to_regprocedure('simsql.search_' || index.id
                               || CASE index.scope_columns WHEN '{}' THEN '(bigint,integer)'
                                  ELSE '(bigint,integer,jsonb)' END) IS NOT NULL
           AND (SELECT ARRAY(SELECT simsql._column_name(i.indrelid, k.number)
                               FROM unnest(i.indkey) WITH ORDINALITY AS k (number, place)
                              WHERE k.number <> 0 ORDER BY k.place)
                  FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid
                 WHERE i.indrelid = index.table_id AND 0 = ANY (i.indkey)
                   AND starts_with(c.relname, 'simsql_' || index.id || '_')
                 ORDER BY length(c.relname), c.relname LIMIT 1)
               = index.scope_columns || index.column_name
           AND EXISTS (SELECT FROM pg_attribute AS a
                        WHERE a.attrelid = index.table_id AND a.attname = index.column_name
                          AND a.atttypid = 'bigint'::regtype)
           AND (index.scope_columns = '{}'
                OR NOT EXISTS (SELECT FROM unnest(index.scope_columns, index.scope_types) AS s (name, type)
                                 JOIN pg_attribute AS a ON a.attrelid = index.table_id AND a.attname = s.name
                                WHERE a.atttypid IS DISTINCT FROM s.type
                                  AND simsql._base_type(a.atttypid) IS DISTINCT FROM s.type))
           AND (NOT simsql._is_distributed(index.table_id)
                OR NOT simsql._is_distributed_since(index) AND NOT row_security_active(index.table_id));
END
$$;

CREATE OR REPLACE FUNCTION simsql._expression_mend(index simsql.registry, faults simsql._fault[])
RETURNS simsql.registry
LANGUAGE plpgsql
AS $$
DECLARE
    btree record;
BEGIN
    IF EXISTS (SELECT FROM unnest(faults) AS f
                WHERE f.problem IN ('B-tree missing on a shard', 'B-tree invalid on a shard'))
    THEN
        -- It may be the user's, and serve a constraint.
        EXECUTE format('CREATE INDEX ON %s (%s)', index.table_name,
                       simsql._name_list(simsql._btree_columns(index)));
    END IF;
    IF EXISTS (SELECT FROM unnest(faults) AS f WHERE f.problem LIKE '%search B-tree%') THEN
        -- Citus drops what its shards have kept of a B-tree only if it exists here.
        FOR btree IN
            SELECT f.* FROM simsql._faulty_btrees(index) AS f
             WHERE f.btree IS NULL AND simsql._is_distributed(index.table_id)
        LOOP
            PERFORM simsql._execute_here(simsql._create_btree(index.table_name, btree.name, btree.columns));
            EXECUTE format('DROP INDEX IF EXISTS %s', simsql._index_named(index.table_id, btree.name));
        END LOOP;
        PERFORM simsql._create_btrees(index);
    END IF;
    RETURN index;
END
$$;


-- Finds the index that a statement refers to, or raises an error that tells what is wrong with it.

-- The numbers of the columns of an index, the fingerprint column and then the scope: those in its trigger or,
-- without triggers, in the first of its B-trees that exists; null if there is neither. The catalogue and
-- pg_dump carry both along when columns are renamed. A B-tree with such a name on something else does not
-- count.
CREATE OR REPLACE FUNCTION simsql._column_numbers(table_id regclass, index_id integer) RETURNS smallint[]
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    numbers smallint[] := (
        SELECT ARRAY(SELECT n FROM unnest(t.tgattr) AS n)
          FROM pg_trigger AS t WHERE t.tgrelid = table_id AND t.tgname = 'simsql_' || index_id || '_column');
    name constant text := '^simsql_' || index_id || '_\d+$';
    btree pg_index;
BEGIN
    IF numbers IS NOT NULL THEN
        RETURN numbers;
    END IF;
    FOR btree IN
        SELECT i.* FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid
         WHERE i.indrelid = table_id AND c.relname ~ name
         ORDER BY length(c.relname), c.relname
    LOOP
        IF starts_with(pg_get_indexdef(btree.indexrelid, btree.indnkeyatts - 1, false),
                       '((' || pg_get_indexdef(btree.indexrelid, btree.indnkeyatts, false) || ' & ')
        THEN
            RETURN ARRAY(SELECT k.number FROM unnest(btree.indkey) WITH ORDINALITY AS k (number, place)
                          WHERE k.number <> 0 AND k.place <= btree.indnkeyatts
                          ORDER BY k.place = btree.indnkeyatts DESC, k.place);
        END IF;
    END LOOP;
    RETURN NULL;
END
$$;

-- The table that has replaced that of an index, with its name, B-trees and triggers; null if there is none.
-- Citus re-creates a table whose distribution changes. (B-trees in a schema have different names, so no other
-- table can have this one.) It reads the catalogue: to_regclass fails for a role that may not use the schema,
-- and roles see all indexes in simsql.indexes.
CREATE OR REPLACE FUNCTION simsql._recreated(index simsql.registry) RETURNS regclass
LANGUAGE sql STABLE
AS $$
    SELECT c.oid::regclass
      FROM parse_ident(index.table_name) AS names
      JOIN pg_namespace AS n ON n.nspname = names[1]::name
      JOIN pg_class AS c ON c.relnamespace = n.oid AND c.relname = names[2]::name
     WHERE c.oid <> index.table_id AND simsql._column_numbers(c.oid, index.id) IS NOT NULL
       AND simsql._column_numbers(index.table_id, index.id) IS NULL
$$;

-- Registers a re-created table instead of the one that it has replaced. Its indexes may have faults. It may
-- belong to another role, whose readers must not see the keys of the old rows.
CREATE OR REPLACE FUNCTION simsql._follow_table(table_name regclass) RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    index_id integer;
    keys text;
BEGIN
    FOR index_id IN
        SELECT r.id FROM simsql.registry AS r WHERE simsql._recreated(r) = _follow_table.table_name
    LOOP
        SELECT string_agg(c.oid::regclass::text, ', ') INTO keys FROM pg_class AS c
         WHERE c.relnamespace = 'simsql'::regnamespace AND c.relkind = 'r'
           AND c.relname ~ format('^(keys_%s_\d+|built_%s)$', index_id, index_id);
        IF keys IS NOT NULL THEN
            EXECUTE 'TRUNCATE ' || keys;
        END IF;
        UPDATE simsql.registry AS r SET table_id = _follow_table.table_name WHERE r.id = index_id;
    END LOOP;
END
$$;

-- Makes this session see what other sessions have committed: new names, and functions that repair has
-- replaced. A transaction learns of it when it takes a lock that it does not hold, so one that has searched
-- may never learn of it, and would search a table that has taken over the name. This takes a lock on a
-- relation that nothing else locks in this mode, and releases it. PostgreSQL inlines it.
CREATE OR REPLACE FUNCTION simsql._is_current() RETURNS boolean
LANGUAGE sql VOLATILE
RETURN pg_relation_is_updatable('simsql.registry_id_seq'::regclass, false) IS NOT NULL;

-- Whether a call means an index of its table: the one on the column that it names, or else the default index.
-- PostgreSQL inlines it.
CREATE OR REPLACE FUNCTION simsql._is_meant(column_name text, is_default boolean, named text) RETURNS boolean
LANGUAGE sql IMMUTABLE
RETURN CASE WHEN named IS NULL THEN is_default IS NOT false ELSE column_name = named END;

-- Returns the index of a column, as the caller's snapshot sees it, or raises an error that tells what is
-- wrong with it.
CREATE OR REPLACE FUNCTION simsql._index(table_name regclass, column_name text) RETURNS simsql.registry
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    index_id integer;
    is_sound boolean;
    index simsql.registry;
    columns text[];
    is_current constant boolean := simsql._is_current();
BEGIN
    BEGIN
        SELECT s.id, s.sound INTO STRICT index_id, is_sound
          FROM simsql._searchable AS s
         WHERE s.table_id = _index.table_name
           AND simsql._is_meant(s.column_name, s.is_default, _index.column_name);
    EXCEPTION
        WHEN no_data_found THEN
            PERFORM simsql._check_sound(r)
               FROM simsql.registry AS r WHERE simsql._recreated(r) = _index.table_name;
            RAISE EXCEPTION 'simsql: % has no simhash index%', table_name,
                            coalesce(' on column ' || quote_ident(column_name), '')
                USING ERRCODE = 'undefined_object',
                      HINT = format('Create it with SELECT simsql.create_index(%L, %L). An index that was '
                                    'created after this transaction took its snapshot is not visible to it.',
                                    table_name, coalesce(column_name, 'fingerprint'));
        WHEN too_many_rows THEN
            columns := ARRAY(SELECT r.column_name FROM simsql.registry AS r
                              WHERE r.table_id = _index.table_name ORDER BY r.id);
            RAISE EXCEPTION 'simsql: % has % simhash indexes', table_name, cardinality(columns)
                USING ERRCODE = 'ambiguous_column',
                      HINT = format('Name the column: column_name => one of %s. '
                                    'Or make one the default: SELECT simsql.set_default_index(%L, %L);',
                                    array_to_string(columns, ', '), table_name, columns[1]);
    END;
    SELECT r.* INTO index FROM simsql.registry AS r WHERE r.id = index_id;
    IF NOT is_sound THEN
        PERFORM simsql._raise(f) FROM unnest(simsql._registry_faults()) AS f WHERE index.id IS NULL;
        PERFORM simsql._check_sound(index);
    END IF;
    RETURN index;
END
$$;

-- Raises an error in a transaction with one snapshot if the table has got a child since, or a scope column
-- another type. The catalogue looks as it did then, but PostgreSQL reads children that have joined the table, and
-- compares values of the new type, which need not have been rewritten.
CREATE OR REPLACE FUNCTION simsql._check_snapshot(index_id integer) RETURNS void
LANGUAGE plpgsql VOLATILE  -- as EXPLAIN demands
AS $$
DECLARE
    index constant simsql.registry := (SELECT r FROM simsql.registry AS r WHERE r.id = index_id);
    types regtype[];
    plan json;
BEGIN
    IF simsql._rows_of(index) <> index.table_name THEN
        EXECUTE 'EXPLAIN (FORMAT JSON, COSTS OFF) SELECT FROM ' || index.table_name INTO plan;
    END IF;
    IF index.scope_columns <> '{}' AND NOT simsql._is_distributed(index.table_id) THEN
        EXECUTE (SELECT 'SELECT ARRAY[' || string_agg(
                            format('simsql._base_type(pg_typeof((SELECT t.%I FROM %s AS t LIMIT 0)))',
                                   s.name, index.table_name), ', ' ORDER BY s.number) || ']'
                   FROM unnest(index.scope_columns) WITH ORDINALITY AS s (name, number))
           INTO types;
    END IF;
    IF types <> index.scope_types
       OR 'Append' IN (plan #>> '{0,Plan,Node Type}', plan #>> '{0,Plan,Plans,0,Node Type}')
    THEN
        RAISE EXCEPTION 'simsql: table % has changed since this transaction took its snapshot', index.table_id
            USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'Start a new transaction.';
    END IF;
END
$$;

-- Raises an error if the table, or a part of it, was emptied or rewritten while this statement waited for it.
-- The snapshot of the statement is older, so it sees none of the new rows; a plain SELECT takes its snapshot after
-- it has waited. VACUUM FULL and CLUSTER rewrite a table, too, but keep its rows visible. In a transaction with one
-- snapshot, a plain SELECT sees nothing either.
CREATE OR REPLACE FUNCTION simsql._check_rewritten(table_id regclass) RETURNS void
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    part regclass;
    sees_rows boolean;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RETURN;
    END IF;
    FOR part IN
        WITH RECURSIVE tree AS (
            SELECT table_id::oid AS id
             UNION
            SELECT i.inhrelid FROM tree JOIN pg_inherits AS i ON i.inhparent = tree.id)
        SELECT c.oid FROM tree JOIN pg_class AS c ON c.oid = tree.id
         -- The first is of the snapshot, the second is the current one.
         WHERE c.relfilenode <> pg_relation_filenode(c.oid)
    LOOP
        EXECUTE format('SELECT EXISTS (SELECT FROM %s%s)', table_id,
                       CASE WHEN part <> table_id THEN format(' WHERE tableoid = %s', part::oid) END)
           INTO sees_rows;
        IF NOT sees_rows THEN
            RAISE EXCEPTION 'simsql: table % was emptied or rewritten while the search waited for it', part
                USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'Search again.';
        END IF;
    END LOOP;
END
$$;

-- Raises an error for a search that could not read an index: another session has changed its storage or dropped it
-- while the search waited for a lock, or it is damaged.
CREATE OR REPLACE FUNCTION simsql._refuse_changed(table_name regclass, reason text) RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    RAISE EXCEPTION 'simsql: the simhash index on % has changed since this search began: %', table_name, reason
        USING ERRCODE = 'object_not_in_prerequisite_state',
              HINT = format('Search again. If that fails, too: SELECT * FROM simsql.repair(%L);', table_name);
END
$$;

-- The current name of a column, whatever the snapshot; null without a number. PostgreSQL inlines it.
CREATE OR REPLACE FUNCTION simsql._column_name(table_id oid, number smallint) RETURNS text
LANGUAGE sql STABLE
RETURN (pg_identify_object_as_address('pg_class'::regclass, table_id, number)).object_names[3];

-- Returns the index of a column for a search, or raises an error that tells what is wrong with it or with the
-- scope: a search gives a value for each scope column of the index, and no others.
CREATE OR REPLACE FUNCTION simsql._searched_index(table_name regclass, column_name text, scope jsonb)
RETURNS simsql.registry
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    index constant simsql.registry := simsql._index(table_name, column_name);
    wrong text;
    how constant text := (SELECT format('Give a value for each column: scope => jsonb_build_object(%s)',
                                        string_agg(format('%L, ...', c.name), ', ' ORDER BY c.number))
                            FROM unnest(index.scope_columns) WITH ORDINALITY AS c (name, number));
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        PERFORM simsql._check_snapshot(index.id);
    END IF;
    IF index.scope_columns = '{}' THEN
        IF scope IS NOT NULL THEN
            RAISE EXCEPTION 'simsql: the simhash index on %(%) has no scope',
                            table_name, quote_ident(index.column_name)
                USING ERRCODE = 'invalid_parameter_value',
                      HINT = 'Search without a scope, or drop the index and create it again with a scope.';
        END IF;
        RETURN index;
    END IF;
    IF scope IS NULL THEN
        RAISE EXCEPTION 'simsql: a search in the simhash index on %(%) needs a scope',
                        table_name, quote_ident(index.column_name)
            USING ERRCODE = 'invalid_parameter_value', HINT = how;
    ELSIF jsonb_typeof(scope) <> 'object' THEN
        RAISE EXCEPTION 'simsql: scope must be a JSON object, not %', scope
            USING ERRCODE = 'invalid_parameter_value', HINT = how;
    END IF;
    SELECT string_agg(CASE WHEN s.value IS NULL THEN 'no value for ' || quote_ident(s.wanted)
                           WHEN s.wanted IS NULL THEN 'no such column: ' || quote_ident(s.key)
                           ELSE quote_ident(s.key) || ' is ' || s.value::text END, ', '
                      ORDER BY s.wanted, s.key)
      INTO wrong
      FROM (jsonb_each(scope) AS e
            FULL JOIN unnest(index.scope_columns) AS c (wanted) ON c.wanted = e.key) AS s
     WHERE s.value IS NULL OR s.wanted IS NULL
        OR jsonb_typeof(s.value) NOT IN ('string', 'number', 'boolean');
    IF wrong IS NOT NULL THEN
        RAISE EXCEPTION 'simsql: this scope does not fit the simhash index on %(%): %',
                        table_name, quote_ident(index.column_name), wrong
            USING ERRCODE = 'invalid_parameter_value',
                  HINT = how || ', where each value is a string, a number or a boolean.';
    END IF;
    RETURN index;
END
$$;

-- The statement that resumes a build. It leaves out the storage of an ordinary table.
CREATE OR REPLACE FUNCTION simsql._build_call(index simsql.registry) RETURNS text
LANGUAGE sql STABLE STRICT
AS $$
    SELECT simsql._render(
        $sql$CALL simsql.build({'table'}, {'column'}, {design}, {'recipe'}{scope}{storage});$sql$,
        jsonb_build_object(
            'table', index.table_id,
            'column', index.column_name,
            'design', concat_ws(', ', index.distance, index.blocks, index.lead, index.inner_blocks),
            'recipe', index.recipe,
            'scope', CASE WHEN index.scope_columns <> '{}' THEN format(', %L', index.scope_columns) END,
            'storage', ', storage => ' || quote_literal(nullif(index.storage, 'tables'))))
$$;

-- The statements that drop an index and create it again.
CREATE OR REPLACE FUNCTION simsql._create_again(index simsql.registry) RETURNS text
LANGUAGE sql STABLE
AS $$
    SELECT simsql._render('SELECT simsql.drop_index({it}); SELECT simsql.create_index({it});',
                          jsonb_build_object('it', format('%L, %L', index.table_id, index.column_name)))
$$;

-- The distance of a search: the requested one or, by default, that of the index.
CREATE OR REPLACE FUNCTION simsql._distance(asked integer, of_index integer) RETURNS integer
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
AS $$
BEGIN
    IF asked < 0 OR asked > 64 THEN
        RAISE EXCEPTION 'simsql: distance must be between 0 and 64, not %', asked
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    RETURN coalesce(asked, of_index);
END
$$;

-- Returns a fingerprint that a client has computed from a text, or raises an error if the index certainly has
-- another recipe. `others` is a regular expression of the recipes that cannot mean the client's: see
-- other_recipes in Python.
CREATE OR REPLACE FUNCTION simsql._of_recipe(
    fingerprint bigint, table_name regclass, column_name text, recipe text, others text)
RETURNS bigint
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    of_index constant text := (SELECT r.recipe FROM simsql.registry AS r
                                WHERE r.table_id = _of_recipe.table_name
                                  AND r.column_name = _of_recipe.column_name);
BEGIN
    IF of_index ~ others THEN
        RAISE EXCEPTION 'simsql: %(%): the simhash index has recipe %, but the model fingerprints texts with '
                        '%, and these cannot be compared',
                        table_name, quote_ident(column_name), of_index, recipe
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = 'Give the column of the model the recipe of the index, or change the index in a '
                         'migration.';
    END IF;
    RETURN fingerprint;
END
$$;


-- The faults of an index. They are found here alone: searches raise them, simsql.indexes shows them, verify
-- lists them, and repair removes them.
--
-- It comes from the catalogue, needs no privileges, and reads no rows. Keys that are missing are not here:
-- verify compares keys with rows. Keys without rows are not faults: see superfluous_keys.

-- The current names of the columns of an index, whatever the snapshot: the fingerprint column and then the
-- scope. Null stands for a dropped one. Columns whose numbers are unknown are those with the registered
-- names: without the B-tree that tells the numbers, and to a writer whose snapshot is older than the index.
CREATE OR REPLACE FUNCTION simsql._current_columns(table_id regclass, index_id integer, registered text[])
RETURNS text[]
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    numbers constant smallint[] := simsql._column_numbers(table_id, index_id);
BEGIN
    IF numbers IS NULL THEN
        RETURN ARRAY(SELECT a.attname::text
                       FROM unnest(registered) WITH ORDINALITY AS n (name, place)
                       LEFT JOIN pg_attribute AS a
                         ON a.attrelid = table_id AND a.attname = n.name AND NOT a.attisdropped
                      ORDER BY n.place);
    END IF;
    RETURN ARRAY(SELECT simsql._column_name(table_id, n.number)
                   FROM unnest(numbers) WITH ORDINALITY AS n (number, place) ORDER BY n.place);
END
$$;

-- An index with the current names of its table and columns.
CREATE OR REPLACE FUNCTION simsql._as_named(index simsql.registry) RETURNS simsql.registry
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    columns constant text[] := simsql._current_columns(
        index.table_id, index.id, index.column_name || index.scope_columns);
BEGIN
    index.table_name := simsql._full_name(index.table_id);
    index.column_name := columns[1];
    index.scope_columns := columns[2:];
    RETURN index;
END
$$;

-- The columns that do not have their registered names any more: those that swapped names would silently be
-- mixed up. And those that were replaced by a virtual one, whose values PostgreSQL does not pass to triggers.
CREATE OR REPLACE FUNCTION simsql._column_faults(table_id regclass, registered text[], columns text[])
RETURNS simsql._fault[]
LANGUAGE sql STABLE
AS $$
    SELECT ARRAY(
        SELECT (f.problem, quote_ident(coalesce(c.name, c.was)), f.state, 'refuses',
                format('column %I of %s was ',
                       CASE f.what WHEN 'renamed or dropped' THEN c.was ELSE c.name END, table_id)
                || f.what || ' after its simhash index was created',
                f.advice,
                CASE f.state WHEN 'column renamed' THEN format('SELECT * FROM simsql.repair(%L);', table_id)
                     ELSE format('SELECT simsql.drop_index(%L, %L);', table_id, registered[1]) END
               )::simsql._fault
          FROM unnest(registered, columns) WITH ORDINALITY AS c (was, name, place)
          LEFT JOIN pg_attribute AS a ON a.attrelid = table_id AND a.attname = c.name
         CROSS JOIN LATERAL (VALUES
               ('column dropped', 'column dropped', 'renamed or dropped',
                'If it was dropped:', c.name IS NULL),
               ('column renamed', 'column renamed', 'renamed or dropped',
                'Rename it back, or let the index follow the column:', c.name <> c.was),
               ('column is no longer a stored bigint', 'column type changed',
                'replaced by a virtual generated column', 'Drop the index:', a.attgenerated = 'v'))
               AS f (problem, state, what, advice, is_so)
         WHERE f.is_so
         ORDER BY f.state = 'column type changed', c.place)
$$;

-- The fault of the registry. The policies of key tables read it with the privileges of the role that searches.
CREATE OR REPLACE FUNCTION simsql._registry_faults() RETURNS simsql._fault[]
LANGUAGE sql STABLE
AS $$
    SELECT ARRAY(
        SELECT ('row-level security', 'simsql.registry', 'damaged',
                CASE WHEN row_security_active(c.oid) THEN 'refuses' ELSE 'may miss rows' END,
                format('row-level security hides simsql.registry from role %s', current_user),
                'Turn it off:', 'ALTER TABLE simsql.registry DISABLE ROW LEVEL SECURITY;')::simsql._fault
          FROM pg_class AS c WHERE c.oid = 'simsql.registry'::regclass AND c.relrowsecurity)
$$;

-- The faults of an index. Those that make searches refuse it come in the order in which a search looks for
-- them. The state of an index in simsql.indexes, and the error of a search, come from a quick look;
-- `thorough` also compares all functions and key tables with what create_index makes, and asks shards.
CREATE OR REPLACE FUNCTION simsql._faults(index simsql.registry, thorough boolean DEFAULT false)
RETURNS simsql._fault[]
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    actual constant simsql.registry := simsql._as_named(index);
    registered constant text[] := index.column_name || index.scope_columns;
    columns constant text[] := actual.column_name || actual.scope_columns;
    at constant text := format('%s(%I)', index.table_id, index.column_name);
    search constant text := 'simsql.search_' || index.id;
    repair constant text := format('SELECT * FROM simsql.repair(%L);', index.table_id);
    drop_it constant text := format('SELECT simsql.drop_index(%L, %L);', index.table_id, index.column_name);
    faults simsql._fault[] := simsql._registry_faults();
    recreated regclass;
BEGIN
    IF actual.table_name IS DISTINCT FROM index.table_name THEN
        recreated := simsql._recreated(index);
        IF recreated IS NOT NULL THEN
            RETURN ARRAY[('table re-created', index.table_name, 'table re-created', 'refuses',
                          format('table %s was re-created after its simhash index was created', recreated),
                          'Let the index follow:',
                          format('SELECT * FROM simsql.repair(%L);', recreated))::simsql._fault];
        ELSIF actual.table_name IS NULL THEN
            RETURN ARRAY[('table dropped', index.table_name, 'table dropped', 'refuses',
                          format('table %s was dropped', index.table_name),
                          'Drop the index:', drop_it)::simsql._fault];
        END IF;
        faults := faults || ('table renamed', actual.table_name, 'table renamed', 'refuses',
                             format('table %s was called %s when its simhash index was created',
                                    index.table_id, index.table_name),
                             'Rename it back, or let the index follow the table:', repair)::simsql._fault;
    END IF;
    IF to_regprocedure(search || CASE index.scope_columns WHEN '{}' THEN '(bigint,integer)'
                                 ELSE '(bigint,integer,jsonb)' END) IS NULL THEN
        IF EXISTS (SELECT FROM pg_proc AS p
                    WHERE p.pronamespace = 'simsql'::regnamespace AND p.proname = 'search_' || index.id
                      AND p.pronargs = CASE index.scope_columns WHEN '{}' THEN 2 ELSE 3 END)
        THEN
            RETURN faults || ('index dropped', actual.table_name, 'index dropped', 'refuses',
                              format('the simhash index on %s was dropped after this transaction took its '
                                     'snapshot', at),
                              'Start a new transaction.', NULL)::simsql._fault;
        END IF;
        faults := faults || ('function missing', search, 'damaged', 'refuses',
                             format('the search function of the simhash index on %s is missing', at),
                             'Create it again:', repair)::simsql._fault;
    END IF;
    faults := faults || simsql._column_faults(index.table_id, registered, columns);
    -- Triggers make PostgreSQL refuse to change a type; B-trees do not.
    faults := faults || ARRAY(
        SELECT (CASE c.place WHEN 1 THEN 'column is no longer a stored bigint' ELSE 'column type changed' END,
                quote_ident(c.name), 'column type changed', 'refuses',
                format('column %I of %s changed its type after its simhash index was created',
                       c.name, index.table_id),
                CASE WHEN m.can_follow THEN 'Let the index follow:' ELSE 'Drop the index:' END,
                CASE WHEN m.can_follow THEN repair ELSE drop_it END)::simsql._fault
          FROM unnest(columns, 'bigint'::regtype || index.scope_types)
               WITH ORDINALITY AS c (name, type, place)
          JOIN pg_attribute AS a
            ON a.attrelid = index.table_id AND a.attname = c.name AND a.attgenerated <> 'v'
         CROSS JOIN LATERAL (
               SELECT c.place > 1 AND simsql._fits_scope(simsql._base_type(a.atttypid))) AS m (can_follow)
         WHERE a.atttypid IS DISTINCT FROM c.type
           AND (c.place = 1 OR simsql._base_type(a.atttypid) IS DISTINCT FROM c.type)
         ORDER BY m.can_follow, c.place);
    faults := faults || simsql._storage_faults(index, actual, thorough);
    IF NOT index.ready THEN
        faults := faults || ('not ready', actual.table_name, 'building', 'refuses',
                             format('the simhash index on %s is still being built', at),
                             'Wait for the build to finish. If it was interrupted:',
                             simsql._build_call(actual))::simsql._fault;
    END IF;
    IF thorough AND array_position(columns, NULL) IS NULL THEN
        faults := faults || ARRAY(
            SELECT (f.problem, 'simsql.' || d.name, 'damaged', f.effect, NULL, NULL, repair)::simsql._fault
              FROM simsql._functions(index) AS d
              LEFT JOIN pg_proc AS p ON p.oid = to_regprocedure(format('simsql.%I%s', d.name, d.arguments))
             CROSS JOIN LATERAL (VALUES
                   ('function missing', 'may miss rows', p.oid IS NULL AND 'simsql.' || d.name <> search),
                   ('function altered', 'may miss rows',
                    p.oid IS NOT NULL
                    AND (p.prosrc <> d.body OR p.proconfig IS DISTINCT FROM d.settings
                         OR p.prosecdef <> (d.head LIKE '%SECURITY DEFINER%')
                         OR p.provolatile <> CASE WHEN d.head LIKE '%STABLE%' THEN 's' ELSE 'v' END)),
                   -- pg_restore --no-acl leaves it like this.
                   ('function can be called by others', 'grants to others',
                    d.head LIKE '%SECURITY DEFINER%' AND EXISTS (SELECT simsql._other_callers(p.oid))))
                   AS f (problem, effect, is_so)
             WHERE f.is_so)
            || simsql._btree_faults(index, index.table_id, simsql._btree_columns(actual));
    END IF;
    RETURN faults;
END
$$;

-- Tells whether a table of an index has a valid B-tree on these columns.
CREATE OR REPLACE FUNCTION simsql._btree_faults(index simsql.registry, table_id regclass, column_names text[])
RETURNS simsql._fault[]
LANGUAGE sql STABLE
AS $$
    SELECT CASE WHEN bool_or(b.valid) THEN '{}'
           ELSE array_agg((CASE WHEN b.index IS NULL THEN 'B-tree missing' ELSE 'B-tree invalid' END,
                           coalesce(b.index::text,
                                    format('%s (%s)', table_id, simsql._name_list(column_names))),
                           'B-trees missing', 'slows', NULL, NULL,
                           format('SELECT * FROM simsql.repair(%L);', index.table_id))::simsql._fault) END
      FROM (VALUES (1)) AS one
      LEFT JOIN simsql._btrees(table_id, column_names) AS b ON true
$$;

-- Whether searches accept an index.
CREATE OR REPLACE FUNCTION simsql._is_searchable(index simsql.registry) RETURNS boolean
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN NOT EXISTS (SELECT FROM unnest(simsql._faults(index)) AS f
                        WHERE f.effect IN ('refuses', 'refuses this role'));
END
$$;

-- The columns of simsql.indexes that tell how an index is: the state and the remedy of its worst fault, and
-- otherwise the advice of its storage. A `sound` index, as _searchable calls it, has no faults but those of its
-- storage. It is a function because Citus copies a view that names the columns of a composite type to new
-- nodes, with the functions that it calls and without the registry.
CREATE OR REPLACE FUNCTION simsql._health(
    index simsql.registry, sound boolean, OUT state text, OUT unvacuumed double precision,
    OUT last_vacuum timestamptz, OUT hint text)
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    faults constant simsql._fault[] := CASE WHEN sound THEN simsql._storage_faults(index, index, false)
                                            ELSE simsql._faults(index) END;
    advice text;
BEGIN
    SELECT f.state, concat_ws(' ', f.advice, f.remedy) INTO state, hint
      FROM unnest(faults) WITH ORDINALITY AS f
     WHERE f.effect <> 'refuses this role'
     ORDER BY array_position('{refuses,may miss rows,slows}', f.effect), f.ordinality
     LIMIT 1;
    state := coalesce(state, 'ready');
    SELECT a.unvacuumed, a.last_vacuum, a.hint INTO unvacuumed, last_vacuum, advice
      FROM simsql._storage_advice(index) AS a;
    hint := coalesce(hint, advice);
END
$$;

-- Raises the error of a fault that makes searches refuse an index.
CREATE OR REPLACE FUNCTION simsql._raise(fault simsql._fault) RETURNS void
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RAISE EXCEPTION 'simsql: %', fault.message
        USING ERRCODE = CASE fault.problem WHEN 'index dropped' THEN 'undefined_object'
                        ELSE 'object_not_in_prerequisite_state' END,
              HINT = concat_ws(' ', fault.advice, fault.remedy);
END
$$;

-- Raises the first fault that makes searches refuse an index. To a build, it is not one that the index is not
-- ready.
CREATE OR REPLACE FUNCTION simsql._check_sound(index simsql.registry, is_building boolean DEFAULT false)
RETURNS void
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    PERFORM simsql._raise(f)
       FROM unnest(simsql._faults(index)) AS f
      WHERE f.effect IN ('refuses', 'refuses this role') AND NOT (is_building AND f.problem = 'not ready');
END
$$;

-- Raises an error if the columns of an index do not have the names that its triggers use. They read no table
-- of simsql.
CREATE OR REPLACE FUNCTION simsql._check_columns(table_id regclass, index_id integer, column_names text[])
RETURNS void
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    PERFORM simsql._raise(f)
       FROM unnest(simsql._column_faults(
                table_id, column_names, simsql._current_columns(table_id, index_id, column_names))) AS f;
END
$$;


-- The functions that create_index generates for the searches of an index.

-- After this many candidates a search starts over and skips equal keys, which takes twice as long if all keys
-- are different. Most searches have fewer candidates, and these are read in less than a millisecond.
CREATE OR REPLACE FUNCTION simsql._candidates() RETURNS integer
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN 2000;

-- What the templates of an index refer to, as `shared` of _render. Values of the scope are those of `scope`,
-- or SQL expressions in `variables`: scope_1, scope_2 and so on.
CREATE OR REPLACE FUNCTION simsql._parts(index simsql.registry, scope jsonb, variables jsonb DEFAULT '{}')
RETURNS jsonb
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    scoped constant boolean := index.scope_columns <> '{}';
BEGIN
    RETURN jsonb_build_object(
        'id', index.id,
        'table', index.table_name,
        'rows', simsql._rows_of(index),
        'column', index.column_name,
        'scope', scope::text,
        'scope_of_keys', CASE WHEN scoped THEN simsql._for_scope(
            index, ' AND k.%1$s = %3$s', scope, variables) END,
        'scope_of_rows', CASE WHEN scoped THEN simsql._for_scope(
            index, ' AND t.%2$I = %3$s', scope, variables) END,
        'no_scope', CASE WHEN scoped THEN simsql._for_scope(index, ' AND t.%2$I IS NULL') END,
        'guard', simsql._guard(index),
        'candidate_limit', simsql._candidates());
END
$$;

-- The variables of a search: the keys of the fingerprint, the flips of their bits, the distance of candidates
-- and the scope. Each has a name, a type, the expression of its value for the fingerprint $1, the distance $2
-- and the scope $3, and the strategies that use it. If a permutation need not be read at this distance, its
-- key is null, so none of its ranges are looked up.
CREATE OR REPLACE FUNCTION simsql._search_variables(index simsql.registry)
RETURNS TABLE (place integer, name text, type text, value text, strategies text[])
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    reads constant jsonb := simsql._storage_reads(index);
    branch record;
    radius text;
BEGIN
    place := 0;
    FOR branch IN SELECT b.* FROM simsql._storage_branches(index) AS b ORDER BY b.number LOOP
        place := place + 1;
        radius := format('simsql._radius(%s, $2)',
                         concat_ws(', ', index.blocks, index.lead, index.inner_blocks, branch.number));
        name := 'key_' || branch.number;
        type := 'bigint';
        value := CASE WHEN simsql._radius(index.blocks, index.lead, index.inner_blocks, branch.number, 0) < 0
                      THEN format('CASE WHEN %s >= 0 THEN %s END', radius, branch.key) ELSE branch.key END;
        strategies := '{exact,probes,skip}';
        RETURN NEXT;
        -- A few flips are constants: a search at radius 1 takes about as long as computing them would.
        name := 'flips_' || branch.number;
        type := 'bigint[]';
        value := simsql._render($sql$CASE {radius} WHEN 0 THEN '{0}' WHEN 1 THEN {'one'}::bigint[]{two}
            ELSE simsql._flips({'flipped'}, {radius}) END$sql$, jsonb_build_object(
                'radius', radius, 'flipped', branch.flipped, 'one', simsql._flips(branch.flipped, 1)::text,
                'two', CASE WHEN simsql._ways(bit_count(branch.flipped::bit(64))::integer, 2) <= 600
                            THEN format(' WHEN 2 THEN %L::bigint[]', simsql._flips(branch.flipped, 2)) END));
        value := simsql._render(reads ->> 'flips', '{}',
                                jsonb_build_object('key', branch.key, 'flips', value));
        strategies := '{probes,skip}';
        RETURN NEXT;
    END LOOP;
    IF reads ? 'candidates' THEN
        place := place + 1;
        name := 'reach';
        type := 'integer';
        value := 'greatest($2 + 4, 12)';
        strategies := '{exact,probes}';
        RETURN NEXT;
    END IF;
    RETURN QUERY
    SELECT _search_variables.place + s.number, s.name, s.type,
           format('($3 ->> %L)::%s', s.column_name, s.type), '{exact,probes,skip,scan,check}'::text[]
      FROM simsql._scope_columns(index) AS s;
END
$$;

-- The statement of a search in an index: search functions and explain_near run exactly this one. `variables`
-- tells how it names those above, and `candidates`.
--   exact   one range per permutation: the prefix has to be equal
--   probes  one range per permutation and flip of its prefix
--   skip    the same ranges, without the copies of equal keys
--   scan    everything, or everything in the scope
--   check   the candidates that the first three return instead of matches, if the storage has copies
CREATE OR REPLACE FUNCTION simsql._search_statement(
    index simsql.registry, strategy text, variables jsonb DEFAULT NULL)
RETURNS text
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    reads constant jsonb := simsql._storage_reads(index);
    names constant jsonb := coalesce(
        variables, (SELECT jsonb_object_agg(v.name, v.name) || '{"candidates": "candidates"}'
                      FROM simsql._search_variables(index) AS v));
    shared constant jsonb := simsql._parts(index, NULL, names)
                             || jsonb_build_object('reach', names ->> 'reach');
    template text := 'matches';
    source text;
BEGIN
    source := CASE strategy
        WHEN 'check' THEN format('unnest(%s)', names ->> 'candidates')
        WHEN 'scan' THEN simsql._render(reads ->> 'all', '{}', shared)
        ELSE (SELECT string_agg(
                         simsql._render(reads ->> strategy, '{}', shared || b.parts || jsonb_build_object(
                             'key', names ->> ('key_' || b.number),
                             'flips', names ->> ('flips_' || b.number))),
                         reads ->> 'between' ORDER BY b.number)
                FROM simsql._storage_branches(index) AS b) END;
    IF strategy = 'skip' THEN
        RETURN source;
    ELSIF strategy IN ('exact', 'probes') AND reads ? 'candidates' THEN
        template := 'candidates';
    END IF;
    RETURN simsql._render(reads ->> template, jsonb_build_object('source', source), shared);
END
$$;

-- What decides between the strategies: the greatest distance at which no prefix is flipped; the greatest one
-- at which probing pays from at most a thousand rows on; and beyond that, the condition under which probing
-- at the distance $2 is expected to be cheaper than a scan. Where only counting tells the number of rows, it
-- stops as soon as probing begins to pay. So it costs less than the scan that it saves, and neither old
-- statistics nor uneven keys can mislead it.
CREATE OR REPLACE FUNCTION simsql._search_decision(
    index simsql.registry, variables jsonb, OUT exact_up_to integer, OUT probed_up_to integer, OUT pays text)
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    reads constant jsonb := simsql._storage_reads(index);
    scan_below constant bigint[] := simsql._scan_below(
        index.blocks, index.lead, index.inner_blocks, index.candidate_shares);
BEGIN
    SELECT max(d) INTO exact_up_to FROM generate_series(0, 64) AS d
     WHERE simsql._radius(index.blocks, index.lead, index.inner_blocks, 0, d) <= 0;
    SELECT min(d) - 1 INTO probed_up_to FROM generate_series(0, 64) AS d
     WHERE coalesce(scan_below[d + 1] > 1000, true);
    pays := simsql._render(
        coalesce(CASE WHEN index.scope_columns <> '{}' THEN reads ->> 'pays_in_scope' END, reads ->> 'pays'),
        '{}', simsql._parts(index, NULL, variables)
              || jsonb_build_object('least_rows', format('(%L::bigint[])[$2 + 1]', scan_below)));
END
$$;

-- Two generated functions per index, with the design and the names as constants. They run with the caller's
-- privileges: the policy of the key tables and the privileges on the user's table decide who may search.
-- Values to compare with are computed once, in variables; within the statement, each occurrence would be
-- compiled at every call. Candidates are collected first: most searches have none, and then no row has to be
-- looked up.
--
-- A generic plan cannot know how narrow a range is. With the settings below it is a nested loop of index
-- scans, whatever the estimates, and it is planned once per session. A scan runs within the search function,
-- under its settings except for those that it resets; a hash join would read the user's whole table for the
-- few matching rows. Within a scope, the scan is an index-only scan like the others: a sequential scan would
-- read the keys of all scopes.
CREATE OR REPLACE FUNCTION simsql._search_functions(index simsql.registry)
RETURNS TABLE (name text, arguments text, head text, settings text[], body text)
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    scoped constant boolean := cardinality(index.scope_columns) > 0;
    reads constant jsonb := simsql._storage_reads(index);
    variables jsonb;
    declared jsonb;
    decision jsonb;
BEGIN
    SELECT jsonb_object_agg(v.name, v.name) || '{"candidates": "candidates"}',
           jsonb_build_object(
               'scope', string_agg(d.constant, '' ORDER BY v.place)
                        FILTER (WHERE 'scan' = ANY (v.strategies)),
               'constants', string_agg(d.constant, '' ORDER BY v.place)
                            FILTER (WHERE 'exact' = ANY (v.strategies)),
               'flips', string_agg(format(E'\n    %s %s;', v.name, v.type), '' ORDER BY v.place)
                        FILTER (WHERE 'exact' <> ALL (v.strategies)),
               'flip', string_agg(format(E'\n        %s := %s;', v.name, v.value), '' ORDER BY v.place)
                       FILTER (WHERE 'exact' <> ALL (v.strategies)))
      INTO variables, declared
      FROM simsql._search_variables(index) AS v
     CROSS JOIN LATERAL format(E'\n    %s constant %s := %s;', v.name, v.type, v.value) AS d (constant);
    arguments := CASE WHEN scoped THEN '(bigint, integer, jsonb)' ELSE '(bigint, integer)' END;
    head := 'RETURNS SETOF simsql.match LANGUAGE plpgsql STABLE ROWS 10';
    name := 'scan_' || index.id;
    settings := ARRAY['search_path=pg_catalog, pg_temp', 'enable_hashagg=on']
                || CASE WHEN NOT scoped THEN ARRAY['enable_seqscan=on'] END;
    body := simsql._render($body$#variable_conflict use_variable
DECLARE{scope}
BEGIN
    RETURN QUERY
{scan};
END$body$, jsonb_build_object(
        'scope', declared ->> 'scope', 'scan', simsql._search_statement(index, 'scan', variables)));
    RETURN NEXT;
    name := 'search_' || index.id;
    settings := 'search_path=pg_catalog, pg_temp'::text || CASE WHEN reads ? 'settings'
        THEN ARRAY(SELECT jsonb_array_elements_text(reads -> 'settings'))
        ELSE ARRAY['plan_cache_mode=force_generic_plan', 'jit=off', 'enable_seqscan=off',
                   'enable_bitmapscan=off', 'enable_hashagg=off', 'enable_hashjoin=off',
                   'enable_mergejoin=off', 'enable_material=off', 'max_parallel_workers_per_gather=0'] END;
    SELECT to_jsonb(d) INTO decision FROM simsql._search_decision(index, variables) AS d;
    -- A variable of the scope has the same name as the key column that it is compared with.
    body := simsql._render($body$#variable_conflict use_variable
DECLARE{constants}{flips}{candidates}
    probing boolean := true;
BEGIN
    IF $2 > {probed_up_to} THEN
        probing := {pays};
    END IF;
    IF NOT coalesce(probing, false) THEN
        RETURN QUERY SELECT * FROM simsql.scan_{id}($1, $2{scope});
        RETURN;
    END IF;
{search}
END$body$, jsonb_build_object(
        'constants', declared ->> 'constants', 'flips', declared ->> 'flips', 'id', index.id,
        'candidates', CASE WHEN reads ? 'candidates' THEN E'\n    candidates bigint[];' END,
        'scope', CASE WHEN scoped THEN ', $3' END,
        'probed_up_to', decision -> 'probed_up_to', 'pays', decision ->> 'pays',
        'search', simsql._render(CASE WHEN reads ? 'candidates' THEN $body$    IF $2 <= {exact_up_to} THEN
        candidates := ARRAY({exact});
    END IF;
    IF $2 > {exact_up_to} OR cardinality(candidates) = {limit} THEN{flip}
        IF $2 > {exact_up_to} THEN
            candidates := ARRAY({probes});
        END IF;
        IF cardinality(candidates) = {limit} THEN
            candidates := ARRAY({skip});
        END IF;
    END IF;
    IF cardinality(candidates) > 0 THEN
        RETURN QUERY
{check};
    END IF;$body$ ELSE $body$    IF $2 <= {exact_up_to} THEN
        RETURN QUERY
{exact};
    ELSE{flip}
        RETURN QUERY
{probes};
    END IF;$body$ END, '{}', jsonb_build_object(
            'exact_up_to', decision -> 'exact_up_to', 'limit', simsql._candidates(),
            'flip', declared ->> 'flip')
            || (SELECT jsonb_object_agg(s, simsql._search_statement(index, s, variables))
                  FROM unnest(ARRAY['exact', 'probes', 'skip', 'check']) AS s
                 WHERE reads ? s OR s = 'check' AND reads ? 'candidates'))));
    RETURN NEXT;
END
$$;


-- Skew: how many keys a search really reads.
--
-- Fingerprints of texts are not random bits. Some prefixes are a hundred times as frequent as others, and a
-- search for a text is likely to meet those. So create_index, build and vacuum measure the keys that searches
-- for some of the stored fingerprints read, and keep one number for each distance in the registry. These
-- numbers are averages over the whole table and tell nothing about single rows. They decide only whether near
-- probes or scans; results do not depend on them.

-- The number of keys in the ranges of these fingerprints whose prefixes differ in `fewest` to `most` bits,
-- without keys equal to that of the fingerprint itself.
CREATE OR REPLACE FUNCTION simsql._count_keys(
    index simsql.registry, number integer, fingerprints bigint[], fewest integer, most integer,
    scope jsonb DEFAULT NULL)
RETURNS bigint
LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET enable_bitmapscan = off SET max_parallel_workers_per_gather = 0 SET jit = off
AS $$
DECLARE
    flips bigint[];
    parts jsonb;
    keys bigint;
BEGIN
    SELECT ARRAY(SELECT f FROM unnest(simsql._flips(b.flipped, most)) AS f
                  WHERE bit_count(f::bit(64)) >= fewest), b.parts
      INTO flips, parts
      FROM simsql._storage_branches(index) AS b WHERE b.number = _count_keys.number;
    EXECUTE simsql._render(simsql._storage_reads(index) ->> 'count', '{}',
                           simsql._parts(index, scope) || parts)
       INTO keys USING fingerprints, flips;
    RETURN keys;
END
$$;

-- Measures an index and returns it with what was measured: for each distance from 0 to 64, the expected keys
-- in the ranges of a search for a stored fingerprint, as a share of all keys; it may exceed 1. Null if there
-- are fewer than a thousand keys. For each number of differing bits of a prefix, the share of other keys
-- follows from pairs of sampled keys. Where there are few such pairs, the ranges of the B-tree are counted
-- instead: they hold few keys, even in a large table. Rare keys count as if they were random if the index has
-- a scope, since no range holds the keys of all scopes, or if the storage reads more than the ranges to count
-- them.
CREATE OR REPLACE FUNCTION simsql._learn_skew(index simsql.registry) RETURNS simsql.registry
LANGUAGE plpgsql
SET enable_hashagg = on SET max_parallel_workers_per_gather = 0 SET jit = off
AS $$
DECLARE
    percent double precision := least(100, 100 * 4000 / greatest(1, simsql._storage_keys(index)));
    sampled bigint[];
    queries bigint[];
    counted bigint[];
    others bigint[];
    keys double precision;
    permutation record;
    hits bigint[];
    pairs double precision;
    ways double precision;
    reached double precision[];
    common boolean;
    share double precision;
    shares double precision[] := array_fill(0::double precision, ARRAY[65]);
    reads constant jsonb := simsql._storage_reads(index);
    counts_rare_keys constant boolean := index.scope_columns = '{}'
                                         AND (reads -> 'counts_rare_keys')::boolean;
BEGIN
    <<measured>>
    BEGIN
        LOOP
            -- (Citus mistakes the type of a parameter here.)
            EXECUTE simsql._render(reads ->> 'sample', jsonb_build_object('percent', percent),
                                   simsql._parts(index, NULL))
               INTO sampled;
            EXIT WHEN cardinality(sampled) >= 1000 OR percent = 100;
            percent := least(100, 10 * percent);  -- most of the table is free space
        END LOOP;
        keys := cardinality(sampled) * 100 / percent;
        IF keys < 1000 THEN
            shares := NULL;
            EXIT measured;
        END IF;
        queries := ARRAY(SELECT sampled[1 + n * cardinality(sampled) / 300]
                           FROM generate_series(0, 299) AS n ORDER BY n * 7 % 300);
        others := ARRAY(SELECT sampled[1 + n * cardinality(sampled) / 500] FROM generate_series(0, 499) AS n);
        FOR permutation IN
            SELECT p.* FROM simsql._permutations(index.blocks, index.lead, index.inner_blocks) AS p
        LOOP
            SELECT array_agg(coalesce(h.hits, 0) ORDER BY bits), sum(h.hits) INTO hits, pairs
              FROM generate_series(0, permutation.prefix) AS bits
              LEFT JOIN (SELECT bit_count(((q # o) & permutation.lead_mask)::bit(64)) AS bits,
                                count(*) AS hits
                           FROM unnest(queries) AS q CROSS JOIN unnest(others) AS o
                          WHERE q <> o
                          GROUP BY 1) AS h USING (bits);
            IF pairs IS NULL THEN  -- all keys are equal
                shares := NULL;
                EXIT measured;
            END IF;
            reached := '{}';
            common := false;
            FOR bits IN 0 .. permutation.prefix LOOP
                ways := CASE bits WHEN 0 THEN 1 ELSE ways * (permutation.prefix - bits + 1) / bits END;
                common := common OR hits[bits + 1] >= 50;
                counted := queries[:least(300, 30000 / ways)::integer];  -- at most 30,000 ranges
                share := CASE WHEN common THEN hits[bits + 1] / pairs
                              WHEN ways <= 600 AND counts_rare_keys
                              THEN simsql._count_keys(index, permutation.number, counted, bits, bits)
                                   / (cardinality(counted) * keys)
                              ELSE greatest(hits[bits + 1] / pairs,
                                            ways / 2::double precision ^ permutation.prefix) END;
                reached := reached || coalesce(reached[bits], 0) + share;
            END LOOP;
            SELECT array_agg(shares[d + 1] + coalesce(reached[least(r.radius, permutation.prefix) + 1], 0)
                             ORDER BY d)
              INTO shares
              FROM generate_series(0, 64) AS d
             CROSS JOIN LATERAL simsql._radius(
                   index.blocks, index.lead, index.inner_blocks, permutation.number, d) AS r (radius);
        END LOOP;
    END;
    UPDATE simsql.registry AS r SET candidate_shares = shares
     WHERE r.id = index.id
    RETURNING r.* INTO index;
    RETURN index;
END
$$;

-- Measures an existing index again and replaces its search functions, if this role may.
CREATE OR REPLACE FUNCTION simsql._relearn_skew(index simsql.registry) RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    function record;
BEGIN
    IF NOT (has_table_privilege('simsql.registry', 'UPDATE') AND has_schema_privilege('simsql', 'CREATE'))
    THEN
        RETURN;
    END IF;
    index := simsql._learn_skew(index);
    FOR function IN
        SELECT f.* FROM simsql._search_functions(index) AS f
         WHERE to_regprocedure(format('simsql.%I%s', f.name, f.arguments)) IS NOT NULL
    LOOP
        PERFORM simsql._create_function(
            function.name, function.arguments, function.head, function.settings, function.body);
    END LOOP;
END
$$;

-- For searches at a distance: the share of all keys that the index expects in their ranges, and the mean
-- number of keys in those of these fingerprints, not counting their own.
CREATE OR REPLACE FUNCTION simsql._measured_candidates(
    table_name regclass, fingerprints bigint[], distance integer, column_name text, scope jsonb,
    OUT share double precision, OUT candidates double precision)
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    index constant simsql.registry := simsql._searched_index(table_name, column_name, scope);
BEGIN
    share := index.candidate_shares[distance + 1];
    IF cardinality(fingerprints) > 0 THEN
        SELECT sum(simsql._count_keys(index, p.number, fingerprints, 0, r.radius, scope))
               / cardinality(fingerprints)::double precision
          INTO candidates
          FROM simsql._permutations(index.blocks, index.lead, index.inner_blocks) AS p
         CROSS JOIN LATERAL simsql._radius(
               index.blocks, index.lead, index.inner_blocks, p.number, distance) AS r (radius);
    END IF;
END
$$;

-- The number of fingerprints in a table, and a random sample of about `size` of them. The table needs no
-- index if the column is given.
CREATE OR REPLACE FUNCTION simsql._sampled_fingerprints(
    table_name regclass, column_name text, size integer, OUT rows bigint, OUT fingerprints bigint[])
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    sampled constant text := coalesce(column_name, (simsql._index(table_name, NULL)).column_name);
    shared constant jsonb := jsonb_build_object(
        'column', sampled, 'guard', simsql._guard(table_name::text, sampled),
        'rows', CASE WHEN EXISTS (SELECT FROM pg_class AS c WHERE c.oid = table_name AND c.relkind = 'r')
                     THEN 'ONLY ' ELSE '' END || table_name);
BEGIN
    EXECUTE simsql._render($sql$SELECT count(t.{"column"}) FROM {rows} AS t WHERE {guard}$sql$, '{}', shared)
       INTO rows;
    EXECUTE simsql._render($sql$SELECT ARRAY(
        SELECT t.{"column"} FROM {rows} AS t TABLESAMPLE bernoulli ({percent}) REPEATABLE (0)
         WHERE t.{"column"} IS NOT NULL AND {guard})$sql$,
        jsonb_build_object('percent', least(100, 100 * size / greatest(1, rows)::double precision)), shared)
       INTO fingerprints;
END
$$;


-- Single searches: near, near_rows and explain_near.

-- near calls the search functions of the first 32 ids by static statements, which are planned once per
-- session. Parsing and planning a dynamic one takes a fifth of the time that a client waits for near.
DO $do$
DECLARE
    calls text[] := ARRAY(SELECT simsql._render($sql$
        IF scope IS NULL THEN
            RETURN QUERY
            SELECT s.fingerprint, s.distance FROM simsql.search_{id}(fingerprint, asked) AS s;
        ELSE
            RETURN QUERY
            SELECT s.fingerprint, s.distance FROM simsql.search_{id}(fingerprint, asked, scope) AS s;
        END IF;$sql$, jsonb_build_object('id', id)) FROM generate_series(1, 32) AS id ORDER BY id);
    span integer := 1;
BEGIN
    -- A binary search for the id.
    WHILE cardinality(calls) > 1 LOOP
        calls := ARRAY(SELECT format(E'\n        IF index_id <= %s THEN%s\n        ELSE%s\n        END IF;',
                                     (n - 1) * span + span, calls[n], calls[n + 1])
                         FROM generate_series(1, cardinality(calls), 2) AS n ORDER BY n);
        span := span * 2;
    END LOOP;
    EXECUTE simsql._render($create$
CREATE OR REPLACE FUNCTION simsql.near(
    table_name regclass, fingerprint bigint, distance integer DEFAULT NULL, column_name text DEFAULT NULL,
    scope jsonb DEFAULT NULL)
RETURNS SETOF simsql.match
LANGUAGE plpgsql STABLE ROWS 10
AS $$
DECLARE
    index_id integer;
    of_index integer;
    scope_columns text[];
    is_sound boolean;
    asked integer := distance;
    fits boolean;
    is_current constant boolean := simsql._is_current();
BEGIN
    BEGIN
        SELECT s.id, s.distance, s.scope_columns, s.sound
          INTO STRICT index_id, of_index, scope_columns, is_sound
          FROM simsql._searchable AS s
         WHERE s.table_id = near.table_name
           AND simsql._is_meant(s.column_name, s.is_default, near.column_name);
    EXCEPTION
        WHEN no_data_found OR too_many_rows THEN PERFORM simsql._index(table_name, column_name);
        WHEN undefined_table THEN PERFORM simsql._refuse_worker('near');
    END;
    IF NOT is_sound THEN
        PERFORM simsql._index(table_name, column_name);
    END IF;
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        PERFORM simsql._check_snapshot(index_id);
    END IF;
    IF scope IS NOT NULL OR scope_columns <> '{}' THEN
        fits := jsonb_typeof(scope) = 'object' AND scope - scope_columns = '{}' AND scope_columns <> '{}';
        FOR place IN 1 .. cardinality(scope_columns) LOOP
            fits := fits AND jsonb_typeof(scope -> scope_columns[place]) IN ('string', 'number', 'boolean');
        END LOOP;
        IF fits IS NOT TRUE THEN
            PERFORM simsql._searched_index(table_name, column_name, scope);
        END IF;
    END IF;
    IF (asked BETWEEN 0 AND 64) IS NOT TRUE THEN
        asked := simsql._distance(distance, of_index);
    END IF;
    -- On Citus, the block would set a savepoint on each worker.
    IF index_id <= 32 AND current_setting('citus.version', true) IS NULL THEN
        BEGIN{calls}
        EXCEPTION
            WHEN undefined_table OR undefined_function THEN PERFORM simsql._refuse_changed(table_name, sqlerrm);
        END;
    ELSIF scope IS NULL THEN
        RETURN QUERY EXECUTE 'SELECT fingerprint, distance FROM simsql.search_' || index_id || '($1, $2)'
                       USING fingerprint, asked;
    ELSE
        RETURN QUERY EXECUTE 'SELECT fingerprint, distance FROM simsql.search_' || index_id || '($1, $2, $3)'
                       USING fingerprint, asked, scope;
    END IF;
    -- The search has locked the table by now.
    IF (SELECT c.relhassubclass OR c.relfilenode <> pg_relation_filenode(c.oid)
          FROM pg_class AS c WHERE c.oid = table_name)
    THEN
        PERFORM simsql._check_rewritten(table_name);
    END IF;
END
$$
$create$, jsonb_build_object('calls', calls[1]));
END
$do$;

COMMENT ON TYPE simsql.match IS 'a fingerprint of a row, and its distance in bits from the one that was searched for';
COMMENT ON FUNCTION simsql.near(regclass, bigint, integer, text, jsonb) IS
    'every fingerprint within the distance, once each, nearest first; '
    'only fingerprints of rows in the table or the scope';

-- The statement that returns the rows with the fingerprints $1, nearest to $2 first; `list` is the select
-- list, in which the table is called t. With a column of sketches, a row also needs a sketch within $4 bits
-- of $3, or none. near_rows needs the statement at each call, so it is put together without _render.
CREATE OR REPLACE FUNCTION simsql._rows_statement(
    index simsql.registry, scope jsonb, list text, sketch_column text DEFAULT NULL)
RETURNS text
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    fingerprint constant text := 't.' || quote_ident(index.column_name);
    sketch constant text := 't.' || quote_ident(sketch_column);
BEGIN
    RETURN 'SELECT ' || list || ' FROM ' || simsql._rows_of(index) || ' AS t'
           || ' WHERE ' || fingerprint || ' = ANY ($1)'
           || simsql._for_scope(index, ' AND t.%2$I = %3$s', scope)
           || ' AND ' || simsql._guard(index)
           || coalesce(' AND (' || sketch || ' IS NULL'
                       || ' OR bit_count((' || sketch || ' # $3)::bit(64)) <= $4)', '')
           || ' ORDER BY bit_count((' || fingerprint || ' # $2)::bit(64)), ' || fingerprint;
END
$$;

CREATE OR REPLACE FUNCTION simsql.near_rows(
    row_type anyelement, fingerprint bigint, distance integer DEFAULT NULL, column_name text DEFAULT NULL,
    scope jsonb DEFAULT NULL)
RETURNS SETOF anyelement
LANGUAGE plpgsql STABLE ROWS 10
AS $$
DECLARE
    is_coordinator constant boolean := simsql._is_coordinator('near_rows');
    searched constant regclass := (
        SELECT c.oid FROM pg_type AS y JOIN pg_class AS c ON c.oid = y.typrelid
         WHERE y.oid = pg_typeof(row_type) AND c.relkind <> 'c');
    found_fingerprints bigint[];
    index record;
BEGIN
    IF searched IS NULL THEN
        RAISE EXCEPTION 'simsql.near_rows: % is not the row type of a table', pg_typeof(row_type)
            USING ERRCODE = 'wrong_object_type', HINT = 'Pass NULL::article to search the table article.';
    END IF;
    -- Before the rows: Citus would send a search function to a shard.
    found_fingerprints := ARRAY(
        SELECT n.fingerprint
          FROM simsql.near(searched, near_rows.fingerprint, distance, column_name, scope) AS n);
    index := (SELECT r FROM simsql.registry AS r
               WHERE r.table_id = searched
                 AND simsql._is_meant(r.column_name, r.is_default, near_rows.column_name));
    RETURN QUERY EXECUTE simsql._rows_statement(index, scope, 't.*') USING found_fingerprints, fingerprint;
END
$$;

COMMENT ON FUNCTION simsql.near_rows(anyelement, bigint, integer, text, jsonb) IS
    'every row whose fingerprint is within the distance, nearest first: simsql.near_rows(NULL::article, ...)';

-- An expression for each column of a table `t` that can become JSON. Converting a value to JSON calls the
-- cast that the owner of its type may have created, so values of types that are not built in become text.
CREATE OR REPLACE FUNCTION simsql._json_columns(table_id regclass)
RETURNS TABLE (number smallint, name name, expression text)
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN QUERY
    SELECT a.attnum, a.attname,
           format(CASE WHEN y.typnamespace = 'pg_catalog'::regnamespace THEN 't.%1$I'
                       ELSE 'CASE WHEN num_nulls(t.%1$I) = 0 THEN format(''%%s'', t.%1$I) END' END, a.attname)
      FROM pg_attribute AS a
      JOIN pg_type AS y ON y.oid = simsql._base_type(a.atttypid)
     WHERE a.attrelid = table_id AND a.attnum > 0 AND NOT a.attisdropped;
END
$$;

-- The same for callers without a row type. It returns the distances too. The parameters are the table, the
-- fingerprint, the distance, the column and the scope; then, to return only rows with a near sketch or none,
-- the column of the sketches, a sketch, and the number of bits in which they may differ.
CREATE OR REPLACE FUNCTION simsql._near_documents(
    regclass, bigint, integer, text, jsonb, text DEFAULT NULL, bigint DEFAULT NULL, integer DEFAULT NULL)
RETURNS TABLE (fingerprint bigint, distance integer, document jsonb)
LANGUAGE plpgsql STABLE ROWS 10
AS $$
DECLARE
    found_fingerprints constant bigint[] := ARRAY(
        SELECT n.fingerprint FROM simsql.near($1, $2, $3, $4, $5) AS n);
    index constant simsql.registry := (
        SELECT r FROM simsql.registry AS r
         WHERE r.table_id = $1 AND simsql._is_meant(r.column_name, r.is_default, $4));
    columns constant text := (
        SELECT string_agg(format('%s AS %I', c.expression, c.name), ', ' ORDER BY c.number)
          FROM simsql._json_columns($1) AS c);
BEGIN
    RETURN QUERY EXECUTE simsql._rows_statement(index, $5, format(
                             't.%1$I, bit_count((t.%1$I # $2)::bit(64))::integer, '
                             '(SELECT to_jsonb(r) FROM (SELECT %2$s) AS r)', index.column_name, columns),
                             CASE WHEN $7 IS NOT NULL THEN $6 END)
                   USING found_fingerprints, $2, $7, $8;
END
$$;

-- The primary key, as a JSON array, of each row that has one of these fingerprints, in the order of the keys.
CREATE OR REPLACE FUNCTION simsql._keys_of_rows(
    table_name regclass, fingerprints bigint[], column_name text, scope jsonb)
RETURNS TABLE (fingerprint bigint, key jsonb)
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    index constant simsql.registry := simsql._searched_index(table_name, column_name, scope);
BEGIN
    RETURN QUERY EXECUTE (
        SELECT simsql._render($sql$
            SELECT t.{"column"}, jsonb_build_array({values})
              FROM {rows} AS t
             WHERE t.{"column"} = ANY ($1){scope_of_rows} AND {guard}
             ORDER BY {names}$sql$,
            jsonb_build_object('values', string_agg(c.expression, ', ' ORDER BY k.place),
                               'names', string_agg(format('t.%I', k.name), ', ' ORDER BY k.place)),
            simsql._parts(index, scope))
          FROM simsql._primary_key(table_name) AS k
          JOIN simsql._json_columns(table_name) AS c ON c.name = k.name)
      USING fingerprints;
END
$$;

-- Runs the statements of one search one after another, as the generated function does, and shows the plan of
-- each.
CREATE OR REPLACE FUNCTION simsql.explain_near(
    table_name regclass, fingerprint bigint, distance integer DEFAULT NULL, column_name text DEFAULT NULL,
    scope jsonb DEFAULT NULL)
RETURNS SETOF text
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    index constant simsql.registry := simsql._searched_index(table_name, column_name, scope);
    asked constant integer := simsql._distance(distance, index.distance);
    settings text[];
    -- The variables of the generated function are parameters here.
    names jsonb := '{"candidates": "$3"}';
    values_of_scope jsonb := '{}';
    types text[] := '{bigint,integer,bigint[]}';
    expressions text[];
    variable record;
    value text;
    decision record;
    pays boolean := true;
    strategy text;
    statement text;
    execution text;
    line text;
    has_candidates boolean;
    candidates bigint[];
BEGIN
    FOR variable IN SELECT v.* FROM simsql._search_variables(index) AS v ORDER BY v.place LOOP
        types := types || variable.type;
        names := names || jsonb_build_object(variable.name, '$' || cardinality(types));
        IF 'scan' = ANY (variable.strategies) THEN
            values_of_scope := values_of_scope || jsonb_build_object(variable.name, variable.value);
        END IF;
    END LOOP;
    decision := simsql._search_decision(index, values_of_scope);
    IF asked > decision.probed_up_to THEN
        EXECUTE 'SELECT coalesce(' || decision.pays || ', false)' INTO pays USING fingerprint, asked, scope;
    END IF;
    strategy := CASE WHEN NOT pays THEN 'scan'
                     WHEN asked <= decision.exact_up_to THEN 'exact' ELSE 'probes' END;
    RETURN NEXT format('strategy: %s, radius: %s', strategy,
                       simsql._radius(index.blocks, index.lead, index.inner_blocks, 0, asked));
    -- The settings under which this statement runs in near, for this call only. Later settings win.
    settings := ARRAY(SELECT unnest(p.proconfig) FROM pg_proc AS p
                       WHERE p.pronamespace = 'simsql'::regnamespace
                         AND (p.proname = 'search_' || index.id
                              OR strategy = 'scan' AND p.proname = 'scan_' || index.id)
                       ORDER BY p.proname LIKE 'scan%');
    BEGIN
        PERFORM set_config(split_part(s, '=', 1), split_part(s, '=', 2), true) FROM unnest(settings) AS s;
        LOOP
            expressions := ARRAY[quote_nullable(fingerprint), asked::text, quote_nullable(candidates)];
            FOR variable IN SELECT v.* FROM simsql._search_variables(index) AS v ORDER BY v.place LOOP
                value := NULL;
                IF strategy = ANY (variable.strategies) THEN
                    EXECUTE 'SELECT (' || variable.value || ')::text'
                       INTO value USING fingerprint, asked, scope;
                END IF;
                expressions := expressions || quote_nullable(value);
            END LOOP;
            statement := simsql._search_statement(index, strategy, names);
            has_candidates := simsql._storage_reads(index) ? 'candidates'
                              AND strategy IN ('exact', 'probes', 'skip');
            IF has_candidates THEN
                statement := 'SELECT ARRAY(' || statement || ')';
            END IF;
            -- An error in an earlier call leaves its prepared statement behind.
            IF EXISTS (SELECT FROM pg_prepared_statements AS s WHERE s.name = 'simsql_explain') THEN
                DEALLOCATE simsql_explain;
            END IF;
            EXECUTE format('PREPARE simsql_explain (%s) AS %s', array_to_string(types, ', '), statement);
            execution := format('EXECUTE simsql_explain (%s)', array_to_string(expressions, ', '));
            FOR line IN EXECUTE 'EXPLAIN (ANALYZE, BUFFERS) ' || execution LOOP
                RETURN NEXT line;
            END LOOP;
            IF has_candidates THEN
                EXECUTE execution INTO candidates;
            END IF;
            DEALLOCATE simsql_explain;
            EXIT WHEN NOT has_candidates OR cardinality(candidates) = 0;
            IF strategy <> 'skip' AND cardinality(candidates) = simsql._candidates() THEN
                RETURN NEXT format('more than %s candidates: equal keys are skipped',
                                   simsql._candidates() - 1);
                strategy := 'skip';
            ELSE
                strategy := 'check';
            END IF;
        END LOOP;
        -- Leaving the block through an error resets the settings.
        RAISE EXCEPTION USING ERRCODE = 'SIM00';
    EXCEPTION
        WHEN SQLSTATE 'SIM00' THEN NULL;
    END;
END
$$;

COMMENT ON FUNCTION simsql.explain_near(regclass, bigint, integer, text, jsonb) IS
    'EXPLAIN ANALYZE of the statements that simsql.near runs for the same arguments';


-- What a database administrator should do for the indexes in the storage `expression`: vacuum their tables,
-- and make room for locks.

-- What to do about the locks of searches; null if there is room for them. The first search of a session locks
-- relations until its transaction ends: to plan it, PostgreSQL opens every partition with all its indexes.
-- About 20 more belong to simsql and to the catalogue.
--
-- PostgreSQL reserves room for max_locks_per_transaction locked relations for each connection, and for two
-- sessions that lock each. So if that is half the locks of a search, all connections can search at once.
-- Measured with 100 and 200 partitions, a quarter is enough, because there is some room to spare.
CREATE OR REPLACE FUNCTION simsql._lock_advice(table_id regclass) RETURNS text
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN (
        SELECT format('a search takes up to %s locks: set max_locks_per_transaction to %s or more, '
                      'or have fewer partitions', s.locks, (s.locks + 1) / 2)
          FROM (SELECT 24 + count(*) + sum((SELECT count(*) FROM pg_index AS i WHERE i.indrelid = t))::bigint
                  FROM simsql._with_partitions(table_id) AS t) AS s (locks)
         WHERE s.locks > 4 * current_setting('max_locks_per_transaction')::integer);
END
$$;

CREATE OR REPLACE FUNCTION simsql._expression_size(index simsql.registry) RETURNS bigint
LANGUAGE sql STABLE
AS $$
    SELECT sum(pg_relation_size(b))
      FROM pg_index AS i
      JOIN pg_class AS c ON c.oid = i.indexrelid AND c.relname ~ format('^simsql_%s_\d+$', index.id)
     CROSS JOIN LATERAL simsql._with_partitions(c.oid) AS b
     WHERE i.indrelid = index.table_id AND NOT simsql._is_distributed(index.table_id)
$$;

CREATE OR REPLACE FUNCTION simsql._warn_of_locks(table_id regclass, caller text) RETURNS void
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    advice constant text := simsql._lock_advice(table_id);
BEGIN
    IF advice IS NOT NULL THEN
        RAISE WARNING 'simsql.%: many open transactions that have searched % may exceed the room for locks',
                      caller, table_id
            USING HINT = upper(left(advice, 1)) || substr(advice, 2) || '.';
    END IF;
END
$$;

-- unvacuumed: the share of the pages of a table with its partitions that are not all-visible: of these, a search
-- reads the rows. It matters for tables of 8 MB and more, from a tenth on. Null without rows, and on Citus.
--
-- PostgreSQL counts these pages, but only in VACUUM and ANALYZE. Each row updated or deleted since takes one
-- of them away, and new rows come on new pages; the statistics know their numbers. Changed rows are expected
-- anywhere in the table. Dead rows may have been pruned, but the changes since ANALYZE are complete, if it
-- was later than VACUUM. Of a table that neither has seen, the number of pages is unknown, so that its rows
-- count.
CREATE OR REPLACE FUNCTION simsql._expression_advice(
    index simsql.registry, OUT unvacuumed double precision, OUT last_vacuum timestamptz, OUT hint text)
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    WITH visible AS (
        SELECT sum(p.pages) AS pages,
               CASE WHEN bool_and(n.vacuumed IS NOT NULL) THEN min(n.vacuumed) END AS last_vacuum,
               -- exp fails if its result is too small.
               sum(c.relallvisible * exp(-least(p.changed / greatest(c.relpages, 1), 99)))
               / nullif(sum(p.pages), 0) AS share
          FROM simsql._with_partitions(index.table_id) AS t
          JOIN pg_class AS c ON c.oid = t AND c.relkind = 'r'
         CROSS JOIN LATERAL (
               SELECT pg_stat_get_dead_tuples(c.oid) AS dead,
                      pg_stat_get_mod_since_analyze(c.oid) AS modified,
                      pg_stat_get_ins_since_vacuum(c.oid) AS inserted,
                      greatest(pg_stat_get_last_vacuum_time(c.oid),
                               pg_stat_get_last_autovacuum_time(c.oid)) AS vacuumed,
                      greatest(pg_stat_get_last_analyze_time(c.oid),
                               pg_stat_get_last_autoanalyze_time(c.oid)) AS analyzed) AS n
         CROSS JOIN LATERAL (
               SELECT CASE c.relpages
                      WHEN 0 THEN pg_stat_get_live_tuples(c.oid)
                      ELSE c.relpages * (1 + least(n.inserted, n.modified) / greatest(c.reltuples, 1)) END
                      AS pages,
                      greatest(least(n.dead, n.modified),
                               CASE WHEN n.analyzed >= n.vacuumed THEN n.modified - n.inserted END
                              )::double precision AS changed) AS p
         WHERE NOT simsql._is_distributed(index.table_id))
    SELECT 1 - v.share, v.last_vacuum,
           nullif(concat_ws('; ', CASE WHEN v.pages >= 1024 AND v.share < 0.9
                                       THEN format('%s%% of the pages are not all-visible: VACUUM (ANALYZE) %s',
                                                   round(100 * (1 - v.share)), index.table_id) END,
                            simsql._lock_advice(index.table_id)), '')
      INTO unvacuumed, last_vacuum, hint
      FROM visible AS v;
END
$$;


-- The storage `tables`: one key table per permutation, and triggers that add keys.
--
-- A key table holds the permuted keys, preceded by the scope, and nothing else: any primary key works, and
-- deleting a row of the user's table changes nothing here.

-- Rows that are written anywhere but in the table itself would be missed.
CREATE OR REPLACE FUNCTION simsql._tables_refusal(
    table_name regclass, caller text, OUT reason text, OUT hint text)
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    class pg_class;
    is_distributed constant boolean := simsql._is_distributed(table_name);
BEGIN
    SELECT c.* INTO class FROM pg_class AS c WHERE c.oid = table_name;
    reason := CASE
        WHEN class.relkind = 'p' THEN 'is partitioned: rows written directly to a partition would be missed'
        WHEN class.relispartition THEN 'is a partition: rows written through its parent would be missed'
        WHEN EXISTS (SELECT FROM pg_inherits WHERE inhrelid = table_name OR inhparent = table_name)
        THEN 'takes part in inheritance: rows written through another table would be missed'
        WHEN is_distributed
        THEN 'is managed by Citus: rows are written to its shards, so key tables would miss them'
    END;
    hint := CASE WHEN is_distributed AND caller = 'repair'
                 THEN format('Create it again: SELECT simsql.drop_index(%1$L, ...); '
                             'SELECT simsql.create_index(%1$L, ...);', table_name)
                 WHEN caller = 'repair' AND reason LIKE 'takes part in inheritance%'
                 THEN 'Detach the table, then repair it again. Or drop the index, and create one with '
                      'storage => ''expression''.'
                 ELSE 'Use storage => ''expression'', which covers rows however they were written.' END;
END
$$;

-- The parts that the templates of this folder share. t is a row of the user's table.
CREATE OR REPLACE FUNCTION simsql._tables_parts(index simsql.registry) RETURNS jsonb
LANGUAGE sql STABLE
AS $$
    SELECT jsonb_build_object(
        'id', index.id,
        'table', index.table_name,
        'column', index.column_name,
        'guard', simsql._guard(index),
        'key_columns', simsql._name_list(simsql._key_columns(index)),
        'scope', simsql._for_scope(index, '%1$s, '),
        't_scope', simsql._for_scope(index, 't.%2$I AS %1$s, '),
        'in_a_scope', simsql._for_scope(index, ' AND t.%2$I IS NOT NULL'))
$$;

-- Renders a template for each key table but the `omitted`: {number} and {keys}, its name, and {key}, the
-- expression of the key of a fingerprint.
CREATE OR REPLACE FUNCTION simsql._for_key_tables(
    index simsql.registry, template text, fingerprint text, separator text, shared jsonb DEFAULT '{}',
    omitted text[] DEFAULT '{}')
RETURNS text
LANGUAGE sql STABLE
AS $$
    SELECT string_agg(
               simsql._render(template, '{}', shared || jsonb_build_object(
                   'number', p.number,
                   'keys', k.name,
                   'key', simsql._permute(fingerprint, p.lead_mask))),
               separator ORDER BY p.number)
      FROM simsql._permutations(index.blocks, index.lead, index.inner_blocks) AS p
     CROSS JOIN LATERAL format('simsql.keys_%s_%s', index.id, p.number) AS k (name)
     WHERE k.name <> ALL (omitted)
$$;

-- Creates the key tables of an index. For a table that has not been analyzed, the planner expects few
-- distinct fingerprints and would hash them all. So it sorts. The batches of a build read the table in the
-- order of a B-tree.
CREATE OR REPLACE FUNCTION simsql._tables_create(index simsql.registry, filled boolean) RETURNS void
LANGUAGE plpgsql
SET enable_hashagg = off
AS $$
DECLARE
    permutation record;
    keys text;
    shared constant jsonb := simsql._tables_parts(index);
    -- The table is locked: the types of the scope are those that the index has just registered.
    guard constant text := simsql._guard(index.table_name, index.column_name);
    typed_scope constant text := (
        SELECT string_agg(format('t.%I::%s AS %s, ', s.column_name, s.type, s.name), '' ORDER BY s.number)
          FROM simsql._scope_columns(index) AS s);
    unlogged constant text := (
        SELECT 'UNLOGGED' FROM pg_class AS c WHERE c.oid = index.table_id AND c.relpersistence = 'u');
    work_mem constant text := current_setting('work_mem');
BEGIN
    IF NOT filled THEN
        PERFORM simsql._check_btree(index.table_id, simsql._btree_columns(index), 'build');
    END IF;
    -- This sorts as CREATE INDEX does, so it gets the same memory.
    IF pg_size_bytes(work_mem) < pg_size_bytes(current_setting('maintenance_work_mem')) THEN
        PERFORM set_config('work_mem', current_setting('maintenance_work_mem'), true);
    END IF;
    FOR permutation IN SELECT * FROM simsql._permutations(index.blocks, index.lead, index.inner_blocks) LOOP
        keys := format('simsql.keys_%s_%s', index.id, permutation.number);
        -- CREATE TABLE AS is a fifth faster than INSERT. A B-tree that is created after a sorted fill is
        -- packed, and takes a quarter less time. Equal keys are allowed, so no unique index can identify a
        -- row.
        EXECUTE simsql._render($sql$
            CREATE {unlogged} TABLE {keys} AS
            SELECT DISTINCT {typed_scope}{key} AS key
              FROM ONLY {table} AS t
             WHERE t.{"column"} IS NOT NULL{in_a_scope} AND {guard}
             ORDER BY {key_columns}
              {with_data};
            ALTER TABLE {keys} {not_null}ALTER key SET NOT NULL, REPLICA IDENTITY FULL;
            COMMENT ON TABLE {keys} IS {'comment'};
            CREATE INDEX ON {keys} ({key_columns})
            $sql$,
            jsonb_build_object(
                'unlogged', unlogged,
                'keys', keys,
                'typed_scope', typed_scope,
                'key', simsql._permute(format('t.%I', index.column_name), permutation.lead_mask),
                'guard', guard,
                'with_data', CASE WHEN NOT filled THEN 'WITH NO DATA' END,
                'not_null', simsql._for_scope(index, 'ALTER %1$s SET NOT NULL, '),
                'comment', format('keys of the simhash index on %s(%I), permutation %s, ', index.table_name,
                                  index.column_name, permutation.number)
                           || 'lead bits ' || to_hex(permutation.lead_mask)),
            shared);
        PERFORM simsql._guard_keys(keys, index);
    END LOOP;
    PERFORM set_config('work_mem', work_mem, true);
    IF filled THEN
        PERFORM simsql._record_vacuum(index);
    END IF;
    -- The progress of a build is the last fingerprint whose keys it has added, and its scope. Everybody can
    -- read the registry, so these values are in a table of the owner. Row-level security without a policy
    -- admits nobody else, even if default privileges grant more. An unlogged table is in no publication, and
    -- is empty after a crash: then the build starts over.
    IF NOT filled THEN
        EXECUTE format('CREATE UNLOGGED TABLE simsql.built_%1$s (fp bigint, scope text[]); '
                       'ALTER TABLE simsql.built_%1$s ENABLE ROW LEVEL SECURITY', index.id);
    END IF;
END
$$;

-- A role can read the keys if, and only if, it can read the fingerprint column and the scope columns. The
-- policy checks the role that searches, at the time of the search, and identifies columns by number: another
-- table or column may take over the name. As a subquery it is evaluated once per scan.
CREATE OR REPLACE FUNCTION simsql._policy(index simsql.registry) RETURNS text
LANGUAGE sql STABLE
AS $$
    SELECT simsql._render($sql$((
        SELECT coalesce(bool_and(has_column_privilege(t.tgrelid, a.number, 'SELECT')), false)
          FROM pg_trigger AS t
         CROSS JOIN unnest(t.tgattr) AS a (number)
         WHERE t.tgrelid = (SELECT r.table_id FROM simsql.registry AS r WHERE r.id = {id})
           AND t.tgname = 'simsql_{id}_column'))$sql$, jsonb_build_object('id', index.id))
$$;

CREATE OR REPLACE FUNCTION simsql._guard_keys(keys text, index simsql.registry) RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    EXECUTE simsql._render($sql$
        ALTER TABLE {keys} ENABLE ROW LEVEL SECURITY;
        CREATE POLICY readers ON {keys} FOR SELECT USING {policy};
        GRANT SELECT ON {keys} TO PUBLIC
        $sql$, jsonb_build_object('keys', keys, 'policy', simsql._policy(index)));
    PERFORM simsql._keep_own(keys, 'DELETE');
END
$$;

-- Drops the key tables of an index, the triggers and their functions.
CREATE OR REPLACE FUNCTION simsql._tables_drop(index simsql.registry) RETURNS void
LANGUAGE plpgsql
SET client_min_messages = warning  -- no notice for each object that the storage expression lacks
AS $$
BEGIN
    PERFORM simsql._drop_triggers(index.table_id, index.id);
    EXECUTE format('DROP FUNCTION IF EXISTS simsql.add_on_insert_%1$s(), simsql.add_on_update_%1$s(), '
                   'simsql.add_on_replica_%1$s()', index.id);
    PERFORM simsql._drop_key_tables(index.id);
END
$$;

-- A new index calls this too: a schema-only dump contains the key tables of an index but not its row in the
-- registry, and a restored registry starts ids from 1 again.
CREATE OR REPLACE FUNCTION simsql._drop_key_tables(index_id integer) RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    keys text;
BEGIN
    FOR keys IN
        SELECT c.relname FROM pg_class AS c
         WHERE c.relnamespace = 'simsql'::regnamespace
           AND c.relname ~ format('^(keys_%1$s_\d+|built_%1$s)$', index_id)
           AND c.relkind = 'r'
    LOOP
        -- A build may have ended after this transaction took its snapshot.
        EXECUTE format('DROP TABLE IF EXISTS simsql.%I', keys);
    END LOOP;
END
$$;


-- The triggers of an index and the functions that they call.
--
-- Writers always add keys and never check whether a key exists. The design is a constant in the trigger
-- functions, and they read no table of simsql: a writer with an older snapshot would not see the row in the
-- registry, and would add nothing.
--
-- Statement triggers add the keys of all new rows at once. They are ENABLE ALWAYS, so that disabling and
-- enabling them leaves a trace. Logical replication applies rows without firing statement triggers, so an
-- ENABLE REPLICA row trigger adds the keys there. Statement triggers that do fire in a replica session leave
-- the keys to it, if it has counted all rows: a function of the table's owner may have changed the session in
-- the middle of a statement.
--
-- The functions run with the privileges of the index's owner, so a writer needs no privileges other than
-- those on the table. Nothing that the owner of the table controls may therefore be evaluated in them:
--   * pg_typeof of a transition row tells the type of a column. The catalogue would tell it as of the
--     transaction's snapshot, which may be older than the column. The INSERT is planned only if all types are
--     right: planning a cast may already call a function.
--   * Transition tables have the names of relations in pg_catalog. If a trigger without transition tables
--     calls the function, on whatever table, the function reads the catalogue, and not a temporary table or
--     view of that name.
--   * Until the types are checked, columns are named without a table: PostgreSQL reads n.name as name(n) if n
--     has no such column.
--   * Relations of the catalogue are qualified, because a transition table may have the name of any of them.
--     So are variables that are used beside its columns.

-- The condition that the columns have the types for which the index was created. `row` qualifies the columns:
-- 'NEW.' or nothing.
CREATE OR REPLACE FUNCTION simsql._types_are_right(index simsql.registry, "row" text) RETURNS text
LANGUAGE sql STABLE
AS $$
    SELECT string_agg(simsql._render(CASE c.number
               WHEN 0 THEN $sql$pg_typeof({row}{"column"}) = {'type'}::regtype$sql$
               ELSE $sql$(pg_typeof({row}{"column"}) = {'type'}::regtype
                          OR simsql._base_type(pg_typeof({row}{"column"})) = {'type'}::regtype)$sql$ END,
               jsonb_build_object('row', "row", 'column', c.name, 'type', c.type)), ' AND ' ORDER BY c.number)
      FROM (SELECT 0, index.column_name, 'bigint'
             UNION ALL
            SELECT s.number, s.column_name, s.type FROM simsql._scope_columns(index) AS s
           ) AS c (number, name, type)
$$;

-- The trigger functions. They refuse triggers of other indexes, which pg_dump may have carried to a table
-- here, and renamed columns. The nonce is not secret; it distinguishes indexes with the same id.
--
-- With many keys, inserting them into a B-tree in their order takes a third less time; a single row takes a
-- tenth less time without the sort. An update of other columns adds no keys, because the old rows have
-- theirs. Two kinds of old rows do not: those of inheritance children, and the intermediate states of rows
-- that PostgreSQL updates twice in one statement to enforce foreign keys.
CREATE OR REPLACE FUNCTION simsql._trigger_functions(index simsql.registry)
RETURNS TABLE (name text, arguments text, head text, settings text[], body text)
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    columns constant text[] := index.column_name || index.scope_columns;
    shared jsonb := simsql._tables_parts(index) || jsonb_build_object(
        'nonce', index.nonce,
        'columns', columns::text,
        'names', (SELECT string_agg(quote_ident(c.name), ' or ' ORDER BY c.number)
                    FROM unnest(columns) WITH ORDINALITY AS c (name, number)),
        'found', (SELECT string_agg('(pg_identify_object_as_address(1259, TG_RELID, t.tgattr[' || place
                                    || '])).object_names[3]', ', ' ORDER BY place)
                    FROM generate_series(0, cardinality(index.scope_columns)) AS place),
        'f_scope', simsql._for_scope(index, 'f.%1$s, '),
        'n_scope', simsql._for_scope(index, 'n.%2$I AS %1$s, '),
        'n_in_a_scope', simsql._for_scope(index, ' AND n.%2$I IS NOT NULL'),
        'o_scope', simsql._for_scope(index, 'o.%2$I, '),
        'order', (SELECT string_agg(place::text, ', ' ORDER BY place)
                    FROM generate_series(1, cardinality(index.scope_columns) + 1) AS place),
        'new_scope', simsql._for_scope(index, 'NEW.%2$I, '),
        'new_in_no_scope', simsql._for_scope(index, ' OR NEW.%2$I IS NULL'),
        'same_scope', simsql._for_scope(index, ' AND OLD.%2$I = NEW.%2$I'));
    event text;
    added text;
    inserts_of_several text;
    inserts_of_one text;
BEGIN
    arguments := '()';
    head := 'RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER';
    settings := ARRAY['search_path=pg_catalog, pg_temp'];
    shared := shared || jsonb_build_object('checks', simsql._render($sql$
    IF TG_ARGV[0] IS DISTINCT FROM {'nonce'} THEN
        RAISE EXCEPTION 'simsql: trigger % of % does not belong to a simhash index of this database', TG_NAME,
                        TG_RELID::regclass
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = 'The table was restored without its index. Create the index again, which drops such '
                         'triggers: '
                         || format('SELECT simsql.create_index(%L, %L); ', TG_RELID::regclass, {'column'})
                         || format('or drop them: DROP TRIGGER %I ON %s;', TG_NAME, TG_RELID::regclass);
    END IF;
    IF (SELECT ARRAY[{found}]
          FROM pg_catalog.pg_trigger AS t
         WHERE t.tgrelid = TG_RELID AND t.tgname = 'simsql_{id}_column') IS DISTINCT FROM {'columns'}::text[]
    THEN
        PERFORM simsql._check_columns(TG_RELID::regclass, {id}, {'columns'}::text[]);
    END IF;$sql$, '{}', shared), 'refusal', simsql._render($sql$
        RAISE EXCEPTION 'simsql: column % of % changed its type after its simhash index was created',
                        {'names'}, TG_RELID::regclass
            USING ERRCODE = 'datatype_mismatch',
                  HINT = format('Drop the index: SELECT simsql.drop_index(%L, %L);', TG_RELID::regclass,
                                {'column'});
        $sql$, '{}', shared));
    FOREACH event IN ARRAY '{insert,update}'::text[] LOOP
        name := format('add_on_%s_%s', event, index.id);
        added := CASE event
            WHEN 'insert' THEN $sql$
                SELECT {distinct}{n_scope}n.{"column"} AS fp
                  FROM pg_am AS n WHERE n.{"column"} IS NOT NULL{n_in_a_scope}$sql$
            ELSE $sql$
                SELECT {n_scope}n.{"column"} AS fp
                  FROM pg_am AS n WHERE n.{"column"} IS NOT NULL{n_in_a_scope}
                EXCEPT SELECT {o_scope}o.{"column"} FROM pg_amop AS o WHERE simsql.alone$sql$ END;
        inserts_of_several := simsql._for_key_tables(index, $sql$
        INSERT INTO {keys} ({key_columns})
        SELECT {f_scope}{key} FROM ({added}) AS f ORDER BY {order};$sql$, 'f.fp', '',
            shared || jsonb_build_object(
                'added', simsql._render(added, '{}', shared || '{"distinct": "DISTINCT "}')));
        inserts_of_one := simsql._for_key_tables(index, $sql$
        INSERT INTO {keys} ({key_columns})
        SELECT {f_scope}{key} FROM ({added}) AS f;$sql$, 'f.fp', '',
            shared || jsonb_build_object('added', simsql._render(added, '{}', shared || '{"distinct": ""}')));
        body := simsql._render($sql$#variable_conflict use_column
<<simsql>>
DECLARE
    {alone}
    types_are_right boolean;
    several boolean;
    all_added boolean;
BEGIN
    {checks}
    IF current_setting('session_replication_role') = 'replica' THEN
        all_added := current_setting('simsql.added_{id}', true) = (SELECT count(*)::text FROM pg_am);
        PERFORM set_config('simsql.added_{id}', '0', true);
        IF all_added THEN
            RETURN NULL;
        END IF;
    END IF;
    SELECT {types_are_right}, EXISTS (SELECT FROM pg_am OFFSET 1)
      INTO types_are_right, several FROM pg_am LIMIT 1;
    IF types_are_right IS NULL THEN
        RETURN NULL;  -- there is no row
    ELSIF NOT types_are_right THEN
        {refusal}
    END IF;
    IF several THEN
        {inserts_of_several}
    ELSE
        {inserts_of_one}
    END IF;
    RETURN NULL;
END$sql$,
            jsonb_build_object(
                'alone', CASE event WHEN 'update' THEN simsql._render($sql$
    alone constant boolean := NOT c.relhassubclass AND NOT EXISTS (
        SELECT FROM pg_catalog.pg_constraint AS f
          JOIN pg_catalog.pg_trigger AS t ON t.tgrelid = f.conrelid AND t.tgname = 'simsql_{id}_column'
         WHERE f.conrelid = TG_RELID AND f.contype = 'f' AND f.conkey && t.tgattr::pg_catalog.int2[]
           AND (f.confupdtype IN ('c', 'n', 'd') OR f.confdeltype IN ('n', 'd')))
        FROM pg_catalog.pg_class AS c WHERE c.oid = TG_RELID;$sql$, '{}', shared) END,
                'types_are_right', simsql._types_are_right(index, NULL),
                'inserts_of_several', inserts_of_several,
                'inserts_of_one', inserts_of_one),
            shared);
        RETURN NEXT;
    END LOOP;
    name := 'add_on_replica_' || index.id;
    body := simsql._render($sql$
BEGIN
    {checks}
    IF NOT ({types_are_right}) THEN
        {refusal}
    END IF;
    PERFORM set_config('simsql.added_{id}',
                       (1 + coalesce(nullif(current_setting('simsql.added_{id}', true), ''), '0')::bigint)::text,
                       true);
    IF NEW.{"column"} IS NULL{new_in_no_scope} THEN
        RETURN NULL;
    END IF;
    IF TG_OP = 'UPDATE' THEN
        IF OLD.{"column"} = NEW.{"column"}{same_scope} THEN
            RETURN NULL;
        END IF;
    END IF;
    {inserts}
    RETURN NULL;
END$sql$,
        jsonb_build_object(
            'types_are_right', simsql._types_are_right(index, 'NEW.'),
            'inserts', simsql._for_key_tables(index, $sql$
    INSERT INTO {keys} ({key_columns}) VALUES ({new_scope}{key});$sql$,
                                              format('NEW.%I', index.column_name), '', shared)),
        shared);
    RETURN NEXT;
END
$$;

-- A digest of the expressions of the generated columns of an index; null if it has none. ALTER COLUMN ... SET
-- EXPRESSION computes their values again without firing a trigger.
CREATE OR REPLACE FUNCTION simsql._expressions(index simsql.registry) RETURNS text
LANGUAGE sql STABLE
AS $$
    SELECT encode(sha256(convert_to(string_agg(pg_get_expr(d.adbin, d.adrelid), ';' ORDER BY c.place),
                                    'UTF8')), 'hex')
      FROM unnest(index.column_name || index.scope_columns) WITH ORDINALITY AS c (name, place)
      JOIN pg_attribute AS a ON a.attrelid = index.table_id AND a.attname = c.name AND a.attgenerated = 's'
      JOIN pg_attrdef AS d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
$$;

-- The update trigger carries the digest of the expressions as they were when its keys were complete.
--
-- Two of them never fire, but they record in the catalogue what a name cannot. The first identifies the
-- columns, the fingerprint column and then the scope, by number, whatever their names are (see
-- _check_columns). It also makes PostgreSQL refuse ALTER COLUMN TYPE, which rewrites values without firing
-- triggers. The second makes PostgreSQL refuse to turn the table into a partition or an inheritance child,
-- whose rows can be written through a parent.
CREATE OR REPLACE FUNCTION simsql._triggers(index simsql.registry)
RETURNS TABLE (name text, definition text, fires "char")
LANGUAGE sql STABLE
AS $$
    SELECT format('simsql_%s_%s', index.id, t.suffix),
           simsql._render('CREATE TRIGGER simsql_{id}_{suffix} ' || t.event
                          || ' EXECUTE FUNCTION simsql.add_on_{function}_{id}({nonce})',
                          jsonb_build_object('suffix', t.suffix, 'function', t.function,
                                             'nonce', CASE WHEN t.fires IS NOT NULL
                                                           THEN quote_literal(index.nonce) END
                                                      || CASE WHEN t.suffix = 'update' AND e.digest IS NOT NULL
                                                              THEN ', ' || quote_literal(e.digest) ELSE '' END),
                          jsonb_build_object('id', index.id, 'table', index.table_name, 'columns',
                                             simsql._name_list(index.column_name || index.scope_columns))),
           t.fires::"char"
      FROM (VALUES
           ('insert', 'insert', 'A',
            'AFTER INSERT ON {table} REFERENCING NEW TABLE AS pg_am FOR EACH STATEMENT'),
           ('update', 'update', 'A',
            'AFTER UPDATE ON {table} REFERENCING OLD TABLE AS pg_amop NEW TABLE AS pg_am FOR EACH STATEMENT'),
           ('replica', 'replica', 'R', 'AFTER INSERT OR UPDATE ON {table} FOR EACH ROW'),
           ('column', 'update', NULL, 'AFTER UPDATE OF {columns} ON {table} FOR EACH STATEMENT WHEN (false)'),
           ('no_parent', 'insert', NULL,
            'AFTER INSERT ON {table} REFERENCING NEW TABLE AS new_rows FOR EACH ROW WHEN (false)'))
           AS t (suffix, function, fires, event)
     CROSS JOIN simsql._expressions(index) AS e (digest)
     WHERE index.storage = 'tables'
$$;

-- Sets when a trigger fires, as in pg_trigger.tgenabled.
CREATE OR REPLACE FUNCTION simsql._set_firing(table_id regclass, trigger_name text, fires "char") RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    EXECUTE format('ALTER TABLE %s %s TRIGGER %I', table_id,
                   CASE fires WHEN 'A' THEN 'ENABLE ALWAYS' WHEN 'R' THEN 'ENABLE REPLICA'
                              WHEN 'D' THEN 'DISABLE' ELSE 'ENABLE' END,
                   trigger_name);
END
$$;

CREATE OR REPLACE FUNCTION simsql._create_triggers(index simsql.registry) RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    trigger record;
BEGIN
    FOR trigger IN SELECT * FROM simsql._triggers(index) LOOP
        EXECUTE overlay(trigger.definition PLACING 'CREATE OR REPLACE' FROM 1 FOR length('CREATE'));
        IF trigger.fires IS NOT NULL THEN
            PERFORM simsql._set_firing(index.table_id, trigger.name, trigger.fires);
        END IF;
    END LOOP;
END
$$;

-- Drops the triggers of an index or, without its id, those of indexes that are not this table's. A restored
-- copy of another table has such triggers, and they refuse every write. It finds triggers by their functions,
-- because somebody may have renamed them.
CREATE OR REPLACE FUNCTION simsql._drop_triggers(table_id regclass, index_id integer DEFAULT NULL)
RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    trigger name;
BEGIN
    FOR trigger IN
        SELECT t.tgname
          FROM pg_trigger AS t
          JOIN pg_proc AS p ON p.oid = t.tgfoid AND p.pronamespace = 'simsql'::regnamespace
         CROSS JOIN LATERAL substring(p.proname FROM '^add_on_(?:insert|update|replica)_(\d+)$') AS f (id)
         WHERE t.tgrelid = _drop_triggers.table_id
           AND (f.id = index_id::text
                OR index_id IS NULL AND f.id NOT IN (SELECT r.id::text FROM simsql.registry AS r
                                                      WHERE r.table_id = _drop_triggers.table_id))
    LOOP
        EXECUTE format('DROP TRIGGER %I ON %s', trigger, table_id);
    END LOOP;
END
$$;


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
                     WHERE {from_place} ORDER BY {key_columns} LIMIT $2) AS k
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
        (1.125 * random() - 0.125) * simsql._estimated_rows(to_regclass(format('simsql.keys_%s_0', index.id))), 0);
    state simsql._vacuum_state;
BEGIN
    IF skipped > 0 THEN
        EXECUTE simsql._render($sql$
            SELECT {id}, ARRAY[0, 0], k.key, ARRAY[{scope_as_text}]::text[], -$1 - $2, 0, 0, false
              FROM simsql.keys_{id}_0 AS k ORDER BY {key_columns} OFFSET $1 LIMIT 1
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


-- What a database administrator should do for the indexes in the storage `tables`: vacuum them.

CREATE OR REPLACE FUNCTION simsql._tables_size(index simsql.registry) RETURNS bigint
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN (SELECT sum(pg_relation_size(c.oid))
              FROM pg_class AS c
             WHERE c.relnamespace = 'simsql'::regnamespace
               -- The key tables and their B-trees, one range of names: the backtick follows the underscore.
               AND c.relname > format('keys_%s_', index.id)::name
               AND c.relname < format('keys_%s`', index.id)::name);
END
$$;

-- The number of rows of a table, from what PostgreSQL has counted; null if that is nothing. Statistics are
-- complete from the first VACUUM or ANALYZE that they know of. They begin again at zero after a crash, a reset
-- and on a standby, but the catalogue remembers the last VACUUM, ANALYZE or CREATE INDEX.
CREATE OR REPLACE FUNCTION simsql._estimated_rows(table_id regclass) RETURNS double precision
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN (SELECT CASE WHEN s.are_complete THEN s.live
                        WHEN c.reltuples >= 0 OR s.live + s.dead > 0
                        THEN greatest(0, c.reltuples - s.dead, s.live) END
              FROM pg_class AS c
             CROSS JOIN LATERAL (
                   SELECT pg_stat_get_live_tuples(c.oid) AS live, pg_stat_get_dead_tuples(c.oid) AS dead,
                          coalesce(pg_stat_get_last_vacuum_time(c.oid), pg_stat_get_last_autovacuum_time(c.oid),
                                   pg_stat_get_last_analyze_time(c.oid),
                                   pg_stat_get_last_autoanalyze_time(c.oid)) IS NOT NULL AS are_complete) AS s
             WHERE c.oid = table_id);
END
$$;

-- Whether PostgreSQL has counted the rows of a table. After a crash or a reset, its statistics know the changes
-- since alone, and nobody vacuums or analyzes the table because of those before. A standby counts nothing.
CREATE OR REPLACE FUNCTION simsql._is_counted(table_id regclass) RETURNS boolean
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN (SELECT CASE WHEN c.reltuples < 0 THEN s.live + s.dead > 0
                        ELSE s.live >= c.reltuples / 2 OR pg_is_in_recovery()
                             OR coalesce(pg_stat_get_last_vacuum_time(c.oid),
                                         pg_stat_get_last_autovacuum_time(c.oid),
                                         pg_stat_get_last_analyze_time(c.oid),
                                         pg_stat_get_last_autoanalyze_time(c.oid)) IS NOT NULL END
              FROM pg_class AS c
             CROSS JOIN LATERAL (SELECT pg_stat_get_live_tuples(c.oid) AS live,
                                        pg_stat_get_dead_tuples(c.oid) AS dead) AS s
             WHERE c.oid = table_id);
END
$$;

-- Records, if this role may, that the keys of an index are those that its rows need.
CREATE OR REPLACE FUNCTION simsql._record_vacuum(index simsql.registry) RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    keys bigint;
BEGIN
    IF has_table_privilege('simsql.registry', 'UPDATE') THEN
        EXECUTE format('SELECT count(*) FROM simsql.keys_%s_0', index.id) INTO keys;
        UPDATE simsql.registry AS r
           SET vacuumed_at = now(), vacuumed_keys = keys, vacuumed_rows = simsql._estimated_rows(r.table_id)
         WHERE r.id = index.id;
    END IF;
END
$$;

-- unvacuumed: the share of superfluous keys. The number of keys is known. How many of them the rows need is
-- expected from the rows: as many for each row as at the last vacuum. Rows that share a fingerprint, or have
-- none, need fewer than one. Once most keys are younger than that, or if it is unknown, each row is taken to
-- need one, so that the share is rather too small.
--
-- A vacuum of less than one batch takes a second, and searches do not notice whether it has been done.
CREATE OR REPLACE FUNCTION simsql._tables_advice(
    index simsql.registry, OUT unvacuumed double precision, OUT last_vacuum timestamptz, OUT hint text,
    OUT need text)
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    key_table constant regclass := to_regclass(format('simsql.keys_%s_0', index.id));
    -- The statistics of a new key table come after seconds.
    is_counted constant boolean := simsql._is_counted(key_table) AND simsql._is_counted(index.table_id)
                                   OR index.vacuumed_at > now() - interval '1 minute';
    keys constant double precision := simsql._estimated_rows(key_table);
    rows constant double precision := simsql._estimated_rows(index.table_id);
    is_grown constant boolean := keys >= 4 * coalesce(index.vacuumed_keys, 0);
    needed constant double precision := rows * CASE
        WHEN is_grown THEN 1 ELSE coalesce(least(1, index.vacuumed_keys / nullif(index.vacuumed_rows, 0)), 1) END;
    reason text;
BEGIN
    unvacuumed := CASE WHEN keys > 0 AND needed IS NOT NULL THEN greatest(0, 1 - needed / keys) END;
    last_vacuum := index.vacuumed_at;
    IF key_table IS NULL
       OR (CASE WHEN is_counted THEN keys ELSE simsql._tables_keys(index) END) < simsql._batch_size()
    THEN
        RETURN;
    ELSIF NOT is_counted THEN
        need := 'analyze';
        reason := 'PostgreSQL has not counted the rows';
    ELSIF unvacuumed >= 0.2 THEN
        need := 'vacuum';
        reason := format('%s%% of the keys are superfluous', round(100 * unvacuumed));
    ELSIF is_grown THEN
        need := 'vacuum';
        reason := format('there are about %s keys, and %s at the last vacuum', round(keys),
                         coalesce(index.vacuumed_keys::text, 'an unknown number'));
    END IF;
    hint := reason || ': CALL simsql.maintain();';
END
$$;


-- A load that writes keys itself: see simsql/database/load.py.

-- The indexes on these columns, without a scope, whose keys this session may write itself with the insert
-- trigger disabled. It has to own the table and the keys. No trigger of the user may change or add rows, and
-- none may be deferrable: while its events are pending, PostgreSQL refuses to disable triggers. PostgreSQL
-- has to count inserted rows, so that the load can tell whether there were more than its own.
CREATE OR REPLACE FUNCTION simsql._loadable_indexes(table_name regclass, columns text[])
RETURNS SETOF simsql.registry
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    index simsql.registry;
BEGIN
    IF NOT current_setting('track_counts')::boolean
       OR EXISTS (SELECT FROM pg_class AS c WHERE c.oid = table_name AND NOT pg_has_role(c.relowner, 'USAGE'))
       OR EXISTS (SELECT FROM pg_trigger AS t
                    JOIN pg_proc AS p ON p.oid = t.tgfoid
                   WHERE t.tgrelid = table_name
                     AND (t.tgdeferrable
                          OR NOT t.tgisinternal AND t.tgenabled <> 'D' AND t.tgtype & 4 <> 0  -- INSERT
                             AND p.pronamespace <> 'simsql'::regnamespace))
    THEN
        RETURN;
    END IF;
    FOR index IN
        SELECT r.* FROM simsql.registry AS r
         WHERE r.table_id = _loadable_indexes.table_name AND r.column_name = ANY (columns)
           AND r.scope_columns = '{}'
           AND r.storage = 'tables'
         ORDER BY r.id
    LOOP
        -- The trigger reports what is wrong with an index, if it concerns writers.
        BEGIN
            index := simsql._index(table_name, index.column_name);
        EXCEPTION
            WHEN object_not_in_prerequisite_state OR undefined_object THEN CONTINUE;
        END;
        CONTINUE WHEN EXISTS (SELECT FROM pg_class AS k
                               WHERE k.relnamespace = 'simsql'::regnamespace
                                 AND k.relname ~ format('^keys_%s_\d+$', index.id)
                                 AND NOT pg_has_role(k.relowner, 'USAGE'));
        RETURN NEXT index;
    END LOOP;
END
$$;

-- Locks out other writers until the end of the transaction, and disables the insert triggers of the indexes
-- whose keys this session may write itself. The session then has to add the keys of everything that it
-- inserts, and to make the triggers fire always again.
CREATE OR REPLACE FUNCTION simsql._begin_load(table_name regclass, columns text[])
RETURNS SETOF simsql.registry
LANGUAGE plpgsql
AS $$
DECLARE
    index simsql.registry;
BEGIN
    -- A snapshot that is older than the lock may not show a trigger that fires.
    IF current_setting('transaction_isolation') <> 'read committed'
       OR NOT EXISTS (SELECT FROM simsql._loadable_indexes(table_name, columns))
    THEN
        RETURN;
    END IF;
    PERFORM simsql._lock(table_name, 'SHARE ROW EXCLUSIVE', 'load_rows');
    FOR index IN SELECT * FROM simsql._loadable_indexes(table_name, columns) LOOP
        PERFORM simsql._set_firing(table_name, format('simsql_%s_insert', index.id), 'D');
        RETURN NEXT index;
    END LOOP;
EXCEPTION
    -- A cursor of this session is reading the table, or another session is changing an index of it
    -- concurrently.
    WHEN object_in_use THEN RETURN;
END
$$;


-- The faults of triggers and key tables, and their repair.

-- A search reads the triggers, and whether the first key table is there and lasts as long as the table.
CREATE OR REPLACE FUNCTION simsql._tables_faults(
    index simsql.registry, actual simsql.registry, thorough boolean)
RETURNS simsql._fault[]
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    at constant text := format('%s(%I)', index.table_id, index.column_name);
    repair constant text := format('SELECT * FROM simsql.repair(%L);', index.table_id);
    tables constant integer := simsql._table_count(index.blocks, index.lead, index.inner_blocks);
    -- Its triggers and how they fire, in order; "!" stands for a trigger that never runs.
    prefix constant text := 'simsql_' || index.id || '_';
    firing constant text[] := ARRAY[prefix || 'column!', prefix || 'insertA', prefix || 'no_parent!',
                                    prefix || 'replicaR', prefix || 'updateA'];
    faults simsql._fault[] := '{}';
BEGIN
    IF simsql._is_distributed(index.table_id) THEN
        faults := faults || ('table distributed', actual.table_name, 'table distributed', 'refuses',
                             format('table %s was distributed after its simhash index was created',
                                    index.table_id),
                             'Create it again:', simsql._create_again(index))::simsql._fault;
    END IF;
    -- DISABLE TRIGGER ALL disables even ENABLE ALWAYS triggers, and the ENABLE TRIGGER ALL that follows it in
    -- a restore does not make them ENABLE ALWAYS again. So this detects it. A trigger with a condition never
    -- runs, enabled or not.
    IF array_position(actual.column_name || actual.scope_columns, NULL) IS NULL
       AND (thorough OR firing <> ARRAY(
           SELECT t.tgname || CASE WHEN t.tgqual IS NULL THEN t.tgenabled::text ELSE '!' END
             FROM pg_trigger AS t
            WHERE t.tgrelid = index.table_id AND starts_with(t.tgname, prefix) ORDER BY t.tgname))
    THEN
        faults := faults || ARRAY(
            SELECT (CASE WHEN t.oid IS NULL THEN 'trigger missing'
                         WHEN s.has_other_condition OR s.differs THEN 'trigger altered'
                         WHEN d.fires = 'A' THEN 'trigger not enabled always'
                         ELSE 'trigger not enabled for replication' END,
                    d.name, 'triggers disabled',
                    CASE WHEN t.oid IS NULL OR s.has_other_condition OR t.tgenabled <> d.fires THEN 'refuses'
                         ELSE 'may miss rows' END,
                    format('triggers of the simhash index on %s have been disabled or dropped', at),
                    'It lacks rows that were written in the meantime:', repair)::simsql._fault
              FROM simsql._triggers(actual) AS d
              LEFT JOIN pg_trigger AS t ON t.tgrelid = index.table_id AND t.tgname = d.name
             CROSS JOIN LATERAL (SELECT (t.tgqual IS NULL) <> (d.fires IS NOT NULL),
                                        thorough AND pg_get_triggerdef(t.oid) <> d.definition)
                                AS s (has_other_condition, differs)
             WHERE t.oid IS NULL OR s.has_other_condition OR s.differs OR t.tgenabled <> d.fires);
    END IF;
    IF EXISTS (SELECT FROM pg_trigger AS t
                WHERE t.tgrelid = index.table_id AND t.tgname = prefix || 'update'
                  AND nullif(split_part(encode(t.tgargs, 'escape'), '\000', 2), '')
                      IS DISTINCT FROM simsql._expressions(actual))
    THEN
        faults := faults || ('expression changed', actual.table_name, 'expression changed', 'refuses',
                             format('the expression of a generated column of %s changed after its '
                                    'simhash index was created', index.table_id),
                             'It lacks rows whose values have changed:', repair)::simsql._fault;
    END IF;
    FOR number IN 0 .. CASE WHEN thorough THEN tables - 1 ELSE 0 END LOOP
        faults := faults || simsql._key_table_faults(index, actual, number, thorough);
    END LOOP;
    -- Writes through a parent table fire only the statement triggers of the parent.
    IF EXISTS (SELECT FROM pg_inherits AS i WHERE i.inhrelid = index.table_id)
       OR EXISTS (SELECT FROM pg_inherits AS i WHERE i.inhparent = index.table_id)
    THEN
        faults := faults || ('table has a parent or a child', actual.table_name,
                             'table has a parent or a child', 'refuses',
                             format('table %s became part of an inheritance tree after its simhash index was '
                                    'created', index.table_id),
                             'Rows written through another table are not indexed:',
                             'detach the table, then ' || repair)::simsql._fault;
    END IF;
    RETURN faults;
END
$$;

-- Whether the policies of a key table differ from the one that create_index makes.
CREATE OR REPLACE FUNCTION simsql._has_other_policies(keys regclass) RETURNS boolean
LANGUAGE sql STABLE
RETURN (SELECT array_agg((p.polname, p.polcmd, p.polpermissive, p.polroles)::text)
          FROM pg_policy AS p WHERE p.polrelid = keys) IS DISTINCT FROM ARRAY['(readers,r,t,{0})'];

-- The faults of a key table. The first one stands for all: searches refuse the index without it.
CREATE OR REPLACE FUNCTION simsql._key_table_faults(
    index simsql.registry, actual simsql.registry, number integer, thorough boolean)
RETURNS simsql._fault[]
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    keys constant text := format('simsql.keys_%s_%s', index.id, number);
    repair constant text := format('SELECT * FROM simsql.repair(%L);', index.table_id);
    effect constant text := CASE number WHEN 0 THEN 'refuses' ELSE 'may miss rows' END;
    class constant regclass := to_regclass(keys);
    faults simsql._fault[] := '{}';
BEGIN
    IF class IS NULL THEN
        RETURN ARRAY[('key table missing', keys, 'damaged', effect,
                      format('the table %s of the simhash index on %s(%I) is missing',
                             keys, index.table_id, index.column_name),
                      'Build the index again:', repair)::simsql._fault];
    END IF;
    -- Scope values are compared by the type and collation that they have in the user's table.
    IF thorough AND ((SELECT c.relkind FROM pg_class AS c WHERE c.oid = class) <> 'r' OR EXISTS (
        SELECT FROM (SELECT 'key' AS name, 'bigint'::regtype::oid AS type_id, 0::oid AS collation_id
                      UNION ALL
                     SELECT s.name, coalesce(simsql._base_type(u.atttypid), a.atttypid),
                            u.attcollation
                       FROM simsql._scope_columns(actual) AS s
                       LEFT JOIN pg_attribute AS u
                         ON u.attrelid = actual.table_id AND u.attname = s.column_name
                       LEFT JOIN pg_attribute AS a ON a.attrelid = class AND a.attname = s.name) AS c
         WHERE NOT EXISTS (
               SELECT FROM pg_attribute AS a
                WHERE a.attrelid = class AND a.attname = c.name AND a.atttypid = c.type_id
                  AND a.attgenerated = '' AND a.attcollation = coalesce(c.collation_id, a.attcollation))))
    THEN
        RETURN ARRAY[('key table altered', keys, 'damaged', 'may miss rows', NULL, NULL,
                      repair)::simsql._fault];
    END IF;
    -- ALTER TABLE SET LOGGED leaves it unlogged: a crash would empty it but keep the rows.
    IF EXISTS (SELECT FROM pg_class AS k
                 JOIN pg_class AS t ON t.oid = index.table_id AND t.relpersistence <> 'u'
                WHERE k.oid = class AND k.relpersistence = 'u')
    THEN
        faults := faults || ('key table unlogged', keys, 'damaged', effect,
                             format('table %s was set logged after its simhash index was created',
                                    index.table_id),
                             'Make its key tables logged too:', repair)::simsql._fault;
    END IF;
    -- Under other policies, readers would miss keys, or see keys that they may not.
    IF (thorough OR number = 0)
       AND (NOT (SELECT c.relrowsecurity FROM pg_class AS c WHERE c.oid = class)
            OR NOT has_table_privilege('public', class, 'SELECT')
            OR simsql._has_other_policies(class))
    THEN
        faults := faults || ('policy altered', keys, 'damaged',
                             CASE WHEN row_security_active(class) AND simsql._has_other_policies(class)
                                  THEN effect ELSE 'may miss rows' END,
                             format('the row-level security of %s has been altered', keys),
                             'Restore it:', repair)::simsql._fault;
    END IF;
    IF thorough AND NOT EXISTS (
        SELECT FROM pg_trigger AS t
         WHERE t.tgrelid = class AND t.tgname = 'simsql_keep_own' AND t.tgenabled = 'R')
    THEN
        faults := faults || ('replication can delete keys', keys, 'damaged', 'may miss rows', NULL, NULL,
                             repair)::simsql._fault;
    END IF;
    IF thorough THEN
        faults := faults || simsql._btree_faults(index, class, simsql._key_columns(index));
    END IF;
    RETURN faults;
END
$$;

-- Repairs them, and returns the index. If a key table is lost, this is another one, with new key tables.
CREATE OR REPLACE FUNCTION simsql._tables_mend(index simsql.registry, faults simsql._fault[])
RETURNS simsql.registry
LANGUAGE plpgsql
SET enable_hashjoin = off SET enable_hashagg = off SET jit = off  -- as for _storage_compare
AS $$
DECLARE
    fault simsql._fault;
    policy name;
    renewed simsql.registry;
BEGIN
    IF EXISTS (SELECT FROM unnest(faults) AS f
                WHERE f.problem IN ('key table missing', 'key table altered'))
    THEN
        renewed := simsql._renew(index);
        PERFORM simsql._drop_objects(index);
        RETURN renewed;
    END IF;
    FOREACH fault IN ARRAY faults LOOP
        CASE fault.problem
        WHEN 'key table unlogged' THEN
            EXECUTE format('ALTER TABLE %s SET LOGGED', fault.object);
        WHEN 'policy altered' THEN
            FOR policy IN SELECT p.polname FROM pg_policy AS p WHERE p.polrelid = fault.object::regclass LOOP
                EXECUTE format('DROP POLICY %I ON %s', policy, fault.object);
            END LOOP;
            PERFORM simsql._guard_keys(fault.object, index);
        WHEN 'replication can delete keys' THEN
            PERFORM simsql._keep_own(fault.object, 'DELETE');
        WHEN 'keys missing' THEN
            EXECUTE simsql._for_key_tables(index, $sql$
                INSERT INTO {keys} ({key_columns})
                SELECT {key_columns}
                  FROM (SELECT DISTINCT {t_scope}{key} AS key FROM ONLY {table} AS t
                         WHERE t.{"column"} IS NOT NULL{in_a_scope} AND {guard}) AS live
                 WHERE NOT EXISTS (SELECT FROM {keys} AS k WHERE k.key = live.key{in_scope});
                $sql$, format('t.%I', index.column_name), '',
                simsql._tables_parts(index) || jsonb_build_object(
                    'in_scope', simsql._for_scope(index, ' AND k.%1$s = live.%1$s')));
        ELSE NULL;
        END CASE;
    END LOOP;
    IF EXISTS (SELECT FROM unnest(faults) AS f
                WHERE f.problem LIKE 'trigger %' OR f.problem = 'expression changed')
    THEN
        PERFORM simsql._create_triggers(index);
        -- An unfinished build has already passed rows that were written without triggers, so it starts over.
        IF to_regclass('simsql.built_' || index.id) IS NOT NULL THEN
            EXECUTE format('DELETE FROM simsql.built_%s', index.id);
        END IF;
    END IF;
    RETURN index;
END
$$;

-- Gives an index new key tables, under a new id, and returns it. To a snapshot that is older than they are,
-- they are empty; but such a snapshot only knows the old id. The caller drops what the old id has.
CREATE OR REPLACE FUNCTION simsql._renew(index simsql.registry) RETURNS simsql.registry
LANGUAGE plpgsql
AS $$
BEGIN
    UPDATE simsql.registry AS r SET id = DEFAULT, nonce = DEFAULT, storage = 'tables' WHERE r.id = index.id
    RETURNING r.* INTO index;
    PERFORM simsql._drop_key_tables(index.id);
    PERFORM simsql._tables_create(index, filled => index.ready);
    PERFORM simsql._create_functions(index);
    PERFORM simsql._create_triggers(index);
    RETURN index;
END
$$;

-- Compares the key tables with the rows, each in one pass over both in the order of keys: hashing more than
-- fits into work_mem takes three times as long. A key is superfluous if it has no row, and so are all but one
-- of equal keys. It leaves out the `damaged` tables.
CREATE OR REPLACE FUNCTION simsql._storage_compare(index simsql.registry, damaged text[] DEFAULT '{}')
RETURNS TABLE (keys text, missing bigint, superfluous bigint)
LANGUAGE plpgsql STABLE
SET enable_hashjoin = off SET enable_hashagg = off SET jit = off
AS $$
DECLARE
    statement constant text := simsql._for_key_tables(index, $sql$
        SELECT {'keys'}, count(*) FILTER (WHERE k.key IS NULL),
               coalesce(sum(k.copies - (live.key IS NOT NULL)::integer), 0)::bigint
          FROM (SELECT {key_columns}, count(*) AS copies FROM {keys} GROUP BY {key_columns}) AS k
          FULL JOIN (SELECT DISTINCT {t_scope}{key} AS key FROM ONLY {table} AS t
                      WHERE t.{"column"} IS NOT NULL{in_a_scope} AND {guard}) AS live USING ({key_columns})
        $sql$, format('t.%I', index.column_name), 'UNION ALL', simsql._tables_parts(index), damaged);
BEGIN
    IF index.storage = 'tables' AND statement IS NOT NULL THEN
        PERFORM simsql._check_sees_all(index.table_id, 'verify');
        RETURN QUERY EXECUTE statement;
    END IF;
END
$$;

-- The keys that are missing for a sample of the rows: those on about a thousand pages, which are all pages of a
-- table of 8 MB. Each key table has a sample of its own.
CREATE OR REPLACE FUNCTION simsql._storage_sample(index simsql.registry, damaged text[])
RETURNS TABLE (keys text, missing bigint)
LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET jit = off
AS $$
DECLARE
    pages constant double precision :=
        pg_relation_size(index.table_id) / current_setting('block_size')::double precision;
    statement constant text := simsql._for_key_tables(index, $sql$
        SELECT {'keys'}, count(*)
          FROM (SELECT DISTINCT {t_scope}{key} AS key FROM ONLY {table} AS t TABLESAMPLE system ({percent})
                 WHERE t.{"column"} IS NOT NULL{in_a_scope} AND {guard}) AS live
         WHERE NOT EXISTS (SELECT FROM {keys} AS k WHERE k.key = live.key{in_scope})
        $sql$, format('t.%I', index.column_name), 'UNION ALL',
        simsql._tables_parts(index) || jsonb_build_object(
            'percent', least(100, 100 * 1000 / greatest(pages, 1)),
            'in_scope', simsql._for_scope(index, ' AND k.%1$s = live.%1$s')), damaged);
BEGIN
    IF index.storage = 'tables' AND statement IS NOT NULL THEN
        PERFORM simsql._check_sees_all(index.table_id, 'verify');
        RETURN QUERY EXECUTE statement;
    END IF;
END
$$;


-- What a storage is, and the one file that chooses between them.
--
-- A storage keeps what the searches of an index read. Each has a folder here, and does the operations below
-- in functions called simsql._<storage>_<operation>, all with the same parameters and results. The functions
-- of this file, _storage_<operation>, choose the storage. An operation that only one storage needs is one
-- function, in the folder of this storage, that does nothing for other indexes. Nothing outside sql/storage/
-- asks which storage an index has, and only a backfill, which needs no index, asks whether Citus manages a
-- table.
--
-- To add a storage, add
--   * a folder with these operations, and its files to install.sql;
--   * a branch to each choice of this file: without one, it is null and nothing happens;
--   * to change_storage.sql, how an index comes to it;
--   * its name to simsql.registry (schema.sql, and a revision in migrations/).
-- Everything else, such as the triggers of key tables, is the storage's own business. So is Citus: only
-- `expression` knows it.

-- The storage of a new index: the given one or, by default, the one that suits the table.
CREATE OR REPLACE FUNCTION simsql._storage(table_name regclass, storage text, caller text) RETURNS text
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    IF storage NOT IN ('tables', 'expression') THEN
        RAISE EXCEPTION 'simsql.%: storage must be tables or expression, not %', caller,
                        quote_literal(storage)
            USING ERRCODE = 'invalid_parameter_value',
                  HINT = 'Leave it out: the default is tables, and expression for a partitioned or '
                         'distributed table.';
    END IF;
    RETURN coalesce(storage, CASE WHEN simsql._is_distributed(table_name)
                                       OR (SELECT c.relkind FROM pg_class AS c WHERE c.oid = table_name) = 'p'
                                  THEN 'expression' ELSE 'tables' END);
END
$$;

-- refusal: why a table cannot have this storage, after its name, and what to do; null if it can.
CREATE OR REPLACE FUNCTION simsql._storage_refusal(
    storage text, table_name regclass, caller text, OUT reason text, OUT hint text)
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    CASE storage
        WHEN 'tables' THEN SELECT r.* INTO reason, hint FROM simsql._tables_refusal(table_name, caller) AS r;
        WHEN 'expression' THEN
            SELECT r.* INTO reason, hint FROM simsql._expression_refusal(table_name, caller) AS r;
    END CASE;
END
$$;

-- lock: the mode in which a table is locked while an index on it is created. CREATE INDEX CONCURRENTLY, which
-- fills B-trees `online`, keeps no writer waiting.
CREATE OR REPLACE FUNCTION simsql._storage_lock(storage text, online boolean) RETURNS text
LANGUAGE sql IMMUTABLE
RETURN CASE WHEN storage = 'expression' AND online THEN 'SHARE UPDATE EXCLUSIVE'
            ELSE 'SHARE ROW EXCLUSIVE' END;

-- create: creates what holds the keys of an index: filled, or for `build` to fill. Functions and triggers
-- come later.
CREATE OR REPLACE FUNCTION simsql._storage_create(index simsql.registry, filled boolean) RETURNS void
LANGUAGE sql
AS $$
    SELECT CASE index.storage WHEN 'tables' THEN simsql._tables_create(index, filled)
                              WHEN 'expression' THEN simsql._expression_create(index, filled) END
$$;

-- functions: all that are generated for an index: its searches, and those that its triggers call. Only key
-- tables need triggers.
CREATE OR REPLACE FUNCTION simsql._functions(index simsql.registry)
RETURNS TABLE (name text, arguments text, head text, settings text[], body text)
LANGUAGE sql STABLE
AS $$
    SELECT f.* FROM simsql._search_functions(index) AS f
     UNION ALL
    SELECT f.* FROM simsql._trigger_functions(index) AS f WHERE index.storage = 'tables'
$$;

-- build: does the next part of a build in this transaction, and returns whether nothing is left.
CREATE OR REPLACE FUNCTION simsql._storage_build(index simsql.registry) RETURNS boolean
LANGUAGE sql
AS $$
    SELECT CASE index.storage WHEN 'tables' THEN simsql._tables_build(index)
                              WHEN 'expression' THEN simsql._expression_build(index) END
$$;

-- progress: the share of a build that is done, from 0 to 1.
CREATE OR REPLACE FUNCTION simsql._storage_progress(index simsql.registry) RETURNS double precision
LANGUAGE sql STABLE
AS $$
    SELECT CASE index.storage WHEN 'tables' THEN simsql._tables_progress(index)
                              WHEN 'expression' THEN simsql._expression_progress(index) END
$$;

-- keys: the number of keys in the first table or B-tree, estimated from its size.
CREATE OR REPLACE FUNCTION simsql._storage_keys(index simsql.registry) RETURNS double precision
LANGUAGE sql STABLE
AS $$
    SELECT CASE index.storage WHEN 'tables' THEN simsql._tables_keys(index)
                              WHEN 'expression' THEN simsql._expression_keys(index) END
$$;

-- vacuum: does the next batch of a vacuum and returns its progress.
CREATE OR REPLACE FUNCTION simsql._storage_vacuum(index simsql.registry, state simsql._vacuum_state)
RETURNS simsql._vacuum_state
LANGUAGE sql
AS $$
    SELECT CASE index.storage WHEN 'tables' THEN simsql._tables_vacuum(index, state)
                              WHEN 'expression' THEN simsql._expression_vacuum(index, state) END
$$;

-- size: the bytes that the key tables, or the B-trees on prefixes, take on disk. Null on Citus, and while another
-- session locks one of them exclusively, such as ALTER TABLE or REINDEX: a monitor must not wait for that.
CREATE OR REPLACE FUNCTION simsql._storage_size(index simsql.registry) RETURNS bigint
LANGUAGE plpgsql STABLE
SET lock_timeout = '100ms'
AS $$
BEGIN
    RETURN CASE index.storage WHEN 'tables' THEN simsql._tables_size(index)
                              WHEN 'expression' THEN simsql._expression_size(index) END;
EXCEPTION
    WHEN lock_not_available THEN RETURN NULL;
END
$$;

-- advice: the share of what searches read that a vacuum would clean up, when the last one was, and what an
-- administrator should do; null if nothing. `need` is what `maintain` does about it: vacuum the index, or analyze
-- its tables. It reads the catalogue and the statistics alone, and no role needs privileges for that. Null while
-- another session locks exclusively what has to be measured.
CREATE OR REPLACE FUNCTION simsql._storage_advice(
    index simsql.registry, OUT unvacuumed double precision, OUT last_vacuum timestamptz, OUT hint text,
    OUT need text)
LANGUAGE plpgsql STABLE
SET lock_timeout = '100ms'
AS $$
BEGIN
    CASE index.storage
        WHEN 'tables' THEN
            SELECT a.* INTO unvacuumed, last_vacuum, hint, need FROM simsql._tables_advice(index) AS a;
        WHEN 'expression' THEN
            SELECT a.* INTO unvacuumed, last_vacuum, hint FROM simsql._expression_advice(index) AS a;
    END CASE;
EXCEPTION
    WHEN lock_not_available THEN NULL;
END
$$;

-- drop: drops everything that create_index creates, except for the B-tree on the user's column. An
-- interrupted change of the storage leaves some of each.
CREATE OR REPLACE FUNCTION simsql._drop_objects(index simsql.registry) RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    was_default boolean;
BEGIN
    PERFORM simsql._expression_drop(index);
    PERFORM simsql._tables_drop(index);
    PERFORM simsql._drop_searches(index.id);
    -- A former id is not registered.
    DELETE FROM simsql.registry AS r WHERE r.id = index.id RETURNING r.is_default INTO was_default;
    IF was_default THEN
        UPDATE simsql.registry AS r SET is_default = NULL WHERE r.table_id = index.table_id;
    END IF;
END
$$;

-- branches: a row for each permutation: its number, the SQL expression of its key for the fingerprint $1, the
-- bits of the key that a search flips, and the parts that the templates below use for it.
CREATE OR REPLACE FUNCTION simsql._storage_branches(index simsql.registry)
RETURNS TABLE (number integer, key text, flipped bigint, parts jsonb)
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    CASE index.storage
        WHEN 'tables' THEN RETURN QUERY SELECT b.* FROM simsql._tables_branches(index) AS b;
        WHEN 'expression' THEN RETURN QUERY SELECT b.* FROM simsql._expression_branches(index) AS b;
    END CASE;
END
$$;

-- reads: templates of what a search, a batch and a count read. In all of them $1 is a fingerprint, or the
-- fingerprints of a batch, and $2 the distance. Besides the parts of the branch, they may use those of _parts.
--   exact, probes     one branch of a search: the lead bits are equal, or differ by one of {flips}
--   between           what stands between two branches
--   all               what a scan reads instead
--   matches           the statement of a search, from {source}: its branches or `all`
--   candidates, skip  only if the storage may hold copies, or fingerprints without rows: the statement that
--                     collects up to {candidate_limit} candidates from {source}, for `matches` to check, and
--                     a branch that skips copies
--   pays              whether the index, or its scope, has {least_rows}; `pays_in_scope` if that differs
--   flips             what stands for {flips} in a branch with the key {key}
--   settings          the settings of a search function, if they differ
--   batch             the statement of one permutation of a batch; r.fp is a query and r.fingerprint its match
--   size              counts keys up to the limit $1, or estimates them; `size_of_scope` if that differs
--   sample            returns a sample of fingerprints, with duplicates, in ascending order
--   count             counts, for the fingerprints $1, the other keys in the ranges of the flips $2
--   counts_rare_keys  whether `count` reads only these keys
--   fingerprints      returns all distinct fingerprints, in ascending order
CREATE OR REPLACE FUNCTION simsql._storage_reads(index simsql.registry) RETURNS jsonb
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    usual constant jsonb := jsonb_build_object(
        'flips', '{flips}',
        'counts_rare_keys', true,
        'fingerprints', $sql$
            SELECT ARRAY(SELECT DISTINCT t.{"column"} FROM {rows} AS t
                          WHERE t.{"column"} IS NOT NULL{scope_of_rows} AND {guard} ORDER BY 1)$sql$);
BEGIN
    RETURN usual || CASE index.storage WHEN 'tables' THEN simsql._tables_reads(index)
                                       WHEN 'expression' THEN simsql._expression_reads(index) END;
END
$$;

-- rows: what a search in the rows of an index reads, as FROM names it. Key tables hold the keys of one table
-- alone. Without them, a search reads partitions and inheritance children as plain SQL does.
CREATE OR REPLACE FUNCTION simsql._rows_of(index simsql.registry) RETURNS text
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN CASE index.storage WHEN 'tables' THEN 'ONLY ' ELSE '' END || index.table_name;
END
$$;

-- faults: those of what the storage keeps. `actual` is the index with the current names of its table and
-- columns, `index` with the registered ones. A quick look has to tell everything that makes searches refuse
-- the index.
CREATE OR REPLACE FUNCTION simsql._storage_faults(
    index simsql.registry, actual simsql.registry, thorough boolean)
RETURNS simsql._fault[]
LANGUAGE sql STABLE
AS $$
    SELECT CASE index.storage WHEN 'tables' THEN simsql._tables_faults(index, actual, thorough)
                              WHEN 'expression' THEN simsql._expression_faults(index, actual, thorough) END
$$;

-- compare: compares each key table with the rows: how many keys are missing, and how many a vacuum would
-- remove. PostgreSQL maintains B-trees, so _storage_compare is a function of `tables`, like _storage_sample.

-- mend: repairs these faults, `keys missing` among them, and returns the index, which may be another one by
-- then.
CREATE OR REPLACE FUNCTION simsql._storage_mend(index simsql.registry, faults simsql._fault[])
RETURNS simsql.registry
LANGUAGE sql
AS $$
    SELECT CASE index.storage WHEN 'tables' THEN simsql._tables_mend(index, faults)
                              WHEN 'expression' THEN simsql._expression_mend(index, faults) END
$$;

-- Every index, and whether searches accept it. A search reads this in one statement: it takes a tenth of the
-- time of _faults, which is only called if the index is not certainly sound.
--
-- With key tables, the index is certainly sound if all of this is so: it is ready; the table has its name and
-- no child; its triggers fire as they should; the trigger that never runs names the columns, which have their
-- types; another such trigger keeps parents away; the first key table exists, and is logged if the table is.
-- (A publishable table is a logged one.) The triggers are read in one scan: reading one takes as long as
-- reading all. Each is compared as its name and a suffix: how it fires (and "?" if it has a digest to look at),
-- the names of its columns, or "!" for one that never runs and has a transition table. Every trigger has a
-- suffix, so no other trigger can match.
-- The role sees the keys, and so does the policy of the key tables, which reads the registry as this role.
CREATE OR REPLACE VIEW simsql._searchable AS
SELECT r.id, r.table_id, r.column_name, r.is_default, r.distance, r.scope_columns,
       (CASE r.storage WHEN 'tables' THEN
        r.ready
        AND NOT (SELECT c.relhassubclass FROM pg_class AS c WHERE c.oid = r.table_id)
        AND to_regclass(r.table_name) = r.table_id
        AND to_regprocedure('simsql.search_' || r.id || CASE r.scope_columns
                            WHEN '{}' THEN '(bigint,integer)' ELSE '(bigint,integer,jsonb)' END) IS NOT NULL
        AND EXISTS (SELECT FROM pg_attribute AS a
                     WHERE a.attrelid = r.table_id AND a.attname = r.column_name
                       AND a.atttypid = 20 AND a.attgenerated <> 'v')
        AND (r.scope_columns = '{}'
             OR NOT EXISTS (
                SELECT FROM pg_attribute AS a
                 WHERE a.attrelid = r.table_id AND a.attname = ANY (r.scope_columns)
                   AND a.atttypid <> r.scope_types[array_position(r.scope_columns, a.attname::text)]
                   AND simsql._base_type(a.atttypid)
                       <> r.scope_types[array_position(r.scope_columns, a.attname::text)]))
        AND ARRAY(SELECT t.tgname || CASE
                         WHEN t.tgqual IS NULL THEN t.tgenabled::text || repeat('?', t.tgnargs - 1)
                         WHEN t.tgattr[0] IS NOT NULL THEN ARRAY[
                              simsql._column_name(t.tgrelid, t.tgattr[0]),
                              simsql._column_name(t.tgrelid, t.tgattr[1]),
                              simsql._column_name(t.tgrelid, t.tgattr[2]),
                              simsql._column_name(t.tgrelid, t.tgattr[3]),
                              simsql._column_name(t.tgrelid, t.tgattr[4])]::text
                         WHEN t.tgnewtable IS NOT NULL AND t.tgtype & 1 = 1 THEN '!'
                         ELSE '?' END
                    FROM pg_trigger AS t WHERE t.tgrelid = r.table_id)
            @> ARRAY['simsql_' || r.id || '_insertA',
                     'simsql_' || r.id || '_updateA',
                     'simsql_' || r.id || '_replicaR',
                     'simsql_' || r.id || '_column'
                     || ARRAY[r.column_name, r.scope_columns[1], r.scope_columns[2],
                              r.scope_columns[3], r.scope_columns[4]]::text,
                     'simsql_' || r.id || '_no_parent!']
        AND (pg_relation_is_publishable(to_regclass('simsql.keys_' || r.id || '_0'))
             OR to_regclass('simsql.keys_' || r.id || '_0') IS NOT NULL
                AND NOT pg_relation_is_publishable(r.table_id))
        AND (NOT row_security_active(to_regclass('simsql.keys_' || r.id || '_0'))
             OR NOT simsql._has_other_policies(to_regclass('simsql.keys_' || r.id || '_0')))
        ELSE simsql._expression_is_sound(r)
        END AND NOT row_security_active('simsql.registry')) IS TRUE OR simsql._is_searchable(r) AS sound
  FROM simsql.registry AS r;

GRANT SELECT ON simsql._searchable TO PUBLIC;


-- change_storage: keeps an index in the other storage, with the same design, recipe and scope.
--
-- Creates the new objects beside the old ones, which serve searches until the last step: it replaces the
-- search functions and updates the registry.
--
-- B-trees keep the id of the index: every snapshot, however old, finds the rows that it sees in them. Key
-- tables are empty for a snapshot that is older than they are, so they get a new id, whose functions such a
-- snapshot does not call.
--
-- Claims before and after the change meet. They take the same locks as long as the id stays. If it changes,
-- the claims before it have locked the table, so the change waits for their transactions.

-- Returns the index whose storage is to be changed, or raises an error.
CREATE OR REPLACE FUNCTION simsql._check_storage_change(table_name regclass, storage text, column_name text)
RETURNS simsql.registry
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    index constant simsql.registry := simsql._index(table_name, column_name);
BEGIN
    IF storage IS NULL THEN
        RAISE EXCEPTION 'simsql.change_storage: the storage must not be null'
            USING ERRCODE = 'null_value_not_allowed',
                  HINT = format('For example: SELECT simsql.change_storage(%L, ''expression'');', table_name);
    END IF;
    PERFORM simsql._storage(table_name, storage, 'change_storage');
    PERFORM simsql._check_indexable(table_name, index.column_name, index.scope_columns, storage,
                                    'change_storage');
    PERFORM simsql._check_upkeep(index, 'change_storage');
    RETURN index;
END
$$;

-- Keeps everybody from a table and the key tables of its index until the end of the transaction. Some
-- transactions lock the table first, and searches lock the keys first. So each attempt waits so briefly that
-- nobody fails with a deadlock, releases the locks, and is repeated a little later, for as long as
-- lock_timeout allows.
--
-- If this transaction already locks out writers, another one that has searched and now waits to write would
-- keep it waiting forever, and PostgreSQL may not notice. Each attempt therefore checks for such a
-- transaction and raises an error. The first attempts do not wait: while this waits, PostgreSQL ends the
-- other transaction at once, although this one should give way.
CREATE OR REPLACE FUNCTION simsql._lock_out(index simsql.registry) RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    lock_timeout constant text := current_setting('lock_timeout');
    deadlock_timeout constant interval := current_setting('deadlock_timeout');
    wait constant integer := least(100, extract(epoch FROM deadlock_timeout) * 500);
    deadline constant timestamptz := clock_timestamp() + nullif(lock_timeout::interval, '0');
    relations constant text := (
        SELECT string_agg('ONLY ' || c.oid::regclass, ', ' ORDER BY c.oid = index.table_id DESC, c.oid)
          FROM pg_class AS c
         WHERE c.oid = index.table_id
            OR c.relnamespace = 'simsql'::regnamespace AND c.relkind = 'r'
               AND c.relname ~ format('^keys_%s_\d+$', index.id));
    attempt integer := 1;
    is_deadlock boolean;
BEGIN
    LOOP
        PERFORM simsql._check_no_concurrent_change(index.table_id, 'change_storage');
        WITH RECURSIVE waiting AS (
            SELECT l.pid FROM pg_locks AS l
             WHERE l.relation = index.table_id AND l.granted AND l.pid <> pg_backend_pid()
               AND l.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database())
             UNION
            SELECT b.pid FROM waiting AS w CROSS JOIN LATERAL unnest(pg_blocking_pids(w.pid)) AS b (pid))
        SELECT EXISTS (SELECT FROM waiting AS w WHERE w.pid = pg_backend_pid()) INTO is_deadlock;
        IF is_deadlock THEN
            RAISE EXCEPTION 'simsql.change_storage: a transaction that has searched % is waiting to write to it',
                            index.table_name
                USING ERRCODE = 'deadlock_detected',
                      HINT = 'Use the command simsql index change-storage, for which writers do not wait. '
                             'Or try again later.';
        END IF;
        BEGIN
            PERFORM set_config('lock_timeout', wait || 'ms', true);
            EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE%s', relations,
                           CASE WHEN attempt <= 20 THEN ' NOWAIT' END);
            EXIT;
        EXCEPTION WHEN lock_not_available THEN
            IF clock_timestamp() > deadline THEN
                RAISE EXCEPTION 'simsql.change_storage: % is in use and could not be locked within %',
                                index.table_name, lock_timeout
                    USING ERRCODE = 'lock_not_available',
                          HINT = 'Try again later, or with a longer lock_timeout.';
            END IF;
        END;
        PERFORM pg_sleep(CASE WHEN attempt <= 20 THEN 0.02 ELSE 0.1 END);
        attempt := attempt + 1;
    END LOOP;
    PERFORM set_config('lock_timeout', lock_timeout, true);
END
$$;

-- Writers wait, and searches go on until the end. With key tables, if transactions that have searched wait to
-- write, it starts over, and everybody waits. If there is nothing left to create, it keeps everybody waiting
-- from the start. With `keep`, triggers and key tables that B-trees replace stay, and keep every key.
CREATE OR REPLACE FUNCTION simsql._change_storage(
    table_name regclass, storage text, column_name text, keep boolean)
RETURNS integer
LANGUAGE plpgsql
AS $$
DECLARE
    index simsql.registry := simsql._check_storage_change(table_name, storage, column_name);
    renewed simsql.registry;
    is_alone boolean := index.storage = storage AND NOT keep;
BEGIN
    PERFORM simsql._take_turn(table_name, 'change_storage');
    LOOP
        BEGIN
            IF is_alone THEN
                PERFORM simsql._lock_out(index);
            END IF;
            PERFORM simsql._lock(table_name, 'SHARE ROW EXCLUSIVE', 'change_storage');
            -- With a column: the default index may have changed.
            index := simsql._check_storage_change(table_name, storage, index.column_name);
            IF index.storage = storage THEN
                IF storage = 'tables' THEN
                    PERFORM simsql._expression_drop(index);  -- B-trees of an interrupted change
                END IF;
            ELSIF storage = 'tables' THEN
                renewed := simsql._renew(index);
                PERFORM simsql._give(renewed, simsql._owner(index));
                PERFORM simsql._lock_out(index);
                PERFORM simsql._drop_objects(index);
                RETURN renewed.id;
            ELSE
                index.storage := storage;
                PERFORM simsql._create_btrees(index);
                UPDATE simsql.registry AS r SET storage = index.storage WHERE r.id = index.id;
                PERFORM simsql._create_functions(index);
            END IF;
            IF storage = 'expression' AND NOT keep
               AND to_regclass(format('simsql.keys_%s_0', index.id)) IS NOT NULL
            THEN
                PERFORM simsql._lock_out(index);
                PERFORM simsql._tables_drop(index);
            END IF;
            RETURN index.id;
        EXCEPTION WHEN deadlock_detected THEN
            IF is_alone OR storage <> 'tables' THEN
                RAISE;
            END IF;
            is_alone := true;
        END;
    END LOOP;
END
$$;

CREATE OR REPLACE FUNCTION simsql.change_storage(
    table_name regclass, storage text, column_name text DEFAULT NULL)
RETURNS integer
LANGUAGE plpgsql
AS $$
BEGIN
    RETURN simsql._change_storage(table_name, storage, column_name, keep => false);
END
$$;

COMMENT ON FUNCTION simsql.change_storage(regclass, text, text) IS
    'keep a simhash index in key tables or in B-trees on the table (tables, expression), in this '
    'transaction, and return its id; writers wait, and searches go on until it is done';


-- create_index and drop_index: the key tables, triggers and search functions of one column.
--
-- All objects are named by the id in the registry: the name of the user's table may be 63 bytes long, occur
-- in two schemas, or change. No function depends on the user's table or its row type, so DROP TABLE keeps
-- working.


-- Citus would create it on every node, which it refuses after it has created B-trees in the same transaction.
CREATE OR REPLACE FUNCTION simsql._create_function(
    name text, arguments text, head text, settings text[], body text)
RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM simsql._execute_here(simsql._render(
        'CREATE OR REPLACE FUNCTION simsql.{"name"}{arguments} {head} {settings} AS {''body''}',
        jsonb_build_object('name', name, 'arguments', arguments, 'head', head, 'body', body,
                           'settings', (SELECT string_agg('SET ' || s, ' ') FROM unnest(settings) AS s))));
END
$$;

-- Creates or replaces all generated functions of an index.
CREATE OR REPLACE FUNCTION simsql._create_functions(index simsql.registry) RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    function record;
    signature text;
    grantee oid;
BEGIN
    FOR function IN SELECT * FROM simsql._functions(index) LOOP
        PERFORM simsql._create_function(function.name, function.arguments, function.head, function.settings,
                                        function.body);
        CONTINUE WHEN function.head NOT LIKE '%SECURITY DEFINER%';
        signature := format('simsql.%I%s', function.name, function.arguments);
        FOR grantee IN SELECT simsql._other_callers(signature::regprocedure) LOOP
            EXECUTE format('REVOKE ALL ON FUNCTION %s FROM %s CASCADE', signature,
                           CASE grantee WHEN 0 THEN 'PUBLIC' ELSE grantee::regrole::text END);
        END LOOP;
    END LOOP;
END
$$;

-- The roles other than the owner that may call a function; 0 is PUBLIC.
CREATE OR REPLACE FUNCTION simsql._other_callers(function regprocedure) RETURNS SETOF oid
LANGUAGE sql STABLE
AS $$
    SELECT DISTINCT a.grantee
      FROM pg_proc AS p
     CROSS JOIN LATERAL aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) AS a
     WHERE p.oid = function AND a.grantee <> p.proowner
$$;

-- Adds an index to the registry and locks its table until the end of the transaction. Writers wait, as for
-- CREATE INDEX. Everything that follows reads with a snapshot that is later than the lock.
CREATE OR REPLACE FUNCTION simsql._register(
    table_name regclass, column_name text, distance integer, blocks integer, lead integer,
    inner_blocks integer, recipe text, scope text[], storage text, online boolean)
RETURNS simsql.registry
LANGUAGE plpgsql
AS $$
DECLARE
    index simsql.registry;
    existing simsql.registry;
    caller constant text := CASE WHEN online THEN 'build' ELSE 'create_index' END;
    rows bigint;
BEGIN
    index.table_id := table_name;
    index.table_name := simsql._full_name(table_name);
    index.column_name := column_name;
    index.distance := distance;
    index.blocks := blocks;
    index.lead := coalesce(lead, 1);
    index.inner_blocks := coalesce(inner_blocks, 0);
    index.recipe := recipe;
    index.scope_columns := coalesce(scope, '{}');
    PERFORM simsql._check_new(table_name, column_name, distance, blocks, lead, inner_blocks,
                              index.scope_columns, storage, caller);
    index.storage := simsql._storage(table_name, storage, caller);
    IF blocks IS NULL THEN
        -- A search meets the keys of one scope only, so the largest scope counts.
        EXECUTE simsql._render($sql$
            SELECT coalesce(max(rows), 0)
              FROM (SELECT count(t.{"column"}) AS rows FROM {rows_of} AS t WHERE {guard} {group}) AS s$sql$,
            jsonb_build_object(
                'column', column_name,
                'rows_of', simsql._rows_of(index),
                'guard', simsql._guard(index.table_name, column_name),
                'group', 'GROUP BY ' || simsql._name_list(index.scope_columns)))
           INTO rows;
        SELECT d.blocks, d.lead INTO index.blocks, index.lead FROM simsql._design(rows, distance) AS d;
    END IF;
    PERFORM simsql._lock(table_name, simsql._storage_lock(index.storage, online), caller);
    PERFORM simsql._check_indexable(table_name, column_name, index.scope_columns, index.storage, caller);
    -- In this order: the keys of an index are of no use to a table that was restored with its triggers, so it
    -- gets a new one. And such a trigger may use a function of an index whose table is gone.
    PERFORM simsql._drop_triggers(table_name);
    PERFORM simsql._follow_table(table_name);
    SELECT r.* INTO existing
      FROM simsql.registry AS r
     WHERE r.table_id = _register.table_name AND r.column_name = _register.column_name;
    IF FOUND THEN
        RAISE EXCEPTION 'simsql.%: column % of % already has %', caller, quote_ident(column_name), table_name,
                        CASE WHEN existing.ready THEN 'a simhash index' ELSE 'an unfinished simhash index' END
            USING ERRCODE = 'duplicate_object',
                  HINT = CASE
                      WHEN NOT existing.ready
                      THEN format('Finish its build: %s Or drop it first: SELECT simsql.drop_index(%L, %L);',
                                  simsql._build_call(existing), table_name, column_name)
                      WHEN existing.storage IS DISTINCT FROM index.storage
                      THEN format('To change its storage: SELECT simsql.change_storage(%L, %L, %L);',
                                  table_name, index.storage, column_name)
                      ELSE format('To change its design, drop it first: SELECT simsql.drop_index(%L, %L);',
                                  table_name, column_name) END;
    END IF;
    PERFORM simsql._drop_orphans();
    INSERT INTO simsql.registry AS r (table_id, table_name, column_name, distance, blocks, lead, inner_blocks,
                                      recipe, scope_columns, scope_types, ready, storage, is_default)
    VALUES (index.table_id, simsql._full_name(table_name), index.column_name, index.distance, index.blocks,
            index.lead, index.inner_blocks, index.recipe, index.scope_columns,
            simsql._scope_types(table_name, index.scope_columns), NOT online, index.storage,
            CASE WHEN EXISTS (SELECT FROM simsql.registry AS d
                               WHERE d.table_id = index.table_id AND d.is_default) THEN false END)
    RETURNING r.* INTO index;
    PERFORM simsql._drop_key_tables(index.id);
    PERFORM simsql._drop_searches(index.id);
    RETURN index;
END
$$;

-- Drops the functions of searches. A schema-only dump contains those of an index too, and the new index with
-- its id may have others: they have another parameter if there is a scope.
CREATE OR REPLACE FUNCTION simsql._drop_searches(index_id integer) RETURNS void
LANGUAGE plpgsql
SET client_min_messages = warning  -- no notice for those that there are not
AS $$
BEGIN
    EXECUTE format('DROP FUNCTION IF EXISTS '
                   'simsql.search_%1$s(bigint, integer), simsql.search_%1$s(bigint, integer, jsonb), '
                   'simsql.scan_%1$s(bigint, integer), simsql.scan_%1$s(bigint, integer, jsonb)', index_id);
END
$$;

CREATE OR REPLACE FUNCTION simsql.create_index(
    table_name regclass, column_name text, distance integer DEFAULT 3,
    blocks integer DEFAULT NULL, lead integer DEFAULT NULL, inner_blocks integer DEFAULT NULL,
    recipe text DEFAULT NULL, scope text[] DEFAULT '{}', storage text DEFAULT NULL)
RETURNS integer
LANGUAGE plpgsql
AS $$
DECLARE
    index simsql.registry := simsql._register(
        table_name, column_name, distance, blocks, lead, inner_blocks, recipe, scope, storage,
        online => false);
BEGIN
    PERFORM simsql._create_plain_btree(index);
    PERFORM simsql._storage_create(index, filled => true);
    index := simsql._learn_skew(index);
    PERFORM simsql._create_functions(index);
    PERFORM simsql._create_triggers(index);
    RETURN index.id;
END
$$;

COMMENT ON FUNCTION simsql.create_index(regclass, text, integer, integer, integer, integer, text, text[],
                                        text) IS
    'create a simhash index on a bigint column, in this transaction, and return its id; writers wait. '
    'scope: the columns whose values restrict each search. storage: tables, the default, or expression, '
    'that of partitioned and distributed tables';

-- DROP TABLE leaves the keys of its indexes behind. Whoever creates the next index drops those that this role
-- owns.
CREATE OR REPLACE FUNCTION simsql._drop_orphans() RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    index simsql.registry;
BEGIN
    FOR index IN
        SELECT r.* FROM simsql.registry AS r
         WHERE NOT EXISTS (SELECT FROM pg_class AS c WHERE c.oid = r.table_id)
           AND simsql._recreated(r) IS NULL
           AND pg_has_role(simsql._owner(r), 'USAGE')
    LOOP
        RAISE NOTICE 'simsql: table % was dropped; dropping the remains of its simhash index',
                     index.table_name;
        -- Another role's trigger may use one of its functions. Its owner has to drop that, and this call need
        -- not fail.
        BEGIN
            PERFORM simsql._drop_objects(index);
        EXCEPTION WHEN OTHERS THEN
            RAISE WARNING 'simsql: cannot drop the remains of the simhash index on %: %', index.table_name,
                          sqlerrm;
        END;
    END LOOP;
END
$$;

CREATE OR REPLACE FUNCTION simsql.drop_index(table_name regclass, column_name text DEFAULT NULL) RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    found simsql.registry[];
    is_locked boolean := NOT EXISTS (SELECT FROM pg_class AS c WHERE c.oid = drop_index.table_name);
BEGIN
    PERFORM simsql._follow_table(table_name);
    LOOP
        found := ARRAY(SELECT r FROM simsql.registry AS r
                        WHERE r.table_id = drop_index.table_name
                          AND (drop_index.column_name IS NULL OR r.column_name = drop_index.column_name)
                        ORDER BY r.id);
        IF cardinality(found) = 0 THEN
            RAISE EXCEPTION 'simsql.drop_index: % has no simhash index%', table_name,
                            coalesce(' on column ' || quote_ident(column_name), '')
                USING ERRCODE = 'undefined_object', HINT = 'SELECT * FROM simsql.indexes lists them.';
        ELSIF cardinality(found) > 1 THEN
            RAISE EXCEPTION 'simsql.drop_index: % has % simhash indexes', table_name, cardinality(found)
                USING ERRCODE = 'ambiguous_column',
                      HINT = (SELECT format('Name the column: one of %s.',
                                            string_agg(f.column_name, ', ' ORDER BY f.id))
                                FROM unnest(found) AS f);
        END IF;
        EXIT WHEN is_locked;
        -- Until it has the lock, others may drop the index or change its storage, and so its id.
        PERFORM simsql._lock(table_name, 'ACCESS EXCLUSIVE', 'drop_index');
        is_locked := true;
    END LOOP;
    PERFORM simsql._drop_objects(found[1]);
END
$$;

COMMENT ON FUNCTION simsql.drop_index(regclass, text) IS
    'drop a simhash index, but not the column and its B-tree';


-- simsql.indexes: one row for each index.

-- To add a column, append it and its comment here. `simsql index list` prints those that simsql/cli/index.py names.
CREATE OR REPLACE VIEW simsql.indexes AS
SELECT r.id,
       r.table_name,
       r.column_name,
       r.scope_columns AS scope,
       r.distance,
       r.blocks,
       r.lead,
       r.inner_blocks,
       r.recipe,
       h.state,
       r.storage,
       coalesce(r.is_default, count(*) OVER (PARTITION BY r.table_id) = 1) AS is_default,
       simsql._storage_size(r) AS bytes,
       h.unvacuumed,
       h.last_vacuum,
       h.hint
  FROM simsql.registry AS r
  JOIN simsql._searchable AS s ON s.id = r.id
  LEFT JOIN pg_class AS c ON c.oid = r.table_id
  LEFT JOIN pg_namespace AS n ON n.oid = c.relnamespace
 -- `sound` looks the table up by its name, which a role may not do in a schema that is closed to it.
 CROSS JOIN LATERAL simsql._health(
       r, CASE WHEN quote_ident(n.nspname) || '.' || quote_ident(c.relname) = r.table_name
                    AND has_schema_privilege(n.oid, 'USAGE') THEN s.sound END) AS h;

COMMENT ON VIEW simsql.indexes IS
    'one row per simhash index, with its state according to the catalogue; simsql.verify checks more';
COMMENT ON COLUMN simsql.indexes.id IS 'the number in the names of its objects';
COMMENT ON COLUMN simsql.indexes.table_name IS 'the table when the index was created or repaired, with its schema';
COMMENT ON COLUMN simsql.indexes.column_name IS 'the column of the fingerprints';
COMMENT ON COLUMN simsql.indexes.scope IS 'the columns whose values restrict each search';
COMMENT ON COLUMN simsql.indexes.distance IS 'the default distance of searches, from 0 to 64 bits';
COMMENT ON COLUMN simsql.indexes.blocks IS 'of the design: into how many blocks a fingerprint is cut';
COMMENT ON COLUMN simsql.indexes.lead IS 'of the design: how many blocks lead each key';
COMMENT ON COLUMN simsql.indexes.inner_blocks IS 'of the design: into how many blocks the other bits are cut, or 0';
COMMENT ON COLUMN simsql.indexes.recipe IS 'the id of the recipe of the fingerprints, or null';
COMMENT ON COLUMN simsql.indexes.state IS 'ready, or the worst fault that the catalogue shows';
COMMENT ON COLUMN simsql.indexes.storage IS 'tables: key tables; expression: B-trees on the table itself';
COMMENT ON COLUMN simsql.indexes.is_default IS 'whether searches that name no column use it';
COMMENT ON COLUMN simsql.indexes.bytes IS 'the size of the key tables, or of the B-trees on prefixes';
COMMENT ON COLUMN simsql.indexes.unvacuumed IS
    'the share, from 0 to 1, of what searches read that a vacuum would clean up';
COMMENT ON COLUMN simsql.indexes.last_vacuum IS 'when the last vacuum ended';
COMMENT ON COLUMN simsql.indexes.hint IS 'what to do, or null if there is nothing to do';

GRANT SELECT ON simsql.indexes TO PUBLIC;


-- set_default_index: which index of a table is searched if a search names no column.
--
-- A table has two indexes while its fingerprints change to another recipe: each recipe has a column of its
-- own, so that no writer can mix them. This function is the step between: one committed update, which takes
-- no lock that searches or writers wait for, and which the same function reverts. Claims that name no column
-- wait for it, and it for them.

CREATE OR REPLACE FUNCTION simsql.set_default_index(
    table_name regclass, column_name text, missing bigint DEFAULT 0)
RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    index simsql.registry;
    before simsql.registry;
    rows bigint;
BEGIN
    IF table_name IS NULL OR column_name IS NULL OR missing IS NULL THEN
        RAISE EXCEPTION 'simsql.set_default_index: the table, the column and the number of missing '
                        'fingerprints must not be null'
            USING ERRCODE = 'null_value_not_allowed',
                  HINT = 'For example: SELECT simsql.set_default_index(''article'', ''fingerprint'');';
    END IF;
    IF missing < 0 THEN
        RAISE EXCEPTION 'simsql.set_default_index: missing must be at least 0, not %', missing
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    -- An older snapshot would not show indexes that others have created, nor all rows.
    PERFORM simsql._check_read_committed('set_default_index');
    index := simsql._index(table_name, column_name);
    PERFORM simsql._check_indexable(table_name, column_name, index.scope_columns, index.storage,
                                    'set_default_index');
    PERFORM simsql._lock(table_name, 'SHARE UPDATE EXCLUSIVE', 'set_default_index');
    PERFORM pg_advisory_xact_lock(hashtextextended('simsql.default', table_name::oid::bigint));
    -- Meanwhile the index may have been dropped, or got another id with another storage.
    index := simsql._index(table_name, column_name);
    -- The default before may be unfit for searches, as after a rename. Without its column, no row is counted.
    SELECT a.* INTO before FROM simsql.registry AS r CROSS JOIN LATERAL simsql._as_named(r) AS a
     WHERE r.table_id = index.table_id AND r.is_default;
    IF before.id <> index.id AND before.column_name IS NOT NULL THEN
        EXECUTE simsql._render(
            'SELECT count(*) FROM {rows_of} AS t WHERE t.{"before"} IS NOT NULL AND t.{"column"} IS NULL '
            'AND {guard_before} AND {guard}',
            jsonb_build_object('rows_of', simsql._rows_of(index), 'before', before.column_name,
                               'column', column_name, 'guard', simsql._guard(index),
                               'guard_before', simsql._guard(before.table_name, before.column_name)))
           INTO rows;
        IF rows > missing THEN
            RAISE EXCEPTION 'simsql.set_default_index: % of % with a fingerprint in % % none in %',
                            CASE rows WHEN 1 THEN '1 row' ELSE rows || ' rows' END, table_name,
                            quote_ident(before.column_name), CASE rows WHEN 1 THEN 'has' ELSE 'have' END,
                            quote_ident(column_name)
                USING ERRCODE = 'object_not_in_prerequisite_state',
                      HINT = format('Backfill the column, or let searches miss %s: '
                                    'SELECT simsql.set_default_index(%L, %L, missing => %s);',
                                    CASE rows WHEN 1 THEN 'it' ELSE 'them' END, table_name, column_name,
                                    rows);
        END IF;
    END IF;
    UPDATE simsql.registry AS r SET is_default = r.id = index.id WHERE r.table_id = index.table_id;
END
$$;

COMMENT ON FUNCTION simsql.set_default_index(regclass, text, bigint) IS
    'let searches that name no column use the index of this one, if the table has several; missing: how many '
    'rows may have a fingerprint for the default index before and none for this one';


-- vacuum: removes keys without a row, and all but one of equal keys.
--
-- A vacuum removes only keys that its own snapshot proves superfluous. A writer's new key is invisible to it,
-- so it needs no lock on the user's table and blocks nobody. Two vacuums of one index with snapshots of the
-- same time could each remove the key that the other keeps. So they take turns, batch by batch: each batch
-- waits for its turn, and only then takes its snapshot.

-- How many keys or fingerprints a batch of vacuum or build handles: it lasts about a second. Smaller batches
-- would visit the same pages more often.
CREATE OR REPLACE FUNCTION simsql._batch_size() RETURNS integer
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN 200000;

-- Raises an error inside a transaction, where a procedure cannot commit.
--
-- Procedures that commit cannot set a search_path. So they qualify types, functions and operators, and leave
-- the work to functions.
CREATE OR REPLACE PROCEDURE simsql._leave_transaction(caller text)
LANGUAGE plpgsql
AS $$
DECLARE
    at_commit pg_catalog.text;
    at_rollback pg_catalog.text;
BEGIN
    -- In a block with an exception clause neither is allowed, and only the messages, in any language, tell
    -- why. Inside a transaction they are equal. Otherwise one speaks of committing and the other of rolling
    -- back.
    BEGIN
        COMMIT;
    EXCEPTION WHEN invalid_transaction_termination THEN
        at_commit := sqlerrm;
    END;
    BEGIN
        ROLLBACK;
    EXCEPTION WHEN invalid_transaction_termination THEN
        at_rollback := sqlerrm;
    END;
    IF at_commit OPERATOR(pg_catalog.=) at_rollback THEN
        RAISE EXCEPTION 'simsql.%: it commits each batch and cannot run inside a transaction', caller
            USING ERRCODE = 'active_sql_transaction',
                  HINT = 'Call it on its own: outside BEGIN and COMMIT, not from a function, with the driver '
                         'in autocommit mode.';
    END IF;
END
$$;

-- Waits until nobody else maintains the indexes of this table: vacuum and build take turns by batch, repair
-- takes one turn. What the caller reads afterwards must be read with a later snapshot than that of this call.
CREATE OR REPLACE FUNCTION simsql._take_turn(table_name regclass, caller text) RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM simsql._check_read_committed(caller);
    PERFORM pg_advisory_xact_lock(hashtextextended('simsql.upkeep', table_name::oid::bigint));
    IF NOT EXISTS (SELECT FROM pg_class AS c WHERE c.oid = table_name) THEN
        RAISE EXCEPTION 'simsql.%: the table no longer exists', caller USING ERRCODE = 'undefined_table';
    END IF;
END
$$;

-- Keeps others from dropping or renaming the table, its columns and its indexes until the end of the
-- transaction. drop_index locks the table first, so whoever uses its keys must do so too. Should the name
-- belong to a view by now, PostgreSQL must not even plan it: hence TABLESAMPLE. Whoever renames the table between
-- two batches makes this wait, and fail by the old name: then it looks again.
CREATE OR REPLACE FUNCTION simsql._hold(table_name regclass) RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    FOR look IN 1 .. 3 LOOP
        BEGIN
            IF (SELECT c.relkind FROM pg_class AS c WHERE c.oid = table_name) IN ('r', 'p') THEN
                EXECUTE format('SELECT FROM ONLY %s AS t TABLESAMPLE system (0) LIMIT 0', table_name);
            END IF;
            RETURN;
        EXCEPTION WHEN undefined_table THEN
            IF look = 3 THEN
                RAISE;
            END IF;
        END;
    END LOOP;
END
$$;

-- Whether this role owns all objects of an index; null if it has none.
CREATE OR REPLACE FUNCTION simsql._owns(index simsql.registry) RETURNS boolean
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN pg_has_role(simsql._owner(index), 'USAGE')
           AND NOT EXISTS (SELECT FROM pg_class AS c
                            WHERE c.relnamespace = 'simsql'::regnamespace
                              AND c.relname ~ format('^keys_%s_\d+$', index.id)
                              AND NOT pg_has_role(c.relowner, 'USAGE'));
END
$$;

-- Raises an error unless this role owns all objects of an index and sees all rows.
CREATE OR REPLACE FUNCTION simsql._check_upkeep(index simsql.registry, caller text) RETURNS void
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    IF NOT simsql._owns(index) THEN
        RAISE EXCEPTION 'simsql.%: must be owner of the simhash index on %', caller, index.table_name
            USING ERRCODE = 'insufficient_privilege';
    END IF;
    PERFORM simsql._check_sees_all(index.table_id, caller);
END
$$;

-- Runs the next batch of a vacuum, in its own transaction. `state` is null for the first batch and otherwise
-- what the last batch returned.
CREATE OR REPLACE FUNCTION simsql._vacuum_batch(
    table_name regclass, column_name text, state simsql._vacuum_state)
RETURNS simsql._vacuum_state
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET max_parallel_workers_per_gather = 0 SET jit = off
-- So that a scope survives its conversion to text:
SET datestyle = 'ISO' SET intervalstyle = 'postgres' SET extra_float_digits = 1
AS $$
DECLARE
    index simsql.registry;
BEGIN
    PERFORM simsql._take_turn(table_name, 'vacuum');
    PERFORM simsql._hold(table_name);
    -- The default index may change between two batches.
    index := simsql._index(table_name, coalesce(
        (SELECT r.column_name FROM simsql.registry AS r WHERE r.id = state.index_id), column_name));
    IF state IS NULL THEN
        state.index_id := index.id;
    ELSIF state.index_id <> index.id THEN
        RAISE EXCEPTION 'simsql.vacuum: the simhash index on %(%) was re-created during the vacuum',
                        table_name, index.column_name
            USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'A new index has no superfluous keys.';
    END IF;
    PERFORM simsql._check_upkeep(index, 'vacuum');
    state := simsql._storage_vacuum(index, state);
    IF state.finished THEN
        PERFORM simsql._relearn_skew(index);
    END IF;
    RETURN state;
END
$$;

CREATE OR REPLACE PROCEDURE simsql.vacuum(table_name regclass, column_name text DEFAULT NULL)
LANGUAGE plpgsql
AS $$
DECLARE
    state simsql._vacuum_state;
BEGIN
    CALL simsql._leave_transaction('vacuum');
    LOOP
        COMMIT;
        SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
        state := simsql._vacuum_batch(vacuum.table_name, vacuum.column_name, state);
        EXIT WHEN state.finished;
    END LOOP;
END
$$;

COMMENT ON PROCEDURE simsql.vacuum(regclass, text) IS
    'remove keys without a row, and all but one of equal keys, while others read and write';


-- build: creates an index while others read and write.
--
-- Tables, B-trees and triggers come first and are committed. From then on, every writer adds keys, so only
-- the keys of rows that were committed before are missing. Batches add them in order of scope and
-- fingerprint, not in the physical order of rows: an update moves a row, but if it changes neither scope nor
-- fingerprint, it adds no key. Each batch commits its progress, so an interrupted build resumes there.
-- `ready` is committed with the last batch, and a snapshot that does not see it does not search.
--
-- With the storage `expression`, a batch creates one B-tree, on one table or partition, and its writers wait.
-- PostgreSQL does not run CREATE INDEX CONCURRENTLY in a procedure, so clients run the statements of
-- _next_statement themselves, until there is none.

-- Raises an error if a client is creating B-trees on this table, and keeps clients from it until the end of
-- the transaction. CREATE INDEX CONCURRENTLY waits for our snapshot, so we would deadlock if we waited for
-- its lock on the table.
CREATE OR REPLACE FUNCTION simsql._check_no_other_build(table_name regclass) RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    IF NOT pg_try_advisory_xact_lock(hashtextextended('simsql.build', table_name::oid::bigint)) THEN
        RAISE EXCEPTION 'simsql.build: another build is creating indexes on %', table_name
            USING ERRCODE = 'object_in_use', HINT = 'Wait for it to finish, then call simsql.build again.';
    END IF;
END
$$;

-- Registers an index and creates its objects, or finds the one that an earlier build has started with these
-- arguments. Returns its id. Builds take turns here, as they do for batches: otherwise two builds that start
-- together would both find no index. If the other build has finished in the meantime, there is nothing left
-- to do.
CREATE OR REPLACE FUNCTION simsql._begin_build(
    table_name regclass, column_name text, distance integer, blocks integer, lead integer,
    inner_blocks integer, recipe text, scope text[] DEFAULT '{}', storage text DEFAULT NULL)
RETURNS integer
LANGUAGE plpgsql
AS $$
DECLARE
    was_ready constant boolean := EXISTS (SELECT FROM simsql.registry AS r
                                           WHERE r.table_id = _begin_build.table_name
                                             AND r.column_name = _begin_build.column_name AND r.ready);
    index simsql.registry;
    has_other_arguments boolean;
BEGIN
    IF table_name IS NOT NULL THEN
        PERFORM simsql._take_turn(table_name, 'build');
    END IF;
    SELECT r.* INTO index
      FROM simsql.registry AS r
     WHERE r.table_id = _begin_build.table_name AND r.column_name = _begin_build.column_name;
    has_other_arguments := distance <> index.distance OR blocks <> index.blocks OR lead <> index.lead
                           OR inner_blocks <> index.inner_blocks OR recipe <> index.recipe
                           OR coalesce(scope, '{}') <> index.scope_columns OR storage <> index.storage;
    IF index.id IS NULL OR index.ready AND (was_ready OR has_other_arguments) THEN
        IF table_name IS NOT NULL THEN
            PERFORM simsql._check_no_other_build(table_name);
        END IF;
        index := simsql._register(table_name, column_name, distance, blocks, lead, inner_blocks, recipe,
                                  scope, storage, online => true);
        PERFORM simsql._storage_create(index, filled => false);
        PERFORM simsql._create_functions(index);
        PERFORM simsql._create_triggers(index);
    ELSIF has_other_arguments THEN
        RAISE EXCEPTION 'simsql.build: an unfinished build of the simhash index on %(%) has other arguments',
                        table_name, quote_ident(column_name)
            USING ERRCODE = 'duplicate_object',
                  HINT = format('Finish it: %s Or drop it first: SELECT simsql.drop_index(%L, %L);',
                                simsql._build_call(index), table_name, column_name);
    END IF;
    RETURN index.id;
END
$$;

-- Adds the keys of the next fingerprints, in its own transaction, and returns the share of the work that is
-- done. This is a share of all possible fingerprints or, within scopes, of the estimated number of rows.
CREATE OR REPLACE FUNCTION simsql._build_batch(
    table_name regclass, column_name text, OUT ready boolean, OUT share double precision)
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashagg = off
SET max_parallel_workers_per_gather = 0 SET jit = off
-- So that a scope survives its conversion to text:
SET datestyle = 'ISO' SET intervalstyle = 'postgres' SET extra_float_digits = 1
AS $$
DECLARE
    index simsql.registry;
    before double precision;
BEGIN
    PERFORM simsql._take_turn(table_name, 'build');
    PERFORM simsql._hold(table_name);
    SELECT r.* INTO index
      FROM simsql.registry AS r
     WHERE r.table_id = _build_batch.table_name AND r.column_name = _build_batch.column_name;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'simsql.build: the simhash index on %(%) was dropped during the build', table_name,
                        quote_ident(column_name)
            USING ERRCODE = 'undefined_object';
    END IF;
    ready := index.ready;
    share := 1;
    IF ready THEN
        RETURN;
    END IF;
    PERFORM simsql._check_sound(index, is_building => true);
    PERFORM simsql._check_upkeep(index, 'build');
    before := simsql._storage_progress(index);
    ready := simsql._storage_build(index);
    IF ready THEN
        UPDATE simsql.registry AS r SET ready = true WHERE r.id = index.id RETURNING r.* INTO index;
        PERFORM simsql._relearn_skew(index);
    ELSE
        share := simsql._storage_progress(index);
        IF floor(20 * share) > floor(20 * before) THEN
            RAISE NOTICE 'simsql.build: % %% done', round(100 * share);
        END IF;
    END IF;
END
$$;

CREATE OR REPLACE PROCEDURE simsql.build(
    table_name regclass, column_name text, distance integer DEFAULT 3,
    blocks integer DEFAULT NULL, lead integer DEFAULT NULL, inner_blocks integer DEFAULT NULL,
    recipe text DEFAULT NULL, scope text[] DEFAULT '{}', storage text DEFAULT NULL)
LANGUAGE plpgsql
AS $$
DECLARE
    batch pg_catalog.record;
BEGIN
    CALL simsql._leave_transaction('build');
    COMMIT;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    PERFORM simsql._begin_build(build.table_name, build.column_name, build.distance, build.blocks, build.lead,
                                build.inner_blocks, build.recipe, build.scope, build.storage);
    LOOP
        COMMIT;
        SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
        batch := simsql._build_batch(build.table_name, build.column_name);
        EXIT WHEN batch.ready;
    END LOOP;
END
$$;

COMMENT ON PROCEDURE simsql.build(regclass, text, integer, integer, integer, integer, text, text[], text) IS
    'create a simhash index while others read and write, or resume an interrupted build';


-- verify: lists what is wrong with indexes.

-- The faults of an index as verify and repair list them. Another role may be able to search the index.
CREATE OR REPLACE FUNCTION simsql._findings(index simsql.registry) RETURNS SETOF simsql.finding
LANGUAGE sql STABLE
AS $$
    SELECT index.table_name, index.column_name, f.problem, f.object, NULL::bigint, true, f.remedy
      FROM unnest(simsql._faults(index, thorough => true)) AS f
     WHERE f.effect <> 'refuses this role'
$$;

-- All faults of an index. With `sampled`, missing keys are those of a sample of its rows.
CREATE OR REPLACE FUNCTION simsql._verify_index(index simsql.registry, sampled boolean)
RETURNS SETOF simsql.finding
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    findings constant simsql.finding[] := ARRAY(SELECT v FROM simsql._findings(index) AS v);
    damaged constant text[] := ARRAY(
        SELECT f.object FROM unnest(findings) AS f
         WHERE f.problem IN ('key table missing', 'key table altered'));
    named simsql.registry;
BEGIN
    RETURN QUERY SELECT * FROM unnest(findings);
    IF index.ready AND NOT EXISTS (
        SELECT FROM unnest(findings) AS f
         WHERE f.problem IN ('index dropped', 'table dropped', 'table re-created', 'column dropped',
                             'column is no longer a stored bigint'))
    THEN
        named := simsql._as_named(index);
        RETURN QUERY
        SELECT index.table_name, index.column_name, 'keys missing', c.keys, c.missing, true,
               format('SELECT * FROM simsql.repair(%L);', index.table_id)
          FROM (SELECT s.keys, s.missing FROM simsql._storage_sample(named, damaged) AS s WHERE sampled
                 UNION ALL
                SELECT a.keys, a.missing FROM simsql._storage_compare(named, damaged) AS a WHERE NOT sampled) AS c
         WHERE c.missing > 0;
    END IF;
END
$$;

-- STABLE: all its reads share one snapshot.
CREATE OR REPLACE FUNCTION simsql.verify(table_name regclass DEFAULT NULL, column_name text DEFAULT NULL)
RETURNS SETOF simsql.finding
LANGUAGE plpgsql STABLE ROWS 10
AS $$
DECLARE
    index simsql.registry;
    full_name constant text := simsql._full_name(table_name);
BEGIN
    FOR index IN
        SELECT r.* FROM simsql.registry AS r
         -- By name too: this finds the index of a table whose name another table has taken over.
         WHERE (verify.table_name IS NULL OR r.table_id = verify.table_name OR r.table_name = full_name)
           AND (verify.column_name IS NULL OR r.column_name = verify.column_name)
         ORDER BY r.id
    LOOP
        RETURN QUERY SELECT * FROM simsql._verify_index(index, sampled => false);
    END LOOP;
    IF NOT FOUND AND table_name IS NOT NULL THEN
        PERFORM simsql._index(table_name, column_name);
    END IF;
END
$$;

COMMENT ON TYPE simsql.finding IS
    'a fault of an index: what is wrong with which object, how many keys it concerns, and what to do';
COMMENT ON FUNCTION simsql.verify(regclass, text) IS
    'list the faults of the indexes of one table or of all tables; no row means no fault';

CREATE OR REPLACE FUNCTION simsql.superfluous_keys(table_name regclass, column_name text DEFAULT NULL)
RETURNS bigint
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    index constant simsql.registry := simsql._index(table_name, column_name);
BEGIN
    PERFORM simsql._check_sees_all(table_name, 'superfluous_keys');
    RETURN (SELECT coalesce(sum(c.superfluous), 0) FROM simsql._storage_compare(index) AS c);
END
$$;

COMMENT ON FUNCTION simsql.superfluous_keys(regclass, text) IS
    'number of keys that simsql.vacuum would remove: keys without a row, and all but one of equal keys. '
    'Reads the table and all keys';


-- Repairs what verify finds.

-- Updates the registered names of a table and its indexed columns. Columns may have swapped names, so the old
-- names are replaced first, by names of 64 characters, which no column can have.
CREATE OR REPLACE FUNCTION simsql._follow_names(table_name regclass) RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    twice text;
    renamed constant simsql.registry[] := ARRAY(
        SELECT a FROM simsql.registry AS r CROSS JOIN LATERAL simsql._as_named(r) AS a
         WHERE r.table_id = _follow_names.table_name AND a IS DISTINCT FROM r
           AND array_position(a.column_name || a.scope_columns, NULL) IS NULL);
BEGIN
    SELECT c.name INTO twice
      FROM (SELECT a.column_name FROM unnest(renamed) AS a
             UNION ALL
            SELECT r.column_name FROM simsql.registry AS r
             WHERE r.table_id = _follow_names.table_name
               AND r.id <> ALL (ARRAY(SELECT a.id FROM unnest(renamed) AS a))) AS c (name)
     GROUP BY c.name HAVING count(*) > 1 LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'simsql.repair: two simhash indexes would be on column % of %', quote_ident(twice),
                        table_name
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = format('Drop the one that has lost its column: SELECT simsql.drop_index(%L, %L);',
                                table_name, twice);
    END IF;
    UPDATE simsql.registry AS r SET column_name = lpad(r.id::text, 64)
      FROM unnest(renamed) AS a WHERE r.id = a.id;
    UPDATE simsql.registry AS r
       SET table_name = a.table_name, column_name = a.column_name, scope_columns = a.scope_columns
      FROM unnest(renamed) AS a WHERE r.id = a.id;
END
$$;

-- Repairs the faults that have nothing to do with the storage. The names have been followed.
CREATE OR REPLACE FUNCTION simsql._mend(index simsql.registry, faults simsql._fault[]) RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    fault simsql._fault;
BEGIN
    FOREACH fault IN ARRAY faults LOOP
        IF fault.problem = 'B-tree missing' THEN
            EXECUTE format('CREATE INDEX ON %s', fault.object);
        ELSIF fault.problem = 'B-tree invalid' THEN
            -- That of a partitioned table cannot be reindexed inside a transaction.
            IF (SELECT c.relkind FROM pg_class AS c WHERE c.oid = to_regclass(fault.object)) = 'i' THEN
                EXECUTE format('REINDEX INDEX %s', fault.object);
            ELSE
                PERFORM simsql._create_plain_btree(index);
            END IF;
        END IF;
    END LOOP;
    IF EXISTS (SELECT FROM unnest(faults) AS f WHERE f.problem LIKE 'function %') THEN
        PERFORM simsql._create_functions(index);
    END IF;
END
$$;

-- The owner of an index: that of a key table or, without key tables, of the search function; else that of the
-- table.
CREATE OR REPLACE FUNCTION simsql._owner(index simsql.registry) RETURNS oid
LANGUAGE sql STABLE
AS $$
    SELECT coalesce(
        (SELECT c.relowner FROM pg_class AS c
          WHERE c.relnamespace = 'simsql'::regnamespace AND c.relname ~ format('^keys_%s_\d+$', index.id)
          LIMIT 1),
        (SELECT p.proowner FROM pg_proc AS p
          WHERE p.pronamespace = 'simsql'::regnamespace AND p.proname = 'search_' || index.id LIMIT 1),
        (SELECT c.relowner FROM pg_class AS c WHERE c.oid = index.table_id))
$$;

-- Gives all objects of an index to one owner: the role that repairs need not be the owner.
CREATE OR REPLACE FUNCTION simsql._give(index simsql.registry, owner oid) RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    object text;
BEGIN
    FOR object IN
        SELECT 'TABLE ' || c.oid::regclass FROM pg_class AS c
         WHERE c.relnamespace = 'simsql'::regnamespace AND c.relkind = 'r'
           AND c.relname ~ format('^(keys_%s_\d+|built_%s)$', index.id, index.id) AND c.relowner <> owner
        UNION ALL
        SELECT 'FUNCTION ' || p.oid::regprocedure FROM simsql._functions(index) AS f
          JOIN pg_proc AS p ON p.oid = to_regprocedure(format('simsql.%I%s', f.name, f.arguments))
         WHERE p.proowner <> owner
    LOOP
        EXECUTE format('ALTER %s OWNER TO %s', object, owner::regrole);
    END LOOP;
END
$$;

CREATE OR REPLACE FUNCTION simsql.repair(table_name regclass) RETURNS SETOF simsql.finding
LANGUAGE plpgsql ROWS 10
AS $$
DECLARE
    index simsql.registry;
    owner oid;
    lost boolean;
    finding simsql.finding;
    fault simsql._fault;
    faults simsql._fault[];
BEGIN
    PERFORM simsql._take_turn(table_name, 'repair');
    RETURN QUERY
    SELECT r.table_name, r.column_name, 'table re-created', r.table_name, NULL::bigint, true, NULL
      FROM simsql.registry AS r WHERE simsql._recreated(r) = repair.table_name;
    PERFORM simsql._follow_table(table_name);
    IF NOT EXISTS (SELECT FROM simsql.registry AS r WHERE r.table_id = repair.table_name) THEN
        PERFORM simsql._index(table_name, NULL);
    END IF;
    -- Writers wait, as for create_index. If an index has to be re-created, readers wait too, because its
    -- objects are dropped.
    -- This looks at key tables alone: pg_get_triggerdef would lock the table.
    lost := EXISTS (
        SELECT FROM simsql.registry AS r
         CROSS JOIN LATERAL simsql._permutations(r.blocks, r.lead, r.inner_blocks) AS p
         CROSS JOIN LATERAL unnest(
                    simsql._key_table_faults(r, simsql._as_named(r), p.number, thorough => true)) AS f
         WHERE r.table_id = repair.table_name AND r.storage = 'tables'
           AND f.problem IN ('key table missing', 'key table altered'));
    PERFORM simsql._lock(table_name, CASE WHEN lost THEN 'ACCESS EXCLUSIVE' ELSE 'SHARE ROW EXCLUSIVE' END,
                         'repair');
    FOR index IN SELECT r.* FROM simsql.registry AS r WHERE r.table_id = repair.table_name ORDER BY r.id LOOP
        FOR finding IN SELECT f.* FROM simsql._findings(index) AS f LOOP
            IF finding.problem IN ('column dropped', 'column is no longer a stored bigint') THEN
                RAISE EXCEPTION 'simsql.repair: cannot repair column % of %: %', finding.object, table_name,
                                finding.problem
                    USING ERRCODE = 'object_not_in_prerequisite_state', HINT = finding.hint;
            ELSIF finding.problem NOT IN ('not ready', 'row-level security') THEN
                finding.hint := NULL;
                RETURN NEXT finding;
            END IF;
        END LOOP;
    END LOOP;
    PERFORM simsql._follow_names(table_name);
    FOR index IN SELECT r.* FROM simsql.registry AS r WHERE r.table_id = repair.table_name ORDER BY r.id LOOP
        PERFORM simsql._check_indexable(table_name, index.column_name, index.scope_columns, index.storage,
                                        'repair');
        PERFORM simsql._check_upkeep(index, 'repair');
        UPDATE simsql.registry AS r SET scope_types = simsql._scope_types(r.table_id, r.scope_columns)
         WHERE r.id = index.id RETURNING r.* INTO index;
        owner := simsql._owner(index);
        faults := simsql._faults(index, thorough => true);
        PERFORM simsql._mend(index, faults);  -- first, since triggers need functions
        index := simsql._storage_mend(index, faults);
        RETURN QUERY
        SELECT index.table_name, index.column_name, 'keys missing', c.keys, c.missing, true, NULL
          FROM simsql._storage_compare(index) AS c WHERE index.ready AND c.missing > 0;
        IF FOUND THEN
            fault.problem := 'keys missing';
            PERFORM simsql._storage_mend(index, ARRAY[fault]);
        END IF;
        PERFORM simsql._give(index, owner);
        SELECT f.* INTO finding FROM simsql._findings(index) AS f
         WHERE f.problem NOT IN ('not ready', 'row-level security') LIMIT 1;
        IF FOUND THEN
            RAISE EXCEPTION 'simsql.repair: % is beyond repair: %', finding.object, finding.problem
                USING ERRCODE = 'object_not_in_prerequisite_state',
                      HINT = 'Re-create the index: ' || simsql._create_again(index);
        END IF;
    END LOOP;
END
$$;

COMMENT ON FUNCTION simsql.repair(regclass) IS
    'repair the faults that simsql.verify finds, in this transaction, and return them; writers wait';


-- maintain: verifies a sample of each index of this role, and vacuums those that need it.
--
-- It is for schedules. It goes on after a failure and waits for nobody. At its end, when all work is committed, it
-- raises one error for all failures: pg_cron records an error, and no warning, and psql and the command line exit
-- with 1. Two calls at once do no harm: the second skips an index that the first is vacuuming.

-- What a call has to do, for _maintain_batch: the indexes of this role, those that need a vacuum first, the worst
-- before the others, and the rest in any order.
CREATE OR REPLACE FUNCTION simsql._begin_maintain(time_limit interval) RETURNS jsonb
LANGUAGE plpgsql
AS $$
DECLARE
    indexes integer[];
BEGIN
    PERFORM simsql._check_read_committed('maintain');
    IF time_limit <= interval '0' THEN
        RAISE EXCEPTION 'simsql.maintain: time_limit must be more than 0, not %', time_limit
            USING ERRCODE = 'invalid_parameter_value', HINT = 'For example: time_limit => ''10 minutes''';
    END IF;
    indexes := ARRAY(
        SELECT r.id FROM simsql.registry AS r CROSS JOIN LATERAL simsql._storage_advice(r) AS a
         WHERE simsql._owns(r) IS NOT FALSE
         ORDER BY a.need IS NULL, a.unvacuumed DESC NULLS FIRST, random());
    IF indexes = '{}' AND EXISTS (SELECT FROM simsql.registry) THEN
        RAISE EXCEPTION 'simsql.maintain: % owns none of the simhash indexes', current_user
            USING ERRCODE = 'insufficient_privilege',
                  HINT = 'Call it as the owner of indexes, or as a superuser for all of them.';
    END IF;
    -- PostgreSQL has no timestamps later than some 290,000 years from now.
    RETURN jsonb_build_object('until', clock_timestamp() + least(time_limit, interval '100 years'),
                              'goes_on', true, 'left', indexes,
                              'verified', 0, 'vacuumed', 0, 'skipped', 0, 'failures', '[]'::jsonb);
END
$$;

-- Says what has been done, and raises an error if there were failures.
CREATE OR REPLACE FUNCTION simsql._end_maintain(state jsonb) RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    failures constant bigint := jsonb_array_length(state -> 'failures');
    waiting constant bigint := jsonb_array_length(state -> 'left');
BEGIN
    RAISE NOTICE 'simsql.maintain: %', concat_ws(
        ', ', 'indexes verified: ' || (state ->> 'verified'), 'vacuumed: ' || (state ->> 'vacuumed'),
        'skipped: ' || (state ->> 'skipped'), 'left at the time limit: ' || nullif(waiting, 0));
    IF failures > 0 THEN
        RAISE EXCEPTION 'simsql.maintain: failed for % %: %', failures,
                        CASE failures WHEN 1 THEN 'index' ELSE 'indexes' END,
                        (SELECT string_agg(f ->> 'problem', '; ') FROM jsonb_array_elements(state -> 'failures') AS f)
            -- The code of the failures, if they have the same.
            USING ERRCODE = (SELECT CASE count(DISTINCT f ->> 'code') WHEN 1 THEN min(f ->> 'code') ELSE '55000' END
                               FROM jsonb_array_elements(state -> 'failures') AS f),
                  HINT = (SELECT coalesce(string_agg(DISTINCT f ->> 'hint', ' '), 'Repair it, then call it again.')
                            FROM jsonb_array_elements(state -> 'failures') AS f);
    END IF;
END
$$;

-- Begins with an index: verifies it, and returns the state of the vacuum that it needs; null if it needs none.
-- Raises an error if it has a fault: what is missing must be repaired first.
CREATE OR REPLACE FUNCTION simsql._maintain_index(index simsql.registry, is_limited boolean)
RETURNS simsql._vacuum_state
LANGUAGE plpgsql
AS $$
DECLARE
    findings simsql.finding[];
    advice record;
    vacuum simsql._vacuum_state;
BEGIN
    findings := ARRAY(SELECT v FROM simsql._verify_index(index, sampled => true) AS v);
    IF findings <> '{}' THEN
        RAISE EXCEPTION USING
            MESSAGE = (SELECT string_agg(format('%s (%s)', f.problem, f.object), ', ') FROM unnest(findings) AS f),
            HINT = (SELECT coalesce(string_agg(DISTINCT f.hint, ' '), '') FROM unnest(findings) AS f),
            ERRCODE = CASE findings[1].problem WHEN 'not ready' THEN 'object_in_use'
                      ELSE 'object_not_in_prerequisite_state' END;
    END IF;
    SELECT a.* INTO advice FROM simsql._storage_advice(index) AS a;
    IF advice.need = 'analyze' THEN
        EXECUTE format('ANALYZE %s, simsql.keys_%s_0', index.table_name, index.id);
    END IF;
    IF advice.need IS NOT NULL THEN
        IF is_limited THEN
            vacuum := simsql._vacuum_anywhere(index);
        END IF;
        vacuum.index_id := index.id;
        RETURN vacuum;
    ELSIF advice.hint IS NOT NULL THEN
        RAISE NOTICE 'simsql.maintain: %(%): %', index.table_id, quote_ident(index.column_name), advice.hint;
    END IF;
    RETURN NULL;
END
$$;

-- Runs the next batch, in its own transaction. `state` is null for the first batch and otherwise what the last
-- batch returned; null once nothing is left. An index that somebody else has locked is skipped. However short the
-- time is, a call verifies an index and, if it needs a vacuum, runs a batch of it: `goes_on` is true until then.
CREATE OR REPLACE FUNCTION simsql._maintain_batch(time_limit interval, state jsonb) RETURNS jsonb
LANGUAGE plpgsql
SET lock_timeout = '100ms'
AS $$
DECLARE
    index simsql.registry;
    vacuum simsql._vacuum_state;
    message text;
    hint text;
    code text;
    done text;
BEGIN
    IF state IS NULL THEN
        RETURN simsql._begin_maintain(time_limit);
    ELSIF jsonb_array_length(state -> 'left') = 0
          OR clock_timestamp() >= (state ->> 'until')::timestamptz AND NOT (state ->> 'goes_on')::boolean
    THEN
        PERFORM simsql._end_maintain(state);
        RETURN NULL;
    END IF;
    vacuum := jsonb_populate_record(vacuum, state -> 'vacuum');
    -- Without its row, the index has been dropped.
    SELECT r.* INTO index FROM simsql.registry AS r WHERE r.id = (state -> 'left' ->> 0)::integer;
    IF FOUND THEN
        BEGIN
            PERFORM simsql._hold(index.table_id);
            -- Others may have changed or dropped it while this waited, or since the last batch.
            SELECT r.* INTO index FROM simsql.registry AS r WHERE r.id = index.id;
            IF index.id IS NULL THEN
                vacuum := NULL;
            ELSIF vacuum IS NULL THEN
                vacuum := simsql._maintain_index(index, time_limit IS NOT NULL);
                done := 'verified';
            ELSE
                PERFORM simsql._check_sound(index);
                vacuum := simsql._vacuum_batch(index.table_id, index.column_name, vacuum);
                done := CASE WHEN vacuum.finished THEN 'vacuumed' END;
            END IF;
        EXCEPTION
            WHEN lock_not_available OR object_in_use OR deadlock_detected THEN
                RAISE NOTICE 'simsql.maintain: skipped %(%): %', index.table_name, quote_ident(index.column_name),
                             sqlerrm;
                vacuum := NULL;
                done := 'skipped';
            WHEN OTHERS THEN
                GET STACKED DIAGNOSTICS message = MESSAGE_TEXT, hint = PG_EXCEPTION_HINT, code = RETURNED_SQLSTATE;
                vacuum := NULL;
                state := jsonb_insert(state, '{failures,-1}', jsonb_build_object(
                    'problem', format('%s(%I): %s', index.table_name, index.column_name, message),
                    'hint', nullif(hint, ''), 'code', code), insert_after => true);
        END;
    ELSE
        vacuum := NULL;
    END IF;
    IF done IS NOT NULL THEN
        state := state || jsonb_build_object(done, (state ->> done)::integer + 1);
    END IF;
    state := state || jsonb_build_object('goes_on', coalesce(done = 'verified', false) AND vacuum IS DISTINCT FROM NULL);
    IF vacuum IS NULL OR vacuum.finished THEN
        RETURN jsonb_set(state, '{left}', (state -> 'left') - 0) - 'vacuum';
    END IF;
    RETURN state || jsonb_build_object('vacuum', vacuum);
EXCEPTION
    WHEN lock_not_available THEN
        RAISE EXCEPTION 'simsql.maintain: another session has locked simsql.registry, as an upgrade of simsql does'
            USING ERRCODE = 'lock_not_available', HINT = 'What it has done so far is committed. Call it again.';
END
$$;

CREATE OR REPLACE PROCEDURE simsql.maintain(time_limit pg_catalog.interval DEFAULT NULL)
LANGUAGE plpgsql
AS $$
DECLARE
    state pg_catalog.jsonb;
BEGIN
    CALL simsql._leave_transaction('maintain');
    LOOP
        COMMIT;
        SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
        state := simsql._maintain_batch(maintain.time_limit, state);
        EXIT WHEN state IS NULL;
    END LOOP;
END
$$;

COMMENT ON PROCEDURE simsql.maintain(interval) IS
    'verify a sample of all indexes of this role and vacuum those that need it, while others read and write';


-- Designs of a hash join on prefixes, which near_many and pairs share.
--
-- Both work table by table. A match is reported by the first permutation that can find it: the first whose
-- prefix differs in no more bits than its radius. So no matches are compared across permutations, and the
-- memory for one permutation is free again before the next begins.

-- The designs of a hash join on prefixes and their estimated costs in microseconds, cheapest first. The join
-- reads rows, not keys, so its permutations need not be those of an index, and more tables allow longer
-- prefixes. A row or a candidate costs a look-up in a hash table that exceeds the processor's cache. Each
-- flip of a query's prefix enlarges that table and costs more. Each statement also takes time to plan.
CREATE OR REPLACE FUNCTION simsql._join_designs(queries bigint, rows bigint, distance integer)
RETURNS TABLE (blocks integer, lead integer, cost double precision, candidates double precision)
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$
    SELECT m, c,
           200 * tables + tables * row_cost * (rows + queries)
           + greatest(probes - tables, 0) * flip_cost * queries + joined_candidate * expected,
           expected
      FROM generate_series(2, 16) AS m
     CROSS JOIN LATERAL generate_series(1, m - 1) AS c
     CROSS JOIN LATERAL CAST(simsql._table_count(m, c, 0) AS double precision) AS tables
     CROSS JOIN LATERAL CAST(64 * c / m AS integer) AS prefix
     CROSS JOIN LATERAL (
           SELECT sum(simsql._ways(prefix, simsql._radius(m, c, 0, number, distance)) * share) AS probes
             -- With several lead blocks, all permutations have the same radius.
             FROM generate_series(0, CASE c WHEN 1 THEN m - 1 ELSE 0 END) AS number
            CROSS JOIN CAST(CASE c WHEN 1 THEN 1 ELSE tables END AS double precision) AS share) AS p
     CROSS JOIN LATERAL (SELECT queries * rows * probes * 2::double precision ^ -prefix) AS e (expected)
     CROSS JOIN (VALUES (0.55, 2.0)) AS costs (row_cost, flip_cost)
     CROSS JOIN simsql._costs()
     -- The statement contains the flips as constants.
     WHERE tables <= 128 AND probes <= 5000
     ORDER BY 3, tables, m, c
$$;

-- What a join on prefixes needs, for each permutation: the mask of the lead bits, their flips, the lowest
-- flipped bit of each flip (the pivot), and the condition that no earlier permutation finds the match. `a`
-- and `b` are the expressions of the two fingerprints.
CREATE OR REPLACE FUNCTION simsql._join_tables(
    blocks integer, lead integer, inner_blocks integer, distance integer, a text, b text)
RETURNS TABLE (number integer, lead_mask bigint, prefix integer, radius integer, flips bigint[],
               pivots bigint[], not_earlier text)
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    found_before text := '';
BEGIN
    FOR number, lead_mask, prefix IN
        SELECT p.* FROM simsql._permutations(blocks, lead, inner_blocks) AS p ORDER BY p.number
    LOOP
        radius := simsql._radius(blocks, lead, inner_blocks, number, distance);
        CONTINUE WHEN radius < 0;
        flips := simsql._flips(lead_mask, radius);
        -- The highest bit alone has no negative.
        pivots := ARRAY(SELECT CASE f WHEN 1::bigint << 63 THEN f ELSE f & -f END FROM unnest(flips) AS f);
        not_earlier := found_before;
        found_before := found_before || ' AND bit_count(((' || a || ' # ' || b
                        || format(') & %L::bigint)::bit(64)) > %s', lead_mask, radius);
        RETURN NEXT;
    END LOOP;
END
$$;

-- Raises an error after more than a hundred million results, which would fill the disk.
CREATE OR REPLACE FUNCTION simsql._refuse_more(results bigint, what text, distance integer) RETURNS void
LANGUAGE plpgsql IMMUTABLE
AS $$
BEGIN
    IF results > 100000000 THEN
        RAISE EXCEPTION 'simsql: more than 100000000 % within distance %', what, distance
            USING ERRCODE = 'program_limit_exceeded',
                  HINT = 'Use a lower distance, or '
                         || CASE what WHEN 'pairs' THEN 'simsql pairs or simsql clusters on the command line'
                                 ELSE 'SearchIndex.near_many of more than 50,000 queries' END
                         || ', which is many times faster and stores no results.';
    END IF;
END
$$;


-- pairs: every pair of fingerprints within a distance.

-- The distinct fingerprints of an index, or of a scope, in ascending order, without nulls.
CREATE OR REPLACE FUNCTION simsql._fingerprints(index simsql.registry, scope jsonb) RETURNS bigint[]
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    fingerprints bigint[];
BEGIN
    EXECUTE simsql._render(simsql._storage_reads(index) ->> 'fingerprints', '{}', simsql._parts(index, scope))
       INTO fingerprints;
    PERFORM simsql._check_rewritten(index.table_id);
    RETURN fingerprints;
END
$$;

-- Estimates from evenly spaced samples how many candidates a self-join of these distinct, sorted fingerprints
-- meets. Groups of equal prefixes are multiplied, not joined, so a crowded prefix costs no more than any
-- other.
CREATE OR REPLACE FUNCTION simsql._measured_candidates(
    fingerprints bigint[], distance integer, blocks integer, lead integer)
RETURNS double precision
LANGUAGE plpgsql STABLE
SET enable_mergejoin = off SET jit = off
AS $$
DECLARE
    rows constant bigint := cardinality(fingerprints);
    rights constant bigint[] := ARRAY(SELECT fingerprints[1 + n * rows / least(2000, rows)]
                                        FROM generate_series(0, least(2000, rows) - 1) AS n);
    lefts bigint[];
    in_both bigint;
    size bigint;
    join_table record;
    met double precision;
    candidates double precision := 0;
BEGIN
    FOR join_table IN SELECT * FROM simsql._join_tables(blocks, lead, 0, distance, 'a.fp', 'b.fp') LOOP
        IF size IS DISTINCT FROM least(rows, greatest(50, 4000 / cardinality(join_table.flips))) THEN
            size := least(rows, greatest(50, 4000 / cardinality(join_table.flips)));
            lefts := ARRAY(SELECT fingerprints[1 + n * rows / size] FROM generate_series(0, size - 1) AS n);
            in_both := (SELECT count(*) FROM unnest(lefts) AS l JOIN unnest(rights) AS r ON l = r);
        END IF;
        SELECT sum(a.n * b.n) INTO met
          FROM (SELECT (fp & join_table.lead_mask) # flip AS prefix, count(*)::double precision AS n
                  FROM unnest(lefts) AS fp
                 CROSS JOIN unnest(join_table.flips, join_table.pivots) AS f (flip, pivot)
                 WHERE fp & pivot = 0 GROUP BY 1) AS a
          JOIN (SELECT fp & join_table.lead_mask AS prefix, count(*)::double precision AS n
                  FROM unnest(rights) AS fp GROUP BY 1) AS b
         USING (prefix);
        -- A fingerprint that is in both samples has met itself.
        candidates := candidates
                      + (coalesce(met, 0) - in_both) * rows / cardinality(lefts) * rows / cardinality(rights);
    END LOOP;
    RETURN candidates;
END
$$;

-- Returns one statement per permutation of a design. Together they find every pair of the distinct
-- fingerprints $1 within the distance $2 once. One side is looked up under each flip of its prefix: of two
-- fingerprints whose prefixes differ, the one in which the lowest differing bit is 0.
CREATE OR REPLACE FUNCTION simsql._pairs_by_prefix(distance integer, blocks integer, lead integer)
RETURNS SETOF text
LANGUAGE sql STABLE
AS $$
    SELECT simsql._render($sql$
        SELECT least(a.fp, b.fp), greatest(a.fp, b.fp), bit_count((a.fp # b.fp)::bit(64))::integer
          FROM (SELECT fp, flip, (fp & {'lead_mask'}::bigint) # flip AS prefix
                  FROM unnest($1) AS u (fp)
                 CROSS JOIN unnest({'flips'}::bigint[], {'pivots'}::bigint[]) AS f (flip, pivot)
                 WHERE fp & pivot = 0) AS a
          JOIN unnest($1) AS b (fp)
            ON a.prefix = (b.fp & {'lead_mask'}::bigint) AND (a.flip <> 0 OR a.fp < b.fp)
         WHERE bit_count((a.fp # b.fp)::bit(64)) <= $2{not_earlier}$sql$,
        jsonb_build_object('lead_mask', t.lead_mask, 'flips', t.flips::text, 'pivots', t.pivots::text,
                           'not_earlier', t.not_earlier))
      FROM simsql._join_tables(blocks, lead, 0, distance, 'a.fp', 'b.fp') AS t
$$;

-- Returns the statements that find every pair of distinct, sorted fingerprints, by the cheapest design. Real
-- fingerprints crowd some prefixes and meet more candidates than expected, never fewer. So a design whose
-- expected cost exceeds the measured cost of another need not be measured. If every design costs more than a
-- comparison of all with all, one statement does that.
CREATE OR REPLACE FUNCTION simsql._statements_for_pairs(fingerprints bigint[], distance integer)
RETURNS SETOF text
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    rows constant bigint := cardinality(fingerprints);
    cheapest double precision := 0.025 * rows * rows;
    worth_measuring constant boolean := cheapest > 50000;
    design record;
    cost double precision;
    chosen record;
BEGIN
    chosen := NULL;
    FOR design IN SELECT * FROM simsql._join_designs(rows, rows, distance) LIMIT 12 LOOP
        EXIT WHEN design.cost >= cheapest;
        cost := design.cost;
        IF worth_measuring THEN
            cost := cost + (simsql._costs()).joined_candidate
                           * greatest(0, simsql._measured_candidates(
                                             fingerprints, distance, design.blocks, design.lead)
                                         - design.candidates);
        END IF;
        IF cost < cheapest THEN
            cheapest := cost;
            chosen := design;
        END IF;
    END LOOP;
    IF chosen IS NULL THEN
        -- Each thousand is compared with itself and what follows: half as many comparisons as a plain
        -- self-join.
        RETURN NEXT $sql$
            SELECT p.*
              FROM generate_series(1, cardinality($1), 1000) AS c (start)
             CROSS JOIN LATERAL (
                   SELECT a.fp, b.fp, bit_count((a.fp # b.fp)::bit(64))::integer
                     FROM unnest($1[c.start : c.start + 999]) AS a (fp)
                     JOIN unnest($1[c.start :]) AS b (fp)
                       ON a.fp < b.fp AND bit_count((a.fp # b.fp)::bit(64)) <= $2 OFFSET 0) AS p$sql$;
    ELSE
        RETURN QUERY SELECT s FROM simsql._pairs_by_prefix(distance, chosen.blocks, chosen.lead) AS s;
    END IF;
END
$$;

-- The planner knows nothing about prefixes and would sort both sides of each join. Without merge joins it
-- hashes them.
CREATE OR REPLACE FUNCTION simsql.pairs(
    table_name regclass, distance integer DEFAULT NULL, column_name text DEFAULT NULL,
    scope jsonb DEFAULT NULL)
RETURNS SETOF simsql.pair
LANGUAGE plpgsql STABLE
SET enable_mergejoin = off SET jit = off
AS $$
DECLARE
    is_coordinator constant boolean := simsql._is_coordinator('pairs');
    index constant record := simsql._searched_index(table_name, column_name, scope);
    asked constant integer := simsql._distance(distance, index.distance);
    fingerprints constant bigint[] := simsql._fingerprints(index, scope);
    statement text;
    of_statement bigint;
    found_pairs bigint := 0;
BEGIN
    FOR statement IN SELECT s FROM simsql._statements_for_pairs(fingerprints, asked) AS s LOOP
        RETURN QUERY EXECUTE statement || ' LIMIT 100000001' USING fingerprints, asked;
        GET DIAGNOSTICS of_statement := ROW_COUNT;
        found_pairs := found_pairs + of_statement;
        PERFORM simsql._refuse_more(found_pairs, 'pairs', asked);
    END LOOP;
END
$$;

COMMENT ON TYPE simsql.pair IS 'two fingerprints of rows, a < b, and their distance in bits';
COMMENT ON FUNCTION simsql.pairs(regclass, integer, text, jsonb) IS
    'every pair of different fingerprints (a < b) within the distance, once each, '
    'of rows in the table or the scope; '
    'the command simsql pairs is many times faster on many rows';


-- near_many: many searches in a few statements.

-- Returns statements that together find every match of the distinct fingerprints $1 within the distance $2.
--   probes  one statement per permutation: range scans of the index, in the order of keys
--   join    one statement per permutation of a join design: a hash join of queries and rows on prefixes
--   scan    one statement that compares all queries with all rows
CREATE OR REPLACE FUNCTION simsql._near_many_statements(
    index simsql.registry, queries bigint, rows bigint, distance integer, scope jsonb DEFAULT NULL,
    OUT strategy text, OUT statements text[])
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    design record;
    search_cost double precision;
    template text;
    shared constant jsonb := simsql._parts(index, scope)
                            || jsonb_build_object('batch_limit', simsql._candidates() + 50 * queries);
BEGIN
    SELECT d.* INTO design FROM simsql._join_designs(queries, rows, distance) AS d LIMIT 1;
    SELECT queries * (c.probe * s.probes + c.candidate * s.share * rows) INTO search_cost
      FROM simsql._costs() AS c
     CROSS JOIN simsql._searches(index.blocks, index.lead, index.inner_blocks, ARRAY[distance]) AS s;
    strategy := CASE WHEN least(design.cost, search_cost) >= 0.025 * queries * rows THEN 'scan'
                     WHEN design.cost < search_cost THEN 'join' ELSE 'probes' END;
    CASE strategy
    WHEN 'scan' THEN
        statements := ARRAY[simsql._render($sql$
            SELECT DISTINCT q.fp, t.{"column"}, bit_count((t.{"column"} # q.fp)::bit(64))::integer
              FROM unnest($1) AS q (fp)
              JOIN {rows} AS t ON bit_count((t.{"column"} # q.fp)::bit(64)) <= $2{scope_of_rows}
             WHERE {guard}$sql$, '{}', shared)];
    WHEN 'join' THEN
        statements := ARRAY(
            SELECT simsql._render($sql$
                SELECT DISTINCT q.fp, t.{"column"}, bit_count((t.{"column"} # q.fp)::bit(64))::integer
                  FROM (SELECT fp, (fp & {'lead_mask'}::bigint) # flip AS prefix
                          FROM unnest($1) AS u (fp) CROSS JOIN unnest({'flips'}::bigint[]) AS f (flip)) AS q
                  JOIN {rows} AS t ON (t.{"column"} & {'lead_mask'}::bigint) = q.prefix
                 WHERE bit_count((t.{"column"} # q.fp)::bit(64)) <= $2{not_earlier}{scope_of_rows}
                   AND {guard}$sql$,
                jsonb_build_object('lead_mask', t.lead_mask, 'flips', t.flips::text,
                                   'not_earlier', t.not_earlier), shared)
              FROM simsql._join_tables(design.blocks, design.lead, 0, distance, 'q.fp',
                                       format('t.%I', index.column_name)) AS t);
    ELSE
        template := simsql._storage_reads(index) ->> 'batch';
        statements := ARRAY(
            SELECT simsql._render(template,
                                  jsonb_build_object(
                                      'flips', format('%L::bigint[]', simsql._flips(b.flipped, t.radius)),
                                      'not_earlier', t.not_earlier), shared || b.parts)
              FROM simsql._storage_branches(index) AS b
              JOIN simsql._join_tables(index.blocks, index.lead, index.inner_blocks, distance, 'r.fp',
                                       'r.fingerprint') AS t USING (number));
    END CASE;
END
$$;

-- Estimates how many keys the searches have to deal with. Where that takes counting, they are counted only up
-- to the number from which index searches are the cheapest strategy anyway. Counting a key takes 1/25 of the
-- time of a probe.
CREATE OR REPLACE FUNCTION simsql._expected_keys(
    index simsql.registry, queries bigint, distance integer, scope jsonb)
RETURNS bigint
LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET max_parallel_workers_per_gather = 0
AS $$
DECLARE
    reads constant jsonb := simsql._storage_reads(index);
    keys bigint;
BEGIN
    EXECUTE simsql._render(
        coalesce(CASE WHEN index.scope_columns <> '{}' THEN reads ->> 'size_of_scope' END, reads ->> 'size'),
        '{}', simsql._parts(index, scope))
       INTO keys
      USING (SELECT least(25 * s.probes * (queries + 1), 1e15)::bigint
               FROM simsql._searches(index.blocks, index.lead, index.inner_blocks, ARRAY[distance]) AS s);
    RETURN keys;
END
$$;

-- Parallel workers share the rows of a hash join. Probes need the settings of near. Within a scope, the table
-- is always read through its B-tree, whatever the planner estimates.
CREATE OR REPLACE FUNCTION simsql.near_many(
    table_name regclass, fingerprints bigint[], distance integer DEFAULT NULL, column_name text DEFAULT NULL,
    scope jsonb DEFAULT NULL)
RETURNS SETOF simsql.query_match
LANGUAGE plpgsql STABLE
SET jit = off SET enable_mergejoin = off SET enable_seqscan = on SET enable_bitmapscan = off
SET enable_hashjoin = on SET enable_hashagg = off SET parallel_tuple_cost = 0
AS $$
DECLARE
    is_coordinator constant boolean := simsql._is_coordinator('near_many');
    index constant record := simsql._searched_index(table_name, column_name, scope);
    asked constant integer := simsql._distance(distance, index.distance);
    queries constant bigint[] := ARRAY(SELECT DISTINCT q FROM unnest(fingerprints) AS q WHERE q IS NOT NULL);
    plan record;
    statement text;
    of_statement bigint;
    found_matches bigint := 0;
BEGIN
    -- Choosing and planning the statements below takes as long as this many searches.
    IF cardinality(queries) <= 16 THEN
        RETURN QUERY SELECT q, n.fingerprint, n.distance
                       FROM unnest(queries) AS q
                      CROSS JOIN LATERAL simsql.near(table_name, q, asked, index.column_name, scope) AS n
                      LIMIT 100000001;
        GET DIAGNOSTICS found_matches := ROW_COUNT;
        PERFORM simsql._refuse_more(found_matches, 'matches', asked);
        RETURN;
    END IF;
    plan := simsql._near_many_statements(
        index, cardinality(queries), simsql._expected_keys(index, cardinality(queries), asked, scope), asked,
        scope);
    IF plan.strategy = 'probes' THEN
        PERFORM set_config('enable_seqscan', 'off', true), set_config('enable_hashjoin', 'off', true);
    ELSIF scope IS NOT NULL THEN
        PERFORM set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'on', true);
    END IF;
    BEGIN
        FOREACH statement IN ARRAY plan.statements LOOP
            RETURN QUERY EXECUTE statement || ' LIMIT 100000001' USING queries, asked;
            GET DIAGNOSTICS of_statement := ROW_COUNT;
            found_matches := found_matches + of_statement;
            PERFORM simsql._refuse_more(found_matches, 'matches', asked);
        END LOOP;
    EXCEPTION
        WHEN undefined_table OR undefined_function THEN PERFORM simsql._refuse_changed(table_name, sqlerrm);
    END;
    PERFORM simsql._check_rewritten(table_name);
END
$$;

COMMENT ON TYPE simsql.query_match IS
    'one of the fingerprints that were searched for, a fingerprint of a row, and their distance in bits';
COMMENT ON FUNCTION simsql.near_many(regclass, bigint[], integer, text, jsonb) IS
    'the matches of simsql.near for each of these fingerprints; duplicates are searched for once';

CREATE OR REPLACE FUNCTION simsql.near_many(
    table_name regclass, query_table regclass, query_column text, distance integer DEFAULT NULL,
    column_name text DEFAULT NULL, scope jsonb DEFAULT NULL)
RETURNS SETOF simsql.query_match
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    is_coordinator constant boolean := simsql._is_coordinator('near_many');
    column_type constant text := (
        SELECT format_type(a.atttypid, a.atttypmod) FROM pg_attribute AS a
         WHERE a.attrelid = query_table AND a.attname = query_column AND a.attnum > 0 AND NOT a.attisdropped);
    recipe_of_queries constant text := (SELECT r.recipe FROM simsql.registry AS r
                                         WHERE r.table_id = query_table AND r.column_name = query_column);
    index record;
    queries bigint[];
BEGIN
    IF column_type IS NULL THEN
        RAISE EXCEPTION 'simsql.near_many: % has no column %', coalesce(query_table::text, 'NULL'),
                        coalesce(quote_ident(query_column), 'NULL')
            USING ERRCODE = 'undefined_column', HINT = 'Name the query table and its fingerprint column.';
    ELSIF column_type NOT IN ('bigint', 'integer', 'smallint') THEN
        RAISE EXCEPTION 'simsql.near_many: column % of % is %, not bigint',
                        quote_ident(query_column), query_table, column_type
            USING ERRCODE = 'datatype_mismatch', HINT = 'simsql.fp converts an unsigned decimal to bigint.';
    END IF;
    IF recipe_of_queries IS NOT NULL THEN
        index := simsql._searched_index(table_name, column_name, scope);
        IF recipe_of_queries <> index.recipe THEN
            RAISE EXCEPTION
                'simsql.near_many: %(%) has fingerprints of recipe %, but %(%) has fingerprints of recipe %',
                table_name, quote_ident(index.column_name), index.recipe,
                query_table, quote_ident(query_column), recipe_of_queries
                USING ERRCODE = 'object_not_in_prerequisite_state',
                      HINT = 'Distances between recipes mean nothing: '
                             'recompute one column with the recipe of the other.';
        END IF;
    END IF;
    EXECUTE format('SELECT array_agg(DISTINCT q.%I::bigint) FROM %s AS q', query_column, query_table)
       INTO queries;
    RETURN QUERY
    SELECT * FROM simsql.near_many(table_name, coalesce(queries, '{}'), distance, column_name, scope);
END
$$;

COMMENT ON FUNCTION simsql.near_many(regclass, regclass, text, integer, text, jsonb) IS
    'the matches of simsql.near for each fingerprint in a column of another table or view';


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
    indexes constant simsql.registry[] := ARRAY(
        SELECT simsql._searched_index(table_name, c.name, scope)
          FROM unnest(column_names) WITH ORDINALITY AS c (name, number) ORDER BY c.number);
    list text;  -- of the columns
    bits text;  -- the distance of a row
    rows_of_table text;
    many constant bigint := greatest(simsql._candidates(), simsql._storage_keys(indexes[1]) / 50);
    searched integer[] := ARRAY(SELECT generate_subscripts(indexes, 1));
    rare integer[];  -- those of them that fewer than `many` rows share with the fingerprint
    number integer;
    near_words bigint[];
    conditions text[];
    are_many boolean;
BEGIN
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
END
$$;

COMMENT ON TYPE simsql.wide_match IS
    'the words of a row, and their distance in bits, all words together, from those that were searched for';
COMMENT ON FUNCTION simsql.near_wide(regclass, bigint[], integer, text[], jsonb) IS
    'every fingerprint of several words within the distance, once each, nearest first';


-- claim: a search before an insert that takes other writers into account.
--
-- Two transactions that search for near-duplicates and then insert do not see each other's rows. So claim
-- first locks the blocks of the fingerprint. Fingerprints that differ in up to k bits agree in at least one
-- of k + 1 blocks. Of two such claims, the second therefore waits for the first transaction to end, and then
-- searches.

-- A hash of a scope. Scopes that the columns compare as equal have equal hashes.
CREATE OR REPLACE FUNCTION simsql._scope_hash(index simsql.registry, scope jsonb) RETURNS bigint
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    hash bigint := 0;
BEGIN
    IF cardinality(index.scope_columns) > 0 THEN
        EXECUTE (SELECT format('SELECT hash_record_extended(ROW(%s), 0)',
                               string_agg(format('CAST(%L AS %s)%s', scope ->> s.column_name, s.type,
                                                 ' COLLATE ' || nullif(a.attcollation, 0)::regcollation), ', '
                                          ORDER BY s.number))
                   FROM simsql._scope_columns(index) AS s
                   JOIN pg_attribute AS a ON a.attrelid = index.table_id AND a.attname = s.column_name)
           INTO hash;
    END IF;
    RETURN hash;
END
$$;

-- Any role can see the held advisory locks in pg_locks. A block has so few bits that a hash which anyone can
-- compute would reveal it. So a lock is a hash under a key, and the key is derived from a secret of this
-- database.
--
-- The secret is in a materialized view because pg_dump does not read materialized views. So a role that
-- cannot read the secret can still dump the database, and a restore creates a new secret.
CREATE MATERIALIZED VIEW IF NOT EXISTS simsql._claim_secret AS
SELECT pg_catalog.sha256(pg_catalog.uuid_send(pg_catalog.gen_random_uuid())
                         || pg_catalog.uuid_send(pg_catalog.gen_random_uuid())) AS secret;

COMMENT ON MATERIALIZED VIEW simsql._claim_secret IS
    'the secret behind the locks of simsql.claim, readable only by its owner; '
    'REFRESH MATERIALIZED VIEW replaces it';

-- Default privileges may have granted SELECT on it to other roles.
DO $$
DECLARE
    grantee text;
BEGIN
    FOR grantee IN
        SELECT DISTINCT CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END
          FROM pg_class AS c CROSS JOIN LATERAL aclexplode(c.relacl) AS a
         WHERE c.oid = 'simsql._claim_secret'::regclass AND a.grantee <> c.relowner
    LOOP
        EXECUTE format('REVOKE ALL ON simsql._claim_secret FROM %s', grantee);
    END LOOP;
END
$$;

-- Creates the secret if there is none, as after a restore without data. It returns nothing, so any role may
-- call it. REFRESH waits for transactions that have read the old secret, so two secrets are never in use at
-- once.
CREATE OR REPLACE FUNCTION simsql._make_claim_secret() RETURNS void
LANGUAGE plpgsql SECURITY DEFINER
AS $$
BEGIN
    IF NOT (SELECT c.relispopulated FROM pg_catalog.pg_class AS c
             WHERE c.oid OPERATOR(pg_catalog.=) 'simsql._claim_secret'::pg_catalog.regclass)
    THEN
        REFRESH MATERIALIZED VIEW simsql._claim_secret;
    END IF;
END
$$;

-- Keeps the default index of a table the same until the end of the transaction. Claims in two indexes take
-- different locks, so set_default_index waits for the claims in one before others begin in the other.
CREATE OR REPLACE FUNCTION simsql._hold_default(table_name regclass) RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(hashtextextended('simsql.default', table_name::oid::bigint));
END
$$;

-- The index in which a claim will be, for a caller who makes the fingerprint for it.
CREATE OR REPLACE FUNCTION simsql._claimed_index(table_name regclass, column_name text)
RETURNS simsql.registry
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
    IF column_name IS NULL THEN
        PERFORM simsql._hold_default(table_name);
    END IF;
    RETURN simsql._index(table_name, column_name);
END
$$;

-- The key of each index whose columns the caller can read. The view reads the secret with the privileges of
-- its owner, but has_column_privilege checks those of the caller, which a SECURITY DEFINER function would not
-- know. A role that can read the column learns no more from the key than which fingerprints are being
-- claimed. The input hashed with the secret always has the same length, and only a part of each hash under
-- the key is visible. So a plain hash of both, one after the other, is as safe as HMAC.
CREATE OR REPLACE VIEW simsql._claim_keys WITH (security_barrier) AS
SELECT r.id AS index_id,
       pg_catalog.sha256(s.secret || pg_catalog.oidsend(d.oid) || pg_catalog.int4send(r.id)) AS key,
       r.table_id, r.column_name, r.distance, r.scope_columns, r.is_default
  FROM simsql.registry AS r
  JOIN pg_catalog.pg_database AS d ON d.datname = pg_catalog.current_database()
 CROSS JOIN simsql._claim_secret AS s
 -- Columns are identified by number, as in the policy of key tables: another column may take over the name. A
 -- scope has at most four. Without key tables, the search itself reads the columns by name.
 WHERE coalesce(
       (SELECT pg_catalog.has_column_privilege(t.tgrelid, t.tgattr[0], 'SELECT')
               AND (t.tgattr[1] IS NULL OR pg_catalog.has_column_privilege(t.tgrelid, t.tgattr[1], 'SELECT'))
               AND (t.tgattr[2] IS NULL OR pg_catalog.has_column_privilege(t.tgrelid, t.tgattr[2], 'SELECT'))
               AND (t.tgattr[3] IS NULL OR pg_catalog.has_column_privilege(t.tgrelid, t.tgattr[3], 'SELECT'))
               AND (t.tgattr[4] IS NULL OR pg_catalog.has_column_privilege(t.tgrelid, t.tgattr[4], 'SELECT'))
          FROM pg_catalog.pg_trigger AS t
         WHERE t.tgrelid = r.table_id AND t.tgname::pg_catalog.text = 'simsql_' || r.id || '_column'),
       pg_catalog.to_regclass('simsql.keys_' || r.id || '_0') IS NULL
       AND (SELECT pg_catalog.bool_and(pg_catalog.has_column_privilege(a.attrelid, a.attnum, 'SELECT'))
                   AND pg_catalog.count(*) = 1 + pg_catalog.cardinality(r.scope_columns)
              FROM pg_catalog.pg_attribute AS a
             WHERE a.attrelid = r.table_id
               AND a.attname::pg_catalog.text = ANY (r.column_name || r.scope_columns)));

COMMENT ON VIEW simsql._claim_keys IS
    'the keys behind the locks of simsql.claim, readable by roles that can read the columns of the index';

GRANT SELECT ON simsql._claim_keys TO PUBLIC;

-- The advisory locks of a claim. A lock is a hash of the scope, the number of blocks, the number of the block
-- and its bits, under the key of the index. If two hashes are equal by chance, a claim waits needlessly.
-- Every claim takes its locks in the same order, by the number of blocks and then by the number of the block,
-- so claims cannot deadlock with each other. Claims at different distances have to meet too, whenever the one
-- with the lower distance would find the other. So lower distances use the k of the index. For higher
-- distances the number of blocks is doubled until it suffices, and the blocks of every step are locked,
-- because other claims may have stopped there. If there are more blocks than bits, a single lock covers the
-- whole index.
CREATE OR REPLACE FUNCTION simsql._claim_locks(
    key bytea, scope_hash bigint, fingerprint bigint, of_index integer, distance integer)
RETURNS bigint[]
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
AS $$
DECLARE
    salted constant bytea := key || int8send(scope_hash);
    blocks integer := of_index + 1;
    block bigint;
    locks bigint[] := '{}';
BEGIN
    LOOP
        IF blocks > 64 THEN
            blocks := 65;
        END IF;
        FOR number IN 0 .. CASE blocks WHEN 65 THEN 0 ELSE blocks - 1 END LOOP
            -- The block moves to the front, and the bits behind it are cleared.
            block := CASE WHEN blocks < 65 THEN
                (fingerprint << (number * 64 / blocks))
                & (-1::bigint << (64 + number * 64 / blocks - (number + 1) * 64 / blocks)) ELSE 0 END;
            locks := locks || ('x' || left(encode(sha256(
                salted || int4send((blocks << 8) | number) || int8send(block)), 'hex'), 16))::bit(64)::bigint;
        END LOOP;
        IF blocks > distance THEN
            RETURN locks;
        END IF;
        blocks := 2 * blocks;
    END LOOP;
END
$$;

-- The files of a table and of its partitions and children. TRUNCATE gives them new ones, and so does a rewrite.
CREATE OR REPLACE FUNCTION simsql._files(table_name regclass) RETURNS oid[]
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
    IF NOT (SELECT c.relhassubclass FROM pg_class AS c WHERE c.oid = table_name) THEN
        RETURN ARRAY[pg_relation_filenode(table_name)];
    END IF;
    RETURN ARRAY(
        WITH RECURSIVE parts (id) AS (
            SELECT table_name::oid
             UNION
            SELECT i.inhrelid FROM parts AS p JOIN pg_inherits AS i ON i.inhparent = p.id)
        SELECT pg_relation_filenode(p.id) FROM parts AS p ORDER BY p.id);
END
$$;

CREATE OR REPLACE FUNCTION simsql.claim(
    table_name regclass, fingerprint bigint, distance integer DEFAULT NULL, column_name text DEFAULT NULL,
    scope jsonb DEFAULT NULL)
RETURNS SETOF simsql.match
LANGUAGE plpgsql VOLATILE ROWS 1
AS $$
<<locals>>
DECLARE
    index_id integer;
    key bytea;
    indexed_column text;
    of_index integer;
    scope_columns text[];
    scope_hash bigint := 0;
    asked integer;
    lock bigint;
    is_taken boolean;
    files oid[];
    nearest simsql.match;
BEGIN
    -- The search below is a statement of its own. Its snapshot is taken after the locks, because this
    -- function is VOLATILE and the transaction is READ COMMITTED. An older snapshot would not show the rows
    -- that this call has waited for.
    IF current_setting('transaction_isolation') <> 'read committed' OR pg_is_in_recovery() THEN
        PERFORM simsql._check_read_committed('claim');
    END IF;
    IF column_name IS NULL THEN
        PERFORM simsql._hold_default(table_name);
    END IF;
    LOOP
        BEGIN
            SELECT k.index_id, k.key, k.column_name, k.distance, k.scope_columns
              INTO STRICT index_id, key, indexed_column, of_index, scope_columns
              FROM simsql._claim_keys AS k
             WHERE k.table_id = claim.table_name
               AND simsql._is_meant(k.column_name, k.is_default, claim.column_name);
        EXCEPTION
            -- The last one: there is no secret. _index tells what is wrong with the index.
            WHEN no_data_found OR too_many_rows OR object_not_in_prerequisite_state THEN
                SELECT i.id INTO index_id FROM simsql._index(table_name, column_name) AS i;
                PERFORM simsql._make_claim_secret();
                SELECT k.key, k.column_name, k.distance, k.scope_columns
                  INTO key, indexed_column, of_index, scope_columns
                  FROM simsql._claim_keys AS k
                 WHERE k.index_id = locals.index_id;
                IF NOT FOUND THEN
                    RAISE EXCEPTION 'simsql.claim: role % cannot read the columns of the simhash index %',
                                    current_user, index_id
                        USING ERRCODE = 'insufficient_privilege',
                              HINT = 'Grant SELECT on the fingerprint column and on the scope columns.';
                END IF;
            WHEN undefined_table THEN PERFORM simsql._refuse_worker('claim');
        END;
        IF scope IS NOT NULL OR scope_columns <> '{}' THEN
            scope_hash := simsql._scope_hash(
                simsql._searched_index(table_name, indexed_column, scope), scope);
        END IF;
        asked := CASE WHEN distance BETWEEN 0 AND 64 THEN distance
                      ELSE simsql._distance(distance, of_index) END;
        -- A SELECT for each lock would take twice as long as this expression.
        FOREACH lock IN ARRAY coalesce(
            simsql._claim_locks(key, scope_hash, fingerprint, of_index, asked), '{}')
        LOOP
            is_taken := pg_advisory_xact_lock(lock) IS NOT NULL;
        END LOOP;
        files := simsql._files(table_name);
        BEGIN
            SELECT n.fingerprint, n.distance INTO nearest
              FROM simsql.near(table_name, claim.fingerprint, asked, indexed_column, scope) AS n LIMIT 1;
        EXCEPTION
            WHEN object_not_in_prerequisite_state THEN
                -- If the table was rewritten, the next search has a newer snapshot.
                IF simsql._files(table_name) = files THEN
                    RAISE;
                END IF;
        END;
        -- The search has locked the table until the end of the transaction, so from here on nobody can drop
        -- the index or change the type of a scope column. If that happened before, other claims take
        -- different locks. And while the search waited for that lock, the table may have been truncated and filled
        -- again: its snapshot would show no rows.
        EXIT WHEN simsql._files(table_name) = files
              AND EXISTS (SELECT FROM simsql.registry AS r
                           WHERE r.id = index_id
                             AND (scope_hash = 0 OR simsql._scope_hash(r, claim.scope) = scope_hash));
    END LOOP;
    IF nearest.fingerprint IS NOT NULL THEN
        RETURN NEXT nearest;
    END IF;
END
$$;

COMMENT ON FUNCTION simsql.claim(regclass, bigint, integer, text, jsonb) IS
    'call it before an insert: waits for other claims of near fingerprints, '
    'then returns the nearest match, or no row';


-- clusters: the connected components of the pairs within a distance.
--
-- It searches with the caller's privileges and snapshot, and reports only fingerprints of live rows.

-- Union-find takes time linear in the pairs and needs no temporary tables, so it also works in read-only
-- transactions. The root of a cluster is its smallest fingerprint.
CREATE OR REPLACE FUNCTION simsql.clusters(
    table_name regclass, distance integer DEFAULT NULL, column_name text DEFAULT NULL,
    scope jsonb DEFAULT NULL)
RETURNS SETOF simsql.member
LANGUAGE plpgsql STABLE
SET enable_mergejoin = off SET jit = off
AS $$
DECLARE
    is_coordinator constant boolean := simsql._is_coordinator('clusters');
    index constant record := simsql._searched_index(table_name, column_name, scope);
    asked constant integer := simsql._distance(distance, index.distance);
    vertices constant bigint[] := simsql._fingerprints(index, scope);
    parents integer[] := ARRAY(SELECT generate_series(1, cardinality(vertices)));
    statement text;
    found_pairs bigint := 0;
    edge record;
    x integer;
    y integer;
BEGIN
    FOR statement IN SELECT s FROM simsql._statements_for_pairs(vertices, asked) AS s LOOP
        FOR edge IN EXECUTE format(
            'SELECT a.number::integer AS head, b.number::integer AS tail FROM (%s) AS e (a, b) '
            'JOIN unnest($1) WITH ORDINALITY AS a (fp, number) ON a.fp = e.a '
            'JOIN unnest($1) WITH ORDINALITY AS b (fp, number) ON b.fp = e.b', statement)
            USING vertices, asked
        LOOP
            found_pairs := found_pairs + 1;
            IF found_pairs % 1000000 = 0 THEN
                PERFORM simsql._refuse_more(found_pairs, 'pairs', asked);
            END IF;
            x := edge.head;
            WHILE parents[x] <> x LOOP
                parents[x] := parents[parents[x]];
                x := parents[x];
            END LOOP;
            y := edge.tail;
            WHILE parents[y] <> y LOOP
                parents[y] := parents[parents[y]];
                y := parents[y];
            END LOOP;
            IF x < y THEN
                parents[y] := x;
            ELSE
                parents[x] := y;
            END IF;
        END LOOP;
    END LOOP;
    -- A parent never comes after its child, so one pass in ascending order finds every root.
    FOR number IN 1 .. cardinality(vertices) LOOP
        parents[number] := parents[parents[number]];
    END LOOP;
    RETURN QUERY EXECUTE simsql._render($sql$
        SELECT r.fp, c.fp
          FROM (SELECT v.fp, v.root, count(*) OVER (PARTITION BY v.root) AS size
                  FROM unnest($1, $2) AS v (fp, root)) AS c
          JOIN unnest($1) WITH ORDINALITY AS r (fp, number) ON r.number = c.root
         WHERE c.size > 1
            OR c.fp IN (SELECT t.{"column"} FROM {rows} AS t WHERE {guard}{scope_of_rows}
                         GROUP BY t.{"column"} HAVING count(*) > 1)
         ORDER BY 1, 2$sql$, '{}', simsql._parts(index, scope))
        USING vertices, parents;
END
$$;

COMMENT ON TYPE simsql.member IS 'a fingerprint of a row, and the smallest fingerprint of its cluster';
COMMENT ON FUNCTION simsql.clusters(regclass, integer, text, jsonb) IS
    'connected components of the pairs: each fingerprint that has a neighbour or that two rows share, '
    'with the smallest fingerprint of its cluster; '
    'the command simsql clusters is many times faster on many rows';


-- Functions for bulk work in Python: they return fingerprints in a few large pieces, and tell whether a load
-- may write keys itself.

-- The fingerprints of rows, eight bytes each, one after another: of those in `pages` pages from the first
-- on, or to the end if `pages` is null. The statement contains the page numbers, so that each piece is
-- planned for what it is: a scan of these pages. If `first` is null, it reads everything at once and returns
-- pieces of `pages` * 200 fingerprints: for one scope, for partitions, and for a role that can read only
-- columns, and so not ctid.
CREATE OR REPLACE FUNCTION simsql._packed(index simsql.registry, scope jsonb, first bigint, pages bigint)
RETURNS SETOF bytea
LANGUAGE plpgsql STABLE
SET enable_tidscan = on
AS $$
BEGIN
    RETURN QUERY EXECUTE simsql._render($sql$
        SELECT string_agg(int8send(n.f), '')
          FROM (SELECT t.{"column"} AS f, {piece} AS piece
                  FROM {rows_of} AS t
                 WHERE t.{"column"} IS NOT NULL{in_scope}{of_pages} AND {guard}) AS n
         GROUP BY n.piece$sql$,
        jsonb_build_object(
            'column', index.column_name,
            'piece', CASE WHEN first IS NULL THEN '(row_number() OVER () - 1) / ' || pages * 200 ELSE '0' END,
            'rows_of', simsql._rows_of(index),
            'in_scope', simsql._for_scope(index, ' AND t.%2$I = %3$s', scope),
            'of_pages', ' AND t.ctid >= ''(' || first || ',0)''::tid'
                        || coalesce(' AND t.ctid < ''(' || first + pages || ',0)''::tid', ''),
            'guard', simsql._guard(index)));
END
$$;

-- The fingerprints of all rows of an indexed table, or of a scope, in pieces of `pages` pages. Called in a
-- select list, not in FROM, it makes one piece at a time. The last piece is open-ended: the table may have
-- grown between measuring it and the first scan, which locks it.
CREATE OR REPLACE FUNCTION simsql._packed_pieces(
    table_name regclass, column_name text, pages bigint, scope jsonb DEFAULT NULL)
RETURNS SETOF bytea
LANGUAGE sql STABLE
AS $$
    WITH asked AS MATERIALIZED (
        SELECT i AS index,
               CASE WHEN scope IS NULL AND has_table_privilege(c.oid, 'SELECT')
                         AND c.relkind = 'r' AND NOT c.relhassubclass
                    THEN pg_relation_size(c.oid) / current_setting('block_size')::bigint END AS size
          FROM simsql._searched_index(table_name, column_name, scope) AS i
          JOIN pg_class AS c ON c.oid = i.table_id)
    SELECT f.packed
      FROM asked AS i
     CROSS JOIN LATERAL generate_series(0, coalesce(i.size, 0), pages) AS first
     CROSS JOIN LATERAL simsql._packed(
                            i.index, scope, CASE WHEN i.size IS NOT NULL THEN first END,
                            CASE WHEN i.size IS NULL OR first + pages <= i.size THEN pages END) AS f (packed)
     WHERE f.packed IS NOT NULL
$$;


-- The parts from which a backfill in Python composes its statements: see simsql/database/backfill.py.

-- The columns of a primary key, the last one first, and the schemas of the operators that sort it.
CREATE OR REPLACE FUNCTION simsql._primary_key(table_name regclass)
RETURNS TABLE (place bigint, name text, type text, operators text)
LANGUAGE sql STABLE
AS $$
    SELECT k.place, a.attname, format_type(a.atttypid, a.atttypmod), n.nspname
      FROM pg_index AS i
     CROSS JOIN LATERAL unnest(i.indkey, i.indclass) WITH ORDINALITY AS k (attribute, class, place)
      JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = k.attribute
      JOIN pg_opclass AS c ON c.oid = k.class
      JOIN pg_am AS m ON m.oid = c.opcmethod AND m.amname = 'btree'
      JOIN pg_amop AS p ON p.amopfamily = c.opcfamily AND p.amoplefttype = c.opcintype
                       AND p.amoprighttype = c.opcintype AND p.amopstrategy = 5  -- greater
      JOIN pg_operator AS o ON o.oid = p.amopopr
      JOIN pg_namespace AS n ON n.oid = o.oprnamespace
     WHERE i.indrelid = table_name AND i.indisprimary AND k.place <= i.indnkeyatts
     ORDER BY k.place DESC
$$;

-- Expressions about the rows `t` of a table and about keys `v.key`, JSON arrays with the values of a primary
-- key as text. They qualify the operators that sort the key: if those of citext, for example, are not on the
-- search_path, PostgreSQL would compare text. Raises an error unless the columns can hold fingerprints and
-- sketches, the others hold text, and a primary key identifies the rows.
--   rows_of       the table, without its inheritance children
--   texts         the texts of a row
--   needs_one     whether a row needs a value in one of the columns: it has a text but no value or, with
--                 all_rows, either of them
--   key           the key of a row
--   key_order     the ORDER BY expressions of the key
--   same_key      whether a row has the key
--   later_key     whether a row comes after the key
--   only_free     joins the keys with their rows, which it locks, and leaves out those that others have
--                 locked; empty for a distributed table, whose rows Citus does not lock from here, so that an
--                 update waits for others
CREATE OR REPLACE FUNCTION simsql._backfill_parts(
    table_name regclass, columns text[], text_columns text[], all_rows boolean,
    OUT rows_of text, OUT texts text, OUT needs_one text,
    OUT key text, OUT key_order text, OUT same_key text, OUT later_key text, OUT only_free text)
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    attribute pg_attribute;
    named text;
    part record;
    value text;
    given text;
    schemas text[] := '{}';
BEGIN
    FOREACH named IN ARRAY columns || text_columns LOOP
        SELECT a.* INTO attribute FROM pg_attribute AS a
         WHERE a.attrelid = table_name AND a.attname = named AND a.attnum > 0 AND NOT a.attisdropped;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'simsql: % has no column %', table_name, quote_ident(named)
                USING ERRCODE = 'undefined_column';
        ELSIF named = ANY (columns) AND attribute.attgenerated <> '' THEN
            RAISE EXCEPTION 'simsql: column % of % is generated: PostgreSQL computes it', quote_ident(named),
                            table_name
                USING ERRCODE = 'feature_not_supported';
        ELSIF named = ANY (columns) AND attribute.atttypid <> 'bigint'::regtype
              OR named <> ALL (columns)
                 AND (SELECT y.typcategory FROM pg_type AS y WHERE y.oid = attribute.atttypid) <> 'S'
        THEN
            RAISE EXCEPTION 'simsql: column % of % is %, not %', quote_ident(named), table_name,
                            format_type(attribute.atttypid, attribute.atttypmod),
                            CASE WHEN named = ANY (columns) THEN 'bigint' ELSE 'text' END
                USING ERRCODE = 'datatype_mismatch';
        ELSIF named = ANY (columns) AND named = ANY (text_columns) THEN
            RAISE EXCEPTION 'simsql: column % of % cannot hold the texts and what is computed from them',
                            quote_ident(named), table_name
                USING ERRCODE = 'invalid_parameter_value', HINT = 'Name the column that holds the texts.';
        END IF;
    END LOOP;
    IF NOT EXISTS (SELECT FROM simsql._primary_key(table_name)) THEN
        RAISE EXCEPTION 'simsql: % has no primary key', table_name
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = 'A backfill reads a table in the order of its primary key: add one.';
    END IF;
    SELECT format('%s%I.%I', CASE c.relkind WHEN 'r' THEN 'ONLY ' END, n.nspname, c.relname)
      INTO rows_of
      FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
     WHERE c.oid = table_name;
    SELECT format('ARRAY[%s]',
                  string_agg(format('CAST(t.%I AS pg_catalog.text)', u.name), ', ' ORDER BY u.place)),
           string_agg(format('t.%I IS NOT NULL', u.name), ' OR ' ORDER BY u.place)
      INTO texts, needs_one
      FROM unnest(text_columns) WITH ORDINALITY AS u (name, place);
    SELECT format(CASE WHEN all_rows THEN '(%s OR %s)' ELSE '((%s) AND (%s))' END, needs_one,
                  string_agg(format(CASE WHEN all_rows THEN 't.%I IS NOT NULL' ELSE 't.%I IS NULL' END,
                                    u.name), ' OR '))
      INTO needs_one
      FROM unnest(columns) AS u (name);
    FOR part IN SELECT * FROM simsql._primary_key(table_name) LOOP
        value := format('CAST(v.key OPERATOR(pg_catalog.->>) %s AS %s)', part.place - 1, part.type);
        key := concat_ws(', ', format('CAST(t.%I AS pg_catalog.text)', part.name), key);
        key_order := concat_ws(', ', format('t.%I', part.name), key_order);
        given := concat_ws(', ', value, given);
        same_key := concat_ws(' AND ', format('t.%I OPERATOR(%I.=) %s', part.name, part.operators, value),
                              same_key);
        later_key := simsql._render(
            '(t.{"name"} OPERATOR({"operators"}.>) {value}'
            ' OR t.{"name"} OPERATOR({"operators"}.=) {value} AND {later})',
            jsonb_build_object('name', part.name, 'operators', part.operators, 'value', value,
                               'later', coalesce(later_key, 'false')));
        schemas := schemas || part.operators;
    END LOOP;
    -- A single row comparison, where possible, is a range of the B-tree of the primary key.
    IF schemas[1] = ALL (schemas) THEN
        later_key := format('ROW(%s) OPERATOR(%I.>) ROW(%s)', key_order, schemas[1], given);
    END IF;
    key := format('CAST(pg_catalog.jsonb_build_array(%s) AS pg_catalog.text)', key);
    only_free := CASE WHEN simsql._is_distributed(table_name) THEN ''
                      ELSE format('JOIN %s AS t ON %s WHERE t.xmin OPERATOR(pg_catalog.=) v.version '
                                  'FOR NO KEY UPDATE OF t SKIP LOCKED', rows_of, same_key) END;
END
$$;


-- clear_on_change: sets a fingerprint to NULL when its text is changed by a writer that does not update the
-- fingerprint.

-- Sets the fingerprint of the new row to NULL. The trigger's companion identifies the column by number, as
-- the catalogue and pg_dump carry it along, so the column may be renamed.
CREATE OR REPLACE FUNCTION simsql._clear_fingerprint() RETURNS trigger
LANGUAGE plpgsql
AS $$
DECLARE
    column_name constant text := (
        SELECT (pg_identify_object_as_address('pg_class'::regclass, t.tgrelid, t.tgattr[0])).object_names[3]
          FROM pg_trigger AS t
         WHERE t.tgrelid IN (SELECT TG_RELID UNION ALL SELECT pg_partition_ancestors(TG_RELID))
           AND t.tgname = TG_NAME || '_column' LIMIT 1);
BEGIN
    IF column_name IS NULL THEN
        RAISE EXCEPTION 'simsql: trigger %_column of % is missing, or newer than the snapshot of this '
                        'transaction', TG_NAME, TG_RELID::regclass
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = 'Start a new transaction. If that does not help, call simsql.clear_on_change for '
                         'the column again.';
    END IF;
    RETURN jsonb_populate_record(NEW, jsonb_build_object(column_name, NULL));
END
$$;

-- The triggers of clear_on_change on a column: the one that fires and its companion, which never does.
CREATE OR REPLACE FUNCTION simsql._clearing_triggers(table_name regclass, column_name text) RETURNS SETOF text
LANGUAGE sql STABLE
AS $$
    SELECT n.name
      FROM pg_trigger AS t
      JOIN pg_attribute AS a ON a.attrelid = t.tgrelid AND a.attnum = t.tgattr[0]
     CROSS JOIN LATERAL (VALUES (t.tgname::text), (substring(t.tgname FROM '^(.*)_column$'))) AS n (name)
     WHERE t.tgrelid = table_name AND t.tgname ~ '^zz_simsql_clear_\d+_column$' AND a.attname = column_name
$$;

-- By its name the trigger is one of the last to fire before the update, so it sees what other triggers make
-- of the text. Texts are compared byte by byte, even if their type or collation considers them equal.
CREATE OR REPLACE FUNCTION simsql.clear_on_change(table_name regclass, column_name text, sources text[])
RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    name text;
    generated "char";
    number integer;
    changed text;
BEGIN
    IF table_name IS NULL OR column_name IS NULL OR coalesce(cardinality(sources), 0) = 0
       OR array_position(ARRAY(SELECT unnest(sources)), NULL) IS NOT NULL  -- of any dimensions
    THEN
        RAISE EXCEPTION 'simsql.clear_on_change: the table, the column and its sources must not be null '
                        'or empty'
            USING ERRCODE = 'null_value_not_allowed',
                  HINT = 'For example: '
                         'SELECT simsql.clear_on_change(''article'', ''fingerprint'', ARRAY[''body'']);';
    END IF;
    FOREACH name IN ARRAY column_name || ARRAY(SELECT unnest(sources)) LOOP
        SELECT a.attgenerated INTO generated FROM pg_attribute AS a
         WHERE a.attrelid = table_name AND a.attname = name AND a.attnum > 0 AND NOT a.attisdropped;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'simsql.clear_on_change: % has no column %', table_name, quote_ident(name)
                USING ERRCODE = 'undefined_column';
        ELSIF generated <> '' THEN
            RAISE EXCEPTION 'simsql.clear_on_change: column % of % is generated', quote_ident(name),
                            table_name
                USING ERRCODE = 'feature_not_supported', HINT = 'Name the columns that it is generated from.';
        END IF;
    END LOOP;
    IF column_name = ANY (sources) THEN
        RAISE EXCEPTION 'simsql.clear_on_change: column % of % cannot be its own source',
                        quote_ident(column_name), table_name
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Name the columns that hold the text.';
    END IF;
    FOR name IN SELECT simsql._clearing_triggers(table_name, column_name) LOOP
        EXECUTE format('DROP TRIGGER IF EXISTS %I ON %s', name, table_name);
    END LOOP;
    SELECT coalesce(max(substring(t.tgname FROM '^zz_simsql_clear_(\d+)')::integer), 0) + 1 INTO number
      FROM pg_trigger AS t WHERE t.tgrelid = table_name AND t.tgname ~ '^zz_simsql_clear_\d+';
    SELECT string_agg(format('OLD.%1$I::text COLLATE "C" IS DISTINCT FROM NEW.%1$I::text COLLATE "C"', s),
                      ' OR ')
      INTO changed
      FROM unnest(sources) AS s;
    EXECUTE simsql._render($sql$
        CREATE TRIGGER zz_simsql_clear_{number} BEFORE UPDATE ON {table} FOR EACH ROW
            WHEN (NEW.{"column"} IS NOT NULL AND OLD.{"column"} IS NOT DISTINCT FROM NEW.{"column"}
                  AND ({changed}))
            EXECUTE FUNCTION simsql._clear_fingerprint();
        CREATE TRIGGER zz_simsql_clear_{number}_column AFTER UPDATE OF {"column"} ON {table}
            FOR EACH STATEMENT WHEN (false)
            EXECUTE FUNCTION simsql._clear_fingerprint()
        $sql$,
        jsonb_build_object('number', number, 'table', table_name, 'column', column_name, 'changed', changed));
END
$$;

COMMENT ON FUNCTION simsql.clear_on_change(regclass, text, text[]) IS
    'create a trigger that sets the fingerprint to NULL when an UPDATE changes a source but not the '
    'fingerprint';

CREATE OR REPLACE FUNCTION simsql.drop_clear_on_change(table_name regclass, column_name text) RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    name text;
BEGIN
    FOR name IN SELECT simsql._clearing_triggers(table_name, column_name) LOOP
        EXECUTE format('DROP TRIGGER IF EXISTS %I ON %s', name, table_name);
    END LOOP;
    IF name IS NULL THEN
        RAISE EXCEPTION 'simsql.drop_clear_on_change: nothing clears column % of %',
                        coalesce(quote_ident(column_name), 'NULL'), coalesce(table_name::text, 'NULL')
            USING ERRCODE = 'undefined_object',
                  HINT = 'simsql.clear_on_change creates the trigger that this drops.';
    END IF;
END
$$;

COMMENT ON FUNCTION simsql.drop_clear_on_change(regclass, text) IS
    'drop the trigger that simsql.clear_on_change created';


-- uninstall: leaves the database as it was before simsql, except for the user's columns and their B-trees.

CREATE OR REPLACE FUNCTION simsql.uninstall(drop_indexes boolean DEFAULT false) RETURNS void
LANGUAGE plpgsql
SET client_min_messages = warning  -- no notice for each dropped object
AS $$
DECLARE
    found text;
BEGIN
    IF NOT pg_has_role((SELECT nspowner FROM pg_namespace WHERE nspname = 'simsql'), 'USAGE') THEN
        RAISE EXCEPTION 'simsql.uninstall: must be owner of schema simsql'
            USING ERRCODE = 'insufficient_privilege';
    END IF;
    LOCK TABLE simsql.registry IN ACCESS EXCLUSIVE MODE;  -- so that nobody creates another index
    SELECT string_agg(format('%s(%I)', i.table_name, i.column_name), ', ' ORDER BY i.id) INTO found
      FROM simsql.indexes AS i
     WHERE i.state <> 'table dropped' AND NOT coalesce(drop_indexes, false);
    IF found IS NOT NULL THEN
        RAISE EXCEPTION 'simsql.uninstall: simhash indexes exist: %', found
            USING ERRCODE = 'dependent_objects_still_exist',
                  HINT = 'Drop them first, or together with simsql: '
                         'SELECT simsql.uninstall(drop_indexes => true); or '
                         'simsql uninstall --drop-indexes. Columns and their B-trees stay.';
    END IF;
    -- Objects of others that DROP SCHEMA would drop too: views, columns, functions and the like that use
    -- something in it. Triggers on users' tables that call simsql's functions belong to simsql and are not
    -- listed.
    SELECT string_agg(DISTINCT pg_describe_object(d.classid, d.objid, d.objsubid), ', ') INTO found
      FROM (SELECT 'pg_proc'::regclass, oid FROM pg_proc WHERE pronamespace = 'simsql'::regnamespace
             UNION ALL
            SELECT 'pg_class'::regclass, oid FROM pg_class WHERE relnamespace = 'simsql'::regnamespace
             UNION ALL
            SELECT 'pg_type'::regclass, oid FROM pg_type
             WHERE typnamespace = 'simsql'::regnamespace) AS own (class, id)
      JOIN pg_depend AS d ON d.refclassid = own.class AND d.refobjid = own.id AND d.deptype = 'n'
     CROSS JOIN LATERAL pg_identify_object_as_address(d.classid, d.objid, d.objsubid) AS address
     WHERE d.classid <> 'pg_trigger'::regclass AND address.object_names[1] <> 'simsql';
    IF found IS NOT NULL THEN
        RAISE EXCEPTION 'simsql.uninstall: other objects use simsql: %', found
            USING ERRCODE = 'dependent_objects_still_exist', HINT = 'Drop or change them first.';
    END IF;
    -- The rest of an index is in the schema.
    PERFORM simsql._expression_drop(r) FROM simsql.registry AS r;
    DROP SCHEMA simsql CASCADE;
END
$$;

COMMENT ON FUNCTION simsql.uninstall(boolean) IS
    'remove simsql from this database; refuses if there are simhash indexes, unless drop_indexes is true';


-- The last file. It makes every function look up names in pg_catalog alone, quote them only where that is
-- necessary, because names are compared as text, and read strings as the standard does. It resets settings of
-- this session. Otherwise a role that may create functions in a schema on a caller's search_path could have
-- them called with that caller's privileges: it is easy to create a better match than pg_catalog's
-- format(text, VARIADIC "any").

DO $$
DECLARE
    signature text;
BEGIN
    FOR signature IN
        SELECT p.oid::regprocedure::text FROM pg_proc AS p
         WHERE p.pronamespace = 'simsql'::regnamespace
           AND p.prokind = 'f'  -- a procedure with settings cannot commit: ours qualify every name
           -- Other functions looked up names when they were created, and stay inlinable.
           AND p.prosqlbody IS NULL
           -- Those of an index have settings of their own.
           AND p.proname !~ '^(search|scan|add_on_[a-z]+)_\d+$'
    LOOP
        EXECUTE format('ALTER FUNCTION %s SET search_path = pg_catalog, pg_temp', signature);
        EXECUTE format('ALTER FUNCTION %s SET quote_all_identifiers = off', signature);
        EXECUTE format('ALTER FUNCTION %s SET standard_conforming_strings = on', signature);
    END LOOP;
    PERFORM set_config('quote_all_identifiers', current_setting('simsql.quote_all_identifiers'), true),
            set_config('search_path', current_setting('simsql.search_path'), true);
END
$$;


INSERT INTO simsql.schema_version (version_num) VALUES ('0002') RETURNING simsql.schema_version.version_num;

$simsql_script$; END $simsql_run$;
