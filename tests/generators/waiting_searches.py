"""Searches that wait for a lock while the table, its keys or its index change: each equals plain SQL or says so.

Session A changes something and holds the lock. Session B begins to search, and waits. A commits. What B finds
equals what plain SQL finds right afterwards in the same transaction, or B gets an error that says what happened.
"""

import contextlib
import random
import re
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import oracle
import psycopg
from attempts import Attempts, DifferenceError
from servers import Server
from similar import like_near

LEVELS = ["READ UNCOMMITTED", "READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"]
READER = "waiting_reader"
_INDEXES_OF_A_DATABASE = 28  # near has static statements for 32
QUERY = 0
# All within 4 bits of the query, and of each other where their numbers are near.
ROWS = [1, 1 << 40 | 1, 7 << 20, -(2**63), 5, 5, 2**62 - 1]
_OTHERS = "(VALUES (101, 1, 2, 1), (102, 1, 1::bigint << 41, 2), (103, 0, 6, 3), (104, 1, 3::bigint << 30, 4))"
_NEW = "(VALUES (201, 1, 1::bigint << 50, 1::bigint << 9), (202, 1, 9, 8), (203, 0, 12, 1), (204, 1, 1 << 29, 3))"
_COLUMNS = "id, tenant, {fp}, {other}"
_LIKE = "id bigint, tenant integer, fp bigint, spare bigint, note text DEFAULT 'x'"

KINDS = {
    "ordinary": f"CREATE TABLE w.article ({_LIKE})",
    "generated": f"CREATE TABLE w.article ({_LIKE})".replace(
        "fp bigint", "fp bigint GENERATED ALWAYS AS (spare) STORED"
    ),
    "partitioned": f"CREATE TABLE w.article ({_LIKE}) PARTITION BY RANGE (id);"
    " CREATE TABLE w.part_0 PARTITION OF w.article FOR VALUES FROM (0) TO (100);"
    " CREATE TABLE w.part_1 PARTITION OF w.article DEFAULT",
}
_INDEX = "SELECT simsql.create_index('{table}', 'fp', blocks => 4, scope => '{scope}', storage => '{storage}')"
_INSERT = f"INSERT INTO {{table}} ({_COLUMNS}) SELECT * FROM {_NEW} AS n (a, b, c, d)"
_AGAIN = (
    f"CREATE TABLE w.article ({_LIKE}); INSERT INTO w.article (id, tenant, fp, spare) SELECT * FROM {_OTHERS} AS n"
)

