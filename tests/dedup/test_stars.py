"""Decisions on small graphs, compared with a direct reading of their definition."""

import numpy as np
import pytest
import stars
from hypothesis import given
from hypothesis import strategies as st

from simsql.decide.stars import SimilarPairs, centrality, choose_stars

SIMILARITY, DROP = 0.6, 0.7


@st.composite
def graphs(draw, most=12):
    nodes = draw(st.integers(1, most))
    every = [(a, b) for a in range(nodes) for b in range(a + 1, nodes)]
    chosen = draw(st.lists(st.sampled_from(every), unique=True)) if every else []
    # Few different similarities, so that ties happen.
    edges = {pair: draw(st.sampled_from([0.55, 0.6, 0.65, 0.7, 0.8, 1.0])) for pair in chosen}
    return nodes, edges, draw(st.permutations(range(nodes)))


def pairs_of(edges, turned=()):
    sides = [(b, a) if (a, b) in turned else (a, b) for a, b in edges]
    left, right = np.array(sides, dtype=np.int64).reshape(-1, 2).T
    return SimilarPairs(left, right, np.array(list(edges.values()), dtype=float))


def by_definition(nodes, edges, order, protected=(), **more):
    """Return the decisions of one pass after the other, node by node."""

    def alike(a, b):
        return edges.get((min(a, b), max(a, b)), 0)

    kept, representing = stars.decide(order, alike, SIMILARITY, DROP, protected, **more)
    return [kept[node] for node in range(nodes)], [representing[node] for node in range(nodes)]


def decided(nodes, edges, order, protected=(), **more):
    flags = np.isin(np.arange(nodes), list(protected))
    found = choose_stars(
        np.array(order, dtype=int), pairs_of(edges), similarity=SIMILARITY, drop=DROP, protected=flags, **more
    )
    return found.kept.tolist(), found.representative.tolist()


@given(graphs())
def test_decisions_follow_their_definition(graph):
    assert decided(*graph) == by_definition(*graph)


@given(graphs())
def test_every_dropped_text_resembles_the_one_that_is_kept(graph):
    nodes, edges, order = graph
    kept, representative = decided(nodes, edges, order)
    for node in range(nodes):
        if kept[node] != node:
            assert edges[min(node, kept[node]), max(node, kept[node])] >= DROP
            assert representative[node] == representative[kept[node]]
        elif representative[node] != node:
            assert edges[min(node, representative[node]), max(node, representative[node])] >= SIMILARITY
        assert kept[representative[node]] == representative[node]
    keepers = {node for node in range(nodes) if kept[node] == node}
    assert all(edge < DROP for (a, b), edge in edges.items() if {a, b} <= keepers)


@given(graphs(), st.randoms(use_true_random=False))
def test_the_order_of_pairs_and_their_sides_do_not_matter(graph, random):
    nodes, edges, order = graph
    mixed = list(edges.items())
    random.shuffle(mixed)
    turned = {pair for pair in edges if random.random() < 0.5}
    found = choose_stars(np.array(order), pairs_of(dict(mixed), turned), similarity=SIMILARITY, drop=DROP)
    assert (found.kept.tolist(), found.representative.tolist()) == decided(nodes, edges, order)
    sums = centrality(nodes, pairs_of(edges), DROP)
    assert centrality(nodes, pairs_of(dict(mixed), turned), DROP).tolist() == sums.tolist()


@given(graphs(), st.data(), st.booleans())
def test_protected_nodes_are_kept_and_an_archive_represents_itself(graph, data, to_archive):
    nodes, edges, order = graph
    protected = data.draw(st.sets(st.integers(0, nodes - 1)))
    order = sorted(order, key=lambda node: node not in protected)
    kept, representative = decided(nodes, edges, order, protected, to_archive=to_archive)
    assert all(kept[node] == node for node in protected)
    assert not to_archive or all(representative[node] == node for node in protected)
    assert (kept, representative) == by_definition(nodes, edges, order, protected, to_archive=to_archive)


def test_a_chain_is_not_one_cluster():
    chain = {(node, node + 1): 0.65 for node in range(4)}
    assert decided(5, chain, range(5)) == ([0, 1, 2, 3, 4], [0, 0, 2, 2, 4])


def test_two_members_that_resemble_each_other_more_than_their_centre_are_not_both_kept():
    assert decided(3, {(0, 1): 0.65, (0, 2): 0.65, (1, 2): 0.95}, range(3)) == ([0, 1, 1], [0, 0, 0])


def test_the_most_similar_of_those_kept_is_chosen_and_a_tie_goes_to_the_first():
    edges = {(0, 2): 0.7, (1, 2): 0.8, (0, 3): 0.75, (1, 3): 0.75}
    assert decided(4, edges, range(4)) == ([0, 1, 1, 0], [0, 1, 1, 0])


@pytest.mark.parametrize("nodes", [0, 1])
def test_without_pairs_every_node_is_kept(nodes):
    assert decided(nodes, {}, range(nodes)) == (list(range(nodes)), list(range(nodes)))
