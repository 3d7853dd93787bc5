BEGIN;

-- simsql's schema, revision 0001: The first schema: everything in sql/, in the order in which one file needs another.

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


-- Fingerprints are unsigned in Python and bigint with the same 64 bits here.

CREATE FUNCTION simsql.fp(fingerprint numeric) RETURNS bigint
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
AS $$
BEGIN
    IF fingerprint < 0 OR fingerprint > 18446744073709551615 OR fingerprint <> trunc(fingerprint) THEN
        RAISE EXCEPTION 'simsql.fp: % is not an unsigned 64-bit fingerprint', fingerprint
            USING ERRCODE = 'numeric_value_out_of_range',
                  HINT = 'Pass a whole number from 0 to 18446744073709551615. A negative number is '
                         'already the bigint that the column holds: use it as it is.';
    END IF;
    IF fingerprint > 9223372036854775807 THEN
        RETURN (fingerprint - 18446744073709551616)::bigint;
    END IF;
    RETURN fingerprint::bigint;
END
$$;

COMMENT ON FUNCTION simsql.fp(numeric) IS
    'the bigint with the bits of an unsigned decimal fingerprint: simsql.fp(13835058055282163712)';

CREATE FUNCTION simsql.hamming_distance(a bigint, b bigint) RETURNS integer
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN bit_count((a # b)::bit(64))::integer;

COMMENT ON FUNCTION simsql.hamming_distance(bigint, bigint) IS
    'number of bits, 0 to 64, in which two fingerprints differ';


-- The layout of an index: blocks, permutations, radii and cost, as in simsql/hamming.
--
-- 64 bits are split into blocks (block 0 holds the most significant bits; larger blocks first). A
-- permutation moves its lead blocks to the front and leaves the other bits behind, all in their old order.
-- With inner blocks the bits that do not lead are split again, and one of these blocks joins the lead: the
-- nested design of Manku, Jain and Das Sarma. So a permutation is known by the bits that lead.
-- Permutations are numbered from 0 in lexicographic order of their lead blocks, then of the inner block.

CREATE FUNCTION simsql._permutations(blocks integer, lead integer, inner_blocks integer)
RETURNS TABLE (number integer, lead_mask bigint, prefix integer)
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$
    WITH RECURSIVE choice (lead_blocks) AS (
        SELECT '{}'::integer[]
        UNION ALL
        SELECT c.lead_blocks || b
          FROM choice AS c
         CROSS JOIN generate_series(0, blocks - 1) AS b
         WHERE cardinality(c.lead_blocks) < lead
           AND b > coalesce(c.lead_blocks[cardinality(c.lead_blocks)], -1)
           -- Blocks for the rest of the lead have to be left.
           AND b <= blocks - lead + cardinality(c.lead_blocks)
    ), block AS (
        SELECT b AS number, 64 / blocks AS size, least(b, 64 % blocks) AS larger, (b < 64 % blocks)::integer AS extra
          FROM generate_series(0, blocks - 1) AS b
    ), outer_lead AS (
        SELECT c.lead_blocks, bit_or(((1::bigint << (k.size + k.extra)) - 1)
                                     << (64 - k.number * k.size - k.larger - k.size - k.extra)) AS mask
          FROM choice AS c
          JOIN block AS k ON k.number = ANY (c.lead_blocks)
         WHERE cardinality(c.lead_blocks) = lead
         GROUP BY c.lead_blocks
    ), rest AS (
        SELECT o.lead_blocks, bit,
               row_number() OVER (PARTITION BY o.lead_blocks ORDER BY bit DESC) - 1 AS place,
               count(*) OVER (PARTITION BY o.lead_blocks) AS bits
          FROM outer_lead AS o
         CROSS JOIN generate_series(0, 63) AS bit
         WHERE inner_blocks > 0 AND (o.mask >> bit) & 1 = 0
    ), inner_lead AS (
        SELECT r.lead_blocks, j AS number, bit_or(1::bigint << r.bit) AS mask
          FROM rest AS r
          JOIN generate_series(0, inner_blocks - 1) AS j
            ON r.place >= j * (r.bits / inner_blocks) + least(j, r.bits % inner_blocks)
           AND r.place < (j + 1) * (r.bits / inner_blocks) + least(j + 1, r.bits % inner_blocks)
         GROUP BY r.lead_blocks, j
    )
    SELECT (row_number() OVER (ORDER BY o.lead_blocks, i.number) - 1)::integer,
           o.mask | coalesce(i.mask, 0),
           bit_count((o.mask | coalesce(i.mask, 0))::bit(64))::integer
      FROM outer_lead AS o
      LEFT JOIN inner_lead AS i USING (lead_blocks)
$$;

-- Which bits a permutation shifts by how much: a positive shift goes to the left, and the mask
-- selects the bits where they arrive. Bits that move together are one row.
CREATE FUNCTION simsql._moves(lead_mask bigint)
RETURNS TABLE (shift integer, mask bigint)
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$
    SELECT (target - source)::integer, bit_or(1::bigint << target::integer)
      FROM (SELECT bit AS source,
                   64 - row_number() OVER (ORDER BY (lead_mask >> bit) & 1 DESC, bit DESC) AS target
              FROM generate_series(0, 63) AS bit) AS placed
     GROUP BY target - source
     ORDER BY 1
$$;

-- The SQL expression that permutes a fingerprint into a key, or a key back into a fingerprint.
CREATE FUNCTION simsql._permute(operand text, lead_mask bigint)
RETURNS text
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$
    SELECT '(' || string_agg(
               CASE WHEN m.mask = -1 THEN operand
                    WHEN m.shift = 0 THEN format('(%s & %L::bigint)', operand, m.mask)
                    WHEN m.shift > 0 THEN format('((%s << %s) & %L::bigint)', operand, m.shift, m.mask)
                    ELSE format('((%s >> %s) & %L::bigint)', operand, -m.shift, m.mask)
               END, ' | ' ORDER BY m.shift) || ')'
      FROM simsql._moves(lead_mask) AS m
$$;

CREATE FUNCTION simsql._unpermute(operand text, lead_mask bigint)
RETURNS text
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$
    SELECT '(' || string_agg(
               CASE WHEN m.mask = -1 THEN operand
                    WHEN m.shift = 0 THEN format('(%s & %L::bigint)', operand, m.mask)
                    WHEN m.shift > 0 THEN format('((%s & %L::bigint) >> %s & %L::bigint)', operand, m.mask,
                                                 m.shift, ~(-1::bigint << (64 - m.shift)))
                    ELSE format('((%s & %L::bigint) << %s)', operand, m.mask, -m.shift)
               END, ' | ' ORDER BY m.shift) || ')'
      FROM simsql._moves(lead_mask) AS m
$$;

-- How many permutations a design has.
CREATE FUNCTION simsql._table_count(blocks integer, lead integer, inner_blocks integer) RETURNS numeric
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$ SELECT div(factorial(blocks), factorial(lead) * factorial(blocks - lead)) * greatest(inner_blocks, 1) $$;

-- How many bits of its prefix a search at this distance has to flip in this permutation's table; -1 where
-- the table need not be read. With one lead block: were there more differing bits than this in every
-- block, they would be more than the distance (Norouzi, Punjani, Fleet, section 3.1). Otherwise, for every table alike:
-- spread the differing bits as evenly as an adversary can, then take the emptiest blocks.
CREATE FUNCTION simsql._radius(blocks integer, lead integer, inner_blocks integer, number integer, distance integer)
RETURNS integer
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$
    SELECT CASE WHEN inner_blocks > 0 THEN outer_radius + (distance - outer_radius) / inner_blocks
                WHEN lead > 1 THEN outer_radius
                WHEN distance < number THEN -1
                ELSE (distance - number) / blocks
           END
      FROM (SELECT lead * (distance / blocks) + greatest(0, lead - (blocks - distance % blocks)) AS outer_radius) AS r
$$;

-- All ways to flip up to radius bits of a prefix, as numbers of prefix bits; none for a negative radius.
CREATE FUNCTION simsql._flips(prefix integer, radius integer) RETURNS bigint[]
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
AS $$
DECLARE
    level bigint[] := '{0}';
    flips bigint[] := '{0}';
BEGIN
    IF radius < 0 THEN
        RETURN '{}';
    END IF;
    FOR flipped IN 1 .. least(radius, prefix) LOOP
        -- Each flip once: only bits below the lowest one that is flipped already.
        level := ARRAY(SELECT f | (1::bigint << b)
                         FROM unnest(level) AS f
                        CROSS JOIN generate_series(0, prefix - 1) AS b
                        WHERE f = 0 OR (1::bigint << b) < (f & -f));
        flips := flips || level;
    END LOOP;
    RETURN flips;
END
$$;

-- Sum of the binomial coefficients (prefix choose i) for i up to radius; 0 for a negative radius.
CREATE FUNCTION simsql._ways(prefix integer, radius integer) RETURNS double precision
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

-- What things cost in microseconds, as in simsql/hamming/design.py, where they are explained.
CREATE FUNCTION simsql._costs(OUT probe double precision, OUT candidate double precision,
                              OUT scan_row double precision, OUT write_table double precision)
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$ SELECT 1.1, 0.1, 0.06, 12.0 $$;

-- How many ranges a search at each of these distances scans, and which share of all keys it expects to
-- meet in them (which may exceed 1).
CREATE FUNCTION simsql._searches(blocks integer, lead integer, inner_blocks integer, distances integer[])
RETURNS TABLE (distance integer, probes double precision, share double precision)
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$
    SELECT w.distance, sum(w.ways), sum(w.ways * 2::double precision ^ -w.prefix)
      FROM (SELECT d AS distance, p.prefix,
                   simsql._ways(p.prefix, simsql._radius(blocks, lead, inner_blocks, p.number, d)) AS ways
              FROM simsql._permutations(blocks, lead, inner_blocks) AS p
             CROSS JOIN unnest(distances) AS d) AS w
     GROUP BY w.distance
$$;

-- From how many rows on probing is expected to beat a sequential scan, for each distance from 0 on; null
-- where it never does.
CREATE FUNCTION simsql._scan_below(blocks integer, lead integer, inner_blocks integer) RETURNS bigint[]
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$
    SELECT array_agg(CASE WHEN saved > 0 AND c.probe * s.probes / saved < 1e15
                          THEN ceil(c.probe * s.probes / saved)::bigint END ORDER BY s.distance)
      FROM simsql._searches(blocks, lead, inner_blocks, ARRAY(SELECT generate_series(0, 64))) AS s
     CROSS JOIN simsql._costs() AS c
     CROSS JOIN LATERAL (SELECT c.scan_row - c.candidate * s.share AS saved) AS row
$$;

-- The design for so many rows and this distance, as simsql.plan recommends it: the cheapest for one search
-- and one row written. Tables grow, so fewer than a million rows count as a million.
CREATE FUNCTION simsql._design(rows bigint, distance integer, OUT blocks integer, OUT lead integer)
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE SET jit = off
AS $$
    SELECT m, c
      FROM generate_series(2, 20) AS m
     CROSS JOIN LATERAL generate_series(1, m - 1) AS c
     CROSS JOIN LATERAL simsql._table_count(m, c, 0) AS tables
     CROSS JOIN LATERAL simsql._searches(m, c, 0, ARRAY[$2]) AS search
     CROSS JOIN simsql._costs() AS cost
     WHERE tables <= 20
     ORDER BY least(cost.probe * search.probes + cost.candidate * search.share * greatest(rows, 1000000),
                    cost.scan_row * greatest(rows, 1000000)) + cost.write_table * tables,
              tables, m, c
     LIMIT 1
$$;


-- Scopes: columns of the user's table that a search is confined to, such as a tenant or a language.
--
-- They lead the keys, as scope_1, scope_2 and so on: under names of its own a table of keys has nothing to follow when
-- columns are renamed. All keys of a scope stand side by side, in the order of keys, so that a search reads ranges
-- of its own scope and nothing else. A row with a null in a scope column is in no scope and has no keys.

-- The type as which the values of a column are compared: of a domain, the one below it. Its length or precision is
-- left out, since a cast to it would make other values of those that do not fit.
CREATE FUNCTION simsql._scope_type(table_id regclass, column_name text) RETURNS oid
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    type_id oid := (SELECT a.atttypid FROM pg_attribute AS a
                     WHERE a.attrelid = $1 AND a.attname = $2 AND a.attnum > 0 AND NOT a.attisdropped);
    below oid;
BEGIN
    LOOP
        SELECT t.typbasetype INTO below FROM pg_type AS t WHERE t.oid = type_id AND t.typtype = 'd';
        EXIT WHEN NOT FOUND;
        type_id := below;
    END LOOP;
    RETURN type_id;
END
$$;

-- Raises unless these columns can be a scope. Their equality has to be the one that `=` means under the search_path of
-- simsql's functions, and leakproof: else it would be no index condition where row-level security is active, as
-- it is on the tables of keys.
CREATE FUNCTION simsql._check_scope_columns(table_id regclass, column_name text, scope text[], caller text) RETURNS void
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    scope_column text;
    attribute pg_attribute;
    type_id oid;
BEGIN
    IF cardinality(scope) > 4 THEN
        RAISE EXCEPTION 'simsql.%: a scope of % columns', caller, cardinality(scope)
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Take at most four.';
    ELSIF array_ndims(scope) > 1 OR cardinality(scope) <> (SELECT count(DISTINCT c) FROM unnest(scope) AS c) OR $2 = ANY (scope) THEN
        RAISE EXCEPTION 'simsql.%: %(%) cannot have the scope %', caller, $1, quote_ident($2), scope
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Name each column once, and not the column of fingerprints.';
    END IF;
    FOREACH scope_column IN ARRAY coalesce(scope, '{}') LOOP
        SELECT a.* INTO attribute FROM pg_attribute AS a
         WHERE a.attrelid = $1 AND a.attname = scope_column AND a.attnum > 0 AND NOT a.attisdropped;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'simsql.%: % has no column %', caller, $1, quote_ident(scope_column)
                USING ERRCODE = 'undefined_column', HINT = 'A scope names columns as the table has them, without quotes.';
        ELSIF attribute.attgenerated = 'v' THEN
            RAISE EXCEPTION 'simsql.%: column % of % is a virtual generated column', caller, quote_ident(scope_column), $1
                USING ERRCODE = 'feature_not_supported', HINT = 'Make it a stored column: it has to have a B-tree.';
        END IF;
        type_id := simsql._scope_type($1, scope_column);
        IF NOT EXISTS (
            SELECT FROM pg_opclass AS o
              JOIN pg_am AS m ON m.oid = o.opcmethod AND m.amname = 'btree'
              JOIN pg_amop AS a ON a.amopfamily = o.opcfamily AND a.amopstrategy = 3
                               AND a.amoplefttype = o.opcintype AND a.amoprighttype = o.opcintype
              JOIN pg_operator AS e ON e.oid = a.amopopr
              JOIN pg_proc AS f ON f.oid = e.oprcode
             WHERE o.opcdefault AND o.opcnamespace = 'pg_catalog'::regnamespace AND f.proleakproof
               AND o.opcintype = CASE WHEN type_id = 'varchar'::regtype THEN 'text'::regtype ELSE type_id END
               -- A claim hashes its scope.
               AND EXISTS (SELECT FROM pg_opclass AS h JOIN pg_am AS m ON m.oid = h.opcmethod AND m.amname = 'hash'
                            WHERE h.opcdefault AND h.opcintype = o.opcintype))
        THEN
            RAISE EXCEPTION 'simsql.%: column % of % is %, which cannot be a scope', caller, quote_ident(scope_column), $1,
                            format_type(attribute.atttypid, attribute.atttypmod)
                USING ERRCODE = 'datatype_mismatch',
                      HINT = 'Take a column of integers, text, uuid, date, timestamp or boolean.';
        END IF;
    END LOOP;
END
$$;

-- The scope columns of an index: what they are called in its tables of keys and in the user's table, and their types,
-- which are null where there is no such table.
CREATE FUNCTION simsql._scope_columns(index simsql.registry)
RETURNS TABLE (number integer, name text, column_name text, type text)
LANGUAGE sql STABLE
AS $$
    SELECT s.number::integer, 'scope_' || s.number, s.column_name, format_type(a.atttypid, -1)
      FROM unnest(index.scope_columns) WITH ORDINALITY AS s (column_name, number)
      LEFT JOIN pg_attribute AS a
        ON a.attrelid = to_regclass(format('simsql.keys_%s_0', index.id)) AND a.attname = 'scope_' || s.number
$$;

-- A text made of this pattern once for each scope column, and so empty for an index without a scope. In the pattern
-- %1$s is the name in the tables of keys, and %2$I the name in the user's table.
CREATE FUNCTION simsql._for_scope(index simsql.registry, pattern text) RETURNS text
LANGUAGE sql STABLE
AS $$
    SELECT coalesce(string_agg(format(pattern, s.name, s.column_name), '' ORDER BY s.number), '')
      FROM simsql._scope_columns(index) AS s
$$;

-- The columns of a table of keys, and those of the user's table for which there has to be a B-tree.
CREATE FUNCTION simsql._key_columns(index simsql.registry) RETURNS text[]
LANGUAGE sql STABLE
AS $$ SELECT ARRAY(SELECT s.name FROM simsql._scope_columns(index) AS s ORDER BY s.number) || 'key'::text $$;

CREATE FUNCTION simsql._btree_columns(index simsql.registry) RETURNS text[]
LANGUAGE sql STABLE
AS $$ SELECT index.scope_columns || index.column_name $$;

-- Names as a list in SQL.
CREATE FUNCTION simsql._name_list(names text[]) RETURNS text
LANGUAGE sql STABLE
AS $$ SELECT string_agg(quote_ident(n.name), ', ' ORDER BY n.number) FROM unnest(names) WITH ORDINALITY AS n (name, number) $$;

-- The condition that a row of the user's table, called t, or else a key, called otherwise, is in this scope. It begins with
-- AND, and is empty for an index without a scope.
CREATE FUNCTION simsql._in_scope(index simsql.registry, scope jsonb, alias text) RETURNS text
LANGUAGE sql STABLE
AS $$
    SELECT coalesce(string_agg(format(' AND %s.%I = %L::%s', alias, CASE alias WHEN 't' THEN s.column_name ELSE s.name END,
                                      scope ->> s.column_name, s.type), '' ORDER BY s.number), '')
      FROM simsql._scope_columns(index) AS s
$$;

-- The condition that rows stand behind the place at which a batch has ended, in the order of the scope and then of this
-- column: the place is a scope, as text, and a value of the column. Scope columns are named by a pattern, as for
-- _for_scope. Null where there is no place, before the first batch.
CREATE FUNCTION simsql._from_place(
    index simsql.registry, scope text[], pattern text, last_column text, operator text, value text)
RETURNS text
LANGUAGE sql STABLE
AS $$
    SELECT CASE WHEN scope IS NOT NULL OR cardinality(index.scope_columns) = 0
                THEN format('(%s%s) %s (%s%s)', simsql._for_scope(index, pattern || ', '), last_column, operator,
                            string_agg(format('%L::%s, ', scope[s.number], s.type), '' ORDER BY s.number), value) END
      FROM simsql._scope_columns(index) AS s
$$;

-- Raises unless a search names a value for each scope column of its index, and nothing else.
CREATE FUNCTION simsql._check_scope(table_id regclass, column_name text, scope_columns text[], scope jsonb) RETURNS void
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    wrong text;
    how constant text := (SELECT format('Give a value of each column: scope => jsonb_build_object(%s)',
                                        string_agg(format('%L, ...', c.name), ', ' ORDER BY c.number))
                            FROM unnest(scope_columns) WITH ORDINALITY AS c (name, number));
BEGIN
    IF cardinality(scope_columns) = 0 THEN
        IF scope IS NOT NULL THEN
            RAISE EXCEPTION 'simsql: the simhash index on %(%) has no scope', $1, quote_ident($2)
                USING ERRCODE = 'invalid_parameter_value',
                      HINT = 'Search without one, or drop the index and create it anew with a scope.';
        END IF;
        RETURN;
    END IF;
    IF scope IS NULL THEN
        RAISE EXCEPTION 'simsql: the simhash index on %(%) is searched within a scope, and none is given', $1, quote_ident($2)
            USING ERRCODE = 'invalid_parameter_value', HINT = how;
    ELSIF jsonb_typeof(scope) <> 'object' THEN
        RAISE EXCEPTION 'simsql: a scope is a JSON object, not %', scope
            USING ERRCODE = 'invalid_parameter_value', HINT = how;
    END IF;
    SELECT string_agg(CASE WHEN s.value IS NULL THEN 'no value of ' || quote_ident(s.wanted)
                           WHEN s.wanted IS NULL THEN 'no such column: ' || quote_ident(s.key)
                           ELSE quote_ident(s.key) || ' is ' || s.value::text END, ', ' ORDER BY s.wanted, s.key)
      INTO wrong
      FROM (jsonb_each(scope) AS e FULL JOIN unnest(scope_columns) AS c (wanted) ON c.wanted = e.key) AS s
     WHERE s.value IS NULL OR s.wanted IS NULL OR jsonb_typeof(s.value) NOT IN ('string', 'number', 'boolean');
    IF wrong IS NOT NULL THEN
        RAISE EXCEPTION 'simsql: that is no scope of the simhash index on %(%): %', $1, quote_ident($2), wrong
            USING ERRCODE = 'invalid_parameter_value', HINT = how || ', a string, a number or a boolean.';
    END IF;
END
$$;


-- The index that a statement is about, or an error that says what is wrong with it.

-- Raises unless the columns of an index, fingerprints and then the scope, still have the names that the index's functions
-- use: columns swapped by rename would be taken for one another in silence. The index's trigger knows its columns
-- by number, as the catalogue and pg_dump carry it along; the names are those of this moment, whatever
-- the snapshot.
CREATE FUNCTION simsql._check_columns(table_id regclass, index_id integer, column_names text[], writes boolean)
RETURNS void
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    found_names text[] := (
        SELECT ARRAY(SELECT (pg_identify_object_as_address('pg_class'::regclass, $1, n)).object_names[3]
                       FROM unnest(t.tgattr) AS n)
          FROM pg_trigger AS t
         WHERE t.tgrelid = $1 AND t.tgname = 'simsql_' || $2 || '_column');
    is_known constant boolean := found_names IS NOT NULL;
    wanted text;
    found_name text;
BEGIN
    IF NOT is_known THEN
        -- A column was dropped. Or the snapshot may be older than the index, which is no error for a writer.
        found_names := ARRAY(SELECT a.attname::text
                               FROM unnest($3) WITH ORDINALITY AS n (name, number)
                               LEFT JOIN pg_attribute AS a
                                 ON a.attrelid = $1 AND a.attname = n.name AND NOT a.attisdropped
                              ORDER BY n.number);
    END IF;
    IF found_names IS DISTINCT FROM $3 OR NOT (is_known OR writes) THEN
        SELECT n.wanted, n.found INTO wanted, found_name
          FROM unnest($3, found_names) AS n (wanted, found) WHERE n.wanted IS DISTINCT FROM n.found LIMIT 1;
        RAISE EXCEPTION 'simsql: column % of % was renamed or dropped after its simhash index was created',
                        quote_ident(coalesce(wanted, $3[1])), $1
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = CASE WHEN found_name IS NULL
                         THEN format('If it was dropped: SELECT simsql.drop_index(%L, %L);', $1, $3[1])
                         ELSE format('Rename it back, or let the index follow the column: '
                                     'SELECT * FROM simsql.repair(%L);', $1) END;
    END IF;
END
$$;

-- Raises unless an index fits its table, and the table has been written under its triggers ever since.
CREATE FUNCTION simsql._check_sound(index simsql.registry) RETURNS void
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    keys constant regclass := to_regclass(format('simsql.keys_%s_0', index.id));
BEGIN
    IF to_regclass(index.table_name) IS DISTINCT FROM index.table_id THEN
        RAISE EXCEPTION 'simsql: table % was called % when its simhash index was created', index.table_id, index.table_name
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = format('Rename it back, or let the index follow the table: SELECT * FROM simsql.repair(%L);',
                                index.table_id);
    END IF;
    PERFORM simsql._check_columns(index.table_id, index.id, index.column_name || index.scope_columns, writes => false);
    -- DISABLE TRIGGER ALL silences even triggers that are ENABLE ALWAYS, and ENABLE TRIGGER ALL, which
    -- follows it in a restore, leaves them otherwise than they were: so this tells what had happened.
    IF (SELECT count(*) FROM pg_trigger AS t
         WHERE t.tgrelid = index.table_id AND t.tgenabled = 'A'
           AND t.tgname IN ('simsql_' || index.id || '_insert', 'simsql_' || index.id || '_update')) < 2
    THEN
        RAISE EXCEPTION 'simsql: triggers of the simhash index on %(%) have been disabled or dropped', index.table_id,
                        quote_ident(index.column_name)
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = format('Rows written meanwhile are not in it: SELECT * FROM simsql.repair(%L);', index.table_id);
    END IF;
    IF keys IS NULL THEN
        RAISE EXCEPTION 'simsql: the simhash index on %(%) was dropped after this transaction took its snapshot',
                        index.table_id, quote_ident(index.column_name)
            USING ERRCODE = 'undefined_object', HINT = 'Begin a new transaction.';
    END IF;
    -- ALTER TABLE SET LOGGED leaves the keys unlogged: a crash would empty them, and keep the rows.
    IF (SELECT c.relpersistence FROM pg_class AS c WHERE c.oid = keys) = 'u'
       AND (SELECT c.relpersistence FROM pg_class AS c WHERE c.oid = index.table_id) <> 'u'
    THEN
        RAISE EXCEPTION 'simsql: table % was set logged after its simhash index was created', index.table_id
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = format('Let its keys be logged too: SELECT * FROM simsql.repair(%L);', index.table_id);
    END IF;
    -- Writes that go through a parent table fire the parent's triggers only.
    IF EXISTS (SELECT FROM pg_inherits WHERE inhrelid = index.table_id)
       OR EXISTS (SELECT FROM pg_inherits WHERE inhparent = index.table_id)
    THEN
        RAISE EXCEPTION 'simsql: table % takes part in inheritance or partitioning since its index was created',
                        index.table_id
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = format('Rows written through another table are not indexed: detach the table, then '
                                'SELECT * FROM simsql.repair(%L);', index.table_id);
    END IF;
END
$$;

-- The index of a column, as the caller's snapshot sees it, or an error that says what is wrong with it.
CREATE FUNCTION simsql._index(table_name regclass, column_name text) RETURNS simsql.registry
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    found_index simsql.registry;
    columns text[];
BEGIN
    BEGIN
        SELECT r.* INTO STRICT found_index
          FROM simsql.registry AS r
         WHERE r.table_id = $1 AND ($2 IS NULL OR r.column_name = $2);
    EXCEPTION
        WHEN no_data_found THEN
            RAISE EXCEPTION 'simsql: % has no simhash index%', $1,
                            coalesce(' on column ' || quote_ident($2), '')
                USING ERRCODE = 'undefined_object',
                      HINT = format('Create it with SELECT simsql.create_index(%L, %L). An index that was '
                                    'created after this transaction took its snapshot is not visible to it.',
                                    $1, coalesce($2, 'fingerprint'));
        WHEN too_many_rows THEN
            columns := ARRAY(SELECT r.column_name FROM simsql.registry AS r WHERE r.table_id = $1 ORDER BY r.id);
            RAISE EXCEPTION 'simsql: % has % simhash indexes', $1, cardinality(columns)
                USING ERRCODE = 'ambiguous_column',
                      HINT = format('Name the column: column_name => one of %s.', array_to_string(columns, ', '));
    END;
    PERFORM simsql._check_sound(found_index);
    IF NOT found_index.ready THEN
        RAISE EXCEPTION 'simsql: the simhash index on %(%) is still being built', $1, quote_ident(found_index.column_name)
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = format('Wait until its build has finished. If it was interrupted: %s', simsql._build_call(found_index));
    END IF;
    RETURN found_index;
END
$$;

-- The index of a column for a search within a scope, or an error that says what is wrong with either.
CREATE FUNCTION simsql._searched_index(table_name regclass, column_name text, scope jsonb) RETURNS simsql.registry
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    index constant simsql.registry := simsql._index($1, $2);
BEGIN
    PERFORM simsql._check_scope($1, index.column_name, index.scope_columns, $3);
    RETURN index;
END
$$;

-- How to go on with a build.
CREATE FUNCTION simsql._build_call(index simsql.registry) RETURNS text
LANGUAGE sql STABLE STRICT
AS $$
    SELECT format('CALL simsql.build(%L, %L, %s, %s, %s, %s, %L%s);', index.table_id, index.column_name, index.distance,
                  index.blocks, index.lead, index.inner_blocks, index.recipe,
                  CASE WHEN cardinality(index.scope_columns) > 0 THEN format(', %L', index.scope_columns) END)
$$;

-- The distance of a search: the one asked for, or the index's own.
CREATE FUNCTION simsql._distance(asked integer, of_index integer) RETURNS integer
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
AS $$
BEGIN
    IF asked < 0 OR asked > 64 THEN
        RAISE EXCEPTION 'simsql: a distance is a number of bits from 0 to 64, not %', asked
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    RETURN coalesce(asked, of_index);
END
$$;


-- The functions that create_index generates for the searches of an index, and their text.

-- The text of a search over an index. $2 is the distance; the fingerprint permuted for each table, the
-- flips of its prefix and the scope stand in the variables that _search_variables lists, or under the names given here.
-- The generated search function and explain_near both run exactly this text.
--   exact   one range per permutation: the prefix has to be equal
--   probes  one range per permutation and flip of its prefix
--   scan    all keys of the first permutation, or those of the scope
-- Keys may be stored twice and may outlive their rows: sort, keep one of each, and keep those that a
-- live row has.
CREATE FUNCTION simsql._search_statement(index simsql.registry, strategy text, variables text[] DEFAULT NULL)
RETURNS text
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    names constant text[] := coalesce(
        variables, ARRAY(SELECT v.name FROM simsql._search_variables(index, strategy) AS v ORDER BY v.number));
    tables constant integer := simsql._table_count(index.blocks, index.lead, index.inner_blocks);
    keys_in_scope text;
    rows_in_scope text;
    branches text;
BEGIN
    -- Names come last of all, those of the scope.
    SELECT coalesce(string_agg(format('k.%I = %s AND ', s.name, variable), '' ORDER BY s.number), ''),
           coalesce(string_agg(format(' AND t.%I = %s', s.column_name, variable), '' ORDER BY s.number), '')
      INTO keys_in_scope, rows_in_scope
      FROM simsql._scope_columns(index) AS s
     CROSS JOIN LATERAL CAST(names[cardinality(names) - cardinality(index.scope_columns) + s.number] AS text) AS variable;
    SELECT string_agg(
               format('SELECT bit_count((k.key # %1$s)::bit(64))::integer AS distance, %2$s AS fingerprint '
                      'FROM %3$s WHERE %5$s%4$sbit_count((k.key # %1$s)::bit(64)) <= $2',
                      center, simsql._unpermute('k.key', p.lead_mask),
                      CASE strategy WHEN 'probes' THEN
                          -- OFFSET 0 keeps the bounds bare columns: under row-level security nothing else may be
                          -- compared in an index condition, since operators such as & are not leakproof.
                          format('(SELECT (%1$s # (f << %2$s)) & %3$L::bigint AS low, '
                                 '(%1$s # (f << %2$s)) | %4$L::bigint AS high '
                                 'FROM unnest(%5$s) AS f OFFSET 0) AS p CROSS JOIN simsql.%6$I AS k',
                                 center, 64 - p.prefix, outside, inside,
                                 names[tables + p.number + 1], keys)
                      ELSE format('simsql.%I AS k', keys) END,
                      CASE strategy WHEN 'probes' THEN 'k.key >= p.low AND k.key <= p.high AND '
                                    WHEN 'exact' THEN format('k.key >= %1$s & %2$L::bigint AND '
                                                             'k.key <= %1$s | %3$L::bigint AND ',
                                                             center, outside, inside)
                      END, keys_in_scope),
               E'\n UNION ALL ' ORDER BY p.number)
      INTO branches
      FROM simsql._permutations(index.blocks, index.lead, index.inner_blocks) AS p
     CROSS JOIN LATERAL (
           SELECT format('keys_%s_%s', index.id, p.number) AS keys,
                  names[p.number + 1] AS center,
                  -1::bigint << (64 - p.prefix) AS outside,
                  ~(-1::bigint << (64 - p.prefix)) AS inside) AS expression
     WHERE strategy <> 'scan' OR p.number = 0;
    RETURN format(
        E'SELECT m.fingerprint, m.distance\n'
        '  FROM (SELECT DISTINCT c.distance, c.fingerprint FROM (\n %s\n) AS c) AS m\n'
        ' WHERE EXISTS (SELECT FROM ONLY %s AS t WHERE t.%I = m.fingerprint%s)\n'
        ' ORDER BY m.distance, m.fingerprint',
        branches, index.table_name, index.column_name, rows_in_scope);
END
$$;

-- simsql._radius for the distance $2, written out with the layout as constants.
CREATE FUNCTION simsql._radius_of_parameter(blocks integer, lead integer, inner_blocks integer, number integer) RETURNS text
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$
    SELECT CASE WHEN inner_blocks > 0 THEN format('(%1$s + ($2 - %1$s) / %2$s)', outer_radius, inner_blocks)
                WHEN lead > 1 THEN outer_radius
                -- Rounded down, also below 0.
                ELSE format('(($2 - %s) / %s - 1)', number - blocks, blocks)
           END
      FROM format('(%1$s * ($2 / %2$s) + greatest(0, %1$s - (%2$s - $2 %% %2$s)))', lead, blocks)
           AS f (outer_radius)
$$;

-- The variables of a search, keys first and the scope last: a name, a type, and the expression that gives the value, for
-- the fingerprint $1, the distance $2 and the scope $3. A table that need not be read at this distance has no key, and no
-- range of it is looked up.
CREATE FUNCTION simsql._search_variables(index simsql.registry, strategy text)
RETURNS TABLE (number integer, name text, type text, value text)
LANGUAGE sql STABLE
AS $$
    SELECT p.number, 'key_' || p.number, 'bigint',
           CASE WHEN simsql._radius(index.blocks, index.lead, index.inner_blocks, p.number, 0) < 0
                THEN format('CASE WHEN %s >= 0 THEN %s END', radius.text, permuted.text)
                ELSE permuted.text END
      FROM simsql._permutations(index.blocks, index.lead, index.inner_blocks) AS p
     CROSS JOIN LATERAL simsql._radius_of_parameter(index.blocks, index.lead, index.inner_blocks, p.number) AS radius (text)
     CROSS JOIN LATERAL simsql._permute('$1', p.lead_mask) AS permuted (text)
     WHERE strategy <> 'scan' OR p.number = 0
    UNION ALL
    -- Flips are written out where they are few, since a search at radius 1 takes about as long as computing them.
    SELECT p.number + simsql._table_count(index.blocks, index.lead, index.inner_blocks)::integer,
           'flips_' || p.number, 'bigint[]',
           format('CASE %1$s WHEN 0 THEN ''{0}'' WHEN 1 THEN %2$L::bigint[]%3$s ELSE simsql._flips(%4$s, %1$s) END',
                  radius.text, simsql._flips(p.prefix, 1),
                  CASE WHEN simsql._ways(p.prefix, 2) <= 600
                       THEN format(' WHEN 2 THEN %L::bigint[]', simsql._flips(p.prefix, 2)) END,
                  p.prefix)
      FROM simsql._permutations(index.blocks, index.lead, index.inner_blocks) AS p
     CROSS JOIN LATERAL simsql._radius_of_parameter(index.blocks, index.lead, index.inner_blocks, p.number) AS radius (text)
     WHERE strategy = 'probes'
    UNION ALL
    SELECT CASE strategy WHEN 'scan' THEN 0 WHEN 'exact' THEN t.tables - 1 ELSE 2 * t.tables - 1 END + s.number,
           s.name, s.type, format('($3 ->> %L)::%s', s.column_name, s.type)
      FROM simsql._scope_columns(index) AS s
     CROSS JOIN LATERAL CAST(simsql._table_count(index.blocks, index.lead, index.inner_blocks) AS integer) AS t (tables)
$$;

-- Two functions per index, with the layout and the names baked in. They run with the caller's
-- rights: the policy on the key tables and the table's own grants decide who may search. What a search
-- compares with is computed once, in variables: written into the statement it would be compiled at each of the
-- places where it stands, at every call.
-- A generic plan cannot know how narrow a range is; with the settings below it is a nested loop of
-- index scans whatever it estimates, and it is planned once per session. The scan runs inside the search
-- function, under its settings but for those that it takes back; a hash join would read the whole table of
-- the user for the few rows that are near. Within a scope it is an index-only scan like the others: a sequential one
-- would read the keys of all scopes.
CREATE FUNCTION simsql._search_functions(index simsql.registry)
RETURNS TABLE (name text, arguments text, head text, settings text[], body text)
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    scoped constant boolean := cardinality(index.scope_columns) > 0;
    -- A variable of the scope is called like the column of the keys that it is compared with.
    beginning constant text := CASE WHEN scoped THEN E'#variable_conflict use_variable\n' ELSE '' END || 'DECLARE';
    declared text := (SELECT string_agg(format('    %s constant %s := %s;', v.name, v.type, v.value), E'\n' ORDER BY v.number)
                        FROM simsql._search_variables(index, 'exact') AS v);
    flips text := (SELECT string_agg(format('    %s %s;', v.name, v.type), E'\n' ORDER BY v.number)
                     FROM simsql._search_variables(index, 'probes') AS v WHERE v.type = 'bigint[]');
    pays constant text := simsql._probing_pays(index, simsql._for_scope(index, ' AND k.%1$s = %1$s'));
    assigned text := (SELECT string_agg(format('    %s := %s;', v.name, v.value), E'\n' ORDER BY v.number)
                        FROM simsql._search_variables(index, 'probes') AS v WHERE v.type = 'bigint[]');
BEGIN
    arguments := CASE WHEN scoped THEN '(bigint, integer, jsonb)' ELSE '(bigint, integer)' END;
    head := 'RETURNS SETOF simsql.match LANGUAGE plpgsql STABLE ROWS 10';
    name := 'scan_' || index.id;
    settings := ARRAY['search_path=pg_catalog, pg_temp', 'enable_hashagg=on']
                || CASE WHEN NOT scoped THEN ARRAY['enable_seqscan=on'] END;
    body := format(E'%s\n%s\nBEGIN\nRETURN QUERY\n%s;\nEND', beginning,
                   (SELECT string_agg(format('    %s constant %s := %s;', v.name, v.type, v.value), E'\n' ORDER BY v.number)
                      FROM simsql._search_variables(index, 'scan') AS v),
                   simsql._search_statement(index, 'scan'));
    RETURN NEXT;
    name := 'search_' || index.id;
    settings := ARRAY['search_path=pg_catalog, pg_temp', 'plan_cache_mode=force_generic_plan', 'jit=off',
                      'enable_seqscan=off', 'enable_bitmapscan=off', 'enable_hashagg=off', 'enable_hashjoin=off',
                      'enable_mergejoin=off', 'enable_material=off', 'max_parallel_workers_per_gather=0'];
    body := format(E'%9$s\n%1$s\n%2$s\n%11$sBEGIN\n%12$s'
                   'IF NOT coalesce(%3$s, false) THEN\nRETURN QUERY SELECT * FROM simsql.%4$I($1, $2%10$s);\n'
                   'ELSIF $2 <= %5$s THEN\nRETURN QUERY\n%6$s;\n'
                   'ELSE\n%7$s\nRETURN QUERY\n%8$s;\nEND IF;\nEND',
                   declared, flips,
                   CASE WHEN scoped THEN 'probing' ELSE pays END,
                   'scan_' || index.id,
                   simsql._exact_up_to(index),
                   simsql._search_statement(index, 'exact'),
                   assigned,
                   simsql._search_statement(index, 'probes'),
                   beginning,
                   CASE WHEN scoped THEN ', $3' END,
                   CASE WHEN scoped THEN E'    probing boolean := true;\n' END,
                   -- A question to a table takes longer than one to variables.
                   CASE WHEN scoped THEN format(E'IF $2 > %s THEN\n    probing := %s;\nEND IF;\n',
                                                simsql._probed_up_to(index), pays) END);
    RETURN NEXT;
END
$$;

-- The greatest distance for which no prefix is flipped.
CREATE FUNCTION simsql._exact_up_to(index simsql.registry) RETURNS integer
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$
    SELECT max(d) FROM generate_series(0, 64) AS d
     WHERE simsql._radius(index.blocks, index.lead, index.inner_blocks, 0, d) <= 0
$$;

-- The greatest distance for which probing pays from at most a thousand rows on.
CREATE FUNCTION simsql._probed_up_to(index simsql.registry) RETURNS integer
LANGUAGE sql STABLE
AS $$
    SELECT min(d) - 1
      FROM simsql._scan_below(index.blocks, index.lead, index.inner_blocks) AS scan_below
     CROSS JOIN generate_series(0, 64) AS d
     WHERE coalesce(scan_below[d + 1] > 1000, true)
$$;

-- The condition under which probing for the distance $2 is expected to be cheaper than a scan. Where it is so from a
-- thousand rows on, the size is not asked for. A key takes 36 bytes of its table. What a scope takes, only counting
-- tells: it stops where probing begins to pay, so it costs less than the scan that it saves, and nothing that is
-- taken for larger or smaller than it is, by old statistics or uneven keys, is ever read in vain.
CREATE FUNCTION simsql._probing_pays(index simsql.registry, in_scope text) RETURNS text
LANGUAGE sql STABLE
AS $$
    SELECT format(CASE WHEN cardinality(index.scope_columns) = 0
                       THEN '($2 <= %s OR pg_relation_size(%L) / 36 >= (%L::bigint[])[$2 + 1])'
                       ELSE '($2 <= %1$s OR (%3$L::bigint[])[$2 + 1] IS NOT NULL AND '
                            'EXISTS (SELECT FROM %2$s AS k WHERE true%4$s OFFSET (%3$L::bigint[])[$2 + 1] - 1))' END,
                  simsql._probed_up_to(index),
                  format('simsql.keys_%s_0', index.id), scan_below, in_scope)
      FROM simsql._scan_below(index.blocks, index.lead, index.inner_blocks) AS scan_below
$$;


-- Searching: near, near_rows and explain_near.

-- Everything that _index checks is looked at here in a fifth of the time; where it is not as it should be,
-- _index says what is wrong. (Publishable is a table that is logged.)
CREATE FUNCTION simsql.near(
    table_name regclass, fingerprint bigint, distance integer DEFAULT NULL, column_name text DEFAULT NULL,
    scope jsonb DEFAULT NULL)
RETURNS SETOF simsql.match
LANGUAGE plpgsql STABLE ROWS 10
AS $$
DECLARE
    index_id integer;
    of_index integer;
    indexed_table text;
    indexed_column text;
    scope_columns text[];
    is_ready boolean;
    trigger_names text[];
    triggers integer;
    attribute integer;
    attributes int2vector;
    has_children boolean;
    keys regclass;
    in_order boolean;
BEGIN
    BEGIN
        SELECT r.id, r.distance, r.table_name, r.column_name, r.scope_columns, r.ready
          INTO STRICT index_id, of_index, indexed_table, indexed_column, scope_columns, is_ready
          FROM simsql.registry AS r
         WHERE r.table_id = $1 AND ($4 IS NULL OR r.column_name = $4);
    EXCEPTION
        WHEN no_data_found OR too_many_rows THEN PERFORM simsql._index($1, $4);
    END;
    trigger_names := ARRAY['simsql_' || index_id || '_insert', 'simsql_' || index_id || '_update',
                           'simsql_' || index_id || '_column', 'simsql_' || index_id || '_no_parent'];
    -- Those with a condition never run, enabled or not (see _triggers). Compared as text, the names are no condition for
    -- the catalogue's index: four descents of it take longer than a look at all triggers of the table.
    SELECT count(*) FILTER (WHERE t.tgenabled = 'A' OR t.tgqual IS NOT NULL), min(t.tgattr[0])
      INTO triggers, attribute
      FROM pg_trigger AS t
     WHERE t.tgrelid = $1 AND t.tgname::text = ANY (trigger_names);
    SELECT c.relhassubclass INTO has_children FROM pg_class AS c WHERE c.oid = $1;
    keys := to_regclass('simsql.keys_' || index_id || '_0');
    IF (is_ready AND triggers = 4 AND NOT has_children AND keys IS NOT NULL
        AND to_regclass(indexed_table) = $1
        AND (pg_identify_object_as_address('pg_class'::regclass, $1, attribute)).object_names[3] = indexed_column
        AND (pg_relation_is_publishable(keys) OR NOT pg_relation_is_publishable($1))) IS NOT TRUE
    THEN
        PERFORM simsql._index($1, $4);
    END IF;
    IF $5 IS NOT NULL OR scope_columns <> '{}' THEN
        SELECT t.tgattr INTO attributes FROM pg_trigger AS t WHERE t.tgrelid = $1 AND t.tgname = trigger_names[3];
        in_order := jsonb_typeof($5) = 'object' AND $5 - scope_columns = '{}' AND scope_columns <> '{}';
        FOR place IN 1 .. cardinality(scope_columns) LOOP
            in_order := in_order AND jsonb_typeof($5 -> scope_columns[place]) IN ('string', 'number', 'boolean')
                AND (pg_identify_object_as_address('pg_class'::regclass, $1, attributes[place])).object_names[3]
                    = scope_columns[place];
        END LOOP;
        IF in_order IS NOT TRUE THEN
            PERFORM simsql._searched_index($1, $4, $5);
        END IF;
        RETURN QUERY EXECUTE 'SELECT fingerprint, distance FROM simsql.search_' || index_id || '($1, $2, $3)'
                       USING $2, CASE WHEN $3 BETWEEN 0 AND 64 THEN $3 ELSE simsql._distance($3, of_index) END, $5;
        RETURN;
    END IF;
    RETURN QUERY EXECUTE 'SELECT fingerprint, distance FROM simsql.search_' || index_id || '($1, $2)'
                   USING $2, CASE WHEN $3 BETWEEN 0 AND 64 THEN $3 ELSE simsql._distance($3, of_index) END;
END
$$;

COMMENT ON FUNCTION simsql.near(regclass, bigint, integer, text, jsonb) IS
    'every fingerprint within the distance that a row of the table, or of the scope, has; once each, nearest first';

-- The rows of the table, called t, that a search $1, $2 and $3 finds within this scope: what of them to list, nearest first.
CREATE FUNCTION simsql._rows_statement(index simsql.registry, scope jsonb, list text) RETURNS text
LANGUAGE sql STABLE
AS $$
    SELECT format('SELECT %s FROM simsql.search_%s($1, $2%s) AS m JOIN ONLY %s AS t ON t.%I = m.fingerprint%s '
                  'ORDER BY m.distance, m.fingerprint',
                  list, index.id, CASE WHEN cardinality(index.scope_columns) > 0 THEN ', $3' END, index.table_name,
                  index.column_name, simsql._in_scope(index, scope, 't'))
$$;

CREATE FUNCTION simsql.near_rows(
    row_type anyelement, fingerprint bigint, distance integer DEFAULT NULL, column_name text DEFAULT NULL,
    scope jsonb DEFAULT NULL)
RETURNS SETOF anyelement
LANGUAGE plpgsql STABLE ROWS 10
AS $$
DECLARE
    table_id constant regclass := (
        SELECT c.oid FROM pg_type AS y JOIN pg_class AS c ON c.oid = y.typrelid
         WHERE y.oid = pg_typeof($1) AND c.relkind <> 'c');
    index simsql.registry;
BEGIN
    IF table_id IS NULL THEN
        RAISE EXCEPTION 'simsql.near_rows: % is not the row type of a table', pg_typeof($1)
            USING ERRCODE = 'wrong_object_type', HINT = 'Pass NULL::article to search the table article.';
    END IF;
    index := simsql._searched_index(table_id, $4, $5);
    RETURN QUERY EXECUTE simsql._rows_statement(index, $5, 't.*') USING $2, simsql._distance($3, index.distance), $5;
END
$$;

COMMENT ON FUNCTION simsql.near_rows(anyelement, bigint, integer, text, jsonb) IS
    'rows of a table whose fingerprint is within the distance, nearest first: simsql.near_rows(NULL::article, ...)';

-- The same for a caller who has no row type, with the distances: table, fingerprint, distance, column and scope.
CREATE FUNCTION simsql._near_documents(regclass, bigint, integer, text, jsonb)
RETURNS TABLE (fingerprint bigint, distance integer, document jsonb)
LANGUAGE plpgsql STABLE ROWS 10
AS $$
DECLARE
    index constant simsql.registry := simsql._searched_index($1, $4, $5);
BEGIN
    RETURN QUERY EXECUTE simsql._rows_statement(index, $5, 'm.fingerprint, m.distance, to_jsonb(t)')
                   USING $2, simsql._distance($3, index.distance), $5;
END
$$;

CREATE FUNCTION simsql.explain_near(
    table_name regclass, fingerprint bigint, distance integer DEFAULT NULL, column_name text DEFAULT NULL,
    scope jsonb DEFAULT NULL)
RETURNS SETOF text
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    index constant simsql.registry := simsql._searched_index($1, $4, $5);
    asked constant integer := simsql._distance($3, index.distance);
    strategy text;
    settings text[];
    statement text;
    types text[];
    expressions text[];
    line text;
BEGIN
    EXECUTE format('SELECT CASE WHEN NOT coalesce(%s, false) THEN ''scan'' WHEN $2 <= %s THEN ''exact'' ELSE ''probes'' END',
                   simsql._probing_pays(index, simsql._in_scope(index, $5, 'k')), simsql._exact_up_to(index))
       INTO strategy USING $2, asked;
    RETURN NEXT format('strategy: %s, radius: %s', strategy,
                       simsql._radius(index.blocks, index.lead, index.inner_blocks, 0, asked));
    -- What are variables in the function are parameters here.
    SELECT array_agg(v.type ORDER BY v.number),
           -- The name of a scope column may look like a parameter: ($3 ->> 'a$1')::text.
           array_agg(CASE WHEN v.name LIKE 'scope%' THEN overlay(v.value PLACING format('%L::jsonb', $5) FROM 2 FOR 2)
                          ELSE replace(replace(v.value, '$1', quote_literal($2) || '::bigint'), '$2', asked::text) END
                     ORDER BY v.number),
           simsql._search_statement(index, strategy, array_agg('$' || v.number + 3 ORDER BY v.number))
      INTO types, expressions, statement
      FROM simsql._search_variables(index, strategy) AS v;
    -- The settings under which this text runs, for this call only; the later ones win.
    settings := ARRAY(SELECT unnest(p.proconfig) FROM pg_proc AS p
                       WHERE p.pronamespace = 'simsql'::regnamespace
                         AND (p.proname = 'search_' || index.id
                              OR strategy = 'scan' AND p.proname = 'scan_' || index.id)
                       ORDER BY p.proname LIKE 'scan%');
    -- An error leaves a prepared statement behind: this one's, the last time.
    IF EXISTS (SELECT FROM pg_prepared_statements AS s WHERE s.name = 'simsql_explain') THEN
        DEALLOCATE simsql_explain;
    END IF;
    BEGIN
        PERFORM set_config(split_part(s, '=', 1), split_part(s, '=', 2), true) FROM unnest(settings) AS s;
        EXECUTE format('PREPARE simsql_explain (bigint, integer, %s) AS %s', array_to_string(types, ', '), statement);
        FOR line IN EXECUTE format('EXPLAIN (ANALYZE, BUFFERS) EXECUTE simsql_explain(%L, %L, %s)', $2, asked,
                                   array_to_string(expressions, ', ')) LOOP
            RETURN NEXT line;
        END LOOP;
        DEALLOCATE simsql_explain;
        -- Leaving the block through an error undoes its settings.
        RAISE EXCEPTION USING ERRCODE = 'SIM00';
    EXCEPTION
        WHEN SQLSTATE 'SIM00' THEN NULL;
    END;
END
$$;

COMMENT ON FUNCTION simsql.explain_near(regclass, bigint, integer, text, jsonb) IS
    'EXPLAIN ANALYZE of exactly what simsql.near runs for the same arguments';


-- create_index and drop_index: key tables, triggers and search functions of one column.
--
-- All objects are named by the registry's id: the name of the user's table may be 63 bytes long, may
-- stand in two schemas and may change. No function here depends on the user's table or its row type,
-- so DROP TABLE stays possible.

-- Raises unless this column of a table can be indexed exactly, within this scope.
CREATE FUNCTION simsql._check_indexable(table_name regclass, column_name text, scope text[], caller text) RETURNS void
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    class pg_class;
    attribute pg_attribute;
    reason text;
BEGIN
    SELECT c.* INTO class FROM pg_class AS c WHERE c.oid = $1;
    reason := CASE
        WHEN class.relkind = 'p' THEN 'is partitioned: rows written straight into a partition would be missed'
        WHEN class.relkind = 'f' THEN 'is a foreign table: rows written on the other server would be missed'
        WHEN class.relkind IN ('v', 'm') THEN 'is a view: index the table below it'
        WHEN class.relkind <> 'r' THEN 'is not a table'
        WHEN class.relpersistence = 't' THEN 'is temporary: no other session could search it'
        WHEN class.relispartition THEN 'is a partition: rows written through its parent would be missed'
        WHEN EXISTS (SELECT FROM pg_inherits WHERE inhrelid = $1 OR inhparent = $1)
        THEN 'takes part in inheritance: rows written through another table would be missed'
        WHEN class.relnamespace = 'simsql'::regnamespace THEN 'belongs to simsql itself'
    END;
    IF reason IS NOT NULL THEN
        RAISE EXCEPTION 'simsql.%: % %', caller, $1, reason
            USING ERRCODE = 'feature_not_supported', HINT = 'An ordinary table can be indexed.';
    END IF;
    SELECT a.* INTO attribute FROM pg_attribute AS a
     WHERE a.attrelid = $1 AND a.attname = $2 AND a.attnum > 0 AND NOT a.attisdropped;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'simsql.%: % has no column %', caller, $1, quote_ident($2)
            USING ERRCODE = 'undefined_column',
                  HINT = format('Add it: ALTER TABLE %s ADD COLUMN %I bigint;', $1, $2);
    END IF;
    IF attribute.atttypid <> 'bigint'::regtype THEN
        RAISE EXCEPTION 'simsql.%: column % of % is %, not bigint', caller, quote_ident($2), $1,
                        format_type(attribute.atttypid, attribute.atttypmod)
            USING ERRCODE = 'datatype_mismatch',
                  HINT = 'A fingerprint is kept as bigint with the same 64 bits: simsql.fp converts an unsigned decimal.';
    END IF;
    IF attribute.attgenerated = 'v' THEN
        RAISE EXCEPTION 'simsql.%: column % of % is a virtual generated column', caller, quote_ident($2), $1
            USING ERRCODE = 'feature_not_supported', HINT = 'Make it a stored column: it has to have a B-tree.';
    END IF;
    PERFORM simsql._check_scope_columns($1, $2, scope, caller);
    IF NOT pg_has_role(class.relowner, 'USAGE') THEN
        RAISE EXCEPTION 'simsql.%: must be owner of table %', caller, $1
            USING ERRCODE = 'insufficient_privilege';
    END IF;
    IF NOT (has_schema_privilege('simsql', 'CREATE') AND has_table_privilege('simsql.registry', 'INSERT')
            AND has_table_privilege('simsql.registry', 'UPDATE') AND has_table_privilege('simsql.registry', 'DELETE'))
    THEN
        RAISE EXCEPTION 'simsql.%: % may not create objects in schema simsql', caller, current_user
            USING ERRCODE = 'insufficient_privilege',
                  HINT = format('To a role that you trust as you trust its owner: GRANT CREATE ON SCHEMA simsql TO %1$I; '
                                'GRANT INSERT, UPDATE, DELETE ON simsql.registry TO %1$I;', current_user);
    END IF;
    IF row_security_active($1) THEN
        RAISE EXCEPTION 'simsql.%: row-level security hides rows of % from %', caller, $1, current_user
            USING ERRCODE = 'insufficient_privilege',
                  HINT = 'Call it as a role that sees all rows.';
    END IF;
END
$$;

-- An older snapshot than a lock misses rows that were committed in between. Under read committed every
-- statement has a new one.
CREATE FUNCTION simsql._check_read_committed(caller text) RETURNS void
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'simsql.%: the transaction is %, and has to be read committed', caller,
                        current_setting('transaction_isolation')
            USING ERRCODE = 'active_sql_transaction',
                  HINT = 'Begin it with BEGIN ISOLATION LEVEL READ COMMITTED.';
    END IF;
END
$$;

-- Raises unless a design can be laid out; without blocks it is chosen.
CREATE FUNCTION simsql._check_design(blocks integer, lead integer, inner_blocks integer, caller text) RETURNS void
LANGUAGE plpgsql IMMUTABLE
AS $$
DECLARE
    front constant integer := coalesce(lead, 1);
    inner_count constant integer := coalesce(inner_blocks, 0);
    tables numeric;
BEGIN
    IF blocks IS NULL AND (lead IS NOT NULL OR inner_blocks IS NOT NULL) THEN
        RAISE EXCEPTION 'simsql.%: a lead or inner blocks without blocks', caller
            USING ERRCODE = 'invalid_parameter_value',
                  HINT = 'Name the blocks too, or none of them: then the design is chosen by the number of rows.';
    END IF;
    IF NOT (blocks BETWEEN 2 AND 64 AND front BETWEEN 1 AND blocks - 1) THEN
        RAISE EXCEPTION 'simsql.%: no layout has % blocks with % in the lead', caller, blocks, front
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Take 2 to 64 blocks, and a lead of at least 1 and less than the blocks.';
    END IF;
    -- The first lead blocks are the largest: the fewest bits that are left.
    IF inner_count <> 0 AND NOT inner_count BETWEEN 2 AND 64 - front * (64 / blocks) - least(front, 64 % blocks) THEN
        RAISE EXCEPTION 'simsql.%: the bits behind % of % blocks cannot be split into % inner blocks', caller, front, blocks, inner_count
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Take 2 inner blocks or more, at most one for each bit, or 0 for none.';
    END IF;
    tables := simsql._table_count(blocks, front, inner_count);
    IF tables > 128 THEN
        RAISE EXCEPTION 'simsql.%: % blocks with % in the lead and % inner blocks need % tables', caller, blocks, front,
                        inner_count, tables
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Take a layout of at most 128 tables.';
    END IF;
END
$$;

-- One table per permutation: permuted keys, with the scope before them, and nothing else, so that any primary key
-- works and deleting a document touches nothing.
-- Of a table that was not analyzed yet the planner expects few distinct fingerprints, and would hash them all.
CREATE FUNCTION simsql._create_keys(index simsql.registry, filled boolean) RETURNS void
LANGUAGE plpgsql
SET enable_hashagg = off
AS $$
DECLARE
    permutation record;
    keys text;
    scope constant text := coalesce(
        (SELECT string_agg(format('t.%I::%s AS scope_%s, ', s.name, format_type(simsql._scope_type(index.table_id, s.name), -1),
                                  s.number), '' ORDER BY s.number)
           FROM unnest(index.scope_columns) WITH ORDINALITY AS s (name, number)), '');
    unlogged constant text := CASE (SELECT relpersistence FROM pg_class WHERE oid = index.table_id)
                                   WHEN 'u' THEN 'UNLOGGED' ELSE '' END;
    work_mem constant text := current_setting('work_mem');
BEGIN
    -- This sorts as CREATE INDEX does, with the memory for it.
    IF pg_size_bytes(work_mem) < pg_size_bytes(current_setting('maintenance_work_mem')) THEN
        PERFORM set_config('work_mem', current_setting('maintenance_work_mem'), true);
    END IF;
    FOR permutation IN SELECT * FROM simsql._permutations(index.blocks, index.lead, index.inner_blocks) LOOP
        keys := format('simsql.keys_%s_%s', index.id, permutation.number);
        -- Created with its rows, a table is filled a fifth faster than by INSERT.
        EXECUTE format('CREATE %s TABLE %s AS SELECT DISTINCT %s%s AS key FROM ONLY %s AS t WHERE t.%I IS NOT NULL%s '
                       'ORDER BY %s %s',
                       unlogged, keys, scope, simsql._permute(format('t.%I', index.column_name), permutation.lead_mask),
                       index.table_name, index.column_name, simsql._for_scope(index, ' AND t.%2$I IS NOT NULL'),
                       simsql._name_list(simsql._key_columns(index)), CASE WHEN NOT filled THEN 'WITH NO DATA' END);
        EXECUTE format('ALTER TABLE %s %s ALTER key SET NOT NULL', keys,
                       simsql._for_scope(index, 'ALTER %1$s SET NOT NULL, '));
        EXECUTE format('COMMENT ON TABLE %s IS %L', keys,
                       format('keys of the simhash index on %s(%I), permutation %s, lead bits %s',
                              index.table_name, index.column_name, permutation.number,
                              to_hex(permutation.lead_mask)));
        -- The B-tree comes after a sorted fill: a quarter faster, and packed.
        EXECUTE format('CREATE INDEX ON %s (%s)', keys, simsql._name_list(simsql._key_columns(index)));
        -- Equal keys are allowed, so there is no unique index to identify a row by.
        EXECUTE format('ALTER TABLE %s REPLICA IDENTITY FULL', keys);
        PERFORM simsql._guard_keys(keys, index);
    END LOOP;
    PERFORM set_config('work_mem', work_mem, true);
END
$$;

-- Who may read the column, and those of the scope, may read its keys, and nobody else; asked for the role that
-- searches, at the time of the search, and by OID: another table may get the name. The subquery makes it one question
-- per scan.
CREATE FUNCTION simsql._guard_keys(keys text, index simsql.registry) RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY', keys);
    EXECUTE format('CREATE POLICY readers ON %s FOR SELECT USING ((SELECT has_column_privilege(r.table_id, '
                   'r.column_name, ''SELECT'')%s FROM simsql.registry AS r WHERE r.id = %s))', keys,
                   CASE WHEN cardinality(index.scope_columns) > 0
                        THEN ' AND (SELECT bool_and(has_column_privilege(r.table_id, s, ''SELECT'')) '
                             'FROM unnest(r.scope_columns) AS s)' END,
                   index.id);
    EXECUTE format('GRANT SELECT ON %s TO PUBLIC', keys);
END
$$;

-- Writers always add, and never look whether a key is there. The trigger functions have the layout
-- baked in and read no table of simsql: a writer with an older snapshot would not see the registry's
-- row, and add nothing. They run with the rights of the index's owner, so INSERT on the user's table
-- is all that a writer needs, and ENABLE ALWAYS, so that a restore or a replica's apply loses nothing.
-- Sorted keys go into a B-tree in two thirds of the time where there are many, and one key needs no sort.
CREATE FUNCTION simsql._trigger_functions(index simsql.registry)
RETURNS TABLE (name text, arguments text, head text, settings text[], body text)
LANGUAGE sql STABLE
AS $$
    SELECT format('add_on_%s_%s', e.event, index.id), '()', 'RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER',
           ARRAY['search_path=pg_catalog, pg_temp'],
           format(E'%sBEGIN\n    PERFORM simsql._check_columns(TG_RELID::regclass, %s, %L::text[], writes => true);\n%s\n    RETURN NULL;\nEND',
                  e.declared, index.id, index.column_name || index.scope_columns,
                  (SELECT string_agg(format('    INSERT INTO simsql.keys_%s_%s SELECT %s%s FROM (%s) AS f ORDER BY %s;', index.id,
                                            p.number, simsql._for_scope(index, 'f.%1$s, '), simsql._permute('f.fp', p.lead_mask),
                                            format(e.source, index.column_name, simsql._for_scope(index, 'n.%2$I AS %1$s, '),
                                                   simsql._for_scope(index, ' AND n.%2$I IS NOT NULL'),
                                                   simsql._for_scope(index, 'o.%2$I, ')),
                                            (SELECT string_agg(place::text, ', ' ORDER BY place)
                                               FROM generate_series(1, cardinality(index.scope_columns) + 1) AS place)),
                                     E'\n' ORDER BY p.number)
                     FROM simsql._permutations(index.blocks, index.lead, index.inner_blocks) AS p))
      FROM (VALUES
           ('insert', '', 'SELECT DISTINCT %2$sn.%1$I AS fp FROM new_rows AS n WHERE n.%1$I IS NOT NULL%3$s'),
           -- An update of other columns adds no key. Old rows of inheritance children have none here.
           ('update', E'<<simsql>>\nDECLARE\n'
                      '    alone constant boolean := NOT relhassubclass FROM pg_class WHERE oid = TG_RELID;\n',
            'SELECT %2$sn.%1$I AS fp FROM new_rows AS n WHERE n.%1$I IS NOT NULL%3$s '
            'EXCEPT SELECT %4$so.%1$I FROM old_rows AS o WHERE simsql.alone')) AS e (event, declared, source)
$$;

-- All functions of an index.
CREATE FUNCTION simsql._functions(index simsql.registry)
RETURNS TABLE (name text, arguments text, head text, settings text[], body text)
LANGUAGE sql STABLE
AS $$
    SELECT * FROM simsql._search_functions(index)
    UNION ALL
    SELECT * FROM simsql._trigger_functions(index)
$$;

CREATE FUNCTION simsql._create_functions(index simsql.registry) RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    function record;
BEGIN
    FOR function IN SELECT * FROM simsql._functions(index) LOOP
        EXECUTE format('CREATE OR REPLACE FUNCTION simsql.%I%s %s %s AS %L', function.name, function.arguments, function.head,
                       (SELECT string_agg('SET ' || s, ' ') FROM unnest(function.settings) AS s), function.body);
        IF function.arguments = '()' THEN
            EXECUTE format('REVOKE ALL ON FUNCTION simsql.%I() FROM PUBLIC', function.name);
        END IF;
    END LOOP;
END
$$;

-- The triggers of an index, as pg_get_triggerdef tells them, and which of them are ENABLE ALWAYS.
--
-- Two of them never run; the catalogue says through them what a name cannot. The first knows the columns,
-- that of the fingerprints and then those of the scope, as the catalogue does, whatever they are called (see _check_columns),
-- and makes PostgreSQL refuse ALTER COLUMN TYPE, which rewrites values without firing triggers. With the second, PostgreSQL
-- refuses to make the table a partition or an inheritance child, whose rows come through a parent.
CREATE FUNCTION simsql._triggers(index simsql.registry) RETURNS TABLE (name text, definition text, always boolean)
LANGUAGE sql STABLE
AS $$
    SELECT format('simsql_%s_%s', index.id, t.suffix),
           format('CREATE TRIGGER simsql_%1$s_%2$s ' || t.event || ' EXECUTE FUNCTION simsql.add_on_%3$s_%1$s()',
                  index.id, t.suffix, t.function, index.table_name,
                  simsql._name_list(index.column_name || index.scope_columns)),
           t.always
      FROM (VALUES
           ('insert', 'insert', true, 'AFTER INSERT ON %4$s REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT'),
           ('update', 'update', true,
            'AFTER UPDATE ON %4$s REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT'),
           ('column', 'update', false, 'AFTER UPDATE OF %5$s ON %4$s FOR EACH STATEMENT WHEN (false)'),
           ('no_parent', 'insert', false,
            'AFTER INSERT ON %4$s REFERENCING NEW TABLE AS new_rows FOR EACH ROW WHEN (false)'))
           AS t (suffix, function, always, event)
$$;

CREATE FUNCTION simsql._create_triggers(index simsql.registry) RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    trigger record;
BEGIN
    FOR trigger IN SELECT * FROM simsql._triggers(index) LOOP
        EXECUTE overlay(trigger.definition PLACING 'CREATE OR REPLACE' FROM 1 FOR length('CREATE'));
        IF trigger.always THEN
            EXECUTE format('ALTER TABLE %s ENABLE ALWAYS TRIGGER %I', index.table_name, trigger.name);
        END IF;
    END LOOP;
END
$$;

-- The B-trees that lead from values of these columns, in this order, to all rows with them; a valid one may be used.
CREATE FUNCTION simsql._btrees(table_id regclass, column_names text[]) RETURNS TABLE (index regclass, valid boolean)
LANGUAGE sql STABLE
AS $$
    SELECT i.indexrelid::regclass, i.indisvalid
      FROM pg_index AS i
      JOIN pg_class AS c ON c.oid = i.indexrelid
      JOIN pg_am AS m ON m.oid = c.relam
     WHERE i.indrelid = table_id AND m.amname = 'btree' AND i.indpred IS NULL AND i.indnkeyatts >= cardinality(column_names)
       AND column_names = ARRAY(SELECT a.attname::text
                                  FROM unnest(i.indkey, i.indcollation) WITH ORDINALITY AS k (attnum, collation_id, place)
                                  JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
                                                        AND a.attcollation = k.collation_id
                                 WHERE k.place <= cardinality(column_names)
                                 ORDER BY k.place)
$$;

CREATE FUNCTION simsql._check_btree(table_id regclass, column_names text[], caller text) RETURNS void
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM simsql._btrees($1, $2) AS b WHERE b.valid) THEN
        RAISE EXCEPTION 'simsql.%: % of % no B-tree', caller,
                        CASE cardinality($2) WHEN 1 THEN 'column ' ELSE 'columns ' END || simsql._name_list($2),
                        $1::text || CASE cardinality($2) WHEN 1 THEN ' has' ELSE ' have' END
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = coalesce((SELECT format('An attempt to create it has failed: REINDEX INDEX CONCURRENTLY %s;', b.index)
                                     FROM simsql._btrees($1, $2) AS b LIMIT 1),
                                  format('CREATE INDEX CONCURRENTLY ON %s (%s);', $1, simsql._name_list($2)));
    END IF;
END
$$;

-- Raises unless these arguments make an index.
CREATE FUNCTION simsql._check_new(
    table_name regclass, column_name text, distance integer, blocks integer, lead integer, inner_blocks integer, scope text[],
    caller text)
RETURNS void
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    IF $1 IS NULL OR $2 IS NULL OR simsql._distance($3, NULL) IS NULL THEN
        RAISE EXCEPTION 'simsql.%: the table, the column and the distance have to be named', caller
            USING ERRCODE = 'null_value_not_allowed',
                  HINT = format('As in %s simsql.%s(''article'', ''fingerprint'', distance => 3);',
                                CASE caller WHEN 'build' THEN 'CALL' ELSE 'SELECT' END, caller);
    END IF;
    PERFORM simsql._check_design(blocks, lead, inner_blocks, caller);
    PERFORM simsql._check_read_committed(caller);
    PERFORM simsql._check_indexable($1, $2, scope, caller);
END
$$;

-- Enters an index into the registry, under a lock on its table that is kept. Writers wait, as for CREATE INDEX;
-- all that follows reads with a later snapshot than this lock.
CREATE FUNCTION simsql._register(
    table_name regclass, column_name text, distance integer, blocks integer, lead integer, inner_blocks integer,
    recipe text, scope text[], online boolean)
RETURNS simsql.registry
LANGUAGE plpgsql
AS $$
DECLARE
    index simsql.registry;
    caller constant text := CASE WHEN online THEN 'build' ELSE 'create_index' END;
    rows bigint;
BEGIN
    scope := coalesce(scope, '{}');
    PERFORM simsql._check_new($1, $2, $3, $4, $5, $6, scope, caller);
    IF blocks IS NULL THEN
        -- A search meets the keys of one scope: the largest one counts.
        EXECUTE format('SELECT coalesce(max(rows), 0) FROM (SELECT count(t.%I) AS rows FROM ONLY %s AS t%s) AS s', $2, $1,
                       CASE WHEN cardinality(scope) > 0 THEN ' GROUP BY ' || simsql._name_list(scope) END) INTO rows;
        SELECT d.blocks, d.lead INTO blocks, lead FROM simsql._design(rows, $3) AS d;
    END IF;
    EXECUTE format('LOCK TABLE ONLY %s IN SHARE ROW EXCLUSIVE MODE', $1);
    PERFORM simsql._check_indexable($1, $2, scope, caller);
    IF online THEN
        PERFORM simsql._check_btree($1, scope || $2, caller);
    END IF;
    SELECT r.* INTO index FROM simsql.registry AS r WHERE r.table_id = $1 AND r.column_name = $2;
    IF FOUND THEN
        RAISE EXCEPTION 'simsql.%: column % of % has % already', caller, quote_ident($2), $1,
                        CASE WHEN index.ready THEN 'a simhash index' ELSE 'an unfinished simhash index' END
            USING ERRCODE = 'duplicate_object',
                  HINT = CASE WHEN index.ready THEN format('To lay it out anew, drop it first: SELECT simsql.drop_index(%L, %L);', $1, $2)
                         ELSE format('Go on with its build: %s Or drop it first: SELECT simsql.drop_index(%L, %L);',
                                     simsql._build_call(index), $1, $2) END;
    END IF;
    PERFORM simsql._drop_orphans();
    INSERT INTO simsql.registry AS r (table_id, table_name, column_name, distance, blocks, lead, inner_blocks, recipe,
                                      scope_columns, ready)
    SELECT $1, format('%I.%I', n.nspname, c.relname), $2, $3, $4, coalesce($5, 1), coalesce($6, 0), $7, $8, NOT online
      FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
     WHERE c.oid = $1
    RETURNING r.* INTO index;
    RETURN index;
END
$$;

CREATE FUNCTION simsql.create_index(
    table_name regclass, column_name text, distance integer DEFAULT 3,
    blocks integer DEFAULT NULL, lead integer DEFAULT NULL, inner_blocks integer DEFAULT NULL, recipe text DEFAULT NULL,
    scope text[] DEFAULT '{}')
RETURNS integer
LANGUAGE plpgsql
AS $$
DECLARE
    index constant simsql.registry := simsql._register($1, $2, $3, $4, $5, $6, $7, $8, online => false);
BEGIN
    IF NOT EXISTS (SELECT FROM simsql._btrees(index.table_id, simsql._btree_columns(index)) AS b WHERE b.valid) THEN
        EXECUTE format('CREATE INDEX ON %s (%s)', index.table_name, simsql._name_list(simsql._btree_columns(index)));
    END IF;
    PERFORM simsql._create_keys(index, filled => true);
    PERFORM simsql._create_functions(index);
    PERFORM simsql._create_triggers(index);
    RETURN index.id;
END
$$;

COMMENT ON FUNCTION simsql.create_index(regclass, text, integer, integer, integer, integer, text, text[]) IS
    'create a simhash index on a bigint column, in this transaction; writers wait. Returns its id. '
    'scope: the columns to whose values searches are confined';

-- Drops what create_index made, apart from the B-tree on the user's column.
CREATE FUNCTION simsql._drop_objects(index simsql.registry) RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    number integer;
    name text;
BEGIN
    IF EXISTS (SELECT FROM pg_class WHERE oid = index.table_id) THEN
        FOREACH name IN ARRAY ARRAY['insert', 'update', 'column', 'no_parent'] LOOP
            EXECUTE format('DROP TRIGGER IF EXISTS simsql_%s_%s ON %s', index.id, name, index.table_id);
        END LOOP;
    END IF;
    EXECUTE format('DROP FUNCTION IF EXISTS simsql.add_on_insert_%1$s(), simsql.add_on_update_%1$s()', index.id);
    EXECUTE format('DROP FUNCTION IF EXISTS simsql.search_%1$s, simsql.scan_%1$s', index.id);
    FOR number IN SELECT p.number FROM simsql._permutations(index.blocks, index.lead, index.inner_blocks) AS p LOOP
        EXECUTE format('DROP TABLE IF EXISTS simsql.keys_%s_%s', index.id, number);
    END LOOP;
    DELETE FROM simsql.registry AS r WHERE r.id = index.id;
END
$$;

-- DROP TABLE leaves the keys of its index behind; whoever creates the next index clears away those
-- that this role owns.
CREATE FUNCTION simsql._drop_orphans() RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    index simsql.registry;
BEGIN
    FOR index IN
        SELECT r.* FROM simsql.registry AS r
          JOIN pg_class AS keys ON keys.oid = to_regclass(format('simsql.keys_%s_0', r.id))
         WHERE NOT EXISTS (SELECT FROM pg_class AS c WHERE c.oid = r.table_id)
           AND pg_has_role(keys.relowner, 'USAGE')
    LOOP
        RAISE NOTICE 'simsql: table % is gone; dropping what is left of its simhash index', index.table_name;
        PERFORM simsql._drop_objects(index);
    END LOOP;
END
$$;

CREATE FUNCTION simsql.drop_index(table_name regclass, column_name text DEFAULT NULL) RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    columns constant text[] := ARRAY(SELECT r.column_name FROM simsql.registry AS r
                                      WHERE r.table_id = $1 AND ($2 IS NULL OR r.column_name = $2) ORDER BY r.id);
    index simsql.registry;
BEGIN
    IF cardinality(columns) <> 1 THEN
        RAISE EXCEPTION 'simsql.drop_index: % has % simhash indexes%', $1, cardinality(columns),
                        coalesce(' on column ' || quote_ident($2), '')
            USING ERRCODE = CASE cardinality(columns) WHEN 0 THEN 'undefined_object' ELSE 'ambiguous_column' END,
                  HINT = CASE cardinality(columns) WHEN 0 THEN 'SELECT * FROM simsql.indexes lists them.'
                         ELSE format('Name the column: one of %s.', array_to_string(columns, ', ')) END;
    END IF;
    SELECT r.* INTO index FROM simsql.registry AS r WHERE r.table_id = $1 AND r.column_name = columns[1];
    PERFORM simsql._drop_objects(index);
END
$$;

COMMENT ON FUNCTION simsql.drop_index(regclass, text) IS
    'drop a simhash index; the column and its B-tree stay';


-- vacuum: removes keys that no row has any more, and all but one of equal keys.
--
-- A vacuum removes only what its own snapshot proves superfluous. A writer's new key is invisible to it, and so
-- it needs no lock on the user's table and stops nobody. Two vacuums of one index that proved things at once
-- could each remove the key that the other kept: so each batch first waits for the index's turn, and only then
-- takes its snapshot. Two vacuums of one index take turns, batch by batch.

-- How many keys or fingerprints one transaction of vacuum or build takes: it lasts about a second. Smaller ones
-- would come back to the same pages more often.
CREATE FUNCTION simsql._batch_size() RETURNS integer
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN 200000;

-- Raises inside a transaction, where a procedure cannot commit.
--
-- Procedures that commit may not have a search_path of their own: they name schemas and operators in full, call
-- functions, and leave the work to those.
CREATE PROCEDURE simsql._leave_transaction(caller text)
LANGUAGE plpgsql
AS $$
DECLARE
    at_commit text;
    at_rollback text;
BEGIN
    -- In a block with an exception clause neither is allowed. Only the messages, in any language, tell why:
    -- inside a transaction they are the same, and otherwise they speak of committing and of rolling back.
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
        RAISE EXCEPTION 'simsql.%: it commits as it goes, and cannot run inside a transaction', caller
            USING ERRCODE = 'active_sql_transaction',
                  HINT = 'Call it alone: outside BEGIN and COMMIT, in no function, from a driver in autocommit mode.';
    END IF;
END
$$;

-- Waits until nobody else does upkeep of the table's indexes: vacuum and build for a batch, repair as a whole. What
-- the caller then reads must be read with a later snapshot than this call's.
CREATE FUNCTION simsql._take_turn(table_name regclass, caller text) RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM simsql._check_read_committed(caller);
    PERFORM pg_advisory_xact_lock(hashtextextended('simsql.upkeep', $1::oid::bigint));
    IF NOT EXISTS (SELECT FROM pg_class AS c WHERE c.oid = $1) THEN
        RAISE EXCEPTION 'simsql.%: the table was dropped meanwhile', caller USING ERRCODE = 'undefined_table';
    END IF;
END
$$;

-- Until the end of the transaction nobody drops or renames the table, a column or an index of it. drop_index needs
-- the table first, and so must whoever uses its keys.
CREATE FUNCTION simsql._hold(table_name regclass) RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    EXECUTE format('SELECT FROM ONLY %s LIMIT 0', $1);
END
$$;

-- Raises unless this role may take all keys in hand, and sees all rows.
CREATE FUNCTION simsql._check_upkeep(index simsql.registry, caller text) RETURNS void
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    IF EXISTS (SELECT FROM pg_class AS c
                WHERE c.relnamespace = 'simsql'::regnamespace AND c.relname ~ format('^keys_%s_\d+$', index.id)
                  AND NOT pg_has_role(c.relowner, 'USAGE'))
    THEN
        RAISE EXCEPTION 'simsql.%: must be owner of the simhash index on %', caller, index.table_name
            USING ERRCODE = 'insufficient_privilege';
    END IF;
    IF row_security_active(index.table_id) THEN
        RAISE EXCEPTION 'simsql.%: row-level security hides rows of % from %', caller, index.table_name, current_user
            USING ERRCODE = 'insufficient_privilege', HINT = 'Call it as a role that sees all rows.';
    END IF;
END
$$;

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

-- The superfluous keys of one batch of a key table, from key $1 of this scope on, or from the first one, $2 keys. LIMIT
-- makes the proof one lookup per key, whatever the planner expects. Equal keys may go on in the next batch, which begins
-- where this one ends.
CREATE FUNCTION simsql._superfluous(index simsql.registry, number integer, scope text[]) RETURNS text
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
        'WHERE s.nth > 1 OR live.found IS NULL), '
        'removed_%2$s AS (DELETE FROM simsql.keys_%1$s_%2$s '
        'WHERE ctid = ANY (ARRAY(SELECT place FROM superfluous)) RETURNING 1)',
        index.id, p.number, simsql._unpermute('s.key', p.lead_mask), index.table_name, index.column_name,
        simsql._name_list(simsql._key_columns(index)),
        coalesce(simsql._from_place(index, scope, '%1$s', 'key', '>=', '$1'), 'true'),
        simsql._for_scope(index, 's.%1$s, '), simsql._for_scope(index, ' AND t.%2$I = s.%1$s'))
      FROM simsql._permutations(index.blocks, index.lead, index.inner_blocks) AS p
     WHERE p.number = $2
