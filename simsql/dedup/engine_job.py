"""The main job on an engine that has SQL and Python functions of Arrow batches: documents in, decisions out.

Each step is a query, or a function that the engine applies to the rows of a query. `examples/` has the engines for
Spark and DuckDB. The decisions are those of `simsql dedup` on the same texts.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from typing import Protocol

import numpy as np
import pyarrow as pa

from simsql.decide.rules import Rules
from simsql.dedup.bands import LISTED, Sizes, bits_of_candidates
from simsql.dedup.engine_steps import DESCRIPTION, SIMILAR, compare, decide_components, decisions_of, describe
from simsql.errors import UsageError
from simsql.fingerprint import FOLDING_RECIPE

# The new documents and, as an archive, those that earlier jobs have kept.
_NEW = "SELECT *, true AS new FROM described"
_OLD = """
    UNION ALL SELECT d.*, false FROM archive_described AS d JOIN archive_decisions AS f ON f.id = d.id
    WHERE f.kept = f.id
"""
# Documents with the same words, of which one is compared for all.
_NODES = """
    SELECT node, min(id) AS id, count(*) AS copies, bool_and(new) AS new, any_value(fingerprint) AS fingerprint,
        any_value(sketch) AS sketch, any_value(bands) AS bands
    FROM ({described}) AS d GROUP BY node
"""
# A key belongs to one band: see `DESCRIPTION`. Keys are made for each query, which costs less than to store them.
_KEYS = "SELECT node, new, fingerprint, sketch, explode(bands) AS key FROM nodes"
_BUCKETS = f"SELECT key, count(*) AS size FROM ({_KEYS}) AS k GROUP BY key HAVING count(*) > 1"
_SIZES = "SELECT size, count(*) AS buckets FROM buckets WHERE size <= {largest} GROUP BY size"
# The keys of crowds are few, so an engine sends them to all processes. Thus no process gets all members of a crowd
# before these are decided about.
_CROWDS = "SELECT key, size FROM buckets WHERE size > {listed}"
_CROWDED = f"SELECT k.node, k.key, c.size FROM ({_KEYS}) AS k JOIN crowds AS c ON c.key = k.key"
_CROWD_MEMBERS = """
    SELECT node, array_agg(key) AS crowds, max_by(key, size) AS largest FROM crowded GROUP BY node
"""
_LISTED = f"""
    SELECT k.*, b.size, m.largest FROM ({_KEYS}) AS k JOIN buckets AS b ON b.key = k.key
    LEFT JOIN crowd_members AS m ON m.node = k.node
    WHERE b.size <= {{listed}} AND NOT EXISTS (SELECT 1 FROM crowds AS c WHERE c.key = k.key)
"""
# `(x | y) - (x & y)` has the bits in which x and y differ. Pairs that share a crowd are candidates only if they
# share a rare key, too: those of the largest crowd are left out here, and the others in the next query.
_NEAR = """
    SELECT DISTINCT l.node AS a, r.node AS b, l.size <= {rare} OR l.largest IS NULL OR r.largest IS NULL AS sure
    FROM listed AS l JOIN listed AS r ON r.key = l.key AND l.node < r.node
    WHERE bit_count((l.sketch | r.sketch) - (l.sketch & r.sketch)) <= {sketch}
    AND bit_count((l.sketch | r.sketch) - (l.sketch & r.sketch))
        + bit_count((l.fingerprint | r.fingerprint) - (l.fingerprint & r.fingerprint)) <= {both}
    AND (l.size <= {rare} OR l.largest IS NULL OR r.largest IS NULL OR l.largest <> r.largest) AND (l.new OR r.new)
"""
_PAIRS = """
    SELECT DISTINCT n.a, n.b FROM near AS n
    LEFT JOIN crowd_members AS l ON l.node = n.a LEFT JOIN crowd_members AS r ON r.node = n.b
    WHERE n.sure OR NOT arrays_overlap(l.crowds, r.crowds)
"""
_TEXTS = """
    SELECT n.node, d.text FROM ({documents}) AS d JOIN nodes AS n ON n.id = d.id
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
    SELECT d.*, coalesce(c.component, d.node) AS component, m.text, r.rare
    FROM (SELECT {columns} FROM ({described}) AS x) AS d JOIN nodes AS n ON n.node = d.node
    LEFT JOIN components AS c ON c.node = d.node
    LEFT JOIN (
        SELECT t.node, t.text FROM texts AS t JOIN crowd_members AS c ON c.node = t.node
    ) AS m ON m.node = d.node AND n.id = d.id
    LEFT JOIN (
        SELECT node, bit_or(key >> 32) AS rare FROM listed
        WHERE size <= {rare} AND largest IS NOT NULL GROUP BY node
    ) AS r ON r.node = m.node
    WHERE n.copies > 1 OR c.node IS NOT NULL
"""
_SIMILAR_MEMBERS = "SELECT s.*, c.component FROM similarities AS s JOIN components AS c ON c.node = s.a"
_DECISIONS = """
    SELECT d.id, coalesce(f.kept, d.id) AS kept, f.cluster, f.similarity, f.kind
    FROM documents AS d LEFT JOIN decided AS f ON f.id = d.id
