"""Texts that a function of the application makes of HTML and JSON columns: computed, filled, compared."""

import io

import pytest
from django.core.management import call_command
from django.core.serializers.json import DjangoJSONEncoder
from django.db import connection, models, transaction
from django.db.migrations.writer import MigrationWriter
from django.test.utils import isolate_apps
from library.models import Letter, Post
from library.texts import no_text, other_text, text_of_blocks, text_or_text_of_blocks
from program import run

from simsql import simhash, sketch
from simsql.database import SearchIndex, load_rows, recipes
from simsql.database.sources import Sources
from simsql.django import SimhashField, SimhashIndex, SimhashQuerySet, SketchField, engine_of, search_index
from simsql.errors import UsageError
from simsql.fingerprint import simhash_parts

ZEN = "Beautiful is better than ugly. Explicit is better than implicit. Simple is better than complex."
OTHER = "Sparse is better than dense. Readability counts."


def blocks(*texts):
    return [{"type": "rule"}, *({"type": "text", "text": text} for text in texts)]


def ask(statement, *parameters):
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        return cursor.fetchall() if cursor.description else []


def values(post):
    post = Post.objects.get(pk=post.pk)
    return post.fingerprint, post.sketch


@pytest.fixture
def post(in_test_case):
    return Post.objects.create(blocks=blocks(ZEN))


def save(post):
    post.blocks = blocks(OTHER)
    post.save()


def save_in_place(post):
    loaded = Post.objects.get(pk=post.pk)
    loaded.blocks[1]["text"] = OTHER
    loaded.save()


def save_field(post):
    post.blocks = blocks(OTHER)
    post.save(update_fields=["blocks"])


def update_objects(post):
    post.blocks = blocks(OTHER)
    Post.objects.bulk_update([post], ["blocks"])


def upsert(post):
    again = Post(pk=post.pk, blocks=blocks(OTHER))
    Post.objects.bulk_create([again], update_conflicts=True, unique_fields=["id"], update_fields=["blocks"])


def update(post):
    Post.objects.filter(pk=post.pk).update(blocks=blocks(OTHER))


@pytest.mark.parametrize("write", [save, save_in_place, save_field, update_objects, upsert, update])
def test_what_is_written_is_the_fingerprint_of_the_extracted_text(post, write):
    assert values(post) == (simhash(ZEN), sketch(ZEN))
    write(post)
    assert values(post) == (simhash(OTHER), sketch(OTHER))


def test_other_blocks_with_the_same_text_keep_the_fingerprint(post):
    for change in (save, update, save_field, update_objects, save_in_place):
        post.blocks = [*blocks(ZEN), {"type": "rule"}]
        change(post)
        assert values(post) == (simhash(OTHER), sketch(OTHER))
        Post.objects.filter(pk=post.pk).update(blocks=[*blocks(OTHER), {"type": "image"}])
        assert values(post) == (simhash(OTHER), sketch(OTHER))


def test_blocks_that_change_in_place_keep_the_fingerprint_of_their_text(post):
    loaded = Post.objects.get(pk=post.pk)
    loaded.blocks.append({"type": "rule"})
    loaded.save()
    assert values(post) == (simhash(ZEN), sketch(ZEN))


def test_sql_clears_and_the_application_fills(committing):
    post = Post.objects.create(blocks=blocks(ZEN))
    letter = Letter.objects.create(html=f"<p>{ZEN}</p>")
    none = Post.objects.create(blocks=None)
    ask("UPDATE library_post SET blocks = jsonb_set(blocks, '{1,text}', to_jsonb(%s::text))", OTHER)
    assert values(post)[0] is None
    engine = engine_of("default")
    function = "library.texts.text_of_blocks"
    for fill in (
        SearchIndex(engine, "library_post").backfill,
        SearchIndex(engine, "library_post").verify_texts,
        lambda: SearchIndex(engine, "library_post").similar(OTHER),
    ):
        with pytest.raises(UsageError, match=rf"{function} .*manage.py simsql_backfill"):
            fill()
    with engine.begin() as shared, pytest.raises(UsageError, match=function):
        load_rows(shared, "library_post", ["blocks"], [["[]"]], text_column="blocks")
    with pytest.raises(UsageError, match=r"not texts of library.texts.other_text"):
        SearchIndex(engine, "library_post", extract=other_text).backfill()
    with pytest.raises(TypeError, match=r"library.texts.no_text must return a str or None, not list"):
        Sources.of("blocks", None, no_text).compute({"blocks": []}, "")
    database = connection.settings_dict
    url = f"postgresql://{database['USER']}@/{database['NAME']}?host={database['HOST']}&port={database['PORT']}"
    for command in (["backfill", "library_post"], ["dedup-table", "library_post", "--into", "found"]):
        run(*command, "--database", url).failed(2, f"the application's function {function} returns")
    printed = io.StringIO()
    call_command("simsql_backfill", "library.Post", stdout=printed)
    assert "fingerprinted 1 rows" in printed.getvalue()
    assert values(post) == (simhash(OTHER), sketch(OTHER))
    assert values(none) == (None, None)
    assert search_index(Post, "fingerprint").verify_texts(sketch_column="sketch").differing == 0
    assert SearchIndex(engine, "library_post", extract=text_of_blocks).verify_texts().differing == 0
    # simsql has this function.
    ask("UPDATE library_letter SET html = %s", f"<div title='a > b'>{OTHER}</div>")
    assert "Fingerprinted 1 row" in run("backfill", "library_letter", "--database", url).done().out
    found = run("dedup-table", "library_letter", "--into", "found", "--database", url).done()
    assert found.lines == ["found: 1 rows"]
    letter.refresh_from_db()
    assert letter.fingerprint == simhash(OTHER)


