"""Searches that also compare sketches: near(text=..., similarity=...) in models and on tables."""

import pytest
from sqlalchemy import select, text
from sqlalchemy.exc import ArgumentError, StatementError
from sqlalchemy.orm import DeclarativeBase, Mapped, aliased, mapped_column

from simsql import estimate_similarity, simhash, sketch
from simsql.database import recipes, sources
from simsql.errors import UsageError
from simsql.sqlalchemy import Fingerprint, SimhashIndex, Sketch, near

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
    sketch: Mapped[int | None] = mapped_column("sketched", Sketch(source="content"))
    of_title: Mapped[int | None] = mapped_column(Fingerprint(source="title"))
    both: Mapped[int | None] = mapped_column(Fingerprint(source={"title": 3, "content": 1}))
    plain: Mapped[int | None] = mapped_column(Fingerprint())
    __table_args__ = (SimhashIndex("fingerprint", distance=40),)


@pytest.fixture
def session(session):
    session.add_all(Article(id=number, content=body) for number, body in enumerate(BODIES))
    session.flush()
    return session


@pytest.mark.parametrize("least", [0, 0.6, 0.85, 1])
def test_only_rows_with_similar_sketches_are_found(session, least):
    expected = [n for n, body in enumerate(BODIES) if estimate_similarity(sketch(body), sketch(TEXT)) >= least]
    for entity in (Article, aliased(Article)):
        condition = entity.fingerprint.near(text=TEXT, distance=40, similarity=least)
        assert session.scalars(select(entity.id).where(condition).order_by(entity.id)).all() == expected
        rows = session.execute(near(entity.fingerprint, text=TEXT, distance=40, similarity=least)).all()
        assert sorted(article.id for article, _ in rows) == expected
    assert len(expected) == {0: 4, 0.6: 3, 0.85: 2, 1: 1}[least]


def test_a_text_by_name_and_null_texts(session):
    session.add(Article(id=9, content=None))
    session.flush()
    for words, expected in ((TEXT, [0]), (None, [])):
        condition = Article.fingerprint.near(text={"content": words}, distance=40, similarity=1)
        assert session.scalars(select(Article.id).where(condition)).all() == expected


def test_rows_are_ranked_by_the_estimate(session):
    ranked = select(Article.id, Article.sketch.similarity(text=TEXT)).order_by(
        Article.sketch.similarity(sketch(TEXT)).desc(), Article.id
    )
    estimates = {number: estimate_similarity(sketch(body), sketch(TEXT)) for number, body in enumerate(BODIES)}
    assert [tuple(row) for row in session.execute(ranked)] == sorted(
        estimates.items(), key=lambda item: (-item[1], item[0])
    )
    other = aliased(Article)
    between = select(Article.sketch.similarity(other.sketch)).join(other, other.id == 2).where(Article.id == 1)
    assert session.scalar(between) == estimate_similarity(sketch(BODIES[1]), sketch(BODIES[2]))
    for arguments in ({}, {"other": 1, "text": "a"}):
        with pytest.raises(ArgumentError, match="pass either a sketch or text="):
            Article.sketch.similarity(**arguments)


def test_a_text_is_split_once_for_both_columns(session, monkeypatch):
    splits = []
    both = sources.simhash_items_with_sketches
    monkeypatch.setattr(sources, "simhash_items_with_sketches", lambda *them: splits.append(1) or both(*them))
    session.add_all([Article(id=20, content=TEXT), Article(id=21, content="other words")])
    session.flush()
    assert splits == [1]
    session.get(Article, 20).content = "other words"
    session.flush()
    assert splits == [1, 1]
    for number in (20, 21):
        article = session.get(Article, number, populate_existing=True)
        assert (article.fingerprint, article.sketch) == (simhash("other words"), sketch("other words"))


def test_other_sketches_are_not_mixed_with_those_of_this_version(session):
    session.execute(text("COMMENT ON COLUMN article.sketched IS 'minhash128-1'"))
    recipes._known.clear()
    session.add(Article(id=30, content=TEXT))
    with pytest.raises(UsageError, match=r"article\.sketched has the sketches minhash128-1, which"):
        session.flush()


def test_a_sketch_is_that_of_one_text():
    with pytest.raises(TypeError, match="that of one text"):
        Sketch(source={"title": 1, "content": 1})
    assert repr(Sketch(source="content")) == "Sketch()"


def refused(message, column=Article.fingerprint, *arguments, **options):
    for search in (column.near, lambda *more, **rest: near(column, *more, **rest)):
        with pytest.raises(ArgumentError, match=message):
            search(*arguments, **options)


def test_values_of_other_types_are_named(session):
    with pytest.raises(StatementError, match=r"'text' is not a sketch: .* pass a text as text="):
        session.scalars(select(Article.sketch.similarity("text")))
    with pytest.raises(StatementError, match=f"{2**64} is not a sketch: it must be in"):
        session.scalars(select(Article.id).where(Article.sketch == 2**64))


def test_a_similarity_needs_a_text_one_source_and_a_sketch():
    refused("pass text=", Article.fingerprint, 1, similarity=0.5)
    refused("several sources", Article.both, text={"title": "a", "content": "b"}, similarity=0.5)
    refused("no source", Article.plain, text="a", similarity=0.5)
    refused(r"none of 'title': .*Sketch\(source='title'\)", Article.of_title, text="a", similarity=0.5)
    with pytest.raises(ArgumentError, match="returns fingerprints"):
        near(Article.__table__.c.fingerprint, text="a", similarity=0.5)


def test_an_alias_without_the_sketch_is_refused():
    some = select(Article.fingerprint).subquery()
    with pytest.raises(ArgumentError, match="lacks the column 'sketched'"):
        some.c.fingerprint.near(text="a", similarity=0.5)
