"""Sessions for tests of models."""

import contextlib
from collections.abc import Callable, Iterator

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import DeclarativeBase, Session


@pytest.fixture
def session_of(database: Engine) -> Iterator[Callable[[type[DeclarativeBase]], Session]]:
    """`session_of(Base)`: a session, after the tables of the models have been created."""
    with contextlib.ExitStack() as stack:

        def open_session(base: type[DeclarativeBase]) -> Session:
            base.metadata.create_all(database)
            return stack.enter_context(Session(database))

        yield open_session


@pytest.fixture
def session(request: pytest.FixtureRequest, session_of: Callable[[type[DeclarativeBase]], Session]) -> Session:
    """A session for the models of the test module."""
    return session_of(request.module.Base)
