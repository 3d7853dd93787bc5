"""What a long text takes in memory beside itself is bounded."""

import random
import tracemalloc

import pytest

from simsql.fingerprint import simhash, sketch

WORDS = random.Random(1).choices([f"word{number}" for number in range(5_000)], k=50_000)
SENTENCES = " ".join(WORDS) + "\n"
MEGABYTE = 1_000_000
TEXTS = {
    "words": (SENTENCES, 8 * MEGABYTE, 45 * MEGABYTE),
    "one word": ("x" * 400_000, 8 * MEGABYTE, 120 * MEGABYTE),
    "Han without a separator": (
        "".join(chr(0x4E00 + int(word[4:])) for word in WORDS),
        2 * MEGABYTE,
        200 * MEGABYTE,
    ),
}


@pytest.mark.parametrize("make", [simhash, sketch])
@pytest.mark.parametrize("name", TEXTS)
def test_a_long_text_takes_little_memory_beside_itself(name, make):
    some, length, most = TEXTS[name]
    make(some)  # builds tables that stay
    text = some * (length // len(some))
    tracemalloc.start()
    try:
        assert make(text) is not None
        assert tracemalloc.get_traced_memory()[1] < most
    finally:
        tracemalloc.stop()
