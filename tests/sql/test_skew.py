"""Indexes learn how many keys searches read, and near decides by it whether to probe or to scan."""

import pytest
from articles import create_articles, create_index, create_table, fingerprints_of, near
from oracle import near as expected_near
from psycopg import errors
from roles import allow_indexes
from skew import mean_candidates, skewed
from upkeep import problems

from simsql import Design

FINGERPRINTS = skewed(4_000)


def learned(connection):
    """The share of all keys that a search is expected to read, for each distance; None if nothing was learned."""
    return connection.execute("SELECT candidate_shares FROM simsql.registry").fetchone()[0]


def strategy(connection, distance):
    return connection.execute("SELECT simsql.explain_near('article', 0, %s)", [distance]).fetchone()[0]


def change_all(connection, fingerprints):
    connection.execute("TRUNCATE article")
    connection.execute("INSERT INTO article (fingerprint) SELECT unnest(%s::bigint[])", [fingerprints])


@pytest.mark.parametrize("design", [(4, 1, 0), (3, 1, 0), (5, 2, 0)], ids=str)
def test_what_is_learned_is_what_searches_read(connection, design):
    create_articles(connection, FINGERPRINTS, design)
    for distance in (3, 7, 10):
        candidates = mean_candidates(FINGERPRINTS, design, distance)
        assert candidates > 2 * Design(*design).candidates(distance, len(FINGERPRINTS))
        assert candidates / 1.5 < learned(connection)[distance] * len(FINGERPRINTS) < candidates * 1.5
    assert len(learned(connection)) == 65
    assert learned(connection)[64] == pytest.approx(Design(*design).tables, rel=0.01)
    assert learned(connection) == sorted(learned(connection))


def test_what_is_learned_of_random_fingerprints_is_what_is_computed(connection):
    create_table(connection)
    connection.execute(
        "INSERT INTO article (fingerprint)"
        " SELECT ('x' || md5(n::text))::bit(64)::bigint FROM generate_series(1, 20000) AS n"
    )
    create_index(connection)
    for distance in (3, 7, 10, 15):
        assert learned(connection)[distance] * 20_000 == pytest.approx(
            Design(4).candidates(distance, 20_000), rel=0.15
        )


def test_few_keys_teach_nothing(connection):
    create_articles(connection, FINGERPRINTS[:900])
    assert learned(connection) is None
    connection.execute("CALL simsql.vacuum('article')")
    assert learned(connection) is None


def test_copies_of_one_fingerprint_teach_nothing(connection):
    create_articles(connection)
    connection.execute("INSERT INTO article (fingerprint) SELECT 7 FROM generate_series(1, 2000)")
    connection.execute("SELECT simsql._relearn_skew(r) FROM simsql.registry AS r")
    assert learned(connection) is None


@pytest.mark.parametrize("layout", [(2, 1, 0), (4, 3, 0), (6, 1, 0)], ids=str)
def test_keys_are_counted_in_few_ranges_whatever_the_fingerprints_are(connection, layout):
    """Almost all bits of a prefix can be flipped in few ways, but up to so many bits in billions of ways."""
    create_articles(connection, design=layout, storage="expression")
    connection.execute("INSERT INTO article (fingerprint) SELECT -(n % 2) FROM generate_series(1, 1400) AS n")
    connection.execute("CREATE TABLE counted (most integer)")
    connection.execute(
        "CREATE OR REPLACE FUNCTION simsql._count_keys("
        "index simsql.registry, number integer, fingerprints bigint[], fewest integer, most integer)"
        " RETURNS bigint BEGIN ATOMIC INSERT INTO counted VALUES (most); SELECT 0; END"
    )
    connection.execute("SELECT simsql._learn_skew(r) FROM simsql.registry AS r")
    design = Design(*layout)
    prefix = design.permutations[0].lead_mask.bit_count()
    statement = "SELECT count(*), max(simsql._ways(%s, most)) FROM counted"
    calls, flips = connection.execute(statement, [prefix]).fetchone()
    assert calls > 0
    assert flips <= 3000
    # Of two different fingerprints, all bits of each prefix differ.
    masks = [permutation.lead_mask for permutation in design.permutations]
    for distance, share in enumerate(learned(connection)):
        found = sum(r >= mask.bit_count() for mask, r in zip(masks, design.radii(distance), strict=True))
        assert share == pytest.approx(found, abs=0.01)


def test_a_build_learns_too(connection):
    create_table(connection, FINGERPRINTS)
    connection.execute("CREATE INDEX ON article (fingerprint)")
    connection.execute("CALL simsql.build('article', 'fingerprint', blocks => 4)")
    candidates = mean_candidates(FINGERPRINTS, (4, 1, 0), 7)
    assert candidates / 1.5 < learned(connection)[7] * len(FINGERPRINTS) < candidates * 1.5
    assert problems(connection) == set()


