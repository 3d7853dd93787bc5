"""Explain why two documents are together or apart."""

from dataclasses import dataclass

import numpy as np

from simsql.dedup.members import Decisions
from simsql.documents import printable
from simsql.errors import UsageError
from simsql.fingerprint import show_similarity


@dataclass(frozen=True)
class ExplainedDocument:
    """The decision about a document."""

    id: str
    """Its id or, if another document is called so, too, its place."""
    kept: str | None
    """The id of the document that is kept in its favour: its own if it is kept; None without a decision."""
    kept_similarity: float | None
    representative: str | None
    protected: bool
    """Whether it is never dropped, because of --keep-under or --against."""


@dataclass(frozen=True)
class Explanation:
    """The decisions about two documents, and what decided whether they are together."""

    documents: tuple[ExplainedDocument, ExplainedDocument]
    distance: int | None
    """None if a document has no fingerprint."""
    sketch_estimate: float | None
    """The similarity as the sketches estimate it; None if texts are not compared, or a document has no sketch."""
    similarity: float | None
    """None if texts are not compared, or the words of a document are not known."""
    together: bool
    """Whether they are in the same cluster."""
    reason: str
    """The reason in words, without a full stop."""


def explain_pair(decisions: Decisions, names: tuple[str, str]) -> Explanation:
    """Explain the decisions about two documents.

    Raises UsageError if there is no document with one of the names, or both are the same document.
    """
    positions = [decisions.source.find(name) for name in names]
    if positions[0] == positions[1]:
        raise UsageError(f"{printable(names[0])!r} is one document: name two different ones with --explain")
    return _Explainer(decisions).explain(*positions)


class _Explainer:
    def __init__(self, decisions: Decisions) -> None:
        self._source, self._comparison, self._verdicts = decisions
        self._rules, self._documents = self._comparison.rules, self._comparison.documents
        self._nodes = self._comparison.nodes.of_document
        self._pictures = self._comparison.corpus.pictures

    def explain(self, a: int, b: int) -> Explanation:
        one, other = self._describe(a), self._describe(b)
        compared = self._comparison.corpus.features.has_fingerprint
        for position in (a, b):
            has_fingerprint = position < len(compared) and bool(compared[position])
            if not has_fingerprint and not (self._pictures and self._nodes[a] == self._nodes[b]):
                empty = "is empty" if self._rules.exact else "has no words, so it has no fingerprint"
                empty = "is only compared with identical files" if self._pictures else empty
                reason = self._why_undecided(position, empty)
                return Explanation((one, other), None, None, None, together=False, reason=reason)
        distance = int(np.bitwise_count(self._documents.fingerprint[a] ^ self._documents.fingerprint[b]))
        nodes, similarity = self._nodes[[a, b]], None
        if self._rules.checks_texts and not self._rules.exact and (nodes >= 0).all():
            similarity = float(self._comparison.compare(nodes[:1], nodes[1:])[0]) if nodes[0] != nodes[1] else 1.0
        sketch = self._comparison.corpus.features.sketch
        bits = int(np.bitwise_count(sketch[a] ^ sketch[b]))
        together = bool(self._verdicts.representative[a] == self._verdicts.representative[b])
        clauses = f"{_decision(one)}; {_decision(other)}"
        if together:
            reason = self._why_together(a, b) + clauses
        elif one.kept is None or other.kept is None:
            reason = self._why_undecided(a if one.kept is None else b, "has no words to compare")
        elif not self._comparison.in_same_scope(a, b):
            reason = "they are in different scopes, so they were not compared"
        elif self._rules.exact:
            reason = "they are not identical"
        elif distance > self._rules.distance and (similarity is None or self._pictures):
            reason = f"distance {distance} is above {self._rules.distance}"
        elif similarity is not None and similarity < self._rules.similarity:
            reason = f"similarity {show_similarity(similarity)} is below {self._rules.similarity:g}"
        elif not self._comparison.are_candidates(a, b):
            reason = "their bands, sketches and fingerprints are too far apart, so their texts were not compared"
        else:
            reason = f"they are similar, but neither is kept in favour of the other or represents it; {clauses}"
        # Pictures have no sketches.
        estimate = None if similarity is None or self._pictures else max(0.0, 1 - bits / 32)
        return Explanation((one, other), distance, estimate, similarity, together=together, reason=reason)

    def _why_undecided(self, position: int, otherwise: str) -> str:
        reason = self._source.why_undecided(position) or otherwise
        return f"{printable(self._label(position))} {reason}"

    def _label(self, position: int) -> str:
        return self._source.names(np.array([position])).labels()[0]

    def _describe(self, position: int) -> ExplainedDocument:
        label = self._label(position)
        if position >= len(self._documents.compared) or not self._documents.compared[position]:
            return ExplainedDocument(label, None, None, None, protected=False)
        targets = self._verdicts.kept[position], self._verdicts.representative[position]
        kept, representative = (self._label(int(target)) for target in targets)
        similarity = float(self._verdicts.kept_similarity[position])
        return ExplainedDocument(
            label,
            kept,
            None if np.isnan(similarity) else similarity,
            representative,
            protected=bool(self._documents.protected[position]),
        )

    def _why_together(self, a: int, b: int) -> str:
        kept, representative = self._verdicts.kept, self._verdicts.representative
        if self._rules.checks_texts and self._nodes[a] == self._nodes[b]:
            words = "are identical" if self._rules.exact else "have the same words"
            same = "look the same" if self._pictures else words
            return f"they {same}; "
        if b in (kept[a], representative[a]) or a in (kept[b], representative[b]):
            return ""
        return "both were compared with other documents of the cluster; "


def _decision(document: ExplainedDocument) -> str:
    name = printable(document.id)
    if document.kept == document.id:
        name += " is kept, because of --keep-under or --against" if document.protected else " is kept"
        if document.representative == document.id:
            return name
        return f"{name}, in the cluster of {printable(document.representative or '')}"
    at = "" if document.kept_similarity is None else f" (similarity {show_similarity(document.kept_similarity)})"
    return f"{name} is dropped in favour of {printable(document.kept or '')}{at}"
