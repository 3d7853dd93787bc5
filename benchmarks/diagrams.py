"""Draw the pictures of how simsql works: python -m benchmarks.diagrams, which writes docs/images/.

What they show is computed: fingerprints, keys, probes, candidates and decisions are those of simsql, and measured
times those of docs/explanation/scale.md.
"""

import math
import re
from collections import Counter
from itertools import combinations, pairwise

import numpy as np

from benchmarks.chart import Line, Panel, draw_chart
from benchmarks.charts import IMAGES
from benchmarks.drawing import BLUE, GREEN, LINE, ORANGE, PINK, WIDTH, Drawing
from simsql.database.similar import queries_for_text
from simsql.decide.rules import Rules
from simsql.decide.stars import SimilarPairs, centrality, choose_stars
from simsql.evaluate.measures import Estimate
from simsql.fingerprint import (
    DEFAULT_RECIPE,
    Recipe,
    show_similarity,
    simhash,
    similarity,
    sketch,
    sketch_distance,
)
from simsql.fingerprint.documents import margins_of_parts
from simsql.hamming import Design, hamming_distance

_LEFT, _RIGHT = 16, WIDTH - 16
_TEXT = "A fingerprint of 64 bits for every text, and similar texts differ in few of them."
_OTHER = "Nothing here has anything to do with what was said above, except that it is English."
_SHOWN = ("a", "of", "fingerprint", "a fingerprint", "fingerprint of")
_SHOWN_BITS = 12
_BLOCK = 16
_BLOCK_COLOURS = (BLUE, ORANGE, GREEN, PINK)


def feature_weights(text: str) -> dict[str, int]:
    """Return the weight of each feature: words and pairs of neighbouring words."""
    words = re.findall(r"\w+", text.casefold())
    counts = Counter([*words, *(" ".join(pair) for pair in pairwise(words))])
    return {feature: 2 + int(math.log2(count)) for feature, count in counts.items()}


def feature_votes(feature: str, weight: int) -> np.ndarray:
    """Return the votes of a feature on each bit, the highest first."""
    # A text with one feature has the hash of this feature as its fingerprint.
    hashed = simhash(feature, Recipe(shingles=(len(feature.split()),)))
    assert hashed is not None
    return np.array([weight if hashed >> bit & 1 else -weight for bit in reversed(range(64))])


def draw_fingerprint() -> str:
    """Return the picture of a text that becomes a fingerprint."""
    drawing = Drawing("How a text becomes a fingerprint")
    weights = feature_weights(_TEXT)
    votes = {feature: feature_votes(feature, weight) for feature, weight in weights.items()}
    sums = sum(votes.values())
    fingerprint = _fingerprint(_TEXT)
    assert fingerprint == int("".join("1" if total > 0 else "0" for total in sums), 2)
    drawing.text(_LEFT, 30, "1  A text", "strong")
    drawing.rectangle(_LEFT, 42, _RIGHT - _LEFT, 54)
    for place, line in enumerate(_TEXT.replace("text, ", "text,\n").splitlines()):
        drawing.text(_LEFT + 12, 64 + LINE * place, line)
    drawing.text(_LEFT, 126, f"2  Its {len(weights)} features: words, and pairs of words", "strong")
    cells, cell = 206, (_RIGHT - 206) / _SHOWN_BITS
    drawing.text(_LEFT, 150, "feature", "small dim")
    drawing.text(cells - 16, 150, "weight", "small dim end")
    drawing.text(cells, 150, f"votes by the first {_SHOWN_BITS} of 64 bits of its hash", "small dim")
    y = 158
    for feature in _SHOWN:
        drawing.text(_LEFT, y + 17, feature, "small")
        drawing.text(cells - 16, y + 17, f"{weights[feature]}", "small end")
        for bit, vote in enumerate(votes[feature][:_SHOWN_BITS]):
            if vote > 0:
                drawing.rectangle(cells + bit * cell + 1, y + 1, cell - 2, 22, BLUE, 0.3)
            drawing.text(cells + (bit + 0.5) * cell, y + 17, f"{vote:+}".replace("-", "−"), "small middle")
        y += 24
    drawing.text(_LEFT, y + 17, f"and {len(weights) - len(_SHOWN)} more", "small dim")
    y += 44
    drawing.text(_LEFT, y, "3  The sum of all votes decides each bit", "strong")
    y += 10
    for bit, total in enumerate(sums[:_SHOWN_BITS]):
        x = cells + (bit + 0.5) * cell
        drawing.text(x, y + 17, f"{total:+}".replace("-", "−"), "small middle")
        if total > 0:
            drawing.rectangle(cells + bit * cell + 1, y + 25, cell - 2, 22, BLUE, 0.8)
        drawing.text(x, y + 41, f"{int(total > 0)}", "small middle strong")
    drawing.text(_LEFT, y + 17, "sum", "small")
    drawing.text(_LEFT, y + 41, "bit", "small")
    y += 78
    drawing.text(_LEFT, y, "4  The fingerprint, and those of two other texts", "strong")
    for text, said in (
        (_TEXT, "… 64 bits for every text, …"),
        (_TEXT.replace("every", "each"), "… 64 bits for each text, …"),
        (_OTHER, "Nothing here has anything to do with …"),
    ):
        other = _fingerprint(text)
        distance = hamming_distance(fingerprint, other)
        drawing.text(_LEFT, y + 28, said)
        note = f"{distance} bits differ" if distance else f"{fingerprint:016x}"
        drawing.text(_RIGHT, y + 28, note, "end strong" if distance else "end code")
        _draw_bits(drawing, y + 36, other, fingerprint)
        y += 66
    return drawing.file(y + 10)


