"""Build the release, check it, and use it where no checkout is.

    python tests/dist.py

It writes a wheel, a source archive and the recipe for conda-forge to dist/. Each Python from 3.11 on that is here
gets two empty environments: one with the wheel and the extras for users, one with the source archive and no extra.
What is installed is used and removed, and has to leave nothing.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent / "support"), str(Path(__file__).parents[1])]

from distribution import (  # noqa: E402
    BASE,
    PROJECT,
    REPOSITORY,
    check_source_archive,
    check_wheel,
    read_source_archive,
    read_wheel,
)
from program import environment, temporary_folder  # noqa: E402
from rattler_build import Stage0Recipe, VariantConfig  # noqa: E402

import simsql  # noqa: E402
from simsql.fingerprint import simhash_html  # noqa: E402

DIST = REPOSITORY / "dist"
SUPPORTED = range(11, 15)  # 3.11 to 3.14
FOR_USERS = ",".join(extra for extra in PROJECT["optional-dependencies"] if extra != "bench")
# Packages of extras that a module imports as it is imported itself. All others are imported where they are used.
OF_EXTRAS = {"backports", "django", "jinja2", "pyarrow", "rich", "typer"}
IMPORT_ALL = f"""
import importlib, pkgutil, simsql
for found in pkgutil.walk_packages(simsql.__path__, "simsql."):
    try:
        importlib.import_module(found.name)
    except ModuleNotFoundError as error:
        if error.name not in {OF_EXTRAS}:
            raise
