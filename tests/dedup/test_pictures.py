"""Pictures in folders: near-duplicates are found and shown, and whatever cannot be compared is skipped by name."""

import io
import os

import pytest
from pictures import draw
from PIL import Image
from program import run


def save(picture, path, **options):
    path.parent.mkdir(exist_ok=True)
    picture.save(path, **options)


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
    assert found.table["documents that could be dropped"] == "12"
    page = (photos.parent / "page").read_text()
    # GIF and TIFF have the same pixels as PNG, but a picture of each is shown.
    assert page.count("data:image/jpeg;base64,") == 12
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
    (photos / "phone.heic").write_bytes(b"\0\0\0\x18ftypheic" + bytes(40))
    (photos / "cut.png").write_bytes((photos / "0.png").read_bytes()[:900])
    (photos / "bad.jpg").write_bytes(b"\xff\xd8\xff" + bytes(500))
    (photos / "empty.png").touch()
    save(Image.new("RGB", (50, 50), "red"), photos / "flat.png")
    bomb = io.BytesIO()
    Image.new("1", (20_000, 20_000)).save(bomb, "PNG")
    (photos / "bomb.png").write_bytes(bomb.getvalue())
    Image.new("1", (10_000, 8_000)).save(photos / "wide.png")
    os.mkfifo(photos / "pipe.png")
    for name in ("scan.tif", "animated.gif", "animated.webp", "animated.png"):
        save(draw(0), photos / name, save_all=True, append_images=[draw(7)])
    found = run("dedup", "photos", "photos/pipe.png", "--recipe", "phash", home=home)
    reasons = ["not a picture", "unsupported", "damaged picture", "empty", "too large", "special file"]
    assert {reason: found.table[reason] for reason in reasons} == dict(zip(reasons, "361121", strict=True))
    assert found.table["flat: no fingerprint"] == "1"
    for line in (
        "photos/phone.heic: unsupported: it is damaged, or in none of these formats: JPEG, PNG, WEBP",
        "photos/cut.png: damaged picture: the picture is damaged or truncated",
        "photos/wide.png: too large: more than 67,108,864 pixels: make it smaller first",
        "photos/scan.tif: unsupported: it has several frames or pages: only single pictures are compared",
        "photos/flat.png: flat picture: a picture of one colour has no fingerprint",
    ):
        assert line in found.err
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


def test_equal_thumbnails_make_no_picture_identical(photos, home):
    picture = draw(0)
    picture.putpixel((0, 0), (1, 2, 3))
    save(picture, photos / "0 with a dot.png")
    save(draw(0), photos / "1234.png")
    found = run("dedup", "photos", "--recipe", "phash", home=home).done()
    kinds = {member["kind"] for cluster in found.clusters for member in cluster["members"]}
    assert kinds <= {None, "same words", "similar"}
    assert "templated" not in found.err
    for option in (["--exact"], ["--protect", "numbers"]):
        run("dedup", "photos", "--recipe", "phash", *option).failed(2, "--exact and --protect compare characters")
