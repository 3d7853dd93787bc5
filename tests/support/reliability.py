"""What the tests of faults tried, lost and found wrongly: how they compare and count, and the table of it.

A test with the marker `fault("a kind of fault")` counts as one try if it passes; `tally(tried=20)` counts more.
The fixture `examine` compares searches with brute force, counts what is lost or wrong, and then proves that it
would have noticed: it breaks something, compares again, and takes that back. Each kind needs a test with
`examine`, or one marked `fault("a kind of fault", sabotage=True)`, which breaks something and requires its check
to notice.
"""

import ast
import itertools
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import oracle
import psycopg
import pytest
from articles import missing_keys
from internals import key_tables
from psycopg import sql

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs/explanation/reliability.md"
_TABLE = re.compile(r"(<!-- made by make reliability -->\n).*?(?=<!-- end -->)", re.DOTALL)
_HEADER = "| fault or misuse | tried | lost | wrong | tests |\n|---|---|---|---|---|\n"


# How tests compare


class Compared(NamedTuple):
    """What a comparison found."""

    searches: int
    lost: int
    """Committed rows that are gone or have no key, and matches that searches missed."""
    wrong: int
    """Rows that nobody committed, and results that do not match."""


def compare(
    connection: psycopg.Connection,
    committed: Mapping[int, int | None],
    *,
    table: str = "article",
    distances: Iterable[int] = (0, 3, 7),
    searches: int = 20,
) -> Compared:
    """Compare the rows (id, fingerprint) of a table with what was committed, and searches with brute force."""
    found = dict(connection.execute(f"SELECT id, fingerprint FROM {table}").fetchall())
    lost = sum(row not in found or found[row] != value for row, value in committed.items())
    wrong = len(found.keys() - committed.keys())
    lost += len(missing_keys(connection, table))
    prints = sorted({value for value in committed.values() if value is not None})
    queries = prints[:: max(1, len(prints) // searches)]
    for query, within in itertools.product(queries, distances):
        statement = "SELECT fingerprint, distance FROM simsql.near(%s::regclass, %s::bigint, %s)"
        matches = set(connection.execute(statement, [table, query, within]).fetchall())
        expected = set(oracle.near(prints, query, within))
        lost += len(expected - matches)
        wrong += len(matches - expected)
    return Compared(len(queries) * len(list(distances)), lost, wrong)


def sabotage(
    connection: psycopg.Connection, committed: Mapping[int, int | None], *, table: str = "article"
) -> Iterator[str]:
    """Break something and yield what, once for each way; it is taken back afterwards."""
    victim, value = next((row, value) for row, value in committed.items() if value is not None)
    breaks = {"a row is gone": [sql.SQL("DELETE FROM {} WHERE id = {}").format(sql.SQL(table), victim)]}
    if keys := key_tables(connection, table):
        breaks["keys are gone"] = [
            sql.SQL("DELETE FROM simsql.{} AS k WHERE {} = {}").format(
                sql.Identifier(key.name), sql.SQL(key.fingerprint), sql.Literal(value)
            )
            for key in keys
        ]
    for name, statements in breaks.items():
        with connection.transaction(force_rollback=True):
            connection.execute("SET LOCAL session_replication_role = replica")
            for statement in statements:
                connection.execute(statement)
            yield name


# How tests count


class Tally:
    """Counts the tries of one test; call it when something has been tried."""

    def __init__(self, item: pytest.Item) -> None:
        self._item = item

    def __call__(self, *, tried: int = 1, lost: int = 0, wrong: int = 0) -> None:
        self._item.user_properties.append(("tally", [tried, lost, wrong]))
        assert (lost, wrong) == (0, 0), f"{lost} rows or matches lost, {wrong} wrong"


class Examine:
    """Compares searches of a table with brute force, and counts it; proves that a loss would have been seen."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally

    def __call__(
        self,
        connection: psycopg.Connection,
        committed: Mapping[int, int | None],
        *,
        tried: int = 1,
        table: str = "article",
        distances: Iterable[int] = (0, 3, 7),
    ) -> None:
        found = compare(connection, committed, table=table, distances=distances)
        self._tally(tried=tried, lost=found.lost, wrong=found.wrong)
        for broken in sabotage(connection, committed, table=table):
            assert compare(connection, committed, table=table, distances=distances).lost, f"not noticed: {broken}"


# The table


@dataclass
class Kind:
    """A kind of fault: the files of its tests, and whether one of them has a sabotage."""

    files: set[str] = field(default_factory=set)
    sabotaged: bool = False


def read_kinds() -> dict[str, Kind]:
    """The kinds that tests are marked with, by reading the tests."""
    kinds: dict[str, Kind] = defaultdict(Kind)
    for path in sorted(TESTS.rglob("test_*.py")):
        code = path.read_text(encoding="utf-8")
        if "mark.fault(" not in code:
            continue
        tree = ast.parse(code)
        functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
        for function in functions:
            for decorator in function.decorator_list:
                _read_markers(kinds, decorator, [function], path)
        for node in tree.body:
            if isinstance(node, ast.Assign) and "pytestmark" in ast.unparse(node.targets[0]):
                _read_markers(kinds, node.value, functions, path)
    return kinds


def _read_markers(
    kinds: dict[str, Kind], where: ast.expr, functions: Iterable[ast.FunctionDef], path: Path
) -> None:
    for call in ast.walk(where):
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "pytest.mark.fault":
            kind = kinds[ast.literal_eval(call.args[0])]
            kind.files.add(str(path.relative_to(TESTS)))
            kind.sabotaged |= any(keyword.arg == "sabotage" for keyword in call.keywords)
            kind.sabotaged |= any(
                argument.arg == "examine" for function in functions for argument in function.args.args
            )


class Row(NamedTuple):
    """A line of the table in the documentation."""

    kind: str
    tried: int
    lost: int
    wrong: int
    files: set[str]


def read_page() -> list[Row]:
    """The table as the documentation has it."""
    table = _TABLE.search(PAGE.read_text(encoding="utf-8"))
    rows = []
    for line in table[0].splitlines():
        if line.startswith("| ") and line + "\n" not in _HEADER:
            kind, tried, lost, wrong, files = (cell.strip() for cell in line.strip("|").split("|"))
            numbers = (int(cell.replace(",", "")) for cell in (tried, lost, wrong))
            rows.append(Row(kind, *numbers, set(re.findall(r"\(\.\./\.\./tests/([^)]+)\)", files))))
    return rows


def as_table(counts: Mapping[str, Iterable[int]], kinds: Mapping[str, Kind]) -> str:
    """The table, in the order of the page; new kinds at the end. Those that did not run keep their figures."""
    before = {row.kind: row[1:4] for row in read_page()}
    lines = []
    for name in sorted(kinds, key=lambda name: list(before).index(name) if name in before else len(before)):
        files = ", ".join(f"[{file}](../../tests/{file})" for file in sorted(kinds[name].files))
        figures = " | ".join(f"{count:,}" for count in counts.get(name) or before.get(name, (0, 0, 0)))
        lines.append(f"| {name} | {figures} | {files} |\n")
    return _HEADER + "".join(lines)


class Reliability:
    """Plugin of pytest: tells the tests what to count, and adds up what they report."""

    def __init__(self, config: pytest.Config) -> None:
        self._asked = config.getoption("reliability")
        self._counts: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
        self._failed = False

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        slow = [item for item in items if item.get_closest_marker("slow") and not self._asked]
        if slow:
            config.hook.pytest_deselected(items=slow)
            items[:] = [item for item in items if item not in slow]
        for item in items:
            for marker in item.iter_markers("fault"):
                # These reach the process that reports, whichever runs the test.
                name = "sabotage" if marker.kwargs.get("sabotage") else "fault"
                item.user_properties.append((name, marker.args[0]))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._failed |= report.failed
        if report.when != "call" or report.skipped:
            return
        tallies = [value for name, value in report.user_properties if name == "tally"] or [[1, 0, 0]]
        for name, kind in report.user_properties:
            if name == "fault":
                self._counts[kind] = [sum(each) for each in zip(self._counts[kind], *tallies, strict=True)]

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not (self._asked and self._counts):
            return
        table = as_table(self._counts, read_kinds())
        terminalreporter.write_line(table)
        if not self._failed:
            PAGE.write_text(_TABLE.sub(lambda found: found[1] + table, PAGE.read_text(encoding="utf-8")), "utf-8")
