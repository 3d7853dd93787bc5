"""What an application sees of the package: its types, and that importing it changes nothing."""

import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
SAMPLE = Path(__file__).with_name("typed_sample.py")
# Everything that listens, to the classes that events of the whole process are sent to.
LISTENERS = """
from sqlalchemy import Column, Engine, MetaData, Pool, Table, event
from sqlalchemy.orm import Mapper, Session
from sqlalchemy.orm.instrumentation import InstrumentationFactory, _instrumentation_factory
import simsql.sqlalchemy
from simsql.sqlalchemy import Fingerprint, SimhashIndex

def count():
    return {
        target.__name__: sum(len(list(getattr(target.dispatch, name)._clslevel.get(target, ()))) for name in names)
        for target in (Column, Engine, MetaData, Pool, Table, Mapper, Session)
        if (names := [name for name in target.dispatch._event_names])
    }, len(list(_instrumentation_factory.dispatch.attribute_instrument))

assert set(count()[0].values()) == {0}, count()
assert count()[1] == 0
Table("a", MetaData(), Column("fp", Fingerprint()), SimhashIndex("fp"))
assert count()[1] == 0
for _ in range(2):
    Table("a", MetaData(), Column("fp", Fingerprint(source="body")), SimhashIndex("fp"))
assert set(count()[0].values()) == {0}, count()
assert count()[1] == 1
"""


def test_importing_listens_to_nothing():
    subprocess.run([sys.executable, "-c", LISTENERS], cwd=REPOSITORY, check=True)


def test_user_code_passes_mypy_strict(monkeypatch):
    api = pytest.importorskip("mypy.api")
    # With the options and the cache of `make lint`, which has looked at SQLAlchemy already.
    monkeypatch.chdir(REPOSITORY)
    report, errors, status = api.run([str(SAMPLE)])
    assert (status, errors) == (0, ""), report
