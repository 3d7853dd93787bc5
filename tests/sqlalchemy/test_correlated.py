"""Searches for the fingerprints of another table: a LATERAL join, which is fast under row-level security too."""

import oracle
import pytest
from sqlalchemy import ForeignKey, func, insert, select, text, true
from sqlalchemy.exc import SAWarning
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, aliased, mapped_column

from simsql.database.bigint import from_bigint
from simsql.sqlalchemy import Fingerprint, SimhashIndex, claim, near

FINGERPRINTS = oracle.clustered(300, seed=6)
QUERIES = [*FINGERPRINTS[::30], oracle.clustered(1, seed=99)[0], None]


class Base(DeclarativeBase):
    pass


class Article(Base):
    __tablename__ = "article"
    id: Mapped[int] = mapped_column(primary_key=True)
    hidden: Mapped[bool]
    fingerprint: Mapped[int | None] = mapped_column(Fingerprint())
    __table_args__ = (SimhashIndex("fingerprint", distance=3),)


class Letter(Base):
    """Called like the function, with a subclass in a table of its own."""

    __tablename__ = "near"
    id: Mapped[int] = mapped_column(primary_key=True)
    kind: Mapped[str]
    fingerprint: Mapped[int | None] = mapped_column("fp", Fingerprint())
    __mapper_args__ = {"polymorphic_on": "kind", "polymorphic_identity": "letter"}  # noqa: RUF012


class Postcard(Letter):
    __tablename__ = "postcard"
    id: Mapped[int] = mapped_column(ForeignKey("near.id"), primary_key=True)
    place: Mapped[str | None]
    __mapper_args__ = {"polymorphic_identity": "postcard"}  # noqa: RUF012


@pytest.fixture
def session(session):
    rows = [{"id": n, "hidden": n % 3 == 0, "fingerprint": from_bigint(f)} for n, f in enumerate(FINGERPRINTS)]
    session.execute(insert(Article), rows)
    queries = [None if query is None else from_bigint(query) for query in QUERIES]
    session.add_all([Postcard(id=n, fingerprint=query) for n, query in enumerate(queries)])
    session.execute(text("ALTER TABLE article ENABLE ROW LEVEL SECURITY"))
    session.execute(text("CREATE POLICY visible ON article USING (NOT hidden)"))
    session.commit()
    return session


def matches(query, within, sees_all):
    """(distance, id) of the rows that are near."""
    return [
        (oracle.distance(f, query), n)
        for n, f in enumerate(FINGERPRINTS)
        if query is not None and (sees_all or n % 3) and oracle.distance(f, query) <= within
    ]


def statements():
    """Every form; its rows are (id of the query, id of the article, distance). And whether it is a LEFT JOIN."""
    core, other = Article.__table__.c, aliased(Letter)
    found = near(Article.fingerprint, Letter.fingerprint, 8).lateral()
    yield select(Letter.id, found.c.id, found.c.distance).join(found, true()), False
    yield select(Letter.id, found.c.id, found.c.distance).outerjoin(found, true()), True
    article = aliased(Article, found)
    loaded = select(Letter, article, found.c.distance).join(article, true())
    yield loaded.with_only_columns(Letter.id, article.id, found.c.distance), False
    found = near(aliased(Article).fingerprint, other.fingerprint, 8).lateral("found")
    yield select(other.id, found.c.id, found.c.distance).join(found, true()), False
    found = near(Article.fingerprint, Postcard.fingerprint, 8).lateral()
    yield select(Postcard.id, found.c.id, found.c.distance).join(found, true()), False
    numbers = near(core.fingerprint, Letter.fingerprint, 8).lateral()
    joined = select(Letter.id, Article.id, numbers.c.distance).select_from(Letter).join(numbers, true())
    yield joined.join(Article, Article.fingerprint == numbers.c.fingerprint), False
    for query in (Letter, other, Postcard):
        statement = near(Article.fingerprint, query.fingerprint, 8).add_columns(query.id)
        yield statement.with_only_columns(query.id, Article.id, statement.selected_columns.distance), False


