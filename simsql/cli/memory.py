"""`simsql find-pairs` and `find-clusters`: pairs and clusters of fingerprints in a file, without a database.

Options, input and output are compatible with the programs of simhash-cpp.
"""

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from simsql.cli._app import command
from simsql.cli._options import Quiet, distance_option, number_option, path_option
from simsql.cli._terminal import is_terminal, messages
from simsql.documents import Outputs, open_output, printable
from simsql.errors import SimsqlError, UsageError
from simsql.hamming import find_clusters, find_pairs

Input = Annotated[Path, path_option("--input")]
Output = Annotated[Path, path_option("--output")]
Blocks = Annotated[int | None, number_option("--blocks", "; by default, the fastest number", least=1, most=64)]
Distance = Annotated[int, distance_option("")]

_STREAM = Path("-")
_LARGEST = 2**64 - 1
_WRITTEN = 1 << 16  # pairs at a time


@command("find-pairs")
def find_pairs_command(
    source: Input = _STREAM,
    output: Output = _STREAM,
    blocks: Blocks = None,
    distance: Distance = 3,
    quiet: Quiet = False,
) -> None:
    """Find all pairs of near fingerprints in a file.

    Print one JSON array [a, b] per line, the smaller fingerprint first. Repeated fingerprints count once.
    """
    _check(blocks, distance, source, output)
    fingerprints = _read(source, quiet=quiet)
    with _progress("comparing", quiet=quiet):
        try:
            pairs = find_pairs(fingerprints, distance, blocks=blocks)
        except ValueError as error:  # too many pairs or passes
            raise SimsqlError(str(error)) from error
    parts = np.array_split(pairs, len(pairs) // _WRITTEN + 1)
    _write(output, ("[%d, %d]\n" * len(part) % tuple(part.reshape(-1).tolist()) for part in parts))


@command("find-clusters")
def find_clusters_command(
    source: Input = _STREAM,
    output: Output = _STREAM,
    blocks: Blocks = None,
    distance: Distance = 3,
    quiet: Quiet = False,
) -> None:
    """Find clusters of near fingerprints in a file.

    Print one JSON array per line: the fingerprints of a cluster, connected by near pairs, in ascending order.
    """
    _check(blocks, distance, source, output)
    fingerprints = _read(source, quiet=quiet)
    with _progress("comparing", quiet=quiet):
        try:
            clusters = find_clusters(fingerprints, distance, blocks=blocks)
        except ValueError as error:  # too many passes
            raise SimsqlError(str(error)) from error
    _write(output, (f"{cluster.tolist()}\n" for cluster in clusters))


def _check(blocks: int | None, distance: int, source: Path, output: Path) -> None:
    Outputs({"--output": output}).refuse(sys.stdin if source == _STREAM else source)
    if blocks is not None and not distance < blocks:
        raise UsageError(f"--blocks must be greater than the distance of {distance}, not {blocks}")


@contextmanager
def _progress(what: str, *, quiet: bool) -> Iterator[None]:
    console = messages(quiet=quiet)
    if is_terminal(console):
        with console.status(what):
            yield
    else:
        yield


def _read(source: Path, *, quiet: bool) -> NDArray[np.uint64]:
    """Read a fingerprint from each line that is not empty."""
    with _progress("reading", quiet=quiet):
        if source == _STREAM:
            content = sys.stdin.buffer.read()
        elif source.exists():
            content = source.read_bytes()
        else:
            raise UsageError(f"no such file: {printable(str(source))}")
        if content.translate(None, b"0123456789\r\n"):  # perhaps only white space around a number
            content = b"\n".join(line.strip() for line in content.splitlines())
        if not content.strip():
            return np.empty(0, dtype=np.uint64)
        if not content.translate(None, b"0123456789\r\n"):
            fingerprints = np.fromstring(content, dtype=np.uint64, sep="\n")
            # What is too large for 64 bits is read as the largest number.
            if not (fingerprints == _LARGEST).any():
                return fingerprints
    for place, line in enumerate(content.splitlines(), 1):
        if line and not (line.isdigit() and len(line) < 999 and int(line) <= _LARGEST):
            shown = printable(line[:40].decode("utf-8", "backslashreplace"))
            raise SimsqlError(
                f"{'stdin' if source == _STREAM else source}, line {place}: {shown} is not a fingerprint:"
                " expected a whole number between 0 and 2**64 - 1"
            )
    return fingerprints


def _write(output: Path, parts: Iterable[str]) -> None:
    with open_output(output) as stream:
        for part in parts:
            stream.write(part)
