"""Print the summary of a run."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from simsql.dedup.job import DedupSummary
from simsql.dedup.loading import LoadSummary
from simsql.documents import SkipCount

_NOT_NAMED = {"binary", "link", "special file"}  # expected in any folder: only counted


def print_skips(skips: SkipCount, console: Console, *, counted: bool = False) -> None:
    """List the skipped documents, up to ten per reason, except those expected in any folder.

    With `counted`, count those too, because no table follows.
    """
    for skip in skips.examples:
        if skip.reason not in _NOT_NAMED:
            # As Text: a file name is not markup.
            console.print(Text(f"skipped {skip.place}: {skip.reason}: {skip.detail}"), soft_wrap=True)
    for reason, count in skips.by_reason.items():
        named = sum(skip.reason == reason for skip in skips.examples)
        if reason in _NOT_NAMED and counted:
            console.print(Text(f"skipped {count:,}: {reason}"), soft_wrap=True)
        elif reason not in _NOT_NAMED and count > named:
            console.print(Text(f"skipped {count - named:,} more: {reason}"), soft_wrap=True)


def print_summary(summary: DedupSummary, console: Console) -> None:
    """Print the results of a run: documents, skips by reason, clusters, seconds per stage."""
    print_skips(summary.skips, console)
    table = _new_table()
    table.add_row("documents", f"{summary.documents:,}")
    if summary.stored > summary.loaded.added:
        table.add_row("  new", f"{summary.loaded.added:,}")
        table.add_row("  with another text than before", f"{summary.loaded.changed:,}")
        table.add_row("  known already", f"{summary.loaded.unchanged:,}")
        table.add_row("documents in the table", f"{summary.stored:,}")
    _add_skips(table, summary.skips)
    found = summary.clusters
    table.add_row("clusters", f"{found.clusters:,}")
    table.add_row("  documents in them", f"{found.members:,}")
    if found.far:
        table.add_row("  farther from the representative", f"{found.far:,}")
    table.add_row("documents that could be dropped", f"{found.droppable:,}")
    if found.unlisted:
        table.add_row("  not in the drop list", f"{found.unlisted:,}")
    _add_seconds(table, summary.seconds)
    console.print(table)


def print_load_summary(summary: LoadSummary, console: Console) -> None:
    """Print the results of a load: documents, skips by reason, seconds."""
    print_skips(summary.skips, console)
    table = _new_table()
    table.add_row("documents", f"{summary.documents:,}")
    if summary.without_fingerprint:
        table.add_row("  without words: no fingerprint", f"{summary.without_fingerprint:,}")
    _add_skips(table, summary.skips)
    _add_seconds(table, summary.seconds)
    console.print(table)


def _new_table() -> Table:
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(justify="left")
    table.add_column(justify="right")
    return table


def _add_skips(table: Table, skips: SkipCount) -> None:
    table.add_row("skipped", f"{skips.by_reason.total():,}")
    for reason, count in skips.by_reason.most_common():
        table.add_row(Text(f"  {reason}"), f"{count:,}")


def _add_seconds(table: Table, seconds: dict[str, float]) -> None:
    table.add_row("seconds", f"{sum(seconds.values()):.2f}")
    for stage, spent in seconds.items():
        table.add_row(f"  {stage}", f"{spent:.2f}")
