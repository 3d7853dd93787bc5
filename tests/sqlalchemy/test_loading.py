"""A search as a condition of relationships, loader options, polymorphic classes and nested statements."""

import pytest
from sqlalchemy import ForeignKey, delete, exists, func, or_, select, union, union_all
from sqlalchemy.orm import (
    DeclarativeBase,
    Mapped,
    aliased,
    contains_eager,
    joinedload,
    lazyload,
    mapped_column,
    relationship,
    selectinload,
    subqueryload,
    with_loader_criteria,
    with_polymorphic,
)

from simsql.sqlalchemy import Fingerprint, SimhashIndex, Sketch, near

QUERY = 5
LOADERS = [joinedload, selectinload, subqueryload, lazyload]


class Base(DeclarativeBase):
    pass


class Source(Base):
    __tablename__ = "source"
    id: Mapped[int] = mapped_column(primary_key=True)
    articles: Mapped[list["Article"]] = relationship(back_populates="source", order_by="Article.id")


class Article(Base):
    __tablename__ = "article"
    id: Mapped[int] = mapped_column(primary_key=True)
    kind: Mapped[str]
    source_id: Mapped[int | None] = mapped_column(ForeignKey("source.id"))
    source: Mapped[Source | None] = relationship(back_populates="articles")
    body: Mapped[str | None]
    fingerprint: Mapped[int | None] = mapped_column(Fingerprint(source="body"))
    sketch: Mapped[int | None] = mapped_column(Sketch(source="body"))
    __table_args__ = (SimhashIndex("fingerprint"),)
    __mapper_args__ = {"polymorphic_on": "kind", "polymorphic_identity": "article"}  # noqa: RUF012


class Report(Article):
    __tablename__ = "report"
    id: Mapped[int] = mapped_column(ForeignKey("article.id"), primary_key=True)
    __mapper_args__ = {"polymorphic_identity": "report"}  # noqa: RUF012


@pytest.fixture
def session(session):
    """Articles 1 and 3, one of each source, are near."""
    session.add_all([Source(id=1), Source(id=2)])
    session.flush()
    session.add_all(
        [
            Article(id=1, source_id=1, body="One text.", fingerprint=5),
            Article(id=2, source_id=1, body="Two texts.", fingerprint=2**60),
            Report(id=3, source_id=2, body="One text.", fingerprint=4),
            Article(id=4, source_id=2, body="Four texts.", fingerprint=2**61),
        ]
    )
    session.commit()
    session.expunge_all()
    return session


def is_near(entity=Article, query=QUERY):
    return entity.fingerprint.near(query, 2)


def loaded(session, statement):
    """(id of the source, ids of the articles that were loaded with it)"""
    session.expunge_all()
    sources = session.scalars(statement.order_by(Source.id)).unique()
    return [(source.id, [article.id for article in source.articles]) for source in sources]


@pytest.mark.parametrize("loader", LOADERS)
def test_only_the_near_rows_of_a_relationship_are_loaded(session, loader):
    flat = with_polymorphic(Article, [Report], flat=True)
    text_too = Article.fingerprint.near(text="One text!", distance=64, similarity=0.9)
    for option in (
        loader(Source.articles.and_(is_near())),
        loader(Source.articles.and_(or_(is_near(), is_near(query=QUERY + 1)))),
        loader(Source.articles.and_(text_too)),
        # The other loaders of SQLAlchemy ignore a condition on such an alias, or fail, whatever it is.
        *([loader(Source.articles.of_type(flat).and_(is_near(flat)))] if loader in LOADERS[:2] else []),
    ):
        assert loaded(session, select(Source).options(option)) == [(1, [1]), (2, [3])]
        first = select(Source).where(Source.articles.any(is_near())).options(option).limit(1)
        assert loaded(session, first) == [(1, [1])]
    for criteria in (is_near(), lambda entity: entity.fingerprint.near(QUERY, 2)):
        options = loader(Source.articles), with_loader_criteria(Article, criteria)
        assert loaded(session, select(Source).options(*options)) == [(1, [1]), (2, [3])]


def test_a_join_fills_a_relationship(session):
    joined = select(Source).join(Source.articles.and_(is_near())).options(contains_eager(Source.articles))
    assert loaded(session, joined) == [(1, [1]), (2, [3])]
    alias = aliased(Article)
    joined = select(Source).join(Source.articles.of_type(alias)).where(is_near(alias))
    assert loaded(session, joined.options(contains_eager(Source.articles.of_type(alias)))) == [(1, [1]), (2, [3])]