# What A does: {keys} is the first key table, {index} creates the index, {trigger} is one that adds keys.
CHANGES = {
    "lock and insert": "{lock}; {insert}",
    "lock and update": "{lock}; UPDATE {table} SET {fp} = {fp} # (1::bigint << 55)",
    "lock and delete": "{lock}; DELETE FROM {table} WHERE id % 2 = 0",
    "lock keys and insert": "LOCK {keys}; {insert}",
    "truncate": "TRUNCATE {table}",
    "truncate and insert": "TRUNCATE {table}; {insert}",
    "truncate and delete keys": "TRUNCATE {table}; TRUNCATE {keys}; {insert}",
    "rewrite": "{alter} ALTER note TYPE varchar(9) USING 'x'",
    "rewrite and insert": "{alter} ADD seen timestamptz DEFAULT clock_timestamp(); {insert}",
    "cluster": "CLUSTER {table} USING {btree}; {insert}",
    "drop": "DROP TABLE {table} CASCADE",
    "drop and create": f"DROP TABLE {{table}} CASCADE; {_AGAIN}",
    "drop and create with its index": f"DROP TABLE {{table}} CASCADE; {_AGAIN}; {{index}}; {{insert}}",
    "drop all and create": "SELECT simsql.drop_index('{table}', 'fp'); DROP TABLE {table};"
    f" {_AGAIN}; {{index}}",
    "swap tables": "{alter} RENAME TO gone; ALTER TABLE w.twin RENAME TO article",
    "swap tables twice": "{alter} RENAME TO gone; ALTER TABLE w.twin RENAME TO article; ALTER TABLE w.gone"
    " RENAME TO twin; {insert}",
    "rename and back": "{alter} RENAME TO gone; ALTER TABLE w.gone RENAME TO article; {insert}",
    "swap schemas": "ALTER SCHEMA w RENAME TO gone; ALTER SCHEMA x RENAME TO w",
    "another schema": "DROP TABLE x.article; {alter} SET SCHEMA x; ALTER TABLE w.twin RENAME TO article",
    "view of its name": "{alter} RENAME TO gone; CREATE VIEW w.article AS TABLE w.gone; LOCK TABLE w.gone",
    "swap columns": "{alter} RENAME fp TO gone; {alter} RENAME spare TO fp; {alter} RENAME gone TO spare",
    "rename column": "{alter} RENAME fp TO print",
    "rename column and back": "{alter} RENAME fp TO print; {alter} RENAME print TO fp; {insert}",
    "drop and add column": "{alter} DROP fp CASCADE; {alter} ADD fp bigint DEFAULT 9",
    "drop and add column with its index": "SELECT simsql.drop_index('{table}', 'fp'); {alter} DROP fp;"
    " {alter} ADD fp bigint DEFAULT 9; {index}",
    "drop and rename column": "{alter} DROP fp CASCADE; {alter} RENAME spare TO fp",
    "swap scopes": "{alter} RENAME tenant TO gone; {alter} ADD tenant integer DEFAULT 1",
    "type of the scope": "{alter} ALTER tenant TYPE text USING tenant + 1",
    "column type": "DROP TRIGGER {column_trigger} ON {table}; {alter} ALTER fp TYPE numeric USING fp + 1",
    "column values": "DROP TRIGGER {column_trigger} ON {table}; {alter} ALTER fp TYPE bigint USING fp # 24",
    "unlogged": "{alter} SET UNLOGGED; {insert}",
    "unlogged and logged": "{alter} SET UNLOGGED; {alter} SET LOGGED; {insert}",
    "another expression": "{alter} ALTER fp SET EXPRESSION AS (spare # 24)",
    "the same expression": "CREATE OR REPLACE FUNCTION x.f(bigint) RETURNS bigint IMMUTABLE LANGUAGE sql"
    " AS 'SELECT $1 # 17'; {alter} ALTER fp SET EXPRESSION AS (x.f(spare))",
    "no expression": "{alter} ALTER fp DROP EXPRESSION; UPDATE {table} SET fp = fp # 40",
    "triggers off and on": "{alter} DISABLE TRIGGER ALL; {insert}; {alter} ENABLE TRIGGER ALL",
    "trigger off and on": "{alter} DISABLE TRIGGER {trigger}; {insert}; {alter} ENABLE ALWAYS TRIGGER {trigger}",
    "trigger off": "{alter} DISABLE TRIGGER {trigger}; {insert}",
    "drop trigger": "DROP TRIGGER {trigger} ON {table}; {insert}",
    "as a replica": "{lock}; SET LOCAL session_replication_role = replica; {insert}",
    "detach": "{alter} DETACH PARTITION w.part_0",
    "detach and attach": "{alter} DETACH PARTITION w.part_0; UPDATE w.part_0 SET {fp} = {fp} # 40;"
    " {alter} ATTACH PARTITION w.part_0 FOR VALUES FROM (0) TO (100)",
    "attach another": "{alter} DETACH PARTITION w.part_0; {alter} ATTACH PARTITION w.twin"
    " FOR VALUES FROM (0) TO (100)",
    "drop partition": "DROP TABLE w.part_0; {insert}",
    "truncate a partition": "TRUNCATE w.part_1; {insert}",
    "child": "CREATE TABLE w.child () INHERITS ({table});"
    " INSERT INTO w.child (id, tenant, {fp}) VALUES (301, 1, 3)",
    "inherit": "{lock}; ALTER TABLE w.twin INHERIT {table}",
    "be a child": "{alter} INHERIT w.twin",
    "row security": "{alter} ENABLE ROW LEVEL SECURITY",
    "policy": "CREATE POLICY few ON {table} USING (id % 2 = 0); {alter} ENABLE ROW LEVEL SECURITY",
    "policy of keys": "{lock}; ALTER POLICY readers ON {keys} USING (false)",
    "other policy of keys": "{lock}; CREATE POLICY none ON {keys} AS RESTRICTIVE USING (false)",
    "privileges": "{lock}; REVOKE SELECT ON {table} FROM waiting_reader",
    "change storage": "{lock}; SELECT simsql.change_storage('{table}', '{other_storage}', 'fp')",
    "change storage and insert": "SELECT simsql.change_storage('{table}', '{other_storage}', 'fp');"
    " {lock}; {insert}",
    "repair": "{lock}; SELECT simsql.repair('{table}'); {insert}",
    "drop keys and repair": "DROP TABLE {keys}; SELECT simsql.repair('{table}'); {insert}",
    "drop index": "{lock}; SELECT simsql.drop_index('{table}', 'fp')",
    "drop index and create": "{lock}; SELECT simsql.drop_index('{table}', 'fp'); {insert}; {index}",
    "drop index, insert and create": "SELECT simsql.drop_index('{table}', 'fp'); {index}; {lock}; {insert}",
    "another index": "{lock}; SELECT simsql.create_index('{table}', 'spare', blocks => 3)",
    "drop keys": "DROP TABLE {keys}",
    "rename keys": "ALTER TABLE {keys} RENAME TO gone; {insert}",
    "keys unlogged": "ALTER TABLE {keys} SET UNLOGGED; {insert}",
    "drop B-tree": "DROP INDEX w.{search_btree}; {insert}",
    "reindex": "REINDEX TABLE {table}; {insert}",
}


