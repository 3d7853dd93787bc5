"""Features that are spelled out, one Python string for each: for tokenisers and hashes that need the string.

A feature is a run of tokens. Its spelling is those tokens, joined by one space, or by nothing if tokens are
characters, and its hash one of `simsql.fingerprint.named_hashes`.
"""

import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, lru_cache
from itertools import chain, islice

import numpy as np

from simsql.fingerprint.features import Features, distinct
from simsql.fingerprint.hashes import I64, U64, hash_spans
from simsql.fingerprint.named_hashes import hash_strings
from simsql.fingerprint.recipe import Pattern, Recipe, Step, Tokenizer, Tokens
from simsql.fingerprint.spelled_words import is_word, iter_normal, iter_words, normalise_by, spell_words
from simsql.fingerprint.windows import Window, iter_windows

_Finder = Callable[[str], Iterable[str]]

# Tokens of a long text that are found at once.
_TOKENS = 1 << 14
# Where jieba would look for words in a run of so many characters, and take time by the square of their number.
_LONG_RUN = re.compile(r"[\u4e00-\u9fd5a-zA-Z0-9+#&._%-]{2000}")
# What is in no run. It makes a list of all runs and all that is between them: of so many characters at a time.
_BETWEEN_RUNS = re.compile(r"[^\u4e00-\u9fd5a-zA-Z0-9+#&._%-]")
_PART = 1 << 16


def extract_spelled(texts: Sequence[str], recipe: Recipe) -> Features:
    """Return the distinct features of each text and the hashes of their spellings."""
    documents = [_spell_shingles(Window.of_all(tokens, recipe), recipe) for tokens in find_tokens(texts, recipe)]
    return distinct(_hash_spellings(documents, recipe), _count(documents))


def iter_spelled(text: str, recipe: Recipe) -> Iterator[U64]:
    """Yield the hashes of the features of a text of any length, as often as they occur, some at a time."""
    for window in iter_windows(iter_tokens(text, recipe), recipe, lambda parts: list(chain.from_iterable(parts))):
        yield _hash_spellings([_spell_shingles(window, recipe)], recipe)


def iter_found_hashes(text: str, recipe: Recipe) -> Iterator[U64]:
    """Yield the hashes of the tokens of a text of any length, whatever their kind, some at a time."""
    return map(hash_as_tokens, iter_tokens(text, recipe))


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
    find = _finder(kind)
    return [list(find(normalise_by(text, recipe.normalise))) for text in texts]


def iter_tokens(text: str, recipe: Recipe) -> Iterator[list[str]]:
    """Yield the tokens of a text of any length, some at a time.

    An expression or a function is given the whole text, since nobody knows where it may be cut. Raises as
    `find_tokens` does.
    """
    kind = recipe.tokens
    if kind == "words" or kind == "characters":  # noqa: PLR1714 - so that mypy knows
        yield from iter_words(text, kind, recipe.normalise)
        return
    tokens = iter(_finder(kind)("".join(iter_normal(text, recipe.normalise))))
    while some := list(islice(tokens, _TOKENS)):
        yield some


def _finder(kind: Tokens) -> _Finder:
    if isinstance(kind, Pattern):
        return _by_pattern(kind)
    return _by_function(kind) if isinstance(kind, Tokenizer) else _by_jieba()


def _by_pattern(pattern: Pattern) -> _Finder:
    matches = re.compile(pattern.expression).finditer
    if pattern.characters:
        return lambda text: chain.from_iterable(match.group() for match in matches(text))
    return lambda text: (token for match in matches(text) if (token := match.group()))


def _by_function(tokenizer: Tokenizer) -> _Finder:
    def find(text: str) -> Iterator[str]:
        tokens = tokenizer.function(text)
        if isinstance(tokens, str) or not isinstance(tokens, Iterable):
            raise TypeError(
                f"the tokenizer {tokenizer.name!r} must return an iterable of str, not {type(tokens).__name__}"
            )
        for position, token in enumerate(tokens):
            if not isinstance(token, str):
                raise TypeError(
                    f"the tokenizer {tokenizer.name!r} must return tokens that are str,"
                    f" but token {position} of a text is {type(token).__name__}"
                )
            yield token

    return find


def _by_jieba() -> _Finder:
    cut = _load_jieba()

    def find(text: str) -> Iterator[str]:
        return (token for part in _cut_for_jieba(text) for token in cut(part) if is_word(token))

    return find


def _cut_for_jieba(text: str) -> Iterator[str]:
    """Cut a text in its long runs, and elsewhere in parts of bounded size: between runs no word goes on."""
    ends = chain((match.end() for match in _LONG_RUN.finditer(text)), [len(text)])
    start = 0
    for end in ends:
        while cut := _BETWEEN_RUNS.search(text, start + _PART, end):
            yield text[start : cut.start()]
            start = cut.start()
        yield text[start:end]
        start = end


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


def _spell_shingles(window: Window[list[str]], recipe: Recipe) -> list[str]:
    """Return the spellings of all features that begin with these tokens, as often as they occur."""
    stop_words = _spell_stop_words(recipe.stop_words, recipe.normalise)
    characters = recipe.tokens == "characters" or (isinstance(recipe.tokens, Pattern) and recipe.tokens.characters)
    join = ("" if characters else " ").join
    tokens = window.tokens
    spellings: list[str] = []
    for length in recipe.shingles:
        if window.is_all and len(tokens) < length:
            break
        following = tokens + window.following[: length - 1]
        runs = zip(*(following[start:] for start in range(length)), strict=False)
        if stop_words:
            spellings.extend(join(run) for run in runs if not stop_words.isdisjoint(run))
        else:
            spellings.extend(map(join, runs))
    short = window.is_all and 0 < len(tokens) < recipe.shingles[0]
    if short and not (stop_words and stop_words.isdisjoint(tokens)):
        spellings.append(join(tokens))
    return spellings


@lru_cache(maxsize=16)
def _spell_stop_words(words: frozenset[str], steps: tuple[Step, ...]) -> frozenset[str]:
    return frozenset(normalise_by(word, steps) for word in words)


def _hash_spellings(documents: list[list[str]], recipe: Recipe) -> U64:
    return _hash_each(documents, lambda different: hash_strings(different, recipe.hash))


def _hash_each(documents: list[list[str]], hash_all: Callable[[list[str]], U64]) -> U64:
    """Return the hash of every string, having computed it once for each that is different."""
    numbers: dict[str, int] = {}
    number = np.fromiter(
        (numbers.setdefault(spelling, len(numbers)) for spelling in chain.from_iterable(documents)), dtype=np.int64
    )
    return hash_all(list(numbers))[number]


def _count(documents: list[list[str]]) -> I64:
    return np.fromiter(map(len, documents), dtype=np.int64, count=len(documents))
