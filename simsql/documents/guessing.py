"""Guess the encoding of a text that is not UTF-8.

A page or a mail may declare it. Otherwise the most likely one is chosen: in it, the letters are those that are
frequent in a language.
"""

import codecs
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from functools import cache, lru_cache
from math import inf, log

_SAMPLE = 1 << 14  # bytes
_BEFORE = 1 << 10  # bytes of the sample that come before the first one that tells an encoding

_CJK_MARKS = "".join(map(chr, range(0x3000, 0x3020)))
_PUNCTUATION = frozenset("\u00a0\u00ad\u200c\u200d\u200e\u200f‘’“”„…–—‹›«»־，：（）；！？" + _CJK_MARKS)
# No lost letters: at the start of a Spanish sentence, in a Catalan word, or alone.
_EXPECTED = re.compile(r"\B[¿¡]|(?<=l)·(?=l)|(?<![^\W\d_])(?<![^\0-\x7f])[^\w\0-\x7f](?![^\0-\x7f]|[^\W\d_])")
_INSIDE_WORD = re.compile(r"(?<=[a-z])[“”„…‹›«»](?=[a-z])", re.IGNORECASE)
_MOST_SYMBOLS = 0.1  # of the other characters beyond ASCII
_MOST_ODD = 0.01  # of the characters of UTF-16

# For encodings of one byte: the letters beyond ASCII of a language, the most frequent first, and frequent words
# without such letters.
_CENTRAL = "cp1250 iso8859_2"
_LANGUAGES = (
    ("cp1252", "éèàêçâîôùûœëïüæÿ", "le la les des et est dans que pour une du en un qui sur par pas"),
    ("cp1252", "óéíáñúü¿¡ºª", "de la que el los en las por del un una con para es se"),
    ("cp1252", "ãçáéóíêõúâàôºªü", "de que os uma para com um em da do por se na no"),
    ("cp1252", "èàéùòìîº", "di che il la del per un non della le in una con si da"),
    ("cp1252", "íàéèóçòúïü·", "de la els que amb per el en les un una del no es"),
    ("cp1252", "äüöß", "der die und das den von zu ist mit nicht ein eine des auf"),
    ("cp1252", "åäöé", "och att det som en av den med till ett om inte"),
    ("cp1252", "äö", "ja on ei se ole tai joka kun ovat"),
    ("cp1252", "øåæéòôó", "og det at en er til som av af den ikke for med de har et"),
    ("cp1252", "íáðþöéúóæý", "og er sem hann til um ekki en eru"),
    ("cp1252", "éëïóüèö", "de het een van en dat te niet zijn voor op met"),
    ("cp1252", "äõüöšž", "ja ei et see kui oma"),
    (_CENTRAL, "łżąęóśćńź", "nie na jest za od jego lub przez w z i dla oraz jak"),
    (_CENTRAL, "íáéřěčžýšůúťóňď", "se na je v nebo pro jako ve jsou jsem k s"),
    (_CENTRAL, "áíčéžýúšťľôóňäďŕĺ", "sa na je v pre ako alebo vo s k"),
    (_CENTRAL, "áéöóőíüűú", "az nem egy hogy vagy csak ha ezt"),
    (_CENTRAL, "ăîşţâ", "de nu la cu pe din un sau este sunt mai prin ce"),
    (_CENTRAL, "čšžćđ", "je na se da za su od ni ki ne ili koji pri u i kao iz po ali ako te sa tudi"),
    ("cp1254", "ışüğçöiâî", "bir ve bu de da ile olarak veya"),
    ("cp1257", "šėįųąžūčę", "ir yra kad su bet ar"),
    ("cp1257", "āēīšūņļķžģč", "un ir no ar uz par ka kas vai pie"),
    ("cp1251 koi8_r", "оеаинтсрвлкмдпуяыьгзбчйхжшюцщэфъё", ""),
    ("cp1251 koi8_u", "оанитвеірскдлмупзябьйгчжцюєхшфїщґ", ""),
    ("cp1251", "аныіерктлвсцдмяпозуьўгэбчйшхюфжё", ""),
    ("cp1251", "аоеирнтскудвпмјлзгбшчњљцћжфхђџќѓѕ", ""),
    ("cp1253", "αοετινσρημπυκςίλδγέήόάχθωύφώβξζψϊϋΐ", ""),
    ("cp1255", "יוהלתמארשבנדחקעכםפןטצגסזךץף", ""),
    ("cp1256 iso8859_6", "الينمتروعةدبفكسأهقحخذجصإىطشضثغزظئءّآـؤپچگژےٹںھہڈ", ""),
    ("cp874", "านรก่อเงมย้ลัดวทีสตบปคิะแห์จชุขใพำไโึูซธถผืณษศฉฟญฐฏภ็ฎๆ", ""),
)
# For encodings of several bytes: the frequent characters, and the first bytes of the other usual ones.
_KANA = "".join(map(chr, range(0x3041, 0x30FF)))
_WIDE = {
    "cp932": (_KANA, range(0x88, 0x98)),
    "euc_jp": (_KANA, range(0xB0, 0xD0)),
    "gb18030": ("的一是不了在人有我他这中大来上个国和也子时道要以为就分生会自能行可用", range(0xB0, 0xD8)),
    "big5": ("的一是不了在人有我他這中大來上個國和也子時道要以為就分生會自能行可用", range(0xA4, 0xC7)),
    "cp949": ("이다는의에가을를하고은지도로한기사리서자나시그인어일으있수해정", range(0xB0, 0xC9)),
}

