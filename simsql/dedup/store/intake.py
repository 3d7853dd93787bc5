"""Take documents into the store: digest them, and fingerprint new texts."""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simsql.dedup.safety.identity import Identities, digest_text, file_of
from simsql.dedup.store.columns import DIGEST, Columns, Origin, Strings, read_digests, spell_places
from simsql.dedup.store.store import Loaded, Store
from simsql.documents import NO_WORDS, Document, DocumentReader, Report, Skip, SkipCount, Stages
from simsql.documents.spool import TextSpool, TokenSpool
from simsql.errors import SimsqlError
from simsql.fingerprint import Fingerprints, TokenLists, simhash_items, simhash_items_with_tokens

_LOOK_UP = 500  # documents that are looked up in the store at once
_LOOK_UP_CHARACTERS = 1 << 22


class _ReadDocument(NamedTuple):
    """A document without its text: see `Columns`."""

    name: str
    origin: int
    line: int
    identity: str
    text_digest: str
    characters: int
    value: str | None
    text_start: int
    text_size: int
    known: bool = False


class Intake:
    """Takes the documents of a reader into the store.

    Documents that the store has with this text are not fingerprinted again. The tokens of the others go to
    `tokens`, all texts to `texts`.
    """

    def __init__(
        self,
        store: Store,
        reader: DocumentReader,
        *,
        workers: int | None,
        tokens: TokenSpool | None,
        texts: TextSpool | None,
    ) -> None:
        self.read = 0
        """Number of documents."""
        self.valued = 0
        """Number of documents with a value."""
        self.wordless = SkipCount()
        """The texts without a fingerprint."""
        self.identities = Identities()
        self._origins: list[Origin] = []
        self._tokens = tokens
        self._store = store
        self._reader = reader
        self._workers = workers
        self._texts = texts
        self._rest: list[_ReadDocument] = []
        """The last documents, if the store has them."""

    def take_in(self, stages: Stages) -> Loaded:
        """Update the store with the documents, and return the counts of changes.

        Raises SimsqlError if there are no documents in the files or the store, or none has the field that decides.
        """
        with stages.stage("read and fingerprint", self._reader.bytes_total) as report:
            self._store.take(self._batches(report), self._origins, self._tokens)
        if not self.read and not self._store.holds_documents:
            raise SimsqlError(self._reader.nothing_found())
        field = self._store.rules.keep_field
        if self.read and not self.valued and field is not None:
            raise SimsqlError(f"no document has a field {field!r}: choose with --keep-field")
        with stages.stage("load"):
            return self._store.merge(self._reader.skips.add)

    def _batches(self, report: Report) -> Iterator[Columns]:
        """Yield the documents, count the wordless ones, and spool the tokens."""
        for groups, fingerprints, tokens, sketches in self._fingerprint(self._unknown(report)):
            batch = self._columns(list(chain.from_iterable(groups)), fingerprints, tokens, sketches)
            (wordless,) = np.nonzero(np.ma.getmaskarray(batch.fingerprint) & ~batch.known)
            names = batch.names.some(wordless)
            places = spell_places(names, batch.origin[wordless], batch.line[wordless], self._origins)
            for place in places:
                why = "a text without letters, digits or emoji has no fingerprint"
                self.wordless.add(Skip(place, NO_WORDS, why))
            yield batch
        if self._rest:
            tokens, numbers = _no_tokens(0)
            yield self._columns(self._rest, numbers, tokens, numbers)

    def _columns(
        self,
        documents: Sequence[_ReadDocument],
        fingerprints: Fingerprints,
        tokens: TokenLists,
        sketches: Fingerprints,
    ) -> Columns:
        """Return documents, given what was computed for those that are not known. Spool the tokens."""
        names, origins, lines, identities, texts, characters, values, starts, sizes, known = zip(
            *documents, strict=True
        )
        new = ~np.array(known)
        digests = np.zeros(len(tokens.counts), dtype=DIGEST)
        token_starts = np.zeros(len(tokens.counts), dtype=np.int64)
        if self._tokens is not None:
            token_starts = self._tokens.end + np.cumsum(tokens.counts) - tokens.counts
            digests = self._tokens.append(tokens)
        valued = np.array([value is not None for value in values])
        return Columns(
            Strings.of(names),
            np.array(origins),
            np.array(lines),
            read_digests(identities),
            read_digests(texts),
            np.array(characters),
            Strings.of(value or "" for value in values),
            valued,
            ~new,
            _spread_masked(fingerprints, new),
            _spread_masked(sketches, new),
            _spread(token_starts, new),
            _spread(tokens.counts, new),
            _spread(digests, new),
            np.array(starts),
            np.array(sizes),
        )

    def _fingerprint(
        self, unknown: Iterable[tuple[list[_ReadDocument], str]]
    ) -> Iterator[tuple[list[list[_ReadDocument]], Fingerprints, TokenLists, Fingerprints]]:
        """Yield groups of documents, with the fingerprint, tokens and sketch of the last one of each."""
        if self._tokens is None:
            for groups, fingerprints in simhash_items(unknown, self._store.recipe, self._workers):
                yield groups, fingerprints, *_no_tokens(len(groups))
        else:
            yield from simhash_items_with_tokens(unknown, self._store.recipe, self._workers)

    def _unknown(self, report: Report) -> Iterator[tuple[list[_ReadDocument], str]]:
        """Yield groups of documents, of which the last one is to be fingerprinted, with its text."""
        group: list[_ReadDocument] = []
        documents = self._digest(report)
        while batch := deque(_take(documents)):
            known = np.zeros(len(batch), dtype=bool)
            if self._store.holds_documents:
                identities = read_digests(document.identity for document, _ in batch)
                texts = read_digests(document.text_digest for document, _ in batch)
                known = self._store.find_known(identities, texts)
            for is_known in known.tolist():
                document, text = batch.popleft()
                if is_known:
                    group.append(document._replace(known=True))
                else:
                    yield [*group, document], text
                    group = []
                del text  # a long one is not kept while the next one is read
        self._rest = group

    def _digest(self, report: Report) -> Iterator[tuple[_ReadDocument, str]]:
        for item in self._reader.documents(report):
            identity = self.identities.identify(item)
            document = _ReadDocument(
                item.name,
                self._origin_of(item),
                item.line or 0,
                identity,
                digest_text(item.text),
                len(item.text),
                item.value,
                *(self._texts.append(item.text) if self._texts else (0, 0)),
            )
            self.read += 1
            self.valued += item.value is not None
            yield document, item.text
            del item  # see _unknown

    def _origin_of(self, item: Document) -> int:
        if item.line is None:
            return -1
        last = self._origins[-1] if self._origins else None
        if last is None or last.path is not item.path:
            self._origins.append(Origin(file_of(item.place, item.line), item.path, self.identities.status))
        return len(self._origins) - 1


