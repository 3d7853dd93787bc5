"""Pictures in folders: near-duplicates are found and shown, and whatever cannot be compared is skipped by name."""

import io
import os
import sys

import numpy as np
import pillow_heif
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pictures import draw
from PIL import Image, ImageDraw
from program import run

from simsql.documents.decoding import Stream
from simsql.documents.document import Document, Found, Layout
from simsql.documents.formats.pictures import Picture
from simsql.fingerprint import hash_picture

pillow_heif.register_heif_opener()  # for the pictures that are written here


def save(picture, path, **options):
    path.parent.mkdir(exist_ok=True)
    picture.save(path, **options)


def encode(picture, form, **options):
    file = io.BytesIO()
    picture.save(file, form, **options)
    return file.getvalue()


@pytest.fixture
def photos(tmp_path, monkeypatch):
    """A folder of three pictures and their variants, which is the current one."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "photos"
    for seed in range(3):
        save(draw(seed), folder / f"{seed}.png")
        save(draw(seed), folder / f"{seed} small.jpg", quality=75) if seed else None
    save(draw(1).resize((150, 100)), folder / "1 half.webp")
    return folder


def variants(seed):
    """Yield names and pictures that show the same."""
    picture = draw(seed)
    yield "cmyk.jpg", picture.convert("CMYK"), {}
    yield "palette.gif", picture.quantize(128), {}
    exif = Image.Exif()
    exif[0x0112] = 6
    yield "turned.jpg", picture.transpose(Image.Transpose.ROTATE_90), {"exif": exif, "quality": 90}
    yield "large.jpg", picture.resize((2400, 1600)), {}
    yield "tiled.tif", picture, {}
    yield "bitmap.bmp", picture, {}
    yield "phone.jpg", picture, {"format": "MPO", "save_all": True, "append_images": [draw(7)]}
    yield "still.avif", picture, {}
    yield "turned.heic", picture.transpose(Image.Transpose.ROTATE_90), {"exif": exif.tobytes()}


def test_pictures_in_all_modes_are_near_duplicates(photos, home):
    for name, picture, options in variants(0):
        save(picture, photos / name, **options)
    cutout = draw(2).convert("RGBA")
    cutout.paste((200, 0, 0, 0), (0, 0, 100, 200))
    save(cutout, photos / "cutout.png")
    on_white = Image.new("RGB", cutout.size, "white")
    on_white.paste(cutout, mask=cutout)
    save(on_white, photos / "on white.png")
    wide = draw(9).convert("L")
    save(wide, photos / "grey.png")
    save(wide.point([value * 257 for value in range(256)], "I").convert("I;16"), photos / "16 bits.png")
    found = run(
        "dedup", "photos", "--recipe", "phash", "--drop-list", "drops", "--report", "page", home=home
    ).done()
    groups = {frozenset(name.removeprefix("photos/") for name in group) for group in found.groups}
    assert groups == {
        frozenset({"0.png", *(name for name, *_ in variants(0))}),
        frozenset({"1.png", "1 small.jpg", "1 half.webp"}),
        frozenset({"2.png", "2 small.jpg"}),
        frozenset({"cutout.png", "on white.png"}),
        frozenset({"grey.png", "16 bits.png"}),
    }
    assert found.table["documents that could be dropped"] == "14"
    page = (photos.parent / "page").read_text()
    # GIF and TIFF have the same pixels as PNG, but a picture of each is shown.
    assert page.count("data:image/jpeg;base64,") == 14
    assert "turned.jpg" in page
    # The one with the most pixels is kept.
    kept = {member["kept"] for cluster in found.clusters for member in cluster["members"]}
    assert {"photos/large.jpg", "photos/1 small.jpg"} < kept
    dropped = (photos.parent / "drops").read_text().splitlines()
    assert {"photos/0.png", "photos/1 half.webp"} < set(dropped) - {"photos/large.jpg"} == set(dropped)


def test_of_as_many_pixels_those_in_the_larger_file_are_kept(photos, home):
    for seed in (0, 1, 2):
        save(draw(seed), photos / f"{seed} a.jpg", quality=20)
        save(draw(seed), photos / f"{seed} b.jpg", quality=95)
        save(draw(seed).quantize(128), photos / f"{seed} c.gif")
    largest = {
        str(max(photos.glob(f"{seed}*"), key=lambda file: file.stat().st_size).relative_to(photos.parent))
        for seed in range(3)
    }
    found = run("dedup", "photos", "--recipe", "phash", home=home).done()
    assert {member["kept"] for cluster in found.clusters for member in cluster["members"]} == largest


def test_what_looks_alike_to_the_hash_alone_is_not_dropped(photos, home):
    red, blue = (Image.new("RGB", (64, 64), "white") for _ in range(2))
    red.paste("red", (16, 16, 48, 48))
    blue.paste("blue", (16, 16, 48, 48))
    for name, picture in {"red": red, "blue": blue, "banner": red.resize((256, 64))}.items():
        save(picture, photos / f"{name}.png")
    signed = draw(0)
    signed.paste("black", (10, 10, 60, 30))
    save(signed, photos / "signed.png")
    options = ["--recipe", "phash", "--similarity", "0"]
    alone = run("dedup", "photos/red.png", "photos/blue.png", "photos/banner.png", *options, home=home).done()
    assert [cluster["size"] for cluster in alone.clusters] == [3]
    found = run("dedup", "photos", "--recipe", "phash", "--drop-list", "drops", home=home).done()
    dropped = (photos.parent / "drops").read_text()
    assert not any(name in dropped for name in ("red", "blue", "banner", "signed", "0.png"))
    assert found.table["documents"] == "10"


def test_what_cannot_be_compared_is_skipped_by_name(photos, home):
    (photos / "text.txt").write_text("some text")
    (photos / "page.svg").write_text("<svg/>")
    (photos / "records.jsonl").write_text('{"text": "a"}\n')
    (photos / "phone.heic").write_bytes(b"\0\0\0\x18ftypmsf1" + bytes(40))
    (photos / "drawing.psd").write_bytes(b"8BPS\0\1" + bytes(40))
    (photos / "cut.png").write_bytes((photos / "0.png").read_bytes()[:900])
    (photos / "cut.heic").write_bytes(encode(draw(0), "HEIF")[:900])
    (photos / "bad.jpg").write_bytes(b"\xff\xd8\xff" + bytes(500))
    (photos / "empty.png").touch()
    save(Image.new("RGB", (50, 50), "red"), photos / "flat.png")
    Image.new("1", (20_000, 20_000)).save(photos / "bomb.png")
    Image.new("1", (10_000, 8_000)).save(photos / "wide.png")
    os.mkfifo(photos / "pipe.png")
    for name in ("scan.tif", "animated.gif", "animated.webp", "animated.png"):
        save(draw(0), photos / name, save_all=True, append_images=[draw(7)])
    found = run("dedup", "photos", "photos/pipe.png", "--recipe", "phash", home=home)
    reasons = ["not a picture", "unsupported", "damaged picture", "empty", "too large", "special file"]
    assert {reason: found.table[reason] for reason in reasons} == dict(zip(reasons, "372121", strict=True))
    assert found.table["flat picture"] == "1"
    for line in (
        "photos/phone.heic: unsupported: it is damaged, or in none of these formats: JPEG, PNG, WEBP",
        "photos/cut.png: damaged picture: the picture is damaged or truncated",
        "photos/wide.png: too large: more than 67,108,864 pixels: make it smaller first",
        "photos/scan.tif: unsupported: it has several frames or pages; only identical files are duplicates of it",
        "photos/flat.png: flat picture: it is of one colour; only identical files are duplicates of it",
    ):
        assert line in found.err
    assert len(found.clusters) == 2  # nothing else is alike
    assert "no words" not in found.err
    damaged = [line for line in found.err.splitlines() if ": damaged picture: " in line]
    assert [line.endswith("; only identical files are duplicates of it") for line in damaged] == [True, True]
    run("dedup", "photos/flat.png", "photos/0.png", "--recipe", "phash", home=home).done()  # nothing is lost
    missed = run("dedup", "photos/animated.gif", "photos/0.png", "--recipe", "phash", home=home)
    assert missed.code == 1
    assert "photos/animated.gif was not read (unsupported: it has several frames" in missed.err
    run("dedup", "photos/0.png", home=home).failed(1, "photos/0.png: simsql dedup --recipe phash compares")
    only = run("dedup", "photos/text.txt", "--recipe", "phash", home=home)
    only.failed(1, "photos/text.txt: --recipe phash only reads pictures")
    run("dedup", "-", "--recipe", "phash", home=home).failed(2, "pictures are only read from files")
    run("dedup", "photos", "--recipe", "phash", "--clean", "clean", home=home).failed(
        2, "--clean copies JSON, tables and Parquet files, but found none"
    )


def test_archives_and_explanations(photos, home):
    save(draw(0), photos / "later.jpg", quality=80)
    save(draw(1), photos / "new" / "1.jpg", quality=80)
    pair = ["--explain", "photos/0.png", "photos/later.jpg"]
    explained = run("dedup", "photos", "--recipe", "phash", *pair, home=home).done().out
    assert "photos/0.png is dropped in favour of photos/later.jpg" in explained
    assert "estimate" not in explained
    against = run(
        "dedup", "photos/new", "--against", "photos/1.png", "--recipe", "phash", "--format", "jsonl", home=home
    )
    assert against.code == 3
    assert against.table["documents that could be dropped"] == "1"


def test_only_equal_files_are_identical(photos, home):
    picture = draw(0)
    picture.putpixel((0, 0), (1, 2, 3))
    save(picture, photos / "0 with a dot.png")
    save(draw(0), photos / "1234.png")
    save(draw(0), photos / "coarse.png", compress_level=0)
    found = run("dedup", "photos", "--recipe", "phash", home=home).done()
    kinds = {member["place"]: member["kind"] for cluster in found.clusters for member in cluster["members"]}
    assert kinds["photos/coarse.png"] is None
    assert kinds["photos/0.png"] == kinds["photos/1234.png"] == "same words"
    (photos / "0.png").write_bytes((photos / "coarse.png").read_bytes())
    found = run("dedup", "photos", "--recipe", "phash", home=home).done()
    kinds = {member["place"]: member["kind"] for cluster in found.clusters for member in cluster["members"]}
    assert sorted({kinds["photos/0.png"], kinds["photos/coarse.png"]}, key=str) == [None, "identical"]
    assert "templated" not in found.err
    for option in (["--exact"], ["--protect", "numbers"]):
        run("dedup", "photos", "--recipe", "phash", *option).failed(2, "--exact and --protect compare characters")


BRANDS = ["heic", "heix", "heim", "heis", "hevc", "hevx", "hevm", "hevs", "mif1", "msf1"]


def test_heic_is_read_where_pillow_heif_is_installed(photos, home, monkeypatch):
    data = encode(draw(0), "HEIF", quality=80)
    for brand in BRANDS:
        (photos / f"{brand}.heic").write_bytes(data[:8] + brand.encode() + data[12:])
    command = ["dedup", "photos", "--recipe", "phash"]
    found = run(*command, home=home).done()
    assert {"photos/0.png", *(f"photos/{brand}.heic" for brand in BRANDS)} in found.groups
    assert found.table["skipped"] == "0"
    monkeypatch.delitem(Image.OPEN, "HEIF")  # as in a new process
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    (photos / "copy.heic").write_bytes((photos / "heic.heic").read_bytes())
    found = run(*command, home=home).done()
    assert found.table["unsupported"] == str(len(BRANDS) + 1)
    assert "heic.heic: unsupported: HEIC needs the package pillow-heif: pip install pillow-heif; only" in found.err
    assert {"photos/copy.heic", "photos/heic.heic"} in found.groups
    alone = run("dedup", "photos/heic.heic", "--recipe", "phash", home=home)
    assert alone.code == 1
    assert "photos/heic.heic was not read (unsupported: HEIC needs the package pillow-heif" in alone.err
    run("dedup", *photos.glob("*.heic")).failed(1, "simsql dedup --recipe phash compares pictures")


def logo(seed, colour=(255, 255, 255), size=256):
    """Return a drawing on a transparent ground."""
    random = np.random.default_rng(seed)
    picture = Image.new("RGBA", (256, 256), (0, 0, 0, 0))
    pen = ImageDraw.Draw(picture)
    for x, y, across, down in random.integers(30, 110, (5, 4)).tolist():
        pen.ellipse((2 * x - 60, 2 * y - 60, 2 * x + across - 60, 2 * y + down - 60), fill=(*colour, 255))
    return picture.resize((size, size))


def test_white_drawings_are_compared_on_black(photos, home):
    for seed in (1, 2):
        save(logo(seed), photos / f"logo {seed}.png")
        save(logo(seed, size=512), photos / f"logo {seed} large.webp", lossless=True)
        on_black = Image.new("RGB", (256, 256))
        on_black.paste(logo(seed), mask=logo(seed))
        save(on_black, photos / f"logo {seed} on black.jpg", quality=90)
        dark = logo(seed, (0, 0, 0))
        save(dark, photos / f"dark {seed}.png")
        marked = logo(seed)  # all that shows on white is the same mark
        marked.paste((0, 0, 0, 255), (0, 0, 20, 20))
        save(marked, photos / f"marked {seed}.png")
    save(Image.new("RGBA", (90, 90), (9, 200, 9, 0)), photos / "nothing.png")
    found = run("dedup", "photos", "--recipe", "phash", "--report", "page", home=home).done()
    groups = [{name.removeprefix("photos/") for name in group} for group in found.groups]
    for seed in (1, 2):
        assert {f"logo {seed}.png", f"logo {seed} large.webp", f"logo {seed} on black.jpg"} in groups
        assert not any(group & {f"dark {seed}.png", f"marked {seed}.png"} for group in groups)
    assert found.table["flat picture"] == "1"
    assert (photos.parent / "page").read_text().count("data:image/jpeg;base64,") == 11


def test_identical_files_are_duplicates_whatever_they_are(photos, home):
    save(Image.new("RGB", (50, 50), "red"), photos / "flat.png")
    save(Image.new("RGB", (50, 50), "blue"), photos / "other flat.png")
    for name in ("frames.gif", "pages.tif"):
        save(draw(0), photos / name, save_all=True, append_images=[draw(7)])
    save(draw(0), photos / "other frames.gif", save_all=True, append_images=[draw(8)])
    Image.new("1", (10_000, 8_000)).save(photos / "too large.png")
    save(Image.new("F", (90, 60), 0.5), photos / "numbers.tif")
    (photos / "cut.png").write_bytes((photos / "0.png").read_bytes()[:900])
    copied = ["flat.png", "frames.gif", "pages.tif", "too large.png", "numbers.tif", "cut.png"]
    for name in copied:
        (photos / f"copy of {name}").write_bytes((photos / name).read_bytes())
    for options in ([], ["--similarity", "0", "--distance", "25"]):
        found = run("dedup", "photos", "--recipe", "phash", *options, "--report", "page", home=home).done()
        groups = {frozenset(name.removeprefix("photos/") for name in group) for group in found.groups}
        assert {frozenset({name, f"copy of {name}"}) for name in copied} <= groups
        assert not any("other" in name for group in groups for name in group)
        members = [member for cluster in found.clusters for member in cluster["members"]]
        dropped = [member for member in members if "cop" in member["place"] and member["kind"]]
        assert {member["kind"] for member in dropped} <= {"identical"}
    assert "; only identical files are duplicates of it" in found.err
    # The first frame stands for all in the report, where the file can be decoded.
    page = (photos.parent / "page").read_text()
    assert '"50x50 data:image' in page
    assert '"300x200 data:image' in page
    for pair, reason in {
        ("flat.png", "copy of flat.png"): "is dropped in favour of",
        ("flat.png", "other flat.png"): "flat.png is only compared with identical files",
        ("0.png", "frames.gif"): "frames.gif is only compared with identical files",
    }.items():
        names = [f"photos/{name}" for name in pair]
        assert reason in run("dedup", "photos", "--recipe", "phash", "--explain", *names, home=home).done().out
    save(Image.new("RGB", (50, 50), "red"), photos / "new" / "flat.png")
    against = run("dedup", "photos/new", "--against", "photos/flat.png", "--recipe", "phash", home=home)
    assert against.table["documents that could be dropped"] == "1"


def read_text(data, folder):
    """Return the text of a picture."""
    path = folder / "picture"
    path.write_bytes(data)
    with path.open("rb", buffering=0) as file:
        *_, found = Picture().read(Stream(file), Found(path, path.stat()), Layout(pictures=True))
    assert isinstance(found, Document)
    return found.text


@given(starts=st.sampled_from([b"\x89PNG\r\n", b"GIF89a", b"II*\0", b"\0\0\0\x18ftypheix"]), ends=st.data())
def test_files_that_cannot_be_compared_are_told_apart(tmp_path_factory, starts, ends):
    folder = tmp_path_factory.getbasetemp()
    one, other = (starts + ends.draw(st.binary(max_size=20)) for _ in range(2))
    texts = [read_text(data, folder) for data in (one, other, one)]
    assert texts[0] == texts[2]
    assert (texts[0] == texts[1]) == (one == other)


PIXELS = st.tuples(*[st.sampled_from([0, 40, 128, 246, 250, 255])] * 2, st.sampled_from([0, 1, 90, 200, 255]))


@given(pixels=st.lists(PIXELS, min_size=9, max_size=9), opaque=st.booleans())
@example(pixels=[(255, 255, 255)] * 4 + [(0, 0, 0)] * 5, opaque=False)
@example(pixels=[(255, 255, 255)] * 4 + [(255, 255, 200)] * 5, opaque=False)
def test_another_ground_is_only_for_what_white_hides(tmp_path_factory, pixels, opaque):
    rows = np.array(pixels, dtype=np.uint8).reshape(3, 3, 3)
    rgba = np.dstack([rows[:, :, :2], rows[:, :, 1], np.full((3, 3), 255) if opaque else rows[:, :, 2]])
    picture = Image.fromarray(rgba.astype(np.uint8)).resize((60, 60), Image.Resampling.NEAREST)
    hashes = []
    for ground in ("white", "black"):
        shown = Image.new("RGB", picture.size, ground)
        shown.paste(picture, mask=picture.getchannel("A"))
        hashes.append(hash_picture(np.asarray(shown.convert("L").resize((32, 32), Image.Resampling.LANCZOS))))
    spelled = read_text(encode(picture, "PNG"), tmp_path_factory.getbasetemp()).split(" ")[1]
    on_white, on_black = ("-" if value is None else f"{value:016x}" for value in hashes)
    assert spelled == (on_black if on_white == "-" else on_white)
