"""The results of --explain on stdout."""

from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING

from simsql.documents import printable
from simsql.documents.output_formats import Format, print_json

if TYPE_CHECKING:  # commands without a database do not wait for the imports
    from simsql.database.explain_row import ExplainedRow
    from simsql.dedup.explaining import Explanation


def print_explanation(
    form: Format | None, found: "Explanation | ExplainedRow", names: Iterable[str], verdict: str
) -> None:
    """Print what decided: a line of JSON, or the names of what it is about, the measures, and the reason."""
    from simsql.fingerprint import show_similarity

    if form is Format.JSONL:
        print_json(asdict(found))
        return
    for name in names:
        print(printable(name))
    if found.distance is not None:
        print(f"distance    {found.distance}")
    if found.sketch_estimate is not None:
        print(f"estimate    {show_similarity(found.sketch_estimate)}")
    if found.similarity is not None:
        print(f"similarity  {show_similarity(found.similarity)}")
    print(f"{verdict}: {found.reason}")


def print_explained_pair(form: Format | None, found: "Explanation") -> None:
    names = [document.id for document in found.documents]
    print_explanation(form, found, names, "together" if found.together else "apart")
