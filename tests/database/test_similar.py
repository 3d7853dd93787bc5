"""SearchIndex.similar returns rows with similar texts, and their exact similarity."""

import random
from fractions import Fraction

import numpy as np
import pytest
from sqlalchemy import event, text

from simsql import DEFAULT_RECIPE, UsageError, similarity, similarity_many, sketch_many
from simsql.database import SearchIndex, alter_index, create_index, to_bigint
from simsql.database.similar import RecallWarning
from simsql.fingerprint import Recipe, simhash_many

TITLES = Recipe(tokens="characters", shingles=(3,))
VOCABULARY = [
    f"{first}{second}" for first in ("al", "be", "ga", "de", "mi", "nu") for second in "abcdefghijklmnop"
]


def documents(count=1_000, words=60):
    chance = random.Random(7)
    return [" ".join(chance.choices(VOCABULARY, k=words)) for _ in range(count)]


def edited(text, words, chance):
    changed = text.split()
    for place in chance.sample(range(len(changed)), words):
        changed[place] = chance.choice(VOCABULARY)
    return " ".join(changed)


DOCUMENTS = documents()


@pytest.fixture
def posts(database):
    """A table of texts with fingerprints, sketches and a tenant, and an index that knows its source."""
    with database.connect() as connection, connection.begin():
        connection.execute(
            text(
                "CREATE TABLE post (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, tenant integer, body text,"
                " fingerprint bigint, sketch bigint)"
            )
        )
        fill(connection, DOCUMENTS)
        create_index(connection, "post", "fingerprint", recipe="words12-log-1", sources={"body": 1})
        yield connection


def fill(connection, texts, recipe=DEFAULT_RECIPE):
    values = zip(texts, simhash_many(texts, recipe).tolist(), sketch_many(texts).tolist(), strict=True)
    rows = [
        {"tenant": number % 2, "body": body, "fingerprint": to_bigint(one), "sketch": to_bigint(other)}
        for number, (body, one, other) in enumerate(values)
    ]
    columns = "tenant, body, fingerprint, sketch"
    connection.execute(
        text(f"INSERT INTO post ({columns}) VALUES (:tenant, :body, :fingerprint, :sketch)"),
        rows,
    )


@pytest.mark.parametrize("columns", [{}, {"text_column": "body"}, {"sketch_column": "sketch"}], ids=str)
def test_edited_texts_are_found_with_their_similarity_and_no_others(posts, columns):
    index, chance = SearchIndex(posts, "post"), random.Random(8)
    hits = wanted = 0
    for document in chance.sample(DOCUMENTS, 60):
        query = edited(document, chance.randrange(6), chance)
        values = similarity_many([query] * len(DOCUMENTS), DOCUMENTS).tolist()
        expected = {body: value for body, value in zip(DOCUMENTS, values, strict=True) if value >= 0.6}
        found = index.similar(query, **columns)
        values = [row.similarity for row in found]
        assert values == sorted(values, reverse=True)
        assert all(expected[row.row["body"]] == row.similarity for row in found)
        hits, wanted = hits + len(found), wanted + len(expected)
    assert wanted >= 50
    assert hits >= 0.97 * wanted


def test_the_most_similar_rows_come_first_and_limit_keeps_them(posts):
    index = SearchIndex(posts, "post")
    fill(posts, [edited(DOCUMENTS[5], words, random.Random(words)) for words in (1, 2, 3)])
    found = index.similar(DOCUMENTS[5], 0.5)
    assert [row.row["body"] for row in found[:1]] == [DOCUMENTS[5]]
    assert len(found) == 4
    assert index.similar(DOCUMENTS[5], 0.5, limit=2) == found[:2]


def test_titles_are_compared_by_characters(database):
    titles = [f"{title} {number}" for number, title in enumerate(documents(words=6))]
    with database.connect() as connection, connection.begin():
        connection.execute(text("CREATE TABLE post (tenant int, body text, fingerprint bigint, sketch bigint)"))
        fill(connection, titles, TITLES)
        create_index(connection, "post", "fingerprint", recipe=TITLES.id, sources={"body": 1})
        index = SearchIndex(connection, "post")
        title = titles[3].replace("a", "o", 1)
        assert [row.row["body"] for row in index.similar(title, 0.5)][:1] == [titles[3]]
        assert similarity(title, titles[3]) != index.similar(title, 0.5)[0].similarity > 0.5
        with pytest.raises(UsageError, match="sketches are of words, and characters3-log-1 compares characters"):
            index.similar(title, sketch_column="sketch")


def test_the_recipe_of_an_index_may_have_its_name(posts):
    posts.execute(text("DELETE FROM post"))
    fill(posts, DOCUMENTS[:9], Recipe.from_id("go-simhash"))
    posts.execute(text("SELECT simsql.drop_index('post')"))
    create_index(posts, "post", "fingerprint", recipe="go-simhash", sources={"body": 1})
    assert SearchIndex(posts, "post").similar(DOCUMENTS[5])[0].row["body"] == DOCUMENTS[5]


