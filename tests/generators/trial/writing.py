"""Writers: transactions of every kind, and what each writer knows to be committed."""

import random
from collections.abc import Callable, Sequence

import psycopg
from oracle import flip
from sessions import ALL_LEVELS

from trial.searching import Searcher
from trial.tables import (
    COLUMNS,
    LAST_TENANT,
    OWN,
    POOL,
    SHARED,
    SOURCE,
    WRITERS,
    Kind,
    Row,
    columns,
    insert,
    make_row,
    make_value,
)
from trial.tally import Tally
from trial.workers import OutOfSight

Key = tuple[str, int]
Changes = dict[Key, Row | None]
"""Rows by table and id after a transaction; None is one that was deleted."""


class Writer:
    """A connection that writes rows of its own, of which it knows what is committed, and rows that all write."""

    def __init__(self, number: int, kinds: Sequence[Kind], tally: Tally, searcher: Searcher) -> None:
        self._number = number
        self._kinds = [kind for kind in kinds if not kind.claimed]
        self._tally = tally
        self._searcher = searcher
        self._committed: dict[Key, Row] = {}
        self._open: Changes | None = None
        """The changes of a transaction that may be committed or not, since the connection ended."""
        self._prepared = 0
        self._database = ""
        self._ids = range(number, OWN * WRITERS, WRITERS)

    @property
    def _gid(self) -> str:
        return f"{self._number} {self._prepared} {self._database}"

    def write(self, connection: psycopg.Connection, chance: random.Random) -> None:
        """One transaction of one to four statements, mostly in one table."""
        self._database = connection.info.dbname
        if self._open is not None:
            self.settle(connection)
        level = chance.choice(ALL_LEVELS)
        connection.execute(f"BEGIN ISOLATION LEVEL {level}")
        kind = chance.choice(self._kinds)
        changes: Changes = {}
        for number in range(chance.randint(1, 4)):
            if chance.random() < 0.1:
                kind = chance.choice(self._kinds)
            savepoint = chance.random() < 0.3
            before = dict(changes)
            if savepoint:
                connection.execute(f"SAVEPOINT s{number}")
            self._write_once(connection, chance, kind, changes)
            if savepoint and chance.random() < 0.5:
                connection.execute(f"ROLLBACK TO s{number}")
                changes = before
                self._tally.operation("savepoints rolled back")
        if chance.random() < 0.1:
            self._searcher.compare(connection, chance, kind, queries=20, one_snapshot=level != ALL_LEVELS[0])
        self._end(connection, chance, changes)
        self._tally.operation(f"transactions: {level.lower()}")

    def _end(self, connection: psycopg.Connection, chance: random.Random, changes: Changes) -> None:
        how = chance.choices(["commit", "rollback", "prepare"], [6, 1, 2])[0]
        if how == "rollback":
            connection.execute("ROLLBACK")
            return
        self._open = changes
        if how == "commit":
            connection.execute("COMMIT")
            self._settle(changes)
            return
        self._prepared += 1
        connection.execute(f"PREPARE TRANSACTION '{self._gid}'")
        if chance.random() < 0.2:
            connection.close()  # another connection ends it
        else:
            self._end_prepared(connection, chance, changes)

    def _end_prepared(self, connection: psycopg.Connection, chance: random.Random, changes: Changes) -> None:
        if chance.random() < 0.7:
            connection.execute(f"COMMIT PREPARED '{self._gid}'")
            self._settle(changes)
            self._tally.operation("two-phase commits")
        else:
            connection.execute(f"ROLLBACK PREPARED '{self._gid}'")
            self._open = None
            self._tally.operation("two-phase rollbacks")

    def end_prepared(self, connection: psycopg.Connection) -> None:
        """End a transaction that was prepared before its connection ended, which locks tables."""
        gids = connection.execute("SELECT FROM pg_prepared_xacts WHERE gid = %s", [self._gid])
        if self._open is not None and gids.fetchone() is not None:
            self._end_prepared(connection, random.Random(self._gid), self._open)

    def settle(self, connection: psycopg.Connection) -> None:
        """Find out whether the last transaction was committed: all of it, or nothing."""
        self.end_prepared(connection)
        changes = self._open
        if changes is None:
            return
        found = self._read(connection, {table for table, _ in changes})
        after = all(found.get(key) == row for key, row in changes.items())
        before = all(found.get(key) == self._committed.get(key) for key in changes)
        if after:
            self._settle(changes)
        else:
            self._open = None
            torn = not before
            self._tally.find(self._tally.lost, "parts of transactions", torn, f"{changes} but {found}")

    def check(self, connection: psycopg.Connection) -> None:
        """Compare what was committed with what is there."""
        self.settle(connection)
        found = self._read(connection, {kind.name for kind in self._kinds})
        wrong = {key for key in found.keys() | self._committed if found.get(key) != self._committed.get(key)}
        note = [(key, self._committed.get(key), found.get(key)) for key in sorted(wrong)[:3]]
        self._tally.find(self._tally.lost, "committed rows", len(wrong), f"writer {self._number}: {note}")
        self._tally.check("committed rows", len(self._committed))

    def _read(self, connection: psycopg.Connection, tables: set[str]) -> dict[Key, Row]:
        return {
            (table, id_): Row(*row)
            for table in tables
            for id_, *row in connection.execute(
                f"SELECT id, tenant, lang, day - date '2025-01-01', fingerprint FROM {table} WHERE id = ANY (%s)",
                [list(self._ids)],
            )
        }

    def _settle(self, changes: Changes) -> None:
        for key, row in changes.items():
            if row is None:
                self._committed.pop(key, None)
            else:
                self._committed[key] = row
        self._open = None

    def _write_once(
        self, connection: psycopg.Connection, chance: random.Random, kind: Kind, changes: Changes
    ) -> None:
        if chance.random() < 0.5:
            name, statement = chance.choice(_SHARED)
            statement(connection, chance, kind)
        else:
            mine = {id_: row for (table, id_), row in (self._committed | changes).items() if table == kind.name}
            name, write_own = chance.choice(_OWN)
            changed, rows = write_own(connection, chance, kind, {i: r for i, r in mine.items() if r}, self._ids)
            changes.update({(kind.name, id_): row for id_, row in changed.items()})
            if rows != len(changed):
                raise OutOfSight
        self._tally.operation(f"statements: {name}")


