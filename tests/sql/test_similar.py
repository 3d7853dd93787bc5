"""similar_candidates finds what its query says, in every design and storage, and refuses other queries."""

import json

import pytest
from articles import DESIGNS, create_articles, near
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from oracle import clustered, flip
from psycopg import errors
from scoped import create_scoped
from similar import expected_candidates, make_query

pytestmark = pytest.mark.every_version

FINGERPRINTS = clustered(3_000, seed=4)
SIMILAR = "SELECT * FROM simsql.similar_candidates(%s::regclass, %s::jsonb, NULL, %s::jsonb)"


def similar(connection, query, table="article", scope=None):
    return connection.execute(SIMILAR, [table, query, scope]).fetchall()


def strategy(connection, query):
    lines = connection.execute("SELECT simsql.explain_similar('article', %s)", [query]).fetchall()
    return lines[0][0].split(",")[0].removeprefix("strategy: ")


@pytest.mark.parametrize("design", [design for design in DESIGNS if design[0] < 64], ids=str)
def test_the_search_finds_what_the_query_says(connection, storage, design):
    create_articles(connection, FINGERPRINTS, design, storage)
    found_any = 0
    for seed, most in ((1, 1), (2, 20), (3, 100), (4, 200)):
        query = make_query(flip(FINGERPRINTS[seed], {seed}), design, seed, most=most)
        assert strategy(connection, query) == "probes"
        expected = expected_candidates(FINGERPRINTS, query)
        assert similar(connection, query) == expected
        found_any += len(expected)
    assert found_any


def test_a_few_rows_are_scanned(connection, storage):
    create_articles(connection, FINGERPRINTS[:100], storage=storage)
    query = make_query(FINGERPRINTS[3], (4, 1, 0), 3, recall=0.999)
    assert strategy(connection, query) == "scan"
    assert similar(connection, query) == expected_candidates(FINGERPRINTS[:100], query, probing=False)


@given(
    seed=st.integers(0, 2**32),
    recall=st.floats(0, 0.99),
    most=st.integers(1, 60),
    bits=st.sets(st.integers(0, 63)),
)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_query_finds_what_it_says_and_what_near_finds_at_the_exact_distance(
    connection, seed, recall, most, bits
):
    if not connection.execute("SELECT to_regclass('article')").fetchone()[0]:
        create_articles(connection, FINGERPRINTS)
    fingerprint = flip(FINGERPRINTS[seed % 3_000], bits)
    query = make_query(fingerprint, (4, 1, 0), seed, recall, most)
    found = similar(connection, query)
    assert found == expected_candidates(FINGERPRINTS, query)
    assert set(near(connection, fingerprint, 3)) <= {match[:2] for match in found}


def test_only_rows_of_the_scope_are_found(connection, storage):
    rows = [(number % 3, fingerprint) for number, fingerprint in enumerate(FINGERPRINTS)]
    create_scoped(connection, rows=rows, storage=storage)
    connection.execute("SELECT simsql.alter_index('article', 'print', recipe => 'words12-log-1')")
    query = make_query(FINGERPRINTS[3], (4, 1, 0), 3, most=20)
    expected = expected_candidates([fingerprint for tenant, fingerprint in rows if tenant == 0], query)
    assert similar(connection, query, scope='{"tenant": 0}') == expected != []
    with pytest.raises(errors.InvalidParameterValue, match="needs a scope"):
        similar(connection, query)


def test_deleted_and_uncommitted_rows_are_not_found(connection, storage):
    create_articles(connection, FINGERPRINTS, storage=storage)
    query = make_query(FINGERPRINTS[3], (4, 1, 0), 3)
    connection.execute("DELETE FROM article WHERE fingerprint = %s", [FINGERPRINTS[3]])
    connection.execute("INSERT INTO article (fingerprint) VALUES (%s)", [flip(FINGERPRINTS[3], {1})])
    left = {*FINGERPRINTS, flip(FINGERPRINTS[3], {1})} - {FINGERPRINTS[3]}
    assert similar(connection, query) == expected_candidates(left, query)


