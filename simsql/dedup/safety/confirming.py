"""Read documents again, to find out whether their texts are still there.

Neither a path nor the size and time of a file prove that: only the text does.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from simsql.decide.documents import GONE, PRESENT, UNKNOWN, States
from simsql.dedup.safety.identity import Identities, RecordFile, digest_text, file_of, paths_named, read_status
from simsql.documents import Document, DocumentReader, printable, storable
from simsql.errors import UsageError


class Reference(NamedTuple):
    """A document to find: where it was read, and the digests of its identity and its text."""

    id: int
    name: str
    place: str
    line: int | None
    """The line of a record; None for a whole file."""
    identity: str
    text_digest: str


class Location(NamedTuple):
    """The file that holds a document, and its line there; None for a whole file."""

    device: int
    inode: int
    line: int | None

    def overlaps(self, other: "Location") -> bool:
        """Return whether to remove one document could remove the other."""
        same_file = (self.device, self.inode) == (other.device, other.inode)
        return same_file and (self.line is None or other.line is None or self.line == other.line)


class Confirmer:
    """Find documents where they were read.

    `open_reader` reads files as the run does. `files` are the files of records that the run has read as a whole,
    by their names in places. `is_written` tells whether the run overwrites a file, whose texts are then gone.
    """

    def __init__(
        self,
        open_reader: Callable[[Sequence[Path]], DocumentReader],
        files: Mapping[str, RecordFile],
        is_written: Callable[[Path], bool],
    ) -> None:
        self._open_reader = open_reader
        self._is_written = is_written
        self._folder = Path(printable(storable(Path.cwd())))
        self._files = {self._absolute(name): file for name, file in files.items()}
        """Also those in which `find` has looked for some records, which are in `_found`."""
        self._complete = set(self._files)
        """The files of which the run has read everything that is there now."""
        self._found: dict[int, Location] = {}
        self._inodes = {file.status[:2] for file in files.values()}

    def find(self, wanted: Iterable[Reference]) -> dict[int, Location]:
        """Return where those documents are whose texts are still there, by id. Read each file once.

        What the run has not found in a file of records is not there.
        """
        missing: dict[str, Reference] = {}
        paths: dict[Path, None] = {}
        for document in wanted:
            name = self._name_of(document)
            if name not in self._complete and (path := self._path_of(document, name)):
                missing[document.identity] = document
                paths[path] = None
        found = {}
        identities = Identities()
        for item in self._read(list(paths)):
            asked = missing.get(identities.identify(item))
            status = identities.status
            if not asked or not item.path or not status or status != read_status(item.path):
                continue  # another file may have taken its name since it was opened
            if digest_text(item.text) == asked.text_digest:
                found[asked.id] = location = Location(status.device, status.inode, item.line)
                if item.line is not None:
                    self._files[self._name_of(asked)] = RecordFile(item.path, status)
                    self._found[asked.id] = location
                    self._inodes.add(status[:2])
        return found

    def look_for(self, references: Iterable[Reference]) -> States:
        """Return the states of documents of earlier runs. What came from standard input stays unknown."""
        references = list(references)
        found = self.find(reference for reference in references if not _is_stream(reference))
        states = [
            PRESENT if reference.id in found else UNKNOWN if _is_stream(reference) else GONE
            for reference in references
        ]
        return np.array(states, dtype=np.int8)

    def find_gone(self, references: Iterable[Reference]) -> list[Reference]:
        """Return the documents of earlier runs that are not there any more."""
        references = list(references)
        states = self.look_for(references).tolist()
        return [reference for reference, state in zip(references, states, strict=True) if state == GONE]

    def refresh(self, documents: Iterable[Reference]) -> None:
        """Look for those of these documents again whose files of records have changed. Call it before `locate`."""
        changed = {name for name, file in self._files.items() if read_status(file.path) != file.status}
        if changed:
            self._complete -= changed
            again = [document for document in documents if self._name_of(document) in changed]
            for document in again:
                self._found.pop(document.id, None)
            self.find(again)

    def locate(self, documents: Iterable[Reference]) -> dict[int, Location]:
        """Return where documents are that this run has read, by id. Leave out those whose text is not there now.

        A file that is one document is read again. A record is there if its file has not changed.
        """
        located = {}
        files = []
        for document in documents:
            name = self._name_of(document)
            if document.line is None:
                files.append(document)
            elif name not in self._files:
                located[document.id] = Location(-1, document.id, None)  # from a stream, which holds no other one
            elif name in self._complete:
                status = self._files[name].status
                located[document.id] = Location(status.device, status.inode, document.line)
            elif document.id in self._found:
                located[document.id] = self._found[document.id]
        return located | self.find(files)

    def holds_records(self, location: Location) -> bool:
        """Return whether a whole file is also read as a file of records."""
        return location.line is None and (location.device, location.inode) in self._inodes

    def _read(self, paths: Sequence[Path]) -> Iterator[Document]:
        while paths:
            try:
                reader = self._open_reader(paths)
            except UsageError:  # one of them has gone in this moment
                there = [path for path in paths if path.is_file()]
                if len(there) == len(paths):
                    raise
                paths = there
            else:
                yield from (item for item in reader if isinstance(item, Document))
                return

    def _path_of(self, document: Reference, name: str) -> Path | None:
        """Return the path of the file of a document, in whose name bytes that are not UTF-8 may be escaped."""
        if name in self._files:
            name = os.fspath(self._files[name].path)
        elif document.line is None and printable(document.name) == document.place:
            name = document.name
        for path in paths_named(name):
            # Path.is_file raises for long names.
            if os.path.isfile(path) and not self._is_written(Path(path)):  # noqa: PTH113
                return Path(path).absolute()  # the reader would take `-` for standard input
        return None

    def _name_of(self, document: Reference) -> str:
        return self._absolute(file_of(document.place, document.line))

    def _absolute(self, name: str) -> str:
        return name if name.startswith("/") else f"{self._folder}/{name}"


def _is_stream(document: Reference) -> bool:
    """Return whether a document of an earlier run came from standard input."""
    return document.line is not None and file_of(document.place, document.line) == "stdin"
