"""What fingerprint columns and sketch columns have in common, and the sketch column.

Both are unsigned in Python and bigint in PostgreSQL, and follow the texts of their sources.
"""

from collections.abc import Callable
from typing import Any

from sqlalchemy import BigInteger, Column, ColumnElement, Dialect, Double, Integer, Select, event, func, literal
from sqlalchemy.exc import ArgumentError
from sqlalchemy.sql.base import SchemaEventTarget
from sqlalchemy.types import TypeDecorator

from simsql.arrays.columns import OneFingerprint
from simsql.database.bigint import from_bigint, to_bigint
from simsql.database.query import NOT_GIVEN, NotGiven, RowQuery, Text, compared_source
from simsql.database.sources import Extract, Sources
from simsql.fingerprint import Revision, sketch, sketch_distance, sketch_id
from simsql.sqlalchemy.events import follow_sources
from simsql.sqlalchemy.expressions import FingerprintArgument, as_fingerprint, beside, root_column
from simsql.sqlalchemy.inserts import add_default
from simsql.sqlalchemy.sources import find_other


class Bits64(TypeDecorator[int]):
    """64 bits of a text: an int in [0, 2**64) in Python, the bigint with the same bits in PostgreSQL."""

    __module__ = "simsql.sqlalchemy"  # what Alembic writes in front of the type's name

    impl = BigInteger
    cache_ok = True
    called = "fingerprint"
    """What errors call a value."""

    def __init__(self, sources: Sources | None) -> None:
        super().__init__()
        self.sources = sources
        if sources is not None:
            follow_sources()

    def __repr__(self) -> str:
        # For migrations, which compute nothing from texts.
        return f"{type(self).__name__}()"

    def _set_parent(self, parent: SchemaEventTarget, outer: bool = False, **options: Any) -> None:
        super()._set_parent(parent, outer=outer, **options)
        if self.sources is not None:
            event.listen(parent, "after_parent_attach", add_default)

    def process_bind_param(self, value: OneFingerprint, dialect: Dialect) -> int | None:  # noqa: ARG002
        """Return the bigint. Raises ValueError and TypeError as `to_bigint`."""
        return to_bigint(value, self.called)

    def process_result_value(self, value: int | None, dialect: Dialect) -> int | None:  # noqa: ARG002
        """Return the unsigned number."""
        return from_bigint(value)

    def literal_processor(self, dialect: Dialect) -> Callable[[int], str]:  # noqa: ARG002
        """Return a function that renders a number in the text of a statement."""

        def render(value: int | None) -> str:
            bigint = to_bigint(value, self.called)
            # PostgreSQL reads -9223372036854775808 as a minus and a number that is too large for a bigint.
            return "NULL" if bigint is None else f"CAST('{bigint}' AS BIGINT)"

        return render

    def compare_values(self, x: Any, y: Any) -> bool:
        """Return whether two values of an attribute are the same bits, regardless of their types."""
        return super().compare_values(_as_bits(x), _as_bits(y))


def _as_bits(value: Any) -> Any:
    try:
        return to_bigint(value)
    except (TypeError, ValueError):  # an SQL expression, or a symbol of SQLAlchemy
        return value


class _Comparator(TypeDecorator.Comparator[int]):
    """The expressions of a sketch column, also through aliases and subclasses."""

    __slots__ = ()

    def similarity(
        self, other: FingerprintArgument | NotGiven = NOT_GIVEN, *, text: str | None = None
    ) -> ColumnElement[float]:
        """Return the similarity of two texts as estimated from their sketches, from 0 to 1; NULL if one is NULL.

        `other` is a sketch in [0, 2**64), a column or another expression. Instead of it, `text` is a str. It is an
        estimate with a standard error of up to .125, as that of `simsql.estimate_similarity`. Raises
        sqlalchemy.exc.ArgumentError unless you pass either a sketch or a text.
        """
        if (text is None) == isinstance(other, NotGiven):
            raise ArgumentError("pass either a sketch or text=")
        compared = sketch(text, revision=getattr(self.type, "revision", 1)) if text is not None else other
        assert not isinstance(compared, NotGiven)  # noqa: S101 - for mypy
        return func.simsql.similarity(self.expr, as_fingerprint(compared, Sketch()), type_=Double())


