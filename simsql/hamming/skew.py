"""Skew: how many keys searches read if fingerprints are not random bits.

Some prefixes of real fingerprints are a hundred times as frequent as others, and a search for a text is likely to
meet those. A sample of the fingerprints tells how often two of them agree in the bits that lead a table.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from simsql.arrays.checks import FINGERPRINT_BITS, fingerprint_array
from simsql.errors import UsageError

# Two million pairs of fingerprints are compared, in some ten milliseconds for each table.
_QUERIES, _OTHERS = 500, 4_000
# A share that follows from fewer pairs is too uncertain.
_PAIRS_AT_LEAST = 50


class PrefixSample:
    """A sample of fingerprints that predicts the candidates of a search for one of them, or for a similar text.

    `fingerprints` is an array of unsigned integers; some thousand are enough. Raises TypeError for signed
    integers, and ValueError if they have fewer than two different values.
    """

    def __init__(self, fingerprints: NDArray[Any]) -> None:
        values = np.unique(np.ma.compressed(fingerprint_array(fingerprints)))
        if len(values) < 2:
            raise UsageError(f"a sample needs at least two different fingerprints, not {len(values)}")
        # Evenly spaced in sorted order, so that every part of the values is represented.
        sizes = (min(len(values), size) for size in (_QUERIES, _OTHERS))
        queries, others = (values[np.arange(size) * len(values) // size] for size in sizes)
        differing = (queries[:, None] ^ others).ravel()
        self._differing = differing[differing != 0]
        places = np.arange(FINGERPRINT_BITS, dtype=np.uint64)
        ones = np.array([np.mean(values >> place & np.uint64(1)) for place in places])
        self._agreement = ones**2 + (1 - ones) ** 2
        self._shares: dict[tuple[int, int], float] = {}

    def share(self, mask: int, radius: int) -> float:
        """Return the share (0 to 1) of other fingerprints expected to differ in up to `radius` bits of `mask`.

        `mask` has up to 64 bits. Where the sample has hardly any such pairs, the bits of a fingerprint are
        assumed to be independent.
        """
        key = mask, radius
        if key not in self._shares:
            pairs = int(np.count_nonzero(np.bitwise_count(self._differing & np.uint64(mask)) <= radius))
            share = pairs / len(self._differing)
            self._shares[key] = share if pairs >= _PAIRS_AT_LEAST else max(share, self._independent(*key))
        return self._shares[key]

    def _independent(self, mask: int, radius: int) -> float:
        by_differing = np.ones(1)
        for place in range(FINGERPRINT_BITS):
            if mask >> place & 1:
                equal = self._agreement[place]
                by_differing = np.convolve(by_differing, [equal, 1 - equal])
        return float(by_differing[: radius + 1].sum())
