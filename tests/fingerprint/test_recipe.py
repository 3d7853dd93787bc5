from itertools import combinations, product

import pytest

from simsql.fingerprint import DEFAULT, Pattern, Recipe, Tokenizer, simhash

ALL = [
    Recipe(tokens, shingles, weight)
    for tokens, weight in product(("words", "characters"), ("set", "log", "tf"))
    for size in (1, 2, 3)
    for shingles in combinations(range(1, 6), size)
]


def test_default_is_frozen_hashable_and_named():
    assert Recipe() == DEFAULT
    assert hash(DEFAULT) == hash(Recipe())
    assert DEFAULT.id == "words12-log-1"
    with pytest.raises(AttributeError):
        DEFAULT.weight = "set"


def test_ids_differ_and_give_the_recipe_back():
    assert len({recipe.id for recipe in ALL}) == len(ALL)
    for recipe in ALL:
        assert Recipe.from_id(recipe.id) == recipe


@pytest.mark.parametrize(
    "other",
    [
        Recipe("characters"),
        Recipe(shingles=(1,)),
        Recipe(shingles=(1, 3)),
        Recipe(weight="set"),
        Recipe(weight="tf"),
    ],
)
def test_every_field_counts(other):
    text = "to be or not to be that is the question whether it is nobler in the mind to suffer the slings"
    assert simhash(text, other) != simhash(text)


@pytest.mark.parametrize(
    "name", ["", "words12-log", "words12-log-2", "words21-log-1", "lines1-set-1", " words1-set-1"]
)
def test_unknown_ids_are_refused(name):
    with pytest.raises(ValueError, match=r"recipe|shingles"):
        Recipe.from_id(name)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"tokens": "lines"}, "tokens must be one of 'words', 'characters', 'jieba', not 'lines'"),
        ({"weight": "count"}, "weight must be one of 'set', 'log', 'tf', not 'count'"),
        ({"shingles": ()}, "ascending lengths from 1 to 9"),
        ({"shingles": (2, 1)}, "ascending lengths from 1 to 9"),
        ({"shingles": (1, 1)}, "ascending lengths from 1 to 9"),
        ({"shingles": (0,)}, "ascending lengths from 1 to 9"),
        ({"shingles": (10,)}, "ascending lengths from 1 to 9"),
        ({"shingles": (True,)}, "ascending lengths from 1 to 9"),
        ({"shingles": [1, 2]}, "must be a tuple"),
        ({"shingles": 3}, "must be a tuple"),
        ({"tie": 1.0}, "tie must be one of 0, 1, not 1.0"),
        ({"cyclic": 1}, "cyclic must be one of False, True, not 1"),
        ({"idf": "news.npz"}, "idf must be an IdfTable, not 'news.npz'"),
        ({"class_weights": (("a", 1), (2, 3))}, r"names in class_weights must be str, not \['a', 2\]"),
    ],
)
def test_wrong_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        Recipe(**arguments)


@pytest.mark.parametrize("expression", ["(", "a{99999999999}", "(" * 5000 + "a" + ")" * 5000, b"a", None])
def test_what_is_no_expression_is_refused(expression):
    with pytest.raises(ValueError, match=r"is no regular expression|an expression must be a str"):
        Pattern(expression)


def test_tokens_of_the_wrong_types_are_refused():
    with pytest.raises(ValueError, match="characters must be one of False, True, not 'no'"):
        Pattern("a", characters="no")
    with pytest.raises(ValueError, match="the name of a tokenizer"):
        Tokenizer(3, "1", str.split)
    with pytest.raises(ValueError, match="the version of a tokenizer"):
        Tokenizer("mine", 1, str.split)
