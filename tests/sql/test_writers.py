"""Every way to write a row leaves a key for its fingerprint in every permutation table."""

import re

import pytest
from articles import count_keys, create_articles, create_index, create_table, fingerprints_of, missing_keys, near
from oracle import EXTREMES
from psycopg import errors
from replication import rows_of

pytestmark = [
    pytest.mark.every_version,
    pytest.mark.fault(
        "every form of write, such as upserts, `MERGE`, `COPY`, cascades and other triggers; triggers disabled"
    ),
]


def fill_articles(connection):
    """Three rows with the fingerprints 1, 2 and NULL; four keys tables with two keys each."""
    create_articles(connection, [1, 2, None])


WRITES = {
    "insert": "INSERT INTO article (fingerprint) VALUES (7)",
    "insert of many rows": "INSERT INTO article (fingerprint) VALUES (7), (8), (NULL), (7), (-1)",
    "insert of a query": "INSERT INTO article (fingerprint) SELECT -n FROM generate_series(1, 1000) AS n",
    "insert in a common table expression": "WITH new AS"
    " (INSERT INTO article (fingerprint) VALUES (7) RETURNING *) TABLE new",
    "upsert": "INSERT INTO article (id, fingerprint) OVERRIDING SYSTEM VALUE VALUES (1, 7), (9, 8)"
    " ON CONFLICT (id) DO UPDATE SET fingerprint = excluded.fingerprint",
    "insert that does nothing on conflict": "INSERT INTO article (id, fingerprint) OVERRIDING SYSTEM VALUE"
    " VALUES (1, 7), (9, 8) ON CONFLICT DO NOTHING",
    "update": "UPDATE article SET fingerprint = 7 WHERE id = 1",
    "update of all rows": "UPDATE article SET fingerprint = coalesce(fingerprint, 0) + 100",
    "update from another table": "UPDATE article SET fingerprint = n.f FROM (VALUES (1, 70), (3, 80)) AS n (id, f)"
    " WHERE n.id = article.id",
    "swap of two values": "UPDATE article SET fingerprint = 3 - fingerprint",
    "move of a value to another row": "UPDATE article SET fingerprint = CASE id WHEN 1 THEN 2 WHEN 2 THEN 9 END",
    "data-modifying expressions in one statement": "WITH a AS (UPDATE article SET fingerprint = 7 WHERE id = 1),"
    " b AS (DELETE FROM article WHERE id = 2) INSERT INTO article (fingerprint) VALUES (8)",
    "update of the primary key": "UPDATE article SET id = DEFAULT, fingerprint = 9 WHERE id = 2",
}


@pytest.mark.parametrize("statement", WRITES.values(), ids=WRITES)
def test_a_statement_adds_what_is_missing(articles, examine, statement):
    articles.execute(statement)
    examine(articles, dict(rows_of(articles)), distances=(3, 64))


def test_merge_inserts_and_updates(articles, server):
    if server.major < 15:
        pytest.skip("MERGE came with PostgreSQL 15")
    articles.execute(
        "MERGE INTO article AS a USING (VALUES (1, 70), (50, 80)) AS n (id, f) ON a.id = n.id"
        " WHEN MATCHED THEN UPDATE SET fingerprint = n.f"
        " WHEN NOT MATCHED THEN INSERT (fingerprint) VALUES (n.f)"
    )
    assert fingerprints_of(articles)[0] == 70
    assert [distance for fingerprint, distance in near(articles, 80, 0)] == [0]
    assert missing_keys(articles) == []


@pytest.mark.parametrize("fingerprint", EXTREMES)
def test_copy_adds_keys(articles, fingerprint):
    with articles.cursor().copy("COPY article (fingerprint) FROM STDIN") as copy:
        copy.write_row([fingerprint])
        copy.write_row([None])
    assert near(articles, fingerprint, 0) == [(fingerprint, 0)]
    assert missing_keys(articles) == []


def test_a_statement_prepared_before_the_index_adds_keys(connection):
    create_table(connection)
    connection.execute("PREPARE add (bigint) AS INSERT INTO article (fingerprint) VALUES ($1)")
    connection.execute("SET plan_cache_mode = force_generic_plan")
    connection.execute("EXECUTE add (1)")
    create_index(connection)
    connection.execute("EXECUTE add (2)")
    assert near(connection, 0, 64) == [(1, 1), (2, 1)]


def test_an_update_of_other_columns_adds_no_key(articles):
    before = count_keys(articles)
    articles.execute("UPDATE article SET body = 'new'")
    articles.execute("UPDATE article SET fingerprint = fingerprint")
    articles.execute("UPDATE article SET fingerprint = 3 - fingerprint")
    assert count_keys(articles) == before == [2] * 4


