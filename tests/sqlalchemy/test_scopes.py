"""Searches within a scope: declared in the model, given by values of any type, equal to brute force."""

import asyncio
import datetime
import enum
import uuid
from functools import partial

import oracle
import pytest
from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Date,
    Enum,
    ForeignKey,
    Integer,
    MetaData,
    Table,
    Text,
    Uuid,
    insert,
    inspect,
    make_url,
    select,
    true,
)
from sqlalchemy.exc import ArgumentError, DBAPIError, SAWarning
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, aliased, mapped_column

from simsql.database.bigint import from_bigint, to_bigint
from simsql.sqlalchemy import Fingerprint, SimhashIndex, clusters, near, near_many, pairs

# Scopes share fingerprints.
FINGERPRINTS = [*oracle.clustered(60, seed=8), *oracle.clustered(60, seed=8)[:30]]
TENANTS = 3


class Language(enum.Enum):
    ENGLISH = "en"
    GERMAN = "de"


class Base(DeclarativeBase):
    pass


class Tenant(Base):
    __tablename__ = "tenant"
    id: Mapped[int] = mapped_column(primary_key=True)


class Article(Base):
    __tablename__ = "article"
    id: Mapped[int] = mapped_column(primary_key=True)
    tenant_id: Mapped[int | None] = mapped_column("Tenant's", ForeignKey(Tenant.id))
    language: Mapped[Language] = mapped_column(Enum(Language, native_enum=False))
    fingerprint: Mapped[int | None] = mapped_column(Fingerprint())
    __table_args__ = (SimhashIndex("fingerprint", distance=5, scope=["Tenant's", "language"]),)


@pytest.fixture
def session(session):
    session.add_all([Tenant(id=n) for n in range(TENANTS)])
    session.flush()
    for number, fingerprint in enumerate(FINGERPRINTS):
        tenant, language = scope_of(number)
        session.add(Article(id=number, tenant_id=tenant, language=language, fingerprint=from_bigint(fingerprint)))
    session.commit()
    return session