# The cost of a character is the negative logarithm of its probability.
_MARK, _LETTER, _SYMBOL = 3.5, 8.0, 10.0  # of those that a language does not use
_FREQUENT, _USUAL, _RARE = 5.0, 8.0, 11.0  # of those of several bytes
_MOST_WORDS = 20  # of the frequent ones of a language, each of which makes it more likely
_OTHER = 0.7  # for other encodings of one byte than cp1252, the most frequent
_MIXED = 3.0  # for each place where a letter of another script touches a Latin one
_BROKEN = 5.0  # for each capital letter behind a small one
_MOST, _SPARE = 4.4, 8.0  # for each byte that is not ASCII, and for the text, above which no guess is safe

_ALL_HIGH = bytes(range(128, 256))
_ALL_ASCII = bytes(range(128))
_HIGH = re.compile(rb"[\x80-\xff]")
_ASCII = re.compile(r"[\0-\x7f]+")
# Letters of other scripts than Latin have high bytes, but for those of quotation marks.
_FOREIGN = set(_ALL_HIGH) - set(b"\x82\x84\x85\x8b\x91\x92\x93\x94\x95\x96\x97\x9b\xa0\xab\xbb")
_SCRIPTS = b"".join(b"H" if b in _FOREIGN else b"L" if bytes([b]).isalpha() else b" " for b in range(256))
# No character of many bytes has one of these.
_ALONE = re.compile(rb".*[\0-/]", re.DOTALL)
_MAIL = re.compile(rb"From |[A-Za-z][A-Za-z-]*:[ \t]")
_MAIL_CHARSET = re.compile(
    rb"^content-type:[^\n]*(?:\n[ \t][^\n]*)*?charset\s*=\s*\"?([\w.:-]+)", re.IGNORECASE | re.MULTILINE
)


def is_like_utf8(data: bytes) -> bool:
    """Return whether most bytes beyond ASCII are UTF-8, perhaps with damage."""
    damaged = len(data) - len(data.decode("utf-8", "ignore").encode())
    return 5 * damaged <= len(data) - len(data.translate(None, _ALL_HIGH))


def whole_characters(data: bytes) -> bytes:
    """Return the start of a text without a character that is cut at its end."""
    match = _ALONE.match(data)
    return match[0] if match else data


def find_utf16(data: bytes) -> str | None:
    """Return the encoding of the start of a text that is UTF-16 without a byte order mark, or else None."""
    # Zeros that belong to ASCII characters are the second bytes in the first of them.
    for encoding in sorted(("utf-16-le", "utf-16-be"), key=lambda name: -data[name == "utf-16-le" :: 2].count(0)):
        try:
            text = codecs.getincrementaldecoder(encoding)().decode(data)
        except UnicodeDecodeError:
            continue
        counts = Counter(text).items()
        odd = sum(n for c, n in counts if unicodedata.category(c) in ("Cc", "Cn", "Co") and not c.isspace())
        words = sum(n for c, n in counts if c.encode("utf-16-be").replace(b" ", b"").isalpha())  # of ASCII
        if b"\0" in data and odd <= _MOST_ODD * len(text) and 2 * words < len(text):
            return encoding
    return None


