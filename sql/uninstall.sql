-- uninstall: leaves the database as it was before simsql, except for the user's columns and their B-trees.

-- One attempt: see locks.sql.

CREATE OR REPLACE FUNCTION simsql._uninstall(drop_indexes boolean) RETURNS void
LANGUAGE plpgsql
SET client_min_messages = warning  -- no notice for each dropped object
AS $$
DECLARE
    found text;
BEGIN
    PERFORM simsql._lock_all('ACCESS EXCLUSIVE');
    SELECT string_agg(format('%s(%I)', i.table_name, i.column_name), ', ' ORDER BY i.id) INTO found
      FROM simsql.indexes AS i
     WHERE i.state <> 'table dropped' AND NOT coalesce(drop_indexes, false);
    IF found IS NOT NULL THEN
        RAISE EXCEPTION 'simsql.uninstall: simhash indexes exist: %', found
            USING ERRCODE = 'dependent_objects_still_exist',
                  HINT = format('Drop them first, or together with simsql: %s Columns and their B-trees stay.',
                                simsql._call('uninstall', '{}', '{"drop_indexes": true}'));
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
    PERFORM simsql._expression_drop(simsql._unknown_index(u.id)) FROM simsql._unknown_indexes() AS u;
    DROP SCHEMA simsql CASCADE;
END
$$;

CREATE OR REPLACE FUNCTION simsql.uninstall(drop_indexes boolean DEFAULT false) RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    IF NOT pg_has_role((SELECT nspowner FROM pg_namespace WHERE nspname = 'simsql'), 'USAGE') THEN
        RAISE EXCEPTION 'simsql.uninstall: must be owner of schema simsql'
            USING ERRCODE = 'insufficient_privilege',
                  HINT = (SELECT format('Uninstall it as %s or a superuser.', n.nspowner::regrole)
                            FROM pg_namespace AS n WHERE n.nspname = 'simsql');
    END IF;
    PERFORM simsql._patiently(format('SELECT simsql._uninstall(%L)', drop_indexes),
                              ARRAY(SELECT simsql._relations_of_all('ACCESS EXCLUSIVE')),
                              'ACCESS EXCLUSIVE', 'simsql.uninstall', 'the indexed tables');
END
$$;

COMMENT ON FUNCTION simsql.uninstall(boolean) IS
    'remove simsql from this database; refuses if there are simhash indexes, unless drop_indexes is true';
