"""Similar texts in models: similar_candidates as a statement, and similar, which compares the texts."""

import pytest
from asynchronous import each_driver, in_async_session
from similar_texts import edited_texts, most_similar
from sqlalchemy import ForeignKey, Text, func, select, text, true
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.orm import DeclarativeBase, Mapped, aliased, joinedload, mapped_column, relationship

from simsql import DEFAULT_RECIPE, Recipe, estimate_similarity, sketch
from simsql.database import SearchIndex
from simsql.database.similar import RecallWarning
from simsql.hamming import Design
from simsql.sqlalchemy import Fingerprint, SimhashIndex, Sketch, similar, similar_candidates

BODIES = edited_texts()
WANTED = BODIES[5]
LETTERS = "characters3-log-1"


class Base(DeclarativeBase):
    pass


class Author(Base):
    __tablename__ = "author"
    id: Mapped[int] = mapped_column(primary_key=True)
    articles: Mapped[list["Article"]] = relationship(back_populates="author")


class Article(Base):
    __tablename__ = "article"
    id: Mapped[int] = mapped_column(primary_key=True)
    author_id: Mapped[int] = mapped_column(ForeignKey(Author.id))
    content: Mapped[str | None] = mapped_column("body", Text, deferred=True)
    fingerprint: Mapped[int | None] = mapped_column(Fingerprint(source="content"))
    author: Mapped[Author] = relationship(back_populates="articles")
    __table_args__ = (SimhashIndex("fingerprint", distance=7),)


class Page(Base):
    """With a sketch, in a scope, and in an index with a design of its own."""

    __tablename__ = "page"
    id: Mapped[int] = mapped_column(primary_key=True)
    tenant: Mapped[int]
    body: Mapped[str]
    title: Mapped[str | None]
    fingerprint: Mapped[int | None] = mapped_column(Fingerprint(source="body"))
    sketch: Mapped[int | None] = mapped_column(Sketch(source="body"))
    both: Mapped[int | None] = mapped_column(Fingerprint(source={"title": 3, "body": 1}))
    picture: Mapped[int | None] = mapped_column(Fingerprint(recipe=Recipe.from_id("phash1-set-1")))
    free: Mapped[int | None] = mapped_column(Fingerprint(source="title"))
    letters: Mapped[int | None] = mapped_column(Fingerprint(source="body", recipe=Recipe.from_id(LETTERS)))
    __table_args__ = (
        SimhashIndex("fingerprint", scope=["tenant"], design=Design(5, 2)),
        SimhashIndex("both"),
        SimhashIndex("picture"),
        SimhashIndex("letters"),
    )


@pytest.fixture
def session(session):
    session.add_all([Author(id=1), Author(id=2)])
    session.flush()
    session.add_all(Article(author_id=1 + number % 2, content=body) for number, body in enumerate(BODIES))
    session.add(Article(author_id=1, content=None))
    for tenant in (1, 2):
        session.add_all(Page(tenant=tenant, body=body, title=body[:20]) for body in BODIES)
    session.commit()
    session.expunge_all()
    return session


def test_similar_finds_the_entities_whose_texts_are_similar(session):
    for least in (0.5, 0.6, 0.8):
        expected = most_similar(WANTED, BODIES, least)
        found = similar(session, Article.fingerprint, WANTED.upper(), least)
        assert [(article.content, value) for article, value in found] == expected
        assert similar(session, Article.fingerprint, {"content": WANTED}, least, limit=2) == found[:2]
        index = SearchIndex(session.connection(), "article")
        rows = [(row.row["id"], row.similarity) for row in index.similar(WANTED, least)]
        assert sorted(rows) == sorted((article.id, value) for article, value in found)
    assert len(expected) == 2
    for nothing in ("", "?!", {"content": None}):
        assert similar(session, Article.fingerprint, nothing) == []


def test_similar_loads_entities_with_conditions_and_options(session):
    found = similar(
        session,
        aliased(Article, name="other").fingerprint,
        WANTED,
        where=[text("other.author_id = 2")],
        options=[joinedload("*")],
    )
    session.expunge_all()
    assert similar(session, Article.fingerprint, WANTED, where=Article.author_id == 2)[0][0].author_id == 2
    expected = {body for body, _ in most_similar(WANTED, BODIES[1::2], 0.6)}
    assert len(found) == len(expected) > 0
    assert {article.author.id for article, _ in found} == {2}


def test_candidates_are_rows_of_a_statement(session):
    statement = similar_candidates(Article.fingerprint, WANTED)
    rows = session.execute(statement).all()
    assert statement.selected_columns.keys()[-2:] == ["distance", "cost"]
    assert [(cost, distance) for _, distance, cost in rows] == sorted((c, d) for _, d, c in rows)
    assert {body for body, _ in most_similar(WANTED, BODIES, 0.6)} <= {article.content for article, *_ in rows}
    table = Article.__table__
    in_table = session.execute(similar_candidates(table.c.fingerprint, WANTED)).all()
    assert {tuple(row) for row in in_table} == {(article.fingerprint, *rest) for article, *rest in rows}
    # Pages, conditions, joins.
    assert session.execute(statement.offset(1).limit(2)).all() == rows[1:3]
    of_one = statement.join(Author).where(Author.id == 1)
    assert session.execute(of_one).all() == [row for row in rows if row[0].author_id == 1]
    found = statement.subquery()
    assert session.scalar(select(func.count()).select_from(found)) == len(rows)
    assert session.execute(similar_candidates(Article.fingerprint, "?!")).all() == []


