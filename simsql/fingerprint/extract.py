"""Extract the features of texts: in whole arrays if the recipe allows it, otherwise as strings.

Tokenisers and hashes that need strings get each feature as its spelling: its tokens, joined by one space, or by
nothing if tokens are characters. Its hash is then a published one of `simsql.fingerprint.hashes`.

Long texts are processed in windows of tokens, so memory does not grow with the number of features.
"""

import re
import unicodedata
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import chain, islice
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from simsql.errors import UsageError, missing_package
from simsql.fingerprint.characters import DROPPED, FOLDED, MARK, WORD, class_table, spell
from simsql.fingerprint.features import Features, distinct, shingle
from simsql.fingerprint.hashes import I64, U64, hash_as_tokens, hash_strings, mix
from simsql.fingerprint.recipe import (
    DEFAULT_RECIPE,
    NOT_A_PICTURE,
    Pattern,
    Recipe,
    Tokenizer,
    TokenKind,
    Tokens,
    check_recipe,
)
from simsql.fingerprint.tokens import cut_text, hash_tokens, is_long, iter_token_hashes, spans_of_units
from simsql.fingerprint.utf8 import TokenLists, text_ends

Some = TypeVar("Some", list[str], NDArray[np.uint64])

# The kinds of tokens that character classes define.
_SPELLED = ("words", "characters", "trigrams")

# Tokens in a window.
_WINDOW = 1 << 17

# Tokens of a long text that are found at once.
_TOKENS = 1 << 14
# In a run of this many characters, jieba takes time that grows with the square of the length.
_LONG_RUN = re.compile(r"[\u4e00-\u9fd5a-zA-Z0-9+#&._%-]{2000}")
# A character outside of runs. jieba lists all runs and gaps of a text, so it gets this many characters at a time.
_BETWEEN_RUNS = re.compile(r"[^\u4e00-\u9fd5a-zA-Z0-9+#&._%-]")
_PART = 1 << 16


@dataclass(frozen=True, slots=True)
class Window(Generic[Some]):
    """Consecutive tokens of a text, and the following ones that complete the shingles that begin here."""

    tokens: Some
    following: Some
    is_all: bool
    """Whether the window has all tokens of the text."""

    @staticmethod
    def of_all(tokens: Some, recipe: Recipe) -> "Window[Some]":
        """Return the window of all tokens of a text."""
        return Window(tokens, tokens[: recipe.shingles[-1] - 1 if recipe.cyclic else 0], is_all=True)


def iter_windows(
    pieces: Iterable[Some], recipe: Recipe, join: Callable[[list[Some]], Some]
) -> Iterator[Window[Some]]:
    """Yield windows over the tokens of a text, which arrive in pieces; each token is in one window."""
    ahead = recipe.shingles[-1] - 1
    waiting: list[Some] = []
    beginning: Some | None = None
    size = 0
    for piece in pieces:
        for start in range(0, len(piece), _WINDOW):
            waiting.append(piece[start : start + _WINDOW])
            size += len(waiting[-1])
            if size <= _WINDOW + ahead:
                continue
            tokens = join(waiting)
            if beginning is None:
                beginning = tokens[:ahead]
            yield Window(tokens[: size - ahead], tokens[size - ahead :], is_all=False)
            waiting, size = [tokens[size - ahead :]], ahead
    tokens = join(waiting) if waiting else join([])
    if beginning is None:
        yield Window.of_all(tokens, recipe)
    else:
        yield Window(tokens, beginning if recipe.cyclic else beginning[:0], is_all=False)


def extract_features(texts: Sequence[str], recipe: Recipe) -> Features:
    """Return the distinct features of each text, their hashes as they vote."""
    check_recipe(recipe)
    if recipe.hash != "splitmix":
        tokens = find_tokens(texts, recipe)
        documents = [_spell_shingles(Window.of_all(some, recipe), recipe) for some in tokens]
        return distinct(_hash_spellings(documents, recipe), _count(documents))
    kind = _in_arrays(recipe)
    found = hash_tokens(texts, kind, recipe.revision) if kind else hash_found_tokens(texts, recipe)
    return features_of_tokens(found, recipe)


