"""Articles."""

from typing import Annotated

from fastapi import APIRouter, HTTPException, Query
from simsql.sqlalchemy import claim, similar
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
    article_id: int, session: Session, similarity: Annotated[float, Query(ge=0.5, le=1)] = 0.6
) -> list[SimilarArticle]:
    """Return articles with a similar text, most similar first."""
    article = await read_article(article_id, session)
    others = Article.id != article_id
    found = await session.run_sync(similar, Article.fingerprint, article.body, similarity, where=others)
    return [SimilarArticle(id=other.id, title=other.title, similarity=share) for other, share in found[:100]]
