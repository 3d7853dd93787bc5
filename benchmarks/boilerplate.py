"""Measure what boilerplate does to decisions: python -m benchmarks.boilerplate, which prints Markdown.

Texts are compared as they are, or in ways that leave boilerplate out:

- "tags": the text of a page, with its menus;
- "main": the main content of a page, as `--html main` reads it;
- "whole 0.8": dropped from a similarity of 0.8 on, instead of 0.7;
- "common n": without the lines that n documents or more have, where these make up 20 words or more without a gap.
  A document of nothing else stays whole.

Pages have articles made of sections of civil codes, within the menus, lists and footers of their sites. Sources
are functions of Python's library below a licence. A quarter of the articles and functions are there two to four
times, with 5% of their words replaced, on any site. Right are the pairs of documents with the same article or
function, and drops in favour of one with the same. A pair is thinned if one of them is dropped. Sections are civil
codes without any boilerplate: right are those that are similar by brute force. Copies are articles alone, each of
them 30 times.
"""

import ast
import sys
import sysconfig
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from html import escape
from itertools import combinations, groupby
from pathlib import Path

import lxml.html
import numpy as np

from benchmarks.decisions import (
    DISTANCE,
    DROPPED,
    REPORTED,
    Corpus,
    check_pairs,
    filter_pairs,
    near_pairs,
)
from benchmarks.labelled import MissingDataError, find_folder, read_lines
from simsql.decide.stars import centrality, choose_stars
from simsql.fingerprint import html_parts

_SEED = 1
_SITES, _ARTICLES, _FUNCTIONS = 8, 60, 500
_COMMON = 5, 20, 100
_LEAST_WORDS = 20

_LICENCE = """Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License."""

Texts = list[str]
Numbers = list[int]


def make_articles(sections: Sequence[str], count: int, chance: np.random.Generator) -> list[Texts]:
    """Return articles of several paragraphs, 150 to 500 words in all, which share no section."""
    left = iter(chance.permutation(len(sections)).tolist())
    articles = []
    for _ in range(count):
        wanted = chance.uniform(150, 500)
        article: Texts = []
        while sum(len(part.split()) for part in article) < wanted:
            article.append(" ".join(sections[next(left)].split()))
        articles.append(article)
    return articles


def edit(paragraphs: Sequence[str], words: Sequence[str], chance: np.random.Generator) -> Texts:
    """Return paragraphs in which 5% of the words are others."""
    edited = []
    for paragraph in paragraphs:
        own = paragraph.split(" ")
        for place in np.flatnonzero(chance.random(len(own)) < 0.05).tolist():
            own[place] = own[place] and str(chance.choice(words))
        edited.append(" ".join(own))
    return edited


def copies_of(chance: np.random.Generator) -> int:
    """Return how often a text is there: a quarter of them two to four times."""
    return 1 + int(chance.random() < 0.25) * int(chance.integers(1, 4))


def make_pages(sections: Sequence[str], chance: np.random.Generator) -> tuple[Texts, Numbers]:
    """Return web pages, and the number of the article of each."""
    words = sorted({word for section in sections for word in section.split() if word.isalpha()})

    def some(count: int) -> str:
        return " ".join(chance.choice(words, count).tolist())

    sites = []
    for _ in range(_SITES):
        menu = "\n".join(f'<li><a href="/{some(1)}">{some(2)}</a></li>' for _ in range(40))
        recent = "\n".join(f'<li><a href="/{some(1)}">{some(7)}</a></li>' for _ in range(12))
        footer = "\n".join(f"<p>{some(40)}</p>" for _ in range(3))
        sites.append((some(3), menu, recent, footer))
    pages, numbers = [], []
    for number, article in enumerate(make_articles(sections, _SITES * _ARTICLES, chance)):
        for copy in range(copies_of(chance)):
            site = number % _SITES if not copy or chance.random() < 0.5 else int(chance.integers(_SITES))
            name, menu, recent, footer = sites[site]
            paragraphs = edit(article, words, chance) if copy else article
            text = "\n".join(f"<p>{escape(paragraph)}</p>" for paragraph in paragraphs)
            title = escape(" ".join(article[0].split()[:8]))
            pages.append(
                f"<!DOCTYPE html>\n<html><head><title>{title} | {name}</title>\n"
                f'<link rel="stylesheet" href="/site.css"></head><body>\n<nav><ul>\n{menu}\n</ul></nav>\n'
                f"<main><article><h1>{title}</h1>\n{text}\n</article></main>\n"
                f"<aside><h2>Recent</h2><ul>\n{recent}\n</ul></aside>\n<footer>\n{footer}\n</footer></body></html>\n"
            )
            numbers.append(number)
    return pages, numbers


def make_sources(chance: np.random.Generator) -> tuple[Texts, Numbers]:
    """Return source files with a licence, and the number of the function of each."""
    folder = Path(sysconfig.get_paths()["stdlib"])
    functions: dict[str, str] = {}
    for path in sorted(folder.glob("*.py")):
        text = path.read_text(encoding="utf-8")
        for node in ast.parse(text).body:
            if isinstance(node, ast.FunctionDef):
                body = ast.get_source_segment(text, node) or ""
                if 25 <= len(body.split()) <= 200:
                    functions.setdefault(body, path.name)
    chosen = sorted(functions)
    chosen = [chosen[place] for place in chance.permutation(len(chosen))[:_FUNCTIONS].tolist()]
    words = sorted({word for body in chosen for word in body.split() if word.isidentifier()})
    licence = "\n".join(f"# {line}".rstrip() for line in _LICENCE.split("\n"))
    sources, numbers = [], []
    for number, body in enumerate(chosen):
        for copy in range(copies_of(chance)):
            lines = edit(body.split("\n"), words, chance) if copy else body.split("\n")
            sources.append(f"{licence}\n\n" + "\n".join(lines) + "\n")
            numbers.append(number)
    return sources, numbers


