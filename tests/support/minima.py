"""MinHashes, bands and candidates by their definition, in plain Python."""

from functools import cache

from simsql.fingerprint import BANDS, DEFAULT_RECIPE, simhash_items_with_tokens, sketch_distance
from simsql.fingerprint.extract import find_tokens
from simsql.fingerprint.hashes import hash_as_tokens

BITS_64 = 2**64 - 1


def mix(value):
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & BITS_64
    value = (value ^ value >> 27) * 0x94D049BB133111EB & BITS_64
    return value ^ value >> 31


MULTIPLIERS = [mix((k + 1) * 0x9E3779B97F4A7C15 & BITS_64) >> 32 | 1 for k in range(64)]


@cache
def plain_minima(text, recipe=DEFAULT_RECIPE):
    (tokens,) = find_tokens([text], recipe)
    if not tokens:
        return None
    hashes = [0, 0, *map(int, hash_as_tokens(tokens)), 0, 0]
    multiplier = 0xD1342543DE82EF95
    trigrams = {
        (a * multiplier + b) * multiplier + c & BITS_64
        for a, b, c in zip(hashes, hashes[1:], hashes[2:], strict=False)
    }
    values = [mix(trigram) >> 32 for trigram in trigrams]
    return [min(value * odd % 2**32 for value in values) for odd in MULTIPLIERS]


def plain_sketch(text, recipe=DEFAULT_RECIPE):
    smallest = plain_minima(text, recipe)
    return smallest and sum((mix(k << 32 | value) & 1) << k for k, value in enumerate(smallest))


def plain_bands(text):
    keys = list(range(BANDS))
    for place, value in enumerate((plain_minima(text) or [])[: 3 * BANDS]):
        keys[place // 3] = (keys[place // 3] * 0xD1342543DE82EF95 + value) & BITS_64
    return [mix(key) % 2**32 if plain_minima(text) else 0 for key in keys]


_described = {}


def describe(texts, recipe=DEFAULT_RECIPE):
    """Look up many texts at once, which is faster, for `described`."""
    for some, fingerprints, _, (sketches, bands) in simhash_items_with_tokens(
        ((text, text) for text in texts), recipe
    ):
        for text, *found in zip(some, fingerprints.tolist(), sketches.tolist(), bands.tolist(), strict=True):
            _described[text, recipe] = found


def described(text, recipe=DEFAULT_RECIPE):
    """Return the fingerprint, sketch and bands of a text, which other tests compare with the definitions."""
    if (text, recipe) not in _described:
        describe([text], recipe)
    return _described[text, recipe]


def are_candidates(one, other, distance=12, similarity=0.6, recipe=DEFAULT_RECIPE):
    """Return whether two texts with words are compared, if no crowd is large."""
    (print_, sketch, keys), (other_print, other_sketch, other_keys) = (
        described(text, recipe) for text in (one, other)
    )
    apart = (sketch ^ other_sketch).bit_count()
    limit = sketch_distance(similarity)
    near = apart <= limit and apart + (print_ ^ other_print).bit_count() <= limit + distance + 2
    return near and any(a == b for a, b in zip(keys, other_keys, strict=True))
