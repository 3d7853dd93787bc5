"""Migrations create, build, keep and drop indexes, forwards and backwards, in their transactions."""

import io

import pytest
from django.contrib.postgres.operations import AddIndexConcurrently
from django.core.management import call_command
from django.db import DatabaseError, NotSupportedError, connection, migrations, models, transaction
from django.db.migrations.autodetector import MigrationAutodetector
from django.db.migrations.state import ModelState, ProjectState
from django.db.migrations.writer import MigrationWriter
from django.db.models.expressions import RawSQL
from django.db.models.signals import post_migrate, pre_migrate
from django.test.utils import isolate_apps
from library.models import Article, Author
from sqlalchemy.exc import DBAPIError

from simsql import Recipe, simhash
from simsql.database import install_schema, schema_sql
from simsql.django import (
    BuildSimhashIndex,
    InstallSimsql,
    KeepSimhashIndex,
    SimhashField,
    SimhashIndex,
    SimhashQuerySet,
    SketchField,
    engine_of,
)
from simsql.errors import UsageError

pytestmark = pytest.mark.usefixtures("installed")
in_an_empty_database = pytest.mark.usefixtures("empty")
ZEN = "Beautiful is better than ugly. Explicit is better than implicit. Simple is better than complex."
TRIGRAMS = Recipe(shingles=(3,))


def table(**fields):
    columns = [("id", models.BigAutoField(primary_key=True)), ("body", models.CharField(max_length=200))]
    return migrations.CreateModel(
        "Page", [*columns, *fields.items()], managers=[("objects", SimhashQuerySet.as_manager())]
    )


INDEX = SimhashIndex("fingerprint", distance=7, name="page_near")
WITHOUT = [InstallSimsql(), table(fingerprint=SimhashField(source="body"))]
WHOLE = [*WITHOUT, migrations.AddIndex("Page", INDEX)]


def migrate(*operations, state=None, atomic=True, collect_sql=False):
    """Apply a migration; return the state after it, and what undoes it."""
    migration = migrations.Migration("0001_pages", "pages")
    migration.operations, migration.atomic = list(operations), atomic
    before = state or ProjectState()
    with connection.schema_editor(atomic=atomic, collect_sql=collect_sql) as editor:
        after = migration.apply(before.clone(), editor)
    if collect_sql:
        return "\n".join(editor.collected_sql)

    def undo():
        with connection.schema_editor(atomic=atomic) as editor:
            migration.unapply(before.clone(), editor)

    return after, undo


def page(state, name="Page"):
    return state.apps.get_model("pages", name)


def ask(statement):
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return [value for (value,) in cursor.fetchall()] if cursor.description else []


def names():
    """What the database has of the index: its names, its B-tree, its triggers."""
    return [
        ask("SELECT table_name || '.' || column_name FROM simsql.indexes"),
        ask("SELECT relname FROM pg_class WHERE relname = 'page_near'"),
        ask("SELECT tgname FROM pg_trigger WHERE tgname LIKE 'zz_simsql%' ORDER BY 1"),
    ]


def check_search(Page, field="fingerprint", source="body"):  # noqa: N803 - a class
    """Rows are found by their text, also after they have changed, and a text that SQL changes clears them."""
    found = Page.objects.create(**{source: ZEN})
    assert list(Page.objects.near(field, text=ZEN, distance=0)) == [found]
    Page._base_manager.update(**{source: "another text"})
    found.refresh_from_db()
    assert getattr(found, field) is None
    found.delete()


@in_an_empty_database
def test_a_migration_and_its_reverse():
    state, undo = migrate(*WHOLE)
    check_search(page(state))
    assert names() == [
        ["public.pages_page.fingerprint"],
        ["page_near"],
        ["zz_simsql_clear_1", "zz_simsql_clear_1_column"],
    ]
    state, back = migrate(migrations.RemoveIndex("Page", "page_near"), state=state)
    assert names() == [[], [], []]
    back()
    check_search(page(state_after(WHOLE)))
    undo()
    assert ask("SELECT to_regnamespace('simsql')::text") == [None]
    assert ask("SELECT to_regclass('pages_page')::text") == [None]


def state_after(operations):
    state = ProjectState()
    for operation in operations:
        operation.state_forwards("pages", state)
    return state


