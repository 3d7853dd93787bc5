"""Features that are spelled out, one Python string for each: for tokenisers and hashes that need the string."""

from collections.abc import Sequence

from simsql.fingerprint.features import Features
from simsql.fingerprint.recipe import Recipe


def extract_spelled(texts: Sequence[str], recipe: Recipe) -> Features:
    """Return the distinct features of each text, their hashes as they vote."""
    raise NotImplementedError
