"""Measure readers and writers under load: python -m benchmarks.load --rows 1000000 --minutes 10.

For each storage: a mixture of searches and writes by 1 to 64 clients, what a claim before an insert costs, and how
the index grows while the table changes, with scheduled maintenance and without. pgbench is all clients.
"""

import math
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, get_args

import typer

from benchmarks import mixture, upkeep
from benchmarks.chart import Line, Panel, draw_chart
from benchmarks.environment import describe_machine, describe_server
from benchmarks.figures import Report, markdown_line
from benchmarks.oracle import WrongResultError
from benchmarks.pgbench import WARM_UP, Run, find_pgbench, log_pgbench
from benchmarks.server import connect, default_folder, run_server
from simsql.database.index_spec import Storage
from simsql.errors import SimsqlError
from simsql.evaluate.measures import Estimate
from simsql.server.postgres_server import PostgresServer

RESULTS = Path(__file__).parent / "results"
CLIENTS = (1, 2, 4, 8, 16, 32, 64)
_TABLE = "article"
_FEW, _MANY = 8, 64
_ALONE = (mixture.CLAIM, mixture.INSERT)
_PARTS = (*_ALONE, mixture.TOGETHER, mixture.BOTH, mixture.NOTHING)
_ROUNDS = 2
# Shares of the time: the mixture, the parts of a claim before an insert, and a course.
_LADDER, _CLAIMS, _COURSE = 0.4, 0.12, 0.2
# The table that changes all over has fewer rows, so that it changes several times.
_CHANGING = 5
_FEWEST = 1000
# Autovacuum comes as often as the short time needs; by default it comes each minute.
_SETTINGS = {"autovacuum": "on", "autovacuum_naptime": "1s"}
# The bars.
_SLOWER, _DEARER = 2.0, 2.0


@dataclass
class Load:
    """What was measured of a storage."""

    storage: Storage
    mixed: dict[int, Run] = field(default_factory=dict)  # by the number of clients
    waits: dict[int, str] = field(default_factory=dict)
    parts: dict[tuple[bool, str], list[Run]] = field(default_factory=dict)  # by durability and transaction
    courses: list[upkeep.Course] = field(default_factory=list)
    checked: int = 0

    def slowdown(self) -> float:
        """Return how many times the throughput of 8 clients is that of 64."""
        return self.mixed[_FEW].rate / self.mixed[_MANY].rate

    def seconds(self, durable: bool, name: str) -> float:
        """Return the time of a transaction by 8 clients at once, of the best round."""
        return 1 / max(run.rate for run in self.parts[durable, name])

    def price(self, durable: bool, name: str) -> float:
        """Return how many times as long a claim and an insert take as the slower of both alone."""
        return self.seconds(durable, name) / max(self.seconds(durable, part) for part in _ALONE)

    def problems(self) -> list[str]:
        """Return which bars were missed."""
        found = []
        if self.slowdown() > _SLOWER:
            found.append(f"{self.storage}: {_MANY} clients are {self.slowdown():.1f} times slower than {_FEW}")
        for durable in (True, False):
            if self.price(durable, mixture.TOGETHER) > _DEARER:
                found.append(
                    f"{self.storage}: a claim and an insert in one statement take"
                    f" {self.price(durable, mixture.TOGETHER):.1f} times as long as the slower of them"
                )
        return found + [problem for course in self.courses for problem in course.problems()]


