"""simsql.similarity in SQL: the same tokens and the same answers as in Python, in every script."""

import random
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

import character_sql
import numpy as np
import pytest
from articles import create_articles
from psycopg import errors

from simsql.database.install import schema_sql
from simsql.fingerprint import DEFAULT_RECIPE, similarity, similarity_many
from simsql.fingerprint.characters import CONTEXT, DROPPED, character_table, class_table
from simsql.fingerprint.extract import find_tokens


def tokens_in_sql(connection, texts: Sequence[str]) -> list[list[str]]:
    """Return the tokens of texts, without the numbers before units."""
    connection.execute("CREATE TEMP TABLE IF NOT EXISTS given (number integer, body text)")
    connection.execute("TRUNCATE given")
    with connection.cursor().copy("COPY given FROM STDIN") as copy:
        for row in enumerate(texts):
            copy.write_row(row)
    found = connection.execute("SELECT simsql._tokens(body) FROM given ORDER BY number").fetchall()
    return [[re.sub("[\x02\x04]", "", token) for token in tokens] for (tokens,) in found]


def similarities_in_sql(connection, pairs: Iterable[tuple[str, str]]) -> list[float]:
    connection.execute("CREATE TEMP TABLE IF NOT EXISTS pair (number integer, a text, b text)")
    connection.execute("TRUNCATE pair")
    with connection.cursor().copy("COPY pair FROM STDIN") as copy:
        for number, (a, b) in enumerate(pairs):
            copy.write_row((number, a, b))
    found = connection.execute("SELECT simsql.similarity(a, b) FROM pair ORDER BY number").fetchall()
    return [value for (value,) in found]


# The characters


def test_the_file_of_characters_is_that_of_python():
    written = character_sql.FILE.read_text(encoding="ascii")
    if f"Unicode {unicodedata.unidata_version}:" in written:
        assert written == character_sql.render()
        return
    # Another version of Unicode has assigned more characters, which are words or emoji in the file.
    starts, rules = (
        np.array(re.search(rf"{name}\(\).*?'\{{(.*?)\}}'", written, re.DOTALL)[1].split(","), dtype=int)
        for name in ("_character_starts", "_character_rules")
    )
    now = np.zeros(len(character_table()), dtype=int)
    others, others_rules, _ = character_sql.find_rules()
    now[0x80:] = np.repeat(np.array(others_rules), np.diff([*others, len(now)]))
    then = np.zeros(len(now), dtype=int)
    then[0x80:] = np.repeat(rules, np.diff([*starts, len(now)]))
    known = then & 7 != character_sql.KEPT
    assert (now[known] & 7 == then[known] & 7).all()


def scripts() -> dict[str, list[str]]:
    """Return the letters, digits and marks of each script: the first word of their names."""
    found: dict[str, list[str]] = {}
    for point in np.flatnonzero(class_table() > DROPPED).tolist():
        if point < 0x32000 and (name := unicodedata.name(chr(point), "")):
            found.setdefault(name.split()[0], []).append(chr(point))
    return {script: characters for script, characters in found.items() if len(characters) >= 20}


def write(chance: random.Random, characters: Sequence[str], marks: Sequence[str]) -> str:
    """Return a text of words of these characters, in any form, with some of other scripts in between."""
    words = []
    for _ in range(chance.choice([2, 7, 24])):
        word = "".join(chance.choices(characters, k=chance.randrange(1, 4)))
        kind = chance.randrange(15)
        if kind < 3:
            word = [word.upper(), unicodedata.normalize("NFD", word), unicodedata.normalize("NFKC", word)][kind]
        elif kind == 3:
            word += chance.choice(marks)
        elif kind == 4:
            word += chance.choice(
                ["a1", "\uff37ide", "漢字", "ไทย", "👍🏽", "\u1100\u1161", "ß½", "\u200d", "x\u0301\u0323"]
            )
        words.append(word)
    return chance.choice([" ", "", ", ", "\n"]).join(words)


def vary(chance: random.Random, text: str) -> str:
    """Return an edited copy of a text."""
    start, end = sorted(chance.choices(range(len(text) + 1), k=2))
    return chance.choice([text.swapcase(), text[:start] + text[end:], text[:start] + " x " + text[start:], text])


def pairs_of(script: str, characters: list[str], marks: list[str]) -> Iterator[tuple[str, str]]:
    chance = random.Random(script)
    # Few different characters, so that words recur.
    for _ in range(100):
        text = write(chance, chance.sample(characters, min(len(characters), 12)), marks)
        yield text, vary(chance, text)