def test_one_statement_stores_a_fingerprint_once(articles):
    articles.execute("INSERT INTO article (fingerprint) VALUES (5), (5), (5)")
    assert count_keys(articles) == [3] * 4
    articles.execute("UPDATE article SET fingerprint = 6")
    assert count_keys(articles) == [4] * 4


def test_a_statement_without_rows_adds_no_key(articles):
    articles.execute("INSERT INTO article (fingerprint) SELECT 1 WHERE false")
    articles.execute("UPDATE article SET fingerprint = 1 WHERE false")
    assert count_keys(articles) == [2] * 4


def test_cascades_of_a_foreign_key_add_keys(connection):
    connection.execute("CREATE TABLE print (fp bigint PRIMARY KEY)")
    connection.execute("INSERT INTO print VALUES (1), (2), (99)")
    connection.execute(
        "CREATE TABLE article (id int PRIMARY KEY, fingerprint bigint DEFAULT 99"
        " REFERENCES print ON UPDATE CASCADE ON DELETE SET DEFAULT)"
    )
    create_index(connection)
    connection.execute("INSERT INTO article VALUES (1, 1), (2, 2)")
    connection.execute("UPDATE print SET fp = 50 WHERE fp = 1")
    connection.execute("DELETE FROM print WHERE fp = 2")
    assert fingerprints_of(connection) == [50, 99]
    assert missing_keys(connection) == []


def test_a_generated_column_is_indexed(connection):
    connection.execute(
        "CREATE TABLE article (id int, fingerprint bigint GENERATED ALWAYS AS (id * 1000::bigint) STORED)"
    )
    connection.execute("INSERT INTO article VALUES (1)")
    create_index(connection)
    connection.execute("INSERT INTO article VALUES (2)")
    connection.execute("UPDATE article SET id = 3 WHERE id = 1")
    assert fingerprints_of(connection) == [2000, 3000]
    assert missing_keys(connection) == []
    assert near(connection, 3000, 0) == [(3000, 0)]


def test_what_other_triggers_write_is_indexed(articles):
    articles.execute(
        "CREATE FUNCTION fill() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN new.fingerprint := coalesce(new.fingerprint, 77); RETURN new; END $$"
    )
    articles.execute("CREATE TRIGGER fill BEFORE INSERT OR UPDATE ON article FOR EACH ROW EXECUTE FUNCTION fill()")
    articles.execute("INSERT INTO article DEFAULT VALUES")
    articles.execute("UPDATE article SET body = 'text' WHERE fingerprint IS NULL")
    assert fingerprints_of(articles) == [1, 2, 77, 77]
    assert missing_keys(articles) == []


@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])
def test_a_writer_whose_snapshot_is_older_than_the_index_adds_keys(connect, level):
    owner, writer = connect(), connect()
    create_table(owner, [1, 2])
    writer.execute(f"BEGIN ISOLATION LEVEL {level}")
    writer.execute("SELECT 1")
    create_index(owner)
    writer.execute("INSERT INTO article (fingerprint) VALUES (3)")
    writer.execute("UPDATE article SET fingerprint = 4 WHERE fingerprint = 1")
    writer.execute("COMMIT")
    assert missing_keys(owner) == []
    assert near(owner, 0, 64) == [(2, 1), (4, 1), (3, 2)]


@pytest.mark.parametrize(
    "write",
    [
        "INSERT INTO {} (fingerprint, other) VALUES (5, 6)",
        "INSERT INTO {} (fingerprint, other) VALUES (5, 6), (7, 8)",
        "UPDATE {} SET fingerprint = 5 - fingerprint WHERE id = 1",
        "UPDATE {} SET fingerprint = coalesce(fingerprint, 0) + 5",
    ],
)
def test_a_writer_with_planned_statements_learns_of_new_names(articles, connect, write):
    articles.execute("ALTER TABLE article ADD other bigint")
    session = connect()
    for _ in range(7):  # from the sixth execution on, a plan is used again
        session.execute(write.format("article"))
    names = ("fingerprint TO old", "other TO fingerprint", "old TO other")
    swap = "".join(f"ALTER TABLE article RENAME {name};" for name in names)
    articles.execute(swap)
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match="column fingerprint of"):
        session.execute(write.format("article"))
    articles.execute(swap)
    session.execute(write.format("article"))
    # Another table takes over the name, and is locked.
    articles.execute("ALTER TABLE article RENAME TO before; CREATE TABLE article (LIKE before)")
    with connect() as other:
        other.execute("BEGIN; LOCK TABLE article")
        session.execute(write.format("before"))
    articles.execute("DROP TABLE article; ALTER TABLE before RENAME TO article")
    session.execute(write.format("article"))
    assert missing_keys(articles) == []


