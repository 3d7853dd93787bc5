"""Blocks, permutations and flip masks against a slow oracle on strings of bits."""

import itertools
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simsql.hamming.blocks import block_sizes, flip_masks, permutations

BOUNDARIES = [0, 1, 2**63 - 1, 2**63, 2**64 - 1]
fingerprints = st.integers(0, 2**64 - 1) | st.sampled_from(BOUNDARIES)
plain = st.integers(2, 12).flatmap(lambda m: st.tuples(st.just(m), st.integers(1, min(m, 4)), st.just(0)))
nested = st.tuples(st.integers(3, 6), st.integers(1, 2), st.integers(2, 4))
choices = plain | nested


def cut(bits, blocks):
    """Cut a sequence into contiguous parts, the longer ones first."""
    parts = []
    size, longer = divmod(len(bits), blocks)
    for part in range(blocks):
        end = size + (part < longer)
        parts.append(bits[:end])
        bits = bits[end:]
    return parts


def slow_leads(blocks, lead, inner_blocks, width):
    """The positions of the lead bits of each permutation, counted from the most significant bit."""
    parts = cut(range(width), blocks)
    for leading in itertools.combinations(range(blocks), lead):
        chosen = [position for block in leading for position in parts[block]]
        others = [position for position in range(width) if position not in chosen]
        for joining in cut(others, inner_blocks) if inner_blocks else [[]]:
            yield sorted([*chosen, *joining])


def slow_keys(fingerprint, blocks, lead, inner_blocks, width):
    """The keys of all permutations, by picking the characters of a string of bits."""
    bits = format(fingerprint, f"0{width}b")
    return [
        int("".join([bits[i] for i in front] + [bits[i] for i in range(width) if i not in front]), 2)
        for front in slow_leads(blocks, lead, inner_blocks, width)
    ]


def test_blocks_are_contiguous_and_the_larger_ones_come_first():
    assert block_sizes(6) == (11, 11, 11, 11, 10, 10)
    assert block_sizes(5) == (13, 13, 13, 13, 12)
    assert block_sizes(4) == (16,) * 4
    assert block_sizes(1) == (64,)
    assert block_sizes(64) == (1,) * 64
    assert block_sizes(5, 12) == (3, 3, 2, 2, 2)


@pytest.mark.parametrize("width", [1, 12, 63, 64])
def test_blocks_cover_every_bit(width):
    for blocks in range(1, width + 1):
        sizes = block_sizes(blocks, width)
        assert len(sizes) == blocks
        assert sum(sizes) == width
        assert list(sizes) == sorted(sizes, reverse=True)
        assert sizes[0] - sizes[-1] <= 1


@pytest.mark.parametrize("choice", [(5, 2), (4, 1), (4, 1, 4), (5, 2, 3)])
def test_permutations_are_numbered_by_lead_blocks_then_inner_block(choice):
    made = permutations(*choice)
    leads = list(slow_leads(*choice, *[0] * (3 - len(choice)), 64))
    assert [p.number for p in made] == list(range(len(leads)))
    assert [p.lead_mask for p in made] == [sum(1 << 63 - bit for bit in lead) for lead in leads]


def test_a_worked_example_in_hexadecimal():
    keys = [p.key(0x0123456789ABCDEF) for p in permutations(4, 2)]
    assert [f"{key:016x}" for key in keys] == [
        "0123456789abcdef",
        "012389ab4567cdef",
        "0123cdef456789ab",
        "456789ab0123cdef",
        "4567cdef012389ab",
        "89abcdef01234567",
    ]


def test_a_nested_worked_example_in_hexadecimal():
    """The paper's 16 tables: 16 bits, then 12 of the other 48. Lead bits keep their order among themselves."""
    keys = [p.key(0x0123456789ABCDEF) for p in permutations(4, 1, 4)]
    assert [f"{key:016x}" for key in keys[:8]] == [
        "0123456789abcdef",
        "0123789456abcdef",
        "0123abc456789def",
        "0123def456789abc",
        "0124567389abcdef",
        "3456789012abcdef",
        "4567abc012389def",
        "4567def012389abc",
    ]


@given(fingerprints, choices)
def test_keys_of_ints_equal_the_oracle(fingerprint, choice):
    assert [p.key(fingerprint) for p in permutations(*choice)] == slow_keys(fingerprint, *choice, 64)


@given(st.integers(0, 2**12 - 1), choices)
def test_keys_of_narrow_fingerprints_equal_the_oracle(fingerprint, choice):
    assert [p.key(fingerprint) for p in permutations(*choice, width=12)] == slow_keys(fingerprint, *choice, 12)


@given(st.lists(fingerprints, max_size=20), choices)
def test_keys_of_arrays_equal_keys_of_ints(values, choice):
    array = np.array([*BOUNDARIES, *values], dtype=np.uint64)
    for permutation in permutations(*choice):
        keys = permutation.key(array)
        assert keys.dtype == np.uint64
        assert keys.tolist() == [permutation.key(int(value)) for value in array]


def test_the_shape_of_an_array_is_kept_and_the_array_untouched():
    array = np.random.default_rng(1).integers(0, 2**64, (70_000, 2), dtype=np.uint64)
    before = array.copy()
    permutation = permutations(7, 3)[20]
    strided, scalar, empty = array[::2, 1], np.array(array[0, 0]), array[:0]
    keys = permutation.key(array)
    assert keys.shape == (70_000, 2)
    assert keys[::500].tolist() == [[permutation.key(one) for one in row] for row in array[::500].tolist()]
    assert (permutation.key(strided) == permutation.key(array)[::2, 1]).all()
    assert permutation.key(scalar).shape == ()
    assert permutation.key(empty).shape == (0, 2)
    assert (array == before).all()


@given(fingerprints, choices)
def test_masks_mark_the_lead_bits_before_and_after(fingerprint, choice):
    for permutation in permutations(*choice):
        assert permutation.key(permutation.lead_mask) == permutation.prefix_mask
        assert permutation.lead_mask.bit_count() == permutation.prefix_bits
        assert permutation.key(fingerprint & permutation.lead_mask) == (
            permutation.key(fingerprint) & permutation.prefix_mask
        )
        assert permutation.prefix_mask >> (64 - permutation.prefix_bits) == 2**permutation.prefix_bits - 1


@pytest.mark.parametrize(("mask", "radius"), [(0, 3), (1, 0), (0b1011_0110, 2), (0xFFFF, 3), (1 << 63, 64)])
def test_flip_masks_are_every_subset_up_to_the_radius(mask, radius):
    masks = flip_masks(mask, radius)
    expected = {value for value in subsets(mask) if value.bit_count() <= radius}
    assert masks.dtype == np.uint64
    assert masks[0] == 0
    assert len(masks) == len(expected)
    assert set(masks.tolist()) == expected
    assert np.bitwise_count(masks).tolist() == sorted(np.bitwise_count(masks).tolist())


def subsets(mask):
    value = mask
    while True:
        yield value
        if value == 0:
            return
        value = (value - 1) & mask


def test_permutations_keep_the_distance():
    left, right = np.random.default_rng(2).integers(0, 2**64, (2, 100), dtype=np.uint64)
    for permutation in permutations(6, 3):
        keys = permutation.key(left) ^ permutation.key(right)
        assert (np.bitwise_count(keys) == np.bitwise_count(left ^ right)).all()


def test_flip_masks_of_a_prefix():
    permutation = permutations(2, 1)[1]
    masks = flip_masks(permutation.prefix_mask, 1)
    assert len(masks) == 1 + comb(32, 1)
    assert not (masks & np.uint64(2**32 - 1)).any()
