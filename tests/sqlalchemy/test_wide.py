"""Fingerprints of two words: computed by a model, searched from models and through simsql.database.near_wide."""

import oracle
import pytest
from sqlalchemy import Column, MetaData, Table, select, text, true
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.orm import DeclarativeBase, Mapped, aliased, mapped_column

from simsql import Recipe, UsageError, simhash
from simsql.database import near_wide as near_wide_in
from simsql.sqlalchemy import Fingerprint, SimhashIndex, near_wide

ZEN = "Beautiful is better than ugly. Explicit is better than implicit. Simple is better than complex."
BODIES = [ZEN, ZEN.replace("ugly", "awful"), ZEN.replace("better", "worse"), ZEN[:40], "?", None]


class Base(DeclarativeBase):
    pass


class Article(Base):
    __tablename__ = "article"
    id: Mapped[int] = mapped_column(primary_key=True)
    tenant: Mapped[int]
    body: Mapped[str | None]
    first: Mapped[int | None] = mapped_column("word 0", Fingerprint(source="body"))
    second: Mapped[int | None] = mapped_column(Fingerprint(source="body", recipe=Recipe(word=1)))
    __table_args__ = tuple(SimhashIndex(name, scope=["tenant"]) for name in ("word 0", "second"))


WORDS = [Article.first, Article.second]
COLUMNS = ["word 0", "second"]
ONE = {"tenant": 1}


@pytest.fixture
def session(session):
    session.add_all(
        [Article(id=number, tenant=1 + number // 10, body=body) for number, body in enumerate(2 * BODIES)]
    )
    session.commit()
    return session


def expected(query, within, tenant=1):
    """(distance, id), nearest first."""
    fingerprints = [(number, simhash(body or "", words=2)) for number, body in enumerate(2 * BODIES)]
    found = [
        (sum(map(oracle.distance, words, simhash(query, words=2))), number)
        for number, words in fingerprints
        if words and 1 + number // 10 == tenant
    ]
    return sorted(match for match in found if match[0] <= within)


def test_a_model_searches_for_a_text_or_its_words(session):
    words = simhash(ZEN, words=2)
    for within in (0, 20, 60, 128):
        for query in ({"text": ZEN}, {"fingerprint": words}):
            rows = session.execute(near_wide(WORDS, **query, distance=within, scope=ONE)).all()
            assert sorted((bits, article.id) for article, bits in rows) == expected(ZEN, within)
            assert [bits for _, bits in rows] == sorted(bits for _, bits in rows)
    assert session.execute(near_wide(WORDS, text="?", distance=128, scope=ONE)).all() == []
    assert session.execute(near_wide(WORDS, (words[0], None), distance=128, scope=ONE)).all() == []


def test_a_table_returns_words(session):
    columns = [Article.__table__.c[name] for name in COLUMNS]
    found = session.execute(near_wide(columns, text=ZEN, distance=0, scope=ONE)).all()
    assert found == [(list(simhash(ZEN, words=2)), 0)]


def test_each_row_is_searched_for_in_another_scope(session):
    other = aliased(Article)
    found = near_wide(WORDS, [other.first, other.second], distance=40, scope={"tenant": other.tenant + 1})
    matches = found.lateral()
    rows = session.execute(select(other.id, matches.c.id, matches.c.distance).join(matches, true())).all()
    assert sorted((other, bits, number) for other, number, bits in rows) == [
        (number, *match)
        for number, body in enumerate(2 * BODIES)
        if number < 10 and simhash(body or "")
        for match in expected(body, 40, 2)
    ]


def test_core_searches_for_a_text_or_its_words(session, database):
    words = simhash(ZEN, words=2)
    for query in ({"text": ZEN}, {"fingerprint": words}):
        found = near_wide_in(database, "article", COLUMNS, **query, distance=20, scope=ONE)
        assert found[0] == (words, 0)
        assert {bits for _, bits in found} == {bits for bits, _ in expected(ZEN, 20)}
    for nothing in ({"fingerprint": None}, {"fingerprint": (1, None)}, {"text": "?"}):
        assert near_wide_in(session.connection(), "article", COLUMNS, **nothing, distance=128, scope=ONE) == []
    for wrong in ({}, {"text": "a", "fingerprint": words}):
        with pytest.raises(UsageError, match="pass either a fingerprint or text="):
            near_wide_in(database, "article", COLUMNS, **wrong, distance=20, scope=ONE)
    with pytest.raises(UsageError, match="between 0 and 128, not 129"):
        near_wide_in(database, "article", COLUMNS, words, distance=129, scope=ONE)
    with pytest.raises(UsageError, match="between 0 and 128, not 129"):
        near_wide(WORDS, words, distance=129, scope=ONE)


def test_a_text_needs_indexes_that_name_their_words(session, database):
    for recipe, said in (
        ("NULL", "nobody has named the recipe"),
        ("'words12-log-1'", "indexes that name the recipe of each word"),
    ):
        session.execute(text(f"UPDATE simsql.registry SET recipe = {recipe}"))
        session.commit()
        with pytest.raises(UsageError, match=said):
            near_wide_in(database, "article", COLUMNS, text=ZEN, distance=20, scope=ONE)
    assert near_wide_in(database, "article", COLUMNS, simhash(ZEN, words=2), distance=0, scope=ONE)


def test_words_in_the_wrong_columns_are_refused(session):
    """A model that takes one word for the other finds nothing: the recipe of the index says which one it has."""
    session.execute(
        text("UPDATE simsql.registry SET recipe = 'words12-log-word.2-1' WHERE column_name = 'second'")
    )
    with pytest.raises(DBAPIError, match=r"recipe words12-log-word\.2-1, but the model .* words12-log-word\.1-1"):
        session.execute(near_wide(WORDS, text=ZEN, distance=20, scope=ONE))


@pytest.mark.parametrize(
    ("columns", "query"),
    [
        ([], {"text": ZEN}),
        ([*WORDS, Table("other", MetaData(), Column("word", Fingerprint())).c.word], {"text": ZEN}),
        (WORDS, {"fingerprint": [1]}),
        (WORDS, {"fingerprint": [1, 2, 3]}),
    ],
)
def test_columns_and_words_have_to_fit(columns, query):
    with pytest.raises(ArgumentError, match="near_wide needs columns of one table, and a word for each"):
        near_wide(columns, **query, distance=20)
