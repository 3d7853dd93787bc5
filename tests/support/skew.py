"""Fingerprints with biased bits and families of near-duplicates, and how many of them searches read."""

import numpy as np

from simsql.hamming import Design


def skewed(count, seed=0):
    """Different fingerprints as bigints, in random order: bit means from .15 to .85; a fifth have relatives."""
    chance = np.random.default_rng(seed)
    means = chance.uniform(0.15, 0.85, 64)
    bits = chance.random((count, 64)) < means
    relatives = chance.choice(count, count // 5, replace=False)
    bits[relatives] = bits[chance.permutation(relatives)] ^ (chance.random((len(relatives), 64)) < 0.03)
    fingerprints = np.unique(np.packbits(bits, axis=1).view(">u8").ravel().astype(np.uint64))
    return chance.permutation(fingerprints).view(np.int64).tolist()


def mean_candidates(fingerprints, design, distance):
    """The keys of other fingerprints that a search for one of these reads, on average over all of them."""
    values = np.array(fingerprints, dtype=np.int64).view(np.uint64)
    reached = 0
    for permutation, radius in zip(Design(*design).permutations, Design(*design).radii(distance), strict=True):
        lead = values & np.uint64(permutation.lead_mask)
        reached += sum(
            int(np.count_nonzero(np.bitwise_count(part[:, None] ^ lead) <= radius)) - len(part)
            for part in np.array_split(lead, 1 + len(lead) // 500)
            if radius >= 0
        )
    return reached / len(values)
