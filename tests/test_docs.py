"""The documentation is true: every block of code in it is run, and what it shows is what comes out.

Fenced blocks by language:

- sql: statement by statement, one database for a page. A comment `--> 1` behind a statement is
  its result, cells separated by ` | `. In the tutorial and the guides, commands and Python use the same database.
- python: one namespace for a page, as it stands or in doctest's style.
- console: lines after `$ ` run in bash, in one folder for a page; the lines below them are their output. With sh
  all lines are commands. Lines that install or make something are looked up, not run.
- With a first line such as `# models.py` or `-- tables.sql`, a block is written to that file, which later commands
  use.
- text, right behind one of these: the result of the last statement as psql prints it, what the Python block
  prints, or what the last command prints.
- yaml: a collector for sql_exporter, whose queries any role can run.

A section with an address of another host, such as postgresql://me@standby/app, runs on servers of its own.

The blocks of docs/guides/backend.md and of the pages about Django are tried by tests/examples/.

`...` stands for any text, as in doctest. The database of the pages' examples is a database of an embedded server.

Run as a program, this file writes what is made from the code in docs/reference/ anew.
"""

import contextlib
import doctest
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any
from unittest.mock import patch
from urllib.parse import quote

import psycopg
import pytest
import reference
import typer
import yaml
from documentation import (
    BACKEND,
    DJANGO,
    DJANGO_MODELS,
    PAGES,
    REPOSITORY,
    Block,
    assert_output,
    page_id,
    read_blocks,
    read_commands,
    rows_of_table,
)
from machines import run_machines
from pooler import Pooler, find_pgbouncer, run_pooler
from preloaded import preloaded_programs
from program import run_in_one_stream
from sql_reference import comments, with_tables

import simsql
import simsql.cli._app
from simsql.cli._options import MEANINGS
from simsql.database.connect import open_engine
from simsql.database.install import install_schema
from simsql.errors import SimsqlError
from simsql.fingerprint import DEFAULT_RECIPE
from simsql.hamming import Design
from simsql.server import EmbeddedServer, start_embedded
from simsql.server.binaries import bundled_programs

README, COMMANDS, SQL = (
    REPOSITORY / name for name in ("README.md", "docs/reference/command-line.md", "docs/reference/sql.md")
)
INDEX = REPOSITORY / "docs/index.md"
HOW_IT_WORKS = REPOSITORY / "docs/explanation/how-it-works.md"
# Their SQL, commands and Python use one database.
MIXED = [page for page in PAGES if page_id(page).startswith(("docs/guides/", "docs/tutorial.md"))]
MEMORY = Path("/dev/shm")
EXAMPLE_URL = "postgresql://me@localhost/app"
ADDRESS = re.compile(r"postgresql://me@(\w+)/(\w+)")
# From which text on the reference is made from the commands, and to where.
REFERENCE = re.compile(r"(<!-- made by tests/test_docs.py -->\n).*?(?=<!-- end -->)", re.DOTALL)


def pages_with(*languages: str, pages: Sequence[Path] = PAGES) -> pytest.MarkDecorator:
    chosen = [
        page
        for page in pages
        if any(block.language in languages and not block.file for block in read_blocks(page))
    ]
    chosen = [page for page in chosen if page not in (BACKEND, DJANGO, DJANGO_MODELS)]
    return pytest.mark.parametrize("page", chosen, ids=page_id)


# SQL


def split_statements(code: str) -> Iterator[tuple[str, str | None]]:
    """Yield each statement and what a comment `-->` behind it says that it returns."""
    token = re.compile(r"'(?:[^']|'')*'|\$(\w*)\$.*?\$\1\$|--[^\n]*|;(?:[ ]*-->([^\n]*))?", re.DOTALL)
    start = 0
    for match in token.finditer(code):
        if match[0].startswith(";"):
            yield code[start : match.start()].strip(), match[2] and match[2].strip()
            start = match.end()
    rest = re.sub(r"--[^\n]*", "", code[start:]).strip()
    assert not rest, f"a statement without a semicolon: {rest}"


