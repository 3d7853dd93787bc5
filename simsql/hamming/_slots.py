"""Slots bring together keys that agree in some of their bits, without sorting.

A table has a few times as many slots as there are keys. The slot of a key is computed from these bits by
multiplication with an odd constant and a shift (Dietzfelbinger and others, 1997): equal bits have the same slot,
different bits rarely do. Random reads and writes in a table of millions of slots take 5 to 10 ns each. Sorting
takes 15 ns per key, or 70 ns if NumPy sorts with AVX-512 on AMD Zen 4.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simsql.hamming._checks import FINGERPRINT_BITS

_ODD = np.uint64(0x9E3779B97F4A7C15)  # 2**64 divided by the golden ratio
# Keys processed at a time, whose arrays fit the cache of a core.
STEP = 1 << 15


def slots_for(keys: int) -> int:
    """Return the number of slots for this number of keys: two to four for each, a power of two."""
    return 1 << (2 * keys).bit_length()


def slots_of(keys: NDArray[np.uint64], mask: int, count: int) -> NDArray[np.intp]:
    """Return the slot of each key by its bits under `mask`, below `count`, a power of two of at least 2."""
    slots = keys & np.uint64(mask)
    slots *= _ODD
    slots >>= np.uint64(FINGERPRINT_BITS + 1 - count.bit_length())
    return slots.view(np.intp)


def fill_slots(
    table: NDArray[np.uint32], keys: NDArray[np.uint64], mask: int
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Write the position of each key into its slot of `table`.

    If keys share a slot, one of them holds it in the end. Returns the positions of all others, ascending, and for
    each the position of the key that holds its slot.
    """
    for start in range(0, keys.size, STEP):
        slots = slots_of(keys[start : start + STEP], mask, table.size)
        table[slots] = np.arange(start, start + slots.size, dtype=np.uint32)
    others, holders = [np.empty(0, dtype=np.intp)], [np.empty(0, dtype=np.intp)]
    for start in range(0, keys.size, STEP):
        found = table[slots_of(keys[start : start + STEP], mask, table.size)]
        lost = np.flatnonzero(found != np.arange(start, start + found.size, dtype=np.uint32))
        others.append(lost + start)
        holders.append(found[lost].astype(np.intp))
    return np.concatenate(others), np.concatenate(holders)