# Statements on rows of the writer's own: they return these rows after them, and how many were written.
Mine = dict[int, Row]
Written = tuple[dict[int, Row | None], int]


def _some(chance: random.Random, ids: Sequence[int]) -> list[int]:
    return chance.sample(ids, min(len(ids), chance.choice([1, 1, 2, 20])))


def _new_rows(chance: random.Random, mine: Mine, ids: Sequence[int]) -> Mine:
    free = [id_ for id_ in ids if id_ not in mine]
    return {id_: make_row(chance, stays=True, value=make_value(chance)) for id_ in _some(chance, free)}


def _other_rows(chance: random.Random, kind: Kind, mine: Mine, ids: Sequence[int]) -> Mine:
    """Rows that are there or not, with other values; those that are there keep their key."""
    rows = {}
    for id_ in _some(chance, ids):
        row = make_row(chance, stays=True, value=make_value(chance))
        rows[id_] = row._replace(tenant=mine[id_].tenant, day=mine[id_].day) if id_ in mine else row
    return rows


def _insert(
    connection: psycopg.Connection, chance: random.Random, kind: Kind, mine: Mine, ids: Sequence[int]
) -> Written:
    rows = _new_rows(chance, mine, ids)
    return {**rows}, insert(connection, kind.name, rows)


