"""`simsql load` and `simsql backfill`: rows with fingerprints, from files and for texts that are there."""

from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Annotated

from simsql.cli._app import command
from simsql.cli._database import Working
from simsql.cli._options import (
    IndexedColumn,
    Paths,
    Reading,
    RecipeName,
    SketchColumn,
    SketchedColumn,
    SourceColumns,
    TableName,
    Workers,
    number_option,
    option,
    parse_sketched,
    parse_sources,
)
from simsql.cli._recipes import parse_recipe
from simsql.cli._terminal import count_skips, print_skips, print_summary
from simsql.database import SearchIndex
from simsql.documents import Layout
from simsql.documents.loading import load_documents
from simsql.errors import UsageError
from simsql.processes import usable_cores


@dataclass(frozen=True)
class _Reading(Reading):
    fingerprint_field: Annotated[str | None, option("--fingerprint-field")] = None

    def layout(self) -> Layout:
        """Return the fields, the encoding and the limit. Fingerprints stand in the place of texts."""
        layout = super().layout()
        if self.fingerprint_field is None:
            return layout
        name = self.fingerprint_field.removesuffix("=decimal")
        return replace(
            layout, text_field=name, fingerprints="hex" if name == self.fingerprint_field else "decimal"
        )


@command("load")
def load_command(
    *,
    table: TableName,
    paths: Paths,
    id_column: Annotated[str | None, option("--id-column")] = None,
    text_column: Annotated[str | None, option("--text-column", "; by default, they are not stored")] = None,
    column: IndexedColumn = None,
    sketch_column: SketchColumn = None,
    recipe: RecipeName = None,
    reading: _Reading,
    workers: Workers = None,
    run: Working,
) -> None:
    """Load documents and their fingerprints into a table.

    Add one row per document, or none if the load fails. Fingerprints follow the recipe of the table's index, which
    stays up to date. Documents that cannot be read are skipped, counted and listed in the summary on stderr, as
    are those whose id the table already has, if the id column has a unique index.
    """
    has_fingerprints = reading.fingerprint_field is not None
    if has_fingerprints and (text_column or sketch_column or recipe or reading.text_field != "text"):
        raise UsageError(
            "--fingerprint-field reads no texts: leave out --text-field, --text-column, --sketch-column and"
            " --recipe"
        )
    reader, made_by = reading.open(paths), parse_recipe(recipe)
    stages = run.stages()
    has_url = run.url() is not None
    with ExitStack() as stack:
        with stages.stage("connect" if has_url else "start the server"):
            engine = stack.enter_context(run.open())
            connection = stack.enter_context(engine.connect())
        summary = load_documents(
            connection,
            reader,
            table,
            stages,
            id_column=id_column,
            text_column=text_column,
            column=column,
            sketch_column=sketch_column,
            recipe=made_by,
            workers=workers or usable_cores(),
            fingerprints=has_fingerprints,
        )
        with stages.stage("commit"):
            connection.commit()
    stages.add_stage("disconnect" if has_url else "stop the server")
    print_skips(reader.skips, run.console)
    counts = [("documents", summary.documents)]
    if summary.without_fingerprint:
        counts.append(("  without words: no fingerprint", summary.without_fingerprint))
    print_summary([*counts, *count_skips(reader.skips)], stages, run.console)
    reader.skips.check_read()


@command("backfill")
def backfill_command(
    *,
    table: TableName,
    text_column: SourceColumns = None,
    column: IndexedColumn = None,
    sketch_column: SketchedColumn = None,
    recipe: RecipeName = None,
    all_rows: Annotated[bool, option("--all-rows")] = False,
    batch: Annotated[int, number_option("--batch", least=1)] = 1_000,
    workers: Annotated[int | None, number_option("--workers", "; one for several text columns", least=1)] = None,
    run: Working,
) -> None:
    """Fingerprint the rows that have no fingerprint.

    The texts are in the columns that the index knows or, if it knows none, in --text-column. With --sketch-column,
    also sketch the rows that have no sketch. Process the table in primary key order and
    commit each batch, while others read and write. If it is interrupted, run it again and it resumes. Also run it
    again after other programs have added rows without fingerprints.
    """
    made_by = parse_recipe(recipe)
    sketches, sketch_source = parse_sketched(sketch_column)
    with run.open() as engine, run.stages().shares("fingerprints") as report:
        filled = SearchIndex(engine, table, column, recipe=made_by).backfill(
            parse_sources(text_column),
            sketch_column=sketches,
            sketch_source=sketch_source,
            all_rows=all_rows,
            batch_rows=batch,
            workers=workers or usable_cores(),
            report=report,
        )
    sketched = f", sketched {_rows(filled.sketched)}" if sketch_column else ""
    print(f"Fingerprinted {_rows(filled.written)}{sketched}")
    if filled.unchanged:
        print(f"Left {_rows(filled.unchanged)} unchanged: the fingerprints are up to date")
    if filled.without_features:
        print(f"Left {_rows(filled.without_features)} without a fingerprint: no words in the text")
    if filled.busy:
        print(f"Skipped {_rows(filled.busy)} that others were writing: run it again")


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count:,} rows"
