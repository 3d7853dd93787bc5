"""Convert fingerprints between unsigned 64-bit numbers and PostgreSQL's bigint. No other module does."""

import operator
from collections.abc import Iterable
from enum import Enum
from typing import SupportsIndex, TypeAlias, overload

import numpy as np

from simsql.hamming._checks import is_missing

_HALF = 1 << 63
_WHOLE = 1 << 64

OneFingerprint: TypeAlias = SupportsIndex | None
"""An int or a numpy integer in [0, 2**64); or None or a masked element, which are NULL in PostgreSQL."""


class NotGiven(Enum):
    """The type of NOT_GIVEN, which differs from None, the fingerprint of a text without features."""

    NOT_GIVEN = "not given"


NOT_GIVEN = NotGiven.NOT_GIVEN


@overload
def to_bigint(fingerprint: None) -> None: ...
@overload
def to_bigint(fingerprint: SupportsIndex) -> int: ...
@overload
def to_bigint(fingerprint: OneFingerprint) -> int | None: ...
def to_bigint(fingerprint: OneFingerprint) -> int | None:
    """Return the bigint, in [-2**63, 2**63), with the bits of a fingerprint in [0, 2**64).

    Return None, which is NULL in PostgreSQL, for None or a masked element. Raises ValueError for a number outside
    the range, and TypeError for a value that is not an integer.
    """
    if fingerprint is None or is_missing(fingerprint):
        return None
    number = operator.index(fingerprint)
    if not 0 <= number < _WHOLE:
        hint = "; a negative number is a bigint from PostgreSQL: from_bigint converts it" if number < 0 else ""
        raise ValueError(f"{number} is not a fingerprint: they range from 0 to 2**64 - 1{hint}")
    return number - _WHOLE if number >= _HALF else number


@overload
def from_bigint(value: None) -> None: ...
@overload
def from_bigint(value: SupportsIndex) -> int: ...
@overload
def from_bigint(value: SupportsIndex | None) -> int | None: ...
def from_bigint(value: SupportsIndex | None) -> int | None:
    """Return the fingerprint, in [0, 2**64), with the bits of a bigint in [-2**63, 2**63).

    Return None for None, which is NULL in PostgreSQL, or a masked element. Raises ValueError for a number outside
    the range, and TypeError for a value that is not an integer.
    """
    if value is None or is_missing(value):
        return None
    number = operator.index(value)
    if not -_HALF <= number < _HALF:
        raise ValueError(f"{number} is not a bigint: they range from -2**63 to 2**63 - 1")
    return number % _WHOLE


def to_bigints(fingerprints: "np.ma.MaskedArray[tuple[int], np.dtype[np.uint64]]") -> Iterable[int | None]:
    """Return the bigints of an array of fingerprints, None for masked elements."""
    bigints: list[int] = fingerprints.data.view(np.int64).tolist()
    missing: list[bool] = np.ma.getmaskarray(fingerprints).tolist()
    return [None if no else bigint for bigint, no in zip(bigints, missing, strict=True)]
