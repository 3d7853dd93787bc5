"""How many bits a change moves by the mathematics of the vote, and what must not matter at all."""

import os
import subprocess
import sys
from collections.abc import Sequence
from math import acos, comb, log, pi, sqrt
from pathlib import Path

import numpy as np
import pytest

import simsql
from simsql.fingerprint import (
    DEFAULT_RECIPE,
    IdfTable,
    Recipe,
    majority,
    simhash_many,
)

PACKAGE = Path(simsql.__file__).parents[1]
SINGLE = {weight: Recipe(shingles=(1,), weight=weight) for weight in ("set", "log", "tf")}


# Two texts with weight vectors at an angle of theta. Each feature has a random sign in each bit, so a bit is the
# side of a random hyperplane, and differs with probability theta / pi (Charikar, STOC 2002): the distance is
# binomial, 64 * theta / pi on average. That is exact for hyperplanes with a normal distribution. Signs are +-1, so
# sums are on a lattice, with ties where they can be 0, and the probability is `chance_of_moving`. It tends to
# theta / pi where many features change; where one of n does, to sqrt(pi) / 2 = 0.886 of it, for any n.

TRIALS = 1500
CASES = {
    # features of a text, and how many of them the other text does not have
    "one of 10": (10, 1),
    "one of 11": (11, 1),
    "one of 100": (100, 1),
    "one of 1001": (1001, 1),
    "cos 0.9, 100": (100, 10),
    "cos 0.9, 1000": (1000, 100),
    "cos 0.5, 10": (10, 5),
    "cos 0.5, 1000": (1000, 500),
    "nothing in common": (101, 101),
}


@pytest.mark.parametrize(("size", "changed"), CASES.values(), ids=CASES)
@pytest.mark.parametrize("weight", ["set", "log"])
def test_changed_features_move_as_many_bits_as_the_theory_says(size, changed, weight):
    # How often each word is in its text; weights are from 2 to 5 under log.
    counts = [(1, 1, 3, 1, 2, 9, 1)[place % 7] if weight == "log" else 1 for place in range(size)]
    weights = [1 + count.bit_length() if weight == "log" else 1 for count in counts]
    trials = TRIALS if size < 1000 else TRIALS // 5

    def texts(side):
        for trial in range(trials):
            names = [f"{'same' if place >= changed else side}{trial}x{place} " for place in range(size)]
            yield "".join(name * count for name, count in zip(names, counts, strict=True))

    left, right = (simhash_many(texts(side), SINGLE[weight]) for side in ("left", "right"))
    moved = np.bitwise_count(left.data ^ right.data).astype(int)
    check_binomial(moved, chance_of_moving(weights[changed:], weights[:changed]))

    theta = acos(sum(w * w for w in weights[changed:]) / sum(w * w for w in weights))
    share = chance_of_moving(weights[changed:], weights[:changed]) / (theta / pi)
    if changed == 1:
        assert 0.85 < share < 1.05 if weight == "set" else 0.7 < share < 1.4
    elif size >= 100:
        assert share == pytest.approx(1, abs=0.03)
    if size >= 1000 and changed > 1:
        assert moved.mean() == pytest.approx(64 * theta / pi, abs=4.5 * sqrt(moved.var() / trials))


def test_other_weights_of_the_same_features_move_bits_by_their_angle():
    counts = np.array([(1, 1, 3, 1, 2, 9, 1)[place % 7] for place in range(700)])
    others = np.roll(counts, 3)

    def texts(own):
        for trial in range(300):
            yield "".join(f"{trial}x{place} " * count for place, count in enumerate(own.tolist()))

    left, right = (simhash_many(texts(own), SINGLE["tf"]) for own in (counts, others))
    theta = acos((counts @ others) / (counts @ counts))
    moved = np.bitwise_count(left.data ^ right.data).astype(int)
    assert 10 < 64 * theta / pi < 30
    assert moved.mean() == pytest.approx(64 * theta / pi, abs=4.5 * sqrt(moved.var() / 300))


