"""The table of documents: load it, index it and read its clusters."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple
from uuid import UUID

import numpy as np
from numpy.typing import NDArray
from psycopg import sql
from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Engine,
    Identity,
    MetaData,
    Table,
    Text,
    Uuid,
    delete,
    func,
    inspect,
    literal,
    literal_column,
    select,
    text,
    tuple_,
    update,
)
from sqlalchemy.dialects.postgresql import REGCLASS, aggregate_order_by, insert
from sqlalchemy.sql.expression import cast

from simsql.database import create_index, install_schema
from simsql.database.load import copy_rows
from simsql.database.transfer import copy_columns
from simsql.dedup.grouping import Members
from simsql.errors import SimsqlError
from simsql.fingerprint import DEFAULT_RECIPE, Recipe


class StagedDocument(NamedTuple):
    """A document to merge into the table."""

    ordinal: int
    """Position in the order of reading."""
    name: str
    name_digest: str
    """32 hexadecimal digits: PostgreSQL reads them as a uuid, which is slower to make in Python."""
    place: str
    text_digest: str
    characters: int
    fingerprint: int | None
    """A bigint; None for a text without features, or a text that the table already has."""
    known: bool = False
    """Whether the table had this text under this name at the look-up."""


_PIECE = 1 << 16  # ids whose fingerprints are packed together

STAGED = "simsql_staged"
"""The temporary table of staged documents."""

# The columns that the table and the staged documents share.
_SHARED = tuple(name for name in StagedDocument._fields if name not in ("ordinal", "known"))


class StoredDocument(NamedTuple):
    """A document of a cluster."""

    cluster: int
    id: int
    name: str
    place: str
    characters: int
    fingerprint: int
    """A bigint."""
    seen: bool
    """Whether this run has read it. If so, `name` and `place` are from this run."""


@dataclass(frozen=True)
class Loaded:
    """Counts of the staged documents by outcome."""

    added: int
    changed: int
    """Documents that the table had with another text."""
    unchanged: int


class DocumentStore:
    """A table with one row per document: its name, where it was read, and its fingerprint.

    A digest of 16 bytes identifies a name, because a B-tree cannot store texts of more than 2.7 kB. Only a table
    that is kept has a simhash index: this run groups its documents in memory.
    """

    def __init__(
        self, engine: Engine, table: str, schema: str | None = None, *, recipe: Recipe, kept: bool
    ) -> None:
        self.engine = engine
        self.kept = kept
        self._recipe = recipe
        self._table = Table(
            table,
            MetaData(),
            Column("id", BigInteger, Identity(always=True), primary_key=True),
            Column("name", Text, nullable=False),
            Column("name_digest", Uuid, nullable=False, unique=True),
            Column("place", Text, nullable=False),
            Column("text_digest", Uuid, nullable=False),
            Column("characters", BigInteger, nullable=False),
            Column("fingerprint", BigInteger),
            schema=schema,
            prefixes=[] if kept else ["UNLOGGED"],
        )
        self._staged = Table(
            STAGED,
            MetaData(),
            Column("ordinal", BigInteger, primary_key=True),
            Column("known", Boolean, nullable=False),
            *(Column(name, self._table.c[name].type) for name in _SHARED),
            prefixes=["TEMPORARY"],
        )

    @property
    def sql_name(self) -> str:
        """The table name as in SQL."""
        # The preparer doubles percent signs, for statements that have parameters.
        return self.engine.dialect.identifier_preparer.format_table(self._table).replace("%%", "%")

    def prepare(self) -> bool:
        """Create the table if it is missing, and the schema if the table is kept. Return whether it has documents.

        Raises SimsqlError if another table has the name or the fingerprints have another recipe, and
        sqlalchemy.exc.DBAPIError if the role lacks the privilege to create them.
        """
        if self.kept:
            install_schema(self.engine)
        with self.engine.begin() as connection:
            # If two runs find no table, only one of them creates it.
            connection.execute(select(func.pg_advisory_xact_lock(func.hashtextextended("simsql.dedup", 0))))
            inspector = inspect(connection)
            if not inspector.has_table(self._table.name, self._table.schema):
                self._table.create(connection)
                return False
            found = {column["name"] for column in inspector.get_columns(self._table.name, self._table.schema)}
            missing = [column.name for column in self._table.columns if column.name not in found]
            if missing:
                raise SimsqlError(
                    f"table {self.sql_name} was not created by simsql dedup: it has no column {missing[0]};"
                    " choose another name with --table"
                )
            if self._is_indexed(connection) and (made_by := self._recipe_id(connection)) != self._recipe.id:
                raise SimsqlError(
                    f"table {self.sql_name} has fingerprints with recipe {made_by}, not {self._recipe.id}:"
                    f" choose that recipe with --recipe, or another table with --table"
                )
            return connection.execute(select(self._table.c.id).limit(1)).first() is not None

    def find_known(self, digests: Sequence[tuple[str, str]]) -> set[tuple[str, str]]:
        """Return the (name, text) digests that the table has with a fingerprint."""
        key = tuple_(self._table.c.name_digest, self._table.c.text_digest)
        with self.engine.connect() as connection:
            rows = connection.execute(
                select(self._table.c.name_digest, self._table.c.text_digest).where(
                    key.in_([(UUID(name), UUID(text)) for name, text in digests]),
                    self._table.c.fingerprint.is_not(None),
                )
            )
            return {(name.hex, text.hex) for name, text in rows}

    def stage(self, connection: Connection, documents: Iterable[StagedDocument]) -> int:
        """COPY documents to a temporary table of this connection, and return their number."""
        # The source may be slow.
        connection.execute(text("SET LOCAL idle_in_transaction_session_timeout = 0"))
        self._staged.create(connection)
        return copy_rows(connection, f"pg_temp.{STAGED}", StagedDocument._fields, documents)

    def drop_duplicates(self, connection: Connection) -> Iterator[tuple[str, str, str]]:
        """Drop staged documents with a repeated name; yield (place, name, place of the first)."""
        staged = self._staged
        name, ordinal = staged.c.name_digest, staged.c.ordinal
        ranked = select(
            ordinal,
            func.row_number().over(partition_by=name, order_by=ordinal).label("rank"),
            func.first_value(staged.c.place).over(partition_by=name, order_by=ordinal).label("first"),
        ).subquery()
        rows = connection.execute(
            delete(staged)
            .where(staged.c.ordinal == ranked.c.ordinal, ranked.c.rank > 1)
            .returning(staged.c.place, staged.c.name, ranked.c.first)
        )
        yield from ((place, name, first) for place, name, first in rows)

    def merge(self, connection: Connection) -> Loaded:
        """Update the table with the staged documents. Other runs wait until the transaction ends.

        A document that was known at the look-up stays as it is, even if another run has changed it since.
        """
        # Without the lock, two runs that write the same documents or build the index could deadlock.
        table_id = cast(cast(self.sql_name, REGCLASS), BigInteger)
        connection.execute(select(func.pg_advisory_xact_lock(func.hashtextextended("simsql.dedup", table_id))))
        table, staged = self._table, self._staged
        total = connection.execute(select(func.count()).select_from(staged)).scalar_one()
        data = [table.c.place, table.c.text_digest, table.c.characters, table.c.fingerprint]
        changed = connection.execute(
            update(table)
            .values({column: staged.c[column.name] for column in data})
            .where(
                table.c.name_digest == staged.c.name_digest,
                table.c.text_digest != staged.c.text_digest,
                ~staged.c.known,
            )
        ).rowcount
        new = select(*(staged.c[name] for name in _SHARED)).where(~staged.c.known).order_by(staged.c.ordinal)
        added = connection.execute(
            insert(table)
            .from_select(_SHARED, new)
            .on_conflict_do_nothing(index_elements=[table.c.name_digest])
            .execution_options(preserve_rowcount=True)
        ).rowcount
        return Loaded(added, changed, total - added - changed)

    def build_index(self, connection: Connection, distance: int) -> None:
        """Create the simhash index unless the table has one."""
        if not self._is_indexed(connection):
            create_index(connection, self.sql_name, "fingerprint", distance=distance, recipe=self._recipe)

    def count(self, connection: Connection) -> int:
        """Return the number of documents in the table."""
        return connection.execute(select(func.count()).select_from(self._table)).scalar_one()

    def fingerprints(self, connection: Connection) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
        """Return the ids, ascending, and the fingerprints of all documents that have one."""
        row_id, fingerprint = self._table.c.id, self._table.c.fingerprint
        # Packed by PostgreSQL: no Python object for each value.
        packed = func.int8send(row_id).op("||")(func.int8send(fingerprint))
        piece = row_id // literal_column(str(_PIECE))
        pieces = connection.execute(
            select(func.string_agg(packed, aggregate_order_by(literal(b""), row_id)))
            .where(fingerprint.is_not(None))
            .group_by(piece)
            .order_by(piece)
        )
        rows = np.frombuffer(b"".join(pieces.scalars()), dtype=[("id", ">i8"), ("fingerprint", ">u8")])
        return rows["id"].astype(np.int64), rows["fingerprint"].astype(np.uint64)

    def documents(self, connection: Connection, members: Members) -> Iterator[list[StoredDocument]]:
        """Yield the documents of each cluster, in the order of `members`.

        Use the connection that staged the documents, in the transaction that has read the fingerprints.
        """
        listed = Table(
            "simsql_members",
            MetaData(),
            Column("cluster", BigInteger),
            Column("id", BigInteger),
            prefixes=["TEMPORARY"],
            postgresql_on_commit="DROP",
        )
        listed.create(connection)
        copy_columns(connection, sql.Identifier("pg_temp", listed.name), members._asdict())
        # Autovacuum does not see temporary tables, and without a number of rows the planner would loop.
        connection.execute(text(f"ANALYZE pg_temp.{listed.name}"))
        table, staged = self._table, self._staged
        rows = connection.execute(
            select(
                listed.c.cluster,
                table.c.id,
                func.coalesce(staged.c.name, table.c.name),
                func.coalesce(staged.c.place, table.c.place),
                table.c.characters,
                table.c.fingerprint,
                staged.c.ordinal.is_not(None),
            )
            .join_from(listed, table, table.c.id == listed.c.id)
            .outerjoin(staged, staged.c.name_digest == table.c.name_digest)
            .order_by(listed.c.cluster, table.c.id)
            .execution_options(yield_per=10_000)
        )
        documents = (StoredDocument(*row) for row in rows)
        for _, cluster in groupby(documents, key=attrgetter("cluster")):
            yield list(cluster)

    def drop(self) -> None:
        """Drop the table, if it exists."""
        with self.engine.begin() as connection:
            if inspect(connection).has_table(self._table.name, self._table.schema):
                self._table.drop(connection)

    def _recipe_id(self, connection: Connection) -> str:
        index = func.simsql._index(cast(self.sql_name, REGCLASS), "fingerprint").table_valued("recipe")
        return connection.execute(select(index.c.recipe)).scalar_one() or DEFAULT_RECIPE.id

    def _is_indexed(self, connection: Connection) -> bool:
        registry = Table("registry", MetaData(), Column("table_id", REGCLASS), schema="simsql")
        indexed = select(registry.c.table_id).where(registry.c.table_id == cast(self.sql_name, REGCLASS))
        return connection.execute(indexed).first() is not None
