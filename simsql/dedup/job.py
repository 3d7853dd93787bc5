"""The main job: files in, clusters of near-duplicates out."""

import json
import os
import sys
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
from sqlalchemy import Connection, text

from simsql.dedup.grouping import group_documents
from simsql.dedup.staging import Intake
from simsql.dedup.store import DocumentStore, Loaded, StoredDocument
from simsql.dedup.workspace import Destination, open_store
from simsql.documents import (
    DUPLICATE,
    MAX_DOCUMENT,
    DocumentReader,
    Skip,
    SkipCount,
    Stages,
    check_writable,
    name_paths,
    nothing_found,
    open_output,
    printable,
    repeated_id,
    reporting,
)
from simsql.errors import SimsqlError, UsageError
from simsql.fingerprint import DEFAULT_RECIPE, Recipe


class RankedDocument(NamedTuple):
    """A document of a cluster."""

    document: StoredDocument
    distance: int
    """Distance in bits from the representative's fingerprint."""
    droppable: bool
    """Whether a clean-up could drop it and keep the representative."""


class ClusterWriter(Protocol):
    """Formats clusters as text."""

    def head(self) -> str:
        """Return the text before the first cluster."""

    def cluster(self, number: int, members: Sequence[RankedDocument]) -> str:
        """Return the text of a cluster, its representative first."""


class JsonLines:
    """A line of JSON for each cluster."""

    def head(self) -> str:
        """Return nothing: JSON lines have no header."""
        return ""

    def cluster(self, number: int, members: Sequence[RankedDocument]) -> str:
        """Return a line of JSON."""
        cluster = {
            "cluster": number,
            "size": len(members),
            "representative": members[0].document.name,
            "members": [
                {"id": member.document.name, "place": member.document.place, "distance": member.distance}
                for member in members
            ],
        }
        return json.dumps(cluster, ensure_ascii=False) + "\n"


@dataclass(frozen=True)
class DedupOptions:
    """The input, distance, recipe and output of a run. `-` among the paths is JSON lines on stdin."""

    paths: Sequence[str]
    distance: int = 7
    recipe: Recipe = DEFAULT_RECIPE
    text_field: str = "text"
    id_field: str = "id"
    encoding: str = "utf-8"
    max_document: int = MAX_DOCUMENT
    workers: int | None = None
    """Number of processes that compute fingerprints; None for this process only."""
    destination: Destination = field(default_factory=Destination)
    output: Path | None = None
    writer: ClusterWriter = field(default_factory=JsonLines)
    drop_list: Path | None = None


@dataclass(frozen=True)
class DedupSummary:
    """The results of a run."""

    documents: int
    """Number of documents read and not skipped."""
    wordless: SkipCount
    """Those without a fingerprint, which are in no cluster."""
    loaded: Loaded
    stored: int
    """Number of documents in the table, from this run and earlier ones."""
    skips: SkipCount
    clusters: "ClusterCount"
    seconds: dict[str, float]


@dataclass
class ClusterCount:
    """Counts over all clusters of the table."""

    clusters: int = 0
    members: int = 0
    far: int = 0
    """Members that a chain of pairs connects, but that are beyond the distance from their representative."""
    droppable: int = 0
    unlisted: SkipCount = field(default_factory=SkipCount)
    """Droppable documents left out of the drop list, because their line could mean something else."""


