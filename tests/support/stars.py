"""Decisions by their definition, in plain Python over all pairs."""

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from typing import Any


def stars(
    among: Sequence[Any], alike: Callable[[Any, Any], float], at_least: float, protected: Collection[Any]
) -> dict[Any, Any]:
    """Return the centre of each node: itself, or the most similar centre. The first of equals wins."""
    centres = [node for node in among if node in protected]
    for node in among:
        if node not in protected and all(alike(node, centre) < at_least for centre in centres):
            centres.append(node)
    return {
        node: node
        if node in centres
        else max(centres, key=lambda centre: (alike(node, centre), -among.index(centre)))
        for node in among
    }


def clusters(
    among: Sequence[Any], alike: Callable[[Any, Any], float], at_least: float, before: Mapping[Any, Any]
) -> dict[Any, Any]:
    """Return the representative of each node: of the clusters whose nodes are all similar, the most similar."""
    members: dict[Any, list[Any]] = {}
    for node, centre in before.items():
        members.setdefault(centre, []).append(node)
    for node in among:
        if node not in before:
            joined = [
                centre for centre, nodes in members.items() if all(alike(node, one) >= at_least for one in nodes)
            ]
            best = max(joined, key=lambda centre: (alike(node, centre), -among.index(centre)), default=node)
            members.setdefault(best, []).append(node)
    return {node: centre for centre, nodes in members.items() for node in nodes}


def decide(
    order: Sequence[Hashable],
    alike: Callable[[Any, Any], float],
    similarity: float,
    drop: float,
    protected: Collection[Any] = (),
    *,
    to_archive: bool = False,
) -> tuple[dict[Any, Any], dict[Any, Any]]:
    """Return the node that is kept in favour of each, and the representative of each."""
    kept = stars(order, alike, drop, protected)
    keepers = [node for node in order if kept[node] == node]
    before: dict[Any, Any] = {}
    if to_archive:  # the most similar one of the archive, of equals the first
        before = {node: node for node in protected}
        for node in keepers:
            near = [one for one in protected if alike(node, one) >= similarity]
            if node not in protected and near:
                before[node] = max(near, key=lambda one: (alike(node, one), -order.index(one)))
    representing = clusters(keepers, alike, similarity, before)
    return kept, {node: representing[kept[node]] for node in order}
