"""Authors."""

from fastapi import APIRouter, HTTPException
from sqlalchemy.exc import IntegrityError

from app.database import Session
from app.models import Author
from app.schemas import AuthorOut, NewAuthor

router = APIRouter(prefix="/authors")


@router.post("", status_code=201, response_model=AuthorOut)
async def add_author(new: NewAuthor, session: Session) -> Author:
    """Add an author."""
    author = Author(name=new.name)
    session.add(author)
    try:
        await session.commit()
    except IntegrityError as error:
        raise HTTPException(409, "there is an author of this name") from error
    return author
