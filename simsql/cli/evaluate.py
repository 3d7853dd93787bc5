"""`simsql evaluate`: precision and recall on labelled pairs, and the rule to use."""

import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, NoReturn

import numpy as np
import typer
from numpy.typing import NDArray

from simsql.cli._app import command
from simsql.cli._options import (
    Formatted,
    Quiet,
    Reading,
    option,
    path_option,
    read_path,
    share_option,
)
from simsql.cli._process import note
from simsql.cli._recipes import parse_recipe
from simsql.cli._terminal import ProgressBars, messages, print_skips
from simsql.documents import (
    STDOUT,
    Document,
    Outputs,
    SkipCount,
    name_paths,
    open_output,
    printable,
    read_documents,
)
from simsql.documents.output_formats import Column, Format, choose_format, print_rows
from simsql.errors import SimsqlError, UsageError
from simsql.evaluate.chart import Panel, draw_chart, rule_panels
from simsql.evaluate.labels import Labelled, Labels, read_labels
from simsql.evaluate.measures import (
    NO_FINGERPRINT,
    Estimate,
    LabelledPairs,
    RuleFigures,
    best_rule,
    evaluate_pairs,
)
from simsql.fingerprint import DEFAULT_RECIPE, Recipe, simhash_many, similarity_many

_DISTANCES = range(13)
_FEW = 50  # labels of a kind
_SHOWN = 3  # ids that are not found

_FIELDS = tuple(
    map(
        Column,
        (
            *("recipe", "distance", "similarity", "found"),
            *(f"{name}{end}" for name in ("precision", "recall", "f1") for end in ("", "_low", "_high")),
            "recommended",
        ),
    )
)
_HEADINGS = (
    Column("distance", "number"),
    Column("found", "count"),
    *(Column(name, "number") for name in ("precision", "95%", "recall", "95%", "F1", "95%")),
)

_Result = tuple[str, list[RuleFigures]]


@command("evaluate")
def evaluate_command(
    *,
    labels: Annotated[
        Path,
        typer.Argument(
            metavar="LABELS",
            help="Labelled pairs: .csv or .tsv with a header, or JSON lines; - is JSON lines on stdin.",
            parser=read_path,
        ),
    ],
    paths: Annotated[
        list[str] | None,
        typer.Argument(metavar="[PATH]", help="Files and folders with the documents that the ids name."),
    ] = None,
    similarity: Annotated[float, share_option("--similarity")] = 0.6,
    recipe: Annotated[
        list[str] | None, option("--recipe", "; repeat it to compare several; by default words12-log-1")
    ] = None,
    chart: Annotated[Path | None, path_option("--chart")] = None,
    form: Formatted = None,
    reading: Reading,
    quiet: Quiet = False,
) -> None:
    """Measure precision and recall on labelled pairs.

    A pair has a label (near-duplicate, not or unsure) and its texts in text_a and text_b, or the ids of two
    documents in id_a and id_b. Print precision, recall and F1 with 95% intervals for each distance from 0 to 12,
    with and without a check of the similarity, and recommend a distance.
    """
    names = dict.fromkeys(recipe or [DEFAULT_RECIPE.id])
    recipes = {printable(name): parse_recipe(name) or DEFAULT_RECIPE for name in names}
    console = messages(quiet=quiet)
    from_stdin = str(labels) == "-"
    outputs = Outputs({"the table of results": STDOUT, "--chart": chart})
    outputs.refuse(sys.stdin if from_stdin else labels, *map(Path, recipe or []))
    if from_stdin and "-" in (paths or []):
        raise UsageError("labels and documents cannot both come from stdin: name a file for one of them")
    if not from_stdin and not labels.exists():
        raise UsageError(f"no such file: {printable(str(labels))}")
    read = read_labels(labels, sys.stdin.buffer if from_stdin else None)
    if not any(pair.alike for pair in read.pairs):
        where = "stdin" if from_stdin else printable(str(labels))
        raise SimsqlError(
            f"{where} labels no pair as near-duplicate ({len(read.pairs):,} as not, {read.left_out:,} left out):"
            " recall needs at least one"
        )
    skips = SkipCount()
    wanted = {name for pair in read.pairs for name in _ids_to_look_up(pair)}
    known: dict[str, str] = {}
    if wanted:
        reader = reading.open(paths or _demand_paths(read.pairs), outputs=outputs)
        with ProgressBars(console).stage("read", reader.bytes_total) as report:
            for item in read_documents(reader, skips, report):
                _add_wanted(known, item, wanted)
                del item  # a long document is not kept while the next one is read
        _check_found(read.pairs, known, paths or [])
    texts = [_texts_of(pair, known) for pair in read.pairs]
    similarities = similarity_many(*_sides(texts)).data
    results = [
        (name, evaluate_pairs(_measure(read.pairs, texts, made_by, similarities), _DISTANCES, similarity))
        for name, made_by in recipes.items()
    ]
    if chart:
        panels: list[Panel] = []
        for name, figures in results:
            panels += rule_panels(name, figures)
        with open_output(chart) as file:
            file.write(draw_chart(panels))
    print_skips(skips, console)
    best = best_rule(rule for _, figures in results for rule in figures)
    advice = "\n".join(_advise(results, best, read))
    shown = choose_format(form)
    if shown is Format.TABLE:
        _print_tables(results, similarity)
        print(f"\n{advice}")
    else:
        print_rows(shown, _FIELDS, _rows(results, best))
        note(advice, quiet=quiet)