@dataclass(frozen=True)
class Case:
    """What is tried."""

    kind: str
    storage: str
    scoped: bool
    search: str
    level: str
    changes: tuple[str, ...]
    reader: bool = False
    searched_before: bool = False
    """Whether B's session has planned this search before."""
    snapshot_before: bool = False
    """Whether B's transaction has read something before A took its lock."""
    twin_indexed: bool = True
    commits: bool = True
    """Whether A commits."""
    late: bool = False
    """Whether B's statement begins before A's, and calls the search when A is done, so that it need not wait."""


class SearchOf:
    """How to search, and what to expect of the rows (fp, spare) that plain SQL sees."""

    def __init__(self, statement: str, expected: Callable[[list[Any]], list[Any]], wide: bool = False) -> None:
        self.statement = statement
        self.expected = expected
        self.wide = wide


def _prints(rows: list[Any]) -> list[int]:
    return [row[0] for row in rows if row[0] is not None]


def _near_wide(within: int) -> Callable[[list[Any]], list[Any]]:
    def expected(rows: list[Any]) -> list[Any]:
        whole = [row for row in rows if None not in row]
        distances = [(oracle.distance(QUERY, a) + oracle.distance(QUERY, b), a, b) for a, b in whole]
        return sorted({(f"{{{a},{b}}}", d) for d, a, b in distances if d <= within})

    return expected


def _near_many(queries: int) -> Callable[[list[Any]], list[Any]]:
    return lambda rows: [(q, *m) for q in range(queries) for m in oracle.near(_prints(rows), q, 4)]


