"""Autogenerate: what models gain, lose and change becomes the right operations, in the right order."""

from collections.abc import Mapping

import pytest
from alembic import command
from alembic.util import CommandError
from alembic_project import Project, article, models
from catalog import objects_of_database
from sqlalchemy import BigInteger, Column, Index, Integer, MetaData, Table, Text, select
from upgrades import RELEASED

from simsql import DEFAULT_RECIPE, Design, Recipe, sketch
from simsql.database import SearchIndex, from_bigint, install_schema
from simsql.fingerprint import simhash_parts
from simsql.sqlalchemy import Fingerprint, SimhashIndex, Sketch

FIRST = [("public.article", "fingerprint", 3, (4, 1, 0), DEFAULT_RECIPE.id, [])]
WORDS = Recipe(shingles=(2,), weight="set")


def old_models() -> MetaData:
    """Articles before they had fingerprints."""
    metadata = MetaData()
    Table("article", metadata, Column("id", BigInteger, primary_key=True), Column("body", Text))
    return metadata


@pytest.fixture
def indexed(project: Project) -> Project:
    """A project whose first revision has made the table with its index."""
    project.metadata = models(SimhashIndex("fingerprint"))
    project.migrate()
    return project


def test_a_table_gains_a_column_of_sketches(project):
    project.metadata = models()
    project.migrate()
    project.metadata = models()
    project.metadata.tables["article"].append_column(Column("sketch", Sketch(source="body")))
    revision = project.migrate()
    assert revision.names == (["add_column"], ["drop_column"])
    assert "sa.Column('sketch', simsql.sqlalchemy.Sketch()" in revision.text
    assert revision.text.count("import simsql.sqlalchemy\n") == 1
    project.downgrade("-1")
    project.metadata = models()
    assert project.differences() == []


def test_another_distance_leaves_what_clears_stale_fingerprints(indexed):
    indexed.execute("SELECT simsql.clear_on_change('article', 'fingerprint', ARRAY['body'])")
    indexed.metadata = models(SimhashIndex("fingerprint", distance=7))
    assert indexed.migrate().names[0] == ["drop_simhash_index", "create_simhash_index"]
    indexed.execute("INSERT INTO article (id, body, fingerprint) VALUES (1, 'old', 5)")
    indexed.execute("UPDATE article SET body = 'new'")
    assert indexed.execute("SELECT fingerprint FROM article") == [(None,)]


def weighted(
    *items: object, distance: int = 3, sources: Mapping[str, int] | None = None, **weights: int
) -> MetaData:
    """Articles whose fingerprints come from these columns, and an index on them."""
    metadata = MetaData()
    columns = (Column("id", BigInteger, primary_key=True), Column("title", Text), Column("body", Text))
    source = Column("fingerprint", Fingerprint(source=weights))
    index = SimhashIndex("fingerprint", distance=distance, sources=sources)
    Table("article", metadata, *columns, source, index, *items)
    return metadata


def test_a_migration_stores_the_sources_and_a_backfill_fills_both_columns(bare_project):
    bare_project.metadata = MetaData()
    columns = (Column("id", BigInteger, primary_key=True), Column("title", Text), Column("body", Text))
    Table("article", bare_project.metadata, *columns)
    bare_project.migrate()
    bare_project.execute(
        "INSERT INTO article SELECT n, 'the title ' || n, 'a body of words ' || n FROM generate_series(1, 9) AS n"
    )
    bare_project.metadata = weighted(Column("sketch", Sketch(source="body")), title=3, body=1)
    revision = bare_project.migrate()
    assert revision.upgrade[-1] == (
        "op.create_simhash_index('article', 'fingerprint', distance=3, recipe='words12-log-1',"
        " sources={'body': 1, 'title': 3})"
    )
    index = SearchIndex(bare_project.engine, "article")
    assert index.backfill(sketch_column="sketch", sketch_source="body").written == 9
    for title, body, made, sketched in bare_project.execute(
        "SELECT title, body, fingerprint, sketch FROM article"
    ):
        assert from_bigint(made) == simhash_parts([(title, 3), (body, 1)])
        assert from_bigint(sketched) == sketch(body)
    bare_project.execute("UPDATE article SET title = 'another' WHERE id = 1")
    assert bare_project.execute("SELECT id FROM article WHERE fingerprint IS NULL") == [(1,)]
    bare_project.downgrade("0001")
    bare_project.upgrade()


