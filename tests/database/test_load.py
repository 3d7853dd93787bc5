"""Loading: every row and every key arrives, whichever way; names may be odd, and a failure adds nothing."""

import numpy as np
import pytest
from articles import DESIGNS, create_articles, create_index, create_table, missing_keys, near
from oracle import EXTREMES, clustered
from psycopg import errors, sql
from refusals import refused
from roles import allow_indexes
from sqlalchemy import create_engine, text

from simsql import Design, Recipe, simhash, simhash_many
from simsql.database import create_index as index_column
from simsql.database import from_bigint, load, load_rows, open_engine, to_bigint
from simsql.errors import SimsqlError, UsageError

WAYS = ["triggers", "direct"]


def fill_articles(connection):
    create_articles(connection, [1])


@pytest.fixture
def way(request, monkeypatch):
    """Rows of a batch: a load that fills one copies keys directly. And few keys at a time."""
    monkeypatch.setattr(load, "_BATCH_ROWS", {"triggers": 10**9, "direct": 1}[request.param])
    monkeypatch.setattr(load, "_SORTED_KEYS", 30)
    return request.param


@pytest.fixture
def add(database):
    """Load these fingerprints into `article`, in a transaction; return how many."""

    def load_fingerprints(fingerprints):
        with database.begin() as transaction:
            return load_rows(transaction, "article", ["fingerprint"], ((number,) for number in fingerprints))

    return load_fingerprints


both_ways = pytest.mark.parametrize("way", WAYS, indirect=True)
directly = pytest.mark.parametrize("way", ["direct"], indirect=True)


def triggers(connection):
    """The triggers of simsql with their state, and the transaction that changed it last."""
    return connection.execute(
        "SELECT tgname, tgenabled, xmin::text FROM pg_trigger WHERE tgname LIKE 'simsql%' ORDER BY 1"
    ).fetchall()


def all_keys(connection, index=1):
    names = connection.execute(
        "SELECT relname FROM pg_class WHERE relkind = 'r' AND relname ~ %s ORDER BY 1", [f"^keys_{index}_"]
    ).fetchall()
    distinct = sql.SQL("SELECT DISTINCT key FROM simsql.{} ORDER BY 1")
    return {name: connection.execute(distinct.format(sql.Identifier(name))).fetchall() for (name,) in names}


# Which way


@pytest.mark.parametrize("design", [DESIGNS[0], DESIGNS[5], DESIGNS[-2]], ids=str)
def test_all_ways_give_equal_keys(connection, database, monkeypatch, design):
    rows = [(f,) for f in [*clustered(300, seed=5), None, None, 7, 7]]
    found = []
    for number, many in enumerate([10**9, 30], 1):
        monkeypatch.setattr(load, "_BATCH_ROWS", many)
        monkeypatch.setattr(load, "_SORTED_KEYS", 100)
        create_table(connection)
        create_index(connection, design=design)
        before = triggers(connection)
        with database.begin() as transaction:
            assert load_rows(transaction, "article", ["fingerprint"], rows) == len(rows)
        assert (triggers(connection) == before) == (many > 30)
        assert [state[1] for state in triggers(connection)] == [state[1] for state in before]
        found.append(list(all_keys(connection, number).values()))
        assert missing_keys(connection) == []
        connection.execute("DROP TABLE article")
    create_table(connection)
    with database.begin() as transaction:
        load_rows(transaction, "article", ["fingerprint"], rows)
    create_index(connection, design=design)
    found.append(list(all_keys(connection, 3).values()))
    assert found[0] == found[1] == found[2]
    assert len(found[0]) == Design(*design).tables


def test_many_rows_switch_the_trigger_off_and_few_do_not(articles, add, database, monkeypatch):
    before = triggers(articles)
    for count, direct in ((9_999, False), (10_000, True)):
        assert add(range(count)) == count
        assert (triggers(articles) != before) == direct
    monkeypatch.setattr(load, "_BATCH_SIZE", 1000)
    for size, direct in ((99, False), (100, True)):
        before = triggers(articles)
        with database.begin() as transaction:
            load_rows(transaction, "article", ["body", "fingerprint"], (("x" * size, f) for f in range(10)))
        assert (triggers(articles) != before) == direct
    assert missing_keys(articles) == []
    assert [state[1] for state in triggers(articles)] == [state[1] for state in before]


