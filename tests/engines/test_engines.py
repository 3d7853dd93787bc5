"""The examples for Spark and DuckDB, and `simsql dedup-table`, decide as `simsql dedup` does, on the same texts.

They run as users run them. `make test-engines` installs what they need; `make test` skips them.
"""

import csv
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from corpus import make_texts
from program import run

REASON = "DuckDB or Spark is not installed: make test-engines installs them"
pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
for needed in ("duckdb", "pyarrow.csv", "pyspark"):
    pytest.importorskip(needed, reason=REASON)

EXAMPLES = Path(__file__).parents[2] / "examples"
FILES = 3
SPARK = {
    "SPARK_LOCAL_IP": "127.0.0.1",
    "PYSPARK_SUBMIT_ARGS": "--master local[2] --conf spark.ui.enabled=false"
    # Compiles less, and starts sooner.
    " --driver-java-options -XX:TieredStopAtLevel=1 pyspark-shell",
}


def make_documents() -> dict[str, str | None]:
    """7,000 texts: families of edited copies, crowds, a chain of texts that resemble the next one, some alone."""
    chance = random.Random(3)
    words = [f"word{number}" for number in range(3_000)]
    long = chance.choices(words, k=2_000)
    texts: dict[str, str | None] = {"dots": "...", "none": None}
    texts |= {f"chain {start}": " ".join(long[start : start + 200]) for start in range(0, 1_800, 25)}
    texts |= make_texts(7, families=1_100, alone=1_000)
    forms = [chance.sample(words, 40) for _ in range(2)]
    for number in range(1_500):
        # The more that is filled in, the less alike they are.
        filled = 1 + number % 3 * 2 if number % 5 < 3 else 1
        form = forms[number % 5 < 3].copy()
        for place in chance.sample(range(40), filled):
            form[place] = str(chance.randrange(500)) if number % 2 else chance.choice(words)
        texts[f"form {number}"] = " ".join(form) + chance.choice([".", " = ", " != ", ""])
    names = list(texts)
    chance.shuffle(names)
    return {name: texts[name] for name in names}


def write_parquet(folder: Path, documents: Mapping[Any, str | None]) -> Path:
    """Write the documents to several files of a folder."""
    ids = list(documents)
    table = pa.table({"text": pa.array(documents.values(), pa.string()), "id": ids, "other": ids})
    folder.mkdir()
    for number in range(FILES):
        some = table.take(pa.array(range(number, table.num_rows, FILES)))
        pq.write_table(some, folder / f"{number}.parquet", row_group_size=300)
    return folder


def write_lines(path: Path, documents: Mapping[Any, str | None]) -> Path:
    """Write the documents with a text as JSON lines."""
    path.write_text("".join(json.dumps({"id": i, "text": text}) + "\n" for i, text in documents.items() if text))
    return path


@pytest.fixture(scope="module")
def documents(tmp_path_factory):
    """A folder of Parquet, and the same texts as JSON lines."""
    folder = tmp_path_factory.mktemp("documents")
    texts = make_documents()
    return write_parquet(folder / "texts", texts), write_lines(folder / "texts.jsonl", texts)


def command(engine: str, source: Path | str, folder: Path, *options: str, work: str = "work") -> list[str]:
    """Return the arguments of an example, which writes to the folder."""
    if engine == "duckdb" and isinstance(source, Path):
        source /= "*.parquet"
    decisions = folder / "decisions.parquet"
    arguments = [EXAMPLES / engine / "dedup.py", source, decisions, "--work", folder / work, *options]
    return [sys.executable, *map(str, arguments)]


