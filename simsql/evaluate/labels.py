"""Read labelled pairs: CSV or TSV with a header, or JSON lines, as `simsql sample` and the report write them."""

import csv
import json
import math
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, NoReturn

from simsql.documents import DELIMITERS, UnfitError, printable, read_document, storable
from simsql.documents.compression import READ_ERRORS, find_compression
from simsql.documents.output_formats import format_of_file
from simsql.errors import SimsqlError

NEAR_DUPLICATE, NOT, UNSURE = "near-duplicate", "not", "unsure"
_MEANINGS = {
    **dict.fromkeys((NEAR_DUPLICATE, "1", "true", "yes"), True),
    **dict.fromkeys((NOT, "0", "false", "no"), False),
    **dict.fromkeys((UNSURE, ""), None),
}

_LARGEST = 1 << 28  # bytes; a device or a compressed file may have any number
Record = dict[str, Any]
Side = str | None


class Labelled(NamedTuple):
    """A pair with a label."""

    place: str
    """Where it was read: `path:line`."""
    ids: tuple[Side, Side]
    texts: tuple[Side, Side]
    """A text is None if it has to be looked up by its id."""
    alike: bool
    weight: float


class Labels(NamedTuple):
    """The pairs in a file."""

    pairs: list[Labelled]
    left_out: int
    """Number of pairs without a label, or with the label `unsure`."""
    weighted: bool
    """Whether the pairs have weights; otherwise each weighs 1."""


def read_labels(path: Path, stdin: BinaryIO | None = None) -> Labels:
    """Read labelled pairs from a file; `-` is JSON lines on standard input.

    Files that end in .csv or .tsv are tables, all others JSON lines. Each pair has a label and two texts
    (`text_a`, `text_b`) or ids (`id_a`, `id_b`); all pairs have a `weight`, or none has. Raises SimsqlError for
    anything else, with the number of the line, and OSError if the file cannot be read.
    """
    name = "stdin" if stdin else printable(storable(path))
    pairs = []
    left_out = 0
    weighted: dict[bool, str] = {}  # where the first pair with a weight is, and the first one without
    try:
        with nullcontext(stdin) if stdin else path.open("rb") as file:
            content = bytes(read_document(file, _LARGEST))
        if compression := find_compression(content):
            try:
                content = bytes(read_document(compression.read(BytesIO(content)), _LARGEST))
            except READ_ERRORS as error:
                raise SimsqlError(f"{name} cannot be decompressed: {error}") from None
    except UnfitError:
        raise SimsqlError(f"{name} has more than {_LARGEST >> 20} MB of labels: split it") from None
    try:
        lines = StringIO(content.decode("utf-8-sig"), newline="")
    except UnicodeDecodeError as error:
        raise SimsqlError(f"{name} is not UTF-8: {error.reason} at byte {error.start}: convert it first") from None
    delimiter = DELIMITERS.get(f".{format_of_file(path)}")
    for number, record in _read_json(lines, name) if delimiter is None else _read_table(lines, name, delimiter):
        place = f"{name}:{number}"
        alike = _read_label(record, place)
        if alike is None:
            left_out += 1
            continue
        weight = _read_weight(record, place)
        weighted.setdefault(weight is not None, place)
        ids = _id_of(record, "a"), _id_of(record, "b")
        texts = _text_of(record, "a", place), _text_of(record, "b", place)
        for side, given in zip("ab", zip(ids, texts, strict=True), strict=True):
            if given == (None, None):
                raise SimsqlError(f"{place}: the pair has neither text_{side} nor id_{side}: add one of them")
        pairs.append(Labelled(place, ids, texts, alike, 1.0 if weight is None else weight))
    if len(weighted) > 1:
        raise SimsqlError(
            f"{weighted[False]}: the pair has no weight, but the one at {weighted[True]} has: give all pairs a"
            " weight, or none"
        )
    return Labels(pairs, left_out, True in weighted)


def _read_json(lines: StringIO, name: str) -> Iterator[tuple[int, Record]]:
    for number, line in enumerate(lines, 1):
        if line.isspace():
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            column = getattr(error, "colno", 1)
            raise SimsqlError(f"{name}:{number}: not JSON at column {column}: {_EXPECTED}") from None
        if not isinstance(record, dict):
            raise SimsqlError(f"{name}:{number}: {_EXPECTED}")
        yield number, record


_EXPECTED = (
    'each line must be a JSON object, such as {"text_a": "...", "text_b": "...", "label": "near-duplicate"};'
    " the name of a table with a header ends in .csv or .tsv"
)


def _read_table(lines: StringIO, name: str, delimiter: str) -> Iterator[tuple[int, Record]]:
    csv.field_size_limit(sys.maxsize)
    rows = csv.reader(lines, delimiter=delimiter, strict=True)
    number, header = 1, None
    try:
        for row in rows:
            if row and header:
                if len(row) != len(header):
                    _refuse(name, number, f"{len(row)} fields, but the header has {len(header)}")
                yield number, dict(zip(header, row, strict=True))
            header = header or row
            number = rows.line_num + 1
    except csv.Error as error:
        _refuse(name, number, printable(str(error)))


def _refuse(name: str, number: int, problem: str) -> NoReturn:
    raise SimsqlError(f"{name}:{number}: {problem}: check the quoting") from None


def _read_label(record: Record, place: str) -> bool | None:
    if "label" not in record:
        there = ", ".join(printable(str(field)[:40]) for field in record) or "nothing"
        raise SimsqlError(f"{place}: the field label is missing: there is {there}")
    label = record["label"]
    written = "" if label is None else str(label).strip().lower()
    if written not in _MEANINGS:
        raise SimsqlError(
            f"{place}: unknown label {printable(str(label)[:40])!r}: use {NEAR_DUPLICATE}, {NOT} or {UNSURE}"
            " (or 1 and 0, true and false, yes and no)"
        )
    return _MEANINGS[written]


def _read_weight(record: Record, place: str) -> float | None:
    written = record.get("weight")
    if written is None or written == "":
        return None
    try:
        weight = float(written)
    except (TypeError, ValueError, OverflowError):
        weight = math.nan
    if isinstance(written, bool) or not (math.isfinite(weight) and weight > 0):
        raise SimsqlError(f"{place}: the weight must be a number above 0, not {printable(str(written)[:40])!r}")
    return weight


def _id_of(record: Record, side: str) -> Side:
    identity = record.get(f"id_{side}")
    if identity is None or identity == "":
        return None
    return storable(identity if isinstance(identity, str) else json.dumps(identity, ensure_ascii=False))


def _text_of(record: Record, side: str, place: str) -> Side:
    text = record.get(f"text_{side}")
    if text is not None and not isinstance(text, str):
        raise SimsqlError(f"{place}: text_{side} must be a string, not {printable(json.dumps(text)[:40])}")
    return text or None
