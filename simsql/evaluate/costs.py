"""Estimate from an example what a rule costs on a collection of another size: candidates and processor time.

Pairs of texts that have something in common grow with the number of documents. All others are near by chance, and
grow with its square. The example shows how many there are of both, and a sample of its pairs how many of them pass
the filter by sketches. Comparisons of texts are timed. The time of the join is that of its own cost model for as
many fingerprints with the same skew, in proportion to the time that a small join takes here.
"""

import time
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simsql.documents.spool import TextSpool, TokenSpool
from simsql.evaluate.sampling import draw_pairs
from simsql.fingerprint import Recipe, compare_documents, simhash_items_with_tokens, sketch_distance
from simsql.hamming import expected_seconds, find_pairs

_DOCUMENTS = 20_000  # 200 million pairs
_DRAWN = 1_000  # pairs at each distance
_UNRELATED = 0.1  # texts that are less similar are near by chance
_ERROR = 1 / 3  # the largest standard error of a number that is given, as a share of it
_FILTER_NS = 20.0  # of a candidate: find its two sketches and compare them
_NOTHING = [np.zeros(0, dtype=np.uint64)]
_TIMED_KEYS, _TIMED_DISTANCE = 1 << 15, 12


class Cost(NamedTuple):
    """What a rule costs on a collection; None where the example has too few pairs to tell."""

    candidates: float | None
    """The pairs of texts whose fingerprints are within the distance."""
    compared: float | None
    """Those whose texts are compared, because their sketches are near, too; None without a check."""
    cpu_seconds: float | None
    """Processor time to find and compare pairs, without that to read and fingerprint the documents."""


class Costs:
    """What rules up to `distance` bits cost on a collection of `documents`, as the texts show it."""

    def __init__(self, texts: TextSpool, recipe: Recipe, documents: int, distance: int) -> None:
        given = texts.count
        chosen = np.random.default_rng(0).permutation(given)[:_DOCUMENTS].tolist()
        fingerprints, words, present = _NOTHING.copy(), _NOTHING.copy(), [np.zeros(0, dtype=bool)]
        starts, counts = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        with TokenSpool() as tokens:
            items = ((number, texts.read(number)) for number in chosen)
            for _, of_texts, token_lists, sketches in simhash_items_with_tokens(items, recipe, 1):
                starts.append(tokens.add_tokens(token_lists))
                counts.append(token_lists.counts)
                fingerprints.append(of_texts.data)
                words.append(sketches.data)
                present.append(~(np.ma.getmaskarray(of_texts) | np.ma.getmaskarray(sketches)))
            (usable,) = np.nonzero(np.concatenate(present))
            some = np.concatenate(fingerprints)
            values, first = np.unique(some[usable], return_index=True)
            drawn = draw_pairs(values, distance, _DRAWN * distance, workers=1)
            left, right = (usable[first[np.searchsorted(values, side)]] for side in (drawn.left, drawn.right))
            start = time.process_time()
            start_of, count_of = np.concatenate(starts), np.concatenate(counts)
            similarity = compare_documents(
                count_of, lambda some: tokens.read_at(start_of[some], count_of[some]), left, right
            )
            self._compare_seconds = (time.process_time() - start) / max(1, len(left))
        sketch = np.concatenate(words)
        self._sketch_distance = np.bitwise_count(sketch[left] ^ sketch[right])
        self._distance = drawn.distance
        # Of all pairs of related documents, only those are seen of which both have been chosen.
        pairs_seen = max(1, len(chosen) * (len(chosen) - 1))
        related = given * (given - 1) / pairs_seen * documents / max(1, given)
        self._chance = documents * (documents - 1) / pairs_seen
        self._number = drawn.weight * np.where(similarity < _UNRELATED, self._chance, related)
        distinct = round(documents * len(values) / max(1, len(chosen)))
        pace = _measure_pace()
        self._join_seconds = [pace * expected_seconds(values, distinct, bits) for bits in range(distance + 1)]

    def of_rule(self, distance: int, similarity: float | None) -> Cost:
        """Return the cost of a rule; without a similarity, of one without a check."""
        near = self._distance <= distance
        candidates = self._sum(near)
        if candidates is None:
            return Cost(None, None, None)
        seconds = self._join_seconds[distance]
        if similarity is None:
            return Cost(candidates, None, seconds)
        compared = self._sum(near & (self._sketch_distance <= sketch_distance(similarity)))
        if compared is None:
            return Cost(candidates, None, None)
        seconds += candidates * _FILTER_NS / 1e9 + compared * self._compare_seconds
        return Cost(candidates, compared, seconds)

    def _sum(self, chosen: NDArray[np.bool_]) -> float | None:
        numbers = self._number[chosen]
        total = float(numbers.sum())
        # Each drawn pair stands for several. A pair that is near by chance may just not have been drawn.
        error = float(np.sqrt(self._chance**2 + np.square(numbers).sum()))
        return total if error <= _ERROR * total else None


def _measure_pace() -> float:
    """Return the time of a join of random fingerprints here, as a share of what the cost model expects."""
    keys = np.random.default_rng(0).integers(1 << 64, size=_TIMED_KEYS, dtype=np.uint64, endpoint=False)
    expected = expected_seconds(keys, len(keys), _TIMED_DISTANCE)
    start = time.process_time()
    for _ in find_pairs(keys, _TIMED_DISTANCE, workers=1, batches=True):
        pass
    return (time.process_time() - start) / expected
