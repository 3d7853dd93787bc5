"""Revisions of a recipe: stored fingerprints keep theirs, and revision 2 finds copies in other letters."""

import inspect

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import select, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from upgrades import RELEASED, bare, upgrade

from simsql import DEFAULT_RECIPE, Recipe, simhash, sketch
from simsql.alembic.operations import CreateSimhashIndexOp
from simsql.database import SearchIndex, create_index, from_bigint
from simsql.errors import UsageError
from simsql.fingerprint import FOLDING_RECIPE, simhash_html, simhash_many, simhash_parts
from simsql.sqlalchemy import Fingerprint, SimhashIndex, Sketch, claim, near, near_many, similar

UZBEK = "Qoraqalpog\u02bbistonda yangi neft-gaz konlarini qidirish bo\u02bbyicha yirik loyiha boshlandi"
ROMANIAN = "Consiliul ora\u0219ului a aprobat construc\u021bia unui pod \u0219i a \u00eenceput lucr\u0103rile"
PERSIAN = (
    "\u0634\u0631\u06a9\u062a \u062c\u062f\u06cc\u062f \u062f\u0631 \u0634\u0647\u0631"
    " \u062a\u0647\u0631\u0627\u0646 \u06cc\u06a9 \u067e\u0644 \u0628\u0632\u0631\u06af"
    " \u0645\u06cc\u200c\u0633\u0627\u0632\u062f"
)
ARABIC = (
    "\u0623\u0639\u0644\u0646\u062a \u0648\u0632\u0627\u0631\u0629 \u0627\u0644\u0635\u062d\u0629 \u0623\u0646"
    " \u0627\u0644\u0644\u0642\u0627\u062d \u0622\u0645\u0646 \u0648\u0623\u0646\u0647 \u0633\u064a\u0635\u0644"
    " \u0625\u0644\u0649 \u0627\u0644\u0645\u062f\u0646"
)
# The fingerprints and sketches that 0.2.0 computed.
STORED = {
    UZBEK: (2918200476200874715, 15395343680308051419),
    ROMANIAN: (6548905235915918070, 3645787510563921412),
    PERSIAN: (10783451250404016981, 7092799482070884562),
    ARABIC: (17818661175871712896, 10603646022671810931),
}
COPIES = {
    UZBEK: UZBEK.replace("\u02bb", "'"),
    ROMANIAN: ROMANIAN.translate(str.maketrans("\u0219\u021b", "\u015f\u0163")),
    PERSIAN: PERSIAN.translate(str.maketrans("\u06a9\u06cc", "\u0643\u064a")),
    ARABIC: ARABIC.translate(str.maketrans("\u0622\u0623\u0625", "\u0627" * 3)),
}


class Base(DeclarativeBase):
    pass


class Article(Base):
    """A model as it was written for 0.2.0: it names no recipe."""

    __tablename__ = "article"
    id: Mapped[int] = mapped_column(primary_key=True)
    body: Mapped[str | None]
    fingerprint: Mapped[int | None] = mapped_column(Fingerprint(source="body"))
    sketch: Mapped[int | None] = mapped_column(Sketch(source="body"))
    __table_args__ = (SimhashIndex("fingerprint", distance=3),)


class FoldedBase(DeclarativeBase):
    pass


class Folded(FoldedBase):
    __tablename__ = "folded"
    id: Mapped[int] = mapped_column(primary_key=True)
    body: Mapped[str | None]
    fingerprint: Mapped[int | None] = mapped_column(Fingerprint(source="body", recipe=Recipe(revision=2)))
    sketch: Mapped[int | None] = mapped_column(Sketch(source="body", revision=2))
    __table_args__ = (SimhashIndex("fingerprint", distance=3),)


@pytest.mark.parametrize("named", ["", ", recipe => 'words12-log-1'"])
def test_a_database_of_0_2_0_and_an_unchanged_model(server, named):
    with bare(server) as (connection, engine):
        connection.execute(RELEASED["0.2.0"].read_text(encoding="utf-8"))
        connection.execute(
            "CREATE TABLE article (id serial PRIMARY KEY, body varchar, fingerprint bigint, sketch bigint);"
            " CREATE INDEX ix_article_fingerprint ON article (fingerprint)"
        )
        connection.execute(f"SELECT simsql.create_index('article', 'fingerprint', distance => 3{named})")
        # As 0.2.0 wrote them: the bits of the numbers.
        rows = [(body, *(value - (value >> 63 << 64) for value in bits)) for body, bits in STORED.items()]
        with connection.cursor() as cursor:
            cursor.executemany("INSERT INTO article (body, fingerprint, sketch) VALUES (%s, %s, %s)", rows)
        upgrade(engine)
        with engine.connect() as other:
            context = MigrationContext.configure(other)
            # Another recipe is not among them; versions of Alembic without plugins know simsql's comparison, too.
            sources = ("alter_simhash_index", None, "article", "fingerprint", {"sources": {"body": 1}})
            assert compare_metadata(context, Base.metadata) in ([], [sources])
        with Session(engine) as session:
            stored = session.execute(select(Article.body, Article.fingerprint, Article.sketch)).all()
            assert {body: tuple(bits) for body, *bits in stored} == STORED
            assert SearchIndex(engine, "article").recipe() == DEFAULT_RECIPE
            # Rows of the new version, and of an application that computes fingerprints itself.
            session.add_all([Article(id=10 + number, body=body) for number, body in enumerate(STORED)])
            session.add_all(
                [Article(id=20 + n, body=body, fingerprint=simhash(body)) for n, body in enumerate(STORED)]
            )
            session.flush()
            for number, body in enumerate(STORED):
                wanted = [number + 1, number + 10, number + 20]
                for found in (
                    session.execute(near(Article.fingerprint, text=body, distance=0)),
                    session.execute(near(Article.fingerprint, simhash(body), 0)),
                    similar(session, Article.fingerprint, body, 1),
                ):
                    assert sorted(article.id for article, _ in found) == wanted
                close = near(Article.fingerprint, text=body, distance=0, similarity=1)
                assert sorted(row[0].id for row in session.execute(close)) == wanted
            session.commit()
        index = SearchIndex(engine, "article")
        assert index.backfill("body", sketch_column="sketch").written == 0
        assert index.verify_texts("body", sketch_column="sketch").differing == 0
        for body in STORED:
            assert len(index.near_rows(text=body, distance=0)) == 3


