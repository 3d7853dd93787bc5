"""The table of documents: load it, index it and read its clusters."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Literal, NamedTuple
from uuid import UUID

import numpy as np
from numpy.typing import NDArray
from psycopg import sql
from sqlalchemy import (
    CHAR,
    BigInteger,
    Boolean,
    Column,
    ColumnElement,
    Connection,
    Engine,
    Identity,
    MetaData,
    Table,
    Text,
    Uuid,
    and_,
    case,
    delete,
    exists,
    false,
    func,
    inspect,
    literal,
    literal_column,
    or_,
    select,
    text,
    tuple_,
    update,
)
from sqlalchemy.dialects.postgresql import OID, REGCLASS, aggregate_order_by, insert
from sqlalchemy.sql.expression import cast

from simsql.database import create_index, install_schema
from simsql.database.load import copy_rows
from simsql.database.transfer import copy_columns
from simsql.dedup.grouping import Members
from simsql.documents import printable, storable
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

_COMMENT = "documents of simsql dedup, recipe "

STAGED, MEMBERS = "simsql_staged", "simsql_members"
"""The temporary tables of staged documents, and of the members of clusters."""

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
    gone: bool
    """Whether this run has read its file without finding it."""


@dataclass(frozen=True)
class Loaded:
    """Counts of the staged documents by outcome."""

    added: int
    changed: int
    """Documents that the table had with another text."""
    unchanged: int


def _lock(connection: Connection, number: ColumnElement[int]) -> None:
    """Wait for other runs that have taken the same lock, until the end of the transaction."""
    # In full: another role may have created functions of these names in the schema public.
    key = func.pg_catalog.hashtextextended(cast("simsql.dedup", Text), cast(number, BigInteger))
    connection.execute(select(func.pg_catalog.pg_advisory_xact_lock(key)))


def _absolute(place: ColumnElement[str]) -> ColumnElement[str]:
    """Return the place of a document for runs in any folder."""
    independent = or_(
        func.pg_catalog.starts_with(place, cast("/", Text)),
        func.pg_catalog.starts_with(place, cast("stdin:", Text)),
        place == cast("stdin", Text),
    )
    return case((independent, place), else_=cast(f"{printable(storable(Path.cwd()))}/", Text) + place)


def _file(place: ColumnElement[str]) -> ColumnElement[str]:
    """Return the file of a place, without the number of a line."""
    return func.pg_catalog.regexp_replace(place, cast(":[0-9]+$", Text), cast("", Text))


class DocumentStore:
    """A table with one row per document: its name, where it was read, and its fingerprint.

    A digest of 16 bytes identifies a name, because a B-tree cannot store texts of more than 2.7 kB. Without
    `scratch`, the kind of a table for one run, the table is kept. Only then has it a simhash index: a run groups
    its documents in memory.
    """

    def __init__(
        self,
        engine: Engine,
        table: str,
        schema: str | None = None,
        *,
        recipe: Recipe,
        scratch: Literal["TEMPORARY", "UNLOGGED"] | None = None,
    ) -> None:
        self.engine = engine
        self.kept = scratch is None
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
            # The recipe of the fingerprints, which outlives the index.
            comment=None if scratch else f"{_COMMENT}{recipe.id}",
            prefixes=[scratch] if scratch else [],
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
        """Create the schema and the table that is kept, if they are missing. Return whether it has documents.

        Raises SimsqlError if another table has the name or the fingerprints have another recipe, and
        sqlalchemy.exc.DBAPIError if the role lacks the privilege to create them.
        """
        if not self.kept:
            return False
        install_schema(self.engine)
        with self.engine.begin() as connection:
            # If two runs find no table, only one of them creates it.
            _lock(connection, literal(0))
            inspector = inspect(connection)
            if not inspector.has_table(self._table.name, self._table.schema):
                self._table.create(connection)
                return False
            self._check_kind(connection)
            found = {column["name"] for column in inspector.get_columns(self._table.name, self._table.schema)}
            missing = [column.name for column in self._table.columns if column.name not in found]
            if missing:
                raise SimsqlError(
                    f"table {self.sql_name} was not created by simsql dedup: it has no column {missing[0]};"
                    " choose another name with --table"
                )
            if (made_by := self._recipe_id(connection)) != self._recipe.id:
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
        if not self.kept:
            self._table.create(connection)
        self._staged.create(connection)
        return copy_rows(connection, f"pg_temp.{STAGED}", StagedDocument._fields, documents)

    def drop_duplicates(self, connection: Connection) -> Iterator[tuple[str, str, str]]:
        """Drop staged documents with a repeated name; yield (place, name, place of the first)."""
        staged = self._staged
        name, ordinal = staged.c.name_digest, staged.c.ordinal
        ranked = select(
            ordinal,
            func.row_number().over(partition_by=name, order_by=ordinal).label("rank"),
            # In full: a function of another role for text would be preferred to this one for any type.
            func.pg_catalog.first_value(staged.c.place).over(partition_by=name, order_by=ordinal).label("first"),
        ).subquery()
        rows = connection.execute(
            delete(staged)
            .where(staged.c.ordinal == ranked.c.ordinal, ranked.c.rank > 1)
            .returning(staged.c.place, staged.c.name, ranked.c.first)
        )
        yield from ((place, name, first) for place, name, first in rows)

    def merge(self, connection: Connection) -> Loaded:
        """Update the table with the staged documents. Other runs wait until the transaction ends.

        A document that was known at the look-up stays as it is, even if another run has changed it since. Raises
        SimsqlError if one was deleted since: its fingerprint was not computed again.
        """
        # Without the lock, two runs that write the same documents or build the index could deadlock.
        _lock(connection, cast(cast(self.sql_name, REGCLASS), BigInteger))
        table, staged = self._table, self._staged
        total = connection.execute(select(func.count()).select_from(staged)).scalar_one()
        values = {name: staged.c[name] for name in _SHARED} | {"place": _absolute(staged.c.place)}
        data = ("place", "text_digest", "characters", "fingerprint")
        changed = connection.execute(
            update(table)
            .values({name: values[name] for name in data})
            .where(
                table.c.name_digest == staged.c.name_digest,
                ~staged.c.known,
                or_(
                    table.c.text_digest != staged.c.text_digest,
                    and_(table.c.fingerprint.is_(None), staged.c.fingerprint.is_not(None)),
                ),
            )
        ).rowcount
        new = select(*values.values()).where(~staged.c.known).order_by(staged.c.ordinal)
        added = connection.execute(
            insert(table)
            .from_select(_SHARED, new)
            .on_conflict_do_nothing(index_elements=[table.c.name_digest])
            .execution_options(preserve_rowcount=True)
        ).rowcount
        kept = exists().where(table.c.name_digest == staged.c.name_digest)
        deleted = connection.execute(
            select(func.count()).select_from(staged).where(staged.c.known, ~kept)
        ).scalar_one()
        if deleted:
            raise SimsqlError(
                f"{deleted:,} documents were deleted from {self.sql_name} during this run, which has not stored"
                " them again: run it again"
            )
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
            MEMBERS,
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
        seen = staged.c.ordinal.is_not(None)
        found = listed.join(table, table.c.id == listed.c.id)
        found = found.outerjoin(staged, staged.c.name_digest == table.c.name_digest)
        gone: ColumnElement[bool] = false()
        if self.kept:
            # A join, as there may be as many files as documents.
            read = select(_file(_absolute(staged.c.place)).label("file")).distinct().subquery()
            found = found.outerjoin(read, and_(~seen, read.c.file == _file(table.c.place)))
            gone = read.c.file.is_not(None)
        rows = connection.execute(
            select(
                listed.c.cluster,
                table.c.id,
                func.coalesce(staged.c.name, table.c.name),
                func.coalesce(staged.c.place, table.c.place),
                table.c.characters,
                table.c.fingerprint,
                seen,
                gone,
            )
            .select_from(found)
            .order_by(listed.c.cluster, table.c.id)
            .execution_options(yield_per=10_000)
        )
        documents = (StoredDocument(*row) for row in rows)
        for _, cluster in groupby(documents, key=attrgetter("cluster")):
            yield list(cluster)

    def _check_kind(self, connection: Connection) -> None:
        """Refuse a view: the functions that it calls would run with the privileges of this role."""
        relations = Table("pg_class", MetaData(), Column("oid", OID), Column("relkind", CHAR), schema="pg_catalog")
        kind = connection.execute(
            select(relations.c.relkind).where(relations.c.oid == cast(cast(self.sql_name, REGCLASS), OID))
        ).scalar_one()
        if kind not in ("r", "p"):
            raise SimsqlError(f"{self.sql_name} is not a table: choose another name with --table")

    def _recipe_id(self, connection: Connection) -> str:
        """Return the recipe of the stored fingerprints: that of the index, or of the comment without an index."""
        if not self._is_indexed(connection):
            comment = inspect(connection).get_table_comment(self._table.name, self._table.schema)["text"] or ""
            return comment.removeprefix(_COMMENT) if comment.startswith(_COMMENT) else DEFAULT_RECIPE.id
        index = func.simsql._index(cast(self.sql_name, REGCLASS), "fingerprint").table_valued("recipe")
        return connection.execute(select(index.c.recipe)).scalar_one() or DEFAULT_RECIPE.id

    def _is_indexed(self, connection: Connection) -> bool:
        registry = Table("registry", MetaData(), Column("table_id", REGCLASS), schema="simsql")
        indexed = select(registry.c.table_id).where(registry.c.table_id == cast(self.sql_name, REGCLASS))
        return connection.execute(indexed).first() is not None
