"""A search within a scope finds what is near among its rows, and touches and tells nothing of others."""

import random
import re

import oracle
import pytest
from articles import count_keys, missing_keys
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from internals import near_many_statements, run_statements, set_batch_size
from psycopg import errors, sql
from scoped import (
    COLUMNS,
    SEARCHES,
    check,
    check_tenants,
    create_index,
    create_scoped,
    create_tenants,
    expected,
    explain,
    insert,
    search,
    stored_keys,
)
from upkeep import problems

fill_articles = create_tenants


# What is found


few_bits = st.builds(oracle.flip, st.sampled_from(oracle.EXTREMES), st.sets(st.integers(0, 63), max_size=5))


@st.composite
def scoped_tables(draw):
    names = draw(st.lists(st.sampled_from(list(COLUMNS)), min_size=1, max_size=4, unique=True))
    values = [st.sampled_from([*COLUMNS[name][1][: draw(st.integers(1, 9))], None]) for name in names]
    return names, draw(st.lists(st.tuples(*values, few_bits | st.none()), max_size=30))


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    table=scoped_tables(),
    design=st.sampled_from([(4, 1, 0), (2, 1, 0), (5, 2, 0), (4, 1, 4)]),
    within=st.integers(0, 64),
    data=st.data(),
)
def test_searches_find_what_brute_force_finds_in_the_scope(connection, storage, table, design, within, data):
    names, rows = table
    with connection.transaction(force_rollback=True):
        columns = [
            sql.SQL("{} " + COLUMNS[name][0]).format(sql.Identifier(name)).as_string(connection) for name in names
        ]
        create_scoped(connection, columns, names, rows[::2], design, storage)
        insert(connection, rows[1::2])
        if rows:
            # A row moves to the scope of another one, and a third goes.
            moved, target, gone = (data.draw(st.integers(1, len(rows))) for _ in range(3))
            assignments = sql.SQL(", ").join(sql.SQL("{0} = o.{0}").format(sql.Identifier(name)) for name in names)
            ids = [found for (found,) in connection.execute("SELECT id FROM article ORDER BY id")]
            connection.execute(
                sql.SQL("UPDATE article AS a SET {} FROM article AS o WHERE a.id = {} AND o.id = {}").format(
                    assignments, ids[moved - 1], ids[target - 1]
                )
            )
            connection.execute("DELETE FROM article WHERE id = %s", [ids[gone - 1]])
        rows = connection.execute(
            sql.SQL("SELECT {}, print FROM article").format(sql.SQL(", ").join(map(sql.Identifier, names)))
        ).fetchall()
        assert missing_keys(connection) == []
        assert problems(connection) == set()
        scopes = {scope for *scope_, _ in rows if None not in (scope := tuple(scope_))}
        for values in [*sorted(scopes, key=str)[:3], tuple(COLUMNS[name][1][0] for name in names)]:
            fingerprints = [found for *scope, found in rows if tuple(scope) == values]
            check(connection, dict(zip(names, values, strict=True)), fingerprints, within, (0, -1))


@pytest.mark.parametrize(("design", "probed"), [((4, 1, 0), 7), ((5, 2, 0), 4)], ids=str)
def test_each_strategy_is_chosen_by_the_size_of_the_scope(connection, design, probed):
    """Not by that of the table: tenant 1 has most of the rows."""
    fingerprints = oracle.clustered(12_000, seed=31)
    sizes = {1: fingerprints[:11_500], 2: fingerprints[11_000:]}
    rows = [(tenant, found) for tenant, those in sizes.items() for found in those]
    create_scoped(connection, rows=rows, design=design)
    for tenant, those in sizes.items():
        for within, strategy in ((3, "exact"), (probed, "probes" if tenant == 1 else "scan"), (20, "scan")):
            scope = {"tenant": tenant}
            assert explain(connection, scope, within)[0].startswith(f"strategy: {strategy},")
            queries = [0, those[9]]
            assert search(connection, "near", scope, within, queries) == expected("near", those, within, queries)


