"""Build the site of docs/ into build/site, and follow each link in it: what `make docs` runs.

Warnings, dead links and pictures without alternative text are errors. Links to other sites are not followed:
`make docs-links` asks for them.
"""

import shutil
import sys
import time
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from sphinx.cmd.build import main as build

REPOSITORY = Path(__file__).resolve().parents[1]
SITE = REPOSITORY / "build" / "site"


class Page(HTMLParser):
    """The anchors of a page, and where its links lead."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: set[str] = set()
        self.pictures = 0
        self.nameless: list[str] = []
        self.feed(file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = dict(attrs)
        self.anchors |= {names[name] or "" for name in ("id", "name") if name in names}
        self.links |= {names[name] or "" for name in ("href", "src") if name in names}
        if tag == "img":
            self.pictures += 1
            self.nameless += [] if names.get("alt") else [names.get("src") or ""]


def dead_links(pages: dict[Path, Page]) -> list[str]:
    """Return each link to a file or an anchor that is not there."""
    dead = []
    for file, page in pages.items():
        for link in sorted(page.links):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            place = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            there = pages[place].anchors if place in pages else set()
            if not place.is_file() or (place in pages and parts.fragment and unquote(parts.fragment) not in there):
                dead.append(f"{file.relative_to(SITE)}: {link}")
    return dead


def main() -> int:
    """Build, count and print; return 1 if anything is wrong."""
    started = time.monotonic()
    shutil.rmtree(SITE, ignore_errors=True)
    SITE.mkdir(parents=True)
    warnings = SITE.with_name("warnings.txt")
    status = build(["-q", "-E", "-n", "-W", "-w", str(warnings), *map(str, (REPOSITORY / "docs", SITE))])
    pages = {file: Page(file) for file in SITE.rglob("*.html") if not file.name.startswith(("genindex", "search"))}
    dead = dead_links(pages)
    nameless = [f"{page.relative_to(SITE)}: {name}" for page in pages for name in pages[page].nameless]
    for what, places in (("dead link", dead), ("no alternative text", nameless)):
        for place in places:
            print(f"{what}: {place}", file=sys.stderr)
    pictures = sum(page.pictures for page in pages.values())
    warned = len(warnings.read_text(encoding="utf-8").splitlines())
    print(
        f"{SITE.relative_to(REPOSITORY)}: {len(pages)} pages, {pictures} pictures, {warned} warnings,"
        f" {len(dead)} dead links, {time.monotonic() - started:.0f} s"
    )
    return 1 if status or dead or nameless else 0


if __name__ == "__main__":
    sys.exit(main())
