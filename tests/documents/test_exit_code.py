"""A run that has not read what it was asked to read does everything else, and fails."""

import gzip
import json

import pytest
from program import run
from reading import write

RECORDS = "".join(json.dumps({"id": number, "text": f"some text {number}"}) + "\n" for number in range(40))
ROWS = "id,text\n" + "".join(f"{number},some text {number}\n" for number in range(40))
OPEN = ROWS.replace("20,", '20,"')
CUT = RECORDS.rstrip()[:-3]
ARRAY = "[" + ",".join(RECORDS.splitlines()) + "]"
DAMAGED = {
    "quote.csv": (OPEN, "line 22: a quote is never closed: 20 lines are lost; check the quoting"),
    "quote.tsv": (
        OPEN.replace(",", "\t"),
        "line 22: a quote is never closed: 20 lines are lost; check the quoting",
    ),
    "eaten.csv": (
        OPEN.replace("25,some text 25", '25,"some" text 25'),
        "line 22: ',' expected after '\"': 6 lines are lost",
    ),
    "merged.csv": (
        OPEN.replace("text 25", 'text 25",x'),
        "line 22: 3 fields, but the header has 2: 6 lines are lost",
    ),
    "header.csv": (
        '"' + ROWS,
        "a quote is never closed: 41 lines are lost; check the quoting, or choose with --quoting; without",
    ),
    "cut.csv": (
        ROWS[:-15],
        "line 41: the file ends within a row: it is cut off; 1 line is lost, and all behind it",
    ),
    "cut.jsonl": (CUT, "line 40: the file ends within a record: it is cut off; 1 line is lost, and all behind it"),
    "letter.jsonl": (CUT.encode() + "é".encode()[:1], "line 40: the file ends within a character: it is cut off"),
    "cut.json": (ARRAY[:-9], "element 40: the array does not end: the file is cut off, or a bracket is missing"),
    "more.json": (ARRAY + ', {"text": "x"}]', "element 41: the array ends before it: 16 characters are lost"),
    "comma.json": (ARRAY.replace("},", "}", 1), "element 1: column 33: Extra data: up to 3 elements are lost"),
    "inside.json": (
        r'[{"{"text": "a \" b"}, {"text": "c"}]',
        "element 1: column 5: Expecting ':' delimiter: up to 2 elements are lost",
    ),
    "brace.json": (
        ARRAY.replace("{", "", 1),
        "it is not JSON, but has its marks: Expecting ',' delimiter: line 1",
    ),
    "bracket.json": (ARRAY[1:], "its first object has an end, but no bracket before it: all behind it is lost"),
    "start.json": (
        "x" + ARRAY[1:],
        "it is not JSON, but has its marks: Expecting value: line 1 column 1 (char 0)",
    ),
    "one.json": (
        RECORDS[:20],
        "it is not JSON, but has its marks: Unterminated string starting at: line 1 column 19",
    ),
    "name.csv.gz": (b"\0" + gzip.compress(ROWS.encode())[1:], "its name says that it is compressed, but"),
    "cut.jsonl.gz": (gzip.compress(RECORDS.encode())[:-9], "the compressed data is damaged or truncated"),
    "cut.txt.gz": (gzip.compress(RECORDS.encode())[:-9], "the compressed data is damaged or truncated"),
    "cut.parquet": (b"PAR1", "the file is damaged, truncated, or of a kind that cannot be read"),
}


def incomplete(found):
    # What options would read is a wrong use of them.
    assert found.code == (2 if "(no field" in found.err or "(records" in found.err else 1), found.err
    *_, last = found.err.splitlines()
    start = "simsql: error: the results are incomplete: "
    assert last.startswith(start)
    return last.removeprefix(start)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "a.jsonl", RECORDS)
    write(tmp_path / "in/notes.txt", "some notes")
    write(tmp_path / "in/photo.png", b"\x89PNG\r\n" + bytes(50))
    return tmp_path


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("b.pdf", b"%PDF-1.7 text", "b.pdf was not read (PDF: extract its text first"),
        ("b.jsonl", b'{"body": "a"}\n{"body": "b"}\n', "b.jsonl was not read (no field: 'text' is missing"),
        ("b.jsonl", b"\xff\xfe\xfd\n", "b.jsonl was not read ("),
        ("b.parquet", b"PAR1", "b.parquet was not read (corrupt: "),
        ("b.jsonl.gz", gzip.compress(RECORDS.encode())[:-9], "b.jsonl.gz was not read in full (corrupt: "),
    ],
)
@pytest.mark.parametrize("command", [["dedup"], ["fingerprint"]])
def test_a_file_that_the_user_names(folder, command, name, content, message):
    write(folder / name, content)
    found = run(*command, "a.jsonl", name, "in")
    assert incomplete(found).startswith(message)
    assert run(*command, "a.jsonl", "in").code == 0
    assert len(found.out.splitlines()) >= (40 if command == ["fingerprint"] else 0)


