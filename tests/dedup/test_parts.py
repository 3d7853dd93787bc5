"""Parts of files that processes read on their own: the same documents as when files are read from the start."""

import contextlib
import gzip
import io
import json
import os
import pickle
import resource
import threading
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from reading import write
from record_files import JSON_LINES, TABLES
from simsql.dedup.safety.identity import Identities, digest_text
from simsql.dedup.store import intake
from simsql.dedup.store.columns import Columns, spell_digests, spell_places
from simsql.dedup.store.intake import Intake
from simsql.dedup.store.memory import MemoryStore
from simsql.documents.ranges import MovedError, Range

from simsql.decide.rules import Rules
from simsql.documents import Document, DocumentReader, Layout, parts
from simsql.documents.spool import TextSpool, TokenSpool
from simsql.fingerprint import DEFAULT_RECIPE, map_in_processes, simhash, sketch


def plain(items):
    """Items without the time at which a file was read."""
    return [item._replace(status=item.status.st_ino) if isinstance(item, Document) else item for item in items]


def read_parts(reader, size):
    """Read parts of about this size, as another process would."""
    with mock.patch.object(parts, "PART", size), mock.patch.object(parts, "_FILE", 1):
        found = list(reader.parts())
        items = [item for part in found for item in pickle.loads(pickle.dumps(part)).read()]
    return found, items


def check(path, size, **layout):
    reader = DocumentReader([path], Layout(value_field="value", **layout))
    found, items = read_parts(reader, size)
    assert plain(items) == plain(reader)
    assert sum(part.size for part in found) == reader.bytes_total
    return found


SIZES = st.sampled_from([1, 2, 3, 7, 20, 60])
ENCODINGS = st.sampled_from(["utf-8", "utf-8", "cp1252", "utf-8-sig", "gbk", "utf-16"])


@given(JSON_LINES, SIZES, ENCODINGS, st.sampled_from([1 << 20, 20]))
def test_json_lines(tmp_path_factory, data, size, encoding, limit):
    path = write(tmp_path_factory.getbasetemp() / "parts.jsonl", data)
    check(path, size, encoding=encoding, max_document=limit)


@given(TABLES, SIZES, st.sampled_from([1 << 20, 12]))
@example(
    b'text,id\n"a"b,"\n"c\nddddddddddddd",1\n', 1, 1 << 20
)  # the csv module refuses a row up to the end of a line
def test_tables(tmp_path_factory, data, size, limit):
    path = write(tmp_path_factory.getbasetemp() / "parts.csv", data)
    check(path, size, max_document=limit)


def test_a_file_is_cut_after_a_long_line(tmp_path):
    line = b'{"text": "a"}\n'
    data = line * 3 + b'{"text": "' + b"long " * 1000 + b'"}\n' + line * 50
    found = check(write(tmp_path / "a.jsonl", data + b"x" * 5000), 30)
    assert len(found) > 20
    assert max(part.size for part in found) < 6000
    assert found[-1].end is None


def test_a_file_that_can_be_cut_is_cut(tmp_path):
    lines = b'{"id": 1, "text": "a"}\n' * 50
    rows = b"id,text\n" + b'1,"a ""b"" ,\nc"\n2,d"e\n' * 50
    for name, data in (("a.jsonl", lines), ("a.csv", rows), ("b.csv", rows.replace(b"\n", b"\r\n"))):
        found = check(write(tmp_path / name, data), 100)
        assert len(found) > 5
        assert all(isinstance(part, Range) for part in found)
    # A quote that is never closed holds the rest of the file.
    found = check(write(tmp_path / "c.csv", rows.replace(b'"a', b'"a"', 1).replace(b'c"', b"c", 1)), 100)
    found = check(write(tmp_path / "d.csv", b'text\n"a\n' + b"b\n" * 500), 10)
    assert len(found) == 1
    for encoding in ("gbk", "utf-16", "utf-7"):
        found = check(write(tmp_path / "e.jsonl", lines.decode().encode(encoding)), 100, encoding=encoding)
        assert not any(isinstance(part, Range) for part in found)
    russian = lines.decode().replace("a", "Все счастливые семьи ").encode("cp1251")
    found = check(write(tmp_path / "e.jsonl", russian), 100, encoding="detect")
    assert not any(isinstance(part, Range) for part in found)
    found = check(write(tmp_path / "e.jsonl", lines), 100, encoding="detect")
    assert all(isinstance(part, Range) for part in found)


