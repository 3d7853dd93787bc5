-- The first step of an upgrade: it locks all indexes.
--
-- Trigger functions and triggers change together, so nobody may write to an indexed table in the meantime.
-- Users' tables stay readable, since no trigger is dropped. Searches wait, since the policies of the key
-- tables change.

DO $$
DECLARE
    foreign_table text;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'simsql: the transaction of an upgrade must be read committed, not %',
                        current_setting('transaction_isolation')
            USING ERRCODE = 'active_sql_transaction';
    END IF;
    SELECT c.oid::regclass::text INTO foreign_table
      FROM simsql.registry AS r
      JOIN pg_class AS c ON c.oid IN (r.table_id, to_regclass(format('simsql.keys_%s_0', r.id)))
     WHERE NOT pg_has_role(c.relowner, 'USAGE') LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'simsql: role % may not upgrade the simhash index that uses the table %',
                        current_user, foreign_table
            USING ERRCODE = 'insufficient_privilege',
                  HINT = 'Upgrade as a superuser, or as a role that is a member of the owners of all '
                         'indexed tables.';
    END IF;
    PERFORM simsql._patiently('SELECT simsql._lock_all(''SHARE ROW EXCLUSIVE'')',
                              ARRAY(SELECT simsql._relations_of_all('SHARE ROW EXCLUSIVE')),
                              'SHARE ROW EXCLUSIVE', 'simsql', 'the indexed tables');
    -- For after_upgrade.sql, which changes what tells it.
    PERFORM set_config('simsql.sound', (
                SELECT coalesce(array_agg(r.id), '{}') FROM simsql.registry AS r
                 WHERE NOT EXISTS (SELECT FROM unnest(simsql._faults(r)) AS f
                                    WHERE f.effect = 'refuses' AND f.problem <> 'not ready'))::text, true);
END
$$;
