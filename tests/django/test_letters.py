"""Revision 2 of a recipe in Django: fields and their sketches name it. A field that names none has revision 1."""

import pytest
from django.db import connection, migrations, models
from django.db.migrations.writer import MigrationWriter
from django.test.utils import isolate_apps

from simsql import DEFAULT_RECIPE, Recipe, simhash, sketch
from simsql.django import Near, SimhashField, SimhashIndex, SimhashQuerySet, SketchField, search_index
from simsql.errors import UsageError
from simsql.fingerprint import FOLDING_RECIPE

PERSIAN = (
    "\u06cc\u06a9 \u06a9\u062a\u0627\u0628 \u062a\u0627\u0632\u0647 \u0628\u0631\u0627\u06cc \u0634\u0645\u0627"
)
COPY = PERSIAN.translate(str.maketrans("\u06cc\u06a9", "\u064a\u0643"))


def test_a_field_that_names_no_recipe_is_as_it_was():
    """So the migrations of 0.2.0 and an unchanged model agree, and simhash(text) is in the column."""
    _, path, _, options = SimhashField(source="body").deconstruct()
    assert (path, options["recipe"]) == ("simsql.django.SimhashField", "words12-log-1")
    assert SimhashField(source="body").recipe == DEFAULT_RECIPE
    assert SketchField(source="body").deconstruct()[3] == {
        "blank": True,
        "editable": False,
        "null": True,
        "source": "body",
    }


def test_migrations_name_the_revision():
    migration = migrations.Migration("0001", "pages")
    field, of_text = SimhashField(source="body", recipe=Recipe(revision=2)), SketchField(source="body", revision=2)
    migration.operations = [
        migrations.AddField("page", "fingerprint", field),
        migrations.AddField("page", "sketch", of_text),
    ]
    text = MigrationWriter(migration, include_header=False).as_string()
    assert "recipe='words12-log-2'" in text
    assert "db_comment='minhash64-2'" in text
    scope = {}
    exec(text, scope)
    for operation, expected in zip(scope["Migration"].operations, (field, of_text), strict=True):
        assert operation.field.deconstruct() == expected.deconstruct()


@isolate_apps("library")
def test_copies_in_other_letters_are_found(installed):
    class Book(models.Model):
        body = models.TextField(null=True)
        fingerprint = SimhashField(source="body", recipe=FOLDING_RECIPE)
        sketch = SketchField(source="body", revision=2)
        objects = SimhashQuerySet.as_manager()

        class Meta:
            app_label = "library"
            indexes = (SimhashIndex("fingerprint"),)

    with connection.schema_editor() as editor:
        editor.create_model(Book)
    try:
        book = Book.objects.create(body=PERSIAN)
        Book.objects.bulk_create([Book(body="another text")])
        assert book.fingerprint == simhash(COPY, FOLDING_RECIPE) != simhash(PERSIAN)
        assert book.sketch == sketch(COPY, revision=2) != sketch(PERSIAN)
        wanted = Near(text=COPY, distance=0, similarity=1)
        assert [found.pk for found in Book.objects.filter(fingerprint__near=wanted)] == [book.pk]
        assert [(found.pk, found.similarity) for found in Book.objects.similar("fingerprint", COPY, 1)] == [
            (book.pk, 1)
        ]
        index = search_index(Book, "fingerprint")
        assert index.recipe() == FOLDING_RECIPE
        assert index.verify_texts(sketch_column="sketch").differing == 0
        assert Book.check(databases=["default"]) == []
        with connection.cursor() as cursor:
            cursor.execute("COMMENT ON COLUMN library_book.sketch IS NULL")
        with pytest.raises(UsageError, match="minhash64-1, which cannot be compared with minhash64-2"):
            index.verify_texts(sketch_column="sketch")
    finally:
        with connection.schema_editor() as editor:
            editor.delete_model(Book)


@isolate_apps("library")
def test_a_sketch_needs_the_same_revision():
    class Draft(models.Model):
        body = models.TextField(null=True)
        fingerprint = SimhashField(source="body", recipe=FOLDING_RECIPE)
        sketch = SketchField(source="body")

        class Meta:
            app_label = "library"

    assert [error.id for error in Draft.check()] == ["simsql.E004"]
