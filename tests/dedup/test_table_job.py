"""Decisions about the rows of a table that exists, as one snapshot shows them, compared with all pairs."""

import contextlib
import itertools
import random
from collections import namedtuple
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from hashlib import sha256

import pytest
from corpus import make_texts
from minima import are_candidates
from program import wait_until
from psycopg import Connection, Error, errors
from sqlalchemy import event, make_url
from stages import Stages

from simsql import Recipe, simhash, visible_text
from simsql.database import open_engine
from simsql.decide.rules import Keep, Rules
from simsql.dedup.sources.table import TableOptions
from simsql.dedup.table_job import dedup_table
from simsql.errors import SimsqlError, UsageError
from simsql.fingerprint import DEFAULT_RECIPE, Pattern
from simsql.fingerprint.extract import find_tokens

ALIKE = "the quick brown fox jumps over the lazy dog near the river bank at dawn"
OTHER = "a ship of iron sails across the northern ocean with salt and timber"


Outcome = namedtuple("Outcome", "source sink explanation")


@pytest.fixture
def dedup(database_url):
    """Run the job as a role; the arguments are those of TableOptions, without the rules those of Rules."""
    engines = []

    def run(table="article", text_column="body", into="decisions", *, user="postgres", stages=None, **options):
        engines.append(open_engine(make_url(database_url).set(username=user)))
        rules = Rules(**{field.name: options.pop(field.name) for field in fields(Rules) if field.name in options})
        texts = text_column if isinstance(text_column, dict) else {text_column: None}
        chosen = TableOptions(table, texts, into, rules=rules, **options)
        return Outcome(*dedup_table(engines[-1], chosen, stages or Stages()))

    yield run
    for engine in engines:
        engine.dispose()


def create_article(connection: Connection, texts: dict[int, str | None]) -> None:
    connection.execute("CREATE TABLE article (id int PRIMARY KEY, body text)")
    with connection.cursor() as cursor, cursor.copy("COPY article FROM STDIN") as copy:
        for row in texts.items():
            copy.write_row(row)


def decided(connection: Connection, into="decisions") -> dict[int, tuple]:
    """The decision about each row: kept, distance, similarity, drop, representative."""
    return {row[0]: row[1:-3] for row in connection.execute(f"TABLE {into}")}


# An oracle


def by_sets(a: str, b: str) -> float:
    padded = (["", "", *some, "", ""] for some in find_tokens([a, b], DEFAULT_RECIPE))
    first, second = (set(zip(some, some[1:], some[2:], strict=False)) for some in padded)
    return len(first & second) / len(first | second)


def expected(texts, rules, criterion=lambda key: 0, recipe=DEFAULT_RECIPE):
    """The decisions by their definition, for texts of which only equal ones have the same length."""
    prints = {key: simhash(text, recipe) for key, text in texts.items()}
    nodes = {}
    for key, text in texts.items():
        words = tuple(find_tokens([text], DEFAULT_RECIPE)[0]) if rules.similarity else None
        nodes.setdefault((words, prints[key]), []).append(key)
    members = [sorted(keys, key=lambda key: (-criterion(key), -len(texts[key]), key)) for keys in nodes.values()]
    best = [keys[0] for keys in members]

    def closeness(a, b):
        bits = (prints[a] ^ prints[b]).bit_count()
        if not rules.similarity:
            return 1 - bits / 64 if bits <= rules.distance else -1
        chosen = are_candidates(texts[a], texts[b], rules.distance, rules.similarity, recipe)
        return by_sets(texts[a], texts[b]) if chosen else -1

    close = {(a, b): closeness(a, b) for a in best for b in best}
    central = {a: sum(close[a, b] for b in best if b != a and close[a, b] >= rules.drop) for a in best}
    order = sorted(best, key=lambda key: (-criterion(key), -round(central[key], 9), -len(texts[key])))

    def stars(among, least):
        centres = []
        for key in among:
            if all(close[key, centre] < least for centre in centres):
                centres.append(key)
        return {
            key: key
            if key in centres
            else max(centres, key=lambda centre: (close[key, centre], -order.index(centre)))
            for key in among
        }

    kept = stars(order, rules.drop)
    star = stars([key for key in order if kept[key] == key], rules.similarity)
    found = {}
    for keys in members:
        target = kept[keys[0]]
        likeness = 1.0 if keys[0] == target else close[keys[0], target]
        for key in keys:
            found[key] = (
                target,
                (prints[key] ^ prints[target]).bit_count(),
                pytest.approx(likeness) if rules.similarity else None,
                key != target,
                star[target],
            )
    return found


def of_different_lengths(texts: list[str]) -> dict[int, str]:
    """The texts in random places, some of them twice, each with dots until no other has its length."""
    chance = random.Random(7)
    lengths, found = set(), []
    for text in texts:
        length = next(length for length in itertools.count(len(text)) if length not in lengths)
        lengths.add(length)
        found += [text.ljust(length, ".")] * chance.choice([1, 1, 1, 1, 2, 3])
    keys = chance.sample(range(10_000), len(found))
    return dict(zip(keys, found, strict=True))


TEXTS = of_different_lengths(list(make_texts(3, families=30, alone=10).values()))
RULES = {
    "defaults": {},
    "near": {"distance": 6, "similarity": 0.8},
    "far": {"distance": 14, "similarity": 0.4, "drop_similarity": 0.5},
    "fingerprints": {"distance": 8, "similarity": 0},
    "first": {"keep": Keep.FIRST},
    "longest": {"keep": Keep.LONGEST},
}


@pytest.mark.parametrize("rules", RULES)
def test_decisions_are_those_of_all_pairs(connection, dedup, rules):
    create_article(connection, TEXTS)
    summary = dedup(**RULES[rules])
    criterion = {"first": lambda key: -key, "longest": lambda key: len(TEXTS[key])}.get(rules, lambda key: 0)
    found = decided(connection)
    assert found == expected(TEXTS, Rules(**RULES[rules]), criterion)
    sizes = [[row[4] for row in found.values()].count(key) for key in {row[4] for row in found.values()}]
    assert summary.sink.clusters == sum(size > 1 for size in sizes) > 5
    assert summary.sink.members == sum(size for size in sizes if size > 1)
    assert summary.sink.droppable == sum(row[3] for row in found.values()) > 20
    assert summary.sink.decided == len(summary.source.order.place) == len(TEXTS)


