"""Measure what it costs to decide about a candidate of a search: python -m benchmarks.candidates prints Markdown.

Some of the sections of the civil codes are searched for among all of them, by their fingerprints. Then the
sketches of the candidates are compared in SQL, or their texts: in Python, after the sketches and without them, and
in SQL by the functions of an unreleased revision, if git has it. The figures are processor time of the server and
of this process. All come from one run, in which the ways to decide take turns.
"""

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import psycopg
from sqlalchemy import Engine

from benchmarks.labelled import find_folder, read_lines
from benchmarks.server import backend_seconds, default_folder, run_server
from simsql import simhash_many, sketch
from simsql.database import SearchIndex, create_index, load_rows, open_engine, to_bigint

# At a larger distance than that of users, a small collection has enough candidates.
DISTANCE, SIMILARITY = 20, 0.6
_QUERIES, _ROUNDS = 30, 2
# The last revision with simsql.similarity(text, text), and its files.
_REVISION = "b4a577b"
_FILES = ("sql/characters.sql", "sql/similarity.sql")
_NEAR = "SELECT count(*) FROM simsql.near('section', {f}, {d}) AS n JOIN section AS s USING (fingerprint)"
# 22 differing bits: what the filter of Python lets pass.
_BY_SKETCHES = _NEAR + " WHERE simsql.similarity(s.sketch, {s}) >= 1 - 22 / 32.0"
_BY_TEXTS = _NEAR + " WHERE simsql.similarity(s.body, %s) >= {least}"


def _old_sql() -> str | None:
    """Return the functions that compared texts in SQL, if git has them."""
    root = Path(__file__).parent.parent
    found = [
        subprocess.run(
            ["git", "show", f"{_REVISION}:{name}"], cwd=root, capture_output=True, text=True, check=False
        )
        for name in _FILES
    ]
    return None if any(one.returncode for one in found) else "".join(one.stdout for one in found)


def measure(engine: Engine, texts: list[str]) -> dict[str, tuple[float, int]]:
    """Return the microseconds for each candidate and the number of rows that each way to decide returns."""
    with engine.begin() as connection:
        connection.exec_driver_sql(
            "CREATE TABLE section (id int PRIMARY KEY, body text, fingerprint bigint, sketch bigint)"
        )
        create_index(connection, "section", "fingerprint", distance=DISTANCE)
        load_rows(
            connection,
            "section",
            ["id", "body"],
            list(enumerate(texts)),
            text_column="body",
            sketch_column="sketch",
        )
        connection.exec_driver_sql("ANALYZE section")
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        raw = connection.connection.dbapi_connection
        assert isinstance(raw, psycopg.Connection)
        index = SearchIndex(connection, "section")
        old = _old_sql()
        if old is not None:
            raw.execute(old)

        def count(statement: str, text: str, *parameters: str) -> int:
            values = {"f": to_bigint(prints[text]), "s": to_bigint(sketches[text]), "d": DISTANCE}
            ((found,),) = raw.execute(statement.format(**values, least=SIMILARITY), parameters or None).fetchall()
            return int(found)

        def compare(text: str, **columns: str) -> int:
            return len(
                index.near_rows(text=text, distance=DISTANCE, similarity=SIMILARITY, text_column="body", **columns)
            )

        ways: dict[str, Callable[[str], int]] = {
            "the search alone": lambda text: count(_NEAR, text),
            "sketches in SQL": lambda text: count(_BY_SKETCHES, text),
            "sketches, then texts in Python": lambda text: compare(text, sketch_column="sketch"),
            "texts in Python": compare,
        }
        if old is not None:
            ways[f"texts in SQL ({_REVISION})"] = lambda text: count(_BY_TEXTS, text, text)
        queries = texts[:: max(1, len(texts) // _QUERIES)][:_QUERIES]
        prints = dict(zip(queries, simhash_many(queries).tolist(), strict=True))
        sketches = {text: sketch(text) for text in queries}
        candidates = sum(count(_NEAR, text) for text in queries)
        seconds, passing = dict.fromkeys(ways, 0.0), {}
        for _ in range(_ROUNDS):
            for name, way in ways.items():
                before = time.process_time() + backend_seconds(raw)
                passing[name] = sum(map(way, queries))
                seconds[name] += time.process_time() + backend_seconds(raw) - before
    return {name: (1e6 * seconds[name] / _ROUNDS / candidates, passing[name]) for name in ways}


def main() -> None:
    """Print the table."""
    rows = read_lines(find_folder() / "civil_codes.jsonl.xz")
    with run_server(default_folder(), len(rows), 0) as server:
        engine = open_engine(server.url())
        figures = measure(engine, [row["text"] for row in rows])
        engine.dispose()
    alone, _ = figures["the search alone"]
    print("| decided by | rows | microseconds a candidate | beyond the search |")
    print("|---|---|---|---|")
    for name, (microseconds, found) in figures.items():
        print(f"| {name} | {found:,} | {microseconds:.1f} | {microseconds - alone:.1f} |")


if __name__ == "__main__":
    main()
