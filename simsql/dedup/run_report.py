"""What a run has found, as its report shows it."""

from collections.abc import Container, Iterable, Sequence

import numpy as np

from simsql.decide.rules import Rules
from simsql.dedup.members import Member, arrange_members
from simsql.dedup.store.results import StoredDocument
from simsql.dedup.store.rows import Rows
from simsql.documents import printable
from simsql.documents.spool import TextSpool
from simsql.fingerprint import Recipe
from simsql.report import Closeness, ReportedMember, RunReport
from simsql.report.content import Decision

_PATHS = 5  # of the input, which the report names


def report_run(
    paths: Sequence[str],
    recipe: Recipe,
    rules: Rules,
    stored: int,
    clusters: Iterable[Sequence[StoredDocument]],
    rows: Rows,
    texts: TextSpool,
    refused: Container[int],
) -> RunReport:
    """Return the report of a run. The texts are those that the run has read, in this order.

    `refused` are the ids of documents that are not droppable.
    """
    ids, ordinals = rows.documents.id, rows.ordinal

    def read_text(document: int) -> str | None:
        ordinal = int(ordinals[np.searchsorted(ids, document)])
        return None if ordinal < 0 else texts.read(ordinal)

    named = [printable(path) for path in paths[:_PATHS]] + ["…"] * (len(paths) > _PATHS)
    options = {"input": " ".join(named), "recipe": recipe.id, "distance": f"{rules.distance}"}
    if rules.checks_texts:
        options |= {"similarity": f"{rules.similarity:g}", "drop similarity": f"{rules.drop:g}"}
    options["keep"] = rules.keep_field or str(rules.keep)
    return RunReport(
        stored,
        options,
        ([_describe(member) for member in arrange_members(documents, refused)] for documents in clusters),
        read_text,
        rules.similarity if rules.checks_texts else None,
        rules.drop if rules.checks_texts else None,
    )


def _describe(member: Member) -> ReportedMember:
    document = member.document
    decision: Decision = "dropped" if member.droppable else "kept"
    return ReportedMember(
        document.id,
        document.name,
        document.place,
        "representative" if document.id == member.representative.id else decision,
        member.kept.id,
        Closeness(member.kept_distance, document.kept_similarity),
        Closeness(member.distance, document.representative_similarity),
    )
