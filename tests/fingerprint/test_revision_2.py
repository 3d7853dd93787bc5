"""Revision 2: letters with two code points fold to one. Revision 1 stays bit for bit."""

import unicodedata
from dataclasses import replace

import by_hand
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from minima import plain_sketch

from simsql.fingerprint import (
    DEFAULT_RECIPE,
    FOLDING_RECIPE,
    IdfTable,
    Pattern,
    Recipe,
    simhash,
    simhash_items_with_tokens,
    simhash_many,
    similarity,
    sketch,
    sketch_many,
)
from simsql.fingerprint.characters import FOLDED

UZBEK = (
    "Qoraqalpog'istonda yangi neft-gaz konlarini qidirish bo'yicha yirik loyiha boshlandi. Bu loyiha O'zbekiston"
    " energetika mustaqilligini mustahkamlashga yo'naltirilgan. Ish o'rinlari yaratilishini ta'kidladi."
)
ROMANIAN = "Consiliul orașului a aprobat construcția unui pod ȘI A ÎNCEPUT lucrările; mulți locuitori au"
PERSIAN = "شرکت جدید در شهر تهران یک پل بزرگ می‌سازد که کار آن از ماه آینده آغاز می‌شود و ۴۷ سال طول می‌کشد"
URDU = "یہ ایک نئی کتاب ہے جو لاہور میں چھپی ہے"
ARABIC = "أعلنت وزارة الصحة أن اللقاح الجديد آمن وأنه سيصل إلى جميع المدن، وقال الأمين إن الإجراءات أدت إلى انخفاض"
ASCII = "Don't stop `now`: it's 7 o'clock, and the ferry leaves at 8."
COPIES = [
    *((UZBEK, UZBEK.replace("'", other)) for other in "\u2019\u2018\u02bb\u02bc`\uff07\u02bd\u02be\u02bf"),
    (ROMANIAN, ROMANIAN.translate(str.maketrans("șțȘ", "şţŞ"))),
    (ROMANIAN, unicodedata.normalize("NFD", ROMANIAN)),
    (PERSIAN, PERSIAN.translate(str.maketrans("یک۴۷", "يك٤٧"))),
    (URDU, URDU.translate(str.maketrans("یکہ", "يكه"))),
    (ARABIC, ARABIC.translate(str.maketrans("أإآ", "ااا"))),
    (ARABIC, unicodedata.normalize("NFD", ARABIC)),
    ("على مصطفى كتاب", "علي مصطفي كتاب"),
    ("\ufef7\ufefc \ufb8e\ufbfc", "لألا كي"),
    ("\uff21\uff22\uff23\uff11 \uff76\uff9e\uff77", "abc1 ガキ"),
]
RECIPES = [
    Recipe(revision=2),
    Recipe("characters", (4,), revision=2),
    Recipe("trigrams", (1,), "set", revision=2),
    Recipe(hash="fnv1a", revision=2),
    Recipe(normalise=("nfkc", "lower"), revision=2),
    Recipe(Pattern(r"\w+"), revision=2),
    Recipe(stop_words=frozenset({"șI", "می", "to"}), revision=2),
]
# Every folded letter, what it becomes, and what composes or stands beside it.
LETTERS = (
    "".join(map(chr, FOLDED))
    + "".join(map(chr, FOLDED.values()))
    + "aZs9 -\u0326\u0327\u0654\u0655\u0653\u064e\u0640"
)
TEXTS = st.text(st.one_of(st.sampled_from(LETTERS), st.characters(codec=None)), max_size=30)


def test_ids():
    assert FOLDING_RECIPE == Recipe(revision=2) == Recipe.from_id("words12-log-2")
    assert (DEFAULT_RECIPE.id, FOLDING_RECIPE.id) == ("words12-log-1", "words12-log-2")
    assert DEFAULT_RECIPE.features_id != FOLDING_RECIPE.features_id
    for recipe in RECIPES[:5]:
        assert Recipe.from_id(recipe.id) == recipe
    for wrong in (0, 3, "2"):
        with pytest.raises(ValueError, match="revision must be one of 1, 2"):
            Recipe(revision=wrong)
    with pytest.raises(ValueError, match="phash, which takes no options"):
        Recipe("phash", (1,), "set", revision=2)
    with pytest.raises(ValueError, match="parts that its id does not spell out"):
        Recipe.from_id(Recipe(stop_words=frozenset({"a"}), revision=2).id)


