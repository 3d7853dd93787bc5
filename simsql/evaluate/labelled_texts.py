"""Find the texts of labelled pairs, and measure recipes on them."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np

from simsql.arrays.positions import consecutive
from simsql.decide.documents import I64, Flags, Similarities
from simsql.decide.rules import Rules
from simsql.dedup.bands import Buckets, Described, bits_of_candidates
from simsql.documents import DocumentReader, SkipCount, Stages, name_paths, printable
from simsql.errors import SimsqlError
from simsql.evaluate.labels import Labelled
from simsql.evaluate.measures import NO_FINGERPRINT, LabelledPairs, RuleFigures, evaluate_pairs
from simsql.fingerprint import Recipe, Tokens, compare_documents, simhash_items_with_tokens

DISTANCES = range(17)
"""Those that are measured."""

_SHOWN = 3  # ids that are not found


class LabelledTexts:
    """The texts of labelled pairs."""

    def __init__(self, pairs: Sequence[Labelled], texts: Sequence[tuple[str, str]]) -> None:
        self._texts = [a for a, _ in texts] + [b for _, b in texts]
        self._left, self._right = np.arange(2 * len(texts)).reshape(2, -1)
        self._alike = np.array([pair.alike for pair in pairs])
        self._weights = np.array([pair.weight for pair in pairs])

    def measure(self, recipe: Recipe, similarities: Iterable[float]) -> list[RuleFigures]:
        """Return the figures of the rules for each distance, without a check and with each similarity.

        Then those with each similarity by the features of the recipe, to which distances do not matter.
        """
        similarities, figures = list(similarities), []
        for by_features in (False, True):
            texts, similarity, missing = self._describe(recipe, by_features=by_features)
            limits = {Rules.distance: 64} if by_features else {bits: bits for bits in DISTANCES}
            for least in similarities if by_features else (None, *similarities):
                distance = self._distances(texts, least, limits)
                distance[missing] = NO_FINGERPRINT
                pairs = LabelledPairs(distance, similarity, self._alike, self._weights)
                found = evaluate_pairs(pairs, limits, () if least is None else [least])
                figures += [rule._replace(by_features=by_features) for rule in found if rule.similarity == least]
        return figures

    def _describe(self, recipe: Recipe, *, by_features: bool) -> tuple[Described, Similarities, Flags]:
        """Return what finds candidates among the texts, the similarities of the pairs, and which lack prints."""
        items = simhash_items_with_tokens(enumerate(self._texts), recipe, features=by_features)
        _, prints, tokens, minima = zip(*items, strict=True)
        lacking = np.concatenate([part.mask for part in prints])
        hashes, counts = map(np.concatenate, zip(*tokens, strict=True))
        starts = np.cumsum(counts) - counts
        similarity = compare_documents(
            Tokens(
                counts,
                lambda some: hashes[consecutive(starts[some], counts[some])],
                "features" if by_features else "words",
            ),
            self._left,
            self._right,
        )
        sketches, bands = map(np.concatenate, zip(*minima, strict=True))
        described = Described(np.concatenate([part.data for part in prints]), sketches, bands.T)
        return described, similarity, lacking[self._left] | lacking[self._right]

    def _distances(self, texts: Described, least: float | None, limits: Mapping[int, int]) -> I64:
        """Return the first distance at which `simsql dedup` compares each pair, given the bits it allows."""
        if least is None:
            apart = texts.fingerprints[self._left] ^ texts.fingerprints[self._right]
            return np.asarray(np.bitwise_count(apart), dtype=np.int64)
        found = np.full(len(self._left), NO_FINGERPRINT)
        met = Buckets(texts, 64, least).meet(self._left, self._right)
        for distance, bits in sorted(limits.items(), reverse=True):
            found[met & texts.near(self._left, self._right, *bits_of_candidates(bits, least))] = distance
        return found


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
                for name in {item.name, item.place} & wanted.keys():
                    if name in known:
                        raise SimsqlError(
                            f"several documents are called {printable(name)!r}: name them by their places"
                        )
                    known[name] = item.text
                del item  # a long document is not kept while the next one is read
    if missing := [f"{printable(name)!r} ({place})" for name, place in wanted.items() if name not in known]:
        skips.check_read()
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


def _texts_of(pair: Labelled, known: Mapping[str, str]) -> tuple[str, str]:
    first, second = (
        known[name or ""] if text is None else text for name, text in zip(pair.ids, pair.texts, strict=True)
    )
    return first, second
