"""Exactness: the pairs, clusters and representatives of a run are those of brute force over its fingerprints."""

import json
import lzma
import os
from pathlib import Path

import corpus
import pytest
from program import run, write_lines

DATA = Path(os.environ.get("SIMSQL_SHARED", Path(__file__).parents[3] / "shared")) / "data"


def fingerprints_of(path):
    """What `simsql fingerprint` prints, by id."""
    rows = (line.split("\t") for line in run("fingerprint", path).done().lines)
    return {name: int(number) for number, name in rows}


def check_exact(path, texts, engine, url, drop_list):
    """Run the job at distances 7 and 3 on one table, and compare all that it says with brute force."""
    fingerprints = fingerprints_of(path)
    near = corpus.pairs(fingerprints.values(), 7)
    order = {name: number for number, name in enumerate(texts)}
    for within in (7, 3):
        found = run(
            "dedup", path, "--database", url, "--table", "kept", "--distance", within, "--drop-list", drop_list
        ).done()
        expected = {pair for pair, bits in near.items() if bits <= within}
        with engine.connect() as connection:
            stored = connection.exec_driver_sql("SELECT name, fingerprint FROM kept WHERE fingerprint IS NOT NULL")
            assert {name: number % 2**64 for name, number in stored} == fingerprints
            statement = f"SELECT a, b, distance FROM simsql.pairs('kept', {within})"
            rows = [
                (tuple(sorted((a % 2**64, b % 2**64))), bits)
                for a, b, bits in connection.exec_driver_sql(statement)
            ]
        assert len(rows) == len(set(rows))
        assert dict(rows) == {pair: near[pair] for pair in expected}
        assert found.groups == corpus.groups(fingerprints, expected)
        assert len(found.groups) == len(found.clusters) > 0
        assert [cluster["size"] for cluster in found.clusters] == sorted(map(len, found.groups), reverse=True)
        # Only what is near the document that stays can go: a chain of pairs may join texts that are not alike.
        assert drop_list.read_text().splitlines() == [
            member["id"]
            for cluster in found.clusters
            for member in cluster["members"][1:]
            if member["distance"] <= within
        ]
        for cluster in found.clusters:
            check_cluster(cluster, fingerprints, texts, order)


def check_cluster(cluster, fingerprints, texts, order):
    names = [member["id"] for member in cluster["members"]]
    assert cluster["size"] == len(names) == len(set(names))

    def distances(name):
        return [(fingerprints[name] ^ fingerprints[other]).bit_count() for other in names]

    best = min(names, key=lambda name: (sum(distances(name)), -len(texts[name]), order[name]))
    assert cluster["representative"] == names[0] == best
    assert [member["distance"] for member in cluster["members"]] == distances(best)
    assert names[1:] == sorted(
        names[1:], key=lambda name: ((fingerprints[name] ^ fingerprints[best]).bit_count(), order[name])
    )


@pytest.mark.parametrize("seed", [1, 2])
def test_generated_texts(tmp_path, newest, seed):
    texts = corpus.make_texts(seed, families=150)
    check_exact(write_lines(tmp_path / "texts.jsonl", texts), texts, *newest, tmp_path / "drop")


def test_generated_texts_have_what_is_tested(tmp_path):
    """Pairs at every distance up to 7, copies with equal fingerprints, chains, and texts that are alone."""
    texts = corpus.make_texts(1, families=150)
    fingerprints = fingerprints_of(write_lines(tmp_path / "texts.jsonl", texts))
    near = corpus.pairs(fingerprints.values(), 7)
    assert set(near.values()) == set(range(1, 8))
    assert len(set(fingerprints.values())) < len(fingerprints)
    found = corpus.groups(fingerprints, near)
    assert max(map(len, found)) > 4
    assert sum(map(len, found)) < len(texts)


def test_civil_codes(newest, tmp_path):
    """9,107 sections of civil codes, 41 million pairs."""
    path = DATA / "civil_codes.jsonl.xz"
    if not path.exists():
        pytest.skip(f"there is no {path}")
    with lzma.open(path, "rt", encoding="utf-8") as lines:
        texts = {row["id"]: row["text"] for row in map(json.loads, lines)}
    check_exact(path, texts, *newest, tmp_path / "drop")
