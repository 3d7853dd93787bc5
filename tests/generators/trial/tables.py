"""The tables of a trial: what they are made of, and the rows in them."""

import random
from dataclasses import dataclass
from typing import NamedTuple

import psycopg
from oracle import flip, to_bigint

WRITERS = 6
OWN = 150
"""Rows of each writer in each table, which nobody else writes."""
SHARED = range(10_000, 10_300)
"""The ids of the rows that all write."""
BYSTANDERS = range(1_000_000, 1_004_000)
"""Rows that hardly anybody touches: with fewer, every search would scan."""
LANGUAGES = ("en", "de")
TENANTS, LAST_TENANT = range(5), 2
DAYS, LAST_DAY = range(120), 58
"""Rows with a tenant or a day up to the last are in partitions that stay."""
# Few values, so that rows share them, leave them and come back to them.
POOL = [flip(to_bigint(0xA5 << 56), random.Random(n).sample(range(64), n % 9)) for n in range(60)]
EXTREMES = [0, -1, 2**63 - 1, -(2**63)]
DESIGNS = [(4, 1, 0), (4, 1, 0), (2, 1, 0), (5, 2, 0), (4, 1, 4)]
COLUMNS = "id, tenant, lang, day, body, fingerprint"
_FIRST = "date '2025-01-01'"


class Row(NamedTuple):
    tenant: int | None
    lang: str | None
    day: int
    fingerprint: int | None


@dataclass(frozen=True)
class Kind:
    """A kind of table; the table has the same name."""

    name: str
    storage: str
    scope: tuple[str, ...] = ()
    key: tuple[str, ...] = ("id",)
    partition_by: str = ""
    parts: tuple[tuple[str, str], ...] = ()
    """Names of partitions, or of children, and how they go on in CREATE TABLE."""
    volatile: tuple[str, ...] = ()
    """Partitions that may be detached, truncated and dropped; of a parent, children that may leave it."""
    claimed: bool = False
    """Whether every writer claims before it inserts."""

    @property
    def is_ordinary(self) -> bool:
        return not self.parts

    def create(self, connection: psycopg.Connection) -> None:
        null = " NOT NULL" if "tenant" in self.key else ""
        connection.execute(
            f"CREATE TABLE {self.name} (id bigint NOT NULL, tenant integer{null}, lang text, day date NOT NULL,"
            f" body text, fingerprint bigint, PRIMARY KEY ({', '.join(self.key)})) {self.partition_by}"
        )
        for name, part in self.parts:
            connection.execute(self.part(name, part))

    def part(self, name: str, part: str) -> str:
        return f"CREATE TABLE {name} {part.format(table=self.name, name=name)}"


def _from(month: int, table: str = "{table}") -> str:
    return f"PARTITION OF {table} FOR VALUES FROM ('2025-{month:02}-01') TO ('2025-{month + 1:02}-01')"


KINDS = (
    Kind("ordinary", "tables"),
    Kind("ordinary_btrees", "expression"),
    Kind("scoped", "tables", ("tenant", "lang")),
    Kind("scoped_btrees", "expression", ("tenant", "lang")),
    Kind(
        "ranged",
        "expression",
        key=("id", "day"),
        partition_by="PARTITION BY RANGE (day)",
        parts=tuple((f"ranged_{month}", _from(month)) for month in (1, 2, 3, 4)),
        volatile=("ranged_3", "ranged_4"),
    ),
    Kind(
        "listed",
        "expression",
        ("tenant",),
        key=("id", "tenant", "day"),
        partition_by="PARTITION BY LIST (tenant)",
        parts=(
            ("listed_0", "PARTITION OF {table} FOR VALUES IN (0) PARTITION BY RANGE (day)"),
            ("listed_0_1", _from(1, "listed_0")),
            ("listed_0_2", "PARTITION OF listed_0 DEFAULT"),
            ("listed_1", "PARTITION OF {table} FOR VALUES IN (1)"),
            ("listed_3", "PARTITION OF {table} FOR VALUES IN (3)"),
            ("listed_others", "PARTITION OF {table} DEFAULT"),
        ),
        volatile=("listed_3",),
    ),
    Kind(
        "inherited",
        "expression",
        parts=(
            ("inherited_1", "(PRIMARY KEY (id)) INHERITS ({table})"),
            ("inherited_2", "(CHECK (fingerprint IS NULL OR id > 0)) INHERITS ({table})"),
        ),
        volatile=("inherited_1",),
    ),
    Kind("claimed", "tables", claimed=True),
)


