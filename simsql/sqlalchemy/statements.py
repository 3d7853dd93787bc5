"""Searches as statements, for Session, AsyncSession and Connection: near, claim, near_many, pairs, clusters ..."""

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias, Unpack

from sqlalchemy import Column, ColumnElement, Integer, Select, String, and_, cast, literal, select
from sqlalchemy.dialects.postgresql import ARRAY, JSONB, array
from sqlalchemy.exc import ArgumentError
from sqlalchemy.orm import QueryableAttribute, Session
from sqlalchemy.orm.interfaces import ORMOption
from sqlalchemy.sql.selectable import LateralFromClause

from simsql.arrays.checks import is_missing, most_rows
from simsql.arrays.columns import OneFingerprint
from simsql.database.bigint import Scope
from simsql.database.query import (
    NOT_GIVEN,
    NotGiven,
    Query,
    QueryOptions,
    RowOptions,
    RowQuery,
    Text,
    compared_source,
)
from simsql.database.similar import SIMILARITY, queries_for_text, similar_texts
from simsql.database.sources import text_of
from simsql.fingerprint import Recipe, compares_features
from simsql.sqlalchemy.columns import add_estimate, is_similar
from simsql.sqlalchemy.expressions import (
    FingerprintArgument,
    argument_errors,
    correlated,
    in_scope,
    root_column,
    search,
)
from simsql.sqlalchemy.model import Fingerprint, as_expression, find_designs, find_recipe, sources_of

_FINGERPRINT = Fingerprint()

# A mapped attribute, whose rows are entities, or a column of a Table, whose rows are fingerprints.
Searched: TypeAlias = QueryableAttribute[Any] | ColumnElement[Any]


@argument_errors()
def near(
    column: Searched,
    fingerprint: FingerprintArgument | NotGiven = NOT_GIVEN,
    distance: int | None = None,
    **options: Unpack[RowOptions],
) -> "Select[Any, int]":
    """Return a SELECT of the matches of a fingerprint or a text, nearest first.

    `column` is an attribute of a mapped class or of an alias of one, and the rows are (entity, distance); or it is
    a column of a Table, and the rows are (fingerprint, distance), once for each fingerprint in the table.
    `fingerprint` is a number in [0, 2**64), an expression, or None, which matches nothing. Instead of it, `text`
    is a str, or one for each source of the column by name. It is fingerprinted with the recipe of the column; pass
    `recipe` if the model names one by an id that is not enough. `distance` is between 0 and 64 and defaults to
    that of the index. `scope` gives a value for every scope column of the index, by the key of the column in its
    table. With `similarity`, from 0 to 1, the entity's text must also be at least that similar to `text`, as
    estimated from their sketches. The column must be an attribute with one source, and the table have a `Sketch`
    of it.

    To search for a column of another table, join the statement's `.lateral()` to that table.

    Raises sqlalchemy.exc.ArgumentError for an expression that is not a column of a table, a column of texts, an
    unknown column or a column of the searched rows in `scope`, a recipe other than that of the column, a distance
    or a similarity out of range, a similarity without a text, a single source or a sketch, and unless you pass
    either a fingerprint or a text that fits the sources of the column. PostgreSQL reports other errors when the
    statement runs.
    """
    query = RowQuery(fingerprint, distance, **options)
    wanted = as_expression(_expression(column), query)
    similar = is_similar(_expression(column), query)
    matches = _search("near", column, [wanted, _within(query.distance)], query.scope, "fingerprint", "distance")
    numbers = [matches.c.distance]
    if similar and not isinstance(column, QueryableAttribute):
        raise ArgumentError(
            f"similarity= compares sketches of rows, but a search for {column} returns fingerprints: pass an"
            " attribute of a mapped class, or filter a SELECT of the table by .near(...)"
        )
    return _nearest(column, [wanted], matches, numbers, query.scope, column == matches.c.fingerprint, *similar)


