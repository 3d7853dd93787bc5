"""Recipes of other programs: what can be installed is run beside them, of others stands here what they gave."""

import json
import lzma
import re
import string
from itertools import islice

import by_hand
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from simhash import Simhash

from simsql.fingerprint import KNOWN_RECIPES, Recipe, simhash, simhash_features

SCRIPTS = "ab ABÉßİſǅΣς_1½Ⅷ\t\n.,'中文한बाالعยไ😀\u0301\u4e00\u9fccㄅ\ue000\u0378"
TEXTS = st.text(st.one_of(st.sampled_from(SCRIPTS), st.characters(codec="utf-8")), max_size=60)
PYPI = KNOWN_RECIPES["pypi-simhash"]

ENGLISH = "The quick brown fox jumps over the lazy dog near the river bank, and the dog sleeps."
MIXED = "ÀÉÎ Straße: 你好，世界！ 再见\tone  two\nthree four_five; six's SEVEN"
GREEK = "alpha beta gamma delta epsilon zeta eta theta"


# Indexes hold them.
IDS = {
    "pypi-simhash": "letters.ad0bfd93.4-tf-norm.lower-md5low-1",
    "pypi-simhash-1.7": "letters.ad0bfd93.4-tf-norm.lower-md5low-tie1-1",
    "simhash-py-words": "pattern.0224f6c9.4-tf-norm.none-md5-1",
    "simhash-py-letters": "letters.71bf0413.4-tf-norm.lower-md5-1",
    "data-juicer-space": "pattern.1a7e75fb.6-tf-norm.lower-md5-1",
    "data-juicer-character": "letters.2b582efd.6-tf-norm.lower-md5-1",
    "go-simhash": "pattern.0c9c50d6.1-tf-norm.lower-fnv1-tie1-1",
    "java-fnv1": "jieba1-tf-fnv1utf16-tie1-1",
    "fnv1a-words": "words1-tf-fnv1a-1",
    "fnv1a-shingles": "words3-tf-fnv1a-1",
    "pg_trgm": "trigrams1-set-1",
}


def test_names_and_ids_give_the_recipes():
    assert {name: recipe.id for name, recipe in KNOWN_RECIPES.items()} == IDS
    for name, recipe in KNOWN_RECIPES.items():
        assert Recipe.from_id(name) == Recipe.from_id(recipe.id) == recipe


@given(TEXTS)
@example("")
@example("  .,!")
@example("ab")
@example("abcd")
@example("How are you? I am fine. Thanks.")
def test_pypi_simhash_of_texts(text):
    characters = "".join(re.findall(r"[\w\u4e00-\u9fcc]+", text.lower()))
    # Simhash("") is a hash of nothing.
    assert simhash(text, PYPI) == (Simhash(text).value if characters else None)


@pytest.mark.parametrize("count", [50, 51, 199, 200, 255])
def test_pypi_simhash_of_texts_with_frequent_features(count):
    text = "abcd" * count + "xyz"
    assert simhash(text, PYPI) == Simhash(text).value


def test_pypi_simhash_of_whole_documents(shared):
    raised = 0
    with lzma.open(shared / "civil_codes.jsonl.xz") as english, lzma.open(shared / "cn_laws.jsonl.xz") as chinese:
        for line in [*islice(english, 20), *islice(chinese, 8)]:
            text = json.loads(line)["text"][:20000]
            try:
                expected = Simhash(text).value
            except OverflowError:  # with numpy 2, for a feature that occurs more than 255 times
                raised += 1
                expected = by_hand.fingerprint(text, PYPI)
            assert simhash(text, PYPI) == expected
    assert raised < 4


FEATURES = st.text(st.one_of(st.sampled_from("ab中"), st.characters(codec="utf-8")), max_size=4)


@given(st.lists(FEATURES, max_size=300))
def test_pypi_simhash_of_features(features):
    assert (simhash_features(features, PYPI) or 0) == Simhash(features).value


@given(st.lists(st.tuples(FEATURES, st.integers(0, 255)), max_size=60))
def test_pypi_simhash_of_features_with_weights(features):
    assert (simhash_features(features, PYPI) or 0) == Simhash(features).value
    assert simhash_features(dict(features), PYPI) == (Simhash(dict(features)).value or None)


def test_pypi_simhash_where_it_is_wrong():
    with pytest.raises(OverflowError):
        Simhash([("a", 256)])
    assert simhash_features([("a", 256), ("b", 1)], PYPI) == Simhash(["a"]).value
    # A weight stays for what follows without one.
    assert Simhash([("a", 2), "b", "c"]).value == Simhash([("a", 2), ("b", 2), ("c", 2)]).value
    assert simhash_features([("a", 2), "b", "c"], PYPI) == Simhash([("b", 1), ("c", 1), ("a", 2)]).value