def test_neither_the_order_of_rows_nor_workers_matter(connection, dedup):
    create_article(connection, TEXTS)
    dedup()
    connection.execute("CREATE TABLE sorted AS TABLE article ORDER BY body")
    connection.execute("ALTER TABLE sorted ADD PRIMARY KEY (id)")
    dedup("sorted", into="again", workers=2)
    assert decided(connection, "again") == decided(connection)


def test_a_row_with_the_highest_value_is_kept(connection, dedup):
    create_article(connection, dict.fromkeys(range(1, 7), ALIKE))
    connection.execute("ALTER TABLE article ADD score numeric(6, 2)")
    connection.execute(
        "UPDATE article SET score = v FROM (VALUES (2, 7), (4, 10.5), (5, 10.5)) AS s (k, v) WHERE id = k"
    )
    dedup(keep_field="score")
    assert {row[0] for row in decided(connection).values()} == {4}
    unread = Stages(read=pytest.fail)
    with pytest.raises(UsageError, match="article has no column points"):
        dedup(keep_field="points", into="others", stages=unread)
    connection.execute("ALTER TABLE article ADD data json")
    with pytest.raises(Error, match="could not identify an ordering operator for type json"):
        dedup(keep_field="data", into="others", stages=unread)
    assert connection.execute("SELECT to_regclass('others')").fetchone() == (None,)


# Several columns, and columns of HTML


def split_texts(connection: Connection) -> None:
    """Give the table the columns `title` and `rest`, of which `body` is made, and some nulls."""
    connection.execute(
        'ALTER TABLE article ADD title varchar(99), ADD rest text COLLATE "C";'
        " UPDATE article SET title = nullif(left(body, 9), ''), rest = substr(body, 10) WHERE id % 5 > 0;"
        " UPDATE article SET title = NULL, rest = body WHERE id % 5 = 0;"
        r" UPDATE article SET body = CASE WHEN num_nulls(title, rest) < 2 THEN concat_ws(E'\n', title, rest) END"
    )


def test_decisions_about_several_columns_are_those_about_the_joined_texts(connection, dedup, tmp_path):
    create_article(connection, TEXTS | {20_001: None, 20_002: "", 20_005: ""})
    split_texts(connection)
    pages = tmp_path / "one.html", tmp_path / "two.html"
    one = dedup(report=pages[0])
    two = dedup(text_column={"title": None, "rest": None}, into="joined", report=pages[1])
    assert one.source.undecided() == two.source.undecided()
    assert len(one.source.skips.by_reason) == 0 < two.sink.droppable
    rows = [connection.execute(f"TABLE {name} ORDER BY id").fetchall() for name in ("decisions", "joined")]
    assert rows[0] == rows[1]
    assert pages[0].read_bytes() == pages[1].read_bytes()
    other = dedup(text_column={"rest": None, "title": None}, into="other")
    assert other.sink.droppable != two.sink.droppable  # in another order
    with pytest.raises(UsageError, match="column id of article is integer, not text"):
        dedup(text_column={"title": None, "id": None}, into="no")


def test_a_function_makes_texts_of_the_values(connection, dedup):
    """Digests are of what is stored, so that the statement that deletes rows can compare them."""
    create_article(
        connection, {1: f"<p class=a>{ALIKE}</p>", 2: f"<div>{ALIKE}<!-- no --></div>", 3: "<br>", 4: None}
    )
    found = dedup(text_column={"body": visible_text})
    assert (found.sink.decided, found.sink.droppable) == (2, 1)
    (digest,) = connection.execute("SELECT text_digest FROM decisions WHERE id = 2").fetchone()
    assert digest == sha256(f"<div>{ALIKE}<!-- no --></div>".encode()).digest()
    assert found.source.undecided() == {"without a scope": 0, "without a text": 1, "without words": 1}


# A database that does not know the encoding of its texts


def test_a_text_that_is_not_utf8_is_counted_and_named(ascii_database, tmp_path):
    with ascii_database.begin() as connection:
        connection.exec_driver_sql('CREATE TABLE t (a text, "é" int, title text, body text, PRIMARY KEY (a, "é"))')
        connection.exec_driver_sql(
            r"INSERT INTO t VALUES ('x', 1, NULL, 'éa b c d e f g'), ('x', 2, 'É', 'A b C d E f g'),"
            r" (E'\350', 3, NULL, 'éa b c d e f g'), ('x', 4, E'rivi\350re', 'text'), (E'y\351', 5, 'a', E'\377')"
        )
    page = tmp_path / "report.html"
    options = TableOptions("t", {"title": None, "body": None}, "decisions", report=page)
    found = Outcome(*dedup_table(ascii_database, options, Stages()))
    assert (found.sink.decided, found.source.undecided()["not utf-8"]) == (3, 2)
    named = {skip.place: skip.detail for skip in found.source.skips.examples}
    wrong = "is not utf-8: it is damaged or in another encoding"
    assert named == {"row (x,4)": f"byte 5 of the text {wrong}", r"row (y\xe9,5)": f"byte 1 of the text {wrong}"}
    assert r"\\xe8,3" in page.read_text()
    for key, reason in (
        (r"(\xe8,3)", "they have the same words"),
        ("(x,4)", "(x,4) has a text that is not utf-8"),
    ):
        explain = TableOptions("t", {"title": None, "body": None}, explain=("(x,1)", key))
        assert dedup_table(ascii_database, explain, Stages())[2].reason.startswith(reason)
    with ascii_database.begin() as connection:
        kept = connection.exec_driver_sql('SELECT "é", "kept_é" FROM decisions WHERE drop').fetchall()
    assert len(kept) == 1


# Some of the rows, and scopes


