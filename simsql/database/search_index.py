"""SearchIndex: search a simhash index, list its pairs and clusters, and maintain it."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any, NamedTuple, Unpack

import numpy as np
from sqlalchemy import Connection, Engine, TextClause, text

from simsql.arrays.checks import distinct_fingerprints, most_rows
from simsql.arrays.columns import Column, OneFingerprint
from simsql.database.backfill import Backfill, Compared, Filled
from simsql.database.bigint import Scope, encode_scope, from_bigint, to_bigint
from simsql.database.binds import READ_COMMITTED, begin, check_bind, check_engine
from simsql.database.index import Finding, Report, verify
from simsql.database.index_spec import agreed_extract, agreed_recipe
from simsql.database.load import find_target
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
from simsql.database.results import (
    Batch,
    Fingerprints,
    Member,
    Pair,
    QueryMatch,
    Results,
    Row,
    SearchedRows,
    find_clusters_of_rows,
    find_matches_of_rows,
    find_pairs_of_rows,
)
from simsql.database.similar import SIMILARITY, SimilarOptions, SimilarQuery, queries_for_text, similar_texts
from simsql.database.sketches import check_compared_columns
from simsql.database.sources import (
    Extract,
    Sources,
    TextColumns,
    extract_name,
    fingerprint_text,
    join_texts,
    text_of,
)
from simsql.database.transfer import as_bytes, document_of, has_bytes, sqlalchemy_errors
from simsql.errors import UsageError
from simsql.fingerprint import Recipe, compares_features, sketch, sketch_distance
from simsql.hamming import Design

# More queries are searched for in memory: reading all rows takes a second for three million.
_QUERIES_IN_SQL = 50_000
# A backfill of all rows, and steps that follow it: eight minutes, if one comes each half second.
_STEPS = 1_000
# Rows that are fetched at a time.
_FETCHED = 10_000

_COLUMNS = text(
    "SELECT r.column_name FROM simsql.registry AS r WHERE r.table_id = CAST(:table AS regclass)"
    " AND r.column_name = coalesce(CAST(:column AS text), r.column_name) ORDER BY r.id"
)
_REPAIR = text("SELECT * FROM simsql.repair(CAST(:table AS regclass))")
_VACUUM = text(
    "SELECT CAST(s AS text), s.removed, s.share, s.finished FROM simsql._vacuum_batch("
    "CAST(:table AS regclass), CAST(:column AS text), CAST(:state AS simsql._vacuum_state)) AS s"
)


def _search(function: str, columns: str, query: str = "bigint") -> TextClause:
    return text(
        f"SELECT {columns} FROM simsql.{function}(CAST(:in_table AS regclass), CAST(:query AS {query}),"  # noqa: S608
        " CAST(:within AS integer), CAST(:of_column AS text), CAST(:scope AS jsonb))"
    )


_NEAR = _search("near", "fingerprint, distance")
_NEAR_MANY = _search("near_many", "query, fingerprint, distance", "bigint[]")
_CLAIM = _search("claim", "fingerprint, distance")
_NEAR_ROWS, _SIMILAR_ROWS = (
    f"SELECT fingerprint, distance, {{document}} FROM simsql.{function}(CAST(:in_table AS regclass), {query},"  # noqa: S608
    " CAST(:of_column AS text), CAST(:scope AS jsonb), CAST(:sketch_column AS text), CAST(:sketch AS bigint),"
    " CAST(:differing AS integer))"
    for function, query in (
        ("_near_documents", "CAST(:query AS bigint), CAST(:within AS integer)"),
        ("_similar_documents", "CAST(:query AS jsonb)"),
    )
)
_RECIPE, _RECIPE_FOR_CLAIM = (
    text(
        f"SELECT column_name, recipe, sources, blocks, lead, inner_blocks FROM simsql.{function}("  # noqa: S608
        "CAST(:in_table AS regclass), CAST(:of_column AS text))"
    )
    for function in ("_index", "_claimed_index")
)
_CHECK = text(
    "SELECT i.column_name, simsql._distance(CAST(:within AS integer), i.distance) FROM simsql._searched_index("
    "CAST(:in_table AS regclass), CAST(:of_column AS text), CAST(:scope AS jsonb)) AS i"
)


class Match(NamedTuple):
    """A fingerprint of a live row, in [0, 2**64), and its distance in bits from the query."""

    fingerprint: int
    distance: int


class MatchingRow(NamedTuple):
    """A row of the indexed table as a JSON object, with its fingerprint and its distance in bits."""

    fingerprint: int
    distance: int
    row: dict[str, Any]
    similarity: float | None = None
    """The similarity of its text, from 0 to 1, if the search compared texts."""


class _Described(NamedTuple):
    """An index: the column, the recipe and the index's name for it, the sources if they are known, the design."""

    column: str
    recipe: Recipe
    recipe_id: str | None
    sources: Sources | None
    design: Design


