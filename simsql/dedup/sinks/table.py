"""A new table with the decisions about the rows of another one, and a report on them."""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import Any
from uuid import uuid4

import numpy as np
import psycopg
from psycopg import sql
from sqlalchemy import Engine

from simsql.database.transfer import raw_connection
from simsql.decide.documents import I64
from simsql.dedup.members import Decisions
from simsql.dedup.remarks import KindCount
from simsql.dedup.sources.rows import RowSource
from simsql.dedup.sources.table import UNSTEADY, SourceTable, TableOptions
from simsql.documents import SkipCount, Stages, open_output
from simsql.documents.spool import TextSpool
from simsql.errors import SimsqlError, UsageError

# Prefixes of the key columns: of the row that is kept, and of the row that represents the cluster.
_KEPT, _REPRESENTATIVE = "kept_", "representative_"
_RESULTS = ("distance", "similarity", "drop", "kind", "text_digest", "kept_text_digest")
_LONGEST_NAME = 63  # bytes of a name in PostgreSQL
_WRITTEN_ROWS = 5_000
# The comment of a table that this module has made.
_MARK = "decisions of simsql dedup-table"

# The decisions before the keys of the rows take the places of their versions.
_STAGE = (
    "CREATE TEMPORARY TABLE {staged} (part pg_catalog.oid, place pg_catalog.tid, kept_part pg_catalog.oid,"
    " kept_place pg_catalog.tid, star_part pg_catalog.oid, star_place pg_catalog.tid, distance pg_catalog.int4,"
    " similarity pg_catalog.float8, drop pg_catalog.bool, kind pg_catalog.text) ON COMMIT DROP"
)
# One statement creates the table and fills it. An INSERT would name it again, and by then the owner of the schema
# could have put another one, with triggers, in its place. Each text is read and digested once.
_CREATE = (
    "CREATE TABLE {new} AS"
    " WITH decided AS MATERIALIZED ("
    "SELECT t.tableoid, t.ctid, {keys},"
    " pg_catalog.sha256(pg_catalog.convert_to({text}, 'UTF8')) AS text_digest"
    " FROM {rows_of} AS t WHERE {guard} AND EXISTS (SELECT FROM {staged} AS v"
    " WHERE v.place OPERATOR(pg_catalog.=) t.ctid AND v.part OPERATOR(pg_catalog.=) t.tableoid))"
    " SELECT {keys}, {kept_keys}, v.distance, v.similarity, v.drop, {representative_keys}, v.kind, t.text_digest,"
    " k.text_digest AS kept_text_digest FROM {staged} AS v"
    " JOIN decided AS t ON t.ctid OPERATOR(pg_catalog.=) v.place"
    " AND t.tableoid OPERATOR(pg_catalog.=) v.part"
    " JOIN decided AS k ON k.ctid OPERATOR(pg_catalog.=) v.kept_place"
    " AND k.tableoid OPERATOR(pg_catalog.=) v.kept_part"
    " JOIN decided AS s ON s.ctid OPERATOR(pg_catalog.=) v.star_place"
    " AND s.tableoid OPERATOR(pg_catalog.=) v.star_part"
    " WITH {no}DATA"
)


