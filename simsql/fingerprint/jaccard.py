"""Compare texts: the Jaccard index of their sets of word trigrams.

A. Broder: On the resemblance and containment of documents, SEQUENCES 1997. The tokens are those of the default
recipe in any script. Two empty tokens stand before the first word and behind the last one, so a text of n words
has n + 2 trigrams: every word is in three, and a text of one word has features, too.
"""

from collections.abc import Callable, Iterable
from math import floor

import numpy as np

from simsql.arrays.positions import consecutive, gather
from simsql.fingerprint.features import padded_trigrams
from simsql.fingerprint.hashes import I64, U64
from simsql.fingerprint.recipe import Revision
from simsql.fingerprint.shared_features import compare_features
from simsql.fingerprint.tokens import hash_tokens

_BATCH = 1 << 10  # pairs that are compared at once
_BATCH_CHARACTERS = 1 << 20


def similarity(a: str | None, b: str | None, *, revision: Revision = 2) -> float | None:
    """Return the similarity of two texts: 0.0 if they share nothing, 1.0 for the same sequence of words.

    It is the Jaccard index of their sets of word trigrams, with two empty words before the first word and two
    behind the last. The words are those of the default recipe in any script, without letter case and punctuation;
    letters with several code points are folded, unless the `revision` is 1: see `Recipe`. The result is None if a
    text is None, and 0.0 if a text has no words. For many pairs, `similarity_many` is many times faster. Raises
    TypeError if a text is neither a str nor None.
    """
    (found,) = similarity_many([a], [b], revision=revision).tolist()
    return None if found is None else float(found)


def similarity_many(
    a: Iterable[str | None], b: Iterable[str | None], *, revision: Revision = 2
) -> "np.ma.MaskedArray[tuple[int], np.dtype[np.float64]]":
    """Return the similarities of pairs of texts: the first of `a` and of `b`, the second ones, and so on.

    The texts can be any iterables and are read in batches. Returns a masked array of float64, one-dimensional,
    with a full mask: pairs with a None are masked. Raises ValueError if one iterable is longer than the other, and
    TypeError if a text is neither a str nor None.
    """
    if isinstance(a, str) or isinstance(b, str):
        raise TypeError("texts must be iterables of str, not a single str: use similarity")
    return compare_texts(a, b, lambda texts: padded_trigrams(*hash_tokens(texts, "words", revision)))


def compare_texts(
    a: Iterable[str | None], b: Iterable[str | None], features_of: Callable[[list[str]], tuple[U64, I64]]
) -> "np.ma.MaskedArray[tuple[int], np.dtype[np.float64]]":
    """Return the Jaccard indexes of pairs of texts: see `similarity_many`.

    `features_of` returns the hashes of the features of some texts, text after text, and how many each has.
    """
    values, masks = [np.zeros(0)], [np.zeros(0, dtype=bool)]
    for batch in gather(zip(a, b, strict=True), _characters, _BATCH_CHARACTERS, _BATCH):
        missing = np.array([one is None or other is None for one, other in batch])
        result = np.zeros(len(batch))
        numbers: dict[str, int] = {}
        both = [text for pair in batch for text in pair if text is not None and None not in pair]
        if both:
            sides = np.array([numbers.setdefault(text, len(numbers)) for text in both])
            hashes, counts = features_of(list(numbers))
            starts, sizes = np.cumsum(counts) - counts, counts[sides]
            features = hashes[consecutive(starts[sides], sizes)]
            left = np.arange(0, len(sides), 2)
            result[~missing] = compare_features(features, sizes, np.full(len(left), 2), left, left + 1)
        values.append(result)
        masks.append(missing)
    return np.ma.MaskedArray(np.concatenate(values), mask=np.concatenate(masks))


def show_similarity(similarity: float) -> str:
    """Return a similarity with two decimals, rounded down: 0.699 must not look like 0.7."""
    return f"{floor(similarity * 100 + 1e-9) / 100:.2f}"


def _characters(pair: tuple[str | None, str | None]) -> int:
    for text in pair:
        if text is not None and not isinstance(text, str):
            raise TypeError(f"texts must be str or None, not {type(text).__name__}")
    return sum(len(text) for text in pair if text is not None)
