"""SimhashIndex: created and dropped with its table, whatever that is called; its B-tree; its errors."""

import asyncio

import pytest
from sqlalchemy import (
    BigInteger,
    Column,
    Index,
    Integer,
    MetaData,
    Table,
    create_engine,
    create_mock_engine,
    insert,
    inspect,
    select,
    text,
)
from sqlalchemy.exc import ArgumentError
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, declared_attr, mapped_column
from sqlalchemy.schema import CreateSchema

from simsql import DEFAULT_RECIPE, Design, Recipe
from simsql.errors import UsageError
from simsql.sqlalchemy import Fingerprint, SimhashIndex, near

LONG = "t" * 63
ODD = [
    (None, "article", "fingerprint"),
    (None, "Article", "Fingerprint"),
    ("archive", "article", "select"),
    ("Ar.chive", 'say "when"', "100% fp's"),
    ("it's", "back\\slash", "a $simsql_table$ b"),
    ("%(x)s", "%s :x", "a:b"),
    ("$simsql$", "$1", "?"),
    ("s" * 63, LONG, "c" * 63),
]


def indexes(connection):
    rows = connection.exec_driver_sql(
        "SELECT table_id::text, column_name, distance, blocks, lead, inner_blocks, recipe FROM simsql.registry"
    )
    return [tuple(row) for row in rows]


def script(metadata, *, drop=False):
    statements = []
    engine = create_mock_engine(
        "postgresql+psycopg://", lambda ddl, *_: statements.append(str(ddl.compile(engine)))
    )
    (metadata.drop_all if drop else metadata.create_all)(engine, checkfirst=False)
    return [" ".join(statement.split()) for statement in statements]


@pytest.mark.parametrize(("schema", "name", "column"), ODD)
def test_an_index_comes_and_goes_with_its_table(database, schema, name, column):
    metadata = MetaData()
    table = Table(
        name,
        metadata,
        Column("id", Integer, primary_key=True),
        Column(column, Fingerprint()),
        SimhashIndex(column, distance=5, design=Design(5, 2), recipe=Recipe(shingles=(3,))),
        schema=schema,
    )
    with database.begin() as connection:
        if schema:
            connection.execute(CreateSchema(schema))
        metadata.create_all(connection)
        assert [row[1:] for row in indexes(connection)] == [(column, 5, 5, 2, 0, "words3-log-1")]
        connection.execute(insert(table), [{column: 2**64 - 1}, {column: 6}, {column: None}])
        assert connection.execute(near(table.c[column], 2**64 - 1, 1)).all() == [(2**64 - 1, 0)]
        found = connection.execute(select(table.c.id).where(table.c[column].near(5, 3))).scalars().all()
        assert found == [2]
        # One B-tree: the index took the declared one.
        (btree,) = inspect(connection).get_indexes(name, schema=schema)
        assert btree["column_names"] == [column]
        metadata.create_all(connection)
        metadata.drop_all(connection)
        assert indexes(connection) == []
        left = "SELECT count(*) FROM pg_class WHERE relnamespace = 'simsql'::regnamespace AND relname ~ '^keys_'"
        assert connection.exec_driver_sql(left).scalar_one() == 0


@pytest.mark.parametrize(("schema", "name", "column"), ODD[::3])
def test_a_schema_translate_map_names_the_table(database, schema, name, column):
    """Two schemas hold a table of one name: each search finds what is in the schema that the map names."""
    metadata = MetaData()
    for key, targets in ((None, ["one", schema or "T'wo"]), ("tenant", ["o\\ne", schema or '2 "$simsql$"'])):
        table = Table(
            name,
            metadata,
            Column("id", Integer, primary_key=True),
            Column(column, Fingerprint()),
            SimhashIndex(column),
            schema=key,
        )
        for number, target in enumerate(targets):
            with database.begin() as connection:
                connection.execute(CreateSchema(target, if_not_exists=True))
                translated = connection.execution_options(schema_translate_map={key: target})
                table.create(translated)
                translated.execute(insert(table).values({column: 2**63 + number}))
        for _ in range(2):  # from the cache of compiled statements too
            for number, target in enumerate(targets):
                with database.connect() as connection:
                    translated = connection.execution_options(schema_translate_map={key: target})
                    expected = [(2**63 + number, number)]
                    assert translated.execute(near(table.c[column], 2**63, 1)).all() == expected
                    condition = select(table.c[column]).where(table.c[column].near(2**63, 1))
                    assert translated.execute(condition).scalars().all() == [2**63 + number]
        for target in targets:
            with database.begin() as connection:
                table.drop(connection.execution_options(schema_translate_map={key: target}))
                metadata.remove(table)
    with database.connect() as connection:
        assert indexes(connection) == []