$$;

-- The text of a batch. It is one statement, and so has one snapshot: a key that was proved superfluous in one and
-- deleted in the next may be another writer's by then. Writers add the same keys to all tables, so what is
-- superfluous in the first is removed from the others too, as many copies as there, and one always stays where a
-- row has the fingerprint. For another table than the first it is removed from that table alone.
CREATE FUNCTION simsql._vacuum_statement(index simsql.registry, number integer, scope text[] DEFAULT NULL) RETURNS text
LANGUAGE sql STABLE
AS $$
    SELECT format('WITH %s%s '
                  'SELECT (SELECT count(*) FROM seen) AS seen, last.key AS last, last.scope, %s AS removed '
                  'FROM (VALUES (1)) AS one LEFT JOIN (SELECT key, ARRAY[%s]::text[] AS scope FROM seen '
                  'ORDER BY %skey DESC LIMIT 1) AS last ON true',
                  simsql._superfluous(index, $2, $3),
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
                      FILTER (WHERE p.number <> $2),
                  string_agg(format('(SELECT count(*) FROM removed_%s)', p.number), ' + ' ORDER BY p.number),
                  (SELECT string_agg(c.name || '::text', ', ' ORDER BY c.number) FROM simsql._scope_columns(index) AS c),
                  simsql._for_scope(index, '%1$s DESC, '))
      FROM simsql._permutations(index.blocks, index.lead, index.inner_blocks) AS p
     WHERE p.number = $2 OR $2 = 0