def test_only_rows_of_the_scope_are_found(posts):
    posts.execute(text("SELECT simsql.drop_index('post')"))
    create_index(posts, "post", "fingerprint", recipe="words12-log-1", sources={"body": 1}, scope=["tenant"])
    index = SearchIndex(posts, "post")
    assert [row.row["tenant"] for row in index.similar(DOCUMENTS[5], scope={"tenant": 1})] == [1]
    assert index.similar(DOCUMENTS[5], scope={"tenant": 0}) == []


def test_a_text_of_each_source_makes_the_query_and_one_is_compared(posts):
    posts.execute(text("ALTER TABLE post ADD title text"))
    posts.execute(text("UPDATE post SET fingerprint = NULL"))
    alter_index(posts, "post", sources={"title": 2, "body": 1})
    index = SearchIndex(posts, "post")
    assert index.similar({"title": "a", "body": "b"}, text_column="body") == []
    with pytest.raises(UsageError, match="has several sources"):
        index.similar({"title": "a", "body": "b"})


def test_a_text_without_features_finds_nothing(posts):
    index = SearchIndex(posts, "post")
    assert index.similar("...") == []
    assert index.query("...") is None


def test_a_recall_that_takes_too_many_probes_is_told(posts):
    index = SearchIndex(posts, "post")
    with pytest.warns(RecallWarning, match=r"texts of similarity 0.2 is expected to find 0\.\d\d of .* not 0.99"):
        index.similar(DOCUMENTS[5], 0.2, recall=0.99)
    usual, many = index.query(DOCUMENTS[5]), index.query(DOCUMENTS[5], recall=0.95)
    assert usual.expected_recall > 0.8
    assert many.expected_recall >= 0.95
    assert sum(map(len, usual.probes.flips)) <= 428


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"similarity": 1.1}, "similarity must be between 0 and 1, not 1.1"),
        ({"recall": -1}, "recall must be between 0 and 1, not -1"),
        ({"recall": 1}, "recall must be below 1"),
        ({"limit": -1}, "limit must be between 0 and .*, not -1"),
        ({"text_column": "id"}, "column id of post is bigint, not text"),
    ],
    ids=str,
)
def test_other_arguments_are_refused(posts, options, message):
    with pytest.raises(UsageError, match=message):
        SearchIndex(posts, "post").similar("a text", **options)


@pytest.mark.parametrize(
    ("text", "options"), [("a text", {"limit": True}), (b"a text", {}), (None, {}), ({"body": 5}, {})], ids=str
)
def test_arguments_of_another_type_are_refused(posts, text, options):
    with pytest.raises(TypeError, match=r"limit must be an int|text (0 )?must be a str, not"):
        SearchIndex(posts, "post").similar(text, **options)


def test_a_column_is_compared_with_its_own_text_alone(posts):
    posts.execute(text("ALTER TABLE post ADD title text"))
    index, wanted = SearchIndex(posts, "post"), {"body": DOCUMENTS[5]}
    with pytest.raises(UsageError, match="text= has no text to compare with the column title: pass it as one str"):
        index.similar(wanted, text_column="title")
    with pytest.raises(UsageError, match="text= has no text to compare with the column title"):
        index.near_rows(text=wanted, similarity=0.6, text_column="title")
    assert index.similar({"body": None}) == []


def test_a_similarity_may_be_any_number(posts):
    index = SearchIndex(posts, "post")
    fill(posts, ["a b c d e f g h j k", "a b c d e f g h j i"])
    assert similarity("a b c d e f g h j k", "a b c d e f g h j i") == 0.6 < Fraction(3, 5)
    for least in (Fraction(3, 5), np.float64(0.6)):
        assert len(index.similar("a b c d e f g h j k", least, recall=0.999)) == 2
        assert len(index.near_rows(text="a b c d e f g h j k", distance=64, similarity=least)) == 2
    with pytest.raises(UsageError, match="similarity must be between 0 and 1, not 1000"):
        index.similar("a b c d e f g h j k", 10**400)


def test_queries_are_hashable_and_compared_by_identity(posts):
    one, other = (SearchIndex(posts, "post").query(DOCUMENTS[5]) for _ in range(2))
    assert len({one, other}) == 2


def test_pictures_have_no_similar_texts(posts):
    alter_index(posts, "post", recipe="phash1-set-1", sources={})
    with pytest.raises(UsageError, match="holds fingerprints of pictures"):
        SearchIndex(posts, "post").similar("a text", text_column="body")


def test_a_search_by_similarity_looks_at_the_index_once(posts):
    index, statements = SearchIndex(posts, "post"), []
    event.listen(posts, "before_cursor_execute", lambda *call: statements.append(call[2]))
    assert index.near_rows(text=DOCUMENTS[5], distance=3, similarity=0.6)[0].similarity == 1
    assert len(statements) == 2
    assert index.similar(DOCUMENTS[5])[0].similarity == 1
    assert len(statements) == 4
