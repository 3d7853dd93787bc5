"""Rows whose id a table has already are left out and named, whatever decides which ids are equal."""

from threading import Thread

import pytest
from articles import create_index, missing_keys
from psycopg import errors
from refusals import refused
from sqlalchemy import text

from simsql.database import load
from simsql.database.rows_with_origin import RowWithOrigin, load_rows_with_origin
from simsql.errors import SimsqlError

COLUMNS = ["slug", "body", "fp"]
IDS = ["b", "a", "c", "a", "old", "d", "d", "a"]


@pytest.fixture
def post(connection):
    """Create the table `post` with a row and an index; the call defines its ids, and what more it has."""

    def create(slug="text UNIQUE", more="", old="old"):
        number = "number bigint GENERATED ALWAYS AS IDENTITY"
        connection.execute(f"CREATE TABLE post ({number}, slug {slug}, body text, fp bigint{more})")
        connection.execute("INSERT INTO post (slug, body, fp) VALUES (%s, 'before', 0)", [old])
        create_index(connection, "post", "fp")
        return connection

    return create


@pytest.fixture
def add(database):
    """Load rows with these ids; return the ids that were left out, each with the place of the earlier one."""

    def load_ids(ids, *, id_column="slug", body=None):
        skipped = []
        rows = [
            RowWithOrigin([name, body or f"text {number}", number + 1], name, f"f:{number}")
            for number, name in enumerate(ids)
        ]
        with database.begin() as transaction:
            count = load_rows_with_origin(
                transaction,
                "post",
                [id_column, "body", "fp"],
                rows,
                id_column=id_column,
                skip=lambda row, earlier: skipped.append((row.name, row.place, earlier and earlier.place)),
            )
            assert count == len(rows) - len(skipped)
        return skipped

    return load_ids


def stored(connection):
    return connection.execute("SELECT slug::text, fp FROM post WHERE fp > 0 ORDER BY number").fetchall()


def check_ids(connection, skipped, earlier=("f:1", None, "f:5", "f:1")):
    """The rows are those of IDS, each id once, with all their keys and no others."""
    assert skipped == list(zip(["a", "old", "d", "a"], ["f:3", "f:4", "f:6", "f:7"], earlier, strict=True))
    assert stored(connection) == [("b", 1), ("a", 2), ("c", 3), ("d", 6)]
    assert missing_keys(connection, "post") == []
    assert connection.execute("SELECT problem FROM simsql.verify('post')").fetchall() == []


@pytest.mark.parametrize(
    ("rows", "earlier"),
    [
        (10_000, ["f:1", None, "f:5", "f:1"]),
        # Full batches, whose keys are written without the triggers. What an earlier one has is in the table.
        (8, ["f:1", None, "f:5", "f:1"]),
        (5, ["f:1", None, "f:5", None]),
        (1, [None] * 4),
    ],
)
def test_in_batches_of_every_size(post, add, monkeypatch, rows, earlier):
    monkeypatch.setattr(load, "_BATCH_ROWS", rows)
    check_ids(post(), add(IDS), earlier)


@pytest.mark.parametrize(
    ("slug", "more"),
    [
        ("text PRIMARY KEY", ""),
        ("varchar(10)", ", UNIQUE (slug, tenant), tenant int NOT NULL DEFAULT 7"),
        (
            'text COLLATE "C"',
            ", EXCLUDE (number WITH =), deleted bool DEFAULT false, UNIQUE (slug) INCLUDE (body)",
        ),
    ],
    ids=["primary key", "of two columns", "with another column"],
)
def test_for_every_kind_of_constraint(post, add, slug, more):
    check_ids(post(slug, more), add(IDS))


@pytest.mark.parametrize(
    "index", ["(slug) WHERE deleted IS NULL", "(lower(slug))", "((slug || 'x')) WHERE slug <> ''"]
)
def test_for_every_kind_of_unique_index(post, add, index):
    connection = post("text", ", deleted date")
    connection.execute(f"CREATE UNIQUE INDEX ON post {index}")
    check_ids(connection, add(IDS))


def test_ids_are_equal_if_they_are_to_the_table(post, add):
    connection = post("numeric UNIQUE", old="7")
    assert add(["1", "01", "7.0", "2", "1.0"]) == [
        ("01", "f:1", "f:0"),
        ("7.0", "f:2", None),
        ("1.0", "f:4", None),
    ]
    assert stored(connection) == [("1", 1), ("2", 4)]


def test_an_identity_column_takes_ids(post, add):
    connection = post("text", ", PRIMARY KEY (number)")
    assert add(["5", "1", "5"], id_column="number") == [("1", "f:1", None), ("5", "f:2", "f:0")]
    assert connection.execute("SELECT number, fp FROM post WHERE fp > 0").fetchall() == [(5, 1)]


