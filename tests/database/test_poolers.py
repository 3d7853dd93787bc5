"""Through PgBouncer, where consecutive transactions of a client run in different sessions."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import asyncpg
import pytest
from articles import create_articles
from pooler import SETTINGS, find_pgbouncer, run_pooler
from program import run
from sqlalchemy import create_engine, make_url, text
from sqlalchemy.ext.asyncio import create_async_engine

from simsql.database import SearchIndex, open_engine
from simsql.database.connect import one_line

pytestmark = pytest.mark.skipif(not find_pgbouncer(), reason="PgBouncer is not installed (package pgbouncer)")

PEOPLE = 16
CLAIM = (
    "INSERT INTO article (fingerprint) SELECT {0} WHERE NOT EXISTS (SELECT FROM simsql.claim('article', {0}))"
    " RETURNING id"
)


@pytest.fixture(scope="module")
def pooler(server):
    with run_pooler(server.cluster.data_folder) as running:
        yield running


@pytest.fixture
def pooled(pooler, database_url):
    """The URL of the test's database through the pooler, for any driver."""
    return pooler.url(make_url(database_url)).difference_update_query(
        ["client_encoding", "hostaddr", "options", "target_session_attrs"]
    )


@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
def test_of_claims_at_once_one_succeeds(pooled, connection, driver):
    create_articles(connection, [5])
    url = pooled.set(drivername=f"postgresql+{driver}")
    options = {"connect_args": SETTINGS[driver], "pool_size": PEOPLE}
    statements = [CLAIM.format(2**40 + (1 << person)) for person in range(PEOPLE)]
    if driver == "psycopg":
        engine = create_engine(url, **options)

        def claim(statement):
            with engine.begin() as transaction:
                return transaction.execute(text(statement)).all()

        with ThreadPoolExecutor(PEOPLE) as threads:
            claimed = list(threads.map(claim, statements))
        engine.dispose()
    else:

        async def main():
            engine = create_async_engine(url, **options)

            async def claim(statement):
                async with engine.begin() as transaction:
                    return (await transaction.execute(text(statement))).all()

            claimed = await asyncio.gather(*map(claim, statements))
            await engine.dispose()
            return claimed

        claimed = asyncio.run(main())
    assert sorted(map(len, claimed)) == [0] * (PEOPLE - 1) + [1]


def test_asyncpg_alone(pooled, connection):
    create_articles(connection, range(0, 64, 8))

    async def main():
        where = {"host": pooled.query["host"], "port": pooled.query["port"], "user": "postgres"}
        pool = await asyncpg.create_pool(
            **where, database=pooled.database, statement_cache_size=0, min_size=8, max_size=8
        )

        async def search(fingerprint):
            async with pool.acquire() as client, client.transaction():
                return await client.fetch("SELECT * FROM simsql.near('article', $1, 0)", fingerprint)

        found = await asyncio.gather(*map(search, range(64)))
        await pool.close()
        return found

    assert [[tuple(row) for row in rows] for rows in asyncio.run(main())] == [
        [] if fingerprint % 8 else [(fingerprint, 0)] for fingerprint in range(64)
    ]


def test_pooling_of_statements_is_refused_with_a_reason(server, database_url, connection):
    create_articles(connection, [5])
    with run_pooler(server.cluster.data_folder, "statement") as pooler:
        url = pooler.url(database_url)
        run("near", "article", "--fingerprint", 5, "--database", url.render_as_string()).failed(
            1, "transaction blocks not allowed in statement pooling mode"
        )
        engine = open_engine(url, prepare=False)
        with pytest.raises(Exception, match="statement pooling") as refused:
            SearchIndex(engine, "article").near(5)
        assert "transaction blocks not allowed in statement pooling mode" in one_line(refused.value)
        engine.dispose()
