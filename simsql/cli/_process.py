"""The process of the command line: its signals and its standard streams.

This module imports nothing slow: it is at work before the rest of the program is imported.
"""

import io
import os
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import NoReturn, TextIO


class Terminated(KeyboardInterrupt):
    """SIGTERM or SIGHUP, handled like Ctrl-C, for which psycopg cancels the running statement.

    Its argument is the exit code.
    """


def catch_signals() -> None:
    """Raise Terminated for SIGTERM, and for SIGHUP unless it is ignored, as nohup does."""
    signal.signal(signal.SIGTERM, _terminate)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, _terminate)


def end_at_signals() -> None:
    """End the process silently at a signal: nothing is left to be done, and Python would print a traceback."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if callable(signal.getsignal(number)):
            signal.signal(number, _end)


def prepare_streams() -> None:
    """Make output UTF-8 whatever the terminal is, and replace the standard streams that are closed.

    There is nothing to read from a closed stdin, and messages to a closed stderr vanish. Results must not: writing
    to a closed stdout fails, as it does in other programs.
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
        sys.stdout.reconfigure(encoding="utf-8")


def complain(message: str) -> None:
    """Say on stderr why the program ends, if that can be written."""
    note(f"simsql: {message}")


def note(message: str, *, quiet: bool = False) -> None:
    """Print a remark on a result on stderr, if that can be written: stdout is for results alone."""
    try:
        if not quiet:
            print(message, file=sys.stderr, flush=True)
    except OSError:
        _abandon(sys.stderr)


def run(program: Callable[[], int]) -> int:
    """Return the exit code of a program, whenever it is interrupted."""
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


def _terminate(number: int, frame: FrameType | None) -> NoReturn:  # noqa: ARG001 - as signal calls it
    # An exception, so that everything that was begun is cleaned up.
    raise Terminated(128 + number)


def _end(number: int, frame: FrameType | None) -> NoReturn:  # noqa: ARG001 - as signal calls it
    os._exit(128 + number)


def _abandon(file: TextIO) -> None:
    from simsql.documents.output import abandon  # noqa: PLC0415 - not before it is needed

    abandon(file)
