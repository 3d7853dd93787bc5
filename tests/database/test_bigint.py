"""Unsigned in Python, bigint in PostgreSQL, the same 64 bits: at the edges and anywhere."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg import errors

from simsql import find_pairs
from simsql.database.bigint import from_bigint, to_bigint, to_bigints

EDGES = {
    0: 0,
    1: 1,
    2**63 - 1: 2**63 - 1,
    2**63: -(2**63),
    2**64 - 1: -1,
}
edges = pytest.mark.parametrize(("fingerprint", "bigint"), EDGES.items())


@edges
def test_the_edges_are_converted_both_ways(fingerprint, bigint):
    assert to_bigint(fingerprint) == bigint
    assert from_bigint(bigint) == fingerprint


@edges
def test_numbers_of_numpy_become_numbers_of_python(fingerprint, bigint):
    assert (to_bigint(np.uint64(fingerprint)), type(to_bigint(np.uint64(fingerprint)))) == (bigint, int)
    assert (from_bigint(np.int64(bigint)), type(from_bigint(np.int64(bigint)))) == (fingerprint, int)


@given(st.integers(0, 2**64 - 1))
def test_the_bits_stay_the_same(fingerprint):
    bigint = to_bigint(fingerprint)
    assert -(2**63) <= bigint < 2**63
    assert bigint % 2**64 == fingerprint
    assert from_bigint(bigint) == fingerprint


def test_an_array_is_converted_as_its_numbers_are():
    fingerprints = np.ma.array(list(EDGES), mask=[False] * len(EDGES), dtype=np.uint64)
    assert list(to_bigints(fingerprints)) == list(EDGES.values())


def test_what_is_masked_in_an_array_becomes_null():
    fingerprints = np.ma.array([5, 2**64 - 1, 5], mask=[True, False, False], dtype=np.uint64)
    assert list(to_bigints(fingerprints)) == [None, -1, 5]
    assert list(to_bigints(np.ma.array([7], dtype=np.uint64))) == [7]
    assert list(to_bigints(np.ma.array([], dtype=np.uint64))) == []


@pytest.mark.parametrize("number", [-(2**63) - 1, 2**64, 2**100])
def test_what_is_no_fingerprint_is_refused(number):
    with pytest.raises(ValueError, match=f"{number} is not a fingerprint"):
        to_bigint(number)


@pytest.mark.parametrize("number", [2**63, 2**64 - 1, -(2**63) - 1])
def test_what_is_no_bigint_is_refused(number):
    with pytest.raises(ValueError, match=f"{number} is not a bigint"):
        from_bigint(number)


@pytest.mark.parametrize("number", [1.5, "1"])
def test_what_is_no_whole_number_is_refused(number):
    for convert in (to_bigint, from_bigint):
        with pytest.raises((TypeError, ValueError), match=r"not|cannot be"):
            convert(number)


@edges
def test_sql_converts_as_python_does(connection, fingerprint, bigint):
    assert connection.execute("SELECT simsql.fp(%s::numeric)", [fingerprint]).fetchone() == (bigint,)
    # As a literal in psql; PostgreSQL takes whole numbers of any length.
    assert connection.execute(f"SELECT simsql.fp({fingerprint})").fetchone() == (bigint,)


def test_sql_keeps_null(connection):
    assert connection.execute("SELECT simsql.fp(NULL)").fetchone() == (None,)


@pytest.mark.parametrize("number", ["-1", str(2**64), "0.5", "1.5", "NaN", "Infinity", "-9223372036854775808"])
def test_sql_refuses_what_is_no_fingerprint(connection, number):
    with pytest.raises(
        errors.NumericValueOutOfRange, match=f"{number} is not an unsigned 64-bit fingerprint"
    ) as refused:
        connection.execute(f"SELECT simsql.fp('{number}'::numeric)")
    assert "from 0 to 18446744073709551615" in refused.value.diag.message_hint


@edges
def test_sql_and_python_count_the_same_distance(connection, fingerprint, bigint):
    for other, other_bigint in EDGES.items():
        (distance,) = connection.execute(
            "SELECT simsql.hamming_distance(%s::bigint, %s::bigint)", [bigint, other_bigint]
        ).fetchone()
        assert distance == (fingerprint ^ other).bit_count()


def test_a_text_in_the_place_of_a_fingerprint_is_explained():
    with pytest.raises(ValueError, match="pass a text as text="):
        to_bigint("some text")


@pytest.mark.parametrize("one", [b"\xff" * 8, "c000000000000000", "some text"])
def test_one_fingerprint_in_the_place_of_several_is_refused(one):
    with pytest.raises(TypeError, match="fingerprints must be a list or an array"):
        find_pairs(one, 3)
