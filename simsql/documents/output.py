"""Output files and folders that only appear when they are complete."""

import os
import re
import secrets
import shlex
import shutil
import stat
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from glob import escape
from io import TextIOWrapper
from pathlib import Path
from typing import IO, Any, AnyStr, BinaryIO, Generic, TextIO

from simsql.documents.compression import COMPRESSIONS, is_named_compressed
from simsql.documents.document import printable, storable
from simsql.errors import SimsqlError, UsageError

STDOUT = Path("-")
"""Standard output, among the paths of outputs."""

_Identity = tuple[int, int]  # device and inode
_STDOUT_NAME = "standard output"
_TEXT: dict[str, Any] = {"encoding": "utf-8", "errors": "surrogateescape"}  # paths may have any bytes
# What is not written, although a name may promise it.
_OTHER_FORMATS = {".lz4", ".br", ".z", ".zip", ".7z", ".parquet", ".arrow", ".feather", ".orc", ".avro", ".xlsx"}
_OTHER_FORMATS |= {".png", ".jpg", ".jpeg", ".gif", ".webp", ".pdf", ".eps"}

# What a terminal may take for a command, or show in another order.
_COMMANDS = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


class Output(Generic[AnyStr]):
    """A file whose write errors name the file."""

    def __init__(self, file: IO[AnyStr], path: Path) -> None:
        self._file: IO[AnyStr] = file
        self._path = path

    def write(self, data: AnyStr) -> None:
        """Write text or bytes. Raises SimsqlError if that fails."""
        try:  # a context manager would take longer than the writing
            self._file.write(data)
        except OSError as error:
            raise _unwritable(self._path, error) from error

    def flush(self) -> None:
        """Write buffered text. Raises SimsqlError if that fails."""
        with naming_output(self._path):
            self._file.flush()


class Outputs:
    """The files that a run writes: none of them is also read, and no two are the same.

    Files are the same if they have the same path or the same device and inode, so links and other spellings of a
    path do not matter. `-` is standard output. Create this before the work. `files` has the path for each option,
    None if it is not used; `fitting` are the options of files whose names are known to fit what is written. Raises
    UsageError if a file cannot be written, or two are the same.
    """

    def __init__(self, files: Mapping[str, Path | None], fitting: Collection[str] = ()) -> None:
        self._options: dict[_Identity | Path, str] = {}
        self._at_risk: set[_Identity] = set()  # existing files that are not empty
        for option, path in files.items():
            if path is None:
                continue
            if path != STDOUT:
                _check_writable(path)
                ending = path.suffix.lower()
                if option not in fitting and ending in _OTHER_FORMATS and not is_special(path):
                    raise UsageError(f"{option} {_show(path)}: this option does not write {ending} files")
            identity = identify(sys.stdout if path == STDOUT else path)
            other = self._options.setdefault(identity or path.resolve(), option)
            if other != option:
                shown = _STDOUT_NAME if path == STDOUT else f"the file {_show(path)}"
                raise UsageError(f"{other} and {option} both write to {shown}: name another file for one of them")
            if identity and path != STDOUT and path.stat().st_size:
                self._at_risk.add(identity)
        if (redirected := identify(sys.stdout)) is not None:
            self._options.setdefault(redirected, _STDOUT_NAME)

    def refuse(self, *sources: Path | IO[Any] | None) -> None:
        """Raise UsageError if a file that is read is also written: a path, or a stream that may be redirected."""
        for source in sources:
            # A path without a file may be that of a pipe.
            key = identify(source) or (source.resolve() if isinstance(source, Path) else None)
            if key and (option := self._options.get(key)):
                shown = _show(source) if isinstance(source, Path) else "standard input"
                raise UsageError(f"{option} is the same file as {shown}, which is read: write to another file")

    def covers(self, path: Path, status: os.stat_result) -> bool:
        """Return whether a regular file in a folder that is read is one of them.

        Raises UsageError if it would be overwritten although it has content.
        """
        identity = status.st_dev, status.st_ino
        if identity in self._at_risk:
            raise UsageError(
                f"{self._options[identity]} would overwrite {_show(path)}, which is in a folder that is read:"
                f" write to another file, or leave this one out with --exclude {shlex.quote(escape(path.name))}"
            )
        return identity in self._options


def identify(file: Path | IO[Any] | None) -> _Identity | None:
    """Return the identity of a regular file, given its path or as an open stream; None for anything else."""
    if file is None:
        return None
    try:
        status = file.stat() if isinstance(file, Path) else os.fstat(file.fileno())
    except (OSError, ValueError):  # missing; a stream that is closed or in memory
        return None
    return (status.st_dev, status.st_ino) if stat.S_ISREG(status.st_mode) else None