def _ids_to_look_up(pair: Labelled) -> Iterator[str]:
    for name, text in zip(pair.ids, pair.texts, strict=True):
        if text is None and name is not None:
            yield name


def _demand_paths(pairs: Sequence[Labelled]) -> NoReturn:
    place = next(pair.place for pair in pairs if list(_ids_to_look_up(pair)))
    raise SimsqlError(f"{place}: the pair has ids, but no texts: name the files of the documents after LABELS")


def _add_wanted(known: dict[str, str], document: Document, wanted: set[str]) -> None:
    """Add the text of a document by its id or its place, if that is wanted."""
    for name in {document.name, document.place} & wanted:
        if name in known:
            raise SimsqlError(f"several documents are called {printable(name)!r}: name them by their places")
        known[name] = document.text


def _check_found(pairs: Sequence[Labelled], known: dict[str, str], paths: Sequence[str]) -> None:
    missing = {name: pair.place for pair in reversed(pairs) for name in _ids_to_look_up(pair) if name not in known}
    if missing:
        some = ", ".join(f"{printable(name)!r} ({place})" for name, place in list(missing.items())[-_SHOWN:])
        more = f" and {len(missing) - _SHOWN:,} more" if len(missing) > _SHOWN else ""
        raise SimsqlError(
            f"no document in {name_paths(paths)} has the id {some}{more}: check --id-field, and the files"
        )


def _texts_of(pair: Labelled, known: dict[str, str]) -> tuple[str, str]:
    first, second = (
        known[name or ""] if text is None else text for name, text in zip(pair.ids, pair.texts, strict=True)
    )
    return first, second


def _sides(texts: Sequence[tuple[str, str]]) -> tuple[list[str], list[str]]:
    return [a for a, _ in texts], [b for _, b in texts]


def _measure(
    pairs: Sequence[Labelled], texts: Sequence[tuple[str, str]], recipe: Recipe, similarities: NDArray[np.float64]
) -> LabelledPairs:
    """Return the pairs with the distances of their fingerprints by a recipe."""
    a, b = (simhash_many(side, recipe) for side in _sides(texts))
    distance = np.bitwise_count(a.data ^ b.data).astype(np.int64)
    distance[a.mask | b.mask] = NO_FINGERPRINT
    return LabelledPairs(
        distance,
        similarities,
        np.array([pair.alike for pair in pairs]),
        np.array([pair.weight for pair in pairs]),
    )


def _rows(results: Sequence[_Result], best: RuleFigures | None) -> Iterator[Sequence[Any]]:
    for name, figures in results:
        for rule in figures:
            estimates = (*rule.precision, *rule.recall, *rule.f1)
            yield name, rule.distance, rule.similarity, rule.found, *estimates, rule is best


def _print_tables(results: Sequence[_Result], similarity: float) -> None:
    first = True
    for name, figures in results:
        for least, heading in ((None, "by distance alone"), (similarity, f"similarity at least {similarity:g}")):
            print(f"{'' if first else chr(10)}{name}, {heading}")
            first = False
            print_rows(Format.TABLE, _HEADINGS, (_cells(rule) for rule in figures if rule.similarity == least))


def _cells(rule: RuleFigures) -> Sequence[Any]:
    shown = [cell for estimate in (rule.precision, rule.recall, rule.f1) for cell in _show(estimate)]
    return str(rule.distance), rule.found, *shown


def _show(estimate: Estimate) -> tuple[str | None, str | None]:
    if estimate.value is None:
        return None, None
    return f"{estimate.value:.2f}", _interval(estimate)


def _interval(estimate: Estimate) -> str:
    return f"{estimate.low:.2f}-{estimate.high:.2f}"


def _advise(results: Sequence[_Result], best: RuleFigures | None, labels: Labels) -> Iterator[str]:
    """Yield the recommendation, and what speaks against relying on it."""
    if best is None:
        yield "no recommendation: no rule finds any of the near-duplicates; try another recipe"
        return
    name = next(name for name, figures in results if any(rule is best for rule in figures))
    recipe = "" if name == DEFAULT_RECIPE.id else f" --recipe {shlex.quote(name)}"
    yield (
        f"recommended: simsql dedup --distance {best.distance} --similarity {best.similarity or 0:g}{recipe}, with"
        f" a precision of {best.precision.value:.2f} ({_interval(best.precision)}) and a recall of"
        f" {best.recall.value:.2f} ({_interval(best.recall)})"
    )
    alike = sum(pair.alike for pair in labels.pairs)
    others = len(labels.pairs) - alike
    if min(alike, others) < _FEW:
        yield (
            f"few labels (near-duplicates: {alike:,}, others: {others:,}, left out: {labels.left_out:,}): with"
            f" {_FEW} of each, the intervals are more reliable"
        )
    if labels.weighted:
        yield "near-duplicates beyond the distance of simsql sample are missing from the recall"
    else:
        yield "the figures hold for pairs like these; to estimate a collection, label pairs from simsql sample"
