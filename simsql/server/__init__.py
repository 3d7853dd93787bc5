"""PostgreSQL from a wheel: start it, watch it, stop it. Knows nothing of indexes.

Needs the `embedded` extra.
"""
