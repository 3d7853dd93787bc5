"""What a database holds, as its catalogue tells it: to compare two of them, or one with itself later."""

from sqlalchemy import Connection, Engine

# Columns are counted anew: one that was dropped keeps its number.
_CONTENTS = """
    SELECT 'function', pg_get_functiondef(oid), proacl, proowner::regrole, obj_description(oid, 'pg_proc')
      FROM pg_proc WHERE pronamespace = 'simsql'::regnamespace
     UNION ALL
    SELECT 'relation', concat_ws(' ', relkind, relname, relpersistence, relrowsecurity, relreplident, reloptions,
                                 CASE relkind WHEN 'v' THEN pg_get_viewdef(oid) END,
                                 CASE relkind WHEN 'i' THEN pg_get_indexdef(oid) END),
           relacl, relowner::regrole, obj_description(oid, 'pg_class')
      FROM pg_class WHERE relnamespace = 'simsql'::regnamespace
     UNION ALL
    SELECT 'column', concat_ws(' ', attrelid::regclass, row_number() OVER (PARTITION BY attrelid ORDER BY attnum),
                               attname, format_type(atttypid, atttypmod), attnotnull, attidentity, attgenerated,
                               attcollation, pg_get_expr(adbin, adrelid)),
           attacl, NULL, col_description(attrelid, attnum)
      FROM pg_attribute LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
     WHERE attnum > 0 AND NOT attisdropped
       AND attrelid IN (SELECT oid FROM pg_class WHERE relnamespace = 'simsql'::regnamespace)
     UNION ALL
    SELECT 'constraint', concat_ws(' ', conrelid::regclass, conname, pg_get_constraintdef(oid)),
           NULL, NULL, obj_description(oid, 'pg_constraint')
      FROM pg_constraint WHERE connamespace = 'simsql'::regnamespace
     UNION ALL
    SELECT 'type', concat_ws(' ', typtype, typname), typacl, typowner::regrole, obj_description(oid, 'pg_type')
      FROM pg_type WHERE typnamespace = 'simsql'::regnamespace
     UNION ALL
    SELECT 'policy', concat_ws(' ', polrelid::regclass, polname, polcmd, pg_get_expr(polqual, polrelid)),
           NULL, NULL, NULL
      FROM pg_policy
     UNION ALL
    SELECT 'trigger', concat_ws(' ', pg_get_triggerdef(oid), tgenabled), NULL, NULL,
           obj_description(oid, 'pg_trigger')
      FROM pg_trigger WHERE NOT tgisinternal
     UNION ALL
    SELECT 'schema', nspname, nspacl, nspowner::regrole, obj_description(oid, 'pg_namespace')
      FROM pg_namespace WHERE nspname !~ '^pg_'
"""

# Everything that is not PostgreSQL's own, by name.
_OBJECTS = """
    SELECT (pg_identify_object(o.class, o.id, 0)).type, (pg_identify_object(o.class, o.id, 0)).identity
      FROM (SELECT 'pg_class'::regclass, oid FROM pg_class
             UNION ALL SELECT 'pg_proc'::regclass, oid FROM pg_proc
             UNION ALL SELECT 'pg_type'::regclass, oid FROM pg_type
             UNION ALL SELECT 'pg_trigger'::regclass, oid FROM pg_trigger
             UNION ALL SELECT 'pg_rewrite'::regclass, oid FROM pg_rewrite
             UNION ALL SELECT 'pg_policy'::regclass, oid FROM pg_policy
             UNION ALL SELECT 'pg_attrdef'::regclass, oid FROM pg_attrdef
             UNION ALL SELECT 'pg_constraint'::regclass, oid FROM pg_constraint
             UNION ALL SELECT 'pg_namespace'::regclass, oid FROM pg_namespace
             UNION ALL SELECT 'pg_event_trigger'::regclass, oid FROM pg_event_trigger
             UNION ALL SELECT 'pg_default_acl'::regclass, oid FROM pg_default_acl
             UNION ALL SELECT 'pg_cast'::regclass, oid FROM pg_cast
             UNION ALL SELECT 'pg_operator'::regclass, oid FROM pg_operator) AS o (class, id)
     WHERE o.id >= 16384
     UNION ALL
    SELECT 'rows of ' || t.name, t.rows::text
      FROM (SELECT 'pg_depend', count(*) FROM pg_depend
             UNION ALL SELECT 'pg_description', count(*) FROM pg_description
             UNION ALL SELECT 'pg_shdepend', count(*) FROM pg_shdepend
                        WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database())
           ) AS t (name, rows)
"""


def contents_of_simsql(engine: Engine) -> list[tuple[str, ...]]:
    """The schema simsql and all triggers and policies: definitions, rights, owners and comments, without OIDs.

    The nonces of indexes, which differ everywhere, are numbered.
    """
    with engine.connect() as connection:
        rows = _rows(connection, _CONTENTS)
        nonces: list[str] = []
        if any(row[1].startswith("simsql.registry") for row in rows):
            nonces = [
                nonce for _, nonce in _rows(connection, "SELECT lpad(id::text, 9), nonce FROM simsql.registry")
            ]
    for number, nonce in enumerate(nonces, 1):
        rows = [tuple(value.replace(nonce, f"nonce {number}") for value in row) for row in rows]
    return sorted(rows)


def objects_of_database(engine: Engine) -> list[tuple[str, ...]]:
    """The kind and the name of every object of a database that is not PostgreSQL's own."""
    with engine.connect() as connection:
        return _rows(connection, _OBJECTS)


def _rows(connection: Connection, statement: str) -> list[tuple[str, ...]]:
    rows = connection.exec_driver_sql(statement, execution_options={"no_parameters": True})
    return sorted(tuple(str(value) for value in row) for row in rows)
