"""One description of an index: checked when it is made, and rendered in one way."""

from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from sqlalchemy import Column, func, select
from sqlalchemy.dialects import postgresql

from simsql import Design, Recipe
from simsql.database import IndexSpec

FULL = IndexSpec("fingerprint", 7, Design(6, 3, 4), "words2-log-1", ("tenant", "language"))


def rendered(arguments):
    statement = select(func.simsql.create_index("article", *arguments))
    return str(statement.compile(dialect=postgresql.dialect(), compile_kwargs={"literal_binds": True}))


def test_only_what_is_said_is_rendered():
    assert IndexSpec("fingerprint").options() == {"distance": 3}
    assert FULL.options() == {
        "distance": 7,
        "blocks": 6,
        "lead": 3,
        "inner_blocks": 4,
        "recipe": "words2-log-1",
        "scope": ["tenant", "language"],
    }
    assert "('article', 'it''s', distance => 3)" in rendered(IndexSpec("it's").arguments())
    assert (
        "distance => 7, blocks => 6, lead => 3, inner_blocks => 4, recipe => 'words2-log-1',"
        " scope => CAST(ARRAY['tenant', 'language'] AS TEXT[]))"
    ) in rendered(FULL.arguments())


def test_options_that_are_asked_for_are_null_where_nothing_is_said():
    arguments = IndexSpec("fingerprint").arguments(("distance", "blocks", "scope"))
    assert "distance => 3, blocks => CAST(NULL AS INTEGER), scope => CAST(NULL AS TEXT[]))" in rendered(arguments)


def test_values_of_many_kinds_become_plain_ones():
    names = [Column(name) for name in ("fingerprint", "tenant")]
    column, scope = (column.name for column in names)
    spec = IndexSpec(column, distance=np.int64(5), recipe=Recipe(shingles=(3,)), scope=[scope])
    assert spec == IndexSpec("fingerprint", 5, None, "words3-log-1", ("tenant",))
    # As the index is to know it, however it is spelled.
    assert IndexSpec("title", recipe="pg_trgm") == IndexSpec("title", recipe="trigrams1-set-1")
    assert [type(value) for value in (spec.column, spec.distance, *spec.scope)] == [str, int, str]


@pytest.mark.parametrize("distance", [-1, 65])
def test_a_distance_out_of_range_is_refused(distance):
    with pytest.raises(ValueError, match=f"distance must be between 0 and 64, not {distance}"):
        IndexSpec("fingerprint", distance)


@pytest.mark.parametrize("arguments", [{"distance": "3"}, {"distance": True}, {"scope": "tenant"}])
def test_a_value_of_another_type_is_refused(arguments):
    with pytest.raises(TypeError):
        IndexSpec("fingerprint", **arguments)


def test_the_storage_is_one_of_two():
    spec = IndexSpec("fingerprint", storage="expression")
    assert "('article', 'fingerprint', distance => 3, storage => 'expression')" in rendered(spec.arguments())
    with pytest.raises(ValueError, match="storage must be 'tables' or 'expression', not 'rows'"):
        IndexSpec("fingerprint", storage="rows")


def test_a_description_never_changes():
    with pytest.raises(FrozenInstanceError):
        FULL.distance = 3
