"""Similar pairs, compared with sets in plain Python over all pairs."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simsql.dedup.candidates import choose_similar, compare_candidates, near_pairs
from simsql.errors import SimsqlError
from simsql.fingerprint import Tokens


@st.composite
def collections(draw):
    """Nodes with tokens from few words, and fingerprints with few different bits, some of them equal."""
    families = draw(st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=30), min_size=1, max_size=3))
    nodes = []
    for _ in range(draw(st.integers(0, 12))):
        tokens = list(draw(st.sampled_from(families)))
        for place in draw(st.lists(st.integers(0, len(tokens) - 1), max_size=3)):
            tokens[place] = draw(st.integers(0, 30))
        fingerprint = draw(st.integers(0, 15)) | draw(st.sampled_from([0, 2**64 - 2**40]))
        nodes.append((fingerprint, tokens, draw(st.booleans())))
    return nodes


def alike(ones, others):
    padded = ([0, 0, *tokens, 0, 0] for tokens in (ones, others))
    first, second = (set(zip(tokens, tokens[1:], tokens[2:], strict=False)) for tokens in padded)
    return len(first & second) / len(first | second)


def pairs_within(fingerprints, is_new, distance):
    for left, one in enumerate(fingerprints):
        for right in range(left + 1, len(fingerprints)):
            bits = (one ^ fingerprints[right]).bit_count()
            if bits <= distance and (is_new[left] or is_new[right]):
                yield left, right, bits


def as_dict(pairs):
    found = {(a, b): value for a, b, value in zip(*(column.tolist() for column in pairs), strict=True)}
    assert len(found) == len(pairs.left)
    return {(min(pair), max(pair)): value for pair, value in found.items()}


def find(nodes, distance, similarity, *, new=None, report=None):
    fingerprints = np.array([fingerprint for fingerprint, _, _ in nodes], dtype=np.uint64)
    counts = np.array([len(tokens) for _, tokens, _ in nodes], dtype=np.int64)

    def read(positions):
        assert len(set(positions.tolist())) == len(positions)
        some = [token for position in positions.tolist() for token in nodes[position][1]]
        return np.array(some, dtype=np.uint64)

    compared = compare_candidates(Tokens(counts, read), near_pairs(fingerprints, distance, new, 1))
    return choose_similar(compared, similarity, report)


def find_close(fingerprints, new=None):
    found = near_pairs(fingerprints, 2, new, 1)
    return choose_similar(
        ((a, b, 1 - np.bitwise_count(fingerprints[a] ^ fingerprints[b]) / 64) for a, b in found), 0
    )


@given(collections(), st.integers(0, 4), st.sampled_from([0.2, 0.6, 1.0]), st.booleans())
def test_similar_pairs_are_those_of_brute_force(nodes, distance, similarity, only_new):
    is_new = [new or not only_new for _, _, new in nodes]
    expected = {}
    for left, right, _ in pairs_within([fingerprint for fingerprint, _, _ in nodes], is_new, distance):
        value = alike(nodes[left][1], nodes[right][1])
        if value >= similarity:
            expected[left, right] = value
    new = np.array(is_new, dtype=bool) if only_new else None
    assert as_dict(find(nodes, distance, similarity, new=new)) == expected


def test_values_whose_hashes_are_all_alike_are_found():
    # Products with the same upper bits, so that all places are tried in vain.
    inverse = pow(0x9E3779B97F4A7C15, -1, 1 << 64)
    fingerprints = np.array([number * inverse % (1 << 64) for number in range(40)], dtype=np.uint64)
    nodes = [(int(value), [1, 2], False) for value in fingerprints]
    expected = {(left, right) for left, right, _ in pairs_within([node[0] for node in nodes], [True] * 40, 30)}
    assert set(as_dict(find(nodes, 30, 0.6))) == expected


@given(
    st.lists(st.integers(0, 255), unique=True, max_size=20),
    st.lists(st.booleans(), min_size=20, max_size=20),
    st.booleans(),
)
def test_close_pairs_are_those_of_brute_force(fingerprints, is_new, only_new):
    is_new = [new or not only_new for new in is_new[: len(fingerprints)]]
    expected = {(left, right): 1 - bits / 64 for left, right, bits in pairs_within(fingerprints, is_new, 2)}
    new = np.array(is_new, dtype=bool) if only_new else None
    values = np.array(fingerprints, dtype=np.uint64)
    assert as_dict(find_close(values, new)) == expected


@pytest.mark.parametrize("new", [None, np.arange(300) % 7 == 0])
def test_pairs_that_are_listed_in_portions_are_the_same(new, monkeypatch):
    random = np.random.default_rng(2)
    nodes = [(int(bits), [2, 3, 4, 5, int(bits) % 3], False) for bits in random.integers(0, 6, 300)]
    expected = as_dict(find(nodes, 1, 0.5, new=new))
    assert len(expected) > 1000
    monkeypatch.setattr("simsql.dedup.candidates._LISTED", 50)
    monkeypatch.setattr("simsql.dedup.candidates._TOGETHER", 120)
    reported = []
    assert as_dict(find(nodes, 1, 0.5, new=new, report=reported.append)) == expected
    assert len(reported) > 40


def test_too_many_pairs_are_refused(monkeypatch):
    monkeypatch.setattr("simsql.dedup.candidates._PAIRS_AT_MOST", 3)
    nodes = [(number, [1, 2], False) for number in range(3)]
    assert len(find(nodes, 2, 0.6).left) == 3
    with pytest.raises(SimsqlError, match="more than 3 pairs"):
        find([*nodes, (4, [1, 2], False)], 2, 0.6)
    values = np.arange(4, dtype=np.uint64)
    with pytest.raises(SimsqlError, match="more than 3 pairs"):
        find_close(values)
