"""The documents and decisions of a run that keeps nothing: columns in memory.

A document takes about 200 bytes, and no Python object. Names are compared by their hashes and, where these are
equal, in full.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby, repeat
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simsql.decide.criteria import criterion, rank_values
from simsql.decide.documents import I64, U64, Documents, Flags
from simsql.decide.rules import Rules
from simsql.decide.verdicts import Verdicts
from simsql.dedup.candidates import Tokens
from simsql.dedup.safety.confirming import Reference
from simsql.dedup.store.columns import Columns, Origin, spell_digests, spell_places
from simsql.dedup.store.store import Loaded, StoredDocument, read_twice
from simsql.documents import Skip, Stages
from simsql.documents.spool import TokenSpool
from simsql.fingerprint import Recipe

_LISTED = 1_000  # members of clusters that are listed at a time: they fit the cache
_DIGITS = 12  # of the number of a line
_LINE_BITS = 40


class MemoryStore:
    """Documents and decisions in memory. Documents are known by their ordinals until some are left out.

    The id of a document is its position among those that are not left out, from 1, as a new table would have it.
    """

    holds_documents = False

    def __init__(self, recipe: Recipe, rules: Rules) -> None:
        self.recipe = recipe
        self.rules = rules
        self._batches: list[Columns] = []
        self._hashes: list[I64] = []
        self._escaped: list[int] = []
        """The ordinals of files that are one document, whose names are not their places."""

    def find_known(self, identities: NDArray[np.void], _: NDArray[np.void]) -> Flags:
        """Return that no document is known: there are no earlier runs."""
        return np.zeros(len(identities), dtype=bool)

    def take(self, batches: Iterable[Columns], origins: Sequence[Origin], tokens: TokenSpool | None) -> None:
        """Take the documents of the run, in the order of reading."""
        self._origins, self.tokens = origins, tokens
        total = 0
        for batch in batches:
            names = batch.names.to_list()
            self._batches.append(batch)
            self._hashes.append(_hash(names))
            whole = np.flatnonzero(batch.origin < 0).tolist()
            self._escaped += [total + position for position in whole if not names[position].isprintable()]
            total += len(names)

    def merge(self, _: Stages, skip: Callable[[Skip], None]) -> Loaded:
        """Leave out documents that were read twice, and count the others."""
        self.columns = Columns.concatenate(self._batches)
        self._name_hash = np.concatenate(self._hashes)
        self._batches, self._hashes = [], []
        again, first = _find_repeated(self.columns.identity)
        for place, place_of_first in zip(self._places(again), self._places(first), strict=True):
            skip(read_twice(place, place_of_first))
        self.ordinals = np.delete(np.arange(len(self._name_hash)), again)
        """The ordinal of each document, by id."""
        return Loaded(len(self.ordinals), 0, 0)

    def find_unread(self, _: Sequence[str]) -> Iterable[Reference]:
        """Return nothing: there are no earlier runs."""
        return ()

    def forget(self, documents: Iterable[Reference]) -> None:
        """Do nothing: there are no documents of earlier runs."""

    def read_rows(self) -> "MemoryRows":
        """Return the documents that have a fingerprint."""
        return MemoryRows(self)

    def save(self, documents: Documents, verdicts: Verdicts) -> None:
        """Take the decisions about the members of clusters."""
        (members,) = np.nonzero(verdicts.cluster)
        members = members[np.lexsort([documents.id[members], verdicts.cluster[members]])]
        self._member = documents.id[members]
        self._decided = (
            verdicts.cluster[members],
            documents.id[verdicts.kept[members]],
            documents.id[verdicts.representative[members]],
            verdicts.kept_similarity[members],
            verdicts.representative_similarity[members],
        )
        self._shared, self._misleading, self._mistakable = self._compare_names()

    def commit(self, stages: Stages) -> None:
        """Do nothing: nothing stays."""

    def count(self) -> int:
        """Return the number of documents."""
        return len(self.ordinals)

    def count_protected(self) -> int:
        """Return the number of documents that the rules protect, such as those of an archive."""
        return int(np.count_nonzero(self.columns.protected[self.ordinals]))

    def clusters(self) -> Iterator[list[StoredDocument]]:
        """Yield the documents of each cluster, the largest first."""
        for _, cluster in groupby(self._members(), key=attrgetter("cluster")):
            yield list(cluster)

    def find_named(self, name: str) -> Sequence[int]:
        """Return the ids of the documents of this name or, if there are none, at this place."""
        found = self._named(name)
        ids: list[int] = (
            np.searchsorted(self.ordinals, found if len(found) else self._placed([name])) + 1
        ).tolist()
        return ids

    def read_labels(self, ids: Iterable[int]) -> dict[int, str]:
        """Return the names of documents by id or, of documents that share theirs, the places."""
        numbers = np.array(list(ids))
        ordinals = self.ordinals[numbers - 1]
        named = zip(numbers.tolist(), self.columns.names.some(ordinals), self._places(ordinals), strict=True)
        return {id_: place if len(self._named(name)) > 1 else name for id_, name, place in named}

    def references(self, ids: I64) -> Iterator[Reference]:
        """Yield where to find documents."""
        return map(Reference, ids.tolist(), *self._sources(ids))

    def _sources(self, ids: I64) -> Iterator[Iterable[Any]]:
        """Yield the columns of `Reference` behind the id."""
        ordinals, columns = self.ordinals[ids - 1], self.columns
        yield (names := columns.names.some(ordinals))
        yield spell_places(names, columns.origin[ordinals], columns.line[ordinals], self._origins)
        yield (line or None for line in columns.line[ordinals].tolist())
        yield spell_digests(columns.identity[ordinals])
        yield spell_digests(columns.text_digest[ordinals])

    def _members(self) -> Iterator[StoredDocument]:
        """Yield the members of all clusters, in the order of the clusters and of their ids."""
        for start in range(0, len(self._member), _LISTED):
            part = slice(start, start + _LISTED)
            ids = self._member[part]
            ordinals = self.ordinals[ids - 1]
            cluster, kept, representative, *similarities = (column[part] for column in self._decided)
            columns: tuple[Iterable[Any], ...] = (
                cluster.tolist(),
                ids.tolist(),
                *self._sources(ids),
                self.columns.characters[ordinals].tolist(),
                self.columns.fingerprint.data[ordinals].view(np.int64).tolist(),
                repeat(True, len(ids)),  # seen and present: this run has read them
                repeat(True, len(ids)),
                self._shared[part].tolist(),
                self._misleading[part].tolist(),
                self._mistakable[part].tolist(),
                kept.tolist(),
                representative.tolist(),
                *(np.where(np.isnan(column), np.array(None), column).tolist() for column in similarities),
            )
            yield from map(StoredDocument._make, zip(*columns, strict=True))

    def _compare_names(self) -> tuple[Flags, Flags, Flags]:
        """Return what `StoredDocument` says about the names and places of members.

        Only documents whose names occur elsewhere are looked at one by one.
        """
        ordinals = self.ordinals[self._member - 1]
        names, places = self.columns.names.some(ordinals), self._places(ordinals)
        hashes, sizes = np.unique(self._name_hash[self.ordinals], return_counts=True)
        others = [place for name, place in zip(names, places, strict=True) if place != name]
        several = np.concatenate([hashes[sizes > 1], _hash(others)])
        related = self.ordinals[np.isin(self._name_hash[self.ordinals], several)]
        named = Counter(self.columns.names.some(related))
        placed = self._placed(names)
        pairs = zip(self.columns.names.some(placed), self._places(placed), strict=True)
        taken = {place for name, place in pairs if place != name}
        found = [
            (named[name] > 1, named[place] > (place == name), name in taken)
            for name, place in zip(names, places, strict=True)
        ]
        shared, misleading, mistakable = np.array(found, dtype=bool).reshape(-1, 3).T
        return shared, misleading, mistakable

    def _named(self, name: str) -> I64:
        """Return the ordinals of the documents of this name."""
        found: I64 = self.ordinals[self._name_hash[self.ordinals] == hash(name)]
        return np.compress([other == name for other in self.columns.names.some(found)], found)

    def _placed(self, places: Iterable[str]) -> I64:
        """Return the ordinals of the documents at these places. Files may be left out if they are called so."""
        numbers: dict[str, list[int]] = {}
        for number, origin in enumerate(self._origins):
            numbers.setdefault(origin.name, []).append(number)
        wanted = set(places)
        keys = []
        for place in wanted:
            file, _, line = place.rpartition(":")
            if file in numbers and line.isdecimal() and len(line) <= _DIGITS:
                keys += [_key(number, int(line)) for number in numbers[file]]
        near = np.isin(_key(self.columns.origin, self.columns.line), np.array(keys, dtype=np.int64))
        near[self._escaped] = True
        found: I64 = self.ordinals[near[self.ordinals]]
        return np.compress([place in wanted for place in self._places(found)], found)

    def _places(self, ordinals: I64) -> list[str]:
        """Return where documents were read."""
        columns = self.columns
        names = columns.names.some(ordinals)
        return spell_places(names, columns.origin[ordinals], columns.line[ordinals], self._origins)


class MemoryRows:
    """The documents that have a fingerprint, one per array position, by ascending id."""

    def __init__(self, store: MemoryStore) -> None:
        columns, rules = store.columns, store.rules
        self._store = store
        (filled,) = np.nonzero(~np.ma.getmaskarray(columns.fingerprint)[store.ordinals])
        ordinals = self._ordinals = store.ordinals[filled]
        self.text_start, self.text_size = columns.text_start[ordinals], columns.text_size[ordinals]
        self.here = np.full(len(ordinals), rules.checks_texts)
        counts, self._token_start = columns.token_count[ordinals], columns.token_start[ordinals]
        self.tokens = Tokens(counts, self._read_tokens, store.recipe.of_pictures)
        self.documents = Documents.without_decisions(
            filled + 1,
            columns.fingerprint.data[ordinals],
            columns.sketch.filled(0)[ordinals],
            columns.token_digest[ordinals].view(">u8").reshape(-1, 2).astype(np.uint64),
            counts > 0 if rules.checks_texts else ~self.here,
            columns.characters[ordinals],
            np.ones(len(ordinals), dtype=bool),
            columns.protected[ordinals],
        )
        values = np.zeros(len(ordinals), dtype=np.int64)
        valued = columns.valued[ordinals]
        found = columns.values.some(ordinals[valued])
        ranks = rank_values(found)
        values[valued] = [ranks[value] for value in found]
        line = columns.line[ordinals]
        self.criterion = criterion(rules, self.documents.id, self.documents.characters, values, line)

    def order_by_name(self, positions: I64) -> I64:
        """Return positions in the order of the names of their documents."""
        names = self._store.columns.names.some(self._ordinals[positions])
        # Strings are in the order of their UTF-8, as in the collation "C".
        return np.array([position for _, position in sorted(zip(names, positions.tolist(), strict=True))])

    def references(self, positions: I64) -> Iterator[Reference]:
        """Yield where to find the documents at these positions, in their order."""
        return self._store.references(self.documents.id[positions])

    def _read_tokens(self, positions: I64) -> U64:
        assert self._store.tokens  # noqa: S101 - texts are compared
        return self._store.tokens.read_at(self._token_start[positions], self.tokens.counts[positions])


def _hash(strings: Sequence[str]) -> I64:
    return np.fromiter(map(hash, strings), np.int64, len(strings))


def _key(origin: I64 | int, line: I64 | int) -> Any:
    """Return one number for a place."""
    return (origin << _LINE_BITS) + line


def _find_repeated(identity: NDArray[np.void]) -> tuple[I64, I64]:
    """Return the positions of identities that are not new, and for each of them that of the first."""
    half = identity.view("<u8")[::2]
    values, sizes = np.unique(half, return_counts=True)
    several = np.flatnonzero(np.isin(half, values[sizes > 1])).tolist()
    first: dict[bytes, int] = {}
    pairs = [(position, first.setdefault(identity[position].tobytes(), position)) for position in several]
    again = np.array([pair for pair in pairs if pair[0] != pair[1]], dtype=np.int64).reshape(-1, 2)
    return again[:, 0], again[:, 1]
