"""The steps of dedup on Arrow tables, for engines that run them in many processes, such as Spark or DuckDB.

`describe` turns texts into fingerprints, sketches and digests. `Candidates` finds the pairs that may be similar, in
independent tasks. `compare` compares their texts, and `decide_components` decides about the documents that similar
pairs connect. `engine_job.py` has the queries between these steps.

Digests are 16 bytes of binary. Fingerprints and sketches are bigints with the same bits.
"""

from collections.abc import Iterator
from hashlib import blake2b

import numpy as np
import pyarrow as pa

from simsql.decide.criteria import criterion
from simsql.decide.documents import NONE, PRESENT, U64, Documents, group_nodes
from simsql.decide.rules import Rules
from simsql.decide.stars import SimilarPairs, Stars
from simsql.decide.verdicts import Evidence, decide
from simsql.errors import UsageError
from simsql.fingerprint import TokenLists, simhash_items_with_tokens, similarity_many
from simsql.hamming._join import Join, Task
from simsql.runs import consecutive, portions

_DIGEST = 16
# Candidates that are yielded together.
_LISTED = 1 << 18

DESCRIPTION = pa.schema(
    {"words": pa.binary(), "fingerprint": pa.int64(), "sketch": pa.int64(), "characters": pa.int64()}
)
"""What `describe` returns beside the ids."""
CANDIDATES = pa.schema(
    dict.fromkeys(("a_fingerprint", "a_sketch", "b_fingerprint", "b_sketch"), pa.int64())
)
"""What a task of `Candidates` yields."""
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
    positions, fingerprints, digests = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.uint64), b""
    for some, found, tokens in simhash_items_with_tokens(items):
        (chosen,) = np.nonzero(tokens.counts)
        positions = np.concatenate([positions, np.array(some)[chosen]])
        fingerprints = np.concatenate([fingerprints, found.data[chosen]])
        digests += _digests(tokens)
    columns = [
        documents["id"].take(pa.array(positions)),
        pa.array([digests[start : start + _DIGEST] for start in range(0, len(digests), _DIGEST)], pa.binary()),
        pa.array(fingerprints.view(np.int64)),
        pa.array(np.zeros(len(positions), dtype=np.int64)),
        pa.array([len(texts[position]) for position in positions], pa.int64()),
    ]
    return pa.record_batch(columns, schema=pa.schema([documents.schema.field("id"), *DESCRIPTION]))


def _digests(tokens: TokenLists) -> bytes:
    """Return the digests of texts with tokens, one after the other."""
    data = np.ascontiguousarray(tokens.hashes).view(np.uint8).data
    ends = 8 * np.cumsum(tokens.counts)
    bounds = zip((ends - 8 * tokens.counts).tolist(), ends.tolist(), strict=True)
    return b"".join(
        blake2b(data[start:end], digest_size=_DIGEST).digest() for start, end in bounds if start < end
    )


def check_rules(rules: Rules) -> None:
    """Raise UsageError for rules that do not compare texts, or have a field that decides."""
    if not rules.checks_texts or rules.keep_field is not None:
        raise UsageError("on an engine, the similarity must be above 0, and no field can decide")


