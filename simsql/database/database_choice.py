"""The database that a caller chooses: by its URL, in the folder of an embedded server, or a temporary one."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from simsql.errors import UsageError

if TYPE_CHECKING:
    from sqlalchemy import Engine


@dataclass(frozen=True)
class DatabaseChoice:
    """A database to work in: at most one of the two, or the default embedded server."""

    database: str | None = None
    """URL of a PostgreSQL database."""
    server_dir: Path | None = None
    """Folder of an embedded server whose data stays."""

    def __post_init__(self) -> None:
        if self.database and self.server_dir:
            raise UsageError("--database and --server-dir exclude each other: leave one out")

    @property
    def stays(self) -> bool:
        """Whether its data stays."""
        return bool(self.database or self.server_dir)

    @contextmanager
    def open(self, *, scratch: bool = False) -> Iterator["Engine"]:
        """Open the database. With `scratch`, open an empty one unless the data stays; it is dropped at the end.

        Raises SimsqlError if the embedded server does not start.
        """
        # Here: whoever works without a database does not wait for their import.
        from simsql.database.connect import open_engine  # noqa: PLC0415
        from simsql.server import scratch_database, start_embedded  # noqa: PLC0415

        with ExitStack() as stack:
            if self.database:
                engine = open_engine(self.database, prepare=False)  # there may be a pooler
            else:
                server = stack.enter_context(start_embedded(self.server_dir))
                empty = scratch and not self.stays
                engine = open_engine(stack.enter_context(scratch_database(server)) if empty else server.url())
            stack.callback(engine.dispose)
            yield engine