def run_statement(connection: psycopg.Connection, statement: str) -> list[list[str]]:
    """Return the header and the rows as psql prints them: PostgreSQL's own text, nothing for NULL."""
    result = connection.execute(statement).pgresult
    assert result is not None
    columns = range(result.nfields)
    header = [(result.fname(column) or b"").decode() for column in columns]
    rows = [[(result.get_value(row, c) or b"").decode() for c in columns] for row in range(result.ntuples)]
    return [header, *rows]


def read_table(text: str) -> list[list[str]]:
    """Read a table as psql prints it."""
    lines = [line for line in text.splitlines() if line.strip() and not re.fullmatch(r"\(\d+ rows?\)", line)]
    assert set(lines[1]) <= set("-+"), f"this is no table of psql's:\n{text}"
    return [[cell.strip() for cell in line.split("|")] for line in (lines[0], *lines[2:])]


def as_table(rows: list[list[str]]) -> str:
    return "\n".join(" | ".join(row) for row in rows)


def as_error(error: psycopg.Error) -> str:
    hint = f"\nHINT:  {error.diag.message_hint}" if error.diag.message_hint else ""
    return f"ERROR:  {error.diag.message_primary}{hint}"


def run_sql(connection: psycopg.Connection, block: Block) -> None:
    statements = list(split_statements(block.code))
    for number, (statement, shown) in enumerate(statements, 1):
        last = number == len(statements)
        try:
            rows = run_statement(connection, statement)
        except psycopg.Error as error:
            if not (last and block.output and block.output.startswith("ERROR:")):
                pytest.fail(f"{block}: {statement}\n{as_error(error)}", pytrace=False)
            # Long lines are wrapped on the page.
            assert_output(*(re.sub(r"\s+", " ", text) for text in (as_error(error), block.output)), where=block)
            return
        if shown is not None:
            assert_output(as_table(rows[1:]), shown, f"{block}: {statement}")
        if last and block.output is not None:
            assert not block.output.startswith("ERROR:"), f"{block}: no error\n{as_table(rows)}"
            assert_output(as_table(rows), as_table(read_table(block.output)), block)


@pages_with("sql", pages=[page for page in PAGES if page not in MIXED])
def test_sql_does_what_the_pages_say(page: Path, connection: psycopg.Connection) -> None:
    connection.add_notice_handler(lambda _: None)
    for block in read_blocks(page):
        if block.language == "sql" and not block.file:
            run_sql(connection, block)


@pytest.mark.parametrize("member", ["pg_monitor", None])
def test_a_monitor_needs_no_privileges(connection, connect, new_role, member: str | None) -> None:
    (block,) = (block for page in PAGES for block in read_blocks(page) if block.language == "yaml")
    collector = yaml.safe_load(block.code)
    queries = {query["query_name"]: query["query"] for query in collector["queries"]}
    connection.execute(
        "CREATE SCHEMA closed; CREATE TABLE closed.article (fingerprint bigint);"
        "INSERT INTO closed.article SELECT generate_series(1, 100); CREATE TABLE print (fingerprint bigint);"
        "SELECT simsql.create_index('closed.article', 'fingerprint');"
        "SELECT simsql.create_index('print', 'fingerprint'); ALTER TABLE print RENAME TO moved"
    )
    role = new_role()
    if member:
        connection.execute(f"GRANT {member} TO {role}")
    monitor = connect(role)
    monitor.row_factory = psycopg.rows.dict_row
    found = {}
    for metric in collector["metrics"]:
        rows = monitor.execute(metric.get("query") or queries[metric["query_ref"]]).fetchall()
        for row in rows:
            assert set(row) == {*metric["key_labels"], *metric.get("values", [])}
            assert all(isinstance(row[name], str) for name in metric["key_labels"])
            assert all(float(row[name] or 0) >= 0 for name in metric.get("values", []))
        found[metric["metric_name"]] = rows
    figures, problems = found["simsql_index"], found["simsql_problem"]
    assert [row["ready"] for row in figures] == [1, 0]
    assert all(row["bytes"] and row["vacuum_age"] for row in figures)
    assert problems == [{"problem": "table renamed", "object": "public.print(fingerprint)"}]


# Commands and Python