def run_dedup(options: DedupOptions, stages: Stages) -> DedupSummary:
    """Find and write the clusters of near-duplicates, and return a summary.

    Clusters go to `options.output` or stdout. Output files appear only when complete. A run that fails or is
    interrupted changes neither them nor a kept table, unless the documents are stored already. Raises UsageError
    for invalid arguments, SimsqlError if there are no documents, the embedded server fails or the table cannot be
    used, and sqlalchemy.exc.DBAPIError for PostgreSQL errors.
    """
    if not 0 <= options.distance <= 64:
        raise UsageError(f"distance must be between 0 and 64, not {options.distance}")
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
        max_document=options.max_document,
        stdin=sys.stdin.buffer,
        # The output of this run or of an earlier one is not input, even inside a folder that is read.
        leave_out=filter(None, (options.output, options.drop_list, options.destination.server_dir)),
    )
    with ExitStack() as stack:
        with stages.stage("connect" if options.destination.database else "start the server"):
            store = stack.enter_context(open_store(options.destination, options.recipe))
            holds_documents = store.prepare()
        # One connection for all steps: its temporary table records what this run has read.
        connection = stack.enter_context(store.engine.connect())
        skips = SkipCount()
        with connection.begin():
            intake, loaded = _load(
                store, connection, reader, stages, skips, options, holds_documents=holds_documents
            )
        with connection.begin():
            # One snapshot for the fingerprints and the documents: another run may write to a kept table.
            connection.execute(text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"))
            stored = store.count(connection)
            with stages.stage("find clusters"):
                members = group_documents(*store.fingerprints(connection), options.distance)
            clusters = _write_clusters(store.documents(connection, members), len(members.id), stages, options)
    documents = intake.read - skips.by_reason[DUPLICATE]
    return DedupSummary(documents, intake.wordless, loaded, stored, skips, clusters, stages.seconds)


def _load(
    store: DocumentStore,
    connection: Connection,
    reader: DocumentReader,
    stages: Stages,
    skips: SkipCount,
    options: DedupOptions,
    *,
    holds_documents: bool,
) -> tuple[Intake, Loaded]:
    """Update the table with the documents, and return what has read them, and what became of them."""
    with stages.stage("read and fingerprint", reader.bytes_total) as report:
        intake = Intake(
            reporting(reader, report),
            find_known=store.find_known if holds_documents else None,
            recipe=options.recipe,
            workers=options.workers,
            skips=skips,
        )
        store.stage(connection, intake)
    if not intake.read and not holds_documents:
        raise SimsqlError(nothing_found(options.paths, skips))
    with stages.stage("load"):
        for place, name, first in store.drop_duplicates(connection):
            skips.add(repeated_id(place, name, f"was already read at {first}"))
        loaded = store.merge(connection)
    if store.kept:
        with stages.stage("index"):
            store.build_index(connection, options.distance)
    return intake, loaded


def _write_clusters(
    clusters: Iterable[list[StoredDocument]], members_total: int, stages: Stages, options: DedupOptions
) -> ClusterCount:
    """Write the clusters and the drop list, and count them."""
    count = ClusterCount()
    with ExitStack() as stack:
        # The files take their names after the stage has ended well, together.
        output = stack.enter_context(open_output(options.output))
        drop_list = stack.enter_context(open_output(options.drop_list)) if options.drop_list else None
        # A progress bar would break up the lines of the output.
        shown = options.output is not None or not sys.stdout.isatty()
        with stages.stage("write clusters", members_total, shown=shown) as report:
            if head := options.writer.head():
                output.write(head)
            for documents in clusters:
                members = _rank_members(documents, options.distance)
                droppable = [member.document for member in members if member.droppable]
                count.clusters += 1
                count.members += len(members)
                count.far += sum(member.distance > options.distance for member in members)
                count.droppable += len(droppable)
                output.write(options.writer.cluster(count.clusters, members))
                if drop_list:
                    for document in droppable:
                        if ambiguity := _ambiguity(document):
                            count.unlisted.add(Skip(printable(document.name), *ambiguity))
                        else:
                            drop_list.write(f"{document.name}\n")
                report(count.members)
            # Before the first of them takes its name: a full disk fails both.
            for file in (output, drop_list):
                if file:
                    file.flush()
    return count


def _ambiguity(document: StoredDocument) -> tuple[str, str] | None:
    """Return why a line with the name could mean something else, in short and in full; None if it cannot."""
    if set("\n\r") & set(document.name):
        return "line end", "the name would be more than one line"
    if document.name == document.place:
        if "\\" in document.name:
            return "backslash", "in a path, it may stand for a byte that is not UTF-8"
        file, _, number = document.name.rpartition(":")
        if number.isdecimal() and _is_path(file) and _is_path(document.name):
            return "place and path", "the place of this record is also the path of a file"
    elif _is_path(document.name):
        return "id and path", "the id of this record is also the path of a file"
    return None


def _rank_members(documents: Sequence[StoredDocument], distance: int) -> list[RankedDocument]:
    """Return the documents of a cluster, the representative first, the others by distance from it.

    The representative has the smallest sum of distances to the others. Ties go to the longest text, then to the
    document that was read first. A document of an earlier run whose file is gone only represents a cluster of such
    documents.

    A document is droppable if this run has read it and it is within the distance of the representative. A chain of
    pairs may connect texts that have little in common.
    """
    fingerprints = np.array([document.fingerprint for document in documents], dtype=np.int64).view(np.uint64)
    # The sum of distances bit by bit: as many of the others differ in a bit as have it the other way.
    bits = np.unpackbits(fingerprints.view(np.uint8).reshape(-1, 8), axis=1)
    ones = bits.sum(axis=0, dtype=np.int64)
    sums = np.where(bits, len(documents) - ones, ones).sum(axis=1).tolist()
    gone = [_is_gone(document) for document in documents]
    best = min(range(len(documents)), key=lambda i: (gone[i], sums[i], -documents[i].characters, documents[i].id))
    distances = np.bitwise_count(fingerprints ^ fingerprints[best]).tolist()
    others = sorted((distances[i], documents[i].id, i) for i in range(len(documents)) if i != best)
    return [
        RankedDocument(documents[best], 0, droppable=False),
        *(
            RankedDocument(documents[i], bits_away, documents[i].seen and not gone[best] and bits_away <= distance)
            for bits_away, _, i in others
        ),
    ]


def _is_gone(document: StoredDocument) -> bool:
    if document.seen:
        return False
    file = document.place.rpartition(":")[0] or document.place
    return file != "stdin" and (document.gone or not (_is_path(document.place) or _is_path(file)))


def _is_path(name: str) -> bool:
    """Return whether a file or folder has this name, which may be too long for a path."""
    return os.path.exists(name)  # noqa: PTH110 - Path.exists raises for long names
