"""Print the lowest versions that pyproject.toml allows, as constraints for pip: see make test-oldest."""

import re
import tomllib
from pathlib import Path

PROJECT = Path(__file__).parents[1] / "pyproject.toml"


def lowest(requirement: str) -> str:
    """`alembic>=1.13` is `alembic==1.13`, without extras, which constraints cannot have, but with its marker."""
    name, version, marker = re.fullmatch(r"([\w.-]+)(?:\[\w+\])?>=([\d.]+)(;.*)?", requirement).groups()
    return f"{name}=={version}{marker or ''}"


if __name__ == "__main__":
    for requirement in tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]["dependencies"]:
        print(lowest(requirement))
