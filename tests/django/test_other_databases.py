"""In SQLite, fingerprints are computed and stored, migrations change nothing beside, and searches say why not."""

import io

import pytest
from django.core.management import call_command
from django.db import NotSupportedError, connections, migrations, models, transaction
from django.db.migrations.state import ProjectState
from django.test.utils import override_settings
from library.models import Article, Memo, Page, Post

from simsql import simhash, sketch
from simsql.django import (
    BuildSimhashIndex,
    InstallSimsql,
    KeepSimhashIndex,
    SimhashField,
    SimhashIndex,
    engine_of,
    search_index,
)
from tests.django.conftest import create_tables

OLD, NEW = "the old text of an article", "another text, which is newer"
REFUSED = r"searches in PostgreSQL, and database 'lite' is sqlite"


@pytest.fixture(scope="module")
def lite():
    create_tables("lite")
    return "lite"


def test_fingerprints_follow_their_texts(lite):
    article = Article.objects.using(lite).create(body=OLD)
    page = Page.objects.using(lite).create(body=OLD)
    assert (page.fingerprint, page.sketch) == (simhash(OLD), sketch(OLD))
    memo = Memo.objects.using(lite).create(title=OLD, text=NEW)
    found = Article.objects.using(lite).get(fingerprint=simhash(OLD))
    found.body = OLD.upper()
    found.save()
    Article.objects.using(lite).update(body=NEW)
    article.refresh_from_db()
    assert article.fingerprint == simhash(NEW)
    article.body = OLD
    Article.objects.using(lite).bulk_update([article], ["body"])
    article.refresh_from_db()
    assert article.fingerprint == simhash(OLD)
    Article.objects.using(lite).bulk_create([Article(body=NEW)])
    assert Article.objects.using(lite).filter(fingerprint__in=[simhash(OLD), simhash(NEW)]).count() == 2
    before = memo.fingerprint
    memo.title = NEW
    memo.save(using=lite)
    memo.refresh_from_db()
    assert memo.fingerprint not in (None, before)
    post = Post.objects.using(lite).create(blocks=[{"type": "text", "text": OLD}])
    assert (post.fingerprint, post.sketch) == (simhash(OLD), sketch(OLD))
    Post.objects.using(lite).update(blocks=[{"type": "text", "text": NEW}])
    post.refresh_from_db()
    assert post.fingerprint == simhash(NEW)


def test_a_search_names_the_vendor(lite):
    articles = Article.objects.using(lite)
    with pytest.raises(NotSupportedError, match=REFUSED):
        articles.near("fingerprint", text=OLD).first()
    with pytest.raises(NotSupportedError, match=REFUSED):
        articles.filter(fingerprint__near=7).exists()
    with pytest.raises(NotSupportedError, match=REFUSED):
        articles.similar("fingerprint", OLD)
    with transaction.atomic(using=lite), pytest.raises(NotSupportedError, match=REFUSED):
        articles.claim("fingerprint", text=OLD)
    with pytest.raises(NotSupportedError, match=REFUSED):
        search_index(Article, "fingerprint", using=lite)
    with pytest.raises(NotSupportedError, match=REFUSED):
        engine_of(lite).connect()


def test_checks_and_a_backfill_have_nothing_to_say(lite):
    call_command("check", databases=[lite])
    printed = io.StringIO()
    call_command("simsql_backfill", database=lite, stdout=printed)
    assert printed.getvalue() == "lite is sqlite: only PostgreSQL needs a backfill\n"


class Elsewhere:
    def allow_migrate(self, db, app_label, **hints):
        return False


def test_checks_ask_the_routers(monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(connections["default"], "Database", io)  # another driver
        with override_settings(DATABASE_ROUTERS=[Elsewhere()]):
            assert [each for each in Article.check(databases=["default"]) if each.id == "simsql.E003"] == []
        assert [each.id for each in Article.check(databases=["default"])] == ["simsql.E003"]


def test_migrations_forwards_and_backwards():
    fields = [("id", models.BigAutoField(primary_key=True)), ("body", models.TextField())]
    index = SimhashIndex("fingerprint", distance=7, name="page_near")
    steps = [
        [InstallSimsql(), migrations.CreateModel("Page", fields)],
        [migrations.AddField("Page", "fingerprint", SimhashField(source="body"))],
        [migrations.AddIndex("Page", index)],
        [KeepSimhashIndex([migrations.RenameField("Page", "body", "text")])],
        [migrations.AlterField("Page", "text", models.CharField(max_length=90))],  # SQLite makes the table anew
        [migrations.RemoveIndex("Page", "page_near")],
        [BuildSimhashIndex("Page", index)],
    ]
    state, applied = ProjectState(), []
    for number, operations in enumerate(steps):
        migration = migrations.Migration(f"{number:04}", "pages")
        migration.operations, before = operations, state.clone()
        with connections["lite"].schema_editor() as editor:
            state = migration.apply(state, editor)
        applied.append((migration, before))
    with connections["lite"].cursor() as cursor:
        constraints = connections["lite"].introspection.get_constraints(cursor, "pages_page")
    assert constraints["page_near"]["columns"] == ["fingerprint"]
    for migration, before in reversed(applied):
        with connections["lite"].schema_editor() as editor:
            migration.unapply(before, editor)
    assert "pages_page" not in connections["lite"].introspection.table_names()
