"""Columns of pyarrow and Polars, against lists of their values."""

import subprocess
import sys

import numpy as np
import polars
import pyarrow
import pytest

from simsql.arrays.columns import read_column
from simsql.hamming import find_clusters, find_matches, find_pairs, hamming_distance

WORDS = [0, 2**64 - 1, None, 2**63, 1, None, 2**63 + 1, 1, 3]


def as_bigint(word):
    return word if word is None or word < 2**63 else word - 2**64


def columns(words):
    """The words as columns of every kind, also cut out of longer ones and in chunks."""
    unsigned = pyarrow.array(words, pyarrow.uint64())
    signed = pyarrow.array([as_bigint(word) for word in words], pyarrow.int64())
    yield "uint64", unsigned
    yield "int64", signed
    yield "slice", pyarrow.array([7, None, *words, None], pyarrow.uint64())[2:-1]
    yield "chunks", pyarrow.chunked_array([unsigned[:2], unsigned[2:2], unsigned[2:]])
    yield "Polars UInt64", polars.Series(words, dtype=polars.UInt64)
    yield "Polars Int64", polars.Series([as_bigint(word) for word in words], dtype=polars.Int64)
    yield (
        "Polars chunks",
        polars.Series(words[:3], dtype=polars.UInt64).append(polars.Series(words[3:], dtype=polars.UInt64)),
    )


@pytest.mark.parametrize("words", [WORDS, [5, 4, 9, 2**64 - 1], [None, None], []])
def test_columns_are_as_their_values(words):
    for name, column in columns(words):
        values, present = read_column(column)
        assert values.dtype == np.uint64, name
        known = [True] * len(words) if present is None else present.tolist()
        assert [v if there else None for v, there in zip(values.tolist(), known, strict=True)] == words, name
        assert find_pairs(column, 2).tolist() == find_pairs(words, 2).tolist()
        assert list(map(list, find_clusters(column, 2))) == list(map(list, find_clusters(words, 2)))
        (matches,) = list(find_matches(column, [column], 0)) or [None]
        assert sorted(matches.queries.tolist() if matches else []) == sorted({w for w in words if w is not None})
        expected = [None if word is None else (word ^ 5).bit_count() for word in words]
        assert hamming_distance(column, 5).tolist() == hamming_distance(5, column).tolist() == expected


@pytest.mark.parametrize("column", [pyarrow.array(range(10), pyarrow.int64()), polars.Series(range(10))])
def test_values_are_read_where_they_are(column):
    first, second = read_column(column)[0], read_column(column[2:])[0]
    assert second.__array_interface__["data"][0] == first.__array_interface__["data"][0] + 16
    assert read_column(column)[0].__array_interface__["data"] == first.__array_interface__["data"]


@pytest.mark.parametrize(
    "column",
    [pyarrow.array([1.0]), pyarrow.array([1], pyarrow.int32()), polars.Series(["1"]), pyarrow.nulls(2)],
)
def test_other_columns_are_refused(column):
    for call in (find_pairs, find_clusters, lambda some: hamming_distance(some, 1)):
        with pytest.raises(TypeError, match="must be a column of int64 or uint64, not of"):
            call(column)
    with pytest.raises(TypeError, match="iterable of batches"):
        find_matches([1], column)


def test_nothing_is_imported():
    program = (
        "import sys, simsql; simsql.find_pairs([1, 2]); simsql.hamming_distance(1, 2);"
        " sys.exit(bool({'pyarrow', 'polars'} & {*sys.modules}))"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