@pytest.mark.every_version
def test_a_lateral_join_searches_once_for_each_row(session, new_role):
    role = new_role()
    number = func.generate_series(1000, 21_000).column_valued("number")
    random = select(number, True, func.hashint8extended(number, 7))
    session.execute(insert(Article.__table__).from_select(["id", "hidden", "fingerprint"], random))
    session.execute(text("ANALYZE"))
    session.execute(text(f"GRANT SELECT ON article, near, postcard TO {role}"))
    session.commit()
    for sees_all in (True, False):
        if not sees_all:
            session.execute(text(f"SET LOCAL ROLE {role}"))
        for number, (statement, is_outer) in enumerate(statements()):
            expected = [
                (n, found, distance)
                for n, query in enumerate(QUERIES)
                for distance, found in matches(query, 8, sees_all) or [(None, None)] * is_outer
            ]
            found = [tuple(row) for row in session.execute(statement)]
            assert sorted(found, key=str) == sorted(expected, key=str), (sees_all, number)
            compiled = statement.compile(session.connection(), compile_kwargs={"literal_binds": True})
            lines = session.connection().exec_driver_sql(f"EXPLAIN {compiled}").scalars().all()
            plan = "\n".join(lines)
            assert "Function Scan on near" in plan, f"{number}: {plan}"
            assert "ix_article_fingerprint" in plan, f"{number}: {plan}"
            assert "Seq Scan on article" not in plan, f"{number}: {plan}"
            assert "SubPlan" not in plan, f"{number}: {plan}"
        # Constants are looked up in the B-tree as well.
        constant = select(Article.id).where(Article.fingerprint.near(from_bigint(QUERIES[0]), 8))
        assert sorted(session.scalars(constant)) == sorted(n for _, n in matches(QUERIES[0], 8, sees_all))
        compiled = constant.compile(session.connection(), compile_kwargs={"literal_binds": True})
        plan = "\n".join(session.connection().exec_driver_sql(f"EXPLAIN {compiled}").scalars().all())
        assert "ix_article_fingerprint" in plan, plan
        assert "Seq Scan on article" not in plan, plan


def test_columns_are_added_to_a_search_of_a_table(session):
    letters, articles = Letter.__table__, Article.__table__
    found = session.execute(near(articles.c.fingerprint, letters.c.fp, 8).add_columns(letters.c.id)).all()
    expected = {
        (from_bigint(FINGERPRINTS[m]), distance, n)
        for n, query in enumerate(QUERIES)
        for distance, m in matches(query, 8, True)
    }
    assert {tuple(row) for row in found} == expected


def test_the_nearest_of_each_row(session):
    nearest = near(Article.fingerprint, Letter.fingerprint, 8).limit(1).lateral()
    statement = select(Letter.id, nearest.c.distance).outerjoin(nearest, true()).order_by(Letter.id)
    expected = [(n, min((d for d, _ in matches(query, 8, True)), default=None)) for n, query in enumerate(QUERIES)]
    assert session.execute(statement).all() == expected
    # The rows of the entity, and the entity that was found.
    article = aliased(Article, nearest)
    for letter, found in session.execute(select(Letter, article).join(article, true())):
        assert (type(letter), type(found), found.fingerprint) == (Postcard, Article, letter.fingerprint)


def test_a_condition_on_another_table_warns(session: Session):
    """It finds the same, and in EXISTS or an UPDATE nothing else will do."""
    expected = {(n, found) for n, query in enumerate(QUERIES) for _, found in matches(query, 8, True)}
    with pytest.warns(
        SAWarning, match=r"slow under row-level security.*near\(Article.fingerprint, Other"
    ) as warned:
        condition = Article.fingerprint.near(Letter.fingerprint, 8)
    assert warned[0].filename == __file__
    found = session.execute(select(Letter.id, Article.id).join(Article, condition)).all()
    assert {tuple(row) for row in found} == expected
    found = session.scalars(select(Letter.id).where(select(Article).where(condition).exists())).all()
    assert set(found) == {n for n, _ in expected}
    # A subquery without a reference to the statement around it is evaluated once.
    one = select(Letter.fingerprint).where(Letter.id == 0).scalar_subquery()
    found = session.scalars(select(Article.id).where(Article.fingerprint.near(one, 8))).all()
    assert set(found) == {m for n, m in expected if n == 0}


def test_a_claim_for_each_row(session):
    found = claim(Article.fingerprint, Letter.fingerprint, 0).lateral()
    statement = select(Letter.id, found.c.distance).join(found, true())
    expected = {(n, 0) for n, query in enumerate(QUERIES) if matches(query, 0, True)}
    assert {tuple(row) for row in session.execute(statement)} == expected
