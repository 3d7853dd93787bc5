"""Bring together the documents of a table, the texts that this run has read, and the rules of the decisions."""

from collections.abc import Iterable
from decimal import Decimal, InvalidOperation
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simsql.decide.rules import Keep, Rules
from simsql.decide.stars import SimilarPairs
from simsql.decide.verdicts import (
    GONE,
    PRESENT,
    UNKNOWN,
    Helpers,
    Nodes,
    States,
    Verdicts,
    decide_documents,
    group_nodes,
)
from simsql.dedup.candidates import find_close, find_similar
from simsql.dedup.safety.confirming import Confirmer, is_stream
from simsql.dedup.store.results import Results, Rows
from simsql.documents import Report
from simsql.documents.spool import TokenSpool
from simsql.fingerprint import compare_documents

I64 = NDArray[np.int64]
U64 = NDArray[np.uint64]
Flags = NDArray[np.bool_]


class Spooled(NamedTuple):
    """The tokens of the documents that this run has read and that were not known."""

    tokens: TokenSpool
    ordinals: I64
    """Position of each of them in the order of reading."""

    def find(self, ordinal: I64) -> I64:
        """Return the positions among the tokens of documents in the order of reading; -1 if they are not there."""
        positions = np.full(max(ordinal.max(initial=-1), self.ordinals.max(initial=-1)) + 2, -1)
        positions[self.ordinals] = np.arange(len(self.ordinals))
        return positions[ordinal]  # the last one is for documents that were not read


class Decider:
    """Decide about the documents of a table."""

    def __init__(
        self,
        results: Results,
        confirmer: Confirmer,
        rows: Rows,
        rules: Rules,
        spooled: Spooled | None,
        *,
        kept: bool,
    ) -> None:
        self._results = results
        self._confirmer = confirmer
        self._rules = rules
        self._spooled = spooled
        documents = rows.documents
        self.ordinal = rows.ordinal
        self._words = rows.words
        self._position = np.full(len(documents.id), -1)
        if not rules.checks_texts:
            documents = documents._replace(compared=np.ones(len(documents.id), dtype=bool))
        elif spooled:
            self._position = spooled.find(rows.ordinal)
            here = self._position >= 0
            self._words = np.where(here, spooled.tokens.counts[self._position] if here.any() else 0, rows.words)
            if not kept:
                digests = spooled.tokens.digests[self._position].view(">u8").reshape(-1, 2)
                documents = documents._replace(words=digests.astype(np.uint64), compared=self._words > 0)
        self.documents = documents
        self.nodes = group_nodes(documents, self._position >= 0, by_words=rules.checks_texts)

    def decide(self, report: Report, workers: int | None) -> Verdicts:
        """Decide about all documents. `report` gets the number of pairs that have been compared."""

        def find_pairs(nodes: Nodes, new: Flags | None) -> SimilarPairs:
            distance, similarity = self._rules.distance, self._rules.similarity
            if not self._rules.checks_texts:
                return find_close(nodes.fingerprint, distance, new=new, workers=workers, report=report)
            return find_similar(
                nodes.fingerprint,
                self._words[nodes.example],
                self._read_tokens,
                distance,
                similarity,
                new=new,
                workers=workers,
                report=report,
            )

        helpers = Helpers(find_pairs, self.compare, self._look_for, self._order_by_name)
        return decide_documents(self.documents, self.nodes, helpers, self._rules, self._criterion())

    def compare(self, left: I64, right: I64) -> NDArray[np.float64]:
        """Return the similarities of pairs of nodes."""
        return compare_documents(self._words[self.nodes.example], self._read_tokens, left, right)

    def _read_tokens(self, nodes: I64) -> U64:
        """Return the tokens of nodes, from this run or from the table."""
        examples = self.nodes.example[nodes]
        positions = self._position[examples]
        here = positions >= 0
        if self._spooled and here.all():
            return self._spooled.tokens.read(positions)
        stored = self._results.read_words(self.documents.id[examples[~here]])
        if not self._spooled or not here.any():
            return stored
        tokens = np.empty(int(self._words[examples].sum()), dtype=np.uint64)
        spooled = np.repeat(here, self._words[examples])
        tokens[spooled] = self._spooled.tokens.read(positions[here])
        tokens[~spooled] = stored
        return tokens

    def _look_for(self, positions: I64) -> States:
        """Read documents of earlier runs again. What came from standard input stays unknown."""
        references = list(self._results.read_references(self.documents.id[positions]))
        found = self._confirmer.find(reference for reference in references if not is_stream(reference))
        states = {
            reference.id: PRESENT if reference.id in found else UNKNOWN if is_stream(reference) else GONE
            for reference in references
        }
        return np.array([states[id_] for id_ in self.documents.id[positions].tolist()], dtype=np.int8)

    def _order_by_name(self, positions: I64) -> I64:
        return np.searchsorted(self.documents.id, self._results.order_by_name(self.documents.id[positions]))

    def _criterion(self) -> I64:
        """Return a number for each document, which is higher for preferred documents."""
        if self._rules.keep_field is not None:
            values = self._results.read_values()
            ranks = rank_values(values.values())
            criterion = np.zeros(len(self.documents.id), dtype=np.int64)
            for position, id_ in enumerate(self.documents.id.tolist()):
                if id_ in values:
                    criterion[position] = ranks[values[id_]]
            return criterion
        if self._rules.keep is Keep.FIRST:
            return -self.documents.id
        if self._rules.keep is Keep.LONGEST:
            return self.documents.characters
        return np.zeros(len(self.documents.id), dtype=np.int64)


def rank_values(values: Iterable[str]) -> dict[str, int]:
    """Return the rank of each value, from 1: texts in the order of their characters, then numbers by size."""
    keys = {value: _sort_key(value) for value in values}
    ranks: dict[tuple[int, str | Decimal], int] = {}
    for key in sorted(keys.values()):
        ranks.setdefault(key, len(ranks) + 1)
    return {value: ranks[key] for value, key in keys.items()}


def _sort_key(value: str) -> tuple[int, str | Decimal]:
    try:
        number = Decimal(value)
    except InvalidOperation:
        return 0, value
    return (1, number) if number.is_finite() else (0, value)
