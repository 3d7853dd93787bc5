"""The main job: files in, clusters of near-duplicates out."""

import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from rich.console import Console

from simsql.dedup.formats import printable, storable
from simsql.dedup.grouping import RankedDocument, rank_members
from simsql.dedup.intake import Intake, SkipCount
from simsql.dedup.output import Output, check_writable, open_output
from simsql.dedup.progress import Report, Stages
from simsql.dedup.readers import Document, DocumentReader, Skip
from simsql.dedup.store import DocumentStore, Loaded
from simsql.dedup.workspace import Destination, open_store
from simsql.errors import SimsqlError, UsageError

_WORTH_PROCESSES = 1_000_000  # bytes of input from which on starting processes pays


@dataclass(frozen=True)
class DedupOptions:
    """What a run reads, how near is near, and where things go. `-` among the paths is JSON lines on stdin."""

    paths: Sequence[str]
    distance: int = 7
    text_field: str = "text"
    id_field: str = "id"
    encoding: str = "utf-8"
    destination: Destination = field(default_factory=Destination)
    output: Path | None = None
    drop_list: Path | None = None


@dataclass(frozen=True)
class DedupSummary:
    """What a run did. `droppable` counts the members of clusters that are not their representatives."""

    documents: int
    loaded: Loaded
    skips: SkipCount
    clusters: int
    clustered: int
    droppable: int
    unlisted: int
    """Names left out of the drop list, because a line end in them would make two of one."""
    seconds: dict[str, float]


def run_dedup(options: DedupOptions, console: Console) -> DedupSummary:
    """Find the clusters of near-duplicates, write them as JSON lines, and say what was done.

    Bars go to `console`, clusters to `options.output` or stdout. Output files appear only when complete; a run
    that fails or is interrupted changes neither them nor a kept table. Raises UsageError for arguments that
    cannot be, SimsqlError if there is no document to work on or the embedded server fails, and
    sqlalchemy.exc.DBAPIError for what PostgreSQL refuses.
    """
    if not 0 <= options.distance <= 64:
        raise UsageError(f"a distance is a number of bits from 0 to 64, not {options.distance}")
    for path in (options.output, options.drop_list):
        if path is not None:
            check_writable(path)
    if options.output and options.drop_list and options.output.resolve() == options.drop_list.resolve():
        raise UsageError(f"--output and --drop-list are the same file: {name_paths([options.output])}")
    reader = DocumentReader(
        options.paths,
        text_field=options.text_field,
        id_field=options.id_field,
        encoding=options.encoding,
        stdin=sys.stdin.buffer,
        # What this run or an earlier one wrote is no input, where a folder holds it.
        leave_out=filter(None, (options.output, options.drop_list, options.destination.keep)),
    )
    stages = Stages(console)
    with ExitStack() as stack:
        with stages.stage("start the server"):
            store = stack.enter_context(open_store(options.destination))
            holds_documents = store.prepare()
        skips = SkipCount()
        documents, loaded = _load(store, reader, stages, skips, options, holds_documents=holds_documents)
        counts = _write_clusters(store, stages, options)
    return DedupSummary(documents, loaded, skips, *counts, stages.seconds)


def name_paths(paths: Sequence[str | Path]) -> str:
    """Return the arguments of a run as one line, whatever bytes are in the names."""
    return ", ".join(printable(storable(Path(path))) for path in paths)


def _load(
    store: DocumentStore,
    reader: DocumentReader,
    stages: Stages,
    skips: SkipCount,
    options: DedupOptions,
    *,
    holds_documents: bool,
) -> tuple[int, Loaded]:
    """Bring the table up to date with what is read, in one transaction."""
    with store.engine.begin() as connection:
        with stages.stage("read and fingerprint", reader.bytes_total) as report:
            intake = Intake(
                _reporting(reader, report),
                find_known=store.find_known if holds_documents else None,
                workers=_workers(reader),
                skips=skips,
            )
            store.stage(connection, intake)
        if not intake.read and not holds_documents:
            raise SimsqlError(_nothing_found(options.paths, skips))
        with stages.stage("load"):
            for place, name, first in store.drop_duplicates(connection):
                skips.add(Skip(place, "duplicate id", f"{name!r} was read before, at {first}"))
            loaded = store.merge(connection)
        with stages.stage("index"):
            store.build_index(connection, options.distance)
    return intake.read, loaded


def _write_clusters(store: DocumentStore, stages: Stages, options: DedupOptions) -> tuple[int, int, int, int]:
    """Write clusters and drop list; return the numbers of clusters, members, droppable and unlisted documents."""
    clusters = clustered = unlisted = 0
    with ExitStack() as stack:
        connection = stack.enter_context(store.engine.connect())
        # The files take their names after the stage has ended well, together.
        output = stack.enter_context(open_output(options.output))
        drop_list = stack.enter_context(open_output(options.drop_list)) if options.drop_list else None
        with stages.stage("find and write clusters"):
            for documents in store.clusters(connection, options.distance):
                members = rank_members(documents)
                clusters += 1
                clustered += len(members)
                output.write(_as_json(clusters, members))
                if drop_list:
                    unlisted += _write_names(drop_list, members[1:])
            # Before the first of them takes its name: a full disk fails both.
            for file in (output, drop_list):
                if file:
                    file.flush()
    return clusters, clustered, clustered - clusters, unlisted


def _as_json(number: int, members: Sequence[RankedDocument]) -> str:
    cluster = {
        "cluster": number,
        "size": len(members),
        "representative": members[0].document.name,
        "members": [
            {"id": document.name, "place": document.place, "distance": distance} for document, distance in members
        ],
    }
    return json.dumps(cluster, ensure_ascii=False) + "\n"


def _write_names(drop_list: Output | TextIO, members: Iterable[RankedDocument]) -> int:
    """Write a name a line; return how many could not be written so."""
    unlisted = 0
    for document, _ in members:
        if "\n" in document.name or "\r" in document.name:
            unlisted += 1
        else:
            drop_list.write(document.name + "\n")
    return unlisted


def _reporting(reader: DocumentReader, report: Report) -> Iterator[Document | Skip]:
    for item in reader:
        report(reader.bytes_done)
        yield item


def _workers(reader: DocumentReader) -> int | None:
    if reader.bytes_total is not None and reader.bytes_total < _WORTH_PROCESSES:
        return None
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def _nothing_found(paths: Sequence[str], skips: SkipCount) -> str:
    where = name_paths(paths)
    if not skips.by_reason:
        return f"no documents in {where}: nothing is there to read"
    reasons = ", ".join(f"{count} {reason}" for reason, count in skips.by_reason.most_common())
    first = skips.examples[0]
    return f"no documents in {where}: skipped {reasons}; the first was {first.place}: {first.detail}"
