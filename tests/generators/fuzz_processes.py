"""Real processes: files that are no files, that never end or that change, and signals at any moment."""

import contextlib
import gzip
import json
import lzma
import os
import resource
import shutil
import signal
import subprocess
import threading
import time
from bz2 import compress as compress_bzip2
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import fuzzing
import pyarrow as arrow
from fuzzing import Attempt, Target, WrongError
from program import PROGRAM, Process, environment
from pyarrow import parquet
from servers import find_programs, run_server

from simsql.documents.compression import zstd

_MOST = 900 << 20  # bytes of a process
_LONG = 300_000_000
_BOMB = 10_000_000_000
_CHUNK = 100_000_000


def _start(*arguments: object, stdin: Any = subprocess.DEVNULL, stdout: Any = subprocess.PIPE) -> Process:
    return subprocess.Popen(
        [os.fspath(PROGRAM), *map(str, arguments)],
        env=environment(None),
        start_new_session=True,
        stdin=stdin,
        stdout=stdout,
        stderr=subprocess.PIPE,
        preexec_fn=_limit,  # noqa: PLW1509 - it starts no threads before
    )


def _limit() -> None:
    """A run that grows must not take the memory of others, and is interrupted even if a shell ignores that."""
    resource.setrlimit(resource.RLIMIT_AS, (4 * _MOST, 4 * _MOST))
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(process: Process, seconds: float = 800) -> tuple[int, str, int]:
    """The exit code, what was said, and the largest memory of the process."""
    said: list[bytes] = []
    readers = [
        threading.Thread(target=lambda s=s, t=t: t.append(s.read()))
        for s, t in ((process.stderr, said), (process.stdout, []))
        if s
    ]
    for reader in readers:
        reader.start()
    # An alarm, since wait4 has no time limit.
    timer = threading.Timer(seconds, process.kill)
    timer.start()
    _, status, usage = os.wait4(process.pid, 0)
    timer.cancel()
    process.returncode = os.waitstatus_to_exitcode(status)
    for reader in readers:
        reader.join(10)
    return process.returncode, b"".join(said).decode("utf-8", "replace"), usage.ru_maxrss * 1024


def check_end(process: Process, codes: tuple[int, ...], *parts: str) -> str:
    code, said, memory = _end(process)
    shown = f"{process.args}\nexit code {code}, {memory >> 20} MB\n{said[-3000:]}"
    if code not in codes or any(
        word in said for word in ("Traceback", "Process Spawn", "Exception ignored", "Error in")
    ):
        raise WrongError(f"exit code {code}", shown)
    fuzzing.largest = max(fuzzing.largest, memory)
    if memory > _MOST:
        raise WrongError(f"memory {memory >> 30} GB", shown)
    for part in parts:
        if part not in said:
            raise WrongError(f"nothing is said of {part}", shown)
    return said


# Long lines and bombs

_GOOD = b'{"id": "good", "text": "some words"}\n'
_LONG_FILES: dict[str, tuple[bytes, bytes, bytes]] = {
    # The beginning, what is repeated, the end.
    "a.jsonl": (_GOOD + b'{"text": "', b"word ", b'"}\n' + _GOOD),
    "b.jsonl": (_GOOD + b'{"text": "a", "more": [', b"[0],", b"0]}\n" + _GOOD),
    "a.csv": (b'id,text\ngood,some words\nlong,"', b'wo""rd ' * 5000 + b"\n", b'"\ngood,some words\n'),
    "b.csv": (b"id,text\ngood,some words\n", b'"', b'"\ngood,some words\n'),
    "a.json": (b"[" + _GOOD[:-1] + b', {"text": "', b"wo\\\\rd", b'"},\n' + _GOOD[:-1] + b"]"),
    "a.txt": (b"", b"word ", b""),
}


