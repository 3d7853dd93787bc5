"""Turn a part of the input into columns, in any process: read it, digest it, fingerprint it."""

from array import array
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simsql.decide.criteria import value_of_file
from simsql.decide.rules import Rules
from simsql.dedup.safety.identity import (
    digest_text,
    file_of,
    first_identity,
    hash_key,
    real_path,
    status_of_file,
)
from simsql.dedup.store.columns import DIGEST, Columns, Origin, Strings, read_digests
from simsql.documents import FLAT, NO_WORDS, Document, Skip, SkipCount, printable, storable
from simsql.documents.parts import Part
from simsql.documents.ranges import MovedError
from simsql.documents.spool import TextSpool, TokenSpool, digest_tokens
from simsql.fingerprint import Fingerprints, Recipe, count_pixels, simhash_items, simhash_items_with_tokens

_DIGESTED = 1 << 20  # characters: a longer text is not encoded as a whole


class Digested(NamedTuple):
    """A part of the input. Its origins are numbered from 0."""

    columns: Columns
    """The identities are those of documents that no other document of the run resembles."""
    origins: list[Origin]
    files: list[bytes]
    """The real path of each origin; empty for streams."""
    labelled: NDArray[np.bool_]
    """Whether an earlier record may have the same identity."""
    skips: SkipCount
    wordless: SkipCount
    """Documents without a fingerprint."""
    size: int
    """Bytes on disk."""


class LookedUp(NamedTuple):
    """Documents whose identities are known, and whether the store has their texts."""

    items: list[Document | Skip]
    identities: list[str]
    known: list[bool]
    size: int

    @property
    def held(self) -> int:
        """Characters in memory."""
        return sum(len(item.text) for item in self.items if isinstance(item, Document))

    def read(self) -> Iterator[Document | Skip]:
        """Yield the documents, and what is skipped."""
        return iter(self.items)


class Digester:
    """Digests parts of the input. Tokens and texts are wanted if there are spools, which new processes share."""

    def __init__(self, recipe: Recipe, rules: Rules, tokens: TokenSpool | None, texts: TextSpool | None) -> None:
        self._recipe = recipe
        self._rules = rules
        self._tokens = tokens
        self._texts = texts

    def __call__(self, part: Part) -> Digested | None:
        """Return the documents of a part; None if this process cannot read it."""
        documents = _Documents(part, self._recipe, self._rules, self._texts)
        try:
            return documents.finish(list(self._fingerprint(documents.read())))
        except MovedError:
            return None

    def _fingerprint(self, items: Iterator[tuple[int, str]]) -> Iterator["_Fingerprinted"]:
        if self._tokens is None:
            for positions, fingerprints in simhash_items(items, self._recipe):
                nothing = np.zeros(len(positions), dtype=np.int64)
                sketches = np.ma.MaskedArray(
                    np.zeros(len(positions), np.uint64), mask=np.ones(len(positions), bool)
                )
                digests = np.zeros(len(positions), dtype=DIGEST)
                yield _Fingerprinted(positions, fingerprints, sketches, nothing, nothing, digests)
            return
        for positions, fingerprints, tokens, sketches in simhash_items_with_tokens(items, self._recipe):
            starts = self._tokens.add_tokens(tokens)
            digests = np.frombuffer(b"".join(digest_tokens(tokens)), dtype=DIGEST)
            yield _Fingerprinted(positions, fingerprints, sketches, starts, tokens.counts, digests)


class _Fingerprinted(NamedTuple):
    """What is computed from texts, which have these positions in a part."""

    positions: list[int]
    fingerprint: Fingerprints
    sketch: Fingerprints
    token_start: NDArray[np.int64]
    token_count: NDArray[np.int64]
    token_digest: NDArray[np.void]