def make_row(chance: random.Random, *, stays: bool, value: int | None) -> Row:
    """A row of any scope and day, or of those whose partitions stay."""
    tenant = chance.choice([0, 0, 0, 1, LAST_TENANT]) if stays else chance.choice(TENANTS)
    day = chance.randint(0, LAST_DAY) if stays else chance.choice(DAYS)
    return Row(tenant, chance.choice(LANGUAGES), day, value)


def make_value(chance: random.Random) -> int | None:
    """A fingerprint: mostly one of a few, or a neighbour of what bystanders have."""
    how = chance.random()
    if how < 0.5:
        return chance.choice(POOL)
    if how < 0.6:
        return None
    if how < 0.85:
        return flip(bystander(chance.choice(BYSTANDERS)), chance.sample(range(64), chance.choice([0, 1, 3, 7])))
    return chance.choice([to_bigint(chance.getrandbits(64)), chance.choice(EXTREMES)])


def bystander(id_: int) -> int:
    """The fingerprint of this row; a quarter have the one before as a neighbour."""
    if id_ % 4 == 3:
        return flip(bystander(id_ - 1), random.Random(id_).sample(range(64), id_ % 11))
    return to_bigint(random.Random(id_).getrandbits(64))


def insert(connection: psycopg.Connection, table: str, rows: dict[int, Row], more: str = "") -> int:
    """Insert rows in one statement, and return how many."""
    statement = f"INSERT INTO {table} ({COLUMNS}) SELECT s.* FROM {SOURCE} AS s {more}"
    return connection.execute(statement, columns(rows)).rowcount


# Rows from the parameters that `columns` returns.
SOURCE = (
    f"(SELECT v.id, v.tenant, v.lang, {_FIRST} + v.day AS day, v.id::text AS body, v.fingerprint"
    " FROM unnest(%s::bigint[], %s::integer[], %s::text[], %s::integer[], %s::bigint[])"
    " AS v (id, tenant, lang, day, fingerprint))"
)


def columns(rows: dict[int, Row]) -> list[list[object]]:
    """The parameters of SOURCE."""
    return [list(rows), *(list(column) for column in zip(*rows.values(), strict=True))] if rows else [[]] * 5


def prepare(
    connection: psycopg.Connection, seed: str, kinds: tuple[Kind, ...] = KINDS, bystanders: int = len(BYSTANDERS)
) -> None:
    """Create and fill the tables, and index them."""
    for kind in kinds:
        chance = random.Random(f"{seed} {kind.name}")
        kind.create(connection)
        if kind.claimed:
            values = (to_bigint(chance.getrandbits(64)) for _ in BYSTANDERS[: bystanders // 4])
        else:
            values = (bystander(id_) for id_ in BYSTANDERS)
        rows = {
            id_: make_row(chance, stays=True, value=value)
            for id_, value in zip(BYSTANDERS[:bystanders], values, strict=False)
        }
        insert(connection, kind.name, rows)
        if not kind.claimed:
            shared = {id_: make_row(chance, stays=False, value=make_value(chance)) for id_ in SHARED if id_ % 2}
            insert(connection, kind.name, shared)
        connection.execute(f"ANALYZE {kind.name}")
        create_index(connection, kind, kind.storage)


def create_index(
    connection: psycopg.Connection, kind: Kind, storage: str, design: tuple[int, int, int] = (4, 1, 0)
) -> None:
    connection.execute(f"SELECT simsql.create_index({arguments(kind)})", [*design, storage])


def arguments(kind: Kind) -> str:
    """The arguments of create_index and build; parameters are the design and the storage."""
    scope = f"'{{{','.join(kind.scope)}}}'"
    return (
        f"'{kind.name}', 'fingerprint', blocks => %s, lead => %s, inner_blocks => %s,"
        f" scope => {scope}, recipe => 'trial', storage => %s"
    )
