"""Write a clean corpus: copies of the files of records, without the records that are dropped.

A record goes only from a file that is as the run has read it, before and after the copying.
"""

import os
from array import array
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import numpy as np

from simsql.dedup.describe import NO_STATUS, status_of
from simsql.dedup.members import Member
from simsql.dedup.sources.files import FileSource
from simsql.documents import STDOUT, DocumentReader, Layout, Stages, printable, storable
from simsql.documents.compression import is_named_compressed
from simsql.documents.formats import ChangedError, Format, Target
from simsql.documents.opening import copy_file, format_of_name, open_at_once
from simsql.documents.output import Output, is_special, naming_output, open_binary_output, open_output_folder
from simsql.documents.spool import StreamSpool
from simsql.errors import SimsqlError, UsageError

_DAMAGED = {"corrupt", "unreadable"}
_SHOWN = 10  # files in an error
_REMOVE = "list files to remove with --drop-list FILE --null, and pass the list to xargs -0 rm --"


@dataclass
class _Copied:
    """A file to copy, and the lines of its records that are dropped."""

    name: str
    """As it begins the places of its records."""
    path: Path | None
    """None for standard input."""
    format: Format
    status: tuple[int, ...]
    target: Path
    """Where its copy goes, below the folder of the clean corpus."""
    lines: "array[int]" = field(default_factory=lambda: array("q"))


class Cleaner:
    """Copies the files that a run reads to `path`: a single one to a file, others to a folder of the same shape.

    Create it before the run reads. The run may also read an archive, which `reader` does not have. Raises
    UsageError for a path that cannot be used, or a file that cannot be copied.
    """

    def __init__(
        self,
        path: Path,
        arguments: Sequence[str],
        reader: DocumentReader,
        layout: Layout,
        *,
        stdin: StreamSpool | None,
        others: Iterable[Path],
    ) -> None:
        self.dropped = 0
        """Number of records that are left out."""
        self._path = path
        self._layout = layout
        self._stdin = stdin
        self._is_single = is_single(arguments)
        if not self._is_single:
            _check_folder(path, arguments, others)
        paths = [Path(argument) for argument in arguments]
        # The deepest folder that has all arguments.
        base = os.path.commonpath([_absolute(path if path.is_dir() else path.parent) for path in paths])
        targets: dict[Path, str] = {}
        has_ending = self._is_single and path != STDOUT and not is_special(path)
        self._files: dict[str, _Copied] = {}
        for found, format_ in reader.files():
            name = printable(storable(found.path)) if found.path else "stdin"
            if format_.is_records is False:
                continue  # one document, skipped, or refused once it is read
            if found.path is None and not self._is_single:
                raise UsageError("--clean takes standard input alone: save it as a file to read it with others")
            if found.path and found.size is None:
                raise UsageError(
                    f"--clean reads {name} twice, which a pipe does not allow: use - or save it as a file"
                )
            if has_ending and found.path and _kind(path) != _kind(found.path):
                raise UsageError(
                    f"--clean {_show(path)} is a copy in the format of {name}: choose a name with the same ending"
                )
            if name in self._files:
                raise UsageError(f"--clean cannot tell two files called {name} apart: rename one of them")
            target = Path(os.path.relpath(_absolute(found.path), base)) if found.path else STDOUT
            if other := targets.get(target):
                raise UsageError(
                    f"--clean would copy both {other} and {name} to {_show(target)}: leave one of them out"
                )
            targets[target] = name
            self._files[name] = _Copied(name, found.path, format_, status_of(found.status), target)
        if not self._files:
            raise UsageError(f"--clean copies JSON, tables and Parquet files, but found none: {_REMOVE}")

    def check(self, source: FileSource) -> None:
        """Raise UsageError for files that cannot be copied, and SimsqlError for one that is new since the walk."""
        columns, files = source.columns, source.files
        copied = ~source.protected if source.rules.to_archive else np.ones(source.total, dtype=bool)
        whole = source.names(np.flatnonzero(copied & (columns.line == 0))).place
        unfit = [f"{place} (one document)" for place in whole]
        for skip in source.reader.skips.examples:
            if skip.reason in _DAMAGED and skip.place in self._files:
                unfit.append(f"{skip.place} ({skip.detail})")
        if unfit:
            more = f" and {len(unfit) - _SHOWN:,} more" if len(unfit) > _SHOWN else ""
            raise UsageError(
                f"--clean copies files of records, and not {', '.join(unfit[:_SHOWN])}{more}: leave out other"
                f" files with --exclude, or {_REMOVE}"
            )
        for path in files.path.some(np.unique(columns.file[~copied])):  # of the archive, to which a link may lead
            self._files.pop(printable(storable(Path(path))), None)
        numbers = np.unique(columns.file[copied & (columns.line > 0)])
        for path, status in zip(files.path.some(numbers), files.status[numbers].tolist(), strict=True):
            if tuple(status) != NO_STATUS:
                name = printable(storable(Path(path)))
                if name not in self._files:
                    raise _changed(name)
                self._files[name].status = tuple(status)

    def add(self, members: Sequence[Member]) -> None:
        """Leave out those members of a cluster that are droppable."""
        for member in members:
            if member.droppable:
                self._files[member.place.removesuffix(f":{member.line}")].lines.append(member.line)
                self.dropped += 1

    def write(self, stages: Stages, files: ExitStack) -> None:
        """Write the clean corpus, which takes its name when `files` ends well.

        Raises SimsqlError if a file is not as the run has read it, or cannot be written.
        """
        sizes = [file.status[2] for file in self._files.values() if file.path]
        with stages.stage("write clean corpus", sum(sizes) or None) as report:
            done = 0

            def advance(size: int) -> None:
                nonlocal done
                done += size
                report(done)

            if self._is_single:
                (file,) = self._files.values()
                output = files.enter_context(open_binary_output(self._path))
                self._copy(file, output, advance)
                output.flush()
                return
            folder = files.enter_context(open_output_folder(self._path))
            for file in self._files.values():
                target, shown = folder / file.target, self._path / file.target
                with naming_output(shown):
                    target.parent.mkdir(parents=True, exist_ok=True)
                    opened = target.open("xb")
                with opened, naming_output(shown):
                    self._copy(file, Output(opened, shown), advance)
                    opened.close()

    def _copy(self, file: _Copied, output: Target, advance: Callable[[int], None]) -> None:
        """Copy a file, which has to be as the run has read it, before and after."""
        lines = np.sort(np.frombuffer(file.lines, dtype=np.int64)).tolist()
        with ExitStack() as stack:
            if not file.path:
                assert self._stdin  # noqa: S101 - as it is among the arguments
                source = self._stdin.again()
            else:
                try:
                    source = stack.enter_context(open_at_once(file.path))
                except OSError:
                    raise _changed(file.name) from None
                _check_status(source, file)
            try:
                copy_file(source, output, file.name, file.format, self._layout, lines, advance)
            except ChangedError:
                raise _changed(file.name) from None
            if file.path:
                _check_status(source, file)