def _write_long(path: Path, name: str) -> None:
    begin, middle, end = _LONG_FILES[name]
    with path.open("wb") as file:
        file.write(begin)
        block = middle * (1_000_000 // len(middle))
        for _ in range(_LONG // len(block)):
            file.write(block)
        file.write(end)


def _try_long(folder: Path, random: Random) -> None:
    name = random.choice(list(_LONG_FILES))
    path = folder / name
    _write_long(path, name)
    limit = random.choice(("1MB", "100MB"))
    command = random.choice((["dedup", "--workers", random.choice((1, 2))], ["fingerprint"]))
    options = [*command, "--max-document", limit]
    if name == "b.csv":
        check_end(_start(*options, path), (0, 1), "skipped")
    else:
        check_end(_start(*options, path), (0, 1), "longer than")
    with path.open("rb") as file:
        if name.endswith(".jsonl"):
            check_end(_start(*options, "-", stdin=file), (0, 1), "longer than")


_PACK: dict[str, Callable[[bytes], bytes]] = {
    ".gz": partial(gzip.compress, compresslevel=1),
    ".zst": zstd.compress,
    ".xz": partial(lzma.compress, preset=0),
    ".bz2": partial(compress_bzip2, compresslevel=1),
}


def _try_bomb(folder: Path, random: Random) -> None:
    packing = random.choice(list(_PACK))
    # The slow ones only have to notice that it is too long.
    ending = random.choice((".jsonl", ".csv", ".json", ".txt")) if packing in (".gz", ".zst") else ".txt"
    begin, middle, end = _LONG_FILES[f"a{ending}"]
    pack = _PACK[packing]
    block = pack(middle * (_CHUNK // 10 // len(middle)))
    path = folder / f"a{ending}{packing}"
    with path.open("wb") as file:
        file.write(pack(begin))
        for _ in range(_BOMB // (_CHUNK // 10)):
            file.write(block)
        file.write(pack(end))
    command = random.choice((["fingerprint"], ["dedup", "--workers", 2]))
    check_end(_start(*command, path), (0, 1), "longer than 100 MB")


def _try_parquet_bomb(folder: Path, random: Random) -> None:
    path = folder / "a.parquet"
    rows, size = (10_000, 1 << 20) if random.random() < 0.5 else (100, 100 << 20)
    texts = arrow.DictionaryArray.from_arrays(
        arrow.array([0] * rows, arrow.int32()), arrow.array(["word " * (size // 5)])
    )
    table = arrow.table({"id": arrow.array(range(rows)), "text": texts})
    parquet.write_table(table, path, compression="zstd", dictionary_pagesize_limit=1 << 30, row_group_size=rows)
    assert path.stat().st_size < 1 << 20
    check_end(_start("fingerprint", "--max-document", "100kB", path), (0, 1), "too long")


def _try_twice_packed(folder: Path, random: Random) -> None:
    data = b"\0" * _CHUNK
    for _ in range(3):
        data = gzip.compress(data * 10 if len(data) < 1 << 20 else data)
    (folder / "a.jsonl.gz").write_bytes(data)
    check_end(_start("fingerprint", folder), (0, 1), "skipped")


# Devices and pipes


def _try_devices(folder: Path, random: Random) -> None:
    good = folder / "good.jsonl"
    good.write_bytes(_GOOD * 2)
    match random.randrange(8):
        case 0:
            check_end(_start(random.choice(("fingerprint", "dedup")), "/dev/zero"), (1,), "/dev/zero")
        case 1:
            with Path("/dev/zero").open("rb") as file:
                check_end(_start("fingerprint", "-", stdin=file), (1,), "stdin")
        case 2:
            with Path("/dev/full").open("wb") as file:
                check_end(_start("fingerprint", good, stdout=file), (1,), "No space left")
        case 3:
            option = random.choice(("--output", "--drop-list", "--report"))
            check_end(_start("dedup", good, option, "/dev/full"), (1,), "No space left")
        case 4:
            check_end(_start("fingerprint", "/dev/null", "/dev/full", good), (0, 1))
        case 5:
            check_end(_start("evaluate", "/dev/zero", "--similarity", "0.5"), (1, 2))
        case 6:
            check_end(_start("find-pairs", "--input", "/dev/null"), (0,))
        case 7:
            check_end(_start("fingerprint", "--recipe", random.choice(("/dev/null", "/dev/zero")), good), (2,))
            check_end(_start("find-pairs", "--input", random.choice(("/dev/zero", "/dev/urandom"))), (1, 2))


def _try_pipes(folder: Path, random: Random) -> None:
    pipe = folder / "pipe.jsonl"
    os.mkfifo(pipe)
    good = folder / "good.jsonl"
    good.write_bytes(_GOOD)
    match random.randrange(3):
        case 0:  # inside a folder
            check_end(_start("fingerprint", folder), (0,), "special file")
        case 1:  # with a writer that goes in the middle of a line
            process = _start("fingerprint", pipe, good)
            with pipe.open("wb") as file:
                file.write(_GOOD * 1000 + b'{"text": "')
            check_end(process, (0,), "not JSON")
        case 2:  # without a writer
            process = _start("fingerprint", good, pipe)
            _wait_for_handlers(process)
            time.sleep(random.random())
            os.killpg(process.pid, signal.SIGINT)
            check_end(process, (130,), "interrupted")


# Files that change


def _try_changes(folder: Path, random: Random) -> None:
    """Whatever happens to a file, the clean corpus holds what the file held, or there is none."""
    path = folder / "a.jsonl"
    lines = [json.dumps({"id": n, "text": words_of(n % 5000)}) + "\n" for n in range(20_000)]
    path.write_text("".join(lines) * random.choice((1, 5)))
    (folder / "b.jsonl").write_bytes(_GOOD)
    clean = folder / "clean"
    process = _start(
        "dedup",
        path,
        folder / "b.jsonl",
        "--output",
        folder / "out.jsonl",
        "--clean",
        clean,
        "--workers",
        random.choice((1, 2)),
    )
    _wait_for_handlers(process)
    time.sleep(random.random() * 6)
    change = random.choice((_grow, _shrink, _vanish, _replace, _overwrite, _become_folder))
    change(path)
    before = {json.loads(line)["text"] for line in lines}
    said = check_end(process, (0, 1, 2))
    if clean.exists() and "incomplete" not in said:
        with contextlib.suppress(FileNotFoundError):
            data = (clean / "a.jsonl").read_text()
            texts = {json.loads(line)["text"] for line in data.splitlines() if line.startswith("{")}
            assert texts <= before | {"appended", "another"}, "there is what the file never held"
            # Of equal texts one stays.
            assert before <= texts or texts <= {"another"} or change is _shrink, "a text is missing"


def words_of(number: int) -> str:
    """A text that is like no other."""
    return " ".join(f"{number * factor % 65537:x}" for factor in (1, 31, 577, 7919, 1 << 14, 3, 29, 101))


def _grow(path: Path) -> None:
    with path.open("a") as file:
        for _ in range(50_000):
            file.write('{"text": "appended"}\n')


def _shrink(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 3)


def _vanish(path: Path) -> None:
    path.unlink()


def _replace(path: Path) -> None:
    other = path.with_suffix(".new")
    other.write_text('{"text": "another"}\n' * 1000)
    other.replace(path)


def _overwrite(path: Path) -> None:
    path.write_text('{"text": "another"}\n' * 1000)


def _become_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _try_folders(folder: Path, random: Random) -> None:
    (folder / "a.jsonl").mkdir()
    (folder / "a.jsonl" / "b.parquet").mkdir()
    (folder / "loop").symlink_to(folder)
    (folder / "self").symlink_to("self")
    (folder / "c.jsonl").write_bytes(_GOOD)
    deep = folder
    for _ in range(random.choice((3, 300))):
        deep /= "deeper"
        deep.mkdir()
    (deep / "d.jsonl").write_bytes(_GOOD)
    check_end(_start("dedup", folder), (0,), "link")
    check_end(_start("fingerprint", folder / "loop" / "loop" / "c.jsonl", folder), (0,))
    check_end(_start("fingerprint", folder / "self"), (2,), "self")


_SPECIAL: list[tuple[Callable[[Path, Random], None], int]] = [
    (_try_long, 2),
    (_try_bomb, 2),
    (_try_parquet_bomb, 1),
    (_try_twice_packed, 1),
    (_try_devices, 5),
    (_try_pipes, 3),
    (_try_changes, 4),
    (_try_folders, 1),
]


def _try_special(folder: Path, random: Random) -> bool:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    [(attempt, _)] = random.choices(_SPECIAL, [weight for _, weight in _SPECIAL])
    try:
        attempt(folder, random)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return True


# Signals


def _wait_for_handlers(process: Process) -> None:
    """Wait until a run handles signals: before, they are Python's."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError):
            caught = next(
                line
                for line in Path(f"/proc/{process.pid}/status").read_text().splitlines()
                if line.startswith("SigCgt")
            )
            if int(caught.split()[1], 16) & 1 << (signal.SIGTERM - 1):
                return
        time.sleep(0.002)


def _members(group: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, own = path.read_text().rpartition(")")[2].split()[:3]
            if int(own) == group and state != "Z":
                found.append(int(path.parent.name))
    return found


def _try_signals(folder: Path, url: str, random: Random) -> bool:
    shutil.rmtree(folder, ignore_errors=True)
    out = folder / "out"
    out.mkdir(parents=True)
    lines = [json.dumps({"id": n, "text": words_of(n)}) + "\n" for n in range(30_000)]
    path = folder / "a.jsonl"
    path.write_text("".join(lines))
    database = ["--database", url]
    command: list[object] = random.choice(
        [
            ["dedup", path, "--workers", 2, "--output", out / "clusters.jsonl", "--clean", out / "clean.jsonl"],
            ["dedup", path, "--workers", 3, "--output", out / "clusters.jsonl", "--report", out / "report.html"],
            [
                "load",
                "loaded",
                path,
                "--id-column",
                "slug",
                "--text-column",
                "body",
                "--column",
                "fp",
                "--workers",
                2,
                *database,
            ],
            ["backfill", "article", "--text-column", "body", "--column", "fingerprint", "--workers", 2, *database],
            ["index", "create", "article", "fingerprint", *random.choice(([], ["--concurrently"])), *database],
            ["fingerprint", path, "--workers", 3],
        ]
    )
    process = _start(*command, stdout=subprocess.DEVNULL)
    _wait_for_handlers(process)
    how = random.choice((signal.SIGINT, signal.SIGINT, signal.SIGINT, signal.SIGTERM))
    time.sleep(random.choice((0.0, random.random() * 0.3, random.random() * 4)))
    for _ in range(random.choice((1, 1, 2, 3))):
        with contextlib.suppress(ProcessLookupError):
            # Ctrl-C reaches the group; a supervisor may signal the process, or all.
            (os.killpg if how == signal.SIGINT or random.random() < 0.3 else os.kill)(process.pid, how)
        time.sleep(random.choice((0.0, 0.01, random.random() * 0.3)))
    code, said, _ = _end(process, 120)
    shown = f"{process.args}\nexit code {code}\n{said[-3000:]}"
    told = "simsql: interrupted\n" if how == signal.SIGINT else "simsql: terminated\n"
    done = code == 0
    if not done and (code != 128 + how or not said.endswith(told)):
        # It may end by itself at the same moment.
        late = (code in (128 + how, 1, 2) and not said) or (code == -how and said.endswith(told))
        if not late:
            raise WrongError(f"exit code {code}", shown)
    if any(word in said for word in ("Traceback", "Process Spawn", "Exception ignored", "KeyboardInterrupt")):
        raise WrongError("a traceback", shown)
    if not done and (left := [each.name for each in out.iterdir() if each.name.startswith(".")]):
        raise WrongError("files are left", f"{left}\n{shown}")
    deadline = time.monotonic() + 20
    while left := _members(process.pid):
        if time.monotonic() > deadline:
            raise WrongError("processes are left", f"{left}\n{shown}")
        time.sleep(0.05)
    return done


@contextmanager
def _with_signals(folder: Path) -> Iterator[Attempt]:
    # Children inherit what is ignored, and a shell ignores SIGINT in the background.
    with run_server(find_programs()[0]) as server, server.new_database() as url:
        with server.connect(url.database) as connection:
            connection.execute(
                "CREATE TABLE loaded (id bigint GENERATED ALWAYS AS IDENTITY, slug text, body text, fp bigint);"
                "CREATE TABLE article (id bigint PRIMARY KEY, body text, fingerprint bigint);"
                "CREATE INDEX ON article (fingerprint);"
                "INSERT INTO article SELECT n, 'the text of number ' || n, NULL FROM generate_series(1, 40000) n"
            )
        full = url.render_as_string(hide_password=False)

        def attempt(random: Random) -> bool:
            try:
                return _try_signals(folder, full, random)
            finally:
                with server.connect(url.database) as connection:
                    connection.execute(
                        "SELECT simsql.drop_index(table_name::regclass, column_name) FROM simsql.indexes;"
                        "UPDATE article SET fingerprint = NULL WHERE id % 2 = 0; TRUNCATE loaded"
                    )

        yield attempt


@contextmanager
def _with_special(folder: Path) -> Iterator[Attempt]:
    yield partial(_try_special, folder)


PROCESSES = [Target("special files", _with_special, 2, 900), Target("signals", _with_signals, 2, 900)]
