"""Searches of querysets find what brute force finds, wherever the condition stands."""

import pickle
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import oracle
import pytest
from django.db import DataError, connection, connections, transaction
from django.db.models import Count, Exists, F, OuterRef, Q, Subquery
from django.db.models.expressions import RawSQL
from library.models import Article, Author, Essay, Headline, Leaf, Memo, Note, Page, Picture

from simsql import DEFAULT_RECIPE, Recipe, estimate_similarity, simhash, sketch
from simsql.database.bigint import from_bigint
from simsql.django import HammingDistance, Near, search_index
from simsql.errors import UsageError

ROWS = [*oracle.clustered(120, seed=4), -1, 2**63 - 1, None, None]
QUERIES = [0, 2**63 - 1, 2**63, 2**64 - 1, *(from_bigint(row) for row in ROWS[40:42])]
TEXTS = [
    f"the quick brown fox number {number} jumps over the lazy dog and the {number % 7} cats"
    for number in range(60)
]


def pictures():
    Picture.objects.bulk_create(
        Picture(file=str(number % 3), hash=from_bigint(row)) for number, row in enumerate(ROWS)
    )


def articles():
    authors = [Author.objects.create(name=name) for name in ("ann", "bob", "cyd")]
    Article.objects.bulk_create(Article(author=authors[n % 3], body=text) for n, text in enumerate(TEXTS))


def expected(query, distance, values=ROWS):
    """(distance, fingerprint) of every row, sorted."""
    found = dict(oracle.near(values, oracle.to_bigint(query), distance))
    return sorted((found[value], from_bigint(value)) for value in values if value in found)


def test_searches_find_what_brute_force_finds(in_test_case):
    pictures()
    for query in QUERIES:
        for distance in (0, 8, 20, 64):
            rows = list(Picture.objects.near("hash", query, distance))
            assert sorted((row.distance, row.hash) for row in rows) == expected(query, distance)
            assert [(row.distance, row.pk) for row in rows] == sorted((row.distance, row.pk) for row in rows)
            condition = Picture.objects.filter(hash__near=Near(query, distance))
            assert sorted(row.pk for row in rows) == sorted(condition.values_list("pk", flat=True))
        assert set(Picture.objects.filter(hash__near=query)) == set(Picture.objects.near("hash", query, 8))
    assert not Picture.objects.near("hash", None).exists()
    # As always in Django, exclude() keeps rows with a null.
    assert {picture.hash for picture in Picture.objects.exclude(hash__near=Near(0, 64))} == {None}


def test_searches_compose(in_test_case):
    articles()
    Article.objects.create(body=None)
    wanted = simhash(TEXTS[0])
    prints = {article.pk: article.fingerprint for article in Article.objects.all()}
    near = {pk for pk, value in prints.items() if value is not None and (value ^ wanted).bit_count() <= 12}
    assert 3 < len(near) < 60
    found = Article.objects.near("fingerprint", text=TEXTS[0], distance=12)
    assert {article.pk for article in found} == near
    assert found.count() == len(near)
    assert list(found[2:4]) == list(found)[2:4]
    assert set(found.filter(author__name="ann")) == {
        a for a in found.select_related("author") if a.author.name == "ann"
    }
    condition = Q(fingerprint__near=Near(text=TEXTS[0], distance=12))
    assert set(Article.objects.filter(condition | Q(body=None))) == {*found, Article.objects.get(body=None)}
    assert set(Article.objects.filter(~condition, fingerprint__isnull=False)) == set(
        Article.objects.exclude(pk__in=near).exclude(fingerprint=None)
    )
    # Through a join, in an aggregate, as a related manager, on a proxy, in an UPDATE and a DELETE.
    joined = Author.objects.filter(articles__fingerprint__near=Near(text=TEXTS[0], distance=12))
    assert set(joined) == {article.author for article in found}
    counted = Author.objects.annotate(
        alike=Count("articles", filter=Q(articles__fingerprint__near=Near(wanted, 12)))
    )
    assert {a.name: a.alike for a in counted} == {
        author.name: found.filter(author=author).count() for author in Author.objects.all()
    }
    ann = Author.objects.get(name="ann")
    assert set(ann.articles.near("fingerprint", wanted, 12)) == set(found.filter(author=ann))
    assert {row.pk for row in Headline.objects.near("fingerprint", wanted, 12)} == near
    essay = Essay.objects.create(body=TEXTS[0])
    assert essay.pk in Essay.objects.near("fingerprint", text=TEXTS[0]).values_list("pk", flat=True)
    assert found.near("fingerprint", wanted, 64).count() == len(near) + 1
    one = Article.objects.filter(pk=essay.pk).values("fingerprint")
    assert Article.objects.filter(fingerprint__near=Near(one, 12)).count() == len(near) + 1
    assert pickle.loads(pickle.dumps(found.all())).count() == len(near) + 1
    assert Article.objects.filter(condition).update(title="alike") == len(near) + 1
    assert Article.objects.filter(title="alike").count() == len(near) + 1
    assert set(found.values_list("title", "distance", flat=False).distinct()) == {
        ("alike", article.distance) for article in found
    }
    assert Article.objects.filter(fingerprint__near=Near(wanted, 12)).exclude(pk=essay.pk).delete()[0] == len(near)


