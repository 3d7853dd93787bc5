"""Whoever may write the table may write it indexed; whoever may read the column may search it; nobody else."""

import pytest
from articles import create_index, create_table, missing_keys, near
from psycopg import errors
from roles import allow_indexes
from similar import like_near

pytestmark = pytest.mark.oldest_version

# What a role sees of a table with the fingerprints 1 and 3, if it may.
SEARCHES = {
    "near": ("SELECT fingerprint FROM simsql.near('article', 1, 3)", [(1,), (3,)]),
    "similar_candidates": (
        f"SELECT fingerprint FROM simsql.similar_candidates('article', {like_near(1, 3)})",
        [(1,), (3,)],
    ),
    "near_rows": ("SELECT id FROM simsql.near_rows(NULL::article, 1, 3)", [(1,), (2,)]),
    "near_wide": (
        "SELECT fingerprint[1] FROM simsql.near_wide('article', '{1}', 3, '{fingerprint}')",
        [(1,), (3,)],
    ),
    "pairs": ("SELECT a, b FROM simsql.pairs('article', 3)", [(1, 3)]),
    "clusters": ("SELECT fingerprint FROM simsql.clusters('article', 3)", [(1,), (3,)]),
}
searches = pytest.mark.parametrize(("search", "expected"), SEARCHES.values(), ids=SEARCHES)


@pytest.fixture
def role(new_role):
    return new_role()


@pytest.fixture
def guest(articles, role, connect):
    """A connection of `role`, which has been granted nothing."""
    return connect(role)


def test_update_of_the_column_is_all_that_an_updater_needs(articles, role, guest):
    articles.execute(f"GRANT UPDATE (fingerprint) ON article TO {role}")
    guest.execute("UPDATE article SET fingerprint = 9")
    assert missing_keys(articles) == []


@pytest.mark.parametrize("name", ["near", "similar_candidates", "near_wide", "pairs", "clusters"])
def test_select_on_the_column_is_enough_where_no_rows_are_shown(articles, role, guest, name):
    search, expected = SEARCHES[name]
    articles.execute(f"GRANT SELECT (fingerprint) ON article TO {role}")
    assert guest.execute(search).fetchall() == expected
    with pytest.raises(errors.InsufficientPrivilege):
        guest.execute(SEARCHES["near_rows"][0])


@searches
def test_without_select_nothing_is_found_out(articles, role, guest, search, expected):
    with pytest.raises(errors.InsufficientPrivilege):
        guest.execute(search)
    articles.execute(f"GRANT INSERT, UPDATE, DELETE, SELECT (id, body) ON article TO {role}")
    with pytest.raises(errors.InsufficientPrivilege):
        guest.execute(search)


@searches
def test_rights_are_asked_at_the_time_of_the_search(articles, role, guest, search, expected):
    for _ in range(2):  # plans are kept in the session: they must not keep what was allowed
        articles.execute(f"GRANT SELECT ON article TO {role}")
        assert guest.execute(search).fetchall() == expected
        articles.execute(f"REVOKE SELECT ON article FROM {role}")
        with pytest.raises(errors.InsufficientPrivilege):
            guest.execute(search)


def test_one_session_searches_with_the_rights_of_its_current_role(articles, role):
    assert near(articles, 1, 3) == [(1, 0), (3, 1)]
    articles.execute(f"SET ROLE {role}")
    with pytest.raises(errors.InsufficientPrivilege):
        near(articles, 1, 3)
    articles.execute("RESET ROLE")
    assert near(articles, 1, 3) == [(1, 0), (3, 1)]


def test_keys_show_nothing_to_a_role_without_select(articles, role, guest):
    for number in range(4):
        assert guest.execute(f"SELECT * FROM simsql.keys_1_{number}").fetchall() == []
    articles.execute(f"GRANT SELECT (fingerprint) ON article TO {role}")
    assert len(guest.execute("SELECT * FROM simsql.keys_1_0").fetchall()) == 3  # one has no key


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO simsql.keys_1_0 VALUES (5)",
        "DELETE FROM simsql.keys_1_0",
        "UPDATE simsql.keys_1_0 SET key = 0",
        "TRUNCATE simsql.keys_1_0",
        "DELETE FROM simsql.registry",
        "UPDATE simsql.registry SET table_name = 'other'",
        "DROP FUNCTION simsql.search_1(bigint, integer)",
    ],
)
def test_a_reader_cannot_change_an_index(articles, role, guest, statement):
    articles.execute(f"GRANT ALL ON article TO {role}")
    with pytest.raises(errors.InsufficientPrivilege):
        guest.execute(statement)