def test_the_rows_of_a_search_load_relationships(session):
    both = joinedload(Article.source).joinedload(Source.articles.and_(is_near()))
    for statement in (near(Article.fingerprint, QUERY, 2), near(Article.fingerprint, QUERY, 2).limit(5)):
        rows = session.execute(statement.options(both)).unique()
        found = [(article.id, [one.id for one in article.source.articles], distance) for article, distance in rows]
        assert found == [(1, [1], 0), (3, [3], 1)]


def test_polymorphic_classes(session):
    for options in ({}, {"flat": True}, {"aliased": True}):
        entity = with_polymorphic(Article, [Report], **options)
        found = session.scalars(select(entity).where(is_near(entity)).order_by(entity.id)).all()
        assert [type(article) for article in found] == [Article, Report]
    assert session.scalars(select(Report.id).where(is_near(Report))).all() == [3]


def test_searches_within_and_beside_each_other(session):
    condition, other = is_near(), aliased(Article)
    found = aliased(Article, select(Article).where(is_near()).subquery())
    one, two = (near(Article.fingerprint, query, 2).subquery() for query in (5, 4))
    both = [
        near(Article.fingerprint, query, 2).with_only_columns(Article.id).order_by(None) for query in (5, 2**60)
    ]
    for statement, expected in (
        (select(Article.id).where(or_(is_near(), is_near(query=2**60))), [(1,), (2,), (3,), (4,)]),
        (select(Article.id).where(or_(condition, ~condition), condition), [(1,), (3,)]),
        (union(select(Article.id).where(condition), select(Article.id).where(is_near())), [(1,), (3,)]),
        (union_all(*both), [(1,), (2,), (3,), (3,), (4,)]),
        (select(Source.id).where(exists().where(Article.source_id == Source.id, condition)), [(1,), (2,)]),
        (select(Source.id).where(Source.articles.any(is_near(query=2**61 + 2))), [(2,)]),
        (select(found.id).where(found.fingerprint.near(2**61 + 4, 1)), [(3,)]),
        (near(found.fingerprint, 4, 0).with_only_columns(found.id), [(3,)]),
        (select(one.c.id, two.c.id).join(two, one.c.id == two.c.id), [(1, 1), (3, 3)]),
        (
            select(Article.id, other.id).join(other, is_near(other)).where(condition),
            [(1, 1), (1, 3), (3, 1), (3, 3)],
        ),
        (select(func.count()).select_from(select(Article.id).where(condition).cte()), [(2,)]),
    ):
        assert sorted(tuple(row) for row in session.execute(statement)) == expected, str(statement)
    none_near = ~exists().where(Article.source_id == Source.id, is_near(query=2**61 + 4))
    session.execute(delete(Article).where(Article.source_id == 1))
    session.execute(delete(Source).where(none_near), execution_options={"synchronize_session": False})
    assert session.scalars(select(Source.id)).all() == [2]


class Note(Base):
    __tablename__ = "note"
    id: Mapped[int] = mapped_column(primary_key=True)
    tenant: Mapped[int]
    about_id: Mapped[int | None] = mapped_column(ForeignKey("note.id"))
    notes: Mapped[list["Note"]] = relationship(order_by="Note.id")
    fingerprint: Mapped[int | None] = mapped_column(Fingerprint())
    __table_args__ = (SimhashIndex("fingerprint", scope=["tenant"]),)


@pytest.mark.parametrize("loader", [joinedload, selectinload])
@pytest.mark.parametrize("tenant", [1, 2])
def test_the_scope_is_that_of_the_loaded_rows(session, loader, tenant):
    session.add(Note(id=1, tenant=1, fingerprint=7))
    session.flush()
    session.add_all([Note(id=id_, tenant=id_ - 1, about_id=1, fingerprint=7) for id_ in (2, 3)])
    session.commit()
    session.expunge_all()
    is_near = Note.fingerprint.near(7, scope={"tenant": tenant})
    statement = select(Note).where(Note.id == 1)
    found = session.scalars(statement.options(loader(Note.notes.and_(is_near)))).unique().one()
    assert [note.id for note in found.notes] == [tenant + 1]
    alias = aliased(Note)
    joined = select(alias.id).select_from(Note).join(Note.notes.of_type(alias).and_(is_near))
    assert session.scalars(joined).all() == [tenant + 1]
