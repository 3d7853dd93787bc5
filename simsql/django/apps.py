"""The application, for `INSTALLED_APPS`: it has the command simsql_backfill."""

from collections.abc import Callable
from typing import Any

from django.apps import AppConfig
from django.db import NotSupportedError, connections
from django.db.models.signals import post_migrate, pre_migrate


class SimsqlConfig(AppConfig):
    """simsql's application."""

    name = "simsql.django"
    label = "simsql"
    verbose_name = "simsql"

    def ready(self) -> None:
        """Explain errors of migrations, and let writes in them look which columns there are."""
        pre_migrate.connect(_begin)
        post_migrate.connect(_end)


def _begin(using: str, **_: Any) -> None:
    connections[using].simsql_migrates = True
    wrappers = connections[using].execute_wrappers
    if _explain not in wrappers:
        wrappers.append(_explain)


def _end(using: str, **_: Any) -> None:
    connections[using].simsql_migrates = False


def _explain(execute: Callable[..., Any], *statement: Any) -> Any:
    try:
        return execute(*statement)
    except NotSupportedError as error:
        if "zz_simsql_clear_" in str(error):
            error.add_note("Wrap the operation of the migration in simsql.django.KeepSimhashIndex([...])")
        raise