def make_copies(sections: Sequence[str], chance: np.random.Generator) -> tuple[Texts, Numbers]:
    """Return articles without boilerplate, each of which is there 30 times, and the number of each."""
    words = sorted({word for section in sections for word in section.split() if word.isalpha()})
    texts, numbers = [], []
    for number, article in enumerate(make_articles(sections, 20, chance)):
        for _ in range(30):
            one = int(chance.integers(len(article)))  # of the paragraphs differs from the others
            parts = [*article[:one], *edit(article[one : one + 1], words, chance), *article[one + 1 :]]
            texts.append("\n".join(parts))
            numbers.append(number)
    return texts, numbers


def text_of(page: str) -> str:
    """Return the text of a page, menus and all."""
    tree = lxml.html.document_fromstring(page)
    lxml.etree.strip_elements(tree, "script", "style", with_tail=False)
    return "\n".join(line.strip() for line in tree.text_content().split("\n") if line.strip())


def main_of(page: str) -> str:
    """Return the title and the main content of a page."""
    return "\n".join(text for text, _ in html_parts(page))


def without_common(texts: Texts, least: int) -> Texts:
    """Return texts without runs of lines that this many of them have."""
    lines = [[" ".join(line.split()) for line in text.split("\n") if line.strip()] for text in texts]
    counts = Counter(line for own in lines for line in set(own))
    left = []
    for own in lines:
        some: Texts = []
        for is_common, run in groupby(own, lambda line: counts[line] >= least):
            together = list(run)
            if not is_common or sum(len(line.split()) for line in together) < _LEAST_WORDS:
                some += together
        left.append(some)
    return ["\n".join(some or own) for some, own in zip(left, lines, strict=True)]


def judge(compared: Texts, wanted: set[tuple[int, int]], drop: float = DROPPED) -> list[str]:
    """Return the measures of the decisions about texts."""
    pairs = check_pairs(compared, filter_pairs(compared, near_pairs(compared, DISTANCE)))
    lengths = np.array([len(text) for text in compared])
    order = np.lexsort([-lengths, -centrality(len(compared), pairs, drop)])
    stars = choose_stars(order, pairs, similarity=REPORTED, drop=drop)
    places: dict[int, Numbers] = {}
    for place, representative in enumerate(stars.representative.tolist()):
        places.setdefault(representative, []).append(place)
    found = {pair for members in places.values() for pair in combinations(members, 2)}
    right = len(found & wanted)
    dropped = {place: kept for place, kept in enumerate(stars.kept.tolist()) if place != kept}
    wrong = sum((min(pair), max(pair)) not in wanted for pair in dropped.items())
    thinned = sum(a in dropped or b in dropped for a, b in wanted) / len(wanted)
    measures = right / max(1, len(found)), right / len(wanted), 2 * right / (len(found) + len(wanted))
    return [*(f"{measure:.3f}" for measure in measures), f"{len(dropped):,}", f"{wrong:,}", f"{thinned:.3f}"]


def boilerplate_table(sections: Sequence[str]) -> Iterator[str]:
    """Yield the lines of the table."""
    chance = np.random.default_rng(_SEED)
    common: dict[str, Callable[[Texts], Texts]] = {
        f"common {least}": partial(without_common, least=least) for least in _COMMON
    }
    tags: dict[str, Callable[[Texts], Texts]] = {"tags": lambda texts: [text_of(page) for page in texts]}
    main: dict[str, Callable[[Texts], Texts]] = {"main": lambda texts: [main_of(page) for page in texts]}
    yield _line(["texts", "compared", "precision", "recall", "F1", "dropped", "wrongly", "pairs thinned", "time"])
    yield _line(["---", "---", *["---:"] * 7])
    corpora = [
        ("pages", *make_pages(sections, chance), tags | main | common),
        ("sources", *make_sources(chance), common),
        ("copies", *make_copies(sections, chance), common),
        ("sections", list(sections), None, common),
    ]
    for name, texts, numbers, ways in corpora:
        if numbers is None:
            wanted = {pair for pair, index in Corpus(name, texts).alike.items() if index >= REPORTED}
        else:
            wanted = {pair for pair in combinations(range(len(texts)), 2) if numbers[pair[0]] == numbers[pair[1]]}
        whole = 0.0
        for way, change in {"whole": list, "whole 0.8": list, **ways}.items():
            start = time.process_time()
            cells = judge(change(texts), wanted, 0.8 if way == "whole 0.8" else DROPPED)
            taken = time.process_time() - start
            whole = whole or taken
            yield _line([f"{len(texts):,} {name}", way, *cells, f"{taken / whole:.2f}"])


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def main() -> int:
    """Print the table. Return the exit code: 2 if the data are missing."""
    try:
        folder = find_folder()
    except MissingDataError as error:
        print(error, file=sys.stderr)
        return 2
    sections = [row["text"] for row in read_lines(folder / "civil_codes.jsonl.xz")]
    print("### Boilerplate\n")
    for line in boilerplate_table(sections):
        print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