def test_scripts_are_plain_sql():
    metadata = MetaData()
    Table("article", metadata, Column("fingerprint", Fingerprint()), SimhashIndex("fingerprint"))
    Table(
        "Note",
        metadata,
        Column("it's", Fingerprint()),
        SimhashIndex("it's", distance=7, design=Design(6, 3, 4)),
        schema="Two words",
    )
    create = script(metadata)
    assert create[1:3] == [
        "CREATE INDEX ix_article_fingerprint ON article (fingerprint)",
        "SELECT simsql.create_index('article'::regclass, 'fingerprint', distance => 3, recipe => 'words12-log-1')",
    ]
    assert create[-1] == (
        """SELECT simsql.create_index('"Two words"."Note"'::regclass, 'it''s', distance => 7, blocks => 6,"""
        " lead => 3, inner_blocks => 4, recipe => 'words12-log-1')"
    )
    assert script(metadata, drop=True)[:2] == [
        """SELECT simsql.drop_index(simsql.registry.table_id, simsql.registry.column_name) AS drop_index_1"""
        """ FROM simsql.registry WHERE simsql.registry.table_id = '"Two words"."Note"'::regclass"""
        """ AND simsql.registry.column_name = 'it''s'""",
        'DROP TABLE "Two words"."Note"',
    ]


def test_other_databases_get_the_table_alone():
    metadata = MetaData()
    Table("article", metadata, Column("fingerprint", Fingerprint()), SimhashIndex("fingerprint"))
    engine = create_engine("sqlite://")
    metadata.create_all(engine)
    metadata.drop_all(engine)
    engine.dispose()


def test_drop_all_does_without_an_index_that_is_gone(database):
    metadata = MetaData()
    Table("article", metadata, Column("fingerprint", Fingerprint()), SimhashIndex("fingerprint"))
    metadata.create_all(database)
    with database.begin() as connection:
        connection.execute(text("SELECT simsql.drop_index('article')"))
    metadata.drop_all(database)


class Base(DeclarativeBase):
    metadata = MetaData(naming_convention={"ix": "x_%(table_name)s_%(column_0_N_name)s"})


class Fingerprinted:
    """A mixin: each table gets an index of its own."""

    id: Mapped[int] = mapped_column(primary_key=True)
    fingerprint: Mapped[int | None] = mapped_column(Fingerprint(recipe=Recipe(weight="set")))

    @declared_attr.directive
    def __table_args__(cls):  # noqa: N805
        return (SimhashIndex("fingerprint", distance=7),)


class Post(Fingerprinted, Base):
    __tablename__ = "post"


class Comment(Fingerprinted, Base):
    __tablename__ = "comment"


SHARED = (SimhashIndex("fingerprint"),)


class One(Base):
    __tablename__ = "one"
    __table_args__ = SHARED
    id: Mapped[int] = mapped_column(primary_key=True)
    fingerprint: Mapped[int | None] = mapped_column(Fingerprint(recipe=Recipe(shingles=(2,))))


class Two(Base):
    __tablename__ = "two"
    __table_args__ = (*SHARED, SimhashIndex("other", recipe=Recipe(shingles=(4,))))
    id: Mapped[int] = mapped_column(primary_key=True)
    fingerprint: Mapped[int | None] = mapped_column(Fingerprint())
    other: Mapped[int | None] = mapped_column(BigInteger)


def declared(table):
    return [(i.column, i.distance, i.design, i.scope, i.recipe) for i in SimhashIndex.of(table)]


def test_a_table_knows_its_indexes():
    assert (
        declared(Post.__table__) == [("fingerprint", 7, None, (), "words12-set-1")] == declared(Comment.__table__)
    )
    assert declared(One.__table__) == [("fingerprint", 3, None, (), "words2-log-1")]
    assert declared(Two.__table__) == [
        ("fingerprint", 3, None, (), DEFAULT_RECIPE.id),
        ("other", 3, None, (), "words4-log-1"),
    ]
    assert SHARED[0].spec.recipe is None
    assert declared(Table("plain", MetaData())) == []
    assert repr(SimhashIndex("fingerprint", distance=7)) == (
        "SimhashIndex('fingerprint', distance=7, design=None, recipe=None, scope=(), storage=None, sources=())"
    )


def test_models_are_created_and_searched(session_of):
    session = session_of(Base)
    session.add_all([Post(fingerprint=2**64 - 1), Comment(fingerprint=1), Two(fingerprint=5, other=6)])
    session.flush()
    assert [(post.id, d) for post, d in session.execute(near(Post.fingerprint, 2**64 - 1, 0))] == [(1, 0)]
    assert session.execute(near(Comment.fingerprint, 2**64 - 1, 0)).all() == []
    assert session.scalars(select(Two.id).where(Two.other.in_([6]), Two.fingerprint.near(4, 1))).all() == [1]
    assert [(two.id, d) for two, d in session.execute(near(Two.other, 4, 1))] == [(1, 1)]
    assert len(indexes(session.connection())) == 5


