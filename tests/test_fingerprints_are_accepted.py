"""What one public function returns, every other one takes: also what stands for no fingerprint, which is NULL."""

import asyncio

import numpy as np
import pyarrow
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from imagehash import ImageHash
from sqlalchemy import bindparam, func, insert, literal, select, text, update
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from simsql import find_clusters, find_pairs, hamming_distance, simhash, simhash_many
from simsql import sqlalchemy as models
from simsql.cli._options import parse_fingerprint
from simsql.database import SearchIndex, from_bigint, load_rows, to_bigint
from simsql.hamming import find_matches
from simsql.sqlalchemy import Fingerprint, SimhashIndex

WORDS = "Sparse is better than dense."
TEXTS = [WORDS, "?!", "In the face of ambiguity, refuse the temptation to guess.", WORDS]
MADE = simhash_many(TEXTS)
FIRST, SECOND = simhash(TEXTS[0]), simhash(TEXTS[2])
BITS = (FIRST ^ SECOND).bit_count()
# All that stands for no fingerprint: of simhash, of an array, of its elements one by one, of a part of it.
NOTHING = {"None": simhash("?!"), "masked": MADE[1], "zero_dimensional": MADE[1:2].reshape(())}


def image_hash(number: int) -> ImageHash:
    return ImageHash(np.array([bit == "1" for bit in f"{number:064b}"]).reshape(8, 8))


# The forms of a fingerprint.
FORMS = {
    "unsigned": int,
    "numpy": np.uint64,
    "bigint": lambda number: number - (number >> 63 << 64),
    "int64": lambda number: np.uint64(number).view(np.int64),
    "hexadecimal": "{:016x}".format,
    "0x": "0x{:016X}".format,
    "bytes": lambda number: number.to_bytes(8),
    "bytearray": lambda number: bytearray(number.to_bytes(8)),
    "ImageHash": image_hash,
}
# The same fingerprints, as a list of each kind and as an array.
MANY = {
    **{
        name: [None if one is None else form(one) for one in MADE.tolist()]
        for name, form in FORMS.items()
        if name not in ("numpy", "int64", "0x", "bytearray")
    },
    "int64": np.ma.MaskedArray(MADE.data.view(np.int64), mask=MADE.mask),
    "array": MADE,
    "elements": list(MADE),
    "list": MADE.tolist(),
    "one_by_one": [simhash(one) for one in TEXTS],
}

each_nothing = pytest.mark.parametrize("nothing", NOTHING.values(), ids=NOTHING)
each_kind = pytest.mark.parametrize("many", MANY.values(), ids=MANY)


class Base(DeclarativeBase):
    pass


class Article(Base):
    __tablename__ = "article"
    id: Mapped[int] = mapped_column(primary_key=True)
    body: Mapped[str | None]
    fingerprint: Mapped[int | None] = mapped_column(Fingerprint(source="body"))
    other: Mapped[int | None] = mapped_column(Fingerprint())
    __table_args__ = (SimhashIndex("fingerprint", distance=64),)


table = Article.__table__


@pytest.fixture
def connection(database):
    Base.metadata.create_all(database)
    with database.connect() as connection:
        connection.execute(insert(table).values([{"id": n, "body": body} for n, body in enumerate(TEXTS)]))
        yield connection


@pytest.fixture
def index(connection):
    return SearchIndex(connection, "article")


