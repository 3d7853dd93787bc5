"""The hash of a picture is that of imagehash, and the similarity of two is what its description says."""

import imagehash
import numpy as np
import pytest
from pictures import draw
from PIL import Image

from simsql.fingerprint import (
    Recipe,
    count_documents,
    count_pixels,
    hash_picture,
    simhash,
    simhash_items_with_tokens,
    simhash_many,
    simhash_parts,
    spell_picture,
)
from simsql.fingerprint.pictures import compare_pictures

PHASH = Recipe.from_id("phash")


def shrink(picture, side, mode):
    return np.asarray(picture.convert(mode).resize((side, side), Image.Resampling.LANCZOS))


def spell(picture):
    alpha = shrink(picture.convert("RGBA").getchannel("A"), 8, "L")
    thumbnails = [shrink(picture, 64, "L"), shrink(picture, 8, "RGB"), alpha]
    return spell_picture(picture.size, hash_picture(shrink(picture, 32, "L")), thumbnails, picture.tobytes())


def similarities(pictures, pairs):
    ((_, _, tokens, _),) = simhash_items_with_tokens([(picture, spell(picture)) for picture in pictures], PHASH)
    left, right = np.array(pairs).T
    return compare_pictures(tokens.hashes, left, right)


def similarity(one, other):
    """Return the similarity of two pictures, window by window."""
    a, b = (shrink(picture, 64, "L").astype(float) for picture in (one, other))
    a, b = a - a.mean(), b - b.mean()
    factor = np.clip(max(a.std(), 1) / max(b.std(), 1), 1 / 1.5, 1.5) ** 0.5
    a, b = a / factor, b * factor
    found = []
    for top in range(0, 56, 8):
        for left in range(0, 56, 8):
            x, y = (grey[top : top + 16, left : left + 16] for grey in (a, b))
            covariance = ((x - x.mean()) * (y - y.mean())).mean()
            apart = (x.mean() - y.mean()) ** 2 / 2
            found.append((2 * covariance + 100) / (x.var() + y.var() + apart + 100))
    x, y = (shrink(picture, 8, "RGB").astype(float) for picture in (one, other))
    x, y = (x - x.mean(2, keepdims=True)) / factor, (y - y.mean(2, keepdims=True)) * factor
    found.append(1 - np.abs(x - y).max() / 256)
    x, y = (shrink(picture.convert("RGBA").getchannel("A"), 8, "L").astype(float) for picture in (one, other))
    if x.min() < 255 and y.min() < 255:
        found.append(1 - np.abs(x - y).max() / 255)
    aspect = one.width / one.height / (other.width / other.height)
    return max(0, min(*found, aspect, 1 / aspect))


def test_hashes_equal_those_of_imagehash():
    pictures = [draw(seed, 90 + seed, 60) for seed in range(100)]
    found = simhash_many(map(spell, pictures), PHASH)
    assert [f"{value:016x}" for value in found.tolist()] == [str(imagehash.phash(one)) for one in pictures]
    assert simhash(spell(pictures[0]), PHASH) == found[0]


def test_flat_pictures_have_no_hash():
    almost = np.full((32, 32), 100, dtype=np.uint8)
    almost[:16] += 7
    assert hash_picture(almost) is None
    almost[:16] += 1
    # Rounding errors would decide about most bits: the halves differ in rows only.
    assert hash_picture(almost) == 0x8080808080808080 & hash_picture(almost)


def test_similarities_equal_those_of_single_windows():
    one = draw(1)
    grey = one.convert("L").convert("RGB")
    bright = one.point(lambda value: min(255, int(value * 1.2)))
    pictures = [
        one,
        draw(2),
        grey,
        bright,
        one.resize((150, 100)),
        one.crop((6, 4, 294, 196)),
        one.resize((200, 200)),
    ]
    pictures.append(Image.blend(one, draw(2), 0.3))
    for left in (0, 100, 140):  # transparent, over the same colours
        pictures.append(one.convert("RGBA"))
        pictures[-1].putalpha(Image.linear_gradient("L").resize(one.size).rotate(left))
    pairs = [(a, b) for a in range(len(pictures)) for b in range(len(pictures))]
    expected = [similarity(pictures[a], pictures[b]) for a, b in pairs]
    assert similarities(pictures, pairs) == pytest.approx(expected, abs=1e-4)
    assert similarities(pictures, pairs * 300)[-1] == 1  # more pairs than are compared at a time


def test_what_is_no_picture_is_refused():
    text = spell(draw(1))
    for other in ("a text", "3x4 - AAAA 0123456789abcdef", "", text[:-17], text.replace("x", "y", 1)):
        with pytest.raises(ValueError, match="the recipe phash is for pictures in files"):
            simhash(other, PHASH)
    for call in (lambda: simhash_parts([("a", 1)], PHASH), lambda: count_documents(["a"], PHASH)):
        with pytest.raises(ValueError, match="the recipe phash is for pictures"):
            call()
    with pytest.raises(ValueError, match="phash, which takes no options, not phash12-log-1"):
        Recipe("phash")
    assert count_pixels(spell(draw(1))) == 60_000
