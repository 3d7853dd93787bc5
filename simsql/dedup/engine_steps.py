"""The steps of dedup on Arrow tables, for engines that run them in many processes, such as Spark or DuckDB.

`describe` turns texts into fingerprints, sketches, bands and digests. `compare` compares the texts of candidates,
and `decide_components` decides about the documents that similar pairs and crowds connect. `engine_job.py` has the
queries between these steps, which find the candidates.

A node is the documents with the same words: a binary of 16 bytes, and of 8 more if something is protected.
Fingerprints and sketches are bigints with the same bits.
"""

import numpy as np
import pyarrow as pa

from simsql.decide.criteria import criterion
from simsql.decide.documents import I64, U64, Documents, Flags, Nodes, group_nodes
from simsql.decide.kinds import DIGESTS, digests_of
from simsql.decide.rules import Rules
from simsql.decide.stars import SimilarPairs
from simsql.decide.verdicts import decide
from simsql.dedup.bands import Buckets, Crowded, Described, Sizes
from simsql.dedup.candidates import choose_similar
from simsql.dedup.crowds import Crowds
from simsql.documents.spool import TokenSpool, digest_tokens
from simsql.fingerprint import (
    BANDS,
    FOLDING_RECIPE,
    Minima,
    Tokens,
    compare_pairs,
    pairs_of,
    simhash_items_with_tokens,
    similarity_many,
)

_DIGESTS = [f"digest_{number}" for number in range(DIGESTS)]
DESCRIPTION = pa.schema(
    {
        "node": pa.binary(),
        "fingerprint": pa.int64(),
        "sketch": pa.int64(),
        "characters": pa.int64(),
        **dict.fromkeys(_DIGESTS, pa.int64()),
        "bands": pa.list_(pa.int64()),
    }
)
"""What `describe` returns beside the ids.

A band is its key of 32 bits and, above them, a bit with the number of the band.
"""
SIMILAR = pa.schema({"a": pa.binary(), "b": pa.binary(), "similarity": pa.float64()})
"""What `compare` returns, and `decide_components` takes: two nodes, and how similar they are."""
_WORDS = 16  # bytes of a digest


def decisions_of(id_type: pa.DataType) -> pa.Schema:
    """Return the schema of decisions about documents with ids of this type."""
    return pa.schema(
        {"id": id_type, "kept": id_type, "cluster": id_type, "similarity": pa.float64(), "kind": pa.string()}
    )


def describe(documents: pa.RecordBatch, rules: Rules) -> pa.RecordBatch:
    """Return the id, and the columns of `DESCRIPTION`, for the `id` and `text` of documents.

    Texts that are null and those without words are left out: they are similar to none.
    """
    texts = documents["text"].to_pylist()
    items = [(position, text) for position, text in enumerate(texts) if text is not None]
    positions: list[int] = []
    words: list[bytes] = []
    numbers, bands = [np.zeros((2, 0), dtype=np.uint64)], [np.zeros((0, BANDS), dtype=np.int64)]
    for some, fingerprints, tokens, minima in simhash_items_with_tokens(items, FOLDING_RECIPE):
        (chosen,) = np.nonzero(tokens.counts)
        digests_here = list(digest_tokens(tokens))
        positions += [some[position] for position in chosen]
        words += [digests_here[position] for position in chosen]
        numbers.append(np.stack([fingerprints.data[chosen], minima.sketches[chosen]]))
        bands.append(minima.bands[chosen].astype(np.int64) | 1 << np.arange(32, 32 + BANDS))
    digests = [digests_of(texts[position], rules.protect) for position in positions]
    if rules.protect:
        words = [
            word + kept.to_bytes(8, "big", signed=True) for word, (*_, kept) in zip(words, digests, strict=True)
        ]
    keys = np.concatenate(bands)
    columns = [
        documents["id"].take(pa.array(positions, pa.int64())),
        pa.array(words, pa.binary()),
        *(pa.array(column) for column in np.concatenate(numbers, axis=1).view(np.int64)),
        pa.array([len(texts[position]) for position in positions], pa.int64()),
        *(pa.array(column) for column in np.array(digests, dtype=np.int64).reshape(-1, DIGESTS).T),
        pa.ListArray.from_arrays(np.arange(0, keys.size + 1, BANDS, dtype=np.int32), keys.ravel()),
    ]
    return pa.record_batch(columns, schema=pa.schema([documents.schema.field("id"), *DESCRIPTION]))


