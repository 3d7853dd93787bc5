"""Checks of arguments, shared by this package. Each error names the value and what is allowed."""

from __future__ import annotations

import re
from collections.abc import Iterable
from numbers import Real
from operator import index
from typing import Any, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from simsql.arrays.columns import Column, read_column
from simsql.arrays.positions import first_of_equals
from simsql.errors import UsageError

FINGERPRINT_BITS = 64
# Positions of fingerprints fit 32 bits, with one number left that means "none".
DISTINCT_AT_MOST = 2**32 - 1
_HEXADECIMAL = re.compile(r"(?:0[xX])?([0-9a-fA-F]{16})")
_WIDE = "keep wider ones in several columns, which near_wide searches"


def whole_number(name: str, value: object, low: int, high: int) -> int:
    """Return `value` as an int if it is a whole number from `low` to `high`.

    Raises TypeError for anything but Python and NumPy integers (also for bool), UsageError outside the range.
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name} must be an int between {low} and {high}, not {value!r}")
    if not low <= value <= high:
        raise UsageError(f"{name} must be between {low} and {high}, not {value}")
    return int(value)


def share(name: str, value: object) -> float:
    """Return a number from 0 to 1. Raises UsageError for one out of range, TypeError for another type."""
    if not isinstance(value, Real):
        raise TypeError(f"{name} must be a number between 0 and 1, not {value!r}")
    if not 0 <= value <= 1:  # type: ignore[operator]
        raise UsageError(f"{name} must be between 0 and 1, not {value}")
    return float(value)


def most_rows(limit: object) -> int | None:
    """Return a limit of rows, of which None is none. Raises the errors of `whole_number`."""
    return None if limit is None else whole_number("limit", limit, 0, 2**63 - 1)


def is_missing(value: object) -> bool:
    """Return whether a value is missing: None, or the masked element of an array."""
    return value is None or (
        isinstance(value, np.ma.MaskedArray) and value.ndim == 0 and bool(np.ma.getmaskarray(value))
    )


def one_fingerprint(value: object, what: str = "fingerprint", of_texts: str = "pass a text as text=...") -> int:
    """Return a fingerprint as an int in [0, 2**64). This is the only place that knows its forms.

    They are integers, of which negative ones are the bigint of PostgreSQL; a str of 16 hexadecimal digits, with or
    without 0x; eight bytes, the highest first; and an array of 64 bool as the attribute `hash`, the highest first,
    as imagehash.ImageHash has it. Raises TypeError for other types, UsageError for other values of these; they
    call it `what` it is, and say `of_texts` what to do with a text.
    """
    number = _number_of(value, what, of_texts)
    if not -(1 << 63) <= number < 1 << FINGERPRINT_BITS:
        raise UsageError(f"{number} is not a {what}: it must be in [0, 2**64), or a bigint in [-2**63, 2**63)")
    return number % (1 << FINGERPRINT_BITS)


def _number_of(value: object, what: str, of_texts: str) -> int:
    if isinstance(value, str):
        if digits := _HEXADECIMAL.fullmatch(value):
            return int(digits[1], 16)
        raise UsageError(
            f"{value[:40]!r} is not a {what}: as a str, it has 16 hexadecimal digits; convert decimal ones with"
            f" int(), {of_texts}, and {_WIDE}"
        )
    if isinstance(value, bytes | bytearray):
        return int.from_bytes(_only_64(value, 8 * len(value), what))
    bits = getattr(value, "hash", None)
    if isinstance(bits, np.ndarray) and bits.dtype == bool:
        return int.from_bytes(np.packbits(_only_64(bits, bits.size, what)).tobytes())
    if isinstance(value, bool) or not isinstance(value, SupportsIndex):
        raise TypeError(f"a {what} must be an int, 16 hexadecimal digits, 8 bytes or an ImageHash, not {value!r}")
    return index(value)


def _only_64(value: Any, bits: int, what: str) -> Any:
    if bits != FINGERPRINT_BITS:
        raise UsageError(f"a {what} must have {FINGERPRINT_BITS} bits, not {bits}: {_WIDE}")
    return value


def fingerprint_array(values: NDArray[Any]) -> NDArray[np.uint64]:
    """Return an array of integers as uint64, with its shape and mask. Negative ones are the bigint of PostgreSQL.

    Raises TypeError for every other type.
    """
    if values.dtype.kind in "iu":
        return values.astype(np.uint64, copy=False)
    raise TypeError(f"fingerprints must be an array of uint64 or int64, not of {values.dtype}")


def fingerprint_column(
    fingerprints: Iterable[object] | Column,
) -> tuple[NDArray[np.uint64], NDArray[np.bool_] | None]:
    """Return any iterable of fingerprints as a uint64 array of one dimension, and which are there, None if all.

    None, masked elements and nulls are missing. Raises TypeError and ValueError that name the first wrong
    element.
    """
    if isinstance(fingerprints, Column):
        return read_column(fingerprints)
    if isinstance(
        fingerprints, str | bytes | bytearray
    ):  # iterable, but each element would be another fingerprint
        raise TypeError(f"fingerprints must be a list or an array of them, not {fingerprints[:40]!r}")
    if not isinstance(fingerprints, np.ndarray):
        values = list(fingerprints)
        present = None
        if set(map(type, values)) - {int}:
            known = [not is_missing(value) for value in values]
            values = [
                one_fingerprint(value, of_texts="fingerprint texts with simhash_many") if there else 0
                for value, there in zip(values, known, strict=True)
            ]
            present = None if all(known) else np.array(known)
        try:
            return np.array(values, dtype=np.uint64), present
        except OverflowError:  # a negative number, or one that is too large
            return np.array([one_fingerprint(value) for value in values], dtype=np.uint64), present
    if fingerprints.ndim != 1:
        raise UsageError(f"fingerprints must be an array of one dimension, not of {fingerprints.ndim}")
    present = ~np.ma.getmaskarray(fingerprints) if np.ma.is_masked(fingerprints) else None
    return fingerprint_array(np.ma.getdata(fingerprints)), present


def fingerprint_list(fingerprints: Iterable[object] | Column) -> NDArray[np.uint64]:
    """Return any iterable of fingerprints as a uint64 array of one dimension, without those that are missing.

    Raises TypeError and ValueError that name the first wrong element.
    """
    values, present = fingerprint_column(fingerprints)
    return values if present is None else values[present]


def distinct_fingerprints(fingerprints: Iterable[object] | Column) -> NDArray[np.uint64]:
    """Return the distinct fingerprints of an argument of `fingerprint_list`, sorted.

    Raises ValueError if there are more than 32-bit positions can distinguish.
    """
    values = np.sort(fingerprint_list(fingerprints))
    values = values[first_of_equals(values)]
    if values.size > DISTINCT_AT_MOST:
        raise UsageError(
            f"at most 2**32 - 1 distinct fingerprints can be compared in memory, not {values.size}: use an index"
        )
    return values


def differing_bits(a: Any, b: Any, what: str = "fingerprint") -> int | NDArray[np.uint8] | None:
    """Return in how many bits two values differ: an int, or None if one is missing.

    Values have the forms of `one_fingerprint`, and errors call them `what` they are. If an argument has several,
    as an array of integers, an iterable or a column, the result is a uint8 array, broadcast by the rules of NumPy,
    and masked where a value is missing. Raises the errors of `one_fingerprint`, and UsageError for two shapes.
    """
    left, right = _one_side(a, what), _one_side(b, what)
    if left is None or right is None:
        known = right if left is None else left
        if not isinstance(known, np.ndarray):
            return None
        return np.ma.MaskedArray(np.zeros(known.shape, dtype=np.uint8), mask=True)
    if isinstance(left, int) and isinstance(right, int):
        return (left ^ right).bit_count()
    try:
        np.broadcast_shapes(np.shape(left), np.shape(right))
    except ValueError:
        raise UsageError(f"a and b must have the same shape, not {np.shape(left)} and {np.shape(right)}") from None
    return np.bitwise_count(np.bitwise_xor(left, right))


def _one_side(side: Any, what: str) -> int | NDArray[np.uint64] | None:
    if is_missing(side):
        return None
    if isinstance(side, np.ndarray):
        return fingerprint_array(side)
    if isinstance(side, Iterable) and not isinstance(side, str | bytes | bytearray):
        values, present = fingerprint_column(side)
        return values if present is None else np.ma.MaskedArray(values, mask=~present)
    return one_fingerprint(side, what)
