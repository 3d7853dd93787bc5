"""The main job for a table that exists: read its texts, decide, and write the decisions to a new table."""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
from sqlalchemy import Engine

from simsql.decide.criteria import criterion
from simsql.decide.documents import I64, U64, Documents
from simsql.decide.verdicts import Verdicts, decide
from simsql.dedup.candidates import Tokens, find_candidates
from simsql.dedup.comparing import Comparison, spread_scopes
from simsql.dedup.evidence import gather_evidence
from simsql.dedup.explaining import Explanation, explain_documents
from simsql.dedup.tables.decisions import DecisionTable, RowVerdicts
from simsql.dedup.tables.options import TableOptions
from simsql.dedup.tables.source import KeyOrder, LabelledRow, Row, SourceTable, open_table
from simsql.dedup.tables.stored import find_stored
from simsql.documents import Report, Stages, open_output
from simsql.documents.spool import TokenSpool
from simsql.fingerprint import (
    Fingerprints,
    TokenLists,
    simhash_items_with_tokens,
    simhash_many,
    sketches_of_tokens,
    tokens_of_items,
)

_Batch: TypeAlias = tuple[list[Row], Fingerprints, TokenLists, Fingerprints]


@dataclass(frozen=True)
class TableSummary:
    """The results of a run, in rows."""

    read: int
    without_scope: int
    """Rows with a null in a scope column. No decision is written about them."""
    without_text: int
    """Rows whose text is null. No decision is written about them."""
    without_words: int
    """Rows whose text has no fingerprint. No decision is written about them."""
    stored_column: str | None
    """The column whose fingerprints were used, if any."""
    ignored: str | None
    """Which column of fingerprints or sketches was not used, and why."""
    stored: int
    """Rows whose fingerprint was used."""
    unread: int
    """Rows whose text was not read, because no other row has a near fingerprint and a near sketch."""
    decided: int
    clusters: int
    members: int
    """Rows in clusters."""
    droppable: int
    explanation: Explanation | None


def dedup_table(engine: Engine, options: TableOptions, stages: Stages) -> TableSummary:
    """Decide about the rows of a table, write the decisions to a new table, and return a summary.

    The rows are those of one snapshot; other sessions read and write the table all the while. A run that fails or
    is interrupted leaves neither a table nor a report, and a run that explains writes neither. Raises UsageError
    and psycopg.Error as `open_table`, `SourceTable.find` and `DecisionTable` do.
    """
    options.outputs()
    # In this order: the report takes its name after the table has come into being.
    with ExitStack() as files, TokenSpool() as spool, open_table(engine, options) as source:
        asked = source.find(options.explain or ())
        decisions = DecisionTable(engine, source, options.into, replace=options.replace) if options.into else None
        with stages.stage("sort keys"):
            order = source.read_order(options.rules.keep_field)
        with stages.stage("read and fingerprint", len(order.place)) as report:
            texts = _Texts(source, options, spool, report)
            alone = texts.read_candidates(order, [row.place for row in asked])
        with stages.stage("check texts") as report:
            rows = texts.decidable(spool.counts)
            comparison, verdicts = _decide(rows, spool, order, options, report)
            if asked or options.report:
                comparison.complete(verdicts)
            explanation = _explain(source, asked, rows, order, comparison, verdicts) if asked else None
        decided = _with_alone(_to_write(rows, verdicts), alone)
        if decisions:
            with stages.stage("write decisions", len(decided.row)) as report:
                for written in decisions.write(decided):
                    report(written)
        sizes = np.bincount(verdicts.representative, minlength=1)
        summary = TableSummary(
            len(order.place),
            int(np.count_nonzero(order.scope == 0)),
            texts.without_text,
            len(spool.counts) - len(rows.place),
            texts.columns.fingerprint,
            texts.columns.ignored,
            texts.stored,
            len(alone),
            len(decided.row),
            int(np.count_nonzero(sizes > 1)),
            int(sizes[sizes > 1].sum()),
            int(np.count_nonzero(decided.drop)),
            explanation,
        )
        if options.report:
            # Here: the templates take longer to import than a short run.
            from simsql.dedup.table_report import write_table_report  # noqa: PLC0415

            with stages.stage("write report"):
                page = files.enter_context(open_output(options.report))
                write_table_report(page, source, options, summary, rows.place, comparison, verdicts)
                page.flush()
    return summary


