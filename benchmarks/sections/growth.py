"""How the cost of a search grows with the table, measured and as the cost model predicts it."""

from pathlib import Path

from benchmarks.data import make_fingerprints
from benchmarks.figures import SIMSQL
from benchmarks.harness import DEFAULT, Bench, Target
from benchmarks.peers import import_peer
from benchmarks.searches import measure_near

SECTION = "growth"
MODEL = "cost model"
_SIZES = (100_000, 1_000_000)
_DISTANCES = (3, 7, 10)
_KIND = "random"

# Distance and rows: measured milliseconds, predicted ones.
Curve = dict[tuple[int, int], tuple[float, float]]


def run(bench: Bench) -> None:
    """Measure tables of 100,000 and a million rows, the run's own, and a larger one if the run is asked for it."""
    curve: Curve = {}
    for rows in _SIZES:
        if rows < bench.main.rows:
            with bench.table("grown", bench.main.oracle.values[:rows]) as target:
                _measure(bench, target, curve)
    _measure(bench, bench.main, curve)
    if bench.options.grow_to > bench.main.rows:
        values = make_fingerprints(bench.options.grow_to, bench.options.seed)
        with bench.table("grown", values) as target:
            _measure(bench, target, curve)
    for distance in _DISTANCES:
        factors = [max(a / b, b / a) for (bits, _), (a, b) in curve.items() if bits == distance]
        bench.add(SECTION, f"distance {distance}: cost model off by at most", MODEL, max(factors), "x")
    _plot(bench, curve, bench.options.results.with_suffix(".png"))


def _measure(bench: Bench, target: Target, curve: Curve) -> None:
    bench.use(target)
    for distance in _DISTANCES:
        prefix = f"{target.rows:,} rows, "
        what = f"{prefix}distance {distance}, {_KIND}"
        measure_near(bench, SECTION, target, distance, kinds=[_KIND], prefix=prefix)
        predicted = DEFAULT.search_us(distance, target.rows) / 1000
        bench.add(SECTION, what, MODEL, predicted, "ms", rows=target.rows)
        measured = bench.report.find(SECTION, what, SIMSQL)
        assert measured is not None
        curve[distance, target.rows] = measured.value, predicted


def _plot(bench: Bench, curve: Curve, path: Path) -> None:
    """Draw what was measured as lines, what was predicted as broken lines; both axes logarithmic."""
    matplotlib = import_peer(bench, "matplotlib", "matplotlib")
    if matplotlib is None:
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot  # noqa: PLC0415 - it may be missing, and wants its backend chosen before

    figure, axes = pyplot.subplots(figsize=(7, 4.5))
    for colour, distance in enumerate(_DISTANCES):
        points = sorted((rows, *values) for (bits, rows), values in curve.items() if bits == distance)
        rows, measured, predicted = zip(*points, strict=True)
        axes.plot(rows, measured, "o-", color=f"C{colour}", label=f"distance {distance}, measured")
        axes.plot(rows, predicted, "x--", color=f"C{colour}", label=f"distance {distance}, cost model")
    axes.set(xscale="log", yscale="log", xlabel="rows", ylabel="ms a search", title="simsql.near, four tables")
    axes.grid(visible=True, which="both", alpha=0.3)
    axes.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120, bbox_inches="tight")
    pyplot.close(figure)
    bench.report.say(f"plotted in {path}")
