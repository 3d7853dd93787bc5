"""Texts in three scripts: those of this machine, else made from a seed, so that every machine has some."""

import gzip
import random
import string
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from benchmarks.labelled import MissingDataError, find_folder, read_lines
from benchmarks.texts import Corpus

_DOCUMENTATION = Path("/usr/share")
_SYNTHETIC = 2_000_000
_ARABIC = "".join(map(chr, (*range(0x0627, 0x063B), *range(0x0641, 0x064B))))
_HAN = "".join(map(chr, range(0x4E00, 0x4E00 + 4000)))


@dataclass(frozen=True)
class Sample:
    """Texts of one language and where they come from."""

    texts: list[str]
    source: str

    @property
    def bytes(self) -> int:
        """Return the bytes of their UTF-8."""
        return count_bytes(self.texts)


def count_bytes(texts: Iterable[str]) -> int:
    """Return the bytes of the UTF-8 of texts."""
    return sum(len(text.encode("utf-8", "surrogatepass")) for text in texts)


def read_english(limit: int, seed: int) -> Sample:
    """Return civil codes, then the machine's copyright files and manual pages, up to about so many bytes."""
    codes = _read_shared("civil_codes.jsonl.xz", "text")
    pages = _documentation_texts(seed)
    texts = list(_up_to(limit, chain(codes, pages)))
    if not texts:
        return _make(limit, "words of a made-up language", lambda: Corpus(1 << 40, seed).texts())
    sources = ["civil codes"] * bool(codes) + ["copyright files and manual pages"] * (len(texts) > len(codes))
    return Sample(texts, " and ".join(sources))


def read_chinese(limit: int, seed: int) -> Sample:
    """Return Chinese laws."""
    texts = list(_up_to(limit, _read_shared("cn_laws.jsonl.xz", "text")))
    if texts:
        return Sample(texts, "laws")
    return _make(limit, "random characters", lambda: _sentences(seed, _HAN, ""))


def read_arabic(limit: int, seed: int) -> Sample:
    """Return Arabic reports without vowel signs and with them."""
    rows = (_read_shared("hadith_darimi.jsonl.xz", field) for field in ("plain", "diacritised"))
    texts = list(_up_to(limit, chain.from_iterable(zip(*rows, strict=True))))
    if texts:
        return Sample(texts, "hadiths, without vowel signs and with them")
    return _make(limit, "random letters", lambda: _sentences(seed, _ARABIC, " "))


READERS: dict[str, Callable[[int, int], Sample]] = {
    "English": read_english,
    "Chinese": read_chinese,
    "Arabic": read_arabic,
}


def _read_shared(name: str, field: str) -> list[str]:
    try:
        return [row[field] for row in read_lines(find_folder() / name)]
    except MissingDataError:
        return []


def _documentation_texts(seed: int) -> Iterator[str]:
    """Yield the English ones, in random order, as far as they can be read."""
    paths = [*_DOCUMENTATION.glob("doc/*/copyright"), *_DOCUMENTATION.glob("man/man[1-8]/*.gz")]
    paths.sort()
    random.Random(seed).shuffle(paths)  # noqa: S311 - no secret
    for path in paths:
        try:
            content = path.read_bytes()
            yield (gzip.decompress(content) if path.suffix == ".gz" else content).decode("utf-8", "replace")
        except (OSError, EOFError):
            continue


def _make(limit: int, source: str, make: Callable[[], Iterator[str]]) -> Sample:
    return Sample(list(_up_to(min(limit, _SYNTHETIC), make())), f"{source}, from the seed")


def _sentences(seed: int, letters: str, space: str) -> Iterator[str]:
    """Yield texts of letters, some frequent and most rare, in words with a space or without."""
    chance = random.Random(seed)  # noqa: S311 - no secret
    weights = [1 / (rank + 10) for rank in range(len(letters))]
    while True:
        drawn = "".join(chance.choices(letters, weights, k=chance.randrange(100, 4000)))
        words = [drawn[start : start + 5] for start in range(0, len(drawn), 5)]
        yield "".join(word + chance.choice([space] * 9 + list(string.punctuation[:2])) for word in words)


def _up_to(limit: int, texts: Iterable[str]) -> Iterator[str]:
    size = 0
    for text in texts:
        if size >= limit:
            return
        size += count_bytes([text])
        yield text
