"""simsql.clear_on_change: no fingerprint outlives its text, whoever writes, whatever is renamed or restored."""

import pytest
from psycopg import errors
from servers import TEMPLATE
from sqlalchemy import select, text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from simsql import UsageError, simhash
from simsql.database import SearchIndex
from simsql.fingerprint import simhash_parts
from simsql.sqlalchemy import Fingerprint, SimhashIndex

CLEAR = "SELECT simsql.clear_on_change('article', 'fingerprint', ARRAY['title', 'body'])"


@pytest.fixture
def articles(connection):
    connection.execute("CREATE TABLE article (id integer, title text, body text, note json, fingerprint bigint)")
    connection.execute("INSERT INTO article VALUES (1, 'a', 'b', '{}', 5)")
    connection.execute(CLEAR)
    return connection


def after(connection, change, table="article", column="fingerprint"):
    """The fingerprint of the row after a change that is then undone."""
    with connection.transaction(force_rollback=True):
        connection.execute(f"UPDATE {table} SET {change}")
        return connection.execute(f"SELECT {column} FROM {table}").fetchone()[0]


def triggers(connection):
    found = connection.execute("SELECT tgname FROM pg_trigger WHERE tgname LIKE '%simsql_clear%' ORDER BY 1")
    return [name for (name,) in found]


def test_a_fingerprint_is_cleared_when_its_text_alone_changes(articles):
    for change in ("title = 'x'", "body = NULL", "title = 'x', body = 'y', id = 7", "body = 'y', fingerprint = 5"):
        assert after(articles, change) is None, change
    for change in ("id = 7", "note = '[]'", "title = title, body = 'b'", "fingerprint = 5"):
        assert after(articles, change) == 5, change
    for change in ("fingerprint = 6", "body = 'y', fingerprint = 6"):
        assert after(articles, change) == 6, change
    articles.execute("UPDATE article SET fingerprint = NULL, title = NULL")
    assert after(articles, "body = 'y', fingerprint = 6") == 6
    assert after(articles, "title = 'x'") is None


def test_sources_in_an_array_of_two_dimensions(articles):
    articles.execute("SELECT simsql.clear_on_change('article', 'fingerprint', '{{title},{body}}')")
    assert after(articles, "title = 'x'") is after(articles, "body = 'y'") is None
    with pytest.raises(errors.NullValueNotAllowed):
        articles.execute("SELECT simsql.clear_on_change('article', 'fingerprint', '{{title},{NULL}}')")


def test_every_row_and_every_other_column_stays_as_it_is(articles):
    note = '{"b": 1, "a": 1.50}'
    articles.execute("INSERT INTO article SELECT n, 't', n, %s::json, n FROM generate_series(2, 9) AS n", [note])
    articles.execute("UPDATE article SET body = 'new' WHERE id % 2 = 0")
    found = articles.execute(
        "SELECT id, title, body, note::text, fingerprint FROM article WHERE id > 1 ORDER BY id"
    )
    assert found.fetchall() == [
        (n, "t", str(n), note, n) if n % 2 else (n, "t", "new", note, None) for n in range(2, 10)
    ]


def test_partitions_are_cleared_like_the_table(connection):
    connection.execute(
        "CREATE TABLE article (id integer, title text, body text, fingerprint bigint) PARTITION BY LIST (id)"
    )
    # The columns of this one have other numbers.
    connection.execute("CREATE TABLE one (fingerprint bigint, body text, gone integer, id integer, title text)")
    connection.execute("ALTER TABLE one DROP COLUMN gone")
    connection.execute("ALTER TABLE article ATTACH PARTITION one FOR VALUES IN (1)")
    connection.execute("INSERT INTO article VALUES (1, 'a', 'b', 5)")
    connection.execute(CLEAR)
    for table in ("article", "one"):
        assert after(connection, "body = 'y'", table) is None
        assert after(connection, "body = 'y', fingerprint = 6", table) == 6
        assert after(connection, "id = 1", table) == 5


def test_renames_change_nothing(articles):
    articles.execute("CREATE SCHEMA other")
    for rename in (
        'ALTER TABLE article RENAME TO "Post\'s"',
        'ALTER TABLE "Post\'s" RENAME COLUMN fingerprint TO "the fp\'s"',
        'ALTER TABLE "Post\'s" RENAME COLUMN body TO fingerprint',
        'ALTER TABLE "Post\'s" SET SCHEMA other',
        'ALTER SCHEMA other RENAME TO "Another"',
    ):
        articles.execute(rename)
    table, column = '"Another"."Post\'s"', '"the fp\'s"'
    assert after(articles, "fingerprint = 'y'", table, column) is None
    assert after(articles, "id = 8", table, column) == 5
    articles.execute(f"SELECT simsql.drop_clear_on_change('{table.replace(chr(39), chr(39) * 2)}', 'the fp''s')")
    assert triggers(articles) == []
    assert after(articles, "fingerprint = 'y'", table, column) == 5


