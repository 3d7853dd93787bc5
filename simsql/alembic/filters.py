"""Filter simsql's own objects, which are not in the models or entities of a project, out of autogenerate."""

import re
from typing import Any

SCHEMA = "simsql"

# Triggers on the tables of users: those of an index, by its number, and those of simsql.clear_on_change.
_OWN_NAME = re.compile(r"simsql_\d+_\w+|zz_simsql_clear_\d+(_\w+)?")


def include_object(item: Any, name: str | None, type_: str, reflected: bool, compare_to: Any) -> bool:  # noqa: ARG001
    """Return False for objects that simsql has created in the database, else True: an include_object for env.py.

    Alembic itself does not need it, but alembic_utils does: it drops every function, view, trigger and grant that
    is not among your entities, including simsql's. If you have a hook of your own, call this one first:

        def include_object(*asked):
            return simsql.alembic.include_object(*asked) and my_own(*asked)
    """
    schema = getattr(item, "schema", None) or getattr(getattr(item, "table", None), "schema", None)
    if schema == SCHEMA:
        return False
    # alembic_utils calls the name of a trigger its signature, and gives the name with the schema in front.
    own_name = getattr(item, "signature", name) or ""
    return type_ not in ("trigger", "index") or _OWN_NAME.fullmatch(own_name) is None
