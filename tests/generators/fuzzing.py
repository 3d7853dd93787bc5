"""Try bad input of many kinds, each kind in a process of its own, and count what became of it.

A kind of input is a `Target`. Every input is made from a seed, the name of its target and a number, and so can be
tried again alone.
"""

import faulthandler
import os
import resource
import signal
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from typing import NamedTuple

largest = 0
"""The memory of the largest process that an attempt has started, in bytes."""

Attempt = Callable[[Random], bool]
"""Tries one input. Returns whether it was accepted; False if it was refused, with an error that users understand.

Raises AssertionError for a wrong answer. Whatever else it raises is a crash.
"""

_PATIENCE = 20  # seconds of processor time for one input
_ADDRESSES = 8 << 30  # bytes
_MEMORY = 1 << 30  # bytes
_TOO_MUCH = "memory"


class Target(NamedTuple):
    """A kind of input."""

    name: str
    prepare: Callable[[Path], AbstractContextManager[Attempt]]
    """Given a folder of its own."""
    share: float = 1.0
    """Of the time."""
    waiting: float = 180
    """Seconds that an input may take."""


def in_folder(attempt: Callable[[Path, Random], bool]) -> Callable[[Path], AbstractContextManager[Attempt]]:
    """The `prepare` of a target whose attempts write files."""

    @contextmanager
    def prepare(folder: Path) -> Iterator[Attempt]:
        folder.mkdir(exist_ok=True)
        yield partial(attempt, folder)

    return prepare


@dataclass
class Tally:
    """What became of the inputs of a target."""

    inputs: int = 0
    refused: int = 0
    accepted: int = 0
    crashes: int = 0
    hangs: int = 0
    wrong: int = 0
    memory: int = 0
    """The largest of a process, in bytes."""
    failures: dict[str, str] = field(default_factory=dict)
    """By where they are, the first of each."""

    def fail(self, kind: str, number: int, where: str, said: str) -> None:
        setattr(self, kind, getattr(self, kind) + 1)
        self.failures.setdefault(f"{kind}: {where}", f"number {number}\n{said}")


def random_of(seed: int, name: str, number: int) -> Random:
    """What makes an input."""
    return Random(f"{seed} {name} {number}")


def try_for(
    target: Target, folder: Path, seed: int, seconds: float, *, most: int | None = None, first: int = 0
) -> Tally:
    """Try inputs of a target for so long, or so many, in other processes, which may crash, hang or grow."""
    tally = Tally()
    end = time.monotonic() + seconds
    number = first
    while time.monotonic() < end and (most is None or tally.inputs < most):
        number = _try_in_child(target, folder, seed, number, end, most, tally)
    return tally


def _try_in_child(
    target: Target, folder: Path, seed: int, number: int, end: float, most: int | None, tally: Tally
) -> int:
    """Start a process that tries inputs from a number on; return the number to go on with."""
    near, far = Pipe()
    pid = os.fork()
    if not pid:
        near.close()
        _serve(target, folder, seed, number, far)
    far.close()
    began, used = time.monotonic(), 0.0
    hung, ready = False, False
    while time.monotonic() < end and (most is None or tally.inputs < most):
        if near.poll(1):
            try:
                ready, outcome, where, said, memory = near.recv()
            except (EOFError, ConnectionError):
                break
            began, used = time.monotonic(), _processor_time(pid)
            tally.memory = max(tally.memory, memory)
            if not ready:
                continue
            tally.inputs += 1
            if outcome in ("refused", "accepted"):
                setattr(tally, outcome, getattr(tally, outcome) + 1)
            else:
                tally.fail(outcome, number, where, said)
            number += 1
        elif ready and (_processor_time(pid) - used > _PATIENCE or time.monotonic() - began > target.waiting):
            hung = True
            break
    else:
        os.kill(pid, signal.SIGTERM)
    if hung:
        os.kill(pid, signal.SIGABRT)  # which prints where it is
    near.close()
    _, status = os.waitpid(pid, 0)
    if hung or os.WCOREDUMP(status) or not (os.WIFEXITED(status) and os.WEXITSTATUS(status) == 0):
        tally.inputs += 1
        tally.fail("hangs" if hung else "crashes", number, f"status {status}", "see above")
        return number + 1
    return number


