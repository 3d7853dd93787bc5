"""Refuse to drop documents where that could remove the only copy of a text.

The decisions are about what the run has read. Since then, somebody may have changed a file.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice

from simsql.dedup.safety.confirming import Confirmer, Location
from simsql.dedup.store.store import StoredDocument
from simsql.documents import Skip

_AT_ONCE = 1_000  # pairs of documents, which fit the cache


def refuse_drops(
    read_clusters: Callable[[], Iterable[Sequence[StoredDocument]]], confirmer: Confirmer
) -> dict[int, Skip]:
    """Return why documents of this run must not be dropped now, by id.

    Such a document is not there as it was read, or the one that is kept in its favour is not, or both are in the
    same file.
    """
    confirmer.refresh(document.reference for pair in _dropped(read_clusters()) for document in pair)
    refused = {}
    pairs = _dropped(read_clusters())
    while some := list(islice(pairs, _AT_ONCE)):
        present = {document.id: document for pair in some for document in pair if document.present}
        located = confirmer.locate(document.reference for document in present.values())
        for dropped, kept in some:
            if reason := _reason(dropped, kept, located, confirmer):
                refused[dropped.id] = Skip(dropped.place, *reason)
    return refused


def _reason(
    dropped: StoredDocument, kept: StoredDocument, located: Mapping[int, Location], confirmer: Confirmer
) -> tuple[str, str] | None:
    """Return why a document must not be dropped, in short and in full; None if it may be."""
    place, place_of_kept = located.get(dropped.id), located.get(kept.id)
    if place and place_of_kept:
        apart = not place.overlaps(place_of_kept)
        if apart and not confirmer.holds_records(place) and not confirmer.holds_records(place_of_kept):
            return None
    which = f"{kept.place}, which is kept in its favour,"
    if not kept.present:
        return "kept text not read", f"{which} came from standard input in an earlier run"
    if not place_of_kept:
        return "changed", f"{which} has changed since this run read it: run again"
    if not place:
        return "changed", "it has changed since this run read it: run again"
    if not place.overlaps(place_of_kept) and not confirmer.holds_records(place):
        return "same file", f"{which} is also read as records, which could be dropped"
    return "same file", f"{which} is in the same file"


def _dropped(clusters: Iterable[Sequence[StoredDocument]]) -> Iterator[tuple[StoredDocument, StoredDocument]]:
    """Yield the dropped documents that this run has read, each with the one that is kept in its favour."""
    for documents in clusters:
        by_id = {document.id: document for document in documents}
        for document in documents:
            if document.kept != document.id and document.seen:
                yield document, by_id[document.kept]
