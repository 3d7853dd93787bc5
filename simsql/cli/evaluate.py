"""`simsql evaluate`: precision and recall on labelled pairs, and the rule to use."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from simsql.cli._app import command
from simsql.cli._options import Printing, Reading, option, parse_recipe, read_path, share_option
from simsql.cli._terminal import Telling, print_skips
from simsql.decide.rules import Rules
from simsql.documents import STDOUT, Outputs, printable
from simsql.documents.output_formats import Column, Format, print_rows
from simsql.errors import SimsqlError, UsageError

if TYPE_CHECKING:
    from simsql.evaluate.labels import Labels
    from simsql.evaluate.measures import Estimate, RuleFigures

    _Result = tuple[str, list[RuleFigures]]

_FEW = 50  # labels of a kind
_SIMILARITIES = 0.5, 0.6, 0.7

_FIELDS = tuple(
    map(
        Column,
        (
            *("recipe", "distance", "similarity", "by_features", "found"),
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
    similarity: Annotated[
        list[float] | None, share_option("--similarity", "; repeat it for several; by default 0.5, 0.6 and 0.7")
    ] = None,
    recipe: Annotated[
        list[str] | None, option("--recipe", "; repeat it to compare several; by default words12-log-2")
    ] = None,
    printing: Printing,
    reading: Reading,
    telling: Telling,
) -> None:
    """Measure precision and recall on labelled pairs.

    A pair has a label (near-duplicate, not or unsure) and its texts in text_a and text_b, or the ids of two
    documents in id_a and id_b. Print precision, recall and F1 with 95% intervals for each distance from 0 to 16,
    without a check and with each similarity, and for each similarity by the features of the recipe. Recommend one
    of these rules.
    """
    from simsql.evaluate.labelled_texts import find_texts
    from simsql.evaluate.labels import read_labels
    from simsql.evaluate.measures import best_rule
    from simsql.fingerprint import FOLDING_RECIPE

    names = dict.fromkeys(recipe or [FOLDING_RECIPE.id])
    recipes = {printable(name): parse_recipe(name) or FOLDING_RECIPE for name in names}
    from_stdin = str(labels) == "-"
    outputs = Outputs({"the table of results": STDOUT})
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
    named = paths or []
    similarities = sorted(set(similarity or _SIMILARITIES) - {0.0})  # 0 checks nothing
    stages = telling.stages()
    texts, skips = find_texts(read.pairs, named, lambda: reading.open(named, outputs=outputs), stages)
    results = [(name, texts.measure(made_by, similarities)) for name, made_by in recipes.items()]
    print_skips(skips, telling.console)
    best = best_rule(rule for _, figures in results for rule in figures)
    advice = "\n".join(_advise(results, best, read))
    if printing.format is Format.TABLE:
        _print_tables(results)
        print(f"\n{advice}")
    else:
        print_rows(printing.format, _FIELDS, _rows(results, best))
        telling.remark(advice)
    skips.check_read()


def _rows(results: Sequence[_Result], best: RuleFigures | None) -> Iterator[Sequence[Any]]:
    for name, figures in results:
        for rule in figures:
            exact = (*rule.precision, *rule.recall, *rule.f1)
            estimates = (None if figure is None else round(figure, 6) for figure in exact)
            yield name, *rule[:4], *estimates, rule is best


def _print_tables(results: Sequence[_Result]) -> None:
    first = True
    for name, figures in results:
        for least, by_features in dict.fromkeys((rule.similarity, rule.by_features) for rule in figures):
            heading = "by distance alone" if least is None else f"similarity at least {least:g}"
            print(f"{'' if first else chr(10)}{name}, {heading}{' by its features' if by_features else ''}")
            first = False
            rules = (rule for rule in figures if (rule.similarity, rule.by_features) == (least, by_features))
            print_rows(Format.TABLE, _HEADINGS, map(_cells, rules))


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
    from simsql.fingerprint import FOLDING_RECIPE

    if best is None:
        yield "no recommendation: no rule finds any of the near-duplicates; try another recipe"
        return
    name = next(name for name, figures in results if any(rule is best for rule in figures))
    recipe = "" if name == FOLDING_RECIPE.id else f" --recipe {shlex.quote(name)}"
    rules = Rules(best.distance, best.similarity or 0.0, by_features=best.by_features)
    how = "--by-features" if best.by_features else f"--distance {rules.distance}"
    # The figures are those of pairs in clusters; with this option, they are also those of dropped texts.
    drop = "" if rules.drop == rules.similarity else f" --drop-similarity {rules.similarity:g}"
    yield (
        f"recommended: simsql dedup {how} --similarity {rules.similarity:g}{drop}{recipe},"
        f" with a precision of {best.precision.value:.2f} ({_interval(best.precision)}) and a recall of"
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
        yield "the weights count: the recall is that of all pairs for which the labels stand"
    else:
        yield "the figures hold for pairs like these; to estimate a collection, label pairs from simsql sample"
