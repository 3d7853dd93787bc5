"""The main job on an engine that has SQL and Python functions of Arrow batches: documents in, decisions out.

Each step is a query, or a function that the engine applies to the rows of a query. `examples/` has the engines for
Spark and DuckDB. The decisions are those of `simsql dedup` on the same texts.
"""

from collections.abc import Callable
from functools import partial
from typing import Protocol

import numpy as np
import pyarrow as pa

from simsql.decide.rules import Rules
from simsql.dedup.bands import LISTED, Sizes, bits_of_candidates
from simsql.dedup.engine_steps import DESCRIPTION, SIMILAR, compare, decide_components, decisions_of, describe
from simsql.errors import UsageError

# Documents with the same words, of which one is compared for all.
_NODES = "SELECT node, min(id) AS id, count(*) AS copies FROM described GROUP BY node"
_KEYS = """
    SELECT d.node, d.fingerprint, d.sketch, explode(d.bands) AS key
    FROM described AS d JOIN nodes AS n ON n.id = d.id
"""
# A key belongs to one band: see `DESCRIPTION`.
_BUCKETS = "SELECT key, count(*) AS size FROM keys GROUP BY key HAVING count(*) > 1"
_SIZES = "SELECT size, count(*) AS buckets FROM buckets WHERE size <= {largest} GROUP BY size"
_CROWDED = "SELECT k.node, k.key FROM keys AS k JOIN buckets AS b ON b.key = k.key WHERE b.size > {listed}"
_CROWD_MEMBERS = """
    SELECT k.node, array_agg(k.key) FILTER (WHERE b.size > {listed}) AS crowds, max_by(k.key, b.size) AS largest,
        bit_or(CASE WHEN b.size <= {rare} THEN k.key >> 32 ELSE 0 END) AS rare
    FROM keys AS k JOIN buckets AS b ON b.key = k.key GROUP BY k.node HAVING max(b.size) > {listed}
"""
_LISTED = """
    SELECT k.*, b.size, m.largest FROM keys AS k JOIN buckets AS b ON b.key = k.key
    LEFT JOIN crowd_members AS m ON m.node = k.node WHERE b.size <= {listed}
"""
# `(x | y) - (x & y)` has the bits in which x and y differ. Pairs that share a crowd are candidates only if they
# share a rare key, too: those of the largest crowd are left out here, and the others in the next query.
_NEAR = """
    SELECT DISTINCT l.node AS a, r.node AS b, l.size <= {rare} OR l.largest IS NULL OR r.largest IS NULL AS sure
    FROM listed AS l JOIN listed AS r ON r.key = l.key AND l.node < r.node
    WHERE bit_count((l.sketch | r.sketch) - (l.sketch & r.sketch)) <= {sketch}
    AND bit_count((l.sketch | r.sketch) - (l.sketch & r.sketch))
        + bit_count((l.fingerprint | r.fingerprint) - (l.fingerprint & r.fingerprint)) <= {both}
    AND (l.size <= {rare} OR l.largest IS NULL OR r.largest IS NULL OR l.largest <> r.largest)
"""
_PAIRS = """
    SELECT DISTINCT n.a, n.b FROM near AS n
    LEFT JOIN crowd_members AS l ON l.node = n.a LEFT JOIN crowd_members AS r ON r.node = n.b
    WHERE n.sure OR NOT arrays_overlap(l.crowds, r.crowds)
"""
_TEXTS = """
    SELECT n.node, d.text FROM documents AS d JOIN nodes AS n ON n.id = d.id
    WHERE n.node IN (SELECT a FROM pairs UNION SELECT b FROM pairs UNION SELECT node FROM crowd_members)
"""
_COMPARED = """
    SELECT p.a, p.b, l.text AS a_text, r.text AS b_text FROM pairs AS p
    JOIN texts AS l ON l.node = p.a JOIN texts AS r ON r.node = p.b
"""
# What is decided about together: similar nodes, and crowds, in which all are linked to one.
_LINKS = """
    SELECT a, b FROM similarities
    UNION SELECT c.node, f.first FROM crowded AS c
    JOIN (SELECT key, min(node) AS first FROM crowded GROUP BY key) AS f ON f.key = c.key WHERE c.node <> f.first
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
_COMPONENTS = "SELECT a AS node, b AS component FROM stars UNION SELECT b, b FROM stars"
# A document that is alone is not decided about.
_MEMBERS = """
    SELECT d.*, coalesce(c.component, d.node) AS component, t.text, m.rare
    FROM (SELECT {columns} FROM described) AS d JOIN nodes AS n ON n.node = d.node
    LEFT JOIN components AS c ON c.node = d.node
    LEFT JOIN crowd_members AS m ON m.node = d.node AND n.id = d.id LEFT JOIN texts AS t ON t.node = m.node
    WHERE n.copies > 1 OR c.node IS NOT NULL
