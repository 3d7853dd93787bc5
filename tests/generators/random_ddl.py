"""A table with simhash indexes, random statements of its owner, and searches that are compared with plain SQL.

The rule: a search finds what plain SQL finds, or raises an error that says what to do; and doing that leads to a
search that finds what plain SQL finds.
"""

import contextlib
import json
import random
import re
from collections import Counter
from collections.abc import Collection, Iterator
from typing import Any

import oracle
import psycopg
from attempts import Attempts, DifferenceError
from owner_statements import STATEMENTS, TAMPERING
from psycopg import errors
from roles import allow_indexes
from servers import TEMPLATE, Server
from similar import like_near

WRITES = ("insert", "copy", "update", "delete", "rolled back", "replication role")
ALL = [(kind, statement) for kind, statements in (STATEMENTS | TAMPERING).items() for statement in statements]
_WRITING = [number for number, (kind, _) in enumerate(ALL) if kind in WRITES]
_DEFINING = [number for number, (kind, _) in enumerate(ALL) if kind not in WRITES and kind not in TAMPERING]
_TAMPERING = [number for number, (kind, _) in enumerate(ALL) if kind in TAMPERING]

POOL = [0, 1, 3, 7, 64, 65, -1, 2**62 + 5, 2**62 + 7, oracle.flip(9, [50]), 9, -(2**63)]
COLUMNS = ["id", "tenant", "fp", "spare", "note"]
TYPES = {
    "integer": ["1", "2"],
    "bigint": ["1", "2"],
    "smallint": ["1", "2"],
    "text": ["1", "2", "a", "A"],
    "varchar(3)": ["1", "2", "abc"],
    "char(3)": ["1", "2", "a"],
    "date": ["2026-01-01", "2026-01-02"],
    "timestamp": ["2026-01-01 00:00:00", "2026-01-01 12:00:00"],
    "timestamptz": ["2026-01-01 00:00:00+00", "2026-01-02 00:00:00+01"],
    "boolean": ["true", "false"],
    "uuid": ["00000000-0000-0000-0000-000000000001", "00000000-0000-0000-0000-00000000000a"],
    "real": ["0.1", "1"],
    "double precision": ["0.1", "1"],
    "numeric": ["1", "2.0"],
    "oid": ["1", "4294967295"],
    "name": ["1", "a"],
    "app.word": ["1", "2"],
    "app.mood": ["a", "b"],
}
SCOPE_TYPES = ["integer", "text", "date", "app.word", "varchar(3)", "bigint"]
_PLAIN = "CREATE TABLE app.article (id bigint, tenant {type}, fp bigint, spare bigint, note text)"
_LIST = "FOR VALUES IN ('1')", "FOR VALUES IN ('2', 'a')", "FOR VALUES IN ('2026-01-01')", "DEFAULT"
_RANGE = "FOR VALUES FROM (0) TO (4)", "FOR VALUES FROM (4) TO (8)", "FOR VALUES FROM (8) TO (1000)"
KINDS = {
    "ordinary": _PLAIN,
    "typed": "CREATE TABLE app.article OF app.shape",
    "generated": _PLAIN.replace("fp bigint", "fp bigint GENERATED ALWAYS AS (spare) STORED"),
    "generated scope": _PLAIN.replace(
        "tenant {type}", "tenant integer GENERATED ALWAYS AS ((spare & 3)::integer) STORED"
    ),
    "with a child": _PLAIN + "; CREATE TABLE app.part_0 () INHERITS (app.article)",
    "range": _PLAIN
    + " PARTITION BY RANGE (id)"
    + "".join(f"; CREATE TABLE app.part_{n} PARTITION OF app.article {b}" for n, b in enumerate(_RANGE)),
    "list": _PLAIN + " PARTITION BY LIST (tenant); CREATE TABLE app.part_0 PARTITION OF app.article DEFAULT",
    "partition": _PLAIN.replace("app.article", "app.whole")
    + " PARTITION BY RANGE (id); CREATE TABLE app.article PARTITION OF app.whole FOR VALUES FROM (0) TO (1000)",
}
_EXPRESSION_ONLY = ("with a child", "range", "list", "partition")


