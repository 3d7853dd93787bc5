"""The wheel and the source archive contain what they should. `make dist` installs and uses them."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from distribution import PROJECT, REPOSITORY, check_source_archive, check_wheel, read_source_archive, read_wheel


def test_what_a_release_contains(tmp_path: Path) -> None:
    if not (REPOSITORY / ".git").exists():
        pytest.skip("only git knows which files belong to a release")
    build = [sys.executable, "-m", "hatchling", "build", "--directory", tmp_path]
    subprocess.run(build, cwd=REPOSITORY, check=True, capture_output=True)
    (wheel,), (archive,) = tmp_path.glob("*.whl"), tmp_path.glob("*.tar.gz")
    check_wheel(read_wheel(wheel))
    check_source_archive(read_source_archive(archive))


def test_the_recipe_for_conda_asks_for_the_same_packages() -> None:
    recipe = yaml.safe_load((REPOSITORY / "recipe/recipe.yaml").read_text(encoding="utf-8"))
    wanted = {requirement.partition(";")[0].replace(">=", " >=") for requirement in PROJECT["dependencies"]}
    (psycopg,) = (requirement for requirement in wanted if requirement.startswith("psycopg[binary] "))
    # There, every package is a binary: psycopg finds the faster half of it in a package beside it.
    wanted ^= {psycopg, psycopg.replace("[binary]", ""), psycopg.replace("[binary]", "-c")}
    assert set(recipe["requirements"]["run"]) == {"python >=${{ python_min }}", *wanted}
