"""near_wide: search for fingerprints of several words, each in a column with an index of its own."""

from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import Connection, Engine, text

from simsql.arrays.columns import OneFingerprint
from simsql.database.bigint import Scope, encode_scope, from_bigint, to_bigint
from simsql.database.binds import begin
from simsql.database.query import NOT_GIVEN, NotGiven, Query, Text
from simsql.database.search_index import SearchIndex
from simsql.errors import UsageError

_NEAR_WIDE = text(
    "SELECT fingerprint, distance FROM simsql.near_wide(CAST(:table AS regclass), CAST(:words AS bigint[]),"
    " CAST(:distance AS integer), CAST(:columns AS text[]), CAST(:scope AS jsonb))"
)


class WideMatch(NamedTuple):
    """The words of a live row, each in [0, 2**64), and their distance in bits from the query."""

    fingerprint: tuple[int, ...]
    distance: int


def near_wide(
    engine_or_connection: Engine | Connection,
    table: str,
    columns: Sequence[str],
    fingerprint: Sequence[OneFingerprint] | NotGiven | None = NOT_GIVEN,
    *,
    distance: int,
    text: Text | None = None,
    scope: Scope | None = None,
) -> list[WideMatch]:
    """Return all words of live rows that differ from those of `fingerprint` in at most `distance` bits together.

    `columns` are the columns of the words, in their order, each with a simhash index of its own. The result has
    every match once, nearest first. Instead of the words, `text` is a text: each word is computed with the recipe
    of its index. None, and a word that is None, match nothing. Other arguments as for `SearchIndex`.

    Raises UsageError unless you pass either a fingerprint or a text, for a distance out of range and, with a text,
    for indexes of the same recipe and for one whose recipe its id does not spell out; ValueError and TypeError for
    a word that is not one; sqlalchemy.exc.DBAPIError with the message of PostgreSQL.
    """
    query = Query(fingerprint, distance, text, scope=scope, words=len(columns))
    words = query.fingerprint
    with begin(engine_or_connection) as connection:
        if text is not None:
            indexes = [SearchIndex(connection, table, column) for column in columns]
            if len({index.recipe().id for index in indexes}) < len(indexes):
                raise UsageError(
                    "text= needs indexes that name the recipe of each word: create them with recipe=Recipe(word=1)"
                    " and so on, or pass the words"
                )
            words = [index.fingerprint(text) for index in indexes]
        parameters = {
            "table": table,
            "words": None if words is None else [to_bigint(word) for word in words],
            "distance": query.distance,
            "columns": list(columns),
            "scope": encode_scope(scope),
        }
        rows = connection.execute(_NEAR_WIDE, parameters)
        return [WideMatch(tuple(map(from_bigint, match)), bits) for match, bits in rows]