@dataclass
class Bench:
    """A server, and what a run was asked for."""

    cluster: PostgresServer
    pgbench: Path
    report: Report
    rows: int
    seconds: float  # of load on each storage
    seed: int

    def measure(self, storage: Storage) -> Load:
        """Measure one storage. Raises WrongResultError if a search is wrong after all the writes."""
        load = Load(storage)
        with connect(self.cluster) as connection, connect(self.cluster) as watcher:
            self.report.say(f"{storage}: creating {self.rows:,} rows")
            mixture.create_table(connection, _TABLE, self.rows, self.seed, storage)
            seconds = _LADDER * self.seconds / len(CLIENTS)
            for clients in CLIENTS:
                with mixture.watch_waits(watcher) as waits:
                    options = self._options(clients, seconds)
                    run = log_pgbench(self.pgbench, connection, mixture.mixture(_TABLE), options)
                load.mixed[clients], load.waits[clients] = run, mixture.describe_waits(waits)
                self.report.say(f"{storage}: {clients} clients, {run.rate:,.0f} transactions a second")
            scripts = mixture.all_scripts(_TABLE)
            seconds = _CLAIMS * self.seconds / (2 * _ROUNDS * len(_PARTS))
            for _ in range(_ROUNDS):
                for durable in (True, False):
                    for name in _PARTS:
                        one = {name: scripts[name]._replace(weight=1)}
                        options = self._options(_FEW, seconds)
                        run = log_pgbench(self.pgbench, connection, one, options, durable=durable)
                        load.parts.setdefault((durable, name), []).append(run)
            load.checked = mixture.check_searches(connection, _TABLE, self.rows, self.seed)
            mixture.drop_table(connection, _TABLE)
        for maintained in (True, False):
            self.report.say(f"{storage}: a table that changes, {'' if maintained else 'not '}maintained")
            course = upkeep.follow(
                self.cluster,
                self.pgbench,
                storage,
                maintained=maintained,
                rows=max(_FEWEST, self.rows // _CHANGING),
                seconds=_COURSE * self.seconds,
                seed=self.seed,
            )
            load.courses.append(course)
        return load

    def _options(self, clients: int, seconds: float) -> list[str]:
        return mixture.options(clients, self.rows, self.seed, mixture.limit(seconds))


def describe(load: Load) -> str:
    """Return all that was measured of a storage, as Markdown."""
    names = list(mixture.mixture(_TABLE))
    courses = {course.name: course.mixture for course in load.courses}
    parts = [
        f"## Storage `{load.storage}`",
        f"### By the number of clients, the last {1 - WARM_UP:.0%} of each run",
        mixture.latency_table({f"{clients}": run for clients, run in load.mixed.items()}, names),
        f"{_MANY} clients: {1 / load.slowdown():.2f} times the throughput of {_FEW}; pgbench itself took"
        f" {load.mixed[_MANY].processor:.0%} of one core. {load.checked} searches afterwards equal brute force.",
        "\n".join(f"- {clients} clients: {waits}" for clients, waits in load.waits.items()),
        f"### A claim before an insert, {_FEW} clients",
        _parts_table(load),
        "### A table that changes",
        mixture.latency_table(courses, names),
    ]
    for course in load.courses:
        parts += [
            f"{course.name}: {upkeep.describe_course(course)}",
            f"```text\n{upkeep.course_table(course)}\n```",
        ]
    return "\n\n".join(parts)


def _parts_table(load: Load) -> str:
    """Return the throughput of claims and inserts, and x, how many times as long as the slower part each takes."""
    lines = [
        markdown_line(["transactions a second", "durable", "x", "not waiting for the disk", "x"]),
        markdown_line(["---", "---:", "---:", "---:", "---:"]),
    ]
    for name in _PARTS:
        cells = [name]
        for durable in (True, False):
            cells += [f"{1 / load.seconds(durable, name):,.0f}", f"{load.price(durable, name):.2f}"]
        lines.append(markdown_line(cells))
    return "\n".join(lines)


def draw(loads: Sequence[Load]) -> str:
    """Return the chart: throughput and latency by the number of clients, and the courses."""
    throughput, latency, sizes, shares = ([] for _ in range(4))
    for load in loads:
        by_clients = list(enumerate(load.mixed.values()))
        throughput.append(_line(load.storage, [(place, run.rate / 1000) for place, run in by_clients]))
        near = [(place, mixture.percentiles(run, mixture.NEAR)) for place, run in by_clients]
        points = [(place, Estimate(found[0], found[0], found[1])) for place, found in near if found]
        latency.append(Line(load.storage, points))
        for course in load.courses:
            sizes.append(_line(course.name, [(look.seconds, look.index_bytes / 1e6) for look in course.looks]))
            shares.append(_line(course.name, [(look.seconds, look.unvacuumed) for look in course.looks]))
    clients = {place: f"{number}" for place, number in enumerate(CLIENTS)}
    panels = [
        ("thousand transactions a second", "clients", throughput, clients),
        ("near, distance 3: ms, p50 up to p99", "clients", latency, clients),
        ("MB of the index of a changing table", "seconds", sizes, None),
        ("share that a vacuum would clean up", "seconds", shares, None),
    ]
    return draw_chart([Panel(*panel[:3], _highest(panel[2]), panel[3]) for panel in panels])


def _line(name: str, points: Sequence[tuple[float, float]]) -> Line:
    return Line(name, [(x, Estimate(value, value, value)) for x, value in points])


def _highest(lines: Sequence[Line]) -> float:
    """Return a round number above all values, or 1."""
    highest = max((value.high or 0.0 for line in lines for _, value in line.points), default=0.0)
    if not highest:
        return 1.0
    step = 10.0 ** math.floor(math.log10(highest)) / 2
    return math.ceil(highest / step) * step


def measure(
    rows: int,
    minutes: float,
    seed: int,
    folder: Path,
    chart: Path,
    storages: Sequence[Storage] = get_args(Storage),
) -> int:
    """Measure storages, print everything and draw the chart. Return the exit code.

    0: all is well; 1: a bar was missed, or a result was wrong; 2: it could not be measured.
    """
    pgbench = find_pgbench()
    if pgbench is None:
        print("pgbench is not installed", file=sys.stderr)
        return 2
    loads = []
    try:
        with run_server(folder, rows, 0, _SETTINGS) as cluster:
            with connect(cluster) as connection:
                for name, value in {**describe_machine(), **describe_server(connection)}.items():
                    print(f"{name}: {value}")
            print(f"rows: {rows}, minutes: {minutes:g}, seed: {seed}", flush=True)
            bench = Bench(cluster, pgbench, Report(), rows, 60 * minutes / len(storages), seed)
            for storage in storages:
                loads.append(bench.measure(storage))
                print(f"\n{describe(loads[-1])}", flush=True)
    except WrongResultError as error:
        print(f"WRONG RESULT: {error}", file=sys.stderr)
        return 1
    except SimsqlError as error:
        print(error, file=sys.stderr)
        return 2
    chart.parent.mkdir(parents=True, exist_ok=True)
    chart.write_text(draw(loads), encoding="utf-8")
    problems = [problem for load in loads for problem in load.problems()]
    print(f"\nchart: {chart}")
    print("\n".join(problems) if problems else "all bars are met")
    return int(bool(problems))


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    rows: Annotated[int, typer.Option(min=_FEWEST, help="Rows of the table.")] = 1_000_000,
    minutes: Annotated[float, typer.Option(min=0, help="Minutes of load in all.")] = 10,
    seed: Annotated[int, typer.Option(help="Of the data and of the clients' choices.")] = 1,
    folder: Annotated[
        Path | None, typer.Option(file_okay=False, exists=True, help="Where the server's folder is made.")
    ] = None,
    chart: Annotated[Path, typer.Option(dir_okay=False, help="The SVG file to write.")] = RESULTS / "load.svg",
) -> None:
    """Measure readers and writers, mixed, by 1 to 64 clients, and how the index grows."""
    sys.exit(measure(rows, minutes, seed, (folder or default_folder()).resolve(), chart))


if __name__ == "__main__":
    # As Ctrl-C does: what was started is stopped.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    app()
