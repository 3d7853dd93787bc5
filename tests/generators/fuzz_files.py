"""Bad files: what is read of them equals what simple readers read, or is skipped by name."""

import bz2
import codecs
import csv
import gzip
import io
import json
import lzma
import pickle
import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, NamedTuple
from unittest import mock

import pillow_heif
import pyarrow as arrow
from fuzzing import Target, in_folder, mutate
from PIL import Image
from pyarrow import parquet
from reading import COMPRESSORS

from simsql.documents import Document, DocumentReader, Layout, Skip, document, parts
from simsql.documents.compression import zstd
from simsql.errors import SimsqlError
from simsql.evaluate.labels import read_labels
from simsql.fingerprint import Recipe, simhash

# Simple readers

MARK = "\udcff"
codecs.register_error("fuzz.mark", lambda error: (MARK, error.end))
_MARKS = [
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
]
_DEEPEST = 500


class Expected(NamedTuple):
    """What is in a file: the text at each line, or None where nothing can be read; or either."""

    texts: dict[int | None, str | None]
    unsure: set[int | None] = set()  # noqa: RUF012 - never changed


def encoding_of(data: bytes, encoding: str) -> str:
    return next((name for mark, name in _MARKS if data.startswith(mark)), encoding)


def expect_text(data: bytes, encoding: str) -> Expected:
    try:
        text = data.decode(encoding_of(data, encoding))
    except UnicodeDecodeError:
        return Expected({None: None})
    return Expected({None: text if text.strip() else None})


def expect_lines(data: bytes, encoding: str) -> Expected:
    lines = data.decode(encoding_of(data, encoding), "fuzz.mark").split("\n")
    if not lines[-1]:
        lines.pop()
    return Expected({n: None if MARK in line else line.removesuffix("\r") for n, line in enumerate(lines, 1)})


def expect_json_lines(data: bytes, encoding: str) -> Expected:
    found, unsure = {}, set()
    for number, line in expect_lines(data, encoding).texts.items():
        if line is None or line.strip():
            found[number], is_unsure = _text_of(line)
            unsure |= {number} if is_unsure else set()
    return Expected(found, unsure)


def _text_of(line: str | None) -> tuple[str | None, bool]:
    is_deep = line is not None and line.count("[") + line.count("{") > _DEEPEST
    try:
        record = json.loads((line or "").lstrip("\ufeff").removesuffix(","), strict=False)
    except (ValueError, RecursionError):
        return None, is_deep
    text = record.get("text") if isinstance(record, dict) else None
    return text if isinstance(text, str) and text.strip() else None, is_deep


def expect_array(data: bytes, encoding: str) -> Expected | None:
    """None if it is no valid array of records."""
    try:
        found = json.loads(data.decode(encoding_of(data, encoding)))
    except (ValueError, RecursionError):
        return None
    if not (isinstance(found, list) and found and isinstance(found[0], dict) and "text" in found[0]):
        return expect_text(data, encoding)
    texts = (_text_of(json.dumps(each)) for each in found)
    return Expected(
        {n: text for n, (text, _) in enumerate(texts, 1)},
        set(range(len(found) + 1)) if b"[" * 400 in data else set(),
    )


def expect_table(data: bytes, encoding: str, delimiter: str = ",") -> Expected:
    text = data.decode(encoding_of(data, encoding), "fuzz.mark")
    lines = re.findall(r"[^\r\n]*(?:\r\n|\n|\r)|[^\r\n]+$", text)
    csv.field_size_limit(1 << 60)
    rows = csv.reader(lines, delimiter=delimiter, strict=True)
    header: list[str] = []
    found: dict[int | None, str | None] = {}
    while True:
        number = rows.line_num + 1
        try:
            row = next(rows)
        except StopIteration:
            return Expected(found if header else {None: None})
        except csv.Error:
            if not header:
                return Expected({None: None})
            found[number] = None
            continue
        if not row:
            continue
        if not header:
            header = row
            names = [header.count(name) for name in ("text", "id")]
            if names[0] != 1 or names[1] > 1 or any(MARK in name for name in header):
                return Expected({None: None})
            continue
        fits = len(row) >= len(header) and not any(row[len(header) :]) and not any(MARK in each for each in row)
        is_header = [row[0].lstrip("\ufeff"), *row[1:]] == header and len(row) > 1
        cell = row[header.index("text")] if fits and not is_header else ""
        found[number] = cell if cell.strip() else None


