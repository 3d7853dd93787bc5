"""The formats of clusters: JSON lines, CSV, TSV and tables."""

import json
from collections.abc import Sequence
from typing import Any, Protocol

from simsql.decide.rules import show_similarity
from simsql.dedup.members import Member
from simsql.documents import format_rows, printable
from simsql.documents.output_formats import Format

_SHOWN = 10  # members of a cluster in a table
_SHOWN_CLUSTERS = 20  # at a terminal
_NAMES = (
    *("cluster", "id", "place", "representative"),
    *("distance", "similarity", "kept", "kept_distance", "kept_similarity", "droppable"),
)


class ClusterWriter(Protocol):
    """Formats clusters as text."""

    @property
    def start(self) -> str:
        """How the first cluster begins, with what stands before it."""

    def head(self) -> str:
        """Return the text before the first cluster."""

    def cluster(self, number: int, members: Sequence[Member]) -> str:
        """Return the text of a cluster, its representative first."""


class JsonLines:
    """A line of JSON for each cluster."""

    start = '{"cluster": 1, "size": '

    def head(self) -> str:
        """Return nothing: JSON lines have no header."""
        return ""

    def cluster(self, number: int, members: Sequence[Member]) -> str:
        """Return a line of JSON."""
        cluster = {
            "cluster": number,
            "size": len(members),
            "representative": members[0].document.label,
            "members": [describe_member(member) for member in members],
        }
        return json.dumps(cluster, ensure_ascii=False) + "\n"


def describe_member(member: Member) -> dict[str, Any]:
    """Return what the output says about a member: distance and similarity are to the representative."""
    return {
        "id": member.document.name,
        "place": member.document.place,
        "distance": member.distance,
        "similarity": _round(member.document.representative_similarity),
        "kept": member.kept.label,
        "kept_distance": member.kept_distance,
        "kept_similarity": _round(member.document.kept_similarity),
        "droppable": member.droppable,
    }


def _round(similarity: float | None) -> float | None:
    return None if similarity is None else round(similarity, 6)


class _Rows:
    """Write one row per member of a cluster."""

    def __init__(self, form: Format) -> None:
        self._form = form

    @property
    def start(self) -> str:
        return self.head()

    def head(self) -> str:
        return "".join(format_rows(self._form, _NAMES, []))

    def cluster(self, number: int, members: Sequence[Member]) -> str:
        rows = (self._row(number, member) for member in members)
        return "".join(format_rows(self._form, _NAMES, rows, head=False))

    def _row(self, number: int, member: Member) -> Sequence[Any]:
        row = describe_member(member) | {"cluster": number, "representative": member.representative.label}
        return [row[name] for name in _NAMES]


class _Table:
    """Write one line per member, up to ten, with the size of the cluster on the first.

    Those that could be dropped are indented below the one that is kept, and measured from it.
    """

    start = f"{'cluster':>7}  {'size':>7}  {'distance':>8}  {'similarity':>10}  document\n"

    def head(self) -> str:
        return ""  # nothing, if there are no clusters

    def cluster(self, number: int, members: Sequence[Member]) -> str:
        head = self.start if number == 1 else ""
        first, blank = f"{number:>7,}  {len(members):>7,}", " " * 16
        lines = [
            f"{blank if place else first}  {_describe(member)}\n" for place, member in enumerate(members[:_SHOWN])
        ]
        if len(members) > _SHOWN:
            lines.append(f"{blank}  {'':>8}  {'':>10}  and {len(members) - _SHOWN:,} more\n")
        return head + "".join(lines)


def _describe(member: Member) -> str:
    is_kept = member.document.id == member.kept.id
    distance = member.distance if is_kept else member.kept_distance
    found = member.document.representative_similarity if is_kept else member.document.kept_similarity
    similarity = "-" if found is None else show_similarity(found)
    place = f" ({member.document.place})" if member.document.shared else ""
    return f"{distance:>8}  {similarity:>10}  {'' if is_kept else '  '}{printable(member.document.name)}{place}"


class FirstClusters(_Table):
    """Keep the table of the first clusters until the end: a terminal shows no more of them than a person reads."""

    def __init__(self) -> None:
        self._kept: list[str] = []
        self._left_out = 0

    def cluster(self, number: int, members: Sequence[Member]) -> str:
        """Keep the lines of a cluster, and return nothing."""
        if number <= _SHOWN_CLUSTERS:
            self._kept.append(super().cluster(number, members))
        else:
            self._left_out += 1
        return ""

    def kept(self) -> str:
        """Return the table."""
        more = f"and {self._left_out:,} more clusters: --output FILE writes them all\n" if self._left_out else ""
        return "".join(self._kept) + more


CLUSTER_WRITERS: dict[Format, ClusterWriter] = {
    **{form: _Rows(form) for form in Format},
    Format.TABLE: _Table(),
    Format.JSONL: JsonLines(),
}
CLUSTER_STARTS = tuple({writer.start for writer in CLUSTER_WRITERS.values()})
"""How clusters begin, in every format."""
