"""A fingerprint that was computed is never taken for one that was assigned, nor the other way round.

An object may lose its row, and get another text before it is added again: the fingerprint that it still has is
that of the text before. What was assigned by hand, it keeps.
"""

import pickle

import pytest
from asynchronous import each_driver, in_async_session
from sqlalchemy import ForeignKey, event, select, text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import (
    DeclarativeBase,
    Mapped,
    MappedAsDataclass,
    Session,
    deferred,
    make_transient,
    make_transient_to_detached,
    mapped_column,
)

from simsql import simhash, sketch
from simsql.sqlalchemy import Fingerprint, Sketch

WORDS = "Special cases aren't special enough to break the rules."
OTHER = "Although practicality beats purity, errors should never pass silently."
BY_HAND = 2**63 + 5


class Base(DeclarativeBase):
    pass


class Article(Base):
    __tablename__ = "article"
    id: Mapped[int] = mapped_column(primary_key=True)
    kind: Mapped[str] = mapped_column(default="article")
    body: Mapped[str | None]
    fingerprint: Mapped[int | None] = mapped_column(Fingerprint(source="body"))
    sketch: Mapped[int | None] = mapped_column(Sketch(source="body"))
    __mapper_args__ = {"polymorphic_on": "kind", "polymorphic_identity": "article"}  # noqa: RUF012


class Report(Article):
    __tablename__ = "report"
    id: Mapped[int] = mapped_column(ForeignKey("article.id"), primary_key=True)
    summary: Mapped[str | None]
    second: Mapped[int | None] = mapped_column(Fingerprint(source={"body": 1, "summary": 2}))
    __mapper_args__ = {"polymorphic_identity": "report"}  # noqa: RUF012


class Card(MappedAsDataclass, Base):
    __tablename__ = "card"
    id: Mapped[int | None] = mapped_column(primary_key=True, default=None)
    body: Mapped[str | None] = mapped_column(default=None)
    fingerprint: Mapped[int | None] = mapped_column(Fingerprint(source="body"), default=None)
    sketch: Mapped[int | None] = mapped_column(Sketch(source="body"), default=None)


class Page(Base):
    """Its fingerprint is loaded when somebody asks for it."""

    __tablename__ = "page"
    id: Mapped[int] = mapped_column(primary_key=True)
    body: Mapped[str | None]
    fingerprint: Mapped[int | None] = deferred(mapped_column(Fingerprint(source="body")))


MODELS = [Article, Report, Card]


def stored(session, instance):
    """The fingerprint of a row. Its sketch, which nobody assigns, is that of its text."""
    session.flush()
    model = type(instance)
    if hasattr(model, "sketch"):
        body, found = session.execute(select(model.body, model.sketch).where(model.id == instance.id)).one()
        assert found == (None if body is None else sketch(body)) == instance.sketch
    return session.execute(select(model.fingerprint).where(model.id == instance.id)).scalar_one()


def roll_back(session, instance):
    """Insert an object, and take it back."""
    session.add(instance)
    session.flush()
    session.rollback()


def roll_back_to_savepoint(session, instance):
    with session.begin_nested() as savepoint:
        session.add(instance)
        session.flush()
        savepoint.rollback()


def fail(session, instance):
    """Insert an object and others, of which one is refused: some before the error, some not at all."""
    session.add_all([Article(id=900, body="one"), Report(id=901, body="two", summary="three")])
    session.commit()
    session.add_all([instance, Article(id=900, body=WORDS), Report(id=901, body=WORDS)])
    with pytest.raises(IntegrityError):
        session.flush()
    session.rollback()
    instance.id = None


def delete(session, instance):
    session.add(instance)
    session.commit()
    session.refresh(instance)
    session.delete(instance)
    session.commit()
    make_transient(instance)


def clone(session, instance):
    session.add(instance)
    session.commit()
    session.refresh(instance)
    make_transient(instance)
    instance.id = None


WAYS = [roll_back, roll_back_to_savepoint, fail, delete, clone]
of_models = pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
in_every_way = pytest.mark.parametrize("lose_row", WAYS, ids=lambda way: way.__name__)


@of_models
@in_every_way
def test_what_was_computed_follows_the_next_text(session, model, lose_row):
    instance = model(body=WORDS)
    lose_row(session, instance)
    instance.body = OTHER
    session.add(instance)
    assert stored(session, instance) == simhash(OTHER) == instance.fingerprint


@in_every_way
def test_so_it_does_without_the_unit_of_work(session, lose_row):
    instance = Article(body=WORDS)
    lose_row(session, instance)
    instance.body = OTHER
    instance.id = 77
    session.bulk_save_objects([instance])
    assert session.scalar(select(Article.fingerprint).where(Article.id == 77)) == simhash(OTHER)


@in_every_way
def test_so_it_does_after_pickle(session, lose_row):
    instance = Article(body=WORDS)
    lose_row(session, instance)
    copy = pickle.loads(pickle.dumps(instance))
    copy.body = OTHER
    again = pickle.loads(pickle.dumps(copy))
    session.add(again)
    assert stored(session, again) == simhash(OTHER)


@in_every_way
def test_what_was_assigned_stays_with_its_text(session, lose_row):
    instance = Article(body=WORDS, fingerprint=BY_HAND)
    lose_row(session, instance)
    session.add(instance)
    assert stored(session, instance) == BY_HAND


@in_every_way
def test_what_is_assigned_then_wins(session, lose_row):
    instance = Article(body=WORDS)
    lose_row(session, instance)
    instance.fingerprint, instance.body = BY_HAND, OTHER
    session.add(pickle.loads(pickle.dumps(instance)))
    session.flush()
    assert session.scalars(select(Article.fingerprint).where(Article.body == OTHER)).all() == [BY_HAND]


