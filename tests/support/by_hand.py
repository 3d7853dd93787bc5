"""The definition of a fingerprint in plain Python, one character, token, feature and bit at a time."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from hashlib import md5

import xxhash

from simsql.fingerprint import Recipe
from simsql.fingerprint.recipe import Pattern, Tokenizer

_MODULUS = 2**64
_GOLDEN, _SHINGLE = 0x9E3779B97F4A7C15, 0xD1342543DE82EF95
_BASIS, _PRIME = 0xCBF29CE484222325, 0x100000001B3
# What "marks" drops, of the characters that tests use.
DROPPED = "\u0301\u0640\u064e\u200d\u00ad\ufe0f"


def fingerprint(text: str, recipe: Recipe) -> int | None:
    """For words: texts of letters, of which none belongs to a script without spaces, and of no emoji."""
    return vote(Counter(features(tokens(normalise(text, recipe), recipe), recipe)), recipe)


def vote(counted: dict[tuple[str, ...], int], recipe: Recipe) -> int | None:
    """Of features, each a run of tokens, and how often each occurs."""
    if len(counted) < recipe.min_features:
        return None
    weights = {run: weigh(count, recipe.weight) for run, count in counted.items()}
    return majority([(feature_hash(run, recipe), weight) for run, weight in weights.items()], recipe.tie)


def majority(features: Iterable[tuple[int, int]], tie: int = 0) -> int:
    balance = [0] * 64
    for value, weight in features:
        for bit in range(64):
            balance[bit] += weight if value >> bit & 1 else -weight
    return sum(1 << bit for bit in range(64) if balance[bit] > 0 or (balance[bit] == 0 and tie))


def normalise(text: str, recipe: Recipe) -> str:
    steps = recipe.normalise
    if "nfkc" in steps:
        text = unicodedata.normalize("NFKC", text)
    if "casefold" in steps:
        text = text.casefold()
    if "lower" in steps:
        text = text.lower()
    if "nfkc" in steps:
        text = unicodedata.normalize("NFKC", text)
    if "marks" in steps:
        text = "".join(character for character in text if character not in DROPPED)
    return text


# The letters that revision 2 folds.
_FOLDED = str.maketrans(
    "\u0218\u0219\u021a\u021b\u02b9\u02bb\u02bc\u02bd\u02be\u02bf\ua78b\ua78c\u0622\u0623\u0625\u0671\u0649\u06cc\u06a9"
    "\u06c0\u06c1\u06c2\u06c3\u06f0\u06f1\u06f2\u06f3\u06f4\u06f5\u06f6\u06f7\u06f8\u06f9",
    "\u015e\u015f\u0162\u0163" + 8 * "'" + "\u0627\u0627\u0627\u0627\u064a\u064a\u0643"
    "\u0647\u0647\u0647\u0629\u0660\u0661\u0662\u0663\u0664\u0665\u0666\u0667\u0668\u0669",
)


def folded(text: str, steps: Sequence[str]) -> str:
    """Return a text after these steps but "marks", folded as revision 2 does it."""
    if "nfkc" in steps:
        text = unicodedata.normalize("NFKC", text)
    text = text.casefold() if "casefold" in steps else text.lower() if "lower" in steps else text
    if "nfkc" in steps:
        text = unicodedata.normalize("NFKC", text)
    return text.translate(_FOLDED)


def tokens(text: str, recipe: Recipe) -> list[str]:
    kind = recipe.tokens
    if isinstance(kind, Tokenizer):
        return list(kind.function(text))
    if isinstance(kind, Pattern):
        found = [match.group() for match in re.finditer(kind.expression, text) if match.group()]
        return list("".join(found)) if kind.characters else found
    marks = f"[{DROPPED}]"
    return re.findall(rf"(?:[^\W_]|{marks})+" if kind == "words" else rf"(?:[^\W_]|{marks}){marks}*", text)


def features(found: Sequence[str], recipe: Recipe) -> list[tuple[str, ...]]:
    count, runs = len(found), []
    for length in recipe.shingles:
        for start in range(count):
            if length <= count and (recipe.cyclic or start + length <= count):
                runs.append(tuple(found[place % count] for place in range(start, start + length)))
    if 0 < count < min(recipe.shingles):
        runs.append(tuple(found))
    stop_words = {normalise(word, recipe) for word in recipe.stop_words}
    return [run for run in runs if not stop_words or stop_words & set(run)]


def weigh(count: int, kind: str) -> int:
    return {"set": 1, "tf": count, "log": 1 + count.bit_length()}[kind]


def feature_hash(run: Sequence[str], recipe: Recipe) -> int:
    if recipe.hash == "splitmix":
        value = 0
        for token in run:
            value = (value * _SHINGLE + token_hash(token)) % _MODULUS
        return mix(value)
    characters = recipe.tokens == "characters" or getattr(recipe.tokens, "characters", False)
    return spelling_hash(("" if characters else " ").join(run), recipe.hash)


def spelling_hash(spelling: str, kind: str) -> int:
    octets = spelling.encode("utf-8", "surrogatepass")
    if kind == "fnv1":
        return fnv1(octets)
    if kind == "fnv1utf16":
        encoded = spelling.encode("utf-16-be", "surrogatepass")
        return fnv1([first * 256 + second for first, second in zip(encoded[::2], encoded[1::2], strict=True)])
    if kind == "fnv1a":
        state = _BASIS
        for octet in octets:
            state = (state ^ octet) * _PRIME % _MODULUS
        return state
    if kind == "xxh3":
        return int(xxhash.xxh3_64_hexdigest(octets), 16)
    if kind == "jenkins":
        return jenkins(octets)
    digits = md5(octets).hexdigest()
    return int(digits[:16] if kind == "md5" else digits[16:], 16)


def fnv1(units: Iterable[int]) -> int:
    state = _BASIS
    for unit in units:
        state = state * _PRIME % _MODULUS ^ unit
    return state


def jenkins(octets: bytes) -> int:
    """Return both results of lookup3's hashlittle2, the first in the upper half."""

    def rot(value: int, bits: int) -> int:
        return (value << bits | value >> 32 - bits) % 2**32

    a = b = c = (0xDEADBEEF + len(octets)) % 2**32
    blocks = [octets[start : start + 12].ljust(12, b"\0") for start in range(0, len(octets), 12)]
    for number, block in enumerate(blocks, 1):
        a, b, c = (
            (value + int.from_bytes(block[start : start + 4], "little")) % 2**32
            for value, start in ((a, 0), (b, 4), (c, 8))
        )
        if number < len(blocks):
            a, c = (a - c) % 2**32 ^ rot(c, 4), (c + b) % 2**32
            b, a = (b - a) % 2**32 ^ rot(a, 6), (a + c) % 2**32
            c, b = (c - b) % 2**32 ^ rot(b, 8), (b + a) % 2**32
            a, c = (a - c) % 2**32 ^ rot(c, 16), (c + b) % 2**32
            b, a = (b - a) % 2**32 ^ rot(a, 19), (a + c) % 2**32
            c, b = (c - b) % 2**32 ^ rot(b, 4), (b + a) % 2**32
    if blocks:
        c = ((c ^ b) - rot(b, 14)) % 2**32
        a = ((a ^ c) - rot(c, 11)) % 2**32
        b = ((b ^ a) - rot(a, 25)) % 2**32
        c = ((c ^ b) - rot(b, 16)) % 2**32
        a = ((a ^ c) - rot(c, 4)) % 2**32
        b = ((b ^ a) - rot(a, 14)) % 2**32
        c = ((c ^ b) - rot(b, 24)) % 2**32
    return c << 32 | b


def token_hash(token: str) -> int:
    octets = token.encode("utf-8", "surrogatepass")
    total = len(octets)
    for number, start in enumerate(range(0, len(octets) or 1, 8), 1):
        total += mix((int.from_bytes(octets[start : start + 8], "little") + number * _GOLDEN) % _MODULUS)
    return mix(total % _MODULUS)


def mix(value: int) -> int:
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 % _MODULUS
    value = (value ^ value >> 27) * 0x94D049BB133111EB % _MODULUS
    return value ^ value >> 31