@pytest.mark.oldest_version
def test_a_vacuum_learns_anew_and_near_follows(connection):
    """Fingerprints that share most of their bits: every probe would read all keys."""
    create_articles(connection, FINGERPRINTS)
    assert strategy(connection, 3).startswith("strategy: exact")
    alike = [fingerprint & 0xFFFF for fingerprint in range(0, 6_000, 3)]
    change_all(connection, alike)
    connection.execute("CALL simsql.vacuum('article')")
    assert learned(connection)[3] == pytest.approx(3, rel=0.01)
    assert strategy(connection, 3).startswith("strategy: scan")
    assert near(connection, 99, 3) == expected_near(alike, 99, 3)
    assert problems(connection) == set()
    change_all(connection, FINGERPRINTS)
    connection.execute("CALL simsql.vacuum('article')")
    assert strategy(connection, 3).startswith("strategy: exact")
    assert near(connection, FINGERPRINTS[0], 10) == expected_near(FINGERPRINTS, FINGERPRINTS[0], 10)


def test_a_repair_that_creates_the_index_again_keeps_what_was_learned(connection):
    create_articles(connection, FINGERPRINTS)
    before = learned(connection)
    connection.execute("DROP TABLE simsql.keys_1_0")
    connection.execute("SELECT simsql.repair('article')")
    assert learned(connection) == before
    assert before is not None
    assert problems(connection) == set()


def test_a_table_that_is_mostly_free_space(connection):
    create_articles(connection, range(60_000))
    connection.execute("DELETE FROM article")
    connection.execute("INSERT INTO article (fingerprint) SELECT unnest(%s::bigint[])", [FINGERPRINTS])
    connection.execute("CALL simsql.vacuum('article')")
    assert set(fingerprints_of(connection)) == set(FINGERPRINTS)
    candidates = mean_candidates(FINGERPRINTS, (4, 1, 0), 7)
    assert candidates / 1.5 < learned(connection)[7] * len(FINGERPRINTS) < candidates * 1.5


@pytest.mark.parametrize("missing", ["CREATE ON SCHEMA simsql", "UPDATE ON simsql.registry"])
def test_a_role_that_may_not_create_vacuums_all_the_same(connection, connect, new_role, missing):
    owner = new_role()
    create_table(connection, FINGERPRINTS)
    connection.execute(f"ALTER TABLE article OWNER TO {owner}")
    allow_indexes(connection, owner)
    session = connect(user=owner)
    create_index(session)
    before = learned(session)
    session.execute("DELETE FROM article WHERE id <= 3500")
    connection.execute(f"REVOKE {missing} FROM {owner}")
    session.execute("CALL simsql.vacuum('article')")
    assert learned(session) == before
    assert problems(session) == set()


def test_an_index_with_a_scope(connection):
    connection.execute("CREATE TABLE article (tenant integer, fingerprint bigint)")
    connection.execute("INSERT INTO article SELECT f %% 3, f FROM unnest(%s::bigint[]) AS f", [FINGERPRINTS])
    connection.execute(
        "SELECT simsql.create_index('article', 'fingerprint', blocks => 4, scope => ARRAY['tenant'])"
    )
    candidates = mean_candidates(FINGERPRINTS, (4, 1, 0), 10)
    assert candidates / 1.5 < learned(connection)[10] * len(FINGERPRINTS) < candidates * 1.5


def test_a_sample_of_a_table_is_bigints_and_their_number(connection):
    create_table(connection, [*FINGERPRINTS, None])
    statement = "SELECT rows, fingerprints FROM simsql._sampled_fingerprints('article', 'fingerprint', %s)"
    rows, found = connection.execute(statement, [100_000]).fetchone()
    assert (rows, sorted(found)) == (len(FINGERPRINTS), sorted(FINGERPRINTS))
    _, found = connection.execute(statement, [500]).fetchone()
    assert 300 < len(found) < 700
    assert set(found) < set(FINGERPRINTS)


def test_a_role_without_privileges_learns_nothing_of_the_rows(connection, connect, new_role):
    create_articles(connection, FINGERPRINTS)
    session = connect(user=new_role())
    with pytest.raises(errors.InsufficientPrivilege):
        session.execute("SELECT simsql._sampled_fingerprints('article', 'fingerprint', 100)")


def test_a_table_beneath_a_new_view_is_not_sampled(connection):
    create_table(connection, FINGERPRINTS)
    connection.execute("CREATE VIEW seen AS SELECT fingerprint FROM article")
    with pytest.raises(errors.FeatureNotSupported, match="TABLESAMPLE"):
        connection.execute("SELECT simsql._sampled_fingerprints('seen', 'fingerprint', 100)")
    with pytest.raises(errors.DatatypeMismatch):
        connection.execute("SELECT simsql._sampled_fingerprints('article', 'body', 100)")
