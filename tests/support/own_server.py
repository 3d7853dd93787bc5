"""Servers of a test's own, with settings or ends that no other test should see."""

import contextlib
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psycopg
from servers import SETTINGS, Program, memory

from simsql.database import install_schema, open_engine
from simsql.server.binaries import server_account
from simsql.server.postgres_server import PostgresServer


@contextlib.contextmanager
def new_folder() -> Iterator[Path]:
    """A folder for servers, which may run as another user."""
    with tempfile.TemporaryDirectory(prefix="simsql-own-", dir=memory()) as name:
        Path(name).chmod(0o711)
        yield Path(name)


@contextlib.contextmanager
def own_server(program: Program, folder: Path, **settings: str) -> Iterator[PostgresServer]:
    """A server with these settings, with simsql in its database `postgres`."""
    cluster = PostgresServer(program.bin_folder, folder / "data", SETTINGS | settings)
    cluster.init()
    with running(cluster):
        engine = open_engine(cluster.url())
        install_schema(engine)
        engine.dispose()
        yield cluster


@contextlib.contextmanager
def running(cluster: PostgresServer, **settings: str) -> Iterator[PostgresServer]:
    """The server with these other settings, until it is stopped."""
    cluster = replace(cluster, settings={**cluster.settings, **settings})
    cluster.start()
    try:
        yield cluster
    finally:
        cluster.stop()


def session(cluster: PostgresServer) -> psycopg.Connection:
    """A connection of psycopg to the database `postgres`, in autocommit mode."""
    return psycopg.connect(dbname="postgres", user="postgres", autocommit=True, **cluster.url().query)


def run_as_owner(cluster: PostgresServer, program: str, *arguments: object) -> None:
    """Run a program of the server as the user that owns its data."""
    account = server_account(cluster.data_folder)
    account.run(cluster.bin_folder / program, *map(str, arguments))
