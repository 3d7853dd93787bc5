"""Near-duplicate detection inside PostgreSQL: SimHash in plain tables and plain SQL."""

__version__ = "0.1.0"
