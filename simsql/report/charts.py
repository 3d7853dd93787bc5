"""Histograms of a report as bars for an SVG picture."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from simsql.report.collected import Collected
from simsql.report.content import RunReport

WIDTH, HEIGHT = 360, 160
_MARGIN, _TOP, _BOTTOM = 10, 30, 20
_WIDEST = 48  # place of a bar: a few do not fill the picture
_GAP = 0.16  # share of a bar's place that stays free
_DIGIT = 6.2  # width of a digit
_SIZES = (2, 3, 4, 5, 6, 11, 21, 51, 101, 1001)  # where the bars of cluster sizes begin
_STEP = 5  # hundredths of similarity in one bar


class Bin(NamedTuple):
    """A range of values, both ends included, with a text below its bar, and how many there are of each kind."""

    low: float
    high: float
    label: str
    tick: str
    counts: dict[str, int]

    @property
    def total(self) -> int:
        """Number of values."""
        return sum(self.counts.values())


class Bar(NamedTuple):
    """The bar of a bin, with a text above it, in units of the picture."""

    bin: Bin
    x: float
    width: float
    y: float
    parts: Sequence[tuple[str, float, float]]
    """The kind, top and height of each colour."""
    number: str

    @property
    def middle(self) -> float:
        """Where its texts are centred."""
        return round(self.x + self.width / 2, 1)


class Histogram(NamedTuple):
    """A picture of bars, which set the filter of this name; texts and lines are at places of the x axis."""

    name: str
    title: str
    summary: str
    bars: Sequence[Bar]
    ticks: Sequence[tuple[float, str]]
    marks: Sequence[tuple[float, str]]


def draw_histograms(report: RunReport, collected: Collected) -> list[Histogram]:
    """Return the histograms of similarity, distance and cluster size, without those that would be empty."""
    thresholds = [
        (value, f"{name} {value:g}")
        for value, name in ((report.similarity, "cluster"), (report.drop_similarity, "drop"))
        if value
    ]
    drawn = (
        _draw("similarity", "Similarity of members", list(_similarity_bins(collected.similarities)), thresholds),
        _draw("distance", "Distance of members in bits", list(_distance_bins(collected.distances))),
        _draw("size", f"{report.noun.title()}s in a cluster", list(_size_bins(collected.sizes, report.noun))),
    )
    return [histogram for histogram in drawn if histogram]


def _similarity_bins(counts: Mapping[str, Counter[int]]) -> Iterator[Bin]:
    found = [value for counter in counts.values() for value in counter]
    first = min(50, *found) // _STEP * _STEP if found else 100
    for low in range(first, 100, _STEP):
        high = low + _STEP - 1 if low + _STEP < 100 else 100  # the last one holds 1.0 as well
        inside = {kind: sum(counter[value] for value in range(low, high + 1)) for kind, counter in counts.items()}
        tick = "" if low % 10 else f"{low / 100:.1f}"
        # The page knows four digits of a similarity.
        most = 1.0 if high == 100 else high / 100 + 0.0099
        yield Bin(low / 100, round(most, 4), f"{low / 100:.2f} to {high / 100:.2f}", tick, inside)


def _distance_bins(counts: Mapping[str, Counter[int]]) -> Iterator[Bin]:
    highest = max((value for counter in counts.values() for value in counter), default=-1)
    every = 1 if highest <= 20 else 4
    for value in range(highest + 1):
        found = {kind: counter[value] for kind, counter in counts.items()}
        label = "1 bit" if value == 1 else f"{value} bits"
        yield Bin(value, value, label, "" if value % every else str(value), found)


def _size_bins(sizes: Counter[int], noun: str) -> Iterator[Bin]:
    highest = max(sizes, default=0)
    for low, after in zip(_SIZES, (*_SIZES[1:], None), strict=True):
        if low > highest:
            return
        high = (after or highest + 1) - 1
        values = f"{low:,}" if high == low else f"{low:,} to {high:,}"
        tick = f"{low:,}" if high == low else f"{low:,}+" if after is None else f"{low}\N{EN DASH}{high}"
        count = sum(number for size, number in sizes.items() if low <= size <= high)
        yield Bin(low, high, f"{values} {noun}s", tick, {"clusters": count})


def _draw(
    name: str, title: str, bins: Sequence[Bin], thresholds: Sequence[tuple[float, str]] = ()
) -> Histogram | None:
    highest = max((each.total for each in bins), default=0)
    if not highest:
        return None
    counts = [_short_number(each.total) for each in bins]
    place = min((WIDTH - 2 * _MARGIN) / len(bins), _WIDEST)
    scale = (HEIGHT - _TOP - _BOTTOM) / highest
    bars = []
    for number, each in enumerate(bins):
        parts, y = [], float(HEIGHT - _BOTTOM)
        for kind, count in each.counts.items():
            if count:
                height = max(1.5, count * scale)  # even one can be seen
                y -= height
                parts.append((kind, round(y, 1), round(height, 1)))
        x = _MARGIN + place * (number + _GAP / 2)
        # If there is no room for all numbers, the highest bar has one.
        labelled = each.total and (each.total == highest or max(map(len, counts)) * _DIGIT <= place)
        label = counts[number] if labelled else ""
        bars.append(Bar(each, round(x, 1), round(place * (1 - _GAP), 1), round(y, 1), parts, label))
    most = max(bins, key=lambda each: each.total)
    summary = f"{title}: most, {most.total:,}, at {most.label}."
    if name == "similarity":  # a scale: ticks are between bars
        first = bins[0].low

        def at(value: float) -> float:
            return round(_MARGIN + place * len(bins) * (value - first) / (1 - first), 1)

        ticks = [(at(each.low), each.tick) for each in bins if each.tick] + [(at(1), "1.0")]
        marks = [(at(value), text) for value, text in thresholds if value >= first]
        return Histogram(name, title, summary, bars, ticks, marks)
    return Histogram(name, title, summary, bars, [(bar.middle, bar.bin.tick) for bar in bars], ())


def _short_number(number: int) -> str:
    """Return a number in at most four characters, rounded down: 999, 1.2k, 12k, 1.2M."""
    for unit, size in (("M", 1_000_000), ("k", 1000)):
        if number >= size:
            return f"{number // size}{unit}" if number >= 10 * size else f"{number * 10 // size / 10:.1f}{unit}"
    return str(number)
