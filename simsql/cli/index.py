"""`simsql index ...`: create, build, list, verify, repair, vacuum, change and drop simhash indexes."""

from collections.abc import Callable, Iterable
from typing import Annotated

import typer

from simsql.cli._app import app, as_commands, command
from simsql.cli._database import open_database
from simsql.cli._options import (
    Database,
    Formatted,
    IndexedColumn,
    NewRecipeName,
    Quiet,
    ServerDir,
    Storage,
    TableName,
    distance_option,
    number_option,
    option,
    refuse_empty,
)
from simsql.cli._process import note
from simsql.cli._recipes import parse_recipe
from simsql.cli._terminal import ProgressBars, messages
from simsql.database import Finding, IndexSpec, IndexStatus, SearchIndex, change_storage, drop_index, read_status
from simsql.database.index import Report, build_keys, create_btree, create_described, verify
from simsql.documents import printable
from simsql.documents.output_formats import Column, Format, choose_format, format_share, print_rows
from simsql.errors import SimsqlError, UsageError
from simsql.fingerprint import DEFAULT_RECIPE
from simsql.hamming import Design

group = typer.Typer(
    name="index",
    help="Create, list, verify, repair and drop simhash indexes.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)
app.add_typer(group)

ColumnName = Annotated[
    str, typer.Argument(metavar="COLUMN", help="Fingerprint column, a bigint.", callback=refuse_empty)
]
Distance = Annotated[int, distance_option(" in searches that give no distance")]
Blocks = Annotated[
    int | None, number_option("--blocks", "; by default, chosen by the number of rows", least=1, most=64)
]
Lead = Annotated[int, number_option("--lead", least=1, most=64)]
Inner = Annotated[int, number_option("--inner-blocks", least=0, most=64)]
ScopeColumns = Annotated[list[str] | None, option("--scope-column")]
NewStorage = Annotated[Storage, typer.Argument(help="Key tables, or B-trees on the table itself.")]
StorageName = Annotated[Storage | None, option("--storage")]
_INDEXES = (
    *(Column("table"), Column("column"), Column("scope"), Column("distance", "number")),
    *(Column("blocks", "number"), Column("lead", "number"), Column("inner_blocks", "number")),
    *(Column("recipe"), Column("storage"), Column("state"), Column("all_visible", "number"), Column("hint")),
)
_FINDINGS = (
    *(Column("table"), Column("column"), Column("problem"), Column("object")),
    *(Column("keys", "count"), Column("hint")),
)
IndexedTable = Annotated[
    str | None,
    typer.Argument(
        metavar="TABLE", help="Table name as in SQL; by default, all tables with an index.", callback=refuse_empty
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
    storage: StorageName = None,
    database: Database = None,
    server_dir: ServerDir = None,
) -> None:
    """Create an index on a fingerprint column.

    Writers to the table wait until it is done.
    """
    spec = _describe(column, distance, _design(blocks, lead, inner_blocks), recipe, scope_column, storage)
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
    storage: StorageName = None,
    database: Database = None,
    server_dir: ServerDir = None,
    quiet: Quiet = False,
) -> None:
    """Create an index without blocking writers.

    You can search the index once the build is complete. If it is interrupted, run the same command again and it
    resumes.
    """
    spec = _describe(column, distance, _design(blocks, lead, inner_blocks), recipe, scope_column, storage)
    stages = ProgressBars(messages(quiet=quiet))
    with open_database(database, server_dir) as engine:
        with stages.stage("B-tree"):
            create_btree(engine, table, spec)
        with stages.stage("keys", _PARTS) as report:
            build_keys(engine, table, spec, report=_parts(report))
    _print_ready(table, column)


@command("list", group)
def list_command(
    form: Formatted = None,
    database: Database = None,
    server_dir: ServerDir = None,
    quiet: Quiet = False,
) -> None:
    """List the indexes of a database with their designs and states."""
    with open_database(database, server_dir) as engine:
        status = read_status(engine)
    if status.version is None:
        raise SimsqlError("schema simsql is not installed: run simsql install")
    print_indexes(choose_format(form), status.indexes)
    if not status.indexes:
        note("there are no simhash indexes", quiet=quiet)


@command("verify", group)
def verify_command(
    table: IndexedTable = None,
    column: IndexedColumn = None,
    form: Formatted = None,
    database: Database = None,
    server_dir: ServerDir = None,
    quiet: Quiet = False,
) -> None:
    """Check indexes against their tables.

    Print one row per fault: the table, the column, the problem, the object, the number of keys, and the command to
    run. Exit with code 1 if there is a fault. Superfluous keys are not faults: simsql index vacuum removes them.
    """
    with open_database(database, server_dir) as engine, engine.connect() as connection:
        findings = verify(connection, table, column)
    _print_findings(choose_format(form), findings)
    if findings:
        raise typer.Exit(1)
    note("no faults", quiet=quiet)


@command("repair", group)
def repair_command(
    table: TableName,
    form: Formatted = None,
    database: Database = None,
    server_dir: ServerDir = None,
    quiet: Quiet = False,
) -> None:
    """Repair the faults that simsql index verify finds.

    Print the repaired faults as verify does. Writers to the table wait until it is done.
    """
    with open_database(database, server_dir) as engine:
        findings = SearchIndex(engine, table).repair()
    _print_findings(choose_format(form), findings)
    if not findings:
        note("no faults", quiet=quiet)


@command("vacuum", group)
def vacuum_command(
    table: TableName,
    column: IndexedColumn = None,
    database: Database = None,
    server_dir: ServerDir = None,
    quiet: Quiet = False,
) -> None:
    """Remove superfluous keys from an index.

    A key is superfluous if no row has it any more, or if it repeats another. Others can read and write meanwhile.
    Print the number of removed keys.
    """
    stages = ProgressBars(messages(quiet=quiet))
    with open_database(database, server_dir) as engine, stages.stage("keys", _PARTS) as report:
        removed = SearchIndex(engine, table, column).vacuum(report=_parts(report))
    print(f"{removed:,} keys removed")


@command("change-storage", group)
def change_storage_command(
    table: TableName,
    storage: NewStorage,
    column: IndexedColumn = None,
    database: Database = None,
    server_dir: ServerDir = None,
    quiet: Quiet = False,
) -> None:
    """Change the storage of an index.

    Searches go on meanwhile. With expression, so do writers, and if it is interrupted, run it again. With tables,
    writers wait until it is done.
    """
    stages = ProgressBars(messages(quiet=quiet))
    with open_database(database, server_dir) as engine, stages.stage("index", _PARTS) as report:
        change_storage(engine, table, storage.value, column, report=_parts(report))
    print(f"simhash index on {printable(table)}: {storage}")


@command("drop", group)
def drop_command(
    table: TableName, column: IndexedColumn = None, database: Database = None, server_dir: ServerDir = None
) -> None:
    """Drop an index.

    The column and its B-tree stay.
    """
    with open_database(database, server_dir) as engine, engine.begin() as connection:
        drop_index(connection, table, column)


def print_indexes(form: Format, indexes: Iterable[IndexStatus]) -> None:
    """Print one row per index on stdout."""
    print_rows(
        form,
        _INDEXES,
        (
            (
                *(index.table_name, index.column_name, list(index.scope), index.distance),
                *(index.blocks, index.lead, index.inner_blocks, index.recipe),
                *(index.storage, index.state, format_share(index.all_visible, form), index.hint),
            )
            for index in indexes
        ),
    )


_PARTS = 1000  # of a progress bar


def _parts(report: Callable[[int], None]) -> Report:
    return lambda share: report(round(_PARTS * share))


def _print_ready(table: str, column: str) -> None:
    print(f"simhash index on {printable(table)}({printable(column)}): ready")


def _print_findings(form: Format, findings: Iterable[Finding]) -> None:
    print_rows(
        form,
        _FINDINGS,
        (
            (
                *(finding.table, finding.column, finding.problem, finding.object, finding.keys),
                as_commands(finding.hint) if finding.hint else None,
            )
            for finding in findings
        ),
    )


def _describe(
    column: str,
    distance: int,
    design: Design | None,
    recipe: str | None,
    scope: list[str] | None,
    storage: Storage | None,
) -> IndexSpec:
    try:
        return IndexSpec.of(
            column,
            distance=distance,
            design=design,
            recipe=parse_recipe(recipe) or DEFAULT_RECIPE,
            scope=scope or (),
            storage=storage.value if storage else None,
        )
    except ValueError as error:
        raise UsageError(str(error)) from error


def _design(blocks: int | None, lead: int, inner_blocks: int) -> Design | None:
    if blocks is None:
        if (lead, inner_blocks) != (1, 0):
            raise UsageError("--lead and --inner-blocks need --blocks: add it, or leave them out")
        return None
    try:
        return Design(blocks, lead, inner_blocks)
    except ValueError as error:
        raise UsageError(str(error)) from error