class Candidates:
    """The pairs of nodes whose texts have to be compared, in tasks that can run anywhere.

    `fingerprint` and `sketch` are the columns of nodes, int64; pairs of nodes in which both agree are not found. A
    task is called, and yields batches of `CANDIDATES`. Each pair comes once. The object takes 16 bytes for each node;
    a call takes a few times that.
    """

    def __init__(self, nodes: pa.Table, rules: Rules) -> None:
        fingerprints, sketches = (
            nodes[name].to_numpy().view(np.uint64) for name in ("fingerprint", "sketch")
        )
        order = np.lexsort([sketches, fingerprints])
        self._fingerprints, self._sketches = fingerprints[order], sketches[order]
        self._join = Join(np.unique(fingerprints), rules.distance)
        self._bits = 64

    def tasks(self, parts: int) -> list[Task | None]:
        """Return the tasks."""
        return [None, *self._join.tasks(parts)]

    def __call__(self, task: Task | None) -> Iterator[pa.RecordBatch]:
        """Yield the pairs of a task."""
        if task is None:
            values, counts = np.unique(self._fingerprints, return_counts=True)
            shared = values[counts > 1]
            yield from self._expand(np.stack([shared, shared], axis=1))
            return
        for pairs in self._join(task):
            yield from self._expand(pairs)

    def _expand(self, pairs: U64) -> Iterator[pa.RecordBatch]:
        """Yield the nodes of pairs of fingerprints whose sketches are near."""
        starts = np.searchsorted(self._fingerprints, pairs)
        sizes = np.searchsorted(self._fingerprints, pairs, side="right") - starts
        for some in portions(sizes.prod(axis=1), _LISTED):
            left = consecutive(starts[some, 0], sizes[some, 0])
            of_pair = np.repeat(np.arange(some.start, some.stop), sizes[some, 0])
            first, count = starts[of_pair, 1], sizes[of_pair, 1]
            one, other = np.repeat(left, count), consecutive(first, count)
            near = np.bitwise_count(self._sketches[one] ^ self._sketches[other]) <= self._bits
            # Of two nodes with the same fingerprint, the smaller one comes first.
            near &= (self._fingerprints[one] != self._fingerprints[other]) | (one < other)
            chosen = [
                column[side[near]].view(np.int64)
                for side in (one, other)
                for column in (self._fingerprints, self._sketches)
            ]
            yield pa.record_batch(chosen, schema=CANDIDATES)


def compare(pairs: pa.RecordBatch, rules: Rules) -> pa.RecordBatch:
    """Return the pairs that are similar, as in `SIMILAR`, given `a`, `b`, `a_text` and `b_text`."""
    similarity = similarity_many(pairs["a_text"].to_pylist(), pairs["b_text"].to_pylist()).data
    chosen = pa.array(np.flatnonzero(similarity >= rules.similarity))
    columns = [pairs["a"], pairs["b"], pa.array(similarity)]
    return pa.record_batch([column.take(chosen) for column in columns], schema=SIMILAR)


def decide_components(documents: pa.Table, pairs: pa.Table, rules: Rules) -> pa.Table:
    """Return the decisions about documents: `id`, `kept`, `cluster` and `similarity`.

    `documents` have an id and the columns of `DESCRIPTION`, `pairs` those of `SIMILAR`. They may have any number of
    components, each of them whole: the nodes that pairs connect, with all their documents. `kept` is the id of the
    document that is kept in favour of this one, its own if it is kept, and `similarity` is that of their texts.
    `cluster` is the id of the document that represents the cluster, null for a document that is alone.
    """
    documents = documents.sort_by("id")
    total = documents.num_rows
    fingerprint, characters = (documents[name].to_numpy() for name in ("fingerprint", "characters"))
    digests = documents["words"].to_pylist()
    words = np.frombuffer(b"".join(digests), ">u8").reshape(-1, 2).astype(np.uint64)
    ids, everything = np.arange(total), np.ones(total, dtype=bool)
    table = Documents.without_decisions(
        ids, fingerprint.view(np.uint64), words, everything, characters, everything
    )
    nodes = group_nodes(table, everything, by_words=True)
    number = {digests[document]: node for node, document in enumerate(nodes.example.tolist())}
    left, right = (
        np.array([number[digest] for digest in pairs[side].to_pylist()], dtype=np.int64)
        for side in ("a", "b")
    )
    free = np.full(nodes.total, NONE)
    verdicts = decide(
        table,
        nodes,
        Evidence(
            Stars(free, free),
            SimilarPairs(left, right, pairs["similarity"].to_numpy()),
            np.full(total, PRESENT, dtype=np.int8),
        ),
        rules,
        criterion(rules, ids, characters, np.zeros(total, dtype=np.int64)),
        np.sort,
    )
    id_ = documents["id"].combine_chunks()
    cluster = pa.array(verdicts.representative, mask=verdicts.cluster == 0)
    columns = [id_, id_.take(pa.array(verdicts.kept)), id_.take(cluster), pa.array(verdicts.kept_similarity)]
    return pa.table(columns, schema=decisions_of(id_.type))