@directly
def test_keys_that_are_sorted_together_are_written_once(articles, database, way, monkeypatch):
    monkeypatch.setattr(load, "_SORTED_KEYS", 1000)
    with database.begin() as transaction:
        load_rows(transaction, "article", ["fingerprint"], [(f,) for f in range(50)] * 2)
    assert articles.execute("SELECT count(key) FROM simsql.keys_1_0").fetchone() == (1 + 50,)


@directly
def test_each_index_of_a_table_gets_its_keys(articles, database, way):
    articles.execute("ALTER TABLE article ADD COLUMN title bigint, ADD COLUMN other bigint DEFAULT 77")
    for column in ("title", "other"):
        articles.execute("SELECT simsql.create_index('article', %s)", [column])
    rows = [(1000 + f, f"text {f}", f) for f in range(70)]
    with database.begin() as transaction:
        assert load_rows(transaction, "article", ["title", "body", "fingerprint"], rows) == 70
    assert missing_keys(articles) == []
    found = "SELECT simsql.near('article', %s, 0, %s)"
    for number, column in ((1069, "title"), (69, "fingerprint"), (77, "other")):
        assert len(articles.execute(found, [number, column]).fetchall()) == 1


@directly
def test_where_writing_keys_would_be_wrong_triggers_do(articles, database, way):
    articles.execute(
        "CREATE FUNCTION change() RETURNS trigger LANGUAGE plpgsql AS"
        " 'BEGIN NEW.fingerprint := 100 + NEW.fingerprint; RETURN NEW; END';"
        "CREATE FUNCTION add() RETURNS trigger LANGUAGE plpgsql AS"
        " 'BEGIN IF NOT EXISTS (SELECT FROM article WHERE fingerprint = 1055) THEN"
        " INSERT INTO article (fingerprint) VALUES (1055); END IF; RETURN NULL; END'"
    )
    before = triggers(articles)
    for number, (create, drop) in enumerate(
        [
            # What is stored is not what was sent, or there is more of it.
            ("CREATE TRIGGER t BEFORE INSERT ON article FOR EACH ROW EXECUTE FUNCTION change()", "TRIGGER t ON"),
            ("CREATE TRIGGER t AFTER INSERT ON article EXECUTE FUNCTION add()", "TRIGGER t ON"),
            (
                "CREATE CONSTRAINT TRIGGER t AFTER INSERT ON article DEFERRABLE INITIALLY DEFERRED"
                " FOR EACH ROW EXECUTE FUNCTION add()",
                "TRIGGER t ON",
            ),
            # PostgreSQL switches no trigger of a table that has checks waiting.
            ("ALTER TABLE article ADD CONSTRAINT t UNIQUE (id, body) DEFERRABLE INITIALLY DEFERRED", None),
            ("ALTER TABLE article ADD CONSTRAINT t FOREIGN KEY (id) REFERENCES article (id) DEFERRABLE", None),
        ]
    ):
        articles.execute(create)
        with database.begin() as transaction:
            for first in (1000 * number, 1000 * number + 40):
                load_rows(transaction, "article", ["fingerprint"], [(first + f,) for f in range(40)])
        assert missing_keys(articles) == []
        assert triggers(articles) == before
        articles.execute(f"DROP {drop} article" if drop else "ALTER TABLE article DROP CONSTRAINT t")
        articles.execute("DELETE FROM article WHERE fingerprint = 1055")
    with database.begin() as transaction:
        load_rows(transaction, "article", ["fingerprint"], [(7000 + f,) for f in range(40)])
    assert triggers(articles) != before


@directly
def test_a_trigger_that_concerns_no_insert_is_no_obstacle(articles, add, way):
    articles.execute(
        "CREATE FUNCTION stop() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE ''stop''; END';"
        "CREATE TRIGGER u BEFORE UPDATE ON article FOR EACH ROW EXECUTE FUNCTION stop();"
        "CREATE TRIGGER d BEFORE DELETE ON article FOR EACH ROW EXECUTE FUNCTION stop();"
        "CREATE TRIGGER i BEFORE INSERT ON article FOR EACH ROW EXECUTE FUNCTION stop();"
        "ALTER TABLE article DISABLE TRIGGER i"
    )
    before = triggers(articles)
    assert add(range(40)) == 40
    assert triggers(articles) != before
    assert missing_keys(articles) == []


