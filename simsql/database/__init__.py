"""Work with PostgreSQL through SQLAlchemy Core and psycopg, without ORM models.

The embedded server, which needs the extra `embedded`, is in `simsql.server`.
"""

from simsql.database.change_recipe import RecipeChange
from simsql.database.connect import open_engine
from simsql.database.index import change_storage, create_index, drop_index
from simsql.database.index_spec import IndexSpec
from simsql.database.install import install_schema, read_status, schema_sql, uninstall_schema
from simsql.database.load import load_rows
from simsql.database.search_index import SearchIndex
from simsql.database.transfer import from_bigint, to_bigint

__all__ = [
    "IndexSpec",
    "RecipeChange",
    "SearchIndex",
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
    "uninstall_schema",
]
