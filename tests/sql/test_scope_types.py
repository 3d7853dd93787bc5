"""A search in a scope whose column has changed its type finds what plain SQL finds, or raises an error."""

import itertools
import re

import pytest
from internals import begin_build, build_batch
from psycopg import errors, sql
from similar import like_near
from sqlalchemy.exc import OperationalError
from upkeep import problems

from simsql.database import create_index

CHANGED = r"column s of public\.article changed its type"
# The type and some of its values, the types that it becomes, and a scope that they may take for different values.
TYPES = {
    "date": (["2024-01-01", "2024-02-29"], ["timestamp", "timestamptz", "text"], "2024-01-01"),
    "timestamp": (["2024-01-01 10:00", "2024-01-01 11:00"], ["date", "timestamptz"], "2024-01-01 12:00"),
    "real": (["0.1", "0.5"], ["double precision", "numeric"], "0.1"),
    "double precision": (["0.1", "0.5"], ["real"], "0.1"),
    "char(3)": (["a", "b"], ["text", "char(5)", "varchar(3)"], "a  "),
    "text": (
        ["a", "A"],
        ["char(3)", 'text COLLATE "C"', "word", "varchar(1)"],
        "a ",
    ),
    "varchar(9)": (["a", "b"], ["varchar(2)", "varchar(99)", "text", "mood"], "a"),
    "word": (["a", "b"], ["text", "words", "integer USING 1"], "1"),
    "integer": (["1", "2"], ["bigint", "smallint", "text", "boolean USING s = 1"], "1"),
}
CALLS = {
    "near": "SELECT fingerprint FROM simsql.near('article', 0, {within}, scope => {scope})",
    "similar_candidates": "SELECT fingerprint FROM simsql.similar_candidates('article',"
    f" {like_near(0, '{within}')}, scope => {{scope}})",
    "near_rows": "SELECT print FROM simsql.near_rows(NULL::article, 0, {within}, scope => {scope})",
    "near_many": "SELECT fingerprint FROM simsql.near_many('article', ARRAY(SELECT generate_series(0, 99)),"
    " {within}, scope => {scope}) WHERE query = 0",
    "claim": "SELECT fingerprint FROM simsql.claim('article', 0, {within}, scope => {scope})",
    "clusters": "SELECT fingerprint FROM simsql.clusters('article', {within}, scope => {scope})",
    "pairs": "SELECT a FROM simsql.pairs('article', {within}, scope => {scope}) UNION"
    " SELECT b FROM simsql.pairs('article', {within}, scope => {scope})",
}


@pytest.fixture
def typed(connection):
    connection.execute(
        "CREATE DOMAIN word AS text; CREATE DOMAIN words AS word; CREATE TYPE mood AS ENUM ('a', 'b')"
    )
    return connection


def create(connection, kind, values, storage="expression"):
    connection.execute(f"CREATE TABLE article (id integer PRIMARY KEY, s {kind}, print bigint)")
    rows = [(value, number) for number, value in enumerate(values * 4)]
    for value, number in rows:
        connection.execute("INSERT INTO article VALUES (%s, %s, %s)", [number, value, number])
    connection.execute(
        "SELECT simsql.create_index('article', 'print', blocks => 4, scope => '{s}', storage => %s)", [storage]
    )


def found(connection, call, value, within):
    """What a call finds; None if it raises an error that says that the type has changed."""
    scope = sql.SQL("jsonb_build_object('s', {}::text)").format(value).as_string(connection)
    try:
        with connection.transaction():
            return sorted({row[0] for row in connection.execute(CALLS[call].format(within=within, scope=scope))})
    except errors.ObjectNotInPrerequisiteState as error:
        if not re.search(CHANGED, str(error)):
            raise
        return None


def check(connection, value):
    """Whether all calls raise an error or, if they do not, find what plain SQL finds."""
    refused = set()
    for call, within in itertools.product(CALLS, (3, 40)):
        kind = connection.execute(
            "SELECT format_type(atttypid, -1) FROM pg_attribute"
            " WHERE attrelid = 'article'::regclass AND attname = 's'"
        ).fetchone()[0]
        statement = "SELECT DISTINCT print FROM article WHERE s = {}::{} AND bit_count(print::bit(64)) <= {}"
        statement = sql.SQL(statement).format(value, sql.SQL(kind), within)
        live = sorted(row[0] for row in connection.execute(statement))
        matches = found(connection, call, value, within)
        refused.add(matches is None)
        if matches is not None:
            assert matches == {"claim": live[:1], "pairs": live if len(live) > 1 else []}.get(call, live)
    assert len(refused) == 1
    return refused == {True}


