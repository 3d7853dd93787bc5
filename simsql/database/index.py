"""Create, build and drop simhash indexes."""

from collections.abc import Sequence

from sqlalchemy import Connection, Engine, cast, func, select, text
from sqlalchemy.dialects.postgresql import REGCLASS

from simsql.database.build import build_keys, create_btree
from simsql.database.connect import check_engine
from simsql.database.index_spec import IndexSpec
from simsql.database.upkeep import Report
from simsql.fingerprint import DEFAULT_RECIPE, Recipe
from simsql.hamming import Design


def create_index(
    connection: Connection,
    table: str,
    column: str,
    *,
    distance: int = 3,
    design: Design | None = None,
    recipe: Recipe | str = DEFAULT_RECIPE,
    scope: Sequence[str] = (),
) -> int:
    """Create a simhash index on a bigint column, in the connection's transaction; return its id.

    `table` is a name as in SQL, with schema and quotes if needed. Writers of the table wait until the transaction
    ends. `distance` (0 to 64) is the default of searches. `design` is chosen by the number of rows if omitted. The
    id of `recipe` is stored with the index, so that a search by text computes the same fingerprints; if yours do
    not come from texts, pass a name of your own, such as "phash64". `scope` lists the unquoted names of up to four
    columns that confine every search; rows with a null in one of them are not indexed.

    Raises ValueError for a distance out of range, and sqlalchemy.exc.DBAPIError with PostgreSQL's message: no such
    table or column, not bigint, a table that cannot be indexed, a type that cannot be in a scope, missing
    privileges, an isolation level other than READ COMMITTED.
    """
    return create_described(
        connection, table, IndexSpec.of(column, distance=distance, design=design, recipe=recipe, scope=scope)
    )


def build_index(
    engine: Engine,
    table: str,
    column: str,
    *,
    distance: int = 3,
    design: Design | None = None,
    recipe: Recipe | str = DEFAULT_RECIPE,
    scope: Sequence[str] = (),
    report: Report | None = None,
) -> int:
    """Create an index while others read and write; return its id.

    It commits as it works, and resumes an interrupted build with the same arguments. If there is no B-tree on the
    scope columns and the column, it creates one first. `report` is called with the completed share of the keys.
    Takes the arguments and raises the errors of `create_index`, and UsageError for a Connection instead of an
    Engine.
    """
    spec = IndexSpec.of(column, distance=distance, design=design, recipe=recipe, scope=scope)
    engine = check_engine(engine, "build_index")
    create_btree(engine, table, spec)
    return build_keys(engine, table, spec, report=report)


def create_described(connection: Connection, table: str, spec: IndexSpec) -> int:
    """Create the index that a spec describes, like `create_index`; return its id."""
    call = func.simsql.create_index(cast(table, REGCLASS), *spec.arguments())
    index: int = connection.execute(select(call)).scalar_one()
    return index


def drop_index(connection: Connection, table: str, column: str | None = None) -> None:
    """Drop the simhash index of a column, but not the column and its B-tree.

    If the table has only one index, omit the column. Raises sqlalchemy.exc.DBAPIError if there is no index.
    """
    connection.execute(
        text("SELECT simsql.drop_index(CAST(:table AS regclass), CAST(:column AS text))"),
        {"table": table, "column": column},
    )