def features_of_tokens(tokens: TokenLists, recipe: Recipe) -> Features:
    """Return the distinct features of documents with these tokens, whose order may change."""
    marked = _find_stop_words(tokens.hashes, recipe) if recipe.stop_words else None
    features = distinct(*shingle(*tokens, recipe.shingles, cyclic=recipe.cyclic, marked=marked))
    return features._replace(hashes=mix(features.hashes))


def iter_features(text: str, recipe: Recipe) -> Iterator[U64]:
    """Yield the hashes of all features of a text of any length, with repetitions, in portions."""
    check_recipe(recipe)
    if recipe.hash != "splitmix":
        for window in iter_windows(iter_tokens(text, recipe), recipe, lambda parts: [*chain.from_iterable(parts)]):
            yield _hash_spellings([_spell_shingles(window, recipe)], recipe)
        return
    if kind := _in_arrays(recipe):
        tokens = iter_token_hashes(text, kind, recipe.revision)
    elif recipe.tokens == "trigrams":
        tokens = (_hash_trigrams([words]).hashes for words in iter_words(text, "words", recipe.steps))
    else:
        tokens = map(hash_as_tokens, iter_tokens(text, recipe))
    yield from iter_shingles(tokens, recipe)


def iter_shingles(pieces: Iterable[U64], recipe: Recipe) -> Iterator[U64]:
    """Yield the hashes of all features of a text whose tokens arrive in pieces."""
    for window in iter_windows(pieces, recipe, lambda parts: np.concatenate([np.zeros(0, np.uint64), *parts])):
        yield mix(_shingle_window(window, recipe))


def has_plain_words(recipe: Recipe) -> bool:
    """Return whether the tokens of a recipe are hashed as `hash_tokens(texts, "words", revision)` does it."""
    return recipe.hash == "splitmix" and _in_arrays(recipe) == "words"


def _in_arrays(recipe: Recipe) -> TokenKind | None:
    """Return the kind of the tokens if whole arrays of them can be hashed, otherwise None."""
    if recipe.of_pictures:
        raise UsageError(NOT_A_PICTURE)
    if (
        isinstance(recipe.tokens, str)
        and recipe.tokens in ("words", "characters")
        and recipe.normalise == DEFAULT_RECIPE.normalise
    ):
        return recipe.tokens
    return None


def _shingle_window(window: Window[U64], recipe: Recipe) -> U64:
    if window.is_all:
        return _shingle(window.tokens, recipe, cyclic=recipe.cyclic)
    found = _shingle_some(np.concatenate([window.tokens, window.following]), recipe)
    # Shingles that begin behind the window come last.
    return found[: len(found) - len(_shingle_some(window.following, recipe))]


def _shingle_some(tokens: U64, recipe: Recipe) -> U64:
    """Return the shingles of some tokens of a longer text, or none if there are too few tokens."""
    return _shingle(tokens, recipe) if len(tokens) >= recipe.shingles[0] else tokens[:0]


def _shingle(tokens: U64, recipe: Recipe, *, cyclic: bool = False) -> U64:
    marked = _find_stop_words(tokens, recipe) if recipe.stop_words else None
    return shingle(tokens, np.array([len(tokens)]), recipe.shingles, cyclic=cyclic, marked=marked)[0]


def _find_stop_words(tokens: U64, recipe: Recipe) -> NDArray[np.bool_]:
    hashes = _hash_stop_words(recipe.stop_words, recipe.steps)
    place = np.minimum(np.searchsorted(hashes, tokens), len(hashes) - 1)
    found: NDArray[np.bool_] = hashes[place] == tokens
    return found


