"""Files in the shapes that people have: other fields, dialects, names and folders of links."""

import csv
import io
import json

import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st
from program import run, run_apart
from pyarrow import parquet
from reading import copy, read, texts, write

from simsql.documents import Layout, Skip, read_single_text

TEXTS = [f"The council has approved a new bridge, the {name}; work begins in March." for name in ("Long", "Tall")]
CHAT = [
    {"meta": {"id": f"u{n}"}, "messages": [{"role": "user", "content": "News?"}, {"role": "bot", "content": text}]}
    for n, text in enumerate(TEXTS)
]


def refused(found, code, *said):
    """Check an exit code, and what the last line says."""
    assert found.code == code, found.err
    for each in said:
        assert each in found.err.splitlines()[-1]


def as_lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def as_parquet(path, rows):
    parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    return path


@pytest.fixture(params=["jsonl", "json", "parquet"])
def save(request, tmp_path):
    """A function that writes rows in a format with nested values, and returns the path."""

    def write_rows(rows):
        path = tmp_path / f"rows.{request.param}"
        if request.param == "parquet":
            return as_parquet(path, rows)
        return write(path, as_lines(rows) if request.param == "jsonl" else json.dumps(rows))

    return write_rows


def test_paths_into_objects_and_lists(save):
    found = read(save(CHAT), text_fields=("messages[].content",), id_field="meta.id", value_fields=("meta.id",))
    assert [(item.name, item.text, item.values) for item in found] == [
        (f"u{n}", f"News?\n{text}", (f"u{n}",)) for n, text in enumerate(TEXTS)
    ]


def test_lists_of_texts(save):
    path = save([{"paragraphs": ["one two", None, "three"]}, {"paragraphs": []}, {"paragraphs": None}])
    found = read(path, text_fields=("paragraphs[]",))
    assert [getattr(item, "text", None) or item.reason for item in found] == ["one two\nthree", "empty", "empty"]
    for field in ("paragraphs", "paragraphs.more"):
        assert {item.reason for item in read(path, text_fields=(field,))} <= {
            "not a string",
            "no field",
            "no text",
        }


def test_a_path_that_leads_to_a_list_names_the_one_to_the_texts(tmp_path):
    path = write(tmp_path / "a.jsonl", as_lines(CHAT))
    for field in ("messages", "messages[]"):
        skip, _ = read(path, text_fields=(field,))
        assert skip.detail.endswith(": choose with --text-field 'messages[].content'")
    deep = write(tmp_path / "b.jsonl", as_lines([{"a": {"b": [["one"]]}, "c": {"d": 1}}] * 2))
    for field, said in (("a", " 'a.b[][]'"), ("a.b[]", " 'a.b[][]'"), ("c", "'c' is an object")):
        assert read(deep, text_fields=(field,))[0].detail.endswith(said)


def test_records_without_the_field_name_the_paths_in_them(save):
    for field in ("text", "messages.content"):
        skip = read(save(CHAT), text_fields=(field,))[0]
        assert "'messages[].role', 'messages[].content'" in skip.detail


def test_no_part_of_a_text_is_left_out(tmp_path):
    """As with chats whose contents are texts here, and lists of parts there."""
    chats = [{"m": [{"c": "a b c"}, {"c": [{"t": "d"}]}]}, {"m": [{"c": None}, {}, {"c": [{"t": "d"}]}]}]
    path = write(tmp_path / "a.jsonl", as_lines(chats))
    skip, found = read(path, text_fields=("m[].c[].t",))
    assert (skip.reason, skip.detail) == (
        "not a string",
        "the path 'm[].c[].t' does not lead through a string in it",
    )
    assert found.text == "d"


def test_ids_of_any_type_in_objects(tmp_path):
    rows = [{"text": TEXTS[0], "meta": {"id": id_}} for id_ in (b"\xff\0", b"x")]
    assert [item.name for item in read(as_parquet(tmp_path / "a.parquet", rows), id_field="meta.id")] == [
        "\\xff\\x00",
        "x",
    ]


def test_a_key_that_is_spelled_like_a_path_takes_precedence(save):
    path = save([{"a.b": "this", "a": {"b": "that"}}, {"a.b": "these", "a": None}])
    assert texts(path, text_fields=("a.b",)) == ["this", "these"]


