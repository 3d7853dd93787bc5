"""Whatever is changed, inserted or cut anywhere in a file, no record is lost or merged without a report.

Some changes make another valid file. `reference` reads such files in a way of its own, and the reader has to find
the same records. docs/reference/command-line.md lists what no reader can tell.

`SIMSQL_DAMAGE=1000` tries as many cases of each format, as many of its four compressions together, and says what
became of them.
"""

import codecs
import csv
import io
import json
import os
import re
from collections import Counter, defaultdict

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from pyarrow import parquet as pq
from reading import COMPRESSORS, write

from simsql.documents import DocumentReader, Layout, Skip
from simsql.documents.document import storable
from simsql.errors import SimsqlError

CASES = int(os.environ.get("SIMSQL_DAMAGE", "40"))
SLOW = list(HealthCheck)
ENCODINGS = {  # how they are called, and the mark at the start of a file
    "utf-8": ("utf-8", b""),
    "utf-8 with a mark": ("utf-8", codecs.BOM_UTF8),
    "utf-16": ("utf-16-le", codecs.BOM_UTF16_LE),
    "utf-16, big": ("utf-16-be", codecs.BOM_UTF16_BE),
    "cp1252": ("cp1252", b""),
}
DELIMITERS = {".csv": ",", ".tsv": "\t"}
WORDS = ["one", "naïve", "“so”", "a, b", 'say "x"', '"', "a\nb", "a\r\nb", "{[", '},{"', "\\", "tab\t", "]"]
MARKS = [b'"', b'""', b",", b"\t", b"\n", b"\r", b"\r\n", b"{", b"}", b"[", b"]", b"\\", b"\0", b"\xff", b"\xc3"]
EVERYTHING = (1, 1 << 40)

totals: dict[str, Counter[str]] = defaultdict(Counter)


@pytest.fixture(scope="module", autouse=True)
def _shown():
    yield
    for name, found in totals.items() if "SIMSQL_DAMAGE" in os.environ else ():
        print(f"\n{name}: {found.total():,} cases:", ", ".join(f"{n:,} {what}" for what, n in found.most_common()))


@st.composite
def records(draw):
    texts = draw(st.lists(st.lists(st.sampled_from(WORDS), max_size=6).map(" ".join), min_size=1, max_size=9))
    start = draw(st.sampled_from(["", "r", "a "]))
    return [(f"{start}{number * 7}", f"t{number} {text}".strip()) for number, text in enumerate(texts, 1)]


def rows_of(draw, documents, delimiter):
    columns = draw(st.sampled_from([["id", "text"], ["text", "id"], ["id", "n", "text"], ["id", "text", "n"]]))
    quoting = draw(st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]))
    for values in (
        columns,
        *([{"id": id_, "text": text, "n": "5"}[name] for name in columns] for id_, text in documents),
    ):
        text = io.StringIO(newline="")
        # Python 3.11 quotes only the line end that it writes.
        has_end = any("\n" in value or "\r" in value for value in values)
        style = csv.QUOTE_ALL if has_end else quoting
        csv.writer(text, delimiter=delimiter, lineterminator="", quoting=style).writerow(values)
        yield text.getvalue()


def pieces_of(draw, ending, documents):
    """A file in pieces: what is before a record, the record, and so on."""
    end = draw(st.sampled_from(["\n", "\r\n"]))
    if ending in DELIMITERS:
        header, *found = rows_of(draw, documents, DELIMITERS[ending])
        pieces = [header + end, *(each for row in found for each in (row, end))]
    elif ending == "lines":
        pieces = ["", *(each for _, text in documents for each in (text.replace("\n", "").replace("\r", ""), end))]
    else:
        more = draw(st.sampled_from([{}, {"meta": {"text": "x", "n": [1, {"id": 2}]}}]))
        before, behind = draw(st.sampled_from([(more, {}), ({}, more)]))
        indent = draw(st.sampled_from([None, 1])) if ending == ".json" else None
        ascii_only = draw(st.booleans())
        found = [
            json.dumps({**before, "id": id_, "text": text, **behind}, ensure_ascii=ascii_only, indent=indent)
            for id_, text in documents
        ]
        if ending == ".json":
            end = draw(st.sampled_from([",", ", ", ",\n"]))
        pieces = ["[" * (ending == ".json"), *(each for record in found for each in (record, end))]
        if ending == ".json":
            return [*pieces[:-1], "]"]
    return pieces if draw(st.booleans()) else pieces[:-1]