def test_the_index_answers(in_test_case):
    articles()
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE library_article; SET LOCAL enable_seqscan = off")
    plan = Article.objects.near("fingerprint", text=TEXTS[0], distance=3).explain()
    assert "Function Scan on near" in plan
    assert Article._meta.indexes[0].name in plan
    assert "Seq Scan" not in plan


def test_searches_for_each_row(in_test_case):
    articles()
    prints = dict(Article.objects.values_list("pk", "fingerprint"))

    def near(pk):
        alike = {other: (value ^ prints[pk]).bit_count() for other, value in prints.items() if other != pk}
        return sorted((bits, other) for other, bits in alike.items() if bits <= 7)

    others = Article.objects.near("fingerprint", OuterRef("fingerprint"), 7).exclude(pk=OuterRef("pk"))
    nearest = Article.objects.annotate(nearest=Subquery(others.values("pk")[:1]))
    assert dict(nearest.values_list("pk", "nearest")) == {
        pk: near(pk)[0][1] if near(pk) else None for pk in prints
    }
    with_others = Article.objects.filter(Exists(others.order_by()))
    assert {article.pk for article in with_others} == {pk for pk in prints if near(pk)}
    number = RawSQL(
        "SELECT count(*) FROM simsql.near('library_article', library_article.fingerprint, 7) AS n"
        " JOIN library_article AS other ON other.fingerprint = n.fingerprint AND other.id <> library_article.id",
        [],
    )
    assert dict(Article.objects.annotate(number=number).values_list("pk", "number")) == {
        pk: len(near(pk)) for pk in prints
    }
    index = search_index(Article, "fingerprint")
    pairs = {frozenset((pair.a, pair.b)) for pair in index.pairs(7)}
    assert pairs == {frozenset((prints[pk], prints[other])) for pk in prints for bits, other in near(pk) if bits}
    assert {match.fingerprint for match in index.near_many([prints[min(prints)]], 0)} == {prints[min(prints)]}


def test_a_scope_confines_searches(in_test_case):
    ann, bob = (Author.objects.create(name=name) for name in ("ann", "bob"))
    Note.objects.bulk_create(
        Note(author=author, language=language, body=TEXTS[0]) for author in (ann, bob) for language in ("en", "de")
    )
    scope = {"author": ann, "language": "en"}
    (note,) = Note.objects.near("fingerprint", text=TEXTS[0], scope=scope)
    assert (note.author, note.language, note.distance) == (ann, "en", 0)
    of_bob = Near(text=TEXTS[0], scope={"author": bob.pk, "language": "de"})
    assert [(n.author, n.language) for n in Note.objects.filter(fingerprint__near=of_bob)] == [(bob, "de")]
    same = Note.objects.near(
        "fingerprint",
        OuterRef("fingerprint"),
        scope={"author": OuterRef("author"), "language": OuterRef("language")},
    )
    assert Note.objects.filter(Exists(same.exclude(pk=OuterRef("pk")))).count() == 0
    assert Note.objects.claim("fingerprint", text=TEXTS[0], scope=scope) == note
    assert Note.objects.claim("fingerprint", text=TEXTS[0], scope={"author": ann, "language": "fr"}) is None
    index = search_index(Note, "fingerprint", scope=scope)
    assert [match.distance for match in index.near(text=TEXTS[0])] == [0]
    with pytest.raises(UsageError, match="'language' must not be None"):
        Note.objects.near("fingerprint", 1, scope={"author": ann, "language": None})
    with pytest.raises(UsageError, match="'author' must not be None"):
        Note.objects.near("fingerprint", 1, scope={"author": Author(), "language": "en"})
    with pytest.raises(DataError, match="needs a scope"), transaction.atomic():
        list(Note.objects.near("fingerprint", 1))