@given(st.data())
def test_paths_find_what_is_there(tmp_path_factory, data):
    """Compare with a walk that is written in another way."""
    names = st.sampled_from(["a", "b", "a.b", "é"])
    leaves = st.none() | st.sampled_from(["x y", "z", ""])
    value = data.draw(
        st.dictionaries(
            names, st.recursive(leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner))
        )
    )
    steps = data.draw(st.lists(st.sampled_from(["a", "b", "é", "[]"]), min_size=1, max_size=3))
    if steps[0] == "[]":
        steps[0] = "a"
    path = steps[0] + "".join(step if step == "[]" else f".{step}" for step in steps[1:])

    def odd(node):
        return [] if node is None else [()]

    def walk(node, steps):
        if not steps:
            return [node] if node is None or isinstance(node, str) else [()]
        if steps[0] == "[]":
            return (
                [leaf for each in node for leaf in walk(each, steps[1:])] if isinstance(node, list) else odd(node)
            )
        if isinstance(node, dict):
            return walk(node[steps[0]], steps[1:]) if steps[0] in node else []
        return odd(node)

    leaves = walk({"a": value[path]}, ["a"]) if len(steps) > 1 and path in value else walk(value, steps)
    expected = "\n".join(leaf for leaf in leaves if leaf) if all(leaf != () for leaf in leaves) else None
    file = write(tmp_path_factory.mktemp("path") / "a.jsonl", json.dumps(value) + "\n")
    [found] = read(file, text_fields=(path,))
    if expected and isinstance(expected, str):
        assert found.text == expected
    else:
        assert isinstance(found, Skip)


def test_several_fields_are_joined_in_their_order(save):
    rows = [{"title": "A", "body": "b c"}, {"title": "D", "body": None}, {"title": None, "body": None}]
    found = read(save(rows), text_fields=("body", "title"))
    assert [getattr(item, "text", None) or item.reason for item in found] == ["b c\nA", "D", "no text"]


def test_a_key_without_a_name_is_no_text(save):
    rows = [{"": "an index", "title": "A", "body": "b c"}]
    assert texts(save(rows), text_fields=("body", "title")) == ["b c\nA"]


def test_each_file_may_have_one_of_several_fields(tmp_path):
    write(tmp_path / "scopus.csv", f'key,Abstract\n1,"{TEXTS[0]}"\n')
    write(tmp_path / "zotero.csv", f'key,Abstract Note\n9,"{TEXTS[0]}"\n')
    files = tmp_path / "scopus.csv", tmp_path / "zotero.csv"
    one = run("dedup", *files, "--text-field", "Abstract")
    refused(
        one, 2, "zotero.csv was not read (no field: 'Abstract' is missing: the record has 'key', 'Abstract Note'"
    )
    both = run("dedup", *files, "--text-field", "Abstract", "--text-field", "Abstract Note").done()
    assert json.loads(both.out)["size"] == 2
    third = run(
        "dedup", *files, "--text-field", "Abstract", "--text-field", "Abstract Note", "--text-field", "Body"
    )
    refused(third, 2, "no record has a field 'Body'")


def test_an_id_that_no_record_has(save):
    path = save([{"key": "a", "text": TEXTS[0]}, {"text": TEXTS[1]}])
    for command in ("dedup", "fingerprint"):
        refused(run(command, path, "--id-field", "kye"), 2, "no record has a field 'kye'")
        assert run(command, path, "--id-field", "key").code == 0


RECORDS = [(1, TEXTS[0]), (2, TEXTS[1]), (3, 'Bees closed the "market"; keepers came\nwith boxes\\smoke.')]


def as_table(rows=RECORDS, *, head=("id", "text"), start="", **dialect):
    table = io.StringIO(newline="")
    table.write(start)
    writer = csv.writer(table, **dialect)
    writer.writerows([head, *rows] if head else rows)
    return table.getvalue()


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.tab"])
@pytest.mark.parametrize("delimiter", list(",;\t|"))
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_delimiters_are_found(tmp_path, name, delimiter, encoding):
    path = write(tmp_path / name, as_table(delimiter=delimiter).encode(encoding))
    assert [item.text for item in read(path)] == [text for _, text in RECORDS]


