"""Searches of every kind, compared with brute force over the rows of the same snapshot."""

import json
import random
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import psycopg
from internals import near_many_strategy
from numpy.random import default_rng  # numpy itself imports it late, which threads must not do at once
from similar import like_near
from sqlalchemy import BigInteger, Column, Connection, Integer, MetaData, Table, Text, create_engine, select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from simsql.database import SearchIndex
from simsql.sqlalchemy import Fingerprint, SimhashIndex
from trial import matrix
from trial.matrix import Lines
from trial.tables import LANGUAGES, POOL, TENANTS, Kind, to_bigint
from trial.tally import Group, Tally

WHOLE = 300
"""So many queries at once, or all that a table has."""
DISTANCES = (0, 3, 3, 3, 7, 7, 10)
# The rows that have a fingerprint: id, tenant, language, fingerprint, of eight bytes each.
ROWS = (
    "SELECT string_agg(int8send(id) || int8send(coalesce(tenant, -1)) || int8send(coalesce(ascii(lang), -1))"
    " || int8send(fingerprint), '') FROM {table} WHERE fingerprint IS NOT NULL"
)
_QUERIES = "unnest(%(queries)s::bigint[]) WITH ORDINALITY AS q (f, n)"
_MATCH = "int8send(q.n - 1) || int8send(r.fingerprint) || int8send(r.distance)"
_CALL = "%(table)s, {}, %(within)s, scope => %(scope)s::jsonb"


class Way(NamedTuple):
    """A way to search for each of several fingerprints in one statement."""

    statement: str
    columns: int
    queries: int
    """At most so many at once; 0 for all that rows have."""
    is_ordered: bool = False


def _each(call: str, columns: str, order: str = "") -> str:
    return f"SELECT string_agg({columns}, ''{order}) FROM {_QUERIES} CROSS JOIN LATERAL {call}"


WAYS = {
    "near": Way(
        _each(
            f"simsql.near({_CALL.format('q.f')}) WITH ORDINALITY AS r (fingerprint, distance, n)",
            _MATCH,
            " ORDER BY q.n, r.n",
        ),
        3,
        40,
        is_ordered=True,
    ),
    # It also finds what is within the exact distance.
    "similar_candidates": Way(
        _each(
            f"simsql.similar_candidates(%(table)s, {like_near('q.f', '%(within)s', '%(table)s')},"
            " scope => %(scope)s::jsonb) WITH ORDINALITY AS r (fingerprint, distance, cost, n)"
            " WHERE r.distance <= %(within)s AND r.distance = r.cost",
            _MATCH,
            " ORDER BY q.n, r.n",
        ),
        3,
        40,
        is_ordered=True,
    ),
    "near_rows": Way(
        _each(
            "simsql.near_rows(NULL::{table}, q.f, %(within)s, scope => %(scope)s::jsonb) AS r",
            "int8send(q.n - 1) || int8send(r.id)",
        ),
        2,
        20,
    ),
    "near_many": Way(
        f"SELECT string_agg({_MATCH}, '') FROM simsql.near_many({_CALL.format('%(queries)s::bigint[]')}) AS r"
        f" JOIN {_QUERIES} ON q.f = r.query",
        3,
        300,
    ),
    # The queries are those that rows have.
    "near_many of a table": Way(
        f"SELECT string_agg({_MATCH}, '') FROM simsql.near_many(%(table)s, query_table => %(table)s,"
        " query_column => 'fingerprint', distance => %(within)s, scope => %(scope)s::jsonb) AS r"
        f" JOIN {_QUERIES} ON q.f = r.query",
        3,
        0,
    ),
    # For few queries, near_many calls near.
    "near_many, few": Way(
        f"SELECT string_agg({_MATCH}, '') FROM simsql.near_many({_CALL.format('%(queries)s::bigint[]')}) AS r"
        f" JOIN {_QUERIES} ON q.f = r.query",
        3,
        16,
    ),
}
_FEW = sorted(name for name, way in WAYS.items() if way.queries)
_WHOLE = {
    "pairs": "SELECT a, b, distance FROM simsql.pairs({})",
    "clusters": "SELECT cluster, fingerprint FROM simsql.clusters({})",
}
_CLAIM = _each(f"simsql.claim({_CALL.format('q.f')}) AS r", _MATCH)


