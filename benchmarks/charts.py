"""Draw the charts of docs/explanation/quality.md: python -m benchmarks.charts, which writes docs/images/.

- Precision and recall over the distance, as in figure 1 of Manku et al. (WWW 2007): of each data set, against the
  similarities that benchmarks.decisions finds by brute force.
- How even fingerprints are, as in figure 2: the share of ones of each bit, and of the fingerprints in each of the
  128 ranges that the first seven bits make.
"""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.chart import Line, Panel, draw_chart, rule_panels
from benchmarks.decisions import DROPPED, REPORTED, Corpus, near_pairs, read_corpora
from benchmarks.labelled import find_folder
from simsql.evaluate.measures import NO_FINGERPRINT, Estimate, LabelledPairs, evaluate_pairs
from simsql.fingerprint import simhash_many, similarity_many

IMAGES = Path(__file__).resolve().parents[1] / "docs" / "images"
_DISTANCES = range(13)
_BUCKET_BITS = 7
_SEED = 1


def label_pairs(corpus: Corpus, least: float) -> LabelledPairs:
    """Return the pairs that a rule finds or should find; near-duplicates are at least this similar."""
    pairs = sorted({*near_pairs(corpus.texts, _DISTANCES[-1]), *corpus.alike})
    left, right = np.array(pairs).T
    fingerprints = simhash_many(corpus.texts)
    distance = np.bitwise_count(fingerprints.data[left] ^ fingerprints.data[right]).astype(np.int64)
    distance[fingerprints.mask[left] | fingerprints.mask[right]] = NO_FINGERPRINT
    similarity = similarity_many((corpus.texts[place] for place in left), (corpus.texts[place] for place in right))
    alike = np.array([corpus.alike.get(pair, 0.0) >= least for pair in pairs])
    return LabelledPairs(distance, similarity.data, alike, np.ones(len(pairs)))


def draw_rules(corpus: Corpus) -> str:
    """Return the chart of precision and recall."""
    panels: list[Panel] = []
    for least in (REPORTED, DROPPED):
        figures = evaluate_pairs(label_pairs(corpus, least), _DISTANCES, [REPORTED])
        panels += rule_panels(f"Jaccard {least}", figures)
    return draw_chart(panels)


def draw_skew(corpora: Sequence[Corpus]) -> str:
    """Return the chart of bits and prefixes, beside random fingerprints."""
    values = {corpus.name: np.unique(simhash_many(corpus.texts).compressed()) for corpus in corpora}
    size = max(map(len, values.values()))
    values["random"] = np.random.default_rng(_SEED).integers(1 << 64, size=size, dtype=np.uint64, endpoint=False)
    bits = [Line(name, _points(sorted(_count_bits(some)))) for name, some in values.items()]
    buckets = [Line(name, _points(_count_buckets(some))) for name, some in values.items()]
    top = math.ceil(max(point.value or 0.0 for line in buckets for _, point in line.points))
    return draw_chart(
        [
            Panel("share of ones", "bits, from the least to the most often set", bits),
            Panel(
                "fingerprints with a prefix, 1 is the mean",
                "prefixes of 7 bits, the most frequent first",
                buckets,
                top,
            ),
        ]
    )


def _count_bits(values: np.ndarray) -> list[float]:
    return [float(np.mean(values >> np.uint64(63 - bit) & np.uint64(1))) for bit in range(64)]


def _count_buckets(values: np.ndarray) -> list[float]:
    """Return how full each range is, as a multiple of the mean."""
    counts = np.bincount((values >> np.uint64(64 - _BUCKET_BITS)).astype(np.int64), minlength=1 << _BUCKET_BITS)
    shares: list[float] = (np.sort(counts)[::-1] / counts.mean()).tolist()
    return shares


def _points(values: Sequence[float]) -> list[tuple[float, Estimate]]:
    return [(place, Estimate(value, value, value)) for place, value in enumerate(values)]


def main() -> None:
    """Write the charts."""
    corpora = read_corpora(find_folder())
    IMAGES.mkdir(exist_ok=True)
    for corpus in corpora:
        name = corpus.name.lower().replace(" ", "-")
        (IMAGES / f"quality-{name}.svg").write_text(draw_rules(corpus), encoding="utf-8")
    (IMAGES / "quality-skew.svg").write_text(draw_skew(corpora), encoding="utf-8")


if __name__ == "__main__":
    main()
