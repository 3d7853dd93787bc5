"""explain_near shows what near runs, and what near runs is index-only probes for whoever asks."""

import itertools
import re

import psycopg
import pytest
from articles import create_articles, create_index, near
from internals import key_tables, stamp
from oracle import clustered
from psycopg import errors
from servers import find_programs

pytestmark = pytest.mark.oldest_version

PROGRAMS = find_programs()
FINGERPRINTS = clustered(5_000, seed=9)
QUERY = 0x0123456789ABCDEF
# (distance, strategy, probes) for four blocks with one in the lead and this many fingerprints.
SEARCHES = [(3, "exact", 4), (7, "probes", 68), (40, "scan", 1)]


# Between the plans of a search and those of the one that begins again where it met too many candidates.
SKIPPED = "equal keys are skipped"


def explain(connection, within, query=QUERY):
    rows = connection.execute("SELECT simsql.explain_near('article', %s, %s)", [query, within]).fetchall()
    return rows[0][0], "\n".join(line for (line,) in rows[1:])


# What a table may hold, by the expression of row i.
RANDOM = "('x' || substr(md5(i::text), 1, 16))::bit(64)::bigint"
# All prefixes are equal but those of the last block.
SKEWED = "(i %% 65536) | (81985529216486895 & -65536)"


def fill_articles(connection):
    create_articles(connection, FINGERPRINTS)
    connection.execute("VACUUM ANALYZE")


@pytest.fixture
def reader(articles, new_role, connect):
    """A connection of a role that may read the table and nothing else."""
    role = new_role()
    articles.execute(f"GRANT SELECT ON article TO {role}")
    return connect(role)


@pytest.mark.parametrize(("within", "strategy", "probes"), SEARCHES)
def test_the_explained_statement_is_in_the_function_that_near_calls(articles, within, strategy, probes):
    assert explain(articles, within)[0].startswith(f"strategy: {strategy}, ")
    (statement,) = articles.execute(
        "SELECT simsql._search_statement(r, %s) FROM simsql.registry AS r", [strategy]
    ).fetchone()
    function = "scan_1" if strategy == "scan" else "search_1"
    (source,) = articles.execute("SELECT prosrc FROM pg_proc WHERE proname = %s", [function]).fetchone()
    assert source.count(statement) == 1


@pytest.mark.parametrize("user", ["superuser", "reader"])
@pytest.mark.parametrize(("within", "probes"), [(3, 1), (7, 17)])
def test_each_key_table_is_probed_through_its_index_alone(articles, reader, user, within, probes):
    _, plan = explain(reader if user == "reader" else articles, within)
    scans = re.findall(r"Index Only Scan using keys_1_(\d)_key_idx on keys_1_\1 .*loops=(\d+)\)\n(.*\n)", plan)
    assert [(table, int(loops)) for table, loops, _ in scans] == [(str(table), probes) for table in range(4)]
    for _, _, condition in scans:
        assert re.search(r"Index Cond: \(\(key >= .*\) AND \(key <= ", condition)
    assert "Seq Scan on keys_1" not in plan
    assert "Hash" not in plan
    assert set(re.findall(r"Heap Fetches: (\d+)", plan)) == {"0"}


@pytest.mark.parametrize("distribution", [RANDOM, SKEWED], ids=["random", "skewed"])
def test_plans_stay_index_only_probes_however_large_the_table_is(connection, server, distribution):
    """In one session, so that a plan made for a small table meets a large one."""
    connection.execute("CREATE UNLOGGED TABLE article (fingerprint bigint)")
    create_index(connection)
    rows = 0
    largest = 50_000 if distribution is SKEWED else 100_000
    if distribution is RANDOM and server.program == PROGRAMS[0]:
        largest = 400_000  # takes its time: on the newest server only
    for size in (0, 100, largest):
        connection.execute("ALTER TABLE article DISABLE TRIGGER simsql_1_insert")
        connection.execute(
            f"INSERT INTO article SELECT {distribution} FROM generate_series(%s::bigint + 1, %s) AS i",
            [rows, size],
        )
        connection.execute("ALTER TABLE article ENABLE ALWAYS TRIGGER simsql_1_insert")
        fill_keys(connection, rows)
        stamp(connection)
        connection.execute("VACUUM ANALYZE")
        rows = size
        for within in (3, 7, 10):
            strategy, plan = explain(connection, within, 0x0123456789AB0003)
            if not size or (size == 100 and within > 3):
                assert strategy.startswith("strategy: scan") == (within > 3)
                continue
            assert strategy.startswith("strategy: exact" if within == 3 else "strategy: probes")
            first, skipped, _ = plan.partition(SKIPPED)
            assert re.findall(r"\w+ Only Scan using (keys_1_\d)_key_idx", first) == [
                f"keys_1_{table}" for table in range(4)
            ]
            # The one that skips reads the rest of a range from another key on.
            assert plan.count("Index Cond: ((key >=") == (8 if skipped else 4)
            assert plan.count("Index Cond: ((key >") == (12 if skipped else 4)
            assert not re.search(r"Seq Scan|Bitmap|Hash|Materialize|Merge Join|Parallel", plan)
            # What is sorted are matches, not candidates.
            found = near(connection, 0x0123456789AB0003, within)
            sorted_rows = re.findall(r"Sort +\(cost=\S+ rows=\d+ width=\d+\) \(actual time=\S+ rows=(\d+)", plan)
            assert sum(map(int, sorted_rows)) <= 4 * len(found)


