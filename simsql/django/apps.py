"""The application, for `INSTALLED_APPS`: it has the command simsql_backfill."""

from django.apps import AppConfig


class SimsqlConfig(AppConfig):
    """simsql's application."""

    name = "simsql.django"
    label = "simsql"
    verbose_name = "simsql"