def test_a_restored_table_is_cleared_too(articles, server):
    """Dropped columns make the numbers of columns others in the copy."""
    articles.execute("ALTER TABLE article DROP COLUMN id")
    script = server.run("pg_dump", "--table=article", articles.info.dbname)
    with server.new_database(template=TEMPLATE) as url, server.connect(url.database) as copy:
        statements = [line for line in script.splitlines() if not line.startswith(("\\", "--", "COPY"))]
        copy.execute("\n".join(line for line in statements if "\t" not in line))
        copy.execute("INSERT INTO public.article VALUES ('a', 'b', '{}', 5)")
        assert after(copy, "body = 'y'", "public.article") is None
        assert after(copy, "note = NULL", "public.article") == 5


def test_update_is_all_that_a_role_needs(articles, new_role, connect):
    role = new_role()
    articles.execute(f"GRANT UPDATE (body) ON article TO {role}")
    connect(role).execute("UPDATE article SET body = 'y'")
    assert articles.execute("SELECT body, fingerprint FROM article").fetchone() == ("y", None)


def test_texts_are_compared_byte_by_byte(articles):
    """Whatever their type takes for equal, or if it has no equality; with a collation where the server has one."""
    articles.execute("CREATE TABLE page (body text, price numeric, data json, fingerprint bigint)")
    articles.execute("INSERT INTO page VALUES ('résumé', 1.0, '{\"a\":1}', 5)")
    articles.execute("SELECT simsql.clear_on_change('page', 'fingerprint', ARRAY['body', 'price', 'data'])")
    try:
        articles.execute(
            "CREATE COLLATION loose (provider = icu, locale = 'und-u-ks-level1', deterministic = false)"
        )
        articles.execute("CREATE TABLE loose (body text COLLATE loose, fingerprint bigint)")
        articles.execute("INSERT INTO loose VALUES ('résumé', 5)")
        articles.execute("SELECT simsql.clear_on_change('loose', 'fingerprint', ARRAY['body'])")
        assert articles.execute("SELECT body = 'RESUME' FROM loose").fetchone()[0]
        assert after(articles, "body = 'resume'", "loose") is None
    except errors.FeatureNotSupported as error:
        assert "ICU is not supported" in str(error)  # noqa: PT017 - which of the servers have it is not known
    assert after(articles, "price = 1.00", "page") is None
    assert after(articles, "data = '{\"a\":2}'", "page") is None
    assert after(articles, "body = 'résumé', price = 1.0, data = '{\"a\":1}'", "page") == 5


def test_what_other_triggers_make_of_a_text_is_seen(articles):
    articles.execute(
        "CREATE FUNCTION shout() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN NEW.body := upper(NEW.body); RETURN NEW; END $$"
    )
    articles.execute("CREATE TRIGGER title_case BEFORE UPDATE ON article FOR EACH ROW EXECUTE FUNCTION shout()")
    assert after(articles, "id = 8") is None


def test_calling_again_replaces_and_a_second_column_has_its_own(articles):
    articles.execute("ALTER TABLE article ADD COLUMN title_fp bigint DEFAULT 7")
    articles.execute("SELECT simsql.clear_on_change('article', 'title_fp', ARRAY['title'])")
    assert len(triggers(articles)) == 4
    articles.execute("SELECT simsql.clear_on_change('article', 'fingerprint', ARRAY['body'])")
    assert len(triggers(articles)) == 4
    assert after(articles, "title = 'x'") == 5
    assert after(articles, "title = 'x'", column="title_fp") is None
    assert after(articles, "body = 'x'") is None
    assert after(articles, "body = 'x'", column="title_fp") == 7
    articles.execute("SELECT simsql.drop_clear_on_change('article', 'fingerprint')")
    assert after(articles, "body = 'x'") == 5
    assert after(articles, "title = 'x'", column="title_fp") is None
    with pytest.raises(errors.UndefinedObject, match=r"nothing clears column fingerprint of public.article"):
        articles.execute("SELECT simsql.drop_clear_on_change('article', 'fingerprint')")


def test_an_older_snapshot_gets_an_error_and_no_stale_fingerprint(articles, connect):
    articles.execute("SELECT simsql.drop_clear_on_change('article', 'fingerprint')")
    writer = connect()
    writer.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    writer.execute("SELECT 1 FROM pg_class LIMIT 1")
    articles.execute(CLEAR)
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match="newer than the snapshot") as refused:
        writer.execute("UPDATE article SET body = 'y'")
    assert "Start a new transaction" in refused.value.diag.message_hint


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ("'article', 'missing', ARRAY['body']", errors.UndefinedColumn, "article has no column missing"),
        ("'article', 'fingerprint', ARRAY['Body']", errors.UndefinedColumn, 'article has no column "Body"'),
        (
            "'article', 'fingerprint', ARRAY['fingerprint']",
            errors.InvalidParameterValue,
            "cannot be its own source",
        ),
        ("'article', 'fingerprint', '{}'", errors.NullValueNotAllowed, "must not be null"),
        ("'article', 'fingerprint', ARRAY[NULL]", errors.NullValueNotAllowed, "must not be null"),
        ("'article', NULL, ARRAY['body']", errors.NullValueNotAllowed, "must not be null"),
        (
            "'article', 'fingerprint', ARRAY['made']",
            errors.FeatureNotSupported,
            "column made of public.article is generated",
        ),
    ],
)
def test_what_cannot_be_is_refused(articles, arguments, error, said):
    articles.execute("ALTER TABLE article ADD COLUMN made text GENERATED ALWAYS AS (title || 'x') STORED")
    with pytest.raises(error, match=said):
        articles.execute(f"SELECT simsql.clear_on_change({arguments})")


