"""INSERT statements of every form compute fingerprints, and upserts do not lose them."""

import pytest
from asynchronous import each_driver, in_async_session
from sqlalchemy import Column, Integer, MetaData, Table, Text, func, insert, select
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

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
def session(session):
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


ROWS = [{"id": 1, "body_key": NEW}, {"id": 2, "body_key": NEW}, {"id": 3, "body_key": NEW}]


def updated(statement):
    """The same INSERT with ON CONFLICT DO UPDATE of the text and the fingerprint."""
    set_ = {"body_key": statement.excluded.body_key, "fp": statement.excluded.fp}
    return statement.on_conflict_do_update(index_elements=["id"], set_=set_)


def test_a_row_in_conflict_gets_the_fingerprint_of_its_text(session):
    of_class = [{"id": row["id"], "words": row["body_key"]} for row in ROWS]
    for execute in (
        lambda: session.execute(updated(upsert(Article).values(of_class))),
        lambda: session.execute(updated(upsert(articles).values(ROWS))),
        lambda: session.execute(updated(upsert(articles).values([(row["id"], None, NEW) for row in ROWS]))),
        lambda: session.execute(updated(upsert(Article)), of_class),
        lambda: session.connection().execute(updated(upsert(articles)), ROWS),
        lambda: [session.execute(updated(upsert(articles).values(**row))) for row in ROWS],
        lambda: session.execute(updated(upsert(Article).values(of_class)).returning(Article)).all(),
    ):
        execute()
        assert stored(session) == of(NEW, NEW, NEW)
        session.rollback()


def test_a_row_of_several_whose_text_only_postgresql_knows_gets_no_fingerprint(session):
    rows = [{**ROWS[0], "body_key": func.concat(NEWER)}, *ROWS[1:]]
    session.execute(updated(upsert(articles).values(rows)))
    assert stored(session) == {1: None, 2: simhash(NEW), 3: simhash(NEW)}


def test_several_sources(session):
    texts = [{"id": 1, "title": NEW, "body": OLD}, {"id": 2, "title": OLD, "body": NEW}, {"id": 3, "title": OLD}]
    statement = upsert(Page).values([{**row, "body": row.get("body")} for row in texts])
    new = dict(statement.excluded)
    session.execute(statement.on_conflict_do_update(index_elements=["id"], set_=new))
    expected = [[(NEW, 3), (OLD, 1)], [(OLD, 3), (NEW, 1)], [(OLD, 3)]]
    assert stored(session, pages) == {n: simhash_parts(parts) for n, parts in enumerate(expected, 1)}


@each_driver
def test_async_sessions(session, driver):
    async def write(other):
        rows = [{"id": 1, "words": NEWER}, {"id": 3, "words": OLD}]
        await other.execute(updated(upsert(Article).values(rows)))
        await other.commit()

    in_async_session(session.bind.url, driver, write)
    assert stored(session) == of(NEWER, NEW, OLD)


def test_rows_whose_text_is_a_default_and_rows_in_a_cte(session):
    table = Table(
        "draft",
        MetaData(),
        Column("id", Integer, primary_key=True),
        Column("body", Text, default=OLD),
        Column("fp", Fingerprint(source="body")),
    )
    table.create(session.connection())
    session.execute(insert(table).values([{"id": 1}, {"id": 2}]))
    assert stored(session, table) == of(OLD, OLD)
    within = insert(table).values(id=3, body=NEW).returning(table.c.id).cte()
    assert session.scalars(select(within.c.id)).all() == [3]
