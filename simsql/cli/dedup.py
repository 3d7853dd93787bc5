"""`simsql dedup`: clusters of near-duplicates in files."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from simsql.cli._app import command
from simsql.cli._database import Connecting, postgresql_errors
from simsql.cli._explanation import print_explained_pair
from simsql.cli._options import (
    Deciding,
    Formatted,
    Html,
    NewRecipeName,
    OptionalPaths,
    Reading,
    Workers,
    option,
    path_option,
    read_real_path,
)
from simsql.cli._recipes import parse_recipe
from simsql.cli._terminal import Telling, count_skips, print_skips, print_summary
from simsql.database.database_choice import DatabaseChoice
from simsql.decide.rules import PICTURE_DROP_SIMILARITY, Keep, Rules
from simsql.dedup.cluster_formats import TABLE, FirstClusters, choose_writer
from simsql.dedup.job import DedupOptions, DedupSummary, run_dedup
from simsql.dedup.store.destination import Destination
from simsql.dedup.writing import ClusterCount, ClusterOutput
from simsql.documents import FLAT, STDOUT, Layout, printable
from simsql.errors import UsageError
from simsql.fingerprint import DEFAULT_RECIPE, Recipe
from simsql.processes import usable_cores

_FOUND = 3  # the exit code of --against for documents that could be dropped


@dataclass(frozen=True)
class _Connecting(Connecting):
    database: Annotated[str | None, option("--database", ", and only for --table")] = None


@dataclass(frozen=True)
class _Deciding(Deciding):
    keep_under: Annotated[list[str] | None, option("--keep-under", parser=read_real_path)] = None

    def rules(self) -> Rules:
        """Return the rules of the decisions."""
        return replace(super().rules(), keep_under=tuple(self.keep_under or ()))

    def rules_for(self, recipe: Recipe) -> Rules:
        """Return the rules of the decisions, with other defaults for pictures: the largest one is kept."""
        rules = self.rules()
        if not recipe.of_pictures:
            return rules
        if rules.checks_texts and rules.drop_similarity is None:
            rules = replace(rules, drop_similarity=max(PICTURE_DROP_SIMILARITY, rules.similarity))
        return rules if self.keep or self.keep_field else replace(rules, keep=Keep.LONGEST)


@dataclass(frozen=True)
class _Reading(Reading):
    html: Annotated[Html, option("--html")] = Html.SOURCE

    def layout(self) -> Layout:
        """Return the fields, the encoding, the limit, and what to read of web pages."""
        return replace(super().layout(), main_content=self.html is Html.MAIN)


@command("dedup")
def dedup_command(
    *,
    context: typer.Context,
    paths: OptionalPaths = None,
    against: Annotated[list[str] | None, option("--against")] = None,
    deciding: _Deciding,
    recipe: NewRecipeName = None,
    reading: _Reading,
    workers: Workers = None,
    connecting: _Connecting,
    store_in: Annotated[
        str | None,
        option("--table", "; by default simsql_documents with --server-dir, else none: all is in memory"),
    ] = None,
    redecide: Annotated[bool, option("--redecide")] = False,
    new_only: Annotated[bool, option("--new-only")] = False,
    output: Annotated[Path | None, path_option("--output")] = None,
    form: Formatted = None,
    drop_list: Annotated[Path | None, path_option("--drop-list")] = None,
    null: Annotated[bool, option("--null")] = False,
    clean: Annotated[Path | None, path_option("--clean")] = None,
    report: Annotated[Path | None, path_option("--report")] = None,
    explain: Annotated[
        tuple[str, str] | None,
        option("--explain", ": why two documents are together or apart; store no decisions", metavar="ID ID"),
    ] = None,
    telling: Telling,
) -> None:
    """Find near-duplicates in files, and decide which to drop.

    Texts with near fingerprints are compared word by word or, with --recipe phash, pictures by thumbnails. Print
    one line of JSON per cluster, or one line per member in the other formats. A table shows up to ten members of
    each cluster; at a terminal, it is the default and ends after the 20 largest clusters. Every document that
    could be dropped is similar to one that is kept. Documents that cannot be read are skipped, counted and
    listed in the summary on stderr. Nothing is kept, and no PostgreSQL is needed, without --table and
    --server-dir.
    """
    if not (paths or explain):
        raise typer.BadParameter("name the files to read", ctx=context, param_hint="PATH")
    if explain and (output or drop_list or clean or report):
        raise UsageError("--explain writes no clusters: leave out --output, --drop-list, --clean and --report")
    if null and not drop_list:
        raise UsageError("--null needs --drop-list FILE")
    output = None if output == STDOUT else output
    writer = choose_writer(output, form)
    first = FirstClusters() if form is None and writer is TABLE and not explain else None
    writer = TABLE._replace(cluster=first.keep) if first else writer
    # Without a table, the default of the environment is not used.
    target = connecting.chosen() if store_in or connecting.is_given else DatabaseChoice()
    chosen = parse_recipe(recipe) or DEFAULT_RECIPE
    options = DedupOptions(
        paths or [],
        against=against or (),
        new_only=new_only,
        rules=deciding.rules_for(chosen),
        redecide=redecide,
        recipe=chosen,
        layout=reading.layout(),
        selection=reading.selection(),
        workers=workers or usable_cores(),
        destination=Destination(target.database, target.server_dir, store_in),
        output=ClusterOutput(output, writer, drop_list, null, report, clean),
        explain=explain,
    )
    if recipe:
        options.outputs().refuse(Path(recipe))
    stages = telling.stages(results_wait=first is not None)
    with postgresql_errors():
        summary = run_dedup(options, stages)
    if target.stays:
        stages.add_stage("disconnect" if target.database else "stop the server")
    if first:
        print(first.kept(), end="", flush=True)
    print_skips(summary.skips, telling.console)
    print_skips(summary.wordless, telling.console, what="not compared:")
    print_skips(summary.forgotten, telling.console, what="forgotten:")
    if summary.unchecked:
        telling.console.print(_describe_unchecked(summary), soft_wrap=True, markup=False, highlight=False)
    if summary.explanation:
        print_explained_pair(form, summary.explanation)
        summary.skips.check_read()
        return
    if summary.clusters.example:
        telling.console.print(_describe_shared(summary.clusters), soft_wrap=True, markup=False, highlight=False)
    print_skips(summary.clusters.refused, telling.console, what="not droppable:")
    print_skips(summary.clusters.unlisted, telling.console, what="not in the drop list:")
    print_skips(summary.clusters.unread, telling.console, what="not checked:")
    print_summary(_counts(summary), stages, telling.console)
    summary.skips.check_read()
    if against and summary.clusters.droppable:
        raise typer.Exit(_FOUND)


def _describe_unchecked(summary: DedupSummary) -> str:
    return (
        f"not compared: {summary.unchecked:,} documents whose words the table does not have. Read them again to"
        " compare them."
    )


def _describe_shared(clusters: ClusterCount) -> str:
    example = clusters.example
    assert example is not None  # noqa: S101 - asked by the caller
    return (
        f"ids are not unique: {clusters.shared:,} documents in clusters share theirs with another one, such as"
        f" {printable(example.name)!r} ({example.place}). Their places name them."
    )


def _counts(summary: DedupSummary) -> Iterator[tuple[str, int]]:
    yield "documents", summary.documents
    if summary.archived is not None:
        yield "  of the archive", summary.archived
        yield "  new", summary.documents - summary.archived
    if wordless := summary.wordless.by_reason.total():
        what = "flat" if summary.wordless.by_reason[FLAT] else "without words"
        yield f"  {what}: no fingerprint", wordless
    forgotten = summary.forgotten.by_reason.total()
    if forgotten or summary.stored > summary.loaded.added:
        yield "  new", summary.loaded.added
        yield "  changed", summary.loaded.changed
        yield "  known already", summary.loaded.unchanged
        if forgotten:
            yield "  gone: forgotten", forgotten
        yield "documents in the table", summary.stored
    if summary.unchecked:
        yield "  words unknown: not compared", summary.unchecked
    yield from count_skips(summary.skips)
    found = summary.clusters
    yield "clusters", found.clusters
    yield "  documents in them", found.members
    if unread := found.unread.by_reason.total():
        yield "  dropped in favour of a text not read", unread
    yield "documents that could be dropped", found.droppable
    if refused := found.refused.by_reason.total():
        yield "not droppable", refused
        yield from ((f"  {reason}", count) for reason, count in found.refused.by_reason.most_common())
    if summary.cleaned is not None:
        yield "  left out of the clean corpus", summary.cleaned
        if unread := summary.stored - summary.documents:
            yield "not read in this run, so not in it", unread
    if unlisted := found.unlisted.by_reason.total():
        yield "  not in the drop list", unlisted
