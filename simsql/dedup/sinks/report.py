"""Write what a run has found as a report."""

import shlex
import sys
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from datetime import datetime
from itertools import chain, combinations, islice
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from simsql.dedup.members import Decisions, Member
from simsql.documents import name_paths, printable
from simsql.documents.formats.pictures import show_picture
from simsql.documents.output import Output
from simsql.fingerprint import Recipe
from simsql.report import Closeness, ReportedMember, RunReport, write_report
from simsql.report.content import Decision

_Content = Callable[[int], object]

_PICTURES = 5000  # in a report: more of them would not fit
_LONGEST = 2000  # characters of a command that the report shows
_STAR = 32  # documents dropped in favour of one, at most, if the page is to know which else could be kept
_BATCH = 500  # clusters whose documents are compared at once


def picture_reader(
    path_of: Callable[[int], str], read_text: Callable[[int], str | None]
) -> Callable[[int], str | None]:
    """Return a function that reads the size and a small copy of a picture, for as many as a page can have."""
    left = _PICTURES

    def read(position: int) -> str | None:
        nonlocal left
        text = read_text(position)
        shown = show_picture(Path(path_of(position)), text) if text is not None and left else None
        left -= bool(shown)
        return shown

    return read


def write_run_report(
    file: TextIO | Output[str],
    decisions: Decisions,
    recipe: Recipe,
    list_name: Callable[[Member], str | None],
    *,
    refused: Container[int] = (),
    content_of: _Content = int,
    **facts: Any,
) -> None:
    """Write the report of a run. `refused` has the positions of documents that are not droppable.

    `list_name` returns the name of a document in a drop list; None if the line could mean something else.
    `content_of` returns what two documents share that are in one place, so that neither must be dropped for the
    other. `facts` are the other fields of `RunReport`.
    """
    rules = decisions.comparison.rules
    options = {"date": f"{datetime.now().astimezone():%Y-%m-%d %H:%M %Z}", "recipe": recipe.id}
    options["distance"] = f"{rules.distance}"
    if rules.checks_texts:
        options |= {"similarity": f"{rules.similarity:g}", "drop similarity": f"{rules.drop:g}"}
    options["keep"] = rules.keep_field or str(rules.keep)
    if rules.keep_under:
        options["keep under"] = name_paths(rules.keep_under)
    found = RunReport(
        options=options,
        clusters=_describe(decisions, list_name, decisions.clusters(refused), content_of),
        drop_similarity=rules.drop if rules.checks_texts else None,
        command=show_command(sys.argv[1:]),
        **facts,
    )
    write_report(file, found)


def show_command(arguments: Sequence[str]) -> str:
    """Return a command of simsql as one line for a shell, without --database, whose URL may have a password."""
    shown: list[str] = []
    for argument in arguments:
        if shown and shown[-1] == "--database":
            shown.append("…")
        else:
            shown.append("--database=…" if argument.startswith("--database=") else shlex.quote(argument))
    line = printable(" ".join(["simsql", *shown]))
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]} …"


def _describe(
    decisions: Decisions,
    list_name: Callable[[Member], str | None],
    clusters: Iterator[list[Member]],
    content_of: _Content,
) -> Iterator[list[ReportedMember]]:
    protected = decisions.comparison.documents.protected

    def describe(member: Member, similarities: Sequence[float | None]) -> ReportedMember:
        decision: Decision = "dropped" if member.droppable else "kept"
        may_go = member.droppable or (member.is_kept and not protected[member.position])
        return ReportedMember(
            member.position,
            member.name,
            member.place,
            "representative" if member.position == member.representative else decision,
            member.kept,
            Closeness(member.kept_distance, member.kept_similarity),
            Closeness(member.distance, member.similarity),
            list_name(member) if may_go else None,
            member.kind if member.droppable else None,
            similarities,
        )

    while batch := list(islice(clusters, _BATCH)):
        found = _compare_drops(decisions, chain.from_iterable(batch), content_of)
        for members in batch:
            yield [describe(member, found.get(member.position, ())) for member in members]


def _compare_drops(
    decisions: Decisions, members: Iterable[Member], content_of: _Content
) -> dict[int, list[float | None]]:
    """Return the similarities of dropped documents to those before them that are dropped in favour of the same."""
    stars: dict[int, list[int]] = defaultdict(list)
    for member in members:
        if member.droppable and member.kept_similarity is not None:
            stars[member.kept].append(member.position)
    pairs = [pair for star in stars.values() if len(star) <= _STAR for pair in combinations(star, 2)]
    found: dict[int, list[float | None]] = defaultdict(list)
    if pairs:
        left, right = decisions.comparison.nodes.of_document[np.array(pairs).T]
        known = np.ones(len(pairs))
        other = left != right
        known[other] = decisions.comparison.compare(left[other], right[other])
        for (first, second), similarity in zip(pairs, known.tolist(), strict=True):
            found[second].append(None if content_of(first) == content_of(second) else similarity)
    return found
