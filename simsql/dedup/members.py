"""The members of clusters, as sinks take them: their names, their order, and which could be dropped."""

from collections.abc import Container, Iterator
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from simsql.arrays.positions import portions
from simsql.decide.documents import I64, Similarities
from simsql.decide.verdicts import Verdicts
from simsql.dedup.comparing import Comparison
from simsql.dedup.corpus import Source

_AT_ONCE = 1_000  # members, which fit the cache


class Member(NamedTuple):
    """A document of a cluster."""

    cluster: int
    position: int
    """Its position in the corpus."""
    # As in `Names`.
    name: str
    place: str
    line: int
    path: str
    shared: bool
    place_shared: bool
    kept: int
    """The position of the document that is kept in its favour: its own if it is kept."""
    kept_label: str
    representative: int
    """The position of the document that represents its cluster."""
    representative_label: str
    distance: int
    """The distance from the representative's fingerprint, in bits."""
    similarity: float | None
    """To the representative; None if no texts were compared."""
    kept_distance: int
    kept_similarity: float | None
    kind: str | None
    """The kind of drop: see `simsql.decide.kinds.Kind`; None if it is kept."""
    droppable: bool
    """Whether a clean-up could drop it and keep `kept`."""

    @property
    def label(self) -> str:
        """As in `Names.labels`."""
        return self.place if self.shared else self.name

    @property
    def is_kept(self) -> bool:
        """Whether it is kept."""
        return self.kept == self.position


class Decisions(NamedTuple):
    """What a job has decided, and about which documents."""

    source: Source
    comparison: Comparison
    verdicts: Verdicts

    def clusters(self, refused: Container[int] = ()) -> Iterator[list[Member]]:
        """Yield the members of each cluster, the largest cluster first.

        In a cluster, each kept document is followed by those dropped in its favour: first the representative, then
        the most similar to it. `refused` has the positions of documents that are not droppable.
        """
        cluster = self.verdicts.cluster
        (members,) = np.nonzero(cluster)
        members = members[np.lexsort([members, cluster[members]])]
        sizes = np.unique(cluster[members], return_counts=True)[1]
        ends = np.cumsum(sizes)
        for some in portions(sizes, _AT_ONCE):
            part = members[ends[some][0] - sizes[some][0] : ends[some][-1]]
            for _, found in groupby(self._members(part, refused), key=attrgetter("cluster")):
                yield list(found)

    def _members(self, positions: I64, refused: Container[int]) -> Iterator[Member]:
        """Yield the members of whole clusters, whose positions are ascending within a cluster."""
        verdicts, fingerprint = self.verdicts, self.comparison.documents.fingerprint
        names = self.source.names(positions)
        labels = names.labels()
        kept, representative = verdicts.kept[positions], verdicts.representative[positions]
        distance, kept_distance = (
            np.bitwise_count(fingerprint[positions] ^ fingerprint[target]) for target in (representative, kept)
        )
        similarity = verdicts.representative_similarity[positions]
        kept_similarity = verdicts.kept_similarity[positions]
        ascending = np.argsort(positions)
        kept_at, representative_at = (
            ascending[np.searchsorted(positions[ascending], target)] for target in (kept, representative)
        )
        rank = np.empty(len(positions), dtype=np.int64)
        rank[sorted(range(len(positions)), key=names.name.__getitem__)] = np.arange(len(positions))
        of_kept = [rank, distance, -np.nan_to_num(similarity), positions != representative]
        own = [rank, kept_distance, -np.nan_to_num(kept_similarity), positions != kept]
        order = np.lexsort([*own, *(key[kept_at] for key in of_kept), verdicts.cluster[positions]])
        columns = (
            verdicts.cluster[positions].tolist(),
            positions.tolist(),
            *names,
            kept.tolist(),
            [labels[at] for at in kept_at],
            representative.tolist(),
            [labels[at] for at in representative_at],
            distance.tolist(),
            _known(similarity),
            kept_distance.tolist(),
            _known(kept_similarity),
            verdicts.kind[positions].tolist(),
            [at != to and at not in refused for at, to in zip(positions.tolist(), kept.tolist(), strict=True)],
        )
        found = [*zip(*columns, strict=True)]
        yield from (Member._make(found[at]) for at in order.tolist())


def _known(similarity: Similarities) -> list[float | None]:
    found: list[float | None] = np.where(np.isnan(similarity), np.array(None), similarity).tolist()
    return found
