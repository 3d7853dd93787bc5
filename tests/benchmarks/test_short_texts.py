"""What docs/reference/fingerprints.md says of short texts is measured by a program that counts right."""

import numpy as np

from benchmarks.short_texts import DISTANCES, measure


def test_one_changed_word_counts_less_the_longer_the_text_is():
    chance = np.random.default_rng(1)
    texts = [[f"word{number}" for number in chance.integers(5000, size=150)] for _ in range(100)]
    short, long = (measure([*texts, ["too", "short"]], length, chance) for length in (4, 150))
    assert len(short) == len(long) == len(DISTANCES)
    assert short == sorted(short)
    assert long == sorted(long)
    assert short[2] < 0.1
    assert 0.9 < long[2] <= 1
    assert measure([["a", "b", "c"]], 3, chance)[0] == 0


def test_texts_of_one_word_have_nothing_in_common():
    assert measure([["a"], ["b"]] * 50, 1, np.random.default_rng(1))[-1] == 0
