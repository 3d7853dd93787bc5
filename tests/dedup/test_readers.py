"""Documents in files of every kind that a user may point at, and what becomes of the files that hold none."""

import bz2
import codecs
import contextlib
import csv
import gzip
import io
import json
import lzma
import marshal
import os
import pickle
import socket
import sqlite3
import struct
import sys
import tempfile
import threading
import tracemalloc
import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simsql.dedup.content import SAMPLE
from simsql.dedup.formats import printable, storable
from simsql.dedup.readers import Document, DocumentReader, Skip
from simsql.errors import UsageError

COMPRESSORS = {".gz": gzip.compress, ".xz": lzma.compress, ".bz2": bz2.compress}


def read(*paths, **options):
    return list(DocumentReader(paths, **options))


def texts(*paths, **options):
    found = read(*paths, **options)
    assert not [item for item in found if isinstance(item, Skip)]
    return [document.text for document in found]


def one_skip(*paths, **options):
    [skip] = read(*paths, **options)
    assert isinstance(skip, Skip)
    assert "\n" not in skip.detail
    return skip


def skips(*paths, **options):
    return [item for item in read(*paths, **options) if isinstance(item, Skip)]


def from_stdin(data, **options):
    return read("-", stdin=io.BytesIO(data), **options)


def write(path, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


@contextlib.contextmanager
def without_privileges():
    """Be an ordinary user for a while: permissions mean nothing to root."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@contextlib.contextmanager
def nested(folder, names):
    """Folders inside each other, however deep; removed afterwards, which rmtree does by recursion."""
    here = os.open(folder, os.O_RDONLY)

    def move(target):
        nonlocal here
        there = os.open(target, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = there

    for name in names:
        os.mkdir(name, dir_fd=here)
        move(name)
    try:
        yield Path(folder, *names)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink("a.txt", dir_fd=here)
        for name in reversed(names):
            move("..")
            os.rmdir(name, dir_fd=here)
        os.close(here)


class TestFolders:
    def test_every_text_file_is_a_document_named_by_its_path_in_the_order_of_names(self, tmp_path):
        for name in ("b/z.txt", "b/a", "a.txt", "c.md", ".hidden"):
            write(tmp_path / name, f"text of {name}")
        assert read(tmp_path) == [
            Document(str(tmp_path / name), f"text of {name}", str(tmp_path / name))
            for name in (".hidden", "a.txt", "b/a", "b/z.txt", "c.md")
        ]

    def test_records_in_a_folder_are_read_as_records(self, tmp_path):
        write(tmp_path / "a.jsonl", '{"text": "from json"}\n')
        write(tmp_path / "b.csv", "id,text\n1,from csv\n")
        write(tmp_path / "c.tsv", "id\ttext\n1\tfrom tsv\n")
        write(tmp_path / "d.ndjson.gz", gzip.compress(b'{"text": "compressed"}'))
        assert texts(tmp_path) == ["from json", "from csv", "from tsv", "compressed"]

    def test_a_table_without_the_text_column_is_skipped_once(self, tmp_path):
        write(tmp_path / "a.csv", "id,body\n" + "1,x\n" * 100)
        write(tmp_path / "b.txt", "text")
        skip, document = read(tmp_path)
        assert (skip.reason, skip.place) == ("no field", str(tmp_path / "a.csv"))
        assert "'id', 'body'" in skip.detail
        assert document.text == "text"

    def test_an_empty_folder_has_no_documents(self, tmp_path):
        assert read(tmp_path) == []

    def test_folders_nested_deeper_than_calls_of_python(self, tmp_path):
        names = ["d"] * (sys.getrecursionlimit() + 10)
        write(tmp_path / "e.txt", "after")
        with nested(tmp_path, names) as deepest:
            write(deepest / "a.txt", "deepest")
            assert texts(tmp_path) == ["deepest", "after"]

    def test_a_path_longer_than_the_system_allows(self, tmp_path):
        write(tmp_path / "e.txt", "after")
        with nested(tmp_path, ["d" * 250] * 20):
            skip, document = read(tmp_path)
        assert (skip.reason, skip.detail) == ("unreadable", "File name too long")
        assert document.text == "after"

    def test_links_are_counted_and_not_followed(self, tmp_path):
        inside = write(tmp_path / "in/a.txt", "text")
        (tmp_path / "in/loop").symlink_to(tmp_path / "in", target_is_directory=True)
        (tmp_path / "in/link.txt").symlink_to(inside)
        (tmp_path / "in/broken").symlink_to("nowhere")
        found = read(tmp_path / "in")
        assert [item.reason for item in found if isinstance(item, Skip)] == ["link"] * 3
        assert [item.text for item in found if isinstance(item, Document)] == ["text"]

    def test_a_link_that_is_named_is_followed(self, tmp_path):
        write(tmp_path / "real/a.txt", "text")
        (tmp_path / "folder").symlink_to("real")
        (tmp_path / "file").symlink_to("real/a.txt")
        assert texts(tmp_path / "folder") == ["text"]
        assert texts(tmp_path / "file") == ["text"]

    def test_pipes_sockets_and_devices_do_not_hang(self, tmp_path):
        os.mkfifo(tmp_path / "pipe")
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(tmp_path / "socket"))
            assert [skip.reason for skip in skips(tmp_path)] == ["special file"] * 2

    def test_what_is_left_out_is_read_only_if_it_is_named_itself(self, tmp_path):
        (tmp_path / "kept" / "deep").mkdir(parents=True)
        for name in ("in.txt", "out.txt", "kept/data.txt", "kept/deep/data.txt"):
            (tmp_path / name).write_text(name)
        left_out = [tmp_path / "out.txt", tmp_path / "kept", tmp_path / "not there"]
        assert texts(tmp_path, leave_out=left_out) == ["in.txt"]
        assert texts(tmp_path, tmp_path / "out.txt", leave_out=left_out) == ["in.txt"]
        assert texts(tmp_path / "out.txt", tmp_path / "kept", leave_out=left_out) == [
            "out.txt",
            "kept/data.txt",
            "kept/deep/data.txt",
        ]

    def test_a_file_that_two_arguments_reach_is_read_once(self, tmp_path, monkeypatch):
        a = write(tmp_path / "folder/a.txt", "a")
        write(tmp_path / "folder/sub/b.txt", "b")
        folder, sub = tmp_path / "folder", tmp_path / "folder/sub"
        assert texts(folder, a) == ["a", "b"]
        assert texts(a, folder) == ["a", "b"]
        assert texts(sub, folder) == ["b", "a"]
        assert texts(folder, folder, sub) == ["a", "b"]
        (tmp_path / "link").symlink_to(folder)
        assert texts(tmp_path / "link", folder) == ["a", "b"]
        assert texts(a, tmp_path / "link") == ["a", "b"]
        monkeypatch.chdir(folder)
        assert texts("a.txt", ".", "../folder/a.txt", "./sub/../a.txt") == ["a", "b"]

    def test_a_file_that_vanishes_before_its_turn(self, tmp_path):
        for name in "abc":
            write(tmp_path / name, name)
        reader = iter(DocumentReader([tmp_path]))
        assert next(reader).text == "a"
        (tmp_path / "b").unlink()
        assert next(reader) == Skip(str(tmp_path / "b"), "unreadable", "No such file or directory")
        assert next(reader).text == "c"


class TestNames:
    def test_spaces_and_line_ends(self, tmp_path):
        path = write(tmp_path / "two words\nand\ttwo lines.txt", "text")
        [document] = read(tmp_path)
        assert document.name == str(path)
        assert document.place == str(tmp_path) + "/two words\\nand\\ttwo lines.txt"

    def test_bytes_that_are_not_utf8(self, tmp_path):
        path = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.txt")
        write(Path(path), "text")
        for argument in (path, tmp_path):
            [document] = read(argument)
            assert document.text == "text"
            assert document.name == str(tmp_path / "caf\\xe9.txt")
            document.name.encode()

    def test_letters_of_any_script_stay_as_they_are(self, tmp_path):
        write(tmp_path / "बल 日本.txt", "text")
        assert [document.place for document in read(tmp_path)] == [str(tmp_path / "बल 日本.txt")]

    @given(st.text(st.characters(codec=None)))
    def test_a_name_always_fits_into_postgresql_and_on_a_line(self, name):
        assert "\0" not in storable(name)
        storable(name).encode()
        assert printable(name).isprintable()


class TestArguments:
    def test_all_missing_paths_are_named_before_anything_is_read(self, tmp_path):
        good = write(tmp_path / "good", "text")
        (tmp_path / "dangling").symlink_to("nowhere")
        with pytest.raises(UsageError) as raised:
            DocumentReader([good, tmp_path / "no\n", "nul\0", tmp_path / "dangling", good / "x"])
        message = str(raised.value)
        assert "\n" not in message
        assert all(name in message for name in ("no\\n", "nul\\x00", "dangling", "good/x"))

    @pytest.mark.parametrize("encoding", ["nonsense", "base64", "rot13", "undefined", "", "nul\0", "é"])
    def test_an_unknown_encoding(self, tmp_path, encoding):
        with pytest.raises(UsageError, match="unknown encoding"):
            DocumentReader([tmp_path], encoding=encoding)

    def test_standard_input_that_is_closed(self):
        with pytest.raises(UsageError, match="standard input"):
            DocumentReader(["-"])

    def test_a_file_called_minus(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        write(Path("./-"), "text")
        assert texts("./-") == ["text"]

    def test_standard_input_is_json_lines_and_stays_open(self):
        stdin = io.BytesIO(b'{"text": "a"}\n{"text": "b", "id": "x"}')
        assert read("-", "-", stdin=stdin) == [
            Document("stdin:1", "a", "stdin:1"),
            Document("x", "b", "stdin:2"),
        ]
        assert not stdin.closed

    def test_standard_input_may_be_compressed(self):
        assert [item.text for item in from_stdin(gzip.compress(b'{"text": "a"}'))] == ["a"]

    def test_a_named_pipe_that_is_named_is_json_lines(self, tmp_path):
        pipe = tmp_path / "pipe"
        os.mkfifo(pipe)
        lines = b'{"text": "' + b"x" * 1_000_000 + b'"}\n{"text": "b"}\n'
        writer = threading.Thread(target=pipe.write_bytes, args=(lines,))
        writer.start()
        assert texts(pipe) == ["x" * 1_000_000, "b"]
        writer.join()


class TestUnreadable:
    def test_permission_denied(self):
        # Not in tmp_path: other users cannot reach it.
        with tempfile.TemporaryDirectory(dir="/tmp") as name:
            folder = Path(name)
            folder.chmod(0o755)
            write(folder / "a", "a").chmod(0)
            write(folder / "b", "b").chmod(0o644)
            (folder / "c").mkdir(mode=0)
            with without_privileges():
                found = read(folder / "c/inside", folder)
            (folder / "c").chmod(0o700)
        inside, a, b, c = found
        assert b == Document(str(folder / "b"), "b", str(folder / "b"))
        for skip, path in ((inside, "c/inside"), (a, "a"), (c, "c")):
            assert skip == Skip(str(folder / path), "unreadable", "Permission denied")

    def test_a_socket_that_is_named_cannot_be_opened(self, tmp_path):
        good = write(tmp_path / "good", "text")
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(tmp_path / "socket"))
            skip, document = read(tmp_path / "socket", good)
        assert skip.reason == "unreadable"
        assert document.text == "text"

    def test_a_file_that_fails_while_it_is_read(self):
        skip = one_skip("/proc/self/mem")
        assert (skip.reason, skip.detail) == ("unreadable", "Input/output error")

    @pytest.mark.parametrize("ending", COMPRESSORS)
    def test_records_before_the_damage_stay(self, tmp_path, ending):
        lines = [json.dumps({"text": os.urandom(500).hex()}) for _ in range(2000)]
        packed = COMPRESSORS[ending]("\n".join(lines).encode())
        *documents, skip = read(write(tmp_path / f"a.jsonl{ending}", packed[: len(packed) // 2]))
        assert skip.reason == "corrupt"
        # bzip2 compresses in blocks of 900 KB, which come out whole or not at all.
        assert len(documents) > 800
        assert [document.text for document in documents] == [
            json.loads(line)["text"] for line in lines[: len(documents)]
        ]

    @pytest.mark.parametrize("ending", COMPRESSORS)
    def test_short_files_cut_off_and_flipped(self, tmp_path, ending):
        packed = COMPRESSORS[ending](b"a text " * 3)
        assert one_skip(write(tmp_path / "cut", packed[:-5])).reason == "corrupt"
        flipped = bytes(byte ^ (i == len(packed) // 2) for i, byte in enumerate(packed))
        assert one_skip(write(tmp_path / "flipped", flipped)).reason == "corrupt"

    def test_a_bad_checksum_at_the_end_loses_no_record(self, tmp_path):
        packed = bytearray(gzip.compress(b'{"text": "a"}\n{"text": "b"}\n'))
        packed[-8] ^= 1
        a, b, skip = read(write(tmp_path / "a.jsonl.gz", bytes(packed)))
        assert (a.text, b.text, skip.reason) == ("a", "b", "corrupt")


class TestCompression:
    @pytest.mark.parametrize("ending", COMPRESSORS)
    def test_every_format_may_be_compressed(self, tmp_path, ending):
        pack = COMPRESSORS[ending]
        write(tmp_path / f"a.jsonl{ending}", pack(b'{"text": "json"}'))
        write(tmp_path / f"b.CSV{ending}", pack(b"text\ncsv\n"))
        write(tmp_path / f"c.txt{ending}", pack(b"plain"))
        write(tmp_path / "d", pack(b"without the ending"))
        write(tmp_path / f"e{ending}", b"the ending alone")
        write(tmp_path / f"f{ending}", pack(pack(b"twice")))
        write(tmp_path / f"g{ending}", pack(b""))
        *documents, twice, empty = read(tmp_path)
        assert [document.text for document in documents] == [
            "json",
            "csv",
            "plain",
            "without the ending",
            "the ending alone",
        ]
        assert twice.reason in ("binary", "not utf-8")
        assert empty.reason == "empty"

    def test_several_members(self, tmp_path):
        path = write(tmp_path / "a.gz", gzip.compress(b"one ") + gzip.compress(b"two"))
        assert texts(path) == ["one two"]


class TestPlainText:
    @pytest.mark.parametrize("data", [b"", b" \n\t\r\n", codecs.BOM_UTF8])
    def test_empty(self, tmp_path, data):
        assert one_skip(write(tmp_path / "a", data)).reason == "empty"

    def test_text_is_kept_as_it_is(self, tmp_path):
        text = "Zeile\r\nमें\x00\x1b[1m\f𝄞\u2028"
        assert texts(write(tmp_path / "a", text)) == [text]

    @pytest.mark.parametrize(
        ("mark", "encoding"),
        [
            (codecs.BOM_UTF8, "utf-8"),
            (codecs.BOM_UTF16_LE, "utf-16-le"),
            (codecs.BOM_UTF16_BE, "utf-16-be"),
            (codecs.BOM_UTF32_LE, "utf-32-le"),
            (codecs.BOM_UTF32_BE, "utf-32-be"),
        ],
    )
    def test_byte_order_marks(self, tmp_path, mark, encoding):
        text = "naïve 日本 𝄞\n" * 10_000
        assert texts(write(tmp_path / "a", mark + text.encode(encoding))) == [text]
        lines = '{"text": "日本"}\n{"text": "ਅ\u010a"}\n'
        assert texts(write(tmp_path / "a.jsonl", mark + lines.encode(encoding))) == ["日本", "ਅ\u010a"]
        table = 'text\r\n"日\n本"\r\n'
        assert texts(write(tmp_path / "a.csv", mark + table.encode(encoding))) == ["日\n本"]

    def test_another_encoding(self, tmp_path):
        write(tmp_path / "a", "naïve".encode("latin-1"))
        write(tmp_path / "b.jsonl", '{"text": "façade"}\n'.encode("latin-1"))
        write(tmp_path / "c.csv", "text\nétude\n".encode("latin-1"))
        assert texts(tmp_path, encoding="latin-1") == ["naïve", "façade", "étude"]
        assert {skip.reason for skip in skips(tmp_path)} == {"not utf-8"}

    def test_an_encoding_that_was_asked_for_is_not_overruled(self, tmp_path):
        path = write(tmp_path / "a", codecs.BOM_UTF8 + b"text")
        assert texts(path, encoding="latin-1") == ["ï»¿text"]

    def test_an_encoding_of_many_bytes(self, tmp_path):
        text = "日本語のテキスト。\n" * 5000
        assert texts(write(tmp_path / "a", text.encode("shift_jis")), encoding="shift_jis") == [text]
        assert one_skip(tmp_path / "a").reason == "not utf-8"

    def test_where_decoding_fails(self, tmp_path):
        skip = one_skip(write(tmp_path / "a", b"na\xefve text"))
        assert skip.reason == "not utf-8"
        assert skip.detail == "byte 2 is not utf-8: name the encoding, for example --encoding latin-1"
        assert "byte 5 " in one_skip(write(tmp_path / "a", codecs.BOM_UTF8 + b"na\xefve text")).detail

    def test_a_bad_byte_after_the_sample(self, tmp_path):
        data = b"text " * SAMPLE + b"\xff"
        skip = one_skip(write(tmp_path / "a", data))
        assert (skip.reason, f"byte {len(data) - 1} " in skip.detail) == ("not utf-8", True)

    @pytest.mark.parametrize("shift", range(4))
    def test_a_character_cut_by_the_end_of_the_sample(self, tmp_path, shift):
        text = "x" * shift + "𝄞" * SAMPLE
        assert texts(write(tmp_path / "a", text)) == [text]

    def test_a_character_cut_by_the_end_of_the_file(self, tmp_path):
        assert one_skip(write(tmp_path / "a", "text 𝄞".encode()[:-1])).reason == "not utf-8"

    def test_many_nul_bytes_are_still_text_but_mostly_nul_bytes_are_not(self, tmp_path):
        assert texts(write(tmp_path / "a", b"texts\0\0")) == ["texts\0\0"]
        assert one_skip(write(tmp_path / "a", b"texts\0\0\0\0")).reason == "binary"

    def test_an_encoding_without_error_handlers(self, tmp_path):
        write(tmp_path / "a.jsonl", b'{"text": "\xff"}\n')
        write(tmp_path / "b.txt", b"a\xff")
        assert {skip.reason for skip in skips(tmp_path, encoding="idna")} == {"not idna"}

    def test_what_an_encoding_says_is_on_one_line(self, tmp_path):
        skip = one_skip(write(tmp_path / "a.jsonl", b"hi-abc\n"), encoding="punycode")
        assert (skip.reason, skip.detail.isprintable()) == ("not punycode", True)


def sqlite_file(folder):
    path = folder / "made.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE document (id integer PRIMARY KEY, body text)")
        connection.execute("INSERT INTO document (body) VALUES ('some text')")
    return path.read_bytes()


def png():
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(b"\0\xff\xff\xff"))
        + chunk(b"IEND", b"")
    )


def tar(folder):
    import tarfile

    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.add(write(folder / "inside.txt", "text " * 20_000), "inside.txt")
    return packed.getvalue()


class TestBinary:
    @pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
    def test_files_that_are_no_text(self, tmp_path, encoding):
        folder = tmp_path / "files"
        made = {
            "png": png(),
            "sqlite": sqlite_file(tmp_path),
            "tar": tar(tmp_path),
            "tar.gz": gzip.compress(tar(tmp_path)),
            "pdf": b"%PDF-1.4\n1 0 obj <</Type /Catalog>> endobj\ntrailer",
            "pickle": pickle.dumps({"numbers": list(range(300)), "pi": 3.14}),
            "marshal": marshal.dumps(compile("def f(x): return x + 1", "f", "exec")),
            "mo": struct.pack("<7I", 0x950412DE, 0, 1, 28, 36, 0, 44) + struct.pack("<4I", 0, 0, 0, 0),
            "zoneinfo": b"TZif2" + bytes(15) + struct.pack(">6I", 0, 0, 0, 0, 1, 4) + bytes(6) + b"UTC\0",
            "floats": struct.pack("<100d", *(1 / (i + 1) for i in range(100))),
            "integers": struct.pack("<100i", *range(100)),
            "executable": Path("/proc/self/exe").read_bytes()[: 4 * SAMPLE],
            "random": bytes((i * i * 31 + i // 7 * 101) % 256 for i in range(5000)),
            "random.csv": bytes((i * i * 31 + i // 7 * 101) % 256 for i in range(5000)),
        }
        for name, data in made.items():
            write(folder / name, data)
        found = {Path(item.place).name: item for item in read(folder, encoding=encoding)}
        if encoding == "latin-1":
            del found["random.csv"]
        assert {name for name, item in found.items() if getattr(item, "reason", "") != "binary"} == set()

    def test_utf16_without_a_mark(self, tmp_path):
        for name, text in {"en": "plain words\n" * 100, "ja": "日本語のテキスト。\n" * 100}.items():
            path = write(tmp_path / name, text.encode("utf-16-le"))
            assert one_skip(path).reason == "binary"
            assert texts(path, encoding="utf-16-le") == [text]

    @pytest.mark.parametrize("name", ["sparse", "sparse.jsonl", "sparse.csv"])
    def test_a_binary_file_is_not_read_to_its_end(self, tmp_path, name):
        path = tmp_path / name
        with path.open("wb") as file:
            file.truncate(1 << 40)
        assert one_skip(path).reason == "binary"


class TestJsonLines:
    def test_records(self, tmp_path):
        path = write(
            tmp_path / "a.jsonl",
            '{"id": "x", "text": "one", "more": [1]}\r\n'
            "\n   \r\n"
            '{"id": 7, "text": "two\u2028\x85still two"}\n'
            '{"id": null, "text": "a\\u0000b\\ud800"}\n'
            '{"id": "", "text": "three"}\n'
            '{"id": {"$oid": "5é"}, "text": "four"}\n'
            '{"id": "n\\u0000\\udcff", "text": "five"}\n'
            '{"id": 1.5, "text": "unterminated"}',
        )
        assert read(path) == [
            Document(name, text, f"{path}:{line}")
            for line, name, text in (
                (1, "x", "one"),
                (4, "7", "two\u2028\x85still two"),
                (5, f"{path}:5", "a\0b\ud800"),
                (6, f"{path}:6", "three"),
                (7, '{"$oid": "5é"}', "four"),
                (8, "n\\x00\\udcff", "five"),
                (9, "1.5", "unterminated"),
            )
        ]

    @pytest.mark.parametrize(
        ("line", "reason", "detail"),
        [
            ("{", "not JSON", "column 2"),
            ('{"text": "a" "b"}', "not JSON", "column 14: Expecting ',' delimiter"),
            ("plain text", "not JSON", "column 1"),
            ('{"text": "raw \t tab"}', "not JSON", "Invalid control character"),
            ("[", "not JSON", "jq -c"),
            ('[{"text": "a"}]', "not an object", "jq -c"),
            ('"text"', "not an object", "a string"),
            ("3", "not an object", "a number"),
            ("true", "not an object", "a boolean"),
            ("null", "not an object", "null"),
            ("[" * 200_000, "not JSON", "too deep"),
            ('{"text": "a", "n": ' + "9" * 5000 + "}", "not JSON", "too long"),
            ("{}", "no field", "'text'"),
            ('{"body": "a", "id": 1}', "no field", "'body', 'id'"),
            ('{"text": null}', "no text", "null"),
            ('{"text": 3}', "not a string", "a number"),
            ('{"text": ["a"]}', "not a string", "an array"),
            ('{"text": ""}', "empty", "empty"),
            ('{"text": " \\n\\u2003"}', "empty", "white space"),
        ],
    )
    def test_a_bad_line_is_skipped_alone(self, line, reason, detail):
        before, skip, after = from_stdin(f'{{"text": "before"}}\n{line}\n{{"text": "after"}}\n'.encode())
        assert (before.text, after.text) == ("before", "after")
        assert (skip.place, skip.reason) == ("stdin:2", reason)
        assert detail in skip.detail
        assert skip.detail.isprintable()

    def test_a_line_in_another_encoding_is_skipped_alone(self):
        before, skip, after = from_stdin(b'{"text": "a"}\n{"text": "na\xefve"}\n{"text": "b"}\n')
        assert (before.text, after.text) == ("a", "b")
        assert (skip.place, skip.reason) == ("stdin:2", "not utf-8")
        assert "column 13" in skip.detail

    def test_bad_bytes_never_swallow_the_end_of_their_line(self):
        lines = b'{"text": "a\xf0\x9f"}\n"\xe2\n{"text": "b"}\n\xf0\x9f'
        assert [getattr(item, "reason", "document") for item in from_stdin(lines)] == [
            "not utf-8",
            "not utf-8",
            "document",
            "not utf-8",
        ]

    def test_utf16_that_is_cut_off(self, tmp_path):
        assert one_skip(write(tmp_path / "a", "text".encode("utf-16") + b"x")).reason == "not utf-16"
        first, second, skip = from_stdin('\ufeff{"text": "a"}\n{"text": "b"}\n'.encode("utf-16-le") + b"x")
        assert (first.text, second.text) == ("a", "b")
        assert (skip.place, skip.reason) == ("stdin:3", "not utf-16")

    def test_the_fields_that_are_listed_are_bounded(self):
        record = {f"field\n{number}" + "x" * 100: 1 for number in range(1000)}
        [skip] = from_stdin(json.dumps(record).encode())
        assert "and 992 more" in skip.detail
        assert len(skip.detail) < 600

    def test_other_fields(self):
        found = from_stdin(b'{"body": "a", "key": "k", "text": 1}', text_field="body", id_field="key")
        assert found == [Document("k", "a", "stdin:1")]

    def test_nothing_at_all(self):
        assert [skip.reason for skip in from_stdin(b"")] == ["empty"]
        assert from_stdin(b"\n\n") == []

    def test_a_line_of_100_megabytes(self, tmp_path):
        path = tmp_path / "a.jsonl"
        with path.open("wb") as file:
            file.write(b'{"text": "')
            for _ in range(100):
                file.write(b"a text. " * 131_072)
            file.write(b'"}\n{"text": "next"}\n')
        long, after = texts(path)
        assert (len(long), after) == (100 * 8 * 131_072, "next")

    @settings(deadline=None)
    @given(
        st.lists(st.tuples(st.text(st.characters(codec=None)), st.text(st.characters(codec=None)))),
        st.booleans(),
    )
    def test_what_was_written_is_read(self, records, ascii_only):
        lines = "".join(
            json.dumps({"id": name, "text": text}, ensure_ascii=ascii_only) + "\n" for name, text in records
        )
        if not ascii_only:
            lines = lines.encode("utf-8", "replace").decode()
        found = from_stdin(lines.encode())
        expected = []
        for line in lines.split("\n")[:-1]:
            record = json.loads(line)
            place = f"stdin:{len(expected) + 1}"
            filled = bool(record["text"].strip())
            expected.append(
                Document(storable(record["id"]) or place, record["text"], place) if filled else "empty"
            )
        assert [item if isinstance(item, Document) else item.reason for item in found] == (expected or ["empty"])


class TestTables:
    def read(self, tmp_path, data, name="a.csv", **options):
        self.path = write(tmp_path / name, data)
        return read(self.path, **options)

    def test_rows(self, tmp_path):
        found = self.read(
            tmp_path,
            'id,text,more\r\n1,plain,x\n\n2,"quoted, ""and""\r\non two lines",x\n'
            ',no id,x\n4,raw\0nul,x,,\n5,"end",',
        )
        assert found == [
            Document(name, text, f"{self.path}:{line}")
            for line, name, text in (
                (2, "1", "plain"),
                (4, "2", 'quoted, "and"\r\non two lines'),
                (6, f"{self.path}:6", "no id"),
                (7, "4", "raw\0nul"),
                (8, "5", "end"),
            )
        ]

    def test_tabs(self, tmp_path):
        found = self.read(tmp_path, "text\tid\na, b\t1\n", "a.tsv")
        assert found == [Document("1", "a, b", f"{self.path}:2")]

    def test_lines_that_end_as_they_did_on_old_machines(self, tmp_path):
        assert [document.text for document in self.read(tmp_path, "text\rone\rtwo\r")] == ["one", "two"]

    def test_other_columns(self, tmp_path):
        found = self.read(tmp_path, "body,key\na,k\n", text_field="body", id_field="key")
        assert found == [Document("k", "a", f"{self.path}:2")]

    def test_columns_without_ids(self, tmp_path):
        assert self.read(tmp_path, "text\na\n") == [Document(f"{self.path}:2", "a", f"{self.path}:2")]

    @pytest.mark.parametrize(
        ("row", "reason"),
        [
            ("only", "wrong number of fields"),
            ("1,an unquoted, comma", "wrong number of fields"),
            ("1,", "empty"),
            ('1,"quoted" and more', "not CSV"),
            ("1,na\udcefve", "not utf-8"),
            ('1,"two\nna\udcefve\nlines"', "not utf-8"),
        ],
    )
    def test_a_bad_row_is_skipped_alone(self, tmp_path, row, reason):
        table = f"id,text\n1,before\n{row}\n2,after\n".encode("utf-8", "surrogateescape")
        before, skip, after = self.read(tmp_path, table)
        assert (before.text, after.text) == ("before", "after")
        assert (skip.place, skip.reason) == (f"{self.path}:3", reason)

    def test_a_quote_that_is_never_closed(self, tmp_path):
        before, skip = self.read(tmp_path, 'id,text\n1,before\n2,"open\n3,swallowed\n')
        assert before.text == "before"
        assert (skip.place, skip.reason) == (f"{self.path}:3", "not CSV")
        assert "never closed" in skip.detail

    @pytest.mark.parametrize("data", ["", "\n\n"])
    def test_no_header(self, tmp_path, data):
        [skip] = self.read(tmp_path, data)
        assert skip.reason == "empty"

    def test_a_bad_header(self, tmp_path):
        for header, reason in (
            (b'"text" x\n', "not CSV"),
            (b"t\xffext\n", "not utf-8"),
            (b"id;text\n", "no field"),
        ):
            [skip] = self.read(tmp_path, header + b"1,a\n")
            assert (skip.place, skip.reason) == (str(self.path), reason)

    def test_a_field_of_100_megabytes(self, tmp_path):
        path = tmp_path / "a.csv"
        with path.open("wb") as file:
            file.write(b'text\n"')
            for _ in range(100):
                file.write(b"a text, " * 131_072)
            file.write(b'"\nnext\n')
        long, after = texts(path)
        assert (len(long), after) == (100 * 8 * 131_072, "next")

    @settings(deadline=None)
    @given(
        rows=st.lists(st.tuples(st.text(), st.text())),
        dialect=st.sampled_from([csv.excel, csv.unix_dialect, csv.excel_tab]),
    )
    def test_what_was_written_is_read(self, tmp_path_factory, rows, dialect):
        table = io.StringIO(newline="")
        writer = csv.writer(table, dialect)
        writer.writerows([("id", "text"), *rows])
        ending = "tsv" if dialect is csv.excel_tab else "csv"
        path = write(tmp_path_factory.getbasetemp() / f"written.{ending}", table.getvalue())
        found = read(path)
        assert len(found) == len(rows)
        for (name, text), item in zip(rows, found, strict=True):
            if text.strip():
                assert item == Document(storable(name) or item.place, text, item.place)
            else:
                assert item.reason == "empty"


class TestProgress:
    def test_bytes_of_all_files_are_counted_as_they_lie_on_disk(self, tmp_path):
        write(tmp_path / "a.txt", "text")
        write(tmp_path / "b.jsonl.gz", gzip.compress(b'{"text": "a"}\n' * 1000))
        write(tmp_path / "c.bin", bytes(10 * SAMPLE))
        (tmp_path / "d").symlink_to("a.txt")
        reader = DocumentReader([tmp_path, tmp_path / "a.txt"])
        total = sum(path.stat().st_size for path in tmp_path.iterdir() if not path.is_symlink())
        assert (reader.bytes_done, reader.bytes_total) == (0, total)
        done = [reader.bytes_done for _ in reader]
        assert done == sorted(done)
        assert done[0] == 4
        assert reader.bytes_done == total

    def test_it_moves_while_a_file_is_read(self, tmp_path):
        path = write(tmp_path / "a.jsonl", b'{"text": "a"}\n' * 100_000)
        reader = DocumentReader([path])
        halves = [reader.bytes_done < reader.bytes_total / 2 for _ in reader]
        assert 40_000 < sum(halves) < 60_000

    def test_nobody_knows_how_much_stands_in_a_pipe(self, tmp_path):
        write(tmp_path / "a", "text")
        reader = DocumentReader([tmp_path, "-"], stdin=io.BytesIO(b'{"text": "a"}'))
        assert reader.bytes_total is None
        assert len(list(reader)) == 2
        assert reader.bytes_done == 4 + 13

    def test_memory_does_not_grow_with_the_file(self, tmp_path):
        lines = (json.dumps({"text": "word " * 200}) + "\n").encode() * 10_000
        table = b"text\n" + (b"word " * 200 + b"\n") * 10_000
        write(tmp_path / "a.jsonl.gz", gzip.compress(lines, 1))
        write(tmp_path / "b.csv", table)
        reader = DocumentReader([tmp_path])
        tracemalloc.start()
        try:
            assert sum(1 for _ in reader) == 20_000
            assert tracemalloc.get_traced_memory()[1] < 3_000_000
        finally:
            tracemalloc.stop()