$$;

-- The key tables that do not have as many keys as the first: they may have keys of their own.
CREATE FUNCTION simsql._uneven_tables(index simsql.registry) RETURNS integer[]
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

-- The next batch of a vacuum, in a transaction of its own; `state` is null at first, then what the last one
-- returned.
CREATE FUNCTION simsql._vacuum_batch(table_name regclass, column_name text, state simsql._vacuum_state)
RETURNS simsql._vacuum_state
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET max_parallel_workers_per_gather = 0 SET jit = off
SET datestyle = 'ISO' SET intervalstyle = 'postgres' SET extra_float_digits = 1  -- a scope as text is that value again
AS $$
DECLARE
    smallest constant bigint := '-9223372036854775808';
    index simsql.registry;
    batch record;
    before double precision;
BEGIN
    PERFORM simsql._take_turn($1, 'vacuum');
    PERFORM simsql._hold($1);
    index := simsql._index($1, $2);
    IF state IS NULL THEN
        state := (index.id, '{0}', smallest, NULL, 0, 0, 0, false);
    ELSIF state.index_id <> index.id THEN
        RAISE EXCEPTION 'simsql.vacuum: the simhash index on %(%) was created anew meanwhile', $1, index.column_name
            USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'A new index has no superfluous keys.';
    END IF;
    PERFORM simsql._check_upkeep(index, 'vacuum');
    PERFORM simsql._check_btree(index.table_id, simsql._btree_columns(index), 'vacuum');
    PERFORM simsql._check_btree(format('simsql.keys_%s_%s', index.id, p.number)::regclass, simsql._key_columns(index), 'vacuum')
       FROM simsql._permutations(index.blocks, index.lead, index.inner_blocks) AS p;
    before := state.share;
    EXECUTE simsql._vacuum_statement(index, state.tables[1], state.scope) INTO batch USING state.key, simsql._batch_size();
    state.removed := state.removed + batch.removed;
    IF batch.seen = simsql._batch_size() THEN
        state.key := batch.last;
        state.scope := batch.scope;
        state.seen := state.seen + batch.seen;
        state.share := greatest(before, CASE WHEN cardinality(state.scope) = 0 THEN simsql._share(state.key)
                                             ELSE least(0.99, state.seen / greatest(1, simsql._keys_by_size(index))) END);
        IF floor(20 * state.share) > floor(20 * before) THEN
            RAISE NOTICE 'simsql.vacuum: % %% done, % keys removed', round(100 * state.share), state.removed;
        END IF;
    ELSE
        state.key := smallest;
        state.scope := NULL;
        state.share := 1;
        state.tables := CASE state.tables[1] WHEN 0 THEN simsql._uneven_tables(index) ELSE state.tables[2:] END;
        state.finished := cardinality(state.tables) = 0;
        IF state.finished THEN
            RAISE NOTICE 'simsql.vacuum: % keys of %(%) removed', state.removed, $1, quote_ident(index.column_name);
        END IF;
    END IF;
    RETURN state;
