"""Documents in files of every format, and what becomes of the files that hold none."""

import codecs
import contextlib
import gzip
import io
import json
import marshal
import pickle
import re
import sqlite3
import struct
import zipfile
import zlib
from pathlib import Path

import pytest
from reading import COMPRESSORS, from_stdin, one_skip, read, skips, texts, write

from simsql.documents.decoding import SAMPLE
from simsql.documents.readers import Document


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
        assert twice.reason == "archive"
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

    @pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "utf-16-le", "utf-8-sig"])
    def test_a_byte_order_mark_overrules_the_encoding_that_was_asked_for(self, tmp_path, encoding):
        write(tmp_path / "a", codecs.BOM_UTF8 + "naïve".encode())
        write(tmp_path / "b.csv", codecs.BOM_UTF8 + "text\nfaçade\n".encode())
        write(tmp_path / "c", "étude".encode("utf-16"))
        assert texts(tmp_path, encoding=encoding) == ["naïve", "façade", "étude"]

    def test_an_encoding_of_many_bytes(self, tmp_path):
        text = "日本語のテキスト。\n" * 5000
        assert texts(write(tmp_path / "a", text.encode("shift_jis")), encoding="shift_jis") == [text]
        assert one_skip(tmp_path / "a").reason == "not utf-8"

    def test_where_decoding_fails(self, tmp_path):
        skip = one_skip(write(tmp_path / "a", b"na\xefve text"))
        assert skip.reason == "not utf-8"
        assert skip.detail.startswith("byte 2 is not utf-8: the file is damaged or in another encoding")
        assert skip.detail.endswith("; --encoding detect guesses it, --encoding NAME sets it")
        assert "byte 5 " in one_skip(write(tmp_path / "a", codecs.BOM_UTF8 + b"na\xefve text")).detail

    @pytest.mark.parametrize(
        "content",
        [
            '{"text": "a"}',
            '{\n  "text": "a",\n  "more": [\n{"text": "b"}]\n}\n',
            '[{"key": "text", "value": "a"}, {"text": "b"}]',
            '["text", {"text": "a"}]',
            '[{"role": "user"',
            "[]",
            '"text"\n{"text": "a"}',
            '{"key": 1}\n{"key": 2}',
            "[{" * 100_000,
            "not JSON",
        ],
    )
    def test_other_json_is_a_text(self, tmp_path, content):
        assert texts(write(tmp_path / "a.json", content)) == [content]

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

    @pytest.mark.parametrize(
        ("encoding", "text"),
        [
            ("cp1252", "Le cœur a ses raisons que la raison ne connaît point ; « voilà », dit-il."),
            ("iso8859-2", "Zażółć gęślą jaźń. W Szczebrzeszynie chrząszcz brzmi w trzcinie."),
            ("cp1250", "Příliš žluťoučký kůň úpěl ďábelské ódy. Všichni lidé rodí se svobodní."),
            ("cp1251", "Все счастливые семьи похожи друг на друга."),
            ("koi8-r", "Все счастливые семьи похожи друг на друга."),
            ("cp1253", "Όλοι οι άνθρωποι γεννιούνται ελεύθεροι και ίσοι στην αξιοπρέπεια."),
            ("cp1254", "Bütün insanlar hür, haysiyet ve haklar bakımından eşit doğarlar."),
            ("cp1255", "כל בני האדם נולדו בני חורין ושווים בערכם ובזכויותיהם."),
            ("cp1256", "يولد جميع الناس أحرارا متساوين في الكرامة والحقوق."),
            ("cp932", "すべての人間は、生まれながらにして自由であり、かつ、尊厳と権利とについて平等である。"),
            ("euc_jp", "すべての人間は、生まれながらにして自由であり、かつ、尊厳と権利とについて平等である。"),
            ("gb18030", "人人生而自由,在尊严和权利上一律平等。他们赋有理性和良心。"),
            ("big5", "人人生而自由,在尊嚴和權利上一律平等。他們賦有理性和良心。"),
            ("cp949", "모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다."),
        ],
    )
    def test_a_guess_at_the_encoding_is_told(self, tmp_path, encoding, text):
        path = write(tmp_path / "a", text.encode(encoding))
        detail = one_skip(path).detail
        guesses = re.search(r"perhaps (.*?);", detail)[1].split(" or ")
        assert text in {texts(path, encoding=guess)[0] for guess in guesses}
        assert detail.endswith("; --encoding detect guesses it, --encoding NAME sets it")
        (read_by_it,) = read(path, encoding="detect")
        assert (read_by_it.guess, read_by_it.text) == (guesses[0], texts(path, encoding=guesses[0])[0])

    @pytest.mark.parametrize(
        "data",
        [
            "Все счастливые семьи похожи друг на друга.".encode() + b"\xd0 and the rest",  # damaged
            "Привет, как дела? Всё хорошо, спасибо. А у вас?".encode("cp866"),  # letters would be symbols
            "Все люди рождаются свободными и равными в своём достоинстве и правах. ".encode("cp866") * 20,
            "人人生而自由,在尊严和权利上一律平等。".encode("utf-16-le"),
        ],
    )
    def test_a_guess_that_could_lose_words_is_refused(self, tmp_path, data):
        path = write(tmp_path / "a", data)
        assert "--encoding detect" not in one_skip(path).detail
        assert one_skip(path, encoding="detect") == one_skip(path)

    def test_detect_leaves_utf8_and_marks_alone(self, tmp_path):
        cut = "x" * (SAMPLE - 9) + " eight 𝄞"
        content = [cut, "façade", codecs.BOM_UTF8 + b"na\xc3\xafve", "étude".encode("utf-16"), "ascii"]
        for number, data in enumerate(content):
            write(tmp_path / str(number), data)
        found = list(read(tmp_path, encoding="detect"))
        assert [(item.text, item.guess) for item in found] == [
            (text, None) for text in (cut, "façade", "naïve", "étude", "ascii")
        ]

    def test_what_tells_the_encoding_may_come_late(self, tmp_path):
        text = "ascii\n" * 20_000 + "Все счастливые семьи похожи друг на друга. " * 9
        assert texts(write(tmp_path / "a", text.encode("cp1251")), encoding="detect") == [text]

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


