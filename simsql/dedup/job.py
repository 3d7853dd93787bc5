"""The main job: files in, clusters of near-duplicates and decisions out."""

import sys
from collections.abc import Container, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from simsql.decide.rules import Rules
from simsql.decide.verdicts import Verdicts, decide
from simsql.dedup.cleaning import Cleaner, is_single
from simsql.dedup.cluster_formats import CLUSTER_STARTS, PARQUET
from simsql.dedup.comparing import Comparison
from simsql.dedup.evidence import gather_evidence
from simsql.dedup.explaining import Explanation, explain_pair
from simsql.dedup.safety.confirming import Confirmer, Reference
from simsql.dedup.safety.identity import RecordFile
from simsql.dedup.safety.refusing import refuse_drops
from simsql.dedup.store.destination import Destination, open_store
from simsql.dedup.store.intake import Intake
from simsql.dedup.store.memory import MemoryStore
from simsql.dedup.store.store import Loaded, Rows, Store
from simsql.dedup.writing import ClusterCount, ClusterOutput, drop_list_name, write_clusters
from simsql.documents import (
    READ_TWICE,
    STDOUT,
    VISIBLE,
    DocumentReader,
    Layout,
    Outputs,
    Report,
    Selection,
    Skip,
    SkipCount,
    Stages,
    open_output,
    printable,
    storable,
)
from simsql.documents.spool import StreamSpool, TextSpool, TokenSpool
from simsql.errors import UsageError
from simsql.fingerprint import DEFAULT_RECIPE, Recipe

_GONE = "gone"


@dataclass(frozen=True)
class DedupOptions:
    """The input, rules, recipe and output of a run. `-` among the paths is stdin."""

    paths: Sequence[str]
    """No paths only to explain the decisions of a table that is kept."""
    against: Sequence[str] = ()
    """Files and folders to compare with: their documents are kept, and only the others are decided about."""
    new_only: bool = False
    """Whether to list only documents whose decision is new or has changed, with those kept in their favour. With
    `against`, this is so."""
    rules: Rules = field(default_factory=Rules)
    redecide: bool = False
    """Whether to ignore the decisions of earlier runs."""
    recipe: Recipe = DEFAULT_RECIPE
    layout: Layout = field(default_factory=Layout)
    """The field of values is that of the rules."""
    selection: Selection = VISIBLE
    workers: int | None = None
    """Number of processes that compute fingerprints; None for this process only."""
    destination: Destination = field(default_factory=Destination)
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
        return Outputs(files, CLUSTER_STARTS, fitting)

    def open_reader(
        self, paths: Sequence[str | Path], outputs: Outputs | None = None, stdin: Any = None
    ) -> DocumentReader:
        """Return the documents in files, as the run reads them."""
        return DocumentReader(
            paths,
            replace(self.layout, value_field=self.rules.keep_field, pictures=self.recipe.of_pictures),
            stdin=stdin or sys.stdin.buffer,
            selection=self.selection,
            outputs=outputs,
            leave_out=filter(None, [self.destination.server_dir]),
        )


@dataclass(frozen=True)
class DedupSummary:
    """The results of a run."""

    documents: int
    """Number of documents read and not skipped."""
    archived: int | None
    """How many of them the archive has; None without one."""
    wordless: SkipCount
    """Those without a fingerprint, which are in no cluster."""
    loaded: Loaded
    stored: int
    """Number of documents in the table, from this run and earlier ones."""
    unchecked: int
    """Number of documents whose words are not known, which are in no cluster."""
    skips: SkipCount
    forgotten: SkipCount
    """Documents of earlier runs that are gone, and have been removed from the table."""
    clusters: ClusterCount
    explanation: Explanation | None
    cleaned: int | None
    """Number of records that the clean corpus does not have; None without one."""


