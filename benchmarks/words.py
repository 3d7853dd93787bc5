"""What fingerprints of 128 and 256 bits buy: python -m benchmarks.words, which prints Markdown.

Every pair of texts of a collection is compared: fingerprints of one, two and four words, and the similarity, found
by brute force without code of simsql. To find the same share of the similar pairs (recall), each width needs
another distance. What differs is how many candidates it finds.
"""

import sys
from collections.abc import Collection, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from benchmarks.decisions import REPORTED, Corpus, read_corpora
from benchmarks.figures import markdown_line
from benchmarks.labelled import find_folder
from simsql import Recipe, simhash_many, sketch_many
from simsql.fingerprint import sketch_distance

RECALLS = (0.9, 0.95, 0.99)

Words = NDArray[np.uint64]
Counts = NDArray[np.int64]


def histograms(words: Words, alike: Collection[tuple[int, int]], sketches: Words | None) -> tuple[Counts, Counts]:
    """Return how many pairs have each distance: all, and the similar ones.

    `words` has a row for each word and a column for each text. With sketches, only pairs with near ones count.
    """
    size = 64 * len(words) + 1
    every, similar = np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64)
    similar_to: dict[int, list[int]] = {}
    for one, other in alike:
        similar_to.setdefault(one, []).append(other - one - 1)
    for text in range(words.shape[1] - 1):
        distances = np.bitwise_count(words[:, text + 1 :] ^ words[:, [text]]).sum(axis=0, dtype=np.int64)
        counted = np.ones(len(distances), dtype=bool)
        if sketches is not None:
            counted = np.bitwise_count(sketches[text + 1 :] ^ sketches[text]) <= sketch_distance(REPORTED)
        every += np.bincount(distances[counted], minlength=size)
        others = np.array(similar_to.get(text, []), dtype=np.int64)
        similar += np.bincount(distances[others[counted[others]]], minlength=size)
    return every, similar


def table(corpora: Sequence[Corpus]) -> Iterator[str]:
    """Yield the lines of the table."""
    yield markdown_line(["texts", "recall", "fingerprints", "distance", "candidates", "precision"])
    yield markdown_line(["---", "---:", "---", *["---:"] * 3])
    for corpus in corpora:
        # A text without words has no fingerprint and no similar text.
        texts = [text for text, words in zip(corpus.texts, corpus.words, strict=True) if words]
        alike = Corpus(corpus.name, texts).alike
        words = np.array([simhash_many(texts, Recipe(word=word)).data for word in (0, 1, 2, 3)])
        systems = {f"{64 * count} bits": histograms(words[:count], alike, None) for count in (1, 2, 4)}
        systems["64 bits, then sketches"] = histograms(words[:1], alike, sketch_many(texts).data)
        for recall in RECALLS:
            for name, (every, similar) in systems.items():
                (enough,) = np.nonzero(np.cumsum(similar) >= recall * len(alike))
                cells = ["-"] * 3
                if len(enough):
                    candidates, found = int(every[: enough[0] + 1].sum()), int(similar[: enough[0] + 1].sum())
                    cells = [str(enough[0]), f"{candidates:,}", f"{found / candidates:.3f}"]
                yield markdown_line([corpus.name, f"{recall:.2f}", name, *cells])


def main() -> None:
    """Print the table."""
    for line in table(read_corpora(find_folder())):
        print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