def btrees(table):
    return sorted((index.name, *(column.name for column in index.columns)) for index in table.indexes)


def test_the_btree_has_the_name_that_the_convention_gives():
    assert btrees(Post.__table__) == [("x_post_fingerprint", "fingerprint")]
    assert btrees(Two.__table__) == [("x_two_fingerprint", "fingerprint"), ("x_two_other", "other")]
    scoped = Table(
        "article",
        MetaData(),
        Column("tenant", Integer, index=True),
        Column("fp", Fingerprint()),
        SimhashIndex("fp", scope=["tenant"]),
    )
    assert btrees(scoped) == [("ix_article_fp", "tenant", "fp"), ("ix_article_tenant", "tenant")]
    assert declared(scoped) == [("fp", 3, None, ("tenant",), DEFAULT_RECIPE.id)]
    custom = MetaData(naming_convention={"ix": "%(table_name)s_%(column_0_N_name)s_idx"})
    scoped = Table(
        "article",
        custom,
        Column("tenant", Integer),
        Column("fp", Fingerprint()),
        SimhashIndex("fp", scope=["tenant"]),
        schema="s",
    )
    assert btrees(scoped) == [("article_fp_idx", "tenant", "fp")]


def test_an_index_that_the_table_has_is_not_declared_again():
    for item in (Column("fp", Fingerprint(), index=True), Column("fp", Fingerprint())):
        mine = [] if item.index else [Index("mine", "fp", "id")]
        table = Table("article", MetaData(), Column("id", Integer), item, *mine, SimhashIndex("fp"))
        assert len(table.indexes) == 1


def test_a_copy_of_a_table_takes_its_index_along(database):
    copy = Post.__table__.to_metadata(MetaData(), schema="copy")
    assert declared(copy) == declared(Post.__table__)
    assert len(copy.indexes) == 1
    with database.begin() as connection:
        connection.execute(CreateSchema("copy"))
        copy.metadata.create_all(connection)
        assert [row[0] for row in indexes(connection)] == ["copy.post"]
        copy.metadata.drop_all(connection)
        assert indexes(connection) == []


def test_names_of_columns_are_keys_of_the_table():
    table = Table(
        "article",
        MetaData(),
        Column("of", Integer, key="tenant"),
        Column("fp", Fingerprint(), key="key"),
        SimhashIndex("key", scope=["tenant"]),
    )
    assert declared(table) == [("fp", 3, None, ("of",), DEFAULT_RECIPE.id)]


def test_errors_say_what_and_where():
    def table(*items):
        return Table(
            "article", MetaData(), Column("id", Integer), Column("fp", Fingerprint()), *items, schema="app"
        )

    with pytest.raises(
        ArgumentError, match=r"SimhashIndex: table app.article has no column 'fingerprint'; it has id, fp"
    ):
        table(SimhashIndex("fingerprint"))
    with pytest.raises(ArgumentError, match=r"SimhashIndex, scope: table app.article has no column 'tenant'"):
        table(SimhashIndex("fp", scope=["tenant"]))
    with pytest.raises(ArgumentError, match=r"app.article already has one on column 'fp'"):
        table(SimhashIndex("fp"), SimhashIndex("fp", distance=5))
    with pytest.raises(ArgumentError, match="already has an index named 'ix_app_article_fp'"):
        table(Index("ix_app_article_fp", "fp"), SimhashIndex("fp", scope=["id"]))
    with pytest.raises(ArgumentError, match="must be in a Table"):
        Column("fp", Fingerprint(), SimhashIndex("fp"))
    for distance in (-1, 65):
        with pytest.raises(ValueError, match="between 0 and 64"):
            SimhashIndex("fp", distance=distance)
    with pytest.raises(TypeError, match=r"scope=\['tenant'\]"):
        SimhashIndex("fp", scope="tenant")
    with pytest.raises(AttributeError):
        SimhashIndex("fp").spec.distance = 5


@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
def test_a_database_without_simsql_is_told_to_install_it(empty_database, driver):
    metadata = MetaData()
    Table("article", metadata, Column("fp", Fingerprint()), SimhashIndex("fp"))
    url = empty_database.url.difference_update_query(["client_encoding"]).set(drivername=f"postgresql+{driver}")

    async def create():
        engine = create_async_engine(url)
        try:
            async with engine.begin() as connection:
                await connection.run_sync(metadata.create_all)
        finally:
            await engine.dispose()

    with pytest.raises(UsageError, match=r"index on article needs simsql, .* run simsql install, or call"):
        asyncio.run(create())
    assert not inspect(empty_database).has_table("article")
