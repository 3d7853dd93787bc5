"""Many connections at once, at random, for minutes: is anything lost?

    python tests/soak.py index --seconds 600 --seed 1

index: writers, searchers, vacuums and index builds. Does any snapshot miss a row's fingerprint? Indexes are
dropped, created and built online; vacuums and builds are killed, and builds are gone on with.

texts: claims, writers and clean-ups by the documented statement. Does a text lose its last copy, or does a claim
let a near-duplicate in?

It runs on a new server of the newest PostgreSQL there is, prints what was done, and exits with 1 after a fault.
"""

import argparse
import random
import re
import sys
import time
from pathlib import Path

import psycopg
from psycopg import errors

sys.path[:0] = [str(Path(__file__).parent / "support"), str(Path(__file__).parents[1])]

from articles import create_articles, missing_keys  # noqa: E402
from internals import set_batch_size  # noqa: E402
from oracle import flip, to_bigint  # noqa: E402
from oracle import near as expected_near  # noqa: E402
from servers import find_programs, run_server  # noqa: E402
from soak_texts import TextSoak  # noqa: E402
from soaking import Job, Soak, report  # noqa: E402

LEVELS = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"]
WRITERS, SEARCHERS, VACUUMS = 6, 2, 2
ROWS = 300
BYSTANDERS = 4_000  # rows that hardly anybody touches: with fewer, a search at distance 7 would scan
BATCH = 800  # keys or fingerprints: with the real number there would be one batch
# Few values, so that rows share them, leave them and come back to them.
POOL = [flip(to_bigint(0xA5 << 56), random.Random(n).sample(range(64), n % 9)) for n in range(60)]


