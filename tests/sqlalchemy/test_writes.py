"""INSERT and UPDATE statements write the fingerprint of the new text, or none, and never leave that of another."""

import asyncio

import pytest
from sqlalchemy import (
    Column,
    Integer,
    MetaData,
    Table,
    Text,
    bindparam,
    func,
    insert,
    literal,
    null,
    select,
    update,
)
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from simsql import simhash
from simsql.fingerprint import simhash_parts
from simsql.sqlalchemy import Fingerprint

TEXTS = [
    "Although never is often better than right now.",
    "If the implementation is easy to explain, it may be a good idea.",
    "Namespaces are one honking great idea: let's do more of those!",
]
OLD, NEW, NEWER = TEXTS
BY_HAND = 2**64 - 7


class Base(DeclarativeBase):
    pass


class Article(Base):
    __tablename__ = "article"
    id: Mapped[int] = mapped_column(primary_key=True)
    note: Mapped[str | None]
    words: Mapped[str | None] = mapped_column("text", key="body_key")
    fingerprint: Mapped[int | None] = mapped_column("fp", Fingerprint(source="words"))


class Page(Base):
    __tablename__ = "page"
    id: Mapped[int] = mapped_column(primary_key=True)
    title: Mapped[str | None]
    body: Mapped[str | None]
    fingerprint: Mapped[int | None] = mapped_column(Fingerprint(source={"title": 3, "body": 1}))


articles, pages = Article.__table__, Page.__table__


@pytest.fixture
def session(session_of):
    session = session_of(Base)
    session.add_all([Article(id=1, words=OLD), Article(id=2, words=NEW)])
    session.add(Page(id=1, title=OLD, body=NEW))
    session.commit()
    return session


def stored(session, table=articles):
    """The fingerprints by id."""
    session.expire_all()
    return dict(session.execute(select(table.c.id, list(table.c)[-1]).order_by(table.c.id)).all())


def of(*texts):
    return {number: simhash(words) for number, words in enumerate(texts, 1)}


def test_rows_of_any_form_are_inserted_with_a_fingerprint(session):
    session.execute(insert(Article).values([{"id": n + 10, "words": words} for n, words in enumerate(TEXTS)]))
    rows = [(n + 20, None, words) for n, words in enumerate(TEXTS)]
    session.execute(insert(Article).values(rows))
    session.execute(insert(articles).values([(n + 10, *row) for n, *row in rows]))
    session.execute(insert(articles).values((40, None, TEXTS[0])))
    session.execute(insert(Article), [{"id": n + 41, "words": words} for n, words in enumerate(TEXTS[1:])])
    some = [{"id": n + 50, "words": words, "note": func.now()} for n, words in enumerate(TEXTS)]
    found = session.scalars(insert(Article).values(some).returning(Article.fingerprint)).all()
    assert found == [simhash(words) for words in TEXTS]
    found = stored(session)
    for start in (10, 20, 30, 40, 50):
        assert [found[start + n] for n in range(3)] == [simhash(words) for words in TEXTS], start


UPDATES = {
    "text": lambda table: update(table).values({table.c.body_key: NEWER}),
    "of the class": lambda table: update(Article).values(words=NEWER),
    "of a primary key": lambda table: update(table).values(body_key=NEWER).where(table.c.id > 0),
    "in order": lambda table: update(table).ordered_values((table.c.note, "x"), (table.c.body_key, NEWER)),
    "expression in the end": lambda table: update(table).values(note=func.now(), body_key=NEWER),
}


def test_an_update_writes_the_fingerprint_of_the_text(session):
    for name, statement in UPDATES.items():
        for execute in (session.execute, lambda one: session.connection().execute(one)):
            execute(statement(articles))
            assert stored(session) == of(NEWER, NEWER), name
            session.rollback()
    for nothing in (None, null(), "?!"):
        session.execute(update(articles).values(body_key=nothing))
        assert stored(session) == {1: None, 2: None}
    session.rollback()
    # The same statement again, from the cache, with another text.
    for words in TEXTS:
        session.execute(update(Article).where(Article.id == 2).values(words=words))
        assert stored(session)[2] == simhash(words)
    session.execute(update(articles), {"body_key": NEWER})
    assert stored(session) == of(NEWER, NEWER)
    statement = update(Article).values(words=NEW).returning(Article.fingerprint)
    assert session.scalars(statement).all() == [simhash(NEW)] * 2
    session.query(Article).update({"words": OLD})
    assert stored(session) == of(OLD, OLD)


