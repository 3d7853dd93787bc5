"""The types of fingerprints, and columns of them of pyarrow and Polars, read in place without importing either."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray


@runtime_checkable
class Column(Protocol):
    """A column of int64 or uint64 with nulls: an Arrow array or chunked array, or a Polars Series."""

    fill_null: Any
    is_null: Any

    def __len__(self) -> int: ...


class ImageHash(Protocol):
    """A hash of a picture, such as those of the package imagehash: 64 bits as an array of bool."""

    hash: Any


OneFingerprint: TypeAlias = int | np.integer[Any] | str | bytes | ImageHash | None
"""A fingerprint in one of the forms of docs/reference/python.md; or None or a masked element, which are NULL."""
Fingerprints = Iterable[OneFingerprint] | NDArray[Any] | Column


def read_column(column: Column) -> tuple[NDArray[np.uint64], NDArray[np.bool_] | None]:
    """Return the values of a column as uint64, and which are there, None if all.

    Values of int64 are taken as the bigint of PostgreSQL: they keep their bits. Nothing is copied, except to join
    chunks and to replace nulls. Raises TypeError for other types.
    """
    kind: object = getattr(column, "type", None) or getattr(column, "dtype", None)
    if str(kind).lower() not in ("int64", "uint64"):
        raise TypeError(f"fingerprints and sketches must be a column of int64 or uint64, not of {kind}")
    missing = np.asarray(column.is_null(), dtype=bool)
    if not missing.any():
        return np.asarray(column).view(np.uint64), None
    return np.asarray(column.fill_null(0)).view(np.uint64), ~missing
