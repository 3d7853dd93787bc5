"""Fingerprint(source=...): the value follows the source through the unit of work, however the class is mapped."""

import pytest
from sqlalchemy import Column, ForeignKey, Integer, Table, Text, event, func, null, select, text
from sqlalchemy.exc import ArgumentError, IntegrityError, SQLAlchemyError
from sqlalchemy.orm import (
    DeclarativeBase,
    Mapped,
    MappedAsDataclass,
    Mapper,
    configure_mappers,
    declared_attr,
    deferred,
    mapped_column,
    registry,
)

from simsql import Recipe, simhash
from simsql.fingerprint import simhash_parts
from simsql.sqlalchemy import Fingerprint

WORDS = "Now is better than never. Although never is often better than right now."
OTHER = "Namespaces are one honking great idea; let's do more of those!"


class Base(DeclarativeBase):
    pass


class Article(Base):
    __tablename__ = "article"
    id: Mapped[int] = mapped_column(primary_key=True)
    body: Mapped[str | None]
    note: Mapped[str | None]
    fingerprint: Mapped[int | None] = mapped_column(Fingerprint(source="body"))


class Page(Base):
    """Two sources with weights, a recipe, names of columns that are not those of the attributes."""

    __tablename__ = "page"
    id: Mapped[int] = mapped_column(primary_key=True)
    title: Mapped[str | None] = mapped_column("heading")
    body: Mapped[str | None] = mapped_column("content", deferred=True)
    fingerprint: Mapped[int | None] = mapped_column(
        "fp", Fingerprint(source={"title": 3, "body": 1}, recipe=Recipe(shingles=(1,)))
    )


class HasFingerprint:
    body: Mapped[str | None]
    fingerprint: Mapped[int | None] = mapped_column(Fingerprint(source="body"))


class Mixed(HasFingerprint, Base):
    __tablename__ = "mixed"
    id: Mapped[int] = mapped_column(primary_key=True)


class AbstractBase(Base):
    __abstract__ = True
    id: Mapped[int] = mapped_column(primary_key=True)
    body: Mapped[str | None]

    @declared_attr
    def fingerprint(cls) -> Mapped[int | None]:  # noqa: N805
        return mapped_column(Fingerprint(source="body"))


class Concrete(AbstractBase):
    __tablename__ = "concrete"


class Document(Base):
    """The root of a joined hierarchy, with a fingerprint of its own."""

    __tablename__ = "document"
    id: Mapped[int] = mapped_column(primary_key=True)
    kind: Mapped[str]
    body: Mapped[str | None]
    fingerprint: Mapped[int | None] = mapped_column(Fingerprint(source="body"))
    __mapper_args__ = {"polymorphic_on": "kind", "polymorphic_identity": "document"}  # noqa: RUF012


class Report(Document):
    """Inherits the fingerprint, and has another one, of its own text and the inherited one."""

    __tablename__ = "report"
    id: Mapped[int] = mapped_column(ForeignKey("document.id"), primary_key=True)
    summary: Mapped[str | None]
    summary_fingerprint: Mapped[int | None] = mapped_column(Fingerprint(source={"summary": 2, "body": 1}))
    __mapper_args__ = {"polymorphic_identity": "report"}  # noqa: RUF012


class Note(Document):
    """In the table of its parent."""

    __mapper_args__ = {"polymorphic_identity": "note"}  # noqa: RUF012


class Card(MappedAsDataclass, Base):
    __tablename__ = "card"
    id: Mapped[int] = mapped_column(init=False, primary_key=True)
    body: Mapped[str | None] = mapped_column(default=None)
    fingerprint: Mapped[int | None] = mapped_column(Fingerprint(source="body"), default=None)


class Slip(MappedAsDataclass, Base):
    __tablename__ = "slip"
    id: Mapped[int] = mapped_column(init=False, primary_key=True)
    body: Mapped[str | None]
    fingerprint: Mapped[int | None] = mapped_column(Fingerprint(source="body"), init=False)


class Leaflet:
    def __init__(self, body=None):
        self.body = body


leaflets = Table(
    "leaflet",
    Base.metadata,
    Column("id", Integer, primary_key=True),
    Column("body", Text),
    Column("fingerprint", Fingerprint(source="body")),
)
registry(metadata=Base.metadata).map_imperatively(Leaflet, leaflets)


class Late(Base):
    __tablename__ = "late"
    id: Mapped[int] = mapped_column(primary_key=True)
    body: Mapped[str | None]


