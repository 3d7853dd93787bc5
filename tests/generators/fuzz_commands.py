"""Bad options and arguments of every command, and runs of dedup on files that are damaged.

The commands and their options are those that the command line lists, so a new one is tried, too.
"""

import csv
import gzip
import io
import json
import os
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import typer
from fuzz_files import make_file
from fuzz_sql import TABLES
from fuzzing import Attempt, Target, WrongError, mutate
from program import Result, run
from reading import COMPRESSORS
from servers import find_programs, run_server

from simsql import similarity
from simsql.cli import _app
from simsql.documents import Document, DocumentReader, Layout, Skip


class Command(NamedTuple):
    """A command: its words, and its parameters."""

    words: tuple[str, ...]
    parameters: list[Any]


def find_commands(group: Any = None, *words: str) -> Iterator[Command]:
    group = group or _app.as_click_command()
    for name in group.list_commands(typer.Context(group)):
        command = group.get_command(typer.Context(group), name)
        if hasattr(command, "commands"):
            yield from find_commands(command, *words, name)
        else:
            yield Command((*words, name), command.params)


# fmt: off
FILES = ["a.jsonl", "b.csv", "c.txt", "d.json", "labels.csv", "fps.txt", "recipe.json", "broken.parquet",
"empty.jsonl", "e.jsonl.gz"]
_PATHS = [
    *FILES, *FILES, "folder", "missing", "missing/x", "a.jsonl/x", "fifo-not", "loop", "dangling", "-", "--",
    "./-", "caf\udce9.txt",
    "x" * 300, "new.jsonl", "new.csv", "new.parquet", "new.gz", "new/deep.jsonl", " ", "\n", "a\tb",
    "folder/../a.jsonl", "clean",
]
_WORDS = [
    *("article", "scoped", "public.article", "wide", "parted", "missing", '"Odd ""name\' %s"', "a.b.c.d", "'",
    '"', ";", "--", "pg_class"),
    *("fingerprint", "other", "id", "body", "tenant=1", "lang=en", "a=b=c", "=", "=x", "x=", "%s", "{}", "é",
    "\udcff", "😀", "x" * 5000),
    *("words12-log-1", "fnv1a-words", "phash", "nonsense", "recipe.json", "utf-8", "detect", "gbk", "rot13",
    "hex", "text", "1"),
    *("true", "id > 3", "1; DROP TABLE article", "simsql.near('article', 1)", "(", "0xffffffffffffffff", "-1",
    "18446744073709551616"),
    *("postgresql://u@127.0.0.1:1/x", "sqlite://", "postgresql://", "*.jsonl", "**", "[", "title:3", "body:x",
    "a:0"),
]
NO_NUMBERS = ["", " ", "x", "1.5", "-1", "1e", "0x10", "\u0663", "1_0", "inf", "nan", "--", "é", "1,2",
"99999999999999999999999999", "\udcff"]
_NUMBERS = ["0", "1", "2", "3", "12", "64", "1e3", "1,000", "0.5", "0.7", "1MB", "43B", *NO_NUMBERS]
# fmt: on


_KINDS_OF_NUMBERS = {"N", "BITS", "SHARE", "SIZE", "ROWS"}


def _value(random: Random, parameter: Any) -> str:
    metavar = parameter.metavar or ""
    if random.random() < 0.05:
        return ""
    if parameter.name == "server_dir" or metavar == "DIR":
        # No server is started.
        return random.choice(("a.jsonl", "a.jsonl/x", ""))
    if "|" in metavar and random.random() < 0.7:
        return random.choice(metavar.split("|"))
    if metavar in _KINDS_OF_NUMBERS and random.random() < 0.9:
        return random.choice(_NUMBERS)
    likely = [*_WORDS, *_NUMBERS, *_PATHS]
    if metavar in ("FILE", "PATH") and random.random() < 0.85:
        likely = _PATHS
    elif parameter.name in ("table", "table_name") and random.random() < 0.6:
        likely = ["article", "wide", "scoped", "secured"]
    return random.choice(likely)


