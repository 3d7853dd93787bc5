"""Compare the candidates among documents: those with the same words are one node."""

import numpy as np

from simsql.decide.documents import I64, NONE, U64, Documents, Flags, Similarities, group_nodes
from simsql.decide.rules import Rules
from simsql.decide.stars import SimilarPairs
from simsql.decide.verdicts import Verdicts
from simsql.dedup.candidates import Tokens, find_similar
from simsql.documents import Report
from simsql.fingerprint import compare_documents


def spread_scopes(fingerprints: U64, scope: I64) -> U64:
    """Return fingerprints that keep their distances within a scope and are as far apart as random ones across.

    So one search serves any number of scopes of any sizes, even if they all hold the same texts.
    """
    shift = np.random.default_rng(0).integers(0, 1 << 64, scope.max(initial=0) + 1, dtype=np.uint64)
    found: U64 = fingerprints ^ shift[scope]
    return found


class Comparison:
    """The nodes of documents, and how similar they are.

    Of the documents of a node, one of those `here` is read, if there is one. With `scope`, the number of a scope
    for each document, only documents of the same scope are compared. `report` gets the number of pairs that have
    been compared.
    """

    def __init__(
        self,
        documents: Documents,
        tokens: Tokens,
        rules: Rules,
        *,
        here: Flags,
        scope: I64 | None = None,
        workers: int | None,
        report: Report,
    ) -> None:
        self.documents = documents
        self.rules = rules
        self.nodes = group_nodes(documents, here, by_words=rules.checks_texts, scope=scope)
        example = self.nodes.example
        self._tokens = Tokens(tokens.counts[example], lambda nodes: tokens.read(example[nodes]), tokens.pictures)
        self.pictures = tokens.pictures
        self._scope = None if scope is None else scope[self.nodes.example]
        self._workers = workers
        self._report = report

    def find_pairs(self, new: Flags | None = None) -> SimilarPairs:
        """Return all pairs of similar nodes or, given flags, those with at least one flagged node."""
        if self._scope is None:
            return self._find_pairs(self.nodes.fingerprint, new)
        found = self._find_pairs(spread_scopes(self.nodes.fingerprint, self._scope), new)
        return found.where(self._scope[found.left] == self._scope[found.right])

    def in_same_scope(self, document: int, other: int) -> bool:
        """Return whether two documents, given their positions, may be compared. Both must have a node."""
        a, b = self.nodes.of_document[[document, other]]
        return self._scope is None or bool(self._scope[a] == self._scope[b])

    def compare(self, left: I64, right: I64) -> Similarities:
        """Return the similarities of pairs of nodes."""
        counts, read, pictures = self._tokens
        return compare_documents(counts, read, left, right, pictures=pictures)

    def complete(self, verdicts: Verdicts) -> None:
        """Fill in the similarities to representatives, which need not be near enough to be compared."""
        node = self.nodes.of_document
        for target, similarity in (
            (verdicts.kept, verdicts.kept_similarity),
            (verdicts.representative, verdicts.representative_similarity),
        ):
            missing = np.flatnonzero(np.isnan(similarity) & (node != NONE) & self.rules.checks_texts)
            if missing.size:
                left, first, inverse = np.unique(node[missing], return_index=True, return_inverse=True)
                similarity[missing] = self.compare(left, node[target[missing[first]]])[inverse]

    def _find_pairs(self, fingerprints: U64, new: Flags | None) -> SimilarPairs:
        return find_similar(
            fingerprints,
            self.documents.sketch[self.nodes.example],
            self._tokens if self.rules.checks_texts else None,
            self.rules.distance,
            self.rules.similarity,
            new=new,
            workers=self._workers,
            report=self._report,
        )
