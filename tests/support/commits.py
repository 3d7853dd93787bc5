"""The commits of an example, made from the changes that its page shows."""

import re
import shutil
from pathlib import Path

from documentation import REPOSITORY, read_blocks


def write_commits(folder: Path, example: str, page: Path) -> tuple[Path, Path]:
    """Write an example as it was before and as it is after what its page changes."""
    before, after = folder / "before", folder / "after"
    for commit in (before, after):
        shutil.copytree(REPOSITORY / "examples" / example, commit, ignore=shutil.ignore_patterns("__pycache__"))
    for block in read_blocks(page):
        if block.language == "diff":
            for change in re.split(r"^--- ", block.code, flags=re.MULTILINE)[1:]:
                undo(before, change, page)
    return before, after


def undo(commit: Path, change: str, page: Path) -> None:
    """Take back the changes of one file, which have to be in it."""
    heads, *hunks = re.split(r"^@@.*@@\n", change, flags=re.MULTILINE)
    old, new = heads.splitlines()
    file = commit / new.removeprefix("+++ b/")
    text = file.read_text(encoding="utf-8")
    for hunk in hunks:
        lines = [line or " " for line in hunk.splitlines()]
        as_it_is, as_it_was = ("".join(f"{line[1:]}\n" for line in lines if line[0] != sign) for sign in "-+")
        assert text.count(as_it_is) == 1, f"{page}: {file} does not have\n{as_it_is}"
        text = text.replace(as_it_is, as_it_was)
    if old == "/dev/null":
        assert text == ""
        file.unlink()
    else:
        file.write_text(text, encoding="utf-8")
