"""Forget documents of earlier runs that are gone.

Nothing relies on a row that is missing, so users may delete rows, too: decisions in favour of its document do not
hold any more.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from sqlalchemy import BigInteger, ColumnElement, Text, and_, any_, delete, exists, func, literal, or_, select
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.sql.expression import cast

from simsql.dedup.safety.confirming import Reference
from simsql.dedup.store.table import DocumentTable
from simsql.documents import printable, storable


def find_unread(store: DocumentTable, paths: Sequence[str]) -> Iterator[Reference]:
    """Yield documents of earlier runs below these paths, or in these files, that this run has not read.

    Streams are left out. To be called after the documents of this run have been merged.
    """
    table, staged = store.table, store.staged
    below = [
        _is_below(table.c.place, table.c.line, spelled)
        for path in paths
        if path != "-" and (os.path.isfile(path) or os.path.isdir(path))  # noqa: PTH112, PTH113 - long names
        for spelled in {printable(storable(found)) for found in (Path.cwd() / path, os.path.realpath(path))}
    ]
    if not below:
        return
    read = exists().where(staged.c.identity == table.c.identity)
    columns = [table.c[name] for name in Reference._fields]
    unread = select(*columns).where(or_(*below), ~read).order_by(table.c.id)
    for row in store.connection.execute(unread.execution_options(yield_per=10_000)):
        yield Reference(row.id, row.name, row.place, row.line, row.identity.hex, row.text_digest.hex)


def forget(store: DocumentTable, documents: Iterable[Reference]) -> None:
    """Delete documents from the table."""
    ids = [document.id for document in documents]
    store.connection.execute(delete(store.table).where(store.table.c.id == any_(literal(ids, ARRAY(BigInteger)))))


def _is_below(place: ColumnElement[str], line: ColumnElement[int], path: str) -> ColumnElement[bool]:
    """Return whether a document is in this file, or in a file in this folder."""

    def starts(prefix: str) -> ColumnElement[bool]:
        # In full: another role may have created a function of this name in the schema public.
        return func.pg_catalog.starts_with(place, cast(prefix, Text))

    return or_(place == path, starts(f"{path.rstrip('/')}/"), and_(line.is_not(None), starts(f"{path}:")))
