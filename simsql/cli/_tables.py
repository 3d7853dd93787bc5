"""Tables of results on standard output."""

import sys

from rich.console import Console
from rich.table import Table


def print_table(table: Table) -> None:
    """Print a table. In a file or a pipe every row is one line, however long, and without colours."""
    at_terminal = sys.stdout.isatty()
    width = None if at_terminal else 1_000
    # FORCE_COLOR must not put escape sequences into a file.
    Console(highlight=False, width=width, force_terminal=None if at_terminal else False).print(table)