def test_other_sources_are_a_change_and_unknown_ones_are_none(bare_project):
    bare_project.metadata = weighted(title=3, body=1)
    bare_project.migrate()
    bare_project.execute("INSERT INTO article VALUES (1, 'a title', 'a body', 5)")
    for other in ({"title": 2, "body": 1}, {"body": 1}):
        bare_project.metadata = weighted(**other)
        names = ["drop_simhash_index", "clear_fingerprints", "create_simhash_index"]
        revision = bare_project.migrate()
        assert revision.names == (names, names)
        assert "# Fingerprints of other recipes or texts cannot be compared with new ones." in revision.text
        assert bare_project.execute("SELECT sources, recipe FROM simsql.indexes") == [(other, "words12-log-1")]
    assert bare_project.execute("SELECT fingerprint FROM article") == [(None,)]
    bare_project.metadata = weighted(body=9)  # the weight of one text says nothing
    assert bare_project.differences() == []
    # A model that names none takes any.
    bare_project.metadata.tables["article"].c.fingerprint.type = Fingerprint()
    assert bare_project.differences() == []
    bare_project.downgrade()


# The trigger and its companion, and what they do, without their number.
TRIGGERS = (
    "SELECT regexp_replace(pg_get_triggerdef(oid), 'clear_\\d+', 'clear') FROM pg_trigger"
    " WHERE tgrelid = 'article'::regclass AND tgname LIKE 'zz%' ORDER BY 1"
)
ALTER = "op.alter_simhash_index('article', 'fingerprint', sources={})"


@pytest.fixture(params=["0.2.0", "upgraded"])
def old_index(bare_project: Project, request: pytest.FixtureRequest) -> Project:
    """A project with an index that 0.2.0 created, which knows no sources, and models that name them."""
    bare_project.execute(RELEASED["0.2.0"].read_text(encoding="utf-8"))
    bare_project.execute(
        "CREATE TABLE article (id bigserial PRIMARY KEY, title text, body text, fingerprint bigint);"
        "CREATE INDEX ix_article_fingerprint ON article (fingerprint);"
        "SELECT simsql.create_index('article', 'fingerprint')"
    )
    if request.param == "upgraded":
        install_schema(bare_project.engine)
    bare_project.metadata = weighted(title=3, body=1)
    return bare_project


def test_an_index_of_0_2_0_gets_the_sources_of_its_model(old_index):
    revision = old_index.migrate()
    assert revision.upgrade == ("op.install_simsql()", ALTER.format({"body": 1, "title": 3}))
    assert revision.downgrade == (ALTER.format({}), "op.uninstall_simsql()")
    assert len(old_index.execute(TRIGGERS)) == 2
    old_index.execute("INSERT INTO article (body, fingerprint) VALUES ('old', 5)")
    old_index.execute("UPDATE article SET body = 'new'")
    assert old_index.execute("SELECT fingerprint FROM article") == [(None,)]
    old_index.downgrade()
    assert old_index.execute(TRIGGERS) == []
    assert len(old_index.indexes()) == 1
    script = old_index.sql(command.upgrade, "head")
    assert """'fingerprint', sources => CAST('{"body": 1, "title": 3}' AS JSONB));""" in script


def test_a_trigger_of_the_application_is_the_one_that_the_model_asks_for(old_index):
    old_index.execute("SELECT simsql.clear_on_change('article', 'fingerprint', ARRAY['title', 'body'])")
    assert old_index.differences() == []
    old_index.metadata = weighted(title=3, body=1, distance=7)
    revision = old_index.migrate()
    assert revision.names[0][-2:] == ["drop_simhash_index", "create_simhash_index"]
    assert len(old_index.execute(TRIGGERS)) == 2
    old_index.downgrade()
    assert len(old_index.execute(TRIGGERS)) == 2
    # Another trigger than the model's sources need.
    old_index.execute("SELECT simsql.alter_index('article', sources => '{}')")
    old_index.execute("SELECT simsql.clear_on_change('article', 'fingerprint', ARRAY['title'])")
    old_index.metadata = weighted(title=3, body=1)
    kinds = [difference[0] for difference in old_index.differences()]
    assert kinds[-1] == "alter_simhash_index"