def run_dedup(options: DedupOptions, stages: Stages) -> DedupSummary:
    """Decide about documents, write the clusters of near-duplicates, and return a summary.

    Clusters go to `options.output` or stdout. Output files appear only when complete. A run that fails or is
    interrupted changes neither them nor the table, unless its documents and decisions are stored already. A run
    that explains stores neither documents nor decisions. Raises UsageError for invalid arguments, SimsqlError if
    there are no documents, the embedded server fails or the table cannot be used, and DBAPIError of SQLAlchemy for
    PostgreSQL errors.
    """
    _check_input(options)
    outputs = options.outputs()
    paths = [*options.paths, *options.against]
    with ExitStack() as stack:
        is_copied = options.output.clean and "-" in options.paths
        stdin = stack.enter_context(StreamSpool(sys.stdin.buffer)) if is_copied else None
        reader = options.open_reader(paths, outputs, stdin)
        _refuse_server_folder(options)
        rules = _with_archive(options)
        cleaner = _make_cleaner(options, reader, outputs, stdin)
        tokens = stack.enter_context(TokenSpool()) if options.rules.checks_texts else None
        texts = stack.enter_context(TextSpool()) if options.output.report else None
        opened = open_store(
            options.destination,
            options.recipe,
            rules,
            stages,
            redecide=options.redecide,
            create=bool(options.paths),
        )
        store = stack.enter_context(opened)
        intake = Intake(
            store,
            reader,
            workers=options.workers,
            tokens=tokens,
            texts=texts,
            check=cleaner.check if cleaner else None,
        )
        loaded = intake.take_in(stages)
        if cleaner:
            cleaner.check_files(_without_archive(intake.files, options, rules), reader.skips)
        confirmer = Confirmer(options.open_reader, intake.files, outputs.writes)
        forgotten = SkipCount()
        with stages.stage("check texts" if store.rules.checks_texts else "compare fingerprints") as report:
            _forget(store, confirmer.find_gone(store.find_unread(options.paths)), forgotten)
            rows = store.read_rows()
            comparison, verdicts = _decide(options, store.rules, rows, confirmer, report)
        with stages.stage("find clusters"):
            if not options.explain:
                _forget(store, rows.references(np.flatnonzero(verdicts.gone)), forgotten)
            store.save(comparison.documents, verdicts)
        stored = store.count()
        explanation = None
        clusters = ClusterCount()
        if options.explain:
            explanation = explain_pair(
                store, comparison, verdicts, options.explain, main_content=options.layout.main_content
            )
        else:
            store.commit(stages)
            with stages.stage("check files"):
                refused = refuse_drops(store.clusters, confirmer)
            in_clusters = int(np.count_nonzero(verdicts.cluster))
            # All files take their names at the end: if one cannot be written, the others stay as they are.
            with ExitStack() as files:
                clusters = write_clusters(
                    store.clusters(),
                    in_clusters,
                    stages,
                    options.output,
                    refused,
                    files,
                    cleaner.add if cleaner else None,
                )
                if texts and options.output.report:
                    with stages.stage("write report"):
                        skipped = {
                            "skipped": reader.skips,
                            "not compared": intake.wordless,
                            "not droppable": clusters.refused,
                            "not in the drop list": clusters.unlisted,
                        }
                        page = files.enter_context(open_output(options.output.report))
                        _write_report(page, options, store, rows, texts, skipped, refused)
                if cleaner:
                    cleaner.write(stages, files)
    return DedupSummary(
        intake.read - reader.skips.by_reason[READ_TWICE],
        store.count_protected() if options.against and isinstance(store, MemoryStore) else None,
        intake.wordless,
        loaded,
        stored,
        int(np.count_nonzero(~comparison.documents.compared)),
        reader.skips,
        forgotten,
        clusters,
        explanation,
        cleaner.dropped if cleaner else None,
    )


def _decide(
    options: DedupOptions, rules: Rules, rows: Rows, confirmer: Confirmer, report: Report
) -> tuple[Comparison, Verdicts]:
    documents = rows.documents
    if options.against:  # as if an earlier run had kept them, each in a cluster of its own
        documents = documents._replace(fresh=~documents.protected)
    comparison = Comparison(documents, rows.tokens, rules, here=rows.here, workers=options.workers, report=report)
    verdicts = decide(
        documents,
        comparison.nodes,
        gather_evidence(comparison, lambda positions: confirmer.look_for(rows.references(positions))),
        rules,
        rows.criterion,
        rows.order_by_name,
        new_only=options.new_only or bool(options.against),
        to_archive=bool(options.against),
    )
    comparison.complete(verdicts)
    return comparison, verdicts


