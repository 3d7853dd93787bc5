"""Change one condition of one SQL function at a time: does a test notice?

    python tests/generators/sql_mutants.py --every 20 claim _claim_locks

runs on a new server of the newest PostgreSQL there is. First it runs the tests once, and records which functions
each of them calls. Then it puts one change after another (sql_mutations.py) into the database from which
each test gets a copy, and runs the tests that call this function until one of them fails: first those that
found something before, then those that call little else and are quick. It prints each change that no test noticed.
Now and then it changes nothing: if a test fails then, others may have failed for no reason, too.
"""

import argparse
import contextlib
import json
import os
import signal
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import NamedTuple

import pytest
from _pytest.runner import runtestprotocol

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS / "support"), str(TESTS.parent)]

import psycopg  # noqa: E402
import servers  # noqa: E402
from sql_mutations import mutations  # noqa: E402

# These need another installation of simsql, or too long.
_UNSUITABLE = ("citus", "ddl", "dump", "partman", "plpgsql_check", "replication", "settings", "trial")
_UNCOUNTED = {
    "_searched_index": "_searchable",
    "_unsearchable": "_searchable",
    "_claimed_index": "_claim_keys",
    "_make_claim_secret": "_claim_keys",
    "claim": "_claim_keys",
    "near": "_searchable",
    "_storage_advice": "indexes",
    "_search_decision": "_radius",
    "_tables_vacuum": "_share",
}
_HANGS = 60  # seconds


_FUNCTIONS = """
    SELECT p.proname, pg_get_functiondef(p.oid), p.prosrc
      FROM pg_proc AS p
     WHERE p.pronamespace = 'simsql'::regnamespace AND p.prokind IN ('f', 'p')
     ORDER BY p.oid::regprocedure::text
"""
_VIEWS = """
    SELECT c.relname, coalesce('WITH (' || array_to_string(c.reloptions, ', ') || ')', ''), pg_get_viewdef(c.oid)
      FROM pg_class AS c
     WHERE c.relnamespace = 'simsql'::regnamespace AND c.relkind = 'v'
     ORDER BY c.relname
"""


class Mutant(NamedTuple):
    """A changed function: the statement that makes it, and the one that mends it."""

    name: str
    description: str
    changed: str
    original: str


