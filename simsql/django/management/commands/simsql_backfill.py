"""`manage.py simsql_backfill`: compute the fingerprints and sketches that rows lack."""

from typing import TYPE_CHECKING, Any

from django.apps import apps
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DEFAULT_DB_ALIAS, connections, router

from simsql.django.connection import django_errors, is_postgresql
from simsql.django.fields import SimhashField, followers, sketch_of
from simsql.django.queries import search_index
from simsql.errors import SimsqlError
from simsql.processes import usable_cores

if TYPE_CHECKING:
    from simsql.database.backfill import Filled


class Command(BaseCommand):
    """Backfill every SimhashField with a source, and its sketch, in committed batches, while others write."""

    help = (
        "Fingerprint the rows that have a text but no fingerprint, in committed batches, while others read and"
        " write. If it is interrupted, run it again and it resumes. Exits with 1 if rows are left that others were"
        " writing."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the arguments."""
        parser.add_argument("models", nargs="*", metavar="app.Model", help="by default, all models")
        parser.add_argument("--database", default=DEFAULT_DB_ALIAS, choices=tuple(connections))
        parser.add_argument(
            "--all-rows",
            action="store_true",
            help="also those that have one: after a change of the source or recipe",
        )
        parser.add_argument("--workers", type=int, help="processes; by default, one for each core")

    def handle(self, *, models: list[str], database: str, all_rows: bool, workers: int | None, **_: Any) -> None:
        """Backfill the fields of the models."""
        if not is_postgresql(connections[database]):
            self.stdout.write(f"{database} is {connections[database].vendor}: only PostgreSQL needs a backfill")
            return
        busy = 0
        for field in self._fields(models, database):
            filled = self._backfill(field, database, all_rows=all_rows, workers=workers or usable_cores())
            busy += filled.busy
        if busy:
            raise CommandError(f"{busy:,} rows are left, which others were writing: run it again", returncode=1)

    def _fields(self, names: list[str], database: str) -> list[SimhashField]:
        try:
            chosen = [apps.get_model(name) for name in names] or apps.get_models()
        except (LookupError, ValueError) as error:
            raise CommandError(str(error)) from error
        found = [
            field
            for model in chosen
            if model._meta.managed and not model._meta.proxy and router.allow_migrate_model(database, model)
            for field in followers(model)
            if field.model is model and isinstance(field, SimhashField)
        ]
        if not found:
            names_given = " and ".join(names) or "no model"
            raise CommandError(f"{names_given} has no SimhashField with a source")
        return found

    def _backfill(self, field: SimhashField, database: str, *, all_rows: bool, workers: int) -> "Filled":
        columns = {field.model._meta.get_field(name).column: weight for name, weight in field.sources.weights}
        sketch = sketch_of(field)

        def report(share: float) -> None:
            if self.stderr.isatty():
                self.stderr.write(f"\r{field}: {share:.0%}", ending="")

        try:
            with django_errors(database):
                filled = search_index(field.model, field.name, using=database).backfill(
                    columns,
                    sketch_column=sketch and sketch.column,
                    all_rows=all_rows,
                    workers=workers,
                    report=report,
                )
        except SimsqlError as error:
            raise CommandError(f"{field}: {error}") from error
        # Query caches, such as django-cachalot, only see what Django writes. This writes nothing.
        field.model._base_manager.using(database).none().update(**{field.name: None})
        if self.stderr.isatty():
            self.stderr.write("\r", ending="")
        notes = (
            (filled.without_features, "without words"),
            (filled.unchanged, "up to date"),
            (filled.sketched, "sketched"),
        )
        details = "".join(f", {count:,} {what}" for count, what in notes if count)
        self.stdout.write(f"{field}: fingerprinted {filled.written:,} rows{details}")
        return filled
