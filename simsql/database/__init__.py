"""Everything that talks to PostgreSQL, through SQLAlchemy Core and psycopg. Knows no ORM models.

The embedded server needs the extra `embedded` and stands apart, in `simsql.server.embedded`.
"""

from simsql.database.backfill import fill_fingerprints
from simsql.database.bigint import from_bigint, to_bigint
from simsql.database.connect import open_engine
from simsql.database.index import build_index, create_index, drop_index
from simsql.database.index_spec import IndexSpec
from simsql.database.install import install_schema, read_status, uninstall_schema, upgrade_schema
from simsql.database.load import load_rows
from simsql.database.numpy_search import stream_clusters, stream_matches, stream_pairs
from simsql.database.recipes import recipe_of
from simsql.database.search import claim, clusters, near, near_many, near_rows, pairs
from simsql.database.upkeep import repair, vacuum, verify

__all__ = [
    "IndexSpec",
    "build_index",
    "claim",
    "clusters",
    "create_index",
    "drop_index",
    "fill_fingerprints",
    "from_bigint",
    "install_schema",
    "load_rows",
    "near",
    "near_many",
    "near_rows",
    "open_engine",
    "pairs",
    "read_status",
    "recipe_of",
    "repair",
    "stream_clusters",
    "stream_matches",
    "stream_pairs",
    "to_bigint",
    "uninstall_schema",
    "upgrade_schema",
    "vacuum",
    "verify",
]
