import json
from hashlib import md5

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from simsql.fingerprint import named_hashes
from simsql.fingerprint.named_hashes import hash_strings

BASIS, PRIME = 0xCBF29CE484222325, 0x100000001B3
# Lone surrogates too, and every width of UTF-8 and UTF-16.
STRINGS = st.lists(
    st.text(st.one_of(st.sampled_from("ab \0é中😀\ud83d\ude00"), st.characters(codec=None)), max_size=40)
)


def utf8(text):
    return text.encode("utf-8", "surrogatepass")


def utf16(text):
    encoded = text.encode("utf-16-be", "surrogatepass")
    return [first * 256 + second for first, second in zip(encoded[::2], encoded[1::2], strict=True)]


def fnv1(units):
    state = BASIS
    for unit in units:
        state = state * PRIME % 2**64 ^ unit
    return state


def fnv1a(units):
    state = BASIS
    for unit in units:
        state = (state ^ unit) * PRIME % 2**64
    return state


BY_HAND = {
    "fnv1": lambda text: fnv1(utf8(text)),
    "fnv1a": lambda text: fnv1a(utf8(text)),
    "fnv1utf16": lambda text: fnv1(utf16(text)),
    "md5": lambda text: int(md5(utf8(text)).hexdigest()[:16], 16),
    "md5low": lambda text: int(md5(utf8(text)).hexdigest()[16:], 16),
    "xxh3": lambda text: int(xxhash.xxh3_64_hexdigest(utf8(text)), 16),
}


@pytest.mark.parametrize("kind", BY_HAND)
@given(strings=STRINGS)
def test_hashes_are_the_definition(kind, strings):
    assert hash_strings(strings, kind).tolist() == list(map(BY_HAND[kind], strings))


@pytest.mark.parametrize("kind", ["fnv1", "fnv1a", "fnv1utf16"])
def test_long_strings_are_hashed_in_pieces(kind):
    length = named_hashes._AT_ONCE
    strings = [
        "",
        "a中" * length,
        "",
        "b" * (length - 7),
        "😀" * length,
        *["c", "", "dd"] * 9,
        "e" * 5 * length,
        "",
    ]
    assert hash_strings(strings, kind).tolist() == list(map(BY_HAND[kind], strings))


@pytest.mark.parametrize("length", [1, 2, 3, 5])
def test_no_cut_changes_a_hash(length, monkeypatch):
    strings = ["", "é", "one two", "", "中文字", "x", "y", "", "forty-two", ""]
    whole = {kind: hash_strings(strings, kind).tolist() for kind in BY_HAND}
    monkeypatch.setattr(named_hashes, "_AT_ONCE", length)
    named_hashes._powers.cache_clear()
    assert {kind: hash_strings(strings, kind).tolist() for kind in BY_HAND} == whole
    named_hashes._powers.cache_clear()


# FNV: draft-eastlake-fnv; MD5: RFC 1321; XXH3: what xxhsum 0.8 prints.
@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        ("fnv1", "", 0xCBF29CE484222325),
        ("fnv1", "a", 0xAF63BD4C8601B7BE),
        ("fnv1", "foobar", 0x340D8765A4DDA9C2),
        ("fnv1a", "", 0xCBF29CE484222325),
        ("fnv1a", "a", 0xAF63DC4C8601EC8C),
        ("fnv1a", "foobar", 0x85944171F73967E8),
        ("fnv1utf16", "a", 0xAF63BD4C8601B7BE),
        ("md5", "message digest", 0xF96B697D7CB7938D),
        ("md5low", "message digest", 0x525A2F31AAF161D0),
        ("md5", "", 0xD41D8CD98F00B204),
        ("xxh3", "", 0x2D06800538D394C2),
    ],
)
def test_published_vectors(kind, text, expected):
    assert hash_strings([text], kind).tolist() == [expected]


def test_vectors_of_fnv(shared):
    vectors = json.loads((shared / "vectors.json").read_text())["fnv"]
    for kind, values in vectors.items():
        assert [f"{value:016x}" for value in hash_strings(list(values), kind).tolist()] == list(values.values())


def test_no_strings_have_no_hashes():
    for kind in BY_HAND:
        assert hash_strings([], kind).tolist() == []


def test_splitmix_is_no_hash_of_a_spelling():
    with pytest.raises(ValueError, match="'splitmix' is no hash of a spelling"):
        hash_strings(["a"], "splitmix")
