"""Labelled pairs in every format, and what is said of a file that is none."""

import io
import json
from pathlib import Path

import pytest
from reading import write

from simsql.errors import SimsqlError
from simsql.evaluate import labels
from simsql.evaluate.labels import Labelled, read_labels

ROWS = [
    {"id_a": "1", "id_b": "2", "label": "near-duplicate", "text_a": 'one, "two"\nthree', "text_b": "one"},
    {"id_a": "1", "id_b": "3", "label": "not", "text_a": "", "text_b": "four"},
    {"id_a": "2", "id_b": "3", "label": "unsure", "text_a": "one", "text_b": "four"},
    {"id_a": "4", "id_b": "5", "label": "", "text_a": "one", "text_b": "four"},
]


def as_lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def as_table(rows, delimiter):
    def quote(cell):
        return '"' + str(cell).replace('"', '""') + '"'

    lines = [rows[0], *(row.values() for row in rows)]
    return "".join(delimiter.join(map(quote, line)) + "\r\n" for line in lines)


@pytest.mark.parametrize(
    ("name", "content", "numbers"),
    [
        ("labels.jsonl", as_lines(ROWS), (1, 2)),
        ("labels", "\ufeff\n" + as_lines(ROWS), (2, 3)),
        ("labels.csv", as_table(ROWS, ","), (2, 4)),
        ("labels.TSV", "\ufeff" + as_table(ROWS, "\t") + "\r\n", (2, 4)),
    ],
)
def test_every_format_says_the_same(tmp_path, name, content, numbers):
    path = write(tmp_path / name, content)
    first, second = (f"{path}:{number}" for number in numbers)
    found = read_labels(path)
    assert found.pairs == [
        Labelled(first, ("1", "2"), ('one, "two"\nthree', "one"), True, 1.0),
        Labelled(second, ("1", "3"), (None, "four"), False, 1.0),
    ]
    assert (found.left_out, found.weighted) == (2, False)


@pytest.mark.parametrize(
    ("label", "alike"),
    [
        *((label, True) for label in ("near-duplicate", " Near-Duplicate ", "1", 1, True, "true", "YES")),
        *((label, False) for label in ("not", "0", 0, False, "False", "no")),
        *((label, None) for label in ("unsure", "", " ", None)),
    ],
)
def test_labels(label, alike):
    found = read(f'{{"text_a": "a", "text_b": "b", "label": {json.dumps(label)}}}')
    assert [pair.alike for pair in found.pairs] == ([] if alike is None else [alike])
    assert found.left_out == (alike is None)


def read(content):
    return read_labels(Path("-"), io.BytesIO(content.encode()))


def test_ids_and_weights():
    found = read('{"id_a": 7, "id_b": "x", "label": "not", "weight": "2.5"}')
    assert found.pairs == [Labelled("stdin:1", ("7", "x"), (None, None), False, 2.5)]
    assert found.weighted


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (
            '{"text_a": "a", "text_b": "b", "label": "maybe"}',
            "stdin:2: unknown label 'maybe': use near-duplicate, not",
        ),
        ('{"text_a": "a", "text_b": "b", "label": 2}', "stdin:2: unknown label '2'"),
        ('{"text_a": "a", "text_b": "b"}', "stdin:2: the field label is missing: there is text_a, text_b"),
        ("{}", "stdin:2: the field label is missing: there is nothing"),
        ('{"text_a": "a", "label": "not"}', "stdin:2: the pair has neither text_b nor id_b"),
        (
            '{"text_a": "", "id_a": null, "text_b": "b", "label": "not"}',
            "stdin:2: the pair has neither text_a nor",
        ),
        ('{"text_a": ["a"], "text_b": "b", "label": "not"}', 'stdin:2: text_a must be a string, not ["a"]'),
        (
            '{"text_a": "a", "text_b": "b", "label": "not", "weight": 0}',
            "stdin:2: the weight must be a number above 0",
        ),
        ('{"text_a": "a", "text_b": "b", "label": "not", "weight": "x"}', "above 0, not 'x'"),
        ('{"text_a": "a", "text_b": "b", "label": "not", "weight": 1e999}', "above 0, not 'inf'"),
        ('{"text_a": "a", "text_b": "b", "label": "not", "weight": true}', "above 0, not 'True'"),
        (
            '{"text_a": "a", "text_b": "b", "label": "not", "weight": 2}',
            "stdin:1: the pair has no weight, but the one",
        ),
        ("[1]", "stdin:2: each line must be a JSON object, such as {"),
        ('{"text_a"', "stdin:2: not JSON at column 10: each line must be a JSON object, such as {"),
    ],
)
def test_lines_that_are_no_labels(row, said):
    with pytest.raises(SimsqlError) as caught:
        read('{"text_a": "a", "text_b": "b", "label": "not"}\n' + row)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("text_a,text_b,label\na,b\n", "labels.csv:2: 2 fields, but the header has 3: check the quoting"),
        ('text_a,text_b,label\na,b,not\na,"b,not\n', "labels.csv:3: unexpected end of data: check the quoting"),
        ('"text_a"x,label\n', "',' expected after '\"': check the quoting"),
        ("text_a,text_b\na,b\n", "labels.csv:2: the field label is missing: there is text_a, text_b"),
        ("text_a,text_b,label\nä,b,not\n".encode("latin-1"), "labels.csv is not UTF-8: invalid continuation byte"),
    ],
)
def test_tables_that_are_no_labels(tmp_path, content, said):
    with pytest.raises(SimsqlError) as caught:
        read_labels(write(tmp_path / "labels.csv", content))
    assert said in str(caught.value)


def test_labels_that_do_not_end(monkeypatch):
    monkeypatch.setattr(labels, "_LARGEST", 1 << 20)
    with pytest.raises(SimsqlError, match="more than 1 MB of labels: split it"):
        read_labels(Path("/dev/zero"))
