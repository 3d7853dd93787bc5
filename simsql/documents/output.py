"""Output files that only appear when they are complete."""

import os
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TextIO

from simsql.documents.formats import printable, storable
from simsql.errors import SimsqlError, UsageError


class Output:
    """A text file whose write errors name the file."""

    def __init__(self, file: IO[str], path: Path) -> None:
        self._file = file
        self._path = path

    def write(self, text: str) -> None:
        """Write text. Raises SimsqlError if that fails."""
        with _naming(self._path):
            self._file.write(text)

    def flush(self) -> None:
        """Write buffered text. Raises SimsqlError if that fails."""
        with _naming(self._path):
            self._file.flush()


def check_writable(path: Path) -> None:
    """Raise UsageError if a file cannot be written there. Call this before the work, not after it."""
    folder = path.parent
    if path.is_dir():
        raise UsageError(f"{_show(path)} is a folder: name a file")
    if not folder.is_dir():
        raise UsageError(f"{_show(folder)} is not a folder: create it, or choose another")
    if not os.access(path if _is_special(path) else folder, os.W_OK):
        raise UsageError(f"no permission to write to {_show(folder)}: choose another folder")


@contextmanager
def open_output(path: Path | None) -> Iterator[Output | TextIO]:
    """Open a file that gets its name only when it is complete, or standard output for None.

    Pipes and other special files are written directly. Raises SimsqlError if writing fails.
    """
    if path is None:
        yield sys.stdout
        sys.stdout.flush()
        return
    with _writing(path) if _is_special(path) else _replacing(path) as output:
        yield output


def abandon(file: IO[str]) -> None:
    """Discard all further output to a file, including buffered output."""
    try:
        descriptor = file.fileno()
    except OSError:  # a stream in memory
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)


@contextmanager
def _writing(path: Path) -> Iterator[Output]:
    with _naming(path):
        file = path.open("w", encoding="utf-8")
    try:
        yield Output(file, path)
        with _naming(path):
            file.flush()
    except BaseException:
        abandon(file)  # the reader of the pipe may have gone, or may never read on
        raise
    finally:
        file.close()


@contextmanager
def _replacing(path: Path) -> Iterator[Output]:
    target = path.resolve()
    # The name is chosen before the file is there: an interrupt at any moment finds what it has to remove.
    # Only the beginning of the target's name, which may be as long as a name can be.
    unfinished = target.with_name(f".{target.name[:40]}.{secrets.token_hex(8)}")
    file = None
    try:
        with _naming(path):
            file = open(  # noqa: SIM115 - Path.open takes no opener; closed below
                unfinished, "x", encoding="utf-8", opener=_create_private if target.exists() else None
            )
            if target.exists():
                unfinished.chmod(target.stat().st_mode & 0o777)
        yield Output(file, path)
        with _naming(path):
            file.close()
            unfinished.replace(target)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        if file and not file.closed:
            abandon(file)
        raise
    finally:
        if file:
            file.close()


def _create_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SimsqlError(f"{_show(path)} cannot be written: {error.strerror or error}") from error


def _show(path: Path) -> str:
    return printable(storable(path))


def _is_special(path: Path) -> bool:
    return path.exists() and not path.is_file()
