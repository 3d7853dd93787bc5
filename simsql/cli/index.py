"""`simsql index ...`: create, list, verify, repair, change and drop simhash indexes."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Annotated, Any

import typer

from simsql.cli._app import app, as_commands, command
from simsql.cli._database import Connecting, Listing, Working
from simsql.cli._options import (
    Filling,
    IndexedColumn,
    LockTimeout,
    NewRecipeName,
    RecipeName,
    Storage,
    TableName,
    argument,
    distance_option,
    number_option,
    option,
    parse_recipe,
    parse_sources,
)
from simsql.documents import printable
from simsql.documents.output_formats import Column, Format, print_rows
from simsql.errors import SimsqlError, UsageError
from simsql.processes import usable_cores

if TYPE_CHECKING:
    from simsql.database.install import Status
    from simsql.fingerprint import Recipe

group = typer.Typer(
    name="index",
    help="Create, list, verify, change and drop simhash indexes.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)
app.add_typer(group)

ColumnName = Annotated[str, argument("COLUMN", "Fingerprint column, a bigint.")]
Sources = Annotated[list[str] | None, option("--source")]
_INDEXES = (
    *(Column("table"), Column("column"), Column("scope"), Column("distance", "number")),
    *(Column("blocks", "number"), Column("lead", "number"), Column("inner_blocks", "number")),
    *(Column("recipe"), Column("storage"), Column("state"), Column("is_default")),
    *(Column("bytes", "count"), Column("unvacuumed", "number"), Column("last_vacuum"), Column("hint")),
)
_FINDINGS = (
    *(Column("table"), Column("column"), Column("problem"), Column("object")),
    *(Column("keys", "count"), Column("hint")),
)


@command("create", group)
def create_command(
    *,
    table: TableName,
    column: ColumnName,
    distance: Annotated[int, distance_option(" in searches that give no distance")] = 3,
    blocks: Annotated[
        int | None, number_option("--blocks", "; by default, chosen by the number of rows", least=1, most=64)
    ] = None,
    lead: Annotated[int, number_option("--lead", least=1, most=64)] = 1,
    inner_blocks: Annotated[int, number_option("--inner-blocks", least=0, most=64)] = 0,
    recipe: NewRecipeName = None,
    scope_column: Annotated[list[str] | None, option("--scope-column")] = None,
    storage: Annotated[Storage | None, option("--storage")] = None,
    source: Sources = None,
    concurrently: Annotated[bool, option("--concurrently")] = False,
    lock_timeout: LockTimeout = None,
    run: Working,
) -> None:
    """Create an index on a fingerprint column.

    Writers to the table wait until it is done. With --concurrently, they do not: you can search the index once it
    is complete, and if it is interrupted, run the same command again and it resumes.
    """
    from simsql.database import create_index
    from simsql.database.index import is_being_built
    from simsql.fingerprint import DEFAULT_RECIPE
    from simsql.hamming import Design

    if blocks is None and (lead, inner_blocks) != (1, 0):
        raise UsageError("--lead and --inner-blocks need --blocks: add it, or leave them out")
    design = None if blocks is None else Design(blocks, lead, inner_blocks)
    made_by = _parse_recipe(recipe)
    with (
        run.open(lock_timeout=lock_timeout) as engine,
        run.stages().shares("index", shown=concurrently) as report,
    ):
        if made_by is None and not (concurrently and is_being_built(engine, table, column)):
            made_by = DEFAULT_RECIPE
        create_index(
            engine,
            table,
            column,
            distance=distance,
            design=design,
            recipe=made_by,
            scope=scope_column or (),
            storage=storage.value if storage else None,
            sources=parse_sources(source),
            concurrently=concurrently,
            report=report,
        )
    print(f"simhash index on {printable(table)}({printable(column)}): ready")


def _parse_recipe(name: str | None) -> Recipe | str | None:
    """Return the recipe of an index, such as `words12-log-1 of simsql.visible_text` for columns of HTML."""
    from simsql.database.index_spec import split_recipe

    of_texts, function = split_recipe(name)
    recipe = parse_recipe(of_texts)
    return recipe if recipe is None or function is None else f"{recipe.id} of {function}"


@command("list", group)
def list_command(*, run: Listing) -> None:
    """List the indexes of a database with their designs and states."""
    from simsql.database import read_status

    with run.open() as engine:
        status = read_status(engine)
    if status.version is None:
        raise SimsqlError(f"schema simsql is not installed: run {run.install}")
    print_indexes(run.format, status)
    if not status.indexes:
        run.remark("there are no simhash indexes")


@command("verify", group)
def verify_command(
    *,
    table: Annotated[
        str | None, argument("TABLE", "Table name as in SQL; by default, all tables with an index.")
    ] = None,
    column: IndexedColumn = None,
    repair: Annotated[bool, option("--repair")] = False,
    texts: Annotated[bool, option("--texts")] = False,
    filling: Filling,
    sample: Annotated[int, number_option("--sample", least=0)] = 10_000,
    lock_timeout: LockTimeout = None,
    run: Listing,
) -> None:
    """Check indexes against their tables.

    Print one row per fault: the table, the column, the problem, the object, the number of keys, and the command to
    run. Exit with code 1 if there is a fault, unless --repair has repaired it. Superfluous keys are not faults:
    simsql maintain removes them. With --texts, also name up to 20 rows, by key, whose fingerprint or
    sketch is not that of its text, in the columns that the index knows or in --text-column; without --column,
    those of each index of the table.
    """
    from simsql.database import SearchIndex, read_status
    from simsql.database.backfill import NOT_UTF8
    from simsql.database.index import verify

    if repair and (table is None or column):
        raise UsageError("--repair repairs all indexes of one table: name the table, and leave out --column")
    if texts and (table is None or repair):
        raise UsageError("--texts compares the rows of one table: name it, without --repair")
    if not texts and (filling.text_column or filling.sketch_column or filling.recipe):
        raise UsageError("--text-column, --sketch-column and --recipe need --texts")
    with run.open(lock_timeout=lock_timeout) as engine:
        with engine.begin() as connection:
            findings = (
                SearchIndex(connection, table).repair() if repair and table else verify(connection, table, column)
            )
        found = table or read_status(engine).indexes
        compared = None
        if table is not None and texts:
            with run.stages().shares("texts") as report:
                compared = SearchIndex(engine, table, column, recipe=parse_recipe(filling.recipe)).verify_texts(
                    **filling.arguments(), sample=sample or None, workers=usable_cores(), report=report
                )
            options = [word for name in filling.text_column or () for word in ("--text-column", name)]
            options += ["--recipe", filling.recipe] if filling.recipe else []
            for finding in compared.findings:
                if finding.problem == NOT_UTF8:
                    findings.append(finding)
                    continue
                words = [*options, "--column", finding.column or ""]
                if filling.sketch_column and "sketch" in finding.problem:
                    words += ["--sketch-column", filling.sketch_column]
                words += ["--all-rows"] if finding.problem.startswith("stale") else []
                findings.append(finding._replace(hint=shlex.join(["simsql", "backfill", table, *words])))
    hints = (as_commands(finding.hint) if finding.hint else None for finding in findings)
    rows = ([*finding[:5], hint] for finding, hint in zip(findings, hints, strict=True))
    print_rows(run.format, _FINDINGS, rows)
    if compared:
        run.remark(f"{compared.differing:,} of {compared.rows:,} rows differ from their texts")
    if not findings:
        run.remark("no faults" if found else "there are no simhash indexes")
    elif repair:
        run.remark(f"repaired {len(findings):,} {'fault' if len(findings) == 1 else 'faults'}")
    else:
        raise typer.Exit(1)


@command("change-storage", group)
def change_storage_command(
    *,
    table: TableName,
    storage: Annotated[Storage, typer.Argument(help="Key tables, or B-trees on the table itself.")],
    column: IndexedColumn = None,
    lock_timeout: LockTimeout = None,
    run: Working,
) -> None:
    """Change the storage of an index.

    Searches go on meanwhile. With expression, so do writers. With tables, writers wait until the keys are
    complete. If it is interrupted, or gives up waiting for a lock, run it again, and it goes on.
    """
    from simsql.database import change_storage

    with run.open(lock_timeout=lock_timeout) as engine, run.stages().shares("index") as report:
        change_storage(engine, table, storage.value, column, report=report)
    print(f"simhash index on {printable(table)}: {storage}")


@command("alter", group)
def alter_command(
    *,
    table: TableName,
    column: IndexedColumn = None,
    recipe: RecipeName = None,
    source: Sources = None,
    lock_timeout: LockTimeout = None,
    connecting: Connecting,
) -> None:
    """Say what the fingerprints of an index are: their recipe, and the columns of their texts.

    Use it if nobody has said so when the index was created. No fingerprint changes.
    """
    from simsql.database import alter_index

    if not (recipe or source):
        raise UsageError("say what the fingerprints are: --recipe, --source or both")
    with connecting.open(lock_timeout=lock_timeout) as engine:
        alter_index(engine, table, column, recipe=_parse_recipe(recipe), sources=parse_sources(source))
    print(f"simhash index on {printable(table)}: altered")


@command("set-default", group)
def set_default_command(
    *,
    table: TableName,
    column: ColumnName,
    missing: Annotated[int, number_option("--missing", least=0)] = 0,
    connecting: Connecting,
) -> None:
    """Choose the index for searches that name no column.

    It matters to a table with several indexes, as while its fingerprints change to another recipe. If another
    index was the default until now, every row with a fingerprint for that one must have one for this one. Nobody
    waits for the change.
    """
    from simsql.database import set_default_index

    with connecting.open() as engine:
        set_default_index(engine, table, column, missing=missing)
    print(f"default index of {printable(table)}: {printable(column)}")


@command("drop", group)
def drop_command(
    *, table: TableName, column: IndexedColumn = None, lock_timeout: LockTimeout = None, connecting: Connecting
) -> None:
    """Drop an index.

    The column and its B-tree stay.
    """
    from simsql.database import drop_index

    with connecting.open(lock_timeout=lock_timeout) as engine:
        drop_index(engine, table, column)


def print_indexes(form: Format, status: Status) -> None:
    """Print one row per index on stdout: the columns of the view simsql.indexes."""
    from sqlalchemy import RowMapping

    def cell(index: RowMapping, name: str) -> Any:
        value = index.get(name, index.get(f"{name}_name"))
        match name:
            case "unvacuumed":
                return f"{value:.0%}" if value is not None and form is Format.TABLE else value
            case "last_vacuum":
                return value and value.isoformat(timespec="seconds")
            case "hint":
                return value and as_commands(value)
        return value

    print_rows(form, _INDEXES, ([cell(row._mapping, name) for name, _ in _INDEXES] for row in status.indexes))