Read = Callable[[bytes, str], Expected | None]
READERS: dict[str, Read] = {
    ".jsonl": expect_json_lines,
    ".ndjson": expect_json_lines,
    ".json": expect_array,
    ".csv": expect_table,
    ".tsv": partial(expect_table, delimiter="\t"),
    ".txt": expect_text,
    ".lines": expect_lines,
}

# Files

WORDS = ["some", "words", "é", "語", "naïve", "a,b", 'say "it"', "two\nlines", "\u2028", "\x85", "😀", "x" * 300]
ENCODINGS = ["utf-8"] * 6 + [
    "utf-16",
    "utf-32",
    "cp1252",
    "gbk",
    "utf-8-sig",
    "shift_jis",
    "utf-16-le",
    "latin-1",
    "utf-7",
]


def make_records(random: Random) -> list[dict[str, Any]]:
    return [
        {
            "id": random.choice([number, f"n{number}", None, 1.5, ["a"], ""]),
            "text": " ".join(random.choices(WORDS, k=random.choice((0, 1, 3, 8)))),
            "value": random.choice([1, "b", None]),
        }
        for number in range(random.choice((0, 1, 2, 5, 20)))
    ]


def make_file(random: Random, ending: str) -> str:
    records = make_records(random)
    match ending:
        case ".jsonl" | ".ndjson":
            ascii_only = random.random() < 0.5
            return "".join(
                json.dumps(each, ensure_ascii=ascii_only) + random.choice(("\n", "\r\n", "\n\n"))
                for each in records
            )
        case ".json":
            return json.dumps(records, indent=random.choice((None, 0, 2)))
        case ".csv" | ".tsv":
            file = io.StringIO()
            end = random.choice(("\n", "\r\n", "\r"))
            rows = csv.writer(file, delimiter="," if ending == ".csv" else "\t", lineterminator=end)
            rows.writerow(["id", "text", "value"])
            rows.writerows([*each.values()] for each in records)
            return file.getvalue()
    return "\n".join(each["text"] for each in records)


def plain_items(items: list[Document | Skip]) -> list[object]:
    return [item._replace(status=None) if isinstance(item, Document) else item for item in items]


def read_both(path: Path, layout: Layout, *, lines: bool = False, size: int = 1 << 21) -> list[Document | Skip]:
    """What is read, from the beginning, and in parts of a size as other processes would."""
    reader = DocumentReader([path], replace(layout, lines=lines))
    found = list(reader)
    with mock.patch.object(parts, "PART", size), mock.patch.object(document, "_FILE", 1):
        items = [item for part in list(reader.parts()) for item in pickle.loads(pickle.dumps(part)).read()]
    assert plain_items(items) == plain_items(found), "parts differ"
    for item in found:
        shown = (item.place, item.reason, item.detail) if isinstance(item, Skip) else (item.place,)
        assert all(each.isprintable() for each in shown), shown
        if isinstance(item, Document):
            item.name.encode()
            assert "\0" not in item.name
    return found


def is_odd(data: bytes) -> bool:
    """Whether a file may be taken for one of another kind than text."""
    return bool(re.search(rb"[\0-\x07\x0e-\x1a\x1c-\x1f\x7f]", data)) or bool(
        re.match(rb"%PDF-|PK|\x1f|BZh|7z|Rar!|\x28\xb5|LZIP|\xfd7z|\x04\x22|\x7fELF|MSCF", data)
        or data[257:262] == b"ustar"
    )


