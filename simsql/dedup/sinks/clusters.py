"""Write clusters and the drop list."""

import sys
from collections.abc import Container, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np

from simsql.dedup.members import Decisions, Member
from simsql.dedup.remarks import KindCount
from simsql.dedup.sinks.clean import Cleaner
from simsql.dedup.sinks.drop_list import ambiguity, listed_name, unambiguous_name
from simsql.dedup.sinks.formats import JSON_LINES, ClusterWriter
from simsql.dedup.sinks.refusing import refuse_drops
from simsql.dedup.sources.files import FileSource
from simsql.documents import STDOUT, Skip, SkipCount, Stages, open_output, printable, storable


@dataclass
class ClusterCount:
    """Counts over all clusters."""

    clusters: int = 0
    members: int = 0
    droppable: int = 0
    kinds: KindCount = field(default_factory=KindCount)
    """The kinds of the droppable ones."""
    refused: SkipCount = field(default_factory=SkipCount)
    """Dropped documents that are not droppable, because nobody knows that their text is still there afterwards."""
    shared: int = 0
    """Members whose name is also the name or the place of another document."""
    example: Member | None = None
    """One of them."""
    unlisted: SkipCount = field(default_factory=SkipCount)
    """Droppable documents left out of the drop list, because their line could mean something else."""

    def add(self, members: Sequence[Member]) -> list[Member]:
        """Count the members of a cluster, and return those that are droppable."""
        droppable = [member for member in members if member.droppable]
        self.clusters += 1
        self.members += len(members)
        self.droppable += len(droppable)
        for member in droppable:
            self.kinds.add(member.kind or "", member.kept)
        if shared := [member for member in members if member.shared]:
            self.shared += len(shared)
            self.example = self.example or min(shared, key=attrgetter("position"))
        return droppable


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


class FileSink:
    """Writes the clusters of a job on files and, if they are wanted, a drop list, a report and a clean corpus."""

    def __init__(self, source: FileSource, wanted: ClusterOutput, cleaner: Cleaner | None) -> None:
        self.count = ClusterCount()
        self._source = source
        self._wanted = wanted
        self.cleaner = cleaner

    def write(self, decisions: Decisions, stages: Stages, files: ExitStack) -> None:
        """Write all files, which take their names when `files` ends well."""
        with stages.stage("check files"):
            refused = refuse_drops(self._source, decisions)
        self._write_clusters(decisions, stages, refused, files)
        if self._wanted.report:
            with stages.stage("write report"):
                page = files.enter_context(open_output(self._wanted.report))
                self._write_report(page, decisions, refused)
        if self.cleaner:
            self.cleaner.write(stages, files)

    def _write_clusters(
        self, decisions: Decisions, stages: Stages, refused: Mapping[int, Skip], files: ExitStack
    ) -> None:
        wanted, count = self._wanted, self.count
        for skip in refused.values():
            count.refused.add(skip)
        output = files.enter_context(wanted.writer.open(wanted.clusters))
        drop_list = files.enter_context(open_output(wanted.drop_list)) if wanted.drop_list else None
        # A progress bar would break up the lines of the output.
        shown = STDOUT not in (wanted.clusters or STDOUT, wanted.drop_list) or not sys.stdout.isatty()
        total = int(np.count_nonzero(decisions.verdicts.cluster))
        with stages.stage("write clusters", total, shown=shown) as report:
            if wanted.writer.head:
                output.write(wanted.writer.head)
            for members in decisions.clusters(refused):
                droppable = count.add(members)
                output.write(wanted.writer.cluster(count.clusters, members))
                if self.cleaner:
                    self.cleaner.add(members)
                if drop_list:
                    self._list(droppable, drop_list)
                report(count.members)
            # Before the first of them takes its name: a full disk fails both.
            for file in (output, drop_list):
                if file:
                    file.flush()

    def _list(self, droppable: Iterable[Member], drop_list: Any) -> None:
        null = self._wanted.null
        for member in droppable:
            name = listed_name(member)
            if why := ambiguity(member, name, null=null):
                self.count.unlisted.add(Skip(printable(storable(name)), *why))
            else:
                drop_list.write(name + ("\0" if null else "\n"))

    def _write_report(self, page: Any, decisions: Decisions, refused: Container[int]) -> None:
        # Here: the templates take longer to import than a short run.
        from simsql.dedup.sinks.report import picture_reader, write_run_report  # noqa: PLC0415

        source, null = self._source, self._wanted.null
        pictures = source.recipe.of_pictures
        write_run_report(
            page,
            decisions,
            source.recipe,
            partial(unambiguous_name, null=null),
            refused=refused,
            content_of=source.content_of,
            documents=source.total,
            read_text=picture_reader(source.path_of, source.read_text) if pictures else source.read_text,
            skipped={
                "skipped": source.reader.skips,
                "not compared": source.wordless,
                "not droppable": self.count.refused,
                "not in the drop list": self.count.unlisted,
            },
            line_end="\0" if null else "\n",
            noun="picture" if pictures else "document",
        )
        page.flush()
