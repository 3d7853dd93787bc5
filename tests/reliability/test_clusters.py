"""Whole servers that are copied, upgraded, recovered or promoted."""

import dataclasses
import itertools
import os
import shutil
import subprocess

import psycopg
import pytest
from articles import near
from internals import begin_build, build_batch
from ledger import Ledger
from own_server import new_folder, own_server, run_as_owner, running, session
from program import wait_until
from psycopg import errors
from servers import OLDEST, SETTINGS, all_programs

from simsql.server.binaries import major_version, server_account
from simsql.server.postgres_server import PostgresServer

pytestmark = pytest.mark.slow
WORKED = (Ledger.insert, Ledger.update, Ledger.delete, Ledger.vacuum, Ledger.claim)
PROGRAMS = {major: program for major, program in all_programs().items() if major >= OLDEST}
PATHS = list(itertools.combinations(sorted(PROGRAMS), 2))


def make(cluster, storage):
    """A table with an index, and another one whose index is half built."""
    connection = session(cluster)
    ledger = Ledger(connection, storage)
    connection.execute("CREATE TABLE post AS SELECT id, fingerprint FROM article")
    connection.execute("CREATE INDEX ON post (fingerprint)")
    begin_build(connection, "post", storage=storage)
    assert not build_batch(connection, "post")
    return connection, ledger


def check(connection, ledger, examine, *, building=True, dumped=False, tried=1):
    """Everything is found, writers go on, and the build goes on, once the keys of a dump have been compared."""
    assert ledger.mend(connection) == 0
    examine(connection, ledger.committed, tried=tried)
    if building:
        if dumped and ledger.storage == "tables":
            with pytest.raises(errors.ObjectNotInPrerequisiteState, match="have not been compared"):
                near(connection, 0, 3, "post")
            connection.execute("SELECT * FROM simsql.repair('post')")
        with pytest.raises(errors.ObjectNotInPrerequisiteState, match="is still being built"):
            near(connection, 0, 3, "post")
        connection.execute(f"CALL simsql.build('post', 'fingerprint', blocks => 4, storage => '{ledger.storage}')")
        posts = dict(connection.execute("SELECT id, fingerprint FROM post").fetchall())
        examine(connection, posts, table="post", tried=0)
    for work in (*WORKED, Ledger.verify):
        work(ledger, connection)
    examine(connection, ledger.committed, tried=0)


def back_up(cluster, target, *options):
    """A base backup of a running server."""
    account = server_account(cluster.data_folder)
    target.mkdir(mode=0o700)
    os.chown(target, account.uid, account.gid)
    where = cluster.url().query
    run_as_owner(
        cluster,
        "pg_basebackup",
        *("--pgdata", target, "--checkpoint", "fast", "--no-sync", *options),
        *("--host", where["host"], "--port", where["port"], "--username", "postgres"),
    )
    return PostgresServer(cluster.bin_folder, target, cluster.settings)


