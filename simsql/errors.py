"""The errors simsql raises on purpose: one line that says what, where and what to do."""

import inspect
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager


class SimsqlError(Exception):
    """Something went wrong that the caller can act on. The command line prints it and exits with 1."""


class UsageError(SimsqlError, ValueError):
    """The caller asked for something that cannot be. The command line prints it and exits with 2.

    It is a ValueError, too: a number out of range is this error, whichever function takes it.
    """


def warn_caller(message: str, category: type[Warning]) -> None:
    """Issue a warning about the line that called this package, also through contextlib or a manager of Django."""
    level, frame = 1, inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__", "").startswith(
        ("simsql.", "contextlib", "django.")
    ):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


def missing_package(subject: str, package: str, *requirements: str) -> ModuleNotFoundError:
    """Return the error for a package of an extra that is not installed, with the pip command that installs it.

    It names packages, not the extra, so that it is right wherever simsql was installed from.
    """
    command = f"pip install {' '.join(requirements or [package])}"
    return ModuleNotFoundError(f"{subject} needs the package {package}: {command}", name=package)


@contextmanager
def naming_temporary_files() -> Iterator[None]:
    """Add the folder of temporary files to errors of the system, such as a full disk."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, tempfile.tempdir or "temporary files") from error
