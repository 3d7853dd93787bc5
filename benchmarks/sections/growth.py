"""How the cost of a search grows with the table, measured and as the cost model predicts it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.bars import MODEL
from benchmarks.data import make_fingerprints
from benchmarks.figures import SIMSQL
from benchmarks.harness import DEFAULT_RECIPE, Bench, Target
from benchmarks.peers import import_peer
from benchmarks.searches import measure_near

SECTION = "growth"
_SIZES = (100_000, 1_000_000)
_DISTANCES = (3, 7, 10)
_KIND = "random"


@dataclass(frozen=True)
class Point:
    """Milliseconds of a search: measured, and predicted."""

    distance: int
    rows: int
    measured: float
    predicted: float

    def factor(self) -> float:
        """Return by how much the prediction is off, in either direction."""
        return max(self.measured / self.predicted, self.predicted / self.measured)


def run(bench: Bench) -> None:
    """Measure tables of 100,000 and a million rows, the run's own, and a larger one if the run is asked for it."""
    points: list[Point] = []
    for rows in _SIZES:
        if rows < bench.main.rows:
            with bench.table("grown", bench.main.oracle.values[:rows]) as target:
                points += _measure(bench, target)
    points += _measure(bench, bench.main)
    if bench.options.grow_to > bench.main.rows:
        values = make_fingerprints(bench.options.grow_to, bench.options.seed)
        with bench.table("grown", values) as target:
            points += _measure(bench, target)
    for distance in _DISTANCES:
        factor = max(point.factor() for point in points if point.distance == distance)
        bench.add(SECTION, f"distance {distance}: off by at most", MODEL, factor, "x")
    _plot(bench, points, bench.options.results.with_suffix(".png"))


def _measure(bench: Bench, target: Target) -> Iterator[Point]:
    bench.use(target)
    for distance in _DISTANCES:
        prefix = f"{target.rows:,} rows, "
        what = f"{prefix}distance {distance}, {_KIND}"
        measure_near(bench, SECTION, target, distance, kinds=[_KIND], prefix=prefix)
        measured = bench.report.find(SECTION, what, SIMSQL)
        assert measured is not None
        predicted = DEFAULT_RECIPE.search_us(distance, target.rows) / 1000
        bench.add(SECTION, what, MODEL, predicted, "ms", rows=target.rows)
        yield Point(distance, target.rows, measured.value, predicted)


def _plot(bench: Bench, points: Sequence[Point], path: Path) -> None:
    """Draw what was measured as lines, what was predicted as broken lines; both axes logarithmic."""
    matplotlib = import_peer(bench, "matplotlib", "matplotlib")
    if matplotlib is None:
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot  # noqa: PLC0415 - it may be missing, and wants its backend chosen before

    figure, axes = pyplot.subplots(figsize=(7, 4.5))
    for number, distance in enumerate(_DISTANCES):
        curve = sorted((point for point in points if point.distance == distance), key=lambda point: point.rows)
        rows = [point.rows for point in curve]
        measured = [point.measured for point in curve]
        predicted = [point.predicted for point in curve]
        axes.plot(rows, measured, "o-", color=f"C{number}", label=f"distance {distance}, measured")
        axes.plot(rows, predicted, "x--", color=f"C{number}", label=f"distance {distance}, {MODEL}")
    axes.set(xscale="log", yscale="log", xlabel="rows", ylabel="ms a search", title="simsql.near, four tables")
    axes.grid(visible=True, which="both", alpha=0.3)
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120, bbox_inches="tight")
    pyplot.close(figure)
    bench.report.say(f"plotted in {path}")
