"""What a job reports: how far its stages are, and the documents that it skips."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from simsql.documents.decoding import CORRUPT
from simsql.documents.document import Document, Skip, printable, storable
from simsql.documents.opening import format_of_name
from simsql.errors import SimsqlError, UsageError

Report = Callable[[int], None]
"""Reports how much of a stage is done, in the unit of its total. The caller decides how to show it."""

DUPLICATE = "duplicate id"
NO_WORDS = "no words"
"""Reasons to skip a document after reading it."""

# What nobody misses: texts that are empty or there already, and what a folder leaves out.
_NOTHING_LOST = {"empty", "excluded", "hidden", "link", "special file", "not a picture"}
_NOTHING_LOST |= {DUPLICATE, NO_WORDS, "flat picture", "repeated header"}
# What the shape of a file hides from the run, and options show.
WRONG_SHAPE = {"no field", "records"}
_UNREAD_RECORDS = WRONG_SHAPE | {CORRUPT, "Arrow", "Parquet"}
# Files of other data, which may well lie in a folder beside files of records.
_OTHER_DATA = {"ambiguous field", "not a string", "no text"}
# Half of a file of such records is another dialect, or damaged.
_BROKEN = {"not JSON", "not an object", "not CSV", "wrong number of fields", "not utf-8"}
_EXAMPLES = 10  # of each reason, so that a run that skips a million documents stays readable


class Stages(Protocol):
    """Run the stages of a job one after the other."""

    def stage(self, name: str, total: int | None = None, *, shown: bool = True) -> AbstractContextManager[Report]:
        """Time a stage, and show its progress if `shown`; without a total, only that it is running."""


class SkipCount:
    """The number of skipped documents by reason, and the first ten of each.

    `named` are the names of the files that nobody wants to miss beside files of records; None keeps all in mind.
    """

    def __init__(self, named: Collection[str] | None = None) -> None:
        self.by_reason: Counter[str] = Counter()
        self.examples: list[Skip] = []
        self.read: Counter[str] = Counter()
        """The number of documents of each file of records that has any."""
        self.guesses: Counter[str] = Counter()
        """The number of files that were decoded by a guess, by encoding."""
        self._documents = 0
        self._lacks: Counter[str] = Counter()
        """The number of documents that do not have a field, by field."""
        self._broken: Counter[str] = Counter()
        """The number of records of each file that are no records."""
        self._named = named
        self._files: dict[str, Skip] = {}
        """One skip for each file of which anything was skipped: that of the file, or the first record."""

    def add(self, skip: Skip) -> None:
        """Count a skip."""
        name = name_of_file(skip)
        self._note(name, skip)
        self._broken[name] += skip.line is not None and skip.reason in _BROKEN
        self.by_reason[skip.reason] += 1
        if self.by_reason[skip.reason] <= _EXAMPLES:
            self.examples.append(skip)

    def documents(self, items: Iterable[Document | Skip]) -> Iterator[Document]:
        """Yield the documents among the items, and count the others."""
        path: object = self
        name = ""
        for item in items:
            if isinstance(item, Skip):
                self.add(item)
                continue
            self._documents += 1
            if item.lacks:
                self._lacks.update({*item.lacks})
            if item.guess:
                self.guesses[item.guess] += 1
            if item.line is not None:
                if item.path is not path:
                    path, name = item.path, name_of_file(item)
                self.read[name] += 1
            yield item
            del item  # a long document is not kept while the next one is read

    def add_all(self, later: "SkipCount") -> None:
        """Count what another one has counted."""
        self.read.update(later.read)
        self._broken.update(later._broken)
        self._documents += later._documents
        self._lacks.update(later._lacks)
        left = {reason: _EXAMPLES - self.by_reason[reason] for reason in later.by_reason}
        for skip in later.examples:
            if left[skip.reason] > 0:
                left[skip.reason] -= 1
                self.examples.append(skip)
        self.by_reason.update(later.by_reason)
        self.guesses.update(later.guesses)
        for name, skip in later._files.items():
            self._note(name, skip)

    def _note(self, name: str, skip: Skip) -> None:
        if skip.reason in _NOTHING_LOST:
            return
        is_noted = self._named is None or name in self._named or skip.reason in _UNREAD_RECORDS
        if is_noted or format_of_name(Path(name)).is_records:
            known = self._files.setdefault(name, skip)
            if skip.line is None and known.line is not None:
                self._files[name] = skip

    def check_fields(self) -> None:
        """Raise UsageError if the user names a field that no document has."""
        if missing := [name for name, count in self._lacks.items() if count == self._documents]:
            raise UsageError(f"no record has a field {min(missing)!r}: check --text-field and --id-field")

    def check_read(self, what: str = "the results are incomplete") -> None:
        """Raise SimsqlError if a file of records, or one that the user named, was not read, or not all of it.

        A few records that are skipped are not enough, nor is a file of other data in a folder, unless nothing else
        was read. It is a UsageError if options would read it. Call it last: everything else is done all the same,
        except what `what` says.
        """
        self.check_fields()
        missed = []
        for name, skip in self._files.items():
            is_missed = name not in self.read or skip.line is None
            if is_missed and name not in (self._named or ()):
                if skip.reason in WRONG_SHAPE:
                    # Beside texts alone, what only looks like records may be settings.
                    is_missed = bool(self.read or format_of_name(Path(name)).is_records)
                else:
                    is_missed = not self.read or skip.reason not in _OTHER_DATA
            if is_missed or self._broken[name] >= max(self.read[name], 2):
                missed.append(name)
        if missed:
            skip = self._files[missed[0]]
            part = " in full" if missed[0] in self.read else ""
            more = f", nor {len(missed) - 1:,} more files" if len(missed) > 1 else ""
            raise (UsageError if skip.reason in WRONG_SHAPE else SimsqlError)(
                f"{what}: {missed[0]} was not read{part}{more} ({skip.reason}: {skip.detail})"
            )


def name_of_file(item: Document | Skip) -> str:
    """Return the name of the file that a document or a skip is about, as in its place."""
    return item.place if item.line is None else item.place.removesuffix(f":{item.line}")


def repeated_id(place: str, name: str, where: str) -> Skip:
    """Return the skip of a document whose id is not new; `where` describes the other one."""
    return Skip(place, DUPLICATE, f"{name!r} {where}")


def name_paths(paths: Sequence[str | Path]) -> str:
    """Return the paths of a run as one printable line."""
    return ", ".join(printable(storable(Path(path))) for path in paths)
