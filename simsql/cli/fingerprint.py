"""`simsql fingerprint`: the fingerprints of documents in files."""

import sys
from collections.abc import Callable, Iterator
from typing import Annotated, Any

from simsql.cli._app import command
from simsql.cli._options import (
    Encode,
    NewRecipeName,
    Paths,
    Reading,
    number_option,
    option,
)
from simsql.cli._recipes import parse_recipe
from simsql.cli._terminal import Telling, print_skips
from simsql.documents import Report, printable
from simsql.errors import SimsqlError
from simsql.fingerprint import DEFAULT_RECIPE, simhash_items, simhash_items_with_sketches
from simsql.processes import usable_cores


def _writer(encode: Encode) -> Callable[[int], str]:
    if encode is Encode.SIGNED:
        from simsql.database import to_bigint  # noqa: PLC0415 - nothing else here needs SQLAlchemy

        return lambda fingerprint: str(to_bigint(fingerprint))
    template = {Encode.DECIMAL: "{}", Encode.HEX: "{:016x}", Encode.BITS: "{:064b}"}[encode]
    return template.format


@command("fingerprint")
def fingerprint_command(
    *,
    paths: Paths,
    recipe: NewRecipeName = None,
    encode: Annotated[Encode, option("--encode")] = Encode.DECIMAL,
    sketches: Annotated[bool, option("--sketches")] = False,
    lines: Annotated[bool, option("--lines")] = False,
    workers: Annotated[int | None, number_option("--workers", "; one for stdin", least=1)] = None,
    reading: Reading,
    telling: Telling,
) -> None:
    """Print the fingerprint of every document.

    Print one line per document: the fingerprint, a tab and the id. The first field is empty if the document has no
    fingerprint. Documents that cannot be read are skipped and listed on stderr.
    """
    made_by = parse_recipe(recipe) or DEFAULT_RECIPE
    reader = reading.open(paths, lines=lines)

    def named_texts(report: Report) -> Iterator[tuple[str, str]]:
        for item in reader.documents(report):
            yield printable(item.name), item.text
            del item  # a long document is not kept while the next one is read

    compute: Callable[..., Iterator[tuple[Any, ...]]] = simhash_items_with_sketches if sketches else simhash_items
    write = _writer(encode)
    printed = 0
    if workers is None and reader.bytes_total is not None:
        workers = usable_cores()
    # A progress bar would break up the lines of the output.
    with telling.stages().stage("fingerprint", reader.bytes_total, shown=not sys.stdout.isatty()) as report:
        for names, *numbers in compute(named_texts(report), made_by, workers):
            fields = [["" if one is None else write(one) for one in column.tolist()] for column in numbers]
            sys.stdout.write("".join("\t".join(line) + "\n" for line in zip(*fields, names, strict=True)))
            sys.stdout.flush()
            printed += len(names)
    if not printed:
        advice = ""
        if "-" in paths and not lines and reader.skips.by_reason["not JSON"]:
            advice = "; use --lines to treat every line of stdin as a document"
        raise SimsqlError(reader.nothing_found() + advice)
    print_skips(reader.skips, telling.console, counted=True)
    reader.skips.check_read()