@pytest.mark.parametrize("rules", ["defaults", "fingerprints"])
def test_decisions_in_scopes_are_those_of_each_scope_alone(connection, dedup, rules):
    """Scopes of two columns, of many sizes; the same texts are in all of them."""
    chance = random.Random(11)
    scopes = {
        key: chance.choice([("a", 1)] * 6 + [("a", 2), ("A", 1), ("b", 1), ("b", None), (None, None)])
        for key in TEXTS
    }
    create_article(connection, TEXTS)
    connection.execute("ALTER TABLE article ADD lang varchar(3), ADD tenant numeric")
    connection.cursor().executemany(
        "UPDATE article SET lang = %s, tenant = %s WHERE id = %s", [(*scope, key) for key, scope in scopes.items()]
    )
    summary = dedup(scope_columns=("lang", "tenant"), **RULES[rules])
    wanted = {}
    for scope in set(scopes.values()):
        if None not in scope:
            wanted |= expected({key: TEXTS[key] for key in TEXTS if scopes[key] == scope}, Rules(**RULES[rules]))
    assert decided(connection) == wanted
    assert summary.source.undecided()["without a scope"] == len(TEXTS) - len(wanted) > 0
    assert (len(summary.source.order.place), summary.sink.decided) == (len(TEXTS), len(wanted))
    # Every row in a scope of its own, and all in one.
    assert dedup(scope_columns=("id",), into="alone").sink.droppable == 0
    connection.execute("UPDATE article SET tenant = 1.0")
    assert dedup(scope_columns=("tenant",), into="together").sink.droppable == dedup(into="plain").sink.droppable


def test_a_condition_chooses_rows(connection, dedup, new_role):
    create_article(connection, TEXTS | {20_000: None})
    conditions = {
        "id % 2 = 1": lambda key: key % 2,
        "article.id < 5000 OR id > 9000 -- the rest is old": lambda key: key < 5000 or key > 9000,
        "EXISTS (SELECT FROM few WHERE few.id = article.id) /* ' \" $$ */": lambda key: key % 3 == 0,
        "body LIKE '%.%' AND '50%%' <> '{t}' AND U&'\\0028' = '('": lambda key: "." in TEXTS[key],
    }
    connection.execute("CREATE TABLE few AS SELECT id FROM article WHERE id % 3 = 0")
    for number, (condition, chosen) in enumerate(conditions.items()):
        dedup(where=condition, into=f"decisions_{number}")
        texts = {key: text for key, text in TEXTS.items() if chosen(key)}
        assert decided(connection, f"decisions_{number}") == expected(texts, Rules())
    for condition, message in {
        "": "syntax error",
        "id": "must be type boolean, not type integer",
        "true, true": "must be type boolean, not type record",
        "lang = 'en'": 'column "lang" does not exist',
        "id = 'x'": "invalid input syntax for type integer",
        "id = $1": "requires 1",
        "id = 1; DROP TABLE few": "syntax error",
        "true); DROP TABLE few; SELECT (true": "cannot insert multiple commands",
        "true); COMMIT; DROP TABLE few; SELECT FROM few AS t WHERE (true": "cannot insert multiple commands",
        "true) OR (true": "syntax error",
        "true) UNION SELECT FROM few WHERE (true": "syntax error",
        "true], ARRAY[true": "syntax error",
        "SELECT true": "syntax error",
        "true /*": "unterminated /* comment",
        "id > 0 OR body = '": "unterminated quoted string",
        "count(*) > 1": "aggregate functions are not allowed",
    }.items():
        with pytest.raises(UsageError) as error:
            dedup(where=condition, into="others")
        assert "--where is not a condition on the rows of article: " in str(error.value)
        assert message in str(error.value)
    with pytest.raises(SimsqlError, match="row-level security or --where selects different rows"):
        dedup(where="random() < 0.5", into="others")
    with pytest.raises(Error, match="division by zero"):
        dedup(where="1 / (id - id) > 0", into="others")
    # With the privileges of the role.
    role = new_role()
    connection.execute(f"GRANT SELECT ON article TO {role}; GRANT CREATE ON SCHEMA public TO {role}")
    with pytest.raises(UsageError, match="permission denied for table few"):
        dedup(where="EXISTS (TABLE few)", into="others", user=role)
    assert connection.execute("SELECT to_regclass('others')").fetchone() == (None,)


@pytest.mark.parametrize("kind", ["plain", "partition", "partitioned"])
def test_an_index_with_a_scope_needs_a_choice(connection, dedup, kind):
    partitioned = kind != "plain"
    connection.execute(
        "CREATE TABLE page (id int, tenant int, body text, fingerprint bigint, PRIMARY KEY (id, tenant))"
        + " PARTITION BY LIST (tenant); CREATE TABLE part PARTITION OF page DEFAULT" * partitioned
    )
    connection.execute(
        "SELECT simsql.create_index('page', 'fingerprint', recipe => 'words12-log-1', scope => '{tenant}')"
    )
    connection.execute("INSERT INTO page SELECT g, mod(g, 2), %s FROM generate_series(1, 6) AS g", [ALIKE])
    table = "part" if kind == "partition" else "page"
    with pytest.raises(
        UsageError, match=r"has the scope tenant: compare only .* with --scope-column tenant, choose"
    ):
        dedup(table)
    assert dedup(table, scope_columns=("tenant",), into="first").sink.droppable == 4
    assert dedup(table, where="tenant = 1", into="second").sink.droppable == 2
    assert dedup(table, all_scopes=True, into="third").sink.droppable == 5
    with pytest.raises(UsageError, match="page has no column t" if table == "page" else "part has no column t"):
        dedup(table, scope_columns=("t",), into="others")
    with pytest.raises(UsageError, match="--all-scopes and --scope-column exclude each other"):
        dedup(table, scope_columns=("tenant",), all_scopes=True)


# Two rows, and the report