def random_case(chance: random.Random, likely: Collection[str] = ()) -> dict[str, Any]:
    """A table, and up to three sequences of up to ten statements, each followed by searches.

    Statements of the `likely` kinds are ten times as likely as the others of their group.
    Not drawn by Hypothesis, which repeats what it has drawn: a third of the statements were of one kind.
    """
    rough = chance.random() < 0.15
    sequences = []
    for _ in range(chance.randrange(1, 4)):
        groups = chance.choices([_WRITING, _DEFINING, _TAMPERING], [2, 3, 1 if rough else 0], k=10)
        sequence = []
        for group in groups[: chance.randrange(1, 11)]:
            weights = [10 if ALL[number][0] in likely else 1 for number in group]
            sequence.append((chance.choices(group, weights)[0], chance.randrange(1000)))
        sequences.append(sequence)
    return {
        "kind": chance.choice([*KINDS, "ordinary", "ordinary"]),
        "storage": chance.choice(["tables", "tables", "expression"]),
        "scoped": chance.random() < 0.7,
        "scope_type": chance.choice(SCOPE_TYPES),
        "keep_open": chance.random() < 0.3,
        "role": chance.choice(["origin", "replica"]),
        "sequences": sequences,
    }


class Counts:
    """What has been tried."""

    def __init__(self) -> None:
        self.executed: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.results: Counter[str] = Counter()
        self.sequences = self.searches = self.with_matches = self.repairs = 0
        self.errors: Counter[str] = Counter()