class SearchIndex:
    """The simhash index on a column of a table. Creating the object does not query the database.

    engine_or_connection
        With a connection, every method works in its transaction and does not commit. With an engine, every call
        opens a connection and ends its transaction. `claim` needs a connection; `vacuum` and `backfill`, which
        commit as they work, need an engine.
    table
        A name as in SQL, with schema and quotes if needed.
    column
        The unquoted name of the fingerprint column. Omit it if the table has only one index, or for the default
        one of several: see `set_default_index`.
    scope
        A value for each scope column, if the index has a scope. Searches find only rows with these values.
    recipe
        The recipe of the index, if its id is not enough, as with a word list or table.
    extract
        The function that makes texts of the sources, if the index has one, as in `Fingerprint` and `SimhashField`.
        `backfill`, `verify_texts` and what compares texts call it with the value of each source as JSON has it.

    `near`, `near_rows` and `claim` take a fingerprint or, as `text=`, a text. They fingerprint the text with the
    recipe of the index, which each call looks up. A text without features matches nothing, and neither does its
    fingerprint, None or a masked element. If the index has several sources, pass a text for each of them,
    `text={"title": ..., "body": ...}`. `scope=` and `recipe=` replace those of the object. The methods raise
    UsageError unless you pass either a fingerprint or a text, if the recipe is not that of the index, if nobody
    has named the index's, and if its id is not enough.

    Methods raise sqlalchemy.exc.DBAPIError with PostgreSQL's message: no such table, no index, several indexes, a
    scope that does not fit the index, missing privileges. Searches raise UsageError for a distance outside of 0 to
    64, ValueError for a number that is not a fingerprint, and TypeError for a text that is not a str, a distance
    that is not an integer, and a value that cannot be in a scope. The default distance is that of the index.
    """

    def __init__(
        self,
        engine_or_connection: Engine | Connection,
        table: str,
        column: str | None = None,
        *,
        scope: Scope | None = None,
        recipe: Recipe | None = None,
        extract: Extract | None = None,
    ) -> None:
        if extract is not None:
            extract_name(extract)
        self._bind = check_bind(engine_or_connection)
        self._table = table
        self._column = column
        self._scope = scope
        self._recipe = recipe
        self._extract = extract

    def near(
        self,
        fingerprint: OneFingerprint | NotGiven = NOT_GIVEN,
        distance: int | None = None,
        **options: Unpack[QueryOptions],
    ) -> list[Match]:
        """Return every fingerprint of a live row within the distance (0 to 64), once each, nearest first."""
        query = Query(fingerprint, distance, **options)
        with begin(self._bind) as connection:
            _, parameters = self._prepare(connection, query)
            rows = connection.execute(_NEAR, parameters)
            return [Match(from_bigint(match), bits) for match, bits in rows]

    def near_rows(
        self,
        fingerprint: OneFingerprint | NotGiven = NOT_GIVEN,
        distance: int | None = None,
        *,
        text_column: str | Sequence[str] | None = None,
        sketch_column: str | None = None,
        **options: Unpack[RowOptions],
    ) -> list[MatchingRow]:
        """Return the rows whose fingerprint is within the distance, nearest first.

        With `similarity`, between 0 and 1, return only rows whose text in `text_column` is at least that similar
        to `text`, as `similar` compares them. The texts of several columns are joined in their order, each on
        lines of its own. Omit the column if the index has one source. If the table has the sketches of these
        texts, name their column as `sketch_column`: PostgreSQL then reads no text whose sketch is too different.
        A row without a sketch is compared. Of the rows that are just as similar as asked, this misses one in 400
        or fewer, and all whose text has changed since their sketch was made.

        Raises UsageError for a similarity out of range or without a text and its column, for a column of another
        type, and if these sketches are not of the revision of the recipe; TypeError for a similarity
        that is not a number.
        """
        query = RowQuery(fingerprint, distance, **options)
        if query.similarity is None and (text_column or sketch_column):
            raise UsageError("text_column= and sketch_column= apply only to a similarity: pass similarity=")
        with begin(self._bind) as connection:
            index, arguments = self._prepare(connection, query)
            compared: TextColumns = {}
            if index is not None and query.similarity is not None:
                compared = self._compared(connection, index, query.text, text_column, sketch_column)
                wanted = query.compared_text(*compared)
                arguments |= _sketch_arguments(sketch_column, wanted, query.similarity, index.recipe)
            found = _matching_rows(connection, _NEAR_ROWS, arguments)
        if index is None or query.similarity is None:
            return found
        return [
            match for _, match in sorted(_similar_rows(found, wanted, compared, query.similarity, index.recipe))
        ]

    def claim(
        self,
        fingerprint: OneFingerprint | NotGiven = NOT_GIVEN,
        distance: int | None = None,
        **options: Unpack[QueryOptions],
    ) -> Match | None:
        """Wait for claims of similar fingerprints, then return the nearest match or None; call before an insert.

        If two transactions claim similar fingerprints and then insert, the second waits until the first ends. So
        exactly one of them gets None. The transaction must be READ COMMITTED. Raises UsageError for an engine,
        because a claim lasts until the end of its transaction, which must be that of the insert.
        """
        if not isinstance(self._bind, Connection):
            raise UsageError(
                "a claim lasts until its transaction ends: pass the Connection of the insert, not an Engine"
            )
        query = Query(fingerprint, distance, **options)
        _, parameters = self._prepare(self._bind, query, _RECIPE_FOR_CLAIM)
        row = self._bind.execute(_CLAIM, parameters).one_or_none()
        return None if row is None else Match(from_bigint(row.fingerprint), row.distance)

    def query(self, text: Text, **options: Unpack[SimilarOptions]) -> SimilarQuery | None:
        """Return the query that `similar` searches for; None for a text without features."""
        with begin(self._bind) as connection:
            return self._query(self._describe(connection), text, **options)

    def similar(
        self,
        text: Text,
        similarity: float = SIMILARITY,
        *,
        recall: float | None = None,
        limit: int | None = None,
        text_column: str | Sequence[str] | None = None,
        sketch_column: str | None = None,
        scope: Scope | None = None,
    ) -> list[MatchingRow]:
        """Return the rows whose text is at least this similar to `text`, from 0 to 1, most similar first.

        PostgreSQL reads the keys that similar texts most likely have, and the texts of those rows are compared.
        Every returned row is as similar as it says. Of the rows that are exactly as similar as asked, the search
        is expected to find a share of `recall`, and more of those that are more similar: by default .99, or less
        if it would take longer than `near` at a distance of 10. A given recall takes as long as it needs, within
        limits, of which RecallWarning tells. `near` finds every fingerprint within a distance, whatever the texts.

        Texts are compared as `simsql.similarity` does it in the revision of the recipe, or by the Jaccard index of
        their features if the recipe has characters or trigrams, as for titles. They are in the single source of
        the index, or in `text_column`, of which there may be several. With `sketch_column`, PostgreSQL reads only
        those whose sketch is near enough: see `near_rows`. `limit` keeps the most similar rows.

        Raises UsageError for shares out of range, an index without a source and no `text_column`, for pictures,
        and for columns as `near_rows` does.
        """
        limit = most_rows(limit)
        with begin(self._bind) as connection:
            index = self._describe(connection)
            compared = self._compared(connection, index, text, text_column, sketch_column)
            query = self._query(index, text, similarity=similarity, recall=recall)
            wanted = RowQuery(text=text, similarity=similarity).compared_text(*compared)
            if query is None or wanted is None:
                return []
            arguments = {
                "in_table": self._table,
                "of_column": index.column,
                "query": query.json,
                "scope": encode_scope(self._scope if scope is None else scope),
                **_sketch_arguments(sketch_column, wanted, similarity, index.recipe),
            }
            found = _matching_rows(connection, _SIMILAR_ROWS, arguments)
        alike = _similar_rows(found, wanted, compared, similarity, index.recipe)
        return [match for _, match in alike[:limit]]

    def near_many(
        self, fingerprints: Iterable[OneFingerprint] | Fingerprints | Column, distance: int | None = None
    ) -> Results[QueryMatch]:
        """Return the matches of each fingerprint, in no particular order.

        Repeated fingerprints are searched for once; what is missing is ignored. PostgreSQL searches for
        up to 50,000 in one statement, and raises an error after 100 million matches. For more, all rows are read
        once and looked up in tables that are built from the queries, several times faster for a million: memory
        grows with the number of queries and of fingerprints that match, not with the number of rows.
        """
        queries = distinct_fingerprints(fingerprints)
        if len(queries) > _QUERIES_IN_SQL:
            return self._results(QueryMatch, partial(find_matches_of_rows, queries=queries), distance)
        return self._results(QueryMatch, partial(_find_matches_in_sql, queries=queries), distance)

    def pairs(self, distance: int | None = None) -> Results[Pair]:
        """Return every pair of different fingerprints of live rows within the distance, in no particular order.

        Memory grows by about 60 bytes per row and does not depend on the number of pairs.
        """
        return self._results(Pair, find_pairs_of_rows, distance)

    def clusters(self, distance: int | None = None) -> Results[Member]:
        """Return the members of all clusters, in order: fingerprints with a neighbour or on several rows.

        Memory grows by about 80 bytes per row and does not depend on the number of pairs. All form one batch.
        """
        return self._results(Member, find_clusters_of_rows, distance)

    def recipe(self) -> Recipe:
        """Return the recipe of the index, to fingerprint texts for a search.

        Raises UsageError if the given recipe is not that of the index, and if none was given and nobody has named
        the index's, or its id is not enough.
        """
        with begin(self._bind) as connection:
            return self._describe(connection).recipe

    def fingerprint(self, text: Text) -> int | None:
        """Return the fingerprint of a text, as a search for it uses it; None if the text has no features."""
        with begin(self._bind) as connection:
            index = self._describe(connection)
            return fingerprint_text(text, index.sources, index.recipe, f"{self._table}({index.column})")

    def verify(self) -> list[Finding]:
        """Return the faults of the index, or of all indexes of the table if no column was given.

        Reads all keys and all fingerprints in one snapshot, and changes nothing. Raises DBAPIError, too, if
        row-level security hides rows.
        """
        with begin(self._bind) as connection:
            return verify(connection, self._table, self._column)

    def repair(self) -> list[Finding]:
        """Repair all indexes of the table; return the faults.

        Writers of the table wait until the transaction ends, which must be READ COMMITTED. Leaves superfluous keys
        to `vacuum`. Raises DBAPIError, too, unless the role owns the table and the index.
        """
        with begin(self._bind, **READ_COMMITTED) as connection:
            return [Finding(*row) for row in connection.execute(_REPAIR, {"table": self._table})]

    def vacuum(self, *, report: Report | None = None) -> int:
        """Remove keys without a row, and all but one of equal keys; return the number of removed keys.

        Commits as it works; others can read and write meanwhile. `report` is called with the completed share of
        the work. Raises UsageError for a connection.
        """
        engine = check_engine(self._bind, "vacuum")
        parameters: dict[str, Any] = {"table": self._table, "column": self._column, "state": None}
        removed, finished = 0, False
        with engine.connect().execution_options(**READ_COMMITTED) as connection:
            while not finished:
                with connection.begin():
                    batch = connection.execute(_VACUUM, parameters).one()
                parameters["state"], removed, share, finished = batch
                if report:
                    report(share)
        return removed

    def backfill(
        self,
        source: str | Mapping[str, int] | None = None,
        *,
        sketch_column: str | None = None,
        sketch_source: str | None = None,
        all_rows: bool = False,
        batch_rows: int = 1_000,
        workers: int | None = None,
        report: Report | None = None,
    ) -> Filled:
        """Fingerprint the rows that have a text but no fingerprint, while others read and write.

        With `sketch_column`, this column gets the sketches of the column `sketch_source`, by default the single
        source, in these rows and in rows without a sketch; a fingerprint that is there stays.

        The sources are those of the index. If it knows none, `source` is the unquoted name of the text column, or
        of several with their weights, as for `simsql.fingerprint.simhash_parts`. The recipe is that of the index.
        If you named the column, the table needs no index; the recipe is then the given or the default one. With
        `all_rows`, every row gets new values, null if it has no text. Each batch of `batch_rows` is committed, and
        committed batches stay after an interruption. `workers` processes fingerprint a single source. `report` is
        called with the completed share of the rows.

        Raises UsageError for a connection, if the recipe or the source is not that of the index, or neither is
        known, if no column is given and the table has no index or several, and for a column that is not there or
        cannot hold fingerprints or sketches; ValueError if a batch has no rows, there is no source or a weight is
        out of range; sqlalchemy.exc.DBAPIError with PostgreSQL's message: no such table or text column, no primary
        key, missing privileges.
        """
        sketched = sketch_column, sketch_source
        given = {"all_rows": all_rows, "batch_rows": batch_rows, "report": report}
        with self._backfill("backfill", self._column, source, *sketched, given) as backfill:
            return backfill.run(workers)

    def follow(
        self,
        source: str | Mapping[str, int] | None = None,
        *,
        sketch_column: str | None = None,
        sketch_source: str | None = None,
        batch_rows: int = 1_000,
        workers: int | None = None,
        report: Report | None = None,
    ) -> Iterator[Filled]:
        """Backfill, then fingerprint the rows that other programs write, with each step of an endless iterator.

        The first step is a `backfill` with these arguments. The others look for rows without a fingerprint that
        are new since the last step. If there are none, that takes milliseconds in a table of any length, but pause
        between steps. One in a thousand is a backfill again, for rows that appeared in another way: of an attached
        partition, or with a fingerprint and no sketch. `report` is called after each batch and each step. Several
        processes can follow a table. Raises errors as `backfill` does, at any step: then call it again. Raises
        UsageError if the column has no index, unless this object has a recipe.
        """
        given = {"all_rows": False, "batch_rows": batch_rows, "report": report}
        for number in count():
            if number % _STEPS == 0:
                since = None
            with self._backfill("follow", self._column, source, sketch_column, sketch_source, given) as backfill:
                filled = backfill.run(workers, since)
            if not filled.busy:
                since = backfill.began
            yield filled

    def verify_texts(
        self,
        source: str | Mapping[str, int] | None = None,
        *,
        sketch_column: str | None = None,
        sketch_source: str | None = None,
        sample: int | None = 10_000,
        named: int = 20,
        workers: int | None = None,
        report: Report | None = None,
    ) -> Compared:
        """Compute the fingerprints of a sample of rows again from their texts, and compare; write nothing.

        This finds rows whose text was changed by a program that did not update the fingerprint, and rows with a
        text and no fingerprint. With `sketch_column`, it compares the sketches, too. `sample`
        is the number of rows, from random pages; None stands for all rows. The result names the first `named`
        rows that differ. If no column was given, it compares each index of the table, as for the words of a wide
        fingerprint. `source`, `sketch_source`, `workers`, `report` and errors as for `backfill`, which writes the
        right values: with `all_rows` those of stale rows, too.
        """
        if sample is not None and not 1 <= sample < 2**63:
            raise UsageError(f"sample must be from 1 to 2**63 - 1, or None for all rows, not {sample}")
        with check_engine(self._bind, "verify_texts").connect() as connection:
            columns = connection.execute(_COLUMNS, {"table": self._table, "column": self._column}).scalars().all()
        rows, differing, findings = 0, 0, list[Finding]()
        for number, column in enumerate(columns or [self._column]):
            sketched = (None, None) if number else (sketch_column, sketch_source)
            given = {"all_rows": True, "report": report and _part(report, number, max(len(columns), 1))}
            with self._backfill("verify_texts", column, source, *sketched, given) as comparison:
                compared = comparison.compare(sample, max(named - len(findings), 0), workers)
            rows, differing = rows + compared.rows, differing + compared.differing
            findings += compared.findings
        return Compared(rows, differing, findings)

    @contextmanager
    def _backfill(
        self,
        function: str,
        column: str | None,
        source: str | Mapping[str, int] | None,
        sketch_column: str | None,
        sketch_source: str | None,
        options: Mapping[str, Any],
    ) -> Iterator[Backfill]:
        engine = check_engine(self._bind, function)
        weights = None if source is None else dict(Sources.of(source, None).weights)
        with sqlalchemy_errors(), engine.connect().execution_options(**READ_COMMITTED) as connection:
            with connection.begin():
                target = find_target(connection, self._table, column, sketch_column)._replace(given=self._extract)
                if function == "follow" and not target.indexed and self._recipe is None:
                    # The default recipe may not be that of an index that was dropped, perhaps for a moment.
                    raise UsageError(
                        f"{self._table}({target.column}) has no simhash index that says how its fingerprints are"
                        " made: name the recipe (recipe, --recipe)"
                    )
                backfill = Backfill(connection, target, weights, sketch_source, self._recipe, **options)
            yield backfill

    def _prepare(
        self, connection: Connection, query: Query, read_index: TextClause = _RECIPE
    ) -> "tuple[_Described | None, dict[str, object]]":
        """Return the index, which a search for a fingerprint does not look at, and the parameters of a search."""
        index, column, fingerprint = None, self._column, query.fingerprint
        if query.text is not None:
            index = self._describe(connection, query.recipe, read_index)
            column, where = index.column, f"{self._table}({index.column})"
            fingerprint = fingerprint_text(query.text, index.sources, index.recipe, where)
        scope = self._scope if query.scope is None else query.scope
        return index, {
            "in_table": self._table,
            "query": to_bigint(fingerprint),
            "within": query.distance,
            "of_column": column,
            "scope": encode_scope(scope),
        }

    def _describe(
        self, connection: Connection, given: Recipe | None = None, read_index: TextClause = _RECIPE
    ) -> "_Described":
        parameters = {"in_table": self._table, "of_column": self._column}
        column, found, weights, *design = connection.execute(read_index, parameters).one()
        recipe = agreed_recipe(found, given or self._recipe, f"{self._table}({column})")
        sources = Sources.of(weights, recipe) if weights else None
        return _Described(column, recipe, found, sources, Design(*design))

    def _compared(
        self,
        connection: Connection,
        index: _Described,
        text: Text | None,
        text_column: str | Sequence[str] | None,
        sketch_column: str | None,
    ) -> TextColumns:
        """Return the columns whose texts a search compares, with the functions that make texts of their values."""
        given = [text_column] if isinstance(text_column, str) else text_column
        advice = "name the column of the texts (text_column, --text-column)"
        columns = given or compared_source(index.sources, f"{self._table}({index.column})", advice).names
        if isinstance(text, Mapping) and (missing := [column for column in columns if column not in text]):
            raise UsageError(f"text= has no text to compare with the column {missing[0]}: pass it as one str")
        if len(columns) > 1 and sketch_column is not None:
            raise UsageError(f"a sketch is of one text, not of {', '.join(columns)}: omit sketch_column")
        compared: dict[str, Extract | None] = dict.fromkeys(columns)
        for column in columns:
            if index.sources is not None and column in index.sources.names:
                compared[column] = agreed_extract(index.recipe_id, self._extract, f"{self._table}({index.column})")
        plain = [column for column in given or () if compared[column] is None]
        check_compared_columns(connection, self._table, plain, sketch_column, index.recipe.revision)
        return compared

    def _query(self, index: "_Described", text: Text, **options: Unpack[SimilarOptions]) -> SimilarQuery | None:
        where = f"{self._table}({index.column})"
        found = queries_for_text(text, index.sources, index.recipe, [index.design], where, **options)
        return found[0] if found else None

    def _results(
        self, row: type[Row], search: Callable[[SearchedRows], Iterator[Batch]], distance: int | None
    ) -> Results[Row]:
        """Return the results of a search, of which the index and the arguments are checked now."""
        with begin(self._bind) as connection:
            _, parameters = self._prepare(connection, Query(None, distance))
            column, within = connection.execute(_CHECK, parameters).one()
        return Results(
            lambda: begin(self._bind),
            row,
            lambda reader: search(SearchedRows(reader, self._table, column, self._scope, within)),
        )


