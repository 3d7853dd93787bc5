"""Searches as statements, for Session, AsyncSession and Connection: near, claim, near_many, pairs, clusters."""

from collections.abc import Iterable
from typing import Any, SupportsIndex, overload

from sqlalchemy import ColumnElement, Integer, Select, and_, literal, select
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.orm import QueryableAttribute
from sqlalchemy.sql.selectable import TableValuedAlias

from simsql.database.bigint import NOT_GIVEN, NotGiven
from simsql.fingerprint import Recipe
from simsql.hamming._checks import is_missing
from simsql.sqlalchemy.column_type import Fingerprint, as_query
from simsql.sqlalchemy.expressions import FingerprintArgument, Scope, TextArgument, in_scope, root_column, search

_FINGERPRINT = Fingerprint()


@overload
def near(
    column: QueryableAttribute[Any],
    fingerprint: FingerprintArgument | NotGiven = NOT_GIVEN,
    distance: int | None = None,
    *,
    text: TextArgument | None = None,
    recipe: Recipe | None = None,
    scope: Scope | None = None,
) -> "Select[Any, int]": ...
@overload
def near(
    column: ColumnElement[Any],
    fingerprint: FingerprintArgument | NotGiven = NOT_GIVEN,
    distance: int | None = None,
    *,
    text: TextArgument | None = None,
    recipe: Recipe | None = None,
    scope: Scope | None = None,
) -> "Select[int, int]": ...
def near(
    column: QueryableAttribute[Any] | ColumnElement[Any],
    fingerprint: FingerprintArgument | NotGiven = NOT_GIVEN,
    distance: int | None = None,
    *,
    text: TextArgument | None = None,
    recipe: Recipe | None = None,
    scope: Scope | None = None,
) -> "Select[Any, int]":
    """Return a SELECT of what is within the distance of a fingerprint or a text, nearest first.

    `column` is an attribute of a mapped class or of an alias of one, and the rows are (entity, distance); or it
    is a column of a Table, and the rows are (fingerprint, distance), once for each fingerprint that a row has.
    `fingerprint` is a number in [0, 2**64), an expression, or None, which nothing is near to. In its place `text`
    is a str, or one for each source of the column by its name. It is fingerprinted by the recipe of the column;
    `recipe` is needed where the model names one by an id that does not say all of it. `distance` is from 0 to 64,
    that of the index if it is left out. `scope` gives a value for every column of the index's scope, by the key of
    the column in its table.

    Raises sqlalchemy.exc.ArgumentError for an expression that is no column of a table, an unknown column in
    `scope`, another recipe than that of the column, and unless either a fingerprint or a text is given that the
    sources of the column allow. What else is wrong PostgreSQL says when the statement runs.
    """
    query = as_query(_expression(column), fingerprint, text, recipe)
    matches = _search("near", column, [query], distance, scope, "fingerprint", "distance")
    if not isinstance(column, QueryableAttribute):
        return select(matches.c.fingerprint, matches.c.distance).order_by(
            matches.c.distance, matches.c.fingerprint
        )
    statement: Select[Any, int] = select(_entity(column), matches.c.distance)
    statement = statement.select_from(matches).join(*_rows(column, matches, scope))
    return statement.order_by(matches.c.distance, column, *_primary_key(column))


def claim(
    column: QueryableAttribute[Any] | ColumnElement[Any],
    fingerprint: FingerprintArgument | NotGiven = NOT_GIVEN,
    distance: int | None = None,
    *,
    text: TextArgument | None = None,
    recipe: Recipe | None = None,
    scope: Scope | None = None,
) -> "Select[int, int]":
    """Return a SELECT that waits for other claims of what is near, and gives the nearest one or no row.

    Execute it before an insert, in its transaction, which has to be READ COMMITTED. Of two transactions that claim
    near fingerprints and then insert, the second one waits until the first has ended, so exactly one of them finds
    nothing. The row is (fingerprint, distance), for a mapped attribute too: the statement does not see the rows
    that were committed while it waited, and the next one does. Arguments and errors as for `near`.
    """
    query = as_query(_expression(column), fingerprint, text, recipe)
    found = _search("claim", column, [query], distance, scope, "fingerprint", "distance")
    return _select_numbers(column, found.c.fingerprint, found.c.distance)


