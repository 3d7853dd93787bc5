"""Compare the candidates among documents: those with the same words are one node."""

from collections.abc import Iterator

import numpy as np

from simsql.decide.documents import I64, NONE, Documents, Flags, Similarities, group_nodes
from simsql.decide.rules import Rules
from simsql.decide.stars import SimilarPairs
from simsql.decide.verdicts import Verdicts, decide
from simsql.dedup.bands import Buckets, Described
from simsql.dedup.candidates import choose_similar, compare_candidates, near_pairs
from simsql.dedup.corpus import Corpus
from simsql.dedup.crowds import Crowds
from simsql.documents import Report
from simsql.documents.spool import TokenSpool
from simsql.fingerprint import Tokens, compare_documents, compare_pairs, mix, pairs_of


class Comparison:
    """The nodes of a corpus, and how similar they are: `find_pairs`, then `decide`.

    The tokens of the documents are in `tokens`. Reports get the number of pairs that have been compared.
    """

    def __init__(self, corpus: Corpus, tokens: TokenSpool, rules: Rules) -> None:
        self.corpus = corpus
        self.rules = rules
        found = corpus.features
        # Pictures without a fingerprint are compared by their bytes.
        compared = found.has_fingerprint | corpus.pictures
        self.documents = Documents(
            found.fingerprint,
            found.words,
            compared & ((found.token_count > 0) | rules.exact | (not rules.checks_texts)),
            corpus.characters,
            np.zeros(len(corpus.characters), dtype=bool) if corpus.protected is None else corpus.protected,
            corpus.digests,
        )
        self.nodes = group_nodes(self.documents, by_words=rules.checks_texts, scope=corpus.scope)
        example = self.nodes.example
        starts, counts = found.token_start[example], found.token_count[example]
        self._tokens = Tokens(
            counts,
            lambda nodes: tokens.read_at(starts[nodes], counts[nodes]),
            "pictures" if corpus.pictures else "features" if rules.by_features else "words",
        )
        self._scope = None if corpus.scope is None else corpus.scope[example]
        unseen = np.flatnonzero(~found.has_fingerprint[example])
        if unseen.size:  # they are like no other node
            self._scope = np.zeros(len(example), dtype=np.int64) if self._scope is None else self._scope
            self._scope[unseen] = -1 - unseen
        self._compared = 0

    def find_pairs(self, workers: int | None, report: Report) -> None:
        """Find the pairs of similar nodes that can be listed; with an archive, those that are not inside it."""
        self._report = report
        new = ~self.nodes.of_documents(self.documents.protected) if self.rules.to_archive else None
        self._crowds: Crowds | None = None
        if self.rules.exact:  # nodes tell all
            compared: Iterator[tuple[I64, I64, Similarities]] = iter(())
        elif self.rules.checks_texts and not self.corpus.pictures:
            # Fingerprints are as near as sketches to similarities by trigrams, and farther to those by features.
            distance = 64 if self.rules.by_features else self.rules.distance
            self._buckets = Buckets(self._described(), distance, self.rules.similarity, new)
            compared = compare_candidates(self._tokens, self._buckets.pairs(), self.rules.similarity)
            self._crowds = Crowds(self._buckets, self._compare_similar)
        else:
            compared = self._compare_near(new, workers)
        self.pairs = choose_similar(compared, self.rules.similarity, self._count)

    def decide(self, report: Report) -> Verdicts:
        """Return the decisions, with all similarities: see `simsql.decide.verdicts.decide`."""
        self._report, corpus = report, self.corpus
        given = self.documents, self.nodes, self.pairs, self._crowds, self.rules
        verdicts = decide(*given, corpus.criterion, corpus.order_by_name)
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

    def _described(self) -> Described:
        """Return what finds the candidates among the nodes; scopes have no keys in common, but by chance."""
        found, example = self.corpus.features, self.nodes.example
        bands = np.ascontiguousarray(found.bands[example].T)
        if self._scope is not None:
            bands ^= mix(self._scope.astype(np.uint64)).astype(np.uint32)
        return Described(self.nodes.fingerprint, found.sketch[example], bands, self._scope)

    def _compare_near(self, new: Flags | None, workers: int | None) -> Iterator[tuple[I64, I64, Similarities]]:
        """Yield the pairs with near fingerprints, and their similarities: of pictures, or the share of bits."""
        fingerprints, scope = self.nodes.fingerprint, self._scope
        if scope is not None:
            # They keep their distances within a scope, and are as far apart as random ones across: so one search
            # serves any number of scopes of any sizes, even if they all hold the same texts.
            fingerprints = fingerprints ^ mix(scope.astype(np.uint64))
        found = near_pairs(fingerprints, self.rules.distance, new, workers)
        if scope is not None:
            found = ((a[same], b[same]) for a, b in found if len(same := scope[a] == scope[b]))
        if self.rules.checks_texts:
            return compare_candidates(self._tokens, found)
        return ((a, b, 1 - np.bitwise_count(fingerprints[a] ^ fingerprints[b]) / 64) for a, b in found)

    def _compare_similar(self, left: I64, right: I64) -> SimilarPairs:
        compared = compare_pairs(self._tokens, pairs_of(left, right))
        return choose_similar(compared, self.rules.similarity, self._count)

    def _count(self, pairs: int) -> None:
        self._compared += pairs
        self._report(self._compared)

    def are_candidates(self, document: int, other: int) -> bool:
        """Return whether two documents, given their positions, are compared unless a crowd keeps them apart."""
        a, b = self.nodes.of_document[[document, other]][:, None]
        return self._crowds is None or bool(self._buckets.meet(a, b)[0])

    def in_same_scope(self, document: int, other: int) -> bool:
        """Return whether two documents, given their positions, may be compared. Both must have a node."""
        a, b = self.nodes.of_document[[document, other]]
        return self._scope is None or bool(self._scope[a] == self._scope[b])

    def compare(self, left: I64, right: I64) -> Similarities:
        """Return the similarities of pairs of nodes."""
        return compare_documents(self._tokens, left, right)
