"""Similar texts in querysets: with their exact similarity, wherever the queryset comes from."""

import pytest
from django.db import DatabaseError, connection, models, transaction
from django.test.utils import isolate_apps
from library.models import Article, Author, Headline, Leaf, Note, Page, Picture
from similar_texts import edited_texts, most_similar

from simsql import DEFAULT_RECIPE, Recipe
from simsql.database import RecallWarning
from simsql.django import SimhashField, SimhashQuerySet
from simsql.errors import UsageError

BODIES = edited_texts()
WANTED = BODIES[5]


def found(rows):
    return [(row.body, row.similarity) for row in rows]


def test_the_most_similar_rows_come_first(in_test_case):
    authors = [Author.objects.create(name=name) for name in ("ann", "bob")]
    Article.objects.bulk_create(
        Article(author=authors[number % 2], body=body) for number, body in enumerate([*BODIES, None])
    )
    for least in (0.5, 0.6, 0.8):
        expected = most_similar(WANTED, BODIES, least)
        rows = Article.objects.similar("fingerprint", WANTED.upper(), least)
        assert found(rows) == expected
        assert Article.objects.similar("fingerprint", {"body": WANTED}, least, limit=1) == rows[:1]
        assert found(Headline.objects.similar("fingerprint", WANTED, least)) == expected
    assert rows[0].distance == 0
    of_bob = Article.objects.filter(author__name="bob").select_related("author")
    assert found(of_bob.similar("fingerprint", WANTED)) == most_similar(WANTED, BODIES[1::2], 0.6)
    assert found(authors[1].articles.similar("fingerprint", WANTED)) == most_similar(WANTED, BODIES[1::2], 0.6)
    for nothing in ("", "?!", {"body": None}):
        assert Article.objects.similar("fingerprint", nothing) == []
    with pytest.warns(RecallWarning) as warned:
        Article.objects.similar("fingerprint", WANTED, 0.1)
    assert [warning.filename for warning in warned] == [__file__]
    assert Article.objects.similar("fingerprint", WANTED, recall=0.9, recipe=DEFAULT_RECIPE)[0].body == WANTED


# The index is designed for a distance of 40, with two tables.
@pytest.mark.filterwarnings("ignore::simsql.database.RecallWarning")
def test_sketches_leave_out_rows(in_test_case):
    Page.objects.bulk_create(Page(body=body) for body in BODIES)
    leaf = Leaf.objects.create(body=WANTED)
    rows = Page.objects.similar("fingerprint", WANTED, recall=0.9999)
    assert found(rows) == most_similar(WANTED, [*BODIES, WANTED], 0.6)
    assert Leaf.objects.similar("fingerprint", WANTED) == [leaf]
    Page.objects.filter(body=BODIES[6]).update(sketch=None)
    with connection.cursor() as cursor:
        cursor.execute('UPDATE library_page SET "Sketched" = ~"Sketched"')
    rows = Page.objects.similar("fingerprint", WANTED, recall=0.9999)
    assert found(rows) == most_similar(WANTED, [BODIES[6]], 0.6)


def test_a_scope_confines_the_search(in_test_case):
    ann, bob = (Author.objects.create(name=name) for name in ("ann", "bob"))
    Note.objects.bulk_create(Note(author=author, body=body) for author in (ann, bob) for body in BODIES)
    rows = Note.objects.similar("fingerprint", WANTED, scope={"author": bob, "language": "en"})
    assert found(rows) == most_similar(WANTED, BODIES, 0.6)
    assert {row.author_id for row in rows} == {bob.pk}
    with pytest.raises(DatabaseError, match="needs a scope"), transaction.atomic():
        Note.objects.similar("fingerprint", WANTED)


def test_a_search_uses_the_database_of_its_queryset(in_test_case, other_library):
    Article.objects.using("other").create(body=WANTED)
    assert Article.objects.similar("fingerprint", WANTED) == []
    with connection.cursor() as cursor:
        cursor.execute("SELECT simsql.drop_index('library_article', 'fingerprint')")
    assert found(Article.objects.using("other").similar("fingerprint", WANTED)) == [(WANTED, 1)]


@pytest.mark.parametrize(
    ("search", "says"),
    [
        (lambda: Article.objects.similar("body", "x"), r"library\.Article\.body is not a SimhashField"),
        (lambda: Article.objects.similar("fingerprint", "x", 60), "similarity must be between 0 and 1, not 60"),
        (lambda: Article.objects.similar("fingerprint", "x", recall=1), "only near finds every"),
        (lambda: Article.objects.similar("fingerprint", {"title": "x"}), "text= names 'title', but the sources"),
        (
            lambda: Article.objects.similar("fingerprint", "x", recipe=Recipe(shingles=(3,))),
            "has the recipe",
        ),
        (lambda: Picture.objects.similar("hash", "x"), "no source.*: use near"),
        (lambda: Page.objects.similar("plain", "x"), "no source.*: use near"),
    ],
)
def test_what_cannot_be_searched_is_refused(search, says, in_test_case):
    with pytest.raises(UsageError, match=says):
        search()


def test_an_error_of_postgresql_is_one_of_django(in_test_case):
    with connection.cursor() as cursor:
        cursor.execute("SELECT simsql.drop_index('library_article', 'fingerprint')")
    with pytest.raises(DatabaseError, match="no simhash index"), transaction.atomic():
        Article.objects.similar("fingerprint", WANTED)


@pytest.mark.parametrize("select", ["values", "values_list"])
def test_similar_returns_objects_alone(in_test_case, select):
    rows = getattr(Article.objects, select)("body")
    with pytest.raises(TypeError, match=r"Cannot call similar\(\) after \.values\(\) or \.values_list\(\)"):
        rows.similar("fingerprint", WANTED)


@isolate_apps("library")
def test_a_field_of_the_name_of_the_similarity_is_not_overwritten(in_test_case):
    class Rated(models.Model):
        body = models.TextField()
        similarity = models.FloatField()
        fingerprint = SimhashField(source="body")
        objects = SimhashQuerySet.as_manager()

        class Meta:
            app_label = "library"
            db_table = Article._meta.db_table

    with pytest.raises(ValueError, match="'similarity' conflicts with a field on the model"):
        Rated.objects.similar("fingerprint", WANTED)