class _Documents:
    """The documents of one part."""

    def __init__(self, part: Part, recipe: Recipe, rules: Rules, texts: TextSpool | None) -> None:
        self._part = part
        self._of_pictures = recipe.of_pictures
        self._rules = rules
        self._texts = texts
        self._skips = SkipCount()
        self._names: list[str] = []
        self._values: list[str | None] = []
        # Origin, line, characters, start and size of the text, whether an earlier record may have the identity,
        # whether the document is protected.
        self._numbers = array("q")
        self._identities: list[str] = []
        self._digests: list[str] = []
        self._origins: list[Origin] = []
        self._files: list[bytes] = []
        self._path: object = self
        self._of_file: tuple[str | None, bool] = None, False
        """What `_ask_rules` says about the current file of records."""

    def read(self) -> Iterator[tuple[int, str]]:
        """Yield the positions and the texts of the documents to fingerprint."""
        known = self._part.known if isinstance(self._part, LookedUp) else None
        for item in self._part.read():
            if isinstance(item, Skip):
                self._skips.add(item)
                continue
            self._skips.add_guess(item)
            position = len(self._names)
            self._add(item)
            if known is None or not known[position]:
                yield position, item.text
            del item  # a long text is not kept while the next one is read

    def _add(self, item: Document) -> None:
        name, text, place, value, line, path, *_ = item
        start = size = 0
        if len(text) > _DIGESTED:
            digest = digest_text(text)
            if self._texts:
                start, size = self._texts.add_text(text)
        else:
            data = text.encode("utf-8", "surrogatepass")
            digest = blake2b(data, digest_size=16).hexdigest()
            if self._texts:
                start, size = self._texts.add(data), len(data)
        origin, repeatable = -1, False
        if line is None:
            file = real_path(path or "")
            identity = hash_key(file)
            of_file = self._ask_rules(file, item)
        else:
            if path is not self._path:
                self._open(item)
            file, origin = self._files[-1], len(self._files) - 1
            label = None if name == place or printable(name) == place else name
            repeatable = label is not None or not file
            identity = first_identity(file, label, line, digest)
            of_file = self._of_file
        self._names.append(name)
        self._values.append(value or of_file[0])
        self._identities.append(identity)
        self._digests.append(digest)
        characters = count_pixels(text) if self._of_pictures else len(text)
        self._numbers.extend((origin, line or 0, characters, start, size, repeatable, of_file[1]))

    def _open(self, item: Document) -> None:
        self._path = item.path
        status = item.status and status_of_file(item.status)
        self._origins.append(Origin(file_of(item.place, item.line), item.path, status))
        self._files.append(real_path(item.path) if item.path and status else b"")
        self._of_file = self._ask_rules(self._files[-1], item)

    def _ask_rules(self, file: bytes, item: Document) -> tuple[str | None, bool]:
        """Return the value of a document, if its file decides, and whether it is protected."""
        if not self._rules.by_file:
            return None, False
        if not file or not item.status:
            # Not resolved: other processes do not have the pipes of this one.
            return None, self._rules.protects(storable(item.path.absolute()) if item.path else "-")
        path = file.decode("utf-8", "backslashreplace")  # as storable
        return value_of_file(self._rules.keep, path, item.status.st_mtime_ns), self._rules.protects(path)

    def finish(self, found: Sequence[_Fingerprinted]) -> Digested:
        """Return the columns, given what was computed from the texts."""
        origin, line, characters, start, size, repeatable, protected = (
            np.frombuffer(self._numbers, dtype=np.int64).reshape(-1, 7).T
        )
        known = np.zeros(len(line), dtype=bool)
        identities = self._identities
        if isinstance(self._part, LookedUp):
            known[:] = self._part.known
            identities = self._part.identities
            repeatable = np.zeros(len(line), dtype=np.int64)
        positions = np.array([position for some in found for position in some.positions], dtype=np.int64)

        def spread(name: str, kind: Any) -> NDArray[Any]:
            column = np.zeros(len(line), dtype=kind)
            parts = [np.ma.getdata(getattr(some, name)) for some in found]
            column[positions] = np.concatenate([np.zeros(0, dtype=kind), *parts])
            return column

        def spread_masked(name: str) -> Fingerprints:
            mask = np.ones(len(line), dtype=bool)
            parts = [np.ma.getmaskarray(getattr(some, name)) for some in found]
            mask[positions] = np.concatenate([np.zeros(0, dtype=bool), *parts])
            return np.ma.MaskedArray(spread(name, np.uint64), mask)

        columns = Columns(
            Strings.of(self._names),
            origin,
            line,
            read_digests(identities),
            read_digests(self._digests),
            characters,
            Strings.of(value or "" for value in self._values),
            np.array([value is not None for value in self._values], dtype=bool),
            protected.astype(bool),
            known,
            spread_masked("fingerprint"),
            spread_masked("sketch"),
            spread("token_start", np.int64),
            spread("token_count", np.int64),
            spread("token_digest", DIGEST),
            start,
            size,
        )
        wordless = SkipCount()
        reason = (
            (FLAT, "a picture of one colour has no fingerprint")
            if self._of_pictures
            else (NO_WORDS, "a text without letters, digits or emoji has no fingerprint")
        )
        for position in np.flatnonzero(columns.fingerprint.mask & ~known).tolist():
            name = self._names[position]
            file = int(origin[position])
            place = printable(name) if file < 0 else f"{self._origins[file].name}:{line[position]}"
            wordless.add(Skip(place, *reason))
        return Digested(
            columns, self._origins, self._files, repeatable.astype(bool), self._skips, wordless, self._part.size
        )
