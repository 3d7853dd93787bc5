"""Whatever writes a text leaves its fingerprint or NULL, which a backfill finds: never that of another text."""

import copy
import io
import json

import psycopg
import pytest
from django.core import serializers
from django.core.management import CommandError, call_command
from django.db import OperationalError, connection, connections, models, transaction
from django.db.models import F, Value
from django.db.models.functions import Concat, Upper
from django.db.models.sql.compiler import SQLUpdateCompiler
from django.test.utils import isolate_apps
from library.models import Article, Essay, Headline, Memo, Note, Page, Picture

from simsql import Recipe, simhash, sketch
from simsql.database import recipes, sources
from simsql.django import SimhashQuerySet, search_index
from simsql.django.fields import followers
from simsql.errors import UsageError
from simsql.fingerprint import simhash_parts

ZEN = (
    "Beautiful is better than ugly. Explicit is better than implicit. Simple is better than complex. Complex is"
    " better than complicated. Flat is better than nested. Sparse is better than dense. Readability counts."
)
OTHER = ZEN.replace("ugly", "bad").replace("nested", "deep")

pytestmark = pytest.mark.usefixtures("in_test_case")


def stored(instance):
    return type(instance)._base_manager.values_list("fingerprint", flat=True).get(pk=instance.pk)


def backfill(*arguments):
    output = io.StringIO()
    call_command("simsql_backfill", *arguments, "--workers", "1", stdout=output)
    return output.getvalue()


def save(article):
    article.body = OTHER
    article.save()


def save_fields(article):
    article.body = OTHER
    article.save(update_fields=["body"])


def save_without_the_fingerprint(article):
    again = Article.objects.only("id", "body").get(pk=article.pk)
    again.body = OTHER
    again.save()


def load_fixture(article):
    record = {"model": "library.article", "pk": article.pk, "fields": {"body": OTHER, "fingerprint": 1}}
    for loaded in serializers.deserialize("json", json.dumps([record])):
        loaded.save()


def change_objects(article):
    article.body = OTHER
    Article.objects.bulk_update([article], ["body"])


def upsert(article):
    Article.objects.bulk_create(
        [Article(pk=article.pk, body=OTHER)], update_conflicts=True, unique_fields=["id"], update_fields=["body"]
    )


def update_or_create(article):
    Article.objects.update_or_create(pk=article.pk, defaults={"body": OTHER})


def save_proxy(article):
    again = Headline.objects.get(pk=article.pk)
    again.body = OTHER
    again.save(update_fields=["body"])


COMPUTING = [
    save,
    save_fields,
    save_without_the_fingerprint,
    load_fixture,
    change_objects,
    upsert,
    update_or_create,
    save_proxy,
    lambda article: Article.objects.filter(pk=article.pk).update(body=OTHER),
]


@pytest.mark.parametrize("write", COMPUTING)
def test_writes_compute_the_fingerprint(write):
    article = Article.objects.create(body=ZEN)
    assert article.fingerprint == stored(article) == simhash(ZEN)
    write(article)
    assert stored(article) == simhash(OTHER)


@pytest.mark.parametrize("write", COMPUTING)
def test_a_text_with_the_same_fingerprint_keeps_it(write, monkeypatch):
    # The trigger takes it for a stale one.
    monkeypatch.setitem(globals(), "OTHER", ZEN.upper())
    article = Article.objects.create(body=ZEN)
    write(article)
    article.refresh_from_db()
    assert (article.body, article.fingerprint) == (ZEN.upper(), simhash(ZEN))
    article.body = ZEN.title()
    article.save()
    assert stored(article) == simhash(ZEN)


def partly(memo):
    """Objects that do not have, or do not write, the text of their row."""
    memo.title, memo.text = "Another title", "a text that is not written"
    deferred = Memo.objects.defer("text").get()
    deferred.title = "Another title"
    return memo, deferred


PARTIAL = [
    lambda memo, _: memo.save(update_fields=["title"]),
    lambda memo, _: memo.save(update_fields=["fingerprint"]),
    lambda memo, _: memo.save(update_fields=["title", "fingerprint"]),
    lambda _, deferred: deferred.save(update_fields=["title"]),
    lambda _, deferred: deferred.save(),
    lambda memo, _: SimhashQuerySet(Memo).bulk_update([memo], ["title"]),
    lambda memo, _: SimhashQuerySet(Memo).bulk_update([memo], ["fingerprint"]),
    lambda _, deferred: SimhashQuerySet(Memo).bulk_update([deferred], ["title"]),
    lambda memo, _: SimhashQuerySet(Memo).bulk_create(
        [memo], update_conflicts=True, unique_fields=["id"], update_fields=["title", "fingerprint"]
    ),
]


