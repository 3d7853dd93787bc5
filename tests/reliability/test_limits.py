"""Servers that run out of something: disk, temporary files, memory, locks, connections."""

import contextlib
import itertools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import oracle
import psycopg
import pytest
from articles import near
from ledger import WORK, Ledger
from own_server import new_folder, own_server, running, session
from program import run
from psycopg import errors

from simsql.server.binaries import server_account


@contextlib.contextmanager
def small_disk(size: str) -> Iterator[Path]:
    """A file system in memory of this size."""
    folder = Path(tempfile.mkdtemp(prefix="simsql-small-", dir="/dev/shm"))
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], capture_output=True, check=False
    )
    try:
        if mounted.returncode:
            pytest.skip("only a privileged user can mount a small file system")
        folder.chmod(0o711)
        yield folder
    finally:
        if not mounted.returncode:
            subprocess.run(["umount", "--lazy", str(folder)], check=True)
        folder.rmdir()


def fill(folder: Path, leave: int) -> Path:
    """Fill a file system but for so many bytes; return the file that does."""
    file = folder / "filler"
    with file.open("wb") as filler:
        os.posix_fallocate(filler.fileno(), 0, max(1, shutil.disk_usage(folder).free - leave))
    return file


@pytest.mark.fault("disk full in writes, claims, build, vacuum and repair")
def test_a_full_disk(server, connection, connect, storage, examine, thorough):
    """Tables, keys and B-trees are on a small disk, which is filled up to the last bytes before each work."""
    account = server_account(server.cluster.data_folder)
    name = f"small_{connection.info.dbname}"
    with small_disk("24m") as disk:
        space = disk / "space"
        space.mkdir()
        os.chown(space, account.uid, account.gid)
        connection.execute(f"CREATE TABLESPACE {name} LOCATION '{space}'")
        connection.execute(f"SET default_tablespace = {name}")
        ledger = Ledger(connection, storage)
        worker = connect()
        worker.execute(f"SET default_tablespace = {name}")
        tried = 0
        for leave, work in itertools.product((0, 40_000, 160_000) if thorough else (0,), WORK.values()):
            filler = fill(disk, leave)
            for _ in range(8):
                try:
                    work(ledger, worker)
                except errors.DiskFull:
                    tried += 1
                    ledger.settle(connection)
                    break
            filler.unlink()
            ledger.mend(connection)
        assert tried >= 2
        examine(connection, ledger.committed, tried=tried)
        connection.execute("SELECT simsql.drop_index('article')")
        connection.execute("DROP TABLE article")
        connection.execute(f"DROP TABLESPACE {name}")


@pytest.mark.slow
@pytest.mark.fault("disk of the write-ahead log full, which stops the server")
def test_a_full_disk_of_the_log(server, storage, examine):
    with (
        small_disk("180m") as disk,
        own_server(server.program, disk, max_wal_size="32MB", min_wal_size="32MB", fsync="on") as cluster,
    ):
        connection = session(cluster)
        ledger = Ledger(connection, storage)
        tried = 0
        for work in WORK.values():
            filler = fill(disk, 0)
            worker = session(cluster)
            try:
                for _ in range(300):
                    ledger.insert(worker)
                    work(ledger, worker)
            except psycopg.Error:
                tried += 1
            filler.unlink()
            worker.close()
            connection.close()
            cluster.start()
            connection = session(cluster)
            ledger.settle(connection)
            ledger.mend(connection)
            connection.execute("CHECKPOINT")
        assert tried >= 5
        examine(connection, ledger.committed, tried=tried)
        connection.close()


SEARCHES = {
    "near": "SELECT * FROM simsql.near('article', 0::bigint, 64)",
    "near_many": "SELECT * FROM simsql.near_many('article', ARRAY(SELECT fingerprint FROM article LIMIT 300), 7)",
    "pairs": "SELECT * FROM simsql.pairs('article', 7)",
    "clusters": "SELECT * FROM simsql.clusters('article', 7)",
    "near_rows": "SELECT * FROM simsql.near_rows(NULL::article, 0::bigint, 64)",
    "verify": "SELECT * FROM simsql.verify('article')",
}
UPKEEP = {
    "create_index": "SELECT simsql.create_index('article', 'fingerprint', blocks => 5)",
    "repair": "SELECT * FROM simsql.repair('article')",
    "build": "CALL simsql.build('article', 'fingerprint', blocks => 4)",
    "vacuum": "CALL simsql.vacuum('article')",
}


