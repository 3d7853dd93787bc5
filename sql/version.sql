-- The version tells a client what it can call.

CREATE OR REPLACE FUNCTION simsql.version() RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN '0.3.0'::text;

COMMENT ON FUNCTION simsql.version() IS 'version of the simsql schema in this database';