_MORE = "column_name => 'fp', scope => {scope}"
_SIMILAR = like_near(QUERY, 4, "'w.article'", "'fp'")
SEARCHES = {
    "near": SearchOf(
        f"SELECT fingerprint, distance FROM simsql.near('w.article', {QUERY}, 4, {_MORE})",
        lambda rows: oracle.near(_prints(rows), QUERY, 4),
    ),
    "similar_candidates": SearchOf(
        f"SELECT fingerprint, cost FROM simsql.similar_candidates('w.article', {_SIMILAR}, {_MORE})",
        lambda rows: oracle.near(_prints(rows), QUERY, 4),
    ),
    "near_rows": SearchOf(
        f"SELECT t.fp FROM simsql.near_rows(NULL::w.article, {QUERY}, 4, {_MORE}) AS t",
        lambda rows: [(p,) for p in _prints(rows) if oracle.distance(p, QUERY) <= 4],
    ),
    "near_many of few": SearchOf(
        f"SELECT * FROM simsql.near_many('w.article', '{{0,1,2}}'::bigint[], 4, {_MORE})", _near_many(3)
    ),
    "near_many": SearchOf(
        f"SELECT * FROM simsql.near_many('w.article', ARRAY(SELECT generate_series(0, 39)::bigint), 4, {_MORE})",
        _near_many(40),
    ),
    "near_many of a table": SearchOf(
        f"SELECT * FROM simsql.near_many('w.article', 'x.queries', 'q', 4, {_MORE})", _near_many(40)
    ),
    "pairs": SearchOf(
        f"SELECT * FROM simsql.pairs('w.article', 4, {_MORE})", lambda rows: oracle.pairs(_prints(rows), 4)
    ),
    "clusters": SearchOf(
        f"SELECT * FROM simsql.clusters('w.article', 4, {_MORE})", lambda rows: oracle.clusters(_prints(rows), 4)
    ),
    "near_wide": SearchOf(
        f"SELECT fingerprint::text, distance FROM simsql.near_wide('w.article', '{{{QUERY},{QUERY}}}', 9,"
        " '{{fp,spare}}', {scope})",
        _near_wide(9),
        wide=True,
    ),
    "near_wide of all": SearchOf(
        f"SELECT fingerprint::text, distance FROM simsql.near_wide('w.article', '{{{QUERY},{QUERY}}}', 40,"
        " '{{fp,spare}}', {scope})",
        _near_wide(40),
        wide=True,
    ),
    "claim": SearchOf(
        f"SELECT * FROM simsql.claim('w.article', {QUERY}, 4, {_MORE})",
        lambda rows: oracle.near(_prints(rows), QUERY, 4)[:1],
    ),
    "explain_near": SearchOf(f"SELECT simsql.explain_near('w.article', {QUERY}, 4, {_MORE})", lambda rows: []),
    "explain_similar": SearchOf(
        f"SELECT simsql.explain_similar('w.article', {_SIMILAR}, {_MORE})", lambda rows: []
    ),
}
# near_wide has its words in braces, which format() reads.
for _name in ("near_wide", "near_wide of all"):
    SEARCHES[_name].statement = SEARCHES[_name].statement.replace(
        f"{{{QUERY},{QUERY}}}", f"{{{{{QUERY},{QUERY}}}}}"
    )
SEARCHES["near_many of few"].statement = SEARCHES["near_many of few"].statement.replace("{0,1,2}", "{{0,1,2}}")


def changes_of(kind: str, storage: str) -> list[str]:
    """The changes that fit a kind of table and a storage."""
    of_partitions = {name for name, change in CHANGES.items() if "w.part_" in change}
    of_tables = {
        name for name, change in CHANGES.items() if re.search(r"\{(keys|trigger|column_trigger)\}", change)
    }
    of_one = {"cluster", "reindex", "unlogged", "unlogged and logged", "child", "inherit", "be a child"}
    left_out = of_partitions | of_one if kind == "partitioned" else of_partitions
    left_out = left_out - (of_partitions if kind == "partitioned" else set())
    left_out |= of_tables if storage == "expression" else {"drop B-tree", "be a child"}
    left_out |= set() if kind == "generated" else {"another expression", "the same expression", "no expression"}
    left_out |= {"change storage", "change storage and insert"} if kind == "partitioned" else set()
    return [name for name in CHANGES if name not in left_out]


def random_case(chance: random.Random) -> Case:
    """Any search, at any level, while one change or several wait to be committed."""
    kind = chance.choice(["ordinary"] * 4 + ["generated", "partitioned", "partitioned"])
    storage = "expression" if kind == "partitioned" else chance.choice(["tables", "tables", "expression"])
    possible = changes_of(kind, storage)
    changes = tuple(chance.choice(possible) for _ in range(chance.choice([1, 1, 1, 2, 3])))
    return Case(
        kind,
        storage,
        chance.random() < 0.3,
        chance.choice(list(SEARCHES)),
        chance.choice(LEVELS),
        changes,
        chance.random() < 0.4,
        chance.random() < 0.5,
        chance.random() < 0.3,
        chance.random() < 0.6,
        chance.random() < 0.9,
        # PostgreSQL shows a part that has joined the table to older snapshots, too.
        chance.random() < 0.3 and not any(re.search("attach|child|inherit", change) for change in changes),
    )