@argument_errors()
def near_wide(
    columns: Sequence[Searched],
    fingerprint: Sequence[FingerprintArgument] | NotGiven = NOT_GIVEN,
    *,
    distance: int,
    text: Text | None = None,
    scope: Scope | None = None,
) -> "Select[Any, int]":
    """Return a SELECT of the matches of a fingerprint of several words, or of a text, nearest first.

    `columns` are those of the words, in their order, each with a simhash index of its own. `fingerprint` has a
    number or an expression for each of them; a word that is None matches nothing. `distance`, from 0 to 64 times
    the number of words, counts the bits that differ in all words together. For attributes, the rows are (entity,
    distance); for columns of a Table, they are (fingerprint, distance), and a fingerprint is a list of words.
    Takes the other arguments and raises the errors of `near`, and ArgumentError for columns of several tables.
    """
    searched = [_expression(column) for column in columns]
    tables = [root_column(column).table for column in searched]
    given = [fingerprint] * len(searched) if isinstance(fingerprint, NotGiven) else fingerprint
    if not searched or any(table is not tables[0] for table in tables) or len(given) != len(searched):
        raise ArgumentError("near_wide needs columns of one table, and a word for each of them")
    queries = [as_expression(column, Query(word, text=text)) for column, word in zip(searched, given, strict=True)]
    matches = _search(
        "near_wide",
        columns[0],
        [array(queries, type_=_FINGERPRINT), _within(distance, len(columns))],
        scope,
        "fingerprint",
        "distance",
        words=[str(root_column(column).name) for column in searched],
    )
    condition = and_(*(column == matches.c.fingerprint[place] for place, column in enumerate(columns, 1)))
    return _nearest(columns[0], queries, matches, [matches.c.distance], scope, condition)


@argument_errors()
def similar_candidates(
    column: Searched,
    text: Text,
    similarity: float = SIMILARITY,
    *,
    recall: float | None = None,
    scope: Scope | None = None,
    recipe: Recipe | None = None,
) -> "Select[*tuple[Any, ...]]":
    """Return a SELECT of the rows whose texts are probably at least this similar to a text, likeliest first.

    The rows are (entity, distance, cost) for a mapped attribute, and (fingerprint, distance, cost) for a column of
    a Table; the lower the cost, the likelier. If the table has a `Sketch` of the single source, the rows of an
    attribute also have `estimate`, the similarity estimated from the sketches, or None for a row without a sketch,
    and rows whose sketch is too different are left out, except for a recipe of characters. Compare the texts: see
    `similar`, and `SearchIndex.similar` for `similarity` and `recall`. Takes the other arguments of `near`.

    The statement has a query for each design that `create_index` chooses by default for up to 100 million rows and
    the distance of the `SimhashIndex` in the model. If the index has another one, PostgreSQL raises an error: name
    the `design` in the model.

    Raises the errors of `near`, and ArgumentError for shares out of range, for pictures, which have no similar
    texts, and for a column without a SimhashIndex in the model. RecallWarning tells if fewer rows are expected to
    be found than `recall` asks for.
    """
    searched = _expression(column)
    _refuse_texts(root_column(searched))
    recipe, designs = find_recipe(searched, recipe), find_designs(searched)
    of_column = sources_of(searched), recipe, designs, str(searched)
    queries = queries_for_text(text, *of_column, similarity=similarity, recall=recall)
    # PostgreSQL takes the one for the design that the index has.
    in_json = cast(literal(f"[{','.join(query.json for query in queries)}]" if queries else None, String()), JSONB)
    matches = _search("similar_candidates", column, [in_json], scope, "fingerprint", "distance", "cost")
    numbers = [matches.c.cost, matches.c.distance]
    statement = _nearest(column, [], matches, numbers, scope, column == matches.c.fingerprint)
    # Sketches are of words.
    if not isinstance(column, QueryableAttribute) or compares_features(recipe):
        return statement
    return add_estimate(statement, searched, text, similarity)


