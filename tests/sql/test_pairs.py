"""pairs and clusters are exact at every distance and layout, whichever way they are computed."""

import random

import pytest
from articles import DESIGNS, count_keys, create_articles
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from internals import run_statements
from oracle import EXTREMES, clustered, flip, to_bigint
from oracle import clusters as expected_clusters
from oracle import pairs as expected_pairs

designs = pytest.mark.parametrize("design", DESIGNS, ids=str)
few_bits = st.builds(flip, st.sampled_from(EXTREMES), st.sets(st.integers(0, 63), max_size=9))


def pairs(connection, within):
    return sorted(
        connection.execute("SELECT a, b, distance FROM simsql.pairs('article', %s)", [within]).fetchall()
    )


def clusters(connection, within):
    return connection.execute(
        "SELECT cluster, fingerprint FROM simsql.clusters('article', %s)", [within]
    ).fetchall()


@pytest.mark.oldest_version
@designs
def test_pairs_and_clusters_are_exact_at_every_distance(connection, design):
    fingerprints = [*clustered(36, seed=5), None, 0, 0]
    create_articles(connection, fingerprints, design)
    few_tables = len(count_keys(connection)) <= 20
    for within in range(65) if few_tables else (0, 1, 7, 63, 64):
        assert pairs(connection, within) == expected_pairs(fingerprints, within)
        assert clusters(connection, within) == expected_clusters(fingerprints, within)


@pytest.mark.oldest_version
@pytest.mark.parametrize("within", range(13))
def test_joined_by_prefix_each_pair_is_found_by_one_statement(connection, within):
    fingerprints = [to_bigint(number) for number in range(40)] + clustered(300, seed=7)
    # As for so many fingerprints: each permutation of a design is a statement.
    statements = connection.execute(
        "SELECT s FROM (SELECT * FROM simsql._join_designs(100000000, 100000000, %s, 0.5) LIMIT 1) AS d,"
        " simsql._pairs_by_prefix(%s, d.blocks, d.lead) AS s",
        [within, within],
    ).fetchall()
    assert statements
    assert all("a.prefix" in statement for (statement,) in statements)
    found = run_statements(connection, (statement for (statement,) in statements), fingerprints, within)
    assert found == expected_pairs(fingerprints, within)


@pytest.mark.parametrize(("blocks", "lead"), [(4, 1), (4, 2), (6, 2), (9, 2), (8, 3), (10, 3), (6, 5)])
def test_different_prefixes_have_different_hashes(connection, blocks, lead):
    """The halves of a bigint are folded before they are hashed: lead blocks 32 bits apart would cancel out."""
    connection.execute(
        "CREATE TABLE article AS"
        " SELECT ('x' || md5(n::text))::bit(64)::bigint AS fp FROM generate_series(1, 10000) AS n"
    )
    statement = "SELECT lead_mask, joined FROM simsql._join_tables(%s, %s, 0, 3, 'a', 'b.fp')"
    for mask, joined in connection.execute(statement, [blocks, lead]).fetchall():
        hashes = [f"hashint8({condition.partition(' = ')[2]})" for condition in joined.split(" AND ")]
        counts = connection.execute(
            f"SELECT count(DISTINCT b.fp & {mask}), count(DISTINCT ({', '.join(hashes)})) FROM article AS b"
        )
        prefixes, different = counts.fetchone()
        assert different > 0.99 * prefixes


def statements_for(connection, fingerprints, within):
    found = connection.execute("SELECT simsql._statements_for_pairs(%s, %s)", [sorted(set(fingerprints)), within])
    return [statement for (statement,) in found]


def count_compared(connection, fingerprints, statements):
    """How many pairs the hash joins of these statements compare, of any distance."""
    distance = "bit_count((a.fp # b.fp)::bit(64)) <= $2"
    inside = [statement.replace(distance, "true").partition(" AND bit_count")[0] for statement in statements]
    counts = [f"SELECT count(*) FROM ({statement}) AS c WHERE $2 = 0" for statement in inside]
    return sum(count for (count,) in run_statements(connection, counts, fingerprints, 0))


def pairs_by_self_join(connection, within):
    """In SQL, since Python takes seconds for some thousand fingerprints."""
    return connection.execute(
        "SELECT a.fingerprint, b.fingerprint, bit_count((a.fingerprint # b.fingerprint)::bit(64))"
        " FROM article AS a JOIN article AS b ON a.fingerprint < b.fingerprint"
        " AND bit_count((a.fingerprint # b.fingerprint)::bit(64)) <= %s ORDER BY 1, 2",
        [within],
    ).fetchall()


