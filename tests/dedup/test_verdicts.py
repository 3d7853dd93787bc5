"""Decisions about documents over several runs, compared with their definition in plain Python."""

from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
import stars
from hypothesis import given, settings
from hypothesis import strategies as st

from simsql.decide.documents import GONE, PRESENT, UNKNOWN, Documents, group_nodes
from simsql.decide.rules import Rules
from simsql.decide.stars import SimilarPairs
from simsql.decide.verdicts import decide
from simsql.dedup.candidates import Tokens
from simsql.dedup.comparing import Comparison
from simsql.dedup.evidence import gather_evidence

RULES = Rules(similarity=0.6, drop_similarity=0.7)
TEXTS = 9


@dataclass(frozen=True)
class Document:
    """A document of the table, with the decision of the run before."""

    id: int
    text: int
    """Documents with the same number have the same words."""
    characters: int
    criterion: int = 0
    protected: bool = False
    seen: bool = True
    gone: bool = False
    stream: bool = False
    """Whether nobody can know."""
    undecided: bool = False
    state: int = UNKNOWN
    """What the run has found out."""
    fresh: bool = True
    kept: int | None = None
    representative: int | None = None
    kept_similarity: float = np.nan
    representative_similarity: float = np.nan

    @property
    def name(self):
        return f"document {self.id * 7919 % 101}"


documents = st.lists(
    st.builds(
        Document,
        id=st.integers(1, 100),
        text=st.integers(0, TEXTS - 1),
        characters=st.integers(1, 3),
        criterion=st.integers(0, 1),
        protected=st.sampled_from([False, False, False, True]),
    ),
    unique_by=lambda document: document.id,
    max_size=14,
)
# How similar two texts are. Few different values, so that ties happen.
tables = st.fixed_dictionaries(
    {(a, b): st.sampled_from([0.0, 0.0, 0.6, 0.65, 0.7, 0.8]) for a in range(TEXTS) for b in range(a + 1, TEXTS)}
)


class Compared(Comparison):
    """Similarities from a table instead of texts."""

    def __init__(self, documents, find_pairs, compare):
        tokens = Tokens(np.zeros(len(documents.id), dtype=np.int64), None)
        super().__init__(documents, tokens, RULES, here=documents.seen, workers=1, report=None)
        self.find_pairs, self.compare = find_pairs, compare


def run(docs, table, *, new_only=False):
    """Decide, and return the documents with their decisions, and the cluster of each."""
    docs = sorted(docs, key=lambda document: document.id)

    def column(values, kind=np.int64):
        return np.array(list(values), dtype=kind)

    words = column((document.text for document in docs), np.uint64)
    given_documents = Documents(
        id=column(document.id for document in docs),
        fingerprint=words * np.uint64(3),
        sketch=words,
        words=np.stack([words, words], axis=1),
        compared=np.ones(len(docs), dtype=bool),
        characters=column(document.characters for document in docs),
        seen=column((document.seen for document in docs), bool),
        protected=column((document.protected for document in docs), bool),
        kept=column(document.kept or document.id for document in docs),
        representative=column(document.representative or document.id for document in docs),
        kept_similarity=column((document.kept_similarity for document in docs), float),
        representative_similarity=column((document.representative_similarity for document in docs), float),
        fresh=column((document.fresh for document in docs), bool),
    )
    nodes = group_nodes(given_documents, given_documents.seen, by_words=True)
    texts = [docs[position].text for position in nodes.example]
    assert texts == sorted({document.text for document in docs})

    def find_pairs(new):
        pairs = [
            (left, right, table[texts[left], texts[right]])
            for left in range(nodes.total)
            for right in range(left + 1, nodes.total)
            if new is None or new[left] or new[right]
        ]
        left, right, similarity = zip(*pairs, strict=True) if pairs else ((), (), ())
        found = SimilarPairs(column(left), column(right), column(similarity, float))
        return found.at_least(RULES.similarity)

    def compare(left, right):
        return column((alike(table, texts[a], texts[b]) for a, b in zip(left, right, strict=True)), float)

    states = [PRESENT if document.seen else UNKNOWN for document in docs]

    by_id = {document.id: document for document in docs}
    seen = {document.text for document in docs if document.seen}
    decided = [document for document in docs if document.text in seen]
    targets = {by_id[id_].text for each in decided for id_ in (each.kept, each.representative) if id_ in by_id}

    def look_for(asked):
        for position in asked:
            document = docs[position]
            assert not document.seen
            # Only where it matters.
            near = any(alike(table, document.text, text) >= RULES.similarity for text in seen)
            assert near or document.text in targets
            states[position] = UNKNOWN if document.stream else GONE if document.gone else PRESENT
        return column((states[position] for position in asked), np.int8)

    compared = Compared(given_documents, find_pairs, compare)
    evidence = gather_evidence(compared, look_for)
    criterion = column(document.criterion for document in docs)
    verdicts = decide(
        given_documents,
        nodes,
        evidence,
        RULES,
        criterion,
        lambda asked: column(sorted(asked, key=lambda position: docs[position].name)),
        new_only=new_only,
    )
    compared.complete(verdicts)
    decided = [
        replace(
            document,
            fresh=False,
            state=states[position],
            kept=docs[verdicts.kept[position]].id,
            representative=docs[verdicts.representative[position]].id,
            kept_similarity=float(verdicts.kept_similarity[position]),
            representative_similarity=float(verdicts.representative_similarity[position]),
        )
        for position, document in enumerate(docs)
    ]
    assert verdicts.present.tolist() == [state == PRESENT for state in states]
    assert verdicts.gone.tolist() == [state == GONE for state in states]
    return decided, verdicts.cluster.tolist()


