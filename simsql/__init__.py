"""Near-duplicate detection inside PostgreSQL: SimHash in plain tables and plain SQL.

What stands here needs numpy alone; `simsql.database` talks to PostgreSQL.
"""

from simsql.errors import SimsqlError, UsageError
from simsql.fingerprint import DEFAULT, Recipe, simhash, simhash_many
from simsql.hamming import (
    Costs,
    Design,
    fewest_tables,
    find_all,
    find_clusters,
    hamming_distance,
    longest_prefix,
    plan,
)

__version__ = "0.1.0"

__all__ = [
    "DEFAULT",
    "Costs",
    "Design",
    "Recipe",
    "SimsqlError",
    "UsageError",
    "fewest_tables",
    "find_all",
    "find_clusters",
    "hamming_distance",
    "longest_prefix",
    "plan",
    "simhash",
    "simhash_many",
]
