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
from simsql.errors import SimsqlError


def find_unread(store: DocumentTable, paths: Sequence[str]) -> Iterator[Reference]:
    """Yield documents of earlier runs below these paths, or in these files, that this run has not read.

    Streams are left out. To be called after the documents of this run have been merged. Raises SimsqlError if all
    documents below one of the folders are among them: they need not be gone, because the folder of a disk that is
    not mounted is empty.
    """
    table, staged = store.table, store.staged
    spellings = {
        printable(storable(found)): path
        for path in paths
        if path != "-" and (os.path.isfile(path) or os.path.isdir(path))  # noqa: PTH112, PTH113 - long names
        for found in (os.path.realpath(path), Path.cwd() / path)
    }
    if not spellings:
        return
    read = exists().where(staged.c.identity == table.c.identity)
    columns = [table.c[name] for name in Reference._fields]
    below = or_(*(_is_below(table.c.place, table.c.line, path) for path in spellings))
    unread = select(*columns).where(below, ~read).order_by(table.c.id)
    checked: set[str] = set()
    with store.connection.execute(unread.execution_options(yield_per=10_000)) as rows:
        for row in rows:
            for folder in spellings.keys() & set(map(str, Path(row.place).parents)) - checked:
                checked.add(folder)
                found = select(exists().where(_is_below(table.c.place, table.c.line, folder), read))
                if not store.connection.execute(found).scalar_one():
                    raise SimsqlError(
                        f"{printable(storable(spellings[folder]))} has no documents now, but had some in an"
                        " earlier run: mount its disk, or leave it out; to forget them, name the folder above it"
                    )
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