def test_an_update_that_is_executed_for_many_computes_each(session):
    rows = [{"id": 1, "words": NEWER}, {"id": 2, "words": OLD}]
    session.execute(update(Article), rows)
    assert stored(session) == of(NEWER, OLD)
    session.bulk_update_mappings(Article, [{"id": 1, "words": NEW}, {"id": 2, "words": None}])
    assert stored(session) == {1: simhash(NEW), 2: None}
    by_name = update(articles).where(articles.c.id == bindparam("of")).values(body_key=bindparam("to"))
    session.connection().execute(by_name, [{"of": 1, "to": OLD}, {"of": 2, "to": NEW}])
    assert stored(session) == of(OLD, NEW)
    session.connection().execute(by_name, {"of": 2, "to": NEWER})
    assert stored(session) == of(OLD, NEWER)
    by_key = update(articles).where(articles.c.id == bindparam("of"))
    session.connection().execute(by_key, [{"of": 1, "body_key": NEW}, {"of": 2, "body_key": OLD}])
    assert stored(session) == of(NEW, OLD)


def test_a_text_that_only_postgresql_knows_leaves_no_stale_fingerprint(session):
    """A row that keeps its text keeps its fingerprint."""
    for expression in (
        func.replace(Article.words, NEW, NEWER),
        literal(OLD) + "",
        select(literal(OLD)).scalar_subquery(),
    ):
        session.execute(update(Article).values(words=expression))
        assert stored(session) == {1: simhash(OLD), 2: None}
        session.rollback()


def test_what_is_written_by_hand_and_what_is_no_source_stay(session):
    session.execute(update(Article).values(words=NEWER, fingerprint=BY_HAND))
    session.execute(update(articles).values(note="read"))
    session.execute(update(Article), [{"id": 2, "note": "again"}])
    assert stored(session) == {1: BY_HAND, 2: BY_HAND}
    session.connection().execute(update(articles), {"body_key": OLD, "fp": 5})
    assert stored(session) == {1: 5, 2: 5}


@pytest.mark.parametrize("how", ["auto", "evaluate", "fetch"])
def test_objects_in_the_session_have_the_new_fingerprint(session, how):
    article = session.get(Article, 1)
    options = {"synchronize_session": how}
    session.execute(update(Article).where(Article.id == 1).values(words=NEWER), execution_options=options)
    assert (article.words, article.fingerprint) == (NEWER, simhash(NEWER))
    session.execute(update(Article).values(words=func.concat(NEW)), execution_options=options)
    assert (article.words, article.fingerprint) == (NEW, None)
    article.words = OLD
    session.flush()
    assert stored(session)[1] == simhash(OLD)


def test_several_sources(session):
    session.execute(update(Page).values(title=NEW, body=NEWER))
    assert stored(session, pages) == {1: simhash_parts([(NEW, 3), (NEWER, 1)])}
    both = update(pages).values(title=bindparam("t"))
    session.connection().execute(both, [{"t": OLD, "body": NEW}])
    assert stored(session, pages) == {1: simhash_parts([(OLD, 3), (NEW, 1)])}
    session.execute(update(Page).values(title=OLD))
    assert stored(session, pages) == {1: simhash_parts([(OLD, 3), (NEW, 1)])}
    for one in (update(Page).values(title=NEWER), update(Page).values(title=NEW, body=func.lower(Page.body))):
        with session.begin_nested() as savepoint:
            session.execute(one)
            assert stored(session, pages) == {1: None}
            savepoint.rollback()
    session.connection().execute(update(pages), [{"title": NEWER}])
    assert stored(session, pages) == {1: None}
    statement = upsert(Page).values(id=1, title=OLD, body=OLD)
    session.execute(statement.on_conflict_do_update(index_elements=["id"], set_={"title": NEW, "body": OLD}))
    assert stored(session, pages) == {1: simhash_parts([(NEW, 3), (OLD, 1)])}
    new = statement.excluded
    session.execute(
        statement.on_conflict_do_update(index_elements=["id"], set_={"title": new.title, "body": new.body})
    )
    assert stored(session, pages) == {1: simhash_parts([(OLD, 3), (OLD, 1)])}


ROWS = [{"id": 1, "body_key": NEW}, {"id": 2, "body_key": NEW}, {"id": 3, "body_key": NEW}]


def updated(statement, **also):
    """The same INSERT with ON CONFLICT DO UPDATE: of the text, and of what else is named."""
    set_ = {"body_key": statement.excluded.body_key, **also}
    return statement.on_conflict_do_update(index_elements=["id"], set_=set_)


