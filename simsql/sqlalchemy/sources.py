"""What a table of SQLAlchemy knows of the sources of its columns."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any
from weakref import WeakKeyDictionary

from sqlalchemy import ClauseElement, Column
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import configure_mappers

from simsql.database.sources import Sources


def find_other(sources: Sources, columns: Iterable[Column[Any]]) -> "tuple[Column[Any] | None, Sources | None]":
    """Return the first column of the other kind, sketches or fingerprints, with the same source and revision."""
    for column in columns:
        other = getattr(column.type, "sources", None)
        if not isinstance(other, Sources) or len(sources.names) > 1:
            continue
        if (other.names, other.extract, other.revision) != (sources.names, sources.extract, sources.revision):
            continue
        if (other.recipe is None) != (sources.recipe is None):
            return column, other
    return None, None


def compute_row(sources: Sources, texts: Mapping[str, object], where: str) -> int | None:
    """Return the value for the texts of a row; None if one is an SQL expression, which PostgreSQL evaluates."""
    if any(isinstance(text, ClauseElement) or hasattr(text, "__clause_element__") for text in texts.values()):
        return None
    return sources.compute(texts, where)


def source_columns(column: Column[Any]) -> dict[str, int] | None:
    """Return the names of the columns whose texts a column of a model is computed from, with their weights.

    None if it has no source, or one that is not a column of its table. So it is with generated columns, which
    PostgreSQL computes after the triggers that could clear a fingerprint.
    """
    sources = getattr(column.type, "sources", None)
    if not isinstance(sources, Sources):
        return None
    known = column.table.columns
    if any(source_key(column, name) not in known for name in sources.names):
        # A source is the name of an attribute. Only the mapper knows its column.
        with suppress(SQLAlchemyError):
            configure_mappers()
    found = [(known.get(source_key(column, name)), weight) for name, weight in sources.weights]
    if any(each is None or each.computed is not None for each, _ in [(column, 1), *found]):
        return None
    return {str(each.name): weight for each, weight in found if each is not None}


source_keys: WeakKeyDictionary[Column[Any], Mapping[str, str]] = WeakKeyDictionary()
"""The keys of source columns by the names of their attributes, for every mapped fingerprint column."""


def source_key(column: Column[Any], name: str) -> str:
    """Return the key of the column of a source of a fingerprint column, by the name of the source."""
    return source_keys.get(column, {}).get(name, name)
