"""Turn parts of the input into columns, in any process: read them, and fingerprint their texts."""

import os
import stat
from array import array
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import NamedTuple

import numpy as np

from simsql.decide.documents import I64
from simsql.decide.kinds import DIGESTS, digests_of
from simsql.decide.rules import Rules
from simsql.dedup.corpus import Features, Strings, concatenate
from simsql.documents import NO_WORDS, Document, Skip, SkipCount, storable
from simsql.documents.parts import Part
from simsql.documents.spool import TextSpool, TokenSpool, digest_tokens
from simsql.fingerprint import (
    Fingerprints,
    Minima,
    Recipe,
    TokenLists,
    count_pixels,
    simhash_items,
    simhash_items_with_tokens,
)

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


def features_of(fingerprints: Fingerprints, tokens: TokenLists, minima: Minima, spool: TokenSpool) -> Features:
    """Return the columns of some texts, and add their tokens to the spool."""
    words = np.frombuffer(b"".join(digest_tokens(tokens)), ">u8").reshape(-1, 2).astype(np.uint64)
    has_fingerprint = ~np.ma.getmaskarray(fingerprints)
    starts = spool.add_tokens(tokens)
    return Features(fingerprints.data, has_fingerprint, *minima, words, starts, tokens.counts)


def without_tokens(fingerprints: Fingerprints) -> Features:
    """Return the columns of some texts that are not compared."""
    none = np.zeros(len(fingerprints), dtype=np.int64)
    words = np.zeros((len(none), 2), dtype=np.uint64)
    has_fingerprint = ~np.ma.getmaskarray(fingerprints)
    return Features(fingerprints.data, has_fingerprint, *Minima.none(len(none)), words, none, none)


def digests_alone(texts: Iterable[str]) -> Features:
    """Return the columns of some texts that are compared by digests of all their characters, unless empty."""
    filled, digests = array("b"), bytearray()
    for text in texts:
        filled.append(bool(text))
        digests += blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
    some = without_tokens(np.ma.MaskedArray(np.zeros(len(filled), np.uint64), mask=~np.array(filled, dtype=bool)))
    return some._replace(words=np.frombuffer(digests, ">u8").reshape(-1, 2).astype(np.uint64))


class Describer:
    """Describes parts. Tokens and texts are wanted if there are spools, which new processes share."""

    def __init__(self, recipe: Recipe, rules: Rules, tokens: TokenSpool | None, texts: TextSpool | None) -> None:
        self._recipe, self._rules = recipe, rules
        self._tokens = tokens
        self._texts = texts

    def __call__(self, part: Part) -> Described:
        """Return the documents of a part."""
        documents = _Documents(part, self._rules, self._texts, of_pictures=self._recipe.of_pictures)
        return documents.finish([without_tokens(np.ma.zeros(0, np.uint64)), *self._features(documents.read())])

    def _features(self, items: Iterator[tuple[None, str]]) -> Iterator[Features]:
        if self._rules.exact:
            yield digests_alone(text for _, text in items)
            return
        if self._tokens is None:
            for _, fingerprints in simhash_items(items, self._recipe):
                yield without_tokens(fingerprints)
            return
        found = simhash_items_with_tokens(items, self._recipe, features=self._rules.by_features)
        for _, fingerprints, tokens, minima in found:
            yield features_of(fingerprints, tokens, minima, self._tokens)


class _Documents:
    """The documents of one part."""

    def __init__(self, part: Part, rules: Rules, texts: TextSpool | None, *, of_pictures: bool) -> None:
        self._part, self._rules = part, rules
        self._texts = texts
        self._of_pictures = of_pictures
        self._skips = SkipCount()
        self._ids: list[str] = []
        self._values: list[str] = []
        self._scopes: list[str] = []
        self._places: list[str] = []
        self._numbers = array("q")  # file, line, characters, start and size of the text, digests
        self._paths: list[str] = []
        self._statuses: list[tuple[int, ...]] = []
        self._path: object = self
        self._name = ""
        """That of the current file, in the names of records without an id."""

    def read(self) -> Iterator[tuple[None, str]]:
        """Yield the texts, each with None."""
        for item in self._skips.documents(self._part.read()):
            self._add(item)
            yield None, item.text
            del item  # a long text is not kept while the next one is read

    def _add(self, item: Document) -> None:
        if item.line is None or item.path is not self._path:
            self._open(item)
        start, size = self._texts.add_text(item.text) if self._texts else (0, 0)
        characters = len(item.text)
        if self._of_pictures and item.status:  # of as many pixels, those in the larger file have lost less
            characters = count_pixels(item.text) << 32 | min(item.status.st_size, 2**32 - 1)
        digests = digests_of(item.text, self._rules.protect)
        if self._of_pictures:  # the digits in their texts are no numbers
            digests = digests[0], digests[0], 0
        self._numbers.extend((len(self._paths) - 1, item.line or 0, characters, start, size, *digests))
        has_id = item.line is not None and item.name != f"{self._name}:{item.line}"
        self._ids.append(item.name if has_id else "")
        values = item.values or [""] * len(self._rules.fields)
        value, *scope = values if self._rules.keep_field else ("", *values)
        self._values.append(value)
        self._scopes.append("\0".join(scope))
        self._places.append(item.place)

    def _open(self, item: Document) -> None:
        self._path = item.path
        self._name = storable(item.path) if item.path else "stdin"
        self._paths.append(os.fspath(item.path) if item.path else "")
        self._statuses.append(status_of(item.status))

    def finish(self, found: list[Features]) -> Described:
        """Return the columns, given what was computed from the texts."""
        numbers = np.frombuffer(self._numbers, dtype=np.int64).reshape(-1, 5 + DIGESTS).T
        file, line, characters, start, size = numbers[:5]
        features: Features = concatenate(found)
        wordless = SkipCount()
        reason = "a text without letters, digits or emoji has no fingerprint"
        without = [] if self._of_pictures else np.flatnonzero(~features.has_fingerprint).tolist()
        for position in without:
            wordless.add(Skip(self._places[position], NO_WORDS, reason))
        statuses = np.array(self._statuses, dtype=np.int64).reshape(-1, _STATUS)
        ids, values, scopes = map(Strings.of, (self._ids, self._values, self._scopes))
        return Described(
            Files(Strings.of(self._paths), statuses),
            Columns(file, line, ids, values, scopes, characters, numbers[5:].T, start, size),
            features,
            self._skips,
            wordless,
            self._part.size,
        )
