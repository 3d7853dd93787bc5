"""Take documents into the store, from parts of the input that several processes digest."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice

import numpy as np

from simsql.dedup.safety.identity import Identities, RecordFile, digest_text
from simsql.dedup.store.columns import Columns, read_digests
from simsql.dedup.store.digesting import Digested, Digester, LookedUp
from simsql.dedup.store.settling import SettledIdentities
from simsql.dedup.store.store import Loaded, Store
from simsql.documents import Document, DocumentReader, Report, SkipCount, Stages, name_paths
from simsql.documents.parquet import RowGroups
from simsql.documents.parts import PART, Part, gather
from simsql.documents.ranges import Range
from simsql.documents.spool import TextSpool, TokenSpool
from simsql.errors import SimsqlError
from simsql.fingerprint import map_in_processes

_ALONE = 8
"""Parts that one process digests in the time that other processes take to start."""


class Intake:
    """Takes the documents of a reader into the store.

    Documents that the store has with this text are not fingerprinted again. The tokens of the others go to
    `tokens`, all texts to `texts`. `check` gets all documents, and may raise SimsqlError.
    """

    def __init__(
        self,
        store: Store,
        reader: DocumentReader,
        *,
        workers: int | None,
        tokens: TokenSpool | None,
        texts: TextSpool | None,
        check: Callable[[Columns], None] | None = None,
    ) -> None:
        self.read = 0
        """Number of documents."""
        self.valued = 0
        """Number of documents with a value."""
        self.protected = 0
        """Number of documents that are never dropped."""
        self.wordless = SkipCount()
        """The texts without a fingerprint."""
        self._identities = SettledIdentities()
        self._store = store
        self._reader = reader
        self._workers = workers or 1
        self._tokens = tokens
        self._check = check
        self._digest = Digester(store.recipe, store.rules, tokens, texts)

    @property
    def files(self) -> dict[str, RecordFile]:
        """The files of records by their names, as in places. Streams are not among them."""
        origins = self._identities.origins
        return {name: RecordFile(path, status) for name, path, status in origins if path and status}

    def take_in(self, stages: Stages) -> Loaded:
        """Update the store with the documents, and return the counts of changes.

        Raises SimsqlError if there are no documents in the files or the store, or none has the field that decides.
        """
        with stages.stage("read and fingerprint", self._reader.bytes_total) as report:
            self._store.take(self._batches(report), self._identities.origins, self._tokens)
        if not self.read and not self._store.holds_documents:
            raise SimsqlError(self._reader.nothing_found())
        field = self._store.rules.keep_field
        if self.read and not self.valued and field is not None:
            raise SimsqlError(f"no document has a field {field!r}: choose with --keep-field")
        under = self._store.rules.keep_under
        if under and not self.protected and not self._store.holds_documents:
            raise SimsqlError(
                f"no document that was read is below {name_paths(under)}: name a folder with documents; that of"
                " --keep-under has to be among the paths to read, too"
            )
        return self._store.merge(stages, self._reader.skips.add)

    def _batches(self, report: Report) -> Iterator[Columns]:
        done = 0
        for found in self._digested():
            done += found.size
            report(done)
            self._reader.skips.add_all(found.skips)
            self._reader.skips.read.update(origin.name for origin in found.origins)
            self.wordless.add_all(found.wordless)
            columns = self._identities.settle(found)
            if self._check:
                self._check(columns)
            if number := len(columns.line):
                self.read += number
                self.valued += int(np.count_nonzero(columns.valued))
                self.protected += int(np.count_nonzero(columns.protected))
                yield columns

    def _digested(self) -> Iterator[Digested]:
        parts: Iterator[Part] = self._reader.parts()
        if self._store.holds_documents:
            parts = self._look_up(parts)
        # A stream may be slow, and is not waited for.
        begun = [] if self._reader.bytes_total is None else list(islice(parts, _ALONE))
        is_small = 0 < len(begun) < _ALONE
        parts = chain(begun, parts)
        del begun
        if self._workers == 1 or is_small:
            for part in parts:
                yield self._digest_here(part)
                del part
            return
        sent: deque[Range | RowGroups | None] = deque()

        def remember() -> Iterator[Part]:
            for part in parts:
                sent.append(part if isinstance(part, Range | RowGroups) else None)
                yield part
                del part

        for found in map_in_processes(self._digest, remember(), self._workers, _load):
            range_ = sent.popleft()
            if found is not None:
                yield found
            elif range_:  # nothing else can have moved
                yield self._digest_here(range_)

    def _digest_here(self, part: Part) -> Digested:
        found = self._digest(part)
        assert found  # noqa: S101 - the files are open in this process
        return found

    def _look_up(self, parts: Iterable[Part]) -> Iterator[LookedUp]:
        """Read parts, and ask the store which documents it has."""
        identities = Identities()
        for part in parts:
            left = part.size
            for items in gather(part.read()):
                documents = [item for item in items if isinstance(item, Document)]
                found = [identities.identify(document) for document in documents]
                digests = read_digests(digest_text(document.text) for document in documents)
                known = self._store.find_known(read_digests(found), digests).tolist() if documents else []
                yield LookedUp(items, found, known, left)
                left = 0
                del items, documents


def _load(part: Part) -> float:
    """Return the size of a part in memory, in parts: a long text takes as much as several parts."""
    return max(1, part.held / PART)