@pytest.mark.parametrize("write", PARTIAL)
def test_what_writes_some_of_the_texts_leaves_no_other_fingerprint(write):
    write(*partly(Memo.objects.create(title="A title", text=ZEN)))
    memo = Memo.objects.get()
    assert memo.text == ZEN
    assert memo.fingerprint in (None, simhash_parts([(memo.title, 3), (ZEN, 1)]))
    written = Memo.objects.create(title="A title", text=ZEN)
    written.title = "Another title"
    SimhashQuerySet(Memo).bulk_update([written], ["title"])
    assert written.fingerprint == stored(written) == simhash_parts([("Another title", 3), (ZEN, 1)])


@pytest.mark.parametrize("change", [{"title": "a title"}, {"title": "a title", "body": OTHER}])
@pytest.mark.parametrize("load", [Article.objects.defer("body"), Article.objects.all()])
def test_an_object_from_before_another_write(load, change):
    old = load.get(pk=Article.objects.create(body=ZEN).pk)
    Article.objects.update(body="another text")
    for name, value in change.items():
        setattr(old, name, value)
    old.save()
    now = Article.objects.get()
    assert now.fingerprint == simhash(now.body)
    old.save(update_fields=["fingerprint"])
    assert stored(old) == simhash(now.body)


def test_another_write_between_the_two_updates_of_a_save():
    article = Article.objects.create(body=ZEN)

    others = iter(["another text"])

    def between(execute, *statement):
        done = execute(*statement)
        for body in others:
            Article.objects.update(body=body)
        return done

    article.body = OTHER
    with connection.execute_wrapper(between):
        article.save(update_fields=["body"])
    now = Article.objects.get()
    assert (now.body, now.fingerprint) == ("another text", simhash("another text"))


def save_expression(article):
    article.body = Upper("title")
    article.save()


def update_in_sql(article):
    with connection.cursor() as cursor:
        cursor.execute("UPDATE library_article SET body = %s WHERE id = %s", [OTHER, article.pk])


CLEARING = [
    save_expression,
    update_in_sql,
    lambda article: Article.objects.filter(pk=article.pk).update(body=Concat("body", Value("!"))),
    lambda article: Article._base_manager.filter(pk=article.pk).update(body=OTHER),
    lambda article: Article._base_manager.bulk_update([Article(pk=article.pk, body=OTHER)], ["body"]),
    lambda article: Article._base_manager.bulk_create(
        [Article(pk=article.pk, body=OTHER)], update_conflicts=True, unique_fields=["id"], update_fields=["body"]
    ),
]


@pytest.mark.parametrize("write", CLEARING)
def test_other_writes_leave_null_for_a_backfill(write):
    article = Article.objects.create(body=ZEN, title="a title")
    write(article)
    assert stored(article) is None
    assert backfill() == (
        "library.Article.fingerprint: fingerprinted 1 rows\n"
        "library.Memo.fingerprint: fingerprinted 0 rows\nlibrary.Page.fingerprint: fingerprinted 0 rows\n"
        "library.Note.fingerprint: fingerprinted 0 rows\nlibrary.Post.fingerprint: fingerprinted 0 rows\n"
        "library.Letter.fingerprint: fingerprinted 0 rows\n"
    )
    article.refresh_from_db()
    assert article.fingerprint == stored(article) == simhash(article.body)


def test_an_unchanged_text_costs_one_statement(django_assert_num_queries):
    article = Article.objects.create(body=ZEN)
    with django_assert_num_queries(1):
        article.title = "changed"
        article.save()
    again = Article.objects.get(pk=article.pk)
    with django_assert_num_queries(1):
        again.body = OTHER
        again.save()
    with django_assert_num_queries(1):
        again.title = "changed again"
        again.save(update_fields=["title"])
    assert stored(article) == simhash(OTHER)


def test_a_deferred_text_is_not_read(django_assert_num_queries):
    article = Article.objects.defer("body").get(pk=Article.objects.create(body=ZEN).pk)
    article.title = "changed"
    with django_assert_num_queries(1):
        article.save()
    assert stored(article) == simhash(ZEN)