configure_mappers()
Late.fingerprint = mapped_column(Fingerprint(source="body"))

EVERY_WAY = [Article, Mixed, Concrete, Document, Report, Note, Card, Slip, Leaflet, Late]


def stored(session, instance, column="fingerprint"):
    """What the row holds, unsigned, not what the object believes."""
    session.flush()
    mapped = getattr(type(instance), column)
    return session.execute(select(mapped).where(type(instance).id == instance.id)).scalar_one()


def model_of(type_, source):
    """A class with a base of its own, so that no other test sees its listeners and errors."""

    class Own(DeclarativeBase):
        pass

    class Post(Own):
        __tablename__ = "post"
        id: Mapped[int] = mapped_column(primary_key=True)
        body = mapped_column(type_)
        fingerprint: Mapped[int | None] = mapped_column(Fingerprint(source=source))

    return Post


def test_however_a_class_is_mapped_its_fingerprint_follows(session):
    for model in EVERY_WAY:
        instance = model(body=WORDS)
        session.add(instance)
        assert stored(session, instance) == simhash(WORDS) == instance.fingerprint, model
        instance.body = OTHER
        assert stored(session, instance) == simhash(OTHER) == instance.fingerprint, model
        instance.body = "?!"
        assert stored(session, instance) is None, model
        instance.body = WORDS
        session.commit()  # everything expires: the next change is made without a look at the old value
        instance.body = OTHER
        assert stored(session, instance) == simhash(OTHER), model
        instance.body = None
        assert stored(session, instance) is None, model


def test_a_value_that_is_set_by_hand_wins(session):
    for model in EVERY_WAY:
        instance = model(body=WORDS)
        instance.fingerprint = 2**64 - 1
        session.add(instance)
        assert stored(session, instance) == 2**64 - 1, model
        instance.body = OTHER
        instance.fingerprint = 7
        assert stored(session, instance) == 7, model
        session.commit()
        instance.body, instance.fingerprint = WORDS, None
        assert stored(session, instance) is None, model
        instance.body = OTHER  # the hand was there for one flush
        assert stored(session, instance) == simhash(OTHER), model


def test_null_at_an_insert_has_a_word_of_its_own(session):
    left, chosen = Article(body=WORDS, fingerprint=None), Article(body=WORDS, fingerprint=null())
    session.add_all([left, chosen])
    assert stored(session, left) == simhash(WORDS)
    assert stored(session, chosen) is None


def test_other_changes_compute_nothing(session):
    article = Article(body=WORDS)
    session.add(article)
    session.commit()
    session.execute(text("UPDATE article SET fingerprint = 5"))
    for change in ({"note": "read"}, {"note": None}, {"id": 77}):
        for name, value in change.items():
            setattr(article, name, value)
        assert stored(session, article) == 5
    article.body = article.body
    assert stored(session, article) == 5


def test_several_sources_vote_with_their_weights(session):
    recipe = Recipe(shingles=(1,))
    page = Page(title=OTHER, body=WORDS)
    session.add(page)
    assert stored(session, page) == simhash_parts([(OTHER, 3), (WORDS, 1)], recipe)
    assert stored(session, page) != simhash_parts([(OTHER, 1), (WORDS, 1)], recipe)
    session.commit()
    session.expunge_all()
    page = session.scalars(select(Page)).one()
    page.title = None  # the body is deferred: it is fetched for this
    assert stored(session, page) == simhash(WORDS, recipe)
    page.body = "-"
    assert stored(session, page) is None


def test_a_subclass_has_sources_in_both_tables(session):
    report = Report(body=WORDS, summary=OTHER)
    session.add(report)
    expected = simhash_parts([(OTHER, 2), (WORDS, 1)])
    assert stored(session, report, "summary_fingerprint") == expected
    report.body = "Readability counts."
    assert stored(session, report, "summary_fingerprint") == simhash_parts(
        [(OTHER, 2), ("Readability counts.", 1)]
    )
    assert stored(session, report) == simhash("Readability counts.")