def test_a_changed_type_is_an_error_until_the_index_follows(typed):
    refused = []
    for kind, (values, others, scope) in TYPES.items():
        for other in others:
            with typed.transaction(force_rollback=True):
                create(typed, kind, values)
                assert not check(typed, values[0])
                to, _, using = other.partition(" USING ")
                typed.execute(f"ALTER TABLE article ALTER s TYPE {to} USING {using or f's::{to}'}")
                if check(typed, scope):
                    refused.append((kind, to))
                    assert ("column type changed", "s") in problems(typed)
                    assert typed.execute("SELECT state FROM simsql.indexes").fetchall() == [
                        ("column type changed",)
                    ]
                    if to in ("numeric", "mood"):
                        with pytest.raises(errors.DatatypeMismatch, match="which cannot be in a scope"):
                            typed.execute("SELECT simsql.repair('article')")
                        continue
                    assert follow(typed) == [("column type changed", "s")]
                    assert not check(typed, scope)
                assert problems(typed) == set()
                assert typed.execute("SELECT state FROM simsql.indexes").fetchall() == [("ready",)]
    kept = [("text", 'text COLLATE "C"'), ("text", "word")]
    kept += [("char(3)", "char(5)"), ("varchar(9)", "varchar(2)"), ("varchar(9)", "varchar(99)")]
    kept += [("word", "text"), ("word", "words")]
    assert set(refused) == {
        (kind, other.partition(" USING ")[0]) for kind, (_, others, _) in TYPES.items() for other in others
    } - set(kept)


def follow(connection):
    """Do what the hint of a refused search says."""
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match=CHANGED) as caught, connection.transaction():
        connection.execute("SELECT simsql.near('article', 0, scope => '{\"s\": \"a\"}')")
    return connection.execute(
        caught.value.diag.message_hint.partition(": ")[2].replace("*", "problem, object")
    ).fetchall()


@pytest.mark.parametrize("storage", ["tables", "expression"])
def test_a_column_that_replaces_one_of_a_scope_is_searched_after_a_repair_at_the_latest(typed, storage):
    for kind in ("text", "integer", "date", "word", 'text COLLATE "C"'):
        with typed.transaction(force_rollback=True):
            create(typed, "text", ["1", "2"], storage)
            typed.execute("ALTER TABLE article DROP s CASCADE")
            with (
                pytest.raises(errors.ObjectNotInPrerequisiteState, match="was renamed or dropped"),
                typed.transaction(),
            ):
                typed.execute(CALLS["near"].format(within=3, scope="""'{"s": 1}'"""))
            typed.execute(f"ALTER TABLE article ADD s {kind}")
            value = "2024-01-01" if kind == "date" else "1"
            typed.execute("ALTER TABLE article DISABLE TRIGGER USER")
            typed.execute(sql.SQL("UPDATE article SET s = {} WHERE id < 5").format(value))
            if storage == "expression":
                check(typed, value)
            typed.execute("SELECT simsql.repair('article')")
            assert problems(typed) == set()
            assert not check(typed, value)


def test_an_unfinished_index_and_one_whose_storage_changes_notice_a_new_type(typed, database):
    typed.execute("CREATE TABLE article (id integer, s real, print bigint) PARTITION BY RANGE (id)")
    typed.execute("CREATE TABLE part PARTITION OF article FOR VALUES FROM (0) TO (10)")
    typed.execute("INSERT INTO article SELECT n, 0.1, n FROM generate_series(0, 9) AS n")
    begin_build(typed, column="print", scope=["s"])
    build_batch(typed, column="print")
    typed.execute("ALTER TABLE article ALTER s TYPE double precision")
    build = "CALL simsql.build('article', 'print', 3, 4, 1, 0, NULL, '{s}')"
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match=CHANGED):
        typed.execute(build)
    with pytest.raises(OperationalError, match=CHANGED):
        create_index(database, "article", "print", scope=["s"], recipe=None, concurrently=True)
    assert follow(typed) == [("column type changed", "s")]
    create_index(database, "article", "print", scope=["s"], recipe=None, concurrently=True)
    typed.execute("CREATE TABLE other (id integer, s real, print bigint)")
    with pytest.raises(errors.DatatypeMismatch):
        typed.execute("ALTER TABLE article ATTACH PARTITION other FOR VALUES FROM (10) TO (20)")
    assert not check(typed, "0.1")
    typed.execute(
        "ALTER TABLE article DETACH PARTITION part; DROP TABLE article; ALTER TABLE part RENAME TO article"
    )
    typed.execute(
        "SELECT simsql.create_index('article', 'print', blocks => 4, scope => '{s}', storage => 'expression')"
    )
    typed.execute("ALTER TABLE article ALTER s TYPE real")
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match=CHANGED):
        typed.execute("SELECT simsql.change_storage('article', 'tables')")
    follow(typed)
    typed.execute("SELECT simsql.change_storage('article', 'tables')")
    assert not check(typed, "0.1")
    with pytest.raises(errors.FeatureNotSupported, match="used in a trigger definition"):
        typed.execute("ALTER TABLE article ALTER s TYPE double precision")
    for trigger in ("column", "no_parent"):
        typed.execute(f"DROP TRIGGER simsql_3_{trigger} ON article")
    typed.execute("ALTER TABLE article ALTER s TYPE double precision")
    with pytest.raises(errors.ObjectNotInPrerequisiteState):
        typed.execute("SELECT simsql.near('article', 0, scope => '{\"s\": 0.1}')")
    typed.execute("SELECT simsql.repair('article')")
    assert not check(typed, "0.1")