class Trial:
    """One table with its indexes, in a database of its own."""

    def __init__(self, server: Server, database: str, counts: Counts, case: dict[str, Any]) -> None:
        self.counts = counts
        self.case = case
        self.log: list[str] = []
        self.turn = 0
        self.excused = False
        """Whether searches may miss rows as long as `verify` says so."""
        self.numbers = iter(range(1, 1000))
        self.stack = contextlib.ExitStack()
        with contextlib.ExitStack() as stack:

            def connect(user: str) -> psycopg.Connection:
                return stack.enter_context(contextlib.closing(server.connect(database, user)))

            self.admin = connect("postgres")
            self.ddl, self.owner, self.reader = (connect(f"ddl_{n}") for n in ("owner", "owner", "reader"))
            self.open, self.old = connect("ddl_reader"), connect("ddl_owner")
            self.ddl.prepare_threshold = self.admin.prepare_threshold = None
            self.stack = stack.pop_all()
        self.admin.execute("SET search_path = pg_catalog")
        for session in (self.owner, self.reader, self.open, self.old):
            session.execute("SET statement_timeout = '20s'; SET search_path = public")

    def __enter__(self) -> "Trial":
        return self

    def __exit__(self, *_: object) -> None:
        self.stack.close()

    def create(self) -> None:
        allow_indexes(self.admin, "ddl_owner", "ddl_heir")
        database = self.admin.info.dbname
        self.admin.execute(f"GRANT CREATE ON DATABASE {database} TO ddl_owner; ALTER ROLE ddl_owner RESET ALL")
        scope_type = self.case["scope_type"]
        self.ddl.execute(
            "CREATE SCHEMA app; CREATE SCHEMA side; GRANT USAGE ON SCHEMA app, side TO ddl_reader, ddl_heir;"
            " GRANT CREATE ON SCHEMA app, side TO ddl_heir;"
            " ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO ddl_reader;"
            " CREATE DOMAIN app.word AS text; CREATE DOMAIN app.print AS bigint;"
            " CREATE TYPE app.mood AS ENUM ('a', 'b', '1', '2');"
            f" CREATE TYPE app.shape AS (id bigint, tenant {scope_type}, fp bigint, spare bigint, note text);"
            " CREATE TABLE app.pool (n int, f bigint); CREATE TABLE app.known (f bigint PRIMARY KEY);"
            f" CREATE TABLE app.twin (id bigint, tenant {scope_type}, fp bigint, spare bigint, note text);"
            " CREATE FUNCTION app.flip() RETURNS trigger LANGUAGE plpgsql AS"
            " $$ BEGIN NEW.fp := NEW.fp # 2; RETURN NEW; END $$;"
            " CREATE FUNCTION app.touch() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
            " EXECUTE format('UPDATE %s SET fp = fp # 16 WHERE id %% 2 = 1', TG_RELID::regclass); RETURN NULL;"
            " END $$;"
            " CREATE FUNCTION app.as_replica() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
            " PERFORM set_config('session_replication_role', 'replica', true); RETURN NULL; END $$"
        )
        self.admin.execute(
            "INSERT INTO app.pool SELECT n - 1, f FROM unnest(%s::bigint[]) WITH ORDINALITY AS u (f, n)", [POOL]
        )
        kind = self.case["kind"]
        self.ddl.execute(KINDS[kind].format(type=scope_type))
        self.table = self._oid("app.article")
        self.twin = self._oid("app.twin")
        names = self.names(random.Random(0))
        self.ddl.execute(f"INSERT INTO app.article ({names['columns']}) SELECT {names['values']} FROM app.pool")
        self.ddl.execute(f"INSERT INTO app.twin SELECT n, {self._value(scope_type, 3)}, f # 1, f FROM app.pool")
        storage = "expression" if kind in _EXPRESSION_ONLY else self.case["storage"]
        scope = "{tenant}" if self.case["scoped"] else "{}"
        self.ddl.execute(
            "SELECT simsql.create_index('app.article', 'fp', blocks => 4, scope => %s, storage => %s)",
            [scope, storage],
        )

    def run(self) -> None:
        self.create()
        with contextlib.suppress(errors.InsufficientPrivilege):  # before PostgreSQL 15
            self.ddl.execute(f"SET session_replication_role = {self.case['role']}")
        for sequence in self.case["sequences"]:
            if self.case["keep_open"]:
                self._begin()
            for number, chance in sequence:
                self.step(number, chance)
            self.counts.sequences += 1
            self.compare()
        self.heal()

    def _begin(self) -> None:
        """Open a transaction that has searched, and one whose snapshot is older than what follows."""
        for session, level in ((self.open, "READ COMMITTED"), (self.old, "REPEATABLE READ")):
            session.rollback()
            session.execute(f"BEGIN ISOLATION LEVEL {level}")
            session.execute("SELECT count(*) FROM simsql.registry")
        for index in self._indexes():
            self._compare_index(self.open, index, whole=False)

    def _is_open(self, session: psycopg.Connection) -> bool:
        return session.info.transaction_status != psycopg.pq.TransactionStatus.IDLE

    # Statements

    def step(self, number: int, chance: int) -> None:
        kind, template = ALL[number]
        names = self.names(random.Random(chance))
        try:
            statement = template.format_map(names)
        except KeyError:
            self.counts.refused[kind] += 1
            return
        try:
            self._execute(kind, statement, names)
        except psycopg.Error as error:
            self._note(f"{statement} --> {error.sqlstate} {error}".replace("\n", " "))
            self.counts.refused[kind] += 1
            self._check_refusal(error)
            return
        finally:
            with contextlib.suppress(psycopg.Error):
                self.ddl.rollback()
        self._note(statement)
        self.counts.executed[kind] += 1
        # Disabling a trigger by its name, writing, and enabling it exactly as it was leaves no trace.
        self.excused |= kind in TAMPERING or bool(re.search(r"ENABLE (ALWAYS|REPLICA) TRIGGER", statement))

    def _execute(self, kind: str, statement: str, names: dict[str, str]) -> None:
        waiting = self._is_open(self.open) or self._is_open(self.old)
        self.ddl.execute(f"SET lock_timeout = '{'30ms' if waiting else '20s'}'")
        try:
            self._execute_once(kind, statement, names)
        except errors.LockNotAvailable:
            self.open.rollback()
            self.old.rollback()
            self._execute_once(kind, statement, names)

    def _execute_once(self, kind: str, statement: str, names: dict[str, str]) -> None:
        if kind != "copy":
            cleared = self._one(_CLEARED) if "simsql." in statement else None
            self.ddl.execute(statement)
            if cleared and "drop_index" not in statement and self._one(_CLEARED) < cleared:
                self.fail(f"{statement} has dropped what clears stale fingerprints")
            return
        rows = self.admin.execute(f"SELECT {names['values']} FROM app.pool WHERE n % 2 = 0").fetchall()
        with self.ddl.cursor().copy(statement) as copy:
            for row in rows:
                copy.write_row(row)

    def _check_refusal(self, error: psycopg.Error) -> None:
        """A statement may fail, but not because of what simsql has generated."""
        if "PL/pgSQL function simsql." not in (error.diag.context or "") or self.excused:
            return
        if not str(error).startswith("simsql") and error.sqlstate not in _ALLOWED:
            self.fail(f"a statement fails inside simsql: {error.sqlstate} {error} {error.diag.context}")

    def names(self, chance: random.Random) -> dict[str, str]:
        """What the placeholders of a template stand for, by the catalogue of this moment."""
        row = self._one(
            "SELECT n.nspname, c.relname FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace"
            " WHERE c.oid = %s",
            [self.table],
        )
        if row is None:
            self.table = self._oid(f"{self.schema}.{self.name}") or self.twin
            row = self._one(
                "SELECT relnamespace::regnamespace::text, relname FROM pg_class WHERE oid = %s", [self.table]
            )
            if row is None:
                return {}
        self.schema, self.name = row
        table = f"{self.schema}.{self.name}"
        attributes = self._all(
            "SELECT attnum, attname, format_type(atttypid, atttypmod), attgenerated <> '' OR attidentity = 'a'"
            " FROM pg_attribute WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
            [self.table],
        )
        by_number = {number: name for number, name, *_ in attributes}
        existing = set(by_number.values())
        number = str(next(self.numbers))
        kind = chance.choice([*TYPES])
        names = {
            "t": table,
            "schema": self.schema,
            "name": self.name,
            "n": number,
            "type": kind,
            "literal": f"{chance.choice(TYPES[kind])!r}::{kind}",
            "column": chance.choice(sorted(existing) or ["id"]),
        }
        for place, (role, usual) in enumerate(
            {"id": "id", "scope": "tenant", "fp": "fp", "spare": "spare"}.items(), 1
        ):
            names[role] = usual if usual in existing else by_number.get(place, usual)
        types = {name: type_ for _, name, type_, _ in attributes}
        names["scope_literal"] = self._value(types.get(names["scope"], "text"), chance.randrange(9))
        writable = [(name, type_) for _, name, type_, generated in attributes if not generated]
        shift = chance.randrange(3)
        names["columns"] = ", ".join(name for name, _ in writable)
        names["values"] = ", ".join(
            f"n + {10 * shift}"
            if name == "id" and type_ == "bigint"
            else f"f # {shift}"  # most of them new, for copies have their keys already
            if type_ == "bigint"
            else self._value(type_, f"n + {shift}")
            for name, type_ in writable
        )
        for name, query in _OBJECTS.items():
            found = [value for (value,) in self._all(query, {"table": self.table, "twin": self.twin})]
            if found:
                names[name] = chance.choice(found)
        if "btree" in names:
            names["btree_name"] = names["btree"].split(".")[-1]
        if twin := self._one("SELECT oid::regclass::text, relname FROM pg_class WHERE oid = %s", [self.twin]):
            names["twin"], names["twin_name"] = twin
        bounds = {"range": _RANGE, "list": _LIST}.get(self.case["kind"], _RANGE[:1])
        more = (
            f"FOR VALUES FROM ({number}000) TO ({number}999)"
            if bounds[0] == _RANGE[0]
            else f"FOR VALUES IN ('{number}')"
        )
        names["bounds"] = chance.choice([*bounds, more])
        return names

    def _value(self, type_: str, place: int | str) -> str:
        """SQL: one of some values of a type, by a number."""
        usual = {
            "character varying(3)": "varchar(3)",
            "character(3)": "char(3)",
            "timestamp without time zone": "timestamp",
            "timestamp with time zone": "timestamptz",
        }.get(type_, type_)
        values = TYPES.get(usual, TYPES["smallint"])
        listed = ", ".join(f"'{value}'" for value in values)
        return f"(ARRAY[{listed}]::text[])[1 + ({place}) % {len(values)}]::{type_}"

    # Searches

    def compare(self) -> None:
        """Compare the searches of all sessions in all indexes with plain SQL."""
        for index in self._indexes():
            sessions = [self.owner, self.reader]
            sessions += [session for session in (self.open, self.old) if self._is_open(session)]
            for session in sessions:
                self._compare_index(session, index, whole=session in (self.owner, self.reader))
        self.open.rollback()
        self.old.rollback()
        for index in self._indexes():
            self._compare_edit(index)

    def _compare_edit(self, index: dict[str, Any]) -> None:
        """An edit of a text clears the fingerprint, if the index has sources, or `verify` complains."""
        ((sources, plain),) = self._all(
            "SELECT ARRAY(SELECT jsonb_object_keys(r.sources)), NOT EXISTS (SELECT FROM pg_trigger AS t"
            " WHERE t.tgrelid = r.table_id AND NOT t.tgisinternal AND t.tgname !~ 'simsql')"
            " AND NOT EXISTS (SELECT FROM pg_rewrite AS w WHERE w.ev_class = r.table_id)"
            " AND NOT EXISTS (SELECT FROM pg_inherits AS i WHERE i.inhparent = r.table_id)"
            " FROM simsql.registry AS r WHERE r.id = %s",
            [index["id"]],
        )
        if not (sources and plain) or self._verify_complains(index):
            return
        column, source = (f'"{name}"' for name in (index["column"], sources[0]))
        with self.admin.transaction(force_rollback=True):
            edit = f"UPDATE {index['table']} SET {source} = concat({source}, 'x') RETURNING {column}"
            found = self._attempt(self.admin, edit)
        if isinstance(found, list) and any(value is not None for (value,) in found):
            self.fail(f"an edit of {source} leaves fingerprints in {index}")

    def _indexes(self) -> list[dict[str, Any]]:
        found = self._all(
            "SELECT r.id, format('%I.%I', c.relnamespace::regnamespace::text, c.relname), r.column_name,"
            " r.scope_columns, r.table_id::oid, r.storage"
            " FROM simsql.registry AS r JOIN pg_class AS c ON c.oid = r.table_id ORDER BY r.id"
        )
        return [dict(zip(("id", "table", "column", "scope", "oid", "storage"), row, strict=True)) for row in found]

    def _scopes(self, index: dict[str, Any]) -> Iterator[dict[str, str] | None]:
        """Values of a scope to search in."""
        if not index["scope"]:
            yield None
            return
        texts = ", ".join(f'"{name}"::text' for name in index["scope"])
        try:
            rows = self._all(f"SELECT DISTINCT {texts} FROM {index['table']} LIMIT 3")
        except psycopg.Error:
            rows = []
        for row in [*rows, ["1"] * len(index["scope"])]:
            if None not in row:
                yield dict(zip(index["scope"], row, strict=True))

    def _compare_index(self, session: psycopg.Connection, index: dict[str, Any], whole: bool) -> None:
        missing = None
        for scope in self._scopes(index):
            accepted = self._compare_scope(session, index, scope, whole)
            if accepted and whole and session is self.owner and missing is None:
                missing = self._attempt(
                    self.owner,
                    "SELECT keys, object FROM simsql.verify(%s::regclass, %s) WHERE problem = 'keys missing'",
                    [index["table"], index["column"]],
                )
                if isinstance(missing, list) and missing and not self.excused:
                    self.fail(f"keys are missing, and no search says so: {missing}")

    def _compare_scope(
        self, session: psycopg.Connection, index: dict[str, Any], scope: dict[str, str] | None, whole: bool
    ) -> bool:
        table, column = index["table"], f'"{index["column"]}"'
        where = "".join(f' AND "{name}" = {_quoted(value)}' for name, value in (scope or {}).items())
        live = self._attempt(session, f"SELECT {column} FROM {table} WHERE {column} IS NOT NULL{where}")
        fingerprints = [row[0] for row in live] if isinstance(live, list) else []
        if not all(isinstance(fingerprint, int) for fingerprint in fingerprints):
            fingerprints = []
        queries = list(dict.fromkeys([*POOL, *fingerprints, oracle.flip(0, [0, 20, 40])]))
        value = json.dumps(scope) if scope else None
        options = "column_name => %(column)s, scope => %(scope)s::jsonb"
        accepted = True
        self.turn = (self.turn + 1) % 3
        for within in [(0, 3, 9)[self.turn]]:
            given = {
                "table": table,
                "column": index["column"],
                "scope": value,
                "within": within,
                "queries": queries,
            }
            searches = {
                "near_many": (
                    f"SELECT * FROM simsql.near_many(%(table)s::regclass, %(queries)s, %(within)s, {options})",
                    [(q, *match) for q in queries for match in oracle.near(fingerprints, q, within)],
                ),
                "near": (
                    "SELECT q, n.fingerprint, n.distance FROM unnest((%(queries)s)[1:3]) AS q,"
                    f" simsql.near(%(table)s::regclass, q, %(within)s, {options}) AS n",
                    [(q, *match) for q in queries[:3] for match in oracle.near(fingerprints, q, within)],
                ),
            }
            query = like_near("q", "%(within)s", "%(table)s", "%(column)s")
            searches["similar_candidates"] = (
                "SELECT q, n.fingerprint, n.cost FROM unnest((%(queries)s)[1:3]) AS q,"
                f" simsql.similar_candidates(%(table)s::regclass, {query}, {options}) AS n"
                " WHERE n.distance <= %(within)s",
                searches["near"][1],
            )
            if whole:
                searches["pairs"] = (
                    f"SELECT * FROM simsql.pairs(%(table)s::regclass, %(within)s, {options})",
                    oracle.pairs(fingerprints, within),
                )
            if whole and session is self.owner:
                searches["claim"] = (
                    f"SELECT * FROM simsql.claim(%(table)s::regclass, 3, %(within)s, {options})",
                    oracle.near(fingerprints, 3, within)[:1],
                )
            for name, (statement, expected) in searches.items():
                found = self._attempt(session, statement, given)
                accepted &= self._judge(name, session, index, found, sorted(expected), live, given)
        if whole:
            near = f"bit_count((x.{column} # 1)::bit(64)) <= 3"
            named = f"FROM {table} AS x WHERE {near}" + where.replace(' AND "', ' AND x."')
            rows = self._attempt(session, f"SELECT x::text {named}")
            found = self._attempt(
                session,
                f"SELECT x::text FROM simsql.near_rows(NULL::{table}, 1, 3, {options}) AS x",
                {"column": index["column"], "scope": value},
            )
            expected = sorted(rows) if isinstance(rows, list) else []
            accepted &= self._judge("near_rows", session, index, found, expected, rows, scope)
        return accepted

    def _judge(
        self,
        name: str,
        session: psycopg.Connection,
        index: dict[str, Any],
        found: Any,
        expected: list[Any],
        plain: Any,
        given: Any,
    ) -> bool:
        """Whether a search was accepted; fail if the rule is broken."""
        who = {id(self.owner): "owner", id(self.reader): "reader", id(self.open): "open", id(self.old): "old"}[
            id(session)
        ]
        self.counts.searches += 1
        if isinstance(found, list):
            if isinstance(plain, psycopg.Error):
                if not self.excused and not self._has_no_rows(index):
                    self.fail(f"{name} ({who}) finds {found}, plain SQL fails: {plain}")
            elif sorted(found) != expected:
                if not self.excused or not self._verify_complains(index):
                    self.fail(f"{name} ({who}) of {index} {given}: found {found}, expected {expected}")
                self.counts.results["missed, and verify says so"] += 1
            self.counts.with_matches += bool(expected)
            self.counts.results["equal"] += sorted(found) == expected
            return True
        hint = found.diag.message_hint
        if str(found).startswith("simsql") and hint:
            self.counts.results["refused"] += 1
        elif isinstance(plain, psycopg.Error) and plain.sqlstate == found.sqlstate:
            self.counts.results["fails like plain SQL"] += 1
        elif session is self.old and _is_internal(found):
            # Its snapshot shows the catalogue before the statements; a new transaction gets a better error.
            self.counts.results["fails in an older snapshot"] += 1
        elif self.excused and self._verify_complains(index):
            self.counts.results["fails, and verify says why"] += 1
        else:
            self.fail(
                f"{name} ({who}) of {index}: {found.sqlstate} {found} HINT: {hint} CONTEXT: {found.diag.context}"
            )
        message = re.sub(
            r"(?<!\w)(public|app|side|web)\.\w+|\w+(?= of | was )", "…", found.diag.message_primary or ""
        )
        self.counts.errors[f"{found.sqlstate} {message[:80]}"] += 1
        return False

    def _has_no_rows(self, index: dict[str, Any]) -> bool:
        return self._one(f"SELECT NOT EXISTS (SELECT FROM {index['table']})")[0]

    def _verify_complains(self, index: dict[str, Any]) -> bool:
        found = self._attempt(self.admin, "SELECT problem FROM simsql.verify(%s::regclass)", [index["table"]])
        return isinstance(found, psycopg.Error) or bool(found)

    # Repairs

    def heal(self) -> None:
        """Do what the errors of searches, or `verify`, say, until searches are accepted; then compare them."""
        self.ddl.execute("RESET session_replication_role; RESET search_path; SET lock_timeout = '20s'")
        repairs = self.counts.repairs
        for _ in range(12):
            hint = next(((hint, index) for index in self._indexes() if (hint := self._remedy(index))), None)
            if hint is None:
                break
            self.counts.repairs += 1
            self._follow(*hint)
        else:
            self.fail(f"searches are still refused: {[self._complaint(i) for i in self._indexes()]}")
        self.excused = False
        if self.counts.repairs > repairs:
            self.compare()

    def _complaint(self, index: dict[str, Any]) -> psycopg.Error | list[tuple[str, str]]:
        """The error of a search in an index as a superuser, or else what verify says."""
        scope = next(self._scopes(index))
        found = self._attempt(
            self.admin,
            "SELECT * FROM simsql.near(%s::regclass, 0, column_name => %s, scope => %s::jsonb)",
            [index["table"], index["column"], json.dumps(scope) if scope else None],
        )
        if isinstance(found, psycopg.Error) and (str(found).startswith("simsql") or found.sqlstate[:2] != "22"):
            return found
        # Found or not, in a scope that may not be of the new type.
        return self._attempt(
            self.admin,
            "SELECT problem, hint FROM simsql.verify(%s::regclass, %s)",
            [index["table"], index["column"]],
        )

    def _remedy(self, index: dict[str, Any]) -> str | None:
        complaint = self._complaint(index)
        if isinstance(complaint, list):
            return complaint[0][1] if complaint else None
        if self.excused and not str(complaint).startswith("simsql"):
            return f"SELECT simsql.repair('{index['table']}');"
        return complaint.diag.message_hint or self.fail(f"no hint: {complaint}")

    def _follow(self, hint: str, index: dict[str, Any]) -> None:
        """Run the statements of a hint, and then those of the hint of their error."""
        for _ in range(4):
            self._note(f"-- {hint}")
            if "detach the table" in hint or "takes part in inheritance" in hint:
                self._leave_inheritance()
                if "simsql.repair:" in hint:
                    return
            statements = re.findall(
                r"(?:SELECT|CALL)\b[^;]*simsql\.[^;]*\);|ALTER TABLE [^;]* NO INHERIT [^;]*;", hint
            )
            if re.search(_GIVE_UP, hint):
                statements = [f"SELECT simsql.drop_index('{index['table']}', '{index['column']}');"]
            if not statements:
                self.fail(f"a hint without a statement: {hint}")
            error = None
            for statement in statements:
                try:
                    self.ddl.execute(statement)
                except psycopg.Error as raised:
                    error = raised
                    self._note(f"{statement} --> {error.sqlstate} {error}".replace("\n", " "))
                    self.ddl.rollback()
                    break
                self._note(statement)
            if error is None:
                return
            if isinstance(error, errors.InsufficientPrivilege):
                self.counts.results["repaired by a superuser"] += 1
                found = self._attempt(self.admin, statement)
                if isinstance(found, list):
                    return
                error = found
            if not error.diag.message_hint:
                self.fail(f"the remedy {hint} fails: {error.sqlstate} {error} {error.diag.context}")
            hint = f"{error.diag.message_primary} {error.diag.message_hint}"

    def _leave_inheritance(self) -> None:
        for index in self._indexes():
            for child, parent in self._all(
                "SELECT inhrelid::regclass::text, inhparent::regclass::text FROM pg_inherits"
                " WHERE %(table)s IN (inhrelid, inhparent)",
                {"table": index["oid"]},
            ):
                if index["storage"] == "tables":
                    self.admin.execute(f"ALTER TABLE {child} NO INHERIT {parent}")

    # Help

    def _attempt(self, session: psycopg.Connection, statement: str, arguments: Any = None) -> Any:
        """The rows of a statement, or its error."""
        try:
            with session.transaction():
                return session.execute(statement, arguments).fetchall()
        except psycopg.Error as error:
            return error

    def _all(self, statement: str, arguments: Any = None) -> list[Any]:
        return self.admin.execute(statement, arguments).fetchall()

    def _one(self, statement: str, arguments: Any = None) -> Any:
        return self.admin.execute(statement, arguments).fetchone()

    def _oid(self, name: str) -> int | None:
        return self._one("SELECT to_regclass(%s)::oid", [name])[0]

    def _note(self, line: str) -> None:
        self.log.append(line)

    def fail(self, what: str) -> None:
        case = {name: value for name, value in self.case.items() if name != "sequences"}
        raise DifferenceError("\n".join([what, str(case), *self.log]))


