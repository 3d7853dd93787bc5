"""What stops keys from being added, writes meanwhile, and what puts everything back as it was.

The rule: a search afterwards refuses, or finds all; and after a repair it finds all. An upgrade, a restore, vacuum
and maintain in between change nothing about that. Without a cause, nothing is refused.
"""

import contextlib
import random
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import oracle
import psycopg
from attempts import Attempts, DifferenceError
from internals import key_tables
from servers import TEMPLATE, Server
from similar import like_near
from upgrades import RELEASED, upgrade

from simsql.database import open_engine

READER, APP = "undone_reader", "undone_app"
_F = "CREATE OR REPLACE FUNCTION w.f(bigint) RETURNS bigint IMMUTABLE LANGUAGE sql AS 'SELECT $1 + {}::bigint'"
_AS_F = "{alter} ALTER fp SET EXPRESSION AS (w.f(spare))"
_BACK = "{alter} {fires} TRIGGER {trigger}"
_SIMILAR = like_near("q", 1, "'w.t'", "'fp'")
_NOTHING = "BEFORE INSERT ON {keys} FOR EACH ROW EXECUTE FUNCTION w.nothing()"

# What stops keys, hides them or takes them away, and what takes that back.
CAUSES: dict[str, tuple[str, str]] = {
    "disable a trigger": ("{alter} DISABLE TRIGGER {trigger}", _BACK),
    "disable all triggers": ("{alter} DISABLE TRIGGER ALL", "{enable_all}"),
    "disable the triggers of users": ("{alter} DISABLE TRIGGER USER", "{alter} ENABLE TRIGGER USER"),
    "fire for replicas alone": ("{alter} ENABLE REPLICA TRIGGER {trigger}", _BACK),
    "fire for others alone": (
        "{alter} ENABLE TRIGGER {trigger}; SET session_replication_role = replica",
        f"RESET session_replication_role; {_BACK}",
    ),
    "drop a trigger": ("DROP TRIGGER {trigger} ON w.t", f"{{create_trigger}}; {_BACK}"),
    "rename a trigger": (
        "ALTER TRIGGER {trigger} ON w.t RENAME TO away; {alter} DISABLE TRIGGER away",
        "{alter} {fires} TRIGGER away; ALTER TRIGGER away ON w.t RENAME TO {trigger}",
    ),
    "replace a trigger's function": (
        "CREATE OR REPLACE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
        "{create_function}",
    ),
    "rename a trigger's function": (
        "ALTER FUNCTION {function}() SET SCHEMA w; CREATE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql"
        " AS 'BEGIN RETURN NULL; END'; DROP TRIGGER {trigger} ON w.t; {create_trigger}",
        "DROP TRIGGER {trigger} ON w.t; DROP FUNCTION {function}();"
        f" ALTER FUNCTION w.{{function_name}}() SET SCHEMA simsql; {{create_trigger}}; {_BACK}",
    ),
    "compute the column again": (f"{_F.format(9 << 40)}; {_AS_F}", f"{_F.format(0)}; {_AS_F}"),
    "compute the column otherwise": (f"{_F.format(7 << 41)}; {_AS_F}", ""),
    "another expression": ("{alter} ALTER fp SET EXPRESSION AS (spare # 12288)", _AS_F),
    "unlogged": ("{alter} SET UNLOGGED", "{alter} SET LOGGED"),
    "logged": ("{alter} SET LOGGED", "{alter} SET UNLOGGED"),
    "keys unlogged": ("ALTER TABLE {keys} SET UNLOGGED", "ALTER TABLE {keys} SET LOGGED"),
    "write as a replica": ("SET session_replication_role = replica", "RESET session_replication_role"),
    "write as a replica without its trigger": (
        "{alter} DISABLE TRIGGER {replica}; SET session_replication_role = replica",
        "RESET session_replication_role; {alter} ENABLE REPLICA TRIGGER {replica}",
    ),
    "a trigger on keys": (f"CREATE TRIGGER foreigner {_NOTHING}", "DROP TRIGGER foreigner ON {keys}"),
    "a trigger of another role on keys": (
        f"SET ROLE {APP}; CREATE TRIGGER foreigner {_NOTHING}; RESET ROLE",
        "DROP TRIGGER foreigner ON {keys}",
    ),
    "a rule on keys": (
        "CREATE RULE foreigner AS ON INSERT TO {keys} DO INSTEAD NOTHING",
        "DROP RULE foreigner ON {keys}",
    ),
    "another policy": (
        "ALTER POLICY readers ON {keys} USING (false)",
        "ALTER POLICY readers ON {keys} USING ({policy})",
    ),
    "one more policy": (
        "CREATE POLICY few ON {keys} AS RESTRICTIVE USING (key % 2 = 0)",
        "DROP POLICY few ON {keys}",
    ),
    "truncate keys": ("TRUNCATE {keys}", ""),
    "truncate keys as another role": (f"SET ROLE {APP}; TRUNCATE {{keys}}; RESET ROLE", ""),
    "delete keys": ("DELETE FROM {keys}", ""),
    "other keys of the name": (
        "ALTER TABLE {keys} RENAME TO away; CREATE TABLE {keys} (LIKE simsql.away INCLUDING ALL)",
        "DROP TABLE {keys}; ALTER TABLE simsql.away RENAME TO {keys_name}",
    ),
    "swap columns": (
        "{alter} RENAME fp TO gone; {alter} RENAME spare TO fp; {alter} RENAME gone TO spare",
        "{alter} RENAME fp TO gone; {alter} RENAME spare TO fp; {alter} RENAME gone TO spare",
    ),
    "rename the column": ("{alter} RENAME fp TO gone", "{alter} RENAME gone TO fp"),
    "rename the table": ("{alter} RENAME TO gone", "ALTER TABLE w.gone RENAME TO t"),
    "swap tables": (
        "{alter} RENAME TO away; ALTER TABLE w.twin RENAME TO t",
        "{alter} RENAME TO twin; ALTER TABLE w.away RENAME TO t",
    ),
    "values of the column": (
        "DROP TRIGGER {column} ON w.t; {alter} ALTER fp TYPE bigint USING fp + 34359738368",
        "{create_column}",
    ),
    "type of the column": (
        "DROP TRIGGER {column} ON w.t; {alter} ALTER fp TYPE numeric USING fp + 68719476736",
        "{alter} ALTER fp TYPE bigint; {create_column}",
    ),
    "have a child": (
        "ALTER TABLE w.child INHERIT w.t; UPDATE w.t SET {value} = CASE id WHEN (SELECT max(id) FROM ONLY w.t)"
        " THEN (SELECT max({value}) FROM w.child) ELSE {value} + 1073741824 END",
        "ALTER TABLE w.child NO INHERIT w.t",
    ),
    "be a child": (
        "DROP TRIGGER {no_parent} ON w.t; {alter} INHERIT w.child;"
        " UPDATE w.child SET {value} = {value} + 2147483648 WHERE id % 3 = 1",
        "{alter} NO INHERIT w.child; {create_no_parent}",
    ),
    "be a partition": (
        "DROP TRIGGER {no_parent} ON w.t; ALTER TABLE w.parted ATTACH PARTITION w.t DEFAULT;"
        " INSERT INTO w.parted (id, tenant, {value}) VALUES (901, 1, 901), (902, 0, 902)",
        "ALTER TABLE w.parted DETACH PARTITION w.t; {create_no_parent}",
    ),
    "another storage": (
        "SELECT simsql.change_storage('w.t', 'expression')",
        "SELECT simsql.change_storage('w.t', 'tables')",
    ),
}
# What only the owner of the keys can do to them may leave no mark, but `verify` has to find it.
TAMPERING = {"delete keys", "other keys of the name"}
# These leave keys and searches as they are.
HARMLESS = [
    "ANALYZE w.t",
    "VACUUM FULL w.t",
    "VACUUM (FREEZE) {keys}",
    "VACUUM FULL {keys}",
    "VACUUM FULL pg_trigger",
    "VACUUM FULL pg_policy",
    "VACUUM FULL pg_class",
    "VACUUM (FREEZE) pg_trigger",
    "REINDEX TABLE w.t",
    "REINDEX TABLE {keys}",
    "CLUSTER w.t USING {btree}",
    "{alter} ADD COLUMN c{n} integer DEFAULT 5",
    "{alter} SET (fillfactor = 80)",
    "{alter} ALTER note SET DEFAULT 'y'",
    f"GRANT SELECT (id) ON w.t TO {READER}",
    "COMMENT ON TABLE w.t IS 'documents'",
    "CREATE INDEX ON w.t (note)",
    "CREATE TRIGGER mine_{n} BEFORE INSERT ON w.t FOR EACH ROW EXECUTE FUNCTION w.same()",
    "SELECT count(*) FROM simsql.verify()",
    "CALL simsql.vacuum('w.t')",
    "CALL simsql.maintain()",
    "DO $$ BEGIN ALTER TABLE w.t DISABLE TRIGGER USER; UPDATE w.t SET {value} = {value} + {fresh}; RAISE 'undo';"
    " EXCEPTION WHEN raise_exception THEN NULL; END $$",
]
WRITES = [
    "INSERT INTO w.t (id, tenant, {value}) SELECT {n} * 10 + i, i % 2, {fresh} + i"
    " FROM generate_series(1, 3) AS i",
    "INSERT INTO w.t (id, tenant, {value}) VALUES ({n} * 10, 1, {fresh})",
    "UPDATE w.t SET {value} = {value} + {fresh} WHERE id % 2 = 0",
    "UPDATE w.t SET {value} = {fresh} WHERE id = (SELECT min(id) FROM w.t)",
    "UPDATE w.t SET tenant = 1 - tenant WHERE id % 3 = 0",
]
_OUTSIDE = ("VACUUM", "CALL", "CLUSTER", "REINDEX")  # these run outside a transaction