@isolate_apps("library")
def test_sources_of_several_kinds(committing):
    class Draft(models.Model):
        title = models.CharField(max_length=100)
        blocks = models.JSONField(encoder=DjangoJSONEncoder)
        fingerprint = SimhashField(source={"title": 3, "blocks": 1}, extract=text_or_text_of_blocks)
        objects = SimhashQuerySet.as_manager()

        class Meta:
            app_label = "library"
            indexes = (SimhashIndex("fingerprint", distance=7, name="draft_near"),)

    with connection.schema_editor() as editor:
        editor.create_model(Draft)
    draft = Draft.objects.create(title=OTHER, blocks=blocks(ZEN))
    both = simhash_parts([(OTHER, 3), (ZEN, 1)])
    assert draft.fingerprint == both
    ask("UPDATE library_draft SET title = title || ' '")
    draft.refresh_from_db()
    assert draft.fingerprint is None
    assert search_index(Draft, "fingerprint").backfill().written == 1
    assert Draft.objects.near("fingerprint", text={"title": OTHER, "blocks": ZEN}, distance=0).get() == draft


def test_searches_take_plain_texts(post):
    letter = Letter.objects.create(html=f"<p>{ZEN}<script>{OTHER}</script>")
    for model, found in ((Post, post), (Letter, letter)):
        assert list(model.objects.near("fingerprint", text=ZEN, distance=0)) == [found]
        assert [each.similarity for each in model.objects.similar("fingerprint", ZEN)] == [1.0]
        assert model.objects.claim("fingerprint", text=ZEN) == found
        index = search_index(model, "fingerprint")
        assert [row.similarity for row in index.similar(ZEN)] == [1.0]
        assert [row.similarity for row in index.near_rows(text=ZEN, similarity=0.9)] == [1.0]
        assert len(index.near(text=ZEN)) == 1
    near = Post.objects.near("fingerprint", text=ZEN, similarity=0.9)
    assert list(near) == [post]
    assert [row.similarity for row in SearchIndex(engine_of("default"), "library_letter").similar(ZEN)] == [1.0]
    ask("SELECT * FROM simsql.near_many('library_post', 'library_letter'::regclass, 'fingerprint', 3)")


def test_the_index_names_the_function(in_test_case, monkeypatch):
    monkeypatch.setattr(recipes, "_REMEMBER", 0)
    assert ask("SELECT recipe FROM simsql.indexes WHERE recipe LIKE '%%of%%' ORDER BY 1") == [
        ("words12-log-1 of library.texts.text_of_blocks",),
        ("words12-log-1 of simsql.visible_text",),
    ]
    field = Post._meta.get_field("fingerprint")
    written, imports = MigrationWriter.serialize(field)
    assert "extract=library.texts.text_of_blocks" in written
    assert "import library.texts" in imports
    assert "extract=simsql.visible_text" in MigrationWriter.serialize(Letter._meta.get_field("fingerprint"))[0]
    ask("SELECT simsql.alter_index('library_post', recipe => 'words12-log-1')")
    with (
        pytest.raises(UsageError, match=r"has recipe words12-log-1, but .* of library.texts.text_of_blocks"),
        transaction.atomic(),
    ):
        Post.objects.create(blocks=blocks(ZEN))
    # Searches are for plain texts.
    assert not Post.objects.near("fingerprint", text=ZEN).exists()


def test_functions_that_other_processes_cannot_import_are_refused():
    def local(value):
        return value

    for function in (local, lambda value: value, str.upper, "text", Post().save):
        with pytest.raises(UsageError, match="every process can import"):
            SimhashField(source="body", extract=function)


@isolate_apps("library")
def test_a_sketch_needs_the_same_function():
    class Draft(models.Model):
        data = models.JSONField()
        fingerprint = SimhashField(source="data", extract=text_of_blocks)
        sketch = SketchField(source="data", extract=other_text)

        class Meta:
            app_label = "library"

    assert [error.id for error in Draft.check()] == ["simsql.E004"]
