"""Alembic projects against one server, the newest: nothing here depends on its version."""

from collections.abc import Callable
from pathlib import Path

import pytest
from alembic_project import Project
from servers import Program, Server, find_programs
from sqlalchemy import Engine


@pytest.fixture(scope="session")
def server(_running: Callable[[Program], Server]) -> Server:
    """The newest server: `.url(database)`, `.run(program, ...)`."""
    return _running(find_programs()[0])


@pytest.fixture
def project(database: Engine, tmp_path: Path) -> Project:
    """A project without models, and a database that has simsql."""
    return Project(tmp_path / "project", database)


@pytest.fixture
def bare_project(empty_database: Engine, tmp_path: Path) -> Project:
    """A project without models, and a database without simsql."""
    return Project(tmp_path / "bare_project", empty_database)
