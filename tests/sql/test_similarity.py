"""simsql.similarity of two sketches: its values, and that it filters before anything large is read."""

import itertools
import random
import re

import numpy as np
import pytest
from articles import create_index

from simsql.fingerprint import KNOWN_RECIPES, similarities

# Of so many rows within distance 3 of the fingerprint 1, so many have a sketch near 0.
NEAR, PASSING = 100, 7
LATERAL = (
    " FROM simsql.near('article', 1, 3) AS n"
    " CROSS JOIN LATERAL (SELECT * FROM article AS b WHERE b.fingerprint = n.fingerprint) AS a"
)
ROWS = " FROM simsql.near_rows(NULL::article, 1, 3) AS a"
FILTER = " WHERE simsql.similarity(a.sketch, 0) >= 0.3"
# What PostgreSQL reads instead of the call, in the names of a partition, too.
INLINED = r"Filter: .*float8larger\(.*bit_count\(\(+\w+\.sketch # '0'::bigint\)+::bit\(64\)\)"


def test_values(connection):
    chance = random.Random(1)
    for bits in range(65):
        a = chance.getrandbits(64)
        b = a ^ sum(1 << place for place in chance.sample(range(64), bits))
        found = connection.execute("SELECT simsql.similarity(simsql.fp(%s), simsql.fp(%s))", [a, b])
        assert found.fetchone() == (max(0.0, 1 - bits / 32),)
    for nulls in ("NULL, 1", "1, NULL", "NULL, NULL"):
        assert connection.execute(f"SELECT simsql.similarity({nulls})").fetchone() == (None,)


@pytest.fixture(params=["tables", "expression", "partitions"])
def articles(connection, request):
    """5,000 rows with sketches, and with texts that are stored outside of their rows."""
    partitioned = request.param == "partitions"
    connection.execute(
        "CREATE TABLE article (id bigint, body text, sketch bigint, fingerprint bigint)"
        + (" PARTITION BY HASH (id)" if partitioned else "")
    )
    for part in range(2 if partitioned else 0):
        values = f"VALUES WITH (MODULUS 2, REMAINDER {part})"
        connection.execute(f"CREATE TABLE article_{part} PARTITION OF article FOR {values}")
    connection.execute(
        "INSERT INTO article SELECT i, b.body, CASE WHEN i <= %s THEN i ELSE -i END,"
        "       CASE WHEN i <= %s THEN 1 # (1::bigint << i %% 64) ELSE hashint8extended(i, 1) END"
        "  FROM generate_series(1, 5000) AS i CROSS JOIN LATERAL"
        "       (SELECT string_agg(md5(i || '.' || j), '')"
        "          FROM generate_series(1, CASE WHEN i <= %s THEN 200 END) AS j) AS b (body)",
        [PASSING, NEAR, NEAR],
    )
    create_index(connection, storage=None if partitioned else request.param)
    connection.execute("ANALYZE article")
    return connection


def read_blocks(connection):
    """Return how many blocks of texts the transaction has read."""
    found = connection.execute(
        "SELECT sum(pg_stat_get_xact_blocks_fetched(reltoastrelid)) FROM pg_class"
        " WHERE relname ~ '^article(_\\d)?$'"
    )
    return int(found.fetchone()[0])


def blocks_of(connection, statement):
    """Return the rows of a statement, and how many blocks of texts it has read."""
    with connection.transaction():
        before = read_blocks(connection)
        rows = connection.execute(statement).fetchall()
        return rows, read_blocks(connection) - before


@pytest.mark.oldest_version
@pytest.mark.parametrize("source", [LATERAL, ROWS], ids=["lateral", "near_rows"])
def test_sketches_are_compared_before_texts_are_read(articles, connect, new_role, source):
    (rows, none), (found, few), (everything, many) = (
        blocks_of(articles, "SELECT " + statement)
        for statement in (
            "a.id" + source + FILTER,
            "a.id, length(a.body)" + source + FILTER,
            "a.id, length(a.body)" + source,
        )
    )
    assert (len(rows), len(found), len(everything)) == (PASSING, PASSING, NEAR)
    assert none == 0 < few
    assert few == many * PASSING // NEAR
    assert re.search(INLINED, explain(articles, "SELECT a.body" + source + FILTER))
    # Row-level security keeps the index, and the policy hides rows before their sketches are compared.
    guest = new_role()
    articles.execute(f"GRANT SELECT ON article TO {guest}")
    articles.execute("CREATE POLICY odd ON article USING (id % 2 = 1)")
    articles.execute("ALTER TABLE article ENABLE ROW LEVEL SECURITY")
    reader = connect(guest)
    rows, none = blocks_of(reader, "SELECT a.id" + source + FILTER)
    assert (sorted(rows), none) == ([(number,) for number in range(1, PASSING + 1, 2)], 0)
    if source == LATERAL:
        plan = explain(reader, "SELECT a.body" + source + FILTER)
        assert "Index Cond: (b" in plan
        assert re.search(r"Filter: .* % '2'::bigint\) .* AND .*float8larger", plan)


def explain(connection, statement):
    found = connection.execute(f"EXPLAIN (ANALYZE, VERBOSE, COSTS OFF) {statement}")
    return "\n".join(line for (line,) in found)


@pytest.mark.every_version
def test_the_similarity_of_titles_is_the_number_of_pg_trgm(connection):
    if not connection.execute("SELECT name FROM pg_available_extensions WHERE name = 'pg_trgm'").fetchone():
        pytest.skip("this server has no pg_trgm")
    connection.execute("CREATE EXTENSION pg_trgm")
    chance = random.Random(6)
    titles = ["".join(chance.choices("abcDE12 -,.'/", k=chance.randrange(30))) for _ in range(300)]
    for title, other in itertools.pairwise(titles):
        (found,) = connection.execute("SELECT similarity(%s, %s)", [title, other]).fetchone()
        (value,) = similarities([title], [other], KNOWN_RECIPES["pg_trgm"]).tolist()
        assert np.float32(value) == np.float32(found)