def _fingerprint(text: str) -> int:
    found = simhash(text)
    assert found is not None
    return found


def _draw_bits(drawing: Drawing, y: float, value: int, reference: int) -> None:
    """Draw 64 bits, those that differ from a reference in another colour."""
    cell, gap = 8.0, 5.33
    for place in range(64):
        x = _LEFT + place * cell + place // _BLOCK * gap
        bit, differs = (number >> 63 - place & 1 for number in (value, value ^ reference))
        drawing.bar(x, y, cell - 1.5, 18, ORANGE if differs else BLUE, 1 if bit else 0.3)
        if differs:
            drawing.bar(x, y + 20, cell - 1.5, 4, ORANGE)


def draw_probes() -> str:
    """Return the picture of blocks, permutations and probes, with the default design."""
    drawing = Drawing("Blocks, key tables and probes")
    design = Design()
    query = _fingerprint(_TEXT)
    drawing.text(_LEFT, 30, "A search for this fingerprint, 64 bits in four blocks of 16", "strong")
    width = (_RIGHT - _LEFT - 24) / 4
    rows = (
        ("", query),
        ("Stored: “A fingerprint … in few of those.”", _fingerprint(_TEXT.replace("them", "those"))),
        ("Stored: “The fingerprint … in few of them.”", _fingerprint("The" + _TEXT[1:])),
    )
    y = 42.0
    for said, value in rows:
        if said:
            drawing.text(_LEFT, y + 12, said, "small")
            drawing.text(_RIGHT, y + 12, f"distance {hamming_distance(query, value)}", "small end strong")
            y += 20
        for number, colour in enumerate(_BLOCK_COLOURS):
            x = _LEFT + number * (width + 8)
            differing = _block(value ^ query, number).bit_count()
            drawing.rectangle(x, y, width, 28, colour, 0.25)
            drawing.text(x + 10, y + 19, f"{_block(value, number):04x}", "code")
            if said:
                note = f"{differing} differ{'s' * (differing == 1)}" if differing else "equal"
                drawing.text(x + width - 8, y + 19, note, "small end" + " strong" * (differing < 2))
        y += 44
    drawing.text(_LEFT, y + 14, "Four key tables: each moves another block to the front", "strong")
    drawing.text(_LEFT, y + 38, "key of the fingerprint", "small dim")
    bars, length = 236, _RIGHT - 236
    drawing.text(bars, y + 38, "all keys in order, and what the search reads", "small dim")
    y += 46
    for permutation, (number, colour) in zip(design.permutations, enumerate(_BLOCK_COLOURS), strict=True):
        key = permutation.key(query)
        order = [number, *(other for other in range(4) if other != number)]
        for place, block in enumerate(order):
            drawing.rectangle(_LEFT + place * 50, y, 48, 26, _BLOCK_COLOURS[block], 0.06 if place else 0.5)
            drawing.text(_LEFT + place * 50 + 24, y + 18, f"{_block(key, place):04x}", "small code middle")
        drawing.rectangle(bars, y, length, 26)
        prefix = _block(key, 0)
        flipped = [prefix ^ 1 << bit for bit in range(permutation.prefix_bits)]
        for value in flipped:
            drawing.bar(bars + value / 65536 * (length - 3), y + 1, 2, 24, colour)
        drawing.bar(bars + prefix / 65536 * (length - 3) - 1, y - 4, 5, 34, colour)
        y += 40
    drawing.text(bars, y + 4, "0000…", "small code dim")
    drawing.text(_RIGHT, y + 4, "ffff…", "small code dim end")
    y += 14
    drawing.text(
        _LEFT, y + 18, "Thick: keys with the same prefix. Thin: keys with one bit of the prefix flipped.", "small"
    )
    y += 34
    width = (_RIGHT - _LEFT - 24) / 3
    for place, distance in enumerate((3, 7, 10)):
        least = ("some block is equal", "some block: ≤ 1 bit", "some block: ≤ 2 bits")[design.radius(distance)]
        keys = round(design.candidates(distance, 1_000_000))
        lines = (f"distance {distance}", least, f"{design.probes(distance)} ranges", f"{keys:,} keys of a million")
        drawing.box(_LEFT + place * (width + 12), y, width, lines)
    y += 122
    drawing.text(
        _LEFT, y, "Each key in these ranges is a candidate. PostgreSQL counts the bits that differ:", "small"
    )
    drawing.text(_LEFT, y + LINE, "bit_count((key # key_of_the_query)::bit(64))", "small code")
    return drawing.file(y + LINE + 18)


