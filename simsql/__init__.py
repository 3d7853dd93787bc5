"""Near-duplicate detection inside PostgreSQL: SimHash in plain tables and plain SQL.

What stands here needs numpy alone; `simsql.database` talks to PostgreSQL.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from simsql.errors import SimsqlError, UsageError

if TYPE_CHECKING:
    from simsql.fingerprint import (
        DEFAULT_RECIPE,
        Recipe,
        estimate_similarity,
        simhash,
        simhash_many,
        similarity,
        similarity_many,
        sketch,
        sketch_many,
        visible_text,
    )
    from simsql.hamming import Design, find_clusters, find_pairs, hamming_distance, plan

__version__ = "0.3.0"

__all__ = [
    "DEFAULT_RECIPE",
    "Design",
    "Recipe",
    "SimsqlError",
    "UsageError",
    "estimate_similarity",
    "find_clusters",
    "find_pairs",
    "hamming_distance",
    "plan",
    "simhash",
    "simhash_many",
    "similarity",
    "similarity_many",
    "sketch",
    "sketch_many",
    "visible_text",
]

_PACKAGES = ("fingerprint", "hamming")

if not TYPE_CHECKING:  # a type checker would take every name for one that exists

    def __getattr__(name: str) -> Any:
        """Import a name at its first use: the command line starts before numpy, and can be interrupted."""
        if name in _PACKAGES:
            return import_module(f"simsql.{name}")
        if name in __all__:
            for package in _PACKAGES:
                module = import_module(f"simsql.{package}")
                if name in module.__all__:
                    return globals().setdefault(name, getattr(module, name))
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__, *_PACKAGES})
