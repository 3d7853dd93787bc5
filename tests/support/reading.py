"""Read documents as tests look at them."""

import bz2
import gzip
import io
import lzma
from dataclasses import fields

from simsql.documents import Document, DocumentReader, Layout, Skip
from simsql.documents.compression import zstd
from simsql.documents.opening import copy_file, format_of_name


def _compress_zstd(data):
    return zstd.compress(data, options={zstd.CompressionParameter.checksum_flag: 1})


COMPRESSORS = {".gz": gzip.compress, ".xz": lzma.compress, ".bz2": bz2.compress, ".zst": _compress_zstd}
DECOMPRESSORS = {
    **{"": bytes, ".gz": gzip.decompress, ".xz": lzma.decompress},
    **{".bz2": bz2.decompress, ".zst": zstd.decompress},
}


def open_reader(paths, **options):
    """A reader, given the fields of its layout among the options."""
    layout = {field.name: options.pop(field.name) for field in fields(Layout) if field.name in options}
    return DocumentReader(paths, Layout(**layout), **options)


def read(*paths, **options):
    """The documents without their files and lines, which their places show."""
    found = list(open_reader(paths, **options))
    for item in found:
        if isinstance(item, Document):
            assert item.path is None or item.path.exists()
            assert item.line is None or item.place.endswith(f":{item.line}")
    return [
        item._replace(path=None, status=None, line=None) if isinstance(item, Document) else item for item in found
    ]


def texts(*paths, **options):
    found = read(*paths, **options)
    assert not [item for item in found if isinstance(item, Skip)]
    return [document.text for document in found]


def one_skip(*paths, **options):
    [skip] = read(*paths, **options)
    assert isinstance(skip, Skip)
    assert "\n" not in skip.detail
    return skip


def skips(*paths, **options):
    return [item for item in read(*paths, **options) if isinstance(item, Skip)]


def from_stdin(data, **options):
    return read("-", stdin=io.BytesIO(data), **options)


def copy(path, removed, layout=Layout()):  # noqa: B008 - never changed
    """The bytes of a copy of a file without the records in these lines."""
    with io.BytesIO() as target, path.open("rb", buffering=0) as file:
        copy_file(file, target, str(path), format_of_name(path), layout, removed, lambda _: None)
        return target.getvalue()


def write(path, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path
