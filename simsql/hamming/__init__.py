"""The Hamming problem on integers: blocks and keys, designs and their cost, pairs and clusters in memory.

Depends only on NumPy, not on a database. Fingerprints are unsigned 64-bit integers: `int` in [0, 2**64) or
`numpy.uint64`.
"""

from simsql.hamming.blocks import Permutation, block_sizes, flip_masks, permutations
from simsql.hamming.design import DEFAULT_COSTS, Costs, Design
from simsql.hamming.match import Matches, find_matches
from simsql.hamming.pairs import connected_components, find_clusters, find_pairs, hamming_distance
from simsql.hamming.planner import Choice, Nesting, Plan, default_design, fewest_tables, longest_prefix, plan
from simsql.hamming.skew import PrefixSample

__all__ = [
    "DEFAULT_COSTS",
    "Choice",
    "Costs",
    "Design",
    "Matches",
    "Nesting",
    "Permutation",
    "Plan",
    "PrefixSample",
    "block_sizes",
    "connected_components",
    "default_design",
    "fewest_tables",
    "find_clusters",
    "find_matches",
    "find_pairs",
    "flip_masks",
    "hamming_distance",
    "longest_prefix",
    "permutations",
    "plan",
]