@in_an_empty_database
def test_sqlmigrate_prints_what_runs():
    printed = migrate(*WHOLE, collect_sql=True)
    assert "CREATE SCHEMA" in printed
    assert (
        'CREATE INDEX "page_near" ON "pages_page" ("fingerprint"); '
        "SELECT simsql.create_index('\"pages_page\"'::regclass, 'fingerprint', distance => 7,"
        " recipe => 'words12-log-1', sources => jsonb_build_object('body' , 1))"
    ) in printed
    with connection.cursor() as cursor:
        cursor.execute(printed)
    check_search(page(state_after(WHOLE)))


@in_an_empty_database
def test_the_printed_schema_runs_in_a_migration():
    state, _ = migrate(migrations.RunSQL(schema_sql()), *WHOLE[1:])
    check_search(page(state))


@in_an_empty_database
def test_without_simsql_the_error_names_the_operation():
    with pytest.raises(UsageError, match=r"put simsql\.django\.InstallSimsql\(\) first"):
        migrate(*WHOLE[1:])


def test_an_index_is_built_while_others_write():
    state, _ = migrate(*WITHOUT)
    Page = page(state)  # noqa: N806
    Page.objects.bulk_create(Page(body=f"{ZEN} {number}") for number in range(20))
    build = BuildSimhashIndex("Page", INDEX)
    with pytest.raises(NotSupportedError, match="set atomic = False"):
        migrate(build, state=state)
    with pytest.raises(NotSupportedError, match=r"use simsql\.django\.BuildSimhashIndex"):
        migrate(AddIndexConcurrently("Page", INDEX), state=state, atomic=False)
    # The remains of an interrupted CREATE INDEX CONCURRENTLY.
    ask("CREATE INDEX page_near ON pages_page (fingerprint)")
    ask("UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'page_near'::regclass")
    after, undo = migrate(build, state=state, atomic=False)
    assert names() == [
        ["public.pages_page.fingerprint"],
        ["page_near"],
        ["zz_simsql_clear_1", "zz_simsql_clear_1_column"],
    ]
    assert page(after).objects.near("fingerprint", text=f"{ZEN} 3", distance=0).get().body == f"{ZEN} 3"
    undo()
    assert names() == [[], [], []]


def test_lock_timeout_limits_the_wait_for_a_reader():
    state, _ = migrate(*WHOLE)
    limit = migrations.RunSQL("SET LOCAL lock_timeout = '300ms'", "")
    reader = connection.copy()
    reader.set_autocommit(False)
    with reader.cursor() as cursor:
        cursor.execute("SELECT FROM pages_page")
        with pytest.raises(DatabaseError, match=r"public\.pages_page could not be locked within 300ms"):
            migrate(limit, migrations.RemoveIndex("Page", "page_near"), state=state)
    reader.close()
    assert names()[1] == ["page_near"]
    migrate(limit, migrations.RemoveIndex("Page", "page_near"), state=state)
    assert names() == [[], [], []]


RENAMED = [
    (migrations.AlterModelTable("Page", "leaf"), {}),
    (migrations.RenameModel("Page", "Leaf"), {"model": "Leaf"}),
    (migrations.RenameField("Page", "fingerprint", "print"), {"field": "print"}),
    (migrations.RenameField("Page", "body", "text"), {"source": "text"}),
    (migrations.AlterField("Page", "body", models.TextField()), {}),
]


@pytest.mark.parametrize(("operation", "names_after"), RENAMED)
def test_renames_and_other_types_keep_the_index(operation, names_after):
    state, _ = migrate(*WHOLE)
    follow = [
        migrations.AlterField("Page", "fingerprint", SimhashField(source=source))
        for source in [names_after.get("source")]
        if source
    ]
    after, undo = migrate(KeepSimhashIndex([operation, *follow]), state=state)
    names_after = {"model": "Page", **names_after}
    check_search(page(after, names_after.pop("model")), **names_after)
    undo()
    check_search(page(state))


def test_what_happens_without_keep():
    state, _ = migrate(*WHOLE)
    page(state).objects.create(body=ZEN)
    pre_migrate.send(sender=None, using="default")
    with pytest.raises(DatabaseError, match="cannot alter type of a column used in a trigger") as refused:
        migrate(migrations.AlterField("Page", "body", models.TextField()), state=state)
    assert "KeepSimhashIndex" in refused.value.__notes__[0]
    after, _ = migrate(migrations.AlterModelTable("Page", "leaf"), state=state)
    with pytest.raises(DatabaseError, match=r"simsql\.repair\("):
        list(page(after).objects.near("fingerprint", 1))
    ask("SELECT count(*) FROM simsql.repair('leaf')")
    assert page(after).objects.near("fingerprint", text=ZEN).get().body == ZEN