def test_writers_need_not_look_at_the_catalogue(connection):
    connection.execute('CREATE TABLE "A b" ("x ON y" bigint, "Z" text)')
    connection.execute("""SELECT simsql.create_index('"A b"', 'x ON y', scope => '{Z}')""")
    (body,) = connection.execute("SELECT prosrc FROM pg_proc WHERE proname = 'add_on_insert_1'").fetchone()
    (table,) = re.findall(r"SELECT (simsql\._table_of_trigger\(.*\)) AS its_table", body)
    assert connection.execute(f"""SELECT {table} = '"A b"'::regclass""").fetchone() == (True,)


def test_no_other_trigger_stands_in_for_a_disabled_one(articles):
    articles.execute("ALTER TABLE article ENABLE ALWAYS TRIGGER simsql_1_column")
    articles.execute("ALTER TABLE article ENABLE ALWAYS TRIGGER simsql_1_no_parent")
    articles.execute("ALTER TABLE article DISABLE TRIGGER simsql_1_insert")
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match="have been disabled"):
        near(articles, 0, 64)


def test_an_index_whose_triggers_were_disabled_is_not_searched_until_it_is_made_anew(articles):
    # DISABLE TRIGGER ALL silences triggers that are ENABLE ALWAYS too: nothing in PostgreSQL outlives it.
    articles.execute("ALTER TABLE article DISABLE TRIGGER ALL")
    articles.execute("INSERT INTO article (fingerprint) VALUES (7)")
    refused = r"triggers of the simhash index on public.article\(fingerprint\) have been disabled"
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match=refused):
        near(articles, 7, 0)
    articles.execute("ALTER TABLE article ENABLE TRIGGER ALL")
    articles.execute("INSERT INTO article (fingerprint) VALUES (8)")
    assert {fingerprint for _, fingerprint in missing_keys(articles)} == {7}
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match=refused):
        near(articles, 8, 0)
    articles.execute("SELECT simsql.drop_index('article')")
    articles.execute("SELECT simsql.create_index('article', 'fingerprint')")
    assert near(articles, 7, 0) == [(7, 0)]


@pytest.mark.parametrize("event", ["insert", "update"])
def test_an_index_that_lacks_a_trigger_is_not_searched(articles, event):
    articles.execute(f"ALTER TABLE article DISABLE TRIGGER simsql_1_{event}")
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match="disabled or dropped"):
        near(articles, 7, 0)
    articles.execute(f"ALTER TABLE article ENABLE ALWAYS TRIGGER simsql_1_{event}")
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match="disabled or dropped"):
        near(articles, 7, 0)  # rows may have been written meanwhile
    articles.execute("SELECT FROM simsql.repair('article')")
    assert near(articles, 7, 0) == []
    articles.execute(f"DROP TRIGGER simsql_1_{event} ON article")
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match="disabled or dropped"):
        near(articles, 7, 0)


def test_enabled_again_triggers_no_longer_fire_on_a_replica(articles):
    # ENABLE TRIGGER ALL does not restore ENABLE REPLICA: the trigger of a replica has to be enabled by name.
    articles.execute("ALTER TABLE article DISABLE TRIGGER ALL")
    articles.execute("ALTER TABLE article ENABLE TRIGGER ALL")
    articles.execute("SET session_replication_role = replica")
    articles.execute("INSERT INTO article (fingerprint) VALUES (7)")
    assert {fingerprint for _, fingerprint in missing_keys(articles)} == {7}
    articles.execute("ALTER TABLE article ENABLE REPLICA TRIGGER simsql_1_replica")
    articles.execute("INSERT INTO article (fingerprint) VALUES (8)")
    assert {fingerprint for _, fingerprint in missing_keys(articles)} == {7}


def test_a_publication_of_all_tables_lets_keys_be_deleted(articles):
    articles.execute("CREATE PUBLICATION everything FOR ALL TABLES")
    articles.execute("INSERT INTO article (fingerprint) VALUES (1)")
    articles.execute("DELETE FROM simsql.keys_1_0 WHERE ctid = (SELECT min(ctid) FROM simsql.keys_1_0)")
    articles.execute("UPDATE article SET fingerprint = 5 WHERE id = 1")
    assert count_keys(articles) == [3, 4, 4, 4]
