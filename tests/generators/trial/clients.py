"""Programs that are killed in the midst of their work, and run again until it is done."""

import contextlib
import json
import os
import random
import signal
import socket
import time
import traceback
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import psycopg
from corpus import make_texts
from preloaded import preloaded_programs
from sqlalchemy import URL
from upgrades import RELEASED, check_indexes, create_indexes

from simsql import simhash_many
from trial.run import Cluster
from trial.tables import Kind, make_value

ROWS = 15_000  # of the tables that get an index or another storage
_COLUMNS = "(id bigint PRIMARY KEY, tenant integer, lang text, body text, fingerprint bigint)"


class Program:
    """A running program of simsql, started by a process that has imported it."""

    def __init__(self, folder: Path, arguments: list[str]) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.connect(str(folder / "socket"))
        self._output, self._errors = (folder / f"{time.monotonic_ns()}.{name}" for name in ("out", "err"))
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "SIMSQL"))}
        message = json.dumps([["simsql", *arguments], str(folder), kept]).encode()
        with (
            Path(os.devnull).open() as nothing,
            self._output.open("w") as output,
            self._errors.open("w") as errors,
        ):
            streams = [nothing.fileno(), output.fileno(), errors.fileno()]
            socket.send_fds(self._socket, [message], streams)
            self._process = int(self._socket.recv(20))

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._process, signal.SIGKILL)

    def wait(self) -> tuple[int, str, str]:
        """Wait until it ends; return its exit code and what it wrote."""
        self._socket.settimeout(300)
        code = int(self._socket.recv(20))
        self._socket.close()
        written = tuple(path.read_text(encoding="utf-8") for path in (self._output, self._errors))
        self._output.unlink()
        self._errors.unlink()
        return code, *written