def damage(draw, data):
    """Return where a change begins and ends, and what is there instead."""
    first = draw(st.integers(0, len(data) - 1))
    last = min(len(data), first + draw(st.sampled_from([1, 2, 5, 30, 200])))
    bad = draw(st.one_of(st.sampled_from(MARKS), st.binary(min_size=1, max_size=9)))
    place = draw(st.integers(0, len(data)))
    changes = {
        "change": (first, first + 1, bad[:1]),
        "insert": (first, first, bad),
        "cut": (first, last, b""),
        "replace": (first, last, bad),
        "double": (place, place, data[first:last]),
        "end": (first, len(data), b""),
    }
    return changes[draw(st.sampled_from(sorted(changes)))]


def table_of(text, delimiter):
    """The rows of a table; None if a quote is in a wrong place."""
    rows, row, field, state = [], [], "", "start"
    for mark in [*text, None]:
        if state == "quoted" and mark is None:
            return None
        if state == "quoted" and mark != '"':
            field += mark
        elif state == "quoted":
            state = "closed"
        elif mark == '"' and state in ("start", "closed"):
            field += '"' * (state == "closed")
            state = "quoted"
        elif mark == delimiter:
            row.append(field)
            field, state = "", "start"
        elif mark in ("\n", "\r", None):
            if row or state != "start":
                rows.append([*row, field])
            row, field, state = [], "", "start"
        elif state == "closed":
            return None
        else:
            field, state = field + mark, "open"
    return rows


def objects_of(ending, text):
    """JSON objects, in which no name is there twice; None for anything else."""

    def unique(pairs):
        assert len(dict(pairs)) == len(pairs)
        return dict(pairs)

    try:
        lines = [line.removesuffix("\r").lstrip("\ufeff").removesuffix(",") for line in text.split("\n")]
        texts = [text] if ending == ".json" else [line for line in lines if line.strip()]
        values = [json.loads(each, object_pairs_hook=unique, strict=False) for each in texts]
    except (ValueError, RecursionError, AssertionError):
        return None
    values = values[0] if ending == ".json" else values
    return values if isinstance(values, list) and all(isinstance(value, dict) for value in values) else None


def reference(ending, data, encoding):
    """The records of a valid file, whose ids may be missing (None); None if it is not valid."""
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError:
        return None
    if ending == "lines":
        return [(None, line.removesuffix("\r")) for line in text.removesuffix("\n").split("\n")] if text else []
    if ending in DELIMITERS:
        header, *rows = table_of(text, DELIMITERS[ending]) or [[]]
        if header.count("text") != 1 or header.count("id") > 1:
            return None
        if any(len(row) < len(header) or any(row[len(header) :]) for row in rows):
            return None
        values = [dict(zip(header, row, strict=False)) for row in rows]
    else:
        values = objects_of(ending, text)
    found = [(value.get("id"), value.get("text")) for value in values or []]
    if values is None or not all(isinstance(text, str) and text.strip() for _, text in found):
        return None
    return [(id_ if isinstance(id_, str) and id_ else None, text) for id_, text in found]


def lines_of(skip):
    """The first and the last line, or element, that a skip is about."""
    if skip.line is not None:
        more = re.search(r"lines ([0-9]+) to ([0-9]+)", skip.detail)
        return (int(more[1]), int(more[2])) if more else (skip.line, skip.line)
    found = re.match(r"(?:line|element) ([0-9]+): ", skip.detail)
    lost = re.search(r"([0-9]+) (?:lines|elements|line)\S* (?:is|are) lost", skip.detail)
    first = int(found[1]) if found else 1
    is_known = found and lost and not re.search("all behind|never closed", skip.detail)
    return first, first + int(lost[1]) - 1 if is_known else EVERYTHING[1]


