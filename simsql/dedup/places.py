"""Places of documents: a file, or `file:line` for the documents of a file of records."""

import re

LINE = ":[0-9]+$"
"""The end of a place in a file of records, as a regular expression for Python and PostgreSQL."""


def file_of(place: str) -> str:
    """Return the file of a place. The path of a file may end like a place in another one: look at both."""
    return re.sub(LINE, "", place)
