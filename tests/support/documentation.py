"""The pages of the documentation: their blocks of code, commands, output and tables."""

import doctest
import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
PAGES = [*sorted(REPOSITORY.glob("*.md")), *sorted(REPOSITORY.glob("docs/**/*.md"))]
BACKEND, DJANGO, DJANGO_MODELS = (
    REPOSITORY / "docs" / name for name in ("guides/backend.md", "guides/django.md", "reference/django.md")
)
FILE_NAME = re.compile(r"(?:#|--) ([\w/]+\.(?:py|sh|sql))\n")
LANGUAGES = {"sql", "python", "console", "sh", "text", "diff", "yaml"}


@dataclass(frozen=True)
class Block:
    """A fenced block of code, and the text block right behind it."""

    page: str
    line: int
    language: str
    code: str
    output: str | None = None
    section: str = ""
    """The heading of the second level above it."""

    @property
    def file(self) -> str | None:
        """The name of the file that the block is."""
        found = FILE_NAME.match(self.code)
        return found and found[1]

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def page_id(page: Path) -> str:
    return str(page.relative_to(REPOSITORY))


@functools.cache
def read_blocks(page: Path) -> list[Block]:
    blocks: list[Block] = []
    fence = re.compile(r"^```(.*)\n((?:.*\n)*?)```$", re.MULTILINE)
    text, end = page.read_text(encoding="utf-8"), 0
    for match in fence.finditer(text):
        between, end = text[end : match.start()], match.end()
        headings = re.findall(r"^## (.*)$", text[: match.start()], re.MULTILINE)
        block = Block(page_id(page), text.count("\n", 0, match.start()) + 1, *match.groups())
        block = replace(block, section=headings[-1] if headings else "")
        assert block.language in LANGUAGES, f"{block}: nobody knows how to test {block.language!r}"
        if block.language == "text":
            assert blocks, f"{block}: the output of what?"
            assert not between.strip(), f"{block}: the output of what?"
            last = blocks.pop()
            assert last.output is None, f"{block}: the output of what?"
            block = replace(last, output=block.code)
        blocks.append(block)
    # Nothing is left that looks like code: an indented fence, a fence that is not closed.
    assert "```" not in fence.sub("", text), f"{page}: a fence that is not at the start of a line, or not closed"
    return blocks


def read_commands(block: Block) -> Iterator[tuple[str, str]]:
    """Yield each command of a console or sh block with its output."""
    if block.language == "sh":
        yield from ((line, "") for line in block.code.splitlines() if line)
        return
    assert block.code.startswith("$ "), f"{block}: output of nothing"
    for part in re.split(r"^\$ ", block.code, flags=re.MULTILINE)[1:]:
        match = re.match(r"((?:.*\\\n)*.*)\n?", part)
        assert match is not None
        yield match[1], part[match.end() :]


def assert_output(found: str, expected: str, where: Block | str) -> None:
    """Compare output line by line, `...` standing for any text; spaces at the ends of lines do not count."""

    def tidy(text: str) -> str:
        return "".join(f"{line.rstrip()}\n" for line in text.strip("\n").splitlines())

    if not doctest.OutputChecker().check_output(tidy(expected), tidy(found), doctest.ELLIPSIS):
        pytest.fail(f"{where} shows\n{expected}\nand what comes out is\n{found}", pytrace=False)


def rows_of_table(page: Path, *header: str) -> list[list[str]]:
    """Return the rows of the Markdown table with this header."""
    lines = iter(page.read_text(encoding="utf-8").splitlines())
    for line in lines:
        if [cell.strip() for cell in line.strip("|").split("|")][: len(header)] == list(header):
            next(lines)
            rows: list[list[str]] = []
            for row in lines:
                if not row.startswith("|"):
                    return rows
                rows.append([cell.strip() for cell in row.strip("|").split("|")])
            return rows
    raise AssertionError(f"{page} has no table {header}")