def test_published_values_of_pypi_simhash(shared):
    written = {
        "str(i) for i in range(500)": list(map(str, range(500))),
        "(str(i), 50*i) for i in range(500)": [(str(i), 50 * i) for i in range(500)],
    }
    for case in json.loads((shared / "vectors.json").read_text())["python_simhash_package"]["cases"]:
        features = case["features"]
        if isinstance(features, str):
            features = written[features]
        assert simhash_features(features, PYPI) == case["simhash"]


# What simhash-pybind 0.0.3 gave, a build of simhash-cpp, for the calls that docs/reference/compatibility.md shows.
@pytest.mark.parametrize(
    ("name", "english", "mixed", "greek"),
    [
        ("simhash-py-words", 9296275658713567945, 9288109701515263377, 12858811809411490776),
        ("simhash-py-letters", 9336799467815386040, 17156546508222409980, 6445181944426053586),
        ("data-juicer-space", 14476612690061954791, 9306142986310469236, 8196199216241349799),
        ("data-juicer-character", 654766689485586102, 3224739618580622554, 9516158792178634026),
    ],
)
def test_values_of_simhash_py(name, english, mixed, greek):
    assert [simhash(text, KNOWN_RECIPES[name]) for text in (ENGLISH, MIXED, GREEK)] == [english, mixed, greek]


def window(tokens, size):
    return [tokens[start : start + size] for start in range(len(tokens) - size + 1)]


# Features as the users of simhash-py write them.
CALLS = {
    "simhash-py-words": lambda text: [" ".join(run) for run in window(text.split(), 4)],
    "simhash-py-letters": lambda text: window("".join(re.split(r"\W+", text.lower())), 4),
    "data-juicer-space": lambda text: [
        " ".join(run) for run in window(list(filter(None, text.lower().split(" "))), 6)
    ],
    "data-juicer-character": lambda text: window(text.lower(), 6),
}


@pytest.mark.parametrize("name", CALLS)
@given(text=TEXTS)
def test_simhash_py_of_texts(name, text):
    features = [(by_hand.spelling_hash(feature, "md5"), 1) for feature in CALLS[name](text)]
    # They give 0 for a text that is shorter than a window.
    assert not features or simhash(text, KNOWN_RECIPES[name]) == by_hand.majority(features)


def test_values_of_the_go_package():
    """Of its README."""
    published = {
        "this is a test phrase": 0x8C3A5F7E9ECB3F35,
        "this is a test phrass": 0x8C3A5F7E9ECB3F21,
        "foo bar": 0xD8DBE7186BAD3DB3,
    }
    for text, expected in published.items():
        assert simhash(text, KNOWN_RECIPES["go-simhash"]) == expected
        assert simhash_features(text.split(), KNOWN_RECIPES["go-simhash"]) == expected
    # Of its tests of features.
    assert by_hand.spelling_hash("test string", "fnv1") == 8811532157352841348
    here = simhash("Here's a test STRING. http://a.b/c_d", KNOWN_RECIPES["go-simhash"])
    assert here == simhash_features(
        ["here's", "a", "test", "string", "http://a.b/c_d"], KNOWN_RECIPES["go-simhash"]
    )


def test_published_values_of_the_java_code(shared):
    for case in json.loads((shared / "vectors.json").read_text())["java_fnv1_utf16"]["cases"]:
        expected = int(case["simhash"], 16)
        assert simhash_features(case["terms"], KNOWN_RECIPES["java-fnv1"]) == expected
        once = [term for term, count in case["terms"].items() for _ in range(count)]
        assert simhash_features(once, KNOWN_RECIPES["java-fnv1"]) == expected


def test_jieba_in_place_of_ikanalyzer():
    recipe = KNOWN_RECIPES["java-fnv1"]
    assert simhash("相似中国，相似文档。相似；中国！", recipe) == simhash_features(
        {"中国": 2, "文档": 1, "相似": 3}, recipe
    )


@given(st.text(st.sampled_from(string.ascii_letters + " .\né"), max_size=60))
def test_plain_fnv1a(text):
    for name in ("fnv1a-words", "fnv1a-shingles"):
        assert simhash(text, KNOWN_RECIPES[name]) == by_hand.fingerprint(text, KNOWN_RECIPES[name])


def test_a_golden_value_for_each():
    golden = {
        "pypi-simhash": 16726686294046640430,
        "pypi-simhash-1.7": 16799306856564492655,  # what simhash 1.7.1 gave; all ties of 2.1 are zeros
        "simhash-py-words": 13367740836813189849,
        "simhash-py-letters": 9336663197160126904,
        "data-juicer-space": 17142761261653429991,
        "data-juicer-character": 654766698276847254,
        "go-simhash": 15626617799624572031,
        "java-fnv1": 10974400500165753982,
        "fnv1a-words": 14607367226318451918,
        "fnv1a-shingles": 7702107541675299787,
        "pg_trgm": 9163650899459459588,
    }
    assert {
        name: simhash(f"{ENGLISH} 我来到北京清华大学", recipe) for name, recipe in KNOWN_RECIPES.items()
    } == golden