@directly
def test_where_rows_are_not_counted_triggers_add_keys(articles, database, way):
    before = triggers(articles)
    with database.begin() as transaction:
        transaction.execute(text("SET LOCAL track_counts = off"))
        load_rows(transaction, "article", ["fingerprint"], [(f,) for f in range(40)])
    assert triggers(articles) == before
    assert missing_keys(articles) == []


@directly
def test_a_cursor_on_the_table_is_no_obstacle(articles, database, way):
    with database.begin() as transaction:
        transaction.execute(text("DECLARE c CURSOR FOR SELECT * FROM article"))
        load_rows(transaction, "article", ["fingerprint"], [(f,) for f in range(40)])
    assert missing_keys(articles) == []


@directly
def test_an_old_snapshot_loads_too(connection, database, way):
    create_table(connection)
    with database.connect().execution_options(isolation_level="REPEATABLE READ") as transaction:
        transaction.execute(text("SELECT 1"))
        create_index(connection)
        assert load_rows(transaction, "article", ["fingerprint"], [(f,) for f in range(40)]) == 40
        transaction.commit()
        before = triggers(connection)
        assert load_rows(transaction, "article", ["fingerprint"], [(f,) for f in range(40, 80)]) == 40
        transaction.commit()
    assert triggers(connection) == before
    assert missing_keys(connection) == []


@directly
def test_during_a_direct_load_others_read_and_no_other_writes(articles, database, way, connect):
    with database.connect() as transaction:
        load_rows(transaction, "article", ["fingerprint"], [(f,) for f in range(100, 140)])
        assert near(articles, 1, 0) == [(1, 0)]
        articles.execute("SET lock_timeout = '50ms'")
        with pytest.raises(errors.LockNotAvailable):
            articles.execute("INSERT INTO article (fingerprint) VALUES (9)")
        transaction.commit()
    articles.execute("INSERT INTO article (fingerprint) VALUES (9)")
    assert missing_keys(articles) == []


@directly
def test_two_direct_loads_take_turns(articles, add, database, way, connect):
    from threading import Thread

    def second():
        add(range(200, 240))

    thread = Thread(target=second)
    with database.connect() as transaction:
        load_rows(transaction, "article", ["fingerprint"], [(f,) for f in range(100, 140)])
        thread.start()
        waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'article'::regclass"
        while articles.execute(waiting).fetchone() == (0,):
            pass
        transaction.commit()
    thread.join()
    assert missing_keys(articles) == []
    assert articles.execute("SELECT count(*) FROM article").fetchone() == (81,)


# Rights


@pytest.fixture
def as_role(server, database_url, new_role, connection):
    """An engine for a role that may log in, and its name."""
    engines = []

    def connect_as():
        role = new_role()
        connection.execute(f"GRANT USAGE, CREATE ON SCHEMA public TO {role}")
        engines.append(create_engine(open_engine(database_url).url.set(username=role)))
        return engines[-1], role

    yield connect_as
    for engine in engines:
        engine.dispose()


@directly
@pytest.mark.parametrize("owns", ["nothing", "the table", "both"])
def test_who_may_load_how(articles, as_role, way, owns):
    engine, role = as_role()
    if owns == "nothing":
        articles.execute(f"GRANT INSERT ON article TO {role}")
    else:
        articles.execute(f"ALTER TABLE article OWNER TO {role}")
    if owns == "both":
        allow_indexes(articles, role)
        articles.execute("SELECT simsql.drop_index('article')")
        articles.execute(f"SET ROLE {role}; SELECT simsql.create_index('article', 'fingerprint'); RESET ROLE")
    before = triggers(articles)
    with engine.begin() as transaction:
        assert load_rows(transaction, "article", ["fingerprint"], [(f,) for f in range(40)]) == 40
    assert (triggers(articles) != before) == (owns == "both")
    assert missing_keys(articles) == []


@directly
def test_what_copy_refuses_is_refused(articles, as_role, way):
    engine, role = as_role()
    articles.execute(f"GRANT SELECT ON article TO {role}")
    with engine.connect() as transaction, refused(errors.InsufficientPrivilege):
        load_rows(transaction, "article", ["fingerprint"], [(8,)])
    articles.execute(f"GRANT INSERT ON article TO {role}; ALTER TABLE article ENABLE ROW LEVEL SECURITY")
    said = f"row-level security of public.article applies to role {role}, .* load as a role with BYPASSRLS"
    with engine.connect() as transaction, pytest.raises(SimsqlError, match=said):
        load_rows(transaction, "article", ["fingerprint"], [(8,)])


