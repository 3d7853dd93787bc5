"""The main job on an engine that has SQL and Python functions of Arrow batches: documents in, decisions out.

Each step is a query, or a function that the engine applies to the rows of a query. `examples/` has the engines for
Spark and DuckDB. The decisions are those of `simsql dedup` on the same texts.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

import pyarrow as pa

from simsql.decide.rules import Rules
from simsql.dedup.engine_steps import (
    BUCKETS,
    CANDIDATES,
    DESCRIPTION,
    SIMILAR,
    Candidates,
    compare,
    decide_components,
    decisions_of,
    describe,
    distribute,
    find_in_buckets,
)
from simsql.errors import UsageError
from simsql.fingerprint import sketch_distance

# Up to this distance, every fingerprint goes to a bucket for each of its blocks; above, buckets are too large.
_BUCKETS_UPTO = 3

# Documents with the same words, of which one is compared for all.
_NODES = """
    SELECT words, fingerprint, sketch, min(id) AS id, count(*) AS copies
    FROM described GROUP BY words, fingerprint, sketch
"""
# In every SQL, `(x | y) - (x & y)` has the bits in which x and y differ. The sketches of two nodes must be near
# even if these nodes share their fingerprint with others.
_PAIRS = """
    WITH near AS (
        SELECT a, b FROM candidates
        UNION ALL SELECT fingerprint, fingerprint FROM nodes GROUP BY fingerprint HAVING count(*) > 1
    )
    SELECT l.words AS a, r.words AS b
    FROM near AS n JOIN nodes AS l ON l.fingerprint = n.a JOIN nodes AS r ON r.fingerprint = n.b
    WHERE bit_count((l.sketch | r.sketch) - (l.sketch & r.sketch)) <= {bits} AND (n.a <> n.b OR l.words < r.words)
"""
_TEXTS = """
    SELECT n.words, d.text FROM documents AS d JOIN nodes AS n ON n.id = d.id
    WHERE n.words IN (SELECT a FROM pairs UNION SELECT b FROM pairs)
"""
_COMPARED = """
    SELECT p.a, p.b, l.text AS a_text, r.text AS b_text FROM pairs AS p
    JOIN texts AS l ON l.words = p.a JOIN texts AS r ON r.words = p.b
"""
# A round of connected stars (Kiveris et al.: Connected components in MapReduce and beyond, SoCC 2014). Every node
# links its larger neighbours to the smallest node that it knows, then its smaller ones. In the end, each component
# is a star of links (a, b), with its smallest node b in the middle.
_LARGE_STAR = """
    WITH links AS (SELECT a, b FROM stars UNION ALL SELECT b, a FROM stars),
    smallest AS (SELECT a, least(a, min(b)) AS m FROM links GROUP BY a)
    SELECT DISTINCT l.b AS a, s.m AS b FROM links AS l JOIN smallest AS s ON s.a = l.a WHERE l.b > l.a
"""
_SMALL_STAR = """
    WITH smallest AS (SELECT a, min(b) AS m FROM large_stars GROUP BY a)
    SELECT a, m AS b FROM smallest
    UNION
    SELECT l.b, s.m FROM large_stars AS l JOIN smallest AS s ON s.a = l.a WHERE l.b <> s.m
"""
_NOT_YET_STARS = """
    SELECT count(*) AS n FROM (
        SELECT a FROM stars GROUP BY a HAVING count(*) > 1
        UNION ALL SELECT l.a FROM stars AS l JOIN stars AS r ON r.a = l.b
    ) AS unfinished
"""
_COMPONENTS = "SELECT a AS words, b AS component FROM stars UNION SELECT b, b FROM stars"
# A document that is alone is not decided about.
_MEMBERS = """
    SELECT d.*, coalesce(c.component, d.words) AS component FROM described AS d
    JOIN nodes AS n ON n.words = d.words LEFT JOIN components AS c ON c.words = d.words
    WHERE n.copies > 1 OR c.words IS NOT NULL