class _Texts:
    """What one pass over the texts leaves in memory. The spool holds their tokens, in the same order."""

    def __init__(self, source: SourceTable, options: TableOptions, spool: TokenSpool, report: Report) -> None:
        self.without_text = self.stored = 0
        self._source, self._options, self._spool, self._report = source, options, spool, report
        self._recipe = options.recipe
        self._places, self._characters = array("q"), array("q")
        self._fingerprints: list[Fingerprints] = []
        self._sketches: list[U64] = [np.zeros(0, dtype=np.uint64)]
        self._unread = array("q")  # for each row whose text was not read: place, fingerprint, sketch
        self.columns = find_stored(source, options)
        if not options.rules.checks_texts:
            self.columns = self.columns._replace(sketch=None)
        if self.columns.fingerprint is None:
            self._add(simhash_items_with_tokens(self._rows(), self._recipe, options.workers))
        else:
            self._add(self._complete(self._rows()))

    def read_candidates(self, order: KeyOrder, asked: Sequence[int]) -> I64:
        """Read the texts of rows that have to be compared, and those at the places `asked`.

        Return the places of rows that are alone, whose texts are not read.
        """
        place, stored, sketch = np.array(self._unread, dtype=np.int64).reshape(-1, 3).T
        if not len(place):
            return place
        read, rules = self.decidable(self._spool.counts), self._options.rules
        scope = order.find(np.concatenate([place, read.place])).scope
        chosen = find_candidates(
            spread_scopes(np.concatenate([stored.view(np.uint64), read.fingerprint]), scope),
            np.concatenate([sketch.view(np.uint64), read.sketch]),
            rules.distance,
            rules.similarity,
            self._options.workers,
        )[: len(place)] | np.isin(place, asked)
        known = dict(zip(place[chosen].tolist(), stored[chosen].tolist(), strict=True))
        texts = self._source.texts(place[chosen])
        self._add(self._complete((Row(at, known[at], None, len(text)), text) for at, text in texts))
        return place[~chosen]

    def _add(self, batches: Iterable[_Batch]) -> None:
        for rows, fingerprints, tokens, sketches in batches:
            self._places.extend(row.place for row in rows)
            self._characters.extend(row.characters for row in rows)
            self._fingerprints.append(fingerprints)
            self._sketches.append(sketches.data)
            self._spool.append(tokens)

    def _complete(self, found: Iterable[tuple[Row, str]]) -> Iterator[_Batch]:
        """Yield rows with their fingerprints, the stored ones where there are any, and tokens and sketches."""
        # Only texts whose fingerprint is missing have to be kept until their tokens are there.
        items = (((row, text if row.stored is None else None), text) for row, text in found)
        for batch, tokens in tokens_of_items(items, self._options.workers):
            rows = [row for row, _ in batch]
            missing = np.array([row.stored is None for row in rows])
            values = np.array([row.stored or 0 for row in rows], dtype=np.int64).view(np.uint64)
            fingerprints = np.ma.MaskedArray(values, mask=missing)
            fingerprints[missing] = simhash_many([text for _, text in batch if text is not None], self._recipe)
            yield rows, fingerprints, tokens, sketches_of_tokens(tokens)

    def _rows(self) -> Iterator[tuple[Row, str]]:
        for number, found in enumerate(self._source.rows(self.columns.fingerprint, self.columns.sketch), 1):
            self._report(number)
            if found is None:
                self.without_text += 1
                continue
            row, text = found
            self.stored += row.stored is not None
            if text is not None:
                yield row, text
            elif row.stored is not None and row.sketch is not None:
                self._unread.extend((row.place, row.stored, row.sketch))
            del found, text  # a long text is not kept while the next one is read

    def decidable(self, counts: I64) -> "_Rows":
        """Return the rows with a fingerprint; `counts` are their numbers of tokens."""
        values = np.concatenate([np.zeros(0, dtype=np.uint64), *(found.data for found in self._fingerprints)])
        masks = [np.zeros(0, dtype=bool), *(np.ma.getmaskarray(found) for found in self._fingerprints)]
        (spooled,) = np.nonzero(~np.concatenate(masks))
        return _Rows(
            np.array(self._places, dtype=np.int64)[spooled],
            values[spooled],
            np.concatenate(self._sketches)[spooled],
            np.array(self._characters, dtype=np.int64)[spooled],
            counts[spooled],
            spooled,
        )


