"""A load of unique documents lets in what a serial oracle lets in, whoever else loads and claims."""

import random
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager

import pytest
from articles import missing_keys
from claims import claim
from program import wait_until
from psycopg.errors import ObjectNotInPrerequisiteState
from sessions import blocked
from sqlalchemy import create_engine
from sqlalchemy.exc import DBAPIError, OperationalError
from upgrades import RELEASED, bare

from simsql import simhash, similarity
from simsql.database import NewDocument, create_index, install_schema, load_unique, to_bigint
from simsql.errors import SimsqlError, UsageError

pytestmark = pytest.mark.oldest_version
COLUMNS = {"id_column": "id", "text_column": "body", "column": "fingerprint"}
LOCK = "SELECT simsql._loader_lock('article'::regclass)"


def texts(count, seed, families=12):
    """Texts of a few families, some of them near-duplicates of each other, and one without words."""
    chance = random.Random(seed)
    words = [f"word{number}" for number in range(400)]
    origins = [chance.choices(words, k=60) for _ in range(families)]
    made = ["?!"]
    for _ in range(count - 1):
        text = list(chance.choice(origins))
        for _ in range(chance.choice((0, 1, 2, 4, 8, 12))):
            text[chance.randrange(len(text))] = chance.choice(words)
        made.append(" ".join(text))
    chance.shuffle(made)
    return made


def documents(count, seed, first=1, **options):
    return [NewDocument(str(first + number), text) for number, text in enumerate(texts(count, seed, **options))]


def near(one, other, within=12, least=0.6):
    a, b = simhash(one), simhash(other)
    return None not in (a, b) and (a ^ b).bit_count() <= within and similarity(one, other) >= least


def oracle(known, wanted):
    """The ids that one document after another lets in."""
    kept, let_in = list(known), []
    for document in wanted:
        if not any(near(document.text, text) for text in kept):
            kept.append(document.text)
            let_in.append(document.id)
    return let_in


def create(connection, rows=(), storage="tables"):
    is_partitioned = storage == "partitioned"
    connection.execute(
        "CREATE TABLE article (id bigint PRIMARY KEY, body text, fingerprint bigint, sketch bigint)"
        + " PARTITION BY HASH (id)" * is_partitioned
    )
    for rest in range(2 * is_partitioned):
        values = f"FOR VALUES WITH (MODULUS 2, REMAINDER {rest})"
        connection.execute(f"CREATE TABLE article_{rest} PARTITION OF article {values}")
    add(connection, rows)
    connection.execute(
        "SELECT simsql.create_index('article', 'fingerprint', recipe => 'words12-log-1', storage => %s)",
        ["expression" if is_partitioned else storage],
    )


def add(connection, rows):
    for one in rows:
        connection.execute(
            "INSERT INTO article VALUES (%s, %s, %s)", [one.id, one.text, to_bigint(simhash(one.text))]
        )


def stored(connection):
    return {str(key): text for key, text in connection.execute("SELECT id, body FROM article")}


def shown(decisions):
    return [
        (one.document.id, one.outcome == "left out", one.kept, one.distance, one.similarity) for one in decisions
    ]


@pytest.mark.parametrize(("storage", "sketched"), [("tables", True), ("expression", False), ("partitioned", True)])
def test_what_is_let_in_is_what_the_oracle_lets_in(connection, database, storage, sketched):
    known, wanted = documents(40, 1, first=1000), documents(150, 1)
    create(connection, known, storage)
    options = COLUMNS | ({"sketch_column": "sketch"} if sketched else {}) | {"batch_rows": 17}
    expected = oracle([one.text for one in known], wanted)
    assert 20 < len(expected) < 100
    dry = list(load_unique(database, "article", wanted, dry_run=True, **options))
    assert len(stored(connection)) == 40
    decisions = list(load_unique(database, "article", wanted, **options))
    assert decisions == dry
    assert [one.document for one in decisions] == wanted
    assert [one.document.id for one in decisions if one.outcome == "loaded"] == expected
    rows = stored(connection)
    assert rows.keys() == {one.id for one in known} | set(expected)
    for one in decisions:
        if one.outcome == "left out":
            assert near(one.document.text, rows[one.kept])
            assert one.similarity == similarity(one.document.text, rows[one.kept])
    assert storage != "tables" or missing_keys(connection, "article") == []
    again = list(load_unique(database, "article", wanted, **options))
    assert shown(again) == shown(decisions)
    assert Counter(one.outcome for one in again)["loaded before"] == len(expected)
    filled = connection.execute("SELECT count(sketch) FROM article").fetchone()[0]
    assert (filled > 0) == sketched


