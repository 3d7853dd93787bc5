"""Runs on a table that stays: what is the same document, what represents a cluster, and what may be dropped."""

import psycopg
import pytest
from program import run

from simsql.server import start_embedded

TEXT = "The quick brown fox jumps over the lazy dog and runs away from the old barn near the river"


@pytest.fixture
def keep(newest):
    """Options that put the documents into a table that stays."""
    return ["--database", newest[1], "--table", "kept"]


@pytest.fixture
def drops(tmp_path, home, keep, monkeypatch):
    """Run on paths within a folder of two equal texts; return representative, drop list and summary."""
    folder = tmp_path / "texts"
    folder.mkdir()
    for name in "ab":
        (folder / name).write_text(TEXT)
    monkeypatch.chdir(folder)

    def drops(*paths):
        found = run("dedup", *paths, *keep, "--drop-list", tmp_path / "drop", home=home).done()
        representatives = [cluster["representative"] for cluster in found.clusters] or [None]
        return *representatives, (tmp_path / "drop").read_text().split("\n")[:-1], found.table

    return drops


def test_a_file_is_one_document_from_wherever_it_is_reached(tmp_path, drops):
    assert drops(".")[:2] == ("a", ["b"])
    folder = tmp_path / "texts"
    (tmp_path / "link").symlink_to(folder)
    for path in (folder, "../texts", tmp_path / "link"):
        representative, dropped, table = drops(path)
        # Named as in this run, whatever an earlier one called them.
        assert (representative, dropped) == (f"{path}/a", [f"{path}/b"])
        assert (table["new"], table["known already"], table["documents in the table"]) == ("0", "2", "2")


def test_a_document_whose_file_is_gone_is_forgotten(tmp_path, drops):
    assert drops(".")[:2] == ("a", ["b"])
    (tmp_path / "texts/a").unlink()
    representative, dropped, table = drops(".")
    assert (representative, dropped) == (None, [])
    assert (table["gone: forgotten"], table["documents in the table"], table["clusters"]) == ("1", "1", "0")


def test_what_an_earlier_run_has_read_represents_and_stays(tmp_path, drops):
    assert drops(".")[:2] == ("a", ["b"])
    (tmp_path / "texts/new").write_text(TEXT)
    assert drops("new")[:2] == ("a", ["new"])


def test_nothing_is_dropped_where_all_that_is_nearer_is_gone(tmp_path, drops):
    drops(".")
    for name in "ab":
        (tmp_path / "texts" / name).unlink()
    (tmp_path / "texts/new").write_text(TEXT)
    representative, dropped, table = drops("new")
    assert (representative, dropped) == ("new", [])
    assert (table["gone: forgotten"], table["documents in the table"]) == ("1", "2")


def test_a_file_of_the_same_name_in_another_folder_is_another_one(tmp_path, home, keep, monkeypatch):
    drop = tmp_path / "drop"
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    (tmp_path / "one/a").write_text(TEXT + " and more")
    monkeypatch.chdir(tmp_path / "one")
    run("dedup", "a", *keep, home=home).done()
    (tmp_path / "one/a").unlink()
    (tmp_path / "other/a").write_text("Nothing else in this small collection speaks of mountains or glaciers")
    (tmp_path / "other/b").write_text(TEXT)
    monkeypatch.chdir(tmp_path / "other")
    found = run("dedup", "a", "b", *keep, "--drop-list", drop, home=home).done()
    assert (found.table["documents in them"], drop.read_text()) == ("0", "")


def test_a_record_that_its_file_no_longer_has_represents_nothing(tmp_path, home, keep):
    path, drop = tmp_path / "a.jsonl", tmp_path / "drop"
    path.write_text(f'{{"id": "old", "text": "{TEXT}"}}\n')
    run("dedup", path, *keep, home=home).done()
    path.write_text(f'{{"id": "new", "text": "{TEXT}"}}\n')
    run("dedup", path, *keep, "--drop-list", drop, home=home).done()
    assert drop.read_text() == ""


def test_the_place_of_a_record_that_is_the_path_of_a_file_is_not_in_the_drop_list(tmp_path, home):
    path, drop = tmp_path / "a.jsonl", tmp_path / "drop"
    path.write_text(f'{{"text": "{TEXT}"}}\n' * 3)
    (tmp_path / "a.jsonl:2").write_text("Nothing else in this small collection speaks of mountains or glaciers")
    run("dedup", path, "--drop-list", drop, home=home).done()
    assert drop.read_text() == f"{path}:3\n"


