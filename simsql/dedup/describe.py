"""Turn parts of the input into columns, in any process: read them, and fingerprint their texts."""

import os
import stat
from array import array
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np

from simsql.decide.documents import I64, U64, Flags
from simsql.decide.kinds import DIGESTS, digests_of
from simsql.decide.rules import Rules
from simsql.dedup.corpus import Features, Strings, concatenate
from simsql.documents import NO_WORDS, Document, Skip, SkipCount, storable
from simsql.documents.parts import Part
from simsql.documents.spool import TextSpool, TokenSpool, digest_tokens
from simsql.fingerprint import (
    Minima,
    Recipe,
    count_pixels,
    map_items,
    simhash_items,
    simhash_items_with_tokens,
)

Item = TypeVar("Item")

_STATUS = 5
_LATEST = 2**63 - 2  # nanoseconds
NO_STATUS = (-1,) * _STATUS
"""The status of streams."""


class Files(NamedTuple):
    """The files in which documents were read."""

    path: Strings
    """Empty for standard input."""
    status: I64
    """What `status_of` returned when the file was opened, a row for each."""


class Columns(NamedTuple):
    """Where documents were read, and what they are like."""

    file: I64
    """The number of the file."""
    line: I64
    """The line of a record; 0 for a file that is one document."""
    id: Strings
    """Empty for a document whose name is its place."""
    value: Strings
    """That of the field that decides which document is kept; empty without one."""
    scope: Strings
    """The other values, which documents must share to be compared, one after the other."""
    characters: I64
    digests: I64
    text_start: I64
    """Where the text begins in the spool, in bytes; 0 if texts are not wanted."""
    text_size: I64
    """Bytes in the spool."""


class Described(NamedTuple):
    """The documents of a part. Their files are numbered from 0."""

    files: Files
    columns: Columns
    features: Features
    skips: SkipCount
    wordless: SkipCount
    """Documents without a fingerprint."""
    size: int
    """Bytes on disk."""


def status_of(found: os.stat_result | None) -> tuple[int, ...]:
    """Return what changes when somebody writes to a file or replaces it; -1 for streams.

    The first two numbers are those of the device and of the inode. Times after 2262 count as 2262.
    """
    if not found or not stat.S_ISREG(found.st_mode):
        return NO_STATUS
    modified, changed = (max(-_LATEST, min(time, _LATEST)) for time in (found.st_mtime_ns, found.st_ctime_ns))
    return found.st_dev, found.st_ino % (1 << 63), found.st_size, modified, changed


def describe_texts(
    items: Iterable[tuple[Item, str]],
    recipe: Recipe,
    rules: Rules,
    spool: TokenSpool | None,
    workers: int | None = None,
) -> Iterator[tuple[list[Item], Features]]:
    """Yield batches of items, each with the columns of their texts.

    Tokens go to the spool. Without one, texts are not compared; with `rules.exact`, they are by digests of all
    their characters, unless empty.
    """
    if rules.exact:
        for rows, (words, filled) in map_items(_digest_characters, items):
            yield rows, no_features(len(rows))._replace(has_fingerprint=filled, words=words)
            del rows
    elif spool is None:
        for rows, values in simhash_items(items, recipe, workers):
            found = no_features(len(rows))
            yield rows, found._replace(fingerprint=values.data, has_fingerprint=~np.ma.getmaskarray(values))
            del rows
    else:
        for rows, values, tokens, minima in simhash_items_with_tokens(
            items, recipe, workers, features=rules.by_features
        ):
            words, starts = _numbers_of(digest_tokens(tokens)), spool.add_tokens(tokens)
            yield rows, Features(values.data, ~np.ma.getmaskarray(values), *minima, words, starts, tokens.counts)
            del rows


def no_features(texts: int) -> Features:
    """Return the columns of some texts of which nothing is known."""
    none = np.zeros(texts, dtype=np.int64)
    minima, words = Minima.none(texts), np.zeros((texts, 2), dtype=np.uint64)
    return Features(none.view(np.uint64), none.astype(bool), *minima, words, none, none)


def _digest_characters(texts: list[str]) -> tuple[U64, Flags]:
    encoded = (text.encode("utf-8", "surrogatepass") for text in texts)
    words = _numbers_of(blake2b(data, digest_size=16).digest() for data in encoded)
    return words, np.array(list(map(bool, texts)), dtype=bool)


