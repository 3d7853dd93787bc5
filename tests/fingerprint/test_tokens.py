import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from simsql.fingerprint.tokens import _pieces, hash_tokens, normalise, spans_of_ascii, spans_of_normalised

SCRIPTS = "aZ9_ -.\0\né\u0301ßЖйüبَلـدשָׁבबालीสวัสดีที่ကောင်中文字かガー한국😀❤🏽🇩\u200d\ufe0f\u3099\ud800\ue000"
TEXT = st.text(st.one_of(st.sampled_from(SCRIPTS), st.characters(codec=None)), max_size=30)


def words_of(spans):
    return [
        spans.data[start : start + length].decode("utf-8", "surrogatepass")
        for start, length in zip(spans.starts.tolist(), spans.lengths.tolist(), strict=True)
    ]


def words(text, kind="words"):
    return words_of(spans_of_normalised([normalise(text)], kind))


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
    texts = [normalise(text) for text in texts]
    by_hand = [tokens_by_hand(text) for text in texts]
    spans = spans_of_normalised(texts, "words")
    assert words_of(spans) == [token for tokens in by_hand for token in tokens]
    assert spans.documents.tolist() == [len(tokens) for tokens in by_hand]


@given(
    st.lists(st.text(st.characters(codec="ascii"), max_size=40), max_size=4),
    st.sampled_from(["words", "characters"]),
)
def test_ascii_has_the_same_tokens_on_both_ways(texts, kind):
    quick = spans_of_ascii(texts, kind)
    general = spans_of_normalised([normalise(text) for text in texts], kind)
    assert words_of(quick) == words_of(general)
    assert quick.documents.tolist() == general.documents.tolist()


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
    assert len(list(_pieces(text))) > 40
    for kind in (text, text.encode("ascii", "ignore").decode()):
        assert "".join(_pieces(kind)) == kind
    pieces, pieces_count = hash_tokens([text], "words")
    assert pieces.tolist() == whole.tolist()
    assert pieces_count.tolist() == count.tolist()
    unbroken, unbroken_count = hash_tokens(["x" * 1000], "words")
    assert len(unbroken) == unbroken_count[0] == 1
