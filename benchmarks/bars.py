"""The bars: what a figure has to reach. They hold for 2 cores and 10 million rows, unless they say otherwise."""

from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.figures import SIMSQL, Figure, Report, format_value

MEANT_FOR = 10_000_000
_TEXTS = 5_000
_DOCUMENTS = 100_000
PSYCOPG = f"{SIMSQL}, through psycopg"
SCAN = "scan in SQL, one process"
FAISS = "faiss MultiHash"
FAISS_BATCH = "faiss MultiHash, all in one call"
SIMHASH_CPP = "simhash-cpp"
FIND_ALL_PROGRAM = f"{SIMSQL} find-pairs"
TRIGRAMS = (f"{SIMSQL}, word trigrams, tf", f"{SIMSQL}, word trigrams, set")
ONE_PROCESS = f"{SIMSQL}, one process"
GAOYA = "gaoya"
GAOYA_MINHASH = "gaoya MinHash"
DATASKETCH = "datasketch MinHash LSH"
SIMHASH = "simhash (PyPI)"
MODEL = "cost model"


@dataclass(frozen=True)
class Verdict:
    """A bar, what was measured, and whether that reaches it."""

    what: str
    bar: str
    measured: str
    met: bool
    as_meant: bool  # measured with as many rows as the bar is meant for, or with more

    @property
    def word(self) -> str:
        """Return yes or no, in brackets where the bar is meant for more rows."""
        answer = "yes" if self.met else "no"
        return answer if self.as_meant else f"({answer})"


@dataclass(frozen=True)
class Bar:
    """A bar for one figure.

    At most `limit`, in the figure's unit; or, if `than` names other systems, `limit` times as fast as the
    fastest of them, or faster.
    """

    section: str
    what: str
    system: str
    limit: float
    than: tuple[str, ...] = ()
    rows: int = MEANT_FOR

    def judge(self, report: Report, figure: Figure) -> Verdict | None:
        """Return the verdict on a figure; None if the bar is not for it or lacks a figure to compare with."""
        if (self.section, self.what, self.system) != (figure.section, figure.what, figure.system):
            return None
        title, as_meant = f"{self.what}, {self.system}", figure.rows >= self.rows
        if not self.than:
            bar = f"at most {format_value(self.limit, figure.unit)}"
            measured = format_value(figure.value, figure.unit)
            return Verdict(title, bar, measured, figure.value <= self.limit, as_meant)
        others = [report.find(self.section, self.what, system) for system in self.than]
        values = [other.value for other in others if other]
        if not values:
            return None
        # Of a rate more is better, of all else less.
        times = figure.value / max(values) if figure.unit.endswith("/s") else min(values) / figure.value
        name = self.than[0]
        bar = f"not slower than {name}" if self.limit == 1 else f"at least {self.limit:g} x as fast as {name}"
        return Verdict(title, bar, f"{times:.3g} x", times >= self.limit, as_meant)


def _near() -> Iterator[Bar]:
    for kind, limit in (("stored", 0.12), ("random", 0.10)):
        yield Bar("near", f"distance 3, {kind}", SIMSQL, limit)
    for kind in ("stored", "neighbours", "random"):
        yield Bar("near", f"distance 3, {kind}", SIMSQL, 1, than=(FAISS, FAISS_BATCH))
        yield Bar("near", f"distance 3, {kind}", PSYCOPG, 0.20)
        yield Bar("near", f"distance 7, {kind}", SIMSQL, 1.2)
        yield Bar("near", f"distance 7, {kind}", SIMSQL, 300, than=(SCAN,))
        yield Bar("near", f"distance 10, {kind}", SIMSQL, 9)
        yield Bar("near", f"distance 10, {kind}", SIMSQL, 40, than=(SCAN,))
        yield Bar("radius", f"distance 3, {kind}", f"{SIMSQL}, 2 tables", 0.2)


BARS = [
    *_near(),
    *(Bar("growth", f"distance {distance}: off by at most", MODEL, 2) for distance in (3, 7, 10)),
    Bar("batch", "100,000 queries, distance 3", f"{SIMSQL}, near_many in SQL", 8),
    Bar("batch", "1,000,000 queries, distance 3", f"{SIMSQL}, through Python", 15),
    Bar("batch", "1,000,000 queries, distance 3", f"{SIMSQL}, near_many in SQL", 60),
    Bar("build", "create_index", SIMSQL, 45),
    Bar("build", "a key in a table, after the build", SIMSQL, 60),
    Bar("build", "a key in a table, after 20% random inserts", SIMSQL, 75),
    Bar("memory", "find_pairs of all rows, distance 3", SIMSQL, 8),
    Bar("memory", "find_pairs of all rows, distance 3: peak memory", SIMSQL, 1e9),
    Bar("memory", "find_pairs of 1,000,000, distance 3", SIMSQL, 5, than=(SIMHASH_CPP,), rows=1_000_000),
    Bar("memory", "find_pairs of 1,000,000, distance 3", FIND_ALL_PROGRAM, 5, than=(SIMHASH_CPP,), rows=1_000_000),
    Bar("memory", "find_pairs of 1,000,000, distance 7", SIMSQL, 3, rows=1_000_000),
    Bar("memory", "find_pairs of 1,000,000, distance 10", SIMSQL, 10, rows=1_000_000),
    Bar("memory", "find_pairs of 1,000,000, distance 10: peak memory", SIMSQL, 5e8, rows=1_000_000),
    Bar("pairs", "pairs of all rows, distance 3", f"{SIMSQL}, through Python", 25),
    *(Bar("fingerprint", "English, one core", system, 1.2, than=(GAOYA,), rows=_TEXTS) for system in TRIGRAMS),
    Bar("fingerprint", "English, one core", SIMSQL, 0.8, than=(GAOYA,), rows=_TEXTS),
    Bar("fingerprint", "English, one core", SIMSQL, 10, than=(SIMHASH,), rows=_TEXTS),
    Bar("fingerprint", "English, two cores", f"{SIMSQL}, 2 workers", 1.8, than=(ONE_PROCESS,), rows=20 * _TEXTS),
    Bar("fingerprint", "a corpus that is made on the way, 2 workers: peak memory", SIMSQL, 1e9, rows=1_000_000),
    Bar("dedup", "near-duplicates in a file, distance 7", SIMSQL, 1.0, than=(GAOYA_MINHASH,), rows=_DOCUMENTS),
    Bar("dedup", "near-duplicates in a file, distance 12", SIMSQL, 1.0, than=(GAOYA_MINHASH,), rows=_DOCUMENTS),
    Bar("writes", "a row inserted: more than without an index", SIMSQL, 0.1),
    Bar("writes", "another column updated: times as long as without", SIMSQL, 2),
    Bar("writes", "another column updated: keys added", SIMSQL, 0),
    Bar("clients", "near: times as long as in a loop, and SELECT 1", SIMSQL, 1.3, rows=1_000_000),
    Bar("clients", "claim: times as long as near", SIMSQL, 1.5, rows=1_000_000),
    Bar("clients", "claim and insert: times as long as the slower of near and insert", SIMSQL, 2, rows=1_000_000),
]


def verdicts(report: Report, figure: Figure) -> list[Verdict]:
    """Return the verdicts of all bars for a figure."""
    found = (bar.judge(report, figure) for bar in BARS)
    return [verdict for verdict in found if verdict]
