"""What env.py says is respected: filters, Rewriter, naming conventions, render_item, prefixes."""

import re

from alembic.autogenerate.rewriter import Rewriter
from alembic_project import article, models
from distribution import REPOSITORY
from program import run
from sqlalchemy import Column, Index, MetaData, create_engine

from simsql.alembic import CreateSimhashIndexOp
from simsql.sqlalchemy import Fingerprint, SimhashIndex, Sketch


def test_include_object_leaves_tables_and_columns_out(project):
    project.metadata = models(SimhashIndex("fingerprint"))
    article(project.metadata, SimhashIndex("fingerprint"), name="page")
    project.options = {"include_object": lambda item, name, kind, *_: (kind, name) != ("table", "page")}
    revision = project.migrate()
    assert revision.names[0].count("create_simhash_index") == 1
    assert [index[0] for index in project.indexes()] == ["public.article"]
    # An index on a table that is left out stays, whatever the models say; so does one on such a column.
    project.options = {"include_object": lambda item, name, kind, *_: (kind, name) != ("table", "article")}
    project.migrate()
    project.metadata = models()
    article(project.metadata, name="page")
    assert project.revise().names[0] == ["drop_simhash_index", "drop_index"]
    project.options = {"include_object": lambda item, name, kind, *_: kind not in {"column", "index"}}
    project.upgrade()
    project.check()
    assert [index[0] for index in project.indexes()] == ["public.article"]


def test_include_object_is_asked_about_the_index(project):
    asked = []

    def include(item, name, kind, reflected, compare_to):
        if kind == "simhash_index":
            columns = [column.name for column in item.columns]
            asked.append((item.table.name, columns, name, reflected, compare_to is not None))
        # The usual rule for what somebody has made by hand.
        return not (reflected and compare_to is None)

    project.options = {"include_object": include}
    project.metadata = models(SimhashIndex("fingerprint"), Column("other", Fingerprint()))
    project.migrate()
    project.execute("SELECT simsql.create_index('article', 'other')")
    project.check()
    assert asked == [
        ("article", ["fingerprint"], "fingerprint", False, False),
        ("article", ["other"], "other", True, False),
    ]
    asked.clear()
    project.metadata = models(SimhashIndex("fingerprint", distance=5), Column("other", Fingerprint()))
    project.migrate()
    assert asked[0] == ("article", ["fingerprint"], "fingerprint", False, True)
    assert sorted(index[1] for index in project.indexes()) == ["fingerprint", "other"]


def test_include_name_and_schemas(project):
    project.execute("CREATE SCHEMA app")
    project.execute("CREATE SCHEMA foreign_app")
    project.execute("CREATE TABLE foreign_app.article (fingerprint bigint)")

    def include(name, kind, parents):
        return name in {None, "app"} if kind == "schema" else name != "left_out"

    project.options = {"include_schemas": True, "include_name": include}
    project.metadata = models(SimhashIndex("fingerprint"), schema="app")
    project.migrate()
    project.execute("SELECT simsql.create_index('foreign_app.article', 'fingerprint')")
    project.execute("CREATE TABLE left_out (fingerprint bigint)")
    project.execute("SELECT simsql.create_index('left_out', 'fingerprint')")
    project.check()
    # Without include_schemas, Alembic looks at the default schema alone, and so does simsql.
    project.options = {"include_name": include}
    project.metadata = MetaData()
    project.check()


def test_a_rewriter_sees_the_operations(project):
    writer = Rewriter()

    @writer.rewrites(CreateSimhashIndexOp)
    def build(context, revision, op):
        op.concurrently = True
        return op

    seen = []

    def see(context, revision, directives):
        seen.extend(type(op).__name__ for op in directives[0].upgrade_ops.ops)

    project.options = {"process_revision_directives": writer.chain(see), "transaction_per_migration": True}
    project.metadata = models(SimhashIndex("fingerprint", distance=5))
    revision = project.migrate()
    assert revision.upgrade[-1] == (
        "op.create_simhash_index('article', 'fingerprint', distance=5, recipe='words12-log-1', concurrently=True)"
    )
    assert revision.downgrade[0] == "op.drop_simhash_index('article', 'fingerprint')"
    assert seen == ["CreateTableOp", "ModifyTableOps", "CreateSimhashIndexOp"]
    assert project.indexes()[0][2] == 5


def test_naming_conventions(project):
    project.metadata = MetaData(naming_convention={"ix": "index_%(table_name)s_%(column_0_N_name)s"})
    article(project.metadata, SimhashIndex("fingerprint"))
    project.migrate()
    names = project.execute("SELECT indexname FROM pg_indexes WHERE tablename = 'article' ORDER BY 1")
    assert names == [("article_pkey",), ("index_article_fingerprint",)]
    project.downgrade()
    project.upgrade()
    project.check()


