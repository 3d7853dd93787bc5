"""The default index of a table with several: what searches without a column use, and until when."""

import re
from concurrent.futures import ThreadPoolExecutor

import pytest
from articles import create_index, create_table, near
from program import wait_until
from psycopg import errors
from roles import allow_indexes

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

    def until_waiting(session):
        waits = "SELECT 1 FROM pg_locks WHERE pid = %s AND NOT granted"
        wait_until(lambda: two.execute(waits, [session.info.backend_pid]).fetchone(), "the session waits")

    with connect() as first, connect() as owner, connect() as later, ThreadPoolExecutor(2) as pool:
        first.execute("BEGIN")
        assert first.execute(claim).fetchall() == []
        switched = pool.submit(set_default, owner, "second", 1)
        until_waiting(owner)
        assert near(two, 1, 0) == [(1, 0)]  # a search does not wait
        claimed = pool.submit(lambda: later.execute(claim).fetchall())
        until_waiting(later)
        first.execute("INSERT INTO article (fingerprint, second) VALUES (1000, 1000)")
        first.execute("COMMIT")
        switched.result()
        assert claimed.result() == [(1000, 0)]
