"""Work that the server or another session interrupts: the timeouts, cancelled queries, and lost connections."""

import itertools

import psycopg
import pytest
from ledger import WORK, Ledger


@pytest.fixture
def ledger(connection, storage):
    return Ledger(connection, storage)


@pytest.mark.fault("`statement_timeout` in writes, claims, build, vacuum, verify and repair")
def test_statement_timeout(connection, connect, ledger, examine):
    """Each kind of work with a timeout that doubles until the work succeeds."""
    tried = 0
    worker = connect()
    for work in WORK.values():
        for timeout in itertools.accumulate(itertools.repeat(2), int.__mul__, initial=1):
            worker.execute(f"SET statement_timeout = {timeout}")
            try:
                work(ledger, worker)
                break
            except psycopg.errors.QueryCanceled:
                tried += 1
            finally:
                worker.execute("SET statement_timeout = 0")
        ledger.mend(connection)
    assert tried >= 8
    examine(connection, ledger.committed, tried=tried)
