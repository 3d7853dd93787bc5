"""Every option of every command, declared once, so that a name has the same meaning everywhere."""

import errno
import os
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from simsql.decide.rules import FEATURES_SIMILARITY, Keep, Protected, Rules
from simsql.documents import STDOUT, DocumentReader, Layout, Outputs, Selection, printable, storable
from simsql.documents.document import USUAL
from simsql.documents.output_formats import Format, choose_format
from simsql.errors import UsageError

if TYPE_CHECKING:
    from simsql.fingerprint import Recipe


class Encode(StrEnum):
    DECIMAL = "decimal"
    HEX = "hex"
    SIGNED = "signed"
    BITS = "bits"


class Html(StrEnum):
    SOURCE = "source"
    MAIN = "main"


class InputFormat(StrEnum):
    TEXT = "text"
    JSONL = "jsonl"
    JSON = "json"
    CSV = "csv"
    TSV = "tsv"
    PARQUET = "parquet"


class Quoting(StrEnum):
    DOUBLE = "double"
    BACKSLASH = "backslash"
    NONE = "none"


class Storage(StrEnum):
    TABLES = "tables"
    EXPRESSION = "expression"


class Meaning(NamedTuple):
    """The meaning of an option in every command. Its help text begins with it."""

    value: str | None
    """The placeholder for its value in the help; None for a flag."""
    text: str
    short: str = ""


