"""Columns of sketches: loaded, filled, checked, and used by near_rows, which compares texts."""

import random
import re

import pytest
from articles import create_index
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from simsql import Recipe, UsageError, hamming_distance, simhash, similarity, sketch
from simsql.database import SearchIndex, alter_index, load_rows, to_bigint
from simsql.database.explain_row import explain_row
from simsql.database.query import RowQuery
from simsql.fingerprint import sketch_distance

WORDS = [f"word{number}" for number in range(40)]
CREATE = "CREATE TABLE article (id int PRIMARY KEY, body text, fingerprint bigint, sketch bigint)"


def bodies():
    """Return copies of a text with more and more edits, a long one, and texts without words."""
    chance = random.Random(5)
    found = []
    for edits in range(60):
        words = list(WORDS)
        for _ in range(edits // 3):
            words[chance.randrange(len(words))] = f"edit{chance.randrange(99)}"
        found.append(" ".join(words))
    return [*found, " ".join(WORDS) * 50, "?!", None, ""]


BODIES = bodies()


@pytest.fixture
def articles(database, connection, storage):
    """A table with an index, texts, and their fingerprints and sketches."""
    connection.execute(CREATE)
    create_index(connection, storage=storage)
    with database.begin() as loading:
        rows = [[number, body] for number, body in enumerate(BODIES)]
        load_rows(loading, "article", ["id", "body"], rows, text_column="body", sketch_column="sketch")
    return connection


def stored(connection):
    return connection.execute("SELECT id, fingerprint, sketch FROM article ORDER BY id").fetchall()


def values_of(body, recipe=None):
    made = None if body is None else simhash(body, recipe) if recipe else simhash(body)
    return to_bigint(made), to_bigint(None if body is None else sketch(body))


EXPECTED = [(number, *values_of(body)) for number, body in enumerate(BODIES)]


def test_rows_are_loaded_and_found_as_by_brute_force(articles, database):
    assert stored(articles) == EXPECTED
    # The sketches of some rows are not known.
    articles.execute("UPDATE article SET sketch = NULL WHERE id % 7 = 0")
    index = SearchIndex(database, "article")
    query = BODIES[0].upper()
    counts = set()
    for least in (0, 0.3, 0.6, 0.9, 1):
        for given in ({}, {"sketch_column": "sketch"}):
            found = index.near_rows(text=query, distance=24, similarity=least, text_column="body", **given)
            assert found == sorted(found, key=lambda match: match.distance)
            passing = [
                (number, hamming_distance(simhash(query), simhash(body)), similarity(body, query))
                for number, body in enumerate(BODIES)
                if body and simhash(body) is not None
                if not given
                or number % 7 == 0
                or hamming_distance(sketch(query), sketch(body)) <= sketch_distance(least)
            ]
            expected = [one for one in passing if one[1] <= 24 and one[2] >= least]
            assert sorted((match.row["id"], match.distance, match.similarity) for match in found) == expected
            counts.add(len(found))
    assert len(counts) > 4
    assert index.near_rows(text="?!", similarity=0, text_column="body", sketch_column="sketch") == []
    assert index.near_rows(text=query)[0].similarity is None


def test_only_texts_with_a_near_sketch_are_read(articles, database):
    articles.execute("ALTER TABLE article ALTER body SET STORAGE EXTERNAL")
    articles.execute("UPDATE article SET body = body || repeat('?!', 9000) WHERE body <> ''")
    articles.execute("UPDATE article SET sketch = ~sketch WHERE id > 3")
    read = text("SELECT pg_stat_get_xact_blocks_fetched(reltoastrelid) FROM pg_class WHERE relname = 'article'")
    search = {"text": BODIES[0], "distance": 24, "similarity": 0.6, "text_column": "body"}
    blocks = []
    with database.connect() as connection:
        index = SearchIndex(connection, "article")
        for given in (None, "sketch"):
            before = connection.execute(read).scalar_one()
            found = index.near_rows(**search, sketch_column=given)
            blocks.append(connection.execute(read).scalar_one() - before)
    assert {match.row["id"] for match in found} == {0, 1, 2, 3}
    every, few = blocks
    assert 0 < few < every / 10


def test_a_text_that_changes_takes_its_sketch_along(articles, database):
    """Also if a writer knows fingerprints, and no sketches."""
    for column in ("fingerprint", "sketch"):
        articles.execute("SELECT simsql.clear_on_change('article', %s, ARRAY['body'])", [column])
    articles.execute(
        "UPDATE article SET body = %s, fingerprint = %s WHERE id = 59", [BODIES[0], values_of(BODIES[0])[0]]
    )
    articles.execute("UPDATE article SET body = 'other words' WHERE id = 58")
    articles.execute("UPDATE article SET body = body || '', sketch = 1 WHERE id = 57")
    assert stored(articles)[57:60] == [
        (57, EXPECTED[57][1], 1),
        (58, None, None),
        (59, EXPECTED[0][1], None),
    ]
    search = {"similarity": 1, "text_column": "body", "sketch_column": "sketch"}
    found = SearchIndex(database, "article").near_rows(text=BODIES[0], **search)
    assert {match.row["id"] for match in found} >= {0, 59}


def test_backfill_keeps_fingerprints_and_renews_sketches(articles, database):
    index = SearchIndex(database, "article")
    articles.execute("UPDATE article SET fingerprint = 7 WHERE id = 1")  # of another origin
    articles.execute("UPDATE article SET sketch = NULL WHERE id < 20")
    articles.execute("UPDATE article SET fingerprint = NULL WHERE id BETWEEN 10 AND 29")
    articles.execute("UPDATE article SET sketch = 5 WHERE id = 25")  # stale, as its fingerprint was
    assert index.backfill("body", sketch_column="sketch", batch_rows=7) == (20, 2, 0, 0, 21)
    assert stored(articles) == [*EXPECTED[:1], (1, 7, EXPECTED[1][2]), *EXPECTED[2:]]
    assert index.backfill("body", sketch_column="sketch") == (0, 2, 0, 0, 0)
    assert index.backfill("body", sketch_column="sketch", all_rows=True, workers=2) == (1, 2, 0, 60, 0)
    assert stored(articles) == EXPECTED
    with pytest.raises(UsageError, match="a sketch is of one text, not of body, title"):
        index.backfill({"body": 1, "title": 2}, sketch_column="sketch")


def test_sketches_do_not_depend_on_the_recipe(connection, database):
    recipe = Recipe(tokens="characters", shingles=(3,))
    connection.execute(CREATE)
    SearchIndex(database, "article", "fingerprint", recipe=recipe).backfill("body", sketch_column="sketch")
    connection.execute("INSERT INTO article VALUES (1, 'Some words'), (2, '?!')")
    index = SearchIndex(database, "article", "fingerprint", recipe=recipe)
    assert index.backfill("body", sketch_column="sketch").written == 1
    assert stored(connection) == [(1, *values_of("Some words", recipe)), (2, None, None)]


USES = {
    "search": lambda engine, column: SearchIndex(engine, "article").near_rows(
        text="a", similarity=0.5, text_column="body", sketch_column=column
    ),
    "backfill": lambda engine, column: SearchIndex(engine, "article").backfill("body", sketch_column=column),
    "load": lambda engine, column: load(engine, [[1, "a"]], text_column="body", sketch_column=column),
}


def load(engine, rows, **options):
    with engine.begin() as connection:
        return load_rows(connection, "article", ["id", "body"], rows, **options)


def test_only_columns_of_the_same_sketches_are_used(connection, database):
    connection.execute(CREATE)
    create_index(connection)
    for use in USES.values():
        with pytest.raises(UsageError, match="article has no column sketches"):
            use(database, "sketches")
        with pytest.raises(UsageError, match="column body of article is text, not bigint"):
            use(database, "body")
        with pytest.raises(UsageError, match=r"column fingerprint of article h.* fingerprints"):
            use(database, "fingerprint")
    for comment, fits in (
        ("of the body", True),
        ("minhash64-1 of the body", True),
        ("of the body: minhash64-2", False),
        ("minhash64-1, in part minhash128-1", False),
    ):
        connection.execute(f"COMMENT ON COLUMN article.sketch IS '{comment}'")
        for use in USES.values():
            if fits:
                use(database, "sketch")
                connection.execute("TRUNCATE article")
            else:
                with pytest.raises(
                    UsageError, match=r"sketches minhash.*, which cannot be compared with minhash64-1"
                ):
                    use(database, "sketch")
    connection.execute("ALTER TABLE article DROP sketch, ADD sketch bigint GENERATED ALWAYS AS (id) STORED")
    with pytest.raises(DBAPIError, match=r"column sketch of public\.article is generated"):
        USES["backfill"](database, "sketch")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"text": "a", "similarity": 0.5}, "has no source, so .*: name the column of the texts"),
        ({"text": "a", "sketch_column": "sketch"}, "apply only to a similarity: pass similarity="),
        ({"text": "a", "similarity": 0, "text_column": "id"}, "column id of article is integer, not text"),
        ({"text": "a", "similarity": 0, "text_column": "title"}, "article has no column title"),
    ],
)
def test_searches_that_cannot_compare_texts_are_refused(connection, database, options, message):
    connection.execute(CREATE)
    create_index(connection)
    load(database, [[1, "a"]], text_column="body")
    with pytest.raises(UsageError, match=message):
        SearchIndex(database, "article").near_rows(**options)