def _copy(
    connection: psycopg.Connection, chance: random.Random, kind: Kind, mine: Mine, ids: Sequence[int]
) -> Written:
    rows = _new_rows(chance, mine, ids)
    cursor = connection.cursor()
    with cursor.copy(f"COPY {kind.name} ({COLUMNS}) FROM STDIN") as copy:
        for id_, row in rows.items():
            day = f"2025-{1 + (row.day > 30):02}-{row.day - 31 * (row.day > 30) + 1:02}"
            copy.write_row([id_, row.tenant, row.lang, day, str(id_), row.fingerprint])
    return {**rows}, cursor.rowcount


def _upsert(
    connection: psycopg.Connection, chance: random.Random, kind: Kind, mine: Mine, ids: Sequence[int]
) -> Written:
    rows = _other_rows(chance, kind, mine, ids)
    update = "UPDATE SET lang = excluded.lang, fingerprint = excluded.fingerprint"
    return {**rows}, insert(connection, kind.name, rows, f"ON CONFLICT ({', '.join(kind.key)}) DO {update}")


def _merge(
    connection: psycopg.Connection, chance: random.Random, kind: Kind, mine: Mine, ids: Sequence[int]
) -> Written:
    rows = _other_rows(chance, kind, mine, ids)
    if connection.info.server_version < 150000:
        return {}, 0
    rowcount = connection.execute(
        f"MERGE INTO {kind.name} AS t USING {SOURCE} AS s ON t.id = s.id"
        " WHEN MATCHED AND s.fingerprint IS NULL THEN DELETE"
        " WHEN MATCHED THEN UPDATE SET lang = s.lang, fingerprint = s.fingerprint"
        f" WHEN NOT MATCHED THEN INSERT ({COLUMNS})"
        " VALUES (s.id, s.tenant, s.lang, s.day, s.body, s.fingerprint)",
        columns(rows),
    ).rowcount
    gone = {id_: None for id_, row in rows.items() if id_ in mine and row.fingerprint is None}
    return {**rows, **gone}, rowcount


def _update(
    connection: psycopg.Connection, chance: random.Random, kind: Kind, mine: Mine, ids: Sequence[int]
) -> Written:
    """Other fingerprints, scopes and days: rows move to other partitions."""
    rows = {id_: make_row(chance, stays=True, value=make_value(chance)) for id_ in _some(chance, list(mine))}
    rowcount = connection.execute(
        f"UPDATE {kind.name} AS t SET tenant = s.tenant, lang = s.lang, day = s.day, fingerprint = s.fingerprint"
        f" FROM {SOURCE} AS s WHERE t.id = s.id",
        columns(rows),
    ).rowcount
    return {**rows}, rowcount


def _swap(
    connection: psycopg.Connection, chance: random.Random, kind: Kind, mine: Mine, ids: Sequence[int]
) -> Written:
    if len(mine) < 2:
        return {}, 0
    a, b = chance.sample(list(mine), 2)
    rowcount = connection.execute(
        f"UPDATE {kind.name} AS a SET fingerprint = b.fingerprint, lang = b.lang FROM {kind.name} AS b"
        " WHERE (a.id, b.id) IN ((%s, %s), (%s, %s))",
        [a, b, b, a],
    ).rowcount
    x, y = mine[a], mine[b]
    return {
        a: x._replace(fingerprint=y.fingerprint, lang=y.lang),
        b: y._replace(fingerprint=x.fingerprint, lang=x.lang),
    }, rowcount


def _delete(
    connection: psycopg.Connection, chance: random.Random, kind: Kind, mine: Mine, ids: Sequence[int]
) -> Written:
    gone = _some(chance, list(mine))
    rowcount = connection.execute(f"DELETE FROM {kind.name} WHERE id = ANY (%s)", [gone]).rowcount
    return dict.fromkeys(gone), rowcount


def _touch(
    connection: psycopg.Connection, chance: random.Random, kind: Kind, mine: Mine, ids: Sequence[int]
) -> Written:
    same = _some(chance, list(mine))
    statement = f"UPDATE {kind.name} SET body = %s WHERE id = ANY (%s)"
    return {id_: mine[id_] for id_ in same}, connection.execute(statement, [str(chance.random()), same]).rowcount


