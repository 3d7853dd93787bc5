"""The MinHash tools, each as a program of its own: from a file of JSON lines to an array of pairs or clusters.

    python -m benchmarks.compare.minhash TOOL documents.jsonl answer.npy [URL of a database]

Settings are those that the documentation of each tool shows for texts, with word trigrams and, where there is a
threshold, a Jaccard index of 0.6. The candidates of the indexes are then compared by their trigrams, as simsql
compares texts.
"""

import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from benchmarks.compare.corpus import SIMILAR, Answer, by_clusters, exact_pairs

PERMUTATIONS = 128
_WORD = re.compile(r"\w+")


def gaoya(texts: list[str]) -> Answer:
    """Insert and query all texts in parallel, with the bands of gaoya's README."""
    from gaoya.minhash import MinHashStringIndex  # noqa: PLC0415 - only one of the tools is needed

    index = MinHashStringIndex(
        hash_size=32, jaccard_threshold=0.5, num_bands=42, band_size=3, ngram_range=(3, 3), lowercase=True
    )
    index.par_bulk_insert_docs(list(range(len(texts))), texts)
    found = index.par_bulk_query(texts)
    return exact_pairs(
        ((other, place) for place, others in enumerate(found) for other in others if other < place),
        list(map(set, _trigrams(texts))),
    )


def datasketch(texts: list[str]) -> Answer:
    """Query and insert each text, in an index for the threshold."""
    from datasketch import MinHash, MinHashLSH  # noqa: PLC0415

    index = MinHashLSH(threshold=SIMILAR, num_perm=PERMUTATIONS)
    trigrams = list(_trigrams(texts))
    candidates = []
    for place, own in enumerate(trigrams):
        signature = MinHash(num_perm=PERMUTATIONS)
        signature.update_batch([trigram.encode() for trigram in own])
        candidates += [(other, place) for other in index.query(signature)]
        index.insert(place, signature)
    return exact_pairs(candidates, list(map(set, trigrams)))


def rensa(texts: list[str]) -> Answer:
    """Query and insert the signature of each text, which are made all at once."""
    from rensa import RMinHash, RMinHashLSH  # noqa: PLC0415

    trigrams = list(_trigrams(texts))
    index = RMinHashLSH(SIMILAR, PERMUTATIONS, 32)
    candidates = []
    for place, signature in enumerate(RMinHash.from_token_sets(trigrams, PERMUTATIONS, 42)):
        candidates += [(other, place) for other in index.query(signature)]
        index.insert(place, signature)
    return exact_pairs(candidates, list(map(set, trigrams)))


def dedup_pg(texts: list[str], url: str) -> Answer:
    """Ask for the cluster of each text by runs of three characters, as the README shows."""
    from dedup_pg.helpers import n_grams  # noqa: PLC0415

    return _ask_dedup_pg((n_grams(text, n=3) for text in texts), url)


def dedup_pg_words(texts: list[str], url: str) -> Answer:
    """Ask for the cluster of each text by runs of three words."""
    return _ask_dedup_pg(_trigrams(texts), url)


def _ask_dedup_pg(tokens: Iterator[list[str]], url: str) -> Answer:
    from dedup_pg import DedupIndex  # noqa: PLC0415
    from dedup_pg.backend.sqlalchemy import SQLAlchemyBackend  # noqa: PLC0415
    from sqlalchemy import MetaData, create_engine  # noqa: PLC0415

    metadata, engine = MetaData(), create_engine(url)
    index = DedupIndex(SQLAlchemyBackend(engine=engine, base_or_metadata=metadata, table_name="dedup_index"))
    metadata.drop_all(engine)
    metadata.create_all(engine)
    clusters: dict[object, list[int]] = {}
    count = 0
    for own in tokens:
        # As bytes: from version 4 on, xxhash takes no strings.
        cluster = index.query(token.encode() for token in own)
        clusters.setdefault(cluster, []).append(count)
        count += 1
    return by_clusters(count, clusters.values())


TOOLS: dict[str, Callable[..., Answer]] = {
    tool.__name__: tool for tool in (gaoya, datasketch, rensa, dedup_pg, dedup_pg_words)
}


def _trigrams(texts: list[str]) -> Iterator[list[str]]:
    for text in texts:
        words = _WORD.findall(text.lower())
        yield list(map(" ".join, zip(words, words[1:], words[2:], strict=False)))


def main(tool: str, source: str, target: str, *url: str) -> None:
    """Read the texts, let the tool find near-duplicates, and write them."""
    with Path(source).open(encoding="utf-8") as lines:
        texts = [json.loads(line)["text"] for line in lines]
    np.save(target, TOOLS[tool](texts, *url))


if __name__ == "__main__":
    main(*sys.argv[1:])