class _Asked(NamedTuple):
    """What is searched for, and where."""

    kind: Kind
    storage: str
    scope: dict[str, object] | None
    within: int

    @property
    def json(self) -> str | None:
        return json.dumps(self.scope) if self.scope else None

    def mine(self, rows: Lines) -> Lines:
        """The rows in the scope: (id, fingerprint)."""
        if self.scope:
            rows = rows[rows[:, 1] == self.scope["tenant"]]
            if "lang" in self.scope:
                rows = rows[rows[:, 2] == ord(str(self.scope["lang"])[0])]
        return rows[:, [0, 3]]


class Searcher:
    """Compares searches with brute force and counts what was compared, lost and wrong."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally

    def compare(
        self,
        connection: psycopg.Connection,
        chance: random.Random,
        kind: Kind,
        queries: int = WHOLE,
        *,
        one_snapshot: bool = True,
        is_quiet: bool = False,
    ) -> None:
        """Compare searches in one way with the rows.

        With `one_snapshot`, the transaction has one, or nobody writes. Otherwise one statement reads the rows and
        searches. `is_quiet`: nobody writes or claims.
        """
        asked = self._ask(connection, chance, kind)
        rows = self._read(connection, kind)
        values = asked.mine(rows)[:, 1]
        if one_snapshot and chance.random() < 0.1:
            self._compare_whole(connection, chance.choice(sorted(_WHOLE)), asked, rows)
            return
        # The queries of the whole table are those that were read before.
        name = chance.choice(sorted(WAYS) if one_snapshot and queries >= WHOLE else _FEW)
        way = WAYS[name]
        if name == "similar_candidates":
            asked = asked._replace(within=min(asked.within, 7))
        wanted = np.unique(rows[:, 3])
        if way.queries or not len(wanted):
            wanted = make_queries(chance, values, min(queries, way.queries or queries))
        if not one_snapshot:
            statement = f"SELECT ({ROWS.format(table=kind.name)}), ({way.statement.format(table=kind.name)})"
            both = _fetch(connection, statement, asked, wanted)
            rows, found = _decode(both[0], 4), _decode(both[1], way.columns)
        else:
            (data,) = _fetch(connection, way.statement.format(table=kind.name), asked, wanted)
            found = _decode(data, way.columns)
            if self._has_changed(connection, kind, rows):
                return
        group = self._group(connection, name, asked, wanted)
        self._count(name, group, asked, wanted, rows, found, is_ordered=way.is_ordered)
        if is_quiet and asked.within <= 7:
            wanted = wanted[:10]
            found = np.empty((0, 3), dtype=np.int64)
            with connection.transaction(force_rollback=True):
                for number, query in enumerate(wanted):  # each in a statement of its own, as nothing is inserted
                    (data,) = _fetch(connection, _CLAIM, asked, np.array([query]))
                    found = np.concatenate([found, _decode(data, 3) + np.array([number, 0, 0])])
            self._count("claim", self._group(connection, "claim", asked, wanted), asked, wanted, rows, found)

    def compare_in_python(self, connection: Connection, chance: random.Random, kind: Kind) -> None:
        """The same for SearchIndex and for models, in a transaction with one snapshot."""
        session = connection.connection.driver_connection
        assert isinstance(session, psycopg.Connection)
        asked = self._ask(session, chance, kind)
        rows = self._read(session, kind)
        values = asked.mine(rows)[:, 1]
        index = SearchIndex(connection, kind.name, scope=asked.scope)
        name, most = chance.choice([("near_many", 300), ("near", 20), ("near_rows", 10), ("select", 10)])
        wanted = make_queries(chance, values, most)
        unsigned = [int(query) for query in wanted.view(np.uint64)]
        lines: list[tuple[int, ...]] = []
        if name == "near_many":
            places = {query: number for number, query in enumerate(unsigned)}
            lines = [
                (places[query], to_bigint(match), bits)
                for query, match, bits in index.near_many(unsigned, asked.within)
            ]
        elif name == "near":
            lines = [
                (number, to_bigint(match.fingerprint), match.distance)
                for number, query in enumerate(unsigned)
                for match in index.near(query, asked.within)
            ]
        elif name == "near_rows":
            lines = [
                (number, match.row["id"])
                for number, query in enumerate(unsigned)
                for match in index.near_rows(query, asked.within)
            ]
        else:
            table = _table(kind)
            lines = [
                (number, id_)
                for number, query in enumerate(unsigned)
                for (id_,) in connection.execute(
                    select(table.c.id).where(table.c.fingerprint.near(query, asked.within, scope=asked.scope))
                )
            ]
        width = 2 if name in ("near_rows", "select") else 3
        found = np.array(lines, dtype=np.int64).reshape(len(lines), width)
        if self._has_changed(session, kind, rows):
            return
        way = "near_many" if name == "near_many" else "near"
        group = self._group(session, way, asked, wanted)
        self._count(f"{name} in Python", group, asked, wanted, rows, found)

    def _ask(self, connection: psycopg.Connection, chance: random.Random, kind: Kind) -> _Asked:
        scope = None
        if kind.scope:
            both = {"tenant": chance.choice([0, 0, 0, *TENANTS, 77]), "lang": chance.choice(LANGUAGES)}
            scope = {name: both[name] for name in kind.scope}
        found = connection.execute(
            "SELECT storage FROM simsql.registry WHERE table_id = to_regclass(%s)", [kind.name]
        ).fetchone()
        return _Asked(kind, found[0] if found else "none", scope, chance.choice(DISTANCES))

    def _read(self, connection: psycopg.Connection, kind: Kind) -> Lines:
        (data,) = connection.execute(ROWS.format(table=kind.name), binary=True).fetchone() or (None,)
        return _decode(data, 4)

    def _group(self, connection: psycopg.Connection, way: str, asked: _Asked, queries: Lines) -> Group:
        """How PostgreSQL searches for these; of single searches, the first counts for all."""
        name = "'" + asked.kind.name + "'"
        if way.startswith("near_many") and len(queries) > 16:
            strategy = near_many_strategy(connection, asked.kind.name, len(queries), asked.within, asked.json)
        else:
            explain = f"SELECT * FROM simsql.explain_near({name}, %s, %s, scope => %s::jsonb) LIMIT 1"
            (line,) = connection.execute(explain, [int(queries[0]), asked.within, asked.json]).fetchone() or ("",)
            strategy = line.removeprefix("strategy: ").split(",")[0]
        return Group(strategy, asked.storage, _describe(asked.kind))

    def _has_changed(self, connection: psycopg.Connection, kind: Kind, rows: Lines) -> bool:
        """Whether a part has joined or left the table. PostgreSQL then shows other rows to the same snapshot."""
        if not kind.volatile or np.array_equal(matrix.sort(rows), matrix.sort(self._read(connection, kind))):
            return False
        self._tally.add(self._tally.retried, "searches while a part joined or left")
        return True

    def _compare_whole(self, connection: psycopg.Connection, what: str, asked: _Asked, rows: Lines) -> None:
        values = asked.mine(rows)[:, 1]
        asked = asked._replace(within=min(asked.within, 7))
        parameters = {"table": asked.kind.name, "within": asked.within, "scope": asked.json}
        statement = _WHOLE[what].format("%(table)s, %(within)s, scope => %(scope)s::jsonb")
        lines = connection.execute(statement, parameters).fetchall()
        near = matrix.pairs(values, asked.within)
        expected = near if what == "pairs" else matrix.clusters(values, near)
        if self._has_changed(connection, asked.kind, rows):
            return
        found = matrix.sort(np.array(lines, dtype=np.int64).reshape(len(lines), expected.shape[1]))
        self._tally.searched(
            what, Group("whole table", asked.storage, _describe(asked.kind)), 1, int(len(near) > 0)
        )
        self._find(what, asked, np.zeros(1, np.int64), found, expected)

    def _count(
        self,
        way: str,
        group: Group,
        asked: _Asked,
        queries: Lines,
        rows: Lines,
        found: Lines,
        *,
        is_ordered: bool = False,
    ) -> None:
        mine = asked.mine(rows)
        distinct, places = np.unique(mine[:, 1], return_inverse=True)
        away = matrix.distances(queries, distinct)
        if found.shape[1] == 2:
            query, row = np.nonzero(away[:, places] <= asked.within)
            expected = matrix.sort(np.column_stack([query, mine[row, 0]]).astype(np.int64))
        else:
            expected = matrix.matches(away, distinct, asked.within)
            if way == "claim":
                expected = expected[np.unique(expected[:, 0], return_index=True)[1]]
        if not is_ordered:
            found, expected = matrix.sort(found), matrix.sort(expected)
        self._tally.searched(way, group, len(queries), len(np.unique(expected[:, 0])))
        self._find(way, asked, queries, found, expected)

    def _find(self, way: str, asked: _Asked, queries: Lines, found: Lines, expected: Lines) -> None:
        if np.array_equal(found, expected):
            return
        there, should = (set(map(tuple, lines.tolist())) for lines in (found, expected))
        missing, more = sorted(should - there), sorted(there - should)
        note = f"{way}, {asked}: missing {missing[:3]}, too many {more[:3]}, queries {queries[:3].tolist()}"
        self._tally.find(self._tally.lost, "matches", len(missing), note)
        self._tally.find(self._tally.wrong, "matches", len(more), note)
        self._tally.find(self._tally.wrong, "order or repetition", not missing and not more, note)


def make_queries(chance: random.Random, values: Lines, count: int) -> Lines:
    """Different fingerprints: mostly those of rows with some bits flipped, and hot ones that rows have or had."""
    numbers = default_rng(chance.getrandbits(64))
    some = numbers.choice(values, count) if len(values) else numbers.integers(-(2**63), 2**63 - 1, count)
    some[: count // 8] = numbers.choice(np.array(POOL), count // 8)
    chosen = some.view(np.uint64)
    for _ in range(8):
        bit = np.left_shift(np.uint64(1), numbers.integers(0, 64, count, dtype=np.uint64))
        chosen = chosen ^ np.where(numbers.random(count) < 0.25, bit, np.uint64(0))
    return numbers.permutation(np.unique(chosen.view(np.int64)))


def job(searcher: Searcher, kinds: tuple[Kind, ...]) -> Callable[[psycopg.Connection, random.Random], None]:
    """The job of one who searches, in transactions of every kind."""

    def work(connection: psycopg.Connection, chance: random.Random) -> None:
        level = chance.choice(["READ COMMITTED", "REPEATABLE READ", "REPEATABLE READ READ ONLY", "SERIALIZABLE"])
        connection.execute(f"BEGIN ISOLATION LEVEL {level}")
        kind = chance.choice(kinds)
        for _ in range(chance.randint(1, 3)):
            searcher.compare(connection, chance, kind, one_snapshot=level != "READ COMMITTED")
        connection.execute("COMMIT")

    return work


def python_job(searcher: Searcher, kinds: tuple[Kind, ...]) -> Callable[[psycopg.Connection, random.Random], None]:
    """The job of one who searches through SQLAlchemy."""

    def work(connection: psycopg.Connection, chance: random.Random) -> None:
        info = connection.info
        where = {"host": info.host, "port": info.port, "dbname": info.dbname, "user": info.user}
        engine = create_engine("postgresql+psycopg://", connect_args=where, poolclass=NullPool)
        try:
            with engine.connect().execution_options(isolation_level="REPEATABLE READ") as own:
                for _ in range(20):
                    with own.begin():
                        searcher.compare_in_python(own, chance, chance.choice(kinds))
        except DBAPIError as error:
            raise (error.orig or error) from error

    return work


def _table(kind: Kind) -> Table:
    columns = [Column(name, type_) for name, type_ in (("id", BigInteger), ("tenant", Integer), ("lang", Text))]
    index = SimhashIndex("fingerprint", scope=kind.scope)
    return Table(kind.name, MetaData(), *columns, Column("fingerprint", Fingerprint()), index)


def _decode(data: bytes | None, columns: int) -> Lines:
    return np.frombuffer(data or b"", dtype=">i8").astype(np.int64).reshape(-1, columns)


def _fetch(
    connection: psycopg.Connection, statement: str, asked: _Asked, queries: Lines
) -> tuple[bytes | None, ...]:
    parameters = {
        "table": asked.kind.name,
        "queries": queries.tolist(),
        "within": asked.within,
        "scope": asked.json,
    }
    return connection.execute(statement, parameters, binary=True).fetchone() or ()


def _describe(kind: Kind) -> str:
    return kind.name.replace("_btrees", "") + (f" by {' and '.join(kind.scope)}" if kind.scope else "")