_SIMILAR = _TEXT.replace("differ in few", "differ by few")
_LIKELIEST = 14


def draw_margins() -> str:
    """Return the picture of margins, and of the prefixes that a search for similar texts reads."""
    drawing = Drawing("Margins and query-directed probes")
    fingerprint, margins = margins_of_parts([(_TEXT, 1)], DEFAULT_RECIPE)
    (query,) = queries_for_text(_TEXT, None, DEFAULT_RECIPE, [Design()], "")
    assert fingerprint is not None
    differing = fingerprint ^ _fingerprint(_SIMILAR)
    drawing.text(_LEFT, 30, "1  “… differ in few of them.”: the votes for each bit, added up", "strong")
    cell, gap, base = 8.0, 5.33, 96
    for place in range(64):
        bit, height = 63 - place, 22 * margins[63 - place]
        x = _LEFT + place * cell + place // _BLOCK * gap
        colour = ORANGE if differing >> bit & 1 else BLUE
        drawing.bar(x, base - height if fingerprint >> bit & 1 else base, cell - 1.5, max(height, 1), colour)
    drawing.text(_LEFT, 166, "Up: the bit is 1. Down: it is 0.", "small dim")
    found = show_similarity(similarity(_TEXT, _SIMILAR) or 0)
    flips = f"In “… differ by few of them.” (similarity {found}), the {differing.bit_count()} orange bits flip:"
    drawing.text(_LEFT, 190, flips, "small")
    drawing.text(
        _LEFT, 210, "mostly those whose votes add up to little. The search knows which these are.", "small"
    )

    block = 1
    drawing.text(_LEFT, 246, f"2  Block {block}: the {_LIKELIEST} likeliest prefixes of similar texts", "strong")
    y = 258.0
    chosen = query.probes.flips[block].tolist()
    for rank, flip in enumerate(chosen[:_LIKELIEST]):
        meant = flip == _block(differing, block)
        for place in range(_BLOCK):
            flipped = flip >> (_BLOCK - 1 - place) & 1
            drawing.bar(_LEFT + 30 + place * 15, y, 13, 13, ORANGE if flipped else BLUE, 1 if flipped else 0.2)
        drawing.text(_LEFT + 22, y + 12, f"{rank + 1}", "small end" + " strong" * meant)
        if meant:
            drawing.arrow((_LEFT + 300, y + 7), (_LEFT + 276, y + 7))
            drawing.text(_LEFT + 308, y + 12, "this is the other text: found", "small strong")
        y += 17
    ranges, distance = sum(map(len, query.probes.flips)), differing.bit_count()
    lines = (
        ("similar", f"reads the {len(chosen)} likeliest prefixes", f"here, {ranges} in all four blocks"),
        ("near at distance 10", "reads all with up to 2 flips:", f"{Design().probes(10)} in all four blocks,"),
    )
    drawing.box(_LEFT + 300, 262, _RIGHT - _LEFT - 300, lines[0], BLUE)
    drawing.box(_LEFT + 300, 354, _RIGHT - _LEFT - 300, (*lines[1], f"but this text is {distance} bits away"))
    return drawing.file(y + 14)


