"""Small tables with simhash indexes, foreign keys and triggers, and random statements that write to them.

The rule: after each statement every row has its keys, and searches find what plain SQL finds. Values are
fresh, and superfluous keys go from time to time: a key that an earlier statement has left behind would hide
that a later one has added none.
"""

import contextlib
import itertools
import random
import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import oracle
import psycopg
from attempts import Attempts, DifferenceError
from internals import key_tables
from psycopg import errors
from psycopg.pq import TransactionStatus
from servers import Server
from similar import like_near

ACTIONS = ["CASCADE", "SET NULL", "SET DEFAULT", "NO ACTION"]
LEVELS = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"]
ROOT = (
    "CREATE TABLE w.root (id integer PRIMARY KEY, tenant integer DEFAULT 0, f bigint UNIQUE, UNIQUE (tenant, id))"
)
FILL_ROOT = "INSERT INTO w.root SELECT n, n % 2, n * 1000 FROM generate_series(1, 6) AS n ON CONFLICT DO NOTHING"

# Functions of triggers: {t} is a table, {o} another, {value} the column that the fingerprint is, or is made from.
FUNCTIONS = {
    "flip": "NEW.{value} := NEW.{value} # 2; RETURN NEW;",
    "by reference": "NEW.{value} := NEW.{value} # (coalesce(NEW.ref, 7) << 20); RETURN NEW;",
    "by key": "NEW.{value} := NEW.{value} + NEW.id; RETURN NEW;",
    "from another row": "NEW.{value} := coalesce((SELECT max({value}) FROM {t} WHERE id = NEW.ref),"
    " NEW.{value}); RETURN NEW;",
    "keep": "IF TG_OP = 'UPDATE' AND OLD.id % 2 = 0 THEN NEW.{value} := OLD.{value}; END IF; RETURN NEW;",
    "skip": "IF NEW.id % 5 = 0 THEN RETURN NULL; END IF; RETURN NEW;",
    "another reference": "NEW.ref := (SELECT max(id) FROM w.root); RETURN NEW;",
    "move": "IF TG_OP = 'UPDATE' THEN NEW.link := NEW.ref; NEW.ref := NULL; END IF; RETURN NEW;",
    "write before": "UPDATE {o} SET {other_value} = {other_value} # 8 WHERE id = NEW.id; RETURN NEW;",
}
AFTER_ROW = {
    "touch": "UPDATE {t} SET {value} = {value} # 16 WHERE id = NEW.id; RETURN NULL;",
    "touch another": "UPDATE {t} SET {value} = {value} + 32 WHERE id <> NEW.id AND id % 3 = 0; RETURN NULL;",
    "touch the other table": "UPDATE {o} SET {other_value} = {other_value} # 64 WHERE id = NEW.id OR ref = NEW.id;"
    " RETURN NULL;",
    "take its value": "UPDATE {o} SET {other_value} = NEW.{value} WHERE id % 4 = NEW.id % 4; RETURN NULL;",
    "copy": "INSERT INTO {o} (id, {other_value}) VALUES (NEW.id + 5000, NEW.{value} # 128) ON CONFLICT DO NOTHING;"
    " RETURN NULL;",
    "delete": "DELETE FROM {o} WHERE id = NEW.id; RETURN NULL;",
    "change the key": "UPDATE w.root SET id = id + 3000 WHERE id = NEW.ref AND id < 9000; RETURN NULL;",
}
AFTER_STATEMENT = {
    "touch all": "UPDATE {t} SET {value} = {value} # 256 WHERE id % 2 = 1; RETURN NULL;",
    "touch all of the other": "UPDATE {o} SET {other_value} = {other_value} + 512; RETURN NULL;",
    "shift": "UPDATE {t} SET id = id + 20000 WHERE id % 7 = 3 AND id < 60000; RETURN NULL;",
    "new rows": "INSERT INTO {o} (id, {other_value}) SELECT count(*) + 90000, max({value}) + 1 FROM {t}"
    " ON CONFLICT DO NOTHING; RETURN NULL;",
}


class Step(NamedTuple):
    """A statement of a session: "a", "b" or, for what happens between them, "admin"."""

    kind: str
    session: str
    statement: str
    rows: Sequence[Sequence[Any]] | None = None
    """What COPY reads."""

    def __str__(self) -> str:
        return f"{self.session}: {self.statement};" + (f" -- {self.rows}" if self.rows is not None else "")


class Table(NamedTuple):
    """A table of a world."""

    name: str
    kind: str
    value: str
    """The column that is written for its fingerprint."""
    writable: tuple[str, ...]
    indexes: tuple[tuple[str, str, str], ...]
    """Column, scope column or "", storage."""


class Counts:
    """What has been tried."""

    def __init__(self) -> None:
        self.executed: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.searches: Counter[str] = Counter()
        self.worlds = self.checks = self.with_matches = 0
        self.errors: Counter[str] = Counter()