END
$$;

-- Which share of all keys or fingerprints is not greater, from 0 to almost 1: they fill the range evenly enough.
CREATE FUNCTION simsql._share(key bigint) RETURNS double precision
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN key / 18446744073709551616.0::double precision + 0.5;

-- How many keys the first table holds, by its size.
CREATE FUNCTION simsql._keys_by_size(index simsql.registry) RETURNS double precision
LANGUAGE sql STABLE
AS $$
    SELECT pg_relation_size(format('simsql.keys_%s_0', index.id)) / (36.0 + 8 * cardinality(index.scope_columns))
$$;

CREATE PROCEDURE simsql.vacuum(table_name regclass, column_name text DEFAULT NULL)
LANGUAGE plpgsql
AS $$
DECLARE
    state simsql._vacuum_state;
BEGIN
    CALL simsql._leave_transaction('vacuum');
    LOOP
        COMMIT;
        SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
        state := simsql._vacuum_batch($1, $2, state);
        EXIT WHEN state.finished;
    END LOOP;
END
$$;

COMMENT ON PROCEDURE simsql.vacuum(regclass, text) IS
    'remove the keys that no row has any more, and all but one of equal keys, while others read and write';


-- build: creates an index while others read and write.
--
-- Tables, B-trees and triggers come first, and are committed. From then on every writer adds keys, and all that
-- is missing are those of rows that were committed before. They are filled in in ranges of the fingerprint, behind
-- the scope, not of the row's place: a row that is updated moves, and where both stay the same, that adds no key. Each
-- batch commits how far it has come, so a build that was interrupted goes on there. `ready` is committed with
-- the last batch, and a snapshot that does not see it does not search.

