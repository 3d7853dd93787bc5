"""Near-duplicate pictures: recall and precision by variant, and searches among their hashes.

    python -m benchmarks.pictures FOLDER [--pictures 400] [--hashes 100000] [--bktree URL]

The pictures are those in a folder of yours: the benchmark changes copies of some of them, and asks which changed
ones `simsql dedup --recipe phash` would find and drop. It needs the extra `images` and, for searches, `embedded`;
pybktree is a peer. With `--bktree`, it also measures a server whose database has the extension bktree
(pg-spgist_hamming).
"""

import io
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import numpy as np
import psycopg
import typer
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageEnhance

from benchmarks.harness import copy_fingerprints
from benchmarks.server import connect, default_folder, run_server
from simsql.decide.rules import PICTURE_DROP_SIMILARITY, Rules
from simsql.documents.decoding import Stream, UnfitError
from simsql.documents.document import Document, Found, Layout
from simsql.documents.formats.pictures import Picture
from simsql.fingerprint import Recipe, simhash_items_with_tokens
from simsql.fingerprint.pictures import compare_pictures
from simsql.hamming import find_pairs

DISTANCES = (4, 8, 12)
_SIDE = 1024  # pixels: larger pictures are made smaller before they are changed
_LEAST = 128  # pixels of the width and height of a picture that is changed: icons lose more when they are scaled
_SEARCHED = (4, 8)
_SEARCHES = 200

Variant = Callable[[Image.Image], Image.Image]


def _encoded(form: str, **options: object) -> Variant:
    def change(picture: Image.Image) -> Image.Image:
        file = io.BytesIO()
        picture.save(file, form, **options)
        return Image.open(file).convert("RGB")

    return change


def _scaled(factor: float) -> Variant:
    return lambda picture: picture.resize((round(picture.width * factor), round(picture.height * factor)))


def _cropped(share: float) -> Variant:
    def change(picture: Image.Image) -> Image.Image:
        across, down = picture.width * share / 2, picture.height * share / 2
        return picture.crop(
            (round(across), round(down), round(picture.width - across), round(picture.height - down))
        )

    return change


def _signed(share: float) -> Variant:
    def change(picture: Image.Image) -> Image.Image:
        picture = picture.copy()
        side = min(picture.size) * share
        right, bottom = picture.width - side / 4, picture.height - side / 4
        ImageDraw.Draw(picture).rectangle((right - side, bottom - side, right, bottom), fill=(250, 250, 20))
        return picture

    return change


VARIANTS: dict[str, Variant] = {
    **{f"JPEG {quality}": _encoded("JPEG", quality=quality) for quality in (95, 75, 50)},
    "WebP 75": _encoded("WEBP", quality=75),
    "PNG of 256 colours": lambda picture: picture.quantize(256).convert("RGB"),
    **{f"scaled by {factor}": _scaled(factor) for factor in (0.25, 0.5, 2)},
    **{f"cropped by {share:.0%}": _cropped(share) for share in (0.01, 0.02, 0.05, 0.1)},
    "brighter by 20%": lambda picture: ImageEnhance.Brightness(picture).enhance(1.2),
    "darker by 20%": lambda picture: ImageEnhance.Brightness(picture).enhance(0.8),
    "more contrast, 20%": lambda picture: ImageEnhance.Contrast(picture).enhance(1.2),
    **{f"a mark of {share:.0%} of the height": _signed(share) for share in (0.1, 0.2)},
    "without colours": lambda picture: picture.convert("L").convert("RGB"),
}


def _spell(file: io.BytesIO, path: Path) -> str | None:
    """Return the text of a picture; None if it cannot be compared by its look."""
    *_, found = Picture().read(Stream(file), Found(path, path.stat()), Layout())
    return found.text if isinstance(found, Document) and " - " not in found.text else None


