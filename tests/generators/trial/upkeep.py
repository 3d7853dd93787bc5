"""What administrators do to an index and its table while others write and search."""

import random
import re
from collections.abc import Callable, Sequence

import psycopg
from psycopg import errors
from psycopg.pq import TransactionStatus
from sqlalchemy import create_engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from simsql import Design
from simsql.database import change_storage, create_index
from trial.tables import DESIGNS, LAST_TENANT, SHARED, Kind, arguments
from trial.tally import Tally

Statement = Callable[[psycopg.Connection, random.Random, Kind], object]
_STORAGES = ("tables", "expression")


class Upkeep:
    """Rebuilds, changes of storage, repairs and changes of partitions, one table at a time.

    What an error, a killed session or a crash interrupts is gone on with, as the documentation says.
    """

    def __init__(self, kinds: Sequence[Kind], tally: Tally) -> None:
        self._kinds = kinds
        self._tally = tally
        # The storage and the design that each index is to have.
        self._wanted = {kind.name: (kind.storage, DESIGNS[0]) for kind in kinds}

    def vacuum(self, connection: psycopg.Connection, chance: random.Random) -> None:
        """Remove superfluous keys; now and then, what PostgreSQL does to tables."""
        kind = chance.choice(self._kinds)
        if chance.random() < 0.2:
            what = chance.choice(
                ["VACUUM", "VACUUM (ANALYZE)", "ANALYZE", "REINDEX TABLE CONCURRENTLY", "VACUUM FULL"]
            )
            connection.execute("SET lock_timeout = '2s'")
            connection.execute(f"{what} {kind.name}")
            connection.execute("RESET lock_timeout")
            self._tally.operation(what)
            return
        removed: list[str] = []
        connection.add_notice_handler(
            lambda notice: removed.extend(re.findall(r"(\d+) keys", notice.message_primary or ""))
        )
        level = chance.choice(["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])
        connection.execute(f"SET default_transaction_isolation = '{level}'")
        connection.execute(f"CALL simsql.vacuum('{kind.name}')")
        self._tally.operation("simsql.vacuum")
        self._tally.check("keys removed by simsql.vacuum", int(removed[-1]) if removed else 0)

    def change(self, connection: psycopg.Connection, chance: random.Random) -> None:
        """One change of an index or its table."""
        kind = chance.choice(self._kinds)
        connection.execute("SET lock_timeout = '1s'")
        self.finish(connection, kind)
        changes: list[tuple[str, Statement]] = [
            ("repair", _repair),
            ("rename and back", _rename),
            ("truncate and fill", _fill_again),
            ("drop and create", self._recreate),
            ("drop and create", self._recreate),
            ("build", self._build),
        ]
        if kind.is_ordinary:
            changes += [("change_storage", self._change_storage)] * 2
        if kind.volatile:
            changes += _INHERITANCE if kind.name == "inherited" else _PARTITIONS
        name, statement = chance.choice(changes)
        statement(connection, chance, kind)
        self._tally.operation(name)
        self._tally.done.wait(chance.uniform(0, 0.5))  # snapshots older and newer than this both have time

    def finish(self, connection: psycopg.Connection, kind: Kind) -> None:
        """Go on with what was interrupted, until the index is there and sound."""
        _mend(connection, kind)
        mend_partitions(connection, kind)
        found = connection.execute(
            "SELECT i.state, i.storage FROM simsql.indexes AS i JOIN simsql.registry AS r USING (id)"
            " WHERE r.table_id = %s::regclass",
            [kind.name],
        ).fetchone()
        state, storage = found or ("none", "")
        wanted, design = self._wanted[kind.name]
        if state == "ready" and storage == wanted:
            return
        self._tally.operation(f"gone on with: {state if state != 'ready' else 'change of storage'}")
        if state in ("none", "building"):
            self._build_online(connection, kind, wanted, design)
        elif state == "ready":
            self._in_python(connection, lambda engine: change_storage(engine, kind.name, wanted))
        else:
            connection.execute(f"SELECT * FROM simsql.repair('{kind.name}')")

    def kill(self, connection: psycopg.Connection, chance: random.Random) -> None:
        """End or cancel what vacuums and administrators do, in the midst of it."""
        self._tally.done.wait(chance.uniform(0.2, 1.5))
        how = chance.choice(["pg_terminate_backend", "pg_cancel_backend"])
        done = connection.execute(
            f"SELECT count({how}(pid)) FROM (SELECT pid FROM pg_stat_activity"
            " WHERE datname = current_database() AND state = 'active' AND pid <> pg_backend_pid()"
            " AND query ~ 'simsql.(vacuum|build|repair|create_index|_build|_change|change)|CREATE INDEX|REINDEX'"
            " ORDER BY random() LIMIT 1) AS s"
        ).fetchone()
        self._tally.add(self._tally.faults, f"{how} of upkeep", done[0] if done else 0)

    def kill_anybody(self, connection: psycopg.Connection, chance: random.Random) -> None:
        """End the session of anybody."""
        self._tally.done.wait(chance.uniform(0.5, 2))
        done = connection.execute(
            "SELECT count(pg_terminate_backend(pid)) FROM (SELECT pid FROM pg_stat_activity"
            " WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()"
            " ORDER BY random() LIMIT 1) AS s"
        ).fetchone()
        self._tally.add(self._tally.faults, "pg_terminate_backend of anybody", done[0] if done else 0)

    def _recreate(self, connection: psycopg.Connection, chance: random.Random, kind: Kind) -> None:
        """Drop the index and create it with another design, in one transaction or in two."""
        storage, design = self._wanted[kind.name][0], chance.choice(DESIGNS)
        if chance.random() < 0.7:
            connection.execute("BEGIN")
        connection.execute(f"SELECT simsql.drop_index('{kind.name}')")
        if connection.info.transaction_status == 0:
            self._wanted[kind.name] = storage, design
        connection.execute(f"SELECT simsql.create_index({arguments(kind)})", [*design, storage])
        if connection.info.transaction_status != 0:
            end = chance.choices(["COMMIT", "ROLLBACK"], [5, 1])[0]
            if end == "COMMIT":
                self._wanted[kind.name] = storage, design
            connection.execute(end)

    def _build(self, connection: psycopg.Connection, chance: random.Random, kind: Kind) -> None:
        """Drop the index and build it while others write."""
        connection.execute(f"SELECT simsql.drop_index('{kind.name}')")
        storage = chance.choice(_STORAGES) if kind.is_ordinary else kind.storage
        self._wanted[kind.name] = storage, chance.choice(DESIGNS)
        self._build_online(connection, kind, *self._wanted[kind.name])

    def _build_online(
        self, connection: psycopg.Connection, kind: Kind, storage: str, design: tuple[int, int, int]
    ) -> None:
        for _ in range(5):
            try:
                if sum(design) % 2 and kind.is_ordinary:
                    columns = ", ".join([*kind.scope, "fingerprint"])
                    connection.execute(f"CREATE INDEX IF NOT EXISTS {kind.name}_ready ON {kind.name} ({columns})")
                    connection.execute(f"CALL simsql.build({arguments(kind)})", [*design, storage])
                else:
                    self._in_python(
                        connection,
                        lambda engine: create_index(
                            engine,
                            kind.name,
                            "fingerprint",
                            design=Design(design[0], design[1], design[2]),
                            recipe="trial",
                            scope=kind.scope,
                            storage=storage,
                            concurrently=True,
                        ),
                    )
            except (errors.LockNotAvailable, errors.DeadlockDetected):
                self._tally.add(self._tally.retried, "builds that waited for others")
            else:
                return

    def _change_storage(self, connection: psycopg.Connection, chance: random.Random, kind: Kind) -> None:
        design = self._wanted[kind.name][1]
        storage = chance.choice(_STORAGES)
        self._wanted[kind.name] = storage, design
        if chance.random() < 0.5:
            self._in_python(connection, lambda engine: change_storage(engine, kind.name, storage))
        else:
            connection.execute("SELECT simsql.change_storage(%s, %s)", [kind.name, storage])

    def _in_python(self, connection: psycopg.Connection, work: Callable[[object], object]) -> None:
        info = connection.info
        where = {"host": info.host, "port": info.port, "dbname": info.dbname, "user": info.user}
        where |= {"options": "-c lock_timeout=2s", "application_name": "simsql"}
        engine = create_engine("postgresql+psycopg://", connect_args=where, poolclass=NullPool)
        try:
            work(engine)
        except DBAPIError as error:
            raise (error.orig or error) from error
        finally:
            engine.dispose()


def _repair(connection: psycopg.Connection, chance: random.Random, kind: Kind) -> None:
    """Let triggers be off for a while, or lose keys, and repair the index."""
    (index, storage) = connection.execute(
        "SELECT id, storage FROM simsql.registry WHERE table_id = %s::regclass", [kind.name]
    ).fetchone() or (0, "")
    if storage == "tables":
        if chance.random() < 0.5:
            connection.execute(f"ALTER TABLE {kind.name} DISABLE TRIGGER simsql_{index}_insert")
        else:
            connection.execute("BEGIN")
            connection.execute(f"DELETE FROM simsql.keys_{index}_1 WHERE key % 3 = 0")
    elif index:
        connection.execute(f"DROP INDEX IF EXISTS simsql_{index}_1")
    _repeat(connection, f"SELECT * FROM simsql.repair('{kind.name}')")
    connection.execute("COMMIT")


def _rename(connection: psycopg.Connection, chance: random.Random, kind: Kind) -> None:
    """Rename the column or the table for a moment: searches of the old name fail or find all."""
    other, back = chance.choice(
        [
            (
                f"ALTER TABLE {kind.name} RENAME fingerprint TO print",
                f"ALTER TABLE {kind.name} RENAME print TO fingerprint",
            ),
            (
                f"ALTER TABLE {kind.name} RENAME TO {kind.name}_x",
                f"ALTER TABLE {kind.name}_x RENAME TO {kind.name}",
            ),
        ]
    )
    connection.execute(other)
    try:
        if chance.random() < 0.3:
            connection.execute(
                f"SELECT * FROM simsql.repair('{kind.name if 'print' in other else kind.name + '_x'}')"
            )
    finally:
        _repeat(connection, back)
    _repeat(connection, f"SELECT * FROM simsql.repair('{kind.name}')")


def _fill_again(connection: psycopg.Connection, chance: random.Random, kind: Kind) -> None:
    """Truncate the table and insert its rows again: older snapshots see an empty table."""
    only = "" if kind.partition_by else "ONLY "
    connection.execute("BEGIN")
    connection.execute(f"LOCK TABLE {kind.name}")
    connection.execute(f"CREATE TEMPORARY TABLE saved ON COMMIT DROP AS SELECT * FROM {only}{kind.name}")
    connection.execute(f"TRUNCATE {only}{kind.name}")
    connection.execute(f"INSERT INTO {kind.name} SELECT * FROM saved")
    connection.execute(chance.choices(["COMMIT", "ROLLBACK"], [5, 1])[0])


def _mend(connection: psycopg.Connection, kind: Kind) -> None:
    """Give the table and the column their names back, and drop what an unfinished REINDEX has left.

    The next REINDEX would copy that, too.
    """
    if connection.execute("SELECT to_regclass(%s)", [f"{kind.name}_x"]).fetchone() != (None,):
        _repeat(connection, f"ALTER TABLE {kind.name}_x RENAME TO {kind.name}")
    renamed = connection.execute(
        "SELECT FROM pg_attribute WHERE attrelid = %s::regclass AND attname = 'print'", [kind.name]
    )
    if renamed.fetchone() is not None:
        _repeat(connection, f"ALTER TABLE {kind.name} RENAME print TO fingerprint")
    copies = connection.execute(
        "SELECT c.relname FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid"
        r" WHERE i.indrelid::regclass::text LIKE %s AND NOT i.indisvalid AND c.relname ~ '_cc(new|old)\d*$'",
        [f"{kind.name}%"],
    )
    for (name,) in copies.fetchall():
        _repeat(connection, f"DROP INDEX IF EXISTS {name}")


def _repeat(connection: psycopg.Connection, *statements: str) -> None:
    """Run statements that have to succeed, in one transaction, however long they wait for others."""
    while True:
        try:
            with connection.transaction():
                for statement in statements:
                    connection.execute(statement)
        except (errors.LockNotAvailable, errors.DeadlockDetected):
            if connection.info.transaction_status == TransactionStatus.INTRANS:
                raise
        else:
            return


def _detach(connection: psycopg.Connection, chance: random.Random, kind: Kind) -> None:
    """Detach a partition, change it, and attach it again."""
    name = chance.choice(kind.volatile)
    how = "CONCURRENTLY" if kind.name == "ranged" and chance.random() < 0.7 else ""
    try:
        connection.execute(f"ALTER TABLE {kind.name} DETACH PARTITION {name} {how}")
    except (errors.LockNotAvailable, errors.QueryCanceled):
        if how:
            _repeat(connection, f"ALTER TABLE {kind.name} DETACH PARTITION {name} FINALIZE")
        else:
            raise
    connection.execute(f"UPDATE {name} SET fingerprint = fingerprint # 9 WHERE id % 3 = 0")
    _attach(connection, kind, name)


def mend_partitions(connection: psycopg.Connection, kind: Kind) -> None:
    """Attach what an interruption has left detached, and create what is gone."""
    for name, part in kind.parts:
        if name not in kind.volatile:
            continue
        found = connection.execute(
            "SELECT i.inhdetachpending FROM pg_class AS c LEFT JOIN pg_inherits AS i ON i.inhrelid = c.oid"
            " WHERE c.oid = to_regclass(%s)",
            [name],
        ).fetchone()
        if found is None:
            _add(connection, kind, kind.part(name, part))
        elif found[0] is None:
            _attach(connection, kind, name)
        elif found[0]:
            _repeat(connection, f"ALTER TABLE {kind.name} DETACH PARTITION {name} FINALIZE")
            _attach(connection, kind, name)


def _attach(connection: psycopg.Connection, kind: Kind, name: str) -> None:
    if kind.name == "inherited":
        _repeat(connection, f"ALTER TABLE {name} INHERIT {kind.name}")
        return
    bounds = dict(kind.parts)[name].split("}")[-1]
    _add(connection, kind, f"ALTER TABLE {kind.name} ATTACH PARTITION {name} {bounds}")


def _add(connection: psycopg.Connection, kind: Kind, statement: str) -> None:
    """Create or attach a partition; it takes its rows over from the default partition."""
    if "DEFAULT" not in str(kind.parts[-1]):
        _repeat(connection, statement)
        return
    others, _ = kind.parts[-1]
    of_partition = f"FROM {others} WHERE tenant = {LAST_TENANT + 1}"
    _repeat(
        connection,
        f"LOCK TABLE {kind.name}",
        f"CREATE TEMPORARY TABLE moved ON COMMIT DROP AS SELECT * {of_partition}",
        f"DELETE {of_partition}",
        statement,
        f"INSERT INTO {kind.name} SELECT * FROM moved ON CONFLICT DO NOTHING",
    )


def _truncate(connection: psycopg.Connection, chance: random.Random, kind: Kind) -> None:
    connection.execute(f"TRUNCATE {chance.choice(kind.volatile)}")


def _new_partition(connection: psycopg.Connection, chance: random.Random, kind: Kind) -> None:
    name = chance.choice(kind.volatile)
    connection.execute(f"DROP TABLE {name}")
    _add(connection, kind, kind.part(name, dict(kind.parts)[name]))


def _attach_filled(connection: psycopg.Connection, chance: random.Random, kind: Kind) -> None:
    """Put a table with rows, whose columns are in another order, in the place of a partition."""
    name = chance.choice(kind.volatile)
    key = ", ".join(kind.key)
    connection.execute("DROP TABLE IF EXISTS filled")
    connection.execute(
        "CREATE TABLE filled (gone text, fingerprint bigint, body text, day date NOT NULL, lang text,"
        f" tenant integer {'NOT NULL' if 'tenant' in kind.key else ''}, id bigint NOT NULL, PRIMARY KEY ({key}))"
    )
    connection.execute("ALTER TABLE filled DROP gone")
    connection.execute(
        f"INSERT INTO filled (id, tenant, lang, day, body, fingerprint)"
        f" SELECT id, tenant, lang, day, body, fingerprint # 3 FROM {name}"
        f" UNION ALL SELECT n + {SHARED[-1]}, 3, 'en', CASE '{name}' WHEN 'ranged_4' THEN date '2025-04-02'"
        f" ELSE date '2025-03-02' END, 'x', n FROM generate_series(1, 20) AS n ON CONFLICT DO NOTHING"
    )
    connection.execute("BEGIN")
    connection.execute(f"DROP TABLE {name}")
    connection.execute(f"ALTER TABLE filled RENAME TO {name}")
    bounds = dict(kind.parts)[name].split("}")[-1]
    connection.execute(f"ALTER TABLE {kind.name} ATTACH PARTITION {name} {bounds}")
    connection.execute("COMMIT")


def _leave(connection: psycopg.Connection, chance: random.Random, kind: Kind) -> None:
    """Let a child leave its parent and come back."""
    name = chance.choice(kind.volatile)
    connection.execute(f"ALTER TABLE {name} NO INHERIT {kind.name}")
    connection.execute(f"UPDATE {name} SET fingerprint = fingerprint # 9 WHERE id % 3 = 0")
    _attach(connection, kind, name)


_PARTITIONS: list[tuple[str, Statement]] = [
    ("detach and attach", _detach),
    ("truncate a partition", _truncate),
    ("drop and create a partition", _new_partition),
    ("attach a filled partition", _attach_filled),
]
_INHERITANCE: list[tuple[str, Statement]] = [
    ("child leaves and comes back", _leave),
    ("truncate a child", _truncate),
]
