-- Privileges: every object of simsql has those that are granted here, whatever default privileges would grant.
--
-- ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO app also grants what an installation and create_index make.
-- With it, app could put a trigger on a key table, which would run with the privileges of the index's owner.
--
-- What an administrator grants stays, if docs/reference/permissions.md tells to grant it: USAGE on the schema,
-- EXECUTE on functions, and the privileges of roles that create indexes.

-- The objects that have privileges, the index that they belong to, and two privileges: `granted` is the one that
-- PUBLIC has, and `harmless` may be granted to any role. An administrator may take USAGE on the schema from PUBLIC, but a
-- schema without any grant comes from pg_restore --no-acl.
CREATE OR REPLACE FUNCTION simsql._objects()
RETURNS TABLE (kind text, type "char", name text, owner oid, acl aclitem[], granted text, harmless text,
               index_id integer)
LANGUAGE sql STABLE
AS $$
    SELECT 'SCHEMA', 'n', 'simsql', n.nspowner, n.nspacl, CASE WHEN n.nspacl IS NULL THEN 'USAGE' END,
           'USAGE', NULL::integer
      FROM pg_namespace AS n WHERE n.nspname = 'simsql'
     UNION ALL
    SELECT 'TYPE', 'T', format('simsql.%I', t.typname), t.typowner, t.typacl, 'USAGE', 'USAGE', NULL
      FROM pg_type AS t LEFT JOIN pg_class AS c ON c.oid = t.typrelid
     WHERE t.typnamespace = 'simsql'::regnamespace AND t.typcategory <> 'A' AND coalesce(c.relkind, 'c') = 'c'
     UNION ALL
    SELECT CASE c.relkind WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END, CASE c.relkind WHEN 'S' THEN 's' ELSE 'r' END,
           format('simsql.%I', c.relname), c.relowner,
           -- Those of columns count as those of the table.
           coalesce(c.relacl, acldefault(CASE c.relkind WHEN 'S' THEN 's' ELSE 'r' END::"char", c.relowner))
           || ARRAY(SELECT i FROM pg_attribute AS a CROSS JOIN LATERAL unnest(a.attacl) AS i WHERE a.attrelid = c.oid),
           CASE WHEN c.relname IN ('registry', 'schema_version', 'indexes', 'problems', '_searchable', '_claim_keys', '_restored')
                     OR c.relname ~ '^keys_\d+_\d+$' THEN 'SELECT' END,
           CASE WHEN c.relname <> '_claim_secret' THEN 'SELECT' END,
           (regexp_match(c.relname, '^(keys|built)_(\d{1,9})(_\d+)?$'))[2]::integer
      FROM pg_class AS c
     WHERE c.relnamespace = 'simsql'::regnamespace AND c.relkind IN ('r', 'p', 'f', 'v', 'm', 'S')
     UNION ALL
    SELECT 'ROUTINE', 'f', p.oid::regprocedure::text, p.proowner, p.proacl,
           CASE WHEN p.proname !~ '^add_on_[a-z]+_\d+$' THEN 'EXECUTE' END,
           CASE WHEN p.proname !~ '^add_on_[a-z]+_\d+$' THEN 'EXECUTE' END,
           (regexp_match(p.proname, '^(search|scan|similar|rows|add_on_[a-z]+)_(\d{1,9})$'))[2]::integer
      FROM pg_proc AS p WHERE p.pronamespace = 'simsql'::regnamespace
$$;

-- Whether default privileges of an owner grant a privilege on what the owner creates in the schema.
CREATE OR REPLACE FUNCTION simsql._is_default(owner oid, type "char", grantee oid, privilege text) RETURNS boolean
LANGUAGE sql STABLE
AS $$
    SELECT EXISTS (
        SELECT FROM pg_default_acl AS d CROSS JOIN LATERAL aclexplode(d.defaclacl) AS a
         WHERE d.defaclrole = owner AND d.defaclobjtype = type
           AND d.defaclnamespace IN (0, 'simsql'::regnamespace)
           AND a.grantee = _is_default.grantee AND a.privilege_type = privilege)
$$;