def read_originals(folder: Path) -> Iterator[tuple[Path, str]]:
    """Yield the pictures in a folder, with their texts."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink():
            with path.open("rb", buffering=0) as file:
                try:
                    text = _spell(file, path)
                except UnfitError:
                    continue
            if text:
                yield path, text


def change(path: Path) -> Iterator[tuple[str, str | None]]:
    """Yield the variants of a picture by name."""
    with Image.open(path) as opened:
        opened.draft("RGB", (_SIDE, _SIDE))
        rgba = opened.convert("RGBA")
    picture = Image.new("RGBA", rgba.size, "white")
    picture.alpha_composite(rgba)
    picture.thumbnail((_SIDE, _SIDE))
    for name, variant in VARIANTS.items():
        file = io.BytesIO()
        variant(picture.convert("RGB")).save(file, "PNG")
        file.seek(0)
        yield name, _spell(file, path)


class Pictures:
    """Hashes and tokens of pictures, by number."""

    def __init__(self, texts: list[str]) -> None:
        batches = list(simhash_items_with_tokens(enumerate(texts), Recipe.from_id("phash")))
        self.hashes = np.concatenate([values.data for _, values, _, _ in batches])
        self._tokens = np.concatenate([tokens.hashes for _, _, tokens, _ in batches])

    def similarities(self, left: NDArray[np.int64], right: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the similarities of pairs, few at a time."""
        per_picture = len(self._tokens) // len(self.hashes)
        rows = self._tokens.reshape(-1, per_picture)
        found = [np.zeros(0)]
        for start in range(0, len(left), 500):
            some = slice(start, start + 500)
            used, place = np.unique(np.concatenate([left[some], right[some]]), return_inverse=True)
            half = len(left[some])
            found.append(compare_pictures(rows[used].ravel(), place[:half], place[half:]))
        return np.concatenate(found)


def _print_recall(originals: Pictures, changed: list[tuple[str, int, str | None]]) -> None:
    report, drop = Rules().similarity, PICTURE_DROP_SIMILARITY
    print(f"| variant | within {' | '.join(f'{bits} bits' for bits in DISTANCES)} | in a cluster | dropped |")
    print(f"|---|{'--:|' * (len(DISTANCES) + 2)}")
    for name in VARIANTS:
        pairs = [(number, text) for variant, number, text in changed if variant == name]
        of = np.array([number for number, text in pairs if text], dtype=np.int64)
        variants = Pictures([text for _, text in pairs if text])
        distance = np.bitwise_count(originals.hashes[of] ^ variants.hashes)
        both = _joined(originals, variants)
        similarity = both.similarities(of, len(originals.hashes) + np.arange(len(of)))
        near = distance <= Rules().distance
        shares = [float((distance <= bits).sum()) for bits in DISTANCES]
        shares += [float((near & (similarity >= least)).sum()) for least in (report, drop)]
        print(f"| {name} | {' | '.join(f'{share / len(pairs):.2f}' for share in shares)} |")


def _joined(one: Pictures, other: Pictures) -> Pictures:
    both = Pictures.__new__(Pictures)
    both.hashes = np.concatenate([one.hashes, other.hashes])
    both._tokens = np.concatenate([one._tokens, other._tokens])
    return both


