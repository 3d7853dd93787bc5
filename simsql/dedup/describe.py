"""Turn parts of the input into columns, in any process: read them, and fingerprint their texts."""

import os
import stat
from array import array
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import NamedTuple, TypeVar

import numpy as np

from simsql.decide.documents import I64, U64, Flags
from simsql.decide.kinds import DIGESTS, digests_of
from simsql.decide.rules import Rules
from simsql.dedup.corpus import Features, Strings, concatenate
from simsql.documents import NO_WORDS, Document, Skip, SkipCount, storable
from simsql.documents.parts import Part
from simsql.documents.spool import TextSpool, TokenSpool, digest_tokens
from simsql.fingerprint import Minima, Recipe, count_pixels, map_items, simhash_items, simhash_items_with_tokens

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
    return np.frombuffer(b"".join(digests), ">u8").reshape(-1, 2).astype(np.uint64)


def describe_part(
    part: Part, recipe: Recipe, rules: Rules, tokens: TokenSpool | None, texts: TextSpool | None
) -> Described:
    """Return the documents of a part. Tokens and texts are wanted if there are spools, which processes share."""
    skips, wordless = SkipCount(), SkipCount()
    paths: list[str] = []
    statuses: list[tuple[int, ...]] = []
    ids: list[str] = []
    values: list[str] = []
    scopes: list[str] = []
    numbers = array("q")  # file, line, characters, start and size of the text, digests
    parts = [no_features(0)]
    current: object = part
    named = ""  # the current file, in the names of records without an id

    def items() -> Iterator[tuple[Document, str]]:
        for item in skips.documents(part.read()):
            yield item, item.text
            del item  # a long text is not kept while the next one is read

    for documents, features in describe_texts(items(), recipe, rules, tokens):
        parts.append(features)
        for name, text, _, _, line, path, status, _, _ in documents:
            if line is None or path is not current:
                current, named = path, storable(path) if path else "stdin"
                paths.append(os.fspath(path) if path else "")
                statuses.append(status_of(status))
            start, size = texts.add_text(text) if texts else (0, 0)
            characters = len(text)
            digests = digests_of(text, rules.protect)
            if recipe.of_pictures:  # the digits in their texts are no numbers
                digests = digests[0], digests[0], 0
                if status:  # of as many pixels, those in the larger file have lost less
                    characters = count_pixels(text) << 32 | min(status.st_size, 2**32 - 1)
            numbers.extend((len(paths) - 1, line or 0, characters, start, size, *digests))
            ids.append("" if line is None or name == f"{named}:{line}" else name)
        by_field = rules.keep_field is not None
        found = [item.values or ("",) * len(rules.fields) for item in documents]
        values += [each[0] if by_field else "" for each in found]
        scopes += ["\0".join(each[by_field:]) for each in found]
        for position in [] if recipe.of_pictures else np.flatnonzero(~features.has_fingerprint).tolist():
            reason = "a text without letters, digits or emoji has no fingerprint"
            wordless.add(Skip(documents[position].place, NO_WORDS, reason))
        del documents, text
    by_column = np.frombuffer(numbers, dtype=np.int64).reshape(-1, 5 + DIGESTS).T
    strings = map(Strings.of, (ids, values, scopes))
    return Described(
        Files(Strings.of(paths), np.array(statuses, dtype=np.int64).reshape(-1, _STATUS)),
        Columns._make([*by_column[:2], *strings, by_column[2], by_column[5:].T, *by_column[3:5]]),
        concatenate(parts),
        skips,
        wordless,
        part.size,
    )