class IndexSoak(Soak):
    """Writers, searchers, vacuums and index builds: does any snapshot miss a row's fingerprint?"""

    FAULTS = ("rows lost",)
    # A table swapped for a new index meanwhile, a snapshot older than it, an index that is being built, two that
    # want the same rows: try again.
    RETRIED = (
        errors.ObjectNotInPrerequisiteState,
        errors.SerializationFailure,
        errors.DeadlockDetected,
        errors.UndefinedObject,
        errors.UndefinedTable,
        errors.UndefinedFunction,
        errors.LockNotAvailable,
    )

    def prepare(self, connection: psycopg.Connection) -> None:
        chance = random.Random(self.seed)
        bystanders = [to_bigint(chance.getrandbits(64)) for _ in range(BYSTANDERS)]
        create_articles(connection, chance.choices([*POOL, None], k=ROWS) + bystanders)
        connection.execute("CREATE INDEX ON article (body)")
        set_batch_size(connection, BATCH)

    def jobs(self) -> list[Job]:
        jobs = [self._write] * WRITERS + [self._search] * SEARCHERS + [self._vacuum] * VACUUMS
        return [*jobs, self._rebuild, self._kill]

    def finish(self, connection: psycopg.Connection) -> None:
        self._finish_build(connection)
        self._count_lost(connection)

    def _write(self, connection: psycopg.Connection, chance: random.Random) -> None:
        connection.execute(f"BEGIN ISOLATION LEVEL {chance.choice(LEVELS)}")
        for number in range(chance.randint(1, 4)):
            savepoint = chance.random() < 0.3
            if savepoint:
                connection.execute(f"SAVEPOINT s{number}")
            self._write_once(connection, chance)
            if savepoint and chance.random() < 0.5:
                connection.execute(f"ROLLBACK TO s{number}")
        connection.execute(chance.choices(["COMMIT", "ROLLBACK"], [5, 1])[0])
        self.count("transactions")

    def _write_once(self, connection: psycopg.Connection, chance: random.Random) -> None:
        value, other = chance.choice(POOL), chance.choice([*POOL, None])
        row = chance.randrange(1, 2 * ROWS)
        upsert = (
            "INSERT INTO article (id, fingerprint) OVERRIDING SYSTEM VALUE VALUES (%s, %s)"
            " ON CONFLICT (id) DO UPDATE SET fingerprint = excluded.fingerprint"
        )
        statement, parameters = chance.choice(
            [
                (upsert, [row, value]),
                (upsert, [row, other]),
                ("UPDATE article SET fingerprint = %s WHERE id = %s", [other, row]),
                ("UPDATE article SET fingerprint = %s WHERE fingerprint = %s", [value, other]),
                (
                    "UPDATE article AS a SET fingerprint = b.fingerprint FROM article AS b"
                    " WHERE a.id + b.id = %s AND a.id BETWEEN %s AND %s",
                    [2 * row + 1, row, row + 1],
                ),  # swaps two neighbours
                ("UPDATE article SET body = %s WHERE id BETWEEN %s AND %s", [str(value), row, row + 5]),
                ("DELETE FROM article WHERE id = %s", [row]),
                ("DELETE FROM article WHERE fingerprint = %s AND id %% 2 = 0", [value]),
            ]
        )
        connection.execute(statement, parameters)
        self.count("statements")

    def _search(self, connection: psycopg.Connection, chance: random.Random) -> None:
        """Compare near with brute force over the rows of the same snapshot, and look for missing keys."""
        isolated = chance.random() < 0.7
        connection.execute(f"BEGIN ISOLATION LEVEL {chance.choice(LEVELS[1:]) if isolated else LEVELS[0]}")
        for _ in range(chance.randint(1, 3)):
            query, within = chance.choice(POOL), chance.choice([0, 3, 3, 7, 20])
            # One statement: under READ COMMITTED the next one has another snapshot.
            rows, found = connection.execute(
                "SELECT (SELECT array_agg(fingerprint) FROM article WHERE fingerprint IS NOT NULL),"
                " (SELECT array_agg(fingerprint) FROM simsql.near('article', %s, %s))",
                [query, within],
            ).fetchone()
            expected = {fingerprint for fingerprint, _ in expected_near(rows or [], query, within)}
            self.count("rows lost", len(expected - set(found or [])))
            assert not set(found or []) - expected, "near reported what no row has"
            self.count("searches")
        if isolated:
            self._count_lost(connection)
        connection.execute("COMMIT")

    def _count_lost(self, connection: psycopg.Connection) -> None:
        ready = connection.execute("SELECT ready FROM simsql.registry").fetchall()
        if ready != [(True,)]:
            self.count("snapshots without an index")
            return
        self.count("rows lost", len(missing_keys(connection)))
        self.count("invariants checked")

    def _vacuum(self, connection: psycopg.Connection, chance: random.Random) -> None:
        removed: list[str] = []
        connection.add_notice_handler(
            lambda notice: removed.extend(re.findall(r"(\d+) keys", notice.message_primary))
        )
        connection.execute(f"SET default_transaction_isolation = '{chance.choice(LEVELS)}'")
        try:
            connection.execute("CALL simsql.vacuum('article')")
        finally:
            # The last notice counts all that went before it.
            self.count("keys removed", int(removed[-1]) if removed else 0)
        self.count("vacuums")

    def _kill(self, connection: psycopg.Connection, chance: random.Random) -> None:
        """End a session in the midst of a vacuum or a build."""
        self.done.wait(chance.uniform(0.3, 1.5))
        killed = connection.execute(
            "SELECT count(pg_terminate_backend(pid)) FROM (SELECT pid FROM pg_stat_activity"
            " WHERE datname = current_database() AND state = 'active' AND query LIKE 'CALL simsql.%%'"
            " ORDER BY random() LIMIT 1) AS s"
        )
        self.count("vacuums and builds killed", killed.fetchone()[0])

    def _rebuild(self, connection: psycopg.Connection, chance: random.Random) -> None:
        """Drop the index and create it with another layout: in one transaction, in two, or while others write."""
        connection.execute("SET lock_timeout = '1s'")
        if self._finish_build(connection):
            return
        blocks, lead = chance.choice([(4, 1), (2, 1), (5, 2)])
        how = chance.choice(["together", "together", "apart", "online"])
        if how == "together":
            connection.execute("BEGIN")
        connection.execute("SELECT simsql.drop_index('article')")
        statement = "SELECT simsql.create_index('article', 'fingerprint', blocks => %s, lead => %s)"
        if how == "online":
            statement = "CALL simsql.build('article', 'fingerprint', blocks => %s, lead => %s)"
        while True:
            try:
                connection.execute(statement, [blocks, lead])
            except (errors.LockNotAvailable, errors.DeadlockDetected):
                if how == "together":
                    raise
            else:
                break
        if how == "together":
            connection.execute(chance.choices(["COMMIT", "ROLLBACK"], [5, 1])[0])
        self.count(f"indexes made {how}")
        self.done.wait(chance.uniform(0, 1))  # so that snapshots older and newer than an index both have time

    def _finish_build(self, connection: psycopg.Connection) -> bool:
        """Make the index that a killed session has left unfinished, or has not begun."""
        found = connection.execute("SELECT ready, blocks, lead FROM simsql.registry").fetchall()
        if not found:
            connection.execute("SELECT simsql.create_index('article', 'fingerprint')")
        elif not found[0][0]:
            self.count("builds gone on with")
            connection.execute(
                "CALL simsql.build('article', 'fingerprint', blocks => %s, lead => %s)", found[0][1:]
            )
        else:
            return False
        return True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    soaks: dict[str, type[Soak]] = {"index": IndexSoak, "texts": TextSoak}
    parser.add_argument("what", choices=soaks)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    programs = {program.major: program for program in find_programs()}
    parser.add_argument("--server", type=int, choices=programs, default=max(programs), help="major version")
    options = parser.parse_args()
    program = programs[options.server]
    with run_server(program) as server, server.new_database() as url:
        soak = soaks[options.what](lambda: server.connect(url.database), options.seed)
        soak.run(options.seconds)
    return report(soak, f"PostgreSQL {program}, seed {options.seed}, {options.seconds:g} s")


if __name__ == "__main__":
    sys.exit(main())
