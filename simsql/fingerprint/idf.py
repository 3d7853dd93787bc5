"""Inverse document frequency: a saved table of how much each feature weighs because it is rare.

A feature that `df` of `n` documents have weighs max(1, round(4 * log2((n + 1) / (df + 1)))), and one that none
of them has as if `df` were 0 (Sparck Jones, Journal of Documentation 1972, smoothed). The table holds these
integers, so that it gives the same fingerprints on every platform.
"""

from functools import cached_property
from hashlib import sha256
from operator import index
from os import PathLike
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from simsql.fingerprint.hashes import I64, U64

_STEPS = 4
# What a feature weighs that one of 2**64 documents has. Times the other weights, which stay below 2**53, no sum
# reaches the 2**62 of a vote. And no table but one has the bytes that its digest is made of.
_AT_MOST = 256


class IdfTable:
    """Weights of features by their 64-bit hashes: frozen, compared and hashed by content.

    `count_documents` of `simsql.fingerprint` makes one from a corpus. `hashes` are distinct and ascending,
    `weights` as many integers from 1 to 256, and `other` is the weight of features that are not among them.
    `features` says which features they are, as `Recipe.features_id` does; empty: those of any recipe.
    Raises ValueError for arrays that are not so.
    """

    def __init__(self, hashes: U64, weights: NDArray[np.int32], other: int, features: str = "") -> None:
        # A file may come from a machine of the other byte order.
        hashes = hashes.astype(hashes.dtype.newbyteorder("="))
        weights = weights.astype(weights.dtype.newbyteorder("="))
        if (
            hashes.dtype != np.uint64
            or weights.dtype != np.int32
            or hashes.shape != weights.shape
            or hashes.ndim != 1
        ):
            raise ValueError(
                "an idf table needs an array of uint64 and one of int32, of one dimension and one length"
            )
        if (hashes[1:] <= hashes[:-1]).any():
            raise ValueError("the hashes of an idf table must be distinct and ascending")
        if not 1 <= other <= _AT_MOST or (weights < 1).any() or (weights > _AT_MOST).any():
            raise ValueError(f"the weights of an idf table must be from 1 to {_AT_MOST}")
        self._hashes, self._weights, self.other, self.features = hashes, weights, other, features

    @classmethod
    def of_frequencies(
        cls, hashes: U64, frequencies: I64, documents: int, at_least: int = 2, features: str = ""
    ) -> "IdfTable":
        """Return the table of features that so many of `documents` documents have.

        Features of fewer documents than `at_least` are left out, which saves most of the table's size, and weigh
        as if no document had them.
        """
        kept = frequencies >= at_least
        weights = np.rint(_STEPS * np.log2((documents + 1) / (frequencies[kept] + 1)))
        other = max(1, round(_STEPS * float(np.log2(documents + 1))))
        return cls(hashes[kept], np.maximum(1, weights).astype(np.int32), other, features)

    @classmethod
    def read(cls, path: str | PathLike[str]) -> "IdfTable":
        """Read a table that `write` has written; ValueError for any other file."""
        with Path(path).open("rb") as file:
            try:
                with np.load(file, allow_pickle=False) as saved:
                    return cls(saved["hashes"], saved["weights"], index(saved["other"]), str(saved["features"]))
            except Exception as error:  # of numpy, zipfile and what decompresses: there is no end of them
                raise ValueError(f"{path} is no idf table that simsql has written: {error}") from None

    def write(self, path: str | PathLike[str]) -> None:
        """Write the table to a file, in numpy's npz format."""
        with Path(path).open("wb") as file:
            np.savez_compressed(
                file, hashes=self._hashes, weights=self._weights, other=self.other, features=self.features
            )

    def weigh(self, hashes: U64) -> I64:
        """Return the weights of features."""
        if not len(self._hashes):
            return np.full(len(hashes), self.other, dtype=np.int64)
        place = np.minimum(np.searchsorted(self._hashes, hashes), len(self._hashes) - 1)
        return np.where(self._hashes[place] == hashes, self._weights[place], self.other).astype(np.int64)

    @cached_property
    def digest(self) -> str:
        """Eight hexadecimal digits that stand for the content."""
        summary = sha256(self._hashes.astype("<u8").tobytes())
        summary.update(self._weights.astype("<i4").tobytes())
        summary.update(str(self.other).encode())
        return summary.hexdigest()[:8]

    def __len__(self) -> int:
        return len(self._hashes)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, IdfTable):
            return NotImplemented
        return (
            self.other == other.other
            and np.array_equal(self._hashes, other._hashes)
            and np.array_equal(self._weights, other._weights)
        )

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"IdfTable({len(self)} features, {self.digest})"
