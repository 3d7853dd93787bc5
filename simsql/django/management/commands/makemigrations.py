"""`manage.py makemigrations`: as without simsql, but the first simhash index of an application installs simsql."""

from importlib import import_module
from pathlib import Path
from typing import Any

from django.apps import apps
from django.core.management import find_commands
from django.db.migrations import AddIndex, CreateModel
from django.db.migrations.loader import MigrationLoader

from simsql.django.index import SimhashIndex
from simsql.django.operations import InstallSimsql


def _command() -> Any:
    """Return the command that Django would run without this one: another application's, or its own."""
    for config in apps.get_app_configs() if apps.ready else ():
        folder = str(Path(config.path, "management"))
        if config.name != "simsql.django" and "makemigrations" in find_commands(folder):
            return import_module(f"{config.name}.management.commands.makemigrations").Command
    return import_module("django.core.management.commands.makemigrations").Command


class Command(_command()):  # type: ignore[misc]
    """Put InstallSimsql first into a migration that creates a simhash index, unless an earlier one has it."""

    def write_migration_files(self, changes: Any, *args: Any, **options: Any) -> None:
        """Write the migrations of each application."""
        found = MigrationLoader(None).disk_migrations.items()
        installing = {label for (label, _), migration in found if _installs(migration)}
        for label, migrations in changes.items():
            for migration in migrations:
                if label not in installing and any(map(_creates_index, migration.operations)):
                    migration.operations.insert(0, InstallSimsql())
                if _installs(migration):
                    installing.add(label)
        super().write_migration_files(changes, *args, **options)


def _installs(migration: Any) -> bool:
    return any(isinstance(operation, InstallSimsql) for operation in migration.operations)


def _creates_index(operation: Any) -> bool:
    indexes = [operation.index] if isinstance(operation, AddIndex) else []
    indexes += operation.options.get("indexes", ()) if isinstance(operation, CreateModel) else ()
    return any(isinstance(index, SimhashIndex) for index in indexes)