"""
PAGE = f"<nav>menu</nav><p>{'words of a page ' * 30}</p>"
TEXTS = {
    "1.txt": "a text that is found twice in this folder of short texts.",
    "2.txt": "a text that is found twice in this folder of short texts!",
    "3.txt": "and one more that has nothing in common with any of the others",
}


def main() -> None:
    """Do it all; end at the first fault."""
    wheel, archive = build()
    pythons = find_pythons()
    for minor in sorted(set(SUPPORTED) - set(pythons)):
        print(f"Python 3.{minor}: not here, so nothing was tried with it", flush=True)
    kinds = ((wheel, FOR_USERS), (archive, ""))
    jobs = [(minor, python, *kind) for minor, python in sorted(pythons.items()) for kind in kinds]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for line in pool.map(lambda job: try_out(*job), jobs):
            print(line, flush=True)


def try_out(minor: int, python: Path, path: Path, extras: str) -> str:
    """Install, use and remove one of the files; return a line about it."""
    began = time.monotonic()
    with temporary_folder(None) as folder:
        Installation(folder, python, path, extras).check()
    name = f"{path.name}[{extras}]" if extras else path.name
    return f"Python 3.{minor}: {name} installed, used and removed in {time.monotonic() - began:.0f} s"


def build() -> tuple[Path, Path]:
    """Build both files, the wheel from the source archive; check them; write the recipe."""
    shutil.rmtree(DIST, ignore_errors=True)
    run(sys.executable, "-m", "build", "--outdir", DIST, REPOSITORY)
    (wheel,), (archive,) = DIST.glob("*.whl"), DIST.glob("*.tar.gz")
    run(sys.executable, "-m", "twine", "check", "--strict", wheel, archive)
    check_wheel(read_wheel(wheel))
    check_source_archive(read_source_archive(archive))
    recipe = (REPOSITORY / "recipe/recipe.yaml").read_text(encoding="utf-8")
    assert f'version: "{simsql.__version__}"' in recipe, "recipe/recipe.yaml has another version"
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    (DIST / "recipe.yaml").write_text(re.sub('(?<=sha256: ")0+', digest, recipe), encoding="utf-8")
    (variant,) = Stage0Recipe.from_file(DIST / "recipe.yaml").render(VariantConfig({"python_min": ["3.11"]}))
    assert variant.recipe.package.name == "simsql"
    for path in (wheel, archive, DIST / "recipe.yaml"):
        print(f"{path.relative_to(REPOSITORY)}: {path.stat().st_size:,} bytes", flush=True)
    return wheel, archive


def find_pythons() -> dict[int, Path]:
    """Return a Python for each minor version that is on the PATH or that pyenv has, and that runs."""
    folders = [Path(folder) for folder in os.get_exec_path()]
    folders += sorted(Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")).glob("versions/*/bin"))
    found = {sys.version_info.minor: Path(sys.executable)}
    for path in (path for folder in folders for path in sorted(folder.glob("python3.*"))):
        match = re.fullmatch(r"python3\.(\d+)", path.name)
        if match and int(match[1]) >= min(SUPPORTED):
            # pyenv has stand-ins for versions that are not chosen: they fail.
            command = [path, "-c", "import sys, venv; print(sys.executable)"]
            result = subprocess.run(command, capture_output=True, text=True, check=False)
            if result.returncode == 0:
                found.setdefault(int(match[1]), Path(result.stdout.strip()))
    return found


class Installation:
    """One of the two files in an environment of its own."""

    def __init__(self, folder: Path, python: Path, path: Path, extras: str) -> None:
        self.folder = folder
        self.bin = folder / "environment" / "bin"
        self.extras = extras
        self.elsewhere = folder / "elsewhere"
        self.elsewhere.mkdir()
        (folder / "temporary").mkdir(mode=0o711)
        self.variables = environment(folder / "home", HOME=str(folder), TMPDIR=str(folder / "temporary"))
        for name in [name for name in self.variables if name.startswith(("PYTHON", "VIRTUAL_ENV"))]:
            del self.variables[name]
        run(python, "-m", "venv", "--without-pip", self.bin.parent)
        requirement = f"simsql[{extras}] @ {path.as_uri()}" if extras else path
        self.pip("install", "--no-compile", "--no-warn-script-location", requirement)

    def check(self) -> None:
        """Use it, remove it, and look what it leaves."""
        self.python("-W", "error", "-c", IMPORT_ALL)
        if not self.extras:
            self.python("-c", BASE)
        else:
            assert self("--version") == f"simsql {simsql.__version__}\n"
            self.dedup()
            self.demo()
            code = f"from simsql.fingerprint import simhash_html; print(simhash_html({PAGE!r}))"
            assert self.python("-c", code) == f"{simhash_html(PAGE)}\n"
        self.pip("uninstall", "--yes", "simsql")
        left = [path for path in self.bin.parent.rglob("*") if "simsql" in path.name.lower()]
        left += (self.folder / "temporary").iterdir()
        assert left == []

    def dedup(self) -> None:
        texts = self.elsewhere / "texts"
        texts.mkdir()
        for name, text in TEXTS.items():
            (texts / name).write_text(text, encoding="utf-8")
        (cluster,) = map(json.loads, self("dedup", "texts").splitlines())
        assert sorted(member["id"] for member in cluster["members"]) == ["texts/1.txt", "texts/2.txt"]

    def demo(self) -> None:
        demo = shutil.copy(REPOSITORY / "examples/demo.py", self.elsewhere)
        shutil.copy(REPOSITORY / "LICENSE", self.folder)  # whose text it searches
        licences = [path for path in self.bin.parent.rglob("LICENSE*") if path.is_file()]
        printed = self.python(demo, *licences)
        assert re.search(r"^ *\d+  .*LICENSE", printed, re.MULTILINE), printed

    def __call__(self, *arguments: str) -> str:
        """Run the installed command."""
        return run(self.bin / "simsql", *arguments, cwd=self.elsewhere, env=self.variables)

    def python(self, *arguments: str | Path) -> str:
        """Run its Python, which finds no module in the current folder."""
        return run(self.bin / "python", "-I", *arguments, cwd=self.elsewhere, env=self.variables)

    def pip(self, command: str, *arguments: str | Path) -> None:
        """Run our pip for it."""
        options = ["--python", self.bin / "python", "--quiet", "--disable-pip-version-check"]
        run(sys.executable, "-m", "pip", *options, command, *arguments)


def run(*command: str | Path, **options: object) -> str:
    """Run a command and return what it prints; end with its output if it fails."""
    result = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    if result.returncode:
        sys.exit(f"{' '.join(map(str, command))} ended with {result.returncode}:\n{result.stdout}{result.stderr}")
    assert "Traceback" not in result.stderr, result.stderr
    return result.stdout


if __name__ == "__main__":
    main()