class Hosts(dict[str, str]):
    """The URL of the database `app` of each host of the pages."""

    def resolve(self, text: str) -> str:
        """Replace addresses by those of servers that run. Other databases than `app` are on the same server."""

        def url(found: re.Match[str]) -> str:
            return (
                self[found[1]]
                if found[2] == "app"
                else re.sub(r"/\w+\?", f"/{found[2]}?", self[found[1]], count=1)
            )

        return ADDRESS.sub(url, text)

    def resolve_command(self, command: str) -> str:
        quoted = re.compile(f"'?({ADDRESS.pattern})'?")
        return quoted.sub(lambda found: shlex.quote(self.resolve(found[1])), command)


def runs_on_localhost(page: Path) -> dict[str, bool]:
    """Whether the blocks of each section need no other server than that of all pages."""
    found: dict[str, bool] = {}
    for block in read_blocks(page):
        hosts = {host for host, _ in ADDRESS.findall(block.code)}
        found[block.section] = found.get(block.section, True) and hosts <= {"localhost"}
    return found


@pytest.fixture(scope="module")
def embedded() -> Iterator[EmbeddedServer]:
    """The embedded server of a folder that SIMSQL_HOME names."""
    # Most of what a server does as it starts and stops is waiting for the disk.
    in_memory = MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > 500_000_000
    folder = Path(tempfile.mkdtemp(prefix="simsql-docs-", dir=MEMORY if in_memory else None))
    folder.chmod(0o711)  # as root, the server runs as another user
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SIMSQL_HOME", str(folder / "home"))
        patch.delenv("SIMSQL_DATABASE", raising=False)
        try:
            server = start_embedded()
        except SimsqlError as error:
            pytest.skip(str(error))
        with server:
            yield server
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def pooler(embedded: EmbeddedServer) -> Iterator[Pooler]:
    """PgBouncer before the embedded server."""
    with run_pooler(Path(embedded.url().query["host"])) as running:
        yield running


@pytest.fixture
def example_url(embedded: EmbeddedServer, page: Path, request: pytest.FixtureRequest) -> str:
    """A URL that SQLAlchemy and libpq understand, of a new database with simsql; through a pooler for its page."""
    url = embedded.url(f"docs_{page.stem}".lower().replace("-", "_"))
    engine = open_engine(url)
    install_schema(engine)
    engine.dispose()
    where = f"host={quote(str(url.query['host']), safe='')}"
    if find_pgbouncer() and (page.stem == "poolers" or request.config.getoption("pgbouncer")):
        where += f"&port={request.getfixturevalue('pooler').port}"
    return f"postgresql://{url.username}@/{url.database}?{where}"


@pytest.fixture(scope="module")
def preloaded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with simsql and alembic for shells."""
    with preloaded_programs(tmp_path_factory.mktemp("programs")) as folder:
        yield folder


@pytest.fixture
def workplace(embedded: EmbeddedServer, preloaded: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder of a page's programs, for which the programs of the environment come first."""
    folder = Path(tempfile.mkdtemp(dir=embedded.folder.parent))
    folder.chmod(0o711)
    programs = bundled_programs()
    path = [preloaded, Path(sys.executable).parent, programs[max(programs)], os.environ["PATH"]]
    monkeypatch.setenv("PATH", os.pathsep.join(map(str, path)))
    monkeypatch.setenv("COLUMNS", "115")
    monkeypatch.chdir(folder)
    return folder


def is_there(command: str) -> bool:
    """Whether a command installs or makes something; then check that there is such a thing."""
    words = shlex.split(command, comments=True)
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    match words:
        case ["pip", "install", *requirements]:
            for requirement in requirements:
                name, _, extra = requirement.removesuffix("]").partition("[")
                assert name == ".", f"{command}: {project['name']} is not published, install it from a checkout"
                assert not extra or project["optional-dependencies"].keys() >= set(extra.split(","))
        case ["python3", "-m", "venv", _] | [".", ".venv/bin/activate"]:
            pass
        case ["make", *targets]:
            makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
            for target in targets:
                assert "=" in target or re.search(rf"^{target}:", makefile, re.MULTILINE), command
        case _:
            return False
    return True


def needs_shell(command: str) -> bool:
    """Whether a command is anything but a call of simsql with plain arguments."""
    unquoted = re.sub("'[^']*'", "", command.replace(EXAMPLE_URL, ""))
    return not command.startswith("simsql ") or bool(re.search(r"[|&;<>$`*?~\\#([{!]", unquoted))


