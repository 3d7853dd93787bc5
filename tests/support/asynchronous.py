"""The same work in an AsyncSession, through each driver that has one."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from sqlalchemy import URL, make_url
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

each_driver = pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])


def in_async_session(
    url: URL | str, driver: str, work: Callable[[AsyncSession], Awaitable[None]], **options: Any
) -> None:
    """Run `work(session)` with an engine of its own."""
    # An option of libpq, which asyncpg does without.
    url = make_url(url).difference_update_query(["client_encoding"])

    async def run() -> None:
        engine = create_async_engine(url.set(drivername=f"postgresql+{driver}"))
        try:
            async with AsyncSession(engine, **options) as session:
                await work(session)
        finally:
            await engine.dispose()

    asyncio.run(run())