def test_records_of_an_earlier_run_represent_while_their_file_is_there(tmp_path, home, keep):
    for name in "12":
        (tmp_path / f"{name}.jsonl").write_text(f'{{"id": "{name}", "text": "{TEXT}"}}\n{{"text": "{TEXT}"}}\n')
    drop = tmp_path / "drop"

    def drop_list(path):
        run("dedup", path, *keep, "--drop-list", drop, home=home).done()
        return drop.read_text().split("\n")[:-1]

    first, second = tmp_path / "1.jsonl", tmp_path / "2.jsonl"
    assert drop_list(first) == ["1"]
    assert drop_list(second) == [f"{second}:2", "2"]
    first.unlink()
    assert drop_list(second) == ["2"]


def test_a_chain_of_similar_texts_is_not_dropped_in_favour_of_one(tmp_path, home):
    # Every text has one more word than the one before: neighbours are near, the ends are not.
    words = [f"word{number}" for number in range(120)]
    path = tmp_path / "chain.jsonl"
    path.write_text("".join(f'{{"text": "{" ".join(words[:last])}"}}\n' for last in range(40, 121)))
    found = run("dedup", path, "--drop-list", tmp_path / "drop", home=home).done()
    members = [member for cluster in found.clusters for member in cluster["members"]]
    dropped = [member for member in members if member["droppable"]]
    assert (tmp_path / "drop").read_text().split("\n")[:-1] == [member["id"] for member in dropped]
    assert found.table["documents that could be dropped"] == str(len(dropped))
    kept = {member["id"] for member in members if not member["droppable"]}
    assert len(kept) > 2
    for member in dropped:
        assert member["kept"] in kept
        assert member["kept_similarity"] >= 0.7
        assert member["kept_distance"] <= 12


def test_a_text_that_loses_its_words_loses_its_fingerprint(tmp_path, home, keep, newest):
    path = tmp_path / "a.txt"
    path.write_text(TEXT)
    run("dedup", path, *keep, home=home).done()
    path.write_text("...")
    for _ in range(2):
        found = run("dedup", path, *keep, home=home).done()
        assert (found.table["documents"], found.table["without words: no fingerprint"]) == ("1", "1")
        with newest[0].connect() as connection:
            assert connection.exec_driver_sql("SELECT fingerprint FROM kept").all() == [(None,)]


def test_a_folder_without_a_server_is_no_place_to_look(tmp_path):
    for command in (["status"], ["near", "simsql_documents", "--fingerprint", "1"]):
        run(*command, "--server-dir", tmp_path / "typo").failed(
            1, "typo has no server: name another folder, or create one there with simsql install --server-dir "
        )
    assert not (tmp_path / "typo").exists()


def test_a_record_whose_id_is_the_path_of_a_file_is_listed_by_its_place(tmp_path, home):
    unlike = tmp_path / "unlike.txt"
    unlike.write_text("Nothing else in this small collection speaks about mountains, glaciers or avalanches")
    path = tmp_path / "a.jsonl"
    path.write_text("".join(f'{{"id": "{name}", "text": "{TEXT}"}}\n' for name in ("!", unlike, "third")))
    found = run("dedup", path, "--drop-list", tmp_path / "drop", home=home).done()
    assert found.groups == {frozenset({"!", str(unlike), "third"})}
    assert (tmp_path / "drop").read_text() == f"{path}:2\nthird\n"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PGHOSTADDR", "127.0.0.1"),
        ("PGPORT", "1"),
        ("PGOPTIONS", "-c default_transaction_read_only=on"),
        ("PGTARGETSESSIONATTRS", "read-only"),
        ("PGCLIENTENCODING", "LATIN1"),
    ],
)
def test_variables_of_libpq_lead_to_no_other_server(home, monkeypatch, name, value):
    with start_embedded(home) as server:
        url = server.url()
        monkeypatch.setenv(name, value)
        with psycopg.connect(user=url.username, dbname=url.database, **url.query) as connection:
            assert connection.info.encoding == "utf-8"
            assert connection.execute("SHOW transaction_read_only").fetchone() == ("off",)


def test_a_database_without_an_encoding(tmp_path, newest):
    (tmp_path / "é.txt").write_text(TEXT)
    (tmp_path / "文.txt").write_text(TEXT)
    engine, _ = newest
    with engine.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
        connection.exec_driver_sql(
            "CREATE DATABASE ascii ENCODING 'SQL_ASCII' TEMPLATE template0 LOCALE_PROVIDER libc LOCALE 'C'"
        )
        try:
            ascii_url = engine.url.set(database="ascii").render_as_string(hide_password=False)
            found = run("dedup", tmp_path, "--database", ascii_url, "--table", "kept").done()
        finally:
            connection.exec_driver_sql("DROP DATABASE ascii WITH (FORCE)")
    assert found.groups == {frozenset({str(tmp_path / "é.txt"), str(tmp_path / "文.txt")})}
