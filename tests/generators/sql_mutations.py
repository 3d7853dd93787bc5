"""Small changes to an SQL function: each condition always true or always false, each comparison another one ..."""

import re
from collections.abc import Iterator
from typing import NamedTuple

# Templates, in dollar quotes, are read as code; comments and quoted text are not.
_TOKEN = re.compile(
    r"""(?P<skip>\s+|--[^\n]*|/\*.*?\*/)
      | (?P<text>E?'(?:[^']|'')*'|"[^"]*"|\{[^{}\n]*\}(?!['"])|\{'[^{}\n]*'\}|\$\d+|\d+(?:\.\d+)?(?:e\d+)?)
      | (?P<quote>\$\w*\$)
      | (?P<word>[A-Za-z_]\w*)
      | (?P<sign>:=|=>|<=|>=|<>|<<|>>|\|\||::|->>|->|@>|!~|.)""",
    re.VERBOSE | re.DOTALL,
)
_CONDITION = {"WHERE", "AND", "OR", "ON", "WHEN", "IF", "ELSIF", "WHILE"}
# What ends a condition, or what follows LIMIT or ORDER.
_END = {
    *(
        "AND",
        "OR",
        "WHERE",
        "GROUP",
        "HAVING",
        "ORDER",
        "LIMIT",
        "OFFSET",
        "UNION",
        "EXCEPT",
        "INTERSECT",
        "RETURNING",
    ),
    *("ON", "JOIN", "LEFT", "CROSS", "FULL", "WHEN", "THEN", "ELSE", "END", "LOOP", "DO", ";", ")", "]", "quote"),
}
_OTHER = {
    **{"AND": "OR", "OR": "AND", "=": "<>", "<>": "=", "<": "<=", "<=": "<", ">": ">=", ">=": ">"},
    **{"&": "|", "|": "&", "+": "-", "-": "+", "GREATEST": "least", "LEAST": "greatest", "COALESCE": "nullif"},
    **dict.fromkeys(("NOT", "ONLY", "DISTINCT", "ALL", "LEFT", "DESC"), ""),
}
_STATEMENTS = {"PERFORM", "EXECUTE", "INSERT", "UPDATE", "DELETE", "LOCK"}
# Parts of a template that are conditions.
_PLACEHOLDER = re.compile(r"\{\w*(?:scope|earlier)\w*\}")


class Mutation(NamedTuple):
    """One change to a text: what replaces the characters from `start` to `end`."""

    start: int
    end: int
    new: str

    def apply(self, text: str) -> str:
        """Return the changed text."""
        return text[: self.start] + self.new + text[self.end :]

    def describe(self, text: str) -> str:
        """Return the number of the line, what the change takes away, and what it puts there."""
        old, new = (" ".join(part.split())[:120] for part in (text[self.start : self.end], self.new))
        return f"{text.count(chr(10), 0, self.start) + 1}: {old} -> {new or 'nothing'}"


class _Token(NamedTuple):
    kind: str
    value: str
    start: int
    end: int


def mutations(text: str) -> list[Mutation]:
    """Return all changes to the body of a function or a view, in the order of their places."""
    found = [match for match in _TOKEN.finditer(text) if match.lastgroup != "skip"]
    tokens = [_Token("start", ";", 0, 0)]
    tokens += [_Token(m.lastgroup, m[0].upper() if m.lastgroup == "word" else m[0], *m.span()) for m in found]
    tokens.append(_Token("end", ";", len(text), len(text)))
    places = range(1, len(tokens) - 1)
    changes = (_words, _conditions, _clauses)
    return sorted({mutation for place in places for change in changes for mutation in change(text, tokens, place)})


