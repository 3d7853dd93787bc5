import unicodedata

import by_hand
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from simsql.fingerprint import DEFAULT_RECIPE
from simsql.fingerprint.characters import CONTEXT, DROPPED, SEPARATOR, character_table, class_table, normalise
from simsql.fingerprint.extract import spell_words
from simsql.fingerprint.hashes import hash_as_tokens
from simsql.fingerprint.tokens import hash_tokens, iter_token_hashes

SCRIPTS = "aZ9_ -.\0\né\u0301ßЖйüبَلـدשָׁבबालीสวัสดีที่ကောင်中文字かガー한국😀❤🏽🇩\u200d\ufe0f\u3099\ud800\ue000"
TEXT = st.text(st.one_of(st.sampled_from(SCRIPTS), st.characters(codec=None)), max_size=30)


def words(text, kind="words"):
    """The tokens of a text, having held their hashes to the definition."""
    (found,) = spell_words([text], kind, DEFAULT_RECIPE.normalise)
    hashes, counts = hash_tokens([text], kind)
    assert hashes.tolist() == [by_hand.token_hash(token) for token in found]
    assert counts.tolist() == [len(found)]
    return found


def test_words_of_many_scripts():
    assert words("Don't stop_me, NOW-2") == ["don", "t", "stop", "me", "now", "2"]
    assert words("Straße Äpfel") == ["strasse", "äpfel"]
    assert words("Tiếng Việt") == ["tiếng", "việt"]
    assert words("بَلَدٌ جمـــيل") == ["بلد", "جميل"]
    assert words("שָׁלוֹם") == ["שלום"]
    assert words("बल बाल") == ["बल", "बाल"]
    assert words("한국어 문장") == ["한국어", "문장"]
    assert words("བོད་སྐད") == ["བོད", "སྐད"]
    assert words("a\0b\ud800c") == ["a", "b", "c"]
    assert words("co\u00adop\u200derate") == ["cooperate"]


def test_scripts_without_spaces_are_cut():
    assert words("中华人民。共") == ["中华", "华人", "人民", "共"]
    assert words("Python言語3") == ["python", "言語", "3"]
    assert words("がか\u309aき") == ["がか\u309a", "か\u309aき"]
    assert words("สวัสดีคะ") == ["สวัสดี", "วัสดีค", "สดีคะ"]
    assert words("ไทย") == ["ไทย"]
    assert words("ไทย中") == ["ไทย", "中"]


def test_emoji_are_tokens_of_their_own():
    assert words("ok😀😀 ❤️!") == ["ok", "😀", "😀", "❤"]
    assert words("👨‍👩 👍🏽") == ["👨", "👩", "👍", "🏽"]
    assert words("─── *** ---") == []


def test_characters_leave_out_what_stands_between_words():
    assert words("Ab, c", "characters") == ["a", "b", "c"]
    assert words("बाल 中ें", "characters") == ["बा", "ल", "中ें"]


def tokens_by_hand(text):
    """The classes of the module's description, for the characters of SCRIPTS."""
    tokens, run, kind = [], [], None

    def finish():
        width = {"word": len(run), "emoji": 1, "two": 2, "four": 4}.get(kind, 0)
        if run and width:
            last = max(len(run) - width, 0)
            tokens.extend("".join(run[start : start + width]) for start in range(last + 1))
        run.clear()

    for character in text:
        category, point = unicodedata.category(character), ord(character)
        if category == "Cf" or character in "\u0301\u064e\u0640\u05b8\u05c1\ufe0f":
            continue
        if category[0] == "M":
            if run:
                run[-1] += character
            else:
                run.append(character)
                kind = "word"
            continue
        if character in "😀❤🏽🇩":
            new = "emoji"
        elif character in "中文字かがガー":  # か with a voiced mark composes
            new = "two"
        elif category == "Lo" and (0xE00 <= point < 0xE80 or 0x1000 <= point < 0x10A0):
            new = "four"
        else:
            new = "word" if category[0] in "LN" or category in ("Co", "Cn") else None
        if new != kind:
            finish()
        kind = new
        if new:
            run.append(character)
    finish()
    return tokens


@given(st.lists(st.text(st.sampled_from(SCRIPTS), max_size=30), max_size=4))
def test_batches_have_the_tokens_of_the_description(texts):
    expected = [tokens_by_hand(normalise(text)) for text in texts]
    hashes, counts = hash_tokens(texts, "words")
    assert hashes.tolist() == [by_hand.token_hash(token) for tokens in expected for token in tokens]
    assert counts.tolist() == [len(tokens) for tokens in expected]
    assert spell_words(texts, "words", DEFAULT_RECIPE.normalise) == expected


