"""The formats of clusters: JSON lines, CSV, TSV, Parquet and tables."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from simsql.dedup.members import Member
from simsql.documents import format_rows, open_output, printable, storable
from simsql.documents.formats.parquet import check_parquet, open_parquet_output
from simsql.documents.output_formats import Format, choose_format, format_of_file
from simsql.errors import UsageError
from simsql.fingerprint import show_similarity

_SHOWN = 10  # members of a cluster in a table
_SHOWN_CLUSTERS = 20  # at a terminal
# With the types of Parquet.
_COLUMNS = {
    **{"cluster": "int64", "id": "string", "place": "string", "representative": "string"},
    **{"distance": "int32", "similarity": "float64"},
    **{
        "kept": "string",
        "kept_distance": "int32",
        "kept_similarity": "float64",
        "kind": "string",
        "droppable": "bool",
    },
}

_HEADINGS = f"{'cluster':>7}  {'size':>7}  {'distance':>8}  {'similarity':>10}  document\n"


class ClusterWriter(NamedTuple):
    """The format of clusters."""

    head: str
    """The text before the first cluster."""
    cluster: Callable[[int, Sequence[Member]], Any]
    """Returns what to write for a cluster, given its number and its members, its representative first."""
    open: Callable[[Any], Any] = open_output
    """Opens what takes it."""


def describe_member(member: Member) -> dict[str, Any]:
    """Return what the output says about a member: distance and similarity are to the representative."""
    return {
        "id": member.name,
        "place": member.place,
        "distance": member.distance,
        "similarity": _round(member.similarity),
        "kept": member.kept_label,
        "kept_distance": member.kept_distance,
        "kept_similarity": _round(member.kept_similarity),
        "kind": member.kind,
        "droppable": member.droppable,
    }


def _round(similarity: float | None) -> float | None:
    return None if similarity is None else round(similarity, 6)


def _write_json(number: int, members: Sequence[Member]) -> str:
    names = "cluster", "size", "representative", "members"
    row = number, len(members), members[0].label, [describe_member(member) for member in members]
    return next(format_rows(Format.JSONL, names, [row]))


def _describe_rows(number: int, members: Sequence[Member]) -> list[dict[str, Any]]:
    return [
        describe_member(member) | {"cluster": number, "representative": member.representative_label}
        for member in members
    ]


def _write_rows(form: Format, number: int, members: Sequence[Member]) -> str:
    rows = ([row[name] for name in _COLUMNS] for row in _describe_rows(number, members))
    return "".join(format_rows(form, tuple(_COLUMNS), rows, head=False))


def _write_table(number: int, members: Sequence[Member]) -> str:
    """Return a line for each member, up to ten, with the size of the cluster on the first.

    Those that could be dropped are indented below the one that is kept, and measured from it. The headings are
    those of the first cluster: without clusters, there is nothing.
    """
    head = _HEADINGS if number == 1 else ""
    first, blank = f"{number:>7,}  {len(members):>7,}", " " * 16
    lines = [
        f"{blank if place else first}  {_describe(member)}\n" for place, member in enumerate(members[:_SHOWN])
    ]
    if len(members) > _SHOWN:
        lines.append(f"{blank}  {'':>8}  {'':>10}  and {len(members) - _SHOWN:,} more\n")
    return head + "".join(lines)


def _describe(member: Member) -> str:
    distance = member.distance if member.is_kept else member.kept_distance
    found = member.similarity if member.is_kept else member.kept_similarity
    similarity = "-" if found is None else show_similarity(found)
    place = f" ({member.place})" if member.shared else ""
    return f"{distance:>8}  {similarity:>10}  {'' if member.is_kept else '  '}{printable(member.name)}{place}"


class FirstClusters:
    """Keep the table of the first clusters until the end: a terminal shows no more of them than a person reads."""

    def __init__(self) -> None:
        self._kept: list[str] = []
        self._left_out = 0

    def keep(self, number: int, members: Sequence[Member]) -> str:
        """Keep the lines of a cluster, and return nothing."""
        if number <= _SHOWN_CLUSTERS:
            self._kept.append(_write_table(number, members))
        else:
            self._left_out += 1
        return ""

    def kept(self) -> str:
        """Return the table."""
        more = f"and {self._left_out:,} more clusters: --output FILE writes them all\n" if self._left_out else ""
        return "".join(self._kept) + more


JSON_LINES = ClusterWriter("", _write_json)
TABLE = ClusterWriter("", _write_table)
PARQUET = ClusterWriter("", _describe_rows, partial(open_parquet_output, columns=_COLUMNS))
_HEADS = {form: "".join(format_rows(form, tuple(_COLUMNS), [])) for form in (Format.CSV, Format.TSV)}
CLUSTER_WRITERS = {
    Format.TABLE: TABLE,
    Format.JSONL: JSON_LINES,
    **{form: ClusterWriter(head, partial(_write_rows, form)) for form, head in _HEADS.items()},
}


def choose_writer(path: Path | None, form: Format | None) -> ClusterWriter:
    """Return the writer of a format; by default, of that which the name of the file shows.

    Raises UsageError for another format in a Parquet file, or if pyarrow is missing.
    """
    if path and path.suffix.lower() == ".parquet":
        if form:
            raise UsageError(f"--format {form} does not fit {printable(storable(path))}: leave one of them out")
        check_parquet()
        return PARQUET
    return CLUSTER_WRITERS[form or (format_of_file(path) if path else choose_format(None))]