def check(found: list[Document | Skip], expected: Expected | None, data: bytes) -> bool:
    """Compare; return whether there are documents."""
    documents = [item for item in found if isinstance(item, Document)]
    refused = [item for item in found if isinstance(item, Skip) and item.line is None]
    if not found:
        assert expected is None or not any(expected.texts.values()), "nothing was read, and nothing skipped"
        return False
    if refused and not documents:
        usual = expected is not None and not any(expected.texts.values())
        reason = refused[0].reason
        assert (
            usual
            or expected is None
            or reason in ("empty", "not utf-16", "records")
            or is_odd(data)
            or not _decodes(data)
        ), refused
        return False
    if expected is None:
        return bool(documents)
    got = {item.line: item.text if isinstance(item, Document) else None for item in found if item not in refused}
    for line in sorted(expected.texts.keys() | got.keys(), key=lambda line: line or 0):
        # Damage that costs several lines is one skip.
        if line in expected.unsure or (refused and line not in got and expected.texts[line] is None):
            continue
        assert line in got, f"line {line} is missing: {expected.texts[line]!r:.200}"
        assert line in expected.texts, f"line {line} is not there: {got[line]!r:.200}"
        assert got[line] == expected.texts[line], (
            f"line {line}: {got[line]!r:.200}, not {expected.texts[line]!r:.200}"
        )
    return bool(documents)


def _decodes(data: bytes) -> bool:
    try:
        data[: 1 << 16].decode()
    except UnicodeDecodeError:
        return False
    return True


def try_records(folder: Path, random: Random) -> bool:
    ending = random.choice(list(READERS))
    encoding = random.choice(ENCODINGS)
    data = make_file(random, ending).encode(encoding, "replace")
    data = mutate(random, data, [make_file(random, each).encode() for each in READERS])
    path = folder / f"a{'.txt' if ending == '.lines' else ending}"
    path.write_bytes(data)
    limit = random.choice((1 << 24, 1 << 24, 1 << 24, 1000, 30))
    layout = Layout(encoding=encoding, max_document=limit, value_fields=random.choice(((), ("value",))))
    found = read_both(path, layout, lines=ending == ".lines", size=random.choice((1, 7, 50, 1 << 21)))
    if limit < 1 << 24 or encoding in ("utf-7",):
        return any(isinstance(item, Document) for item in found)
    expected = READERS[ending](data, encoding)
    return check(found, expected, data)


def _try_detect(folder: Path, random: Random) -> bool:
    """An encoding is guessed: UTF-8 is never taken for another one, and a guess decodes all or skips."""
    ending = random.choice((".txt", ".jsonl", ".csv", ".json"))
    text = random.choice(_LANGUAGES) * random.choice((1, 1, 5, 300))
    encodings = "utf-8 cp1252 cp1251 koi8-r cp874 gbk shift_jis big5 euc-kr utf-16 utf-16-le utf-16-be"
    encoding = random.choice(encodings.split())
    content = text
    if ending in (".jsonl", ".json"):
        content = "".join(json.dumps({"text": each}, ensure_ascii=False) + "\n" for each in text.split(". "))
    elif ending == ".csv":
        content = "text\n" + "".join(f'"{each}"\n' for each in text.split(". "))
    data = mutate(random, content.encode(encoding, "replace"), [each.encode() for each in _LANGUAGES])
    path = folder / f"a{ending}"
    path.write_bytes(data)
    found = read_both(path, Layout(encoding="detect"))
    documents = [item for item in found if isinstance(item, Document)]
    guesses = {item.guess for item in documents if item.guess}
    if _decodes_all(data) and b"\0" not in data:
        assert not guesses, f"UTF-8 was taken for {guesses}"
    used = next(iter(guesses), "utf-8")
    if documents and ending != ".json":
        check(found, READERS[ending](data, used), data)
    return bool(documents)


def _decodes_all(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


_LANGUAGES = [
    "Der Fluß fließt über die Brücke. Schöne Grüße aus Köln, und auf Wiedersehen. ",
    "Le garçon a mangé une pêche près de la forêt. Où est-il allé, déjà? ",
    "Съешь же ещё этих мягких французских булок. Да выпей чаю, пожалуйста. ",
    "我们在这里写一些中文句子. 这样就可以测试编码的检测了. ",
    "เด็กๆ กินข้าวเช้าที่บ้าน. แล้วไปโรงเรียนด้วยกันทุกวัน. ",
    "これは日本語の文章です. 文字コードの判定を試します. ",
    "한국어 문장도 몇 개 있습니다. 인코딩을 알아내야 합니다. ",
    "Plain ASCII sentences stay what they are. Nothing else is in them. ",
]

_UNPACK: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.decompress,
    ".xz": lzma.decompress,
    ".bz2": bz2.decompress,
    ".zst": zstd.decompress,
}


