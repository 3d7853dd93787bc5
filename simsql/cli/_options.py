"""Every option of every command, declared once: a name has the same meaning everywhere."""

import re
from collections.abc import Callable
from decimal import Decimal
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from simsql.cli._rows import Format


class Encode(StrEnum):
    """How a fingerprint is written."""

    DECIMAL = "decimal"
    HEX = "hex"
    SIGNED = "signed"
    BITS = "bits"


class Meaning(NamedTuple):
    """What an option means, whatever the command: its help begins with that."""

    value: str | None
    """What stands for its value in help; None for a flag."""
    text: str
    short: str = ""


MEANINGS = {
    "--all-rows": Meaning(None, "Recompute all fingerprints, as after a change of the recipe"),
    "--batch": Meaning("ROWS", "How many rows are read and written at a time"),
    "--blocks": Meaning("N", "Cut the 64 bits into this many blocks", "-b"),
    "--calibrate": Meaning(
        None,
        "Measure first what searches and writes cost on the server, by a million fingerprints of its own, which"
        " are removed afterwards. It takes seconds to minutes, and half a gigabyte",
    ),
    "--column": Meaning("NAME", "Column of the fingerprints; by default the one that has a simhash index"),
    "--database": Meaning(
        "URL",
        "PostgreSQL database: postgresql://user@host/name, or the URL of any driver of SQLAlchemy; by default"
        " $SIMSQL_DATABASE, else an embedded server",
    ),
    "--disk": Meaning("SIZE", "What the index may take on disk: 500MB, 2GB (1GB is 1024MB)"),
    "--distance": Meaning("BITS", "How many of the 64 bits may differ", "-d"),
    "--drop-indexes": Meaning(None, "Drop all simhash indexes, too"),
    "--drop-list": Meaning(
        "FILE",
        "Write the ids that a clean-up would drop: those read in this run that are within the distance of their"
        " cluster's representative",
    ),
    "--encode": Meaning(
        "|".join(Encode),
        "How fingerprints are written: unsigned, in 16 hexadecimal digits, as the bigint of PostgreSQL, or as 64"
        " bits, the highest first",
    ),
    "--encoding": Meaning("NAME", "Encoding of texts"),
    "--file": Meaning("PATH", "Search for texts like the one in this file; - reads it from stdin"),
    "--fingerprint": Meaning("NUMBER", "Search for this fingerprint, unsigned decimal"),
    "--format": Meaning(
        "|".join(Format),
        "How results are printed; by default a table at a terminal, and JSON lines in a pipe or a file",
    ),
    "--from": Meaning("REVISION", "Print the upgrade of a database that has this revision"),
    "--id-column": Meaning("NAME", "Column for the ids; without it they are not stored"),
    "--id-field": Meaning("NAME", "Field or column that names the document: unique in all files and runs"),
    "--inner-blocks": Meaning("N", "Blocks into which the other bits are cut again; 0 for none"),
    "--input": Meaning("FILE", "Fingerprints, one unsigned decimal number a line; - is stdin", "-i"),
    "--into": Meaning("NAME", "Create this table and write the results there, instead of to stdout"),
    "--keys": Meaning(None, "Print the primary keys of the rows beside each fingerprint"),
    "--lead": Meaning("N", "How many of the blocks lead"),
    "--lines": Meaning(None, "Take every line of a text, and of standard input, for a document"),
    "--max-document": Meaning(
        "SIZE", "Skip documents that are longer than this after decompression: 500MB, 2GB (1GB is 1024MB)"
    ),
    "--output": Meaning("FILE", "Write the results to this file instead of stdout", "-o"),
    "--quiet": Meaning(
        None, "Print no progress, no summary and no remarks on stderr; errors are printed all the same", "-q"
    ),
    "--recipe": Meaning(
        "RECIPE",
        "How a text becomes a fingerprint: the id of a recipe, the name of one that simsql knows, or a file that"
        " holds one. By default",
    ),
    "--rows": Meaning("N", "How many fingerprints the table has, or will have"),
    "--scope": Meaning(
        "COLUMN=VALUE", "The scope to search, where the index has one; once for each of its columns"
    ),
    "--scope-column": Meaning(
        "COLUMN", "Confine each search to the rows with one value of this column; may be given several times"
    ),
    "--server-dir": Meaning("DIR", "Folder of an embedded server whose data stays"),
    "--table": Meaning(
        "NAME",
        "Table for the documents, which stays; a later run adds what is new. In --server-dir it is"
        " simsql_documents by default; in --database without it, the documents are dropped at the end",
    ),
    "--text": Meaning("TEXT", "Search for texts like this one; - reads it from stdin"),
    "--text-column": Meaning("NAME", "Column of the texts"),
    "--text-field": Meaning("NAME", "Field or column that holds the text"),
    "--workers": Meaning("N", "How many processes compute fingerprints"),
}