@pytest.mark.parametrize(
    ("strategy", "queries", "keys"), [("probes", 1, 10**7), ("join", 10**7, 10**6), ("scan", 10, 10)]
)
def test_near_many_keeps_to_the_scope_however_it_searches(connection, strategy, queries, keys):
    fingerprints = oracle.clustered(300, seed=32)
    create_scoped(connection, rows=[(number % 3, found) for number, found in enumerate(fingerprints)])
    connection.execute("DELETE FROM article WHERE id % 7 = 0")
    live = [row[0] for row in connection.execute("SELECT print FROM article WHERE tenant = 1")]
    wanted = sorted({*fingerprints[:50], 0, -1})
    for within in (0, 3, 7):
        chosen, statements = near_many_statements(connection, queries, keys, within, '{"tenant": 1}')
        assert chosen == strategy
        found = run_statements(connection, statements, wanted, within)
        assert found == expected("near_many", live, within, wanted)


@pytest.mark.every_version
def test_near_rows_are_those_of_the_scope(articles):
    rows = articles.execute(
        "SELECT id FROM simsql.near_rows(NULL::article, 1, 1, scope => jsonb_build_object('tenant', 2))"
    )
    assert sorted(rows.fetchall()) == [(4,), (5,), (10,)]


def test_the_same_fingerprint_in_two_scopes_is_two(articles):
    assert search(articles, "near", {"tenant": 1}, 0, [1]) == search(articles, "near", {"tenant": 2}, 0, [1])
    articles.execute("DELETE FROM article WHERE tenant = 1 AND print = 1")
    assert search(articles, "near", {"tenant": 1}, 0, [1]) == []
    assert search(articles, "near", {"tenant": 2}, 0, [1]) == [(1, 1, 0)]
    check_tenants(articles)


@pytest.mark.every_version
def test_pairs_of_all_scopes_by_a_lateral_join(articles):
    found = articles.execute(
        "SELECT s.tenant, p.a, p.b FROM (SELECT DISTINCT tenant FROM article WHERE tenant IS NOT NULL) AS s"
        " CROSS JOIN LATERAL simsql.pairs('article', 1, scope => jsonb_build_object('tenant', s.tenant)) AS p"
    )
    assert sorted(found.fetchall()) == [(1, 0, 1), (2, 1, 3)]


# What is written


WRITES = [
    "INSERT INTO article (tenant, print) VALUES (1, 15), (2, 15), (3, 15), (NULL, 31), (3, NULL)",
    "UPDATE article SET tenant = 3 WHERE id IN (1, 5)",
    "UPDATE article SET tenant = 3 - tenant",
    "UPDATE article SET tenant = print, print = tenant WHERE print < 9 AND print > -1",
    "UPDATE article SET tenant = 4, print = print # 1 WHERE id < 6",
    "UPDATE article SET tenant = NULL WHERE print = 1",
    "UPDATE article SET tenant = 2 WHERE tenant IS NULL",
    "INSERT INTO article (id, tenant, print) OVERRIDING SYSTEM VALUE VALUES (1, 2, 0), (50, 1, 3)"
    " ON CONFLICT (id) DO UPDATE SET tenant = excluded.tenant",
    "DELETE FROM article WHERE id IN (2, 4)",
    "TRUNCATE article",
]


def test_every_way_to_write_keeps_every_scope_exact(articles):
    for statement in WRITES:
        with articles.transaction(force_rollback=True):
            articles.execute(statement)
            check_tenants(articles, (0, 3))


@pytest.mark.every_version
def test_copy_and_merge_keep_every_scope_exact(articles, server):
    with articles.cursor().copy("COPY article (tenant, print) FROM STDIN") as copy:
        for row in ([1, 12], [2, 12], [None, 12], [7, -(2**63)], [7, None]):
            copy.write_row(row)
    if server.major >= 15:
        articles.execute(
            "MERGE INTO article AS a USING (VALUES (1, 2), (90, 1)) AS n (id, tenant) ON a.id = n.id"
            " WHEN MATCHED THEN UPDATE SET tenant = n.tenant"
            " WHEN NOT MATCHED THEN INSERT (tenant, print) VALUES (n.tenant, 99)"
        )
    check_tenants(articles)


