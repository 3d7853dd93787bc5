"""The programs behind docs/explanation/quality.md count what they say, and pictures are what their code draws."""

import random
import re
from itertools import combinations
from pathlib import Path
from xml.etree import ElementTree

import corpus
import numpy as np
import pytest
from documentation import PAGES

import simsql
from benchmarks import boilerplate, charts, diagrams, limits, templates
from benchmarks.decisions import (
    Corpus,
    Outcome,
    by_components,
    check_pairs,
    find_similar_words,
    judge,
    near_pairs,
    read_corpora,
)
from benchmarks.labelled import MissingDataError, find_folder

PAGE = Path(__file__).resolve().parents[2] / "docs/explanation/quality.md"


def by_definition(a, b):
    if not (a and b):
        return 0.0
    padded = (["", "", *words, "", ""] for words in (a, b))
    one, other = (set(zip(words, words[1:], words[2:], strict=False)) for words in padded)
    return len(one & other) / len(one | other)


def test_the_truth_is_that_of_every_pair():
    chance = random.Random(1)
    words = [[chance.choice("abcdef") for _ in range(chance.choice([0, 2, 19, 20, 21, 40]))] for _ in range(60)]
    words += [own[:-1] for own in words[:40]]
    expected = {
        (a, b): pytest.approx(index)
        for a, b in combinations(range(len(words)), 2)
        if (index := by_definition(words[a], words[b])) >= 0.6
    }
    assert len(expected) > 20
    assert find_similar_words(words, 0.6) == expected


@pytest.fixture(scope="module")
def made_up():
    return Corpus("made up", list(corpus.make_texts(9, families=30, alone=20).values()))


def test_near_pairs_are_all_pairs(made_up):
    fingerprints = [simsql.simhash(text) for text in made_up.texts]
    expected = {
        (a, b)
        for a, b in combinations(range(len(fingerprints)), 2)
        if (fingerprints[a] ^ fingerprints[b]).bit_count() <= 7
    }
    found = near_pairs(made_up.texts, 7)
    assert (len(found), set(found)) == (len(expected), expected)
    assert len(expected) > 20


def test_components_join_a_chain():
    words = [f"z{number}" for number in range(130)]
    chain = Corpus("chain", [" ".join(words[start : start + 100]) for start in (0, 13, 26)])
    pairs = check_pairs(chain.texts, [(0, 1), (0, 2), (1, 2)])
    assert set(zip(pairs.left.tolist(), pairs.right.tolist(), strict=True)) == {(0, 1), (1, 2)}
    components = by_components(chain, [(0, 1), (1, 2)])
    assert (components.clusters, components.kept) == ([[0, 1, 2]], [1, 1, 1])
    two_thirds = ["0.667", "1.000", "0.800"]
    assert judge(chain, components) == [*two_thirds, "1.000", "1.000", *two_thirds[2:], "3", "0.333"]


def test_what_is_judged():
    corpus_of_four = Corpus("four", ["one two three"] * 2 + ["four five six"] * 2)
    assert corpus_of_four.alike == {(0, 1): 1.0, (2, 3): 1.0}
    wrong = Outcome([1, 1, 1, 2], [0, 0, 0, 3], {(0, 1)})
    # Right are one of three pairs in a cluster and one of two drops; found is one of two pairs.
    assert judge(corpus_of_four, wrong) == ["0.333", "0.500", "0.400", "0.500", "1.000", "0.400", "3", "0.667"]
    nothing = Outcome([0, 1, 2, 3], [0, 1, 2, 3], set())
    assert judge(corpus_of_four, nothing) == ["-", "0.000", "0.000", "-", "0.000", "0.000", "0", "-"]


def test_charts_of_a_collection(made_up):
    pairs = charts.label_pairs(made_up, 0.7)
    assert pairs.alike.sum() == sum(index >= 0.7 for index in made_up.alike.values())
    assert len(ElementTree.fromstring(charts.draw_rules(made_up)).findall(".//{*}polyline")) == 8
    assert len(ElementTree.fromstring(charts.draw_skew([made_up])).findall(".//{*}polyline")) == 4


