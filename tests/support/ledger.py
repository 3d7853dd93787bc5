"""What a client was told is committed, and work of every kind on a table with an index, to be interrupted."""

import random
import re
from collections.abc import Callable

import oracle
import psycopg
from articles import create_articles
from internals import set_batch_size
from psycopg import errors

BUILD = "CALL simsql.build('article', 'fingerprint', blocks => 4{})"
# What a hint says to do: "Let the index follow: SELECT * FROM simsql.repair('article');".
_STATEMENT = re.compile(r"(SELECT( \* FROM)?|CALL) simsql\.\w+\(('[^']*'|[^')])*\)")
Work = Callable[["Ledger", psycopg.Connection], None]


class Ledger:
    """The rows {id: fingerprint} of `article` whose commits a client was told of."""

    def __init__(self, connection: psycopg.Connection, storage: str, rows: int = 300, seed: int = 1) -> None:
        self.chance = random.Random(seed)
        self.storage = storage
        self.committed: dict[int, int] = dict(enumerate(oracle.clustered(rows, seed), 1))
        create_articles(connection, self.committed.values(), storage=storage)
        set_batch_size(connection, 50)
        self._next = rows + 1
        self._open: tuple[dict[int, int], list[int]] = ({}, [])

    def insert(self, connection: psycopg.Connection) -> None:
        """Insert rows, some of them near to others."""
        rows = self._new_rows(60)
        self._open = (rows, [])
        self._insert(connection, rows)
        self._settle()

    def copy(self, connection: psycopg.Connection) -> None:
        rows = self._new_rows(60)
        self._open = (rows, [])
        with connection.cursor().copy("COPY article (id, fingerprint) FROM STDIN") as copy:
            for row in rows.items():
                copy.write_row(row)
        self._settle()

    def update(self, connection: psycopg.Connection) -> None:
        rows = dict.fromkeys(self._some_rows(40), self._value())
        self._open = (rows, [])
        connection.execute(
            "UPDATE article SET fingerprint = %s WHERE id = ANY(%s)", [next(iter(rows.values())), list(rows)]
        )
        self._settle()

    def delete(self, connection: psycopg.Connection) -> None:
        gone = self._some_rows(20)
        self._open = ({}, gone)
        connection.execute("DELETE FROM article WHERE id = ANY(%s)", [gone])
        self._settle()

    def claim(self, connection: psycopg.Connection) -> None:
        """Insert a row if no near one is there, as two sessions would that must not both insert it."""
        rows = self._new_rows(1)
        (value,) = rows.values()
        with connection.transaction():
            query = "SELECT fingerprint FROM simsql.claim('article', %s::bigint)"
            if connection.execute(query, [value]).fetchone():
                return
            self._open = (rows, [])
            self._insert(connection, rows)
        self._settle()

    def vacuum(self, connection: psycopg.Connection) -> None:
        connection.execute("CALL simsql.vacuum('article')")

    def verify(self, connection: psycopg.Connection) -> None:
        found = connection.execute("SELECT problem FROM simsql.verify('article') WHERE fault").fetchall()
        assert found in ([], [("not ready",)]), found

    def repair(self, connection: psycopg.Connection) -> None:
        connection.execute("SELECT * FROM simsql.repair('article')")

    def create_again(self, connection: psycopg.Connection) -> None:
        with connection.transaction():
            connection.execute("SELECT simsql.drop_index('article')")
            connection.execute(
                f"SELECT simsql.create_index('article', 'fingerprint', blocks => 4, storage => '{self.storage}')"
            )

    def build(self, connection: psycopg.Connection) -> None:
        """Build the index online, after dropping it; writers go on in the meantime."""
        (indexes,) = connection.execute("SELECT count(*) FROM simsql.indexes WHERE state = 'ready'").fetchone()
        if indexes:
            connection.execute("SELECT simsql.drop_index('article')")
        connection.execute(BUILD.format(f", storage => '{self.storage}'"))

    def settle(self, connection: psycopg.Connection) -> None:
        """Look whether the work that was interrupted was committed: all of it, or nothing."""
        rows, gone = self._open
        touched = [*rows, *gone]
        found = dict(
            connection.execute("SELECT id, fingerprint FROM article WHERE id = ANY(%s)", [touched]).fetchall()
        )
        if touched and found == rows:
            self._settle()
        self._open = ({}, [])

    def mend(self, connection: psycopg.Connection) -> int:
        """Do what the errors of searches say until one succeeds; return how many there were."""
        for refusals in range(4):
            try:
                connection.execute("SELECT * FROM simsql.near('article', 0::bigint, 3)")
            except (errors.ObjectNotInPrerequisiteState, errors.UndefinedObject) as refused:
                hint = refused.diag.message_hint
                connection.execute(_STATEMENT.search(hint)[0])
            else:
                return refusals
        raise AssertionError(f"not mended by: {hint}")

    def _insert(self, connection: psycopg.Connection, rows: dict[int, int]) -> None:
        connection.execute(
            "INSERT INTO article (id, fingerprint) OVERRIDING SYSTEM VALUE"
            " SELECT * FROM unnest(%s::bigint[], %s::bigint[])",
            [list(rows), list(rows.values())],
        )

    def _settle(self) -> None:
        rows, gone = self._open
        self.committed.update(rows)
        for row in gone:
            del self.committed[row]
        self._open = ({}, [])

    def _value(self) -> int:
        if self.chance.random() < 0.5:
            near = self.chance.choice(list(self.committed.values()))
            return oracle.flip(near, self.chance.sample(range(64), self.chance.randrange(6)))
        return oracle.to_bigint(self.chance.getrandbits(64))

    def _new_rows(self, count: int) -> dict[int, int]:
        # Never an id a second time: what was rolled back must not come back.
        self._next += count
        return {row: self._value() for row in range(self._next - count, self._next)}

    def _some_rows(self, count: int) -> list[int]:
        return self.chance.sample(sorted(self.committed), count)


WORK: dict[str, Work] = {
    name: getattr(Ledger, name)
    for name in (
        *("insert", "copy", "update", "delete", "claim", "vacuum", "verify", "repair", "create_again", "build"),
    )
}
