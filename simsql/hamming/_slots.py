"""Slots: keys that agree in some of their bits are brought together without sorting them.

A table has a few times as many slots as there are keys. The bits in question, multiplied by an odd constant and
shifted (Dietzfelbinger and others, 1997), give each key its slot: equal bits the same one, other bits seldom.
Millions of reads and writes at random places of such a table take 5 to 10 ns each. Sorting takes 15 ns a key or,
where numpy sorts with AVX-512 on AMD Zen 4, 70.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simsql.hamming._checks import FINGERPRINT_BITS

_ODD = np.uint64(0x9E3779B97F4A7C15)  # 2**64 divided by the golden ratio
# Keys handled at a time: their arrays fit a core's own cache.
STEP = 1 << 15


def slots_for(keys: int) -> int:
    """Return how many slots a table for so many keys has: two to four for each, a power of two."""
    return 1 << (2 * keys).bit_length()


def slots_of(keys: NDArray[np.uint64], mask: int, count: int) -> NDArray[np.intp]:
    """Return the slot of each key by its bits under `mask`, below `count`, a power of two from 2 on."""
    slots = keys & np.uint64(mask)
    slots *= _ODD
    slots >>= np.uint64(FINGERPRINT_BITS + 1 - count.bit_length())
    return slots.view(np.intp)


def fill_slots(
    table: NDArray[np.uint32], keys: NDArray[np.uint64], mask: int
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Write the position of each key into its slot of `table`.

    Where keys share a slot, one of them holds it in the end. Returns the positions of all others, rising, and
    beside each the position of the key that holds its slot.
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
