"""Work with PostgreSQL through SQLAlchemy Core and psycopg, without ORM models.

The embedded server, which needs the extra `embedded`, is in `simsql.server`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from simsql.database.bigint import from_bigint, to_bigint
    from simsql.database.connect import open_engine
    from simsql.database.index import (
        alter_index,
        change_storage,
        create_index,
        drop_index,
        maintain,
        set_default_index,
    )
    from simsql.database.index_spec import IndexSpec
    from simsql.database.install import install_schema, read_status, schema_sql, uninstall_schema
    from simsql.database.load import load_rows
    from simsql.database.search_index import SearchIndex
    from simsql.database.similar import RecallWarning
    from simsql.database.unique import Decision, NewDocument, load_unique
    from simsql.database.wide import near_wide

__all__ = [
    "Decision",
    "IndexSpec",
    "NewDocument",
    "RecallWarning",
    "SearchIndex",
    "alter_index",
    "change_storage",
    "create_index",
    "drop_index",
    "from_bigint",
    "install_schema",
    "load_rows",
    "load_unique",
    "maintain",
    "near_wide",
    "open_engine",
    "read_status",
    "schema_sql",
    "set_default_index",
    "to_bigint",
    "uninstall_schema",
]

_MODULES = {
    "open_engine": "connect",
    **dict.fromkeys(
        ("alter_index", "change_storage", "create_index", "drop_index", "maintain", "set_default_index"), "index"
    ),
    "IndexSpec": "index_spec",
    **dict.fromkeys(("install_schema", "read_status", "schema_sql", "uninstall_schema"), "install"),
    "load_rows": "load",
    "RecallWarning": "similar",
    "SearchIndex": "search_index",
    **dict.fromkeys(("from_bigint", "to_bigint"), "bigint"),
    **dict.fromkeys(("Decision", "NewDocument", "load_unique"), "unique"),
    "near_wide": "wide",
}

if not TYPE_CHECKING:  # a type checker would take every name for one that exists

    def __getattr__(name: str) -> Any:
        """Import a name at its first use: what needs no database starts without SQLAlchemy and psycopg."""
        if name in _MODULES:
            try:
                return getattr(import_module(f"simsql.database.{_MODULES[name]}"), name)
            except ImportError as error:
                if "pq wrapper" not in str(error):
                    raise
                raise ImportError(
                    "psycopg finds no libpq: pip install 'psycopg[binary]'", name="psycopg"
                ) from None
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