-- Registers an index and creates its objects, or finds the unfinished index that was begun with these arguments.
-- Returns its id.
CREATE FUNCTION simsql._begin_build(
    table_name regclass, column_name text, distance integer, blocks integer, lead integer, inner_blocks integer,
    recipe text, scope text[] DEFAULT '{}')
RETURNS integer
LANGUAGE plpgsql
AS $$
DECLARE
    index simsql.registry;
BEGIN
    SELECT r.* INTO index FROM simsql.registry AS r WHERE r.table_id = $1 AND r.column_name = $2 AND NOT r.ready;
    IF NOT FOUND THEN
        index := simsql._register($1, $2, $3, $4, $5, $6, $7, $8, online => true);
        PERFORM simsql._create_keys(index, filled => false);
        PERFORM simsql._create_functions(index);
        PERFORM simsql._create_triggers(index);
    ELSIF $3 <> index.distance OR $4 <> index.blocks OR $5 <> index.lead OR $6 <> index.inner_blocks
          OR $7 <> index.recipe OR coalesce($8, '{}') <> index.scope_columns
    THEN
        RAISE EXCEPTION 'simsql.build: an unfinished build of the index on %(%) has other arguments', $1, quote_ident($2)
            USING ERRCODE = 'duplicate_object',
                  HINT = format('Go on with it: %s Or drop it first: SELECT simsql.drop_index(%L, %L);',
                                simsql._build_call(index), $1, $2);
    END IF;
    RETURN index.id;
END
$$;

-- The text of a batch: adds the keys of the next $1 fingerprints to every table, and gives the last one, with its scope,
-- unless there were fewer.
CREATE FUNCTION simsql._build_statement(index simsql.registry) RETURNS text
LANGUAGE sql STABLE
AS $$
    SELECT format('WITH batch AS MATERIALIZED (SELECT DISTINCT %st.%I AS fp FROM ONLY %s AS t WHERE t.%I IS NOT NULL%s%s '
                  'ORDER BY %sfp LIMIT $1), %s '
                  'SELECT b.fp, ARRAY[%s]::text[] AS scope FROM batch AS b ORDER BY %sb.fp OFFSET $1 - 1',
                  simsql._for_scope(index, 't.%2$I AS %1$s, '), index.column_name, index.table_name, index.column_name,
                  simsql._for_scope(index, ' AND t.%2$I IS NOT NULL'),
                  CASE WHEN index.built_to IS NOT NULL
                       THEN ' AND ' || simsql._from_place(index, index.built_scope, 't.%2$I', format('t.%I', index.column_name),
                                                          '>', format('%L::bigint', index.built_to)) END,
                  simsql._for_scope(index, '%1$s, '),
                  string_agg(format('keys_%1$s AS (INSERT INTO simsql.keys_%2$s_%1$s (%3$s) SELECT %4$s%5$s AS key FROM batch AS b '
                                    'ORDER BY %3$s)', p.number, index.id, simsql._name_list(simsql._key_columns(index)),
                                    simsql._for_scope(index, 'b.%1$s, '), simsql._permute('b.fp', p.lead_mask)),
                             ', ' ORDER BY p.number),
                  (SELECT string_agg(format('b.%s::text', c.name), ', ' ORDER BY c.number) FROM simsql._scope_columns(index) AS c),
                  simsql._for_scope(index, 'b.%1$s, '))
      FROM simsql._permutations(index.blocks, index.lead, index.inner_blocks) AS p
$$;

-- Which share of the work is done, by what is registered.
CREATE FUNCTION simsql._built_share(index simsql.registry) RETURNS double precision
LANGUAGE sql STABLE
AS $$
    SELECT CASE WHEN index.built_to IS NULL THEN 0
                WHEN cardinality(index.scope_columns) = 0 THEN simsql._share(index.built_to)
                ELSE (SELECT least(0.99, simsql._keys_by_size(index) / greatest(1, c.reltuples))
                        FROM pg_class AS c WHERE c.oid = index.table_id) END
$$;

-- Fills in the keys of the next fingerprints, in a transaction of its own, and tells which share of the work is done:
-- of all possible fingerprints or, where they stand scope by scope, of the rows that the table is thought to have.
CREATE FUNCTION simsql._build_batch(
    table_name regclass, column_name text, OUT ready boolean, OUT share double precision)
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashagg = off
SET max_parallel_workers_per_gather = 0 SET jit = off
SET datestyle = 'ISO' SET intervalstyle = 'postgres' SET extra_float_digits = 1  -- a scope as text is that value again
AS $$
DECLARE
    index simsql.registry;
    last record;
    before double precision;
BEGIN
    PERFORM simsql._take_turn($1, 'build');
    PERFORM simsql._hold($1);
    SELECT r.* INTO index FROM simsql.registry AS r WHERE r.table_id = $1 AND r.column_name = $2;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'simsql.build: the simhash index on %(%) was dropped meanwhile', $1, quote_ident($2)
            USING ERRCODE = 'undefined_object';
    END IF;
    ready := index.ready;
    share := 1;
    IF ready THEN
        RETURN;
    END IF;
    PERFORM simsql._check_sound(index);
    PERFORM simsql._check_upkeep(index, 'build');
    PERFORM simsql._check_btree(index.table_id, simsql._btree_columns(index), 'build');
    before := simsql._built_share(index);
    -- What is committed after this snapshot was written under the triggers.
    EXECUTE simsql._build_statement(index) INTO last USING simsql._batch_size();
    ready := last.fp IS NULL;
    UPDATE simsql.registry AS r SET ready = _build_batch.ready, built_to = last.fp, built_scope = last.scope
     WHERE r.id = index.id RETURNING r.* INTO index;
    IF NOT ready THEN
        share := simsql._built_share(index);
        IF floor(20 * share) > floor(20 * before) THEN
            RAISE NOTICE 'simsql.build: % %% done', round(100 * share);
        END IF;
    END IF;
END
$$;

CREATE PROCEDURE simsql.build(
    table_name regclass, column_name text, distance integer DEFAULT 3,
    blocks integer DEFAULT NULL, lead integer DEFAULT NULL, inner_blocks integer DEFAULT NULL, recipe text DEFAULT NULL,
    scope text[] DEFAULT '{}')
LANGUAGE plpgsql
AS $$
DECLARE
    batch record;
BEGIN
    CALL simsql._leave_transaction('build');
    COMMIT;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    PERFORM simsql._begin_build($1, $2, $3, $4, $5, $6, $7, $8);
    LOOP
        COMMIT;
        SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
        batch := simsql._build_batch($1, $2);
        EXIT WHEN batch.ready;
    END LOOP;
END
$$;

COMMENT ON PROCEDURE simsql.build(regclass, text, integer, integer, integer, integer, text, text[]) IS
    'create a simhash index while others read and write, or go on with a build that was interrupted';


-- verify: says what is wrong with indexes. repair: mends it.
--
-- A finding is a fault if searches may miss rows, fail or be slow, or may do so after a crash. Superfluous keys are
-- none: they are for vacuum.

-- An index with the names that its table and its columns have now; those are null where there is none. The
-- columns are those that the index's trigger knows by number, or else those of the registered names.
CREATE FUNCTION simsql._as_named(index simsql.registry) RETURNS simsql.registry
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    columns text[] := (
        SELECT ARRAY(SELECT a.attname::text
                       FROM unnest(t.tgattr) WITH ORDINALITY AS k (attnum, place)
                       JOIN pg_attribute AS a ON a.attrelid = t.tgrelid AND a.attnum = k.attnum
                      ORDER BY k.place)
          FROM pg_trigger AS t
         WHERE t.tgrelid = index.table_id AND t.tgname = format('simsql_%s_column', index.id));
BEGIN
    index.table_name := (SELECT format('%I.%I', n.nspname, c.relname)
                           FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
                          WHERE c.oid = index.table_id);
    IF columns IS NULL THEN
        columns := ARRAY(SELECT a.attname::text
                           FROM unnest(index.column_name || index.scope_columns) WITH ORDINALITY AS n (name, place)
                           LEFT JOIN pg_attribute AS a
                             ON a.attrelid = index.table_id AND a.attname = n.name AND NOT a.attisdropped
                          ORDER BY n.place);
    END IF;
    index.column_name := columns[1];
    index.scope_columns := columns[2:];
    RETURN index;
END
$$;

-- What the catalogue tells: tables, columns, B-trees, triggers, functions and policies that are not as
-- create_index made them. What repair cannot mend comes with another hint than to call it.
CREATE FUNCTION simsql._verify_objects(index simsql.registry) RETURNS SETOF simsql.finding
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    actual constant simsql.registry := simsql._as_named(index);
    complete constant boolean := array_position(actual.column_name || actual.scope_columns, NULL) IS NULL;
    repair constant text := format('SELECT * FROM simsql.repair(%L);', index.table_id);
    drop_it constant text := format('SELECT simsql.drop_index(%L, %L);', index.table_id, index.column_name);
BEGIN
    RETURN QUERY
    SELECT index.table_name, index.column_name, p.problem, p.object, NULL::bigint, true, p.hint
      FROM (
        SELECT 'table dropped' AS problem, index.table_name AS object, drop_it AS hint
         WHERE actual.table_name IS NULL
        UNION ALL
        SELECT 'table renamed', actual.table_name, repair
         WHERE actual.table_name <> index.table_name
        UNION ALL
        SELECT 'table has a parent or a child', actual.table_name, format('Detach it, then: %s', repair)
         WHERE EXISTS (SELECT FROM pg_inherits AS i WHERE index.table_id IN (i.inhrelid, i.inhparent))
        UNION ALL
        SELECT CASE WHEN c.name IS NULL THEN 'column dropped' ELSE 'column renamed' END,
               quote_ident(coalesce(c.name, c.registered)),
               CASE WHEN c.name IS NULL THEN drop_it ELSE repair END
          FROM unnest(actual.column_name || actual.scope_columns, index.column_name || index.scope_columns)
               AS c (name, registered)
         WHERE actual.table_name IS NOT NULL AND c.name IS DISTINCT FROM c.registered
        UNION ALL
        SELECT 'column is no longer a stored bigint', quote_ident(actual.column_name), drop_it
          FROM pg_attribute AS a
         WHERE a.attrelid = index.table_id AND a.attname = actual.column_name
           AND (a.atttypid <> 'bigint'::regtype OR a.attgenerated = 'v')
        UNION ALL
        SELECT 'not ready', actual.table_name, simsql._build_call(actual)
         WHERE actual.table_name IS NOT NULL AND NOT index.ready
        UNION ALL
        SELECT CASE WHEN t.oid IS NULL THEN 'trigger missing'
                    WHEN pg_get_triggerdef(t.oid) <> d.definition THEN 'trigger altered'
                    ELSE 'trigger not enabled always' END,
               d.name, repair
          FROM simsql._triggers(actual) AS d
          LEFT JOIN pg_trigger AS t ON t.tgrelid = index.table_id AND t.tgname = d.name
         WHERE complete
           AND (t.oid IS NULL OR pg_get_triggerdef(t.oid) <> d.definition OR d.always AND t.tgenabled <> 'A')
        UNION ALL
        SELECT CASE WHEN p.oid IS NULL THEN 'function missing' ELSE 'function altered' END, 'simsql.' || d.name, repair
          FROM simsql._functions(index) AS d
          LEFT JOIN pg_proc AS p ON p.oid = to_regprocedure(format('simsql.%I%s', d.name, d.arguments))
         WHERE complete
           AND (p.oid IS NULL OR p.prosrc <> d.body OR p.proconfig IS DISTINCT FROM d.settings
                OR p.prosecdef <> (d.head LIKE '%SECURITY DEFINER%')
                OR p.provolatile <> CASE WHEN d.head LIKE '%STABLE%' THEN 's' ELSE 'v' END)
        UNION ALL
        SELECT k.problem, k.object, repair
          FROM simsql._permutations(index.blocks, index.lead, index.inner_blocks) AS p
         CROSS JOIN LATERAL simsql._verify_key_table(actual, format('simsql.keys_%s_%s', index.id, p.number)) AS k
         WHERE actual.table_name IS NOT NULL
        UNION ALL
        SELECT b.problem, b.object, repair
          FROM simsql._verify_btree(index.table_id, simsql._btree_columns(actual)) AS b
         WHERE complete) AS p;
END
$$;

CREATE FUNCTION simsql._verify_key_table(index simsql.registry, keys text) RETURNS TABLE (problem text, object text)
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    class pg_class;
BEGIN
    SELECT c.* INTO class FROM pg_class AS c WHERE c.oid = to_regclass(keys);
    IF NOT FOUND THEN
        RETURN QUERY SELECT 'key table missing', keys;
        RETURN;
    END IF;
    -- Values are compared as what they are in the user's table.
    IF class.relkind <> 'r' OR EXISTS (
        SELECT FROM (SELECT 'key' AS name, 'bigint'::regtype::oid AS type_id, 0::oid AS collation_id
                      UNION ALL
                     SELECT s.name, coalesce(simsql._scope_type(index.table_id, s.column_name), a.atttypid), u.attcollation
                       FROM simsql._scope_columns(index) AS s
                       LEFT JOIN pg_attribute AS u ON u.attrelid = index.table_id AND u.attname = s.column_name
                       LEFT JOIN pg_attribute AS a ON a.attrelid = class.oid AND a.attname = s.name) AS c
         WHERE NOT EXISTS (
               SELECT FROM pg_attribute AS a
                WHERE a.attrelid = class.oid AND a.attname = c.name AND a.atttypid = c.type_id AND a.attgenerated = ''
                  AND a.attcollation = coalesce(c.collation_id, a.attcollation)))
    THEN
        RETURN QUERY SELECT 'key table altered', keys;
        RETURN;
    END IF;
    IF class.relpersistence = 'u'
       AND (SELECT c.relpersistence FROM pg_class AS c WHERE c.oid = index.table_id) <> 'u'
    THEN
        RETURN QUERY SELECT 'key table unlogged', keys;
    END IF;
    -- Under another policy readers would miss keys in silence, or see what they may not.
    IF NOT class.relrowsecurity OR NOT has_table_privilege('public', class.oid, 'SELECT')
       OR (SELECT array_agg(format('%s %s %s %s', p.polname, p.polcmd, p.polpermissive, p.polroles))
             FROM pg_policy AS p WHERE p.polrelid = class.oid) IS DISTINCT FROM ARRAY['readers r t {0}']
    THEN
        RETURN QUERY SELECT 'policy altered', keys;
    END IF;
    RETURN QUERY SELECT b.* FROM simsql._verify_btree(class.oid, simsql._key_columns(index)) AS b;