def pg_upgrade(old, new, mode):
    """Upgrade the stopped server `old` to a new one."""
    account = server_account(old.data_folder)
    new.data_folder.mkdir(mode=0o700)
    os.chown(new.data_folder, account.uid, account.gid)
    initdb = ["--no-sync", "--auth=trust", "--encoding=UTF8", "--locale=C", "--username=postgres"]
    if major_version(old.bin_folder) == 17:
        initdb += ["--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
    if major_version(new.bin_folder) >= 18:
        initdb += ["--no-data-checksums"]
    run_as_owner(new, "initdb", *initdb, "-D", new.data_folder)
    # It writes into the folder in which it runs.
    account.run(
        *("sh", "-c", 'cd "$1" && shift && "$@"', "sh", str(new.data_folder)),
        new.bin_folder / "pg_upgrade",
        *("-b", old.bin_folder),
        *("-B", new.bin_folder),
        *("-d", old.data_folder, "-D", new.data_folder, "-U", "postgres", mode),
    )


def knows_versions(program):
    """Whether a release has the option of columns that those of November 2026 have."""
    return b"pg_attver" in (program.bin_folder / "postgres").read_bytes()


@pytest.mark.fault("upgrades between PostgreSQL 14 and 18, by `pg_upgrade` with copies and links and by a dump")
@pytest.mark.parametrize("way", ["--copy", "--link", "dump"])
@pytest.mark.parametrize("versions", PATHS, ids="{0[0]} to {0[1]}".format)
def test_an_upgrade_of_postgresql(storage, examine, versions, way):
    before, after = (PROGRAMS[major] for major in versions)
    if way != "dump" and not (after.bin_folder / "pg_upgrade").exists():
        pytest.skip(f"PostgreSQL {after} comes without pg_upgrade")
    if way != "dump" and not (before.bin_folder / "pg_resetwal").exists():
        pytest.skip(f"PostgreSQL {before} comes without pg_resetwal, which pg_upgrade calls")
    if knows_versions(before) and not knows_versions(after):
        pytest.skip(f"PostgreSQL {before} dumps the option pg_attver, which {after} does not know")
    with new_folder() as folder:
        new = PostgresServer(after.bin_folder, folder / "new", SETTINGS)
        with own_server(before, folder) as old:
            connection, ledger = make(old, storage)
            connection.close()
            if way == "dump":
                file = folder / "dump"
                where = ("--host", old.data_folder, "--username", "postgres")
                subprocess.run(
                    [new.bin_folder / "pg_dump", *where, "-Fc", f"--file={file}", "postgres"], check=True
                )
        if way == "dump":
            new.init()
        else:
            pg_upgrade(old, new, way)
        with running(new):
            if way == "dump":
                where = ("--host", new.data_folder, "--username", "postgres")
                subprocess.run(
                    [new.bin_folder / "pg_restore", *where, "--exit-on-error", "--dbname=postgres", file],
                    check=True,
                )
            with session(new) as connection:
                check(connection, ledger, examine, dumped=way == "dump")


@pytest.mark.fault("logical replication from each PostgreSQL between 14 and 18 to each later one, and a switch")
@pytest.mark.parametrize("versions", PATHS, ids="{0[0]} to {0[1]}".format)
def test_a_switch_to_a_subscriber_of_a_later_version(storage, examine, versions):
    before, after = (PROGRAMS[major] for major in versions)
    with new_folder() as folder:
        for name in ("old", "new"):
            (folder / name).mkdir(mode=0o711)
        with own_server(before, folder / "old") as old, own_server(after, folder / "new") as new:
            publisher, subscriber = session(old), session(new)
            ledger = Ledger(publisher, storage)
            publisher.execute("CREATE PUBLICATION blue FOR TABLE article")
            columns = publisher.execute(
                "SELECT string_agg(attname || ' ' || format_type(atttypid, atttypmod), ', ' ORDER BY attnum)"
                "  FROM pg_attribute WHERE attrelid = 'article'::regclass AND attnum > 0 AND NOT attisdropped"
            ).fetchone()[0]
            subscriber.execute(f"CREATE TABLE article ({columns}, PRIMARY KEY (id))")
            address = f"host={old.data_folder} user=postgres dbname=postgres"
            subscriber.execute(f"CREATE SUBSCRIPTION green CONNECTION '{address}' PUBLICATION blue")
            ledger.insert(publisher)
            subscriber.execute("CREATE INDEX ON article (fingerprint)")
            subscriber.execute(f"CALL simsql.build('article', 'fingerprint', blocks => 4, storage => '{storage}')")
            for work in WORKED:
                work(ledger, publisher)
            applied = "SELECT pg_current_wal_lsn() <= confirmed_flush_lsn FROM pg_replication_slots"
            wait_until(
                lambda: publisher.execute(f"{applied} WHERE slot_name = 'green'").fetchone()[0], "the subscriber"
            )
            subscriber.execute("ALTER SUBSCRIPTION green DISABLE")
            subscriber.execute("DROP SUBSCRIPTION green")
            publisher.close()
            check(subscriber, ledger, examine, building=False)
            subscriber.close()


@pytest.mark.fault("recovery to a point in time, in the middle of writes, of a build and after a vacuum")
def test_point_in_time_recovery(server, storage, examine):
    """A base backup under writes, then the log up to each of several moments."""
    with new_folder() as folder:
        archive = folder / "archive"
        archive.mkdir(mode=0o777)
        archive.chmod(0o777)
        settings = {"archive_mode": "on", "archive_command": f"cp %p {archive}/%f", "wal_level": "replica"}
        moments = []
        with own_server(server.program, folder, **settings) as cluster:
            connection, ledger = make(cluster, storage)
            backup = back_up(cluster, folder / "backup", "--wal-method=none")
            for work in (*WORKED, Ledger.create_again):
                work(ledger, connection)
                moments.append((f"after_{len(moments)}", dict(ledger.committed)))
                connection.execute("SELECT pg_create_restore_point(%s)", [moments[-1][0]])
            # What is written after the last moment must not be there.
            ledger.insert(connection)
            connection.execute("SELECT pg_switch_wal()")
            connection.close()
        for name, committed in moments[::2] + moments[-1:]:
            recovered = dataclasses.replace(backup, data_folder=folder / name)
            shutil.copytree(backup.data_folder, recovered.data_folder)
            for path in (recovered.data_folder, *recovered.data_folder.rglob("*")):
                shutil.chown(path, *dataclasses.astuple(server_account(backup.data_folder)))
            (recovered.data_folder / "recovery.signal").touch()
            recovery = {
                "archive_mode": "off",
                "restore_command": f"cp {archive}/%f %p",
                "recovery_target_name": name,
                "recovery_target_action": "promote",
            }
            with running(recovered, **recovery), session(recovered) as connection:
                wait_until(lambda at=connection: not is_in_recovery(at), "the promotion")
                ledger.committed = committed
                check(connection, ledger, examine)
            shutil.rmtree(recovered.data_folder)


@pytest.mark.fault("a hot standby, and one that is promoted after its primary has died")
def test_a_promoted_standby(server, storage, examine):
    """A base backup follows the primary, answers exactly, and takes over."""
    with new_folder() as folder, own_server(server.program, folder) as cluster:
        connection, ledger = make(cluster, storage)
        standby = back_up(cluster, folder / "standby", "--write-recovery-conf")
        with running(standby), session(standby) as reader:
            for work in WORKED:
                work(ledger, connection)
                (written,) = connection.execute("SELECT pg_current_wal_lsn()").fetchone()
                wait_until(lambda at=written: is_replayed(reader, at), "the standby to catch up")
                for value in list(ledger.committed.values())[::20]:
                    assert (value, 0) in near(reader, value, 3)
            with pytest.raises(psycopg.errors.ReadOnlySqlTransaction, match="standby"):
                reader.execute("SELECT * FROM simsql.claim('article', 5::bigint)")
            connection.close()
            # As a machine that loses its power.
            run_as_owner(cluster, "pg_ctl", "stop", "--mode=immediate", "-D", cluster.data_folder)
            reader.execute("SELECT pg_promote()")
            check(reader, ledger, examine, tried=1)


def is_in_recovery(connection):
    return connection.execute("SELECT pg_is_in_recovery()").fetchone()[0]


def is_replayed(standby, position):
    return standby.execute("SELECT pg_last_wal_replay_lsn() >= %s", [position]).fetchone()[0]


@pytest.mark.fault("`pg_dumpall` of a server into another one")
def test_pg_dumpall(server, storage, examine, tmp_path):
    with new_folder() as folder:
        (folder / "a").mkdir()
        (folder / "b").mkdir()
        with own_server(server.program, folder / "a") as cluster:
            connection, ledger = make(cluster, storage)
            connection.close()
            on_server = dataclasses.replace(server, cluster=cluster)
            script = str(tmp_path / "script")
            on_server.run("pg_dumpall", f"--file={script}")
        other = PostgresServer(server.program.bin_folder, folder / "b" / "data", SETTINGS)
        other.init()
        with running(other):
            # The role postgres is there.
            on_other = dataclasses.replace(server, cluster=other)
            on_other.run("psql", "--quiet", "--output=/dev/null", f"--file={script}", "postgres")
            with session(other) as connection:
                check(connection, ledger, examine, dumped=True)