class Stage:
    """The sessions of some cases in one database."""

    def __init__(self, server: Server, database: str) -> None:
        self.stack = contextlib.ExitStack()
        with contextlib.ExitStack() as stack:

            def connect(user: str) -> psycopg.Connection:
                return stack.enter_context(contextlib.closing(server.connect(database, user)))

            self.a, self.observer = connect("postgres"), connect("postgres")
            self.b = {False: connect("postgres"), True: connect(READER)}
            self.pool = stack.enter_context(ThreadPoolExecutor(1))
            self.stack = stack.pop_all()
        for session in (self.a, self.observer, *self.b.values()):
            session.prepare_threshold = None
            session.execute("SET lock_timeout = '20s'; SET client_min_messages = error")
        self.indexes = 0

    def __enter__(self) -> "Stage":
        return self

    def __exit__(self, *_: object) -> None:
        self.stack.close()

    # The table

    def set_up(self, case: Case) -> None:
        """Create the table, another one, and their indexes."""
        execute = self.observer.execute
        for session in (self.a, *self.b.values()):
            session.rollback()
        for table, column in execute("SELECT table_id::oid, column_name FROM simsql.registry").fetchall():
            with contextlib.suppress(psycopg.Error):
                execute("SELECT simsql.drop_index(%s::oid::regclass, %s)", [table, column])
        execute("DROP SCHEMA IF EXISTS w, x, gone CASCADE; CREATE SCHEMA w; CREATE SCHEMA x")
        execute(KINDS[case.kind])
        execute(f"CREATE TABLE w.twin ({_LIKE}); CREATE TABLE x.article ({_LIKE})")
        execute("CREATE TABLE x.queries AS SELECT generate_series(0, 39)::bigint AS q")
        value = "spare" if case.kind == "generated" else "fp"
        execute(
            f"INSERT INTO w.article (id, tenant, {value}) SELECT n, (n < 6)::integer, f"
            " FROM unnest(%s::bigint[]) WITH ORDINALITY AS u (f, n)",
            [ROWS],
        )
        if value == "fp":
            execute("UPDATE w.article SET spare = fp # 3")
        scope = "{tenant}" if case.scoped else "{}"
        self.index = _INDEX.format(table="w.article", scope=scope, storage=case.storage)
        execute(self.index)
        self.indexes += 1
        if SEARCHES[case.search].wide:
            execute(self.index.replace("'fp'", "'spare'"))
            self.indexes += 1
        for table in ("w.twin", "x.article"):
            execute(f"INSERT INTO {table} (id, tenant, fp, spare) SELECT * FROM {_OTHERS} AS n")
            if case.twin_indexed:
                execute(_INDEX.format(table=table, scope=scope, storage=case.storage))
                self.indexes += 1
        execute(
            "GRANT USAGE ON SCHEMA w, x TO waiting_reader; GRANT SELECT ON ALL TABLES IN SCHEMA w, x TO"
            " waiting_reader; ALTER DEFAULT PRIVILEGES IN SCHEMA w, x GRANT SELECT ON TABLES TO waiting_reader"
        )

    def change(self, case: Case, change: str) -> str:
        """The statements of a change, by the names that objects have now."""
        (number,) = self.observer.execute(
            "SELECT id FROM simsql.registry WHERE table_id = 'w.article'::regclass AND column_name = 'fp'"
        ).fetchone()
        fp, other = ("spare", "note") if case.kind == "generated" else ("fp", "spare")
        (btree,) = self.observer.execute(
            "SELECT min(c.relname) FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid"
            " WHERE i.indrelid = 'w.article'::regclass"
        ).fetchone()
        names = {
            "table": "w.article",
            "alter": "ALTER TABLE w.article",
            "lock": "LOCK w.article",
            "keys": f"simsql.keys_{number}_0",
            "index": self.index,
            "trigger": f"simsql_{number}_insert",
            "column_trigger": f"simsql_{number}_column",
            "search_btree": f"simsql_{number}_0",
            "btree": btree,
            "other_storage": "expression" if case.storage == "tables" else "tables",
            "fp": fp,
        }
        insert = _INSERT.format(table="w.article", fp=fp, other=other)
        return CHANGES[change].format(insert=insert, **names)

    # The search

    def try_case(self, case: Case, counts: "Counts") -> None:
        """Let a search wait for a change; raise DifferenceError if it misses something in silence."""
        counts.cases += 1
        self.set_up(case)
        session = self.b[case.reader]
        scope = """'{"tenant": 1}'""" if case.scoped else "NULL"
        statement = SEARCHES[case.search].statement.format(scope=scope)
        if case.changes[0] == "the same expression" and self.observer.info.server_version >= 170000:
            self._use_function()
        if case.searched_before:
            with contextlib.suppress(psycopg.Error):
                session.execute(statement)
        session.execute(f"BEGIN ISOLATION LEVEL {case.level}")
        if case.snapshot_before:
            session.execute("SELECT count(*) FROM x.queries")
        if case.late:
            session.execute(f"DECLARE late CURSOR FOR {statement}")
            statement = "FETCH ALL late"
        self.a.execute("BEGIN")
        done = 0
        for change in case.changes:
            try:
                self.a.execute("SAVEPOINT s")
                self.a.execute(self.change(case, change))
                counts.changes[change] += 1
                done += 1
            except psycopg.Error as error:
                counts.refused[f"{change}: {error.sqlstate} {error.diag.message_primary}"[:110]] += 1
                self.a.execute("ROLLBACK TO s")
        if not done:
            self.a.rollback()
            session.rollback()
            return
        try:
            # Where plain SQL would not have had to wait, it would have seen the rows of before.
            (blocks,) = self.a.execute(_HOLDS_TABLE).fetchone()
            if case.late:
                self.a.execute("COMMIT" if case.commits else "ROLLBACK")
            future = self.pool.submit(_fetch, session, statement)
            waited = self._wait(future, session.info.backend_pid)
            self.a.execute("COMMIT" if case.commits else "ROLLBACK")
            found = future.result()
            plain = self._plain_rows(session, case) if isinstance(found, list) else []
            self._judge(case, counts, found, plain, waited and blocks)
        finally:
            self.a.rollback()
            session.rollback()
        counts.waited += waited

    def _use_function(self) -> None:
        """Let the column be generated by a function, which the change replaces."""
        self.observer.execute(
            "CREATE FUNCTION x.f(bigint) RETURNS bigint IMMUTABLE LANGUAGE sql AS 'SELECT $1';"
            " ALTER TABLE w.article ALTER fp SET EXPRESSION AS (x.f(spare)); SELECT simsql.repair('w.article')"
        )

    def _wait(self, future: "Future[Any]", process: int) -> bool:
        """Whether a search waits for a lock; false if it has ended."""
        while not future.done():
            (blockers,) = self.observer.execute("SELECT cardinality(pg_blocking_pids(%s))", [process]).fetchone()
            if blockers:
                return True
            time.sleep(0.001)
        return False

    def _plain_rows(self, session: psycopg.Connection, case: Case) -> Any:
        """What plain SQL sees, or its error."""
        columns = "fp, spare" if SEARCHES[case.search].wide else "fp"
        return _fetch(session, f"SELECT {columns} FROM w.article{' WHERE tenant = 1' if case.scoped else ''}")

    def _judge(self, case: Case, counts: "Counts", found: Any, plain: Any, had_to_wait: bool) -> None:
        if isinstance(found, psycopg.Error):
            self._judge_error(case, counts, found)
            return
        if case.search.startswith("explain"):
            counts.results["a plan"] += 1
            return
        search = SEARCHES[case.search]
        rows = [(f, f ^ (0 if case.kind == "generated" else 3)) for f in (ROWS[:5] if case.scoped else ROWS)]
        if not had_to_wait and sorted(found) == sorted(search.expected(rows)):
            counts.results["as before, as plain SQL may"] += 1
        elif isinstance(plain, psycopg.Error):
            raise DifferenceError(f"found {found}, but plain SQL fails: {plain}")
        else:
            missed, more = Counter(search.expected(plain)), Counter(found)
            missed, more = missed - more, more - missed
            if missed or more:
                raise DifferenceError(f"missed {sorted(missed)[:4]}, found {sorted(more)[:4]} instead")
            counts.results["equal, with matches" if found else "equal"] += 1

    def _judge_error(self, case: Case, counts: "Counts", error: psycopg.Error) -> None:
        message = f"{error.sqlstate} {error.diag.message_primary}"
        counts.errors[f"{case.search}: {re.sub('[0-9]{2,}', '…', message)}"[:130]] += 1
        if error.sqlstate in ("42P01", "42704", "40001") or (
            str(error).startswith("simsql") and error.diag.message_hint
        ):
            counts.results["an error that says why"] += 1
            return
        if error.sqlstate == "XX000":
            if case.search != "near_rows" or error.diag.context:
                raise DifferenceError(f"{message} {error.diag.context}")
            # The type of its rows is gone, which PostgreSQL notices before it calls the function.
            counts.results["the error of a type that is gone"] += 1
            return
        if case.level in LEVELS[2:]:
            # Its snapshot shows the catalogue of before; a new transaction gets a better error.
            counts.results["a poor error in an older snapshot"] += 1
            return
        # A new transaction of plain SQL may fail in the same way.
        session = self.b[case.reader]
        session.rollback()
        plain = self._plain_rows(session, case)
        if not isinstance(plain, psycopg.Error) or plain.sqlstate != error.sqlstate:
            raise DifferenceError(f"{message} {error.diag.context}")
        counts.results["the error of plain SQL"] += 1