def run_in_shell(commands: Sequence[str]) -> Iterator[tuple[str, int]]:
    """Run commands in one shell, and yield what each one prints, and its exit code."""
    # A line that no command prints tells how each one ended.
    end = "@@@ end of command @@@"
    script = ["bash", "-c", "\n".join(f"{command}\necho '{end}'$?" for command in commands)]
    result = subprocess.run(
        script,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=300,  # a page may wait for something
    )
    parts = re.split(rf"{end}(\d+)\n", result.stdout)
    for number, _ in enumerate(commands):
        yield parts[2 * number], int(parts[2 * number + 1])


def run_commands(block: Block, hosts: Hosts) -> None:
    """Run the commands of a block. Plain calls of simsql run in this process, which takes a tenth of the time.

    All run in one shell if one of them exports a variable or goes on in the background.
    """
    commands = [(command, output) for command, output in read_commands(block) if not is_there(command)]
    if block.output is not None:
        commands[-1] = (commands[-1][0], block.output)
    together = any(re.search("^export |&$", command) for command, _ in commands)
    for in_shell, group in groupby(commands, key=lambda command: together or needs_shell(command[0])):
        some = list(group)
        lines = [hosts.resolve_command(command) for command, _ in some]
        results = run_in_shell(lines) if in_shell else map(run_in_one_stream, lines)
        for (command, expected), (found, status) in zip(some, results, strict=True):
            if expected:
                assert_output(found, expected, f"{block}: {command}")
            # A command that fails says so: its error is shown.
            if status and not expected.startswith("simsql: "):
                pytest.fail(f"{block}: {command} ends with status {status}\n{found}", pytrace=False)
            if exported := re.match(r"export (\w+)='(.*)'$", command):
                os.environ[exported[1]] = hosts.resolve(exported[2])


def run_python(block: Block, names: dict[str, Any], hosts: Hosts) -> None:
    code = hosts.resolve(block.code)
    if code.startswith(">>> "):
        test = doctest.DocTestParser().get_doctest(code, names, str(block), block.page, block.line)
        runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
        report = io.StringIO()
        runner.run(test, out=report.write, clear_globs=False)
        names.update(test.globs)
        if runner.summarize(verbose=False).failed:
            pytest.fail(report.getvalue(), pytrace=False)
        return
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile("\n" * block.line + code, block.page, "exec"), names)
    if block.output is not None or printed.getvalue():
        assert_output(printed.getvalue(), block.output or "", block)


@pages_with("python", "console", "sh", pages=[page for page in PAGES if page not in MIXED])
def test_commands_and_python_do_what_the_pages_say(page: Path, workplace: Path, example_url: str) -> None:
    run_page(page, example_url)


@pages_with("python", "console", "sh", "sql", pages=MIXED)
def test_guides_do_what_they_say(page: Path, workplace: Path, example_url: str) -> None:
    with psycopg.connect(example_url, autocommit=True, prepare_threshold=None) as connection:
        connection.add_notice_handler(lambda _: None)
        run_page(page, example_url, connection)


