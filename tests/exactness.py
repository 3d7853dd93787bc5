"""Every search on every kind of table, before and after whatever may happen to it, compared with brute force.

    python tests/exactness.py --rows 8000 --seed 1

runs on a new server of the newest PostgreSQL there is, and on a Citus cluster where one can be started. It prints
the searches compared and the differences after each event, and exits with 1 if there is any difference.
"""

import argparse
import contextlib
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psycopg

sys.path[:0] = [str(Path(__file__).parent / "support"), str(Path(__file__).parents[1])]

import matrix  # noqa: E402
from citus import Citus, NoCitus, run_citus  # noqa: E402
from matrix import Lines  # noqa: E402
from servers import Server, find_programs, run_server  # noqa: E402
from skew import skewed  # noqa: E402

DISTANCES = (0, 3, 7, 10)
TENANTS = 5
MANY = 50  # this many times as many queries are searched for together as one by one
COLUMNS = "id bigint NOT NULL, tenant integer NOT NULL, day date NOT NULL, fingerprint bigint, scoped bigint"
# From the table `pool` (n, f): rows of five tenants on the first 120 days of a year.
ROWS = "SELECT n, n % 5, date '2025-01-01' + (n * 7 % 120)::integer, f, f FROM pool"
Events = list[tuple[str, str]]


class Kind(NamedTuple):
    """A kind of table: how it is made, and what may happen to its partitions."""

    partition_by: str = ""
    parts: tuple[str, ...] = ()
    """The bounds of the partitions, and how those that are partitioned themselves go on."""
    move: str = ""
    """The assignment that moves rows to another partition."""
    later: tuple[str, str] | None = None
    """The bounds of a partition that can be attached, and the assignment that makes rows fit into it."""
    storage: str = "expression"
    distribute: str = ""
    """The statement that distributes the table."""

    def create(self) -> str:
        statements = [f"CREATE TABLE article ({COLUMNS}) {self.partition_by}"]
        statements += [f"CREATE TABLE part_{n} PARTITION OF article {part}" for n, part in enumerate(self.parts)]
        return "; ".join([*statements, self.distribute])

    def events(self) -> Events:
        events = [
            ("update", "UPDATE article SET fingerprint = fingerprint # 5, scoped = scoped # 5 WHERE id % 5 = 1"),
            ("set null", "UPDATE article SET fingerprint = NULL, scoped = NULL WHERE id % 50 = 2"),
            ("delete", "DELETE FROM article WHERE id % 10 = 3"),
        ]
        if self.storage == "tables":
            events += [
                ("vacuum", "CALL simsql.vacuum('article', 'fingerprint'); CALL simsql.vacuum('article', 'scoped')")
            ]
        if self.parts:
            events += self._partition_events()
        if self.distribute:
            events += CITUS
        return [*events, ("truncate, fill", f"TRUNCATE article; INSERT INTO article {ROWS} WHERE n % 3 > 0")]

    def _partition_events(self) -> Events:
        events = [("move rows", f"UPDATE article SET {self.move} WHERE id % 4 = 0")]
        if self.later:
            bounds, assignment = self.later
            # Its columns are in another order, and one was dropped.
            attach = f"""
                CREATE TABLE later (gone text, scoped bigint, day date NOT NULL, fingerprint bigint,
                                    tenant integer NOT NULL, id bigint NOT NULL);
                ALTER TABLE later DROP gone;
                INSERT INTO later (id, tenant, day, fingerprint, scoped) {ROWS} WHERE n % 6 = 0;
                UPDATE later SET {assignment};
                ALTER TABLE article ATTACH PARTITION later {bounds}"""
            events.append(("attach filled", attach))
        # Neither Citus nor PostgreSQL beside a default partition detaches concurrently.
        by_all = self.distribute or any("DEFAULT" in part for part in self.parts[1:])
        how = "" if by_all else "CONCURRENTLY"
        bounds = self.parts[0]
        again = bounds.split(" PARTITION BY")[0]
        change = "UPDATE part_0 SET fingerprint = fingerprint # 9, scoped = scoped # 9 WHERE id % 3 = 0"
        return [
            *events,
            ("truncate partition", "TRUNCATE part_1"),
            (f"detach {how.lower()}".strip(), f"ALTER TABLE article DETACH PARTITION part_0 {how}"),
            ("change, attach again", f"{change}; ALTER TABLE article ATTACH PARTITION part_0 {again}"),
            ("drop, new partition", f"DROP TABLE part_0; CREATE TABLE part_0 PARTITION OF article {bounds}"),
            ("fill again", f"INSERT INTO article {ROWS} WHERE n % 7 = 0"),
        ]


