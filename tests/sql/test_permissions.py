"""The privileges in docs/reference/permissions.md are sufficient, and each of them is necessary."""

import re
from collections.abc import Iterator

import pytest
from articles import create_index, create_table
from documentation import REPOSITORY, rows_of_table
from internals import begin_build
from program import run
from psycopg import errors
from similar import like_near
from upgrades import bare

from simsql.database.install import schema_sql

PAGE = REPOSITORY / "docs/reference/permissions.md"
FUNCTIONS = {row[0].strip("`"): row[2] for row in rows_of_table(PAGE, "object", "purpose", "least privileges")}
STATEMENTS = {row[0].strip("`"): row[1] for row in rows_of_table(PAGE, "statement", "least privileges")}
COMMANDS = {row[0].strip("`"): row[1] for row in rows_of_table(PAGE, "command", "least privileges")}
RELATIONS = rows_of_table(PAGE, "object", "contents", "granted to `PUBLIC`")

USES = {
    "simsql.near": "SELECT * FROM simsql.near('article', 1)",
    "simsql.near_rows": "SELECT * FROM simsql.near_rows(NULL::article, 1)",
    "simsql.near_many": "SELECT * FROM simsql.near_many('article', ARRAY[1]::bigint[])",
    "simsql.near_wide": "SELECT * FROM simsql.near_wide('article', ARRAY[1]::bigint[], 3, '{fingerprint}')",
    "simsql.explain_near": "SELECT * FROM simsql.explain_near('article', 1)",
    "simsql.similar_candidates": f"SELECT * FROM simsql.similar_candidates('article', {like_near(1, 3)})",
    "simsql.explain_similar": f"SELECT * FROM simsql.explain_similar('article', {like_near(1, 3)})",
    "simsql.pairs": "SELECT * FROM simsql.pairs('article')",
    "simsql.clusters": "SELECT * FROM simsql.clusters('article')",
    "simsql.verify": "SELECT * FROM simsql.verify('article')",
    "simsql.superfluous_keys": "SELECT simsql.superfluous_keys('article')",
    "simsql.claim": "SELECT * FROM simsql.claim('article', 1)",
    "simsql.fp": "SELECT simsql.fp(1)",
    "simsql.hamming_distance": "SELECT simsql.hamming_distance(1, 2)",
    "simsql.similarity": "SELECT simsql.similarity(1, 2)",
    "simsql.version": "SELECT simsql.version()",
    "simsql.create_index": "SELECT simsql.create_index('article', 'fingerprint')",
    "simsql.build": "CALL simsql.build('article', 'fingerprint')",
    "simsql.set_default_index": "SELECT simsql.set_default_index('article', 'fingerprint')",
    "simsql.change_storage": "SELECT simsql.change_storage('article', 'expression')",
    "simsql.alter_index": "SELECT simsql.alter_index('article', sources => '{\"body\": 1}')",
    "simsql.drop_index": "SELECT simsql.drop_index('article')",
    "simsql.maintain": "CALL simsql.maintain()",
    "simsql.vacuum": "CALL simsql.vacuum('article')",
    "simsql.repair": "SELECT * FROM simsql.repair('article')",
    "simsql.clear_on_change": "SELECT simsql.clear_on_change('article', 'fingerprint', ARRAY['body'])",
    "simsql.drop_clear_on_change": "SELECT simsql.drop_clear_on_change('article', 'fingerprint')",
    "simsql.uninstall": "SELECT simsql.uninstall(drop_indexes => true)",
}
OWNED = "owning the index"


def privileges_of(cell: str) -> list[str]:
    """Return the privileges of a cell: statements without the role at the end, and ownership of the index."""
    privileges = [OWNED] if cell.startswith(OWNED) else []
    for statement in re.findall(r"`(.+?) TO \w+`", cell):
        match = re.fullmatch(r"GRANT (.*) ON (.*)", statement)
        if match:
            privileges += [
                f"GRANT {privilege} ON {match[2]}" for privilege in re.split(r", (?![^(]*\))", match[1])
            ]
        else:
            privileges.append(statement)
    assert privileges or cell == "none"
    return privileges