class DecisionTable:
    """The table of decisions about the rows of a table, in whose transaction it is created.

    `into` is a name as in SQL; with `replace`, a table of decisions of that name is replaced. Raises UsageError
    for a name that is taken, or not fit, and psycopg.Error for missing privileges.
    """

    def __init__(self, engine: Engine, source: SourceTable, into: str, *, replace: bool) -> None:
        self._engine = engine
        self._source = source
        self._raw = source.raw
        self._into = into
        self._replace = replace
        schema, self._relation = self._find_place()
        self._parts = {
            "into": sql.Identifier(*schema, self._relation),
            # Readers of an earlier table wait only when this one takes its name.
            "new": sql.Identifier(*schema, f"simsql_{uuid4().hex}"),
            "staged": sql.Identifier("pg_temp", "simsql_decided"),
        }
        self._check_names()
        self._execute(_STAGE)
        with self._raw.transaction(force_rollback=True):
            self._create(filled=False)  # so that a run that cannot do it fails early

    def write(self, batches: Iterable[list[str]]) -> Iterator[int]:
        """Create the table of decisions, with its primary key, given lines for COPY. Yield their number so far."""
        copied = 0
        statement = self._source.compose("COPY {staged} FROM STDIN", **self._parts)
        with self._raw.cursor() as cursor, cursor.copy(statement) as copy:
            for lines in batches:
                copy.write("\n".join([*lines, ""]))
                copied += len(lines)
                yield copied
        self._execute("ANALYZE {staged}")
        if self._create(filled=True) != copied:
            raise SimsqlError(UNSTEADY)

    def _find_place(self) -> tuple[list[str], str]:
        parts, current = self._raw.execute(
            "SELECT pg_catalog.parse_ident(%s), pg_catalog.current_schema()", [self._into]
        ).fetchall()[0]
        if len(parts) > 2 or max(len(part.encode()) for part in parts) > _LONGEST_NAME:
            raise UsageError(
                f"{self._into!r} is not the name of a table: write it as decisions or app.decisions, with parts of"
                f" up to {_LONGEST_NAME} bytes"
            )
        if parts[0].startswith("pg_temp"):
            raise UsageError(f"{self._into} would end with this run: choose a schema that stays")
        if len(parts) == 1 and current:
            parts = [current, *parts]  # in full: a temporary table would come before another one of its bare name
        return parts[:-1], parts[-1]

    def _check_names(self) -> None:
        seen = set(_RESULTS)
        for column in (prefix + key for prefix in ("", _KEPT, _REPRESENTATIVE) for key in self._source.keys):
            why = f"two columns of the decisions would be named {column}" if column in seen else ""
            if len(column.encode()) > _LONGEST_NAME:
                why = f"the name {column} of a column of the decisions would be longer than {_LONGEST_NAME} bytes"
            if why:
                raise UsageError(f"{why}: rename the key column of {self._source.name}")
            seen.add(column)

    def _create(self, *, filled: bool) -> int:
        """Create the table, with the staged decisions if `filled`, and return their number."""
        source = self._source
        created = self._execute(
            _CREATE,
            keys=source.key_columns("t"),
            text=source.text_at("t"),
            kept_keys=source.key_columns("k", _KEPT),
            representative_keys=source.key_columns("s", _REPRESENTATIVE),
            no=sql.SQL("" if filled else "NO "),
        )
        self._execute("COMMENT ON TABLE {new} IS {mark}", mark=sql.Literal(_MARK))
        if self._replace:
            self._drop_earlier()
        try:
            self._execute("ALTER TABLE {new} RENAME TO {relation}", relation=self._relation)
        except (psycopg.errors.DuplicateTable, psycopg.errors.UniqueViolation):  # the latter: just now
            raise UsageError(
                f"{self._into} exists already: choose another name with --into, or use --replace to replace the"
                " decisions of an earlier run"
            ) from None
        keys = sql.SQL(", ").join(map(sql.Identifier, source.keys))
        self._execute("ALTER TABLE {into} ADD PRIMARY KEY ({keys})", keys=keys)
        return created

    def _drop_earlier(self) -> None:
        """Drop the table of an earlier run. Raises UsageError if another one has its name."""
        name = [self._parts["into"].as_string(self._raw)]
        if self._raw.execute("SELECT pg_catalog.to_regclass(%s)", name).fetchone() == (None,):
            return
        self._execute("LOCK TABLE {into} IN ACCESS EXCLUSIVE MODE")
        marks = "SELECT pg_catalog.obj_description(pg_catalog.to_regclass(%s), 'pg_class')"
        # The snapshot of the run may be older than the table, or than its comment.
        with self._engine.connect() as connection:
            mark = raw_connection(connection).execute(marks, name).fetchone()
        if mark != (_MARK,):
            raise UsageError(
                f"{self._into} was not created by simsql dedup-table: choose another name with --into, or drop it"
                " if you no longer need it"
            )
        try:
            self._execute("DROP TABLE {into}")
        except psycopg.errors.DependentObjectsStillExist as error:
            raise UsageError(
                f"{self._into} cannot be replaced ({error.diag.message_detail}): choose another name with --into,"
                " or drop what depends on it"
            ) from None

    def _execute(self, statement: str, **parts: sql.Composable | str) -> int:
        return self._raw.execute(self._source.compose(statement, **self._parts, **parts)).rowcount


