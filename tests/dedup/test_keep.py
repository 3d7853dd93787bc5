"""What may be dropped, and how it is called; and the folder of the embedded server."""

import psycopg
import pytest
from program import run

from simsql.server import start_embedded

TEXT = "The quick brown fox jumps over the lazy dog and runs away from the old barn near the river"


def test_the_place_of_a_record_that_is_the_path_of_a_file_is_not_in_the_drop_list(tmp_path, home):
    path, drop = tmp_path / "a.jsonl", tmp_path / "drop"
    path.write_text(f'{{"text": "{TEXT}"}}\n' * 3)
    (tmp_path / "a.jsonl:2").write_text("Nothing else in this small collection speaks of mountains or glaciers")
    run("dedup", path, "--drop-list", drop, home=home).done()
    assert drop.read_text() == f"{path}:3\n"


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


def test_a_folder_without_a_server_is_no_place_to_look(tmp_path):
    for command in (["status"], ["near", "article", "--fingerprint", "1"]):
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