# Where fingerprints come from


TEXTS = ["The quick brown fox", None, "?!", "jumps over the lazy dog", ""] + [
    f"text number {n}" for n in range(60)
]


@directly
@pytest.mark.parametrize("recipe", [Recipe(), Recipe(tokens="characters", shingles=(3,))], ids=lambda r: r.id)
def test_texts_are_fingerprinted_by_the_recipe_of_the_index(connection, database, way, recipe):
    create_table(connection)
    with database.begin() as transaction:
        index_column(transaction, "article", "fingerprint", recipe=recipe)
        rows = ([number, body] for number, body in enumerate(TEXTS))
        assert load_rows(transaction, "article", ["id", "body"], rows, text_column="body") == len(TEXTS)
    expected = [
        (number, body, None if not body or (f := simhash(body, recipe)) is None else to_bigint(f))
        for number, body in enumerate(TEXTS)
    ]
    assert connection.execute("SELECT * FROM article ORDER BY id").fetchall() == expected
    assert missing_keys(connection) == []


def test_without_an_index_the_column_is_named(connection, database):
    create_table(connection)
    with database.begin() as transaction:
        with pytest.raises(UsageError, match="article has no simhash index: name the column"):
            load_rows(transaction, "article", ["body"], [["a b c"]], text_column="body")
        assert (
            load_rows(transaction, "article", ["body"], [["a b c"]], text_column="body", column="fingerprint") == 1
        )
    assert connection.execute("SELECT fingerprint FROM article").fetchone() == (to_bigint(simhash("a b c")),)


def test_of_two_indexes_the_column_says_which(articles, database):
    articles.execute("ALTER TABLE article ADD COLUMN title bigint")
    articles.execute("SELECT simsql.create_index('article', 'title', recipe => 'words12-log-1')")
    with database.begin() as transaction:
        with pytest.raises(UsageError, match=r"several simhash indexes \(fingerprint, title\)"):
            load_rows(transaction, "article", ["body"], [["a b c"]], text_column="body")
        load_rows(transaction, "article", ["body"], [["a b c"]], text_column="body", column="title")
    assert articles.execute("SELECT fingerprint, title FROM article WHERE body = 'a b c'").fetchone() == (
        None,
        to_bigint(simhash("a b c")),
    )


@both_ways
def test_fingerprints_of_an_array(articles, database, way):
    values = np.ma.MaskedArray(
        np.array([from_bigint(f) for f in EXTREMES] * 10, dtype=np.uint64), mask=[False] * 69 + [True]
    )
    with database.begin() as transaction:
        rows = ([str(number)] for number in range(70))
        assert load_rows(transaction, "article", ["body"], rows, fingerprints=values) == 70
    found = articles.execute("SELECT body, fingerprint FROM article WHERE body IS NOT NULL ORDER BY id").fetchall()
    assert found == [(str(n), f if n < 69 else None) for n, f in enumerate(EXTREMES * 10)]
    assert missing_keys(articles) == []
    with database.begin() as transaction:
        load_rows(transaction, "article", ["body"], [["x"]], fingerprints=simhash_many(["x y z"]))
    assert near(articles, to_bigint(simhash("x y z")), 0) != []


@directly
def test_a_fingerprint_for_each_row(articles, database, way):
    values = np.arange(70, dtype=np.uint64)
    with database.begin() as transaction:
        for count in (0, 69, 71):
            with pytest.raises(ValueError, match="70 fingerprints"):
                load_rows(transaction, "article", ["body"], [[None]] * count, fingerprints=values)
        assert transaction.execute(text("SELECT count(*) FROM article")).scalar_one() == 1


def test_arguments_that_do_not_fit(articles, database):
    values = np.zeros(1, dtype=np.uint64)
    with database.begin() as transaction:
        for error, options, said in (
            (ValueError, {"text_column": "body", "fingerprints": values}, "exclude each other"),
            (ValueError, {"text_column": "title"}, "text_column must be one of body, not title"),
            (TypeError, {"fingerprints": np.zeros(1)}, "array of uint64 or int64, not of float64"),
            (ValueError, {"fingerprints": np.zeros((1, 2), dtype=np.uint64)}, "one dimension, not of 2"),
        ):
            with pytest.raises(error, match=said):
                load_rows(transaction, "article", ["body"], [["a"]], **options)


# Transactions


