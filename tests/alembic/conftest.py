"""Alembic projects, with and without simsql in their databases."""

from pathlib import Path

import pytest
from alembic_project import Project
from sqlalchemy import Engine


@pytest.fixture
def project(database: Engine, tmp_path: Path) -> Project:
    """A project without models, and a database that has simsql, as its first revision says."""
    project = Project(tmp_path / "project", database)
    project.write("op.install_simsql()", name="0000")
    project.upgrade()
    return project


@pytest.fixture
def bare_project(empty_database: Engine, tmp_path: Path) -> Project:
    """A project without models, and a database without simsql."""
    return Project(tmp_path / "bare_project", empty_database)
