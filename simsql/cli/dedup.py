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
    Workers,
    distance_option,
    option,
    parse_max_document,
    path_option,
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
from simsql.cores import usable_cores
from simsql.dedup.job import ClusterWriter, DedupOptions, DedupSummary, JsonLines, RankedDocument, run_dedup
from simsql.dedup.workspace import Destination
from simsql.documents import DUPLICATE, printable
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


class _FirstClusters(_Table):
    """Keep the table of the first clusters until the end: a terminal shows no more of them than a person reads."""

    def __init__(self) -> None:
        self._kept: list[str] = []
        self._left_out = 0

    def cluster(self, number: int, members: Sequence[RankedDocument]) -> str:
        if number <= _SHOWN_CLUSTERS:
            self._kept.append(super().cluster(number, members))
        else:
            self._left_out += 1
        return ""

    def kept(self) -> str:
        more = f"and {self._left_out:,} more clusters: --output FILE writes them all\n" if self._left_out else ""
        return "".join(self._kept) + more


_NOT_UNIQUE = "ids must be unique across all files: name another field with --id-field, or one that no record has"
_SHOWN = 10  # members of a cluster in a table
_SHOWN_CLUSTERS = 20  # at a terminal
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
    workers: Workers = None,
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
    output: Annotated[Path | None, path_option("--output")] = None,
    form: Formatted = None,
    drop_list: Annotated[Path | None, path_option("--drop-list")] = None,
    quiet: Quiet = False,
) -> None:
    """Find clusters of near-duplicates in files.

    Print one line of JSON per cluster, or one line per member in the other formats. A table shows up to ten
    members of each cluster; at a terminal, it is the default and ends after the 20 largest clusters. Distances are
    measured from the representative, the most central document. Documents that cannot be read are skipped, counted
    and listed in the summary on stderr.
    """
    console = messages(quiet=quiet)
    chosen = form or (_format_of(output) if output else choose_format(None))
    first = _FirstClusters() if form is None and chosen is Format.TABLE else None
    target = database_or_default(database, server_dir)
    options = DedupOptions(
        paths,
        distance=distance,
        recipe=parse_recipe(recipe) or DEFAULT_RECIPE,
        text_field=text_field,
        id_field=id_field,
        encoding=encoding,
        max_document=parse_max_document(max_document),
        workers=workers or usable_cores(),
        destination=Destination(target, server_dir, table),
        output=output,
        writer=first or _WRITERS[chosen],
        drop_list=drop_list,
    )
    stages = ProgressBars(console, results_wait=first is not None)
    with postgresql_errors():
        summary = run_dedup(options, stages)
    stages.add_stage("disconnect" if target else "stop the server")
    if first:
        print(first.kept(), end="", flush=True)
    print_skips(summary.skips, console)
    if summary.skips.by_reason[DUPLICATE]:
        console.print(_NOT_UNIQUE, soft_wrap=True)
    print_skips(summary.wordless, console, what="not compared:")
    print_skips(summary.clusters.unlisted, console, what="not in the drop list:")
    print_summary(_counts(summary), stages, console)


def _format_of(output: Path) -> Format:
    """Return the format that the ending of a file names, by default JSON lines."""
    ending = output.suffix.lower().removeprefix(".")
    return Format(ending) if ending in (Format.CSV, Format.TSV) else Format.JSONL


def _counts(summary: DedupSummary) -> Iterator[tuple[str, int]]:
    yield "documents", summary.documents
    if wordless := summary.wordless.by_reason.total():
        yield "  without words: no fingerprint", wordless
    if summary.stored > summary.loaded.added:
        yield "  new", summary.loaded.added
        yield "  changed", summary.loaded.changed
        yield "  known already", summary.loaded.unchanged
        yield "documents in the table", summary.stored
    yield from count_skips(summary.skips)
    found = summary.clusters
    yield "clusters", found.clusters
    yield "  documents in them", found.members
    if found.far:
        yield "  farther from the representative", found.far
    yield "documents that could be dropped", found.droppable
    if unlisted := found.unlisted.by_reason.total():
        yield "  not in the drop list", unlisted