@pytest.mark.pooled
@directly
def test_loading_begins_a_transaction_to_which_the_rows_belong(articles, database, way):
    found = text("SELECT count(*) FROM simsql.near('article', 8, 0)")
    with database.connect() as transaction:
        for end, committed in ((transaction.rollback, []), (transaction.commit, [(8, 0)])):
            load_rows(transaction, "article", ["fingerprint"], [(8,)])
            assert transaction.in_transaction()
            assert transaction.execute(found).scalar_one() == 1
            assert near(articles, 8, 0) == []
            end()
            assert near(articles, 8, 0) == committed


@both_ways
def test_without_a_transaction_a_load_is_one(articles, database, way):
    rows = [(f,) for f in range(100, 170)]
    with database.connect().execution_options(isolation_level="AUTOCOMMIT") as autocommit:
        with refused(errors.NumericValueOutOfRange):
            load_rows(autocommit, "article", ["fingerprint"], [*rows, (2**63,)])
        assert articles.execute("SELECT count(*) FROM article").fetchone() == (1,)
        load_rows(autocommit, "article", ["fingerprint"], rows)
    assert articles.execute("SELECT count(*) FROM article").fetchone() == (71,)
    assert missing_keys(articles) == []


def test_nothing_to_load_is_no_error(articles, database):
    with database.begin() as transaction:
        assert load_rows(transaction, "article", ["fingerprint"], iter([])) == 0
        assert load_rows(transaction, "article", ["body"], iter([]), text_column="body") == 0


def test_another_driver_is_refused(articles):
    engine = create_engine("sqlite://")
    with engine.connect() as connection, pytest.raises(UsageError, match="COPY needs psycopg"):
        load_rows(connection, "article", ["fingerprint"], [(8,)])


# Values and names


def test_texts_arrive_as_they_are(articles, database):
    texts = ["", "\\N", "tab\there", "line\nbreak", "back\\slash", "\\.", "'\"", "naïve 日本", None]
    with database.begin() as transaction:
        load_rows(transaction, "article", ("body",), [(value,) for value in texts])
    found = articles.execute("SELECT body FROM article WHERE id > 1 ORDER BY id").fetchall()
    assert [value for (value,) in found] == texts


@directly
def test_any_name_will_do(connection, database, way):
    for name in ('say "when"', "A.b", "100% %s; --", "日" * 21):
        quoted = '"' + name.replace('"', '""') + '"'
        table = f"{quoted}.{quoted}"
        connection.execute(f"CREATE SCHEMA {quoted}".encode())
        connection.execute(f"CREATE TABLE {table} ({quoted} bigint)".encode())
        connection.execute("SELECT simsql.create_index(%s::regclass, %s)", [table, name])
        before = triggers(connection)
        with database.begin() as transaction:
            assert load_rows(transaction, table, [name], [(-1,), (None,)]) == 2
            assert load_rows(transaction, table, [], [[]], fingerprints=np.ones(1, dtype=np.uint64)) == 1
        assert triggers(connection) != before
        assert connection.execute(f"SELECT * FROM {table}".encode()).fetchall() == [(-1,), (None,), (1,)]
        assert missing_keys(connection, table) == []


@directly
def test_tables_of_other_kinds(connection, database, way):
    for statement in (
        "CREATE TABLE parts (fingerprint bigint, body text) PARTITION BY HASH (fingerprint)",
        "CREATE TABLE part PARTITION OF parts FOR VALUES WITH (modulus 1, remainder 0)",
        "CREATE UNLOGGED TABLE loose (body text, id integer GENERATED BY DEFAULT AS IDENTITY, fingerprint bigint)",
        "SELECT simsql.create_index('loose', 'fingerprint')",
        "CREATE TABLE plain (body text, fingerprint numeric)",
    ):
        connection.execute(statement)
    rows = [("a b c", None), ("d e f", 5)]
    for table in ("parts", "loose", "plain"):
        with database.begin() as transaction:
            assert load_rows(transaction, table, ["body", "fingerprint"], rows) == 2
        assert connection.execute(f"SELECT body, fingerprint FROM {table} ORDER BY 1").fetchall() == rows
    assert missing_keys(connection, "loose") == []


# Failures


def breaking_off():
    yield from [(f,) for f in range(100, 170)]
    raise KeyError("the source broke off")


