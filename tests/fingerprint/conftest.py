"""What the tests of fingerprints share: the labelled texts, and the script that measures on them."""

import importlib.util
import os
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def shared():
    folder = Path(os.environ.get("SIMSQL_SHARED", REPOSITORY.parent / "shared")) / "data"
    if not folder.is_dir():
        pytest.skip(f"needs the labelled texts in {folder}: set SIMSQL_SHARED to the folder that holds data/")
    return folder


@pytest.fixture(scope="session")
def quality():
    """The benchmark script as a module: what it prints is what the tests hold it to."""
    spec = importlib.util.spec_from_file_location("quality", REPOSITORY / "benchmarks" / "quality.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
