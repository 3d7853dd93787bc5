"""near_wide finds all words that brute force finds, whatever many rows share, and reads no more than it has to."""

import json
import random

import oracle
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from oracle import distance, flip
from psycopg import errors
from sessions import blocked

COLUMNS = ("a", 'b "c"', "d", "e")
# Half of the words are shared by many rows.
words = st.sampled_from([0, 0, 0, -1]) | st.builds(
    flip, st.sampled_from(oracle.EXTREMES), st.sets(st.integers(0, 63), max_size=9)
)
rows_of_words = st.lists(st.tuples(*[words | words | words | st.none()] * 4), min_size=1, max_size=30)


def create_images(connection, storage, scope=()):
    """The table `image`, empty, with a tenant and an index on each of four words."""
    connection.execute('CREATE TABLE image (tenant integer, a bigint, "b ""c""" bigint, d bigint, e bigint)')
    for column in COLUMNS:
        connection.execute(
            "SELECT simsql.create_index('image', %s, scope => %s, storage => %s)", [column, list(scope), storage]
        )


def insert(connection, rows, tenant=1):
    with connection.cursor() as cursor:
        cursor.executemany("INSERT INTO image VALUES (%s, %s, %s, %s, %s)", [(tenant, *row) for row in rows])


def near_wide(connection, query, within, columns=COLUMNS, scope=None):
    found = connection.execute(
        "SELECT fingerprint, distance FROM simsql.near_wide('image', %s::bigint[], %s, %s, %s::jsonb)",
        [query and list(query), within, list(columns), scope and json.dumps(scope)],
    )
    return [(tuple(fingerprint), bits) for fingerprint, bits in found]


def expected(rows, query, within):
    """(words, distance), once each, nearest first."""
    whole = {row for row in rows if None not in row} if None not in query else ()
    found = [(sum(map(distance, row, query)), row) for row in whole]
    return [(row, bits) for bits, row in sorted(found) if bits <= within]


@pytest.mark.parametrize(("storage", "scope"), [("tables", ("tenant",)), ("expression", ())])
def test_it_finds_what_brute_force_finds(connection, storage, scope):
    create_images(connection, storage, scope)
    compared = 0

    @settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
    @given(rows=rows_of_words, others=rows_of_words, data=st.data())
    def compare(rows, others, data):
        nonlocal compared
        with connection.transaction(force_rollback=True):
            insert(connection, rows)
            if scope:
                insert(connection, others, 2)
                insert(connection, others, None)
            for _ in range(4):
                places = data.draw(st.permutations(range(4)))[: data.draw(st.integers(1, 4))]
                query = data.draw(st.sampled_from(rows) | st.tuples(*[words] * 4))
                wanted = [tuple(row[place] for place in places) for row in (*rows, query)]
                within = data.draw(st.integers(0, 64 * len(places)) | st.integers(0, 40))
                of_scope = {"tenant": 1} if scope else None
                within = min(within, 64 * len(places))
                found = near_wide(connection, wanted[-1], within, [COLUMNS[place] for place in places], of_scope)
                assert found == expected(wanted[:-1], wanted[-1], within)
                compared += 1

    compare()
    assert compared >= 80


