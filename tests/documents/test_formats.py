"""What formats do with single files; `test_round_trip` generates others."""

import codecs
import gzip
import io
import json
import marshal
import pickle
import struct
import tarfile
import zipfile
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from reading import COMPRESSORS, from_stdin, one_skip, read, skips, texts, write

from simsql.documents.decoding import SAMPLE, UnfitError
from simsql.documents.document import Layout
from simsql.documents.readers import Document
from simsql.documents.records import spell_fingerprint


@pytest.mark.parametrize("ending", COMPRESSORS)
def test_every_format_may_be_compressed(tmp_path, ending):
    pack = COMPRESSORS[ending]
    write(tmp_path / f"b.CSV{ending}", pack(b"text\ncsv\n"))
    write(tmp_path / "d", pack(b"without the ") + pack(b"ending"))
    write(tmp_path / f"e{ending}", b"the ending alone")
    write(tmp_path / f"f{ending}", pack(pack(b"twice")))
    write(tmp_path / f"g{ending}", pack(b""))
    *documents, twice, empty = read(tmp_path)
    assert [document.text for document in documents] == ["csv", "without the ending", "the ending alone"]
    assert (twice.reason, empty.reason) == ("archive", "empty")


def tar():
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.add(__file__, "inside.txt")
    return packed.getvalue()


def zipped(name):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr(name, "text " * 1000)
    return packed.getvalue()


