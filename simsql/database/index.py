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
    """Index the fingerprints of a bigint column, in the connection's transaction; return the index's id.

    `table` is a name as SQL writes it, with its schema and quotes where needed. Writers of the table wait
    until the transaction ends. `distance` (0 to 64) is what searches use that name none; the layout is
    `design`, chosen by the table's rows where there is none. The id of `recipe` is kept with the index, so that
    a search by text makes the same fingerprints; for fingerprints that are not made of texts, give a name of your
    own, such as "phash64". `scope` are the unquoted names of up to four columns to whose
    values every search is confined; rows with a null in one of them are in no scope.

    Raises ValueError for a distance out of range, and sqlalchemy.exc.DBAPIError with PostgreSQL's message: no such
    table or column, not bigint, a kind of table that cannot be indexed or a type that cannot be a scope, missing
    rights, an isolation level other than READ COMMITTED.
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

    It commits as it goes, and resumes where a build with these arguments was interrupted. Makes a B-tree on the
    column, behind those of the scope, first if there is none. `report` is called with the share of the keys that
    is done. Arguments and errors are those of `create_index`; UsageError for a Connection in place of the Engine.
    """
    spec = IndexSpec.of(column, distance=distance, design=design, recipe=recipe, scope=scope)
    engine = check_engine(engine, "build_index")
    create_btree(engine, table, spec)
    return build_keys(engine, table, spec, report=report)


def create_described(connection: Connection, table: str, spec: IndexSpec) -> int:
    """Create the index that a spec describes, as `create_index` does; return its id."""
    call = func.simsql.create_index(cast(table, REGCLASS), *spec.arguments())
    index: int = connection.execute(select(call)).scalar_one()
    return index


def drop_index(connection: Connection, table: str, column: str | None = None) -> None:
    """Drop the simhash index of a column; the column itself and its B-tree stay.

    The column may be left out where the table has one index. Raises sqlalchemy.exc.DBAPIError if there is none.
    """
    connection.execute(
        text("SELECT simsql.drop_index(CAST(:table AS regclass), CAST(:column AS text))"),
        {"table": table, "column": column},
    )
