import unicodedata

import pytest

from simsql.fingerprint import simhash

SAME = {
    "case": ("Near Duplicate", "nEAR dUPLICATE"),
    "punctuation": ("near-duplicate, found", "near duplicate: found!"),
    "german sharp s": ("Straße", "STRASSE"),
    "german decomposed": ("Müller", "Mu\u0308ller"),
    "vietnamese decomposed": ("Tiếng Việt", unicodedata.normalize("NFD", "Tiếng Việt")),
    "ligature": ("ﬁne oﬀer", "fine offer"),
    "full width": ("ＡＢＣ１２３，ｄ", "abc123, d"),
    "half-width kana": ("ｶﾞｷﾞｸﾞ", "ガギグ"),
    "hangul jamo": ("한국어", unicodedata.normalize("NFD", "한국어")),
    "niqqud": ("שָׁלוֹם עֲלֵיכֶם", "שלום עליכם"),
    "harakat": ("بِسْمِ اللَّهِ الرَّحْمٰنِ", "بسم الله الرحمن"),
    "tatweel": ("محـــمد", "محمد"),
    "syriac points": ("ܫܠܳܡܳܐ", "ܫܠܡܐ"),
    "bidi marks": ("\u200fسلام\u200f", "سلام"),
    "soft hyphen": ("co\u00adoperate", "cooperate"),
    "russian stress": ("за\u0301мок", "замок"),
    "greek sigma": ("ΟΔΟΣ", "οδος"),
    "greek two accents": ("\u03aa\u0301", "\u0390"),
    "emoji presentation": ("❤️", "❤"),
    "ideographic variation": ("葛\U000e0100城", "葛城"),
    "lone surrogate": ("text\udc80 here", "text here"),
    "nul": ("text\0here", "text here"),
}
DIFFERENT = {
    "hindi": ("बल", "बाल"),
    "bengali": ("কল", "কাল"),
    "tamil": ("கல்", "கால்"),
    "thai vowels": ("กา", "กี"),
    "thai tones": ("ไก่", "ไก้"),
    "khmer": ("កា", "កី"),
    "burmese": ("မ", "မာ"),
    "tibetan": ("བད", "བོད"),
    "kana voicing": ("か", "が"),
    "kana": ("はし", "ばし"),
    "han": ("中国", "国中"),
    "korean": ("한국", "한글"),
    "german": ("schon", "schön"),
    "vietnamese tones": ("ma", "má"),
    "french": ("côte", "coté"),
    "cyrillic short i": ("мои", "мой"),
    "cyrillic yo": ("все", "всё"),
    "hebrew": ("שלום", "שלומ"),
    "arabic hamza": ("سال", "سأل"),
    "thaana": ("ދަ", "ދި"),
    "emoji": ("😀", "😡"),
    "digits": ("page 1", "page 2"),
    "order": ("dog bites man", "man bites dog"),
}


@pytest.mark.parametrize("name", SAME)
def test_forms_of_one_text_have_one_fingerprint(name):
    one, other = SAME[name]
    assert simhash(one) is not None
    assert simhash(one) == simhash(other)


@pytest.mark.parametrize("name", DIFFERENT)
def test_different_words_have_different_fingerprints(name):
    one, other = DIFFERENT[name]
    assert None not in (simhash(one), simhash(other))
    assert simhash(one) != simhash(other)