_OWN: list[tuple[str, Callable[..., Written]]] = [
    ("insert", _insert),
    ("COPY", _copy),
    ("upsert", _upsert),
    ("MERGE", _merge),
    ("update", _update),
    ("swap", _swap),
    ("delete", _delete),
    ("update of another column", _touch),
]

# Statements on rows that all write.


def _upsert_shared(connection: psycopg.Connection, chance: random.Random, kind: Kind) -> None:
    rows = {id_: make_row(chance, stays=False, value=make_value(chance)) for id_ in sorted(_some(chance, SHARED))}
    how = chance.choice(["NOTHING", "UPDATE SET fingerprint = excluded.fingerprint, body = excluded.body"])
    insert(connection, kind.name, rows, f"ON CONFLICT ({', '.join(kind.key)}) DO {how}")


def _update_hot(connection: psycopg.Connection, chance: random.Random, kind: Kind) -> None:
    connection.execute(
        f"UPDATE {kind.name} SET fingerprint = %s WHERE fingerprint = %s AND id BETWEEN %s AND %s",
        [make_value(chance), make_value(chance), SHARED[0], SHARED[-1]],
    )


def _delete_hot(connection: psycopg.Connection, chance: random.Random, kind: Kind) -> None:
    connection.execute(
        f"DELETE FROM {kind.name} WHERE fingerprint = %s AND id %% 3 = 0 AND id BETWEEN %s AND %s",
        [make_value(chance), SHARED[0], SHARED[-1]],
    )


def _move(connection: psycopg.Connection, chance: random.Random, kind: Kind) -> None:
    """Move rows to other partitions and scopes, and out of every scope."""
    tenant = chance.choice(["(tenant + 1) % 5", "0", "NULL"])
    if "tenant" in kind.key and tenant == "NULL":
        tenant = str(LAST_TENANT)
    what = chance.choice([f"tenant = {tenant}", "day = date '2025-01-01' + ((id * 7 + 13) % 120)::integer"])
    first = chance.choice(SHARED)
    connection.execute(f"UPDATE {kind.name} SET {what} WHERE id BETWEEN {first} AND {first + 9}")


def _replace(connection: psycopg.Connection, chance: random.Random, kind: Kind) -> None:
    """Delete rows and insert others in one statement."""
    first = chance.choice(SHARED)
    connection.execute(
        f"WITH gone AS (DELETE FROM {kind.name} WHERE id BETWEEN %s AND %s RETURNING *)"
        f" INSERT INTO {kind.name} ({COLUMNS})"
        " SELECT id + 100000, tenant, lang, day, body, coalesce(%s, fingerprint) FROM gone ON CONFLICT DO NOTHING",
        [first, first + 4, make_value(chance)],
    )
    connection.execute(f"UPDATE {kind.name} SET id = id - 100000 WHERE id = {first + 100000}")


def _insert_into_part(connection: psycopg.Connection, chance: random.Random, kind: Kind) -> None:
    """Write to a partition or a child itself."""
    if kind.is_ordinary:
        return
    name = chance.choice([name for name, part in kind.parts if "PARTITION BY" not in part])
    id_ = chance.choice(SHARED)
    connection.execute(
        f"UPDATE {name} SET fingerprint = %s WHERE id BETWEEN %s AND %s", [make_value(chance), id_, id_ + 9]
    )
    row = make_row(chance, stays=False, value=make_value(chance))
    day = {"1": 10, "2": 40, "3": 70, "4": 100}.get(name[-1], 0) if kind.name == "ranged" else row.day
    tenant = {"1": 1, "3": 3, "s": 2}.get(name[-1], 0) if name.count("_") == 1 else 0
    if name.count("_") == 2:
        day = 10 if name.endswith("1") else 60
    rows = {id_: row._replace(day=day, tenant=tenant)}
    insert(connection, name, rows, "ON CONFLICT DO NOTHING")


