"""Write a report as one HTML file that needs no network."""

import base64
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from simsql import __version__
from simsql.documents import printable
from simsql.fingerprint import show_similarity
from simsql.report.charts import HEIGHT, WIDTH, draw_histograms
from simsql.report.collected import Collected, to_json
from simsql.report.content import RunReport
from simsql.report.limits import Limits, Sizes, choose_limits, cut_text, left_out

SIZE_LIMIT = 50_000_000
"""Bytes of a report at most."""

_PAGE = Path(__file__).with_name("page")
_SCRIPTS = ("differences.js", "visible.js", "labels.js", "report.js")
_FRAME = 200_000  # bytes: more than all that is not about a single cluster
_ESCAPED = 10  # bytes of a character, at most
_DROPPED = 2  # in the rows of members
_CHUNK = 1 << 18  # characters of texts in one script element: the page parses those that it shows


class Writable(Protocol):
    """A text file."""

    def write(self, text: str, /) -> object:
        """Write text."""


def write_report(file: Writable, report: RunReport, *, size_limit: int = SIZE_LIMIT) -> None:
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
        style, script = (
            "\n".join((_PAGE / name).read_text(encoding="utf-8") for name in names)
            for names in (["report.css"], _SCRIPTS)
        )
        dropped = collected.decisions["dropped"]
        facts = {
            "digest": collected.digest,
            "prefixes": collected.prefixes,
            "dropped": dropped,
            "lineEnd": report.line_end,
            "noun": report.noun,
        }
        template = _environment().get_template("report.html")
        pieces = template.generate(
            version=__version__,
            report=report,
            collected=collected,
            histograms=draw_histograms(report, collected),
            width=WIDTH,
            height=HEIGHT,
            left_out=list(left_out(sizes, limits, collected.long_texts)),
            dropped=dropped,
            prefixes=collected.prefixes,
            facts=to_json(facts).removesuffix("}"),
            policy=_policy(style, script, pictures=report.pictures),
            style=style,
            script=script,
            texts=() if report.pictures else clusters.texts(),
            index=clusters.index(),
            decisions=clusters.decisions(pictures=report.pictures),
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
        chunk: list[str] = []
        size = chunks = 0
        for rows, stored in self._collected.texts(self._limits.clusters, self._limits.members):
            characters = {row[-1]: row[-3] for row in rows}
            texts = []
            for number, full in enumerate(stored):
                text = cut_text(full, self._limits.text)
                texts.append(to_json(text if len(text) == characters[number] else [text]))
            self._places.append((chunks, len(chunk)))
            chunk.append(f"[{','.join(texts)}]")
            size += len(chunk[-1])
            if size > _CHUNK:
                yield _as_list(chunk)
                chunk, size, chunks = [], 0, chunks + 1
        if chunk:
            yield _as_list(chunk)

    def index(self) -> Iterator[str]:
        """Yield the parts of a list: for each cluster its chunk, its position there, its size and its members."""
        for number, all_rows in enumerate(self._collected.rows(self._limits.clusters)):
            rows = all_rows[: self._limits.members]
            for row in rows:
                if row[3] >= len(rows):
                    row[3] = -1  # the kept text is left out
            place = self._places[number] if self._places else (0, 0)  # pictures are not in chunks
            item = to_json([*place, len(all_rows), rows])
            yield f"{',' if number else ''}{item}"

    def decisions(self, *, pictures: bool) -> Iterator[tuple[int, int, str, str, list[tuple[str, ...]]]]:
        """Yield each cluster as plain text: its size, dropped members, beginning, and a line for each member.

        Also yield its pictures, if there are any: the number, size, caption and data URI of each.
        """
        prefixes, limits = self._collected.prefixes, self._limits
        texts = self._collected.texts(limits.clusters, limits.members)
        for all_rows in self._collected.rows(limits.clusters):
            rows = all_rows[: limits.members]
            lines = "\n".join(_describe(row, prefixes) for row in rows)
            drops = sum(row[2] == _DROPPED for row in all_rows)
            shown = list(_pictures(*next(texts), prefixes)) if pictures else []
            yield len(all_rows), drops, printable(rows[0][-2]), lines, shown


def _pictures(rows: list[list[Any]], texts: Iterator[str], prefixes: tuple[str, str]) -> Iterator[tuple[str, ...]]:
    names = {row[-1]: printable(_short(row[0], prefixes, 0)) for row in reversed(rows)}
    for number, text in enumerate(texts):
        size, _, source = text.partition(" ")
        yield f"{number}", size, names[number], source


def _describe(row: list[Any], prefixes: tuple[str, str]) -> str:
    """Return a decision as a line of text: decision, how close it is, and names, separated by tabs."""
    name, place, decision = row[:3]
    distance, similarity = row[4:6] if decision == _DROPPED else row[6:8]
    close = "" if similarity is None else f"{show_similarity(similarity)}  "
    close += f"{distance} bit{'' if distance == 1 else 's'}"
    shown = [printable(_short(value, prefixes, which)) for which, value in enumerate((name, place))]
    names = shown[0] if name == place else f"{shown[0]}  ({shown[1]})"
    return f"{'dropped' if decision == _DROPPED else 'kept'}\t{close if decision else ''}\t{names}"


def _short(name: str, prefixes: tuple[str, str], which: int) -> str:
    """Return an id (0) or a place (1) without what all begin with. See `short` in report.js."""
    prefix = prefixes[which]
    rest = name[len(prefix) :]
    is_line = prefix.endswith(":") and prefix == prefixes[1] and rest.isdecimal()
    return f"line {rest}" if is_line else rest or name


def _as_list(items: list[str]) -> str:
    return f"[{','.join(items)}]"


def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_PAGE),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    environment.filters["printable"] = printable
    return environment


def _policy(style: str, script: str, *, pictures: bool) -> str:
    """Return a Content-Security-Policy under which nothing is loaded, and only our own script runs."""
    images = " img-src data:;" if pictures else ""
    return (
        f"default-src 'none';{images} style-src {_hash(style)}; script-src {_hash(script)}; base-uri 'none';"
        " form-action 'none'; require-trusted-types-for 'script'"
    )


def _hash(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"