def test_the_column_goes_with_cascade_and_the_triggers_with_it(articles):
    with pytest.raises(errors.DependentObjectsStillExist):
        articles.execute("ALTER TABLE article DROP COLUMN body")
    articles.execute("ALTER TABLE article DROP COLUMN fingerprint CASCADE")
    assert triggers(articles) == []


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT simsql.create_index('article', 'fingerprint')",
        "SELECT simsql.create_index('article', 'fingerprint', storage => 'expression')",
        "SELECT simsql.create_index('article', 'other')",
        "CALL simsql.build('article', 'fingerprint')",
        "SELECT simsql.create_index('article', 'fingerprint'), simsql.drop_index('article', 'fingerprint')",
        "SELECT simsql.create_index('article', 'fingerprint'), simsql.drop_index('article', 'fingerprint'),"
        " simsql.create_index('article', 'fingerprint', distance => 7)",
        "SELECT simsql.create_index('article', 'fingerprint'), simsql.change_storage('article', 'expression'),"
        " simsql.change_storage('article', 'tables'), simsql.repair('article')",
    ],
)
def test_what_is_done_to_indexes_leaves_the_triggers(articles, statement):
    articles.execute("ALTER TABLE article ADD COLUMN other bigint")
    articles.execute("CREATE INDEX ON article (fingerprint)")
    articles.execute(statement)
    assert len(triggers(articles)) == 2
    assert after(articles, "body = 'y'") is None


class Base(DeclarativeBase):
    pass


class Page(Base):
    __tablename__ = "page"
    id: Mapped[int] = mapped_column(primary_key=True)
    body: Mapped[str]
    fingerprint: Mapped[int | None] = mapped_column(Fingerprint(source="body"))


class Story(Base):
    """An attribute has another name than its column."""

    __tablename__ = "story"
    id: Mapped[int] = mapped_column(primary_key=True)
    title: Mapped[str | None]
    text: Mapped[str | None] = mapped_column("the body")
    fingerprint: Mapped[int | None] = mapped_column(Fingerprint(source={"title": 3, "text": 1}))
    __table_args__ = (SimhashIndex("fingerprint"),)


class Kept(Base):
    """Fingerprints that others compute, of a text that the index names."""

    __tablename__ = "kept"
    id: Mapped[int] = mapped_column(primary_key=True)
    body: Mapped[str | None]
    fingerprint: Mapped[int | None] = mapped_column(Fingerprint())
    __table_args__ = (SimhashIndex("fingerprint", sources="body"),)


def test_the_index_of_a_model_has_its_sources(session_of, database):
    session = session_of(Base)
    stored = session.execute(text("SELECT table_name, sources FROM simsql.indexes ORDER BY 1")).all()
    assert stored == [("public.kept", {"body": 1}), ("public.story", {"title": 3, "the body": 1})]
    session.add(Story(title="A title", text="And a body"))
    session.commit()
    session.execute(text("UPDATE story SET \"the body\" = 'Another one'"))
    session.commit()
    assert session.scalars(select(Story.fingerprint)).all() == [None]
    assert SearchIndex(database, "story").backfill().written == 1
    assert SearchIndex(database, "story").verify_texts().findings == []
    assert session.scalars(select(Story.fingerprint)).all() == [
        simhash_parts([("A title", 3), ("Another one", 1)])
    ]
    with pytest.raises(
        UsageError, match=r"story\(fingerprint\) come from title=3 and the body=1.* not from title=1"
    ):
        SearchIndex(database, "story").backfill("title")


def test_the_orm_keeps_a_fingerprint_that_the_new_text_has_too(session_of):
    """An edit of letter case: the UPDATE leaves the fingerprint, and the trigger takes it for forgotten."""
    session = session_of(Base)
    session.execute(text("SELECT simsql.clear_on_change('page', 'fingerprint', ARRAY['body'])"))
    page = Page(body="Flat is better than nested.")
    session.add(page)
    session.flush()
    stored = text("SELECT fingerprint FROM page")
    expected = session.execute(stored).scalar_one()
    assert expected is not None
    for body in ("FLAT IS BETTER THAN NESTED.", "flat is better than nested"):
        page.body = body  # the old value is known, then not
        session.commit()
        assert session.execute(stored).scalar_one() == expected
        assert page.fingerprint == simhash(body)
        session.commit()
    page.body = "Sparse is better than dense."
    session.commit()
    assert page.fingerprint == simhash(page.body)
    page.fingerprint = expected
    page.body = "Readability counts."
    session.commit()
    assert page.fingerprint == expected
    page.body = "?!"
    session.commit()
    assert page.fingerprint is None