def test_only_rows_with_similar_sketches_are_found(in_test_case):
    words = [f"word{number}" for number in range(60)]
    # Every row has the same words, so they are near; only the order differs.
    bodies = [" ".join([*words[part:], *words[:part]]) for part in (0, 1, 30)] + [" ".join(words[::-1])]
    Page.objects.bulk_create(Page(body=body) for body in [*bodies, None])
    text, counts = bodies[0].upper(), []
    for least in (0, 0.6, 0.85, 1):
        alike = {body for body in bodies if estimate_similarity(sketch(body), sketch(text)) >= least}
        query = {"text": text, "distance": 40, "similarity": least}
        assert {page.body for page in Page.objects.near("fingerprint", **query)} == alike
        assert {page.body for page in Page.objects.filter(fingerprint__near=Near(**query))} == alike
        counts.append(len(alike))
    assert counts == [4, 3, 2, 1]
    leaf = Leaf.objects.create(body=text)
    assert Leaf.objects.near("fingerprint", text=text, distance=40, similarity=1).get() == leaf
    assert not Page.objects.near("fingerprint", text={"body": None}, similarity=0).exists()
    Page.objects.filter(pk=leaf.pk).update(sketch=None)
    assert not Leaf.objects.near("fingerprint", text=text, similarity=0).exists()


def test_the_recipe_of_a_search_is_that_of_the_field(in_test_case):
    articles()
    found = Article.objects.near("fingerprint", text=TEXTS[0], recipe=DEFAULT_RECIPE, distance=0)
    assert found.get().body == TEXTS[0]
    with pytest.raises(UsageError, match=r"library\.Article\.fingerprint has the recipe words12-log-1, not"):
        Article.objects.near("fingerprint", text=TEXTS[0], recipe=Recipe(shingles=(3,)))


def test_distances_of_other_expressions(in_test_case):
    Picture.objects.create(hash=2**64 - 1)
    rows = Picture.objects.annotate(bits=HammingDistance("hash", 2**63), same=HammingDistance("hash", F("hash")))
    assert list(rows.values_list("bits", "same")) == [(63, 0)]


@pytest.mark.parametrize(
    ("search", "says"),
    [
        (lambda: Article.objects.near("body", text="x"), r"library\.Article\.body is not a SimhashField"),
        (lambda: Article.objects.near("fingerprint"), "pass either a fingerprint or text="),
        (lambda: Article.objects.near("fingerprint", 1, 65), "distance must be between 0 and 64, not 65"),
        (lambda: Article.objects.near("fingerprint", 2**64).exists(), "is not a fingerprint"),
        (lambda: Article.objects.near("fingerprint", text={"title": "x"}), "text= names 'title', but the sources"),
        (lambda: Page.objects.near("plain", text="a", similarity=0.5), "library.Page.plain has no source"),
        (
            lambda: Memo._base_manager.filter(
                fingerprint__near=Near(text={"title": "a", "text": "b"}, similarity=0.5)
            ),
            "has several sources",
        ),
        (lambda: Article.objects.near("fingerprint", text="a", similarity=0.5), r"SketchField\(source='body'\)"),
        (lambda: Picture.objects.near("hash", text="x"), "the id phash64 is not enough to fingerprint texts"),
    ],
)
def test_what_cannot_be_searched_is_refused(search, says, in_test_case):
    with pytest.raises(UsageError, match=says):
        search()


def test_of_concurrent_claims_one_inserts(committing):
    together = Barrier(16)
    texts = [TEXTS[0], "another text that has nothing in common with the fox, neither words nor sense"]

    def post(number):
        try:
            together.wait(30)
            with transaction.atomic():
                duplicate = Article.objects.claim("fingerprint", text=texts[number % 2])
                return (duplicate or Article.objects.create(body=texts[number % 2])).pk
        finally:
            connections.close_all()

    with ThreadPoolExecutor(16) as threads:
        found = list(threads.map(post, range(16)))
    inserted = dict(Article.objects.values_list("pk", "body"))
    assert sorted(inserted.values()) == sorted(texts)
    assert [inserted[pk] for pk in found] == [texts[number % 2] for number in range(16)]
    with pytest.raises(transaction.TransactionManagementError, match="claim cannot be used outside"):
        Article.objects.claim("fingerprint", text=TEXTS[0])


def test_a_search_uses_the_database_of_its_queryset(in_test_case, other_library):
    Article.objects.using("other").create(body=TEXTS[0])
    assert not Article.objects.near("fingerprint", text=TEXTS[0]).exists()
    assert Article.objects.using("other").near("fingerprint", text=TEXTS[0]).get().distance == 0
    with transaction.atomic("other"):
        assert Article.objects.using("other").claim("fingerprint", text=TEXTS[0]).distance == 0
