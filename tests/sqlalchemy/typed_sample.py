"""What an application writes, with every part of simsql.sqlalchemy: mypy --strict checks it in a test."""

from collections.abc import Sequence

from sqlalchemy import Column, Connection, Integer, MetaData, Table, delete, select, update
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import DeclarativeBase, Mapped, MappedAsDataclass, Session, aliased, mapped_column

from simsql import Design, Recipe, simhash
from simsql.database import SearchIndex
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


class Base(DeclarativeBase):
    pass


class Article(Base):
    __tablename__ = "article"
    __table_args__ = (
        SimhashIndex("fingerprint", distance=3),
        SimhashIndex(
            "title_fp", distance=7, design=Design(4, 1), scope=["tenant_id"], recipe=Recipe(shingles=(2,))
        ),
    )
    id: Mapped[int] = mapped_column(primary_key=True)
    tenant_id: Mapped[int]
    title: Mapped[str]
    body: Mapped[str]
    fingerprint: Mapped[int | None] = mapped_column(Fingerprint(source="body"))
    sketch: Mapped[int | None] = mapped_column(Sketch(source="body"))
    title_fp: Mapped[int | None] = mapped_column(
        Fingerprint(source={"title": 3, "body": 1}, recipe=Recipe(shingles=(2,)))
    )


class Card(MappedAsDataclass, Base):
    __tablename__ = "card"
    id: Mapped[int] = mapped_column(init=False, primary_key=True)
    body: Mapped[str]
    fingerprint: Mapped[int | None] = mapped_column(Fingerprint(source="body"), default=None)


notes = Table(
    "note", MetaData(), Column("id", Integer), Column("fingerprint", Fingerprint()), SimhashIndex("fingerprint")
)


def most_similar(session: Session, text: str) -> list[tuple[Article, float]]:
    wanted = [Article.tenant_id == 1]
    return similar(session, Article.fingerprint, text, 0.7, recall=0.9, limit=3, where=wanted)


async def candidates(session: AsyncSession, text: str) -> list[Article]:
    found = await session.execute(similar_candidates(Article.fingerprint, text).limit(10))
    first: list[tuple[Article, float]] = await session.run_sync(similar, Article.fingerprint, text)
    return [article for article, *_ in found] + [article for article, _ in first]


def near_texts(session: Session, text: str) -> list[tuple[Article, int]]:
    found = near(Article.fingerprint, text=text, distance=12, similarity=0.55)
    return [(article, distance) for article, distance in session.execute(found)]


async def similar_in(session: AsyncSession, tenant: int, text: str) -> Sequence[Article]:
    statement = near(Article.title_fp, simhash(text), distance=7, scope={"tenant_id": tenant})
    articles: list[Article] = [article for article, _ in (await session.execute(statement)).all()]
    texts = {"title": None, "body": text}
    condition = Article.title_fp.near(text=texts, distance=7, scope={"tenant_id": tenant})
    return (await session.scalars(select(Article).where(condition))).all() or articles


def post(session: Session, text: str) -> int | None:
    claimed: int | None = session.scalar(claim(Article.fingerprint, text=text, distance=7))
    return claimed


def distances(session: Session, number: int) -> dict[int, int]:
    statement = select(Article.id, Article.fingerprint.hamming_distance(number)).order_by(Article.id)
    return {row[0]: row[1] for row in session.execute(statement)}


def duplicates(session: Session) -> list[tuple[int, int]]:
    other = aliased(Article)
    statement = (
        select(Article.id, other.id)
        .join(other, other.fingerprint.near(Article.fingerprint, 3))
        .where(Article.id < other.id)
    )
    return [(a, b) for a, b in session.execute(statement)]


def tidy(session: Session, number: int) -> None:
    session.execute(update(Article).where(Article.fingerprint.near(number)).values(title="near"))
    session.execute(delete(Article).where(Article.fingerprint.near(number, distance=0)))


def of_a_table(connection: Connection, numbers: list[int]) -> list[int]:
    found: list[int] = [
        fingerprint for fingerprint, _ in connection.execute(near(notes.c.fingerprint, numbers[0]))
    ]
    found += [fingerprint for _, fingerprint, _ in connection.execute(near_many(notes.c.fingerprint, numbers, 3))]
    found += [a + b for a, b, _ in connection.execute(pairs(notes.c.fingerprint, 3))]
    return found + [cluster for cluster, _ in connection.execute(clusters(notes.c.fingerprint, 3))]


def of_a_class(session: Session, numbers: list[int]) -> list[Article]:
    found: list[Article] = [
        article for _, article, _ in session.execute(near_many(Article.fingerprint, numbers, 3))
    ]
    found += [article for _, article in session.execute(clusters(Article.fingerprint))]
    assert all(isinstance(pair.distance, int) for pair in session.execute(pairs(Article.fingerprint)))
    return found


def declared() -> list[tuple[str, int, Design | None, tuple[str, ...], str | None]]:
    return [
        (index.column, index.distance, index.design, index.scope, index.recipe) for index in SimhashIndex.of(notes)
    ]


def misspelled(connection: Connection) -> None:
    """The options of searches have types, although each is declared once."""
    near(Article.fingerprint, text="a", distnace=3)  # type: ignore[call-arg]
    near(Article.fingerprint, text="a", similarity="0.5")  # type: ignore[arg-type]
    claim(Article.fingerprint, text="a", similarity=0.5)  # type: ignore[call-arg]
    index = SearchIndex(connection, "article")
    index.near_rows(text="a", text_column=1)  # type: ignore[arg-type]
    index.near("a text", 3, similarity=0.5)  # type: ignore[call-arg]
