"""Write Parquet files."""

import io
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from simsql.documents.content import UnfitError
from simsql.documents.copying import Target
from simsql.documents.output import PARQUET_MARK, open_binary_output
from simsql.documents.parquet import import_parquet
from simsql.errors import UsageError

_GROUP = 1 << 15  # rows


class ParquetOutput:
    """A file of rows, which are written in row groups."""

    def __init__(self, writer: Any, file: Any) -> None:
        self._writer = writer
        self._file = file
        self._rows: list[Mapping[str, Any]] = []

    def write(self, rows: list[Mapping[str, Any]]) -> None:
        """Write rows. Raises SimsqlError if that fails."""
        self._rows += rows
        if len(self._rows) >= _GROUP:
            self._write_group()

    def flush(self) -> None:
        """Write what is left, and the end of the file. Raises SimsqlError if that fails."""
        self._write_group()
        self._writer.close()
        self._file.flush()

    def _write_group(self) -> None:
        arrow, _ = import_parquet()
        self._writer.write_table(arrow.Table.from_pylist(self._rows, self._writer.schema))
        self._rows = []


def check_parquet() -> None:
    """Raise UsageError if pyarrow is not installed."""
    try:
        import_parquet()
    except UnfitError as missing:
        raise UsageError(missing.detail) from None


@contextmanager
def open_parquet_output(path: Path, columns: Mapping[str, str]) -> Iterator[ParquetOutput]:
    """Open a file for rows, as `open_output`, given the name and the type of each column."""
    arrow, _ = import_parquet()
    schema = arrow.schema(columns.items())
    with open_binary_output(path) as file, writing_parquet(file, schema, store_schema=False) as writer:
        writer.add_key_value_metadata(PARQUET_MARK)
        yield ParquetOutput(writer, file)


@contextmanager
def writing_parquet(target: Target, schema: Any, **options: Any) -> Iterator[Any]:
    """Yield a `ParquetWriter` for a target. After an error, it writes nothing more."""
    _, parquet = import_parquet()
    file = _Target(target)
    writer = parquet.ParquetWriter(file, schema, **options)
    try:
        yield writer
    except BaseException:
        # Otherwise it would write the end whenever it is collected, to a target that is closed by then.
        file.forget()
        with suppress(Exception):
            writer.close()
        raise
    writer.close()


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
