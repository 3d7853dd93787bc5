"""Print the lowest versions that pyproject.toml allows, as constraints for pip: see make test-oldest."""

import re
import tomllib
from pathlib import Path

PROJECT = Path(__file__).parents[1] / "pyproject.toml"


def lowest(requirement: str) -> str:
    """`alembic>=1.11` is `alembic==1.11`, without extras, which constraints cannot have, but with its marker."""
    name, version, marker = re.fullmatch(r"([\w.-]+)(?:\[\w+\])?>=([\d.]+)(;.*)?", requirement).groups()
    return f"{name}=={version}{marker or ''}"


if __name__ == "__main__":
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    for requirement in (*project["dependencies"], *extras["cli"], *extras["django"]):
        if ">=" in requirement:
            print(lowest(requirement))
