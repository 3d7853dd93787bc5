"""Articles."""

from typing import Annotated

from fastapi import APIRouter, HTTPException, Query
from simsql import simhash
from simsql.sqlalchemy import Fingerprint, near
from sqlalchemy import cast, column, func, literal, select
from sqlalchemy.dialects.postgresql import REGCLASS

from app.database import Session
from app.models import Article, Author
from app.schemas import ArticleOut, NewArticle, SimilarArticle

router = APIRouter(prefix="/articles")


@router.post("", status_code=201, response_model=ArticleOut)
async def post_article(new: NewArticle, session: Session) -> Article:
    """Post an article, unless there is one that is nearly the same."""
    if await session.get(Author, new.author_id) is None:
        raise HTTPException(404, "no such author")
    article = Article(**new.model_dump(), fingerprint=simhash(new.body))
    if (known := await claim(session, article.fingerprint)) is not None:
        raise HTTPException(409, f"nearly the same as article {known}")
    session.add(article)
    await session.commit()
    return article


async def claim(session: Session, fingerprint: int | None) -> int | None:
    """Return the id of an article that is near, or None. Who else claims what is near waits until we commit."""
    claimed = func.simsql.claim(cast("article", REGCLASS), literal(fingerprint, Fingerprint()))
    found = await session.scalar(select(claimed.table_valued(column("fingerprint", Fingerprint())).c.fingerprint))
    if found is None:
        return None
    # In a statement of its own, which sees what was committed while the one above waited.
    return await session.scalar(select(Article.id).where(Article.fingerprint == found).limit(1))


@router.get("/{article_id}", response_model=ArticleOut)
async def read_article(article_id: int, session: Session) -> Article:
    """Return an article."""
    article = await session.get(Article, article_id)
    if article is None:
        raise HTTPException(404, "no such article")
    return article


@router.get("/{article_id}/similar")
async def find_similar(
    article_id: int, session: Session, distance: Annotated[int, Query(ge=0, le=10)] = 7
) -> list[SimilarArticle]:
    """Return articles that are nearly the same, nearest first."""
    article = await read_article(article_id, session)
    nearest = near(Article.fingerprint, article.fingerprint, distance).where(Article.id != article_id).limit(100)
    return [
        SimilarArticle(id=other.id, title=other.title, distance=bits)
        for other, bits in await session.execute(nearest)
    ]
