"""Measure simsql and its peers side by side: python -m benchmarks --rows 1000000."""

import signal
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType
from typing import Annotated

import typer

from benchmarks.data import make_fingerprints, make_queries
from benchmarks.environment import Environment, describe_machine, describe_server
from benchmarks.figures import Report
from benchmarks.harness import Bench, Options, Run, Section, SectionWithoutServer, Target
from benchmarks.oracle import Oracle, WrongResultError
from benchmarks.sections import (
    batch,
    build,
    calls,
    citus,
    clients,
    corpus,
    dedup,
    documents,
    fingerprint,
    growth,
    memory,
    near,
    pairs,
    radius,
    wide,
    writes,
)
from benchmarks.server import connect, default_folder, run_server
from benchmarks.tables import bar_table, section_table
from simsql.database import open_engine
from simsql.errors import SimsqlError

SECTIONS: dict[str, Section] = {
    module.SECTION: module.run
    for module in (near, calls, growth, batch, pairs, memory, build, radius, wide, corpus, documents, writes)
} | {clients.SECTION: clients.run}
# These need no server or start their own. They run before the server of the others starts.
WITHOUT_SERVER: dict[str, SectionWithoutServer] = {
    module.SECTION: module.run for module in (fingerprint, dedup, citus)
}
ALL = (*WITHOUT_SERVER, *SECTIONS)
RESULTS = Path(__file__).parent / "results"


def measure(
    options: Options,
    sections: Mapping[str, Section],
    without_server: Mapping[str, SectionWithoutServer] = MappingProxyType({}),
) -> int:
    """Run sections, print their figures and write the JSON file. Return the exit code.

    0: all was measured; 1: a result was wrong, which stderr says; 2: the server could not be started.
    """
    report = Report(options={name: str(value) for name, value in asdict(options).items()})
    try:
        _describe(report, describe_machine())
        for name, run in without_server.items():
            report.say(f"section {name}")
            run(Run(options, report))
            _show(options, report, name)
        if sections:
            _measure_with_server(options, report, sections)
    except WrongResultError as error:
        report.wrong_result = str(error)
        report.write(options.results)
        print(f"WRONG RESULT: {error}", file=sys.stderr)
        return 1
    except SimsqlError as error:
        print(error, file=sys.stderr)
        return 2
    print(f"\nbars (in brackets where they are meant for more rows)\n\n{bar_table(report)}")
    for reason in report.skipped:
        print(f"not measured: {reason}")
    print(f"\nwritten to {options.results}; as Markdown: python -m benchmarks.tables {options.results}")
    return 0


def _measure_with_server(options: Options, report: Report, sections: Mapping[str, Section]) -> None:
    with (
        run_server(options.folder, options.rows, options.grow_to) as cluster,
        connect(cluster) as connection,
    ):
        _describe(report, describe_server(connection))
        values = make_fingerprints(options.rows, options.seed)
        target = Target("article", Oracle(values), make_queries(values, options.queries, options.seed))
        engine = open_engine(cluster.url())
        try:
            bench = Bench(options, report, engine, connection, target)
            bench.create(target.table, target.oracle.values)
            for name, run in sections.items():
                report.say(f"section {name}")
                run(bench)
                _show(options, report, name)
        finally:
            engine.dispose()


def _describe(report: Report, environment: Environment) -> None:
    report.environment |= environment
    for name, value in environment.items():
        print(f"{name}: {value}", flush=True)


def _show(options: Options, report: Report, section: str) -> None:
    """After each section: what takes so long is not lost if a later one is interrupted."""
    report.write(options.results)
    print(f"\n{section}\n\n{section_table(report, section)}", flush=True)


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    rows: Annotated[int, typer.Option(min=1000, help="Fingerprints in the table.")] = 1_000_000,
    queries: Annotated[int, typer.Option(min=10, help="Queries of each kind, at most.")] = 10_000,
    batch: Annotated[int, typer.Option(min=10, help="Queries of the largest batch.")] = 1_000_000,
    only: Annotated[list[str] | None, typer.Option(help=f"Sections: {', '.join(ALL)}.")] = None,
    peers: Annotated[bool, typer.Option(help="Measure the peers that are installed, too.")] = True,
    grow_to: Annotated[int, typer.Option(help="How cost grows: also measure as many rows as this.")] = 0,
    seed: Annotated[int, typer.Option(help="Of the data.")] = 1,
    folder: Annotated[
        Path | None, typer.Option(file_okay=False, exists=True, help="Where the server's folder is made.")
    ] = None,
    results: Annotated[Path | None, typer.Option(dir_okay=False, help="The JSON file to write.")] = None,
) -> None:
    """Measure simsql and the systems that people use today on the same data, and check what they find."""
    unknown = sorted(set(only or []) - set(ALL))
    if unknown:
        raise typer.BadParameter(f"there is no section {', '.join(unknown)}: choose from {', '.join(ALL)}")
    options = Options(
        rows=rows,
        queries=queries,
        batch=batch,
        seed=seed,
        peers=peers,
        grow_to=grow_to,
        folder=(folder or default_folder()).resolve(),
        results=results or RESULTS / f"{rows}.json",
    )
    chosen = set(only or ALL)
    with_server = {name: run for name, run in SECTIONS.items() if name in chosen}
    without_server = {name: run for name, run in WITHOUT_SERVER.items() if name in chosen}
    sys.exit(measure(options, with_server, without_server))


if __name__ == "__main__":
    # As Ctrl-C does: what was started is stopped, and what was measured so far is written.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    app()
