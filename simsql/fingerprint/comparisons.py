"""Compare pairs of documents in bounded memory, whatever their length: tokens are read in blocks.

Pairs are put into groups, whose tokens are read together. Documents that pairs connect are in one group if they
are few. Many are cut into tiles, and the pairs between two tiles are a group. Of large collections, most documents
are connected by pairs that only share a passage: bitmaps of their features exclude most of these pairs before.
"""

from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simsql.arrays.positions import consecutive, portions, roots_of, unite
from simsql.fingerprint.features import padded_trigrams
from simsql.fingerprint.hashes import I64, U64
from simsql.fingerprint.pictures import compare_pictures
from simsql.fingerprint.shared_features import compare_features

# A bitmap of a document has a bit for each value of the upper bits of its features.
_UPPER_BITS = 10
# The pairs of each document that are worth bitmaps, and those whose bitmaps fit the cache.
_PAIRS_OF_DOCUMENT, _SCREENED = 2, 1 << 14

# Documents and tokens of a tile; a longer text is a tile of its own. A group is made of one or two tiles.
_TILE, _TILE_TOKENS = 256, 1 << 19
# A pair of documents as one number, and as its two tiles and its places there, which are below _TILE.
_DOCUMENT_BITS, _TILE_BITS, _PLACE_BITS = 32, 24, 8
# Tokens of a block, which has several groups if they are small: their arrays fit the cache.
_BLOCK_TOKENS = 1 << 18
# Pairs, and places for documents, that are planned together.
_PAIRS, _PLACES = 1 << 19, 1 << 20


class Tokens(NamedTuple):
    """The hashes of the tokens of documents."""

    counts: I64
    """The number of tokens of each."""
    read: Callable[[I64], U64]
    """Returns the tokens of the documents with these numbers, none of them twice, one document after the other."""
    kind: Literal["words", "features", "pictures"] = "words"
    """Words are compared by their trigrams, as `similarity` does; features and pictures as they are."""

    def features(self, tokens: U64, counts: I64) -> tuple[U64, I64]:
        """Return what is compared of documents with these tokens, and how much each has."""
        return padded_trigrams(tokens, counts) if self.kind == "words" else (tokens, counts)


Compared = tuple[I64, I64, NDArray[np.float64]]
"""Pairs of documents, and their similarities."""


def compare_documents(tokens: Tokens, left: I64, right: I64) -> NDArray[np.float64]:
    """Return the similarities of pairs of documents in bounded memory.

    `left` and `right` are numbers of documents, one pair per array position. Memory grows with the number of pairs
    and the longest texts, not with the sum of all texts.
    """
    wanted = pairs_of(left, right)
    blocks = list(compare_pairs(tokens, np.unique(wanted)))
    found = np.concatenate([np.zeros(0, dtype=np.uint64), *(pairs_of(left, right) for left, right, _ in blocks)])
    similarities = np.concatenate([np.zeros(0), *(similarity for _, _, similarity in blocks)])
    order = np.argsort(found)
    return similarities[order[np.searchsorted(found[order], wanted)]]


def pairs_of(left: I64, right: I64) -> U64:
    """Return each pair of documents, which are below 2**31, as one number, the smaller one in the upper half."""
    numbers = np.minimum(left, right) << _DOCUMENT_BITS | np.maximum(left, right)
    return numbers.view(np.uint64)


def documents_of(pairs: U64) -> tuple[I64, I64]:
    """Return the documents of each pair, the smaller one first."""
    signed = pairs.view(np.int64)
    return signed >> _DOCUMENT_BITS, signed & (1 << _DOCUMENT_BITS) - 1


def compare_pairs(tokens: Tokens, pairs: U64, least: float = 0) -> Iterator[Compared]:
    """Yield the similarities of pairs of documents, in any order, and overwrite `pairs`.

    Pairs that are less than `least` similar may be left out. `pairs` are as `pairs_of` returns them. Beside them,
    memory grows with the number of documents and the longest texts.
    """
    # So few pairs have at most 2**24 documents, and tiles.
    for some in _slices(len(pairs), 1 << _TILE_BITS - 1):
        chosen = pairs[some]
        if least > 0 and tokens.kind != "pictures":
            chosen = _screen(tokens, chosen, least)
        yield from _compare(tokens, chosen)


