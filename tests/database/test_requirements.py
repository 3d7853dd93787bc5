"""A role with what sql/requirements.sql lists can install simsql, and with any less it cannot."""

import json
import re

import psycopg
import pytest
from documentation import REPOSITORY
from program import run

from simsql.database.install import schema_sql

SCRIPT = REPOSITORY / "sql/requirements.sql"
CREATE = "CREATE ON DATABASE {database}"
# The statement that takes something away, the one that gives it back, and the requirement that is then not met.
REMOVALS = [
    (f"REVOKE {CREATE} FROM {{role}}", f"GRANT {CREATE} TO {{role}}", "CREATE on the database"),
    (
        "CREATE SCHEMA simsql; CREATE TABLE simsql.theirs ()",
        "DROP SCHEMA simsql CASCADE",
        "no other schema named simsql",
    ),
    (
        "CREATE SCHEMA simsql",
        "DROP SCHEMA simsql",
        "CREATE on a schema simsql that is there, and USAGE for all roles",
    ),
    (
        "REVOKE USAGE ON LANGUAGE plpgsql FROM PUBLIC",
        "GRANT USAGE ON LANGUAGE plpgsql TO PUBLIC",
        "USAGE on the language plpgsql",
    ),
    ("DROP EXTENSION plpgsql", "CREATE EXTENSION plpgsql", "USAGE on the language plpgsql"),
    (
        "REVOKE USAGE ON LANGUAGE sql FROM PUBLIC",
        "GRANT USAGE ON LANGUAGE sql TO PUBLIC",
        "USAGE on the language sql",
    ),
    (
        "ALTER ROLE {role} SET default_transaction_read_only = on",
        "ALTER ROLE {role} RESET ALL",
        "transactions that may write",
    ),
    (
        "REVOKE EXECUTE ON FUNCTION set_config FROM PUBLIC",
        "GRANT EXECUTE ON FUNCTION set_config TO PUBLIC",
        "EXECUTE on 38 functions",
    ),
    ("REVOKE SELECT ON pg_proc FROM PUBLIC", "GRANT SELECT ON pg_proc TO PUBLIC", "SELECT on 27 catalogs"),
]


@pytest.mark.unpooled("settings of a role do not change open sessions")
def test_each_requirement_is_needed_and_they_suffice(server, new_role, empty_database):
    names = {"database": empty_database.url.database, "role": new_role()}
    url = empty_database.url.set(username=names["role"]).render_as_string(hide_password=False)
    server.execute(f"GRANT {CREATE} TO {{role}}".format(**names))
    assert run("status", "--check", "--database", url).done().out == ""
    with server.connect(names["database"]) as superuser:
        for removal, return_, requirement in REMOVALS:
            superuser.execute(removal.format(**names))
            with server.connect(names["database"], names["role"]) as guest:
                rows = guest.execute(SCRIPT.read_text()).fetchall()
                assert [row[0] for row in rows if not row[1]] == [requirement]
                (said,) = ({"problem": row[2], "remedy": row[3]} for row in rows if row[2])
                # PostgreSQL refuses the installation, too.
                with pytest.raises(psycopg.Error):
                    guest.execute(schema_sql())
            checked = run("status", "--check", "--format", "jsonl", "--database", url)
            assert (checked.code, [json.loads(line) for line in checked.lines]) == (1, [said])
            run("install", "--database", url).failed(1, f"{said['problem']}: {said['remedy']}")
            superuser.execute(return_.format(**names))
    run("install", "--database", url).done()
    assert run("status", "--check", "--database", url).done().out == ""


def test_every_function_and_catalog_of_the_server_is_listed(server, empty_database):
    """Those that the script itself cannot do without are not: it fails there."""
    script = SCRIPT.read_text()
    code = "\n".join(
        re.sub("--.*", "", file.read_text())
        for folder in ("sql", "migrations/versions")
        for file in (REPOSITORY / folder).rglob("*.sql")
        if file != SCRIPT
    )
    with server.connect(empty_database.url.database) as connection:
        relations, functions = (
            {name for (name,) in connection.execute(query)}
            for query in (
                "SELECT relname FROM pg_class"
                " WHERE relnamespace = 'pg_catalog'::regnamespace AND relkind IN ('r', 'v')",
                "SELECT proname FROM pg_proc WHERE pronamespace = 'pg_catalog'::regnamespace"
                " AND (proname LIKE 'pg\\_%' OR proname IN ('set_config', 'gen_random_uuid'))",
            )
        )
    lists = [
        set(re.findall(r"[a-z_]+(?=\(|,|\s)", part)) for part in re.findall(r"'\{(.*?)\}'", script, re.DOTALL)
    ]
    called = functions & set(re.findall(r"\b([a-z_]+)\(", code))
    # A hint names the last one.
    assert lists[0] & functions == called - {"pg_has_role", "pg_is_in_recovery", "pg_terminate_backend"}
    assert lists[1] == (relations & set(re.findall(r"\b[a-z_]+\b", code))) - {"pg_class", "pg_namespace"}
