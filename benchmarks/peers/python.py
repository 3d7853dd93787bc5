"""Two packages from PyPI: `simhash`, in plain Python, and `gaoya`, in Rust."""

from collections.abc import Iterable, Sequence
from typing import Any

from benchmarks.bars import GAOYA, SIMHASH
from benchmarks.data import Fingerprints
from benchmarks.harness import Bench
from benchmarks.peers import import_peer

# Sizes that fit into memory: about 3 kB and 1.5 kB for each fingerprint.
_SIMHASH_ROWS = 100_000
_GAOYA_ROWS = 1_000_000


class SimhashPeer:
    """`SimhashIndex` of the package simhash."""

    name = SIMHASH
    note = "holds fewer rows than simsql here"

    def __init__(self, module: Any, values: Fingerprints, distance: int) -> None:
        self._module = module
        self.rows = values.size
        objects = [(str(value), module.Simhash(value)) for value in values.tolist()]
        self._index = module.SimhashIndex(objects, k=distance)

    def prepare(self, queries: Fingerprints) -> Sequence[Any]:
        """Return the queries as objects of the package."""
        return [self._module.Simhash(query) for query in queries.tolist()]

    def search(self, query: Any) -> Any:
        """Return the names of what is near."""
        return self._index.get_near_dups(query)

    def fingerprints(self, answer: Any) -> Iterable[int]:
        """Return the fingerprints, which are the names."""
        return map(int, answer)


class GaoyaPeer:
    """`SimHashStringIndex` of gaoya, for documents of one word.

    It makes its own fingerprints and takes no others. That of a single word is the word's hash: as random as
    those that the other systems search, and as many, but with no neighbours among them.
    """

    name = GAOYA
    note = "fingerprints of its own, of one word each"

    def __init__(self, module: Any, values: Fingerprints, distance: int) -> None:
        self.rows = values.size
        # It finds what is nearer than its distance; 6 blocks, its default.
        wrapper = module.simhash.SimHashStringIndex(num_blocks=6, hamming_distance=distance + 1)
        self._index = wrapper.index
        for number, word in enumerate(self.prepare(values)):
            self._index.insert_tokens(number, word)

    def prepare(self, queries: Fingerprints) -> Sequence[list[str]]:
        """Return each number as a document of one word."""
        return [[str(query)] for query in queries.tolist()]

    def search(self, query: list[str]) -> Any:
        """Return the numbers of the documents that are near."""
        return self._index.query_tokens(query)


def open_simhash(bench: Bench, values: Fingerprints, distance: int) -> SimhashPeer | None:
    """Index the first of the values; None where the package is missing."""
    module = import_peer(bench, "simhash", "simhash")
    if module is None:
        return None
    bench.report.say(f"building {SIMHASH}")
    return SimhashPeer(module, values[:_SIMHASH_ROWS], distance)


def open_gaoya(bench: Bench, values: Fingerprints, distance: int) -> GaoyaPeer | None:
    """Index documents named by the first of the values; None where the package is missing."""
    module = import_peer(bench, "gaoya", "gaoya")
    if module is None:
        return None
    bench.report.say(f"building {GAOYA}")
    return GaoyaPeer(module, values[:_GAOYA_ROWS], distance)