END
$$;

CREATE FUNCTION simsql._verify_btree(table_id regclass, column_names text[]) RETURNS TABLE (problem text, object text)
LANGUAGE sql STABLE
AS $$
    SELECT CASE WHEN b.index IS NULL THEN 'B-tree missing' ELSE 'B-tree invalid' END,
           coalesce(b.index::text, format('%s (%s)', $1, simsql._name_list($2)))
      FROM (VALUES (1)) AS one
      LEFT JOIN simsql._btrees($1, $2) AS b ON true
     WHERE NOT EXISTS (SELECT FROM simsql._btrees($1, $2) AS any_of WHERE any_of.valid)
$$;

-- Compares the keys with the rows, table by table, each in one pass over both in the order of keys: hashing more
-- than fits into work_mem takes three times as long.
CREATE FUNCTION simsql._verify_keys(index simsql.registry) RETURNS SETOF simsql.finding
LANGUAGE plpgsql STABLE
SET enable_hashjoin = off SET enable_hashagg = off SET jit = off
AS $$
DECLARE
    actual constant simsql.registry := simsql._as_named(index);
    vacuum constant text := format('CALL simsql.vacuum(%L, %L);', actual.table_name, actual.column_name);
    permutation record;
    keys text;
    counts record;
BEGIN
    IF row_security_active(index.table_id) THEN
        RAISE EXCEPTION 'simsql.verify: row-level security hides rows of % from %', index.table_id, current_user
            USING ERRCODE = 'insufficient_privilege', HINT = 'Call it as a role that sees all rows.';
    END IF;
    FOR permutation IN SELECT * FROM simsql._permutations(index.blocks, index.lead, index.inner_blocks) LOOP
        keys := format('simsql.keys_%s_%s', index.id, permutation.number);
        CONTINUE WHEN EXISTS (SELECT FROM simsql._verify_key_table(index, keys) AS k
                               WHERE k.problem IN ('key table missing', 'key table altered'));
        EXECUTE format(
            'SELECT count(*) FILTER (WHERE k.key IS NULL) AS missing, '
            'sum(k.copies) FILTER (WHERE live.key IS NULL) AS orphans, '
            'sum(k.copies - 1) FILTER (WHERE live.key IS NOT NULL) AS doubles '
            'FROM (SELECT %5$s, count(*) AS copies FROM %1$s GROUP BY %5$s) AS k FULL JOIN '
            '(SELECT DISTINCT %6$s%2$s AS key FROM ONLY %3$s AS t WHERE t.%4$I IS NOT NULL%7$s) AS live '
            'USING (%5$s)', keys, simsql._permute(format('t.%I', actual.column_name), permutation.lead_mask),
            actual.table_name, actual.column_name, simsql._name_list(simsql._key_columns(index)),
            simsql._for_scope(actual, 't.%2$I AS %1$s, '), simsql._for_scope(actual, ' AND t.%2$I IS NOT NULL'))
           INTO counts;
        RETURN QUERY
        SELECT index.table_name, index.column_name, c.problem, keys, c.count::bigint, c.fault, c.hint
          FROM (VALUES
               ('keys missing', counts.missing, true, format('SELECT * FROM simsql.repair(%L);', index.table_id)),
               ('keys without a row', counts.orphans, false, vacuum),
               ('keys stored again', counts.doubles, false, vacuum))
               AS c (problem, count, fault, hint)
         WHERE c.count > 0;
    END LOOP;
END
$$;

-- One snapshot: whoever calls it, it only reads.
CREATE FUNCTION simsql.verify(table_name regclass DEFAULT NULL, column_name text DEFAULT NULL)
RETURNS SETOF simsql.finding
LANGUAGE plpgsql STABLE ROWS 10
AS $$
DECLARE
    index simsql.registry;
    full_name constant text := (SELECT format('%I.%I', n.nspname, c.relname)
                                  FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
                                 WHERE c.oid = $1);
    findings simsql.finding[];
BEGIN
    FOR index IN
        SELECT r.* FROM simsql.registry AS r
         -- By name too: the index of a table whose name another one has got.
         WHERE ($1 IS NULL OR r.table_id = $1 OR r.table_name = full_name) AND ($2 IS NULL OR r.column_name = $2)
         ORDER BY r.id
    LOOP
        findings := ARRAY(SELECT v FROM simsql._verify_objects(index) AS v);
        RETURN QUERY SELECT * FROM unnest(findings);
        IF index.ready AND NOT EXISTS (
            SELECT FROM unnest(findings) AS f
             WHERE f.problem IN ('table dropped', 'column dropped', 'column is no longer a stored bigint'))
        THEN
            RETURN QUERY SELECT * FROM simsql._verify_keys(index);
        END IF;
    END LOOP;
    IF NOT FOUND AND $1 IS NOT NULL THEN
        PERFORM simsql._index($1, $2);
    END IF;
END
$$;

COMMENT ON FUNCTION simsql.verify(regclass, text) IS
    'what is wrong with the indexes of a table, or with all; no row if nothing is';

-- Lets the registered names of all indexes of a table follow the table and their columns. Columns may have
-- swapped names, so the old ones are taken away first; no column has 64 characters.
CREATE FUNCTION simsql._follow_names(table_name regclass) RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    renamed constant simsql.registry[] := ARRAY(
        SELECT a FROM simsql.registry AS r CROSS JOIN LATERAL simsql._as_named(r) AS a
         WHERE r.table_id = $1 AND array_position(a.column_name || a.scope_columns, NULL) IS NULL AND a IS DISTINCT FROM r);
BEGIN
    UPDATE simsql.registry AS r SET column_name = lpad(r.id::text, 64)
      FROM unnest(renamed) AS a WHERE r.id = a.id;
    UPDATE simsql.registry AS r SET table_name = a.table_name, column_name = a.column_name, scope_columns = a.scope_columns
      FROM unnest(renamed) AS a WHERE r.id = a.id;
END
$$;

-- Drops what is left of an index and creates it anew under another id: a snapshot that is older than its new key
-- tables would see them as empty, and finds the old id's gone.
CREATE FUNCTION simsql._renew(index simsql.registry) RETURNS simsql.registry
LANGUAGE plpgsql
AS $$
DECLARE
    renewed simsql.registry;
BEGIN
    PERFORM simsql._drop_objects(index);
    INSERT INTO simsql.registry AS r (table_id, table_name, column_name, distance, blocks, lead, inner_blocks,
                                      recipe, scope_columns, ready)
    VALUES (index.table_id, index.table_name, index.column_name, index.distance, index.blocks, index.lead,
            index.inner_blocks, index.recipe, index.scope_columns, index.ready)
    RETURNING r.* INTO renewed;
    PERFORM simsql._create_keys(renewed, filled => renewed.ready);
    PERFORM simsql._create_functions(renewed);
    PERFORM simsql._create_triggers(renewed);
    RETURN renewed;
END
$$;

-- Mends what _verify_objects has found, but for names and lost key tables.
CREATE FUNCTION simsql._mend_objects(index simsql.registry, findings simsql.finding[]) RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    finding simsql.finding;
    policy name;
BEGIN
    FOREACH finding IN ARRAY findings LOOP
        CASE finding.problem
        WHEN 'key table unlogged' THEN
            EXECUTE format('ALTER TABLE %s SET LOGGED', finding.object);
        WHEN 'policy altered' THEN
            FOR policy IN SELECT p.polname FROM pg_policy AS p WHERE p.polrelid = finding.object::regclass LOOP
                EXECUTE format('DROP POLICY %I ON %s', policy, finding.object);
            END LOOP;
            PERFORM simsql._guard_keys(finding.object, index);
        WHEN 'B-tree invalid' THEN
            EXECUTE format('REINDEX INDEX %s', finding.object);
        WHEN 'B-tree missing' THEN
            EXECUTE format('CREATE INDEX ON %s', finding.object);
        ELSE NULL;
        END CASE;
    END LOOP;
    IF EXISTS (SELECT FROM unnest(findings) AS f WHERE f.problem LIKE 'function %') THEN
        PERFORM simsql._create_functions(index);
    END IF;
    IF EXISTS (SELECT FROM unnest(findings) AS f WHERE f.problem LIKE 'trigger %') THEN
        PERFORM simsql._create_triggers(index);
        -- An unfinished build has passed rows that were written meanwhile: it begins again.
        UPDATE simsql.registry AS r SET built_to = NULL, built_scope = NULL WHERE r.id = index.id;
    END IF;
END
$$;

-- Adds the keys that rows lack, and tells how many they were.
CREATE FUNCTION simsql._mend_keys(index simsql.registry) RETURNS SETOF simsql.finding
LANGUAGE plpgsql
SET enable_hashjoin = off SET enable_hashagg = off SET jit = off
AS $$
DECLARE
    permutation record;
    keys text;
    added bigint;
BEGIN
    FOR permutation IN SELECT * FROM simsql._permutations(index.blocks, index.lead, index.inner_blocks) LOOP
        keys := format('simsql.keys_%s_%s', index.id, permutation.number);
        EXECUTE format(
            'INSERT INTO %1$s (%5$s) SELECT %5$s '
            'FROM (SELECT DISTINCT %6$s%2$s AS key FROM ONLY %3$s AS t WHERE t.%4$I IS NOT NULL%7$s) AS live '
            'WHERE NOT EXISTS (SELECT FROM %1$s AS k WHERE k.key = live.key%8$s)',
            keys, simsql._permute(format('t.%I', index.column_name), permutation.lead_mask), index.table_name,
            index.column_name, simsql._name_list(simsql._key_columns(index)), simsql._for_scope(index, 't.%2$I AS %1$s, '),
            simsql._for_scope(index, ' AND t.%2$I IS NOT NULL'), simsql._for_scope(index, ' AND k.%1$s = live.%1$s'));
        GET DIAGNOSTICS added := ROW_COUNT;
        IF added > 0 THEN
            RETURN NEXT (index.table_name, index.column_name, 'keys missing', keys, added, true, NULL)::simsql.finding;
        END IF;
    END LOOP;
END
$$;

-- Gives the objects of an index to the owner that its others have: whoever repairs need not be its owner.
CREATE FUNCTION simsql._give(index simsql.registry, owner oid) RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    object text;
BEGIN
    FOR object IN
        SELECT 'TABLE ' || c.oid::regclass FROM pg_class AS c
         WHERE c.relnamespace = 'simsql'::regnamespace AND c.relname ~ format('^keys_%s_\d+$', index.id)
           AND c.relkind = 'r' AND c.relowner <> owner
        UNION ALL
        SELECT 'FUNCTION ' || p.oid::regprocedure FROM simsql._functions(index) AS f
          JOIN pg_proc AS p ON p.oid = to_regprocedure(format('simsql.%I%s', f.name, f.arguments))
         WHERE p.proowner <> owner
    LOOP
        EXECUTE format('ALTER %s OWNER TO %s', object, owner::regrole);
    END LOOP;
END
$$;

CREATE FUNCTION simsql.repair(table_name regclass) RETURNS SETOF simsql.finding
LANGUAGE plpgsql ROWS 10
AS $$
DECLARE
    index simsql.registry;
    owner oid;
    lost boolean;
    finding simsql.finding;
    findings simsql.finding[];
BEGIN
    PERFORM simsql._take_turn($1, 'repair');
    IF NOT EXISTS (SELECT FROM simsql.registry AS r WHERE r.table_id = $1) THEN
        PERFORM simsql._index($1, NULL);
    END IF;
    -- Writers wait, as for create_index; where an index has to be made anew, drop_index keeps readers out too.
    lost := EXISTS (
        SELECT FROM simsql.registry AS r
         CROSS JOIN LATERAL simsql._permutations(r.blocks, r.lead, r.inner_blocks) AS p
         CROSS JOIN LATERAL simsql._verify_key_table(simsql._as_named(r), format('simsql.keys_%s_%s', r.id, p.number)) AS k
         WHERE r.table_id = $1 AND k.problem IN ('key table missing', 'key table altered'));
    EXECUTE format('LOCK TABLE ONLY %s IN %s MODE', $1,
                   CASE WHEN lost THEN 'ACCESS EXCLUSIVE' ELSE 'SHARE ROW EXCLUSIVE' END);
    FOR index IN SELECT r.* FROM simsql.registry AS r WHERE r.table_id = $1 ORDER BY r.id LOOP
        FOR finding IN SELECT v.* FROM simsql._verify_objects(index) AS v LOOP
            IF finding.problem IN ('column dropped', 'column is no longer a stored bigint') THEN
                RAISE EXCEPTION 'simsql.repair: column % of %: %', finding.object, $1, finding.problem
                    USING ERRCODE = 'object_not_in_prerequisite_state', HINT = finding.hint;
            ELSIF finding.problem <> 'not ready' THEN
                finding.hint := NULL;
                RETURN NEXT finding;
            END IF;
        END LOOP;
    END LOOP;
    PERFORM simsql._follow_names($1);
    FOR index IN SELECT r.* FROM simsql.registry AS r WHERE r.table_id = $1 ORDER BY r.id LOOP
        PERFORM simsql._check_indexable($1, index.column_name, index.scope_columns, 'repair');
        PERFORM simsql._check_upkeep(index, 'repair');
        owner := coalesce(
            (SELECT c.relowner FROM pg_class AS c
              WHERE c.relnamespace = 'simsql'::regnamespace AND c.relname ~ format('^keys_%s_\d+$', index.id) LIMIT 1),
            (SELECT c.relowner FROM pg_class AS c WHERE c.oid = $1));
        findings := ARRAY(SELECT v FROM simsql._verify_objects(index) AS v);
        IF EXISTS (SELECT FROM unnest(findings) AS f WHERE f.problem IN ('key table missing', 'key table altered')) THEN
            index := simsql._renew(index);
            findings := ARRAY(SELECT v FROM simsql._verify_objects(index) AS v);
        END IF;
        PERFORM simsql._mend_objects(index, findings);
        IF index.ready THEN
            RETURN QUERY SELECT * FROM simsql._mend_keys(index);
        END IF;
        PERFORM simsql._give(index, owner);
        SELECT v.* INTO finding FROM simsql._verify_objects(index) AS v WHERE v.problem <> 'not ready';
        IF FOUND THEN
            RAISE EXCEPTION 'simsql.repair: % is beyond repair: %', finding.object, finding.problem
                USING ERRCODE = 'object_not_in_prerequisite_state',
                      HINT = format('Create the index anew: SELECT simsql.drop_index(%1$L, %2$L); '
                                    'SELECT simsql.create_index(%1$L, %2$L);', $1, index.column_name);
        END IF;
    END LOOP;
END
$$;

COMMENT ON FUNCTION simsql.repair(regclass) IS
    'mend what simsql.verify finds, in this transaction; writers wait. Returns what was mended.';


-- Many searches in one statement, and all pairs: near_many and pairs.
--
-- Both work table by table: a match is reported by the first permutation that can find it, one whose prefix
-- differs in no more bits than its radius. So nothing has to be compared across permutations, and the
-- memory of one is free again when the next begins.

-- The design of a hash join on prefixes, and what it is expected to cost in microseconds. Its rows are read
-- as they are, so its permutations need not be those of an index: more tables make longer prefixes. A row
-- and a candidate cost what it costs to look them up in a hash table that does not fit the processor's cache; a
-- way to flip the prefix of a query makes that table larger, and costs more; and each statement takes its time to
-- be planned.
CREATE FUNCTION simsql._join_design(queries bigint, rows bigint, distance integer,
                                    OUT blocks integer, OUT lead integer, OUT cost double precision)
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$
    SELECT m, c, 200 * tables + tables * row_cost * (rows + queries) + greatest(probes - tables, 0) * flip_cost * queries
                 + candidate_cost * queries * rows * probes * 2::double precision ^ -prefix
      FROM generate_series(2, 16) AS m
     CROSS JOIN LATERAL generate_series(1, m - 1) AS c
     CROSS JOIN LATERAL CAST(simsql._table_count(m, c, 0) AS double precision) AS tables
     CROSS JOIN LATERAL CAST(64 * c / m AS integer) AS prefix
     CROSS JOIN LATERAL (
           SELECT sum(simsql._ways(prefix, simsql._radius(m, c, 0, number, distance)) * share) AS probes
             -- Permutations with several lead blocks all have the same radius.
             FROM generate_series(0, CASE c WHEN 1 THEN m - 1 ELSE 0 END) AS number
            CROSS JOIN CAST(CASE c WHEN 1 THEN 1 ELSE tables END AS double precision) AS share) AS p
     CROSS JOIN (VALUES (0.55, 2.0, 0.2)) AS costs (row_cost, flip_cost, candidate_cost)
     -- Flips are written out in the statement.
     WHERE tables <= 128 AND probes <= 5000
     ORDER BY 3, tables, m, c
     LIMIT 1
$$;

-- What a join on the prefix of each permutation needs: the lead bits where they stand in a fingerprint, the ways
-- to flip them, one of the flipped bits of each way, and the condition that no earlier permutation finds the
-- match. `a` and `b` are the expressions of the two fingerprints.
CREATE FUNCTION simsql._join_tables(blocks integer, lead integer, inner_blocks integer, distance integer, a text, b text)
RETURNS TABLE (number integer, lead_mask bigint, prefix integer, flips bigint[], pivots bigint[], not_earlier text)
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    radius integer;
    found_before text := '';
BEGIN
    FOR number, lead_mask, prefix IN
        SELECT p.* FROM simsql._permutations(blocks, lead, inner_blocks) AS p ORDER BY p.number
    LOOP
        radius := simsql._radius(blocks, lead, inner_blocks, number, distance);
        CONTINUE WHEN radius < 0;
        EXECUTE format('SELECT array_agg(%s), array_agg(%s) FROM (SELECT f, f & -f AS pivot FROM unnest($1) AS f) AS s',
                       simsql._unpermute(format('(f << %s)', 64 - prefix), lead_mask),
                       simsql._unpermute(format('(pivot << %s)', 64 - prefix), lead_mask))
           INTO flips, pivots
          USING simsql._flips(prefix, radius);
        not_earlier := found_before;
        found_before := found_before
            || format(' AND bit_count(((%s # %s) & %L::bigint)::bit(64)) > %s', a, b, lead_mask, radius);
        RETURN NEXT;
    END LOOP;
END
$$;

-- The distinct fingerprints of an index, or of this scope, that are not null, in ascending order.
CREATE FUNCTION simsql._fingerprints(index simsql.registry, scope jsonb) RETURNS bigint[]
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    fingerprints bigint[];
BEGIN
    EXECUTE format('SELECT ARRAY(SELECT DISTINCT t.%1$I FROM ONLY %2$s AS t WHERE t.%1$I IS NOT NULL%3$s ORDER BY 1)',
                   index.column_name, index.table_name, simsql._in_scope(index, scope, 't'))
       INTO fingerprints;
    RETURN fingerprints;
END
$$;

-- One statement for each permutation: together they give every pair within the distance $2 of the distinct
-- fingerprints $1 once. One side is looked up under each flip of its prefix; of two that differ
-- in it, the one in which the lowest differing bit is not set.
CREATE FUNCTION simsql._pairs_statements(fingerprints bigint, distance integer) RETURNS SETOF text
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    design record;
    columns constant text := 'least(a.fp, b.fp), greatest(a.fp, b.fp), bit_count((a.fp # b.fp)::bit(64))::integer';