# On indexes alone, PostgreSQL waits when it plans a query inside a function, too, whose snapshot is older.
_HOLDS_TABLE = (
    "SELECT EXISTS (SELECT FROM pg_locks AS l LEFT JOIN pg_class AS c ON c.oid = l.relation"
    " WHERE l.pid = pg_backend_pid() AND l.mode = 'AccessExclusiveLock' AND l.locktype = 'relation'"
    " AND coalesce(c.relkind, 'r') <> 'i' AND c.relnamespace IS DISTINCT FROM 'simsql'::regnamespace)"
)


def _fetch(session: psycopg.Connection, statement: str) -> Any:
    try:
        return session.execute(statement).fetchall()
    except psycopg.Error as error:
        return error


class Counts:
    """What has been tried."""

    def __init__(self) -> None:
        self.cases = self.waited = 0
        self.changes: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.results: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()


def prepare(server: Server) -> None:
    """Create the role that searches, which belongs to the whole server."""
    with contextlib.closing(server.connect("postgres")) as connection:
        if not connection.execute("SELECT FROM pg_roles WHERE rolname = %s", [READER]).fetchone():
            connection.execute(f"CREATE ROLE {READER} LOGIN")


def try_many(attempts: Attempts, counts: Counts) -> None:
    """Try random cases."""
    prepare(attempts.server)
    while not attempts.is_over:
        with (
            attempts.server.new_database(template=attempts.template) as url,
            Stage(attempts.server, str(url.database)) as stage,
        ):
            for number, chance in attempts:
                case = random_case(chance)
                try:
                    stage.try_case(case, counts)
                except DifferenceError as difference:
                    for one in smaller(case) if attempts.shorten else ():
                        with contextlib.suppress(DifferenceError):
                            stage.try_case(one, Counts())
                            continue
                        case = one
                        break
                    attempts.differ(number, f"{' and '.join(case.changes)}: {case.search}", case, difference)
                if stage.indexes >= _INDEXES_OF_A_DATABASE:
                    break


def smaller(case: Case) -> list[Case]:
    """The case with one of its changes at a time."""
    return (
        [Case(**{**vars(case), "changes": (change,)}) for change in case.changes] if len(case.changes) > 1 else []
    )


# Faults of the past: in each function, a text and what stands for it again.
FAULTS = {
    # A search did not notice that it had waited for its table.
    "wait": (("simsql._lock_at_once(text)", "IN ACCESS SHARE MODE NOWAIT", "IN ACCESS SHARE MODE"),),
}
