"""Comparisons in blocks, tiles and portions, compared with sets in plain Python."""

import contextlib
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simsql.fingerprint import Tokens, compare_documents, compare_pairs, documents_of, pairs_of
from simsql.fingerprint.shared_features import compare_features

# Hashes that agree in their upper bits, and hashes that differ there.
HASHES = st.one_of(st.integers(0, 6), st.integers(0, 6).map(lambda number: number << 58))


def jaccard(ones, others):
    first, second = set(ones), set(others)
    return len(first & second) / max(1, len(first | second))


def similar(ones, others):
    return jaccard(*map(trigrams, (ones, others)))


def trigrams(tokens):
    padded = [0, 0, *tokens, 0, 0] if tokens else []
    return zip(padded, padded[1:], padded[2:], strict=False)


def flat(documents):
    tokens = [token for document in documents for token in document]
    return np.array(tokens, dtype=np.uint64), np.array([len(document) for document in documents], dtype=np.int64)


def tokens_of(documents, kind="words"):
    counts = flat(documents)[1]
    return Tokens(counts, lambda places: flat([documents[place] for place in places.tolist()])[0], kind)


@contextlib.contextmanager
def small(**sizes):
    """Let little be done at once."""
    with contextlib.ExitStack() as stack:
        for name, size in sizes.items():
            module = "shared_features" if name in ("_AT_ONCE", "_WORDS") else "comparisons"
            stack.enter_context(mock.patch(f"simsql.fingerprint.{module}.{name}", size))
        yield


@given(st.lists(st.lists(st.lists(HASHES, max_size=9), min_size=1, max_size=4), max_size=4), st.data())
def test_indexes_of_groups_are_those_of_sets(groups, data):
    documents = [document for group in groups for document in group]
    pairs = []
    first = 0
    for group in groups:
        place = st.integers(first, first + len(group) - 1)
        pairs += data.draw(st.lists(st.tuples(place, place), max_size=5))
        first += len(group)
    left, right = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    expected = [jaccard(documents[one], documents[other]) for one, other in pairs]
    sizes = np.array(list(map(len, groups)), dtype=np.int64)
    assert compare_features(*flat(documents), sizes, left, right).tolist() == expected
    with small(_AT_ONCE=5, _WORDS=1):
        assert compare_features(*flat(documents), sizes, left, right).tolist() == expected


def test_groups_of_many_features():
    random = np.random.default_rng(1)
    kinds = [random.integers(0, 2**63, size, dtype=np.uint64) for size in (100, 1000, 5000)]
    documents = [random.choice(kind, len(kind) // 2).tolist() for kind in kinds for _ in range(4)]
    pairs = [(4 * kind + one, 4 * kind + other) for kind in range(3) for one in range(4) for other in range(4)]
    left, right = np.array(pairs).T
    expected = [jaccard(documents[one], documents[other]) for one, other in pairs]
    assert compare_features(*flat(documents), np.array([4, 4, 4]), left, right).tolist() == expected


@st.composite
def collections(draw):
    families = draw(st.lists(st.lists(st.integers(0, 9), max_size=30), min_size=1, max_size=3))
    documents = []
    for _ in range(draw(st.integers(1, 25))):
        document = list(draw(st.sampled_from(families)))
        for place in draw(st.lists(st.integers(0, 29), max_size=3)):
            document[place : place + 1] = [draw(st.integers(0, 9))]
        documents.append(document)
    place = st.integers(0, len(documents) - 1)
    return documents, draw(st.lists(st.tuples(place, place), max_size=40))


@given(collections(), st.sampled_from([1, 2, 4]), st.integers(1, 90), st.integers(1, 90), st.integers(1, 9))
def test_similarities_are_the_same_in_tiles_and_blocks_of_any_size(collection, tile, tile_tokens, tokens, number):
    documents, pairs = collection
    left, right = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    counts = flat(documents)[1]
    sizes = []

    def read(places):
        assert len(set(places.tolist())) == len(places)
        found = flat([documents[place] for place in places.tolist()])[0]
        sizes.append((len(found), len(places)))
        return found

    expected = [similar(documents[one], documents[other]) for one, other in pairs]
    assert compare_documents(Tokens(counts, read), left, right).tolist() == expected
    sizes.clear()
    limits = {"_TILE": tile, "_TILE_TOKENS": tile_tokens, "_BLOCK_TOKENS": tokens, "_PAIRS": number}
    with small(**limits, _PLACES=number):
        assert compare_documents(Tokens(counts, read), left, right).tolist() == expected
    longest = max(map(len, documents))
    assert all(size <= max(tokens, 2 * (tile_tokens + longest)) or places <= 2 for size, places in sizes)


@given(collections(), st.floats(0, 1, exclude_min=True), st.integers(1, 90))
def test_pairs_that_may_be_similar_are_not_left_out(collection, least, tokens):
    documents, pairs = collection
    left, right = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    for measure, kind in ((similar, "words"), (jaccard, "features")):
        all_of = {(min(pair), max(pair)): measure(*(documents[place] for place in pair)) for pair in pairs}
        with small(_PAIRS_OF_DOCUMENT=0, _BLOCK_TOKENS=tokens, _PAIRS=2, _SCREENED=1):
            blocks = list(compare_pairs(tokens_of(documents, kind), pairs_of(left, right), least))
        found = {
            (min(a, b), max(a, b)): alike
            for block in blocks
            for a, b, alike in zip(*(column.tolist() for column in block), strict=True)
        }
        assert {pair for pair, alike in all_of.items() if alike >= least} <= found.keys()
        assert found.items() <= all_of.items()


def test_most_pairs_without_much_in_common_are_left_out():
    documents = [[place << 54 for place in range(first, first + 9)] for first in range(0, 900, 6)]
    left, right = np.triu_indices(len(documents), 1)
    ((left, right, _),) = compare_pairs(tokens_of(documents, "features"), pairs_of(left, right), 0.2)
    assert np.all(right - left == 1)
    assert len(left) == len(documents) - 1


def test_pairs_are_compared_in_several_portions():
    documents = [[1, 2], [2, 3], [1, 2, 3], [4]]
    left, right = np.array([0, 0, 3, 2]), np.array([1, 2, 1, 1])
    with mock.patch("simsql.fingerprint.comparisons._TILE_BITS", 2):
        blocks = list(compare_pairs(tokens_of(documents), pairs_of(left, right)))
    assert len(blocks) == 2
    found = [pair for block in blocks for pair in zip(*(column.tolist() for column in block), strict=True)]
    expected = [(0, 1, 0), (0, 2, 2 / 7), (1, 3, 0), (1, 2, 2 / 7)]
    assert sorted((min(a, b), max(a, b), value) for a, b, value in found) == sorted(expected)


@pytest.mark.parametrize("pair", [(0, 0), (0, 2**31), (7, 2**32 - 1)])
def test_pairs_are_numbers(pair):
    left, right = (np.array([document]) for document in pair)
    for pairs in (pairs_of(left, right), pairs_of(right, left)):
        assert [int(document[0]) for document in documents_of(pairs)] == list(pair)
