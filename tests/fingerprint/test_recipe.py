from itertools import combinations, product

import pytest

from simsql.fingerprint import (
    DEFAULT_RECIPE,
    Pattern,
    Recipe,
    Tokenizer,
    count_documents,
    simhash,
    simhash_features,
    simhash_html,
    simhash_many,
    simhash_parts,
    write_recipe,
)

ALL = [
    Recipe(tokens, shingles, weight)
    for tokens, weight in product(("words", "characters"), ("set", "log", "tf"))
    for size in (1, 2, 3)
    for shingles in combinations(range(1, 6), size)
]


def test_default_is_frozen_hashable_and_named():
    assert Recipe() == DEFAULT_RECIPE
    assert hash(DEFAULT_RECIPE) == hash(Recipe())
    assert DEFAULT_RECIPE.id == "words12-log-1"
    with pytest.raises(AttributeError):
        DEFAULT_RECIPE.weight = "set"


def test_ids_differ_and_give_the_recipe_back():
    assert len({recipe.id for recipe in ALL}) == len(ALL)
    for recipe in ALL:
        assert Recipe.from_id(recipe.id) == recipe


@pytest.mark.parametrize(
    "name", ["", "words12-log", "words12-log-0", "words12-log-3", "words21-log-1", "lines1-set-1", " words1-set-1"]
)
def test_unknown_ids_are_refused(name):
    with pytest.raises(ValueError, match=r"recipe|shingles"):
        Recipe.from_id(name)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"tokens": "lines"},
            "tokens must be one of 'words', 'characters', 'trigrams', 'jieba', 'phash', a"
            " simsql.fingerprint.Pattern or Tokenizer, not 'lines'",
        ),
        ({"tokens": str.split}, "a simsql.fingerprint.Pattern or Tokenizer, not <method"),
        ({"tokens": ["words"]}, "a simsql.fingerprint.Pattern or Tokenizer, not"),
        ({"min_features": "5"}, "min_features must be an int of at least 1, not '5'"),
        ({"min_features": 5.0}, "min_features must be an int of at least 1, not 5.0"),
        ({"class_weights": {"title": 3}}, "must be a tuple of pairs such as"),
        ({"class_weights": (("title", 3), ("heading", 2))}, "sorted by name, without duplicates"),
        ({"class_weights": (("title", 3), ("title", 2))}, "sorted by name, without duplicates"),
        ({"class_weights": (("Title", 3),)}, "must consist of a-z, 0-9 and _, not"),
        ({"class_weights": (("a", 1), (2, 3))}, r"names in class_weights must .* and _, not \['a', 2\]"),
        ({"weight": "count"}, "weight must be one of 'set', 'log', 'tf', not 'count'"),
        ({"shingles": ()}, "ascending lengths between 1 and 9"),
        ({"shingles": (2, 1)}, "ascending lengths between 1 and 9"),
        ({"shingles": (1, 1)}, "ascending lengths between 1 and 9"),
        ({"shingles": (0,)}, "ascending lengths between 1 and 9"),
        ({"shingles": (10,)}, "ascending lengths between 1 and 9"),
        ({"shingles": (True,)}, "ascending lengths between 1 and 9"),
        ({"shingles": [1, 2]}, "must be a tuple"),
        ({"shingles": 3}, "must be a tuple"),
        ({"tie": 1.0}, "tie must be one of 0, 1, not 1.0"),
        ({"cyclic": 1}, "cyclic must be one of False, True, not 1"),
        ({"idf": "news.npz"}, "idf must be an IdfTable, as count_documents returns, not 'news.npz'"),
    ],
)
def test_wrong_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        Recipe(**arguments)


@pytest.mark.parametrize(
    "call",
    [
        lambda recipe: simhash("a", recipe),
        lambda recipe: simhash_many(["a"], recipe),
        lambda recipe: simhash_parts([("a", "title")], recipe),
        lambda recipe: simhash_html("a", recipe),
        lambda recipe: simhash_features(["a"], recipe),
        lambda recipe: count_documents(["a"], recipe),
        lambda recipe: write_recipe(recipe, "never.json"),
    ],
)
def test_the_id_of_a_recipe_is_no_recipe(call):
    with pytest.raises(TypeError, match=r"a recipe must be a Recipe, not str: use Recipe\.from_id"):
        call(DEFAULT_RECIPE.id)
    with pytest.raises(TypeError, match=r"a recipe must be a Recipe, not NoneType$"):
        call(None)


@pytest.mark.parametrize("expression", ["(", "a{99999999999}", "(" * 50_000, b"a", None])
def test_what_is_no_expression_is_refused(expression):
    with pytest.raises(ValueError, match=r"is not a regular expression|an expression must be a str"):
        Pattern(expression)


def test_tokens_of_the_wrong_types_are_refused():
    with pytest.raises(ValueError, match="characters must be one of False, True, not 'no'"):
        Pattern("a", characters="no")
    with pytest.raises(ValueError, match="the name of a tokenizer"):
        Tokenizer(3, "1", str.split)
    with pytest.raises(ValueError, match="the version of a tokenizer"):
        Tokenizer("mine", 1, str.split)