class Workplace:
    """A table with an index, and a role with some privileges on them."""

    def __init__(self, connection, connect, role):
        self.connection = connection
        self.connect = connect
        self.role = role
        self.guest = connect(role)
        self.everything = [
            "ALTER TABLE article OWNER",
            "GRANT CREATE ON SCHEMA simsql",
            "GRANT ALL ON simsql.registry",
        ]

    def give(self, privileges):
        for privilege in privileges:
            if privilege != OWNED:
                self.connection.execute(f"{privilege} TO {self.role}")

    def prepare(self, privileges, statement=""):
        """Make all anew, so that the statement has a use; then the role has these privileges and no others."""
        self.connection.execute(f"REASSIGN OWNED BY {self.role} TO postgres")
        self.connection.execute(f"DROP OWNED BY {self.role}")
        self.connection.execute("SELECT simsql.drop_index(table_id) FROM simsql.registry")
        self.connection.execute("DROP TABLE IF EXISTS article")
        create_table(self.connection, [1, 3])
        self.connection.execute("CREATE INDEX ON article (fingerprint)")
        if OWNED in privileges:
            self.give(self.everything)
            create_index(self.guest)
            self.connection.execute("ALTER TABLE article OWNER TO postgres")
            self.connection.execute(f"REVOKE ALL ON article, simsql.registry FROM {self.role}")
            self.connection.execute(f"REVOKE ALL ON SCHEMA simsql FROM {self.role}")
        elif not re.search(r"simsql\.(create_index|build)", statement):
            create_index(self.connection)
        if "drop_clear_on_change" in statement:
            self.connection.execute(USES["simsql.clear_on_change"])
        self.give(privileges)


@pytest.fixture
def workplace(connection, connect, new_role) -> Iterator[Workplace]:
    role = new_role()
    yield Workplace(connection, connect, role)
    # The schema may be the role's, which is dropped after the database.
    connection.execute(f"REASSIGN OWNED BY {role} TO postgres")


def check_least(workplace, statement, privileges):
    workplace.prepare(privileges, statement)
    workplace.guest.execute(statement)
    for privilege in privileges:
        workplace.prepare([other for other in privileges if other != privilege], statement)
        try:
            workplace.guest.execute(statement)
        except errors.InsufficientPrivilege:
            continue
        pytest.fail(f"{statement} does without: {privilege}")


def test_functions_need_what_the_page_says_and_nothing_less(workplace):
    for name, cell in FUNCTIONS.items():
        if name != "simsql.uninstall":
            check_least(workplace, USES[name], privileges_of(cell))
    # The last one: it leaves nothing behind.
    privileges = privileges_of(FUNCTIONS["simsql.uninstall"])
    for privilege in privileges:
        with workplace.connection.transaction(force_rollback=True):
            workplace.give(other for other in privileges if other != privilege)
            with pytest.raises(errors.InsufficientPrivilege):
                as_role(workplace, USES["simsql.uninstall"])
    workplace.prepare(privileges)
    workplace.guest.execute(USES["simsql.uninstall"])


def as_role(workplace, statement):
    with workplace.connection.transaction():
        workplace.connection.execute(f"SET LOCAL ROLE {workplace.role}")
        workplace.connection.execute(statement)


def test_writers_need_what_they_needed_before(workplace):
    for statement, cell in STATEMENTS.items():
        check_least(workplace, statement, privileges_of(cell))


def test_commands_need_what_the_page_says_and_nothing_less(workplace, server, database_url):
    url = database_url.replace("postgres@", f"{workplace.role}@")
    statement = "simsql backfill article --text-column body"
    words = statement.split()[1:]
    privileges = privileges_of(COMMANDS[statement])
    workplace.prepare(privileges)
    workplace.connection.execute("UPDATE article SET body = 'some words', fingerprint = NULL")
    assert run(*words, "--database", url).done().lines == ["Fingerprinted 2 rows"]
    for privilege in privileges:
        workplace.prepare([other for other in privileges if other != privilege])
        workplace.connection.execute("UPDATE article SET body = 'some words', fingerprint = NULL")
        run(*words, "--database", url).failed(1, "permission denied")
    with server.new_database(template="template0") as empty:
        url = empty.set(username=workplace.role).render_as_string(hide_password=False)
        options = ["install", "--database", url]
        run(*options).failed(1, "may not create the schema simsql")
        (privilege,) = privileges_of(COMMANDS["simsql install"])
        server.execute(f"{privilege.replace(' app', f' {empty.database}')} TO {workplace.role}")
        run(*options).done()


def test_only_those_who_may_use_the_schema_search_once_it_is_closed(workplace):
    workplace.prepare(["GRANT SELECT ON article", "GRANT INSERT ON article"])
    workplace.connection.execute("REVOKE USAGE ON SCHEMA simsql FROM PUBLIC")
    workplace.guest.execute("INSERT INTO article (fingerprint) VALUES (7)")
    with pytest.raises(errors.InsufficientPrivilege):
        workplace.guest.execute(USES["simsql.near"])
    workplace.give(["GRANT USAGE ON SCHEMA simsql"])
    assert len(workplace.guest.execute(USES["simsql.near"]).fetchall()) == 3


# What there is


