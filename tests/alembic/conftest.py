"""Alembic projects, with and without simsql in their databases."""

from pathlib import Path

import pytest
from alembic_project import Project
from sqlalchemy import Engine


@pytest.fixture
def project(database: Engine, tmp_path: Path) -> Project:
    """A project without models, and a database that has simsql."""
    return Project(tmp_path / "project", database)


@pytest.fixture
def bare_project(empty_database: Engine, tmp_path: Path) -> Project:
    """A project without models, and a database without simsql."""
    return Project(tmp_path / "bare_project", empty_database)