@both_ways
def test_a_failure_adds_no_row(articles, database, way):
    before = triggers(articles)
    many = [(f,) for f in range(100, 170)]
    for rows, error in (
        ([(8,), ("no number",)], errors.InvalidTextRepresentation),
        ([(8,), (2**63,)], errors.NumericValueOutOfRange),
        ([(8,), (8, 9)], errors.BadCopyFileFormat),
        ([*many, ("no number",)], errors.InvalidTextRepresentation),
        (breaking_off(), KeyError),
    ):
        with database.connect() as transaction:
            transaction.execute(text("INSERT INTO article (fingerprint) VALUES (3)"))
            with refused(error):
                load_rows(transaction, "article", ["fingerprint"], rows)
            # The transaction goes on where the load began.
            assert load_rows(transaction, "article", ["fingerprint"], [(9,)]) == 1
            transaction.commit()
    assert articles.execute("SELECT count(*) FROM article WHERE fingerprint > 3").fetchone() == (5,)
    assert [state[:2] for state in triggers(articles)] == [state[:2] for state in before]
    assert missing_keys(articles) == []


def test_what_cannot_be_loaded_into(articles, database):
    for table, columns, error in (
        ("missing", ["fingerprint"], errors.UndefinedTable),
        ("article", ["missing"], errors.UndefinedColumn),
        ("", ["fingerprint"], errors.InvalidName),
    ):
        with database.connect() as transaction, refused(error):
            load_rows(transaction, table, columns, [(8,)])


@directly
def test_a_fingerprint_in_a_row_is_a_bigint(articles, database, way):
    with database.begin() as transaction:
        for value in ("8", 8.0, True):
            with refused(TypeError, errors.InvalidTextRepresentation, match="bigint"):
                load_rows(transaction, "article", ["fingerprint"], [(7,), (value,)])
        load_rows(transaction, "article", ["fingerprint"], [(np.int64(6),)])
        assert transaction.execute(text("SELECT count(*) FROM article")).scalar_one() == 2
    assert missing_keys(articles) == []


def test_a_row_of_another_length_is_named(articles, database):
    with database.connect() as connection:
        for short in ([], ["text", 5]):
            with pytest.raises(ValueError, match=f"row 2 has {len(short)} values for 1 columns"):
                load_rows(connection, "article", ["body"], [("text",), short], text_column="body")


@directly
def test_a_renamed_table_is_loaded_through_triggers(articles, database, way):
    articles.execute("ALTER TABLE article RENAME TO post")
    before = triggers(articles)
    with database.begin() as transaction:
        load_rows(transaction, "post", ["fingerprint"], [(f,) for f in range(40)])
    assert triggers(articles) == before
    articles.execute("ALTER TABLE post RENAME TO article")
    assert missing_keys(articles) == []


@directly
def test_a_renamed_column_takes_nothing(articles, database, way):
    articles.execute("ALTER TABLE article RENAME COLUMN fingerprint TO f")
    with (
        database.connect() as transaction,
        refused(errors.ObjectNotInPrerequisiteState),
    ):
        load_rows(transaction, "article", ["f"], [(8,)])


@directly
def test_rows_beside_those_of_the_load_end_it(articles, database, way):
    """Those of the source itself, and of a function in a default: their keys would be missing."""
    articles.execute(
        "CREATE FUNCTION add() RETURNS text LANGUAGE plpgsql AS"
        " 'BEGIN INSERT INTO article (body, fingerprint) VALUES (''x'', 2000); RETURN NULL; END'"
    )

    def rows(transaction):
        for f in range(40):
            if f == 20:
                transaction.execute(text("INSERT INTO article (body, fingerprint) VALUES ('x', 1000)"))
            yield (f,)

    with database.connect() as transaction:
        transaction.execute(text("INSERT INTO article (fingerprint) VALUES (5), (6)"))
        with pytest.raises(SimsqlError, match=r"rows were inserted into .*article.* during"):
            load_rows(transaction, "article", ["fingerprint"], rows(transaction))
        transaction.execute(text("ALTER TABLE article ALTER body SET DEFAULT add()"))
        with pytest.raises(SimsqlError, match="during the load"):
            load_rows(transaction, "article", ["fingerprint"], [(f,) for f in range(40)])
        assert load_rows(transaction, "article", ["body", "fingerprint"], [("", f) for f in range(40)]) == 40
        transaction.commit()
    assert articles.execute("SELECT count(*) FROM article").fetchone() == (43,)
    assert missing_keys(articles) == []
