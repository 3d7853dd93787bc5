"""`simsql fingerprint`: the fingerprints of documents in files."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from simsql.cli._app import command
from simsql.cli._options import (
    Encode,
    NewRecipeName,
    Paths,
    Reading,
    number_option,
    option,
    parse_recipe,
    share_option,
)
from simsql.cli._terminal import Telling, print_skips
from simsql.documents import Report, printable
from simsql.errors import UsageError
from simsql.processes import usable_cores

if TYPE_CHECKING:
    from simsql.fingerprint import Recipe


def _writer(encode: Encode) -> Callable[[int], str]:
    if encode is Encode.SIGNED:
        from simsql.database import to_bigint

        return lambda fingerprint: str(to_bigint(fingerprint))
    template = {Encode.DECIMAL: "{}", Encode.HEX: "{:016x}", Encode.BITS: "{:064b}"}[encode]
    return template.format


@dataclass(frozen=True)
class _Querying:
    """The options of a query for similar texts: what it asks for, and the design of the index."""

    query: Annotated[bool, option("--query")] = False
    similarity: Annotated[float | None, share_option("--similarity", ", with --query; by default 0.6")] = None
    recall: Annotated[float | None, share_option("--recall", ", with --query; by default 0.99")] = None
    blocks: Annotated[
        int | None, number_option("--blocks", ", with --query; by default, as indexes choose it", least=1, most=64)
    ] = None
    lead: Annotated[int, number_option("--lead", ", with --query", least=1, most=64)] = 1
    inner_blocks: Annotated[int, number_option("--inner-blocks", ", with --query", least=0, most=64)] = 0

    def lines(self, items: Iterable[tuple[str, str]], recipe: Recipe) -> Iterator[list[str]]:
        """Yield the query of each text for each usual design; it is empty if the text has no fingerprint."""
        from simsql.database.similar import SimilarOptions, queries_for_text
        from simsql.hamming import Design
        from simsql.hamming.planner import usual_designs

        own = Design(self.blocks or Design().blocks, self.lead, self.inner_blocks)
        designs = usual_designs(distance=3) if self.blocks is None and own == Design() else [own]
        options: SimilarOptions = {"recall": self.recall}
        if self.similarity is not None:
            options["similarity"] = self.similarity
        for _, text in items:
            found = queries_for_text(text, None, recipe, designs, f"the recipe {recipe.id}", **options)
            yield [f"[{', '.join(query.json for query in found)}]" if found else ""]


@command("fingerprint")
def fingerprint_command(
    *,
    paths: Paths,
    recipe: NewRecipeName = None,
    encode: Annotated[Encode, option("--encode")] = Encode.DECIMAL,
    sketches: Annotated[bool, option("--sketches")] = False,
    workers: Annotated[int | None, number_option("--workers", "; one for stdin", least=1)] = None,
    querying: _Querying,
    reading: Reading,
    telling: Telling,
) -> None:
    """Print the fingerprint of every document.

    Print one line per document: the fingerprint, a tab and the id. The first field is empty if the document has no
    fingerprint. Documents that cannot be read are skipped and listed on stderr.
    """
    from simsql.fingerprint import DEFAULT_RECIPE, simhash_items, simhash_items_with_sketches

    made_by = parse_recipe(recipe) or DEFAULT_RECIPE
    if not querying.query and querying != _Querying():
        raise UsageError("the similarity, the recall and the design are those of a query: add --query")
    if querying.query and (sketches or encode is not Encode.DECIMAL):
        raise UsageError("--query prints queries: leave out --sketches and --encode")
    reader = reading.open(paths)

    def named_texts(report: Report) -> Iterator[tuple[str, str]]:
        for item in reader.documents(report):
            yield printable(item.name), item.text
            del item  # a long document is not kept while the next one is read

    compute: Callable[..., Iterator[tuple[Any, ...]]] = simhash_items_with_sketches if sketches else simhash_items
    write = _writer(encode)

    def fingerprints(items: Iterable[tuple[str, str]]) -> Iterator[list[str]]:
        for names, *numbers in compute(items, made_by, workers):
            fields = [["" if one is None else write(one) for one in column.tolist()] for column in numbers]
            yield ["\t".join(line) for line in zip(*fields, names, strict=True)]

    printed = 0
    if workers is None and reader.bytes_total is not None:
        workers = usable_cores()
    # A progress bar would break up the lines of the output.
    stage = telling.stages().stage("fingerprint", reader.bytes_total, shown=not sys.stdout.isatty())
    with stage as report, telling.remark_on_warnings():
        items = named_texts(report)
        for batch in querying.lines(items, made_by) if querying.query else fingerprints(items):
            sys.stdout.write("".join(line + "\n" for line in batch))
            sys.stdout.flush()
            printed += len(batch)
    if not printed:
        advice = ""
        if "-" in paths and not reading.lines and reader.skips.by_reason["not JSON"]:
            advice = "; use --lines to treat every line of stdin as a document"
        raise reader.nothing_found(advice)
    print_skips(reader.skips, telling.console, counted=True)
    reader.skips.check_read()