def _processor_time(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _serve(target: Target, folder: Path, seed: int, number: int, far: Connection) -> None:
    """Try inputs until nobody listens."""
    code = 1
    try:
        faulthandler.enable()
        signal.signal(signal.SIGTERM, lambda *_: os.kill(os.getpid(), signal.SIGINT))
        signal.signal(signal.SIGINT, signal.default_int_handler)
        resource.setrlimit(resource.RLIMIT_AS, (_ADDRESSES, resource.RLIM_INFINITY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with target.prepare(folder) as attempt:
            far.send((False, "", "", "", 0))
            where = ""
            while not where.startswith(_TOO_MUCH):  # this process will not become smaller
                outcome, where, said, memory = try_one(attempt, random_of(seed, target.name, number))
                if memory > _MEMORY and not where:
                    outcome, where, said = "wrong", f"{_TOO_MUCH} {memory >> 30} GB", f"{memory >> 20} MB"
                far.send((True, outcome, where, said, memory))
                number += 1
        code = 0
    except (KeyboardInterrupt, BrokenPipeError):
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def try_one(attempt: Attempt, random: Random) -> tuple[str, str, str, int]:
    """Try one input. Return what became of it, where it failed, what was said, and the memory of this process."""
    where = said = ""
    try:
        outcome = "accepted" if attempt(random) else "refused"
    except AssertionError as error:
        outcome, where, said = "wrong", _place(error), traceback.format_exc()
    except Exception as error:
        outcome, where, said = "crashes", _place(error), traceback.format_exc()
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return outcome, where, said[-6000:], max(memory, largest)


class WrongError(AssertionError):
    """A wrong answer of a kind."""

    def __init__(self, kind: str, said: str) -> None:
        super().__init__(said)
        self.kind = kind


def _place(error: BaseException) -> str:
    """The kind of an error, and the last lines of ours that led to it."""
    if isinstance(error, WrongError):
        return error.kind
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "/simsql/" in frame.filename or "/support/" in frame.filename][-2:]
    return " ".join([type(error).__name__, *(f"{Path(each.filename).name}:{each.lineno}" for each in ours)])


@contextmanager
def plain(attempt: Attempt) -> Iterator[Attempt]:
    """An attempt that needs no preparation."""
    yield attempt


HEADINGS = (
    "target",
    "inputs tried",
    "refused",
    "accepted",
    "crashes",
    "hangs",
    "wrong",
    "largest memory",
)


def show(tallies: dict[str, Tally]) -> str:
    """The table of what became of the inputs."""
    total = Tally()
    for tally in tallies.values():
        for name in ("inputs", "refused", "accepted", "crashes", "hangs", "wrong"):
            setattr(total, name, getattr(total, name) + getattr(tally, name))
        total.memory = max(total.memory, tally.memory)
    rows = [HEADINGS]
    for name, each in [*tallies.items(), ("all", total)]:
        counts = (each.inputs, each.refused, each.accepted, each.crashes, each.hangs, each.wrong)
        rows.append((name, *(f"{count:,}" for count in counts), f"{each.memory >> 20:,} MB"))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(
            cell.rjust(width) if i else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
    return "\n".join(lines)


# Mutations

PIECES = [
    *(b"\0", b"\0" * 50, b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff", b"\xff\xfe\0\0", b"\xed\xa0\x80", b"\xff"),
    *(b"\\ud800", b"\\udcff", b"\\u0000", b"\\", b'"', b"'", b'""', b'"\n', b"\r\n", b"\r", b"\n", b"\n\n"),
    *(b"\xe2\x80\xa8", b"\xc2\x85", b"\x1a", b"\x1b[2J", b"\t", b",", b",,", b":", b"{", b"}", b"[", b"]"),
    *(b"1e999", b"-1e999", b"NaN", b"Infinity", b"-0", b"9" * 30, b"9" * 5000, b"1" + b"0" * 400, b"null"),
    *(b"true", b"[" * 600, b"{" * 600, b'{"a":' * 1200, b"[" * 100_000, b'"text": "again", ', b'"id": "a", '),
    *(b"x" * 5000, b"\xc3", b"\xf0\x9f\x98\x80", b"\xf4\x90\x80\x80", b"\xc0\x80", b"<", b">", b"&#x110000;"),
    *("é".encode("cp1252"), "語".encode("gbk"), "語".encode("shift_jis"), "語".encode("utf-16"), b"%s%n", b"--"),
]


def mutate(random: Random, data: bytes, others: list[bytes]) -> bytes:
    """Damage some bytes in one to four ways, or, now and then, in none."""
    for _ in range(random.choice((0, 1, 1, 1, 2, 4))):
        data = random.choice(_MUTATIONS)(random, data, others)
    return data


def _cut(random: Random, data: bytes) -> tuple[int, int]:
    start = random.randrange(len(data) + 1)
    return start, min(len(data), start + random.choice((0, 1, 2, 4, 8, 100, len(data))))


def _flip(random: Random, data: bytes, _: list[bytes]) -> bytes:
    changed = bytearray(data)
    for _ in range(random.choice((1, 1, 2, 8))):
        if changed:
            changed[random.randrange(len(changed))] ^= 1 << random.randrange(8)
    return bytes(changed)


def _truncate(random: Random, data: bytes, _: list[bytes]) -> bytes:
    return data[: random.randrange(len(data) + 1)]


def _delete(random: Random, data: bytes, _: list[bytes]) -> bytes:
    start, end = _cut(random, data)
    return data[:start] + data[end:]


def _insert(random: Random, data: bytes, _: list[bytes]) -> bytes:
    start, end = _cut(random, data)
    return data[:start] + random.choice(PIECES) + data[random.choice((start, end)) :]


def _splice(random: Random, data: bytes, others: list[bytes]) -> bytes:
    other = random.choice(others)
    start, end = _cut(random, other)
    return data[: random.randrange(len(data) + 1)] + other[start:end] + data[random.randrange(len(data) + 1) :]


def _repeat(random: Random, data: bytes, _: list[bytes]) -> bytes:
    start, end = _cut(random, data)
    return data[:end] + data[start:end] * random.choice((1, 2, 10)) + data[end:]


def _overwrite(random: Random, data: bytes, _: list[bytes]) -> bytes:
    start = random.randrange(len(data) + 1)
    size = random.choice((1, 2, 4, 8))
    number = random.choice((0, 1, 0x7F, 0x80, 0xFF, (1 << (8 * size)) - 1, 1 << (8 * size - 1)))
    piece = (number % (1 << (8 * size))).to_bytes(size, random.choice(("little", "big")))
    return data[:start] + piece + data[start + size :]


_MUTATIONS = [_flip, _truncate, _delete, _insert, _insert, _splice, _repeat, _overwrite]
