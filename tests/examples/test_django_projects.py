"""Two bookmark managers, with tests in SQLite, gain near-duplicate search in PostgreSQL and lose it again."""

from pathlib import Path

import psycopg
import pytest
from program import environment
from servers import Server

from tests.examples.test_django import run

SETTINGS = """
import os
SECRET_KEY, USE_TZ, DEFAULT_AUTO_FIELD = "x", True, "django.db.models.BigAutoField"
INSTALLED_APPS = ["bookmarks"{app}]
SQLITE = {{"ENGINE": "django.db.backends.sqlite3", "NAME": "bookmarks.sqlite3"}}
POSTGRESQL = {{"ENGINE": "django.db.backends.postgresql"}}
if "PGDATABASE" in os.environ:
    POSTGRESQL |= {{name: os.environ["PG" + variable] for name, variable in [
        ("NAME", "DATABASE"), ("USER", "USER"), ("HOST", "HOST"), ("PORT", "PORT")]}}
DATABASES = {{"default": POSTGRESQL if "PGDATABASE" in os.environ else SQLITE}}
"""
MODELS = """
from django.db import models

class Bookmark(models.Model):
    url = models.URLField(unique=True)
    title = models.CharField(max_length=512, blank=True)
    notes = models.TextField(blank=True)
"""
GAINED = """
    fingerprint = SimhashField(source={"title": 2, "notes": 1}, extract=visible_text)
    objects = SimhashQuerySet.as_manager()

    class Meta:
        indexes = [SimhashIndex("fingerprint", distance=7)]
"""
IMPORTS = (
    "from simsql import visible_text\nfrom simsql.django import SimhashField, SimhashIndex, SimhashQuerySet\n"
)
# Imports the model as it is now, whose column a later migration adds.
LIVE = """
from django.db import migrations
from django.db.models import F
from django.db.models.expressions import RawSQL

def clean(apps, schema_editor):
    from bookmarks.models import Bookmark
    Bookmark.objects.filter(title="").update(title=RawSQL("upper(url)", ()))
    Bookmark.objects.filter(notes="").update(notes=F("title"))
    Bookmark.objects.filter(title="-").update(title="none")
    rows = list(Bookmark.objects.only("title", "notes"))
    for row in rows:
        row.notes = row.notes.strip()
    Bookmark.objects.bulk_update(rows, ["notes"])

class Migration(migrations.Migration):
    dependencies = [("bookmarks", "0001_initial")]
    operations = [migrations.RunPython(clean, migrations.RunPython.noop)]
"""
TESTS = """
from bookmarks.models import Bookmark
from django.test import TestCase

class BookmarkTests(TestCase):
    def test_notes_change(self):
        bookmark = Bookmark.objects.create(url="https://example.org", title="Bees", notes="<p>They make honey.")
        before = bookmark.fingerprint
        assert before is not None
        Bookmark.objects.bulk_create(
            [Bookmark(url=bookmark.url, title="Bees", notes="<p>They make wax.")],
            update_conflicts=True, unique_fields=["url"], update_fields=["title", "notes"])
        bookmark.refresh_from_db()
        assert bookmark.fingerprint not in (None, before)
        Bookmark.objects.update(title="Bees and wax", notes="They make wax.")
        assert Bookmark.objects.get().fingerprint not in (None, bookmark.fingerprint)
"""
ADD = """
from bookmarks.models import Bookmark
for number in range(20):
    Bookmark.objects.create(url=f"https://example.org/{number}", notes=f" <p>The note of page {number}, on bees ")
"""
SEARCH = """
from bookmarks.models import Bookmark
from django.db import connection, transaction
assert not Bookmark.objects.filter(fingerprint=None).exists()
seventh = Bookmark.objects.get(url="https://example.org/7")
text = {"title": seventh.title, "notes": "the note of page 7, on BEES"}
near, claim = Bookmark.objects.near, Bookmark.objects.claim
assert connection.vendor == "sqlite" or near("fingerprint", text=text, distance=0).get() == seventh
with transaction.atomic():
    assert connection.vendor == "sqlite" or claim("fingerprint", text=text, distance=0) == seventh
"""


def write(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


@pytest.mark.parametrize("live", [False, True], ids=["plain", "live model"])
def test_from_nothing_to_search_and_back(server: Server, tmp_path: Path, live: bool) -> None:
    def manage(*commands: str) -> list[tuple[str, object]]:
        return [("command", f"python manage.py {command}") for command in commands]

    with server.new_database(template="template0") as url:
        production = environment(
            None, PGDATABASE=url.database, PGUSER="postgres", PGHOST=url.query["host"], PGPORT=url.query["port"]
        )
        tests = environment(None)
        for name in ("config/__init__.py", "bookmarks/__init__.py", "bookmarks/migrations/__init__.py"):
            write(tmp_path, name, "")
        write(tmp_path, "config/settings.py", SETTINGS.format(app=""))
        write(tmp_path, "bookmarks/models.py", MODELS)
        run(tmp_path, tests, *manage("makemigrations bookmarks", "migrate"), ("code", ADD))
        run(tmp_path, production, *manage("migrate"), ("code", ADD))

        write(tmp_path, "config/settings.py", SETTINGS.format(app=', "simsql.django"'))
        write(tmp_path, "bookmarks/models.py", IMPORTS + MODELS + GAINED)
        write(tmp_path, "bookmarks/tests.py", TESTS)
        if live:
            write(tmp_path, "bookmarks/migrations/0002_clean.py", LIVE)
        run(tmp_path, tests, *manage("makemigrations --name near"))
        (written,) = tmp_path.glob("bookmarks/migrations/*_near.py")
        text = written.read_text(encoding="utf-8")
        installing = text.replace("operations = [", "operations = [\n        simsql.django.InstallSimsql(),")
        written.write_text(installing, encoding="utf-8")
        clean = manage("check --database default", "makemigrations --check", "test")
        save = ("code", "from bookmarks.models import Bookmark\nfor each in Bookmark.objects.all(): each.save()")
        for variables, fill in ((tests, [save]), (production, manage("simsql_backfill"))):
            back = ("code", SEARCH), *manage("migrate bookmarks 0001")
            run(tmp_path, variables, *manage("migrate"), *fill, *clean, *back)
        with psycopg.connect(dbname=url.database, user="postgres", **url.query) as connection:
            (left,) = connection.execute("SELECT to_regnamespace('simsql')").fetchone()
        assert left is None
        run(tmp_path, production, *manage("migrate bookmarks zero"))
