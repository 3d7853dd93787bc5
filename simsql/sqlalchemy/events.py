"""Keep fingerprints and sketches up to date with their texts, through events of the mappers with such columns.

Importing this module registers no listeners. The first column type with a source registers one, for the event that
SQLAlchemy sends when an attribute of a class is mapped. It attaches the unit-of-work events to the mappers of such
columns only. For inserts without the unit of work, there is a column default: see `inserts`.
"""

import functools
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Column, Connection, event, inspect, update
from sqlalchemy.exc import ArgumentError
from sqlalchemy.orm import InstanceState, Mapper, PassiveFlag, QueryableAttribute, Session, class_mapper
from sqlalchemy.orm.attributes import History, get_history
from sqlalchemy.orm.exc import UnmappedClassError

from simsql.arrays.checks import is_missing
from simsql.database.bigint import to_bigint
from simsql.database.sources import Sources, compute_many
from simsql.sqlalchemy.recipes import refuse_other_recipe
from simsql.sqlalchemy.sources import compute_row, find_other, source_keys


@functools.cache
def follow_sources() -> None:
    """Register the listener for mapped attributes with a source."""
    event.listen(object, "attribute_instrument", _on_attribute)


def _on_attribute(class_: type, key: str, _: object) -> None:
    try:
        mapper: Mapper[Any] = class_mapper(class_, configure=False)
    except UnmappedClassError:
        return
    column = mapper.columns.get(key)
    sources = getattr(column.type, "sources", None) if isinstance(column, Column) else None
    if isinstance(column, Column) and isinstance(sources, Sources):
        follower = _Follower(key, column, sources)
        if mapper.configured:
            follower.attach(mapper, class_)
        else:
            # Listeners are called in the order in which they were attached. Those of the application, which may
            # change a source, are attached before its mappers are configured.
            event.listen(mapper, "mapper_configured", follower.attach)


@dataclass(frozen=True, eq=False)
class _Follower:
    """Keep the attribute `key` of one mapper up to date with its sources.

    A fingerprint that the application assigned wins for one flush. Two conditions identify it. The attribute has
    changed since it was flushed or loaded: SQLAlchemy knows this, even after the flush was rolled back or the
    object was made transient or pickled. And the follower was not the last to set it: when it sets the attribute,
    it leaves a mark in the info of the instance.
    """

    key: str
    column: Column[Any]
    sources: Sources

    def attach(self, mapper: Mapper[Any], class_: type) -> None:
        for name in self.sources.names:
            if name not in mapper.columns:
                raise ArgumentError(
                    f"{class_.__name__}.{self.key}: the source {name!r} is not a column attribute of"
                    f" {class_.__name__}; these are {', '.join(mapper.columns.keys())}"
                )
            if mapper.columns[name].key != name and name in self.column.table.columns:
                # An INSERT without the unit of work knows keys of columns, and would take the wrong one.
                raise ArgumentError(
                    f"{class_.__name__}.{self.key}: the source {name!r} is one attribute of {class_.__name__}, and"
                    f" another column of table {self.column.table.fullname}: give the attribute another name"
                )
            event.listen(getattr(class_, name), "set", self.on_text, raw=True)
        source_keys[self.column] = {name: mapper.columns[name].key for name in self.sources.names}
        event.listen(mapper, "before_insert", self.before_insert)
        event.listen(mapper, "after_insert", self.after_insert)
        event.listen(mapper, "before_update", self.before_update)
        event.listen(mapper, "after_update", self.after_update)
        attribute: QueryableAttribute[Any] = getattr(class_, self.key)
        event.listen(attribute, "set", self.on_assignment, raw=True)
        event.listen(attribute, "remove", self.on_assignment, raw=True)
        _merge_assigned(attribute.property)

    def on_assignment(self, state: InstanceState[Any], *_: object) -> None:
        state.info.pop(_mark(self.key), None)

    def on_text(self, state: InstanceState[Any], text: object, old: object, _: object) -> None:
        """Remove the fingerprint of the old text from an object without a row.

        Otherwise an insert without these events, such as bulk_save_objects, would write that fingerprint.
        """
        if state.key is not None or self.key not in state.dict or is_assigned(state, self.key):
            return
        if not (isinstance(text, str) and isinstance(old, str) and text == old):
            del state.dict[self.key]
            state.committed_state.pop(self.key, None)

    def before_insert(self, mapper: Mapper[Any], connection: Connection, target: object) -> None:
        state: InstanceState[Any] = inspect(target)
        if not is_missing(getattr(target, self.key)) and (
            is_assigned(state, self.key)
            or self.key not in state.dict  # a default of a dataclass
            or not self._sources_changed(state)  # it has been in a database, and is as it was there
        ):
            return
        refuse_other_recipe(connection, self.column, self.sources)
        # Also if it stays None: an insert of a key that was deleted in the same flush becomes an update.
        self._set(state, self._value(mapper, state))

    def after_insert(self, _: Mapper[Any], __: Connection, target: object) -> None:
        inspect(target).info.pop(_ahead(self.key), None)

    def before_update(self, mapper: Mapper[Any], connection: Connection, target: object) -> None:
        state: InstanceState[Any] = inspect(target)
        if self._sources_changed(state) and not is_assigned(state, self.key):
            refuse_other_recipe(connection, self.column, self.sources)
            self._set(state, self._value(mapper, state))

    def after_update(self, mapper: Mapper[Any], connection: Connection, target: object) -> None:
        """Write the fingerprint again if a trigger of simsql.clear_on_change may have removed it.

        The trigger clears a fingerprint that an UPDATE leaves unchanged.
        """
        state: InstanceState[Any] = inspect(target)
        state.info.pop(_ahead(self.key), None)
        value = getattr(target, self.key) if self._sources_changed(state) else None
        if not _is_filled(value) or _history(state, self.key).deleted:
            return
        table = self.column.table
        keys = table.primary_key.columns or [key for key in mapper.primary_key if key.table is table]
        this_row = [key == getattr(target, mapper.get_property_by_column(key).key) for key in keys]
        connection.execute(update(table).where(*this_row, self.column.is_(None)).values({self.column: value}))

    def _set(self, state: InstanceState[Any], fingerprint: int | None) -> None:
        setattr(state.object, self.key, fingerprint)
        state.info[_mark(self.key)] = True

    def _sources_changed(self, state: InstanceState[Any]) -> bool:
        return any(_history(state, name).has_changes() for name in self.sources.names)

    def _value(self, mapper: Mapper[Any], state: InstanceState[Any]) -> int | None:
        """Return the value for the texts of an object. What was computed ahead may be that of other texts."""
        texts = self._texts(state.object)
        if self._single_text(state.object) is None:
            named = dict(zip(self.sources.names, texts, strict=True))
            return compute_row(self.sources, named, f"{type(state.object).__name__}.{self.key}")
        if state.info.get(_ahead(self.key), ((), None))[0] != texts:
            self._compute_ahead(mapper, state)
        value: int | None = state.info[_ahead(self.key)][1]
        return value

    def _compute_ahead(self, mapper: Mapper[Any], state: InstanceState[Any]) -> None:
        """Compute the values of an object, and those of a sketch or fingerprint beside them, for all new ones.

        One by one takes ten times as long.
        """
        waiting = [state]
        for other in map(inspect, state.session.new if state.session and state.key is None else ()):
            if (
                other is not state
                and other.mapper is mapper
                and _ahead(self.key) not in other.info
                and (is_missing(other.dict.get(self.key)) or not is_assigned(other, self.key))
                and self._single_text(other.object) is not None
            ):
                waiting.append(other)
        column, of_column = find_other(self.sources, mapper.columns)
        other_key = None if column is None else mapper.get_property_by_column(column).key
        texts = [self._texts(each.object) for each in waiting]
        values = compute_many((text for (text,) in texts), self.sources, of_column)
        for each, of_texts, (own, others) in zip(waiting, texts, values, strict=True):
            each.info[_ahead(self.key)] = of_texts, own
            if other_key is not None:
                each.info[_ahead(other_key)] = of_texts, others

    def _texts(self, target: object) -> tuple[Any, ...]:
        return tuple(getattr(target, name) for name in self.sources.names)

    def _single_text(self, target: object) -> str | None:
        texts = self._texts(target)
        return texts[0] if len(texts) == 1 and isinstance(texts[0], str) else None