def make_arguments(random: Random, command: Command, url: str) -> tuple[list[str], bool]:
    """Arguments of a command, and whether one of them is certainly wrong."""
    chosen: list[str] = []
    positional: list[str] = []
    is_wrong = False
    for each in command.parameters:
        if each.name in ("help", "version", "install_completion", "show_completion"):
            continue
        is_option = each.opts[0].startswith("-")
        if not is_option:
            if each.required or random.random() < 0.8:
                positional += [
                    _value(random, each) for _ in range(1 if each.nargs == 1 else random.choice((1, 1, 2)))
                ]
            continue
        if "--database" in each.opts and random.random() < 0.85:
            chosen += ["--database", url]
        elif each.required or random.random() < 2.2 / len(command.parameters):
            name = random.choice(each.opts)
            if getattr(each, "is_flag", False):
                chosen.append(name)
                continue
            values = [_value(random, each) for _ in range(max(each.nargs, 1))]
            is_wrong |= "" in values
            is_wrong |= each.metavar in ("N", "BITS", "SHARE", "SIZE") and values[0] in {
                "x",
                "1e",
                "é",
                "0x10",
                "\udcff",
                "1_0",
                " ",
            }
            chosen += [name, *values]
    if random.random() < 0.03:
        chosen.append(random.choice(("--nonsense", "-Z", "--distanc=3", "---", "-")))
    return [*command.words, *chosen, *(["--"] if random.random() < 0.1 else []), *positional], is_wrong