def test_only_a_new_pair_of_scope_and_fingerprint_adds_keys(articles):
    assert count_keys(articles) == [6] * 4  # neither those of no tenant nor one twice
    articles.execute("UPDATE article SET tenant = tenant, print = print")
    articles.execute("ALTER TABLE article ADD COLUMN body text")
    articles.execute("UPDATE article SET body = 'new'")
    articles.execute("UPDATE article SET tenant = NULL WHERE id = 1")
    assert count_keys(articles) == [6] * 4
    articles.execute("UPDATE article SET tenant = 9 WHERE id = 2")
    assert count_keys(articles) == [7] * 4


def test_a_stored_generated_column_is_a_scope(connection):
    create_scoped(connection, ["name text", "tenant integer GENERATED ALWAYS AS (length(name)) STORED"], rows=[])
    connection.execute("INSERT INTO article (name, print) VALUES ('a', 0), ('b', 1), ('cc', 3)")
    connection.execute("UPDATE article SET name = 'dd' WHERE name = 'b'")
    check_tenants(connection)


# What is read


def test_a_search_touches_its_scope_alone(connection):
    """100,000 rows in 200 scopes of 500."""
    fingerprint = "('x' || md5(i::text))::bit(64)::bigint"
    connection.execute("CREATE UNLOGGED TABLE article (tenant text, print bigint)")
    connection.execute(
        f"INSERT INTO article SELECT 'tenant ' || i % 200, {fingerprint} FROM generate_series(1, 100000) AS i"
    )
    # Each has near neighbours at some distance, in its own scope and in the next one.
    connection.execute(
        "UPDATE article SET print = o.print # ((1::bigint << (o.print & 7)::integer) | 7 << 30)"
        " FROM (SELECT min(ctid) AS place, tenant FROM article GROUP BY tenant) AS f"
        " JOIN (SELECT tenant, max(print) AS print FROM article GROUP BY tenant) AS o USING (tenant)"
        " WHERE article.ctid = f.place"
    )
    create_index(connection, ["tenant"])
    connection.execute("VACUUM ANALYZE")
    rows = connection.execute("SELECT tenant, print FROM article").fetchall()
    whole = connection.execute("SELECT pg_relation_size('simsql.keys_1_0') / 8192").fetchone()[0]
    assert whole > 500  # pages
    for tenant in ("tenant 0", "tenant 117"):
        fingerprints = [found for of, found in rows if of == tenant]
        assert len(fingerprints) == 500
        queries = [*random.Random(5).sample(fingerprints, 8), max(fingerprints), 0]
        for within in (3, 7, 20):
            check_near = [
                search(connection, function, {"tenant": tenant}, within, queries) for function in SEARCHES[:2]
            ]
            assert check_near == [expected("near", fingerprints, within, queries)] * 2
            assert len(check_near[0]) >= len(queries) - 1 + (within > 3)
            strategy, plan = explain(connection, {"tenant": tenant}, within, max(fingerprints))
            assert strategy.startswith("strategy: exact" if within == 3 else "strategy: scan")
            conditions = re.findall(
                r"Index Only Scan using keys_1_(\d)_scope_1_key_idx .*\n +Index Cond: \(+scope_1 = \$\d+\)(.*)",
                plan,
            )
            if within == 3:
                assert [table for table, _ in conditions] == list("0123")
                assert all(re.match(r" AND \(key >= .* AND \(key <= ", bounds) for _, bounds in conditions)
            else:
                assert conditions == [("0", " AND (key IS NOT NULL))")]
            assert re.search(r"article t .*\n +Index Cond: \(\(tenant = \$\d+\) AND \(print = ", plan)
            assert not re.search("Seq Scan|Bitmap|Hash Join", plan)
            read = sum(map(int, re.search(r"Buffers: shared hit=(\d+)(?: read=(\d+))?", plan).groups("0")))
            assert read < 60 < whole / 8
    assert search(connection, "pairs", {"tenant": "tenant 3"}, 7) == expected(
        "pairs", [found for of, found in rows if of == "tenant 3"], 7
    )


