"""Tests of models run on the newest server; those that concern each version ask for `server` by parameters."""

import contextlib
from collections.abc import Callable, Iterator

import pytest
from servers import Program, Server, find_programs
from sqlalchemy import Engine
from sqlalchemy.orm import DeclarativeBase, Session


@pytest.fixture(scope="session", params=find_programs()[:1], ids=lambda program: program.name)
def server(request: pytest.FixtureRequest, _running: Callable[[Program], Server]) -> Server:
    return _running(request.param)


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