@argument_errors()
def similar(
    session: Session,
    column: QueryableAttribute[Any],
    text: Text,
    similarity: float = SIMILARITY,
    *,
    recall: float | None = None,
    limit: int | None = None,
    scope: Scope | None = None,
    recipe: Recipe | None = None,
    where: ColumnElement[bool] | Sequence[ColumnElement[bool]] = (),
    options: Sequence[ORMOption] = (),
) -> list[tuple[Any, float]]:
    """Return the entities whose texts are at least this similar to a text, and the similarity, most similar first.

    It executes `similar_candidates`, whose arguments it takes, and compares the texts, so `similarity` is exact.
    `where` is a condition for the entities, or several, and `options` say how to load them. `limit` keeps the most
    similar ones. With an AsyncSession: `await session.run_sync(similar, Article.fingerprint, text=...)`.

    Raises the errors of `similar_candidates`, and ArgumentError for a column that is not an attribute of a mapped
    class with one source.
    """
    if not isinstance(column, QueryableAttribute):
        raise ArgumentError(f"similar returns entities: pass an attribute of a mapped class, not {column}")
    limit = most_rows(limit)
    sources = compared_source(sources_of(column.expression), column, "compare the texts of similar_candidates")
    (source,) = sources.names
    found = similar_candidates(column, text, similarity, recall=recall, scope=scope, recipe=recipe)
    conditions = where if isinstance(where, Sequence) else [where]
    found = found.add_columns(getattr(_entity(column), source)).where(*conditions).options(*options)
    # By the entity: a value of JSON cannot be hashed.
    rows = session.execute(found).unique(lambda row: id(row[0])).all()
    wanted = RowQuery(text=text, similarity=similarity).compared_text(source)
    if wanted is None:
        return []
    texts = [text_of(row[-1], sources.extract) for row in rows]
    alike = similar_texts(wanted, texts, find_recipe(column.expression, recipe), similarity)
    return [(rows[place][0], value) for place, value in alike[:limit]]


def _nearest(
    column: Searched,
    queries: Sequence[ColumnElement[Any]],
    matches: LateralFromClause,
    numbers: Sequence[ColumnElement[Any]],
    scope: Scope | None,
    condition: ColumnElement[bool],
    *others: ColumnElement[bool],
) -> "Select[*tuple[Any, ...]]":
    """Return a SELECT of matches or, for an attribute, of the entities that fulfil the conditions.

    They are ordered by the numbers, which follow in each row, the last one first.
    """
    # The tables that the search depends on come first. A LATERAL subquery leaves them to the statement around it.
    depends_on = correlated(_expression(column), queries, scope)
    tables = select(*depends_on).get_final_froms() if depends_on else []
    if not isinstance(column, QueryableAttribute):
        found = select(matches.c.fingerprint, *reversed(numbers)).select_from(*tables, matches)
        return found.order_by(*numbers, matches.c.fingerprint)
    statement = select(_entity(column), *reversed(numbers)).select_from(*tables)
    statement = statement.join_from(matches, _entity(column), condition)
    # Not in ON, which could not refer to the tables before the search.
    statement = statement.where(*in_scope(column.expression, scope), *others)
    return statement.order_by(*numbers, column, *_primary_key(column))


@argument_errors()
def claim(
    column: Searched,
    fingerprint: FingerprintArgument | NotGiven = NOT_GIVEN,
    distance: int | None = None,
    **options: Unpack[QueryOptions],
) -> "Select[int, int]":
    """Return a SELECT that waits for claims of similar fingerprints, then returns the nearest match or no row.

    Execute it before an insert, in the same transaction, as `SearchIndex.claim`. The row is (fingerprint,
    distance), even for a mapped attribute: the statement does not see rows that were committed while it waited,
    but the next one does. Takes the arguments and raises the errors of `near`.
    """
    query = Query(fingerprint, distance, **options)
    wanted = as_expression(_expression(column), query)
    found = _search("claim", column, [wanted, _within(query.distance)], query.scope, "fingerprint", "distance")
    return _select_numbers(column, found)


def near_many(
    column: Searched,
    fingerprints: Iterable[OneFingerprint],
    distance: int | None = None,
    *,
    scope: Scope | None = None,
) -> "Select[int, Any, int]":
    """Return a SELECT of the matches of each fingerprint, in no particular order.

    The rows are (query, entity, distance) for a mapped attribute, (query, fingerprint, distance) for a column.
    Repeated fingerprints are searched for once; None and masked elements are ignored. Takes the other arguments
    and raises the errors of `near`.
    """
    wanted = [fingerprint for fingerprint in fingerprints if not is_missing(fingerprint)]
    queries = literal(wanted, ARRAY(_FINGERPRINT))
    matches = _search("near_many", column, [queries, _within(distance)], scope, "query", "fingerprint", "distance")
    return _select_rows(column, matches, scope)