MONTHS = (
    "FOR VALUES FROM ('2025-01-01') TO ('2025-02-01')",
    "FOR VALUES FROM ('2025-02-01') TO ('2025-03-01')",
    "FOR VALUES FROM ('2025-03-01') TO ('2025-07-01')",
)
RANGE = Kind(
    "PARTITION BY RANGE (day)",
    MONTHS,
    "day = day + 31",
    ("FOR VALUES FROM ('2026-01-01') TO ('2027-01-01')", "day = day + 365"),
)
# To a second worker, which has joined for this, and back again.
CITUS: Events = [
    (
        "add worker, rebalance",
        "SELECT citus_add_node('127.0.0.1', {port});"
        " SELECT rebalance_table_shards(shard_transfer_mode => 'block_writes')",
    ),
    ("drain worker", "SELECT citus_drain_node('127.0.0.1', {port}, 'block_writes')"),
]
KINDS = {
    "ordinary, key tables": Kind(storage="tables"),
    "ordinary, B-trees": Kind(),
    "range": RANGE,
    "list": Kind(
        "PARTITION BY LIST (tenant)",
        ("FOR VALUES IN (0)", "FOR VALUES IN (1, 2)", "FOR VALUES IN (3)", "FOR VALUES IN (4)"),
        "tenant = (tenant + 1) % 5",
        ("FOR VALUES IN (7)", "tenant = 7"),
    ),
    "hash": Kind(
        "PARTITION BY HASH (id)",
        tuple(f"FOR VALUES WITH (MODULUS 3, REMAINDER {n})" for n in range(3)),
        "id = id + 1000000",
    ),
    "default": RANGE._replace(parts=(*MONTHS[:2], "DEFAULT")),
    "sub-partitioned": Kind(
        "PARTITION BY LIST (tenant)",
        (
            "FOR VALUES IN (0, 1) PARTITION BY RANGE (day); CREATE TABLE part_0_0 PARTITION OF part_0"
            " FOR VALUES FROM ('2025-01-01') TO ('2025-03-01'); CREATE TABLE part_0_1 PARTITION OF part_0 DEFAULT",
            "FOR VALUES IN (2, 3)",
            "FOR VALUES IN (4)",
        ),
        "tenant = (tenant + 2) % 5",
        ("FOR VALUES IN (7)", "tenant = 7"),
    ),
}
CITUS_KINDS = {
    "Citus by id": Kind(distribute="SELECT create_distributed_table('article', 'id')"),
    "Citus by tenant": Kind(distribute="SELECT create_distributed_table('article', 'tenant')"),
    "Citus reference": Kind(distribute="SELECT create_reference_table('article')"),
    "Citus partitioned": RANGE._replace(distribute="SELECT create_distributed_table('article', 'id')"),
}


