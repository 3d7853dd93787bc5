"""Copy Parquet files without some of their rows.

Values, order, schema and metadata stay, and row groups that are not large. The bytes differ.
"""

import io
import os
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from itertools import islice
from typing import IO, Any, Self

import numpy as np
from numpy.typing import NDArray

from simsql.documents.content import UnfitError
from simsql.documents.copying import Chosen, DifferentError, Target, copy_records
from simsql.documents.input_formats import Document, Layout, Opened, printable
from simsql.documents.parquet import ParquetTable, RowGroup, parquet_errors, read_parquet
from simsql.errors import SimsqlError

_HELD = 1 << 26  # bytes of rows that are written at once
_CHECKED = 1 << 8  # rows

Advance = Callable[[int], None]


def copy_rows(
    file: IO[bytes], target: Target, name: str, layout: Layout, chosen: Chosen, advance: Advance
) -> None:
    """Copy a Parquet file without the rows to remove.

    `advance` is called with numbers of bytes. Raises DifferentError if a chosen row is gone, and SimsqlError if it
    cannot be copied.
    """
    if len(chosen.lines):
        with open(os.dup(file.fileno()), "rb") as opened:  # noqa: PTH123 - what is opened here is also closed
            try:
                table = ParquetTable(opened, Opened(name), layout)
                _copy(table, target if chosen.removes else None, chosen)
            except UnfitError:
                raise DifferentError from None
            except parquet_errors() as error:
                raise SimsqlError(f"{printable(name)} cannot be copied: {printable(str(error))}") from error
    if chosen.removes:
        advance(os.fstat(file.fileno()).st_size)
    else:
        file.seek(0)
        nothing = chosen._replace(lines=chosen.lines[:0])
        copy_records(file, target, name, read_parquet, layout, nothing, advance)


def _copy(table: ParquetTable, target: Target | None, chosen: Chosen) -> None:
    """Check the chosen rows, and write the others to a target, if there is one."""
    done = 0
    with _Writer(table, target) if target else nullcontext() as writer:
        for group in table.groups:
            stop = int(np.searchsorted(chosen.lines, group.first + group.rows, side="right"))
            keep = np.ones(group.rows, dtype=bool)
            if done < stop:
                keep[chosen.lines[done:stop] - group.first - 1] = ~_check(table, group, chosen, done, stop)
            done = stop
            if writer:
                writer.write(group, keep)
        if done < len(chosen.lines):
            raise DifferentError


def _check(table: ParquetTable, group: RowGroup, chosen: Chosen, start: int, stop: int) -> NDArray[np.bool_]:
    """Return which of the chosen rows of a row group to remove."""
    lines = chosen.lines[start:stop]
    wanted = set(lines.tolist())
    found = (item for item in table.documents([group]) if isinstance(item, Document) and item.line in wanted)
    removed: list[bool] = []
    while some := list(islice(found, _CHECKED)):
        first = len(removed)
        if [item.line for item in some] != lines[first : first + len(some)].tolist():
            raise DifferentError
        removed += chosen.remove(start + first, [item.text for item in some])
    if len(removed) < len(lines):
        raise DifferentError
    return np.array(removed, dtype=bool)


class _Writer:
    """Writes rows as the file has them: in row groups of the same rows, which are cut where they are large."""

    def __init__(self, table: ParquetTable, target: Target) -> None:
        import pyarrow  # noqa: PLC0415 - an extra
        from pyarrow import parquet  # noqa: PLC0415

        self._arrow = pyarrow
        self._table = table
        file = table.file
        physical = [file.schema.column(position).physical_type for position in range(len(file.schema))]
        self._file = _Target(target)
        self._writer = parquet.ParquetWriter(
            self._file,
            file.schema_arrow,
            compression=self._compression(file),
            use_deprecated_int96_timestamps="INT96" in physical,
            use_compliant_nested_type=False,  # the names of the file
            store_schema=b"ARROW:schema" in (file.metadata.metadata or {}),
        )

    def _compression(self, file: Any) -> str:
        """Return the compression of the texts, which are most of a corpus."""
        paths = [file.schema.column(position).path for position in range(len(file.schema))]
        used: str = file.metadata.row_group(0).column(paths.index(self._table.text_field)).compression
        return {"UNCOMPRESSED": "none", "LZ4_RAW": "lz4"}.get(used, used.lower())

    def write(self, group: RowGroup, keep: NDArray[np.bool_]) -> None:
        """Write the rows of a row group that stay."""
        done = held = 0
        kept: list[Any] = []
        for batch in self._table.batches(group):
            some = batch.filter(self._arrow.array(keep[done : done + batch.num_rows]))
            done += batch.num_rows
            kept.append(some)
            held += some.nbytes
            if held > _HELD:
                self._write(kept)
                kept, held = [], 0
        if done != group.rows:
            raise DifferentError
        self._write(kept)

    def _write(self, batches: Sequence[Any]) -> None:
        rows = sum(batch.num_rows for batch in batches)
        if rows:
            self._writer.write_table(self._arrow.Table.from_batches(batches), row_group_size=rows)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind:
            # Otherwise it would write the end whenever it is collected, to a target that is closed by then.
            self._file.forget()
            with suppress(Exception):
                self._writer.close()
        else:
            self._writer.close()


class _Target(io.RawIOBase):
    """A target as a file."""

    def __init__(self, target: Target) -> None:
        super().__init__()
        self._target: Target | None = target

    def forget(self) -> None:
        """Write nothing more."""
        self._target = None

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        if self._target:
            self._target.write(bytes(data))
        return len(data)