@pytest.mark.every_version
def test_words_that_many_rows_share_are_left_out_or_read_once(connection, storage):
    """Half of the rows share two words, and an eighth all four: 2,000 rows are many."""
    chance = random.Random(5)
    create_images(connection, storage)
    shared = [4 if number % 8 == 0 else 2 if number % 2 == 0 else 0 for number in range(5_000)]
    rows = [
        (0,) * count + tuple(oracle.to_bigint(chance.getrandbits(64)) for _ in range(4 - count))
        for count in shared
    ]
    with connection.cursor().copy("COPY image FROM STDIN") as copy:
        for row in rows:
            copy.write_row((1, *row))
    connection.execute("VACUUM ANALYZE image")
    for number, within, columns, most in (
        (1, 31, 4, 1),  # nothing is shared: the match is the only row that is read
        (2, 31, 4, 1),  # the other two words are searched at 15 bits
        (2, 8, 4, 1),
        (0, 31, 4, 5_000 // 8),  # those rows match
        (0, 20, 2, 5_000),  # both words are shared: the table is read once
        (1, 80, 4, 5_000),
    ):
        query = tuple(flip(word, chance.sample(range(64), 2)) for word in rows[number][:columns])
        with connection.transaction():
            before = rows_read(connection)
            found = near_wide(connection, query, within, COLUMNS[:columns])
            read = rows_read(connection) - before
        assert found == expected([row[:columns] for row in rows], query, within)
        assert found
        # With the other storage, searches for a word read this small table, too.
        assert storage == "expression" or read <= most


def test_btrees_on_all_words_are_read_instead_of_wide_rows(connection):
    connection.execute("CREATE TABLE image (a bigint, d bigint, body text)")
    connection.execute("CREATE INDEX ON image (a, d); CREATE INDEX ON image (d, a)")
    connection.execute(
        "INSERT INTO image SELECT CASE WHEN n % 2 = 0 THEN 0 ELSE hashint8extended(n, 1) END,"
        " hashint8extended(n, 2), repeat('x', 1000) FROM generate_series(1, 5000) AS n"
    )
    connection.execute("VACUUM ANALYZE image")
    connection.execute("SELECT simsql.create_index('image', 'a'), simsql.create_index('image', 'd')")
    # They serve as the B-trees of the words.
    btrees = connection.execute("SELECT FROM pg_index WHERE indrelid = 'image'::regclass")
    assert len(btrees.fetchall()) == 2
    rows = connection.execute("SELECT a, d FROM image").fetchall()
    with connection.transaction():
        before = rows_read(connection)
        assert near_wide(connection, rows[1], 20, ("a", "d")) == expected(rows, rows[1], 20)
        assert rows_read(connection) - before <= 1  # for its second word


def rows_read(connection):
    """How many rows of the table this transaction has read, in its heap."""
    (count,) = connection.execute(
        "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables WHERE relname = 'image'"
    ).fetchone()
    return count


def test_null_words_match_nothing(connection):
    create_images(connection, "tables")
    insert(connection, [(0, 0, 0, 0), (0, 0, 0, None)])
    assert near_wide(connection, (0, 0, 0, 1), 256) == [((0, 0, 0, 0), 1)]
    assert near_wide(connection, (0, 0, 0, None), 256) == []
    assert near_wide(connection, None, 256) == []
    # The first three words are a fingerprint of their own.
    assert near_wide(connection, (0, 0, 1), 1, COLUMNS[:3]) == [((0, 0, 0), 1)]


ERRORS = [
    ("'{1,2}', 3, '{a}'", errors.InvalidParameterValue, "the fingerprint has 2 words, but there are 1 columns"),
    ("'{}', 3, '{}'", errors.InvalidParameterValue, "the fingerprint has 0 words, but there are 0 columns"),
    ("'{1}', 3, NULL", errors.InvalidParameterValue, "the fingerprint has 1 words, but there are 0 columns"),
    ("'{1,2}', 129, '{a,d}'", errors.InvalidParameterValue, "between 0 and 128, not 129"),
    ("'{1,2}', -1, '{a,d}'", errors.InvalidParameterValue, "between 0 and 128, not -1"),
    ("'{1,2}', NULL, '{a,d}'", errors.InvalidParameterValue, "between 0 and 128, not NULL"),
    ("'{1,2}', 3, '{a,tenant}'", errors.UndefinedObject, "image has no simhash index on column tenant"),
    ("'{1,2}', 3, '{a,d}', '{\"tenant\": 1}'", errors.InvalidParameterValue, r"image\(a\) has no scope"),
    ("'{1,2}', 0, '{a,e}'", errors.InvalidParameterValue, r"image\(e\) needs a scope"),
]


def test_errors_say_what_is_wrong(connection):
    connection.execute("CREATE TABLE image (tenant integer, a bigint, d bigint, e bigint)")
    for column, scope in (("a", []), ("d", []), ("e", ["tenant"])):
        connection.execute("SELECT simsql.create_index('image', %s, scope => %s)", [column, scope])
    for arguments, error, message in ERRORS:
        with pytest.raises(error, match=message):
            connection.execute(f"SELECT * FROM simsql.near_wide('image', {arguments})")


def test_the_index_of_every_word_has_to_be_sound(connection):
    create_images(connection, "tables")
    connection.execute("ALTER TABLE image DISABLE TRIGGER simsql_4_insert")
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match="disabled or dropped"):
        near_wide(connection, (1, 2, 3, 4), 0)
    assert near_wide(connection, (1, 2, 3), 0, COLUMNS[:3]) == []


def test_claims_of_each_word_meet(connection, connect):
    """As the page says: claim the words in their order, then search, then insert."""
    create_images(connection, "tables")
    query, other = (0, 0), (flip(0, range(10)), flip(0, range(30, 40)))

    def post(session, words):
        with session.transaction():
            for place, column in enumerate(("a", "d")):
                session.execute(
                    "SELECT FROM simsql.claim('image', %s::bigint, %s, %s)",
                    [words[place], (20 - place) // 2, column],
                )
            found = near_wide(session, words, 20, ("a", "d"))
            if not found:
                session.execute("INSERT INTO image (a, d) VALUES (%s, %s)", words)
            return found

    with connection.transaction():
        assert post(connection, query) == []
        with blocked(connect, lambda session: post(session, other)) as second:
            connection.execute("COMMIT; BEGIN")
        assert second.result() == [(query, 20)]
