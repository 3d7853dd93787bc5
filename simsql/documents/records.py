"""What all formats of records share: fields, ids and values."""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from simsql.documents.decoding import CORRUPT, UnfitError
from simsql.documents.document import Document, Found, Layout, Skip, printable, storable

_NAMES = 8  # that a message lists
_UNPADDED = re.compile(r"(?:0[xX])?([0-9a-fA-F]{1,16})")
_STRINGS = {
    "padded": "16 hexadecimal digits; --fingerprint-field NAME=hex reads fewer, too, NAME=decimal decimals",
    "hex": "1 to 16 hexadecimal digits",
    "decimal": "a decimal",
}
VALUE_OPTIONS = "--keep-field or --within"
Record = tuple[str, str, Sequence[str]]
"""The id, the text, and the values of the fields; empty without one."""


def read_each(
    items: Iterable[tuple[int, Any]],
    found: Found,
    parse: Callable[[Any], Record | None],
    unit: str = "line",
) -> Iterator[Document | Skip]:
    """Yield the document in each item, given the number of its line. Skip single ones that are unfit.

    An item may be an UnfitError. `parse` returns the record in any other, None without one, or raises UnfitError.
    Where it is corrupt, others are lost, too: that is a skip of the file.
    """
    name, path, status = found.name, found.path, found.status
    shown = printable(name)
    for number, item in items:
        try:
            if isinstance(item, UnfitError):
                raise item
            record = parse(item)
        except UnfitError as unfit:
            if unfit.reason == CORRUPT:
                yield Skip(shown, CORRUPT, f"{unit} {number:,}: {unfit.detail}")
            else:
                yield Skip(f"{shown}:{number}", unfit.reason, unfit.detail, number)
        else:
            del item  # which may be long, and what is made of it goes on without it
            if record:
                identity, text, values = record
                del record
                yield Document(
                    identity or f"{name}:{number}", text, f"{shown}:{number}", tuple(values), number, path, status
                )
                del text


def check_filled(text: str) -> None:
    """Raise UnfitError for a text of white space."""
    if not text or text.isspace():
        raise UnfitError("empty", "the text is empty" if not text else "the text is only white space")


def spell_fingerprint(value: Any, layout: Layout) -> str:
    """Return a fingerprint as 16 hexadecimal digits. The layout says how strings are written.

    Raise UnfitError for anything else.
    """
    from simsql.arrays.checks import one_fingerprint  # noqa: PLC0415 - commands start before numpy is there

    strings = layout.fingerprints or "padded"
    given = value
    try:
        if isinstance(value, str) and strings == "decimal":
            given = int(value)
        elif isinstance(value, str) and strings == "hex" and (digits := _UNPADDED.fullmatch(value)):
            given = digits[1].zfill(16)
        number = one_fingerprint(given)
    except (TypeError, ValueError):
        raise UnfitError(
            "not a fingerprint",
            f"the field {layout.text_field!r} is {value!r:.40}: expected 64 bits: {_STRINGS[strings]}",
        ) from None
    return f"{number:016x}"


def name_of(identity: Any, fallback: str = "") -> str:
    """Return an id, or any other value of a record, as a name; the fallback for null and for an empty string."""
    if identity is None or identity == "":
        return fallback
    if type(identity) is int:  # the common case; JSON would say the same ten times slower
        return str(identity)
    if not isinstance(identity, str):
        identity = json.dumps(identity, ensure_ascii=False, default=str)
    return storable(identity)


def missing_field(field: str, owner: str, names: Sequence[str]) -> UnfitError:
    """Return the error for a missing field, which lists some of the names that exist instead."""
    shown = ", ".join(repr(name[:40]) for name in names[:_NAMES])
    more = f" and {len(names) - _NAMES} more" if len(names) > _NAMES else ""
    there = f"has {shown}{more}; choose with --text-field" if names else "is empty"
    return UnfitError("no field", f"{field!r} is missing: the {owner} {there}")


def find_text_column(names: Sequence[str], field: str, owner: str) -> int:
    """Return the position of the column of texts. Raise UnfitError without it, or if several have its name."""
    column = find_column(names, field, "--text-field")
    if column is None:
        raise missing_field(field, owner, names)
    return column


def find_column(names: Sequence[str], field: str | None, option: str) -> int | None:
    """Return the position of a column; None without it. Raise UnfitError if several have this name."""
    if field is not None and names.count(field) > 1:
        again = f"{names.count(field)} columns are called {field!r}: rename them, or choose another with {option}"
        raise UnfitError("ambiguous field", again)
    return names.index(field) if field is not None and field in names else None
