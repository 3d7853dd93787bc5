"""Fixtures for tests that need PostgreSQL: each such test runs on every server that there is."""

import contextlib
from collections.abc import Callable, Iterator

import pytest
from servers import Program, Server, find_programs, run_server
from sqlalchemy import URL, Engine

from simsql.database.connect import open_engine

PROGRAMS = find_programs()


def pytest_sessionstart(session: pytest.Session) -> None:
    # pytest_report_header is silent under -q, and what was not tested has to be seen.
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter and not hasattr(session.config, "workerinput"):
        reporter.write_line(f"servers: PostgreSQL {', '.join(map(str, PROGRAMS)) or 'none'}")


@pytest.fixture(scope="session")
def _running() -> Iterator[Callable[[Program], Server]]:
    """Servers by program, started when first asked for and stopped after the last test of all."""
    servers: dict[Program, Server] = {}
    with contextlib.ExitStack() as stack:

        def start(program: Program) -> Server:
            if program not in servers:
                servers[program] = stack.enter_context(run_server(program))
            return servers[program]

        yield start


@pytest.fixture(scope="session", params=PROGRAMS, ids=lambda program: program.name)
def server(request: pytest.FixtureRequest, _running: Callable[[Program], Server]) -> Server:
    """A running server: `.name`, `.version`, `.major`, `.url(database)`."""
    return _running(request.param)


@pytest.fixture
def database_url(server: Server) -> Iterator[str]:
    """The URL of a new database with simsql installed."""
    with server.new_database() as url:
        yield _in_full(url)


@pytest.fixture
def database(database_url: str) -> Iterator[Engine]:
    """An engine for a new database with simsql installed."""
    with _engine(database_url) as engine:
        yield engine


@pytest.fixture
def empty_database(server: Server) -> Iterator[Engine]:
    """An engine for a new database without simsql."""
    with server.new_database(template="template0") as url, _engine(_in_full(url)) as engine:
        yield engine


def _in_full(url: URL) -> str:
    return url.render_as_string(hide_password=False)


@contextlib.contextmanager
def _engine(url: str) -> Iterator[Engine]:
    engine = open_engine(url)
    yield engine
    engine.dispose()
