"""The signals and standard streams of the command line.

This module must import quickly: it runs before the rest of the program is imported.
"""

import io
import os
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any, TextIO

_PATIENCE = 5  # seconds for cleaning up, in which further signals are ignored
_interrupted = 0.0  # when the first signal came


class Terminated(KeyboardInterrupt):
    """Raised with the exit code for SIGTERM and SIGHUP. Like Ctrl-C, it makes psycopg cancel the statement."""


def catch_signals() -> None:
    """Raise KeyboardInterrupt for Ctrl-C, and Terminated for SIGTERM and SIGHUP, unless one is ignored.

    nohup ignores SIGHUP. Of several signals, only the first raises: the others must not break the cleaning up,
    such as a second Ctrl-C, or one that reaches the process from the terminal and from its parent.
    """
    global _interrupted  # noqa: PLW0603 - signals belong to the process
    _interrupted = 0.0
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _interrupt)
    sys.unraisablehook = partial(_raise_again, sys.unraisablehook)


def end_at_signals() -> None:
    """End the process silently at a signal. Nothing is left to do, and Python would print a traceback."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if callable(signal.getsignal(number)):
            signal.signal(number, lambda caught, _: os._exit(128 + caught))


def prepare_streams() -> None:
    """Write UTF-8 to any terminal, and replace closed standard streams.

    A closed stdin is empty, and messages to a closed stderr vanish. Results must not vanish: writing to a closed
    stdout fails, as in other programs.
    """
    for name, flags, mode in (
        ("stdin", os.O_RDONLY, "r"),
        ("stdout", os.O_RDONLY, "w"),
        ("stderr", os.O_WRONLY, "w"),
    ):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.open(os.devnull, flags), mode, encoding="utf-8"))  # noqa: PTH123, SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        if isinstance(sys.stdout.buffer, io.RawIOBase):
            # As PYTHONUNBUFFERED leaves it: when the system takes a part of what is written, as a pipe does whose
            # reader then goes, Python drops the rest without an error.
            buffer = io.BufferedWriter(sys.stdout.detach())
            sys.stdout = io.TextIOWrapper(buffer, line_buffering=True)
        sys.stdout.reconfigure(encoding="utf-8", errors="surrogateescape")  # paths may have any bytes


def complain(message: str) -> None:
    """Print on stderr why the program ends, if possible."""
    note(f"simsql: {message}")


def note(message: str, *, quiet: bool = False) -> None:
    """Print a remark on stderr, if possible: stdout is only for results."""
    try:
        if not quiet:
            print(message, file=sys.stderr, flush=True)
    except OSError:
        _abandon(sys.stderr)


def run(program: Callable[[], int]) -> int:
    """Run a program and return its exit code, even if it is interrupted."""
    try:
        try:
            catch_signals()
            prepare_streams()
            return program()
        finally:
            end_at_signals()
    except KeyboardInterrupt as interrupt:
        _abandon(sys.stdout)  # its reader may not read on, and exiting would wait for it
        complain("terminated" if isinstance(interrupt, Terminated) else "interrupted")
        return interrupt.args[0] if isinstance(interrupt, Terminated) else 128 + signal.SIGINT


def interrupt_behind(error: BaseException | None) -> KeyboardInterrupt | None:
    """Return the interrupt during whose clean-up an error was raised, if there was one."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error


def _interrupt(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - as signal calls it
    global _interrupted  # noqa: PLW0603
    if not _interrupted:
        _interrupted = time.monotonic()
        # An exception, so that everything is cleaned up.
        raise KeyboardInterrupt if number == signal.SIGINT else Terminated(128 + number)
    if time.monotonic() - _interrupted > _PATIENCE:
        os._exit(128 + number)


def _raise_again(usual: Callable[[Any], object], unraisable: Any) -> None:
    """Repeat an interrupt that came where Python prints and forgets exceptions, as in `__del__`."""
    global _interrupted  # noqa: PLW0603
    error = unraisable.exc_value
    if not isinstance(error, KeyboardInterrupt):
        usual(unraisable)
        return
    import threading

    _interrupted = 0.0
    number = error.args[0] - 128 if isinstance(error, Terminated) else signal.SIGINT
    # Not here, where it would be forgotten, too.
    again = threading.Timer(0.05, os.kill, (os.getpid(), number))
    again.daemon = True
    again.start()


def _abandon(file: TextIO) -> None:
    from simsql.documents.output import abandon

    abandon(file)