@given(
    st.lists(st.text(st.characters(codec="ascii"), max_size=40), max_size=4),
    st.sampled_from(["words", "characters"]),
)
def test_ascii_has_the_same_tokens_in_all_company(texts, kind):
    alone = hash_tokens(texts, kind)
    # A dash takes the text another way, to ASCII, and a letter another one still.
    for company in ("\u2014", " \u0436", " \u4e2d\u6587", " \u0939\u093f"):
        (extra,) = hash_tokens([company], kind)[1].tolist()
        hashes, counts = hash_tokens([text + company for text in texts], kind)
        assert counts.tolist() == [count + extra for count in alone[1].tolist()]
        expected = [spell_words([text + company], kind, DEFAULT_RECIPE.normalise)[0] for text in texts]
        assert hashes.tolist() == [by_hand.token_hash(token) for tokens in expected for token in tokens]


ENGLISH = "Among words of ASCII, a few others are replaced where they are: most have as many bytes. "


@given(st.lists(st.tuples(st.text(st.characters(codec="ascii"), max_size=20), TEXT, TEXT), max_size=4))
def test_texts_that_are_mostly_ascii(parts):
    texts = [ENGLISH + " ".join(some) for some in parts]
    expected = spell_words(texts, "words", DEFAULT_RECIPE.normalise)
    hashes, counts = hash_tokens(texts, "words")
    assert hashes.tolist() == [by_hand.token_hash(token) for tokens in expected for token in tokens]
    assert counts.tolist() == [len(tokens) for tokens in expected]


def test_each_character_among_ascii():
    points = [*range(0x80, 0x3000), *range(0xFB00, 0x10100, 3), *range(0x1F000, 0x1F700, 7), 0x2F800, 0xE0100]
    texts = [f"{ENGLISH}a{chr(point)}b {chr(point)}" for point in points]
    expected = spell_words(texts, "words", DEFAULT_RECIPE.normalise)
    hashes, counts = hash_tokens(texts, "words")
    assert hashes.tolist() == hash_as_tokens([token for tokens in expected for token in tokens]).tolist()
    assert counts.tolist() == [len(tokens) for tokens in expected]


def test_table_holds_what_unicodedata_says_of_each_character():
    """A character whose entry does not depend on its neighbours is normalised alone as among them."""
    table, classes = character_table(1), class_table()
    points = [point for point in range(1, 0x110000) if not 0xD800 <= point < 0xE000]
    normal = normalise("\0".join(map(chr, points))).split("\0")
    own = (np.arange(len(table), dtype=np.uint32) << 8 | classes) == table
    for point, form in zip(points, normal, strict=True):
        if own[point] and form == chr(point):
            continue
        entry = int(table[point])
        kinds = {int(classes[ord(character)]) for character in form}
        if entry & CONTEXT:
            assert entry & 0xFF == CONTEXT | classes[point]
        elif entry & 0xFF in (SEPARATOR, DROPPED):
            assert kinds <= {SEPARATOR, DROPPED}
            assert (SEPARATOR in kinds) == (entry & 0xFF == SEPARATOR)
        else:
            assert form == chr(entry >> 8)
            assert kinds == {entry & 0xFF}


COMBINING = "".join(
    map(chr, [*range(0x300, 0x370), *range(0x64B, 0x660), 0x5B8, 0x93C, 0x9BE, 0x3099, 0x1161, 0x11A8])
)
BASES = "aeo\u0627\u0648\u05e9\u0915\u09c7\u304b\u1100\uac00 \u2014<=\u00df\ufb01\uff76"


@given(st.lists(st.text(st.sampled_from(BASES + COMBINING), max_size=12), max_size=4))
def test_what_composes_is_composed_as_by_unicodedata(texts):
    expected = spell_words(texts, "words", DEFAULT_RECIPE.normalise)
    hashes, counts = hash_tokens(texts, "words")
    assert hashes.tolist() == [by_hand.token_hash(token) for tokens in expected for token in tokens]
    assert counts.tolist() == [len(tokens) for tokens in expected]


@given(TEXT)
def test_normal_form_is_nfkc_of_folded_nfkc(text):
    folded = unicodedata.normalize("NFKC", text).casefold()
    assert normalise(text) == unicodedata.normalize("NFKC", folded)


@given(TEXT)
def test_composed_and_decomposed_forms_have_the_same_tokens(text):
    assert words(unicodedata.normalize("NFD", text)) == words(unicodedata.normalize("NFC", text))


def test_long_texts_are_cut_between_tokens(monkeypatch):
    text = "One two_three 中文字，かな।สวัสดี\u0301 é" * 40
    whole, count = hash_tokens([text], "words")
    monkeypatch.setattr("simsql.fingerprint.tokens._PIECE", 7)
    assert len(list(iter_token_hashes(text, "words"))) > 40
    pieces, pieces_count = hash_tokens([text], "words")
    assert pieces.tolist() == whole.tolist()
    assert pieces_count.tolist() == count.tolist()
    unbroken, unbroken_count = hash_tokens(["x" * 1000], "words")
    assert len(unbroken) == unbroken_count[0] == 1