"""
_SIMILAR_MEMBERS = "SELECT s.*, c.component FROM similarities AS s JOIN components AS c ON c.node = s.a"
_DECISIONS = """
    SELECT d.id, coalesce(f.kept, d.id) AS kept, f.cluster, f.similarity, f.kind
    FROM documents AS d LEFT JOIN decided AS f ON f.id = d.id
"""


class Engine(Protocol):
    """What the job needs: tables with names, and Python functions that any process applies to rows.

    Its SQL has `explode`, which turns a list into rows, and `arrays_overlap` of two lists.
    """

    def fetch(self, query: str) -> pa.Table:
        """Return the rows of a query."""

    def save(self, name: str, query: str) -> None:
        """Store the rows of a query as a table."""

    def save_mapped(
        self, name: str, query: str, function: Callable[[pa.RecordBatch], pa.RecordBatch], schema: pa.Schema
    ) -> None:
        """Store what a function returns for each batch of the rows of a query."""

    def save_grouped(
        self, name: str, queries: tuple[str, str], key: str, function: Callable[..., pa.Table], schema: pa.Schema
    ) -> None:
        """Store what a function returns for the rows of two queries.

        It may get the rows of many keys at once, but all rows of a key together, a table for each query.
        """


def dedup_on_engine(engine: Engine, rules: Rules) -> None:
    """Decide about the rows of the table `documents` (id, text), and store the decisions as the table `decisions`.

    A decision has the id of the document; that of the document that is kept in its favour, its own if it is kept;
    that of the document that represents its cluster, null if it is in none; the similarity to the one that is
    kept; and the kind of drop, null if it is kept. Of equals, the document with the smallest id is kept.

    Raises UsageError for ids that are null or occur twice, and for rules that do not compare the words of texts
    or have a field, files or a group that decide.
    """
    if not rules.checks_texts or rules.exact or rules.by_features:
        raise UsageError("on an engine, texts are compared by their words, and the similarity must be above 0")
    if rules.by_value or rules.by_file or rules.within or rules.within_folder:
        raise UsageError("on an engine, neither fields nor files can decide")
    if engine.fetch("SELECT id FROM documents GROUP BY id HAVING id IS NULL OR count(*) > 1 LIMIT 1").num_rows:
        raise UsageError("ids must be unique and not null: number the documents first")
    ids = engine.fetch("SELECT id FROM documents LIMIT 0").schema.field("id")
    described = pa.schema([ids, *DESCRIPTION])
    engine.save_mapped("described", "SELECT id, text FROM documents", partial(describe, rules=rules), described)
    engine.save("nodes", _NODES)
    engine.save("keys", _KEYS)
    engine.save("buckets", _BUCKETS)
    sizes = _sizes(engine)
    engine.save("crowded", _CROWDED.format(listed=sizes.listed))
    engine.save("crowd_members", _CROWD_MEMBERS.format(**sizes._asdict()))
    engine.save("listed", _LISTED.format(listed=sizes.listed))
    sketch, both = bits_of_candidates(rules.distance, rules.similarity)
    engine.save("near", _NEAR.format(sketch=sketch, both=both, rare=sizes.rare))
    engine.save("pairs", _PAIRS)
    engine.save("texts", _TEXTS)
    engine.save_mapped("similarities", _COMPARED, partial(compare, rules=rules), SIMILAR)
    engine.save("stars", _LINKS)
    while engine.fetch(_NOT_YET_STARS)["n"][0].as_py():
        engine.save("large_stars", _LARGE_STAR)
        engine.save("stars", _SMALL_STAR)
    engine.save("components", _COMPONENTS)
    columns = ", ".join(name for name in described.names if name not in ("sketch", "bands"))
    queries = _MEMBERS.format(columns=columns), _SIMILAR_MEMBERS
    decide = partial(decide_components, rules=rules, sizes=sizes)
    engine.save_grouped("decided", queries, "component", decide, decisions_of(ids.type))
    engine.save("decisions", _DECISIONS)


def _sizes(engine: Engine) -> Sizes:
    """Return which buckets are crowds, and rare."""
    found = engine.fetch(_SIZES.format(largest=LISTED))
    buckets = np.zeros(LISTED + 1, dtype=np.int64)
    buckets[found["size"].to_numpy()] = found["buckets"].to_numpy()
    return Sizes.of(buckets, engine.fetch("SELECT count(*) AS n FROM nodes")["n"][0].as_py())
