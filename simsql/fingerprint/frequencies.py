"""Document frequencies of the features of a corpus, for idf tables."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from simsql.fingerprint.documents import batches_of, distinct_features
from simsql.fingerprint.features import count_features
from simsql.fingerprint.hashes import U64
from simsql.fingerprint.idf import IdfTable
from simsql.fingerprint.processes import map_in_processes
from simsql.fingerprint.recipe import DEFAULT_RECIPE, Recipe, check_recipe

# Characters of a batch, and of a task for a worker, whose result takes about ten bytes for each of them.
_BATCH_CHARACTERS = 1 << 18
_TASK_CHARACTERS = 1 << 21


def count_documents(
    texts: Iterable[str], recipe: Recipe = DEFAULT_RECIPE, workers: int | None = None, *, at_least: int = 2
) -> IdfTable:
    """Return the idf table of a corpus for `Recipe.idf`: the rarity of each feature of these texts.

    `texts` can be any iterable, and is read once. The features are those of `recipe`, whose own table is ignored.
    The table omits features of fewer texts than `at_least`, which then weigh as if no text had them: most features
    of a corpus occur in a single text, and each feature in the table takes 12 bytes. Memory grows with the table,
    not with the corpus. The rest goes to temporary files, with at most 12 bytes for each feature of each text.
    `workers` as for `simhash_many`; the table depends neither on it nor on the order of the texts.

    Raises TypeError if a text is not a str, ValueError if `workers` or `at_least` is less than 1.
    """
    if isinstance(texts, str):
        raise TypeError("texts must be an iterable of str, not a single str")
    check_recipe(recipe)
    if workers is not None and workers < 1:
        raise ValueError(f"workers must be None or at least 1, not {workers}")
    if at_least < 1:
        raise ValueError(f"at_least must be at least 1, not {at_least}")
    task = partial(_features_of, recipe=replace(recipe, idf=None))
    batches = batches_of(texts, _TASK_CHARACTERS)
    found = map(task, batches) if workers in (None, 1) else map_in_processes(task, batches, workers or 1)
    documents = 0

    def features() -> Iterator[U64]:
        nonlocal documents
        for hashes, count in found:
            documents += count
            yield hashes

    hashes, counts = count_features(features(), at_least)
    return IdfTable.of_frequencies(hashes, counts, documents, at_least, recipe.features_id)


def _features_of(texts: list[str], recipe: Recipe) -> tuple[U64, int]:
    """Return the distinct features of each text, and the number of texts."""
    batches = batches_of(texts, _BATCH_CHARACTERS)
    return np.concatenate([distinct_features(batch, recipe) for batch in batches]), len(texts)