# Inside simsql, a statement of an owner may lack privileges, or be interrupted.
_ALLOWED = ("42501", "55P03", "57014", "40P01")
# Advice that is about the column: without another one, the index is dropped.
_GIVE_UP = "Use a column of type|Store fingerprints as bigint|Make it a stored column"
_OBJECTS = {
    "part": "SELECT c.oid::regclass::text FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace"
    " WHERE n.nspname IN ('app', 'side', 'web') AND c.relkind IN ('r', 'p')"
    " AND c.relname NOT IN ('pool', 'known') AND c.oid NOT IN (%(table)s, %(twin)s) ORDER BY 1",
    "constraint": "SELECT conname FROM pg_constraint WHERE conrelid = %(table)s ORDER BY 1",
    "trigger": "SELECT tgname FROM pg_trigger WHERE tgrelid = %(table)s AND tgname LIKE 'simsql%%' ORDER BY 1",
    "rule": "SELECT rulename FROM pg_rewrite WHERE ev_class = %(table)s ORDER BY 1",
    "policy": "SELECT polname FROM pg_policy WHERE polrelid = %(table)s ORDER BY 1",
    "btree": "SELECT indexrelid::regclass::text FROM pg_index WHERE indrelid = %(table)s ORDER BY 1",
    "keys": "SELECT oid::regclass::text FROM pg_class WHERE relname ~ '^keys_\\d+_\\d+$' AND relkind = 'r'"
    " ORDER BY 1",
    "function": "SELECT oid::regprocedure::text FROM pg_proc WHERE pronamespace = 'simsql'::regnamespace"
    " AND proname ~ '_\\d+$' ORDER BY 1",
    "registered": "SELECT column_name FROM simsql.registry WHERE table_id = %(table)s ORDER BY 1",
}


