"""Pairs are drawn evenly over kinds and similarities, at random among those of a group, and stand for all."""

from collections import Counter, defaultdict
from itertools import combinations
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest

from simsql.decide.documents import Nodes
from simsql.decide.stars import SimilarPairs
from simsql.evaluate import sampling
from simsql.evaluate.sampling import draw_pairs

NODES, COPIES = 40, 12


def compare(seed=1, nodes=NODES, copies=COPIES):
    """A comparison in which some pairs are similar, some but for numbers, and some documents are copies."""
    chance = np.random.default_rng(seed)
    left, right = np.array(list(combinations(range(nodes), 2))).T
    similarity = chance.uniform(-0.6, 1, len(left)).round(3)
    some = similarity >= 0.3
    first = chance.integers(nodes, size=copies)
    of_document = np.concatenate([np.arange(nodes), first, [-1]])
    others = np.concatenate([np.arange(nodes) // 2, first // 2, [0]])
    digests = np.stack([np.arange(nodes + copies + 1), others, 0 * others], axis=1)
    digests[nodes : nodes + copies // 2, 0] = first[: copies // 2]
    example, none = np.arange(nodes), np.zeros(nodes, dtype=np.int64)
    return SimpleNamespace(
        nodes=Nodes(of_document, none.astype(np.uint64), example, none),
        documents=SimpleNamespace(digests=digests),
        pairs=SimilarPairs(left[some], right[some], similarity[some]),
    )


def groups_of(comparison):
    """The pairs of each group, the smaller document first."""
    found = defaultdict(set)
    similar = {(a, b): value for a, b, value in zip(*map(np.ndarray.tolist, comparison.pairs), strict=True)}
    for a, b in combinations(range(comparison.nodes.total), 2):
        value = similar.get((a, b))
        found["apart" if value is None else "numbers" if a // 2 == b // 2 else int(10 * value)].add((a, b))
    for copy, first in list(enumerate(comparison.nodes.of_document.tolist()))[comparison.nodes.total : -1]:
        same = comparison.documents.digests[copy, 0] == comparison.documents.digests[first, 0]
        found["identical" if same else "same words"].add((first, copy))
    return found


def pairs_drawn(drawn, of):
    for a, b, kind, weight in zip(*(column.tolist() for column in drawn), strict=True):
        pair = (min(a, b), max(a, b))
        (group,) = (name for name, members in of.items() if pair in members)
        assert group == kind or kind == "similar" == (kind if isinstance(group, int) else "")
        yield pair, group, weight


@pytest.mark.parametrize("listed", [0, 1 << 20])
def test_drawn_pairs_stand_for_all_pairs(listed):
    comparison = compare()
    of = groups_of(comparison)
    with mock.patch.object(sampling, "_ALL", listed):
        drawn = list(pairs_drawn(draw_pairs(comparison, 60), of))
    assert len({pair for pair, *_ in drawn}) == 60
    number, weight = Counter(group for _, group, _ in drawn), Counter()
    for _, group, stands_for in drawn:
        weight[group] += stands_for
    assert weight == {name: pytest.approx(len(members)) for name, members in of.items()}
    large = [number[name] for name, members in of.items() if len(members) > 10]
    assert max(large) - min(large) <= 1
    assert all(number[name] == min(len(members), max(large)) for name, members in of.items() if len(members) < 6)
    # In random order: a part of them is spread over the groups, too.
    assert len({group for _, group, _ in drawn[:30]}) > 6


def test_all_pairs_are_drawn_if_there_are_fewer():
    comparison = compare(2, nodes=9)
    of = groups_of(comparison)
    drawn = list(pairs_drawn(draw_pairs(comparison, 1000), of))
    assert {pair for pair, *_ in drawn} == set.union(*of.values())
    assert {weight for *_, weight in drawn} == {1.0}


def test_the_seed_decides_and_not_the_order_of_the_pairs():
    comparison = compare()
    mixed = np.random.default_rng(3).permutation(len(comparison.pairs.left))
    again = SimpleNamespace(**vars(comparison) | {"pairs": comparison.pairs.where(mixed)})
    first, second, other = draw_pairs(comparison, 30, 7), draw_pairs(again, 30, 7), draw_pairs(comparison, 30)
    assert all(map(np.array_equal, first, second))
    assert first.left.tolist() != other.left.tolist()


def test_every_pair_of_a_group_has_the_same_chance():
    comparison, times = compare(5, nodes=12, copies=0), Counter()
    of = groups_of(comparison)
    for seed in range(400):
        times.update(
            pair for pair, group, _ in pairs_drawn(draw_pairs(comparison, 16, seed), of) if group == "apart"
        )
    assert times.keys() == of["apart"]
    share = times.total() / len(times)
    assert share / 2 < min(times.values()) <= max(times.values()) < 2 * share