def test_dialects(tmp_path):
    hint = as_table(start="sep=;\r\n", delimiter=";")
    tilde = as_table(delimiter="~")
    escaped = as_table(doublequote=False, escapechar="\\")
    bare = "\n".join("\t".join(row) for row in [("id", "text"), ("1", 'a "b'), ("2", '"c')])
    headless = as_table(head=None)
    expected = [text for _, text in RECORDS]
    for table, shape, wanted in (
        (hint, {}, expected),
        (tilde, {"delimiter": "~"}, expected),
        (escaped, {"quoting": "backslash"}, expected),
        (bare, {"quoting": "none", "delimiter": "\t"}, ['a "b', '"c']),
        (headless, {"header": False, "text_fields": ("2",), "id_field": "1"}, expected),
    ):
        assert [item.text for item in read(write(tmp_path / "a.csv", table), **shape)] == wanted


def test_rows_that_are_too_long_in_other_dialects(tmp_path):
    long = 'x"\n' * 50
    for quoting, dialect in (
        ("backslash", {"doublequote": False, "escapechar": "\\"}),
        ("none", {"quoting": csv.QUOTE_NONE, "quotechar": None}),
    ):
        text = long if quoting == "backslash" else long.replace("\n", " ")
        path = write(tmp_path / "a.csv", as_table([(1, "a"), (2, text), (3, "b")], **dialect))
        found = read(path, quoting=quoting, max_document=60)
        assert [getattr(item, "text", None) or item.reason for item in found] == ["a", "too long", "b"]


@pytest.mark.parametrize("text", TEXTS)
def test_an_object_with_a_text_is_its_text(tmp_path, text):
    path = write(tmp_path / "a.json", json.dumps({"id": 7, "text": text, "lang": "en"}, indent=1))
    [found] = read(path, value_fields=("lang",))
    assert (found.name, found.text, found.line, found.values) == (str(path), text, None, ("en",))


OBJECTS = [{"id": number, "text": text} for number, text in enumerate(TEXTS)]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("data.json", json.dumps({"version": "1.1", "data": OBJECTS}), "an array called 'data'"),
        ("big.json", json.dumps({"version": "1.1", "data": OBJECTS * 1000}), "an array called 'data'"),
        ("pretty.json", "\n".join(json.dumps(one, indent=1) for one in OBJECTS), "several lines each"),
        ("columns.json", json.dumps({"id": [1, 2], "text": TEXTS}), "each of its columns"),
        ("frame.json", json.dumps({"text": {"0": TEXTS[0], "1": TEXTS[1]}}), "each of its columns"),
        ("texts.json", json.dumps(TEXTS), "an array of texts"),
        ("RC_2023-01", as_lines(OBJECTS), "--input-format jsonl"),
        ("c4.json.txt", as_lines(OBJECTS), "--input-format jsonl"),
        ("unicode.txt", as_table(delimiter="\t").encode("utf-16"), "--input-format tsv"),
        ("table.txt", as_table(delimiter=";"), "--input-format csv"),
        ("RC_2006-01", as_lines({"body": text} for text in TEXTS), "--input-format jsonl"),
        ("alpaca", json.dumps([{"instruction": text} for text in TEXTS]), "--input-format json"),
        ("excel.txt", as_table(head=("Nr", "Titel"), delimiter="\t").encode("utf-16"), "--input-format tsv"),
        ("dataset.arrow", b"ARROW1\0\0" + bytes(200), "Parquet"),
    ],
)
def test_records_in_another_shape_are_named(tmp_path, name, content, said):
    path = write(tmp_path / name, content)
    refused(run("dedup", path), 1 if name.endswith("arrow") else 2, said)
    if not name.endswith(".arrow"):
        assert run("dedup", path, "--input-format", "text").code == 0


@pytest.mark.parametrize(
    ("name", "content", "form"),
    [
        ("RC_2023-01", as_lines(OBJECTS), "jsonl"),
        ("unicode.txt", as_table(delimiter="\t").encode("utf-16"), "tsv"),
        ("table.dat", as_table(delimiter=";"), "csv"),
        ("array", json.dumps(OBJECTS), "json"),
    ],
)
def test_the_format_can_be_named(tmp_path, name, content, form):
    path = write(tmp_path / name, content)
    assert texts(path, format=form)[:2] == TEXTS
    run("dedup", path, "--input-format", form, "--clean", tmp_path / f"clean-{name}").done()