def test_every_object_of_the_schema_is_on_the_page(connection):
    names = connection.execute(
        "SELECT DISTINCT 'simsql.' || p.proname FROM pg_proc AS p"
        " WHERE p.pronamespace = 'simsql'::regnamespace AND p.proname NOT LIKE '\\_%'"
    )
    assert set(FUNCTIONS) == {name for (name,) in names} == set(USES)
    create_table(connection)
    connection.execute("CREATE INDEX ON article (fingerprint)")
    begin_build(connection)
    listed = {name: row[2] for row in RELATIONS for name in re.findall(r"`(simsql\..+?)`", row[0])}
    found = connection.execute(
        "SELECT 'simsql.' || c.relname, coalesce("
        "(SELECT string_agg(a.privilege_type, ',') FROM aclexplode(c.relacl) AS a WHERE a.grantee = 0),"
        " CASE c.relkind WHEN 'c' THEN 'USAGE' ELSE 'nothing' END)"
        " FROM pg_class AS c WHERE c.relnamespace = 'simsql'::regnamespace"
        " AND (c.relkind IN ('v', 'c') OR c.relkind = 'r' AND c.relname NOT SIMILAR TO 'keys_1_[1-9]%')"
        " AND c.relname NOT LIKE '\\_%'"
    ).fetchall()
    assert listed.keys() == {name for name, _ in found}
    for name, granted in found:
        assert re.match(rf"`?{granted}\b", listed[name])  # USAGE, that of a type, is there by default


def test_every_function_explains_itself_in_psql(connection):
    """\\df+ shows the names of arguments and a comment; no two comments are the same."""
    found = connection.execute(
        "SELECT p.proname, coalesce(cardinality(p.proargnames), 0), p.pronargs, array_position(p.proargnames, ''),"
        " obj_description(p.oid, 'pg_proc') FROM pg_proc AS p"
        " WHERE p.pronamespace = 'simsql'::regnamespace AND p.proname NOT LIKE '\\_%'"
    ).fetchall()
    assert {name for name, named, arguments, unnamed, _ in found if named < arguments or unnamed} == set()
    comments = [comment for *_, comment in found]
    assert None not in comments
    assert len(set(comments)) == len(comments)
    assert all(len(comment) > 20 for comment in comments)


def test_the_remedy_for_advisory_locks_leaves_everything_possible(server, new_role):
    """It is a superuser's. A role that it grants nothing can still search and write."""
    indexer, writer, reader = new_role(), new_role(), new_role()
    page = " ".join(PAGE.read_text().split())
    statements = dict(re.findall(r"`GRANT EXECUTE ON FUNCTION ([^`]*)` to the roles that (.*?)\.", page))
    statements |= dict(re.findall(r"grant `([^`]*)` to the roles that (.*?)\.", page))
    assert list(statements.values()) == ["install, claim, build, vacuum or repair", "build"]
    with bare(server) as (superuser, engine):
        name = engine.url.database
        functions = superuser.execute(
            "SELECT oid::regprocedure::text FROM pg_proc"
            " WHERE proname LIKE 'pg\\_advisory\\_%' OR proname LIKE 'pg\\_try\\_advisory\\_%'"
        ).fetchall()
        superuser.execute(f"REVOKE EXECUTE ON FUNCTION {', '.join(row[0] for row in functions)} FROM PUBLIC")
        for granted, roles in statements.items():
            to = f"{indexer}, {writer}" if "claim" in roles else indexer
            superuser.execute(f"GRANT EXECUTE ON FUNCTION {granted} TO {to}")
        superuser.execute(f"GRANT CREATE ON DATABASE {name} TO {indexer}")
        superuser.execute(f"GRANT CREATE ON SCHEMA public TO {indexer}")
        with server.connect(name, indexer) as owner:
            owner.execute(schema_sql())
            create_table(owner, [1, 3])
            owner.execute("CREATE INDEX ON article (fingerprint)")
            owner.execute("CALL simsql.build('article', 'fingerprint')")
            for statement in (
                *(USES["simsql.vacuum"], USES["simsql.repair"], USES["simsql.maintain"]),
                *(USES["simsql.set_default_index"], USES["simsql.change_storage"], USES["simsql.drop_index"]),
                USES["simsql.create_index"],
            ):
                owner.execute(statement)
            owner.execute(f"GRANT SELECT, INSERT ON article TO {writer}, {reader}")
        with server.connect(name, writer) as session:
            assert session.execute(USES["simsql.claim"]).fetchall() == [(1, 0)]
            session.execute("INSERT INTO article (fingerprint) VALUES (7)")
        with server.connect(name, reader) as session:
            session.execute("INSERT INTO article (fingerprint) VALUES (2)")
            assert len(session.execute(USES["simsql.near"]).fetchall()) == 4
            with pytest.raises(errors.InsufficientPrivilege):
                session.execute("SELECT pg_advisory_xact_lock(1)")
