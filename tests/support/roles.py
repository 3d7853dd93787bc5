"""Roles that may do what documentation and hints grant to them."""

import psycopg


def allow_indexes(connection: psycopg.Connection, *roles: str) -> None:
    """Let roles create tables in `public`, and indexes on tables of their own."""
    names = ", ".join(roles)
    connection.execute(f"GRANT CREATE ON SCHEMA simsql, public TO {names}")
    connection.execute(f"GRANT INSERT, UPDATE, DELETE ON simsql.registry TO {names}")
