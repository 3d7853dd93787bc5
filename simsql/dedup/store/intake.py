"""Turn documents into rows for the database: digest them, and fingerprint new texts."""

from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

import numpy as np

from simsql.database import to_bigints
from simsql.dedup.safety.identity import Identities, digest_text
from simsql.dedup.store.table import StagedDocument
from simsql.documents import Document, Skip, SkipCount, without_words
from simsql.documents.spool import TextSpool, TokenSpool
from simsql.fingerprint import Recipe, simhash_items, simhash_items_with_tokens

_LOOK_UP = 500  # documents that are looked up in the table at once
_LOOK_UP_CHARACTERS = 1 << 22

FindKnown = Callable[[Sequence[tuple[str, str]]], set[tuple[str, str]]]


class Intake:
    """Documents of a reader as rows for `DocumentStore.stage`; iterate over it once.

    `find_known` returns the digests (of identity, text) that the table already has. These documents are not
    fingerprinted again. The tokens of the others go to `tokens` and, with `keep_tokens`, into the rows. All texts
    go to `texts`.
    `skips` counts the skips of the reader, and `wordless` the texts without a fingerprint.
    """

    def __init__(
        self,
        source: Iterable[Document | Skip],
        *,
        find_known: FindKnown | None,
        recipe: Recipe,
        workers: int | None,
        skips: SkipCount,
        tokens: TokenSpool | None,
        keep_tokens: bool,
        texts: TextSpool | None = None,
    ) -> None:
        self.read = 0
        self.valued = 0
        """Number of documents with a value."""
        self.ordinals = array("q")
        """The position in the order of reading of each document in `tokens`."""
        self._source = source
        self._find_known = find_known
        self._recipe = recipe
        self._workers = workers
        self._skips = skips
        self._tokens = tokens
        self._keep_tokens = keep_tokens
        self._texts = texts
        self.wordless = SkipCount()
        self.identities = Identities()
        self._known: deque[StagedDocument] = deque()

    def __iter__(self) -> Iterator[StagedDocument]:
        for documents in self._fingerprint():
            for document in documents:
                if document.fingerprint is None:
                    self.wordless.add(without_words(document.place))
                yield document
            while self._known:
                yield self._known.popleft()
        yield from self._known

    def _fingerprint(self) -> Iterator[Iterable[StagedDocument]]:
        """Yield batches of the unknown documents with their fingerprints, and spool their tokens."""
        if self._tokens is None:
            for rows, fingerprints in simhash_items(self._unknown(), self._recipe, self._workers):
                pairs = zip(rows, to_bigints(fingerprints), strict=True)
                yield (row._replace(fingerprint=fingerprint) for row, fingerprint in pairs)
            return
        for rows, fingerprints, tokens in simhash_items_with_tokens(self._unknown(), self._recipe, self._workers):
            digests = self._tokens.append(tokens)
            self.ordinals.extend(row.ordinal for row in rows)
            pairs = zip(rows, to_bigints(fingerprints), strict=True)
            if not self._keep_tokens:
                yield (row._replace(fingerprint=fingerprint) for row, fingerprint in pairs)
                continue
            ends = np.cumsum(tokens.counts)
            packed = [part.astype("<u8").tobytes() for part in np.split(tokens.hashes, ends[:-1])]
            yield (
                row._replace(
                    fingerprint=fingerprint,
                    words=words,
                    words_digest=digest.tobytes().hex() if words else None,
                )
                for (row, fingerprint), words, digest in zip(pairs, packed, digests, strict=True)
            )

    def _unknown(self) -> Iterator[tuple[StagedDocument, str]]:
        """Yield the documents to fingerprint, with their texts. Put the others into `_known`."""
        documents = self._digest()
        while batch := deque(_take(documents)):
            known = set()
            if self._find_known:
                known = self._find_known([(row.identity, row.text_digest) for row, _ in batch])
            while batch:
                row, text = batch.popleft()
                if (row.identity, row.text_digest) in known:
                    self._known.append(row._replace(known=True))
                else:
                    yield row, text
                del text  # a long one is not kept while the next one is read

    def _digest(self) -> Iterator[tuple[StagedDocument, str]]:
        for item in self._source:
            if isinstance(item, Skip):
                self._skips.add(item)
                continue
            row = StagedDocument(
                self.read,
                item.name,
                self.identities.identify(item),
                item.place,
                item.line,
                digest_text(item.text),
                len(item.text),
                None,
                value=item.value,
            )
            self.read += 1
            self.valued += item.value is not None
            if self._texts:
                self._texts.append(item.text)
            yield row, item.text
            del item  # see _unknown


def _take(documents: Iterator[tuple[StagedDocument, str]]) -> Iterator[tuple[StagedDocument, str]]:
    """Yield documents until a limit of documents or of characters is reached."""
    characters = 0
    for row, text in islice(documents, _LOOK_UP):
        characters += len(text)
        yield row, text
        del text  # see _unknown
        if characters > _LOOK_UP_CHARACTERS:
            return
