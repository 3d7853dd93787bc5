"""The program behind the tables of sketches in docs/explanation/quality.md counts right, on made-up texts."""

from itertools import combinations

import corpus
import pytest

import simsql
from benchmarks import sketches
from benchmarks.decisions import Corpus
from benchmarks.labelled import find_alike, padded_trigrams


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
    rows = {cells(line)[1]: cells(line)[2:] for line in sketches.decision_table("made up", made_up, alike)}
    near = {
        (a, b)
        for a, b in combinations(range(len(made_up.texts)), 2)
        if simsql.hamming_distance(*(simsql.simhash(made_up.texts[place]) for place in (a, b))) <= 12
    }
    right, row = len(near & wanted), rows["simsql, distance 12, nothing else"]
    assert [int(row[0]), int(row[1])] == [len(near), len(near)]
    shares = [float(cell.split()[0]) for cell in row[2:5]]
    expected = [right / len(near), right / len(wanted), 2 * right / (len(near) + len(wanted))]
    assert shares == pytest.approx(expected, abs=5e-4)
    row = rows["simsql, bands and sketches, texts"]
    assert row[1] == str(len(wanted))
    assert [cell.split()[0] for cell in row[2:5]] == ["1.000"] * 3


def test_edited_copies_are_counted(made_up):
    exact, differing, apart = sketches.short_pairs(made_up)
    assert len(exact) == len(differing) == len(apart) > 10
    assert (exact >= 0).all()
    assert (exact < 1).any()
    counts = [cells(line)[2] for line in sketches.estimate_table([made_up]) if "---" not in line][1:]
    texts = sum(len(words) >= 40 for words in made_up.words)
    assert sum(int(count.replace(",", "")) for count in counts) == texts * 5
