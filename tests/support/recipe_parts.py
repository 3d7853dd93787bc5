"""Values for the fields of recipes."""

from itertools import product

from simsql.fingerprint import Pattern, Tokenizer

HASHES = ["fnv1", "fnv1a", "fnv1utf16", "md5", "md5low", "xxh3", "jenkins"]
STEPS = [tuple(filter(None, steps)) for steps in product(("", "nfkc"), ("", "casefold", "lower"), ("", "marks"))]


def split(text):
    """Tokens of an application's own, some of them empty."""
    return text.split(" ")


TOKENS = [
    "words",
    "characters",
    Pattern(r"\w+"),
    Pattern(r"(?i)(b)?[a-x]"),
    Pattern(r"[^ .]+", characters=True),
    Tokenizer("split", "1", split),
]
