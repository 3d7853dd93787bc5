"""Which of similar documents to prefer, as numbers: the highest wins."""

from collections.abc import Iterable
from decimal import Decimal, InvalidOperation

import numpy as np

from simsql.decide.documents import I64
from simsql.decide.rules import Keep, Rules


def criterion(rules: Rules, order: I64, characters: I64, values: I64, line: I64 | None = None) -> I64:
    """Return a number for each document, which is higher for preferred documents.

    `order` is lower for documents that were read first, and `values` is higher for those with a higher value, if
    a value decides: that of a field, or that of `value_of_file`. `line` is the line of a record.
    """
    if not rules.by_value:
        return {Keep.FIRST: -order, Keep.LONGEST: characters, Keep.CENTRAL: np.zeros_like(order)}[rules.keep]
    if line is None or rules.keep not in (Keep.NEWEST, Keep.OLDEST):
        return values
    line = line if rules.keep is Keep.NEWEST else -line
    # One number for both: equal pairs have the same.
    by_pair = np.lexsort([line, values])
    differs = (np.diff(values[by_pair]) != 0) | (np.diff(line[by_pair]) != 0)
    ranks = np.zeros(len(by_pair), dtype=np.int64)
    ranks[by_pair[1:]] = np.cumsum(differs)
    return ranks


def value_of_file(keep: Keep, path: str, modified: int) -> int:
    """Return a number that is higher for the files whose documents are kept, if files decide.

    `modified` is when the file was modified.
    """
    return {Keep.NEWEST: modified, Keep.OLDEST: -modified, Keep.SHORTEST_PATH: -len(path)}[keep]


def rank_values(values: Iterable[str]) -> dict[str, int]:
    """Return the rank of each value, from 1: texts in the order of their characters, then numbers by size."""
    keys = {value: _sort_key(value) for value in values}
    ranks: dict[tuple[int, str | Decimal], int] = {}
    for key in sorted(keys.values()):
        ranks.setdefault(key, len(ranks) + 1)
    return {value: ranks[key] for value, key in keys.items()}


def _sort_key(value: str) -> tuple[int, str | Decimal]:
    try:
        number = Decimal(value)
    except InvalidOperation:
        return 0, value
    return (1, number) if number.is_finite() else (0, value)