def _block(value: int, number: int) -> int:
    return value >> 48 - _BLOCK * number & 0xFFFF


def draw_flow() -> str:
    """Return the picture of the way of a row from an INSERT to a search result."""
    drawing = Drawing("From INSERT to a search result")
    left, right, width = 32, 296, 232
    ranges = {distance: Design().probes(distance) for distance in (3, 7)}
    drawing.box(left, 16, width, ("1  Your application", "computes the fingerprint", "of a text"), ORANGE)
    drawing.box(
        right, 16, width, ("2  INSERT, COPY, an ORM", "write the row, with the", "fingerprint in a bigint"), ORANGE
    )
    drawing.arrow((left + width, 54), (right, 54))
    drawing.rectangle(_LEFT, 116, _RIGHT - _LEFT, 424)
    drawing.text(left, 142, "PostgreSQL", "strong dim")
    drawing.arrow((right + 100, 92), (right + 100, 152))
    drawing.box(right, 152, width, ("article, your table", "its rows, and a B-tree", "on the fingerprint"), BLUE)
    tables = ("Four key tables", *(f"keys_1_{number}" for number in range(4)))
    drawing.box(left, 188, width, tables, GREEN, code=True)
    for number, colour in enumerate(_BLOCK_COLOURS):
        drawing.bar(left + 100, 217 + LINE * number, 29, 14, colour)
        drawing.rectangle(left + 100, 217 + LINE * number, 116, 14)
    drawing.arrow((right + 40, 228), (right + 40, 262), (left + width, 262))
    for place, line in enumerate(("3  A trigger adds a key", "to each of them, in the", "same transaction.")):
        drawing.text(right + 50, 254 + 18 * place, line, "small")
    drawing.arrow((left + 60, 304), (left + 60, 352))
    reading = (
        f"of keys: {ranges[3]} at distance 3,",
        f"{ranges[7]} at distance 7. What they",
        "hold are the candidates.",
    )
    drawing.box(left, 352, width, ("6  Read ranges", *reading), BLUE)
    drawing.arrow((left + width, 392), (right, 392))
    matching = ("within 3 bits of the query, if", "a row that you may see has", "this fingerprint.")
    drawing.box(right, 352, width, ("7  Keep candidates", *matching), BLUE)
    drawing.arrow((right + 220, 228), (right + 220, 352))
    drawing.box(left, 478, width, ("5  Is the index sound?", "If not, an error says why."), BLUE)
    drawing.arrow((left + 60, 478), (left + 60, 448))
    drawing.arrow((left + 60, 568), (left + 60, 534))
    drawing.arrow((right + 60, 448), (right + 60, 568))
    drawing.box(
        left,
        568,
        width,
        ("4  Your application", "SELECT … FROM simsql.near", "('article', fingerprint, 3)"),
        ORANGE,
    )
    drawing.box(
        right, 568, width, ("8  The result", "every match, nearest first,", "to join with your table"), ORANGE
    )
    drawing.text(
        _LEFT, 674, "With the storage expression there are no triggers and no key tables: four more", "small"
    )
    drawing.text(
        _LEFT, 694, "B-trees on article hold the keys, PostgreSQL maintains them; 6 and 7 are one.", "small"
    )
    return drawing.file(712)


