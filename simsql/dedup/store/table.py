"""The table of documents and decisions: create it, open it for a run, and index it."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Self

from psycopg import sql
from sqlalchemy import (
    CHAR,
    BigInteger,
    Boolean,
    Column,
    ColumnElement,
    Connection,
    Double,
    Engine,
    Identity,
    LargeBinary,
    MetaData,
    Table,
    Text,
    Uuid,
    func,
    inspect,
    literal,
    select,
)
from sqlalchemy.dialects.postgresql import OID, REGCLASS
from sqlalchemy.schema import SetTableComment
from sqlalchemy.sql.expression import cast

from simsql.database import create_index, install_schema
from simsql.database.transfer import raw_connection
from simsql.decide.rules import Rules
from simsql.errors import SimsqlError
from simsql.fingerprint import Recipe


class StagedDocument(NamedTuple):
    """A document to merge into the table."""

    ordinal: int
    """Position in the order of reading."""
    name: str
    identity: str
    """32 hexadecimal digits: PostgreSQL reads them as a uuid, which is slower to make in Python."""
    place: str
    line: int | None
    text_digest: str
    characters: int
    fingerprint: int | None
    """A bigint; None for a text without features, or a text that the table already has."""
    known: bool = False
    """Whether the table had this text of this document at the look-up."""
    value: str | None = None
    """The value that decides whether the document is kept, if a field does."""
    words: bytes | None = None
    """The hashes of its words, eight bytes each, the lowest first; None if they are known or not wanted."""
    words_digest: str | None = None
    """32 hexadecimal digits; None without words."""
    sketch: int | None = None
    """A bigint; None without words."""


_COMMENT = "documents of simsql dedup, recipe "
_RULES = "; decided by "  # and the rules as JSON

STAGED, DECIDED, MEMBERS = "simsql_staged", "simsql_decided", "simsql_members"
"""The temporary tables of staged documents, of decisions, and of the members of clusters."""

# The columns that the table and the staged documents share.
SHARED = tuple(name for name in StagedDocument._fields if name not in ("ordinal", "known"))
DECISIONS = ("kept", "representative", "kept_similarity", "representative_similarity")


def take_lock(connection: Connection, number: ColumnElement[int]) -> None:
    """Wait for other runs that have taken the same lock, until the end of the transaction."""
    # In full: another role may have created functions of these names in the schema public.
    key = func.pg_catalog.hashtextextended(cast("simsql.dedup", Text), cast(number, BigInteger))
    connection.execute(select(func.pg_catalog.pg_advisory_xact_lock(key)))


class DocumentTable:
    """A table with one row per document: its name, its place, its fingerprint, and the decision about it."""

    rules: Rules
    """The rules of the decisions of this run."""
    redecide: bool
    """Whether this run ignores the decisions in the table."""
    connection: Connection
    """The connection of this run, in a transaction, which is rolled back at the end unless you `commit`."""

    def __init__(self, engine: Engine, table: str, schema: str | None = None, *, recipe: Recipe) -> None:
        self.engine = engine
        self.holds_documents = False
        """Whether earlier runs have stored documents."""
        self.recipe = recipe
        self.table = Table(
            table,
            MetaData(),
            Column("id", BigInteger, Identity(always=True), primary_key=True),
            Column("name", Text, nullable=False),
            Column("identity", Uuid, nullable=False, unique=True),
            Column("place", Text, nullable=False),
            Column("line", BigInteger),
            Column("text_digest", Uuid, nullable=False),
            Column("characters", BigInteger, nullable=False),
            Column("fingerprint", BigInteger),
            Column("value", Text),
            Column("words", LargeBinary),
            Column("words_digest", Uuid),
            Column("sketch", BigInteger),
            # NULL for the id of the document itself.
            Column("kept", BigInteger),
            Column("representative", BigInteger),
            Column("kept_similarity", Double),
            Column("representative_similarity", Double),
            schema=schema,
            # The recipe of the fingerprints, which outlives the index.
            comment=f"{_COMMENT}{recipe.id}",
        )
        self.staged = Table(
            STAGED,
            MetaData(),
            Column("ordinal", BigInteger, primary_key=True),
            Column("known", Boolean, nullable=False),
            *(Column(name, self.table.c[name].type) for name in SHARED),
            prefixes=["TEMPORARY"],
        )

    @property
    def identifier(self) -> sql.Identifier:
        """The table name for psycopg."""
        schema = self.table.schema
        return sql.Identifier(schema, self.table.name) if schema else sql.Identifier(self.table.name)

    @property
    def sql_name(self) -> str:
        """The table name as in SQL."""
        # The preparer doubles percent signs, for statements that have parameters.
        return self.engine.dialect.identifier_preparer.format_table(self.table).replace("%%", "%")

    @contextmanager
    def opened(self, rules: Rules, *, redecide: bool, create: bool) -> Iterator[Self]:
        """Prepare the table for a run, and open the connection of the run.

        Create the schema and the table, if they are missing. Without `create`, the rules are those of the
        decisions in the table, if it holds any.

        One connection for all steps: its temporary tables record what the run has read and decided. It is closed
        within a transaction. A transaction pooler then ends the session, instead of lending it, with these tables,
        to others.

        Raises SimsqlError if another table has the name, the fingerprints have another recipe, the decisions have
        other rules and are not discarded, or the table is missing and not to be created, and
        sqlalchemy.exc.DBAPIError if the role lacks a privilege.
        """
        self.rules, self.redecide = rules, redecide
        if not create:
            self.rules = self._rules_of_table() or rules
        install_schema(self.engine)
        with self.engine.begin() as connection:
            self._prepare(connection, create=create)
        with self.engine.connect() as connection:
            try:
                connection.begin()
                self.connection = connection
                yield self
            finally:
                connection.invalidate()

    def commit(self) -> None:
        """Commit, and begin a transaction at once, so that a transaction pooler does not change the session."""
        raw_connection(self.connection).execute("COMMIT AND CHAIN")

    def _prepare(self, connection: Connection, *, create: bool) -> None:
        # If two runs find no table, only one of them creates it.
        take_lock(connection, literal(0))
        inspector = inspect(connection)
        if not inspector.has_table(self.table.name, self.table.schema):
            if not create:
                raise SimsqlError(f"there is no table {self.sql_name}: name the files to read")
            self.table.create(connection)
            return
        self._check_kind(connection)
        found = {column["name"] for column in inspector.get_columns(self.table.name, self.table.schema)}
        for column in self.table.columns:
            if column.name not in found:
                raise SimsqlError(
                    f"table {self.sql_name} was not created by simsql dedup: it has no column {column.name};"
                    " choose another name with --table"
                )
        self.holds_documents = connection.execute(select(self.table.c.id).limit(1)).first() is not None
        made_by = self._recipe_id(connection)
        if made_by is None and self.holds_documents:
            raise SimsqlError(
                f"table {self.sql_name} does not say which recipe made its fingerprints: restore its comment"
                f" {_COMMENT + self.recipe.id!r}, or choose another table with --table"
            )
        if made_by not in (None, self.recipe.id):
            raise SimsqlError(
                f"table {self.sql_name} has fingerprints with recipe {made_by}, not {self.recipe.id}:"
                f" choose that recipe with --recipe, or another table with --table"
            )
        self._holds_decisions(connection)

    def holds_decisions(self) -> bool:
        """Return whether the table holds decisions that count.

        Raises SimsqlError if they were made by other rules.
        """
        return self._holds_decisions(self.connection)

    def keep_rules(self) -> None:
        """Record the rules of new decisions in the comment of the table, and index it, unless that is done."""
        if not self.holds_decisions():
            self.table.comment = f"{_COMMENT}{self.recipe.id}{_RULES}{self.rules.to_json()}"
            self.connection.execute(SetTableComment(self.table))
        if not self._is_indexed(self.connection):
            distance = self.rules.distance
            create_index(self.connection, self.sql_name, "fingerprint", distance=distance, recipe=self.recipe)

    def count(self) -> int:
        """Return the number of documents in the table."""
        return self.connection.execute(select(func.count()).select_from(self.table)).scalar_one()

    def recorded_rules(self, connection: Connection) -> dict[str, Any]:
        """Return the rules of the decisions in the table; none if it holds no decisions."""
        recorded = self._comment(connection).partition(_RULES)[2]
        rules: dict[str, Any] = json.loads(recorded or "{}")
        return rules

    def _rules_of_table(self) -> Rules | None:
        with self.engine.connect() as connection:
            exists = inspect(connection).has_table(self.table.name, self.table.schema)
            recorded = self.recorded_rules(connection) if exists else None
            return Rules.from_recorded(recorded) if recorded else None

    def _holds_decisions(self, connection: Connection) -> bool:
        made_by = {} if self.redecide else self.recorded_rules(connection)
        if made_by and made_by != json.loads(self.rules.to_json()):
            raise SimsqlError(
                f"table {self.sql_name} holds decisions made with other rules: pass {Rules.describe(made_by)}, or"
                " decide again with --redecide"
            )
        return bool(made_by)

    def _check_kind(self, connection: Connection) -> None:
        """Refuse a view: the functions that it calls would run with the privileges of this role."""
        relations = Table("pg_class", MetaData(), Column("oid", OID), Column("relkind", CHAR), schema="pg_catalog")
        kind = connection.execute(
            select(relations.c.relkind).where(relations.c.oid == cast(cast(self.sql_name, REGCLASS), OID))
        ).scalar_one()
        if kind not in ("r", "p"):
            raise SimsqlError(f"{self.sql_name} is not a table: choose another name with --table")

    def _recipe_id(self, connection: Connection) -> str | None:
        """Return the recipe of the stored fingerprints, by the index or the comment; None if neither knows it."""
        comment = self._comment(connection).partition(_RULES)[0]
        recorded = comment.removeprefix(_COMMENT) if comment.startswith(_COMMENT) else None
        if not self._is_indexed(connection):
            return recorded
        index = func.simsql._index(cast(self.sql_name, REGCLASS), "fingerprint").table_valued("recipe")
        return connection.execute(select(index.c.recipe)).scalar_one() or recorded

    def _comment(self, connection: Connection) -> str:
        return inspect(connection).get_table_comment(self.table.name, self.table.schema)["text"] or ""

    def _is_indexed(self, connection: Connection) -> bool:
        registry = Table("registry", MetaData(), Column("table_id", REGCLASS), schema="simsql")
        indexed = select(registry.c.table_id).where(registry.c.table_id == cast(self.sql_name, REGCLASS))
        return connection.execute(indexed).first() is not None