MEANINGS = {
    "--against": Meaning(
        "PATH",
        "Compare with the documents in this file or folder: keep them, list only the others, and exit with code 3"
        " if one could be dropped; may be repeated",
    ),
    "--all-rows": Meaning(None, "Recompute every fingerprint, for example after a change of the recipe"),
    "--all-scopes": Meaning(
        None, "Compare rows of different scopes, too, although the simhash index of the table has a scope"
    ),
    "--batch": Meaning("ROWS", "Read and write this many rows at a time (1 or more)"),
    "--blocks": Meaning("N", "Split the 64 bits into this many blocks (at most 64)", "-b"),
    "--by-features": Meaning(
        None, "For titles and records: compare the features of the recipe, by default words and pairs of words"
    ),
    "--check": Meaning(None, "Print only what needs attention, and exit with code 1 if anything does"),
    "--clean": Meaning(
        "PATH",
        "Copy the files of records without the documents to drop; several files and folders into a new folder",
    ),
    "--column": Meaning("NAME", "Use this fingerprint column; by default, the one with a simhash index"),
    "--concurrently": Meaning(None, "Let others write to the table meanwhile"),
    "--database": Meaning(
        "URL",
        "Connect to this PostgreSQL database: postgresql://user@host/name, or a URL for any SQLAlchemy driver; by"
        " default $SIMSQL_DATABASE",
    ),
    "--delimiter": Meaning(
        "CHAR", "Separate the fields of tables by this character, or tab; by default, the header shows it"
    ),
    "--distance": Meaning("BITS", "Allow up to this many differing bits", "-d"),
    "--drop-indexes": Meaning(None, "Also drop all simhash indexes"),
    "--drop-list": Meaning(
        "FILE", "Write the paths and ids of documents that a clean-up could drop, one per line"
    ),
    "--drop-similarity": Meaning(
        "SHARE", "Drop texts that are at least this similar to one that is kept (--similarity to 1)"
    ),
    "--dry-run": Meaning(None, "Only decide, and exit with code 3 if something would be left out"),
    "--encode": Meaning(
        "|".join(Encode),
        "Print fingerprints as unsigned decimals, 16 hex digits, signed bigints, or 64 bits, highest first",
    ),
    "--encoding": Meaning(
        "NAME", "Decode texts with this encoding; detect guesses the encoding of files that are not UTF-8"
    ),
    "--exclude": Meaning(
        "GLOB", "Inside folders, leave out files and folders that match: '*.log', 'drafts/**'; may be repeated"
    ),
    "--exact": Meaning(None, "Find identical texts only"),
    "--explain": Meaning("ID", "Explain what was decided instead of printing results"),
    "--file": Meaning("PATH", "Search for the text in this file; - reads it from stdin"),
    "--fingerprint": Meaning(
        "NUMBER", "Search for this fingerprint: a decimal, signed or not, or 0x and 16 hex digits"
    ),
    "--fingerprint-field": Meaning(
        "NAME[=hex|=decimal]",
        "Read fingerprints instead of texts from this field or column: integers, or strings of 16 hex digits, of 1"
        " to 16 (=hex), or of decimals",
    ),
    "--follow": Meaning(
        None, "Go on until a signal, and fingerprint the rows that other programs write, within a second"
    ),
    "--follow-links": Meaning(None, "Inside folders, also read what symbolic links lead to, once"),
    "--format": Meaning(
        "|".join(Format),
        "Print results in this format; by default, a table at a terminal and JSON lines elsewhere",
    ),
    "--from": Meaning("REVISION", "Print the upgrade from this revision"),
    "--health": Meaning("FILE", "Touch this file after each look at the table, for health checks"),
    "--hidden": Meaning(None, "Also read hidden files and folders inside folders"),
    "--html": Meaning(
        "|".join(Html),
        "Compare the source of web pages (.html, .htm, .xhtml) and of texts in records, or their main content,"
        " without menus and footers",
    ),
    "--id-column": Meaning("NAME", "Store ids in this column; by default, they are not stored"),
    "--id-field": Meaning("NAME", "Read ids from this field or column"),
    "--include": Meaning("GLOB", "Inside folders, read only files that match; may be repeated"),
    "--inner-blocks": Meaning("N", "Split the other bits into this many inner blocks; 0 for none"),
    "--input": Meaning(
        "FILE",
        "Read fingerprints from this file, one per line, written as for near --fingerprint; - is stdin",
        "-i",
    ),
    "--input-format": Meaning("|".join(InputFormat), "Read all files in this format, whatever their names are"),
    "--into": Meaning("NAME", "Create this table and write the results to it"),
    "--keep": Meaning(
        "|".join(Keep),
        "Of similar documents, keep the one most similar to the others, the one read first, the longest or, of"
        " files, the one modified last, the one modified first, or the one with the shortest path",
    ),
    "--keep-field": Meaning(
        "NAME", "Keep the document with the highest number or text in this field or column instead"
    ),
    "--keep-under": Meaning(
        "PATH",
        "Drop no documents below this folder, or in this file, and keep them in favour of others; may be repeated",
    ),
    "--keys": Meaning(None, "Print the keys of the rows beside each fingerprint"),
    "--lead": Meaning("N", "Move this many blocks to the front of each key"),
    "--like": Meaning("NAME", "Plan for fingerprints like those in this table"),
    "--limit": Meaning("ROWS", "Print at most this many rows (1 or more)"),
    "--lines": Meaning(None, "Treat every line of a text, and of stdin, as a document"),
    "--max-document": Meaning(
        "SIZE", "Skip documents larger than this after decompression: 500MB, 2GB (1GB is 1024MB)"
    ),
    "--lock-timeout": Meaning(
        "TIME",
        "Wait for locks for this time, such as 10s or 5min; by default, 1min, and without a limit for B-trees that"
        " are built concurrently",
    ),
    "--missing": Meaning("ROWS", "Accept up to this many rows without a fingerprint for the new default index"),
    "--no-header": Meaning(None, "The first row of a table is a record: its columns are called 1, 2, 3"),
    "--null": Meaning(None, "End each name in the drop list with a NUL, for xargs -0", "-0"),
    "--output": Meaning("FILE", "Write the results to this file instead of stdout (-)", "-o"),
    "--pairs": Meaning("N", "Draw this many pairs (1 or more)"),
    "--protect": Meaning(
        "WHAT",
        "Never drop texts for each other whose numbers or symbols differ: numbers, symbols or numbers,symbols",
    ),
    "--query": Meaning(
        None, "Print the queries for simsql.similar_candidates that search for similar texts instead"
    ),
    "--quiet": Meaning(None, "Print only results and errors: no progress, summary or remarks", "-q"),
    "--quoting": Meaning(
        "|".join(Quoting), "Quotes inside the fields of tables are doubled, follow a backslash, or mean nothing"
    ),
    "--recall": Meaning(
        "SHARE", "Find this share of the texts that are exactly that similar, on average (0 to below 1)"
    ),
    "--recipe": Meaning("RECIPE", "Make fingerprints with this recipe: an id, a known name, or a file"),
    "--report": Meaning("FILE", "Write a page to look at the clusters and their texts in a browser"),
    "--repair": Meaning(None, "Repair the faults of a table; writers to it wait until it is done"),
    "--replace": Meaning(None, "Replace what is there"),
    "--rows": Meaning("N", "Plan for this many fingerprints (0 or more)"),
    "--sample": Meaning("ROWS", "Compare this many rows, from random pages; 0 for all rows"),
    "--scope": Meaning("COLUMN=VALUE", "Work within this scope; repeat for each scope column of the index"),
    "--scope-column": Meaning(
        "COLUMN", "Search only among rows with the same value of this column; may be repeated"
    ),
    "--seed": Meaning("N", "Draw other pairs with another number (0 or more)"),
    "--server-dir": Meaning("DIR", "Use the embedded server in this folder and keep its data"),
    "--similarity": Meaning(
        "SHARE", "Count texts as similar if their word trigrams are at least this similar (0 to 1)"
    ),
    "--sketch-column": Meaning("NAME", "Use this column for the sketches of the texts"),
    "--sketches": Meaning(None, "Also print the sketch of each document, after its fingerprint"),
    "--source": Meaning(
        "NAME[=WEIGHT]", "The fingerprints come from the texts in this column; may be repeated, with weights"
    ),
    "--sql": Meaning(None, "Print the SQL instead of running it"),
    "--storage": Meaning(
        "|".join(Storage),
        "Keep the index in key tables, or in B-trees on the table itself; by default, expression for a partitioned"
        " or distributed table, and tables for others",
    ),
    "--text": Meaning("TEXT", "Search for this text; - reads it from stdin"),
    "--text-column": Meaning("NAME", "Use this column for the texts"),
    "--text-field": Meaning(
        "NAME",
        "Read texts from this field or column, or this path: data.text, messages[].content; may be repeated, to"
        " join the texts of several",
    ),
    "--texts": Meaning(
        None, "Compute the fingerprints of a sample of the rows again from their texts, and compare them, too"
    ),
    "--time-limit": Meaning("TIME", "Stop after this time, such as 90s, 10min or 2h; the next call goes on"),
    "--unique": Meaning(
        None, "Load only documents without a near-duplicate in the table or before them, and list the others"
    ),
    "--where": Meaning("SQL", "Decide only about the rows that meet this condition"),
    "--within": Meaning(
        "FIELD", "Compare only records with the same value of this field or column; may be repeated"
    ),
    "--within-folder": Meaning(
        "DEPTH", "Compare only documents with the same first folders of their paths, as many as this number"
    ),
    "--workers": Meaning(
        "N", "Compute fingerprints in up to this many processes (1 or more); by default, one per core"
    ),
}


