"""The members of a cluster: their order, and which of them a clean-up could drop."""

import os
from collections.abc import Sequence
from typing import NamedTuple

from simsql.dedup.places import file_of
from simsql.dedup.results import StoredDocument


class Member(NamedTuple):
    """A document of a cluster, with the documents that it was compared with."""

    document: StoredDocument
    representative: StoredDocument
    """The document that represents the cluster."""
    kept: StoredDocument
    """The document that is kept in favour of this one: the same if it is kept."""
    droppable: bool
    """Whether a clean-up could drop it and keep `kept`."""

    @property
    def distance(self) -> int:
        """The distance from the representative's fingerprint, in bits."""
        return _distance(self.document, self.representative)

    @property
    def kept_distance(self) -> int:
        """The distance from the fingerprint of the document that is kept, in bits."""
        return _distance(self.document, self.kept)


def arrange_members(documents: Sequence[StoredDocument]) -> list[Member]:
    """Return the members of a cluster: those that are kept, each followed by those dropped in its favour.

    The representative comes first, then the most similar to it. A document is droppable if this run has read it,
    and the one that is kept in its favour, too, unless this run has not read the file of that one, and it exists.
    """
    by_id = {document.id: document for document in documents}
    gone = {id_: by_id[id_].gone or is_gone(by_id[id_]) for id_ in {document.kept for document in documents}}
    members = [
        Member(
            document,
            by_id[document.representative],
            by_id[document.kept],
            document.kept != document.id and document.seen and not gone[document.kept],
        )
        for document in documents
    ]

    def place(member: Member) -> tuple[object, ...]:
        document, kept = member.document, member.kept
        return (
            kept.id != kept.representative,
            -(kept.representative_similarity or 0),
            _distance(kept, member.representative),
            kept.name,
            kept.id,
            document.id != kept.id,
            -(document.kept_similarity or 0),
            member.kept_distance,
            document.name,
            document.id,
        )

    return sorted(members, key=place)


def is_gone(document: StoredDocument) -> bool:
    """Return whether a document of an earlier run is no longer in its file."""
    return not document.seen and is_gone_from(document.place, file_read=document.gone)


def is_gone_from(place: str, *, file_read: bool) -> bool:
    """Return whether a document that this run has not read is gone from its place.

    `file_read` tells whether this run has read its file, without finding it. A place that is a path itself is a
    whole file, and not a line of another one.
    """
    file = file_of(place)
    return file != "stdin" and not is_path(place) and (file_read or not is_path(file))


def is_path(name: str) -> bool:
    """Return whether a file or folder has this name, which may be too long for a path."""
    return os.path.exists(name)  # noqa: PTH110 - Path.exists raises for long names


def _distance(a: StoredDocument, b: StoredDocument) -> int:
    return ((a.fingerprint ^ b.fingerprint) & (2**64 - 1)).bit_count()
