"""Convert fingerprints and scopes to and from what PostgreSQL takes, without a driver.

No other module converts fingerprints between unsigned 64-bit numbers and PostgreSQL's bigint.
"""

import json
import operator
from collections.abc import Iterable, Mapping
from datetime import date, time
from decimal import Decimal
from typing import Any, SupportsIndex, overload
from uuid import UUID

import numpy as np

from simsql.arrays.checks import is_missing, one_fingerprint
from simsql.arrays.columns import ImageHash, OneFingerprint
from simsql.errors import UsageError

_HALF = 1 << 63
_WHOLE = 1 << 64

Scope = Mapping[str, object]
"""Values by the unquoted names of the scope columns: str, int, float, bool, UUID, Decimal, dates and times."""


@overload
def to_bigint(fingerprint: None, what: str = ...) -> None: ...
@overload
def to_bigint(fingerprint: int | np.integer[Any] | str | bytes | ImageHash, what: str = ...) -> int: ...
@overload
def to_bigint(fingerprint: OneFingerprint, what: str = ...) -> int | None: ...
def to_bigint(fingerprint: OneFingerprint, what: str = "fingerprint") -> int | None:
    """Return the bigint, in [-2**63, 2**63), with the bits of a fingerprint in any of its forms.

    Return None, which is NULL in PostgreSQL, for None or a masked element. Raises UsageError for a value that does
    not have 64 bits, and TypeError for a value of another type; they call it a fingerprint, or `what` it is.
    """
    if fingerprint is None or is_missing(fingerprint):
        return None
    number = one_fingerprint(fingerprint, what=what)
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
        raise UsageError(f"{number} is not a bigint: they range from -2**63 to 2**63 - 1")
    return number % _WHOLE


def to_bigints(fingerprints: "np.ma.MaskedArray[tuple[int], np.dtype[np.uint64]]") -> Iterable[int | None]:
    """Return the bigints of an array of fingerprints, None for masked elements."""
    bigints: list[int] = fingerprints.data.view(np.int64).tolist()
    missing: list[bool] = np.ma.getmaskarray(fingerprints).tolist()
    return [None if no else bigint for bigint, no in zip(bigints, missing, strict=True)]


def encode_scope(scope: Scope | None) -> str | None:
    """Return a scope as JSON, or None for None. Raises TypeError for a value without a text form."""
    return None if scope is None else json.dumps(dict(scope), default=_as_text, allow_nan=False)


def _as_text(value: object) -> str:
    if isinstance(value, UUID | date | time | Decimal):
        return str(value)
    raise TypeError(f"a scope cannot contain {value!r}: convert it to str, int or another JSON type")
