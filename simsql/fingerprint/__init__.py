"""Text to fingerprint: 64-bit SimHash of any script, with numpy alone.

simhash("some text")            an int in [0, 2**64), or None for a text without features
simhash_many(texts)             a masked array of uint64
simhash_batches(texts)          the same piece by piece
simhash_parts(parts)            one fingerprint of several texts with weights
Recipe(...), DEFAULT            how a text becomes features, weights and hashes
majority(hashes, weights)       the vote alone, for features of your own
"""

from simsql.fingerprint.documents import simhash, simhash_batches, simhash_many, simhash_parts
from simsql.fingerprint.recipe import DEFAULT, Recipe
from simsql.fingerprint.vote import majority

__all__ = ["DEFAULT", "Recipe", "majority", "simhash", "simhash_batches", "simhash_many", "simhash_parts"]
