"""`simsql find-pairs` and `find-clusters`: pairs and clusters of fingerprints in a file, without a database.

Options, input and output are compatible with the programs of simhash-cpp.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

from rich.console import Console

from simsql.cli._app import command
from simsql.cli._options import distance_option, number_option, parse_fingerprint, path_option
from simsql.cli._terminal import Telling, is_terminal
from simsql.documents import Outputs, open_output, printable
from simsql.errors import SimsqlError, UsageError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_STREAM = Path("-")
_LARGEST = 2**64 - 1
_START = 1 << 16  # bytes, in which a line ends
_WRITTEN = 1 << 16  # pairs at a time

_Found = TypeVar("_Found")


@dataclass(frozen=True)
class _Searching(Telling):
    source: Annotated[Path, path_option("--input")] = _STREAM
    output: Annotated[Path, path_option("--output")] = _STREAM
    blocks: Annotated[
        int | None, number_option("--blocks", ": as simhash-cpp takes it, and without an effect", least=1, most=64)
    ] = None
    distance: Annotated[int, distance_option("")] = 3

    def run(self, find: Callable[..., _Found]) -> _Found:
        Outputs({"--output": self.output}).refuse(sys.stdin if self.source == _STREAM else self.source)
        with _progress("reading", self.console):
            fingerprints = _read(self.source)
        with _progress("comparing", self.console):
            try:
                return find(fingerprints, self.distance)
            except ValueError as error:  # too many pairs
                raise SimsqlError(str(error)) from error


@command("find-pairs")
def find_pairs_command(*, searching: _Searching) -> None:
    """Find all pairs of near fingerprints in a file.

    Print one JSON array [a, b] per line, the smaller fingerprint first. Repeated fingerprints count once.
    """
    import numpy as np

    from simsql.hamming import find_pairs

    pairs = searching.run(find_pairs)
    parts = np.array_split(pairs, len(pairs) // _WRITTEN + 1)
    _write(searching.output, ("[%d, %d]\n" * len(part) % tuple(part.reshape(-1).tolist()) for part in parts))


@command("find-clusters")
def find_clusters_command(*, searching: _Searching) -> None:
    """Find clusters of near fingerprints in a file.

    Print one JSON array per line: the fingerprints of a cluster, connected by near pairs, in ascending order.
    """
    from simsql.hamming import find_clusters

    _write(searching.output, (f"{cluster.tolist()}\n" for cluster in searching.run(find_clusters)))


def _progress(what: str, console: Console) -> AbstractContextManager[object]:
    return console.status(what) if is_terminal(console) else nullcontext()


def _read(source: Path) -> NDArray[np.uint64]:
    """Read a fingerprint from each line that is not empty."""
    import numpy as np

    if source != _STREAM and not source.exists():
        raise UsageError(f"no such file: {printable(str(source))}")
    with nullcontext(sys.stdin.buffer) if source == _STREAM else source.open("rb") as file:
        content = file.read(_START)
        if len(content) < _START or not content.strip() or b"\n" in content or b"\r" in content:
            content += file.read()
        # Else a file of another kind, or a device that does not end: its first line is no fingerprint.
    if content.strip() and not content.translate(None, b"0123456789\r\n"):
        fingerprints = np.fromstring(content, dtype=np.uint64, sep="\n")
        # What is too large for 64 bits is read as the largest number.
        if not (fingerprints == _LARGEST).any():
            return fingerprints
    found = []
    for place, line in enumerate(content.splitlines(), 1):
        if line := line.strip():
            try:
                found.append(parse_fingerprint(line.decode("utf-8", "backslashreplace")))
            except UsageError as error:
                raise SimsqlError(f"{'stdin' if source == _STREAM else source}, line {place}: {error}") from None
    return np.array(found, dtype=np.uint64)


def _write(output: Path, parts: Iterable[str]) -> None:
    with open_output(output) as stream:
        for part in parts:
            stream.write(part)
