"""Find the files that a user names, alone and inside folders.

Folders are read recursively in name order. Inside them, symbolic links, special files and all that a `Selection`
leaves out are skipped, but not if the user names them. A file is read once, even if two arguments lead to it.
"""

import errno
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import BinaryIO

from simsql.documents.compression import READ_ERRORS
from simsql.documents.decoding import UnfitError
from simsql.documents.document import Found, Skip, printable, storable
from simsql.documents.output import Outputs, identify
from simsql.errors import UsageError


def _split(glob: str) -> list[str]:
    return [part for part in glob.split("/") if part not in ("", ".")]


def _matches(glob: str, parts: Sequence[str], *, is_folder: bool) -> bool:
    if glob.endswith("/") and not is_folder:
        return False
    if "/" not in glob.rstrip("/"):
        return fnmatchcase(parts[-1], glob.rstrip("/"))
    return _match_parts(_split(glob), parts)


def _match_parts(globs: Sequence[str], parts: Sequence[str]) -> bool:
    if not globs:
        return not parts
    if globs[0] == "**":  # any number of folders, and at the end all that is in a folder
        rest = globs[1:]
        return any(_match_parts(rest, parts[start:]) for start in range(len(parts))) if rest else bool(parts)
    return bool(parts) and fnmatchcase(parts[0], globs[0]) and _match_parts(globs[1:], parts[1:])


@dataclass(frozen=True)
class Selection:
    """The files to read inside the folders that a user names.

    A glob without a slash matches names at any depth, a glob with a slash paths below the folder that the user
    names, and one that ends in a slash only folders. `*` and `?` match no slash, and `**` any number of folders.
    """

    hidden: bool = False
    """Whether to read files and folders whose names begin with a dot."""
    include: Sequence[str] = ()
    """Globs: read only files that match one of them. None of them read every file."""
    exclude: Sequence[str] = ()
    """Globs: leave out files and folders that match one of them. The folders are not entered."""
    follow_links: bool = False
    """Whether to read what symbolic links inside folders lead to, once."""

    def __post_init__(self) -> None:
        for option, globs in (("--include", self.include), ("--exclude", self.exclude)):
            if not all(map(_split, globs)):
                raise UsageError(f"{option} needs a glob, such as '*.txt' or 'drafts/**'")

    def reason_against(self, parts: Sequence[str], *, is_folder: bool) -> UnfitError | None:
        """Return the error for a file or folder inside a folder that is not read.

        `parts` is its path below the folder that the user names.
        """
        if not self.hidden and parts[-1].startswith("."):
            return UnfitError("hidden", "hidden files and folders inside folders are read only with --hidden")
        if any(_matches(glob, parts, is_folder=is_folder) for glob in self.exclude):
            return UnfitError("excluded", "it matches --exclude")
        if is_folder or not self.include or any(_matches(glob, parts, is_folder=False) for glob in self.include):
            return None
        return UnfitError("excluded", "it does not match --include")


VISIBLE = Selection()