@pytest.mark.parametrize("event", ["insert", "update"])
def test_nobody_else_can_use_the_trigger_functions(articles, role, guest, event):
    articles.execute(f"GRANT CREATE ON SCHEMA public TO {role}")
    guest.execute("CREATE TABLE mine (fingerprint bigint)")
    with pytest.raises(errors.InsufficientPrivilege):
        guest.execute(f"SELECT simsql.add_on_{event}_1()")
    with pytest.raises(errors.InsufficientPrivilege):
        guest.execute(
            f"CREATE TRIGGER forged AFTER {event} ON mine REFERENCING NEW TABLE AS new_rows"
            f" FOR EACH STATEMENT EXECUTE FUNCTION simsql.add_on_{event}_1()"
        )


def test_a_function_of_a_privileged_owner_searches_for_others(articles, guest):
    articles.execute(
        "CREATE FUNCTION similar(bigint) RETURNS SETOF simsql.match LANGUAGE sql SECURITY DEFINER"
        " SET search_path = public AS $$ SELECT * FROM simsql.near('article', $1, 3) $$"
    )
    assert guest.execute("SELECT * FROM similar(1)").fetchall() == [(1, 0), (3, 1)]
    with pytest.raises(errors.InsufficientPrivilege):
        near(guest, 1, 3)


@searches
def test_row_level_security_hides_the_fingerprints_of_hidden_rows(articles, role, guest, search, expected):
    articles.execute(f"GRANT SELECT ON article TO {role}")
    articles.execute("ALTER TABLE article ENABLE ROW LEVEL SECURITY")
    articles.execute("CREATE POLICY mine ON article USING (id <> 1)")
    visible = {SEARCHES["near_rows"][0]: [(2,)], SEARCHES["pairs"][0]: [], SEARCHES["clusters"][0]: []}
    assert guest.execute(search).fetchall() == visible.get(search, [(3,)])
    assert articles.execute(search).fetchall() == expected


def test_writers_under_row_level_security_add_keys(articles, role, guest):
    articles.execute(f"GRANT INSERT, SELECT ON article TO {role}")
    articles.execute("ALTER TABLE article ENABLE ROW LEVEL SECURITY")
    articles.execute("CREATE POLICY any_insert ON article FOR INSERT WITH CHECK (true)")
    guest.execute("INSERT INTO article (fingerprint) VALUES (7)")
    assert near(guest, 7, 0) == []
    assert missing_keys(articles) == []


def test_only_the_owner_of_a_table_can_index_it(connection, role, connect):
    create_table(connection)
    connection.execute(f"GRANT ALL ON article TO {role}")
    with pytest.raises(errors.InsufficientPrivilege, match=r"must be owner of table public\.article"):
        create_index(connect(role))


@pytest.fixture
def owner(connection, role, connect):
    """A connection of a role that owns `article`, is no superuser and has followed no hint yet."""
    create_table(connection, [1, 3])
    connection.execute(f"ALTER TABLE article OWNER TO {role}")
    connection.execute(f"GRANT CREATE ON SCHEMA public TO {role}")
    return connect(role)


def grant_as_the_hint_says(connection, owner):
    with pytest.raises(errors.InsufficientPrivilege, match="may not create objects in schema simsql") as caught:
        create_index(owner)
    connection.execute(caught.value.diag.message_hint.partition(": ")[2])


def test_an_owner_who_was_granted_what_the_hint_says_can_index(connection, owner, role):
    grant_as_the_hint_says(connection, owner)
    create_index(owner)
    owner.execute("INSERT INTO article (fingerprint) VALUES (7)")
    connection.execute("INSERT INTO article (fingerprint) VALUES (9)")
    assert near(owner, 1, 64) == near(connection, 1, 64)
    assert missing_keys(connection) == []
    owner.execute("SELECT simsql.drop_index('article')")
    assert connection.execute("TABLE simsql.indexes").fetchall() == []


def test_another_role_writes_and_searches_the_index_of_an_ordinary_owner(connection, owner, new_role, connect):
    grant_as_the_hint_says(connection, owner)
    create_index(owner)
    other = new_role()
    owner.execute(f"GRANT SELECT, INSERT ON article TO {other}")
    stranger = connect(other)
    stranger.execute("INSERT INTO article (fingerprint) VALUES (7)")
    assert near(stranger, 7, 0) == [(7, 0)]
    assert missing_keys(connection) == []


def test_row_level_security_that_hides_rows_from_the_owner_refuses_an_index(connection, owner):
    grant_as_the_hint_says(connection, owner)
    connection.execute("ALTER TABLE article ENABLE ROW LEVEL SECURITY")
    connection.execute("ALTER TABLE article FORCE ROW LEVEL SECURITY")
    with pytest.raises(errors.InsufficientPrivilege, match=r"row-level security hides rows of public\.article"):
        create_index(owner)