RANDOM = bytes((i * i * 31 + i // 7 * 101) % 256 for i in range(5000))
OTHERS = [
    (codecs.BOM_UTF8, "empty"),
    (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "image"),
    (b"\0\0\0\x18ftyphevc\0\0\0\0mif1", "image"),
    (b"\0\0\0\x0cJXL \r\n\x87\n", "image"),
    (tar(), "archive"),
    (gzip.compress(tar()), "archive"),
    (b"\x04\x22\x4d\x18 some text", "archive"),
    (zipped("a.txt"), "archive"),
    (zipped("[Content_Types].xml"), "office document"),
    (b"%PDF-1.4\n1 0 obj <</Type /Catalog>> endobj\ntrailer", "PDF"),
    (b"PAR1" + bytes(50) + b"PAR1", "Parquet"),
    (b"SQLite format 3\0" + bytes(100), "binary"),
    (pickle.dumps({"numbers": list(range(300)), "pi": 3.14}), "binary"),
    (marshal.dumps(compile("def f(x): return x + 1", "f", "exec")), "binary"),
    (struct.pack("<100d", *(1 / (i + 1) for i in range(100))), "binary"),
    (Path("/proc/self/exe").read_bytes()[: 4 * SAMPLE], "binary"),
    (RANDOM, "binary"),
    (b"texts\0\0\0\0", "binary"),
    (("plain words\n" * 100).encode("utf-16-le"), "UTF-16"),
]


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_files_that_are_no_text(tmp_path, encoding):
    for number, (data, reason) in enumerate(OTHERS):
        assert one_skip(write(tmp_path / str(number), data), encoding=encoding).reason == reason
    pdf = b"%PDF-1.4\n%\xe2\xe3\xcf\xd3\n1 0 obj <</Type /Catalog>> endobj\ntrailer\n" * 100
    for name in ("a.csv", "a.jsonl"):
        assert one_skip(write(tmp_path / name, pdf)).reason == "PDF"
    assert one_skip(write(tmp_path / "random.csv", RANDOM)).reason == "binary"


@pytest.mark.parametrize("name", ["sparse", "sparse.jsonl", "sparse.csv"])
def test_a_binary_file_is_not_read_to_its_end(tmp_path, name):
    path = tmp_path / name
    with path.open("wb") as file:
        file.truncate(1 << 40)
    assert one_skip(path).reason == "binary"


def test_texts_that_look_odd(tmp_path):
    for text in ("Zeile\r\nमें\x00\x1b[1m\f𝄞\u2028", "texts\0\0", *("x" * n + "𝄞" * SAMPLE for n in range(4))):
        assert texts(write(tmp_path / "a", text)) == [text]


@pytest.mark.parametrize(
    ("data", "byte"),
    [
        (b"na\xefve text", 2),
        (codecs.BOM_UTF8 + b"na\xefve text", 5),
        (b"text " * SAMPLE + b"\xff", 5 * SAMPLE),
        ("text 𝄞".encode()[:-1], 5),
    ],
)
def test_where_decoding_fails(tmp_path, data, byte):
    skip = one_skip(write(tmp_path / "a", data))
    assert skip.reason == "not utf-8"
    assert skip.detail.startswith(f"byte {byte} is not utf-8: the file is damaged or in another encoding; ")


def test_utf16_that_is_cut_off(tmp_path):
    assert one_skip(write(tmp_path / "a", "text".encode("utf-16") + b"x")).reason == "not utf-16"
    first, second, skip = from_stdin('\ufeff{"text": "a"}\n{"text": "b"}\n'.encode("utf-16-le") + b"x")
    assert (first.text, second.text) == ("a", "b")
    assert (skip.place, skip.reason) == ("stdin", "corrupt")
    assert skip.detail.startswith("line 3: the file ends within a character")


def test_encodings_without_error_handlers(tmp_path):
    write(tmp_path / "a.jsonl", b'{"text": "\xff"}\n')
    write(tmp_path / "b.txt", b"a\xff")
    assert {skip.reason for skip in skips(tmp_path, encoding="idna")} == {"not idna"}
    skip = one_skip(write(tmp_path / "a.jsonl", b"hi-abc\n"), encoding="punycode")
    assert (skip.reason, skip.detail.isprintable()) == ("not punycode", True)


@pytest.mark.parametrize(
    "content",
    [
        '{"version": 2, "tasks": [{"label": "a"}], "options": {"shell": {"executable": "/bin/a/long/path"}}}',
        '{"de": {"yes": "ja", "no": "nein"}, "fr": {"yes": "oui", "no": "non"}}',
        '["text", {"text": "a"}]',
        "[]",
        '{"key": 1}',
        "not JSON",
    ],
)
def test_other_json_is_a_text(tmp_path, content):
    assert texts(write(tmp_path / "a.json", content)) == [content]


LANGUAGES = [
    ("cp1252", "Le cœur a ses raisons que la raison ne connaît point ; « voilà », dit-il."),
    ("cp1252 iso8859-1", "Mañana el niño comerá una manzana; ¿quién se la enseñó a la señora?"),
    ("cp1252 iso8859-1", "Não há pão na estação, e os irmãos de João estão à espera da manhã."),
    ("cp1252 iso8859-1", "Perché la città è così bella? Lunedì andrò al caffè con un po' di virtù."),
    ("cp1252 iso8859-1", "La il·lusió d'una nació és això: una cançó que ningú no oblidarà."),
    ("cp1252 iso8859-1", "Der Bäcker öffnet früh, und die Straße ist noch müde."),
    ("cp1252 iso8859-1", "Får får får? Nej, får får inte får, får får lamm; och det är så."),
    ("cp1252 iso8859-1", "Rødgrød med fløde på en båd er æblegrød for dem der ikke tør spørge."),
    ("cp1252 iso8859-1", "Það er alltaf gott veður þegar sólin skín á bæinn og fjörðinn."),
    ("cp1252", "The “quick” fox’s tail – 25 € – was seen in a café…"),
    ("cp1250 iso8859-2", "Zażółć gęślą jaźń. W Szczebrzeszynie chrząszcz brzmi w trzcinie."),
    ("cp1250 iso8859-2", "Příliš žluťoučký kůň úpěl ďábelské ódy, a nikdo se nebál."),
    ("cp1250 iso8859-2", "Vsak človek je na poti, in ne more se ustaviti."),
    ("cp1250 iso8859-2", "Kŕdeľ šťastných ďatľov učí pri ústí Váhu mĺkveho koňa."),
    ("cp1250 iso8859-2", "Az őr hűvös udvaron várja, hogy megjöjjön a tűzoltó, és nem fázik."),
    ("cp1250 iso8859-2", "Şi a plecat în ţară, că nu mai putea să stea la oraş fără părinţi."),
    (
        "cp1250 iso8859-2",
        "Ljudi su čekali da se vrata otvore, ali ključ je bio u džepu koji više niko nije našao.",
    ),
    ("cp1254", "Çocuklar bahçede şarkı söyledi ve ağacın altında güneşin batışını izledi."),
    ("cp1257", "Žąsys skrido per ežerą, kad pavasarį būtų namuose, ir nešė šilumą."),
    ("cp1251 koi8-r", "Все счастливые семьи похожи друг на друга."),
    ("cp1251 koi8-u", "Кожна людина має право на життя, свободу і безпеку; її ніхто не питає."),
    ("cp1253", "Όλοι οι άνθρωποι γεννιούνται ελεύθεροι και ίσοι στην αξιοπρέπεια."),
    ("cp1255", "כל בני האדם נולדו בני חורין ושווים בערכם ובזכויותיהם."),
    ("cp1256 iso8859-6", "يولد جميع الناس أحرارا متساوين في الكرامة والحقوق."),
    ("cp874", "เด็กๆ กินข้าวเช้าที่บ้านของคุณยาย แล้วไปโรงเรียนด้วยกันทุกวัน"),
    ("cp932 euc_jp", "すべての人間は、生まれながらにして自由であり、かつ、尊厳と権利とについて平等である。"),
    ("gb18030", "人人生而自由,在尊严和权利上一律平等。他们赋有理性和良心。"),
    ("big5", "人人生而自由,在尊嚴和權利上一律平等。他們賦有理性和良心。"),
    ("cp949", "모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다."),
]


@pytest.mark.parametrize(
    ("encoding", "text"), [(encoding, text) for encodings, text in LANGUAGES for encoding in encodings.split()]
)
def test_encodings_are_guessed(tmp_path, encoding, text):
    path = write(tmp_path / "a", text.encode(encoding))
    assert one_skip(path).detail.endswith("; --encoding detect guesses it, --encoding NAME sets it")
    (found,) = read(path, encoding="detect")
    assert (found.text, bool(found.guess)) == (text, True)


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf16_without_a_mark(tmp_path, encoding):
    path = write(tmp_path / "b.jsonl", '{"text": "Straße"}\n'.encode(encoding))
    assert texts(path, encoding="detect") == ["Straße"]
    for _, text in LANGUAGES:
        path = write(tmp_path / "a", (text.replace(" ", " \r\n") + ",").encode(encoding))
        skip = one_skip(path)
        assert (skip.reason, skip.detail.rpartition(": ")[2]) == (
            "UTF-16",
            f"read it with --encoding {encoding} or detect",
        )
        (found,) = read(path, encoding="detect")
        assert (found.text, found.guess) == (text.replace(" ", " \r\n") + ",", encoding)


@pytest.mark.parametrize(
    "start",
    [
        '<!DOCTYPE html>\n<meta charset="iso-8859-5"><p>',
        "\n<html><meta http-equiv=Content-Type content='text/html; charset=ISO-8859-5'><p>",
        '<?xml version="1.0" encoding="iso-8859-5"?><p>',
        'From: a@example.com\nContent-Type: text/plain;\n charset="ISO-8859-5"\n\n',
        "Subject: parts\r\nContent-Type: multipart/mixed; boundary=x\r\n\r\n--x\r\n"
        "Content-Type: text/plain; charset=iso-8859-5\r\n\r\n",
    ],
)
def test_a_declared_encoding_is_used(tmp_path, start):
    body = "Все люди рождаются свободными."
    path = write(tmp_path / "a.html", (start + body).encode("iso8859-5"))
    (found,) = read(path, encoding="detect")
    assert (found.text, found.guess) == (start + body, "iso8859-5")
    for wrong in (
        "utf-8",
        "utf-16",
        "us-ascii",
        "base64",
        "nonsense",
    ):  # the text is not in them, so it is guessed
        declared = start.lower().replace("iso-8859-5", wrong) + LANGUAGES[1][1]
        assert texts(write(tmp_path / "b.html", declared.encode("cp1252")), encoding="detect") == [declared]
    japanese = start.replace("iso-8859-5", "iso-2022-jp") + LANGUAGES[-4][1]
    if japanese.startswith("<"):
        (part,) = read(path, encoding="detect", main_content=True)
        assert (part.text, part.guess) == (body, "iso8859-5")
        assert texts(write(tmp_path / "c", japanese.encode("iso2022_jp")), encoding="detect") == [japanese]


def test_a_page_that_declares_nothing_is_guessed(tmp_path):
    path = write(tmp_path / "a.html", f"<p>{LANGUAGES[10][1]}</p>".encode("cp1250"))
    (found,) = read(path, encoding="detect", main_content=True)
    assert (found.text, found.guess) == (LANGUAGES[10][1], "cp1250")
    assert texts(path, main_content=True) != [found.text]  # as in a browser


@pytest.mark.parametrize(
    "data",
    [
        "Все счастливые семьи похожи друг на друга.".encode() + b"\xd0 and the rest",  # damaged
        "Привет, как дела? Всё хорошо, спасибо. А у вас?".encode("cp866"),  # letters would be symbols
        "Все люди рождаются свободными и равными в своём достоинстве и правах. ".encode("cp866") * 20,
        "Mädchen hören die Glöckchen früh, und für Väter ist das schön.".encode("cp850"),
        "Les élèves étaient là, près de la forêt, où l'été était déjà passé.".encode("mac_roman"),
        "누구나 자유롭게 말할 수 있고 서로를 존중해야 한다.".encode("johab"),
        "Ein Datum für die Daten".encode("cp850"),  # with a mark in cp932
        "Für Bücher genügt die Mühe.".encode("cp850"),  # a letter in cp1251
        "Этот способ можно использовать всегда, но в таком случае все ваши файлы ".encode("iso8859_5") * 4,
        b"caf\xe9 abc\0def ghi\0" * 9,
        b"na\xefve " + b"words \0and more " * 60,
        struct.pack("<200h", *(number * 37 % 3000 for number in range(200))),
    ],
)
def test_a_guess_that_could_lose_words_is_refused(tmp_path, data):
    path = write(tmp_path / "a", data)
    assert "--encoding detect" not in one_skip(path).detail
    assert one_skip(path, encoding="detect") == one_skip(path)


def test_detect_leaves_utf8_and_marks_alone(tmp_path):
    cut = "x" * (SAMPLE - 9) + " eight 𝄞"
    content = [cut, "façade", codecs.BOM_UTF8 + b"na\xc3\xafve", "étude".encode("utf-16"), "ascii"]
    for number, data in enumerate(content):
        write(tmp_path / str(number), data)
    found = list(read(tmp_path, encoding="detect"))
    assert [(item.text, item.guess) for item in found] == [
        (text, None) for text in (cut, "façade", "naïve", "étude", "ascii")
    ]


def test_what_tells_the_encoding_may_come_late(tmp_path):
    text = "ascii\n" * 20_000 + "Все счастливые семьи похожи друг на друга. " * 9
    assert texts(write(tmp_path / "a", text.encode("cp1251")), encoding="detect") == [text]


@pytest.mark.parametrize(
    ("line", "reason", "detail"),
    [
        ("{", "not JSON", "jq -c ."),
        ('{"text": "a" "b"}', "not JSON", "column 14: Expecting ',' delimiter"),
        ("plain text", "not JSON", "column 1"),
        ('{"text": "a"}{"text": "b"}', "not JSON", "jq -c ."),
        ("[", "not JSON", "jq -c"),
        ('[{"text": "a"}]', "not an object", "jq -c"),
        ('"text"', "not an object", "a string"),
        ("3", "not an object", "a number"),
        ("true", "not an object", "a boolean"),
        ("null", "not an object", "null"),
        ("[" * 200_000, "not JSON", "too deep"),
        ('{"id": ' + "[" * 9999 + "]" * 9999 + ', "text": "a"}', "not JSON", "too deep"),
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
def test_why_a_line_is_skipped(line, reason, detail):
    before, skip, after = from_stdin(f'{{"text": "before"}}\n{line}\n{{"text": "after"}}\n'.encode())
    assert (before.text, after.text) == ("before", "after")
    assert (skip.place, skip.reason) == ("stdin:2", reason)
    assert detail in skip.detail
    assert skip.detail.isprintable()


def test_the_fields_that_are_listed_are_bounded():
    record = {f"field\n{number}" + "x" * 100: 1 for number in range(1000)}
    [skip] = from_stdin(json.dumps(record).encode())
    assert "and 992 more" in skip.detail
    assert len(skip.detail) < 600


def test_other_fields():
    found = from_stdin(b'{"body": "a", "key": "k", "text": 1}', text_fields=("body",), id_field="key")
    assert found == [Document("k", "a", "stdin:1")]


def read_table(tmp_path, data, **options):
    return read(write(tmp_path / "a.csv", data), **options)


@pytest.mark.parametrize(("header", "option"), [("id,text,text", "--text-field"), ("id,id,text", "--id-field")])
def test_a_header_that_names_a_column_twice(tmp_path, header, option):
    [skip] = read_table(tmp_path, f"{header}\n1,one,two\n")
    assert (skip.place, skip.reason) == (f"{tmp_path}/a.csv", "ambiguous field")
    assert option in skip.detail


def test_other_columns_may_have_any_names(tmp_path):
    [found] = read_table(tmp_path, "text,id,,x,x\na\0b,i\0d,c,d,e,,\n")
    assert (found.text, found.name) == ("a\0b", "i\\x00d")


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
def test_why_a_row_is_skipped(tmp_path, row, reason):
    table = f"id,text\n1,before\n{row}\n2,after\n".encode("utf-8", "surrogateescape")
    before, skip, after = read_table(tmp_path, table)
    assert (before.text, after.text) == ("before", "after")
    assert (skip.place, skip.reason) == (f"{tmp_path}/a.csv:3", reason)


def test_a_quote_that_is_never_closed(tmp_path):
    before, skip = read_table(tmp_path, 'id,text\n1,before\n2,"open\n3,swallowed\n')
    assert before.text == "before"
    assert (skip.place, skip.reason, skip.line) == (f"{tmp_path}/a.csv", "corrupt", None)
    assert skip.detail.startswith("line 3: a quote is never closed: 2 lines are lost")


def test_a_bad_header(tmp_path):
    for header, reason in (
        (b'"text" x\n', "not CSV"),
        (b"t\xffext\n", "not utf-8"),
        (b"\n\n", "empty"),
        (b"id;body\n", "no field"),
    ):
        [skip] = read_table(tmp_path, header + b"1,a\n" * (reason != "empty"))
        assert (skip.place, skip.reason) == (f"{tmp_path}/a.csv", reason)


@given(number=st.integers(0, 2**64 - 1), prefix=st.sampled_from(["", "0x", "0X"]), form=st.sampled_from("xX"))
def test_hashes_without_leading_zeros_are_read_where_they_are_said_to_be(number, prefix, form):
    spelled = prefix + format(number, form)
    assert spell_fingerprint(spelled, Layout(fingerprints="hex")) == f"{number:016x}"
    if number >= 2**60:
        assert spell_fingerprint(spelled, Layout(fingerprints="padded")) == f"{number:016x}"
    else:  # it could be a decimal, or cut off
        with pytest.raises(UnfitError, match="16 hexadecimal digits; --fingerprint-field NAME=hex"):
            spell_fingerprint(spelled, Layout(fingerprints="padded"))


@given(text=st.text(alphabet="0123456789abcdefxg+-_. \u0663\uff11", max_size=20))
@example("")
@example("0x")
@example("-1")
@example("1_0")
@example("12345678901234567")
def test_no_other_string_is_an_unpadded_hash(text):
    digits = text.removeprefix("0x")
    if 1 <= len(digits) <= 16 and set(digits) <= set("0123456789abcdef"):
        return
    with pytest.raises(UnfitError, match="expected 64 bits: 1 to 16 hexadecimal digits"):
        spell_fingerprint(text, Layout(fingerprints="hex"))


def test_lines_as_people_have_them(tmp_path):
    """Control characters in strings, lines cut out of an array, and files with byte order marks put together."""
    content = '\ufeff{"text": "raw\ttab"},\n\ufeff{"text": "b\x01"}\n{"text": "c"},\n'
    assert texts(write(tmp_path / "a.jsonlines", content.encode())) == ["raw\ttab", "b\x01", "c"]


def test_a_header_that_is_repeated_is_no_document(tmp_path):
    header = "id,text\n"
    data = header + "1,a\n" + header + "2,b\n\ufeff" + header + "3,text\n"
    path = write(tmp_path / "a.csv", data.encode())
    assert [(skip.place, skip.reason) for skip in skips(path)] == [
        (f"{path}:{line}", "repeated header") for line in (3, 5)
    ]
    assert [item.text for item in read(path) if isinstance(item, Document)] == ["a", "b", "text"]
    assert texts(write(tmp_path / "b.csv", b"text\ntext\n")) == ["text"]  # the only column may hold the word
    assert texts(path, header=False, text_fields=("2",)) == [
        "text",
        "a",
        "text",
        "b",
        "text",
        "text",
    ]
