"""Of transactions that claim near fingerprints and then insert, exactly one finds nothing, whatever the order."""

import random
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from articles import create_articles, create_index, create_table, fingerprints_of
from claims import CENTRE, HELD, check_waiting_claim, claim, held, post
from oracle import clustered, flip
from oracle import near as expected_near
from psycopg import errors
from sessions import ONE_SNAPSHOT, blocked

from simsql.database.connect import open_engine
from simsql.database.install import install_schema

pytestmark = pytest.mark.oldest_version


def agreeing_in(block, within):
    """A fingerprint that differs from CENTRE in one bit of each of `within` + 1 blocks but this one."""
    blocks = within + 1
    return flip(CENTRE, (63 - number * 64 // blocks for number in range(blocks) if number != block))


def fill_articles(connection):
    create_articles(connection)


def test_a_claim_finds_the_nearest_that_a_search_finds(connection, storage):
    fingerprints = clustered(150, seed=41)
    create_articles(connection, [*fingerprints, None], storage=storage)
    chance = random.Random(42)
    for within in (0, 1, 3, 4, 7, 12, 40, 63, 64):
        for centre in (0, -1, *chance.sample(fingerprints, 4)):
            query = flip(centre, chance.sample(range(64), chance.randrange(9)))
            assert claim(connection, query, within) == expected_near(fingerprints, query, within)[:1]
    assert claim(connection, fingerprints[0]) == [(fingerprints[0], 0)]
    assert claim(connection, None) == []
    locks = connection.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'").fetchone()
    assert locks == (0,)


def locks(connection, fingerprint, of_index, within):
    statement = "SELECT simsql._claim_locks('key', 0, %s::bigint, %s, %s)"
    (found,) = connection.execute(statement, [fingerprint, of_index, within]).fetchone()
    return found


def test_a_claim_locks_one_block_more_than_bits_may_differ(articles):
    for within in range(64):
        found = locks(articles, CENTRE, within, within)
        assert len(found) == len(set(found)) == within + 1
    # Not even the opposite is far enough.
    assert locks(articles, CENTRE, 64, 64) == locks(articles, ~CENTRE, 64, 64)
    assert locks(articles, None, 3, 3) is None
    assert not set(locks(articles, CENTRE, 3, 3)) & set(locks(articles, ~CENTRE, 3, 3))


def test_claims_have_a_lock_in_common_wherever_the_nearer_would_find_the_other(articles):
    chance = random.Random(7)
    pairs = []
    for of_index in (0, 1, 3, 4, 7, 10, 31, 63, 64):
        for one in range(65):
            other = chance.randrange(one, 65)
            centre = flip(0, chance.sample(range(64), 32))
            differing = chance.sample(range(64), one)
            if one < 64 and chance.random() < 0.5:  # as evenly as can be
                differing = [number * 64 // (one or 1) for number in range(one)]
            pairs.append((centre, flip(centre, differing), of_index, one, other))
    missed = articles.execute(
        "SELECT p.* FROM unnest(%s::bigint[], %s::bigint[], %s::integer[], %s::integer[], %s::integer[])"
        " AS p (a, b, of_index, one, other)"
        " WHERE NOT simsql._claim_locks('key', 0, a, of_index, one)"
        " && simsql._claim_locks('key', 0, b, of_index, other)",
        [list(values) for values in zip(*pairs, strict=True)],
    ).fetchall()
    assert missed == []


@pytest.mark.parametrize(("of_index", "within"), [(3, 3), (3, 1), (3, 4), (0, 0), (3, 63), (64, 64)])
def test_claims_that_share_one_block_wait_for_one_another(connection, connect, of_index, within):
    create_table(connection)
    connection.execute("SELECT simsql.create_index('article', 'fingerprint', %s, 4)", [of_index])
    for block in range(within + 1) if within < 7 else (0, 32, within):
        posted = agreeing_in(block, within) if within < 64 else ~CENTRE
        connection.execute("DELETE FROM article")
        connection.execute("BEGIN")
        assert post(connection, CENTRE, within) == []
        with blocked(connect, lambda other, posted=posted: post(other, posted, within)) as second:
            connection.execute("COMMIT")
        assert second.result() == [(CENTRE, within)]
        assert fingerprints_of(connection) == [CENTRE]


def test_a_claim_that_is_rolled_back_leaves_the_next_one_free(articles, connect):
    articles.execute("BEGIN")
    assert post(articles, CENTRE) == []
    with blocked(connect, lambda other: post(other, agreeing_in(0, 3))) as second:
        articles.execute("ROLLBACK")
    assert second.result() == []
    assert fingerprints_of(articles) == [agreeing_in(0, 3)]


def test_claims_of_what_is_far_and_of_other_indexes_do_not_wait(articles, connect):
    articles.execute("CREATE TABLE other (fingerprint bigint)")
    create_index(articles, "other")
    other = connect()
    other.execute("SET lock_timeout = '1ms'")
    with articles.transaction():
        assert post(articles, CENTRE) == []
        assert post(other, ~CENTRE) == []
        assert other.execute("SELECT * FROM simsql.claim('other', %s)", [CENTRE]).fetchall() == []
        with pytest.raises(errors.LockNotAvailable):
            post(other, CENTRE)


def test_claims_wait_within_a_scope_however_it_is_written(connection, connect, storage):
    connection.execute("CREATE TABLE article (lang text, at timestamptz, fingerprint bigint)")
    create = "SELECT simsql.create_index('article', 'fingerprint', scope => ARRAY['at', 'lang'], storage => %s)"
    connection.execute(create, [storage])

    def post_in(session, scope, fingerprint=CENTRE):
        with session.transaction():
            found = session.execute(
                "SELECT fingerprint FROM simsql.claim('article', %s, scope => %s)", [fingerprint, scope]
            ).fetchall()
            if not found:
                session.execute(
                    "INSERT INTO article SELECT s.lang, s.at, %s"
                    " FROM jsonb_to_record(%s) AS s (lang text, at timestamptz)",
                    [fingerprint, scope],
                )
            return found

    other = connect()
    other.execute("SET timezone = 'Asia/Tokyo'")
    scope = '{"lang": "en", "at": "2025-01-01 00:00:00+00"}'
    connection.execute("BEGIN")
    assert post_in(connection, scope) == []
    assert post_in(other, scope.replace("en", "de")) == []
    assert post_in(other, scope.replace("-01-01", "-01-02")) == []
    the_same = '{"at": "2025-01-01T09:00:00+09", "lang": "en"}'
    with blocked(connect, lambda second: post_in(second, the_same, agreeing_in(2, 3))) as second:
        connection.execute("COMMIT")
    assert second.result() == [(CENTRE,)]
    with pytest.raises(errors.InvalidParameterValue, match="needs a scope"):
        claim(connection, CENTRE)


@pytest.mark.every_version
def test_values_that_a_collation_takes_for_equal_are_one_scope(connection, connect):
    try:
        connection.execute(
            "CREATE COLLATION any_case (provider = icu, locale = 'und-u-ks-level2', deterministic = false)"
        )
    except errors.FeatureNotSupported:
        pytest.skip("a server without ICU")
    connection.execute("CREATE TABLE article (lang text COLLATE any_case, fingerprint bigint)")
    connection.execute("SELECT simsql.create_index('article', 'fingerprint', scope => ARRAY['lang'])")
    claimed = "SELECT count(*) FROM simsql.claim('article', 1, scope => %s)"
    other = connect()
    other.execute("SET lock_timeout = '1ms'")
    with connection.transaction():
        assert connection.execute(claimed, ['{"lang": "EN"}']).fetchone() == (0,)
        assert other.execute(claimed, ['{"lang": "de"}']).fetchone() == (0,)
        with pytest.raises(errors.LockNotAvailable):
            other.execute(claimed, ['{"lang": "en"}'])


def test_a_single_statement_can_claim_and_insert(articles, connect):
    def insert(connection):
        return connection.execute(
            "INSERT INTO article (fingerprint) SELECT %(fp)s::bigint"
            " WHERE NOT EXISTS (SELECT FROM simsql.claim('article', %(fp)s::bigint))",
            {"fp": CENTRE},
        ).rowcount

    articles.execute("BEGIN")
    assert insert(articles) == 1
    with blocked(connect, insert) as second:
        articles.execute("COMMIT")
    assert second.result() == 0


def together(connect, work, people):
    """Run work(connection, person, in step) on a thread for each of so many people; return what they return."""
    step = Barrier(people, timeout=30)
    with ThreadPoolExecutor(people) as threads:
        running = [threads.submit(work, connect(), person, step.wait) for person in range(people)]
        return [done.result() for done in running]


def test_of_posts_at_the_same_moment_exactly_one_is_taken(articles, connect):
    rounds, people = 60, 4
    centres = [random.Random(seed).getrandbits(63) for seed in range(rounds)]

    def work(connection, person, in_step):
        found = []
        for centre in centres:
            in_step()
            found.append(post(connection, flip(centre, [16 * person, *[40] * (person % 2)])))
        return found

    for of_round in zip(*together(connect, work, people), strict=True):
        assert sum(found == [] for found in of_round) == 1
    assert len(fingerprints_of(articles)) == rounds


def test_claims_of_many_blocks_are_never_in_deadlock(articles, connect):
    """At these distances any two claims share blocks, and many of them."""

    def work(connection, person, in_step):
        chance = random.Random(person)
        for _ in range(25):
            in_step()
            post(connection, flip(0, chance.sample(range(64), 32)), chance.choice([3, 20, 40, 64]))

    together(connect, work, 4)
    assert fingerprints_of(articles)


def test_a_claim_that_searches_with_an_older_snapshot_than_its_locks_would_miss_a_row(articles, connect):
    """Why it is VOLATILE: this is what the tests above would see otherwise."""
    articles.execute("ALTER FUNCTION simsql.claim STABLE")
    articles.execute("BEGIN")
    assert post(articles, CENTRE) == []
    with blocked(connect, lambda other: post(other, CENTRE)) as second:
        articles.execute("COMMIT")
    assert second.result() == []


@pytest.mark.parametrize("level", ONE_SNAPSHOT)
def test_a_transaction_with_one_snapshot_cannot_claim(articles, level):
    articles.execute(f"BEGIN ISOLATION LEVEL {level}")
    with pytest.raises(
        errors.ActiveSqlTransaction, match=f"must be read committed, not {level.lower()}"
    ) as refused:
        claim(articles, CENTRE)
    assert refused.value.diag.message_hint == "Start it with BEGIN ISOLATION LEVEL READ COMMITTED."


def test_what_cannot_be_claimed(articles):
    with pytest.raises(errors.InvalidParameterValue, match="between 0 and 64, not 65"):
        claim(articles, CENTRE, 65)
    articles.execute("SELECT simsql.drop_index('article')")
    with pytest.raises(errors.UndefinedObject, match=r"public\.article has no simhash index"):
        claim(articles, None)


# What others see of claims


def test_the_locks_of_claims_do_not_tell_an_outsider_what_is_claimed(articles, new_role, connect):
    """All there is to try are 2**16 values of each of four blocks."""
    claimed = [random.Random(seed).getrandbits(64) - 2**63 for seed in range(10)]
    outsider = connect(new_role())
    with articles.transaction():
        for fingerprint in claimed:
            assert claim(articles, fingerprint) == []
        assert len(held(outsider)) == 42  # four blocks of each, the default index and the loaders of the table
        guessed = outsider.execute(
            "SELECT number, array_agg(value)"
            " FROM generate_series(0, 3) AS number CROSS JOIN generate_series(0, 65535) AS value WHERE"
            " hashtextextended(format('simsql.claim 1 0 4 %s %s', number, value::bit(16)), 0)"
            f" IN ({HELD}) GROUP BY number"
        ).fetchall()
    blocks = dict(guessed)
    recovered = [
        fingerprint
        for fingerprint in claimed
        if all((fingerprint >> (48 - 16 * number)) & 0xFFFF in blocks.get(number, []) for number in range(4))
    ]
    assert recovered == [], f"{len(recovered)} of {len(claimed)} fingerprints were recovered from pg_locks"


def test_only_roles_that_can_read_the_columns_of_an_index_learn_its_key(connection, new_role, connect, storage):
    connection.execute("CREATE TABLE article (tenant integer, fingerprint bigint, other bigint)")
    create = "SELECT simsql.create_index('article', 'fingerprint', scope => '{tenant}', storage => %s)"
    connection.execute(create, [storage])
    role = new_role()
    outsider = connect(role)
    connection.execute(f"GRANT SELECT (fingerprint, other) ON article TO {role}")
    for secret in ("SELECT FROM simsql._claim_secret", "REFRESH MATERIALIZED VIEW simsql._claim_secret"):
        with pytest.raises(errors.InsufficientPrivilege):
            outsider.execute(secret)
    keys = "SELECT index_id FROM simsql._claim_keys"
    assert outsider.execute(keys).fetchall() == []
    claim_in_scope = "SELECT count(*) FROM simsql.claim('article', 1, scope => '{\"tenant\": 1}')"
    with pytest.raises(
        errors.InsufficientPrivilege, match=f"role {role} cannot read the columns of the simhash index"
    ):
        outsider.execute(claim_in_scope)
    connection.execute(f"GRANT SELECT (tenant) ON article TO {role}")
    assert outsider.execute(keys).fetchall() == [(1,)]
    assert outsider.execute(claim_in_scope).fetchone() == (0,)
    # Another index that is no longer as it was when it was created takes no other index along.
    connection.execute("SELECT simsql.create_index('article', 'other')")
    connection.execute("ALTER TABLE article DROP other CASCADE")
    assert outsider.execute(keys).fetchall() == [(1,)]


def test_default_privileges_do_not_grant_the_secret(server, new_role):
    """As on a database where a role may read all tables that are created later."""
    role = new_role()
    with server.new_database(template="template0") as url:
        with server.connect(url.database) as connection:
            connection.execute(f"ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO {role}, PUBLIC")
            engine = open_engine(url)
            install_schema(engine)
            engine.dispose()
        with server.connect(url.database, role) as reader:
            assert reader.execute("SELECT FROM simsql.registry").fetchall() == []
            with pytest.raises(errors.InsufficientPrivilege):
                reader.execute("SELECT FROM simsql._claim_secret")


def test_a_claim_in_a_function_of_another_role_has_that_role_s_privileges(articles, new_role, connect):
    writer, caller = new_role(), new_role()
    articles.execute(f"GRANT SELECT (fingerprint) ON article TO {writer}")
    articles.execute(
        "CREATE FUNCTION is_free(bigint) RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER"
        " AS 'BEGIN RETURN NOT EXISTS (SELECT FROM simsql.claim(''article'', $1)); END'"
    )
    is_free = f"SELECT is_free({CENTRE})"
    session = connect(caller)
    articles.execute(f"ALTER FUNCTION is_free OWNER TO {writer}")
    assert session.execute(is_free).fetchone() == (True,)
    articles.execute(f"ALTER FUNCTION is_free OWNER TO {caller}")
    with pytest.raises(errors.InsufficientPrivilege):
        session.execute(is_free)


def test_copies_of_a_database_take_other_locks(server, articles):
    keys = "SELECT key FROM simsql._claim_keys"
    before = articles.execute(keys).fetchall()
    assert len(before) == 1
    name = articles.info.dbname
    articles.close()
    with server.new_database(template=name) as url, server.connect(url.database) as copy:
        assert len(copy.execute(keys).fetchall()) == 1
        assert copy.execute(keys).fetchall() != before
    with server.connect(name) as original:
        assert original.execute(keys).fetchall() == before


@pytest.mark.parametrize("options", [[], ["--schema-only"]], ids=["data", "no_data"])
def test_a_restored_database_has_a_secret_of_its_own(connection, restore, options):
    restored = restore(*options)
    secret = "SELECT secret FROM simsql._claim_secret"
    create_articles(restored)
    assert claim(restored, CENTRE) == []
    assert restored.execute(secret).fetchone() != connection.execute(secret).fetchone()


def test_a_secret_that_was_not_restored_is_made_by_the_first_claim(articles, new_role, connect):
    role = new_role()
    articles.execute(f"GRANT SELECT, INSERT ON article TO {role}")
    articles.execute("REFRESH MATERIALIZED VIEW simsql._claim_secret WITH NO DATA")
    first = connect(role)
    first.execute("BEGIN")
    assert post(first, CENTRE) == []
    with blocked(connect, lambda other: post(other, agreeing_in(0, 3))) as second:
        first.execute("COMMIT")
    assert second.result() == [(CENTRE, 3)]


def test_a_new_secret_waits_for_the_claims_under_the_old_one(articles, connect):
    articles.execute("BEGIN")
    assert post(articles, CENTRE) == []
    refresh = "REFRESH MATERIALIZED VIEW simsql._claim_secret"
    with (
        blocked(connect, lambda owner: owner.execute(refresh)),
        blocked(connect, lambda other: post(other, agreeing_in(0, 3))) as second,
    ):
        articles.execute("COMMIT")
    assert second.result() == [(CENTRE, 3)]


# While the index changes


def test_an_index_that_is_created_again_while_a_claim_waits_lets_no_other_claim_pass(articles, connect):
    def create_again(session):
        with session.transaction():
            session.execute("SELECT simsql.drop_index('article')")
            create_index(session)

    check_waiting_claim(articles, connect, create_again)


def test_a_scope_column_that_changes_while_a_claim_waits_lets_no_other_claim_pass(connection, connect):
    connection.execute("CREATE TABLE article (at date, fingerprint bigint)")
    connection.execute(
        "SELECT simsql.create_index('article', 'fingerprint', scope => '{at}', storage => 'expression')"
    )

    def claim_today(session):
        session.execute("BEGIN")
        scoped = """SELECT fingerprint FROM simsql.claim('article', 7, scope => '{"at": "2026-01-01"}')"""
        return session.execute(scoped).fetchall()

    def change(session):
        session.execute(
            "BEGIN; ALTER TABLE article ALTER at TYPE timestamp; SELECT simsql.repair('article'); COMMIT"
        )

    first = connect()
    claim_today(first)
    with blocked(connect, claim_today) as second, blocked(connect, change) as changed:
        first.execute("ROLLBACK")
        changed.result(timeout=30)
        assert second.result(timeout=30) == []
        third = connect()
        third.execute("SET lock_timeout = '100ms'")
        with pytest.raises(errors.LockNotAvailable):
            claim_today(third)


INSERT = "INSERT INTO {0} VALUES (9)"
REFILL = "CREATE TEMPORARY TABLE saved AS SELECT * FROM {0}; TRUNCATE {0}; INSERT INTO {0} SELECT * FROM saved"
ORDINARY = "CREATE TABLE article (fingerprint bigint)"
PARTITIONED = (
    "CREATE TABLE article (fingerprint bigint) PARTITION BY RANGE (fingerprint);"
    "CREATE TABLE part PARTITION OF article DEFAULT"
)
PARENT = "CREATE TABLE article (fingerprint bigint); CREATE TABLE part () INHERITS (article)"


@pytest.mark.parametrize(
    ("create", "written", "storage", "change"),
    [
        (ORDINARY, "article", "tables", REFILL),
        (ORDINARY, "article", "expression", REFILL),
        (PARTITIONED, "part", "expression", REFILL),
        (PARENT, "part", "expression", REFILL),
        (ORDINARY, "article", "tables", "SELECT simsql.change_storage('article', 'expression')"),
        (ORDINARY, "article", "tables", INSERT),
        (ORDINARY, "article", "expression", INSERT),
        (PARTITIONED, "part", "expression", INSERT),
        (PARENT, "part", "expression", INSERT),
    ],
)
def test_a_claim_that_has_waited_for_a_change_of_the_table_sees_all_rows(
    connection, connect, create, written, storage, change
):
    """A snapshot from before the change would see an empty table, or no keys, or not the new row."""
    connection.execute(create)
    wanted = 9 if change is INSERT else CENTRE
    connection.execute(f"INSERT INTO {written} SELECT {CENTRE} + n FROM generate_series(0, 2000) AS n")
    connection.execute("SELECT simsql.create_index('article', 'fingerprint', 3, storage => %s)", [storage])
    other = connect()
    other.execute(f"BEGIN; LOCK TABLE {written}; {change.format(written)}")
    with blocked(connect, lambda session: claim(session, wanted)) as waiting:
        other.execute("COMMIT")
        assert waiting.result(timeout=30) == [(wanted, 0)]


@pytest.mark.parametrize("privileges", ["SELECT", "SELECT (fingerprint)"])
@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (
            "DROP TABLE article; CREATE TABLE article (fingerprint bigint); INSERT INTO article VALUES (9)",
            "was dropped",
        ),
        (
            "CREATE TABLE other (fingerprint bigint); INSERT INTO other VALUES (9);"
            " ALTER TABLE article RENAME TO before; ALTER TABLE other RENAME TO article",
            "was called public.article when its simhash index was created",
        ),
        (
            "ALTER TABLE article RENAME TO before; CREATE VIEW article AS SELECT 9::bigint AS fingerprint",
            "was called public.article when its simhash index was created",
        ),
        (
            "ALTER TABLE article DROP fingerprint CASCADE; ALTER TABLE article ADD fingerprint bigint DEFAULT 9",
            "have been disabled or dropped|permission denied",
        ),
    ],
    ids=["dropped", "swapped", "a view", "column"],
)
def test_a_claim_that_has_waited_for_another_table_is_refused(
    articles, connect, new_role, change, problem, privileges
):
    role = new_role()
    articles.execute(f"GRANT {privileges} ON article TO {role}")
    other = connect()
    other.execute("BEGIN; LOCK TABLE article")
    other.execute(change)

    def claim_as_role(session):
        session.execute(f"SET ROLE {role}")
        claim(session, 9)

    with blocked(connect, claim_as_role) as waiting:
        other.execute("COMMIT")
        with pytest.raises(errors.Error, match=problem):
            waiting.result(timeout=30)


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE article RENAME at TO day; ALTER TABLE article ADD at text",
        "ALTER TABLE article ALTER at TYPE text",
    ],
)
def test_a_scope_column_that_has_changed_is_named(connection, change):
    connection.execute("CREATE TABLE article (at date, fingerprint bigint)")
    connection.execute(
        "SELECT simsql.create_index('article', 'fingerprint', scope => '{at}', storage => 'expression')"
    )
    connection.execute(change)
    for value in "a", "2026-01-01":
        with pytest.raises(errors.ObjectNotInPrerequisiteState, match="simsql: "):
            connection.execute(f"""SELECT simsql.claim('article', 7, scope => '{{"at": "{value}"}}')""")
