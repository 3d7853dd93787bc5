"""Give a simhash index another recipe while others read and write.

The new fingerprints go into a second column with an index of its own, which no search sees: see
sql/change_recipe.sql. All steps but the last change nothing for others, and can be repeated. In the last one,
nobody reads or writes the table for a moment.
"""

import time
from collections.abc import Mapping
from typing import Any

from psycopg import errors, sql
from sqlalchemy import Connection, Engine, Row, text
from sqlalchemy.exc import DBAPIError

from simsql.database.backfill import Backfill, Filled
from simsql.database.connect import READ_COMMITTED, begin, check_engine
from simsql.database.index import Report, create_index
from simsql.database.index_spec import same_recipe
from simsql.database.load import find_target
from simsql.database.search_index import SearchIndex
from simsql.database.transfer import raw_connection, sqlalchemy_errors
from simsql.errors import SimsqlError, UsageError
from simsql.fingerprint import Recipe, check_recipe
from simsql.hamming import Design

REMEMBERED = 2.0
"""Seconds for which a process with a model relies on the recipe of an index that it has read."""

MARGIN = 3.0
"""Seconds that such a process may take from its look at the recipe to its write."""

# How long others may have to wait for one attempt to lock the table, and how often it is tried.
_SHORT_WAIT, _LONG_WAIT = "200ms", "2s"
_ATTEMPTS = 100

_BEGIN = text(
    "SELECT * FROM simsql._begin_recipe_change("
    "CAST(:table AS regclass), CAST(:column AS text), :recipe, CAST(:sources AS text[]))"
)
_NEXT = text("SELECT simsql._next_column(r), simsql._next_recipe(r) FROM simsql.registry AS r WHERE r.id = :index")
_IS_READY = text(
    "SELECT r.ready FROM simsql.registry AS r"
    " WHERE r.table_id = CAST(:table AS regclass) AND r.column_name = :column"
)
_STOP_WRITERS = text("SELECT simsql._stop_writers(CAST(:table AS regclass))")
_END = text("SELECT simsql._end_recipe_change(CAST(:table AS regclass), CAST(:column AS text))")
_BUSY = (errors.LockNotAvailable, errors.DeadlockDetected, errors.ObjectInUse)