class Case:
    """A file, what is changed in it, and what the reader says."""

    def __init__(self, draw, folder, ending, compression, documents, encoding):
        self.ending = ending
        self.codec, self.mark = ENCODINGS[encoding]
        texts = pieces_of(draw, ending, documents)
        pieces = [piece.encode(self.codec, "replace") for piece in texts]
        pieces[0] = self.mark + pieces[0]
        known = [(id_, text.encode(self.codec, "replace").decode(self.codec)) for id_, text in documents]
        if ending == "lines":
            known = [(None, text.encode(self.codec, "replace").decode(self.codec)) for text in texts[1::2]]
        self.documents = known
        ends = [sum(map(len, pieces[: number + 1])) for number in range(len(pieces))]
        self.spans = list(zip(ends[::2], ends[1::2], strict=False))
        stored = COMPRESSORS.get(compression, bytes)(b"".join(pieces))
        self.first, self.last, self.instead = damage(draw, stored)
        self.data = stored[: self.first] + self.instead + stored[self.last :]
        path = write(folder / f"damaged{'.txt' if ending == 'lines' else ending}{compression}", self.data)
        self.encoding = self.codec if not self.mark or self.data.startswith(self.mark) else "utf-8"
        layout = Layout(encoding="utf-8" if self.mark else self.codec, lines=ending == "lines")
        self.found, self.skips, self.fails = read(path, layout)
        note(f"{self.data!r}\n{[(item.name, item.text) for item in self.found]}\n{self.skips}")
        assert all(skip.detail.isprintable() for skip in self.skips)

    def is_blank(self):
        return not self.data.removeprefix(self.mark).strip(b"\r\n\0")

    def lost(self):
        if self.ending == "lines":  # nothing tells that more belongs to a line now
            return [
                number
                for number, (_, text) in enumerate(self.documents)
                if not any(text in item.text for item in self.found)
            ]
        found = {(item.name, item.text) for item in self.found}
        return [number for number, document in enumerate(self.documents) if document not in found]

    def is_touched(self, number):
        start, end = self.spans[number]
        return start <= self.last and self.first <= end

    def is_removed(self, number):
        start, end = self.spans[number]
        return self.first <= start and end <= self.last

    def is_changed(self, number):
        """Whether a record that is touched comes with another text or id, or all have no ids any more."""
        id_, text = self.documents[number]
        if self.ending == "lines" and self.is_touched(number):  # it has no id, and the text is another one
            return any(item.line == self.line(min(self.spans[number][0], self.first)) for item in self.found)
        if self.is_removed(number):  # what is left of the records beside it tells
            beside = [
                each for each in range(len(self.documents)) if self.is_touched(each) and not self.is_removed(each)
            ]
            return any(self.reports(each) or self.is_changed(each) for each in beside)
        is_touched = self.is_touched(number) or self.first < self.spans[0][0]
        return is_touched and any(item.name == id_ or item.text == text for item in self.found)

    def reports(self, number):
        """The skips that are about a record."""
        if self.ending == ".json":  # whose elements have other numbers if one is in two parts
            lost = self.lost()
            parts = [each for each in lost if self.is_touched(each)]
            alone = [skip for skip in self.skips if skip.line is not None]
            are_alone = len(lost) - len(parts) + bool(parts) <= len(alone)
            more = len(alone) + self.instead.count(b"}")  # elements that were not there
            whole = [skip for skip in self.skips if skip.line is None and lines_of(skip)[0] <= number + 1 + more]
            return whole or (alone if are_alone else [])
        if self.is_touched(number) and self.first < self.spans[0][0]:
            return self.skips  # it is in the header, whose other columns the rows do not have
        start, end = self.spans[number]
        grown = len(self.instead) - (self.last - self.first)
        start = start if start < self.first else start + grown if start >= self.last else self.first
        end = end if end <= self.first else end + grown if end >= self.last else self.first + len(self.instead)
        begin, finish = self.line(start), self.line(end)
        ranges = [(skip, *lines_of(skip)) for skip in self.skips]
        return [skip for skip, low, high in ranges if low <= finish and begin <= high]

    def line(self, place):
        text = self.data[:place].removeprefix(self.mark).decode(self.encoding, "replace")
        return 1 + len(re.findall("\r\n|\r|\n" if self.ending in DELIMITERS else "\n", text))


def read(path, layout):
    """The documents, the skips, and whether the run fails."""
    reader = DocumentReader([path], layout)
    items = list(reader)
    documents = list(reader.skips.documents(items))
    fails = False
    try:
        reader.skips.check_read()
    except SimsqlError:
        fails = True
    return documents, [item for item in items if isinstance(item, Skip)], fails


@pytest.mark.parametrize("ending", [".jsonl", ".json", ".csv", ".tsv", "lines"])
def test_no_record_is_lost_in_silence(tmp_path_factory, ending):
    @settings(max_examples=CASES, suppress_health_check=SLOW)
    @given(records(), st.sampled_from(sorted(ENCODINGS)), st.data())
    def check(documents, encoding, data):
        case = Case(data.draw, tmp_path_factory.getbasetemp(), ending, "", documents, encoding)
        valid = reference(ending, case.data.removeprefix(case.mark), case.encoding)
        if not case.lost():
            result = "nothing lost"
        elif valid is not None:  # what the change has made is another file, of which nothing is lost
            found = {(item.name, item.text) for item in case.found} | {(None, item.text) for item in case.found}
            assert case.skips or found.issuperset((id_ and storable(id_), text) for id_, text in valid)
            result = "another valid file"
        elif ending == ".json" and not re.search('"text": ', case.data.decode(case.encoding, "replace")):
            result = "any text"  # nothing shows that it was a file of records
        else:
            result = "reported"
            for number in case.lost():
                reports = case.reports(number)
                assert reports or case.is_changed(number), f"{case.documents[number]} is lost in silence"
                assert case.fails or case.is_blank() or all(skip.line is not None for skip in reports)
        totals[ending][result] += 1

    check()