@pytest.mark.parametrize(
    "lost",
    [
        "SELECT simsql.drop_clear_on_change('article', 'fingerprint')",
        "ALTER TABLE article DISABLE TRIGGER zz_simsql_clear_1",
        "DROP TRIGGER zz_simsql_clear_1_column ON article",
    ],
)
def test_a_trigger_that_is_missing_or_altered_is_a_difference(bare_project, lost):
    bare_project.metadata = weighted(title=3, body=1)
    bare_project.migrate()
    clearing = bare_project.execute(TRIGGERS)
    bare_project.execute(lost)
    revision = bare_project.migrate()
    assert revision.upgrade == revision.downgrade == (ALTER.format({"body": 1, "title": 3}),)
    assert bare_project.execute(TRIGGERS) == clearing
    # A model can do without.
    bare_project.metadata = weighted(title=3, body=1, sources={})
    revision = bare_project.migrate()
    assert (revision.upgrade, revision.downgrade) == ((ALTER.format({}),), revision.downgrade)
    assert bare_project.execute(TRIGGERS) == []
    bare_project.downgrade("-1")
    assert bare_project.execute(TRIGGERS) == clearing


def test_another_distance_keeps_what_belongs_to_the_index(bare_project):
    other = Column("other", Fingerprint(source="title"))

    def both(distance: int) -> MetaData:
        return weighted(other._copy(), SimhashIndex("other"), title=3, body=1, distance=distance)

    def belongings() -> object:
        registry = "SELECT r.column_name, r.is_default, r.sources, r.recipe FROM simsql.registry AS r ORDER BY 1"
        faults = "SELECT object, problem FROM simsql.verify('article')"
        return [bare_project.execute(statement) for statement in (registry, TRIGGERS, faults)]

    bare_project.metadata = both(3)
    bare_project.migrate()
    bare_project.execute("SELECT simsql.set_default_index('article', 'fingerprint')")
    before = belongings()
    bare_project.metadata = both(7)
    revision = bare_project.migrate()
    assert revision.upgrade[-1].endswith("is_default=True)")
    assert belongings() == before
    assert bare_project.execute("SELECT * FROM simsql.near('article', 4)") == []
    bare_project.downgrade("0001")
    assert belongings() == before
    assert "SELECT simsql.set_default_index('article'::regclass" in bare_project.sql(command.upgrade, "0001:0002")


def test_a_renamed_source_is_no_other_one(bare_project):
    bare_project.metadata = weighted(title=3, body=1)
    bare_project.migrate()
    bare_project.execute("ALTER TABLE article RENAME body TO content; ALTER TABLE article RENAME title TO body")
    metadata = MetaData()
    columns = (Column("id", BigInteger, primary_key=True), Column("body", Text), Column("content", Text))
    made = Column("fingerprint", Fingerprint(source={"body": 3, "content": 1}))
    Table("article", metadata, *columns, made, SimhashIndex("fingerprint"))
    bare_project.metadata = metadata
    assert bare_project.differences() == []


def test_an_existing_table_gains_its_first_index(bare_project):
    bare_project.metadata = old_models()
    bare_project.migrate()
    before = objects_of_database(bare_project.engine)
    bare_project.execute("INSERT INTO article (id) VALUES (1)")
    bare_project.metadata = models(SimhashIndex("fingerprint"))
    revision = bare_project.migrate()
    assert revision.names == (
        ["install_simsql", "add_column", "create_index", "create_simhash_index"],
        ["drop_simhash_index", "drop_index", "drop_column", "uninstall_simsql"],
    )
    assert revision.upgrade[0] == "op.install_simsql()"
    assert revision.upgrade[-1] == (
        "op.create_simhash_index('article', 'fingerprint', distance=3, recipe='words12-log-1')"
    )
    assert revision.downgrade[0] == "op.drop_simhash_index('article', 'fingerprint')"
    assert revision.text.count("import simsql.sqlalchemy\n") == 1
    assert "sa.Column('fingerprint', simsql.sqlalchemy.Fingerprint()" in revision.text
    assert bare_project.indexes() == FIRST
    again = bare_project.revise()
    assert (again.upgrade, again.downgrade) == ((), ())
    assert "simsql" not in again.text
    bare_project.execute("UPDATE article SET fingerprint = 7")
    assert bare_project.execute("SELECT * FROM simsql.near('article', 0)") == [(7, 3)]
    bare_project.downgrade("0001")
    assert objects_of_database(bare_project.engine) == before
    bare_project.upgrade()
    assert bare_project.indexes() == FIRST


