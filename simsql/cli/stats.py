"""`simsql stats`: how uneven the fingerprints of a table are, and what that means for searches."""

from collections.abc import Iterator

from simsql.cli._app import command
from simsql.cli._database import open_database
from simsql.cli._options import (
    Database,
    Formatted,
    IndexedColumn,
    IndexedTable,
    Quiet,
    ScopeValues,
    ServerDir,
    parse_scope,
)
from simsql.cli._terminal import Column, Format, ProgressBars, choose_format, messages, print_rows
from simsql.database.statistics import HotPrefix, Statistics, read_statistics

_FIELDS = (Column("statistic"), Column("table", "number"), Column("of", "number"), Column("value", "number"))
_BITS = (Column("bits"), *(Column(f"+{place}", "number") for place in range(8)))
_PREFIXES = (
    *(Column("table", "number"), Column("bits", "number"), Column("prefix")),
    *(Column("keys", "count"), Column("times_the_mean", "number")),
)
_CANDIDATES = tuple(Column(name, "number") for name in ("distance", "uniform", "sampled", "measured"))


@command("stats")
def stats_command(
    table: IndexedTable,
    column: IndexedColumn = None,
    scope: ScopeValues = None,
    form: Formatted = None,
    database: Database = None,
    server_dir: ServerDir = None,
    quiet: Quiet = False,
) -> None:
    """Show the skew of the fingerprints in a table.

    Print the number of fingerprints, the mean of each bit, the most frequent prefixes of each key table, and the
    candidates of a search at distances 3, 7 and 10: as expected for random fingerprints, as the index expects from
    its last sample, and as measured in searches for some of the fingerprints.
    """
    within = parse_scope(scope)
    stages = ProgressBars(messages(quiet=quiet))
    with open_database(database, server_dir) as engine, engine.connect() as connection, stages.stage("read"):
        found = read_statistics(connection, table, column, scope=within)
    shown = choose_format(form)
    if shown is Format.TABLE:
        _print_tables(found)
    else:
        print_rows(shown, _FIELDS, _list(found))


def _list(found: Statistics) -> Iterator[tuple[str, int | None, int | str | None, float | None]]:
    """Yield one row per number."""
    yield "rows", None, None, found.rows
    yield "distinct", None, None, found.distinct
    if found.distinct:
        for bit, mean in zip(reversed(range(64)), found.bit_means, strict=True):
            yield "bit mean", None, bit, mean
    for hot in found.prefixes:
        yield "prefix keys", hot.permutation, _hex(hot), hot.keys
        yield "prefix times the mean", hot.permutation, _hex(hot), hot.times
    for expected in found.candidates:
        yield "candidates uniform", None, expected.distance, expected.uniform
        yield "candidates sampled", None, expected.distance, expected.sampled
        yield "candidates measured", None, expected.distance, expected.measured


def _print_tables(found: Statistics) -> None:
    print(f"{found.rows:,} fingerprints, {found.distinct:,} distinct")
    if not found.distinct:
        return
    print("\nshare of fingerprints with each bit set, most significant first")
    rows = ((f"{63 - start}-{56 - start}", found.bit_means[start : start + 8]) for start in range(0, 64, 8))
    print_rows(Format.TABLE, _BITS, ((bits, *(f"{mean:.2f}" for mean in means)) for bits, means in rows))
    print("\nmost frequent prefixes of each key table")
    print_rows(
        Format.TABLE,
        _PREFIXES,
        ((hot.permutation, hot.bits, _hex(hot), hot.keys, f"{hot.times:,.1f}") for hot in found.prefixes),
    )
    print("\nkeys that a search reads")
    print_rows(
        Format.TABLE,
        _CANDIDATES,
        (
            (str(each.distance), *map(_round, (each.uniform, each.sampled, each.measured)))
            for each in found.candidates
        ),
    )


def _hex(hot: HotPrefix) -> str:
    return f"{hot.prefix:0{-(-hot.bits // 4)}x}"


def _round(keys: float | None) -> str | None:
    return None if keys is None else f"{keys:,.{0 if keys >= 100 else 1 if keys >= 10 else 2}f}"
