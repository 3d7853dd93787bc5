"""The main job: documents in, decisions out, in one pass.

A source reads and describes documents; their candidates are compared, and sinks write the decisions.
"""

import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from simsql.decide.rules import Rules
from simsql.dedup.comparing import Comparison
from simsql.dedup.corpus import Source
from simsql.dedup.explaining import Explanation, explain_pair
from simsql.dedup.members import Decisions
from simsql.dedup.sinks.clean import Cleaner, is_single
from simsql.dedup.sinks.clusters import ClusterOutput, FileSink
from simsql.dedup.sinks.formats import PARQUET
from simsql.dedup.sources.files import FileSource
from simsql.documents import (
    STDOUT,
    VISIBLE,
    DocumentReader,
    Layout,
    Outputs,
    Selection,
    Stages,
    printable,
    storable,
)
from simsql.documents.spool import StreamSpool, TextSpool, TokenSpool
from simsql.errors import UsageError
from simsql.fingerprint import FOLDING_RECIPE, Recipe


def run_job(
    source: Source,
    write: Callable[[Decisions, Stages, ExitStack], None],
    rules: Rules,
    stages: Stages,
    files: ExitStack,
    *,
    workers: int | None,
    explain: tuple[str, str] | None,
) -> Explanation | None:
    """Read, compare and decide; then write the decisions or, if `explain` has two names, explain a pair.

    `workers` is the number of processes. Files that `write` opens take their names when `files` ends well.
    """
    with TokenSpool() as tokens:
        corpus = source.read(tokens, stages)
        with stages.stage("check texts" if rules.checks_texts else "compare fingerprints") as report:
            comparison = Comparison(corpus, tokens, rules)
            comparison.find_pairs(workers, report)
        with stages.stage("find clusters") as report:
            decisions = Decisions(source, comparison, comparison.decide(report))
        if explain:
            return explain_pair(decisions, explain)
        write(decisions, stages, files)
    return None


@dataclass(frozen=True)
class DedupOptions:
    """The input, rules, recipe and output of a run. `-` among the paths is stdin."""

    paths: Sequence[str]
    against: Sequence[str] = ()
    """Files and folders to compare with: their documents are kept, and only the others are decided about."""
    rules: Rules = field(default_factory=Rules)
    recipe: Recipe = FOLDING_RECIPE
    layout: Layout = field(default_factory=Layout)
    """The field of values is that of the rules."""
    selection: Selection = VISIBLE
    workers: int | None = None
    """Number of processes that compute fingerprints; None for this process only."""
    output: ClusterOutput = field(default_factory=ClusterOutput)
    explain: tuple[str, str] | None = None
    """The names of two documents to explain, instead of writing clusters."""

    def outputs(self) -> Outputs:
        """Return the files that the run writes. Raises UsageError if they cannot be written."""
        output = self.output
        files = {"--output": output.clusters or STDOUT, "--drop-list": output.drop_list, "--report": output.report}
        if output.clean and is_single(self.paths):
            files["--clean"] = output.clean
        fitting = ["--clean", "--output"] if output.writer is PARQUET else ["--clean"]
        return Outputs(files, fitting)

    def open_reader(self, paths: Sequence[str], outputs: Outputs, stdin: Any) -> DocumentReader:
        """Return the documents in files, as the run reads them."""
        return DocumentReader(
            paths,
            replace(self.layout, value_fields=self.rules.fields, pictures=self.recipe.of_pictures),
            stdin=stdin,
            selection=self.selection,
            outputs=outputs,
        )


def run_dedup(options: DedupOptions, stages: Stages) -> tuple[FileSource, FileSink, Explanation | None]:
    """Decide about documents, and write the clusters of near-duplicates.

    Clusters go to `options.output` or stdout. Output files appear only when complete: a run that fails or is
    interrupted changes none of them. Raises UsageError for invalid arguments, and SimsqlError if there are no
    documents.
    """
    if options.recipe.of_pictures and "-" in [*options.paths, *options.against]:
        raise UsageError("pictures are only read from files, and - is standard input: name files or folders")
    if options.recipe.of_pictures and (options.rules.exact or options.rules.protect):
        raise UsageError("--exact and --protect compare characters, and pictures have none: leave them out")
    outputs = options.outputs()
    with ExitStack() as stack:
        stdin: Any = sys.stdin.buffer
        if options.output.clean and "-" in options.paths:
            stdin = stack.enter_context(StreamSpool(stdin))
        reader = options.open_reader([*options.paths, *options.against], outputs, stdin)
        rules = _with_archive(options)
        cleaner = None
        if (output := options.output).clean:
            # The archive is not copied.
            copied = options.open_reader(options.paths, outputs, stdin) if options.against else reader
            others = filter(None, [output.clusters, output.drop_list, output.report])
            cleaner = Cleaner(output.clean, options.paths, copied, options.layout, stdin=stdin, others=others)
        texts = stack.enter_context(TextSpool()) if output.report else None
        check = cleaner.check if cleaner else None
        source = FileSource(reader, options.recipe, rules, options.workers, texts, check)
        sink = FileSink(source, output, cleaner)
        # All files take their names at the end: if one cannot be written, the others stay as they are.
        files = stack.enter_context(ExitStack())
        given = source, sink.write, rules, stages, files
        explained = run_job(*given, workers=options.workers, explain=options.explain)
        if explained and options.layout.main_content:
            reason = f"{explained.reason}; of web pages, only the main content was compared"
            explained = replace(explained, reason=reason)
        return source, sink, explained


def _with_archive(options: DedupOptions) -> Rules:
    """Return the rules of a run, which keep the documents of the archive.

    Raises UsageError for options that exclude each other, and for paths to new documents inside the archive.
    """
    if not options.against:
        return options.rules
    if options.rules.keep_under:
        raise UsageError("--against and --keep-under exclude each other: leave one out")
    archive = tuple(map(_real_path, options.against))
    rules = replace(options.rules, keep_under=archive, to_archive=True)
    for path in options.paths:
        if rules.protects(_real_path(path)):
            raise UsageError(
                f"{printable(storable(path))} is in --against, so nothing in it would be new: leave it out, or"
                " name folders that do not contain it"
            )
    return rules


def _real_path(path: str) -> str:
    """Return a path as the rules have it. Streams have their names, and `-` is standard input."""
    found = Path(path)
    if path == "-":
        return path
    return storable(found.resolve() if found.is_file() or found.is_dir() else found.absolute())