@pytest.mark.parametrize(("count", "within"), [(200, 3), (4_000, 1), (4_000, 64)])
def test_pairs_are_compared_one_by_one_or_joined_whatever_is_cheaper(connection, count, within):
    statements = statements_for(connection, clustered(count, seed=9), within)
    assert ("a.prefix" in statements[0]) == (count == 4_000 and within == 1)


@pytest.mark.parametrize("block", [3, 1])
def test_where_a_prefix_is_crowded_another_design_is_taken(connection, block):
    """All rows share 16 bits: joined by these, every row would be compared with every other one."""
    chance = random.Random(block)
    outside = ~(0xFFFF << 16 * block)
    fingerprints = [to_bigint((chance.getrandbits(64) & outside) % 2**64) for _ in range(1_800)]
    fingerprints += [fingerprint ^ 5 for fingerprint in fingerprints[:50]]
    statements = statements_for(connection, fingerprints, 3)
    assert count_compared(connection, fingerprints, statements) < len(fingerprints) ** 2 / 100
    create_articles(connection, fingerprints)
    expected = pairs_by_self_join(connection, 3)
    assert len(expected) >= 50
    assert pairs(connection, 3) == expected


def test_fingerprints_that_crowd_every_prefix_are_compared_one_by_one(connection):
    runs = [0b1111 << 5 * bit for bit in range(11)]  # a prefix of 16 bits has three of these at most
    fingerprints = [sum(run for bit, run in enumerate(runs) if number >> bit & 1) for number in range(2**11)]
    (statement,) = statements_for(connection, fingerprints, 7)
    assert "a.prefix" not in statement
    create_articles(connection, fingerprints)
    assert pairs(connection, 7) == pairs_by_self_join(connection, 7)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    fingerprints=st.lists(few_bits | st.integers(-(2**63), 2**63 - 1) | st.none(), max_size=25),
    design=st.sampled_from(DESIGNS[:-1]),
    within=st.integers(0, 64),
)
def test_pairs_and_clusters_are_what_brute_force_finds(connection, storage, fingerprints, design, within):
    with connection.transaction(force_rollback=True):
        create_articles(connection, fingerprints, design, storage)
        assert pairs(connection, within) == expected_pairs(fingerprints, within)
        assert clusters(connection, within) == expected_clusters(fingerprints, within)


def test_without_a_distance_the_one_of_the_index_is_taken(connection):
    create_articles(connection, [0b0, 0b111, 0b1111111])
    assert pairs(connection, None) == [(0b0, 0b111, 3)]
    assert clusters(connection, None) == [(0b0, 0b0), (0b0, 0b111)]


@pytest.mark.oldest_version
def test_pairs_and_clusters_see_what_is_alive(connection):
    create_articles(connection, [0, 1, 2])
    connection.execute("DELETE FROM article WHERE fingerprint = 0")
    assert pairs(connection, 64) == [(1, 2, 2)]
    connection.execute("UPDATE article SET fingerprint = 1")
    assert pairs(connection, 64) == []
    assert clusters(connection, 64) == [(1, 1)]
    connection.execute("TRUNCATE article")
    assert clusters(connection, 64) == []


def test_a_long_chain_is_one_cluster(connection):
    chance = random.Random(8)
    chain = [chance.getrandbits(63)]
    while len(chain) < 20_000:
        chain.append(flip(chain[-1], [chance.randrange(64)]))
    create_articles(connection, chance.sample(chain, len(chain)))
    members = sorted(set(chain))
    assert clusters(connection, 1) == [(members[0], fingerprint) for fingerprint in members]


def test_a_crowded_bucket_is_one_cluster(connection):
    # Gray codes: each is one bit from the next, and all agree in three blocks of four.
    bucket = [(number ^ (number >> 1)) << 50 for number in range(1_000)]
    create_articles(connection, bucket)
    assert clusters(connection, 1) == [(0, fingerprint) for fingerprint in sorted(bucket)]


def test_equal_fingerprints_are_stored_and_compared_once(connection):
    create_articles(connection, [42] * 50_000 + [43])
    assert count_keys(connection) == [2] * 4
    connection.execute("INSERT INTO article (fingerprint) SELECT 42 FROM generate_series(1, 10000)")
    assert count_keys(connection) == [3] * 4
    connection.execute("UPDATE article SET fingerprint = 44 WHERE id <= 20000")
    assert count_keys(connection) == [4] * 4
    assert pairs(connection, 3) == [(42, 43, 1), (42, 44, 2), (43, 44, 3)]
    assert clusters(connection, 3) == [(42, 42), (42, 43), (42, 44)]
    assert clusters(connection, 0) == [(42, 42), (44, 44)]
