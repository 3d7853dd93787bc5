"""What the tests of faults share."""

import pytest
from ledger import Ledger


@pytest.fixture
def thorough(request) -> bool:
    """Whether to try often, as `make reliability` does."""
    return request.config.getoption("reliability")


@pytest.fixture
def ledger(connection, storage) -> Ledger:
    """The table `article` with an index, and what was committed to it."""
    return Ledger(connection, storage)