def start(*arguments: Any, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run an example."""
    whole = command(*arguments, **options)
    return subprocess.run(whole, capture_output=True, text=True, check=False, env=os.environ | SPARK)


def decide(engine: str, source: Path | str, folder: Path, *options: str, **others: Any) -> dict[Any, Any]:
    """Run an example; return what is kept in favour of each document, its kind, and its cluster."""
    done = start(engine, source, folder, *options, **others)
    assert done.returncode == 0, done.stderr
    return read_decisions(pq.read_table(folder / "decisions.parquet"))


def read_decisions(table: Any) -> dict[Any, Any]:
    rows = table.to_pylist()
    assert all(0.7 <= row["similarity"] <= 1 for row in rows if row["kept"] != row["id"])
    assert len({row["id"] for row in rows}) == len(rows)
    return {row["id"]: (row["kept"], row["kind"], row["cluster"]) for row in rows}


def of_files(lines: Path, documents: Iterable[str], *options: Any) -> dict[Any, Any]:
    """Return the decisions of `simsql dedup`."""
    done = run("dedup", lines, "--format", "csv", "--quiet", *options)
    assert done.code == (3 if "--against" in options else 0), done.err
    rows = csv.DictReader(done.lines)
    clustered = {row["id"]: (row["kept"], row["kind"] or None, row["representative"]) for row in rows}
    decisions = {name: clustered.get(name, (name, None, None)) for name in documents}
    assert 500 < sum(kept != name for name, (kept, *_) in decisions.items()) < len(clustered) < 6_000
    return decisions


@pytest.mark.parametrize("engine", ["duckdb", "spark"])
def test_a_job_that_was_killed_goes_on_to_the_decisions_of_dedup(documents, tmp_path, engine):
    parquet, lines = documents
    with subprocess.Popen(
        command(engine, parquet, tmp_path), env=os.environ | SPARK, start_new_session=True
    ) as process:
        while not (pairs := [*tmp_path.glob("work/*-pairs*")]):
            assert process.poll() is None
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGKILL)
    assert not (tmp_path / "decisions.parquet").exists()
    (described,) = tmp_path.glob("work/*-described*")
    before = described.stat()
    expected = of_files(lines, make_documents())
    assert decide(engine, parquet, tmp_path) == expected
    assert pairs
    assert described.stat() == before
    crowd = [kept == name for name, (kept, *_) in expected.items() if name.startswith("form")]
    assert 3 < sum(crowd) < len(crowd) - 100
    refused = start(engine, parquet, tmp_path, work="other")
    assert refused.returncode == 1
    assert "decisions.parquet exists: name a new" in refused.stderr
    assert not any(tmp_path.glob("other/*"))
    (tmp_path / "decisions.parquet").rename(tmp_path / "before")
    refused = start(engine, parquet, tmp_path, "--distance", "3")
    assert refused.returncode == 1
    assert "this job began with other documents or rules" in refused.stderr


@pytest.mark.parametrize("engine", ["duckdb", "spark"])
def test_numbers_as_ids_other_options_and_formats(tmp_path, engine):
    chance = random.Random(1)
    texts = dict(zip(chance.sample(range(20_000), len(make_documents())), make_documents().values(), strict=True))
    lines = write_lines(tmp_path / "texts.jsonl", texts)
    options = ["--distance", "3", "--keep", "longest", "--protect", "symbols"]
    expected = of_files(lines, [str(number) for number, text in texts.items() if text], *options)
    if engine == "duckdb":
        source, formats = (
            f"read_json('{lines}', columns = {{id: 'BIGINT', text: 'VARCHAR'}})",
            ["--copy", "FORMAT csv"],
        )
    else:
        source, formats = (
            str(lines),
            ["--read", "json", "primitivesAsString=false", "--write", "csv", "header=true"],
        )
    done = start(engine, source, tmp_path, *options, *formats)
    assert done.returncode == 0, done.stderr
    files = tmp_path.glob("decisions.parquet/*.csv") if engine == "spark" else [tmp_path / "decisions.parquet"]
    columns = dict.fromkeys(("id", "kept", "cluster", "kind"), pa.string())
    how = pa.csv.ConvertOptions(column_types=columns, strings_can_be_null=True)
    found = pa.concat_tables(pa.csv.read_csv(file, convert_options=how) for file in files)
    assert read_decisions(found) == expected


@pytest.mark.parametrize("engine", ["duckdb", "spark"])
def test_new_documents_are_decided_about_and_what_was_kept_stays(documents, tmp_path, engine):
    everything = list(make_documents().items())
    old, more, new = (
        dict(everything[start : start + step]) for start, step in ((0, 4000), (4000, 1000), (5000, 9000))
    )
    kept: dict[Any, str | None] = {}
    against: list[str] = []
    for name, some in (("old", old), ("more", more), ("new", new)):
        archive, lines = (
            write_lines(tmp_path / "archive.jsonl", kept),
            write_lines(tmp_path / f"{name}.jsonl", some),
        )
        parquet = write_parquet(tmp_path / name, some)
        options = ["--against", archive] if kept else []
        expected = of_files(lines, some, *options)
        folder = tmp_path / f"of {name}"
        folder.mkdir()
        assert decide(engine, parquet, folder, *against) == expected
        kept |= {each: text for each, text in some.items() if expected[each][0] == each}
        against += ["--against", str(folder / "work"), str(parquet / "*.parquet")]


def test_the_decisions_about_a_table_are_those_about_files(documents, connection, database_url):
    _, lines = documents
    connection.execute('CREATE TABLE document (id text COLLATE "C" PRIMARY KEY, body text)')
    with connection.cursor().copy("COPY document FROM STDIN") as copy:
        for row in make_documents().items():
            copy.write_row(row)
    connection.commit()
    run("dedup-table", "document", "--text-column", "body", "--into", "made", "--database", database_url).done()
    found = connection.execute("SELECT id, kept_id, kind, representative_id FROM made").fetchall()
    decided = of_files(lines, make_documents()).items()
    expected = {name: (kept, kind, star or name) for name, (kept, kind, star) in decided}
    assert {name: tuple(rest) for name, *rest in found} == {
        name: rest for name, rest in expected.items() if name not in ("dots", "none")
    }


def test_simsql_reaches_the_executors_of_spark(tmp_path):
    """As the README says. Without its path files, the Python of this environment lacks simsql."""
    archive = tmp_path / "simsql.zip"
    subprocess.run(["git", "archive", "--output", archive, "HEAD", "simsql"], cwd=EXAMPLES.parent, check=True)
    python = tmp_path / "python"
    packages = Path(pa.__file__).parents[1]
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{packages}:$PYTHONPATH" exec "{sys.executable}" -S "$@"\n')
    python.chmod(0o755)
    texts = {9: "a ship of iron sails across the northern ocean", 10: "bread and butter", 11: None, 12: "..."}
    arguments = command("spark", write_parquet(tmp_path / "texts", texts), tmp_path)[1:]
    submit = [Path(sys.executable).with_name("spark-submit"), "--master", "local[2]", "--py-files", archive]
    environment = {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": str(python)}
    subprocess.run([*submit, *arguments], env=os.environ | environment, cwd=tmp_path, check=True)
    found = read_decisions(pq.read_table(tmp_path / "decisions.parquet"))
    assert found == {number: (number, None, None) for number in texts}


@pytest.mark.parametrize("ids", [[1, 2, 2], [1, 2, None]])
def test_ids_that_are_not_unique_are_refused(tmp_path, ids):
    table = pa.table({"id": ids, "text": ["one text", "another text", "the third"]})
    pq.write_table(table, tmp_path / "texts.parquet")
    done = start("duckdb", str(tmp_path / "texts.parquet"), tmp_path)
    assert done.returncode == 1
    assert "ids must be unique and not null" in done.stderr
    assert not (tmp_path / "decisions.parquet").exists()
