"""Where documents are found: folders, names, standard input; and what cannot be read."""

import contextlib
import gzip
import io
import json
import os
import socket
import sys
import tempfile
import threading
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reading import COMPRESSORS, from_stdin, one_skip, read, skips, texts, write

from simsql.documents import Document, DocumentReader, Layout, Skip
from simsql.documents.decoding import SAMPLE
from simsql.documents.document import Found, printable, storable
from simsql.documents.files import Selection
from simsql.documents.opening import FileReader
from simsql.errors import UsageError


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
        for name in ("b/z.txt", "b/a", "a.txt", "c.md"):
            write(tmp_path / name, f"text of {name}")
        assert read(tmp_path) == [
            Document(str(tmp_path / name), f"text of {name}", str(tmp_path / name))
            for name in ("a.txt", "b/a", "b/z.txt", "c.md")
        ]

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

    def test_a_pipe_that_takes_the_place_of_a_file_does_not_hang(self, tmp_path):
        file = write(tmp_path / "a.txt", "a")
        found = Found(file, file.stat())
        file.unlink()
        os.mkfifo(file)
        (skip,) = FileReader(Layout()).read(found)
        assert skip.reason == "special file"

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


class TestSelection:
    NAMES = ("a.txt", "b.md", "docs/a.txt", "docs/new/a.txt", "docs/new/c.log", "new/b.md", ".env", ".git/HEAD")

    @pytest.fixture
    def folder(self, tmp_path):
        for name in self.NAMES:
            write(tmp_path / "in" / name, name)
        return tmp_path / "in"

    def found(self, *paths, **selection):
        return {item.text for item in read(*paths, selection=Selection(**selection)) if isinstance(item, Document)}

    def test_hidden_files_are_read_if_the_user_wants_them_or_names_them(self, folder, monkeypatch):
        assert [(skip.reason, skip.place) for skip in skips(folder)] == [
            ("hidden", str(folder / ".env")),
            ("hidden", str(folder / ".git")),
        ]
        assert self.found(folder, hidden=True) == set(self.NAMES)
        visible = {name for name in self.NAMES if not name.startswith(".")}
        assert self.found(folder) == visible
        assert self.found(folder, folder / ".git") == visible | {".git/HEAD"}
        assert self.found(folder / ".git/HEAD", folder) == visible | {".git/HEAD"}
        assert [skip.place for skip in skips(folder / ".git", folder)] == [str(folder / ".env")]
        monkeypatch.chdir(folder / ".git")
        assert self.found(".") == {".git/HEAD"}

    @pytest.mark.parametrize(
        ("exclude", "left"),
        [
            (["*.txt"], ["b.md", "docs/new/c.log", "new/b.md"]),
            (["new"], ["a.txt", "b.md", "docs/a.txt"]),
            (["new/"], ["a.txt", "b.md", "docs/a.txt"]),
            (["a.txt/"], ["a.txt", "b.md", "docs/a.txt", "docs/new/a.txt", "docs/new/c.log", "new/b.md"]),
            (["/new"], ["a.txt", "b.md", "docs/a.txt", "docs/new/a.txt", "docs/new/c.log"]),
            (["docs/*"], ["a.txt", "b.md", "new/b.md"]),
            (["./docs/*.txt"], ["a.txt", "b.md", "docs/new/a.txt", "docs/new/c.log", "new/b.md"]),
            (["docs/**/a.txt"], ["a.txt", "b.md", "docs/new/c.log", "new/b.md"]),
            (["docs/*/**"], ["a.txt", "b.md", "docs/a.txt", "new/b.md"]),
            (["**/new/*.[!m]*"], ["a.txt", "b.md", "docs/a.txt", "new/b.md"]),
            (["?.md", "c*"], ["a.txt", "docs/a.txt", "docs/new/a.txt"]),
            (["*.TXT", "docs*new", "a"], [name for name in NAMES if name[0] != "."]),
        ],
    )
    def test_exclude(self, folder, exclude, left):
        assert self.found(folder, exclude=exclude) == set(left)
        # Where the folder itself is, and what its name is, does not matter.
        assert self.found(folder / "docs/..", exclude=[*exclude, "in"]) == set(left)

    def test_include_chooses_files_and_exclude_takes_away(self, folder):
        assert self.found(folder, include=["*.md", "docs/*"]) == {"b.md", "docs/a.txt", "new/b.md"}
        assert self.found(folder, include=["*.md", "docs/**"], exclude=["new"]) == {"b.md", "docs/a.txt"}
        assert self.found(folder, include=[".*", "HEAD"], hidden=True) == {".env", ".git/HEAD"}

    def test_what_is_left_out_is_counted_and_a_folder_is_not_entered(self, folder):
        found = skips(folder, selection=Selection(exclude=["docs"], include=["*.txt"]))
        assert [(skip.reason, Path(skip.place).name, skip.detail.split()[-1]) for skip in found] == [
            ("hidden", ".env", "--hidden"),
            ("hidden", ".git", "--hidden"),
            ("excluded", "b.md", "--include"),
            ("excluded", "docs", "--exclude"),
            ("excluded", "b.md", "--include"),
        ]

    def test_what_is_named_is_read(self, folder):
        everything = {"exclude": ["*"], "include": ["nothing"]}
        assert self.found(folder, folder / "new/b.md", **everything) == {"new/b.md"}
        assert self.found(folder, folder / "docs", exclude=["docs"]) == {
            *("a.txt", "b.md", "docs/a.txt", "docs/new/a.txt", "docs/new/c.log", "new/b.md")
        }

    @pytest.mark.parametrize("glob", ["", "/", "./"])
    def test_a_glob_that_names_nothing(self, glob):
        with pytest.raises(UsageError, match="--exclude needs a glob"):
            Selection(exclude=[glob])


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
            DocumentReader([tmp_path], Layout(encoding=encoding))

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
    def test_what_follows_a_stream_is_a_stream(self, tmp_path, ending):
        a, b = (COMPRESSORS[ending](b'{"text": "%s"}\n' % name) for name in (b"a", b"b"))
        assert [each.text for each in read(write(tmp_path / f"two.jsonl{ending}", a + b))] == ["a", "b"]
        for i, rest in enumerate((b"rest", b[:1] + b"-" + b[2:], b[:-3])):
            document, *_, skip = read(write(tmp_path / f"{i}.jsonl{ending}", a + rest))
            assert (document.text, skip.reason) == ("a", "corrupt")

    def test_a_bad_checksum_at_the_end_loses_no_record(self, tmp_path):
        packed = bytearray(gzip.compress(b'{"text": "a"}\n{"text": "b"}\n'))
        packed[-8] ^= 1
        a, b, skip = read(write(tmp_path / "a.jsonl.gz", bytes(packed)))
        assert (a.text, b.text, skip.reason) == ("a", "b", "corrupt")


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
