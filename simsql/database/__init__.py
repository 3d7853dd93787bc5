"""Work with PostgreSQL through SQLAlchemy Core and psycopg, without ORM models.

The embedded server, which needs the extra `embedded`, is in `simsql.server`.
"""

from simsql.database.connect import open_engine
from simsql.database.index import Finding, build_index, change_storage, create_index, drop_index
from simsql.database.index_spec import IndexSpec
from simsql.database.install import (
    IndexStatus,
    Status,
    install_schema,
    read_status,
    schema_sql,
    uninstall_schema,
    upgrade_schema,
)
from simsql.database.load import load_rows
from simsql.database.numpy_search import MatchBatch, MemberBatch, PairBatch, Stream
from simsql.database.search_index import Match, MatchingRow, Member, Pair, PrimaryKeys, QueryMatch, SearchIndex
from simsql.database.transfer import Scope, from_bigint, to_bigint, to_bigints

__all__ = [
    "Finding",
    "IndexSpec",
    "IndexStatus",
    "Match",
    "MatchBatch",
    "MatchingRow",
    "Member",
    "MemberBatch",
    "Pair",
    "PairBatch",
    "PrimaryKeys",
    "QueryMatch",
    "Scope",
    "SearchIndex",
    "Status",
    "Stream",
    "build_index",
    "change_storage",
    "create_index",
    "drop_index",
    "from_bigint",
    "install_schema",
    "load_rows",
    "open_engine",
    "read_status",
    "schema_sql",
    "to_bigint",
    "to_bigints",
    "uninstall_schema",
    "upgrade_schema",
]
