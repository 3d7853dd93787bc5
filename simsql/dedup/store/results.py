"""Store the decisions about the documents of a table, and list their clusters."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any

import numpy as np
from psycopg import sql
from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ColumnElement,
    Double,
    MetaData,
    Table,
    Text,
    case,
    func,
    insert,
    not_,
    or_,
    select,
    text,
    update,
)
from sqlalchemy.sql.expression import cast

from simsql.database.transfer import copy_columns
from simsql.decide.documents import Documents
from simsql.decide.verdicts import Verdicts
from simsql.dedup.store.store import StoredDocument
from simsql.dedup.store.table import DECIDED, MEMBERS, DocumentTable


class Results:
    """The decisions about the documents of a table. Use it in the transaction that has merged the documents."""

    def __init__(self, table: DocumentTable) -> None:
        self._table = table
        self._connection = table.connection

    def save(self, documents: Documents, verdicts: Verdicts) -> None:
        """Write the decisions that have changed, and list the members of clusters."""
        kept, representative = documents.id[verdicts.kept], documents.id[verdicts.representative]
        stored = (
            documents.fresh  # it may have had a decision
            | (kept != documents.kept)
            | (representative != documents.representative)
        ) & ~verdicts.gone
        listed = np.flatnonzero(stored | (verdicts.cluster > 0))
        decided = Table(
            DECIDED,
            MetaData(),
            *(
                Column(name, BigInteger)
                for name in ("id", "cluster", "kept", "representative", "present", "stored")
            ),
            *(Column(name, Double) for name in ("kept_similarity", "representative_similarity")),
            prefixes=["TEMPORARY"],
        )
        decided.create(self._connection)
        values = {
            "id": documents.id,
            "cluster": verdicts.cluster,
            "kept": kept,
            "representative": representative,
            "present": verdicts.present.astype(np.int64),
            "stored": stored.astype(np.int64),
            # As bits: the same eight bytes in a binary COPY.
            "kept_similarity": verdicts.kept_similarity.view(np.int64),
            "representative_similarity": verdicts.representative_similarity.view(np.int64),
        }
        copy_columns(
            self._connection,
            sql.Identifier("pg_temp", DECIDED),
            {name: array[listed] for name, array in values.items()},
        )
        # Autovacuum does not see temporary tables, and without a number of rows the planner would loop.
        self._connection.execute(text(f"ANALYZE pg_temp.{DECIDED}"))
        if stored.any():
            self._update(decided)
        self._list_members(decided)

    def clusters(self) -> Iterator[list[StoredDocument]]:
        """Yield the documents of each cluster, the largest first. Works in later transactions, too."""
        members = _members()
        in_order = select(members).order_by(members.c.cluster, members.c.id).execution_options(yield_per=10_000)
        with self._connection.execute(in_order) as rows:
            documents = (StoredDocument(*row) for row in rows)
            for _, cluster in groupby(documents, key=attrgetter("cluster")):
                yield list(cluster)

    def find_named(self, name: str) -> Sequence[int]:
        """Return the ids of the documents of this name or, if there are none, at this place."""
        wanted = cast(name, Text)
        found = self._read_names(lambda names: names.c.name == wanted)
        return [row.id for row in found or self._read_names(lambda names: names.c.place == wanted)]

    def read_labels(self, ids: Iterable[int]) -> dict[int, str]:
        """Return the names of documents by id or, of documents that share theirs, the places."""
        rows = self._read_names(lambda names: names.c.id.in_(list(ids)))
        return {row.id: row.place if len(self.find_named(row.name)) > 1 else row.name for row in rows}

    def _read_names(self, chosen: Callable[[Any], ColumnElement[bool]]) -> Sequence[Any]:
        """Return id, name and place of documents: those of this run, or else of an earlier one."""
        table, staged = self._table.table, self._table.staged
        found = table.outerjoin(staged, staged.c.identity == table.c.identity)
        own = (func.coalesce(staged.c[name], table.c[name]).label(name) for name in ("name", "place"))
        names = select(table.c.id, *own).select_from(found).subquery()
        return self._connection.execute(select(names).where(chosen(names)).order_by(names.c.id)).all()

    def _update(self, decided: Table) -> None:
        table = self._table.table
        values: dict[str, ColumnElement[Any]] = {
            name: func.nullif(decided.c[name], table.c.id) for name in ("kept", "representative")
        }
        for name in ("kept_similarity", "representative_similarity"):
            values[name] = func.nullif(decided.c[name], cast("NaN", Double))
        differs = [table.c[name].is_distinct_from(value) for name, value in values.items()]
        statement = update(table).values(values).where(table.c.id == decided.c.id, decided.c.stored == 1)
        self._connection.execute(statement.where(or_(*differs)))

    def _list_members(self, decided: Table) -> None:
        members = _members()
        members.create(self._connection)
        table, staged = self._table.table, self._table.staged
        known = table.outerjoin(staged, staged.c.identity == table.c.identity)
        name = func.coalesce(staged.c.name, table.c.name)
        place = func.coalesce(staged.c.place, table.c.place)
        seen = staged.c.ordinal.is_not(None)
        # What came from standard input in earlier runs is not there any more.
        there = or_(seen, not_(func.pg_catalog.starts_with(table.c.place, cast("stdin:", Text))))
        names = select(name.label("name"), func.count().label("documents")).select_from(known).where(there)
        named = names.group_by(name).cte("named")
        same, placed = named.alias("same"), named.alias("placed")
        # A place that is also the name of its document counts among the names.
        taken = select(place.label("place")).distinct().select_from(known).where(there, place != name).cte("taken")
        found = decided.join(known, table.c.id == decided.c.id)
        found = found.outerjoin(same, same.c.name == name).outerjoin(placed, placed.c.name == place)
        found = found.outerjoin(taken, taken.c.place == name)
        itself = case((there, 1), else_=0)
        shared = func.coalesce(same.c.documents, 0) > itself
        misleading = func.coalesce(placed.c.documents, 0) > case((place == name, itself), else_=0)
        values = {
            "name": name,
            "place": place,
            "line": table.c.line,
            "identity": func.pg_catalog.replace(cast(table.c.identity, Text), "-", ""),
            "text_digest": func.pg_catalog.replace(cast(table.c.text_digest, Text), "-", ""),
            "seen": seen,
            "present": decided.c.present == 1,
            "shared": shared,
            "misleading": misleading,
            "mistakable": taken.c.place.is_not(None),
            "kept_similarity": func.nullif(decided.c.kept_similarity, cast("NaN", Double)),
            "representative_similarity": func.nullif(decided.c.representative_similarity, cast("NaN", Double)),
        }
        values |= {name: table.c[name] for name in ("id", "characters", "fingerprint")}
        values |= {name: decided.c[name] for name in ("cluster", "kept", "representative")}
        listed = select(*(values[name] for name in StoredDocument._fields))
        self._connection.execute(
            insert(members).from_select(
                StoredDocument._fields, listed.select_from(found).where(decided.c.cluster > 0)
            )
        )


def _members() -> Table:
    return Table(
        MEMBERS,
        MetaData(),
        *(Column(name, _TYPES.get(name, BigInteger)) for name in StoredDocument._fields),
        prefixes=["TEMPORARY"],
    )


_TYPES = {
    **dict.fromkeys(("name", "place", "identity", "text_digest"), Text),
    **dict.fromkeys(("seen", "present", "shared", "misleading", "mistakable"), Boolean),
    **dict.fromkeys(("kept_similarity", "representative_similarity"), Double),
}
