"""Databases with the schema of some revision, and what is in them."""

from articles import create_articles, create_index, missing_keys, near
from catalog import contents_of_simsql
from oracle import clustered
from oracle import near as expected_near

from simsql.database import open_engine
from simsql.database.history import History

FINGERPRINTS = clustered(100, seed=40)


def files_of(history: History) -> list[str]:
    """The files of sql/ in the order in which they are installed, which ends with the one for safety."""
    first = next((history.migrations / "versions").glob("0001_*.py"))
    names: dict = {}
    exec(compile(first.read_text(encoding="utf-8"), first, "exec"), {"__file__": str(first)}, names)
    known = [f"{name}.sql" for name in names["FILES"]]
    # Calibration makes temporary objects for itself. What later revisions have added comes before safety.
    added = {path.name for path in history.sql.glob("*.sql")} - {*known, "calibrate.sql"}
    return [*known[:-1], *sorted(added), known[-1]]


def create_indexes(connection) -> None:
    """Two indexes of different layouts, with rows."""
    create_articles(connection, FINGERPRINTS)
    connection.execute("CREATE SCHEMA app")
    connection.execute('CREATE TABLE app."An ""article" (print bigint)')
    create_index(connection, 'app."An ""article"', "print", (5, 2, 3))


def fresh_contents(server, history: History) -> list[tuple[str, ...]]:
    """What the files of sql/ install by themselves, with two indexes."""
    with server.new_database(template="template0") as url, server.connect(url.database) as connection:
        for name in files_of(history):
            connection.execute((history.sql / name).read_text(encoding="utf-8"))
        create_indexes(connection)
        engine = open_engine(url)
        contents = contents_of_simsql(engine)
        engine.dispose()
    return contents


def upgraded_contents(server, history: History, start: str | None, fresh: list) -> list[tuple[str, ...]]:
    """What an upgrade leaves of a database that had the start revision and two indexes."""
    with server.new_database(template="template0") as url, server.connect(url.database) as connection:
        engine = open_engine(url)
        if start:
            with engine.begin() as transaction:
                history.upgrade(transaction, start)
            create_indexes(connection)
        with engine.begin() as transaction:
            history.upgrade(transaction)
            assert history.current(transaction) == history.newest
        if not start:
            create_indexes(connection)
        contents = contents_of_simsql(engine)
        engine.dispose()
        if contents == fresh:
            check_indexes(connection)
    return contents


def check_indexes(connection) -> None:
    """The indexes answer, writers still add, and there is nothing to find fault with."""
    for within in (0, 3, 7, 40):
        assert near(connection, FINGERPRINTS[0], within) == expected_near(FINGERPRINTS, FINGERPRINTS[0], within)
    connection.execute("INSERT INTO article (fingerprint) VALUES (123456789)")
    connection.execute("UPDATE article SET fingerprint = 987654321 WHERE fingerprint = 123456789")
    assert (987654321, 0) in near(connection, 987654321, 0)
    assert missing_keys(connection) == []
    assert connection.execute("SELECT count(*) FROM simsql.verify() WHERE fault").fetchone() == (0,)


def difference(one: list, other: list) -> set:
    return set(one) ^ set(other)