@lru_cache(maxsize=16)
def _hash_stop_words(words: frozenset[str], steps: tuple[str, ...]) -> U64:
    return np.sort(hash_as_tokens([normalise_by(word, steps) for word in sorted(words)]))


def hash_found_tokens(texts: Sequence[str], recipe: Recipe) -> TokenLists:
    """Return the hashes of the tokens of texts, like `hash_tokens`, for tokens of every kind."""
    if recipe.tokens == "trigrams":
        return _hash_trigrams(spell_words(texts, "words", recipe.steps))
    documents = find_tokens(texts, recipe)
    return TokenLists(_hash_each(documents, hash_as_tokens), _count(documents))


def find_tokens(texts: Sequence[str], recipe: Recipe) -> list[list[str]]:
    """Return the tokens of each text.

    Raises TypeError if a Tokenizer does not return an iterable of str, and ModuleNotFoundError for "jieba" if it
    is not installed.
    """
    if recipe.tokens in _SPELLED:
        return spell_words(texts, recipe.tokens, recipe.steps)
    return [list(_find(normalise_by(text, recipe.steps), recipe.tokens)) for text in texts]


def iter_tokens(text: str, recipe: Recipe) -> Iterator[list[str]]:
    """Yield the tokens of a text of any length, in portions. Raises the errors of `find_tokens`.

    An expression or a function gets the whole text, because it may depend on all of it.
    """
    if recipe.tokens in _SPELLED:
        yield from iter_words(text, recipe.tokens, recipe.steps)
        return
    tokens = _find("".join(iter_normal(text, recipe.steps)), recipe.tokens)
    while some := list(islice(tokens, _TOKENS)):
        yield some


def _find(text: str, kind: Tokens) -> Iterator[str]:
    if isinstance(kind, Tokenizer):
        yield from _find_by_function(text, kind)
    elif isinstance(kind, Pattern):
        for match in re.finditer(kind.expression, text):
            yield from match.group() if kind.characters else filter(None, [match.group()])
    else:
        cut = _load_jieba()
        for part in _cut_for_jieba(text):
            for token in cut(part):
                # Not separators and marks alone.
                if token.isalnum() or any(class_table()[ord(character)] >= WORD for character in token):
                    yield token


def _hash_trigrams(documents: list[list[str]]) -> TokenLists:
    """Return a number for each trigram of the words of documents: its three characters, 21 bits each, mixed."""
    padded = ["".join(f"  {word} " for word in words) for words in documents]
    points = np.frombuffer("".join([*padded, "  "]).encode("utf-32-le", "surrogatepass"), "<u4").astype(np.uint64)
    first, second, third = points[:-2], points[1:-1], points[2:]
    within_word = (second != ord(" ")) | (third != ord(" "))
    numbers = np.repeat(np.arange(len(padded)), np.fromiter(map(len, padded), np.int64, len(padded)))
    together = first << np.uint64(42) | second << np.uint64(21) | third
    return TokenLists(mix(together[within_word]), np.bincount(numbers[within_word], minlength=len(padded)))


def _find_by_function(text: str, tokenizer: Tokenizer) -> Iterator[str]:
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


def _cut_for_jieba(text: str) -> Iterator[str]:
    """Cut a text at the ends of its long runs, and elsewhere into parts of bounded size, never inside a word."""
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
    """Return the function that cuts a text into words by jieba's dictionary. Loading takes a second and 150 MB.

    The tokenizer is separate from jieba's global one, so words that an application adds there have no effect. It
    reads the dictionary directly, because jieba would log this, and trust a cache in /tmp that anyone can write.
    """
    try:
        with warnings.catch_warnings():
            # Warnings about its regular expressions and about setuptools, which it imports.
            warnings.simplefilter("ignore")
            import jieba  # noqa: PLC0415 - an extra
    except ModuleNotFoundError:
        raise missing_package('a recipe with the tokens "jieba"', "jieba", "jieba==0.42.1") from None
    tokenizer = jieba.Tokenizer()
    tokenizer.FREQ, tokenizer.total = tokenizer.gen_pfdict(tokenizer.get_dict_file())
    tokenizer.initialized = True
    cut: Callable[[str], list[str]] = tokenizer.lcut
    return cut