class Sketch(Bits64):
    """A sketch, 64 one-bit MinHashes of a text: an int in [0, 2**64) in Python, a bigint in PostgreSQL.

    source
        The attribute whose text is sketched. The sketch is computed whenever a `Fingerprint` with this source
        would be, together with it. The sketch of a text without words is None.
    extract
        The function that makes a text of the source, the same as that of the `Fingerprint`.
    revision
        That of the recipe of the `Fingerprint`. The comment of the column names it: `minhash64-2` for 2.

    Raises TypeError for a source that is not a str: a sketch is that of one text.
    """

    __module__ = "simsql.sqlalchemy"

    cache_ok = True
    called = "sketch"
    comparator_factory = _Comparator

    def __init__(
        self, source: str | None = None, *, extract: Extract | None = None, revision: Revision = 1
    ) -> None:
        if source is not None and not isinstance(source, str):
            raise TypeError(f"a sketch is that of one text: name one attribute as its source, not {source!r}")
        self.extract, self.revision = extract, revision
        super().__init__(None if source is None else Sources.of(source, None, extract, revision))

    def _set_parent(self, parent: SchemaEventTarget, outer: bool = False, **options: Any) -> None:
        super()._set_parent(parent, outer=outer, **options)
        if self.revision > 1 and isinstance(parent, Column) and parent.comment is None:
            parent.comment = sketch_id(self.revision)


def is_similar(searched: ColumnElement[Any], query: RowQuery) -> list[ColumnElement[bool]]:
    """Return the condition that rows have a sketch as similar to that of the text as the query asks, if it does.

    `searched` is the fingerprint column of the rows. Raises ArgumentError without one source and a sketch of it.
    """
    if query.similarity is None:
        return []
    of_type = searched.type.sources if isinstance(searched.type, Bits64) else None
    sources = compared_source(of_type, searched)
    of_row = _sketch_beside(searched, sources)
    (name,) = sources.names
    if of_row is None:
        raise ArgumentError(
            f"similarity= compares sketches, and {root_column(searched).table.name} has none of {name!r}: add one"
            f" to the model, sketch: Mapped[int | None] = mapped_column(Sketch(source={name!r})), and fill it in a"
            " backfill"
        )
    return [_estimate(of_row, query.sketch(name, sources.revision)) >= literal(float(query.similarity), Double())]


def add_estimate(
    statement: "Select[*tuple[Any, ...]]", searched: ColumnElement[Any], text: Text, similarity: float
) -> "Select[*tuple[Any, ...]]":
    """Add the estimated similarity to a text as a column, if there are sketches, and leave out rows far below.

    As in SearchIndex.similar, rows without a sketch stay, and hardly any row that is this similar is left out.
    """
    sources = searched.type.sources if isinstance(searched.type, Bits64) else None
    of_row = None if sources is None else _sketch_beside(searched, sources)
    if sources is None or of_row is None:
        return statement
    of_text = RowQuery(text=text, similarity=similarity).sketch(sources.names[0], sources.revision)
    bits = func.simsql.hamming_distance(of_row, literal(of_text, Sketch()), type_=Integer())
    statement = statement.where(func.coalesce(bits, 0) <= sketch_distance(similarity))
    return statement.add_columns(_estimate(of_row, of_text).label("estimate"))


def _sketch_beside(searched: ColumnElement[Any], sources: Sources) -> ColumnElement[Any] | None:
    column, _ = find_other(sources, root_column(searched).table.columns)
    return None if column is None else beside(searched, column)


def _estimate(of_row: ColumnElement[Any], of_text: int | None) -> ColumnElement[float]:
    return func.simsql.similarity(of_row, literal(of_text, Sketch()), type_=Double())
