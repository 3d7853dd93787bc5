"""Parts of the input, which any process reads and describes: the same documents as when files are read in turn."""

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
from reading import write
from stages import Stages

from simsql.decide.rules import Rules
from simsql.dedup.sources import files
from simsql.documents import Document, DocumentReader, Layout, document, parts
from simsql.documents.spool import TextSpool, TokenSpool
from simsql.fingerprint import DEFAULT_RECIPE, simhash, sketch
from simsql.processes import map_in_processes


def plain(items):
    """Items without the time at which a file was read."""
    return [item._replace(status=item.status.st_ino) if isinstance(item, Document) else item for item in items]


def read_parts(reader, size):
    """Read parts of about this size, as another process would."""
    with mock.patch.object(parts, "PART", size), mock.patch.object(document, "_FILE", 1):
        found = list(reader.parts())
        items = [item for part in found for item in pickle.loads(pickle.dumps(part)).read()]
    return found, items


def check(path, size, **layout):
    reader = DocumentReader([path], Layout(value_fields=("value",), **layout))
    found, items = read_parts(reader, size)
    assert plain(items) == plain(reader)
    assert sum(part.size for part in found) == reader.bytes_total
    return found


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


def described(reader, workers):
    """What a source says about the documents of a reader."""
    with TokenSpool() as tokens, TextSpool() as texts:
        source = files.FileSource(reader, DEFAULT_RECIPE, Rules(keep_field="value"), workers, texts)
        corpus = source.read(tokens, Stages())
        positions = [*range(source.total)]
        names = source.names(np.array(positions))
        features = corpus.features
        places = zip(features.token_start[:, np.newaxis], features.token_count[:, np.newaxis], strict=True)
        return {
            "names": names.name,
            "places": names.place,
            "lines": names.line,
            "characters": corpus.characters.tolist(),
            "values": source.columns.value.some(np.array(positions)),
            "fingerprints": corpus.features.fingerprint.tolist(),
            "sketches": corpus.features.sketch.tolist(),
            "skips": (list(reader.skips.by_reason.items()), reader.skips.examples),
            "wordless": source.wordless.examples,
            "tokens": [tokens.read_at(*place).tolist() for place in places],
            "texts": list(map(source.read_text, positions)),
            "words": corpus.features.words.tolist(),
        }


def test_processes_describe_what_one_would_read(tmp_path):
    paths, streamed = mixed_input(tmp_path)

    def reader():
        return DocumentReader(paths, Layout(value_fields=("value",)), stdin=io.BytesIO(streamed))

    one_by_one = reader()
    documents = list(one_by_one.documents(lambda _: None))
    expected = {
        "names": [document.name for document in documents],
        "places": [document.place for document in documents],
        "lines": [document.line or 0 for document in documents],
        "characters": [len(document.text) for document in documents],
        "values": ["".join(document.values) for document in documents],
        "fingerprints": [simhash(document.text) or 0 for document in documents],
        "sketches": [sketch(document.text) or 0 for document in documents],
        "skips": (list(one_by_one.skips.by_reason.items()), one_by_one.skips.examples),
        "texts": [document.text for document in documents],
    }
    with mock.patch.object(parts, "PART", 2000), mock.patch.object(files, "_ALONE", 0):
        found = [described(reader(), workers) for workers in (1, 2, 3)]
    assert found[0] | expected == found[0]
    assert len(found[0]["wordless"]) == 5
    assert found[1] == found[0]
    assert found[2] == found[0]
    same = dict(zip(map(tuple, found[0]["words"]), found[0]["tokens"], strict=True))
    assert [same[tuple(words)] for words in found[0]["words"]] == found[0]["tokens"]


def test_a_named_pipe_is_opened_once(tmp_path):
    os.mkfifo(tmp_path / "pipe")
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
