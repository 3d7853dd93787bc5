"""Files that are complete or not there at all."""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO, cast

from simsql.dedup.formats import printable, storable
from simsql.errors import SimsqlError, UsageError


def check_writable(path: Path) -> None:
    """Raise UsageError if no file can be written there; asked before the work, not after it."""
    folder = path.parent
    if path.is_dir():
        raise UsageError(f"{_show(path)} is a folder: give the name of a file")
    if not folder.is_dir():
        raise UsageError(f"{_show(folder)} is not a folder: create it, or write elsewhere")
    if not os.access(path if _is_special(path) else folder, os.W_OK):
        raise UsageError(f"no permission to write in {_show(folder)}: write elsewhere")


@contextmanager
def open_output(path: Path | None) -> Iterator[TextIO]:
    """Open a file for writing that takes its name only when it is complete; None is standard output.

    What is not a regular file, such as a pipe, is written directly. Raises SimsqlError if writing fails.
    """
    if path is None:
        yield sys.stdout
        sys.stdout.flush()
        return
    try:
        if _is_special(path):
            with path.open("w", encoding="utf-8") as file:
                yield file
            return
        with _replacing(path) as file:
            yield file
    except OSError as error:
        raise SimsqlError(f"{_show(path)} cannot be written: {error.strerror or error}") from error


@contextmanager
def _replacing(path: Path) -> Iterator[TextIO]:
    target = path.resolve()
    with tempfile.NamedTemporaryFile(
        "w", encoding="utf-8", dir=target.parent, prefix=f".{target.name}.", delete=False
    ) as file:
        unfinished = Path(file.name)
        try:
            # As open() would have made it: the mode of the file it replaces, else what the umask leaves.
            unfinished.chmod(target.stat().st_mode & 0o777 if target.exists() else 0o666 & ~_umask())
            yield cast(TextIO, file)
            file.flush()
            unfinished.replace(target)
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise


def _show(path: Path) -> str:
    return printable(storable(path))


def _is_special(path: Path) -> bool:
    return path.exists() and not path.is_file()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
