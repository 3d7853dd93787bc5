"""The main job for a table that exists: its rows in, decisions in a new table out."""

from contextlib import ExitStack

from sqlalchemy import Engine

from simsql.dedup.explaining import Explanation
from simsql.dedup.job import run_job
from simsql.dedup.sinks.table import DecisionTable, TableSink
from simsql.dedup.sources.rows import RowSource
from simsql.dedup.sources.table import TableOptions, open_table
from simsql.documents import Stages


def dedup_table(
    engine: Engine, options: TableOptions, stages: Stages
) -> tuple[RowSource, TableSink, Explanation | None]:
    """Decide about the rows of a table, and write the decisions to a new table.

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
        given = source, sink.write, options.rules, stages, files
        return source, sink, run_job(*given, workers=options.workers, explain=options.explain)
