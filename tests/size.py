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
CHOICES = re.compile(
    r"""\bstorage\b \s* (?: =(?!>) | <> | != | IS\s.{,5}DISTINCT\b | (?:NOT\s+)? IN\b | WHEN\b | THEN\b)
        | (?<!FUNCTION\ simsql\.) _is_distributed\w*\(""",
    re.IGNORECASE | re.VERBOSE,
)
# What is in a string, a comment or a quoted name is not code.
QUOTED = re.compile(
    r"""(\$\w*\$) .*? \1 | E'(?: [^'\\] | '' | \\. )*' | '[^']*' | "[^"]*" | --[^\n]*""",
    re.DOTALL | re.IGNORECASE | re.VERBOSE,
)
# Files whose lines all count. Then folders, and the figures to reach next and at the end.
WRITTEN = (".c", ".css", ".html", ".js", ".py", ".sql")
ALL_LINES = {
    "all lines of simsql/": (("simsql",), 27_000, 29_500),
    "all lines of sql/": (("sql",), None, 7_900),
    "all lines of dedup and decide": (("simsql/dedup", "simsql/decide"), 3_900, 4_600),
    "all lines of documents": (("simsql/documents",), 3_000, 3_600),
    "all lines of tests/": (("tests",), 51_000, 56_000),
}
GLOSSARY = "docs/explanation/architecture.md"
QUIET = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)


def main(root: Path) -> None:
    """Print the counts of a checkout."""
    sql = {path: path.read_text() for path in sorted(root.glob("sql/**/*.sql"))}
    python = {path: path.read_text() for path in sorted(root.glob("simsql/**/*.py"))}
    tests = {path: path.read_text() for path in sorted(root.glob("tests/**/*.py"))}
    code = {path: sql_code(text) for path, text in sql.items()}
    outside = {path: lines for path, lines in code.items() if "storage" not in path.relative_to(root).parts}
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
        "functions in sql/": sum(functions("\n".join(lines)) for lines in code.values()),
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
    print(f"{'':48}{'':>12}{'next':>12}{'end':>12}")
    rows = [(name, all_lines(root, folders), *targets) for name, (folders, *targets) in ALL_LINES.items()]
    rows.append(("words of the glossary", words_of_glossary((root / GLOSSARY).read_text()), 32, 32))
    for name, *figures in rows:
        print(f"{name:48}", *(f"{'-' if each is None else f'{each:,}':>12}" for each in figures), sep="")


def all_lines(root: Path, folders: tuple[str, ...]) -> int:
    """Count all lines of the files that people write."""
    files = [path for folder in folders for path in (root / folder).rglob("*") if path.suffix in WRITTEN]
    return sum(len(path.read_text().splitlines()) for path in files)


def words_of_glossary(page: str) -> int:
    """Count the rows of the tables below "Words"."""
    section = page.partition("\n## Words\n")[2].partition("\n## ")[0]
    return len(re.findall(r"^\| (?!word \|)", section, re.MULTILINE))


def sql_code(text: str) -> list[str]:
    """Return the lines without comments and blank ones."""
    return [line for line in text.splitlines() if line.strip() and not line.strip().startswith("--")]


def functions(text: str) -> int:
    """Count the functions, procedures and their overloads."""
    return len(re.findall(r"^CREATE OR REPLACE (?:FUNCTION|PROCEDURE) ", text, re.MULTILINE))


def calls_of_format(text: str) -> Iterator[int]:
    """Yield how many arguments each call of format has, the template included."""
    for call in re.finditer(r"\bformat\(", text):
        depth, commas, place = 1, 0, call.end()
        while depth and place < len(text):
            quoted = QUOTED.match(text, place)
            if quoted:
                place = quoted.end()
                continue
            depth += (text[place] in "([") - (text[place] in ")]")
            commas += text[place] == "," and depth == 1
            place += 1
        yield commas + 1


def python_lines(text: str) -> int:
    """Count lines without blank ones, comments and docstrings."""
    quiet = set()
    for node in ast.walk(ast.parse(text)):
        # Those of modules, classes and functions, and those that follow an attribute.
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            quiet |= set(range(node.lineno, (node.end_lineno or 0) + 1))
    lines = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in QUIET:
            lines |= set(range(token.start[0], token.end[0] + 1))
    return len(lines - quiet)


def public_names(text: str) -> list[str]:
    """Return the names in `__all__`."""
    for node in ast.parse(text).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            return list(ast.literal_eval(node.value))
    return []


def commands(root: Path) -> int:
    """Count the commands of the command line, and those of its groups."""
    source = "\n".join(path.read_text() for path in root.glob("simsql/cli/*.py"))
    return len(re.findall(r'^@command\(\s*"', source, re.MULTILINE))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT)
