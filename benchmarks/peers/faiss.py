"""faiss: a multi-index hash and a scan in memory, both in C++, on one thread."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.bars import FAISS
from benchmarks.data import Fingerprints
from benchmarks.harness import Bench
from benchmarks.peers import import_peer

FLAT = "faiss Flat"
# As many hash tables and bits as simsql has tables and prefix bits.
_HASHES, _BITS = 4, 16


class FaissPeer:
    """An index of faiss that searches at one distance."""

    note = ""

    def __init__(self, name: str, index: Any, values: Fingerprints) -> None:
        self.name = name
        self.index = index
        self.values = values
        self.rows = values.size
        self._radius = 0

    def set_distance(self, distance: int) -> None:
        """Search within `distance` from now on: faiss wants the distance below which, and the bits to flip."""
        self._radius = distance + 1
        if self.name == FAISS:
            self.index.nflip = distance // _HASHES

    def prepare(self, queries: Fingerprints) -> Sequence[NDArray[np.uint8]]:
        """Return each query as an array of shape (1, 8)."""
        rows = _bytes(queries)
        return [rows[place : place + 1] for place in range(queries.size)]

    def search(self, query: NDArray[np.uint8]) -> Any:
        """Return where results start, distances and places, for one query or many at once."""
        return self.index.range_search(query, self._radius)

    def fingerprints(self, answer: Any) -> Iterable[int]:
        """Return the fingerprints that a search for one query has found."""
        found: list[int] = self.values[answer[2]].tolist()
        return found


def open_faiss(bench: Bench, values: Fingerprints) -> Iterator[FaissPeer]:
    """Yield the hash, then the scan, each built when it is asked for; nothing where faiss is missing."""
    faiss = import_peer(bench, "faiss-cpu", "faiss")
    if faiss is None:
        return
    faiss.omp_set_num_threads(1)
    for name in (FAISS, FLAT):
        index = faiss.IndexBinaryMultiHash(64, _HASHES, _BITS) if name == FAISS else faiss.IndexBinaryFlat(64)
        bench.report.say(f"building {name}")
        index.add(_bytes(values))
        yield FaissPeer(name, index, values)


def _bytes(fingerprints: Fingerprints) -> NDArray[np.uint8]:
    return np.ascontiguousarray(fingerprints).view(np.uint8).reshape(-1, 8)
