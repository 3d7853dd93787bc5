"""Read pictures, each as one document, whose text has thumbnails of it: see `simsql.fingerprint.pictures`."""

import io
import re
import stat
import warnings
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from simsql.documents.decoding import Stream, UnfitError, read_document
from simsql.documents.document import Document, Found, Layout, Skip, printable
from simsql.documents.formats import Format
from simsql.documents.kinds import find_kind
from simsql.errors import missing_package
from simsql.fingerprint import (
    COLOUR_SIDE,
    GREY_SIDE,
    HASH_SIDE,
    hash_picture,
    is_text_of,
    spell_picture,
    spell_unseen,
)

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageFile import ImageFile

_FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "TIFF", "BMP", "AVIF")
_HEIC = re.compile(rb"....ftyp(he[iv][cmsx]|m[is]f1)", re.DOTALL)
_LARGEST = 1 << 26  # pixels that are decoded: they take up to 256 MB, and their conversions twice as much again
_DRAFT = 512  # pixels: the thumbnails of a JPEG hardly change if it is decoded at this size, or at a larger one
_ORIENTATION, _ON_ITS_SIDE = 0x0112, {5, 6, 7, 8}  # of EXIF
_SHOWN = 200  # pixels of the longer side of a picture in a report


class Picture(Format):
    """Pictures, which are recognised by content. They are read alone, and their names may have any ending."""

    is_records = False

    def suits(self, ending: str, layout: Layout) -> bool:  # noqa: ARG002
        """Return whether pictures are wanted."""
        return layout.pictures

    def read(self, stream: Stream, found: Found, layout: Layout) -> Iterator[Document | Skip]:
        """Yield a picture. Of one whose look cannot be compared, also yield why; it is compared by its bytes."""
        if found.status is None or not stat.S_ISREG(found.status.st_mode):
            raise UnfitError("special file", "pictures are only read from files")
        sample = stream.sample()
        if not sample:
            raise UnfitError("empty", "the file is empty")
        if find_kind(sample).name != "image":
            raise UnfitError("not a picture", "--recipe phash only reads pictures; texts are read without it")
        data = bytes(read_document(stream, layout.max_document))
        place = printable(found.name)
        try:
            text = _describe(data)
        except UnfitError as unfit:
            detail = f"{unfit.detail}; only identical files are duplicates of it"
            yield Skip(place, unfit.reason, detail)
            text = spell_unseen(data)
        yield Document(found.name, text, place, path=found.path, status=found.status)


def show_picture(path: Path, text: str) -> str | None:
    """Return the size and a small JPEG of a picture, as a data URI; None if the file has another text now."""
    file = io.BytesIO()
    try:
        data = path.read_bytes()
        if not is_text_of(text, data):
            return None
        with _decode(data) as (image, (width, height)):
            shown = _look(image)[0]
            shown.thumbnail((_SHOWN, _SHOWN))
            shown.save(file, "JPEG", quality=70)
    except (OSError, UnfitError):
        return None
    return f"{width}x{height} data:image/jpeg;base64,{b64encode(file.getvalue()).decode()}"


@contextmanager
def _decode(data: bytes) -> Iterator[tuple["Image", tuple[int, int]]]:
    """Decode a picture, or its first frame: upright, but not larger than needed. Also return its real size.

    Raises UnfitError for what cannot be decoded, also within the context.
    """
    try:
        from PIL import Image, ImageOps, UnidentifiedImageError  # noqa: PLC0415 - an extra
    except ModuleNotFoundError:
        raise missing_package("the recipe phash", "Pillow") from None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about what is wrong in a file, without its name
        try:
            with _open(data) as image:
                width, height = image.size
                if image.getexif().get(_ORIENTATION, 1) in _ON_ITS_SIDE:
                    width, height = height, width
                image.draft("RGB", (_DRAFT, _DRAFT))
                _check_size(image.width * image.height)
                ImageOps.exif_transpose(image, in_place=True)
                yield image, (width, height)
        except (UnfitError, MemoryError):
            raise
        except UnidentifiedImageError:
            raise UnfitError(
                "unsupported", f"it is damaged, or in none of these formats: {', '.join(_FORMATS)}, HEIC"
            ) from None
        except Image.DecompressionBombError:  # by far
            _check_size(_LARGEST + 1)
        except Exception as error:  # which is not documented
            said = printable(str(error).strip())
            raise UnfitError("damaged picture", f"the picture is damaged or truncated: {said}") from None


def _check_size(pixels: int) -> None:
    if pixels > _LARGEST:
        raise UnfitError("too large", f"more than {_LARGEST:,} pixels: make it smaller first")


def _open(data: bytes) -> "ImageFile":
    from PIL import Image, UnidentifiedImageError  # noqa: PLC0415 - an extra

    try:
        return Image.open(io.BytesIO(data), formats=_FORMATS)
    except UnidentifiedImageError:
        if not _HEIC.match(data):
            raise
    try:
        from pillow_heif import register_heif_opener  # noqa: PLC0415 - in no extra: 26 MB, partly under the GPL
    except ModuleNotFoundError:
        raise UnfitError("unsupported", str(missing_package("HEIC", "pillow-heif"))) from None
    register_heif_opener(thumbnails=False)  # not what another program has made of the picture
    return Image.open(io.BytesIO(data), formats=["HEIF"])


def _look(image: "Image") -> tuple["Image", "Image | None", int | None]:
    """Return a picture as L or RGB, on white or, if it is flat there, on black; its alpha channel; its hash."""
    from PIL import Image  # noqa: PLC0415 - an extra

    if image.mode.startswith("I"):  # 16 bits, which Pillow would cut off at 255
        image = Image.fromarray(np.clip(np.asarray(image) >> 8, 0, 255).astype(np.uint8))
    if image.mode == "F":
        raise UnfitError("unsupported", "its pixels are real numbers: convert it to JPEG or PNG first")
    if not image.has_transparency_data:
        shown = image if image.mode == "L" else image.convert("RGB")
        return shown, None, hash_picture(_shrink(shown, HASH_SIDE, "L"))
    image = image.convert("RGBA")
    alpha = image.getchannel("A")
    shown = Image.new("RGB", image.size)
    for ground in ("white", "black"):
        shown.paste(ground, (0, 0, *image.size))
        shown.paste(image, mask=alpha)
        if (hash_ := hash_picture(_shrink(shown, HASH_SIDE, "L"))) is not None:
            break
    return shown, alpha, hash_


def _describe(data: bytes) -> str:
    """Return the text of a picture. Raises UnfitError if it cannot be decoded, or its look cannot be compared."""
    with _decode(data) as (image, size):
        # A JPEG with a preview or a depth map is MPO.
        if getattr(image, "is_animated", False) and image.format != "MPO":
            raise UnfitError("unsupported", "it has several frames or pages")
        shown, alpha, hash_ = _look(image)
        if hash_ is None:
            raise UnfitError("flat picture", "it is of one colour")
        thumbnails = [_shrink(shown, GREY_SIDE, "L"), _shrink(shown, COLOUR_SIDE, "RGB")]
        opaque = np.full((COLOUR_SIDE, COLOUR_SIDE), 255, dtype=np.uint8)
        thumbnails.append(_shrink(alpha, COLOUR_SIDE, "L") if alpha else opaque)
        return spell_picture(size, hash_, thumbnails, data)


def _shrink(image: "Image", side: int, mode: str) -> NDArray[np.uint8]:
    # LANCZOS, after the conversion, as imagehash does it.
    return np.asarray(image.convert(mode).resize((side, side), 1))


FORMATS = [Picture()]