def test_makemigrations_sees_what_has_changed():
    def changes(before, after):
        def state_of(*parts):
            state = ProjectState()
            state.add_model(
                ModelState(
                    "pages",
                    "Page",
                    [("id", models.BigAutoField(primary_key=True)), *parts[0]],
                    {"indexes": parts[1]},
                )
            )
            return state

        found = MigrationAutodetector(state_of(*before), state_of(*after))._detect_changes()
        return [
            type(operation).__name__ for migration in found.get("pages", []) for operation in migration.operations
        ]

    def field(name, **options):
        return [("body", models.TextField()), (name, SimhashField(**{"source": "body", **options}))]

    whole = field("fingerprint"), [INDEX]
    assert changes(whole, (field("fingerprint", recipe=Recipe()), [INDEX.clone()])) == []
    assert changes((field("fingerprint"), []), whole) == ["AddIndex"]
    assert changes(whole, (field("fingerprint", recipe=TRIGRAMS), [INDEX])) == ["AlterField"]
    assert changes(whole, (field("fingerprint"), [SimhashIndex("fingerprint", distance=3, name="page_near")])) == [
        "RemoveIndex",
        "AddIndex",
    ]


def test_another_distance_keeps_the_triggers():
    state, _ = migrate(*WHOLE)
    page(state).objects.create(body=ZEN)
    described = "SELECT (distance, recipe, sources)::text FROM simsql.indexes"
    before = names(), ask(described)
    other = SimhashIndex("fingerprint", distance=3, name="page_near")
    after, undo = migrate(
        migrations.RemoveIndex("Page", "page_near"), migrations.AddIndex("Page", other), state=state
    )
    assert (names(), ask(described)) == (before[0], [before[1][0].replace("7", "3", 1)])
    assert page(after).objects.near("fingerprint", text=ZEN).count() == 1
    page(after).objects.all().delete()
    check_search(page(after))
    undo()
    assert (names(), ask(described)) == before


def test_migrations_are_written_with_plain_values():
    migration = migrations.Migration("0001", "pages")
    field = SimhashField(source={"title": 3, "body": 1}, recipe=TRIGRAMS)
    sketch = SketchField(source="body")
    index = SimhashIndex("fingerprint", distance=7, scope=["owner"], storage="expression", name="near")
    migration.operations = [
        InstallSimsql(),
        migrations.AddField("page", "fingerprint", field),
        migrations.AddField("page", "sketch", sketch),
        KeepSimhashIndex([BuildSimhashIndex("page", index)]),
    ]
    text = MigrationWriter(migration, include_header=False).as_string()
    scope = {}
    exec(text, scope)
    copies = scope["Migration"].operations
    assert copies[1].field.deconstruct() == field.deconstruct()
    assert copies[1].field.recipe == TRIGRAMS
    assert copies[2].field.deconstruct() == sketch.deconstruct()
    assert copies[3].database_operations[0].index == index
    assert (
        "simsql.django.SimhashField(blank=True, editable=False, null=True, recipe='words3-log-1', source={" in text
    )


def test_another_recipe_needs_another_index():
    state, _ = migrate(*WHOLE)
    page(state).objects.create(body=ZEN)
    after, undo = migrate(
        migrations.RemoveIndex("Page", "page_near"),
        migrations.AlterField("Page", "fingerprint", SimhashField(source="body", recipe=TRIGRAMS)),
        migrations.RunSQL("UPDATE pages_page SET fingerprint = NULL", "UPDATE pages_page SET fingerprint = NULL"),
        migrations.AddIndex("Page", INDEX),
        state=state,
    )
    again = page(after).objects.get()
    assert again.fingerprint is None
    again.save()
    assert again.fingerprint == simhash(ZEN, TRIGRAMS)
    assert page(after).objects.near("fingerprint", text=ZEN).get() == again
    undo()
    assert page(state).objects.near("fingerprint", text=ZEN).count() == 0