def choose_encoding(data: bytes) -> str | None:
    """Return the encoding that a text declares, or else the most likely one; None if no guess is safe.

    A guess is not safe if letters could become symbols, which are not compared: two different texts without most
    of their letters could be taken for duplicates. A wrong letter does no harm.
    """
    if declared := _find_declared(data):
        return declared
    first = _HIGH.search(data)
    if not first:
        return None
    start = max(first.start() - _BEFORE, 0)
    sample = data[start : start + _SAMPLE]
    if start + _SAMPLE < len(data):
        sample = whole_characters(sample)
    best, chosen, most = inf, "", 0.0
    for least, encoding, size in sorted(_costs(sample)):
        if least >= best:
            break
        cost = least + _BROKEN * sample.translate(_cases(encoding)).count(b"aA")
        if cost < best:
            best, chosen, most = cost, encoding, _MOST * size + _SPARE
    return None if best > most or _loses_letters(sample.decode(chosen)) else chosen


def _find_declared(data: bytes) -> str | None:
    """Return the encoding that a page, XML or a mail declares, if the text can be in it."""
    is_page = data.lstrip().startswith(b"<")
    if not is_page and not _MAIL.match(data):
        return None
    from simsql.fingerprint import CHARSET, name_charset  # noqa: PLC0415 - it takes longer than a short run

    found = (CHARSET if is_page else _MAIL_CHARSET).search(data[:_SAMPLE])
    with suppress(LookupError, UnicodeError):  # unknown, or a codec that is not for text
        if found and data.decode(name := name_charset(found[1])):
            return name
    return None


def _loses_letters(text: str) -> bool:
    inside = len(_INSIDE_WORD.findall(text))
    counts = Counter(_ASCII.sub("", _EXPECTED.sub("", text)))
    symbols = sum(count for c, count in counts.items() if c not in _PUNCTUATION and not _is_letter(c))
    letters = sum(count for c, count in counts.items() if _is_letter(c))
    return symbols + inside > _MOST_SYMBOLS * (letters + symbols + inside)


def _costs(sample: bytes) -> Iterator[tuple[float, str, int]]:
    """Yield the cost of a text in each encoding and language, with the number of bytes that are not ASCII."""
    counts = Counter(sample.translate(None, _ALL_ASCII)).items()
    size = sum(count for _, count in counts)
    words = Counter(sample.lower().split())
    scripts = sample.translate(_SCRIPTS)
    mixed = scripts.count(b"LH") + scripts.count(b"HL")
    for encoding, frequent, costs in _languages():
        cost = sum(count * costs[byte] for byte, count in counts) + _OTHER * (encoding != "cp1252")
        cost += -min(sum(words[word] for word in frequent), _MOST_WORDS) if frequent else _MIXED * mixed
        yield cost, encoding, size
    for encoding in _WIDE:
        try:
            text = sample.decode(encoding)
        except UnicodeDecodeError:
            continue
        high = _ASCII.sub("", text)
        wide = Counter(high).items()
        if 3 * sum(count for c, count in wide if c in _PUNCTUATION) <= len(high):
            cost = sum(count * _cost_of_wide(c, encoding) for c, count in wide)
            yield cost, encoding, len(sample) - len(text) + len(high)


@cache
def _languages() -> list[tuple[str, list[bytes], dict[int, float]]]:
    """Return encodings, the frequent words of a language, and what each high byte costs."""
    found = []
    for encodings, letters, words in _LANGUAGES:
        flat = 1.5 if words else 5  # the letters of alphabets other than Latin are more evenly distributed
        costs = {c: log((place + flat) * log(1 + len(letters) / flat)) for place, c in enumerate(letters)}
        for encoding in encodings.split():
            prices = dict.fromkeys(_ALL_HIGH, inf)
            for byte in _ALL_HIGH:
                if c := _character(byte, encoding).lower()[:1]:
                    other = _MARK if c in _PUNCTUATION else _LETTER if _is_letter(c) else _SYMBOL
                    prices[byte] = costs.get(c, other)
            found.append((encoding, words.encode().split(), prices))
    return found


@lru_cache(1 << 14)
def _cost_of_wide(character: str, encoding: str) -> float:
    frequent, usual = _WIDE[encoding]
    if character in _PUNCTUATION:
        return _MARK
    if character in frequent:
        return _FREQUENT
    return _USUAL if character.encode(encoding)[0] in usual else _RARE


@cache
def _cases(encoding: str) -> bytes:
    """Return a table for `bytes.translate`: "A" for capital letters beyond ASCII, "a" for small ones."""
    high = (_character(byte, encoding) for byte in _ALL_HIGH)
    return b" " * 128 + b"".join(b"A" if c.isupper() else b"a" if c.islower() else b" " for c in high)


def _character(byte: int, encoding: str) -> str:
    return bytes([byte]).decode(encoding, "ignore")


def _is_letter(character: str) -> bool:
    return character.isalnum() or unicodedata.category(character)[0] == "M"
