"""Fingerprints for the tests of simsql.hamming, and figures that were published."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import strategies as st

SHARED = Path(os.environ.get("SIMSQL_SHARED", Path(__file__).parents[2].parent / "shared")) / "data"
BOUNDARIES = [0, 1, 2**63 - 1, 2**63, 2**64 - 1]
WORD = st.integers(0, 2**64 - 1) | st.sampled_from(BOUNDARIES)
# The paper's designs for 2**34 fingerprints of 64 bits at distance 3 (section 3.1.1): arguments of Design, tables,
# lengths of prefixes, and how many fingerprints a probe meets at most.
PAPER = [
    ((6, 3), 20, {31, 32, 33}, 8),
    ((4, 1, 4), 16, {28}, 64),
    ((5, 2), 10, {25, 26}, 512),
    ((4, 1), 4, {16}, 262_144),
]


def near(centres):
    """Fingerprints with some bits of one of the centres flipped."""
    flips = st.lists(st.integers(0, 63), max_size=12).map(lambda bits: sum(1 << bit for bit in set(bits)))
    return st.builds(int.__xor__, st.sampled_from(centres), flips)


def random_words(seed, count):
    return np.random.default_rng(seed).integers(0, 2**64, count, dtype=np.uint64)


def published(name):
    if not SHARED.is_dir():
        pytest.skip(f"no shared data in {SHARED}")
    rows = json.loads((SHARED / "vectors.json").read_text())[name]
    assert rows
    return rows
