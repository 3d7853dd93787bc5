"""Rows within distance 7 of a fingerprint: simsql, pgvector, a scan and a BK-tree on the same fingerprints."""

import importlib
import statistics
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from benchmarks.compare.corpus import Labelled, Quality
from benchmarks.compare.servers import Server
from benchmarks.compare.table import Row
from benchmarks.data import Fingerprints
from benchmarks.harness import copy_fingerprints
from benchmarks.oracle import Oracle, WrongResultError, as_bigint
from simsql import simhash_many

DISTANCE = 7
_ROUNDS = 3
_SCHEMA, _NOTHING = "CREATE in the database", "nothing"
_EXTENSION = "the extension `vector`"
_NEAR = f"SELECT t.id FROM simsql.near('%s', %%s, {DISTANCE}) AS n JOIN %s AS t USING (fingerprint)"
_SCAN = f"SELECT id FROM plain WHERE bit_count((fingerprint # %s)::bit(64)) <= {DISTANCE}"
# As pgvector's README says of filters by distance.
_HNSW = (
    "WITH nearest AS MATERIALIZED (SELECT id, bits <~> %s::bigint::bit(64) AS distance FROM vectors"
    f" ORDER BY distance LIMIT %s) SELECT id FROM nearest WHERE distance <= {DISTANCE}"
)


@dataclass
class System:
    """A way to search, with what its index takes, and what it has answered so far."""

    name: str
    needs: str
    search: Callable[[int], Collection[int]]
    """From a fingerprint, as a bigint, to the places of the rows."""
    exact: bool = True
    build: float | None = None
    disk: int | None = None
    prepare: Callable[[], object] = lambda: None
    server: Server | None = None
    answers: list[list[int]] = field(default_factory=list)
    clock: list[float] = field(default_factory=list)
    processor: float = 0.0


def fill(corpus: Labelled, rows: int, seed: int) -> Fingerprints:
    """Return distinct fingerprints: those of the texts, and random ones up to `rows`."""
    values = np.unique(simhash_many(corpus.texts).compressed())
    chance = np.random.default_rng((seed, 8))
    others = np.unique(chance.integers(0, 2**64, max(0, rows - values.size), dtype=np.uint64))
    values = np.union1d(values, others)
    chance.shuffle(values)
    return values


def measure(
    corpus: Labelled, server: Server, rows: int, queries: int, seed: int, peers: bool, say: Callable[[str], None]
) -> Iterator[Row]:
    """Yield what each system does. Raises WrongResultError if an exact one finds other rows than brute force."""
    values = fill(corpus, rows, seed)
    asked = simhash_many([corpus.texts[place] for place in corpus.queries(queries, seed)]).compressed()
    systems = [*_simsql(server, values, say), *(_peers(server, values, say) if peers else [])]
    for _ in range(_ROUNDS):
        for system in systems:
            _ask(system, asked.tolist())
    oracle = Oracle(values)
    for system in systems:
        quality = _judge(system, oracle, asked.tolist())
        calls = len(system.clock)
        say(f"{system.name}: {calls} searches")
        yield Row(
            system.name,
            quality,
            system.processor / calls,
            statistics.median(system.clock),
            system.needs,
            build=system.build,
            disk=system.disk,
        )


def _ask(system: System, queries: Sequence[int]) -> None:
    """Ask all queries, after a few to warm up. The answers of every round have to be the same."""
    system.prepare()
    bigints = list(map(as_bigint, queries))
    for query in bigints[:10]:
        system.search(query)
    before = _processor_seconds(system)
    answers = []
    for query in bigints:
        began = time.perf_counter()
        answer = system.search(query)
        system.clock.append(time.perf_counter() - began)
        answers.append(sorted(answer))
    system.processor += _processor_seconds(system) - before
    if system.answers and answers != system.answers:
        raise WrongResultError(f"{system.name}: a search finds other rows when it is repeated")
    system.answers = answers


def _processor_seconds(system: System) -> float:
    return system.server.processor_seconds() if system.server else time.process_time()