def refuse_empty(param: typer.CallbackParam, value: Any) -> Any:
    """Return the value of an option or argument. An empty one, of a variable that is not set, is an error."""
    # With Click up to 8.1, Typer passes None for a list without values, but accepts only a list in return.
    if value is None and getattr(param, "multiple", False):
        return []
    if "" in (value if isinstance(value, list | tuple) else [value]):
        raise typer.BadParameter("it is empty: give a value, or leave it out")
    return value


def option(name: str, more: str = "", **settings: Any) -> Any:
    """Return the option with this name; `more` is appended to its help in this command only."""
    meaning = MEANINGS[name]
    flags = [name, meaning.short] if meaning.short else [name]
    common = {"metavar": meaning.value, "help": f"{meaning.text}{more}.", "callback": refuse_empty}
    return typer.Option(*flags, **{**common, **settings})


def argument(name: str, meaning: str) -> Any:
    """Return an argument that names something in a database."""
    return typer.Argument(metavar=name, help=meaning, callback=refuse_empty)


def parse_weight(source: str) -> tuple[str, int]:
    """Return the name and the weight of a text column: title, or title=3."""
    name, _, weight = source.rpartition("=")
    if not name or not weight.isdecimal():
        return source, 1
    if not 1 <= int(weight) <= 1_000_000:
        raise UsageError(f"the weight of {name!r} must be between 1 and 1,000,000, not {weight}")
    return name, int(weight)