@pytest.mark.fault("hostile search paths: tables, functions and operators with the names of others")
def test_a_hostile_search_path_cannot_hijack_the_triggers(articles, role, guest, examine):
    """A writer's own operators and tables come first for the writer, not for the trigger and its rights."""
    articles.execute(f"CREATE SCHEMA trap AUTHORIZATION {role}")
    articles.execute(f"GRANT INSERT ON article TO {role}")
    guest.execute("SET search_path = trap, pg_catalog, public")
    guest.execute("CREATE TABLE keys_1_0 (key bigint)")
    guest.execute("CREATE TEMPORARY TABLE new_rows (fingerprint bigint)")
    guest.execute("INSERT INTO new_rows VALUES (666)")
    for operator, right, result in (
        ("&", "bigint", "bigint"),
        ("|", "bigint", "bigint"),
        ("=", "bigint", "boolean"),
        ("<<", "integer", "bigint"),
        (">>", "integer", "bigint"),
    ):
        guest.execute(
            f'CREATE FUNCTION "seized {operator}"(bigint, {right}) RETURNS {result} LANGUAGE plpgsql AS'
            " $$ BEGIN RAISE EXCEPTION 'seized by %', current_user; END $$"
        )
        guest.execute(
            f'CREATE OPERATOR {operator} (LEFTARG = bigint, RIGHTARG = {right}, FUNCTION = "seized {operator}")'
        )
    with pytest.raises(errors.RaiseException, match=f"seized by {role}"):  # the trap works
        guest.execute("SELECT 1::bigint & 1::bigint")
    guest.execute("INSERT INTO article (fingerprint) VALUES (7)")
    assert guest.execute("SELECT * FROM keys_1_0").fetchall() == []
    examine(articles, {1: 1, 2: 3, 3: 7}, distances=(3, 64))


def test_everybody_may_see_which_indexes_there_are(guest):
    assert guest.execute("SELECT table_name, column_name, state FROM simsql.indexes").fetchall() == [
        ("public.article", "fingerprint", "ready")
    ]


def test_every_function_looks_names_up_in_the_catalog_alone(articles):
    """Else whoever may create functions on a caller's search_path could have them run with the caller's rights."""
    articles.execute("ALTER TABLE article ADD other bigint")
    articles.execute("SELECT simsql.create_index('article', 'other', scope => '{body}')")
    free = articles.execute(
        "SELECT p.oid::regprocedure::text FROM pg_proc AS p WHERE p.pronamespace = 'simsql'::regnamespace"
        " AND p.prosqlbody IS NULL AND p.prokind = 'f'"
        " AND NOT coalesce(p.proconfig, '{}') @> ARRAY['search_path=pg_catalog, pg_temp']"
    ).fetchall()
    assert free == []
    definers = articles.execute(
        "SELECT proname FROM pg_proc WHERE pronamespace = 'simsql'::regnamespace AND prosecdef"
    ).fetchall()
    names = {(f"add_on_{event}_{index}",) for event in ("insert", "update", "replica") for index in (1, 2)}
    assert set(definers) >= names


@pytest.mark.fault("hostile search paths: tables, functions and operators with the names of others")
def test_a_better_match_on_the_search_path_is_not_called(articles):
    articles.execute(
        "CREATE FUNCTION public.format(text, integer) RETURNS text LANGUAGE plpgsql"
        " AS $$ BEGIN RAISE EXCEPTION 'taken over'; END $$"
    )
    articles.execute("CREATE TEMPORARY TABLE pg_trigger (tgrelid int)")
    assert near(articles, 0, 64)
    articles.execute("SELECT * FROM simsql.pairs('article', 3), simsql.clusters('article', 3)")
    articles.execute("SELECT simsql.drop_index('article')")
    articles.execute("SELECT simsql.create_index('article', 'fingerprint')")


def test_a_table_that_gets_the_name_of_an_indexed_one_does_not_open_its_keys(articles, new_role, connect):
    role = new_role()
    articles.execute(f"GRANT CREATE ON SCHEMA public TO {role}")
    stranger = connect(role)
    for vanish in ("ALTER TABLE article RENAME TO kept", "DROP TABLE kept"):
        articles.execute(vanish)
        stranger.execute("CREATE TABLE public.article (fingerprint bigint)")
        assert stranger.execute("SELECT count(*) FROM simsql.keys_1_0").fetchone() == (0,)
        stranger.execute("DROP TABLE public.article")


