"""Django in this process, with the application `library`, on databases of their own."""

import contextlib
from collections.abc import Iterator

import django
import pytest
from django.conf import settings
from servers import Server
from sqlalchemy import URL

if not settings.configured:
    unset = {"ENGINE": "django.db.backends.postgresql", "NAME": "unset"}
    settings.configure(
        DATABASES={
            "default": unset,
            "other": unset,
            "lite": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"},
        },
        INSTALLED_APPS=["simsql.django", "library"],
        USE_TZ=True,
        DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
    )
    django.setup()

from django.apps import apps
from django.db import connections, transaction
from django.test.utils import CaptureQueriesContext


@contextlib.contextmanager
def pointed(alias: str, url: URL) -> Iterator[None]:
    """Let an alias of Django's name this database."""
    connection = connections[alias]
    before = connection.settings_dict.copy()
    connection.close()
    connection.settings_dict.update(
        NAME=url.database, USER=url.username or "", HOST=url.query["host"], PORT=url.query.get("port", "")
    )
    try:
        yield
    finally:
        connection.close()
        connection.settings_dict.update(before)


def create_tables(alias: str) -> None:
    with connections[alias].schema_editor() as editor:
        for model in apps.get_app_config("library").get_models():
            if model._meta.managed and not model._meta.proxy:
                editor.create_model(model)


@contextlib.contextmanager
def library(server: Server, alias: str) -> Iterator[None]:
    with server.new_database() as url, pointed(alias, url):
        create_tables(alias)
        yield


@pytest.fixture(scope="module")
def shared_library(server: Server) -> Iterator[None]:
    with library(server, "default"):
        yield


@pytest.fixture
def in_test_case(shared_library: None) -> Iterator[None]:
    """The tables of the models, in a transaction that is rolled back, as in a TestCase of Django's."""
    with transaction.atomic():
        yield
        transaction.set_rollback(True)


@pytest.fixture
def committing(server: Server) -> Iterator[None]:
    """The tables of the models in a database of the test's own, as in a TransactionTestCase."""
    with library(server, "default"):
        yield


@pytest.fixture
def other_library(server: Server) -> Iterator[None]:
    """A second database with the tables, "other"."""
    with library(server, "other"):
        yield


@pytest.fixture
def installed(server: Server) -> Iterator[None]:
    """A database with simsql and without tables."""
    with server.new_database() as url, pointed("default", url):
        yield


@pytest.fixture
def empty(installed: None) -> None:
    """A database without simsql and without tables."""
    with connections["default"].cursor() as cursor:
        cursor.execute("SELECT simsql.uninstall()")


@pytest.fixture
def django_assert_num_queries():
    @contextlib.contextmanager
    def check(number: int) -> Iterator[None]:
        with CaptureQueriesContext(connections["default"]) as captured:
            yield
        assert len(captured) == number, [query["sql"] for query in captured]

    return check
