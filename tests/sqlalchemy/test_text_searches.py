"""Search by text as a statement: by the recipe and the sources of the column, equal to brute force."""

import threading
from dataclasses import replace

import numpy as np
import oracle
import pytest
from asynchronous import in_async_session
from program import wait_until
from sqlalchemy import BigInteger, func, select, text
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, aliased, mapped_column

from simsql import DEFAULT_RECIPE, Recipe, simhash
from simsql.database import from_bigint, to_bigint
from simsql.errors import UsageError
from simsql.fingerprint import IdfTable, simhash_parts
from simsql.sqlalchemy import Fingerprint, SimhashIndex, claim, near

TRIGRAMS = Recipe(tokens="characters", shingles=(3,))
WEIGHED = replace(DEFAULT_RECIPE, idf=IdfTable(np.zeros(0, np.uint64), np.zeros(0, np.int32), 3))
BODIES = [
    f"{word} is better than {other}" for word in ("simple", "flat", "sparse") for other in ("dense", "nested")
]


class Base(DeclarativeBase):
    pass


class Article(Base):
    __tablename__ = "article"
    id: Mapped[int] = mapped_column(primary_key=True)
    title: Mapped[str | None]
    body: Mapped[str | None]
    fp: Mapped[int | None] = mapped_column(Fingerprint(source="body"))
    characters: Mapped[int | None] = mapped_column(Fingerprint(source="body", recipe=TRIGRAMS))
    weighed: Mapped[int | None] = mapped_column(Fingerprint(source="body", recipe=WEIGHED))
    both: Mapped[int | None] = mapped_column(Fingerprint(source={"title": 3, "body": 1}))
    number: Mapped[int | None] = mapped_column(BigInteger)
    plain: Mapped[int | None] = mapped_column(Fingerprint())
    image: Mapped[int | None] = mapped_column(Fingerprint())
    listed: Mapped[int | None] = mapped_column(Fingerprint())
    __table_args__ = (
        SimhashIndex("fp", distance=24),
        SimhashIndex("characters", distance=24),
        SimhashIndex("weighed", distance=24),
        SimhashIndex("both", distance=24),
        SimhashIndex("number", recipe=TRIGRAMS),
        SimhashIndex("plain"),
        SimhashIndex("image", recipe="phash64"),
        SimhashIndex("listed", recipe=WEIGHED),
    )


MADE = {"fp": DEFAULT_RECIPE, "characters": TRIGRAMS, "weighed": WEIGHED}
table = Article.__table__


@pytest.fixture
def session(session):
    session.add_all(Article(title=f"Number {n}", body=body) for n, body in enumerate(BODIES))
    session.add(Article(body="?!"))
    session.commit()
    return session


@pytest.mark.parametrize("name", MADE)
@pytest.mark.parametrize("body", [BODIES[0], "simple is better than tense", "something else"])
def test_a_text_finds_what_its_fingerprint_finds(session, name, body):
    recipe = MADE[name]
    query = to_bigint(simhash(body, recipe))
    stored = [to_bigint(simhash(known, recipe)) for known in BODIES]
    expected = [(from_bigint(f), d) for f, d in oracle.near(stored, query, 24)]
    for entity in (Article, aliased(Article)):
        attribute = getattr(entity, name)
        rows = session.execute(near(attribute, text=body)).all()
        assert [(getattr(article, name), distance) for article, distance in rows] == expected
        condition = select(attribute).where(attribute.near(text=body))
        assert sorted(session.scalars(condition).all()) == sorted(found for found, _ in expected)
        assert session.execute(claim(attribute, text=body)).all() == expected[:1]
    for column in (table.c[name], table.alias().c[name]):
        assert session.execute(near(column, text=body)).all() == expected
        assert session.execute(claim(column, text=body)).all() == expected[:1]


def statements(attribute, **query):
    """Make every statement that searches for a text."""
    return [near(attribute, **query), claim(attribute, **query), select(Article.id).where(attribute.near(**query))]


def test_a_text_without_features_finds_nothing(session):
    for nothing in ("", "?!"):
        for statement in statements(Article.fp, text=nothing, distance=64):
            assert session.execute(statement).all() == []
    for statement in statements(Article.both, text={"title": None, "body": "?!"}, distance=64):
        assert session.execute(statement).all() == []


