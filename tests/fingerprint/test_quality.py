"""The figures that chose the default recipe, on the labelled texts and on a few that are always here."""

import csv
from itertools import combinations
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import labelled, quality
from simsql.fingerprint import DEFAULT_RECIPE, Recipe, simhash_many

DISTANCES = quality.DISTANCES


@pytest.fixture(scope="module")
def codes(shared):
    return labelled.read_civil_codes(shared)


@pytest.fixture(scope="module")
def hadiths(shared):
    return labelled.read_hadiths(shared)


def test_pairs_of_civil_codes_within_a_distance(codes):
    at_3, at_5, at_7, at_10 = quality.find_agreement(simhash_many(codes.texts), codes.alike, DISTANCES)
    assert at_3.recall_9 >= 0.81
    assert at_3.precision >= 0.999
    assert at_5.recall_9 >= 0.93
    assert at_5.precision >= 0.99
    assert at_7.recall_9 >= 0.99
    assert at_7.recall_7 >= 0.72
    assert at_7.precision >= 0.97
    assert at_10.recall_9 >= 0.999
    assert at_10.recall_7 >= 0.93
    assert at_10.precision >= 0.86


def test_the_documentation_shows_what_is_measured(codes, hadiths):
    shown = (Path(__file__).parents[2] / "docs/explanation/quality.md").read_text(encoding="utf-8").splitlines()
    recipes = {recipe.id: recipe for recipe in (DEFAULT_RECIPE, Recipe(shingles=(3,), weight="set"))}
    for data in (codes, hadiths):
        found = quality.fingerprint_all(data.texts, recipes)
        again = quality.fingerprint_all(data.again, recipes) if data.again else None
        lines = [quality.describe(data), *quality.pair_table(data, found, again)]
        if data is codes:
            lines += quality.cluster_table(data, found)
        assert [line for line in lines if line not in shown] == []
    assert [name for name in quality.RECIPES if sum(line.startswith(f"| {name} |") for line in shown) != 4] == []


def test_clusters_of_civil_codes(codes):
    clusters = quality.cluster(simhash_many(codes.texts))
    found = quality.cluster_agreement(clusters, codes.alike)
    assert found.recall_9 >= 0.99
    assert found.recall_7 >= 0.77
    assert found.precision >= 0.92
    assert max(map(len, clusters)) <= 20


