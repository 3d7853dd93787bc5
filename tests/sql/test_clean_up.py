"""The documented statement that deletes the rows to drop, beside other transactions: no text is lost."""

from hashlib import sha256
from threading import Barrier, Thread

import pytest
from clean_up import clean_up, decide, documented_delete
from corpus import make_texts
from psycopg import errors
from sessions import ALL_LEVELS, blocked, started

from simsql.decide.rules import Rules

pytestmark = pytest.mark.oldest_version

TEXT = "the quick brown fox jumps over the lazy dog near the river bank at dawn"
# Each of them leaves TEXT in at most one of the rows a, which is kept, and b, which is to be dropped.
CHANGES = {
    "deletes the row to keep": ("DELETE FROM saying WHERE slug = 'a'", {"b"}),
    "edits the row to keep": ("UPDATE saying SET body = 'else' WHERE slug = 'a'", {"a", "b"}),
    "renames the row to keep": ("UPDATE saying SET slug = 'z' WHERE slug = 'a'", {"b", "z"}),
    "empties the row to keep": ("UPDATE saying SET body = NULL WHERE slug = 'a'", {"a", "b"}),
    "changes nothing that matters": ("UPDATE saying SET score = 9 WHERE slug = 'a'", {"a"}),
    "edits the row to drop": ("UPDATE saying SET body = 'else' WHERE slug = 'b'", {"a", "b"}),
    "renames the row to drop": ("UPDATE saying SET slug = 'z' WHERE slug = 'b'", {"a", "z"}),
    "deletes the row to drop": ("DELETE FROM saying WHERE slug = 'b'", {"a"}),
}


def create_saying(connection, texts):
    connection.execute("DROP TABLE IF EXISTS saying")
    connection.execute("CREATE TABLE saying (slug text PRIMARY KEY, body text, score int)")
    with connection.cursor() as cursor, cursor.copy("COPY saying (slug, body) FROM STDIN") as copy:
        for row in texts.items():
            copy.write_row(row)


def slugs(connection):
    return {slug for (slug,) in connection.execute("SELECT slug FROM saying")}


@pytest.mark.parametrize("change", CHANGES)
def test_beside_a_transaction_that(change, connection, connect, database_url):
    statement = documented_delete()
    changes, left = CHANGES[change]
    create_saying(connection, {"a": TEXT, "b": TEXT})
    decide(database_url)
    assert connection.execute("SELECT slug, kept_slug FROM decisions WHERE drop").fetchall() == [("b", "a")]
    for level in ALL_LEVELS:
        for end in ("COMMIT", "ROLLBACK"):
            connection.execute("DELETE FROM saying")
            connection.execute("INSERT INTO saying VALUES ('a', %s), ('b', %s)", [TEXT, TEXT])
            connection.execute("BEGIN")
            connection.execute(changes)
            with started(connect, lambda other, level=level: clean_up(other, statement, level)) as found:
                connection.execute(end)
            deleted = found.result()
            assert slugs(connection) == (left if end == "COMMIT" else {"a"}), (level, end, deleted)
            # The change came first, and once more.
            assert clean_up(connection, statement, level) == set()


def test_without_the_lock_both_copies_go(connection, connect, database_url):
    """The trial above can fail."""
    statement = documented_delete().replace(" FOR SHARE", "")
    create_saying(connection, {"a": TEXT, "b": TEXT})
    decide(database_url)
    connection.execute("BEGIN; DELETE FROM saying WHERE slug = 'a'")
    assert clean_up(connect(), statement) == {"b"}
    connection.execute("COMMIT")
    assert slugs(connection) == set()


def test_later_changes_wait_for_the_end(connection, connect, database_url):
    create_saying(connection, {"a": TEXT, "b": TEXT})
    decide(database_url)
    connection.execute("BEGIN")
    connection.execute(documented_delete())
    with blocked(connect, lambda other: other.execute("DELETE FROM saying WHERE slug = 'a'")):
        connection.execute("ROLLBACK")
    assert slugs(connection) == {"b"}


