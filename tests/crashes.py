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
from functools import partial
from pathlib import Path

import psycopg

sys.path[:0] = [str(Path(__file__).parent / "support"), str(Path(__file__).parents[1])]

from articles import create_articles, missing_keys, near  # noqa: E402
from internals import set_batch_size  # noqa: E402
from oracle import to_bigint  # noqa: E402
from servers import find_programs  # noqa: E402
from soaking import Job, Soak, report  # noqa: E402
from upkeep import problems  # noqa: E402

from simsql.database import install_schema, open_engine  # noqa: E402
from simsql.server.postgres_server import PostgresServer  # noqa: E402

WRITERS = 6
SETTINGS = {"checkpoint_timeout": "30s", "max_wal_size": "64MB", "autovacuum": "off", "restart_after_crash": "off"}


class CrashSoak(Soak):
    """A server that is killed while others use it, and what they were told is committed."""

    FAULTS = ("rows lost", "rows without keys", "searches that missed", "faults")

    def __init__(self, cluster: PostgresServer, seed: int) -> None:
        where = cluster.url().query
        super().__init__(
            lambda: psycopg.connect(dbname="postgres", user="postgres", autocommit=True, **where), seed
        )
        self.cluster = cluster
        self.chance = random.Random(seed)
        # By writer, since a transaction whose commit was cut off may have happened or not.
        self.committed: list[dict[int, int]] = [{} for _ in range(WRITERS)]
        self.uncertain: list[dict[int, int | None]] = [{} for _ in range(WRITERS)]

    def prepare(self, connection: psycopg.Connection) -> None:
        create_articles(connection, [None])
        connection.execute("DELETE FROM article")
        set_batch_size(connection, 500)

    def jobs(self) -> list[Job]:
        return [*(partial(self._write, number) for number in range(WRITERS)), self._vacuum]

    def finish(self, connection: psycopg.Connection) -> None:
        self._check(connection)

    def _write(self, number: int, connection: psycopg.Connection, chance: random.Random) -> None:
        """Insert, update or delete rows of this writer's own."""
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
        self._settle(number, changes)
        self.count("transactions")

    def _vacuum(self, connection: psycopg.Connection, _: random.Random) -> None:
        connection.execute("CALL simsql.vacuum('article')")
        self.count("vacuums")

    def crash(self) -> None:
        """Let all write for a while, then kill every process of the server at once and start it again."""
        self.crashing.clear()
        self.run_jobs(self._kill)
        self.count("crashes")
        self.cluster.start()
        with contextlib.closing(self.connect()) as connection:
            self.finish(connection)

    def _kill(self) -> None:
        self.done.wait(self.chance.uniform(0.2, 1.5))  # less after a failure
        (process, *_) = (self.cluster.data_folder / "postmaster.pid").read_text(encoding="utf-8").split()
        children = Path(f"/proc/{process}/task/{process}/children").read_text(encoding="ascii").split()
        self.crashing.set()
        for victim in (process, *children):
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(victim), signal.SIGKILL)

    def _check(self, connection: psycopg.Connection) -> None:
        """Count rows that were committed and are gone, and rows without keys."""
        found = dict(connection.execute("SELECT id, fingerprint FROM article WHERE id < %s", [10**9]).fetchall())
        for number, mine in enumerate(self.committed):
            changes = self.uncertain[number]
            if changes and all(found.get(row) == value for row, value in changes.items()):
                self._settle(number, changes)
                self.count("commits cut off that happened")
            self.count("rows lost", sum(found.get(row) != value for row, value in mine.items()))
            self.count("rows checked", len(mine))
        self.count("rows without keys", len(missing_keys(connection)))
        for fingerprint in random.Random(len(found)).sample(sorted(found.values()), 20):
            self.count("searches that missed", (fingerprint, 0) not in near(connection, fingerprint, 0))
        self.count("faults", len(problems(connection)))

    def _settle(self, number: int, changes: dict[int, int | None]) -> None:
        """These changes of a writer were committed."""
        for row, value in changes.items():
            if value is None:
                self.committed[number].pop(row, None)
            else:
                self.committed[number][row] = value
        self.uncertain[number] = {}


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
            soak = CrashSoak(cluster, options.seed)
            with contextlib.closing(soak.connect()) as connection:
                soak.prepare(connection)
            print(f"PostgreSQL {program}, seed {options.seed}, {options.crashes} crashes", flush=True)
            for _ in range(options.crashes):
                soak.crash()
        finally:
            cluster.stop()
    return report(soak, "What was done:")


if __name__ == "__main__":
    sys.exit(main())