def test_explanations_of_rows_that_are_not_compared(connection, dedup):
    connection.execute("CREATE TABLE page (tenant int, slug text, body text, PRIMARY KEY (tenant, slug))")
    rows = [(1, "a"), (1, 'b, "c"'), (2, "a"), (None, "empty"), (3, ""), (3, "?!")]
    texts = [ALIKE, ALIKE.upper(), ALIKE, None, "", "?! ?!"]
    connection.execute("ALTER TABLE page ADD lang text")
    for (tenant, slug), text in zip(rows, texts, strict=True):
        connection.execute("INSERT INTO page VALUES (%s, %s, %s, 'en')", [tenant or 9, slug, text])
    connection.execute("UPDATE page SET lang = NULL WHERE tenant = 3 AND slug = ''")

    def explain(*names, **options):
        return dedup("page", into=None, explain=names, **options).explanation

    odd = '(1,"b, ""c""")'
    found = explain("(1,a)", odd)
    assert (found.together, found.distance, found.similarity) == (True, 0, 1.0)
    assert (
        found.reason == f"they have the same words; (1,a) is kept; {odd} is dropped in favour of (1,a)"
        " (similarity 1.00)"
    )
    assert [document.kept for document in found.documents] == ["(1,a)"] * 2
    for names, options, reason in [
        (
            ["(1,a)", "(2,a)"],
            {"scope_columns": ["tenant"]},
            "they are in different scopes, so they were not compared",
        ),
        (["(1,a)", "(2,a)"], {"where": "tenant = 1"}, "(2,a) is not among the rows of --where"),
        (["(1,a)", '(3,"")'], {"scope_columns": ["lang"]}, '(3,"") has a null in a scope column'),
        (["(9,empty)", "(1,a)"], {}, "(9,empty) has no text"),
        (["(1,a)", '(3,"")'], {}, '(3,"") has no words, so it has no fingerprint'),
        (["(1,a)", "(3,?!)"], {"recipe": Recipe(tokens=Pattern(r"\S+"))}, "(3,?!) has no words to compare"),
    ]:
        found = explain(*names, **options)
        assert (found.together, found.reason) == (False, reason)
    with pytest.raises(
        UsageError, match=r"no rows of page have the key \(1, a\): write a key as SELECT \(tenant, sl"
    ):
        explain("(1,a)", "(1, a)")
    assert connection.execute("SELECT to_regclass('decisions')").fetchone() == (None,)


def test_a_report_comes_with_the_table_or_not_at_all(connection, dedup, tmp_path):
    create_article(connection, {1: ALIKE, 2: ALIKE, 3: None})
    page = tmp_path / "report.html"

    def fail_the_second_time():
        failing.pop()

    # Texts are those of the snapshot.
    change = Stages(write=lambda: connection.execute("UPDATE article SET body = %s", [OTHER]))
    dedup(report=page, stages=change)
    assert ALIKE in page.read_text()
    assert OTHER not in page.read_text()
    assert "<dt>not decided</dt><dd>1 without a text" in page.read_text()
    first = page.read_bytes()
    failing = [1]  # after the table has been written, before the report
    with pytest.raises(IndexError):
        dedup(report=page, replace=True, stages=Stages(write=fail_the_second_time))
    assert len(decided(connection)) == 2
    with pytest.raises(UsageError, match="decisions exists already"):
        dedup(report=page)
    assert page.read_bytes() == first
    with pytest.raises(UsageError, match="not a folder"):
        dedup(report=page / "below", into="others")
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]


# An earlier table of decisions


def test_decisions_replace_those_of_an_earlier_run(connection, dedup, connect):
    create_article(connection, {1: ALIKE, 2: ALIKE})
    assert dedup(replace=True).sink.decided == 2  # there is none
    connection.execute("INSERT INTO article VALUES (3, %s)", [ALIKE])
    with pytest.raises(
        UsageError, match="decisions exists already: choose another name with --into, or use --repl"
    ):
        dedup()
    reader = connect()
    reader.execute("SET lock_timeout = '1s'")
    seen = []

    def look():
        seen.append(reader.execute("SELECT count(*) FROM decisions").fetchone())

    def fail():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        dedup(replace=True, stages=Stages(write=fail))
    assert dedup(replace=True, stages=Stages(sort=look, read=look, check=look, write=look)).sink.decided == 3
    look()
    assert seen == [(2,)] * 4 + [(3,)]
    assert connection.execute(
        "SELECT string_agg(relname, ' ' ORDER BY relname) FROM pg_class WHERE relnamespace = 2200"
    ).fetchone() == ("article article_pkey decisions decisions_pkey",)

    connection.execute("CREATE VIEW shown AS TABLE decisions")
    with pytest.raises(
        UsageError, match=r"decisions cannot be replaced \(view shown depends on table decisions\)"
    ):
        dedup(replace=True, stages=Stages(sort=pytest.fail))
    connection.execute("CREATE TABLE copied AS TABLE decisions; CREATE SEQUENCE counted")
    for name in ("article", "copied", "shown"):
        with pytest.raises(UsageError, match=f"{name} was not created by simsql dedup-table"):
            dedup(replace=True, into=name, stages=Stages(sort=pytest.fail))
    assert connection.execute("SELECT count(*) FROM copied, shown, article").fetchone() == (27,)


def test_the_table_that_is_replaced_is_the_one_of_this_moment(connection, dedup):
    create_article(connection, {1: ALIKE, 2: ALIKE})
    # Another run replaces the table while this one works, also if there was none.
    for _ in range(2):
        dedup(replace=True, stages=Stages(check=lambda: dedup(replace=True)))
        assert len(decided(connection)) == 2
    mine = "COMMENT ON TABLE decisions IS 'mine'"
    with pytest.raises(UsageError, match="was not created by simsql dedup-table"):
        dedup(replace=True, stages=Stages(check=lambda: connection.execute(mine)))
    assert len(decided(connection)) == 2


def test_only_its_owner_replaces_a_table(connection, dedup, new_role):
    create_article(connection, {1: ALIKE, 2: ALIKE})
    dedup()
    role = new_role()
    connection.execute(f"GRANT SELECT ON article TO {role}; GRANT ALL ON decisions TO {role}")
    connection.execute(f"GRANT ALL ON SCHEMA public TO {role}")
    with pytest.raises(Error, match="must be owner of table decisions"):
        dedup(replace=True, user=role, stages=Stages(sort=pytest.fail))
    # A new table has the privileges that the owner has chosen for new tables.
    connection.execute(f"ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO {role}")
    dedup(replace=True)
    assert connection.execute("SELECT has_table_privilege(%s, 'decisions', 'SELECT')", [role]).fetchone() == (
        True,
    )
    connection.execute(f"ALTER DEFAULT PRIVILEGES REVOKE SELECT ON TABLES FROM {role}")


# Tables and keys


