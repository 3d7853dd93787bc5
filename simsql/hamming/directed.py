"""Query-directed probes: the prefixes that similar texts most likely have, instead of all within a radius.

A text knows more than its fingerprint. A bit whose votes add up to nearly zero flips easily, and one with a large
sum hardly ever. From the probability that each bit flips follow the likeliest prefixes of every table, and a
distance in which an unlikely flip costs more (Lv, Josephson, Wang, Charikar, Li: Multi-probe LSH, VLDB 2007; Dong,
Charikar, Li: Asymmetric distance estimation with sketches, SIGIR 2008).

All comparisons are between integers, so the result depends neither on the processor nor on the order of bits.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simsql.arrays.checks import FINGERPRINT_BITS
from simsql.hamming.design import Design

# The cost of a flip is its log odds, in steps of 1/64 where prefixes are ordered, and of 1/2 in the distance,
# whose weights of 0 to 15 are four planes of bits.
_STEPS = 64
_STEPS_OF_PLANES = 2
_PLANES = 4
_HEAVIEST = (1 << _PLANES) - 1
# Bits of this weight or more are those of the upper two planes.
_SCREENED = 4
# A less likely flip costs as much as this: it makes no prefix likely enough.
_LEAST_PROBABILITY = 1e-7
# Flips are drawn this often, which gives an expected recall of 0.99 with a standard deviation of 0.002.
_DRAWS = 2048
# Only the last bits of a longer prefix are flipped: they and a cost fit one number.
_FLIPPED = 48
_BEYOND = 1 << 17
# The shares of what a search may miss: by its probes, by the cost and by the screen.
_MISSED_BY_PROBES = 0.2
_MISSED_BY_COST = 0.6
_MISSED_BY_SCREEN = 0.1

Float = NDArray[np.float64]


class DirectedProbes(NamedTuple):
    """What a query-directed search reads, and which of it matches."""

    flips: tuple[NDArray[np.uint64], ...]
    """For each table, the values to XOR with the prefix as a number; the first is 0."""
    planes: tuple[int, ...]
    """Four masks of the fingerprint. A flipped bit costs 1, 2, 4 and 8 for each mask that contains it."""
    cost: int
    """The greatest cost of a match."""
    screen: int
    """The greatest number of flips of a match that cost 4 or more. Most other candidates have more."""
    expected_recall: float
    """The share of the fingerprints with these probabilities of a flip that the search finds."""


def direct(design: Design, flip_probabilities: Float, recall: float, max_probes: int) -> DirectedProbes:
    """Return the probes that find this share of the fingerprints whose bits flip with these probabilities.

    `flip_probabilities` has the shape (64,), from the least significant bit, with values from 0 to 0.5;
    `recall` is below 1. If that takes more than `max_probes`, the result has about this number of the
    likeliest ones. Every table is probed without a flip.
    """
    p = np.clip(flip_probabilities, _LEAST_PROBABILITY, 0.5)
    log_odds = np.log((1 - p) / p)
    # No flip is free: a prefix of the cost 0 has none.
    steps = np.maximum(np.rint(_STEPS * log_odds), 1).astype(np.int64)
    weights = np.minimum(np.rint(_STEPS_OF_PLANES * log_odds), _HEAVIEST).astype(np.int64)
    places, lead, fixed = _leads(design)
    # By this much, a prefix without flips is less likely than that of another table.
    offsets = np.rint(-_STEPS * (lead @ np.log1p(-p))).astype(np.int64)
    offsets -= offsets.min()

    drawn = _draw_costs(p, np.vstack([weights, weights >= _SCREENED, lead * steps + fixed]))
    nearest = np.min(drawn[2:] + offsets[:, None], axis=0)
    # Beyond this, a prefix would need a flip of less than the least probability.
    allowed = 1 - recall
    limit = min(_quantile(nearest, 1 - _MISSED_BY_PROBES * allowed), int(_STEPS * -np.log(_LEAST_PROBABILITY)))
    patterns = [
        _cheapest(offset, steps[bits], limit, max_probes + 1) for offset, bits in zip(offsets, places, strict=True)
    ]
    if sum(map(len, patterns)) > max_probes:
        limit = int(
            np.partition(np.concatenate([pattern >> _FLIPPED for pattern in patterns]), max_probes)[max_probes]
        )
        patterns = [pattern[: max(1, np.searchsorted(pattern, limit << _FLIPPED))] for pattern in patterns]
        limit -= 1
    found = (drawn[2:] == 0).any(axis=0) | (nearest <= limit)
    of_found = drawn[:2, found] if found.any() else drawn[:2]
    # The more the limited probes miss, the more candidates are chance, and the less a high cost finds. Among long
    # prefixes there are few candidates anyway, unless the search scans and expects nothing.
    read = sum(len(pattern) / (1 << len(bits)) for pattern, bits in zip(patterns, places, strict=True))
    missed = 1 - found.mean()
    missed = min(2 * missed**2, missed) * (min(1000 * read, 1) if found.any() else 1)
    cost = _quantile(of_found[0], 1 - _MISSED_BY_COST * allowed - missed)
    screen = _quantile(of_found[1], 1 - _MISSED_BY_SCREEN * (allowed + missed))
    found &= (drawn[0] <= cost) & (drawn[1] <= screen)
    return DirectedProbes(
        tuple((pattern & (1 << _FLIPPED) - 1).astype(np.uint64) for pattern in patterns),
        tuple(sum(1 << bit for bit in np.flatnonzero(weights >> plane & 1).tolist()) for plane in range(_PLANES)),
        cost,
        screen,
        float(found.mean()),
    )


@lru_cache
def _leads(design: Design) -> tuple[tuple[NDArray[np.int64], ...], NDArray[np.int64], NDArray[np.int64]]:
    """Return the bits of each prefix, most significant first, and the same as rows of 64 zeros and ones.

    Also return such rows with a cost, beyond every limit, for the bits of a long prefix that are not flipped.
    """
    places = tuple(
        np.array([bit for bit in reversed(range(FINGERPRINT_BITS)) if table.lead_mask >> bit & 1])
        for table in design.permutations
    )
    lead, fixed = np.zeros((2, len(places), FINGERPRINT_BITS), dtype=np.int64)
    for row, beyond, bits in zip(lead, fixed, places, strict=True):
        row[bits] = 1
        beyond[bits[:-_FLIPPED]] = _BEYOND
    return places, lead, fixed


@lru_cache(maxsize=1)
def _draws() -> NDArray[np.float32]:
    return np.random.default_rng(64).random((FINGERPRINT_BITS, _DRAWS), dtype=np.float32)


def _draw_costs(p: Float, costs: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the sum of each row of costs, of the bits that flip, for all draws."""
    factors = costs.astype(np.float32)  # the sums are below 2**24, so they are exact
    flipped = (_draws() < p[:, None].astype(np.float32)).astype(np.float32)
    # A product of this size is not spread over threads, which would take longer than computing it.
    columns = max(1, (1 << 17) // costs.size)
    parts = [factors @ flipped[:, start : start + columns] for start in range(0, _DRAWS, columns)]
    return np.concatenate(parts, axis=1).astype(np.int64)


def _quantile(values: NDArray[np.int64], share: float) -> int:
    """Return the least value that at least this share of the values does not exceed."""
    place = max(1, min(int(np.ceil(share * len(values))), len(values))) - 1
    return int(np.partition(values, place)[place])


def _cheapest(offset: int, steps: NDArray[np.int64], limit: int, most: int) -> NDArray[np.int64]:
    """Return the cheapest ways to flip the bits of a prefix, most significant first, with these costs, in order.

    The lowest _FLIPPED bits of a way are the flips; above them is the cost. The first way flips nothing. Others
    cost at most `limit`; there are at most `most`.
    """
    found = np.array([offset << _FLIPPED])
    above = (limit + 1) << _FLIPPED
    costs = steps[-_FLIPPED:]
    for place in np.argsort(costs, kind="stable").tolist():
        more = found + ((int(costs[place]) << _FLIPPED) + (1 << len(costs) - 1 - place))
        more = more[more < above]
        if not len(more):
            break
        found = np.concatenate([found, more])
        if len(found) > most:
            found.partition(most - 1)
            found = found[:most]
    found.sort()
    return found
