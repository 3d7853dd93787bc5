"""`simsql dedup`: clusters of near-duplicates in files."""

import csv
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated

from simsql.cli._app import command
from simsql.cli._database import database_or_default, postgresql_errors
from simsql.cli._options import (
    Database,
    Encoding,
    Formatted,
    IdField,
    MaxDocument,
    NewRecipeName,
    Paths,
    Quiet,
    ServerDir,
    TextField,
    distance_option,
    option,
    parse_max_document,
)
from simsql.cli._recipes import parse_recipe
from simsql.cli._terminal import (
    Format,
    ProgressBars,
    choose_format,
    count_skips,
    messages,
    print_skips,
    print_summary,
)
from simsql.dedup.job import ClusterWriter, DedupOptions, DedupSummary, JsonLines, run_dedup
from simsql.dedup.ranking import RankedDocument
from simsql.dedup.workspace import Destination
from simsql.documents import printable
from simsql.fingerprint import DEFAULT_RECIPE


class _Delimited:
    """Write one line per member of a cluster."""

    def __init__(self, delimiter: str) -> None:
        self._delimiter = delimiter

    def head(self) -> str:
        return self._lines([("cluster", "id", "place", "distance", "droppable")])

    def cluster(self, number: int, members: Sequence[RankedDocument]) -> str:
        return self._lines(
            (number, member.document.name, member.document.place, member.distance, json.dumps(member.droppable))
            for member in members
        )

    def _lines(self, rows: Iterable[Sequence[object]]) -> str:
        text = io.StringIO()
        csv.writer(text, delimiter=self._delimiter, lineterminator="\n").writerows(rows)
        return text.getvalue()


class _Table:
    """Write one line per member, up to ten, with the size of the cluster on the first."""

    def head(self) -> str:
        return ""  # nothing, if there are no clusters

    def cluster(self, number: int, members: Sequence[RankedDocument]) -> str:
        head = f"{'cluster':>7}  {'size':>7}  {'distance':>8}  document\n" if number == 1 else ""
        first, blank = f"{number:>7,}  {len(members):>7,}", " " * 16
        lines = [
            f"{blank if place else first}  {member.distance:>8}  {printable(member.document.name)}\n"
            for place, member in enumerate(members[:_SHOWN])
        ]
        if len(members) > _SHOWN:
            lines.append(f"{blank}  {'':>8}  and {len(members) - _SHOWN:,} more\n")
        return head + "".join(lines)


_SHOWN = 10  # members of a cluster in a table
_WRITERS: dict[Format, ClusterWriter] = {
    Format.TABLE: _Table(),
    Format.JSONL: JsonLines(),
    Format.CSV: _Delimited(","),
    Format.TSV: _Delimited("\t"),
}


@command("dedup")
def dedup_command(
    paths: Paths,
    distance: Annotated[int, distance_option(" between near-duplicates")] = 7,
    recipe: NewRecipeName = None,
    text_field: TextField = "text",
    id_field: IdField = "id",
    encoding: Encoding = "utf-8",
    max_document: MaxDocument = "100MB",
    database: Database = None,
    server_dir: ServerDir = None,
    table: Annotated[
        str | None,
        option(
            "--table",
            ": keep the documents in it for later runs; by default, simsql_documents with --server-dir and none"
            " with --database",
        ),
    ] = None,
    output: Annotated[Path | None, option("--output")] = None,
    form: Formatted = None,
    drop_list: Annotated[Path | None, option("--drop-list")] = None,
    quiet: Quiet = False,
) -> None:
    """Find clusters of near-duplicates in files.

    Print one line of JSON per cluster, or one line per member in the other formats. A table shows up to ten
    members of each cluster. Distances are measured from the representative, the most central document. Documents
    that cannot be read are skipped, counted and listed in the summary on stderr.
    """
    console = messages(quiet=quiet)
    options = DedupOptions(
        paths,
        distance=distance,
        recipe=parse_recipe(recipe) or DEFAULT_RECIPE,
        text_field=text_field,
        id_field=id_field,
        encoding=encoding,
        max_document=parse_max_document(max_document),
        destination=Destination(database_or_default(database, server_dir), server_dir, table),
        output=output,
        writer=_WRITERS[form or (Format.JSONL if output else choose_format(None))],
        drop_list=drop_list,
    )
    with postgresql_errors():
        summary = run_dedup(options, ProgressBars(console))
    print_skips(summary.skips, console)
    print_summary(_counts(summary), summary.seconds, console)


def _counts(summary: DedupSummary) -> Iterator[tuple[str, int]]:
    yield "documents", summary.documents
    if summary.stored > summary.loaded.added:
        yield "  new", summary.loaded.added
        yield "  with another text than before", summary.loaded.changed
        yield "  known already", summary.loaded.unchanged
        yield "documents in the table", summary.stored
    yield from count_skips(summary.skips)
    found = summary.clusters
    yield "clusters", found.clusters
    yield "  documents in them", found.members
    if found.far:
        yield "  farther from the representative", found.far
    yield "documents that could be dropped", found.droppable
    if found.unlisted:
        yield "  not in the drop list", found.unlisted