def _try_compressed(folder: Path, random: Random) -> bool:
    ending = random.choice([".jsonl", ".csv", ".txt"])
    packing = random.choice(list(COMPRESSORS))
    contents = [make_file(random, ending).encode() for _ in range(random.choice((1, 1, 2)))]
    packed = b"".join(map(COMPRESSORS[packing], contents))
    packed = packed[:10] + mutate(random, packed[10:], [COMPRESSORS[each](b"some text") for each in COMPRESSORS])
    path = folder / f"a{ending}{packing}"
    path.write_bytes(packed)
    found = read_both(path, Layout(max_document=1 << 24))
    skipped = [item for item in found if isinstance(item, Skip) and item.line is None]
    try:
        data = _UNPACK[packing](packed)
    except (OSError, EOFError, lzma.LZMAError, zstd.ZstdError, ValueError, gzip.zlib.error):
        data = None
    if data is None and any(
        packed.startswith(start) for start in (b"\x1f\x8b\x08", b"\xfd7zXZ\0", b"BZh", b"\x28\xb5\x2f\xfd")
    ):
        assert any(isinstance(item, Skip) for item in found), "the file is damaged, and nothing says so"
    elif data is not None and not (skipped and skipped[0].reason == "corrupt"):
        check(found, READERS[ending](data, "utf-8"), data)
    elif data is not None and packed and not skipped[0].detail:
        raise AssertionError("it can be decompressed")
    return any(isinstance(item, Document) for item in found)


def _make_parquet(random: Random, path: Path) -> None:
    records = make_records(random) * random.choice((1, 30))
    texts = [random.choice((each["text"], None)) if random.random() < 0.1 else each["text"] for each in records]
    column = arrow.array(texts, arrow.string())
    kind = random.choice((arrow.string(), arrow.large_string(), arrow.binary(), None))
    if kind:
        column = column.cast(kind)
    elif None not in texts:
        column = column.dictionary_encode()
    ids = random.choice(
        (
            arrow.array(range(len(texts))),
            arrow.array([str(n) for n in range(len(texts))]),
            arrow.array([[n] for n in range(len(texts))], arrow.list_(arrow.int64())),
        )
    )
    table = arrow.table({"id": ids, "text": column})
    parquet.write_table(
        table,
        path,
        row_group_size=random.choice((1, 7, 1000)),
        compression=random.choice(("none", "snappy", "gzip", "zstd", "lz4", "brotli")),
        write_page_checksum=random.random() < 0.3,
        use_dictionary=random.random() < 0.5,
        data_page_version=random.choice(("1.0", "2.0")),
        data_page_size=random.choice((100, 1 << 20)),
    )


def _try_parquet(folder: Path, random: Random) -> bool:
    path = folder / "a.parquet"
    _make_parquet(random, path)
    data = path.read_bytes()
    if random.random() < 0.5:  # in the footer, which describes the others
        size = int.from_bytes(data[-8:-4], "little") + 8
        data = data[:-size] + mutate(random, data[-size:-8], [data[:200]]) + data[-8:]
    else:
        data = mutate(random, data, [b"PAR1", data[-100:]])
    path.write_bytes(data)
    found = read_both(path, Layout(max_document=1 << 24))
    documents = [item for item in found if isinstance(item, Document)]
    if any(isinstance(item, Skip) and item.line is None for item in found):
        return bool(documents)
    try:
        column = (
            parquet.ParquetFile(path, page_checksum_verification=True)
            .read(columns=["text"], use_threads=False)
            .column("text")
        )
        values = column.to_pylist()
    except (OSError, MemoryError, ValueError, arrow.ArrowException):
        return bool(documents)
    texts = [value.decode("utf-8", "replace") if isinstance(value, bytes) else value for value in values]
    assert len(found) == len(texts), f"{len(found)} rows, not {len(texts)}"
    for item in documents:
        assert item.text == texts[item.line - 1], item
    left = {item.line for item in found if isinstance(item, Skip)}
    assert all(
        not texts[line - 1] or not texts[line - 1].strip() or "\ufffd" in texts[line - 1] for line in left
    ), left
    return bool(documents)


