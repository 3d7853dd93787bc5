"""`simsql dedup`: clusters of near-duplicates in files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from simsql.cli._app import command
from simsql.cli._explanation import print_explained_pair
from simsql.cli._options import (
    Deciding,
    FoldingRecipeName,
    Formatted,
    Paths,
    Reading,
    Workers,
    number_option,
    option,
    parse_recipe,
    path_option,
    read_real_path,
)
from simsql.cli._terminal import Telling, count_skips, print_skips, print_summary
from simsql.decide.rules import PICTURE_DROP_SIMILARITY, Keep, Rules
from simsql.documents import STDOUT, printable
from simsql.errors import UsageError
from simsql.processes import usable_cores

if TYPE_CHECKING:
    from simsql.dedup.sinks.clusters import FileSink
    from simsql.dedup.sources.files import FileSource
    from simsql.fingerprint import Recipe

_FOUND = 3  # the exit code of --against for documents that could be dropped


@dataclass(frozen=True)
class _Deciding(Deciding):
    keep_under: Annotated[list[str] | None, option("--keep-under", parser=read_real_path)] = None
    within: Annotated[list[str] | None, option("--within")] = None
    within_folder: Annotated[int, number_option("--within-folder", least=0)] = 0

    def rules(self) -> Rules:
        return replace(
            super().rules(),
            keep_under=tuple(self.keep_under or ()),
            within=tuple(self.within or ()),
            within_folder=self.within_folder,
        )

    def rules_for(self, recipe: Recipe) -> Rules:
        """Return the rules of the decisions, with other defaults for pictures: the largest one is kept."""
        rules = self.rules()
        if not recipe.of_pictures:
            return rules
        if rules.by_features:
            raise UsageError("pictures have no features to compare: leave out --by-features")
        if rules.checks_texts and rules.drop_similarity is None:
            rules = replace(rules, drop_similarity=max(PICTURE_DROP_SIMILARITY, rules.similarity))
        return rules if self.keep or self.keep_field else replace(rules, keep=Keep.LONGEST)


@command("dedup")
def dedup_command(
    *,
    paths: Paths,
    against: Annotated[list[str] | None, option("--against")] = None,
    deciding: _Deciding,
    recipe: FoldingRecipeName = None,
    reading: Reading,
    workers: Workers = None,
    output: Annotated[Path | None, path_option("--output")] = None,
    form: Formatted = None,
    drop_list: Annotated[Path | None, path_option("--drop-list")] = None,
    null: Annotated[bool, option("--null")] = False,
    clean: Annotated[Path | None, path_option("--clean")] = None,
    report: Annotated[Path | None, path_option("--report")] = None,
    explain: Annotated[
        tuple[str, str] | None, option("--explain", ": why two documents are together or apart", metavar="ID ID")
    ] = None,
    telling: Telling,
) -> None:
    """Find near-duplicates in files, and decide which to drop.

    Texts that share a band are compared word by word or, with --recipe phash, near pictures by thumbnails. Print
    one line of JSON per cluster, or one line per member in the other formats. A table shows up to ten members of
    each cluster; at a terminal, it is the default and ends after the 20 largest clusters. Every document that
    could be dropped is similar to one that is kept. Documents that cannot be read are skipped, counted and
    listed in the summary on stderr. No PostgreSQL is needed, and nothing is kept.
    """
    from simsql.dedup.job import DedupOptions, run_dedup
    from simsql.dedup.sinks.clusters import ClusterOutput
    from simsql.dedup.sinks.formats import TABLE, FirstClusters, choose_writer
    from simsql.fingerprint import FOLDING_RECIPE

    if explain and (output or drop_list or clean or report):
        raise UsageError("--explain writes no clusters: leave out --output, --drop-list, --clean and --report")
    if null and not drop_list:
        raise UsageError("--null needs --drop-list FILE")
    output = None if output == STDOUT else output
    writer = choose_writer(output, form)
    first = FirstClusters() if form is None and writer is TABLE and not explain else None
    writer = TABLE._replace(cluster=first.keep) if first else writer
    chosen = parse_recipe(recipe) or FOLDING_RECIPE
    options = DedupOptions(
        paths,
        against=against or (),
        rules=deciding.rules_for(chosen),
        recipe=chosen,
        layout=reading.layout(),
        selection=reading.selection(),
        workers=workers or usable_cores(),
        output=ClusterOutput(output, writer, drop_list, null, report, clean),
        explain=explain,
    )
    if recipe:
        options.outputs().refuse(Path(recipe))
    stages = telling.stages(results_wait=first is not None)
    source, sink, explanation = run_dedup(options, stages)
    skips, found = source.reader.skips, sink.count
    if first:
        print(first.kept(), end="", flush=True)
    print_skips(skips, telling.console)
    print_skips(source.wordless, telling.console, what="not compared:")
    if explanation:
        print_explained_pair(form, explanation)
        skips.check_read()
        return
    if example := found.example:
        shared = (
            f"ids are not unique: {found.shared:,} documents in clusters share theirs with another one, such as"
            f" {printable(example.name)!r} ({example.place}). Their places name them."
        )
        telling.console.print(shared, soft_wrap=True, markup=False, highlight=False)
    print_skips(found.refused, telling.console, what="not droppable:")
    print_skips(found.unlisted, telling.console, what="not in the drop list:")
    print_summary(_counts(source, sink, with_archive=bool(against)), stages, telling.console)
    if source.total == 1:
        telling.remark("one document is compared with nothing: with --lines, every line of a text is a document")
    if remark := found.kinds.remark():
        telling.remark(remark)
    skips.check_read()
    if against and found.droppable:
        raise typer.Exit(_FOUND)


def _counts(source: FileSource, sink: FileSink, *, with_archive: bool) -> Iterator[tuple[str, int]]:
    yield "documents", source.total
    if with_archive:
        archived = int(source.protected.sum())
        yield "  of the archive", archived
        yield "  new", source.total - archived
    if wordless := source.wordless.by_reason.total():
        yield "  without words: no fingerprint", wordless
    yield from count_skips(source.reader.skips)
    found = sink.count
    yield "clusters", found.clusters
    yield "  documents in them", found.members
    yield "documents that could be dropped", found.droppable
    yield from found.kinds.lines()
    if refused := found.refused.by_reason.total():
        yield "not droppable", refused
        yield from ((f"  {reason}", count) for reason, count in found.refused.by_reason.most_common())
    if sink.cleaner:
        yield "  left out of the clean corpus", sink.cleaner.dropped
    if unlisted := found.unlisted.by_reason.total():
        yield "  not in the drop list", unlisted
