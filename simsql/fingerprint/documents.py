"""Texts to fingerprints, and to idf tables: one text, or any number in batches and processes."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from operator import index
from typing import TypeVar, get_args, overload

import numpy as np
from numpy.typing import NDArray

from simsql.errors import UsageError
from simsql.fingerprint.batches import TASK_CHARACTERS, Arrays, TextColumn, check_text, map_batches
from simsql.fingerprint.extract import (
    extract_features,
    features_of_tokens,
    has_plain_words,
    iter_features,
    iter_shingles,
)
from simsql.fingerprint.features import Features, IdfTable, count_features, iter_counts
from simsql.fingerprint.hashes import U64
from simsql.fingerprint.pictures import read_pictures
from simsql.fingerprint.recipe import CONSTANT_AT_MOST, DEFAULT_RECIPE, Recipe, WordNumber, check_recipe
from simsql.fingerprint.sketches import Minima, minima_of_tokens
from simsql.fingerprint.tokens import hash_tokens
from simsql.fingerprint.utf8 import TokenLists
from simsql.fingerprint.vote import Fingerprints, Outcome, Tally, fingerprints_of, join_outcomes

# Features of longer texts are counted in portions: all at once would take up to 100 bytes for each character.
_LONG = 1 << 20
# Characters of a task whose result takes a few bytes for each: features that are counted, or tokens.
_LARGE_RESULT_CHARACTERS = 1 << 21

Item = TypeVar("Item")


@overload
def simhash(text: str, recipe: Recipe = DEFAULT_RECIPE) -> int | None: ...
@overload
def simhash(text: str, recipe: Recipe = DEFAULT_RECIPE, *, words: int) -> tuple[int, ...] | None: ...
def simhash(
    text: str, recipe: Recipe = DEFAULT_RECIPE, *, words: int | None = None
) -> int | tuple[int, ...] | None:
    """Return the fingerprint of a text, in [0, 2**64), or None if the text has no features.

    A text without a letter, digit or emoji has no features. For many texts, `simhash_many` is many times
    faster. With `words`, 1 to 4, return a tuple of that many fingerprints with independent hashes: word i has the
    recipe with this `word`, so word 0 is the fingerprint. Raises TypeError if `text` is not a str, ValueError for
    another number of words or a recipe that is not that of word 0.
    """
    if words is not None:
        check_recipe(recipe)
        if words not in range(1, 5) or recipe.word:
            raise UsageError(f"words must be between 1 and 4, and the recipe that of word 0: {words}, {recipe.id}")
        found = [simhash(text, replace(recipe, word=word)) for word in get_args(WordNumber)[:words]]
        return None if None in found else tuple(word for word in found if word is not None)
    if not isinstance(text, str):
        raise TypeError(f"text must be a str, not {type(text).__name__}")
    values, empty = _fingerprint([text], recipe)
    return None if empty[0] else int(values[0])


def simhash_parts(parts: Iterable[tuple[str, int | str]], recipe: Recipe = DEFAULT_RECIPE) -> int | None:
    """Return the fingerprint of several weighted texts, or None if they have no features.

    Each text has the same features and weights as on its own, so no feature spans two texts. The weights of the
    features are multiplied by the weight of their text, and all features vote together: a feature that two texts
    share votes twice. So a single text has the fingerprint that `simhash` returns, at any weight, and the order
    of the texts does not matter. The weight of a text can also be the name of a class of the recipe.

    Raises TypeError if a part is not a pair, a text not a str or a weight not an integer, ValueError for a weight
    outside 1 to 1,000,000 and for a class that the recipe does not name.
    """
    check_recipe(recipe)
    texts: list[str] = []
    constants: list[int] = []
    for position, part in enumerate(parts):
        text, weight = _pair(part, position)
        check_text(text, position)
        texts.append(text)
        constants.append(_constant(weight, position, recipe))
    if sum(map(len, texts)) > _LONG:
        tally = Tally(recipe)
        for text, constant in zip(texts, constants, strict=True):
            tally.add_all(iter_features(text, recipe), constant)
        values, empty = tally.outcome()
        return None if empty[0] else int(values[0])
    features = extract_features(texts or [""], recipe)
    together = Features(features.hashes, features.occurrences, features.documents.sum(keepdims=True))
    different = np.array([len(np.unique(features.hashes))])
    values, empty = fingerprints_of(together, recipe, np.repeat(constants or [1], features.documents), different)
    return None if empty[0] else int(values[0])


def margins_of_parts(parts: Iterable[tuple[str, int]], recipe: Recipe) -> tuple[int | None, NDArray[np.float64]]:
    """Return the fingerprint of weighted texts, and the margins of its bits: see `Tally.margins`.

    Weights must be right: see `simhash_parts`. Raises TypeError if a text is not a str.
    """
    tally, hashes, weights = Tally(recipe), [np.zeros(0, dtype=np.uint64)], [np.zeros(0, dtype=np.int64)]
    for position, (text, constant) in enumerate(parts):
        check_text(text, position)
        for some, occurrences in iter_counts(iter_features(text, recipe)):
            hashes.append(some)
            weights.append(tally.add(some, occurrences, constant))
    # A feature of several texts has the sum of their weights.
    _, feature = np.unique(np.concatenate(hashes), return_inverse=True)
    norm = np.linalg.norm(np.bincount(feature, np.concatenate(weights)))
    values, empty = tally.outcome()
    return None if empty[0] else int(values[0]), tally.margins(float(norm))


def _pair(part: tuple[str, int | str], position: int) -> tuple[str, int | str]:
    try:
        text, weight = () if isinstance(part, str) else part
    except (TypeError, ValueError):
        raise TypeError(f"part {position} must be a pair of a text and its weight, not {part!r}") from None
    return text, weight


def _constant(weight: int | str, position: int, recipe: Recipe) -> int:
    if isinstance(weight, str):
        classes = dict(recipe.class_weights)
        if weight not in classes:
            known = ", ".join(classes) or "none"
            raise UsageError(f"the recipe has no class {weight!r} for text {position}: its classes are {known}")
        return classes[weight]
    try:
        constant = index(weight)
    except TypeError:
        raise TypeError(f"the weight of text {position} must be an integer, not {weight!r}") from None
    if not 1 <= constant <= CONSTANT_AT_MOST:
        raise UsageError(f"the weight of text {position} must be between 1 and {CONSTANT_AT_MOST}, not {constant}")
    return constant


def simhash_many(
    texts: Iterable[str] | TextColumn, recipe: Recipe = DEFAULT_RECIPE, workers: int | None = None
) -> Fingerprints:
    """Return the fingerprints of texts, in their order; texts without features are masked.

    `texts` can be any iterable, including a generator, and is read in batches. It can also be a column of texts:
    an Arrow array or chunked array of strings, or a Polars Series; its nulls are masked. `workers` is the number
    of processes; None and 1 mean only this process. Additional processes import the main module only for a
    tokenizer that is defined there: then put the code of the script behind `if __name__ == "__main__":`.
    Fingerprints depend neither on `workers` nor on the other texts.

    Returns a masked array of uint64, one-dimensional, with a full mask. Raises TypeError if a text is not a
    str, and ValueError if `workers` is less than 1.
    """
    return join_outcomes(map_batches(partial(_fingerprint, recipe=recipe), texts, workers))


def simhash_items(
    items: Iterable[tuple[Item, str]], recipe: Recipe = DEFAULT_RECIPE, workers: int | None = None
) -> Iterator[tuple[list[Item], Fingerprints]]:
    """Yield batches of items, in their order, with the fingerprints of their texts.

    `items` are pairs of an item of any type and its text, which are read a few batches ahead. Other arguments and
    errors as for `simhash_many`.
    """
    for rows, (values, empty) in map_items(partial(_fingerprint, recipe=recipe), items, workers):
        yield rows, np.ma.MaskedArray(values, mask=empty)


def simhash_items_with_tokens(
    items: Iterable[tuple[Item, str]],
    recipe: Recipe = DEFAULT_RECIPE,
    workers: int | None = None,
    *,
    features: bool = False,
) -> Iterator[tuple[list[Item], Fingerprints, TokenLists, Minima]]:
    """Yield the batches of `simhash_items`, the hashes of the tokens that `similarity` compares, and the minima.

    The tokens are the words of the default recipe in the revision of `recipe`, and take eight bytes each. If
    `recipe` has the same words, as most do, each text is split into words once. With `features`, those of `recipe`
    are in the place of the tokens and of their trigrams.
    """
    work = partial(_fingerprint_with_features if features else _fingerprint_with_tokens, recipe=recipe)
    for rows, found in map_items(work, items, workers, _LARGE_RESULT_CHARACTERS):
        values, empty, hashes, counts, *minima = found
        yield rows, np.ma.MaskedArray(values, mask=empty), TokenLists(hashes, counts), Minima(*minima)


def simhash_items_with_sketches(
    items: Iterable[tuple[Item, str]], recipe: Recipe = DEFAULT_RECIPE, workers: int | None = None
) -> Iterator[tuple[list[Item], Fingerprints, Fingerprints]]:
    """Yield the batches of `simhash_items`, and the sketches of the texts in the revision of `recipe`."""
    work = partial(_fingerprint_with_sketches, recipe=recipe)
    for rows, (values, empty, sketches, no_words) in map_items(work, items, workers):
        yield rows, np.ma.MaskedArray(values, mask=empty), np.ma.MaskedArray(sketches, mask=no_words)


def map_items(
    work: Callable[[list[str]], Arrays],
    items: Iterable[tuple[Item, str]],
    workers: int | None = None,
    task_characters: int = TASK_CHARACTERS,
) -> Iterator[tuple[list[Item], Arrays]]:
    """Yield batches of items, in their order, with what `work` returns for their texts: see `map_batches`."""
    waiting: deque[Item] = deque()

    def texts() -> Iterator[str]:
        for item, text in items:
            waiting.append(item)
            yield text
            del item, text  # a long text is not kept while the next one is read

    for found in map_batches(work, texts(), workers, task_characters):
        yield [waiting.popleft() for _ in range(len(found[0]))], found


def _fingerprint(texts: list[str], recipe: Recipe) -> Outcome:
    if isinstance(recipe, Recipe) and recipe.of_pictures:
        return read_pictures(texts)[0]
    if _is_long(texts):
        return Tally(recipe).add_all(iter_features(texts[0], recipe)).outcome()
    return fingerprints_of(extract_features(texts, recipe), recipe)


def _fingerprint_with_tokens(texts: list[str], recipe: Recipe) -> Arrays:
    check_recipe(recipe)
    if recipe.of_pictures:
        outcome, found = read_pictures(texts)
        return *outcome, *found, *Minima.none(len(texts))
    found = hash_tokens(texts, "words", recipe.revision)
    if not has_plain_words(recipe):
        outcome = _fingerprint(texts, recipe)
    elif _is_long(texts):
        outcome = Tally(recipe).add_all(iter_shingles([found.hashes], recipe)).outcome()
    else:
        # Single tokens are sorted where they are.
        own = found._replace(hashes=found.hashes.copy()) if recipe.shingles == (1,) else found
        outcome = fingerprints_of(features_of_tokens(own, recipe), recipe)
    return *outcome, *found, *minima_of_tokens(found)


def _fingerprint_with_features(texts: list[str], recipe: Recipe) -> Arrays:
    features = _distinct_features(texts, recipe)
    found = TokenLists(features.hashes, features.documents)
    return *fingerprints_of(features, recipe), *found, *minima_of_tokens(found, features=True)


def _fingerprint_with_sketches(texts: list[str], recipe: Recipe) -> Arrays:
    values, empty, _, counts, sketches, _ = _fingerprint_with_tokens(texts, recipe)
    return values, empty, sketches, counts == 0


def _distinct_features(texts: list[str], recipe: Recipe) -> Features:
    if not _is_long(texts):
        return extract_features(texts, recipe)
    found = count_features(iter_features(texts[0], recipe))
    return Features(*found, np.array([len(found.hashes)]))


def _is_long(texts: list[str]) -> bool:
    return len(texts) == 1 and len(texts[0]) > _LONG


def count_documents(
    texts: Iterable[str] | TextColumn,
    recipe: Recipe = DEFAULT_RECIPE,
    workers: int | None = None,
    *,
    at_least: int = 2,
) -> IdfTable:
    """Return the idf table of a corpus for `Recipe.idf`: the rarity of each feature of these texts.

    `texts` can be any iterable, and is read once. The features are those of `recipe`, whose own table is ignored.
    The table omits features of fewer texts than `at_least`, which then weigh as if no text had them: most features
    of a corpus occur in a single text, and each feature in the table takes 12 bytes. Memory grows with the table,
    not with the corpus. The rest goes to temporary files, with at most 12 bytes for each feature of each text.
    `workers` as for `simhash_many`; the table depends neither on it nor on the order of the texts.

    Raises TypeError if a text is not a str, ValueError if `workers` or `at_least` is less than 1.
    """
    check_recipe(recipe)
    if at_least < 1:
        raise UsageError(f"at_least must be at least 1, not {at_least}")
    work = partial(_distinct_features, recipe=replace(recipe, idf=None))
    found = map_batches(work, texts, workers, _LARGE_RESULT_CHARACTERS)
    documents = 0

    def features() -> Iterator[U64]:
        nonlocal documents
        for hashes, _, of_texts in found:
            documents += len(of_texts)
            yield hashes

    hashes, counts = count_features(features(), at_least)
    return IdfTable.of_frequencies(hashes, counts, documents, at_least, recipe.features_id)
