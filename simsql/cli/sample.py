"""`simsql sample`: pairs of documents to label."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from simsql.cli._app import command
from simsql.cli._options import (
    NewRecipeName,
    Paths,
    Quiet,
    Reading,
    Workers,
    distance_option,
    number_option,
    path_option,
)
from simsql.cli._recipes import parse_recipe
from simsql.cli._terminal import ProgressBars, messages, print_skips
from simsql.cores import usable_cores
from simsql.documents import (
    STDOUT,
    Outputs,
    Report,
    SkipCount,
    format_rows,
    nothing_found,
    open_output,
    read_documents,
)
from simsql.documents.output_formats import Format, format_of_file
from simsql.documents.spool import TextSpool
from simsql.errors import SimsqlError, UsageError
from simsql.evaluate.sampling import Drawn, draw_pairs
from simsql.fingerprint import DEFAULT_RECIPE, simhash_items, similarity_many

_FIELDS = ("id_a", "id_b", "label", "distance", "similarity", "weight", "text_a", "text_b")


@command("sample")
def sample_command(
    *,
    paths: Paths,
    pairs: Annotated[int, number_option("--pairs", ", at least one for each distance", least=1)] = 200,
    distance: Annotated[int, distance_option(" in a pair")] = 12,
    seed: Annotated[int, number_option("--seed", least=0)] = 0,
    recipe: NewRecipeName = None,
    output: Annotated[Path | None, path_option("--output", ": .csv, .tsv, or else JSON lines")] = None,
    reading: Reading,
    workers: Workers = None,
    quiet: Quiet = False,
) -> None:
    """Draw pairs of documents to label.

    Draw the same number of random pairs at every distance from 1 to --distance, or all where there are fewer.
    Write both texts of each pair, their distance and similarity, the number of pairs that it stands for (its
    weight), and an empty label. Fill in near-duplicate, not or unsure, and run simsql evaluate. Documents with
    equal fingerprints count as one.
    """
    if not distance:
        raise UsageError("--distance must be between 1 and 64: documents with equal fingerprints count as one")
    if pairs < distance:
        raise UsageError(f"--pairs must be at least {distance}, one for each distance, not {pairs}")
    made_by = parse_recipe(recipe) or DEFAULT_RECIPE
    outputs = Outputs({"--output": output or STDOUT})
    if recipe:
        outputs.refuse(Path(recipe))
    reader = reading.open(paths, outputs=outputs)
    console = messages(quiet=quiet)
    skips = SkipCount()
    stages = ProgressBars(console)
    with TextSpool() as texts:
        first: dict[int, int] = {}  # the number of the first document with each fingerprint
        names: list[str] = []
        places: dict[int, str] = {}  # of records, whose ids may be those of others, too

        def read_texts(report: Report) -> Iterator[tuple[int, str]]:
            for item in read_documents(reader, skips, report):
                texts.append(item.text)
                if item.name != item.place:
                    places[len(names)] = item.place
                names.append(item.name)
                yield len(names) - 1, item.text
                del item  # a long document is not kept while the next one is read

        with stages.stage("read and fingerprint", reader.bytes_total) as report:
            for numbers, fingerprints in simhash_items(read_texts(report), made_by, workers or usable_cores()):
                for number, fingerprint in zip(numbers, fingerprints.tolist(), strict=True):
                    if fingerprint is not None:
                        first.setdefault(fingerprint, number)
        if not names:
            raise SimsqlError(nothing_found(paths, skips))
        times = Counter(names)
        for number, place in places.items():
            if times[names[number]] > 1:
                names[number] = place
        with stages.stage("find pairs"):
            values = np.fromiter(first, np.uint64, len(first))
            drawn = draw_pairs(values, distance, pairs, seed=seed, workers=workers)
        if not len(drawn.left):
            raise SimsqlError(
                f"no two documents of {len(names):,} have different fingerprints within {distance} bits:"
                " there is nothing to label; try a larger --distance"
            )
        with open_output(output) as stream:
            form = format_of_file(output) if output else Format.JSONL
            for line in format_rows(form, _FIELDS, _rows(drawn, first, names, texts)):
                stream.write(line)
    print_skips(skips, console, counted=True)


def _rows(drawn: Drawn, first: dict[int, int], names: list[str], texts: TextSpool) -> Iterator[Sequence[Any]]:
    columns = (column.tolist() for column in drawn)
    for left, right, distance, weight in zip(*columns, strict=True):
        a, b = first[left], first[right]
        # Half a surrogate pair is not a letter, and cannot be written to a file.
        pair = [texts.read(number).encode("utf-8", "replace").decode() for number in (a, b)]
        (similarity,) = similarity_many(pair[:1], pair[1:]).tolist()
        yield names[a], names[b], "", distance, round(similarity, 4), round(weight, 4), *pair