def test_a_table_of_the_same_revision_comes_first_and_goes_last(bare_project):
    bare_project.metadata = models(SimhashIndex("fingerprint"))
    revision = bare_project.migrate()
    assert revision.names == (
        ["install_simsql", "create_table", "create_index", "create_simhash_index"],
        ["drop_simhash_index", "drop_index", "drop_table", "uninstall_simsql"],
    )
    assert bare_project.indexes() == FIRST
    bare_project.downgrade()
    bare_project.upgrade()
    assert bare_project.indexes() == FIRST
    bare_project.metadata = MetaData()
    revision = bare_project.migrate()
    assert revision.names == (
        ["drop_simhash_index", "drop_index", "drop_table"],
        ["create_table", "create_index", "create_simhash_index"],
    )
    assert bare_project.indexes() == []
    bare_project.downgrade("0001")
    assert bare_project.indexes() == FIRST


def test_an_index_and_its_column_are_lost(indexed):
    indexed.metadata = models()
    revision = indexed.migrate()
    assert revision.names == (["drop_simhash_index", "drop_index"], ["create_index", "create_simhash_index"])
    assert revision.downgrade[1] == (
        "op.create_simhash_index('article', 'fingerprint', distance=3, blocks=4, lead=1, inner_blocks=0,"
        " recipe='words12-log-1')"
    )
    indexed.downgrade("0001")
    assert indexed.indexes() == FIRST
    indexed.metadata = old_models()
    (next(indexed.folder.glob("versions/0002*"))).unlink()
    revision = indexed.migrate()
    assert revision.names[0] == ["drop_simhash_index", "drop_index", "drop_column"]
    indexed.downgrade("0001")
    assert indexed.indexes() == FIRST


def test_a_changed_index_is_dropped_and_created(indexed):
    both = ["drop_simhash_index", "create_simhash_index"]
    for changed, expected in (
        ({"distance": 7}, (7, (4, 1, 0), DEFAULT_RECIPE.id)),
        ({"design": Design(5, 2)}, (3, (5, 2, 0), DEFAULT_RECIPE.id)),
        ({"design": Design(5, 2, 3)}, (3, (5, 2, 3), DEFAULT_RECIPE.id)),
    ):
        indexed.metadata = models(SimhashIndex("fingerprint", **changed))
        assert indexed.migrate().names == (both, both)
        assert indexed.indexes() == [("public.article", "fingerprint", *expected, [])]
    indexed.downgrade("0001")
    assert indexed.indexes() == FIRST


def test_a_changed_scope_takes_its_btree_along(indexed):
    scope = {"scope": ["tenant"]}
    indexed.metadata = models(Column("tenant", Integer), SimhashIndex("fingerprint", **scope))
    revision = indexed.migrate()
    assert revision.names[0][0] == "drop_simhash_index"
    assert revision.names[0][-1] == "create_simhash_index"
    assert sorted(revision.names[0][1:-1]) == ["add_column", "create_index", "drop_index"]
    assert "scope=['tenant'])" in revision.upgrade[-1]
    assert indexed.indexes()[0][-1] == ["tenant"]
    indexed.metadata = models(Column("tenant", Integer), SimhashIndex("fingerprint"))
    assert "scope=['tenant'])" in indexed.migrate().downgrade[-1]
    assert indexed.indexes()[0][-1] == []


def test_a_design_that_the_model_does_not_name_never_changes(project):
    project.metadata = models(SimhashIndex("fingerprint", recipe=WORDS))
    project.write(
        "op.create_table('article', sa.Column('id', sa.BigInteger(), primary_key=True),\n"
        "    sa.Column('body', sa.Text()), sa.Column('fingerprint', sa.BigInteger()))\n"
        f"op.create_simhash_index('article', 'fingerprint', distance=3, blocks=6, lead=2, recipe={WORDS.id!r})"
    )
    project.upgrade()
    assert project.revise().names[0] == ["drop_index", "create_index"]  # the name of the B-tree
    project.upgrade()
    project.check()
    assert project.indexes() == [("public.article", "fingerprint", 3, (6, 2, 0), WORDS.id, [])]
    project.metadata = models(SimhashIndex("fingerprint", distance=5, recipe=WORDS))
    assert f"distance=5, recipe={WORDS.id!r})" in project.migrate().upgrade[-1]


def test_several_indexes_and_metadata(project):
    first, second = models(SimhashIndex("fingerprint")), MetaData()
    article(
        second, Column("title", Fingerprint()), SimhashIndex("title"), SimhashIndex("fingerprint"), name="page"
    )
    project.metadata = [first, second]
    revision = project.migrate()
    assert revision.names[0][-3:] == ["create_simhash_index"] * 3
    assert [index[:2] for index in project.indexes()] == [
        ("public.article", "fingerprint"),
        ("public.page", "title"),
        ("public.page", "fingerprint"),
    ]
    project.metadata = [first]
    assert project.migrate().names[0][:2] == ["drop_simhash_index"] * 2