class TableSink:
    """Writes the decisions of a job on rows to `table`, if there is one, and a report, if it is wanted."""

    def __init__(self, source: RowSource, table: DecisionTable | None, options: TableOptions) -> None:
        self.decided = self.clusters = self.members = self.droppable = 0
        """Numbers of rows, and of clusters."""
        self.kinds = KindCount()
        self._source = source
        self._table = table
        self._options = options

    def write(self, decisions: Decisions, stages: Stages, files: ExitStack) -> None:
        """Write the decisions, and count them."""
        assert self._table  # noqa: S101 - only a run that explains has none
        verdicts = decisions.verdicts
        # Also rows that are kept without having been compared.
        (decided,) = np.nonzero(decisions.comparison.corpus.features.has_fingerprint)
        dropped = decided[verdicts.kept[decided] != decided]
        self.decided, self.droppable = len(decided), len(dropped)
        for kind, kept in zip(verdicts.kind[dropped].tolist(), verdicts.kept[dropped].tolist(), strict=True):
            self.kinds.add(kind, kept)
        sizes = np.bincount(verdicts.representative, minlength=1)
        self.clusters, self.members = int(np.count_nonzero(sizes > 1)), int(sizes[sizes > 1].sum())
        with stages.stage("write decisions", self.decided) as report:
            for written in self._table.write(self._lines(decisions, decided)):
                report(written)
        if self._options.report:
            with stages.stage("write report"), TextSpool() as texts:
                page = files.enter_context(open_output(self._options.report))
                self._write_report(page, decisions, texts)
                page.flush()

    def _lines(self, decisions: Decisions, decided: I64) -> Iterator[list[str]]:
        """Yield the decisions about these rows as lines for COPY."""
        source, verdicts, fingerprint = (
            self._source,
            decisions.verdicts,
            decisions.comparison.documents.fingerprint,
        )
        for start in range(0, len(decided), _WRITTEN_ROWS):
            row = decided[start : start + _WRITTEN_ROWS]
            kept = verdicts.kept[row]
            columns = [
                *(source.table.spell(source.place[some]) for some in (row, kept, verdicts.representative[row])),
                map(str, np.bitwise_count(fingerprint[row] ^ fingerprint[kept]).tolist()),
                (r"\N" if np.isnan(value) else repr(value) for value in verdicts.kept_similarity[row].tolist()),
                map(str, (kept != row).tolist()),
                (kind or r"\N" for kind in verdicts.kind[row].tolist()),
            ]
            yield ["\t".join(line) for line in zip(*columns, strict=True)]

    def _write_report(self, page: Any, decisions: Decisions, texts: TextSpool) -> None:
        """Write the report. The texts of clusters are read again, as the same snapshot shows them."""
        # Here: the templates take longer to import than a short run.
        from simsql.dedup.sinks.report import write_run_report  # noqa: PLC0415

        source = self._source
        (members,) = np.nonzero(decisions.verdicts.cluster)
        number = source.load(members, texts)
        if len(number) < len(members):
            raise SimsqlError(UNSTEADY)
        undecided = SkipCount()
        undecided.by_reason.update({reason: count for reason, count in source.undecided().items() if count})
        write_run_report(
            page,
            decisions,
            self._options.recipe,
            lambda row: None if set("\n\r") & set(row.name) else row.name,
            documents=self.decided,
            read_text=lambda row: texts.read(number[row]),
            skipped={"not decided": undecided},
            noun="row",
        )