def _fail(connection: psycopg.Connection, chance: random.Random, kind: Kind) -> None:
    """A statement that fails half way, in a subtransaction of PL/pgSQL."""
    connection.execute(
        f"DO $$ BEGIN UPDATE {kind.name} SET fingerprint = '{chance.choice(POOL)}'"
        f" WHERE id BETWEEN {SHARED[0]} AND {SHARED[0] + 20};"
        f" PERFORM 1 / 0; EXCEPTION WHEN division_by_zero THEN NULL; END $$"
    )


_SHARED: list[tuple[str, Callable[[psycopg.Connection, random.Random, Kind], None]]] = [
    ("upsert of shared rows", _upsert_shared),
    ("upsert of shared rows", _upsert_shared),
    ("update of hot values", _update_hot),
    ("update of hot values", _update_hot),
    ("delete of hot values", _delete_hot),
    ("move to another scope or partition", _move),
    ("delete and insert in one statement", _replace),
    ("into a partition or child", _insert_into_part),
    ("subtransaction that fails", _fail),
]


def claim(tally: Tally, within: int) -> Callable[[psycopg.Connection, random.Random], None]:
    """The job of those who insert into the table `claimed` what has no near-duplicate yet."""

    def work(connection: psycopg.Connection, chance: random.Random) -> None:
        value = chance.choice([make_value(chance), make_value(chance), *_claimed_neighbours(connection, chance)])
        if chance.random() < 0.3:
            _claim_several(connection, chance, tally, within, value)
            return
        connection.execute("BEGIN")
        found = connection.execute("SELECT count(*) FROM simsql.claim('claimed', %s, %s)", [value, within])
        if found.fetchone() == (0,):
            row = make_row(chance, stays=True, value=value)
            # Another one that claims gets another number.
            id_ = chance.randrange(10**9, 10**18)
            insert(connection, "claimed", {id_: row})
            tally.operation("claims accepted")
        else:
            tally.operation("claims refused")
        if chance.random() < 0.2:
            connection.execute(
                "DELETE FROM claimed WHERE id IN (SELECT id FROM claimed WHERE id >= 1000000000"
                " ORDER BY random() LIMIT 2)"
            )
        connection.execute(chance.choices(["COMMIT", "ROLLBACK"], [5, 1])[0])

    return work


def _claim_several(
    connection: psycopg.Connection, chance: random.Random, tally: Tally, within: int, value: int | None
) -> None:
    """Claim in the statement that inserts: near fingerprints and others."""
    near = [] if value is None else [flip(value, chance.sample(range(64), bits)) for bits in (0, 1, 5)]
    values = chance.sample([value, make_value(chance), *near], 2 + len(near))
    rows = {chance.randrange(10**9, 10**18): make_row(chance, stays=True, value=one) for one in values}
    free = f"WHERE NOT EXISTS (SELECT FROM simsql.claim('claimed', s.fingerprint, {within}))"
    try:
        inserted = insert(connection, "claimed", rows, free)
    except psycopg.errors.DeadlockDetected:  # what several claims may run into
        tally.operation("claims in a deadlock")
    else:
        tally.operation("claims of several rows: inserted", inserted)
        tally.operation("claims of several rows: refused", len(rows) - inserted)


def _claimed_neighbours(connection: psycopg.Connection, chance: random.Random) -> list[int]:
    """A fingerprint that is claimed, with some bits flipped."""
    found = connection.execute(
        "SELECT fingerprint # (1::bigint << %s) # (1::bigint << %s) FROM claimed"
        " WHERE id >= %s AND fingerprint IS NOT NULL LIMIT 1",
        [chance.randrange(64), chance.randrange(64), chance.randrange(10**9, 10**18)],
    )
    return [value for (value,) in found]
