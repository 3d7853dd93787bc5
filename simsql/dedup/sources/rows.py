"""The rows of a table as documents."""

from array import array
from collections.abc import Iterator

import numpy as np

from simsql.decide.criteria import criterion
from simsql.decide.documents import I64
from simsql.decide.kinds import DIGESTS, digests_of
from simsql.dedup.corpus import Corpus, Features, Names, concatenate
from simsql.dedup.describe import describe_texts, no_features
from simsql.dedup.sources.table import SourceTable, TableOptions
from simsql.documents import Report, Skip, SkipCount, Stages, printable
from simsql.documents.spool import TextSpool, TokenSpool

_DAMAGED = "not utf-8"
_NAMED = 10  # of such rows, as of files


class RowSource:
    """The rows of a table whose texts are compared: `read` them first."""

    def __init__(self, table: SourceTable, options: TableOptions) -> None:
        self.table = table
        self.without_text = 0
        self.skips = SkipCount()
        """Of rows whose texts are not UTF-8, in a database that does not know their encoding."""
        self._damaged: dict[int, str] = {}
        """What is wrong with these texts, by place."""
        self._options = options
        self._asked = table.find(options.explain or ())
        self._labels: dict[int, str] = {}
        """By place, of rows that `load` has read, or whose names were asked for."""
        self._features: list[Features] = [no_features(0)]

    def read(self, tokens: TokenSpool, stages: Stages) -> Corpus:
        """Read the texts, and add their tokens to the spool."""
        options = self._options
        with stages.stage("sort keys"):
            self.order = self.table.read_order(options.rules.keep_field)
        numbers = array("q")  # for each row with a text: place, characters, digests
        with stages.stage("read and fingerprint", len(self.order.place)) as report:
            found = describe_texts(self._rows(report), options.recipe, options.rules, tokens, options.workers)
            for rows, features in found:
                for row in rows:
                    numbers.extend(row)
                self._features.append(features)
        if named := list(self._damaged)[:_NAMED]:
            for place, _, label in self.table.labelled_texts(np.array(named, dtype=np.int64)):
                self.skips.add(Skip(f"row {printable(label)}", _DAMAGED, self._damaged[place]))
            self.skips.by_reason[_DAMAGED] = len(self._damaged)
        self.place, characters, *digests = np.frombuffer(numbers, dtype=np.int64).reshape(-1, 2 + DIGESTS).T
        order = self.order.find(self.place)
        return Corpus(
            concatenate(self._features),
            characters,
            np.stack(digests, axis=1),
            criterion(options.rules, order.by_key, characters, -order.by_value),
            lambda positions: positions[np.argsort(order.by_key[positions])],
            scope=order.scope,
        )

    def _rows(self, report: Report) -> Iterator[tuple[tuple[int, ...], str]]:
        for number, (place, text) in enumerate(self.table.rows(), 1):
            report(number)
            if text is None:
                self.without_text += 1
            elif isinstance(text, UnicodeDecodeError):
                wrong = f"byte {text.start + 1} of the text is not utf-8"
                self._damaged[place] = f"{wrong}: it is damaged or in another encoding"
            else:
                yield (place, len(text), *digests_of(text, self._options.rules.protect)), text
            del text  # a long text is not kept while the next one is read

    def undecided(self) -> dict[str, int]:
        """Return how many rows nothing is decided about, by reason."""
        without_words = sum(int(np.count_nonzero(~found.has_fingerprint)) for found in self._features)
        return {
            "without a scope": int(np.count_nonzero(self.order.scope == 0)),
            "without a text": self.without_text,
            **self.skips.by_reason,
            "empty" if self._options.rules.exact else "without words": without_words,
        }

    def load(self, positions: I64, texts: TextSpool) -> dict[int, int]:
        """Read the labels and the texts of rows again, and return the numbers of the texts in the spool."""
        position = dict(zip(self.place[positions].tolist(), positions.tolist(), strict=True))
        number = {}
        for place, text, label in self.table.labelled_texts(self.place[positions]):
            self._labels[place], number[position[place]] = label, texts.count
            texts.append(text or "")
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
        if place in self._damaged:
            return "has a text that is not utf-8"
        return "has no text" if position >= len(self.place) else None

    def _all_places(self) -> I64:
        """Return the places of all rows, and of those that the user has named."""
        return np.append(self.place, np.array(list(self._asked.values()), dtype=np.int64))
