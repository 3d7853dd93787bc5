"""Render the description of a simhash index as arguments of an SQL function."""

import json
from collections.abc import Mapping
from typing import Any

from sqlalchemy import ColumnElement, Integer, Text, cast, literal, literal_column, null
from sqlalchemy.dialects.postgresql import ARRAY, JSONB, array
from sqlalchemy.types import TypeEngine

_TYPES: dict[str, TypeEngine[Any]] = {
    **dict.fromkeys(("distance", "blocks", "lead", "inner_blocks"), Integer()),
    **dict.fromkeys(("recipe", "storage"), Text()),
    "scope": ARRAY(Text),
    "sources": JSONB(),
}


def as_arguments(column: str | None, options: Mapping[str, object]) -> list[ColumnElement[object]]:
    """Return a column and options by name; those that are None are null."""
    named = [literal_column(name).op("=>")(_expression(name, value)) for name, value in options.items()]
    return [literal(column, Text()), *named]


def _expression(name: str, value: object) -> ColumnElement[object]:
    if isinstance(value, dict):
        return cast(literal(json.dumps(value), Text()), JSONB)
    if isinstance(value, list):
        return cast(array([literal(member, Text()) for member in value]), ARRAY(Text))
    return literal(value, _TYPES[name]) if value is not None else cast(null(), _TYPES[name])
