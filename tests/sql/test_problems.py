"""simsql.problems: each fault is one row with a label that stays the same, and its remedy mends it."""

import shlex

import pytest
from articles import create_articles, near
from internals import set_batch_size
from program import run
from psycopg import errors
from upkeep import flush_statistics

pytestmark = pytest.mark.oldest_version
PROBLEMS = "SELECT problem, object, remedy FROM simsql.problems ORDER BY problem, object"
REPAIR = "SELECT * FROM simsql.repair('public.article');"
# The damage, and the rows.
FAULTS = {
    "an empty revision": (
        "DELETE FROM simsql.schema_version",
        [("restored without its data", "schema simsql", "simsql install")],
    ),
    "objects without an index": (
        "DELETE FROM simsql.registry",
        [("unknown index", "simsql.search_1", "simsql install")],
    ),
    "key tables without an index": (
        "CREATE TABLE simsql.keys_7_0 (key bigint)",
        [("unknown index", "simsql.search_7", "simsql install")],
    ),
    "an empty key table": (
        "TRUNCATE simsql.keys_1_2",
        [("damaged", "public.article(fingerprint)", f"Add the keys again: {REPAIR}")],
    ),
    "rights of others": (
        "GRANT INSERT ON simsql.registry TO PUBLIC",
        [
            (
                "privilege granted to others",
                "simsql.registry",
                "REVOKE INSERT ON TABLE simsql.registry FROM PUBLIC;",
            )
        ],
    ),
    "rights of others on keys": (
        "GRANT INSERT ON simsql.keys_1_0 TO PUBLIC",
        [("privilege granted to others", "simsql.keys_1_0", REPAIR)],
    ),
    "row security on the registry": (
        "ALTER TABLE simsql.registry ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY",
        [("row-level security", "simsql.registry", "ALTER TABLE simsql.registry DISABLE ROW LEVEL SECURITY;")],
    ),
    "row security on the revision": (
        "ALTER TABLE simsql.schema_version ENABLE ROW LEVEL SECURITY",
        [
            (
                "row-level security",
                "simsql.schema_version",
                "ALTER TABLE simsql.schema_version DISABLE ROW LEVEL SECURITY;",
            )
        ],
    ),
    "disabled triggers": (
        "ALTER TABLE article DISABLE TRIGGER ALL",
        [
            (
                "triggers disabled",
                "public.article(fingerprint)",
                f"It lacks rows that were written in the meantime: {REPAIR}",
            )
        ],
    ),
    "REINDEX": (
        "CREATE INDEX keys_1_0_key_idx_ccnew ON simsql.keys_1_0 (key);"
        " UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'simsql.keys_1_0_key_idx_ccnew'::regclass",
        [
            (
                "REINDEX unfinished",
                "simsql.keys_1_0_key_idx_ccnew",
                "DROP INDEX CONCURRENTLY simsql.keys_1_0_key_idx_ccnew;",
            )
        ],
    ),
    "a change of storage to key tables that was interrupted": (
        "SELECT simsql._change_storage('article', 'expression', NULL, keep => true)",
        [
            (
                "change of storage unfinished",
                "public.article(fingerprint)",
                "Wait for the change to finish, or run it again. To drop what it has created:"
                " SELECT simsql.change_storage('public.article', 'expression', 'fingerprint');",
            )
        ],
    ),
    "a change of storage that was interrupted": (
        "DO $$ BEGIN EXECUTE format('CREATE INDEX simsql_1_1 ON article ((fingerprint & %s), fingerprint)',"
        " (SELECT lead_mask FROM simsql._permutations(4, 1, 0) WHERE number = 1)); END $$",
        [
            (
                "change of storage unfinished",
                "public.article(fingerprint)",
                "Wait for the change to finish, or run it again. To drop what it has created:"
                " SELECT simsql.change_storage('public.article', 'tables', 'fingerprint');",
            )
        ],
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_one_row_and_its_remedy_mends_it(articles, database_url, fault):
    damage, rows = FAULTS[fault]
    assert articles.execute(PROBLEMS).fetchall() == []
    articles.execute(damage)
    found = articles.execute(PROBLEMS).fetchall()
    assert found == rows
    checked = run("status", "--check", "--database", database_url)
    assert (checked.code, len(checked.lines)) == (1, len(found))
    for _, _, remedy in rows:
        if remedy.startswith("simsql "):
            run(*shlex.split(remedy)[1:], "--database", database_url).done()
        else:
            articles.execute(remedy.rpartition(": ")[2])
    assert articles.execute(PROBLEMS).fetchall() == []
    assert run("status", "--check", "--database", database_url).done().out == ""
    assert near(articles, 1, 1) == [(1, 0), (3, 1)]


@pytest.mark.parametrize("kind", ["FUNCTIONS", "ROUTINES"])
@pytest.mark.parametrize("mended_by", ["remedies", "repair"])
def test_lost_privileges_of_everybody_are_granted_again(articles, connect, new_role, kind, mended_by):
    """As by a script that hardens a database. To take a single function from everybody is deliberate."""
    role = new_role()
    articles.execute(
        f"GRANT SELECT ON article TO {role}; REVOKE ALL ON FUNCTION simsql.superfluous_keys FROM PUBLIC"
    )
    assert articles.execute(PROBLEMS).fetchall() == []
    articles.execute(f"REVOKE ALL ON ALL {kind} IN SCHEMA simsql FROM PUBLIC")
    found = articles.execute(PROBLEMS).fetchall()
    grant = "GRANT EXECUTE ON ROUTINE simsql.near_rows(anyelement,bigint,integer,text,jsonb) TO PUBLIC;"
    assert ("privilege missing", "simsql.near_rows(anyelement,bigint,integer,text,jsonb)", grant) in found
    # Whoever altered the functions of triggers may have replaced them meanwhile.
    state = ("keys not compared", "public.article(fingerprint)")
    assert [row[:2] for row in found if row[0] != "privilege missing"] == [state]
    for _, _, remedy in found if mended_by == "remedies" else [("", "", REPAIR)]:
        articles.execute(remedy.rpartition(": ")[2])
    assert articles.execute(PROBLEMS).fetchall() == []
    assert near(connect(role), 1, 1) == [(1, 0), (3, 1)]


def test_a_role_that_alone_may_call_functions_keeps_that(articles, connect, new_role):
    role = new_role()
    for kind in ("FUNCTIONS", "PROCEDURES"):
        articles.execute(f"REVOKE ALL ON ALL {kind} IN SCHEMA simsql FROM PUBLIC")
        articles.execute(f"GRANT EXECUTE ON ALL {kind} IN SCHEMA simsql TO {role}")
    articles.execute(REPAIR)
    assert articles.execute(PROBLEMS).fetchall() == []
    with pytest.raises(errors.InsufficientPrivilege, match="permission denied for"):
        near(connect(new_role()), 1, 1)


def test_a_role_without_privileges_sees_them(articles, connect, new_role):
    articles.execute("TRUNCATE simsql.keys_1_2")
    articles.execute(f"SET ROLE {new_role()}")
    assert ("key table empty", "simsql.keys_1_2", REPAIR) in articles.execute(PROBLEMS).fetchall()


def test_a_hidden_registry_is_not_taken_for_a_lost_one(articles, database_url, new_role):
    """Otherwise an installation would create all indexes again."""
    role = new_role()
    articles.execute(f"ALTER TABLE simsql.registry ENABLE ROW LEVEL SECURITY; SET ROLE {role}")
    assert [row[:2] for row in articles.execute(PROBLEMS)] == [("row-level security", "simsql.registry")]
    assert articles.execute("SELECT * FROM simsql._unknown_indexes()").fetchall() == []


def test_the_label_of_superfluous_keys_has_no_figure(connection):
    set_batch_size(connection, 10)
    create_articles(connection, range(100))
    seen = set()
    for share in (2, 3):
        connection.execute(f"UPDATE article SET fingerprint = fingerprint + 1000000 WHERE id % {share} = 0")
        flush_statistics(connection)
        seen |= {(*row,) for row in connection.execute(PROBLEMS)}
    assert seen == {("vacuum due", "public.article(fingerprint)", "CALL simsql.maintain();")}
