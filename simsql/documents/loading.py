"""Load documents and their fingerprints into a table of the user."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from sqlalchemy import Connection, text

from simsql.database import to_bigints
from simsql.database.load import find_loaded_column
from simsql.database.placed import PlacedRow, load_placed_rows
from simsql.documents import (
    DUPLICATE,
    VISIBLE,
    Document,
    DocumentReader,
    Layout,
    Selection,
    Skip,
    SkipCount,
    Stages,
    nothing_found,
    repeated_id,
    reporting,
)
from simsql.errors import SimsqlError
from simsql.fingerprint import Recipe, simhash_items


@dataclass(frozen=True)
class LoadOptions:
    """The input of a load and its target columns. `-` among the paths is JSON lines on stdin."""

    paths: Sequence[str]
    table: str
    """Table name as in SQL."""
    id_column: str | None = None
    text_column: str | None = None
    """Columns for ids and texts; None to leave them out."""
    column: str | None = None
    """Fingerprint column; None for the column of the table's only index."""
    recipe: Recipe | None = None
    """Recipe; None for that of the index, or the default."""
    layout: Layout = field(default_factory=Layout)
    selection: Selection = VISIBLE
    workers: int | None = None
    """Number of processes that compute fingerprints; None for this process only."""


@dataclass(frozen=True)
class LoadSummary:
    """The results of a load."""

    documents: int
    """Number of added rows."""
    without_fingerprint: int
    """Number of added rows without a fingerprint, because their text has no words."""
    skips: SkipCount
    seconds: dict[str, float]


def run_load(connection: Connection, options: LoadOptions, stages: Stages) -> LoadSummary:
    """Add one row per document to a table, in the connection's transaction, and return a summary.

    Skip documents whose id the table already has, if the id column has a unique index.

    Raises UsageError for invalid arguments, SimsqlError if there are no documents or PostgreSQL refuses one, and
    psycopg.Error or sqlalchemy.exc.DBAPIError for other PostgreSQL errors. In these cases, no rows are added.
    """
    reader = DocumentReader(options.paths, options.layout, selection=options.selection, stdin=sys.stdin.buffer)
    # The source may be slow.
    connection.execute(text("SET LOCAL idle_in_transaction_session_timeout = 0"))
    target = find_loaded_column(connection, options.table, options.column)
    recipe = target.recipe(options.recipe)
    columns = [name for name in (options.id_column, options.text_column) if name is not None]
    skips = SkipCount()
    empty = 0

    def rows(items: Iterable[Document | Skip]) -> Iterator[PlacedRow]:
        nonlocal empty

        def placed() -> Iterator[tuple[PlacedRow, str]]:
            for item in items:
                if isinstance(item, Skip):
                    skips.add(item)
                elif options.text_column is not None and not _is_storable(item.text):
                    skips.add(Skip(item.place, "not storable", "PostgreSQL cannot store NUL or lone surrogates"))
                else:
                    stored = [] if options.id_column is None else [item.name]
                    stored += [] if options.text_column is None else [item.text]
                    yield PlacedRow(stored, item.name, item.place), item.text
                    del stored
                del item  # a long document is not kept while the next one is read

        for batch, fingerprints in simhash_items(placed(), recipe, options.workers):
            for row, bigint in zip(batch, to_bigints(fingerprints), strict=True):
                empty += bigint is None
                row.append(bigint)
                yield row

    def skip(row: PlacedRow, earlier: PlacedRow | None) -> None:
        nonlocal empty
        empty -= row[-1] is None
        where = f"is already in {options.table}" if earlier is None else f"was already read at {earlier.place}"
        skips.add(repeated_id(row.place, row.name, where))

    with stages.stage("read, fingerprint, load", reader.bytes_total) as report:
        items = reporting(reader, report)
        documents = load_placed_rows(
            connection,
            options.table,
            [*columns, target.column],
            rows(items),
            id_column=options.id_column,
            skip=skip,
        )
    # A load that is repeated has nothing to add.
    if not documents and not skips.by_reason[DUPLICATE]:
        raise SimsqlError(nothing_found(options.paths, skips))
    return LoadSummary(documents, empty, skips, stages.seconds)


def _is_storable(text: str) -> bool:
    try:
        return b"\0" not in text.encode()
    except UnicodeEncodeError:
        return False