@pytest.mark.parametrize("name", DAMAGED)
@pytest.mark.parametrize(
    "command", ["dedup a.jsonl", "dedup a.jsonl --against", "fingerprint a.jsonl", "sample a.jsonl"]
)
def test_damage_that_ends_or_eats_a_file(folder, command, name):
    """Also in a folder, where a file that is one text is not missed otherwise."""
    content, detail = DAMAGED[name]
    write(folder / "in" / name, content)
    nothing = ("header.csv", "cut.txt.gz", "cut.parquet", "brace.json", "bracket.json", "start.json", "one.json")
    part = "" if name in (*nothing, "name.csv.gz") else " in full"
    for path in (f"in/{name}", "in"):
        found = incomplete(run(*command.split(), path))
        assert found.startswith(f"in/{name} was not read{part} (corrupt: {detail}")


def test_a_bad_row_alone_costs_no_more(folder):
    for name, content in [
        ("fields.csv", ROWS.replace("text 20", "text, 20")),
        ("quote.csv", ROWS.replace("20,some", '20,"some" ')),
        ("last.csv", ROWS[:-1] + ", and more"),
        ("letter.csv", ROWS.replace("text 20", '"text \n\xff"').encode("latin-1")),
        ("last.jsonl", RECORDS + '{"id": 1, "text": "a" "b"}'),
        ("last2.jsonl", RECORDS + '{"id": 1, "text": "a"} {"id": 2, "text": "b"}'),
        ("element.json", ARRAY.replace('"some text 20"', '"some" text 20')),
    ]:
        write(folder / name, content)
        for command in ("dedup", "fingerprint", "sample"):
            found = run(command, name)
            assert found.code == 0, found.err
            assert f"skipped {name}:" in found.err


def test_several_files(folder):
    write(folder / "b.jsonl", '{"body": "a"}\n')
    found = run("dedup", "a.jsonl", "b.jsonl", "in/photo.png", "-o", "clusters")
    assert incomplete(found).startswith("b.jsonl was not read, nor 1 more files (no field")
    assert (folder / "clusters").exists()


def test_no_file_of_records_is_read(folder):
    for number in range(3):
        write(folder / f"in/{number}.parquet", b"PAR1 not really")
    assert incomplete(run("dedup", "in")).startswith("in/0.parquet was not read, nor 2 more files (corrupt")
    write(folder / "in/3.jsonl", RECORDS)
    assert incomplete(run("dedup", "in")).startswith("in/0.parquet was not read, nor 2 more files (corrupt")


def test_nothing_is_missed(folder):
    write(folder / "b.jsonl", '{"text": ""}\n')
    write(folder / "c.txt", "")
    write(folder / "d.jsonl", RECORDS + "not JSON\n")
    assert run("dedup", "a.jsonl", "b.jsonl", "c.txt", "d.jsonl", "in").code == 0
    assert run("dedup", "-", stdin=b'{"text": "a"}\nnot JSON\n').code == 0


def test_a_folder_of_arrow_is_not_its_settings(folder):
    write(folder / "in/data-00000-of-00001.arrow", b"ARROW1\0\0" + bytes(99))
    assert incomplete(run("dedup", "in")).startswith(
        "in/data-00000-of-00001.arrow was not read (Arrow: write it as"
    )


def test_half_of_a_file_is_not_a_few_records(folder):
    rows = RECORDS.splitlines()
    for name, lines in (
        ("more.jsonl", [row + "}" for row in rows]),
        (
            "some.jsonl",
            [row + "}" * (number % 2) for number, row in enumerate(rows[:-1] if len(rows) % 2 else rows)],
        ),
        ("short.csv", ["id,text,more", *(f"{n},a text" + ",x" * (n % 2) for n in range(10))]),
    ):
        write(folder / name, "\n".join(lines) + "\n")
        assert incomplete(run("dedup", "in", "a.jsonl", name)).startswith(f"{name} was not read")
    write(folder / "few.jsonl", RECORDS + "not JSON\n")
    assert run("dedup", "few.jsonl").code == 0
