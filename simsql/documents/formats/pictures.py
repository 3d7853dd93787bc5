"""Read pictures, each as one document, whose text has thumbnails of it: see `simsql.fingerprint.pictures`."""

import io
import stat
import warnings
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from simsql.documents.decoding import Stream, UnfitError, read_document
from simsql.documents.document import Found, Layout
from simsql.documents.formats import OneText
from simsql.documents.kinds import find_kind
from simsql.errors import missing_package
from simsql.fingerprint import COLOUR_SIDE, GREY_SIDE, HASH_SIDE, hash_picture, spell_picture

if TYPE_CHECKING:
    from PIL.Image import Image

_FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "TIFF", "BMP", "AVIF")
_LARGEST = 1 << 26  # pixels that are decoded: they take up to 256 MB, and their conversions twice as much again
_DRAFT = 512  # pixels: the thumbnails of a JPEG hardly change if it is decoded at this size, or at a larger one
_ORIENTATION, _ON_ITS_SIDE = 0x0112, {5, 6, 7, 8}  # of EXIF
_SHOWN = 200  # pixels of the longer side of a picture in a report


class Picture(OneText):
    """Pictures, which are recognised by content. They are read alone, and their names may have any ending."""

    endings = ()

    def suits(self, ending: str, layout: Layout) -> bool:  # noqa: ARG002
        """Return whether pictures are wanted."""
        return layout.pictures

    def text(self, stream: Stream, found: Found, layout: Layout) -> str:
        """Return what is compared of a picture."""
        _check_kind(stream, found)
        with _decode(bytes(read_document(stream, layout.max_document))) as decoded:
            return _spell(*decoded)


def show_picture(path: Path, text: str) -> str | None:
    """Return a small JPEG of a picture as a data URI; None if the file does not have this text any more."""
    file = io.BytesIO()
    try:
        with _decode(path.read_bytes()) as (image, size):
            if _spell(image, size) != text:
                return None
            image.thumbnail((_SHOWN, _SHOWN))
            image.save(file, "JPEG", quality=70)
    except (OSError, UnfitError):
        return None
    return f"data:image/jpeg;base64,{b64encode(file.getvalue()).decode()}"


def _check_kind(stream: Stream, found: Found) -> None:
    if found.status is None or not stat.S_ISREG(found.status.st_mode):
        raise UnfitError("special file", "pictures are only read from files")
    sample = stream.sample()
    if not sample:
        raise UnfitError("empty", "the file is empty")
    if find_kind(sample).name != "image":
        raise UnfitError("not a picture", "--recipe phash only reads pictures; texts are read without it")


@contextmanager
def _decode(data: bytes) -> Iterator[tuple["Image", tuple[int, int]]]:
    """Decode a picture: upright and as L or RGB, but not larger than needed. Also return its real size.

    Raises UnfitError for what cannot be decoded, also within the context.
    """
    try:
        from PIL import Image, ImageOps, UnidentifiedImageError  # noqa: PLC0415 - an extra
    except ModuleNotFoundError:
        raise missing_package("the recipe phash", "Pillow") from None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about what is wrong in a file, without its name
        try:
            with Image.open(io.BytesIO(data), formats=_FORMATS) as image:
                _check_frames(image)
                width, height = image.size
                if image.getexif().get(_ORIENTATION, 1) in _ON_ITS_SIDE:
                    width, height = height, width
                image.draft("RGB", (_DRAFT, _DRAFT))
                _check_size(image.width * image.height)
                yield _to_plain(ImageOps.exif_transpose(image)), (width, height)
        except (UnfitError, MemoryError):
            raise
        except UnidentifiedImageError:
            raise UnfitError(
                "unsupported", f"it is damaged, or in none of these formats: {', '.join(_FORMATS)}"
            ) from None
        except Image.DecompressionBombError:  # by far
            raise _too_large() from None
        except Exception as error:  # which is not documented
            raise UnfitError("damaged picture", f"the picture is damaged or truncated: {error}") from None


def _check_frames(image: "Image") -> None:
    # A JPEG with a preview or a depth map is MPO.
    if getattr(image, "is_animated", False) and image.format != "MPO":
        raise UnfitError("unsupported", "it has several frames or pages: only single pictures are compared")


def _check_size(pixels: int) -> None:
    if pixels > _LARGEST:
        raise _too_large()


def _too_large() -> UnfitError:
    return UnfitError("too large", f"more than {_LARGEST:,} pixels: make it smaller first")


def _to_plain(image: "Image") -> "Image":
    """Return a picture as L or RGB, on white."""
    from PIL import Image  # noqa: PLC0415 - an extra

    if image.mode.startswith("I"):  # 16 bits, which Pillow would cut off at 255
        return Image.fromarray(np.clip(np.asarray(image) >> 8, 0, 255).astype(np.uint8))
    if image.mode == "F":
        raise UnfitError("unsupported", "its pixels are real numbers: convert it to JPEG or PNG first")
    if image.has_transparency_data:
        image = image.convert("RGBA")
        white = Image.new("RGB", image.size, "white")
        white.paste(image, mask=image.getchannel("A"))
        return white
    return image if image.mode == "L" else image.convert("RGB")


def _spell(image: "Image", size: tuple[int, int]) -> str:
    hashed, grey = (np.asarray(_shrink(image, side, "L")) for side in (HASH_SIDE, GREY_SIDE))
    return spell_picture(*size, hash_picture(hashed), grey, np.asarray(_shrink(image, COLOUR_SIDE, "RGB")))


def _shrink(image: "Image", side: int, mode: str) -> "Image":
    return image.convert(mode).resize((side, side), 1)  # LANCZOS, after the conversion, as imagehash does it


FORMATS = [Picture()]
