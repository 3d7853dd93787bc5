"""What every search checks, whoever builds it: in Python, in a model, on the command line."""

import typing
from dataclasses import fields

import pytest

from simsql import DEFAULT_RECIPE, sketch
from simsql.database.query import NOT_GIVEN, Query, QueryOptions, RowOptions, RowQuery, compared_source
from simsql.database.sources import Sources
from simsql.errors import UsageError


@pytest.mark.parametrize(
    ("arguments", "options", "said"),
    [
        ((), {}, "pass either a fingerprint or text="),
        ((NOT_GIVEN, 3), {"text": None}, "pass either a fingerprint or text="),
        ((5,), {"text": "five"}, "pass either a fingerprint or text=, not both"),
        ((None,), {"text": "five"}, "pass either a fingerprint or text=, not both"),
        ((5,), {"recipe": DEFAULT_RECIPE}, "recipe= applies only to a text"),
        ((5, 65), {}, "distance must be between 0 and 64, not 65"),
        ((5, -1), {}, "distance must be between 0 and 64, not -1"),
        ((5, 129), {"words": 2}, "distance must be between 0 and 128, not 129"),
        ((5,), {"similarity": 0.5}, "there is no text: pass text="),
        ((), {"text": "a", "similarity": -0.1}, "similarity must be between 0 and 1, not -0.1"),
        ((), {"text": "a", "similarity": 1.5}, "similarity must be between 0 and 1, not 1.5"),
        ((), {"text": "a", "similarity": float("nan")}, "similarity must be between 0 and 1, not nan"),
    ],
)
def test_what_nobody_can_search_for_is_refused(arguments, options, said):
    with pytest.raises(UsageError, match=said):
        RowQuery(*arguments, **options)


def test_values_of_other_types_are_refused():
    with pytest.raises(TypeError, match=r"similarity must be a number between 0 and 1, not '0\.5'"):
        RowQuery(text="a", similarity="0.5")
    for distance in (1.0, True, "1"):
        with pytest.raises(TypeError, match=f"distance must be an int between 0 and 64, not {distance!r}"):
            Query(5, distance)


def test_a_search_for_fingerprints_compares_no_texts():
    with pytest.raises(TypeError, match="unexpected keyword argument 'similarity'"):
        Query(text="a", similarity=0.5)


def test_null_is_a_fingerprint_and_matches_nothing():
    assert Query(None).fingerprint is None


def test_a_text_is_compared_with_a_single_source():
    query = RowQuery(text={"title": "?", "body": "some words"}, similarity=0.5)
    assert [query.sketch(name, 1) for name in ("title", "body", "other")] == [None, sketch("some words"), None]
    assert RowQuery(text="some words").sketch("body", 2) == sketch("some words", revision=2)
    one = Sources.of("body", None)
    assert compared_source(one, "article.fp") == one
    for sources, said in ((None, "no source"), (Sources.of({"a": 1, "b": 1}, None), "several sources")):
        with pytest.raises(UsageError, match=rf"^article\.fp has {said}, so there is no single text"):
            compared_source(sources, "article.fp")


@pytest.mark.parametrize(("kind", "options"), [(Query, QueryOptions), (RowQuery, RowOptions)])
def test_searches_offer_every_option(kind, options):
    names = {field.name for field in fields(kind)} - {"fingerprint", "distance", "words"}
    assert set(typing.get_type_hints(options)) == names