def compared_texts(
    index: SearchIndex,
    connection: Connection,
    query: RowQuery,
    text_column: str | Sequence[str] | None = None,
    sketch_column: str | None = None,
) -> TextColumns:
    """Return the columns whose texts a search compares: the given ones or, by default, the source of the index."""
    if query.similarity is None and not text_column:
        return {}
    described = index._describe(connection, query.recipe)
    return index._compared(connection, described, query.text, text_column, sketch_column)


def text_of_row(row: Mapping[str, Any], compared: TextColumns) -> str | None:
    """Return the text of a row that a search compares."""
    return join_texts(text_of(row[column], extract) for column, extract in compared.items())


def fingerprint_of_row(
    index: SearchIndex, connection: Connection, row: Mapping[str, Any], text: str | None
) -> int | None:
    """Return the fingerprint of the sources of a row, or of `text` if it knows none. Raises UsageError."""
    found = index._describe(connection)
    where = f"{index._table}({found.column})"
    if found.sources is not None:
        extract = agreed_extract(found.recipe_id, index._extract, where)
        return replace(found.sources, extract=extract).compute(row, where)
    if text is None:
        raise UsageError(f"{where} has no source")
    return fingerprint_text(text, None, found.recipe, where)


def _sketch_arguments(
    column: str | None, text: str | None, similarity: float, recipe: Recipe
) -> dict[str, str | int | None]:
    """Return the arguments that leave out rows whose sketch is too different; UsageError for letters."""
    if column is None:
        return {}
    if compares_features(recipe):
        raise UsageError(f"sketches are of words, and {recipe.id} compares characters: omit sketch_column")
    of_text = None if text is None else to_bigint(sketch(text, revision=recipe.revision))
    return {"sketch_column": column, "sketch": of_text, "differing": sketch_distance(similarity)}