def test_whatever_stores_agrees_with_simhash(database):
    """In a new database, too: an application may search for simhash(text) in a column that a model fills."""
    for function in (simhash, simhash_many, simhash_parts, simhash_html, create_index):
        assert inspect.signature(function).parameters["recipe"].default == DEFAULT_RECIPE, function
    operation = CreateSimhashIndexOp.create_simhash_index
    assert inspect.signature(operation).parameters["recipe"].default == DEFAULT_RECIPE.id
    Base.metadata.create_all(database)
    with Session(database) as session:
        session.add_all(Article(body=body) for body in STORED)
        session.flush()
        stored = session.execute(select(Article.body, Article.fingerprint, Article.sketch)).all()
        assert {body: tuple(bits) for body, *bits in stored} == STORED
        found = session.execute(near_many(Article.fingerprint, [simhash(body) for body in STORED], 0)).all()
        assert len(found) == len(STORED)
        session.commit()
    assert SearchIndex(database, "article").recipe() == DEFAULT_RECIPE == Recipe()


def test_a_column_of_revision_2_finds_copies(database):
    FoldedBase.metadata.create_all(database)
    with Session(database) as session:
        session.add_all(Folded(body=body) for body in STORED)
        session.commit()
        for body, copy in COPIES.items():
            folded = session.scalars(select(Folded).where(Folded.body == body)).one()
            assert folded.fingerprint == simhash(copy, FOLDING_RECIPE)
            assert folded.sketch == sketch(copy, revision=2)
            assert folded.sketch != sketch(body)
            close = near(Folded.fingerprint, text=copy, distance=0, similarity=1)
            assert [row[0].id for row in session.execute(close)] == [folded.id]
            assert similar(session, Folded.fingerprint, copy, 1) == [(folded, 1)]
            assert (
                session.scalars(select(Folded.sketch.similarity(text=copy)).where(Folded.id == folded.id)).one()
                == 1
            )
            assert session.execute(claim(Folded.fingerprint, text=copy)).one().distance == 0
    index = SearchIndex(database, "folded")
    assert index.recipe() == FOLDING_RECIPE
    for copy in COPIES.values():
        (row,) = index.near_rows(text=copy, distance=0, similarity=1, sketch_column="sketch")
        assert row.row["body"] in STORED
        assert [row.similarity for row in index.similar(copy, 1, sketch_column="sketch")] == [1]
    assert index.verify_texts(sketch_column="sketch").differing == 0
    with database.begin() as connection:
        context = MigrationContext.configure(connection)
        assert compare_metadata(context, FoldedBase.metadata) == []
        connection.execute(text("UPDATE folded SET fingerprint = NULL, sketch = NULL"))
    assert index.backfill(sketch_column="sketch").written == len(STORED)
    with database.begin() as connection:
        stored = connection.execute(text("SELECT body, fingerprint, sketch FROM folded")).all()
    for body, *bits in stored:
        assert list(map(from_bigint, bits)) == [simhash(body, FOLDING_RECIPE), sketch(body, revision=2)]


def test_sketches_of_another_revision_are_refused(database):
    FoldedBase.metadata.create_all(database)
    index = SearchIndex(database, "folded")
    with database.begin() as connection:
        connection.execute(text("COMMENT ON COLUMN folded.sketch IS NULL"))
    says = "has the sketches minhash64-1, which cannot be compared with minhash64-2"
    for search in (
        lambda: index.backfill(sketch_column="sketch"),
        lambda: index.similar("a", sketch_column="sketch"),
        lambda: index.near_rows(text="a", similarity=0.5, sketch_column="sketch"),
    ):
        with pytest.raises(UsageError, match=says):
            search()
    with Session(database) as session:
        session.add(Folded(body="a"))
        with pytest.raises(UsageError, match=says):
            session.flush()


def test_a_model_without_a_recipe_neither_writes_nor_searches_beside_revision_2(database):
    Base.metadata.create_all(database)
    with database.begin() as connection:
        connection.execute(text("INSERT INTO article (body, fingerprint) VALUES ('a', 1)"))
        connection.execute(text("SELECT simsql.alter_index('article', recipe => 'words12-log-2')"))
    with Session(database) as session:
        with pytest.raises(DBAPIError, match="has recipe words12-log-2, but the model fingerprints texts with"):
            session.execute(near(Article.fingerprint, text=PERSIAN))
        session.rollback()
        session.add(Article(body=PERSIAN))
        with pytest.raises(UsageError, match="has recipe words12-log-2, but the model fingerprints texts with"):
            session.flush()
