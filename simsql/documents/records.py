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
Record = tuple[str, str, Sequence[str], tuple[str, ...]]
"""The id, the text, the values of the fields, empty without one, and the text fields that are not there."""


def read_each(
    items: Iterable[tuple[int, Any]],
    found: Found,
    layout: Layout,
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
            if record and layout.main_content:
                record = (record[0], check_filled(main_content(record[1])), *record[2:])
        except UnfitError as unfit:
            if unfit.reason == CORRUPT:
                yield Skip(shown, CORRUPT, f"{unit} {number:,}: {unfit.detail}")
            else:
                yield Skip(f"{shown}:{number}", unfit.reason, unfit.detail, number)
        else:
            del item  # which may be long, and what is made of it goes on without it
            if record:
                identity, text, values, lacks = record
                del record
                named, place = identity or f"{name}:{number}", f"{shown}:{number}"
                yield Document(named, text, place, tuple(values), number, path, status, None, lacks)
                del text


def main_content(page: str | bytes) -> str:
    """Return the title, the headings and the main content of a page, empty without one."""
    from simsql.fingerprint import html_parts  # noqa: PLC0415 - it takes longer to import than a short run

    return "\n".join(text for text, _ in html_parts(page))


def check_filled(text: str) -> str:
    """Return a text. Raise UnfitError for one of white space."""
    if not text or text.isspace():
        raise UnfitError("empty", "the text is empty" if not text else "the text is only white space")
    return text


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
            f"the field {layout.text_fields[0]!r} is {value!r:.40}: expected 64 bits: {_STRINGS[strings]}",
        ) from None
    return f"{number:016x}"


def name_of(identity: Any, fallback: str = "") -> str:
    """Return an id, or any other value of a record, as a name; the fallback for null and for an empty string."""
    if identity is None or identity == "":
        return fallback
    if type(identity) is int:  # the common case; JSON would say the same ten times slower
        return str(identity)
    if not isinstance(identity, str):
        is_json = isinstance(identity, dict | list | float | bool)
        identity = json.dumps(identity, ensure_ascii=False, default=_spell) if is_json else _spell(identity)
    return storable(identity)


def _spell(value: object) -> str:
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)


def missing_field(fields: Sequence[str], names: Sequence[str]) -> UnfitError:
    """Return the error for a record or a header without any of these fields, which lists some that it has."""
    shown = ", ".join(repr(name[:40]) for name in names[:_NAMES])
    more = f" and {len(names) - _NAMES} more" if len(names) > _NAMES else ""
    there = f"has {shown}{more}; choose with --text-field" if names else "is empty"
    missing = " and ".join(map(repr, fields))
    return UnfitError("no field", f"{missing} {'is' if len(fields) == 1 else 'are'} missing: the record {there}")


def check_unique(names: Sequence[str], layout: Layout) -> None:
    """Raise UnfitError if several columns have the name of one that is read."""
    options = dict.fromkeys(layout.value_fields, "--keep-field or --within")
    options |= {layout.id_field: "--id-field"} | dict.fromkeys(layout.text_fields, "--text-field")
    for name, option in options.items():
        if names.count(name) > 1:
            again = (
                f"{names.count(name)} columns are called {name!r}: rename them, or choose another with {option}"
            )
            raise UnfitError("ambiguous field", again)
