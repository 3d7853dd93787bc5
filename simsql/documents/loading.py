"""Load documents and their fingerprints into a table of the user."""

from collections import Counter
from collections.abc import Iterable, Iterator

from sqlalchemy import Connection, text

from simsql.database.bigint import to_bigint
from simsql.database.load import find_target
from simsql.database.rows_with_origin import RowWithOrigin, load_rows_with_origin
from simsql.database.sources import text_of
from simsql.database.unique import NewDocument
from simsql.documents import Document, DocumentReader, Report, Skip, Stages
from simsql.documents.reports import DUPLICATE, repeated_id
from simsql.fingerprint import Recipe


def load_documents(
    connection: Connection,
    reader: DocumentReader,
    table: str,
    stages: Stages,
    *,
    id_column: str | None = None,
    text_column: str | None = None,
    column: str | None = None,
    sketch_column: str | None = None,
    recipe: Recipe | None = None,
    workers: int | None = None,
    fingerprints: bool = False,
) -> Counter[str]:
    """Add one row per document to a table, in the connection's transaction, and count them.

    Skip documents whose id the table already has, if the id column has a unique index. `table` is a name as in
    SQL. Without `column`, the fingerprints go to that of the table's only index, by its recipe; without another
    column, ids, texts or sketches are left out. With `fingerprints`, texts are these, as 16 hexadecimal digits.

    Raises UsageError for invalid arguments, SimsqlError if there are no documents or PostgreSQL refuses one, and
    psycopg.Error and sqlalchemy.exc.DBAPIError for its other errors. No rows are added then.
    """
    # The source may be slow.
    connection.execute(text("SET LOCAL idle_in_transaction_session_timeout = 0"))
    target = find_target(connection, table, column, sketch_column)
    extract = None if fingerprints else target.extract()
    if text_column is not None:
        target.weights({text_column: 1})
    columns = [name for name in (id_column, text_column) if name is not None]
    empty = 0

    def rows(items: Iterable[Document]) -> Iterator[RowWithOrigin]:
        nonlocal empty

        def placed() -> Iterator[tuple[RowWithOrigin, str]]:
            for item in items:
                if text_column is not None and not _is_storable(item.text):
                    reader.skips.add(_not_storable(item))
                elif fingerprints and item.line is None:
                    reader.skips.add(Skip(item.place, "not a fingerprint", "only records have fingerprints"))
                else:
                    stored = [] if id_column is None else [item.name]
                    stored += [] if text_column is None else [item.text]
                    yield RowWithOrigin(stored, item.name, item.place), text_of(item.text, extract) or ""
                    del stored
                del item  # a long document is not kept while the next one is read

        found = (
            ((row, (to_bigint(text),)) for row, text in placed())
            if fingerprints
            else target.compute(placed(), target.recipe(recipe), workers)
        )
        for row, values in found:
            empty += values[0] is None
            row.extend(values)
            yield row

    def skip(row: RowWithOrigin, earlier: RowWithOrigin | None) -> None:
        nonlocal empty
        empty -= row[len(columns)] is None
        where = f"is already in {table}" if earlier is None else f"was already read at {earlier.place}"
        reader.skips.add(repeated_id(row.place, row.name, where))

    with stages.stage("read, fingerprint, load", reader.bytes_total) as report:
        documents = load_rows_with_origin(
            connection,
            table,
            [*columns, *target.columns],
            rows(reader.documents(report)),
            id_column=id_column,
            skip=skip,
        )
    reader.skips.check_fields()
    # A load that is repeated has nothing to add.
    if not documents and not reader.skips.by_reason[DUPLICATE]:
        raise reader.nothing_found()
    return Counter({"loaded": documents, "without words": empty})


def new_documents(reader: DocumentReader, report: Report) -> Iterator[NewDocument]:
    """Yield the documents for `load_unique`, and count the skips."""
    for item in reader.documents(report):
        if _is_storable(item.text):
            yield NewDocument(item.name, item.text, item.place)
        else:
            reader.skips.add(_not_storable(item))


def _not_storable(document: Document) -> Skip:
    return Skip(document.place, "not storable", "PostgreSQL cannot store NUL or lone surrogates")


def _is_storable(text: str) -> bool:
    try:
        return b"\0" not in text.encode()
    except UnicodeEncodeError:
        return False