def alike(table, a, b):
    return 1.0 if a == b else table[min(a, b), max(a, b)]


def by_definition(docs, table):
    """Return the ids of the kept document and of the representative, by id, given the states of the documents."""
    texts = sorted({document.text for document in docs})
    by_id = {document.id: document for document in docs}
    gone = {text for text in texts if all(document.state == GONE for document in docs if document.text == text)}
    protected = {document.text for document in docs if document.protected and document.state != GONE}
    kept_before, representing_before = earlier(docs, by_id, gone)
    for text in protected & kept_before.keys():
        if kept_before[text] != text:
            del kept_before[text]

    def similar(a, b):
        return 0.0 if {a, b} & gone else alike(table, a, b)

    def rank(document):
        was_kept = not document.fresh and document.kept == document.id
        protection = not document.protected, not was_kept
        return (document.state, *protection, -document.criterion, -document.characters, document.name)

    best = {text: min((document for document in docs if document.text == text), key=rank) for text in texts}
    is_free = {
        text: text not in gone
        and (text not in kept_before or (kept_before[text] == text and text not in representing_before))
        for text in texts
    }

    def central(text):
        others = [other for other in texts if other != text and (is_free[text] or is_free[other])]
        return sum(round(similar(text, other) * 2**32) for other in others if similar(text, other) >= RULES.drop)

    kept_before |= {text: text for text in protected}
    order = sorted(
        texts,
        key=lambda text: (
            text not in protected,
            kept_before.get(text) != text,
            -best[text].criterion,
            -central(text),
            -best[text].characters,
            text,
        ),
    )
    kept, representative = stars.decide(
        order, similar, RULES.similarity, RULES.drop, kept_before, representing_before
    )
    stays = {document.id for document in docs if document.protected and document.state != GONE}
    return {
        document.id: (
            document.id if document.id in stays else best[kept[document.text]].id,
            best[representative[document.text]].id,
        )
        for document in docs
    }


def earlier(docs, by_id, gone):
    """Return the earlier decisions about texts that still hold."""
    kept, representing = {}, {}
    old = [document for document in docs if not document.fresh]
    for document in old:
        target = by_id.get(document.kept)
        holds = target and not target.fresh and target.kept == target.id and target.text not in gone
        if holds:
            kept.setdefault(document.text, target.text)
    for document in old:
        if document.kept == document.id and document.text not in gone:
            kept[document.text] = document.text
    for document in old:
        target = by_id.get(document.representative)
        if kept.get(document.text) == document.text and document.kept == document.id:
            holds = target and not target.fresh and target.kept == target.representative == target.id
            if holds and target.text not in gone:
                representing.setdefault(document.text, target.text)
    for document in old:
        if document.id == document.kept == document.representative and document.text not in gone:
            representing[document.text] = document.text
    return kept, representing


def decisions(docs):
    return {document.id: (document.kept, document.representative) for document in docs}


