"""Write clusters and the drop list."""

import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from simsql.dedup.cluster_formats import JSON_LINES, ClusterWriter
from simsql.dedup.members import Member, arrange_members
from simsql.dedup.safety.identity import path_of
from simsql.dedup.store.store import StoredDocument
from simsql.documents import STDOUT, Skip, SkipCount, Stages, open_output, printable, storable

_REPLACED = re.compile(r"\\x00|\\ud[89a-f]")  # by simsql.documents.storable

_UNREAD = "kept text not read"


@dataclass
class ClusterCount:
    """Counts over all clusters of the table."""

    clusters: int = 0
    members: int = 0
    droppable: int = 0
    refused: SkipCount = field(default_factory=SkipCount)
    """Dropped documents that are not droppable, because nobody knows that their text is still there afterwards."""
    unread: SkipCount = field(default_factory=SkipCount)
    """Documents that an earlier run has dropped in favour of a text that this run has not read."""
    shared: int = 0
    """Members that share their name with another document."""
    example: StoredDocument | None = None
    """One of them."""
    unlisted: SkipCount = field(default_factory=SkipCount)
    """Droppable documents left out of the drop list, because their line could mean something else."""


@dataclass(frozen=True)
class ClusterOutput:
    """The files that a run writes, and the format of the clusters."""

    clusters: Path | None = None
    """None for stdout."""
    writer: ClusterWriter = JSON_LINES
    drop_list: Path | None = None
    null: bool = False
    """Whether a NUL ends the names in the drop list, instead of a line end."""
    report: Path | None = None
    clean: Path | None = None
    """The clean corpus: a file, or a folder for several files."""


def write_clusters(
    clusters: Iterable[Sequence[StoredDocument]],
    members_total: int,
    stages: Stages,
    wanted: ClusterOutput,
    refused: Mapping[int, Skip],
    files: ExitStack,
    take: Callable[[Sequence[Member]], None] | None = None,
) -> ClusterCount:
    """Write the clusters and the drop list, and count them. `refused` are the ids of documents not to drop.

    `take` is called with the members of each cluster. The files take their names when `files` ends well, together
    with others.
    """
    count = ClusterCount()
    for skip in refused.values():
        count.refused.add(skip)
    output = files.enter_context(wanted.writer.open(wanted.clusters))
    drop_list = files.enter_context(open_output(wanted.drop_list)) if wanted.drop_list else None
    # A progress bar would break up the lines of the output.
    shown = STDOUT not in (wanted.clusters or STDOUT, wanted.drop_list) or not sys.stdout.isatty()
    with stages.stage("write clusters", members_total, shown=shown) as report:
        if wanted.writer.head:
            output.write(wanted.writer.head)
        for documents in clusters:
            members = arrange_members(documents, refused)
            _count_unread(members, count.unread)
            droppable = [member.document for member in members if member.droppable]
            count.clusters += 1
            count.members += len(members)
            count.droppable += len(droppable)
            for document in documents:
                if document.shared:
                    count.shared += 1
                    count.example = count.example or document
            output.write(wanted.writer.cluster(count.clusters, members))
            if take:
                take(members)
            if drop_list:
                for document in droppable:
                    name = _listed_name(document, null=wanted.null)
                    if ambiguity := _ambiguity(document, name, null=wanted.null):
                        count.unlisted.add(Skip(printable(storable(name)), *ambiguity))
                    else:
                        drop_list.write(name + ("\0" if wanted.null else "\n"))
            report(count.members)
        # Before the first of them takes its name: a full disk fails both.
        for file in (output, drop_list):
            if file:
                file.flush()
    return count


def _count_unread(members: Iterable[Member], unread: SkipCount) -> None:
    for document, _, kept, *_ in members:
        if document.id != kept.id and not (document.seen or kept.present):
            detail = f"this run has not read {kept.place}, which is kept in its favour"
            unread.add(Skip(document.place, _UNREAD, detail))


def drop_list_name(document: StoredDocument, *, null: bool) -> str | None:
    """Return the name of a document in the drop list; None if the line could mean something else.

    Also if it is a path that is not UTF-8, which a page cannot have.
    """
    name = _listed_name(document, null=null)
    return None if _ambiguity(document, name, null=null) or name != storable(name) else name


def _listed_name(document: StoredDocument, *, null: bool) -> str:
    """Return the name of a document in the drop list: its place, if its id could mean something else.

    With `null`, a path has all its bytes, in surrogates if they are not UTF-8.
    """
    if document.line is not None:
        is_id = document.name != document.place
        return document.place if is_id and (document.mistakable or _is_path(document.name)) else document.label
    path = (null and _path_with_backslash(document)) or document.label
    return f"./{path}" if path.startswith("-") else path  # rm would take it for options


def _path_with_backslash(document: StoredDocument) -> str | None:
    """Return the path of a file that is one document, if there is a backslash in its name and it is known."""
    return path_of(document.name, document.identity) if "\\" in document.label else None


def _ambiguity(document: StoredDocument, name: str, *, null: bool) -> tuple[str, str] | None:
    """Return why a name in the list could mean something else, in short and in full; None if it cannot."""
    if not null and set("\n\r") & set(name):
        return "line end", "the name would be more than one line: --null ends names with a NUL instead"
    if document.line is not None and name != document.place:
        replaced = "in an id, it may stand for a character that PostgreSQL cannot store"
        return ("backslash", replaced) if _REPLACED.search(name) else None
    return _ambiguity_of_path(document, name, null=null)


def _ambiguity_of_path(document: StoredDocument, name: str, *, null: bool) -> tuple[str, str] | None:
    if "\\" in name and not (null and document.line is None and _path_with_backslash(document)):
        advice = "" if null or document.line is not None else ": --null writes it"
        return "backslash", f"in a path, it may stand for a byte that is not UTF-8{advice}"
    if document.line is not None and _is_path(name):
        return "place and path", "the place of this record is also the path of a file"
    if document.misleading:
        return "place and id", "the place of this document is also the id of another one"
    if document.line is None and document.mistakable:
        return "place and path", "the path of this file is also the place of a record"
    return None


def _is_path(name: str) -> bool:
    return os.path.lexists(name)  # Path.exists raises for long names
