"""The service: `uvicorn app.main:app`."""

from fastapi import FastAPI
from sqlalchemy import text

from app import articles, authors
from app.database import Session

app = FastAPI(title="Articles")
app.include_router(authors.router)
app.include_router(articles.router)


@app.get("/health")
async def check_health(session: Session) -> dict[str, str]:
    """Say whether the service reaches its database."""
    await session.execute(text("SELECT 1"))
    return {"status": "ok"}