def test_keys_of_several_columns_of_any_type_and_odd_names(connection, dedup):
    connection.execute(
        """CREATE SCHEMA "The ""Odd"" one%"; CREATE TYPE mood AS ENUM ('sad', 'happy');
        CREATE DOMAIN code AS varchar(9) COLLATE "C" CHECK (VALUE <> '');
        CREATE TABLE "The ""Odd"" one%"."Select" (
            "the Text%s" varchar(200), "from" uuid, "{where}" code, mood mood, ratio float8, at timestamptz(3),
            name text COLLATE "C", PRIMARY KEY ("from", "{where}", mood, ratio, at, name))"""
    )
    connection.execute(
        """INSERT INTO "The ""Odd"" one%%"."Select" SELECT %s || g, gen_random_uuid(), 'c' || g, 'happy',
        0.1 + 0.2, '2024-02-29 12:00:00.123+00', E'a "\\\\\\'\\n' FROM generate_series(1, 3) AS g""",
        [ALIKE],
    )
    summary = dedup('"The ""Odd"" one%"."Select"', "the Text%s", '"The ""Odd"" one%"."De""cided%"')
    assert (summary.sink.decided, summary.sink.droppable) == (3, 2)
    types = connection.execute(
        "SELECT attrelid::regclass = %s::regclass, replace(replace(attname, 'kept_', ''), 'representative_', ''),"
        " format_type(atttypid, atttypmod), attcollation FROM pg_attribute WHERE attnum > 0 AND attrelid IN"
        " (%s::regclass, %s::regclass)",
        [table := '"The ""Odd"" one%"."Select"', table, into := '"The ""Odd"" one%"."De""cided%"'],
    ).fetchall()
    of_source = {row[1:] for row in types if row[0]}
    results = ("distance", "similarity", "drop", "kind", "text_digest")
    of_keys = {row[1:] for row in types if not row[0] and row[1] not in results}
    assert of_keys == {row for row in of_source if row[0] != "the Text%s"}
    joined = f"""SELECT count(*) FROM {into} AS d
        JOIN {table} AS t USING ("from", "{{where}}", mood, ratio, at, name)
        JOIN {table} AS k ON (k."from", k."{{where}}", k.name) = (d."kept_from", d."kept_{{where}}", d.kept_name)
        WHERE d."representative_from" = d."kept_from" AND d.drop = (k."from" <> t."from")"""
    assert connection.execute(joined).fetchone() == (3,)
    assert connection.execute(
        "SELECT indnatts FROM pg_index WHERE indisprimary AND indrelid = %s::regclass", [into]
    ).fetchone() == (6,)


NOT_NULL = "a int NOT NULL, b text NOT NULL, body text"
# The definition of a table t, and the columns of its key.
KEYS = {
    "primary key": (f"({NOT_NULL}, UNIQUE (a), PRIMARY KEY (b, a))", ["b", "a"]),
    "deferrable primary key": (f"({NOT_NULL}, PRIMARY KEY (a) DEFERRABLE)", ["a"]),
    "unique": (f"({NOT_NULL}, UNIQUE (b, a) INCLUDE (body))", ["b", "a"]),
    "fewest columns": (f"({NOT_NULL}, UNIQUE (b, a), UNIQUE (b))", ["b"]),
    "oldest": (f"({NOT_NULL}, UNIQUE (b), UNIQUE (a))", ["b"]),
    "replica identity": (
        f"({NOT_NULL}, UNIQUE (a), CONSTRAINT u UNIQUE (b, a)); ALTER TABLE t REPLICA IDENTITY USING INDEX u",
        ["b", "a"],
    ),
    "descending": (f"({NOT_NULL}); CREATE UNIQUE INDEX ON t (a DESC, b)", ["a", "b"]),
    "nullable": ("(a int, b text NOT NULL, body text, UNIQUE (a), UNIQUE (b, a))", None),
    "nulls not distinct": ("(a int, body text); CREATE UNIQUE INDEX ON t (a) NULLS NOT DISTINCT", None),
    "not null without proof": (
        "(a int UNIQUE, body text); ALTER TABLE t ADD CONSTRAINT n NOT NULL a NOT VALID",
        None,
    ),
    "deferrable": (f"({NOT_NULL}, UNIQUE (a) DEFERRABLE)", None),
    "partial": (f"({NOT_NULL}); CREATE UNIQUE INDEX ON t (a) WHERE a > 0", None),
    "expression": (f"({NOT_NULL}); CREATE UNIQUE INDEX ON t (a, lower(b))", None),
    "another collation": (f'({NOT_NULL}); CREATE UNIQUE INDEX ON t (b COLLATE "C")', None),
    "another equality": (f"({NOT_NULL}); CREATE UNIQUE INDEX ON t (b text_pattern_ops)", None),
    "not unique": (f"({NOT_NULL}); CREATE INDEX ON t (a)", None),
    "invalid": (f"({NOT_NULL}) PARTITION BY RANGE (a); CREATE TABLE t1 PARTITION OF t FOR VALUES FROM (0) TO (9);"
                " CREATE UNIQUE INDEX ON ONLY t (a)", None),
    "of partitions": (f"({NOT_NULL}, UNIQUE (b, a)) PARTITION BY RANGE (a)", ["b", "a"]),
}  # fmt: skip


@pytest.mark.every_version
@pytest.mark.parametrize(("definition", "columns"), KEYS.values(), ids=KEYS)
def test_the_key_of_a_table(connection, dedup, definition, columns):
    """The job, which needs no simsql in the database, and the functions of SQL agree on it."""
    version = connection.info.server_version
    if ("NOT VALID" in definition and version < 180000) or ("NULLS NOT" in definition and version < 150000):
        pytest.skip("needs a newer PostgreSQL")
    connection.execute(f"CREATE TABLE t {definition}")
    found = connection.execute("SELECT array_agg(name ORDER BY place) FROM simsql._primary_key('t')").fetchone()
    assert found == (columns,)
    if columns is None:
        with pytest.raises(UsageError, match="t has neither a primary key nor a unique index on NOT NULL columns"):
            dedup("t")
    else:
        assert dedup("t").source.table.keys == columns


