"""Gather the clusters of a report in temporary files, and count what the page shows at a glance."""

import hashlib
import json
import re
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Self

from simsql.documents.spool import TextSpool
from simsql.fingerprint import count_pixels
from simsql.report.content import Closeness, Decision, ReportedMember, RunReport

MAX_TEXT = 1 << 20
"""Characters of a text that a report shows at most."""

MEMBER_OVERHEAD = CLUSTER_OVERHEAD = 40  # bytes of the numbers that are known only when it is written
# Nothing that ends a script element, and nothing that UTF-8 cannot hold.
_UNSAFE = re.compile("[<>&\u2028\u2029\ud800-\udfff]")
_DECISIONS: dict[Decision, int] = {"representative": 0, "kept": 1, "dropped": 2}


def to_json(value: object) -> str:
    """Return a value as JSON that can stand in a script element: no text breaks out of it."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def json_size(value: object) -> int:
    """Return the number of bytes of a value as JSON in a page."""
    return len(to_json(value).encode())


class Collected:
    """The clusters of a report, read once: counts and sizes in memory, members and texts in temporary files.

    Memory grows by a few dozen bytes for each member, whatever the length of the texts. A text that occurs several
    times in a cluster is stored once.
    """

    def __init__(self) -> None:
        self.clusters = 0
        self.decisions: Counter[Decision] = Counter()
        self.kinds: Counter[str] = Counter()
        """Drops by kind."""
        self.text_sizes = array("q")
        """For each member, bytes of its text as JSON; 0 without a text, or if an earlier member has the same."""
        self.member_sizes = array("q")
        """For each member, bytes of all else as JSON."""
        self.member_counts = array("q")
        """For each cluster, the number of its members."""
        self.long_texts = 0
        """Number of texts longer than `MAX_TEXT`."""
        self._digest = hashlib.blake2b(digest_size=16)
        self._members = TextSpool()  # of each cluster, as JSON
        self._texts = TextSpool()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._members.close()
        self._texts.close()

    @property
    def members(self) -> int:
        """Number of members of all clusters."""
        return len(self.member_sizes)

    @property
    def digest(self) -> str:
        """Digest of all members and texts: equal reports have equal digests."""
        return self._digest.hexdigest()

    def gather(self, report: RunReport) -> None:
        """Read all clusters of a report and their texts."""
        for members in report.clusters:
            self.clusters += 1
            self.member_counts.append(len(members))
            row = to_json(self._rows(members, report))
            self._digest.update(row.encode())
            self._members.append(row)

    def rows(self, clusters: int) -> Iterator[list[list[Any]]]:
        """Yield the members of each of the first clusters: see `_rows`."""
        for number in range(clusters):
            yield json.loads(self._members.read(number))

    def texts(self, clusters: int, members: int) -> Iterator[tuple[list[list[Any]], Iterator[str]]]:
        """Yield the first members of each of the first clusters, and their texts."""
        first = 0
        for rows in self.rows(clusters):
            shown = range(first, first + 1 + max(row[-1] for row in rows[:members]))
            yield rows[:members], map(self._texts.read, shown)
            first += 1 + max(row[-1] for row in rows)

    def _rows(self, members: Sequence[ReportedMember], report: RunReport) -> list[list[object]]:
        """Return the members of a cluster as the page reads them: see `Member` in report.js."""
        positions = {member.document: position for position, member in enumerate(members)}
        texts: dict[bytes, int] = {}
        rows = []
        for position, member in enumerate(members):
            self.decisions[member.decision] += 1
            if member.kind:
                self.kinds[member.kind] += 1
            text = report.read_text(member.document)
            number, size = self._store(text, texts)
            row: list[object] = [
                member.id,
                member.place,
                _DECISIONS[member.decision],
                positions.get(member.kept, -1),
                *_numbers(member.to_kept),
                *_numbers(member.to_representative),
                # 0 for none, 1 for the id, 2 for the place, or another name in a drop list.
                {None: 0, member.place: 2, member.id: 1}.get(member.listed, member.listed or 0),
                member.kind or "",
                [value and _digits(value) / 10_000 for value in member.similarities],
                count_pixels(text) if report.pictures and text else len(text or ""),
                number,
            ]
            self.text_sizes.append(size)
            self.member_sizes.append(json_size(row) + MEMBER_OVERHEAD + (0 if position else CLUSTER_OVERHEAD))
            rows.append(row)
        return rows

    def _store(self, text: str | None, texts: dict[bytes, int]) -> tuple[int, int]:
        """Store a text unless its cluster has it; return its number in the cluster, and its size if it is new."""
        if text is None:
            return -1, 0
        digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        if digest in texts:
            return texts[digest], 0
        self._digest.update(digest)
        self._texts.append(text[:MAX_TEXT])
        texts[digest] = len(texts)
        self.long_texts += len(text) > MAX_TEXT
        return texts[digest], json_size(text[:MAX_TEXT]) + 1


def _numbers(closeness: Closeness) -> tuple[int, float | None]:
    distance, similarity = closeness
    return distance, None if similarity is None else _digits(similarity) / 10_000


def _digits(similarity: float) -> int:
    """Return four digits of a similarity, rounded down: .69996 is not the .7 at which texts are dropped."""
    return int(similarity * 10_000 + 1e-6)  # 0.29 * 100 is less than 29
