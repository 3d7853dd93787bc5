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
