"""The default index of a table with several: what searches without a column use, and until when."""

import re

import pytest
from articles import create_index, create_table, near
from psycopg import errors
from roles import allow_indexes
from sessions import begin, blocked

READS = [
    "SELECT count(*) FROM simsql.near_rows(NULL::article, 1, 0)",
    "SELECT * FROM simsql.near('article', 1, 0)",
    "SELECT * FROM simsql.near_many('article', ARRAY[1, 2], 0)",
    "SELECT * FROM simsql.pairs('article', 64)",
    "SELECT * FROM simsql.clusters('article', 64)",
    "SELECT * FROM simsql.claim('article', 1, 0)",
    "SELECT count(*) > 0 FROM simsql.explain_near('article', 1, 0)",
]


@pytest.fixture
def two(connection):
    """A table with the same fingerprints in two indexed columns, except that the second has none for 3."""
    create_table(connection, [1, 2, 3])
    connection.execute("ALTER TABLE article ADD COLUMN second bigint")
    connection.execute("UPDATE article SET second = fingerprint + 100 WHERE fingerprint < 3")
    create_index(connection)
    return connection


def set_default(connection, column, missing=0):
    connection.execute("SELECT simsql.set_default_index('article', %s, %s)", [column, missing])


def defaults(connection):
    return connection.execute("SELECT column_name FROM simsql.indexes WHERE is_default").fetchall()


def test_searches_without_a_column_use_the_default_index(two, storage):
    assert defaults(two) == [("fingerprint",)]
    create_index(two, column="second", storage=storage)
    for read in READS:
        with pytest.raises(errors.AmbiguousColumn, match="2 simhash indexes"):
            two.execute(read)
    assert defaults(two) == []
    for column, found, own in (("fingerprint", 1, 1), ("second", 101, 101), ("fingerprint", 1, 1)):
        set_default(two, column, missing=1)
        assert defaults(two) == [(column,)]
        assert near(two, own, 0) == [(found, 0)]
        for read in READS:
            named = re.sub(r"(0|64)\)$", rf"\1, column_name => '{column}')", read)
            assert named != read
            assert two.execute(read).fetchall() == two.execute(named).fetchall()
    assert near(two, 101, 0, column="second") == [(101, 0)]


def test_a_new_index_never_becomes_the_default_by_itself(two, storage):
    """So searches that name no column go on while the second index is created."""
    set_default(two, "fingerprint")
    create_index(two, column="second", storage=storage)
    assert near(two, 3, 0) == [(3, 0)]
    two.execute("SELECT simsql.drop_index('article', 'second')")
    two.execute("CALL simsql.build('article', 'second')")
    assert near(two, 3, 0) == [(3, 0)]


def test_the_default_goes_with_its_index(two):
    create_index(two, column="second")
    two.execute("ALTER TABLE article ADD COLUMN third bigint")
    create_index(two, column="third")
    set_default(two, "second")
    with pytest.raises(errors.AmbiguousColumn):
        two.execute("SELECT simsql.drop_index('article')")  # what removes asks for a name
    two.execute("SELECT simsql.drop_index('article', 'second')")
    with pytest.raises(errors.AmbiguousColumn):
        near(two, 1, 0)
    two.execute("SELECT simsql.drop_index('article', 'third')")
    assert near(two, 1, 0) == [(1, 0)]


def test_rows_without_a_fingerprint_for_the_new_default_stop_it(two):
    """Searches would miss them. Those without a fingerprint for the old one were not found before."""
    create_index(two, column="second")
    two.execute("INSERT INTO article DEFAULT VALUES")
    set_default(two, "fingerprint")
    with pytest.raises(
        errors.ObjectNotInPrerequisiteState, match=r"1 row of public.article with .* has none in second"
    ) as e:
        set_default(two, "second")
    assert "simsql.set_default_index('public.article', 'second', missing => 1);" in e.value.diag.message_hint
    assert defaults(two) == [("fingerprint",)]
    set_default(two, "second", missing=1)
    set_default(two, "second")  # nothing changes


def test_the_default_survives_a_change_of_storage_a_repair_and_a_dump(two, restore):
    create_index(two, column="second")
    set_default(two, "second")
    two.execute("SELECT simsql.change_storage('article', 'expression', 'second')")
    two.execute("SELECT simsql.change_storage('article', 'tables', 'second')")
    assert near(two, 101, 0) == [(101, 0)]
    two.execute("ALTER TABLE article RENAME COLUMN second TO latest; SELECT simsql.repair('article')")
    assert near(two, 101, 0) == [(101, 0)]
    assert near(restore(), 101, 0) == [(101, 0)]


