"""Errors of PostgreSQL, as SQLAlchemy raises them for users of simsql.database."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy.exc import DBAPIError


@contextmanager
def refused(*kinds: type[Exception], match: str | None = None) -> Iterator[None]:
    """Expect SQLAlchemy's error around one of these kinds of psycopg's errors, or another error itself."""
    with pytest.raises((DBAPIError, *kinds), match=match) as caught:
        yield
    assert isinstance(getattr(caught.value, "orig", caught.value), kinds)
    assert not type(caught.value).__module__.startswith("psycopg")