def fill_keys(connection, rows):
    """The keys of all rows after so many; sorted, so that their pages are as after a build."""
    for keys in key_tables(connection, fingerprint="t.fingerprint"):
        connection.execute(
            f"INSERT INTO simsql.{keys.name} SELECT DISTINCT {keys.key} FROM"
            " (SELECT * FROM article OFFSET %s) AS t ORDER BY 1",
            [rows],
        )


def test_a_scan_reads_one_key_table_from_end_to_end_without_its_index(articles):
    _, plan = explain(articles, 40)
    assert re.findall(r"Seq Scan on (keys_1_\d)", plan) == ["keys_1_0"]
    assert "using keys_1" not in plan
    assert "on article t" in plan
    assert "Seq Scan on article" not in plan  # as a hash join reads it


@pytest.mark.parametrize("within", [3, 7])
def test_an_ordinary_role_reads_no_more_keys_than_a_superuser(articles, reader, within):
    def removed(connection):
        return [int(rows) for rows in re.findall(r"Rows Removed by Filter: (\d+)", explain(connection, within)[1])]

    # Random prefixes: few of 5,000 keys share one. As a filter, a bound would have read all of them.
    assert sum(removed(reader)) <= sum(removed(articles)) < 200


@pytest.mark.every_version
def test_near_runs_the_plan_that_explain_near_shows(articles, server):
    """Held against auto_explain, where the server has it."""
    try:
        articles.execute("LOAD 'auto_explain'")
    except errors.UndefinedFile:
        pytest.skip(f"{server.program} has no auto_explain")
    for name, value in (
        ("auto_explain.log_min_duration", "0"),
        ("auto_explain.log_nested_statements", "on"),
        ("auto_explain.log_analyze", "off"),
        ("auto_explain.log_level", "notice"),
    ):
        articles.execute("SELECT set_config(%s, %s, false)", [name, value])
    for (within, strategy, _), query in itertools.product(SEARCHES, [QUERY, FINGERPRINTS[0]]):
        logged: list[str] = []
        handler = lambda diagnostic, logged=logged: logged.append(diagnostic.message_primary)  # noqa: E731
        articles.add_notice_handler(handler)
        articles.execute("SELECT * FROM simsql.near('article', %s, %s)", [query, within])
        articles.remove_notice_handler(handler)
        run = [message for message in logged if re.search(r"AS c\s+LIMIT|SELECT DISTINCT bit_count", message)]
        assert len(run) == (2 if query != QUERY and strategy != "scan" else 1)
        assert nodes("\n".join(run)) == nodes(explain(articles, within, query)[1]), strategy


def nodes(plan):
    """The nodes of a plan with their objects, in order, without costs and counts."""
    return re.findall(r"^ *(?:->  )?(\w[^(\n]*?) +\(cost=", plan, flags=re.MULTILINE)


def test_explaining_without_the_right_to_search_is_an_error_every_time(articles, new_role, connect):
    outsider = connect(new_role())
    for _ in range(2):
        with pytest.raises(errors.InsufficientPrivilege):
            explain(outsider, 3)


def test_a_statement_of_the_caller_is_left_alone(articles):
    explain(articles, 3)
    explain(articles, 7)
    assert articles.execute("SELECT name FROM pg_prepared_statements WHERE name ~ 'simsql'").fetchall() == []


def test_explain_near_reports_the_distance_of_the_index_where_none_is_named(articles: psycopg.Connection):
    assert explain(articles, None)[0] == "strategy: exact, radius: 0"