BEGIN
    design := simsql._join_design(fingerprints, fingerprints, distance);
    IF coalesce(design.cost >= 0.025 * fingerprints * fingerprints, true) THEN
        RETURN NEXT format('SELECT %s FROM unnest($1) AS a (fp) JOIN unnest($1) AS b (fp) '
                           'ON a.fp < b.fp AND bit_count((a.fp # b.fp)::bit(64)) <= $2', columns);
        RETURN;
    END IF;
    RETURN QUERY
    SELECT format('SELECT %1$s '
                  'FROM (SELECT fp, flip, (fp & %2$L::bigint) # flip AS prefix '
                  'FROM unnest($1) AS u (fp) CROSS JOIN unnest(%3$L::bigint[], %4$L::bigint[]) AS f (flip, pivot) '
                  'WHERE fp & pivot = 0) AS a '
                  'JOIN unnest($1) AS b (fp) ON a.prefix = (b.fp & %2$L::bigint) AND (a.flip <> 0 OR a.fp < b.fp) '
                  'WHERE bit_count((a.fp # b.fp)::bit(64)) <= $2%5$s',
                  columns, t.lead_mask, t.flips, t.pivots, t.not_earlier)
      FROM simsql._join_tables(design.blocks, design.lead, 0, distance, 'a.fp', 'b.fp') AS t;
END
$$;

-- Raises where a search or a join has found more than a hundred million: they would fill the disk.
CREATE FUNCTION simsql._refuse_more(results bigint, what text, distance integer) RETURNS void
LANGUAGE plpgsql IMMUTABLE
AS $$
BEGIN
    IF results > 100000000 THEN
        RAISE EXCEPTION 'simsql: there are more than 100000000 % within distance %', what, distance
            USING ERRCODE = 'program_limit_exceeded',
                  HINT = 'Take a lower distance, or simsql clusters on the command line, which keeps no pairs.';
    END IF;
END
$$;

-- The planner knows nothing about prefixes and would sort both sides of each join: it hashes.
CREATE FUNCTION simsql.pairs(
    table_name regclass, distance integer DEFAULT NULL, column_name text DEFAULT NULL, scope jsonb DEFAULT NULL)
RETURNS SETOF simsql.pair
LANGUAGE plpgsql STABLE
SET enable_mergejoin = off SET jit = off
AS $$
DECLARE
    index constant simsql.registry := simsql._searched_index($1, $3, $4);
    asked constant integer := simsql._distance($2, index.distance);
    fingerprints constant bigint[] := simsql._fingerprints(index, $4);
    statement text;
    of_statement bigint;
    found_pairs bigint := 0;
BEGIN
    FOR statement IN SELECT s FROM simsql._pairs_statements(cardinality(fingerprints), asked) AS s LOOP
        RETURN QUERY EXECUTE statement || ' LIMIT 100000001' USING fingerprints, asked;
        GET DIAGNOSTICS of_statement := ROW_COUNT;
        found_pairs := found_pairs + of_statement;
        PERFORM simsql._refuse_more(found_pairs, 'pairs', asked);
    END LOOP;
END
$$;

COMMENT ON FUNCTION simsql.pairs(regclass, integer, text, jsonb) IS
    'every pair of different fingerprints within the distance that rows of the table, or of the scope, have, a < b, once each';

-- One statement for each permutation that gives every match of the distinct fingerprints $1 within the distance $2.
--   probes  range scans of the index, in the order of keys, so that neighbours are read one after another
--   join    a hash join of the queries with the rows, on prefixes
CREATE FUNCTION simsql._near_many_statements(index simsql.registry, queries bigint, rows bigint, distance integer,
                                             scope jsonb DEFAULT NULL, OUT strategy text, OUT statements text[])
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    design record;
    search_cost double precision;
    rows_in_scope constant text := simsql._in_scope(index, scope, 't');
BEGIN
    design := simsql._join_design(queries, rows, distance);
    SELECT queries * (c.probe * s.probes + c.candidate * s.share * rows) INTO search_cost
      FROM simsql._costs() AS c
     CROSS JOIN simsql._searches(index.blocks, index.lead, index.inner_blocks, ARRAY[distance]) AS s;
    strategy := CASE WHEN least(design.cost, search_cost) >= 0.025 * queries * rows THEN 'scan'
                     WHEN design.cost < search_cost THEN 'join' ELSE 'probes' END;
    CASE strategy
    WHEN 'scan' THEN
        statements := ARRAY[format(
            'SELECT DISTINCT q.fp, t.%1$I, bit_count((t.%1$I # q.fp)::bit(64))::integer '
            'FROM unnest($1) AS q (fp) JOIN ONLY %2$s AS t ON bit_count((t.%1$I # q.fp)::bit(64)) <= $2%3$s',
            index.column_name, index.table_name, rows_in_scope)];
    WHEN 'join' THEN
        statements := ARRAY(
            SELECT format(
                'SELECT DISTINCT q.fp, t.%1$I, bit_count((t.%1$I # q.fp)::bit(64))::integer '
                'FROM (SELECT fp, (fp & %3$L::bigint) # flip AS prefix '
                'FROM unnest($1) AS u (fp) CROSS JOIN unnest(%4$L::bigint[]) AS f (flip)) AS q '
                'JOIN ONLY %2$s AS t ON (t.%1$I & %3$L::bigint) = q.prefix '
                'WHERE bit_count((t.%1$I # q.fp)::bit(64)) <= $2%5$s%6$s',
                index.column_name, index.table_name, t.lead_mask, t.flips, t.not_earlier, rows_in_scope)
              FROM simsql._join_tables(design.blocks, design.lead, 0, distance, 'q.fp', format('t.%I', index.column_name)) AS t);
    ELSE
        statements := ARRAY(
            SELECT format(
                'SELECT m.query, m.fingerprint, m.distance FROM ('
                'SELECT DISTINCT p.fp AS query, %1$s AS fingerprint, bit_count((k.key # p.center)::bit(64))::integer AS distance '
                -- OFFSET 0: see _search_statement.
                'FROM (SELECT q.fp, q.center, (q.center # flip) & %4$L::bigint AS low, (q.center # flip) | %5$L::bigint AS high '
                'FROM (SELECT fp, %2$s AS center FROM unnest($1) AS u (fp)) AS q '
                'CROSS JOIN unnest(%3$L::bigint[]) AS f (flip) ORDER BY 3 OFFSET 0) AS p '
                -- LATERAL and OFFSET 0: the planner may not compare all ranges with each key in turn, which it takes
                -- to be cheaper for some ten thousand queries.
                'CROSS JOIN LATERAL (SELECT r.key FROM simsql.keys_%6$s_%7$s AS r '
                'WHERE r.key >= p.low AND r.key <= p.high AND bit_count((r.key # p.center)::bit(64)) <= $2%11$s OFFSET 0) AS k '
                'WHERE true%8$s) AS m '
                'WHERE EXISTS (SELECT FROM ONLY %9$s AS t WHERE t.%10$I = m.fingerprint%12$s)',
                simsql._unpermute('k.key', t.lead_mask), simsql._permute('fp', t.lead_mask),
                ARRAY(SELECT f << (64 - t.prefix)
                        FROM unnest(simsql._flips(t.prefix, simsql._radius(
                                 index.blocks, index.lead, index.inner_blocks, t.number, distance))) AS f),
                -1::bigint << (64 - t.prefix), ~(-1::bigint << (64 - t.prefix)),
                index.id, t.number, replace(t.not_earlier, '?', simsql._unpermute('k.key', t.lead_mask)), index.table_name,
                index.column_name, simsql._in_scope(index, scope, 'r'), rows_in_scope)
              FROM simsql._join_tables(index.blocks, index.lead, index.inner_blocks, distance, 'p.fp', '?') AS t);
    END CASE;
END
$$;

-- How many keys a search for so many fingerprints has to reckon with. A table is measured: a key takes 36 bytes of it, and
-- the planner's own estimate may be old. A scope is counted, but no further than to where searches in the index are the
-- cheapest way however many there are; counting a key takes a 25th of the time of a probe.
CREATE FUNCTION simsql._expected_keys(index simsql.registry, queries bigint, distance integer, scope jsonb) RETURNS bigint
LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET max_parallel_workers_per_gather = 0
AS $$
DECLARE
    keys bigint;
BEGIN
    IF cardinality(index.scope_columns) = 0 THEN
        RETURN pg_relation_size(format('simsql.keys_%s_0', index.id)) / 36;
    END IF;
    EXECUTE format('SELECT count(*) FROM (SELECT FROM simsql.keys_%s_0 AS k WHERE true%s LIMIT $1) AS c', index.id,
                   simsql._in_scope(index, scope, 'k'))
       INTO keys
      USING (SELECT least(25 * s.probes * (queries + 1), 1e15)::bigint
               FROM simsql._searches(index.blocks, index.lead, index.inner_blocks, ARRAY[distance]) AS s);
    RETURN keys;
END
$$;

-- Parallel workers share the rows of a hash join; a search table by table needs the settings of near. Within a scope
-- the table is read by its B-tree, whatever the planner thinks of that.
CREATE FUNCTION simsql.near_many(
    table_name regclass, fingerprints bigint[], distance integer DEFAULT NULL, column_name text DEFAULT NULL,
    scope jsonb DEFAULT NULL)
RETURNS SETOF simsql.query_match
LANGUAGE plpgsql STABLE
SET jit = off SET enable_mergejoin = off SET enable_seqscan = on SET enable_bitmapscan = off
SET enable_hashjoin = on SET enable_hashagg = off SET parallel_tuple_cost = 0
AS $$
DECLARE
    index constant simsql.registry := simsql._searched_index($1, $4, $5);
    asked constant integer := simsql._distance($3, index.distance);
    queries constant bigint[] := ARRAY(SELECT DISTINCT q FROM unnest($2) AS q WHERE q IS NOT NULL);
    plan record;
    statement text;
    of_statement bigint;
    found_matches bigint := 0;
BEGIN
    plan := simsql._near_many_statements(
        index, cardinality(queries), simsql._expected_keys(index, cardinality(queries), asked, $5), asked, $5);
    IF plan.strategy = 'probes' THEN
        PERFORM set_config('enable_seqscan', 'off', true), set_config('enable_hashjoin', 'off', true);
    ELSIF $5 IS NOT NULL THEN
        PERFORM set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'on', true);
    END IF;
    FOREACH statement IN ARRAY plan.statements LOOP
        RETURN QUERY EXECUTE statement || ' LIMIT 100000001' USING queries, asked;
        GET DIAGNOSTICS of_statement := ROW_COUNT;
        found_matches := found_matches + of_statement;
        PERFORM simsql._refuse_more(found_matches, 'matches', asked);
    END LOOP;
END
$$;

COMMENT ON FUNCTION simsql.near_many(regclass, bigint[], integer, text, jsonb) IS
    'what simsql.near finds for each of these fingerprints; one that is given twice is searched for once';

CREATE FUNCTION simsql.near_many(
    table_name regclass, query_table regclass, query_column text, distance integer DEFAULT NULL,
    column_name text DEFAULT NULL, scope jsonb DEFAULT NULL)
RETURNS SETOF simsql.query_match
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    column_type text := (SELECT format_type(a.atttypid, a.atttypmod) FROM pg_attribute AS a
                          WHERE a.attrelid = $2 AND a.attname = $3 AND a.attnum > 0 AND NOT a.attisdropped);
    recipe_of_queries constant text := (SELECT r.recipe FROM simsql.registry AS r WHERE r.table_id = $2 AND r.column_name = $3);
    index simsql.registry;
    queries bigint[];
BEGIN
    IF column_type IS NULL THEN
        RAISE EXCEPTION 'simsql.near_many: % has no column %', coalesce($2::text, 'NULL'), coalesce(quote_ident($3), 'NULL')
            USING ERRCODE = 'undefined_column', HINT = 'Name the table of the queries and its column of fingerprints.';
    ELSIF column_type NOT IN ('bigint', 'integer', 'smallint') THEN
        RAISE EXCEPTION 'simsql.near_many: column % of % is %, not bigint', quote_ident($3), $2, column_type
            USING ERRCODE = 'datatype_mismatch', HINT = 'simsql.fp makes the bigint of an unsigned decimal.';
    END IF;
    IF recipe_of_queries IS NOT NULL THEN
        index := simsql._searched_index($1, $5, $6);
        IF recipe_of_queries <> index.recipe THEN
            RAISE EXCEPTION 'simsql.near_many: fingerprints of %(%) are of the recipe %, and those of %(%) of %', $1,
                            quote_ident(index.column_name), index.recipe, $2, quote_ident($3), recipe_of_queries
                USING ERRCODE = 'object_not_in_prerequisite_state',
                      HINT = 'Between them a distance means nothing: make those of one anew by the recipe of the other.';
        END IF;
    END IF;
    EXECUTE format('SELECT array_agg(DISTINCT q.%I::bigint) FROM %s AS q', $3, $2) INTO queries;
    RETURN QUERY SELECT * FROM simsql.near_many($1, coalesce(queries, '{}'), $4, $5, $6);
END
$$;

COMMENT ON FUNCTION simsql.near_many(regclass, regclass, text, integer, text, jsonb) IS
    'what simsql.near finds for each fingerprint in a column of another table or view';


-- claim: a search before an insert that holds beside other writers.
--
-- Two transactions that look for near-duplicates and then insert do not see each other's rows. So whoever is about
-- to insert locks the blocks of the fingerprint first. Fingerprints that differ in up to k bits agree in at least one of
-- k + 1 blocks: of two such claims, the second waits until the first transaction has ended, and then searches.

-- A hash that all values of a scope have in common which its columns take for equal.
CREATE FUNCTION simsql._scope_hash(index simsql.registry, scope jsonb) RETURNS bigint
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    hash bigint := 0;
BEGIN
    IF cardinality(index.scope_columns) > 0 THEN
        EXECUTE (SELECT format('SELECT hash_record_extended(ROW(%s), 0)',
                               string_agg(format('CAST(%L AS %s)%s', $2 ->> s.column_name, s.type,
                                                 ' COLLATE ' || nullif(a.attcollation, 0)::regcollation), ', ' ORDER BY s.number))
                   FROM simsql._scope_columns(index) AS s
                   JOIN pg_attribute AS a
                     ON a.attrelid = to_regclass(format('simsql.keys_%s_0', index.id)) AND a.attname = s.name)
           INTO hash;
    END IF;
    RETURN hash;
END
$$;

-- The advisory locks of a claim, in the order in which every claim takes them: so no two claims wait for one
-- another. A lock is a hash of the index, the scope, the number of blocks, the number of the block and its bits; where
-- two hashes are equal by chance, a claim waits in vain.
-- Claims at different distances have to meet too, where the nearer of them would find the other. So k is that of the index
-- for lower distances too, and for higher ones the number of blocks is doubled until it suffices; of each number
-- on the way all blocks are locked, because others may have stopped there. More blocks than bits are one lock for the index.
CREATE FUNCTION simsql._claim_locks(
    index_id integer, scope_hash bigint, fingerprint bigint, of_index integer, distance integer)
RETURNS SETOF bigint
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$
    SELECT hashtextextended(format('simsql.claim %s %s %s %s %s', $1, $2, blocks, number,
                                   substring($3::bit(64) FROM first + 1 FOR next - first)), 0) AS lock
      FROM generate_series(0, 7) AS doubled
     CROSS JOIN LATERAL CAST(least(($4 + 1) << doubled, 65) AS integer) AS blocks
     CROSS JOIN LATERAL generate_series(0, CASE WHEN blocks > 64 THEN 0 ELSE blocks - 1 END) AS number
     CROSS JOIN LATERAL (SELECT number * 64 / blocks AS first, (number + 1) * 64 / blocks AS next) AS bits
     WHERE doubled = 0 OR ($4 + 1) << (doubled - 1) <= least($5, 64)
     ORDER BY lock
$$;

CREATE FUNCTION simsql.claim(
    table_name regclass, fingerprint bigint, distance integer DEFAULT NULL, column_name text DEFAULT NULL,
    scope jsonb DEFAULT NULL)
RETURNS SETOF simsql.match
LANGUAGE plpgsql VOLATILE ROWS 1
AS $$
DECLARE
    index simsql.registry;
    asked integer;
    lock bigint;
BEGIN
    -- The search below is a statement of its own, with a snapshot from after the locks, because this function is
    -- VOLATILE and the transaction READ COMMITTED. With an older one it would not see what it has waited for.
    PERFORM simsql._check_read_committed('claim');
    index := simsql._searched_index($1, $4, $5);
    asked := simsql._distance($3, index.distance);
    FOR lock IN SELECT l FROM simsql._claim_locks(index.id, simsql._scope_hash(index, $5), $2, index.distance, asked) AS l LOOP
        PERFORM pg_advisory_xact_lock(lock);
    END LOOP;
    RETURN QUERY SELECT n.fingerprint, n.distance
                   FROM simsql.near($1, $2, asked, index.column_name, $5) AS n
                  ORDER BY n.distance, n.fingerprint LIMIT 1;
END
$$;

COMMENT ON FUNCTION simsql.claim(regclass, bigint, integer, text, jsonb) IS
    'before an insert: waits for other claims of near fingerprints to end, then gives the nearest one that a row has, or no row';


-- The clusters that pairs within a distance form: fingerprints of live rows, with the caller's rights and snapshot.

-- Connected components by union-find: linear in the pairs, without temporary tables, so that it also
-- runs in a read-only transaction. The root of a cluster is its smallest fingerprint.
CREATE FUNCTION simsql.clusters(
    table_name regclass, distance integer DEFAULT NULL, column_name text DEFAULT NULL, scope jsonb DEFAULT NULL)
RETURNS SETOF simsql.member
LANGUAGE plpgsql STABLE
SET enable_mergejoin = off SET jit = off
AS $$
DECLARE
    index constant simsql.registry := simsql._searched_index($1, $3, $4);
    asked constant integer := simsql._distance($2, index.distance);
    vertices constant bigint[] := simsql._fingerprints(index, $4);
    parents integer[] := ARRAY(SELECT generate_series(1, cardinality(vertices)));
    statement text;
    found_pairs bigint := 0;
    edge record;
    x integer;
    y integer;
BEGIN
    FOR statement IN SELECT s FROM simsql._pairs_statements(cardinality(vertices), asked) AS s LOOP
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
    -- A parent never stands behind its child: one pass upwards finds every root.
    FOR number IN 1 .. cardinality(vertices) LOOP
        parents[number] := parents[parents[number]];
    END LOOP;
    RETURN QUERY EXECUTE format(
        'SELECT r.fp, c.fp'
        '  FROM (SELECT v.fp, v.root, count(*) OVER (PARTITION BY v.root) AS size'
        '          FROM unnest($1, $2) AS v (fp, root)) AS c'
        '  JOIN unnest($1) WITH ORDINALITY AS r (fp, number) ON r.number = c.root'
        ' WHERE c.size > 1'
        '    OR c.fp IN (SELECT t.%1$I FROM ONLY %2$s AS t WHERE true%3$s GROUP BY t.%1$I HAVING count(*) > 1)'
        ' ORDER BY 1, 2', index.column_name, index.table_name, simsql._in_scope(index, $4, 't'))
        USING vertices, parents;
END
$$;

COMMENT ON FUNCTION simsql.clusters(regclass, integer, text, jsonb) IS
    'connected components of the pairs: every fingerprint that two rows share or that has a neighbour, '
    'with the smallest fingerprint of its cluster';


-- What bulk work in Python needs: fingerprints in few big pieces, and whether a load may write keys itself.

-- The fingerprints of the rows that begin in these pages of a table, eight bytes each, one behind the other; null
-- where there are none. Without a number of pages, those of all pages from the first on. The text names the
-- pages, so that each piece is planned as what it is: a scan of these pages.
CREATE FUNCTION simsql._packed_fingerprints(table_id regclass, column_name text, first bigint, pages bigint)
RETURNS bytea
LANGUAGE plpgsql STABLE
SET enable_tidscan = on
AS $$
DECLARE
    packed bytea;