def test_sketches_leave_out_texts_and_estimate_the_others(session):
    session.execute(text("UPDATE page SET sketch = NULL WHERE body = :body"), {"body": BODIES[6]})
    found = {}
    for tenant in (1, 2):
        statement = similar_candidates(Page.fingerprint, WANTED, 0.6, scope={"tenant": tenant})
        rows = session.execute(statement.order_by(None).order_by(text("estimate DESC NULLS LAST"))).all()
        assert {page.tenant for page, *_ in rows} == {tenant}
        for page, _, _, estimate in rows:
            expected = estimate_similarity(sketch(page.body), sketch(WANTED))
            assert estimate == (None if page.body == BODIES[6] else expected)
        found[tenant] = [(page.body, round(value, 9)) for page, value in alike(session, tenant)]
    assert found[1] == found[2] == [(body, round(value, 9)) for body, value in most_similar(WANTED, BODIES, 0.6)]
    # A wrong sketch hides a row.
    session.execute(text("UPDATE page SET sketch = ~sketch"))
    assert [page.body for page, _ in alike(session, 1)] == [BODIES[6]]


def test_features_of_characters_are_compared_without_sketches(session):
    session.execute(text("UPDATE page SET sketch = ~sketch"))
    found = similar(session, Page.letters, WANTED, where=[Page.tenant == 1])
    rows = SearchIndex(session.connection(), "page", "letters").similar(WANTED)
    assert [(page.id, value) for page, value in found] == [
        (row.row["id"], row.similarity) for row in rows if row.row["tenant"] == 1
    ]
    assert len(found) > 3


def alike(session, tenant):
    return similar(session, Page.fingerprint, WANTED, scope={"tenant": tenant})


def test_a_scope_can_come_from_another_row(session):
    tenants = select(Page.tenant).distinct().subquery()
    found = similar_candidates(Page.__table__.c.fingerprint, WANTED, scope={"tenant": tenants.c.tenant}).lateral()
    counted = select(tenants.c.tenant, func.count()).join(found, true()).group_by(tenants.c.tenant)
    rows = session.execute(counted.order_by(tenants.c.tenant)).all()
    assert [tenant for tenant, _ in rows] == [1, 2]
    assert rows[0][1] == rows[1][1] > 0


def test_several_sources_have_candidates(session):
    texts = {"title": WANTED[:20], "body": WANTED}
    rows = session.execute(similar_candidates(Page.both, texts)).all()
    assert rows[0][0].body == WANTED
    assert len(rows[0]) == 3
    with pytest.raises(ArgumentError, match=r"several sources.*compare the texts of similar_candidates"):
        similar(session, Page.both, texts)


def test_an_index_of_another_design_says_what_to_do(session):
    session.execute(text("SELECT simsql.drop_index('article', 'fingerprint')"))
    make = "SELECT simsql.create_index('article', 'fingerprint', {}, recipe => 'words12-log-1')"
    # As for a table of 100 million rows.
    session.execute(text(make.format("7, blocks => 3, lead => 1")))
    assert similar(session, Article.fingerprint, WANTED)[0][0].content == WANTED
    session.execute(text("SELECT simsql.drop_index('article', 'fingerprint')"))
    session.execute(text(make.format("7, blocks => 6, lead => 2")))
    with pytest.raises(
        DBAPIError, match=r"has the design \[6, 2, 0\], .* for \[4, 1, 0\] or \[3, 1, 0\](?s:.*)name the design in"
    ):
        similar(session, Article.fingerprint, WANTED)


def test_what_cannot_be_searched_is_refused(session):
    refused = {
        "search for .*article.fingerprint": lambda: similar_candidates(Article.content, "a"),
        "between 0 and 1, not 60": lambda: similar_candidates(Article.fingerprint, "a", 60),
        "only near finds": lambda: similar_candidates(Article.fingerprint, "a", recall=1),
        "has the recipe words12-log-1, not": lambda: similar_candidates(
            Article.fingerprint, "a", recipe=Recipe(shingles=(3,))
        ),
        "pictures, which have no similar texts: use near": lambda: similar_candidates(Page.picture, "a"),
        "no model declares the index": lambda: similar_candidates(Page.free, "a"),
        "has no column 'x'": lambda: similar_candidates(Page.fingerprint, "a", scope={"x": 1}),
        "pass an attribute": lambda: similar(session, Article.__table__.c.fingerprint, "a"),
        "several sources, so a single text": lambda: similar_candidates(Page.both, "a"),
    }
    for message, search in refused.items():
        with pytest.raises(ArgumentError, match=message):
            search()
    with pytest.warns(RecallWarning, match=r"not 0.9999") as warned:
        similar_candidates(Article.fingerprint, WANTED, 0.3, recall=0.9999, recipe=DEFAULT_RECIPE)
    assert [warning.filename for warning in warned] == [__file__]


@each_driver
def test_in_async_sessions(session, database_url, driver):
    async def work(async_session):
        found = await async_session.run_sync(similar, Article.fingerprint, WANTED, limit=3)
        rows = (await async_session.execute(similar_candidates(Article.fingerprint, WANTED).limit(3))).all()
        assert [value for _, value in found] == [value for _, value in most_similar(WANTED, BODIES, 0.6)[:3]]
        assert len(rows) == 3

    in_async_session(database_url, driver, work)
