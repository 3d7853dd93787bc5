"""Measure kinds of drops of templated collections and of prose: python -m benchmarks.kinds, which prints Markdown.

The collections are made here, so that what each document is about is known: a drop is wrong if the kept one is
about something else. One document in ten is followed by a copy with another word, as a correction. Paths name
collections of yours, whose drops nobody has judged.
"""

import json
import random
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from benchmarks.figures import markdown_line
from benchmarks.texts import Corpus
from simsql.decide.kinds import Kind

_DOCUMENTS, _CORRECTED, _LEAST_WORDS = 2_000, 10, 40
_SIMSQL = Path(sys.executable).with_name("simsql")
OPTIONS = {
    "defaults": [],
    "--protect": ["--protect", "numbers,symbols"],
    "0.9": ["--drop-similarity", "0.9"],
    "both": ["--protect", "numbers,symbols", "--drop-similarity", "0.9"],
}

_STATUTE = (
    "An act to incorporate {name}. Be it enacted by the legislature, that {people} and their associates are a body"
    " corporate under the name of {name}, with power to sue and be sued, to have a common seal, to hold land and"
    " goods of a value that shall not exceed {number} dollars, and to make such by-laws as are not repugnant to"
    " the laws of this state. The capital shall be divided into shares of fifty dollars each, and every share"
    " shall have one vote. The directors shall be chosen each year in the month of January, and shall hold their"
    " office until others are chosen in their place. The legislature may alter or repeal this act at any time."
)
_HEADER = (
    "# Licensed under the terms below. You may use, copy, change and distribute this file, with or without fees,"
    " provided that this notice and the list of authors appear in all copies, and that changed files carry a note"
    " of who changed them and when. The software is provided as it is, without warranty of any kind, express or"
    " implied, including but not limited to the warranties of merchantability and fitness for a purpose. In no"
    " event shall the authors be liable for any claim, damages or other liability that arises from its use.\n"
)
_BILL = (
    "Invoice {number} of {month}/{year}. Dear customer, for electricity at your address we charge {units} units at"
    " {price} cents, and a base rate of {rate}. Please transfer the amount of {amount} by day {day} of the next"
    " month, and give the number of the invoice. If you have authorised us, we collect it from your account. For"
    " questions about this invoice, call us from Monday to Friday between 8 and 18 o'clock. Your contract goes on"
    " for another year unless you cancel it four weeks before its end. Thank you for your trust."
)
_MANUAL = (
    "{name} - {people} SYNOPSIS {name} [-{sign}] [OPTION]... [FILE]... DESCRIPTION {text} With no FILE, or when"
    " FILE is -, read standard input. --help display this help and exit --version output version information and"
    " exit REPORTING BUGS Report bugs to the mailing list. COPYRIGHT This is free software: you are free to change"
    " and redistribute it. There is NO WARRANTY, to the extent permitted by law. SEE ALSO The full documentation"
    " is maintained as a manual, which the command info shows if both are installed at your site. If it is not,"
    " read the page on the web, where you also find translations, older versions and examples by other users."
)


def _words(chance: random.Random, least: int, most: int) -> str:
    """Return words of letters, so that they have nothing that could be protected."""
    numbers = [int(17_576 * chance.random() ** 2) for _ in range(chance.randint(least, most))]
    return " ".join("".join(chr(97 + number // 26**place % 26) for place in range(3)) for number in numbers)


def _fill(template: str) -> Callable[[random.Random], str]:
    def make(chance: random.Random) -> str:
        numbers = {name: chance.randrange(10, 10_000) for name in ("number", "units", "amount", "price", "rate")}
        return template.format(
            name=_words(chance, 1, 3),
            people=_words(chance, 2, 4),
            text=_words(chance, 2, 10),
            sign=chance.choice("abcdefghijklmnop"),
            month=chance.randint(1, 12),
            year=chance.randint(2010, 2025),
            day=chance.randint(1, 28),
            **numbers,
        )

    return make


COLLECTIONS: dict[str, Callable[[random.Random], str]] = {
    "statutes": _fill(_STATUTE),
    "sources": lambda chance: _HEADER + _words(chance, 10, 80),
    "bills": _fill(_BILL),
    "manual pages": _fill(_MANUAL),
}


def make_collection(name: str, count: int = _DOCUMENTS) -> Iterator[tuple[int, str]]:
    """Yield texts, each with the number of what it is about."""
    chance = random.Random(name)  # noqa: S311
    prose = iter(
        text for text in Corpus(10 * count, seed=7).strangers(10 * count) if text.count(" ") > _LEAST_WORDS
    )
    for about in range(count):
        text = COLLECTIONS[name](chance) if name in COLLECTIONS else next(prose)
        yield about, text
        if about % _CORRECTED == 0:
            words = text.split(" ")
            words[chance.randrange(len(words))] = "corrected"
            yield about, " ".join(words)


def run_dedup(path: Path, options: list[str], about: dict[str, int]) -> list[str]:
    """Return the cells of a run: drops, those of each kind, wrong ones and whether there is a remark."""
    command = [str(_SIMSQL), "dedup", str(path), "--format", "jsonl", *options]
    done = subprocess.run(command, capture_output=True, check=True, text=True)
    members = [each for line in done.stdout.splitlines() for each in json.loads(line)["members"]]
    drops = [member for member in members if member["droppable"]]
    kinds = Counter(member["kind"] for member in drops)
    wrong = sum(about[member["id"]] != about[member["kept"]] for member in drops) if about else "-"
    remark = "yes" if "looks like a templated collection" in done.stderr else "no"
    counts = [kinds[kind] for kind in Kind]
    return [f"{count}" for count in (len(drops), *counts, wrong, remark)]


def kinds_table(paths: Sequence[Path], count: int = _DOCUMENTS) -> Iterator[str]:
    """Yield the lines of the table."""
    titles = [
        "collection",
        "options",
        "dropped",
        "identical",
        "same words",
        "numbers",
        "similar",
        "wrong",
        "remark",
    ]
    yield markdown_line(titles)
    yield markdown_line(["---"] * 9)
    with tempfile.TemporaryDirectory() as folder:
        for name in [*COLLECTIONS, "prose"]:
            file = Path(folder, f"{name}.jsonl")
            rows = {str(at): row for at, row in enumerate(make_collection(name, count))}
            file.write_text("".join(json.dumps({"id": at, "text": text}) + "\n" for at, (_, text) in rows.items()))
            about = {at: number for at, (number, _) in rows.items()}
            for title, options in OPTIONS.items():
                yield markdown_line([name, title, *run_dedup(file, options, about)])
    for path in paths:
        for title, options in OPTIONS.items():
            yield markdown_line([path.name, title, *run_dedup(path, options, {})])


if __name__ == "__main__":
    for line in kinds_table([Path(path) for path in sys.argv[1:]]):
        print(line, flush=True)
