"""Rows whose text is similar to a given one: simsql and pg_trgm in one server."""

import statistics
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field

from sqlalchemy import Connection

from benchmarks.compare.corpus import SIMILAR, Labelled
from benchmarks.compare.servers import Server
from benchmarks.compare.table import Row
from simsql.database import SearchIndex, create_index, load_rows, open_engine

DISTANCE = 12  # as simsql dedup
_THRESHOLDS = (0.6, 0.7, 0.8)
_TRGM = b"SELECT id FROM note WHERE body %% %s"


@dataclass
class System:
    """A way to search by a text, and what it has answered so far."""

    name: str
    needs: str
    search: Callable[[str], Collection[int]]
    prepare: Callable[[], object]
    build: float
    disk: int
    answers: list[Collection[int]] = field(default_factory=list)
    clock: list[float] = field(default_factory=list)
    processor: float = 0.0


def measure(
    corpus: Labelled, server: Server, queries: int, seed: int, trigrams: bool, say: Callable[[str], None]
) -> Iterator[Row]:
    """Yield what simsql does and, with `trigrams`, pg_trgm with several thresholds."""
    places = corpus.queries(queries, seed)
    engine = open_engine(server.url)
    try:
        with engine.connect() as connection:
            systems = [_simsql(connection, corpus, server, say), *(_pg_trgm(server, say) if trigrams else [])]
            for system in systems:
                _ask(system, server, [corpus.texts[place] for place in places])
    finally:
        engine.dispose()
    for system in systems:
        calls = len(system.clock)
        say(f"{system.name}: {calls} searches")
        yield Row(
            system.name,
            corpus.judge_searches(places, system.answers),
            system.processor / calls,
            statistics.median(system.clock),
            system.needs,
            build=system.build,
            disk=system.disk,
        )


def _ask(system: System, server: Server, texts: Sequence[str]) -> None:
    """Ask all queries, after one to warm up."""
    system.prepare()
    system.search(texts[0])
    before = server.processor_seconds() + time.process_time()
    for text in texts:
        began = time.perf_counter()
        answer = system.search(text)
        system.clock.append(time.perf_counter() - began)
        system.answers.append(answer)
    system.processor = server.processor_seconds() + time.process_time() - before


def _simsql(connection: Connection, corpus: Labelled, server: Server, say: Callable[[str], None]) -> System:
    """Load the texts with their fingerprints, and index these. The build includes neither."""
    server.connection.execute("CREATE TABLE note (id bigint, body text, fingerprint bigint)")
    load_rows(
        connection, "note", ["id", "body"], list(enumerate(corpus.texts)), text_column="body", column="fingerprint"
    )
    connection.commit()
    say("simsql: building")
    before = server.processor_seconds()
    create_index(connection, "note", "fingerprint", distance=DISTANCE)
    connection.commit()
    build = server.processor_seconds() - before
    disk = int(str(server.value("SELECT sum(bytes) FROM simsql.indexes WHERE table_name = 'public.note'")))
    server.connection.execute("VACUUM (ANALYZE) note")
    index = SearchIndex(connection, "note")

    def search(text: str) -> Collection[int]:
        found = index.near_rows(text=text, distance=DISTANCE, similarity=SIMILAR, text_column="body")
        return [match.row["id"] for match in found]

    return System(
        f"simsql, distance {DISTANCE}, texts compared", "CREATE in the database", search, lambda: None, build, disk
    )


def _pg_trgm(server: Server, say: Callable[[str], None]) -> Iterator[System]:
    """Index the same texts."""
    version = server.value("SELECT extversion FROM pg_extension WHERE extname = 'pg_trgm'")
    say("pg_trgm: building")
    before = server.processor_seconds()
    server.connection.execute("CREATE INDEX note_body ON note USING gin (body gin_trgm_ops)")
    build = server.processor_seconds() - before
    disk = int(str(server.value("SELECT pg_relation_size('note_body')")))
    server.connection.execute("VACUUM (ANALYZE) note")

    def search(text: str) -> Collection[int]:
        rows = server.connection.execute(_TRGM, [text])
        return [place for (place,) in rows]

    for threshold in _THRESHOLDS:
        yield System(
            f"pg_trgm {version} GIN, threshold {threshold}",
            "the extension `pg_trgm`",
            search,
            _setting(server, threshold),
            build,
            disk,
        )


def _setting(server: Server, threshold: float) -> Callable[[], object]:
    return lambda: server.connection.execute(f"SET pg_trgm.similarity_threshold = {threshold}")