def test_many_objects_at_once():
    texts = [ZEN, OTHER, "?", None, *(f"{ZEN} number {number}" for number in range(50))]
    Article.objects.bulk_create(Article(body=text) for text in texts)
    found = dict(Article.objects.values_list("body", "fingerprint"))
    assert found == {text: text and simhash(text) for text in texts}


def test_a_number_is_fingerprinted_as_it_is_stored():
    article = Article.objects.create(body=4711)
    assert stored(article) == simhash("4711")
    Article.objects.update(body=4712)
    assert stored(article) == simhash("4712")


def test_several_sources_have_weights():
    memo = Memo.objects.create(title="A title", text=ZEN)
    assert stored(memo) == simhash_parts([("A title", 3), (ZEN, 1)])
    Memo.objects.update(title="Another title")
    assert stored(memo) is None
    backfill("library.Memo")
    assert stored(memo) == simhash_parts([("Another title", 3), (ZEN, 1)])
    memo = Memo.objects.get()
    memo.title = "Third"
    memo.save(update_fields=["title"])
    assert stored(memo) == simhash_parts([("Third", 3), (ZEN, 1)])


def test_children_of_a_model_follow_its_text():
    essay = Essay.objects.create(body=ZEN, pages=3)
    essay.body = OTHER
    essay.save(update_fields=["body"])
    assert Article.objects.get().fingerprint == simhash(OTHER)


@pytest.mark.parametrize("write", [save, save_fields, change_objects, upsert, update_or_create])
def test_a_sketch_follows_the_text_beside_its_fingerprint(write, monkeypatch):
    """Whichever of the two is computed first, the text is split once for both."""
    monkeypatch.setitem(globals(), "Article", Page)
    splits = []
    both = sources.simhash_items_with_sketches
    monkeypatch.setattr(sources, "simhash_items_with_sketches", lambda *them: splits.append(1) or both(*them))
    monkeypatch.setattr(sources.Sources, "compute", None)
    page = Page.objects.create(body=ZEN)
    for count, text in enumerate((ZEN, OTHER), 1):
        read = Page.objects.get(pk=page.pk)
        assert (read.body, read.fingerprint, read.sketch) == (text, simhash(text), sketch(text))
        assert len(splits) == count
        write(page)


def test_a_stale_sketch_is_not_found_and_backfilled():
    page = Page.objects.create(body=ZEN)
    Page.objects.create(body="?")
    Page._base_manager.update(body=OTHER)
    assert not Page.objects.near("fingerprint", text=ZEN, similarity=0).exists()
    assert backfill("library.Page") == "library.Page.fingerprint: fingerprinted 2 rows, 2 sketched\n"
    page.refresh_from_db()
    assert (page.fingerprint, page.sketch) == (simhash(OTHER), sketch(OTHER))


def test_other_sketches_are_not_mixed_with_those_of_this_version(monkeypatch):
    monkeypatch.setattr(recipes, "_REMEMBER", 0)
    with connection.cursor() as cursor:
        cursor.execute("""COMMENT ON COLUMN library_page."Sketched" IS 'minhash128-1'""")
    with pytest.raises(UsageError, match=r"library_page\.Sketched has the sketches minhash128-1, which"):
        Page.objects.create(body=ZEN)


def test_what_is_assigned_is_overwritten_or_written_without_a_source():
    assert stored(Article.objects.create(body=ZEN, fingerprint=7)) == simhash(ZEN)
    largest = Picture.objects.create(file="a.png", hash=2**64 - 1)
    largest.refresh_from_db()
    assert largest.hash == 2**64 - 1
    assert Picture.objects.get(hash=2**64 - 1) == Picture.objects.get(hash__in=[0, 2**64 - 1]) == largest
    largest.full_clean()
    for form in (-1, "f" * 16, b"\xff" * 8):
        Picture.objects.update(hash=form)
        assert Picture.objects.get(hash=form).hash == 2**64 - 1
    Picture.objects.update(hash=F("hash"))
    for number in (-(2**63) - 1, 2**64):
        with pytest.raises(ValueError, match="is not a fingerprint"):
            Picture.objects.create(hash=number)


def test_fixtures_carry_unsigned_numbers():
    Picture.objects.create(hash=2**64 - 1)
    data = serializers.serialize("json", Picture.objects.all())
    assert json.loads(data)[0]["fields"]["hash"] == 2**64 - 1
    Picture.objects.all().delete()
    for loaded in serializers.deserialize("json", data):
        loaded.save()
    assert Picture.objects.get().hash == 2**64 - 1


