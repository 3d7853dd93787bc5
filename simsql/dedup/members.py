"""The members of a cluster: their order, and which of them a clean-up could drop."""

from collections.abc import Container, Sequence
from typing import NamedTuple

from simsql.dedup.store.store import StoredDocument


class Member(NamedTuple):
    """A document of a cluster, with the documents that it was compared with."""

    document: StoredDocument
    representative: StoredDocument
    """The document that represents the cluster."""
    kept: StoredDocument
    """The document that is kept in favour of this one: the same if it is kept."""
    droppable: bool
    """Whether a clean-up could drop it and keep `kept`."""

    distance: int
    """The distance from the representative's fingerprint, in bits."""
    kept_distance: int
    """The distance from the fingerprint of the document that is kept, in bits."""


def arrange_members(documents: Sequence[StoredDocument], refused: Container[int]) -> list[Member]:
    """Return the members of a cluster: those that are kept, each followed by those dropped in its favour.

    The representative comes first, then the most similar to it. A document is droppable if this run has read it,
    unless its id is one of those in `refused`.
    """
    by_id = {document.id: document for document in documents}
    representative = by_id[documents[0].representative]
    distances = {document.id: _distance(document, representative) for document in documents}
    places = {
        document.id: (
            document.id != representative.id,
            -(document.representative_similarity or 0),
            distances[document.id],
            document.name,
            document.id,
        )
        for document in documents
        if document.kept == document.id
    }
    members = []
    for document in documents:
        is_kept = document.kept == document.id
        members.append(
            Member(
                document,
                representative,
                by_id[document.kept],
                not is_kept and document.seen and document.id not in refused,
                distances[document.id],
                0 if is_kept else _distance(document, by_id[document.kept]),
            )
        )

    def place(member: Member) -> tuple[object, ...]:
        document = member.document
        return (
            places[member.kept.id],
            document.id != member.kept.id,
            -(document.kept_similarity or 0),
            member.kept_distance,
            document.name,
            document.id,
        )

    return sorted(members, key=place)


def _distance(a: StoredDocument, b: StoredDocument) -> int:
    return ((a.fingerprint ^ b.fingerprint) & (2**64 - 1)).bit_count()
