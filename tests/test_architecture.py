"""docs/explanation/architecture.md names only what is there: files, functions and commands."""

import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
PAGE = (REPOSITORY / "docs/explanation/architecture.md").read_text(encoding="utf-8")
NAMES = sorted(set(re.findall(r"`([^`\n]+)`", PAGE)))
SQL = "\n".join(path.read_text(encoding="utf-8") for path in REPOSITORY.glob("sql/**/*.sql"))
PYTHON = "\n".join(path.read_text(encoding="utf-8") for path in REPOSITORY.glob("simsql/**/*.py"))


@pytest.mark.parametrize("name", [name for name in NAMES if re.fullmatch(r"[\w/.-]+(\.(py|sql|toml)|/)", name)])
def test_each_file_and_folder_is_there(name):
    # Files of a room are named from simsql/ on, or by their names alone.
    places = [REPOSITORY / name, REPOSITORY / "simsql" / name, *REPOSITORY.glob(f"simsql/**/{name}")]
    places += REPOSITORY.glob(f"sql/**/{name}")
    assert any(place.exists() for place in places)


@pytest.mark.parametrize("name", [name for name in NAMES if re.fullmatch(r"simsql\._?\w+(\(\))?", name)])
def test_each_function_is_there(name):
    name = re.sub(r"_\d+(\(\))?$", "_", name.removeprefix("simsql.").removesuffix("()"))
    assert re.search(rf"simsql\.{name}|'{name}|\b{name}\b", SQL) or re.search(rf"\b{name}\b", PYTHON)


def test_the_glossary_is_short():
    glossary = PAGE[PAGE.index("## Words") : PAGE.index("## Where to add what")]
    rows = [line for line in glossary.splitlines() if line.startswith("| ") and not line.startswith("| word ")]
    assert 0 < len(rows) <= 32
