"""Merge the documents that a run reads into the table."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from psycopg import sql
from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Text,
    Uuid,
    and_,
    case,
    delete,
    exists,
    func,
    null,
    or_,
    select,
    text,
    true,
    type_coerce,
    update,
)
from sqlalchemy.dialects.postgresql import ARRAY, REGCLASS, insert
from sqlalchemy.sql.expression import cast

from simsql.database.load import copy_rows
from simsql.database.transfer import raw_connection
from simsql.decide.documents import Flags
from simsql.dedup.store.columns import spell_digests
from simsql.dedup.store.store import Loaded
from simsql.dedup.store.table import DECISIONS, SHARED, STAGED, DocumentTable, StagedDocument, take_lock
from simsql.documents import printable, storable
from simsql.errors import SimsqlError

_WORDS = ("words", "words_digest", "sketch")


def find_known(store: DocumentTable, identities: NDArray[np.void], text_digests: NDArray[np.void]) -> Flags:
    """Return which documents the table has with this text and a fingerprint.

    If texts are compared, only those count whose words the table has, too.
    """
    table = store.table.c
    usable = and_(table.fingerprint.is_not(None), table.words.is_not(None) if store.rules.checks_texts else true())
    # Arrays: a condition with a thousand values takes longer to compile than the texts to fingerprint.
    digests = (spell_digests(digests) for digests in (identities, text_digests))
    columns = (cast(cast(column, ARRAY(Text)), ARRAY(Uuid)) for column in digests)
    # For several arrays, PostgreSQL takes its own unnest, and only without a schema.
    asked = func.unnest(*columns).table_valued("identity", "text", with_ordinality="number").render_derived()
    same = and_(
        table.identity == type_coerce(asked.c.identity, Uuid),
        table.text_digest == type_coerce(asked.c.text, Uuid),
        usable,
    )
    known = np.zeros(len(identities), dtype=bool)
    with store.engine.connect() as connection:
        for number in connection.scalars(select(asked.c.number).join_from(asked, store.table, same)):
            known[number - 1] = True
    return known


def stage(store: DocumentTable, documents: Iterable[StagedDocument]) -> int:
    """COPY documents to a temporary table of this connection, and return their number."""
    # The source may be slow.
    store.connection.execute(text("SET LOCAL idle_in_transaction_session_timeout = 0"))
    store.staged.create(store.connection)
    return copy_rows(store.connection, f"pg_temp.{STAGED}", StagedDocument._fields, documents)


def drop_duplicates(store: DocumentTable) -> Iterator[tuple[str, str]]:
    """Drop staged documents that were read twice, as when a folder is moved meanwhile.

    Yield (place, place of the first), in the order of reading.
    """
    staged = store.staged
    identity, ordinal = staged.c.identity, staged.c.ordinal
    ranked = select(
        ordinal,
        func.row_number().over(partition_by=identity, order_by=ordinal).label("rank"),
        # In full: a function of another role for text would be preferred to this one for any type.
        func.pg_catalog.first_value(staged.c.place).over(partition_by=identity, order_by=ordinal).label("first"),
    ).subquery()
    rows = store.connection.execute(
        delete(staged)
        .where(staged.c.ordinal == ranked.c.ordinal, ranked.c.rank > 1)
        .returning(ordinal, staged.c.place, ranked.c.first)
    )
    yield from ((place, first) for _, place, first in sorted(map(tuple, rows)))


def merge(store: DocumentTable) -> Loaded:
    """Update the table with the staged documents. Other writers wait until the transaction ends.

    Values of another kind than those of the rules are removed from the table. A document that was known at the
    look-up stays as it is, even if another run has changed it since. Raises SimsqlError if one was deleted since:
    its fingerprint was not computed again.
    """
    # Without the lock, two runs that write the same documents or build the index could deadlock.
    take_lock(store.connection, cast(cast(store.sql_name, REGCLASS), BigInteger))
    # The decisions of this run are about the documents of this moment.
    lock = sql.SQL("LOCK TABLE {} IN SHARE ROW EXCLUSIVE MODE").format(store.identifier)
    raw_connection(store.connection).execute(lock)
    table, staged = store.table, store.staged
    same_document = table.c.identity == staged.c.identity
    total = store.connection.execute(select(func.count()).select_from(staged)).scalar_one()
    values = {name: staged.c[name] for name in SHARED} | {"place": _absolute(staged.c.place)}
    # Another run may have stored the same text since the look-up, and decided about it.
    stored = and_(table.c.fingerprint.is_not(None), or_(table.c.words.is_not(None), staged.c.words.is_(None)))
    same_text = and_(same_document, table.c.text_digest == staged.c.text_digest)
    store.connection.execute(update(staged).values(known=True).where(same_text, stored, ~staged.c.known))
    where = ("name", "place", "line")
    data = (*where, "text_digest", "characters", "fingerprint", "value", *_WORDS)
    changed = store.connection.execute(
        update(table)
        .values({name: values[name] for name in data} | dict.fromkeys(DECISIONS, null()))
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
    store.connection.execute(
        update(table)
        .values({name: values[name] for name in where})
        .where(same_text, table.c.place != values["place"])
    )
    # A run that compares no texts stores no words.
    store.connection.execute(
        update(table)
        .values({name: staged.c[name] for name in _WORDS})
        .where(same_text, table.c.words.is_(None), staged.c.words.is_not(None))
    )
    if store.rules.by_value:
        recorded = store.recorded_rules(store.connection)
        if (recorded.get("keep"), recorded.get("keep_field")) != (store.rules.keep, store.rules.keep_field):
            store.connection.execute(update(table).values(value=null()).where(table.c.value.is_not(None)))
        store.connection.execute(
            update(table)
            .values(value=staged.c.value)
            .where(same_text, table.c.value.is_distinct_from(staged.c.value))
        )
    new = select(*values.values()).where(~staged.c.known).order_by(staged.c.ordinal)
    added = store.connection.execute(
        insert(table)
        .from_select(SHARED, new)
        .on_conflict_do_nothing(index_elements=[table.c.identity])
        .execution_options(preserve_rowcount=True)
    ).rowcount
    kept = exists().where(same_document)
    deleted = store.connection.execute(
        select(func.count()).select_from(staged).where(staged.c.known, ~kept)
    ).scalar_one()
    if deleted:
        raise SimsqlError(
            f"{deleted:,} documents were deleted from {store.sql_name} during this run, which has not stored"
            " them again: run it again"
        )
    return Loaded(added, changed, total - added - changed)


def _absolute(place: ColumnElement[str]) -> ColumnElement[str]:
    """Return the place of a document for runs in any folder."""
    independent = or_(
        func.pg_catalog.starts_with(place, cast("/", Text)),
        func.pg_catalog.starts_with(place, cast("stdin:", Text)),
        place == cast("stdin", Text),
    )
    return case((independent, place), else_=cast(f"{printable(storable(Path.cwd()))}/", Text) + place)
