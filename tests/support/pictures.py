"""Pictures that tests draw themselves."""

import numpy as np
from PIL import Image, ImageDraw


def draw(seed: int, width: int = 300, height: int = 200) -> Image.Image:
    """Return a picture of ellipses, which differ from seed to seed."""
    random = np.random.default_rng(seed)
    picture = Image.new("RGB", (width, height), tuple(random.integers(0, 255, 3).tolist()))
    pen = ImageDraw.Draw(picture)
    for x, y, across, down in random.random((14, 4)):
        left, top = x * width * 0.8, y * height * 0.8
        box = (left, top, left + (across + 0.1) * width / 2, top + (down + 0.1) * height / 2)
        pen.ellipse(box, fill=tuple(random.integers(0, 255, 3).tolist()))
    return picture