@pytest.mark.pooled
def test_an_interrupted_load_is_repeated_with_the_same_end(connection, database):
    known, wanted = documents(10, 2, first=1000), documents(120, 2)
    create(connection, known)
    whole = shown(load_unique(database, "article", wanted, dry_run=True, **COLUMNS, batch_rows=13))
    for stop in (1, 14, 40, 90):
        running = load_unique(database, "article", wanted, **COLUMNS, batch_rows=13)
        for _ in range(stop):
            next(running)
        running.close()
        assert 10 < len(stored(connection)) < 10 + len(wanted)
    assert shown(load_unique(database, "article", wanted, **COLUMNS, batch_rows=13)) == whole


def test_of_the_rows_of_a_batch_the_first_one_counts_when_a_load_is_repeated(connection, database):
    create(connection)
    middle = [f"word{number}" for number in range(80)]
    for seed in range(1000):
        chance = random.Random(seed)
        ends = []
        for changed in (5, 4):
            words = list(middle)
            for place in chance.sample(range(80), changed):
                words[place] = f"other{chance.random()}"
            ends.append(" ".join(words))
        bits = [(simhash(" ".join(middle)) ^ simhash(end)).bit_count() for end in ends]
        if 12 >= bits[0] > bits[1] and similarity(*ends) < 0.6 <= min(
            similarity(" ".join(middle), end) for end in ends
        ):
            break
    given = [NewDocument(str(number), text) for number, text in enumerate([*ends, " ".join(middle)])]
    for _ in range(2):
        assert list(load_unique(database, "article", given, **COLUMNS))[2].kept == "0"


