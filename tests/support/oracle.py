"""What searches must find: brute force on Python integers. Shares nothing with simsql.

Fingerprints are bigints here, as rows hold them.
"""

import random
from collections.abc import Collection, Iterable

EXTREMES = [0, 1, 2**63 - 1, -(2**63), -(2**63) + 1, -1, -2]
_ONES = 2**64 - 1


def distance(a: int, b: int) -> int:
    return ((a ^ b) & _ONES).bit_count()


def to_bigint(unsigned: int) -> int:
    return unsigned - 2**64 if unsigned >= 2**63 else unsigned


def flip(fingerprint: int, bits: Iterable[int]) -> int:
    """The fingerprint with these bits flipped; bit 63 is the sign."""
    return to_bigint((fingerprint ^ sum(1 << bit for bit in bits)) & _ONES)


def near(fingerprints: Iterable[int | None], query: int, within: int) -> list[tuple[int, int]]:
    """(fingerprint, distance), once each, nearest first."""
    distinct = set(fingerprints) - {None}
    found = [(fingerprint, distance(fingerprint, query)) for fingerprint in distinct]
    return sorted((match for match in found if match[1] <= within), key=lambda match: (match[1], match[0]))


def pairs(fingerprints: Iterable[int | None], within: int) -> list[tuple[int, int, int]]:
    """(a, b, distance) with a < b, sorted."""
    distinct = sorted(set(fingerprints) - {None})
    return [
        (a, b, distance(a, b))
        for position, a in enumerate(distinct)
        for b in distinct[position + 1 :]
        if distance(a, b) <= within
    ]


def clusters(fingerprints: Collection[int | None], within: int) -> list[tuple[int, int]]:
    """(smallest member, member), sorted: all that have a neighbour or stand on two rows."""
    rows = [fingerprint for fingerprint in fingerprints if fingerprint is not None]
    cluster_of = {fingerprint: {fingerprint} for fingerprint in rows}
    for a, b, _ in pairs(rows, within):
        if cluster_of[a] is not cluster_of[b]:
            cluster_of[a] |= cluster_of[b]
            for member in cluster_of[b]:
                cluster_of[member] = cluster_of[a]
    return sorted(
        (min(cluster), fingerprint)
        for fingerprint, cluster in cluster_of.items()
        if len(cluster) > 1 or rows.count(fingerprint) > 1
    )


def clustered(count: int, seed: int) -> list[int]:
    """Fingerprints in any order: the extremes, and random ones with neighbours at all distances."""
    chance = random.Random(seed)
    found = list(EXTREMES)
    while len(found) < count:
        centre = chance.choice([chance.getrandbits(64), 0, -1, 2**63])
        centre = to_bigint(centre & _ONES)
        found.append(centre)
        for _ in range(chance.randrange(8)):
            bits = chance.choice([1, 2, 3, 4, 7, 8, 12, chance.randrange(65)])
            found.append(flip(centre, chance.sample(range(64), bits)))
    found = found[:count]
    chance.shuffle(found)
    return found
