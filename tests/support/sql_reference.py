"""The tables of docs/reference/sql.md that the comments of the SQL objects fill."""

import re
from collections.abc import Iterator
from functools import partial

from documentation import REPOSITORY

_TABLE = re.compile(r"(<!-- made of the comments in sql/: (\w+) -->\n).*?(?=<!-- end -->)", re.DOTALL)
_COMMENT = re.compile(
    r"^COMMENT ON (FUNCTION|PROCEDURE|VIEW|TYPE|COLUMN) simsql\.([a-z][\w.]*)(?:\([^)]*\))?\s+IS"
    r"\s+((?:'(?:[^']|'')*'\s*)+);",
    re.MULTILINE,
)


def comments() -> list[tuple[str, str, str]]:
    """Return the kind, the name and the comment of each object that users see."""
    return [
        (kind, name, "".join(re.findall(r"'((?:[^']|'')*)'", text)).replace("''", "'"))
        for file in sorted(REPOSITORY.glob("sql/**/*.sql"))
        for kind, name, text in _COMMENT.findall(file.read_text(encoding="utf-8"))
    ]


def with_tables(page: str) -> str:
    """Return the page with its tables made anew."""
    tables = {"routines": _routines, "types": _types}
    tables |= {view: partial(_columns, view) for view in ("indexes", "problems")}
    return _TABLE.sub(lambda match: "\n".join([match[1], *tables[match[2]](page), "", ""]), page)


def _routines(page: str) -> Iterator[str]:
    """Yield a row for each signature on the page, which leads to its section."""
    found = [(name, about) for kind, name, about in comments() if kind in ("FUNCTION", "PROCEDURE")]
    yield from ("| function, or procedure to `CALL` | purpose |", "|---|---|")
    section = ""
    for heading, call, name in re.findall(r"^(?:#+ (.*)|`(CALL )?simsql\.(\w+)\(.*`)$", page, re.MULTILINE):
        section = heading or section
        if name:
            anchor = section.lower().replace(" ", "-")
            # Functions of one name are in the same order in the files.
            row = next(row for row in found if row[0] == name)
            found.remove(row)
            yield f"| [`{call}{name}`](#{anchor}) | {row[1]} |"


def _types(_: str) -> Iterator[str]:
    code = (REPOSITORY / "sql/schema.sql").read_text(encoding="utf-8")
    yield from ("| type | columns | a row is |", "|---|---|---|")
    for kind, name, about in comments():
        if kind == "TYPE":
            columns = re.search(rf"CREATE TYPE simsql\.{name} AS \(\s*([^)]*)\)", code)
            assert columns, name
            listed = ", ".join(f"`{column}`" for column in re.split(r",\s*", columns[1]))
            yield f"| `{name}` | {listed} | {about} |"


def _columns(view: str, _: str) -> Iterator[str]:
    yield from ("| column | meaning |", "|---|---|")
    for kind, name, about in comments():
        if kind == "COLUMN" and name.startswith(f"{view}."):
            yield f"| `{name.removeprefix(f'{view}.')}` | {about} |"