def test_another_recipe_than_that_of_the_index_is_refused(monkeypatch):
    monkeypatch.setattr(recipes, "_REMEMBER", 0)
    words = Recipe(shingles=(3,))
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE simsql.registry SET recipe = %s WHERE table_id = 'library_article'::regclass", [words.id]
        )
    says = f"has recipe {words.id}, but the model fingerprints texts with"
    with pytest.raises(UsageError, match=says), transaction.atomic():
        Article.objects.create(body=ZEN)
    with pytest.raises(OperationalError, match=says), transaction.atomic():
        list(Article.objects.near("fingerprint", text=ZEN))
    with pytest.raises(CommandError, match="cannot be compared"):
        backfill("library.Article")
    (found,) = [each for each in Article.check(databases=["default"]) if each.id == "simsql.W001"]
    assert says in found.msg
    assert Note.objects.count() == 0


def test_a_backfill_that_leaves_rows_fails(other_library):
    for body in (ZEN, OTHER):
        Article.objects.using("other").create(body=body)
    with connections["other"].cursor() as cursor:
        cursor.execute("UPDATE library_article SET fingerprint = NULL")
    with psycopg.connect(connections["other"].connection.info.dsn) as writer:
        writer.execute("SELECT FROM library_article WHERE body = %s FOR UPDATE", [ZEN])
        with pytest.raises(CommandError, match="1 rows are left, which others were writing") as left:
            backfill("library.Article", "--database", "other")
        assert left.value.returncode == 1
    assert "fingerprinted 1 rows" in backfill("--database", "other")


def test_a_backfill_of_all_rows(other_library):
    Article.objects.using("other").create(body=ZEN)
    with connections["other"].cursor() as cursor:
        cursor.execute("UPDATE library_article SET fingerprint = 1")
        cursor.execute("INSERT INTO library_article (title, body) VALUES ('', %s), ('', '?')", [OTHER])
    assert backfill("library.Article", "--database", "other") == (
        "library.Article.fingerprint: fingerprinted 1 rows, 1 without words\n"
    )
    assert backfill("library.Article", "--database", "other", "--all-rows") == (
        "library.Article.fingerprint: fingerprinted 1 rows, 1 without words, 1 up to date\n"
    )
    near = Article.objects.using("other").near("fingerprint", text=ZEN, distance=0)
    assert [article.body for article in near] == [ZEN]
    with pytest.raises(CommandError, match=r"library\.Author has no SimhashField with a source"):
        backfill("library.Author")
    assert not search_index(Article, "fingerprint", using="other").verify()


def test_a_query_cache_learns_of_a_backfill(monkeypatch):
    """As django-cachalot does, which forgets a table when a statement for it is compiled to be written."""
    Article._base_manager.bulk_create([Article(body=ZEN)])
    Article._base_manager.update(fingerprint=None)
    written = []
    execute = SQLUpdateCompiler.execute_sql

    def note(compiler, *arguments):
        written.append(compiler.query.get_meta().db_table)
        filled.append(Article._base_manager.filter(fingerprint=None).count())
        return execute(compiler, *arguments)

    filled = []
    monkeypatch.setattr(SQLUpdateCompiler, "execute_sql", note)
    backfill("library.Article")
    assert (written, filled) == (["library_article"], [0])


@isolate_apps("library")
def test_a_history_only_copies_fingerprints():
    """django-simple-history copies fields into a model of its own, from which no migration names a source."""
    fields = [copy.copy(field) for field in Article._meta.local_concrete_fields if not field.is_relation]
    for field in fields:
        field.__dict__.pop("cached_col", None)
    options = {"__module__": __name__, "Meta": type("Meta", (), {"app_label": "library"})}
    History = type("HistoricalArticle", (models.Model,), options | {field.name: field for field in fields})  # noqa: N806
    with connection.schema_editor() as editor:
        editor.create_model(History)
    History.objects.create(id=1, body=ZEN, fingerprint=7)
    again = History.objects.get()
    again.body = OTHER
    again.save()
    assert History.objects.get().fingerprint == 7
    assert followers(History) == []
    assert "source" not in History._meta.get_field("fingerprint").deconstruct()[3]
    assert Article._meta.get_field("fingerprint").source == "body"