# Sentences from which the documents of the picture of decisions are made.
_HARBOUR = (
    "The harbour office opens at six, an hour before the first ferry leaves for the islands. Tickets are "
    "sold on board in summer, and at the white kiosk beside the fish market in winter. Dogs travel free "
    "of charge, but they have to stay on the lower deck during the crossing. When the wind is stronger "
    "than force eight, the captain may turn back without warning. A crossing takes forty minutes, and a "
    "little longer when the tide runs against the boat. Luggage that is left behind is kept for three "
    "weeks in the shed behind the lighthouse. The last boat back waits for the evening bus, even if the "
    "bus is late again."
)
_EDITED = {"six": "seven", "lower deck": "upper deck", "three weeks": "two weeks"}
_EDITED_MORE = {
    "summer": "spring",
    "fish market": "market hall",
    "eight": "nine",
    "forty": "fifty",
    "evening bus": "last bus",
}
_PLACES = {"A": (150, 84), "B": (46, 46), "C": (214, 40), "D": (224, 188), "E": (46, 196), "F": (124, 196)}


def made_documents() -> dict[str, str]:
    """Return a text as B, edited copies as A, C and D, its words in another order as E, and another text as F."""
    words = _HARBOUR.split()
    two = [" ".join(words[start : start + 2]) for start in range(0, len(words), 2)]
    edited = _replace(_HARBOUR, _EDITED)
    return {
        "A": edited,
        "B": _HARBOUR,
        "C": _HARBOUR.replace("white kiosk", "green kiosk"),
        "D": _replace(edited, _EDITED_MORE),
        "E": " ".join(two[::2] + two[1::2]),
        "F": _OTHER,
    }


def _replace(text: str, changes: dict[str, str]) -> str:
    for old, new in changes.items():
        text = text.replace(old, new)
    return text


def draw_decisions() -> str:
    """Return the picture of candidates, comparisons and decisions, with the rules of `simsql dedup`."""
    rules = Rules()
    drawing = Drawing("From candidates to decisions")
    texts = made_documents()
    names = list(texts)
    near = {
        (a, b): (distance, _compare(texts[a], texts[b], rules))
        for a, b in combinations(names, 2)
        if (distance := hamming_distance(_fingerprint(texts[a]), _fingerprint(texts[b]))) <= rules.distance
    }
    left, right = (np.array([names.index(pair[side]) for pair in near]) for side in (0, 1))
    pairs = SimilarPairs(left, right, np.array([found for _, found in near.values()]))
    order = np.argsort(-centrality(len(names), pairs, rules.drop), kind="stable")
    stars = choose_stars(order, pairs, similarity=rules.similarity, drop=rules.drop)
    second = _LEFT + 272
    candidates = {pair: (BLUE, f"{distance}") for pair, (distance, _) in near.items()}
    _draw_graph(drawing, _LEFT, 12, "1  Bits that differ", candidates)
    compared = {
        pair: (_colour(found, rules), show_similarity(found) if found else "far")
        for pair, (_, found) in near.items()
    }
    _draw_graph(drawing, second, 12, "2  Candidates, then texts", compared)
    kept = {name: names[stars.kept[place]] for place, name in enumerate(names)}
    links = {pair: look for pair, look in compared.items() if kept[pair[0]] == pair[1] or kept[pair[1]] == pair[0]}
    _draw_graph(drawing, _LEFT, 268, "3  Kept and dropped", links, kept)
    dropped = [name for name in names if kept[name] != name]
    (centre,) = {kept[name] for name in dropped}
    drawing.text(second, 290, "4  The drop list", "strong")
    lines = (
        ", ".join(dropped),
        f"{centre} is kept in their favour.",
        "They are listed if no file has",
        "changed since it was read.",
    )
    y = drawing.box(second, 304, _RIGHT - second, lines, ORANGE)
    meanings = (
        (GREEN, f"similarity {rules.drop} or more: drop"),
        (BLUE, f"{rules.similarity} or more: one cluster"),
        (None, "no candidate: not compared"),
    )
    for colour, meaning in meanings:
        y += 22
        drawing.line((second, y), (second + 30, y), colour, "")
        drawing.text(second + 40, y + 5, meaning, "small")
    return drawing.file(526)