class Event(NamedTuple):
    """One step of a case."""

    kind: str
    statement: str


class Case(NamedTuple):
    """A table, and what happens to it; templates are filled in before the first event."""

    kind: str
    scoped: bool
    released: bool
    """Whether the index is created by a released version, and an upgrade follows."""
    restored: str
    """The way in which the database is dumped and restored at the end, or ""."""
    in_one: bool
    """Whether all events are in one transaction."""
    events: tuple[Event, ...]
    interrupted: str = ""
    """The storage to which a change is under way during the events, or ""; then the index gets key tables."""


class Counts:
    """What has been tried."""

    def __init__(self) -> None:
        self.cases = 0
        self.causes: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.results: Counter[str] = Counter()
        self.messages: Counter[str] = Counter()


RESTORES = ["whole", "without keys", "without keys of one table", "written before post-data", "in sections"]


def random_case(chance: random.Random, major: int) -> Case:
    """Up to three causes, writes, what undoes the causes in any order, and harmless statements in between."""
    kind = chance.choice(["ordinary", "ordinary", "generated", "unlogged"])
    causes = [name for name in CAUSES if major >= 17 or "EXPRESSION" not in CAUSES[name][0]]
    of_generated = [name for name in causes if "EXPRESSION" in CAUSES[name][0]]
    numbers = iter(range(2, 100))
    chosen = chance.sample(causes, chance.choice([0, 1, 1, 1, 1, 2, 3]))
    if kind == "generated" and of_generated and chance.random() < 0.6:
        chosen = [chance.choice(of_generated), *chosen[1:]]
    pending = [
        (Event(f"cause: {name}", CAUSES[name][0]), Event(f"undo: {name}", CAUSES[name][1])) for name in chosen
    ]
    events: list[Event] = []
    undo: list[Event] = []

    def more(least: int) -> None:
        for _ in range(chance.choice([least, 1, 2])):
            number = next(numbers)
            write = chance.choice(WRITES).replace("{n}", str(number)).replace("{fresh}", str(number << 14))
            events.append(Event("write", write))
        if any("logged" in event.kind for event in events) and chance.random() < 0.3:
            events.append(Event("crash", "-- crash"))
        if chance.random() < 0.3:
            number = next(numbers)
            harmless = chance.choice(HARMLESS).replace("{n}", str(number)).replace("{fresh}", str(number << 14))
            events.append(Event("harmless", harmless))

    while pending or undo:
        if pending and (not undo or chance.random() < 0.6):
            cause, back = pending.pop()
            events.append(cause)
            undo.append(back)
        else:
            events.append(undo.pop(chance.randrange(len(undo))))
        more(0 if undo else chance.choice([0, 0, 1]))
    if not chosen:
        more(1)
        more(1)
    return Case(
        kind,
        chance.random() < 0.3,
        chance.random() < 0.2,
        chance.choice(RESTORES) if chance.random() < 0.1 else "",
        chance.random() < 0.4,
        tuple(event for event in events if event.statement),
        chance.choice(["", "", "tables", "expression"]),
    )