def test_shares_of_bits_and_prefixes():
    values = np.array([0, 1 << 63, (1 << 63) | 1], dtype=np.uint64)
    bits = charts._count_bits(values)
    assert (bits[0], bits[1], bits[63]) == (pytest.approx(2 / 3), 0, pytest.approx(1 / 3))
    assert charts._count_buckets(values) == [pytest.approx(256 / 3), pytest.approx(128 / 3)] + [0] * 126


def test_pages_that_share_a_template():
    pages, articles = templates.make_pages(0.75, templates=2)
    assert len(set(articles)) == 120 < len(pages)
    pairs = check_pairs(pages, near_pairs(pages, 12))
    kept, clusters, simpler = templates.decide(pages, pairs)
    similar = set(zip(pairs.left.tolist(), pairs.right.tolist(), strict=True))

    def strangers(representatives):
        joined = combinations(sorted(set(kept)), 2)
        return [(a, b) for a, b in joined if representatives[a] == representatives[b] and (a, b) not in similar]

    assert not strangers(clusters)
    assert strangers(simpler)
    assert all((min(page, simpler[page]), max(page, simpler[page])) in similar | {(page, page)} for page in kept)
    assert templates._judge({(0, 1), (0, 2), (1, 2)}, templates._joined([5, 5, 7, 7])) == [
        "0.333",
        "0.500",
        "0.400",
    ]


def test_boilerplate_is_left_out_and_judged():
    licence = "\n".join(f"line {number} of a licence that all of them have" for number in range(4))
    texts = [f"{licence}\nline of {name}\n  shared" for name in ("one", "two", "three")] + [licence]
    assert boilerplate.without_common(texts, 4)[:3] == [
        f"line of {name}\nshared" for name in ("one", "two", "three")
    ]
    assert boilerplate.without_common(texts, 5) == [text.replace("  ", "") for text in texts]
    assert boilerplate.without_common(texts, 4)[3] == licence
    words = " ".join(f"word{number}" for number in range(30))
    found = boilerplate.judge([words, words, f"{words} 1", "others"], {(0, 1), (1, 3)})
    assert found == ["0.333", "0.500", "0.400", "2", "1", "1.000"]


def test_the_charts_of_the_page_are_small():
    images = re.findall(r"\]\(\.\./(images/.*?)\)", PAGE.read_text(encoding="utf-8"))
    assert {f"images/{path.name}" for path in charts.IMAGES.glob("quality-*")} == set(images)
    for image in images:
        path = PAGE.parents[1] / image
        assert path.stat().st_size < 100_000
        ElementTree.parse(path)


def test_pictures_are_what_the_code_draws_and_have_alternative_texts():
    for name, draw in diagrams.PICTURES.items():
        assert (charts.IMAGES / f"{name}.svg").read_text(encoding="utf-8") == draw(), "run: make pictures"
    shown = set()
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        found = re.findall(r"!\[([^]]*)\]\((\S+)\)", text) + [
            (alternative, source)
            for source, alternative in re.findall(r'<img src="([^"]*)".*? alt="([^"]*)"', text)
        ]
        assert all(len(alternative) > 20 for alternative, _ in found), page
        shown |= {Path(source).name for _, source in found}
    assert {path.name for path in charts.IMAGES.iterdir()} - {"report-dark.png"} == shown
    assert all(path.stat().st_size < 300_000 for path in charts.IMAGES.iterdir())


@pytest.mark.parametrize("case", [limits.CASES[0], limits.CASES[7], limits.CASES[-3]], ids=lambda case: case[0])
def test_the_table_of_limits_is_on_the_page(case):
    assert limits.table_row(*case) in PAGE.read_text(encoding="utf-8").splitlines()


def test_the_collections_are_read():
    try:
        folder = find_folder()
    except MissingDataError as error:
        pytest.skip(str(error))
    assert [len(found.texts) for found in read_corpora(folder)] == [9107, 1042, 3367]
