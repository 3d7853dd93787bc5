"""A model of another recipe than the index is a difference, and no old fingerprint gets the new recipe's name."""

import pytest
from alembic import command
from alembic.util import CommandError
from alembic_project import Project
from sqlalchemy import BigInteger, Column, MetaData, Table, Text

from simsql import DEFAULT_RECIPE, Recipe, simhash
from simsql.database import SearchIndex
from simsql.database.bigint import to_bigint
from simsql.fingerprint import KNOWN_RECIPES
from simsql.sqlalchemy import Fingerprint, SimhashIndex

TRIGRAMS = Recipe(shingles=(3,))
TEXTS = [f"Now is better than never. Although never is often better than *right* now. {n} {n}" for n in range(9)]


def models(type_: Fingerprint, *, name: str = "article", schema: str | None = None, **options: object) -> MetaData:
    """Articles whose fingerprints are of this type, and indexed."""
    metadata = MetaData()
    columns = (
        Column("id", BigInteger, primary_key=True),
        Column("title", Text),
        Column("body text", Text, key="body"),
        Column("fingerprint", type_),
    )
    Table(name, metadata, *columns, SimhashIndex("fingerprint", distance=7, **options), schema=schema)
    return metadata


@pytest.fixture
def filled(project: Project) -> Project:
    """A project whose articles have fingerprints of word trigrams."""
    project.metadata = models(Fingerprint(source="body", recipe=TRIGRAMS))
    project.migrate()
    fill(project)
    assert own_texts_found(project, TRIGRAMS) == len(TEXTS)
    return project


def fill(project: Project) -> None:
    with project.engine.begin() as connection:
        (table,) = project.metadata.tables.values()
        connection.execute(table.insert(), [{"id": n, "body": text} for n, text in enumerate(TEXTS)])


def own_texts_found(project: Project, recipe: Recipe) -> int:
    """How many texts are found by their own fingerprint, as an application of the recipe makes it."""
    with project.engine.connect() as connection:
        return sum(bool(SearchIndex(connection, "article").near(simhash(text, recipe), 0)) for text in TEXTS)


def foreign_fingerprints(project: Project, recipe: Recipe) -> int:
    """How many rows have a fingerprint of another recipe than this."""
    rows = project.execute('SELECT "body text", fingerprint FROM article WHERE fingerprint IS NOT NULL')
    return sum(to_bigint(simhash(text, recipe)) != fingerprint for text, fingerprint in rows)


def test_a_recipe_that_the_model_does_not_name_is_the_default(filled):
    filled.metadata = models(Fingerprint(source="body"))
    with pytest.raises(CommandError) as found:
        filled.check()
    for said in ("clear_fingerprints", DEFAULT_RECIPE.id):
        assert said in str(found.value)
    kinds = [difference[0] for difference in filled.differences()]
    assert kinds == ["remove_simhash_index", "clear_fingerprints", "add_simhash_index"]
    for same in (Fingerprint(source="body", recipe=TRIGRAMS), Fingerprint(recipe=TRIGRAMS)):
        filled.metadata = models(same)
        filled.check()
    filled.metadata = models(Fingerprint(), recipe=TRIGRAMS)
    filled.check()
    filled.metadata = models(Fingerprint())
    assert [difference[0] for difference in filled.differences()] == kinds


def test_old_fingerprints_do_not_get_the_name_of_another_recipe(filled, caplog):
    filled.metadata = models(Fingerprint(source="body"))
    with caplog.at_level("INFO", "alembic.autogenerate"):
        revision = filled.migrate()
    assert f"fingerprints: {TRIGRAMS.id} in the database, {DEFAULT_RECIPE.id} in the models" in caplog.text
    assert foreign_fingerprints(filled, DEFAULT_RECIPE) == 0
    names = ["drop_simhash_index", "clear_fingerprints", "create_simhash_index"]
    assert revision.names == (names, names)
    assert [index[4] for index in filled.indexes()] == [DEFAULT_RECIPE.id]
    # What the comment says, word by word.
    assert filled.execute("SELECT count(fingerprint) FROM article") == [(0,)]
    assert "# Fingerprints of other recipes or texts cannot be compared with new ones." in revision.text
    assert SearchIndex(filled.engine, "article", "fingerprint").backfill().written == len(TEXTS)
    assert own_texts_found(filled, DEFAULT_RECIPE) == len(TEXTS)
    # And back.
    filled.downgrade("0001")
    assert foreign_fingerprints(filled, TRIGRAMS) == 0
    assert [index[4] for index in filled.indexes()] == [TRIGRAMS.id]
    SearchIndex(filled.engine, "article").backfill("body text")
    assert own_texts_found(filled, TRIGRAMS) == len(TEXTS)


@pytest.mark.parametrize(
    ("stored", "named", "expected"),
    [
        (None, None, []),
        # The index says nothing, and other texts than those of the model may be in it.
        (None, DEFAULT_RECIPE, ["drop", "clear", "create"]),
        (DEFAULT_RECIPE.id, None, []),
        ("fnv1a-words", KNOWN_RECIPES["fnv1a-words"], []),
        (KNOWN_RECIPES["fnv1a-words"].id, "fnv1a-words", []),
        # Fingerprints that are not of texts, and a model that does not know what they are of.
        ("phash64", None, []),
        ("phash64", DEFAULT_RECIPE, ["drop", "clear", "create"]),
        ("phash64", "phash\nraise SystemExit", ["drop", "clear", "create"]),
        # The index says nothing, and they may be those of the name that the model gives.
        (None, "phash64", ["drop", "create"]),
        (None, TRIGRAMS, ["drop", "clear", "create"]),
    ],
)
def test_recipes_that_may_be_the_same_are_left_alone(project, stored, named, expected):
    project.metadata = models(Fingerprint(), recipe=named)
    project.metadata.create_all(project.engine)
    named_in_sql = "NULL" if stored is None else f"'{stored}'"
    project.execute(
        "SELECT simsql.drop_index('article');"
        f"SELECT simsql.create_index('article', 'fingerprint', 7, recipe => {named_in_sql})"
    )
    assert [name.split("_")[0] for name in project.revise().names[0]] == expected
    if expected:
        project.upgrade()
        project.check()


def test_plain_sql_and_a_translated_schema(project):
    project.write(
        "op.create_table('article', sa.Column('id', sa.BigInteger()), sa.Column('100% \"fp\"', sa.BigInteger()))\n"
        "op.execute('INSERT INTO article VALUES (1, 1), (2, NULL)')\n"
        "op.clear_fingerprints('article', '100% \"fp\"')"
    )

    script = project.sql(command.upgrade, "head")
    assert 'UPDATE article SET "100% ""fp"""=NULL WHERE article."100% ""fp""" IS NOT NULL;' in " ".join(
        script.split()
    )
    project.execute("CREATE SCHEMA tenant")
    project.execute("CREATE TABLE tenant.article (id bigint, fingerprint bigint)")
    project.execute("INSERT INTO tenant.article VALUES (1, 1)")
    project.upgrade()
    assert project.execute('SELECT count("100% ""fp""") FROM article') == [(0,)]
    project.write("op.clear_fingerprints('article', 'fingerprint', schema='app')")
    project.engine = project.engine.execution_options(schema_translate_map={"app": "tenant"})
    project.upgrade()
    assert project.execute("SELECT fingerprint FROM tenant.article") == [(None,)]
