"""Measuring the costs of a server: the fit, and that nothing is left behind. No time is asserted."""

import psycopg
import pytest
from sqlalchemy.exc import ProgrammingError

from simsql import Design
from simsql.database import calibrate
from simsql.database.calibrate import STEPS, fit_costs, measure_costs
from simsql.database.connect import open_engine


@pytest.fixture
def small(monkeypatch):
    """Few rows and calls: what comes out means nothing, but all is done that is done for many."""
    monkeypatch.setattr(calibrate, "_ROWS", 2_000)
    monkeypatch.setattr(calibrate, "_BUDGET_US", 2_000.0)
    monkeypatch.setattr(calibrate, "_INSERTS", 20)


def objects(connection):
    """Names of all tables, indexes and functions that a user could have made."""
    return connection.execute(
        "SELECT o.kind, o.name FROM (SELECT relnamespace, 'relation', oid::regclass::text FROM pg_class"
        " UNION ALL SELECT pronamespace, 'function', oid::regprocedure::text FROM pg_proc)"
        " AS o (namespace, kind, name) WHERE o.namespace::regnamespace::text !~ '^(pg|information)_' ORDER BY 1, 2"
    ).fetchall()


def test_the_fit_finds_the_costs_that_made_the_times():
    searches = [
        (design.probes(distance), design.candidates(distance, 10**6))
        for design, distances in calibrate._DISTANCES.items()
        for distance in distances
    ]
    probes, candidates = zip(*searches, strict=True)
    times = [50 + 1.5 * p + 0.06 * c for p, c in searches]
    assert fit_costs(probes, candidates, times) == pytest.approx((50, 1.5, 0.06))


def test_a_cost_that_would_be_negative_is_nothing():
    probes, candidates = [1, 10, 100, 1000], [0, 100, 10, 1000]
    times = [100 + 2 * p - 0.01 * c for p, c in zip(probes, candidates, strict=True)]
    call, probe, candidate = fit_costs(probes, candidates, times)
    assert candidate == 0
    assert call > 0
    assert probe > 0


def test_the_searches_that_are_measured_are_probes_and_the_scan_is_a_scan():
    for design, distances in calibrate._DISTANCES.items():
        for distance in distances:
            assert 10 * design.scan_rows(distance) < calibrate._ROWS
    design, distance = calibrate._SCANNED
    assert design.scan_rows(distance) > 10 * calibrate._ROWS


@pytest.mark.usefixtures("small")
def test_costs_are_measured_and_nothing_is_left(database, connection):
    before = objects(connection)
    measure_costs(database)
    reported = []
    costs = measure_costs(database, reported.append)  # once more, in the same session
    assert reported == list(range(1, STEPS + 1))
    assert costs.call_us + costs.probe_us + costs.candidate_us > 0
    assert costs.scan_row_us > 0
    assert costs.write_table_us >= 0
    assert Design().search_us(3, 10**6, costs) > 0
    assert objects(connection) == before
    assert connection.execute("SELECT count(*) FROM simsql.registry").fetchone() == (0,)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("step", [1, 3])
def test_an_interrupted_measurement_leaves_nothing(database, connection, step):
    before = objects(connection)

    def interrupt(done):
        if done == step:
            assert objects(connection) != before
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measure_costs(database, interrupt)
    assert objects(connection) == before


def test_without_simsql_nothing_is_begun(empty_database):
    with pytest.raises(ProgrammingError) as caught:
        measure_costs(empty_database)
    assert isinstance(caught.value.orig, psycopg.errors.InvalidSchemaName)
    with empty_database.connect() as other:
        assert objects(other.connection.dbapi_connection) == []


def test_without_the_right_to_create_tables_nothing_is_begun(database, connection, new_role):
    before = objects(connection)
    connection.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    engine = open_engine(database.url.set(username=new_role()))
    with pytest.raises(ProgrammingError, match="permission denied"):
        measure_costs(engine)
    engine.dispose()
    assert objects(connection) == before
