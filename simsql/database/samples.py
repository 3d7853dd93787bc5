"""A sample of the fingerprints in a table, which tells how uneven they are."""

import numpy as np
from sqlalchemy import Connection, text

from simsql.hamming import PrefixSample

_SAMPLED = 5_000
_SAMPLE = text(
    "SELECT s.rows, s.fingerprints FROM simsql._sampled_fingerprints("
    "CAST(:table AS pg_catalog.regclass), :column, :size) AS s"
)


def sample_fingerprints(
    connection: Connection, table: str, column: str | None = None
) -> tuple[int, PrefixSample | None]:
    """Return the number of fingerprints of a table, and a sample of them; None if two of them do not differ."""
    rows, sampled = connection.execute(_SAMPLE, {"table": table, "column": column, "size": _SAMPLED}).one()
    fingerprints = np.array(sampled, dtype=np.int64).view(np.uint64)
    return rows, PrefixSample(fingerprints) if len(np.unique(fingerprints)) > 1 else None
