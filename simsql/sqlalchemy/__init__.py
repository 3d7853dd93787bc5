"""Models of SQLAlchemy: a column type, a table item, and searches as statements.

    Fingerprint(source="body")                     a bigint column, unsigned in Python, that follows its source
    Sketch(source="body")                          64 MinHashes beside it, for near(..., similarity=0.6)
    SimhashIndex("fingerprint", distance=3)        in __table_args__: created and dropped with the table
    near, claim, near_many, pairs, clusters        searches as statements, for Session, AsyncSession and Connection
    similar_candidates                             the same for texts that are probably similar
    similar                                        entities whose texts are similar, and how similar
    near_wide                                      the same for fingerprints of several words, in a column each

    select(Article).where(Article.fingerprint.near(text="some text", distance=7))
    select(Article.fingerprint.hamming_distance(fingerprint))

Nothing here connects to a database, and importing it changes nothing in SQLAlchemy.
"""

from simsql.sqlalchemy.columns import Sketch
from simsql.sqlalchemy.model import Fingerprint, SimhashIndex
from simsql.sqlalchemy.statements import (
    claim,
    clusters,
    near,
    near_many,
    near_wide,
    pairs,
    similar,
    similar_candidates,
)

__all__ = [
    "Fingerprint",
    "SimhashIndex",
    "Sketch",
    "claim",
    "clusters",
    "near",
    "near_many",
    "near_wide",
    "pairs",
    "similar",
    "similar_candidates",
]