@given(st.integers(0, 2**64 - 1))
@example(0)
@example(2**63 - 1)
@example(2**63)
@example(2**64 - 1)
@example(0x1234567890123456)  # as a str, only of decimal digits
def test_all_forms_are_one_fingerprint(number):
    bigint = int(np.uint64(number).view(np.int64))
    forms = [form(number) for form in FORMS.values()]
    assert [to_bigint(form) for form in forms] == [bigint] * len(forms)
    assert [hamming_distance(number, form) for form in forms] == [0] * len(forms)
    assert str(forms[-1]) == FORMS["hexadecimal"](number)  # as imagehash writes it
    assert find_matches(forms, [forms], 0).__next__().queries.tolist() == [number]
    column = Fingerprint()
    assert all(column.compare_values(one, other) for one in forms for other in forms[:2])
    assert not any(column.compare_values(form, number ^ 1) for form in forms)
    assert not any(column.compare_values(form, None) for form in forms)
    written = (str(number), str(bigint), f"0x{number:016x}", f"0X{number:016X}")
    assert [parse_fingerprint(one) for one in written] == [number] * 4


@pytest.mark.parametrize(
    ("value", "error", "said"),
    [
        ("123456789012345", ValueError, "as a str, it has 16 hexadecimal digits; convert decimal ones with int"),
        ("0x1", ValueError, "'0x1' is not a fingerprint"),
        ("c" * 32, ValueError, "keep wider ones in several columns, which near_wide searches"),
        (" " + "c" * 15, ValueError, "is not a fingerprint"),
        ("\u0663" * 16, ValueError, "is not a fingerprint"),
        ("1_000_000_000_000", ValueError, "is not a fingerprint"),
        (b"\0" * 7, ValueError, "must have 64 bits, not 56"),
        (ImageHash(np.zeros((16, 16), dtype=bool)), ValueError, "must have 64 bits, not 256: keep wider"),
        (True, TypeError, "must be an int, 16 hexadecimal digits, 8 bytes or an ImageHash, not True"),
        (1.5, TypeError, "not 1.5"),
        (object(), TypeError, "not <object"),
    ],
)
def test_what_has_no_64_bits_is_refused(value, error, said):
    for convert in (to_bigint, lambda value: hamming_distance(value, 0), lambda value: find_pairs([value])):
        with pytest.raises(error, match=said):
            convert(value)


@each_nothing
def test_nothing_has_no_distance_and_no_bits(nothing):
    for one, other in ((nothing, FIRST), (MADE[0], nothing), (nothing, nothing), (None, nothing)):
        assert hamming_distance(one, other) is None
    for distances in (hamming_distance(MADE, nothing), hamming_distance(nothing, MADE.data)):
        assert (distances.tolist(), distances.dtype) == ([None] * 4, np.uint8)
    assert to_bigint(nothing) is None
    assert from_bigint(nothing) is None


@each_kind
def test_pairs_leave_out_what_is_missing(many):
    expected = [sorted([FIRST, SECOND])]
    assert find_pairs(many, 64).tolist() == expected
    assert [pair.tolist() for pair in find_pairs(many, 64, batches=True)] == [expected]
    assert [cluster.tolist() for cluster in find_clusters(many, 64)] == expected
    (found,) = find_matches(many, [many], 0)
    assert sorted(found.queries.tolist()) == sorted([FIRST, SECOND])


@each_nothing
def test_nothing_is_near_to_it(connection, nothing, index):
    assert index.near(nothing, 64) == index.near_rows(nothing, 64) == []
    assert index.claim(nothing, 64) is None
    for column in (Article.fingerprint, table.c.fingerprint):
        for statement in (models.near(column, nothing, 64), select(table.c.id).where(column.near(nothing, 64))):
            assert connection.execute(statement).all() == []
        assert connection.scalars(select(column.hamming_distance(nothing))).all() == [None] * 4


@each_kind
def test_many_are_searched_for_at_once(connection, many, index):
    expected = {(FIRST, FIRST, 0), (FIRST, SECOND, BITS), (SECOND, FIRST, BITS), (SECOND, SECOND, 0)}
    assert set(index.near_many(many)) == expected
    assert set(index.near_many(pyarrow.array(MADE.tolist(), pyarrow.uint64()))) == expected
    assert set(connection.execute(models.near_many(table.c.fingerprint, many)).all()) == expected
    (batch,) = index.near_many(many, 0).batches()
    assert sorted(batch["query"].tolist()) == sorted([FIRST, SECOND])
    # And what a search returns is searched for.
    found = list(index.near_many(many, 0))
    assert {match.query for match in index.near_many([m.fingerprint for m in found], 0)} == {
        FIRST,
        SECOND,
    }
    (pairs,) = index.pairs().batches()
    assert index.near(pairs["a"][0], 0) == [(int(pairs["a"][0]), 0)]
    assert index.claim(pairs["b"][0], 0) == (int(pairs["b"][0]), 0)