def parse_sources(columns: list[str] | None) -> dict[str, int] | None:
    return dict(map(parse_weight, columns)) if columns else None


def parse_recipe(name: str | None) -> "Recipe | None":
    """Return the recipe with an id or a name, or read it from a file."""
    from simsql.fingerprint import Recipe, read_recipe

    if name is None:
        return None
    try:
        return Recipe.from_id(name)
    except ValueError as error:
        if not Path(name).exists() or Path(name).is_dir():
            raise UsageError(f"{error}, and there is no such file") from error
    try:
        return read_recipe(name)
    except ValueError as error:
        raise UsageError(str(error)) from error


_FINGERPRINT = re.compile("-?[0-9]{1,20}|0[xX][0-9a-fA-F]{16}")


def parse_fingerprint(written: str) -> int:
    """Return a fingerprint. Hexadecimal digits need 0x: all of them could be decimal, too."""
    base = 16 if written[1:2].lower() == "x" else 10
    number = int(written, base) if _FINGERPRINT.fullmatch(written) else 1 << 64
    if not -(1 << 63) <= number < 1 << 64:
        raise UsageError(
            f"{printable(written[:40])} is not a fingerprint: expected a whole number between 0 and 2**64 - 1, the"
            " bigint of one, or 0x and 16 hexadecimal digits"
        )
    return number % (1 << 64)


_NUMBER = re.compile(r"-?(?:\d+|\d{1,3}(?:,\d{3})+|\d+(?:\.\d+)?[eE]\+?\d{1,2})", re.ASCII)


def number_between(least: int, most: int) -> Callable[[str | int], int]:
    """Return a parser for whole numbers in this range, such as 1000000, 1,000,000 or 1e6."""

    def read(written: str | int) -> int:
        text = str(written)
        if not _NUMBER.fullmatch(text):
            advice = f" from {least} to {most}" if most <= 64 else ": write it as 1000000, 1,000,000 or 1e6"
            raise typer.BadParameter(f"{text!r} is not a whole number{advice}")
        number = Decimal(text.replace(",", ""))
        if number != number.to_integral_value():
            raise typer.BadParameter(f"{text} is not a whole number")
        if not least <= number <= most:
            bounds = f"at least {least:,}" if most == _ANY else f"between {least:,} and {most:,}"
            raise typer.BadParameter(f"it must be {bounds}, not {text}")
        return int(number)

    return read


_ANY = 1 << 80  # practically no limit


def number_option(name: str, more: str = "", *, least: int, most: int = _ANY) -> Any:
    return option(name, more, parser=number_between(least, most))


def read_time(written: str | timedelta) -> timedelta:
    """Return a time such as 90s, 10min or 2h."""
    found = re.fullmatch("([0-9]{1,6})(s|min|h)", str(written))
    if not found or not int(found[1]):
        raise typer.BadParameter(f"{written!r} is not a time such as 90s, 10min or 2h")
    return timedelta(seconds=int(found[1]) * {"s": 1, "min": 60, "h": 3600}[found[2]])


LockTimeout = Annotated[timedelta | None, option("--lock-timeout", parser=read_time)]


def _read_share(written: str | float) -> float:
    try:
        share = float(written)
    except ValueError:
        raise typer.BadParameter(f"{written!r} is not a number from 0 to 1") from None
    if not 0 <= share <= 1:
        raise typer.BadParameter(f"it must be between 0 and 1, not {written}")
    return share


def read_size(written: str | int) -> int:
    """Return the number of bytes of a size such as 500MB or 2GB."""
    size = r"(\d{1,3}(?:,\d{3}){1,5}|\d{1,18}(?:\.\d{1,9})?) ?([kmgtp]?)b?"
    match = re.fullmatch(size, str(written), re.IGNORECASE)
    if match is None:
        raise typer.BadParameter(f"{written!r} is not a size: write it as 500MB or 2GB")
    found = int(float(match[1].replace(",", "")) * 1024 ** "_KMGTP".index(match[2].upper() or "_"))
    # A line is read with its end, and a position in a text has to fit into 63 bits.
    if not 1 <= found < 1 << 62:
        raise typer.BadParameter(f"it must be at least 1 byte and less than 4096PB, not {written}")
    return found