def test_an_idf_table_is_that_of_its_revision():
    table = IdfTable.of_frequencies(np.array([1], np.uint64), np.array([3]), 3, 2, DEFAULT_RECIPE.features_id)
    with pytest.raises(ValueError, match="counted with the features of words12-set-1"):
        Recipe(idf=table, revision=2)


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.id)
@pytest.mark.parametrize(("one", "other"), COPIES)
def test_copies_have_one_fingerprint(one, other, recipe):
    if "casefold" not in recipe.normalise and "lower" not in recipe.normalise:
        one, other = one.lower(), other.lower()
    assert simhash(one, recipe) == simhash(other, recipe)


@pytest.mark.parametrize(("one", "other"), COPIES)
def test_their_similarity_and_sketch_follow(one, other):
    assert similarity(one, other) == similarity(one, other, revision=2) == 1
    assert sketch(one, revision=2) == sketch(other, revision=2)


def test_ascii_and_all_unfolded_texts_are_those_of_revision_1():
    for text in (
        ASCII,
        "Türkiye'de yaşayan",
        "中文字",
        "сьогодні п'ять",
        "résumé",
        URDU.translate(str.maketrans("یکہ", "يكه")),
    ):
        assert simhash(text, FOLDING_RECIPE) == simhash(text)
        assert sketch(text, revision=2) == sketch(text)


def test_what_differs_in_revision_1_still_does():
    for one, other in (copy for copy in COPIES if copy[0] in (PERSIAN, URDU) or "\u02bb" in copy[1]):
        assert simhash(one, Recipe(revision=1)) != simhash(other)
        assert similarity(one, other, revision=1) < 0.5


@given(TEXTS, st.sampled_from(RECIPES))
def test_it_is_revision_1_of_the_folded_normal_form(text, recipe):
    """The definition: after the steps of `normalise`, each letter becomes the one that the table names."""
    words = frozenset(by_hand.folded(word, recipe.normalise) for word in recipe.stop_words)
    marks = tuple(step for step in recipe.normalise if step == "marks")
    as_1 = replace(recipe, normalise=marks, stop_words=words, revision=1)
    assert simhash(text, recipe) == simhash(by_hand.folded(text, recipe.normalise), as_1)


@given(st.lists(TEXTS, max_size=5))
def test_batches_and_sketches(texts):
    assert simhash_many(texts, FOLDING_RECIPE).tolist() == [simhash(text, FOLDING_RECIPE) for text in texts]
    plain = [plain_sketch(text, FOLDING_RECIPE) for text in texts]
    assert sketch_many(texts, revision=2).tolist() == [sketch(text, revision=2) for text in texts] == plain
    found = list(simhash_items_with_tokens(enumerate(texts), FOLDING_RECIPE))
    assert [value or None for *_, minima in found for value in minima.sketches.tolist()] == plain


@pytest.mark.parametrize("kind", ["splitmix", "fnv1a"])
def test_stop_words_fold(kind):
    recipe = Recipe(stop_words=frozenset({"\u0645\u06cc"}), hash=kind, revision=2)
    found = simhash("\u0645\u064a \u0631\u0648\u062f", recipe)
    assert found is not None
    assert found == simhash("\u0645\u06cc \u0631\u0648\u062f", recipe)


def test_the_table_is_idempotent_and_keeps_letters_letters():
    assert not set(FOLDED) & set(FOLDED.values())
    assert min(FOLDED) > 0x7F
    for target in FOLDED.values():
        assert unicodedata.normalize("NFKC", chr(target)) == chr(target)
        assert chr(target).isalnum() or chr(target) == "'"
