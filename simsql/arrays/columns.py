"""The types of fingerprints, and columns of them of pyarrow and Polars, read in place without importing either."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray


@runtime_checkable
class Column(Protocol):
    """A column of int64 or uint64 with nulls: an Arrow array or chunked array, or a Polars Series."""

    null_count: Any

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
    chunks, and the values of a Polars Series with nulls. Raises TypeError for other types.
    """
    kind: object = getattr(column, "type", None) or getattr(column, "dtype", None)
    if str(kind).lower() not in ("int64", "uint64"):
        raise TypeError(f"fingerprints and sketches must be a column of int64 or uint64, not of {kind}")
    read = _read_polars if hasattr(column, "fill_null") and hasattr(column, "to_physical") else _read_arrow
    return read(column)


def _read_polars(series: Any) -> tuple[NDArray[np.uint64], NDArray[np.bool_] | None]:
    if not series.null_count():
        return series.to_numpy().view(np.uint64), None
    return series.fill_null(0).to_numpy().view(np.uint64), series.is_not_null().to_numpy()


def _read_arrow(column: Any) -> tuple[NDArray[np.uint64], NDArray[np.bool_] | None]:
    chunks = getattr(column, "chunks", [column])
    # The values of nulls are anything, and the data of an empty array may be missing.
    parts = [
        np.frombuffer(chunk.buffers()[1], dtype=np.uint64, count=len(chunk), offset=8 * chunk.offset)
        for chunk in chunks
        if len(chunk)
    ]
    values = parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, dtype=np.uint64), *parts])
    if not column.null_count:
        return values, None
    valid = [chunk.is_valid().to_numpy(zero_copy_only=False) for chunk in chunks]
    return values, np.concatenate(valid)