def test_brute_force_has_the_labelled_pairs(shared, codes):
    """The file of labels was made apart, and lacks 117 pairs."""
    ids = [row["id"] for row in labelled.read_lines(shared / "civil_codes.jsonl.xz")]
    place = {name: number for number, name in enumerate(ids)}
    with (shared / "civil_codes.pairs.csv").open(newline="", encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    for row in rows:
        a, b = sorted((place[row["id_a"]], place[row["id_b"]]))
        assert codes.alike[a, b] == pytest.approx(float(row["jaccard_word3"]), abs=1e-4)
    assert len(rows) == 8286
    assert len(codes.alike) == 8403


def test_hadiths_with_and_without_vowel_signs(hadiths):
    plain, marked = simhash_many(hadiths.texts), simhash_many(hadiths.again)
    assert len(plain) == 3367
    assert plain.tolist() == marked.tolist()
    assert quality.compare_forms(plain, marked, (0,)) == [1]
    assert len(np.unique(plain.compressed())) >= 3360
    at_7 = quality.find_agreement(plain, hadiths.alike, (7,))[0]
    assert at_7.recall_9 == 1
    assert at_7.precision >= 0.94


def test_chinese_laws(shared):
    texts = [row["text"] for row in labelled.read_lines(shared / "cn_laws.jsonl.xz")]
    together = [pair for members in quality.cluster(simhash_many(texts)) for pair in combinations(members, 2)]
    assert len(together) >= 30
    for a, b in together:
        left, right = labelled.character_5_grams(texts[a]), labelled.character_5_grams(texts[b])
        assert len(left & right) / len(left | right) >= 0.5


@given(st.lists(st.frozensets(st.integers(0, 12), max_size=8), max_size=12), st.sampled_from([0.1, 0.5, 1.0]))
def test_brute_force_is_the_jaccard_index_of_every_pair(sets, least):
    expected = {}
    for (a, left), (b, right) in combinations(enumerate(sets), 2):
        index = len(left & right) / max(len(left | right), 1)
        if index >= least:
            expected[a, b] = index
    assert labelled.find_alike(map(set, sets), least) == expected


FINGERPRINTS = st.lists(st.one_of(st.none(), st.integers(0, 255), st.just(2**64 - 1)), max_size=15)


@given(FINGERPRINTS, st.randoms(use_true_random=False))
def test_agreement_is_counted_pair_by_pair(values, random):
    places = list(combinations(range(len(values)), 2))
    alike = {pair: random.choice([0.5, 0.69, 0.7, 0.9, 1.0]) for pair in places if random.random() < 0.4}
    fingerprints = np.ma.MaskedArray(
        np.array([value or 0 for value in values], dtype=np.uint64), mask=[value is None for value in values]
    )

    def share(part, whole):
        return len(part) / len(whole) if whole else None

    for distance, agreement in zip(DISTANCES, quality.find_agreement(fingerprints, alike, DISTANCES), strict=True):
        known = [(a, b) for a, b in places if values[a] is not None and values[b] is not None]
        found = {(a, b) for a, b in known if (values[a] ^ values[b]).bit_count() <= distance}
        nine, seven = ({pair for pair, index in alike.items() if index >= least} for least in (0.9, 0.7))
        assert agreement.found == len(found)
        assert agreement.recall_9 == share(found & nine, nine)
        assert agreement.recall_7 == share(found & seven, seven)
        assert agreement.precision == share(found & alike.keys(), found)


def test_tables_have_every_recipe_and_distance():
    texts = [f"one text of some words that number {number // 2} tells apart" for number in range(6)] + ["?"]
    alike = labelled.find_alike(map(labelled.word_trigrams, texts))
    data = labelled.Labelled("English", "made up", texts, alike, texts[::-1])
    # But for the one that reads a dictionary, for seconds.
    recipes = {name: recipe for name, recipe in quality.recipes_for(data).items() if recipe.tokens != "jieba"}
    found, again = (quality.fingerprint_all(part, recipes) for part in (texts, texts[::-1]))
    title, rule, *rows = quality.pair_table(data, found, again)
    assert title.count("|") == rule.count("|") == 1 + 1 + 4 * len(DISTANCES)
    assert (
        {row.split(" | ")[0].removeprefix("| ") for row in rows}
        == set(recipes)
        > set(quality.KNOWN_RECIPES) - {"java-fnv1", "pg_trgm"}
    )
    assert len(list(quality.cluster_table(data, found))) == 2 + len(rows)
    assert quality.describe(data).startswith("7 texts, 0.0 MB; pairs by their Jaccard index: 3 of 0.9 or more, ")


def test_missing_data_are_named(monkeypatch, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "cn_laws.jsonl.xz").touch()
    monkeypatch.setenv("SIMSQL_SHARED", str(tmp_path))
    # A message is printed to stderr, and the exit code is 1.
    with pytest.raises(SystemExit, match=r"lacks civil_codes\.jsonl\.xz, hadith_darimi\.jsonl\.xz: set SIMSQL_"):
        quality.main()


def edited(words, random, edits):
    words = list(words)
    for place in random.sample(range(len(words)), edits):
        words[place] = f"edit{random.randrange(1000)}"
    return words


@pytest.mark.parametrize("joiner", [" ", ""], ids=["words", "chinese"])
def test_few_edits_are_joined_and_other_texts_are_not(joiner):
    random = Random(7)
    # Few words are frequent and many are rare, as in any language.
    vocabulary = [chr(0x4E00 + n) if joiner == "" else f"word{n}" for n in range(3000)]
    weights = [1 / (rank + 3) for rank in range(len(vocabulary))]
    texts = []
    for _ in range(100):
        words = random.choices(vocabulary, weights, k=400)
        texts += [joiner.join(words), joiner.join(edited(words, random, 4))]
    clusters = quality.cluster(simhash_many(texts))
    assert all(len(members) == 2 and members[1] == members[0] + 1 for members in clusters)
    assert len(clusters) >= 95


def test_optional_vowel_signs_do_not_count():
    pairs = [
        ("إِنَّمَا الْأَعْمَالُ بِالنِّيَّاتِ", "إنما الأعمال بالنيات"),
        ("الْحَمْدُ لِلَّهِ رَبِّ الْعَالَمِينَ", "الحمد لله رب العالمين"),
        ("\u200fحَدَّثَنَا \u200fمُحَمَّدُ بْنُ يُوسُفَ", "حدثنا محمد بن يوسف"),
    ]
    with_signs, without = (simhash_many(texts).tolist() for texts in zip(*pairs, strict=True))
    assert with_signs == without
    assert len(set(without)) == len(pairs)
