"""Decisions about documents, compared with their definition in plain Python."""

from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
import stars
from hypothesis import given
from hypothesis import strategies as st

from simsql.decide.documents import Documents, group_nodes
from simsql.decide.kinds import DIGESTS
from simsql.decide.rules import Rules
from simsql.decide.stars import SimilarPairs
from simsql.decide.verdicts import decide

RULES = Rules(similarity=0.6, drop_similarity=0.7)
TEXTS = 9


@dataclass(frozen=True)
class Document:
    """A document, and the decision about it."""

    text: int
    """Documents with the same number have the same words; -1 without words."""
    characters: int
    criterion: int = 0
    protected: bool = False
    name: str = ""
    number: int = 0
    """Its position."""
    kept: int = 0
    representative: int = 0
    cluster: int = 0


def numbered(docs):
    return [replace(document, number=number) for number, document in enumerate(docs)]


documents = st.lists(
    st.builds(
        Document,
        text=st.integers(-1, TEXTS - 1),
        characters=st.integers(1, 3),
        criterion=st.integers(0, 1),
        protected=st.sampled_from([False, False, False, True]),
    ),
    max_size=14,
).map(
    lambda found: numbered(replace(each, name=f"name {number * 7919 % 101}") for number, each in enumerate(found))
)
# How similar two texts are. Few different values, so that ties happen.
tables = st.fixed_dictionaries(
    {(a, b): st.sampled_from([0.0, 0.0, 0.6, 0.65, 0.7, 0.8]) for a in range(TEXTS) for b in range(a + 1, TEXTS)}
)


def alike(table, a, b):
    return 1.0 if a == b else table[min(a, b), max(a, b)]


def run(docs, table, *, to_archive=False):
    """Decide, and return the documents with their decisions."""

    def column(values, kind=np.int64):
        return np.array(list(values), dtype=kind)

    words = column((document.text + 1 for document in docs), np.uint64)
    given_documents = Documents(
        fingerprint=words * np.uint64(3),
        words=np.stack([words, words], axis=1),
        compared=words > 0,
        characters=column(document.characters for document in docs),
        protected=column((document.protected for document in docs), bool),
        digests=np.zeros((len(docs), DIGESTS), dtype=np.int64),
    )
    nodes = group_nodes(given_documents, by_words=True)
    texts = [docs[position].text for position in nodes.example]
    assert texts == sorted({document.text for document in docs} - {-1})
    archived = nodes.of_documents(given_documents.protected) if to_archive else np.zeros(nodes.total, dtype=bool)
    pairs = [
        (left, right, table[texts[left], texts[right]])
        for left in range(nodes.total)
        for right in range(left + 1, nodes.total)
        if not (archived[left] and archived[right])
    ]
    left, right, similarity = zip(*pairs, strict=True) if pairs else ((), (), ())
    verdicts = decide(
        given_documents,
        nodes,
        SimilarPairs(column(left), column(right), column(similarity, float)).at_least(RULES.similarity),
        None,
        replace(RULES, to_archive=to_archive),
        column(document.criterion for document in docs),
        lambda asked: column(sorted(asked, key=lambda position: docs[position].name)),
    )
    for position, document in enumerate(docs):
        for targets, similarities in (
            (verdicts.kept, verdicts.kept_similarity),
            (verdicts.representative, verdicts.representative_similarity),
        ):
            similarity, other = similarities[position], docs[targets[position]]
            assert np.isnan(similarity) or similarity == alike(table, document.text, other.text)
    decisions = zip(
        docs, *(each.tolist() for each in (verdicts.kept, verdicts.representative, verdicts.cluster)), strict=True
    )
    return [replace(each, kept=kept, representative=centre, cluster=of) for each, kept, centre, of in decisions]


def by_definition(docs, table, *, to_archive=False):
    """Return the numbers of the kept document and of the representative of each document."""
    texts = sorted({document.text for document in docs} - {-1})
    protected = {document.text for document in docs if document.protected} - {-1}

    def rank(document):
        return not document.protected, -document.criterion, -document.characters, document.name

    best = {text: min((document for document in docs if document.text == text), key=rank) for text in texts}

    def central(text):
        others = [other for other in texts if other != text and not (to_archive and {text, other} <= protected)]
        found = [alike(table, text, other) for other in others]
        return sum(round(similarity * 2**32) for similarity in found if similarity >= RULES.drop)

    def order_of(text):
        return text not in protected, -best[text].criterion, -central(text), -best[text].characters, text

    kept, representative = stars.decide(
        sorted(texts, key=order_of),
        lambda a, b: alike(table, a, b),
        RULES.similarity,
        RULES.drop,
        protected,
        to_archive=to_archive,
    )
    return [
        (document.number, document.number)
        if document.text < 0
        else (
            document.number if document.protected else best[kept[document.text]].number,
            best[representative[document.text]].number,
        )
        for document in docs
    ]


def check(docs, table, **options):
    """Decide, compare with the definition, and return the documents with their decisions."""
    decided = run(docs, table, **options)
    expected = by_definition(docs, table, **options)
    assert [(document.kept, document.representative) for document in decided] == expected
    return decided


@given(documents, tables)
def test_decisions_follow_their_definition(docs, table):
    decided = check(docs, table)
    for document in decided:
        kept, representative = decided[document.kept], decided[document.representative]
        assert kept.kept == kept.number
        assert representative.kept == representative.representative == representative.number
        assert document.representative == kept.representative
        assert kept is document or not document.protected
        assert kept is document or alike(table, document.text, kept.text) >= RULES.drop
        assert alike(table, kept.text, representative.text) >= RULES.similarity
    sizes = Counter(document.representative for document in decided)
    assert all((sizes[document.representative] > 1) == (document.cluster > 0) for document in decided)
    clusters = {document.cluster: document.representative for document in decided if document.cluster}
    assert sorted(clusters) == list(range(1, len(clusters) + 1))
    assert len(set(clusters.values())) == len(clusters)
    in_order = [sizes[clusters[number]] for number in sorted(clusters)]
    assert in_order == sorted(in_order, reverse=True)


@given(documents, tables)
def test_an_archive_is_not_decided_about(docs, table):
    decided = check(docs, table, to_archive=True)
    compared = [document for document in decided if document.text >= 0]
    new = [document for document in compared if not document.protected]
    related = {number for each in new for number in (each.number, each.kept, each.representative)}
    sizes = Counter(document.representative for document in compared if document.number in related)
    listed = {number for number in related if sizes[decided[number].representative] > 1}
    assert {document.number for document in decided if document.cluster} == listed
    for document in compared:
        if document.protected:
            assert document.kept == document.number
            assert decided[document.representative].text == document.text


@given(documents, tables, st.randoms(use_true_random=False))
def test_the_order_of_the_documents_decides_nothing(docs, table, random):
    def by_name(found):
        return {each.name: (found[each.kept].name, found[each.representative].name) for each in found}

    assert by_name(run(numbered(random.sample(docs, len(docs))), table)) == by_name(run(docs, table))
