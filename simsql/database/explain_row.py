"""Explain why a search finds a row of an indexed table, or does not."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from psycopg import sql
from sqlalchemy import Connection, text

from simsql.database.bigint import encode_scope, from_bigint
from simsql.database.primary_keys import NO_KEY
from simsql.database.query import RowQuery
from simsql.database.search_index import SearchIndex, compared_texts, fingerprint_of_row, text_of_row
from simsql.database.similar import SimilarOptions
from simsql.database.transfer import as_bytes, document_of, has_bytes, raw_connection
from simsql.errors import UsageError
from simsql.fingerprint import estimate_similarity, show_similarity, similarities, sketch, sketch_distance

_TARGET = text(
    "SELECT r.column_name, r.distance, simsql._rows_of(r) AS rows, simsql._guard(r) AS guard,"
    " simsql._for_scope(r, ' AND t.%2$I = %3$s', CAST(:scope AS pg_catalog.jsonb)) AS in_scope,"
    " pg_catalog.array_to_string(r.scope_columns, ', ') AS scope_columns,"
    " (SELECT pg_catalog.string_agg(pg_catalog.format('%s AS %I', c.expression, c.name), ', ')"
    " FROM simsql._json_columns(r.table_id) AS c) AS columns,"
    " (SELECT pg_catalog.string_agg(pg_catalog.format('t.%I', k.name), ', ' ORDER BY k.place)"
    " FROM simsql._primary_key(r.table_id) AS k) AS key, pg_catalog.row_security_active(r.table_id) AS secured"
    " FROM simsql._searched_index(CAST(:table AS pg_catalog.regclass), :column, CAST(:scope AS pg_catalog.jsonb))"
    " AS r"
)


@dataclass(frozen=True)
class ExplainedRow:
    """Whether a search finds a row, and what decided."""

    key: str
    found: bool
    distance: int | None
    """In bits; None if the row is not there or has no fingerprint."""
    sketch_estimate: float | None
    """None unless a column of sketches was named, and both texts have a sketch."""
    similarity: float | None
    """None unless texts are compared."""
    reason: str
    """The reason in words, without a full stop."""


def explain_row(
    connection: Connection,
    table: str,
    column: str | None,
    key: str,
    query: RowQuery,
    text_column: str | Sequence[str] | None = None,
    sketch_column: str | None = None,
    similar: SimilarOptions | None = None,
) -> ExplainedRow:
    """Explain why a search in an index finds the row with this key, or does not.

    With the options of `similar`, this is that search, else one within a distance.
    A key is written as PostgreSQL prints it, one of several columns as a row: `(1,two)`. The text of the query
    must have a fingerprint. The row is looked for without the index: this reads the table. Raises UsageError if
    the table has no key and for columns without texts or sketches, and sqlalchemy.exc.DBAPIError if the index
    refuses searches.
    """
    parameters = {"table": table, "column": column, "scope": encode_scope(query.scope)}
    target = connection.execute(_TARGET, parameters).one()
    index = SearchIndex(connection, table, target.column_name, scope=query.scope, recipe=query.recipe)
    compared = compared_texts(index, connection, query, text_column, sketch_column)
    wanted: Any = query.fingerprint if query.text is None else index.fingerprint(query.text)
    if similar is None or query.text is None:
        matches = {match.fingerprint for match in index.near(wanted, query.distance)}
    else:
        rows = index.similar(query.text, text_column=text_column, sketch_column=sketch_column, **similar)
        matches = {match.fingerprint for match in rows}
    if target.key is None:
        raise UsageError(f"{table} has {NO_KEY}: create one to name rows by")
    row = _read_row(connection, target, key)
    if row is None:
        hidden = ", or row-level security hides it from this role" if target.secured else ""
        return ExplainedRow(key, False, None, None, None, f"{table} has no row with this key{hidden}")
    document, in_scope = row
    stored = document[target.column_name]
    if stored is None:
        reason = f"column {target.column_name} of the row is null: fill it with simsql backfill"
        return ExplainedRow(key, False, None, None, None, reason)
    fingerprint = from_bigint(int(stored))
    distance = (fingerprint ^ wanted).bit_count()
    own, text = text_of_row(document, compared), query.compared_text(*compared)
    alike = None
    if query.similarity is not None:
        (alike,) = similarities([text], [own], index.recipe()).tolist()
    estimate = None
    if sketch_column is not None and text is not None:
        bits = document[sketch_column]
        of_text = sketch(text, revision=index.recipe().revision)
        estimate = estimate_similarity(of_text, None if bits is None else from_bigint(int(bits)))
    within = target.distance if query.distance is None else query.distance
    why: str | None = None
    if not in_scope:
        values = ", ".join(f"{name}={document[name]}" for name in target.scope_columns.split(", "))
        why = f"the row is in another scope: {values}"
    elif similar is None and distance > within:
        why = f"distance {distance} is above {within}{_other_text(index, connection, document, own, fingerprint)}"
    elif similar is None and fingerprint not in matches:
        why = "the index has no key of the row: look for faults with simsql index verify"
    elif query.similarity is not None:
        why = _compare(query.similarity, alike, estimate, " and ".join(compared))
        if why is None and fingerprint not in matches:
            made = index.query(query.text or "", **(similar or SimilarOptions()))
            expected = f"{made.expected_recall:.2f}" if made else "none"
            why = (
                f"its fingerprint is an unlikely one for such a text: the search expects to find {expected} of the"
                " rows exactly as similar as asked, and more with a higher recall"
            ) + _other_text(index, connection, document, own, fingerprint)
    reasons = [] if similar is not None else [f"distance {distance} is at most {within}"]
    reasons += [] if alike is None else [f"similarity {show_similarity(alike)} is at least {query.similarity:g}"]
    found = f"the search finds it: {', and '.join(reasons)}"
    return ExplainedRow(key, why is None, distance, estimate, alike, why or found)


def _compare(wanted: float, found: float | None, estimate: float | None, column: str) -> str | None:
    """Return why a row is not similar enough; None if it is."""
    limit = sketch_distance(wanted)
    if found is None:
        return f"column {column} of the row is null"
    if found < wanted:
        return f"similarity {show_similarity(found)} is below {wanted:g}"
    if estimate is not None and estimate < max(0.0, 1 - limit / 32):
        return (
            f"the sketches differ in more than {limit} bits, so the texts were not compared: the sketch of the"
            " row is stale, or this is one of few such pairs"
        )
    return None


def _other_text(
    index: SearchIndex, connection: Connection, row: dict[str, Any], text: str | None, stored: int
) -> str:
    """Return what to say of the fingerprint of a row if its text has another one."""
    try:
        is_other = fingerprint_of_row(index, connection, row, text) != stored
    except UsageError:  # of an index with unknown sources or an unknown recipe, nothing can be said
        return ""
    return (
        "; the fingerprint of the row is not that of its text by the recipe of the index: it was made by another"
        " recipe, or the text has changed since"
        if is_other
        else ""
    )


def _read_row(connection: Connection, target: Any, key: str) -> tuple[dict[str, Any], bool] | None:
    parts = {name: sql.SQL((getattr(target, name) or "").replace("%", "%%")) for name in target._fields[2:8]}
    raw, document = raw_connection(connection), "pg_catalog.to_jsonb(r)"
    parts["document"] = sql.SQL(as_bytes(f"CAST({document} AS pg_catalog.text)") if has_bytes(raw) else document)
    statement = sql.SQL(
        "SELECT (SELECT {document} FROM (SELECT {columns}) AS r), true{in_scope} FROM {rows} AS t"
        " WHERE {guard} AND pg_catalog.concat(({key})) OPERATOR(pg_catalog.=) %s"
    ).format(**parts)
    found = raw.execute(statement, [key]).fetchone()
    return found and (document_of(found[0]), bool(found[1]))