def pairs(
    column: Searched,
    distance: int | None = None,
    *,
    scope: Scope | None = None,
) -> "Select[int, int, int]":
    """Return a SELECT of every pair of different fingerprints in the table within the distance, each once.

    The rows are (a, b, distance), with fingerprints even for a mapped attribute: a pair represents all rows that
    share its fingerprints. As a bigint, `a` is the smaller one. Takes the arguments and raises the errors of
    `near`.
    """
    found = _search("pairs", column, [_within(distance)], scope, "a", "b", "distance")
    return _select_numbers(column, found)


def clusters(
    column: Searched,
    distance: int | None = None,
    *,
    scope: Scope | None = None,
) -> "Select[int, Any]":
    """Return a SELECT of all clusters, one after another: rows that are equal or connected by chains of pairs.

    The rows are (cluster, entity) for a mapped attribute, (cluster, fingerprint) for a column. A cluster is named
    by its smallest fingerprint as a bigint. Takes the arguments and raises the errors of `near`.
    """
    members = _search("clusters", column, [_within(distance)], scope, "cluster", "fingerprint")
    order = [column, *_primary_key(column)] if isinstance(column, QueryableAttribute) else [members.c.fingerprint]
    return _select_rows(column, members, scope).order_by(members.c.cluster, *order)


def _search(
    function: str,
    column: Searched,
    arguments: list[ColumnElement[Any]],
    scope: Scope | None,
    *found: str,
    words: Sequence[str] | None = None,
) -> LateralFromClause:
    searched = _expression(column)
    _refuse_texts(root_column(searched))
    fingerprint = ARRAY(_FINGERPRINT) if words else _FINGERPRINT
    types = {name: Integer() if name in ("distance", "cost") else fingerprint for name in found}
    # Lateral, because an argument may be a column of another table in the statement.
    return search(function, searched, arguments, scope, types, words).lateral()


def _within(distance: int | None, words: int = 1) -> ColumnElement[int | None]:
    """Return a distance as an argument; UsageError if it is out of range."""
    return literal(Query(None, distance, words=words).distance, Integer())


def _refuse_texts(column: Column[Any]) -> None:
    """Raise ArgumentError for a column of texts, naming the fingerprint columns of its table."""
    if isinstance(column.type, String):
        others = [str(other) for other in column.table.columns if isinstance(other.type, Fingerprint)]
        raise ArgumentError(
            f"{column} is a column of texts, not of fingerprints: search for {' or '.join(others)}"
            if others
            else f"{column} is a column of texts, not of fingerprints, and its table has no Fingerprint column"
        )


def _expression(column: Searched) -> ColumnElement[Any]:
    return column.expression if isinstance(column, QueryableAttribute) else column


def _select_numbers(column: Searched, found: LateralFromClause) -> "Select[*tuple[Any, ...]]":
    """Return a SELECT of numbers that refers to the entity, because a Session chooses its engine by that."""
    if not isinstance(column, QueryableAttribute):
        return select(*found.c)
    return select(_entity(column)).with_only_columns(*found.c)


def _select_rows(column: Searched, found: LateralFromClause, scope: Scope | None) -> "Select[*tuple[Any, ...]]":
    """Return a SELECT of what is found or, for an attribute, with entities in place of the fingerprints."""
    if not isinstance(column, QueryableAttribute):
        return select(*found.c)
    entity = _entity(column)
    chosen = (entity if part.name == "fingerprint" else part for part in found.c)
    condition = and_(column == found.c.fingerprint, *in_scope(column.expression, scope))
    return select(*chosen).select_from(found).join(entity, condition)


def _entity(attribute: QueryableAttribute[Any]) -> Any:
    return attribute.parent.entity


def _primary_key(attribute: QueryableAttribute[Any]) -> list[Any]:
    mapper = attribute.parent.mapper
    return [getattr(_entity(attribute), mapper.get_property_by_column(key).key) for key in mapper.primary_key]