def test_a_table_that_replaces_a_dropped_one_does_not_open_its_keys(articles, new_role, connect):
    """Its owner forges the trigger by which an index follows a table that was re-created."""
    role = new_role()
    articles.execute(f"GRANT CREATE ON SCHEMA public TO {role}; DROP TABLE article")
    thief = connect(role)
    thief.execute("CREATE TABLE article (id bigint, fingerprint bigint); INSERT INTO article VALUES (1, 5)")
    thief.execute("CREATE FUNCTION noop() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'")
    thief.execute("CREATE TRIGGER simsql_1_column AFTER UPDATE OF fingerprint ON article EXECUTE FUNCTION noop()")
    for call, kept in (("* FROM simsql.repair('article')", 1), ("simsql.create_index('article', 'id')", 0)):
        with articles.transaction(force_rollback=True):
            articles.execute(f"SELECT {call}")
            (table_id,) = articles.execute(
                "SELECT table_id::regclass::text FROM simsql.registry WHERE id = 1"
            ).fetchone()
            assert table_id == "article"
            count = "SELECT count(*) FROM pg_class WHERE relname = 'keys_1_0' AND relkind = 'r'"
            assert articles.execute(count).fetchone() == (kept,)
            if kept:
                articles.execute(f"SET LOCAL ROLE {role}")
                assert articles.execute("SELECT key FROM simsql.keys_1_0 WHERE key <> 0").fetchall() == [(5,)]


def test_a_closed_schema_hides_keys_and_the_key_of_claims(connection, new_role, connect, storage):
    """A role with SELECT on the table cannot read the table either."""
    role = new_role()
    connection.execute("CREATE SCHEMA closed; CREATE TABLE closed.article (fingerprint bigint)")
    connection.execute("INSERT INTO closed.article VALUES (4711)")
    connection.execute("SELECT simsql.create_index('closed.article', 'fingerprint', storage => %s)", [storage])
    connection.execute("GRANT SELECT ON ALL TABLES IN SCHEMA closed TO PUBLIC")
    table = connection.execute("SELECT table_id::oid::text FROM simsql.registry").fetchone()[0]
    stranger = connect(role)
    reads = ["SELECT index_id FROM simsql._claim_keys"]
    if storage == "tables":
        reads += [f"SELECT key <> 0 FROM simsql.keys_1_{number} WHERE key IS NOT NULL" for number in range(4)]
    assert [row for read in reads for row in stranger.execute(read)] == []
    for function in ("near", "claim"):
        with pytest.raises(errors.InsufficientPrivilege):
            stranger.execute(f"SELECT * FROM simsql.{function}({table}::regclass, 4711)")
    connection.execute(f"GRANT USAGE ON SCHEMA closed TO {role}")
    assert len([row for read in reads for row in stranger.execute(read)]) == len(reads)
    assert stranger.execute("SELECT fingerprint FROM simsql.claim('closed.article', 4711)").fetchall() == [(4711,)]


def test_an_index_in_a_schema_that_is_closed_to_others_is_listed_all_the_same(connection, new_role, connect):
    connection.execute("CREATE SCHEMA closed")
    connection.execute("CREATE TABLE closed.article (fingerprint bigint)")
    connection.execute("SELECT simsql.create_index('closed.article', 'fingerprint')")
    stranger = connect(new_role())
    indexes = "SELECT table_name, state FROM simsql.indexes"
    assert stranger.execute(indexes).fetchall() == [("closed.article", "ready")]
    connection.execute("DROP TABLE closed.article")
    assert stranger.execute(indexes).fetchall() == [("closed.article", "table dropped")]


def test_functions_that_remain_of_another_owner_are_taken_over_or_refused(connection, new_role, connect):
    """They ran the triggers with the privileges of their owner, and every write failed."""
    create_table(connection, [1, 3])
    before, indexer = new_role(), new_role()
    allow_indexes(connection, before, indexer)
    connection.execute("CREATE TABLE old (fingerprint bigint)")
    connection.execute(f"ALTER TABLE old OWNER TO {before}")
    connect(before).execute("SELECT simsql.create_index('old', 'fingerprint')")
    # As a restore that has failed after the functions.
    connection.execute("DROP TABLE simsql.keys_1_0, simsql.keys_1_1, simsql.keys_1_2, simsql.keys_1_3")
    connection.execute("TRUNCATE simsql.registry RESTART IDENTITY")
    connection.execute(f"ALTER TABLE article OWNER TO {indexer}")
    with pytest.raises(errors.InsufficientPrivilege, match=f"of role {before} is in the way") as refused:
        create_index(connect(indexer))
    assert f"As {before} or a superuser: DROP ROUTINE simsql." in refused.value.diag.message_hint
    create_index(connection)
    connection.execute("INSERT INTO article (fingerprint) VALUES (7)")
    assert near(connection, 7, 0) == [(7, 0)]
    assert connection.execute("SELECT problem FROM simsql.verify()").fetchall() == []
