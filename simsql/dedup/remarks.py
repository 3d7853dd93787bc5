"""What the kinds of drops tell about a collection."""

from collections import Counter

from simsql.decide.kinds import Kind

_ATTRACTED = 10  # by one kept text: of prose, hardly ever so many that are not the same


class KindCount:
    """Counts drops by kind."""

    def __init__(self) -> None:
        self.by_kind: Counter[str] = Counter()
        self._attracted: Counter[int] = Counter()

    def add(self, kind: str, kept: int) -> None:
        """Count a drop in favour of the text at a position."""
        self.by_kind[kind] += 1
        self._attracted[kept] += kind in (Kind.NUMBERS, Kind.SIMILAR)

    def lines(self) -> list[tuple[str, int]]:
        """Return the counts, for a summary."""
        return [(f"  {kind}", self.by_kind[kind]) for kind in Kind if self.by_kind[kind]]

    def remark(self) -> str | None:
        """Return what to look at before anything is dropped; None if the drops look like those of prose."""
        numbers, others = self.by_kind[Kind.NUMBERS], self.by_kind.total() - self.by_kind[Kind.IDENTICAL]
        most = max(self._attracted.values(), default=0)
        if 2 * numbers > others:
            found = f"{numbers:,} of {others:,} drops that are not identical differ in numbers only"
        elif most >= _ATTRACTED:
            found = f"{most:,} texts that differ would be dropped in favour of a single one"
        else:
            return None
        return (
            f"This looks like a templated collection: {found}. Look before you drop, with --report FILE. To keep"
            " texts whose numbers or signs differ, use --protect numbers,symbols; those that differ in more than a"
            " few words, --drop-similarity 0.9; all that are not identical, --exact"
        )