class _Rows(NamedTuple):
    """The rows with a fingerprint, one per array position."""

    place: I64
    fingerprint: U64
    sketch: U64
    characters: I64
    tokens: I64
    """Numbers of tokens."""
    spooled: I64
    """Positions in the spool."""


def _with_alone(decided: RowVerdicts, places: I64) -> RowVerdicts:
    """Return the decisions with those about rows that are kept without having been compared."""
    one, none = np.ones(len(places)), np.zeros(len(places), dtype=np.int64)
    alone = RowVerdicts(places, places, places, none, one, none.astype(bool))
    return RowVerdicts._make(np.concatenate(columns) for columns in zip(decided, alone, strict=True))


def _decide(
    rows: _Rows, spool: TokenSpool, order: KeyOrder, options: TableOptions, report: Report
) -> tuple[Comparison, Verdicts]:
    rules = options.rules
    order = order.find(rows.place)
    everything = np.ones(len(rows.place), dtype=bool)
    documents = Documents.without_decisions(
        np.arange(len(rows.place)),
        rows.fingerprint,
        rows.sketch,
        spool.digests[rows.spooled].view(">u8").reshape(-1, 2).astype(np.uint64),
        rows.tokens > 0 if rules.checks_texts else everything,
        rows.characters,
        everything,
    )
    tokens = Tokens(rows.tokens, lambda positions: spool.read(rows.spooled[positions]))
    comparison = Comparison(
        documents, tokens, rules, here=everything, scope=order.scope, workers=options.workers, report=report
    )
    evidence = gather_evidence(comparison)
    verdicts = decide(
        documents,
        comparison.nodes,
        evidence,
        rules,
        criterion(rules, order.by_key, rows.characters, -order.by_value),
        lambda positions: positions[np.argsort(order.by_key[positions])],
    )
    return comparison, verdicts


def _to_write(rows: _Rows, verdicts: Verdicts) -> RowVerdicts:
    return RowVerdicts(
        rows.place,
        rows.place[verdicts.kept],
        rows.place[verdicts.representative],
        np.bitwise_count(rows.fingerprint ^ rows.fingerprint[verdicts.kept]).astype(np.int64),
        verdicts.kept_similarity,
        verdicts.kept != np.arange(len(rows.place)),
    )


def _explain(
    source: SourceTable,
    asked: Sequence[LabelledRow],
    rows: _Rows,
    order: KeyOrder,
    comparison: Comparison,
    verdicts: Verdicts,
) -> Explanation:
    """Explain the decisions about two rows."""
    # The id of a row is its position, that of a row about which nothing was decided comes behind these.
    places = np.append(rows.place, [row.place for row in asked])
    ids = [int(np.flatnonzero(places == row.place)[0]) for row in asked]
    undecided = {}
    for id_, row in zip(ids, asked, strict=True):
        (scope,) = np.compress(order.place == row.place, order.scope).tolist() or [None]
        if scope is None:
            undecided[id_] = "is not among the rows of --where"
        elif scope == 0:
            undecided[id_] = "has a null in a scope column"
        elif row.without_text:
            undecided[id_] = "has no text"
        elif id_ < len(rows.place) and rows.tokens[id_] == 0:
            undecided[id_] = "has no words to compare"

    def read_labels(wanted: Iterable[int]) -> dict[int, str]:
        chosen = list(wanted)
        labels = {place: label for place, _, label in source.labelled_texts(np.unique(places[chosen]))}
        return {id_: labels[place] for id_, place in zip(chosen, places[chosen].tolist(), strict=True)}

    return explain_documents(ids, read_labels, comparison, verdicts, undecided)
