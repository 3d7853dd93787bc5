"""What comes in and what goes out."""

from datetime import datetime

from pydantic import BaseModel, ConfigDict


class NewAuthor(BaseModel):
    """An author to be added."""

    name: str


class AuthorOut(NewAuthor):
    """An author."""

    model_config = ConfigDict(from_attributes=True)

    id: int


class NewArticle(BaseModel):
    """An article to be posted."""

    author_id: int
    title: str
    body: str


class ArticleOut(NewArticle):
    """An article."""

    model_config = ConfigDict(from_attributes=True)

    id: int
    posted_at: datetime


class SimilarArticle(BaseModel):
    """A similar article, and the similarity of the texts (0 to 1)."""

    id: int
    title: str
    similarity: float