@each_kind
def test_a_table_takes_them(connection, many):
    rows = [{"id": 10 + n, "other": fingerprint} for n, fingerprint in enumerate(many)]
    connection.execute(insert(table), rows)
    connection.execute(insert(table).values([{**row, "id": row["id"] + 10} for row in rows]))
    for row in rows:
        connection.execute(insert(table).values(id=row["id"] + 20, other=row["other"]))
        by_literal = insert(table).values(id=row["id"] + 30, other=literal(row["other"], Fingerprint()))
        written = by_literal.compile(connection, compile_kwargs={"literal_binds": True})
        connection.exec_driver_sql(str(written))
        connection.execute(update(table).values(other=row["other"]).where(table.c.id == row["id"] - 10))
    loaded = [[50 + n] for n in range(len(many))]
    assert load_rows(connection, "article", ["id"], loaded, fingerprints=many, column="other") == 4
    found = connection.scalars(select(table.c.other).order_by(table.c.id)).all()
    assert found == [FIRST, None, SECOND, FIRST] * 6
    same = select(table.c.id).where(table.c.other == bindparam("value", type_=Fingerprint()))
    for fingerprint in many:
        count = 0 if fingerprint is None or fingerprint is np.ma.masked else 6
        assert len(connection.execute(same, {"value": fingerprint}).all()) >= count


@each_nothing
def test_objects_take_them(session_of_article, nothing):
    session = session_of_article
    article = Article(body=WORDS, fingerprint=nothing, other=nothing)  # in a new object, an empty place
    session.add(article)
    session.commit()
    assert (article.fingerprint, article.other) == (FIRST, None)
    article.other, article.fingerprint = MADE[0], nothing
    session.commit()
    assert (article.fingerprint, article.other) == (None, FIRST)
    article.fingerprint = MADE[0]
    session.commit()
    session.refresh(article)
    article.fingerprint = image_hash(FIRST)
    assert not session.is_modified(article)
    # The value that it has: this counts for nothing, whatever its type.
    article.fingerprint, article.body = MADE[0], TEXTS[2]
    session.commit()
    assert article.fingerprint == SECOND


@pytest.fixture
def session_of_article(database):
    Base.metadata.create_all(database)
    with Session(database) as session:
        yield session


@pytest.mark.parametrize("form", [np.uint64, *map(FORMS.get, ("hexadecimal", "ImageHash"))])
def test_the_trigger_that_clears_them_spares_other_forms(session_of_article, form):
    session = session_of_article
    session.execute(text("SELECT simsql.clear_on_change('article', 'fingerprint', ARRAY['body'])"))
    article = Article(body=WORDS)
    session.add(article)
    session.commit()
    article.body, article.fingerprint = WORDS.upper(), form(FIRST)
    session.commit()
    assert article.fingerprint == FIRST


def test_asyncpg_takes_them(database):
    Base.metadata.create_all(database)
    url = database.url.difference_update_query(["client_encoding"]).set(drivername="postgresql+asyncpg")

    async def run():
        engine = create_async_engine(url)
        async with engine.begin() as connection:
            await connection.execute(insert(table), [{"id": n, "other": one} for n, one in enumerate(MADE)])
            found = await connection.execute(models.near_many(table.c.fingerprint, MADE))
            assert found.all() == []
            assert (await connection.execute(select(func.count(table.c.other)))).scalar_one() == 3
        await engine.dispose()

    asyncio.run(run())