"""


class Engine(Protocol):
    """What the job needs: tables with names, and Python functions that any process applies to rows.

    Its SQL has `explode`, which turns a list into rows, and `arrays_overlap` of two lists. A job that is started
    again stores the same tables in the same order: those that an engine has stored as a whole, it keeps.
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


def dedup_on_engine(engine: Engine, rules: Rules, documents: object) -> None:
    """Decide about the rows of the table `documents` (id, text), and store the decisions as the table `decisions`.

    A decision has the id of the document; that of the document that is kept in its favour, its own if it is kept;
    that of the document that represents its cluster, null if it is in none; the similarity to the one that is
    kept; and the kind of drop, null if it is kept. Of equals, the document with the smallest id is kept, in
    the order of strings.

    With `rules.to_archive`, what earlier jobs have kept is an archive. `archive` has their documents, and
    `archive_job`, `archive_described` and `archive_decisions` have the rows of the tables that they have stored.

    Raises UsageError for ids that are null or occur twice, for tables of a job with other rules or other
    `documents`, which identify the input, and for rules that do not compare the words of texts or have a field,
    files or a group that decide.
    """
    if not rules.checks_texts or rules.exact or rules.by_features:
        raise UsageError("on an engine, texts are compared by their words, and the similarity must be above 0")
    if rules.by_value or rules.by_file or rules.within or rules.within_folder:
        raise UsageError("on an engine, neither fields nor files can decide")
    how, what = map(_digest, ((replace(rules, to_archive=False), FOLDING_RECIPE.id, DESCRIPTION.names), documents))
    engine.save("job", f"SELECT '{how}' AS rules, '{what}' AS documents")
    if engine.fetch("SELECT rules, documents FROM job").to_pylist() != [{"rules": how, "documents": what}]:
        raise UsageError("this job began with other documents or rules: name a new folder for its tables")
    texts, everything, ids = "SELECT id, text FROM documents", _NEW, "SELECT id FROM documents"
    if rules.to_archive:
        if engine.fetch(f"SELECT rules FROM archive_job WHERE rules <> '{how}'").num_rows:
            raise UsageError("an earlier job had other rules, or another version of simsql: run it again")
        texts, everything = f"{texts} UNION ALL SELECT id, text FROM archive", _NEW + _OLD
        ids += " UNION ALL SELECT id FROM archive_decisions"
    engine.save("unfit", f"SELECT id FROM ({ids}) AS i GROUP BY id HAVING id IS NULL OR count(*) > 1 LIMIT 1")
    unfit = engine.fetch("SELECT id FROM unfit")
    if unfit.num_rows:
        raise UsageError("ids must be unique and not null: number the documents, and name a new folder for tables")
    described = pa.schema([unfit.schema.field("id"), *DESCRIPTION])
    engine.save_mapped("described", "SELECT id, text FROM documents", partial(describe, rules=rules), described)
    engine.save("nodes", _NODES.format(described=everything))
    engine.save("buckets", _BUCKETS)
    sizes = _sizes(engine)
    engine.save("crowds", _CROWDS.format(listed=sizes.listed))
    engine.save("crowded", _CROWDED)
    engine.save("crowd_members", _CROWD_MEMBERS)
    engine.save("listed", _LISTED.format(listed=sizes.listed))
    sketch, both = bits_of_candidates(rules.distance, rules.similarity)
    engine.save("near", _NEAR.format(sketch=sketch, both=both, rare=sizes.rare))
    engine.save("pairs", _PAIRS)
    engine.save("texts", _TEXTS.format(documents=texts))
    engine.save_mapped("similarities", _COMPARED, partial(compare, rules=rules), SIMILAR)
    engine.save("stars", _LINKS)
    while engine.fetch(_NOT_YET_STARS)["n"][0].as_py():
        engine.save("large_stars", _LARGE_STAR)
        engine.save("stars", _SMALL_STAR)
    engine.save("components", _COMPONENTS)
    columns = ", ".join(name for name in [*described.names, "new"] if name not in ("sketch", "bands"))
    members = _MEMBERS.format(columns=columns, described=everything, rare=sizes.rare)
    decide = partial(decide_components, rules=rules, sizes=sizes)
    decisions = decisions_of(described.field("id").type)
    engine.save_grouped("decided", (members, _SIMILAR_MEMBERS), "component", decide, decisions)
    engine.save("decisions", _DECISIONS)


def _digest(given: object) -> str:
    return blake2b(repr(given).encode(), digest_size=16).hexdigest()


def _sizes(engine: Engine) -> Sizes:
    found = engine.fetch(_SIZES.format(largest=LISTED))
    buckets = np.zeros(LISTED + 1, dtype=np.int64)
    buckets[found["size"].to_numpy()] = found["buckets"].to_numpy()
    return Sizes.of(buckets, engine.fetch("SELECT count(*) AS n FROM nodes")["n"][0].as_py())
