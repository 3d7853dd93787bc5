"""Work that the server or another session interrupts: timeouts, cancelled queries, lost connections."""

import contextlib
import itertools
import random
import threading
import time

import psycopg
import pytest
from ledger import WORK
from oracle import to_bigint
from psycopg import errors
from sqlalchemy.exc import DBAPIError

from simsql.database import load_rows

CANCEL, TERMINATE = "pg_cancel_backend", "pg_terminate_backend"


@pytest.fixture
def tries(thorough):
    return 400 if thorough else 20


@pytest.mark.fault("`statement_timeout` in writes, claims, build, vacuum, verify and repair")
def test_statement_timeout(connection, connect, ledger, examine):
    """Each kind of work with a timeout that doubles until the work succeeds."""
    tried = 0
    worker = connect()
    for work in WORK.values():
        for timeout in itertools.accumulate(itertools.repeat(2), int.__mul__, initial=1):
            try:
                worker.execute(f"SET statement_timeout = {timeout}")
                work(ledger, worker)
                break
            except errors.QueryCanceled:
                tried += 1
        ledger.mend(connection)
    assert tried >= 8
    examine(connection, ledger.committed, tried=tried)


@pytest.mark.fault("`lock_timeout` beside sessions that hold locks")
def test_lock_timeout(connection, connect, ledger, examine):
    """Each kind of work while another transaction has the table, an index, or the registry."""
    tried = 0
    worker, holder = connect(), connect()
    worker.execute("SET lock_timeout = '5ms'")
    keys = "SELECT oid::regclass::text FROM pg_class WHERE relname ~ '^keys_.*_3$'"
    for lock, work in itertools.product(("article", "simsql.registry", None), WORK.values()):
        found = (lock,) if lock else connection.execute(keys).fetchone()
        if not found:
            continue  # the storage `expression` has no key tables
        with holder.transaction():
            holder.execute(f"LOCK TABLE {found[0]}")
            try:
                work(ledger, worker)
            except errors.LockNotAvailable:
                tried += 1
            ledger.settle(holder)
        ledger.mend(connection)
    assert tried >= 12
    examine(connection, ledger.committed, tried=tried)


@pytest.mark.fault("transactions that a timeout ends while they are idle or too long")
@pytest.mark.parametrize("setting", ["idle_in_transaction_session_timeout", "transaction_timeout"])
def test_a_timeout_ends_a_transaction(connection, connect, ledger, examine, setting):
    """What it wrote is rolled back, and its claim lets others go on."""
    if connection.info.server_version < 170000 and setting == "transaction_timeout":
        pytest.skip("PostgreSQL 17 has it")
    value = 0x1234567812345678
    worker = connect()
    worker.execute(f"SET {setting} = '300ms'")
    worker.execute("BEGIN")
    assert worker.execute("SELECT * FROM simsql.claim('article', %s::bigint)", [value]).fetchall() == []
    worker.execute("INSERT INTO article (fingerprint) VALUES (%s), (%s)", [value, value ^ 3])
    other = connect()
    # Waits until the claim of the other is gone.
    with other.transaction():
        assert other.execute("SELECT * FROM simsql.claim('article', %s::bigint)", [value ^ 1]).fetchall() == []
        other.execute("INSERT INTO article (id, fingerprint) OVERRIDING SYSTEM VALUE VALUES (0, %s)", [value ^ 1])
    ledger.committed[0] = value ^ 1
    with pytest.raises(psycopg.Error, match="terminating connection due to"):
        worker.execute("SELECT 1")
    examine(connection, ledger.committed)


def interrupt(connection, connect, ledger, tries, how):
    """Interrupt work of each kind at random moments, until a quarter of `tries` failed; return how many did.

    Where other programs use the processors, a signal often comes after the work.
    """
    chance = random.Random(5)
    interrupter = connect()
    worker = connect()
    failed = 0
    last = dict.fromkeys(WORK, 0.02)
    for number, (name, work) in zip(range(20 * tries), itertools.cycle(WORK.items()), strict=False):
        if number >= tries and failed >= tries // 4:
            break
        delay = chance.uniform(0, last[name])
        timer = threading.Timer(delay, interrupter.execute, [f"SELECT {how}(%s)", [worker.info.backend_pid]])
        begin = time.monotonic()
        timer.start()
        try:
            work(ledger, worker)
        except (errors.QueryCanceled, psycopg.OperationalError):
            failed += 1
        else:
            last[name] = time.monotonic() - begin
        timer.join()
        if how == TERMINATE:
            worker.close()
            worker = connect()
        else:
            # It may come as late as this.
            with contextlib.suppress(errors.QueryCanceled):
                worker.execute("SELECT pg_sleep(0.001)")
        ledger.settle(connection)
        ledger.mend(connection)
    return failed


@pytest.mark.fault("queries cancelled at random moments of writes, claims, build, vacuum, verify and repair")
def test_cancelled_queries(connection, connect, ledger, examine, tries):
    tried = interrupt(connection, connect, ledger, tries, CANCEL)
    assert tried >= tries // 4
    examine(connection, ledger.committed, tried=tried)


@pytest.mark.fault("sessions ended at random moments of writes, claims, build, vacuum, verify and repair")
def test_ended_sessions(connection, connect, ledger, examine, tries):
    tried = interrupt(connection, connect, ledger, tries, TERMINATE)
    assert tried >= tries // 4
    examine(connection, ledger.committed, tried=tried)


@pytest.mark.slow
@pytest.mark.fault("sessions ended and queries cancelled in the middle of `load_rows`")
@pytest.mark.parametrize("how", [CANCEL, TERMINATE])
def test_interrupted_loads(database, connection, ledger, examine, how):
    """So many rows that the keys are copied, with the trigger of the index disabled in the meantime."""
    chance = random.Random(6)
    tried = 0
    last = 1.0
    for number in range(1, 13):
        rows = {
            row: to_bigint(chance.getrandbits(64)) for row in range(number * 100_000, number * 100_000 + 10_500)
        }
        with database.connect() as loader:
            interrupted = [f"SELECT {how}(%s)", [loader.connection.driver_connection.info.backend_pid]]
            timer = threading.Timer(chance.uniform(0, last), connection.execute, interrupted)
            begin = time.monotonic()
            timer.start()
            try:
                with loader.begin():
                    load_rows(loader, "article", ["id", "fingerprint"], rows.items())
                last = time.monotonic() - begin
                ledger.committed.update(rows)
            except DBAPIError:
                tried += 1
            timer.join()
            loader.invalidate()
        if connection.execute("SELECT FROM article WHERE id = %s", [number * 100_000]).fetchall():
            ledger.committed.update(rows)
        ledger.mend(connection)
    assert tried >= 2
    examine(connection, ledger.committed, tried=tried)
