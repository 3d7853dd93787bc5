"""Short records of the kinds that people search by: sentences, titles and names of products, and edits of them.

The words are those of the civil codes, as frequent as there. Of the products, half differ from another one only
by model and size, as in a catalogue.
"""

import random
import re
from collections.abc import Callable

from benchmarks.labelled import find_folder, read_lines

CLASSES = ((3, 4), (5, 7), (8, 11), (12, 15), (16, 20), (21, 30))
_SENTENCE_END = re.compile(r"[.;:]\s+|\n\n")
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_SYLLABLES = [a + b for a in "bdfgklmnprstvz" for b in ("a", "e", "i", "o", "u", "an", "el", "ix", "or")]
_LEAST_WORD = 4  # letters of a word in the name of a product


class Records:
    """What records are made of."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)  # noqa: S311 - no secret
        texts = [row["text"] for row in read_lines(find_folder() / "civil_codes.jsonl.xz")]
        self._sentences = [part.split() for text in texts for part in _SENTENCE_END.split(text) if len(part) > 20]
        words = [word.strip(",()[]\"'").lower() for sentence in self._sentences for word in sentence]
        self._words = [word for word in words if word]
        self._nouns = [word for word in self._words if len(word) >= _LEAST_WORD and word.isalpha()]

    def make(self, count: int) -> list[str]:
        """Return `count` distinct records, as many of each class of lengths and of each kind."""
        found: dict[str, None] = {}
        families: list[list[str]] = []
        makers: list[Callable[[int], str]] = [
            self._sentence,
            self._title,
            lambda size: self._product(size, families),
        ]
        while len(found) < count:
            shortest, longest = CLASSES[len(found) % len(CLASSES)]
            make = makers[len(found) // len(CLASSES) % len(makers)]
            found[make(self._chance.randint(shortest, longest))] = None
        records = list(found)
        self._chance.shuffle(records)
        return records

    def word(self) -> str:
        """Return a word, as frequent as in the texts."""
        return self._chance.choice(self._words)

    def edit(self, text: str, kind: str) -> str:
        """Return the text with an edit of this kind."""
        return " ".join(EDITS[kind](self, text.split()))

    def _sentence(self, size: int) -> str:
        while True:
            words = self._chance.choice(self._sentences)
            if len(words) >= size:
                return " ".join(words[:size])

    def _title(self, size: int) -> str:
        """Return phrases of two to four words that follow each other somewhere."""
        words: list[str] = []
        while len(words) < size:
            start = self._chance.randrange(len(self._words) - 4)
            words += self._words[start : start + self._chance.randint(2, 4)]
        return " ".join(words[:size]).capitalize()

    def _product(self, size: int, families: list[list[str]]) -> str:
        """Return brand, model, words and size; the brand and the words of another product in every second one."""
        chance = self._chance
        model = f"{chance.choice(_LETTERS)}{chance.choice(_LETTERS)}-{chance.randrange(100, 10_000)}".upper()
        measure = f"{chance.randint(1, 500)}{chance.choice(('mm', 'g', 'ml', 'cm', 'W', 'pcs'))}"
        if families and chance.random() < 0.5:
            brand, *words = chance.choice(families[-1000:])
        else:
            brand = "".join(chance.choices(_SYLLABLES, k=chance.randint(2, 3))).capitalize()
            words = chance.sample(self._nouns, 40)
            families.append([brand, *words])
        return " ".join([brand, *words[: max(0, size - 3)], model, measure])

    def _typo(self, words: list[str]) -> list[str]:
        place = self._chance.randrange(len(words))
        word, at, letter = words[place], self._chance.randrange(len(words[place])), self._chance.choice(_LETTERS)
        left, right = word[:at], word[at + 1 :]
        swapped = left + right[:1] + word[at] + right[1:]
        words[place] = self._chance.choice(
            [left + letter + right, left + letter + word[at:], left + right, swapped]
        )
        return words

    def _word(self, words: list[str]) -> list[str]:
        words[self._chance.randrange(len(words))] = self.word()
        return words

    def _two_words(self, words: list[str]) -> list[str]:
        for place in self._chance.sample(range(len(words)), 2):
            words[place] = self.word()
        return words

    def _swap(self, words: list[str]) -> list[str]:
        one, other = self._chance.sample(range(len(words)), 2)
        words[one], words[other] = words[other], words[one]
        return words

    def _suffix(self, words: list[str]) -> list[str]:
        return words + [self.word() for _ in range(self._chance.randint(1, 3))]


EDITS: dict[str, Callable[[Records, list[str]], list[str]]] = {
    "a typo": Records._typo,
    "a word": Records._word,
    "two words": Records._two_words,
    "a swap": Records._swap,
    "a suffix": Records._suffix,
}
