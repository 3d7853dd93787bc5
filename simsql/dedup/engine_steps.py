"""The steps of dedup on Arrow tables, for engines that run them in many processes, such as Spark or DuckDB.

`describe` turns texts into fingerprints, sketches and digests. The pairs that may be similar come from
`Candidates`, in independent tasks, or from `distribute` and `find_in_buckets`. `compare` compares their texts, and
`decide_components` decides about the documents that similar pairs connect. `engine_job.py` has the queries between
these steps.

Digests are 16 bytes of binary. Fingerprints and sketches are bigints with the same bits.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from simsql.decide.criteria import criterion
from simsql.decide.documents import U64, Documents, group_nodes
from simsql.decide.kinds import DIGESTS
from simsql.decide.rules import Rules
from simsql.decide.stars import SimilarPairs
from simsql.decide.verdicts import decide
from simsql.documents.spool import digest_tokens
from simsql.fingerprint import simhash_items_with_tokens, similarity_many, sketch_distance
from simsql.hamming import PairTask, pair_buckets, pair_tasks, pairs_in_buckets, pairs_of_task

DESCRIPTION = pa.schema(
    {"words": pa.binary(), "fingerprint": pa.int64(), "sketch": pa.int64(), "characters": pa.int64()}
)
"""What `describe` returns beside the ids."""
BUCKETS = pa.schema({"bucket": pa.int64(), "fingerprint": pa.int64(), "sketch": pa.int64()})
CANDIDATES = pa.schema({"a": pa.int64(), "b": pa.int64()})
"""Two fingerprints."""
SIMILAR = pa.schema({"a": pa.binary(), "b": pa.binary(), "similarity": pa.float64()})
"""What `compare` returns, and `decide_components` takes: the digests of two nodes, and how similar they are."""


def decisions_of(id_type: pa.DataType) -> pa.Schema:
    """Return the schema of decisions about documents with ids of this type."""
    return pa.schema({"id": id_type, "kept": id_type, "cluster": id_type, "similarity": pa.float64()})


def describe(documents: pa.RecordBatch) -> pa.RecordBatch:
    """Return the id, and the columns of `DESCRIPTION`, for the `id` and `text` of documents.

    `words` is a digest of the words of the text. `characters` is its length. Texts that are null and those without
    words are left out: they are similar to none.
    """
    texts = documents["text"].to_pylist()
    items = [(position, text) for position, text in enumerate(texts) if text is not None]
    positions: list[int] = []
    digests: list[bytes] = []
    numbers = [np.zeros((2, 0), dtype=np.uint64)]
    for some, fingerprints, tokens, minima in simhash_items_with_tokens(items):
        (chosen,) = np.nonzero(tokens.counts)
        digests_here = list(digest_tokens(tokens))
        positions += [some[position] for position in chosen]
        digests += [digests_here[position] for position in chosen]
        numbers.append(np.stack([fingerprints.data[chosen], minima.sketches[chosen]]))
    columns = [
        documents["id"].take(pa.array(positions, pa.int64())),
        pa.array(digests, pa.binary()),
        *(pa.array(column) for column in np.concatenate(numbers, axis=1).view(np.int64)),
        pa.array([len(texts[position]) for position in positions], pa.int64()),
    ]
    return pa.record_batch(columns, schema=pa.schema([documents.schema.field("id"), *DESCRIPTION]))


class Candidates:
    """The pairs of fingerprints whose texts may be similar, in tasks that any process can do.

    `nodes` has the fingerprint and the sketch of each node, which take 16 bytes. A task takes a few times that.
    """

    def __init__(self, nodes: pa.Table, rules: Rules) -> None:
        self._fingerprints, self._sketches = _unsigned(nodes, "fingerprint"), _unsigned(nodes, "sketch")
        self._rules = rules

    def tasks(self, parts: int) -> list[PairTask]:
        """Return the tasks; a pass over the fingerprints has up to this number of parts."""
        return pair_tasks(self._fingerprints, self._rules.distance, parts)

    def __call__(self, task: PairTask) -> Iterator[pa.RecordBatch]:
        """Yield the pairs of a task, as in `CANDIDATES`."""
        sketches = self._sketches, sketch_distance(self._rules.similarity)
        return map(_pairs, pairs_of_task(task, self._fingerprints, sketches=sketches))


def distribute(nodes: pa.RecordBatch, rules: Rules) -> pa.RecordBatch:
    """Return each fingerprint and sketch once for each of its buckets, as in `BUCKETS`."""
    buckets = pair_buckets(_unsigned(nodes, "fingerprint"), rules.distance)
    each = pa.array(np.repeat(np.arange(len(buckets)), buckets.shape[1]))
    columns = [pa.array(buckets.ravel()), nodes["fingerprint"].take(each), nodes["sketch"].take(each)]
    return pa.record_batch(columns, schema=BUCKETS)


def find_in_buckets(members: pa.Table, rules: Rules) -> pa.Table:
    """Return the pairs of fingerprints whose texts may be similar, as in `CANDIDATES`, given whole `BUCKETS`."""
    found = pairs_in_buckets(
        members["bucket"].to_numpy(),
        _unsigned(members, "fingerprint"),
        rules.distance,
        sketches=(_unsigned(members, "sketch"), sketch_distance(rules.similarity)),
    )
    return pa.Table.from_batches(map(_pairs, found), CANDIDATES)


def _unsigned(rows: pa.Table | pa.RecordBatch, name: str) -> U64:
    """Return a column of bigints as unsigned numbers with the same bits."""
    values: U64 = rows[name].to_numpy().view(np.uint64)
    return values


def _pairs(found: U64) -> pa.RecordBatch:
    signed = np.ascontiguousarray(found.T).view(np.int64)
    return pa.record_batch([pa.array(side) for side in signed], schema=CANDIDATES)


def compare(pairs: pa.RecordBatch, rules: Rules) -> pa.RecordBatch:
    """Return the pairs that are similar, as in `SIMILAR`, given `a`, `b`, `a_text` and `b_text`."""
    similarity = similarity_many(pairs["a_text"].to_pylist(), pairs["b_text"].to_pylist()).data
    chosen = pa.array(np.flatnonzero(similarity >= rules.similarity))
    columns = [pairs["a"], pairs["b"], pa.array(similarity)]
    return pa.record_batch([column.take(chosen) for column in columns], schema=SIMILAR)


def decide_components(documents: pa.Table, pairs: pa.Table, rules: Rules) -> pa.Table:
    """Return the decisions about documents: `id`, `kept`, `cluster` and `similarity`.

    `documents` have an id and the columns of `DESCRIPTION`, `pairs` those of `SIMILAR`. They may have any number
    of components, each of them whole: the nodes that pairs connect, with all their documents. `kept` is the id of
    the document that is kept in favour of this one, its own if it is kept, and `similarity` is that of their
    texts. `cluster` is the id of the document that represents the cluster, null for a document that is alone.
    """
    documents = documents.sort_by("id")
    total = documents.num_rows
    fingerprint = _unsigned(documents, "fingerprint")
    characters = documents["characters"].to_numpy()
    digests = documents["words"].to_pylist()
    words = np.frombuffer(b"".join(digests), ">u8").reshape(-1, 2).astype(np.uint64)
    everything, none = np.ones(total, dtype=bool), np.zeros(total, dtype=np.int64)
    table = Documents(
        fingerprint, words, everything, characters, ~everything, np.zeros((total, DIGESTS), np.int64)
    )
    nodes = group_nodes(table, by_words=True)
    number = {digests[document]: node for node, document in enumerate(nodes.example.tolist())}
    left, right = (
        np.array([number[digest] for digest in pairs[side].to_pylist()], dtype=np.int64) for side in ("a", "b")
    )
    similar = SimilarPairs(left, right, pairs["similarity"].to_numpy())
    preferred = criterion(rules, np.arange(total), characters, none)
    verdicts = decide(table, nodes, similar, None, rules, preferred, np.sort)
    id_ = documents["id"].combine_chunks()
    cluster = pa.array(verdicts.representative, mask=verdicts.cluster == 0)
    columns = [id_, id_.take(pa.array(verdicts.kept)), id_.take(cluster), pa.array(verdicts.kept_similarity)]
    return pa.table(columns, schema=decisions_of(id_.type))
