"""Pictures as texts, their fingerprints, and how similar two of them are.

The text of a picture has its size, its perceptual hash, thumbnails, and a digest of its file: see `spell_picture`.
So the recipe "phash" makes a fingerprint of a text, as all recipes do. The tokens of a picture are its size and
the bytes of its thumbnails.

The hash is that of imagehash.phash, bit for bit, but for bits that imagehash leaves to rounding errors, as in
symmetrical pictures, and which are 0 here.
"""

import re
from base64 import b64decode, b64encode
from collections.abc import Sequence
from functools import cache
from hashlib import blake2b, shake_256

import numpy as np
from numpy.typing import NDArray

from simsql.errors import UsageError
from simsql.fingerprint.hashes import I64, U64
from simsql.fingerprint.recipe import NOT_A_PICTURE
from simsql.fingerprint.utf8 import TokenLists
from simsql.fingerprint.vote import Outcome

HASH_SIDE = 32
"""Pixels of a side of the grey thumbnail that is hashed."""
GREY_SIDE = 64
"""Pixels of a side of the grey thumbnail that is compared."""
COLOUR_SIDE = 8
"""Pixels of a side of the thumbnail in colours, and of that of the alpha channel."""

_LEAST_CONTRAST = 8  # of 255: the hash of a picture with less is noise
_ROUNDING = 1e-6  # of coefficients, the largest of which are 2**18
_OPAQUE = 255
_GREY, _COLOUR, _ALPHA = GREY_SIDE**2, 3 * COLOUR_SIDE**2, COLOUR_SIDE**2  # bytes
_PIXELS = _GREY + _COLOUR + _ALPHA
_TOKENS = 1 + _PIXELS // 8
_TEXT = re.compile(r"([0-9]{1,9})x([0-9]{1,9}) ([0-9a-f]{16}|-) ([A-Za-z0-9+/]+=*) [0-9a-f]{16}")

# Pictures are compared in windows of two by two cells. There are eight cells on a side, each of _CELL pixels.
_CELLS = 8
_CELL = GREY_SIDE // _CELLS
_NOISE = 100.0  # the variance that two windows may have each for itself
_CONTRAST = 1.5  # by how much the contrast of two pictures may differ
_COLOUR_RANGE = 256
_TOGETHER = 256  # pairs that are compared at a time: 16 MB


def hash_picture(grey: NDArray[np.uint8]) -> int | None:
    """Return the perceptual hash of a picture, given its grey thumbnail of 32x32 pixels; None for a flat one."""
    if int(grey.max()) - int(grey.min()) < _LEAST_CONTRAST:
        return None
    transform = _cosines()
    found = (transform @ grey @ transform.T).ravel()
    bits = found - np.median(found) > _ROUNDING
    return int.from_bytes(np.packbits(bits).tobytes(), "big")


@cache
def _cosines() -> NDArray[np.float64]:
    """Return the eight lowest rows of a cosine transform."""
    frequency, position = np.arange(8)[:, np.newaxis], np.arange(HASH_SIDE)
    return 2 * np.cos(np.pi * frequency * (2 * position + 1) / (2 * HASH_SIDE))


def spell_picture(size: tuple[int, int], hash_: int, thumbnails: Sequence[NDArray[np.uint8]], data: bytes) -> str:
    """Return the text of a picture, such as "4000x3000 c3a51e0f66b27d90 kKmp... 5b1f09a2c4d8e370".

    The thumbnails are one of 64x64 grey pixels, one of 8x8 in red, green and blue, and the alpha channel in 8x8.
    `data` is the file.
    """
    return _spell(size, f"{hash_:016x}", b"".join(pixels.tobytes() for pixels in thumbnails), data)


def spell_unseen(data: bytes) -> str:
    """Return the text of a file whose look cannot be compared: noise, which only equals that of the same bytes."""
    return _spell((1, 1), "-", shake_256(data).digest(_PIXELS), data)


def _spell(size: tuple[int, int], hash_: str, pixels: bytes, data: bytes) -> str:
    return f"{size[0]}x{size[1]} {hash_} {b64encode(pixels).decode()} {_digest(data)}"


def _digest(data: bytes) -> str:
    return blake2b(data, digest_size=8).hexdigest()


def is_text_of(text: str, data: bytes) -> bool:
    """Return whether this is the text of a file."""
    return text.endswith(f" {_digest(data)}")


def count_pixels(text: str) -> int:
    """Return the number of pixels of a picture, given its text."""
    width, height = text[: text.index(" ")].split("x")
    return int(width) * int(height)