class Client:
    """Work of one kind on a table of its own."""

    name: str
    kind: Kind | None = None
    """The table that the work has made searchable."""
    is_done = ""
    """The error of a command that was killed when its work was done."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self._cluster = cluster
        self._folder = folder
        self._arguments: list[str] = []
        self._duration = 1.0

    @property
    def database(self) -> str:
        return "clients"

    @property
    def _options(self) -> list[str]:
        url: URL = self._cluster.server.url(self.database)
        return ["--database", url.render_as_string(hide_password=False)]

    def prepare(self, connection: psycopg.Connection, chance: random.Random) -> None:
        """Make what it works on anew."""
        raise NotImplementedError

    def faults(self, connection: psycopg.Connection, output: str) -> list[str]:
        """What is not as it should be, now that the work is done."""
        raise NotImplementedError

    def start(self) -> Program:
        return Program(self._folder, [*self._arguments, *self._options])

    def moment(self, chance: random.Random) -> float:
        """A time in which the work is probably not done, in seconds."""
        return chance.uniform(0, self._duration)

    def complete(self) -> str:
        """Run it again, until it is done; return what it wrote."""
        start = time.monotonic()
        code, output, errors = self.start().wait()
        assert code == 0 or (self.is_done and self.is_done in errors), f"{self._arguments}: {errors}"
        self._duration = time.monotonic() - start
        return output


@cache
def _texts() -> tuple[list[str], list[int]]:
    """Texts and their fingerprints."""
    texts = list(make_texts(7, families=0, alone=1500).values())
    return texts, simhash_many(texts).filled().view(np.int64).tolist()


class Load(Client):
    name = "load"

    def prepare(self, connection: psycopg.Connection, chance: random.Random) -> None:
        storage = chance.choice(["tables", "expression"])
        self.kind = Kind("loaded", storage)
        _drop(connection, "loaded")
        connection.execute(f"CREATE TABLE loaded {_COLUMNS}")
        texts, fingerprints = _texts()
        self._expected = dict(enumerate(fingerprints))
        connection.execute(
            "INSERT INTO loaded SELECT u.id, NULL, NULL, 'there before', u.f"
            " FROM unnest(%s::bigint[], %s::bigint[]) AS u (id, f)",
            [list(self._expected)[:100], list(self._expected.values())[:100]],
        )
        connection.execute(
            "SELECT simsql.create_index('loaded', 'fingerprint', recipe => 'words12-log-1', storage => %s)",
            [storage],
        )
        path = self._folder / "texts.jsonl"
        lines = [json.dumps({"id": id_, "text": text}) for id_, text in enumerate(texts)]
        path.write_text("\n".join(lines), encoding="utf-8")
        options = ["--id-column", "id", "--text-column", "body", "--workers", "1"]
        self._arguments = ["load", "loaded", str(path), *options]

    def faults(self, connection: psycopg.Connection, output: str) -> list[str]:
        found = dict(connection.execute("SELECT id, fingerprint FROM loaded").fetchall())
        return [] if found == self._expected else [f"{len(found)} rows of {len(self._expected)}"]


class Backfill(Client):
    name = "backfill"

    def prepare(self, connection: psycopg.Connection, chance: random.Random) -> None:
        storage = chance.choice(["tables", "expression"])
        self.kind = Kind("filled", storage)
        texts, fingerprints = _texts()
        _drop(connection, "filled")
        connection.execute(f"CREATE TABLE filled {_COLUMNS}")
        connection.execute(
            "INSERT INTO filled (id, body) SELECT n, t FROM unnest(%s::text[]) WITH ORDINALITY AS u (t, n)",
            [texts],
        )
        self._expected = dict(enumerate(fingerprints, 1))
        connection.execute(
            "SELECT simsql.create_index('filled', 'fingerprint', recipe => 'words12-log-1', storage => %s)",
            [storage],
        )
        self._arguments = ["backfill", "filled", "--text-column", "body", "--batch", "50", "--workers", "1"]

    def faults(self, connection: psycopg.Connection, output: str) -> list[str]:
        found = dict(connection.execute("SELECT id, fingerprint FROM filled").fetchall())
        return [] if found == self._expected else ["other fingerprints than those of the texts"]


class _OnIndex(Client):
    def _fill(self, connection: psycopg.Connection, chance: random.Random, name: str) -> None:
        _drop(connection, name)
        connection.execute(f"CREATE TABLE {name} {_COLUMNS}")
        values = [make_value(chance) for _ in range(500)]
        connection.execute(
            f"INSERT INTO {name} SELECT n, n %% 3, 'en', 'x', coalesce(v.f, 0) # (n / 500 * 7919)"
            " FROM unnest(%s::bigint[]) WITH ORDINALITY AS v (f, m), generate_series(m, %s, 500) AS n",
            [values, ROWS],
        )

    def faults(self, connection: psycopg.Connection, output: str) -> list[str]:
        assert self.kind
        found = connection.execute(
            "SELECT storage, state FROM simsql.indexes WHERE table_name = %s", [f"public.{self.kind.name}"]
        ).fetchall()
        return [] if found == [(self.kind.storage, "ready")] else [f"indexes: {found}"]


class Build(_OnIndex):
    name = "index create --concurrently"
    is_done = "already has a simhash index"

    def prepare(self, connection: psycopg.Connection, chance: random.Random) -> None:
        self._fill(connection, chance, "built")
        self.kind = Kind("built", chance.choice(["tables", "expression"]), chance.choice([(), ("tenant",)]))
        self._arguments = ["index", "create", "built", "fingerprint", "--concurrently", "--blocks", "5"]
        self._arguments += ["--storage", self.kind.storage]
        self._arguments += [part for column in self.kind.scope for part in ("--scope-column", column)]


class ChangeStorage(_OnIndex):
    name = "index change-storage"

    def prepare(self, connection: psycopg.Connection, chance: random.Random) -> None:
        self._fill(connection, chance, "changed")
        storages = chance.sample(["tables", "expression"], 2)
        self.kind = Kind("changed", storages[1])
        connection.execute(
            "SELECT simsql.create_index('changed', 'fingerprint', recipe => 'words12-log-1', storage => %s)",
            storages[:1],
        )
        self._arguments = ["index", "change-storage", "changed", storages[1]]


class DedupTable(Client):
    name = "dedup-table"
    _reference: object = None

    def prepare(self, connection: psycopg.Connection, chance: random.Random) -> None:
        connection.execute("DROP TABLE IF EXISTS decided, decisions")
        connection.execute("CREATE TABLE decided (id text PRIMARY KEY, body text)")
        texts = make_texts(7, families=200, alone=300)
        connection.execute(
            "INSERT INTO decided SELECT * FROM unnest(%s::text[], %s::text[])", [list(texts), list(texts.values())]
        )
        self._arguments = ["dedup-table", "decided", "--text-column", "body", "--into", "decisions", "--replace"]
        self._arguments += ["--workers", "1"]

    def faults(self, connection: psycopg.Connection, output: str) -> list[str]:
        found = connection.execute("SELECT d::text FROM decisions AS d ORDER BY 1").fetchall()
        # The first run of all is compared with the others, whose work was interrupted elsewhere.
        self._reference = self._reference or found
        return [] if found == self._reference and found else [f"{len(found)} decisions, other ones than before"]


class Upgrade(Client):
    """The schema of a released version, with indexes of every kind, becomes the current one."""

    name = "upgrade"
    _number = 0

    @property
    def database(self) -> str:
        return f"upgraded_{self._number}"

    def prepare(self, connection: psycopg.Connection, chance: random.Random) -> None:
        if not connection.execute("SELECT FROM pg_database WHERE datname = 'released'").fetchall():
            connection.execute("CREATE DATABASE released TEMPLATE template0")
            with contextlib.closing(self._cluster.connect("released")) as released:
                version = sorted(RELEASED)[-1]
                released.execute(RELEASED[version].read_text(encoding="utf-8"))
                create_indexes(released)
                # A crash would empty these.
                unlogged = "SELECT oid::regclass::text FROM pg_class WHERE relpersistence = 'u' AND relkind = 'r'"
                for (table,) in released.execute(unlogged).fetchall():
                    released.execute(f"ALTER TABLE {table} SET LOGGED")
        connection.execute(f"DROP DATABASE IF EXISTS {self.database} WITH (FORCE)")
        self._number += 1
        connection.execute(f"CREATE DATABASE {self.database} TEMPLATE released")
        self._arguments = ["install"]

    def faults(self, connection: psycopg.Connection, output: str) -> list[str]:
        with contextlib.closing(self._cluster.connect(self.database)) as upgraded:
            try:
                check_indexes(upgraded)
            except AssertionError as error:
                return [f"{error!r}", *traceback.format_tb(error.__traceback__)[-1:]]
        return []


def _drop(connection: psycopg.Connection, name: str) -> None:
    """Drop the table and those whose names begin like its name, with their indexes."""
    found = connection.execute(
        "SELECT c.relname, r.id IS NOT NULL FROM pg_class AS c"
        " LEFT JOIN simsql.registry AS r ON r.table_id = c.oid"
        " WHERE c.relkind = 'r' AND c.relname LIKE %s AND c.relnamespace = 'public'::regnamespace",
        [f"{name}%"],
    ).fetchall()
    for table, is_indexed in found:
        if is_indexed:
            connection.execute("SELECT simsql.drop_index(%s)", [table])
        connection.execute(f"DROP TABLE {table} CASCADE")


@contextlib.contextmanager
def all_clients(cluster: Cluster, folder: Path) -> Iterator[list[Client]]:
    """One client of each kind; their programs run in this context."""
    with preloaded_programs(folder):
        yield [client(cluster, folder) for client in (Load, Backfill, Build, ChangeStorage, DedupTable, Upgrade)]
