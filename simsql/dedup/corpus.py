"""The documents of a job as columns: what decides about them, and how they are called.

A document takes about 150 bytes, and no Python object.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, Self

import numpy as np

from simsql.decide.documents import I64, U32, U64, Flags
from simsql.documents import Stages
from simsql.documents.spool import TokenSpool


class Strings(NamedTuple):
    """Strings, one after the other, with surrogates for bytes that are not UTF-8."""

    data: bytes
    ends: I64
    """The end of each string in `data`."""

    @classmethod
    def of(cls, strings: Iterable[str]) -> Self:
        """Return strings."""
        encoded = [string.encode("utf-8", "surrogateescape") for string in strings]
        return cls(b"".join(encoded), np.cumsum(np.fromiter(map(len, encoded), np.int64, len(encoded))))

    @classmethod
    def concatenate(cls, parts: Sequence[Self]) -> Self:
        """Return the strings of all parts."""
        shifts = np.cumsum([0, *(len(part.data) for part in parts)])
        ends = [part.ends + shift for part, shift in zip(parts, shifts, strict=False)]
        return cls(b"".join(part.data for part in parts), np.concatenate([np.zeros(0, np.int64), *ends]))

    def some(self, positions: I64) -> list[str]:
        """Return the strings at positions, none of which is negative."""
        starts = np.where(positions > 0, self.ends[positions - 1], 0).tolist()
        pairs = zip(starts, self.ends[positions].tolist(), strict=True)
        return [self.data[start:end].decode("utf-8", "surrogateescape") for start, end in pairs]


def concatenate(parts: Iterable[Any]) -> Any:
    """Return one tuple of columns for those of all parts, of which there is at least one."""
    columns = list(zip(*(parts := list(parts)), strict=True))
    return type(parts[0])(
        *(
            Strings.concatenate(column) if isinstance(column[0], Strings) else np.concatenate(column)
            for column in columns
        )
    )


class Features(NamedTuple):
    """What is computed from texts, one text per position of each column."""

    fingerprint: U64
    has_fingerprint: Flags
    sketch: U64
    bands: U32
    """The keys of its bands, a row for each text."""
    words: U64
    """The digests of the tokens: two numbers per text. The same sequence of tokens has the same."""
    token_start: I64
    """Where the tokens begin in the spool, in tokens."""
    token_count: I64
    """0 if tokens are not wanted."""


class Names(NamedTuple):
    """How some documents are called."""

    name: Sequence[str]
    place: Sequence[str]
    """Where it was read, as one printable line."""
    line: Sequence[int]
    """The line of a record; 0 for a whole file."""
    path: Sequence[str]
    """The file, with surrogates for bytes that are not UTF-8; empty for standard input."""
    shared: Sequence[bool]
    """Whether the name is also the name or the place of another document."""
    place_shared: Sequence[bool]
    """Whether the place is also the name or the place of another document."""

    def labels(self) -> list[str]:
        """Return each name or, if another document is called so, too, the place."""
        called = zip(self.name, self.place, self.shared, strict=True)
        return [place if shared else name for name, place, shared in called]


@dataclass(frozen=True)
class Corpus:
    """The documents of a job in the order of reading, one per array position."""

    features: Features
    characters: I64
    digests: I64
    """A row of `simsql.decide.kinds.digests_of` for each document."""
    criterion: I64
    """A number for each document, which is higher for those that the rules prefer."""
    order_by_name: Callable[[I64], I64]
    """Returns positions in the order of the names of their documents."""
    pictures: bool = False
    """Whether the texts are descriptions of pictures."""
    protected: Flags | None = None
    """Which documents are never dropped."""
    scope: I64 | None = None
    """The number of the scope of each document: only those of one scope are compared."""


class Source(Protocol):
    """Documents to decide about."""

    def read(self, tokens: TokenSpool, stages: Stages) -> Corpus:
        """Read the documents, and add their tokens to the spool."""

    def names(self, positions: I64) -> Names:
        """Return how the documents at these positions are called."""

    def find(self, name: str) -> int:
        """Return the position of a document. Raises UsageError if none is called so, or several are."""

    def why_undecided(self, position: int) -> str | None:  # noqa: ARG002
        """Return why nothing was decided about a document, as the end of a sentence; None by default."""
        return None
