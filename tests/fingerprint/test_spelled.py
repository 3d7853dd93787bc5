import json
import lzma
import subprocess
import sys
from itertools import combinations, islice

import by_hand
import pytest
from hypothesis import given
from hypothesis import strategies as st
from recipe_parts import HASHES, STEPS, TOKENS, split

from simsql.fingerprint import Recipe, simhash, simhash_many
from simsql.fingerprint.extract import find_tokens, hash_found_tokens
from simsql.fingerprint.recipe import Pattern, Tokenizer
from simsql.fingerprint.tokens import hash_tokens

# Letter case, width, ligatures, marks that compose and that do not, separators, surrogates.
LETTERS = "abABéÉe\u0301xﬁſßＡИйب\u064e\u0640\u200d\u00ad _.,\ud83d\n"
TEXTS = st.text(st.sampled_from(LETTERS), max_size=25)


RECIPES = st.builds(
    Recipe,
    tokens=st.sampled_from(TOKENS),
    shingles=st.sampled_from([lengths for size in (1, 2) for lengths in combinations(range(1, 6), size)]),
    weight=st.sampled_from(["set", "log", "tf"]),
    normalise=st.sampled_from(STEPS),
    hash=st.sampled_from(["splitmix", *HASHES]),
    cyclic=st.booleans(),
    tie=st.integers(0, 1),
    stop_words=st.sampled_from([frozenset(), frozenset({"a"}), frozenset({"É", "b", "x"})]),
)


@given(st.lists(TEXTS, max_size=4), RECIPES)
def test_fingerprints_of_every_recipe_are_the_definition(texts, recipe):
    expected = [by_hand.fingerprint(text, recipe) for text in texts]
    assert simhash_many(texts, recipe).tolist() == expected
    assert [simhash(text, recipe) for text in texts] == expected


@given(
    st.lists(st.text(st.one_of(st.sampled_from(LETTERS + "中文字ไทย😀"), st.characters(codec=None)), max_size=25)),
    st.sampled_from(["words", "characters"]),
)
def test_both_ways_to_tokens_have_the_same(texts, kind):
    hashes, counts = hash_tokens(texts, kind)
    spelled_hashes, spelled_counts = hash_found_tokens(texts, Recipe(kind))
    assert spelled_hashes.tolist() == hashes.tolist()
    assert spelled_counts.tolist() == counts.tolist()


def words_of_simsql(text):
    return find_tokens([text], Recipe())[0]


@given(TEXTS, st.sampled_from([(1,), (2,), (1, 2), (3, 5)]), st.sampled_from(["set", "log", "tf"]))
def test_a_tokenizer_that_finds_words_has_the_fingerprints_of_words(text, shingles, weight):
    own = Recipe(Tokenizer("words", "1", words_of_simsql), shingles, weight)
    assert simhash(text, own) == simhash(text, Recipe("words", shingles, weight))


@given(TEXTS, st.sampled_from([kind for kind in TOKENS if not isinstance(kind, str)]), st.sampled_from(STEPS))
def test_other_tokens_are_hashed_like_words(text, kind, steps):
    recipe = Recipe(kind, (1, 3), normalise=steps)
    assert simhash(text, recipe) == by_hand.fingerprint(text, recipe)


def test_tokens_of_every_kind():
    text = "Ab, cd'é\u0301 中文。 ok😀"
    assert find_tokens([text, ""], Recipe(Pattern(r"\w+"))) == [["ab", "cd", "é", "中文", "ok"], []]
    assert find_tokens([text], Recipe(Pattern(r"(\w)(\w)"))) == [["ab", "cd", "中文", "ok"]]
    assert find_tokens([text], Recipe(Pattern(r"\b|A"), normalise=()))[0] == ["A"]
    assert find_tokens([text], Recipe(Pattern(r"[a-z]+", characters=True))) == [list("abcdok")]
    assert find_tokens(["A B"], Recipe(Tokenizer("split", "1", split))) == [["a", "b"]]
    assert find_tokens([text], Recipe("words")) == [["ab", "cd", "é", "中文", "ok", "😀"]]
    assert find_tokens(["e\u0301-x\u00ad"], Recipe("characters", normalise=())) == [["e\u0301", "x\u00ad"]]
    assert find_tokens(["e\u0301-x\u00ad"], Recipe("characters", normalise=("marks",))) == [["e", "x"]]