def test_a_unique_index_serves_as_the_key(connection, dedup):
    connection.execute(
        """CREATE TABLE "The one%" ("from" text NOT NULL, "{where}" int NOT NULL, "a ""b"" c" text);
        CREATE UNIQUE INDEX "odd; index" ON "The one%" ("{where}" DESC, "from") INCLUDE ("a ""b"" c")"""
    )
    connection.execute(
        'INSERT INTO "The one%%" SELECT %s || g, 1, %s FROM generate_series(1, 4) AS g', ["'", ALIKE]
    )
    assert dedup('"The one%"', 'a "b" c').sink.droppable == 3
    found = connection.execute(
        'SELECT "from", "{where}", "kept_from", "kept_{where}", drop FROM decisions ORDER BY 1'
    )
    assert found.fetchall() == [(f"'{g}", 1, "'1", 1, g > 1) for g in range(1, 5)]
    assert dedup('"The one%"', 'a "b" c', None, explain=("(1,'2)", "(1,'3)")).explanation


# Materialized views


@pytest.fixture
def stored(connection):
    """The materialized view `Stored%` of a table, with a key of two columns."""
    connection.execute('CREATE TABLE source (tenant int, "a key" text, body text, sketch bigint)')
    connection.execute("INSERT INTO source SELECT g %% 2, 'k' || g, %s FROM generate_series(0, 5) AS g", [ALIKE])
    connection.execute(
        'CREATE MATERIALIZED VIEW "Stored%" AS TABLE source;'
        ' CREATE UNIQUE INDEX ON "Stored%" (lower(body), tenant, "a key");'
        ' CREATE UNIQUE INDEX ON "Stored%" (tenant, "a key") WHERE tenant > 0;'
        ' CREATE UNIQUE INDEX ON "Stored%" (tenant, "a key")'
    )
    return '"Stored%"'


def test_a_materialized_view_is_decided_about(connection, dedup, new_role, stored):
    role = new_role()
    connection.execute(f"GRANT SELECT ON {stored} TO {role}; CREATE SCHEMA own AUTHORIZATION {role}")
    assert dedup(stored, user=role, into="own.decisions", scope_columns=("tenant",)).sink.droppable == 4
    decisions = 'SELECT tenant, "a key", kept_tenant, "kept_a key", drop FROM own.decisions ORDER BY 2'
    assert connection.execute(decisions).fetchall() == [
        (g % 2, f"k{g}", g % 2, f"k{g % 2}", g > 1) for g in range(6)
    ]
    digests = f'SELECT FROM {stored} AS s JOIN own.decisions AS d USING (tenant, "a key")'
    digests += " WHERE sha256(convert_to(s.body, 'UTF8')) = d.text_digest AND d.text_digest = d.kept_text_digest"
    assert connection.execute(digests).rowcount == 6


def test_a_materialized_view_with_nulls_in_its_key(connection, dedup, stored):
    connection.execute("INSERT INTO source VALUES (NULL, 'k', %s), (NULL, 'k', %s), (3, NULL, %s)", [ALIKE] * 3)
    connection.execute(f"REFRESH MATERIALIZED VIEW {stored}")
    with pytest.raises(UsageError, match=r'rows of "Stored%" have a null in their key \("tenant", "a key"\), so'):
        dedup(stored)
    with pytest.raises(UsageError, match="have a null in their key"):
        dedup(stored, where="tenant IS NOT NULL")
    assert dedup(stored, where='tenant IS NOT NULL AND "a key" IS NOT NULL').sink.decided == 6


def test_a_materialized_view_that_holds_no_rows(connection, dedup, stored):
    connection.execute(f"REFRESH MATERIALIZED VIEW {stored} WITH NO DATA")
    with pytest.raises(Error, match=r'"Stored%" has not been populated'):
        dedup(stored)


def test_a_refresh_that_the_run_waits_for_is_seen(connection, dedup, stored):
    """The snapshot is older than the lock."""
    waiting = "SELECT FROM pg_locks WHERE NOT granted AND relation = %s::regclass"
    connection.execute("INSERT INTO source VALUES (9, 'new', %s)", [ALIKE])
    with ThreadPoolExecutor() as pool, connection.transaction():
        connection.execute(f"REFRESH MATERIALIZED VIEW {stored}")
        running = pool.submit(dedup, stored)
        wait_until(lambda: connection.execute(waiting, [stored]).rowcount, "the run waits")
    assert running.result().sink.decided == 7


def test_what_simsql_refuses_a_materialized_view(connection, stored):
    for call in (f"simsql.create_index('{stored}', 'sketch')", f"simsql.build('{stored}', 'sketch')"):
        with pytest.raises(Error, match='"Stored%" is a view: index the table below it'):
            connection.execute(f"{'CALL' if 'build' in call else 'SELECT'} {call}")


CHANGES = {
    "a refresh": 'REFRESH MATERIALIZED VIEW CONCURRENTLY "Stored%"',
    "a key that is dropped": 'DROP INDEX CONCURRENTLY "Stored%_tenant_a key_idx1"',
    "a refresh that waits": 'REFRESH MATERIALIZED VIEW "Stored%"',
    "nulls": 'ALTER TABLE t ALTER "a key" DROP NOT NULL',
    "an index that waits": "DROP INDEX t_tenant_a_key_idx",
}


@pytest.mark.parametrize("stage", ["sort", "read", "check", "write"])
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_keys_that_change_during_the_run(connection, connect, dedup, stored, change, stage):
    """The decisions are those about the snapshot, whose keys are unique and not null."""
    table = stored if "Stored" in change else "t"
    connection.execute(
        'CREATE TABLE t AS TABLE source; ALTER TABLE t ALTER tenant SET NOT NULL, ALTER "a key" SET NOT NULL;'
        ' CREATE UNIQUE INDEX t_tenant_a_key_idx ON t (tenant, "a key")'
    )
    other = connect()
    other.execute("SET lock_timeout = '100ms'")

    def alter():
        connection.execute("INSERT INTO source VALUES (9, 'new', %s)", [ALIKE])
        with contextlib.suppress(errors.LockNotAvailable):
            other.execute(change)
        with contextlib.suppress(errors.UniqueViolation):
            connection.execute("INSERT INTO t TABLE source")

    assert dedup(table, stages=Stages(**{stage: alter})).sink.decided == 6
    keys = 'SELECT tenant, "a key" FROM decisions ORDER BY 2'
    assert connection.execute(keys).fetchall() == [(g % 2, f"k{g}") for g in range(6)]