def _take(documents: Iterator[tuple[_ReadDocument, str]]) -> Iterator[tuple[_ReadDocument, str]]:
    """Yield documents until a limit of documents or of characters is reached."""
    characters = 0
    for document, text in islice(documents, _LOOK_UP):
        characters += len(text)
        yield document, text
        del text  # see _unknown
        if characters > _LOOK_UP_CHARACTERS:
            return


def _no_tokens(documents: int) -> tuple[TokenLists, Fingerprints]:
    """Return no tokens and no numbers for documents."""
    counts = np.zeros(documents, dtype=np.int64)
    numbers = np.ma.MaskedArray(np.zeros(documents, dtype=np.uint64), np.ones(documents, dtype=bool))
    return TokenLists(np.zeros(0, dtype=np.uint64), counts), numbers


def _spread(values: NDArray[Any], chosen: NDArray[np.bool_]) -> NDArray[Any]:
    """Return the values at the chosen positions, zeros at the others."""
    spread = np.zeros(len(chosen), dtype=values.dtype)
    spread[chosen] = values
    return spread


def _spread_masked(values: Fingerprints, chosen: NDArray[np.bool_]) -> Fingerprints:
    masked = np.ones(len(chosen), dtype=bool)
    masked[chosen] = np.ma.getmaskarray(values)
    return np.ma.MaskedArray(_spread(values.data, chosen), masked)
