"""What every system has to find: brute force over all fingerprints. Shares no code with simsql."""

from collections.abc import Collection, Iterable, Sequence

import numpy as np

from benchmarks.data import Fingerprints

# The largest distance that is searched: what a query finds within it is kept, and serves the smaller ones.
REACH = 12
_CHUNK = 1 << 17  # one chunk and its distances fit into a core's cache

Found = list[tuple[int, int]]
Pair = tuple[int, int]


class WrongResultError(Exception):
    """A system found something else than brute force did."""


class Oracle:
    """Answers searches over `values`, uint64 and distinct, by comparing with all of them."""

    def __init__(self, values: Fingerprints) -> None:
        self.values = values
        self._found: dict[int, Found] = {}

    def near(self, query: int, distance: int) -> Found:
        """Return (fingerprint, distance) of all within the distance, nearest first, then by bigint."""
        if query not in self._found:
            self._found[query] = self._scan(query)
        return [match for match in self._found[query] if match[1] <= distance]

    def _scan(self, query: int) -> Found:
        found: Found = []
        for start in range(0, self.values.size, _CHUNK):
            chunk = self.values[start : start + _CHUNK]
            distances = np.bitwise_count(chunk ^ np.uint64(query))
            close = np.flatnonzero(distances <= REACH)
            found += zip(chunk[close].tolist(), distances[close].tolist(), strict=True)
        return sorted(found, key=lambda match: (match[1], as_bigint(match[0])))

    def check_near(self, system: str, query: int, distance: int, found: Sequence[tuple[int, int]]) -> None:
        """Raise WrongResultError unless `found` is what `near` says, in its order."""
        expected = self.near(query, distance)
        if list(found) != expected:
            raise WrongResultError(
                f"{system}: a search for {query} within {distance} bits over {self.values.size:,} fingerprints"
                f" {_difference(found, expected)}"
            )

    def check_members(self, system: str, query: int, distance: int, found: Iterable[int]) -> None:
        """Raise WrongResultError unless `found` are the fingerprints within the distance, in any order."""
        distances = dict(self.near(query, distance))
        # What should not be there has no distance in the oracle's answer.
        self.check_near(
            system,
            query,
            distance,
            sorted(
                ((fingerprint, distances.get(fingerprint, -1)) for fingerprint in found),
                key=lambda match: (match[1], as_bigint(match[0])),
            ),
        )

    def check_counts(self, system: str, queries: Sequence[int], distance: int, counts: Sequence[int]) -> None:
        """Raise WrongResultError unless each query has found as many fingerprints as there are."""
        for query, count in zip(queries, counts, strict=True):
            expected = len(self.near(query, distance))
            if count != expected:
                raise WrongResultError(
                    f"{system}: a search for {query} within {distance} bits over {self.values.size:,} fingerprints"
                    f" finds {count} where there are {expected}"
                )

    def check_pairs(self, system: str, distance: int, pairs: Fingerprints, sample: int) -> int:
        """Compare the pairs, a uint64 array of shape (n, 2), with all that some fingerprints are part of.

        The fingerprints are `sample` of all and `sample` of those in pairs. Return how many that were. Raises
        WrongResultError if a pair of theirs is missing, reported twice, or not within the distance.
        """
        left, right = np.minimum(pairs[:, 0], pairs[:, 1]), np.maximum(pairs[:, 0], pairs[:, 1])
        # One that is too far apart shows at once, wherever it is.
        wrong = np.flatnonzero((np.bitwise_count(left ^ right) > distance) | (left == right))
        if wrong.size:
            raise WrongResultError(f"{system}: {pairs[wrong[0]].tolist()} is no pair within {distance} bits")
        chance = np.random.default_rng(0)
        chosen = set(chance.choice(self.values, sample).tolist())
        if len(pairs):
            chosen |= set(chance.choice(pairs[:, 0], sample).tolist())
        for fingerprint in chosen:
            number = np.uint64(fingerprint)
            neighbours = [*right[left == number].tolist(), *left[right == number].tolist()]
            self.check_members(f"{system} (pairs)", fingerprint, distance, [fingerprint, *neighbours])
        return len(chosen)


def as_bigint(fingerprint: int) -> int:
    """Return the number that PostgreSQL's bigint makes of the same 64 bits."""
    return fingerprint - 2**64 if fingerprint >= 2**63 else fingerprint


def _difference(found: Collection[tuple[int, int]], expected: Found) -> str:
    missing = sorted(set(expected) - set(found))
    surplus = sorted(set(found) - set(expected))
    parts = []
    if missing:
        parts.append(f"misses {missing}")
    if surplus:
        parts.append(f"finds {surplus} that should not be there")
    return " and ".join(parts) or f"finds the right ones once too often or in the wrong order: {list(found)}"