def test_a_parquet_file_under_another_name(tmp_path):
    assert texts(as_parquet(tmp_path / "part-0", OBJECTS), format="parquet") == TEXTS


@pytest.mark.parametrize("form", ["json", "jsonl", "csv", "parquet"])
def test_records_without_the_field(tmp_path, form):
    rows = [{"instruction": "Sum up.", "output": text} for text in TEXTS]
    path = tmp_path / f"a.{form}"
    if form == "parquet":
        as_parquet(path, rows)
    else:
        head, *lines = ["instruction,output", *(f'a,"{row["output"]}"' for row in rows)]
        content = {"json": json.dumps(rows), "jsonl": as_lines(rows), "csv": "\n".join([head, *lines]) + "\n"}
        write(path, content[form])
    (tmp_path / "in").mkdir()
    write(tmp_path / "in/note.txt", "A note beside it.")
    for more in ([], [tmp_path / "in"]):
        for command in ("dedup", "fingerprint"):
            refused(run(command, path, *more), 2, "no field", "the record has 'instruction', 'output'")
    refused(run("dedup", path, "--text-field", "outptu"), 2, "'outptu' is missing")
    assert run("dedup", path, "--text-field", "output").code == 0


def test_a_first_record_without_the_field(tmp_path):
    rows = [{"id": 1, "note": "no text yet"}, *OBJECTS]
    for content in (json.dumps(rows), as_lines(rows)):
        found = read(write(tmp_path / "a.json", content))
        assert [getattr(item, "text", None) for item in found] == [None, *TEXTS]


def test_a_first_line_that_is_damaged(tmp_path):
    path = write(tmp_path / "a.json", '{"text": "cut\n' + as_lines(OBJECTS))
    assert [getattr(item, "text", None) for item in read(path)] == [None, *TEXTS]


def test_settings_beside_texts_are_counted(tmp_path):
    write(tmp_path / "a.txt", TEXTS[0])
    write(tmp_path / "tasks.json", json.dumps([{"label": "build"}, {"label": "test"}]))
    found = run("dedup", tmp_path).done()
    assert "no field" in found.err
    write(tmp_path / "b.jsonl", as_lines(OBJECTS))
    refused(run("dedup", tmp_path), 2, "tasks.json was not read")


def test_one_text_of_several_lines(tmp_path):
    path = write(tmp_path / "a.txt", "\n".join(TEXTS) + "\n")
    assert "--lines" in run("dedup", path).done().err
    assert json.loads(run("dedup", path, "--lines").done().out)["size"] == 2


def test_links_in_folders_can_be_followed(tmp_path):
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots/abc"
    blobs.mkdir()
    (snapshot / "data").mkdir(parents=True)
    write(blobs / "0f3c", as_lines(OBJECTS))
    (snapshot / "data/train.jsonl").symlink_to("../../../blobs/0f3c")
    (snapshot / "again.jsonl").symlink_to("data/train.jsonl")
    (snapshot / "loop").symlink_to("../abc")
    (snapshot / "gone").symlink_to("nowhere")
    refused(run("dedup", snapshot), 1, "links inside folders are followed only with --follow-links")
    for paths in ([snapshot], [snapshot, snapshot / "data"]):
        found = run("fingerprint", *paths, "--follow-links")
        assert len(found.out.splitlines()) == 2
    # A folder that is linked is read under the name of the link.
    linked = tmp_path / "linked"
    linked.mkdir()
    (linked / "all").symlink_to(snapshot)
    assert len(run("fingerprint", linked, "--follow-links").out.splitlines()) == 2


def test_pages_in_records(save):
    page = "<nav>Home | News</nav><p>The council has approved a new bridge across the river Stour.</p>" * 2
    for text in texts(
        save([{"text": page}, {"text": "<p>Bees have closed the market &amp; the road.</p>"}]), main_content=True
    ):
        assert "<" not in text
        assert "&amp;" not in text


