"""The comparison with other tools counts what it says, and runs on a tiny corpus without them."""

import json
import re
from itertools import combinations

import numpy as np
import pytest
from sqlalchemy import make_url

from benchmarks.compare import __main__ as program
from benchmarks.compare import fingerprints
from benchmarks.compare.corpus import (
    Labelled,
    Quality,
    as_pairs,
    by_clusters,
    by_components,
    exact_pairs,
    generate,
    read_labelled,
)
from benchmarks.compare.fingerprints import System
from benchmarks.compare.servers import Server
from benchmarks.labelled import word_trigrams
from benchmarks.oracle import Oracle, WrongResultError

FOUR = Labelled("four", ["a b c d", "a b c d", "a b c d e f g h", "x y z"], np.array([0, 0, 0, 1]))


def test_pairs_and_clusters_are_judged_by_the_labels():
    pairs = as_pairs([(1, 0), (0, 1), (2, 3), (2, 2)])
    assert pairs.tolist() == [[0, 1], [2, 3]]
    assert FOUR.judge(pairs) == Quality(found=2, right=1, wanted=3)
    assert FOUR.judge(by_clusters(4, [[2, 0, 1]])) == Quality(3, 3, 3)
    assert by_components(5, as_pairs([(0, 3), (3, 4)])).tolist() == [4, 1, 2, 4, 4]
    assert FOUR.similar.tolist() == [[0, 1]]
    assert FOUR.found_of_similar(pairs) == 1
    assert FOUR.found_of_similar(by_clusters(4, [[0, 2]])) == 0
    assert FOUR.judge_searches([0, 2], [[0, 1, 3], []]) == Quality(2, 1, 4)
    quality = Quality(found=2, right=1, wanted=3)
    assert (quality.precision, quality.recall, quality.f1) == (0.5, pytest.approx(1 / 3), 0.4)
    assert Quality(0, 0, 1).precision is None


def test_the_corpus_has_near_duplicates_that_the_brute_force_finds():
    corpus = generate(150, 1)
    assert (len(corpus.texts), len(corpus.labels)) == (150, 150)
    assert corpus.texts == generate(150, 1).texts
    sets = list(map(word_trigrams, corpus.texts))
    expected = [
        [a, b]
        for a, b in combinations(range(150), 2)
        if len(sets[a] & sets[b]) >= 0.6 * len(sets[a] | sets[b]) and sets[a]
    ]
    assert corpus.similar.tolist() == expected
    assert exact_pairs(combinations(range(150), 2), sets).tolist() == expected
    quality = corpus.judge(corpus.similar)
    assert quality.precision > 0.9
    assert 0.5 < quality.recall < 1


def test_a_wrong_row_ends_the_run():
    oracle = Oracle(np.array([0, 1, 2**64 - 1], dtype=np.uint64))

    def judge(places: list[int], *, exact: bool) -> Quality:
        return fingerprints._judge(System("it", "", lambda _: [], exact=exact, answers=[places]), oracle, [0])

    assert judge([0, 1], exact=True) == Quality(1, 1, 1)
    assert judge([0], exact=False) == Quality(0, 0, 1)
    with pytest.raises(WrongResultError, match="it: a search for 0 finds"):
        judge([0], exact=True)
    with pytest.raises(WrongResultError):
        judge([0, 1, 2], exact=False)


def test_the_program_runs_on_a_labelled_file_without_other_tools(
    database_url, connection, tmp_path, capsys, monkeypatch
):
    corpus = generate(120, 2)
    path = tmp_path / "labelled.jsonl"
    rows = zip(corpus.texts, corpus.labels.tolist(), strict=True)
    path.write_text("".join(json.dumps({"text": text, "label": f"n{label}"}) + "\n" for text, label in rows))
    found = read_labelled(path, 100)
    assert (found.texts, found.wanted) == (corpus.texts[:100], Labelled("", [], corpus.labels[:100]).wanted)
    monkeypatch.setattr(program.files, "_ROUNDS", 1)
    program.compare(found, Server(make_url(database_url), connection), rows=1000, queries=10, seed=1, peers=False)
    shown = capsys.readouterr().out
    rows = [line.split(" | ") for line in shown.splitlines() if line.startswith("| simsql")]
    names = [re.sub(r" \(\d.*", "", row[0]) for row in rows]
    assert names == [
        "| simsql dedup",
        "| simsql dedup --by-features",
        "| simsql dedup",
        "| simsql dedup --by-features",
        "| simsql, storage `tables`",
        "| simsql, storage `expression`",
        "| simsql, distance 12, texts compared",
    ]
    assert [row[1:4] for row in rows[4:6]] == [["1.000"] * 3] * 2
    path.write_text('{"text": "no label"}\n')
    with pytest.raises(SystemExit, match=r"labelled\.jsonl:1 needs the fields"):
        read_labelled(path, None)