def is_single(arguments: Sequence[str]) -> bool:
    """Return whether these arguments of a run are one file, or standard input."""
    return (
        len({name if name == "-" else Path(name) for name in arguments}) == 1 and not Path(arguments[0]).is_dir()
    )


def _check_folder(path: Path, arguments: Sequence[str], others: Iterable[Path]) -> None:
    """Raise UsageError if a folder cannot be written there, beside these other outputs."""
    shown = f"--clean {_show(path)}"
    if path == STDOUT or (path.exists() and not path.is_dir()):
        raise UsageError(f"{shown} would be one file: name a new folder for copies of several files")
    target = path.resolve()
    if path.exists() and any(path.iterdir()):
        raise UsageError(f"{shown} is not empty: name a new folder")
    if path.is_mount():
        raise UsageError(f"{shown} is a mount point: name a new folder in it")
    if not target.parent.is_dir():
        raise UsageError(f"{_show(target.parent)} is not a folder: create it, or choose another")
    if not os.access(target.parent, os.W_OK):
        raise UsageError(f"no permission to write to {_show(target.parent)}: choose another folder")
    for argument in arguments:
        folder = Path(argument).resolve()
        if argument != "-" and target.is_relative_to(folder):
            raise UsageError(f"{shown} is inside {_show(folder)}, which is read: name a folder outside")
    for other in others:
        if other.resolve().is_relative_to(target):
            raise UsageError(f"{_show(other)} is inside {shown}, which has only copies: write to another folder")


def _absolute(path: Path) -> str:
    return os.path.abspath(path)  # noqa: PTH100 - the name of a link is kept


def _kind(path: Path) -> tuple[Format, str]:
    """Return the format and the compression that the ending of a name shows."""
    return format_of_name(path), path.suffix.lower() if is_named_compressed(path) else ""


def _check_status(source: IO[bytes], file: _Copied) -> None:
    if status_of(os.fstat(source.fileno())) != file.status:
        raise _changed(file.name)


def _changed(name: str) -> SimsqlError:
    return SimsqlError(f"{name} has changed since this run read it, so it is not copied: run again")


def _show(path: Path) -> str:
    return printable(storable(path))