@in_an_empty_database
def test_the_engine_works_in_djangos_transaction():
    with transaction.atomic():
        # Django has not told PostgreSQL yet that a transaction begins.
        with engine_of().begin() as shared:
            shared.exec_driver_sql("CREATE TABLE seen (id int)")
        migrate(*WHOLE)
        assert ask("SELECT count(*) FROM seen") == [0]
        with pytest.raises(DBAPIError), transaction.atomic(), engine_of().begin() as shared:
            shared.exec_driver_sql("SELECT 1 / 0")
        ask("DROP TABLE seen")
        transaction.set_rollback(True)
    assert ask("SELECT to_regnamespace('simsql')::text") == [None]
    with engine_of().connect() as shared:
        shared.exec_driver_sql("CREATE TABLE seen (id int)")
    assert ask("SELECT to_regclass('seen')::text") == [None]
    with engine_of().begin() as shared:
        shared.exec_driver_sql("CREATE TABLE seen (id int)")
    assert connection.get_autocommit()
    assert ask("SELECT count(*) FROM seen") == [0]


@in_an_empty_database
def test_tables_without_migrations():
    def install(using, **_):
        install_schema(engine_of(using))

    pre_migrate.connect(install)
    try:
        call_command("migrate", run_syncdb=True, verbosity=0)
    finally:
        pre_migrate.disconnect(install)
    found = Article.objects.create(body=ZEN)
    assert Article.objects.near("fingerprint", text=ZEN).get() == found


def test_the_models_pass_the_checks():
    output = io.StringIO()
    call_command("check", "--database", "default", stdout=output)
    assert "no issues" in output.getvalue()


def test_a_squashed_migration_keeps_an_index_that_comes_later():
    squashed = table(fingerprint=SimhashField(source="body"))
    squashed.options["indexes"] = [INDEX]
    state, _ = migrate(squashed, KeepSimhashIndex([migrations.AlterField("Page", "body", models.TextField())]))
    check_search(page(state))


@isolate_apps("library")
def test_checks_name_what_is_wrong():
    class Wrong(models.Model):
        fingerprint = SimhashField(source={"title": 1, "nothing": 1, "data": 1})
        again = SimhashField(source="title", null=False)
        sketch = SketchField(source="text")
        unknown = SimhashField(source="title", recipe="phash64")
        text = models.TextField()
        title = models.TextField()
        data = models.JSONField()

        class Meta:
            app_label = "library"

    errors = Wrong.check()
    found = {error.id: error.msg for error in errors}
    assert [error.msg for error in errors if error.id == "simsql.E001"] == [
        f"The source '{name}' is not a text field of the table library_wrong." for name in ("nothing", "data")
    ]
    assert "must allow nulls" in found["simsql.E002"]
    assert "the id phash64 is not enough to fingerprint texts" in found["simsql.E005"]
    assert "no SimhashField of its own with the source 'text'" in found["simsql.E004"]
    with pytest.raises(TypeError, match="that of one text"):
        SketchField(source={"title": 1})
    for arguments in ({"source": {}}, {"source": {"title": 0}}):
        with pytest.raises(ValueError, match=r"source must name|weight"):
            SimhashField(**arguments)


def test_a_data_migration_with_a_live_model_may_come_before_the_column():
    """As RunPython that imports a model of the application: it writes only the columns that there are."""
    with connection.schema_editor() as editor:
        editor.create_model(Author)
        editor.create_model(Article)
    ask("SELECT simsql.drop_index('library_article'); ALTER TABLE library_article DROP fingerprint")
    ask("INSERT INTO library_article (title, body) VALUES ('A', 'one text'), ('B', 'another')")
    upper = RawSQL("upper(body)", ())
    with pytest.raises(DatabaseError, match="fingerprint"), transaction.atomic():
        Article.objects.update(body=upper)
    pre_migrate.send(sender=None, using="default")
    try:
        assert Article.objects.update(body=upper) == 2
        assert Article.objects.update(body="new") == 2
        rows = list(Article.objects.only("title", "body"))
        for row in rows:
            row.body = f"text {row.title}"
        assert Article.objects.bulk_update(rows, ["body"]) == 2
        rows[0].body = "saved"
        rows[0].save()
    finally:
        post_migrate.send(sender=None, using="default")
    assert ask("SELECT body FROM library_article ORDER BY title") == ["saved", "text B"]