def read_pictures(texts: Sequence[str]) -> tuple[Outcome, TokenLists]:
    """Return the fingerprints and the tokens of the texts of pictures. Raises UsageError for other texts.

    Files whose look cannot be compared have none, but a number in its place that tells them apart.
    """
    values = np.zeros(len(texts), dtype=np.uint64)
    unseen = np.zeros(len(texts), dtype=bool)
    tokens = np.zeros((len(texts), _TOKENS), dtype="<u8")
    for number, text in enumerate(texts):
        found = _TEXT.fullmatch(text)
        pixels = b64decode(found[4]) if found else b""
        if found is None or len(pixels) != _PIXELS:
            raise UsageError(NOT_A_PICTURE)
        unseen[number] = found[3] == "-"
        values[number] = int.from_bytes(pixels[:8]) if unseen[number] else int(found[3], 16)
        tokens[number, 0] = int(found[1]) << 32 | int(found[2])
        tokens[number, 1:] = np.frombuffer(pixels, dtype="<u8")
    return (values, unseen), TokenLists(tokens.ravel().astype(np.uint64), np.full(len(texts), _TOKENS))


def compare_pictures(tokens: U64, left: I64, right: I64) -> NDArray[np.float64]:
    """Return the similarities of pairs of pictures, from 0.0 to 1.0, given the tokens of all and their positions.

    That is the least of four numbers: how alike the windows are which differ most, after the brightness and the
    contrast of the whole pictures are the same; how near the colours are where they differ most; the ratio of
    width to height of the one to that of the other; and, if the ground shows through both, how near their alpha
    channels are where they differ most: white on white does not show.
    """
    pictures = _Pictures(tokens)
    found = [np.zeros(0)]
    for start in range(0, len(left), _TOGETHER):
        some = slice(start, start + _TOGETHER)
        found.append(pictures.compare(left[some], right[some]))
    return np.concatenate(found)


class _Pictures:
    def __init__(self, tokens: U64) -> None:
        rows = tokens.astype("<u8").reshape(-1, _TOKENS)
        self._aspect = (rows[:, 0] >> np.uint64(32)) / (rows[:, 0] & np.uint64(0xFFFFFFFF))
        pixels = np.ascontiguousarray(rows[:, 1:]).view(np.uint8).astype(np.float32)
        grey = pixels[:, :_GREY].reshape(-1, _CELLS, _CELL, _CELLS, _CELL).transpose(0, 1, 3, 2, 4)
        grey = grey.reshape(-1, _CELLS, _CELLS, _CELL * _CELL)
        self._grey = grey - grey.mean((1, 2, 3), keepdims=True)
        self._mean = _windows(self._grey.mean(-1))
        self._variance = _windows((self._grey**2).mean(-1)) - self._mean**2
        self._contrast = np.maximum(self._grey.std((1, 2, 3)), 1.0)
        colours = pixels[:, _GREY:-_ALPHA].reshape(-1, COLOUR_SIDE**2, 3)
        self._colours = colours - colours.mean(-1, keepdims=True)
        self._alpha = pixels[:, -_ALPHA:]
        self._transparent = self._alpha.min(-1) < _OPAQUE

    def compare(self, one: I64, other: I64) -> NDArray[np.float64]:
        # What brings both to the same contrast: one is divided by it, the other multiplied.
        ratio = np.clip(self._contrast[one] / self._contrast[other], 1 / _CONTRAST, _CONTRAST)
        factor = np.sqrt(ratio)[:, np.newaxis, np.newaxis]
        a, b = self._mean[one] / factor, self._mean[other] * factor
        variance = self._variance[one] / factor**2 + self._variance[other] * factor**2
        together = _windows(np.einsum("nijp,nijp->nij", self._grey[one], self._grey[other]) / _CELL**2)
        covariance = together - self._mean[one] * self._mean[other]
        windows = (2 * covariance + _NOISE) / (variance + (a - b) ** 2 / 2 + _NOISE)
        colours = np.abs(self._colours[one] / factor - self._colours[other] * factor).max((1, 2))
        aspect = self._aspect[one] / self._aspect[other]
        found = np.minimum(windows.min((1, 2)), 1 - colours / _COLOUR_RANGE)
        found = np.minimum(found, np.minimum(aspect, 1 / aspect))
        alpha = np.abs(self._alpha[one] - self._alpha[other]).max(1) / _OPAQUE
        found = np.minimum(found, 1 - alpha * (self._transparent[one] & self._transparent[other]))
        result: NDArray[np.float64] = np.clip(found, 0, 1).astype(np.float64).round(4)  # of what float32 holds
        return result


def _windows(cells: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the means of all windows of two by two cells, given those of the cells of each picture."""
    found: NDArray[np.float32] = (
        cells[:, 1:, 1:] + cells[:, 1:, :-1] + cells[:, :-1, 1:] + cells[:, :-1, :-1]
    ) / np.float32(4)
    return found