@pytest.mark.every_version
def test_a_large_scope_is_probed_by_index_conditions(connection):
    fingerprints = oracle.clustered(6_000, seed=33)
    create_scoped(connection, rows=[(1 + number // 5_000, found) for number, found in enumerate(fingerprints)])
    connection.execute("VACUUM ANALYZE")
    strategy, plan = explain(connection, {"tenant": 1}, 7, 0x0123456789ABCDEF)
    assert strategy.startswith("strategy: probes")
    assert len(re.findall(r"Index Cond: \(\(scope_1 = \$\d+\) AND \(key >= .*\) AND \(key <= ", plan)) == 4


@pytest.fixture
def new_index(connection):
    """A scoped index on random fingerprints, which nobody has analyzed yet."""
    chance = random.Random(35)
    create_scoped(connection, rows=[(number % 4, chance.getrandbits(64) - 2**63) for number in range(24_000)])
    return connection


@pytest.mark.every_version
def test_a_new_index_is_probed_by_index_conditions(new_index, new_role, connect):
    role = new_role()
    new_index.execute(f"GRANT SELECT ON article TO {role}")
    (known,) = new_index.execute("SELECT print FROM article WHERE tenant = 1 LIMIT 1").fetchone()
    probe = r"keys_1_(\d)_.* loops=(\d+)\)\n +Index Cond: \(\(scope_1 = \$\d+\) AND \(key >= .* AND \(key <= "
    for session in (new_index, connect(role)):
        for within, probes in ((7, 17), (8, 137)):
            strategy, plan = explain(session, {"tenant": 1}, within, known)
            assert strategy.startswith("strategy: probes")
            assert "Join Filter" not in plan
            assert re.findall(probe, plan) == [(str(table), "17" if table else str(probes)) for table in range(4)]
            assert re.search(r"article t .*\n +Index Cond: \(\(tenant = \$\d+\) AND \(print = ", plan)


@pytest.mark.every_version
def test_near_many_probes_a_new_index_by_index_conditions(new_index):
    strategy, statements = near_many_statements(new_index, 5, 6000, 7, '{"tenant": 1}')
    assert strategy == "probes"
    with new_index.transaction(force_rollback=True):
        for setting in ("seqscan", "bitmapscan", "hashjoin", "mergejoin", "hashagg"):
            new_index.execute(f"SET LOCAL enable_{setting} = off")
        for number, statement in enumerate(statements):
            new_index.execute(f"PREPARE m{number} (bigint[], integer) AS {statement}")
            rows = new_index.execute(f"EXPLAIN EXECUTE m{number} ('{{1,2,3,4,5}}', 7)").fetchall()
            plan = "\n".join(line for (line,) in rows)
            assert "Join Filter" not in plan
            assert re.search(
                r"keys_1_\d k .*\n +Index Cond: \(\(scope_1 = 1\) AND \(key >= .* AND \(key <= ", plan
            )
            assert re.search(r"article t .*\n +Index Cond: \(\(tenant = 1\) AND \(print = ", plan)


def test_an_ordinary_role_reads_by_index_conditions_too(articles, new_role, connect):
    role = new_role()
    articles.execute(f"GRANT SELECT ON article TO {role}")
    for within in (3, 40):
        plan = explain(connect(role), {"tenant": 2}, within)[1]
        conditions = re.findall(r"(\w+ \w+): \(+scope_1 = ", plan)
        assert conditions == ["Index Cond"] * (4 if within == 3 else 1)


def test_whoever_may_not_read_the_scope_reads_no_keys(articles, new_role, connect):
    role = new_role()
    reader = connect(role)
    articles.execute(f"GRANT SELECT (print) ON article TO {role}")
    assert reader.execute("SELECT * FROM simsql.keys_1_0").fetchall() == []
    with pytest.raises(errors.InsufficientPrivilege):
        search(reader, "near", {"tenant": 1}, 3)
    articles.execute(f"GRANT SELECT (tenant) ON article TO {role}")
    check(reader, {"tenant": 1}, [0, 1, 7, None])


# What is refused


NO_SCOPES = [
    (None, r"a search in the simhash index on public\.article\(print\) needs a scope"),
    ({}, "no value for tenant"),
    ({"tenant": None}, "tenant is null"),
    ({"tenant": [1]}, r"tenant is \[1\]"),
    ({"Tenant": 1}, 'no value for tenant, no such column: "Tenant"'),
    ({"tenant": 1, "print": 2}, "no such column: print"),
    ([1], r"scope must be a JSON object, not \[1\]"),
]


def test_a_search_needs_a_value_of_each_scope_column(articles):
    for function in SEARCHES:
        for scope, message in NO_SCOPES:
            with pytest.raises(errors.InvalidParameterValue, match=message) as caught:
                search(articles, function, scope, 3)
            assert "scope => jsonb_build_object('tenant', ...)" in caught.value.diag.message_hint


def test_an_index_without_a_scope_is_searched_without_one(connection):
    create_scoped(connection, scope=())
    message = r"index on public\.article\(print\) has no scope"
    for function in SEARCHES:
        with pytest.raises(errors.InvalidParameterValue, match=message):
            search(connection, function, {"tenant": 1}, 3)
    with pytest.raises(errors.InvalidParameterValue, match=message):
        explain(connection, {"tenant": 1}, 3)


def test_a_value_that_the_column_cannot_have_is_an_error(articles):
    for function in SEARCHES:
        with pytest.raises(errors.InvalidTextRepresentation, match='type integer: "one"'):
            search(articles, function, {"tenant": "one"}, 3)


@pytest.mark.parametrize(
    ("scope", "error", "message"),
    [
        (["missing"], errors.UndefinedColumn, "has no column missing"),
        (["Tenant"], errors.UndefinedColumn, 'has no column "Tenant"'),
        (["ctid"], errors.UndefinedColumn, "has no column ctid"),
        (["print"], errors.InvalidParameterValue, r"article\(print\) cannot have the scope {print}"),
        (["tenant", "tenant"], errors.InvalidParameterValue, "cannot have the scope {tenant,tenant}"),
        (["tenant", None], errors.InvalidParameterValue, "cannot have the scope {tenant,NULL}"),
        (["a", "b", "c", "d", "e"], errors.InvalidParameterValue, "a scope has at most 4 columns, not 5"),
        (
            ["payload"],
            errors.DatatypeMismatch,
            "column payload of public.article is json, which cannot be in a scope",
        ),
        (["amount"], errors.DatatypeMismatch, r"column amount of public.article is numeric\(9,2\), which cannot"),
        (
            ["flags"],
            errors.DatatypeMismatch,
            r"column flags of public.article is bit\(3\), which cannot be in a scope",
        ),
        (
            ["tags"],
            errors.DatatypeMismatch,
            r"tags of public.article is text\[\], which cannot be in a scope",
        ),
        (
            ["lang"],
            errors.DatatypeMismatch,
            "column lang of public.article is public.language, which cannot be in a scope",
        ),
        (
            ["virtual"],
            errors.FeatureNotSupported,
            "column virtual of public.article is a virtual generated column",
        ),
    ],
)
@pytest.mark.parametrize("function", ["SELECT simsql.create_index", "CALL simsql.build"])
def test_what_cannot_be_a_scope_is_refused(connection, scope, error, message, function):
    connection.execute(
        "CREATE TYPE language AS ENUM ('en', 'de');"
        "CREATE TABLE article (tenant integer, payload json, amount numeric(9, 2), tags text[], lang language,"
        " flags bit(3),"
        " virtual integer GENERATED ALWAYS AS (tenant + 1) VIRTUAL, print bigint)"
    )
    with pytest.raises(error, match=message) as caught:
        connection.execute(f"{function}('article', 'print', scope => %s)", [scope])
    assert caught.value.diag.message_hint
    assert connection.execute("SELECT FROM simsql.indexes").fetchall() == []


# Types


TYPES = {
    "boolean": ([True, False], True),
    "smallint": ([1, -1], 1),
    "bigint": ([2**62, 1], 2**62),
    "varchar(3)": (["abc", "ab"], "abc"),
    "char(4)": (["ab", "abcd"], "ab"),
    "date": (["2024-05-06", "2024-06-05"], "2024-05-06"),
    "timestamptz": (["2024-05-06 10:00:00+00", "2024-05-06 11:00:00+00"], "2024-05-06 12:00:00+02"),
    "double precision": ([0.1, 0.30000000000000004], 0.30000000000000004),
    "short": (["abc", "ab"], "abc"),
    'text COLLATE "C"': (["ä", "a"], "ä"),
}


def test_a_scope_of_any_plain_type(connection):
    connection.execute("SET datestyle = 'SQL, DMY'; SET extra_float_digits = -5")
    connection.execute("CREATE DOMAIN short AS varchar(3) CHECK (value <> '')")
    set_batch_size(connection, 2)
    for type_, (values, query) in TYPES.items():
        check_type(connection, type_, values, query)


@pytest.mark.every_version
def test_values_that_a_collation_takes_as_equal_are_one_scope(connection, server):
    try:
        connection.execute(
            "CREATE COLLATION ignoring (provider = icu, locale = 'und-u-ks-level2', deterministic = false)"
        )
    except errors.FeatureNotSupported:
        pytest.skip(f"{server.program} has no ICU")
    check_type(connection, "text COLLATE ignoring", ["Mix", "other"], "mIX")
    create_scoped(connection, ["tenant text COLLATE ignoring"], rows=[("Mix", 0), ("MIX", 0), ("mix", 1)])
    (index,) = connection.execute("SELECT id FROM simsql.indexes").fetchone()
    assert count_keys(connection, index) == [2] * 4
    connection.execute("UPDATE article SET tenant = 'miX'")
    assert count_keys(connection, index) == [2] * 4
    check(connection, {"tenant": "mIX"}, [0, 0, 1])


def check_type(connection, type_, values, query):
    """Of two values of a type, the query is equal to the second one or, by whatever text, to the first."""
    found = [0, 3] if query == values[1] else [0, 1]
    rows = [(values[0], 0), (values[0], 1), (values[1], 0), (values[1], 3), (None, 1)]
    create_scoped(connection, [f"tenant {type_}"], rows=rows, design=(2, 1, 0))
    expected_keys = stored_keys(connection)
    connection.execute("SELECT simsql.drop_index('article')")
    connection.execute("CALL simsql.build('article', 'print', blocks => 2, scope => '{tenant}')")
    assert stored_keys(connection) == expected_keys
    check(connection, {"tenant": query}, found)
    connection.execute("UPDATE article SET tenant = (SELECT tenant FROM article WHERE id = 4) WHERE id = 2")
    connection.execute("CALL simsql.vacuum('article')")
    assert problems(connection) == set()
    check(connection, {"tenant": query}, [0] if found == [0, 1] else [0, 3, 1])
    assert connection.execute("SELECT count(*) FROM simsql.repair('article')").fetchone() == (0,)
    connection.execute("SELECT simsql.drop_index('article'); DROP TABLE article")


@pytest.mark.parametrize("type_", ["varchar(3)", "char(3)", "short"])
def test_a_value_too_long_for_the_column_is_in_no_scope(connection, type_):
    connection.execute("CREATE DOMAIN short AS varchar(3)")
    create_scoped(connection, [f"tenant {type_}"], rows=[("abc", 0), ("abc", 1)])
    for function in SEARCHES:
        assert search(connection, function, {"tenant": "abcd"}, 3) == []
        assert search(connection, function, {"tenant": "abc"}, 3) != []
