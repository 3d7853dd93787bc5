"""Models of tables that Citus distributes, also where a statement reads a single shard."""

import oracle
import pytest
from sqlalchemy import delete, insert, or_, select, text, update
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, aliased, mapped_column

from simsql.database.bigint import from_bigint, to_bigint
from simsql.sqlalchemy import Fingerprint, SimhashIndex, claim, clusters, near, near_many, pairs

FINGERPRINTS = [*oracle.clustered(60, seed=8), *oracle.clustered(60, seed=8)[:30]]
TENANTS = 3
SCOPE = {"tenant": 1}


class Base(DeclarativeBase):
    pass


class Article(Base):
    __tablename__ = "article"
    tenant: Mapped[int] = mapped_column(primary_key=True)
    id: Mapped[int] = mapped_column(primary_key=True)
    title: Mapped[str | None]
    fingerprint: Mapped[int | None] = mapped_column(Fingerprint())
    __table_args__ = (SimhashIndex("fingerprint", scope=["tenant"], storage="expression"),)


class Word(Base):
    __tablename__ = "word"
    id: Mapped[int] = mapped_column(primary_key=True)
    fingerprint: Mapped[int | None] = mapped_column(Fingerprint())
    __table_args__ = (SimhashIndex("fingerprint", storage="expression"),)


ROWS = {number: (number % TENANTS, fingerprint) for number, fingerprint in enumerate(FINGERPRINTS)}
QUERY = from_bigint(ROWS[1][1])


@pytest.fixture
def server(citus):
    return citus


@pytest.fixture
def session(database):
    Base.metadata.create_all(database)
    with Session(database) as session:
        for table, column in (("article", "tenant"), ("word", "id")):
            session.execute(text(f"SELECT create_distributed_table('{table}', '{column}')"))
            session.execute(text(f"SELECT * FROM simsql.repair('{table}')"))
        rows = [
            {"id": number, "tenant": tenant, "fingerprint": from_bigint(fingerprint)}
            for number, (tenant, fingerprint) in ROWS.items()
        ]
        session.execute(insert(Article), rows)
        session.execute(insert(Word), [{"id": row["id"], "fingerprint": row["fingerprint"]} for row in rows])
        session.commit()
        yield session


def matches(query: int, within: int) -> list[tuple[int, int]]:
    """Return (id, distance) of the rows in the scope, found by brute force."""
    rows = [(number, oracle.distance(found, query)) for number, (tenant, found) in ROWS.items() if tenant == 1]
    return sorted((number, distance) for number, distance in rows if distance <= within)


def test_searches_within_one_shard(session):
    queries = [from_bigint(fingerprint) for tenant, fingerprint in ROWS.values() if tenant == 1]
    for within in (0, 3, 7, 10):
        for query in (QUERY, 0):
            condition = Article.fingerprint.near(query, within, scope=SCOPE)
            rows = session.execute(near(Article.fingerprint, query, within, scope=SCOPE))
            found = sorted((article.id, distance) for article, distance in rows)
            assert found == matches(to_bigint(query), within)
            ids = session.scalars(select(Article.id).where(condition))
            assert sorted(ids) == [number for number, _ in found]
        rows = session.execute(near_many(Article.fingerprint, queries, within, scope=SCOPE))
        assert sorted((query, article.id, distance) for query, article, distance in rows) == sorted(
            (query, *match) for query in set(queries) for match in matches(to_bigint(query), within)
        )


def test_other_statements_that_read_one_shard(session):
    in_scope = [fingerprint for tenant, fingerprint in ROWS.values() if tenant == 1]
    ids = {number for number, _ in matches(ROWS[1][1], 7)}
    condition = Article.fingerprint.near(QUERY, 7, scope=SCOPE)
    assert session.execute(claim(Article.fingerprint, QUERY, 7, scope=SCOPE)).all() == [(QUERY, 0)]
    session.commit()
    assert len(session.execute(pairs(Article.fingerprint, 7, scope=SCOPE)).all()) == len(oracle.pairs(in_scope, 7))
    groups = session.execute(clusters(Article.fingerprint, 7, scope=SCOPE)).all()
    assert len(groups) == sum(in_scope.count(fingerprint) for _, fingerprint in oracle.clusters(in_scope, 7))
    other = aliased(Article)
    beside = select(other.id).where(or_(other.fingerprint.near(QUERY, 7, scope=SCOPE), other.id == 7))
    assert set(session.scalars(beside.where(other.tenant == 1))) == ids | {7}
    session.execute(update(Article).where(condition).values(title="near"))
    assert set(session.scalars(select(Article.id).where(Article.title == "near"))) == ids
    session.execute(delete(Article).where(condition))
    assert set(session.scalars(select(Article.id))) == ROWS.keys() - ids


def test_a_condition_on_the_distribution_column_beside_the_search(session):
    for number in (1, 2):
        found = session.scalars(select(Word.id).where(Word.fingerprint.near(QUERY, 3), Word.id == number)).all()
        expected = oracle.distance(ROWS[number][1], ROWS[1][1]) <= 3
        assert found == [number] * expected
        statement = near(Word.fingerprint, QUERY, 3).where(Word.id == number)
        assert len(session.execute(statement).all()) == expected
