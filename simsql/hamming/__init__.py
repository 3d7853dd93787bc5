"""The Hamming problem on integers: blocks and keys, designs and their cost, pairs and clusters in memory.

Depends only on NumPy, not on a database. Fingerprints are unsigned 64-bit integers: `int` in [0, 2**64) or
`numpy.uint64`. The other packages of simsql also import names from here that are not in `__all__`.
"""

from simsql.hamming._join import PairTask
from simsql.hamming._join import expected_seconds as expected_seconds
from simsql.hamming.design import Costs, Design
from simsql.hamming.match import find_matches
from simsql.hamming.pairs import connected_components, find_clusters, find_pairs, hamming_distance
from simsql.hamming.planner import Choice as Choice
from simsql.hamming.planner import Nesting as Nesting
from simsql.hamming.planner import Plan as Plan
from simsql.hamming.planner import default_design, fewest_tables, longest_prefix, plan
from simsql.hamming.skew import PrefixSample
from simsql.hamming.tasks import pair_buckets, pair_tasks, pairs_in_buckets, pairs_of_task

__all__ = [
    "Costs",
    "Design",
    "PairTask",
    "PrefixSample",
    "connected_components",
    "default_design",
    "fewest_tables",
    "find_clusters",
    "find_matches",
    "find_pairs",
    "hamming_distance",
    "longest_prefix",
    "pair_buckets",
    "pair_tasks",
    "pairs_in_buckets",
    "pairs_of_task",
    "plan",
]
