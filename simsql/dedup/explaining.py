"""Explain why two documents are together or apart."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from simsql.decide.documents import Documents
from simsql.decide.rules import Rules, show_similarity
from simsql.decide.verdicts import Verdicts
from simsql.dedup.comparing import Comparison
from simsql.dedup.store.results import Results
from simsql.documents import printable
from simsql.errors import UsageError

_PLACES = 5  # that an error names


@dataclass(frozen=True)
class ExplainedDocument:
    """The decision about a document."""

    id: str
    """Its id or, if other documents have it, too, its place."""
    kept: str | None
    """The id of the document that is kept in its favour: its own if it is kept; None without a decision."""
    kept_similarity: float | None
    representative: str | None


@dataclass(frozen=True)
class Explanation:
    """The decisions about two documents, and what decided whether they are together."""

    documents: tuple[ExplainedDocument, ExplainedDocument]
    distance: int | None
    """None if a document has no fingerprint."""
    similarity: float | None
    """None if texts are not compared, or the words of a document are not known."""
    together: bool
    """Whether they are in the same cluster."""
    reason: str
    """The reason in words, without a full stop."""


def explain_pair(
    results: Results,
    documents: Documents,
    comparison: Comparison,
    verdicts: Verdicts,
    rules: Rules,
    names: tuple[str, str],
) -> Explanation:
    """Explain the decisions about two documents.

    Raises UsageError if there is no document with one of the names, or both are the same document.
    """
    return _Explainer(results, documents, comparison, verdicts, rules).explain(*names)


class _Explainer:
    def __init__(
        self, results: Results, documents: Documents, comparison: Comparison, verdicts: Verdicts, rules: Rules
    ) -> None:
        self._results = results
        self._documents = documents
        self._comparison = comparison
        self._verdicts = verdicts
        self._rules = rules
        self._names: dict[int, str] = {}

    def explain(self, one: str, other: str) -> Explanation:
        ids = [self._find(one), self._find(other)]
        if ids[0] == ids[1]:
            raise UsageError(f"{printable(one)!r} is one document: name two different ones with --explain")
        positions = [self._position(id_) for id_ in ids]
        targets = [
            int(self._documents.id[found[position]])
            for position in positions
            if position is not None
            for found in (self._verdicts.kept, self._verdicts.representative)
        ]
        self._names = self._results.read_labels([*ids, *targets])
        explained = [self._describe(id_, position) for id_, position in zip(ids, positions, strict=True)]
        a, b = positions
        if a is None or b is None:
            without = explained[0 if a is None else 1].id
            reason = f"{printable(without)} has no words, so it has no fingerprint"
            return Explanation((explained[0], explained[1]), None, None, together=False, reason=reason)
        fingerprints = self._documents.fingerprint
        distance = int(np.bitwise_count(fingerprints[a] ^ fingerprints[b]))
        similarity = self._similarity(a, b)
        together = bool(self._verdicts.representative[a] == self._verdicts.representative[b])
        if together:
            reason = self._why_together(a, b, explained)
        else:
            reason = self._why_apart(a, b, explained, distance, similarity)
        return Explanation((explained[0], explained[1]), distance, similarity, together=together, reason=reason)

    def _find(self, name: str) -> int:
        ids = self._results.find_named(name)
        if not ids:
            raise UsageError(f"no document is called {printable(name)!r}: name documents as the output does")
        if len(ids) > 1:
            places = sorted(self._results.read_labels(ids[:_PLACES]).values())
            more = ", ..." if len(ids) > _PLACES else ""
            raise UsageError(
                f"{len(ids):,} documents are called {printable(name)!r}: name one by its place:"
                f" {', '.join(places)}{more}"
            )
        return ids[0]

    def _position(self, id_: int) -> int | None:
        position = int(np.searchsorted(self._documents.id, id_))
        exists = position < len(self._documents.id) and self._documents.id[position] == id_
        return position if exists else None

    def _name(self, position: int) -> str:
        return self._names[int(self._documents.id[position])]

    def _describe(self, id_: int, position: int | None) -> ExplainedDocument:
        if position is None or not self._documents.compared[position]:
            return ExplainedDocument(self._names[id_], None, None, None)
        kept, representative = self._verdicts.kept[position], self._verdicts.representative[position]
        similarity = float(self._verdicts.kept_similarity[position])
        return ExplainedDocument(
            self._names[id_],
            self._name(kept),
            None if np.isnan(similarity) else similarity,
            self._name(representative),
        )

    def _similarity(self, a: int, b: int) -> float | None:
        nodes = self._comparison.nodes.of_document[[a, b]]
        if not self._rules.checks_texts or (nodes < 0).any():
            return None
        if nodes[0] == nodes[1]:
            return 1.0
        return float(self._comparison.compare(nodes[:1], nodes[1:])[0])

    def _why_together(self, a: int, b: int, explained: Sequence[ExplainedDocument]) -> str:
        kept = self._verdicts.kept
        clauses = [_decision(document) for document in explained]
        nodes = self._comparison.nodes.of_document
        if self._rules.checks_texts and nodes[a] == nodes[b]:
            return f"they have the same words; {'; '.join(clauses)}"
        if b in (kept[a], self._verdicts.representative[a]) or a in (kept[b], self._verdicts.representative[b]):
            return "; ".join(clauses)
        return f"both were compared with other documents of the cluster; {'; '.join(clauses)}"

    def _why_apart(
        self,
        a: int,
        b: int,
        explained: Sequence[ExplainedDocument],
        distance: int,
        similarity: float | None,
    ) -> str:
        for position, document in zip((a, b), explained, strict=True):
            if not self._documents.compared[position]:
                return f"the words of {printable(document.id)} are not known: read it again"
        if distance > self._rules.distance:
            return f"distance {distance} is above {self._rules.distance}"
        if similarity is not None and similarity < self._rules.similarity:
            return f"similarity {show_similarity(similarity)} is below {self._rules.similarity:g}"
        clauses = "; ".join(_decision(document) for document in explained)
        return f"they are similar, but neither is kept in favour of the other or represents it; {clauses}"


def _decision(document: ExplainedDocument) -> str:
    name = printable(document.id)
    if document.kept == document.id:
        if document.representative == document.id:
            return f"{name} is kept"
        return f"{name} is kept, in the cluster of {printable(document.representative or '')}"
    at = "" if document.kept_similarity is None else f" (similarity {show_similarity(document.kept_similarity)})"
    return f"{name} is dropped in favour of {printable(document.kept or '')}{at}"