class World:
    """The table of a case in a database."""

    def __init__(self, server: Server, case: Case, counts: Counts, template: str = TEMPLATE) -> None:
        self.server = server
        self.template = template
        self.case = case
        self.counts = counts
        self.log: list[str] = []
        self.has_cause = False

    def run(self) -> None:
        """Do everything; raise DifferenceError if the rule is broken."""
        template = released_template(self.server) if self.case.released else self.template
        with self.server.new_database(template=template) as url:
            self._with_session(str(url.database), self._events)
            if self.case.released:
                engine = open_engine(url)
                try:
                    upgrade(engine)
                finally:
                    engine.dispose()
                self.log.append("-- upgrade")
            if self.case.restored:
                with self._restored(str(url.database)) as other:
                    self._with_session(other, self._judge)
            else:
                self._with_session(str(url.database), self._judge)

    def _with_session(self, database: str, work: Callable[[], None]) -> None:
        self._connect(database)
        try:
            work()
        finally:
            self.admin.close()
            self.reader.close()

    def _connect(self, database: str) -> None:
        self.admin, self.reader = self.server.connect(database), self.server.connect(database, READER)
        for session in (self.admin, self.reader):
            session.prepare_threshold = None
            session.execute("SET client_min_messages = error; SET lock_timeout = '10s'")

    def _events(self) -> None:
        self._set_up()
        if self.case.in_one:
            self.admin.execute("BEGIN")
        for event in self.case.events:
            self._run(event)
        if self.case.in_one:
            self.admin.execute("COMMIT")
        self.admin.execute("RESET session_replication_role")
        if self.case.interrupted:
            self._change_storage("tables")
        if any(event.kind == "crash" for event in self.case.events):
            self.counts.results["with a crash"] += not self.case.in_one

    def _set_up(self) -> None:
        execute = self.admin.execute
        generated = self.case.kind == "generated"
        fp = "fp bigint GENERATED ALWAYS AS (w.f(spare)) STORED" if generated else "fp bigint"
        columns = f"id bigint, tenant integer, {fp}, spare bigint, note text DEFAULT 'x'"
        self.value = "spare" if generated else "fp"
        execute(f"CREATE SCHEMA w; {_F.format(0)}")
        execute("CREATE FUNCTION w.nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'")
        execute("CREATE FUNCTION w.same() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'")
        unlogged = "UNLOGGED " if self.case.kind == "unlogged" else ""
        execute(f"CREATE {unlogged}TABLE w.t ({columns}); CREATE {unlogged}TABLE w.child ({columns})")
        execute(f"CREATE TABLE w.twin ({columns}); CREATE TABLE w.parted ({columns}) PARTITION BY LIST (tenant)")
        for table, first in ("t", 0), ("child", 300), ("twin", 600):
            execute(
                f"INSERT INTO w.{table} (id, tenant, {self.value}) SELECT {first} + n, n % 2, {first} + n * n"
                " FROM generate_series(1, 9) AS n"
            )
        execute(f"ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO {APP}")
        execute(f"GRANT ALL ON SCHEMA w TO {APP}; GRANT USAGE ON SCHEMA w TO {READER}")
        execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA w TO {READER}")
        scope = "{tenant}" if self.case.scoped else "{}"
        execute("SELECT simsql.create_index('w.t', 'fp', blocks => 3, scope => %s)", [scope])
        if self.case.interrupted == "tables":
            execute("SELECT simsql.change_storage('w.t', 'expression')")
        if self.case.interrupted:
            self._change_storage(self.case.interrupted, "_", ", keep => true")
        self.names = self._names()

    def _change_storage(self, storage: str, internal: str = "", more: str = "") -> None:
        """Change it, or note why that is refused: searches in B-trees go on."""
        statement = f"SELECT simsql.{internal}change_storage('w.t', '{storage}', column_name => 'fp'{more})"
        try:
            self.admin.execute(statement)
            self.log.append(f"{statement};")
            self.counts.results[f"changed to {storage}{more}"] += 1
        except psycopg.Error as error:
            self.log.append(f"-- {statement}: {error}")
            self.counts.refused[f"change: {error.sqlstate} {error.diag.message_primary}"[:120]] += 1

    def _names(self) -> dict[str, str]:
        """What the placeholders of the events stand for."""
        names = {"alter": "ALTER TABLE w.t", "value": self.value}
        rows = self.admin.execute(
            "SELECT regexp_replace(t.tgname, '^simsql_\\d+_', ''), t.tgname, pg_get_triggerdef(t.oid),"
            " CASE t.tgenabled WHEN 'A' THEN 'ENABLE ALWAYS' WHEN 'R' THEN 'ENABLE REPLICA' ELSE 'ENABLE' END,"
            " p.proname, pg_get_functiondef(p.oid)"
            " FROM pg_trigger AS t JOIN pg_proc AS p ON p.oid = t.tgfoid"
            " WHERE t.tgrelid = 'w.t'::regclass ORDER BY t.tgname"
        ).fetchall()
        by_name = {row[0]: row for row in rows}
        names["enable_all"] = "; ".join(
            f"ALTER TABLE w.t {fires} TRIGGER {name}" for _, name, _, fires, *_ in rows
        )
        # By what the case is, so that it is the same when fewer events are tried.
        adding = [by_name[name] for name in ("insert", "update", "insert", "update", "replica")]
        chosen = adding[len(repr(self.case.kind) + repr(self.case.scoped) + repr(self.case.in_one)) % len(adding)]
        _, names["trigger"], names["create_trigger"], names["fires"], names["function_name"], source = chosen
        names["function"], names["create_function"] = f"simsql.{names['function_name']}", source
        for name in ("replica", "column", "no_parent"):
            names[name], names[f"create_{name}"] = by_name[name][1:3]
        keys = self.admin.execute(
            "SELECT c.relname, pg_get_expr(p.polqual, p.polrelid) FROM pg_class AS c JOIN pg_policy AS p"
            " ON p.polrelid = c.oid WHERE c.relname LIKE 'keys%' ORDER BY 1"
        ).fetchall()
        names["keys_name"], names["policy"] = keys[len(self.case.events) % len(keys)]
        names["keys"] = f"simsql.{names['keys_name']}"
        (names["btree"],) = self.admin.execute(
            "SELECT min(c.relname) FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid"
            " WHERE i.indrelid = 'w.t'::regclass"
        ).fetchone()
        return names

    def _run(self, event: Event) -> None:
        if event.kind == "crash":
            if not self.case.in_one:
                database = self.admin.info.dbname
                self.server.crash(self.admin.info.backend_pid)
                self.admin.close()
                self.reader.close()
                self._connect(database)
                self.log.append("-- crash")
            return
        statement = event.statement
        for name, value in self.names.items():
            statement = statement.replace(f"{{{name}}}", value)
        if self.case.in_one and statement.startswith(_OUTSIDE):
            return
        try:
            with self.admin.transaction() if self.case.in_one else contextlib.nullcontext():
                self.admin.execute(statement)
        except psycopg.Error as error:
            self.log.append(f"-- {statement}: {error.sqlstate} {error.diag.message_primary}")
            self.counts.refused[f"{event.kind}: {error.sqlstate} {error.diag.message_primary}"[:120]] += 1
            self.admin.execute("RESET ROLE")
            return
        self.log.append(f"{statement};")
        if event.kind.startswith("cause"):
            self.counts.causes[event.kind] += 1
            self.has_cause = True

    @contextlib.contextmanager
    def _restored(self, database: str) -> Iterator[str]:
        """Another database with what this one holds; in some ways, not all of it."""
        run = self.server.run
        self.log.append(f"-- dump and restore: {self.case.restored}")
        options = {"without keys": ["--exclude-table-data=simsql.keys_*"]}.get(self.case.restored, [])
        if self.case.restored == "without keys of one table":
            options = [f"--exclude-table-data={self.names['keys']}"]
        with (
            tempfile.TemporaryDirectory() as folder,
            self.server.new_database(template="template0") as url,
        ):
            file, other = str(Path(folder) / "dump"), str(url.database)
            run("pg_dump", "--format=custom", *options, f"--file={file}", database)
            sections = self.case.restored in ("written before post-data", "in sections")
            for section in ("pre-data", "data", "post-data") if sections else ("",):
                if section == "post-data" and self.case.restored.startswith("written"):
                    with self.server.connect(other) as connection:
                        write = WRITES[0].format(value=self.value, n=99, fresh=99 << 14)
                        connection.execute(write)
                    self.log.append(f"{write}; -- before post-data")
                run("pg_restore", *([f"--section={section}"] if section else []), f"--dbname={other}", file)
            self.has_cause |= self.case.restored not in ("whole", "in sections")
            yield other

    # Searches

    def _judge(self) -> None:
        """Search; what tampering hides from searches, `verify` has to list."""
        try:
            self._judge_searches()
        except DifferenceError:
            causes = {event.kind.removeprefix("cause: ") for event in self.case.events}
            if not causes & TAMPERING or not self.admin.execute("SELECT FROM simsql.verify('w.t')").fetchall():
                raise
            self.counts.results["missed after tampering, and verify says so"] += 1

    def _judge_searches(self) -> None:
        if self.admin.execute("SELECT to_regclass('w.t') IS NULL").fetchone()[0]:
            self.counts.results["renamed"] += 1  # that was not undone
            return
        refusals = [self._search(session) for session in (self.admin, self.reader)]
        if self._missing() and not refusals[0]:
            raise DifferenceError("keys are missing, and no search says so")
        if not any(refusals):
            self.counts.results["found all"] += 1
            return
        for refusal in filter(None, refusals):
            self.counts.messages[f"{refusal.sqlstate} {refusal.diag.message_primary}"[:110]] += 1
            if refusal.sqlstate not in ("55000", "42704", "42P01") or not refusal.diag.message_hint:
                raise DifferenceError(f"{refusal.sqlstate} {refusal} {refusal.diag.context}")
        if not self.has_cause:
            raise DifferenceError(f"refused without a cause: {[str(refusal) for refusal in refusals]}")
        self.counts.results["refused"] += 1
        self._repair()

    def _repair(self) -> None:
        try:
            self.admin.execute("SELECT * FROM simsql.repair('w.t')")
        except psycopg.Error as error:
            if not (str(error).startswith("simsql") and error.diag.message_hint):
                raise DifferenceError(f"repair fails: {error.sqlstate} {error} {error.diag.context}") from error
            self.counts.results["repair says what to do"] += 1
            self.counts.messages[f"repair: {error.sqlstate} {error.diag.message_primary}"[:110]] += 1
            return
        self.log.append("SELECT * FROM simsql.repair('w.t');")
        names = self.admin.execute(
            "SELECT table_name, column_name FROM simsql.registry WHERE table_id = 'w.t'::regclass"
        )
        if names.fetchall() != [("w.t", "fp")]:
            self.counts.results["repaired under another name"] += 1  # what renamed it was not undone
            return
        for session in (self.admin, self.reader):
            if refusal := self._search(session):
                raise DifferenceError(f"refused after a repair: {refusal}")
        if self._missing():
            raise DifferenceError("keys are missing after a repair")
        if found := self.admin.execute("SELECT problem, object FROM simsql.verify('w.t')").fetchall():
            raise DifferenceError(f"after a repair, verify finds {found}")
        self.counts.results["repaired"] += 1

    def _missing(self) -> list[Any]:
        """The keys that rows lack."""
        parts = []
        try:
            for keys in key_tables(self.admin, "w.t", "t.fp"):
                rows = "".join(f" AND t.{name} IS NOT NULL" for name in (keys.column, *keys.scope))
                same = "".join(f" AND k.scope_{n} = t.{name}" for n, name in enumerate(keys.scope, 1))
                parts.append(
                    f"SELECT '{keys.name}', t.fp FROM ONLY w.t AS t WHERE true{rows}"
                    f" AND NOT EXISTS (SELECT FROM simsql.{keys.name} AS k WHERE k.key = {keys.key}{same})"
                )
            return self.admin.execute(" UNION ALL ".join(parts)).fetchall() if parts else []
        except psycopg.Error:
            return [("no key table",)]

    def _search(self, session: psycopg.Connection) -> psycopg.Error | None:
        """The error of a search, if there is one; fail if it differs from plain SQL."""
        scope = ", scope => '{\"tenant\": 1}'" if self.case.scoped else ""
        try:
            rows = session.execute(
                f"SELECT fp FROM w.t{' WHERE tenant = 1' if self.case.scoped else ''}"
            ).fetchall()
        except psycopg.Error:
            rows = []
        live = [row[0] for row in rows if row[0] is not None]
        queries = [*live, *range(20)]
        for search in (
            "SELECT q, n.fingerprint, n.distance FROM unnest(%(queries)s::bigint[]) AS q,"
            f" simsql.near('w.t', q, 1, column_name => 'fp'{scope}) AS n",
            "SELECT q, n.fingerprint, n.cost FROM unnest(%(queries)s::bigint[]) AS q,"
            f" simsql.similar_candidates('w.t', {_SIMILAR}, 'fp'{scope}) AS n WHERE n.distance <= 1",
            f"SELECT * FROM simsql.near_many('w.t', %(queries)s::bigint[], 1, column_name => 'fp'{scope})",
        ):
            try:
                found = session.execute(search, {"queries": queries}).fetchall()
            except psycopg.Error as error:
                return error
            expected = {(q, *m) for q in queries for m in oracle.near(live, q, 1)}
            if set(found) != expected:
                who = "the reader" if session is self.reader else "the superuser"
                missed, more = sorted(expected - set(found)), sorted(set(found) - expected)
                raise DifferenceError(f"{who} misses {missed[:4]}, finds {more[:4]} instead")
        return None