class Trial:
    """A table of one kind, with an index on one column and a scoped index on another of the same values."""

    def __init__(self, connection: psycopg.Connection, fingerprints: Lines, queries: int, seed: int) -> None:
        self.connection = connection
        self.queries = queries
        self.searches = self.differences = 0
        self._events = 0
        self._chance = np.random.default_rng(seed)
        self._pool = fingerprints

    def run(self, kind: Kind, sabotage: str = "", **names: str) -> Iterator[tuple[str, int, int]]:
        """Make the table, and yield (event, searches, differences) for each event. `names` stand in statements."""
        self._execute("CREATE TABLE pool (n bigint, f bigint)")
        with self.connection.cursor().copy("COPY pool FROM STDIN") as copy:
            for line in enumerate(self._pool.tolist()):
                copy.write_row(line)
        self._execute(kind.create())
        self._execute(f"INSERT INTO article {ROWS} WHERE n % 4 = 0")
        create = "SELECT simsql.create_index('article', '{}', blocks => 4, storage => '{}'{})"
        self._execute(create.format("fingerprint", kind.storage, ""))
        self._execute(create.format("scoped", kind.storage, ", scope => '{tenant}'"))
        self._execute(sabotage)
        yield self._compare("create, insert", f"INSERT INTO article {ROWS} WHERE n % 4 > 0 AND n % 3 > 0")
        for event, statements in kind.events():
            yield self._compare(event, statements.format(**names) if names else statements)

    def _execute(self, statements: str) -> None:
        """Run statements one by one: some cannot be part of a transaction."""
        for statement in filter(str.strip, statements.split(";")):
            self.connection.execute(statement)

    def _compare(self, event: str, statements: str) -> tuple[str, int, int]:
        self._execute(statements)
        self.searches = self.differences = 0
        self._events += 1
        rows = self._fetch("SELECT id, tenant, fingerprint FROM article WHERE fingerprint IS NOT NULL")
        self._compare_all(rows, {"column_name": "fingerprint"})
        for tenant in (1, 7):
            scope = {"column_name": "scoped", "scope": json.dumps({"tenant": tenant})}
            self._compare_all(rows[rows[:, 1] == tenant], scope)
        return event, self.searches, self.differences

    def _compare_all(self, rows: Lines, options: dict[str, str]) -> None:
        """Compare what is found with these rows: (id, tenant, fingerprint)."""
        queries = self._make_queries(MANY * self.queries)
        distinct, places = np.unique(rows[:, 2], return_inverse=True)
        away = matrix.distances(queries, distinct)
        all_pairs = matrix.pairs(rows[:, 2], max(DISTANCES))
        for number, within in enumerate(DISTANCES, self._events):
            asked = {"queries": queries.tolist(), "within": within, **options}
            found = self._search(
                "SELECT u.n - 1, m.fingerprint, m.distance FROM {} AS m"
                " JOIN unnest(%(queries)s::bigint[]) WITH ORDINALITY AS u (f, n) ON u.f = m.query",
                "near_many('article', %(queries)s::bigint[], %(within)s{})",
                asked,
            )
            expected = matrix.matches(away, distinct, within)
            self._count(matrix.sort(found), matrix.sort(expected), len(queries))
            asked["queries"] = asked["queries"][: self.queries]
            self._compare_each(asked, expected[expected[:, 0] < self.queries])
            query, row = np.nonzero(away[: self.queries, places] <= within)
            found = self._search_each("r.id", "near_rows(NULL::article, q.f, %(within)s{}) AS r", asked)
            self._count(matrix.sort(found), matrix.sort(np.column_stack([query, rows[row, 0]])), self.queries)
            # Those of the whole table take long, so each event has two of the distances.
            if "scope" in options or number % 2:
                near = all_pairs[all_pairs[:, 2] <= within]
                found = self._search("SELECT * FROM {}", "pairs('article', %(within)s{})", asked)
                self._count_whole(found, near)
                found = self._search("SELECT * FROM {}", "clusters('article', %(within)s{})", asked)
                self._count_whole(found, matrix.clusters(rows[:, 2], near))

    def _compare_each(self, asked: dict[str, Any], expected: Lines) -> None:
        """Compare matches, nearest first, and claims, which find the first of them."""
        found = self._search_each(
            "r.fingerprint, r.distance",
            "near('article', q.f, %(within)s{}) WITH ORDINALITY AS r (fingerprint, distance, n)",
            asked,
            "ORDER BY q.n, r.n",
        )
        self._count(found, expected, self.queries)
        with self.connection.transaction(force_rollback=True):
            found = self._search_each(
                "r.fingerprint, r.distance", "claim('article', q.f, %(within)s{}) AS r", asked, "ORDER BY q.n"
            )
        self._count(found, expected[np.unique(expected[:, 0], return_index=True)[1]], self.queries)

    def _make_queries(self, count: int) -> Lines:
        """Fingerprints that rows have or had, with up to twelve bits flipped."""
        chosen = self._chance.choice(self._pool, count).view(np.uint64)
        for _ in range(12):
            bit = np.left_shift(np.uint64(1), self._chance.integers(0, 64, count, dtype=np.uint64))
            chosen = chosen ^ np.where(self._chance.random(count) < 0.4, bit, np.uint64(0))
        return self._chance.permutation(np.unique(chosen.view(np.int64)))

    def _search_each(self, columns: str, call: str, arguments: dict[str, Any], order: str = "") -> Lines:
        each = "unnest(%(queries)s::bigint[]) WITH ORDINALITY AS q (f, n)"
        return self._search(
            f"SELECT q.n - 1, {columns} FROM {each} CROSS JOIN LATERAL {{}} {order}", call, arguments
        )

    def _search(self, statement: str, call: str, arguments: dict[str, Any]) -> Lines:
        options = "".join(f", {name} => %({name})s" for name in ("column_name", "scope") if name in arguments)
        return self._fetch(statement.format("simsql." + call.format(options)), arguments)

    def _fetch(self, statement: str, arguments: dict[str, Any] | None = None) -> Lines:
        cursor = self.connection.execute(statement, arguments)
        return np.array(cursor.fetchall(), dtype=np.int64).reshape(cursor.rowcount, len(cursor.description or ()))

    def _count(self, found: Lines, expected: Lines, queries: int) -> None:
        self.searches += queries
        self.differences += matrix.differing(found, expected, queries)

    def _count_whole(self, found: Lines, expected: Lines) -> None:
        self.searches += 1
        self.differences += not np.array_equal(matrix.sort(found), expected)


