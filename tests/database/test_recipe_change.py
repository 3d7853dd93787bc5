"""A table changes to another recipe in a second column, while others write and search: no search notices."""

import itertools
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import create_engine, event, text

from simsql import DEFAULT_RECIPE, Recipe, simhash
from simsql.database import SearchIndex, change_storage, create_index, drop_index, set_default_index, to_bigint
from simsql.database.explain_row import explain_row
from simsql.database.primary_keys import PrimaryKeys
from simsql.database.query import RowQuery

TRIGRAMS = Recipe(shingles=(3,))
BODIES = [
    f"{adverb} {word} is better than {other}, and {other} is better than nothing at all"
    for adverb in ("today", "often", "never")
    for word in ("simple", "flat", "sparse", "explicit")
    for other in ("dense", "nested", "implicit", "complex")
]
DISTANCE = 12


def neighbours(recipe):
    """The ids of the rows that are to be found for each text: by brute force."""
    prints = [simhash(body, recipe) for body in BODIES]
    return [{i for i, other in enumerate(prints) if (own ^ other).bit_count() <= DISTANCE} for own in prints]


class Traffic:
    """Writers and searchers on the table. Rows with an id of 1000 or more are the writers', the others rest."""

    def __init__(self, engine):
        self.engine = engine
        self.columns = {"fingerprint": DEFAULT_RECIPE}  # what the deployed application writes
        self.stopped = threading.Event()
        self.found = []  # the index of a text, and the ids at rest that its search found
        self.ids = itertools.count(1000)

    def values(self, body):
        return {name: to_bigint(simhash(body, recipe)) for name, recipe in self.columns.items()}

    def write(self):
        while not self.stopped.is_set():
            number = next(self.ids)
            with self.engine.begin() as connection:
                values = self.values(body := BODIES[number % len(BODIES)])
                names = ", ".join(values)
                marks = ", ".join(f":{name}" for name in values)
                insert = f"INSERT INTO article (id, body, {names}) VALUES (:id, :body, {marks})"
                connection.execute(text(insert), {"id": number, "body": body, **values})
                values = self.values(body := BODIES[number * 7 % len(BODIES)])
                assignments = ", ".join(f"{name} = :{name}" for name in values)
                update = f"UPDATE article SET body = :body, {assignments} WHERE id = :id"
                connection.execute(text(update), {"id": (number + 1000) // 2, "body": body, **values})

    def search(self):
        index = SearchIndex(self.engine, "article")
        for number in itertools.cycle(range(len(BODIES))):
            if self.stopped.is_set():
                return
            rows = index.near_rows(text=BODIES[number], distance=DISTANCE)
            self.found.append((number, {match.row["id"] for match in rows if match.row["id"] < 1000}))

    def await_searches(self, count=15):
        wanted = len(self.found) + count
        while len(self.found) < wanted and not self.stopped.wait(0.005):
            pass
        return len(self.found)


@pytest.fixture
def articles(database):
    with database.begin() as connection:
        connection.execute(text("CREATE TABLE article (id bigint PRIMARY KEY, body text, fingerprint bigint)"))
        rows = [
            {"id": number, "body": body, "fingerprint": to_bigint(simhash(body))}
            for number, body in enumerate(BODIES)
        ]
        connection.execute(text("INSERT INTO article VALUES (:id, :body, :fingerprint)"), rows)
    create_index(database, "article", "fingerprint", distance=DISTANCE)
    return database


def test_a_recipe_changes_while_others_write_and_search(articles, storage):
    """Each search finds exactly what one of the two recipes finds, and the second from the switch on."""
    before, after = neighbours(DEFAULT_RECIPE), neighbours(TRIGRAMS)
    assert sum(old != new for old, new in zip(before, after, strict=True)) > len(BODIES) / 2
    traffic = Traffic(articles)

    def change():
        traffic.await_searches()
        set_default_index(articles, "article", "fingerprint")
        with articles.begin() as connection:
            connection.execute(text("ALTER TABLE article ADD COLUMN trigrams bigint"))
            connection.execute(text("SELECT simsql.clear_on_change('article', 'trigrams', ARRAY['body'])"))
        create_index(
            articles,
            "article",
            "trigrams",
            distance=DISTANCE,
            recipe=TRIGRAMS,
            storage=storage,
            concurrently=True,
        )
        traffic.await_searches()
        # Of two processes of the application, one is new, then both.
        old, traffic.columns = traffic.columns, {**traffic.columns, "trigrams": TRIGRAMS}
        SearchIndex(articles, "article", "trigrams").backfill("body")
        traffic.columns = old
        traffic.await_searches()
        traffic.columns = {**old, "trigrams": TRIGRAMS}
        traffic.await_searches()
        while SearchIndex(articles, "article", "trigrams").backfill("body").busy:
            pass
        set_default_index(articles, "article", "trigrams")
        switched = traffic.await_searches(2)  # one may have begun before
        traffic.await_searches()
        traffic.columns = {"trigrams": TRIGRAMS}
        traffic.await_searches(2)
        drop_index(articles, "article", "fingerprint")
        traffic.await_searches()
        return switched

    with ThreadPoolExecutor(3) as pool:
        others = [pool.submit(traffic.write), pool.submit(traffic.search)]
        for other in others:
            other.add_done_callback(lambda _: traffic.stopped.set())
        try:
            switched = pool.submit(change).result()
        finally:
            traffic.stopped.set()
        for other in others:
            other.result()
    for number, ids in traffic.found:
        assert ids in (before[number], after[number])
    assert all(ids == after[number] for number, ids in traffic.found[switched:])
    with articles.connect() as connection:
        rows = connection.execute(text("SELECT body, trigrams FROM article")).all()
    assert len(rows) > len(BODIES)
    assert all(fingerprint == to_bigint(simhash(body, TRIGRAMS)) for body, fingerprint in rows)


def test_a_text_is_searched_for_in_the_index_whose_recipe_it_was_given(articles):
    """Even if the default index changes between reading the recipe and searching."""
    with articles.begin() as connection:
        connection.execute(text("ALTER TABLE article ADD COLUMN trigrams bigint"))
    set_default_index(articles, "article", "fingerprint")
    create_index(articles, "article", "trigrams", distance=DISTANCE, recipe=TRIGRAMS)
    SearchIndex(articles, "article", "trigrams").backfill("body")
    changes = []

    def change(connection, cursor, statement, *_):
        if "simsql.near(" in statement and not changes:
            changes.append(statement)
            set_default_index(articles, "article", "trigrams")

    event.listen(articles, "before_cursor_execute", change)
    index = SearchIndex(articles, "article")
    for recipe in (DEFAULT_RECIPE, TRIGRAMS):
        query = simhash(BODIES[0], recipe)
        expected = {value for body in BODIES if (query ^ (value := simhash(body, recipe))).bit_count() <= DISTANCE}
        assert {match.fingerprint for match in index.near(text=BODIES[0])} == expected
    assert changes


@pytest.fixture
def both(articles):
    """The articles with indexes of both recipes, and what makes another one the default each time it is called."""
    with articles.begin() as connection:
        connection.execute(text("ALTER TABLE article ADD COLUMN trigrams bigint"))
    set_default_index(articles, "article", "fingerprint")
    create_index(articles, "article", "trigrams", distance=5, recipe=TRIGRAMS)
    SearchIndex(articles, "article", "trigrams").backfill("body")
    columns = itertools.cycle(["trigrams", "fingerprint"])
    owner = create_engine(articles.url)
    yield articles, lambda *_: set_default_index(owner, "article", next(columns))
    owner.dispose()


@pytest.mark.parametrize(
    "read",
    [
        lambda connection, table, column: explain_row(
            connection, table, column, "3", RowQuery(simhash(BODIES[3]))
        ),
        lambda connection, table, column: sorted(SearchIndex(connection, table, column).pairs()),
        lambda connection, table, column: sorted(SearchIndex(connection, table, column).near(text=BODIES[3])),
    ],
)
def test_a_call_reads_one_index(both, read):
    database, switch = both
    event.listen(database, "after_cursor_execute", switch)
    with database.connect() as connection:
        by_column = [str(read(connection, "article", column)) for column in ("fingerprint", "trigrams")]
        assert by_column[0] != by_column[1]
        assert str(read(connection, "article", None)) in by_column


def test_primary_keys_are_looked_up_in_one_index(both):
    database, switch = both
    with database.connect() as connection:
        keys = PrimaryKeys(connection, "article")
        switch()
        assert keys.find([simhash(BODIES[3])]) == {simhash(BODIES[3]): [3]}


def test_a_vacuum_and_a_change_of_storage_stay_with_one_index(both):
    database, switch = both
    left = (
        "SELECT simsql.superfluous_keys('article', 'fingerprint'), simsql.superfluous_keys('article', 'trigrams')"
    )
    with database.begin() as connection:
        connection.execute(text("UPDATE article SET fingerprint = id, trigrams = id"))
    with database.connect() as observer:
        before = observer.execute(text(left)).one()
        observer.rollback()
        event.listen(database, "begin", switch)
        removed = SearchIndex(database, "article").vacuum()
        event.remove(database, "begin", switch)
        assert removed > 0
        after = observer.execute(text(left)).one()
        assert sorted(old - new for old, new in zip(before, after, strict=True)) == [0, removed]
        observer.rollback()
        event.listen(database, "begin", switch)
        changed = change_storage(database, "article", "expression")
        keys = f"SELECT to_regclass('simsql.keys_{changed}_0')"
        indexes = "SELECT id FROM simsql.indexes WHERE storage = 'expression'"
        assert observer.execute(text(indexes)).scalars().all() == [changed]
        assert observer.execute(text(keys)).scalar_one() is None
