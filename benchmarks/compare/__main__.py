"""Measure simsql beside other tools: make compare, or python -m benchmarks.compare --documents 20000.

1. All near-duplicates of the corpus: `simsql dedup`, MinHash by gaoya, rensa and datasketch, and dedup-pg.
2. Rows within distance 7 of a fingerprint, in PostgreSQL: simsql, pgvector, a scan; and pybktree, in memory.
3. Rows with a similar text, in PostgreSQL: simsql and pg_trgm.

Prints Markdown. The exit code is 1 if a result was wrong, and 2 if no server could be started.
"""

import os
import signal
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.compare import documents as files
from benchmarks.compare import fingerprints, texts
from benchmarks.compare.corpus import Labelled, generate, read_labelled
from benchmarks.compare.servers import Server, start, start_with
from benchmarks.compare.table import table
from benchmarks.environment import describe_machine
from benchmarks.figures import markdown_line
from benchmarks.oracle import WrongResultError
from simsql.errors import SimsqlError

MACHINE = ("processor", "cores", "memory", "load average at the start", "system", "Python")
app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


def compare(corpus: Labelled, server: Server, rows: int, queries: int, seed: int, *, peers: bool = True) -> None:
    """Print the tables, and on stderr what goes on. Raises WrongResultError."""
    began = time.monotonic()
    missing = []

    def say(line: str) -> None:
        if line.endswith("not installed"):
            missing.append(line)
        print(f"[{time.monotonic() - began:6.0f} s] {line}", file=sys.stderr, flush=True)

    machine = describe_machine()
    print("\n".join(f"{name}: {machine[name]}" for name in MACHINE))
    similar = corpus.judge(corpus.similar)
    print(f"texts: {len(corpus.texts):,} ({corpus.name}), {corpus.megabytes:.1f} MB")
    print(f"pairs with the same label: {similar.wanted:,}; with a similarity of 0.6 or more: {similar.found:,}")
    print(f"PostgreSQL: {server.version}")
    outcomes = list(files.measure(corpus, server, peers, say))
    print("\n### All near-duplicates of the corpus\n")
    print("\n".join(table([outcome.row for outcome in outcomes])), flush=True)
    print("\nThe pairs as each tool found them, before they became clusters:\n")
    print(markdown_line(["tool", "precision", "recall", "F1", "of the similar pairs"]))
    print("\n".join(["| --- |" + " ---: |" * 4, *(markdown_line(outcome.cells()) for outcome in outcomes)]))
    print(f"\n### Rows within distance {fingerprints.DISTANCE} of a fingerprint, of {rows:,}\n")
    found = fingerprints.measure(corpus, server, rows, queries, seed, peers, say)
    print("\n".join(table(list(found))), flush=True)
    with start_with("pg_trgm", rows, server) if peers else nullcontext(server) as other:
        trigrams = peers and other.has_extension("pg_trgm")
        if peers and not trigrams:
            say("pg_trgm: not installed")
        print(f"\n### Rows with a similar text, of {len(corpus.texts):,}, in PostgreSQL {other.version}\n")
        print("\n".join(table(list(texts.measure(corpus, other, queries, seed, trigrams, say)))), flush=True)
    load = " ".join(f"{load:.2f}" for load in os.getloadavg())
    print(f"\nseconds: {time.monotonic() - began:.0f}; load average at the end: {load}", *missing, sep="\n")


@app.command()
def main(
    documents: Annotated[
        int | None, typer.Option(min=100, help="Texts; by default 20,000, or all of the file.")
    ] = None,
    rows: Annotated[int, typer.Option(min=1000, help="Fingerprints in the table that is searched.")] = 100_000,
    queries: Annotated[int, typer.Option(min=10, help="Searches of each kind, at most.")] = 100,
    file: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help='JSON lines with "text" and "label".')
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the generated texts.")] = 1,
    peers: Annotated[bool, typer.Option(help="Measure the other tools that are installed, too.")] = True,
) -> None:
    """Measure simsql and other tools on the same texts, and compare what they find with what is known."""
    os.environ.pop("SIMSQL_DATABASE", None)  # simsql dedup would keep the texts there
    corpus = read_labelled(file, documents) if file else generate(documents or 20_000, seed)
    try:
        with start(rows) as server:
            compare(corpus, server, rows, queries, seed, peers=peers)
    except WrongResultError as error:
        print(f"WRONG RESULT: {error}", file=sys.stderr)
        sys.exit(1)
    except SimsqlError as error:
        print(error, file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    # As Ctrl-C does: servers that were started are stopped.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    app()
