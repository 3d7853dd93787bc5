"""Draw pairs of documents to label, and write them to a file."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from simsql.decide.rules import Rules
from simsql.dedup.comparing import Comparison
from simsql.dedup.sources.files import FileSource
from simsql.documents import DocumentReader, Stages, format_rows, open_output
from simsql.documents.output_formats import Format, format_of_file
from simsql.documents.spool import TextSpool, TokenSpool
from simsql.errors import SimsqlError
from simsql.evaluate.sampling import draw_pairs
from simsql.fingerprint import Recipe

_FIELDS = ("id_a", "id_b", "label", "kind", "distance", "similarity", "weight", "text_a", "text_b")
_LEAST = 0.3  # far below any that is worth reporting


def write_sample(
    output: Path | None,
    reader: DocumentReader,
    stages: Stages,
    *,
    pairs: int,
    seed: int,
    recipe: Recipe,
    by_features: bool,
    workers: int | None,
) -> None:
    """Write pairs of the documents of a reader, drawn as `draw_pairs` does, to a file.

    Without an output, write JSON lines to stdout. Similar ones are found as `simsql dedup` finds them. Raises
    SimsqlError if there are no two documents with words.
    """
    rules = Rules(64, _LEAST, by_features=by_features)
    with TokenSpool() as tokens, TextSpool() as texts:
        source = FileSource(reader, recipe, rules, workers, texts)
        comparison = Comparison(source.read(tokens, stages), tokens, rules)
        if np.count_nonzero(comparison.documents.compared) < 2:
            raise SimsqlError(f"fewer than two of {source.total:,} documents have words: nothing to label")
        with stages.stage("find pairs") as report:
            comparison.find_pairs(workers, report)
            drawn = draw_pairs(comparison, pairs, seed)
            similarity = comparison.compare(*(comparison.nodes.of_document[side] for side in drawn[:2]))

        def rows() -> Iterator[Sequence[Any]]:
            prints = comparison.documents.fingerprint
            distance = np.bitwise_count(prints[drawn.left] ^ prints[drawn.right])
            columns = (column.tolist() for column in (*drawn, distance, similarity.round(4)))
            for a, b, kind, weight, bits, alike in zip(*columns, strict=True):
                ids = source.names(np.array([a, b])).labels()
                # Half a surrogate pair is not a letter, and cannot be written to a file.
                both = [source.read_text(place).encode("utf-8", "replace").decode() for place in (a, b)]
                yield *ids, "", kind, bits, alike, round(weight, 4), *both

        with open_output(output) as stream:
            form = format_of_file(output) if output else Format.JSONL
            for line in format_rows(form, _FIELDS, rows()):
                stream.write(line)
