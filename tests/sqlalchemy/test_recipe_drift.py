"""A model whose recipe is not that of the index in the database neither writes nor searches by it."""

import pytest
from asynchronous import each_driver, in_async_session
from sqlalchemy import Column, Integer, MetaData, Table, Text, event, insert, select, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, aliased, mapped_column

from simsql import DEFAULT_RECIPE, Recipe, simhash
from simsql.database import open_engine, recipes
from simsql.errors import UsageError
from simsql.fingerprint import KNOWN_RECIPES
from simsql.sqlalchemy import Fingerprint, Sketch, claim, near

WORDS = "There should be one, and preferably only one, obvious way to do it."
OTHER = "If the implementation is hard to explain, it's a bad idea."
TRIGRAMS = Recipe(shingles=(3,))
SAYS = (
    rf"article.fingerprint: .* has recipe {TRIGRAMS.id},"
    rf" but the model fingerprints texts with {DEFAULT_RECIPE.id}"
)


class Base(DeclarativeBase):
    pass


class Article(Base):
    __tablename__ = "article"
    id: Mapped[int] = mapped_column(primary_key=True)
    body: Mapped[str | None]
    note: Mapped[str | None]
    fingerprint: Mapped[int | None] = mapped_column(Fingerprint(source="body"))
    sketch: Mapped[int | None] = mapped_column(Sketch(source="body"))
    words: Mapped[int | None] = mapped_column(Fingerprint(source="body", recipe=KNOWN_RECIPES["fnv1a-words"]))


class Page(Base):
    """Beside it, and without an index."""

    __tablename__ = "page"
    id: Mapped[int] = mapped_column(primary_key=True)
    body: Mapped[str | None]
    fingerprint: Mapped[int | None] = mapped_column(Fingerprint(source="body"))


table = Article.__table__


def index(database, recipe, column="fingerprint"):
    with database.begin() as connection:
        connection.execute(
            text("SELECT simsql.create_index('article', :column, recipe => :recipe)"),
            {"column": column, "recipe": recipe},
        )


def drop_index(database):
    with database.begin() as connection:
        connection.execute(text("SELECT simsql.drop_index('article')"))


@pytest.fixture
def drifted(session, database):
    """A session for a database with an article, whose index is then created with another recipe."""
    session.add(Article(body=WORDS))
    session.commit()
    index(database, TRIGRAMS.id)
    # As another process would: one that has written to this table before has asked already.
    engine = open_engine(database.url)
    with Session(engine) as other:
        yield other
    engine.dispose()


def test_no_fingerprint_is_computed_by_another_recipe(drifted):
    def update_it():
        drifted.get(Article, 1).body = OTHER
        drifted.flush()

    def insert_it():
        drifted.add(Article(body=OTHER))
        drifted.flush()

    for write in (
        insert_it,
        update_it,
        lambda: drifted.execute(insert(Article), [{"body": OTHER}]),
        lambda: drifted.execute(insert(table).values([{"body": OTHER}, {"body": WORDS}])),
        lambda: drifted.connection().execute(insert(table).values(body=OTHER)),
        insert_it,
    ):
        with pytest.raises(UsageError, match=SAYS):
            write()
        drifted.rollback()
    assert drifted.execute(select(Article.body, Article.fingerprint)).all() == [(WORDS, simhash(WORDS))]


def test_whatever_computes_nothing_is_written(drifted):
    drifted.get(Article, 1).note = "read"
    drifted.add(Article(body=OTHER, fingerprint=7, words=5))
    drifted.execute(insert(table).values(body=OTHER, fingerprint=8, words=5))
    drifted.add(Page(body=OTHER))
    drifted.commit()
    drifted.get(Article, 1).body, drifted.get(Article, 1).fingerprint = OTHER, 6
    drifted.commit()
    assert drifted.scalars(select(Article.fingerprint).order_by(Article.fingerprint)).all() == [6, 7, 8]
    assert drifted.scalars(select(Page.fingerprint)).all() == [simhash(OTHER)]


SEARCHES = {
    "near": lambda: near(Article.fingerprint, text=WORDS),
    "of a column": lambda: near(table.c.fingerprint, text=WORDS),
    "of an alias": lambda: near(aliased(Article).fingerprint, text=WORDS),
    "condition": lambda: select(Article).where(Article.fingerprint.near(text=WORDS)),
    "without words": lambda: select(Article).where(Article.fingerprint.near(text="?!")),
    "similarity": lambda: near(Article.fingerprint, text=WORDS, distance=10, similarity=0.5),
    "claim": lambda: claim(Article.fingerprint, text=WORDS),
}


def test_no_text_is_searched_for_by_another_recipe(drifted, database):
    """The index decides at the time of each search: the engine has searched before it changed."""
    says = rf"public.article\(fingerprint\): .* has recipe {TRIGRAMS.id}, but .* texts with {DEFAULT_RECIPE.id}"
    for name, search in SEARCHES.items():
        with pytest.raises(DBAPIError, match=says):
            drifted.execute(search())
        drifted.rollback()
        assert len(drifted.execute(near(Article.fingerprint, simhash(WORDS))).all()) == 1, name
    drifted.rollback()
    drop_index(database)
    index(database, DEFAULT_RECIPE.id)
    for name, search in SEARCHES.items():
        assert len(drifted.execute(search()).all()) == (name != "without words"), name
    drifted.rollback()
    for other in ("pypi-simhash", KNOWN_RECIPES["java-fnv1"].id, "custom.0123abcd-1"):
        drop_index(database)
        index(database, other)
        with pytest.raises(DBAPIError, match=f"has recipe {other}, but"):
            drifted.execute(near(Article.fingerprint, text=WORDS))
        drifted.rollback()