def test_render_item_and_prefixes(project):
    def render(kind, item, context):
        return "Print()" if isinstance(item, Fingerprint) else False

    project.metadata = models(SimhashIndex("fingerprint"))
    project.options = {"render_item": render, "alembic_module_prefix": "operations."}
    text = project.revise().text
    assert "sa.Column('fingerprint', Print(), nullable=True)" in text
    assert "import simsql" not in text
    assert "    operations.create_simhash_index('article', 'fingerprint', distance=3" in text


def test_tables_of_decisions_are_left_out(project):
    project.metadata = models(SimhashIndex("fingerprint"))
    project.migrate()
    at = ["--database", project.engine.url.render_as_string(hide_password=False)]
    project.execute("CREATE SCHEMA other; CREATE TABLE other.saying (slug text PRIMARY KEY, body text)")
    run("dedup-table", "other.saying", "--text-column", "body", "--into", "decisions", *at).done()
    guide = (REPOSITORY / "docs/guides/clean-a-table.md").read_text(encoding="utf-8")
    (comment,) = re.findall(r"^(?:CREATE TABLE deleted|COMMENT ON TABLE deleted).*$", guide, re.MULTILINE)[1:]
    project.execute(f"CREATE TABLE deleted (slug text); {comment}")
    project.check()
    project.execute("COMMENT ON TABLE decisions IS NULL")
    assert project.revise().names[0] == ["drop_table"]


def test_partitions_and_the_b_trees_of_indexes_are_left_out(project, caplog):
    """Otherwise a migration would drop the partitions with their rows."""
    asked = []
    project.options = {"include_object": lambda item, name, kind, *_: asked.append(name) or True}
    project.metadata = models(SimhashIndex("fingerprint"), postgresql_partition_by="RANGE (id)")
    article(project.metadata, SimhashIndex("fingerprint", storage="expression"), name="page")
    project.revise()
    project.upgrade()
    for number in range(2):
        project.execute(
            f"CREATE TABLE part_{number} PARTITION OF article FOR VALUES FROM ({number}) TO ({number + 1})"
        )
    # As an interrupted build leaves it: on a partition, and no part of another B-tree.
    project.execute("CREATE INDEX simsql_7_2_16384 ON part_1 ((fingerprint & 1), fingerprint)")
    # A partition that has a model is compared.
    article(project.metadata, Index("part_1_body", "body"), name="part_1")
    asked.clear()
    caplog.clear()
    with caplog.at_level("INFO", "alembic.autogenerate"):
        revision = project.revise()
    assert revision.upgrade == ("op.create_index('part_1_body', 'part_1', ['body'], unique=False)",)
    (detected,) = [message for message in caplog.messages if message.startswith("Detected")]
    assert "part_1_body" in detected
    assert {"article", "part_1"} <= set(asked)
    assert not [name for name in asked if name == "part_0" or "simsql" in name or name.endswith("_idx")]
    project.upgrade()
    project.check()
    # A removed table goes with its partitions, and comes back without them.
    project.metadata = MetaData()
    article(project.metadata, name="page")
    revision = project.migrate()
    assert sorted(revision.names[0]) == [*["drop_index"] * 2, *["drop_simhash_index"] * 2, "drop_table"]


def test_migrations_leave_other_databases_alone(project, tmp_path):
    project.metadata = models(SimhashIndex("fingerprint"), Column("other", Fingerprint()))
    project.migrate()
    project.write(
        "op.change_simhash_storage('article', 'fingerprint', storage='expression')\n"
        "op.set_default_simhash_index('article', 'fingerprint')\n"
        "op.clear_fingerprints('article', 'fingerprint')\n"
        "op.alter_simhash_index('article', 'fingerprint', sources='body')\n"
        "op.drop_simhash_index('article', 'fingerprint')",
        "op.create_simhash_index('article', 'fingerprint', concurrently=True, is_default=True)\n"
        "op.install_simsql()",
    )
    project.engine = create_engine(f"sqlite:///{tmp_path / 'lite.db'}")
    project.upgrade()
    project.check()
    project.downgrade()
    assert project.execute("SELECT name FROM sqlite_master WHERE name LIKE '%article%'") == []
    # A migration that is written with SQLite knows the type, too.
    project.upgrade()
    project.execute("CREATE TABLE page (id integer PRIMARY KEY)")
    project.metadata = MetaData()
    article(project.metadata, name="page")
    assert "simsql.sqlalchemy.Fingerprint()" in project.revise().text
    project.engine.dispose()


def test_a_prefix_for_the_types_of_the_application_leaves_those_of_simsql(project):
    project.metadata = models(SimhashIndex("fingerprint"), Column("sketch", Sketch()))
    project.options = {"user_module_prefix": "app.types."}
    text = project.migrate().text
    assert "sa.Column('fingerprint', simsql.sqlalchemy.Fingerprint(), nullable=True)" in text
    assert "simsql.sqlalchemy.Sketch()" in text
    assert "import simsql.sqlalchemy\n" in text
