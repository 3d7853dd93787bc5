"""Explain why two documents are together or apart."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from simsql.decide.verdicts import Verdicts
from simsql.dedup.comparing import Comparison
from simsql.dedup.store.store import Store
from simsql.documents import printable
from simsql.errors import UsageError
from simsql.fingerprint import show_similarity, sketch_distance

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


def explain_pair(
    store: Store, comparison: Comparison, verdicts: Verdicts, names: tuple[str, str], *, main_content: bool = False
) -> Explanation:
    """Explain the decisions about two documents. `main_content` is whether web pages were compared by theirs.

    Raises UsageError if there is no document with one of the names, or both are the same document.
    """
    ids = [_find(store, name) for name in names]
    if ids[0] == ids[1]:
        raise UsageError(f"{printable(names[0])!r} is one document: name two different ones with --explain")
    explained = explain_documents(ids, store.read_labels, comparison, verdicts)
    if main_content:
        reason = f"{explained.reason}; of web pages, only the main content was compared"
        explained = replace(explained, reason=reason)
    return explained


def explain_documents(
    ids: Sequence[int],
    read_labels: Callable[[Iterable[int]], Mapping[int, str]],
    comparison: Comparison,
    verdicts: Verdicts,
    undecided: Mapping[int, str] | None = None,
) -> Explanation:
    """Explain the decisions about two documents, given their ids and a function that returns names of documents.

    `undecided` has the reasons why nothing was decided about documents.
    """
    return _Explainer(ids, read_labels, comparison, verdicts, undecided or {}).explain()


def _find(store: Store, name: str) -> int:
    ids = store.find_named(name)
    if not ids:
        raise UsageError(f"no document is called {printable(name)!r}: name documents as the output does")
    if len(ids) > 1:
        places = sorted(store.read_labels(ids[:_PLACES]).values())
        more = ", ..." if len(ids) > _PLACES else ""
        raise UsageError(
            f"{len(ids):,} documents are called {printable(name)!r}: name one by its place:"
            f" {', '.join(places)}{more}"
        )
    return ids[0]


class _Explainer:
    def __init__(
        self,
        ids: Sequence[int],
        read_labels: Callable[[Iterable[int]], Mapping[int, str]],
        comparison: Comparison,
        verdicts: Verdicts,
        undecided: Mapping[int, str],
    ) -> None:
        self._comparison, self._verdicts, self._rules = comparison, verdicts, comparison.rules
        self._documents, self._nodes = comparison.documents, comparison.nodes.of_document
        self._ids, self._undecided = ids, undecided
        self._positions = [self._position(id_) for id_ in ids]
        there = [position for position in self._positions if position is not None]
        targets = np.concatenate([verdicts.kept[there], verdicts.representative[there]])
        self._labels = read_labels([*ids, *self._documents.id[targets].tolist()])

    def explain(self) -> Explanation:
        one, other = map(self._describe, self._ids, self._positions)
        a, b = self._positions
        if a is None or b is None:
            position = 0 if a is None else 1
            what = "is flat" if self._comparison.pictures else "has no words"
            reason = self._why_undecided(position, f"{{}} {what}, so it has no fingerprint")
            return Explanation((one, other), None, None, None, together=False, reason=reason)
        distance = int(np.bitwise_count(self._documents.fingerprint[a] ^ self._documents.fingerprint[b]))
        similarity = self._similarity(a, b)
        bits = int(np.bitwise_count(self._documents.sketch[a] ^ self._documents.sketch[b]))
        passing = sketch_distance(self._rules.similarity)
        together = bool(self._verdicts.representative[a] == self._verdicts.representative[b])
        clauses = f"{_decision(one)}; {_decision(other)}"
        if together:
            reason = self._why_together(a, b) + clauses
        elif one.kept is None or other.kept is None:
            position = 0 if one.kept is None else 1
            reason = self._why_undecided(position, "the words of {} are not known: read it again")
        elif not self._comparison.in_same_scope(a, b):
            reason = "they are in different scopes, so they were not compared"
        elif distance > self._rules.distance:
            reason = f"distance {distance} is above {self._rules.distance}"
        elif similarity is not None and similarity < self._rules.similarity:
            reason = f"similarity {show_similarity(similarity)} is below {self._rules.similarity:g}"
            if bits > passing:
                reason += f"; their sketches, which differ in {bits} bits, decided without the texts"
        elif similarity is not None and bits > passing:
            reason = f"their sketches differ in {bits} bits, more than {passing}, so their texts were not compared"
        else:
            reason = f"they are similar, but neither is kept in favour of the other or represents it; {clauses}"
        # Pictures have no sketches.
        estimate = None if similarity is None or self._comparison.pictures else max(0.0, 1 - bits / 32)
        return Explanation((one, other), distance, estimate, similarity, together=together, reason=reason)

    def _position(self, id_: int) -> int | None:
        position = int(np.searchsorted(self._documents.id, id_))
        exists = position < len(self._documents.id) and self._documents.id[position] == id_
        return position if exists else None

    def _why_undecided(self, position: int, otherwise: str) -> str:
        name, reason = printable(self._labels[self._ids[position]]), self._undecided.get(self._ids[position])
        return f"{name} {reason}" if reason else otherwise.format(name)

    def _describe(self, id_: int, position: int | None) -> ExplainedDocument:
        if position is None or not self._documents.compared[position]:
            return ExplainedDocument(self._labels[id_], None, None, None, protected=False)
        targets = self._verdicts.kept[position], self._verdicts.representative[position]
        kept, representative = (self._labels[int(self._documents.id[target])] for target in targets)
        similarity = float(self._verdicts.kept_similarity[position])
        return ExplainedDocument(
            self._labels[id_],
            kept,
            None if np.isnan(similarity) else similarity,
            representative,
            protected=bool(self._documents.protected[position]),
        )

    def _similarity(self, a: int, b: int) -> float | None:
        nodes = self._nodes[[a, b]]
        if not self._rules.checks_texts or (nodes < 0).any():
            return None
        return 1.0 if nodes[0] == nodes[1] else float(self._comparison.compare(nodes[:1], nodes[1:])[0])

    def _why_together(self, a: int, b: int) -> str:
        kept, representative = self._verdicts.kept, self._verdicts.representative
        if self._rules.checks_texts and self._nodes[a] == self._nodes[b]:
            same = "look the same" if self._comparison.pictures else "have the same words"
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