def test_an_engine_asks_again_after_a_while(session, database, monkeypatch):
    session.add(Article(body=WORDS))
    session.commit()
    index(database, TRIGRAMS.id)
    monkeypatch.setattr(recipes, "_REMEMBER", 0)
    session.add(Article(body=OTHER))
    with pytest.raises(UsageError, match=SAYS):
        session.flush()


def test_what_is_refused_is_what_the_database_says_now(drifted, database):
    drifted.add(Article(body=OTHER))
    with pytest.raises(UsageError, match=SAYS):
        drifted.flush()
    drifted.rollback()
    drop_index(database)
    drifted.add(Article(body=OTHER))
    drifted.commit()
    index(database, DEFAULT_RECIPE.id)
    drifted.add(Article(body=OTHER))
    drifted.commit()


def test_an_unknown_recipe_is_refused_unless_the_model_names_its_own(session, database):
    index(database, None)
    index(database, None, "words")
    session.add(Article(body=WORDS))
    session.commit()
    for search in (near, claim):
        with pytest.raises(DBAPIError, match=r"article\(fingerprint\): nobody has named the recipe") as refused:
            session.execute(search(Article.fingerprint, text=WORDS))
        session.rollback()
        assert len(session.execute(search(Article.words, text=WORDS)).all()) == 1
        assert len(session.execute(search(Article.fingerprint, text=WORDS, recipe=DEFAULT_RECIPE)).all()) == 1
    hint = refused.value.orig.diag.message_hint
    session.execute(text(hint[hint.index("SELECT") :]))
    assert len(session.execute(near(Article.fingerprint, text=WORDS)).all()) == 1


@pytest.mark.parametrize("recipe", [DEFAULT_RECIPE.id, "news", "phash64"])
def test_a_recipe_that_may_be_the_same_is_not_refused(session, database, recipe):
    index(database, recipe)
    index(database, "fnv1a-words", "words")  # by its name
    session.add(Article(body=WORDS))
    session.commit()
    assert session.scalars(select(Article.fingerprint)).all() == [simhash(WORDS)]
    for column in (Article.fingerprint, Article.words):
        assert len(session.execute(near(column, text=WORDS)).all()) == 1
        assert session.execute(claim(column, text=WORDS)).one().distance == 0


def test_a_database_without_simsql(empty_database):
    Base.metadata.create_all(empty_database)
    with Session(empty_database) as session:
        session.add(Article(body=WORDS))
        session.commit()
        session.execute(text("CREATE SCHEMA simsql CREATE TABLE registry (id int) CREATE TABLE other (id int)"))
        session.add(Page(body=WORDS))
        session.commit()


@pytest.mark.parametrize("right", ["USAGE ON SCHEMA simsql", "SELECT ON simsql.registry"])
def test_a_role_that_may_not_ask(session, database, new_role, server, right):
    """As after pg_restore --no-acl."""
    role = new_role()
    index(database, TRIGRAMS.id)
    session.execute(text(f"GRANT ALL ON article, article_id_seq TO {role}"))
    session.execute(text(f"REVOKE {right} FROM PUBLIC"))
    session.commit()
    engine = open_engine(database.url.set(username=role))
    with Session(engine) as other:
        other.add(Article(body=WORDS))
        other.commit()
    engine.dispose()


def test_one_table_is_asked_about_once(session, database):
    asked = []

    def note(connection, cursor, statement, *_):
        if "simsql." in statement or "pg_namespace" in statement:
            asked.append(statement)

    event.listen(database, "before_cursor_execute", note)
    with Session(database.execution_options(logging_token="other")) as other:
        for each in (session, other):
            for number in range(3):
                each.add(Article(body=f"{WORDS} {number}"))
                each.flush()
            each.execute(insert(table).values(body=OTHER))
            each.commit()
    assert len(asked) == 2, asked
    session.add(Page(body=WORDS))
    session.flush()
    assert len(asked) == 4, asked
    event.remove(database, "before_cursor_execute", note)


def test_each_schema_of_a_translation_has_a_table_of_its_own(database):
    columns = (
        Column("id", Integer, primary_key=True),
        Column("body", Text),
        Column("fp", Fingerprint(source="body")),
    )
    post = Table("post", MetaData(), *columns, schema="tenant")
    with database.begin() as connection:
        for name in ("one", "two"):
            connection.execute(text(f'CREATE SCHEMA "{name}"'))
            translated = connection.execution_options(schema_translate_map={"tenant": name})
            post.create(translated)
        connection.execute(text("SELECT simsql.create_index('two.post', 'fp', recipe => 'words3-log-1')"))
    for option in ("engine", "connection", "statement"):
        for name in ("one", "two"):
            options = {"schema_translate_map": {"tenant": name}}
            engine = database.execution_options(**options) if option == "engine" else database
            with engine.connect() as connection:
                if option == "connection":
                    connection.execution_options(**options)

                def write(connection=connection, option=option, options=options):
                    of_statement = options if option == "statement" else None
                    connection.execute(insert(post).values(body=WORDS), execution_options=of_statement)

                if name == "one":
                    write()
                else:
                    with pytest.raises(UsageError, match=r"post.fp: .* has recipe words3-log-1"):
                        write()


@each_driver
def test_async_sessions(drifted, driver):
    async def add(session):
        session.add(Article(body=OTHER))
        with pytest.raises(UsageError, match=SAYS):
            await session.flush()

    async def insert_rows(session):
        with pytest.raises(UsageError, match=SAYS):
            await session.execute(insert(Article), [{"body": OTHER}])
        await session.rollback()
        await session.execute(insert(Page.__table__).values(body=OTHER))
        await session.commit()

    for work in (add, insert_rows):
        in_async_session(drifted.bind.url, driver, work)