def _matching_rows(connection: Connection, search: str, arguments: Mapping[str, object]) -> list[MatchingRow]:
    is_bytes = has_bytes(connection.connection.dbapi_connection)
    document = as_bytes("CAST(document AS pg_catalog.text)") if is_bytes else "document"
    statement = text(search.format(document=document)).bindparams(sketch_column=None, sketch=None, differing=None)
    return [
        MatchingRow(from_bigint(match), bits, document_of(row))
        for match, bits, row in connection.execute(statement, arguments)
    ]


def _similar_rows(
    found: list[MatchingRow], text: str | None, compared: TextColumns, least: float, recipe: Recipe
) -> list[tuple[int, MatchingRow]]:
    """Return the rows that are similar enough, most similar first, each with its place."""
    if text is None:
        return []
    texts = [text_of_row(match.row, compared) for match in found]
    alike = similar_texts(text, texts, recipe, least)
    return [(place, found[place]._replace(similarity=value)) for place, value in alike]


def _part(report: Report, number: int, parts: int) -> Report:
    """Return what reports the share of one of several parts of the work."""
    return lambda share: report((number + share) / parts)


def _find_matches_in_sql(rows: SearchedRows, *, queries: Fingerprints) -> Iterator[Batch]:
    """Yield the matches of each query, as PostgreSQL finds them."""
    parameters = {
        "in_table": rows.table,
        "query": queries.view(np.int64).tolist(),
        "within": rows.distance,
        "of_column": rows.column,
        "scope": encode_scope(rows.scope),
    }
    # A cursor in the server needs a transaction.
    autocommit = getattr(rows.connection.connection.dbapi_connection, "autocommit", False)
    options = {} if autocommit else {"yield_per": _FETCHED}
    with rows.connection.execute(_NEAR_MANY, parameters, execution_options=options) as found:
        for part in found.partitions(_FETCHED):
            query, fingerprint, bits = np.array(part, dtype=np.int64).T
            matches = {"query": query.view(np.uint64), "fingerprint": fingerprint.view(np.uint64)}
            yield {**matches, "distance": bits.astype(np.uint8)}