def _judge(system: System, oracle: Oracle, queries: Sequence[int]) -> Quality:
    """Count the rows beside the one that has the same fingerprint as the query."""
    found = right = wanted = 0
    for query, places in zip(queries, system.answers, strict=True):
        answer = set(oracle.values[np.array(places, dtype=np.int64)].tolist()) - {query}
        near = {fingerprint for fingerprint, _ in oracle.near(query, DISTANCE)} - {query}
        if not answer <= near or (system.exact and answer != near):
            raise WrongResultError(f"{system.name}: a search for {query} finds {answer} instead of {near}")
        found, right, wanted = found + len(answer), right + len(answer & near), wanted + len(near)
    return Quality(found, right, wanted)


def _simsql(server: Server, values: Fingerprints, say: Callable[[str], None]) -> Iterator[System]:
    """Make a table for each storage, with an index, and yield them."""
    for storage in ("tables", "expression"):
        name = f"kept_in_{storage}"
        _load(server, name, values)
        say(f"simsql, {storage}: building")
        before = server.processor_seconds()
        server.connection.execute(
            f"SELECT simsql.create_index('{name}', 'fingerprint', distance => {DISTANCE}, storage => '{storage}')"
        )
        build = server.processor_seconds() - before
        disk = int(str(server.value(f"SELECT sum(bytes) FROM simsql.indexes WHERE table_name = 'public.{name}'")))
        server.connection.execute(f"VACUUM (ANALYZE) {name}")
        search = _statement(server, _NEAR % (name, name))
        yield System(f"simsql, storage `{storage}`", _SCHEMA, search, build=build, disk=disk, server=server)


def _peers(server: Server, values: Fingerprints, say: Callable[[str], None]) -> Iterator[System]:
    _load(server, "plain", values)
    server.connection.execute("VACUUM (ANALYZE) plain")
    yield System("scan with `bit_count`", _NOTHING, _statement(server, _SCAN), server=server)
    if server.has_extension("vector"):
        yield from _pgvector(server, say)
    else:
        say("pgvector: not installed")
    try:
        module = importlib.import_module("pybktree")
    except ImportError:
        say("pybktree: not installed")
        return
    say("pybktree: building")
    places = {as_bigint(value): place for place, value in enumerate(values.tolist())}
    before = time.process_time()
    tree = module.BKTree(lambda one, other: ((one ^ other) & (2**64 - 1)).bit_count(), places)
    build = time.process_time() - before
    yield System(
        "pybktree, in memory",
        _NOTHING,
        lambda query: [places[value] for _, value in tree.find(query, DISTANCE)],
        build=build,
    )


def _pgvector(server: Server, say: Callable[[str], None]) -> Iterator[System]:
    """Index a column of bits with the defaults for HNSW, and search with several lists of candidates."""
    version = server.value("SELECT extversion FROM pg_extension WHERE extname = 'vector'")
    server.connection.execute("CREATE TABLE vectors AS SELECT id, fingerprint::bit(64) AS bits FROM plain")
    say("pgvector: building")
    before = server.processor_seconds()
    server.connection.execute("CREATE INDEX vectors_bits ON vectors USING hnsw (bits bit_hamming_ops)")
    build = server.processor_seconds() - before
    disk = int(str(server.value("SELECT pg_relation_size('vectors_bits')")))
    server.connection.execute("VACUUM (ANALYZE) vectors")
    for candidates in (40, 200, 1000):
        yield System(
            f"pgvector {version} HNSW, `ef_search` {candidates}",
            _EXTENSION,
            _statement(server, _HNSW, candidates),
            exact=False,
            build=build,
            disk=disk,
            prepare=_setting(server, candidates),
            server=server,
        )


def _setting(server: Server, candidates: int) -> Callable[[], object]:
    return lambda: server.connection.execute(f"SET hnsw.ef_search = {candidates}")


def _statement(server: Server, statement: str, *more: int) -> Callable[[int], Collection[int]]:
    def search(query: int) -> Collection[int]:
        rows = server.connection.execute(statement.encode(), [query, *more], prepare=True).fetchall()
        return [place for (place,) in rows]

    return search


def _load(server: Server, table: str, values: Fingerprints) -> None:
    server.connection.execute(f"CREATE TABLE {table} (id bigint, fingerprint bigint)")
    copy_fingerprints(server.connection, table, values, first_id=0)
