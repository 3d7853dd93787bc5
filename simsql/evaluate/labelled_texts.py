"""Find the texts of labelled pairs, and measure recipes on them."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np

from simsql.documents import Document, DocumentReader, SkipCount, Stages, name_paths, printable
from simsql.errors import SimsqlError
from simsql.evaluate.labels import Labelled
from simsql.evaluate.measures import NO_FINGERPRINT, LabelledPairs, RuleFigures, evaluate_pairs
from simsql.fingerprint import Recipe, simhash_many, similarity_many

MOST_DISTANCE = 16
DISTANCES = range(MOST_DISTANCE + 1)
"""Those that are measured."""

_SHOWN = 3  # ids that are not found


class LabelledTexts:
    """The texts of labelled pairs."""

    def __init__(self, pairs: Sequence[Labelled], texts: Sequence[tuple[str, str]]) -> None:
        self._sides = [a for a, _ in texts], [b for _, b in texts]
        self._similarities = similarity_many(*self._sides).data
        self._alike = np.array([pair.alike for pair in pairs])
        self._weights = np.array([pair.weight for pair in pairs])

    def measure(self, recipe: Recipe, similarities: Iterable[float]) -> list[RuleFigures]:
        """Return the figures of the rules for each distance, without a check and with each similarity."""
        a, b = (simhash_many(side, recipe) for side in self._sides)
        distance = np.bitwise_count(a.data ^ b.data).astype(np.int64)
        distance[a.mask | b.mask] = NO_FINGERPRINT
        pairs = LabelledPairs(distance, self._similarities, self._alike, self._weights)
        return evaluate_pairs(pairs, DISTANCES, similarities)


def find_texts(
    pairs: Sequence[Labelled], paths: Sequence[str], open_reader: Callable[[], DocumentReader], stages: Stages
) -> tuple[LabelledTexts, SkipCount]:
    """Look up the texts of pairs with ids in the documents of a reader, which is opened if it is needed.

    `paths` are those of the reader. Also return what it has skipped. Raises SimsqlError for ids that no document
    has, or several have.
    """
    wanted = {name: pair.place for pair in reversed(pairs) for name in _ids_to_look_up(pair)}
    known: dict[str, str] = {}
    skips = SkipCount()
    if wanted:
        if not paths:
            place = next(pair.place for pair in pairs if list(_ids_to_look_up(pair)))
            raise SimsqlError(
                f"{place}: the pair has ids, but no texts: name the files of the documents after LABELS"
            )
        reader = open_reader()
        skips = reader.skips
        with stages.stage("read", reader.bytes_total) as report:
            for item in reader.documents(report):
                _add_wanted(known, item, wanted)
                del item  # a long document is not kept while the next one is read
    if missing := [f"{printable(name)!r} ({place})" for name, place in wanted.items() if name not in known]:
        more = f" and {len(missing) - _SHOWN:,} more" if len(missing) > _SHOWN else ""
        some = ", ".join(missing[-_SHOWN:])
        raise SimsqlError(
            f"no document in {name_paths(paths)} has the id {some}{more}: check --id-field, and the files"
        )
    return LabelledTexts(pairs, [_texts_of(pair, known) for pair in pairs]), skips


def _ids_to_look_up(pair: Labelled) -> Iterator[str]:
    for name, text in zip(pair.ids, pair.texts, strict=True):
        if text is None and name is not None:
            yield name


def _add_wanted(known: dict[str, str], document: Document, wanted: Mapping[str, str]) -> None:
    """Add the text of a document by its id or its place, if that is wanted."""
    for name in {document.name, document.place} & wanted.keys():
        if name in known:
            raise SimsqlError(f"several documents are called {printable(name)!r}: name them by their places")
        known[name] = document.text


def _texts_of(pair: Labelled, known: Mapping[str, str]) -> tuple[str, str]:
    first, second = (
        known[name or ""] if text is None else text for name, text in zip(pair.ids, pair.texts, strict=True)
    )
    return first, second
