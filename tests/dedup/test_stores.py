"""A run in memory and a first run with a table write the same bytes and say the same, whatever they read."""

import contextlib
import dataclasses
import json
import re
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from program import environment
from stages import Stages

from simsql.decide.rules import Keep, Rules
from simsql.dedup.sinks.formats import CLUSTER_WRITERS
from simsql.dedup.job import DedupOptions, run_dedup
from simsql.dedup.store.destination import Destination
from simsql.dedup.sinks.clusters import ClusterOutput
from simsql.documents import Layout, SkipCount, storable
from simsql.documents.output_formats import Format
from simsql.errors import SimsqlError

WORDS = [f"word{number}" for number in range(14)]
# Texts that are near each other, equal, without words, and apart.
TEXTS = [
    " ".join(WORDS),
    " ".join(WORDS[:-1]),
    " ".join(WORDS).upper() + "!",
    " ".join(["zero", *WORDS]),
    " ".join(WORDS) + " \ud800\0",
    "...",
    "",
    "another text that has nothing in common with those about numbers",
]
FILES = ["a.jsonl", "b.jsonl", "c.csv", "d.txt", "e\n.txt", "e\\n.txt", "a.jsonl:1", "-f", "\udcff.txt"]
# Ids that are equal, odd, missing, and the places and names of other documents.
ODD = ["x", "y", "", None, 7, "7", "nul\0", "nul\\x00", "\ud800", "two\nlines", "é", "-f", "./-f", ":1"]
NAMES = ["d.txt", "e\\n.txt", "a.jsonl", "a.jsonl:1", "a.jsonl:01", "b.jsonl:2", "c.csv:2", "a.jsonl:²"]
IDS = [*ODD, *NAMES, "a.jsonl:99999999999999999999"]
VALUES = [None, "", "1", "01", 2, "10", "b", "é", "nan", "\ud800"]
RECORDS = st.lists(st.tuples(st.sampled_from(IDS), st.sampled_from(TEXTS), st.sampled_from(VALUES)), max_size=6)
INPUTS = st.dictionaries(st.sampled_from(FILES), RECORDS, min_size=1)

_TIME = re.compile(rb"\d{4}-\d\d-\d\d \d\d:\d\d")


def write(name, records):
    """Write a file of records or, of the first of them, a text."""
    if name.endswith(".jsonl"):
        lines = [json.dumps({"id": id_, "text": text, "value": value}) for id_, text, value in records]
        Path(name).write_text("\n".join(lines))
    elif name.endswith(".csv"):
        rows = [f'"{id_}","{text}",{value}\n' for id_, text, value in records]
        Path(name).write_bytes("".join(["id,text,value\n", *rows]).encode("utf-8", "surrogatepass"))
    else:
        Path(name).write_bytes("".join(text for _, text, _ in records[:1]).encode("utf-8", "surrogatepass"))


def plain(value):
    """Everything in a summary, for a comparison."""
    if isinstance(value, SkipCount):
        return sorted(value.by_reason.items()), value.examples
    if dataclasses.is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    return value


def outcome(destination, rules, explain, relinked=None):
    """All that a run on the files of this folder leaves, or its error."""
    files = [Path("../clusters"), Path("../drop list"), Path("../report.html")]
    for file in files:
        file.unlink(missing_ok=True)
    output = ClusterOutput(files[0], CLUSTER_WRITERS[Format.JSONL], files[1], True, files[2])
    options = DedupOptions(
        sorted(path.name for path in Path().iterdir()),
        rules=rules,
        layout=Layout(),
        destination=destination,
        output=ClusterOutput() if explain else output,
        explain=explain,
    )
    try:
        summary = run_dedup(options, Stages(read=relinked or (lambda: None)))
    except SimsqlError as error:
        return type(error), str(error)
    # The report has the time of the run.
    found = [_TIME.sub(b"", file.read_bytes()) for file in files if file.exists()]
    return plain(summary), found


