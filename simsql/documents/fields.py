"""Find the fields of a record: plain names, and paths into objects and lists.

A path such as `messages[].content` names the keys of objects, separated by dots; `[]` stands for each element of a
list. A key that is spelled like the whole path takes precedence.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from simsql.documents.decoding import UnfitError
from simsql.documents.document import USUAL, Layout
from simsql.documents.records import Record, check_filled, missing_field, name_of, spell_fingerprint

_MISSING = object()
_STEP = re.compile(r"\[\]|[^.\[]+(?:\[(?!\])[^.\[]*)*")


class Fields:
    """The fields of a layout."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._texts = [(name, _getter(name, _MISSING)) for name in layout.text_fields]
        # The usual text, which needs the least work.
        self._only = None if layout.fingerprints or len(self._texts) > 1 else layout.text_fields[0]
        # Nobody misses an id that the user has not asked for.
        self._lacks_id = (layout.id_field,) * (layout.id_field != USUAL.id_field)
        self._identity = _getter(layout.id_field, _MISSING)
        self._values = [_getter(name) for name in layout.value_fields]

    def has_text(self, record: Mapping[str, Any]) -> bool:
        """Return whether a record has a text field."""
        return any(get(record) is not _MISSING for _, get in self._texts)

    def read(self, record: Mapping[str, Any]) -> Record:
        """Return the text, the id and the values of a record. Raise UnfitError if it has no text."""
        text = None if self._only is None else record.get(self._only)
        lacks: tuple[str, ...] = ()
        if type(text) is not str:
            text, lacks = self._join(record)
        check_filled(text)
        identity = self._identity(record)
        if identity is _MISSING:
            identity, lacks = None, lacks + self._lacks_id
        return name_of(identity), text, [name_of(get(record)) for get in self._values], lacks

    def _join(self, record: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
        """Return the text of a record, and the text fields that it does not have."""
        found = {name: value for name, get in self._texts if (value := get(record)) is not _MISSING}
        if not found:
            raise missing_field(
                self._layout.text_fields, [path for item in record.items() for path, _ in leaves(*item)]
            )
        if all(value is None for value in found.values()):
            raise UnfitError("no text", f"the field {min(found)!r} is null")
        if self._layout.fingerprints:
            return spell_fingerprint(found.popitem()[1], self._layout), ()
        text = "\n".join(
            part for name, value in found.items() for part in _parts(name, value, is_list="[]" in name)
        )
        return text, tuple(name for name, _ in self._texts if name not in found)


def leaves(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the paths to what is in a field, and the values. The elements of a list are like its first one."""
    while isinstance(value, list) and value:
        name, value = f"{name}[]", value[0]
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from leaves(f"{name}.{key}", inner)
    else:
        yield name, value


def advice(name: str, value: Any) -> str:
    """Return which path leads to the longest text in an object or a list, as the end of a message."""
    found = ((len(leaf), path) for path, leaf in leaves(name, value) if isinstance(leaf, str) and path != name)
    best = max(found, default=None)
    return f": choose with --text-field {best[1]!r}" if best else ""


def root_of(name: str, names: Sequence[str]) -> str | None:
    """Return which of these columns a field is in; None for none."""
    if name in names:
        return name
    first = _STEP.findall(name)[:1]
    return first[0] if first and first[0] in names else None


def _getter(name: str, missing: object = None) -> Callable[[Mapping[str, Any]], Any]:
    """Return a function that returns the field of a record, or `missing`."""
    steps = _STEP.findall(name)
    if len(steps) < 2:
        return lambda record: record.get(name, missing)

    def get(record: Mapping[str, Any]) -> Any:
        if name in record:
            return record[name]
        found: list[Any] = [record]
        odd: list[Any] = []
        for step in steps:
            if step == "[]" and found and not any(found):
                return []  # of empty lists
            kind = list if step == "[]" else dict
            odd += [value for value in found if not isinstance(value, kind) and value is not None]
            if kind is dict:
                found = [value[step] for value in found if isinstance(value, dict) and step in value]
            else:
                found = [element for value in found if isinstance(value, list) for element in value]
        if not found:
            return missing
        if odd and missing is _MISSING:  # a text without some of its parts
            raise UnfitError("not a string", f"the path {name!r} does not lead through {type_of(odd[0])} in it")
        return found if "[]" in steps else found[0]

    return get


def _parts(name: str, value: Any, *, is_list: bool) -> list[str]:
    """Return the texts that a field holds: one, those of the list that a path leads to, or none for null."""
    if isinstance(value, str):
        return [value] if value else []
    if value is None:
        return []
    if isinstance(value, bytes):
        try:
            return [value.decode()]
        except UnicodeDecodeError as error:
            where = f"byte {error.start} of the field {name!r}"
            raise UnfitError("not utf-8", f"{where} is not UTF-8") from None
    if isinstance(value, list) and is_list:
        return [part for element in value for part in _parts(name, element, is_list=False)]
    raise UnfitError("not a string", f"the field {name!r} is {type_of(value)}{advice(name, value)}")


def type_of(value: object) -> str:
    """Return what a value of JSON is called."""
    names = {bool: "a boolean", dict: "an object", list: "an array", str: "a string", type(None): "null"}
    return names.get(
        type(value), "a number" if isinstance(value, int | float) else f"of the type {type(value).__name__}"
    )