def scope_of(number):
    tenant = number % (TENANTS + 1)
    return None if tenant == TENANTS else tenant, list(Language)[number // 7 % 2]


def within(tenant, language):
    return {n: f for n, f in enumerate(FINGERPRINTS) if scope_of(n) == (tenant, language)}


def test_a_scoped_search_equals_brute_force_in_its_scope(session):
    assert [i.scope for i in SimhashIndex.of(Article.__table__)] == [("Tenant's", "language")]
    (btree,) = inspect(session.connection()).get_indexes("article")
    assert btree["column_names"] == ["Tenant's", "language", "fingerprint"]
    for tenant in range(TENANTS):
        for language in Language:
            scope, rows = {"Tenant's": tenant, "language": language}, within(tenant, language)
            for query in (0, 2**64 - 1, from_bigint(FINGERPRINTS[7])):
                for bits in (0, 5, 20, 64):
                    near_ids = sorted(n for n, f in rows.items() if oracle.distance(f, query) <= bits)
                    found = session.execute(near(Article.fingerprint, query, bits, scope=scope)).all()
                    assert sorted(article.id for article, _ in found) == near_ids
                    condition = Article.fingerprint.near(query, bits, scope=scope)
                    assert sorted(session.scalars(select(Article.id).where(condition))) == near_ids
                    found = session.execute(near(Article.__table__.c.fingerprint, query, bits, scope=scope)).all()
                    assert [(to_bigint(f), d) for f, d in found] == oracle.near(
                        rows.values(), to_bigint(query), bits
                    )
            found = session.execute(pairs(Article.fingerprint, 20, scope=scope)).all()
            assert sorted((to_bigint(a), to_bigint(b), d) for a, b, d in found) == oracle.pairs(rows.values(), 20)
            found = session.execute(clusters(Article.fingerprint, 20, scope=scope)).all()
            members = oracle.clusters(list(rows.values()), 20)
            assert sorted(article.id for _, article in found) == sorted(
                n for n, f in rows.items() if f in {member for _, member in members}
            )
            many = session.execute(near_many(Article.fingerprint, [0, 5], 20, scope=scope)).all()
            assert sorted((query, article.id) for query, article, _ in many) == sorted(
                (query, n) for query in (0, 5) for n, f in rows.items() if oracle.distance(f, query) <= 20
            )


def test_no_function_of_another_role_takes_the_values_of_a_scope(session):
    """PostgreSQL would prefer a function for these types to its own, which takes any."""
    session.connection().exec_driver_sql(
        "CREATE FUNCTION public.jsonb_build_object(text, integer, text, varchar) RETURNS jsonb LANGUAGE plpgsql"
        " AS $$ BEGIN RAISE 'called'; END $$"
    )
    condition = Article.fingerprint.near(0, 64, scope={"Tenant's": 1, "language": Language.GERMAN})
    assert sorted(session.scalars(select(Article.id).where(condition))) == sorted(within(1, Language.GERMAN))
    session.rollback()


def test_a_join_takes_the_scope_of_each_row(session):
    """Rows without a tenant are in no scope, and find nothing."""
    scope = {"Tenant's": Article.tenant_id, "language": Article.language}
    other = aliased(Article)
    of_class = near(other.fingerprint, Article.fingerprint, 20, scope=scope)
    found = of_class.lateral()
    statements = [
        of_class.add_columns(Article.id).with_only_columns(Article.id, other.id).where(Article.id < other.id),
        select(Article.id, found.c.id).join(found, Article.id < found.c.id),
    ]
    expected = {
        (m, n)
        for m, f in enumerate(FINGERPRINTS)
        for n, g in enumerate(FINGERPRINTS)
        if m < n and scope_of(m) == scope_of(n) and scope_of(m)[0] is not None and oracle.distance(f, g) <= 20
    }
    assert expected
    for statement in statements:
        assert {tuple(row) for row in session.execute(statement)} == expected
    alone = set(range(len(FINGERPRINTS))) - {m for m, _ in expected}
    outer = select(Article.id, found.c.id).outerjoin(found, Article.id < found.c.id)
    assert {tuple(row) for row in session.execute(outer)} == expected | {(m, None) for m in alone}
    with pytest.warns(SAWarning, match="slow under row-level security"):
        condition = other.fingerprint.near(Article.fingerprint, 20, scope=scope)
    statement = select(Article.id, other.id).join(other, condition).where(Article.id < other.id)
    statement = statement.where(Article.tenant_id.is_not(None))
    assert {tuple(row) for row in session.execute(statement)} == expected


def test_a_scope_is_not_taken_from_the_searched_rows(session):
    scope = {"Tenant's": Article.tenant_id, "language": Language.GERMAN}
    core = Article.__table__.c
    for search in (Article.fingerprint.near, partial(near, Article.fingerprint), core.fingerprint.near):
        with pytest.raises(ArgumentError, match=r"scope: \"Tenant's\" is a column of the searched rows.*lateral"):
            search(0, scope=scope)
    # One search for each tenant.
    found = near(Article.fingerprint, 0, 64, scope=scope | {"Tenant's": Tenant.id}).lateral()
    statement = select(Tenant.id, found.c.id).join(found, true())
    expected = {(tenant, n) for tenant in range(TENANTS) for n in within(tenant, Language.GERMAN)}
    assert {tuple(row) for row in session.execute(statement)} == expected


def test_a_subquery_has_to_have_the_columns_of_the_scope(session):
    scope = {"Tenant's": 1, "language": Language.GERMAN}
    table = Article.__table__
    whole, part = select(table).subquery(), select(table.c.id, table.c.fingerprint).subquery()
    found = session.scalars(select(whole.c.id).where(whole.c.fingerprint.near(0, 64, scope=scope))).all()
    assert sorted(found) == sorted(within(1, Language.GERMAN))
    with pytest.raises(ArgumentError, match='lacks the column "Tenant\'s" of article'):
        part.c.fingerprint.near(0, 64, scope=scope)


def test_a_scope_has_to_be_given_in_full(session):
    with pytest.raises(ArgumentError, match="'language' must not be None"):
        near(Article.fingerprint, 0, scope={"Tenant's": 1, "language": None})
    for scope in (None, {}, {"Tenant's": 1}):
        with pytest.raises(DBAPIError, match="scope"):
            session.execute(near(Article.fingerprint, 0, scope=scope))
        session.rollback()


VALUES = {
    BigInteger: 2**40,
    Text: "it's",
    Boolean: True,
    Uuid: uuid.UUID(int=5),
    Date: datetime.date(2024, 2, 29),
}


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
def test_a_scope_may_have_any_of_these_types(database_url, driver):
    metadata = MetaData()
    tables = {
        Table(
            type_.__name__,
            metadata,
            Column("owner", type_),
            Column("fp", Fingerprint()),
            SimhashIndex("fp", scope=["owner"]),
        ): value
        for type_, value in VALUES.items()
    }
    # An option of libpq, which asyncpg does without.
    url = make_url(database_url).difference_update_query(["client_encoding"])

    async def run():
        engine = create_async_engine(url.set(drivername=f"postgresql+{driver}"), isolation_level="READ COMMITTED")
        async with engine.connect() as connection:
            await connection.run_sync(metadata.create_all)
            for table, value in tables.items():
                await connection.execute(insert(table).values(owner=value, fp=2**64 - 1))
                found = await connection.execute(near(table.c.fp, 2**64 - 1, 0, scope={"owner": value}))
                assert found.all() == [(2**64 - 1, 0)], table.name
            if driver == "psycopg":  # asyncpg takes no text for a number
                owners = next(table for table in tables if table.name == "BigInteger")
                as_text = {"owner": str(tables[owners])}
                condition = owners.c.fp.near(2**64 - 1, 0, scope=as_text)
                assert (await connection.execute(select(owners.c.fp).where(condition))).all() == [(2**64 - 1,)]
        await engine.dispose()

    asyncio.run(run())


def test_core_tables_are_scoped_by_keys(database):
    table = Table(
        "thing",
        MetaData(),
        Column("id", Integer, primary_key=True),
        Column("on", Date, key="day"),
        Column("fp", Fingerprint()),
        SimhashIndex("fp", scope=["day"]),
    )
    day = datetime.date(2025, 1, 1)
    with database.begin() as connection:
        table.create(connection)
        connection.execute(insert(table).values(day=day, fp=5))
        assert connection.execute(near(table.c.fp, 5, 0, scope={"day": day})).all() == [(5, 0)]
        assert connection.execute(near(table.c.fp, 5, 0, scope={"day": datetime.date(2025, 1, 2)})).all() == []
