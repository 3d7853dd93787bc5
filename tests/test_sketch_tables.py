"""The program behind the tables of sketches in docs/explanation/quality.md counts right, on made-up texts."""

from itertools import combinations

import corpus
import pytest

import simsql
from benchmarks import sketches
from benchmarks.decisions import Corpus
from benchmarks.labelled import find_alike, padded_trigrams

WIDE, NARROW = 12, 10


@pytest.fixture(scope="module")
def made_up():
    return Corpus("made up", list(corpus.make_texts(4, families=20, alone=10).values()))


def cells(line):
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_the_truth_is_the_similarity_of_the_program():
    words = [f"one two three four {number} six seven".split() for number in range(3)] + [
        ["one"],
        [],
        ["one", "two"],
    ]
    alike = find_alike(map(padded_trigrams, words), 0.1)
    for a, b in combinations(range(len(words)), 2):
        exact = simsql.similarity(" ".join(words[a]), " ".join(words[b]))
        assert alike.get((a, b), 0.0) == pytest.approx(exact if exact >= 0.1 else 0.0)


def test_ways_to_find_pairs(made_up):
    alike = find_alike(map(padded_trigrams, made_up.words), sketches.REPORTED)
    wanted = set(alike)
    near = {
        distance: {
            (a, b)
            for a, b in combinations(range(len(made_up.texts)), 2)
            if (simsql.simhash(made_up.texts[a]) ^ simsql.simhash(made_up.texts[b])).bit_count() <= distance
        }
        for distance in (NARROW, WIDE)
    }
    rows = {cells(line)[1]: cells(line)[2:] for line in sketches.decision_table("made up", made_up, alike)}
    for distance, found in near.items():
        right = len(found & wanted)
        expected = [len(found), len(found), right / len(found), right / len(wanted)]
        row = rows[f"simsql, distance {distance}, nothing else"]
        assert [float(cell) for cell in row[:4]] == pytest.approx(expected, abs=5e-4)
        for check in ("texts", "sketches, then texts"):
            assert rows[f"simsql, distance {distance}, {check}"][1:4] == [str(right), "1.000", row[3]]


def test_edited_copies_are_counted(made_up):
    exact, differing, apart = sketches.short_pairs(made_up)
    assert len(exact) == len(differing) == len(apart) > 10
    assert (exact >= 0).all()
    assert (exact < 1).any()
    counts = [cells(line)[2] for line in sketches.estimate_table([made_up]) if "---" not in line][1:]
    texts = sum(len(words) >= 40 for words in made_up.words)
    assert sum(int(count.replace(",", "")) for count in counts) == texts * 5