class Mutants:
    """A plugin of pytest that runs its tests again and again."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.calls: dict[str, set[str]] = {}  # by test
        self.seconds: dict[str, float] = {}
        self.found: Counter[str] = Counter()
        self.found_in: dict[str, Counter[str]] = defaultdict(Counter)
        self.filled: dict[str, set[str]] = {}  # by template
        self.called: set[str] = set()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        from hypothesis import settings  # pytest must be the first that imports it

        settings.register_profile("mutants", settings.get_profile("untimed"), derandomize=True, database=None)
        settings.load_profile("mutants")
        newest = servers.find_programs()[0]
        self.items = {item.nodeid: item for item in session.items if _program(item) in {None, newest}}
        self._record_calls()
        self._learn()
        server = self.server
        survivors, controls, killed, invalid = [], Counter(), 0, 0
        chosen = self._mutants(server)
        for place, mutant in enumerate(chosen, start=1):
            if mutant.changed == mutant.original:
                self._put(server, mutant.changed)
                controls[self._run(server, mutant) is None] += 1
                continue
            if not self._put(server, mutant.changed):
                invalid += 1
                continue
            by = self._run(server, mutant)
            killed += by is not None
            if by is None:
                survivors.append(mutant)
            self._tell(
                f"{place}/{len(chosen)} {mutant.name} {mutant.description}: "
                + (f"noticed by {by}: {self.reason}" if by else "NOT NOTICED")
            )
        valid = killed + len(survivors)
        self._tell(
            f"\n{valid} changes, {killed} noticed, {len(survivors)} not; {invalid} are no SQL; "
            f"nothing changed: {controls[True]} times no test failed, {controls[False]} times one did"
        )
        for mutant in survivors:
            self._tell(f"{mutant.name} {mutant.description}")
        return True

    def _tell(self, line: str) -> None:
        print(line, file=sys.__stdout__, flush=True)

    # --- which test calls what

    def _record_calls(self) -> None:
        memory = self.options.calls
        if memory.exists():
            calls, self.seconds = json.loads(memory.read_text())
            self.calls = {name: set(called) for name, called in calls.items()}
        new_database, template = servers.Server.new_database, servers.Server.template

        @contextlib.contextmanager
        def recording(server: servers.Server, *, template: str = servers.TEMPLATE):
            self.server = server
            with new_database(server, template=template) as url:
                yield url
                self.called |= self.filled.get(template, set()) | _called(server, url.database)

        def filling(server: servers.Server, fill) -> str:
            new = fill not in server._templates
            name = template(server, fill)
            if new:
                self.filled[name] = _called(server, name)
            return name

        # The first one starts the server.
        missing = [name for place, name in enumerate(self.items) if name not in self.calls or not place]
        servers.Server.new_database, servers.Server.template = recording, filling
        for place, name in enumerate(missing):
            if place % 50 == 49:
                self._save_calls()
                self._tell(f"{place}/{len(missing)} tests")
            self.called.clear()
            start = time.monotonic()
            if self._passes(name):
                self.calls[name] = set(self.called)
            else:
                self.calls[name] = set()
                self._tell(f"fails without any change: {name}")
            self.seconds[name] = time.monotonic() - start
        servers.Server.new_database, servers.Server.template = new_database, template
        self._save_calls()

    def _save_calls(self) -> None:
        calls = {name: sorted(called) for name, called in self.calls.items()}
        self.options.calls.write_text(json.dumps([calls, self.seconds]))

    def _learn(self) -> None:
        self.by_function: dict[str, list[str]] = defaultdict(list)
        for name, called in self.calls.items():
            if name in self.items:
                # PostgreSQL counts no calls of views, nor of functions that it inlines.
                for function in {*called, *(to for by, to in _UNCOUNTED.items() if by in called)}:
                    self.by_function[function].append(name)

    def _order(self, function: str) -> list[str]:
        """The tests to run for a change, in this order."""
        names = self.by_function[function]
        # The more tests call what this one calls, the less it is about this function.
        special = {n: sum(1 / len(self.by_function[f]) for f in self.calls[n]) for n in names}
        return sorted(
            names,
            key=lambda n: (
                -self.found_in[function][n],
                -min(self.found[n], 3),
                self.seconds[n] / (0.1 + special[n]),
            ),
        )

    # --- changes

    def _mutants(self, server: servers.Server) -> list[Mutant]:
        found: list[Mutant] = []
        untested: list[str] = []
        with server.connect(servers.TEMPLATE) as connection:
            for name, head, body, tail in _sources(connection):
                if self.options.functions and name not in self.options.functions:
                    continue
                if name not in self.by_function:
                    untested.append(name)
                    continue
                for mutation in mutations(body):
                    found.append(
                        Mutant(
                            name, mutation.describe(body), head + mutation.apply(body) + tail, head + body + tail
                        )
                    )
        mine = found[self.options.offset :: self.options.every]
        self._tell(f"no test here calls {', '.join(untested)}")
        self._tell(f"{len(mine)} of {len(found)} changes")
        for place in range(20, len(mine), 41):
            mine.insert(place, mine[place]._replace(changed=mine[place].original, description="unchanged"))
        return mine

    def _put(self, server: servers.Server, statement: str) -> bool:
        with server.connect(servers.TEMPLATE) as connection:
            try:
                connection.execute("SET check_function_bodies = on; SET statement_timeout = '10s'")
                connection.execute(statement)
            except psycopg.Error:
                return False
            finally:
                connection.close()
        server._disconnect(servers.TEMPLATE)
        # Those, too, that a test could not fill.
        _drop_databases(server, servers.TEMPLATE + r"\_%")
        server._templates.clear()
        return True

    def _run(self, server: servers.Server, mutant: Mutant) -> str | None:
        """The test that fails while the change is there, if one does."""
        tests = self._order(mutant.name)[: self.options.tests]
        noticed = next((name for name in tests if not self._passes(name)), None)
        if noticed:
            self._clean(server)
        self._put(server, mutant.original)
        if noticed and mutant.changed != mutant.original:
            self.found[noticed] += 1
            self.found_in[mutant.name][noticed] += 1
        elif noticed:
            self._tell(f"fails although nothing changed: {noticed}: {self.reason}")
        return noticed

    def _passes(self, name: str) -> bool:
        item = self.items[name]

        def hang(*_: object) -> None:
            raise TimeoutError("the test hangs")

        signal.signal(signal.SIGALRM, hang)
        signal.alarm(_HANGS)
        try:
            # The next test is never None, which would stop the server.
            reports = runtestprotocol(item, log=False, nextitem=self._another(item))
        finally:
            signal.alarm(0)
        failures = [report.longreprtext for report in reports if report.failed]
        # pytest puts E before the lines of an error.
        self.reason = next(
            (line[1:].strip() for text in failures for line in text.splitlines() if line[:1] == "E"), ""
        )
        return not failures

    def _another(self, item: pytest.Item) -> pytest.Item:
        """A test of another module, so that what belongs to a module goes."""
        return next(other for other in self.items.values() if other.path != item.path)

    def _clean(self, server: servers.Server) -> None:
        """Drop what a test that failed has left behind."""
        _drop_databases(server, r"test\_%")
        administration = server._administration
        for (name,) in administration.execute(
            "SELECT rolname FROM pg_roles WHERE rolname LIKE 'role\\_%'"
        ).fetchall():
            with contextlib.suppress(psycopg.Error):
                administration.execute(f'DROP ROLE "{name}"')


def _drop_databases(server: servers.Server, like: str) -> None:
    names = server._administration.execute("SELECT datname FROM pg_database WHERE datname LIKE %s", [like])
    for (name,) in names.fetchall():
        with contextlib.suppress(psycopg.Error):
            server._administration.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


def _program(item: pytest.Item) -> servers.Program | None:
    call = getattr(item, "callspec", None)
    return call and call.params.get("server")


def _called(server: servers.Server, database: str) -> set[str]:
    server._disconnect(database)
    with server.connect(database) as connection:
        rows = connection.execute(
            "SELECT funcname FROM pg_stat_user_functions WHERE schemaname = 'simsql'"
        ).fetchall()
    server._disconnect(database)
    return {name for (name,) in rows}


def _sources(connection: psycopg.Connection) -> list[tuple[str, str, str, str]]:
    """The name of each function and view, and the head, the body and the end of the statement that creates it."""
    found = []
    for name, definition, source in connection.execute(_FUNCTIONS).fetchall():
        # PostgreSQL has no source of a standard body, and writes it anew.
        body = source or definition.partition("RETURN ")[2]
        head, tail = definition.split(body)
        found.append((name, head, body, tail))
    for name, options, definition in connection.execute(_VIEWS).fetchall():
        found.append((name, f"CREATE OR REPLACE VIEW simsql.{name} {options} AS", definition, ""))
    return found


def main() -> None:
    """Run the program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("functions", nargs="*", help="change these alone")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="every N-th change")
    parser.add_argument("--offset", type=int, default=0, help="begin with this one")
    parser.add_argument("--tests", type=int, default=100, help="at most this number of tests for one change")
    parser.add_argument(
        "--calls", type=Path, default=Path(".sql-mutants.json"), help="which test calls what; written if missing"
    )
    options = parser.parse_args()
    servers.SETTINGS |= {"track_functions": "all", "statement_timeout": "10s", "lock_timeout": "5s"}
    os.chdir(TESTS.parent)
    files = [
        str(path)
        for path in sorted((TESTS / "sql").glob("test_*.py"))
        if not any(word in path.name for word in _UNSUITABLE)
    ]
    sys.exit(pytest.main(["-n0", "-p", "no:cacheprovider", *files], plugins=[Mutants(options)]))


if __name__ == "__main__":
    main()
