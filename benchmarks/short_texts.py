"""Measure what a fingerprint of few words is worth: python -m benchmarks.short_texts, which prints Markdown.

The first n words of each section of the civil codes, once as they are and once with one word changed for another
word of the collection: the share of the texts whose two fingerprints, by the default recipe, differ in at most so
many bits.
"""

import re

import numpy as np

from benchmarks.labelled import find_folder, read_lines
from simsql.fingerprint import simhash_many

LENGTHS = (3, 5, 10, 20, 50, 100, 200)
DISTANCES = (0, 3, 7, 10)
_SEED = 5


def measure(texts: list[list[str]], length: int, chance: np.random.Generator) -> list[float]:
    """Return the share of these texts, of at least so many words, within each of DISTANCES of its changed form."""
    vocabulary = [word for text in texts for word in text]
    before = [text[:length] for text in texts if len(text) >= length]
    after = []
    for words in before:
        place = int(chance.integers(length))
        other = words[place]
        while other == words[place]:
            other = vocabulary[chance.integers(len(vocabulary))]
        after.append([*words[:place], other, *words[place + 1 :]])
    one, two = (simhash_many(map(" ".join, side)).data for side in (before, after))
    apart = np.bitwise_count(one ^ two)
    return [float((apart <= distance).mean()) for distance in DISTANCES]


def main() -> None:
    """Print the table."""
    rows = read_lines(find_folder() / "civil_codes.jsonl.xz")
    texts = [re.findall(r"[a-z]+", row["text"].lower()) for row in rows]
    chance = np.random.default_rng(_SEED)
    print(f"| words | texts | {' | '.join(f'within {distance}' for distance in DISTANCES)} |")
    print(f"|---|---|{'---|' * len(DISTANCES)}")
    for length in LENGTHS:
        count = sum(len(text) >= length for text in texts)
        shares = " | ".join(f"{share:.3f}" for share in measure(texts, length, chance))
        print(f"| {length} | {count:,} | {shares} |")


if __name__ == "__main__":
    main()
