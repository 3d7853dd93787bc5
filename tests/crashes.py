"""Writers, a vacuum and a build at once, while the server is killed again and again: is a committed row ever lost?

    python tests/crashes.py --crashes 30 --seed 1

runs on a new server of the newest PostgreSQL there is, with fsync, prints what was done, and exits with 1 if a
committed row is gone or has no key.
"""

import argparse
import contextlib
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import psycopg

sys.path[:0] = [str(Path(__file__).parent / "support"), str(Path(__file__).parents[1])]

from articles import create_articles, missing_keys, near  # noqa: E402
from internals import set_batch_size  # noqa: E402
from oracle import to_bigint  # noqa: E402
from servers import find_programs  # noqa: E402
from upkeep import problems  # noqa: E402

from simsql.database import install_schema, open_engine  # noqa: E402
from simsql.server.postgres_server import PostgresServer  # noqa: E402

WRITERS = 6
SETTINGS = {"checkpoint_timeout": "30s", "max_wal_size": "64MB", "autovacuum": "off", "restart_after_crash": "off"}


class Trial:
    """A server that is killed while others use it, and what they were told is committed."""

    def __init__(self, cluster: PostgresServer, seed: int) -> None:
        self.cluster = cluster
        self.chance = random.Random(seed)
        self.counts: Counter[str] = Counter()
        # By writer, since a transaction whose commit was cut off may have happened or not.
        self.committed: list[dict[int, int]] = [{} for _ in range(WRITERS)]
        self.uncertain: list[dict[int, int | None]] = [{} for _ in range(WRITERS)]
        self.stopped = threading.Event()

    def connect(self) -> psycopg.Connection:
        return psycopg.connect(dbname="postgres", user="postgres", autocommit=True, **self.cluster.url().query)

    def write(self, number: int, seed: int) -> None:
        """Insert, update and delete rows of this writer's own until the server is gone."""
        chance, mine = random.Random(seed), self.committed[number]
        with contextlib.suppress(psycopg.OperationalError), self.connect() as connection:
            while not self.stopped.is_set():
                changes: dict[int, int | None] = {}
                row = number + WRITERS * chance.randrange(400)
                value = to_bigint(chance.getrandbits(64))
                self.uncertain[number] = changes
                with connection.transaction():
                    if chance.random() < 0.2:
                        changes[row] = None
                        connection.execute("DELETE FROM article WHERE id = %s", [row])
                    else:
                        rows = {row + WRITERS * 400 * n: value ^ n for n in range(chance.choice([1, 1, 20]))}
                        changes.update(rows)
                        connection.execute(
                            "INSERT INTO article (id, fingerprint) OVERRIDING SYSTEM VALUE"
                            " SELECT * FROM unnest(%s::bigint[], %s::bigint[])"
                            " ON CONFLICT (id) DO UPDATE SET fingerprint = excluded.fingerprint",
                            [list(rows), list(rows.values())],
                        )
                self._settle(mine, changes)
                self.uncertain[number] = {}
                self.counts["transactions"] += 1

    def vacuum(self) -> None:
        with contextlib.suppress(psycopg.OperationalError), self.connect() as connection:
            while not self.stopped.is_set():
                connection.execute("CALL simsql.vacuum('article')")
                self.counts["vacuums"] += 1

    def crash(self) -> None:
        """Let all write for a while, then kill every process of the server at once and start it again."""
        self.stopped.clear()
        threads = [
            threading.Thread(target=self.write, args=(number, self.chance.getrandbits(32)))
            for number in range(WRITERS)
        ]
        threads.append(threading.Thread(target=self.vacuum))
        for thread in threads:
            thread.start()
        time.sleep(self.chance.uniform(0.2, 1.5))
        (process, *_) = (self.cluster.data_folder / "postmaster.pid").read_text(encoding="utf-8").split()
        children = Path(f"/proc/{process}/task/{process}/children").read_text(encoding="ascii").split()
        for victim in (process, *children):
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(victim), signal.SIGKILL)
        self.stopped.set()
        for thread in threads:
            thread.join()
        self.counts["crashes"] += 1
        self.cluster.start()
        self.check()

    def check(self) -> None:
        """Count rows that were committed and are gone, and rows without keys."""
        with self.connect() as connection:
            found = dict(
                connection.execute("SELECT id, fingerprint FROM article WHERE id < %s", [10**9]).fetchall()
            )
            for number, mine in enumerate(self.committed):
                changes = self.uncertain[number]
                if changes and all(found.get(row) == value for row, value in changes.items()):
                    self._settle(mine, changes)
                    self.counts["commits cut off that happened"] += 1
                self.counts["rows lost"] += sum(found.get(row) != value for row, value in mine.items())
                self.counts["rows checked"] += len(mine)
            self.counts["rows without keys"] += len(missing_keys(connection))
            for fingerprint in random.Random(len(found)).sample(sorted(found.values()), 20):
                self.counts["searches that missed"] += (fingerprint, 0) not in near(connection, fingerprint, 0)
            self.counts["faults"] += len(problems(connection))

    @staticmethod
    def _settle(mine: dict[int, int], changes: dict[int, int | None]) -> None:
        for row, value in changes.items():
            if value is None:
                mine.pop(row, None)
            else:
                mine[row] = value


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--crashes", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    program = find_programs()[0]
    with tempfile.TemporaryDirectory(prefix="simsql-crashes-") as folder:
        Path(folder).chmod(0o711)
        cluster = PostgresServer(program.bin_folder, Path(folder) / "data", SETTINGS)
        cluster.init()
        cluster.start()
        try:
            engine = open_engine(cluster.url())
            install_schema(engine)
            engine.dispose()
            trial = Trial(cluster, options.seed)
            with trial.connect() as connection:
                create_articles(connection, [None])
                connection.execute("DELETE FROM article")
                set_batch_size(connection, 500)
            print(f"PostgreSQL {program}, seed {options.seed}, {options.crashes} crashes", flush=True)
            for _ in range(options.crashes):
                trial.crash()
        finally:
            cluster.stop()
    for what, number in sorted(trial.counts.items()):
        print(f"{number:>10,} {what}")
    bad = ("rows lost", "rows without keys", "searches that missed", "faults")
    return int(any(trial.counts[what] for what in bad))


if __name__ == "__main__":
    sys.exit(main())
