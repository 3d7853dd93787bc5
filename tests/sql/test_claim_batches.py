"""Claims of several rows in one statement: of near-duplicates one gets in, or the statement is refused."""

import pytest
from articles import create_articles, create_index
from claims import CENTRE
from oracle import clustered, distance
from psycopg import errors

pytestmark = pytest.mark.oldest_version

FREE = "NOT EXISTS (SELECT FROM simsql.claim('article', {}))"
TRIGGER = (
    "CREATE FUNCTION claim() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
    " IF NOT EXISTS (SELECT FROM simsql.claim('article', NEW.fingerprint)) THEN RETURN NEW; END IF;"
    " RETURN NULL; END $$;"
    "CREATE TRIGGER claim BEFORE INSERT ON article FOR EACH ROW EXECUTE FUNCTION claim()"
)
INSERT = "INSERT INTO article (fingerprint) SELECT f FROM unnest(%s::bigint[]) AS f"
LOOP = (
    "CREATE FUNCTION add(bigint[]) RETURNS void LANGUAGE plpgsql AS $$ DECLARE f bigint; BEGIN"
    f" FOREACH f IN ARRAY $1 LOOP INSERT INTO article (fingerprint) SELECT f WHERE {FREE.format('f')}; END LOOP;"
    " END $$"
)
BEFORE = {"loop": LOOP, "trigger": TRIGGER, "copy": TRIGGER}
# Rows of these forms are inserted one after another, each before the next claim.
FORMS = {
    "insert": f"{INSERT} WHERE {FREE.format('f')}",
    "lateral": f"{INSERT} LEFT JOIN LATERAL simsql.claim('article', f) AS c ON true WHERE c.distance IS NULL",
    "with": "WITH t AS (SELECT f, (SELECT c.distance FROM simsql.claim('article', f) AS c) AS near"
    " FROM unnest(%s::bigint[]) AS f) INSERT INTO article (fingerprint) SELECT f FROM t WHERE near IS NULL",
    "writing with": f"WITH t AS ({INSERT} WHERE {FREE.format('f')} RETURNING id) SELECT count(*) FROM t",
    "sorted before": "INSERT INTO article (fingerprint) SELECT f"
    " FROM (SELECT f FROM unnest(%s::bigint[]) WITH ORDINALITY AS u (f, place) ORDER BY place OFFSET 0) AS u"
    f" WHERE {FREE.format('f')}",
    "loop": "SELECT add(%s::bigint[])",
    "merge": "MERGE INTO article AS a USING unnest(%s::bigint[]) AS f ON false"
    f" WHEN NOT MATCHED AND {FREE.format('f')} THEN INSERT (fingerprint) VALUES (f)",
    "trigger": INSERT,
    "copy": "COPY article (fingerprint) FROM STDIN",
}


def inserted(connection, after=0):
    rows = connection.execute("SELECT fingerprint FROM article WHERE id > %s ORDER BY id", [after]).fetchall()
    return [fingerprint for (fingerprint,) in rows]


def one_of_each(stored, batch, within=3):
    """What claims let in, one after another."""
    taken = []
    for fingerprint in batch:
        if all(distance(fingerprint, other) > within for other in [*stored, *taken]):
            taken.append(fingerprint)
    return taken


@pytest.mark.parametrize("form", FORMS)
def test_claims_see_the_rows_of_their_own_statement(connection, storage, form):
    if form == "merge" and connection.info.server_version < 150000:
        pytest.skip("MERGE came with PostgreSQL 15")
    stored, batch = clustered(150, seed=71), clustered(80, seed=72)
    create_articles(connection, stored, storage=storage)
    batch = [*batch[:60], *stored[:5], *batch[40:]]
    connection.execute(BEFORE.get(form, "SELECT"))
    if form == "copy":
        with connection.cursor().copy(FORMS[form]) as copy:
            for fingerprint in batch:
                copy.write_row([fingerprint])
    else:
        connection.execute(FORMS[form], [batch])
    expected = one_of_each(stored, batch)
    assert inserted(connection, after=len(stored)) == expected
    assert len(expected) < 50, "there was nothing to refuse"


@pytest.mark.parametrize(
    "statement",
    [
        f"{INSERT} WHERE {FREE.format('f')} ORDER BY f",
        "SELECT f, c.* FROM unnest(%s::bigint[]) AS f LEFT JOIN LATERAL simsql.claim('article', f) AS c ON true",
        "WITH t AS MATERIALIZED (SELECT f, (SELECT c.distance FROM simsql.claim('article', f) AS c) AS near"
        " FROM unnest(%s::bigint[]) AS f), n AS (SELECT count(*) FROM t)"
        " INSERT INTO article (fingerprint) SELECT f FROM n, t WHERE near IS NULL",
    ],
    ids=["sorted", "without inserts", "materialized"],
)
def test_claims_before_the_first_insert_are_refused(connection, storage, statement):
    create_articles(connection, clustered(150, seed=71), storage=storage)
    with pytest.raises(
        errors.FeatureNotSupported, match="the same statement has claimed a near-duplicate and not inserted it"
    ) as refused:
        connection.execute(statement, [[CENTRE, 1 << 62, CENTRE ^ 7]])
    assert "so without ORDER BY" in refused.value.diag.message_hint
    assert connection.execute(statement, [[CENTRE, CENTRE ^ 15, ~CENTRE]]).rowcount == 3