def _compare(a: str, b: str, rules: Rules) -> float:
    """Return the similarity of two texts, or 0.0 if their sketches say that it is not worth computing."""
    if hamming_distance(sketch(a), sketch(b)) > sketch_distance(rules.similarity):
        return 0.0
    return similarity(a, b) or 0.0


def _colour(found: float, rules: Rules) -> str | None:
    return GREEN if found >= rules.drop else BLUE if found >= rules.similarity else None


def _draw_graph(
    drawing: Drawing,
    x: float,
    y: float,
    title: str,
    lines: dict[tuple[str, str], tuple[str | None, str]],
    kept: dict[str, str] | None = None,
) -> None:
    """Draw the documents and lines between them, coloured by whether they are kept."""
    drawing.text(x, y + 22, title, "strong")
    places = {name: (x + place[0], y + 20 + place[1]) for name, place in _PLACES.items()}
    for (start, end), (colour, label) in lines.items():
        drawing.line(places[start], places[end], colour, label)
    for name, place in places.items():
        drawing.node(*place, name, BLUE if not kept else GREEN if kept[name] == name else ORANGE)
        if kept:
            above = _PLACES[name][1] < 60
            drawing.text(
                place[0],
                place[1] + (-21 if above else 32),
                "kept" if kept[name] == name else "dropped",
                "small middle",
            )


_MEASURED = IMAGES.parent / "explanation" / "scale.md"
_DISTANCES = range(33)
_SIZES = ((6, 4, "1 million rows"), (7, 4, "10 million rows"), (8, 3, "100 million rows"))
_DECADES = {place: f"{10.0 ** (place - 2):,g}" for place in range(7)}


def draw_costs() -> str:
    """Return the chart of the time of a search, by distance and by rows."""
    by_distance, by_rows = [], []
    measured = measured_times()
    for power, blocks, name in _SIZES:
        times = [(distance, Design(blocks).search_us(distance, 10**power)) for distance in _DISTANCES]
        by_distance += [_times(name, times), _times(name, measured[power], dots=True)]
    for distance in (3, 7, 10):
        points = [(power / 4, Design().search_us(distance, round(10 ** (power / 4)))) for power in range(12, 37)]
        by_rows.append(_times(f"distance {distance}", points))
    rows = {3: "10³", 5: "10⁵", 7: "10⁷", 9: "10⁹"}
    distances = {distance: f"{distance}" for distance in (0, 3, 7, 10, 16, 24, 32)}
    panels = [
        Panel("milliseconds of a search", "distance in bits; dots: measured", by_distance, 6, distances, _DECADES),
        Panel("milliseconds of a search, four blocks", "rows", by_rows, 6, rows, _DECADES),
    ]
    return draw_chart(panels, columns=1)


def _times(name: str, points: list[tuple[float, float]], *, dots: bool = False) -> Line:
    """Return a line of times in microseconds, on a logarithmic scale that begins at 0.01 ms."""
    heights = [(place, math.log10(time / 10)) for place, time in points]
    return Line(name, [(place, Estimate(height, height, height)) for place, height in heights], dots)


def measured_times() -> dict[int, list[tuple[float, float]]]:
    """Return the measured microseconds by distance, for each power of ten of rows: `tables`, else `expression`."""
    found: dict[int, list[tuple[float, float]]] = {}
    text = _MEASURED.read_text(encoding="utf-8").partition("| predicted | `tables` | `expression` |")[2]
    for line in text.partition("\n\n")[0].splitlines()[2:]:
        table, distance, *_, tables, expression = (cell.strip() for cell in line.strip("|").split("|"))
        if table:
            power = int(re.findall(r"10<sup>(\d+)</sup>", table)[0])
        found.setdefault(power, []).append((int(distance), float(tables or expression) * 1000))
    return found


def main() -> None:
    """Write the pictures."""
    for name, draw in PICTURES.items():
        (IMAGES / f"{name}.svg").write_text(draw(), encoding="utf-8")


PICTURES = {
    "fingerprint": draw_fingerprint,
    "probes": draw_probes,
    "margins": draw_margins,
    "flow": draw_flow,
    "costs": draw_costs,
    "decisions": draw_decisions,
}

if __name__ == "__main__":
    main()