def test_a_fingerprint_without_an_index_is_imported(project):
    project.metadata = models()
    revision = project.migrate()
    assert revision.names == (["create_table"], ["drop_table"])
    assert revision.text.count("import simsql.sqlalchemy\n") == 1
    project.metadata = models(Column("other", Fingerprint()))
    assert project.migrate().text.count("import simsql.sqlalchemy\n") == 1


def test_another_schema(project):
    project.execute("CREATE SCHEMA app")
    project.options = {"include_schemas": True}
    project.metadata = models(SimhashIndex("fingerprint"), schema="app")
    revision = project.migrate()
    assert revision.upgrade[-1].startswith("op.create_simhash_index('article', 'fingerprint', schema='app', ")
    assert revision.downgrade[0] == "op.drop_simhash_index('article', 'fingerprint', schema='app')"
    assert project.indexes()[0][0] == "app.article"
    # The schema simsql is there now, and nobody wants to drop its tables.
    article(project.metadata, SimhashIndex("fingerprint"))
    assert project.migrate().names[0] == ["create_table", "create_index", "create_simhash_index"]
    project.downgrade("0001")
    assert [index[0] for index in project.indexes()] == ["app.article"]
    project.downgrade()
    assert project.indexes() == []


def test_a_default_schema_that_the_model_names(project):
    project.metadata = models(SimhashIndex("fingerprint"), schema="public")
    assert "schema='public'" in project.migrate().upgrade[-1]
    project.metadata = models(SimhashIndex("fingerprint"))
    # SQLAlchemy puts the schema into the name of the B-tree.
    assert {kind for kind, *_ in project.differences()} == {"add_index", "remove_index"}


HARD_NAMES = [
    "Mixed Case",
    "quote \" and '",
    "100% :colon %(name)s %s",
    "back\\slash $1 ; --",
    "n" * 63,
    "ü" * 31 + "x",  # 63 bytes
    "select",
]


def test_hard_names(project):
    metadata = MetaData()
    for name in HARD_NAMES:
        project.execute('CREATE SCHEMA "{}"'.format(name.replace('"', '""')))
        # Alembic cannot read the sequence of a table with a quote in its name.
        columns = Column("id", BigInteger, primary_key=True, autoincrement=False), Column(name, Fingerprint())
        # SQLAlchemy cuts the names that it makes to 63 characters, PostgreSQL to 63 bytes.
        indexes = [] if name.isascii() else [Index("by_print", name)]
        Table(name, metadata, *columns, *indexes, SimhashIndex(name), schema=name)
    project.metadata, project.options = metadata, {"include_schemas": True}
    assert project.migrate().names[0][-len(HARD_NAMES) :] == ["create_simhash_index"] * len(HARD_NAMES)
    assert {column for _, column, *_ in project.indexes()} == set(HARD_NAMES)
    project.downgrade()
    assert project.indexes() == []


def test_a_storage_is_changed_in_place(indexed):
    expression = models(SimhashIndex("fingerprint", storage="expression"))
    indexed.metadata = expression
    revision = indexed.migrate()
    assert revision.upgrade == ("op.change_simhash_storage('article', 'fingerprint', storage='expression')",)
    assert revision.downgrade == ("op.change_simhash_storage('article', 'fingerprint', storage='tables')",)
    assert indexed.execute("SELECT storage FROM simsql.indexes") == [("expression",)]
    # A model that names none takes any, and the B-trees on the table are not dropped.
    for metadata in (models(SimhashIndex("fingerprint")), expression):
        indexed.metadata = metadata
        again = indexed.revise()
        assert (again.upgrade, again.downgrade) == ((), ())
        indexed.upgrade()
    indexed.metadata = models(SimhashIndex("fingerprint", storage="tables"))
    assert indexed.differences() == [
        ("change_simhash_storage", None, "article", "fingerprint", {"storage": "tables"})
    ]
    assert indexed.migrate().upgrade == revision.downgrade
    assert indexed.indexes() == FIRST
    # With another difference, the index is dropped and created.
    indexed.metadata = models(SimhashIndex("fingerprint", distance=7, storage="expression"))
    revision = indexed.migrate()
    assert revision.names == (["drop_simhash_index", "create_simhash_index"],) * 2
    assert revision.upgrade[-1].endswith("storage='expression')")
    assert "storage" not in revision.downgrade[-1]
    indexed.downgrade("0002")
    assert indexed.execute("SELECT storage FROM simsql.indexes") == [("expression",)]
    indexed.downgrade("0001")
    assert indexed.execute("SELECT storage FROM simsql.indexes") == [("tables",)]


