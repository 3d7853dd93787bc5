"""The main job for a table that exists: read its texts, decide, and write the decisions to a new table."""

from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
from sqlalchemy import Engine

from simsql.decide.criteria import criterion
from simsql.decide.documents import I64, U64, Documents
from simsql.decide.verdicts import decide
from simsql.dedup.candidates import Tokens
from simsql.dedup.comparing import Comparison
from simsql.dedup.evidence import gather_evidence
from simsql.dedup.tables.decisions import DecisionTable, RowVerdicts
from simsql.dedup.tables.options import TableOptions
from simsql.dedup.tables.source import KeyOrder, Row, SourceTable, open_table
from simsql.documents import Report, Stages
from simsql.documents.spool import TokenSpool
from simsql.fingerprint import (
    TokenLists,
    simhash_items_with_tokens,
    simhash_many,
    tokens_of_items,
)

Fingerprints: TypeAlias = "np.ma.MaskedArray[tuple[int], np.dtype[np.uint64]]"


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
    stored: int
    """Rows whose fingerprint was used."""
    decided: int
    clusters: int
    members: int
    """Rows in clusters."""
    droppable: int


def dedup_table(engine: Engine, options: TableOptions, stages: Stages) -> TableSummary:
    """Decide about the rows of a table, write the decisions to a new table, and return a summary.

    The rows are those of one snapshot; other sessions read and write the table all the while. A run that fails or
    is interrupted leaves no table. Raises UsageError and psycopg.Error as `open_table` and `DecisionTable` do.
    """
    with TokenSpool() as spool, open_table(engine, options) as source:
        decisions = DecisionTable(engine, source, options.into, replace=options.replace)
        with stages.stage("sort keys"):
            order = source.read_order(options.rules.keep_field)
        with stages.stage("read and fingerprint", len(order.place)) as report:
            texts = _Texts(source, options, spool, report)
        with stages.stage("check texts") as report:
            rows = texts.decidable(spool.counts)
            decided, sizes = _decide(rows, spool, order, options, report)
        with stages.stage("write decisions", len(decided.row)) as report:
            for written in decisions.write(decided):
                report(written)
    return TableSummary(
        len(order.place),
        int(np.count_nonzero(order.scope == 0)),
        texts.without_text,
        len(spool.counts) - len(rows.place),
        texts.stored_column,
        texts.stored,
        len(rows.place),
        int(np.count_nonzero(sizes > 1)),
        int(sizes[sizes > 1].sum()),
        int(np.count_nonzero(decided.drop)),
    )


class _Texts:
    """What one pass over the texts leaves in memory. The spool holds their tokens, in the same order."""

    def __init__(self, source: SourceTable, options: TableOptions, spool: TokenSpool, report: Report) -> None:
        self.without_text = self.stored = 0
        self._source = source
        self._recipe = options.recipe
        self._report = report
        self._places, self._characters = array("q"), array("q")
        self._fingerprints: list[Fingerprints] = []
        self.stored_column = source.find_stored(options.recipe)
        for rows, fingerprints, tokens in self._fingerprint(options.workers):
            self._places.extend(row.place for row in rows)
            self._characters.extend(row.characters for row in rows)
            self._fingerprints.append(fingerprints)
            spool.append(tokens)

    def _fingerprint(self, workers: int | None) -> Iterator[tuple[list[Row], Fingerprints, TokenLists]]:
        if self.stored_column is None:
            for rows, fingerprints, tokens, _ in simhash_items_with_tokens(self._rows(), self._recipe, workers):
                yield rows, fingerprints, tokens
            return
        # Only texts whose fingerprint is missing have to be kept until their tokens are there.
        items = (((row, text if row.stored is None else None), text) for row, text in self._rows())
        for batch, tokens in tokens_of_items(items, workers):
            rows = [row for row, _ in batch]
            missing = np.array([row.stored is None for row in rows])
            values = np.array([row.stored or 0 for row in rows], dtype=np.int64).view(np.uint64)
            fingerprints = np.ma.MaskedArray(values, mask=missing)
            fingerprints[missing] = simhash_many([text for _, text in batch if text is not None], self._recipe)
            yield rows, fingerprints, tokens

    def _rows(self) -> Iterator[tuple[Row, str]]:
        for number, found in enumerate(self._source.rows(self.stored_column), 1):
            self._report(number)
            if found is None:
                self.without_text += 1
            else:
                self.stored += found[0].stored is not None
                yield found
            del found  # a long text is not kept while the next one is read

    def decidable(self, counts: I64) -> "_Rows":
        """Return the rows with a fingerprint; `counts` are their numbers of tokens."""
        values = np.concatenate([np.zeros(0, dtype=np.uint64), *(found.data for found in self._fingerprints)])
        masks = [np.zeros(0, dtype=bool), *(np.ma.getmaskarray(found) for found in self._fingerprints)]
        (spooled,) = np.nonzero(~np.concatenate(masks))
        return _Rows(
            np.array(self._places, dtype=np.int64)[spooled],
            values[spooled],
            np.array(self._characters, dtype=np.int64)[spooled],
            counts[spooled],
            spooled,
        )


class _Rows(NamedTuple):
    """The rows with a fingerprint, one per array position."""

    place: I64
    fingerprint: U64
    characters: I64
    tokens: I64
    """Numbers of tokens."""
    spooled: I64
    """Positions in the spool."""


def _decide(
    rows: _Rows, spool: TokenSpool, order: KeyOrder, options: TableOptions, report: Report
) -> tuple[RowVerdicts, I64]:
    """Return the decisions, and the size of the cluster of each row that represents one."""
    rules = options.rules
    order = order.find(rows.place)
    everything = np.ones(len(rows.place), dtype=bool)
    documents = Documents.without_decisions(
        np.arange(len(rows.place)),
        rows.fingerprint,
        np.zeros(len(rows.place), dtype=np.uint64),
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
    decided = RowVerdicts(
        rows.place,
        rows.place[verdicts.kept],
        rows.place[verdicts.representative],
        np.bitwise_count(rows.fingerprint ^ rows.fingerprint[verdicts.kept]).astype(np.int64),
        verdicts.kept_similarity,
        verdicts.kept != np.arange(len(rows.place)),
    )
    return decided, np.bincount(verdicts.representative, minlength=1)
