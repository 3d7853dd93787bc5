"""The names in a drop list: of files and records, and none that could mean something else."""

import os
import re

from simsql.dedup.members import Member
from simsql.documents import storable

_REPLACED = re.compile(r"\\x00|\\ud[89a-f]")  # by simsql.documents.storable
_SHARED = "several documents", "another document is called so, too"


def listed_name(member: Member) -> str:
    """Return the name of a document in the drop list: its place, if its id could mean something else.

    That of a file has all its bytes, in surrogates if they are not UTF-8.
    """
    if member.line:
        is_id = member.name != member.place
        return member.place if is_id and _is_path(member.name) else member.label
    return f"./{member.path}" if member.path.startswith("-") else member.path  # rm would take it for options


def ambiguity(member: Member, name: str, *, null: bool) -> tuple[str, str] | None:
    """Return why a name in the list could mean something else, in short and in full; None if it cannot."""
    if not null and set("\n\r") & set(name):
        return "line end", "the name would be more than one line: --null ends names with a NUL instead"
    if not member.line:
        return _SHARED if member.shared or member.place_shared else None
    if name != member.place:
        replaced = "in an id, it may stand for a character that no output can have"
        return ("backslash", replaced) if _REPLACED.search(name) else None
    if "\\" in name:
        return "backslash", "in the place of a record, it may stand for a byte that is not UTF-8"
    if _is_path(name):
        return "place and path", "the place of this record is also the path of a file"
    return _SHARED if member.place_shared else None


def unambiguous_name(member: Member, *, null: bool) -> str | None:
    """Return the name of a document in the drop list of a page, which has UTF-8; None if it could be another's."""
    name = listed_name(member)
    return None if ambiguity(member, name, null=null) or name != storable(name) else name


def _is_path(name: str) -> bool:
    return os.path.lexists(name)  # Path.exists raises for long names
