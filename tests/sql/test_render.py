"""Templates of SQL: what stands for what, and nothing else."""

import pytest
from psycopg import errors
from psycopg.types.json import Jsonb

# A name, a literal and a table that look like templates, or end what they stand in.
HOSTILE = [
    'a{"b"}',
    "{'b'}",
    "{b}",
    'quo"te',
    "quo'te",
    "back\\slash",
    "%1$s %I",
    "$sql$",
    "E'\\n'",
    "\\1",
    " ",
    "é{b}é",
]


def render(connection, template, own=None, shared=None):
    call = "SELECT simsql._render(%s, %s, %s)"
    return connection.execute(call, (template, Jsonb(own or {}), Jsonb(shared or {}))).fetchone()[0]


def test_quotes_tell_how_a_part_is_quoted(connection):
    template = "SELECT {\"column\"}, {'mask'}::bigint FROM {rows}{nothing} WHERE {flag}"
    own = {"column": "Fp", "mask": -9223372036854775808, "rows": "ONLY public.t", "nothing": None, "flag": True}
    expected = "SELECT \"Fp\", '-9223372036854775808'::bigint FROM ONLY public.t WHERE true"
    assert render(connection, template, own) == expected
    assert render(connection, "{'null'}", {"null": None}) == "NULL"
    assert render(connection, "{a}{a}", {"a": 1}, {"b": 2}) == "11"
    assert render(connection, "{a}", {"a": 1}, {"a": 2}) == "1"


@pytest.mark.parametrize("value", HOSTILE)
def test_a_part_is_never_read_as_a_template(connection, value):
    name, literal = connection.execute("SELECT quote_ident(%s), quote_literal(%s)", (value, value)).fetchone()
    own = {"b": "expanded", "n": value, "l": value, "s": value}
    assert render(connection, "{\"n\"} {'l'} {s} {b}", own) == f"{name} {literal} {value} expanded"
    assert connection.execute(
        render(connection, "SELECT {'l'} AS {\"n\"}", {"l": value, "n": value})
    ).fetchone() == (value,)


@pytest.mark.parametrize(
    "braces", ["'{}'", "'{0}'", "{1,2}", "x{2,3}", "{A}", "{ a }", "{'a\"}", "{", "}", "{{}}", "", "%s"]
)
def test_other_braces_stay(connection, braces):
    assert render(connection, braces) == braces
    assert render(connection, f"{braces}{{a}}{braces}", {"a": "!"}) == f"{braces}!{braces}"


@pytest.mark.parametrize(
    ("template", "own"),
    [
        ("{a}", {}),
        ("{a}", {"a": [1]}),
        ("{a}", {"a": {}}),
        ('{"a"}', {"a": None}),
        ("{a}", {"a": 1, "b": 2}),
        ("", {"a": None}),
    ],
)
def test_unknown_unused_and_unfit_parts_are_errors(connection, template, own):
    with pytest.raises(errors.InternalError_):
        render(connection, template, own)
