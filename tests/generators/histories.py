"""Histories of a folder of texts: files change, also during runs that list what to drop, and somebody drops it."""

import gzip
import json
import os
import shutil
import tempfile
from contextlib import chdir
from pathlib import Path

from drop_lists import LIMIT, apply, contents, lost, run, text_about, texts_in
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from simsql.decide.rules import Rules

# As few copies of each as possible, all of one size: two of them are similar, but not the same.
TEXTS = [
    *(text_about("fish", 40).replace("fishx7", f"fish{number}x") for number in range(2)),
    *(text_about(subject, 40) for subject in ("bird", "frog", "wolf")),
]
TEXT = st.sampled_from(TEXTS)
FILES = ["a.txt", "b.txt", "c.txt", "d/a.txt", "d/b", "d\\/\n:1"]
RECORDS = ["r.jsonl", "d/r.jsonl", "r.jsonl.gz", "d\\/r:1.jsonl"]
IDS = [None, "1", "2", "a.txt", "r.jsonl:1"]
CONTENTS = {
    "nothing": b"",
    "a word": b"oops\n",
    "zeros": bytes(99),
    "half of gzip": b"\x1f\x8b\x08",
    "Latin-1": b"caf\xe9 " * 9,
    "too long": b"x " * LIMIT,
}
SPOILED = st.sampled_from(sorted(CONTENTS))
FOLDER, OTHER = "in", "other"
PATHS = [*FILES, *RECORDS, ".", "d", "d\\"]


FILE, ANY = st.sampled_from(FILES), st.sampled_from(FILES + RECORDS)
CHANGES = st.lists(
    st.tuples(st.just("write"), FILE, TEXT)
    | st.tuples(st.just("write_again"), FILE, TEXT)
    | st.tuples(st.just("spoil"), ANY, SPOILED)
    | st.tuples(st.sampled_from(["rename", "link"]), ANY, FILE)
    | st.tuples(st.sampled_from(["swap", "hard_link"]), FILE, FILE)
    | st.tuples(st.sampled_from(["remove"]), ANY)
    | st.tuples(st.sampled_from(["swap_subfolders"])),
    max_size=2,
)


