"""The figures that chose the default recipe, on the labelled texts and on a few that are always here."""

from itertools import combinations
from random import Random

import numpy as np
import pytest

from simsql.fingerprint import simhash_many


def test_civil_codes(shared, quality):
    codes = quality.read_lines(shared / "civil_codes.jsonl.xz")
    labelled = quality.read_labelled_pairs(shared / "civil_codes.pairs.csv", [row["id"] for row in codes])
    found = quality.agreement(quality.cluster(simhash_many(row["text"] for row in codes)), labelled)
    assert found.recall_9 >= 0.98
    assert found.recall_7 >= 0.77
    assert found.precision_5 >= 0.91
    assert found.largest <= 20


def test_hadiths_with_and_without_vowel_signs(shared, quality):
    hadiths = quality.read_lines(shared / "hadith_darimi.jsonl.xz")
    plain = simhash_many(row["plain"] for row in hadiths)
    assert len(plain) == 3367
    assert plain.tolist() == simhash_many(row["diacritised"] for row in hadiths).tolist()
    assert len(np.unique(plain.compressed())) >= 3360


def test_chinese_laws(shared, quality):
    laws = [row["text"] for row in quality.read_lines(shared / "cn_laws.jsonl.xz")]
    clusters = quality.cluster(simhash_many(laws))
    joined = [quality.jaccard_of_5_grams(laws[a], laws[b]) for same in clusters for a, b in combinations(same, 2)]
    assert len(joined) >= 30
    assert min(joined) >= 0.5


def edited(words, random, edits):
    words = list(words)
    for place in random.sample(range(len(words)), edits):
        words[place] = f"edit{random.randrange(1000)}"
    return words


@pytest.mark.parametrize("joiner", [" ", ""], ids=["words", "chinese"])
def test_few_edits_are_joined_and_other_texts_are_not(quality, joiner):
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