def test_a_search_reads_ranges_of_the_key_tables(connection):
    create_articles(connection, FINGERPRINTS)
    query = make_query(FINGERPRINTS[3], (4, 1, 0), 3, most=100)
    first, *plan = (row[0] for row in connection.execute("SELECT simsql.explain_similar('article', %s)", [query]))
    probes = sum(len(flips.split(",")) for flips in json.loads(query)["flips"])
    assert first.startswith(f"strategy: probes, ranges: {probes}, expected recall: 0.")
    plan = "\n".join(plan)
    assert plan.count("Index Only Scan using keys_1_") == 4
    assert "Seq Scan" not in plan
    assert "bit_count" in plan


def test_a_text_without_features_finds_nothing(connection):
    create_articles(connection, FINGERPRINTS[:9])
    assert similar(connection, None) == []


def test_of_several_queries_that_for_the_design_is_searched_for(connection):
    create_articles(connection, FINGERPRINTS, (4, 2, 2))
    queries = [make_query(FINGERPRINTS[3], design, 3, most=20) for design in [(4, 2, 0), (4, 2, 2), (4, 1, 0)]]
    several = f"[{','.join(queries)}]"
    assert similar(connection, several) == expected_candidates(FINGERPRINTS, queries[1]) != []
    assert strategy(connection, several) == "probes"
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match=r"for \[4, 2, 0\] or \[4, 1, 0\]"):
        similar(connection, f"[{queries[0]},{queries[2]}]")


def change(query, **changes):
    return json.dumps({**json.loads(query), **changes})


def test_a_query_for_another_index_is_refused(connection):
    create_articles(connection, FINGERPRINTS[:9])
    query = make_query(FINGERPRINTS[0], (4, 1, 0))
    state = errors.ObjectNotInPrerequisiteState
    with pytest.raises(state, match=r"has the design \[4, 1, 0\], but the query was made for \[5, 2, 0\]"):
        similar(connection, make_query(FINGERPRINTS[0], (5, 2, 0)))
    with pytest.raises(state, match="has the recipe words12-log-1, but the query was made with words1-set-1"):
        similar(connection, change(query, recipe="words1-set-1"))
    with pytest.raises(state, match="--query --recipe words12-log-1, or name the recipe in the model"):
        similar(connection, change(query, recipe=None))
    connection.execute("UPDATE simsql.registry SET recipe = NULL")
    with pytest.raises(state, match="recipe that nobody has named"):
        similar(connection, query)


@pytest.mark.parametrize(
    "changes",
    [
        {"planes": [1, 2, 3]},
        {"planes": 7},
        {"flips": ["{0}"]},
        {"flips": ["{0}", "{0}", "{0}", "{1}"]},
        {"flips": ["{0}", "{0}", "{0}", "{0,}"]},
        {"flips": ["{0}", "{0}", "{0}", None]},
        {"fingerprint": "x"},
        {"cost": None},
        {"screen": "x"},
        {"cost": 1.5},
        {"cost": 2**31},
        {"fingerprint": 2**63},
        {"planes": [0, 0, 0, 10**400]},
        {"planes": [[1], [2], [3], [4]]},
        {"planes": [1, 2, 3, None]},
        {"planes": [[[[[[[[1]]]]]]]]},
        {"flips": [f"{{0,{2**63}}}"] * 4},
        {"flips": ["{0}"] * 5},
        {"flips": {"0": "{0}"}},
        {"flips": None},
    ],
    ids=str,
)
def test_a_damaged_query_is_refused(connection, changes):
    create_articles(connection, FINGERPRINTS[:9])
    with pytest.raises(errors.InvalidParameterValue, match="this query for similar texts is damaged"):
        similar(connection, change(make_query(1, (4, 1, 0)), **changes))


@pytest.mark.parametrize("query", ["1", "[]", "{}", '{"simsql_query": 2}'])
def test_what_is_not_a_query_is_refused(connection, query):
    create_articles(connection, FINGERPRINTS[:9])
    with pytest.raises(errors.InvalidParameterValue, match="not a query for similar texts"):
        similar(connection, query)


def test_too_many_ranges_are_refused(connection):
    create_articles(connection, FINGERPRINTS[:9])
    flips = ["{0," + ",".join(map(str, range(1, 400_000))) + "}", "{0}", "{0}", "{0}"]
    with pytest.raises(errors.ProgramLimitExceeded, match="too many ranges"):
        similar(connection, change(make_query(1, (4, 1, 0)), flips=flips))