def _screen(tokens: Tokens, pairs: U64, least: float) -> U64:
    """Return the pairs whose bitmaps allow that they are `least` similar; all, if they are few.

    A bit of one bitmap alone is a feature, or several, that the other document does not have.
    """
    sizes = np.zeros(len(tokens.counts), dtype=np.int64)
    for some in _slices(len(pairs), _PAIRS):
        for side in documents_of(pairs[some]):
            sizes[side] = 1
    documents, place = np.flatnonzero(sizes), np.cumsum(sizes) - 1
    if len(pairs) < _PAIRS_OF_DOCUMENT * len(documents):
        return pairs
    bitmaps = np.empty((len(documents), (1 << _UPPER_BITS) // 64), dtype=np.uint64)
    for some in portions(tokens.counts[documents], _BLOCK_TOKENS):
        here = documents[some]
        features, sizes[here] = tokens.features(tokens.read(here), tokens.counts[here])
        bits = np.zeros((len(here), 1 << _UPPER_BITS), dtype=bool)
        upper = (features >> np.uint64(64 - _UPPER_BITS)).view(np.int64)
        bits[np.repeat(np.arange(len(here)), sizes[here]), upper] = True
        bitmaps[some] = np.packbits(bits, axis=1).view(np.uint64)
    possible = np.empty(len(pairs), dtype=bool)
    for some in _slices(len(pairs), _SCREENED):
        one, other = documents_of(pairs[some])
        first, second = bitmaps[place[one]], bitmaps[place[other]]
        only_first, only_second = (
            np.bitwise_count(bits).sum(axis=1, dtype=np.int64) for bits in (first & ~second, second & ~first)
        )
        shared = np.minimum(sizes[one] - only_first, sizes[other] - only_second)
        possible[some] = shared / np.maximum(shared + only_first + only_second, 1) >= least
    return pairs[possible]


def _slices(size: int, step: int) -> Iterator[slice]:
    return (slice(start, start + step) for start in range(0, size, step))


def _compare(tokens: Tokens, pairs: U64) -> Iterator[Compared]:
    layout = _Layout(tokens.counts, pairs)
    for some in _slices(len(pairs), _PAIRS):
        pairs[some] = layout.by_tile(pairs[some])
    pairs.sort()
    for some in _slices(len(pairs), _PAIRS):
        for block in layout.blocks(pairs[some]):
            found, left, right = _read(tokens, block.documents), block.left, block.right
            if tokens.kind == "pictures":
                similarity = compare_pictures(found, left, right)
            else:
                features = tokens.features(found, tokens.counts[block.documents])
                similarity = compare_features(*features, block.groups, left, right)
            yield block.documents[left], block.documents[right], similarity


def _read(tokens: Tokens, documents: I64) -> U64:
    """Return the tokens of documents, some of which can be repeated."""
    once, position = np.unique(documents, return_inverse=True)
    if len(once) == len(documents):
        return tokens.read(documents)
    sizes = tokens.counts[once]
    return tokens.read(once)[consecutive((np.cumsum(sizes) - sizes)[position], sizes[position])]


class _Block(NamedTuple):
    """Groups of documents that are compared together."""

    documents: I64
    """The number of each document, group after group. A document can be in several groups."""
    groups: I64
    """How many documents each group has."""
    left: I64
    """For each pair, the position of a document in `documents`."""
    right: I64


class _Layout:
    """The tiles of the documents of some pairs, in an order in which those of a component follow one another."""

    def __init__(self, counts: I64, pairs: U64) -> None:
        self._counts = counts
        present = np.zeros(len(counts), dtype=bool)
        for some in _slices(len(pairs), _PAIRS):
            for side in documents_of(pairs[some]):
                present[side] = True
        (documents,) = np.nonzero(present)
        # The place of a document in the order; for now, it is the ascending one.
        self._place = np.cumsum(present) - 1
        parents = np.arange(len(documents))
        for some in _slices(len(pairs), _PAIRS):
            left, right = documents_of(pairs[some])
            unite(parents, self._place[left], self._place[right])
        component = roots_of(parents, np.arange(len(documents)))
        order = np.argsort(component, kind="stable")
        self._documents = documents[order]
        self._place[self._documents] = np.arange(len(order))
        # A tile is a part of a component.
        new = np.diff(component[order], prepend=-1) != 0
        (starts,) = np.nonzero(new)
        sizes = np.diff(starts, append=len(order))
        sums = np.cumsum(counts[self._documents])
        before = sums - counts[self._documents]
        for cut in (
            (np.arange(len(order)) - np.repeat(starts, sizes)) // _TILE,
            (before - np.repeat(before[starts], sizes)) // _TILE_TOKENS,
        ):
            new[1:] |= cut[1:] != cut[:-1]
        self._firsts = np.flatnonzero(new)
        self._sizes = np.diff(self._firsts, append=len(order))
        self._tile = np.repeat(np.arange(len(self._sizes)), self._sizes)

    def by_tile(self, pairs: U64) -> U64:
        """Return each pair as a number with its two tiles and then the places of its documents there."""
        one, other = (self._place[side] for side in documents_of(pairs))
        one, other = np.minimum(one, other), np.maximum(one, other)
        first, second = self._tile[one], self._tile[other]
        one -= self._firsts[first]
        other -= self._firsts[second]
        numbers: I64 = ((first << _TILE_BITS | second) << _PLACE_BITS | one) << _PLACE_BITS | other
        return numbers.view(np.uint64)

    def blocks(self, pairs: U64) -> Iterator[_Block]:
        """Yield the blocks of pairs in the form of `by_tile`, in ascending order."""
        numbers = pairs.view(np.int64)
        tiles = numbers >> 2 * _PLACE_BITS
        # Two tiles with pairs are a group.
        (bounds,) = np.nonzero(np.diff(tiles, prepend=-1))
        first, second = tiles[bounds] >> _TILE_BITS, tiles[bounds] & (1 << _TILE_BITS) - 1
        starts = np.stack((self._firsts[first], self._firsts[second]), axis=1)
        sizes = np.stack((self._sizes[first], np.where(first == second, 0, self._sizes[second])), axis=1)
        shift = np.where(first == second, 0, self._sizes[first])
        ends = np.append(bounds[1:], len(pairs))
        for some in portions(sizes.sum(axis=1), _PLACES):
            here = slice(int(bounds[some.start]), int(ends[some.stop - 1]))
            yield from self._blocks_of(
                numbers[here], (ends - bounds)[some], starts[some], sizes[some], shift[some]
            )

    def _blocks_of(self, numbers: I64, counts: I64, starts: I64, sizes: I64, shift: I64) -> Iterator[_Block]:
        """Yield the blocks of some groups, which have `counts` pairs.

        `starts` and `sizes` are those of the two tiles of each group, and `shift` is where the second one begins.
        """
        group_sizes = sizes.sum(axis=1)
        begin = np.cumsum(group_sizes) - group_sizes
        group = np.repeat(np.arange(len(counts)), counts)
        left = begin[group] + (numbers >> _PLACE_BITS & _TILE - 1)
        right = (begin + shift)[group] + (numbers & _TILE - 1)
        # Of the documents of the tiles, only those of a pair are read.
        used = np.zeros(int(group_sizes.sum()), dtype=bool)
        used[left] = used[right] = True
        position = np.cumsum(used) - 1
        documents = self._documents[consecutive(starts.ravel(), sizes.ravel())[used]]
        groups = np.add.reduceat(used, begin, dtype=np.int64)
        ends, pair_ends = np.cumsum(groups), np.cumsum(counts)
        tokens = np.add.reduceat(self._counts[documents], ends - groups)
        for block in portions(tokens, _BLOCK_TOKENS):
            start, last = int((ends - groups)[block.start]), block.stop - 1
            pairs = slice(int((pair_ends - counts)[block.start]), int(pair_ends[last]))
            yield _Block(
                documents[start : ends[last]],
                groups[block],
                position[left[pairs]] - start,
                position[right[pairs]] - start,
            )