def test_a_link_with_an_ending_names_a_file_without_one(tmp_path):
    """Wherever it is found: as in the cache of Hugging Face, whose folder of files comes before that of links."""
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots/abc"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    as_parquet(blobs / "0f3c", [{"text": text} for text in TEXTS])
    (snapshot / "train.parquet").symlink_to("../../blobs/0f3c")
    (blobs / "v1.0").symlink_to("../snapshots")  # a folder keeps its first name
    found = run("fingerprint", tmp_path, "--follow-links")
    assert [line.split("\t")[1] for line in found.done().lines] == [
        f"{tmp_path}/blobs/v1.0/abc/train.parquet:{row}" for row in (1, 2)
    ]
    for more in ([], ["--follow-links", "--exclude", "*.parquet"]):
        assert "blobs/0f3c was not read (Parquet: read it with --input-format parquet" in run(
            "dedup", tmp_path, write(tmp_path / "a.txt", TEXTS[0]), *more
        ).err.replace("no documents in", "was not read")


@pytest.mark.parametrize("quoting", ["double", "backslash", "none"])
def test_nulls_of_databases_are_no_texts(tmp_path, quoting):
    """They would be duplicates of each other."""
    path = write(tmp_path / "a.tsv", "1\t\\N\n2\t\\N\tmore\n3\tNULL is here\n")
    found = read(path, quoting=quoting, header=False, text_fields=("2",), id_field="1")
    assert [getattr(item, "text", None) or item.reason for item in found] == [
        "no text",
        "wrong number of fields",
        "NULL is here",
    ]


def test_escapes_of_databases(tmp_path):
    r"""As COPY of PostgreSQL and `mysql -B` write them, also where the file ends: there, the letter stays."""
    table = "id\ttext\n1\ta\\nb\\tc\\\\nd\n2\te\\\n\\r\n3\tf \\N\n4\tg\\n"
    found = texts(write(tmp_path / "a.tsv", table), quoting="backslash")
    assert found == ["a\nb\tc\\nd", "e\n\r", "f \\N", "gn"]
    assert copy(tmp_path / "a.tsv", [2, 6], Layout(quoting="backslash")).decode() == "".join(
        line for number, line in enumerate(table.splitlines(keepends=True), 1) if number not in (2, 6)
    )


def test_lines_of_files_of_records(tmp_path):
    path = write(tmp_path / "a.csv", "\n".join(TEXTS))
    assert json.loads(run("dedup", path, "--lines", "--input-format", "text").done().out)["size"] == 2
    run("dedup", path, "--lines", "--input-format", "csv").failed(2, "--lines reads texts, not csv")


@pytest.mark.parametrize("delimiter", list(",\t;"))
def test_a_table_without_a_header_on_stdin(delimiter):
    table = as_table(head=None, delimiter=delimiter).encode()
    options = ["--delimiter", ";"] if delimiter == ";" else []
    found = run("fingerprint", "-", "--no-header", "--text-field", "2", "--id-field", "1", *options, stdin=table)
    assert [line.split("\t")[1] for line in found.done().lines] == ["1", "2", "3"]


def test_parquet_from_a_pipe(tmp_path):
    data = as_parquet(tmp_path / "a.parquet", OBJECTS).read_bytes()
    found = run_apart("dedup", "-", "--input-format", "parquet", stdin=data)
    refused(found, 1, "it cannot be read from a pipe: write it to a file first")


def test_a_link_to_the_archive_is_not_new(tmp_path):
    archive, inbox = tmp_path / "archive", tmp_path / "inbox"
    write(archive / "a.jsonl", as_lines(OBJECTS[:1]))
    write(inbox / "b.jsonl", as_lines(OBJECTS))
    (inbox / "again.jsonl").symlink_to(archive / "a.jsonl")
    found = run("dedup", inbox, "--against", archive, "--follow-links", "--clean", tmp_path / "new")
    assert (found.code, [path.name for path in (tmp_path / "new").iterdir()]) == (3, ["b.jsonl"])


def test_a_text_to_search_for_may_look_like_records(tmp_path):
    path = write(tmp_path / "a.txt", as_table(head=("Nr", "Titel"), delimiter="\t"))
    found = read_single_text(str(path), encoding="utf-8", max_document=1000, stdin=io.BytesIO())
    assert found.encode() == path.read_bytes()
