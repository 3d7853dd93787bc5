"""The figures of benchmarks.cost, and the tables that it prints."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from benchmarks.figures import markdown_line
from simsql.database.index_spec import Storage
from simsql.hamming import Design

DISTANCES = (3, 7)
# Rows that are inserted in one statement.
STATEMENT = 1_000


@dataclass(frozen=True)
class Case:
    """A table: without an index, with a B-tree on the column, or with an index besides."""

    on_column: bool = True
    storage: Storage | None = None
    design: Design = field(default_factory=Design)
    changes: bool = False

    @property
    def cells(self) -> list[str]:
        """What tells this case from the others."""
        if self.storage:
            return [f"`{self.storage}`", str(self.design.tables)]
        return ["B-tree on the column" if self.on_column else "no index", ""]


@dataclass(frozen=True)
class Spent:
    """What a piece of work has taken of the server."""

    seconds: float
    processor: float  # seconds of the session's process
    log: int  # bytes of the write-ahead log
    memory: int  # the most bytes of its own that the process had


@dataclass(frozen=True)
class Searched:
    """Searches at one distance: medians, and the mean of the processor time."""

    milliseconds: float
    processor: float  # milliseconds
    blocks: float


@dataclass
class Costs:
    """The figures of a case: of the whole table; of inserts and updates, of each row."""

    case: Case
    table_bytes: int = 0  # with the primary key
    column_bytes: int = 0
    index_bytes: int = 0
    built: Spent | None = None
    built_online: Spent | None = None
    online_bytes: int = 0
    searched: dict[int, Searched] = field(default_factory=dict)
    session: int = 0
    alone: Spent | None = None
    together: Spent | None = None
    after_checkpoint: Spent | None = None
    updated_alone: dict[bool, Spent] = field(default_factory=dict)
    """Another column; whether right after a checkpoint."""
    changed: list[Spent] = field(default_factory=list)
    upkeep: list[Spent] = field(default_factory=list)
    before_upkeep: dict[int, Searched] = field(default_factory=dict)
    changed_rows: int = 1
    changed_bytes: int = 0
    other_column: Spent | None = None


def tables(found: Sequence[Costs], rows: int) -> Iterator[str]:
    """Yield the lines of the tables, for cases in the order of CASES."""
    indexed = [costs for costs in found if costs.case.storage]
    bare, plain = found[0], found[1]
    yield f"\nThe table: {bare.table_bytes / rows:.0f} bytes a row with its primary key;"
    yield f"the B-tree on the column: {plain.column_bytes / rows:.0f}.\n"
    yield from _table(
        ["disk, MB", "bytes a row", "build, processor s", "its memory, MB", "its log, MB"],
        indexed,
        lambda costs: [
            f"{costs.index_bytes / 1e6:.0f}",
            f"{costs.index_bytes / rows:.0f}",
            f"{_of(costs.built).processor:.1f}",
            f"{_of(costs.built).memory / 1e6:.0f}",
            f"{_of(costs.built).log / 1e6:.0f}",
        ],
    )
    base = _of(plain.alone).processor, _of(plain.together).processor
    yield from _table(
        ["alone, us", "x", f"{STATEMENT:,} a statement, us", "x", "log, bytes", "log after a checkpoint, bytes"],
        found,
        lambda costs: [
            f"{1e6 * _of(costs.alone).processor:.0f}",
            f"{_of(costs.alone).processor / base[0]:.1f}",
            f"{1e6 * _of(costs.together).processor:.1f}",
            f"{_of(costs.together).processor / base[1]:.1f}",
            f"{_of(costs.together).log:,}",
            f"{_of(costs.after_checkpoint).log:,}",
        ],
    )
    yield from _table(
        ["another column updated alone, us", "x", "log, bytes", "log after a checkpoint, bytes"],
        found,
        lambda costs: [
            f"{1e6 * costs.updated_alone[False].processor:.0f}",
            f"{costs.updated_alone[False].processor / plain.updated_alone[False].processor:.1f}",
            f"{costs.updated_alone[False].log:,}",
            f"{costs.updated_alone[True].log:,}",
        ],
    )
    yield from _table(
        [*_search_titles(), "memory, MB"],
        indexed,
        lambda costs: [*_searched(costs.searched), f"{costs.session / 1e6:.1f}"],
    )
    changed = [costs for costs in found if costs.case.changes]
    yield from _table(
        [
            "update, us",
            "log, bytes",
            "log after a checkpoint, bytes",
            "clean-up, processor s",
            "its log, MB",
            "other column, us",
            "log, bytes",
        ],
        changed,
        lambda costs: [
            f"{1e6 * costs.changed[0].processor:.1f}",
            f"{costs.changed[0].log:,}",
            f"{costs.changed[1].log:,}",
            f"{costs.upkeep[0].processor:.1f}",
            f"{costs.upkeep[0].log / 1e6:.0f}",
            f"{1e6 * _of(costs.other_column).processor:.1f}",
            f"{_of(costs.other_column).log:,}",
        ],
    )
    yield from _table(
        ["bytes a row", "after all rows have changed", *_search_titles()],
        [costs for costs in changed if costs.case.storage],
        lambda costs: [
            f"{costs.index_bytes / rows:.0f}",
            f"{costs.changed_bytes / costs.changed_rows:.0f}",
            *_searched(costs.before_upkeep),
        ],
    )
    for costs in indexed:
        if costs.built_online:
            online, built = costs.built_online, _of(costs.built)
            ratios = (
                online.processor / built.processor,
                online.log / built.log,
                costs.online_bytes / costs.index_bytes,
            )
            yield (
                f"Online, {' '.join(costs.case.cells)}: {ratios[0]:.1f} times the processor time,"
                f" {ratios[1]:.1f} times the log, {ratios[2]:.2f} times the disk."
            )


def _of(spent: Spent | None) -> Spent:
    assert spent is not None
    return spent


def _search_titles() -> list[str]:
    return [f"{distance}: {what}" for distance in DISTANCES for what in ("ms", "processor ms", "blocks")]


def _searched(searched: dict[int, Searched]) -> list[str]:
    return [
        cell
        for distance in DISTANCES
        if distance in searched
        for cell in (
            f"{searched[distance].milliseconds:.2f}",
            f"{searched[distance].processor:.2f}",
            f"{searched[distance].blocks:,.0f}",
        )
    ]


def _table(titles: Sequence[str], found: Sequence[Costs], cells: Callable[[Costs], list[str]]) -> Iterator[str]:
    yield markdown_line(["storage", "tables or B-trees", *titles])
    yield markdown_line(["---", *["---:"] * (len(titles) + 1)])
    for costs in found:
        yield markdown_line([*costs.case.cells, *cells(costs)])
    yield ""
