"""Fingerprint: unsigned in Python, bigint in PostgreSQL: in parameters, literals, results and migrations."""

import pickle

import pytest
from alembic.autogenerate import compare_metadata, render_python_code
from alembic.migration import MigrationContext
from alembic.operations import ops
from sqlalchemy import (
    BigInteger,
    BindParameter,
    Column,
    Integer,
    MetaData,
    Table,
    bindparam,
    create_mock_engine,
    insert,
    inspect,
    literal,
    select,
    update,
)
from sqlalchemy.dialects import postgresql
from sqlalchemy.exc import StatementError

from simsql import DEFAULT_RECIPE, Recipe
from simsql.sqlalchemy import Fingerprint

EDGES = {0: 0, 1: 1, 2**63 - 1: 2**63 - 1, 2**63: -(2**63), 2**64 - 1: -1}


@pytest.fixture
def table():
    return Table("article", MetaData(), Column("id", Integer, primary_key=True), Column("fp", Fingerprint()))


@pytest.fixture
def connection(database, table):
    with database.connect() as connection:
        table.create(connection)
        yield connection


def test_fingerprints_come_back_as_they_went_in(connection, table):
    connection.execute(insert(table), [{"fp": edge} for edge in [*EDGES, None]])
    assert connection.execute(select(table.c.fp).order_by(table.c.id)).scalars().all() == [*EDGES, None]
    stored = connection.exec_driver_sql("SELECT fp FROM article ORDER BY id").scalars().all()
    assert stored == [*EDGES.values(), None]


def test_a_fingerprint_is_found_as_a_parameter_and_as_a_literal(connection, table):
    connection.execute(insert(table), [{"fp": edge} for edge in EDGES])
    for edge, bigint in EDGES.items():
        assert connection.execute(select(table.c.fp).where(table.c.fp == bindparam("fp")), {"fp": edge}).one() == (
            edge,
        )
        for condition in (table.c.fp == edge, table.c.fp.in_([edge]), table.c.fp.bitwise_xor(edge) == 0):
            statement = select(table.c.fp).where(condition)
            assert connection.execute(statement).scalar_one() == edge
            text = str(statement.compile(connection, compile_kwargs={"literal_binds": True}))
            assert connection.exec_driver_sql(text).scalar_one() == bigint


def test_a_literal_is_a_bigint_wherever_it_stands(connection):
    for edge, bigint in EDGES.items():
        text = str(
            select(literal(edge, Fingerprint())).compile(connection, compile_kwargs={"literal_binds": True})
        )
        found = connection.exec_driver_sql(f"SELECT x, pg_typeof(x) FROM ({text}) AS t (x)").one()
        assert found == (bigint, "bigint")
        # No overload of a function takes a numeric.
        assert connection.exec_driver_sql(f"SELECT simsql.hamming_distance(0, ({text}))").scalar_one() >= 0


@pytest.mark.parametrize("number", [-(2**63) - 1, 2**64, "12"])
def test_what_is_no_fingerprint_is_refused(connection, table, number):
    with pytest.raises(StatementError, match="is not a fingerprint"):
        connection.execute(update(table).values(fp=number))


def test_hamming_distance_is_that_of_the_bits(connection, table):
    connection.execute(insert(table), [{"id": number, "fp": edge} for number, edge in enumerate(EDGES)])
    for other, bigint in EDGES.items():
        for operand in (other, literal(bigint, BigInteger()), bindparam("other")):
            distances = select(table.c.fp.hamming_distance(operand)).order_by(table.c.id)
            found = connection.execute(distances, {"other": other} if isinstance(operand, BindParameter) else {})
            assert found.scalars().all() == [(edge ^ other).bit_count() for edge in EDGES]
    alias = table.alias()
    to_itself = select(table.c.fp.hamming_distance(alias.c.fp)).join_from(table, alias, table.c.id == alias.c.id)
    assert set(connection.execute(to_itself).scalars()) == {0}
    assert set(connection.execute(select(table.c.fp.hamming_distance(None))).scalars()) == {None}


def test_reflection_sees_a_bigint(connection):
    (column,) = [column for column in inspect(connection).get_columns("article") if column["name"] == "fp"]
    assert type(column["type"]) is BigInteger or isinstance(column["type"], postgresql.BIGINT)
    assert isinstance(Table("article", MetaData(), autoload_with=connection).c.fp.type, BigInteger)


def test_alembic_sees_no_difference_and_renders_the_type(connection, table):
    context = MigrationContext.configure(connection, opts={"compare_type": True})
    names = {"alembic_version", "article"}
    differences = [d for d in compare_metadata(context, table.metadata) if names & {str(part) for part in d[:2]}]
    assert differences == []
    for type_ in (Fingerprint(), Fingerprint(source={"title": 3, "body": 1}, recipe=Recipe(shingles=(3,)))):
        column = ops.AddColumnOp("article", Column("fingerprint", type_))
        code = render_python_code(ops.UpgradeOps([column]), migration_context=context)
        assert "sa.Column('fingerprint', simsql.sqlalchemy.Fingerprint()," in code


def test_the_type_is_bigint_in_a_script():
    statements = []
    engine = create_mock_engine(
        "postgresql+psycopg://", lambda ddl, *_: statements.append(str(ddl.compile(engine)))
    )
    Table("article", MetaData(), Column("fp", Fingerprint(source="body"))).create(engine)
    assert "fp BIGINT" in statements[0]


def test_a_type_says_what_it_was_made_with():
    assert Fingerprint().recipe == DEFAULT_RECIPE
    assert Fingerprint(recipe=Recipe(shingles=(2,))).recipe.id == "words2-log-1"
    assert Fingerprint().sources is None
    assert Fingerprint(source="body").sources.weights == (("body", 1),)
    assert Fingerprint(source={"title": 3, "body": 1}).sources.weights == (("title", 3), ("body", 1))
    copy = pickle.loads(pickle.dumps(Fingerprint(source="body")))
    assert copy.sources == Fingerprint(source="body").sources


@pytest.mark.parametrize(
    ("source", "error"),
    [({}, ValueError), ({"title": 0}, ValueError), ({"title": 10**7}, ValueError), ({"title": 1.5}, TypeError)],
)
def test_sources_that_cannot_be_are_refused(source, error):
    with pytest.raises(error):
        Fingerprint(source=source)


def test_statements_are_compiled_once(database, connection, table):
    compiled = []

    def count(distance):
        result = connection.execute(
            select(table.c.id).where(table.c.fp == 5, table.c.fp.hamming_distance(7) < distance),
        )
        compiled.append(result.context.cache_hit.name)

    for distance in (1, 2, 3):
        count(distance)
    assert compiled[1:] == ["CACHE_HIT", "CACHE_HIT"]


def test_the_id_of_a_recipe_is_refused_at_once():
    with pytest.raises(TypeError, match="a recipe must be a Recipe, not str"):
        Fingerprint(source="body", recipe="words12-log-1")