@pytest.mark.parametrize(
    ("page", "section"),
    [(page, section) for page in MIXED for section, here in runs_on_localhost(page).items() if not here],
    ids=lambda value: page_id(value) if isinstance(value, Path) else value.replace(" ", "-"),
)
def test_guides_of_several_servers_do_what_they_say(
    page: Path, section: str, workplace: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """The first host that is no standby has the table of the first section of the page."""
    blocks = [block for block in read_blocks(page) if block.section == section]
    code = "\n".join(block.code for block in blocks)
    hosts = list(dict.fromkeys(host for host, _ in ADDRESS.findall(code)))
    hosts.sort(key="standby".__eq__)
    if hosts == ["coordinator"]:
        citus = request.getfixturevalue("citus")
        with citus.new_database() as url, citus.connect(url.database) as connection:
            urls = {hosts[0]: url.set(drivername="postgresql").render_as_string()}
            run_blocks(
                [b for b in read_blocks(page) if not b.section], Hosts(localhost=urls[hosts[0]]), connection
            )
            run_blocks(blocks, Hosts(urls), None)
        return
    with run_machines(workplace, hosts, code) as machines:
        monkeypatch.setenv("PATH", f"{machines.programs}:{os.environ['PATH']}")
        urls = machines.urls()
        with machines.connect(hosts[0]) as connection:
            run_blocks(
                [b for b in read_blocks(page) if not b.section], Hosts(localhost=urls[hosts[0]]), connection
            )
        blocks = [replace(block, code=machines.resolve(block.code)) for block in blocks]
        run_blocks(blocks, Hosts(urls), None)


def run_page(page: Path, example_url: str, connection: psycopg.Connection | None = None) -> None:
    here = runs_on_localhost(page)
    run_blocks(
        [block for block in read_blocks(page) if here[block.section]], Hosts(localhost=example_url), connection
    )


def run_blocks(blocks: Sequence[Block], hosts: Hosts, connection: psycopg.Connection | None) -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    with patch.dict(os.environ):  # a page can export variables
        for block in blocks:
            if block.file:
                Path(block.file).write_text(hosts.resolve(block.code), encoding="utf-8")
            elif block.language == "sql" and connection:
                run_sql(connection, block)
            elif block.language == "python":
                run_python(block, names, hosts)
            elif block.language in ("console", "sh"):
                run_commands(block, hosts)


def test_no_text_proposes_to_install_simsql_from_an_index() -> None:
    texts = [*PAGES, *REPOSITORY.glob("simsql/**/*.py"), *REPOSITORY.glob("examples/**/*.md")]
    proposal = re.compile(r"\b(conda|pipx?|uvx?)( (?!uninstall)[\w-]+)* ['\"]?simsql\b")
    found = [page_id(path) for path in texts if proposal.search(path.read_text(encoding="utf-8"))]
    assert found == [], "simsql is not published: README.md says how to install it"


# Links and lists


def anchors_of(page: Path) -> set[str]:
    """Return the anchors that GitHub makes of the headings."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"(?:\]\(|\b(?:src|srcset)=\")([^)\"\s]+)[)\"]", text):
        if target.startswith("https://"):
            continue
        name, _, anchor = target.partition("#")
        linked = (page.parent / name).resolve() if name else page
        assert linked.exists(), target
        assert not anchor or anchor in anchors_of(linked), target


def test_every_page_is_within_three_clicks() -> None:
    """Each page is in one list of an index.md, of which docs/conf.py makes the tables of contents."""
    items = re.compile(r"^(?:- |\| )\[[^]]*\]\(([^):#]+\.md)\)", re.MULTILINE)
    clicks, lists = {INDEX: 0}, [INDEX]
    for page in lists:
        for link in items.findall(page.read_text(encoding="utf-8")):
            linked = (page.parent / link).resolve()
            assert linked not in clicks, f"{link} is in two lists"
            clicks[linked] = clicks[page] + 1
            lists += [linked] if linked.name == "index.md" else []
    assert set(clicks) == set(REPOSITORY.glob("docs/**/*.md"))
    assert max(clicks.values()) <= 3


def test_the_readme_leads_to_all_pages() -> None:
    links = re.findall(r"\]\(([^)]+)\)", README.read_text(encoding="utf-8"))
    assert {"docs/index.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"} <= set(links)


def test_the_cost_of_distances_is_what_the_design_says() -> None:
    design = Design()
    rows = rows_of_table(HOW_IT_WORKS, "distance", "radius", "probes", "keys read of a million")
    assert [row[0] for row in rows[:3]] == ["3", "7", "10"]
    for row in rows:
        distance = int(row[0])
        assert row[1:4] == [
            str(design.radius(distance)),
            f"{design.probes(distance):,}",
            f"{design.candidates(distance, 1_000_000):,.0f}",
        ]


def test_every_sql_function_is_described(connection: psycopg.Connection) -> None:
    functions = connection.execute(
        "SELECT p.proname, pg_get_function_arguments(p.oid), coalesce(pg_get_function_result(p.oid), 'CALL')"
        " FROM pg_proc AS p"
        " WHERE p.pronamespace = 'simsql'::regnamespace AND p.proname NOT LIKE '\\_%' ORDER BY p.proname"
    ).fetchall()
    text = SQL.read_text(encoding="utf-8")
    signatures = set(re.findall(r"^`simsql\.(\w+)\((.*)\) → (.*)`$", text, re.MULTILINE))
    procedures = re.findall(r"^`CALL simsql\.(\w+)\((.*)\)`$", text, re.MULTILINE)
    signatures |= {(name, re.sub(r"(?:^|(?<=, ))", "IN ", arguments), "CALL") for name, arguments in procedures}
    expected = {
        (name, re.sub(r"DEFAULT (?:NULL::\w+|(\w+|'{}')(?:::text\[\])?)", _default, arguments), result)
        for name, arguments, result in functions
    }
    assert signatures == expected


def test_every_sql_object_has_a_comment_and_an_entry(connection: psycopg.Connection) -> None:
    """The comments of the catalogue are those from which the tables of docs/reference/sql.md are made."""
    found = connection.execute(
        "SELECT CASE prokind WHEN 'p' THEN 'PROCEDURE' ELSE 'FUNCTION' END AS kind, proname AS name,"
        "       obj_description(oid, 'pg_proc') AS comment"
        "  FROM pg_proc WHERE pronamespace = 'simsql'::regnamespace"
        " UNION ALL SELECT 'VIEW', relname, obj_description(oid, 'pg_class')"
        "  FROM pg_class WHERE relnamespace = 'simsql'::regnamespace AND relkind = 'v'"
        " UNION ALL SELECT 'TYPE', t.typname, obj_description(t.oid, 'pg_type')"
        "  FROM pg_type AS t JOIN pg_class AS c ON c.oid = t.typrelid AND c.relkind = 'c'"
        " WHERE t.typnamespace = 'simsql'::regnamespace"
        " UNION ALL SELECT 'COLUMN', relname || '.' || attname, col_description(attrelid, attnum)"
        "  FROM pg_attribute JOIN pg_class AS c ON c.oid = attrelid AND attnum > 0"
        " WHERE relnamespace = 'simsql'::regnamespace AND relkind = 'v'"
    ).fetchall()
    assert sorted(row for row in found if not row[1].startswith("_")) == sorted(comments())
    page = SQL.read_text(encoding="utf-8")
    assert page == with_tables(page), "run: make reference"
    assert {name for kind, name, _ in comments() if kind == "VIEW"} == {"indexes", "problems"}  # with tables


def _default(found: re.Match[str]) -> str:
    return f"DEFAULT {found[1] or 'NULL'}"


def test_every_reason_for_skipping_is_described() -> None:
    found: set[str] = set()
    for file in REPOSITORY.glob("simsql/d*/**/*.py"):  # dedup, documents
        code = file.read_text(encoding="utf-8")
        found |= set(re.findall(r"(?i:unfit)(?:Error)?\(\s*\"([^\"]+)\"", code))
        found |= set(re.findall(r"Skip\([^\"]*(?:f\"[^\"]*\")?[^\"]*?(?<!f)\"([^\"]+)\",", code))
        found |= set(re.findall(r"\bKind\(\s*\"([^\"]+)\"", code))
        found |= set(re.findall(r"^(?:DUPLICATE|FLAT|NO_WORDS) = \"([^\"]+)\"", code, re.MULTILINE))
    assert {"binary", "link", "no words", "duplicate id"} < found  # each found in its own way
    described = {name.strip("`") for row in rows_of_table(COMMANDS, "reason") for name in row[0].split(", ")}
    assert described == found - {"encoding"} | {"not utf-8"}  # of a file that --clean cannot copy


def test_the_messages_of_the_embedded_server_are_those_of_the_code() -> None:
    code = "".join(file.read_text(encoding="utf-8") for file in REPOSITORY.glob("simsql/server/*.py"))
    # Strings that the compiler joins, without what is put into them.
    code = re.sub(r"\{[^{}]*\}", "...", re.sub(r"\"\s*f?\"", "", code))
    for message, *_ in rows_of_table(REPOSITORY / "docs/guides/embedded.md", "message"):
        assert message in code


def test_the_recipe_and_the_version_are_those_of_the_code() -> None:
    assert DEFAULT_RECIPE.id in (REPOSITORY / "docs/reference/fingerprints.md").read_text(encoding="utf-8")
    assert f"## [{simsql.__version__}]" in (REPOSITORY / "CHANGELOG.md").read_text(encoding="utf-8")


# The reference of the commands


def commands_of(group: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each command with its name, those of a group with the group's name in front."""
    context = typer.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if hasattr(command, "commands"):
            yield from commands_of(command, f"{prefix}{name} ")
        else:
            yield f"{prefix}{name}", command


def options_of(command: Any) -> Iterator[Any]:
    return (parameter for parameter in command.params if parameter.param_type_name == "option")


def option_table() -> Iterator[str]:
    """Yield a table of all options: what each means, and which commands have it."""
    users: dict[str, list[str]] = {name: [] for name in MEANINGS}
    commands = list(commands_of(simsql.cli._app.as_click_command()))
    for name, command in commands:
        for parameter in options_of(command):
            users[parameter.opts[0]].append(name)
    yield from ("| option | meaning | commands |", "|---|---|---|")
    for option, meaning in sorted(MEANINGS.items()):
        having = users[option]
        others = [name for name, _ in commands if name not in having]
        listed = ", ".join(f"`{name}`" for name in having)
        if len(others) < len(having):
            listed = f"all but {', '.join(f'`{name}`' for name in others)}"
        flags = ", ".join(filter(None, (option, meaning.short)))
        value = f" {meaning.value}".replace("|", "\\|") if meaning.value else ""
        yield f"| `{flags}{value}` | {meaning.text} | {listed} |"


def test_every_option_means_the_same_everywhere() -> None:
    """One name for a meaning, and one meaning for a name: all of them stand in one place."""
    used: set[str] = set()
    for name, command in commands_of(simsql.cli._app.as_click_command()):
        for parameter in options_of(command):
            meaning = MEANINGS[parameter.opts[0]]
            assert parameter.opts[1:] == [meaning.short] * bool(meaning.short), name
            assert parameter.help.startswith(meaning.text), f"{name} {parameter.opts[0]}"
            assert parameter.is_flag == (meaning.value is None)
            used.add(parameter.opts[0])
    assert used == MEANINGS.keys()
    assert len({meaning.text for meaning in MEANINGS.values()}) == len(MEANINGS)


def command_reference() -> str:
    """Return what the commands say of themselves, as Markdown."""
    # Not as --help prints it: that depends on the version of the library.
    lines = ["### Options", "", "An option has the same meaning in every command.", "", *option_table(), ""]
    for name, command in commands_of(simsql.cli._app.as_click_command()):
        arguments = [parameter for parameter in command.params if parameter.param_type_name == "argument"]
        options = list(options_of(command))
        usage = " ".join(argument.metavar or argument.name.upper() for argument in arguments)
        lines += [f"### simsql {name}", "", f"`simsql {name}{' ' * bool(options)}{'[OPTIONS]' * bool(options)}"]
        lines[-1] += f"{' ' * bool(usage)}{usage}`"
        lines += ["", *re.sub(r"(?<!\n)\n(?!\n)", " ", command.help or "").splitlines(), ""]
        for parameter in (*arguments, *options):
            title = parameter.metavar or parameter.name.upper()
            flag = parameter in options and parameter.is_flag
            if parameter in options:
                flags = ", ".join(parameter.opts)
                title = flags if flag else f"{flags} {parameter.metavar}"
            default = f" Default: `{parameter.default}`." if not (parameter.default is None or flag) else ""
            lines.append(f"- `{title}`: {parameter.help}{default}")
        lines += [""] * bool(command.params)
    return "\n".join(lines)


def test_the_reference_of_the_commands_is_up_to_date() -> None:
    match = REFERENCE.search(COMMANDS.read_text(encoding="utf-8"))
    assert match is not None
    assert match[0] == f"{match[1]}\n{command_reference()}\n", "run: make reference"


# The reference of the Python names


def test_the_reference_of_the_python_names_is_up_to_date() -> None:
    """Each public name has a line, and each line a public name, because both come from `__all__`."""
    pages = reference.committed_pages()
    assert set(pages) == set(reference.FOLDER.iterdir())
    for page, text in pages.items():
        assert page.read_text(encoding="utf-8") == text, f"{page.name}: run: make reference"


if __name__ == "__main__":
    before = COMMANDS.read_text(encoding="utf-8")
    after = REFERENCE.sub(lambda match: f"{match[1]}\n{command_reference()}\n", before)
    COMMANDS.write_text(after, encoding="utf-8")
    for page, text in reference.committed_pages().items():
        page.write_text(text, encoding="utf-8")
    SQL.write_text(with_tables(SQL.read_text(encoding="utf-8")), encoding="utf-8")
