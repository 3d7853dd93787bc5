"""Write the decisions about the rows of a table as a report."""

from collections.abc import Iterator
from itertools import groupby
from operator import attrgetter

import numpy as np

from simsql.decide.documents import I64, Similarities
from simsql.decide.verdicts import Verdicts
from simsql.dedup.comparing import Comparison
from simsql.dedup.run_report import Run, write_run_report
from simsql.dedup.store.store import StoredDocument
from simsql.dedup.table_job import TableSummary
from simsql.dedup.tables.options import TableOptions
from simsql.dedup.tables.source import UNSTEADY, SourceTable
from simsql.documents import SkipCount
from simsql.documents.spool import TextSpool
from simsql.errors import SimsqlError
from simsql.report.page import Writable


def write_table_report(
    file: Writable,
    source: SourceTable,
    options: TableOptions,
    summary: TableSummary,
    places: I64,
    comparison: Comparison,
    verdicts: Verdicts,
) -> None:
    """Write the report of a run that has decided about the rows of a table.

    `places` are those of the rows that were compared. The texts of clusters are read again, as the same snapshot
    shows them.
    """
    undecided = SkipCount()
    for reason, count in (
        ("without a scope", summary.without_scope),
        ("without a text", summary.without_text),
        ("without words", summary.without_words),
    ):
        if count:
            undecided.by_reason[reason] = count
    (members,) = np.nonzero(verdicts.cluster)
    members = members[np.argsort(verdicts.cluster[members], kind="stable")]
    with TextSpool() as texts:
        labels: dict[int, str] = {}
        number: dict[int, int] = {}
        for place, text, label in source.labelled_texts(places[members]):
            labels[place], number[place] = label, texts.count
            texts.append(text)
        if len(labels) < len(members):
            raise SimsqlError(UNSTEADY)

        def read_text(row: int) -> str:
            return texts.read(number[int(places[row])])

        def rows() -> Iterator[StoredDocument]:
            documents = comparison.documents
            for row in members.tolist():
                label = labels[int(places[row])]
                yield StoredDocument(
                    cluster=int(verdicts.cluster[row]),
                    id=row,
                    name=label,
                    place=label,
                    line=None,
                    identity="",
                    text_digest="",
                    characters=int(documents.characters[row]),
                    fingerprint=int(documents.fingerprint[row]),
                    seen=True,
                    present=True,
                    shared=False,
                    misleading=False,
                    mistakable=False,
                    kept=int(verdicts.kept[row]),
                    representative=int(verdicts.representative[row]),
                    kept_similarity=_known(verdicts.kept_similarity, row),
                    representative_similarity=_known(verdicts.representative_similarity, row),
                )

        run = Run(
            options.recipe,
            options.rules,
            summary.decided,
            read_text,
            _list_name,
            skipped={"not decided": undecided},
            noun="row",
        )
        clusters = (list(cluster) for _, cluster in groupby(rows(), key=attrgetter("cluster")))
        write_run_report(file, run, clusters, refused=())


def _known(similarities: Similarities, row: int) -> float | None:
    return None if np.isnan(similarities[row]) else float(similarities[row])


def _list_name(row: StoredDocument) -> str | None:
    return None if set("\n\r") & set(row.name) else row.name