@pytest.mark.parametrize("with_fingerprint", [False, True])
def test_a_row_in_conflict_gets_the_fingerprint_of_its_text(session, with_fingerprint):
    def both(statement):
        return updated(statement, **({"fp": statement.excluded.fp} if with_fingerprint else {}))

    of_class = [{"id": row["id"], "words": row["body_key"]} for row in ROWS]
    for execute in (
        lambda: session.execute(both(upsert(Article).values(of_class))),
        lambda: session.execute(both(upsert(articles).values(ROWS))),
        lambda: session.execute(both(upsert(articles).values([(row["id"], None, NEW) for row in ROWS]))),
        lambda: session.execute(both(upsert(Article)), of_class),
        lambda: session.connection().execute(both(upsert(articles)), ROWS),
        lambda: [session.execute(both(upsert(articles).values(**row))) for row in ROWS],
        lambda: session.execute(both(upsert(Article).values(of_class)).returning(Article)).all(),
    ):
        execute()
        assert stored(session) == of(NEW, NEW, NEW)
        session.rollback()
    # Only PostgreSQL knows these texts. The row that keeps its text keeps its fingerprint.
    number = func.generate_series(1, 3).column_valued("number")
    chosen = select(number, literal(NEW))
    for statement in (
        upsert(articles).values([{**row, "body_key": func.concat(NEW)} for row in ROWS]),
        upsert(articles).from_select(["id", "body_key"], chosen),
        upsert(Article).from_select(["id", "body_key"], chosen, include_defaults=False),
    ):
        session.execute(both(statement))
        assert stored(session) == {1: None, 2: simhash(NEW), 3: None}
        session.rollback()


def test_a_row_in_conflict_that_gets_something_else(session):
    statement = upsert(Article).values(id=1, words=NEW)
    lower = func.lower(statement.excluded.body_key)
    for set_, expected in (
        ({"body_key": NEWER}, simhash(NEWER)),
        ({articles.c.body_key: None}, None),
        ({"body_key": lower}, None),
        ({"body_key": func.concat(OLD)}, simhash(OLD)),
        ({"body_key": lower, "fp": BY_HAND}, BY_HAND),
        ({"body_key": statement.excluded.body_key, "fp": articles.c.fp}, simhash(OLD)),
        ({"note": "again"}, simhash(OLD)),
        (dict(statement.excluded), simhash(NEW)),
    ):
        session.execute(statement.on_conflict_do_update(index_elements=["id"], set_=set_))
        assert stored(session)[1] == expected, set_
        session.rollback()
    session.execute(updated(upsert(Article).values(id=1, words=NEW, fingerprint=BY_HAND)))
    session.execute(statement.on_conflict_do_nothing())
    assert stored(session)[1] == BY_HAND


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
def test_async_sessions(session, driver):
    url = session.bind.url.difference_update_query(["client_encoding"]).set(drivername=f"postgresql+{driver}")

    async def run():
        engine = create_async_engine(url)
        async with AsyncSession(engine) as other:
            await other.execute(
                updated(upsert(Article).values([{"id": 1, "words": NEWER}, {"id": 3, "words": OLD}]))
            )
            await other.execute(update(Article).where(Article.id == 2).values(words=OLD))
            await other.execute(update(Article), [{"id": 3, "words": NEW}])
            await other.execute(update(Article).where(Article.id == 1).values(words=func.trim(Article.words)))
            await other.commit()
        await engine.dispose()

    asyncio.run(run())
    assert stored(session) == of(NEWER, OLD, NEW)


def test_a_table_without_a_class_in_another_database(session):
    """SQLite, in which an application may run its tests."""
    from sqlalchemy import create_engine
    from sqlalchemy.dialects.sqlite import insert as sqlite_upsert

    table = Table(
        "thing",
        MetaData(),
        Column("id", Integer, primary_key=True),
        Column("body", Text),
        Column("fp", Fingerprint(source="body")),
    )
    engine = create_engine("sqlite://")
    with Session(engine) as other:
        table.create(other.connection())
        other.execute(insert(table).values([{"id": 1, "body": OLD}, {"id": 2, "body": NEW}]))
        other.execute(update(table).where(table.c.id == 2).values(body=NEWER))
        other.execute(updated_thing(sqlite_upsert(table).values(id=1, body=NEW)))
        assert stored(other, table) == of(NEW, NEWER)
        other.execute(update(table).values(body=func.trim(table.c.body) + "."))
        assert stored(other, table) == {1: None, 2: None}
    engine.dispose()


def updated_thing(statement):
    return statement.on_conflict_do_update(index_elements=["id"], set_={"body": statement.excluded.body})
