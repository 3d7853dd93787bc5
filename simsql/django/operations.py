"""The operations of migrations."""

from typing import Any

from django.db import NotSupportedError, migrations, router
from django.db.migrations.operations import base
from django.db.migrations.operations.base import Operation

from simsql.django.connection import check_database, django_errors, engine_of, is_postgresql
from simsql.django.index import SimhashIndex


class InstallSimsql(Operation):
    """Install the schema simsql, or upgrade it, in the transaction of the migration.

    If the schema is up to date, nothing happens, as in a database other than PostgreSQL. The reverse removes it,
    unless something still uses it.
    """

    __module__ = "simsql.django"  # where migrations import it from

    reduces_to_sql = True
    reversible = True
    category = base.OperationCategory.ADDITION if hasattr(base, "OperationCategory") else None

    def state_forwards(self, app_label: str, state: Any) -> None:
        """Change nothing in the models."""

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:  # noqa: ARG002
        """Install or upgrade the schema; sqlmigrate prints the SQL for a database without it."""
        connection = schema_editor.connection
        if not _installs(connection, app_label):
            return
        check_database(connection)
        from simsql.database import install_schema, schema_sql  # noqa: PLC0415

        if schema_editor.collect_sql:
            schema_editor.execute(schema_sql(), None)
            return
        with django_errors(connection.alias):
            install_schema(engine_of(connection.alias))

    def database_backwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:  # noqa: ARG002
        """Remove the schema, unless something uses it."""
        from simsql.database.install import UNINSTALL_IF_UNUSED  # noqa: PLC0415

        if _installs(schema_editor.connection, app_label):
            schema_editor.execute(UNINSTALL_IF_UNUSED, None)

    def describe(self) -> str:
        """Return what the migration does."""
        return "Install or upgrade simsql"


def _installs(connection: Any, app_label: str) -> bool:
    return is_postgresql(connection) and router.allow_migrate(connection.alias, app_label)


class BuildSimhashIndex(migrations.AddIndex):
    """Add a simhash index while others write, in a migration with `atomic = False`.

    Takes the arguments of Django's AddIndex: the name of the model and a `SimhashIndex` with a name. In a
    transaction, it raises django.db.NotSupportedError. If it is interrupted, run the migration again. The
    reverse drops the index.
    """

    atomic = False

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        """Create the B-tree and the index. Raises NotSupportedError in a transaction."""
        connection = schema_editor.connection
        if not is_postgresql(connection):
            super().database_forwards(app_label, schema_editor, from_state, to_state)
            return
        if connection.in_atomic_block:
            raise NotSupportedError("BuildSimhashIndex commits as it works: set atomic = False in the migration")
        model = to_state.apps.get_model(app_label, self.model_name)
        if not self.allow_migrate_model(connection.alias, model):
            return
        if not schema_editor.collect_sql:
            self._drop_remains(schema_editor)
        for statement in self.index.build_sql(model, schema_editor):
            schema_editor.execute(statement, None)

    def _drop_remains(self, schema_editor: Any) -> None:
        """Drop the B-tree that an interrupted CREATE INDEX CONCURRENTLY has left behind."""
        name = schema_editor.quote_name(self.index.name)
        with schema_editor.connection.cursor() as cursor:
            cursor.execute("SELECT FROM pg_index WHERE indexrelid = to_regclass(%s) AND NOT indisvalid", [name])
            remains = cursor.fetchone() is not None
        if remains:
            schema_editor.execute(f"DROP INDEX CONCURRENTLY {name}", None)


class KeepSimhashIndex(migrations.SeparateDatabaseAndState):
    """Run operations that rename the table or the columns of a simhash index, or change the type of a source.

    `operations` are those of Django, such as `RenameField` and `AlterField`, in their order.

    PostgreSQL refuses another type while a trigger depends on the column, and searches are refused after a
    rename. So this drops the triggers, runs the operations, then repairs the index and creates the triggers again.
    """

    serialization_expand_args = ("operations",)

    def __init__(self, operations: list[Operation]) -> None:
        super().__init__(operations, operations)

    def deconstruct(self) -> Any:
        """Return the arguments."""
        return type(self).__name__, [], {"operations": self.database_operations}

    def state_forwards(self, app_label: str, state: Any) -> None:
        """Change the models, and the names of renamed fields in their simhash indexes."""
        super().state_forwards(app_label, state)
        for operation in self.state_operations:
            if isinstance(operation, migrations.RenameField):
                options = state.models[app_label, operation.model_name_lower].options
                options["indexes"] = [
                    index.renamed(operation.old_name, operation.new_name)
                    if isinstance(index, SimhashIndex)
                    else index
                    for index in options.get("indexes", [])
                ]
                state.reload_model(app_label, operation.model_name_lower, delay=False)

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        """Run the operations between the two steps."""
        self._each_index("unfollow_sql", app_label, schema_editor, from_state)
        super().database_forwards(app_label, schema_editor, from_state, to_state)
        self._each_index("repair_sql", app_label, schema_editor, to_state)

    def database_backwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        """Undo the operations between the two steps."""
        self._each_index("unfollow_sql", app_label, schema_editor, from_state)
        super().database_backwards(app_label, schema_editor, from_state, to_state)
        self._each_index("repair_sql", app_label, schema_editor, to_state)

    def describe(self) -> str:
        """Return what the migration does."""
        return (
            "; ".join(operation.describe() for operation in self.database_operations) + " (with simhash indexes)"
        )

    def _each_index(self, make: str, app_label: str, schema_editor: Any, state: Any) -> None:
        if not is_postgresql(schema_editor.connection):
            return
        for model in state.apps.get_app_config(app_label).get_models():
            name = model._meta.model_name
            if not any(operation.references_model(name, app_label) for operation in self.database_operations):
                continue
            if self.allow_migrate_model(schema_editor.connection.alias, model):
                for index in (each for each in model._meta.indexes if isinstance(each, SimhashIndex)):
                    schema_editor.execute(getattr(index, make)(model, schema_editor), None)
