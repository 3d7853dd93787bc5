"""A key that is stored many times, until a vacuum removes its copies, is neither read nor sorted as often."""

import itertools
import json
import random

import pytest
from articles import DESIGNS, create_articles, create_index, create_table, near
from internals import key_tables, near_many_statements, run_statements, set_candidates
from oracle import flip
from oracle import near as expected_near
from scoped import create_scoped, expected, search
from similar import expected_candidates, make_query

pytestmark = pytest.mark.oldest_version

HOT = 0x0123456789ABCDEF
COPIES = 20_000
# The bits of HOT that queries flip; at distance 3 the last two do not find it, but read ranges that it is in.
FLIPPED = [[], [5], [5, 20, 50], [5, 8, 20, 50], [1, 2, 3, 4, 5, 6]]
QUERIES = [flip(HOT, bits) for bits in FLIPPED]


def add_copies(connection, fingerprint, copies):
    """What so many inserts of one row each leave in the key tables of the only index, and not in the table."""
    for keys in key_tables(connection, fingerprint=f"('{fingerprint}'::bigint)"):
        connection.execute(
            f"INSERT INTO simsql.{keys.name} SELECT k.* FROM simsql.{keys.name} AS k, generate_series(1, %s)"
            f" WHERE k.key = {keys.key}",
            [copies],
        )


@pytest.fixture
def hot(connection):
    """Rows far from HOT and near it, an index, and very many keys of HOT."""
    chance = random.Random(51)
    fingerprints = [HOT, flip(HOT, [60]), flip(HOT, [0, 30]), *(chance.getrandbits(63) for _ in range(5_000))]
    create_articles(connection, fingerprints)
    add_copies(connection, HOT, COPIES)
    connection.execute("VACUUM ANALYZE")
    return connection


def keys_read(connection, search):
    """How many entries of B-trees on keys a search reads."""
    read = "SELECT sum(pg_stat_get_xact_tuples_returned(oid)) FROM pg_class WHERE relname ~ '^keys_1_.*key_idx$'"
    with connection.transaction():
        (before,) = connection.execute(read).fetchone()
        connection.execute(search)
        return connection.execute(read).fetchone()[0] - before


def test_a_search_reads_few_of_the_copies_of_a_key(hot):
    for within, query in itertools.product((3, 7), QUERIES):
        assert keys_read(hot, f"SELECT * FROM simsql.near('article', {query}, {within})") < 5_000


def test_a_search_for_similar_texts_reads_few_of_the_copies_of_a_key(hot):
    stored = [fingerprint for (fingerprint,) in hot.execute("SELECT fingerprint FROM article")]
    for query in QUERIES:
        wanted = make_query(query, (4, 1, 0), seed=1)
        search = f"SELECT * FROM simsql.similar_candidates('article', '{wanted}')"
        expected = expected_candidates(stored, wanted)
        assert hot.execute(search).fetchall() == expected
        assert keys_read(hot, search) < (5_000 if HOT in [found for found, *_ in expected] else 4 * COPIES)
    plan = hot.execute(f"SELECT simsql.explain_similar('article', '{make_query(HOT, (4, 1, 0), seed=1)}')")
    assert any("equal keys are skipped" in line for (line,) in plan)


def test_many_searches_read_few_of_the_copies_of_a_key(hot):
    chance = random.Random(52)
    queries = [flip(HOT, chance.sample(range(64), 2)) for _ in range(20)]
    read = keys_read(hot, f"SELECT * FROM simsql.near_many('article', ARRAY{queries}::bigint[], 3)")
    assert read < 40_000


def test_explain_near_tells_that_equal_keys_are_skipped(hot):
    def told(query):
        return [
            line
            for (line,) in hot.execute("SELECT simsql.explain_near('article', %s, 3)", [query])
            if "skip" in line
        ]

    assert told(QUERIES[0]) == ["more than 1999 candidates: equal keys are skipped"]
    assert told(~HOT) == []


# What is found


def neighbours(seed):
    """HOT, the numbers right before and behind it, and some hundred fingerprints that share a block with it."""
    chance = random.Random(seed)
    return [
        *(HOT ^ number for number in range(32)),
        *(flip(HOT, chance.sample(range(48), chance.randrange(1, 24))) for _ in range(400)),
    ]


@pytest.mark.parametrize("design", DESIGNS[:-1], ids=str)
def test_nothing_is_lost_where_keys_are_skipped(connection, design):
    set_candidates(connection, 3)
    fingerprints = neighbours(53)
    create_table(connection, fingerprints)
    create_index(connection, design=design)
    # Pieces of a range end behind a hundred keys: before, in and behind the copies of one.
    for fingerprint, copies in zip(fingerprints, (250, 99, 98, 100, 101, 1, 0, 199), strict=False):
        add_copies(connection, fingerprint, copies)
    connection.execute("DELETE FROM article WHERE id % 5 = 2")
    live = [found for (found,) in connection.execute("SELECT fingerprint FROM article")]
    for query in (*fingerprints[:9], flip(HOT, [0, 63]), ~HOT):
        for within in (0, 3, 7, 10):
            assert near(connection, query, within) == expected_near(live, query, within)


@pytest.mark.parametrize("scope", [None, {"tenant": 1}])
def test_nothing_is_lost_where_many_searches_skip_keys(connection, scope):
    set_candidates(connection, -1000)  # so that not even fifty for each query are allowed
    fingerprints = neighbours(54)
    create_scoped(
        connection, scope=scope or (), rows=[(number % 2, found) for number, found in enumerate(fingerprints)]
    )
    for fingerprint, copies in zip(fingerprints, (250, 250, 99, 98, 100, 101), strict=False):
        add_copies(connection, fingerprint, copies)
    connection.execute("DELETE FROM article WHERE id % 5 = 2")
    live = connection.execute("SELECT print FROM article WHERE %s OR tenant = 1", [scope is None]).fetchall()
    queries = [*fingerprints[:9], ~HOT]
    for within in (0, 3, 7):
        _, statements = near_many_statements(connection, 21, 10**7, within, scope and json.dumps(scope))
        found = run_statements(connection, statements, queries, within)
        assert found == expected("near_many", [row[0] for row in live], within, queries)


def test_keys_are_skipped_within_a_scope(connection):
    set_candidates(connection, 3)
    fingerprints = neighbours(55)
    create_scoped(connection, rows=[(number % 2, found) for number, found in enumerate(fingerprints * 2)])
    for number, copies in enumerate((250, 99, 98, 100, 101)):
        add_copies(connection, fingerprints[number], copies)
    for tenant in (0, 1):
        live = [row[0] for row in connection.execute("SELECT print FROM article WHERE tenant = %s", [tenant])]
        for function in ("near", "near_many"):
            for within in (0, 3, 7):
                queries = [*fingerprints[:6], ~HOT]
                found = search(connection, function, {"tenant": tenant}, within, queries)
                assert found == expected(function, live, within, queries)
