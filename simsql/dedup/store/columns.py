"""Documents as columns: what intake hands to a store, without a Python object for each document."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from simsql.dedup.safety.identity import FileStatus
from simsql.documents import printable
from simsql.fingerprint import Fingerprints

DIGEST = np.dtype("V16")
"""A digest of 16 bytes, as in PostgreSQL's uuid."""


class Strings(NamedTuple):
    """Strings, one after the other in UTF-8."""

    data: bytes
    ends: NDArray[np.int64]
    """The end of each string in `data`."""

    @classmethod
    def of(cls, strings: Iterable[str]) -> Self:
        """Return strings, which contain no lone surrogates."""
        encoded = [string.encode() for string in strings]
        return cls(b"".join(encoded), np.cumsum(np.fromiter(map(len, encoded), np.int64, len(encoded))))

    @classmethod
    def concatenate(cls, parts: Sequence[Self]) -> Self:
        """Return the strings of all parts."""
        shifts = np.cumsum([0, *(len(part.data) for part in parts)])
        ends = [part.ends + shift for part, shift in zip(parts, shifts, strict=False)]
        return cls(b"".join(part.data for part in parts), np.concatenate([np.zeros(0, np.int64), *ends]))

    def at(self, position: int) -> str:
        """Return the string at a position, which is not negative."""
        start = int(self.ends[position - 1]) if position else 0
        return self.data[start : int(self.ends[position])].decode()

    def some(self, positions: NDArray[np.int64]) -> list[str]:
        """Return the strings at positions, none of which is negative."""
        starts = np.where(positions > 0, self.ends[positions - 1], 0).tolist()
        pairs = zip(starts, self.ends[positions].tolist(), strict=True)
        return [self.data[start:end].decode() for start, end in pairs]

    def to_list(self) -> list[str]:
        """Return all strings."""
        data, start, found = self.data, 0, []
        for end in self.ends.tolist():
            found.append(data[start:end].decode())
            start = end
        return found


class Origin(NamedTuple):
    """A file of records, or a stream."""

    name: str
    """As it begins the places of its records."""
    path: Path | None
    """None for standard input."""
    status: FileStatus | None
    """The status when it was opened; None for standard input, pipes and devices."""


def spell_places(
    names: Iterable[str], origin: NDArray[np.int64], line: NDArray[np.int64], origins: Sequence[Origin]
) -> list[str]:
    """Return where documents were read, given their columns."""
    columns = zip(names, origin.tolist(), line.tolist(), strict=True)
    return [printable(name) if of < 0 else f"{origins[of].name}:{number}" for name, of, number in columns]


def read_digests(digests: Iterable[str]) -> NDArray[np.void]:
    """Return digests of 32 hexadecimal digits as a column."""
    return np.frombuffer(bytes.fromhex("".join(digests)), dtype=DIGEST)


def spell_digests(digests: NDArray[np.void]) -> list[str]:
    """Return digests as 32 hexadecimal digits each."""
    digits = digests.tobytes().hex()
    return [digits[start : start + 32] for start in range(0, len(digits), 32)]


class Columns(NamedTuple):
    """Documents in the order of reading, one for each position of each column.

    The documents of a run are numbered from 0 in this order; that is their ordinal.
    """

    names: Strings
    origin: NDArray[np.int64]
    """The number of the `Origin` of a record; -1 for a file that is one document, whose name says where it is."""
    line: NDArray[np.int64]
    """The line of a record; 0 for a file that is one document."""
    identity: NDArray[np.void]
    """Digests, which are distinct within a file."""
    text_digest: NDArray[np.void]
    characters: NDArray[np.int64]
    values: Strings
    valued: NDArray[np.bool_]
    """Whether a document has a value, which is not empty then."""
    protected: NDArray[np.bool_]
    """Whether the rules protect a document: it is never dropped."""
    known: NDArray[np.bool_]
    """Whether the table had this text of this document at the look-up. Then the columns below are empty."""
    fingerprint: Fingerprints
    sketch: Fingerprints
    token_start: NDArray[np.int64]
    """Where the tokens of a document begin in the spool, in tokens; 0 if tokens are not wanted."""
    token_count: NDArray[np.int64]
    token_digest: NDArray[np.void]
    """Documents with the same sequence of tokens have the same."""
    text_start: NDArray[np.int64]
    """Where the text of a document begins in the spool, in bytes; 0 if texts are not wanted."""
    text_size: NDArray[np.int64]
    """Bytes in the spool. A known document has a text, too."""

    @classmethod
    def concatenate(cls, parts: Sequence[Self]) -> Self:
        """Return the documents of all parts, of which there is at least one."""
        return cls(*(_concatenate(column) for column in zip(*parts, strict=True)))


def _concatenate(columns: Sequence[Any]) -> Any:
    if isinstance(columns[0], Strings):
        return Strings.concatenate(columns)
    if isinstance(columns[0], np.ma.MaskedArray):
        values = np.concatenate([column.data for column in columns])
        return np.ma.MaskedArray(values, np.concatenate([np.ma.getmaskarray(column) for column in columns]))
    return np.concatenate(columns)
