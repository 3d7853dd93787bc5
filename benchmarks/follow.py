"""Measure how soon a worker fingerprints what another program writes: python -m benchmarks.follow.

Sessions insert texts, one by one, at a rate, another one searches without pause, and `simsql backfill --follow`
runs beside them. Then the same goes on while the worker is killed again and again (kill -9) at random moments, and
started again. Prints the delay from an insert to its fingerprint, and how many rows are lost or have a wrong one.
"""

import contextlib
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated

import numpy as np
import psycopg
import typer

from benchmarks.server import connect, default_folder, run_server
from simsql.database import create_index, open_engine, to_bigint
from simsql.fingerprint import simhash
from simsql.server.postgres_server import PostgresServer

_TABLE = """
CREATE TABLE article (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, body text, fingerprint bigint,
    written timestamptz NOT NULL DEFAULT clock_timestamp(), filled timestamptz);
CREATE FUNCTION note_time() RETURNS trigger LANGUAGE plpgsql AS
    'BEGIN NEW.filled := clock_timestamp(); RETURN NEW; END';
CREATE TRIGGER note_time BEFORE UPDATE OF fingerprint ON article FOR EACH ROW EXECUTE FUNCTION note_time();
"""
_WORDS = [f"word{number}" for number in range(5_000)]
_WITHOUT_WORDS = 0.02  # of the texts
_SEARCH = "SELECT count(*) FROM simsql.near('article', %s, 7)"
_WRITERS = 4  # each waits for the disk
_LONGEST_LIFE = 3.0  # seconds until the worker is killed


def _write(cluster: PostgresServer, rows: int, rate: float, seed: int) -> None:
    choose = random.Random(seed)  # noqa: S311
    with connect(cluster) as connection:
        start = time.monotonic()
        for number in range(rows):
            time.sleep(max(start + number / rate - time.monotonic(), 0))
            words = 0 if choose.random() < _WITHOUT_WORDS else 60
            text = " ".join(choose.choices(_WORDS, k=words))
            connection.execute("INSERT INTO article (body) VALUES (%s)", [text])


@contextlib.contextmanager
def _searching(cluster: PostgresServer) -> Iterator[list[float]]:
    """Search without a pause; yield the seconds of each search so far."""
    spent: list[float] = []
    ended = threading.Event()

    def search() -> None:
        choose = random.Random(1)  # noqa: S311
        with connect(cluster) as connection:
            while not ended.is_set():
                start = time.perf_counter()
                connection.execute(_SEARCH, [choose.randrange(-(1 << 63), 1 << 63)])
                spent.append(time.perf_counter() - start)

    thread = threading.Thread(target=search)
    thread.start()
    try:
        yield spent
    finally:
        ended.set()
        thread.join()


def _start_worker(cluster: PostgresServer) -> subprocess.Popen[bytes]:
    url = cluster.url().render_as_string(hide_password=False)
    command = [str(Path(sys.executable).with_name("simsql")), "backfill", "article", "--follow", "--database", url]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL)


def _wait_for_all(connection: psycopg.Connection) -> None:
    waiting = "SELECT FROM article WHERE fingerprint IS NULL AND body <> '' LIMIT 1"
    while connection.execute(waiting).fetchall():
        time.sleep(0.1)


def _measure(cluster: PostgresServer, rows: int, rate: float, seed: int, beside: Callable[[], None]) -> None:
    """Write rows while this happens beside it, wait for their fingerprints, and print the delays."""
    with connect(cluster) as connection, _searching(cluster) as searches:
        ((last,),) = connection.execute("SELECT coalesce(max(id), 0) FROM article").fetchall()
        start = time.monotonic()
        with ThreadPoolExecutor(_WRITERS) as pool:
            shares = [rows * (number + 1) // _WRITERS - rows * number // _WRITERS for number in range(_WRITERS)]
            writers = [
                pool.submit(_write, cluster, share, rate / _WRITERS, seed + number)
                for number, share in enumerate(shares)
            ]
            beside()
            for writer in writers:
                writer.result()
        seconds = time.monotonic() - start
        _wait_for_all(connection)
        found = connection.execute(
            "SELECT body, fingerprint, extract(epoch FROM filled - written)::float8 FROM article WHERE id > %s",
            [last],
        ).fetchall()
    expected = [None if (made := simhash(body)) is None else to_bigint(made) for body, _, _ in found]
    wrong = sum(one[1] != made for one, made in zip(found, expected, strict=True))
    delays = np.array([delay for _, made, delay in found if made is not None])
    median, most, longest = np.quantile(delays, [0.5, 0.99, 1])
    print(
        f"{len(found):,} rows at {len(found) / seconds:.0f} a second, {len(searches) / seconds:,.0f} searches a"
        f" second (median {np.median(searches) * 1000:.1f} ms): delay {median:.2f} s at the median,"
        f" {most:.2f} s at 99%, {longest:.2f} s at most; {rows - len(found)} lost, {wrong} wrong",
        flush=True,
    )


def main(
    rows: Annotated[int, typer.Option(min=1, help="Rows that are written, each time.")] = 10_000,
    rate: Annotated[float, typer.Option(min=1, help="Rows a second.")] = 500,
    kills: Annotated[int, typer.Option(min=0, help="How often the worker is killed.")] = 50,
    table: Annotated[int, typer.Option(min=0, help="Rows that have a fingerprint before.")] = 100_000,
    seed: Annotated[int, typer.Option(help="Another seed, other texts and moments.")] = 1,
) -> None:
    """Measure a worker beside a writer and searches."""
    with run_server(default_folder(), table + 2 * rows, 0, {"autovacuum": "on"}) as cluster:
        engine = open_engine(cluster.url())
        with connect(cluster) as connection:
            connection.execute(_TABLE)
            connection.execute(
                "INSERT INTO article (body, fingerprint) SELECT 'older', (random() * 9e18)::bigint"
                " FROM generate_series(1, %s)",
                [table],
            )
        create_index(engine, "article", "fingerprint", sources="body")
        engine.dispose()
        worker = _start_worker(cluster)
        _measure(cluster, rows, rate, seed, lambda: None)
        choose = random.Random(seed)  # noqa: S311

        def kill() -> None:
            nonlocal worker
            for _ in range(kills):
                time.sleep(choose.uniform(0, _LONGEST_LIFE))
                worker.kill()
                worker.wait()
                worker = _start_worker(cluster)

        print(f"killed {kills} times:")
        _measure(cluster, max(rows, round(kills * _LONGEST_LIFE / 2 * rate)), rate, seed + _WRITERS, kill)
        worker.terminate()
        worker.wait()


if __name__ == "__main__":
    typer.run(main)