def compare(pairs: pa.RecordBatch, rules: Rules) -> pa.RecordBatch:
    """Return the pairs that are similar, as in `SIMILAR`, given `a`, `b`, `a_text` and `b_text`."""
    similarity = similarity_many(pairs["a_text"].to_pylist(), pairs["b_text"].to_pylist()).data
    chosen = pa.array(np.flatnonzero(similarity >= rules.similarity))
    columns = [pairs["a"], pairs["b"], pa.array(similarity)]
    return pa.record_batch([column.take(chosen) for column in columns], schema=SIMILAR)


def decide_components(documents: pa.Table, pairs: pa.Table, rules: Rules, sizes: Sizes) -> pa.Table:
    """Return the decisions about documents, as in `decisions_of`.

    `documents` have an id, the columns of `DESCRIPTION` but sketches and bands, and whether they are `new`: others
    are an archive, about which nothing is decided. `pairs` have the columns of `SIMILAR`.
    There may be any number of components, each of them whole: the nodes that pairs and crowds connect, with all
    their documents. The first document of a node in a crowd has its `text` and, in `rare`, a bit for each band in
    which its bucket is rare; others have null. `kept` is the id of the document that is kept in favour of this
    one, its own if it is kept, `similarity` is that of their texts, and `kind` that of the drop. `cluster` is the
    id of the document that represents the cluster, null for a document that is alone.
    """
    documents = documents.sort_by("id")
    total = documents.num_rows
    fingerprint: U64 = documents["fingerprint"].to_numpy().view(np.uint64)
    characters = documents["characters"].to_numpy()
    digests = documents["node"].to_pylist()
    words = np.frombuffer(b"".join(digest[:_WORDS] for digest in digests), ">u8").reshape(-1, 2).astype(np.uint64)
    everything, none = np.ones(total, dtype=bool), np.zeros(total, dtype=np.int64)
    new = documents["new"].to_numpy()
    of_texts = np.stack([documents[column].to_numpy() for column in _DIGESTS], axis=1)
    table = Documents(fingerprint, words, everything, characters, ~new, of_texts)
    nodes = group_nodes(table, by_words=True)
    number = {digests[document]: node for node, document in enumerate(nodes.example.tolist())}
    left, right = (
        np.array([number[digest] for digest in pairs[side].to_pylist()], dtype=np.int64) for side in ("a", "b")
    )
    similar = SimilarPairs(left, right, pairs["similarity"].to_numpy())
    preferred = criterion(rules, np.arange(total), characters, none)
    id_ = documents["id"].combine_chunks()

    def order_by_name(positions: I64) -> I64:
        return np.array(sorted(positions.tolist(), key=lambda position: str(id_[position].as_py())))

    with TokenSpool() as spool:
        of_nodes = documents.select(["text", "rare"]).take(nodes.example)
        is_new = ~nodes.of_documents(~new) if rules.to_archive else None
        crowds = _crowds(of_nodes, nodes, is_new, rules, sizes, spool)
        verdicts = decide(table, nodes, similar, crowds, rules, preferred, order_by_name)
    cluster = pa.array(verdicts.representative, mask=verdicts.cluster == 0)
    columns = [
        id_,
        id_.take(pa.array(verdicts.kept)),
        id_.take(cluster),
        pa.array(verdicts.kept_similarity),
        pa.array(verdicts.kind, pa.string()),
    ]
    return pa.table(columns, schema=decisions_of(id_.type)).filter(pa.array(new))


def _crowds(
    found: pa.Table, nodes: Nodes, new: Flags | None, rules: Rules, sizes: Sizes, spool: TokenSpool
) -> Crowds:
    """Return the nodes in crowds, given the text and rare buckets of each node, null for others."""
    (members,) = np.nonzero(found["text"].is_valid().to_numpy())
    texts = found["text"].drop_null()
    minima = Minima.none(nodes.total)
    starts, counts = np.zeros((2, nodes.total), dtype=np.int64)
    first = 0
    for some, _, tokens, here in simhash_items_with_tokens(
        ((None, text.as_py()) for text in texts), FOLDING_RECIPE
    ):
        chosen = members[first : first + len(some)]
        first += len(some)
        minima.sketches[chosen], minima.bands[chosen] = here
        starts[chosen], counts[chosen] = spool.add_tokens(tokens), tokens.counts

    tokens_of = Tokens(counts, lambda some: spool.read_at(starts[some], counts[some]))
    rare = found["rare"].fill_null(0).to_numpy().astype(np.uint32)
    crowded = Crowded(sizes, members, rare)
    described = Described(nodes.fingerprint, minima.sketches, minima.bands.T)
    return Crowds(
        Buckets(described, rules.distance, rules.similarity, new, crowded),
        lambda left, right: choose_similar(compare_pairs(tokens_of, pairs_of(left, right)), rules.similarity),
    )