def test_what_is_not_inserted_bars_no_later_statement(articles):
    """A transaction may claim a text, and leave it."""
    with articles.transaction():
        for fingerprint in (5, 7, 5):
            assert not articles.execute("SELECT FROM simsql.claim('article', %s)", [fingerprint]).fetchall()


def test_claims_that_are_rolled_back_are_forgotten(articles):
    articles.execute(
        "DO $$ BEGIN"
        f" BEGIN INSERT INTO article (fingerprint) SELECT 5 WHERE {FREE.format(5)}; RAISE 'no';"
        " EXCEPTION WHEN raise_exception THEN NULL; END;"
        f" INSERT INTO article (fingerprint) SELECT 7 WHERE {FREE.format(7)};"
        f" INSERT INTO article (fingerprint) SELECT 5 WHERE {FREE.format(5)};"
        " END $$"
    )
    assert inserted(articles, after=2) == [7]


def fill_articles(connection):
    """Far from what the tests claim, but for one."""
    create_articles(connection, [(1 << 63) - 1, -(1 << 62)])


def test_claims_in_other_scopes_and_tables_are_not_confused(connection, storage):
    connection.execute(
        "CREATE TABLE article (id bigint GENERATED ALWAYS AS IDENTITY, tenant text, fingerprint bigint);"
        "CREATE TABLE other (id bigint GENERATED ALWAYS AS IDENTITY, fingerprint bigint)"
    )
    create_index(connection, "other", storage=storage)
    connection.execute(
        "SELECT simsql.create_index('article', 'fingerprint', scope => '{tenant}', storage => %s)", [storage]
    )
    claim = "simsql.claim('article', f, 20, scope => jsonb_build_object('tenant', t))"
    connection.execute(
        "WITH o AS (INSERT INTO other (fingerprint) SELECT f FROM unnest('{1,2,3}'::bigint[]) AS f"
        " WHERE NOT EXISTS (SELECT FROM simsql.claim('other', f)))"
        " INSERT INTO article (tenant, fingerprint) SELECT t, f FROM unnest('{1,2,3}'::bigint[]) AS f"
        f" CROSS JOIN unnest('{{a,b,c}}'::text[]) AS t WHERE NOT EXISTS (SELECT FROM {claim})"
    )
    rows = connection.execute("SELECT tenant, count(*) FROM article GROUP BY 1 ORDER BY 1").fetchall()
    assert rows == [("a", 1), ("b", 1), ("c", 1)]
    assert connection.execute("SELECT count(*) FROM other").fetchone() == (1,)


def test_a_nearer_row_of_the_statement_comes_before_one_that_was_there(connection):
    create_articles(connection, [0b111])
    connection.execute(
        "INSERT INTO article (fingerprint) SELECT f FROM unnest('{65535,1,0}'::bigint[]) AS f"
        " WHERE f <> 0 OR (SELECT c.fingerprint FROM simsql.claim('article', f) AS c) <> 1"
    )
    assert inserted(connection) == [7, 65535, 1, 0]  # an unclaimed row has no key before its statement ends
    found = connection.execute(
        "WITH t AS MATERIALIZED (INSERT INTO article (fingerprint)"
        " SELECT f FROM unnest('{1048576,1048577}'::bigint[]) AS f"
        " CROSS JOIN LATERAL (SELECT count(*) AS near FROM simsql.claim('article', f, 0)) AS c WHERE near = 0"
        " RETURNING fingerprint) SELECT c.* FROM (SELECT max(fingerprint) AS f FROM t) AS t"
        " CROSS JOIN LATERAL simsql.claim('article', f, 2) AS c"
    )
    assert found.fetchall() == [(1048577, 0)]


def test_what_a_statement_has_claimed_is_not_readable(articles, new_role, connect):
    """A function of another role may have claimed it, in a transaction of this one."""
    role = new_role()
    articles.execute(
        "CREATE FUNCTION claim() RETURNS void LANGUAGE sql SECURITY DEFINER AS"
        f" $$ SELECT FROM simsql.claim('article', {CENTRE}); SELECT FROM simsql.claim('article', {~CENTRE}) $$"
    )
    stranger = connect(role)
    with stranger.transaction():
        stranger.execute("SELECT public.claim()")
        (kept,) = stranger.execute("SELECT current_setting('simsql.claimed')::bigint[]").fetchone()
    assert len(kept) == 7
    assert not {CENTRE, ~CENTRE} & set(kept)
    assert kept[3] ^ kept[6] != -1
    assert stranger.execute("SELECT current_setting('simsql.claimed')").fetchone() == ("",)


@pytest.mark.parametrize("kept", ["garbage", "{5,x}", "{1e9}", "{99999999999999999999,1,1}", "", "{}"])
def test_what_others_have_put_into_the_setting_is_no_claim(articles, kept):
    articles.execute("SELECT set_config('simsql.claimed', %s, false)", [kept])
    articles.execute(
        f"INSERT INTO article (fingerprint) SELECT f FROM unnest('{{5,7}}'::int8[]) AS f WHERE {FREE.format('f')}"
    )
    assert inserted(articles, after=2) == [5]
