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
