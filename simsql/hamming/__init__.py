"""The Hamming problem on integers: blocks and keys, designs and their cost, pairs and clusters in memory.

Depends only on NumPy, not on a database. Fingerprints are unsigned 64-bit integers: `int` in [0, 2**64) or
`numpy.uint64`. The other packages of simsql also import names from here that are not in `__all__`.
"""

from simsql.hamming.design import Design
from simsql.hamming.match import find_matches
from simsql.hamming.pairs import find_clusters, find_pairs, hamming_distance
from simsql.hamming.planner import Choice as Choice
from simsql.hamming.planner import Plan as Plan
from simsql.hamming.planner import default_design, plan
from simsql.hamming.skew import PrefixSample as PrefixSample

__all__ = [
    "Design",
    "default_design",
    "find_clusters",
    "find_matches",
    "find_pairs",
    "hamming_distance",
    "plan",
]