-- The privileges that differ from those of this file, and the statement that corrects them. PUBLIC may lack EXECUTE,
-- because an administrator has revoked it; but if nobody except the owner can call a function that all others need, default
-- privileges did that, or a script that takes it from all functions. The functions that are not in `existing` are new.
CREATE OR REPLACE FUNCTION simsql._other_privileges(existing text[] DEFAULT NULL)
RETURNS TABLE (object text, index_id integer, problem text, statement text)
LANGUAGE sql STABLE
AS $$
    WITH object AS MATERIALIZED (
        SELECT o.kind, o.type, o.name, o.owner, o.granted, o.harmless, o.index_id,
               coalesce(o.acl, acldefault(o.type, o.owner)) AS acl
          FROM simsql._objects() AS o
    ), indexer AS MATERIALIZED (
        -- Roles that may create indexes: all of this was granted to them, and not by default privileges alone.
        SELECT a.grantee
          FROM object AS o CROSS JOIN LATERAL aclexplode(o.acl) AS a
         WHERE (o.name, a.privilege_type) IN (('simsql', 'CREATE'), ('simsql.registry', 'INSERT'),
                                              ('simsql.registry', 'UPDATE'), ('simsql.registry', 'DELETE'))
           AND a.grantee NOT IN (0, o.owner)
         GROUP BY a.grantee
        HAVING count(DISTINCT a.privilege_type) = 4
           AND NOT bool_and(simsql._is_default(o.owner, o.type, a.grantee, a.privilege_type))
    ), other AS (
        SELECT o.kind, o.name, o.index_id, a.grantee, a.privilege_type AS privilege, false AS is_missing
          FROM object AS o CROSS JOIN LATERAL aclexplode(o.acl) AS a
         WHERE a.privilege_type IS DISTINCT FROM o.harmless
           -- The schema may have another owner than what is in it.
           AND a.grantee NOT IN (o.owner, (SELECT c.relowner FROM pg_class AS c WHERE c.oid = 'simsql.registry'::regclass))
           AND NOT (o.name IN ('simsql', 'simsql.registry')
                    AND a.privilege_type IN ('CREATE', 'INSERT', 'UPDATE', 'DELETE')
                    AND a.grantee IN (SELECT i.grantee FROM indexer AS i))
           -- Enough to drop an index.
           AND NOT (o.name = 'simsql.registry' AND a.privilege_type = 'DELETE' AND a.grantee <> 0
                    AND NOT EXISTS (SELECT FROM aclexplode(o.acl) AS b
                                     WHERE b.grantee = a.grantee AND b.privilege_type IN ('INSERT', 'UPDATE')))
         UNION
        SELECT o.kind, o.name, o.index_id, w.grantee, w.privilege, true
          FROM object AS o
         CROSS JOIN LATERAL (
               SELECT d.grantee, d.privilege_type FROM aclexplode(acldefault(o.type, o.owner)) AS d
                WHERE d.grantee = o.owner
                UNION ALL
               SELECT 0, o.granted WHERE o.granted IS NOT NULL) AS w (grantee, privilege)
         WHERE NOT EXISTS (SELECT FROM aclexplode(o.acl) AS a
                            WHERE a.grantee = w.grantee AND a.privilege_type = w.privilege)
           AND (w.grantee <> 0 OR o.type <> 'f' OR o.index_id IS NOT NULL OR o.name <> ALL (existing)
                OR NOT EXISTS (SELECT FROM object AS f CROSS JOIN LATERAL aclexplode(f.acl) AS a
                                WHERE f.name = CASE WHEN o.name ~ '^simsql\._' THEN o.name ELSE 'simsql._full_name(oid)' END
                                  AND a.grantee <> f.owner
                                  AND (a.grantee = 0
                                       OR NOT simsql._is_default(f.owner, 'f', a.grantee, a.privilege_type))
                                  AND f.name = ANY (coalesce(existing, ARRAY[f.name]))))
    )
    SELECT o.name, o.index_id,
           CASE WHEN o.is_missing THEN 'privilege missing' ELSE 'privilege granted to others' END,
           format('%s %s ON %s %s %s %s;', CASE WHEN o.is_missing THEN 'GRANT' ELSE 'REVOKE' END,
                  string_agg(o.privilege, ', ' ORDER BY o.privilege), o.kind, o.name,
                  CASE WHEN o.is_missing THEN 'TO' ELSE 'FROM' END,
                  CASE o.grantee WHEN 0 THEN 'PUBLIC' ELSE o.grantee::regrole::text END
                  -- With what these roles have granted further.
                  || CASE WHEN o.is_missing OR o.grantee = 0 THEN '' ELSE ' CASCADE' END)
      FROM other AS o
     GROUP BY o.kind, o.name, o.index_id, o.grantee, o.is_missing
     ORDER BY o.name, o.is_missing, o.grantee
$$;

-- Corrects the privileges on the objects of an index or, without an id, on everything else.
CREATE OR REPLACE FUNCTION simsql._set_privileges(index_id integer DEFAULT NULL, existing text[] DEFAULT NULL)
RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    statement text;
BEGIN
    FOREACH statement IN ARRAY ARRAY(
        SELECT o.statement FROM simsql._other_privileges(existing) AS o
         WHERE o.index_id IS NOT DISTINCT FROM _set_privileges.index_id)
    LOOP
        PERFORM simsql._execute_here(statement);
    END LOOP;
END
$$;