def test_small_files_are_grouped_and_a_large_one_is_read_alone(tmp_path):
    for number in range(20):
        write(tmp_path / f"{number:02}.txt", f"text {number}")
        write(tmp_path / f"{number:02}.jsonl", '{"id": 1, "text": "a"}\n' * (number + 1))
    write(tmp_path / "07.bin", bytes(1000))
    write(tmp_path / "08.json.gz", gzip.compress(b"a b" * 1000))
    write(tmp_path / "09.jsonl.gz", gzip.compress(b'{"text": "a b"}\n' * 1000))
    (tmp_path / "link").symlink_to("00.txt")
    assert len(check(tmp_path, 100)) > 10
    assert len(check(tmp_path, 1 << 20)) == 1


def test_a_file_that_is_replaced_is_read_where_it_is_open(tmp_path):
    path = write(tmp_path / "a.jsonl", "".join(f'{{"text": "{number}"}}\n' for number in range(20)))
    reader = DocumentReader([path])
    before = plain(reader)
    with mock.patch.object(parts, "PART", 50):
        found = list(reader.parts())
    elsewhere = pickle.loads(pickle.dumps(found[2]))
    write(tmp_path / "new", "{}\n" * 100).replace(path)
    with pytest.raises(MovedError):
        next(elsewhere.read())
    assert plain(item for part in found for item in part.read()) == before
    path.unlink()
    with pytest.raises(MovedError):
        next(pickle.loads(pickle.dumps(found[2])).read())


def test_a_file_that_shrinks_ends_where_it_ends(tmp_path):
    path = write(tmp_path / "a.jsonl", '{"text": "a b"}\n' * 20)
    with mock.patch.object(parts, "PART", 50):
        found = list(DocumentReader([path]).parts())
        os.truncate(path, 70)
        items = [item for part in found for item in part.read()]
    assert [item.line for item in items[:4]] == [1, 2, 3, 4]
    assert [item.reason for item in items[4:]] == ["not JSON"]


class Remembering(MemoryStore):
    """Has every text whose digest begins with an even digit."""

    holds_documents = True

    def find_known(self, identities, text_digests):
        return np.array([digest[0] in "02468ace" for digest in spell_digests(text_digests)])


def take_in(reader, workers, *, tokens, texts, kind=MemoryStore):
    """The columns and what else the intake knows."""
    store = kind(DEFAULT_RECIPE, Rules(12))
    found = Intake(store, reader, workers=workers, tokens=tokens, texts=texts)
    columns = Columns.concatenate(list(found._batches(lambda _: None)))
    origins = found._identities.origins
    names = columns.names.to_list()
    described = {
        "names": names,
        "places": spell_places(names, columns.origin, columns.line, origins),
        "lines": columns.line.tolist(),
        "identities": spell_digests(columns.identity),
        "digests": spell_digests(columns.text_digest),
        "characters": columns.characters.tolist(),
        "values": [
            value if valued else None
            for value, valued in zip(columns.values.to_list(), columns.valued.tolist(), strict=True)
        ],
        "fingerprints": columns.fingerprint.tolist(),
        "sketches": columns.sketch.tolist(),
        "skips": (list(reader.skips.by_reason.items()), reader.skips.examples),
        "wordless": found.wordless.examples,
        "files": {name: file.status.inode for name, file in found.files.items()},
        "tokens": tokens.read_at(columns.token_start, columns.token_count).tolist(),
        "texts": [texts.read_at(*place) for place in zip(columns.text_start, columns.text_size, strict=True)],
    }
    same = {}
    for digest, start, count in zip(columns.token_digest, columns.token_start, columns.token_count, strict=True):
        words = tuple(tokens.read_at(np.array([start]), np.array([count])))
        assert same.setdefault(digest.tobytes(), words) == words
    return described


