"""Measure searches by sentences, titles and names of products beside pg_trgm: python -m benchmarks.similar_titles.

Queries are records of the table with a typo, another word, two other words, two words swapped or words appended.
All systems search the same table of the same server, which is Debian's if the wheel's lacks pg_trgm. Prints
Markdown, by words of the record and by edit:

- recall: the share of the queries that find their record;
- precision: of the rows that are found, the share that are such records or reach pg_trgm's threshold;
- rows of a search, and milliseconds of the processor, of the server and of this process: mean, median and 99%.
"""

import random
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated

import numpy as np
import psycopg
import typer
from sqlalchemy import Connection

from benchmarks.compare.servers import start, start_with
from benchmarks.figures import markdown_line
from benchmarks.finders import DESIGN, Finder, Near, Similar
from benchmarks.server import backend_seconds
from benchmarks.short_records import CLASSES, EDITS, Records
from benchmarks.similar_recall import Share
from simsql.database import SearchIndex, create_index, load_rows, open_engine

THRESHOLD = 0.5  # of pg_trgm
# Recipe, finder and similarity.
SYSTEMS: tuple[tuple[str, Finder, float], ...] = (
    ("words12-log-1", Near(12), 0.6),
    ("words12-log-1", Similar(), 0.4),
    ("characters3-log-1", Similar(), 0.5),
    ("trigrams1-set-1", Similar(), THRESHOLD),
    ("trigrams1-set-1", Similar(0.9), THRESHOLD),
)
LONG_ENOUGH = 8
_ALL, _LONG = "all", f"{LONG_ENOUGH} words and more"
GROUPS = (*(f"{shortest}-{longest} words" for shortest, longest in CLASSES), *EDITS, _LONG, _ALL)


@dataclass(frozen=True)
class Query:
    """An edited record, and the place of the record."""

    text: str
    place: int
    words: str
    edit: str
    is_long: bool

    @property
    def groups(self) -> list[str]:
        """The lines of the table in which it counts."""
        return [self.words, *[_LONG] * self.is_long, self.edit, _ALL]


@dataclass
class Answers:
    """What searches by one system found and took."""

    queries: int = 0
    found: int = 0
    rows: int = 0
    right: int = 0
    seconds: list[float] = field(default_factory=list)

    def cells(self) -> list[str]:
        """Return the cells of the table."""
        seconds = [np.mean(self.seconds), *np.quantile(self.seconds, [0.5, 0.99])]
        precision = f"{self.right / self.rows:.3f}" if self.rows else "-"
        return [
            str(Share(self.found, self.queries)),
            precision,
            f"{self.rows / self.queries:.2f}",
            *(f"{1000 * one:.2f}" for one in seconds),
        ]


def make_queries(records: Records, rows: Sequence[str], count: int, seed: int) -> Iterator[Query]:
    """Yield `count` queries for each class of lengths, with edits of all kinds."""
    chance = random.Random(seed)  # noqa: S311 - no secret
    for shortest, longest in CLASSES:
        places = [place for place, row in enumerate(rows) if shortest <= len(row.split()) <= longest]
        for number, place in enumerate(chance.sample(places, count)):
            edit = list(EDITS)[number % len(EDITS)]
            text = records.edit(rows[place], edit)
            yield Query(text, place, f"{shortest}-{longest} words", edit, shortest >= LONG_ENOUGH)


def measure(
    connection: Connection, rows: Sequence[str], queries: Sequence[Query]
) -> Iterator[tuple[str, dict[str, Answers]]]:
    """Yield the answers of each system by the groups of queries."""
    indexes: dict[str, SearchIndex] = {}
    for recipe in dict.fromkeys(recipe for recipe, _, _ in SYSTEMS):
        table = f"title_{len(indexes)}"
        connection.exec_driver_sql(f"CREATE TABLE {table} (id int PRIMARY KEY, body text, fingerprint bigint)")
        create_index(connection, table, "fingerprint", design=DESIGN, recipe=recipe)
        load_rows(connection, table, ["id", "body"], list(enumerate(rows)), text_column="body")
        indexes[recipe] = SearchIndex(connection, table)
    connection.exec_driver_sql("CREATE INDEX ON title_0 USING gin (body gin_trgm_ops)")
    connection.exec_driver_sql("VACUUM ANALYZE")
    connection.exec_driver_sql(f"SET pg_trgm.similarity_threshold = {THRESHOLD}")
    raw = connection.connection.dbapi_connection
    assert isinstance(raw, psycopg.Connection)

    def by_trigrams(text: str) -> Collection[int]:
        return {place for (place,) in raw.execute("SELECT id FROM title_0 WHERE body %% %s", [text])}

    systems: dict[str, Callable[[str], Collection[int]]] = {f"pg_trgm GIN, {THRESHOLD}": by_trigrams}
    for recipe, finder, similarity in SYSTEMS:
        search = partial(_search, finder, indexes[recipe], similarity)
        systems[f"{recipe}, {finder.name}, similarity {similarity}"] = search
    for name, search in systems.items():
        groups = {group: Answers() for group in GROUPS}
        search(queries[0].text)  # the first search of a connection takes longer
        for query in queries:
            before = time.process_time() + backend_seconds(raw)
            found = search(query.text)
            seconds = time.process_time() + backend_seconds(raw) - before
            right = _count_right(raw, query, found)
            for group in query.groups:
                answers = groups[group]
                answers.queries += 1
                answers.found += query.place in found
                answers.rows += len(found)
                answers.right += right
                answers.seconds.append(seconds)
        yield name, groups


def _search(finder: Finder, index: SearchIndex, similarity: float, text: str) -> Collection[int]:
    return finder.search(index, text, similarity)


def _count_right(raw: psycopg.Connection, query: Query, found: Collection[int]) -> int:
    """Return how many of the rows are the record that was edited, or similar by pg_trgm."""
    (count,) = raw.execute(
        "SELECT count(*) FROM title_0 WHERE id = ANY(%s) AND (id = %s OR similarity(body, %s) >= %s)",
        [list(found), query.place, query.text, THRESHOLD],
    ).fetchone() or (0,)
    return int(count)


def main(
    rows: Annotated[int, typer.Option(help="Records in the table.")] = 100_000,
    searches: Annotated[int, typer.Option(help="Queries for each class of lengths.")] = 400,
    seed: Annotated[int, typer.Option(help="Of records and edits.")] = 1,
) -> None:
    """Print the table."""
    records = Records(seed)
    texts = records.make(rows)
    queries = list(make_queries(records, texts, searches, seed))
    with start(rows) as own, start_with("pg_trgm", rows, own) as server:
        if not server.has_extension("pg_trgm"):
            sys.exit("pg_trgm is not installed: apt-get install postgresql")
        print(f"PostgreSQL {server.version}, {len(texts):,} records\n")
        engine = open_engine(server.url)
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            print(markdown_line(["queries", "system", "recall", "precision", "rows", "ms", "median", "99%"]))
            print(markdown_line(["---", "---", *["---:"] * 6]))
            for name, groups in measure(connection, texts, queries):
                for group, answers in groups.items():
                    print(markdown_line([group, name, *answers.cells()]), flush=True)
        engine.dispose()


if __name__ == "__main__":
    typer.run(main)