def test_an_open_transaction_keeps_its_default(two, connect):
    """Its snapshot is older than the change, and both indexes serve searches."""
    create_index(two, column="second")
    set_default(two, "fingerprint")
    with connect() as other, other.transaction():
        other.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        assert near(other, 2, 0) == [(2, 0)]
        set_default(two, "second", missing=1)
        assert near(other, 2, 0) == [(2, 0)]
        assert near(two, 102, 0) == [(102, 0)]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ("'article', 'body'", errors.UndefinedObject, "no simhash index on column body"),
        ("'article', NULL", errors.NullValueNotAllowed, "must not be null"),
        ("NULL, 'fingerprint'", errors.NullValueNotAllowed, "must not be null"),
        ("'article', 'fingerprint', NULL", errors.NullValueNotAllowed, "must not be null"),
        ("'article', 'fingerprint', -1", errors.InvalidParameterValue, "missing must be at least 0, not -1"),
    ],
)
def test_wrong_arguments_are_refused(two, arguments, error, message):
    with pytest.raises(error, match=message):
        two.execute(f"SELECT simsql.set_default_index({arguments})")


def test_only_the_owner_sets_the_default(two, new_role):
    role = new_role()
    allow_indexes(two, role)
    two.execute(f"GRANT ALL ON article TO {role}; SET ROLE {role}")
    with pytest.raises(errors.InsufficientPrivilege, match=r"must be owner of table public\.article"):
        set_default(two, "fingerprint")


def test_claims_without_a_column_meet_across_the_change(two, connect):
    """A claim in the old default index holds up the change, and that the claims in the new one."""
    create_index(two, column="second")
    set_default(two, "fingerprint")
    claim = "SELECT * FROM simsql.claim('article', 1000, 3)"
    first = connect()
    first.execute("BEGIN")
    assert first.execute(claim).fetchall() == []
    with (
        blocked(connect, lambda owner: set_default(owner, "second", 1)) as switched,
        blocked(connect, lambda later: later.execute(claim).fetchall()) as claimed,
    ):
        assert near(two, 1, 0) == [(1, 0)]  # a search does not wait
        first.execute("INSERT INTO article (fingerprint, second) VALUES (1000, 1000)")
        first.execute("COMMIT")
        switched.result()
        assert claimed.result() == [(1000, 0)]


SWITCH = "SELECT simsql.set_default_index('article', 'second', 1)"
DROP = "SELECT simsql.drop_index('article', 'second')"
RENEW = (
    "SELECT simsql.change_storage('article', 'expression', 'second');"
    "SELECT simsql.change_storage('article', 'tables', 'second')"
)
KEEP = "SELECT simsql.change_storage('article', 'expression')"


@pytest.mark.parametrize(
    ("first", "then", "expected"),
    [
        (DROP, SWITCH, [("fingerprint", True, "tables")]),
        (SWITCH, DROP, [("fingerprint", None, "tables")]),
        (RENEW, SWITCH, [("fingerprint", False, "tables"), ("second", True, "tables")]),
        (RENEW, DROP, [("fingerprint", True, "tables")]),
        (SWITCH, KEEP, [("fingerprint", False, "expression"), ("second", True, "tables")]),
    ],
)
def test_a_change_that_waited_for_another_uses_its_result(two, connect, first, then, expected):
    """The index that it means may be dropped by then, or have another id, or be the default no more."""
    create_index(two, column="second")
    set_default(two, "fingerprint")
    two.execute("BEGIN")
    two.execute(first)
    with blocked(connect, lambda later: later.execute(then)) as waited:
        two.execute("COMMIT")
        error = waited.exception()
    assert isinstance(error, errors.UndefinedObject) if (first, then) == (DROP, SWITCH) else error is None
    rows = two.execute("SELECT column_name, is_default, storage FROM simsql.registry ORDER BY column_name")
    assert rows.fetchall() == expected
    searched = "second" if ("second", True, "tables") in expected else "fingerprint"
    assert near(two, 1, 64) == near(two, 1, 64, column=searched)


def test_an_old_snapshot_does_not_choose(two, connect):
    """It would leave out an index that it does not see, and miss rows that lack a fingerprint."""
    with connect() as other:
        begin(other, "REPEATABLE READ")
        create_index(two, column="second")
        with pytest.raises(errors.ActiveSqlTransaction, match="must be read committed"):
            set_default(other, "fingerprint")


@pytest.mark.parametrize("change", ["RENAME COLUMN fingerprint TO former", "DROP COLUMN fingerprint"])
def test_the_default_leaves_an_index_that_cannot_be_searched(two, change):
    create_index(two, column="second")
    set_default(two, "fingerprint")
    two.execute("SELECT simsql.change_storage('article', 'expression', 'fingerprint')")
    two.execute(f"ALTER TABLE article {change}")
    if change.startswith("RENAME"):
        with pytest.raises(errors.ObjectNotInPrerequisiteState, match=r"1 row of .* in former has none in second"):
            set_default(two, "second")
    set_default(two, "second", missing=int(change.startswith("RENAME")))
    assert near(two, 101, 0) == [(101, 0)]


def test_a_vacuum_stays_with_its_index(two):
    create_index(two, column="second")
    set_default(two, "second", missing=1)
    state = "(1, '{0, 1}', NULL, '{}', 0, 0, 0, false)::simsql._vacuum_state"
    batch = f"SELECT index_id, finished FROM simsql._vacuum_batch('article', NULL, {state})"
    assert two.execute(batch).fetchone()[0] == 1
