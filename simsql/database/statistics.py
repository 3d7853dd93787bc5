"""Statistics of stored fingerprints: how uneven they are, and how many keys searches read."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, text

from simsql.database.bigint import Scope, encode_scope
from simsql.database.transfer import fetch_fingerprints, first_of_equals
from simsql.hamming import Design, PrefixSample

DISTANCES = (3, 7, 10)
"""The distances, in bits, for which statistics count candidates."""

_HOTTEST = 3
_SAMPLED = 5_000
# Measuring the candidates at one distance takes about a second: the ranges that it reads, over all searches.
_PROBES = 500_000
_SEARCHES = 500
_SEARCHES_AT_LEAST = 30  # fewer would not be typical


class HotPrefix(NamedTuple):
    """A frequent prefix of a key table: a number of `bits` bits, and how many different fingerprints have it.

    `times` is the ratio to the mean of all possible prefixes.
    """

    permutation: int
    bits: int
    prefix: int
    keys: int
    times: float


class Candidates(NamedTuple):
    """The mean number of keys that a search for a stored fingerprint reads at a distance, without its own.

    `uniform` is expected for random fingerprints, and `sampled` by the index according to its last sample: None if
    there was none, because the index had fewer than a thousand keys. `measured` is
    counted in up to 500 searches: None if these would read too many ranges.
    """

    distance: int
    uniform: float
    sampled: float | None
    measured: float | None


@dataclass(frozen=True)
class Statistics:
    """Statistics of the fingerprints of an indexed table, or of one scope.

    `rows` counts the rows with a fingerprint, and `distinct` their different fingerprints. `bit_means` are the
    shares of the latter with each of the 64 bits set, most significant first; nan without fingerprints.
    """

    rows: int
    distinct: int
    design: Design
    bit_means: tuple[float, ...]
    prefixes: tuple[HotPrefix, ...]
    candidates: tuple[Candidates, ...]


def read_statistics(
    connection: Connection, table: str, column: str | None = None, *, scope: Scope | None = None
) -> Statistics:
    """Read all fingerprints of an indexed table, or of a scope, and count the candidates of some searches.

    Memory grows by about 20 bytes per row. `table` is a name as in SQL. If the table has only one index, omit the
    column. Raises sqlalchemy.exc.DBAPIError with PostgreSQL's message: no index, several indexes, an index that
    cannot be searched, no privilege to read the column.
    """
    arguments = {"table": table, "column": column, "scope": encode_scope(scope)}
    # From here on with a column: the default index may change.
    found, *design_of = connection.execute(_DESIGN, arguments).one()
    arguments["column"], design = found, Design(*design_of)
    stored = np.concatenate([*fetch_fingerprints(connection, table, found, scope), np.empty(0, dtype=np.uint64)])
    stored.sort()
    distinct = stored[first_of_equals(stored)]
    return Statistics(
        rows=len(stored),
        distinct=len(distinct),
        design=design,
        bit_means=tuple(_share_with_bit(distinct, place) for place in reversed(range(64))),
        prefixes=_hot_prefixes(distinct, design),
        candidates=_count_candidates(connection, arguments, distinct, design),
    )


def sample_fingerprints(
    connection: Connection, table: str, column: str | None = None
) -> tuple[int, PrefixSample | None]:
    """Return the number of fingerprints of a table, and a sample of them; None if two of them do not differ.

    Reads the whole table, which needs no index if you name the column. Raises sqlalchemy.exc.DBAPIError with
    PostgreSQL's message.
    """
    rows, sampled = connection.execute(_SAMPLE, {"table": table, "column": column, "size": _SAMPLED}).one()
    fingerprints = np.array(sampled, dtype=np.int64).view(np.uint64)
    return rows, PrefixSample(fingerprints) if len(np.unique(fingerprints)) > 1 else None


_DESIGN = text(
    "SELECT i.column_name, i.blocks, i.lead, i.inner_blocks FROM simsql._searched_index("
    "CAST(:table AS pg_catalog.regclass), :column, CAST(:scope AS pg_catalog.jsonb)) AS i"
)
_CANDIDATES = text(
    "SELECT c.share, c.candidates FROM simsql._measured_candidates(CAST(:table AS pg_catalog.regclass),"
    " CAST(:fingerprints AS pg_catalog.int8[]), :distance, :column, CAST(:scope AS pg_catalog.jsonb)) AS c"
)
_SAMPLE = text(
    "SELECT s.rows, s.fingerprints FROM simsql._sampled_fingerprints("
    "CAST(:table AS pg_catalog.regclass), :column, :size) AS s"
)


def _share_with_bit(fingerprints: NDArray[np.uint64], place: int) -> float:
    if not len(fingerprints):
        return float("nan")
    return int(np.count_nonzero(fingerprints & np.uint64(1 << place))) / len(fingerprints)


def _hot_prefixes(fingerprints: NDArray[np.uint64], design: Design) -> tuple[HotPrefix, ...]:
    """Return the most frequent prefixes of each table."""
    found = []
    for permutation in design.permutations:
        bits = permutation.prefix_bits
        prefixes, keys = np.unique(permutation.key(fingerprints) >> np.uint64(64 - bits), return_counts=True)
        for place in np.argsort(-keys, kind="stable")[:_HOTTEST]:
            count = int(keys[place])
            times = count * 2**bits / len(fingerprints)
            found.append(HotPrefix(permutation.number, bits, int(prefixes[place]), count, times))
    return tuple(found)


def _count_candidates(
    connection: Connection, arguments: dict[str, str | None], fingerprints: NDArray[np.uint64], design: Design
) -> tuple[Candidates, ...]:
    found = []
    searched = np.random.default_rng(0).permutation(fingerprints).view(np.int64)
    for distance in DISTANCES:
        searches = min(_SEARCHES, _PROBES // design.probes(distance))
        queries = searched[:searches].tolist() if searches >= _SEARCHES_AT_LEAST else []
        share, measured = connection.execute(
            _CANDIDATES, {**arguments, "fingerprints": queries, "distance": distance}
        ).one()
        sampled = None if share is None else share * len(fingerprints)
        found.append(Candidates(distance, design.candidates(distance, len(fingerprints)), sampled, measured))
    return tuple(found)