class Histories(RuleBasedStateMachine):
    """A folder with files, runs on all of it or a part, while files change, and lists that are applied."""

    parent: Path | None = None
    """Where the folders are made."""
    runs = 0
    dropped = 0

    @initialize(protect=st.booleans())
    def begin(self, protect) -> None:
        self.root = Path(tempfile.mkdtemp(dir=self.parent)).resolve()
        # The folder of this name at the time of a run: folders are renamed and swapped.
        self.archive = self.root / FOLDER / "d"
        self.rules = Rules(keep_under=(str(self.archive),) if protect else ())
        self.folder = self.root / FOLDER
        for name, text in zip([*FILES, *RECORDS], TEXTS * 2, strict=True):
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            if name in FILES:
                self.write(name, text)
            else:
                self.write_records(name, [("1", text), ("2", TEXTS[0])])

    def teardown(self) -> None:
        if hasattr(self, "root"):
            shutil.rmtree(self.root)

    def _clear(self, name: str) -> Path:
        """Remove what has this name, and return its path."""
        path = self.folder / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        path.unlink(missing_ok=True)
        return path

    @rule(name=st.sampled_from(FILES), text=TEXT)
    def write(self, name, text):
        self._clear(name).write_text(text)

    @rule(name=st.sampled_from(RECORDS), records=st.lists(st.tuples(st.sampled_from(IDS), TEXT), max_size=4))
    def write_records(self, name, records):
        lines = "".join(json.dumps({"id": identity, "text": text}) + "\n" for identity, text in records)
        pack = gzip.compress if name.endswith(".gz") else bytes
        self._clear(name).write_bytes(pack(lines.encode()))

    @rule(name=st.sampled_from(FILES), to=st.sampled_from(FILES), content=SPOILED)
    def copy_and_spoil(self, name, to, content):
        path = self.folder / name
        if name != to and path.is_file():
            self._clear(to).write_bytes(path.read_bytes())
            path.write_bytes(CONTENTS[content])

    @rule(name=st.sampled_from(FILES), to=st.sampled_from(FILES), text=TEXT)
    def rename_and_write(self, name, to, text):
        self.rename(name, to)
        self.write(name, text)

    @rule(name=st.sampled_from(FILES + RECORDS), content=SPOILED)
    def spoil(self, name, content):
        self._clear(name).write_bytes(CONTENTS[content])

    @rule(name=st.sampled_from(FILES + RECORDS), to=st.sampled_from([*FILES, *RECORDS, "nothing"]))
    def link(self, name, to):
        if name != to:
            self._clear(name).symlink_to(self.folder / to)

    @rule(name=st.sampled_from(FILES), to=st.sampled_from(FILES))
    def hard_link(self, name, to):
        content = (self.folder / to).resolve()
        if content.is_file() and (self.folder / name).resolve() != content:
            self._clear(name).hardlink_to(content)

    @rule(name=st.sampled_from(FILES + RECORDS), to=st.sampled_from(FILES))
    def rename(self, name, to):
        if name != to and os.path.lexists(self.folder / name):
            (self.folder / name).rename(self._clear(to))

    def write_again(self, name, text):
        """Write another text, of the same size if that can be, and hide that from the times of the file."""
        path = self.folder / name
        if path.is_file():
            before = path.stat()
            path.write_text(text)
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    @rule(one=st.sampled_from(FILES), other=st.sampled_from(FILES))
    def swap(self, one, other):
        if one != other and (self.folder / one).is_file() and (self.folder / other).is_file():
            (self.folder / one).rename(self.root / "between")
            (self.folder / other).rename(self.folder / one)
            (self.root / "between").rename(self.folder / other)

    @rule(name=st.sampled_from(FILES + RECORDS))
    def remove(self, name):
        self._clear(name)

    @rule(name=st.sampled_from(FILES))
    def pipe(self, name):
        os.mkfifo(self._clear(name))

    @rule()
    def rename_the_folder(self):
        self.folder = self.folder.rename(self.root / (OTHER if self.folder.name == FOLDER else FOLDER))

    @rule()
    def swap_subfolders(self):
        for one, other in (("d", "between"), ("d\\", "d"), ("between", "d\\")):
            (self.folder / one).rename(self.folder / other)

    @rule(inside=st.booleans(), changes=CHANGES)
    def run_on_everything(self, inside, changes):
        self._run(["."], changes, inside=inside)

    @rule(paths=st.lists(FILE, min_size=1, max_size=3), inside=st.booleans(), changes=CHANGES)
    def run_on_files(self, paths, inside, changes):
        self._run(paths, changes, inside=inside)

    @rule(paths=st.lists(st.sampled_from([*PATHS, "."]), min_size=1, max_size=4), changes=CHANGES)
    def run_on_some(self, paths, changes):
        self._run(paths, changes)

    def _run(self, paths, changes, *, inside=False):
        """Run, apply the list, and check that every text is still there."""
        before = set()

        def change():
            for name, *arguments in changes:
                getattr(self, name)(*arguments)
            before.update(texts_in(self.folder))
            before_in_archive.update(contents(self.archive))

        before_in_archive = {}
        with chdir(self.folder if inside else self.root):
            given = [path if inside else f"{self.folder.name}/{path}" for path in paths]
            given = [path for path in given if Path(path).is_file() or Path(path).is_dir()]
            if given:
                dropped = run(given, self.root, change, rules=self.rules)
                apply(dropped, given)
                if dropped:
                    if self.rules.keep_under:
                        assert before_in_archive == contents(self.archive), dropped
                    assert lost(before, texts_in(self.folder)) == [], dropped
                type(self).runs += 1
                type(self).dropped += len(dropped)