def option(name: str, more: str = "", **settings: Any) -> Any:
    """Return the option of this name; `more` goes on with its help, as far as only this command needs it."""
    meaning = MEANINGS[name]
    flags = [name, meaning.short] if meaning.short else [name]
    return typer.Option(*flags, **{"metavar": meaning.value, "help": f"{meaning.text}{more}.", **settings})


_NUMBER = re.compile(r"-?(?:\d+|\d{1,3}(?:,\d{3})+|\d+(?:\.\d+)?[eE]\+?\d{1,2})", re.ASCII)


def number_between(least: int, most: int) -> Callable[[str | int], int]:
    """Return what reads a whole number in this range, also when written as 1,000,000 or 1e6."""

    def read(written: str | int) -> int:
        text = str(written)
        if not _NUMBER.fullmatch(text):
            raise typer.BadParameter(f"{text!r} is not a whole number: write it as 1000000, 1,000,000 or 1e6")
        number = Decimal(text.replace(",", ""))
        if number != number.to_integral_value():
            raise typer.BadParameter(f"{text} is not a whole number")
        if not least <= number <= most:
            bounds = f"at least {least:,}" if most == _ANY else f"between {least:,} and {most:,}"
            raise typer.BadParameter(f"it must be {bounds}, not {text}")
        return int(number)

    return read


_ANY = 1 << 80  # as good as no limit


def number_option(name: str, more: str = "", *, least: int, most: int = _ANY) -> Any:
    """Return the option of this name for a whole number in this range."""
    return option(name, more, parser=number_between(least, most))


def distance_option(more: str) -> Any:
    """Return --distance."""
    return number_option("--distance", more, least=0, most=64)


SearchDistance = Annotated[int | None, distance_option("; by default the index's own distance")]
IndexedColumn = Annotated[str | None, option("--column")]
Database = Annotated[str | None, option("--database")]
ServerDir = Annotated[Path | None, option("--server-dir")]
Encoding = Annotated[str, option("--encoding")]
Formatted = Annotated[Format | None, option("--format")]
IdField = Annotated[str, option("--id-field")]
MaxDocument = Annotated[str, option("--max-document")]
NewRecipeName = Annotated[str | None, option("--recipe", " words12-log-1")]
Quiet = Annotated[bool, option("--quiet")]
RecipeName = Annotated[str | None, option("--recipe", " that of the index, else words12-log-1")]
ScopeValues = Annotated[list[str] | None, option("--scope")]
TextField = Annotated[str, option("--text-field")]

Paths = Annotated[
    list[str],
    typer.Argument(
        metavar="PATH",
        help="Folders (read recursively), files of text, .jsonl, .ndjson, .csv, .tsv, each also .gz, .xz or .bz2;"
        " - is JSON lines on standard input.",
    ),
]
TableName = Annotated[
    str, typer.Argument(metavar="TABLE", help="The table, as SQL writes it: article, app.article.")
]