def test_similarities_are_those_of_python_in_every_script(connection):
    of_script = scripts()
    composing = [chr(p) for p in np.flatnonzero(character_table() & np.uint32(CONTEXT)).tolist()]
    assert {"LATIN", "CJK", "THAI", "HANGUL", "ARABIC", "DEVANAGARI", "HALFWIDTH"} <= of_script.keys()
    pairs = [pair for item in of_script.items() for pair in pairs_of(*item, composing)]
    assert len(pairs) > 100 * 100
    expected = similarity_many([a for a, _ in pairs], [b for _, b in pairs]).tolist()
    assert sum(0.3 < value < 0.9 for value in expected) > len(pairs) // 10
    wrong = [
        (pair, ours, theirs)
        for pair, ours, theirs in zip(pairs, similarities_in_sql(connection, pairs), expected, strict=True)
        if ours != theirs
    ]
    assert wrong == []


def test_tokens_are_those_of_python_for_every_character(connection):
    """Each character between letters, beside itself and alone, with letters and marks that compose around it."""
    changing = np.flatnonzero(np.diff(character_table().astype(np.int64) >> 8) != 1)
    some = {chr(point + side) for point in changing.tolist() for side in (0, 1)}
    # PostgreSQL may know characters that this version of Python does not, and the other way round.
    characters = [one for one in sorted(some - {"\0"}) if unicodedata.category(one) not in ("Cn", "Cs")]
    texts = [
        "".join(f"a{one}b {one} e{one}\u0301\u0323{one}中{one}文ก{one} " for one in characters[start:end])
        for start, end in pairwise([*range(0, len(characters), 20), len(characters)])
    ]
    for text, ours, theirs in zip(
        texts, tokens_in_sql(connection, texts), find_tokens(texts, DEFAULT_RECIPE), strict=True
    ):
        assert ours == list(theirs), text


# The function


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ("a b c d e f g h i j", "A b, c d e f g h i X!", 9 / 11),
        ("Straße", "STRASSE", 1.0),
        ("", "", 0.0),
        ("...", "one two", 0.0),
        (None, "one", None),
        ("one", None, None),
        ("中文字", "中文", 0.5),
    ],
)
def test_examples(connection, a, b, expected):
    found = connection.execute("SELECT simsql.similarity(%s::text, %s::text)", [a, b]).fetchone()
    assert found == (expected,) == (similarity(a, b),)


def test_long_texts_without_a_separator(connection):
    texts = ["中文字" * 20_000, "ก่า" * 20_000, "e\u0301" * 20_000, "👍" * 20_000]
    pairs = [(text, text[: len(text) // 2] + "x") for text in texts]
    assert similarities_in_sql(connection, pairs) == [similarity(a, b) for a, b in pairs]


def test_texts_of_different_collations_are_compared(connection):
    found = connection.execute(
        "SELECT simsql.similarity(one.body, other.body) FROM (SELECT 'É B 中文' COLLATE \"POSIX\" AS body) AS one,"
        " (SELECT 'é c 中文' COLLATE \"C\" AS body) AS other"
    )
    assert found.fetchone() == (similarity("É B 中文", "é c 中文"),)


def test_rows_are_filtered_by_a_role_that_may_only_read_them(connection, connect, new_role):
    role = new_role()
    create_articles(connection, [1, 3, 5])
    connection.execute("UPDATE article SET body = CASE fingerprint WHEN 3 THEN 'one two' ELSE 'One, two!' END")
    connection.execute("UPDATE article SET body = 'three' WHERE fingerprint = 5")
    connection.execute(f"GRANT SELECT ON article TO {role}")
    guest = connect(role)
    guest.execute("SET standard_conforming_strings = off")
    found = guest.execute(
        "SELECT fingerprint FROM simsql.near_rows(NULL::article, 1, 3)"
        " WHERE simsql.similarity(body, 'one two') >= 0.6"
    )
    assert sorted(found) == [(1,), (3,)]


def test_a_database_of_another_encoding_compares_ascii(server):
    server.execute("CREATE DATABASE latin TEMPLATE template0 ENCODING latin1 LOCALE 'C'")
    try:
        with server.connect("latin") as latin:
            latin.execute(schema_sql())
            assert latin.execute("SELECT simsql.similarity('One two', 'one, two')").fetchone() == (1.0,)
            with pytest.raises(errors.FeatureNotSupported, match="encoding of this database is LATIN1"):
                latin.execute("SELECT simsql.similarity('one', 'caf\u00e9')")
    finally:
        server.execute("DROP DATABASE latin")
