"""Measure simsql.pairs in SQL, before and after: python -m benchmarks.whole_tables prints Markdown.

All pairs of random fingerprints are found by the SQL of version 0.2.0 and by that of this revision, in two
databases of one server. The figures are processor time of the server. Each answer is compared with brute force.
"""

from pathlib import Path
from typing import Annotated

import numpy as np
import psycopg
import typer

from benchmarks.data import Fingerprints, make_fingerprints
from benchmarks.oracle import Oracle
from benchmarks.server import backend_seconds, connect, default_folder, run_server

_RELEASED = Path(__file__).parent.parent / "tests" / "released" / "0.2.0.sql"
_SAMPLE = 100


def _connect(url: str, values: Fingerprints) -> psycopg.Connection:
    connection = psycopg.connect(url, autocommit=True)
    connection.execute("CREATE TABLE article (fingerprint bigint)")
    with connection.cursor().copy("COPY article FROM STDIN") as copy:
        for value in values.view(np.int64).tolist():
            copy.write_row([value])
    connection.execute("SELECT simsql.create_index('article', 'fingerprint', storage => 'expression')")
    return connection


def _find(connection: psycopg.Connection, distance: int) -> tuple[float, Fingerprints]:
    """Return the seconds that simsql.pairs takes, and the pairs."""
    before = backend_seconds(connection)
    connection.execute(f"CREATE TEMP TABLE found AS SELECT a, b FROM simsql.pairs('article', {distance})".encode())
    seconds = backend_seconds(connection) - before
    rows = connection.execute("SELECT a, b FROM found").fetchall()
    connection.execute("DROP TABLE found")
    return seconds, np.array(rows, dtype=np.int64).reshape(-1, 2).view(np.uint64)


def main(
    rows: int = 100_000,
    first: int = 3,
    last: int = 10,
    released: Annotated[bool, typer.Option(help="Measure the SQL of 0.2.0, too.")] = True,
) -> None:
    """Print the table for one number of rows."""
    values = make_fingerprints(rows, 0)
    oracle = Oracle(values)
    with run_server(default_folder(), rows, 0) as server, connect(server) as now:
        now.execute("CREATE DATABASE before TEMPLATE template0")
        url = f"host={now.info.host} port={now.info.port} user={now.info.user} dbname="
        ways = {"now": _connect(f"{url}postgres", values)}
        if released:
            with psycopg.connect(f"{url}before", autocommit=True) as before:
                before.execute(_RELEASED.read_bytes())
            ways = {"0.2.0": _connect(f"{url}before", values), **ways}
        print(f"| rows | distance | pairs |{''.join(f' {name} |' for name in ways)} ratio |")
        print("|---" * (4 + len(ways)) + "|")
        for distance in range(first, last + 1):
            seconds = {}
            for name, connection in ways.items():
                seconds[name], pairs = _find(connection, distance)
                oracle.check_pairs(name, distance, pairs, _SAMPLE)
            cells = "".join(f" {took:.2f} s |" for took in seconds.values())
            ratio = seconds.get("0.2.0", seconds["now"]) / seconds["now"]
            print(f"| {rows:,} | {distance} | {len(pairs):,} |{cells} {ratio:.1f} |", flush=True)
        for connection in ways.values():
            connection.close()


if __name__ == "__main__":
    typer.run(main)
