"""Take documents into the table: digest them, fingerprint new texts, and merge them."""

from array import array
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice

import numpy as np

from simsql.database.transfer import to_bigints
from simsql.dedup.safety.identity import Identities, digest_text
from simsql.dedup.store.merging import Loaded, drop_duplicates, find_known, merge, stage
from simsql.dedup.store.table import DocumentStore, StagedDocument
from simsql.documents import (
    NO_WORDS,
    READ_TWICE,
    DocumentReader,
    Report,
    Skip,
    SkipCount,
    Stages,
)
from simsql.documents.spool import TextSpool, TokenSpool
from simsql.errors import SimsqlError
from simsql.fingerprint import simhash_items, simhash_items_with_tokens

_LOOK_UP = 500  # documents that are looked up in the table at once
_LOOK_UP_CHARACTERS = 1 << 22


class Intake:
    """Takes the documents of a reader into the table.

    Documents that the table has with this text are not fingerprinted again. The tokens of the others go to
    `tokens` and, if the table is kept, into the rows. All texts go to `texts`.
    """

    def __init__(
        self,
        store: DocumentStore,
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
        self.ordinals = array("q")
        """The position in the order of reading of each document in `tokens`."""
        self.identities = Identities()
        self.tokens = tokens
        self._store = store
        self._reader = reader
        self._workers = workers
        self._texts = texts
        self._known: deque[StagedDocument] = deque()

    def take_in(self, stages: Stages) -> Loaded:
        """Update the table with the documents, and return the counts of changes.

        Raises SimsqlError if there are no documents in the files or the table, or none has the field that decides.
        """
        with stages.stage("read and fingerprint", self._reader.bytes_total) as report:
            stage(self._store, self._rows(report))
        if not self.read and not self._store.holds_documents:
            raise SimsqlError(self._reader.nothing_found())
        field = self._store.rules.keep_field
        if self.read and not self.valued and field is not None:
            raise SimsqlError(f"no document has a field {field!r}: choose with --keep-field")
        with stages.stage("load"):
            for place, first in drop_duplicates(self._store):
                self._reader.skips.add(Skip(place, READ_TWICE, f"the same document was already read at {first}"))
            return merge(self._store)

    def _rows(self, report: Report) -> Iterator[StagedDocument]:
        for documents in self._fingerprint(self._unknown(report)):
            for document in documents:
                if document.fingerprint is None:
                    why = "a text without letters, digits or emoji has no fingerprint"
                    self.wordless.add(Skip(document.place, NO_WORDS, why))
                yield document
            while self._known:
                yield self._known.popleft()
        yield from self._known

    def _fingerprint(self, unknown: Iterable[tuple[StagedDocument, str]]) -> Iterator[Iterable[StagedDocument]]:
        """Yield batches of the unknown documents with their fingerprints, and spool their tokens."""
        if self.tokens is None:
            for rows, fingerprints in simhash_items(unknown, self._store.recipe, self._workers):
                pairs = zip(rows, to_bigints(fingerprints), strict=True)
                yield (row._replace(fingerprint=fingerprint) for row, fingerprint in pairs)
            return
        for rows, fingerprints, tokens, _ in simhash_items_with_tokens(unknown, self._store.recipe, self._workers):
            digests = self.tokens.append(tokens)
            self.ordinals.extend(row.ordinal for row in rows)
            pairs = zip(rows, to_bigints(fingerprints), strict=True)
            if not self._store.kept:
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

    def _unknown(self, report: Report) -> Iterator[tuple[StagedDocument, str]]:
        """Yield the documents to fingerprint, with their texts. Put the others into `_known`."""
        documents = self._digest(report)
        look_up = find_known(self._store) if self._store.holds_documents else None
        while batch := deque(_take(documents)):
            known = look_up([(row.identity, row.text_digest) for row, _ in batch]) if look_up else set()
            while batch:
                row, text = batch.popleft()
                if (row.identity, row.text_digest) in known:
                    self._known.append(row._replace(known=True))
                else:
                    yield row, text
                del text  # a long one is not kept while the next one is read

    def _digest(self, report: Report) -> Iterator[tuple[StagedDocument, str]]:
        for item in self._reader.documents(report):
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
