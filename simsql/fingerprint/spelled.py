"""Features that are spelled out, one Python string for each: for tokenisers and hashes that need the string.

A feature is a run of tokens. Its spelling is those tokens, joined by one space, or by nothing if tokens are
characters, and its hash one of `simsql.fingerprint.named_hashes`.
"""

import re
import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import chain

import numpy as np

from simsql.fingerprint.features import Features, distinct
from simsql.fingerprint.hashes import I64, U64, hash_spans
from simsql.fingerprint.named_hashes import hash_strings
from simsql.fingerprint.recipe import Pattern, Recipe, Tokenizer
from simsql.fingerprint.spelled_words import is_word, normalise_by, spell_words

_Finder = Callable[[str], list[str]]

# Where jieba would look for words in a run of so many characters, and take time by the square of their number.
_LONG_RUN = re.compile(r"[\u4e00-\u9fd5a-zA-Z0-9+#&._%-]{2000}")


def extract_spelled(texts: Sequence[str], recipe: Recipe) -> Features:
    """Return the distinct features of each text and the hashes of their spellings."""
    stop_words = frozenset(normalise_by(word, recipe.normalise) for word in recipe.stop_words)
    documents = [_spell_shingles(tokens, recipe, stop_words) for tokens in find_tokens(texts, recipe)]
    return distinct(
        _hash_each(documents, lambda different: hash_strings(different, recipe.hash)), _count(documents)
    )


def hash_found_tokens(texts: Sequence[str], recipe: Recipe) -> tuple[U64, I64]:
    """Return what `hash_tokens` of `simsql.fingerprint.tokens` does, for tokens of every kind."""
    documents = find_tokens(texts, recipe)
    return _hash_each(documents, hash_as_tokens), _count(documents)


def hash_as_tokens(spellings: Sequence[str]) -> U64:
    """Return the hashes of tokens by `hash_spans`. The empty token, which words never are, has one too."""
    encoded = [spelling.encode("utf-8", "surrogatepass") for spelling in spellings]
    lengths = np.fromiter(map(len, encoded), dtype=np.int64, count=len(encoded))
    return hash_spans(b"".join([*encoded, bytes(8)]), np.cumsum(lengths) - lengths, lengths)


def find_tokens(texts: Sequence[str], recipe: Recipe) -> list[list[str]]:
    """Return the tokens of each text.

    Raises TypeError if a Tokenizer gives anything but an iterable of str, and ModuleNotFoundError for "jieba"
    where that is not installed.
    """
    kind = recipe.tokens
    if kind == "words" or kind == "characters":  # noqa: PLR1714 - so that mypy knows
        return spell_words(texts, kind, recipe.normalise)
    if isinstance(kind, Pattern):
        find = _by_pattern(kind)
    else:
        find = _by_function(kind) if isinstance(kind, Tokenizer) else _by_jieba()
    return [find(normalise_by(text, recipe.normalise)) for text in texts]


def _by_pattern(pattern: Pattern) -> _Finder:
    matches = re.compile(pattern.expression).finditer
    if pattern.characters:
        return lambda text: list("".join(match.group() for match in matches(text)))
    return lambda text: [token for match in matches(text) if (token := match.group())]


def _by_function(tokenizer: Tokenizer) -> _Finder:
    def find(text: str) -> list[str]:
        tokens = tokenizer.function(text)
        if isinstance(tokens, str) or not isinstance(tokens, Iterable):
            raise TypeError(
                f"the tokenizer {tokenizer.name!r} must return an iterable of str, not {type(tokens).__name__}"
            )
        found = list(tokens)
        for position, token in enumerate(found):
            if not isinstance(token, str):
                raise TypeError(
                    f"the tokenizer {tokenizer.name!r} must return tokens that are str,"
                    f" but token {position} of a text is {type(token).__name__}"
                )
        return found

    return find


def _by_jieba() -> _Finder:
    cut = _load_jieba()

    def find(text: str) -> list[str]:
        ends = [match.end() for match in _LONG_RUN.finditer(text)]
        parts = (text[start:end] for start, end in zip([0, *ends], [*ends, len(text)], strict=True))
        return [token for part in parts for token in cut(part) if is_word(token)]

    return find


@cache
def _load_jieba() -> Callable[[str], list[str]]:
    """Return the function that cuts a text by jieba's own dictionary, which takes a second and 150 MB.

    The tokenizer is one of its own, so that words that an application adds to jieba's do not count. And it reads
    the dictionary itself: jieba would log that it does, and trust a cache in /tmp that anyone may have written.
    """
    try:
        with warnings.catch_warnings():
            # Of its regular expressions, when Python compiles it, and of setuptools, which it looks for.
            warnings.simplefilter("ignore")
            import jieba  # noqa: PLC0415 - an extra
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            'a recipe with the tokens "jieba" needs the package jieba: pip install "simsql[zh]"', name="jieba"
        ) from None
    tokenizer = jieba.Tokenizer()
    tokenizer.FREQ, tokenizer.total = tokenizer.gen_pfdict(tokenizer.get_dict_file())
    tokenizer.initialized = True
    cut: Callable[[str], list[str]] = tokenizer.lcut
    return cut


def _spell_shingles(tokens: list[str], recipe: Recipe, stop_words: frozenset[str]) -> list[str]:
    """Return the spellings of all features of a text, as often as they occur."""
    characters = recipe.tokens == "characters" or (isinstance(recipe.tokens, Pattern) and recipe.tokens.characters)
    join = ("" if characters else " ").join
    spellings: list[str] = []
    for length in recipe.shingles:
        if len(tokens) < length:
            break
        ring = tokens + tokens[: length - 1] if recipe.cyclic else tokens
        runs = zip(*(ring[start:] for start in range(length)), strict=False)
        if stop_words:
            spellings.extend(join(run) for run in runs if not stop_words.isdisjoint(run))
        else:
            spellings.extend(map(join, runs))
    if 0 < len(tokens) < recipe.shingles[0] and not (stop_words and stop_words.isdisjoint(tokens)):
        spellings.append(join(tokens))
    return spellings


def _hash_each(documents: list[list[str]], hash_all: Callable[[list[str]], U64]) -> U64:
    """Return the hash of every string, having computed it once for each that is different."""
    numbers: dict[str, int] = {}
    number = np.fromiter(
        (numbers.setdefault(spelling, len(numbers)) for spelling in chain.from_iterable(documents)), dtype=np.int64
    )
    return hash_all(list(numbers))[number]


def _count(documents: list[list[str]]) -> I64:
    return np.fromiter(map(len, documents), dtype=np.int64, count=len(documents))