BEGIN
    EXECUTE format('SELECT string_agg(int8send(t.%1$I), '''') FROM ONLY %2$s AS t '
                   'WHERE t.ctid >= %3$L::tid%4$s',
                   $2, $1, format('(%s,0)', $3),
                   CASE WHEN $4 IS NOT NULL THEN format(' AND t.ctid < ''(%s,0)''::tid', $3 + $4) END)
       INTO packed;
    RETURN packed;
END
$$;

-- The same of one scope, and for a role that may read columns alone, and so no places of rows: all at once, so many to a
-- piece.
CREATE FUNCTION simsql._packed_column(index simsql.registry, scope jsonb, size bigint) RETURNS SETOF bytea
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN QUERY EXECUTE format(
        'SELECT string_agg(int8send(n.f), '''') '
        'FROM (SELECT t.%1$I AS f, (row_number() OVER () - 1) / $1 AS piece FROM ONLY %2$s AS t '
        'WHERE t.%1$I IS NOT NULL%3$s) AS n GROUP BY n.piece',
        index.column_name, index.table_name, simsql._in_scope(index, scope, 't')) USING $3;
END
$$;

-- The fingerprints of all rows of an indexed table, in pieces of so many pages, or those of a scope. Called in a list
-- of results, not behind FROM, it makes them one at a time. The last piece has no end: between the measuring of the table and
-- the first scan, which locks it, a change of the whole table may have made it longer.
CREATE FUNCTION simsql._packed_pieces(table_name regclass, column_name text, pages bigint, scope jsonb DEFAULT NULL)
RETURNS SETOF bytea
LANGUAGE sql STABLE
AS $$
    SELECT f.packed
      FROM simsql._searched_index($1, $2, $4) AS i
     CROSS JOIN LATERAL CAST(pg_relation_size(i.table_id) / current_setting('block_size')::bigint AS bigint) AS size
     CROSS JOIN LATERAL generate_series(0, size, $3) AS first
     CROSS JOIN LATERAL simsql._packed_fingerprints(
                            i.table_id, i.column_name, first, CASE WHEN first + $3 <= size THEN $3 END) AS f (packed)
     WHERE f.packed IS NOT NULL AND $4 IS NULL AND has_table_privilege(i.table_id, 'SELECT')
     UNION ALL
    SELECT f.packed
      FROM simsql._searched_index($1, $2, $4) AS i
     CROSS JOIN LATERAL simsql._packed_column(i, $4, $3 * 200) AS f (packed)
     WHERE $4 IS NOT NULL OR NOT has_table_privilege(i.table_id, 'SELECT')
$$;

-- The indexes without a scope of a table on these columns whose keys this session may write itself, the trigger being switched
-- off: it owns the table and the keys, no trigger of the user's changes or adds rows, and none waits for the end
-- of the transaction, during which PostgreSQL refuses to switch triggers. And PostgreSQL counts the rows that are
-- inserted: so the load finds out if there were more than its own.
CREATE FUNCTION simsql._loadable_indexes(table_name regclass, columns text[]) RETURNS SETOF simsql.registry
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    index simsql.registry;
BEGIN
    IF NOT current_setting('track_counts')::boolean
       OR EXISTS (SELECT FROM pg_class AS c WHERE c.oid = $1 AND NOT pg_has_role(c.relowner, 'USAGE'))
       OR EXISTS (SELECT FROM pg_trigger AS t
                    JOIN pg_proc AS p ON p.oid = t.tgfoid
                   WHERE t.tgrelid = $1
                     AND (t.tgdeferrable
                          OR NOT t.tgisinternal AND t.tgenabled <> 'D' AND p.pronamespace <> 'simsql'::regnamespace
                             AND t.tgtype & 4 <> 0))  -- INSERT
    THEN
        RETURN;
    END IF;
    FOR index IN SELECT r.* FROM simsql.registry AS r WHERE r.table_id = $1 AND r.column_name = ANY ($2) AND r.scope_columns = '{}' ORDER BY r.id LOOP
        -- What is wrong with an index, its trigger tells the writer, if it concerns writers.
        BEGIN
            index := simsql._index($1, index.column_name);
        EXCEPTION
            WHEN object_not_in_prerequisite_state OR undefined_object THEN CONTINUE;
        END;
        CONTINUE WHEN EXISTS (SELECT FROM simsql._permutations(index.blocks, index.lead, index.inner_blocks) AS p
                                JOIN pg_class AS k ON k.oid = to_regclass(format('simsql.keys_%s_%s', index.id, p.number))
                               WHERE NOT pg_has_role(k.relowner, 'USAGE'));
        RETURN NEXT index;
    END LOOP;
END
$$;

-- Keeps other writers out until the end of the transaction, and switches off the insert triggers of the indexes
-- whose keys this session may write itself: of these it has to add the keys of all that it inserts, then call
-- _end_load.
CREATE FUNCTION simsql._begin_load(table_name regclass, columns text[]) RETURNS SETOF simsql.registry
LANGUAGE plpgsql
AS $$
DECLARE
    index simsql.registry;
BEGIN
    -- An older snapshot than the lock may not show a trigger that fires.
    IF current_setting('transaction_isolation') <> 'read committed'
       OR NOT EXISTS (SELECT FROM simsql._loadable_indexes($1, $2))
    THEN
        RETURN;
    END IF;
    EXECUTE format('LOCK TABLE ONLY %s IN SHARE ROW EXCLUSIVE MODE', $1);
    FOR index IN SELECT * FROM simsql._loadable_indexes($1, $2) LOOP
        EXECUTE format('ALTER TABLE %s DISABLE TRIGGER simsql_%s_insert', $1, index.id);
        RETURN NEXT index;
    END LOOP;
EXCEPTION
    -- A cursor of this session reads the table.
    WHEN object_in_use THEN RETURN;
END
$$;

CREATE FUNCTION simsql._end_load(table_name regclass, index_id integer) RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    EXECUTE format('ALTER TABLE %s ENABLE ALWAYS TRIGGER simsql_%s_insert', $1, $2);
END
$$;


-- What a backfill in Python puts its statements together from: see simsql/database/backfill.py.

-- Raises unless the column can take fingerprints, the others hold text, and the rows can be updated by a primary key.
CREATE FUNCTION simsql._check_backfill(table_name regclass, column_name text, text_columns text[]) RETURNS void
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    attribute pg_attribute;
    named text;
BEGIN
    FOREACH named IN ARRAY $2 || $3 LOOP
        SELECT a.* INTO attribute FROM pg_attribute AS a
         WHERE a.attrelid = $1 AND a.attname = named AND a.attnum > 0 AND NOT a.attisdropped;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'simsql: % has no column %', $1, quote_ident(named) USING ERRCODE = 'undefined_column';
        ELSIF named = $2 AND attribute.attgenerated <> '' THEN
            RAISE EXCEPTION 'simsql: column % of % is generated: PostgreSQL computes it', quote_ident(named), $1
                USING ERRCODE = 'feature_not_supported';
        ELSIF named = $2 AND attribute.atttypid <> 'bigint'::regtype
              OR named <> $2 AND (SELECT y.typcategory FROM pg_type AS y WHERE y.oid = attribute.atttypid) <> 'S'
        THEN
            RAISE EXCEPTION 'simsql: column % of % is %, not %', quote_ident(named), $1,
                            format_type(attribute.atttypid, attribute.atttypmod),
                            CASE named WHEN $2 THEN 'bigint' ELSE 'text' END
                USING ERRCODE = 'datatype_mismatch';
        END IF;
    END LOOP;
    IF NOT EXISTS (SELECT FROM simsql._primary_key($1)) THEN
        RAISE EXCEPTION 'simsql: % has no primary key', $1
            USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'A backfill goes through a table by its primary key.';
    END IF;
END
$$;

-- The columns of a primary key, the last one first, and the schemas of the operators that it is sorted by.
CREATE FUNCTION simsql._primary_key(table_name regclass) RETURNS TABLE (place bigint, name text, type text, operators text)
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
     WHERE i.indrelid = $1 AND i.indisprimary AND k.place <= i.indnkeyatts
     ORDER BY k.place DESC
$$;

-- Expressions about the rows `t` of a table and about keys `v.key`, each of which is a JSON array with the values of a
-- primary key as text. They name the operators by which the key is sorted in full: where those of citext, for one, are
-- not on the search_path, PostgreSQL would compare text.
--   rows_of       the table, without what inherits from it
--   fingerprint   the column that takes fingerprints
--   texts         the texts of a row
--   needs_one     whether a row needs a fingerprint: it has a text and none, or, of all rows, a text or one
--   key           the key of a row
--   key_order     what to order rows by
--   same_key      whether a row has the key
--   later_key     whether a row comes behind the key
CREATE FUNCTION simsql._backfill_parts(
    table_name regclass, column_name text, text_columns text[], all_rows boolean,
    OUT rows_of text, OUT fingerprint text, OUT texts text, OUT needs_one text,
    OUT key text, OUT key_order text, OUT same_key text, OUT later_key text)
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    part record;
    value text;
    given text;
    schemas text[] := '{}';
BEGIN
    PERFORM simsql._check_backfill($1, $2, $3);
    SELECT format('%s%I.%I', CASE c.relkind WHEN 'r' THEN 'ONLY ' END, n.nspname, c.relname), quote_ident($2)
      INTO rows_of, fingerprint
      FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
     WHERE c.oid = $1;
    SELECT format('ARRAY[%s]', string_agg(format('CAST(t.%I AS pg_catalog.text)', u.name), ', ' ORDER BY u.place)),
           string_agg(format('t.%I IS NOT NULL', u.name), ' OR ' ORDER BY u.place)
      INTO texts, needs_one
      FROM unnest($3) WITH ORDINALITY AS u (name, place);
    needs_one := format(CASE WHEN $4 THEN '(%1$s OR t.%2$I IS NOT NULL)' ELSE '((%1$s) AND t.%2$I IS NULL)' END, needs_one, $2);
    FOR part IN SELECT * FROM simsql._primary_key($1) LOOP
        value := format('CAST(v.key OPERATOR(pg_catalog.->>) %s AS %s)', part.place - 1, part.type);
        key := concat_ws(', ', format('CAST(t.%I AS pg_catalog.text)', part.name), key);
        key_order := concat_ws(', ', format('t.%I', part.name), key_order);
        given := concat_ws(', ', value, given);
        same_key := concat_ws(' AND ', format('t.%I OPERATOR(%I.=) %s', part.name, part.operators, value), same_key);
        later_key := format('(t.%1$I OPERATOR(%2$I.>) %3$s OR t.%1$I OPERATOR(%2$I.=) %3$s AND %4$s)',
                            part.name, part.operators, value, coalesce(later_key, 'false'));
        schemas := schemas || part.operators;
    END LOOP;
    -- As one comparison, wherever it can be written as one, it is a range of the key's B-tree.
    IF schemas[1] = ALL (schemas) THEN
        later_key := format('ROW(%s) OPERATOR(%I.>) ROW(%s)', key_order, schemas[1], given);
    END IF;
    key := format('CAST(pg_catalog.jsonb_build_array(%s) AS pg_catalog.text)', key);
END
$$;


-- clear_on_change: a fingerprint whose text was changed by a writer who knows nothing of it becomes NULL.

-- Sets the fingerprint of the new row to NULL. The column is that of the trigger's companion, which knows it by number, as
-- the catalogue and pg_dump carry it along: a rename of the column changes nothing here.
CREATE FUNCTION simsql._clear_fingerprint() RETURNS trigger
LANGUAGE plpgsql
AS $$
DECLARE
    column_name constant text := (
        SELECT (pg_identify_object_as_address('pg_class'::regclass, TG_RELID, t.tgattr[0])).object_names[3]
          FROM pg_trigger AS t
         WHERE t.tgrelid = TG_RELID AND t.tgname = TG_NAME || '_column');
BEGIN
    IF column_name IS NULL THEN
        RAISE EXCEPTION 'simsql: trigger %_column of % is missing, or newer than the snapshot of this transaction',
                        TG_NAME, TG_RELID::regclass
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = 'Begin a new transaction. If that is of no use, call simsql.clear_on_change for the column again.';
    END IF;
    RETURN jsonb_populate_record(NEW, jsonb_build_object(column_name, NULL));
END
$$;

-- The triggers of clear_on_change for a column, the one that fires and its companion, which never does.
CREATE FUNCTION simsql._clearing_triggers(table_name regclass, column_name text) RETURNS SETOF text
LANGUAGE sql STABLE
AS $$
    SELECT n.name
      FROM pg_trigger AS t
      JOIN pg_attribute AS a ON a.attrelid = t.tgrelid AND a.attnum = t.tgattr[0]
     CROSS JOIN LATERAL (VALUES (t.tgname::text), (substring(t.tgname FROM '^(.*)_column$'))) AS n (name)
     WHERE t.tgrelid = $1 AND t.tgname ~ '^zz_simsql_clear_\d+_column$' AND a.attname = $2
$$;

-- The name makes the trigger one of the last to fire before the update: it sees what others make of the text.
-- Texts are compared byte by byte, whatever their type and collation take for equal.
CREATE FUNCTION simsql.clear_on_change(table_name regclass, column_name text, sources text[]) RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    name text;
    generated "char";
    number integer;
    changed text;
BEGIN
    IF $1 IS NULL OR $2 IS NULL OR coalesce(cardinality($3), 0) = 0 OR array_position($3, NULL) IS NOT NULL THEN
        RAISE EXCEPTION 'simsql.clear_on_change: the table, the column and its sources have to be named'
            USING ERRCODE = 'null_value_not_allowed',
                  HINT = 'As in SELECT simsql.clear_on_change(''article'', ''fingerprint'', ARRAY[''body'']);';
    END IF;
    FOREACH name IN ARRAY $2 || $3 LOOP
        SELECT a.attgenerated INTO generated FROM pg_attribute AS a
         WHERE a.attrelid = $1 AND a.attname = name AND a.attnum > 0 AND NOT a.attisdropped;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'simsql.clear_on_change: % has no column %', $1, quote_ident(name)
                USING ERRCODE = 'undefined_column';
        ELSIF generated <> '' THEN
            RAISE EXCEPTION 'simsql.clear_on_change: column % of % is generated', quote_ident(name), $1
                USING ERRCODE = 'feature_not_supported', HINT = 'Name the columns that it is made of.';
        END IF;
    END LOOP;
    IF $2 = ANY ($3) THEN
        RAISE EXCEPTION 'simsql.clear_on_change: column % of % is no source of itself', quote_ident($2), $1
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Name the columns that hold the text.';
    END IF;
    FOR name IN SELECT simsql._clearing_triggers($1, $2) LOOP
        EXECUTE format('DROP TRIGGER IF EXISTS %I ON %s', name, $1);
    END LOOP;
    SELECT coalesce(max(substring(t.tgname FROM '^zz_simsql_clear_(\d+)')::integer), 0) + 1 INTO number
      FROM pg_trigger AS t WHERE t.tgrelid = $1 AND t.tgname ~ '^zz_simsql_clear_\d+';
    SELECT string_agg(format('OLD.%1$I::text COLLATE "C" IS DISTINCT FROM NEW.%1$I::text COLLATE "C"', s), ' OR ')
      INTO changed FROM unnest($3) AS s;
    EXECUTE format('CREATE TRIGGER zz_simsql_clear_%1$s BEFORE UPDATE ON %2$s FOR EACH ROW '
                   'WHEN (NEW.%3$I IS NOT NULL AND OLD.%3$I IS NOT DISTINCT FROM NEW.%3$I AND (%4$s)) '
                   'EXECUTE FUNCTION simsql._clear_fingerprint()', number, $1, $2, changed);
    EXECUTE format('CREATE TRIGGER zz_simsql_clear_%1$s_column AFTER UPDATE OF %3$I ON %2$s FOR EACH STATEMENT '
                   'WHEN (false) EXECUTE FUNCTION simsql._clear_fingerprint()', number, $1, $2);
END
$$;

COMMENT ON FUNCTION simsql.clear_on_change(regclass, text, text[]) IS
    'let an UPDATE that changes a source and leaves the fingerprint as it is set the fingerprint to NULL, by a trigger';

CREATE FUNCTION simsql.drop_clear_on_change(table_name regclass, column_name text) RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    name text;
BEGIN
    FOR name IN SELECT simsql._clearing_triggers($1, $2) LOOP
        EXECUTE format('DROP TRIGGER IF EXISTS %I ON %s', name, $1);
    END LOOP;
    IF name IS NULL THEN
        RAISE EXCEPTION 'simsql.drop_clear_on_change: nothing clears column % of %', coalesce(quote_ident($2), 'NULL'),
                        coalesce($1::text, 'NULL')
            USING ERRCODE = 'undefined_object', HINT = 'simsql.clear_on_change makes the trigger that this drops.';
    END IF;
END
$$;

COMMENT ON FUNCTION simsql.drop_clear_on_change(regclass, text) IS 'drop what simsql.clear_on_change has made';


-- uninstall: simsql leaves the database as it found it, apart from the user's columns and their B-trees.

-- What of others' would go with the schema: views, columns, functions and the like that use something in it. Triggers
-- are not among them: those on users' tables that call simsql are its own.
CREATE FUNCTION simsql._dependents() RETURNS SETOF text
LANGUAGE sql STABLE
AS $$
    SELECT DISTINCT pg_describe_object(d.classid, d.objid, d.objsubid)
      FROM (SELECT 'pg_proc'::regclass, oid FROM pg_proc WHERE pronamespace = 'simsql'::regnamespace
             UNION ALL
            SELECT 'pg_class'::regclass, oid FROM pg_class WHERE relnamespace = 'simsql'::regnamespace
             UNION ALL
            SELECT 'pg_type'::regclass, oid FROM pg_type WHERE typnamespace = 'simsql'::regnamespace) AS own (class, id)
      JOIN pg_depend AS d ON d.refclassid = own.class AND d.refobjid = own.id AND d.deptype = 'n'
     CROSS JOIN LATERAL pg_identify_object_as_address(d.classid, d.objid, d.objsubid) AS address
     WHERE d.classid <> 'pg_trigger'::regclass AND address.object_names[1] <> 'simsql'
$$;

CREATE FUNCTION simsql.uninstall(drop_indexes boolean DEFAULT false) RETURNS void
LANGUAGE plpgsql
SET client_min_messages = warning  -- not a notice for everything that goes
AS $$
DECLARE
    found text;
BEGIN
    IF NOT pg_has_role((SELECT nspowner FROM pg_namespace WHERE nspname = 'simsql'), 'USAGE') THEN
        RAISE EXCEPTION 'simsql.uninstall: must be owner of schema simsql' USING ERRCODE = 'insufficient_privilege';
    END IF;
    LOCK TABLE simsql.registry IN ACCESS EXCLUSIVE MODE;  -- nobody creates another index meanwhile
    SELECT string_agg(format('%s(%I)', i.table_name, i.column_name), ', ' ORDER BY i.id) INTO found
      FROM simsql.indexes AS i
     WHERE i.state <> 'table dropped' AND NOT coalesce(drop_indexes, false);
    IF found IS NOT NULL THEN
        RAISE EXCEPTION 'simsql.uninstall: there are simhash indexes: %', found
            USING ERRCODE = 'dependent_objects_still_exist',
                  HINT = 'Drop them first, or have them dropped: SELECT simsql.uninstall(drop_indexes => true); or '
                         'simsql uninstall --drop-indexes. Columns and their B-trees stay.';
    END IF;
    SELECT string_agg(d, ', ' ORDER BY d) INTO found FROM simsql._dependents() AS d;
    IF found IS NOT NULL THEN
        RAISE EXCEPTION 'simsql.uninstall: simsql is used by %', found
            USING ERRCODE = 'dependent_objects_still_exist', HINT = 'Drop or change them first.';
    END IF;
    DROP SCHEMA simsql CASCADE;
END
$$;

COMMENT ON FUNCTION simsql.uninstall(boolean) IS
    'remove simsql from this database; refuses while there are simhash indexes, unless these are to be dropped';


-- The last file: every function looks names up in pg_catalog alone. Otherwise a role that may create
-- functions in a schema on somebody's search_path could have them called, with that caller's rights:
-- a better match than pg_catalog's format(text, VARIADIC "any") is easily made.

DO $$
DECLARE
    signature text;
BEGIN
    FOR signature IN
        SELECT p.oid::regprocedure::text FROM pg_proc AS p
         WHERE p.pronamespace = 'simsql'::regnamespace
           AND p.prokind = 'f'  -- a procedure with settings could not commit: these name everything in full
           AND p.prosqlbody IS NULL  -- else its names were looked up when it was created, and it stays inlinable
    LOOP
        EXECUTE format('ALTER FUNCTION %s SET search_path = pg_catalog, pg_temp', signature);
    END LOOP;
END
$$;


INSERT INTO simsql.schema_version (version_num) VALUES ('0001') RETURNING simsql.schema_version.version_num;

COMMIT;