_PICTURES = Recipe.from_id("phash")
pillow_heif.register_heif_opener()


def _try_pictures(folder: Path, random: Random) -> bool:
    form = random.choice(("JPEG", "PNG", "WEBP", "GIF", "TIFF", "BMP", "AVIF", "HEIF"))
    mode = random.choice(("L", "RGB", "RGB", "P", "RGBA", "1"))
    if form == "JPEG" and mode in ("P", "RGBA"):
        mode = "RGB"
    picture = (
        Image.effect_noise((random.choice((1, 8, 40)), random.choice((1, 9, 30))), 80).convert("RGB").convert(mode)
    )
    file = io.BytesIO()
    picture.save(file, form)
    path = folder / "a.picture"
    path.write_bytes(mutate(random, file.getvalue(), [file.getvalue()]))
    *_, item = read_both(path, Layout(pictures=True))
    # Of a file that begins like a picture, copies are found whatever else is in it.
    return isinstance(item, Document) and simhash(item.text, _PICTURES) is not None


def _try_html(folder: Path, random: Random) -> bool:
    text = " ".join(random.choices(WORDS[:6], k=60))
    deep = random.choice((1, 1, 50, 3000))
    page = (
        f"<html><head><title>{text[:30]}</title><meta charset={random.choice(('utf-8', 'gbk', 'none'))}></head>"
        f"<body>{'<div>' * deep}<p>{text}</p><script>var a = '<p>';</script><table><tr><td>{text}</table>"
    )
    data = page.encode(random.choice(("utf-8", "utf-8", "gbk", "utf-16", "cp1252")), "replace")
    path = folder / f"a{random.choice(('.html', '.htm', '.xhtml'))}"
    path.write_bytes(mutate(random, data, [page.encode(), b"<!--", b"<![CDATA[", b"&amp;" * 50, b"<svg>" * 500]))
    encoding = random.choice(("utf-8", "detect", "gbk"))
    items = read_both(path, Layout(main_content=True, encoding=encoding))
    assert len(items) == 1
    if isinstance(items[0], Document):
        assert items[0].text.strip()
    return isinstance(items[0], Document)


def check_line(said: str) -> None:
    """A message is one line that can be shown."""
    assert said.isprintable(), said


def _try_labels(folder: Path, random: Random) -> bool:
    rows = [
        {
            "id_a": "a",
            "text_a": random.choice(WORDS),
            "id_b": "b",
            "text_b": "",
            "label": random.choice(("1", "not", "", "unsure", "YES")),
            "weight": random.choice(("", "1", "2.5")),
        }
        for _ in range(random.choice((1, 3)))
    ]
    weighted = random.random() < 0.5
    for row in rows:
        if not weighted:
            row["weight"] = ""
        elif not row["weight"]:
            row["weight"] = "1"
    ending = random.choice((".csv", ".tsv", ".jsonl", ".csv.gz"))
    if ending == ".jsonl":
        data = "".join(json.dumps(row) + "\n" for row in rows).encode()
    else:
        file = io.StringIO()
        writer = csv.DictWriter(file, list(rows[0]), delimiter="\t" if ending == ".tsv" else ",")
        writer.writeheader()
        writer.writerows(rows)
        data = file.getvalue().encode()
    data = mutate(random, data, [b"label,weight\n", data])
    path = folder / f"labels{ending}"
    path.write_bytes(gzip.compress(data) if ending == ".csv.gz" and random.random() < 0.7 else data)
    try:
        labels = read_labels(path)
    except SimsqlError as error:
        check_line(str(error))
        return False
    assert all(pair.weight > 0 for pair in labels.pairs)
    for pair in labels.pairs:
        json.dumps(pair)
        for name in filter(None, pair.ids):
            name.encode()
    return True


FILES = [
    Target("records", in_folder(try_records), 3),
    Target("compressed", in_folder(_try_compressed)),
    Target("encodings", in_folder(_try_detect)),
    Target("parquet", in_folder(_try_parquet), 2),
    Target("pictures", in_folder(_try_pictures)),
    Target("pages", in_folder(_try_html)),
    Target("labels", in_folder(_try_labels)),
]
