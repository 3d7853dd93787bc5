"""What a table of SQLAlchemy knows of the sources of its columns."""

from collections.abc import Iterable, Mapping
from typing import Any
from weakref import WeakKeyDictionary

from sqlalchemy import ClauseElement, Column

from simsql.database.sources import Sources


def find_other(sources: Sources, columns: Iterable[Column[Any]]) -> "tuple[Column[Any] | None, Sources | None]":
    """Return the first column of the other kind, sketches or fingerprints, with the same single source."""
    for column in columns:
        other = getattr(column.type, "sources", None)
        if not isinstance(other, Sources) or other.names != sources.names or len(sources.names) > 1:
            continue
        if (other.recipe is None) != (sources.recipe is None):
            return column, other
    return None, None


def compute_row(sources: Sources, texts: Mapping[str, object], where: str) -> int | None:
    """Return the value for the texts of a row; None if one is an SQL expression, which PostgreSQL evaluates.

    `where` begins the message of the TypeError for a text of another type.
    """
    if any(isinstance(text, ClauseElement) or hasattr(text, "__clause_element__") for text in texts.values()):
        return None
    return sources.compute(texts, where)


def is_sketch(column: Column[Any]) -> bool:
    """Return whether a column is one of sketches with a source."""
    sources = getattr(column.type, "sources", None)
    return isinstance(sources, Sources) and sources.recipe is None


# The keys of source columns by the names of their attributes, for every mapped fingerprint column.
_source_keys: WeakKeyDictionary[Column[Any], Mapping[str, str]] = WeakKeyDictionary()


def name_sources(column: Column[Any], keys: Mapping[str, str]) -> None:
    """Remember the keys of the source columns of a mapped fingerprint column, by the names of the attributes."""
    _source_keys[column] = keys


def source_key(column: Column[Any], name: str) -> str:
    """Return the key of the column of a source of a fingerprint column, by the name of the source."""
    return _source_keys.get(column, {}).get(name, name)
