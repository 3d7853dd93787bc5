"""In SQLite, fingerprints are computed and stored, and searches say why there are none."""

import pytest
from sqlalchemy import Text, create_engine, select
from sqlalchemy.exc import ArgumentError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from simsql import simhash, sketch
from simsql.sqlalchemy import (
    Fingerprint,
    SimhashIndex,
    Sketch,
    claim,
    clusters,
    near,
    near_many,
    pairs,
    similar,
    similar_candidates,
)

OLD, NEW = "the old text of an article", "another text, which is newer"


class Base(DeclarativeBase):
    pass


class Article(Base):
    __tablename__ = "article"
    __table_args__ = (SimhashIndex("fingerprint", distance=7),)

    id: Mapped[int] = mapped_column(primary_key=True)
    body: Mapped[str] = mapped_column(Text())
    fingerprint: Mapped[int | None] = mapped_column(Fingerprint(source="body"))
    sketch: Mapped[int | None] = mapped_column(Sketch(source="body"))


@pytest.fixture
def lite():
    engine = create_engine("sqlite://")
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        yield session
    Base.metadata.drop_all(engine)
    engine.dispose()


def test_fingerprints_follow_their_texts(lite):
    article = Article(body=OLD)
    lite.add(article)
    lite.flush()
    lite.expire_all()
    assert (article.fingerprint, article.sketch) == (simhash(OLD), sketch(OLD))
    article.body = NEW
    lite.flush()
    lite.expire_all()
    assert lite.scalars(select(Article).where(Article.fingerprint == simhash(NEW))).one() is article
    lite.execute(Article.__table__.insert(), [{"body": OLD}, {"body": NEW}])
    assert lite.scalars(select(Article.fingerprint).order_by(Article.id)).all() == [
        simhash(text) for text in (NEW, OLD, NEW)
    ]


@pytest.mark.parametrize(
    "search",
    [
        lambda lite: lite.execute(near(Article.fingerprint, text=OLD)),
        lambda lite: lite.execute(claim(Article.fingerprint, text=OLD)),
        lambda lite: lite.execute(near_many(Article.fingerprint, [1])),
        lambda lite: lite.execute(pairs(Article.fingerprint)),
        lambda lite: lite.execute(clusters(Article.fingerprint)),
        lambda lite: lite.execute(similar_candidates(Article.fingerprint, OLD)),
        lambda lite: similar(lite, Article.fingerprint, OLD),
        lambda lite: lite.scalars(select(Article).where(Article.fingerprint.near(text=OLD))),
    ],
)
def test_a_search_names_the_vendor(lite, search):
    with pytest.raises(ArgumentError, match="searches in PostgreSQL, and this database is sqlite"):
        search(lite)
