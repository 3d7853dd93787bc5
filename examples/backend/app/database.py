"""Sessions with the database that DATABASE_URL names."""

import os
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import Depends
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine

engine = create_async_engine(os.environ["DATABASE_URL"])
new_session = async_sessionmaker(engine, expire_on_commit=False)


async def open_session() -> AsyncIterator[AsyncSession]:
    """Open a session for one request. What the request has not committed is rolled back."""
    async with new_session() as session:
        yield session


Session = Annotated[AsyncSession, Depends(open_session)]