@pytest.mark.parametrize("compression", COMPRESSORS)
@pytest.mark.parametrize("ending", [".jsonl", ".json", ".csv", ".tsv", "lines"])
def test_no_record_of_a_compressed_file_is_lost_in_silence(tmp_path_factory, ending, compression):
    @settings(max_examples=max(CASES // 4, 10), suppress_health_check=SLOW)
    @given(records(), st.sampled_from(sorted(ENCODINGS)), st.data())
    def check(documents, encoding, data):
        case = Case(data.draw, tmp_path_factory.getbasetemp(), ending, compression, documents, encoding)
        is_lost = bool(case.lost())
        if is_lost and case.data:
            assert any(skip.line is None for skip in case.skips), "it is lost in silence"
            assert case.fails
        totals[f"{ending}{compression}"]["reported" if is_lost else "nothing lost"] += 1

    check()


def check_rows(lost, skips):
    """Check that a skip of the file, or of some of its rows, covers each of these rows."""
    rows = [(re.match("rows ([0-9,]+) to ([0-9,]+): ", skip.detail), skip) for skip in skips]
    ranges = [
        (int(some[1].replace(",", "")), int(some[2].replace(",", "")))
        if some
        else (skip.line or 0, skip.line or 99)
        for some, skip in rows
    ]
    for number in lost:
        assert any(first <= number <= last for first, last in ranges), f"row {number} is lost in silence"


def has_other_columns(content):
    try:
        return "id" not in pq.read_schema(io.BytesIO(content)).names
    except (OSError, MemoryError, UnicodeDecodeError, pa.ArrowException):
        return False


@pytest.mark.parametrize("change", [1, 255])
def test_whatever_byte_of_a_footer_changes_no_row_is_lost_in_silence(tmp_path, change):
    """Nothing checks a footer: the number of rows of a row group may be another one, for example."""
    texts = [f"text {number}" for number in range(1, 10)]
    target = io.BytesIO()
    pq.write_table(pa.table({"text": texts}), target, row_group_size=4, write_page_checksum=True)
    stored = target.getvalue()
    for place in range(len(stored) - 8 - int.from_bytes(stored[-8:-4], "little"), len(stored)):
        content = stored[:place] + bytes([(stored[place] + change) % 256]) + stored[place + 1 :]
        found, skips, _ = read(write(tmp_path / "a.parquet", content), Layout())
        named = {item.text for item in found}
        check_rows([number for number, text in enumerate(texts, 1) if text not in named], skips)


def test_no_row_of_a_parquet_file_is_lost_in_silence(tmp_path_factory):
    """With checksums of pages. Without them, changed bytes of a page cannot be told."""

    @settings(max_examples=CASES, suppress_health_check=SLOW)
    @given(records(), st.sampled_from(["none", "snappy", "zstd"]), st.booleans(), st.integers(1, 9), st.data())
    def check(documents, compression, has_dictionary, size, data):
        target = io.BytesIO()
        ids, texts = zip(*documents, strict=True)
        pq.write_table(
            pa.table({"id": ids, "text": texts}),
            target,
            row_group_size=size,
            write_page_checksum=True,
            compression=compression,
            use_dictionary=has_dictionary,
            data_page_version=data.draw(st.sampled_from(["1.0", "2.0"])),
        )
        stored = target.getvalue()
        first, last, instead = damage(data.draw, stored)
        content = stored[:first] + instead + stored[last:]
        path = write(tmp_path_factory.getbasetemp() / "damaged.parquet", content)
        found, skips, fails = read(path, Layout())
        note(f"{first} {last} {instead!r}\n{[(item.name, item.text) for item in found]}\n{skips}")
        # Nothing checks the names of columns: without that of the ids, rows are named after their places.
        named = {(item.name, item.text) for item in found}
        if has_other_columns(content):
            named |= {(id_, text) for id_, text in documents for item in found if item.text == text}
        lost = [number for number, document in enumerate(documents, 1) if document not in named]
        check_rows(lost, skips)
        assert fails or not lost or not content or all(skip.line is not None for skip in skips)
        totals[".parquet"]["reported" if lost else "nothing lost"] += 1

    check()
