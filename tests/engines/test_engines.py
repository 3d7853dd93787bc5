"""The examples for Spark and DuckDB, and `simsql dedup-table`, decide as `simsql dedup` does, on the same texts.

They run as users run them. `make test-engines` installs what they need; `make test` skips them.
"""

import csv
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from corpus import make_texts
from program import run

REASON = "DuckDB or Spark is not installed: make test-engines installs them"
pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
for needed in ("duckdb", "pyspark"):
    pytest.importorskip(needed, reason=REASON)

EXAMPLES = Path(__file__).parents[2] / "examples"
FILES = 3
SPARK = {
    "SPARK_LOCAL_IP": "127.0.0.1",
    "PYSPARK_SUBMIT_ARGS": "--master local[2] --conf spark.ui.enabled=false pyspark-shell",
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


def write_parquet(folder: Path, ids: list[str] | list[int | None], texts: list[str | None]) -> Path:
    """Write the documents to several files of a folder."""
    table = pa.table({"text": pa.array(texts, pa.string()), "id": ids, "other": ids})
    folder.mkdir()
    for number in range(FILES):
        some = table.take(pa.array(range(number, table.num_rows, FILES)))
        pq.write_table(some, folder / f"{number}.parquet", row_group_size=300)
    return folder


@pytest.fixture(scope="module")
def documents(tmp_path_factory):
    """A folder of Parquet, and the same texts as JSON lines."""
    folder = tmp_path_factory.mktemp("documents")
    texts = make_documents()
    lines = [json.dumps({"id": name, "text": text}) for name, text in texts.items() if text is not None]
    (folder / "texts.jsonl").write_text("\n".join(lines))
    return write_parquet(folder / "texts", list(texts), list(texts.values())), folder / "texts.jsonl"


def start(engine: str, documents: Path, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run an example, which writes to decisions.parquet."""
    source = documents / "*.parquet" if engine == "duckdb" else documents
    work = folder / "work"
    work.mkdir()
    arguments = [source, folder / "decisions.parquet", "--work", work, *options]
    if engine == "spark":
        arguments += ["--parts", "4"]
    command = [sys.executable, EXAMPLES / engine / "dedup.py", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | SPARK)


def decide(engine: str, documents: Path, folder: Path, *options: str) -> dict[object, tuple[object, ...]]:
    """Run an example; return what is kept in favour of each document, its kind, and its cluster."""
    done = start(engine, documents, folder, *options)
    assert done.returncode == 0, done.stderr
    rows = pq.read_table(folder / "decisions.parquet").to_pylist()
    assert all(0.7 <= row["similarity"] <= 1 for row in rows if row["kept"] != row["id"])
    assert len({row["id"] for row in rows}) == len(rows)
    return {row["id"]: (row["kept"], row["kind"], row["cluster"]) for row in rows}


def of_files(lines: Path, *options: str) -> dict[str, tuple[str, str | None, str | None]]:
    """Return the decisions of `simsql dedup`."""
    rows = csv.DictReader(run("dedup", lines, "--format", "csv", "--quiet", *options).done().lines)
    clustered = {row["id"]: (row["kept"], row["kind"] or None, row["representative"]) for row in rows}
    decisions = {name: clustered.get(name, (name, None, None)) for name in make_documents()}
    assert 1_000 < sum(kept != name for name, (kept, *_) in decisions.items()) < len(clustered) < 6_000
    return decisions


@pytest.mark.parametrize("engine", ["duckdb", "spark"])
@pytest.mark.parametrize(
    "options",
    [(), ("--distance", "3", "--keep", "longest", "--protect", "symbols")],
    ids=["default", "options"],
)
def test_the_decisions_are_those_of_dedup(documents, tmp_path, engine, options):
    parquet, lines = documents
    expected = of_files(lines, *options)
    assert decide(engine, parquet, tmp_path, *options) == expected
    crowd = [kept == name for name, (kept, *_) in expected.items() if name.startswith("form")]
    assert 3 < sum(crowd) < len(crowd) - 100


def test_the_decisions_about_a_table_are_those_about_files(documents, connection, database_url):
    _, lines = documents
    connection.execute('CREATE TABLE document (id text COLLATE "C" PRIMARY KEY, body text)')
    with connection.cursor().copy("COPY document FROM STDIN") as copy:
        for row in make_documents().items():
            copy.write_row(row)
    connection.commit()
    run("dedup-table", "document", "--text-column", "body", "--into", "made", "--database", database_url).done()
    found = connection.execute("SELECT id, kept_id, kind, representative_id FROM made").fetchall()
    decided = of_files(lines).items()
    expected = {name: (kept, kind, star or name) for name, (kept, kind, star) in decided}
    assert {name: tuple(rest) for name, *rest in found} == {
        name: rest for name, rest in expected.items() if name not in ("dots", "none")
    }


@pytest.mark.parametrize("engine", ["duckdb", "spark"])
def test_numbers_are_ids_and_nothing_is_similar(tmp_path, engine):
    texts = ["a ship of iron sails across the northern ocean", "bread and butter", None, "..."]
    parquet = write_parquet(tmp_path / "texts", [9, 10, 11, 12], texts)
    assert decide(engine, parquet, tmp_path) == {number: (number, None, None) for number in (9, 10, 11, 12)}


@pytest.mark.parametrize("ids", [[1, 2, 2], [1, 2, None]])
def test_ids_that_are_not_unique_are_refused(tmp_path, ids):
    parquet = write_parquet(tmp_path / "texts", ids, ["one text", "another text", "the third"])
    done = start("duckdb", parquet, tmp_path)
    assert done.returncode != 0
    assert "ids must be unique and not null" in done.stderr
    assert not (tmp_path / "decisions.parquet").exists()
    assert not any((tmp_path / "work").iterdir())
