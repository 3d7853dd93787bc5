"""Measure which pages that were scanned twice are found: python -m benchmarks.scans, which prints Markdown.

The pages are those of licences, if the machine has them, and of a civil code. Each is in the file twice, with
wrong letters of its own. A drop is wrong if the kept document is another page. The peer is datasketch, if it is
installed.
"""

import json
import random
import string
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from benchmarks.child import run_child
from benchmarks.figures import markdown_line
from benchmarks.labelled import find_folder, read_lines

_SIMSQL = Path(sys.executable).with_name("simsql")
_LICENCES = Path("/usr/share/common-licenses")
# None of them has parts of another one.
_DISTINCT = ("Apache-2.0", "Artistic", "CC0-1.0", "GFDL-1.3", "GPL-3", "MPL-2.0")
_CODE = "NY1850"
_WORDS, _RATES, _PAGES = (100, 300, 1000), (0.005, 0.01, 0.02, 0.03), 500
_RUN = 5  # characters
_LOW = "0.5"

Found = tuple[int, int, float]
"""Pages of which a scan was dropped in favour of the other, other drops, and seconds of processor time."""


def _pages(words: int) -> list[str]:
    texts = [(_LICENCES / name).read_text(encoding="utf-8").split() for name in _DISTINCT if _LICENCES.is_dir()]
    rows = read_lines(find_folder() / "civil_codes.jsonl.xz")
    texts.append([word for row in rows if row["code"] == _CODE for word in row["text"].split()])
    return [
        " ".join(text[start : start + words]) for text in texts for start in range(0, len(text) - words + 1, words)
    ][-_PAGES:]


def _scan(page: str, rate: float, chance: random.Random) -> str:
    return "".join(
        chance.choice(string.ascii_lowercase) if not c.isspace() and chance.random() < rate else c for c in page
    )


def _dedup(options: Sequence[str], texts: Sequence[str]) -> Found:
    with tempfile.TemporaryDirectory() as folder:
        source, output = Path(folder, "scans.jsonl"), Path(folder, "clusters.jsonl")
        source.write_text("".join(json.dumps({"id": n, "text": t}) + "\n" for n, t in enumerate(texts)))
        found = run_child("program", _SIMSQL, "dedup", source, "--output", output, "--quiet", *options)
        members = [m for line in output.read_text().splitlines() for m in json.loads(line)["members"]]
    drops = [int(member["id"]) ^ 1 == int(member["kept"]) for member in members if member["droppable"]]
    return sum(drops), len(drops) - sum(drops), found["processor"]


def _datasketch(similarity: float, texts: Sequence[str]) -> Found:
    peer, start = import_module("datasketch"), time.process_time()
    index = peer.MinHashLSH(threshold=similarity, num_perm=128)
    hashes = [peer.MinHash(num_perm=128) for _ in texts]
    drops = []
    for n, (text, minhash) in enumerate(zip(texts, hashes, strict=True)):
        minhash.update_batch({text[i : i + _RUN].encode() for i in range(len(text) - _RUN + 1)})
        kept = max(index.query(minhash), key=lambda other: hashes[other].jaccard(minhash), default=None)
        if kept is None or hashes[kept].jaccard(minhash) < similarity:
            index.insert(n, minhash)
        else:
            drops.append(n ^ 1 == kept)
    return sum(drops), len(drops) - sum(drops), time.process_time() - start


def ways() -> Iterator[tuple[str, Callable[[Sequence[str]], Found]]]:
    """Yield ways to find the scans of a page: a name, and what takes the texts."""
    low = ["--drop-similarity", _LOW]
    yield "defaults", partial(_dedup, [])
    yield f"`--similarity {_LOW} --drop-similarity {_LOW}`", partial(_dedup, ["--similarity", _LOW, *low])
    yield "`--by-features`", partial(_dedup, ["--by-features"])
    for recipe in ("words12-log-1", "trigrams1-set-1", *(f"characters{run}-set-1" for run in (3, 4, _RUN))):
        options = ["--by-features", "--recipe", recipe, *low]
        yield f"`{' '.join(options)}`", partial(_dedup, options)
    if find_spec("datasketch"):
        yield f"datasketch, {_RUN} characters, {_LOW}", partial(_datasketch, float(_LOW))


def main() -> None:
    """Print a table for each length of the pages."""
    for words in _WORDS:
        pages, chance = _pages(words), random.Random(1)  # noqa: S311 - no secret
        scans = {rate: [_scan(page, rate, chance) for page in pages for _ in range(2)] for rate in _RATES}
        print(f"\n{len(pages)} pages of {words} words\n")
        print(markdown_line(["way", *(f"{rate:.1%}" for rate in _RATES), "wrong", "CPU ms a page"]))
        print("|---|" + "---:|" * (len(_RATES) + 2))
        for name, find in ways():
            found = [find(texts) for texts in scans.values()]
            right = [f"{count / len(pages):.3f}" for count, _, _ in found]
            wrong = sum(count for _, count, _ in found)
            each = 1000 * sum(seconds for _, _, seconds in found) / len(found) / len(pages)
            print(markdown_line([name, *right, str(wrong), f"{each:.1f}"]), flush=True)


if __name__ == "__main__":
    main()