def _is_filled(value: Any) -> bool:
    """Return whether a value is a fingerprint in any of its forms, and not missing or an SQL expression."""
    try:
        return to_bigint(value) is not None
    except TypeError:
        return False


def _ahead(key: str) -> str:
    """Return the key, in the info of an instance, of its texts and their value, until both are written."""
    return f"simsql.ahead.{key}"


def is_assigned(state: InstanceState[Any], key: str) -> bool:
    """Return whether the application has assigned a fingerprint since the object was flushed or loaded."""
    return _mark(key) not in state.info and _history(state, key).has_changes()


def _mark(key: str) -> str:
    """Return the key, in the info of an instance, of the mark for a computed fingerprint."""
    return f"simsql.computed.{key}"


def _history(state: InstanceState[Any], key: str) -> History:
    return get_history(state.object, key, PassiveFlag.PASSIVE_NO_INITIALIZE)


class _MergesAssigned:
    """A mapper property that Session.merge copies only if the application assigned its value.

    The object that gets the texts computes its own fingerprint. It could not tell an assigned fingerprint from
    that of another text, or of an earlier state of the row.
    """

    __slots__ = ()
    key: str

    def merge(
        self,
        session: Session,
        source_state: InstanceState[Any],
        source_dict: dict[str, Any],
        dest_state: InstanceState[Any],
        dest_dict: dict[str, Any],
        load: bool,
        *others: Any,
    ) -> None:
        """Merge the attribute if it was assigned. Without `load`, always merge it."""
        # In a new object None is an empty place.
        empty = source_state.key is None and is_missing(source_dict.get(self.key))
        if load and (empty or not is_assigned(source_state, self.key)):
            source_dict = {name: value for name, value in source_dict.items() if name != self.key}
        super().merge(session, source_state, source_dict, dest_state, dest_dict, load, *others)  # type: ignore[misc]


def _merge_assigned(property_: Any) -> None:
    """Make a mapper property merge in this way, without other changes."""
    kind = type(property_)
    if not issubclass(kind, _MergesAssigned):
        property_.__class__ = type(
            kind.__name__, (_MergesAssigned, kind), {"__slots__": (), "inherit_cache": True}
        )
