"""Compare the candidates among documents: those with the same words are one node."""

import numpy as np

from simsql.decide.documents import I64, NONE, U64, Documents, Similarities, group_nodes
from simsql.decide.rules import Rules
from simsql.decide.stars import SimilarPairs
from simsql.decide.verdicts import Verdicts, decide
from simsql.dedup.candidates import Tokens, find_similar
from simsql.dedup.corpus import Corpus
from simsql.documents import Report
from simsql.documents.spool import TokenSpool
from simsql.fingerprint import compare_documents


def spread_scopes(fingerprints: U64, scope: I64) -> U64:
    """Return fingerprints that keep their distances within a scope and are as far apart as random ones across.

    So one search serves any number of scopes of any sizes, even if they all hold the same texts.
    """
    shift = np.random.default_rng(0).integers(0, 1 << 64, scope.max(initial=0) + 1, dtype=np.uint64)
    found: U64 = fingerprints ^ shift[scope]
    return found


class Comparison:
    """The nodes of a corpus, and how similar they are.

    The tokens of the documents are in `tokens`. `report` gets the number of pairs that have been compared.
    """

    def __init__(
        self, corpus: Corpus, tokens: TokenSpool, rules: Rules, *, workers: int | None, report: Report
    ) -> None:
        self.corpus = corpus
        self.rules = rules
        found = corpus.features
        self.documents = Documents(
            found.fingerprint,
            found.words,
            found.has_fingerprint & ((found.token_count > 0) | (not rules.checks_texts)),
            corpus.characters,
            np.zeros(len(corpus.characters), dtype=bool) if corpus.protected is None else corpus.protected,
        )
        self.nodes = group_nodes(self.documents, by_words=rules.checks_texts, scope=corpus.scope)
        example = self.nodes.example
        starts, counts = found.token_start[example], found.token_count[example]
        self._tokens = Tokens(counts, lambda nodes: tokens.read_at(starts[nodes], counts[nodes]), corpus.pictures)
        self._scope = None if corpus.scope is None else corpus.scope[example]
        self._workers = workers
        self._report = report

    def decide(self, pairs: SimilarPairs) -> Verdicts:
        """Return the decisions, given all pairs, with all similarities: see `simsql.decide.verdicts.decide`."""
        corpus = self.corpus
        verdicts = decide(self.documents, self.nodes, pairs, self.rules, corpus.criterion, corpus.order_by_name)
        # Representatives need not be near enough to be compared.
        node = self.nodes.of_document
        for target, similarity in (
            (verdicts.kept, verdicts.kept_similarity),
            (verdicts.representative, verdicts.representative_similarity),
        ):
            missing = np.flatnonzero(np.isnan(similarity) & (node != NONE) & self.rules.checks_texts)
            if missing.size:
                left, first, inverse = np.unique(node[missing], return_index=True, return_inverse=True)
                similarity[missing] = self.compare(left, node[target[missing[first]]])[inverse]
        return verdicts

    def find_pairs(self) -> SimilarPairs:
        """Return all pairs of similar nodes or, with an archive of protected documents, those not inside it."""
        new = ~self.nodes.of_documents(self.documents.protected) if self.rules.to_archive else None
        fingerprints = self.nodes.fingerprint
        found = find_similar(
            fingerprints if self._scope is None else spread_scopes(fingerprints, self._scope),
            self.corpus.features.sketch[self.nodes.example],
            self._tokens if self.rules.checks_texts else None,
            self.rules.distance,
            self.rules.similarity,
            new=new,
            workers=self._workers,
            report=self._report,
        )
        return found if self._scope is None else found.where(self._scope[found.left] == self._scope[found.right])

    def in_same_scope(self, document: int, other: int) -> bool:
        """Return whether two documents, given their positions, may be compared. Both must have a node."""
        a, b = self.nodes.of_document[[document, other]]
        return self._scope is None or bool(self._scope[a] == self._scope[b])

    def compare(self, left: I64, right: I64) -> Similarities:
        """Return the similarities of pairs of nodes."""
        counts, read, pictures = self._tokens
        return compare_documents(counts, read, left, right, pictures=pictures)