def share_option(name: str, more: str = "") -> Any:
    return option(name, more, parser=_read_share)


def read_path(written: str | Path) -> Path:
    """Return a path. An empty one, of a variable that is not set, would mean this folder; `-` is a stream."""
    if not str(written):
        raise typer.BadParameter("the path is empty: name a file or a folder")
    path = Path(written)
    try:
        os.stat(path)  # noqa: PTH116 - Path hides what is wrong in some versions
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise typer.BadParameter(f"{printable(str(path))} is a link to itself: name something else") from None
    return path.absolute() if path == STDOUT and str(written) != "-" else path  # a file, as ./- or .//-


def read_folder(written: str | Path) -> Path:
    """Return the path of a folder, which may be missing."""
    folder = read_path(written)
    if folder.exists() and not folder.is_dir():
        raise typer.BadParameter(f"{printable(str(folder))} is a file: name a folder")
    return folder


def read_real_path(written: str | Path) -> str:
    """Return the path of a folder or file that exists, without links."""
    path = read_path(written)
    if not path.exists():
        raise typer.BadParameter(f"there is no folder or file {printable(storable(path))}")
    return storable(path.resolve())


def path_option(name: str, more: str = "") -> Any:
    return option(name, more, parser=read_path)


def distance_option(more: str) -> Any:
    return number_option("--distance", f" (0 to 64){more}", least=0, most=64)


SearchDistance = Annotated[int | None, distance_option("; by default, that of the index")]
Workers = Annotated[int | None, number_option("--workers", least=1)]
IndexedColumn = Annotated[str | None, option("--column")]
OF_TITLES = ", or those of letters with the recipe pg_trgm"
SketchColumn = Annotated[str | None, option("--sketch-column", "; by default, there are none")]
Encoding = Annotated[str, option("--encoding")]
Formatted = Annotated[Format | None, option("--format")]
MaxDocument = Annotated[Any, option("--max-document", parser=read_size)]
NewRecipeName = Annotated[str | None, option("--recipe", "; by default words12-log-1")]
FoldingRecipeName = Annotated[str | None, option("--recipe", "; by default words12-log-2")]
RecipeName = Annotated[str | None, option("--recipe", "; by default the index's; without an index, words12-log-1")]
ScopeValues = Annotated[list[str] | None, option("--scope")]

_PATHS = typer.Argument(
    metavar="PATH",
    help="Folders (read recursively) and files: text, .jsonl, .ndjson, .json, .csv, .tsv, also as .gz, .xz,"
    " .bz2 or .zst, and .parquet; - is JSON or a table on stdin.",
)
Paths = Annotated[list[str], _PATHS]
Folder = Annotated[
    Path,
    typer.Argument(
        metavar="DIR", help="Folder for the server's data; created if it is missing.", parser=read_folder
    ),
]
IndexedTable = Annotated[str, argument("TABLE", "Name of the indexed table as in SQL: article, app.article.")]
TableName = Annotated[str, argument("TABLE", "Table name as in SQL: article, app.article.")]


@dataclass(frozen=True)
class Printing:
    form: Formatted = None

    @property
    def format(self) -> Format:
        return choose_format(self.form)


