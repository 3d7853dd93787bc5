"""`simsql index ...`: create, build, list, check, mend and drop simhash indexes."""

from collections.abc import Callable, Iterable
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from simsql.cli._app import Database, NewRecipeName, ServerDir, app, command
from simsql.cli._database import open_database
from simsql.cli._hints import as_commands
from simsql.cli._process import note
from simsql.cli._progress import ProgressBars
from simsql.cli._recipes import parse_recipe
from simsql.cli._tables import print_table
from simsql.database.build import build_keys, create_btree
from simsql.database.index import create_described, drop_index
from simsql.database.index_spec import IndexSpec
from simsql.database.install import IndexStatus, read_status
from simsql.database.search_index import SearchIndex
from simsql.database.upkeep import Finding, Report, verify
from simsql.documents.formats import printable
from simsql.errors import SimsqlError, UsageError
from simsql.fingerprint import DEFAULT_RECIPE
from simsql.hamming import Design

group = typer.Typer(
    name="index",
    help="Create, build, list, check, mend and drop simhash indexes.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)
app.add_typer(group)

TableName = Annotated[
    str, typer.Argument(metavar="TABLE", help="The table, as SQL writes it: article, app.article.")
]
ColumnName = Annotated[
    str, typer.Argument(metavar="COLUMN", help="The bigint column that holds the fingerprints.")
]
Column = Annotated[
    str | None, typer.Option(metavar="NAME", help="The indexed column, where the table has several.")
]
Distance = Annotated[
    int, typer.Option(metavar="BITS", help="How many bits may differ in a search that says nothing else.")
]
Blocks = Annotated[
    int | None,
    typer.Option(metavar="N", help="Blocks of the design; by default it is chosen by the number of rows."),
]
Lead = Annotated[int, typer.Option(metavar="N", help="How many of the blocks lead.")]
Inner = Annotated[
    int, typer.Option(metavar="N", help="Blocks into which the other bits are cut again; 0 for none.")
]
ScopeColumns = Annotated[
    list[str] | None,
    typer.Option(
        metavar="COLUMN",
        help="Confine each search to the rows with one value of this column; may be given several times.",
    ),
]


@command("create", group)
def create_command(
    table: TableName,
    column: ColumnName,
    distance: Distance = 3,
    blocks: Blocks = None,
    lead: Lead = 1,
    inner_blocks: Inner = 0,
    recipe: NewRecipeName = None,
    scope_column: ScopeColumns = None,
    database: Database = None,
    server_dir: ServerDir = None,
) -> None:
    """Create an index on a column of fingerprints.

    Writers of the table wait until it is done.
    """
    spec = _describe(column, distance, _design(blocks, lead, inner_blocks), recipe, scope_column)
    with open_database(database, server_dir) as engine, engine.begin() as connection:
        create_described(connection, table, spec)
    _print_ready(table, column)


@command("build", group)
def build_command(
    table: TableName,
    column: ColumnName,
    distance: Distance = 3,
    blocks: Blocks = None,
    lead: Lead = 1,
    inner_blocks: Inner = 0,
    recipe: NewRecipeName = None,
    scope_column: ScopeColumns = None,
    database: Database = None,
    server_dir: ServerDir = None,
) -> None:
    """Create an index while others write.

    It can be searched when the build has ended. A build that was interrupted goes on where it stopped, if it is
    called again with the same arguments.
    """
    spec = _describe(column, distance, _design(blocks, lead, inner_blocks), recipe, scope_column)
    stages = ProgressBars(Console(stderr=True))
    with open_database(database, server_dir) as engine:
        with stages.stage("B-tree"):
            create_btree(engine, table, spec)
        with stages.stage("keys", _PARTS) as report:
            build_keys(engine, table, spec, report=_parts(report))
    _print_ready(table, column)


@command("list", group)
def list_command(database: Database = None, server_dir: ServerDir = None) -> None:
    """List the indexes of a database with their designs and states."""
    with open_database(database, server_dir) as engine:
        status = read_status(engine)
    if status.version is None:
        raise SimsqlError("schema simsql is not installed: run simsql install")
    print_indexes(status.indexes)


@command("verify", group)
def verify_command(
    table: Annotated[
        str | None,
        typer.Argument(metavar="TABLE", help="The table, as SQL writes it; by default all that have an index."),
    ] = None,
    column: Column = None,
    database: Database = None,
    server_dir: ServerDir = None,
) -> None:
    """Check indexes against their tables.

    Prints one line for each fault, with tabs between its parts: the table, the column, the problem, the object,
    the number of keys, and what to run. The exit code is 1 if there is a fault. Superfluous keys are not faults:
    simsql index vacuum removes them.
    """
    with open_database(database, server_dir) as engine, engine.connect() as connection:
        findings = verify(connection, table, column)
    _print_findings(findings)
    if findings:
        raise typer.Exit(1)
    note("nothing is wrong")


@command("repair", group)
def repair_command(table: TableName, database: Database = None, server_dir: ServerDir = None) -> None:
    """Mend what simsql index verify finds in the indexes of a table.

    Prints what was mended, as verify does. Writers of the table wait until it is done.
    """
    with open_database(database, server_dir) as engine:
        findings = SearchIndex(engine, table).repair()
    _print_findings(findings)
    if not findings:
        note("nothing was wrong")


@command("vacuum", group)
def vacuum_command(
    table: TableName, column: Column = None, database: Database = None, server_dir: ServerDir = None
) -> None:
    """Remove superfluous keys: those that no row has any more, and all but one of equal ones.

    Others read and write meanwhile. Prints how many keys were removed.
    """
    stages = ProgressBars(Console(stderr=True))
    with open_database(database, server_dir) as engine, stages.stage("keys", _PARTS) as report:
        removed = SearchIndex(engine, table, column).vacuum(report=_parts(report))
    print(f"{removed} keys removed")


@command("drop", group)
def drop_command(
    table: TableName, column: Column = None, database: Database = None, server_dir: ServerDir = None
) -> None:
    """Drop an index.

    The column and its B-tree stay.
    """
    with open_database(database, server_dir) as engine, engine.begin() as connection:
        drop_index(connection, table, column)


def print_indexes(indexes: Iterable[IndexStatus]) -> None:
    """Print a table of indexes on stdout."""
    table = Table(box=None, pad_edge=False)
    for heading in ("table", "column", "scope", "distance", "blocks", "lead", "inner", "recipe", "state"):
        table.add_column(heading, overflow="fold")
    for index in indexes:
        names = Text(index.table_name), Text(index.column_name), Text(", ".join(index.scope) or "-")
        numbers = map(str, (index.distance, index.blocks, index.lead, index.inner_blocks))
        table.add_row(*names, *numbers, Text(index.recipe or "-"), index.state)
    print_table(table)


_PARTS = 1000  # of a progress bar


def _parts(report: Callable[[int], None]) -> Report:
    return lambda share: report(round(_PARTS * share))


def _print_ready(table: str, column: str) -> None:
    print(f"simhash index on {printable(table)}({printable(column)}): ready")


def _print_findings(findings: Iterable[Finding]) -> None:
    for finding in findings:
        keys = "" if finding.keys is None else str(finding.keys)
        hint = as_commands(finding.hint or "")
        parts = (finding.table, finding.column, finding.problem, finding.object, keys, hint)
        print(*map(printable, parts), sep="\t")


def _describe(
    column: str, distance: int, design: Design | None, recipe: str | None, scope: list[str] | None
) -> IndexSpec:
    try:
        return IndexSpec.of(
            column,
            distance=distance,
            design=design,
            recipe=parse_recipe(recipe) or DEFAULT_RECIPE,
            scope=scope or (),
        )
    except ValueError as error:
        raise UsageError(str(error)) from error


def _design(blocks: int | None, lead: int, inner_blocks: int) -> Design | None:
    if blocks is None:
        if (lead, inner_blocks) != (1, 0):
            raise UsageError("name the --blocks of the design, too, or neither --lead nor --inner-blocks")
        return None
    try:
        return Design(blocks, lead, inner_blocks)
    except ValueError as error:
        raise UsageError(str(error)) from error