def _print_originals(originals: Pictures, paths: list[Path], listed: Path | None) -> None:
    hashes, number = originals.hashes, np.arange(len(originals.hashes))
    pairs: list[NDArray[np.int64]] = []
    for one in number[:-1]:
        others = number[one + 1 :]
        near = others[np.bitwise_count(hashes[others] ^ hashes[one]) <= max(DISTANCES)]
        pairs.append(np.stack([np.full(len(near), one), near], axis=1))
    left, right = np.concatenate(pairs).T
    distance = np.bitwise_count(hashes[left] ^ hashes[right])
    similarity = originals.similarities(left, right)
    print("\n| pairs of originals | pairs | similarity at least .6 | at least .95 |\n|---|--:|--:|--:|")
    for bits in DISTANCES:
        near = distance <= bits
        counts = (
            near.sum(),
            (near & (similarity >= 0.6)).sum(),
            (near & (similarity >= PICTURE_DROP_SIMILARITY)).sum(),
        )
        print(f"| within {bits} bits | {' | '.join(f'{count:,}' for count in counts)} |")
    if listed:
        chosen = np.flatnonzero(similarity >= PICTURE_DROP_SIMILARITY)
        listed.write_text(
            "".join(f"{paths[left[one]]}\t{paths[right[one]]}\t{similarity[one]}\n" for one in chosen)
        )


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _measure_searches(hashes: NDArray[np.uint64], bktree: str | None) -> None:
    queries = np.random.default_rng(1).choice(hashes, _SEARCHES)
    print(
        f"\n{len(hashes):,} hashes, {len(np.unique(hashes)):,} distinct;"
        f" milliseconds of a search, median of {_SEARCHES}"
    )
    print("\n| system | distance 4 | distance 8 |\n|---|--:|--:|")
    rows: list[tuple[str, list[float]]] = []
    expected = [[int((np.bitwise_count(hashes ^ query) <= bits).sum()) for query in queries] for bits in _SEARCHED]

    def add(name: str, search: Callable[[int, int], int], share: int = 1) -> None:
        medians = []
        for place, bits in enumerate(_SEARCHED):
            times = []
            for number, query in enumerate(queries[::share].tolist()):
                start = time.perf_counter()
                found = search(query, bits)
                times.append(time.perf_counter() - start)
                if found != expected[place][number * share]:
                    sys.exit(f"{name} found {found} of {expected[place][number * share]} within {bits} bits")
            medians.append(1000 * float(np.median(times)))
        rows.append((name, medians))
        print(f"| {name} | {' | '.join(f'{median:,.2f}' for median in medians)} |", flush=True)

    def signed(value: int) -> int:
        return value - (1 << 64) if value >> 63 else value

    def asking(connection: psycopg.Connection, statement: str) -> Callable[[int, int], int]:
        def search(query: int, bits: int) -> int:
            found = connection.execute(statement, {"query": signed(query), "bits": bits}, prepare=True).fetchone()
            assert found
            return int(found[0])

        return search

    with run_server(default_folder(), len(hashes), 0) as server, connect(server) as connection:
        connection.execute("CREATE TABLE picture (id bigint, fingerprint bigint)")
        copy_fingerprints(connection, "picture", hashes)
        connection.execute("SELECT simsql.create_index('picture', 'fingerprint', distance => 8)")
        connection.execute("VACUUM ANALYZE")
        near = (
            "SELECT count(*) FROM simsql.near('picture', %(query)s, %(bits)s) n JOIN picture p USING (fingerprint)"
        )
        add("simsql", asking(connection, near))
        scan = "SELECT count(*) FROM picture WHERE bit_count((fingerprint # %(query)s)::bit(64)) <= %(bits)s"
        add("scan with bit_count", asking(connection, scan), 10)
    if bktree:
        with psycopg.connect(bktree, autocommit=True) as connection:
            connection.execute("DROP TABLE IF EXISTS picture")
            connection.execute("CREATE TABLE picture (id bigint, fingerprint bigint)")
            copy_fingerprints(connection, "picture", hashes)
            built = _seconds(
                lambda: connection.execute("CREATE INDEX ON picture USING spgist (fingerprint bktree_ops)")
            )
            connection.execute("VACUUM ANALYZE picture")
            connection.execute("SET enable_seqscan = off")
            near = "SELECT count(*) FROM picture WHERE fingerprint <@ (%(query)s, %(bits)s)::bktree_area"
            add(f"pg-spgist_hamming (built in {built:.0f} s)", asking(connection, near), 10)
    try:
        import pybktree  # noqa: PLC0415 - a peer
    except ModuleNotFoundError:
        print("pybktree is not installed")
    else:
        counts = dict(zip(*(column.tolist() for column in np.unique(hashes, return_counts=True)), strict=True))
        tree = pybktree.BKTree(lambda a, b: (a ^ b).bit_count(), counts)
        add("pybktree", lambda query, bits: sum(counts[found] for _, found in tree.find(query, bits)), 10)
    pairs = _seconds(lambda: sum(map(len, find_pairs(hashes, 8, batches=True))))
    print(f"\nall pairs of distinct hashes within 8 bits, in memory: {pairs:.2f} s")


def measure(
    folder: Annotated[Path, typer.Argument(exists=True, file_okay=False)],
    pictures: Annotated[int, typer.Option(help="Pictures that are changed.")] = 400,
    hashes: Annotated[int, typer.Option(help="Hashes to search among.")] = 100_000,
    bktree: Annotated[str | None, typer.Option(help="URL of a database with the extension bktree.")] = None,
    listed: Annotated[Path | None, typer.Option(help="File for the pairs of originals to drop.")] = None,
) -> None:
    """Print recall by variant, pairs of originals, and the times of searches."""
    start = time.process_time()
    paths, texts = (list(column) for column in zip(*read_originals(folder), strict=True))
    taken = time.process_time() - start
    originals = Pictures(texts)
    print(f"{len(paths):,} pictures, {1000 * taken / len(paths):.1f} ms of processor time each\n", flush=True)
    large = [number for number, text in enumerate(texts) if min(map(int, text.split(" ")[0].split("x"))) >= _LEAST]
    chosen = np.random.default_rng(1).permutation(large)[:pictures].tolist()
    changed = [(name, number, text) for number in chosen for name, text in change(paths[number])]
    _print_recall(originals, changed)
    _print_originals(originals, paths, listed)
    # As many as asked for, as skewed as these: variants of variants, which differ from them in a few bits.
    known = np.concatenate([originals.hashes, Pictures([text for _, _, text in changed if text]).hashes])
    generator = np.random.default_rng(1)
    grown = generator.choice(known, hashes)
    for _ in range(6):
        flipped = np.uint64(1) << generator.integers(0, 64, hashes).astype(np.uint64)
        grown = np.where(generator.random(hashes) < 0.5, grown ^ flipped, grown)
    grown[: len(known)] = known[:hashes]
    _measure_searches(grown, bktree)


if __name__ == "__main__":
    typer.run(measure)
