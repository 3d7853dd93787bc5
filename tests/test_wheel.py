"""The wheel, as users get it: built from a copy of the checkout, installed and used where no checkout is."""

import json
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from program import environment, temporary_folder

from simsql.fingerprint import simhash_html

REPOSITORY = Path(__file__).parents[1]
SOURCES = ("simsql", "sql", "migrations", "pyproject.toml", "README.md", "LICENSE")
OFFLINE = "NewConnectionError|Temporary failure in name resolution|Network is unreachable|ProxyError"


def pip(*arguments: str | Path, python: Path = Path(sys.executable)) -> None:
    command = [sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check", *arguments]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode and re.search(OFFLINE, result.stderr):
        pytest.skip("the package index cannot be reached")
    assert result.returncode == 0, result.stderr


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """On disk, where programs can be run."""
    with temporary_folder(None) as path:
        yield path


@pytest.fixture(scope="module")
def wheel(folder: Path) -> Path:
    copy = folder / "checkout"
    copy.mkdir()
    for name in SOURCES:
        source = REPOSITORY / name
        if source.is_dir():
            shutil.copytree(source, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, copy / name)
    shutil.copytree(REPOSITORY / "tests", copy / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    pip("wheel", "--quiet", "--no-deps", "--wheel-dir", folder / "dist", copy)
    (built,) = (folder / "dist").glob("*.whl")
    shutil.rmtree(copy)
    return built


@pytest.fixture(scope="module")
def simsql(folder: Path, wheel: Path) -> Callable[..., str]:
    """Run the installed command in a folder of its own, and return what it prints."""
    environment_folder = folder / "environment"
    venv.create(environment_folder, with_pip=False)
    python = environment_folder / "bin" / "python"
    pip(
        "install",
        "--quiet",
        "--no-compile",
        "--no-warn-script-location",
        f"simsql[embedded,html] @ {wheel.as_uri()}",
        python=python,
    )
    (folder / "elsewhere").mkdir()

    def run(*arguments: str) -> str:
        result = subprocess.run(
            [environment_folder / "bin" / "simsql", *arguments],
            cwd=folder / "elsewhere",
            env={
                name: value
                for name, value in environment(folder / "home").items()
                if not name.startswith(("PYTHON", "VIRTUAL_ENV"))
            },
            capture_output=True,
            text=True,
            check=False,
        )
        assert result.returncode == 0, result.stderr
        assert "Traceback" not in result.stderr
        return result.stdout

    return run


def test_what_the_wheel_carries(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    for folder in ("sql", "migrations"):
        wanted = {
            f"simsql/{path.relative_to(REPOSITORY)}"
            for path in (REPOSITORY / folder).rglob("*")
            if path.is_file() and "__pycache__" not in path.parts
        }
        assert wanted
        assert wanted <= names
    sql = {path for path in names if path.endswith(".sql") and not path.startswith("simsql/migrations/")}
    assert sql == {f"simsql/{path.relative_to(REPOSITORY)}" for path in (REPOSITORY / "sql").rglob("*.sql")}
    assert "simsql/py.typed" in names
    page = {
        f"simsql/{path.relative_to(REPOSITORY / 'simsql')}" for path in REPOSITORY.glob("simsql/report/page/*")
    }
    assert page
    assert page <= names
    assert {path.split("/")[0] for path in names} == {"simsql", wheel.name.rsplit("-", 3)[0] + ".dist-info"}
    assert not [path for path in names if "test" in path.lower() or path.endswith(".pyc")]


def test_the_installed_command(simsql: Callable[..., str], folder: Path, wheel: Path) -> None:
    version = wheel.name.split("-")[1]
    assert simsql("--version") == f"simsql {version}\n"
    script = simsql("install", "--sql")
    assert "CREATE SCHEMA IF NOT EXISTS simsql" in script
    assert "CREATE OR REPLACE FUNCTION simsql.near(" in script
    texts = folder / "elsewhere" / "texts"
    texts.mkdir()
    for number in (1, 2):
        (texts / f"{number}.txt").write_text(
            "a text that is found twice in this folder of short texts" + "." * number
        )
    (texts / "3.txt").write_text("and one more that has nothing in common with any of the others")
    (cluster,) = map(json.loads, simsql("dedup", "texts").splitlines())
    assert sorted(member["id"] for member in cluster["members"]) == ["texts/1.txt", "texts/2.txt"]
    assert simsql("install") == f"schema simsql {version}: installed\n"


@pytest.mark.usefixtures("simsql")
def test_the_extra_html_holds_all_that_its_library_imports(folder: Path) -> None:
    page = f"<nav>menu</nav><p>{'words of a page ' * 30}</p>"
    code = f"from simsql.fingerprint import simhash_html; print(simhash_html({page!r}))"
    command = [folder / "environment" / "bin" / "python", "-I", "-c", code]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.stderr == ""
    assert result.stdout == f"{simhash_html(page)}\n"