def test_several_sources_take_a_mapping(session):
    texts = {"body": BODIES[0], "title": "Number 0"}
    query = simhash_parts([("Number 0", 3), (BODIES[0], 1)])
    for statement in statements(Article.both, text=texts, distance=0):
        assert session.execute(statement).first() in ((session.get(Article, 1), 0), (query, 0), (1,))
    (article,) = session.scalars(select(Article).where(Article.both.near(text=texts, distance=0)))
    assert article.both == query
    assert session.execute(near(Article.fp, text={"body": BODIES[1]}, distance=0)).one()[0].id == 2


@pytest.mark.parametrize(
    ("name", "given", "said"),
    [
        ("both", "one text", r"several sources.*: pass .*text=\{'title': \.\.\., 'body': \.\.\.\}"),
        ("both", {"body": "b"}, r"text= names 'body', but the sources of .* are 'title', 'body': name each"),
        ("both", {"body": "b", "title": "t", "x": "y"}, "name each of them"),
        ("fp", {}, "text= names no source, but the sources of"),
        ("plain", {"body": "b"}, "has no source: pass text= as one str"),
        ("image", "one text", "'phash64' is not the id of a recipe"),
        ("listed", "one text", "pass the recipe itself"),
    ],
)
def test_a_text_that_does_not_say_what_to_search_for_is_refused(name, given, said):
    for make in (near, claim, lambda attribute, text: attribute.near(text=text)):
        with pytest.raises(ArgumentError, match=said):
            make(getattr(Article, name), text=given)


def test_what_a_query_refuses_is_an_error_of_both_packages():
    for make in (near, claim, lambda attribute, *values, **query: attribute.near(*values, **query)):
        for error in (ArgumentError, UsageError):
            with pytest.raises(error, match="pass either a fingerprint or text=, not both"):
                make(Article.fp, 5, text="five")
        for wrong in (Article.body, b"five", 5):
            with pytest.raises(TypeError, match=r"^text must be a str, not"):
                make(Article.fp, text=wrong)


def test_the_recipe_is_that_of_the_column_or_the_index_or_the_one_given():
    def query(column, **options):
        numbers = [
            value
            for value in near(column, text="some words", **options).compile().params.values()
            if isinstance(value, int)
        ]
        return numbers[0]

    assert query(Article.number) == query(table.c.number) == simhash("some words", TRIGRAMS)
    assert query(Article.plain) == query(Article.plain, recipe=DEFAULT_RECIPE) == simhash("some words")
    assert query(Article.listed, recipe=WEIGHED) == simhash("some words", WEIGHED)
    for column, other in ((Article.fp, TRIGRAMS), (Article.listed, TRIGRAMS), (Article.number, DEFAULT_RECIPE)):
        with pytest.raises(ArgumentError, match=r"has the recipe .*, not"):
            query(column, recipe=other)
    with pytest.raises(ArgumentError, match="is not a column of one table"):
        near(func.abs(Article.number), text="some words")


def test_of_two_that_claim_the_same_text_one_finds_nothing(session, database):
    """The second waits for the first to commit, and finds what that one has inserted."""
    words = "a text that nobody has written yet"
    assert session.execute(claim(Article.fp, text=words, distance=3)).one_or_none() is None
    found = []

    def post():
        with Session(database) as other:
            found.append(other.execute(claim(Article.fp, text=words, distance=3)).one_or_none())

    second = threading.Thread(target=post)
    second.start()
    waiting = text("SELECT count(*) FROM pg_locks WHERE NOT granted")
    with database.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        wait_until(lambda: connection.execute(waiting).scalar_one(), "the second claim to wait")
    session.add(Article(body=words))
    session.commit()
    second.join()
    assert found == [(simhash(words), 0)]


def test_a_claim_needs_read_committed(session):
    session.connection(execution_options={"isolation_level": "REPEATABLE READ"})
    with pytest.raises(DBAPIError, match="read committed"):
        session.execute(claim(Article.fp, text="words"))


def test_a_session_finds_its_engine(session, database):
    with Session(binds={Article: database}) as bound:
        assert bound.execute(claim(Article.fp, text=BODIES[0], distance=0)).one().distance == 0


def test_through_asyncpg(session, database):
    async def read(reader):
        for statement in statements(Article.fp, text=BODIES[0], distance=0):
            assert len((await reader.execute(statement)).all()) == 1

    in_async_session(database.url, "asyncpg", read)