def mixed_input(folder: Path) -> tuple[list[str], bytes]:
    """Every kind of file, with ids that occur again within a file, across parts, and in a stream."""
    records = [{"id": number % 7, "text": f"the text {number // 2} é", "value": number} for number in range(120)]
    lines = "\n".join(map(json.dumps, [*records, {"text": "unnamed"}, {"text": "!"}, {"id": 1}])).encode()
    write(folder / "a.jsonl", b"{\n" + lines + b"\n")
    write(folder / "b.csv", "id,text\n" + "".join(f'{number % 5},"row\n{number}"\n' for number in range(60)))
    write(folder / "c.jsonl.gz", gzip.compress(lines * 3))
    write(folder / "d.txt", "some text \ud800".encode("utf-8", "surrogatepass"))
    for number in range(9):
        write(folder / "e" / f"{number}.txt", f"some text {number}")
        write(folder / "e" / f"{number}.jsonl", lines[:200])
    return [str(folder), "-"], lines


def test_processes_hand_over_what_one_would_read(tmp_path):
    paths, streamed = mixed_input(tmp_path)

    def reader():
        return DocumentReader(paths, Layout(value_field="value"), stdin=io.BytesIO(streamed))

    identities = Identities()
    one_by_one = reader()
    documents = list(one_by_one.documents(lambda _: None))
    expected = {
        "names": [document.name for document in documents],
        "places": [document.place for document in documents],
        "lines": [document.line or 0 for document in documents],
        "identities": [identities.identify(document) for document in documents],
        "digests": [digest_text(document.text) for document in documents],
        "characters": [len(document.text) for document in documents],
        "values": [document.value for document in documents],
        "fingerprints": [simhash(document.text) for document in documents],
        "sketches": [sketch(document.text) for document in documents],
        "skips": (list(one_by_one.skips.by_reason.items()), one_by_one.skips.examples),
        "texts": [document.text for document in documents],
    }
    found = []
    for workers, kind in ((1, MemoryStore), (2, MemoryStore), (3, MemoryStore), (2, Remembering)):
        with (
            TokenSpool() as tokens,
            TextSpool() as texts,
            mock.patch.object(parts, "PART", 2000),
            mock.patch.object(intake, "_ALONE", 1),
        ):
            found.append(take_in(reader(), workers, tokens=tokens, texts=texts, kind=kind))
    assert found[0] | expected == found[0]
    assert len(set(found[0]["identities"])) == len(documents)
    assert len(found[0]["wordless"]) == 5
    assert found[1] == found[0]
    assert found[2] == found[0]
    new = [digest[0] not in "02468ace" for digest in expected["digests"]]
    for name in ("fingerprints", "sketches"):
        expected[name] = [value if is_new else None for value, is_new in zip(expected[name], new, strict=True)]
    assert found[3] | expected == found[3]


def test_what_another_process_cannot_read_is_read_here(tmp_path):
    path = write(tmp_path / "a.jsonl", "".join(f'{{"text": "text {number}"}}\n' for number in range(100)))

    class Removing(DocumentReader):
        def parts(self):
            found = list(super().parts())
            path.unlink()
            return iter(found)

    with (
        TokenSpool() as tokens,
        TextSpool() as texts,
        mock.patch.object(parts, "PART", 200),
        mock.patch.object(intake, "_ALONE", 1),
    ):
        found = take_in(Removing([path]), 2, tokens=tokens, texts=texts)
    assert found["texts"] == [f"text {number}" for number in range(100)]


def test_a_named_pipe_is_opened_once(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with mock.patch.object(parts, "OpenFile", side_effect=AssertionError):
        writer = threading.Thread(target=(tmp_path / "pipe").write_bytes, args=(b'{"text": "a"}\n',))
        writer.start()
        _, items = read_parts(DocumentReader([tmp_path / "pipe"]), 100)
        writer.join()
    assert [item.text for item in items] == ["a"]


@contextlib.contextmanager
def no_more_files():
    """As many files are open as the system allows."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.open(os.devnull, os.O_RDONLY)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_no_file_is_skipped_because_others_are_open(tmp_path):
    path = write(tmp_path / "a.txt", "a")
    reader = DocumentReader([path])
    with no_more_files(), pytest.raises(OSError, match="Too many open files"):
        list(reader)
    assert [item.text for item in reader] == ["a"]


def test_processes_that_cannot_be_started_are_not_needed():
    with no_more_files():
        assert list(map_in_processes(eval, iter("12345"), 3, len)) == [1, 2, 3, 4, 5]
