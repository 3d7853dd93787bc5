"""Read the documents of the files that a user names, in any format."""

import codecs
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from simsql.documents.decoding import DETECT, Stream, UnfitError, decode_text
from simsql.documents.document import USUAL, Document, Found, Layout, Skip, printable, storable
from simsql.documents.files import VISIBLE, InputFiles, Selection
from simsql.documents.formats import Format
from simsql.documents.opening import FileReader, format_of, format_of_name
from simsql.documents.output import Outputs
from simsql.documents.parts import PART, Part, split
from simsql.documents.reports import WRONG_SHAPE, Report, SkipCount, name_paths
from simsql.errors import SimsqlError, UsageError


class DocumentReader(FileReader):
    """The documents in files, folders and standard input; iterate over it.

    Yield a `Document` for every text and a `Skip` for everything that cannot be used. A bad document or an
    unreadable file never ends the iteration. Only one document at a time is held in memory, and none above the
    limit of the layout.

    `-` among the paths is standard input (a file of that name is `./-`, as a string), which is not closed. What
    the run writes, `outputs`, is left out of folders. Raises UsageError if a path is empty or does not exist, the
    encoding is unknown, the run would overwrite a file that it reads, or standard input is one of the files.
    Folders have been walked then, but nothing has been read.
    """

    def __init__(
        self,
        paths: Sequence[str | Path],
        layout: Layout = USUAL,
        *,
        selection: Selection = VISIBLE,
        stdin: BinaryIO | None = None,
        outputs: Outputs | None = None,
    ) -> None:
        if "" in paths:  # of a variable that is not set: Path would take it for this folder
            raise UsageError("a path is empty: name a file or a folder")
        super().__init__(replace(layout, encoding=_known_encoding(layout.encoding)), stdin=stdin)
        named = {"stdin" if str(path) == "-" else printable(storable(Path(path))) for path in paths}
        self.skips = SkipCount(named)
        """What `documents` has skipped and read. What is in `parts` has to be added."""
        self._paths = paths
        arguments = [None if str(path) == "-" else Path(path) for path in paths]
        if stdin is None and None in arguments:
            raise UsageError("'-' means standard input, but there is none")
        self._files = InputFiles(arguments, selection=selection, outputs=outputs or Outputs({}), stdin=stdin)
        self.bytes_total = self._files.bytes_total
        """The final value of `bytes_done`; None if the paths include standard input, a pipe or a device."""

    def __iter__(self) -> Iterator[Document | Skip]:
        self.bytes_done = 0
        for found in self._files:
            if isinstance(found, Skip):
                yield found
            else:
                yield from self.read(found)

    def files(self) -> Iterator[tuple[Found, Format]]:
        """Yield the files that are there, with their formats."""
        for found in self._files:
            if isinstance(found, Found):
                yield found, format_of(found, self.layout)

    def parts(self) -> Iterator[Part]:
        """Yield parts of the files that any process can read, in the order of the documents."""
        return split(self._files, self)

    def is_small(self, parts: int) -> bool:
        """Return whether the documents are less than this number of parts. A stream may be of any length."""
        return self.bytes_total is not None and self._files.weight < parts * PART

    def documents(self, report: Report) -> Iterator[Document]:
        """Yield the documents, count the skips, and report the bytes read."""

        def reported() -> Iterator[Document | Skip]:
            for item in self:
                report(self.bytes_done)
                yield item
                del item  # a long document is not kept while the next one is read

        return self.skips.documents(reported())

    def nothing_found(self, advice: str = "") -> SimsqlError:
        """Return the error for files without documents."""
        where = name_paths(self._paths)
        if not self.skips.by_reason:
            return SimsqlError(f"no documents in {where}: found nothing to read")
        reasons = ", ".join(f"{count} {reason}" for reason, count in self.skips.by_reason.most_common())
        ((most, _),) = self.skips.by_reason.most_common(1)
        first = next(skip for skip in self.skips.examples if skip.reason == most)
        if not advice and "-" in map(str, self._paths) and self.skips.by_reason["not JSON"]:
            column = " or ".join(map(repr, self.layout.text_fields))
            advice = f"; stdin must be JSON lines, or a table with a column {column}"
        which = "the first was" if len(self.skips.by_reason) == 1 else f"the first {most} was"
        said = f"no documents in {where}: skipped {reasons}; {which} {first.place}: {first.detail}{advice}"
        return (UsageError if most in WRONG_SHAPE else SimsqlError)(said)


def _known_encoding(encoding: str) -> str:
    """Return Python's name for an encoding: utf8 and UTF-8 are the same."""
    if encoding == DETECT:
        return encoding
    try:
        name = codecs.lookup(encoding).name
        "a".encode(name)  # refuses codecs that are not between text and bytes, such as base64
    except (LookupError, ValueError):
        raise UsageError(
            f"unknown encoding {encoding!r}: name one that Python knows, such as utf-8, cp1252, gbk or shift_jis"
        ) from None
    # A mark is found without it, and Python's decoder passes over a file that begins like one and ends.
    return "utf-8" if name == "utf-8-sig" else name


def read_single_text(path: str, *, encoding: str, max_document: int, stdin: BinaryIO) -> str:
    """Return the only text in a file, in any format that the commands read; `-` is all of standard input.

    Raises UsageError if the file is missing or contains several documents, and SimsqlError if it contains no text
    or more than `max_document` bytes.
    """
    if path == "-":
        try:
            return decode_text(Stream(stdin), encoding, max_document)
        except UnfitError as unfit:
            raise SimsqlError(f"stdin: {unfit.reason}: {unfit.detail}") from None
    # Also one that looks like records.
    is_text = format_of_name(Path(path)).is_records is False
    layout = Layout(encoding=encoding, max_document=max_document, format="text" if is_text else None)
    match list(islice(DocumentReader([path], layout), 2)):
        case [Document(text=text)]:
            return text
        case [Skip(place=place, reason=reason, detail=detail)]:
            raise SimsqlError(f"{place}: {reason}: {detail}")
        case []:
            raise UsageError(f"{printable(path)} contains no document: name a file with one text")
    raise UsageError(f"{printable(path)} contains several documents: name a file with one text")
