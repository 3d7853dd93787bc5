"""Columns of different recipes are not compared, as far as the models say how their fingerprints are made."""

import pytest
from sqlalchemy import BigInteger, Column, MetaData, Table, func, select
from sqlalchemy.exc import ArgumentError
from sqlalchemy.orm import DeclarativeBase, Mapped, aliased, mapped_column

from simsql import DEFAULT_RECIPE, Recipe
from simsql.sqlalchemy import Fingerprint, SimhashIndex, near

TRIGRAMS = Recipe(shingles=(3,))


class Base(DeclarativeBase):
    pass


class Article(Base):
    __tablename__ = "article"
    __table_args__ = (
        SimhashIndex("body_fp"),
        SimhashIndex("indexed_fp", recipe=TRIGRAMS),
        SimhashIndex("image", recipe="phash64"),
    )
    id: Mapped[int] = mapped_column(primary_key=True)
    body: Mapped[str | None]
    body_fp: Mapped[int | None] = mapped_column(Fingerprint(source="body"))
    default_fp: Mapped[int | None] = mapped_column(Fingerprint(recipe=DEFAULT_RECIPE))
    trigrams_fp: Mapped[int | None] = mapped_column(Fingerprint(recipe=TRIGRAMS))
    indexed_fp: Mapped[int | None] = mapped_column(Fingerprint())
    image: Mapped[int | None] = mapped_column(Fingerprint())
    unknown_fp: Mapped[int | None] = mapped_column(Fingerprint())
    number: Mapped[int | None] = mapped_column(BigInteger)


GROUPS = (("body_fp", "default_fp"), ("trigrams_fp", "indexed_fp"), ("image",))
OF_GROUP = {name: number for number, group in enumerate(GROUPS) for name in group}


def compare(one, other):
    """Make every statement that compares the two."""
    return [
        select(one.hamming_distance(other)),
        select(Article).where(one.near(other)),
        near(one, other),
        near(one.expression, other),
    ]


# That a column of another table is slow: see test_correlated.py.
repeats = pytest.mark.filterwarnings("ignore:.near.. of a column")


@repeats
@pytest.mark.parametrize("one", OF_GROUP)
@pytest.mark.parametrize("other", OF_GROUP)
def test_columns_whose_recipes_are_known(one, other):
    left, right = getattr(Article, one), getattr(aliased(Article), other)
    if OF_GROUP[one] == OF_GROUP[other]:
        compare(left, right)
        return
    for statement in (left.hamming_distance, left.near, lambda argument: near(left, argument)):
        with pytest.raises(ArgumentError, match=r"has the recipe .* recompute one column"):
            statement(right)
    with pytest.raises(ArgumentError, match="has the recipe"):
        near(left.expression, select(right).subquery().c[0])


@repeats
@pytest.mark.parametrize("one", OF_GROUP)
def test_what_is_not_known_is_compared(one):
    left = getattr(Article, one)
    for other in (Article.unknown_fp, Article.number, func.abs(Article.number), 5, None):
        compare(left, other)


@repeats
def test_numbers_found_by_a_search_are_compared(session_of):
    session = session_of(Base)
    session.add(Article(body="some words and more", trigrams_fp=7, indexed_fp=6))
    session.commit()
    assert session.scalar(select(Article.trigrams_fp.hamming_distance(Article.indexed_fp))) == 1
    assert session.scalars(select(Article.id).where(Article.indexed_fp.near(Article.trigrams_fp))).all() == [1]


@pytest.mark.parametrize(
    "type_", [Fingerprint(recipe=DEFAULT_RECIPE), Fingerprint(source="body")], ids=["named", "source"]
)
def test_an_index_says_what_its_column_says(type_):
    with pytest.raises(ArgumentError, match="is words3-log-1, but that of column 'fp' of table t is"):
        Table("t", MetaData(), Column("fp", type_), SimhashIndex("fp", recipe=TRIGRAMS))
