"""The rows of a table as documents: their texts, and the numbers that the table stores for them."""

from array import array
from collections.abc import Iterable, Iterator
from typing import TypeAlias

import numpy as np

from simsql.decide.criteria import criterion
from simsql.decide.documents import I64, U64
from simsql.dedup.candidates import find_candidates
from simsql.dedup.comparing import spread_scopes
from simsql.dedup.corpus import Corpus, Features, Names, concatenate
from simsql.dedup.describe import features_of, without_tokens
from simsql.dedup.sources.stored_columns import find_stored
from simsql.dedup.sources.table import Row, SourceTable, TableOptions
from simsql.documents import Report, Stages
from simsql.documents.spool import TextSpool, TokenSpool
from simsql.fingerprint import (
    Fingerprints,
    TokenLists,
    simhash_items_with_tokens,
    simhash_many,
    sketches_of_tokens,
    tokens_of_items,
)

_Batch: TypeAlias = tuple[list[Row], Fingerprints, TokenLists, Fingerprints]


class RowSource:
    """The rows of a table whose texts are compared: `read` them first."""

    def __init__(self, table: SourceTable, options: TableOptions) -> None:
        self.table = table
        self.without_text = self.stored = 0
        self.columns = find_stored(table, options)
        if not options.rules.checks_texts:
            self.columns = self.columns._replace(sketch=None)
        self._options = options
        self._asked = table.find(options.explain or ())
        self._labels: dict[int, str] = {}
        """By place, of rows that `load` has read, or whose names were asked for."""
        self._places, self._characters = array("q"), array("q")
        self._unread = array("q")  # for each row whose text was not read: place, fingerprint, sketch
        self._features: list[Features] = [without_tokens(np.ma.zeros(0, np.uint64))]

    def read(self, tokens: TokenSpool, stages: Stages) -> Corpus:
        """Read the texts that have to be compared, and add their tokens to the spool."""
        options = self._options
        with stages.stage("sort keys"):
            self.order = self.table.read_order(options.rules.keep_field)
        with stages.stage("read and fingerprint", len(self.order.place)) as report:
            rows = self._rows(report)
            if self.columns.fingerprint is None:
                self._add(simhash_items_with_tokens(rows, options.recipe, options.workers), tokens)
            else:
                self._add(self._complete(rows), tokens)
            self.alone = self._read_candidates(tokens)
            """The places of rows that no other row is near, whose texts were not read."""
        self.place = np.array(self._places, dtype=np.int64)
        """The place of each row."""
        order, characters = self.order.find(self.place), np.array(self._characters, dtype=np.int64)
        return Corpus(
            concatenate(self._features),
            characters,
            criterion(options.rules, order.by_key, characters, -order.by_value),
            lambda positions: positions[np.argsort(order.by_key[positions])],
            scope=order.scope,
        )

    def _rows(self, report: Report) -> Iterator[tuple[Row, str]]:
        for number, found in enumerate(self.table.rows(self.columns.fingerprint, self.columns.sketch), 1):
            report(number)
            if found is None:
                self.without_text += 1
                continue
            row, text = found
            self.stored += row.stored is not None
            if text is not None:
                yield row, text
            elif row.stored is not None and row.sketch is not None:
                self._unread.extend((row.place, row.stored, row.sketch))
            del found, text  # a long text is not kept while the next one is read

    def _add(self, batches: Iterable[_Batch], spool: TokenSpool) -> None:
        for rows, fingerprints, tokens, sketches in batches:
            self._places.extend(row.place for row in rows)
            self._characters.extend(row.characters for row in rows)
            self._features.append(features_of(fingerprints, tokens, sketches, spool))

    def _complete(self, found: Iterable[tuple[Row, str]]) -> Iterator[_Batch]:
        """Yield rows with their fingerprints, the stored ones where there are any, and tokens and sketches."""
        # Only texts whose fingerprint is missing have to be kept until their tokens are there.
        items = (((row, text if row.stored is None else None), text) for row, text in found)
        for batch, tokens in tokens_of_items(items, self._options.workers):
            rows = [row for row, _ in batch]
            missing = np.array([row.stored is None for row in rows])
            values = np.array([row.stored or 0 for row in rows], dtype=np.int64).view(np.uint64)
            fingerprints = np.ma.MaskedArray(values, mask=missing)
            texts = [text for _, text in batch if text is not None]
            fingerprints[missing] = simhash_many(texts, self._options.recipe)
            yield rows, fingerprints, tokens, sketches_of_tokens(tokens)

    def _read_candidates(self, spool: TokenSpool) -> I64:
        """Read the texts of rows that have to be compared, and of those to explain; return the other places."""
        place, stored, sketch = np.array(self._unread, dtype=np.int64).reshape(-1, 3).T
        if not len(place):
            return place
        rules = self._options.rules
        read: Features = concatenate(self._features)
        of_read = np.array(self._places, dtype=np.int64)[read.has_fingerprint]
        known: list[U64] = [stored.view(np.uint64), read.fingerprint[read.has_fingerprint]]
        sketches: list[U64] = [sketch.view(np.uint64), read.sketch[read.has_fingerprint]]
        scope = self.order.find(np.concatenate([place, of_read])).scope
        chosen = find_candidates(
            spread_scopes(np.concatenate(known), scope),
            np.concatenate(sketches),
            rules.distance,
            rules.similarity,
            self._options.workers,
        )[: len(place)] | np.isin(place, list(self._asked.values()))
        own = dict(zip(place[chosen].tolist(), stored[chosen].tolist(), strict=True))
        texts = self.table.texts(place[chosen])
        self._add(self._complete((Row(at, own[at], None, len(text)), text) for at, text in texts), spool)
        return place[~chosen]

    def undecided(self) -> dict[str, int]:
        """Return how many rows nothing is decided about, by reason."""
        return {
            "without a scope": int(np.count_nonzero(self.order.scope == 0)),
            "without a text": self.without_text,
            "without words": sum(int(np.count_nonzero(~found.has_fingerprint)) for found in self._features),
        }

    def load(self, positions: I64, texts: TextSpool) -> dict[int, int]:
        """Read the labels and the texts of rows again, and return the numbers of the texts in the spool."""
        position = dict(zip(self.place[positions].tolist(), positions.tolist(), strict=True))
        number = {}
        for place, text, label in self.table.labelled_texts(self.place[positions]):
            self._labels[place], number[position[place]] = label, texts.count
            texts.append(text)
        return number

    def names(self, positions: I64) -> Names:
        """Return how rows are called. Behind the last position are those that the user has named."""
        places = self._all_places()[positions]
        missing = np.unique(places[[place not in self._labels for place in places.tolist()]])
        if len(missing):
            self._labels |= {place: label for place, _, label in self.table.labelled_texts(missing)}
        labels = [self._labels[place] for place in places.tolist()]
        no = [False] * len(labels)
        return Names(labels, labels, [0] * len(labels), [""] * len(labels), no, no)

    def find(self, name: str) -> int:
        """Return the position of a row that the user has named."""
        return int(np.flatnonzero(self._all_places() == self._asked[name])[0])

    def why_undecided(self, position: int) -> str | None:
        """Return why nothing was decided about a row that the user has named."""
        place = int(self._all_places()[position])
        (scope,) = np.compress(self.order.place == place, self.order.scope).tolist() or [None]
        if scope is None:
            return "is not among the rows of --where"
        if scope == 0:
            return "has a null in a scope column"
        return "has no text" if position >= len(self.place) else None

    def _all_places(self) -> I64:
        """Return the places of all rows, and of those that the user has named."""
        return np.append(self.place, np.array(list(self._asked.values()), dtype=np.int64))
