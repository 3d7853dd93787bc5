"""Checks of arguments, shared by this package. Each error names the value and what is allowed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from simsql.columns import Column, read_column
from simsql.errors import UsageError

FINGERPRINT_BITS = 64
# Positions of fingerprints fit 32 bits, with one number left that means "none".
DISTINCT_AT_MOST = 2**32 - 1
_BIGINT_HINT = (
    "a negative value is the bigint of a PostgreSQL row: take it modulo 2**64 "
    "(value % 2**64; for an int64 array: array.view(numpy.uint64))"
)


def whole_number(name: str, value: object, low: int, high: int) -> int:
    """Return `value` as an int if it is a whole number from `low` to `high`.

    Raises TypeError for anything but Python and NumPy integers (also for bool), UsageError outside the range.
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name} must be an int between {low} and {high}, not {value!r}")
    if not low <= value <= high:
        raise UsageError(f"{name} must be between {low} and {high}, not {value}")
    return int(value)


def is_missing(value: object) -> bool:
    """Return whether a value is missing: None, or the masked element of an array."""
    return value is None or (
        isinstance(value, np.ma.MaskedArray) and value.ndim == 0 and bool(np.ma.getmaskarray(value))
    )


def one_fingerprint(value: object, width: int = FINGERPRINT_BITS) -> int:
    """Return `value` as an int if it is an integer in [0, 2**width)."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"a fingerprint must be an int in [0, 2**{width}), not {value!r}")
    if not 0 <= value < 1 << width:
        hint = f"; {_BIGINT_HINT}" if value < 0 else ""
        raise UsageError(f"a fingerprint must be in [0, 2**{width}), not {value}{hint}")
    return int(value)


def fingerprint_array(values: NDArray[Any]) -> NDArray[np.uint64]:
    """Return an array of any unsigned integer type as uint64, with its shape and mask.

    Raises TypeError for every other type. Signed arrays are refused even if no value is negative: the type does
    not show whether they contain plain numbers or bigint bit patterns, and a wrong guess gives wrong distances.
    """
    if values.dtype.kind == "u":
        return values.astype(np.uint64, copy=False)
    hint = f"; {_BIGINT_HINT}" if values.dtype.kind == "i" else ""
    raise TypeError(f"fingerprints must be an array of uint64, not of {values.dtype}{hint}")


def refuse_array(values: NDArray[np.uint64], width: int) -> NoReturn:
    """Raise the ValueError that names the first of `values` at or above 2**width."""
    wrong = values.reshape(-1)[np.flatnonzero(values.reshape(-1) >> np.uint64(width))[0]]
    raise UsageError(f"every fingerprint must be in [0, 2**{width}), not {wrong}")


def fingerprint_column(
    fingerprints: Iterable[object] | Column,
) -> tuple[NDArray[np.uint64], NDArray[np.bool_] | None]:
    """Return any iterable of fingerprints as a uint64 array of one dimension, and which are there, None if all.

    None, masked elements and nulls are missing. Raises TypeError and ValueError that name the first wrong
    element.
    """
    if isinstance(fingerprints, Column):
        return read_column(fingerprints)
    if not isinstance(fingerprints, np.ndarray):
        values = list(fingerprints)
        present = None
        if set(map(type, values)) - {int}:
            known = [not is_missing(value) for value in values]
            values = [one_fingerprint(value) if there else 0 for value, there in zip(values, known, strict=True)]
            present = None if all(known) else np.array(known)
        try:
            return np.array(values, dtype=np.uint64), present
        except OverflowError:
            for value in values:
                one_fingerprint(value)
            raise
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
    values = values[first_of_each(values)]
    refuse_too_many(values)
    return values


def first_of_each(values: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Return whether each of sorted values is the first of its kind."""
    first = np.ones(values.size, dtype=bool)
    np.not_equal(values[1:], values[:-1], out=first[1:])
    return first


def refuse_too_many(values: NDArray[np.uint64]) -> None:
    """Raise ValueError if there are more distinct values than 32-bit positions can distinguish."""
    if values.size > DISTINCT_AT_MOST:
        raise UsageError(
            f"at most 2**32 - 1 distinct fingerprints can be compared in memory, not {values.size}: use an index"
        )