def check(docs, table):
    """Decide, compare with the definition, and return the documents that are not gone with their decisions."""
    decided, cluster = run(docs, table)
    found = {document.id: document.state for document in decided}
    now = [replace(document, state=found[document.id]) for document in docs]
    assert decisions(decided) == by_definition(now, table)
    by_id = {document.id: document for document in decided}
    for document in decided:
        kept, representative = by_id[document.kept], by_id[document.representative]
        assert kept.kept == kept.id
        assert representative.kept == representative.representative == representative.id
        assert document.representative == kept.representative
        assert document.kept_similarity == alike(table, document.text, kept.text)
        assert document.representative_similarity == alike(table, document.text, representative.text)
        assert kept is document or document.kept_similarity >= RULES.drop
        assert kept.representative_similarity >= RULES.similarity
        if document.state != GONE:
            assert kept.state != GONE
            assert representative.state != GONE
        if document.seen:
            assert kept.seen or kept.stream or not kept.gone
            assert kept is document or not document.protected
    groups = {}
    there = []
    for document, number in zip(decided, cluster, strict=True):
        if document.state == GONE:
            assert number == 0
        else:
            there.append(document)
            groups.setdefault(document.representative, set()).add(number)
    sizes = {centre: sum(document.representative == centre for document in there) for centre in groups}
    assert all(len(numbers) == 1 for numbers in groups.values())
    numbered = sorted((numbers.pop(), sizes[centre]) for centre, numbers in groups.items() if sizes[centre] > 1)
    assert [number for number, _ in numbered] == list(range(1, len(numbered) + 1))
    assert [size for _, size in numbered] == sorted((size for _, size in numbered), reverse=True)
    return there


@given(documents, tables)
def test_decisions_follow_their_definition(docs, table):
    check(docs, table)


@given(documents, tables)
def test_a_later_run_without_new_texts_changes_nothing(docs, table):
    first, clusters = run(docs, table)
    second, again = run(first, table)
    assert decisions(second) == decisions(first)
    assert again == clusters


@settings(max_examples=200)
@given(documents, tables, st.data())
def test_later_runs_keep_the_decisions_that_still_hold(docs, table, data):
    """Documents are added, changed and deleted, and files go and come back."""
    now = list(docs)
    for _ in range(3):
        decided = check([document for document in now if data.draw(st.booleans()) or not document.fresh], table)
        left = []
        for document in decided:
            what = data.draw(
                st.sampled_from(
                    ["same", "same", "unseen", "changed", "moved", "deleted", "gone", "stream", "back"]
                )
            )
            if what == "changed":
                text = data.draw(st.integers(0, TEXTS - 1))
                document = Document(  # noqa: PLW2901
                    document.id, text, document.characters, document.criterion, document.protected
                )
            if what == "moved":
                document = replace(document, protected=not document.protected)  # noqa: PLW2901
            if what in ("unseen", "gone", "stream", "back"):
                document = replace(  # noqa: PLW2901
                    document, gone=what == "gone", stream=what == "stream", seen=what == "back"
                )
            if what != "deleted":
                left.append(document)
        present = {document.id for document in decided}
        now = left + [document for document in docs if document.id not in present]
    check(now, table)


@given(documents, tables)
def test_earlier_decisions_stay_when_documents_are_added(docs, table):
    half = len(docs) // 2
    # A copy with the same words takes the place of a kept document if it is protected.
    words = {document.text for document in docs[:half] if not document.protected}
    docs = [replace(document, protected=document.protected and document.text not in words) for document in docs]
    first = check(docs[:half], table)
    later = check(first + docs[half:], table)
    before, after = decisions(first), decisions(later)
    assert {id_: after[id_] for id_ in before} == before


def clustered(docs):
    """Return the ids of documents in clusters of at least two of these."""
    sizes = Counter(document.representative for document in docs)
    return {document.id for document in docs if sizes[document.representative] > 1}


@given(documents, tables)
def test_new_decisions_are_listed_with_the_documents_that_they_rest_on(docs, table):
    half = len(docs) // 2
    first = check(docs[:half], table)
    # Some that were kept are gone, so decisions change.
    later = [replace(each, seen=each.id % 5 > 0, gone=each.id % 5 == 0) for each in first] + docs[half:]
    decided, numbers = run(later, table, new_only=True)
    everything, _ = run(later, table)
    assert decisions(decided) == decisions(everything)
    before = {document.id: document.kept for document in first}
    new = [each for each in decided if each.state != GONE and before.get(each.id) != each.kept]
    related = {id_ for each in new for id_ in (each.id, each.kept, each.representative)}
    expected = clustered([document for document in decided if document.id in related])
    assert {each.id for each, number in zip(decided, numbers, strict=True) if number} == expected


@given(documents, tables)
def test_an_archive_is_not_decided_about(docs, table):
    half = len(docs) // 2
    archive = [
        replace(each, protected=True, fresh=False, kept=each.id, representative=each.id) for each in docs[:half]
    ]
    decided = {
        each.id: each for each in check(archive + [replace(d, protected=False) for d in docs[half:]], table)
    }
    for document in archive:
        assert decided[document.id].kept == document.id
        assert decided[decided[document.id].representative].text == document.text