@pytest.mark.slow
@pytest.mark.fault("temporary files exhausted, and little memory for sorts and hashes")
def test_temporary_files(connection, connect, storage, examine):
    """With each limit, every search returns what it returns without, or fails."""
    ledger = Ledger(connection, storage, rows=6000)
    expected = {name: sorted(map(str, connection.execute(search))) for name, search in SEARCHES.items()}
    assert near(connection, 0, 64) == oracle.near(ledger.committed.values(), 0, 64)
    tried = exact = 0
    for memory, limit in itertools.product(("64kB", "256kB"), ("0", "64kB", "512kB", "-1")):
        worker = connect()
        worker.execute(f"SET work_mem = '{memory}'; SET hash_mem_multiplier = 1; SET maintenance_work_mem = '1MB'")
        worker.execute(f"SET temp_file_limit = '{limit}'")
        for name, search in SEARCHES.items():
            try:
                assert sorted(map(str, worker.execute(search))) == expected[name], name
                exact += 1
            except errors.ConfigurationLimitExceeded:
                tried += 1
        connection.execute("SELECT simsql.drop_index('article')")
        for upkeep in UPKEEP.values():
            with contextlib.suppress(
                errors.DuplicateObject, errors.UndefinedObject, errors.ObjectNotInPrerequisiteState
            ):
                try:
                    worker.execute(upkeep)
                except errors.ConfigurationLimitExceeded:
                    tried += 1
        ledger.mend(connection)
    assert tried >= 3
    assert exact >= 5
    examine(connection, ledger.committed, tried=tried + exact)


@pytest.mark.slow
@pytest.mark.fault("lock table exhausted by searches of partitions, claims, build and repair")
def test_a_small_lock_table(server, examine, storage):
    """A transaction takes the last locks; what comes then fails, or is exact."""
    with new_folder() as folder, own_server(server.program, folder) as cluster:
        with session(cluster) as connection:
            ledger = Ledger(connection, storage)
            connection.execute("CREATE TABLE parted (id bigint, fingerprint bigint) PARTITION BY HASH (id)")
            for number in range(60):
                connection.execute(
                    f"CREATE TABLE part_{number} PARTITION OF parted"
                    f" FOR VALUES WITH (MODULUS 60, REMAINDER {number})"
                )
            connection.execute("INSERT INTO parted SELECT id, fingerprint FROM article")
            connection.execute("SELECT simsql.create_index('parted', 'fingerprint', blocks => 4)")
            parted = [value for (value,) in connection.execute("SELECT fingerprint FROM parted")]
        cluster.stop()
        tried = exact = 0
        with (
            running(cluster, max_locks_per_transaction="10", max_connections="12") as small,
            session(small) as connection,
            session(small) as holder,
            session(small) as worker,
        ):
            for work in WORK.values():
                holder.execute("BEGIN")
                with contextlib.suppress(errors.OutOfMemory):
                    for number in itertools.count():
                        with holder.transaction():
                            holder.execute("SELECT pg_advisory_xact_lock(%s)", [number])
                for _ in range(3):
                    try:
                        work(ledger, worker)
                        exact += 1
                    except errors.OutOfMemory:
                        tried += 1
                for query in parted[:5]:
                    try:
                        assert near(worker, query, 3, "parted") == oracle.near(parted, query, 3)
                        exact += 1
                    except errors.OutOfMemory:
                        tried += 1
                holder.execute("ROLLBACK")
                ledger.settle(connection)
                ledger.mend(connection)
            assert tried >= 10
            examine(connection, ledger.committed, tried=tried)


@pytest.mark.fault("connection limit reached by a load, a build and searches of the command line")
def test_a_connection_limit(server, connection, connect, new_role, storage, examine, tmp_path):
    """With room for no, one or two connections, a command does its work or says what is missing."""
    role = new_role()
    ledger = Ledger(connection, storage)
    name = connection.info.dbname
    connection.execute(f"GRANT ALL ON SCHEMA public TO {role}; GRANT ALL ON SCHEMA simsql TO {role}")
    connection.execute(f"GRANT postgres TO {role}")
    url = server.url(name).set(username=role).render_as_string()
    file = tmp_path / "rows.jsonl"
    commands = [
        ["maintain"],
        ["index", "verify", "article"],
        ["load", "article", file, "--fingerprint-field", "fingerprint"],
        ["near", "article", "--fingerprint", "0"],
    ]
    tried = 0
    for limit, command in itertools.product((0, 1, 2), commands):
        value = 2**40 + tried
        file.write_text(f'{{"fingerprint": {value}}}\n', encoding="utf-8")
        connection.execute(f"ALTER ROLE {role} CONNECTION LIMIT {limit}")
        result = run(*command, "--database", url)
        if result.code:
            assert "too many connections" in result.err, result.err
        tried += 1
        if command[0] == "load" and not result.code:
            ((row,),) = connection.execute("SELECT id FROM article WHERE fingerprint = %s", [value])
            ledger.committed[row] = value
    connection.execute(f"REVOKE ALL ON SCHEMA public, simsql FROM {role}; REVOKE postgres FROM {role}")
    examine(connection, ledger.committed, tried=tried)
