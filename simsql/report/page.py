"""Write a report as one HTML file that needs no network."""

import base64
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from simsql import __version__
from simsql.arrays.positions import gather
from simsql.documents import printable
from simsql.documents.output import Output
from simsql.report.collected import Collected, to_json
from simsql.report.content import RunReport
from simsql.report.limits import Limits, Sizes, choose_limits, cut_text, left_out

SIZE_LIMIT = 50_000_000
"""Bytes of a report at most."""

_PAGE = Path(__file__).with_name("page")
_SCRIPTS = ("differences.js", "visible.js", "labels.js", "report.js")
_FRAME = 200_000  # bytes: more than all that is not about a single cluster
_ESCAPED = 10  # bytes of a character, at most
_CHUNK = 1 << 18  # characters of texts in one script element: the page parses those that it shows


def write_report(file: TextIO | Output[str], report: RunReport, *, size_limit: int = SIZE_LIMIT) -> None:
    """Write the report of a run as an HTML page of at most `size_limit` bytes of UTF-8.

    If the page would be larger, texts are cut, then members of large clusters are left out, then clusters.
    The page says how much is missing. Clusters and texts are read once, and memory does not grow with the texts.
    """
    with Collected() as collected:
        collected.gather(report)
        sizes = Sizes(collected)
        skips = [skip for each in report.skipped.values() for skip in each.examples]
        listed = sum(_ESCAPED * len(skip.place + skip.detail) for skip in skips)
        limits = choose_limits(sizes, size_limit - _FRAME - listed, cut=not report.pictures)
        clusters = _Clusters(collected, limits)
        style = (_PAGE / "report.css").read_text(encoding="utf-8")
        script = "\n".join((_PAGE / name).read_text(encoding="utf-8") for name in _SCRIPTS)
        dropped = collected.decisions["dropped"]
        facts = {
            "digest": collected.digest,
            "dropped": dropped,
            "drop": report.drop_similarity,
            "lineEnd": report.line_end,
            "noun": report.noun,
        }
        environment = Environment(
            loader=FileSystemLoader(_PAGE),
            autoescape=True,
            trim_blocks=True,
            lstrip_blocks=True,
            undefined=StrictUndefined,
        )
        environment.filters["printable"] = printable
        pieces = environment.get_template("report.html").generate(
            version=__version__,
            report=report,
            collected=collected,
            left_out=list(left_out(sizes, limits, collected.long_texts)),
            dropped=dropped,
            facts=to_json(facts).removesuffix("}"),
            # Nothing is loaded, and only our own script runs.
            policy=f"default-src 'none';{' img-src data:;' if report.pictures else ''} style-src {_hash(style)};"
            f" script-src {_hash(script)}; base-uri 'none'; form-action 'none';"
            " require-trusted-types-for 'script'",
            style=style,
            script=script,
            texts=clusters.texts(),
            index=clusters.index(),
        )
        for piece in pieces:
            file.write(piece)


class _Clusters:
    """The clusters as JSON: first all texts, in chunks, then the index, which says where they are."""

    def __init__(self, collected: Collected, limits: Limits) -> None:
        self._collected = collected
        self._limits = limits
        self._places: list[tuple[int, int]] = []  # chunk of each cluster, and its position there

    def texts(self) -> Iterator[str]:
        """Yield chunks: lists with a list of texts for each cluster. A text that is cut is a list of its own."""
        for number, chunk in enumerate(gather(self._texts_of_clusters(), len, _CHUNK)):
            self._places += [(number, at) for at in range(len(chunk))]
            yield f"[{','.join(chunk)}]"

    def _texts_of_clusters(self) -> Iterator[str]:
        for rows, stored in self._collected.texts(self._limits.clusters, self._limits.members):
            characters = {row[-1]: row[-2] for row in rows}
            texts = []
            for number, full in enumerate(stored):
                text = cut_text(full, self._limits.text)
                texts.append(to_json(text if len(text) == characters[number] else [text]))
            yield f"[{','.join(texts)}]"

    def index(self) -> Iterator[str]:
        """Yield the parts of a list: for each cluster its chunk, its position there, its size and its members."""
        for number, all_rows in enumerate(self._collected.rows(self._limits.clusters)):
            rows = all_rows[: self._limits.members]
            for row in rows:
                if row[3] >= len(rows):
                    row[3] = -1  # the kept text is left out
            item = to_json([*self._places[number], len(all_rows), rows])
            yield f"{',' if number else ''}{item}"


def _hash(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"
