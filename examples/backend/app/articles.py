"""Articles."""

from typing import Annotated

from fastapi import APIRouter, HTTPException, Query
from simsql.sqlalchemy import claim, near
from sqlalchemy import select

from app.database import Session
from app.models import Article, Author
from app.schemas import ArticleOut, NewArticle, SimilarArticle

router = APIRouter(prefix="/articles")


@router.post("", status_code=201, response_model=ArticleOut)
async def post_article(new: NewArticle, session: Session) -> Article:
    """Post an article, unless there is one that is nearly the same."""
    if await session.get(Author, new.author_id) is None:
        raise HTTPException(404, "no such author")
    # Concurrent claims of similar texts wait until this transaction ends.
    found = await session.scalar(claim(Article.fingerprint, text=new.body))
    if found is not None:
        # A separate statement sees rows that were committed while the claim waited.
        known = await session.scalar(select(Article.id).where(Article.fingerprint == found).limit(1))
        raise HTTPException(409, f"nearly the same as article {known}")
    article = Article(**new.model_dump())
    session.add(article)
    await session.commit()
    return article


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