def _words(text: str, tokens: list[_Token], place: int) -> Iterator[Mutation]:
    """Another operator, or a word left out."""
    before, token, after = tokens[place - 1 : place + 2]
    allowed = {
        "AND": not _is_of_between(tokens, place),
        "DISTINCT": after.value != "FROM",
        "ALL": before.value == "UNION",
        "NOT": before.value not in {"IS", "IF"} or after.value not in {"NULL", "DISTINCT"},
        "LEFT": after.value == "JOIN",
        "-": before.value not in {"(", ",", "{", "RETURN", "THEN", "ELSE", ":="},
        "=": "SET" not in {before.value, tokens[place - 2].value},
    }
    if token.kind in {"word", "sign"} and token.value in _OTHER and allowed.get(token.value, True):
        yield Mutation(token.start, token.end, _OTHER[token.value])
    if _PLACEHOLDER.fullmatch(token.value):
        yield Mutation(token.start, token.end, "")


def _conditions(text: str, tokens: list[_Token], place: int) -> Iterator[Mutation]:
    """Conditions that are always true or false, and IS NULL for IS NOT NULL."""
    before, token, after = tokens[place - 1 : place + 2]
    other = before.value in {"END", "TABLE", "SCHEMA", "FOR"} or after.value == "CONFLICT"
    if token.value in _CONDITION and not other:
        last = _end(tokens, place)
        # WHEN is followed by a value, or by the name of an error.
        if last > place + 1 or (after.kind == "word" and token.value != "WHEN"):
            for value in ("true", "false"):
                yield Mutation(after.start, tokens[last].end, value)
    if token.value == "IS" and after.value == "NULL":
        yield Mutation(token.start, after.end, "IS NOT NULL")
    if token.value == "IS" and after.value == "NOT" and tokens[place + 2].value == "NULL":
        yield Mutation(token.start, tokens[place + 2].end, "IS NULL")


def _clauses(text: str, tokens: list[_Token], place: int) -> Iterator[Mutation]:
    """Statements, limits, orders, locks, rights and second choices left out."""
    before, token, after = tokens[place - 1 : place + 2]
    if token.value in _STATEMENTS and before.value in {";", "THEN", "ELSE", "LOOP", "BEGIN"}:
        semicolon = next(i for i in range(place, len(tokens)) if tokens[i].value == ";")
        yield Mutation(token.start, tokens[semicolon].start, "NULL")
    if token.value in {"LIMIT", "ORDER"}:
        yield Mutation(token.start, tokens[_end(tokens, place)].end, "")
    if token.value == "FOR" and after.value in {"UPDATE", "SHARE", "KEY", "NO"}:
        last = next(i for i in range(place, len(tokens)) if tokens[i].value in {"UPDATE", "SHARE"})
        yield Mutation(token.start, tokens[last].end, "")
    if token.value == "SECURITY" and after.value == "DEFINER":
        yield Mutation(token.start, after.end, "")
    if token.value == "COALESCE":
        first = next(
            i for i in range(place, len(tokens)) if tokens[i].value in ",)" and _depth(tokens, place, i) == 1
        )
        close = next(i for i in range(place + 2, len(tokens)) if _depth(tokens, place, i + 1) == 0)
        yield Mutation(token.start, tokens[close].end, text[tokens[place + 2].start : tokens[first - 1].end])


def _end(tokens: list[_Token], place: int) -> int:
    """The place of the last token of what follows a keyword."""
    ends = _END if tokens[place].value == "ORDER" else {*_END, ","}
    depth = 0
    for here in range(place + 1, len(tokens)):
        value = "quote" if tokens[here].kind == "quote" else tokens[here].value
        from_clause = value == "FROM" and tokens[here - 1].value != "DISTINCT"
        if depth == 0 and (from_clause or (value in ends and not _is_of_between(tokens, here))):
            return here - 1
        depth += (value in {"(", "[", "CASE"}) - (value in {")", "]", "END"})
    return len(tokens) - 2


def _depth(tokens: list[_Token], start: int, end: int) -> int:
    """How many parentheses are open before this token."""
    return sum((token.value == "(") - (token.value == ")") for token in tokens[start:end])


def _is_of_between(tokens: list[_Token], place: int) -> bool:
    """Whether this token is the AND of a BETWEEN."""
    recent = [token.value for token in tokens[max(0, place - 8) : place]]
    return tokens[place].value == "AND" and "BETWEEN" in recent and "AND" not in recent[recent.index("BETWEEN") :]
