"""Refuse to drop documents where that could remove the only copy of a text.

The decisions are about what the run has read. Since then, somebody may have changed a file.
"""

import os

import numpy as np

from simsql.decide.documents import I64, Flags
from simsql.dedup.describe import NO_STATUS, status_of
from simsql.dedup.members import Decisions
from simsql.dedup.sources.files import FileSource
from simsql.documents import Skip


def refuse_drops(source: FileSource, decisions: Decisions) -> dict[int, Skip]:
    """Return why documents must not be dropped now, by position.

    The file of such a document, or that of the one that is kept in its favour, has changed since the run opened
    it, or both are in the same file.
    """
    verdicts = decisions.verdicts
    (dropped,) = np.nonzero((verdicts.kept != np.arange(source.total)) & (verdicts.cluster > 0))
    kept = verdicts.kept[dropped]
    file, kept_file = source.columns.file[dropped], source.columns.file[kept]
    line, kept_line = source.columns.line[dropped], source.columns.line[kept]
    changed = _changed(source, np.unique(np.concatenate([file, kept_file])))
    status = source.files.status
    (_, inode), is_stream = np.unique(status[:, :2], axis=0, return_inverse=True), status[:, 1] < 0
    inode = inode.reshape(-1)
    overlaps = (inode[file] == inode[kept_file]) & ~is_stream[file]
    overlaps &= (line == 0) | (kept_line == 0) | (line == kept_line)
    # A file that is one document may also be read as a file of records, through another of its names.
    holds_records = np.isin(inode, inode[source.columns.file[source.columns.line > 0]]) & ~is_stream
    is_records, kept_is_records = (line == 0) & holds_records[file], (kept_line == 0) & holds_records[kept_file]
    reasons = (
        (changed[kept_file], "changed", "{kept} has changed since this run read it: run again"),
        (changed[file], "changed", "it has changed since this run read it: run again"),
        (overlaps | is_records, "same file", "{kept} is in the same file"),
        (kept_is_records, "same file", "{kept} is also read as records, which could be dropped"),
    )
    refused: dict[int, Skip] = {}
    for applies, reason, detail in reasons:
        places = (source.names(some[applies]).place for some in (dropped, kept))
        for position, place, place_of_kept in zip(dropped[applies].tolist(), *places, strict=True):
            why = detail.format(kept=f"{place_of_kept}, which is kept in its favour,")
            refused.setdefault(position, Skip(place, reason, why))
    return refused


def _changed(source: FileSource, files: I64) -> Flags:
    """Return which of all files are not as they were when the run opened them, of those with these numbers."""
    status = source.files.status
    found = np.zeros(len(status), dtype=bool)
    for number, path, was in zip(
        files.tolist(), source.files.path.some(files), status[files].tolist(), strict=True
    ):
        found[number] = tuple(was) != NO_STATUS and tuple(was) != _status_now(path)
    return found


def _status_now(path: str) -> tuple[int, ...]:
    try:
        return status_of(os.stat(path))  # noqa: PTH116
    except OSError:
        return NO_STATUS