def _numbers_of(digests: Iterable[bytes]) -> U64:
    """Return two numbers for each digest."""
    return np.frombuffer(b"".join(digests), ">u8").reshape(-1, 2).astype(np.uint64)


class Describer:
    """Describes parts. Tokens and texts are wanted if there are spools, which new processes share."""

    def __init__(self, recipe: Recipe, rules: Rules, tokens: TokenSpool | None, texts: TextSpool | None) -> None:
        self._recipe, self._rules = recipe, rules
        self._tokens = tokens
        self._texts = texts

    def __call__(self, part: Part) -> Described:
        """Return the documents of a part."""
        documents = _Documents(self._rules, self._texts, of_pictures=self._recipe.of_pictures)
        items = documents.read(part)
        for some, features in describe_texts(items, self._recipe, self._rules, self._tokens):
            documents.add(some, features)
            del some  # a long text is not kept while the next one is read
        return documents.finish(part.size)


class _Documents:
    """The documents of one part."""

    def __init__(self, rules: Rules, texts: TextSpool | None, *, of_pictures: bool) -> None:
        self.skips, self._wordless = SkipCount(), SkipCount()
        self._rules, self._texts = rules, texts
        self._of_pictures = of_pictures
        self._ids: list[str] = []
        self._values: list[str] = []
        self._scopes: list[str] = []
        self._numbers = array("q")  # file, line, characters, start and size of the text, digests
        self._features = [no_features(0)]
        self._paths: list[str] = []
        self._statuses: list[tuple[int, ...]] = []
        self._path: object = self
        self._name = ""
        """That of the current file, in the names of records without an id."""

    def read(self, part: Part) -> Iterator[tuple[Document, str]]:
        """Yield the documents, each with its text."""
        for item in self.skips.documents(part.read()):
            yield item, item.text
            del item

    def add(self, items: Sequence[Document], features: Features) -> None:
        """Add documents, given what was computed from their texts."""
        self._features.append(features)
        fields = [""] * len(self._rules.fields)
        extend, add_id = self._numbers.extend, self._ids.append
        for name, text, _, _, line, path, status, _, _ in items:
            if line is None or path is not self._path:
                self._open(path, status)
            start, size = self._texts.add_text(text) if self._texts else (0, 0)
            characters = len(text)
            digests = digests_of(text, self._rules.protect)
            if self._of_pictures:  # the digits in their texts are no numbers
                digests = digests[0], digests[0], 0
                if status:  # of as many pixels, those in the larger file have lost less
                    characters = count_pixels(text) << 32 | min(status.st_size, 2**32 - 1)
            extend((len(self._paths) - 1, line or 0, characters, start, size, *digests))
            add_id("" if line is None or name == f"{self._name}:{line}" else name)
        values = [item.values or fields for item in items]
        by_field = self._rules.keep_field is not None
        self._values += [each[0] for each in values] if by_field else [""] * len(items)
        self._scopes += ["\0".join(each[by_field:]) for each in values]
        without = [] if self._of_pictures else np.flatnonzero(~features.has_fingerprint).tolist()
        for position in without:
            reason = "a text without letters, digits or emoji has no fingerprint"
            self._wordless.add(Skip(items[position].place, NO_WORDS, reason))

    def _open(self, path: Path | None, status: os.stat_result | None) -> None:
        self._path = path
        self._name = storable(path) if path else "stdin"
        self._paths.append(os.fspath(path) if path else "")
        self._statuses.append(status_of(status))

    def finish(self, size: int) -> Described:
        """Return the columns of a part of this size in bytes."""
        numbers = np.frombuffer(self._numbers, dtype=np.int64).reshape(-1, 5 + DIGESTS).T
        file, line, characters, start, text_size = numbers[:5]
        ids, values, scopes = map(Strings.of, (self._ids, self._values, self._scopes))
        return Described(
            Files(Strings.of(self._paths), np.array(self._statuses, dtype=np.int64).reshape(-1, _STATUS)),
            Columns(file, line, ids, values, scopes, characters, numbers[5:].T, start, text_size),
            concatenate(self._features),
            self.skips,
            self._wordless,
            size,
        )