def test_loaders_and_claims_beside_each_other(connection, database, connect):
    create(connection, documents(20, 3, first=1000))
    wanted = [documents(60, 3 + number % 2, first=10_000 * (number + 1), families=30) for number in range(4)]
    decisions, claimed = [], []
    barrier = threading.Barrier(8)

    def load(own):
        barrier.wait()
        decisions.extend(load_unique(database, "article", own, **COLUMNS, batch_rows=7))

    def claim_and_insert(session, number):
        barrier.wait()
        for key, text in enumerate(texts(40, 3 + number % 2, families=30), 10**6 * (number + 1)):
            with session.transaction():
                fingerprint = to_bigint(simhash(text))
                if fingerprint is not None and not claim(session, fingerprint, 3):
                    add(session, [NewDocument(str(key), text)])
                    claimed.append(str(key))

    threads = [threading.Thread(target=load, args=(own,)) for own in wanted]
    threads += [threading.Thread(target=claim_and_insert, args=(connect(), number)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    rows = stored(connection)
    loaded = [one.document.id for one in decisions if one.outcome == "loaded"]
    assert len(decisions) == 240
    assert len(rows) == 20 + len(loaded) + len(claimed)
    for place, one in enumerate(loaded):
        assert not [other for other in loaded[:place] if near(rows[one], rows[other])]
        for other in claimed:
            assert not near(rows[one], rows[other], 3, 0)
    assert all(near(one.document.text, rows[one.kept]) for one in decisions if one.outcome == "left out")


BODY = " ".join(f"word{number}" for number in range(80))


def load_one(database, **options):
    (found,) = load_unique(database, "article", [NewDocument("1", BODY)], **COLUMNS, **options)
    return found


@contextmanager
def waiting_load(database, **options):
    """A load that waits for somebody else, as a future, and what it says."""
    said = []
    with ThreadPoolExecutor(1) as thread:
        future = thread.submit(load_one, database, waits=said.append, **options)
        wait_until(lambda: said or future.done(), "the load to wait")
        assert said, future.result()
        yield future, said


@pytest.mark.parametrize("change", ["insert", "insert of a running transaction", "delete", "edit"])
def test_what_a_claim_commits_while_a_loader_waits_is_looked_at(connection, database, connect, change):
    inserts = change.startswith("insert")
    # Key tables have triggers, whose subtransactions are later ones.
    create(connection, [] if inserts else [NewDocument("7", BODY + " more")], "expression")
    connection.execute("BEGIN")
    claim(connection, -1)
    if change != "insert":
        connection.execute("SELECT pg_current_xact_id()")
        connect().execute("SELECT pg_current_xact_id()")  # a later one has ended when the search begins
    with waiting_load(database) as (waiting, said):
        if inserts:
            add(connection, [NewDocument("7", BODY + " more")])
        elif change == "delete":
            connection.execute("DELETE FROM article")
        else:
            connection.execute("UPDATE article SET body = 'other'")
        connection.execute("COMMIT")
    found = waiting.result()
    assert (found.outcome, found.kept) == (("left out", "7") if inserts else ("loaded", None))
    assert said == [
        f"waiting for sessions that claim in article or have locked rows: {connection.info.backend_pid}"
    ]


def test_ids_that_come_and_go_while_a_loader_waits(connection, database):
    create(connection, [NewDocument("1", "some other words")])
    for is_there in (True, False):
        connection.execute("BEGIN")
        claim(connection, -1)
        with waiting_load(database, replace=True) as (waiting, _):
            connection.execute("DELETE FROM article")
            add(connection, [] if is_there else [NewDocument("1", BODY)])
            connection.execute("COMMIT")
        assert waiting.result().outcome == ("loaded" if is_there else "loaded before")
        assert stored(connection) == {"1": BODY}
        connection.execute("DELETE FROM article")


@pytest.mark.parametrize("change", ["UPDATE article SET body = body", "INSERT INTO article VALUES (1)"])
def test_a_loader_never_waits_for_a_row_while_others_wait_for_it(connection, database, connect, change):
    create(connection, [NewDocument("7", BODY + " more")] if change.startswith("UPDATE") else [])
    connection.execute("BEGIN")
    connection.execute(change)
    with waiting_load(database) as (waiting, _):
        assert claim(connection, -1) == []
        connection.execute("ROLLBACK")
    assert waiting.result().outcome == ("left out" if change.startswith("UPDATE") else "loaded")


def test_a_lock_timeout_limits_the_wait(connection, database):
    create(connection)
    connection.execute("BEGIN")
    claim(connection, -1)
    impatient = create_engine(database.url, connect_args={"options": "-c lock_timeout=300ms"})
    with pytest.raises(OperationalError, match="lock timeout"):
        load_one(impatient)
    impatient.dispose()
    connection.execute("COMMIT")
    assert load_one(database).outcome == "loaded"


def test_a_claim_waits_for_loaders_of_its_table_alone(connection, connect):
    create(connection)
    connection.execute("CREATE TABLE other (fingerprint bigint)")
    connection.execute("SELECT simsql.create_index('other', 'fingerprint')")
    loader = connect()
    loader.execute("BEGIN")
    loader.execute(f"SELECT pg_advisory_xact_lock(({LOCK}))")
    assert connection.execute("SELECT FROM simsql.claim('other', 5)").fetchall() == []
    with blocked(connect, lambda session: claim(session, 5)) as waiting:
        loader.execute("COMMIT")
    assert waiting.result() == []


def test_ids_are_those_of_the_column(connection, database):
    create(connection, [NewDocument("7", BODY)])
    same = [NewDocument("007", BODY), NewDocument("8", "one two three"), NewDocument(" 8 ", "one two three")]
    found = [one.outcome for one in load_unique(database, "article", same, **COLUMNS)]
    assert found == ["loaded before", "loaded", "loaded before"]
    changed = [NewDocument("9", "entirely new words here"), NewDocument("7", "other words")]
    with pytest.raises(SimsqlError, match="id '7' is in article with another text: use --replace"):
        list(load_unique(database, "article", changed, **COLUMNS))
    with pytest.raises(SimsqlError, match=r"a:2: id 'x': PostgreSQL: invalid input syntax for type bigint"):
        list(load_unique(database, "article", [*same, NewDocument("x", "y", "a:2")], **COLUMNS))
    assert stored(connection) == {"7": BODY, "8": "one two three"}
    connection.execute("UPDATE article SET body = NULL WHERE id = 7")
    with pytest.raises(SimsqlError, match="id '7' is in article without a text: use --replace"):
        list(load_unique(database, "article", same, **COLUMNS))
    assert next(load_unique(database, "article", same, **COLUMNS, replace=True)).outcome == "replaced"


def test_a_text_replaces_that_of_its_row(connection, database):
    create(connection, [NewDocument("7", BODY)])
    given = [NewDocument("7", "entirely new words here"), NewDocument("8", BODY), NewDocument("9", BODY + " more")]
    given += [NewDocument("7", BODY), NewDocument("9", "entirely new words here!")]
    expected = ["replaced", "loaded", "left out", "left out", "left out"]
    for dry_run in (True, False):
        decisions = list(load_unique(database, "article", given, **COLUMNS, replace=True, dry_run=dry_run))
        assert [one.outcome for one in decisions] == expected
        assert [one.kept for one in decisions] == [None, None, "8", "8", "7"]
    assert stored(connection) == {"7": "entirely new words here", "8": BODY}
    assert missing_keys(connection, "article") == []


def test_a_scope_keeps_documents_apart(connection, database):
    connection.execute("CREATE TABLE article (id text PRIMARY KEY, body text, tenant integer, fingerprint bigint)")
    connection.execute(
        "SELECT simsql.create_index('article', 'fingerprint', scope => '{tenant}', recipe => 'words12-log-1')"
    )
    for tenant in (1, 2):
        given = [NewDocument(f"{tenant}a", BODY), NewDocument(f"{tenant}b", BODY + " more")]
        decisions = list(load_unique(database, "article", given, **COLUMNS, scope={"tenant": tenant}))
        assert [one.outcome for one in decisions] == ["loaded", "left out"]
    for text in (BODY, "entirely new words here"):
        given = [NewDocument("1a", text, "a:1")]
        with pytest.raises(SimsqlError, match="a:1: id '1a' is in article in another scope"):
            list(load_unique(database, "article", given, **COLUMNS, scope={"tenant": 2}, replace=True))
    rows = connection.execute("SELECT id, tenant, body FROM article").fetchall()
    assert rows == [("1a", 1, BODY), ("2a", 2, BODY)]
    with pytest.raises(DBAPIError, match="scope"):
        load_one(database)


def test_what_cannot_be_loaded_uniquely(connection, database):
    connection.execute("CREATE TABLE article (id bigint, body text, fingerprint bigint)")
    with pytest.raises(UsageError, match="article\\(fingerprint\\) has no simhash index"):
        load_one(database)
    connection.execute("SELECT simsql.create_index('article', 'fingerprint', recipe => 'phash64-1')")
    with pytest.raises(UsageError, match="recipe"):
        load_one(database)
    connection.execute("SELECT simsql.alter_index('article', recipe => 'words12-log-1')")
    with pytest.raises(DBAPIError, match="article has no unique index on id alone"):
        load_one(database)
    connection.execute("CREATE UNIQUE INDEX ON article (id)")
    for option, value in (("distance", 65), ("similarity", 2), ("batch_rows", 0)):
        with pytest.raises(UsageError, match=option):
            load_one(database, **{option: value})
    assert load_one(database).outcome == "loaded"


def test_claims_of_the_last_release_meet_loaders_after_an_upgrade(server):
    with bare(server) as (connection, engine), ExitStack() as stack:
        connection.execute(RELEASED["0.2.0"].read_text(encoding="utf-8"))
        connection.execute("CREATE TABLE article (id bigint PRIMARY KEY, body text, fingerprint bigint)")
        connection.execute("SELECT simsql.create_index('article', 'fingerprint', recipe => 'words12-log-1')")

        def connect():
            return stack.enter_context(closing(server.connect(connection.info.dbname)))

        # One has claimed, so the upgrade waits. Another has begun, and not yet read anything of simsql.
        connection.execute("BEGIN")
        claim(connection, -1)
        default = "pg_advisory_lock(hashtextextended('simsql.default', 'article'::regclass::oid::bigint))"
        changing = connect()
        with (
            blocked(
                iter([changing, connect()]).__next__, lambda session: session.execute(f"SELECT {default}")
            ) as changed,
            blocked(connect, lambda session: claim(session, -1)) as claiming,
            ThreadPoolExecutor(1) as thread,
        ):
            upgrade = thread.submit(install_schema, engine)
            with pytest.raises(TimeoutError):
                upgrade.result(0.5)
            add(connection, [NewDocument("7", BODY + " more")])
            connection.execute("COMMIT")
            upgrade.result()
            changed.result()
            changing.execute("SELECT pg_advisory_unlock_all()")
            with pytest.raises(ObjectNotInPrerequisiteState, match="simsql was upgraded"):
                claiming.result()
        assert load_one(engine).kept == "7"


def test_titles_are_compared_by_the_features_of_the_recipe(database):
    with database.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE book (id text PRIMARY KEY, title text, fingerprint bigint)")
        create_index(connection, "book", "fingerprint", recipe="trigrams1-set-1", sources={"title": 1})
    titles = ["The Portable Carpet", "Teh Portable Carpet", "The Secret Garden"]
    documents = [NewDocument(str(number), title) for number, title in enumerate(titles)]
    found = list(
        load_unique(database, "book", documents, id_column="id", text_column="title", distance=32, similarity=0.7)
    )
    assert [decision.outcome for decision in found] == ["loaded", "left out", "loaded"]
    assert found[1].similarity == pytest.approx(17 / 23)