def test_tokens_stand_apart_but_characters_do_not():
    words = Recipe(Pattern(r"\w+"), (2,), hash="md5", normalise=())
    assert simhash("ab. cd", words) == by_hand.spelling_hash("ab cd", "md5")
    letters = Recipe(Pattern(r"\w+", characters=True), (4,), hash="md5", normalise=())
    assert simhash("ab. cd", letters) == by_hand.spelling_hash("abcd", "md5")
    assert simhash("Ab. cd", Recipe("characters", (4,), hash="md5")) == by_hand.spelling_hash("abcd", "md5")


def test_a_short_text_is_one_feature():
    recipe = Recipe(shingles=(3, 4), hash="fnv1a")
    assert simhash("one two", recipe) == by_hand.spelling_hash("one two", "fnv1a")
    assert simhash("", recipe) is None
    assert simhash("one two", Recipe(shingles=(3,), hash="fnv1a", stop_words=frozenset({"the"}))) is None


def test_stop_words_choose_shingles_and_are_normalised():
    recipe = Recipe(shingles=(2,), hash="md5", stop_words=frozenset({"The"}))
    assert simhash("menu home near the river", recipe) == by_hand.vote(
        {("near", "the"): 1, ("the", "river"): 1}, recipe
    )
    assert simhash("menu home contact", recipe) is None


def test_cyclic_shingles_go_on_at_the_beginning():
    recipe = Recipe(shingles=(3,), hash="md5", cyclic=True)
    runs = {("a", "b", "c"): 1, ("b", "c", "d"): 1, ("c", "d", "a"): 1, ("d", "a", "b"): 1}
    assert simhash("a b c d", recipe) == by_hand.vote(runs, recipe)
    assert simhash("b c d a", recipe) == simhash("a b c d", recipe)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda text: text, "the tokenizer 'mine' must return an iterable of str, not str"),
        (lambda text: None, "the tokenizer 'mine' must return an iterable of str, not NoneType"),
        (lambda text: ["a", 7], "must return tokens that are str, but token 1 of a text is int"),
        (lambda text: [b"a"], "must return tokens that are str, but token 0 of a text is bytes"),
    ],
)
def test_wrong_tokenizers_are_named(function, message):
    with pytest.raises(TypeError, match=message):
        simhash("a b", Recipe(Tokenizer("mine", "1", function)))


def test_a_tokenizer_may_yield():
    assert simhash("a b", Recipe(Tokenizer("mine", "1", lambda text: iter(text.split())))) == simhash("a b")


def test_jieba_finds_words_and_leaves_out_the_rest():
    recipe = Recipe("jieba", (1,), "set")
    text = "我来到北京清华大学，ABC１２ ___ -- 😀\n"
    assert find_tokens([text], recipe) == [["我", "来到", "北京", "清华大学", "abc12", "😀"]]
    assert simhash("!!! ，。", recipe) is None


def test_jieba_finds_its_own_words_in_whole_documents(shared, tmp_path):
    with lzma.open(shared / "cn_laws.jsonl.xz") as laws:
        texts = [json.loads(line)["text"][:4000] for line in islice(laws, 10)]
    found = find_tokens(texts, Recipe("jieba", normalise=()))
    import jieba  # now that its warnings are over

    tokenizer = jieba.Tokenizer()
    tokenizer.tmp_dir = tmp_path
    assert found == [[token for token in tokenizer.cut(text) if any(map(str.isalnum, token))] for text in texts]


def test_jieba_is_quiet_and_keeps_to_its_own_dictionary(tmp_path):
    done = run(
        """
import os
from simsql.fingerprint import Recipe, simhash
before = simhash("清华大学的文档", Recipe("jieba"))
assert not os.listdir(os.environ["TMPDIR"])
import jieba
jieba.setLogLevel("CRITICAL")
jieba.add_word("大学的文")
assert simhash("清华大学的文档", Recipe("jieba")) == before
""",
        TMPDIR=str(tmp_path),
    )
    assert (done.returncode, done.stderr) == (0, "")


def run(script, **environment):
    environment["PYTHONPATH"] = ":".join(filter(None, sys.path))
    command = [sys.executable, "-c", script]
    return subprocess.run(command, env=environment, check=False, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(("package", "recipe"), [("jieba", "Recipe('jieba')"), ("xxhash", "Recipe(hash='xxh3')")])
def test_what_to_install_is_said(package, recipe):
    done = run(
        f"""
import sys
sys.modules[{package!r}] = None
from simsql.fingerprint import Recipe, simhash
simhash("text", {recipe})
"""
    )
    installed = {"jieba": "jieba==0.42.1", "xxhash": "xxhash"}[package]
    assert done.stderr.splitlines()[-1].endswith(f"needs the package {package}: pip install {installed}")
