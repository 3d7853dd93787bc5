"""The main job for a table that exists: its rows in, decisions in a new table out."""

from contextlib import ExitStack
from dataclasses import dataclass

from sqlalchemy import Engine

from simsql.dedup.explaining import Explanation
from simsql.dedup.job import run_job
from simsql.dedup.sinks.table import DecisionTable, TableSink
from simsql.dedup.sources.rows import RowSource
from simsql.dedup.sources.table import open_table
from simsql.dedup.sources.table_options import TableOptions
from simsql.documents import Stages


@dataclass(frozen=True)
class TableSummary:
    """The results of a run, in rows."""

    read: int
    without_scope: int
    """Rows with a null in a scope column. No decision is written about them."""
    without_text: int
    """Rows whose text is null. No decision is written about them."""
    without_words: int
    """Rows whose text has no fingerprint. No decision is written about them."""
    stored_column: str | None
    """The column whose fingerprints were used, if any."""
    ignored: str | None
    """Which column of fingerprints or sketches was not used, and why."""
    stored: int
    """Rows whose fingerprint was used."""
    unread: int
    """Rows whose text was not read, because no other row has a near fingerprint and a near sketch."""
    decided: int
    clusters: int
    members: int
    """Rows in clusters."""
    droppable: int
    explanation: Explanation | None


def dedup_table(engine: Engine, options: TableOptions, stages: Stages) -> TableSummary:
    """Decide about the rows of a table, write the decisions to a new table, and return a summary.

    The rows are those of one snapshot; other sessions read and write the table all the while. A run that fails or
    is interrupted leaves neither a table nor a report, and a run that explains writes neither. Raises UsageError
    and psycopg.Error as `open_table`, `SourceTable.find` and `DecisionTable` do.
    """
    options.outputs()
    # In this order: the report takes its name after the table has come into being.
    with ExitStack() as files, open_table(engine, options) as table:
        source = RowSource(table, options)
        into = DecisionTable(engine, table, options.into, replace=options.replace) if options.into else None
        sink = TableSink(source, into, options)
        explanation = run_job(
            source, sink, options.rules, stages, files, workers=options.workers, explain=options.explain
        )
    without_scope, without_text, without_words = source.undecided().values()
    return TableSummary(
        len(source.order.place),
        without_scope,
        without_text,
        without_words,
        source.columns.fingerprint,
        source.columns.ignored,
        source.stored,
        len(source.alone),
        sink.decided,
        sink.clusters,
        sink.members,
        sink.droppable,
        explanation,
    )