@overload
def near_many(
    column: QueryableAttribute[Any],
    fingerprints: Iterable[SupportsIndex | None],
    distance: int | None = None,
    *,
    scope: Scope | None = None,
) -> "Select[int, Any, int]": ...
@overload
def near_many(
    column: ColumnElement[Any],
    fingerprints: Iterable[SupportsIndex | None],
    distance: int | None = None,
    *,
    scope: Scope | None = None,
) -> "Select[int, int, int]": ...
def near_many(
    column: QueryableAttribute[Any] | ColumnElement[Any],
    fingerprints: Iterable[SupportsIndex | None],
    distance: int | None = None,
    *,
    scope: Scope | None = None,
) -> "Select[int, Any, int]":
    """Return a SELECT of what is within the distance of each of these fingerprints, in no order.

    The rows are (query, entity, distance) for a mapped attribute, (query, fingerprint, distance) for a column.
    A fingerprint that is given twice is searched for once, and None and masked elements not at all. Other
    arguments and errors as for `near`.
    """
    wanted = [fingerprint for fingerprint in fingerprints if not is_missing(fingerprint)]
    queries = literal(wanted, ARRAY(_FINGERPRINT))
    matches = _search("near_many", column, [queries], distance, scope, "query", "fingerprint", "distance")
    if not isinstance(column, QueryableAttribute):
        return select(matches.c.query, matches.c.fingerprint, matches.c.distance)
    statement: Select[int, Any, int] = select(matches.c.query, _entity(column), matches.c.distance)
    return statement.select_from(matches).join(*_rows(column, matches, scope))


def pairs(
    column: QueryableAttribute[Any] | ColumnElement[Any],
    distance: int | None = None,
    *,
    scope: Scope | None = None,
) -> "Select[int, int, int]":
    """Return a SELECT of every pair of different fingerprints within the distance that rows have, each once.

    The rows are (a, b, distance), fingerprints for a mapped attribute too: a pair stands for all rows that
    share its fingerprints. `a` is the smaller one as PostgreSQL orders them. Arguments and errors as for `near`.
    """
    found = _search("pairs", column, [], distance, scope, "a", "b", "distance")
    return _select_numbers(column, found.c.a, found.c.b, found.c.distance)


@overload
def clusters(
    column: QueryableAttribute[Any], distance: int | None = None, *, scope: Scope | None = None
) -> "Select[int, Any]": ...
@overload
def clusters(
    column: ColumnElement[Any], distance: int | None = None, *, scope: Scope | None = None
) -> "Select[int, int]": ...
def clusters(
    column: QueryableAttribute[Any] | ColumnElement[Any],
    distance: int | None = None,
    *,
    scope: Scope | None = None,
) -> "Select[int, Any]":
    """Return a SELECT of all clusters, one after another: what a chain of pairs connects, and what is equal.

    The rows are (cluster, entity) for a mapped attribute, (cluster, fingerprint) for a column; a cluster is
    named by its smallest fingerprint, as PostgreSQL orders them. Arguments and errors as for `near`.
    """
    members = _search("clusters", column, [], distance, scope, "cluster", "fingerprint")
    if not isinstance(column, QueryableAttribute):
        return select(members.c.cluster, members.c.fingerprint).order_by(members.c.cluster, members.c.fingerprint)
    statement: Select[int, Any] = select(members.c.cluster, _entity(column))
    statement = statement.select_from(members).join(*_rows(column, members, scope))
    return statement.order_by(members.c.cluster, column, *_primary_key(column))


def _search(
    function: str,
    column: QueryableAttribute[Any] | ColumnElement[Any],
    arguments: list[ColumnElement[Any]],
    distance: int | None,
    scope: Scope | None,
    *found: str,
) -> TableValuedAlias:
    types = {name: Integer() if name == "distance" else _FINGERPRINT for name in found}
    return search(function, root_column(_expression(column)), arguments, distance, scope, types)


def _expression(column: QueryableAttribute[Any] | ColumnElement[Any]) -> ColumnElement[Any]:
    return column.expression if isinstance(column, QueryableAttribute) else column


def _select_numbers(
    column: QueryableAttribute[Any] | ColumnElement[Any], *found: ColumnElement[Any]
) -> "Select[*tuple[Any, ...]]":
    """Return a SELECT of numbers, of an entity although no row holds one: a Session chooses its engine by that."""
    if not isinstance(column, QueryableAttribute):
        return select(*found)
    return select(_entity(column)).with_only_columns(*found)


def _rows(
    attribute: QueryableAttribute[Any], found: TableValuedAlias, scope: Scope | None
) -> tuple[Any, ColumnElement[bool]]:
    """Return the entity, and the condition that joins it to the fingerprints that were found."""
    condition = and_(attribute == found.c.fingerprint, *in_scope(attribute.expression, scope))
    return _entity(attribute), condition


def _entity(attribute: QueryableAttribute[Any]) -> Any:
    return attribute.parent.entity


def _primary_key(attribute: QueryableAttribute[Any]) -> list[Any]:
    """Return the attributes of the entity's primary key: they order the rows that share a fingerprint."""
    mapper = attribute.parent.mapper
    return [getattr(_entity(attribute), mapper.get_property_by_column(key).key) for key in mapper.primary_key]
