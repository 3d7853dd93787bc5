"""Find similar pairs in crowds, in time linear in the number of texts: buckets too large to list their pairs.

Only with texts that are kept are others compared. In the order of the decision, a text is kept if it resembles
none that is. Then it is compared with the texts of its crowds that are still open, and those that it resembles are
dropped, and closed. A text that was compared with many and resembles none stays kept, and is closed, too. So the
decision is that of `simsql.decide.stars`, given the pairs that were found.
"""

from collections.abc import Callable, Iterator

import numpy as np

from simsql.arrays.positions import consecutive, portions, roots_of, unite
from simsql.decide.documents import I64, Flags
from simsql.decide.stars import SimilarPairs
from simsql.dedup.bands import Buckets
from simsql.fingerprint import BANDS

# A text that was compared with this many kept ones stays kept.
_COMPARED_AT_MOST = 64
# Open texts that are decided about together: fewer if most of them are dropped. And how many others for each.
_LEAST, _MOST, _WINDOW = 16, 1024, 4
# Members of crowds that are looked at together.
_TOGETHER = 1 << 20

Compare = Callable[[I64, I64], SimilarPairs]
"""Returns those of some pairs that are similar."""


class Crowds:
    """The texts in crowds, given buckets whose pairs were listed."""

    def __init__(self, buckets: Buckets, compare: Compare) -> None:
        self._buckets, self._similar_of = buckets, compare
        self.members = buckets.crowded != 0
        """Whether a text is in a crowd."""
        self.similar = np.zeros(len(self.members))
        """An estimate of the sum of the similarities of a text to those of its crowds.

        It is too low, for texts of similarity J share a band with probability J ** 3.
        """
        found = [np.zeros(0, dtype=np.int64)]
        sizes, bands = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
        for band in range(BANDS if self.members.any() else 0):
            text, begins, size = buckets.sort(band)
            crowd = size > buckets.sizes.listed
            begins, size = begins[crowd], size[crowd]
            found.append(text[consecutive(begins, size)])
            sizes.append(size)
            bands.append(np.full(len(size), band))
            self.similar[found[-1]] += np.repeat(size / BANDS, size)
        self._texts, self._sizes, self._bands = map(np.concatenate, (found, sizes, bands))

    def find_pairs(
        self, order: I64, pairs: SimilarPairs, drop: float, protected: Flags, guard: I64 | None = None
    ) -> Iterator[SimilarPairs]:
        """Yield the similar pairs in crowds that decisions need, and none of `pairs`, those of the other buckets.

        `order` has all texts, those that are worth keeping most first; `protected` ones are kept in any case, and
        before all others. A text is dropped if it is at least `drop` similar to one that is kept, with its guard.
        """
        if not self.members.any():
            return
        turns = np.concatenate([order[protected[order]], order[~protected[order]]])
        self._rank = np.empty_like(order)
        self._rank[turns] = np.arange(len(order))
        self._open, self._dropped = self.members & ~protected, np.zeros_like(protected)
        self._compared = np.zeros_like(order)
        near = pairs.droppable(drop, guard)
        starts, ends = (np.concatenate(sides) for sides in ((near.left, near.right), (near.right, near.left)))
        starts, ends = starts[~protected[ends]], ends[~protected[ends]]
        by_start = np.argsort(starts, kind="stable")
        self._neighbours = ends[by_start]
        self._bounds = bounds = np.searchsorted(starts[by_start], np.arange(len(order) + 1))
        turns = turns[self.members[turns] | (bounds[turns] < bounds[turns + 1])]
        # One component after the other: what is found does not depend on what else there is.
        component, of_crowd = self._sort_crowds(near)
        roots, firsts = np.unique(of_crowd, return_index=True)
        turns = turns[np.isin(component[turns], roots)]
        turns = turns[np.argsort(component[turns], kind="stable")]
        parts = np.split(turns, np.searchsorted(component[turns], roots[1:]))
        texts, sizes, bands = self._texts, self._sizes, self._bands
        cuts = np.append(0, np.cumsum(sizes))
        for first, after, part in zip(firsts, np.append(firsts[1:], len(sizes)), parts, strict=True):
            self._first, self._texts = first, texts[cuts[first] : cuts[after]]
            self._sizes, self._bands = sizes[first:after], bands[first:after]
            yield from self._find_pairs(part, drop, guard)

    def _sort_crowds(self, near: SimilarPairs) -> tuple[I64, I64]:
        """Sort the crowds by their component; return the component of each text, and that of each crowd.

        A component has the texts that pairs and crowds connect.
        """
        component = np.arange(len(self.members))
        begins = np.cumsum(self._sizes) - self._sizes
        unite(component, near.left, near.right)
        unite(component, np.repeat(self._texts[begins], self._sizes), self._texts)
        component = roots_of(component, np.arange(len(component)))
        of_crowd = component[self._texts[begins]]
        order = np.argsort(of_crowd, kind="stable")
        self._texts = self._texts[consecutive(begins[order], self._sizes[order])]
        self._sizes, self._bands = self._sizes[order], self._bands[order]
        # The crowds of each text, one text after the other.
        number = np.repeat(np.arange(len(self._sizes)), self._sizes)
        self._crowds = number[np.argsort(self._texts, kind="stable")]
        self._crowds_of = np.bincount(self._texts, minlength=len(component))
        self._first_crowd = np.cumsum(self._crowds_of) - self._crowds_of
        return component, of_crowd[order]

    def _find_pairs(self, turns: I64, drop: float, guard: I64 | None) -> Iterator[SimilarPairs]:
        """Yield the pairs of a component, given its texts."""
        start, wanted = 0, _LEAST
        while start < len(turns):
            here = turns[start : start + _WINDOW * wanted]
            here = here[: int(np.searchsorted(np.cumsum(self._open[here]), wanted)) + 1]
            start += len(here)
            # As if all were kept: what they resemble among themselves tells which are.
            asked = here[self.members[here] & ~self._dropped[here]]
            own: dict[int, list[int]] = {}
            for found in self._compare(*self._among(asked)):
                yield found
                earlier, later = self._in_turn(found.droppable(drop, guard))
                for one, other in zip(earlier.tolist(), later.tolist(), strict=True):
                    own.setdefault(one, []).append(other)
            for node in here.tolist():
                if not self._dropped[node]:
                    self._drop(self._neighbours[self._bounds[node] : self._bounds[node + 1]])
                    self._drop(own.get(node, []))
            self._open[here] = False
            kept = asked[~self._dropped[asked]]
            for left, right in self._meet(kept):
                for found in self._compare(left, right):
                    yield found
                    self._drop(self._in_turn(found.droppable(drop, guard))[1])
            wanted = min(2 * wanted, _MOST) if 2 * len(kept) > len(asked) else max(wanted // 2, _LEAST)

    def _drop(self, texts: I64 | list[int]) -> None:
        self._dropped[texts] = True
        self._open[texts] = False

    def _in_turn(self, pairs: SimilarPairs) -> tuple[I64, I64]:
        """Return the texts of pairs, the one whose turn comes first before the other."""
        swap = self._rank[pairs.left] > self._rank[pairs.right]
        return np.where(swap, pairs.right, pairs.left), np.where(swap, pairs.left, pairs.right)

    def _compare(self, left: I64, right: I64) -> Iterator[SimilarPairs]:
        """Yield the similar ones of some pairs, the second of which is compared with the first that is kept."""
        if len(left):
            np.add.at(self._compared, right, 1)
            self._open[right[self._compared[right] >= _COMPARED_AT_MOST]] = False
            yield self._similar_of(left, right)

    def _among(self, asked: I64) -> tuple[I64, I64]:
        """Return the candidates among some texts, which are in the order of their turns."""
        one, other = np.nonzero(np.triu(np.broadcast_to(self._open[asked], (len(asked),) * 2), 1))
        left, right = asked[one], asked[other]
        near = self._buckets.near(left, right)
        left, right = left[near], right[near]
        first = self._buckets.first_crowd(left, right)
        return left[first >= 0], right[first >= 0]

    def _meet(self, centres: I64) -> Iterator[tuple[I64, I64]]:
        """Yield the candidates of some texts with the open texts of their crowds."""
        still = self._open[self._texts]
        if 2 * np.count_nonzero(still) < len(still):  # the others are not looked at again
            crowd = np.repeat(np.arange(len(self._sizes)), self._sizes)
            self._texts, self._sizes = self._texts[still], np.bincount(crowd[still], minlength=len(self._sizes))
        crowds = self._crowds[consecutive(self._first_crowd[centres], self._crowds_of[centres])] - self._first
        centre = np.repeat(centres, self._crowds_of[centres])
        begins = np.cumsum(self._sizes) - self._sizes
        for some in portions(self._sizes[crowds], _TOGETHER):
            sizes = self._sizes[crowds[some]]
            left, band = np.repeat(centre[some], sizes), np.repeat(self._bands[crowds[some]], sizes)
            right = self._texts[consecutive(begins[crowds[some]], sizes)]
            (chosen,) = np.nonzero(self._open[right])
            chosen = chosen[self._buckets.near(left[chosen], right[chosen])]
            left, right = left[chosen], right[chosen]
            chosen = self._buckets.first_crowd(left, right) == band[chosen]
            yield left[chosen], right[chosen]
