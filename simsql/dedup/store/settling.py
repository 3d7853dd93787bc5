"""Give records that have the same id in a file different identities, in the order of reading."""

from typing import Any

import numpy as np

from simsql.decide.documents import I64, U64, Flags
from simsql.dedup.safety.identity import identities_of_record
from simsql.dedup.store.columns import Columns, Origin, read_digests
from simsql.dedup.store.digesting import Digested
from simsql.documents import printable


class SettledIdentities:
    """The identities of the records of a run, and its origins."""

    def __init__(self) -> None:
        self.origins: list[Origin] = []
        """Grows with the parts that are settled."""
        self._taken = self._taken_in_streams = _Taken()
        """The identities of records with an id: those of the last file, or of all streams."""

    def settle(self, found: Digested) -> Columns:
        """Return the columns of the next part, with origins of the run and identities that differ."""
        columns = found.columns
        identity = columns.identity.copy()
        numbers = np.zeros(len(found.origins) + 1, dtype=np.int64)
        numbers[-1] = -1  # of files that are one document
        for local, (origin, file) in enumerate(zip(found.origins, found.files, strict=True)):
            if local or not self.origins or self.origins[-1] != origin:
                self.origins.append(origin)
                self._taken = _Taken() if file else self._taken_in_streams
            numbers[local] = len(self.origins) - 1
            (rows,) = np.nonzero(found.labelled & (columns.origin == local))
            rows = rows[self._taken.take(_first_half(identity[rows]))]
            attempt = 1
            while len(rows):
                others = read_digests(_identity(columns, found, row, attempt) for row in rows.tolist())
                identity[rows] = others
                rows = rows[self._taken.take(_first_half(others))]
                attempt += 1
        return columns._replace(origin=numbers[columns.origin], identity=identity)


def _identity(columns: Columns, found: Digested, row: int, attempt: int) -> str:
    """Return another identity of a record: see `identities_of_record`."""
    origin, line, name = int(columns.origin[row]), int(columns.line[row]), columns.names.at(row)
    label = None if printable(name) == f"{found.origins[origin].name}:{line}" else name
    identities = identities_of_record(found.files[origin], label, line, columns.text_digest[row].tobytes().hex())
    for _ in range(attempt):
        next(identities)
    return next(identities)


def _first_half(identity: Any) -> U64:
    return np.ascontiguousarray(identity).view("<u8")[::2]


class _Taken:
    """A set of numbers, which takes eight bytes for each."""

    def __init__(self) -> None:
        self._sorted: list[U64] = []
        """The later, the shorter."""

    def take(self, numbers: U64) -> Flags:
        """Add numbers, and return which of them have been added before."""
        values, first = np.unique(numbers, return_index=True)
        again = np.ones(len(numbers), dtype=bool)
        again[first] = False
        for known in self._sorted:
            places: I64 = np.minimum(np.searchsorted(known, numbers), len(known) - 1)
            again |= known[places] == numbers
        if len(values):
            self._sorted.append(values)
        while len(self._sorted) > 1 and len(self._sorted[-2]) < 2 * len(self._sorted[-1]):
            self._sorted[-2:] = [np.union1d(*self._sorted[-2:])]
        return again
