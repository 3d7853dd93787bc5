"""Every public name means one thing: a function is never hidden by a module of the same name."""

import importlib
import pkgutil
from collections.abc import Iterator
from inspect import isfunction
from types import ModuleType

import numpy as np
import pytest
import reference
from sqlalchemy import Column, MetaData, Table

import simsql
from simsql import alembic, database, documents, fingerprint, hamming, report, server
from simsql import sqlalchemy as models

MODULES = [importlib.import_module(found.name) for found in pkgutil.walk_packages(simsql.__path__, "simsql.")]
COLUMN = Table(
    "article", MetaData(), Column("fingerprint", models.Fingerprint()), models.SimhashIndex("fingerprint")
).c.fingerprint
PACKAGES = [simsql, *(module for module in MODULES if hasattr(module, "__path__"))]

WITHOUT_DATABASE = {
    alembic.include_object: ((COLUMN.table, "article", "table", True, None), True),
    alembic.register: ((), None),
    fingerprint.html_parts: ("<p>a", [("a", "text")]),
    fingerprint.visible_text: ("<p>a", "a"),
    fingerprint.majority: ([3, 1, 1], 1),
    fingerprint.simhash: ("", None),
    fingerprint.simhash_features: ([], None),
    fingerprint.simhash_html: ("", None),
    fingerprint.simhash_many: ([], None),
    fingerprint.simhash_parts: ([("", 1)], None),
    fingerprint.estimate_similarity: ((0, 16), 31 / 32),
    fingerprint.similarity: (("one two", "two three"), 0),
    fingerprint.similarity_many: ((["one two"], ["two three"]), [0]),
    fingerprint.sketch: ("", None),
    fingerprint.sketch_many: ([], None),
    hamming.default_design: ((1_000_000, 3), hamming.Design()),
    hamming.find_pairs: ([1, 3], [[1, 3]]),
    hamming.find_clusters: ([1, 3], [[1, 3]]),
    hamming.find_matches: (([1], [[3]]), None),
    hamming.hamming_distance: ((1, 3), 1),
    hamming.plan: ((1_000_000, 3), None),
    models.claim: ((COLUMN, 5, 3), None),
    models.clusters: ((COLUMN, 3), None),
    models.near: ((COLUMN, 5, 3), None),
    models.near_many: ((COLUMN, [5], 3), None),
    models.near_wide: ({"columns": [COLUMN], "fingerprint": [5], "distance": 3}, None),
    models.pairs: ((COLUMN, 3), None),
    models.similar_candidates: ((COLUMN, "one two"), None),
    database.from_bigint: (-1, 2**64 - 1),
    database.schema_sql: ((), None),
    database.to_bigint: (2**64 - 1, -1),
}
OF_FILES = {fingerprint.read_recipe, fingerprint.write_recipe, report.write_report}


def public_functions(package: ModuleType) -> list[object]:
    names = getattr(package, "__all__", [])
    return [value for value in (getattr(package, name) for name in names) if isfunction(value)]


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.__name__)
def test_a_package_exports_no_name_of_a_module(package):
    modules = {found.name for found in pkgutil.iter_modules(package.__path__)}
    assert modules.isdisjoint(getattr(package, "__all__", []))
    for name in modules:
        assert isinstance(getattr(package, name), ModuleType)


def test_the_names_of_a_package_are_in_the_reference_or_for_simsql_itself():
    exporting = {module.__name__ for module in [simsql, *MODULES] if hasattr(module, "__all__")}
    assert exporting - {documents.__name__, report.__name__} == reference.PUBLIC.keys()


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.__name__)
def test_what_a_package_exports_exists_once(package):
    names = getattr(package, "__all__", [])
    assert len(names) == len(set(names))
    for name in names:
        assert not isinstance(getattr(package, name), ModuleType)


@pytest.mark.parametrize(
    ("function", "case"), WITHOUT_DATABASE.items(), ids=[function.__name__ for function in WITHOUT_DATABASE]
)
def test_a_public_function_can_be_called(function, case):
    argument, expected = case
    if isinstance(argument, dict):
        found = function(**argument)
    else:
        found = function(*argument) if isinstance(argument, tuple) else function(argument)
    found = list(found) if isinstance(found, Iterator) else found
    if expected is not None:
        assert np.array_equal(found, expected)


def test_the_public_functions_of_files_can_be_called(tmp_path):
    fingerprint.write_recipe(simsql.DEFAULT_RECIPE, tmp_path / "recipe.json")
    assert fingerprint.read_recipe(tmp_path / "recipe.json") == simsql.DEFAULT_RECIPE
    with (tmp_path / "report.html").open("w", encoding="utf-8") as file:
        report.write_report(file, report.RunReport(0, {}, [], str))


def test_the_public_functions_of_the_database_can_be_called(server):
    """One pass through all of them, from an empty database on."""
    called = set()

    def call(function, *arguments, **options):
        called.add(function)
        return function(*arguments, **options)

    with server.new_database(template="template0") as url:
        engine = call(database.open_engine, url)
        assert call(database.install_schema, engine)
        assert call(database.read_status, engine).version == simsql.__version__
        with engine.begin() as connection:
            connection.exec_driver_sql("CREATE TABLE article (fingerprint bigint)")
            assert call(database.create_index, connection, "article", "fingerprint") == 1
            assert call(database.load_rows, connection, "article", ["fingerprint"], [[-1], [-2]]) == 2
            ones = 2**64 - 1
            index = database.SearchIndex(connection, "article")
            assert index.near(ones) == [(ones, 0), (ones - 1, 1)]
            assert index.verify() == []
            assert call(database.near_wide, connection, "article", ["fingerprint"], [ones], distance=0) == [
                ((ones,), 0)
            ]
            call(database.drop_index, connection, "article")
            connection.exec_driver_sql(
                "ALTER TABLE article ADD id int PRIMARY KEY GENERATED ALWAYS AS IDENTITY, ADD body text"
            )
        assert call(database.create_index, engine, "article", "fingerprint", concurrently=True) == 2
        assert call(database.change_storage, engine, "article", "expression") == 2
        call(database.alter_index, engine, "article", sources={"body": 1})
        call(database.set_default_index, engine, "article", "fingerprint")
        assert not list(call(database.load_unique, engine, "article", [], id_column="id", text_column="body"))
        call(database.maintain, engine)
        assert not call(database.install_schema, engine)
        assert call(database.uninstall_schema, engine, drop_indexes=True)
        engine.dispose()
    assert called == set(public_functions(database)) - WITHOUT_DATABASE.keys()


def test_no_public_function_is_left_out():
    # documents is for commands only. The tests of simsql.django have settings, and those of similar a session.
    packages = [package for package in PACKAGES if package not in (documents, simsql.django)]
    exported = {function for package in packages for function in public_functions(package)}
    functions = {function for function in exported if not isinstance(function, type | fingerprint.Recipe)}
    with_servers = {*public_functions(database), *public_functions(server), models.similar}
    assert functions - with_servers - OF_FILES <= WITHOUT_DATABASE.keys()