def _check_writable(path: Path) -> None:
    """Raise UsageError if a file cannot be written there."""
    folder = path.parent
    if path.is_dir():
        raise UsageError(f"{_show(path)} is a folder: name a file")
    if not folder.is_dir():
        raise UsageError(f"{_show(folder)} is not a folder: create it, or choose another")
    if not os.access(path if is_special(path) else folder, os.W_OK):
        raise UsageError(f"no permission to write to {_show(folder)}: choose another folder")


class _Terminal:
    """Standard output at a terminal: controls in a text are escaped as in JSON, so that they command nothing."""

    def write(self, text: str) -> None:
        sys.stdout.write(_COMMANDS.sub(lambda found: f"\\u{ord(found[0]):04x}", text))

    def flush(self) -> None:
        sys.stdout.flush()


def standard_output() -> TextIO | _Terminal:
    """Return standard output for results: byte for byte as they are, except at a terminal."""
    return _Terminal() if sys.stdout.isatty() else sys.stdout


@contextmanager
def open_output(path: Path | None) -> Iterator[Output[str] | _Terminal | TextIO]:
    """Open a file that gets its name only when it is complete, or standard output for None and `STDOUT`.

    Pipes and other special files are written directly. Others are compressed if their name says so. Raises
    SimsqlError if writing fails.
    """
    if path is None or path == STDOUT:
        yield standard_output()
        sys.stdout.flush()
        return
    with _open(path) as file:
        is_packed = is_named_compressed(path) and not is_special(path)
        text = TextIOWrapper(COMPRESSIONS[path.suffix.lower()].write(file) if is_packed else file, **_TEXT)
        try:
            yield Output(text, path)
            with naming_output(path):
                text.close() if is_packed else text.flush()
        except BaseException:
            abandon(file)  # or what is left of the text would be written
            with suppress(OSError, ValueError):
                text.close()
            raise


@contextmanager
def open_binary_output(path: Path) -> Iterator[Output[bytes] | BinaryIO]:
    """Open a file for bytes, as `open_output`."""
    if path == STDOUT:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    with _open(path) as file:
        yield Output(file, path)


@contextmanager
def open_output_folder(path: Path) -> Iterator[Path]:
    """Yield an empty folder that gets its name, which is new or that of an empty folder, when it is complete."""
    target = path.resolve()
    unfinished = _unfinished(target)
    try:
        with naming_output(path):
            unfinished.mkdir()
        yield unfinished
        with naming_output(path):
            unfinished.rename(target)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise


def abandon(file: IO[Any]) -> None:
    """Discard all further output to a file, including buffered output."""
    try:
        descriptor = file.fileno()
    except OSError:  # a stream in memory
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)


@contextmanager
def _open(path: Path) -> Iterator[IO[bytes]]:
    """Open a file that gets its name when it is complete, or something special that is there."""
    target = path.resolve()
    is_file = not is_special(path)
    unfinished = _unfinished(target) if is_file else path
    file = None
    try:
        with naming_output(path):
            opener = partial(os.open, mode=0o600) if is_file and target.exists() else None
            file = open(unfinished, "xb" if is_file else "wb", opener=opener)  # noqa: SIM115
            if is_file and target.exists():
                unfinished.chmod(target.stat().st_mode & 0o777)
        yield file
        with naming_output(path):
            file.close()
            if is_file:
                unfinished.replace(target)
    except BaseException:
        if is_file:
            unfinished.unlink(missing_ok=True)
        if file and not file.closed:
            abandon(file)  # the reader of a pipe may have gone, or may never read on
        raise
    finally:
        if file:
            file.close()


def _unfinished(target: Path) -> Path:
    """Return another name for a target until it is complete.

    It is chosen before anything is there: an interrupt at any moment finds what it has to remove. Only the
    beginning of the target's name is in it, which may be as long as a name can be.
    """
    return target.with_name(f".{target.name[:40]}.{secrets.token_hex(8)}")


@contextmanager
def naming_output(path: Path) -> Iterator[None]:
    """Raise SimsqlError, which names the file, for errors of the system."""
    try:
        yield
    except OSError as error:
        raise _unwritable(path, error) from error


def _unwritable(path: Path, error: OSError) -> SimsqlError:
    return SimsqlError(f"{_show(path)} cannot be written: {error.strerror or error}")


def _show(path: Path) -> str:
    return printable(storable(path))


def is_special(path: Path) -> bool:
    """Return whether something is there that is no file, such as a pipe."""
    return path.exists() and not path.is_file()
