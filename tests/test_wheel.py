"""The wheel and the source archive contain what they should. `make dist` installs and uses them."""

import subprocess
import sys
from pathlib import Path

import pytest
from distribution import REPOSITORY, check_source_archive, check_wheel, read_source_archive, read_wheel


def test_what_a_release_contains(tmp_path: Path) -> None:
    if not (REPOSITORY / ".git").exists():
        pytest.skip("only git knows which files belong to a release")
    build = [sys.executable, "-m", "hatchling", "build", "--directory", tmp_path]
    subprocess.run(build, cwd=REPOSITORY, check=True, capture_output=True)
    (wheel,), (archive,) = tmp_path.glob("*.whl"), tmp_path.glob("*.tar.gz")
    check_wheel(read_wheel(wheel))
    check_source_archive(read_source_archive(archive))