def test_the_very_value_that_was_computed_may_be_assigned(session):
    article = Article(body=WORDS)
    fail(session, article)  # nothing was flushed, so nothing had that value yet
    article.fingerprint, article.body = simhash(WORDS), OTHER
    session.add(article)
    assert stored(session, article) == simhash(WORDS)
    article.body = WORDS
    assert stored(session, article) == simhash(WORDS)


def test_a_text_that_changes_before_the_row_is_lost(session):
    article = Article(body=WORDS)
    session.add(article)
    session.commit()
    session.refresh(article)
    article.body = OTHER
    session.expunge(article)
    make_transient(article)
    article.id = None
    session.add(article)
    assert stored(session, article) == simhash(OTHER)


def test_each_fingerprint_of_an_object_is_its_own(session):
    report = Report(body=WORDS, summary=OTHER)
    roll_back(session, report)
    report.second = BY_HAND
    report.summary = WORDS
    session.add(report)
    session.flush()
    found = session.execute(select(Report.fingerprint, Report.second).where(Report.id == report.id)).one()
    assert found == (simhash(WORDS), BY_HAND)


def test_a_listener_that_changes_what_was_assigned_a_fingerprint(session):
    """Fingerprints are computed for all new objects at once: for those that have one it counts for nothing."""

    def tidy(mapper, connection, article):
        article.body = article.body.lower().replace("special", "usual")

    event.listen(Article, "before_insert", tidy)
    try:
        articles = [Article(body=WORDS), Article(body=OTHER, fingerprint=simhash(OTHER)), Article(body=WORDS)]
        articles[1].body = WORDS
        session.add_all(articles)
        session.flush()
        expected = simhash(articles[0].body)
        assert [stored(session, article) for article in articles] == [expected, simhash(OTHER), expected]
    finally:
        event.remove(Article, "before_insert", tidy)


def changed_row(session, instance):
    """Store an object, detach it, and give its row another text."""
    session.add(instance)
    session.commit()
    session.refresh(instance)
    session.expunge(instance)
    values = {"body": "Flat is better than nested.", "fp": 1, "id": instance.id}
    session.execute(
        text(f"UPDATE {instance.__tablename__} SET body = :body, fingerprint = :fp WHERE id = :id"), values
    )
    session.commit()


@pytest.mark.parametrize("model", [Article, Card, Page], ids=lambda model: model.__name__)
def test_merge_brings_no_fingerprint_of_another_text(session, model):
    instance = model(body=WORDS)
    changed_row(session, instance)
    instance.body = OTHER
    assert stored(session, session.merge(instance)) == simhash(OTHER)
    session.rollback()
    # A new object for the same row; a dataclass says None where nothing was said.
    assert stored(session, session.merge(model(id=instance.id, body=OTHER))) == simhash(OTHER)
    session.rollback()
    # As it was when it was loaded: its text is another one than the row's.
    session.refresh(merged := session.get(model, instance.id))
    session.expunge(merged)
    session.execute(text(f"UPDATE {model.__tablename__} SET body = 'x', fingerprint = 1"))
    assert stored(session, session.merge(merged)) == simhash(merged.body)


def test_merge_leaves_the_fingerprint_to_a_row_with_the_same_text(session):
    article = Article(body=WORDS)
    session.add(article)
    session.commit()
    session.refresh(article)
    session.expunge(article)
    session.execute(text("UPDATE article SET fingerprint = 5"))
    assert stored(session, session.merge(article)) == 5
    session.rollback()
    assert session.merge(article, load=False).fingerprint == simhash(WORDS)


def test_merge_brings_what_was_assigned(session):
    article = Article(body=WORDS)
    changed_row(session, article)
    article.fingerprint, article.body = BY_HAND, OTHER
    assert stored(session, session.merge(article)) == BY_HAND
    session.rollback()
    assert stored(session, session.merge(Article(id=article.id, body=OTHER, fingerprint=BY_HAND))) == BY_HAND
    session.rollback()
    article.fingerprint = None
    assert stored(session, session.merge(article)) is None


def test_a_detached_object_that_was_never_loaded(session):
    session.add(Article(id=1, body=WORDS))
    session.commit()
    session.expunge_all()
    article = Article(id=1, body=OTHER)
    make_transient_to_detached(article)
    session.add(article)
    article.body = "Readability counts."
    assert stored(session, article) == simhash("Readability counts.")


def test_reading_expiring_and_refreshing_assign_nothing(session):
    article = Article(body=WORDS)
    session.add(article)
    session.commit()
    for body, act in ((OTHER, session.expire), (WORDS, session.refresh), (OTHER, lambda one: one.fingerprint)):
        act(article)
        article.body = body
        assert stored(session, article) == simhash(body)
    article.fingerprint = BY_HAND
    session.refresh(article)
    article.body = WORDS
    assert stored(session, article) == simhash(WORDS)


@each_driver
def test_async_sessions(database, driver):
    Base.metadata.create_all(database)

    async def write(session):
        article = Article(body=WORDS)
        session.add(article)
        await session.flush()
        await session.rollback()
        article.body = OTHER
        session.add(article)
        await session.commit()
        assert article.fingerprint == simhash(OTHER)

    in_async_session(database.url, driver, write, expire_on_commit=False)
    with Session(database) as session:
        assert session.scalars(select(Article.fingerprint)).all() == [simhash(OTHER)]