def zipped(name):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr(name, "text " * 1000)
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
            "zip": zipped("a.txt"),
            "docx": zipped("[Content_Types].xml"),
            "parquet": b"PAR1" + bytes(50) + b"PAR1",
            "random": bytes((i * i * 31 + i // 7 * 101) % 256 for i in range(5000)),
            "random.csv": bytes((i * i * 31 + i // 7 * 101) % 256 for i in range(5000)),
        }
        for name, data in made.items():
            write(folder / name, data)
        found = {Path(item.place).name: item for item in read(folder, encoding=encoding)}
        if encoding == "latin-1":
            del found["random.csv"]
        reasons = {name: getattr(item, "reason", "read") for name, item in found.items()}
        expected = {
            **dict.fromkeys(found, "binary"),
            **{"png": "image", "sqlite": "database", "tar": "archive", "tar.gz": "archive", "pdf": "PDF"},
            **{"executable": "program", "docx": "office document", "zip": "archive", "parquet": "Parquet"},
        }
        assert reasons == expected

    @pytest.mark.parametrize("name", ["a", "a.csv", "a.jsonl"])
    def test_a_pdf_without_nul_bytes(self, tmp_path, name):
        pdf = b"%PDF-1.4\n%\xe2\xe3\xcf\xd3\n1 0 obj <</Type /Catalog>> endobj\ntrailer\n" * 100
        assert one_skip(write(tmp_path / name, pdf)).reason == "PDF"

    def test_a_compression_that_is_not_read(self, tmp_path):
        assert one_skip(write(tmp_path / "a.lz4", b"\x04\x22\x4d\x18 some text")).reason == "archive"

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
            ('{"n": ' + "[" * 500 + "]" * 500 + ', "text": "a"}', "not JSON", "too deep"),
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

    def test_brackets_that_are_not_deep(self):
        brackets = "[" * 600 + '\\"' + "{" * 600
        row = '{"text": "' + brackets + '", "n": ' + "[" * 498 + "[], []" + "]" * 498 + "}"
        (found,) = from_stdin(row.encode())
        assert found.text == json.loads(row)["text"]

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


@pytest.mark.parametrize(
    ("name", "start", "end"),
    [("a.jsonl", '{"text": "', '"}\n{"text": "next"}\n'), ("a.csv", 'text\n"', '"\nnext\n')],
)
def test_a_record_of_20_megabytes(tmp_path, name, start, end):
    path = write(tmp_path / name, start + "a text, " * 20 * 131_072 + end)
    long, after = texts(path, max_document=1 << 30)
    assert (len(long), after) == (20 * 8 * 131_072, "next")


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

    @pytest.mark.parametrize(
        ("header", "option"), [("id,text,text", "--text-field"), ("id,id,text", "--id-field")]
    )
    def test_a_header_that_names_a_column_twice(self, tmp_path, header, option):
        [skip] = self.read(tmp_path, f"{header}\n1,one,two\n")
        assert (skip.place, skip.reason) == (str(self.path), "ambiguous field")
        assert option in skip.detail

    def test_other_columns_may_have_any_names(self, tmp_path):
        assert [found.text for found in self.read(tmp_path, "text,,,x,x\na,b,c,d,e\n")] == ["a"]

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
