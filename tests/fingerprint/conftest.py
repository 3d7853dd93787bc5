"""What the tests of fingerprints share: the labelled texts."""

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
