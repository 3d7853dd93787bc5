"""The wheel and the source archive contain what they should. `make dist` installs and uses them."""

import subprocess
import sys
from importlib.metadata import packages_distributions, requires
from pathlib import Path

import pytest
import yaml
from distribution import (
    BASE,
    PROJECT,
    REPOSITORY,
    check_source_archive,
    check_wheel,
    read_source_archive,
    read_wheel,
)
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


def test_what_a_release_contains(tmp_path: Path) -> None:
    if not (REPOSITORY / ".git").exists():
        pytest.skip("only git knows which files belong to a release")
    build = [sys.executable, "-m", "hatchling", "build", "--directory", tmp_path]
    subprocess.run(build, cwd=REPOSITORY, check=True, capture_output=True)
    (wheel,), (archive,) = tmp_path.glob("*.whl"), tmp_path.glob("*.tar.gz")
    check_wheel(read_wheel(wheel))
    check_source_archive(read_source_archive(archive))


def test_models_and_migrations_need_no_extra() -> None:
    needed, found = ["simsql"], {"simsql"}
    for name in needed:
        for requirement in map(Requirement, requires(name) or ()):
            each = canonicalize_name(requirement.name)
            if each not in found and (not requirement.marker or requirement.marker.evaluate({"extra": ""})):
                found.add(each)
                needed.append(each)
    assert found >= {"alembic", "numpy", "psycopg", "simsql", "sqlalchemy"}
    installed = packages_distributions().items()
    hidden = {module for module, names in installed if found.isdisjoint(map(canonicalize_name, names))}
    assert hidden > {"django", "jinja2", "rich", "typer"}
    script = f"import sys\nsys.modules.update(dict.fromkeys({sorted(hidden)}))\n{BASE}"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    said = "simsql: error: the command line needs simsql[cli]: pip install jinja2 rich typer"
    assert done.stderr.removesuffix("\n").removesuffix(" backports.zstd") == said
    assert done.returncode == 0


def test_models_of_django_need_no_sqlalchemy() -> None:
    script = (
        "import sys\nfrom django.conf import settings\nsettings.configure()\nimport simsql.django\n"
        "from simsql.django.management.commands import simsql_backfill\n"
        "assert not {'psycopg', 'sqlalchemy'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_the_recipe_for_conda_asks_for_the_same_packages() -> None:
    recipe = yaml.safe_load((REPOSITORY / "recipe/recipe.yaml").read_text(encoding="utf-8"))
    # There, every package is a binary: psycopg finds libpq in a package beside it.
    required = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["cli"]]
    wanted = {requirement.partition(";")[0].replace(">=", " >=") for requirement in required}
    wanted ^= {"psycopg[binary]", "psycopg-c"}
    assert set(recipe["requirements"]["run"]) == {"python >=${{ python_min }}", *wanted}