@pytest.mark.parametrize("level", ALL_LEVELS)
def test_decisions_that_contradict_each_other(level, connection, connect, database_url):
    """Two sessions at once: one keeps the first of each pair and the other the second."""
    texts = list(make_texts(1, families=0, alone=20).values())
    pairs = [(f"a{number}", f"b{number}") for number in range(len(texts))]
    create_saying(connection, {slug: text for pair, text in zip(pairs, texts, strict=True) for slug in pair})
    decide(database_url, into="one")
    connection.execute("UPDATE saying SET score = ascii(slug)")
    decide(database_url, into="other", rules=Rules(keep_field="score"))
    for _ in range(10):
        both, barrier = {}, Barrier(2)

        def delete(into, both=both, barrier=barrier):
            other = connect()
            barrier.wait()
            both[into] = clean_up(other, documented_delete(decisions=into), level)

        threads = [Thread(target=delete, args=(into,)) for into in ("one", "other")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        left = slugs(connection)
        assert all((a in left) != (b in left) for a, b in pairs)
        gone = both["one"] | both["other"]
        connection.cursor().executemany(
            "INSERT INTO saying VALUES (%s, %s, ascii(%s))",
            [(slug, text, slug) for pair, text in zip(pairs, texts, strict=True) for slug in pair if slug in gone],
        )


def test_every_row_that_goes_leaves_the_one_that_was_kept(connection, database_url):
    """Run after run, until there is nothing left to drop: no row goes because of one that goes, too."""
    create_saying(connection, make_texts(5, families=30, alone=10))
    runs = 0
    while summary := decide(database_url).droppable:
        kept = dict(connection.execute("SELECT slug, kept_slug FROM decisions WHERE drop").fetchall())
        deleted = clean_up(connection, documented_delete())
        assert deleted == set(kept)
        assert len(deleted) == summary
        assert set(kept.values()) <= slugs(connection)
        runs += 1
    assert runs


def test_a_key_of_two_columns_in_a_partitioned_table(connection, connect, database_url):
    connection.execute("CREATE TABLE saying (tenant int, slug text, body text) PARTITION BY LIST (tenant)")
    connection.execute("CREATE TABLE one PARTITION OF saying FOR VALUES IN (1)")
    connection.execute("CREATE TABLE rest PARTITION OF saying DEFAULT")
    connection.execute("ALTER TABLE saying ADD PRIMARY KEY (tenant, slug)")
    rows = [(1, "a", TEXT), (1, "b", TEXT), (2, "a", TEXT), (2, "b", TEXT)]
    connection.cursor().executemany("INSERT INTO saying VALUES (%s, %s, %s)", rows)
    decide(database_url, scope_columns=("tenant",))
    statement = documented_delete(keys=("tenant", "slug"))
    # A row that moves to another partition.
    connection.execute("BEGIN; UPDATE saying SET tenant = 3 WHERE (tenant, slug) = (1, 'a')")
    with blocked(connect, lambda other: clean_up(other, statement)) as found:
        connection.execute("COMMIT")
    assert found.result() == {2}
    left = connection.execute("SELECT tenant, slug FROM saying ORDER BY 1, 2").fetchall()
    assert left == [(1, "b"), (2, "a"), (3, "a")]


def test_privileges_and_row_level_security(connection, connect, database_url, new_role):
    role = new_role()
    create_saying(connection, {"a": TEXT, "b": TEXT})
    decide(database_url)
    session = connect(role)
    for privilege in ("SELECT ON decisions", "SELECT, DELETE ON saying", "UPDATE (score) ON saying"):
        with pytest.raises(errors.InsufficientPrivilege):
            session.execute(documented_delete())
        connection.execute(f"GRANT {privilege} TO {role}")
    connection.execute("ALTER TABLE saying ENABLE ROW LEVEL SECURITY")
    connection.execute(f"CREATE POLICY seen ON saying FOR SELECT TO {role} USING (true)")
    connection.execute(f"CREATE POLICY gone ON saying FOR DELETE TO {role} USING (true)")
    assert clean_up(session, documented_delete()) == set()  # a cannot be locked
    connection.execute(f"CREATE POLICY changed ON saying FOR UPDATE TO {role} USING (slug = 'a')")
    assert clean_up(session, documented_delete()) == {"b"}


@pytest.mark.parametrize("encoding", ["UTF8", "LATIN1", "SQL_ASCII"])
def test_digests_of_texts_of_every_type_and_encoding(encoding, server):
    text = f"  {TEXT} ÄÖÜ é "
    with server.new_database(template="template0") as url:
        name = f"{url.database}_encoded"
        server.execute(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING {encoding} LOCALE 'C'")
        try:
            connection = server.connect(name)
            connection.execute(
                "SET client_encoding = 'UTF8'; CREATE DOMAIN phrase AS varchar(200) CHECK (VALUE <> '')"
            )
            types = ["text", "varchar(200)", "char(200)", "phrase", 'text COLLATE "C"']
            if connection.execute("SELECT FROM pg_available_extensions WHERE name = 'citext'").fetchone():
                connection.execute("CREATE EXTENSION citext")
                types.append("citext")
            for number, kind in enumerate(types):
                table, into = f"saying_{number}", f"decisions_{number}"
                connection.execute(f"CREATE TABLE {table} (slug int PRIMARY KEY, body {kind})")
                connection.cursor().executemany(
                    f"INSERT INTO {table} VALUES (%s, %s)", [(1, text), (2, text), (3, text.upper())]
                )
                decide(url.set(database=name), table, into=into)
                stored = text.rstrip() if kind.startswith("char") else text
                digest = sha256(stored.encode()).digest()
                assert (
                    connection.execute(
                        f"SELECT text_digest, kept_text_digest FROM {into} WHERE slug < 3"
                    ).fetchall()
                    == [(digest, digest)] * 2
                )
                # Another case is another text, also for citext.
                connection.execute(f"UPDATE {table} SET body = upper(body::text) WHERE slug = 2")
                assert clean_up(connection, documented_delete(table, decisions=into)) == {3}
            connection.close()
        finally:
            server.execute(f"DROP DATABASE {name} WITH (FORCE)")