class InputFiles:
    """The files that arguments lead to, in order; iterate over it as often as you like.

    None among the arguments is standard input. What the run writes, `outputs`, is left out of folders. Raises
    UsageError if an argument does not exist, the run would overwrite a file that it reads, or standard input is
    one of the files.
    """

    def __init__(
        self,
        arguments: Iterable[Path | None],
        *,
        selection: Selection = VISIBLE,
        outputs: Outputs,
        stdin: BinaryIO | None = None,
    ) -> None:
        arguments = list(dict.fromkeys(arguments))
        _check_exist(arguments)
        outputs.refuse(*(argument or stdin for argument in arguments))
        self._selection = selection
        self._outputs = outputs
        self._arguments = [(path, os.path.realpath(path) if path else None) for path in arguments]
        self._named = {real for _, real in self._arguments}
        # The files without an ending that a link has a better name for, as in the cache of Hugging Face.
        self._renamed: set[str] = set()
        # To the end: this finds out whether a file would be overwritten.
        size, self.weight, is_known = 0, 0, True
        streamed = identify(stdin) if None in arguments else None
        for found in self:
            if isinstance(found, Found):
                if streamed and found.status and streamed == (found.status.st_dev, found.status.st_ino):
                    shown = printable(storable(found.path or ""))
                    raise UsageError(f"standard input is the same file as '{shown}': leave one of them out")
                size += found.size or 0
                self.weight += found.weight
                is_known = is_known and found.size is not None
        self.bytes_total = size if is_known else None
        """Bytes of all files on disk; None if they include standard input, a pipe or a device."""

    def __iter__(self) -> Iterator[Found | Skip]:
        """Yield all files. A file that several arguments reach comes once."""
        # The real paths of what has come, if several arguments or links may lead there.
        seen: set[str] = set()
        for argument, real in self._arguments:
            if argument is None or real is None:
                yield Found(None)
                continue
            if real in seen:
                continue
            seen.add(real)
            try:
                status = argument.stat()
            except OSError as error:
                yield skip_of(storable(argument), error)
                continue
            if stat.S_ISDIR(status.st_mode):
                yield from self._walk(argument, real, seen)
            else:
                yield Found(argument, status)

    def _walk(self, root: Path, real_root: str, seen: set[str]) -> Iterator[Found | Skip]:
        """Yield the files in a folder and its subfolders in name order."""
        # A stack rather than recursion: folders may be nested deeper than Python's calls.
        stack: list[tuple[Path, str, tuple[str, ...], Iterator[str]]] = []
        try:
            stack.append((root, real_root, (), _names_in(root)))
        except OSError as error:
            yield skip_of(storable(root), error)
        while stack:
            folder, real_folder, above, names = stack[-1]
            name = next(names, None)
            if name is None:
                stack.pop()
                continue
            path, parts, real = folder / name, (*above, name), os.path.join(real_folder, name)  # noqa: PTH118
            try:
                status = path.lstat()
                is_link = stat.S_ISLNK(status.st_mode) and self._selection.follow_links
                if is_link:
                    status, real = path.stat(), os.path.realpath(path)
                if real in seen:
                    self._renamed |= self._rename(path, parts, real, status)
                    continue
                if real in self._renamed and not is_link:
                    continue
                is_folder = stat.S_ISDIR(status.st_mode)
                against = self._selection.reason_against(parts, is_folder=is_folder)
                if against and real in self._named:
                    continue  # its turn comes
                if (len(self._arguments) > 1 or self._selection.follow_links) and not against:
                    seen.add(real)
                if against:
                    raise against
                if is_folder:
                    stack.append((path, real, parts, _names_in(path)))
                    continue
                check_regular(status.st_mode)
            except (OSError, UnfitError) as error:
                yield skip_of(storable(path), error)
                continue
            if not self._outputs.covers(path, status):
                yield Found(path, status)

    def _rename(self, path: Path, parts: Sequence[str], real: str, status: os.stat_result) -> set[str]:
        """Return a file that has come without an ending if this name has one, and is read."""
        is_better = stat.S_ISREG(status.st_mode) and path.suffix and not Path(real).suffix
        return {real} if is_better and not self._selection.reason_against(parts, is_folder=False) else set()


def check_regular(mode: int) -> None:
    """Raise UnfitError for anything but a regular file inside a folder."""
    if stat.S_ISLNK(mode):
        raise UnfitError("link", "symbolic links inside folders are followed only with --follow-links")
    if not stat.S_ISREG(mode):
        raise UnfitError("special file", "pipes, sockets and devices inside folders are not read")


FAILURES = (*READ_ERRORS, UnfitError, UnicodeError)
"""Errors of reading a file. The codecs of domain names and the like know no error handlers."""


def skip_of(name: str, error: Exception, encoding: str = "") -> Skip:
    """Return the skip of a file that could not be read, or not to its end, because of one of `FAILURES`.

    Raises the error if that is not the fault of the file: too many others are open.
    """
    if isinstance(error, UnfitError):
        return Skip(printable(name), error.reason, error.detail)
    if isinstance(error, UnicodeError):
        return Skip(printable(name), f"not {encoding}", printable(str(error)))
    if isinstance(error, OSError) and error.errno is not None:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            raise error
        return Skip(printable(name), "unreadable", error.strerror or str(error))
    return Skip(printable(name), "corrupt", f"the compressed data is damaged or truncated: {error}")


def _check_exist(arguments: Iterable[Path | None]) -> None:
    missing = []
    for path in arguments:
        if path is None:
            continue
        try:
            path.stat()
        except PermissionError:
            continue  # it may well exist: skipped as unreadable when its turn comes
        except (OSError, ValueError):  # ValueError: a NUL in the path
            missing.append(f"'{printable(storable(path))}'")
    if missing:
        raise UsageError(f"no such file or folder: {', '.join(missing)}")


def _names_in(folder: Path) -> Iterator[str]:
    # A folder may hold millions of files: their names are kept, paths are made one at a time.
    with os.scandir(folder) as entries:
        return iter(sorted(entry.name for entry in entries))