def _write_report(
    page: Any,
    options: DedupOptions,
    store: Store,
    rows: Rows,
    texts: TextSpool,
    skipped: Mapping[str, SkipCount],
    refused: Container[int],
) -> None:
    # Here: the templates take longer to import than a short run.
    from simsql.dedup.run_report import Run, picture_reader, text_reader, write_run_report  # noqa: PLC0415

    null = options.output.null
    pictures = options.recipe.of_pictures
    read_text = text_reader(rows, texts)
    run = Run(
        options.recipe,
        store.rules,
        store.count(),
        picture_reader(rows, read_text) if pictures else read_text,
        partial(drop_list_name, null=null),
        "\0" if null else "\n",
        skipped,
        "picture" if pictures else "document",
    )
    write_run_report(page, run, store.clusters(), refused)
    page.flush()


def _make_cleaner(
    options: DedupOptions, reader: DocumentReader, outputs: Outputs, stdin: StreamSpool | None
) -> Cleaner | None:
    output = options.output
    if not output.clean:
        return None
    if options.new_only:
        raise UsageError("--clean leaves out what earlier runs have dropped, too: leave out --new-only")
    if options.against:  # the archive is not copied
        reader = options.open_reader(options.paths, outputs, stdin)
    others = filter(None, [output.clusters, output.drop_list, output.report, options.destination.server_dir])
    return Cleaner(
        output.clean,
        options.paths,
        reader,
        options.layout,
        stdin=stdin,
        others=others,
        with_archive=bool(options.against),
    )


def _with_archive(options: DedupOptions) -> Rules:
    """Return the rules of a run, which keep the documents of the archive.

    Raises UsageError for options that exclude each other, and for paths to new documents inside the archive.
    """
    if not options.against:
        return options.rules
    if options.destination.stays:
        raise UsageError(
            "--against works in memory: leave out --table and --server-dir; with them, new documents are compared"
            " with those of earlier runs, and --new-only lists only the new ones"
        )
    if options.rules.keep_under:
        raise UsageError("--against and --keep-under exclude each other: leave one out")
    rules = replace(options.rules, keep_under=tuple(map(_real_path, options.against)))
    for path in options.paths:
        if rules.protects(_real_path(path)):
            raise UsageError(
                f"{printable(storable(path))} is in --against, so nothing in it would be new: leave it out, or"
                " name folders that do not contain it"
            )
    return rules


def _without_archive(
    files: Mapping[str, RecordFile], options: DedupOptions, rules: Rules
) -> Mapping[str, RecordFile]:
    if not options.against:
        return files
    return {name: file for name, file in files.items() if not rules.protects(_real_path(str(file.path)))}


def _real_path(path: str) -> str:
    """Return a path as the rules have it. Streams have their names, and `-` is standard input."""
    found = Path(path)
    if path == "-":
        return path
    return storable(found.resolve() if found.is_file() or found.is_dir() else found.absolute())


def _forget(store: Store, gone: Iterable[Reference], forgotten: SkipCount) -> None:
    """Remove documents that are gone from the table, and count them."""
    gone = list(gone)
    store.forget(gone)
    for document in gone:
        forgotten.add(Skip(document.place, _GONE, "its text is not there any more"))


def _check_input(options: DedupOptions) -> None:
    """Raise UsageError for pictures on stdin, and for what needs earlier runs if there are none."""
    if options.recipe.of_pictures and "-" in [*options.paths, *options.against]:
        raise UsageError("pictures are only read from files, and - is standard input: name files or folders")
    if options.destination.stays:
        return
    if not options.paths:
        raise UsageError("name the files to read: without them, --explain needs --table or --server-dir")
    if options.new_only and not options.against:
        raise UsageError("--new-only needs the decisions of earlier runs: add --table or --server-dir")


def _refuse_server_folder(options: DedupOptions) -> None:
    """Raise UsageError if a folder to read is that of the server, or inside it."""
    if not options.destination.server_dir:
        return
    server = options.destination.server_dir.resolve()
    for path in options.paths:
        folder = Path(path).resolve()
        if path != "-" and folder.is_relative_to(server) and folder.is_dir():
            raise UsageError(f"{printable(storable(path))} is in the folder of the server: name another folder")