@dataclass(frozen=True)
class Filling:
    """The options that say of which texts the values of rows are made, and how."""

    text_column: Annotated[
        list[str] | None,
        option("--text-column", "; by default those of the index; may be repeated", metavar="NAME[=WEIGHT]"),
    ] = None
    sketch_column: Annotated[
        str | None,
        option("--sketch-column", "; SOURCE is needed for several text columns", metavar="NAME[=SOURCE]"),
    ] = None
    recipe: RecipeName = None

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of `SearchIndex.backfill` and the like for them, but for the recipe."""
        sketches, _, sketched = (self.sketch_column or "").partition("=")
        source = parse_sources(self.text_column)
        return {"source": source, "sketch_column": sketches or None, "sketch_source": sketched or None}


def _read_delimiter(written: str) -> str:
    delimiter = "\t" if written in ("tab", "\\t") else written
    if len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\\\r\n\0':
        raise typer.BadParameter(f"{written!r} is not a delimiter: give one character, such as ';', or tab")
    return delimiter


@dataclass(frozen=True)
class Reading:
    """The options of every command that reads documents."""

    text_field: Annotated[list[str] | None, option("--text-field", "; by default text")] = None
    id_field: Annotated[str, option("--id-field")] = "id"
    hidden: Annotated[bool, option("--hidden")] = False
    include: Annotated[list[str] | None, option("--include")] = None
    exclude: Annotated[list[str] | None, option("--exclude")] = None
    follow_links: Annotated[bool, option("--follow-links")] = False
    input_format: Annotated[InputFormat | None, option("--input-format")] = None
    lines: Annotated[bool, option("--lines")] = False
    delimiter: Annotated[str | None, option("--delimiter", parser=_read_delimiter)] = None
    no_header: Annotated[bool, option("--no-header")] = False
    quoting: Annotated[Quoting, option("--quoting")] = Quoting.DOUBLE
    html: Annotated[Html, option("--html")] = Html.SOURCE
    encoding: Encoding = "utf-8"
    max_document: MaxDocument = "100MB"

    def layout(self) -> Layout:
        if self.lines and self.input_format not in (None, InputFormat.TEXT):
            raise UsageError(f"--lines reads texts, not {self.input_format.value}: leave one of the options out")
        return Layout(
            tuple(dict.fromkeys(self.text_field or USUAL.text_fields)),
            self.id_field,
            self.encoding,
            self.max_document,
            main_content=self.html is Html.MAIN,
            lines=self.lines,
            format=self.input_format,
            delimiter=self.delimiter,
            header=not self.no_header,
            quoting=self.quoting.value,
        )

    def selection(self) -> Selection:
        return Selection(self.hidden, self.include or (), self.exclude or (), self.follow_links)

    def open(self, paths: Sequence[str], *, outputs: Outputs | None = None) -> DocumentReader:
        selection, stdin = self.selection(), sys.stdin.buffer
        return DocumentReader(paths, self.layout(), selection=selection, outputs=outputs, stdin=stdin)


@dataclass(frozen=True)
class Deciding:
    """The options of every command that decides which documents to keep."""

    distance: Annotated[int, distance_option(" between texts to compare, more if their sketches are near")] = 12
    similarity: Annotated[float | None, share_option("--similarity", "; 0 compares no texts; by default 0.6")] = (
        None
    )
    drop_similarity: Annotated[
        float | None, share_option("--drop-similarity", "; by default 0.7, or --similarity if it is higher")
    ] = None
    by_features: Annotated[bool, option("--by-features", "; defaults become 0.5 for 0.6, and 0.6 for 0.7")] = False
    keep: Annotated[Keep | None, option("--keep", "; by default the first of these")] = None
    keep_field: Annotated[str | None, option("--keep-field")] = None
    protect: Annotated[str | None, option("--protect")] = None
    exact: Annotated[bool, option("--exact")] = False

    def rules(self) -> Rules:
        if self.keep and self.keep_field:
            raise UsageError("--keep and --keep-field exclude each other: leave one out")
        keep = self.keep or Keep.CENTRAL
        similarity = FEATURES_SIMILARITY if self.by_features else Rules.similarity
        similarity = (1.0 if self.exact else similarity) if self.similarity is None else self.similarity
        return Rules(
            self.distance,
            similarity,
            self.drop_similarity,
            keep,
            self.keep_field,
            protect=_parse_protected(self.protect),
            exact=self.exact,
            by_features=self.by_features,
        )


def _parse_protected(names: str | None) -> tuple[Protected, ...]:
    try:
        return tuple(dict.fromkeys(map(Protected, names.split(",")))) if names else ()
    except ValueError:
        raise UsageError(
            f"--protect takes numbers, symbols or numbers,symbols, not {printable(names or '')}"
        ) from None


def parse_scope(values: list[str] | None) -> dict[str, str] | None:
    """Parse COLUMN=VALUE arguments into a scope. Values stay text: PostgreSQL converts them."""
    if not values:
        return None
    parts = [value.partition("=") for value in values]
    for column, equals, _ in parts:
        if not (column and equals):
            raise UsageError(f"write a scope as COLUMN=VALUE, not {printable(column)}")
    scope = {column: value for column, _, value in parts}
    if len(scope) < len(parts):
        raise UsageError("--scope names a column twice: give one value for each column")
    return scope