def test_a_flush_of_many_gives_each_its_own(session):
    bodies = [WORDS, None, OTHER, "?!", func.concat("x"), *(f"{WORDS} {number} {number}" for number in range(50))]
    session.add_all([Article(body=body) for body in bodies])
    session.add_all([Article(body=body, fingerprint=7) for body in bodies])
    session.add_all([Note(body=WORDS), Report(body=OTHER), Document(body=OTHER)])
    session.flush()
    expected = [simhash(body) if isinstance(body, str) else None for body in bodies]
    assert session.scalars(select(Article.fingerprint).order_by(Article.id)).all() == expected + [7] * len(bodies)
    found = session.scalars(select(Document).order_by(Document.kind)).all()
    assert [document.fingerprint for document in found] == [simhash(OTHER), simhash(WORDS), simhash(OTHER)]
    # After a flush that failed, what it computed is good as long as the text is.
    again = [Article(body=WORDS), Article(body=OTHER), Article(id=1, body="there is one already")]
    session.commit()
    session.add_all(again)
    with pytest.raises(IntegrityError):
        session.flush()
    session.rollback()
    again[0].body, again[2].id = "Errors should never pass silently.", None
    session.add_all(again)
    session.flush()
    for article in again:
        assert stored(session, article) == simhash(article.body)


def test_merged_and_replaced_objects_follow(session):
    session.add(Article(id=1, body=WORDS))
    session.commit()
    article = session.get(Article, 1)
    session.expunge(article)
    article.body = OTHER
    merged = session.merge(article)
    assert stored(session, merged) == simhash(OTHER)
    # Deleted and added again under the same key in one flush: an UPDATE, of all that was computed.
    session.delete(merged)
    again = Article(id=1, body="...")
    session.add(again)
    assert stored(session, again) is None


def test_an_expression_as_source_leaves_null(session):
    article = Article(body=func.upper("shout"))
    session.add(article)
    assert stored(session, article) is None
    article.body = WORDS
    assert stored(session, article) == simhash(WORDS)
    article.body = Article.body + "!"
    assert stored(session, article) is None


def test_a_listener_of_the_application_that_changes_the_source_comes_first(session_of):
    Post = model_of(Text, "body")  # noqa: N806

    @event.listens_for(Post, "before_insert")
    @event.listens_for(Post, "before_update")
    def tidy(mapper, connection, post):
        post.body = post.body.replace("never", "always")

    session = session_of(Post)
    posts = [Post(body=f"{WORDS} {number}") for number in range(3)]
    session.add_all(posts)  # what is computed for all of them at once is not what these two are
    for number, post in enumerate(posts):
        assert stored(session, post) == simhash(f"{WORDS} {number}".replace("never", "always"))
    post.body = "never ever"
    assert stored(session, post) == simhash("always ever")


def test_a_source_that_is_no_text_is_an_error_that_names_it(session_of):
    Post = model_of(Integer, "body")  # noqa: N806
    session = session_of(Post)
    session.add(Post(body=5))
    with pytest.raises(TypeError, match=r"Post\.fingerprint: the source 'body' must be str, not int"):
        session.flush()


def test_a_source_that_does_not_exist_is_an_error_when_mappers_are_configured():
    Post = model_of(Text, "text")  # noqa: N806
    try:
        with pytest.raises(
            ArgumentError, match=r"Post\.fingerprint: the source 'text' is not a column attribute of Post"
        ):
            Post.registry.configure()
    finally:
        Post.registry.dispose()


def test_a_deferred_source_that_may_not_be_loaded_raises(session_of):
    class Own(DeclarativeBase):
        pass

    class Post(Own):
        __tablename__ = "post"
        id: Mapped[int] = mapped_column(primary_key=True)
        title: Mapped[str]
        body: Mapped[str] = deferred(Column(Text), raiseload=True)
        fingerprint: Mapped[int | None] = mapped_column(Fingerprint(source={"title": 1, "body": 1}))

    session = session_of(Own)
    session.add(Post(title="a", body="b"))
    session.commit()
    session.expunge_all()
    session.scalars(select(Post)).one().title = "c"
    with pytest.raises(SQLAlchemyError, match=r"Post\.body"):
        session.flush()


def test_nothing_listens_to_classes_without_a_source():
    Plain = model_of(Text, None)  # noqa: N806
    Plain.registry.configure()
    moments = ("before_insert", "before_update", "after_update")
    assert not any(list(getattr(Plain.__mapper__.dispatch, moment)) for moment in moments)
    assert not any(list(getattr(Mapper.dispatch, moment)._clslevel.get(Mapper, ())) for moment in moments)
    assert all(len(list(getattr(Article.__mapper__.dispatch, moment))) == 1 for moment in moments)
    assert all(len(list(getattr(Report.__mapper__.dispatch, moment))) == 2 for moment in moments)
