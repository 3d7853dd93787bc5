"""The options of a job on a table."""

from dataclasses import dataclass, field
from pathlib import Path

from simsql.decide.rules import Rules
from simsql.documents import Outputs, printable
from simsql.errors import UsageError
from simsql.fingerprint import DEFAULT_RECIPE, Recipe


@dataclass(frozen=True)
class TableOptions:
    """The table to read, the rules, and the table to create for the decisions. Table names are as in SQL.

    Raises UsageError for options that exclude each other.
    """

    table: str
    text_column: str
    into: str | None = None
    """Only a run that explains has none."""
    scope_columns: tuple[str, ...] = ()
    """Compare only rows with equal values in these columns. Rows with a null in one of them are not decided."""
    where: str | None = None
    """Decide only about rows that meet this condition, an expression in SQL."""
    all_scopes: bool = False
    """Compare all rows, even if a simhash index of the table has a scope."""
    sketch_column: str | None = None
    """The column with the sketches of the texts; by default `sketch`, if there is one."""
    replace: bool = False
    """Replace the table of decisions that an earlier run has created."""
    rules: Rules = field(default_factory=Rules)
    recipe: Recipe = DEFAULT_RECIPE
    workers: int | None = None
    """Number of processes that compute fingerprints; None for this process only."""
    report: Path | None = None
    """The page to write."""
    explain: tuple[str, str] | None = None
    """The primary keys of two rows to explain, as PostgreSQL prints them, instead of writing decisions."""

    def outputs(self) -> Outputs:
        """Return the files that the run writes. Raises UsageError if they cannot be written."""
        return Outputs({"--report": self.report})

    def __post_init__(self) -> None:
        if self.explain and (self.into or self.replace or self.report):
            raise UsageError("--explain writes no decisions: leave out --into, --replace and --report")
        if self.explain and self.explain[0] == self.explain[1]:
            raise UsageError(f"{printable(self.explain[0])!r} is one row: name two different ones with --explain")
        if not (self.explain or self.into):
            raise UsageError("name the table for the decisions with --into")
        if self.all_scopes and self.scope_columns:
            raise UsageError("--all-scopes and --scope-column exclude each other: leave one out")
        if self.rules.by_file:
            raise UsageError(
                f"--keep {self.rules.keep} is for files: name a column, such as the time of the last change, with"
                " --keep-field"
            )
