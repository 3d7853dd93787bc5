-- The last step of an upgrade: it replaces the functions, triggers and policies of existing indexes by those
-- that create_index makes now.
--
-- Faults of an index remain, for verify to report and repair to remove. A missing trigger is not created. A
-- trigger that was disabled or altered does not become enabled, so searches refuse the index.

DO $$
DECLARE
    index simsql.registry;
    actual simsql.registry;
    trigger record;
    keys text;
    owner oid;
BEGIN
    FOR index IN SELECT r.* FROM simsql.registry AS r ORDER BY r.id LOOP
        actual := simsql._as_named(index);
        owner := simsql._owner(index);
        PERFORM simsql._create_functions(index);
        FOR trigger IN
            SELECT d.name, d.definition,
                   CASE WHEN t.tgqual IS NULL AND p.pronamespace = 'simsql'::regnamespace
                             AND p.proname = 'add_on_' || substring(d.name FROM '[a-z]+$') || '_' || index.id
                        THEN t.tgenabled ELSE 'O' END AS fires
              FROM simsql._triggers(actual) AS d
              JOIN pg_trigger AS t ON t.tgrelid = index.table_id AND t.tgname = d.name
              JOIN pg_proc AS p ON p.oid = t.tgfoid
             WHERE d.fires IS NOT NULL AND actual.table_name IS NOT NULL
        LOOP
            EXECUTE overlay(trigger.definition PLACING 'CREATE OR REPLACE' FROM 1 FOR length('CREATE'));
            PERFORM simsql._set_firing(index.table_id, trigger.name, trigger.fires);
        END LOOP;
        FOR keys IN
            SELECT c.oid::regclass
              FROM simsql._permutations(index.blocks, index.lead, index.inner_blocks) AS p
              JOIN pg_class AS c ON c.oid = to_regclass(format('simsql.keys_%s_%s', index.id, p.number)) AND c.relkind = 'r'
        LOOP
            IF EXISTS (SELECT FROM pg_policy AS p
                        WHERE p.polrelid = keys::regclass AND p.polname = 'readers') THEN
                EXECUTE format('ALTER POLICY readers ON %s USING (%s)', keys, simsql._policy(index));
            END IF;
            PERFORM simsql._keep_own(keys, 'DELETE');
        END LOOP;
        IF owner IS NOT NULL THEN
            PERFORM simsql._give(index, owner);
        END IF;
        -- The others keep their stamp, which differs now, until they are repaired.
        IF index.id = ANY (current_setting('simsql.sound')::integer[])
           AND array_position(simsql._key_table_ids(index), NULL) IS NULL
        THEN
            IF current_setting('simsql.compare', true) = 'on' THEN
                CONTINUE WHEN EXISTS (SELECT FROM simsql._add_missing_keys(index) AS a WHERE a.stored < a.missing);
            END IF;
            PERFORM simsql._stamp(index.id);
        END IF;
    END LOOP;
END
$$;

-- The companion of a trigger that clears stale fingerprints tells the sources, too, on which that one depends.
DO $$
DECLARE
    statement text;
BEGIN
    FOR statement IN
        SELECT overlay(d.definition PLACING 'CREATE OR REPLACE' FROM 1 FOR length('CREATE'))
          FROM pg_trigger AS c
          JOIN pg_trigger AS t ON t.tgrelid = c.tgrelid AND c.tgname = t.tgname || '_column'
          JOIN pg_attribute AS a ON a.attrelid = c.tgrelid AND a.attnum = c.tgattr[0]
         CROSS JOIN LATERAL (
               SELECT jsonb_object_agg(s.attname, 1)
                 FROM pg_depend AS u
                 JOIN pg_attribute AS s ON s.attrelid = u.refobjid AND s.attnum = u.refobjsubid
                WHERE u.classid = 'pg_trigger'::regclass AND u.objid = t.oid
                  AND u.refclassid = 'pg_class'::regclass AND u.refobjid = t.tgrelid
                  AND u.refobjsubid > 0 AND s.attnum <> a.attnum) AS s (sources)
         CROSS JOIN LATERAL simsql._clearing(c.tgrelid, a.attname, simsql._source_names(s.sources),
                                             substring(t.tgname FROM '\d+')) AS d
         WHERE c.tgname ~ '^zz_simsql_clear_\d+_column$' AND d.name = c.tgname
           AND c.tgrelid IN (SELECT r.table_id FROM simsql.registry AS r)
    LOOP
        EXECUTE statement;
    END LOOP;
END
$$;

-- Functions that a migration has dropped, because their parameters changed, have the privileges that were
-- granted on them.
DO $$
DECLARE
    routine record;
    granted record;
BEGIN
    FOR routine IN
        SELECT p.oid::regprocedure AS name,
               nullif(current_setting('simsql.privileges_on_' || p.proname, true), '') AS privileges
          FROM pg_proc AS p WHERE p.pronamespace = 'simsql'::regnamespace
    LOOP
        CONTINUE WHEN routine.privileges IS NULL;
        EXECUTE format('REVOKE ALL ON ROUTINE %s FROM PUBLIC', routine.name);
        FOR granted IN
            SELECT CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END AS grantee,
                   CASE WHEN a.is_grantable AND a.grantee <> 0 THEN ' WITH GRANT OPTION' END AS option
              FROM aclexplode(routine.privileges::aclitem[]) AS a
        LOOP
            EXECUTE format('GRANT EXECUTE ON ROUTINE %s TO %s%s', routine.name, granted.grantee,
                           granted.option);
        END LOOP;
    END LOOP;
END
$$;