@pytest.mark.parametrize("kind", ["partitioned", "inherited"])
def test_rows_of_other_tables(connection, dedup, kind):
    """A key covers the rows of partitions, and not those of child tables."""
    if kind == "partitioned":
        connection.execute("CREATE TABLE article (id int PRIMARY KEY, body text) PARTITION BY RANGE (id)")
        for number in range(3):
            bounds = f"FROM ({10 * number}) TO ({10 * number + 10})"
            connection.execute(f"CREATE TABLE part_{number} PARTITION OF article FOR VALUES {bounds}")
    else:
        connection.execute("CREATE TABLE article (id int PRIMARY KEY, body text)")
        connection.execute("CREATE TABLE child () INHERITS (article); INSERT INTO child VALUES (1, 'a child')")
    connection.execute("INSERT INTO article SELECT g, %s FROM generate_series(0, 29) AS g", [ALIKE])
    assert dedup(into="public.decisions").sink.droppable == 29
    assert decided(connection) == {key: (0, 0, 1.0, key > 0, 0) for key in range(30)}


def test_rows_without_texts_or_words_are_left_out(connection, dedup):
    create_article(connection, {1: None, 2: "", 3: "?!", 4: ALIKE, 5: OTHER, 6: None})
    summary = dedup()
    assert decided(connection) == {4: (4, 0, 1.0, False, 4), 5: (5, 0, 1.0, False, 5)}
    assert (len(summary.source.order.place), summary.sink.decided) == (6, 2)
    assert summary.source.undecided() == {"without a scope": 0, "without a text": 2, "without words": 2}
    assert (summary.sink.clusters, summary.sink.members, summary.sink.droppable) == (0, 0, 0)


def test_words_that_a_recipe_sees_and_the_comparison_does_not(connection, dedup):
    create_article(connection, {1: "?! ?!", 2: "?! ?!", 3: ALIKE, 4: ALIKE})
    recipe = Recipe.from_id("characters1-set-1")
    assert dedup(recipe=recipe).sink.decided == 2
    recipe = Recipe(tokens=Pattern(r"\S+"))
    assert dedup(recipe=recipe, into="others").sink.decided == 4
    assert [row[3] for row in decided(connection, "others").values()] == [False, False, False, True]


def test_a_table_without_rows(connection, dedup):
    create_article(connection, {})
    summary = dedup()
    assert (len(summary.source.order.place), summary.sink.decided) == (0, 0)
    assert decided(connection) == {}
    assert dedup(into="second", similarity=0).sink.decided == 0


def test_a_database_without_simsql(empty_database):
    with empty_database.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE article (id int PRIMARY KEY, body text)")
        connection.exec_driver_sql("INSERT INTO article VALUES (1, 'some text'), (2, 'some text')")
    assert (
        dedup_table(empty_database, TableOptions("article", {"body": None}, "decisions"), Stages())[1].droppable
        == 1
    )
    with empty_database.begin() as connection:
        assert connection.exec_driver_sql("SELECT to_regnamespace('simsql')").scalar() is None


# Snapshots, interruptions and privileges


def test_writers_go_on_and_are_not_seen(connection, dedup):
    create_article(connection, TEXTS)

    def write():
        connection.execute("DELETE FROM article WHERE id % 2 = 0")
        connection.execute("UPDATE article SET body = 'changed'")
        connection.execute(
            "INSERT INTO article SELECT g, 'new' FROM generate_series(20000, 20100) AS g ON CONFLICT DO NOTHING"
        )
        connection.execute("VACUUM article")

    assert dedup(stages=Stages(read=write, check=write, write=write)).source.order.place.size == len(TEXTS)
    assert decided(connection) == expected(TEXTS, Rules())


@pytest.mark.parametrize("stage", ["sort", "read", "check", "write"])
def test_an_interrupted_run_leaves_no_table(connection, dedup, stage):
    create_article(connection, TEXTS)

    def interrupt():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        dedup(stages=Stages(**{stage: interrupt}))
    assert connection.execute("SELECT to_regclass('decisions')").fetchone() == (None,)
    assert dedup().sink.decided == len(TEXTS)


def test_the_privileges_that_suffice(connection, dedup, new_role):
    create_article(connection, {1: ALIKE, 2: ALIKE})
    role = new_role()
    database = connection.info.dbname
    connection.execute(f"CREATE SCHEMA own; REVOKE TEMPORARY ON DATABASE {database} FROM PUBLIC")
    with pytest.raises(Exception, match="permission denied for table article"):
        dedup(into="own.decisions", user=role)
    connection.execute(f"GRANT SELECT ON article TO {role}")
    with pytest.raises(Exception, match="permission denied to create temporary tables"):
        dedup(into="own.decisions", user=role)
    connection.execute(f"GRANT TEMPORARY ON DATABASE {database} TO {role}")
    with pytest.raises(Exception, match="permission denied for schema own"):
        dedup(into="own.decisions", user=role)
    connection.execute(f"GRANT CREATE, USAGE ON SCHEMA own TO {role}")
    assert dedup(into="own.decisions", user=role).sink.droppable == 1
    assert connection.execute("SELECT tableowner FROM pg_tables WHERE tablename = 'decisions'").fetchone() == (
        role,
    )


def test_row_level_security_hides_rows(connection, dedup, new_role):
    create_article(connection, dict.fromkeys(range(40), ALIKE))
    role = new_role()
    connection.execute(f"GRANT SELECT ON article TO {role}; CREATE SCHEMA own AUTHORIZATION {role}")
    connection.execute("ALTER TABLE article ENABLE ROW LEVEL SECURITY")
    connection.execute(f"CREATE POLICY few ON article TO {role} USING (id BETWEEN 10 AND 19)")
    dedup(into="own.decisions", user=role)
    assert decided(connection, "own.decisions") == {key: (10, 0, 1.0, key > 10, 10) for key in range(10, 20)}

    connection.execute("ALTER POLICY few ON article USING (random() < 0.5)")
    with pytest.raises(
        SimsqlError, match="row-level security or --where selects different rows each time the table is read"
    ):
        dedup(into="own.others", user=role)


# What is refused