@contextlib.contextmanager
def folder_of(inputs):
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent, "input")
        folder.mkdir()
        with contextlib.chdir(folder):
            for name, records in inputs.items():
                write(name, records)
            yield


def new_table(newest):
    """A table that does not exist, in a database that may have the schema."""
    engine, url = newest
    with engine.begin() as connection:
        connection.exec_driver_sql("DROP TABLE IF EXISTS kept")
    return Destination(url, None, "kept")


NASTY = {
    "a.jsonl": [(id_, TEXTS[number % 4], None) for number, id_ in enumerate(IDS)],
    "b.jsonl": [("x", TEXTS[6], 2), ("x", TEXTS[0], "01"), (None, TEXTS[1], "nan"), ("x", TEXTS[0], 2)],
    "c.csv": [("c.csv:2", TEXTS[0], "1"), ("", TEXTS[4], "")],
    **{name: [(None, TEXTS[number % 5], None)] for number, name in enumerate(FILES[3:])},
}


@given(
    INPUTS,
    st.sampled_from([0.6, 0.3, 0.0]),
    st.sampled_from([*Keep, "value"]),
    st.lists(st.sampled_from([*FILES, "."]), max_size=2),
    st.none() | st.tuples(st.sampled_from(IDS).map(str), st.sampled_from(FILES)),
)
@example(NASTY, 0.6, "value", [], None)
@example(NASTY, 0.0, Keep.LONGEST, [], None)
@example(NASTY, 0.6, Keep.OLDEST, ["b.jsonl", "\udcff.txt"], None)
@example(NASTY, 0.6, Keep.CENTRAL, [], ("a.jsonl:10", "d.txt"))
@example(NASTY, 0.6, Keep.CENTRAL, [], ("x", "d.txt"))
@example(NASTY, 0.6, Keep.FIRST, [], ("e\\n.txt", "a.jsonl:1"))
@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_both_stores_give_the_same_bytes(newest, inputs, similarity, keep, under, explain):
    rules = Rules(12, similarity, keep_field=keep) if keep == "value" else Rules(12, similarity, keep=keep)
    # As arguments of a command can be.
    explain = explain and tuple(name.encode("utf-8", "replace").decode().replace("\0", "") for name in explain)
    with folder_of(inputs):
        rules = replace(rules, keep_under=tuple(storable(Path(name).resolve()) for name in under))
        expected = outcome(Destination(), rules, explain)
        assert expected == outcome(new_table(newest), rules, explain)
    if inputs is NASTY and not explain:
        assert expected[0]["clusters"]["shared"] > 0
        assert len(expected[1]) == 3


@pytest.mark.parametrize(("name", "times"), [("b.jsonl", 3), ("d.txt", 1)])
def test_files_that_are_read_twice_count_once_in_both_stores(newest, name, times):
    later = Path(f"z{Path(name).suffix}")

    def relink():  # after the files have been listed
        later.unlink()
        later.symlink_to(name)

    found = []
    with folder_of(NASTY):
        for destination in (Destination(), new_table(newest)):
            later.unlink(missing_ok=True)
            write(later.name, NASTY[name])
            found.append(outcome(destination, Rules(), None, relink))
    assert found[0] == found[1]
    reasons, examples = found[0][0]["skips"]
    assert dict(reasons)["read twice"] == times
    assert any(f"the same document was already read at {name}" in skip.detail for skip in examples)


def test_a_run_in_memory_imports_nothing_of_postgresql(lines, groups):
    script = (
        "import sys; sys.argv[0] = 'simsql'\n"
        "from simsql.cli import _run_app\n"
        "code = _run_app()\n"
        "sys.exit(code or str({'sqlalchemy', 'psycopg', 'alembic', 'simsql.server'} & set(sys.modules)))"
    )
    command = [sys.executable, "-c", script, "dedup", lines, "--report", lines.with_suffix(".html")]
    result = subprocess.run(command, capture_output=True, text=True, check=False, env=environment(None))
    assert result.stderr.splitlines()[-1] == "set()"
    assert result.stdout.count("\n") == len(groups)