"""
_SIMILAR_MEMBERS = "SELECT s.*, c.component FROM similarities AS s JOIN components AS c ON c.words = s.a"
_DECISIONS = """
    SELECT d.id, coalesce(f.kept, d.id) AS kept, f.cluster, f.similarity
    FROM documents AS d LEFT JOIN decided AS f ON f.id = d.id
"""


class Engine(Protocol):
    """What the job needs: tables with names, and Python functions that any process applies to rows."""

    def fetch(self, query: str) -> pa.Table:
        """Return the rows of a query."""

    def save(self, name: str, query: str) -> None:
        """Store the rows of a query as a table."""

    def save_mapped(
        self, name: str, query: str, function: Callable[[pa.RecordBatch], pa.RecordBatch], schema: pa.Schema
    ) -> None:
        """Store what a function returns for each batch of the rows of a query."""

    def save_grouped(
        self, name: str, queries: Sequence[str], key: str, function: Callable[..., pa.Table], schema: pa.Schema
    ) -> None:
        """Store what a function returns for the rows of one or two queries.

        It may get the rows of many keys at once, but all rows of a key together, a table for each query.
        """

    def save_tasks(self, name: str, candidates: Candidates) -> None:
        """Store what all tasks yield."""


def dedup_on_engine(engine: Engine, rules: Rules) -> None:
    """Decide about the rows of the table `documents` (id, text), and store the decisions as the table `decisions`.

    A decision has the id of the document; that of the document that is kept in its favour, its own if it is kept;
    that of the document that represents its cluster, null if it is in none; and the similarity to the one that is
    kept. Up to distance 3, tasks read only what is in their buckets. Above, each process that does tasks gets 16
    bytes for each document. Of equals, the document with the smallest id is kept.

    Raises UsageError for ids that are null or occur twice, and for rules that do not compare texts or have a field
    that decides.
    """
    if not rules.checks_texts or rules.by_value or rules.by_file:
        raise UsageError("on an engine, the similarity must be above 0, and neither fields nor files can decide")
    if engine.fetch("SELECT id FROM documents GROUP BY id HAVING id IS NULL OR count(*) > 1 LIMIT 1").num_rows:
        raise UsageError("ids must be unique and not null: number the documents first")
    ids = engine.fetch("SELECT id FROM documents LIMIT 0").schema.field("id")
    engine.save_mapped("described", "SELECT id, text FROM documents", describe, pa.schema([ids, *DESCRIPTION]))
    engine.save("nodes", _NODES)
    distinct = "SELECT DISTINCT fingerprint, sketch FROM nodes"
    if rules.distance > _BUCKETS_UPTO:
        engine.save_tasks("candidates", Candidates(engine.fetch(distinct), rules))
    else:
        engine.save_mapped("buckets", distinct, partial(distribute, rules=rules), BUCKETS)
        find = partial(find_in_buckets, rules=rules)
        engine.save_grouped("candidates", ["SELECT * FROM buckets"], "bucket", find, CANDIDATES)
    engine.save("pairs", _PAIRS.format(bits=sketch_distance(rules.similarity)))
    engine.save("texts", _TEXTS)
    engine.save_mapped("similarities", _COMPARED, partial(compare, rules=rules), SIMILAR)
    engine.save("stars", "SELECT a, b FROM similarities")
    while engine.fetch(_NOT_YET_STARS)["n"][0].as_py():
        engine.save("large_stars", _LARGE_STAR)
        engine.save("stars", _SMALL_STAR)
    engine.save("components", _COMPONENTS)
    queries = _MEMBERS, _SIMILAR_MEMBERS
    decide = partial(decide_components, rules=rules)
    engine.save_grouped("decided", queries, "component", decide, decisions_of(ids.type))
    engine.save("decisions", _DECISIONS)
