"""Encode the scopes of searches as JSON for the SQL functions: a value for each scope column of an index."""

import json
from collections.abc import Mapping
from datetime import date, time
from decimal import Decimal
from uuid import UUID

from sqlalchemy import ColumnElement, Text, cast, literal
from sqlalchemy.dialects.postgresql import JSONB

Scope = Mapping[str, object]
"""Values by the unquoted names of the scope columns: str, int, float, bool, UUID, Decimal, dates and times."""


def encode_scope(scope: Scope | None) -> str | None:
    """Return a scope as JSON, or None for None.

    Raises TypeError for a value that JSON cannot represent and that has no text form for PostgreSQL.
    """
    return None if scope is None else json.dumps(dict(scope), default=_as_text, allow_nan=False)


def scope_argument(scope: Scope | None) -> ColumnElement[object]:
    """Return a scope as a jsonb argument of an SQL function; null for None."""
    # As text: the type JSONB would encode it once more, with what the engine encodes JSON with.
    return cast(literal(encode_scope(scope), Text), JSONB)


def _as_text(value: object) -> str:
    if isinstance(value, UUID | date | time | Decimal):
        return str(value)
    raise TypeError(f"a scope cannot contain {value!r}: convert it to str, int or another JSON type")