def test_a_partitioned_table(connection, add):
    connection.execute(
        "CREATE TABLE post (number int DEFAULT 1, slug text PRIMARY KEY, body text, fp bigint)"
        " PARTITION BY HASH (slug);"
        "CREATE TABLE part_0 PARTITION OF post FOR VALUES WITH (MODULUS 2, REMAINDER 0);"
        "CREATE TABLE part_1 PARTITION OF post FOR VALUES WITH (MODULUS 2, REMAINDER 1)"
    )
    assert add(["a", "b", "a", "c"]) == [("a", "f:2", "f:0")]
    assert sorted(stored(connection)) == [("a", 1), ("b", 2), ("c", 4)]


def test_without_a_unique_index_ids_may_be_repeated(post, add):
    connection = post("text", ", UNIQUE (number)")
    connection.execute("CREATE INDEX ON post (slug)")
    assert add(IDS) == []
    assert [slug for slug, _ in stored(connection)] == IDS


def test_what_another_unique_index_refuses_is_not_taken_for_a_repeated_id(post, add):
    connection = post("text UNIQUE", ", UNIQUE (body)")
    with pytest.raises(SimsqlError, match=r"^f:1: id 'b': PostgreSQL: duplicate key value .*post_body_key"):
        add(["a", "b"], body="x")
    with pytest.raises(SimsqlError, match=r"^f:1: id 'a': PostgreSQL: duplicate key value .*post_slug_key"):
        add(["a", "a"])
    assert stored(connection) == []


def test_a_deferrable_constraint_cannot_be_asked_beforehand(post, add):
    post("text", ", UNIQUE (slug) DEFERRABLE")
    with refused(errors.UniqueViolation):
        add(["a", "a"])


def test_a_role_that_may_not_look_is_told_the_place(post, new_role, database, connection):
    post()
    role = new_role()
    connection.execute(f"GRANT INSERT ON post TO {role}; GRANT USAGE ON SCHEMA simsql TO {role}")
    rows = [RowWithOrigin([name, "x", 1], name, f"f:{number}") for number, name in enumerate(["a", "old"])]
    with database.begin() as transaction:
        transaction.execute(text(f"SET LOCAL ROLE {role}"))
        with pytest.raises(SimsqlError, match=r"^f:1: id 'old': PostgreSQL: duplicate key value"):
            load_rows_with_origin(transaction, "post", COLUMNS, rows, id_column="slug", skip=lambda *_: None)


def test_a_trigger_may_change_ids_if_none_is_repeated(post, add):
    connection = post()
    connection.execute(
        "CREATE FUNCTION lower_slug() RETURNS trigger LANGUAGE plpgsql AS"
        " 'BEGIN NEW.slug := lower(NEW.slug); RETURN NEW; END';"
        "CREATE TRIGGER lower_slug BEFORE INSERT ON post FOR EACH ROW EXECUTE FUNCTION lower_slug()"
    )
    assert add(["A", "B"]) == []
    assert stored(connection) == [("a", 1), ("b", 2)]
    with pytest.raises(SimsqlError, match="a trigger of post changes them"):
        add(["C", "a"])
    assert len(stored(connection)) == 2


def test_an_id_that_another_session_adds_meanwhile(post, add, connect):
    """COPY waits for it, and then it is in the table."""
    connection, other = post(), connect()
    skipped = []
    other.execute("BEGIN; INSERT INTO post (slug, fp) VALUES ('c', 0)")
    loading = Thread(target=lambda: skipped.extend(add(["a", "c", "d"])))
    loading.start()
    waiting = "SELECT FROM pg_stat_activity WHERE application_name LIKE 'simsql%' AND wait_event_type = 'Lock'"
    while loading.is_alive() and not connection.execute(waiting).fetchall():
        pass
    other.execute("COMMIT")
    loading.join()
    assert skipped == [("c", "f:1", None)]
    assert stored(connection) == [("a", 1), ("d", 3)]


def test_two_loads_in_one_transaction(post, database):
    post()
    skipped = []
    with database.begin() as transaction:
        for name in ("a", "b"):
            rows = [RowWithOrigin([name, "x", 1], name, "f:0"), RowWithOrigin([name, "x", 2], name, "f:1")]
            load_rows_with_origin(
                transaction, "post", COLUMNS, rows, id_column="slug", skip=lambda row, _: skipped.append(row.name)
            )
        assert transaction.execute(text("SELECT count(*) FROM post")).scalar_one() == 3
    assert skipped == ["a", "b"]
