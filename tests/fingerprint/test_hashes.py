import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from simsql.fingerprint.hashes import hash_spans, mix

M64 = 2**64 - 1
GOLDEN = 0x9E3779B97F4A7C15


def mix_by_hand(value):
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & M64
    value = (value ^ value >> 27) * 0x94D049BB133111EB & M64
    return value ^ value >> 31


def hash_by_hand(token):
    words = [int.from_bytes(token[start : start + 8], "little") for start in range(0, len(token), 8)]
    total = sum(mix_by_hand((word + (number + 1) * GOLDEN) & M64) for number, word in enumerate(words))
    return mix_by_hand((total + len(token)) & M64)


def hash_all(tokens):
    lengths = np.array([len(token) for token in tokens], dtype=np.int64)
    starts = np.cumsum(lengths) - lengths
    return hash_spans(b"".join(tokens) + bytes(8), starts, lengths).tolist()


def test_mix_is_splitmix64():
    # The first outputs of splitmix64.c (Vigna) from the seed 1234567.
    state = np.array([1234567 + GOLDEN * step & M64 for step in (1, 2, 3)], dtype=np.uint64)
    assert mix(state).tolist() == [6457827717110365317, 3203168211198807973, 9817491932198370423]


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=10))
def test_spans_have_the_hash_of_the_definition(tokens):
    assert hash_all(tokens) == [hash_by_hand(token) for token in tokens]


def test_golden_values():
    assert hash_all([b"a", b"simhash!", b"fingerprints", bytes(24)]) == [
        17217418406357275742,
        5150980435277296416,
        17400252926300068731,
        13725818828257387253,
    ]


def test_lengths_and_neighbours_of_all_sizes_differ():
    tokens = [letter * size for size in range(1, 200) for letter in (b"\0", b"a", b"b")]
    assert len(set(hash_all(tokens))) == len(tokens)


def test_every_bit_is_set_for_about_half_of_the_tokens():
    values = np.array(hash_all([str(number).encode() for number in range(20_000)]), dtype=np.uint64)
    share = np.unpackbits(values.view(np.uint8)).reshape(-1, 64).mean(axis=0)
    assert abs(share - 0.5).max() < 0.02
