"""maintain verifies and vacuums what needs it, goes on after failures, and says in one error what is wrong."""

import random

import pytest
from articles import count_keys, create_articles, create_index, create_table, missing_keys
from internals import set_batch_size
from psycopg import errors
from upkeep import notices, stored_fingerprints

pytestmark = pytest.mark.oldest_version

MAINTAIN = "CALL simsql.maintain()"
FINGERPRINTS = [random.Random(number).getrandbits(64) - 2**63 for number in range(300)]
FLUSH = "SELECT pg_stat_force_next_flush()"


def flush(connection):
    """Let the statistics know what this session has written."""
    if connection.info.server_version >= 150000:
        connection.execute(FLUSH)


def summary(connection, call=MAINTAIN):
    """What a call says at its end."""
    heard = notices(connection)
    connection.execute(call)
    return heard[-1].removeprefix("simsql.maintain: ")


@pytest.fixture
def articles(connection):
    """An index whose keys are superfluous by half, with batches of fifty keys."""
    create_articles(connection, FINGERPRINTS)
    connection.execute("DELETE FROM article WHERE id % 2 = 0")
    flush(connection)
    set_batch_size(connection, 50)
    return connection


def live(connection):
    return sorted(row for (row,) in connection.execute("SELECT fingerprint FROM article WHERE fingerprint IS NOT NULL"))


def test_an_index_is_vacuumed_if_it_needs_it(articles):
    hint = "50% of the keys are superfluous: CALL simsql.maintain();"
    assert articles.execute("SELECT hint FROM simsql.indexes").fetchone() == (hint,)
    assert summary(articles) == "indexes verified: 1, vacuumed: 1, skipped: 0"
    assert stored_fingerprints(articles) == [live(articles)] * 4
    flush(articles)
    assert articles.execute("SELECT hint FROM simsql.indexes").fetchone() == (None,)
    assert summary(articles) == "indexes verified: 1, vacuumed: 0, skipped: 0"
    articles.execute("SELECT simsql.drop_index('article')")
    assert summary(articles) == "indexes verified: 0, vacuumed: 0, skipped: 0"
