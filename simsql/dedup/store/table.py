"""The table of documents: create it, load documents into it and index it."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

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
    and_,
    case,
    delete,
    exists,
    false,
    func,
    inspect,
    literal,
    null,
    or_,
    select,
    text,
    true,
    type_coerce,
    update,
)
from sqlalchemy.dialects.postgresql import ARRAY, OID, REGCLASS, insert
from sqlalchemy.schema import CreateColumn, SetTableComment
from sqlalchemy.sql.expression import cast

from simsql.database import create_index, install_schema
from simsql.database.load import copy_rows
from simsql.database.transfer import raw_connection
from simsql.decide.rules import Rules
from simsql.dedup.store.old_table import OLD_IDENTITY, identify_anew
from simsql.documents import printable, storable
from simsql.errors import SimsqlError
from simsql.fingerprint import DEFAULT_RECIPE, Recipe


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


_COMMENT = "documents of simsql dedup, recipe "
_RULES = "; decided by "  # and the rules as JSON

STAGED, DECIDED, MEMBERS = "simsql_staged", "simsql_decided", "simsql_members"
"""The temporary tables of staged documents, of decisions, and of the members of clusters."""

# The columns that the table and the staged documents share.
_SHARED = tuple(name for name in StagedDocument._fields if name not in ("ordinal", "known"))
_DECISIONS = ("kept", "representative", "kept_similarity", "representative_similarity")
_SINCE_0_2 = {"line", "value", "words", "words_digest", *_DECISIONS, "undecided"}


@dataclass(frozen=True)
class Prepared:
    """The state of the table before a run."""

    holds_documents: bool = False
    created_by_older: bool = False
    """Whether it is a table of version 0.1.0, which stored neither words nor decisions."""


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


def absolute(place: ColumnElement[str]) -> ColumnElement[str]:
    """Return the place of a document for runs in any folder."""
    independent = or_(
        func.pg_catalog.starts_with(place, cast("/", Text)),
        func.pg_catalog.starts_with(place, cast("stdin:", Text)),
        place == cast("stdin", Text),
    )
    return case((independent, place), else_=cast(f"{printable(storable(Path.cwd()))}/", Text) + place)


class DocumentStore:
    """A table with one row per document: its name, where it was read, and its fingerprint.

    Without `scratch`, the kind of a table for one run, the table is kept. Only then has it a simhash index: a run
    groups its documents in memory.
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
            # NULL for the id of the document itself.
            Column("kept", BigInteger),
            Column("representative", BigInteger),
            Column("kept_similarity", Double),
            Column("representative_similarity", Double),
            Column("undecided", Boolean, nullable=False, server_default=false()),
            schema=schema,
            # The recipe of the fingerprints, which outlives the index.
            comment=None if scratch else f"{_COMMENT}{recipe.id}",
            prefixes=[scratch] if scratch else [],
        )
        self.staged = Table(
            STAGED,
            MetaData(),
            Column("ordinal", BigInteger, primary_key=True),
            Column("known", Boolean, nullable=False),
            *(Column(name, self.table.c[name].type) for name in _SHARED),
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

    def prepare(self, rules: Rules, *, redecide: bool, create: bool = True) -> Prepared:
        """Create the schema and the table that is kept, if they are missing. Add columns of newer versions.

        Raises SimsqlError if another table has the name, the fingerprints have another recipe, the decisions have
        other rules and are not made afresh, or the table is missing and not to be created, and
        sqlalchemy.exc.DBAPIError if the role lacks a privilege.
        """
        if not self.kept:
            return Prepared()
        install_schema(self.engine)
        with self.engine.begin() as connection:
            # If two runs find no table, only one of them creates it.
            _lock(connection, literal(0))
            inspector = inspect(connection)
            if not inspector.has_table(self.table.name, self.table.schema):
                if not create:
                    raise SimsqlError(f"there is no table {self.sql_name}: name the files to read")
                self.table.create(connection)
                return Prepared()
            self._check_kind(connection)
            found = {column["name"] for column in inspector.get_columns(self.table.name, self.table.schema)}
            if named := OLD_IDENTITY in found and "identity" not in found:
                found.add("identity")
            missing = [column for column in self.table.columns if column.name not in found]
            older = [column for column in missing if column.name in _SINCE_0_2]
            for column in missing:
                if column.name not in _SINCE_0_2:
                    raise SimsqlError(
                        f"table {self.sql_name} was not created by simsql dedup: it has no column {column.name};"
                        " choose another name with --table"
                    )
            if (made_by := self._recipe_id(connection)) != self._recipe.id:
                raise SimsqlError(
                    f"table {self.sql_name} has fingerprints with recipe {made_by}, not {self._recipe.id}:"
                    f" choose that recipe with --recipe, or another table with --table"
                )
            if not redecide:
                self.holds_decisions(connection, rules)
            for column in older:
                definition = str(CreateColumn(column).compile(dialect=connection.dialect))
                add = sql.SQL("ALTER TABLE {} ADD COLUMN ").format(self.identifier) + sql.SQL(definition)
                raw_connection(connection).execute(add)
            if named:
                identify_anew(raw_connection(connection), self.identifier)
            holds_documents = connection.execute(select(self.table.c.id).limit(1)).first() is not None
            return Prepared(holds_documents, "words" not in found and holds_documents)

    @contextmanager
    def connect(self) -> Iterator[Connection]:
        """Open the connection of a run, in a transaction, which is rolled back at the end unless you `commit`.

        One connection for all steps: its temporary tables record what the run has read and decided. It is closed
        within a transaction. A transaction pooler then ends the session, instead of lending it, with these tables,
        to others.
        """
        with self.engine.connect() as connection:
            try:
                connection.begin()
                yield connection
            finally:
                connection.invalidate()

    def commit(self, connection: Connection) -> None:
        """Commit, and begin a transaction at once, so that a transaction pooler does not change the session."""
        raw_connection(connection).execute("COMMIT AND CHAIN")

    def recorded_rules(self) -> Rules | None:
        """Return the rules of the decisions in the table; None if there is no table, or it holds no decisions."""
        with self.engine.connect() as connection:
            if not inspect(connection).has_table(self.table.name, self.table.schema):
                return None
            recorded = self._recorded_rules(connection)
            return Rules.from_recorded(recorded) if recorded else None

    def holds_decisions(self, connection: Connection, rules: Rules) -> bool:
        """Return whether the table holds decisions. Raises SimsqlError if they were made by other rules."""
        made_by = self._recorded_rules(connection)
        if not made_by:
            return False
        if made_by != json.loads(rules.to_json()):
            raise SimsqlError(
                f"table {self.sql_name} holds decisions by other rules: pass {Rules.describe(made_by)}, or decide"
                " afresh with --redecide"
            )
        return True

    def find_known(self, *, with_words: bool) -> Callable[[Sequence[tuple[str, str]]], set[tuple[str, str]]]:
        """Return a function that finds the digests (of identity, text) that the table has with a fingerprint.

        With `with_words`, it finds only those whose words the table has, too.
        """
        table = self.table.c
        usable = and_(table.fingerprint.is_not(None), table.words.is_not(None) if with_words else true())

        def find(digests: Sequence[tuple[str, str]]) -> set[tuple[str, str]]:
            # Arrays: a condition with a thousand values takes longer to compile than the texts to fingerprint.
            columns = zip(*digests, strict=True)
            identities, texts = (cast(cast(list(column), ARRAY(Text)), ARRAY(Uuid)) for column in columns)
            # For several arrays, PostgreSQL takes its own unnest, and only without a schema.
            asked = (
                func.unnest(identities, texts)
                .table_valued("identity", "text", with_ordinality="number")
                .render_derived()
            )
            known = and_(
                table.identity == type_coerce(asked.c.identity, Uuid),
                table.text_digest == type_coerce(asked.c.text, Uuid),
                usable,
            )
            with self.engine.connect() as connection:
                numbers = connection.scalars(select(asked.c.number).join_from(asked, self.table, known))
                return {digests[number - 1] for number in numbers}

        return find

    def stage(self, connection: Connection, documents: Iterable[StagedDocument]) -> int:
        """COPY documents to a temporary table of this connection, and return their number."""
        # The source may be slow.
        connection.execute(text("SET LOCAL idle_in_transaction_session_timeout = 0"))
        if not self.kept:
            self.table.create(connection)
        self.staged.create(connection)
        return copy_rows(connection, f"pg_temp.{STAGED}", StagedDocument._fields, documents)

    def drop_duplicates(self, connection: Connection) -> Iterator[tuple[str, str]]:
        """Drop staged documents that were read twice, as when a folder is moved meanwhile.

        Yield (place, place of the first).
        """
        staged = self.staged
        identity, ordinal = staged.c.identity, staged.c.ordinal
        ranked = select(
            ordinal,
            func.row_number().over(partition_by=identity, order_by=ordinal).label("rank"),
            # In full: a function of another role for text would be preferred to this one for any type.
            func.pg_catalog.first_value(staged.c.place)
            .over(partition_by=identity, order_by=ordinal)
            .label("first"),
        ).subquery()
        rows = connection.execute(
            delete(staged)
            .where(staged.c.ordinal == ranked.c.ordinal, ranked.c.rank > 1)
            .returning(staged.c.place, ranked.c.first)
        )
        yield from ((place, first) for place, first in rows)

    def merge(self, connection: Connection, keep_field: str | None = None) -> Loaded:
        """Update the table with the staged documents. Other writers wait until the transaction ends.

        `keep_field` names the field of their values, and values of another field are removed from the table. A
        document that was known at the look-up stays as it is, even if another run has changed it since. Raises
        SimsqlError if one was deleted since: its fingerprint was not computed again.
        """
        if self.kept:
            # Without the lock, two runs that write the same documents or build the index could deadlock.
            _lock(connection, cast(cast(self.sql_name, REGCLASS), BigInteger))
            # The decisions of this run are about the documents of this moment.
            lock = sql.SQL("LOCK TABLE {} IN SHARE ROW EXCLUSIVE MODE").format(self.identifier)
            raw_connection(connection).execute(lock)
        table, staged = self.table, self.staged
        same_document = table.c.identity == staged.c.identity
        total = connection.execute(select(func.count()).select_from(staged)).scalar_one()
        values = {name: staged.c[name] for name in _SHARED} | {"place": absolute(staged.c.place)}
        changed = 0
        if self.kept:
            # Another run may have stored the same text since the look-up, and decided about it.
            stored = and_(
                table.c.fingerprint.is_not(None), or_(table.c.words.is_not(None), staged.c.words.is_(None))
            )
            same_text = and_(same_document, table.c.text_digest == staged.c.text_digest)
            connection.execute(update(staged).values(known=True).where(same_text, stored, ~staged.c.known))
            where = ("name", "place", "line")
            data = (*where, "text_digest", "characters", "fingerprint", "value", "words", "words_digest")
            changed = connection.execute(
                update(table)
                .values({name: values[name] for name in data} | dict.fromkeys(_DECISIONS, null()))
                .where(
                    same_document,
                    ~staged.c.known,
                    or_(
                        table.c.text_digest != staged.c.text_digest,
                        and_(table.c.fingerprint.is_(None), staged.c.fingerprint.is_not(None)),
                    ),
                )
            ).rowcount
            # A record may be in another line, and a file may be reached by another path.
            connection.execute(
                update(table)
                .values({name: values[name] for name in where})
                .where(same_text, table.c.place != values["place"])
            )
            # Tables of version 0.1.0 have no words.
            connection.execute(
                update(table)
                .values(words=staged.c.words, words_digest=staged.c.words_digest)
                .where(same_text, table.c.words.is_(None), staged.c.words.is_not(None))
            )
            if keep_field is not None:
                if self._recorded_rules(connection).get("keep_field") != keep_field:
                    connection.execute(update(table).values(value=null()).where(table.c.value.is_not(None)))
                connection.execute(
                    update(table)
                    .values(value=staged.c.value)
                    .where(same_text, table.c.value.is_distinct_from(staged.c.value))
                )
        new = select(*values.values()).where(~staged.c.known).order_by(staged.c.ordinal)
        added = connection.execute(
            insert(table)
            .from_select(_SHARED, new)
            .on_conflict_do_nothing(index_elements=[table.c.identity])
            .execution_options(preserve_rowcount=True)
        ).rowcount
        kept = exists().where(same_document)
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

    def record_rules(self, connection: Connection, rules: Rules) -> None:
        """Record the rules of the decisions in the comment of the table."""
        self.table.comment = f"{_COMMENT}{self._recipe.id}{_RULES}{rules.to_json()}"
        connection.execute(SetTableComment(self.table))

    def count(self, connection: Connection) -> int:
        """Return the number of documents in the table."""
        return connection.execute(select(func.count()).select_from(self.table)).scalar_one()

    def _check_kind(self, connection: Connection) -> None:
        """Refuse a view: the functions that it calls would run with the privileges of this role."""
        relations = Table("pg_class", MetaData(), Column("oid", OID), Column("relkind", CHAR), schema="pg_catalog")
        kind = connection.execute(
            select(relations.c.relkind).where(relations.c.oid == cast(cast(self.sql_name, REGCLASS), OID))
        ).scalar_one()
        if kind not in ("r", "p"):
            raise SimsqlError(f"{self.sql_name} is not a table: choose another name with --table")

    def _recorded_rules(self, connection: Connection) -> dict[str, Any]:
        """Return the rules of the decisions in the table; none if it holds no decisions."""
        recorded = self._comment(connection).partition(_RULES)[2] if self.kept else ""
        rules: dict[str, Any] = json.loads(recorded or "{}")
        return rules

    def _recipe_id(self, connection: Connection) -> str:
        """Return the recipe of the stored fingerprints: that of the index, or of the comment without an index."""
        if not self._is_indexed(connection):
            comment = self._comment(connection).partition(_RULES)[0]
            return comment.removeprefix(_COMMENT) if comment.startswith(_COMMENT) else DEFAULT_RECIPE.id
        index = func.simsql._index(cast(self.sql_name, REGCLASS), "fingerprint").table_valued("recipe")
        return connection.execute(select(index.c.recipe)).scalar_one() or DEFAULT_RECIPE.id

    def _comment(self, connection: Connection) -> str:
        return inspect(connection).get_table_comment(self.table.name, self.table.schema)["text"] or ""

    def _is_indexed(self, connection: Connection) -> bool:
        registry = Table("registry", MetaData(), Column("table_id", REGCLASS), schema="simsql")
        indexed = select(registry.c.table_id).where(registry.c.table_id == cast(self.sql_name, REGCLASS))
        return connection.execute(indexed).first() is not None
