import json

import pytest
from by_hand import spelling_hash
from hypothesis import given
from hypothesis import strategies as st

from simsql.fingerprint import hashes
from simsql.fingerprint.hashes import hash_strings

# Lone surrogates too, and every width of UTF-8 and UTF-16.
STRINGS = st.lists(
    st.text(st.one_of(st.sampled_from("ab \0é中😀\ud83d\ude00"), st.characters(codec=None)), max_size=40)
)


KINDS = ["fnv1", "fnv1a", "fnv1utf16", "md5", "md5low", "xxh3", "jenkins"]


@pytest.mark.parametrize("kind", KINDS)
@given(strings=STRINGS)
def test_hashes_are_the_definition(kind, strings):
    assert hash_strings(strings, kind).tolist() == [spelling_hash(text, kind) for text in strings]


@pytest.mark.parametrize("few", [0, 1, 3, 100])
def test_strings_are_hashed_side_by_side_or_one_by_one(few, monkeypatch):
    monkeypatch.setattr(hashes, "_FEW", few)
    strings = ["", "a中" * 300, "é", "one two", "", "b" * 9_999, "😀" * 500, *["c", "", "dd"] * 9, "中文字", ""]
    for kind in ("fnv1", "fnv1a", "fnv1utf16", "jenkins"):
        assert hash_strings(strings, kind).tolist() == [spelling_hash(text, kind) for text in strings]


# FNV: draft-eastlake-fnv; MD5: RFC 1321; XXH3: what xxhsum 0.8 prints; lookup3: driver5 of lookup3.c, and
# what simhash-cpp's `jenkins` of 2016 returned with the seed 0.
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
        ("jenkins", "", 0xDEADBEEFDEADBEEF),
        ("jenkins", "Four score and seven years ago", 0x17770551CE7226E6),
        ("jenkins", "word", 0x922253703CA65A3D),
        ("jenkins", "twelve bytes", 0x597B94CE8DBD8C80),
        ("jenkins", "thirteen byte", 0x4ED713F93287D9E6),
        ("jenkins", "中文字", 0x0727F1D3E7210AF4),
        ("jenkins", "x" * 24, 0x4F26558E878BFA2D),
        ("jenkins", "x" * 25, 0x182989759DA41FBE),
    ],
)
def test_published_vectors(kind, text, expected):
    assert hash_strings([text], kind).tolist() == [expected]


def test_vectors_of_fnv(shared):
    vectors = json.loads((shared / "vectors.json").read_text())["fnv"]
    for kind, values in vectors.items():
        assert [f"{value:016x}" for value in hash_strings(list(values), kind).tolist()] == list(values.values())


def test_no_strings_have_no_hashes():
    for kind in KINDS:
        assert hash_strings([], kind).tolist() == []


def test_splitmix_is_no_hash_of_a_spelling():
    with pytest.raises(ValueError, match="'splitmix' is not a hash of strings"):
        hash_strings(["a"], "splitmix")