class StatementError(DifferenceError):
    """A row has no key, a search differs from plain SQL, or it fails."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.steps: list[Step] = []


class Plan:
    """Random tables, and random statements on them: all from one random generator, none from a database."""

    def __init__(self, chance: random.Random, major: int) -> None:
        self.chance = chance
        self.major = major
        self.number = 0
        self.tables: list[Table] = []
        self.references: dict[tuple[str, str], str] = {}
        """SELECT: the values to which a column of a table refers."""
        self.setup: list[Step] = []
        self._set_up("CREATE SCHEMA w", ROOT, FILL_ROOT)
        for name in ("w.a", "w.b", "w.c")[: chance.choice([2, 2, 3])]:
            self._add_table(name)
        for table in self.tables:
            for _ in range(chance.choice([0, 1, 1, 2, 3])):
                self._set_up(self.foreign_key(table))
        if chance.random() < 0.5:
            for table in self.tables:
                if chance.random() < 0.6:
                    self._add_trigger(table)
        for table in self.tables:
            self._set_up(self.insert_rows(table, 9, "admin").statement)
            for column, scope, storage in table.indexes:
                blocks = chance.choice([2, 2, 3, 4])
                options = f"blocks => {blocks}, scope => '{{{scope}}}', storage => '{storage}'"
                self._set_up(f"SELECT simsql.create_index('{table.name}', '{column}', {options})")
        self.old_session = chance.random() < 0.5
        self.children: dict[Table, bool] = {}
        """Tables with a child, and whether it inherits now."""
        if chance.random() < 0.4:
            self.children = {table: False for table in self.tables if table.kind == "ordinary"}
        for table in self.children:
            child = f"{table.name}_child"
            like = f"CREATE TABLE {child} (LIKE {table.name} INCLUDING DEFAULTS INCLUDING GENERATED)"
            fill = f"INSERT INTO {child} ({self.columns(table)}) {self.source(table, 4)}"
            self._set_up(like, fill)

    def _set_up(self, *statements: str) -> None:
        self.setup += [Step("set up", "admin", statement) for statement in statements]

    # Tables

    def _add_table(self, name: str) -> None:
        chance = self.chance
        kind = chance.choice(["ordinary"] * 5 + ["hash", "range"])
        value, fp = "fp", "fp bigint"
        if chance.random() < 0.3:
            made = chance.choice(
                [
                    "spare",
                    "spare # coalesce(ref, 0)",
                    "coalesce(link, 0) * 4096 + spare",
                    "spare + coalesce(link, 9)",
                ]
            )
            value, fp = "spare", f"fp bigint GENERATED ALWAYS AS ({made}) STORED"
        tenant = "tenant integer DEFAULT 0"
        writable = ["id", "ref", "link", value, "tenant"]
        if chance.random() < 0.2:
            tenant = "tenant integer GENERATED ALWAYS AS (abs(coalesce(ref, 0)) % 2) STORED"
            writable.remove("tenant")
        default = chance.choice(["", " DEFAULT 1", " DEFAULT 1"])
        key = "PRIMARY KEY (id)" + (" DEFERRABLE" if kind == "ordinary" and chance.random() < 0.2 else "")
        unique = f", UNIQUE ({value})" if kind == "ordinary" and chance.random() < 0.3 else ""
        columns = f"id integer, ref integer{default}, link integer, {tenant}, spare bigint, {fp}"
        partitioned = f" PARTITION BY {kind} (id)" if kind != "ordinary" else ""
        self._set_up(f"CREATE TABLE {name} ({columns}, {key}{unique}){partitioned}")
        bounds = {
            "hash": [f"FOR VALUES WITH (MODULUS 3, REMAINDER {n})" for n in range(3)],
            "range": [
                "FOR VALUES FROM (MINVALUE) TO (5)",
                "FOR VALUES FROM (5) TO (2000)",
                "FOR VALUES FROM (2000) TO (MAXVALUE)",
            ],
        }.get(kind, [])
        self._set_up(*(f"CREATE TABLE {name}_{n} PARTITION OF {name} {bound}" for n, bound in enumerate(bounds)))
        storage = "tables" if kind == "ordinary" and chance.random() < 0.9 else "expression"
        indexes = [("fp", chance.choice(["", "", "tenant"]), storage)]
        if chance.random() < 0.15:
            indexes.append(("spare", "", storage))
        self.tables.append(Table(name, kind, value, tuple(writable), tuple(indexes)))

    def foreign_key(self, table: Table) -> str:
        """A foreign key to the table itself, to another one, or to the one that is not indexed."""
        chance = self.chance
        targets = [other.name for other in self.tables] + ["w.root", table.name]
        columns, target, referenced = chance.choice(["ref", "ref", "link"]), chance.choice(targets), "id"
        generated = "tenant" not in table.writable
        dice = chance.random()
        if dice < 0.15 and table.value == "fp":
            columns, target, referenced = "fp", "w.root", "f"
        elif dice < 0.25 and not generated:
            columns, target, referenced = "tenant, ref", "w.root", "tenant, id"
        elif dice < 0.3 and table.value == "fp":
            columns, target, referenced = "fp", table.name, "fp"
        for one, other in zip(columns.split(", "), referenced.split(", "), strict=True):
            self.references.setdefault((table.name, one), f"SELECT {other} FROM {target}")
        actions = [chance.choice(ACTIONS[:2] + ACTIONS), chance.choice(ACTIONS[:3] + ACTIONS)]
        late = chance.choice(["", "", "", " DEFERRABLE INITIALLY DEFERRED"])
        # Rows that are there may not fit: NOT VALID applies to new ones, and its actions to all.
        late += " NOT VALID" if table.kind == "ordinary" else ""
        return (
            f"ALTER TABLE {table.name} ADD FOREIGN KEY ({columns}) REFERENCES {target} ({referenced})"
            f" ON UPDATE {actions[0]} ON DELETE {actions[1]}{late}"
        )

    def _add_trigger(self, table: Table) -> None:
        chance = self.chance
        timing = chance.choice(["before", "before", "row", "statement"])
        bodies = {"before": FUNCTIONS, "row": AFTER_ROW, "statement": AFTER_STATEMENT}[timing]
        other = chance.choice(self.tables)
        body = bodies[chance.choice(list(bodies))].format(
            t=table.name, value=table.value, o=other.name, other_value=other.value
        )
        name = f"{table.name}_{len(self.setup)}"
        if timing != "before":
            body = f"IF pg_trigger_depth() > {chance.choice([1, 2])} THEN RETURN NULL; END IF; {body}"
        events = chance.choice(["INSERT OR UPDATE", "UPDATE", "INSERT"])
        each = "STATEMENT" if timing == "statement" else "ROW"
        when = "BEFORE" if timing == "before" else "AFTER"
        self._set_up(
            f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN {body} END$$",
            f"CREATE TRIGGER {chance.choice('az')}{len(self.setup)} {when} {events} ON {table.name}"
            f" FOR EACH {each} EXECUTE FUNCTION {name}()",
        )

    # Parts of statements

    def fresh(self) -> int:
        """A number that no statement has used, a multiple of 4,096."""
        self.number += 1
        return self.number << 12

    def table(self) -> Table:
        return self.chance.choice(self.tables)

    def where(self, name: str = "") -> str:
        """A condition on the rows of a table."""
        at = f"{name}." if name else ""
        number = self.chance.randrange(6)
        return self.chance.choice(
            [
                "true",
                "true",
                f"{at}id % 2 = {number % 2}",
                f"{at}id % 3 = {number % 3}",
                f"{at}id = {number + 1}",
                f"{at}id = (SELECT max(id) FROM {self.table().name})",
                f"{at}ref IS NULL",
                f"{at}ref IS NOT NULL",
                f"{at}id IN (SELECT ref FROM {self.table().name})",
                f"{at}id <= (SELECT min(id) + {number} FROM {self.table().name})",
                f"{at}spare % 2 = {number % 2}",
            ]
        )

    def fingerprint(self, value: str, at: str = "") -> str:
        """A fingerprint; most are new, some are that of another row."""
        fresh = self.fresh()
        return self.chance.choice(
            [
                f"{at}{value} + {fresh}",
                f"{at}{value} + {fresh}",
                f"{at}id + {fresh}",
                f"{at}id % 2 + {fresh}",
                f"{at}ref + {fresh}",
                f"{fresh}",
                f"{at}{value} # 1",
                f"-{at}{value}",
                f"(SELECT max({value}) + {fresh} FROM {self._with(value).name})",
                f"(SELECT min({value}) FROM {self._with(value).name})",
                "NULL",
            ]
        )

    def _with(self, value: str) -> Table:
        return self.chance.choice([table for table in self.tables if table.value == value] or self.tables)

    def assignments(self, table: Table, at: str = "", extra: str = "") -> str:
        """SET: some columns, mostly the fingerprint and the key that others refer to."""
        chance = self.chance
        choices = {
            "id": [f"{at}id + {chance.choice([1, 100, 100, 1000])}", f"{at}id + 7", f"- {at}id"],
            "ref": ["NULL", self.referred(table, "ref"), self.referred(table, "ref"), f"{at}id", f"{at}link"],
            "link": ["NULL", self.referred(table, "link"), f"{at}ref", f"{at}id", "DEFAULT"],
            "tenant": [f"1 - {at}tenant", "NULL", "1", "DEFAULT"],
            table.value: [self.fingerprint(table.value, at), f"{extra} + {self.fresh()}" if extra else "DEFAULT"],
        }
        weights = {"id": 3, "ref": 2, "link": 1, "tenant": 1, table.value: 5}
        chosen: dict[str, str] = {}
        for _ in range(chance.choice([1, 2, 2, 3])):
            column = chance.choices(table.writable, [weights[name] for name in table.writable])[0]
            chosen.setdefault(column, chance.choice(choices[column]))
        return ", ".join(f"{column} = {value}" for column, value in chosen.items())

    def columns(self, table: Table) -> str:
        return "id, ref, link, " + table.value

    def referred(self, table: Table, column: str) -> str:
        """A value that a column may refer to, if it is in a foreign key."""
        values = self.references.get((table.name, column), f"SELECT id FROM {self.table().name}")
        name = values.split()[1]
        return f"({values} ORDER BY {name} OFFSET {self.chance.randrange(4)} LIMIT 1)"

    def source(self, table: Table, count: int) -> str:
        """SELECT: new rows for a table."""
        chance = self.chance
        fresh = self.fresh()
        ref = chance.choice(["NULL", self.referred(table, "ref"), self.referred(table, "ref")])
        link = chance.choice(["NULL", "NULL", self.referred(table, "link")])
        if (table.name, "ref") not in self.references and chance.random() < 0.5:
            ref = chance.choice(["1 + n % 6", f"{fresh % 30000} + n - 1"])
        new = [f"{fresh} + n", f"{fresh} + n / 2", f"{fresh}", f"nullif({fresh} + n, {fresh + 2})"]
        fingerprint = chance.choice(new)
        if (table.name, "fp") in self.references and table.value == "fp" and chance.random() < 0.7:
            fingerprint = chance.choice(["NULL", self.referred(table, "fp")])
        return f"SELECT {fresh % 30000} + n, {ref}, {link}, {fingerprint} FROM generate_series(1, {count}) AS n"

    # Statements

    def insert_rows(self, table: Table, count: int, session: str) -> Step:
        return Step(
            "INSERT ... SELECT",
            session,
            f"INSERT INTO {table.name} ({self.columns(table)}) {self.source(table, count)}",
        )

    def write(self, session: str) -> Step:
        """A random statement that writes."""
        writers: list[tuple[int, Callable[[Table], tuple[str, str]]]] = [
            (6, self._insert),
            (10, self._update),
            (4, self._update_from),
            (4, self._delete),
            (12, self._writing_cte),
            (4, self._on_conflict),
            (3, self._root),
            (1, self._truncate),
        ]
        if self.major >= 15:
            writers.append((5, self._merge))
        if self.chance.random() < 0.05:
            return self._copy(session)
        writer = self.chance.choices([w for _, w in writers], [n for n, _ in writers])[0]
        return Step(*self._named(writer(self.table()), session))

    def _named(self, made: tuple[str, str], session: str) -> tuple[str, str, str]:
        return made[0], session, made[1]

    def _insert(self, table: Table) -> tuple[str, str]:
        chance = self.chance
        if chance.random() < 0.3:
            other, fresh = self.table(), self.fresh()
            return "INSERT from another table", (
                f"INSERT INTO {table.name} ({self.columns(table)}) SELECT o.id + {fresh % 30000}, o.ref, o.link,"
                f" o.{other.value} + {chance.choice([0, fresh])} FROM {other.name} AS o WHERE {self.where('o')}"
            )
        if chance.random() < 0.2:
            fresh = self.fresh()
            rows = ", ".join(f"({fresh % 30000 + n}, NULL, {n or 'NULL'}, {fresh + n * n})" for n in range(3))
            return "INSERT ... VALUES", f"INSERT INTO {table.name} ({self.columns(table)}) VALUES {rows}"
        step = self.insert_rows(table, chance.choice([1, 1, 2, 5]), "")
        return step.kind, step.statement

    def _copy(self, session: str) -> Step:
        table, fresh = self.table(), self.fresh()
        rows = [(fresh % 30000 + n, self.chance.choice([None, None, 1]), None, fresh + n) for n in range(4)]
        return Step("COPY", session, f"COPY {table.name} ({self.columns(table)}) FROM STDIN", rows)

    def _update(self, table: Table) -> tuple[str, str]:
        return "UPDATE", f"UPDATE {table.name} SET {self.assignments(table)} WHERE {self.where()}"

    def _update_from(self, table: Table) -> tuple[str, str]:
        other = self.table()
        on = self.chance.choice(
            ["t.ref = o.id", "t.id = o.ref", "t.id = o.id", "t.link = o.id", "t.id = o.id + 1"]
        )
        extra = f"o.{other.value}"
        return "UPDATE ... FROM", (
            f"UPDATE {table.name} AS t SET {self.assignments(table, 't.', extra)} FROM {other.name} AS o"
            f" WHERE {on} AND {self.where('o')}"
        )

    def _delete(self, table: Table) -> tuple[str, str]:
        where = self.where() if self.chance.random() < 0.5 else f"id = (SELECT min(id) FROM {table.name})"
        return "DELETE", f"DELETE FROM {table.name} WHERE {where}"

    def _truncate(self, table: Table) -> tuple[str, str]:
        return "TRUNCATE", f"TRUNCATE {table.name} CASCADE"

    def _root(self, _: Table) -> tuple[str, str]:
        fresh = self.fresh()
        return "write to the referenced table", self.chance.choice(
            [
                FILL_ROOT,
                FILL_ROOT,
                f"UPDATE w.root SET id = id + {fresh % 30000} WHERE id % 3 = 0",
                f"UPDATE w.root SET f = f + {fresh}, id = id + 6",
                f"UPDATE w.root SET f = f + {fresh}",
                "UPDATE w.root SET tenant = 1 - tenant",
                "DELETE FROM w.root WHERE id % 4 = 0",
            ]
        )

    def _part(self) -> tuple[str, str]:
        """A statement that writes in a WITH clause, and returns an id; and the name of its table."""
        chance = self.chance
        if chance.random() < 0.25:
            text = chance.choice(
                [
                    "DELETE FROM w.root WHERE id % 2 = 0 RETURNING id, f AS value",
                    f"UPDATE w.root SET id = id + {self.fresh() % 30000} RETURNING id, f AS value",
                    f"UPDATE w.root SET f = f + {self.fresh()} RETURNING id, f AS value",
                ]
            )
            return text, "w.root"
        table = self.table()
        returning = f"RETURNING id, {table.value} AS value"
        dice = chance.random()
        if dice < 0.45:
            return f"DELETE FROM {table.name} WHERE {self.where()} {returning}", table.name
        if dice < 0.85:
            return (
                f"UPDATE {table.name} SET {self.assignments(table)} WHERE {self.where()} {returning}",
                table.name,
            )
        return f"INSERT INTO {table.name} ({self.columns(table)}) {self.source(table, 2)} {returning}", table.name

    def _writing_cte(self, table: Table) -> tuple[str, str]:
        chance = self.chance
        part, _ = self._part()
        first = part.split(" ", 1)[0]
        dice = chance.random()
        if dice < 0.55:
            on = chance.choice(
                ["t.ref = d.id", "t.link = d.id", "t.ref = d.id", "t.id <> d.id", "t.id = d.id + 1"]
            )
            return f"WITH {first} UPDATE", (
                f"WITH d AS ({part}) UPDATE {table.name} AS t SET {self.assignments(table, 't.', 'd.value')}"
                f" FROM d WHERE {on}"
            )
        if dice < 0.7:
            fresh = self.fresh()
            return f"WITH {first} INSERT", (
                f"WITH d AS ({part}) INSERT INTO {table.name} (id, {table.value}) SELECT d.id + {fresh % 30000},"
                f" d.value + {chance.choice([0, fresh])} FROM d"
            )
        if dice < 0.8:
            on = chance.choice(["t.ref = d.id", "t.link = d.id", "t.id = d.id + 1"])
            return f"WITH {first} DELETE", f"WITH d AS ({part}) DELETE FROM {table.name} AS t USING d WHERE {on}"
        parts = [part] + [self._part()[0] for _ in range(chance.choice([1, 2]))]
        names = [f"d{number}" for number, _ in enumerate(parts)]
        return "WITH several", (
            "WITH "
            + ", ".join(f"{name} AS ({text})" for name, text in zip(names, parts, strict=True))
            + " SELECT "
            + ", ".join(f"(SELECT count(*) FROM {name})" for name in names)
        )

    def _on_conflict(self, table: Table) -> tuple[str, str]:
        chance = self.chance
        other = self.table()
        shift = chance.choice([0, 0, 1])
        values = (
            f"SELECT o.id + {shift}, o.ref, o.link, o.{other.value} + {self.fresh()} FROM {other.name} AS o"
            f" WHERE {self.where('o')}"
        )
        insert = f"INSERT INTO {table.name} ({self.columns(table)}) {values} ON CONFLICT"
        if chance.random() < 0.25:
            return "ON CONFLICT DO NOTHING", f"{insert} DO NOTHING"
        assignments = self.assignments(table, f"{table.name.split('.')[1]}.", f"EXCLUDED.{table.value}")
        return "ON CONFLICT DO UPDATE", f"{insert} (id) DO UPDATE SET {assignments}"

    def _merge(self, table: Table) -> tuple[str, str]:
        chance = self.chance
        other = self.table()
        on = chance.choice(["t.id = o.id", "t.ref = o.id", "t.id = o.ref", "t.id = o.id + 1"])
        clauses = [
            "WHEN MATCHED AND o.id % 3 = 0 THEN DELETE" if chance.random() < 0.5 else "",
            f"WHEN MATCHED THEN UPDATE SET {self.assignments(table, 't.', 'o.' + other.value)}",
            f"WHEN NOT MATCHED THEN INSERT (id, {table.value}) VALUES (o.id + {self.fresh() % 30000},"
            f" o.{other.value} + {self.fresh()})"
            if chance.random() < 0.6
            else "",
        ]
        if self.major >= 17 and chance.random() < 0.3:
            clauses.append(f"WHEN NOT MATCHED BY SOURCE THEN UPDATE SET {self.assignments(table, 't.')}")
        merge = f"MERGE INTO {table.name} AS t USING {other.name} AS o ON {on} {' '.join(filter(None, clauses))}"
        if self.major >= 17 and chance.random() < 0.2:
            return "WITH MERGE", f"WITH d AS ({merge} RETURNING t.id) SELECT count(*) FROM d"
        return "MERGE", merge

    def define(self) -> Step:
        """What another session does to the tables while a transaction with an older snapshot is open."""
        chance = self.chance
        if not self.children or chance.random() < 0.3:
            ordinary = [table for table in self.tables if table.kind == "ordinary"]
            return Step("add a foreign key", "admin", self.foreign_key(chance.choice(ordinary or self.tables)))
        table = chance.choice(list(self.children))
        if chance.random() < 0.25:
            change = f"UPDATE {table.name}_child SET {table.value} = {table.value} + {self.fresh()}"
            return Step("child of a table", "admin", change)
        return self.attach_or_detach(table)

    def attach_or_detach(self, table: Table) -> Step:
        """Let the child of a table inherit, or no longer."""
        self.children[table] = not self.children[table]
        verb = "INHERIT" if self.children[table] else "NO INHERIT"
        return Step("child of a table", "admin", f"ALTER TABLE {table.name}_child {verb} {table.name}")

    def adopt(self, session: str, table: Table) -> Step:
        """UPDATE: a row of a table takes over a value of what is or was its child, whose rows change, too."""
        value, child = table.value, f"{table.name}_child"
        return Step(
            "take values of a child",
            session,
            f"UPDATE {table.name} SET {value} = CASE id WHEN (SELECT max(id) FROM ONLY {table.name})"
            f" THEN (SELECT {self.chance.choice(['min', 'max'])}({value}) FROM {child})"
            f" ELSE {value} + {self.fresh()} END WHERE {self.chance.choice(['true', self.where()])}",
        )


class World:
    """The tables of a plan in a database, the sessions that write to them, and the checks."""

    def __init__(self, server: Server, database: str, counts: Counts, plan: Plan) -> None:
        self.counts = counts
        self.plan = plan
        self.log: list[Step] = []
        self.inherited = False
        self.stack = contextlib.ExitStack()
        with contextlib.ExitStack() as stack:
            self.sessions = {
                name: stack.enter_context(contextlib.closing(server.connect(database)))
                for name in ("a", "b", "admin")
            }
            self.stack = stack.pop_all()
        for session in self.sessions.values():
            session.execute("SET lock_timeout = '8ms'; SET deadlock_timeout = '1s'; SET statement_timeout = '5s'")

    def __enter__(self) -> "World":
        return self

    def __exit__(self, *_: object) -> None:
        for session in self.sessions.values():
            session.rollback()
        admin = self.sessions["admin"]
        admin.execute("SET client_min_messages = error")
        with contextlib.suppress(psycopg.Error):
            for table in self.plan.tables:
                for column, _, _ in table.indexes:
                    admin.execute("SELECT simsql.drop_index(%s, %s)", [table.name, column])
        admin.execute("DROP SCHEMA IF EXISTS w CASCADE")
        self.stack.close()

    def set_up(self, steps: Sequence[Step]) -> None:
        for step in steps:
            self.run(step)
        admin = self.sessions["admin"]
        admin.execute("ANALYZE")
        self._missing = {}
        self._superfluous = []
        for table in self.plan.tables:
            try:
                found = key_tables(admin, table.name, "t.{column}")
            except psycopg.Error:
                continue  # the smallest case has no such table
            for keys in found:
                key = keys.key.replace("{column}", keys.column)
                rows = "".join(f" AND t.{name} IS NOT NULL" for name in (keys.column, *keys.scope))
                same = "".join(f" AND k.scope_{n} = t.{name}" for n, name in enumerate(keys.scope, 1))
                lacks = f"NOT EXISTS (SELECT FROM simsql.{keys.name} AS k WHERE k.key = {key}{same})"
                self._missing[keys.name] = (
                    f"SELECT '{table.name}', '{keys.column}', '{keys.name}', t.{keys.column}"
                    f" FROM ONLY {table.name} AS t WHERE true{rows} AND {lacks}"
                )
                self._superfluous.append(
                    f"DELETE FROM simsql.{keys.name} AS k WHERE k.key IS NOT NULL"
                    f" AND NOT EXISTS (SELECT FROM ONLY {table.name} AS t WHERE k.key = {key}{rows}{same})"
                )

    def run(self, step: Step) -> bool:
        """Whether a statement was executed; PostgreSQL may refuse any of them."""
        session = self.sessions[step.session]
        self.log.append(step)
        try:
            if step.rows is None:
                session.execute(step.statement)
            else:
                with session.cursor().copy(step.statement) as copy:
                    for row in step.rows:
                        copy.write_row(row)
        except psycopg.Error as error:
            self.counts.refused[step.kind] += 1
            message = re.sub(r'[0-9]+|".*?"', "…", error.diag.message_primary or "")
            self.counts.errors[f"{error.sqlstate} {message}"] += 1
            if "PL/pgSQL function simsql." in (error.diag.context or "") and error.sqlstate not in ALLOWED:
                raise StatementError(
                    "error", f"a statement fails inside simsql: {error.sqlstate} {error}"
                ) from error
            if step.kind == "set up" or step.session == "admin":
                self.log.pop()
            return False
        self.counts.executed[step.kind] += 1
        return True

    # Checks

    def status(self, session: str) -> TransactionStatus:
        return self.sessions[session].info.transaction_status

    def has_savepoint(self, session: str) -> bool:
        """Whether a savepoint has been set since the transaction began."""
        own = [step.kind for step in self.log if step.session == session]
        return "SAVEPOINT s" in own[len(own) - own[::-1].index("BEGIN") :] if "BEGIN" in own else False

    def check(self, name: str) -> None:
        """Fail if a row that a session sees has no key, unless searches say so."""
        session = self.sessions[name]
        if session.info.transaction_status == TransactionStatus.INERROR or not self._missing:
            return
        self.counts.checks += 1
        try:
            found = session.execute(" UNION ALL ".join(self._missing.values())).fetchall()
        except (errors.LockNotAvailable, errors.SerializationFailure):
            return
        for table, column, keys, fingerprint in found:
            refusal = self._search(session, "near", table, column, [fingerprint], 0)
            if not isinstance(refusal, psycopg.Error):
                raise StatementError(
                    "key", f"{table}: {fingerprint} of {column} has no key in {keys}, session {name}"
                )

    def search(self, name: str) -> None:
        """Compare searches in all indexes with plain SQL."""
        session = self.sessions[name]
        if session.info.transaction_status == TransactionStatus.INERROR:
            return
        for table in self.plan.tables:
            for column, scope, _ in table.indexes:
                try:
                    with session.transaction():
                        rows = session.execute(
                            f"SELECT {column} FROM {table.name} WHERE {column} IS NOT NULL"
                            + (f" AND {scope} = 1" if scope else "")
                        ).fetchall()
                except psycopg.Error:
                    continue  # the smallest case has no such table
                live = [row[0] for row in rows]
                queries = live[-3:] + [value ^ 1 for value in live[:2]]
                for search in ("near_many", "near", "similar_candidates"):
                    within = self.counts.checks % 3 * 2
                    found = self._search(session, search, table.name, column, queries, within, scope)
                    expected = sorted({(q, *m) for q in queries for m in oracle.near(live, q, within)})
                    if isinstance(found, psycopg.Error):
                        self.counts.searches[
                            f"{search}: {found.sqlstate} {found.diag.message_primary or ''}"[:100]
                        ] += 1
                        is_old = self.status(name) != TransactionStatus.IDLE
                        if not (
                            found.sqlstate == "55000" and found.diag.message_hint and (self.inherited or is_old)
                        ):
                            raise StatementError("error", f"{search} in {table.name}: {found.sqlstate} {found}")
                    elif sorted(set(found)) != expected:
                        raise StatementError(
                            "search", f"{search} in {table.name}: found {sorted(found)}, expected {expected}"
                        )
                    else:
                        self.counts.searches[search] += 1
                        self.counts.with_matches += bool(expected)

    def _search(
        self,
        session: psycopg.Connection,
        search: str,
        table: str,
        column: str,
        queries: list[int],
        within: int,
        scope: str = "",
    ) -> Any:
        """The rows of a search, or the error by which simsql refuses it."""
        if not scope and search == "near":
            with contextlib.suppress(psycopg.Error):
                (scoped,) = session.execute(
                    "SELECT scope_columns <> '{}' FROM simsql.registry WHERE table_id = %s::regclass"
                    " AND column_name = %s",
                    [table, column],
                ).fetchone() or (False,)
                scope = "tenant" if scoped else ""
        options = "column_name => %(column)s" + (""", scope => '{"tenant": 1}'""" if scope else "")
        statement = {
            "near": "SELECT q, n.fingerprint, n.distance FROM unnest(%(queries)s::bigint[]) AS q,"
            f" simsql.near(%(table)s::regclass, q, %(within)s, {options}) AS n",
            "similar_candidates": "SELECT q, n.fingerprint, n.cost FROM unnest(%(queries)s::bigint[]) AS q,"
            " simsql.similar_candidates(%(table)s::regclass,"
            f" {like_near('q', '%(within)s', '%(table)s', '%(column)s')}, {options}) AS n"
            " WHERE n.distance <= %(within)s",
            "near_many": "SELECT * FROM"
            f" simsql.near_many(%(table)s::regclass, %(queries)s::bigint[], %(within)s, {options})",
        }[search]
        given = {"table": table, "column": column, "queries": queries, "within": within}
        try:
            with session.transaction():
                return session.execute(statement, given).fetchall()
        except psycopg.Error as error:
            return error

    def remove_superfluous(self) -> None:
        """Remove keys without rows, as vacuum does, so that they hide nothing."""
        for statement in self._superfluous:
            with contextlib.suppress(psycopg.Error):
                self.sessions["admin"].execute(statement)

    def trim(self) -> None:
        """Keep tables small, and not empty."""
        for table in self.plan.tables:
            if self.status("a") == TransactionStatus.IDLE:
                try:
                    (count,) = self.sessions["a"].execute(f"SELECT count(*) FROM {table.name}").fetchone()
                except errors.LockNotAvailable:
                    continue
                if count < 5:
                    self.step(self.plan.insert_rows(table, 6, "a"))
                elif count > 40:
                    self.step(Step("DELETE", "a", f"DELETE FROM {table.name} WHERE id % 3 > 0"))

    def step(self, step: Step) -> None:
        """Run a statement, and check."""
        done = self.run(step)
        self.inherited |= step.kind == "child of a table"
        if done:
            self.check(step.session)
            if step.statement == "COMMIT":
                self.check("admin")


ALLOWED = ("55P03", "57014", "40P01", "40001", "42P01")


def next_steps(world: World, plan: Plan) -> None:
    """One random thing: a statement, or the begin or the end of a transaction."""
    chance = plan.chance
    dice = chance.random()
    session = "b" if plan.old_session and chance.random() < 0.3 else "a"
    status = world.status(session)
    if status == TransactionStatus.INERROR:
        world.step(Step("ROLLBACK", session, "ROLLBACK"))
    elif session == "b" and status == TransactionStatus.IDLE:
        begin_old(world, plan)
    elif status == TransactionStatus.INTRANS and dice < 0.3:
        kind = chance.choice(["COMMIT", "COMMIT", "ROLLBACK", "SAVEPOINT s", "ROLLBACK TO s"])
        if kind == "ROLLBACK TO s" and not world.has_savepoint(session):
            kind = "SAVEPOINT s"
        world.step(Step(kind, session, kind))
    elif status == TransactionStatus.IDLE and dice < 0.08:
        world.step(Step("BEGIN", session, f"BEGIN ISOLATION LEVEL {chance.choice(LEVELS)}"))
    elif plan.children and dice < (0.5 if session == "b" else 0.1):
        world.step(plan.adopt(session, chance.choice(list(plan.children))))
    elif plan.children and world.status("a") == TransactionStatus.IDLE and dice < 0.15:
        world.step(plan.define())
    else:
        world.step(plan.write(session))


def begin_old(world: World, plan: Plan) -> None:
    """Begin a transaction with one snapshot, and change what its triggers look at."""
    chance = plan.chance
    world.step(Step("BEGIN", "b", f"BEGIN ISOLATION LEVEL {chance.choice(LEVELS[1:])}"))
    world.step(Step("SELECT", "b", "SELECT count(*) FROM pg_class"))
    if world.status("a") != TransactionStatus.IDLE:
        return
    detached = [table for table, attached in plan.children.items() if not attached]
    if detached and chance.random() < 0.5:
        table = chance.choice(detached)
        world.step(plan.attach_or_detach(table))
        world.step(plan.adopt("b", table))
        if world.status("b") == TransactionStatus.INTRANS:
            world.step(Step("COMMIT", "b", "COMMIT"))
        world.step(plan.attach_or_detach(table))
        # Else the catalogue goes on saying that the table may have children.
        world.step(Step("ANALYZE", "admin", f"ANALYZE {table.name}"))
    else:
        for _ in range(chance.choice([1, 2, 3])):
            world.step(plan.define())


def try_many(attempts: Attempts, counts: Counts) -> None:
    """Try random worlds of 200 statements."""
    while not attempts.is_over:
        # Not one for all: what is dropped leaves dead rows in its catalogue.
        with attempts.server.new_database(template=attempts.template) as url:
            database = str(url.database)
            for number, chance in itertools.islice(attempts, 40):
                plan = Plan(chance, attempts.server.major)
                try:
                    try_world(attempts.server, database, counts, plan, 200)
                except StatementError as difference:
                    steps, text = difference.steps, str(difference)
                    if attempts.shorten:
                        steps, text = smallest(attempts.server, database, plan, difference)
                    attempts.differ(number, difference.kind, *steps, f"-- {text}")


def try_world(server: Server, database: str, counts: Counts, plan: Plan, statements: int) -> None:
    """Random statements in one world; raise StatementError with the steps if the rule is broken."""
    counts.worlds += 1
    with World(server, database, counts, plan) as world:
        try:
            world.set_up(plan.setup)
            for number in range(statements):
                if number % 12 == 0:
                    world.trim()
                    world.remove_superfluous()
                next_steps(world, plan)
                if number % 15 == 14:
                    world.search(plan.chance.choice("ab") if plan.old_session else "a")
        except StatementError as error:
            error.steps = world.log
            raise


def replay(server: Server, database: str, plan: Plan, steps: Sequence[Step]) -> StatementError | None:
    """The difference that these steps lead to, if any."""
    setup = [step for step in steps if step in plan.setup]
    with World(server, database, Counts(), plan) as world:
        try:
            world.set_up(setup)
            world.remove_superfluous()
            for step in steps[len(setup) :]:
                world.step(step)
                world.inherited = True
                world.check("a")
                world.check("b")
            world.search("a")
        except StatementError as error:
            return error
        except psycopg.Error:
            return None
    return None


def smallest(server: Server, database: str, plan: Plan, difference: StatementError) -> tuple[list[Step], str]:
    """The steps that are left when groups of them are left out, and the difference that they lead to."""
    steps = list(difference.steps)
    found = "not found again"
    size, before = len(steps), None
    while size or steps != before:
        size = size or 1
        before = steps
        start = 0
        while start < len(steps):
            fewer = steps[:start] + steps[start + size :]
            error = replay(server, database, plan, fewer)
            if error and error.kind == difference.kind and "has no simhash index" not in str(error):
                steps, found = fewer, str(error)
            else:
                start += size
        size //= 2
    return steps, found


# Faults of the past: in each function, a text and what stands for it again.
FAULTS = {
    # A row that a foreign key updates a second time within a statement was taken for one that had its key.
    "twice": (("simsql._trigger_functions(simsql.registry)", "EXCEPT ALL SELECT", "EXCEPT SELECT"),),
    # A row that was updated alone got no keys.
    "alone": (("simsql._trigger_functions(simsql.registry)", "'record_image_eq(", "'record_image_ne("),),
    # Of the rows of a statement only one got keys.
    "several": (("simsql._trigger_functions(simsql.registry)", "EXISTS (SELECT FROM pg_am OFFSET 1)", "false"),),
    # A transaction with one snapshot did not know that the table had got a child since.
    "child": (("simsql._trigger_functions(simsql.registry)", "c.xmax = '0'::pg_catalog.xid", "true"),),
}
# What random.Random() is given for a world that shows them soon.
SEEDS = {"twice": "twice 34", "alone": "alone 1", "several": "several 3", "child": "child 4"}