def _quoted(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _is_internal(error: psycopg.Error) -> bool:
    """Whether an error tells of a mistake in generated code, and not of what the user did."""
    return error.sqlstate[:2] == "XX" or error.sqlstate in (
        "42P01",
        "42703",
        "42883",
        "42P13",
        "42601",
        "42804",
        "P0004",
    )


def prepare(server: Server) -> None:
    """Create the roles and the tablespace of the trials, which belong to the whole server."""
    with contextlib.closing(server.connect("postgres")) as connection:
        if connection.execute("SELECT FROM pg_roles WHERE rolname = 'ddl_owner'").fetchone():
            return
        connection.execute("CREATE ROLE ddl_owner LOGIN; CREATE ROLE ddl_heir LOGIN; CREATE ROLE ddl_reader LOGIN")
        connection.execute("GRANT ddl_heir TO ddl_owner")
        if server.major >= 15:
            connection.execute("GRANT SET ON PARAMETER session_replication_role TO ddl_owner")
        connection.execute("SET allow_in_place_tablespaces = on")
        connection.execute("CREATE TABLESPACE ddl_space LOCATION ''")
        connection.execute("GRANT CREATE ON TABLESPACE ddl_space TO ddl_owner, ddl_heir")


def try_many(attempts: Attempts, counts: Counts) -> None:
    """Try random cases. With a fault that was put back, statements that could show it are likelier."""
    prepare(attempts.server)
    for number, chance in attempts:
        case = random_case(chance, VISIBLE.get(attempts.fault, ()))
        try:
            try_case(attempts.server, counts, case, attempts.template)
        except DifferenceError as difference:
            shortest = smallest(attempts.server, case, attempts.template) if attempts.shorten else difference
            attempts.differ(number, case["kind"], shortest)


def try_case(server: Server, counts: Counts, case: dict[str, Any], template: str = TEMPLATE) -> None:
    """Run one case in a new database; raise DifferenceError if the rule is broken."""
    with server.new_database(template=template) as url, Trial(server, str(url.database), counts, case) as trial:
        trial.run()


_CLEARED = "SELECT count(*) FROM pg_trigger WHERE tgname ~ '^zz_simsql_clear_[0-9]+_column$'"

# Kinds of statements that make each of these faults visible, so that a few cases find it.
VISIBLE = {"replica": ("insert", "update"), "scope type": ("column type",), "cleared": ("stale fingerprints",)}
# Faults that once made searches miss rows in silence: in each function, a text and what stands for it again.
FAULTS = {
    # Triggers did not fire while logical replication applied rows, or for others who write as a replica.
    "replica": (
        ("simsql._triggers(simsql.registry)", "('insert', 'insert', 'A'", "('insert', 'insert', 'O'"),
        ("simsql._triggers(simsql.registry)", "('update', 'update', 'A'", "('update', 'update', 'O'"),
        (
            "simsql._triggers(simsql.registry)",
            "('replica', 'replica', 'R', 'AFTER INSERT OR UPDATE ON {table} FOR EACH ROW'),",
            "",
        ),
    ),
    # A scope column changed its type, and searches went on comparing its values as before.
    "scope type": (
        (
            "simsql._faults(simsql.registry, boolean)",
            "AND (c.place = 1 OR simsql._base_type(a.atttypid) IS DISTINCT FROM c.type)",
            "AND c.place = 1",
        ),
    ),
    # A new index dropped the triggers that clear the fingerprints of edited texts.
    "cleared": (("simsql._drop_triggers(regclass, integer)", "LATERAL regexp_matches(", "LATERAL regexp_match("),),
}


def smallest(server: Server, case: dict[str, Any], template: str = TEMPLATE) -> DifferenceError:
    """The difference of the shortest case that is left when statements are removed one by one."""
    found = None
    place = 0
    while True:
        steps = [(s, n) for s, sequence in enumerate(case["sequences"]) for n in range(len(sequence))]
        if found is not None and place >= len(steps):
            return found
        sequences = [list(sequence) for sequence in case["sequences"]]
        if found is not None:
            del sequences[steps[place][0]][steps[place][1]]
        smaller = case | {"sequences": sequences}
        try:
            try_case(server, Counts(), smaller, template)
        except DifferenceError as difference:
            found, case = difference, smaller
        else:
            if found is None:
                return DifferenceError(f"not found again: {case}")
            place += 1