def _spell_shingles(window: Window[list[str]], recipe: Recipe) -> list[str]:
    """Return the spellings of all features that begin with these tokens, with repetitions."""
    stop_words = _spell_stop_words(recipe.stop_words, recipe.steps)
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
def _spell_stop_words(words: frozenset[str], steps: tuple[str, ...]) -> frozenset[str]:
    return frozenset(normalise_by(word, steps) for word in words)


def _hash_spellings(documents: list[list[str]], recipe: Recipe) -> U64:
    return _hash_each(documents, lambda different: hash_strings(different, recipe.hash))


def _hash_each(documents: list[list[str]], hash_all: Callable[[list[str]], U64]) -> U64:
    """Return the hash of every string, computing it once for equal strings."""
    numbers: dict[str, int] = {}
    number = np.fromiter(
        (numbers.setdefault(spelling, len(numbers)) for spelling in chain.from_iterable(documents)), dtype=np.int64
    )
    return hash_all(list(numbers))[number]


def _count(documents: list[list[str]]) -> I64:
    return np.fromiter(map(len, documents), dtype=np.int64, count=len(documents))


def normalise_by(text: str, steps: tuple[str, ...]) -> str:
    """Return a text after these steps: see `Recipe.steps`. NFKC comes once more after a change of letter case."""
    composed = "nfkc" in steps
    if composed:
        text = unicodedata.normalize("NFKC", text)
    if "casefold" in steps:
        text = text.casefold()
    if "lower" in steps:
        text = text.lower()
    if composed:
        text = unicodedata.normalize("NFKC", text)
    if "fold" in steps:
        text = text.translate(FOLDED)
    if "marks" not in steps or text.isascii():
        return text
    points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
    return spell(points[class_table()[points] != DROPPED])


def iter_normal(text: str, steps: tuple[str, ...]) -> Iterator[str]:
    """Yield a text of any length after these steps, in pieces."""
    return (normalise_by(piece, steps) for piece in cut_text(text, lower="lower" in steps))


def spell_words(texts: Sequence[str], kind: TokenKind, steps: tuple[str, ...]) -> list[list[str]]:
    """Return the tokens, "words", "characters" or "trigrams", of each text after these steps.

    Characters that the step "marks" would drop belong to the character before them, like other marks.
    """
    if len(texts) == 1 and is_long(texts[0]):
        return [list(chain.from_iterable(iter_words(texts[0], kind, steps)))]
    return _spell_normal([normalise_by(text, steps) for text in texts], kind)


def iter_words(text: str, kind: TokenKind, steps: tuple[str, ...]) -> Iterator[list[str]]:
    """Yield the tokens of a text of any length that `spell_words` would return, in portions."""
    return (_spell_normal([piece], kind)[0] for piece in iter_normal(text, steps))


def _spell_normal(normal: Sequence[str], kind: TokenKind) -> list[list[str]]:
    points = np.frombuffer("\0".join(["", *normal, ""]).encode("utf-32-le", "surrogatepass"), dtype="<u4")
    classes = class_table()[points]
    classes[classes == DROPPED] = MARK
    data, starts, lengths, documents = spans_of_units(points, classes, classes == MARK, text_ends(normal), kind)
    encoded = bytes(data)
    places = zip(starts.tolist(), (starts + lengths).tolist(), strict=True)
    tokens = (encoded[start:end].decode() for start, end in places)
    found = [list(islice(tokens, count)) for count in documents.tolist()]
    if kind != "trigrams":
        return found
    padded = ([f"  {word} " for word in words] for words in found)
    return [[word[at : at + 3] for word in words for at in range(len(word) - 2)] for words in padded]