def _fill(folder: Path) -> None:
    """Small files of every kind, in a folder that is otherwise empty."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "folder").mkdir(parents=True)
    os.chdir(folder)
    lines = "".join(json.dumps({"id": n, "text": f"some words of a text number {n % 3}"}) + "\n" for n in range(6))
    contents = {
        "a.jsonl": lines,
        "b.csv": "id,text\n1,some words\n2,some words\n",
        "c.txt": "some words of a text",
        "d.json": "[" + ",".join(lines.split("\n")[:-1]) + "]",
        "labels.csv": "text_a,text_b,label\nsome words,some words,1\nsome words,others,0\n",
        "fps.txt": "1\n3\n18446744073709551615\n",
        "recipe.json": '{"shingles": [1]}',
        "broken.parquet": "PAR1 no",
        "empty.jsonl": "",
        "folder/f.jsonl": lines,
        "folder/g.txt": "more words",
    }
    for name, content in contents.items():
        Path(name).write_text(content)
    Path("e.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    Path("loop").symlink_to("loop")
    Path("dangling").symlink_to("nowhere")


def check_told(found: Result, arguments: list[str]) -> None:
    """A failure is one line that says why, after remarks on what was skipped."""
    shown = f"{arguments}\n{found.code}\n{found.err[-1500:]}"
    if found.code not in (0, 1, 2, 3):
        raise WrongError(f"exit code {found.code} of {arguments[0]}", shown)
    lines = [line for line in found.err.split("\n") if line.startswith("simsql: error: ")]
    # Some commands end with 1 to say what they have found.
    expected = {0, 1} if found.code == 1 and "--check" in arguments else {found.code in (1, 2)}
    if "Traceback" in found.err or len(lines) not in expected:
        raise WrongError(f"{len(lines)} errors of {arguments[0]}", shown)
    if lines and not lines[0].isprintable():
        raise WrongError(f"unprintable error of {arguments[0]}", shown)
    if found.code == 2 and found.stdout:
        raise WrongError(f"output of {arguments[0]} with wrong usage", shown)


@contextmanager
def trying_options(folder: Path, url: str) -> Iterator[Attempt]:
    commands = list(find_commands())

    def attempt(random: Random) -> bool:
        command = random.choice(commands)
        arguments, is_wrong = make_arguments(random, command, url)
        _fill(folder)
        found = run(
            *(os.fsencode(each) for each in arguments),
            stdin=random.choice((b"", b'{"text": "a b"}\n', b"\xff\0", b"1\n3\n")),
        )
        check_told(found, arguments)
        if is_wrong and found.code != 2 and "stdin" not in found.err:  # which is read before
            raise WrongError(
                f"{' '.join(command.words)} takes a wrong value", f"{arguments}: {found.code} {found.err}"
            )
        return found.code in (0, 3)

    yield attempt


@contextmanager
def _with_options(folder: Path) -> Iterator[Attempt]:
    with run_server(find_programs()[0]) as server, server.new_database() as url:
        server.execute("DROP ROLE IF EXISTS fuzz_role")
        server.execute("CREATE ROLE fuzz_role")
        with server.connect(url.database) as connection:
            connection.execute(TABLES.replace("{role}", "fuzz_role"))
        # What is in the database stays as it is, so that an input does the same again.
        options = "-c default_transaction_read_only=on -c statement_timeout=20s"
        full = url.update_query_dict({"options": options}).render_as_string(hide_password=False)
        with trying_options(folder, full) as attempt:
            yield attempt


# dedup


def _make_corpus(random: Random, folder: Path) -> list[Path]:
    base = [
        "the quick brown fox jumps over the lazy dog again",
        "the quick brown fox jumps over the lazy dog once",
        "b " * 9,
    ]
    found = []
    for number in range(random.choice((1, 1, 2, 3))):
        ending = random.choice((".jsonl", ".jsonl", ".csv", ".tsv", ".json"))
        if random.random() < 0.6:
            rows = [
                {"id": n, "text": f"{random.choice(base)} {random.choice(('', '', 'x', 'y'))}", "value": 1}
                for n in range(8)
            ]
            if ending == ".json":
                text = json.dumps(rows)
            elif ending == ".jsonl":
                text = "".join(json.dumps(row) + "\n" for row in rows)
            else:
                file = io.StringIO()
                writer = csv.writer(file, delimiter="," if ending == ".csv" else "\t")
                writer.writerows([["id", "text", "value"], *([*row.values()] for row in rows)])
                text = file.getvalue()
        else:
            text = make_file(random, ending)
        data = mutate(
            random,
            text.encode(random.choice(("utf-8", "utf-8", "utf-16", "utf-8-sig")), "replace"),
            [text.encode()],
        )
        packing = random.choice(("", "", "", ".gz", ".zst"))
        if packing:
            data = COMPRESSORS[packing](data)
            if random.random() < 0.2:
                data = mutate(random, data, [data])
        path = folder / f"{number}{ending}{packing}"
        path.write_bytes(data)
        found.append(path)
    return found


def _documents(paths: list[Path]) -> tuple[list[Document], list[Skip]]:
    items = list(DocumentReader(paths, Layout()))
    return [item for item in items if isinstance(item, Document)], [
        item for item in items if isinstance(item, Skip)
    ]


def _try_dedup(folder: Path, random: Random) -> bool:
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "in").mkdir(parents=True)
    os.chdir(folder)
    paths = _make_corpus(random, folder / "in")
    documents, skips = _documents(paths)
    single = len(paths) == 1
    clean = folder / (f"clean{''.join(paths[0].suffixes)}" if single else "clean")
    arguments = [
        *paths,
        "--output",
        folder / "out.jsonl",
        "--clean",
        clean,
        "--workers",
        1,
        "--drop-list",
        folder / "drop",
    ]
    against = random.random() < 0.2
    if against:
        archive = folder / "archive.jsonl"
        archive.write_bytes(mutate(random, make_file(random, ".jsonl").encode(), [b"{}"]))
        arguments += ["--against", archive]
    found = run("dedup", *arguments)
    check_told(found, ["dedup", *map(str, arguments)])
    if found.code not in (0, 3) and not (folder / "out.jsonl").exists():
        assert not clean.exists(), "it failed, and there is a clean corpus"
        return False
    clusters = [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()]
    members = [member for cluster in clusters for member in cluster["members"]]
    dropped = [member["place"] for member in members if member["droppable"]]
    copies = [clean] if single else [clean / path.name for path in paths]
    left, skipped_again = _documents(copies)
    by_place = {document.place: document.text for document in documents}
    if against:
        by_place |= {each.place: each.text for each in _documents([archive])[0]}
    gone = Counter(by_place[place] for place in dropped)
    kept = Counter(document.text for document in documents) - gone
    if any("json" in path.suffixes[0] and path.suffixes[0] != ".jsonl" for path in paths) and skips:
        return True  # an array may begin with an element now that is none, and count as a text
    assert Counter(document.text for document in left) == kept, f"dropped {dropped}"
    assert [skip.reason for skip in skips] == [skip.reason for skip in skipped_again], (
        "what was skipped is not there"
    )
    names = {member["id"]: member["place"] for member in members} | {
        member["place"]: member["place"] for member in members
    }
    for member in members:
        if member["droppable"]:
            text, other = by_place[member["place"]], by_place[names[member["kept"]]]
            assert similarity(text, other) >= 0.699 or text.split() == other.split() or text == other, (
                text,
                other,
            )
            assert names[member["kept"]] not in dropped
    assert run("dedup", *copies, "--output", "again.jsonl", "--workers", 1).code in (0, 1)
    return True


def _in_folder(attempt: Any) -> Any:
    @contextmanager
    def prepare(folder: Path) -> Iterator[Attempt]:
        yield partial(attempt, folder)

    return prepare


COMMANDS = [Target("options", _with_options, 3), Target("dedup", _in_folder(_try_dedup), 3)]