def test_a_storage_is_changed_in_another_schema(project):
    project.execute('CREATE SCHEMA "App"')
    project.options = {"include_schemas": True}
    project.metadata = models(SimhashIndex("fingerprint"), schema="App")
    project.migrate()
    project.metadata = models(SimhashIndex("fingerprint", storage="expression"), schema="App")
    assert project.migrate().upgrade == (
        "op.change_simhash_storage('article', 'fingerprint', schema='App', storage='expression')",
    )
    script = project.sql(command.upgrade, "0001:0002")
    assert "SELECT simsql.change_storage('\"App\".article'::regclass, 'expression', 'fingerprint');" in script


def test_an_index_follows_a_table_that_was_re_created(project):
    """As Citus does when its distribution changes."""
    project.metadata = models(SimhashIndex("fingerprint", storage="expression"))
    project.migrate()
    project.execute(
        "ALTER TABLE article RENAME TO old; CREATE TABLE article (LIKE old, PRIMARY KEY (id));"
        " DROP TABLE old; CREATE INDEX ix_article_fingerprint ON article (fingerprint);"
        " CREATE INDEX simsql_1_0 ON article ((fingerprint & 1), fingerprint)"
    )
    assert project.execute("SELECT state FROM simsql.indexes") == [("table re-created",)]
    project.check()


def test_indexes_of_a_released_version_are_compared_before_the_upgrade(bare_project):
    bare_project.execute(RELEASED["0.2.0"].read_text(encoding="utf-8"))
    bare_project.metadata = models(SimhashIndex("fingerprint"))
    bare_project.metadata.create_all(bare_project.engine)
    bare_project.check()
    bare_project.metadata = models(SimhashIndex("fingerprint", distance=7))
    both = ["drop_simhash_index", "create_simhash_index"]
    assert bare_project.revise().names == (["install_simsql", *both], [*both, "uninstall_simsql"])


def test_a_partitioned_table_needs_no_storage(project):
    metadata = MetaData()
    columns = Column("id", BigInteger, primary_key=True, autoincrement=False), Column("fingerprint", Fingerprint())
    table = Table("page", metadata, *columns, SimhashIndex("fingerprint"), postgresql_partition_by="HASH (id)")
    project.metadata = metadata
    assert project.migrate().names[0][-1] == "create_simhash_index"
    project.execute("CREATE TABLE page_0 PARTITION OF page FOR VALUES WITH (MODULUS 1, REMAINDER 0)")
    project.execute("INSERT INTO page VALUES (1, 5)")
    with project.engine.connect() as connection:
        found = connection.execute(select(table.c.id).where(table.c.fingerprint.near(4, 1))).all()
    assert found == [(1,)]
    metadata.remove(table)
    project.options = {"include_object": lambda item, name, kind, *_: name != "page_0"}
    assert project.migrate().names[0] == ["drop_simhash_index", "drop_index", "drop_table"]


def test_check_says_what_differs(indexed):
    indexed.metadata = models(SimhashIndex("fingerprint", distance=7))
    with pytest.raises(CommandError) as found:
        indexed.check()
    assert "remove_simhash_index" in str(found.value)
    assert "add_simhash_index" in str(found.value)
    assert "'distance': 7" in str(found.value)
    removed, added = indexed.differences()
    assert removed == ("remove_simhash_index", None, "article", "fingerprint")
    assert added[:4] == ("add_simhash_index", None, "article", "fingerprint")


def test_a_renamed_table_keeps_its_index(indexed):
    """Its index is known by the table, not by the name; one line lets searches find it again."""
    indexed.metadata = models(SimhashIndex("fingerprint"), name="page")
    indexed.write(
        "op.rename_table('article', 'page')\n"
        "op.execute('ALTER INDEX ix_article_fingerprint RENAME TO ix_page_fingerprint')\n"
        "op.execute(\"SELECT simsql.repair('page')\")",
        "op.rename_table('page', 'article')\n"
        "op.execute('ALTER INDEX ix_page_fingerprint RENAME TO ix_article_fingerprint')\n"
        "op.execute(\"SELECT simsql.repair('article')\")",
    )
    indexed.upgrade()
    indexed.check()
    assert [index[0] for index in indexed.indexes()] == ["public.page"]
    indexed.downgrade("0001")
    assert indexed.indexes() == FIRST
