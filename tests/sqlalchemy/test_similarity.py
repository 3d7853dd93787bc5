"""Searches that also compare texts: near(text=..., similarity=...) in models and on tables."""

import pytest
from sqlalchemy import func, select
from sqlalchemy.exc import ArgumentError
from sqlalchemy.orm import DeclarativeBase, Mapped, aliased, mapped_column

from simsql import similarity
from simsql.sqlalchemy import Fingerprint, SimhashIndex, near

WORDS = [f"word{number}" for number in range(60)]
# Every row has the same words, so they are near; only the order differs.
BODIES = [" ".join([*WORDS[part:], *WORDS[:part]]) for part in (0, 1, 30)] + [" ".join(WORDS[::-1])]
TEXT = BODIES[0].upper()


class Base(DeclarativeBase):
    pass


class Article(Base):
    __tablename__ = "article"
    id: Mapped[int] = mapped_column(primary_key=True)
    content: Mapped[str | None] = mapped_column("body")
    title: Mapped[str | None]
    fingerprint: Mapped[int | None] = mapped_column(Fingerprint(source="content"))
    both: Mapped[int | None] = mapped_column(Fingerprint(source={"title": 3, "content": 1}))
    plain: Mapped[int | None] = mapped_column(Fingerprint())
    __table_args__ = (SimhashIndex("fingerprint", distance=40),)


@pytest.fixture
def session(session):
    session.add_all(Article(id=number, content=body) for number, body in enumerate(BODIES))
    session.flush()
    return session


@pytest.mark.parametrize("least", [0, 0.6, 0.95, 1])
def test_only_similar_texts_are_found(session, least):
    expected = [number for number, body in enumerate(BODIES) if similarity(body, TEXT) >= least]
    for entity in (Article, aliased(Article)):
        condition = entity.fingerprint.near(text=TEXT, distance=40, similarity=least)
        assert session.scalars(select(entity.id).where(condition).order_by(entity.id)).all() == expected
        rows = session.execute(near(entity.fingerprint, text=TEXT, distance=40, similarity=least)).all()
        assert sorted(article.id for article, _ in rows) == expected
    assert len(expected) == {0: 4, 0.6: 3, 0.95: 2, 1: 1}[least]


def test_a_text_by_name_and_null_texts(session):
    session.add(Article(id=9, content=None))
    session.flush()
    for text, expected in ((TEXT, [0]), (None, [])):
        condition = Article.fingerprint.near(text={"content": text}, distance=40, similarity=1)
        assert session.scalars(select(Article.id).where(condition)).all() == expected


def test_the_function_can_be_called_in_any_statement(session):
    found = session.scalars(select(func.simsql.similarity(Article.content, TEXT)).order_by(Article.id)).all()
    assert found == [similarity(body, TEXT) for body in BODIES]


def refused(message, column=Article.fingerprint, *arguments, **options):
    for search in (column.near, lambda *more, **rest: near(column, *more, **rest)):
        with pytest.raises(ArgumentError, match=message):
            search(*arguments, **options)


@pytest.mark.parametrize("value", [-0.1, 1.5, float("nan")])
def test_a_similarity_out_of_range_is_refused(value):
    refused(f"between 0 and 1, not {value}", text="a", similarity=value)


def test_a_similarity_needs_a_text_and_one_source():
    refused("pass text=", Article.fingerprint, 1, similarity=0.5)
    refused("several sources", Article.both, text={"title": "a", "content": "b"}, similarity=0.5)
    refused("no source", Article.plain, text="a", similarity=0.5)
    Base.registry.configure()  # a column of a table knows its source once the class is mapped
    with pytest.raises(ArgumentError, match="returns fingerprints"):
        near(Article.__table__.c.fingerprint, text="a", similarity=0.5)


def test_an_alias_without_the_source_is_refused():
    some = select(Article.fingerprint).subquery()
    with pytest.raises(ArgumentError, match="without its source 'content'"):
        some.c.fingerprint.near(text="a", similarity=0.5)
