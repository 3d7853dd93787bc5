"""How well clusters agree with what makes texts near-duplicates: shared word trigrams, or characters.

The figures are of public data that are not part of the project (`SIMSQL_SHARED`, else the folder `shared`
beside the checkout). Each has a twin on texts that are made here, which never skips. That of the test of edited
texts is in tests/dedup/test_ranking.py.
"""

import json
import lzma
import os
import random
import unicodedata
from itertools import combinations
from pathlib import Path

import corpus
import pytest
from agreement import check_agreement, joined
from program import run, write_lines

from benchmarks.decisions import Corpus, by_program, check_pairs

DATA = Path(os.environ.get("SIMSQL_SHARED", Path(__file__).parents[3] / "shared")) / "data"


def data(name: str) -> Path:
    path = DATA / name
    if not path.exists():
        pytest.skip(f"there is no {path}")
    return path


def read_lines(path: Path) -> list[dict[str, str]]:
    with lzma.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def grams(items: str | list[str], size: int) -> set:
    return {tuple(items[start : start + size]) for start in range(len(items) - size + 1)}


def jaccard(left: set, right: set) -> float:
    return len(left & right) / max(len(left | right), 1)


def test_texts_that_are_edited(home: Path, tmp_path: Path) -> None:
    texts = corpus.make_texts(3, families=50, alone=40)
    words = {name: grams(text.lower().replace(",", " ").split(), 3) for name, text in texts.items()}
    labelled = {
        frozenset((a, b)): index
        for a, b in combinations(texts, 2)
        if (index := jaccard(words[a], words[b])) >= 0.5
    }
    path = write_lines(tmp_path / "texts.jsonl", texts)
    check_agreement(run("dedup", path, home=home).done().clusters, labelled)


def check_marks(path: Path, plain: str, marked: str, *, rows: int, distinct: int) -> None:
    without = run("fingerprint", path, "--text-field", plain).done().lines
    assert run("fingerprint", path, "--text-field", marked).done().lines == without
    found = {line.split("\t")[0] for line in without}
    print(f"rows {len(without)}, distinct {len(found)}")
    assert len(without) == rows
    assert len(found) >= distinct


def test_vowel_signs_change_nothing() -> None:
    """Hadiths with and without the signs for vowels, which readers of Arabic leave out."""
    check_marks(data("hadith_darimi.jsonl.xz"), "plain", "diacritised", rows=3367, distinct=3350)


def test_signs_of_made_up_texts_change_nothing(tmp_path: Path) -> None:
    chance = random.Random(4)
    letters = [chr(code) for code in range(0x0628, 0x063B)] + [chr(code) for code in range(0x0641, 0x064B)]
    signs = [chr(code) for code in range(0x064B, 0x0653)]
    rows = []
    for number in range(300):
        words = [
            "".join(chance.choices(letters, k=chance.randrange(2, 7))) for _ in range(chance.randrange(8, 60))
        ]
        text = " ".join(words)
        marked = "".join(c + (chance.choice(signs) if c != " " and chance.random() < 0.7 else "") for c in text)
        assert unicodedata.normalize("NFKC", marked) != text
        rows.append({"id": number, "plain": text, "marked": marked})
    check_marks(write_lines(tmp_path / "texts.jsonl", rows), "plain", "marked", rows=300, distinct=300)


def check_characters(clusters: list[dict], texts: dict[str, str]) -> None:
    pairs = [tuple(pair) for pair in joined(clusters)]
    least = min(jaccard(grams(texts[a], 5), grams(texts[b], 5)) for a, b in pairs)
    print(f"pairs {len(pairs)}, least Jaccard index of character 5-grams {least:.3f}")
    assert least >= 0.3


def test_chinese_laws(home: Path) -> None:
    """Laws and their later versions: long texts without spaces."""
    path = data("cn_laws.jsonl.xz")
    texts = {row["id"]: row["text"] for row in read_lines(path)}
    check_characters(run("dedup", path, home=home).done().clusters, texts)


def test_made_up_texts_without_spaces(home: Path, tmp_path: Path) -> None:
    chance = random.Random(5)
    characters = [chr(code) for code in range(0x4E00, 0x4E00 + 1500)]
    # Few phrases, as laws have them: what stands alone has much in common too.
    phrases = ["".join(chance.choices(characters, k=chance.randrange(3, 12))) for _ in range(400)]
    texts = {}
    for family in range(60):
        sentences = ["".join(chance.choices(phrases, k=5)) for _ in range(chance.randrange(10, 60))]
        for version in range(chance.randrange(1, 4)):
            texts[f"{family}/{version}"] = "。".join(sentences)
            for _ in range(chance.randrange(1, 4)):
                sentences[chance.randrange(len(sentences))] = "".join(chance.choices(phrases, k=5))
    path = write_lines(tmp_path / "texts.jsonl", texts)
    found = run("dedup", path, home=home).done().clusters
    assert len(found) > 10
    check_characters(found, texts)


def test_the_benchmark_reads_what_dedup_decides(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neighbours in a chain are similar, the two ends are not: the middle one is kept for both."""
    monkeypatch.setenv("SIMSQL_HOME", str(home))
    words = [f"z{number}" for number in range(130)]
    texts = [" ".join(words[start : start + 100]) for start in (0, 13, 26)]
    corpus = Corpus("chain", [*texts, "something else"])
    outcome = by_program(corpus, check_pairs(texts, [(0, 1), (0, 2), (1, 2)]), 12)
    assert (outcome.clusters, outcome.kept) == ([[0, 1, 2]], [1, 1, 1, 3])
    assert outcome.direct == {(0, 1), (1, 2)}