class RecipeChange:
    """A change of the recipe of an index: `fill`, `build`, then `switch`, or `run` for all three.

    Searches use the old fingerprints and writers write them until `switch`, which first computes what the writers
    have left. If a change is interrupted, repeat it: nothing that was committed is computed again.

    engine_or_connection
        An engine: a change commits as it works.
    table
        A name as in SQL, with schema and quotes if needed.
    source
        The unquoted name of the text column, or of several with their weights.
    recipe
        The new recipe.
    column
        The unquoted name of the fingerprint column. If the table has only one index, omit it.

    Raises UsageError for a connection, and if a change to another recipe has begun; sqlalchemy.exc.DBAPIError with
    PostgreSQL's message: no such table, column or index, no primary key, missing privileges, something else that
    depends on the column. Also raises SimsqlError, as the methods do, if others keep the table locked.
    """

    def __init__(
        self,
        engine_or_connection: Engine | Connection,
        table: str,
        source: str | Mapping[str, int],
        recipe: Recipe,
        column: str | None = None,
    ) -> None:
        check_recipe(recipe)
        self._engine = check_engine(engine_or_connection, "a change of the recipe")
        self._table, self._recipe = table, recipe
        self._weights = {source: 1} if isinstance(source, str) else dict(source)
        parameters = {"table": table, "column": column, "recipe": recipe.id, "sources": list(self._weights)}
        self._index: Row[Any] = self._patiently(lambda: self._execute(_BEGIN, parameters))
        with begin(self._engine) as connection:
            self._next, next_recipe = connection.execute(_NEXT, {"index": self._index.id}).one()
        self.column: str = self._index.column_name
        """The fingerprint column."""
        self._ready_at = 0.0
        self.is_done = next_recipe is None
        """Whether the index has the new recipe."""
        if not self.is_done and not same_recipe(next_recipe, recipe.id):
            raise UsageError(
                f"a change of {table}({self.column}) to the recipe {next_recipe} has begun:"
                f" finish it, or drop the column {self._next} with its index and trigger"
            )

    def run(self, *, workers: int | None = None, report: Report | None = None) -> int:
        """Do everything, and return the id of the index. `report` is called with the share of the fingerprints."""
        if not self.is_done:
            self.fill(workers=workers, report=report)
            self.build()
        return self.switch()

    def fill(self, *, workers: int | None = None, report: Report | None = None) -> Filled:
        """Compute the new fingerprints that are missing, as `SearchIndex.backfill` does."""
        index = SearchIndex(self._engine, self._table, self._next, recipe=self._recipe)
        return index.backfill(self._weights, workers=workers, report=report)

    def build(self, *, report: Report | None = None) -> None:
        """Create the index of the new fingerprints concurrently, with the design and scope of the old one."""
        old = self._index
        with begin(self._engine) as connection:
            is_ready = connection.execute(_IS_READY, {"table": self._table, "column": self._next}).scalar()
        if not is_ready:
            create_index(
                self._engine,
                self._table,
                self._next,
                distance=old.distance,
                design=Design(old.blocks, old.lead, old.inner_blocks),
                recipe=self._recipe,
                scope=old.scope_columns,
                storage=old.storage,
                concurrently=True,
                report=report,
            )
        # Without statistics, PostgreSQL might read the whole table to find the few rows without a fingerprint.
        with begin(self._engine) as connection:
            statement = sql.SQL("ANALYZE {} ({})").format(self._table_name(connection), sql.Identifier(self._next))
            raw_connection(connection).execute(statement)
        self._ready_at = time.monotonic()

    def switch(self) -> int:
        """Replace the old fingerprints and their index, after `build`, and return the id of the new index.

        Fills in what others have written, then waits until no process relies on the recipe that it remembers. At
        the end nobody reads or writes the table, for a moment and for two seconds at most; if that does not
        suffice, it tries again.
        """
        if self.is_done:
            return int(self._index.id)
        self.fill()
        time.sleep(max(0.0, self._ready_at + REMEMBERED + MARGIN - time.monotonic()))
        changed: int = self._patiently(self._try_to_switch)
        self.is_done = True
        return changed

    def _try_to_switch(self) -> int:
        self.fill()
        parameters = {"table": self._table, "column": self.column}
        with self._engine.connect().execution_options(**READ_COMMITTED) as connection, connection.begin():
            _set(connection, "lock_timeout", _SHORT_WAIT)
            connection.execute(_STOP_WRITERS, parameters)
            # What is missing is null in the B-tree of the second column.
            _set(connection, "enable_seqscan", "off")
            options: dict[str, Any] = {"all_rows": False, "batch_rows": 1_000, "report": None}
            with sqlalchemy_errors():
                target = find_target(connection, self._table, self._next)
                _Rest(connection, target, self._weights, self._recipe, **options).run(None)
            _set(connection, "lock_timeout", _LONG_WAIT)
            return int(connection.execute(_END, parameters).scalar_one())

    def _execute(self, statement: Any, parameters: Mapping[str, Any]) -> Row[Any]:
        with self._engine.connect().execution_options(**READ_COMMITTED) as connection, connection.begin():
            _set(connection, "lock_timeout", _SHORT_WAIT)
            return connection.execute(statement, parameters).one()

    def _patiently(self, attempt: Any) -> Any:
        """Return the result of an attempt that takes locks; try again while others hold them."""
        for _ in range(_ATTEMPTS):
            try:
                return attempt()
            except DBAPIError as error:
                if not isinstance(error.orig, _BUSY):
                    raise
            time.sleep(0.5)
        raise SimsqlError(f"{self._table} is in use and could not be locked: run it again to resume")

    def _table_name(self, connection: Connection) -> sql.Composable:
        name = text("SELECT CAST(CAST(:table AS regclass) AS text)")
        return sql.SQL(connection.execute(name, {"table": self._table}).scalar_one())


class _Rest(Backfill):
    """A backfill within the transaction of its connection, which has stopped the writers."""

    def _execute(self, statement: str, **parameters: Any) -> list[tuple[Any, ...]]:
        composed = sql.SQL(statement).format(**self._parts)
        return raw_connection(self._connection).execute(composed, parameters or None).fetchall()


def _set(connection: Connection, setting: str, value: str) -> None:
    statement = text("SELECT pg_catalog.set_config(:setting, :value, true)")
    connection.execute(statement, {"setting": setting, "value": value})
