"""Count what a contributor has to read: python tests/size.py [ANOTHER_CHECKOUT]."""

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
# Asks which storage an index has, or whether Citus manages its table.
CHOICES = re.compile(r"\bstorage\b\s*(?:=|<>|IN\b|WHEN\b|THEN\b)|_is_distributed\w*\(", re.IGNORECASE)
# Written by a program.
GENERATED = {"characters.sql", "_characters.sql"}
QUIET = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)


def main(root: Path) -> None:
    """Print the counts of a checkout."""
    sql = {path: path.read_text() for path in sorted(root.glob("sql/**/*.sql")) if path.name not in GENERATED}
    python = {path: path.read_text() for path in sorted(root.glob("simsql/**/*.py"))}
    tests = {path: path.read_text() for path in sorted(root.glob("tests/**/*.py"))}
    code = {path: sql_code(text) for path, text in sql.items()}
    outside = {path: lines for path, lines in code.items() if "storage" not in path.parts}
    asking = {path: sum(len(CHOICES.findall(line)) for line in lines) for path, lines in outside.items()}
    rooms: dict[str, int] = {}
    for path, text in python.items():
        parts = path.relative_to(root / "simsql").parts
        room = parts[0] if len(parts) > 1 else ""
        rooms[room] = rooms.get(room, 0) + python_lines(text)
    names = [name for path, text in python.items() if path.name == "__init__.py" for name in public_names(text)]
    figures = {
        "lines of code in sql/": sum(map(len, code.values())),
        "longest line in sql/": max(len(line) for lines in code.values() for line in lines),
        "lines in sql/ above 110": sum(len(line) > 110 for lines in code.values() for line in lines),
        "functions in sql/": len({name for lines in code.values() for name in functions("\n".join(lines))}),
        "calls of format with more than four arguments": sum(
            arguments > 4 for lines in code.values() for arguments in calls_of_format("\n".join(lines))
        ),
        "calls of format": sum(1 for lines in code.values() for _ in calls_of_format("\n".join(lines))),
        "places that ask which storage": f"{sum(asking.values())} in {sum(map(bool, asking.values()))} files",
        "lines of code in simsql/": sum(rooms.values()),
        "public names": len(names),
        "commands": commands(root),
        "lines of tests": sum(len(text.splitlines()) for text in tests.values()),
    }
    for name, figure in figures.items():
        print(f"{name:48}{figure:>12,}" if isinstance(figure, int) else f"{name:48}{figure:>12}")
    for room, lines in sorted(rooms.items()):
        print(f"    simsql/{room:37}{lines:>12,}")


def sql_code(text: str) -> list[str]:
    """Return the lines without comments and blank ones."""
    return [line for line in text.splitlines() if line.strip() and not line.strip().startswith("--")]


def functions(text: str) -> list[str]:
    """Return the names of the functions, procedures and their overloads."""
    return re.findall(r"^CREATE OR REPLACE (?:FUNCTION|PROCEDURE) (.*)", text, re.MULTILINE)


def calls_of_format(text: str) -> Iterator[int]:
    """Yield how many arguments each call of format has."""
    for call in re.finditer(r"\bformat\(", text):
        depth, quoted, commas = 1, False, 0
        for character in text[call.end() :]:
            if character == "'":
                quoted = not quoted
            elif not quoted:
                depth += (character in "([") - (character in ")]")
                commas += character == "," and depth == 1
                if not depth:
                    break
        yield commas + 1


def python_lines(text: str) -> int:
    """Count lines without blank ones, comments and docstrings."""
    quiet = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                quiet |= set(range(first.lineno, (first.end_lineno or 0) + 1))
    lines = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in QUIET:
            lines |= set(range(token.start[0], token.end[0] + 1))
    return len(lines - quiet)


def public_names(text: str) -> list[str]:
    """Return the names in `__all__`."""
    for node in ast.parse(text).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            return [name for name in ast.literal_eval(node.value)]
    return []


def commands(root: Path) -> int:
    """Count the commands of the command line, and those of its groups."""
    source = "\n".join(path.read_text() for path in root.glob("simsql/cli/*.py"))
    return len(set(re.findall(r'^@command\("([\w-]+)"(.*)\)', source, re.MULTILINE)))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT)
