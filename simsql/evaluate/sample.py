"""Draw pairs of documents to label, and write them to a file."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from simsql.documents import DocumentReader, Report, Stages, format_rows, open_output
from simsql.documents.output_formats import Format, format_of_file
from simsql.documents.spool import TextSpool
from simsql.errors import SimsqlError
from simsql.evaluate.sampling import Drawn, draw_pairs
from simsql.fingerprint import Recipe, simhash_items, similarity_many

_FIELDS = ("id_a", "id_b", "label", "distance", "similarity", "weight", "text_a", "text_b")


def write_sample(
    output: Path | None,
    reader: DocumentReader,
    stages: Stages,
    *,
    pairs: int,
    distance: int,
    seed: int,
    recipe: Recipe,
    workers: int | None,
) -> None:
    """Write pairs of the documents of a reader, drawn as `draw_pairs` does, to a file.

    Without an output, write JSON lines to stdout. Documents with equal fingerprints count as one. Raises
    SimsqlError if there are no documents, or no pairs within the distance.
    """
    with TextSpool() as texts:
        first: dict[int, int] = {}  # the number of the first document with each fingerprint
        names: list[str] = []
        places: dict[int, str] = {}  # of records, whose ids may be those of others, too

        def read_texts(report: Report) -> Iterator[tuple[int, str]]:
            for item in reader.documents(report):
                texts.append(item.text)
                if item.name != item.place:
                    places[len(names)] = item.place
                names.append(item.name)
                yield len(names) - 1, item.text
                del item  # a long document is not kept while the next one is read

        with stages.stage("read and fingerprint", reader.bytes_total) as report:
            for numbers, fingerprints in simhash_items(read_texts(report), recipe, workers):
                for number, fingerprint in zip(numbers, fingerprints.tolist(), strict=True):
                    if fingerprint is not None:
                        first.setdefault(fingerprint, number)
        if not names:
            raise SimsqlError(reader.nothing_found())
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


def _rows(drawn: Drawn, first: dict[int, int], names: list[str], texts: TextSpool) -> Iterator[Sequence[Any]]:
    columns = (column.tolist() for column in drawn)
    for left, right, distance, weight in zip(*columns, strict=True):
        a, b = first[left], first[right]
        # Half a surrogate pair is not a letter, and cannot be written to a file.
        pair = [texts.read(number).encode("utf-8", "replace").decode() for number in (a, b)]
        (similarity,) = similarity_many(pair[:1], pair[1:]).tolist()
        yield names[a], names[b], "", distance, round(similarity, 4), round(weight, 4), *pair
