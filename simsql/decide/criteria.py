"""Which of similar documents to prefer, as numbers: the highest wins."""

from collections.abc import Iterable
from decimal import Decimal, InvalidOperation

import numpy as np

from simsql.decide.documents import I64
from simsql.decide.rules import Keep, Rules


def criterion(rules: Rules, order: I64, characters: I64, values: I64) -> I64:
    """Return a number for each document, which is higher for preferred documents.

    `order` is lower for documents that were read first, and `values` is higher for those with a higher value of
    the field that decides.
    """
    if rules.keep_field is not None:
        return values
    return {Keep.FIRST: -order, Keep.LONGEST: characters, Keep.CENTRAL: np.zeros_like(order)}[rules.keep]


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
