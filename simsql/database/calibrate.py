"""Measure the costs of searches and writes on a server, for the planner."""

import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from statistics import median
from typing import NamedTuple

import numpy as np
from sqlalchemy import BigInteger, Connection, Engine, column, func, insert, literal_column, select, table, text

from simsql.database.history import find_folder
from simsql.database.index import create_index, drop_index
from simsql.hamming import Costs, Design

_ROWS = 1_000_000
_RANDOM = "CAST(floor(random() * 2 ^ 32) AS bigint) << 32 | CAST(floor(random() * 2 ^ 32) AS bigint)"
# One index reads many keys in few ranges, the other many ranges with few keys. This separates the cost of a key
# from that of a range. The searches take a few milliseconds.
_DISTANCES = {Design(4): (0, 3, 5, 7, 9, 10), Design(2): (1, 2, 3, 4)}
# At this distance probes would take seconds, so the search is a scan.
_SCANNED = Design(2), 12
# Time limit for the searches of one kind, by the built-in costs, and their number.
_BUDGET_US = 300_000.0
_CALLS = range(10, 1_000)
_WARM_UP = 20
_INSERTS = 1_000
_VACUUMS = 10
STEPS = 1 + 2 * len(_DISTANCES)


def measure_costs(engine: Engine, report: Callable[[int], None] | None = None) -> Costs:
    """Fill and search tables of random fingerprints, and return the costs of the cost model.

    With a million rows, this takes ten seconds or a little more, and half a gigabyte. At the end it drops its
    table, named `simsql_calibration_...`, and the indexes. simsql must be installed. `report` is called with the
    number of completed steps, out of STEPS. The cost model is fitted to the median times of single calls in the
    server, by least squares of relative errors, so that short searches count as much as long ones. Other work on
    the machine affects the result.

    Raises sqlalchemy.exc.DBAPIError with PostgreSQL's message, for example if the role may not create tables.
    """
    steps = iter(range(1, STEPS + 1))

    def step() -> None:
        if report:
            report(next(steps))

    searches: list[_Search] = []
    inserts: list[tuple[int, float]] = []
    with _scratch_table(engine) as table, engine.connect() as connection:
        _fill(connection, table)
        step()
        for design, distances in _DISTANCES.items():
            with _index(engine, table, design):
                step()
                searches += [_search(connection, table, design, distance) for distance in distances]
                if design == _SCANNED[0]:
                    scan = _search(connection, table, *_SCANNED)
                inserts.append((design.tables, _time_inserts(connection, table)))
            step()
    call_us, probe_us, candidate_us = fit_costs(*zip(*searches, strict=True))
    # The cost of the trigger itself is the same for every design.
    tables, times = zip(*inserts, strict=True)
    return Costs(
        call_us=call_us,
        probe_us=probe_us,
        candidate_us=candidate_us,
        scan_row_us=max(0.0, scan.microseconds - call_us) / _ROWS,
        write_table_us=max(0.0, float(np.polyfit(tables, times, 1)[0])),
    )


def fit_costs(
    probes: Sequence[float], candidates: Sequence[float], microseconds: Sequence[float]
) -> tuple[float, float, float]:
    """Return the costs of a call, a probe and a candidate, at least 0 each, that best fit the search times.

    The best fit has the least sum of squares of relative errors.
    """
    times = np.array(microseconds)
    parts = np.column_stack([np.ones_like(times), probes, candidates]) / times[:, None]
    costs = np.zeros(3)
    used = np.ones(3, dtype=bool)
    # A cost that would be negative is 0, and the others are fitted without it.
    while used.any():
        costs[:] = 0
        costs[used] = np.linalg.lstsq(parts[:, used], np.ones_like(times), rcond=None)[0]
        if (costs >= 0).all():
            break
        used &= costs > 0
    call, probe, candidate = costs.tolist()
    return call, probe, candidate


class _Search(NamedTuple):
    """One kind of search, and the median of its times."""

    probes: int
    candidates: float
    microseconds: float


@contextmanager
def _scratch_table(engine: Engine) -> Iterator[str]:
    table = f"simsql_calibration_{secrets.token_hex(4)}"
    with engine.begin() as connection:
        connection.execute(text("SELECT simsql.version()"))  # an error before anything is done
        connection.execute(text(f"CREATE TABLE {table} (fingerprint bigint)"))
    try:
        yield table
    finally:
        with engine.begin() as connection:
            connection.execute(text(f"DROP TABLE {table}"))


@contextmanager
def _index(engine: Engine, table: str, design: Design) -> Iterator[None]:
    with engine.begin() as connection:
        index = create_index(connection, table, "fingerprint", design=design)
    try:
        _vacuum(engine, [table, *(f"simsql.keys_{index}_{p.number}" for p in design.permutations)])
        yield
    finally:
        with engine.begin() as connection:
            drop_index(connection, table)


def _fill(connection: Connection, name: str) -> None:
    random = literal_column(_RANDOM, BigInteger)
    rows = select(random).select_from(func.generate_series(1, _ROWS))
    with connection.begin():
        connection.execute(insert(table(name, column("fingerprint"))).from_select(["fingerprint"], rows))


@contextmanager
def _functions(connection: Connection) -> Iterator[None]:
    """Provide the functions of calibrate.sql in a transaction, which is rolled back.

    The next transaction runs in another session if there is a transaction pooler.
    """
    script = (find_folder("sql") / "calibrate.sql").read_text(encoding="utf-8")
    with connection.begin() as transaction:
        connection.exec_driver_sql(script, execution_options={"no_parameters": True})
        yield
        transaction.rollback()


def _vacuum(engine: Engine, tables: Sequence[str]) -> None:
    """Vacuum the tables, as autovacuum would in time, so that searches need not check the visibility of rows.

    Another session that holds a snapshot, such as autovacuum itself, can prevent this; then try again.
    """
    hidden = "SELECT bool_or(relallvisible < relpages) FROM pg_class WHERE oid = ANY (CAST(:tables AS regclass[]))"
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        for _ in range(_VACUUMS):
            connection.execute(text(f"VACUUM (ANALYZE) {', '.join(tables)}"))
            if not connection.execute(text(hidden), {"tables": tables}).scalar_one():
                return
            time.sleep(0.1)


def _search(connection: Connection, table: str, design: Design, distance: int) -> _Search:
    expected_us = design.search_us(distance, _ROWS)
    calls = int(min(max(_BUDGET_US / expected_us, _CALLS.start), _CALLS.stop))
    searches = text("SELECT pg_temp.time_searches(CAST(:table AS regclass), :distance, :calls)")
    with _functions(connection):
        for count in (min(calls, _WARM_UP), calls):
            parameters = {"table": table, "distance": distance, "calls": count}
            times = connection.execute(searches, parameters).scalar_one()
    return _Search(design.probes(distance), design.candidates(distance, _ROWS), median(times))


def _time_inserts(connection: Connection, table: str) -> float:
    inserts = text("SELECT pg_temp.time_inserts(CAST(:table AS regclass), :calls)")
    with _functions(connection):
        times: list[float] = connection.execute(inserts, {"table": table, "calls": _INSERTS}).scalar_one()
    return median(times)
