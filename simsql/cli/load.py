"""`simsql load`: rows with fingerprints, from files."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from simsql.cli._app import command
from simsql.cli._database import Working
from simsql.cli._options import (
    OF_TITLES,
    Formatted,
    IndexedColumn,
    Paths,
    Reading,
    RecipeName,
    ScopeValues,
    SketchColumn,
    TableName,
    Workers,
    distance_option,
    number_option,
    option,
    parse_recipe,
    parse_scope,
    path_option,
    share_option,
)
from simsql.cli._terminal import count_skips, print_skips, print_summary
from simsql.documents import STDOUT, Layout, Outputs, format_rows, open_output
from simsql.documents.output_formats import Column, Format, choose_format, format_of_file, print_rows
from simsql.errors import UsageError
from simsql.processes import usable_cores

if TYPE_CHECKING:
    from simsql.database.unique import Decision


@dataclass(frozen=True)
class _Reading(Reading):
    fingerprint_field: Annotated[str | None, option("--fingerprint-field")] = None

    def layout(self) -> Layout:
        """Return the fields, the encoding and the limit. Fingerprints stand in the place of texts."""
        layout = super().layout()
        if self.fingerprint_field is None:
            return layout
        name, _, strings = self.fingerprint_field.rpartition("=")
        if strings in ("hex", "decimal"):
            return replace(layout, text_fields=(name,), fingerprints=strings)
        return replace(layout, text_fields=(self.fingerprint_field,), fingerprints="padded")


_LEFT_OUT = (*map(Column, ("id", "place", "kept")), Column("distance", "number"), Column("similarity", "number"))
_ONLY_UNIQUE = "; only with --unique"
_FOUND = 3  # the exit code of --dry-run for documents that would be left out


@dataclass(frozen=True)
class _Unique:
    unique: Annotated[bool, option("--unique")] = False
    distance: Annotated[int | None, distance_option(f"{_ONLY_UNIQUE}, by default 12")] = None
    similarity: Annotated[
        float | None, share_option("--similarity", f"{OF_TITLES}{_ONLY_UNIQUE}, by default 0.6")
    ] = None
    scope: ScopeValues = None
    replace: Annotated[bool, option("--replace", f": rows whose id comes with another text{_ONLY_UNIQUE}")] = False
    dry_run: Annotated[bool, option("--dry-run", _ONLY_UNIQUE)] = False
    batch: Annotated[int | None, number_option("--batch", f"{_ONLY_UNIQUE}, by default 500", least=1)] = None
    output: Annotated[Path | None, path_option("--output")] = None
    form: Formatted = None

    def check(self, *, has_fingerprints: bool) -> None:
        """Raise UsageError for options that do not fit each other."""
        given = [found.name for found in fields(self) if getattr(self, found.name) not in (found.default, [])]
        if given and not self.unique:
            flag = "format" if given[0] == "form" else given[0].replace("_", "-")
            raise UsageError(f"--{flag} needs --unique")
        if self.unique and has_fingerprints:
            raise UsageError("--unique compares texts: leave out --fingerprint-field")
        if self.is_in_file and self.form is Format.TABLE:
            raise UsageError("--format table is for stdout: write JSON lines, CSV or TSV into a file")

    @property
    def is_in_file(self) -> bool:
        """Whether a file receives the documents that are left out."""
        return self.output not in (None, STDOUT)

    def arguments(self) -> dict[str, Any]:
        """Return the arguments for `load_unique`."""
        given: dict[str, Any] = {
            "distance": self.distance,
            "similarity": self.similarity,
            "batch_rows": self.batch,
        }
        given |= {"scope": parse_scope(self.scope), "replace": self.replace, "dry_run": self.dry_run}
        return {name: value for name, value in given.items() if value is not None}

    def write(self, decisions: Iterable[Decision]) -> Counter[str]:
        """Write the documents that are left out, and count all."""
        counts: Counter[str] = Counter()

        def rows() -> Iterator[tuple[Any, ...]]:
            for one in decisions:
                counts[one.outcome] += 1
                counts["without words"] += not one.has_fingerprint and one.outcome in ("loaded", "replaced")
                if one.outcome == "left out":
                    similarity = round(one.similarity or 0, 6)
                    yield one.document.id, one.document.place, one.kept, one.distance, similarity

        if self.output is None or self.output == STDOUT:
            print_rows(choose_format(self.form), _LEFT_OUT, rows())
        else:
            form = self.form or format_of_file(self.output)
            with open_output(self.output) as file:
                for line in format_rows(form, [column.name for column in _LEFT_OUT], rows()):
                    file.write(line)
        return counts


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
    deciding: _Unique,
    run: Working,
) -> None:
    """Load documents and their fingerprints into a table.

    Add one row per document, or none if the load fails or a file is not read in full. Fingerprints follow the
    recipe of the table's index, which stays up to date. Documents that cannot be read are skipped, counted and
    listed in the summary on stderr, as are those whose id the table already has, if the id column has a unique
    index. With --unique, commit each batch, and list the documents that are left out, each with its row.
    """
    from simsql.database import load_unique
    from simsql.documents.loading import load_documents, new_documents

    has_fingerprints = reading.fingerprint_field is not None
    if has_fingerprints and (text_column or sketch_column or recipe or reading.text_field):
        raise UsageError(
            "--fingerprint-field reads no texts: leave out --text-field, --text-column, --sketch-column and"
            " --recipe"
        )
    deciding.check(has_fingerprints=has_fingerprints)
    if deciding.unique and not (id_column and text_column):
        raise UsageError("--unique compares texts and names rows by ids: give --id-column and --text-column")
    reader = reading.open(paths, outputs=Outputs({"--output": deciding.output}))
    shared: dict[str, Any] = {"column": column, "sketch_column": sketch_column, "recipe": parse_recipe(recipe)}
    shared |= {"id_column": id_column, "text_column": text_column, "workers": workers or usable_cores()}
    stages = run.stages()
    has_url = run.url() is not None
    with ExitStack() as stack:
        with stages.stage("connect" if has_url else "start the server"):
            engine = stack.enter_context(run.open())
        if deciding.unique:
            # A progress bar would break up the lines of the output.
            shown = deciding.is_in_file or not sys.stdout.isatty()
            with stages.stage("read, compare, load", reader.bytes_total, shown=shown) as report:
                documents = new_documents(reader, report)
                counts = deciding.write(
                    load_unique(engine, table, documents, **shared, **deciding.arguments(), waits=run.remark)
                )
            if not counts:
                raise reader.nothing_found()
            print_skips(reader.skips, run.console)
        else:
            with engine.connect() as connection:
                counts = load_documents(connection, reader, table, stages, **shared, fingerprints=has_fingerprints)
                print_skips(reader.skips, run.console)
                reader.skips.check_read("nothing is loaded")
                with stages.stage("commit"):
                    connection.commit()
    stages.add_stage("disconnect" if has_url else "stop the server")
    print_summary([*_lines(counts, deciding), *count_skips(reader.skips)], stages, run.console)
    reader.skips.check_read()
    if deciding.dry_run and counts["left out"]:
        raise typer.Exit(_FOUND)


def _lines(counts: Counter[str], deciding: _Unique) -> Iterator[tuple[str, int]]:
    """Yield the lines of the summary about documents that were read."""
    without_words = counts.pop("without words", 0)
    yield "documents", counts.total()
    if deciding.unique:
        would = "would be " if deciding.dry_run else ""
        yield f"  {would}loaded", counts["loaded"]
        yield from ((f"  {name}", counts[name]) for name in ("loaded before", "replaced") if counts[name])
        yield f"  {would}left out: near-duplicates", counts["left out"]
    if without_words:
        yield "  without words: no fingerprint", without_words