def test_what_cannot_be_decided(connection, dedup):
    create_article(connection, {1: ALIKE})
    connection.execute(
        "CREATE VIEW shown AS TABLE article; CREATE MATERIALIZED VIEW stored AS TABLE article;"
        " CREATE TABLE keyless (id int UNIQUE, body text);"
        " CREATE FOREIGN DATA WRAPPER w; CREATE SERVER s FOREIGN DATA WRAPPER w;"
        " CREATE FOREIGN TABLE elsewhere (id int, body text) SERVER s;"
        " CREATE TABLE twice (id int, kept_id int, body text, PRIMARY KEY (id, kept_id));"
        " CREATE TABLE named (distance int PRIMARY KEY, body text);"
        f" CREATE TABLE long ({'x' * 60} int PRIMARY KEY, body text)"
    )
    for options, message in {
        ("shown",): "shown is not a table",
        ("elsewhere",): "elsewhere is not a table",
        ("stored",): "stored has no unique index on columns, so decisions could not name its rows: create one",
        ("keyless",): "keyless has neither a primary key nor a unique index on NOT NULL columns, so decisions",
        ("twice",): "two columns of the decisions would be named kept_id",
        ("named",): "two columns of the decisions would be named distance",
        ("long",): "would be longer than 63 bytes",
        ("article", "text"): "article has no column text",
        ("article", "id"): "column id of article is integer, not text: name another with --text-column",
        ("article", "ctid"): "article has no column ctid",
        ("article", "body", "a.b.c"): "'a.b.c' is not the name of a table",
        ("article", "body", "x" * 64): "of up to 63 bytes",
        ("article", "body", "keyless"): "keyless exists already: choose another name with --into",
        ("article", "body", "public.article"): "public.article exists already",
    }.items():
        with pytest.raises(UsageError) as error:
            dedup(*options)
        assert message in str(error.value)
    for name in ("missing", "article; DROP TABLE article", 'article"'):
        with pytest.raises(Exception, match=r"does not exist|invalid name syntax"):
            dedup(name)
        with (
            pytest.raises(Exception, match="string is not a valid identifier")
            if name != "missing"
            else contextlib.nullcontext()
        ):
            dedup(into=name)
    assert connection.execute("SELECT count(*) FROM article").fetchone() == (1,)


# What the owner of the table controls


@pytest.fixture
def bob(connection, new_role, connect):
    """A session of a role that owns the schema bob and the table bob.article."""
    role = new_role()
    connection.execute(f"CREATE SCHEMA bob AUTHORIZATION {role}")
    session = connect(role)
    session.execute(
        "CREATE FUNCTION bob.seize() RETURNS text LANGUAGE plpgsql AS $$ BEGIN IF current_user = 'postgres'"
        " THEN RAISE EXCEPTION 'seized by %', current_user; END IF; RETURN 'x'; END $$"
    )
    session.execute("CREATE TABLE bob.article (id int PRIMARY KEY, body text)")
    session.execute("INSERT INTO bob.article VALUES (1, 'a text'), (2, 'a text')")
    return session


VIEW = "CREATE VIEW bob.article AS SELECT 1::oid AS tableoid, '(0,1)'::tid AS ctid, 1 AS id, bob.seize() AS body"


@pytest.mark.parametrize("stage", ["sort", "read", "check", "write"])
def test_a_view_in_the_place_of_the_table_is_not_read(connection, dedup, bob, stage):
    def replace():
        connection.execute(f"ALTER SCHEMA bob RENAME TO bob_1; CREATE SCHEMA bob AUTHORIZATION {bob.info.user}")
        bob.execute("CREATE FUNCTION bob.seize() RETURNS text LANGUAGE sql AS 'SELECT bob_1.seize()'")
        bob.execute(VIEW)

    with pytest.raises(Error, match="TABLESAMPLE clause can only be applied to tables"):
        dedup("bob.article", stages=Stages(**{stage: replace}))
    assert connection.execute("SELECT to_regclass('decisions')").fetchone() == (None,)


def test_a_view_that_takes_the_name_before_the_lock_is_not_read(database, bob):
    started = []

    @event.listens_for(database, "begin")
    def replace(_):
        started.append(1)
        if len(started) == 2:
            bob.execute(f"ALTER TABLE bob.article RENAME TO before; {VIEW}")

    with pytest.raises(SimsqlError, match=r"bob\.article was renamed or replaced just now: run it again"):
        dedup_table(database, TableOptions("bob.article", {"body": None}, "decisions"), Stages())


def test_a_table_in_the_place_of_the_decisions_is_not_written(connection, dedup, bob):
    create_article(connection, {1: ALIKE, 2: ALIKE})

    def replace():
        connection.execute(f"ALTER SCHEMA bob RENAME TO bob_1; CREATE SCHEMA bob AUTHORIZATION {bob.info.user}")
        bob.execute(
            "CREATE TABLE bob.decisions (id int, kept_id int, distance int, similarity float, drop bool, x int);"
            "CREATE FUNCTION bob.seize() RETURNS trigger LANGUAGE plpgsql AS"
            " $$ BEGIN PERFORM bob_1.seize(); RETURN NEW; END $$;"
            "CREATE TRIGGER seize BEFORE INSERT ON bob.decisions EXECUTE FUNCTION bob.seize()"
        )

    with pytest.raises(UsageError, match=r"bob\.decisions exists already"):
        dedup(into="bob.decisions", stages=Stages(write=replace))


def test_casts_of_the_owner_are_not_called(connection, dedup, bob):
    bob.execute(
        "CREATE TYPE bob.evil AS ENUM ('x', 'y'); CREATE DOMAIN bob.name AS text;"
        " CREATE FUNCTION bob.cast_it(bob.evil) RETURNS text LANGUAGE sql AS 'SELECT bob.seize()';"
        " CREATE CAST (bob.evil AS text) WITH FUNCTION bob.cast_it(bob.evil) AS IMPLICIT;"
        " CREATE TABLE bob.other (id bob.evil PRIMARY KEY, body bob.name, evil bob.evil);"
        " INSERT INTO bob.other VALUES ('x', 'a text', 'x'), ('y', 'a text', 'y');"
        " ALTER DOMAIN bob.name ADD CHECK (bob.seize() = VALUE) NOT VALID"
    )
    assert dedup("bob.other", into="public.decisions", keep_field="evil").sink.droppable == 1
    assert decided(connection) == {"x": ("y", 0, 1.0, True, "y"), "y": ("y", 0, 1.0, False, "y")}
    with pytest.raises(UsageError, match=r"column evil of bob\.other is bob\.evil, not text"):
        dedup("bob.other", "evil", "others")