def uniform(count: int, seed: int) -> Lines:
    """Random fingerprints, also the extremes; a third have relatives at distances up to twelve, or equal ones."""
    chance = np.random.default_rng(seed)
    values = chance.integers(0, 2**64, count, dtype=np.uint64)
    values[:4] = [0, 1, 2**63, 2**64 - 1]
    relatives = chance.choice(count, count // 3, replace=False)
    flips = chance.random((len(relatives), 64)) < chance.choice([0, 0.03, 0.06, 0.12], (len(relatives), 1))
    masks = np.packbits(flips, axis=1).view(">u8").ravel().astype(np.uint64)
    values[relatives] = values[chance.permutation(relatives)] ^ masks
    return values.view(np.int64)


def try_kind(
    server: Server | Citus, kind: Kind, spread: str, options: argparse.Namespace
) -> list[tuple[str, int, int]]:
    """Return (event, searches, differences) for each event in a new table of one kind."""
    pool = uniform(options.rows, options.seed)
    if spread == "skewed":
        pool = np.array(skewed(options.rows, options.seed), dtype=np.int64)
    names = {}
    with server.new_database() as url, contextlib.closing(server.connect(url.database)) as connection:
        if isinstance(server, Citus):
            names = {"port": str(server.ports[-1])}
            connection.execute("SELECT citus_remove_node('127.0.0.1', %s)", [server.ports[-1]])
        trial = Trial(connection, pool, options.queries, options.seed)
        return list(trial.run(kind, **names))


def print_trials(server: Server | Citus, kinds: dict[str, Kind], options: argparse.Namespace) -> tuple[int, int]:
    """Try each kind of table with uniform and with skewed fingerprints; return (searches, differences)."""
    searches = differences = 0
    jobs = [(name, spread) for name in kinds for spread in ("uniform", "skewed")]
    # Adding a node to a cluster disturbs others that work on it.
    with ThreadPoolExecutor(1 if isinstance(server, Citus) else 2) as threads:
        trials = threads.map(lambda job: try_kind(server, kinds[job[0]], job[1], options), jobs)
        for (name, spread), lines in zip(jobs, trials, strict=True):
            for event, compared, different in lines:
                print(f"{name:22}{spread:10}{event:24}{compared:10,}{different:13,}", flush=True)
                searches, differences = searches + compared, differences + different
    return searches, differences


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=8_000)
    parser.add_argument("--queries", type=int, default=20, help=f"one by one; {MANY} times as many together")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kinds", nargs="*", choices=[*KINDS, *CITUS_KINDS], default=[*KINDS, *CITUS_KINDS])
    options = parser.parse_args()
    start = time.monotonic()
    servers, totals = [], []
    print(f"{'table':22}{'data':10}{'event':24}{'searches':>10}{'differences':>13}")
    if chosen := {name: kind for name, kind in KINDS.items() if name in options.kinds}:
        program = find_programs()[0]
        servers.append(f"PostgreSQL {program}")
        with run_server(program) as server:
            totals.append(print_trials(server, chosen, options))
    if chosen := {name: kind for name, kind in CITUS_KINDS.items() if name in options.kinds}:
        try:
            with tempfile.TemporaryDirectory() as folder, run_citus(Path(folder) / "citus") as cluster:
                totals.append(print_trials(cluster, chosen, options))
            servers.append(f"Citus on PostgreSQL {Citus.major}")
        except NoCitus as error:
            servers.append(f"no Citus cluster: {error}")
    searches, differences = (sum(column) for column in zip(*totals, strict=True))
    seconds = time.monotonic() - start
    print(f"{'; '.join(servers)}; seed {options.seed}, {options.rows:,} rows, {seconds:.0f} s")
    print(f"{searches:,} searches compared, {differences:,} differences")
    return int(differences > 0)


if __name__ == "__main__":
    sys.exit(main())
