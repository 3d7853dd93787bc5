"""What the kinds of drops tell about a collection."""

from collections import Counter

from simsql.decide.kinds import Kind

# Of the drops that are not identical, a quarter in numbers only, or a tenth in favour of texts that attract ten or
# more. Measured shares in numbers: .43 to 1 in templated collections, .03 in news; in favour of such texts: .16 to
# .83 in manuals, licences and sources, .003 in civil codes, which copied from one another.
_NUMBERS, _FEWEST = 0.25, 3
_ATTRACTED, _TEXTS = 0.1, 10


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
        attracted = [count for count in self._attracted.values() if count >= _TEXTS]
        if numbers >= max(_FEWEST, _NUMBERS * others):
            found = "differ in numbers only"
        elif (numbers := sum(attracted)) >= max(_TEXTS, _ATTRACTED * others):
            found = f"are in favour of {len(attracted):,} text" + "s" * (len(attracted) > 1)
        else:
            return None
        return (
            f"This looks like a templated collection: {numbers:,} of {others:,} drops that are not identical"
            f" {found}. Look at them before you drop any: --report FILE. To drop less: --protect numbers,symbols,"
            " --drop-similarity 0.9 or --exact"
        )