def test_the_chance_of_one_feature_is_known_in_closed_form():
    """Of an odd number: the bit moves if the others are even, and the feature's sign is another."""
    for size in (3, 11, 101):
        expected = comb(size - 1, (size - 1) // 2) / 2**size
        assert chance_of_moving([1] * (size - 1), [1]) == pytest.approx(expected)
    assert chance_of_moving([1] * 1000, [1]) * pi / acos(1000 / 1001) == pytest.approx(sqrt(pi) / 2, rel=1e-3)


def check_binomial(moved: np.ndarray, chance: float) -> None:
    """The moved bits are distributed as heads of 64 coins: mean, variance, and all of the distribution."""
    trials = len(moved)
    mean, variance = 64 * chance, 64 * chance * (1 - chance)
    assert moved.mean() == pytest.approx(mean, abs=4 * sqrt(variance / trials))
    # The variance of a sample's variance, from the fourth moment of the binomial distribution.
    excess = (1 - 6 * chance * (1 - chance)) / variance
    assert moved.var() == pytest.approx(variance, abs=4 * variance * sqrt((2 + excess) / trials))
    shares = [comb(64, bits) * chance**bits * (1 - chance) ** (64 - bits) for bits in range(65)]
    found = np.bincount(moved, minlength=65) / trials
    # Dvoretzky, Kiefer, Wolfowitz: a larger gap anywhere has a probability of one in ten thousand.
    assert abs(np.cumsum(found) - np.cumsum(shares)).max() <= sqrt(log(2 / 1e-4) / (2 * trials))


def chance_of_moving(common: Sequence[int], own: Sequence[int]) -> float:
    """The exact probability that a bit differs between two votes with these weights: some common, some their own.

    A bit is set if the sum of the weights, each with a random sign, is above 0; a tie is not.
    """
    # The probability that a vote is above 0, for each sum of the common weights: its own are above the negative.
    at_most = np.concatenate([[0], np.cumsum(sums(own)), [1]])
    negative = np.arange(sum(common), -sum(common) - 1, -1)
    above = 1 - at_most[np.clip(negative + sum(own) + 1, 0, len(at_most) - 1)]
    return float((sums(common) * 2 * above * (1 - above)).sum())


def sums(weights: Sequence[int]) -> np.ndarray:
    """The distribution of the sum of weights with random signs, from minus their sum to their sum."""
    found = np.ones(1)
    for weight in weights:
        step = np.zeros(2 * weight + 1)
        step[[0, -1]] = 0.5
        found = np.convolve(found, step)
    return found


TEXTS = [
    "",
    "a",
    "Straße, Ёлка και Tiếng Việt",
    "بَلَدٌ جميل",
    "中华人民共和国，かガー",
    "to be or not to be " * 50,
    "😀 한국어",
]
RECIPES = [DEFAULT_RECIPE, Recipe(shingles=(3,), weight="tf"), Recipe("characters", (2, 5), "set")]


SCRIPT = """
import sys
from simsql.fingerprint import Recipe, batches, simhash_many

if __name__ == "__main__":
    batches.TASK_CHARACTERS = 10
    texts, ids, workers = eval(sys.stdin.read())
    print([simhash_many(texts, Recipe.from_id(id), workers).tolist() for id in ids])
"""


@pytest.mark.parametrize(("seed", "workers"), [("0", None), ("4711", 3)])
def test_neither_the_hash_seed_nor_processes_matter(tmp_path, seed, workers):
    script = tmp_path / "work.py"
    script.write_text(SCRIPT)
    found = subprocess.run(
        [sys.executable, script],
        input=repr((TEXTS, [recipe.id for recipe in RECIPES], workers)),
        env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONUTF8": "1", "PYTHONPATH": str(PACKAGE)},
        stdout=subprocess.PIPE,
        encoding="utf-8",
        check=True,
    )
    assert eval(found.stdout) == [simhash_many(TEXTS, recipe).tolist() for recipe in RECIPES]


def test_arrays_of_either_byte_order_are_taken():
    chance = np.random.default_rng(5)
    hashes, weights = chance.integers(0, 2**64, 99, dtype=np.uint64), chance.integers(0, 2**40, 99)
    for order in "<>":
        assert majority(hashes.astype(f"{order}u8"), weights.astype(f"{order}i8")) == majority(hashes, weights)


def test_idf_tables_of_either_byte_order_are_read(tmp_path):
    hashes = np.array([2, 2**40, 2**64 - 1], dtype=np.uint64)
    weights = np.array([1, 5, 256], dtype=np.int32)
    table = IdfTable(hashes, weights, 9)
    for order in "<>":
        path = tmp_path / "table.npz"
        arrays = {"hashes": hashes.astype(f"{order}u8"), "weights": weights.astype(f"{order}i4")}
        np.savez_compressed(path, **arrays, other=9, features="")
        found = IdfTable.read(path)
        assert found == table
        assert found.digest == table.digest
        assert found.weigh(hashes).tolist() == weights.tolist()
