"""Copy Parquet files without some of their rows.

Values, order, schema and metadata stay, and row groups that are not large. The bytes differ.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from itertools import islice
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from simsql.documents.content import UnfitError
from simsql.documents.copying import Chosen, DifferentError, Target, copy_records
from simsql.documents.input_formats import Document, Layout, Opened, printable
from simsql.documents.parquet import ParquetTable, RowGroup, import_parquet, parquet_errors, read_parquet
from simsql.documents.parquet_output import writing_parquet
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
    with _writing(table, target) if target else nullcontext() as writer:
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


def _find_runs(keep: NDArray[np.bool_]) -> list[list[int]]:
    """Return the start and the end of each run of true values."""
    changes = np.flatnonzero(np.diff(keep, prepend=False, append=False))
    return changes.reshape(-1, 2).tolist()


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

    def __init__(self, table: ParquetTable, writer: Any) -> None:
        self._table = table
        self._writer = writer

    def write(self, group: RowGroup, keep: NDArray[np.bool_]) -> None:
        """Write the rows of a row group that stay."""
        done = held = 0
        kept: list[Any] = []
        for batch in self._table.batches(group):
            # pyarrow cannot filter all types, but it can cut all.
            for start, end in _find_runs(keep[done : done + batch.num_rows]):
                kept.append(batch.slice(start, end - start))
                held += kept[-1].nbytes
            done += batch.num_rows
            if held > _HELD:
                self._write(kept)
                kept, held = [], 0
        if done != group.rows:
            raise DifferentError
        self._write(kept)

    def _write(self, batches: Sequence[Any]) -> None:
        rows = sum(batch.num_rows for batch in batches)
        if rows:
            arrow, _ = import_parquet()
            self._writer.write_table(arrow.Table.from_batches(batches), row_group_size=rows)


@contextmanager
def _writing(table: ParquetTable, target: Target) -> Iterator[_Writer]:
    file = table.file
    columns = [file.schema.column(position) for position in range(len(file.schema))]
    # The compression of the texts, which are most of a corpus.
    position = [column.path for column in columns].index(table.text_field)
    used: str = file.metadata.row_group(0).column(position).compression
    with writing_parquet(
        target,
        file.schema_arrow,
        compression={"UNCOMPRESSED": "none", "LZ4_RAW": "lz4"}.get(used, used.lower()),
        use_deprecated_int96_timestamps="INT96" in {column.physical_type for column in columns},
        use_compliant_nested_type=False,  # the names of the file
        store_schema=b"ARROW:schema" in (file.metadata.metadata or {}),
    ) as writer:
        yield _Writer(table, writer)