@pytest.mark.parametrize("type_name", ["bytea", "jsonb", "text[]", "varchar(9)", "words"])
def test_only_columns_of_a_text_type_are_compared(connection, database, type_name):
    connection.execute("CREATE DOMAIN words AS text")
    value = {"jsonb": '"a b"', "text[]": "{a b}"}.get(type_name, "a b")
    connection.execute(f"CREATE TABLE article (id int PRIMARY KEY, body {type_name}, fingerprint bigint)")
    create_index(connection)
    connection.execute("INSERT INTO article VALUES (1, %s, %s)", [value, to_bigint(simhash("a b"))])
    with database.connect() as using:

        def near():
            found = SearchIndex(using, "article").near_rows(text="a b", similarity=1, text_column="body")
            return [match.similarity for match in found]

        def explain():
            query = RowQuery(text="a b", similarity=1)
            return [explain_row(using, "article", None, "1", query, "body").similarity]

        def explain_source():
            alter_index(using, "article", "fingerprint", sources={"body": 1})
            return [explain_row(using, "article", None, "1", RowQuery(text="a b", similarity=1)).similarity]

        def near_source():
            found = SearchIndex(using, "article").near_rows(text="a b", similarity=1)
            return [match.similarity for match in found]

        for search in (near, explain, *[explain_source, near_source] * (type_name == "varchar(9)")):
            if type_name in ("varchar(9)", "words"):
                assert search() == [1.0]
                continue
            refused = re.escape(f"column body of article is {type_name}, not text: name the column of the texts")
            with pytest.raises(UsageError, match=refused):
                search()


def test_a_similarity_is_a_number(database):
    with pytest.raises(TypeError, match=r"similarity must be a number between 0 and 1, not '0\.6'"):
        SearchIndex(database, "article").near_rows(text="a", similarity="0.6", text_column="body")


def test_sketches_need_texts(connection, database):
    connection.execute(CREATE)
    create_index(connection)
    with pytest.raises(UsageError, match="sketch_column needs text_column"):
        load(database, [[1, "a"]], sketch_column="sketch")
