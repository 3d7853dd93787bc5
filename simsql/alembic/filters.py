"""What autogenerate is to leave alone: objects that simsql makes, which no model and no list of entities names."""

import re
from typing import Any

SCHEMA = "simsql"

# Triggers on the tables of users: those of an index, by its number, and those of simsql.clear_on_change.
_OWN_NAME = re.compile(r"simsql_\d+_\w+|zz_simsql_clear_\d+(_\w+)?")


def include_object(item: Any, name: str | None, type_: str, reflected: bool, compare_to: Any) -> bool:  # noqa: ARG001
    """Return False for what simsql has made in the database, and True for all else: an include_object for env.py.

    Alembic itself needs none. alembic_utils does: it wants to drop each function, view, trigger and grant that no
    entity of yours stands for, and those of simsql with them. Where you have a hook of your own, call this first:

        def include_object(*asked):
            return simsql.alembic.include_object(*asked) and my_own(*asked)
    """
    schema = getattr(item, "schema", None) or getattr(getattr(item, "table", None), "schema", None)
    if schema == SCHEMA:
        return False
    # alembic_utils calls the name of a trigger its signature, and gives the name with the schema in front.
    own_name = getattr(item, "signature", name) or ""
    return type_ not in ("trigger", "index") or _OWN_NAME.fullmatch(own_name) is None
