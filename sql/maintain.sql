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
    -- Before the keys are compared: what somebody changes and changes back meanwhile must not be in it.
    stamped constant simsql.registry := simsql._stamped(index);
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
    -- A restore, pg_upgrade or VACUUM FULL of the catalogue has changed its marks, or a GRANT, which makes searches slower, or
    -- a statement that was rolled back has left the number of its command in a row. A change of the storage that is under way
    -- needs the stamp that tells of its key tables.
    IF has_table_privilege('simsql.registry', 'UPDATE') AND stamped IS DISTINCT FROM index
       AND NOT ((stamped.stamp).ids = '{}' AND simsql._has_key_tables(index))
    THEN
        PERFORM simsql._stamp(stamped);
    END IF;
    SELECT a.* INTO advice FROM simsql._storage_advice(index) AS a;
    IF advice.need IN ('vacuum', 'analyze') THEN
        -- After a crash or a failover, PostgreSQL may know an old number of rows, by which a vacuum would always be due.
        EXECUTE format('ANALYZE (SKIP_LOCKED) %s, simsql.keys_%s_0', index.table_name, index.id);
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
