"""What the wheel and the source archive of a release contain, and what they must not."""

import subprocess
import tarfile
import tomllib
import zipfile
from collections.abc import Mapping
from email.parser import BytesParser
from email.policy import compat32
from pathlib import Path

import simsql

REPOSITORY = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]

BASE = """
import ctypes.util, runpy, sys

ctypes.util.find_library = lambda name: None  # a machine without libpq
sys.modules["psycopg_binary"] = sys.modules["psycopg_c"] = None
import simsql.database, simsql.sqlalchemy
assert not {"alembic", "psycopg", "simsql.cli"} & sys.modules.keys()
import simsql.alembic
assert "psycopg" not in sys.modules
try:
    simsql.database.SearchIndex
except ImportError as error:
    assert str(error) == "psycopg finds no libpq: pip install 'psycopg[binary]'", error
else:
    raise AssertionError("psycopg has found libpq")
try:
    runpy.run_module("simsql", run_name="__main__")
except SystemExit as end:
    assert end.code == 1
"""
"""What an installation without extras does, on a machine without libpq."""


def read_wheel(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def read_source_archive(path: Path) -> dict[str, bytes]:
    """Return the files by their names below the one folder that the archive has."""
    folder = path.name.removesuffix(".tar.gz")
    with tarfile.open(path) as archive:
        files = ((member.name, archive.extractfile(member)) for member in archive if member.isfile())
        return {str(Path(name).relative_to(folder)): file.read() for name, file in files if file}


def check_wheel(members: Mapping[str, bytes]) -> None:
    """Check that a wheel is the package, with sql/ and migrations/ inside, its licence and its metadata."""
    folder = f"simsql-{simsql.__version__}.dist-info"
    package = {name for name in members if not name.startswith(f"{folder}/")}
    inside = {name for name in tracked_files() if name.startswith("simsql/")}
    beside = {name for name in tracked_files() if name.startswith(("sql/", "migrations/"))}
    assert {"simsql/py.typed", "simsql/report/page/report.js"} <= inside
    assert {"sql/install.sql", "migrations/env.py"} <= beside
    assert package == inside | {f"simsql/{name}" for name in beside}
    assert members[f"{folder}/licenses/LICENSE"] == (REPOSITORY / "LICENSE").read_bytes()
    assert f"{folder}/entry_points.txt" in members
    check_metadata(members[f"{folder}/METADATA"])
    check_paths(members)


def check_source_archive(members: Mapping[str, bytes]) -> None:
    """Check that a source archive is the checkout: users can build it, test it and read its pages."""
    assert set(members) - {"PKG-INFO"} == tracked_files()
    check_metadata(members["PKG-INFO"])
    check_paths(members)


def tracked_files() -> set[str]:
    """Return the files that git has or would add."""
    command = ["git", "-C", REPOSITORY, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return {name for name in listed.split("\0") if name and (REPOSITORY / name).exists()}


def check_metadata(content: bytes) -> None:
    metadata = BytesParser(policy=compat32).parsebytes(content)
    assert (metadata["Name"], metadata["Version"]) == ("simsql", simsql.__version__)
    assert metadata["Metadata-Version"] == "2.4"
    assert (metadata["License-Expression"], metadata["License-File"]) == ("MIT", "LICENSE")
    assert metadata["Requires-Python"] == PROJECT["requires-python"]
    assert set(metadata.get_all("Provides-Extra")) == set(PROJECT["optional-dependencies"])
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert metadata.get_payload(decode=True) == (REPOSITORY / "README.md").read_bytes()


def check_paths(members: Mapping[str, bytes]) -> None:
    """Check that no file names the folder in which it was built."""
    assert [name for name, content in members.items() if str(REPOSITORY).encode() in content] == []
