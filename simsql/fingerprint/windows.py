"""Windows over the tokens of a long text, each with the following tokens that its shingles need."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from simsql.fingerprint.recipe import Recipe

Some = TypeVar("Some", list[str], NDArray[np.uint64])

# Tokens in a window.
_AT_ONCE = 1 << 17


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
        for start in range(0, len(piece), _AT_ONCE):
            waiting.append(piece[start : start + _AT_ONCE])
            size += len(waiting[-1])
            if size <= _AT_ONCE + ahead:
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
