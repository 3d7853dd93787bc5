"""Measure clusters of pages that share templates: python -m benchmarks.templates, which prints Markdown.

Each page has an article in the middle of a template, such as the menus and notes of a site. Some articles are
there several times, with small edits. Right are the pairs of pages with the same article, and drops of a page
with the article of the one that is kept. Beside the clusters of `dedup`, whose kept pages are all similar to each
other, are those of a simpler rule, by which a kept page joins the most similar representative.
"""

from collections.abc import Iterator, Sequence
from itertools import chain

import numpy as np

from benchmarks.decisions import (
    DISTANCE,
    DROPPED,
    REPORTED,
    SMALLER_DISTANCE,
    check_pairs,
    filter_pairs,
    near_pairs,
)
from benchmarks.figures import markdown_line
from simsql.decide.stars import SimilarPairs, centrality, choose_stars

SHARES = 0.5, 0.6, 0.65, 0.7, 0.75, 0.8  # of the words of a page, on average, that belong to its template
_TEMPLATES, _ARTICLES = 40, 60  # articles of each template
_COPIED = 0.25  # share of the articles that have copies
_VOCABULARY = 20_000
_SEED = 1

Pairs = set[tuple[int, int]]


def make_pages(share: float, templates: int = _TEMPLATES) -> tuple[list[str], list[int]]:
    """Return pages, and the number of the article of each. The share of the template varies by a half."""
    chance = np.random.default_rng(_SEED)
    weights = 1 / np.arange(3, _VOCABULARY + 3)

    def words(count: int) -> list[str]:
        return [f"w{number}" for number in chance.choice(_VOCABULARY, count, p=weights / weights.sum()).tolist()]

    pages, articles = [], []
    for site in range(templates):
        template = words(int(chance.integers(60, 200)))
        middle = len(template) // 2
        for number in range(site * _ARTICLES, (site + 1) * _ARTICLES):
            article = words(max(10, round(len(template) * (1 - share) / share * chance.uniform(0.5, 1.5))))
            for copy in range(1 + int(chance.random() < _COPIED) * int(chance.integers(1, 4))):
                own, around = article.copy(), template.copy()
                around[chance.integers(len(around))] = words(1)[0]  # a date or a counter
                for place in chance.integers(len(own), size=copy and 1 + len(own) // 20).tolist():
                    own[place] = words(1)[0]
                pages.append(" ".join([*around[:middle], *own, *around[middle:]]))
                articles.append(number)
    return pages, articles


def decide(pages: Sequence[str], pairs: SimilarPairs) -> tuple[list[int], list[int], list[int]]:
    """Return the page that is kept in favour of each, and the representative of its cluster by both rules."""
    lengths = np.array([len(page) for page in pages])
    order = np.lexsort([-lengths, -centrality(len(pages), pairs, DROPPED)])
    kept, alike = choose_stars(order, pairs, similarity=REPORTED, drop=DROPPED)
    is_kept = kept == np.arange(len(pages))
    among = pairs.where(is_kept[pairs.left] & is_kept[pairs.right])
    nearest = choose_stars(order, among, similarity=REPORTED, drop=REPORTED).kept
    return kept.tolist(), alike.tolist(), nearest[kept].tolist()


def template_table(shares: Sequence[float] = SHARES, templates: int = _TEMPLATES) -> Iterator[str]:
    """Yield the lines of the table."""
    measures = [
        f"{rule}: {name}" for rule in ("clusters", "simpler rule") for name in ("precision", "recall", "F1")
    ]
    yield markdown_line(["template", "distance", "dropped: precision", *measures])
    yield markdown_line(["---:"] * (3 + len(measures)))
    for share in shares:
        pages, articles = make_pages(share, templates)
        wanted = _joined(articles)
        for distance in (SMALLER_DISTANCE, DISTANCE):
            pairs = check_pairs(pages, filter_pairs(pages, near_pairs(pages, distance)))
            kept, *clusters = decide(pages, pairs)
            dropped = [articles[page] == articles[other] for page, other in enumerate(kept) if page != other]
            cells = [_judge(_joined(representatives), wanted) for representatives in clusters]
            drops = f"{sum(dropped) / len(dropped):.3f}"
            yield markdown_line([f"{share:.0%}", str(distance), drops, *chain.from_iterable(cells)])


def _joined(numbers: Sequence[int]) -> Pairs:
    """Return the pairs of places with the same number."""
    places: dict[int, list[int]] = {}
    pairs: Pairs = set()
    for place, number in enumerate(numbers):
        members = places.setdefault(number, [])
        pairs.update((other, place) for other in members)
        members.append(place)
    return pairs


def _judge(found: Pairs, wanted: Pairs) -> list[str]:
    right = len(found & wanted)
    wholes = len(found) / right, len(wanted) / right, (len(found) + len(wanted)) / (2 * right)
    return [f"{1 / whole:.3f}" for whole in wholes]


if __name__ == "__main__":
    print("\n".join(template_table()))