_released: dict[int, str] = {}


def released_template(server: Server) -> str:
    """A template database with the newest released version."""
    name = "undone_released"
    if server.major not in _released:
        server.execute(f"CREATE DATABASE {name} TEMPLATE template0")
        with contextlib.closing(server.connect(name)) as connection:
            connection.execute(RELEASED[max(RELEASED)].read_text(encoding="utf-8"))
        server._disconnect(name)
        _released[server.major] = name
    return _released[server.major]


def prepare(server: Server) -> None:
    """Create the roles, which belong to the whole server."""
    with contextlib.closing(server.connect("postgres")) as connection:
        for role in (READER, APP):
            if not connection.execute("SELECT FROM pg_roles WHERE rolname = %s", [role]).fetchone():
                connection.execute(f"CREATE ROLE {role} LOGIN")


def try_many(attempts: Attempts, counts: Counts) -> None:
    """Try random cases."""
    prepare(attempts.server)
    for number, chance in attempts:
        case = random_case(chance, attempts.server.major)
        world = World(attempts.server, case, counts, attempts.template)
        counts.cases += 1
        try:
            world.run()
        except DifferenceError as difference:
            text, log = str(difference), world.log
            if attempts.shorten:
                shorter, found, short_log = smallest(attempts.server, case, attempts.template)
                if short_log:
                    case, text, log = shorter, found, short_log
            causes = [event.kind for event in case.events if event.kind.startswith("cause")]
            kind = f"{' and '.join(causes) or case.restored}{', upgrade' if case.released else ''}"
            attempts.differ(number, kind, case._replace(events=()), *log, f"-- {text}")


def smallest(server: Server, case: Case, template: str = TEMPLATE) -> tuple[Case, str, Sequence[str]]:
    """The case with as few events as lead to a difference, the difference and the log."""
    found, log = "", []
    place = 0
    while place < len(case.events):
        fewer = case._replace(events=case.events[:place] + case.events[place + 1 :])
        world = World(server, fewer, Counts(), template)
        try:
            world.run()
            place += 1
        except DifferenceError as difference:
            case, found, log = fewer, str(difference), world.log
    return case, found, log


# Faults of the past: in each function, a text and what stands for it again.
FAULTS = {
    # Searches compared states, and did not see one that had come back.
    "stamp": (("simsql._stamp_problem(simsql.registry)", "IF index.storage <> 'tables' OR", "IF true OR"),),
    # A change of the storage took up what an interrupted one had left, whatever had happened since.
    "interrupted": (("simsql._has_key_tables(simsql.registry)", "f.effect = 'refuses'", "false"),),
}
