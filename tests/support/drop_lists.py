"""Runs of `simsql dedup` with a drop list, and somebody who applies it: removes the files and the records."""

import bz2
import gzip
import json
import lzma
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from stages import Stages

from simsql import similarity
from simsql.decide.rules import Rules
from simsql.dedup.job import DedupOptions, run_dedup
from simsql.dedup.sinks.clusters import ClusterOutput
from simsql.documents import Layout
from simsql.errors import SimsqlError

LIMIT = 20_000
"""Bytes of the longest document that the runs read."""
_PACKED = {".gz": gzip, ".xz": lzma, ".bz2": bz2}


def text_about(subject: object, words: int = 30) -> str:
    """Return a text that shares no word with those about other subjects."""
    return " ".join(f"{subject}x{number}" for number in range(words))


def run(
    paths: Sequence[str | Path], folder: Path, meanwhile: Callable[[], object] = lambda: None, **options: Any
) -> list[str]:
    """Run in this process and return the drop list. `meanwhile` is called once everything has been read."""
    drop_list, clusters = (folder.with_name(f"{folder.name} {name}") for name in ("drop list", "clusters"))
    given = DedupOptions(
        [str(path) for path in paths],
        rules=options.pop("rules", Rules()),
        layout=Layout(max_document=LIMIT),
        output=ClusterOutput(clusters, drop_list=drop_list, null=True),
        **options,
    )
    drop_list.unlink(missing_ok=True)
    try:
        run_dedup(given, Stages(find=meanwhile))
    except SimsqlError as error:
        if not re.match("no documents in|no document that was read is below", str(error)):
            raise
        return []
    listed = drop_list.read_bytes().decode().split("\0")[:-1]
    members = [
        member
        for line in clusters.read_bytes().decode().split("\n")[:-1]
        for member in json.loads(line)["members"]
    ]
    droppable = [{member["id"], member["place"]} for member in members if member["droppable"]]
    assert len(listed) <= len(droppable)
    assert set(listed) <= set().union(*droppable)
    return listed


def apply(drop_list: Iterable[str], paths: Iterable[str | Path]) -> None:
    """Remove what the list of a run on these paths names: files, and records by their ids or places."""
    records: dict[str, list[tuple[Path, int]]] = {}
    for path in _files(*paths):
        for line, record in _records(path):
            for name in (str(record.get("id")), f"{path}:{line}"):
                records.setdefault(name, []).append((path.resolve(), line))
    removed: dict[Path, set[int]] = {}
    for name in drop_list:
        if os.path.lexists(name):
            Path(name).unlink()
            continue
        assert name in records or name.startswith("stdin:"), name
        for path, line in records.get(name, []):
            removed.setdefault(path, set()).add(line)
    for path, lines in removed.items():
        if path.exists():
            content = read(path).split(b"\n")
            kept = [b"" if number in lines else line for number, line in enumerate(content, 1)]
            # In place, as an editor may do: links to the file see it, too.
            path.write_bytes(_PACKED.get(path.suffix, _Plain).compress(b"\n".join(kept)))


class _Plain:
    compress = staticmethod(bytes)
    decompress = staticmethod(bytes)


def texts_in(folder: Path) -> set[str]:
    """Return all texts that are in a folder, in files and in records, without following links."""
    found = set()
    for path in _files(folder):
        records = list(_records(path))
        if records or _is_record_file(path):
            found |= {str(value) for _, record in records for value in record.values() if "x1 " in str(value)}
            continue
        try:
            found.add(read(path).decode())
        except UnicodeDecodeError:
            found.add(read(path).decode("utf-16", "replace"))
    return found


def contents(folder: Path) -> dict[Path, bytes]:
    """Return the files in a folder, which may be missing, without following links."""
    return {path: path.read_bytes() for path in _files(folder)}


def lost(before: set[str], after: set[str]) -> list[str]:
    """Return the texts that have no copy any more, and no near-duplicate."""
    gone = before - after
    return [text for text in gone if not any(similarity(text, other) >= Rules().drop for other in after)]


def read(path: Path) -> bytes:
    """Return the content of a file, unpacked; b"" if it is damaged."""
    data = path.read_bytes()
    try:
        for packed in _PACKED.values():
            if data.startswith(packed.compress(b"")[:3]):
                return packed.decompress(data)
    except (OSError, EOFError, ValueError, lzma.LZMAError):
        return b""
    return data


def _files(*paths: str | Path) -> Iterator[Path]:
    for path in map(Path, paths):
        if path.is_file():
            yield path
        for parent, _, names in os.walk(path):
            yield from (file for name in names if stat.S_ISREG((file := Path(parent, name)).lstat().st_mode))


def _is_record_file(path: Path) -> bool:
    return ".jsonl" in path.suffixes[-2:] or ".csv" in path.suffixes[-2:]


def _records(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    if not _is_record_file(path):
        return
    for number, line in enumerate(read(path).split(b"\n"), 1):
        try:
            record = json.loads(line)
        except ValueError:
            if ".csv" in path.suffixes and line.count(b",") == 1:
                identity, text = line.decode("utf-8", "replace").split(",")
                yield number, {"id": identity, "text": text}
            continue
        if isinstance(record, dict):
            yield number, record
