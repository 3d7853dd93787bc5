"""Inverse document frequency: a saved table of weights that reflect the rarity of features.

The weight of a feature that occurs in `df` of `n` documents is max(1, round(4 * log2((n + 1) / (df + 1)))); for a
feature that occurs in none, `df` is 0 (Sparck Jones, Journal of Documentation 1972, smoothed). The table contains
these integers, so that fingerprints are the same on every platform.
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
# The weight of a feature that occurs in one of 2**64 documents. Multiplied by the other weights, which stay below
# 2**53, no sum reaches the 2**62 of a vote. It also makes the bytes that are digested unique to a table.
_AT_MOST = 256


class IdfTable:
    """Weights of features by their 64-bit hashes: frozen, compared and hashed by content.

    `count_documents` of `simsql.fingerprint` returns the table of a corpus. `hashes` are distinct and ascending,
    `weights` are integers from 1 to 256, one for each hash, and `other` is the weight of all other features.
    `features` is the `Recipe.features_id` of the recipes that can use the table; if it is empty, all can.
    Raises ValueError for other arrays.
    """

    def __init__(self, hashes: U64, weights: NDArray[np.int32], other: int, features: str = "") -> None:
        # A file may come from a machine with the other byte order.
        hashes = hashes.astype(hashes.dtype.newbyteorder("="))
        weights = weights.astype(weights.dtype.newbyteorder("="))
        if (
            hashes.dtype != np.uint64
            or weights.dtype != np.int32
            or hashes.shape != weights.shape
            or hashes.ndim != 1
        ):
            raise ValueError(
                "an idf table needs a uint64 array and an int32 array, one-dimensional and of equal length"
            )
        if (hashes[1:] <= hashes[:-1]).any():
            raise ValueError("the hashes of an idf table must be distinct and ascending")
        if not 1 <= other <= _AT_MOST or (weights < 1).any() or (weights > _AT_MOST).any():
            raise ValueError(f"the weights of an idf table must be between 1 and {_AT_MOST}")
        self._hashes, self._weights, self.other, self.features = hashes, weights, other, features

    @classmethod
    def of_frequencies(
        cls, hashes: U64, frequencies: I64, documents: int, at_least: int = 2, features: str = ""
    ) -> "IdfTable":
        """Return the table of features with these document frequencies among `documents` documents.

        Features of fewer than `at_least` documents are omitted, which saves most of the table's size, and weigh as
        if no document had them.
        """
        kept = frequencies >= at_least
        weights = np.rint(_STEPS * np.log2((documents + 1) / (frequencies[kept] + 1)))
        other = max(1, round(_STEPS * float(np.log2(documents + 1))))
        return cls(hashes[kept], np.maximum(1, weights).astype(np.int32), other, features)

    @classmethod
    def read(cls, path: str | PathLike[str]) -> "IdfTable":
        """Read a table that `write` has written. Raises ValueError for any other file."""
        with Path(path).open("rb") as file:
            try:
                with np.load(file, allow_pickle=False) as saved:
                    return cls(saved["hashes"], saved["weights"], index(saved["other"]), str(saved["features"]))
            except Exception as error:  # NumPy, zipfile and the decompressors raise many kinds
                raise ValueError(f"{path} is not an idf table written by simsql: {error}") from None

    def write(self, path: str | PathLike[str]) -> None:
        """Write the table to a file in NumPy's npz format."""
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
        """Eight hexadecimal digits that identify the content."""
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
